//! Group `zfs`: what a request to a volume of a ZFS pool costs, beside OpenZFS's own engine in user space (libzpool).
//!
//! Both are called inside of their process, without a wire; members are files in memory. CPU time of the whole process:
//! the load generator and the transaction groups behind the requests are in it. Neither keeps blocks of volumes in
//! memory (`primarycache=metadata`), so that reads come from members and are verified.

use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::{Buf, BufMut};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::join_all;
use plexum_disks::rng::Rng;
use plexum_pool::{LiveVolume, PoolError};
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::{FileDevice, OpenOptions};
use plexum_runtime::{Handle, Runtime};

use crate::compare::{Probe, Reading, Role, Samples, take_turns};
use crate::folder::TemporaryFolder;
use crate::load::cpu_time;
use crate::made_pool::{self, BLOCK_BYTES, PoolShape, SECTOR_SHIFT, of_pool};
use crate::process::{need_program, output};
use crate::{BenchError, BenchOptions, Progress};

/// A pool: its name in the table, its groups, and the same in the oracle's words.
struct Shape {
    name: &'static str,
    pool: PoolShape,
    oracle: &'static str,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "RAID-Z2 of 8",
        pool: PoolShape::RAIDZ2,
        oracle: "raidz2-8",
    },
    Shape {
        name: "4 mirrors of 2",
        pool: PoolShape::MIRRORS,
        oracle: "mirror-2,mirror-2,mirror-2,mirror-2",
    },
];

/// What is asked of the volume, 4 KiB at random each.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Read,
    /// Each write is durable before the next one of its client.
    Sync,
}

/// A load: its name in the table, requests of each client, clients.
struct Load {
    name: &'static str,
    kind: Kind,
    count: u64,
    clients: u64,
}

const LOADS: [Load; 4] = [
    Load {
        name: "4K random write",
        kind: Kind::Write,
        count: 40_000,
        clients: 1,
    },
    Load {
        name: "4K random read",
        kind: Kind::Read,
        count: 40_000,
        clients: 1,
    },
    Load {
        name: "4K synchronous write",
        kind: Kind::Sync,
        count: 4000,
        clients: 1,
    },
    Load {
        name: "4K synchronous write, 4 clients",
        kind: Kind::Sync,
        count: 2000,
        clients: 4,
    },
];

const MEMBER_BYTES: u64 = 256 << 20;
const VOLUME_BYTES: u64 = 256 << 20;
/// The judge of pools, beside which the benchmark has to be started.
const ORACLE: &str = "oracle/zfs-oracle";
const VERSIONS: [(&str, &str); 2] = [("21", "libzpool 2.1"), ("23", "libzpool 2.3")];

/// Measures both pools, by turns with each version of OpenZFS.
pub(crate) fn measure(options: &BenchOptions, samples: &mut Samples, progress: &mut Progress<'_>) {
    let oracle = match Path::new(ORACLE).is_file() {
        true => need_program("python3"),
        false => Err(BenchError(format!(
            "there is no {ORACLE} here: start this in the project's folder"
        ))),
    };
    let mut probes = Vec::new();
    for shape in &SHAPES {
        probes.push(Probe {
            name: "plexum".to_owned(),
            role: Role::Plexum,
            task: shape.name.to_owned(),
            measure: Box::new(move || own(options, shape)),
        });
        for (version, name) in VERSIONS {
            match &oracle {
                Ok(python) => probes.push(Probe {
                    name: name.to_owned(),
                    role: Role::Peer,
                    task: shape.name.to_owned(),
                    measure: Box::new(move || theirs(options, python, version, shape)),
                }),
                Err(error) => samples.skip(name, shape.name, error.to_string()),
            }
        }
    }
    take_turns("zfs", probes, options.rounds, samples, progress);
}

/// What a load has cost.
struct Cost {
    operations: u64,
    cpu: Duration,
    written_bytes: u64,
}

/// The readings of one load.
fn readings(shape: &Shape, load: &Load, cost: &Cost) -> Vec<Reading> {
    let metric = format!("{}: {}", shape.name, load.name);
    let cpu_us = cost.cpu.as_secs_f64() * 1e6 / cost.operations as f64;
    let mut readings = vec![(metric.clone(), "us CPU", cpu_us)];
    if !matches!(load.kind, Kind::Read) {
        let bytes = (cost.operations * BLOCK_BYTES as u64) as f64;
        readings.push((metric, "bytes per byte", cost.written_bytes as f64 / bytes));
    }
    readings
}

// OpenZFS.

fn theirs(
    options: &BenchOptions,
    python: &Path,
    version: &str,
    shape: &Shape,
) -> Result<Vec<Reading>, BenchError> {
    let place = TemporaryFolder::make(options)?;
    let folder = place.folder("theirs")?;
    let mut command = Command::new(python);
    command.arg(ORACLE).arg("run").arg(&folder);
    command.args(["bench", "--version", version]);
    command.arg(format!(
        "new={}:{MEMBER_BYTES}:{SECTOR_SHIFT}:none",
        shape.oracle
    ));
    command.arg(format!("create=bench/vol:{VOLUME_BYTES}:{BLOCK_BYTES}"));
    command.args(["prop=bench/vol:primarycache:metadata", "fill=bench/vol:7"]);
    for (seed, load) in LOADS.iter().enumerate() {
        let word = match load.kind {
            Kind::Write => "write",
            Kind::Read => "read",
            Kind::Sync => "sync",
        };
        let (count, clients) = (load.count, load.clients);
        command.arg(format!(
            "load=bench/vol:{word}:{count}:{}:{clients}",
            seed + 1
        ));
    }
    let said = output(&mut command)?;
    let costs: Vec<Cost> = said.lines().filter_map(told).collect();
    if costs.len() != LOADS.len() {
        return Err(BenchError(format!("{ORACLE} said: {said}")));
    }
    let both = LOADS.iter().zip(&costs);
    Ok(both
        .flat_map(|(load, cost)| readings(shape, load, cost))
        .collect())
}

/// What "load: write 10 operations, 20 us CPU, 30 bytes written" says.
fn told(line: &str) -> Option<Cost> {
    let rest = line.strip_prefix("load: ")?.split_once(' ')?.1;
    let mut parts = rest.split(", ");
    let mut number = || parts.next()?.split(' ').next()?.parse().ok();
    Some(Cost {
        operations: number()?,
        cpu: Duration::from_micros(number()?),
        written_bytes: number()?,
    })
}

// Plexum.

/// A member that counts what is written to it.
struct Counting {
    file: FileDevice,
    written_bytes: Rc<Cell<u64>>,
}

impl Device for Counting {
    fn info(&self) -> DeviceInfo {
        self.file.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.file.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let so_far = self.written_bytes.get();
        self.written_bytes.set(so_far + data.len() as u64);
        self.file.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.file.flush().await
    }
}

fn own(options: &BenchOptions, shape: &Shape) -> Result<Vec<Reading>, BenchError> {
    let place = TemporaryFolder::make(options)?;
    let folder = place.folder("own")?;
    let mut runtime = Runtime::new(options.io).map_err(|error| BenchError(error.to_string()))?;
    let handle = runtime.handle();
    runtime.block_on(own_loads(&handle, &folder, shape))
}

async fn own_loads(
    handle: &Handle,
    folder: &Path,
    shape: &Shape,
) -> Result<Vec<Reading>, BenchError> {
    let written_bytes = Rc::new(Cell::new(0));
    let member = |index: usize| {
        let path = folder.join(format!("member-{index}"));
        let told =
            |error: &dyn std::fmt::Display| BenchError(format!("{}: {error}", path.display()));
        let made = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        made.and_then(|file| file.set_len(MEMBER_BYTES))
            .map_err(|error| told(&error))?;
        let file = FileDevice::open(handle, &path, &OpenOptions::read_write());
        Ok(Counting {
            file: file.map_err(|error| told(&error))?,
            written_bytes: Rc::clone(&written_bytes),
        })
    };
    made_pool::make(&shape.pool, member, VOLUME_BYTES).await?;
    let pool = made_pool::open(&shape.pool, member, handle.clock()).await?;
    let volume = made_pool::filled(&pool, VOLUME_BYTES).await?;
    let mut all = Vec::new();
    for (seed, load) in LOADS.iter().enumerate() {
        let (began, before) = (cpu_time(), written_bytes.get());
        let clients =
            (0..load.clients).map(|client| run(&volume, load, seed as u64 * 100 + client));
        for result in join_all(clients).await {
            result.map_err(of_pool)?;
        }
        made_pool::commit(&pool).await?;
        let cost = Cost {
            operations: load.count * load.clients,
            cpu: cpu_time() - began,
            written_bytes: written_bytes.get() - before,
        };
        all.extend(readings(shape, load, &cost));
    }
    drop(volume);
    pool.export().await.map_err(of_pool)?;
    Ok(all)
}

/// One client.
async fn run(
    volume: &LiveVolume<Counting, RealClock>,
    load: &Load,
    seed: u64,
) -> Result<(), PoolError> {
    let mut rng = Rng::new(seed);
    let mut block = vec![0; BLOCK_BYTES];
    block.fill_with(|| rng.next_u64() as u8);
    for _ in 0..load.count {
        let at = rng.below(VOLUME_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
        if let Kind::Read = load.kind {
            std::hint::black_box(volume.read(at, BLOCK_BYTES).await?);
            continue;
        }
        block[..8].copy_from_slice(&at.to_le_bytes());
        volume.write(at, &block).await?;
        if let Kind::Sync = load.kind {
            volume.flush().await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_oracle_says_of_a_load_is_understood_and_nothing_else() {
        let line = "load: write 10 operations, 20 us CPU, 30 bytes written";
        let cost = told(line).unwrap();
        assert_eq!((cost.operations, cost.written_bytes), (10, 30));
        assert_eq!(cost.cpu, Duration::from_micros(20));
        assert!(told("load: write 10 operations, 20 us CPU").is_none());
        assert!(told("verify: bench/vol 0 blocks of 4 KiB differ").is_none());
    }

    #[test]
    fn goals_of_this_group_name_what_is_measured_here() {
        for goal in crate::goals::GOALS
            .iter()
            .filter(|goal| goal.group == "zfs")
        {
            let is_measured = |shape: &Shape| {
                let mut loads = LOADS.iter();
                loads.any(|load| format!("{}: {}", shape.name, load.name) == goal.metric)
            };
            assert!(SHAPES.iter().any(is_measured), "{}", goal.metric);
        }
    }
}
