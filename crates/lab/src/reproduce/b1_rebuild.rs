//! gmirror: four balance algorithms while a disk is rebuilt from three others, and one 16 KiB read at a time.
//!
//! The mirror is the engine's (three members, its balance policies); the copying loop is gmirror's: two requests of
//! 128 KiB in flight, each read *through the mirror*, then written to the new disk (lab.md 4).

use std::cell::Cell as Counter;
use std::rc::Rc;

use plexum_block::device::Fua;
use plexum_disks::disk::mechanical_spec::DiskSpec;
use plexum_disks::disk::timed::TimedDisk;
use plexum_engine::balance::Policy;
use plexum_layout::Organisation;

use super::{Cell, Effect, Reproduction, number, seed_rows};
use crate::array::{ArraySpec, DiskSet, Mode, Surroundings, build};
use crate::error::LabError;
use crate::iostat::{MemberRow, Sampler, freebsd, reasons};
use crate::member::{Member, SimVolume};
use crate::preset;
use crate::target::Target;
use crate::workload::{Process, dd, run_processes};
use crate::world::World;

const REBUILD: &str =
    include_str!("../../../../fixtures/lab/seed-tables/b1_gmirror_rebuild_iostat.csv");
/// gmirror's default for requests in flight.
const SYNC_REQUESTS: usize = 2;
/// gmirror's size of one.
const SYNC_BYTES: u64 = 128 << 10;
/// Where on the disk the rebuild was (lab.md 8: fitted).
const POSITION: f64 = 0.55;
/// Virtual time that is measured, after a warm-up. Disks of nearly equal speed beat against each other within tens of
/// seconds, and a rate depends on where in the beat it is taken: twenty minutes see many of them, twenty seconds one.
const SECONDS: u64 = 1200;
const WARM_UP_SECONDS: u64 = 2;
/// Range of the random reads, in bytes (lab.md 9: needs short seeks).
const RANDOM_RANGE_BYTES: u64 = 512 << 20;
const RANDOM_READS: u64 = 1500;

/// The four algorithms by their names in the table; `load` is the one of 2009.
fn policies() -> [(&'static str, Policy); 4] {
    [
        ("split", Policy::Split { slice_bytes: 4096 }),
        ("round-robin", Policy::RoundRobin),
        ("load", Policy::Load7),
        ("prefer", Policy::Prefer),
    ]
}

struct Mirror {
    volume: Rc<SimVolume>,
    sources: Vec<TimedDisk>,
    target: TimedDisk,
}

fn mirror(world: &World, balance: Policy, count: usize, seed: u64) -> Result<Mirror, LabError> {
    let spec = DiskSpec::Mechanical(preset::sata_7200_750());
    let mut disks = DiskSet::of(&spec, count + 1).make(world, seed, Mode::Timing)?;
    let target = disks.pop().expect("one more was made");
    let members = disks.iter().cloned().map(Member::Disk).map(Some).collect();
    let array = ArraySpec {
        balance,
        ..ArraySpec::new(Organisation::Raid1, 0)
    };
    let volume = world.run(build(Surroundings::of(world), members, array, Mode::Timing))??;
    Ok(Mirror {
        volume,
        sources: disks,
        target,
    })
}

/// What one algorithm gave.
struct Rebuild {
    rate_mb_per_s: f64,
    sources: Vec<MemberRow>,
    target: MemberRow,
}

fn rebuild_with(balance: Policy, seed: u64) -> Result<Rebuild, LabError> {
    let world = World::new();
    let mirror = mirror(&world, balance, 3, seed)?;
    let source = Target::volume(&world, &mirror.volume);
    let copy = Target::device(&world, &Member::Disk(mirror.target.clone()));
    let start = (source.size_bytes() as f64 * POSITION) as u64 / SYNC_BYTES * SYNC_BYTES;
    let next = Rc::new(Counter::new(start));
    let end_ns = (WARM_UP_SECONDS + SECONDS) * 1_000_000_000 + source.now_ns();
    for _ in 0..SYNC_REQUESTS {
        let (source, copy, next) = (source.clone(), copy.clone(), Rc::clone(&next));
        drop(world.spawn(async move {
            while source.now_ns() < end_ns {
                let at = next.replace(next.get() + SYNC_BYTES);
                source.read(at, SYNC_BYTES).await?;
                copy.write(at, SYNC_BYTES, Fua::No).await?;
            }
            Ok::<(), LabError>(())
        }));
    }
    let mut disks: Vec<(String, TimedDisk)> = ["ad14", "ad16", "ad12"]
        .iter()
        .zip(&mirror.sources)
        .map(|(name, disk)| ((*name).to_owned(), disk.clone()))
        .collect();
    disks.push(("ad18".to_owned(), mirror.target.clone()));
    let clock = world.clock().clone();
    let rows = world.run(async move {
        use plexum_block::clock::Clock;
        clock
            .sleep(std::time::Duration::from_secs(WARM_UP_SECONDS))
            .await;
        let mut sampler = Sampler::start(&disks, clock.now_ns());
        clock.sleep(std::time::Duration::from_secs(SECONDS)).await;
        sampler.sample(clock.now_ns())
    })?;
    let (target, sources) = rows.split_last().expect("four disks were sampled");
    Ok(Rebuild {
        rate_mb_per_s: target.written_kib_per_s * 1024.0 / 1e6,
        sources: sources.to_vec(),
        target: target.clone(),
    })
}

/// Seven figures that do not depend on which of three equal disks is which.
fn aggregates(sources: &[MemberRow], target: &MemberRow) -> [(&'static str, &'static str, f64); 7] {
    let reads: f64 = sources.iter().map(|row| row.reads_per_s).sum();
    let kib: f64 = sources.iter().map(|row| row.read_kib_per_s).sum();
    let weighted: f64 = sources
        .iter()
        .map(|row| row.service_ms * row.reads_per_s)
        .sum();
    let busy: f64 = sources.iter().map(|row| row.busy_percent).sum();
    [
        ("source reads", "1/s", reads),
        ("source rate", "KiB/s", kib),
        ("source svc_t", "ms", weighted / reads.max(1e-9)),
        ("source %b, sum", "%", busy),
        ("target writes", "1/s", target.writes_per_s),
        ("target svc_t", "ms", target.service_ms),
        ("target %b", "%", target.busy_percent),
    ]
}

fn published(balance: &str) -> (Vec<MemberRow>, MemberRow) {
    let mut sources = Vec::new();
    let mut target = None;
    for row in seed_rows(REBUILD) {
        if row.get("balance").map(String::as_str) != Some(balance) {
            continue;
        }
        let mut member = crate::iostat::row("", &Default::default(), 0, 1);
        member.reads_per_s = number(&row, "r_per_s");
        member.writes_per_s = number(&row, "w_per_s");
        member.read_kib_per_s = number(&row, "kr_per_s");
        member.written_kib_per_s = number(&row, "kw_per_s");
        member.service_ms = number(&row, "svc_t_ms");
        member.busy_percent = number(&row, "busy_pct");
        if row.get("role").map(String::as_str) == Some("source") {
            sources.push(member);
        } else {
            target = Some(member);
        }
    }
    (sources, target.expect("the table has a target row"))
}

/// The rebuild under the four algorithms.
pub(super) fn rebuild(seed: u64) -> Result<Reproduction, LabError> {
    let mut all = Reproduction::default();
    let mut rates = Vec::new();
    for (name, policy) in policies() {
        let ours = rebuild_with(policy, seed)?;
        let (sources, target) = published(name);
        let rate = target.written_kib_per_s * 1024.0 / 1e6;
        all.cells.push(Cell {
            table: "gmirror-rebuild",
            group: "rate",
            name: format!("{name}: rebuild rate"),
            // The table's K are 1024 bytes; the article's MB are a thousand of them.
            published: rate,
            ours: ours.rate_mb_per_s,
            unit: "MB/s",
            is_fitted: name == "prefer",
            seed,
        });
        let theirs = aggregates(&sources, &target);
        for (ours, theirs) in aggregates(&ours.sources, &ours.target).iter().zip(theirs) {
            all.cells.push(Cell {
                table: "gmirror-rebuild",
                group: "iostat",
                name: format!("{name}: {}", theirs.0),
                published: theirs.2,
                ours: ours.2,
                unit: theirs.1,
                // The cost of a buffered write was chosen by these two (`preset::sata_7200_750`).
                is_fitted: name == "round-robin"
                    && ["target svc_t", "target %b"].contains(&theirs.0),
                seed,
            });
        }
        let mut rows = ours.sources.clone();
        rows.push(ours.target.clone());
        all.notes.push(format!(
            "balance {name}\n{}{}",
            freebsd(&rows),
            reasons(&rows)
        ));
        rates.push((name, ours.rate_mb_per_s));
    }
    all.effects = rebuild_effects(&rates, seed);
    Ok(all)
}

fn rebuild_effects(rates: &[(&str, f64)], seed: u64) -> Vec<Effect> {
    let of = |wanted: &str| {
        let found = rates.iter().find(|(name, _)| *name == wanted);
        found.map_or(0.0, |(_, rate)| *rate)
    };
    let (split, turn, load, prefer) = (of("split"), of("round-robin"), of("load"), of("prefer"));
    let effect = |name, published: &str, ours: String, is_right, must_hold| Effect {
        table: "gmirror-rebuild",
        name,
        published: published.to_owned(),
        ours,
        is_right,
        must_hold,
        seed,
    };
    vec![
        effect(
            "prefer and load are faster than split and round-robin",
            "61.9 62.5 45.2 45.5 MB/s",
            format!("{prefer:.1} {load:.1} {split:.1} {turn:.1} MB/s"),
            prefer.min(load) > split.max(turn),
            true,
        ),
        effect(
            "load over round-robin",
            "1.38",
            format!("{:.2}", load / turn),
            (1.15..1.6).contains(&(load / turn)),
            true,
        ),
        effect(
            "split within 10 %",
            "45.2 MB/s",
            format!("{split:.1} MB/s"),
            (split / 45.15 - 1.0).abs() <= 0.1,
            true,
        ),
    ]
}

fn random_with(balance: Policy, seed: u64) -> Result<f64, LabError> {
    let world = World::new();
    let mirror = mirror(&world, balance, 4, seed)?;
    let target = Target::volume(&world, &mirror.volume);
    let reads = dd::random(16 << 10, RANDOM_READS, RANDOM_RANGE_BYTES, seed)?;
    let spawner = world.spawner();
    let outcome = world.run(async move {
        run_processes(&spawner, &target, vec![Process::single(reads)], None).await
    })??;
    Ok(outcome.requests_per_s())
}

/// One 16 KiB read at a time, each by a new process.
pub(super) fn random_reads(seed: u64) -> Result<Reproduction, LabError> {
    let mut all = Reproduction::default();
    let mut rates = Vec::new();
    for (name, policy) in policies() {
        let ours = random_with(policy, seed)?;
        rates.push((name, ours));
        all.cells.push(Cell {
            table: "random-read",
            group: "random 16 KiB",
            name: format!("{name}: reads a second"),
            // The lowest and the highest are known, and that prefer was the highest.
            published: if name == "prefer" { 140.3 } else { 133.8 },
            ours,
            unit: "1/s",
            is_fitted: false,
            seed,
        });
    }
    let whole = rates.iter().filter(|(name, _)| *name != "split");
    let (low, high) = whole.fold((f64::INFINITY, 0.0f64), |(low, high), (_, rate)| {
        (low.min(*rate), high.max(*rate))
    });
    all.effects.push(Effect {
        table: "random-read",
        name: "load, round-robin and prefer are alike",
        published: "133.8 to 140.3 /s".to_owned(),
        ours: format!("{low:.1} to {high:.1} /s"),
        is_right: high / low < 1.08,
        must_hold: true,
        seed,
    });
    Ok(all)
}
