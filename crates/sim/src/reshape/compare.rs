//! The end of a run, looked at on the disks alone: the array has the shape that was asked for, parity agrees, and
//! whoever is left out, what is left is what clients may read.

use plexum_format::SECTOR_BYTES;
use plexum_format::md::Superblock;

use super::array::Array;
use super::plan::Plan;
use crate::finding::Finding;
use crate::md::checker::{self, Inspected};
use crate::md::reference::{Members, Reference};
use crate::md::{Level, Spec};
use crate::world::Scene;

/// Looks at everything. What has come of the wish, for counting.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn compare(scene: &Scene<Array>) -> Result<&'static str, Finding> {
    let wrong = |text: String| Err(Finding::NotWhole(text));
    let all: Vec<Inspected> = scene.disks.iter().filter_map(checker::inspect).collect();
    let with_slot = all
        .iter()
        .filter(|member| member.superblock.role().slot().is_some());
    let Some(newest) = with_slot.max_by_key(|member| member.superblock.events) else {
        return wrong("no member is left".to_owned());
    };
    if newest.superblock.reshape.is_some() {
        return wrong("a reshape is still under way".to_owned());
    }
    let spec = shape(&newest.superblock, &scene.plan);
    let done = come_to(&spec, &scene.plan)
        .ok_or_else(|| Finding::NotWhole(format!("nobody asked for {spec}")))?;
    let found = checker::assemble(&all, &spec)
        .ok_or_else(|| Finding::NotWhole("no member is left".to_owned()))?;
    let (members, bad) = checker::contents(&found, &all, &scene.disks, &spec);
    if let Some(slot) = members.iter().position(Option::is_none) {
        return wrong(format!("slot {slot} is empty"));
    }
    let reference = Reference::new(&spec).without_ranges(&bad);
    let mismatches = reference.mismatches(&members);
    if !mismatches.is_empty() {
        return Err(Finding::Disagree(mismatches));
    }
    for missing in 0..=members.len() {
        let mut left = members.clone();
        if let Some(member) = left.get_mut(missing) {
            *member = None;
        }
        let has_bad = !bad.is_empty();
        if missing == members.len() || !has_bad {
            judge(scene, &reference, &left, missing)?;
        }
    }
    Ok(done)
}

/// What the content of the members in `left` is to clients.
fn judge(
    scene: &Scene<Array>,
    reference: &Reference,
    left: &Members,
    missing: usize,
) -> Result<(), Finding> {
    let oracle = &mut scene.oracles.borrow_mut()[0];
    let end = oracle.sector_count() * SECTOR_BYTES;
    for (at, bytes) in reference.strips(left) {
        if at >= end {
            break;
        }
        let lost = |violation| Finding::LostOnMembers {
            missing: vec![missing],
            violation,
        };
        let bytes = bytes.ok_or_else(|| lost(None))?;
        let length = (bytes.len() as u64).min(end - at);
        let token = oracle.begin_read(at / SECTOR_BYTES..(at + length) / SECTOR_BYTES);
        let judged = oracle.end_read(&token, &bytes[..length as usize]);
        judged.map_err(|violation| lost(Some(violation)))?;
    }
    Ok(())
}

/// The shape that a superblock says.
fn shape(newest: &Superblock, plan: &Plan) -> Spec {
    Spec {
        level: match newest.level {
            4 => Level::Raid4,
            6 => Level::Raid6,
            _ => Level::Raid5,
        },
        layout: newest.layout,
        member_count: newest.member_count as usize,
        strip_bytes: u64::from(newest.strip_sectors) * SECTOR_BYTES,
        component_bytes: newest.component_sectors * SECTOR_BYTES,
        ..plan.before.clone()
    }
}

/// Whether an array has the shape that was asked for, the one before it (its new members were lost before it could
/// begin), or the last station: a parity less is but another name for that.
fn come_to(spec: &Spec, plan: &Plan) -> Option<&'static str> {
    let is = |shape: &Spec| {
        spec.level == shape.level
            && spec.layout == shape.layout
            && spec.member_count == shape.member_count
            && spec.strip_bytes == shape.strip_bytes
    };
    let last_station = Spec {
        level: Level::Raid6,
        layout: plan.after.layout + 16,
        member_count: plan.after.member_count + 1,
        ..plan.after.clone()
    };
    if is(&plan.after) {
        Some("reshaped")
    } else if is(&last_station) {
        Some("reshaped but for its name")
    } else if is(&plan.before) {
        Some("not begun")
    } else {
        None
    }
}
