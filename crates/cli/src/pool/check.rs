//! `plexum pool check`.

use plexum_daemon::pool_write::check;
use serde_json::json;

use super::args::Check;
use crate::errors::Outcome;
use crate::offline::runtime;
use crate::output::{Screen, object};
use crate::units::show_bytes;

/// Runs the command. Exit code 1 when something is wrong.
///
/// # Errors
/// Of opening; when not even the pool's own object set can be read.
pub fn run(args: &Check, screen: &Screen) -> Outcome {
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    let (name, report) = runtime.block_on(check(&handle, &args.source.members, args.source.txg))?;
    for note in &report.notes {
        screen.note(note);
    }
    for finding in &report.findings {
        screen.line(finding.to_string());
    }
    if report.more > 0 {
        screen.line(format!("and {} findings more", report.more));
    }
    let findings = report.findings.iter().map(|finding| {
        json!({"finding": format!("{:?}", finding.kind), "place": finding.place, "problem": finding.problem})
    });
    screen.object(&object(
        "check",
        Some(&name),
        json!({"format": "zfs", "txg": report.txg, "blocks": report.blocks, "allocated_bytes": report.allocated_bytes,
            "findings": findings.collect::<Vec<_>>(), "more_findings": report.more, "notes": report.notes}),
    ));
    let verdict = match report.findings.len() as u64 + report.more {
        0 => "everything is as it should be".to_owned(),
        count => format!("{count} things are not as they should be"),
    };
    screen.line(format!(
        "{name}: {} blocks, {} in use, transaction group {}: {verdict}",
        report.blocks,
        show_bytes(report.allocated_bytes),
        report.txg
    ));
    Ok(u8::from(!report.is_clean()))
}
