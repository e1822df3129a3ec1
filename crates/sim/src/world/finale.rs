//! The end of a run: all faults over, the array made whole again, then everything is compared.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;

use super::{Shared, Stop, World, client, operator, silent};
use crate::finding::Finding;
use crate::reference::{Members, Reference};
use crate::scenario::Promise;
use crate::subject::{Operation, Subject};
use plexum_disks::disk::CrashKind;

/// Between two looks at an array that is becoming whole.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// So long after a member has been pulled and plugged in again somebody has noticed, without any I/O to it.
const NOTICED_AFTER: Duration = Duration::from_secs(3);

/// Client number of the last reads in traces.
const LAST_READER: u32 = 2000;

impl<S: Subject> World<S> {
    pub(super) fn finale(&mut self) {
        let shared = Rc::clone(&self.shared);
        if shared.subject.borrow().is_none() || shared.scenario.promise == Promise::Beyond {
            return;
        }
        let is_one_away = shared.disks.iter().any(|disk| !disk.is_present());
        for disk in &shared.disks {
            disk.end_faults();
        }
        let is_done = Rc::new(Cell::new(false));
        let (done, inside) = (Rc::clone(&is_done), Rc::clone(&shared));
        self.executor.spawn(async move {
            if is_one_away {
                inside.clock.sleep(NOTICED_AFTER).await;
            }
            // Beyond the promise rows may stay in doubt until they are written whole: the array need not become whole.
            if !inside.are_errors_allowed.get() {
                make_whole(&inside).await;
            }
            read_all(&inside).await;
            if inside.scenario.promise == Promise::Silent && !inside.has_findings() {
                silent::experiment(&inside).await;
            }
            done.set(true);
        });
        if !matches!(self.drive(None, || is_done.get()), Stop::Done) {
            if !shared.has_findings() {
                let status = shared.subject().status();
                shared.find(Finding::NotWhole(format!("{status:?}")));
            }
            return;
        }
        self.stop();
        // Asked after it has stopped: what was settled from a log only now may have added to the bad blocks, or written
        // them.
        let status = shared.subject().status();
        let offsets: Vec<Option<(u32, u64)>> = status
            .slots
            .iter()
            .map(|slot| slot.map(|disk| (disk, shared.subject().data_offset_bytes(disk))))
            .collect();
        if let Some(what) = shared.subject().leaks() {
            shared.find(Finding::Leak(what));
        }
        let is_silent = shared.scenario.promise == Promise::Silent;
        if !shared.has_findings() && !shared.are_errors_allowed.get() && !is_silent {
            compare(&shared, &offsets, &status.bad_ranges);
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
        if is_lacking
            && !status.is_syncing
            && let Some(disk) = operator::idle_disk(shared)
        {
            operator::operate(shared, "add", Operation::Add { disk }).await;
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
fn compare<S: Subject>(
    shared: &Shared<S>,
    offsets: &[Option<(u32, u64)>],
    bad: &[(usize, Range<u64>)],
) {
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
    let reference = Reference::new(spec).without_ranges(bad);
    let mismatches = reference.mismatches(&members);
    if !mismatches.is_empty() {
        shared.find(Finding::Disagree(mismatches));
        return;
    }
    // The stop may have cost a member: what was only flushed then could fail.
    let lost: Vec<usize> = (0..members.len())
        .filter(|slot| members[*slot].is_none())
        .collect();
    for missing in subsets(spec.member_count, spec.tolerates(), shared.scenario.seed) {
        let others = missing.iter().filter(|slot| !lost.contains(slot)).count();
        if others > 0 && others + lost.len() > spec.tolerates() {
            continue;
        }
        let mut left = members.clone();
        for slot in &missing {
            left[*slot] = None;
        }
        if let Some(finding) = judge(shared, &reference, &left, &missing, !bad.is_empty()) {
            shared.find(finding);
            return;
        }
    }
    shared.oracle.borrow_mut().crash(CrashKind::PowerCut);
}

/// What is wrong with the content that the members in `left` hold. Where bad ranges are known, some of it may be gone
/// once further members are left out.
fn judge<S: Subject>(
    shared: &Shared<S>,
    reference: &Reference,
    left: &Members,
    missing: &[usize],
    has_bad: bool,
) -> Option<Finding> {
    for (at, bytes) in reference.strips(left) {
        let lost = |violation| Finding::LostOnMembers {
            missing: missing.to_vec(),
            violation,
        };
        let Some(bytes) = bytes else {
            if has_bad && !missing.is_empty() {
                continue;
            }
            return Some(lost(None));
        };
        let sectors = at / 512..(at + bytes.len() as u64) / 512;
        let mut oracle = shared.oracle.borrow_mut();
        let token = oracle.begin_read(sectors);
        if let Err(violation) = oracle.end_read(&token, &bytes) {
            return Some(lost(Some(violation)));
        }
    }
    None
}

/// No member missing, then one seeded subset of each size up to what is tolerated.
fn subsets(members: usize, tolerates: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut rng = plexum_disks::rng::Rng::new(seed).fork(3);
    let mut all = vec![Vec::new()];
    for size in 1..=tolerates.min(2) {
        let mut slots: Vec<usize> = (0..members).collect();
        rng.shuffle(&mut slots);
        slots.truncate(size);
        all.push(slots);
    }
    all
}
