//! How an array is laid out, and which other layouts are the same places by another name. Pure.
//!
//! Source: md-reshape.md section 1.

use std::fmt;

use plexum_format::SECTOR_BYTES;
use plexum_format::md::Superblock;
use plexum_layout::{
    Geometry, GeometrySpec, Level, Organisation, Raid0Layout, Raid5Layout, Raid6Layout,
};

/// How an array is laid out, as its superblocks say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Level and layout.
    pub organisation: Organisation,
    /// Slots.
    pub member_count: u16,
    /// Sectors of a strip.
    pub strip_sectors: u32,
}

impl Shape {
    /// That of an array without a reshape under way, or before the one that is. `None`: no shape that a reshape knows.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Option<Self> {
        let organisation = match (superblock.level, superblock.layout) {
            // Older kernels have not said which: it is the same where members are even, and no other one is changed.
            (0, 0) => Organisation::Raid0(Raid0Layout::Original),
            (level, layout) => Organisation::from_md(level, layout).ok()?,
        };
        let change = superblock
            .reshape
            .map_or(0, |reshape| reshape.member_count_change);
        let member_count = i64::from(superblock.member_count) - i64::from(change);
        Some(Self {
            organisation,
            member_count: u16::try_from(member_count).ok()?,
            strip_sectors: match organisation {
                Organisation::Raid1 => 0, // whatever the superblock says, it means nothing
                _ => superblock.strip_sectors,
            },
        })
    }

    /// Address map over members that each give `component_sectors`. `None`: there is none.
    #[must_use]
    pub fn geometry(&self, component_sectors: u64) -> Option<Geometry> {
        Geometry::new(&GeometrySpec {
            organisation: self.organisation,
            member_count: self.member_count,
            strip_bytes: u64::from(self.strip_sectors) * SECTOR_BYTES,
            component_bytes: component_sectors.checked_mul(SECTOR_BYTES)?,
            member_sizes_bytes: Vec::new(),
        })
        .ok()
    }

    fn parity_count(&self) -> u16 {
        match self.organisation.level() {
            Level::Raid6 => 2,
            Level::Raid4 | Level::Raid5 => 1,
            _ => 0,
        }
    }

    /// Members' worth of data in a row; of copies, rounded down.
    #[must_use]
    pub fn data_count(&self) -> u64 {
        let members = u64::from(self.member_count);
        match self.organisation {
            Organisation::Raid1 => members.min(1),
            Organisation::Raid10(layout) => members / layout.copies().max(1) as u64,
            _ => members.saturating_sub(u64::from(self.parity_count())),
        }
    }

    /// Whether every layout and every strip puts data and parity where any other does: both members have the same.
    #[must_use]
    pub(super) fn is_pair(&self) -> bool {
        let level = self.organisation.level();
        self.member_count == 2 && matches!(level, Level::Raid4 | Level::Raid5)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} members",
            self.organisation.level(),
            self.member_count
        )?;
        if let Some(layout) = self.organisation.layout_name() {
            write!(f, ", {layout}")?;
        }
        match self.strip_sectors {
            0 => Ok(()),
            sectors => write!(f, ", strips of {} KiB", sectors / 2),
        }
    }
}

/// Another name for the same places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relabel {
    /// As it was.
    pub before: Shape,
    /// As it will be.
    pub after: Shape,
}

impl Relabel {
    /// The way back.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            before: self.after,
            after: self.before,
        }
    }

    /// From a RAID-6 whose Q has a member of its own to the RAID-5 of the others. `None`: it has none.
    #[must_use]
    pub fn without_q(before: &Shape) -> Option<Self> {
        let layouts = Raid5Layout::ALL.iter().map(|(layout, ..)| *layout);
        let mut organisations = layouts.map(Organisation::Raid5);
        let is_it =
            |organisation: &Organisation| with_q(*organisation) == Some(before.organisation);
        let organisation = organisations.find(is_it)?;
        Some(Self {
            before: *before,
            after: Shape {
                organisation,
                member_count: before.member_count.checked_sub(1)?,
                ..*before
            },
        })
    }

    /// Whether the two disagree about who holds data and who redundancy: what is in doubt has to be made to agree
    /// first, or it would be read from the other one.
    #[must_use]
    pub fn wants_agreement(&self) -> bool {
        let is_either =
            |shape: &Shape| shape.is_pair() || shape.organisation == Organisation::Raid1;
        is_either(&self.before)
            && is_either(&self.after)
            && self.before.organisation != self.after.organisation
    }

    /// Whether an array of that address map stands where this begins: one that has not moved yet, or is labelled so
    /// already, does not.
    #[must_use]
    pub fn is_due(&self, geometry: &Geometry) -> bool {
        self.before.organisation == geometry.organisation()
            && usize::from(self.before.member_count) == geometry.member_count()
            && u64::from(self.before.strip_sectors) * SECTOR_BYTES == geometry.strip_bytes()
    }
}

/// The RAID-6 layout in which a RAID-5 lies with Q on a member of its own.
pub(super) fn with_q(organisation: Organisation) -> Option<Organisation> {
    let number = match organisation {
        Organisation::Raid4 => 5,
        Organisation::Raid5(Raid5Layout::ParityLast) => 5, // md has one number for both
        Organisation::Raid5(layout) => layout as u32 + 16,
        _ => return None,
    };
    let found = Raid6Layout::ALL
        .iter()
        .find(|(layout, ..)| *layout as u32 == number);
    found.map(|(layout, ..)| Organisation::Raid6(*layout))
}
