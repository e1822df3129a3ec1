//! What the engine asks of an on-disk format: where its metadata go and what they say.

use std::any::Any;
use std::ops::Range;

use plexum_format::stripe_log::{LogArea, LogHeader, NoLog};

use crate::state::{ArrayState, FailCause, MemberId};
use plexum_block::device::DeviceInfo;
use plexum_block::ranges::RangeSet;

/// One piece of metadata to be written to a member's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataWrite {
    /// Byte offset on the device; a multiple of its sector.
    pub at_bytes: u64,
    /// Whole sectors.
    pub bytes: Vec<u8>,
}

/// What a superblock commit is about to say.
pub struct CommitView<'a> {
    /// State of the array.
    pub state: &'a ArrayState,
    /// Event count of this commit.
    pub event_count: u64,
    /// Seconds since 1970.
    pub wall_seconds: u64,
    /// Whether some regions may still be inconsistent.
    pub is_doubtful: bool,
    /// Whether answered writes may be in the stripe log only while the array is dirty (L5).
    pub answers_from_log: bool,
}

/// Where a new member keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMemberPlace {
    /// Data area on the device, in bytes.
    pub data: Range<u64>,
}

/// A bitmap for an array that has none: what to write before any superblock points to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapPlan {
    /// Bytes of a region.
    pub region_bytes: u64,
    /// Its superblock, to be put at the start of the area.
    pub header: Vec<u8>,
    /// Where the area begins on each member's device, in bytes; by `MemberId`, `None` for members that are not there.
    pub starts_bytes: Vec<Option<u64>>,
    /// Sectors from a member's superblock to the area, the same on all.
    pub offset_sectors: i32,
}

/// Translates the model to one format. Pure: no I/O, no clock, no random source.
pub trait Metadata {
    /// Name of the format for people: `md 1.2`.
    fn format_name(&self) -> String;

    /// The member's metadata for this commit, in the order in which they must be written (bad-block list first). `bad`:
    /// its bad ranges in data bytes. Empty for a member that has none of its own.
    fn superblock(
        &mut self,
        member: MemberId,
        view: &CommitView<'_>,
        bad: &RangeSet,
        info: &DeviceInfo,
    ) -> Vec<MetadataWrite>;

    /// Whether this format writes superblocks at all while the array runs (linear and RAID-0 never change).
    fn has_commits(&self) -> bool;

    /// Whether what the start has decided must be durable before anything is read: members differ, or may.
    fn is_commit_due(&self) -> bool {
        false
    }

    /// Whether another bad range can be recorded on this member; never in a format without a list of them.
    fn has_room_for_bad(&self, member: MemberId, bad: &RangeSet) -> bool {
        let _ = (member, bad);
        false
    }

    /// Byte offset of the bitmap area on a member's device; `None` without a bitmap.
    fn bitmap_offset_bytes(&self, member: MemberId) -> Option<u64> {
        let _ = member;
        None
    }

    /// Plans a bitmap over `sync_bytes` for an array that has none; nothing changes yet. `region_bytes`: as asked for,
    /// or chosen so that it fits. `rings`: the stripe log's place on each member, which it must not reach (L1).
    ///
    /// # Errors
    /// A sentence: no room, a region size that does not fit, something that excludes a bitmap.
    fn plan_bitmap(
        &self,
        rings: &[Option<LogArea>],
        sync_bytes: u64,
        region_bytes: Option<u64>,
        event_count: u64,
    ) -> Result<BitmapPlan, String> {
        let _ = (rings, sync_bytes, region_bytes, event_count);
        Err(format!("{} has no bitmap", self.format_name()))
    }

    /// From now on superblocks name the planned bitmap (its areas are durable), or none.
    fn set_bitmap(&mut self, plan: Option<&BitmapPlan>) {
        let _ = plan;
    }

    /// The bitmap's superblock, to be put at the start of the bitmap area.
    fn bitmap_header(&self, event_count: u64) -> Vec<u8> {
        let _ = event_count;
        Vec::new()
    }

    /// Notes that the array was whole at `event_count` (md's events_cleared). Says whether the header changed.
    fn note_whole(&mut self, event_count: u64) -> bool {
        let _ = event_count;
        false
    }

    /// A member has failed, and why; the commit that follows may say so.
    fn note_failure(&mut self, member: MemberId, cause: FailCause) {
        let _ = (member, cause);
    }

    /// The event count up to which a returning member can be brought up to date by the bitmap: nobody can without one.
    fn events_cleared(&self) -> u64 {
        u64::MAX
    }

    /// Identity and geometry of a member as its log's header carries them, for the ring in `area` or, without one,
    /// where a ring can be.
    ///
    /// # Errors
    /// Why there can be no log (L1).
    fn log_header(&self, member: MemberId, area: Option<LogArea>) -> Result<LogHeader, NoLog> {
        let _ = (member, area);
        Err(NoLog::NoParity)
    }

    /// Bytes of a member that hold md's partial parity log, and the number that its headers carry; `None`: there is
    /// none.
    fn ppl_place(&self, member: MemberId) -> Option<(Range<u64>, u32)> {
        let _ = member;
        None
    }

    /// Why the array cannot have md's partial parity log, once it has neither bitmap nor stripe log.
    ///
    /// # Errors
    /// A sentence.
    fn check_ppl(&self) -> Result<(), String> {
        Err(format!("{} has no partial parity log", self.format_name()))
    }

    /// From now on superblocks name a partial parity log, or none. `check_ppl` was asked before.
    fn set_ppl(&mut self, is_wanted: bool) {
        let _ = is_wanted;
    }

    /// Whether that area may hold several units.
    fn is_ppl_ring(&self, member: MemberId) -> bool {
        let _ = member;
        false
    }

    /// Hash of the superblock that was last made for a member (L6).
    fn superblock_hash(&self, member: MemberId) -> [u8; 16] {
        let _ = member;
        [0; 16]
    }

    /// Lays out a new member on a device. `identity` is its new random identity.
    ///
    /// # Errors
    /// A sentence when it does not fit (too small).
    fn add_member(
        &mut self,
        member: MemberId,
        identity: [u8; 16],
        info: &DeviceInfo,
    ) -> Result<NewMemberPlace, String>;

    /// Where `add_member` would put the first byte of data of a device; `None`: it would not, or whoever comes back is
    /// filled as a whole anyway.
    fn data_start_bytes(&self, info: &DeviceInfo) -> Option<u64> {
        let _ = info;
        None
    }

    /// Takes a removed member's metadata out of the tables; a format whose members never change has nothing to do.
    fn forget_member(&mut self, member: MemberId) {
        let _ = member;
    }

    /// Itself, for whoever knows the format and asks it what only that format has.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }

    /// Takes back `add_member`: the device did not become a member, and its id will be given again.
    fn withdraw_member(&mut self, member: MemberId) {
        self.forget_member(member);
    }
}

/// Metadata that never change while a volume runs: of volumes without redundancy, and of members whose state is kept
/// elsewhere. Writes nothing, ever.
pub struct PlainMetadata {
    format_name: String,
}

impl PlainMetadata {
    /// Metadata of a format that is called `format_name` in messages.
    #[must_use]
    pub fn new(format_name: &str) -> Self {
        Self {
            format_name: format_name.to_owned(),
        }
    }
}

impl Metadata for PlainMetadata {
    fn format_name(&self) -> String {
        self.format_name.clone()
    }

    fn superblock(
        &mut self,
        _member: MemberId,
        _view: &CommitView<'_>,
        _bad: &RangeSet,
        _info: &DeviceInfo,
    ) -> Vec<MetadataWrite> {
        Vec::new()
    }

    fn has_commits(&self) -> bool {
        false
    }

    fn add_member(
        &mut self,
        _member: MemberId,
        _identity: [u8; 16],
        _info: &DeviceInfo,
    ) -> Result<NewMemberPlace, String> {
        Err(format!(
            "a {} volume takes no other members",
            self.format_name
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A format that knows nothing but its members.
    struct Bare;

    impl Metadata for Bare {
        fn format_name(&self) -> String {
            "bare".to_owned()
        }
        fn superblock(
            &mut self,
            _: MemberId,
            _: &CommitView<'_>,
            _: &RangeSet,
            _: &DeviceInfo,
        ) -> Vec<MetadataWrite> {
            Vec::new()
        }
        fn has_commits(&self) -> bool {
            false
        }
        fn add_member(
            &mut self,
            _: MemberId,
            _: [u8; 16],
            _: &DeviceInfo,
        ) -> Result<NewMemberPlace, String> {
            Err("no".to_owned())
        }
    }

    #[test]
    fn a_format_that_says_nothing_more_has_no_bitmap_no_log_and_no_bad_blocks() {
        let (mut bare, member) = (Bare, MemberId(0));
        assert!(!bare.has_room_for_bad(member, &RangeSet::new()));
        assert_eq!(bare.bitmap_offset_bytes(member), None);
        assert_eq!(
            bare.plan_bitmap(&[], 1 << 20, None, 1).err().as_deref(),
            Some("bare has no bitmap")
        );
        assert!(bare.bitmap_header(7).is_empty());
        assert!(!bare.note_whole(7), "no header to write");
        assert_eq!(
            bare.events_cleared(),
            u64::MAX,
            "nobody comes back by a bitmap"
        );
        assert_eq!(bare.log_header(member, None).err(), Some(NoLog::NoParity));
        assert_eq!(bare.ppl_place(member), None);
        assert_eq!(
            bare.check_ppl().err().as_deref(),
            Some("bare has no partial parity log")
        );
        assert!(!bare.is_ppl_ring(member));
        assert_eq!(bare.superblock_hash(member), [0; 16], "bound to no log");
    }
}
