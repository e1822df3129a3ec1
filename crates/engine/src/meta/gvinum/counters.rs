//! The counters of classic Vinum: disk transfers of a plex, and requests that went over borders.
//!
//! Invariants: pure; a request is counted by what Vinum would have done with it, whatever the engine saves by caching.
//!
//! Source: freebsd-geom.md section 2.15, with its worked examples as tests.

use std::ops::AddAssign;

use crate::plex::layout::{Geometry, Organisation};

/// Counters of a plex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlexCounters {
    /// Transfers that read.
    pub reads: u64,
    /// Transfers that write.
    pub writes: u64,
    /// Bytes of those that read.
    pub read_bytes: u64,
    /// Bytes of those that write.
    pub written_bytes: u64,
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
        let pairs: [(&mut u64, u64); 9] = [
            (&mut self.reads, other.reads),
            (&mut self.writes, other.writes),
            (&mut self.read_bytes, other.read_bytes),
            (&mut self.written_bytes, other.written_bytes),
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

impl PlexCounters {
    fn transfer(&mut self, direction: Direction, count: u64, bytes: u64) {
        match direction {
            Direction::Read => {
                self.reads += count;
                self.read_bytes += bytes;
            }
            Direction::Write => {
                self.writes += count;
                self.written_bytes += bytes;
            }
        }
    }
}

/// Counts a request inside of the plex; `lost` by slot. A mirror of members counts one transfer for a read, one a copy for a
/// write.
#[must_use]
pub fn count(
    geometry: &Geometry,
    lost: &[bool],
    direction: Direction,
    offset_bytes: u64,
    length_bytes: u64,
) -> PlexCounters {
    let mut counters = PlexCounters::default();
    let end = offset_bytes
        .saturating_add(length_bytes)
        .min(geometry.volume_bytes());
    if offset_bytes >= end {
        return counters;
    }
    match geometry.organisation() {
        Organisation::Linear | Organisation::Raid0(_) => {
            flat(geometry, direction, offset_bytes, end, &mut counters);
        }
        Organisation::Raid1 | Organisation::Raid10(_) => {
            let copies = lost.iter().filter(|lost| !**lost).count() as u64;
            let copies = copies.min(geometry.copy_count() as u64);
            let count = if direction == Direction::Read {
                1
            } else {
                copies
            };
            counters.transfer(direction, count, count * (end - offset_bytes));
        }
        _ => parity(geometry, lost, direction, offset_bytes, end, &mut counters),
    }
    counters
}

fn flat(
    geometry: &Geometry,
    direction: Direction,
    offset_bytes: u64,
    end: u64,
    counters: &mut PlexCounters,
) {
    let is_striped = matches!(geometry.organisation(), Organisation::Raid0(_));
    let mut at = offset_bytes;
    while at < end {
        let place = geometry.locate(at);
        let length = place.length_bytes.min(end - at);
        counters.transfer(direction, 1, length);
        at += length;
        if is_striped && at < end {
            counters.multiblock += 1;
            counters.multistripe += u64::from(place.slot + 1 == geometry.member_count());
        }
    }
}

fn parity(
    geometry: &Geometry,
    lost: &[bool],
    direction: Direction,
    offset_bytes: u64,
    end: u64,
    counters: &mut PlexCounters,
) {
    let strip = geometry.strip_bytes();
    let mut at = offset_bytes;
    while at < end {
        let (row, in_row) = geometry.row_of(at);
        let part = (geometry.row_data_bytes() - in_row).min(end - at);
        let (first, last) = (in_row / strip, (in_row + part - 1) / strip);
        counters.multiblock += u64::from(first != last);
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
            group(geometry, lost, direction, row, at, group_end, counters);
            at = group_end;
            counters.multistripe += u64::from(at < end);
        }
    }
}

/// The transfers of a group: blocks of one row.
fn group(
    geometry: &Geometry,
    lost: &[bool],
    direction: Direction,
    row: u64,
    start: u64,
    end: u64,
    counters: &mut PlexCounters,
) {
    let map = geometry.row_map(row);
    let strip = geometry.strip_bytes();
    let is_lost = |slot: usize| lost.get(slot).copied().unwrap_or(false);
    let others = (geometry.data_count() - 1) as u64;
    let parity_lost = is_lost(map.p);
    let mut at = start;
    let mut longest = 0;
    let mut is_degraded = false;
    while at < end {
        let length = (strip - at % strip).min(end - at);
        let slot = geometry.locate(at).slot;
        longest = longest.max(length);
        match direction {
            Direction::Read if is_lost(slot) => {
                counters.recovered_reads += 1;
                counters.transfer(direction, others + 1, (others + 1) * length);
            }
            Direction::Read => counters.transfer(direction, 1, length),
            Direction::Write if is_lost(slot) => {
                is_degraded = true;
                counters.degraded_writes += 1;
                counters.transfer(Direction::Read, others, others * length);
            }
            Direction::Write => {
                if !parity_lost {
                    counters.transfer(Direction::Read, 1, length);
                }
                counters.transfer(Direction::Write, 1, length);
            }
        }
        at += length;
    }
    if direction == Direction::Read {
        return;
    }
    if parity_lost {
        counters.parityless_writes += 1;
        return;
    }
    if !is_degraded {
        counters.transfer(Direction::Read, 1, longest);
    }
    counters.transfer(Direction::Write, 1, longest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plex::layout::{GeometrySpec, Raid0Layout, Raid5Layout};

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
                let found = count(&plex, &[false; 4], direction, offset * KIB, length * KIB);
                assert_eq!(
                    found.reads + found.writes,
                    transfers,
                    "{length} at {offset}"
                );
                assert_eq!(found.read_bytes + found.written_bytes, length * KIB);
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
            count(&plex, lost, direction, offset * KIB, length * KIB)
        };
        let whole = [false; 4];
        let small = at(Direction::Write, 0, 8, &whole);
        assert_eq!((small.reads, small.writes, small.multistripe), (2, 2, 0));
        // Two blocks of one row in one group.
        let two = at(Direction::Write, 0, 128, &whole);
        assert_eq!(
            (two.reads, two.writes, two.multiblock, two.multistripe),
            (3, 3, 1, 0)
        );
        // Short, over a border: two groups.
        let short = at(Direction::Write, 60, 8, &whole);
        assert_eq!(
            (
                short.reads,
                short.writes,
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
        assert_eq!((read.recovered_reads, read.reads), (1, 3));
        let write = at(Direction::Write, 0, 8, &lost_data);
        assert_eq!(
            (write.degraded_writes, write.reads, write.writes),
            (1, 2, 1)
        );
        let lost_parity = [false, false, false, true];
        let write = at(Direction::Write, 0, 8, &lost_parity);
        assert_eq!(
            (write.parityless_writes, write.reads, write.writes),
            (1, 0, 1)
        );
    }

    #[test]
    fn concatenations_count_transfers_only() {
        let plex = plex(Organisation::Linear, 0);
        let found = count(&plex, &[false; 4], Direction::Write, 4092 * KIB, 8 * KIB);
        assert_eq!(
            (found.writes, found.multiblock, found.multistripe),
            (2, 0, 0)
        );
    }
}
