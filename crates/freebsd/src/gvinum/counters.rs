//! The counters of classic Vinum: disk transfers of a plex, and requests that went over borders.
//!
//! Invariants: pure, and without allocation; a request is counted by what Vinum would have done with it, whatever the
//! engine saves by caching.
//!
//! Source: freebsd-geom.md section 2.15, with its worked examples as tests.

use std::ops::{AddAssign, Range};

use plexum_layout::{Geometry, Organisation};

/// Transfers of a drive or subdisk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Those that read.
    pub reads: u64,
    /// Those that write.
    pub writes: u64,
    /// Bytes of those that read.
    pub read_bytes: u64,
    /// Bytes of those that write.
    pub written_bytes: u64,
}

impl Transfers {
    /// Adds `count` transfers of `length_bytes` together.
    pub(super) fn add(&mut self, direction: Direction, count: u64, length_bytes: u64) {
        let (transfers, bytes) = match direction {
            Direction::Read => (&mut self.reads, &mut self.read_bytes),
            Direction::Write => (&mut self.writes, &mut self.written_bytes),
        };
        *transfers = transfers.saturating_add(count);
        *bytes = bytes.saturating_add(length_bytes);
    }
}

impl AddAssign for Transfers {
    fn add_assign(&mut self, other: Self) {
        self.add(Direction::Read, other.reads, other.read_bytes);
        self.add(Direction::Write, other.writes, other.written_bytes);
    }
}

/// Counters of a plex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlexCounters {
    /// Transfers of its subdisks.
    pub transfers: Transfers,
    /// Requests and parts of them that needed more than one block.
    pub multiblock: u64,
    /// Those that needed more than one stripe.
    pub multistripe: u64,
    /// Reads whose data came from the others and parity.
    pub recovered_reads: u64,
    /// Writes whose data block is lost: parity alone holds them.
    pub degraded_writes: u64,
    /// Writes whose parity block is lost.
    pub parityless_writes: u64,
}

impl AddAssign for PlexCounters {
    fn add_assign(&mut self, other: Self) {
        self.transfers += other.transfers;
        let pairs: [(&mut u64, u64); 5] = [
            (&mut self.multiblock, other.multiblock),
            (&mut self.multistripe, other.multistripe),
            (&mut self.recovered_reads, other.recovered_reads),
            (&mut self.degraded_writes, other.degraded_writes),
            (&mut self.parityless_writes, other.parityless_writes),
        ];
        for (sum, more) in pairs {
            *sum = sum.saturating_add(more);
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// Counts a request for this range of a plex; `is_lost` by slot. Each transfer is told to `on_slot` with its slot, its
/// direction and its bytes. Counted like this are the organisations that Vinum has: concatenations, stripes, one
/// parity.
#[must_use]
pub fn count(
    geometry: &Geometry,
    is_lost: impl Fn(usize) -> bool,
    direction: Direction,
    range: Range<u64>,
    on_slot: impl FnMut(usize, Direction, u64),
) -> PlexCounters {
    let mut counting = Counting {
        geometry,
        is_lost,
        on_slot,
        direction,
        end: range.end.min(geometry.volume_bytes()),
        counters: PlexCounters::default(),
    };
    if range.start < counting.end {
        match geometry.organisation() {
            Organisation::Linear | Organisation::Raid0(_) => counting.flat(range.start),
            _ if geometry.parity_count() == 1 => counting.parity(range.start),
            _ => {}
        }
    }
    counting.counters
}

struct Counting<'a, L, S> {
    geometry: &'a Geometry,
    is_lost: L,
    on_slot: S,
    direction: Direction,
    /// End of the request.
    end: u64,
    counters: PlexCounters,
}

impl<L: Fn(usize) -> bool, S: FnMut(usize, Direction, u64)> Counting<'_, L, S> {
    fn transfer(&mut self, slot: usize, direction: Direction, bytes: u64) {
        self.counters.transfers.add(direction, 1, bytes);
        (self.on_slot)(slot, direction, bytes);
    }

    fn flat(&mut self, start: u64) {
        let is_striped = matches!(self.geometry.organisation(), Organisation::Raid0(_));
        let mut at = start;
        while at < self.end {
            let place = self.geometry.locate(at);
            let length = place.length_bytes.min(self.end - at);
            self.transfer(place.slot, self.direction, length);
            at += length;
            if is_striped && at < self.end {
                let is_last = place.slot + 1 == self.geometry.member_count();
                self.counters.multiblock += 1;
                self.counters.multistripe += u64::from(is_last);
            }
        }
    }

    fn parity(&mut self, start: u64) {
        let strip = self.geometry.strip_bytes();
        let mut at = start;
        while at < self.end {
            let (row, in_row) = self.geometry.row_of(at);
            let part = (self.geometry.row_data_bytes() - in_row).min(self.end - at);
            let (first, last) = (in_row / strip, (in_row + part - 1) / strip);
            self.counters.multiblock += u64::from(first != last);
            // A short part over a border is cheaper as one group a subdisk.
            let is_split = first != last && part < strip;
            let part_end = at + part;
            while at < part_end {
                let group_end = if is_split {
                    (at / strip + 1) * strip
                } else {
                    part_end
                };
                let group_end = group_end.min(part_end);
                self.group(row, at, group_end);
                at = group_end;
                self.counters.multistripe += u64::from(at < self.end);
            }
        }
    }

    /// The transfers of a group: blocks of one row.
    fn group(&mut self, row: u64, start: u64, end: u64) {
        let p = self.geometry.row_map(row).p;
        let strip = self.geometry.strip_bytes();
        let parity_lost = (self.is_lost)(p);
        let mut at = start;
        let mut longest = 0;
        let mut is_degraded = false;
        while at < end {
            let length = (strip - at % strip).min(end - at);
            let slot = self.geometry.locate(at).slot;
            longest = longest.max(length);
            let is_lost = (self.is_lost)(slot);
            match self.direction {
                Direction::Read if is_lost => {
                    self.counters.recovered_reads += 1;
                    self.read_others(length, |other| other != slot);
                }
                Direction::Write if is_lost => {
                    is_degraded = true;
                    self.counters.degraded_writes += 1;
                    self.read_others(length, |other| other != slot && other != p);
                }
                Direction::Write => {
                    if !parity_lost {
                        self.transfer(slot, Direction::Read, length);
                    }
                    self.transfer(slot, Direction::Write, length);
                }
                Direction::Read => self.transfer(slot, Direction::Read, length),
            }
            at += length;
        }
        match (self.direction, parity_lost) {
            (Direction::Read, _) => {}
            (Direction::Write, true) => self.counters.parityless_writes += 1,
            (Direction::Write, false) => {
                if !is_degraded {
                    self.transfer(p, Direction::Read, longest);
                }
                self.transfer(p, Direction::Write, longest);
            }
        }
    }

    fn read_others(&mut self, length: u64, is_read: impl Fn(usize) -> bool) {
        for slot in (0..self.geometry.member_count()).filter(|slot| is_read(*slot)) {
            self.transfer(slot, Direction::Read, length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_layout::{GeometrySpec, Raid0Layout, Raid5Layout};

    const KIB: u64 = 1024;

    fn plex(organisation: Organisation, strip_bytes: u64) -> Geometry {
        Geometry::with_any_strip(&GeometrySpec {
            organisation,
            member_count: 4,
            strip_bytes,
            component_bytes: 4096 * KIB,
            member_sizes_bytes: Vec::new(),
        })
        .unwrap()
    }

    /// Counts, and checks that the slots together have all transfers.
    fn counted(
        plex: &Geometry,
        lost: &[bool],
        direction: Direction,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> PlexCounters {
        let is_lost = |slot: usize| lost.get(slot).copied().unwrap_or(false);
        let mut slots = [Transfers::default(); 4];
        let range = offset_bytes..offset_bytes + length_bytes;
        let found = count(plex, is_lost, direction, range, |slot, direction, bytes| {
            assert!(!is_lost(slot), "nothing is done on a lost slot");
            slots[slot].add(direction, 1, bytes);
        });
        let mut sum = Transfers::default();
        slots.into_iter().for_each(|slot| sum += slot);
        assert_eq!(sum, found.transfers);
        found
    }

    #[test]
    fn the_worked_examples_of_striped_plexes() {
        let plex = plex(Organisation::Raid0(Raid0Layout::Original), 64 * KIB);
        for (length, offset, transfers, multiblock, multistripe) in [
            (64, 0, 1, 0, 0),
            (64, 32, 2, 1, 0),
            (64, 224, 2, 1, 1),
            (512, 0, 8, 7, 1),
        ] {
            for direction in [Direction::Read, Direction::Write] {
                let found = counted(&plex, &[], direction, offset * KIB, length * KIB);
                let done = found.transfers;
                assert_eq!(done.reads + done.writes, transfers, "{length} at {offset}");
                assert_eq!(done.read_bytes + done.written_bytes, length * KIB);
                assert_eq!(
                    (found.multiblock, found.multistripe),
                    (multiblock, multistripe)
                );
            }
        }
    }

    #[test]
    fn parity_writes_count_their_reads_and_groups() {
        let plex = plex(Organisation::Raid5(Raid5Layout::LeftAsymmetric), 64 * KIB);
        let at = |direction, offset: u64, length: u64, lost: &[bool]| {
            counted(&plex, lost, direction, offset * KIB, length * KIB)
        };
        let whole = [false; 4];
        let small = at(Direction::Write, 0, 8, &whole);
        assert_eq!(
            (
                small.transfers.reads,
                small.transfers.writes,
                small.multistripe
            ),
            (2, 2, 0)
        );
        // Two blocks of one row in one group.
        let two = at(Direction::Write, 0, 128, &whole);
        assert_eq!(
            (
                two.transfers.reads,
                two.transfers.writes,
                two.multiblock,
                two.multistripe
            ),
            (3, 3, 1, 0)
        );
        // Short, over a border: two groups.
        let short = at(Direction::Write, 60, 8, &whole);
        assert_eq!(
            (
                short.transfers.reads,
                short.transfers.writes,
                short.multiblock,
                short.multistripe
            ),
            (4, 4, 1, 1)
        );
        // Over the end of a row: two groups, none with more than one block.
        let rows = at(Direction::Write, 188, 8, &whole);
        assert_eq!((rows.multiblock, rows.multistripe), (0, 1));
        // Row 0 has its parity on the last slot.
        let lost_data = [true, false, false, false];
        let read = at(Direction::Read, 0, 8, &lost_data);
        assert_eq!((read.recovered_reads, read.transfers.reads), (1, 3));
        let write = at(Direction::Write, 0, 8, &lost_data);
        assert_eq!(
            (
                write.degraded_writes,
                write.transfers.reads,
                write.transfers.writes
            ),
            (1, 2, 1)
        );
        let lost_parity = [false, false, false, true];
        let write = at(Direction::Write, 0, 8, &lost_parity);
        assert_eq!(
            (
                write.parityless_writes,
                write.transfers.reads,
                write.transfers.writes
            ),
            (1, 0, 1)
        );
    }

    #[test]
    fn concatenations_count_transfers_only() {
        let plex = plex(Organisation::Linear, 0);
        let found = counted(&plex, &[], Direction::Write, 4092 * KIB, 8 * KIB);
        assert_eq!(
            (found.transfers.writes, found.multiblock, found.multistripe),
            (2, 0, 0)
        );
    }

    /// What is shorter than a strip is split at a border, what is as long goes as one group (freebsd-geom.md 2.15).
    #[test]
    fn a_part_as_long_as_a_strip_is_one_group() {
        let plex = plex(Organisation::Raid5(Raid5Layout::LeftAsymmetric), 64 * KIB);
        let at = |offset: u64, length: u64| {
            let found = counted(&plex, &[], Direction::Write, offset, length);
            let done = found.transfers;
            (found.multistripe, done.writes, done.written_bytes)
        };
        // Two blocks and the parity of the longer one.
        assert_eq!(at(32 * KIB, 64 * KIB), (0, 3, 96 * KIB));
        assert_eq!(at(48 * KIB, 64 * KIB), (0, 3, 112 * KIB));
        // Two groups, each with its parity.
        assert_eq!(at(32 * KIB, 64 * KIB - 512), (1, 4, 128 * KIB - 1024));
        // Shorter than its block, which is not the first one.
        assert_eq!(at(64 * KIB, 8 * KIB), (0, 2, 16 * KIB));
    }

    #[test]
    fn organisations_that_vinum_does_not_have_are_not_counted() {
        use plexum_layout::Raid6Layout;
        let spec = GeometrySpec {
            organisation: Organisation::Raid6(Raid6Layout::LeftSymmetric),
            member_count: 4,
            strip_bytes: 64 * KIB,
            component_bytes: 4096 * KIB,
            member_sizes_bytes: Vec::new(),
        };
        let plex = Geometry::new(&spec).unwrap();
        let found = counted(&plex, &[], Direction::Write, 0, 64 * KIB);
        assert_eq!(found, PlexCounters::default());
    }
}
