//! `plexum status`: one word, what it means, the members, what runs, and what to do next.

use std::time::Duration;

use plexum_daemon::expected::Wanted;
use plexum_daemon::meaning::meaning;
use plexum_daemon::problem::Code;
use plexum_daemon::status::{
    AttachmentStatus, MemberStatus, ScrubStatus, StripeLogStatus, Verdict, VolumeStatus,
};
use serde_json::json;

use crate::args::Status;
use crate::attachment::{Attachment, on_volume};
use crate::client::{Client, no_such_volume, running_volumes};
use crate::daemon_client::{Daemon, line_of};
use crate::disks::{bay, last_seen};
use crate::errors::Outcome;
use crate::incidents::summary;
use crate::output::{Color, Screen, is_lost, object, table};
use crate::progress;
use crate::scrub_line::scrub_line;
use crate::traces::{Dead, Traces};
use crate::units::{show_bytes, show_seconds, show_time};

/// Runs the command. Exit code 1 when any volume is not whole, 8 when one has failed, 7 when a server ended without a
/// stop.
///
/// # Errors
/// `NoSuchVolume` when the named one does not run.
pub fn run(args: &Status, screen: &Screen) -> Outcome {
    loop {
        let volumes = collect(args.volume.as_deref())?;
        let mut lines = Lines::default();
        let mut exit = show(&volumes, screen, &mut lines);
        if args.volume.is_none() {
            exit = exit.max(show_waiting(screen, &mut lines));
            lines
                .0
                .extend(Daemon::find_or_machines().as_ref().and_then(summary));
            exit = exit.max(show_traces(volumes.is_empty(), screen, &mut lines));
        }
        if !args.watch {
            lines.print(screen);
            return Ok(exit);
        }
        lines.draw(screen);
        if is_lost() {
            return Ok(exit);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// What is to be printed.
#[derive(Debug, Default)]
struct Lines(Vec<String>);

impl Lines {
    fn print(&self, screen: &Screen) {
        self.0.iter().for_each(|line| screen.line(line));
    }

    /// In place of what was drawn before, cut so that the first line stays in sight: it has the verdict.
    fn draw(&self, screen: &Screen) {
        if !screen.is_terminal || screen.is_json {
            return self.print(screen);
        }
        let rows = usize::from(console::Term::stdout().size().0);
        let mut text = String::from("\x1b[H\x1b[2J"); // home, clear
        text.push_str(&fit(&self.0, rows.max(2)).join("\n"));
        screen.part(text);
    }
}

/// The first `rows` lines; the last one says how many were left out.
fn fit(lines: &[String], rows: usize) -> Vec<String> {
    let mut shown: Vec<String> = lines.iter().take(rows).cloned().collect();
    if lines.len() > rows {
        let left_out = lines.len() - rows + 1;
        shown.truncate(rows - 1);
        shown.push(format!(
            "  ... {left_out} more lines; without --watch all are shown"
        ));
    }
    shown
}

fn collect(wanted: Option<&str>) -> Result<Vec<VolumeStatus>, plexum_daemon::problem::Problem> {
    if let Some(name) = wanted
        && let Ok(client) = Client::find(Some(name))
    {
        return Ok(vec![with_attachments(client.status()?)]);
    }
    let running: Vec<VolumeStatus> = running_volumes()
        .into_iter()
        .map(|(_, status)| with_attachments(status))
        .collect();
    match wanted {
        None => Ok(running),
        Some(name) => {
            let names: Vec<String> = running.into_iter().map(|status| status.volume).collect();
            Err(no_such_volume(name, &names))
        }
    }
}

/// With what this user has attached of it: its server does not know.
fn with_attachments(mut status: VolumeStatus) -> VolumeStatus {
    let attachments = on_volume(&status.volume);
    status.attachments = attachments.iter().map(Attachment::status).collect();
    status
}

fn show(volumes: &[VolumeStatus], screen: &Screen, lines: &mut Lines) -> u8 {
    for (at, status) in volumes.iter().enumerate() {
        screen.object(&serde_json::to_value(status).unwrap_or_default());
        if at > 0 {
            lines.0.push(String::new());
        }
        lines.0.extend(render(status, screen));
    }
    volumes.iter().map(VolumeStatus::exit).max().unwrap_or(0)
}

/// Volumes that the daemon should serve and does not, and those that were stopped.
fn show_waiting(screen: &Screen, lines: &mut Lines) -> u8 {
    let told = Daemon::find_or_machines().map(|daemon| daemon.volumes());
    if let Some(Err(problem)) = &told
        && problem.code == Code::RoleMissing
    {
        lines
            .0
            .push(format!("! the daemon of this machine: {problem}"));
        lines
            .0
            .extend(problem.hints.iter().map(|hint| format!("  {hint}")));
    }
    let (_, waiting) = told.and_then(Result::ok).unwrap_or_default();
    let mut exit = 0;
    for one in &waiting {
        screen.object(&object("waiting", Some(&one.volume), json!(one)));
        lines.0.push(line_of(one));
        if one.wanted == Wanted::Served {
            exit = Code::NoSuchVolume.exit();
        }
    }
    exit
}

/// Servers that ended without a stop, and when none is served here, what is served elsewhere.
fn show_traces(has_none: bool, screen: &Screen, lines: &mut Lines) -> u8 {
    let mut traces = Traces::look();
    if has_none {
        traces = traces.with_processes();
    }
    let elsewhere = traces.elsewhere.iter().filter(|_| has_none);
    let elsewhere: Vec<_> = elsewhere.collect();
    if has_none {
        let dead: Vec<_> = traces.dead.iter().map(Dead::to_json).collect();
        let others: Vec<_> = elsewhere.iter().map(|other| other.to_json()).collect();
        let fields =
            json!({"volumes": [], "folder": traces.folder, "dead": dead, "elsewhere": others});
        screen.object(&object("status", None, fields));
        lines.0.push("no volume is served".into());
        lines
            .0
            .push(format!("  looked in {}", traces.folder.display()));
    } else {
        for dead in &traces.dead {
            screen.object(&object("dead_server", Some(&dead.volume), dead.to_json()));
        }
    }
    for dead in &traces.dead {
        lines.0.push(format!("! {}", dead.sentence()));
        lines.0.push(
            "  its members are as a power cut would have left them; the next start repairs that"
                .into(),
        );
        lines.0.push(format!("to serve it again:   {}", dead.again));
    }
    for other in &elsewhere {
        lines.0.push(format!("! {}", other.sentence()));
        let command = other
            .command()
            .map(|command| format!("to see it:   {command}"));
        lines.0.extend(command);
    }
    if !traces.dead.is_empty() || !elsewhere.is_empty() {
        return Code::NoServer.exit();
    }
    if has_none {
        lines
            .0
            .push("to serve one:   plexum serve MEMBER...".into());
    }
    0
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
    lines.extend(status.attachments.iter().map(attached_line));
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
        lines.push(format!("  Last scrub: {}", scrub_words(scrub)));
    }
    let now_s = std::time::UNIX_EPOCH
        .elapsed()
        .map_or(0, |since| since.as_secs());
    let plan = status.scrub_plan.as_ref();
    lines.extend(plan.map(|plan| scrub_line(plan, now_s)));
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

fn attached_line(attachment: &AttachmentStatus) -> String {
    let what = attachment.device.as_ref().unwrap_or(&attachment.file);
    let place = attachment.mountpoint.as_ref();
    let mounted = place.map_or(String::new(), |folder| format!(", mounted at {folder}"));
    let (by, ended) = match attachment.by.as_str() {
        "ublk" => (", by the kernel's ublk", ""),
        "nbd" => (
            ", by the kernel's nbd",
            "; its process has ended: no new connections after a restart of the server",
        ),
        _ => ("", "; its process has ended"),
    };
    let ended = attachment.pid.map_or(ended, |_| "");
    format!("  attached: {what}{mounted}{by}{ended}")
}

fn headline(status: &VolumeStatus, screen: &Screen) -> String {
    let color = match status.verdict {
        Verdict::Ok => Color::Green,
        Verdict::Damaged | Verdict::Full | Verdict::Degraded => Color::Yellow,
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

/// What the last scrub says: how far it came when that was not the end, what differs, what was not compared.
fn scrub_words(scrub: &ScrubStatus) -> String {
    let when = scrub
        .finished_s
        .map_or_else(String::new, |at| show_time(at) + " UTC, ");
    let differ = format!("{} differ", show_bytes(scrub.mismatch_bytes));
    let mut text = match scrub.is_complete {
        true => format!("{when}{differ}"),
        false => format!(
            "{when}stopped at {} %, {differ} up to there",
            scrub.percent()
        ),
    };
    if scrub.repaired_bytes > 0 {
        text.push_str(&format!(", {} mended", show_bytes(scrub.repaired_bytes)));
    }
    if scrub.skipped_bytes > 0 {
        text.push_str(&format!(
            ", {} not compared",
            show_bytes(scrub.skipped_bytes)
        ));
    }
    text
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

/// The table of members; on a terminal that is too narrow for it without the models.
fn member_table(status: &VolumeStatus, screen: &Screen) -> Vec<String> {
    let wide = member_rows(status, screen, &["MODEL", "SERIAL", "BAY"]);
    let narrow = || member_rows(status, screen, &["SERIAL", "BAY"]);
    let columns = console::Term::stdout().size().1;
    fitting(wide, narrow, screen.is_terminal.then_some(columns))
}

/// The wide table where it fits behind the indent, or where there is no width to fit into; else the narrow one.
fn fitting(
    wide: Vec<String>,
    narrow: impl FnOnce() -> Vec<String>,
    columns: Option<u16>,
) -> Vec<String> {
    let widest = wide.iter().map(|line| line.chars().count() + 2).max();
    match columns {
        Some(columns) if widest > Some(columns.into()) => narrow(),
        _ => wide,
    }
}

/// What a column of the member's disk says.
fn of_disk(member: &MemberStatus, column: &str) -> Option<String> {
    let disk = member.disk.as_ref();
    match column {
        "MODEL" => disk?.model.clone(),
        "SERIAL" => disk
            .and_then(|disk| disk.serial.clone())
            .or_else(|| member.serial.clone()),
        _ => bay(disk?),
    }
}

fn member_rows(status: &VolumeStatus, screen: &Screen, columns: &[&'static str]) -> Vec<String> {
    let has = |column: &&&str| {
        status
            .members
            .iter()
            .any(|one| of_disk(one, column).is_some())
    };
    let columns: Vec<&'static str> = columns.iter().filter(has).copied().collect();
    let mut head = vec![
        "SLOT",
        "MEMBER",
        "STATE",
        "ERR r/w/c",
        "READ p50/p99 ms",
        "vs PEERS",
    ];
    head.splice(2..2, columns.iter().copied());
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
        if let Some(was) = &member.was {
            let why = member.failed_because.as_deref();
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            let seen = member.disk.as_ref().and_then(last_seen);
            let seen = seen.map_or(String::new(), |seen| format!("; {seen}"));
            state.push_str(&format!(" (was {was}{why}{seen})"));
        }
        let mut row = vec![
            slot,
            member.path.clone().unwrap_or_else(|| "-".into()),
            state,
        ];
        let of_disk = |column: &&str| of_disk(member, column).unwrap_or_else(|| "-".into());
        row.splice(2..2, columns.iter().map(of_disk));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub(done_bytes: u64) -> ScrubStatus {
        ScrubStatus {
            is_complete: done_bytes == 1000,
            is_repair: false,
            mismatch_bytes: 0,
            repaired_bytes: 0,
            skipped_bytes: 0,
            ranges: Vec::new(),
            finished_s: Some(0),
            done_bytes,
            total_bytes: 1000,
            mismatch_bytes_before: 0,
        }
    }

    #[test]
    fn a_scrub_that_did_not_get_through_says_how_far_it_came() {
        let when = "1970-01-01 00:00 UTC";
        assert_eq!(scrub_words(&scrub(1000)), format!("{when}, 0 differ"));
        let stopped = scrub_words(&scrub(999));
        assert_eq!(
            stopped,
            format!("{when}, stopped at 99 %, 0 differ up to there")
        );
        let skipped = ScrubStatus {
            skipped_bytes: 4096,
            ..scrub(1000)
        };
        assert!(scrub_words(&skipped).ends_with("4K not compared"));
    }

    #[test]
    fn a_table_that_is_too_wide_for_a_terminal_gives_way_to_the_narrow_one() {
        let wide = || vec!["SLOT  MODEL".to_owned()];
        let narrow = || vec!["SLOT".to_owned()];
        assert_eq!(fitting(wide(), narrow, Some(13)), wide());
        assert_eq!(fitting(wide(), narrow, Some(12)), narrow());
        assert_eq!(fitting(wide(), narrow, None), wide(), "a pipe has no width");
    }

    #[test]
    fn a_picture_that_is_too_high_keeps_its_first_lines() {
        let lines: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let shown = fit(&lines, 12);
        assert_eq!((shown.len(), shown[0].as_str()), (12, "0"));
        assert!(shown[11].contains("9 more lines"), "{}", shown[11]);
        assert_eq!(fit(&lines[..12], 12), &lines[..12]);
    }
}
