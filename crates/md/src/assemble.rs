//! Joining members at start: from examined superblocks to an array, or to a refusal. Pure.
//!
//! Invariants:
//! - a stale member raises nobody's event count, and gets no slot but where the user insists and the fresh ones are too
//!   few (W7);
//! - nothing is written: a refusal leaves every member as it was (W4: with all members back it is an ordinary start);
//! - the answer depends only on the arguments, and each member given has exactly one entry in it.
//!
//! Source: linux-md.md section 9; write-order.md W4, W7, W8; cli.md "Settled details".

mod history;
mod join;
mod logs;
mod problem;
mod reading;
mod stale;
mod start;
#[cfg(test)]
mod tests;

pub use problem::{AssembleCode, AssembleError};
use stale::Taken;

use std::ops::Range;

use plexum_format::FormatError;
use plexum_format::md::{BitmapHeader, MdVersion, Superblock};
use plexum_format::stripe_log::{LogHeader, NoLog};
use plexum_format::units::EventCount;
use plexum_format::uuid::md_uuid_text;

use crate::reshape::{Goal, levelled};
use plexum_engine::mutant::DeliberateBug;
use plexum_layout::{Geometry, GeometrySpec, Raid0Layout};

/// A member with a valid superblock, as it was found.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The caller's number for it; comes back in the answer.
    pub index: usize,
    /// How messages call it: its path.
    pub name: String,
    /// Size of the device in bytes.
    pub device_bytes: u64,
    /// What is on it.
    pub superblock: Superblock,
    /// The header of its copy of the bitmap; `None` when there is none or it cannot be read.
    pub bitmap: Option<BitmapHeader>,
    /// What of its structures beside the superblock cannot be used.
    pub refused: Refused,
    /// The header of its ring of the stripe log, with what speaks against it (L1); `None` when there is none.
    pub log: Option<(LogHeader, Option<NoLog>)>,
    /// Where a change leads that is under way, as it says; `None` when it says nothing.
    pub goal: Option<Goal>,
}

/// Structures of a member that are there and cannot be used.
#[derive(Clone, Debug, Default)]
pub struct Refused {
    /// Its copy of the bitmap.
    pub bitmap: Option<FormatError>,
    /// Its bad block log is damaged or unreadable: what is wrong, as a clause. Nobody knows which of its blocks are
    /// right.
    pub bad_blocks: Option<String>,
}

/// What the user insists on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `--force`: start a dirty, degraded parity array (W8); on a split brain keep the half of the first named member.
    pub force: bool,
    /// `--run-degraded`: start without a member that took part at the last commit.
    pub run_degraded: bool,
    /// `--read-only`: nothing will be written, so what this version cannot write may be started.
    pub read_only: bool,
    /// `--force-data`: answer reads of rows in doubt with what is there.
    pub force_data: bool,
    /// What `force` may do with members that missed writes, where the fresh ones are too few.
    pub stale: StaleUse,
    /// `--raid0-layout`: order of the members in a RAID-0's further zones, where the superblock does not say.
    pub raid0_layout: Option<Raid0Layout>,
    /// A reshape that is under way goes on: the array is written to in two geometries.
    pub goes_on_reshaping: bool,
    /// `--backup-file`: what a reshape in place was moving is read from there.
    pub has_backup: bool,
}

/// What a forced start may do with members that missed writes (W7, forced): nobody takes them who has not named them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StaleUse {
    /// They are left out.
    #[default]
    Never,
    /// The members were named: the least stale ones are read.
    Read,
    /// And written, as was asked for as well.
    Write,
}

/// What a member may be used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssembledStanding {
    /// Holds its slot's data completely.
    Active,
    /// Is being filled for its slot.
    Rebuilding {
        /// Member bytes (from the data offset) below this are valid.
        valid_below_bytes: u64,
        /// Above it only regions that the bitmap marks are invalid.
        by_bitmap: bool,
    },
    /// Ready to take a slot.
    Spare,
    /// Holds the write journal.
    Journal,
    /// Missed writes: not used.
    Stale {
        /// Its event count.
        events: EventCount,
        /// The array's.
        newest: EventCount,
        /// Whether a re-add may copy only the regions that the bitmap marks.
        fits_bitmap: bool,
    },
    /// The array (or the member itself) records it as failed: not used.
    Faulty,
    /// Its superblock contradicts the freshest one: not used.
    Unusable,
}

impl AssembledStanding {
    /// Whether the array makes use of the member.
    #[must_use]
    pub fn is_used(&self) -> bool {
        matches!(
            self,
            AssembledStanding::Active
                | AssembledStanding::Rebuilding { .. }
                | AssembledStanding::Spare
                | AssembledStanding::Journal
        )
    }
}

/// One of the members given, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembledMember {
    /// The caller's number for it.
    pub index: usize,
    /// As given.
    pub name: String,
    /// Its permanent number in the role table.
    pub dev_number: u32,
    /// Its slot: `Active` and `Rebuilding` members only.
    pub slot: Option<u16>,
    /// What it may be used for.
    pub standing: AssembledStanding,
    /// Copies the `Active` member of the same slot (`replace`).
    pub is_replacement: bool,
    /// Not read unless nothing else is left.
    pub is_write_mostly: bool,
    /// Its own event count.
    pub events: EventCount,
    /// First byte of its data.
    pub data_offset_bytes: u64,
    /// First byte of its data in the part that a reshape has done; `data_offset_bytes` without a reshape.
    pub reshaped_offset_bytes: u64,
    /// Bytes for data.
    pub data_size_bytes: u64,
    /// Why it is not used, as a clause: "it is stale: event count 41, newest is 57".
    pub reason: Option<String>,
    /// Why it should not be used, though the user has insisted on it, as a clause.
    pub caution: Option<String>,
}

/// Whether the write-intent bitmap tells what may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BitmapUse {
    /// The array has none.
    None,
    /// It has one that missed changes or cannot be read: everything may differ. It must be written anew.
    Stale,
    /// The regions marked on any of the sources may differ, the others agree.
    Usable {
        /// A returning member with at least this event count needs only the marked regions.
        events_cleared: EventCount,
        /// Members (the caller's numbers) whose bits count together.
        sources: Vec<usize>,
    },
}

impl BitmapUse {
    /// Event count from which a returning member needs only the marked regions; `None` without a usable bitmap.
    #[must_use]
    pub fn events_cleared(&self) -> Option<EventCount> {
        match self {
            BitmapUse::Usable { events_cleared, .. } => Some(*events_cleared),
            BitmapUse::None | BitmapUse::Stale => None,
        }
    }
}

/// What the stripe log is good for at this start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogUse {
    /// The array has none.
    None,
    /// It has one that may not be used (L1): the policy is `bitmap`.
    Refused {
        /// Why.
        reason: NoLog,
    },
    /// It has one, and what it holds does not count: somebody else has had the array (L6), or nothing was under way.
    Void,
    /// What it holds has to be replayed, and makes every row right below `doubt_from_bytes` (`None`: everywhere).
    Replay {
        /// Member bytes from here on may have wrong parity all the same.
        doubt_from_bytes: Option<u64>,
    },
}

impl LogUse {
    /// Whether the array has a log that can be used from now on.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        matches!(self, LogUse::Void | LogUse::Replay { .. })
    }

    /// Whether a replay leaves no row in doubt.
    #[must_use]
    pub fn makes_all_right(&self) -> bool {
        matches!(
            self,
            LogUse::Replay {
                doubt_from_bytes: None
            }
        )
    }
}

/// The device of md's write journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalUse {
    /// The array has none.
    None,
    /// It is among the members.
    Here,
    /// It is not here, and the user wants to read the array without it.
    Absent,
}

/// Rows of a forced start that may be wrong (W8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// None.
    None,
    /// The regions that the bitmap marks.
    MarkedRegions,
    /// All rows from this member byte on.
    From {
        /// Member offset in bytes.
        start_bytes: u64,
    },
}

/// A reshape in the middle: volume bytes on the done side of the position follow `after`, the others
/// `Assembly::geometry`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembledReshape {
    /// Geometry of the part that is done.
    pub after: Geometry,
    /// Border, in volume bytes.
    pub position_bytes: u64,
    /// Done is the part at and above the border (else: below it).
    pub is_backwards: bool,
    /// Volume bytes in the old geometry that may be overwritten: the reshape moves data onto themselves.
    pub torn: Option<Range<u64>>,
}

impl AssembledReshape {
    /// Whether the reshape, which fills `member`, has given it all that it has in the part that is done. Backwards
    /// nothing is recorded.
    #[must_use]
    pub fn has_filled(&self, member: &AssembledMember) -> bool {
        match member.standing {
            AssembledStanding::Rebuilding {
                valid_below_bytes, ..
            } => {
                let data_count = self.after.data_count() as u64;
                !self.is_backwards && valid_below_bytes >= self.position_bytes.div_ceil(data_count)
            }
            _ => false,
        }
    }

    /// Whether `member`, which a reshape filled before it was turned round, has all that is left of the geometry that
    /// is left, `before`: of rows that it was given none is without it, moved back or not.
    #[must_use]
    pub fn has_filled_before(&self, member: &AssembledMember, before: &Geometry) -> bool {
        match member.standing {
            AssembledStanding::Rebuilding {
                valid_below_bytes,
                by_bitmap: false,
            } => {
                let data_count = before.data_count() as u64;
                self.is_backwards && valid_below_bytes >= self.position_bytes.div_ceil(data_count)
            }
            _ => false,
        }
    }
}

/// What the array is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayDescription {
    /// Identity, in md's display order.
    pub uuid: [u8; 16],
    /// `host:name`, or what the superblock has; empty in 0.90.
    pub name: String,
    /// Version of the superblocks.
    pub version: MdVersion,
    /// Event count of the freshest member.
    pub events: EventCount,
    /// Level, layout, strip and sizes.
    pub spec: GeometrySpec,
}

/// Members that make a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// What the array is.
    pub array: ArrayDescription,
    /// The address map of `array.spec`.
    pub geometry: Geometry,
    /// Size of the volume in bytes (during a reshape: the smaller of both).
    pub volume_bytes: u64,
    /// Every member given, in that order.
    pub members: Vec<AssembledMember>,
    /// The member (the caller's number) whose superblock describes the array.
    pub freshest: usize,
    /// Slots without a complete member; a `Rebuilding` one may be there.
    pub missing_slots: Vec<u16>,
    /// Whether a slot lacks its complete member.
    pub is_degraded: bool,
    /// Redundancy may be wrong from here on (bytes: of the members, RAID-10: of the volume); `None`: clean.
    pub resync_start_bytes: Option<u64>,
    /// Whether the bitmap limits the resync.
    pub bitmap: BitmapUse,
    /// What the stripe log is good for.
    pub log: LogUse,
    /// md's write journal: what was answered may be there only, and the array counts as clean all the same.
    pub journal: JournalUse,
    /// md's partial parity log is in use: it has to be replayed when the array is dirty, and written.
    pub has_ppl: bool,
    /// Rows that may be wrong because the start was forced.
    pub doubt: Doubt,
    /// Reads in doubt are answered with what is there (`--force-data`).
    pub serves_doubtful_data: bool,
    /// May only be read: journal, reshape, or members that missed writes.
    pub is_read_only: bool,
    /// A reshape in the middle.
    pub reshape: Option<AssembledReshape>,
    /// Requests must be multiples of this (the superblock's logical block size); 0: nothing is said.
    pub logical_block_bytes: u32,
    /// Where the bitmap says nothing that can be relied on, redundancy is not: rows are in doubt though the array is
    /// clean.
    pub is_unproven: bool,
    /// Things worth knowing, one sentence each.
    pub notes: Vec<String>,
}

impl Assembly {
    /// By slot, whether it has no complete member.
    #[must_use]
    pub fn missing(&self) -> Vec<bool> {
        let slot_count = self
            .reshape
            .as_ref()
            .map_or(0, |r| r.after.member_count())
            .max(self.geometry.member_count());
        (0..slot_count)
            .map(|slot| self.missing_slots.iter().any(|s| usize::from(*s) == slot))
            .collect()
    }

    /// Whether members are used that missed writes (W7, forced).
    #[must_use]
    pub fn mixes_two_times(&self) -> bool {
        let has_redundancy = self.geometry.organisation().level().has_redundancy();
        has_redundancy && self.members.iter().any(|member| member.caution.is_some())
    }

    /// Whether superblocks say that writes were under way, or a resync has not ended.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.resync_start_bytes.is_some()
    }

    /// The complete member of a slot.
    #[must_use]
    pub fn active(&self, slot: u16) -> Option<&AssembledMember> {
        self.members
            .iter()
            .find(|m| m.slot == Some(slot) && m.standing == AssembledStanding::Active)
    }
}

/// Decides whether and how `examined` make a volume. Nothing is read or written.
///
/// # Errors
/// [`AssembleError`]: its code has the slug and the exit code.
pub fn assemble(examined: &[Examined], options: &Options) -> Result<Assembly, AssembleError> {
    assemble_with(examined, options, DeliberateBug::NONE)
}

/// The same, with a deliberate bug of this decision or none.
pub(crate) fn assemble_with(
    examined: &[Examined],
    options: &Options,
    bug: DeliberateBug,
) -> Result<Assembly, AssembleError> {
    // Who was left behind by an interrupted update is judged as that update would have left him (R9).
    let levelled = levelled(examined);
    let examined = levelled.as_deref().unwrap_or(examined);
    put_together(examined, options, bug)
        .map_err(|error| stale::with_way_out(examined, options, error))
}

/// What the members say happened to them, when they are of one array and each is given once.
fn history_of(examined: &[Examined], options: &Options) -> Result<history::History, AssembleError> {
    history::check_one_array(examined)?;
    history::check_nobody_twice(examined)?;
    history::choose(examined, options)
}

/// The same options; `is_only_read`: nothing may be written, whatever they say.
fn only_read(options: &Options, is_only_read: bool) -> Options {
    Options {
        read_only: options.read_only || is_only_read,
        ..*options
    }
}

fn put_together(
    examined: &[Examined],
    options: &Options,
    bug: DeliberateBug,
) -> Result<Assembly, AssembleError> {
    let history = history_of(examined, options)?;
    let newest = &examined[history.freshest].superblock;
    let name = display_name(newest);
    start::check_features(&name, newest, options)?;
    let slot_count = start::slot_count(&name, newest)?;
    let bitmap = logs::judge_bitmap(examined, newest);
    let judge = join::Judge::new(newest, slot_count, &bitmap, bug);
    let mut members = join::join(examined, &history, &judge)?;
    stale::take_all(examined, &history, &judge, &mut members, options);
    let (spec, geometry) = start::geometry(&name, newest, &members, options)?;
    let reshape = start::reshape(&name, newest, &spec, &geometry)?;
    let halves = (&geometry, reshape.as_ref(), slot_count);
    let check_enough = |members: &[AssembledMember]| start::check_halves(&name, halves, members);
    let is_enough = |members: &[AssembledMember]| check_enough(members).is_ok();
    let taken = stale::take_needed(examined, &history, &judge, &mut members, options, is_enough);
    check_enough(&members)?;
    start::check_torn(&name, reshape.as_ref(), options)?;
    logs::check_journal(&name, newest, &members, options)?;
    let journal = logs::judge_journal(newest, &members);
    let is_only_read = stale::is_only_read(taken, &geometry, &mut members, bug);
    let options = &only_read(options, is_only_read);
    let (is_unproven, notes) = reading::check(&name, newest, examined, &members, options)?;
    let missing = start::missing_before(&geometry, reshape.as_ref(), slot_count, &members);
    let resync_start_bytes = start::resync_start_bytes(newest, &geometry);
    let log = match logs::judge_log(examined, &members, resync_start_bytes, options) {
        log if taken != Taken::Nobody && log.is_usable() => LogUse::Void, // rings of two times
        log => log,
    };
    logs::check_answers_in_log(&name, newest, examined, &members, &log, options)?;
    let has_ppl = newest.ppl.is_some() && !options.read_only;
    // Dirty with a partial parity log counts as clean, once it was replayed (linux-md.md 5).
    let is_mended = has_ppl && resync_start_bytes == Some(0) || log.makes_all_right();
    let open_bytes = resync_start_bytes.filter(|_| !is_mended);
    let written = reshape.as_ref().filter(|_| options.goes_on_reshaping);
    let lost = |reshape| start::missing_after(reshape, slot_count, &members);
    let after = written.map(|reshape| (&reshape.after, lost(reshape)));
    let both = std::iter::once((&geometry, missing.clone())).chain(after);
    let doubt = start::check_dirty_in(&name, both, open_bytes, &bitmap, options)?;
    start::check_expected(&name, newest, slot_count, &members, options)?;

    Ok(Assembly {
        array: describe(newest, spec),
        volume_bytes: volume_bytes(&geometry, reshape.as_ref()),
        members,
        freshest: examined[history.freshest].index,
        is_degraded: missing.contains(&true),
        missing_slots: (0..)
            .zip(missing)
            .filter_map(|(slot, is)| is.then_some(slot))
            .collect(),
        resync_start_bytes,
        bitmap,
        log,
        journal,
        has_ppl,
        doubt,
        serves_doubtful_data: options.force_data,
        is_read_only: options.read_only, // a journal or a reshape is refused without it
        reshape,
        logical_block_bytes: logical_block_bytes(newest, &geometry),
        is_unproven,
        notes,
        geometry,
    })
}

/// Size as clients see it: in a reshape the smaller of both.
fn volume_bytes(geometry: &Geometry, reshape: Option<&AssembledReshape>) -> u64 {
    let after_bytes = reshape.map_or(u64::MAX, |reshape| reshape.after.volume_bytes());
    geometry.volume_bytes().min(after_bytes)
}

/// Blocks that do not divide the volume would leave its end out of reach.
fn logical_block_bytes(newest: &Superblock, geometry: &Geometry) -> u32 {
    let divides = 1 << geometry.volume_bytes().trailing_zeros().min(16);
    newest.logical_block_bytes.min(divides)
}

fn describe(newest: &Superblock, spec: GeometrySpec) -> ArrayDescription {
    ArrayDescription {
        uuid: newest.array_uuid,
        name: newest.name.clone(),
        version: newest.version,
        events: newest.events,
        spec,
    }
}

/// How messages call the array: its name without the host, or `md-` and the first digits of its UUID.
fn display_name(newest: &Superblock) -> String {
    let bare = newest
        .name
        .split_once(':')
        .map_or(newest.name.as_str(), |(_, name)| name);
    if bare.is_empty() {
        format!("md-{}", &md_uuid_text(&newest.array_uuid)[..8])
    } else {
        bare.to_owned()
    }
}
