//! What each layer of the engine adds to a request: the same load on ways through it that differ by one layer.
//!
//! Invariants:
//! - nothing is taken out of the engine for this: each way is one that requests take, a drive's reads of metadata
//!   included;
//! - a figure is the difference of two ways in the same round. They are asked by turns, in short slices, up and down
//!   again: what the machine does to one, it does to the other, and what it does in the course of the round cancels
//!   out;
//! - all members are of a type as the one that is served, and all ways have the same pool of buffers.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::boxed::BoxedDevice;
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::ranges::RangeSet;
use plexum_engine::balance::Policy;
use plexum_engine::drive::Drive;
use plexum_engine::intent::regions::Regions;
use plexum_engine::metadata::PlainMetadata;
use plexum_engine::state::{MemberId, MemberRecord, Standing};
use plexum_engine::volume::{DrivePart, Volume, VolumeOptions, VolumeParts};
use plexum_freebsd::gvinum::tally::Tallies;
use plexum_freebsd::stacked::{PlexMember, Stackable};
use plexum_layout::{Geometry, GeometrySpec, Organisation};
use plexum_runtime::clock::RealClock;
use plexum_runtime::{Handle, Runtime};

use crate::compare::{Probe, Reading, Role};
use crate::device::BenchDevice;
use crate::load::Figures;
use crate::load::{PATTERNS, Pattern, Target, run};
use crate::{BenchError, BenchOptions};

/// Bytes of each member, and of each volume: all ways are asked for the same addresses.
const SPAN_BYTES: u64 = 64 << 20;

/// How often each way is asked in a round, up and down.
const CLIMBS: u32 = 5;

/// In front of each metric.
pub(crate) const ADDED: &str = "each layer added: ";

/// A member as one is served: one of several kinds, of which some are behind a box.
#[derive(Clone)]
enum Member {
    Plain(Rc<BenchDevice>),
    Stacked(BoxedDevice),
}

impl From<BoxedDevice> for Member {
    fn from(device: BoxedDevice) -> Self {
        Member::Stacked(device)
    }
}

impl Device for Member {
    fn info(&self) -> DeviceInfo {
        match self {
            Member::Plain(device) => device.info(),
            Member::Stacked(device) => device.info(),
        }
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        match self {
            Member::Plain(device) => (**device).read(offset_bytes, buf).await,
            Member::Stacked(device) => device.read(offset_bytes, buf).await,
        }
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        match self {
            Member::Plain(device) => (**device).write(offset_bytes, data, fua).await,
            Member::Stacked(device) => device.write(offset_bytes, data, fua).await,
        }
    }
    async fn flush(&self) -> Result<(), IoError> {
        match self {
            Member::Plain(device) => device.flush().await,
            Member::Stacked(device) => device.flush().await,
        }
    }
}

type Over = Volume<Member, RealClock>;
type Asked = Pin<Box<dyn Future<Output = Result<Figures, IoError>>>>;

/// A way through the engine, and the name of the layer that it has more than the one before it.
struct Way {
    added: &'static str,
    ask: Box<dyn Fn(Pattern, Duration) -> Asked>,
}

impl Way {
    fn new(added: &'static str, handle: &Handle, target: impl Target + Clone + 'static) -> Self {
        let handle = handle.clone();
        let ask = move |pattern, time| -> Asked {
            let (handle, target) = (handle.clone(), target.clone());
            Box::pin(async move { run(&handle, &target, SPAN_BYTES, pattern, time).await })
        };
        Self {
            added,
            ask: Box::new(ask),
        }
    }
}

/// The same load on each of some ways, the first one without the layers that the others add.
struct Ladder {
    ways: fn(&Handle) -> Result<Vec<Way>, BenchError>,
    pattern: Pattern,
}

/// All of them: what a volume of one member is made of, for reads and for writes, and what reads of a mirror may have
/// besides.
const LADDERS: [Ladder; 3] = [
    Ladder {
        ways: volume_by_layers,
        pattern: PATTERNS[0],
    },
    Ladder {
        ways: volume_by_layers,
        pattern: PATTERNS[1],
    },
    Ladder {
        ways: mirror_that_reads_ahead,
        pattern: PATTERNS[0],
    },
];

/// A probe for each ladder.
pub(crate) fn probes(options: &BenchOptions) -> impl Iterator<Item = Probe<'_>> {
    LADDERS.iter().map(move |ladder| Probe {
        name: "plexum".to_owned(),
        role: Role::Plexum,
        task: format!("{ADDED}4K {}", direction(ladder.pattern)),
        measure: Box::new(move || once(options, ladder)),
    })
}

fn direction(pattern: Pattern) -> &'static str {
    if pattern.is_write { "write" } else { "read" }
}

/// One round of a ladder: what each way costs more than the one before it, and what it costs at all.
fn once(options: &BenchOptions, ladder: &Ladder) -> Result<Vec<Reading>, BenchError> {
    let told = |error: &dyn std::fmt::Display| BenchError(format!("{ADDED}{error}"));
    let mut runtime = Runtime::new(options.io).map_err(|error| told(&error))?;
    let handle = runtime.handle();
    let time = Duration::from_millis(options.millis) / (2 * CLIMBS);
    runtime.block_on(async {
        let ways = (ladder.ways)(&handle)?;
        let mut sums_us = vec![0.0; ways.len()];
        for _ in 0..CLIMBS {
            for at in (0..ways.len()).chain((0..ways.len()).rev()) {
                let figures = (ways[at].ask)(ladder.pattern, time).await;
                sums_us[at] += figures.map_err(|error| told(&error))?.cpu_us_per_io;
            }
        }
        let costs_us = sums_us.iter().map(|sum| sum / f64::from(2 * CLIMBS));
        Ok(readings(
            &ways.iter().map(|way| way.added).collect::<Vec<_>>(),
            &costs_us.collect::<Vec<_>>(),
            direction(ladder.pattern),
        ))
    })
}

/// The costs of ways as what the last layer of each adds, and as they are.
fn readings(added: &[&str], costs_us: &[f64], direction: &str) -> Vec<Reading> {
    let whole = added.iter().zip(costs_us).map(|(added, cost_us)| {
        let metric = format!("all layers up to: {added}, 4K {direction}");
        (metric, "us CPU", *cost_us)
    });
    let layers = added.iter().zip(costs_us).skip(1);
    let by_layer = layers.zip(costs_us).map(|((added, cost_us), below_us)| {
        let metric = format!("{ADDED}{added}, 4K {direction}");
        (metric, "us CPU", cost_us - below_us)
    });
    whole.chain(by_layer).collect()
}

/// A member alone, then what stands above it in a volume, layer by layer, then a volume over that volume.
fn volume_by_layers(handle: &Handle) -> Result<Vec<Way>, BenchError> {
    let pool = BufPool::new(64 << 20);
    let volume = |device| volume(handle, &pool, Organisation::Linear, vec![device]);
    let drives = vec![(0, member())];
    let plex = Rc::new(PlexMember {
        name: "plex".to_owned(),
        volume: volume(drives[0].1.clone())?,
        drives,
        tally: Tallies::default().plex("plex", [("subdisk", "drive")].into_iter()),
        labels: Box::new(Vec::new),
    });
    let over = Member::stacked(&plex);
    let bare = Bare(Rc::new(member()), pool.clone());
    let uncounted = Uncounted(drive(member()), pool.clone());
    let counted = Counted(drive(member()), pool.clone(), handle.clock());
    Ok(vec![
        Way::new("member", handle, bare),
        Way::new("deadline and retries of a drive", handle, uncounted),
        Way::new("statistics of a drive", handle, counted),
        Way::new(
            "plex, a volume of one member",
            handle,
            Rc::new(volume(member())?),
        ),
        Way::new(
            "counters of a plex that is a member",
            handle,
            Bare(Rc::new(over.clone()), pool.clone()),
        ),
        Way::new(
            "statistics of a drive over a plex",
            handle,
            Counted(drive(over.clone()), pool.clone(), handle.clock()),
        ),
        Way::new("volume over a plex", handle, Rc::new(volume(over)?)),
    ])
}

/// A mirror whose policy learns, and one that also reads ahead of streams and keeps that.
fn mirror_that_reads_ahead(handle: &Handle) -> Result<Vec<Way>, BenchError> {
    let pool = BufPool::new(64 << 20);
    let mirror = |reads_ahead| {
        let members = vec![member(), member()];
        let volume = volume(handle, &pool, Organisation::Raid1, members)?;
        volume.set_balance(Policy::Adaptive { reads_ahead });
        Ok::<_, BenchError>(Rc::new(volume))
    };
    Ok(vec![
        Way::new("mirror of 2, adaptive", handle, mirror(false)?),
        Way::new("cache, of what is read ahead", handle, mirror(true)?),
    ])
}

/// A member that costs nothing, as the engine serves it.
fn member() -> Member {
    Member::Plain(Rc::new(BenchDevice::null(0, SPAN_BYTES)))
}

/// A volume over members that all agree, with no metadata.
fn volume(
    handle: &Handle,
    pool: &BufPool,
    organisation: Organisation,
    devices: Vec<Member>,
) -> Result<Over, BenchError> {
    let told = |error: &dyn std::fmt::Display| BenchError(format!("{ADDED}{error}"));
    let spec = GeometrySpec {
        organisation,
        member_count: u16::try_from(devices.len()).map_err(|error| told(&error))?,
        strip_bytes: 0,
        component_bytes: SPAN_BYTES,
        member_sizes_bytes: Vec::new(),
    };
    let geometry = Geometry::new(&spec).map_err(|error| told(&error))?;
    let members = (0..).zip(devices).map(|(slot, device)| DrivePart {
        name: format!("member {slot}"),
        data: 0..SPAN_BYTES,
        device: Some(device),
        record: MemberRecord {
            slot: Some(slot),
            standing: Standing::Active,
            is_replacement: false,
            is_write_mostly: false,
        },
        bad: RangeSet::new(),
    });
    Ok(Volume::new(VolumeParts {
        name: "volume".to_owned(),
        regions: Regions::without_bitmap(&geometry, 512, None),
        geometry,
        clock: handle.clock(),
        pool: pool.clone(),
        members: members.collect(),
        metadata: Box::new(PlainMetadata::new("bench")),
        event_count: 0,
        is_uneven: false,
        log: None,
        resync_start_bytes: None,
        options: VolumeOptions::default(),
    }))
}

/// A drive over a member.
fn drive(over: Member) -> Rc<Drive<Member>> {
    let (id, name) = (MemberId(0), "drive".to_owned());
    Rc::new(Drive::new(id, name, over, 0..SPAN_BYTES, RangeSet::new()))
}

/// A member, with nothing between it and the load but a buffer.
#[derive(Clone)]
struct Bare(Rc<Member>, BufPool);

impl Target for Bare {
    async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<(), IoError> {
        let buf = self.1.take(length_bytes);
        self.0.read(offset_bytes, buf).await.map(drop)
    }
    async fn write(&self, offset_bytes: u64, data: Buf) -> Result<(), IoError> {
        self.0.write(offset_bytes, data, Fua::No).await
    }
}

/// A member's drive, asked as it is for metadata: with slots and retries, and nothing is counted.
#[derive(Clone)]
struct Uncounted(Rc<Drive<Member>>, BufPool);

impl Target for Uncounted {
    async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<(), IoError> {
        let read = self.0.read_device(&self.1, offset_bytes, length_bytes);
        read.await.map(drop)
    }
    async fn write(&self, offset_bytes: u64, data: Buf) -> Result<(), IoError> {
        self.0.write_device(offset_bytes, data, Fua::No).await
    }
}

/// A member's drive, asked for data: requests, bytes, busy time and how long each took are counted.
#[derive(Clone)]
struct Counted(Rc<Drive<Member>>, BufPool, RealClock);

impl Target for Counted {
    async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<(), IoError> {
        let Self(drive, pool, clock) = self;
        let read = drive.read(pool, clock, offset_bytes, length_bytes);
        read.await.map(drop)
    }
    async fn write(&self, offset_bytes: u64, data: Buf) -> Result<(), IoError> {
        let Self(drive, _, clock) = self;
        drive.write(clock, offset_bytes, &data, Fua::No).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plexum_block::clock::Clock;
    use plexum_runtime::IoChoice;

    use super::*;

    fn options() -> BenchOptions {
        BenchOptions {
            groups: Vec::new(),
            rounds: 1,
            millis: 20,
            io: IoChoice::Auto,
            folder: None,
            disk_folder: None,
            program: "plexum".into(),
        }
    }

    #[test]
    fn a_layer_costs_what_its_way_costs_more_than_the_way_below() {
        let found = readings(&["member", "drive", "volume"], &[1.0, 1.5, 4.0], "read");
        let added: Vec<_> = found
            .iter()
            .filter(|(metric, ..)| metric.starts_with(ADDED))
            .collect();
        let metric = |layer| format!("{ADDED}{layer}, 4K read");
        assert_eq!(
            added,
            [
                &(metric("drive"), "us CPU", 0.5),
                &(metric("volume"), "us CPU", 2.5)
            ]
        );
    }

    #[test]
    fn every_layer_that_is_measured_has_a_goal_and_every_goal_is_measured() {
        let options = options();
        let measured: BTreeSet<String> = LADDERS
            .iter()
            .flat_map(|ladder| once(&options, ladder).unwrap())
            .map(|(metric, ..)| metric)
            .filter(|metric| metric.starts_with(ADDED))
            .collect();
        let goals: BTreeSet<String> = crate::goals::GOALS
            .iter()
            .filter(|goal| goal.metric.starts_with(ADDED))
            .map(|goal| goal.metric.to_owned())
            .collect();
        assert_eq!(measured, goals);
    }

    #[test]
    fn each_way_counts_what_it_says_and_no_more() {
        let mut runtime = Runtime::new(IoChoice::Auto).unwrap();
        let handle = runtime.handle();
        runtime.block_on(async {
            let (pool, clock) = (BufPool::new(1 << 20), handle.clock());
            let drive = drive(member());
            let counts = || {
                let counters = drive.counters(clock.now());
                (counters.reads, counters.writes)
            };
            let data = pool.take_zeroed(4096).freeze();
            let uncounted = Uncounted(Rc::clone(&drive), pool.clone());
            uncounted.read(4096, 4096).await.unwrap();
            uncounted.write(4096, data.clone()).await.unwrap();
            assert_eq!(counts(), (0, 0));
            let counted = Counted(Rc::clone(&drive), pool, handle.clock());
            counted.read(4096, 4096).await.unwrap();
            counted.write(4096, data).await.unwrap();
            assert_eq!(counts(), (1, 1));
        });
    }
}
