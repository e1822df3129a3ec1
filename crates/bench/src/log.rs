//! Group `log`: what closing the write hole costs, counted in virtual time on simulated disks.
//!
//! Counts and virtual times are the same on every machine and in every run. One I/O in a thousand takes a hundred times
//! as long as the others, as on real disks, and a single one of them decides over a short load at depth 32: so each
//! figure is the median of several worlds, which differ in when that happens. What is counted begins with the first of
//! 1,000 client writes and ends when the array has come to rest after the last.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError};
use plexum_disks::clock::SimClock;
use plexum_disks::disk::{DiskShape, SimDisk};
use plexum_disks::rng::Rng;
use plexum_disks::trace::Trace;
use plexum_engine::volume::Volume;
use plexum_exec::{Executor, Fifo, Spawner};
use plexum_layout::{Organisation, Raid5Layout, Raid6Layout};
use plexum_md::create::{plan, write_new};
use plexum_md::open::{OpenRequest, open_volume};

use crate::compare::{Role, Samples, Step};
use crate::load::Pattern;
use crate::setup::{Case, Consistency, MemberKind, Path, new_array};
use crate::{BenchError, Progress};

/// Client writes of each count.
const WRITES: u64 = 1000;

/// Worlds of each count: their seeds are 1, 2, ...
const WORLDS: u64 = 7;

const MEMBER_BYTES: u64 = 72 << 20;

/// Usual time of a simulated I/O: a fast SSD that has to be asked.
const LATENCY_NS: u64 = 100_000;

/// Time in which an array comes to rest: marks are cleared, the log is written out.
const REST: Duration = Duration::from_secs(60);

const RAID5: &str = "RAID-5 of 4";
const RAID6: &str = "RAID-6 of 6";

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    member_writes: u64,
    member_flushes: u64,
    /// Virtual time of the client's writes, without the rest.
    time_ns: u64,
}

/// What the client writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Sequential,
    /// Regions that nobody wrote to for a while.
    Cold,
    /// The places that have just been written.
    Warm,
}

impl Load {
    fn words(self) -> &'static str {
        match self {
            Load::Sequential => "1M sequential",
            Load::Cold => "4K random cold",
            Load::Warm => "4K random warm",
        }
    }
}

/// Counts everything in each world.
pub(crate) fn measure(
    samples: &mut Samples,
    progress: &mut Progress<'_>,
) -> Result<(), BenchError> {
    let raid5 = Organisation::Raid5(Raid5Layout::LeftSymmetric);
    let raid6 = Organisation::Raid6(Raid6Layout::LeftSymmetric);
    let ways = [
        (RAID5, raid5, 4, "bitmap", Consistency::Bitmap),
        (RAID5, raid5, 4, "ppl", Consistency::Ppl),
        (RAID5, raid5, 4, "log", Consistency::Log),
        (RAID5, raid5, 4, "write-back", Consistency::WriteBack),
        (RAID6, raid6, 6, "bitmap", Consistency::Bitmap),
        (RAID6, raid6, 6, "log", Consistency::Log),
        (RAID6, raid6, 6, "write-back", Consistency::WriteBack),
    ];
    let loads = [Load::Sequential, Load::Cold, Load::Warm];
    let total = ways.len() * loads.len() * 2;
    let mut done = 0;
    let mut plain: BTreeMap<(&str, &str, usize), Counted> = BTreeMap::new();
    for (label, organisation, member_count, word, consistency) in ways {
        for load in loads {
            for depth in [1, 32] {
                let metric = format!("{label}, {word}: {}, depth {depth}", load.words());
                progress(&Step {
                    group: "log",
                    what: metric.clone(),
                    done,
                    total,
                    left: None,
                });
                done += 1;
                let case = |consistency| Case {
                    label,
                    organisation,
                    member_count,
                    members: MemberKind::Memory,
                    path: Path::Direct,
                    pattern: pattern(load, depth),
                    consistency,
                };
                let key = (label, load.words(), depth);
                let without = match plain.get(&key) {
                    Some(known) => *known,
                    None => count_worlds(&case(Consistency::Resync), load)?,
                };
                plain.insert(key, without);
                let with = count_worlds(&case(consistency), load)?;
                compare(samples, &metric, with, without);
            }
        }
    }
    Ok(())
}

fn pattern(load: Load, depth: usize) -> Pattern {
    let is_sequential = load == Load::Sequential;
    Pattern {
        request_bytes: if is_sequential { 1 << 20 } else { 4096 },
        depth,
        is_write: true,
        is_sequential,
    }
}

fn compare(samples: &mut Samples, metric: &str, with: Counted, without: Counted) {
    let mut add = |unit, with: f64, without: f64| {
        samples.add(Role::Plexum, "plexum", (metric.to_owned(), unit, with));
        samples.add(Role::Limit, "resync", (metric.to_owned(), unit, without));
    };
    let extra = |with: u64, without: u64| with as f64 - without as f64;
    add(
        "extra writes",
        extra(with.member_writes, without.member_writes),
        0.0,
    );
    add(
        "extra flushes",
        extra(with.member_flushes, without.member_flushes),
        0.0,
    );
    add("x time", with.time_ns as f64 / without.time_ns as f64, 1.0);
}

/// The median of each figure over the worlds.
fn count_worlds(case: &Case, load: Load) -> Result<Counted, BenchError> {
    let worlds = 1..=WORLDS;
    let counted: Result<Vec<Counted>, BenchError> =
        worlds.map(|world| count(case, load, world)).collect();
    let counted = counted?;
    let median = |of: fn(&Counted) -> u64| {
        let mut figures: Vec<u64> = counted.iter().map(of).collect();
        figures.sort_unstable();
        figures[figures.len() / 2]
    };
    Ok(Counted {
        member_writes: median(|counted| counted.member_writes),
        member_flushes: median(|counted| counted.member_flushes),
        time_ns: median(|counted| counted.time_ns),
    })
}

/// One volume in a world of its own, and its load.
fn count(case: &Case, load: Load, world: u64) -> Result<Counted, BenchError> {
    let clock = SimClock::new();
    let (trace, rng) = (Trace::new(clock.clone(), false), Rng::new(world));
    let shape = DiskShape {
        size_bytes: MEMBER_BYTES,
        sector_bytes: 512,
        atom_bytes: 4096,
        has_zeroing_trim: false,
        latency_ns: LATENCY_NS,
        flush_times: 1,
    };
    let disks: Vec<SimDisk> = (0u32..)
        .take(case.member_count)
        .map(|number| SimDisk::new(number, shape, clock.clone(), trace.clone(), &rng))
        .collect();
    let mut executor = Executor::new(Fifo);
    let outcome = Rc::new(RefCell::new(None));
    let whole = {
        let (case, clock, outcome) = (case.clone(), clock.clone(), Rc::clone(&outcome));
        let spawner = executor.spawner();
        async move {
            let counted = live(&case, load, &clock, disks, &spawner).await;
            *outcome.borrow_mut() = Some(counted);
        }
    };
    drop(executor.spawn(whole));
    loop {
        executor.run_until_stalled();
        if let Some(counted) = outcome.borrow_mut().take() {
            return counted;
        }
        if !clock.advance() {
            return Err(BenchError(format!("{}: nothing goes on", case.label)));
        }
    }
}

type SimVolume = Volume<SimDisk, SimClock>;

async fn live(
    case: &Case,
    load: Load,
    clock: &SimClock,
    disks: Vec<SimDisk>,
    spawner: &Spawner,
) -> Result<Counted, BenchError> {
    let told = |error: &dyn std::fmt::Display| BenchError(format!("{}: {error}", case.label));
    let plan = plan(&new_array(case, MEMBER_BYTES)).map_err(|error| told(&error))?;
    let pool = BufPool::new(64 << 20);
    let members: Vec<Option<SimDisk>> = disks.iter().cloned().map(Some).collect();
    write_new(&plan, &members, &pool)
        .await
        .map_err(|(_, error)| told(&error))?;
    let named = disks.iter().cloned().enumerate();
    let named = named.map(|(index, disk)| (format!("member {index}"), disk));
    let (volume, _) = open_volume(
        named.collect(),
        clock.clone(),
        pool.clone(),
        OpenRequest::default(),
    )
    .await
    .map_err(|error| told(&error))?;
    let volume = Rc::new(volume);
    let background = Rc::clone(&volume);
    drop(spawner.spawn(async move { background.run_background().await }));
    clock.sleep(REST).await;
    let data = pool.take_zeroed(case.pattern.request_bytes).freeze();
    if load == Load::Warm {
        write_all(&volume, case.pattern, &data, spawner)
            .await
            .map_err(|error| told(&error))?;
    }
    let (before, started) = (sums(&disks), clock.now_ns());
    write_all(&volume, case.pattern, &data, spawner)
        .await
        .map_err(|error| told(&error))?;
    let time_ns = clock.now_ns() - started;
    clock.sleep(REST).await;
    let after = sums(&disks);
    Ok(Counted {
        member_writes: after.0 - before.0,
        member_flushes: after.1 - before.1,
        time_ns,
    })
}

/// Writes and flushes of all disks so far.
fn sums(disks: &[SimDisk]) -> (u64, u64) {
    disks.iter().fold((0, 0), |(writes, flushes), disk| {
        let counters = disk.counters();
        (writes + counters.writes, flushes + counters.flushes)
    })
}

/// The client's writes, always to the same places.
async fn write_all(
    volume: &Rc<SimVolume>,
    pattern: Pattern,
    data: &Buf,
    spawner: &Spawner,
) -> Result<(), IoError> {
    let slots = volume.size_bytes() / pattern.request_bytes as u64;
    let next = Rc::new(Cell::new(0u64));
    let workers: Vec<_> = (0..pattern.depth)
        .map(|_| {
            let (volume, next, data) = (Rc::clone(volume), Rc::clone(&next), data.clone());
            spawner.spawn(async move {
                loop {
                    let number = next.replace(next.get() + 1);
                    if number >= WRITES {
                        return Ok::<(), IoError>(());
                    }
                    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                    let slot = if pattern.is_sequential { number } else { mixed };
                    let offset = slot % slots * pattern.request_bytes as u64;
                    volume.write(offset, data.clone(), Fua::No).await?;
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.map_err(|_| IoError::Gone)??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_bitmap_costs_fewer_member_writes_than_a_cold_one_and_a_second_count_is_the_same() {
        let case = |consistency| Case {
            label: RAID5,
            organisation: Organisation::Raid5(Raid5Layout::LeftSymmetric),
            member_count: 4,
            members: MemberKind::Memory,
            path: Path::Direct,
            pattern: pattern(Load::Cold, 1),
            consistency,
        };
        let extra = |load| {
            let with = count(&case(Consistency::Bitmap), load, 1).unwrap();
            let without = count(&case(Consistency::Resync), load, 1).unwrap();
            with.member_writes - without.member_writes
        };
        let cold = extra(Load::Cold);
        assert!(extra(Load::Warm) < cold);
        assert_eq!(extra(Load::Cold), cold);
    }
}
