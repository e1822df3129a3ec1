//! Read balance policies compared: 8 disk sets, 17 loads, each client's rate against its rate alone on the first disk.
//!
//! Invariants:
//! - a cell compares with the best classic policy chosen *after the fact*: no single policy is that good;
//! - every policy is measured alike: the same seeds, the same requests, `WARM_NS` before anything counts. A cell holds
//!   the median over the seeds: the best of five noisy figures of one seed is better than any of the five policies;
//! - the same seeds give the same table.
//!
//! Source: lab.md section 10 (the matrix) and section 6 (weighted speed-up and Jain's index).

mod loads;

use std::cell::Cell as Counter;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plexum_block::device::{Device, Fua};
use plexum_disks::disk::mechanical_spec::DiskSpec;
use plexum_disks::disk::timed::TimedDisk;
use plexum_engine::balance::Policy;
use plexum_layout::Organisation;
use serde_json::json;

use crate::array::{ArraySpec, DiskSet, Mode, Surroundings, build};
use crate::error::LabError;
use crate::iostat::{MemberRow, Sampler};
use crate::member::Member;
use crate::report::table::Table;
use crate::target::Target;
use crate::workload::{Operation, Process, mixed};
use crate::world::World;

use loads::{Client, LOADS, M, disk, sets};
pub use loads::{load_names, set_names};

/// Virtual time that does not count, of every policy: disks are known and streams have found their places.
const WARM_NS: u64 = 2_000_000_000;
/// Virtual time of a cell, after that: about a thousand random reads of a disk.
const CELL_NS: u64 = 10_000_000_000;
/// gmirror's requests in flight, and their size.
const REBUILD_DEPTH: usize = 2;
const REBUILD_BYTES: u64 = 128 << 10;
/// Size of a sequential reader's requests.
const FORWARD_BYTES: u64 = 64 << 10;

/// The policies in the order of the tables; the first five are the classics, `adaptive` is judged, without and with
/// read-ahead.
#[must_use]
pub fn policies() -> [(&'static str, Policy); 7] {
    [
        ("load", Policy::Load),
        ("load-7", Policy::Load7),
        ("prefer", Policy::Prefer),
        ("round-robin", Policy::RoundRobin),
        ("split", Policy::Split { slice_bytes: 4096 }),
        ("adaptive", Policy::Adaptive { reads_ahead: false }),
        ("adaptive:ahead", Policy::Adaptive { reads_ahead: true }),
    ]
}

/// One policy in one cell.
#[derive(Clone, Debug)]
pub struct Score {
    /// Weighted speed-up.
    pub speedup: f64,
    /// Jain's index over the clients' shares.
    pub fairness: f64,
    /// What each disk did.
    pub members: Vec<MemberRow>,
}

/// One cell of the matrix.
#[derive(Clone, Debug)]
pub struct MatrixCell {
    /// Disk set.
    pub set: &'static str,
    /// Group of the load.
    pub group: &'static str,
    /// Load.
    pub load: &'static str,
    /// In the order of `policies`: of each the run with the median speed-up.
    pub scores: Vec<Score>,
    /// `adaptive` over the best classic policy, by seed.
    pub by_seed: Vec<f64>,
}

impl MatrixCell {
    /// A policy's speed-up over the best classic one.
    #[must_use]
    pub fn relative(&self, policy: usize) -> f64 {
        relative(&self.scores, policy)
    }
}

/// Where `adaptive` is among the policies; the classics come before.
const ADAPTIVE: usize = 5;

fn relative(scores: &[Score], policy: usize) -> f64 {
    let best = scores[..ADAPTIVE]
        .iter()
        .map(|score| score.speedup)
        .fold(0.0f64, f64::max);
    scores[policy].speedup / best.max(1e-12)
}

/// Bytes each client moved in a second, and what the disks did.
fn rates(
    disks: Vec<DiskSpec>,
    balance: Option<Policy>,
    clients: &[(Client, usize)],
    seed: u64,
) -> Result<(Vec<f64>, Vec<MemberRow>), LabError> {
    let world = World::new();
    let mut set = DiskSet::mixed(disks);
    set.disks.push(disk(1, 1.0));
    set.bus_of.push(None);
    let mut made = set.make(&world, seed, Mode::Timing)?;
    let copy = made.pop().expect("one more was made");
    let target = match balance {
        None => Target::device(&world, &Member::Disk(made[0].clone())),
        Some(balance) => {
            let smallest = made.iter().map(|disk| disk.info().size_bytes).min();
            let members = made.iter().cloned().map(Member::Disk).map(Some).collect();
            let array = ArraySpec {
                balance,
                has_bitmap: false,
                member_bytes: smallest.map(|bytes| bytes / 2 / M * M),
                ..ArraySpec::new(Organisation::Raid1, 0)
            };
            let around = Surroundings::of(&world);
            Target::volume(
                &world,
                &world.run(build(around, members, array, Mode::Timing))??,
            )
        }
    };
    // The same range of all disks, whatever their size.
    let target = target.part(0, 16 << 30)?;
    let named: Vec<(String, TimedDisk)> = made
        .iter()
        .enumerate()
        .map(|(index, disk)| (format!("disk{index}"), disk.clone()))
        .collect();
    let copy = Target::device(&world, &Member::Disk(copy));
    let mut sampler = Sampler::start(&named, target.now_ns());
    let moved = run_clients(&world, &target, &copy, clients, seed)?;
    let rows = sampler.sample(target.now_ns());
    Ok((moved, rows))
}

fn run_clients(
    world: &World,
    target: &Target,
    copy: &Target,
    clients: &[(Client, usize)],
    seed: u64,
) -> Result<Vec<f64>, LabError> {
    let counts_from = target.now_ns() + WARM_NS;
    let until = counts_from + CELL_NS;
    let mut moved = Vec::new();
    let mut handles = Vec::new();
    let total: usize = clients.iter().map(|(_, count)| count).sum();
    for (client, count) in clients {
        for _ in 0..*count {
            let number = moved.len() as u64;
            let bytes = Rc::new(Counter::new(0.0));
            moved.push(Rc::clone(&bytes));
            for process in client_processes(*client, target, number, total, seed)? {
                let (target, copy, bytes) = (target.clone(), copy.clone(), Rc::clone(&bytes));
                let copies = *client == Client::Rebuild;
                handles.push(world.spawn(async move {
                    for request in process.requests {
                        let began = target.now_ns();
                        if began >= until {
                            break;
                        }
                        target
                            .read(request.offset_bytes, request.length_bytes)
                            .await?;
                        if copies {
                            copy.write(request.offset_bytes, request.length_bytes, Fua::No)
                                .await?;
                        }
                        let share = share_of(began..target.now_ns(), counts_from..until);
                        bytes.set(bytes.get() + share * request.length_bytes as f64);
                    }
                    Ok::<(), LabError>(())
                }));
            }
        }
    }
    world.run(async move {
        for handle in handles {
            handle
                .await
                .map_err(|_| LabError::Bug("a client ended early".to_owned()))??;
        }
        Ok::<(), LabError>(())
    })??;
    let seconds = CELL_NS as f64 / 1e9;
    Ok(moved.iter().map(|bytes| bytes.get() / seconds).collect())
}

/// How much of a request's time lies inside of a window.
fn share_of(request: Range<u64>, window: Range<u64>) -> f64 {
    let inside = (request.end.min(window.end)).saturating_sub(request.start.max(window.start));
    if request.is_empty() {
        return f64::from(u8::from(window.contains(&request.start)));
    }
    inside as f64 / (request.end - request.start) as f64
}

/// A client as processes: one, for a rebuild as many as requests are in flight.
fn client_processes(
    client: Client,
    target: &Target,
    number: u64,
    total: usize,
    seed: u64,
) -> Result<Vec<Process>, LabError> {
    let shape = |block_bytes, is_random| mixed::Shape {
        operation: Operation::Read,
        read_percent: None,
        is_random,
        block_bytes,
        process_count: 1,
        depth: 1,
        request_count: u64::MAX,
    };
    match client {
        Client::Random(bytes) => mixed::processes(
            &shape(bytes, true),
            target.size_bytes(),
            seed ^ (number << 8),
        ),
        Client::Forward => {
            let share = target.size_bytes() / total.max(1) as u64 / M * M;
            let start = share * number;
            let list = mixed::processes(&shape(FORWARD_BYTES, false), share, seed)?;
            Ok(list
                .into_iter()
                .map(|process| {
                    Process::single(process.requests.map(move |mut request| {
                        request.offset_bytes += start;
                        request
                    }))
                })
                .collect())
        }
        Client::Rebuild => {
            let next = Arc::new(AtomicU64::new(0));
            Ok((0..REBUILD_DEPTH)
                .map(|_| {
                    let next = Arc::clone(&next);
                    Process::single(std::iter::from_fn(move || {
                        let at = next.fetch_add(REBUILD_BYTES, Ordering::Relaxed);
                        Some(crate::workload::IoRequest::read(at, REBUILD_BYTES))
                    }))
                })
                .collect())
        }
    }
}

/// Runs the cells whose load (and set) contain the given words; all for empty words. `progress` is told after each
/// cell.
///
/// # Errors
/// `Usage` when nothing matches, or there is no seed.
pub fn run_matrix(
    set_word: &str,
    load_word: &str,
    seeds: Range<u64>,
    mut progress: impl FnMut(usize),
) -> Result<Vec<MatrixCell>, LabError> {
    if seeds.is_empty() {
        return Err(LabError::Usage("at least one seed is needed".to_owned()));
    }
    let mut cells = Vec::new();
    for (set, disks) in sets() {
        if !set.contains(set_word) {
            continue;
        }
        for (group, load, clients) in LOADS {
            if !load.contains(load_word) {
                continue;
            }
            let mut runs = Vec::new();
            for seed in seeds.clone() {
                runs.push(run_cell(&disks, clients, seed)?);
            }
            cells.push(MatrixCell {
                set,
                group,
                load,
                by_seed: runs.iter().map(|run| relative(run, ADAPTIVE)).collect(),
                scores: medians(runs),
            });
            progress(cells.len());
        }
    }
    if cells.is_empty() {
        return Err(LabError::Usage(format!(
            "no cell matches; disk sets: {}; loads: {}",
            set_names().join("; "),
            load_names().collect::<Vec<_>>().join("; ")
        )));
    }
    Ok(cells)
}

/// All policies in one cell with one seed.
fn run_cell(
    disks: &[DiskSpec],
    clients: &[(Client, usize)],
    seed: u64,
) -> Result<Vec<Score>, LabError> {
    // Each kind of client alone on the first disk.
    let mut alone = Vec::new();
    for (client, count) in clients {
        let (rate, _) = rates(vec![disks[0].clone()], None, &[(*client, 1)], seed)?;
        alone.extend(std::iter::repeat_n(rate[0], *count));
    }
    let mut scores = Vec::new();
    for (_, policy) in policies() {
        let (seen, members) = rates(disks.to_vec(), Some(policy), clients, seed)?;
        scores.push(score(&seen, &alone, members));
    }
    Ok(scores)
}

/// Of each policy the run with the median speed-up.
fn medians(runs: Vec<Vec<Score>>) -> Vec<Score> {
    (0..policies().len())
        .map(|policy| {
            let mut of_policy: Vec<&Score> = runs.iter().map(|run| &run[policy]).collect();
            of_policy.sort_by(|a, b| a.speedup.total_cmp(&b.speedup));
            of_policy[of_policy.len() / 2].clone()
        })
        .collect()
}

fn score(seen: &[f64], alone: &[f64], members: Vec<MemberRow>) -> Score {
    let shares: Vec<f64> = seen
        .iter()
        .zip(alone)
        .map(|(rate, alone)| rate / alone.max(1e-9))
        .collect();
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    Score {
        speedup: sum,
        fairness: if squares > 0.0 {
            sum * sum / (shares.len() as f64 * squares)
        } else {
            1.0
        },
        members,
    }
}

/// Geometric means (and the worst cell) of each policy over the best classic one, by group of loads.
#[must_use]
pub fn summary(cells: &[MatrixCell]) -> Table {
    let names = policies().map(|(name, _)| name);
    let mut columns = vec!["workloads", "cells"];
    columns.extend(names);
    let mut table = Table::new(
        "weighted speed-up over the best classic policy of each cell: geometric mean (worst)",
        &columns,
    );
    let mut groups: Vec<&str> = Vec::new();
    for cell in cells {
        if !groups.contains(&cell.group) {
            groups.push(cell.group);
        }
    }
    groups.push("all");
    for group in groups {
        let of_group: Vec<&MatrixCell> = cells
            .iter()
            .filter(|cell| group == "all" || cell.group == group)
            .collect();
        let mut row = vec![json!(group), json!(of_group.len())];
        for policy in 0..names.len() {
            let values: Vec<f64> = of_group.iter().map(|cell| cell.relative(policy)).collect();
            let logs: f64 = values.iter().map(|value| value.max(1e-9).ln()).sum();
            let mean = (logs / values.len() as f64).exp();
            let worst = values.iter().copied().fold(f64::INFINITY, f64::min);
            row.push(json!(format!("{mean:.2} ({worst:.2})")));
        }
        table.push(row);
    }
    table
}

/// Every cell: speed-up of each policy and the fairness of the best.
#[must_use]
pub fn cells_table(cells: &[MatrixCell]) -> Table {
    let names = policies().map(|(name, _)| name);
    let mut columns = vec!["disks", "load"];
    columns.extend(names);
    columns.push("fairest");
    let mut table = Table::new("weighted speed-up", &columns);
    for cell in cells {
        let mut row = vec![json!(cell.set), json!(cell.load)];
        for score in &cell.scores {
            row.push(json!((score.speedup * 100.0).round() / 100.0));
        }
        let fairest = (0..names.len()).max_by(|a, b| {
            cell.scores[*a]
                .fairness
                .total_cmp(&cell.scores[*b].fairness)
        });
        row.push(json!(fairest.map_or("-", |index| names[index])));
        table.push(row);
    }
    table
}

/// Within 2 % of the best classic policy.
const NEAR: f64 = 0.98;

/// What `adaptive` has to reach, without and with read-ahead, and what it reaches: (sentence, reached).
#[must_use]
pub fn adaptive_bands(cells: &[MatrixCell]) -> Vec<(String, bool)> {
    let judged = policies().into_iter().enumerate().skip(ADAPTIVE);
    judged
        .flat_map(|(policy, (name, _))| {
            let bands = bands(cells, policy).into_iter();
            bands.map(move |(sentence, is_reached)| (format!("{name}, {sentence}"), is_reached))
        })
        .collect()
}

fn bands(cells: &[MatrixCell], policy: usize) -> Vec<(String, bool)> {
    let relative: Vec<f64> = cells.iter().map(|cell| cell.relative(policy)).collect();
    let count =
        |wanted: &dyn Fn(f64) -> bool| relative.iter().filter(|value| wanted(**value)).count();
    // In proportion, when only a part of the matrix was run.
    let share = |of_136: usize| (of_136 * cells.len()).div_ceil(136);
    let (near, bad, better) = (
        count(&|value| value >= NEAR),
        count(&|value| value < 0.70),
        count(&|value| value > 1.05),
    );
    let all = cells.len();
    vec![
        (
            format!(
                "within 2 % of the best classic: {near} of {all}, wanted {}",
                share(125)
            ),
            near >= share(125),
        ),
        (format!("below 0.70: {bad} of {all}, wanted 0"), bad == 0),
        (
            format!(
                "more than 5 % better: {better} of {all}, wanted {}",
                share(30)
            ),
            better >= share(30),
        ),
    ]
}

/// In how many cells `adaptive` is within 2 % of the best classic policy, counted with each seed alone.
#[must_use]
pub fn near_by_seed(cells: &[MatrixCell]) -> Vec<usize> {
    let seeds = cells.first().map_or(0, |cell| cell.by_seed.len());
    let near = |seed: usize| {
        cells
            .iter()
            .filter(|cell| cell.by_seed[seed] >= NEAR)
            .count()
    };
    (0..seeds).map(near).collect()
}

#[cfg(test)]
mod tests {
    use super::loads::K;
    use super::*;
    use crate::preset;

    /// The median of `adaptive` over the best median of the classics.
    fn adaptive_over_best(disks: &[DiskSpec], clients: &[(Client, usize)]) -> f64 {
        let runs = (1..4).map(|seed| run_cell(disks, clients, seed).unwrap());
        relative(&medians(runs.collect()), ADAPTIVE)
    }

    #[test]
    fn adaptive_holds_outside_of_the_matrix() {
        let nas = DiskSpec::Mechanical(preset::nas_12t());
        let fast = DiskSpec::Mechanical(preset::scsi_10k());
        let ssd = preset::find("ssd-sata").unwrap();
        let unequal = vec![disk(1, 1.0), fast, nas];
        let six = vec![disk(1, 1.0); 6];
        let mixed = vec![disk(1, 1.0), disk(1, 1.0), ssd.clone()];
        let readers = |bytes, count| vec![(Client::Random(bytes), count)];
        let with_streams =
            |streams, count| vec![(Client::Forward, streams), (Client::Random(8 * K), count)];
        let cells = [
            ("3 unequal, 8 random", &unequal, readers(8 * K, 8)),
            ("3 unequal, streams", &unequal, with_streams(3, 8)),
            ("6 equal, 8 random", &six, readers(256 * K, 8)),
            ("6 equal, streams", &six, with_streams(2, 8)),
            ("SSD and 2 disks", &mixed, with_streams(1, 4)),
            ("2 SSDs", &vec![ssd; 2], vec![(Client::Forward, 1)]),
        ];
        for (name, disks, clients) in cells {
            let reached = adaptive_over_best(disks, &clients);
            assert!(reached >= 0.95, "{name}: {reached:.3}");
        }
    }

    #[test]
    fn only_what_happens_in_the_window_counts() {
        assert_eq!(share_of(0..10, 0..10), 1.0);
        assert_eq!(share_of(5..15, 10..30), 0.5);
        assert_eq!(share_of(25..35, 10..30), 0.5);
        assert_eq!(share_of(0..10, 10..30), 0.0);
        assert_eq!(share_of(12..12, 10..30), 1.0);
        assert_eq!(share_of(32..32, 10..30), 0.0);
    }

    #[test]
    fn a_cell_is_the_median_of_its_seeds() {
        let cells = run_matrix("2 equal", "1 random 4 KiB", 1..4, |_| {}).unwrap();
        assert_eq!(cells[0].by_seed.len(), 3);
        let mut single: Vec<f64> = (1..4)
            .map(|seed| {
                let one = run_matrix("2 equal", "1 random 4 KiB", seed..seed + 1, |_| {});
                one.unwrap()[0].scores[ADAPTIVE].speedup
            })
            .collect();
        single.sort_by(f64::total_cmp);
        assert_eq!(cells[0].scores[ADAPTIVE].speedup, single[1]);
        assert_eq!(near_by_seed(&cells).len(), 3);
        assert!(run_matrix("", "", 1..1, |_| {}).is_err());
    }

    #[test]
    fn the_matrix_has_136_cells() {
        assert_eq!(sets().len() * LOADS.len(), 136);
    }

    #[test]
    fn prefer_uses_one_disk_and_round_robin_both() {
        let cells = run_matrix("2 equal", "4 random 4 KiB", 3..4, |_| {}).unwrap();
        let reads = |policy: usize| -> Vec<f64> {
            let members = &cells[0].scores[policy].members;
            members.iter().map(|row| row.reads_per_s).collect()
        };
        assert_eq!(reads(2)[1], 0.0, "prefer");
        let turn = reads(3);
        assert!((turn[0] / turn[1] - 1.0).abs() < 0.05, "{turn:?}");
        assert!(
            cells[0].scores[0].speedup > cells[0].scores[2].speedup * 1.3,
            "load beats prefer"
        );
        assert_eq!(cells[0].relative(0).max(cells[0].relative(3)).min(1.0), 1.0);
    }
}
