//! Group `daemon`: the one that owns ten volumes for months and judges them each second, while nobody asks for
//! anything.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::client::Plain;
use crate::compare::{Probe, Reading, Role, Samples, take_turns};
use crate::folder::TemporaryFolder;
use crate::process::{Process, output};
use crate::served::{Volume, command, socket};
use crate::start::{first_answer, mib};
use crate::{BenchError, BenchOptions, Progress};

/// Its volumes: those of a house, not of a laboratory.
const MIRROR: Volume = Volume {
    level: "1",
    members: 2,
    member_bytes: 64 << 20,
    options: &["--assume-clean"],
};
const VOLUMES: usize = 10;

/// Rest before memory is read; then wake-ups are counted for as long as `WATCHED`.
const REST: Duration = Duration::from_millis(2500);
const WATCHED: Duration = Duration::from_secs(10);

/// Time after which a volume is not served any more by itself.
const START_TIME_MAX: Duration = Duration::from_secs(10);

const SERVED: &str = "10 mirrors: exec to all served";
const MEMORY: &str = "10 mirrors: idle RSS, the judge included";
const WAKE_UPS: &str = "10 mirrors: idle wake-ups, timers and the judge included";

/// Measures a daemon that expects its volumes.
pub(crate) fn measure(
    options: &BenchOptions,
    samples: &mut Samples,
    progress: &mut Progress<'_>,
) -> Result<(), BenchError> {
    let place = TemporaryFolder::make(options)?;
    let folder = place.folder("owned")?;
    let names: Vec<String> = (0..VOLUMES).map(|index| format!("v{index}")).collect();
    hand_over(options, &folder, &names)?;
    let probe = Probe {
        name: "plexum".to_owned(),
        role: Role::Plexum,
        task: format!("{VOLUMES} mirrors"),
        measure: Box::new(|| own(options, &folder, &names)),
    };
    take_turns("daemon", vec![probe], options.rounds, samples, progress);
    Ok(())
}

/// Makes the volumes and gives them to a daemon, which expects them from then on.
fn hand_over(options: &BenchOptions, folder: &Path, names: &[String]) -> Result<(), BenchError> {
    let daemon = Process::start("plexum daemon", command(options, folder).arg("daemon"))?;
    let control = folder.join("plexum/daemon.socket");
    wait(|| {
        let tell = |error| BenchError(format!("{}: {error}", control.display()));
        UnixStream::connect(&control).map(drop).map_err(tell)
    })?;
    for name in names {
        let members = MIRROR.create(options, folder, name)?;
        output(command(options, folder).arg("serve").args(&members))?;
    }
    daemon.stop();
    Ok(())
}

/// Tries again until it succeeds.
fn wait(attempt: impl Fn() -> Result<(), BenchError>) -> Result<(), BenchError> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(_) if started.elapsed() < START_TIME_MAX => {
                std::thread::sleep(Duration::from_micros(100));
            }
            ended => return ended,
        }
    }
}

fn own(
    options: &BenchOptions,
    folder: &Path,
    names: &[String],
) -> Result<Vec<Reading>, BenchError> {
    let started = Instant::now();
    let mut daemon = command(options, folder);
    let (process, _) = first_answer(daemon.arg("daemon"), &socket(folder, &names[0]), &names[0])?;
    for name in &names[1..] {
        let tell = |error| BenchError(format!("{name}: {error}"));
        wait(|| {
            let connected = Plain::connect(&socket(folder, name), name);
            connected.map(drop).map_err(tell)
        })?;
    }
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    std::thread::sleep(REST);
    let memory = mib(&process);
    let (before, watched) = (process.wake_ups(), Instant::now());
    std::thread::sleep(WATCHED);
    let woken = process.wake_ups().saturating_sub(before) as f64;
    let seconds = watched.elapsed().as_secs_f64();
    process.stop();
    Ok(vec![
        (SERVED.to_owned(), "ms", milliseconds),
        (MEMORY.to_owned(), "MiB", memory),
        (WAKE_UPS.to_owned(), "per s", woken / seconds),
    ])
}
