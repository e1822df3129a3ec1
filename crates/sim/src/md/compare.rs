//! The end of a run of an array of slots: its members, looked at alone through the reference model.

use plexum_disks::disk::CrashKind;

use super::reference::{Members, Reference};
use super::slots::SlotArray;
use crate::finding::Finding;
use crate::world::Scene;

/// Redundancy agrees, and with every member left out in turn
/// (and some pairs, where two may be lost) the content is still what clients may read.
pub(super) fn compare<S: SlotArray>(scene: &Scene<S>) {
    let (spec, subject) = (&scene.plan.spec, scene.subject());
    // Asked after it has stopped: what was settled from a log only now may have added to the bad blocks, or written
    // them.
    let status = subject.status();
    let bad = &status.bad_ranges;
    let content = |disk: u32| {
        let mut bytes = vec![0; spec.component_bytes as usize];
        scene.disks[disk as usize].peek(subject.data_offset_bytes(disk), &mut bytes);
        bytes
    };
    let slots = status.slots.iter();
    let members: Members = slots.map(|slot| slot.map(content)).collect();
    let reference = Reference::new(spec).without_ranges(bad);
    let mismatches = reference.mismatches(&members);
    if !mismatches.is_empty() {
        scene.find(Finding::Disagree(mismatches));
        return;
    }
    // The stop may have cost a member: what was only flushed then could fail.
    let lost: Vec<usize> = (0..members.len())
        .filter(|slot| members[*slot].is_none())
        .collect();
    for missing in subsets(spec.member_count, spec.tolerates(), scene.plan.course.seed) {
        let others = missing.iter().filter(|slot| !lost.contains(slot)).count();
        if others > 0 && others + lost.len() > spec.tolerates() {
            continue;
        }
        let mut left = members.clone();
        for slot in &missing {
            left[*slot] = None;
        }
        if let Some(finding) = judge(scene, &reference, &left, &missing, !bad.is_empty()) {
            scene.find(finding);
            return;
        }
    }
    scene.oracles.borrow_mut()[0].crash(CrashKind::PowerCut);
}

/// What is wrong with the content that the members in `left` hold. Where bad ranges are known, some of it may be gone
/// once further members are left out.
fn judge<S: SlotArray>(
    scene: &Scene<S>,
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
        let oracle = &mut scene.oracles.borrow_mut()[0];
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
