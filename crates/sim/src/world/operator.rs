//! Faults and administrators' operations, at their moments, where the rules of the subject admit them.

use std::rc::Rc;

use super::rules::Rules;
use super::scene::Scene;
use crate::course::Wish;
use crate::subject::{Operation, Purpose};
use plexum_disks::disk::SimDisk;
use plexum_disks::fault::{Fault, kind_name};
use plexum_disks::trace::{Actor, Verb};

/// Carries out, or holds back, every wish that is due at request `number`.
pub(super) fn grant_wishes<S: Rules>(scene: &Rc<Scene<S>>, number: u64) {
    while let Some((due, wish)) = scene.course().wishes.get(scene.next_wish.get()) {
        if *due > number {
            return;
        }
        scene.next_wish.set(scene.next_wish.get() + 1);
        S::review(scene);
        if !S::is_open_to_wishes(scene) || !grant(scene, wish) {
            scene.counts.borrow_mut().held_back += 1;
        }
    }
}

fn grant<S: Rules>(scene: &Rc<Scene<S>>, wish: &Wish) -> bool {
    match wish {
        Wish::Fault { slot, fault } => {
            let disk = disk_in(scene, *slot);
            disk.is_some_and(|disk| strike(scene, disk, fault))
        }
        Wish::Return => {
            end_shortages(scene);
            true
        }
        Wish::Cable { slot } => S::unplug(scene, *slot),
        Wish::Rest { length_ns } => {
            scene.rest_until_ns.set(scene.clock.now_ns() + length_ns);
            true
        }
        Wish::Fail { slot } => {
            let disk = disk_in(scene, *slot);
            let Some(disk) = disk.filter(|disk| S::may_lose(scene, *disk)) else {
                return false;
            };
            scene.struck.borrow_mut().insert(disk);
            spawn(scene, "fail", Operation::Fail { slot: *slot })
        }
        Wish::Add => add(scene, "add", Purpose::Add),
        Wish::Give { disk } => add(scene, "give", Purpose::Give(*disk)),
        Wish::At { stage, slot, fault } => {
            let waiting = (*stage, *slot, fault.clone());
            scene.pending.borrow_mut().push(waiting);
            true
        }
        Wish::Replace { slot } => {
            let Some(disk) = S::spare_for(scene, Purpose::Replace) else {
                return false;
            };
            spawn(scene, "replace", Operation::Replace { slot: *slot, disk })
        }
        Wish::Scrub => spawn(scene, "scrub", Operation::Scrub),
    }
}

fn disk_in<S: Rules>(scene: &Scene<S>, slot: usize) -> Option<u32> {
    S::slots(scene).get(slot).copied().flatten()
}

fn add<S: Rules>(scene: &Rc<Scene<S>>, name: &'static str, purpose: Purpose) -> bool {
    match S::spare_for(scene, purpose) {
        Some(disk) => spawn(scene, name, Operation::Add { disk }),
        None => false,
    }
}

/// All that is wrong with disks until then ends.
fn end_shortages<S: Rules>(scene: &Scene<S>) {
    for disk in &scene.disks {
        if disk.is_full() {
            // Answers of requests under way may still say so.
            scene.was_full.set(true);
        }
        if !disk.is_present() || disk.is_full() || disk.is_hung() {
            disk.put_fault(&Fault::Return);
        }
    }
}

/// Strikes with the faults that wait for a stage which some request is in now.
pub(super) fn strike_pending<S: Rules>(scene: &Scene<S>) {
    if scene.pending.borrow().is_empty() || scene.subject.borrow().is_none() {
        return;
    }
    let waiting = scene.pending.take();
    for (stage, slot, fault) in waiting {
        if !(scene.is_at(Some(stage)) && strike_near(scene, slot, &fault)) {
            scene.pending.borrow_mut().push((stage, slot, fault));
        }
    }
}

/// Strikes the disk of this slot, or of the next one that it may strike.
fn strike_near<S: Rules>(scene: &Scene<S>, slot: usize, fault: &Fault) -> bool {
    S::review(scene);
    let slots = S::slots(scene);
    let mut near = (0..slots.len()).filter_map(|step| slots[(slot + step) % slots.len()]);
    near.any(|disk| strike(scene, disk, fault))
}

fn strike<S: Rules>(scene: &Scene<S>, disk: u32, fault: &Fault) -> bool {
    if !S::admits(scene, disk, fault) {
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
        scene.struck.borrow_mut().insert(disk);
    }
    if *fault == Fault::Vanish {
        scene.has_vanished.set(true);
    }
    scene.is_untouched.set(false);
    let fault = S::placed(scene, disk, fault);
    scene.disks[disk as usize].put_fault(&fault);
    scene.note_matrix(kind_name(fault.kind()), "none");
    true
}

impl<S: Rules> Scene<S> {
    /// The first disk, or the last one (a fresh one rather than a former member), that is there, is given to nobody
    /// and `is_fit`. Which of them goes by the number of the request.
    pub(crate) fn pick_idle(&self, is_fit: impl Fn(&SimDisk) -> bool) -> Option<u32> {
        let reserved = self.reserved.borrow();
        let is_idle = |disk: &&SimDisk| {
            disk.is_present() && !reserved.contains(&disk.number()) && is_fit(disk)
        };
        let mut idle = self.disks.iter().filter(is_idle);
        let disk = if self.counts.borrow().requests.is_multiple_of(2) {
            idle.next()
        } else {
            idle.next_back()
        };
        disk.map(SimDisk::number)
    }
}

/// Starts an operation as a task of its own. Its refusal is no finding: arrays refuse what does not fit their state.
fn spawn<S: Rules>(scene: &Rc<Scene<S>>, name: &'static str, operation: Operation) -> bool {
    let spawner = scene.spawner.borrow().clone().expect("the world runs");
    let scene = Rc::clone(scene);
    scene.busy.set(scene.busy.get() + 1);
    if let Operation::Add { disk } | Operation::Replace { disk, .. } = operation {
        scene.reserved.borrow_mut().insert(disk);
    }
    if operation != Operation::Scrub {
        scene.is_untouched.set(false);
    }
    spawner.spawn(async move {
        operate(&scene, name, operation).await;
        scene.busy.set(scene.busy.get() - 1);
    });
    true
}

pub(super) async fn operate<S: Rules>(
    scene: &Rc<Scene<S>>,
    name: &'static str,
    operation: Operation,
) {
    let (number, disk) = match operation {
        Operation::Fail { slot } => (slot as u64, None),
        Operation::Add { disk } | Operation::Replace { disk, .. } => (u64::from(disk), Some(disk)),
        Operation::Scrub => (0, None),
    };
    let length = name.len() as u64;
    let begun = [length, number, 0];
    scene.trace.note(Actor::World, Verb::Operate, begun);
    let result = scene.subject().operate(operation, &scene.disks).await;
    if let Some(disk) = disk {
        scene.reserved.borrow_mut().remove(&disk);
    }
    let done = [length, number, u64::from(result.is_err())];
    scene.trace.note(Actor::World, Verb::OperateDone, done);
    scene.count(if result.is_ok() { name } else { "refused" }, 1);
}
