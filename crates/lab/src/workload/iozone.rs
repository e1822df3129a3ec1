//! iozone: thirteen tests on one file, in the order of its columns.
//!
//! Invariants:
//! - random tests touch every record once, in a shuffled order;
//! - backward reads go from the last record to the first;
//! - record rewrite writes record 0 again and again;
//! - stride reads every 17th record; at the end it begins again one record later, until as many were read as there are.
//!
//! Source: lab.md section 5. KB = 1024 bytes. The tests through stdio (fwrite ...) issue the same requests here.

use plexum_disks::rng::Rng;

use super::IoRequest;
use crate::error::LabError;

/// Step of the stride test, in records.
const STRIDE: u64 = 17;
/// Most records of a file.
const RECORDS_MAX: u64 = 1 << 24;

/// The tests in the order of the columns.
pub const TESTS: [&str; 13] = [
    "write",
    "rewrite",
    "read",
    "reread",
    "random read",
    "random write",
    "backward read",
    "record rewrite",
    "stride read",
    "fwrite",
    "frewrite",
    "fread",
    "freread",
];

/// Bytes of a file and of a record.
pub type Run = (u64, u64);

/// Files of auto mode, in bytes: the smallest, and the largest when nothing is said.
const AUTO_FILE_BYTES: (u64, u64) = (64 << 10, 512 << 20);
/// Its records, in bytes.
const AUTO_RECORD_BYTES: (u64, u64) = (4 << 10, 16 << 20);
/// Files above this have no records below that.
const LARGE_FILE_BYTES: u64 = 16 << 20;
const LARGE_RECORD_BYTES: u64 = 64 << 10;

/// The files and records of `-a`, up to files of `file_bytes_max` (0: 512 MiB), each twice the one before.
#[must_use]
pub fn auto(file_bytes_max: u64) -> Vec<Run> {
    let (first, last) = AUTO_FILE_BYTES;
    let last = if file_bytes_max == 0 {
        last
    } else {
        file_bytes_max
    };
    let doubled = |from: u64, to: u64| {
        std::iter::successors(Some(from), |size| size.checked_mul(2))
            .take_while(move |size| *size <= to)
    };
    let of_file = |file: u64| {
        let least = match file > LARGE_FILE_BYTES {
            true => LARGE_RECORD_BYTES,
            false => AUTO_RECORD_BYTES.0,
        };
        doubled(least, AUTO_RECORD_BYTES.1.min(file)).map(move |record| (file, record))
    };
    doubled(first, last).flat_map(of_file).collect()
}

/// What the tests of all runs are called: by file and record where there are several.
#[must_use]
pub fn named(runs: &[Run]) -> Vec<String> {
    let of_run = |(file, record): &Run| {
        let place = match runs.len() {
            1 => String::new(),
            _ => format!("{}K/{}K ", file >> 10, record >> 10),
        };
        TESTS.map(|test| format!("{place}{test}"))
    };
    runs.iter().flat_map(of_run).collect()
}

/// Record numbers of a test in order.
fn records(test: &str, count: u64, seed: u64) -> Vec<u64> {
    match test {
        "random read" | "random write" => {
            let mut order: Vec<u64> = (0..count).collect();
            let mut rng = Rng::new(seed);
            for index in (1..order.len()).rev() {
                let other = rng.below(index as u64 + 1) as usize;
                order.swap(index, other);
            }
            order
        }
        "backward read" => (0..count).rev().collect(),
        "record rewrite" => vec![0; usize::try_from(count).unwrap_or(0)],
        "stride read" => {
            let mut order = Vec::new();
            let mut first = 0;
            while (order.len() as u64) < count {
                let mut at = first;
                while at < count && (order.len() as u64) < count {
                    order.push(at);
                    at += STRIDE;
                }
                first += 1;
            }
            order
        }
        _ => (0..count).collect(),
    }
}

/// The requests of one test.
///
/// # Errors
/// `Usage` when the file does not hold a whole record, or too many.
pub fn requests(
    test: &str,
    file_bytes: u64,
    record_bytes: u64,
    seed: u64,
) -> Result<impl Iterator<Item = IoRequest> + use<>, LabError> {
    let count = file_bytes.checked_div(record_bytes).unwrap_or(0);
    if count == 0 || count > RECORDS_MAX {
        return Err(LabError::Usage(format!(
            "iozone: a file of {file_bytes} bytes has {count} records of {record_bytes}; 1 to {RECORDS_MAX} are possible"
        )));
    }
    let is_write = test.contains("write");
    Ok(records(test, count, seed).into_iter().map(move |record| {
        if is_write {
            IoRequest::write(record * record_bytes, record_bytes)
        } else {
            IoRequest::read(record * record_bytes, record_bytes)
        }
    }))
}

/// The classic lines: file and record in KB, then KB/s of each test.
#[must_use]
pub fn classic(runs: &[Run], kib_per_s: &[f64]) -> String {
    let mut text = format!("{:>16}{:>8}", "kB", "reclen");
    for test in TESTS {
        text += &format!("{test:>16}");
    }
    text += "\n";
    for ((file, record), values) in runs.iter().zip(kib_per_s.chunks(TESTS.len())) {
        text += &format!("{:>16}{:>8}", file >> 10, record >> 10);
        for value in values {
            text += &format!("{value:>16.0}");
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Operation;

    fn numbers(test: &str) -> Vec<u64> {
        let all = requests(test, 40 * 4096, 4096, 3).unwrap();
        all.map(|request| request.offset_bytes / 4096).collect()
    }

    #[test]
    fn each_test_touches_the_records_of_its_definition() {
        let forward: Vec<u64> = (0..40).collect();
        for test in ["write", "rewrite", "read", "reread", "fwrite", "freread"] {
            assert_eq!(numbers(test), forward, "{test}");
        }
        let mut random = numbers("random read");
        assert_ne!(random, forward);
        random.sort_unstable();
        assert_eq!(random, forward, "every record once");
        assert_eq!(numbers("backward read")[..2], [39, 38]);
        assert_eq!(numbers("record rewrite"), [0; 40]);
        assert_eq!(numbers("stride read")[..6], [0, 17, 34, 1, 18, 35]);
        assert_eq!(numbers("stride read").len(), 40);
    }

    #[test]
    fn auto_mode_doubles_files_and_records_and_spares_large_files_small_records() {
        let small = auto(256 << 10);
        let expected = [(64, 5), (128, 6), (256, 7)];
        for (file, count) in expected {
            let of_file = small.iter().filter(|run| run.0 == file << 10);
            assert_eq!(of_file.count(), count, "{file} KiB");
        }
        assert_eq!((small.len(), small[0]), (18, (64 << 10, 4 << 10)));
        assert_eq!(small[17], (256 << 10, 256 << 10));
        let all = auto(0);
        assert_eq!(all.last(), Some(&(512 << 20, 16 << 20)));
        let least = |file: u64| all.iter().find(|run| run.0 == file).map(|run| run.1);
        assert_eq!(least(16 << 20), Some(4 << 10));
        assert_eq!(least(32 << 20), Some(64 << 10));
        let names = named(&small);
        assert_eq!((names.len(), names[0].as_str()), (18 * 13, "64K/4K write"));
        assert_eq!(named(&small[..1])[2], "read");
        let text = classic(&small, &vec![7.0; names.len()]);
        assert_eq!(text.lines().count(), 19);
        assert!(auto(4096).is_empty());
    }

    #[test]
    fn tests_that_write_write() {
        for test in TESTS {
            let first = requests(test, 1 << 20, 4096, 1).unwrap().next().unwrap();
            let is_write = first.operation == Operation::Write;
            assert_eq!(is_write, test.contains("write"), "{test}");
        }
        assert!(requests("read", 100, 4096, 1).is_err());
    }
}
