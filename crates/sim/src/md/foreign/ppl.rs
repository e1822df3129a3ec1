//! The partial parity log in the model of the kernel: replayed when it takes a dirty array, begun anew at each start,
//! and written before what it describes.
//!
//! Invariants:
//! - only what the members say counts: a row that no unit names keeps the parity it has, and that must be right;
//! - the array is clean after a replay only when something was logged and all of it could be read; else it is resynced.
//!
//! Source: linux-md.md section 5.

use std::ops::Range;

use plexum_format::md::ppl::{HEADER_BYTES, crc32c, find_newest, signature};
use plexum_format::md::{PplEntry, PplGeometry, PplHeader, ReplayRow};
use plexum_format::{SECTOR_BYTES, Slot};

use super::Kernel;
use crate::finding::Finding;
use crate::md::reference::Reference;
use crate::md::slots::SlotArray;
use crate::md::stripes::stripe_roles;

/// Rows are logged in pieces of this size.
const PAGE_BYTES: u64 = 4096;

impl<S: SlotArray> Kernel<'_, S> {
    /// Whether the array has the log.
    pub(super) fn has_ppl(&self) -> bool {
        let mut used = self.by_slot.iter().flatten();
        used.any(|position| self.all[*position].superblock.ppl_sector().is_some())
    }

    /// Replays the newest unit of every member. Whether the array is clean by that.
    pub(super) fn replay_ppl(&mut self) -> bool {
        let spec = &self.scene.plan.spec;
        let geometry = PplGeometry {
            strip_sectors: (spec.strip_bytes / SECTOR_BYTES) as u32,
            data_members: spec.member_count as u32 - 1,
            array_sectors: self.content.len() as u64 / SECTOR_BYTES,
        };
        let (mut is_sound, mut is_logged) = (true, false);
        for position in self.by_slot.clone().into_iter().flatten() {
            let area = self.ppl_area(position);
            let Some((at, header)) = self.newest_unit(position, &area) else {
                is_sound = false;
                continue;
            };
            for (entry, range) in header.entries.iter().zip(header.partial_parity_ranges()) {
                let range = (at + range.start) as usize..(at + range.end) as usize;
                let logged = area.get(range).filter(|logged| entry.matches(logged));
                let (Some(logged), Ok(rows)) = (logged, entry.replay_rows(&geometry)) else {
                    is_sound = false;
                    continue;
                };
                for row in &rows {
                    self.replay_row(row, entry.parity_slot, logged);
                }
                is_logged = true;
            }
        }
        is_sound && is_logged
    }

    /// After a replay that left the array clean: parity that is wrong now stays so.
    pub(super) fn check_replayed(&self) {
        let mut mismatches = Reference::new(&self.scene.plan.spec).mismatches(&self.members);
        if !mismatches.is_empty() {
            self.scene.find(Finding::BitClear {
                mismatch: mismatches.swap_remove(0),
            });
        }
    }

    fn replay_row(&mut self, row: &ReplayRow, parity: Slot, logged: &[u8]) {
        let length = (row.length_sectors * SECTOR_BYTES) as usize;
        let mut sum = match row.partial_parity_offset_bytes {
            Some(at) => logged[at as usize..][..length].to_vec(),
            None => vec![0; length],
        };
        let reference = Reference::new(&self.scene.plan.spec);
        let mut offset = 0;
        for sector in &row.data_sectors {
            let (slot, at) = reference.places(sector * SECTOR_BYTES)[0];
            let Some(member) = &self.members[slot] else {
                return; // left out, as the kernel does
            };
            xor(&mut sum, &member[at as usize..][..length]);
            offset = at;
        }
        let slot = usize::from(parity.0);
        let (Some(member), Some(position)) = (&mut self.members[slot], self.by_slot[slot]) else {
            return;
        };
        member[offset as usize..][..length].copy_from_slice(&sum);
        let member = &self.all[position];
        let start = member.superblock.data_offset_sectors * SECTOR_BYTES;
        self.scene.disks[member.disk as usize].poke(start + offset, &sum);
    }

    /// Empty logs on all members in use: nothing is under way.
    pub(super) fn begin_ppl(&self) {
        for position in self.by_slot.iter().flatten() {
            self.put_unit(*position, Vec::new(), &[]);
        }
    }

    /// The same on one that comes back: what it once logged counts no more.
    pub(super) fn begin_ppl_on(&self, position: usize) {
        self.put_unit(position, Vec::new(), &[]);
    }

    /// A write to these sectors goes into the logs of the members that have its parity; members still hold what was
    /// before.
    pub(super) fn log_ppl(&self, sectors: &Range<u64>) {
        if self.is_degraded || !self.has_ppl() {
            return; // degraded, it crashes only with all members, so nobody will read it
        }
        for slot in 0..self.by_slot.len() {
            let (entries, logged) = self.unit_of(slot, sectors);
            if let (Some(position), false) = (self.by_slot[slot], entries.is_empty()) {
                self.put_unit(position, entries, &logged);
            }
        }
    }

    /// Entries of one parity member, a page of a row each, and their partial parities.
    fn unit_of(&self, slot: usize, sectors: &Range<u64>) -> (Vec<PplEntry>, Vec<u8>) {
        let spec = &self.scene.plan.spec;
        let written = sectors.start * SECTOR_BYTES..sectors.end * SECTOR_BYTES;
        let (strip, data) = (spec.strip_bytes, spec.member_count as u64 - 1);
        let (mut entries, mut logged) = (Vec::new(), Vec::new());
        for row in written.start / (strip * data)..=(written.end - 1) / (strip * data) {
            let roles = stripe_roles(spec.level, spec.layout, spec.member_count, row);
            if roles.p != slot {
                continue;
            }
            for page in (0..strip).step_by(PAGE_BYTES as usize) {
                let place = |index: u64| (row * data + index) * strip + page;
                let is_touched = |index: &u64| {
                    place(*index) < written.end && written.start < place(*index) + PAGE_BYTES
                };
                let touched: Vec<u64> = (0..data).filter(is_touched).collect();
                let Some(first) = touched.first() else {
                    continue;
                };
                let mut partial = Vec::new();
                if (touched.len() as u64) < data {
                    partial = vec![0; PAGE_BYTES as usize];
                    for index in (0..data).filter(|index| !touched.contains(index)) {
                        let member = self.members[roles.data[index as usize]].as_ref();
                        let member = member.expect("nobody is missing");
                        let at = (row * strip + page) as usize;
                        xor(&mut partial, &member[at..][..PAGE_BYTES as usize]);
                    }
                }
                entries.push(PplEntry {
                    data_sector: place(*first) / SECTOR_BYTES,
                    partial_parity_bytes: partial.len() as u32,
                    data_bytes: (touched.len() as u64 * PAGE_BYTES) as u32,
                    parity_slot: Slot(slot as u16),
                    checksum: crc32c(&partial),
                });
                logged.extend(partial);
            }
        }
        (entries, logged)
    }

    fn put_unit(&self, position: usize, entries: Vec<PplEntry>, logged: &[u8]) {
        let member = &self.all[position];
        let Some(sector) = member.superblock.ppl_sector() else {
            return;
        };
        let areas = (0..self.all.len()).map(|other| (other, self.ppl_area(other)));
        let generations = areas.filter_map(|(other, area)| self.newest_unit(other, &area));
        let newest = generations.map(|(_, header)| header.generation).max();
        let own = signature(&member.superblock.array_uuid);
        let header = PplHeader::new(own, newest.unwrap_or(0) + 1, entries);
        let mut bytes = header.encode().to_vec();
        bytes.extend(logged);
        // An empty header comes with zeroes behind it.
        bytes.resize(bytes.len().max(2 * HEADER_BYTES), 0);
        self.scene.disks[member.disk as usize].poke(sector * SECTOR_BYTES, &bytes);
    }

    fn newest_unit(&self, position: usize, area: &[u8]) -> Option<(u64, PplHeader)> {
        let superblock = &self.all[position].superblock;
        let is_ring = superblock.ppl?.is_multiple;
        find_newest(area, 0, signature(&superblock.array_uuid), is_ring)
    }

    fn ppl_area(&self, position: usize) -> Vec<u8> {
        let member = &self.all[position];
        let (Some(place), Some(sector)) = (member.superblock.ppl, member.superblock.ppl_sector())
        else {
            return Vec::new();
        };
        let mut area = vec![0; usize::from(place.size_sectors) * SECTOR_BYTES as usize];
        self.scene.disks[member.disk as usize].peek(sector * SECTOR_BYTES, &mut area);
        area
    }
}

fn xor(sum: &mut [u8], bytes: &[u8]) {
    sum.iter_mut().zip(bytes).for_each(|(a, b)| *a ^= b);
}
