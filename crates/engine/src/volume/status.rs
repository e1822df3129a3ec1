//! What a volume says about itself.

use crate::balance::Learned;
use crate::drive::DriveCounters;
use crate::intent::log::LogStatus;
use crate::latency::{Comparison, Histogram, Latency, compare};
use crate::state::{ArrayState, MemberId, Standing};
use crate::upkeep::JobStatus;
use crate::volume::Volume;
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, FuaWay};

/// One member as status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Identity.
    pub id: MemberId,
    /// Path or URI; `None` for one that is not there.
    pub name: Option<String>,
    /// Slot.
    pub slot: Option<u16>,
    /// Standing.
    pub standing: Standing,
    /// Copies the active member of its slot.
    pub is_replacement: bool,
    /// Read only when nobody else can.
    pub is_write_mostly: bool,
    /// Bytes that are valid, while it is being filled.
    pub valid_bytes: Option<u64>,
    /// Length of its data area.
    pub data_size_bytes: u64,
    /// Size of its device; 0 for one that is not there.
    pub device_bytes: u64,
    /// Bytes on its bad-block list.
    pub bad_bytes: u64,
    /// The ranges on its bad-block list, in bytes of its data area, ascending.
    pub bad_ranges: Vec<std::ops::Range<u64>>,
    /// What it has done.
    pub counters: DriveCounters,
    /// I/Os under way.
    pub in_flight: u32,
    /// How long reads and writes took lately.
    pub latencies: (Latency, Latency),
    /// How often reads and writes took how long lately.
    pub histograms: (Histogram, Histogram),
    /// How it compares with the other active members; `None` while too little is known.
    pub comparison: Option<Comparison>,
    /// It timed out, and requests on it have not ended: it cannot come back yet (W9).
    pub is_draining: bool,
    /// What the balance policy `adaptive` has learned of it.
    pub learned: Option<Learned>,
    /// How a durable write on it becomes so; `None` for one that is not there.
    pub fua_way: Option<FuaWay>,
    /// It was lost when the volume froze or later; its standing is what the superblocks say of it.
    pub is_lost: bool,
    /// Writes that it had no space for.
    pub refused_writes: u64,
    /// When the last one of these was.
    pub refused_at: Option<Moment>,
}

/// A volume as status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// When this was so.
    pub moment: Moment,
    /// Its name.
    pub name: String,
    /// Format on the members: `md 1.2`.
    pub format: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Slots without an active member.
    pub lost_slots: Vec<u16>,
    /// Further members that may be lost, any, without losing the volume.
    pub losses_left: usize,
    /// More was lost than it survives.
    pub is_frozen: bool,
    /// Superblocks say dirty.
    pub is_dirty: bool,
    /// Nothing may be written.
    pub is_read_only: bool,
    /// Event count.
    pub event_count: u64,
    /// All members ever known, removed ones left out.
    pub members: Vec<MemberStatus>,
    /// What runs.
    pub job: Option<JobStatus>,
    /// Regions that may be inconsistent, and all regions.
    pub doubtful_regions: (usize, usize),
    /// Regions whose bit is set: they may differ after a crash.
    pub marked_regions: usize,
    /// Bytes of one region, where there is a bitmap.
    pub bitmap_region_bytes: Option<u64>,
    /// Whether md's partial parity log is written.
    pub has_ppl: bool,
    /// The stripe log, where there is one.
    pub log: Option<LogStatus>,
    /// Balance policy.
    pub balance: String,
    /// Requests under way that write.
    pub writes_in_flight: u64,
}

impl<D: Device, C: Clock> Volume<D, C> {
    fn member_statuses(&self, state: &ArrayState, now: Moment) -> Vec<MemberStatus> {
        let fillings = self.array.fillings();
        let lost = self.array.lost_when_frozen();
        let members = state
            .members
            .iter()
            .enumerate()
            .filter(|(_, record)| record.standing != Standing::Removed);
        let members = members.map(|(index, record)| {
            let id = MemberId(u16::try_from(index).expect("members are few"));
            let drive = self.array.drive(id);
            MemberStatus {
                id,
                name: drive.as_ref().map(|drive| drive.name.clone()),
                slot: record.slot,
                standing: record.standing,
                is_replacement: record.is_replacement,
                is_write_mostly: record.is_write_mostly,
                valid_bytes: fillings
                    .iter()
                    .find(|filling| filling.drive.id == id)
                    .map(|filling| filling.valid_below_bytes.get()),
                data_size_bytes: drive.as_ref().map_or(0, |drive| drive.data_size_bytes),
                device_bytes: drive.as_ref().map_or(0, |drive| drive.info().size_bytes),
                bad_bytes: drive.as_ref().map_or(0, |drive| {
                    let bad = drive.bad_ranges();
                    bad.iter().map(|range| range.end - range.start).sum()
                }),
                bad_ranges: drive
                    .as_ref()
                    .map_or_else(Vec::new, |drive| drive.bad_ranges().iter().collect()),
                counters: drive
                    .as_ref()
                    .map(|drive| {
                        let mut counters = drive.counters(now);
                        counters.add(&self.counters_of_shards(drive.id));
                        counters
                    })
                    .unwrap_or_default(),
                in_flight: drive.as_ref().map_or(0, |drive| drive.in_flight()),
                latencies: drive
                    .as_ref()
                    .map(|drive| drive.latencies())
                    .unwrap_or_default(),
                histograms: drive
                    .as_ref()
                    .map(|drive| drive.histograms())
                    .unwrap_or_default(),
                comparison: None,
                is_draining: drive.as_ref().is_some_and(|drive| drive.is_draining()),
                learned: match record.slot {
                    Some(slot) if record.standing == Standing::Active => {
                        self.copies.learned(usize::from(slot))
                    }
                    _ => None,
                },
                fua_way: drive.as_ref().map(|drive| drive.fua_way()),
                is_lost: lost.contains(&id),
                refused_writes: drive.as_ref().map_or(0, |drive| drive.refusals.seen().0),
                refused_at: drive.as_ref().and_then(|drive| drive.refusals.seen().1),
            }
        });
        let mut members: Vec<MemberStatus> = members.collect();
        if !self.upkeep.book().job().is_some_and(|job| job.is_uneven()) {
            compare_peers(&mut members);
        }
        members
    }

    /// A snapshot for status, events and tests.
    pub fn status(&self) -> VolumeStatus {
        let state = self.array.state();
        let mut lost = state.lost_slots();
        let gone = self.array.lost_when_frozen();
        for slot in gone.iter().filter_map(|id| state.record(*id).slot) {
            lost[usize::from(slot)] = true;
        }
        let regions = self.intent.regions();
        let now = self.base.clock().now();
        let members = self.member_statuses(&state, now);
        let options = self.base.options();
        VolumeStatus {
            moment: now,
            name: self.base.name().to_owned(),
            format: self.array.metadata().format_name(),
            size_bytes: self.base.size_bytes(),
            lost_slots: (0..state.slot_count)
                .filter(|slot| lost[usize::from(*slot)])
                .collect(),
            losses_left: match state.is_frozen {
                true => 0,
                false => self.array.losses_left(&lost),
            },
            is_frozen: state.is_frozen,
            is_dirty: state.is_dirty,
            is_read_only: options.is_read_only,
            event_count: self.array.event_count(),
            members,
            job: self.upkeep.book().job(),
            doubtful_regions: (regions.doubtful_count(), regions.count()),
            marked_regions: regions.wanted().count(),
            bitmap_region_bytes: regions.is_persistent.then(|| regions.region_bytes()),
            has_ppl: self.intent.has_ppl(),
            log: self.intent.stripe_log().map(|log| {
                let mut status = log.status();
                // The log counts at the next start only when the superblocks say that writes were under way; else what
                // they say of a resync that was interrupted does.
                let is_clean_and_whole = state.consistent_below_bytes.is_none();
                status.is_sure &=
                    self.array.is_committed() && (state.is_dirty || is_clean_and_whole);
                status
            }),
            balance: options.balance.to_string(),
            writes_in_flight: self.traffic.writes_under_way(),
        }
    }
}

/// Compares each active member with the other ones: reads with reads, writes with writes; the worse one counts.
fn compare_peers(members: &mut [MemberStatus]) {
    let is_active = |member: &MemberStatus| member.standing == Standing::Active;
    let known: Vec<(MemberId, (Latency, Latency))> = members
        .iter()
        .filter(|member| is_active(member))
        .map(|member| (member.id, member.latencies))
        .collect();
    for member in members.iter_mut().filter(|member| is_active(member)) {
        let peers = known.iter().filter(|(id, _)| *id != member.id);
        let (reads, writes): (Vec<Latency>, Vec<Latency>) =
            peers.map(|(_, latencies)| *latencies).unzip();
        let reads = compare(member.latencies.0, &reads);
        let writes = compare(member.latencies.1, &writes);
        member.comparison = match (reads, writes) {
            (Some(reads), Some(writes)) => Some(Comparison {
                percent: reads.percent.max(writes.percent),
                is_slow: reads.is_slow || writes.is_slow,
            }),
            (reads, writes) => reads.or(writes),
        };
    }
}
