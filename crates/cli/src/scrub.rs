//! `plexum scrub`: compare copies or parity, with the places where they differ.

use plexum_daemon::advice::shell_word;
use plexum_daemon::control::Action;
use plexum_daemon::status::{JobKind, JobStatus, ScrubStatus, Verdict, VolumeStatus};
use serde_json::json;

use crate::args::{Common, Scrub};
use crate::client::Client;
use crate::errors::Outcome;
use crate::output::{Screen, object, table};
use crate::progress;
use crate::units::show_bytes;

/// Ranges printed for people; `--json` has all that the server kept.
const RANGES_SHOWN_MAX: usize = 20;

/// Runs the command. With `--wait` exit code 1 when something differs.
///
/// # Errors
/// Of the server: `JobRunning`, `NoSuchVolume`.
pub fn run(args: &Scrub, common: &Common, screen: &Screen) -> Outcome {
    let client = Client::find(args.volume.as_deref())?;
    let volume = client.volume.clone();
    let action = Action::Scrub {
        repair: args.repair,
        stop: args.stop,
    };
    if common.dry_run {
        client.rehearse(&action)?;
        let what = if args.stop {
            "stop the scrub of"
        } else {
            "scrub"
        };
        screen.line(format!("would {what} {volume}"));
        screen.object(&object("plan", Some(&volume), json!({"command": "scrub"})));
        return Ok(0);
    }
    let answer = client.act_because(&action, common.why.as_deref())?;
    if args.stop {
        let state = answer["state"].as_str().unwrap_or("stopped");
        screen.done(answer["message"].as_str().unwrap_or("the scrub is stopped"));
        let fields = json!({"state": state, "percent": answer["percent"]});
        screen.object(&object("scrub", Some(&volume), fields));
        return Ok(0);
    }
    if !args.wait {
        screen.done(format!("scrub of {volume} started"));
        screen.object(&object("scrub", Some(&volume), json!({"state": "started"})));
        return Ok(0);
    }
    let status = progress::wait(&client, screen, scrub_job)?;
    let Some(scrub) = &status.last_scrub else {
        screen.line(format!("scrub of {volume}: stopped before its end"));
        return Ok(status.exit().max(1));
    };
    show(&volume, scrub, screen);
    if scrub.unmended_bytes() > 0 && !scrub.is_repair && !status.is_read_only {
        let name = shell_word(&volume);
        screen.line(format!(
            "to mend them:   plexum scrub {name} --repair --wait"
        ));
    }
    if status.verdict == Verdict::Failed {
        screen.line(format!(
            "{volume} has FAILED: this is what was known before"
        ));
    }
    let is_proven = scrub.is_complete && scrub.mismatch_bytes == 0 && scrub.skipped_bytes == 0;
    Ok(match status.verdict {
        Verdict::Failed => status.exit(),
        _ => u8::from(!is_proven),
    })
}

fn scrub_job(status: &VolumeStatus) -> Option<JobStatus> {
    let scrubbing = |job: &&JobStatus| matches!(job.kind, JobKind::Scrub | JobKind::Repair);
    status.jobs.iter().find(scrubbing).cloned()
}

/// Prints the report of a scrub.
fn show(volume: &str, scrub: &ScrubStatus, screen: &Screen) {
    let fields = serde_json::to_value(scrub).unwrap_or_default();
    screen.object(&object("scrub", Some(volume), fields));
    if !scrub.is_complete {
        let percent = scrub.percent();
        screen.line(format!(
            "{volume}: the scrub stopped at {percent} %; nothing is known of the rest"
        ));
    }
    if scrub.skipped_bytes > 0 {
        let skipped = show_bytes(scrub.skipped_bytes);
        screen.line(format!(
            "{volume}: {skipped} could not be compared (incomplete, in doubt or unreadable)"
        ));
    }
    if scrub.mismatch_bytes == 0 {
        screen.line(match scrub.is_complete && scrub.skipped_bytes == 0 {
            true => format!("{volume}: no differences"),
            false => format!("{volume}: no differences in what was compared"),
        });
        return;
    }
    let mended = match scrub.mismatch_bytes - scrub.repaired_bytes.min(scrub.mismatch_bytes) {
        0 => "differed and were mended".to_owned(),
        left if scrub.is_repair => format!("differed, {} could not be mended", show_bytes(left)),
        _ => "differ".to_owned(),
    };
    screen.line(format!(
        "{volume}: {} {mended}",
        show_bytes(scrub.mismatch_bytes)
    ));
    let mut rows = vec![vec![
        "MEMBER OFFSET".to_owned(),
        "VOLUME OFFSET".to_owned(),
        "LENGTH".to_owned(),
        "WRONG MEMBER".to_owned(),
    ]];
    for range in scrub.ranges.iter().take(RANGES_SHOWN_MAX) {
        rows.push(vec![
            range.member_offset_bytes.to_string(),
            range.volume_offset_bytes.to_string(),
            show_bytes(range.length_bytes),
            range
                .slot
                .map_or("cannot be told".to_owned(), |slot| format!("slot {slot}")),
        ]);
    }
    for line in table(&rows) {
        screen.line(format!("  {line}"));
    }
    if scrub.ranges.len() > RANGES_SHOWN_MAX {
        screen.line(format!(
            "  and {} more (--json shows all)",
            scrub.ranges.len() - RANGES_SHOWN_MAX
        ));
    }
    if scrub.is_repair && scrub.ranges.iter().any(|range| range.slot.is_none()) {
        screen.line("where the wrong member cannot be told, parity or copies were made to agree: this may keep wrong data");
    }
}
