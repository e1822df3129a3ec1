//! `plexum pool list`.

use plexum_daemon::zfs::{RealPool, of_zfs};
use plexum_format::zfs::PlexConfig;
use plexum_zfs::Dataset;
use serde_json::{Value, json};

use crate::errors::Outcome;
use crate::output::{Screen, object, table};
use crate::units::{show_bytes, show_time};

/// Runs the command. Exit code 1 when a data set cannot be read or was refused.
///
/// # Errors
/// When not even the list can be read.
pub async fn run(pool: &RealPool, screen: &Screen) -> Outcome {
    let datasets = pool.datasets().await.map_err(|error| of_zfs(&error))?;
    screen.object(&pool_json(pool));
    screen.line(headline(pool));
    let head = ["NAME", "KIND", "USED", "REFERENCED", "SIZE", "CREATED"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut notes = Vec::new();
    for dataset in &datasets {
        rows.push(row(dataset));
        screen.object(&json_of(pool, dataset));
        if let Some(problem) = &dataset.problem {
            notes.push(format!("{} cannot be read: {problem}", dataset.name));
        }
        if dataset.pending_records > 0 {
            screen.note(format!(
                "{}: its intent log holds {} records that are not in it yet; they are not read",
                dataset.name, dataset.pending_records
            ));
        }
    }
    for line in table(&rows).iter().chain(&notes) {
        screen.line(line);
    }
    Ok(u8::from(!notes.is_empty()))
}

fn headline(pool: &RealPool) -> String {
    let report = &pool.report;
    let missing = report.missing().len();
    let missing = match missing {
        0 => String::new(),
        count => format!(", {count} of {} members missing", report.members.len()),
    };
    format!(
        "{}: ZFS pool, {}, transaction group {} of {}{missing}",
        report.name,
        report.state,
        report.root.txg,
        show_time(report.root.written_s)
    )
}

fn row(dataset: &Dataset) -> Vec<String> {
    let used = match dataset.name.snapshot {
        Some(_) => "-".to_owned(),
        None => show_bytes(dataset.used_bytes),
    };
    vec![
        dataset.name.to_string(),
        dataset.kind.word().to_owned(),
        used,
        show_bytes(dataset.referenced_bytes),
        dataset.volume_bytes.map_or("-".to_owned(), show_bytes),
        show_time(dataset.created_s),
    ]
}

fn json_of(pool: &RealPool, dataset: &Dataset) -> Value {
    object(
        "dataset",
        None,
        json!({"pool": pool.report.name, "name": dataset.name.to_string(),
            "dataset_kind": dataset.kind.word(), "is_snapshot": dataset.name.snapshot.is_some(),
            "is_clone": dataset.origin_object.is_some(),
            "used_bytes": dataset.used_bytes, "referenced_bytes": dataset.referenced_bytes,
            "volume_bytes": dataset.volume_bytes, "created_s": dataset.created_s,
            "created_txg": dataset.created_txg, "guid": dataset.guid.to_string(),
            "pending_records": dataset.pending_records,
            "problem": dataset.problem.as_ref().map(ToString::to_string),
            "is_refused": dataset.problem.as_ref().is_some_and(plexum_zfs::ZfsError::is_refusal)}),
    )
}

/// The pool itself, for programs.
pub fn pool_json(pool: &RealPool) -> Value {
    let report = &pool.report;
    let plex = |(id, plex): &(u64, Option<PlexConfig>)| {
        json!({"plex": id, "plex_kind": plex.as_ref().map(|plex| plex.kind.to_string()),
            "sector_bytes": plex.as_ref().map(|plex| 1_u64 << plex.ashift),
            "size_bytes": plex.as_ref().map(|plex| plex.size_bytes),
            "refused_because": plex.as_ref().and_then(PlexConfig::refusal)})
    };
    let member = |member: &plexum_zfs::MemberReport| {
        json!({"member": member.name, "path": member.path, "guid": member.guid.to_string(),
            "plex": member.plex_id, "slot": member.slot, "newest_txg": member.newest_txg,
            "is_stale": member.is_stale, "good_labels": member.good_labels})
    };
    object(
        "pool",
        Some(&report.name),
        json!({"format": "zfs", "guid": report.guid.to_string(), "pool_version": report.version,
            "state": report.state.to_string(), "features": report.features,
            "txg": report.root.txg, "written_s": report.root.written_s,
            "checkpoint_txg": report.root.checkpoint_txg,
            "plexes": report.plexes.iter().map(plex).collect::<Vec<_>>(),
            "members": report.members.iter().map(member).collect::<Vec<_>>(),
            "roots": report.roots.iter().map(|(txg, written_s)| json!({"txg": txg, "written_s": written_s})).collect::<Vec<_>>(),
            "notes": report.notes}),
    )
}
