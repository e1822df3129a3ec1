//! `plexum scrub`: compare copies or parity, with the places where they differ.

use plexum_daemon::control::Action;
use plexum_daemon::status::{JobKind, JobStatus, ScrubStatus, VolumeStatus};
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
        let what = if args.stop {
            "stop the scrub of"
        } else {
            "scrub"
        };
        screen.line(format!("would {what} {volume}"));
        screen.object(&object("plan", Some(&volume), json!({"command": "scrub"})));
        return Ok(0);
    }
    client.act(&action)?;
    if !args.wait {
        let word = if args.stop { "stopped" } else { "started" };
        screen.done(format!("scrub of {volume} {word}"));
        screen.object(&object("scrub", Some(&volume), json!({"state": word})));
        return Ok(0);
    }
    let status = progress::wait(&client, screen, scrub_job)?;
    let Some(scrub) = &status.last_scrub else {
        screen.line(format!("scrub of {volume}: stopped before its end"));
        return Ok(1);
    };
    show(&volume, scrub, screen);
    Ok(u8::from(scrub.mismatch_bytes > 0 || !scrub.is_complete))
}

fn scrub_job(status: &VolumeStatus) -> Option<JobStatus> {
    let scrubbing = |job: &&JobStatus| matches!(job.kind, JobKind::Scrub | JobKind::Repair);
    status.jobs.iter().find(scrubbing).cloned()
}

/// Prints the report of a scrub.
pub fn show(volume: &str, scrub: &ScrubStatus, screen: &Screen) {
    let fields = serde_json::to_value(scrub).unwrap_or_default();
    screen.object(&object("scrub", Some(volume), fields));
    if scrub.mismatch_bytes == 0 {
        screen.line(format!("{volume}: no differences"));
        return;
    }
    let mended = if scrub.is_repair {
        "differed and were mended"
    } else {
        "differ"
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
    if !scrub.is_repair {
        screen.line(format!(
            "to mend them:   plexum scrub {volume} --repair --wait"
        ));
    } else if scrub.ranges.iter().any(|range| range.slot.is_none()) {
        screen.line("where the wrong member cannot be told, parity or copies were made to agree: this may keep wrong data");
    }
}
