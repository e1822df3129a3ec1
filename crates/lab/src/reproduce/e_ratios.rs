//! The ratios of 2020: RAID-6 and RAID-10 of md under ext4 beside a copy-on-write pool with two parities and with
//! mirrors, eight disks; the bitmap on and off. The article's charts are pictures, so ratios are all there is.
//!
//! Invariants:
//! - the arrays are the engine's; ext4 with its journal and the pool are models (lab.md 3), and none of their constants
//!   was chosen by looking at a cell;
//! - XFS and bursts that end in memory are not modelled: these rows of the table have no cell.

mod said;

use std::collections::BTreeMap;
use std::rc::Rc;

use plexum_block::device::Fua;
use plexum_disks::disk::mechanical_spec::DiskSpec;
use plexum_disks::disk::timed::TimedDisk;
use plexum_disks::rng::Rng;
use plexum_layout::Organisation;

use super::{Cell, Effect, Reproduction};
use crate::array::{ArraySpec, DiskSet, Mode, Surroundings, build};
use crate::cow::{CowPool, Shape};
use crate::error::LabError;
use crate::member::{Member, SimVolume};
use crate::preset;
use crate::target::Target;
use crate::workload::{IoRequest, Process, run_processes};
use crate::world::World;

use said::{EFFECTS, Ratio, STATED, published};

const DISKS: usize = 8;
const STRIP_BYTES: u64 = 512 << 10;
const REGION_BYTES: u64 = 64 << 20;
/// The journal lies before the files: the best place for it.
const FILES_START_BYTES: u64 = 1 << 30;
const FILES_BYTES: u64 = 16 << 30;
const SMALL_BYTES: u64 = 4 << 10;
const LARGE_BYTES: u64 = 1 << 20;
/// Programs at the same time, each with one request: posixaio.
const JOBS: u64 = 8;
/// Pages that are dirty in a hundred when memory is written back.
const DIRTY_PERCENT: u64 = 55;
/// What is written back at once: two rows of md's stripe cache.
const WINDOW_BYTES: u64 = 6 << 20;
/// Longest request of the block layer.
const REQUEST_BYTES: u64 = 512 << 10;
/// What a pass of the writer goes over, with small and with large blocks.
const SMALL_AREA_BYTES: u64 = 512 << 20;
const LARGE_AREA_BYTES: u64 = 4 << 30;
/// What all jobs write synchronously in the articles: 16 MiB each with small blocks, 1 GiB with large ones.
const SYNC_SMALL_BYTES: u64 = 128 << 20;
const SYNC_LARGE_BYTES: u64 = 8 << 30;
/// Rounds of synchronous writes of all jobs.
const ROUNDS: u64 = 500;
/// Time of random reads.
const READ_NS: u64 = 30_000_000_000;
/// Descriptor and changed metadata of a transaction of the journal.
const JOURNAL_BYTES: u64 = 16 << 10;

/// Figures of one arrangement, in bytes a second.
type Figures = BTreeMap<(&'static str, u64), f64>;

fn disks(world: &World, seed: u64) -> Result<Vec<TimedDisk>, LabError> {
    let spec = DiskSpec::Mechanical(preset::nas_12t());
    DiskSet::of(&spec, DISKS).make(world, seed, Mode::Timing)
}

fn md(world: &World, level: Organisation, has_bitmap: bool, seed: u64) -> Result<Target, LabError> {
    let members = disks(world, seed)?;
    let members = members.into_iter().map(Member::Disk).map(Some).collect();
    let array = ArraySpec {
        has_bitmap,
        region_bytes: has_bitmap.then_some(REGION_BYTES),
        ..ArraySpec::new(level, STRIP_BYTES)
    };
    let volume: Rc<SimVolume> =
        world.run(build(Surroundings::of(world), members, array, Mode::Timing))??;
    let target = Target::volume(world, &volume);
    // The first write of all makes the whole bitmap durable, which no benchmark waits for.
    let first = target.clone();
    world.run(async move { first.write(0, SMALL_BYTES, Fua::Yes).await })??;
    Ok(target)
}

/// Dirty runs of one pass, ascending with holes.
fn write_back(block_bytes: u64, rng: &mut Rng) -> Vec<IoRequest> {
    let area = if block_bytes < LARGE_BYTES {
        SMALL_AREA_BYTES
    } else {
        LARGE_AREA_BYTES
    };
    let mut runs: Vec<IoRequest> = Vec::new();
    for block in 0..area / block_bytes {
        if !rng.chance(DIRTY_PERCENT, 100) {
            continue;
        }
        let mut at = FILES_START_BYTES + block * block_bytes;
        let end = at + block_bytes;
        while at < end {
            let length = (end - at).min(REQUEST_BYTES - at % REQUEST_BYTES);
            match runs.last_mut() {
                Some(run)
                    if run.offset_bytes + run.length_bytes == at
                        && !at.is_multiple_of(REQUEST_BYTES) =>
                {
                    run.length_bytes += length;
                }
                _ => runs.push(IoRequest::write(at, length)),
            }
            at += length;
        }
    }
    runs
}

fn md_async(target: &Target, world: &World, block_bytes: u64, seed: u64) -> Result<f64, LabError> {
    let runs = write_back(block_bytes, &mut Rng::new(seed ^ block_bytes));
    let bytes: u64 = runs.iter().map(|run| run.length_bytes).sum();
    let mean = (bytes / runs.len().max(1) as u64).max(1);
    let depth = usize::try_from(WINDOW_BYTES * DIRTY_PERCENT / 100 / mean).unwrap_or(1);
    let process = Process {
        depth: depth.max(1),
        requests: Box::new(runs.into_iter()),
    };
    let (target, spawner) = (target.clone(), world.spawner());
    let seconds = world.run(async move {
        let started = target.now_ns();
        run_processes(&spawner, &target, vec![process], None).await?;
        target.flush().await?;
        Ok::<f64, LabError>((target.now_ns() - started) as f64 / 1e9)
    })??;
    Ok(bytes as f64 / seconds)
}

/// All jobs write a block and wait for it: data, then one transaction of the journal for all.
fn md_sync(target: &Target, world: &World, block_bytes: u64, seed: u64) -> Result<f64, LabError> {
    let (target, spawner) = (target.clone(), world.spawner());
    let mut rng = Rng::new(seed ^ block_bytes ^ 0x5c);
    let range = if block_bytes < LARGE_BYTES {
        SYNC_SMALL_BYTES
    } else {
        SYNC_LARGE_BYTES
    };
    let seconds = world.run(async move {
        let started = target.now_ns();
        for round in 0..ROUNDS {
            let mut writes = Vec::new();
            for _ in 0..JOBS {
                let block = rng.below(range / block_bytes);
                let (target, at) = (target.clone(), FILES_START_BYTES + block * block_bytes);
                let write = async move { target.write(at, block_bytes, Fua::No).await };
                writes.push(spawner.spawn(write));
            }
            for write in writes {
                let died = |_| LabError::Bug("a write ended early".to_owned());
                write.await.map_err(died)??;
            }
            let at = round * (JOURNAL_BYTES + SMALL_BYTES);
            target.write(at, JOURNAL_BYTES, Fua::No).await?;
            target.flush().await?;
            target
                .write(at + JOURNAL_BYTES, SMALL_BYTES, Fua::Yes)
                .await?;
        }
        Ok::<f64, LabError>((target.now_ns() - started) as f64 / 1e9)
    })??;
    Ok((ROUNDS * JOBS * block_bytes) as f64 / seconds)
}

fn md_read(target: &Target, world: &World, block_bytes: u64, seed: u64) -> Result<f64, LabError> {
    let base = Rng::new(seed ^ block_bytes ^ 0x4ead);
    let job = |job: u64| {
        let mut rng = base.fork(job);
        Process::single(std::iter::repeat_with(move || {
            let block = rng.below(FILES_BYTES / block_bytes);
            IoRequest::read(FILES_START_BYTES + block * block_bytes, block_bytes)
        }))
    };
    let processes = (0..JOBS).map(job).collect();
    let (target, spawner) = (target.clone(), world.spawner());
    let outcome = world
        .run(async move { run_processes(&spawner, &target, processes, Some(READ_NS)).await })??;
    Ok(outcome.bytes_per_s())
}

fn md_figures(level: Organisation, has_bitmap: bool, seed: u64) -> Result<Figures, LabError> {
    let mut figures = Figures::new();
    for block in [SMALL_BYTES, LARGE_BYTES] {
        type Test = fn(&Target, &World, u64, u64) -> Result<f64, LabError>;
        let tests: [(&'static str, Test); 3] =
            [("async", md_async), ("sync", md_sync), ("read", md_read)];
        for (name, test) in tests {
            let world = World::new();
            let target = md(&world, level, has_bitmap, seed)?;
            figures.insert((name, block), test(&target, &world, block, seed)?);
        }
    }
    Ok(figures)
}

fn pool(world: &World, shape: Shape, record_bytes: u64, seed: u64) -> Result<CowPool, LabError> {
    let disks = disks(world, seed)?;
    let targets = disks
        .into_iter()
        .map(|disk| Target::device(world, &Member::Disk(disk)));
    let targets = targets.collect();
    Ok(CowPool::new(
        shape,
        targets,
        world.spawner(),
        record_bytes,
        FILES_BYTES,
        seed,
    ))
}

async fn pool_reads(pool: CowPool, mut rng: Rng, records: u64) -> Result<u64, LabError> {
    let mut count = 0;
    while pool.now_ns() < READ_NS {
        pool.read(rng.below(records)).await?;
        count += 1;
    }
    Ok(count)
}

fn pool_figures(shape: Shape, seed: u64) -> Result<Figures, LabError> {
    let mut figures = Figures::new();
    for block in [SMALL_BYTES, LARGE_BYTES] {
        let world = World::new();
        let all = pool(&world, shape, block, seed)?;
        let records = if block < LARGE_BYTES {
            SMALL_AREA_BYTES
        } else {
            LARGE_AREA_BYTES
        } / block;
        world.run(async move { all.write(records).await })??;
        let seconds = world.clock().now_ns() as f64 / 1e9;
        figures.insert(("async", block), (records * block) as f64 / seconds);

        let world = World::new();
        let all = pool(&world, shape, block, seed)?;
        world.run(async move {
            for _ in 0..ROUNDS {
                all.write_sync(JOBS).await?;
            }
            Ok::<(), LabError>(())
        })??;
        let seconds = world.clock().now_ns() as f64 / 1e9;
        figures.insert(("sync", block), (ROUNDS * JOBS * block) as f64 / seconds);

        let world = World::new();
        let all = pool(&world, shape, block, seed)?;
        let base = Rng::new(seed ^ block);
        let spawner = world.spawner();
        let count = world.run(async move {
            let mut jobs = Vec::new();
            for job in 0..JOBS {
                let reads = pool_reads(all.clone(), base.fork(job), FILES_BYTES / block);
                jobs.push(spawner.spawn(reads));
            }
            let mut count = 0;
            for job in jobs {
                count += job
                    .await
                    .map_err(|_| LabError::Bug("a job ended early".to_owned()))??;
            }
            Ok::<u64, LabError>(count)
        })??;
        let seconds = world.clock().now_ns() as f64 / 1e9;
        figures.insert(("read", block), (count * block) as f64 / seconds);
    }
    Ok(figures)
}

/// All arrangements of a seed.
struct Seen {
    md6: Figures,
    md6_plain: Figures,
    md10: Figures,
    md10_plain: Figures,
    raidz2: Figures,
    mirrors: Figures,
}

impl Seen {
    fn figures(&self, name: &str) -> &Figures {
        match name {
            "md6 without bitmap" => &self.md6_plain,
            "md10 with bitmap" | "md10" => &self.md10,
            "md10 without bitmap" => &self.md10_plain,
            "raidz2" => &self.raidz2,
            "zfs mirrors" => &self.mirrors,
            _ => &self.md6,
        }
    }

    fn ratio(&self, (words, test, block): Ratio) -> f64 {
        let (upper, lower) = words.split_once(" / ").unwrap_or((words, ""));
        let of = |name| self.figures(name).get(&(test, block)).copied();
        of(upper).unwrap_or(f64::NAN) / of(lower).unwrap_or(f64::NAN)
    }
}

/// The table.
pub(super) fn run(seed: u64) -> Result<Reproduction, LabError> {
    let raid6 = organisation("6")?;
    let raid10 = organisation("10")?;
    let seen = Seen {
        md6: md_figures(raid6, true, seed)?,
        md6_plain: md_figures(raid6, false, seed)?,
        md10: md_figures(raid10, true, seed)?,
        md10_plain: md_figures(raid10, false, seed)?,
        raidz2: pool_figures(Shape::RaidZ2, seed)?,
        mirrors: pool_figures(Shape::Mirrors, seed)?,
    };
    let mut all = Reproduction::default();
    for (block, operation, ratio) in STATED {
        all.cells.push(Cell {
            table: "ratios",
            group: "stated ratios",
            name: format!("{}, {block} {operation}", ratio.0),
            published: published(block, operation, ratio.0),
            ours: seen.ratio(ratio),
            unit: "times",
            is_fitted: false,
            seed,
        });
    }
    for (name, ratio, low, high, must_hold) in EFFECTS {
        let ours = seen.ratio(ratio);
        let published = if high > 1e8 {
            format!("more than {low}")
        } else {
            format!("{low} to {high}")
        };
        all.effects.push(Effect {
            table: "ratios",
            name,
            published,
            ours: format!("{ours:.2}"),
            is_right: ours > low && ours < high,
            must_hold,
            seed,
        });
    }
    let costs = ["md6", "md10"].map(|name| {
        let words = if name == "md6" {
            STATED[0].2.0
        } else {
            STATED[5].2.0
        };
        seen.ratio((words, "async", LARGE_BYTES))
    });
    let small = seen.ratio((STATED[5].2.0, "async", SMALL_BYTES));
    all.effects.push(Effect {
        table: "ratios",
        name: "the bitmap costs md6 most, then md10, and least with 4 KiB",
        published: "1.28, 1.05, 1.00".to_owned(),
        ours: format!("{:.2}, {:.2}, {small:.2}", costs[0], costs[1]),
        is_right: costs[0] > costs[1] && costs[1] > small,
        must_hold: false,
        seed,
    });
    all.notes.push(note(&seen));
    Ok(all)
}

fn organisation(level: &str) -> Result<Organisation, LabError> {
    let told = |error: &dyn std::fmt::Display| LabError::Usage(error.to_string());
    let level = level.parse().map_err(|error| told(&error))?;
    Organisation::from_words(level, None).map_err(|error| told(&error))
}

/// The rates behind the ratios.
fn note(seen: &Seen) -> String {
    let mut text = String::from("ratios, MB/s: async, sync, read with 4 KiB; with 1 MiB\n");
    for name in [
        "md6",
        "md6 without bitmap",
        "md10",
        "md10 without bitmap",
        "raidz2",
        "zfs mirrors",
    ] {
        text += &format!("{name:<20}");
        for block in [SMALL_BYTES, LARGE_BYTES] {
            for test in ["async", "sync", "read"] {
                let rate = seen
                    .figures(name)
                    .get(&(test, block))
                    .copied()
                    .unwrap_or(f64::NAN);
                text += &format!("{:>10.2}", rate / 1e6);
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_written_back_in_ascending_order_with_holes() {
        for block in [SMALL_BYTES, LARGE_BYTES] {
            let runs = write_back(block, &mut Rng::new(3));
            let area = if block == SMALL_BYTES {
                SMALL_AREA_BYTES
            } else {
                LARGE_AREA_BYTES
            };
            for pair in runs.windows(2) {
                assert!(pair[0].offset_bytes + pair[0].length_bytes <= pair[1].offset_bytes);
            }
            let bytes: u64 = runs.iter().map(|run| run.length_bytes).sum();
            let share = bytes as f64 / area as f64;
            assert!((share - 0.55).abs() < 0.03, "{share}");
            assert!(runs.iter().all(|run| run.length_bytes <= REQUEST_BYTES
                && run.offset_bytes >= FILES_START_BYTES
                && run.offset_bytes + run.length_bytes <= FILES_START_BYTES + area));
        }
    }

    #[test]
    fn every_stated_ratio_is_in_the_table_of_the_seed() {
        for (block, operation, ratio) in STATED {
            let value = published(block, operation, ratio.0);
            assert!(value >= 1.0, "{block} {operation} {}: {value}", ratio.0);
        }
    }
}
