//! How fast the long piece of work of a volume goes: samples of its progress.
//!
//! Invariants: a rate comes from the last seconds, its range from the last minute, never from the whole life of a job.

use std::cell::RefCell;
use std::collections::VecDeque;

use plexum_block::clock::Moment;
use plexum_engine::volume::{JobKind, JobStatus};

/// Samples kept: a minute of them, one every half second.
const SAMPLES_MAX: usize = 120;
/// Samples that the present rate comes from: five seconds.
const SAMPLES_RECENT: usize = 10;

/// A sample of a job's progress.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Moment,
    kind: JobKind,
    worked_bytes: u64,
}

/// Samples of the last minute, all of one job.
#[derive(Default)]
pub(super) struct Samples(RefCell<VecDeque<Sample>>);

impl Samples {
    /// Notes how far the job is now; `false` when there is none.
    pub(super) fn take(&self, at: Moment, job: Option<&JobStatus>) -> bool {
        let mut samples = self.0.borrow_mut();
        let Some(job) = job else {
            samples.clear();
            return false;
        };
        let is_other =
            |last: &Sample| last.kind != job.kind || last.worked_bytes > job.worked_bytes;
        if samples.back().is_some_and(is_other) {
            samples.clear();
        }
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(Sample {
            at,
            kind: job.kind,
            worked_bytes: job.worked_bytes,
        });
        true
    }

    /// The present rate, and the slowest and fastest of the last minute.
    pub(super) fn rate(&self) -> (Option<u64>, Option<(u64, u64)>) {
        let samples = self.0.borrow();
        let samples: Vec<Sample> = samples.iter().copied().collect();
        let between = |from: &Sample, to: &Sample| -> u64 {
            let spent = to.at.since(from.at).as_secs_f64();
            if spent <= 0.0 {
                return 0;
            }
            ((to.worked_bytes - from.worked_bytes) as f64 / spent) as u64
        };
        let present = match samples.as_slice() {
            [] | [_] => None,
            [.., last] => {
                let from = samples.len().saturating_sub(SAMPLES_RECENT + 1);
                Some(between(&samples[from], last))
            }
        };
        let windows: Vec<u64> = samples
            .windows(SAMPLES_RECENT + 1)
            .map(|window| between(&window[0], &window[SAMPLES_RECENT]))
            .collect();
        let range = match (windows.iter().min(), windows.iter().max()) {
            (Some(slowest), Some(fastest)) if windows.len() > SAMPLES_RECENT => {
                Some((*slowest, *fastest))
            }
            _ => None,
        };
        (present, range)
    }
}
