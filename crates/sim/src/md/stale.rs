//! A start was refused for good because too few members are fresh: the user names the stale ones and reads (W7,
//! forced).
//!
//! Invariants:
//! - it is judged by what the disks said before, read by the format crate, and never by what the engine says of them;
//! - where histories are split, or a member may have been left out for another reason, nothing is said of who was used.

use std::cell::RefCell;
use std::rc::Rc;

use super::checker::{Inspected, inspect};
use super::reference::Reference;
use super::slots::{Setting, SlotArray, StaleRead};
use super::spec::Spec;
use crate::finding::Finding;
use crate::world::{Scene, World};
use plexum_disks::disk::SimDisk;

/// Starts the array with its stale members to read it, and judges that.
pub(super) fn read_with_stale<S: SlotArray>(world: &mut World<S>) {
    let scene = Rc::clone(&world.scene);
    if !S::HAS_METADATA || scene.plan.spec.tolerates() == 0 || scene.has_findings() {
        return;
    }
    let disks = scene.disks.iter().filter(|disk| disk.is_present());
    let disks: Vec<SimDisk> = disks.cloned().collect();
    let before: Vec<Inspected> = disks.iter().filter_map(inspect).collect();
    let writes_before = scene.member_writes();
    let result: Rc<RefCell<Option<Option<StaleRead>>>> = Rc::default();
    let cell = Rc::clone(&result);
    let setting = Setting::of(&world.context, &scene.plan);
    let spawner = world.executor.spawner();
    world.executor.spawn(async move {
        let disks: Vec<SimDisk> = disks.iter().map(SimDisk::reopen).collect();
        let read = S::read_with_stale(&setting, &disks, spawner).await;
        *cell.borrow_mut() = Some(read);
    });
    let waiting = Rc::clone(&result);
    if !world.drive_until(|| waiting.borrow().is_some()) {
        if !scene.disks.iter().any(SimDisk::is_hung) && !scene.has_findings() {
            scene.find(Finding::NoAnswer { requests: 1 });
        }
        return;
    }
    let Some(read) = result.take().flatten() else {
        return; // refused, whoever is named
    };
    scene.count("read-with-stale", 1);
    let writes = scene.member_writes() - writes_before;
    if let Some(what) = judge(&scene, &before, &read, writes) {
        scene.find(Finding::StaleStart(what));
    }
}

fn events(member: &Inspected) -> u64 {
    member.superblock.events.0
}

/// What is wrong with a start that has used stale members; nothing where it has used none.
fn judge<S: SlotArray>(
    scene: &Scene<S>,
    before: &[Inspected],
    read: &StaleRead,
    writes: u64,
) -> Option<String> {
    let is_used = |member: &&Inspected| read.slots.contains(&Some(member.disk));
    let newest = before.iter().filter(is_used).map(events).max()?;
    let is_stale = |member: &&Inspected| events(member) + 1 < newest;
    let taken: Vec<&Inspected> = before.iter().filter(is_used).filter(is_stale).collect();
    let first = taken.first()?;
    if writes > 0 {
        return Some(format!(
            "it was to be read with stale disk {}, and {writes} writes came to its members",
            first.disk
        ));
    }
    wrong_choice(scene, before, read, newest, &taken).or_else(|| never_written(scene, before, read))
}

/// A stale member that was taken where a less stale one would have done.
fn wrong_choice<S: SlotArray>(
    scene: &Scene<S>,
    before: &[Inspected],
    read: &StaleRead,
    newest: u64,
    taken: &[&Inspected],
) -> Option<String> {
    let with_slot = before
        .iter()
        .filter(|m| m.superblock.role().slot().is_some());
    let (fresh, stale): (Vec<&Inspected>, Vec<&Inspected>) =
        with_slot.partition(|member| events(member) + 1 >= newest);
    let is_split = fresh.iter().any(|one| {
        let is_ahead = events(one) > newest;
        is_ahead
            || before
                .iter()
                .any(|other| excludes(one, other) && excludes(other, one))
    });
    if is_split {
        return None;
    }
    let may_be_taken = |member: &&&Inspected| {
        let disk = &scene.disks[member.disk as usize];
        !read.live.contains(&member.disk)
            && member.superblock.rebuild_offset_sectors.is_none()
            && !member.superblock.is_replacement
            && !fresh.iter().any(|one| excludes(member, one))
            && !disk.has_read_errors(&(0..u64::MAX))
            && !disk.is_hung()
    };
    for left_out in stale.iter().filter(may_be_taken) {
        let slot = usize::from(left_out.superblock.role().slot()?.0);
        for old in taken.iter().filter(|old| events(old) < events(left_out)) {
            let mut others = before
                .iter()
                .filter(|m| m.disk != old.disk && read.live.contains(&m.disk));
            let is_held = others.any(|m| slots_of(m, &fresh).any(|held| held == slot));
            let mut has: Vec<bool> = read
                .slots
                .iter()
                .map(|disk| disk.is_some_and(|d| d != old.disk))
                .collect();
            let Some(own) = has.get_mut(slot).filter(|_| !is_held) else {
                continue;
            };
            *own = true;
            if is_enough(&scene.plan.spec, &has) {
                return Some(format!(
                    "stale disk {} (event count {}) was taken, and disk {} (event count {}) would have done",
                    old.disk,
                    events(old),
                    left_out.disk,
                    events(left_out)
                ));
            }
        }
    }
    None
}

/// Slots that a member may hold: by its own superblock and by the fresh ones.
fn slots_of<'a>(
    member: &'a Inspected,
    fresh: &'a [&Inspected],
) -> impl Iterator<Item = usize> + 'a {
    let given = fresh
        .iter()
        .map(|one| one.superblock.role_of(member.superblock.dev_number));
    let all = given.chain([member.superblock.role()]);
    all.filter_map(|role| role.slot())
        .map(|slot| usize::from(slot.0))
}

/// Whether `by` records that nobody has the slot of `other`: it went on without it.
fn excludes(by: &Inspected, other: &Inspected) -> bool {
    let (by, other) = (&by.superblock, &other.superblock);
    other.role().slot().is_some_and(|slot| {
        by.role_of(other.dev_number).slot().is_none()
            && by.roles.iter().all(|role| role.slot() != Some(slot))
    })
}

/// Whether members in these slots have everything.
fn is_enough(spec: &Spec, has: &[bool]) -> bool {
    if spec.level.has_parity() {
        return has.iter().filter(|is_there| !**is_there).count() <= spec.tolerates();
    }
    let reference = Reference::new(spec);
    let strip = usize::try_from(spec.strip_bytes).unwrap_or(0).max(512);
    let mut strips = (0..reference.volume_bytes()).step_by(strip);
    strips.all(|at| reference.places(at).iter().any(|(slot, _)| has[*slot]))
}

/// A sector that lies on a member that was used, and reads as something that was never written there. What is computed
/// from members of two times may be anything.
fn never_written<S: SlotArray>(
    scene: &Scene<S>,
    before: &[Inspected],
    read: &StaleRead,
) -> Option<String> {
    // What a member cannot give is computed as well.
    let gives_all = |disk: &u32| {
        let has_bad = before.iter().any(|m| m.disk == *disk && !m.bad.is_empty());
        !has_bad && !scene.disks[*disk as usize].has_read_errors(&(0..u64::MAX))
    };
    let gives: Vec<bool> = read
        .slots
        .iter()
        .map(|disk| disk.as_ref().is_some_and(gives_all))
        .collect();
    let reference = Reference::new(&scene.plan.spec).in_units_of(512);
    let oracle = &scene.oracles.borrow()[0];
    for (start, bytes) in &read.pieces {
        for (at, sector) in (*start..).step_by(512).zip(bytes.chunks_exact(512)) {
            let lies_there = reference.places(at).iter().any(|(slot, _)| gives[*slot]);
            if lies_there && !oracle.may_ever_have_been(at / 512, sector) {
                return Some(format!(
                    "sector {} lies on a member that was used, and was never what it reads",
                    at / 512
                ));
            }
        }
    }
    None
}
