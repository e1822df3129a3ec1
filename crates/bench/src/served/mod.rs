//! Group `served`: real servers on Unix sockets over members on tmpfs, Plexum beside what people would take instead.
//!
//! Invariants:
//! - all servers run from the start to the end of the group and are asked by turns, by the same client;
//! - CPU time is the server's alone; where file systems or loop devices work for it, the kernel's threads are counted
//!   too;
//! - every volume was written in full before, and only that span is asked for.

mod btrfs;
mod peers;
mod plexum;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::client::{Client, Served, fill_by_turns};
use crate::compare::{Probe, Reading, Role, Samples, take_turns};
use crate::load::{PATTERNS, Pattern};
use crate::process::{Process, kernel_cpu_seconds};
use crate::{BenchError, BenchOptions, Progress, folder::TemporaryFolder};

pub(crate) use btrfs::{Mounted, loop_device};
pub(crate) use plexum::{NAME, Volume, ask_status, command, socket};

/// Bytes of each volume that are asked for.
pub(crate) const SPAN_BYTES: u64 = 256 << 20;

/// Time for a server to come to rest before its CPU time is read.
const REST: Duration = Duration::from_millis(50);

/// A server that is running.
pub(crate) struct Server {
    pub process: Process,
    pub socket: PathBuf,
    /// Name of the export, already as a part of a URI.
    pub export: String,
    /// Kernel threads work for it.
    pub uses_kernel: bool,
    /// What has to be undone when it has ended; dropped after the process.
    pub undo: Option<btrfs::Mounted>,
}

impl Server {
    /// Starts a server and waits until its socket is there.
    fn start(
        name: &str,
        command: &mut Command,
        socket: PathBuf,
        export: &str,
    ) -> Result<Self, BenchError> {
        Self::at(Process::start(name, command)?, socket, export)
    }

    /// A server that was started; waits until its socket is there.
    fn at(mut process: Process, socket: PathBuf, export: &str) -> Result<Self, BenchError> {
        process.wait_for_socket(&socket)?;
        Ok(Self {
            process,
            socket,
            export: export.to_owned(),
            uses_kernel: false,
            undo: None,
        })
    }
}

/// What a server does with its members, and who can.
struct Shape {
    name: &'static str,
    volume: Volume,
    /// Shapes whose figures the peers stand beside as well.
    beside: &'static [&'static str],
}

const RAID5: &[&str] = &[
    "RAID-5 of 4, bitmap",
    "RAID-5 of 4, resync",
    "RAID-5 of 4, write-back",
];
const RAID6: &[&str] = &[
    "RAID-6 of 6, bitmap",
    "RAID-6 of 6, resync",
    "RAID-6 of 6, write-back",
];

/// The shape that is scrubbed while it is read.
const SCRUBBED: &str = "mirror of 2";

/// Shapes that the bare server is the limit of as well.
const LIMIT_BESIDE: &[&str] = &["stripe of 4"];

const fn shape(
    name: &'static str,
    level: &'static str,
    members: usize,
    data_members: u64,
    options: &'static [&'static str],
    beside: &'static [&'static str],
) -> Shape {
    Shape {
        name,
        volume: Volume {
            level,
            members,
            member_bytes: SPAN_BYTES / data_members + (16 << 20),
            options,
        },
        beside,
    }
}

const SHAPES: [Shape; 12] = [
    shape("raw", "linear", 1, 1, &[], &[]),
    shape("mirror of 2", "1", 2, 1, &[], &[]),
    shape("stripe of 4", "0", 4, 4, &[], &[]),
    shape("RAID-10 of 4", "10", 4, 2, &[], &[]),
    shape("RAID-5 of 4", "5", 4, 3, &[], RAID5),
    shape(RAID5[0], "5", 4, 3, &["--consistency", "bitmap"], &[]),
    shape(RAID5[1], "5", 4, 3, &["--consistency", "resync"], &[]),
    shape(RAID5[2], "5", 4, 3, &["--log", "write-back"], &[]),
    shape("RAID-6 of 6", "6", 6, 4, &[], RAID6),
    shape(RAID6[0], "6", 6, 4, &["--consistency", "bitmap"], &[]),
    shape(RAID6[1], "6", 6, 4, &["--consistency", "resync"], &[]),
    shape(RAID6[2], "6", 6, 4, &["--log", "write-back"], &[]),
];

/// Every pattern of the table: the four, and one request at a time.
fn patterns() -> [Pattern; 6] {
    let alone = |pattern: Pattern| Pattern {
        depth: 1,
        ..pattern
    };
    let [read, write, big_read, big_write] = PATTERNS;
    [alone(read), read, alone(write), write, big_read, big_write]
}

/// The name of what a shape does under a pattern.
pub(crate) fn metric(shape: &str, pattern: Pattern) -> String {
    let direction = if pattern.is_write { "write" } else { "read" };
    if pattern.is_sequential {
        format!("{shape}: 1M sequential {direction}")
    } else {
        format!("{shape}: 4K {direction}, depth {}", pattern.depth)
    }
}

/// Measures all shapes and all their servers by turns.
pub(crate) fn measure(
    options: &BenchOptions,
    samples: &mut Samples,
    progress: &mut Progress<'_>,
) -> Result<(), BenchError> {
    let place = TemporaryFolder::make(options)?;
    let client = Client::find();
    let mut servers: Vec<(&Shape, String, Role, Server)> = Vec::new();
    for shape in &SHAPES {
        for (name, role, start) in peers::contestants(shape.name, &shape.volume) {
            let folder = place.folder(&format!("{} {name}", shape.name))?;
            match start(options, &folder) {
                Ok(server) => servers.push((shape, name.to_owned(), role, server)),
                Err(error) => samples.skip(name, shape.name, error.to_string()),
            }
        }
    }
    let places: Vec<_> = servers
        .iter()
        .map(|(.., server)| (server.socket.as_path(), server.export.as_str()))
        .collect();
    let mut filled = fill_by_turns(&places, SPAN_BYTES).into_iter();
    servers.retain(|(shape, name, ..)| {
        let filled = filled.next().expect("a result for each server");
        filled
            .map_err(|error| samples.skip(name, shape.name, error.to_string()))
            .is_ok()
    });
    let time = Duration::from_millis(options.millis);
    let mut probes = Vec::new();
    for pattern in patterns() {
        for (shape, name, role, server) in &servers {
            let client = &client;
            probes.push(Probe {
                name: name.clone(),
                role: *role,
                task: metric(shape.name, pattern),
                measure: Box::new(move || {
                    let figures = load(client, server, pattern, time)?;
                    Ok(readings(shape, *role, pattern, figures))
                }),
            });
        }
    }
    if let Some((.., server)) = servers
        .iter()
        .find(|(shape, _, role, _)| shape.name == SCRUBBED && *role == Role::Plexum)
    {
        probes.push(scrubbing(options, &client, server, time));
    }
    take_turns("served", probes, options.rounds, samples, progress);
    while let Some((.., server)) = servers.pop() {
        server.process.stop();
    }
    Ok(())
}

/// Reads of a mirror that is being scrubbed with its default limits.
fn scrubbing<'a>(
    options: &'a BenchOptions,
    client: &'a Client,
    server: &'a Server,
    time: Duration,
) -> Probe<'a> {
    let metric = scrubbing_metric();
    Probe {
        name: "plexum".to_owned(),
        role: Role::Plexum,
        task: metric.clone(),
        measure: Box::new(move || {
            plexum::tell(options, server, &["scrub"], &[])?;
            let (served, _) = load(client, server, PATTERNS[0], time)?;
            // One that has ended by itself would be no load any more: then there is nothing to stop.
            plexum::tell(options, server, &["scrub"], &["--stop"])?;
            Ok(vec![(metric.clone(), "kIOPS", served.iops / 1e3)])
        }),
    }
}

fn scrubbing_metric() -> String {
    format!("{}, while scrubbing", metric(SCRUBBED, PATTERNS[0]))
}

/// One load on one server: what was served, and the CPU microseconds of a request.
pub(crate) fn load(
    client: &Client,
    server: &Server,
    pattern: Pattern,
    time: Duration,
) -> Result<(Served, f64), BenchError> {
    let cpu = || {
        std::thread::sleep(REST);
        let kernel = if server.uses_kernel {
            kernel_cpu_seconds()
        } else {
            0.0
        };
        server.process.cpu_seconds() + kernel
    };
    let before = cpu();
    let served = client.load(&server.socket, &server.export, SPAN_BYTES, pattern, time)?;
    let cpu_us = (cpu() - before) * 1e6 / served.requests;
    Ok((served, cpu_us))
}

/// The figures under the names of all metrics that they stand beside.
fn readings(
    shape: &Shape,
    role: Role,
    pattern: Pattern,
    (served, cpu_us): (Served, f64),
) -> Vec<Reading> {
    let beside = match role {
        Role::Plexum => &[],
        Role::Peer => shape.beside,
        Role::Limit => LIMIT_BESIDE,
    };
    let mut readings = Vec::new();
    for name in [shape.name].iter().chain(beside) {
        let metric = metric(name, pattern);
        if pattern.is_sequential {
            readings.push((metric, "GB/s", served.bytes_per_s / 1e9));
        } else {
            readings.push((metric.clone(), "kIOPS", served.iops / 1e3));
            readings.push((metric, "us CPU", cpu_us));
        }
    }
    readings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_stands_beside_every_consistency_and_plexum_only_where_it_was_measured() {
        let shape = SHAPES
            .iter()
            .find(|shape| shape.name == "RAID-5 of 4")
            .unwrap();
        let served = Served {
            requests: 1.0,
            iops: 2e3,
            bytes_per_s: 8e6,
        };
        let names = |role| -> Vec<String> {
            let readings = readings(shape, role, PATTERNS[1], (served, 3.0));
            let rates = readings.into_iter().filter(|(_, unit, _)| *unit == "kIOPS");
            rates.map(|(metric, ..)| metric).collect()
        };
        assert_eq!(names(Role::Plexum), ["RAID-5 of 4: 4K write, depth 32"]);
        assert_eq!(names(Role::Peer).len(), 4);
    }

    #[test]
    fn goals_of_this_group_name_what_is_measured_here() {
        let is_measured = |metric: &str| {
            let of_shape = |shape: &Shape| {
                patterns()
                    .iter()
                    .any(|pattern| super::metric(shape.name, *pattern) == metric)
            };
            SHAPES.iter().any(of_shape) || metric == scrubbing_metric()
        };
        for goal in crate::goals::GOALS
            .iter()
            .filter(|goal| goal.group == "served")
        {
            assert!(is_measured(goal.metric), "{}", goal.metric);
        }
    }
}
