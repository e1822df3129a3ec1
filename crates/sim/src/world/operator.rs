//! Faults and administrators' operations, at their moments.

use std::rc::Rc;

use super::Shared;
use crate::scenario::Wish;
use crate::subject::{Operation, Subject};
use plexum_disks::fault::Fault;
use plexum_disks::trace::{Actor, Verb};

/// Carries out, or holds back, every wish that is due at request `number`.
pub(super) fn grant_wishes<S: Subject>(shared: &Rc<Shared<S>>, number: u64) {
    while let Some((due, wish)) = shared.scenario.wishes.get(shared.next_wish.get()) {
        if *due > number {
            return;
        }
        shared.next_wish.set(shared.next_wish.get() + 1);
        shared.review_doomed();
        if !grant(shared, wish) {
            shared.counts.borrow_mut().held_back += 1;
        }
    }
}

fn grant<S: Subject>(shared: &Rc<Shared<S>>, wish: &Wish) -> bool {
    if shared.is_unplugged.get() {
        return false;
    }
    let status = shared.subject().status();
    match wish {
        Wish::Fault { slot, fault } => {
            let Some(Some(disk)) = status.slots.get(*slot).copied() else {
                return false;
            };
            strike(shared, disk, fault)
        }
        Wish::Return => {
            end_shortages(shared);
            true
        }
        Wish::Cable { slot } => unplug(shared, *slot),
        Wish::Rest { length_ns } => {
            shared.rest_until_ns.set(shared.clock.now_ns() + length_ns);
            true
        }
        Wish::Full { slot, range } => {
            let Some(Some(disk)) = status.slots.get(*slot).copied() else {
                return false;
            };
            strike(shared, disk, &Fault::NoSpace(range.clone()))
        }
        Wish::Fail { slot } => {
            let Some(Some(disk)) = status.slots.get(*slot).copied() else {
                return false;
            };
            if !shared.admits(disk, &Fault::Vanish) {
                return false;
            }
            shared.doomed.borrow_mut().insert(disk);
            spawn(shared, "fail", Operation::Fail { slot: *slot });
            true
        }
        Wish::Add => {
            // One disk more than there are slots may stand by as a spare.
            let is_wanted = status.live.len() <= shared.scenario.spec.member_count;
            let Some(disk) = idle_disk(shared).filter(|_| is_wanted) else {
                return false;
            };
            spawn(shared, "add", Operation::Add { disk });
            true
        }
        Wish::Give { disk } => give(shared, *disk),
        Wish::At { stage, slot, fault } => {
            let waiting = (*stage, *slot, fault.clone());
            shared.pending.borrow_mut().push(waiting);
            true
        }
        Wish::Replace { slot } => {
            let is_whole = status.slots.iter().all(Option::is_some);
            // One with bad blocks in the place of one without would be one loss more.
            let is_good = |disk: &u32| !shared.disks[*disk as usize].has_write_errors();
            let Some(disk) = idle_disk(shared).filter(is_good).filter(|_| is_whole) else {
                return false;
            };
            spawn(shared, "replace", Operation::Replace { slot: *slot, disk });
            true
        }
        Wish::Scrub => {
            spawn(shared, "scrub", Operation::Scrub);
            true
        }
    }
}

/// Gives the array this disk, unless it has it or has more than it needs.
fn give<S: Subject>(shared: &Rc<Shared<S>>, disk: u32) -> bool {
    let live = shared.subject().status().live;
    let is_idle = shared.disks[disk as usize].is_present()
        && !live.contains(&disk)
        && !shared.reserved.borrow().contains(&disk);
    if !is_idle || live.len() > shared.scenario.spec.member_count {
        return false;
    }
    spawn(shared, "give", Operation::Add { disk });
    true
}

/// All that is wrong with disks until then ends.
fn end_shortages<S: Subject>(shared: &Shared<S>) {
    for disk in &shared.disks {
        if disk.is_full() {
            // Answers of requests under way may still say so.
            shared.was_full.set(true);
        }
        if !disk.is_present() || disk.is_full() || disk.is_hung() {
            disk.put_fault(&Fault::Return);
        }
    }
}

/// Strikes with the faults that wait for a stage which some request is in now.
pub(super) fn strike_pending<S: Subject>(shared: &Rc<Shared<S>>) {
    if shared.pending.borrow().is_empty() || shared.subject.borrow().is_none() {
        return;
    }
    let waiting = shared.pending.take();
    for (stage, slot, fault) in waiting {
        if !(shared.is_at(Some(stage)) && strike_near(shared, slot, &fault)) {
            shared.pending.borrow_mut().push((stage, slot, fault));
        }
    }
}

/// Strikes the disk of this slot, or of the next one that it may strike.
fn strike_near<S: Subject>(shared: &Rc<Shared<S>>, slot: usize, fault: &Fault) -> bool {
    shared.review_doomed();
    let slots = shared.subject().status().slots;
    let mut near = (0..slots.len()).filter_map(|step| slots[(slot + step) % slots.len()]);
    near.any(|disk| strike(shared, disk, fault))
}

/// A disk that is there and not part of the array: a former member rather than a fresh one in half of the cases.
pub(super) fn idle_disk<S: Subject>(shared: &Shared<S>) -> Option<u32> {
    let live = shared.subject().status().live;
    let reserved = shared.reserved.borrow();
    let is_idle = |disk: &u32| {
        shared.disks[*disk as usize].is_present()
            && !live.contains(disk)
            && !reserved.contains(disk)
    };
    let mut idle: Vec<u32> = (0..shared.disks.len() as u32).filter(is_idle).collect();
    if shared.counts.borrow().requests % 2 == 1 {
        idle.reverse();
    }
    idle.first().copied()
}

/// Pulls out one disk more than the organisation tolerates, all at once, when everything was whole before.
fn unplug<S: Subject>(shared: &Shared<S>, slot: usize) -> bool {
    let status = shared.subject().status();
    let tolerates = shared.scenario.spec.tolerates();
    let is_whole = shared.lost_slots() == 0 && !status.is_syncing && status.bad_ranges.is_empty();
    let everywhere = 0..u64::MAX;
    let is_readable = !shared
        .disks
        .iter()
        .any(|disk| disk.has_read_errors(&everywhere));
    let is_busy = !shared.reserved.borrow().is_empty();
    if tolerates == 0 || !is_whole || !is_readable || is_busy || !shared.doomed.borrow().is_empty()
    {
        return false;
    }
    shared.is_unplugged.set(true);
    shared.has_vanished.set(true);
    let members = shared.scenario.spec.member_count;
    for step in 0..=tolerates {
        let disk = status.slots[(slot + step) % members].expect("every slot is held");
        shared.disks[disk as usize].put_fault(&Fault::Vanish);
    }
    true
}

fn strike<S: Subject>(shared: &Shared<S>, disk: u32, fault: &Fault) -> bool {
    if !shared.admits(disk, fault) {
        return false;
    }
    let costs_member = matches!(
        fault,
        Fault::WriteError(_)
            | Fault::TornWrite(_)
            | Fault::FlushError { .. }
            | Fault::Vanish
            | Fault::Hang
    );
    if costs_member {
        shared.doomed.borrow_mut().insert(disk);
    }
    if *fault == Fault::Vanish {
        shared.has_vanished.set(true);
    }
    let start = shared.subject().data_offset_bytes(disk);
    let moved = |range: &std::ops::Range<u64>| range.start + start..range.end + start;
    let fault = match fault {
        Fault::ReadError(range) => Fault::ReadError(moved(range)),
        Fault::WriteError(range) => Fault::WriteError(moved(range)),
        Fault::TornWrite(range) => Fault::TornWrite(moved(range)),
        Fault::NoSpace(range) => Fault::NoSpace(moved(range)),
        other => other.clone(),
    };
    shared.disks[disk as usize].put_fault(&fault);
    shared.note_matrix(plexum_disks::fault::kind_name(fault.kind()), "none");
    true
}

/// Starts an operation as a task of its own. Its refusal is no finding: arrays refuse what does not fit their state.
pub(super) fn spawn<S: Subject>(shared: &Rc<Shared<S>>, name: &'static str, operation: Operation) {
    let spawner = shared.spawner.borrow().clone().expect("the world runs");
    let shared = Rc::clone(shared);
    shared.busy.set(shared.busy.get() + 1);
    if let Operation::Add { disk } | Operation::Replace { disk, .. } = operation {
        shared.reserved.borrow_mut().insert(disk);
    }
    spawner.spawn(async move {
        operate(&shared, name, operation).await;
        shared.busy.set(shared.busy.get() - 1);
    });
}

pub(super) async fn operate<S: Subject>(
    shared: &Rc<Shared<S>>,
    name: &'static str,
    operation: Operation,
) {
    let number = match operation {
        Operation::Fail { slot } => slot as u64,
        Operation::Add { disk } | Operation::Replace { disk, .. } => u64::from(disk),
        Operation::Scrub => 0,
    };
    shared
        .trace
        .note(Actor::World, Verb::Operate, [name.len() as u64, number, 0]);
    let disk = match operation {
        Operation::Add { disk } | Operation::Replace { disk, .. } => Some(disk),
        Operation::Fail { .. } | Operation::Scrub => None,
    };
    let result = shared.subject().operate(operation, &shared.disks).await;
    if let Some(disk) = disk {
        shared.reserved.borrow_mut().remove(&disk);
    }
    shared.trace.note(
        Actor::World,
        Verb::OperateDone,
        [name.len() as u64, number, u64::from(result.is_err())],
    );
    let key = if result.is_ok() { name } else { "refused" };
    *shared
        .counts
        .borrow_mut()
        .operations
        .entry(key)
        .or_default() += 1;
}
