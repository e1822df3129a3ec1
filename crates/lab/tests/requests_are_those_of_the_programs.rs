//! The request streams of the laboratory beside what the real programs do: fio's own log of its requests, and the
//! system calls of dd and bonnie++.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use plexum_lab::program::fio::{Target, job_file};
use plexum_lab::workload::bonnie::{self, Bonnie};
use plexum_lab::workload::files::{self, Order};
use plexum_lab::workload::{IoRequest, Operation, Process, dd, fio};

const PIECE: u64 = 8192;

fn run(command: &mut Command) {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{name} must be installed: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {told}");
}

fn flush() -> IoRequest {
    IoRequest {
        operation: Operation::Flush,
        ..IoRequest::read(0, 0)
    }
}

fn listed(processes: Vec<Process>) -> Vec<Vec<IoRequest>> {
    let list = |process: Process| process.requests.collect();
    processes.into_iter().map(list).collect()
}

/// The requests that fio logged: `TIME FILE WHAT OFFSET LENGTH`.
fn of_log(log: &str) -> Vec<IoRequest> {
    let request = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: usize| words[word].parse().unwrap();
        match words.get(2).copied() {
            Some("read") => Some(IoRequest::read(number(3), number(4))),
            Some("write") => Some(IoRequest::write(number(3), number(4))),
            Some("sync" | "datasync") => Some(flush()),
            _ => None,
        }
    };
    log.lines().skip(1).filter_map(request).collect()
}

#[test]
fn fio_makes_the_requests_of_its_job_file() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(4 << 20)
        .unwrap();
    for job in [
        "rw=read\nbs=16k",
        "rw=write\nbs=4k\nfsync=8",
        "rw=randread\nbs=4k",
        "rw=randwrite\nbs=8k\nfsync=1",
        "rw=randwrite\nbs=4k\nend_fsync=1",
        "rw=randrw\nrwmixread=25\nbs=4k",
    ] {
        let text = format!("[a]\nsize=1m\n{job}\n");
        let groups = fio::groups(fio::parse(&text, None).unwrap().jobs);
        let log = folder.path().join("log");
        let name = disk.to_str().unwrap();
        let jobs = job_file(&groups, &Target::File(name));
        let jobs = jobs + &format!("write_iolog={}\n", log.display());
        let path = folder.path().join("jobs.fio");
        std::fs::write(&path, jobs).unwrap();
        run(Command::new("fio").arg(&path));
        let real = of_log(&std::fs::read_to_string(&log).unwrap());
        std::fs::remove_file(&log).unwrap(); // fio would append
        let processes = fio::processes(&groups[0][0], 0, 4 << 20, 1).unwrap();
        let ours = listed(processes).remove(0);
        if job.contains("rand") {
            compare_random(job, &real, &ours);
        } else {
            assert_eq!(real, ours, "{job}");
        }
    }
}

/// Orders are random in both; everything else is the same.
fn compare_random(job: &str, real: &[IoRequest], ours: &[IoRequest]) {
    let offsets = |all: &[IoRequest]| {
        let data = all.iter().filter(|one| one.operation != Operation::Flush);
        let mut offsets: Vec<(u64, u64)> = data
            .map(|one| (one.offset_bytes, one.length_bytes))
            .collect();
        let is_shuffled = offsets.windows(2).any(|pair| pair[0] > pair[1]);
        assert!(is_shuffled, "{job}");
        offsets.sort_unstable();
        offsets
    };
    assert_eq!(offsets(real), offsets(ours), "{job}: every block once");
    let share = |all: &[IoRequest]| {
        let reads = all.iter().filter(|one| one.operation == Operation::Read);
        reads.count() as f64 / all.len() as f64
    };
    assert!(
        (share(real) - share(ours)).abs() < 0.12,
        "{job}: share of reads"
    );
    let flushes = |all: &[IoRequest]| -> Vec<usize> {
        let places = all.iter().enumerate();
        let places = places.filter(|(_, one)| one.operation == Operation::Flush);
        places.map(|(place, _)| place).collect()
    };
    assert_eq!(flushes(real), flushes(ours), "{job}: flushes");
}

/// What a process did with the file whose name contains `word`, opening by opening: from the output of `strace -ff`.
fn of_calls(trace: &Path, word: &str) -> Vec<Vec<IoRequest>> {
    let (mut all, mut fd, mut at) = (Vec::<Vec<IoRequest>>::new(), String::new(), 0_u64);
    for line in std::fs::read_to_string(trace).unwrap().lines() {
        let Some((call, result)) = line.rsplit_once(" = ") else {
            continue;
        };
        let Ok(result) = result.trim().parse::<u64>() else {
            continue;
        };
        if call.starts_with("openat(") {
            if call.contains(word) {
                (fd, at) = (result.to_string(), 0);
                all.push(Vec::new());
            } else if fd == result.to_string() {
                fd.clear();
            }
            continue;
        }
        let Some(list) = all.last_mut() else { continue };
        let is = |name: &str| {
            let rest = call
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('('));
            rest.and_then(|rest| rest.split([',', ')']).next()) == Some(fd.as_str())
        };
        if is("lseek") {
            at = result;
        } else if is("fsync") {
            list.push(flush());
        } else if (is("read") || is("write")) && result > 0 {
            let make = if is("read") {
                IoRequest::read
            } else {
                IoRequest::write
            };
            list.push(make(at, result));
            at += result;
        }
    }
    all
}

#[test]
fn dd_reads_block_after_block() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let trace = folder.path().join("calls");
    run(Command::new("strace")
        .args(["-e", "trace=openat,read,write,lseek,dup2", "-o"])
        .arg(&trace)
        .arg("dd")
        .arg(format!("if={}", disk.display()))
        .args(["of=/dev/null", "bs=16k", "count=50"]));
    // dd moves the file to descriptor 0.
    let text = std::fs::read_to_string(&trace).unwrap();
    let reads: Vec<IoRequest> = text
        .lines()
        .filter(|line| line.starts_with("read(0,"))
        .enumerate()
        .map(|(number, line)| {
            let length = line.rsplit_once(" = ").unwrap().1.trim().parse().unwrap();
            IoRequest::read(number as u64 * 16384, length)
        })
        .collect();
    let ours: Vec<IoRequest> = dd::sequential(Operation::Read, 16384, 50, 1 << 20)
        .unwrap()
        .collect();
    assert_eq!(reads, ours);
}

#[test]
fn bonnie_plus_writes_rewrites_reads_and_seeks_as_the_program_does() {
    const MIB: u64 = 2;
    let folder = tempfile::tempdir().unwrap();
    let traces = tempfile::tempdir().unwrap();
    let mut command = Command::new("strace");
    command
        .args(["-ff", "-e", "trace=openat,read,write,lseek,fsync", "-o"])
        .arg(traces.path().join("calls"))
        .args(["bonnie++", "-q", "-f", "-n", "0", "-r", "0", "-s"])
        .arg(MIB.to_string())
        .arg("-d")
        .arg(folder.path());
    use std::os::unix::fs::MetadataExt;
    if std::fs::metadata(folder.path()).unwrap().uid() == 0 {
        command.args(["-u", "root"]);
    }
    run(&mut command);
    let (mut phases, mut seekers) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(traces.path()).unwrap() {
        let mut seen = of_calls(&entry.unwrap().path(), "Bonnie.");
        match seen.len() {
            0 => {}
            1 => seekers.push(seen.remove(0)),
            _ => phases = seen,
        }
    }
    let ours = bonnie::requests(&Bonnie::plus(), MIB << 20).unwrap();
    let mut ours: Vec<_> = ours
        .into_iter()
        .map(|(name, processes)| (name, listed(processes)))
        .collect();
    let (_, our_seekers) = ours.pop().unwrap();
    // The first opening makes the file for the phase of single characters, which is left out.
    for ((name, list), real) in ours.iter().zip(&phases[1..]) {
        assert_eq!(&list[0], real, "{name}");
    }
    for (who, seekers) in [("bonnie++", &seekers), ("ours", &our_seekers)] {
        assert_eq!(seekers.len(), 5, "{who}");
        let reads = seekers.iter().flatten();
        let reads = reads.filter(|one| one.operation == Operation::Read);
        assert_eq!(reads.count(), 8192, "{who}");
        let mut backs = 0;
        for list in seekers {
            assert_eq!(list.last(), Some(&flush()), "{who}");
            for pair in list.windows(2) {
                let at = pair[0].offset_bytes;
                assert!(at.is_multiple_of(PIECE) && at < MIB << 20, "{who}: {at}");
                if pair[1].operation == Operation::Write {
                    assert_eq!(pair[0], IoRequest::read(at, PIECE), "{who}");
                    assert_eq!(pair[1], IoRequest::write(at, PIECE), "{who}");
                    backs += 1;
                }
            }
        }
        assert!(
            (700..940).contains(&backs),
            "{who}: one in ten of 8192: {backs}"
        );
    }
}

/// What the program did with files: the call, and the file's name where it has one.
fn calls_with_files(trace: &str) -> Vec<(&str, &str)> {
    let call = |line: &'_ str| -> Option<(usize, usize)> {
        let start = line.find(|c: char| c.is_ascii_lowercase())?;
        Some((start, line[start..].find('(')? + start))
    };
    let lines = trace.lines().filter_map(|line| {
        let (start, end) = call(line)?;
        let name = line.split('"').nth(1).unwrap_or("");
        Some((&line[start..end], name))
    });
    let ours = |(call, name): &(&str, &str)| {
        let is_file = name.len() >= 10 && name.bytes().all(|one| one.is_ascii_alphanumeric());
        is_file || matches!(*call, "sync" | "rmdir")
    };
    lines.filter(ours).collect()
}

/// Number and length of a name, which must be one of this order.
fn number_of(name: &str, order: Order) -> (u64, usize) {
    let digits = match order {
        Order::Sequential => &name[..10],
        Order::Random => &name[name.len() - 10..],
    };
    (u64::from_str_radix(digits, 16).unwrap(), name.len())
}

#[test]
fn bonnie_plus_names_files_and_asks_for_them_as_the_program_does() {
    let folder = tempfile::tempdir().unwrap();
    let trace = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    let traced = "trace=openat,newfstatat,unlink,rmdir,sync";
    command.args(["-f", "-e", traced, "-o"]).arg(trace.path());
    command.args(["bonnie++", "-q", "-n", "1:64:64", "-s", "0", "-d"]);
    command.arg(folder.path());
    use std::os::unix::fs::MetadataExt;
    if std::fs::metadata(folder.path()).unwrap().uid() == 0 {
        command.args(["-u", "root"]);
    }
    run(&mut command);
    let trace = std::fs::read_to_string(trace.path()).unwrap();
    let calls = calls_with_files(&trace);
    let mut rest = calls.as_slice();
    for order in [Order::Sequential, Order::Random] {
        let mut take = |count: usize, call: &str| -> Vec<&str> {
            let (first, last) = rest.split_at(count);
            rest = last;
            for (seen, name) in first {
                assert_eq!(*seen, call, "{order:?} {name}");
            }
            first.iter().map(|(_, name)| *name).collect()
        };
        let created = take(1024, "openat");
        take(1, "sync");
        // Each is looked at, and read as it is not empty.
        let looked: Vec<&str> = (0..1024)
            .map(|_| {
                let name = take(1, "newfstatat")[0];
                assert_eq!(take(1, "openat"), [name]);
                name
            })
            .collect();
        let deleted = take(1024, "unlink");
        take(1, "rmdir");
        take(1, "sync");

        let ours = files::names(1024, order, &mut plexum_disks::rng::Rng::new(1));
        let numbers = |names: &[&str]| -> Vec<u64> {
            names.iter().map(|name| number_of(name, order).0).collect()
        };
        let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
        assert_eq!(numbers(&created), numbers(&ours), "created by number");
        for length in 10..=22 {
            let count = |names: &[&str]| names.iter().filter(|one| one.len() == length).count();
            assert!(count(&created) > 40 && count(&ours) > 40, "{length}");
        }
        assert_eq!(
            looked == deleted,
            order == Order::Sequential,
            "as the folder lists them, or in another order each time"
        );
        for asked in [&looked, &deleted] {
            let mut sorted = numbers(asked);
            sorted.sort_unstable();
            assert_eq!(sorted, numbers(&created), "{order:?}");
        }
    }
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn bonnie_plus_spreads_files_over_folders_and_sizes_as_the_program_does() {
    for (folders, size_max) in [(3, 0), (600, 0), (1500, 40)] {
        let folder = tempfile::tempdir().unwrap();
        let trace = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("strace");
        let traced = "trace=openat,mkdir,write";
        command.args(["-f", "-e", traced, "-o"]).arg(trace.path());
        let files = format!("1:{size_max}:0:{folders}");
        command.args(["bonnie++", "-q", "-s", "0", "-r", "0", "-n", &files, "-d"]);
        command.arg(folder.path());
        use std::os::unix::fs::MetadataExt;
        if std::fs::metadata(folder.path()).unwrap().uid() == 0 {
            command.args(["-u", "root"]);
        }
        run(&mut command);
        let trace = std::fs::read_to_string(trace.path()).unwrap();
        let name = |line: &str| line.split('"').nth(1).unwrap_or("").to_owned();
        let made = trace.lines().filter(|line| line.contains("mkdir(\"0"));
        assert_eq!(made.count() as u64, 2 * folders, "{files}: of both orders");
        let created = trace.lines().filter(|line| line.contains("O_CREAT"));
        let created: Vec<String> = created
            .map(name)
            .filter(|name| name.contains('/'))
            .collect();
        assert_eq!(created.len(), 2048, "{files}");
        let spread = files::Spread {
            files: 1024,
            folders,
        };
        for (at, name) in created.iter().enumerate() {
            let ours = spread.folder_of(at as u64 % 1024);
            assert!(
                name.starts_with(&format!("{ours:05}/")),
                "{files}: {at} {name}"
            );
        }
    }
}
