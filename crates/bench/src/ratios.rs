//! Group `ratios`: ZFS pools beside RAID-6 and RAID-10 of as many members, all Plexum's own, on files past the page
//! cache of one disk: the arrangements of the articles that compare md with ZFS.
//!
//! A rate counts the time until the last write is durable. Requests are made inside of the process, without a wire.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError};
use plexum_block::wait::join_all;
use plexum_disks::rng::Rng;
use plexum_engine::volume::Volume;
use plexum_layout::{Organisation, Raid6Layout, Raid10Layout};
use plexum_pool::{LivePool, LiveVolume};
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::{FileDevice, OpenOptions};
use plexum_runtime::{Handle, Runtime};

use crate::compare::{Probe, Reading, Role, Samples, take_turns};
use crate::device::BenchDevice;
use crate::folder::TemporaryFolder;
use crate::load::PATTERNS;
use crate::made_pool::{self, PoolShape};
use crate::setup::{Case, Consistency, MemberKind, Path as Way, Running};
use crate::upkeep::fill_past_the_cache;
use crate::{BenchError, BenchOptions, Progress};

const MEMBERS: usize = 8;
const MEMBER_BYTES: u64 = 1 << 30;
/// What is used of a volume: what the smallest one has room for twice.
const AREA_BYTES: u64 = 1 << 30;

/// What the volume is.
#[derive(Clone, Copy)]
enum Kind {
    Array(Organisation),
    Pool(PoolShape),
}

fn arrangements() -> [(&'static str, Kind); 4] {
    let raid6 = Organisation::Raid6(Raid6Layout::LeftSymmetric);
    let raid10 = Organisation::Raid10(Raid10Layout::near(2));
    [
        ("RAID-6 of 8", Kind::Array(raid6)),
        ("RAID-Z2 of 8", Kind::Pool(PoolShape::RAIDZ2)),
        ("RAID-10 of 8", Kind::Array(raid10)),
        ("4 mirrors of 2", Kind::Pool(PoolShape::MIRRORS)),
    ]
}

/// What is asked of it.
struct Load {
    name: &'static str,
    request_bytes: usize,
    clients: usize,
    act: Act,
    is_sequential: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Read,
    Write,
    /// Each write is durable before the next one of its client.
    SyncWrite,
}

const LOADS: [Load; 5] = [
    Load {
        name: "4K random write, depth 32",
        request_bytes: 4096,
        clients: 32,
        act: Act::Write,
        is_sequential: false,
    },
    Load {
        name: "4K random read, depth 32",
        request_bytes: 4096,
        clients: 32,
        act: Act::Read,
        is_sequential: false,
    },
    Load {
        name: "4K synchronous write, 16 clients",
        request_bytes: 4096,
        clients: 16,
        act: Act::SyncWrite,
        is_sequential: false,
    },
    Load {
        name: "1M write, depth 4",
        request_bytes: 1 << 20,
        clients: 4,
        act: Act::Write,
        is_sequential: true,
    },
    Load {
        name: "1M read, depth 4",
        request_bytes: 1 << 20,
        clients: 4,
        act: Act::Read,
        is_sequential: true,
    },
];

/// Measures all arrangements by turns.
pub(crate) fn measure(options: &BenchOptions, samples: &mut Samples, progress: &mut Progress<'_>) {
    let probe = |(name, kind)| Probe {
        name: "plexum".to_owned(),
        role: Role::Plexum,
        task: String::from(name),
        measure: Box::new(move || once(options, name, kind)),
    };
    let probes = arrangements().into_iter().map(probe).collect();
    take_turns("ratios", probes, options.rounds, samples, progress);
}

fn once(
    options: &BenchOptions,
    name: &'static str,
    kind: Kind,
) -> Result<Vec<Reading>, BenchError> {
    let place = TemporaryFolder::on_disk(options)?;
    let folder = place.folder("members")?;
    for index in 0..MEMBERS {
        fill_past_the_cache(&folder.join(index.to_string()), MEMBER_BYTES)?;
    }
    let mut runtime = Runtime::new(options.io).map_err(|error| BenchError(error.to_string()))?;
    let handle = runtime.handle();
    let time = Duration::from_millis(options.millis.max(100) * 10);
    runtime.block_on(async {
        let target = Target::start(&handle, &folder, name, kind).await?;
        let readings = target.readings(&handle, name, time).await;
        target.stop().await?;
        readings
    })
}

fn member(handle: &Handle, folder: &Path, index: usize) -> Result<FileDevice, BenchError> {
    let path = folder.join(index.to_string());
    FileDevice::open(handle, &path, &OpenOptions::read_write())
        .map_err(|error| BenchError(format!("{}: {error}", path.display())))
}

/// A volume that is measured.
enum Target {
    Array(Running),
    Pool(
        Rc<LivePool<FileDevice, RealClock>>,
        LiveVolume<FileDevice, RealClock>,
    ),
}

impl Target {
    async fn start(
        handle: &Handle,
        folder: &Path,
        name: &'static str,
        kind: Kind,
    ) -> Result<Self, BenchError> {
        match kind {
            Kind::Array(organisation) => {
                let case = Case {
                    label: name,
                    organisation,
                    member_count: MEMBERS,
                    members: MemberKind::File,
                    path: Way::Direct,
                    pattern: PATTERNS[0],
                    consistency: Consistency::Bitmap,
                };
                let devices = (0..MEMBERS)
                    .map(|index| member(handle, folder, index).map(BenchDevice::File))
                    .collect::<Result<_, _>>()?;
                let running = Running::start_on(handle, &case, devices, MEMBER_BYTES).await?;
                let target = Self::Array(running);
                let piece = BufPool::new(0).copy_of(&vec![0x5a; 1 << 20]).freeze();
                for offset in (0..AREA_BYTES).step_by(1 << 20) {
                    target.write(offset, piece.clone()).await.map_err(of_io)?;
                }
                target.flush().await.map_err(of_io)?;
                Ok(target)
            }
            Kind::Pool(shape) => {
                let member = |index| member(handle, folder, index);
                Box::pin(made_pool::make(&shape, member, AREA_BYTES)).await?;
                let pool = Box::pin(made_pool::open(&shape, member, handle.clock())).await?;
                let volume = Box::pin(made_pool::filled(&pool, AREA_BYTES)).await?;
                Ok(Self::Pool(pool, volume))
            }
        }
    }

    async fn stop(self) -> Result<(), BenchError> {
        match self {
            Self::Array(running) => running.stop().await,
            Self::Pool(pool, volume) => {
                drop(volume);
                Box::pin(pool.export()).await.map_err(made_pool::of_pool)
            }
        }
    }

    async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<(), IoError> {
        match self {
            Self::Array(running) => Volume::read(&running.volume, offset_bytes, length_bytes)
                .await
                .map(drop),
            Self::Pool(_, volume) => {
                let bytes = Box::pin(volume.read(offset_bytes, length_bytes)).await;
                bytes.map(drop).map_err(|error| error.io_error())
            }
        }
    }

    async fn write(&self, offset_bytes: u64, data: Buf) -> Result<(), IoError> {
        match self {
            Self::Array(running) => {
                Volume::write(&running.volume, offset_bytes, data, Fua::No).await
            }
            Self::Pool(_, volume) => {
                let written = Box::pin(volume.write(offset_bytes, &data)).await;
                written.map_err(|error| error.io_error())
            }
        }
    }

    async fn flush(&self) -> Result<(), IoError> {
        match self {
            Self::Array(running) => running.volume.flush().await,
            Self::Pool(_, volume) => Box::pin(volume.flush())
                .await
                .map_err(|error| error.io_error()),
        }
    }

    async fn readings(
        &self,
        handle: &Handle,
        name: &str,
        time: Duration,
    ) -> Result<Vec<Reading>, BenchError> {
        let mut readings = Vec::new();
        for load in &LOADS {
            let per_s = self.rate(handle, load, time).await.map_err(of_io)?;
            let metric = format!("{name}: {}", load.name);
            readings.push(match load.request_bytes {
                4096 => (metric, "kIOPS", per_s / 1e3),
                bytes => (metric, "GB/s", per_s * bytes as f64 / 1e9),
            });
        }
        Ok(readings)
    }

    /// Requests a second, until the last of them is durable.
    async fn rate(&self, handle: &Handle, load: &Load, time: Duration) -> Result<f64, IoError> {
        let clock = handle.clock();
        let begun = clock.now();
        let (next, done) = (Cell::new(0), Cell::new(0_u64));
        let slots = AREA_BYTES / load.request_bytes as u64;
        let mut noise = Rng::new(7);
        let mut data = vec![0; load.request_bytes];
        data.fill_with(|| noise.next_u64() as u8);
        let data = BufPool::new(0).copy_of(&data).freeze();
        let client = |number: usize| {
            let (clock, next, done, data) = (&clock, &next, &done, &data);
            async move {
                let mut rng = Rng::new(number as u64 + 1);
                while clock.now().since(begun) < time {
                    let slot = match load.is_sequential {
                        true => next.replace(next.get() + 1) % slots,
                        false => rng.below(slots),
                    };
                    let at = slot * load.request_bytes as u64;
                    match load.act {
                        Act::Read => self.read(at, load.request_bytes).await?,
                        Act::Write => self.write(at, data.clone()).await?,
                        Act::SyncWrite => {
                            self.write(at, data.clone()).await?;
                            self.flush().await?;
                        }
                    }
                    done.set(done.get() + 1);
                    plexum_block::wait::yield_once().await;
                }
                Ok::<(), IoError>(())
            }
        };
        for ended in join_all((0..load.clients).map(client)).await {
            ended?;
        }
        if load.act != Act::Read {
            self.flush().await?;
        }
        Ok(done.get() as f64 / clock.now().since(begun).as_secs_f64())
    }
}

fn of_io(error: IoError) -> BenchError {
    BenchError(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_of_this_group_name_what_is_measured_here() {
        for goal in crate::goals::GOALS
            .iter()
            .filter(|goal| goal.group == "ratios")
        {
            let is_measured = |(name, _): &(&str, Kind)| {
                let mut loads = LOADS.iter();
                loads.any(|load| format!("{name}: {}", load.name) == goal.metric)
            };
            assert!(arrangements().iter().any(is_measured), "{}", goal.metric);
        }
    }
}
