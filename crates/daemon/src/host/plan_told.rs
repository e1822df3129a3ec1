//! Plans of changes, as programs are told them.

use plexum_engine::migrate::Direction;
use plexum_layout::{Level, Organisation};
use plexum_md::reshape::{Plan, Relabel, Resize, Shape};
use serde_json::{Value, json};

use super::goal::Keeping;
use crate::volume::contents::Content;

/// What belongs to each plan.
pub(super) struct Beside {
    /// There is a stripe log.
    pub(super) has_log: bool,
    /// It is there again at the end.
    pub(super) gets_log_again: bool,
    /// What lies on the volume, as far as it says so.
    pub(super) content: Option<Content>,
    /// Where the goal is kept meanwhile.
    pub(super) keeping: Keeping,
    /// Members that are let go of.
    pub(super) let_go: Vec<String>,
}

impl Beside {
    fn put(&self, mut plan: Value, stations: &[Value], bytes: [u64; 2]) -> Value {
        plan["stations"] = stations.into();
        plan["before_bytes"] = bytes[0].into();
        plan["after_bytes"] = bytes[1].into();
        plan["has_log"] = self.has_log.into();
        plan["gets_log_again"] = (self.has_log && self.gets_log_again).into();
        plan["content"] = self.content.map(|content| content.what).into();
        plan["goal_kept_in"] = self.keeping.word().into();
        plan
    }
}

fn relabel_json(relabel: &Relabel) -> Value {
    json!({"kind": "relabel", "from": relabel.before.to_string(), "to": relabel.after.to_string()})
}

/// Another shape.
pub(super) fn of_plan(plan: &Plan, beside: &Beside) -> Value {
    let mut stations = Vec::from_iter(plan.first.as_ref().map(relabel_json));
    if let Some(movement) = &plan.movement {
        stations.push(json!({
            "kind": "move",
            "from": movement.before.to_string(),
            "to": movement.after.to_string(),
            "direction": match movement.direction {
                Direction::Up => "up",
                Direction::Down => "down",
            },
            "shift_bytes": i64::from(movement.shift_sectors) * 512,
            "moved_bytes": plan.before_bytes.min(plan.after_bytes),
            "data_members": movement.after.data_count(),
        }));
    }
    if !beside.let_go.is_empty() {
        let between = plan.last.as_ref().map_or(&plan.before, |last| &last.before);
        stations.push(json!({
            "kind": "let_go",
            "from": between.to_string(),
            "to": plan.after.to_string(),
            "members": beside.let_go,
        }));
    }
    stations.extend(plan.last.as_ref().map(relabel_json));
    // A mirror gets copies, and a RAID-0 parity or copies: that is a rebuild of the new members.
    let new = plan
        .after
        .member_count
        .saturating_sub(plan.before.member_count);
    let is_filled = plan.after.organisation == Organisation::Raid1
        || plan.before.organisation.level() == Level::Raid0;
    if is_filled && new > 0 {
        stations.push(json!({
            "kind": "fill",
            "from": plan.after.to_string(),
            "to": plan.after.to_string(),
            "new_bytes": plan.component_sectors * 512,
        }));
    }
    let told = json!({"from": plan.before.to_string(), "to": plan.after.to_string()});
    beside.put(told, &stations, [plan.before_bytes, plan.after_bytes])
}

/// Another part of each member.
pub(super) fn of_resize(shape: &Shape, change: &Resize, beside: &Beside) -> Value {
    let part = |sectors: u64| format!("{shape}, {} KiB of each", sectors / 2);
    let (from, to) = (part(change.before_sectors), part(change.after_sectors));
    let new_bytes = change.after_sectors.saturating_sub(change.before_sectors) * 512;
    let station = json!({
        "kind": "size",
        "from": from,
        "to": to,
        "new_bytes": new_bytes,
        "resyncs": change.resync_from_sectors.is_some(),
    });
    let told = json!({"from": from, "to": to});
    beside.put(told, &[station], [change.before_bytes, change.after_bytes])
}

/// The way back, of which so many bytes are to be moved.
pub(super) fn of_return(
    [from, to]: [&Shape; 2],
    last: Option<&Relabel>,
    moved_bytes: u64,
    bytes: [u64; 2],
    beside: &Beside,
) -> Value {
    let mut stations = vec![json!({
        "kind": "move",
        "from": from.to_string(),
        "to": last.map_or(*to, |last| last.before).to_string(),
        "moved_bytes": moved_bytes,
        "data_members": to.data_count(),
    })];
    stations.extend(last.map(relabel_json));
    let told = json!({"from": from.to_string(), "to": to.to_string()});
    beside.put(told, &stations, bytes)
}
