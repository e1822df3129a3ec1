//! How much of each member is used: what there is room for, and what the superblocks say when that changes. Pure.
//!
//! Data stay where they are. It goes in two steps, each an update of all superblocks: first every member says how much
//! it has for data, then the array uses more of it. So whoever assembles after a torn update never meets a member that
//! gives less than the array uses.
//!
//! Source: md-reshape.md section 6.

use plexum_format::SECTOR_BYTES;
use plexum_format::md::Superblock;
use plexum_layout::{Geometry, Organisation, Raid10Layout};

use super::shape::Shape;
use super::situation::{PlanError, Situation, refuse};

/// Sectors that are used of a member without strips are a multiple of this: a page.
const PAGE_SECTORS: u64 = 8;

/// How much of each member is wished for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeWish {
    /// All that the smallest one has.
    Max,
    /// At most so many bytes, in whole strips.
    Bytes(u64),
}

/// A member as its size matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// What messages call it.
    pub name: String,
    /// Sectors for data, when it gives all that it has.
    pub data_sectors: u64,
}

/// Another part of each member is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resize {
    /// Sectors of each member that are used now.
    pub before_sectors: u64,
    /// And then.
    pub after_sectors: u64,
    /// Size of the volume now, in bytes.
    pub before_bytes: u64,
    /// And then.
    pub after_bytes: u64,
    /// Size of the sync space then, in bytes.
    pub sync_bytes: u64,
    /// Sectors of the sync space from which on copies or parity have to be made; `None`: nothing is new.
    pub resync_from_sectors: Option<u64>,
}

/// Sectors that a member has for data when it gives all that lies between its first data sector and the next thing.
#[must_use]
pub fn data_room_sectors(superblock: &Superblock, device_sectors: u64) -> u64 {
    let start = superblock.data_offset_sectors;
    let behind = [
        Some(superblock.super_offset_sectors),
        superblock.bitmap_sector(),
        superblock.bad_block_log_sector(),
        superblock.ppl_sector(),
    ];
    let next = behind.into_iter().flatten().filter(|at| *at >= start);
    let end = next.min().unwrap_or(device_sectors).min(device_sectors);
    end.saturating_sub(start).max(superblock.data_size_sectors)
}

/// Finds out what `wish` comes to for an array with these members, spares included.
///
/// # Errors
/// `PlanError`: a level without such a size, no room, or nothing to do.
pub fn plan_size(
    now: &Situation,
    members: &[Capacity],
    wish: SizeWish,
) -> Result<Resize, PlanError> {
    check_size(now)?;
    let shape = now.shape;
    let before = geometry(&shape, now.component_sectors)?;
    let after_sectors = wished_sectors(now, members, wish)?;
    let after = geometry(&shape, after_sectors)?;
    let is_more = after_sectors > now.component_sectors;
    Ok(Resize {
        before_sectors: now.component_sectors,
        after_sectors,
        before_bytes: before.volume_bytes(),
        after_bytes: after.volume_bytes(),
        sync_bytes: after.sync_bytes(),
        resync_from_sectors: is_more.then_some(before.sync_bytes() / SECTOR_BYTES),
    })
}

/// Whether anything else can be used of the members.
fn check_size(now: &Situation) -> Result<(), PlanError> {
    let shape = now.shape;
    let level = shape.organisation.level();
    if !level.has_redundancy() {
        return refuse(
            format!("{level} uses all of each member already"),
            Some("larger members of it are a new volume: create it, and copy"),
        );
    }
    if !now.missing_slots.is_empty() {
        return refuse(
            format!(
                "{} of its members are missing or being filled",
                now.missing_slots.len()
            ),
            Some("replace what is missing first: what is new could not be made to agree"),
        );
    }
    let is_far = |layout: Raid10Layout| layout.far > 1 && !layout.offset;
    match shape.organisation {
        Organisation::Raid10(layout) if is_far(layout) => refuse(
            "in a far layout every copy would have to move when more of each member is used"
                .to_owned(),
            Some("a copy does it: create the new array, and \"plexum convert\" or copy the data"),
        ),
        _ => Ok(()),
    }
}

fn geometry(shape: &Shape, component_sectors: u64) -> Result<Geometry, PlanError> {
    shape.geometry(component_sectors).ok_or_else(|| PlanError {
        message: format!(
            "{} KiB of each member cannot be used",
            component_sectors / 2
        ),
        hint: None,
    })
}

/// Sectors of each member that `wish` comes to.
fn wished_sectors(now: &Situation, members: &[Capacity], wish: SizeWish) -> Result<u64, PlanError> {
    let unit = u64::from(now.shape.strip_sectors).max(PAGE_SECTORS);
    let smallest = members.iter().min_by_key(|member| member.data_sectors);
    let (most, who) = smallest.map_or((0, ""), |member| {
        (member.data_sectors / unit * unit, member.name.as_str())
    });
    let after_sectors = match wish {
        SizeWish::Max => most,
        SizeWish::Bytes(bytes) => bytes / SECTOR_BYTES / unit * unit,
    };
    if after_sectors > most {
        return refuse(
            format!(
                "{who} has {} KiB for data, {} KiB are asked for",
                most / 2,
                after_sectors / 2
            ),
            Some(&format!(
                "replace it by a larger one:   plexum replace VOLUME {who} MEMBER"
            )),
        );
    }
    if after_sectors == now.component_sectors {
        let text = format!("{} KiB of each member are used already", after_sectors / 2);
        return match wish {
            SizeWish::Max => refuse(
                format!("{text}, all that {who} has"),
                Some(&format!(
                    "replace the smallest one by a larger one:   plexum replace VOLUME {who} MEMBER"
                )),
            ),
            SizeWish::Bytes(_) => refuse(text, None),
        };
    }
    if after_sectors == 0 {
        return refuse(
            format!("less than a strip of {} KiB cannot be used", unit / 2),
            None,
        );
    }
    Ok(after_sectors)
}

/// What the superblock of one member says from then on.
pub(super) fn resize(superblock: &mut Superblock, change: &Resize) {
    superblock.component_sectors = change.after_sectors;
    superblock.resync_offset_sectors = change.resync_from_sectors;
    superblock.bitmap_offset_sectors = None;
}
