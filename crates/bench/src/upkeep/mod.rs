//! Groups `scrub` and `rebuild`: what an array does for itself, over members on tmpfs, beside SnapRAID and btrfs, and
//! over members on disk, beside what those give by themselves.
//!
//! All figures are user data of the whole array a second: what a scrub or a rebuild goes through, however many members
//! it reads for it.

mod bound;
mod btrfs;
mod direct;
mod disk;
mod plexum;
mod snapraid;

use std::time::{Duration, Instant};

use crate::compare::{Probe, Role, Samples, take_turns};
use crate::folder::TemporaryFolder;
use crate::{BenchError, BenchOptions, Progress};

/// User data of each array in memory.
const DATA_BYTES: u64 = 512 << 20;

/// A file whose blocks are all on the disk, and not in the page cache.
pub(crate) fn fill_past_the_cache(
    path: &std::path::Path,
    length_bytes: u64,
) -> Result<(), BenchError> {
    direct::fill(path, length_bytes).map(drop)
}

/// Which of the two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Scrub,
    Rebuild,
}

/// Somebody with an array that can be asked to do the work again and again.
trait Keeper {
    fn work(&mut self, work: Work) -> Result<Duration, BenchError>;
}

/// An array by its members.
#[derive(Clone, Copy, Debug)]
struct Array {
    metric: &'static str,
    level: &'static str,
    data_members: usize,
    parities: usize,
    data_bytes: u64,
    /// Its members are files on a real file system; otherwise on tmpfs.
    is_on_disk: bool,
}

const ARRAYS: [Array; 3] = [
    Array {
        metric: "RAID-5 of 5",
        level: "5",
        data_members: 4,
        parities: 1,
        data_bytes: DATA_BYTES,
        is_on_disk: false,
    },
    Array {
        metric: "RAID-6 of 6",
        level: "6",
        data_members: 4,
        parities: 2,
        data_bytes: DATA_BYTES,
        is_on_disk: false,
    },
    Array {
        metric: "mirror of 2",
        level: "1",
        data_members: 1,
        parities: 1,
        data_bytes: DATA_BYTES,
        is_on_disk: false,
    },
];

impl Array {
    /// Bytes of data on each member.
    fn share_bytes(self) -> u64 {
        self.data_bytes / self.data_members as u64
    }
}

type Made = Result<Box<dyn Keeper>, BenchError>;

/// Measures one of the groups.
pub(crate) fn measure(
    group: &'static str,
    work: Work,
    options: &BenchOptions,
    samples: &mut Samples,
    progress: &mut Progress<'_>,
) -> Result<(), BenchError> {
    let place = TemporaryFolder::make(options)?;
    for array in ARRAYS {
        if work == Work::Rebuild && array.level == "1" {
            continue;
        }
        let mut keepers: Vec<(&str, Role, Box<dyn Keeper>)> = Vec::new();
        let mut add = |name, role, made: Made| match made {
            Ok(keeper) => keepers.push((name, role, keeper)),
            Err(error) => samples.skip(name, array.metric, error.to_string()),
        };
        let folder = |name: &str| place.folder(&format!("{} {name}", array.metric));
        add(
            "plexum",
            Role::Plexum,
            plexum::make(options, &folder("p")?, array),
        );
        if array.level != "1" {
            add("snapraid", Role::Peer, snapraid::make(&folder("s")?, array));
        }
        add("btrfs", Role::Peer, btrfs::make(&folder("b")?, array));
        add(
            "plain loop, one core",
            Role::Limit,
            bound::make(&folder("l")?, array),
        );
        let probes = probes(&mut keepers, array, work);
        take_turns(group, probes, options.rounds, samples, progress);
    }
    disk::measure(group, work, options, samples, progress)
}

/// One probe for each of those who work on an array.
fn probes<'a>(
    keepers: &'a mut [(&str, Role, Box<dyn Keeper>)],
    array: Array,
    work: Work,
) -> Vec<Probe<'a>> {
    keepers
        .iter_mut()
        .map(|(name, role, keeper)| probe(name, *role, array, work, keeper.as_mut()))
        .collect()
}

/// The rate of somebody's work on an array.
fn probe<'a>(
    name: &str,
    role: Role,
    array: Array,
    work: Work,
    keeper: &'a mut dyn Keeper,
) -> Probe<'a> {
    Probe {
        name: name.to_owned(),
        role,
        task: array.metric.to_owned(),
        measure: Box::new(move || {
            let rate = array.data_bytes as f64 / keeper.work(work)?.as_secs_f64() / 1e9;
            Ok(vec![(array.metric.to_owned(), "GB/s", rate)])
        }),
    }
}

fn timed(work: impl FnOnce() -> Result<String, BenchError>) -> Result<Duration, BenchError> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed())
}

/// Where all noise begins.
const NOISE: u64 = 88_172_645_463_325_252;

/// Bytes that cannot be guessed, the same for everybody: `random` is [`NOISE`] at first.
fn fill_with_noise(bytes: &mut [u8], random: &mut u64) {
    for word in bytes.chunks_exact_mut(8) {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        word.copy_from_slice(&random.to_le_bytes());
    }
}

/// A file of noise.
fn write_noise(path: &std::path::Path, length_bytes: u64) -> Result<(), BenchError> {
    let mut bytes = vec![0; usize::try_from(length_bytes).unwrap_or(usize::MAX)];
    fill_with_noise(&mut bytes, &mut NOISE.clone());
    std::fs::write(path, bytes).map_err(|error| BenchError(format!("{}: {error}", path.display())))
}
