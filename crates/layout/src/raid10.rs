//! RAID-1 and RAID-10: the places of all copies, first copy first, and the way back.
//!
//! RAID-10 numbers strip places x = strip * near in rows of N; the `near` copies follow each other, and each has `far`
//! copies: `near` members further (within the far set), `stride` lower. Copy order is md's: which copy is the first
//! decides what a resync keeps.
//! Source: linux-md.md section 7; checked against the golden images s16 to s20.

use super::GeometryError;
use super::divisor::Divisor;
use super::names::Raid10Layout;

/// One place of some data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPlace {
    /// Slot of the member.
    pub slot: usize,
    /// Byte offset in the member's data area.
    pub member_offset_bytes: u64,
}

/// All places of the data from one volume offset to the end of its strip. A small value; copies are computed when asked
/// for.
#[derive(Clone, Copy, Debug)]
pub struct CopyMap<'a> {
    /// Contiguous bytes from the asked offset: to the end of the strip (RAID-1: of the volume). At least 1.
    pub length_bytes: u64,
    kind: Kind<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Kind<'a> {
    /// Every member, same offset.
    Mirror {
        member_count: usize,
        offset_bytes: u64,
    },
    /// `first`: the first copy's slot and offset.
    Spread {
        map: &'a Raid10Map,
        first: CopyPlace,
    },
}

impl<'a> CopyMap<'a> {
    #[inline]
    pub(super) fn mirror(member_count: usize, offset_bytes: u64, length_bytes: u64) -> CopyMap<'a> {
        CopyMap {
            length_bytes,
            kind: Kind::Mirror {
                member_count,
                offset_bytes,
            },
        }
    }

    /// Number of copies.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // there is always at least one copy
    #[inline]
    pub fn len(&self) -> usize {
        match self.kind {
            Kind::Mirror { member_count, .. } => member_count,
            Kind::Spread { map, .. } => map.layout.copies(),
        }
    }

    /// Copy number `index` (below `len`) in md's order.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> CopyPlace {
        assert!(
            index < self.len(),
            "a copy number is below the number of copies"
        );
        match self.kind {
            Kind::Mirror { offset_bytes, .. } => CopyPlace {
                slot: index,
                member_offset_bytes: offset_bytes,
            },
            Kind::Spread { map, first } => map.copy(first, index),
        }
    }

    /// All copies in md's order, the first copy first; each on another member.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = CopyPlace> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// RAID-10 on a number of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raid10Map {
    layout: Raid10Layout,
    member_count: usize,
    strip_bytes: u64,
    strip: Divisor,
    members: Divisor,
    /// Strips of the volume.
    strip_count: u64,
    /// Strips used of each member (of some perhaps one less).
    member_strips: u64,
    /// Distance of two far copies on their members.
    stride_bytes: u64,
    /// Members of a far set; the last set also takes what is left over.
    set_size: usize,
}

impl Raid10Map {
    /// # Errors
    /// Copies that are no number this organisation can have, and layouts that put two strips on one place (or two
    /// copies on one member).
    pub(super) fn new(
        layout: Raid10Layout,
        member_count: usize,
        strip_bytes: u64,
        component_bytes: u64,
    ) -> Result<Raid10Map, GeometryError> {
        let (near, far) = (usize::from(layout.near), usize::from(layout.far));
        let copies = layout.copies();
        if copies < 2 || copies > member_count {
            return Err(GeometryError::Copies {
                copies,
                member_count,
            });
        }
        let set_size = match layout.far_set {
            1 => member_count / far,
            2 => copies,
            _ => member_count,
        };
        let members = member_count as u64;
        // Cannot overflow: at most 2^55 strips of 512 bytes, 2^11 members, 2^16 copies are checked one by one.
        let overflow = || GeometryError::TooLarge;
        let rows = component_bytes / strip_bytes / far as u64;
        let strip_count = rows.checked_mul(members).ok_or_else(overflow)? / near as u64;
        let member_strips = strip_count
            .checked_mul(copies as u64)
            .ok_or_else(overflow)?
            .div_ceil(members);
        let stride_bytes = if layout.offset {
            strip_bytes
        } else {
            member_strips / far as u64 * strip_bytes
        };
        let map = Raid10Map {
            layout,
            member_count,
            strip_bytes,
            strip: Divisor::new(strip_bytes),
            members: Divisor::new(members),
            strip_count,
            member_strips,
            stride_bytes,
            set_size,
        };
        if map.has_collisions() {
            return Err(GeometryError::Collides {
                layout,
                member_count,
            });
        }
        Ok(map)
    }

    pub(super) fn strip_count(&self) -> u64 {
        self.strip_count
    }

    pub(super) fn member_strips(&self) -> u64 {
        self.member_strips
    }

    /// Places of the data at `volume_offset_bytes` (inside of the volume).
    pub(super) fn copies_of(&self, volume_offset_bytes: u64) -> CopyMap<'_> {
        let (strip, inside) = self.strip.split(volume_offset_bytes);
        assert!(
            strip < self.strip_count,
            "the caller checks the range against the volume"
        );
        let place = strip * u64::from(self.layout.near);
        let (row, slot) = self.members.split(place);
        let slot = slot as usize; // below the number of members
        let member_row = if self.layout.offset {
            row * u64::from(self.layout.far)
        } else {
            row
        };
        let first = CopyPlace {
            slot,
            member_offset_bytes: member_row * self.strip_bytes + inside,
        };
        CopyMap {
            length_bytes: self.strip_bytes - inside,
            kind: Kind::Spread { map: self, first },
        }
    }

    /// Copy `index` of the strip whose first copy is at `first`.
    fn copy(&self, first: CopyPlace, index: usize) -> CopyPlace {
        let far = usize::from(self.layout.far);
        let mut copy = first;
        let (near_index, far_index) = match far {
            1 => (index, 0),
            far => (index / far, index % far),
        };
        copy.slot += near_index;
        if copy.slot >= self.member_count {
            copy.slot -= self.member_count;
            copy.member_offset_bytes += self.strip_bytes;
        }
        for _ in 0..far_index {
            copy.slot = self.far_step(copy.slot);
            copy.member_offset_bytes += self.stride_bytes;
        }
        copy
    }

    /// First member and size of the far set of `slot`.
    fn far_set(&self, slot: usize) -> (usize, usize) {
        let last = (self.member_count / self.set_size - 1) * self.set_size;
        if slot >= last {
            (last, self.member_count - last)
        } else {
            (slot / self.set_size * self.set_size, self.set_size)
        }
    }

    /// The member of the next far copy.
    fn far_step(&self, slot: usize) -> usize {
        let (start, size) = self.far_set(slot);
        start + (slot - start + usize::from(self.layout.near)) % size
    }

    /// The inverse: volume offset of a member's byte and the bytes from there to the end of the strip; `None` for
    /// unused space.
    pub(super) fn volume_offset_of(
        &self,
        slot: usize,
        member_offset_bytes: u64,
    ) -> Option<(u64, u64)> {
        let (strip, inside) = (
            member_offset_bytes / self.strip_bytes,
            member_offset_bytes % self.strip_bytes,
        );
        if strip >= self.member_strips {
            return None;
        }
        let far = u64::from(self.layout.far);
        let (far_index, row) = if self.layout.offset {
            (strip % far, strip / far)
        } else {
            let part = self.stride_bytes / self.strip_bytes;
            (strip / part, strip % part)
        };
        let (start, size) = self.far_set(slot);
        let back = usize::try_from(far_index).expect("below the number of far copies")
            * usize::from(self.layout.near)
            % size;
        let first_slot = start + (slot - start + size - back) % size;
        let place = row * self.member_count as u64 + first_slot as u64;
        let volume_strip = place / u64::from(self.layout.near);
        (volume_strip < self.strip_count).then(|| {
            (
                volume_strip * self.strip_bytes + inside,
                self.strip_bytes - inside,
            )
        })
    }

    /// Calls `group` with the members that hold one strip's copies, for every way in which this happens, until it
    /// answers false. Strips repeat their members after at most `member_count` strips.
    pub(super) fn all_groups(&self, mut group: impl FnMut(&[usize]) -> bool) -> bool {
        let near = usize::from(self.layout.near);
        let mut start = 0;
        let mut slots = Vec::with_capacity(self.layout.copies());
        loop {
            let first = CopyPlace {
                slot: start,
                member_offset_bytes: 0,
            };
            slots.clear();
            slots.extend((0..self.layout.copies()).map(|index| self.copy(first, index).slot));
            if !group(&slots) {
                return false;
            }
            start = (start + near) % self.member_count;
            if start == 0 {
                return true;
            }
        }
    }

    /// md's formulas give useless maps for some combinations (offset copies with near copies that wrap; far sets of
    /// version 1 that are too small; near copies that cross a far set): two strips on one place or two copies on one
    /// member.
    fn has_collisions(&self) -> bool {
        let (near, far) = (usize::from(self.layout.near), usize::from(self.layout.far));
        if self.layout.offset && near > 1 && far > 1 && !self.member_count.is_multiple_of(near) {
            return true;
        }
        if far > 1
            && near > 1
            && self.member_count / self.set_size > 1
            && !self.member_count.is_multiple_of(self.set_size)
        {
            return true;
        }
        let mut seen = vec![usize::MAX; self.member_count];
        let mut number = 0;
        !self.all_groups(|slots| {
            number += 1;
            slots
                .iter()
                .all(|&slot| std::mem::replace(&mut seen[slot], number) != number)
        })
    }
}
