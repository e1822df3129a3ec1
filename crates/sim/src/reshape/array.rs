//! The real engine between two geometries: md arrays made by their own create path, reshaped as the daemon does it,
//! one start after the other.
//!
//! Invariant: nothing here decides for the engine. At each start the way is planned anew from what the superblocks say
//! to what is wished for: a reshape that is under way goes on, one that can begin does, and what is left to be called
//! by another name is.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use plexum_block::buf::Buf;
use plexum_block::device::{Device, Fua, IoError, ZeroMode};
use plexum_engine::state::{MemberId, Standing};
use plexum_engine::upkeep::scrub::ScrubMode;
use plexum_engine::volume::{MemberStatus, Volume};
use plexum_exec::Spawner;
use plexum_format::md::Superblock;
use plexum_layout::Organisation;
use plexum_md::assemble::{AssembleCode, Examined, Options};
use plexum_md::create::{NewArray, Start, plan as plan_new, write_new};
use plexum_md::open::{OpenError, OpenRequest, examine, open_volume};
use plexum_md::reshape::{
    Alteration, Beginning, LogNow, Plan as Way, Reshaping, open_reshaping, plan as plan_way,
    situation,
};

use super::memory::ReshapeMemory;
use super::plan::Plan;
use crate::md::identity::{Identities, uuid, version};
use crate::members::{device_name, disk_of, is_active, is_filled, is_live, volume_options};
use crate::subject::{Context, Force, Operation, Refusal, Subject};
use plexum_disks::clock::SimClock;
use plexum_disks::disk::SimDisk;

/// What is served.
enum Body {
    /// One geometry.
    Whole(Box<Volume<SimDisk, SimClock>>),
    /// Two, and a border.
    Moving(Box<Reshaping<SimDisk, SimClock>>),
}

/// An array that is to get another shape.
pub struct Array {
    body: Body,
    context: Context,
    identities: Identities,
    /// Slots of the larger of the two geometries.
    slots_max: usize,
}

/// Makes the array that a plan begins with; spares stand by for its new slots.
pub(super) async fn make(context: &Context, plan: &Plan, disks: &[SimDisk]) -> Result<(), String> {
    let spec = &plan.before;
    let organisation = Organisation::from_md(spec.level.number(), spec.layout);
    let sizes: Vec<u64> = disks[..plan.member_count()]
        .iter()
        .map(|disk| disk.info().size_bytes)
        .collect();
    let (members, spares) = sizes.split_at(spec.member_count);
    let array = NewArray {
        version: version(plan.metadata),
        organisation: organisation.map_err(|error| error.to_string())?,
        strip_bytes: spec.strip_bytes,
        size_bytes: Some(spec.component_bytes),
        members: members.iter().copied().map(Some).collect(),
        spares: spares.to_vec(),
        write_mostly: Vec::new(),
        stored_name: "sim:volume".to_owned(),
        uuid: uuid(context.seed, 0),
        identities: (1..=sizes.len() as u32)
            .map(|number| uuid(context.seed, number))
            .collect(),
        wall_seconds: 1,
        has_bitmap: spec.region_bytes.is_some(),
        region_bytes: spec.region_bytes,
        log_bytes_max: None,
        has_ppl: false,
        is_write_back: false,
        start: Start::Agreeing,
    };
    let planned = plan_new(&array).map_err(|error| error.to_string())?;
    let devices: Vec<Option<SimDisk>> = disks[..plan.member_count()]
        .iter()
        .map(|disk| Some(disk.clone()))
        .collect();
    let made = write_new(&planned, &devices, &context.pool).await;
    made.map_err(|(index, error)| format!("disk {index}: {error}"))
}

/// The way that is left, where one can be gone now.
fn way_left(plan: &Plan, examined: &[Examined]) -> Option<Way> {
    let superblocks: Vec<&Superblock> = examined.iter().map(|found| &found.superblock).collect();
    let bitmap = examined.iter().find_map(|found| found.bitmap.as_ref());
    let bitmap_sectors = bitmap.map_or(0, |header| {
        header
            .area_sectors()
            .max(u64::from(header.reserved_sectors))
    });
    let now = situation(&superblocks, bitmap_sectors, LogNow::Off).ok()?;
    let way = plan_way(&now, &plan.wish()).ok()?;
    (way.lacking_members == 0).then_some(way)
}

impl Array {
    /// Opens what is on these disks.
    pub(super) async fn open(
        context: &Context,
        plan: &Plan,
        disks: &[SimDisk],
        force: Force,
    ) -> Result<Self, Refusal> {
        let array = uuid(context.seed, 0);
        let mut devices = Vec::new();
        let mut examined = Vec::new();
        for (index, disk) in disks.iter().enumerate() {
            let name = device_name(disk);
            let found = examine(disk, &context.pool, index, &name).await.ok();
            if let Some(found) = found.filter(|found| found.superblock.array_uuid == array) {
                devices.push((name, disk.clone()));
                examined.push(found);
            }
        }
        let newest = examined
            .iter()
            .max_by_key(|found| found.superblock.events.0);
        let is_half = newest.is_some_and(|newest| newest.superblock.reshape.is_some());
        let way = way_left(plan, &examined);
        let opening = Opening {
            context,
            devices,
            force,
        };
        let beginning = way.as_ref().and_then(Beginning::of);
        let body = match (is_half, beginning) {
            (true, _) => opening.moving(None).await?,
            (false, Some(beginning)) => match opening.moving(Some(&beginning)).await {
                // It is dirty, or not in sync: first that, then the reshape, at a later start.
                Err(Refusal::Other(_)) => opening.whole(None).await?,
                opened => opened?,
            },
            (false, None) => opening.whole(way).await?,
        };
        Ok(Self {
            body,
            context: context.clone(),
            identities: Identities::default(),
            slots_max: plan.member_count(),
        })
    }

    /// The volume that has all members.
    pub(super) fn volume(&self) -> &Volume<SimDisk, SimClock> {
        match &self.body {
            Body::Whole(volume) => volume,
            Body::Moving(moving) => moving.after(),
        }
    }

    /// Size as clients see it.
    pub(super) fn size_bytes(&self) -> u64 {
        match &self.body {
            Body::Whole(volume) => volume.size_bytes(),
            Body::Moving(moving) => moving.size_bytes(),
        }
    }

    /// Whether rows have yet to move, and do.
    pub(super) fn is_moving(&self) -> bool {
        matches!(&self.body, Body::Moving(moving) if !moving.has_ended())
    }

    /// Whether an error has stopped the reshape in this life.
    pub(super) fn has_failed(&self) -> bool {
        matches!(&self.body, Body::Moving(moving) if moving.has_failed())
    }

    /// Slots that data lie in: while rows move, those of either geometry.
    fn slot_count(&self) -> usize {
        let count = self.volume().geometry().member_count();
        match self.is_moving() {
            true => count.max(self.slots_max),
            false => count,
        }
    }

    /// By slot: the disk that holds it completely.
    pub(super) fn slots(&self) -> Vec<Option<u32>> {
        let volume = self.volume();
        let mut slots = vec![None; self.slot_count()];
        for member in volume
            .status()
            .members
            .iter()
            .filter(|member| is_active(member))
        {
            let slot = member
                .slot
                .and_then(|slot| slots.get_mut(usize::from(slot)));
            if let Some(slot) = slot {
                *slot = disk_of(member);
            }
        }
        slots
    }

    /// Disks that belong to it in any live role.
    pub(super) fn live(&self) -> BTreeSet<u32> {
        let status = self.volume().status();
        let live = status.members.iter().filter(|member| is_live(member));
        live.filter_map(disk_of).collect()
    }

    /// Slots that nobody holds, or whose disk is in `bad`, or is complete and the disks do not say so yet.
    pub(super) fn lost_without(&self, bad: &BTreeSet<u32>) -> Vec<usize> {
        let volume = self.volume();
        let status = volume.status();
        let is_good = |slot: usize| {
            status.members.iter().any(|member| {
                is_active(member)
                    && member.slot.map(usize::from) == Some(slot)
                    && volume.is_durably_active(member.id)
                    && disk_of(member).is_some_and(|disk| !bad.contains(&disk))
            })
        };
        (0..self.slot_count())
            .filter(|slot| !is_good(*slot))
            .collect()
    }

    /// Disks that are known not to have everything.
    pub(super) fn with_bad_ranges(&self) -> Vec<u32> {
        let status = self.volume().status();
        let members = status.members.iter();
        members
            .filter(|member| !member.bad_ranges.is_empty())
            .filter_map(disk_of)
            .collect()
    }

    /// Whether parity is not proven somewhere.
    pub(super) fn is_doubtful(&self) -> bool {
        self.volume().status().doubtful_regions.0 > 0
    }

    /// Whether it lacks a member that nobody is about to become.
    pub(super) fn lacks_a_disk(&self) -> bool {
        let status = self.volume().status();
        let comes =
            |member: &&MemberStatus| is_filled(member) || member.standing == Standing::Spare;
        status.lost_slots.len() > status.members.iter().filter(comes).count()
    }

    /// Whether the member on this disk is being filled.
    pub(super) fn is_filled(&self, disk: u32) -> bool {
        let status = self.volume().status();
        let mut filled = status.members.iter().filter(|member| is_filled(member));
        filled.any(|member| disk_of(member) == Some(disk))
    }

    fn member_of_slot(&self, slot: usize) -> Result<MemberId, String> {
        let members = self.volume().status().members;
        let is_it = |member: &&MemberStatus| {
            is_active(member) && member.slot.map(usize::from) == Some(slot)
        };
        let found = members.iter().find(is_it).map(|member| member.id);
        found.ok_or_else(|| "the slot is empty".to_owned())
    }

    /// Compares parity of everything; gives the bytes that do not agree.
    pub(super) async fn scrub(&self) -> u64 {
        let volume = self.volume();
        if !volume.start_scrub(ScrubMode::Check) {
            return 0;
        }
        volume.scrub_ended().await;
        volume.scrub_report().unwrap_or_default().mismatch_bytes
    }
}

/// One attempt at a start.
struct Opening<'a> {
    context: &'a Context,
    devices: Vec<(String, SimDisk)>,
    force: Force,
}

impl Opening<'_> {
    fn request(&self) -> OpenRequest {
        OpenRequest {
            assemble: Options {
                force: self.force == Force::Yes,
                run_degraded: true,
                ..Options::default()
            },
            volume: volume_options(self.context),
            ..OpenRequest::default()
        }
    }

    /// With one geometry, by the name that is left of the way.
    async fn whole(&self, way: Option<Way>) -> Result<Body, Refusal> {
        let mut request = self.request();
        let name = way.and_then(|way| way.first.or(way.last));
        request.alteration = name.map(Alteration::Relabel);
        let (clock, pool) = (self.context.clock.clone(), self.context.pool.clone());
        let opened = open_volume(self.devices.clone(), clock, pool, request).await;
        let (volume, _) = opened.map_err(|error| refusal(&error))?;
        Ok(Body::Whole(Box::new(volume)))
    }

    async fn moving(&self, beginning: Option<&Beginning>) -> Result<Body, Refusal> {
        let (clock, pool) = (self.context.clock.clone(), self.context.pool.clone());
        let devices = self.devices.clone();
        let opened = open_reshaping(devices, clock, pool, self.request(), beginning).await;
        let (moving, _) = opened.map_err(|error| refusal(&error))?;
        Ok(Body::Moving(Box::new(moving)))
    }
}

fn refusal(error: &OpenError) -> Refusal {
    match error {
        OpenError::Assemble(problem) if problem.code == AssembleCode::DirtyDegraded => {
            Refusal::DirtyDegraded(error.to_string())
        }
        _ => Refusal::Other(error.to_string()),
    }
}

impl Subject for Array {
    type Plan = Plan;
    type Memory = ReshapeMemory;

    async fn read(&self, _volume: usize, bytes: Range<u64>) -> Result<Vec<u8>, IoError> {
        let length = (bytes.end - bytes.start) as usize;
        let read = match &self.body {
            Body::Whole(volume) => volume.read(bytes.start, length).await?,
            Body::Moving(moving) => moving.read(bytes.start, length).await?,
        };
        Ok(read.to_vec())
    }

    async fn write(
        &self,
        _volume: usize,
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
    ) -> Result<(), IoError> {
        match &self.body {
            Body::Whole(volume) => volume.write(offset_bytes, data, fua).await,
            Body::Moving(moving) => moving.write(offset_bytes, data, fua).await,
        }
    }

    async fn flush(&self, _volume: usize) -> Result<(), IoError> {
        match &self.body {
            Body::Whole(volume) => volume.flush().await,
            Body::Moving(moving) => moving.flush().await,
        }
    }

    async fn zero(
        &self,
        _volume: usize,
        bytes: Range<u64>,
        mode: ZeroMode,
        fua: Fua,
    ) -> Result<(), IoError> {
        match &self.body {
            Body::Whole(volume) => {
                let length = bytes.end - bytes.start;
                volume.zero(bytes.start, length, mode, fua).await
            }
            Body::Moving(_) if mode == ZeroMode::Unmap => Ok(()), // a hint, and nothing is given back
            Body::Moving(moving) => moving.zero(bytes, fua).await,
        }
    }

    async fn background(self: Rc<Self>, _spawner: Spawner) {
        match &self.body {
            Body::Whole(volume) => volume.run_background().await,
            Body::Moving(moving) => moving.run().await,
        }
    }

    async fn operate(&self, operation: Operation, disks: &[SimDisk]) -> Result<(), String> {
        let volume = self.volume();
        let done = match operation {
            Operation::Fail { slot } => volume.fail(self.member_of_slot(slot)?).await,
            Operation::Add { disk } => {
                let disk = disks[disk as usize].reopen();
                let new = self.identities.new_member(&self.context, volume, disk);
                volume.add(new.await?, false).await.map(|_| ())
            }
            Operation::Replace { .. } => return Err("not while it is reshaped".to_owned()),
            Operation::Scrub => {
                self.scrub().await;
                return Ok(());
            }
        };
        done.map_err(|error| error.to_string())
    }

    async fn stop(&self) -> Result<(), IoError> {
        match &self.body {
            Body::Whole(volume) => volume.stop().await,
            Body::Moving(moving) => moving.stop().await,
        }
    }

    /// What an error has stopped in this life goes on in the next one: nothing is left to do here.
    fn is_whole(&self) -> bool {
        if self.is_moving() {
            return self.has_failed();
        }
        let status = self.volume().status();
        let is_settled = status.doubtful_regions.0 == 0 && status.job.is_none();
        is_settled
            && status.lost_slots.is_empty()
            && !status.members.iter().any(is_filled)
            && self.volume().is_committed()
    }

    fn describe(&self) -> String {
        let status = self.volume().status();
        let members = status.members.iter();
        let members: Vec<String> = members
            .map(|member| {
                let name = member.name.as_deref().unwrap_or("nobody");
                format!("{name} {:?} {:?}", member.slot, member.standing)
            })
            .collect();
        format!(
            "{} bytes, moving {}, failed {}, lost {:?}, {} regions in doubt, job {:?}, {}",
            self.size_bytes(),
            self.is_moving(),
            self.has_failed(),
            status.lost_slots,
            status.doubtful_regions.0,
            status.job.map(|job| job.kind),
            members.join(", ")
        )
    }

    fn condition(&self) -> Option<&'static str> {
        let status = self.volume().status();
        let is_degraded = !status.lost_slots.is_empty();
        match (self.is_moving(), is_degraded) {
            (true, true) => Some("degraded reshape"),
            (true, false) => Some("reshape"),
            (false, _) if status.members.iter().any(is_filled) => Some("rebuild"),
            (false, _) if status.doubtful_regions.0 > 0 => Some("resync"),
            (false, true) => Some("degraded"),
            (false, false) => None,
        }
    }

    async fn settled(&self) {
        if let Body::Moving(moving) = &self.body {
            moving.ended().await;
        }
    }

    fn stages(&self) -> Vec<&'static str> {
        let requests = self.volume().requests();
        requests
            .iter()
            .map(|request| request.stage.name())
            .collect()
    }

    fn leaks(&self) -> Option<String> {
        let volume = self.volume();
        let held = volume.requests().len() + volume.lock_count();
        (held > 0).then(|| format!("{held} requests and locks"))
    }
}
