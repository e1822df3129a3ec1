//! What a served volume and its members did between two answers of the server: iostat's columns, and where the time
//! went as far as counters tell.
//!
//! Invariants: times are the server's; counters that have gone back, or were reset in between, count from zero.

use plexum_disks::disk::timed_stats::DiskFigures;
use plexum_lab::iostat::{self, MemberRow};
use serde_json::{Value, json};

use crate::args::StatsColumns;
use crate::output::table;
use crate::units::show_bytes;

/// One row: the volume or a member.
pub struct Line {
    /// iostat's figures.
    pub row: MemberRow,
    /// Flushes a second.
    pub flushes_per_s: f64,
    /// Share of reads that went on where the request before them ended; `None` without any.
    pub sequential_read_percent: Option<f64>,
    /// The same of writes.
    pub sequential_write_percent: Option<f64>,
    /// Busy time for each request; `None` without any.
    pub served_ms: Option<f64>,
    /// What else a request took: behind others, or beside them.
    pub waiting_ms: Option<f64>,
}

/// The counters that only grow, in the order of `Done`.
const FIELDS: [&str; 10] = [
    "reads",
    "writes",
    "read_bytes",
    "written_bytes",
    "flushes",
    "read_ns",
    "write_ns",
    "sequential_reads",
    "sequential_writes",
    "busy_ns",
];

type Done = [u64; FIELDS.len()];

fn done(now: &Value, before: &Value) -> Done {
    let of = |value: &Value| FIELDS.map(|field| value[field].as_u64().unwrap_or(0));
    let (now, before) = (of(now), of(before));
    let mut less = now;
    for (less, before) in less.iter_mut().zip(before) {
        match less.checked_sub(before) {
            Some(rest) => *less = rest,
            None => return now,
        }
    }
    less
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

/// The row of `name`, which did this between `before` and `now`.
fn line(name: &str, now: &Value, before: &Value, span_ns: u64) -> Line {
    let [
        reads,
        writes,
        read_bytes,
        written_bytes,
        flushes,
        read_ns,
        write_ns,
        sequential_reads,
        sequential_writes,
        busy_ns,
    ] = done(now, before);
    let (took_ns, requests) = (read_ns.saturating_add(write_ns), reads + writes);
    let busy_ns = busy_ns.min(span_ns);
    let figures = DiskFigures {
        reads,
        writes,
        flushes,
        read_bytes,
        written_bytes,
        read_wait_ns: read_ns,
        write_wait_ns: write_ns,
        busy_ns,
        queue_integral_ns: took_ns,
        queue_ns: took_ns.saturating_sub(busy_ns),
        ..DiskFigures::default()
    };
    let outstanding = now["outstanding"].as_u64().unwrap_or(0);
    let row = iostat::row(name, &figures, outstanding, span_ns);
    let each_ms = |ns: u64| (requests > 0).then(|| ns as f64 / requests as f64 / 1e6);
    Line {
        flushes_per_s: flushes as f64 / (span_ns.max(1) as f64 / 1e9),
        sequential_read_percent: percent(sequential_reads, reads),
        sequential_write_percent: percent(sequential_writes, writes),
        served_ms: each_ms(busy_ns.min(took_ns)),
        waiting_ms: each_ms(figures.queue_ns),
        row,
    }
}

/// The last part of a path; all of it where that is not enough to tell members apart.
fn short_names(members: &[Value]) -> Vec<String> {
    let long = |member: &Value| member["member"].as_str().unwrap_or("-").to_owned();
    let short = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let names: Vec<String> = members.iter().map(long).collect();
    let count = |name: &str| names.iter().filter(|one| short(one) == name).count();
    let is_file = |name: &str| name.starts_with('/') && count(&short(name)) == 1;
    names
        .iter()
        .map(|name| {
            if is_file(name) {
                short(name)
            } else {
                name.clone()
            }
        })
        .collect()
}

/// The volume and its members between two answers, and the nanoseconds between them. Without `before`: since the server
/// started, or the last reset.
#[must_use]
pub fn lines(now: &Value, before: Option<&Value>) -> (Vec<Line>, u64) {
    let time = |answer: &Value, field: &str| answer[field].as_u64().unwrap_or(0);
    let since = |answer: &Value| time(answer, "counting_since_ns");
    let before = before.filter(|before| since(before) == since(now));
    let begin_ns = before.map_or(since(now), |before| time(before, "moment_ns"));
    let span_ns = time(now, "moment_ns").saturating_sub(begin_ns).max(1);
    let none = Value::Null;
    let volume = now["volume"].as_str().unwrap_or("volume");
    let old = before.map_or(&none, |before| &before["total"]);
    let mut lines = vec![line(volume, &now["total"], old, span_ns)];
    let members = now["members"].as_array().cloned().unwrap_or_default();
    for (member, name) in members.iter().zip(short_names(&members)) {
        let mut olds = before
            .and_then(|before| before["members"].as_array())
            .into_iter()
            .flatten();
        let old = olds.find(|old| old["member"] == member["member"]);
        lines.push(line(&name, member, old.unwrap_or(&none), span_ns));
    }
    (lines, span_ns)
}

/// The rows in the columns asked for.
#[must_use]
pub fn columns(lines: &[Line], columns: StatsColumns) -> Vec<String> {
    let rows: Vec<MemberRow> = lines.iter().map(|line| line.row.clone()).collect();
    let text = match columns {
        StatsColumns::Plexum => return own_columns(lines),
        StatsColumns::Freebsd => iostat::freebsd(&rows),
        StatsColumns::Linux => iostat::linux(&rows),
    };
    text.lines().map(str::to_owned).collect()
}

fn own_columns(lines: &[Line]) -> Vec<String> {
    let head = [
        "",
        "r/s",
        "read/s",
        "w/s",
        "written/s",
        "flushes/s",
        "wait",
        "svc_t",
        "%b",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let bytes = |kib: f64| show_bytes((kib * 1024.0).round() as u64);
    rows.extend(lines.iter().map(|line| {
        let row = &line.row;
        vec![
            row.device.clone(),
            format!("{:.0}", row.reads_per_s),
            bytes(row.read_kib_per_s),
            format!("{:.0}", row.writes_per_s),
            bytes(row.written_kib_per_s),
            format!("{:.0}", line.flushes_per_s),
            row.outstanding.to_string(),
            format!("{:.3}", row.service_ms),
            format!("{:.0}", row.busy_percent),
        ]
    }));
    table(&rows)
}

/// Where the time went.
#[must_use]
pub fn reasons(lines: &[Line]) -> Vec<String> {
    let head = [
        "",
        "busy",
        "queue",
        "reads in order",
        "writes in order",
        "served ms",
        "waiting ms",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let share = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}%"));
    let time = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    rows.extend(lines.iter().map(|line| {
        vec![
            line.row.device.clone(),
            format!("{:.1}%", line.row.busy_percent),
            format!("{:.2}", line.row.queue_mean),
            share(line.sequential_read_percent),
            share(line.sequential_write_percent),
            time(line.served_ms),
            time(line.waiting_ms),
        ]
    }));
    table(&rows)
}

/// The same for programs.
#[must_use]
pub fn object(lines: &[Line], span_ns: u64) -> Value {
    let rows = lines.iter().map(|line| {
        let row = &line.row;
        json!({"device": row.device, "reads_per_s": row.reads_per_s, "writes_per_s": row.writes_per_s,
            "read_kib_per_s": row.read_kib_per_s, "written_kib_per_s": row.written_kib_per_s,
            "flushes_per_s": line.flushes_per_s, "outstanding": row.outstanding,
            "service_ms": row.service_ms, "read_await_ms": row.read_await_ms,
            "write_await_ms": row.write_await_ms, "queue_mean": row.queue_mean,
            "busy_percent": row.busy_percent,
            "sequential_read_percent": line.sequential_read_percent,
            "sequential_write_percent": line.sequential_write_percent,
            "served_ms": line.served_ms, "waiting_ms": line.waiting_ms})
    });
    json!({"span_ns": span_ns, "rows": rows.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(moment_ms: u64, reads: u64, busy_ms: u64, read_ms: u64) -> Value {
        let member = json!({"member": "/disks/a", "reads": reads, "writes": 0, "read_bytes": reads * 4096,
            "sequential_reads": reads / 4, "read_ns": read_ms * 1_000_000, "busy_ns": busy_ms * 1_000_000,
            "outstanding": 3});
        json!({"volume": "nas", "moment_ns": moment_ms * 1_000_000, "counting_since_ns": 1_000_000,
            "total": {}, "members": [member]})
    }

    #[test]
    fn an_interval_is_as_long_as_the_server_says() {
        let (before, now) = (answer(1000, 100, 40, 100), answer(3000, 300, 1040, 2100));
        let (lines, span_ns) = lines(&now, Some(&before));
        let member = &lines[1];
        assert_eq!((span_ns, member.row.reads_per_s), (2_000_000_000, 100.0));
        let row = &member.row;
        assert_eq!(
            (row.service_ms, row.busy_percent, row.queue_mean),
            (10.0, 50.0, 1.0)
        );
        assert_eq!(
            (member.served_ms, member.waiting_ms),
            (Some(5.0), Some(5.0))
        );
        assert_eq!(
            (
                member.sequential_read_percent,
                member.sequential_write_percent
            ),
            (Some(25.0), None)
        );
        let freebsd = columns(&lines, StatsColumns::Freebsd);
        assert_eq!(
            freebsd[3],
            "a        100.0   0.0   400.0     0.0    3  10.0  50"
        );
    }

    #[test]
    fn counters_that_were_reset_or_have_gone_back_count_from_zero() {
        let (before, mut now) = (answer(1000, 100, 40, 100), answer(3000, 50, 20, 100));
        let (lone, span_ns) = lines(&now, Some(&before));
        assert_eq!((span_ns, lone[1].row.reads_per_s), (2_000_000_000, 25.0));
        now["counting_since_ns"] = 2_500_000_000_u64.into();
        let (reset, span_ns) = lines(&now, Some(&before));
        assert_eq!((span_ns, reset[1].row.reads_per_s), (500_000_000, 100.0));
    }

    #[test]
    fn members_are_called_by_the_end_of_their_path_where_that_is_enough() {
        let names = ["/x/a", "/y/a", "/x/b", "nbd://host/a"].map(|name| json!({"member": name}));
        let short = short_names(&names);
        assert_eq!(short, ["/x/a", "/y/a", "b", "nbd://host/a"]);
    }
}
