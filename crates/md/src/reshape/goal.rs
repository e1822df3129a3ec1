//! Where a change leads beyond what the superblocks can say, and where the members keep that. Pure.
//!
//! The superblocks name the move that is under way, and nothing of what follows it. So each member has a page of its
//! own for that, before its data, behind everything that md keeps there: kernels leave it alone, and a reshape never
//! takes it as room. It is written before the superblock that begins something, and wiped with the one that ends it.
//!
//! Invariants:
//! - a page counts only with its checksum and the array's identity, and only that of the freshest member (W7);
//! - what it says is compared with the array before anything is done: an array that has not moved is not relabelled.
//!
//! Source: write-order.md, where the goal is kept. The layout is Plexum's own: docs/formats.md does not have it.

use plexum_format::SECTOR_BYTES;
use plexum_format::md::ppl::crc32c;
use plexum_format::md::{MdVersion, Superblock};
use plexum_format::stripe_log::area::front_end_sector;
use plexum_layout::{Geometry, Organisation};

use super::shape::{Relabel, Shape};

/// Sectors of the page that a member keeps a goal in.
pub const GOAL_SECTORS: u64 = 8;
/// Bytes of that page.
pub const GOAL_BYTES: usize = 4096;
/// First bytes of a page.
const MAGIC: [u8; 8] = *b"PlexGoal";
/// The one version that there is.
const VERSION: u32 = 1;
/// Bytes that the checksum covers, and behind which it lies.
const COVERED_BYTES: usize = 508;

/// Where a change leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// What the array was.
    pub from: Stand,
    /// What it will be.
    pub to: Stand,
    /// The relabel that went before the move.
    pub first: Option<Relabel>,
    /// The relabel that follows it.
    pub last: Option<Relabel>,
    /// The array had a stripe log, and gets one again.
    pub has_log: bool,
    /// Bytes of a region of the bitmap that it had, which the change takes away, and it gets one again; 0: nothing is
    /// due.
    pub bitmap_region_bytes: u32,
}

/// An array between changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stand {
    /// Its shape.
    pub shape: Shape,
    /// Sectors used of each member.
    pub component_sectors: u64,
}

impl Stand {
    /// Whether an array of that address map stands there.
    #[must_use]
    pub fn is(&self, geometry: &Geometry) -> bool {
        let map = self.shape.geometry(self.component_sectors);
        map.is_some_and(|map| {
            map.organisation() == geometry.organisation()
                && map.member_count() == geometry.member_count()
                && map.strip_bytes() == geometry.strip_bytes()
                && map.volume_bytes() == geometry.volume_bytes()
        })
    }
}

impl Goal {
    /// The way back, once it is turned round.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            first: self.last.as_ref().map(Relabel::reversed),
            last: self.first.as_ref().map(Relabel::reversed),
            ..self.clone()
        }
    }

    /// The page of a member of this array.
    #[must_use]
    pub fn encode(&self, array_uuid: &[u8; 16]) -> Vec<u8> {
        let mut page = Vec::with_capacity(GOAL_BYTES);
        page.extend(MAGIC);
        page.extend(VERSION.to_le_bytes());
        page.extend(u32::from(self.has_log).to_le_bytes());
        page.extend(self.bitmap_region_bytes.to_le_bytes());
        page.extend(array_uuid);
        put_stand(&mut page, &self.from);
        put_stand(&mut page, &self.to);
        for relabel in [&self.first, &self.last] {
            page.extend(u32::from(relabel.is_some()).to_le_bytes());
            let shapes = relabel
                .as_ref()
                .map(|relabel| [relabel.before, relabel.after]);
            for shape in shapes.unwrap_or([self.from.shape; 2]) {
                put_shape(&mut page, &shape);
            }
        }
        assert!(page.len() <= COVERED_BYTES, "a goal fits its sector");
        page.resize(COVERED_BYTES, 0);
        let sum = crc32c(&page);
        page.extend(sum.to_le_bytes());
        page.resize(GOAL_BYTES, 0);
        page
    }

    /// What a page says. `None`: it is no goal of this array.
    #[must_use]
    pub fn parse(page: &[u8], array_uuid: &[u8; 16]) -> Option<Self> {
        let covered = page.get(..COVERED_BYTES)?;
        let sum = page.get(COVERED_BYTES..COVERED_BYTES + 4)?;
        if crc32c(covered).to_le_bytes() != sum {
            return None;
        }
        let mut rest = Reader(covered);
        let is_ours = rest.take::<8>()? == MAGIC && rest.word()? == VERSION;
        let (has_log, bitmap_region_bytes) = (rest.word()?, rest.word()?);
        if !is_ours || rest.take::<16>()? != *array_uuid || has_log > 1 {
            return None;
        }
        let (from, to) = (rest.stand()?, rest.stand()?);
        let first = rest.relabel()?;
        let last = rest.relabel()?;
        Some(Self {
            from,
            to,
            first,
            last,
            has_log: has_log == 1,
            bitmap_region_bytes,
        })
    }
}

fn put_shape(page: &mut Vec<u8>, shape: &Shape) {
    page.extend(shape.organisation.md_level().to_le_bytes());
    page.extend(shape.organisation.md_layout().to_le_bytes());
    page.extend(u32::from(shape.member_count).to_le_bytes());
    page.extend(shape.strip_sectors.to_le_bytes());
}

fn put_stand(page: &mut Vec<u8>, stand: &Stand) {
    put_shape(page, &stand.shape);
    page.extend(stand.component_sectors.to_le_bytes());
}

/// What is left of a page.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn shape(&mut self) -> Option<Shape> {
        let level = self.take().map(i32::from_le_bytes)?;
        let layout = self.word()?;
        let (members, strip_sectors) = (self.word()?, self.word()?);
        Some(Shape {
            organisation: Organisation::from_md(level, layout).ok()?,
            member_count: u16::try_from(members).ok()?,
            strip_sectors,
        })
    }

    fn stand(&mut self) -> Option<Stand> {
        Some(Stand {
            shape: self.shape()?,
            component_sectors: self.take().map(u64::from_le_bytes)?,
        })
    }

    fn relabel(&mut self) -> Option<Option<Relabel>> {
        let is_there = match self.word()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let (before, after) = (self.shape()?, self.shape()?);
        Some(is_there.then_some(Relabel { before, after }))
    }
}

/// Byte of a member where its goal lies; `None` where it has no room for one. `bitmap_sectors`: what the bitmap takes,
/// its reserve included; 0 without one.
#[must_use]
pub fn goal_place(superblock: &Superblock, bitmap_sectors: u64) -> Option<u64> {
    if !matches!(superblock.version, MdVersion::V11 | MdVersion::V12) {
        return None;
    }
    // What lies before the data stays there whichever geometry they are counted in.
    let shift = superblock
        .reshape
        .and_then(|reshape| reshape.new_offset_sectors);
    let data = superblock.data_offset_sectors;
    let first = data.min(data.saturating_add_signed(i64::from(shift.unwrap_or(0))));
    let start = front_end_sector(superblock, bitmap_sectors).next_multiple_of(GOAL_SECTORS);
    (start + GOAL_SECTORS <= first).then_some(start * SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_layout::{Raid5Layout, Raid6Layout};

    fn goal() -> Goal {
        let shape = |organisation, member_count| Shape {
            organisation,
            member_count,
            strip_sectors: 128,
        };
        let (raid6, five) = (
            shape(Organisation::Raid6(Raid6Layout::LeftSymmetric), 5),
            shape(Organisation::Raid5(Raid5Layout::LeftSymmetric), 4),
        );
        let between = shape(Organisation::Raid6(Raid6Layout::LeftSymmetric6), 5);
        let stand = |shape| Stand {
            shape,
            component_sectors: 4096,
        };
        Goal {
            from: stand(raid6),
            to: stand(five),
            first: None,
            last: Some(Relabel {
                before: between,
                after: five,
            }),
            has_log: true,
            bitmap_region_bytes: 65_536,
        }
    }

    #[test]
    fn a_goal_is_read_as_it_was_written_and_its_way_back_is_the_same_way() {
        let uuid = [9; 16];
        for goal in [goal(), goal().reversed()] {
            let page = goal.encode(&uuid);
            assert_eq!(page.len(), GOAL_BYTES);
            assert_eq!(Goal::parse(&page, &uuid), Some(goal.clone()));
            assert_eq!(goal.reversed().reversed(), goal);
        }
    }

    #[test]
    fn a_page_that_is_damaged_or_of_another_array_is_no_goal() {
        let uuid = [9; 16];
        let page = goal().encode(&uuid);
        assert_eq!(Goal::parse(&page, &[8; 16]), None);
        assert_eq!(Goal::parse(&page[..400], &uuid), None);
        for at in 0..512 {
            let mut damaged = page.clone();
            damaged[at] ^= 0x10;
            assert_eq!(Goal::parse(&damaged, &uuid), None, "byte {at}");
        }
    }

    #[test]
    fn a_page_with_a_right_checksum_and_wrong_numbers_is_no_goal() {
        let uuid = [9; 16];
        for at in [8, 12, 36, 40, 84] {
            let mut page = goal().encode(&uuid);
            page[at] = 0xee;
            let sum = crc32c(&page[..COVERED_BYTES]).to_le_bytes();
            page[COVERED_BYTES..COVERED_BYTES + 4].copy_from_slice(&sum);
            assert_eq!(Goal::parse(&page, &uuid), None, "byte {at}");
        }
    }
}
