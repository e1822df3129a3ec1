//! Faults and administrators' operations, at their moments, as long as everybody's data stay within the promise.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::plan::{Format, Wish};
use super::world::Shared;
use plexum_disks::fault::Fault;
use plexum_disks::trace::{Actor, Verb};

/// Carries out, or holds back, every wish that is due at request `number`.
pub(super) fn grant_wishes(shared: &Rc<Shared>, number: u64) {
    while let Some((due, wish)) = shared.plan.wishes.get(shared.next_wish.get()) {
        if *due > number {
            return;
        }
        shared.next_wish.set(shared.next_wish.get() + 1);
        if !grant(shared, wish) {
            shared.counts.borrow_mut().held_back += 1;
        }
    }
}

fn grant(shared: &Rc<Shared>, wish: &Wish) -> bool {
    match wish {
        Wish::Fault { disk, fault } => strike(shared, *disk, fault),
        Wish::Rest { length_ns } => {
            shared.rest_until_ns.set(shared.clock.now_ns() + length_ns);
            true
        }
        Wish::Fail { disk } => {
            if !shared.admits(*disk) {
                return false;
            }
            shared.struck.borrow_mut().insert(*disk);
            shared.is_untouched.set(false);
            let disk = *disk;
            spawn(shared, "fail", disk, async move |shared| {
                shared.array().fail(disk).await.is_ok()
            });
            true
        }
        Wish::Add => match idle_disk(shared) {
            Some(disk) => {
                shared.is_untouched.set(false);
                spawn(shared, "add", disk, async move |shared| {
                    add(&shared, disk, None).await
                });
                true
            }
            None => false,
        },
        Wish::Replace { disk } => {
            let old = *disk;
            let is_whole = shared.array().is_whole();
            match idle_disk(shared).filter(|_| is_whole) {
                Some(disk) => {
                    shared.is_untouched.set(false);
                    spawn(shared, "replace", disk, async move |shared| {
                        add(&shared, disk, Some(old)).await
                    });
                    true
                }
                None => false,
            }
        }
        Wish::Scrub => {
            spawn(shared, "scrub", 0, async |shared| {
                shared.array().scrub().await;
                true
            });
            true
        }
    }
}

/// Gives the array a disk. Whether it took it.
pub(super) async fn add(shared: &Rc<Shared>, disk: u32, old: Option<u32>) -> bool {
    let handle = shared.disks[disk as usize].reopen();
    let added = shared.array().add(shared.plan.seed, &handle, old).await;
    shared.reserved.borrow_mut().remove(&disk);
    added.is_ok()
}

/// Gives the array a disk at once.
pub(super) async fn add_now(shared: &Rc<Shared>, disk: u32) {
    let work = async move |shared: Rc<Shared>| add(&shared, disk, None).await;
    operate(shared, "add", disk, work).await;
}

async fn operate<F>(shared: &Rc<Shared>, name: &'static str, disk: u32, work: F)
where
    F: AsyncFnOnce(Rc<Shared>) -> bool + 'static,
{
    let numbers = [name.len() as u64, u64::from(disk), 0];
    shared.trace.note(Actor::World, Verb::Operate, numbers);
    let done = work(Rc::clone(shared)).await;
    let numbers = [name.len() as u64, u64::from(disk), u64::from(!done)];
    shared.trace.note(Actor::World, Verb::OperateDone, numbers);
    let key = if done { name } else { "refused" };
    *shared
        .counts
        .borrow_mut()
        .operations
        .entry(key)
        .or_default() += 1;
}

fn spawn<F>(shared: &Rc<Shared>, name: &'static str, disk: u32, work: F)
where
    F: AsyncFnOnce(Rc<Shared>) -> bool + 'static,
{
    let inside = Rc::clone(shared);
    shared.busy.set(shared.busy.get() + 1);
    let task = async move {
        operate(&inside, name, disk, work).await;
        inside.busy.set(inside.busy.get() - 1);
    };
    if let Some(spawner) = shared.spawner.borrow().as_ref() {
        spawner.spawn(task);
    }
}

/// A disk that is there and not part of a mirror. Systems of drives are changed between lives.
pub(super) fn idle_disk(shared: &Shared) -> Option<u32> {
    if shared.plan.format != Format::Gmirror {
        return None;
    }
    let live = shared.array().live();
    let mut reserved = shared.reserved.borrow_mut();
    // One stands by at most; a mirror that was widened may lack more.
    let is_enough = live.len() + reserved.len() > shared.plan.member_count();
    if is_enough && !(reserved.is_empty() && shared.array().lacks_a_disk()) {
        return None;
    }
    let is_idle = |disk: &u32| {
        let handle = &shared.disks[*disk as usize];
        handle.is_present()
            && !handle.is_hung()
            && !handle.has_write_errors()
            && !live.contains(disk)
            && !reserved.contains(disk)
    };
    let mut idle = (0..shared.disks.len() as u32).filter(is_idle);
    let disk = if shared.counts.borrow().requests.is_multiple_of(2) {
        idle.next()
    } else {
        idle.next_back()
    }?;
    reserved.insert(disk);
    Some(disk)
}

fn strike(shared: &Rc<Shared>, disk: u32, fault: &Fault) -> bool {
    let handle = &shared.disks[disk as usize];
    if !handle.is_present() || handle.is_hung() || shared.reserved.borrow().contains(&disk) {
        return false;
    }
    let is_harmless = matches!(fault, Fault::Retryable { .. } | Fault::Slow { .. });
    if !is_harmless && !shared.admits(disk) {
        return false;
    }
    match fault {
        Fault::Retryable { .. } if handle.has_retryable() => return false,
        // What is being filled is not read before it is complete: it would then be the only one perhaps.
        Fault::ReadError(_) if shared.array().is_filled(disk) => return false,
        Fault::Retryable { .. } | Fault::Slow { .. } | Fault::ReadError(_) => {}
        _ => {
            shared.struck.borrow_mut().insert(disk);
        }
    }
    if *fault == Fault::Vanish {
        shared.has_vanished.set(true);
    }
    shared.is_untouched.set(false);
    handle.put_fault(fault);
    true
}

impl Shared {
    /// Disks whose data cannot be relied on.
    pub(super) fn bad(&self) -> BTreeSet<u32> {
        let mut bad = self.struck.borrow().clone();
        let everywhere = 0..u64::MAX;
        for disk in &self.disks {
            if !disk.is_present() || disk.is_hung() || disk.has_read_errors(&everywhere) {
                bad.insert(disk.number());
            }
        }
        bad
    }

    /// Whether everything is still there when this disk is lost as well.
    pub(super) fn admits(&self, disk: u32) -> bool {
        let mut bad = self.bad();
        bad.insert(disk);
        self.array().survives(&bad)
    }
}
