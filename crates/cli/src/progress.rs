//! Progress of work that takes longer than a second: a bar on a terminal, plain lines elsewhere.
//!
//! Invariants: progress goes to standard error; `-q` and `--json` leave it out (with `--json -v` it comes as objects).

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plexum_daemon::status::{JobKind, JobStatus, VolumeStatus};

use crate::client::Client;
use crate::errors::Outcome;
use crate::output::{Screen, object};
use crate::units::{show_bytes, show_seconds};

/// Time between two looks at the server.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows how far one job is.
pub struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    last_line: Option<Instant>,
    /// Instead of the kind's own word.
    word: Option<&'static str>,
}

impl Progress {
    /// Progress as this screen wants it.
    #[must_use]
    pub fn new(screen: &Screen) -> Self {
        let wanted = !screen.is_quiet && !screen.is_json;
        let is_terminal = std::io::stderr().is_terminal();
        let bar = (wanted && is_terminal).then(|| {
            let style = ProgressStyle::with_template("{msg} [{bar:30}] {percent:>3} %  {prefix}")
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("#>-");
            ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr()).with_style(style)
        });
        Self {
            bar,
            lines: wanted && !is_terminal,
            last_line: None,
            word: None,
        }
    }

    /// Shows how far work of this process is, called `word`; the rate is that since `since`.
    pub fn show_own(
        &mut self,
        word: &'static str,
        done_bytes: u64,
        total_bytes: u64,
        since: Instant,
    ) {
        self.word = Some(word);
        let spent = since.elapsed().as_secs_f64().max(0.001);
        let rate = (done_bytes as f64 / spent) as u64; // a rate for people
        self.show(&JobStatus {
            kind: JobKind::Replace,
            done_bytes,
            total_bytes,
            rate_bytes_per_s: rate,
            eta_s: total_bytes.saturating_sub(done_bytes).checked_div(rate),
            eta_range_s: None,
            slots: Vec::new(),
        });
    }

    /// Shows the present state of a job.
    pub fn show(&mut self, job: &JobStatus) {
        if let Some(bar) = &self.bar {
            bar.set_length(job.total_bytes.max(1));
            bar.set_position(job.done_bytes);
            bar.set_message(self.word.unwrap_or(job.kind.word()));
            bar.set_prefix(rate_and_eta(job));
        } else if self.lines && self.last_line.is_none_or(|at| at.elapsed() >= LINE_EVERY) {
            crate::output::tell_line!("{}", line_of(self.word.unwrap_or(job.kind.word()), job));
            self.last_line = Some(Instant::now());
        }
    }

    /// Takes the bar away.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `148M/s  3m10s left`.
fn rate_and_eta(job: &JobStatus) -> String {
    let rate = format!("{}/s", show_bytes(job.rate_bytes_per_s));
    match job.eta_s {
        Some(left) => format!("{rate}  {} left", show_seconds(left)),
        None => rate,
    }
}

/// Percent done, cut.
#[must_use]
pub fn percent(job: &JobStatus) -> u64 {
    if job.total_bytes == 0 {
        return 100;
    }
    let percent = u128::from(job.done_bytes) * 100 / u128::from(job.total_bytes);
    u64::try_from(percent.min(100)).unwrap_or(100)
}

/// One plain line: `rebuild 43 %  (17.2G of 40G)  148M/s  3m10s left`.
fn line_of(word: &str, job: &JobStatus) -> String {
    format!(
        "{word} {} %  ({} of {})  {}",
        percent(job),
        show_bytes(job.done_bytes),
        show_bytes(job.total_bytes),
        rate_and_eta(job)
    )
}

/// Waits until `job_of` finds no job any more, with progress, and gives the last status.
///
/// # Errors
/// Of the server; `NoServer` when it ends meanwhile.
pub fn wait(
    client: &Client,
    screen: &Screen,
    job_of: impl Fn(&VolumeStatus) -> Option<JobStatus>,
) -> Result<VolumeStatus, plexum_daemon::problem::Problem> {
    let mut progress = Progress::new(screen);
    loop {
        let status = client.status()?;
        let Some(job) = job_of(&status) else {
            progress.finish();
            return Ok(status);
        };
        progress.show(&job);
        if screen.is_json && screen.verbosity > 0 {
            let fields = serde_json::to_value(&job).unwrap_or_default();
            screen.object(&object("progress", Some(&client.volume), fields));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The exit code after waiting: 0 when the volume is whole, 1 when it is not.
///
/// # Errors
/// None of its own.
pub fn outcome(status: &VolumeStatus) -> Outcome {
    Ok(status.exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_percent_amount_rate_and_time_left() {
        let job = JobStatus {
            kind: JobKind::Rebuild,
            done_bytes: 43 << 30,
            total_bytes: 100 << 30,
            rate_bytes_per_s: 148 << 20,
            eta_s: Some(394),
            eta_range_s: None,
            slots: vec![2],
        };
        assert_eq!(
            line_of(job.kind.word(), &job),
            "rebuild 43 %  (43G of 100G)  148M/s  6m34s left"
        );
    }

    #[test]
    fn percent_never_divides_by_zero_nor_exceeds_100() {
        let mut job = JobStatus {
            kind: JobKind::Scrub,
            done_bytes: 0,
            total_bytes: 0,
            rate_bytes_per_s: 0,
            eta_s: None,
            eta_range_s: None,
            slots: vec![],
        };
        assert_eq!(percent(&job), 100);
        job.done_bytes = u64::MAX;
        job.total_bytes = 1;
        assert_eq!(percent(&job), 100);
    }
}
