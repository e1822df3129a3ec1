//! `plexum pool scrub`, which changes nothing.

use std::time::{Duration, Instant};

use plexum_daemon::zfs::{RealPool, of_zfs};
use plexum_zfs::{Damage, ScrubReport, SpoiltObject};
use serde_json::json;

use crate::errors::Outcome;
use crate::output::{Screen, object};
use crate::units::show_bytes;

/// Time between two lines of progress.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Most places that are shown to people; programs get all.
const LINES_MAX: usize = 40;

/// Runs the command. Exit code 1 when something is wrong.
///
/// # Errors
/// When not even the tree of data sets can be read.
pub async fn run(pool: &RealPool, screen: &Screen) -> Outcome {
    let mut last = Instant::now();
    let mut tell = |progress: &plexum_zfs::ScrubProgress| {
        if !screen.is_json && !screen.is_quiet && last.elapsed() >= LINE_EVERY {
            crate::output::tell_line!(
                "checked {} in {} blocks",
                show_bytes(progress.checked_bytes),
                progress.blocks
            );
            last = Instant::now();
        }
    };
    let report = pool
        .scrub(&mut tell)
        .await
        .map_err(|error| of_zfs(&error))?;
    screen.object(&object(
        "pool_scrub",
        Some(&pool.report.name),
        json!({"blocks": report.progress.blocks, "checked_bytes": report.progress.checked_bytes,
            "is_clean": report.is_clean(),
            "damage": report.damage.iter().map(damage_json).collect::<Vec<_>>(),
            "lost": report.spoilt.iter().map(spoilt_json).collect::<Vec<_>>(),
            "readable_objects_hit": report.mended.iter()
                .map(|(dataset, object, path)| json!({"dataset": dataset, "object": object, "path": path}))
                .collect::<Vec<_>>(),
            "refused": report.refused}),
    ));
    show(&report, screen);
    Ok(u8::from(!report.is_clean()))
}

fn show(report: &ScrubReport, screen: &Screen) {
    screen.line(format!(
        "checked {} in {} blocks",
        show_bytes(report.progress.checked_bytes),
        report.progress.blocks
    ));
    for text in &report.refused {
        screen.line(format!("not checked: {text}"));
    }
    if report.is_clean() {
        screen.line("nothing is wrong");
        return;
    }
    screen.line(format!(
        "{} places on members are wrong",
        report.damage.len()
    ));
    for line in by_member(&report.damage) {
        screen.line(format!("  {line}"));
    }
    for (dataset, object, path) in report.mended.iter().take(LINES_MAX) {
        screen.line(format!(
            "  hit, but readable: {}",
            name(dataset, *object, path.as_deref())
        ));
    }
    if report.spoilt.is_empty() {
        screen.line("no data is lost");
        return;
    }
    screen.line(format!("{} objects lost data", report.spoilt.len()));
    for one in report.spoilt.iter().take(LINES_MAX) {
        let name = name(&one.dataset, one.object, one.path.as_deref());
        screen.line(format!("  {name}, block {}: {}", one.block_id, one.reason));
    }
}

fn name(dataset: &str, object: u64, path: Option<&str>) -> String {
    match path {
        Some(path) => format!("{dataset}:{path}"),
        None => format!("object {object} of {dataset}"),
    }
}

/// Neighbouring places as one line each.
fn by_member(damage: &[Damage]) -> Vec<String> {
    let mut ranges: Vec<(&str, u64, u64, &str)> = Vec::new();
    for one in damage {
        let end = one.offset_bytes + one.length_bytes;
        match ranges.last_mut() {
            Some(last)
                if last.0 == one.member
                    && last.2 >= one.offset_bytes
                    && last.3 == one.kind.word() =>
            {
                last.2 = last.2.max(end);
            }
            _ => ranges.push((&one.member, one.offset_bytes, end, one.kind.word())),
        }
    }
    let more = ranges.len().saturating_sub(LINES_MAX);
    let shown = ranges.iter().take(LINES_MAX);
    let mut lines: Vec<String> = shown
        .map(|(member, start, end, word)| format!("{member}: bytes {start} to {end}: {word}"))
        .collect();
    if more > 0 {
        lines.push(format!("and {more} more (--json has all)"));
    }
    lines
}

fn damage_json(damage: &Damage) -> serde_json::Value {
    json!({"member": damage.member, "offset_bytes": damage.offset_bytes,
        "length_bytes": damage.length_bytes, "reason": damage.kind.word()})
}

fn spoilt_json(one: &SpoiltObject) -> serde_json::Value {
    json!({"dataset": one.dataset, "object": one.object, "path": one.path,
        "block": one.block_id, "reason": one.reason})
}
