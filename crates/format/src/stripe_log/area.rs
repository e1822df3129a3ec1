//! Where a member's ring lies (L1): between md's own structures and the data, in space that md leaves free.
//!
//! Invariants:
//! - the header lies in the last page before the data: when the data move, or md's structures grow over it, it is not
//!   found, and there is no log;
//! - a ring is compared with everything else on the member, at creation and before every start.
//!
//! Source: write-order.md L1; linux-md.md 1 (layout of a member).

use std::fmt;
use std::ops::Range;

use super::{PAGE_BYTES, SLOTS_MAX};
use crate::md::{MdVersion, Superblock};
use crate::units::SECTOR_BYTES;

/// Sectors of a page.
const PAGE_SECTORS: u64 = PAGE_BYTES as u64 / SECTOR_BYTES;
/// Smallest gap that is worth a log (L1), and the room of it that md may still want (a larger bitmap).
const GAP_BYTES_MIN: u64 = 256 << 10;
/// Of a larger gap, so much is left for a larger bitmap of md's.
const SPARED_BYTES: u64 = 64 << 10;
/// Limits of a ring. More than the largest buys nothing: a ring only has to hold what is under way.
const RING_BYTES_MIN: u64 = 128 << 10;
const RING_BYTES_PLANNED_MAX: u64 = 8 << 20;
const RING_BYTES_MAX: u64 = 64 << 20;

/// Place of a member's ring; its header lies in the page behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogArea {
    /// First sector of the ring.
    pub ring_sector: u64,
    /// Length of the ring.
    pub ring_bytes: u64,
}

impl LogArea {
    /// Whether the length is one that this version makes or reads.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&self.ring_bytes)
            && self.ring_bytes.is_multiple_of(PAGE_BYTES as u64)
    }

    /// First sector behind ring and header; `None` when that is no sector number.
    #[must_use]
    pub fn end_sector(&self) -> Option<u64> {
        let ring_sectors = self.ring_bytes / SECTOR_BYTES;
        self.ring_sector
            .checked_add(ring_sectors)?
            .checked_add(PAGE_SECTORS)
    }

    /// The same place with a ring of at most `ring_bytes`, which still ends before the header.
    #[must_use]
    pub fn shrunk(&self, ring_bytes: u64) -> Self {
        let ring_bytes = ring_bytes.clamp(RING_BYTES_MIN, self.ring_bytes) / PAGE_BYTES as u64;
        let ring_bytes = ring_bytes * PAGE_BYTES as u64;
        Self {
            ring_sector: self.ring_sector + (self.ring_bytes - ring_bytes) / SECTOR_BYTES,
            ring_bytes,
        }
    }

    /// Byte offset of the header on the member.
    #[must_use]
    pub fn header_offset_bytes(&self) -> u64 {
        self.ring_sector * SECTOR_BYTES + self.ring_bytes
    }

    /// Byte of the ring at `position`, which counts on for ever.
    #[must_use]
    pub fn within_ring(&self, position: u64) -> u64 {
        position % self.ring_bytes
    }

    /// Byte offset on the member of `position`.
    #[must_use]
    pub fn offset_bytes(&self, position: u64) -> u64 {
        self.ring_sector * SECTOR_BYTES + self.within_ring(position)
    }
}

/// Byte offset on the member at which a log's header has to lie when there is one.
#[must_use]
pub fn header_offset_bytes(superblock: &Superblock) -> Option<u64> {
    let page = superblock.data_offset_sectors.checked_sub(PAGE_SECTORS)?;
    is_in_front(superblock).then_some(page * SECTOR_BYTES)
}

fn is_in_front(superblock: &Superblock) -> bool {
    matches!(superblock.version, MdVersion::V11 | MdVersion::V12)
}

/// Why an array has no stripe log; printed to whoever asked for one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoLog {
    /// Levels without parity have no write hole that a log could close.
    NoParity,
    /// The superblock lies behind the data: there is no gap.
    Version(MdVersion),
    /// The gap before the data is too small.
    GapTooSmall {
        /// What is free.
        gap_bytes: u64,
    },
    /// The ring would lie over something of md's.
    Overlap {
        /// What.
        what: &'static str,
    },
    /// More slots than a record can name.
    TooManyMembers,
    /// md's own partial parity log or journal is in use, or the array is being reshaped.
    Excluded {
        /// By what.
        what: &'static str,
    },
}

impl fmt::Display for NoLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoLog::NoParity => f.write_str("only RAID-4, RAID-5 and RAID-6 have a stripe log"),
            NoLog::Version(version) => {
                write!(
                    f,
                    "md {version} leaves no room for a stripe log; md 1.2 and 1.1 do"
                )
            }
            NoLog::GapTooSmall { gap_bytes } => write!(
                f,
                "{} KiB are free before the data, a stripe log needs {} KiB",
                gap_bytes >> 10,
                GAP_BYTES_MIN >> 10
            ),
            NoLog::Overlap { what } => write!(f, "the stripe log would lie over {what}"),
            NoLog::TooManyMembers => {
                write!(f, "a stripe log is for at most {SLOTS_MAX} members")
            }
            NoLog::Excluded { what } => {
                write!(f, "the array has {what}, which excludes a stripe log")
            }
        }
    }
}

/// What md has on a member in front of the data's end: name and sectors.
fn occupied(superblock: &Superblock, bitmap_sectors: u64) -> Vec<(&'static str, Range<u64>)> {
    let from = |start: u64, length: u64| start..start.saturating_add(length);
    let mut areas = vec![(
        "the superblock",
        from(superblock.super_offset_sectors, PAGE_SECTORS),
    )];
    if let Some(start) = superblock.bitmap_sector() {
        areas.push(("the bitmap", from(start, bitmap_sectors.max(PAGE_SECTORS))));
    }
    if let (Some(start), Some(area)) = (superblock.bad_block_log_sector(), superblock.bad_block_log)
    {
        areas.push((
            "the bad block log",
            from(start, u64::from(area.size_sectors)),
        ));
    }
    if let (Some(start), Some(area)) = (superblock.ppl_sector(), superblock.ppl) {
        areas.push((
            "the partial parity log",
            from(start, u64::from(area.size_sectors)),
        ));
    }
    areas.push(("the data", superblock.data_offset_sectors..u64::MAX));
    if let Some(start) = superblock
        .reshape
        .and_then(|reshape| reshape.new_offset_sectors)
    {
        let start = superblock
            .data_offset_sectors
            .checked_add_signed(i64::from(start));
        areas.push(("the data of the reshape", start.unwrap_or(0)..u64::MAX));
    }
    areas
}

fn check_array(superblock: &Superblock) -> Result<(), NoLog> {
    if !matches!(superblock.level, 4..=6) {
        return Err(NoLog::NoParity);
    }
    if !is_in_front(superblock) {
        return Err(NoLog::Version(superblock.version));
    }
    if superblock.member_count as usize > SLOTS_MAX {
        return Err(NoLog::TooManyMembers);
    }
    let exclusions = [
        (superblock.ppl.is_some(), "a partial parity log"),
        (superblock.has_journal, "a write journal"),
        (superblock.reshape.is_some(), "a reshape in progress"),
    ];
    match exclusions.into_iter().find(|(is_there, _)| *is_there) {
        Some((_, what)) => Err(NoLog::Excluded { what }),
        None => Ok(()),
    }
}

/// First sector behind everything that lies before a member's data. `bitmap_sectors` as in `plan_area`; what is not in
/// front of the data counts for nothing.
#[must_use]
pub fn front_end_sector(superblock: &Superblock, bitmap_sectors: u64) -> u64 {
    let data = superblock.data_offset_sectors;
    let areas = occupied(superblock, bitmap_sectors).into_iter();
    let ends = areas.map(|(_, area)| area.end).filter(|end| *end <= data);
    ends.max().unwrap_or(0)
}

/// Chooses the place of a member's ring. `bitmap_sectors`: what the bitmap takes, its reserve included; 0 without one.
///
/// # Errors
/// Why there is no log.
pub fn plan_area(superblock: &Superblock, bitmap_sectors: u64) -> Result<LogArea, NoLog> {
    check_array(superblock)?;
    let end = superblock.data_offset_sectors;
    let areas = occupied(superblock, bitmap_sectors);
    let start = areas
        .iter()
        .map(|(_, area)| area.end)
        .filter(|at| *at <= end)
        .max();
    let start = start.unwrap_or(0);
    let gap_bytes = (end - start).saturating_mul(SECTOR_BYTES);
    if gap_bytes < GAP_BYTES_MIN {
        return Err(NoLog::GapTooSmall { gap_bytes });
    }
    let room = gap_bytes - PAGE_BYTES as u64 - SPARED_BYTES;
    let ring_bytes = room.min(RING_BYTES_PLANNED_MAX) / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    let area = LogArea {
        ring_sector: end - PAGE_SECTORS - ring_bytes / SECTOR_BYTES,
        ring_bytes,
    };
    check_area(&area, superblock, bitmap_sectors)?;
    Ok(area)
}

/// Compares a ring with everything else on its member (L1).
///
/// # Errors
/// What it would lie over, or why there can be none.
pub fn check_area(
    area: &LogArea,
    superblock: &Superblock,
    bitmap_sectors: u64,
) -> Result<(), NoLog> {
    check_array(superblock)?;
    let Some(end) = area.end_sector().filter(|_| area.is_sane()) else {
        return Err(NoLog::Overlap {
            what: "the end of the member",
        });
    };
    let overlaps = |other: &Range<u64>| area.ring_sector < other.end && other.start < end;
    let areas = occupied(superblock, bitmap_sectors);
    match areas.into_iter().find(|(_, other)| overlaps(other)) {
        Some((what, _)) => Err(NoLog::Overlap { what }),
        None => Ok(()),
    }
}
