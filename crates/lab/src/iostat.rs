//! Per-member figures in the columns people know: FreeBSD's `iostat -x`, Linux's, and why the time went.
//!
//! In FreeBSD's columns *wait* is the queue length at the moment of sampling, *svc_t* the mean time from issue to
//! completion, queueing included, and *%b* the share of time with at least one request outstanding (lab.md 6).

use plexum_disks::disk::timed::TimedDisk;
use plexum_disks::disk::timed_stats::DiskFigures;
use serde::Serialize;

/// One member over one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberRow {
    /// Its name.
    pub device: String,
    /// Reads a second.
    pub reads_per_s: f64,
    /// Writes a second.
    pub writes_per_s: f64,
    /// Kilobytes (1024) read a second.
    pub read_kib_per_s: f64,
    /// Kilobytes (1024) written a second.
    pub written_kib_per_s: f64,
    /// Requests outstanding at the end.
    pub outstanding: u64,
    /// Mean time of a request, queueing included.
    pub service_ms: f64,
    /// Mean time of a read.
    pub read_await_ms: f64,
    /// Mean time of a write.
    pub write_await_ms: f64,
    /// Mean number of requests outstanding.
    pub queue_mean: f64,
    /// Share of time with something outstanding, in percent.
    pub busy_percent: f64,
    /// Where the time went, in percent of the interval.
    pub seek_percent: f64,
    /// Waiting for the platter.
    pub rotation_percent: f64,
    /// Moving bytes from and to the medium.
    pub transfer_percent: f64,
    /// Commands.
    pub overhead_percent: f64,
    /// Interface and bus.
    pub interface_percent: f64,
    /// Requests waiting for the disk: time summed over requests, in percent of the interval.
    pub queue_percent: f64,
    /// Share of reads answered by buffer or read-ahead.
    pub buffered_percent: f64,
}

fn share(part: u64, whole: f64) -> f64 {
    if whole > 0.0 {
        part as f64 / whole * 100.0
    } else {
        0.0
    }
}

fn ratio(sum_ns: u64, count: u64) -> f64 {
    if count == 0 {
        0.0
    } else {
        sum_ns as f64 / count as f64 / 1e6
    }
}

/// The row of one member for `span_ns`.
#[must_use]
pub fn row(device: &str, figures: &DiskFigures, outstanding: u64, span_ns: u64) -> MemberRow {
    let seconds = (span_ns as f64 / 1e9).max(1e-12);
    let span = span_ns as f64;
    let requests = figures.reads + figures.writes;
    MemberRow {
        device: device.to_owned(),
        reads_per_s: figures.reads as f64 / seconds,
        writes_per_s: figures.writes as f64 / seconds,
        read_kib_per_s: figures.read_bytes as f64 / 1024.0 / seconds,
        written_kib_per_s: figures.written_bytes as f64 / 1024.0 / seconds,
        outstanding,
        service_ms: ratio(figures.read_wait_ns + figures.write_wait_ns, requests),
        read_await_ms: ratio(figures.read_wait_ns, figures.reads),
        write_await_ms: ratio(figures.write_wait_ns, figures.writes),
        queue_mean: figures.queue_integral_ns as f64 / span.max(1.0),
        busy_percent: share(figures.busy_ns, span),
        seek_percent: share(figures.seek_ns, span),
        rotation_percent: share(figures.rotation_ns, span),
        transfer_percent: share(figures.transfer_ns, span),
        overhead_percent: share(figures.overhead_ns, span),
        interface_percent: share(figures.interface_ns, span),
        queue_percent: share(figures.queue_ns, span),
        buffered_percent: share(figures.hits + figures.rides, figures.reads as f64),
    }
}

/// Figures of several disks from a moment on.
pub struct Sampler {
    disks: Vec<(String, TimedDisk)>,
    before: Vec<DiskFigures>,
    since_ns: u64,
}

impl Sampler {
    /// Begins now.
    #[must_use]
    pub fn start(disks: &[(String, TimedDisk)], now_ns: u64) -> Self {
        Self {
            disks: disks.to_vec(),
            before: disks.iter().map(|(_, disk)| disk.figures()).collect(),
            since_ns: now_ns,
        }
    }

    /// The rows since the start or the last call.
    pub fn sample(&mut self, now_ns: u64) -> Vec<MemberRow> {
        let span = now_ns - self.since_ns;
        self.since_ns = now_ns;
        let mut rows = Vec::new();
        for ((name, disk), before) in self.disks.iter().zip(&mut self.before) {
            let figures = disk.figures();
            rows.push(row(name, &figures.since(before), disk.outstanding(), span));
            *before = figures;
        }
        rows
    }
}

/// Wide enough for all names, and for `least`.
fn name_width(rows: &[MemberRow], least: usize) -> usize {
    let widths = rows.iter().map(|row| row.device.chars().count());
    widths.fold(least, usize::max)
}

/// As `iostat -x` of FreeBSD 7 prints it.
#[must_use]
pub fn freebsd(rows: &[MemberRow]) -> String {
    let width = name_width(rows, 8);
    let mut text = format!(
        "                        extended device statistics\n\
         {:<width$}   r/s   w/s    kr/s    kw/s wait svc_t  %b\n",
        "device"
    );
    for row in rows {
        text += &format!(
            "{:<width$} {:5.1} {:5.1} {:7.1} {:7.1} {:4} {:5.1} {:3.0}\n",
            row.device,
            row.reads_per_s,
            row.writes_per_s,
            row.read_kib_per_s,
            row.written_kib_per_s,
            row.outstanding,
            row.service_ms,
            row.busy_percent
        );
    }
    text
}

/// As `iostat -x` of Linux prints it (the columns that exist here).
#[must_use]
pub fn linux(rows: &[MemberRow]) -> String {
    let width = name_width(rows, 12);
    let mut text = format!(
        "{:<width$}      r/s     rkB/s r_await rareq-sz     w/s     wkB/s w_await wareq-sz  aqu-sz  %util\n",
        "Device"
    );
    for row in rows {
        let size = |kib: f64, count: f64| if count > 0.0 { kib / count } else { 0.0 };
        text += &format!(
            "{:<width$} {:8.2} {:9.2} {:7.2} {:8.2} {:7.2} {:9.2} {:7.2} {:8.2} {:7.2} {:6.2}\n",
            row.device,
            row.reads_per_s,
            row.read_kib_per_s,
            row.read_await_ms,
            size(row.read_kib_per_s, row.reads_per_s),
            row.writes_per_s,
            row.written_kib_per_s,
            row.write_await_ms,
            size(row.written_kib_per_s, row.writes_per_s),
            row.queue_mean,
            row.busy_percent
        );
    }
    text
}

/// Where the time of each member went, in percent of the interval.
#[must_use]
pub fn reasons(rows: &[MemberRow]) -> String {
    let mut text = String::from(
        "device    %busy  %seek   %rot  %xfer %command %interface  %queue %buffered\n",
    );
    for row in rows {
        text += &format!(
            "{:<8} {:6.1} {:6.1} {:6.1} {:6.1} {:8.1} {:10.1} {:7.1} {:9.1}\n",
            row.device,
            row.busy_percent,
            row.seek_percent,
            row.rotation_percent,
            row.transfer_percent,
            row.overhead_percent,
            row.interface_percent,
            row.queue_percent,
            row.buffered_percent
        );
    }
    text
}
