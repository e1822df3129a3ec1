//! The gvinum and gmirror article: rawio with eight processes (only its order survived), dd on a single disk.

use std::rc::Rc;

use plexum_disks::disk::mechanical_spec::DiskSpec;
use plexum_engine::balance::Policy;
use plexum_layout::Organisation;

use super::{Cell, Effect, Reproduction, number, seed_rows};
use crate::array::{ArraySpec, DiskSet, Mode, Surroundings, build};
use crate::error::LabError;
use crate::member::Member;
use crate::preset;
use crate::target::Target;
use crate::workload::rawio::{Mix, Rawio, Test};
use crate::workload::{Operation, Process, dd, run_processes};
use crate::world::World;

const DD: &str =
    include_str!("../../../../fixtures/lab/seed-tables/a2_gmirror_dd_repaired_guess.csv");
/// FreeBSD's largest transfer: longer requests of a raw device go in pieces, one after another.
const CUT_BYTES: u64 = 128 << 10;
const DD_BYTES: u64 = 32 << 20;

/// A mirror of two disks, or one disk.
fn target(world: &World, balance: Option<Policy>, seed: u64) -> Result<Target, LabError> {
    let spec = DiskSpec::Mechanical(preset::scsi_10k());
    let disks = DiskSet::of(&spec, 2).make(world, seed, Mode::Timing)?;
    let Some(balance) = balance else {
        return Ok(Target::device(world, &Member::Disk(disks[0].clone())).with_cut(CUT_BYTES));
    };
    let members = disks.into_iter().map(Member::Disk).map(Some).collect();
    let array = ArraySpec {
        balance,
        has_bitmap: false,
        ..ArraySpec::new(Organisation::Raid1, 0)
    };
    let volume: Rc<_> =
        world.run(build(Surroundings::of(world), members, array, Mode::Timing))??;
    Ok(Target::volume(world, &volume).with_cut(CUT_BYTES))
}

fn rawio(balance: Option<Policy>, seed: u64) -> Result<f64, LabError> {
    let world = World::new();
    let target = target(&world, balance, seed)?;
    let rawio = Rawio {
        request_count: 300,
        mix: Mix::Uniform,
        seed,
        ..Rawio::default()
    };
    let processes = rawio.processes(Test::RandomRead, target.size_bytes())?;
    let spawner = world.spawner();
    let outcome =
        world.run(async move { run_processes(&spawner, &target, processes, None).await })??;
    Ok(outcome.bytes_per_s() / 1024.0)
}

fn copy(
    balance: Option<Policy>,
    operation: Operation,
    block_bytes: u64,
    seed: u64,
) -> Result<f64, LabError> {
    let world = World::new();
    let target = target(&world, balance, seed)?;
    let count = DD_BYTES / block_bytes;
    let requests = dd::sequential(operation, block_bytes, count, target.size_bytes())?;
    let spawner = world.spawner();
    let outcome = world.run(async move {
        run_processes(&spawner, &target, vec![Process::single(requests)], None).await
    })??;
    Ok(outcome.bytes_per_s() / 1000.0)
}

/// What of the article can be used.
pub(super) fn run(seed: u64) -> Result<Reproduction, LabError> {
    let mut all = Reproduction::default();
    for row in seed_rows(DD) {
        let kib = number(&row, "block_KiB") as u64;
        let is_write = row.get("op").map(String::as_str) == Some("write");
        let (group, operation) = if is_write {
            ("dd writes, single disk", Operation::Write)
        } else {
            ("dd reads, single disk", Operation::Read)
        };
        if !is_write && kib < 128 {
            continue; // reads of small blocks lost a digit in print
        }
        all.cells.push(Cell {
            table: "article",
            group,
            name: format!("{group}, {kib} KiB"),
            published: number(&row, "single_disk"),
            ours: copy(None, operation, kib << 10, seed)?,
            unit: "kB/s",
            is_fitted: false,
            seed,
        });
    }
    let single = rawio(None, seed)?;
    let turn = rawio(Some(Policy::RoundRobin), seed)?;
    let load = rawio(Some(Policy::Load7), seed)?;
    let split = rawio(Some(Policy::Split { slice_bytes: 4096 }), seed)?;
    all.effects.push(Effect {
        table: "article",
        name: "rawio with 8 processes: round-robin is first",
        published: "round-robin first".to_owned(),
        ours: format!(
            "round-robin {turn:.0}, load {load:.0}, split {split:.0}, single {single:.0} K/s"
        ),
        is_right: turn > load.max(split).max(single),
        must_hold: true,
        seed,
    });
    let one = copy(None, Operation::Read, 128 << 10, seed)?;
    let two = copy(Some(Policy::RoundRobin), Operation::Read, 128 << 10, seed)?;
    all.effects.push(Effect {
        table: "article",
        name: "dd reads of 128 KiB: a mirror is slower than one disk",
        published: "25.3 to 28.7 against 34.8 MB/s".to_owned(),
        ours: format!("round-robin {:.1} against {:.1} MB/s", two / 1e3, one / 1e3),
        is_right: two < one * 0.95,
        must_hold: true,
        seed,
    });
    Ok(all)
}
