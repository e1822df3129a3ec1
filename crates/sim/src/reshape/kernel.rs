//! What the md driver of the kernel does to a half-done reshape between two runs of Plexum: it assembles the array,
//! moves further rows, or all of them, writes to what has moved, and stops.
//!
//! It is a model of its own: superblocks by the format crate, rows by the reference model. It moves by what the larger
//! strip of the two holds on all data members of the new geometry, as the kernel does.
//!
//! Source: md-reshape.md sections 2 and 3.

use plexum_format::md::{Role, Superblock};
use plexum_format::{EventCount, SECTOR_BYTES};

use super::array::Array;
use super::halves::Half;
use crate::md::checker::{self, Inspected};
use crate::oracle::{WriteEnd, WriteKind};
use crate::world::Scene;
use plexum_disks::rng::Rng;

/// Lets the kernel have the array once. Says what it did, for counting.
pub(super) fn visit(scene: &Scene<Array>, salt: u64) -> &'static str {
    let present = scene.disks.iter().filter(|disk| disk.is_present());
    let all: Vec<Inspected> = present.filter_map(checker::inspect).collect();
    let Some(half) = Half::of(&all, &scene.disks) else {
        return "kernel saw no reshape";
    };
    let holds_all = |holders: &[Option<usize>]| holders.iter().all(Option::is_some);
    let is_filling = all
        .iter()
        .any(|member| member.superblock.rebuild_offset_sectors.is_some());
    let is_told = |position: &usize| all[*position].superblock.reshape.is_some();
    let holders = half.new.holders.iter().chain(&half.old.holders).flatten();
    // Not modelled: who is missing, who was not told that it has begun, and writes that were cut off.
    if !holders.into_iter().all(is_told) {
        return "kernel refused";
    }
    let is_whole = holds_all(&half.new.holders) && (holds_all(&half.old.holders) || is_filling);
    if !is_whole || half.newest.resync_offset_sectors.is_some() {
        return "kernel refused";
    }
    let sectors: Option<Vec<Vec<u8>>> = half.sectors().into_iter().collect();
    let Some(sectors) = sectors else {
        return "kernel refused";
    };
    let rng = Rng::new(scene.plan.course.seed).fork(0x6b65_726e + salt);
    let mut kernel = Kernel {
        scene,
        rng,
        all,
        half,
        content: sectors.concat(),
    };
    kernel.go_on()
}

struct Kernel<'a> {
    scene: &'a Scene<Array>,
    rng: Rng,
    all: Vec<Inspected>,
    half: Half,
    /// What clients read; behind it there are zeroes.
    content: Vec<u8>,
}

impl Kernel<'_> {
    fn go_on(&mut self) -> &'static str {
        let end = self.half.new.reference().volume_bytes();
        self.content.resize(end as usize, 0);
        let unit = self.unit_bytes();
        let from = self.half.position_bytes();
        let steps = self.rng.between(1, 40);
        let (to, moved) = match self.half.reshape.is_backwards() {
            false => {
                let to = (from + steps * unit).min(end);
                (to, from..to)
            }
            true => {
                let above = from.min(end).div_ceil(unit);
                let to = above.saturating_sub(steps) * unit;
                (to, to..from.min(end))
            }
        };
        self.write(&moved);
        self.put_rows(&moved);
        let has_ended = match self.half.reshape.is_backwards() {
            false => to == end,
            true => to == 0,
        };
        self.put_superblocks(to, has_ended);
        match has_ended {
            true => "kernel ended it",
            false => "kernel moved rows",
        }
    }

    fn unit_bytes(&self) -> u64 {
        let strip = self
            .half
            .old
            .spec
            .strip_bytes
            .max(self.half.new.spec.strip_bytes);
        strip * self.half.new_data_count()
    }

    /// A write of its clients to what moves now.
    fn write(&mut self, moved: &std::ops::Range<u64>) {
        let mut oracles = self.scene.oracles.borrow_mut();
        let oracle = &mut oracles[0];
        let first = moved.start / SECTOR_BYTES;
        let last = (moved.end / SECTOR_BYTES).min(oracle.sector_count());
        if first >= last {
            return;
        }
        let length = self.rng.between(1, 32).min(last - first);
        let start = first + self.rng.below(last - first - length + 1);
        let token = oracle.begin_write(start..start + length, WriteKind::Data);
        let bytes = (start * SECTOR_BYTES) as usize..((start + length) * SECTOR_BYTES) as usize;
        oracle.fill(&token, &mut self.content[bytes]);
        oracle.end_write(&token, WriteEnd::Durable);
    }

    /// The rows of this range of the volume, in the new geometry.
    fn put_rows(&mut self, moved: &std::ops::Range<u64>) {
        let new = &mut self.half.new;
        new.reference().encode_into(&self.content, &mut new.members);
        let data_count = self.half.new_data_count();
        let new = &self.half.new;
        let rows = moved.start / data_count..moved.end / data_count;
        for (holder, bytes) in new.holders.iter().zip(&new.members) {
            let (Some(position), Some(bytes)) = (holder, bytes) else {
                continue;
            };
            let member = &self.all[*position];
            let start = new_offset_sectors(&member.superblock) * SECTOR_BYTES;
            let part = &bytes[rows.start as usize..rows.end as usize];
            self.scene.disks[member.disk as usize].poke(start + rows.start, part);
        }
    }

    fn put_superblocks(&mut self, position_bytes: u64, has_ended: bool) {
        let events = EventCount(self.half.newest.events.0 + 1);
        let done_sectors = position_bytes / SECTOR_BYTES / self.half.new_data_count();
        let is_down = self.half.reshape.is_backwards();
        for member in &mut self.all {
            let is_used = self.half.newest.role_of(member.superblock.dev_number) != Role::Faulty
                && member
                    .superblock
                    .events
                    .is_fresh_beside(self.half.newest.events);
            if !is_used {
                continue;
            }
            let superblock = &mut member.superblock;
            superblock.events = events;
            match (has_ended, &mut superblock.reshape) {
                (true, _) => end(superblock),
                (false, Some(reshape)) => {
                    reshape.position_sectors = position_bytes / SECTOR_BYTES;
                    let filled = superblock.rebuild_offset_sectors.as_mut();
                    filled
                        .into_iter()
                        .filter(|_| !is_down)
                        .for_each(|filled| *filled = done_sectors);
                }
                (false, None) => {}
            }
            let disk = &self.scene.disks[member.disk as usize];
            let length = superblock.write_bytes(512);
            let at = superblock.super_offset_sectors * SECTOR_BYTES;
            if let (Some(bitmap), Some(sector)) = (&mut member.bitmap, superblock.bitmap_sector()) {
                bitmap.header.events = events;
                disk.poke(sector * SECTOR_BYTES, &bitmap.encode());
            }
            disk.poke(at, &superblock.encode()[..length]);
        }
    }
}

fn new_offset_sectors(superblock: &Superblock) -> u64 {
    let shift = superblock
        .reshape
        .and_then(|reshape| reshape.new_offset_sectors);
    superblock
        .data_offset_sectors
        .saturating_add_signed(i64::from(shift.unwrap_or(0)))
}

/// There is but the new geometry.
fn end(superblock: &mut Superblock) {
    let offset_sectors = new_offset_sectors(superblock);
    let Some(reshape) = superblock.reshape.take() else {
        return;
    };
    let end_sectors = superblock.data_offset_sectors + superblock.data_size_sectors;
    superblock.data_offset_sectors = offset_sectors;
    superblock.data_size_sectors = end_sectors - offset_sectors;
    superblock.level = reshape.new_level;
    superblock.layout = reshape.new_layout;
    superblock.strip_sectors = reshape.new_strip_sectors;
    superblock.rebuild_offset_sectors = None;
    for role in &mut superblock.roles {
        if role
            .slot()
            .is_some_and(|slot| u32::from(slot.0) >= superblock.member_count)
        {
            *role = Role::Spare;
        }
    }
}
