//! How safe the data of a pool are: what an alarm is raised by. Pure.
//!
//! Invariants: every block lies in one group, so the pool survives what its worst group survives; a member that missed
//! changes counts as missing until it has them.

use plexum_engine::volume::{MissingSlot, Redundancy, Safety};
use plexum_format::zfs::PlexConfig;
use plexum_pool::MemberInfo;
use plexum_zfs::PoolReport;

/// Losses that a group survives, and those that it has.
struct Group {
    designed: usize,
    lost: usize,
}

/// How safe they are. `live`: the members as they are now, of a pool that is written; `why_frozen`: it is not any more.
pub(super) fn redundancy(
    report: &PoolReport,
    live: Option<&[MemberInfo]>,
    why_frozen: Option<&str>,
) -> Redundancy {
    let whole = whole_members(report, live);
    let mut missing = Vec::new();
    let mut groups = Vec::new();
    for (id, plex) in &report.plexes {
        let slots = plex.as_ref().map_or(1, |plex| plex.slots.len());
        let mut lost = 0;
        for slot in 0..slots {
            let leaves = report.members.iter().enumerate();
            let mut leaves = leaves.filter(|(_, leaf)| leaf.plex_id == *id && leaf.slot == slot);
            let first = leaves.clone().next().map(|(at, _)| at);
            if leaves.any(|(at, _)| whole[at]) {
                continue;
            }
            lost += 1;
            missing.extend(first.and_then(|at| {
                let slot = u16::try_from(at).ok()?;
                Some(MissingSlot {
                    slot,
                    valid_bytes: None,
                })
            }));
        }
        // What a log of its own holds is in the pool as well, but for the last seconds.
        if plex.as_ref().is_none_or(|plex| !plex.is_log) {
            groups.push(Group {
                designed: plex.as_ref().map_or(0, PlexConfig::losses_max),
                lost,
            });
        }
    }
    let losses_designed = groups.iter().map(|group| group.designed).min().unwrap_or(0);
    let left = groups
        .iter()
        .map(|group| group.designed.saturating_sub(group.lost));
    let is_lost = why_frozen.is_some() || groups.iter().any(|group| group.lost > group.designed);
    let survived = (!is_lost).then(|| left.min().unwrap_or(0).min(losses_designed));
    let losses_left = survived.unwrap_or(0);
    Redundancy {
        losses_left,
        losses_left_elsewhere: losses_left,
        losses_designed,
        missing,
        doubtful_regions: (0, 0),
        bad_bytes: 0,
        spares: 0,
        safety: Safety::of(survived, losses_designed),
    }
}

/// Which members of the report have everything.
fn whole_members(report: &PoolReport, live: Option<&[MemberInfo]>) -> Vec<bool> {
    let each = report.members.iter().map(|member| match live {
        None => member.name.is_some() && !member.is_stale,
        Some(live) => live.iter().any(|now| {
            now.guid == member.guid
                && u64::from(now.plex_id) == member.plex_id
                && now.out.is_none()
                && now.missed_groups == 0
        }),
    });
    each.collect()
}
