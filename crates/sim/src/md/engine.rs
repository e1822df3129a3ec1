//! The real engine as a subject: the very `Volume` of production over simulated disks, made and opened by its own
//! create and open paths, on real md metadata.
//!
//! Invariant: nothing here decides for the engine; refusals and errors are passed on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::Buf;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError, ZeroMode};
use plexum_block::wait::join;
use plexum_engine::balance::Policy;
use plexum_engine::shard::ShardCounters;
use plexum_engine::state::{MemberId, Standing};
use plexum_engine::threshold::Threshold;
use plexum_engine::upkeep::scrub::ScrubMode;
use plexum_engine::volume::{JobKind, MemberStatus, NewMember, Volume, VolumeOptions};
use plexum_exec::Spawner;
use plexum_front::export::ZeroRequest;
use plexum_layout::Organisation;
use plexum_md::assemble::{AssembleCode, Options, StaleUse};
use plexum_md::create::{NewArray, Start, plan, write_new};
use plexum_md::open::{OpenError, OpenRequest, open_volume};

use super::crew::Crew;
use super::front::Front;
use super::identity::{Identities, own_superblock, uuid, version};
use super::scenario::Scenario;
use super::slots::{ScrubFound, ScrubPlace, Setting, SlotArray, SlotMemory, StaleRead, Status};
use super::spec::{Level, Spec};
use crate::members::{self, device_name, disk_named, disk_of, is_active, is_filled, is_live};
use crate::subject::{Context, Force, Operation, Refusal, Subject};
use plexum_disks::clock::SimClock;
use plexum_disks::disk::SimDisk;
use plexum_disks::rng::mix;

/// Reads of an array that was started with stale members, in bytes: where one is refused, the others still tell.
const PIECE_BYTES: u64 = 16_384;

/// A volume that may write has committed what it found at its start after so long.
const COMMITTED_AFTER: Duration = Duration::from_secs(1);

/// The real engine.
pub struct Engine {
    volume: Rc<Volume<SimDisk, SimClock>>,
    /// NBD sessions in front of it, in some scenarios.
    front: Option<Front>,
    /// Satellites beside it, in some others.
    crew: Option<Crew>,
    context: Context,
    /// Data offset of the members known at the start, by disk; a new member gets the common one.
    offsets: RefCell<BTreeMap<u32, u64>>,
    common_offset: u64,
    identities: Identities,
    scrub_mismatch: Cell<bool>,
}

fn volume_options(setting: &Setting) -> VolumeOptions {
    let context = &setting.context;
    let policies = [
        Policy::RoundRobin,
        Policy::Prefer,
        Policy::Split { slice_bytes: 8192 },
        Policy::Load7,
        Policy::Load,
        Policy::Nearest,
    ];
    let drawn = mix(context.seed);
    let balance = match (drawn >> 32) % 16 {
        _ if setting.reads_ahead => Policy::Adaptive { reads_ahead: true },
        0 => Policy::Adaptive { reads_ahead: true },
        13 => Policy::Adaptive { reads_ahead: false }, // none of the seeds that are kept
        _ => policies[(drawn % policies.len() as u64) as usize],
    };
    VolumeOptions {
        balance,
        ..members::volume_options(context)
    }
}

impl Engine {
    /// Starts the array from these disks.
    async fn open(setting: &Setting, disks: &[SimDisk], options: Options) -> Result<Self, Refusal> {
        let context = &setting.context;
        let array = uuid(context.seed, 0);
        let mut devices = Vec::new();
        for disk in disks {
            if own_superblock(context, array, disk).await.is_some() {
                devices.push((device_name(disk), disk.clone()));
            }
        }
        let request = OpenRequest {
            assemble: options,
            volume: volume_options(setting),
            ..OpenRequest::default()
        };
        let opened = open_volume(
            devices,
            context.clock.clone(),
            context.pool.clone(),
            request,
        )
        .await;
        let (volume, assembly) = opened.map_err(|error| match &error {
            OpenError::Assemble(problem) if problem.code == AssembleCode::DirtyDegraded => {
                Refusal::DirtyDegraded(error.to_string())
            }
            _ => Refusal::Other(error.to_string()),
        })?;
        let place = |member: &plexum_md::assemble::AssembledMember| {
            Some((disk_named(&member.name)?, member.data_offset_bytes))
        };
        let offsets: BTreeMap<u32, u64> = assembly.members.iter().filter_map(place).collect();
        let volume = Rc::new(volume);
        let front = (setting.connections > 0).then(|| {
            Front::new(
                &volume,
                setting.connections,
                &context.clock,
                &context.pool,
                context.seed,
            )
        });
        let crew = (setting.shards > 1).then(|| Crew::new(&volume, setting, disks));
        Ok(Self {
            volume,
            front,
            crew,
            context: context.clone(),
            common_offset: offsets.values().next().copied().unwrap_or(0),
            offsets: RefCell::new(offsets),
            identities: Identities::default(),
            scrub_mismatch: Cell::new(false),
        })
    }

    fn member_of_slot(&self, slot: usize) -> Result<MemberId, String> {
        let members = self.volume.status().members;
        let is_it = |member: &&MemberStatus| {
            is_active(member) && member.slot.map(usize::from) == Some(slot)
        };
        let found = members.iter().find(is_it).map(|member| member.id);
        found.ok_or_else(|| "the slot is empty".to_owned())
    }

    /// What the volume is given when a disk is added.
    async fn new_member(
        &self,
        number: u32,
        disks: &[SimDisk],
    ) -> Result<NewMember<SimDisk>, String> {
        let disk = disks[number as usize].reopen();
        let new = self
            .identities
            .new_member(&self.context, &self.volume, disk);
        let new = new.await?;
        let mut offsets = self.offsets.borrow_mut();
        offsets.insert(number, self.common_offset);
        if let Some(crew) = &self.crew {
            crew.meet(&disks[number as usize]);
        }
        Ok(new)
    }

    /// What the satellites have served by themselves, and what they gave to the home.
    #[must_use]
    pub fn shard_counters(&self) -> ShardCounters {
        self.crew.as_ref().map(Crew::counters).unwrap_or_default()
    }

    /// Whether the superblocks say that writes may be under way.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.volume.status().is_dirty
    }
}

impl Subject for Engine {
    type Plan = Scenario;
    type Memory = SlotMemory;

    async fn read(&self, _volume: usize, bytes: Range<u64>) -> Result<Vec<u8>, IoError> {
        let offset_bytes = bytes.start;
        let length = usize::try_from(bytes.end - bytes.start).map_err(|_| IoError::OutOfRange)?;
        if let Some(front) = &self.front {
            let client = front.client_in_turn().await;
            let buf = self.context.pool.take(length);
            return Ok(client.read(offset_bytes, buf).await?.to_vec());
        }
        if let Some(satellite) = self.crew.as_ref().and_then(Crew::next) {
            return Ok(satellite.read(offset_bytes, length).await?.to_vec());
        }
        Ok(self.volume.read(offset_bytes, length).await?.to_vec())
    }

    async fn write(
        &self,
        _volume: usize,
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
    ) -> Result<(), IoError> {
        if let Some(front) = &self.front {
            let client = front.client_in_turn().await;
            return Ok(client.write(offset_bytes, data, fua).await?);
        }
        if let Some(satellite) = self.crew.as_ref().and_then(Crew::next) {
            return satellite.write(offset_bytes, data, fua).await;
        }
        self.volume.write_shared(offset_bytes, data, fua).await
    }

    async fn flush(&self, _volume: usize) -> Result<(), IoError> {
        if let Some(front) = &self.front {
            return Ok(front.client_in_turn().await.flush().await?);
        }
        if let Some(satellite) = self.crew.as_ref().and_then(Crew::next) {
            return satellite.flush().await;
        }
        self.volume.flush().await
    }

    async fn zero(
        &self,
        _volume: usize,
        bytes: Range<u64>,
        mode: ZeroMode,
        fua: Fua,
    ) -> Result<(), IoError> {
        let (start, length) = (bytes.start, bytes.end - bytes.start);
        if let Some(front) = &self.front {
            let client = front.client_in_turn().await;
            let how = ZeroRequest {
                fua,
                may_unmap: false,
                only_if_fast: false,
            };
            return match mode {
                ZeroMode::Unmap => Ok(client.trim(start, length, fua).await?),
                ZeroMode::Allocate => Ok(client.zero(start, length, how).await?),
            };
        }
        let is_trim = mode == ZeroMode::Unmap; // the home's business
        let crew = self.crew.as_ref().filter(|_| !is_trim);
        match crew.and_then(Crew::next) {
            Some(satellite) => satellite.zero(start, length, mode, fua).await,
            None => self.volume.zero(start, length, mode, fua).await,
        }
    }

    async fn background(self: Rc<Self>, spawner: Spawner) {
        if let Some(crew) = &self.crew {
            crew.start(&self.volume, &spawner);
        }
        match &self.front {
            Some(front) => {
                join(self.volume.run_background(), front.run()).await;
            }
            None => self.volume.run_background().await,
        }
    }

    async fn operate(&self, operation: Operation, disks: &[SimDisk]) -> Result<(), String> {
        let done = match operation {
            Operation::Fail { slot } => self.volume.fail(self.member_of_slot(slot)?).await,
            Operation::Add { disk } => {
                let new = self.new_member(disk, disks).await?;
                self.volume.add(new, false).await.map(|_| ())
            }
            Operation::Replace { slot, disk } => {
                let member = self.member_of_slot(slot)?;
                let new = NewMember {
                    former: None,
                    ..self.new_member(disk, disks).await?
                };
                self.volume.replace_with(member, new).await.map(|_| ())
            }
            Operation::Scrub => {
                if !self.volume.start_scrub(ScrubMode::Check) {
                    return Err("nothing to scrub now".to_owned());
                }
                self.volume.scrub_ended().await;
                let report = self.volume.scrub_report().unwrap_or_default();
                if report.mismatch_bytes > 0 {
                    self.scrub_mismatch.set(true);
                }
                Ok(())
            }
        };
        done.map_err(|error| error.to_string())
    }

    async fn stop(&self) -> Result<(), IoError> {
        if let Some(front) = &self.front {
            front.stop();
        }
        let result = self.volume.stop().await;
        if let Some(crew) = &self.crew {
            crew.end();
        }
        result
    }

    fn is_resyncing(&self) -> bool {
        let job = self.volume.status().job;
        job.is_some_and(|job| job.kind == JobKind::Resync && job.worked_bytes > 0)
    }

    fn crossed(&self) -> Vec<&'static str> {
        let crossed = self.volume.crossed().into_iter();
        crossed.map(Threshold::name).collect()
    }

    fn stages(&self) -> Vec<&'static str> {
        let requests = self.volume.requests();
        requests
            .iter()
            .map(|request| request.stage.name())
            .collect()
    }

    fn leaks(&self) -> Option<String> {
        let (requests, locks) = (self.volume.requests().len(), self.volume.lock_count());
        let in_flight: usize = self
            .volume
            .status()
            .members
            .iter()
            .map(|member| member.in_flight as usize)
            .sum();
        let bytes = self.front.as_ref().map_or(0, Front::used_bytes);
        (requests + locks + in_flight > 0 || bytes > 0).then(|| {
            format!(
                "{requests} requests, {locks} locks, {in_flight} member I/Os, {bytes} bytes of sessions"
            )
        })
    }

    fn is_whole(&self) -> bool {
        self.status().is_whole()
    }

    fn describe(&self) -> String {
        format!("{:?}", self.status())
    }

    fn condition(&self) -> Option<&'static str> {
        self.status().condition()
    }
}

impl SlotArray for Engine {
    const HAS_METADATA: bool = true;

    async fn create(setting: &Setting, spec: &Spec, disks: &[SimDisk]) -> Result<Self, String> {
        let context = &setting.context;
        let organisation = Organisation::from_md(spec.level.number(), spec.layout)
            .map_err(|error| error.to_string())?;
        let members: Vec<&SimDisk> = disks.iter().take(spec.member_count).collect();
        let array = NewArray {
            version: version(setting.metadata),
            organisation,
            strip_bytes: spec.strip_bytes,
            size_bytes: Some(spec.component_bytes),
            members: members
                .iter()
                .map(|disk| Some(disk.info().size_bytes))
                .collect(),
            spares: Vec::new(),
            write_mostly: if spec.level == Level::Raid1 && context.seed.is_multiple_of(5) {
                vec![1]
            } else {
                Vec::new()
            },
            stored_name: "sim:volume".to_owned(),
            uuid: uuid(context.seed, 0),
            identities: (0..members.len() as u32)
                .map(|slot| uuid(context.seed, slot + 1))
                .collect(),
            wall_seconds: context.clock.wall_seconds(),
            has_bitmap: spec.region_bytes.is_some(),
            region_bytes: spec.region_bytes,
            log_bytes_max: spec.log_bytes,
            has_ppl: spec.has_ppl,
            is_write_back: spec.is_write_back,
            // The disks are fresh: holes everywhere prove that copies and parity agree.
            start: if context.seed.is_multiple_of(3) && !spec.has_ppl {
                Start::Resync
            } else {
                Start::Agreeing
            },
        };
        let plan = plan(&array).map_err(|error| error.to_string())?;
        let devices: Vec<Option<SimDisk>> =
            members.iter().map(|disk| Some((*disk).clone())).collect();
        write_new(&plan, &devices, &context.pool)
            .await
            .map_err(|(index, error)| format!("disk {index}: {error}"))?;
        Self::assemble(setting, spec, &disks[..spec.member_count], Force::No)
            .await
            .map_err(|refusal| format!("{refusal:?}"))
    }

    async fn assemble(
        setting: &Setting,
        _spec: &Spec,
        disks: &[SimDisk],
        force: Force,
    ) -> Result<Self, Refusal> {
        let options = Options {
            force: force == Force::Yes,
            run_degraded: true,
            ..Options::default()
        };
        Self::open(setting, disks, options).await
    }

    async fn read_with_stale(
        setting: &Setting,
        disks: &[SimDisk],
        spawner: Spawner,
    ) -> Option<StaleRead> {
        let options = Options {
            force: true,
            stale: StaleUse::Read,
            ..Options::default()
        };
        let alone = Setting {
            connections: 0,
            shards: 1,
            ..setting.clone()
        };
        let engine = Rc::new(Self::open(&alone, disks, options).await.ok()?);
        spawner.spawn(Rc::clone(&engine).background(spawner.clone()));
        let status = engine.status();
        let mut pieces = Vec::new();
        let size = engine.size_bytes();
        for at in (0..size).step_by(PIECE_BYTES as usize) {
            if let Ok(bytes) = engine.read(0, at..size.min(at + PIECE_BYTES)).await {
                pieces.push((at, bytes));
            }
        }
        setting.context.clock.sleep(COMMITTED_AFTER).await;
        // An array that is only read has nothing to write then; what it answers is no matter.
        let _ = engine.stop().await;
        Some(StaleRead {
            slots: status.slots,
            live: status.live,
            pieces,
        })
    }

    fn size_bytes(&self) -> u64 {
        self.volume.size_bytes()
    }

    fn status(&self) -> Status {
        let status = self.volume.status();
        let all = &status.members;
        let active = all.iter().filter(|member| is_active(member));
        let mut slots = vec![None; self.volume.geometry().member_count()];
        let mut bad_ranges = Vec::new();
        let mut unsure = Vec::new();
        for member in active {
            let slot = usize::from(member.slot.expect("an active member has a slot"));
            slots[slot] = slots[slot].or(disk_of(member));
            bad_ranges.extend(member.bad_ranges.iter().map(|range| (slot, range.clone())));
            if !self.volume.is_durably_active(member.id) {
                unsure.extend(disk_of(member));
            }
        }
        let has_spare = all.iter().any(|member| member.standing == Standing::Spare);
        let is_doubtful = status.doubtful_regions.0 > 0;
        let live = all.iter().filter(|member| is_live(member));
        Status {
            unsure,
            live: live.filter_map(disk_of).collect(),
            is_syncing: all.iter().any(is_filled)
                || is_doubtful
                || has_spare && slots.contains(&None),
            is_doubtful: is_doubtful || status.log.is_some_and(|log| !log.is_sure),
            is_uncommitted: !self.volume.is_committed(),
            is_frozen: status.is_frozen,
            event_count: status.event_count,
            bad_ranges,
            has_scrub_mismatch: self.scrub_mismatch.get(),
            slots,
        }
    }

    async fn scrub(&self, mode: ScrubMode) -> Option<ScrubFound> {
        if !self.volume.start_scrub(mode) {
            return None;
        }
        self.volume.scrub_ended().await;
        let report = self.volume.scrub_report()?;
        let place = |mismatch: plexum_engine::upkeep::scrub::Mismatch| ScrubPlace {
            slot: mismatch.slot.map(usize::from),
            member: mismatch.member_range,
            volume: mismatch.volume_ranges,
        };
        Some(ScrubFound {
            places: report.mismatches.into_iter().map(place).collect(),
            is_complete: report.is_complete && report.skipped_bytes == 0,
        })
    }

    fn data_offset_bytes(&self, disk: u32) -> u64 {
        self.offsets
            .borrow()
            .get(&disk)
            .copied()
            .unwrap_or(self.common_offset)
    }
}
