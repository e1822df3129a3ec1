//! Looks at the members alone, as whoever starts the array next will find them: superblocks, bitmaps, copies, parity.
//!
//! Invariants:
//! - it reads by the format crate and the reference model, never through the engine;
//! - it judges what the rules demand at *every* moment at which power may be cut, so it may be asked after any crash.

use std::ops::Range;

use plexum_format::md::{BadBlocks, Bitmap, Role, Superblock};
use plexum_format::{Found, SECTOR_BYTES, detect};

use super::reference::{Members, Mismatch, Reference};
use super::spec::Spec;
use crate::finding::Finding;
use plexum_disks::disk::SimDisk;

/// What one disk says of itself.
pub struct Inspected {
    /// Number of the disk.
    pub disk: u32,
    /// Its superblock.
    pub superblock: Superblock,
    /// Its copy of the bitmap, when there is a readable one.
    pub bitmap: Option<Bitmap>,
    /// Its bad ranges, in bytes of the data area.
    pub bad: Vec<Range<u64>>,
}

/// Reads the metadata of a disk; `None` when there is no md superblock.
#[must_use]
pub fn inspect(disk: &SimDisk) -> Option<Inspected> {
    let sectors = disk.size_bytes() / SECTOR_BYTES;
    let mut reader = |offset: u64, target: &mut [u8]| -> Result<(), std::convert::Infallible> {
        disk.peek(offset, target);
        Ok(())
    };
    let Ok(detection) = detect(sectors, &mut reader);
    let Some(Found::Md(superblock)) = detection.best() else {
        return None;
    };
    let superblock = (**superblock).clone();
    let area = |sector: u64, length: u64| {
        let mut bytes = vec![0; length as usize];
        disk.peek(sector * SECTOR_BYTES, &mut bytes);
        bytes
    };
    let bitmap = superblock.bitmap_sector().and_then(|sector| {
        let room = superblock.bitmap_room_sectors(sectors)?;
        let bytes = area(sector, room * SECTOR_BYTES);
        Bitmap::parse(&bytes, sector * SECTOR_BYTES, room).ok()
    });
    let bad = bad_ranges(&superblock, &area);
    Some(Inspected {
        disk: disk.number(),
        superblock,
        bitmap,
        bad,
    })
}

fn bad_ranges(superblock: &Superblock, area: &dyn Fn(u64, u64) -> Vec<u8>) -> Vec<Range<u64>> {
    let (true, Some(place), Some(sector)) = (
        superblock.has_bad_blocks,
        superblock.bad_block_log,
        superblock.bad_block_log_sector(),
    ) else {
        return Vec::new();
    };
    let bytes = area(sector, u64::from(place.size_sectors) * SECTOR_BYTES);
    let Ok(log) = BadBlocks::parse(&bytes, place.shift, sector * SECTOR_BYTES) else {
        return Vec::new();
    };
    let start = superblock.data_offset_sectors;
    let inside = |range: &Range<u64>| {
        range.start.saturating_sub(start) * SECTOR_BYTES
            ..range.end.saturating_sub(start) * SECTOR_BYTES
    };
    log.ranges().iter().map(inside).collect()
}

/// The array as its freshest superblock describes it.
pub struct Assembled<'a> {
    /// The freshest superblock.
    pub newest: &'a Superblock,
    /// By slot, the position of the complete, fresh member.
    pub by_slot: Vec<Option<usize>>,
}

/// Who is fresh and complete, by the rules of linux-md.md section 9 in their plainest form.
#[must_use]
pub fn assemble<'a>(all: &'a [Inspected], spec: &Spec) -> Option<Assembled<'a>> {
    let with_slot = all
        .iter()
        .filter(|member| member.superblock.role().slot().is_some());
    let newest = &with_slot
        .max_by_key(|member| {
            let active = member
                .superblock
                .roles
                .iter()
                .filter(|role| role.slot().is_some());
            (member.superblock.events, std::cmp::Reverse(active.count()))
        })?
        .superblock;
    let holder = |slot: usize| {
        all.iter().position(|member| {
            let own = &member.superblock;
            let role = newest.role_of(own.dev_number);
            own.events.is_fresh_beside(newest.events)
                && role == own.role()
                && matches!(role, Role::Active(given) if usize::from(given.0) == slot)
                && own.rebuild_offset_sectors.is_none()
                && !own.is_replacement
        })
    };
    Some(Assembled {
        newest,
        by_slot: (0..spec.member_count).map(holder).collect(),
    })
}

/// Data areas by slot of the complete members, and their bad ranges.
#[must_use]
pub fn contents(
    found: &Assembled<'_>,
    all: &[Inspected],
    disks: &[SimDisk],
    spec: &Spec,
) -> (Members, Vec<(usize, Range<u64>)>) {
    let mut bad = Vec::new();
    let mut members: Members = Vec::new();
    for (slot, holder) in found.by_slot.iter().enumerate() {
        members.push(holder.map(|position| {
            let member = &all[position];
            bad.extend(member.bad.iter().map(|range| (slot, range.clone())));
            let mut bytes = vec![0; spec.component_bytes as usize];
            let start = member.superblock.data_offset_sectors * SECTOR_BYTES;
            disks[member.disk as usize].peek(start, &mut bytes);
            bytes
        }));
    }
    (members, bad)
}

/// W1 and W2: wherever copies or parity differ, the superblock says dirty, and the bitmap has the bit.
#[must_use]
pub fn check_bits(disks: &[SimDisk], spec: &Spec) -> Option<Finding> {
    let all: Vec<Inspected> = disks
        .iter()
        .filter(|disk| disk.is_present())
        .filter_map(inspect)
        .collect();
    let found = assemble(&all, spec)?;
    let (members, bad) = contents(&found, &all, disks, spec);
    let mismatches = Reference::new(spec)
        .without_ranges(&bad)
        .in_units_of(4096)
        .mismatches(&members);
    let bitmaps: Vec<&Bitmap> = found
        .by_slot
        .iter()
        .flatten()
        .filter_map(|position| all[*position].bitmap.as_ref())
        .collect();
    let start = found
        .newest
        .resync_offset_sectors
        .map(|sectors| sectors.saturating_mul(SECTOR_BYTES));
    let is_marked = |mismatch: &Mismatch| {
        let at = mismatch.sync_bytes;
        let is_doubted = start.is_some_and(|start| at >= start);
        let has_bit = bitmaps
            .iter()
            .any(|bitmap| bitmap.get(bitmap.region_of(at / SECTOR_BYTES)));
        // The region that a checkpoint lies in counts as not done.
        let is_doubted_region = start.is_some_and(|start| {
            bitmaps.iter().any(|bitmap| {
                bitmap.sectors_of(bitmap.region_of(at / SECTOR_BYTES)).end * SECTOR_BYTES > start
            })
        });
        if bitmaps.is_empty() {
            is_doubted
        } else {
            has_bit && (is_doubted || is_doubted_region)
        }
    };
    let mismatch = mismatches.into_iter().find(|found| !is_marked(found))?;
    Some(Finding::BitClear { mismatch })
}

/// W3 and W7: whoever the array has dropped must look older than those that went on. `live`: the disks in use when the
/// last commit was durable.
#[must_use]
pub fn check_counts(disks: &[SimDisk], live: &[u32]) -> Option<Finding> {
    let all: Vec<Inspected> = disks.iter().filter_map(inspect).collect();
    let is_live = |member: &&Inspected| live.contains(&member.disk);
    let least = all
        .iter()
        .filter(is_live)
        .map(|member| member.superblock.events)
        .min()?;
    let other = all
        .iter()
        .filter(|member| !live.contains(&member.disk))
        .find(|member| {
            member.superblock.role().slot().is_some() && member.superblock.events >= least
        })?;
    Some(Finding::StaleLooksFresh {
        disk: other.disk,
        events: other.superblock.events.0,
        newest: least.0,
    })
}

/// Highest event count on any disk with a slot; 0 when there is none. A spare may be ahead of them: it never decides,
/// and the next commit takes it back to what they have.
#[must_use]
pub fn highest_count(disks: &[SimDisk]) -> u64 {
    disks
        .iter()
        .filter_map(inspect)
        .filter(|member| member.superblock.role().slot().is_some())
        .map(|member| member.superblock.events.0)
        .max()
        .unwrap_or(0)
}
