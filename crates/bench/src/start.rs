//! Group `start`: from the start of a process to its first answer, and what it takes when nobody asks for anything.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::client::Plain;
use crate::compare::{Probe, Reading, Role, Samples, take_turns};
use crate::folder::TemporaryFolder;
use crate::process::{Process, need_program};
use crate::served::{NAME, Volume, ask_status, command, socket};
use crate::{BenchError, BenchOptions, Progress};

/// The array of the goals.
const ARRAY: Volume = Volume {
    level: "6",
    members: 6,
    member_bytes: 64 << 20,
    options: &[],
};

/// Volumes of the start with several.
const VOLUMES: usize = 5;

/// Time after which a start has failed.
const START_TIME_MAX: Duration = Duration::from_secs(10);

/// Rest before memory is read; then wake-ups are counted for as long as `WATCHED`.
const REST: Duration = Duration::from_millis(1500);
const WATCHED: Duration = Duration::from_secs(3);

/// Rest after a server was asked: the end of the connection wakes it once more.
const ASKED: Duration = Duration::from_millis(50);

const FIRST_ANSWER: &str = "RAID-6 of 6: start to first answer";
const MEMORY: &str = "RAID-6 of 6: idle RSS";
const WAKE_UPS: &str = "RAID-6 of 6: idle wake-ups but for timers";
const FURTHER: &str = "RAID-6 of 6: idle RSS per further volume";

/// Measures all by turns.
pub(crate) fn measure(
    options: &BenchOptions,
    samples: &mut Samples,
    progress: &mut Progress<'_>,
) -> Result<(), BenchError> {
    let place = TemporaryFolder::make(options)?;
    let folder = place.folder("one")?;
    let members = ARRAY.create(options, &folder, NAME)?;
    let several = place.folder("several")?;
    for index in 0..VOLUMES {
        ARRAY.create(options, &several, &format!("v{index}"))?;
    }
    let mut probes = vec![
        probe(
            "plexum",
            Role::Plexum,
            Box::new(|| own(options, &folder, &members)),
        ),
        probe(
            "plexum",
            Role::Plexum,
            Box::new(|| further(options, &folder, &members, &several)),
        ),
    ];
    let image = folder.join("raw");
    File::create(&image)
        .and_then(|file| file.set_len(ARRAY.member_bytes))
        .map_err(|error| BenchError(format!("{}: {error}", image.display())))?;
    for (name, program, arguments) in [
        (
            "nbdkit file",
            "nbdkit",
            &["--foreground", "--unix", "SOCKET", "file", "IMAGE"][..],
        ),
        (
            "qemu-nbd",
            "qemu-nbd",
            &[
                "--persistent",
                "--format=raw",
                "--socket",
                "SOCKET",
                "IMAGE",
            ],
        ),
    ] {
        let folder = place.folder(name)?;
        match need_program(program) {
            Ok(program) => {
                let image = image.clone();
                probes.push(probe(
                    name,
                    Role::Peer,
                    Box::new(move || peer(&program, arguments, &folder.join("s"), &image)),
                ));
            }
            Err(error) => samples.skip(name, FIRST_ANSWER, error.to_string()),
        }
    }
    take_turns("start", probes, options.rounds, samples, progress);
    Ok(())
}

fn probe<'a>(
    name: &str,
    role: Role,
    measure: Box<dyn FnMut() -> Result<Vec<Reading>, BenchError> + 'a>,
) -> Probe<'a> {
    let (name, task) = (name.to_owned(), "RAID-6 of 6".to_owned());
    Probe {
        name,
        role,
        task,
        measure,
    }
}

/// Starts a server and waits for its first answer: the process and the milliseconds.
pub(crate) fn first_answer(
    command: &mut Command,
    socket: &Path,
    export: &str,
) -> Result<(Process, f64), BenchError> {
    let _ = std::fs::remove_file(socket); // from the round before
    let started = Instant::now();
    let process = Process::start(export, command)?;
    loop {
        let answered = Plain::connect(socket, export).and_then(|mut plain| {
            let _ = plain.read(0, 4096)?;
            Ok(())
        });
        match answered {
            Ok(()) => break,
            Err(error) if started.elapsed() > START_TIME_MAX => {
                return Err(BenchError(format!("no first answer: {error}")));
            }
            Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
    Ok((process, started.elapsed().as_secs_f64() * 1e3))
}

/// Memory of a process that is in use, in MiB.
pub(crate) fn mib(process: &Process) -> f64 {
    process.resident_bytes().unwrap_or(0) as f64 / f64::from(1 << 20)
}

/// Memory and wake-ups of a process that has come to rest; `due` says how many of its wake-ups so far were for timers.
fn idle(
    process: &Process,
    due: impl Fn() -> Result<u64, BenchError>,
) -> Result<Vec<Reading>, BenchError> {
    std::thread::sleep(REST);
    let memory = mib(process);
    let due_before = due()?;
    std::thread::sleep(ASKED);
    let (before, started) = (process.wake_ups(), Instant::now());
    std::thread::sleep(WATCHED);
    let woken = process.wake_ups().saturating_sub(before);
    let seconds = started.elapsed().as_secs_f64();
    let other = woken.saturating_sub(due()?.saturating_sub(due_before)) as f64;
    Ok(vec![
        (MEMORY.to_owned(), "MiB", memory),
        (WAKE_UPS.to_owned(), "per s", other / seconds),
    ])
}

fn own(
    options: &BenchOptions,
    folder: &Path,
    members: &[PathBuf],
) -> Result<Vec<Reading>, BenchError> {
    let mut serve = command(options, folder);
    serve.arg("serve").args(members);
    let (process, milliseconds) = first_answer(&mut serve, &socket(folder, NAME), NAME)?;
    let due = || Ok(ask_status(folder, NAME)?.server_waits.for_timers);
    let mut readings = idle(&process, due)?;
    process.stop();
    readings.push((FIRST_ANSWER.to_owned(), "ms", milliseconds));
    Ok(readings)
}

/// Memory of one volume and of several in one process.
fn further(
    options: &BenchOptions,
    folder: &Path,
    members: &[PathBuf],
    several: &Path,
) -> Result<Vec<Reading>, BenchError> {
    let rest = |process: &Process| {
        std::thread::sleep(REST);
        mib(process)
    };
    let mut serve = command(options, folder);
    serve.arg("serve").args(members);
    let (process, _) = first_answer(&mut serve, &socket(folder, NAME), NAME)?;
    let one = rest(&process);
    process.stop();
    let mut serve = command(options, several);
    serve.arg("serve").arg("--scan").arg(several);
    let last = format!("v{}", VOLUMES - 1);
    let (process, _) = first_answer(&mut serve, &socket(several, &last), &last)?;
    let all = rest(&process);
    process.stop();
    let each = (all - one) / (VOLUMES - 1) as f64;
    Ok(vec![(FURTHER.to_owned(), "MiB", each)])
}

/// A server of one file.
fn peer(
    program: &Path,
    arguments: &[&str],
    socket: &Path,
    image: &Path,
) -> Result<Vec<Reading>, BenchError> {
    let mut command = Command::new(program);
    for argument in arguments {
        match *argument {
            "SOCKET" => command.arg(socket),
            "IMAGE" => command.arg(image),
            word => command.arg(word),
        };
    }
    let (process, milliseconds) = first_answer(&mut command, socket, "")?;
    let mut readings = idle(&process, || Ok(0))?;
    process.stop();
    readings.push((FIRST_ANSWER.to_owned(), "ms", milliseconds));
    Ok(readings)
}
