//! Scrubs of a volume that is served: by hand and by schedule, in this life of the server and before.

use super::members::scrub_status;
use super::served::Served;
use super::status::{JobKind, ScrubStatus};
use crate::assembly::Body;

impl Served {
    /// Has somebody's scrub begin: one by schedule ends for it, and goes on when it has ended.
    pub(super) async fn by_hand<R>(&self, begin: impl FnOnce() -> R) -> R {
        self.is_wanted_by_hand.set(true);
        if self.has_scrub_part.get() && self.volume.is_scrubbing() {
            self.volume.stop_scrub();
            self.volume.scrub_ended().await;
        }
        self.has_scrub_part.set(false);
        let begun = begin();
        self.is_wanted_by_hand.set(false);
        begun
    }

    /// Whether something is at work, or about to be, beside which nothing is scrubbed by schedule.
    pub(crate) fn has_other_job(&self) -> bool {
        let is_part = |kind: JobKind| kind == JobKind::Scrub && self.has_scrub_part.get();
        let jobs = self.jobs_now();
        self.is_wanted_by_hand.get() || jobs.iter().any(|job| !is_part(job.kind))
    }

    /// The last scrub, of this life or an earlier one, by hand or by schedule. What an earlier one found counts until
    /// one has been everywhere.
    pub(crate) fn last_scrub(&self) -> Option<ScrubStatus> {
        let before = self.memory.last_scrub();
        let Some(report) = self.volume.scrub_report() else {
            return before;
        };
        let mut scrub = scrub_status(&report);
        if before.as_ref().and_then(|before| before.finished_s) > scrub.finished_s {
            return before;
        }
        if !scrub.is_complete {
            let known = before.map_or(0, |before| before.unmended_bytes());
            scrub.mismatch_bytes_before = scrub.mismatch_bytes_before.max(known);
        }
        Some(scrub)
    }

    /// The last scrub that somebody has asked for: of this life; else the last one that is remembered.
    pub(crate) fn last_scrub_by_hand(&self) -> Option<ScrubStatus> {
        let report = self.volume.scrub_report();
        report.map_or_else(
            || self.memory.last_scrub(),
            |report| Some(scrub_status(&report)),
        )
    }

    /// What the last part has found that was scrubbed by schedule.
    pub(crate) fn part_report(&self) -> Option<ScrubStatus> {
        self.volume.scrub_part_report().as_ref().map(scrub_status)
    }

    /// Whether the volume has anything to compare, and is all in one place.
    pub(crate) fn can_be_scrubbed(&self) -> bool {
        self.volume.has_redundancy()
            && !matches!(&*self.volume, Body::Pieces(_) | Body::Reshaping(_))
    }
}
