//! The model in Linux md's superblocks, bitmap and bad-block logs.
//!
//! Invariants:
//! - one role table for all members, by dev number; a dev number is kept for life (linux-md.md 18);
//! - a member that is not there or was removed has no role: so its own, older superblock gives it away (linux-md.md 9);
//! - what the model does not know of a superblock is written back as it was read.

use std::any::Any;
use std::ops::Range;

use plexum_format::EventCount;
use plexum_format::md::{
    BadBlocks, BitmapHeader, MdTime, MdVersion, NewMember, Role, Superblock, ppl,
    super_offset_sectors,
};
use plexum_format::stripe_log::{LogArea, LogHeader, NoLog, plan_area, superblock_hash};
use plexum_format::{SECTOR_BYTES, Slot};

use crate::bitmap_place::{plan_bitmap, plan_ppl};
use crate::reshape::{
    GOAL_BYTES, Goal, LogNow, Moving, PlanError, Situation, data_room_sectors, end, follow,
    goal_place, reshaped_offset_sectors, situation,
};
use plexum_block::device::DeviceInfo;
use plexum_block::ranges::RangeSet;
use plexum_engine::metadata::{BitmapPlan, CommitView, Metadata, MetadataWrite, NewMemberPlace};
use plexum_engine::state::{MemberId, Standing};

/// Smallest sector count between a 1.0 or 0.90 member's data and its superblock that is kept free for bitmap and log.
const TAIL_ROOM_SECTORS: u64 = 8;

/// Sectors that a bitmap takes or keeps for itself.
pub(crate) fn bitmap_sectors(header: &BitmapHeader) -> u64 {
    header
        .area_sectors()
        .max(u64::from(header.reserved_sectors))
}

/// Whether the superblocks on the members have yet to say what was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The first commit says it.
    Yes,
    /// They say it.
    No,
}

/// md's metadata of one array.
pub struct MdMetadata {
    /// By `MemberId`; `None` where the member is not there.
    members: Vec<Option<MdMember>>,
    bitmap: Option<BitmapHeader>,
    has_commits: bool,
    /// What the superblocks were read with is not what they are to say: the first commit says it.
    is_due: bool,
    /// A reshape that is under way.
    moving: Option<Moving>,
    /// Where a change leads that is under way.
    goal: Option<Goal>,
}

struct MdMember {
    superblock: Superblock,
    /// The bad-block log on the member is not empty, so an empty one has to be written as well.
    has_log_content: bool,
    /// What it says of where a change leads.
    goal: Option<Goal>,
}

impl MdMetadata {
    /// Metadata of an assembled or new array: the members' superblocks by `MemberId`, and the bitmap's header when
    /// there is one.
    #[must_use]
    pub fn new(superblocks: Vec<Option<Superblock>>, bitmap: Option<BitmapHeader>) -> Self {
        let level = superblocks
            .iter()
            .flatten()
            .next()
            .map_or(0, |superblock| superblock.level);
        let member = |superblock: Superblock| MdMember {
            has_log_content: superblock.has_bad_blocks,
            superblock,
            goal: None,
        };
        Self {
            members: superblocks
                .into_iter()
                .map(|superblock| superblock.map(member))
                .collect(),
            bitmap,
            has_commits: level >= 1,
            is_due: false,
            moving: None,
            goal: None,
        }
    }

    /// The same. `found`: what each member says of where a change leads; `goal`: what all are to say.
    pub(crate) fn leading(mut self, found: Vec<Option<Goal>>, goal: Option<Goal>) -> Self {
        for (member, found) in self.members.iter_mut().zip(found) {
            if let Some(member) = member {
                member.goal = found;
            }
        }
        self.goal = goal;
        self
    }

    /// Where a change leads that is under way.
    #[must_use]
    pub fn goal(&self) -> Option<&Goal> {
        self.goal.as_ref()
    }

    /// From the next commit on the members say that it leads there, or that nothing is under way.
    pub fn note_goal(&mut self, goal: Option<Goal>) {
        self.goal = goal;
    }

    /// Whether every member that is here has room to say so.
    #[must_use]
    pub fn has_room_for_goal(&self) -> bool {
        let bitmap = self.bitmap.as_ref().map_or(0, bitmap_sectors);
        let mut members = self.members.iter().flatten();
        members.all(|member| goal_place(&member.superblock, bitmap).is_some())
    }

    /// What a member's page has to say from now on, where it says something else.
    fn goal_write(&mut self, member: MemberId) -> Option<MetadataWrite> {
        let bitmap = self.bitmap.as_ref().map_or(0, bitmap_sectors);
        let known = self.members.get_mut(usize::from(member.0))?.as_mut()?;
        if known.goal == self.goal {
            return None;
        }
        known.goal.clone_from(&self.goal);
        let uuid = known.superblock.array_uuid;
        Some(MetadataWrite {
            at_bytes: goal_place(&known.superblock, bitmap)?,
            bytes: match &self.goal {
                Some(goal) => goal.encode(&uuid),
                None => vec![0; GOAL_BYTES],
            },
        })
    }

    /// The same, of an array that is being reshaped; `due`: whether the superblocks on the
    /// members have yet to say so.
    pub(crate) fn reshaping(self, moving: Moving, due: Due) -> Self {
        Self {
            moving: Some(moving),
            is_due: due == Due::Yes,
            ..self
        }
    }

    /// The same, of superblocks that are to say something else than those on the members.
    pub(crate) fn changed(self, due: Due) -> Self {
        let is_due = due == Due::Yes;
        Self {
            is_due,
            has_commits: self.has_commits || is_due, // also a RAID-0 says once that it has become one
            ..self
        }
    }

    /// What the array is now, as a plan of a reshape asks for it; `log`: whether it has a stripe log.
    ///
    /// # Errors
    /// `PlanError`: what has to end first.
    pub fn situation(&self, log: LogNow) -> Result<Situation, PlanError> {
        let members: Vec<&Superblock> = self
            .members
            .iter()
            .flatten()
            .map(|member| &member.superblock)
            .collect();
        let bitmap = self.bitmap.as_ref().map_or(0, bitmap_sectors);
        situation(&members, bitmap, log)
    }

    /// Sectors for data that a member on a device of this size has, when it gives all; `None` for one that is not here.
    #[must_use]
    pub fn data_room_sectors(&self, member: MemberId, device_bytes: u64) -> Option<u64> {
        let superblock = &self.member(member)?.superblock;
        Some(data_room_sectors(superblock, device_bytes / SECTOR_BYTES))
    }

    /// Whether a bitmap that covers so much could be made where the present one is.
    ///
    /// # Errors
    /// A sentence, with what is free.
    pub fn check_bitmap(&self, sync_bytes: u64) -> Result<(), String> {
        self.plan_bitmap(&[], sync_bytes, None, 0).map(|_| ())
    }

    /// R10: what every member says from now on, those included that are not there.
    fn end_of_move(&mut self) {
        if self.moving.as_ref().is_some_and(Moving::has_ended) {
            let members = self.members.iter_mut().flatten();
            members.for_each(|member| end(&mut member.superblock));
            self.moving = None;
        }
    }

    fn member(&self, member: MemberId) -> Option<&MdMember> {
        self.members.get(usize::from(member.0))?.as_ref()
    }

    fn template(&self) -> &Superblock {
        let first = self.members.iter().flatten().next();
        &first.expect("an array has a member").superblock
    }

    /// A superblock that says what the array is: that of a complete member. One that stood by may have missed a change.
    fn lead(&self, view: &CommitView<'_>) -> Option<Superblock> {
        let known = self.members.iter().zip(&view.state.members);
        let mut active = known.filter(|(_, record)| record.standing == Standing::Active);
        let (member, _) = active.find(|(member, _)| member.is_some())?;
        member.as_ref().map(|member| member.superblock.clone())
    }

    /// The role of every dev number, from the state (the kernel's rule: linux-md.md 1, dev_roles).
    fn roles(&self, view: &CommitView<'_>) -> Vec<(u32, Role)> {
        let has_progress = self.template().version.has_rebuild_offset();
        let known = self.members.iter().zip(&view.state.members);
        known
            .filter_map(|(member, record)| {
                let number = member.as_ref()?.superblock.dev_number;
                let role = match (record.standing, record.slot) {
                    // 0.90 cannot say how far a rebuild has got: after a restart it begins anew from a spare.
                    (Standing::Rebuilding { .. }, _) if !has_progress => Role::Spare,
                    (Standing::Active | Standing::Rebuilding { .. }, Some(slot)) => {
                        Role::Active(Slot(slot))
                    }
                    (Standing::Faulty, _) => Role::Faulty,
                    _ => Role::Spare,
                };
                Some((number, role))
            })
            .collect()
    }

    fn fill(superblock: &mut Superblock, roles: &[(u32, Role)], view: &CommitView<'_>) {
        for number in 0..superblock.roles.len() {
            superblock.roles[number] = Role::Spare;
        }
        for (number, role) in roles {
            superblock
                .set_role(*number, *role)
                .expect("dev numbers were checked when the member joined");
        }
        superblock.events = EventCount(view.event_count);
        // L6: the kernel writes 0 here, so what it has written never looks like ours. 0.90 has no place for it.
        let has_microseconds = superblock.version != MdVersion::V090;
        superblock.utime = MdTime {
            seconds: view.wall_seconds,
            microseconds: if has_microseconds {
                1 + (view.event_count % 999_999) as u32 // below a million
            } else {
                0
            },
        };
        superblock.has_answers_in_log = view.answers_from_log && view.state.is_dirty;
        superblock.resync_offset_sectors = if view.state.is_dirty {
            Some(0)
        } else {
            view.state
                .consistent_below_bytes
                .map(|bytes| bytes / SECTOR_BYTES)
        };
    }

    /// Bad ranges of the data area as absolute sectors.
    fn log_of(superblock: &Superblock, bad: &RangeSet) -> Option<BadBlocks> {
        let area = superblock.bad_block_log?;
        let mut log = BadBlocks::new(area.size_sectors, area.shift).ok()?;
        for range in bad.iter() {
            let sectors = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
            // In a reshape they are counted in the new geometry, as the volume that commits has them.
            let data = reshaped_offset_sectors(superblock);
            log.add(data + sectors.start..data + sectors.end).ok()?;
        }
        Some(log)
    }

    fn free_dev_number(&self) -> u32 {
        let used: Vec<u32> = self
            .members
            .iter()
            .flatten()
            .map(|member| member.superblock.dev_number)
            .collect();
        let first = self.template().member_count;
        (first..)
            .find(|number| !used.contains(number))
            .expect("dev numbers do not end")
    }

    /// First and end data sector of a new member, as the others have it.
    fn place(&self, device_sectors: u64) -> Result<Range<u64>, String> {
        let template = self.template();
        let too_small = || format!("the device has {device_sectors} sectors, too few for a member");
        match template.version {
            MdVersion::V11 | MdVersion::V12 => {
                let start = template.data_offset_sectors;
                if start >= device_sectors {
                    Err(too_small())
                } else {
                    Ok(start..device_sectors)
                }
            }
            MdVersion::V10 => {
                let super_offset =
                    super_offset_sectors(MdVersion::V10, device_sectors).ok_or_else(too_small)?;
                // Bitmap and bad-block log lie before the superblock, at the same distance on every member.
                let bitmap = template
                    .bitmap_offset_sectors
                    .map_or(0, |offset| u64::from(offset.min(0).unsigned_abs()));
                let bitmap = bitmap.max(template.ppl.map_or(0, |area| {
                    u64::from(area.offset_sectors.min(0).unsigned_abs())
                }));
                let log = template.bad_block_log.map_or(0, |area| {
                    u64::from(area.offset_sectors.min(0).unsigned_abs())
                });
                let end = super_offset
                    .checked_sub(bitmap.max(log).max(TAIL_ROOM_SECTORS))
                    .ok_or_else(too_small)?;
                Ok(template.data_offset_sectors..end)
            }
            MdVersion::V090 => {
                let super_offset =
                    super_offset_sectors(MdVersion::V090, device_sectors).ok_or_else(too_small)?;
                Ok(0..super_offset)
            }
        }
    }
}

impl Metadata for MdMetadata {
    fn format_name(&self) -> String {
        format!("md {}", self.template().version.name())
    }

    fn superblock(
        &mut self,
        member: MemberId,
        view: &CommitView<'_>,
        bad: &RangeSet,
        info: &DeviceInfo,
    ) -> Vec<MetadataWrite> {
        self.end_of_move();
        let goal = self.goal_write(member);
        let roles = self.roles(view);
        let lead = self.lead(view);
        let record = view.state.record(member).clone();
        let Some(Some(known)) = self.members.get_mut(usize::from(member.0)) else {
            return Vec::new();
        };
        let superblock = &mut known.superblock;
        if let Some(lead) = lead {
            follow(superblock, &lead);
        }
        Self::fill(superblock, &roles, view);
        (
            superblock.rebuild_offset_sectors,
            superblock.is_bitmap_rebuild,
        ) = match record.standing {
            Standing::Rebuilding {
                valid_below_bytes,
                by_bitmap,
            } if superblock.version.has_rebuild_offset() => {
                (Some(valid_below_bytes / SECTOR_BYTES), by_bitmap)
            }
            _ => (None, false),
        };
        if let Some(moving) = &self.moving {
            moving.put(superblock, member);
        }
        superblock.is_replacement =
            record.is_replacement && superblock.version.has_rebuild_offset();
        superblock.is_write_mostly = record.is_write_mostly;
        superblock.has_bad_blocks = !bad.is_empty();
        let mut writes = Vec::from_iter(goal);
        if (!bad.is_empty() || known.has_log_content)
            && let (Some(sector), Some(log)) = (
                superblock.bad_block_log_sector(),
                Self::log_of(superblock, bad),
            )
        {
            writes.push(MetadataWrite {
                at_bytes: sector * SECTOR_BYTES,
                bytes: log.encode(),
            });
            known.has_log_content = !bad.is_empty();
        }
        let length = superblock.write_bytes(info.sector_bytes as usize);
        let bytes = superblock.encode()[..length].to_vec();
        writes.push(MetadataWrite {
            at_bytes: superblock.super_offset_sectors * SECTOR_BYTES,
            bytes,
        });
        writes
    }

    fn has_commits(&self) -> bool {
        self.has_commits
    }

    fn is_commit_due(&self) -> bool {
        self.is_due
    }

    fn has_room_for_bad(&self, member: MemberId, bad: &RangeSet) -> bool {
        self.member(member)
            .is_some_and(|member| Self::log_of(&member.superblock, bad).is_some())
    }

    fn bitmap_offset_bytes(&self, member: MemberId) -> Option<u64> {
        self.bitmap.as_ref()?;
        self.member(member)?
            .superblock
            .bitmap_sector()
            .map(|sector| sector * SECTOR_BYTES)
    }

    fn plan_bitmap(
        &self,
        rings: &[Option<LogArea>],
        sync_bytes: u64,
        region_bytes: Option<u64>,
        event_count: u64,
    ) -> Result<BitmapPlan, String> {
        let superblocks: Vec<Option<&Superblock>> = self
            .members
            .iter()
            .map(|member| member.as_ref().map(|member| &member.superblock))
            .collect();
        let start = |ring: &Option<LogArea>| ring.map(|ring| ring.ring_sector);
        let rings: Vec<Option<u64>> = rings.iter().map(start).collect();
        plan_bitmap(&superblocks, &rings, sync_bytes, region_bytes, event_count)
    }

    fn set_bitmap(&mut self, plan: Option<&BitmapPlan>) {
        self.bitmap =
            plan.and_then(|plan| BitmapHeader::parse(&plan.header, 0, u64::from(u32::MAX)).ok());
        for member in self.members.iter_mut().flatten() {
            member.superblock.bitmap_offset_sectors = plan.map(|plan| plan.offset_sectors);
        }
    }

    fn bitmap_header(&self, event_count: u64) -> Vec<u8> {
        let Some(header) = &self.bitmap else {
            return Vec::new();
        };
        let mut header = header.clone();
        header.events = EventCount(event_count);
        header.encode().to_vec()
    }

    fn note_whole(&mut self, event_count: u64) -> bool {
        let Some(header) = self.bitmap.as_mut() else {
            return false;
        };
        let is_news = header.events_cleared.0 != event_count;
        header.events_cleared = EventCount(event_count);
        is_news
    }

    fn events_cleared(&self) -> u64 {
        self.bitmap
            .as_ref()
            .map_or(u64::MAX, |header| header.events_cleared.0)
    }

    fn log_header(&self, member: MemberId, area: Option<LogArea>) -> Result<LogHeader, NoLog> {
        let known = self.member(member).ok_or(NoLog::NoParity)?;
        let bitmap = self.bitmap.as_ref().map_or(0, bitmap_sectors);
        let area = match area {
            Some(area) => area,
            None => plan_area(&known.superblock, bitmap)?,
        };
        Ok(LogHeader::blank(&known.superblock, area))
    }

    fn ppl_place(&self, member: MemberId) -> Option<(Range<u64>, u32)> {
        let superblock = &self.member(member)?.superblock;
        let start = superblock.ppl_sector()? * SECTOR_BYTES;
        let length = u64::from(superblock.ppl?.size_sectors) * SECTOR_BYTES;
        Some((
            start..start + length,
            ppl::signature(&superblock.array_uuid),
        ))
    }

    fn check_ppl(&self) -> Result<(), String> {
        let known = self.members.iter().flatten();
        for member in known {
            plan_ppl(&member.superblock)?;
        }
        Ok(())
    }

    fn set_ppl(&mut self, is_wanted: bool) {
        for member in self.members.iter_mut().flatten() {
            let area = plan_ppl(&member.superblock).ok();
            member.superblock.ppl = area.filter(|_| is_wanted);
        }
    }

    fn is_ppl_ring(&self, member: MemberId) -> bool {
        let area = self.member(member).and_then(|member| member.superblock.ppl);
        area.is_some_and(|area| area.is_multiple)
    }

    fn superblock_hash(&self, member: MemberId) -> [u8; 16] {
        let known = self.member(member);
        known.map_or([0; 16], |member| superblock_hash(&member.superblock))
    }

    fn add_member(
        &mut self,
        member: MemberId,
        identity: [u8; 16],
        info: &DeviceInfo,
    ) -> Result<NewMemberPlace, String> {
        let device_sectors = info.size_bytes / SECTOR_BYTES;
        let data = self.place(device_sectors)?;
        let template = self.template();
        let new = NewMember {
            version: template.version,
            array_uuid: template.array_uuid,
            name: &template.name,
            ctime: template.ctime,
            level: template.level,
            layout: template.layout,
            component_sectors: template.component_sectors,
            strip_sectors: template.strip_sectors,
            member_count: template.member_count,
            data_offset_sectors: data.start,
            data_size_sectors: data.end - data.start,
            device_sectors,
            dev_number: self.free_dev_number(),
            device_uuid: identity,
            roles: &template.roles,
            events: template.events,
            resync_offset_sectors: template.resync_offset_sectors,
            bitmap_offset_sectors: template.bitmap_offset_sectors,
            bad_block_log: template.bad_block_log,
            is_write_mostly: false,
        };
        let (ppl, logical_block_bytes) = (template.ppl, template.logical_block_bytes);
        let mut superblock = Superblock::create(&new).map_err(|error| error.to_string())?;
        superblock.ppl = ppl;
        superblock.logical_block_bytes = logical_block_bytes;
        superblock
            .check_encodable()
            .map_err(|error| error.to_string())?;
        if usize::try_from(superblock.dev_number)
            .map_or(true, |number| number >= superblock.max_roles())
        {
            return Err(format!(
                "{} has no room for another member",
                self.format_name()
            ));
        }
        let index = usize::from(member.0);
        if self.members.len() <= index {
            self.members.resize_with(index + 1, || None);
        }
        self.members[index] = Some(MdMember {
            superblock,
            has_log_content: true,
            goal: None,
        });
        Ok(NewMemberPlace {
            data: data.start * SECTOR_BYTES..data.end * SECTOR_BYTES,
        })
    }

    fn data_start_bytes(&self, info: &DeviceInfo) -> Option<u64> {
        let place = self.place(info.size_bytes / SECTOR_BYTES).ok()?;
        Some(place.start * SECTOR_BYTES)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn as_any_mut(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }

    fn forget_member(&mut self, member: MemberId) {
        if let Some(place) = self.members.get_mut(usize::from(member.0)) {
            *place = None;
        }
    }
}
