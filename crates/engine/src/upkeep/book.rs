//! What the work in the background is at, for status and for whoever must not meet it.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::scrub::{ScrubReport, ScrubState};
use plexum_block::clock::Moment;

/// A long piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Making copies or parity agree after an unclean stop, or for the first time.
    Resync,
    /// Filling members.
    Rebuild,
    /// Comparing.
    Scrub,
    /// Comparing and mending.
    Repair,
    /// Giving a plex more members.
    Reshape,
}

/// Progress of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// What it is.
    pub kind: JobKind,
    /// Position, in bytes of `total_bytes`.
    pub done_bytes: u64,
    /// End, in bytes of the sync space or of a member.
    pub total_bytes: u64,
    /// When it began.
    pub started: Moment,
    /// Bytes really worked on since it began.
    pub worked_bytes: u64,
}

impl JobStatus {
    /// Whether it asks more of some members than of others: how long they take then says nothing about the members.
    pub(crate) fn is_uneven(&self) -> bool {
        self.kind != JobKind::Scrub
    }

    /// Bytes per second since it began, and the time left at that rate.
    #[must_use]
    pub fn rate(&self, now: Moment) -> (u64, Option<Duration>) {
        let spent = now.since(self.started).as_secs_f64();
        if spent <= 0.0 || self.worked_bytes == 0 {
            return (0, None);
        }
        let rate = self.worked_bytes as f64 / spent;
        let left = self.total_bytes.saturating_sub(self.done_bytes) as f64 / rate;
        (rate as u64, Some(Duration::from_secs_f64(left.min(1e9))))
    }
}

/// One thread owns it.
#[derive(Default)]
pub(crate) struct Book {
    job: RefCell<Option<JobStatus>>,
    is_running: Cell<bool>,
    pub(super) scrub: RefCell<ScrubState>,
    pub(super) last_scrub: RefCell<Option<ScrubReport>>,
    /// Of a part.
    pub(super) last_part: RefCell<Option<ScrubReport>>,
}

impl Book {
    /// A long piece of work begins.
    pub(crate) fn begin_job(&self, kind: JobKind, total_bytes: u64, now: Moment) {
        *self.job.borrow_mut() = Some(JobStatus {
            kind,
            done_bytes: 0,
            total_bytes,
            started: now,
            worked_bytes: 0,
        });
    }

    /// It has come so far, with `step_bytes` really worked on since the last time.
    pub(crate) fn advance_job(&self, progress: Progress) {
        if let Some(job) = self.job.borrow_mut().as_mut() {
            job.done_bytes = progress.done_bytes;
            job.worked_bytes += progress.step_bytes;
        }
    }

    /// It has ended.
    pub(crate) fn end_job(&self) -> Option<JobStatus> {
        self.job.borrow_mut().take()
    }

    /// What runs.
    pub(crate) fn job(&self) -> Option<JobStatus> {
        *self.job.borrow()
    }

    /// Whether a scrub runs or is about to.
    pub(crate) fn is_scrubbing(&self) -> bool {
        let scrub = self.scrub.borrow();
        scrub.is_running || scrub.wanted.is_some()
    }

    /// Whether the task of the background is at work.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running.get()
    }

    /// It begins.
    pub(super) fn begin(&self) {
        self.is_running.set(true);
    }

    /// It has ended.
    pub(super) fn end(&self) {
        self.is_running.set(false);
    }
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Position.
    pub done_bytes: u64,
    /// Worked on since the last time.
    pub step_bytes: u64,
}
