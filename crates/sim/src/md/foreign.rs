//! What the md driver of the kernel may do to the array between two runs of Plexum: assemble it, resync it, write to
//! it, lose a member, take one back, stop it cleanly or crash with it.
//!
//! Invariants:
//! - it is a model of its own: superblocks and bitmaps by the format crate, geometry and parity by the reference model;
//! - it does what linux-md.md 9 to 11 say, also what Plexum never does itself: the event count goes back by one when a
//!   clean mark only undoes the last change, and spares are then left as they are.

mod ppl;

use plexum_block::clock::Clock;
use plexum_format::EventCount;
use plexum_format::md::{MdTime, Role};
use plexum_format::{SECTOR_BYTES, Slot};

use super::checker::{self, Inspected};
use super::drill::Drill;
use super::reference::{Members, Reference};
use super::slots::SlotArray;
use crate::oracle::{WriteEnd, WriteKind};
use crate::world::Scene;
use plexum_disks::disk::CrashKind;
use plexum_disks::rng::Rng;

/// The array while the model of the kernel has it.
struct Kernel<'a, S: SlotArray> {
    scene: &'a Scene<S>,
    rng: Rng,
    all: Vec<Inspected>,
    /// By slot, position in `all`.
    by_slot: Vec<Option<usize>>,
    members: Members,
    content: Vec<u8>,
    events: EventCount,
    /// Something other than clean and dirty marks happened.
    has_news: bool,
    is_degraded: bool,
}

/// Lets the kernel have the array once. Says what it did, for counting.
pub(super) fn visit<S: SlotArray>(scene: &Scene<S>, salt: u64) -> &'static str {
    let spec = &scene.plan.spec;
    let all: Vec<Inspected> = scene
        .disks
        .iter()
        .filter(|disk| disk.is_present())
        .filter_map(checker::inspect)
        .collect();
    if all
        .iter()
        .any(|member| member.superblock.has_answers_in_log)
    {
        return "foreign-refused"; // an unknown feature (L5)
    }
    let Some(found) = checker::assemble(&all, spec) else {
        return "foreign-nothing";
    };
    let newest = found.newest.clone();
    let (members, bad) = checker::contents(&found, &all, &scene.disks, spec);
    let by_slot = found.by_slot;
    let is_degraded = by_slot.iter().any(Option::is_none);
    let resync_sectors = newest.resync_offset_sectors;
    let is_dirty = resync_sectors.is_some();
    let has_filling = all.iter().any(|member| {
        let own = &member.superblock;
        own.events.is_fresh_beside(newest.events)
            && (own.rebuild_offset_sectors.is_some() || own.is_replacement)
            || newest.role_of(own.dev_number).slot().is_some() && own.role().slot().is_none()
    });
    let has_spare = all.iter().any(|member| {
        member.superblock.role() == Role::Spare
            && newest.role_of(member.superblock.dev_number) == Role::Spare
    });
    let reference = Reference::new(spec);
    // Not modelled: a rebuild that is under way or would begin at once, bad blocks, arrays without superblock changes.
    if has_filling || has_spare && is_degraded || !bad.is_empty() || spec.tolerates() == 0 {
        return "foreign-nothing";
    }
    if is_dirty && is_degraded && spec.level.has_parity() {
        return "foreign-refused"; // "cannot start dirty degraded array"
    }
    let Some(content) = reference.content(&members) else {
        return "foreign-refused";
    };
    let rng = Rng::new(scene.plan.course.seed).fork(0x666f_7265_0000 + salt);
    let kernel = Kernel {
        scene,
        rng,
        all,
        by_slot,
        members,
        content,
        events: newest.events,
        has_news: is_dirty,
        is_degraded,
    };
    kernel.run(resync_sectors)
}

impl<S: SlotArray> Kernel<'_, S> {
    fn run(mut self, resync_sectors: Option<u64>) -> &'static str {
        let is_dirty = resync_sectors.is_some();
        if !is_dirty && self.rng.chance(1, 6) {
            return "foreign-looked"; // auto-read-only: nothing is written
        }
        // The last commit of Plexum may not have reached everybody: the first one of the kernel levels them.
        self.bump();
        self.commit(Some(0));
        let has_ppl = self.has_ppl();
        // A partial parity log makes an array clean that no resync had begun on.
        let is_mended = has_ppl && is_dirty && self.replay_ppl() && resync_sectors == Some(0);
        if is_mended {
            self.check_replayed();
        } else if is_dirty {
            self.resync();
        }
        if has_ppl {
            self.begin_ppl();
        }
        for _ in 0..self.rng.below(3) {
            self.write(true);
        }
        let is_lent = self.scene.plan.drill == Some(Drill::Lent);
        if self.rng.chance(1, 3) && !is_lent {
            self.lose_member();
        } else if self.is_degraded && self.rng.chance(1, 2) {
            self.take_back();
        }
        for _ in 0..self.rng.below(4) {
            self.write(true);
        }
        // A crash of the kernel brings doubt back where a log had taken it away: nothing of a row may be lost then.
        let everywhere = 0..u64::MAX;
        let mut disks = self.scene.disks.iter();
        let is_lacking = self.is_degraded || disks.any(|disk| disk.has_read_errors(&everywhere));
        let may_crash = !is_lacking || !self.scene.plan.spec.level.has_parity();
        let crashes_of_4 = match self.scene.plan.drill {
            Some(Drill::Kernel) => 2,
            Some(Drill::Lent) => 3,
            _ => 1,
        };
        let done = if may_crash && self.rng.chance(crashes_of_4, 4) {
            self.write(false);
            self.scene.oracles.borrow_mut()[0].crash(CrashKind::PowerCut);
            "foreign-crashed"
        } else {
            self.stop();
            "foreign-wrote"
        };
        let highest = checker::highest_count(&self.scene.disks);
        self.scene.memory.highest_count.set(highest);
        self.scene.memory.event_count.set(self.events.0);
        done
    }

    fn bump(&mut self) {
        self.events = EventCount(self.events.0 + 1);
    }

    fn is_used(&self, position: usize) -> bool {
        self.by_slot.contains(&Some(position))
            || self.all[position].superblock.role() == Role::Spare
    }

    /// Writes the superblocks of everybody in use (spares too), and the bitmaps' headers before them.
    fn commit(&mut self, resync_offset_sectors: Option<u64>) {
        self.put_bitmaps();
        let events = self.events;
        let seconds = self.scene.clock.wall_seconds();
        for position in 0..self.all.len() {
            if !self.is_used(position) {
                continue;
            }
            let superblock = &mut self.all[position].superblock;
            superblock.events = events;
            superblock.resync_offset_sectors = resync_offset_sectors;
            superblock.utime = MdTime {
                seconds,
                microseconds: 0,
            };
            self.put_superblock(position);
        }
    }

    fn put_superblock(&self, position: usize) {
        let member = &self.all[position];
        let length = member.superblock.write_bytes(512);
        let start = member.superblock.super_offset_sectors * SECTOR_BYTES;
        self.scene.disks[member.disk as usize].poke(start, &member.superblock.encode()[..length]);
    }

    fn put_bitmaps(&mut self) {
        let events = self.events;
        for position in self.by_slot.clone().into_iter().flatten() {
            let member = &mut self.all[position];
            let (Some(bitmap), Some(sector)) =
                (member.bitmap.as_mut(), member.superblock.bitmap_sector())
            else {
                continue;
            };
            bitmap.header.events = events;
            let bytes = bitmap.encode();
            self.scene.disks[member.disk as usize].poke(sector * SECTOR_BYTES, &bytes);
        }
    }

    /// Copies become as the first one, parity as the data say; then all bits go.
    fn resync(&mut self) {
        self.put_content(None);
        self.bump();
        self.has_news = true;
        self.commit(Some(0));
    }

    /// Lays the content out; `torn`: only on these slots.
    fn put_content(&mut self, torn: Option<&[bool]>) {
        let reference = Reference::new(&self.scene.plan.spec);
        reference.encode_into(&self.content, &mut self.members);
        for (slot, position) in self.by_slot.iter().enumerate() {
            let (Some(position), Some(bytes)) = (position, &self.members[slot]) else {
                continue;
            };
            if torn.is_some_and(|reached| !reached[slot]) {
                continue;
            }
            let member = &self.all[*position];
            let start = member.superblock.data_offset_sectors * SECTOR_BYTES;
            self.scene.disks[member.disk as usize].poke(start, bytes);
        }
    }

    /// A write of the kernel's clients: durable, or cut by a crash so that only some members have it.
    fn write(&mut self, is_whole: bool) {
        let sectors = self.content.len() as u64 / SECTOR_BYTES;
        let length = self.rng.between(1, 32).min(sectors);
        // Often where the clients of Plexum write: what a log still holds of these rows is old now (L6).
        let start = if self.rng.chance(1, 2) {
            let place = self.rng.below(4);
            let seed = self.scene.plan.course.seed;
            Rng::new(seed).fork(place).below(sectors)
        } else {
            self.rng.below(sectors)
        };
        let start = start.min(sectors - length);
        let range = start..start + length;
        let mut oracles = self.scene.oracles.borrow_mut();
        let oracle = &mut oracles[0];
        let token = oracle.begin_write(range.clone(), WriteKind::Data);
        let bytes = (start * SECTOR_BYTES) as usize..(range.end * SECTOR_BYTES) as usize;
        oracle.fill(&token, &mut self.content[bytes]);
        if is_whole {
            oracle.end_write(&token, WriteEnd::Durable);
        }
        drop(oracles);
        self.log_ppl(&range);
        self.mark(&range);
        let reached: Vec<bool> = (0..self.by_slot.len())
            .map(|_| self.rng.chance(1, 2))
            .collect();
        self.put_content((!is_whole).then_some(&reached[..]));
    }

    /// Sets the bits of everything that a write to these sectors of the volume changes.
    fn mark(&mut self, sectors: &std::ops::Range<u64>) {
        let spec = &self.scene.plan.spec;
        let sync = if spec.level.has_parity() {
            let reference = Reference::new(spec);
            let strip = spec.strip_bytes;
            let row = |sector: u64| {
                let at = sector * SECTOR_BYTES / strip * strip;
                reference.places(at)[0].1 / SECTOR_BYTES
            };
            row(sectors.start)..row(sectors.end - 1) + strip / SECTOR_BYTES
        } else {
            sectors.clone()
        };
        for position in self.by_slot.clone().into_iter().flatten() {
            if let Some(bitmap) = self.all[position].bitmap.as_mut() {
                for region in bitmap.region_of(sync.start)..=bitmap.region_of(sync.end - 1) {
                    bitmap.set(region, true);
                }
            }
        }
        self.put_bitmaps();
    }

    /// A member fails: the others say so, it keeps its old superblock.
    fn lose_member(&mut self) {
        let held: Vec<usize> = (0..self.by_slot.len())
            .filter(|slot| self.by_slot[*slot].is_some())
            .collect();
        let lost = self.by_slot.len() - held.len();
        // Without a log, parity that is lost and written promises nothing at a crash: only clean ends follow.
        let slot = *self.rng.pick(&held);
        // Nor beside a member that is struck already or cannot be read everywhere, whoever notices it first.
        let own = self.by_slot[slot].expect("the slot is held");
        let own = self.all[own].disk;
        let everywhere = 0..u64::MAX;
        let is_struck = self.scene.disks.iter().any(|disk| {
            let is_struck = self.scene.struck.borrow().contains(&disk.number())
                || disk.has_write_errors()
                || disk.is_full();
            disk.number() != own && (is_struck || disk.has_read_errors(&everywhere))
        });
        if lost >= self.scene.plan.spec.tolerates() || lost > 0 || is_struck {
            return;
        }
        let position = self.by_slot[slot].take().expect("the slot is held");
        let number = self.all[position].superblock.dev_number;
        self.members[slot] = None;
        self.set_role(number, Role::Faulty);
        self.finish_change();
        self.is_degraded = true;
    }

    fn set_role(&mut self, number: u32, role: Role) {
        for position in 0..self.all.len() {
            if self.is_used(position) {
                let _ = self.all[position].superblock.set_role(number, role);
            }
        }
    }

    fn finish_change(&mut self) {
        self.bump();
        self.has_news = true;
        self.commit(Some(0));
    }

    /// A member that was dropped comes back and is brought up to date completely.
    fn take_back(&mut self) {
        let Some(slot) = self.by_slot.iter().position(Option::is_none) else {
            return;
        };
        let number_of = |member: &Inspected| member.superblock.dev_number;
        let returning = (0..self.all.len()).find(|position| {
            let member = &self.all[*position];
            let number = number_of(member);
            let is_unique = self
                .all
                .iter()
                .filter(|other| number_of(other) == number)
                .count()
                == 1;
            !self.is_used(*position)
                && is_unique
                && member.superblock.role() == Role::Active(Slot(slot as u16))
                && member.superblock.rebuild_offset_sectors.is_none()
                && !member.superblock.is_replacement
        });
        let Some(position) = returning else { return };
        let template = self.by_slot.iter().flatten().next().copied();
        let Some(template) = template else { return };
        let roles = self.all[template].superblock.roles.clone();
        let bitmap = self.all[template].bitmap.clone();
        let member = &mut self.all[position];
        member.superblock.roles = roles;
        member.superblock.has_bad_blocks = false;
        member.bitmap = bitmap;
        let number = member.superblock.dev_number;
        self.begin_ppl_on(position);
        self.by_slot[slot] = Some(position);
        self.members[slot] = Some(vec![0; self.scene.plan.spec.component_bytes as usize]);
        self.set_role(number, Role::Active(Slot(slot as u16)));
        self.put_content(None);
        self.finish_change();
        self.is_degraded = self.by_slot.iter().any(Option::is_none);
    }

    /// A clean stop: bits go unless a member is away, and the count goes back when only clean and dirty marks lie
    /// between.
    fn stop(&mut self) {
        let may_go_back = !self.has_news && self.rng.chance(2, 3);
        // Never while a member is away: it would look fresh when it comes back.
        let goes_back = may_go_back && !self.is_degraded;
        self.events = EventCount(if goes_back {
            self.events.0 - 1
        } else {
            self.events.0 + 1
        });
        let (events, is_degraded) = (self.events, self.is_degraded);
        for position in self.by_slot.clone().into_iter().flatten() {
            if let Some(bitmap) = self.all[position].bitmap.as_mut().filter(|_| !is_degraded) {
                bitmap.clear_all();
                bitmap.header.events_cleared = events;
            }
        }
        if goes_back {
            self.put_bitmaps();
            for position in self.by_slot.clone().into_iter().flatten() {
                let superblock = &mut self.all[position].superblock;
                superblock.events = events;
                superblock.resync_offset_sectors = None;
                self.put_superblock(position);
            }
        } else {
            self.commit(None);
        }
    }
}
