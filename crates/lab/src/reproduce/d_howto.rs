//! bonnie on the Linux software RAID of 1999: RAID-0, RAID-5, RAID-10 over four disks, three of them on one bus.
//!
//! The CPU constants of the host were chosen by the RAID-0 cells of 4 and 1 KiB blocks at 4 KiB strips (four cells).

use plexum_disks::disk::mechanical_spec::{DiskSpec, QueueOrder};
use plexum_engine::balance::Policy;
use plexum_layout::{Organisation, Raid0Layout, Raid5Layout, Raid10Layout};

use super::{Cell, Effect, Reproduction, number, seed_rows};
use crate::array::{ArraySpec, DiskSet, Mode, Surroundings, build};
use crate::error::LabError;
use crate::host::{HostFile, HostSpec};
use crate::member::Member;
use crate::preset;
use crate::target::Target;
use crate::world::World;

const RAID0: &str = include_str!("../../../../fixtures/lab/seed-tables/d1_howto_raid0.csv");
const TCQ: &str = include_str!("../../../../fixtures/lab/seed-tables/d2_howto_raid0_tcq.csv");
const RAID5: &str = include_str!("../../../../fixtures/lab/seed-tables/d3_howto_raid5.csv");
const RAID10: &str = include_str!("../../../../fixtures/lab/seed-tables/d4_howto_raid10.csv");

/// Virtual file size: rates are steady long before the gigabyte of the original.
const FILE_BYTES: u64 = 128 << 20;
const PIECE_BYTES: u64 = 8192;
/// Whole rows of three strips of 8 or 32 KiB.
const ROWS_BYTES: u64 = 192 << 10;
/// Where the file begins: at a row.
const FILE_START_BYTES: u64 = 96 * ROWS_BYTES;

fn organisation(level: &str) -> Organisation {
    match level {
        "raid5" => Organisation::Raid5(Raid5Layout::LeftSymmetric),
        "raid10" => Organisation::Raid10(Raid10Layout::near(2)),
        _ => Organisation::Raid0(Raid0Layout::Original),
    }
}

/// CPU time by level: RAID-5 doubles it for each KiB; copies and parity cost more for each block (lab.md 8).
fn host(level: &str, block_bytes: u64) -> HostSpec {
    let base = HostSpec::ext2_1999(block_bytes);
    match level {
        "raid5" => HostSpec {
            // md's stripe cache joins delayed writes to whole rows; the engine has none yet, so the host does it.
            write_cluster_bytes: ROWS_BYTES,
            read_us_per_kib: base.read_us_per_kib * 2.0,
            write_us_per_kib: base.write_us_per_kib * 2.0,
            read_us_per_block: base.read_us_per_block * 1.5,
            write_us_per_block: base.write_us_per_block * 2.5,
            ..base
        },
        "raid10" => HostSpec {
            read_us_per_block: base.read_us_per_block * 1.5,
            write_us_per_block: base.write_us_per_block * 2.0,
            ..base
        },
        _ => base,
    }
}

struct Case {
    level: String,
    strip_bytes: u64,
    block_bytes: u64,
    depth: u32,
}

fn measure(case: &Case, seed: u64) -> Result<(f64, f64), LabError> {
    let world = World::new();
    let mut spec = preset::u2w_1999();
    spec.queue_depth = case.depth;
    if case.depth > 1 {
        spec.order = QueueOrder::Fifo;
    }
    let mut set = DiskSet::of(&DiskSpec::Mechanical(spec), 4);
    set.buses = vec![80e6, 40e6];
    set.bus_of = vec![Some(0), Some(0), Some(0), Some(1)];
    let disks = set.make(&world, seed, Mode::Timing)?;
    let members = disks.into_iter().map(Member::Disk).map(Some).collect();
    let array = ArraySpec {
        has_bitmap: false,
        balance: Policy::Nearest,
        ..ArraySpec::new(organisation(&case.level), case.strip_bytes)
    };
    let volume = world.run(build(
        Surroundings::of(&world),
        members,
        array,
        Mode::Timing,
    ))??;
    let target = Target::volume(&world, &volume).part(FILE_START_BYTES, FILE_BYTES)?;
    let file = HostFile::new(host(&case.level, case.block_bytes), target, world.spawner());
    world.run(async move {
        let mut rates = [0.0; 2];
        for (index, is_write) in [(0, true), (1, false)] {
            file.drop_cache();
            let started = file.now_ns();
            let mut at = 0;
            while at < FILE_BYTES {
                if is_write {
                    file.write(at, PIECE_BYTES).await?;
                } else {
                    file.read(at, PIECE_BYTES).await?;
                }
                at += PIECE_BYTES;
            }
            file.close().await?;
            let seconds = (file.now_ns() - started) as f64 / 1e9;
            rates[index] = FILE_BYTES as f64 / 1024.0 / seconds;
            file.drain().await;
        }
        Ok((rates[1], rates[0]))
    })?
}

/// The four tables.
pub(super) fn run(seed: u64) -> Result<Reproduction, LabError> {
    let mut all = Reproduction::default();
    for (group, csv) in [
        ("RAID-0", RAID0),
        ("RAID-0 with tagged queueing", TCQ),
        ("RAID-5", RAID5),
        ("RAID-10", RAID10),
    ] {
        for row in seed_rows(csv) {
            let case = Case {
                level: row.get("level").cloned().unwrap_or_default(),
                strip_bytes: number(&row, "strip_KiB") as u64 * 1024,
                block_bytes: number(&row, "fs_block_KiB") as u64 * 1024,
                depth: if group == "RAID-0 with tagged queueing" {
                    8
                } else {
                    1
                },
            };
            let (read, write) = measure(&case, seed)?;
            let is_fitted = case.level == "raid0" && case.strip_bytes == 4096 && case.depth == 1;
            for (what, column, ours) in
                [("read", "read_kBps", read), ("write", "write_kBps", write)]
            {
                all.cells.push(Cell {
                    table: "howto",
                    group,
                    name: format!(
                        "{group}, strip {} KiB, block {} KiB: {what}",
                        case.strip_bytes >> 10,
                        case.block_bytes >> 10
                    ),
                    published: number(&row, column),
                    ours,
                    unit: "KiB/s",
                    is_fitted,
                    seed,
                });
            }
        }
    }
    all.effects = effects(&all.cells, seed);
    Ok(all)
}

fn effects(cells: &[Cell], seed: u64) -> Vec<Effect> {
    let of = |name: &str| {
        let found = cells.iter().find(|cell| cell.name == name);
        found.map_or((f64::NAN, f64::NAN), |cell| (cell.published, cell.ours))
    };
    let ratio = |above: &str, below: &str| {
        let (above, below) = (of(above), of(below));
        (above.0 / below.0, above.1 / below.1)
    };
    let block = ratio(
        "RAID-0, strip 32 KiB, block 4 KiB: read",
        "RAID-0, strip 32 KiB, block 1 KiB: read",
    );
    let tagged = ratio(
        "RAID-0 with tagged queueing, strip 32 KiB, block 4 KiB: read",
        "RAID-0, strip 32 KiB, block 4 KiB: read",
    );
    let strip = ratio(
        "RAID-5, strip 32 KiB, block 4 KiB: read",
        "RAID-5, strip 8 KiB, block 4 KiB: read",
    );
    let effect = |name, ratio: (f64, f64), is_right, must_hold| Effect {
        table: "howto",
        name,
        published: format!("{:.2}", ratio.0),
        ours: format!("{:.2}", ratio.1),
        is_right,
        must_hold,
        seed,
    };
    vec![
        effect(
            "4 KiB over 1 KiB blocks, reads",
            block,
            (block.1 / block.0 - 1.0).abs() < 0.1,
            true,
        ),
        effect(
            "tagged queueing changes nothing",
            tagged,
            (tagged.1 - 1.0).abs() < 0.05,
            true,
        ),
        effect(
            "RAID-5: strips of 32 over 8 KiB, reads",
            strip,
            strip.1 > 1.1,
            false,
        ),
    ]
}
