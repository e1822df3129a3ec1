//! Members of ZFS pools in `plexum examine` and `plexum scan`.

use plexum_daemon::examine::Examination;
use plexum_daemon::zfs::{PoolView, ZfsMember, bystanders, pools};
use plexum_format::zfs::label::roots;
use serde_json::{Value, json};

use crate::fields::{fields_json, show_fields};
use crate::output::{Screen, object, table};
use crate::units::show_time;
use crate::verdict::SetVerdict;

/// The first line about a member; `None` when it is none of a pool.
pub fn headline(examination: &Examination) -> Option<String> {
    let member = examination.zfs.first()?;
    let label = member.label()?;
    if let Some(what) = label.bystander() {
        return Some(format!(
            "{what} of a ZFS pool: holds no data, and its label does not name the pool"
        ));
    }
    let place = match (&label.plex, label.slot()) {
        (Some(plex), Some(slot)) => format!("plex {} ({}) slot {slot}", plex.id, plex.kind),
        _ => "member".to_owned(),
    };
    let updated = roots(&member.areas).first().map(|root| {
        format!(
            ", transaction group {}, updated {}",
            root.txg,
            show_time(root.written_s)
        )
    });
    Some(format!(
        "{place} of ZFS pool {}, {}{}",
        label.pool_name,
        label.state,
        updated.unwrap_or_default()
    ))
}

/// All fields of a member's labels; `false` when it is none of a pool.
pub fn show_members(examination: &Examination, screen: &Screen) -> bool {
    for member in &examination.zfs {
        show_fields(
            &format!("zfs member {}", member.name),
            &member.fields(),
            screen,
        );
    }
    !examination.zfs.is_empty()
}

/// The same for programs.
pub fn members_json(examination: &Examination) -> Value {
    let members = examination.zfs.iter();
    members
        .map(|member| fields_json(&member.fields()))
        .collect()
}

/// The pools of these members.
pub fn pools_of(examinations: &[Examination]) -> Vec<PoolView> {
    let members: Vec<&ZfsMember> = examinations.iter().flat_map(|one| &one.zfs).collect();
    pools(&members)
}

/// A pool in one line.
pub fn verdict(pool: &PoolView) -> SetVerdict {
    SetVerdict::of_pool(pool, &words(pool).join(" "))
}

/// How the members of each pool fit together.
pub fn show_pools(pools: &[PoolView], screen: &Screen) {
    for pool in pools {
        screen.object(&verdict(pool).put_into(pool_json(pool)));
        screen.line("");
        screen.line(format!(
            "{}: ZFS pool, version {}, {}",
            pool.label.pool_name, pool.label.version, pool.label.state
        ));
        for line in table(&slot_rows(pool)) {
            screen.line(format!("  {line}"));
        }
        for line in troubles(pool) {
            screen.line(format!("  {line}"));
        }
        if let (Some(newest), Some(oldest)) = (pool.roots.first(), pool.roots.last()) {
            screen.line(format!(
                "  roots from {} ({}) to {} ({})",
                oldest.0,
                show_time(oldest.1),
                newest.0,
                show_time(newest.1)
            ));
        }
        screen.line(format!(
            "to see what is in it:   plexum pool list {}",
            words(pool).join(" ")
        ));
    }
}

/// A line for each spare and cache device, and its object.
pub fn tell_bystanders(members: &[&ZfsMember]) -> Vec<(String, Value)> {
    let found = bystanders(members).into_iter();
    found
        .map(|(name, what)| {
            let line = format!(
                "  {name}: {what} of a ZFS pool; it holds no data, no pool needs it to be read"
            );
            let value = json!({"format": "zfs", "member": name, "is": what});
            (line, object("pool_bystander", None, value))
        })
        .collect()
}

fn slot_rows(pool: &PoolView) -> Vec<Vec<String>> {
    let head = [
        "PLEX",
        "KIND",
        "SLOT",
        "MEMBER",
        "STATE",
        "LABEL TXG",
        "NEWEST TXG",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for slot in &pool.slots {
        let state = match (&slot.name, slot.is_stale) {
            (None, _) => "missing",
            (Some(_), true) => "stale",
            (Some(_), false) => "found",
        };
        rows.push(vec![
            slot.plex_id.to_string(),
            slot.plex_kind.clone(),
            slot.slot.to_string(),
            slot.name
                .clone()
                .unwrap_or_else(|| format!("({})", slot.path)),
            state.to_owned(),
            slot.label_txg.to_string(),
            slot.newest_txg.to_string(),
        ]);
    }
    rows
}

fn troubles(pool: &PoolView) -> Vec<String> {
    let unknown = pool.unknown_plexes.iter();
    let unknown = unknown.map(|id| format!("no member of plex {id} is here"));
    let refused = pool
        .refusals
        .iter()
        .map(|reason| format!("refused: {reason}"));
    unknown.chain(refused).collect()
}

/// The paths to give to `plexum pool`: a partition is found on its disk.
fn words(pool: &PoolView) -> Vec<String> {
    let path = |name: &String| match name.rsplit_once('+') {
        Some((disk, offset)) if offset.bytes().all(|byte| byte.is_ascii_digit()) => disk.to_owned(),
        _ => name.clone(),
    };
    let mut words: Vec<String> = pool.members.iter().map(path).collect();
    words.dedup();
    words
}

fn pool_json(pool: &PoolView) -> Value {
    let slot = |slot: &plexum_daemon::zfs::SlotView| {
        json!({"plex": slot.plex_id, "plex_kind": slot.plex_kind, "slot": slot.slot,
            "guid": slot.guid.to_string(), "member": slot.name, "path": slot.path,
            "label_txg": slot.label_txg, "newest_txg": slot.newest_txg, "is_stale": slot.is_stale})
    };
    let root = |root: &(u64, u64)| json!({"txg": root.0, "written_s": root.1});
    object(
        "pool",
        Some(&pool.label.pool_name),
        json!({"format": "zfs", "guid": pool.label.pool_guid.to_string(),
            "pool_version": pool.label.version, "state": pool.label.state.to_string(),
            "features": pool.label.features, "refused_because": pool.refusals,
            "unknown_plexes": pool.unknown_plexes,
            "slots": pool.slots.iter().map(slot).collect::<Vec<_>>(),
            "roots": pool.roots.iter().map(root).collect::<Vec<_>>(),
            "members": pool.members}),
    )
}

/// Row, further lines and object of a pool in `scan`, and whether nothing is missing.
pub fn tell_pool(pool: &PoolView) -> (Vec<String>, Vec<String>, Value, bool) {
    let found = pool.slots.iter().filter(|slot| slot.name.is_some()).count();
    let is_whole = found == pool.slots.len() && pool.unknown_plexes.is_empty();
    let mut kinds: Vec<String> = pool
        .slots
        .iter()
        .map(|slot| slot.plex_kind.clone())
        .collect();
    kinds.dedup();
    let size: u64 = pool.label.plex.as_ref().map_or(0, |plex| plex.size_bytes);
    let state = match (pool.refusals.is_empty(), is_whole) {
        (false, _) => "refused",
        (true, true) => "complete",
        (true, false) => "members missing",
    };
    let row = vec![
        pool.label.pool_name.clone(),
        kinds.join("+"),
        "zfs".to_owned(),
        crate::units::show_bytes(size),
        format!("{found} of {}", pool.slots.len()),
        state.to_owned(),
    ];
    let mut more = vec![format!(
        "  {}: {}",
        pool.label.pool_name,
        words(pool).join(" ")
    )];
    more.extend(troubles(pool).into_iter().map(|line| format!("    {line}")));
    (
        row,
        more,
        pool_json(pool),
        is_whole && pool.refusals.is_empty(),
    )
}
