//! `plexum status`: one word, what it means, the members, what runs, and what to do next.

use std::time::Duration;

use plexum_daemon::status::{MemberState, MemberStatus, StripeLogStatus, Verdict, VolumeStatus};
use serde_json::json;

use crate::args::Status;
use crate::client::{Client, no_such_volume, running_volumes};
use crate::errors::Outcome;
use crate::output::{Color, Screen, object, table};
use crate::progress;
use crate::units::{show_bytes, show_seconds, show_time};

/// Runs the command. Exit code 1 when any volume is not whole.
///
/// # Errors
/// `NoSuchVolume` when the named one does not run.
pub fn run(args: &Status, screen: &Screen) -> Outcome {
    loop {
        let volumes = collect(args.volume.as_deref())?;
        if args.watch && screen.is_terminal && !screen.is_json {
            screen.line("\x1b[H\x1b[2J\x1b[A"); // home, clear
        }
        show(&volumes, screen);
        if !args.watch {
            return Ok(volumes.iter().map(VolumeStatus::exit).max().unwrap_or(0));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn collect(wanted: Option<&str>) -> Result<Vec<VolumeStatus>, plexum_daemon::problem::Problem> {
    if let Some(name) = wanted
        && let Ok(client) = Client::find(Some(name))
    {
        return Ok(vec![client.status()?]);
    }
    let running: Vec<VolumeStatus> = running_volumes().into_iter().map(|(_, s)| s).collect();
    match wanted {
        None => Ok(running),
        Some(name) => {
            let names: Vec<String> = running.into_iter().map(|status| status.volume).collect();
            Err(no_such_volume(name, &names))
        }
    }
}

fn show(volumes: &[VolumeStatus], screen: &Screen) {
    if screen.is_json {
        for status in volumes {
            screen.object(&serde_json::to_value(status).unwrap_or_default());
        }
        if volumes.is_empty() {
            screen.object(&object("status", None, json!({"volumes": []})));
        }
        return;
    }
    if volumes.is_empty() {
        screen.line("no volume is served");
        screen.line("to serve one:   plexum serve MEMBER...");
    }
    for (at, status) in volumes.iter().enumerate() {
        if at > 0 {
            screen.line("");
        }
        for line in render(status, screen) {
            screen.line(line);
        }
    }
}

/// The screen of one volume, as lines.
#[must_use]
pub fn render(status: &VolumeStatus, screen: &Screen) -> Vec<String> {
    let mut lines = vec![headline(status, screen)];
    for export in &status.exports {
        let clients = match export.clients {
            1 => "1 client".to_owned(),
            n => format!("{n} clients"),
        };
        lines.push(format!("  {}   ({clients})", export.uri));
    }
    if let Some(meaning) = meaning(status) {
        lines.push(format!("  ! {meaning}"));
    }
    for finding in &status.findings {
        lines.push(format!("  ! {}", finding.message));
    }
    for job in &status.jobs {
        let filled = usize::try_from(progress::percent(job) / 5)
            .unwrap_or(0)
            .min(20);
        lines.push(format!(
            "  {:<8} [{}{}] {:>3} %  {}/s  {}",
            job.kind.word(),
            "#".repeat(filled),
            "-".repeat(20 - filled),
            progress::percent(job),
            show_bytes(job.rate_bytes_per_s),
            eta_words(job),
        ));
    }
    lines.extend(
        member_table(status, screen)
            .into_iter()
            .map(|line| format!("  {line}")),
    );
    if let Some(scrub) = &status.last_scrub {
        let when = scrub
            .finished_s
            .map_or("running".to_owned(), |at| show_time(at) + " UTC");
        lines.push(format!(
            "  Last scrub: {when}, {} differ",
            show_bytes(scrub.mismatch_bytes)
        ));
    }
    if screen.verbosity > 0 {
        lines.push(format!(
            "  uuid {}  events {}  balance {}  consistency {}  io {}  pid {}",
            status.uuid,
            status.event_count,
            status.balance,
            status.consistency,
            status.io,
            status.server_pid
        ));
        lines.extend(status.log.as_ref().map(log_line));
        lines.extend(status.members.iter().filter_map(learned_line));
        if let Some(bitmap) = &status.bitmap {
            lines.push(format!(
                "  bitmap {} of {} regions of {} dirty",
                bitmap.dirty_regions,
                bitmap.regions,
                show_bytes(bitmap.region_bytes)
            ));
        }
    }
    if let Some(next) = &status.next {
        lines.push(format!("Next:   {next}"));
    }
    lines
}

fn headline(status: &VolumeStatus, screen: &Screen) -> String {
    let color = match status.verdict {
        Verdict::Ok => Color::Green,
        Verdict::Degraded => Color::Yellow,
        Verdict::Failed => Color::Red,
    };
    let members = match status.member_bytes {
        Some(bytes) => format!("{}x{}", status.slots, show_bytes(bytes)),
        None => format!("{} members", status.slots),
    };
    let strip = status.strip_bytes.map_or(String::new(), |bytes| {
        format!(" {}", show_bytes(bytes).to_lowercase())
    });
    let layout = status
        .layout
        .as_ref()
        .map_or(String::new(), |layout| format!(" {layout}"));
    let read_only = if status.is_read_only {
        "  read-only"
    } else {
        ""
    };
    format!(
        "{:<8} {}  {}{layout} {members}{strip}  {}  {}{read_only}",
        status.volume,
        screen.paint(color, &format!("{:<8}", status.verdict.word())),
        status.level,
        status.format,
        show_bytes(status.size_bytes),
    )
}

/// What the state means for the data.
fn meaning(status: &VolumeStatus) -> Option<String> {
    let away = status
        .members
        .iter()
        .filter(|member| {
            member.slot.is_some() && member.state != MemberState::Active && !member.is_replacement
        })
        .count();
    match status.verdict {
        Verdict::Ok => None,
        Verdict::Degraded => Some(match status.spare_failures {
            0 => format!(
                "{away} of {} members not in sync; ONE MORE FAILURE LOSES THE VOLUME",
                status.slots
            ),
            n => format!(
                "{away} of {} members not in sync; {n} more can fail without loss of data",
                status.slots
            ),
        }),
        Verdict::Failed => Some(format!(
            "{away} of {} members lost, more than it survives: requests get errors, nothing is written",
            status.slots
        )),
    }
}

fn eta_words(job: &plexum_daemon::status::JobStatus) -> String {
    let left = match job.eta_s {
        Some(left) => format!("{} left", show_seconds(left)),
        None => "time left unknown".to_owned(),
    };
    match job.eta_range_s {
        Some((least, most)) => {
            format!("{left} ({} to {})", show_seconds(least), show_seconds(most))
        }
        None => left,
    }
}

/// Microseconds as milliseconds with two digits.
fn millis(us: u64) -> String {
    format!("{}.{:02}", us / 1000, us / 10 % 100)
}

/// What the policy `adaptive` goes by.
fn learned_line(member: &MemberStatus) -> Option<String> {
    let learned = member.learned?;
    let ms = |us: u64| format!("{}.{:02} ms", us / 1000, us % 1000 / 10);
    Some(format!(
        "  slot {}: a read anywhere takes {}, one that goes on {}, each MiB {} more",
        member.slot?,
        ms(learned.random_us),
        ms(learned.sequential_us),
        ms(learned.mib_us)
    ))
}

fn member_table(status: &VolumeStatus, screen: &Screen) -> Vec<String> {
    let has_serials = status.members.iter().any(|member| member.serial.is_some());
    let mut head = vec![
        "SLOT",
        "MEMBER",
        "STATE",
        "ERR r/w/c",
        "READ p50/p99 ms",
        "vs PEERS",
    ];
    if has_serials {
        head.insert(2, "SERIAL");
    }
    if screen.verbosity > 0 {
        head.extend(["READ", "WRITTEN", "DURABLE BY"]);
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for member in &status.members {
        let slot = member.slot.map_or("-".to_owned(), |slot| slot.to_string());
        let mut state = member.state.word().to_owned();
        if member.is_replacement {
            state.push_str(" (replacement)");
        }
        if member.is_write_mostly {
            state.push_str(" (write-mostly)");
        }
        if member.is_draining {
            state.push_str(" (hangs)");
        }
        let mut row = vec![
            slot,
            member.path.clone().unwrap_or_else(|| "-".into()),
            state,
        ];
        if has_serials {
            row.insert(2, member.serial.clone().unwrap_or_else(|| "-".into()));
        }
        row.push(format!(
            "{}/{}/{}",
            member.read_errors, member.write_errors, member.corrected_errors
        ));
        row.push(member.read_latency.map_or("-".to_owned(), |latency| {
            format!("{} / {}", millis(latency.p50_us), millis(latency.p99_us))
        }));
        row.push(match member.latency_vs_peers_percent {
            None => "-".to_owned(),
            Some(percent) => {
                let slow = if member.is_slow { "  SLOW" } else { "" };
                format!("{}.{}x{slow}", percent / 100, percent / 10 % 10)
            }
        });
        if screen.verbosity > 0 {
            row.push(show_bytes(member.read_bytes));
            row.push(show_bytes(member.written_bytes));
            row.push(member.fua_way.clone().unwrap_or_else(|| "-".into()));
        }
        rows.push(row);
    }
    table(&rows)
}
fn log_line(log: &StripeLogStatus) -> String {
    let ring = show_bytes(log.ring_bytes);
    if log.is_write_back {
        let held = show_bytes(log.logged_bytes);
        return format!(
            "  write-back stripe log of {ring} on each member, {held} not in place yet"
        );
    }
    let records = log.records_under_way;
    format!("  stripe log of {ring} on each member, {records} records under way")
}
