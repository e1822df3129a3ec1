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

use super::Request;
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
) -> Result<impl Iterator<Item = Request> + use<>, LabError> {
    let count = file_bytes.checked_div(record_bytes).unwrap_or(0);
    if count == 0 || count > RECORDS_MAX {
        return Err(LabError::Usage(format!(
            "iozone: a file of {file_bytes} bytes has {count} records of {record_bytes}; 1 to {RECORDS_MAX} are possible"
        )));
    }
    let is_write = test.contains("write");
    Ok(records(test, count, seed).into_iter().map(move |record| {
        if is_write {
            Request::write(record * record_bytes, record_bytes)
        } else {
            Request::read(record * record_bytes, record_bytes)
        }
    }))
}

/// The classic line: file and record in KB, then KB/s of each test.
#[must_use]
pub fn classic(file_bytes: u64, record_bytes: u64, kib_per_s: &[f64]) -> String {
    let mut heads = format!("{:>16}{:>8}", "kB", "reclen");
    let mut line = format!("{:>16}{:>8}", file_bytes >> 10, record_bytes >> 10);
    for (test, value) in TESTS.iter().zip(kib_per_s) {
        heads += &format!("{test:>16}");
        line += &format!("{value:>16.0}");
    }
    format!("{heads}\n{line}\n")
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
    fn tests_that_write_write() {
        for test in TESTS {
            let first = requests(test, 1 << 20, 4096, 1).unwrap().next().unwrap();
            let is_write = first.operation == Operation::Write;
            assert_eq!(is_write, test.contains("write"), "{test}");
        }
        assert!(requests("read", 100, 4096, 1).is_err());
    }
}
