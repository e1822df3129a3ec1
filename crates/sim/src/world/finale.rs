//! The end of a run: all faults over, the array made whole again, then everything is compared.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use plexum_engine::clock::Clock;

use super::{Shared, Stop, World, client, operator};
use crate::disk::CrashKind;
use crate::finding::Finding;
use crate::reference::{Members, Reference};
use crate::scenario::Promise;
use crate::subject::{Operation, Subject};

/// Between two looks at an array that is becoming whole.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Client number of the last reads in traces.
const LAST_READER: u32 = 2000;

impl<S: Subject> World<S> {
    pub(super) fn finale(&mut self) {
        let shared = Rc::clone(&self.shared);
        if shared.subject.borrow().is_none() || shared.scenario.promise == Promise::Beyond {
            return;
        }
        for disk in &shared.disks {
            disk.end_faults();
        }
        let is_done = Rc::new(Cell::new(false));
        let (done, inside) = (Rc::clone(&is_done), Rc::clone(&shared));
        self.executor.spawn(async move {
            make_whole(&inside).await;
            read_all(&inside).await;
            done.set(true);
        });
        if !matches!(self.drive(None, || is_done.get()), Stop::Done) {
            if !shared.has_findings() {
                let status = shared.subject().status();
                shared.find(Finding::NotWhole(format!("{status:?}")));
            }
            return;
        }
        let slots = shared.subject().status().slots;
        let offsets: Vec<Option<(u32, u64)>> = slots
            .iter()
            .map(|slot| slot.map(|disk| (disk, shared.subject().data_offset_bytes(disk))))
            .collect();
        self.stop();
        if !shared.has_findings() {
            compare(&shared, &offsets);
        }
    }
}

/// Gives the array disks until it lacks none, and waits until nothing is left to do.
async fn make_whole<S: Subject>(shared: &Rc<Shared<S>>) {
    loop {
        let status = shared.subject().status();
        let is_lacking = status.slots.iter().any(Option::is_none);
        if !is_lacking && !status.is_syncing && !status.is_doubtful {
            return;
        }
        if is_lacking && !status.is_syncing {
            if let Some(disk) = operator::idle_disk(shared) {
                operator::operate(shared, "add", Operation::Add { disk }).await;
            }
        }
        shared.clock.sleep(LOOK_AGAIN).await;
    }
}

async fn read_all<S: Subject>(shared: &Rc<Shared<S>>) {
    let end = shared.oracle.borrow().sector_count();
    let mut at = 0;
    while at < end && !shared.has_findings() {
        let next = (at + 256).min(end);
        client::read(shared, LAST_READER, at..next).await;
        at = next;
    }
}

/// Looks at the members alone, through the reference model: redundancy agrees, and with every member left out in turn
/// (and some pairs, where two may be lost) the content is still what clients may read.
fn compare<S: Subject>(shared: &Shared<S>, offsets: &[Option<(u32, u64)>]) {
    let spec = &shared.scenario.spec;
    let members: Members = offsets
        .iter()
        .map(|place| {
            place.map(|(disk, offset)| {
                let mut bytes = vec![0; spec.component_bytes as usize];
                shared.disks[disk as usize].peek(offset, &mut bytes);
                bytes
            })
        })
        .collect();
    let reference = Reference::new(spec);
    let mismatches = reference.mismatches(&members);
    if !mismatches.is_empty() && !shared.are_errors_allowed.get() {
        shared.find(Finding::Disagree(mismatches));
        return;
    }
    for missing in subsets(spec.member_count, spec.tolerates(), shared.scenario.seed) {
        let mut left = members.clone();
        for slot in &missing {
            left[*slot] = None;
        }
        let mut oracle = shared.oracle.borrow_mut();
        let end = oracle.sector_count();
        let token = oracle.begin_read(0..end);
        let violation = match reference.content(&left) {
            Some(content) => oracle.end_read(&token, &content).err(),
            None => {
                oracle.fail_read(&token);
                drop(oracle);
                shared.find(Finding::LostOnMembers {
                    missing,
                    violation: None,
                });
                return;
            }
        };
        drop(oracle);
        if violation.is_some() && !shared.are_errors_allowed.get() {
            shared.find(Finding::LostOnMembers { missing, violation });
            return;
        }
    }
    shared.oracle.borrow_mut().crash(CrashKind::PowerCut);
}

/// No member missing, then one seeded subset of each size up to what is tolerated.
fn subsets(members: usize, tolerates: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut rng = crate::rng::Rng::new(seed).fork(3);
    let mut all = vec![Vec::new()];
    for size in 1..=tolerates.min(2) {
        let mut slots: Vec<usize> = (0..members).collect();
        rng.shuffle(&mut slots);
        slots.truncate(size);
        all.push(slots);
    }
    all
}
