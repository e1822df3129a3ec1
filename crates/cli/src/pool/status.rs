//! `plexum pool status`: a pool and its members, as they are on the disks.

use plexum_daemon::pool_write::{of_pool, pool_status};
use plexum_daemon::problem::Problem;
use serde_json::json;

use super::args::Status;
use crate::errors::Outcome;
use crate::offline::runtime;
use crate::output::{Screen, object, table};
use crate::units::show_bytes;

/// Runs the command. Exit code 1 when a member is missing, out, or not whole.
///
/// # Errors
/// Of opening; why a writer would refuse the pool.
pub fn run(args: &Status, screen: &Screen) -> Outcome {
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    // Nothing is written, and members may be in use by a server that writes.
    let pool = runtime.block_on(pool_status(&handle, &args.members))?;
    let members = pool.members();
    let mut rows = vec![
        ["GROUP", "SLOT", "MEMBER", "STATE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut is_whole = true;
    for member in &members {
        let state = match (&member.out, member.missed_groups) {
            (Some(reason), _) => reason.clone(),
            (None, 0) => "active".to_owned(),
            (None, count) => format!("missed {count} transaction groups"),
        };
        is_whole &= member.out.is_none() && member.missed_groups == 0;
        rows.push(vec![
            member.plex_id.to_string(),
            member.slot.to_string(),
            member.name.clone(),
            state,
        ]);
    }
    let volumes = runtime.block_on(async {
        let volumes = pool.dataset_names().await;
        volumes.map_err(|error| of_pool(&error))
    });
    let volumes: Result<Vec<String>, Problem> = volumes;
    let volumes = volumes?;
    let shown = members.iter().map(|member| {
        json!({"group": member.plex_id, "slot": member.slot, "member": member.name, "guid": member.guid.to_string(),
            "out": member.out, "missed_groups": member.missed_groups})
    });
    screen.object(&object(
        "pool_status",
        Some(pool.name()),
        json!({"format": "zfs", "txg": pool.txg(), "usable_bytes": pool.usable_bytes(), "is_whole": is_whole,
            "members": shown.collect::<Vec<_>>(), "datasets": volumes}),
    ));
    let verdict = if is_whole { "whole" } else { "not whole" };
    screen.line(format!(
        "{}: {verdict}, transaction group {}, {} free with parity",
        pool.name(),
        pool.txg(),
        show_bytes(pool.usable_bytes())
    ));
    table(&rows)
        .iter()
        .for_each(|line| screen.line(format!("  {line}")));
    Ok(u8::from(!is_whole))
}
