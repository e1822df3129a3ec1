//! `plexum pool status`: a pool and its members, as they are on the disks.

use plexum_daemon::pool_write::{pool_json, pool_status};
use plexum_daemon::problem::{Code, Problem};
use serde_json::json;

use super::args::Status;
use super::whose::Whose;
use crate::errors::Outcome;
use crate::offline::runtime;
use crate::output::{Screen, object, table};
use crate::units::show_bytes;

/// Runs the command. Exit code 1 when a member is missing, out, or not whole.
///
/// # Errors
/// Of opening; why a writer would refuse the pool.
pub fn run(args: &Status, screen: &Screen) -> Outcome {
    let (name, told) = match Whose::find(&args.members, None)? {
        Whose::Server(served) => (served.name().to_owned(), served.told),
        Whose::Nobody(members) => {
            let mut runtime = runtime()?;
            let handle = runtime.handle();
            runtime.block_on(async {
                let pool = pool_status(&handle, &members).await?;
                Ok::<_, Problem>((pool.name().to_owned(), pool_json(&pool).await?))
            })?
        }
    };
    let Some(members) = told["members"].as_array() else {
        let text = format!("pool {name} is open for reading only: its server does not know more");
        let problem = Problem::new(Code::ReadOnly, text);
        return Err(problem.hint("what its volumes lack:   plexum status"));
    };
    let mut rows = vec![
        ["GROUP", "SLOT", "MEMBER", "STATE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for member in members {
        let missed = member["missed_groups"].as_u64().unwrap_or(0);
        let state = match (member["out"].as_str(), missed) {
            (Some(reason), _) => reason.to_owned(),
            (None, 0) => "active".to_owned(),
            (None, count) => format!("missed {count} transaction groups"),
        };
        let coming = member["successor"].as_str();
        let coming = coming.map_or_else(String::new, |new| format!(", replaced by {new}"));
        rows.push(vec![
            member["group"].to_string(),
            member["slot"].to_string(),
            member["member"].as_str().unwrap_or_default().to_owned(),
            format!("{state}{coming}"),
        ]);
    }
    let is_whole = told["is_whole"] == true;
    let (txg, usable_bytes) = (&told["txg"], told["usable_bytes"].as_u64().unwrap_or(0));
    screen.object(&object(
        "pool_status",
        Some(&name),
        json!({"format": "zfs", "txg": txg, "usable_bytes": usable_bytes, "is_whole": is_whole,
            "members": members, "datasets": told["datasets"]}),
    ));
    let verdict = if is_whole { "whole" } else { "not whole" };
    screen.line(format!(
        "{name}: {verdict}, transaction group {txg}, {} free with parity",
        show_bytes(usable_bytes)
    ));
    table(&rows)
        .iter()
        .for_each(|line| screen.line(format!("  {line}")));
    Ok(u8::from(!is_whole))
}
