//! bonnie with a file of 100 MB on Vinum volumes over four old disks on one bus: stripes of 1 KiB to 4 MiB, RAID-5.

use std::cell::RefCell;
use std::rc::Rc;

use plexum_disks::disk::mechanical_spec::DiskSpec;
use plexum_freebsd::gvinum::counters::PlexCounters;
use plexum_layout::{Organisation, Raid0Layout, Raid5Layout};

use super::{Cell, Effect, Reproduction, number, seed_rows};
use crate::array::{ArraySpec, DiskSet, Mode, Surroundings, build};
use crate::error::LabError;
use crate::host::{HostFile, HostSpec};
use crate::member::Member;
use crate::preset;
use crate::target::Target;
use crate::workload::bonnie::{Bonnie, BonnieFigures};
use crate::world::World;

const TABLE: &str =
    include_str!("../../../../fixtures/lab/seed-tables/c1_vinum_stripe_sweep_bonnie.csv");
const FILE_BYTES: u64 = 100 << 20;

const DISKS: u64 = 4;

/// The rows that are run: name, organisation, strip size. (s4m/17 is s4m/16 with other cylinder groups.)
fn rows() -> Vec<(&'static str, Option<(Organisation, u64)>)> {
    let striped = |kib: u64| Some((Organisation::Raid0(Raid0Layout::Original), kib << 10));
    vec![
        ("ufs", None),
        ("s1k", striped(1)),
        ("s8k", striped(8)),
        ("s64k", striped(64)),
        ("s256k", striped(256)),
        ("s512k", striped(512)),
        (
            "r512k",
            Some((Organisation::Raid5(Raid5Layout::LeftAsymmetric), 512 << 10)),
        ),
        ("s4m/16", striped(4096)),
    ]
}

fn bonnie(
    layout: Option<(Organisation, u64)>,
    seed: u64,
) -> Result<(BonnieFigures, PlexCounters), LabError> {
    let world = World::new();
    let spec = DiskSpec::Mechanical(preset::scsi_1989());
    let set = DiskSet::of(&spec, DISKS as usize).on_one_bus(preset::SCSI_1989_BUS_BYTES_PER_S);
    let disks = set.make(&world, seed, Mode::Timing)?;
    let target = match layout {
        None => Target::device(&world, &Member::Disk(disks[0].clone())),
        Some((organisation, strip_bytes)) => {
            let members = disks.into_iter().map(Member::Disk).map(Some).collect();
            let array = ArraySpec {
                has_bitmap: false,
                ..ArraySpec::new(organisation, strip_bytes)
            };
            let volume = world.run(build(
                Surroundings::of(&world),
                members,
                array,
                Mode::Timing,
            ))??;
            let target = Target::volume(&world, &volume);
            // Vinum locked a stripe for each write and joined none.
            match organisation {
                Organisation::Raid5(_) => target.with_row_turns(strip_bytes * (DISKS - 1)),
                _ => target,
            }
        }
    };
    let counters = Rc::<RefCell<PlexCounters>>::default();
    let file = target.with_plex_counters(&counters);
    let file = file.part(16 << 20, FILE_BYTES)?;
    let file = HostFile::new(HostSpec::ufs_1999(), file, world.spawner());
    let spawner = world.spawner();
    let workload = Bonnie {
        seed,
        ..Bonnie::default()
    };
    let figures = world.run(async move { workload.run(&spawner, &file).await })??;
    let counters = *counters.borrow();
    Ok((figures, counters))
}

/// Vinum's own counters of the plex over the whole run: (column of the table, ours).
fn plex_cells(counters: &PlexCounters) -> [(&'static str, u64); 4] {
    [
        ("plex_writes", counters.transfers.writes),
        ("plex_reads", counters.transfers.reads),
        ("multiblock", counters.multiblock),
        ("multistripe", counters.multistripe),
    ]
}

/// The table.
pub(super) fn run(seed: u64) -> Result<Reproduction, LabError> {
    let mut all = Reproduction::default();
    let published = seed_rows(TABLE);
    let mut figures = Vec::new();
    for (name, layout) in rows() {
        let (ours, counters) = bonnie(layout, seed)?;
        let row = published
            .iter()
            .find(|row| row.get("machine").map(String::as_str) == Some(name))
            .expect("the table has every row that is run");
        for (group, column, value, unit) in [
            (
                "block write",
                "block_write_KBps",
                ours.block_write_kib_per_s,
                "KiB/s",
            ),
            ("rewrite", "rewrite_KBps", ours.rewrite_kib_per_s, "KiB/s"),
            (
                "block read",
                "block_read_KBps",
                ours.block_read_kib_per_s,
                "KiB/s",
            ),
            ("seeks", "seeks_per_s", ours.seeks_per_s, "1/s"),
        ] {
            all.cells.push(Cell {
                table: "vinum",
                group,
                name: format!("{name}: {group}"),
                published: number(row, column),
                ours: value,
                unit,
                is_fitted: false,
                seed,
            });
        }
        for (column, count) in plex_cells(&counters) {
            let published = number(row, column);
            if published > 0.0 {
                all.cells.push(Cell {
                    table: "vinum",
                    group: "plex counters",
                    name: format!("{name}: {}", column.replace('_', " ")),
                    published,
                    ours: count as f64,
                    unit: "",
                    is_fitted: false,
                    seed,
                });
            }
        }
        figures.push((name, ours));
    }
    all.effects = effects(&figures, seed);
    Ok(all)
}

fn effects(figures: &[(&str, BonnieFigures)], seed: u64) -> Vec<Effect> {
    let of = |wanted: &str| {
        let found = figures.iter().find(|(name, _)| *name == wanted);
        found.map_or_else(BonnieFigures::default, |(_, figures)| *figures)
    };
    let read = |name: &str| of(name).block_read_kib_per_s;
    let write = |name: &str| of(name).block_write_kib_per_s;
    let effect = |name, published: &str, ours: String, is_right| Effect {
        table: "vinum",
        name,
        published: published.to_owned(),
        ours,
        is_right,
        must_hold: true,
        seed,
    };
    let best = figures
        .iter()
        .map(|(_, figures)| figures.block_read_kib_per_s)
        .fold(0.0f64, f64::max);
    vec![
        effect(
            "stripes: reads peak at 64 KiB",
            "1827 KiB/s",
            format!("{:.0} of at most {best:.0} KiB/s", read("s64k")),
            read("s64k") >= best,
        ),
        effect(
            "stripes: reads of 4 MiB stripes are those of a single disk",
            "1.02",
            format!("{:.2}", read("s4m/16") / read("ufs")),
            (0.8..1.25).contains(&(read("s4m/16") / read("ufs"))),
        ),
        effect(
            "stripes: writes flat from 64 to 512 KiB, lower at 4 MiB",
            "1581 1629 1621 1336",
            format!(
                "{:.0} {:.0} {:.0} {:.0}",
                write("s64k"),
                write("s256k"),
                write("s512k"),
                write("s4m/16")
            ),
            (write("s512k") / write("s64k") - 1.0).abs() < 0.2 && write("s4m/16") < write("s512k"),
        ),
        effect(
            "RAID-5 writes over striped writes",
            "0.24",
            format!("{:.2}", write("r512k") / write("s512k")),
            (0.15..0.4).contains(&(write("r512k") / write("s512k"))),
        ),
        effect(
            "1 KiB stripes are terrible",
            "150 and 230 KiB/s",
            format!("{:.0} and {:.0} KiB/s", write("s1k"), read("s1k")),
            write("s1k") < write("s64k") / 4.0 && read("s1k") < read("s64k") / 4.0,
        ),
    ]
}
