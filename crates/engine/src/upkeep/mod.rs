//! Everything the engine does by itself: clean marking, lazy bitmap, resync, spares, rebuild, scrub.
//!
//! One task runs all of it (`Upkeep::run`); row and range locks are taken like any request takes them.

mod book;
pub mod rebuild;
pub mod resync;
mod rows;
pub mod scrub;
mod steps;
mod watch;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

pub use crate::options::Pace;
pub(crate) use book::{Book, Progress};
pub use book::{JobKind, JobStatus};

use crate::array::Array;
use crate::base::Base;
use crate::copies::Copies;
use crate::drive::Drive;
use crate::intent::Intent;
use crate::rows::Rows;
use crate::state::{Event, FailCause};
use crate::traffic::Traffic;

use plexum_block::clock::{Clock, Moment};
use plexum_block::device::Device;
use plexum_block::wait::{first, join, join_all};

/// Quiet time after which the array is marked clean (cli.md, settled details).
const CLEAN_AFTER: Duration = Duration::from_millis(200);

/// Period of the lazy bitmap cleaner (md's daemon_sleep).
const BITMAP_PERIOD: Duration = Duration::from_secs(5);

/// Period of the check whether members are still what was opened.
const MEMBER_CHECK_PERIOD: Duration = Duration::from_secs(2);

/// How often the housekeeper looks.
const TICK: Duration = Duration::from_millis(100);

/// A foreground request within this time makes background work hold back.
const FOREGROUND_WINDOW: Duration = Duration::from_millis(50);

/// Piece of members in memory: those of a few members stay in the processor's cache until they have been compared, or
/// made into what is missing. A mirror of two on tmpfs is scrubbed faster than in steps of 1 MiB
/// (docs/notes/upkeep.md).
const MEMORY_PIECE_BYTES: u64 = 128 << 10;

/// The next moment that is a multiple of `period` by the clock: volumes at rest wake their thread together.
fn next_of(now: Moment, period: Duration) -> Moment {
    let period = nanos(period).max(1);
    Moment((now.0 / period).saturating_add(1).saturating_mul(period))
}

/// Whatever keeps a volume right by itself. It asks the rooms like a request does, and has their locks while it works.
pub(crate) struct Upkeep<D: Device, C: Clock> {
    base: Rc<Base<C>>,
    array: Rc<Array<D, C>>,
    intent: Rc<Intent<D, C>>,
    rows: Rc<Rows<D, C>>,
    copies: Rc<Copies<D, C>>,
    traffic: Rc<Traffic<D, C>>,
    book: Rc<Book>,
}

/// The rooms that it works in.
pub(crate) struct UpkeepParts<D: Device, C: Clock> {
    pub base: Rc<Base<C>>,
    pub array: Rc<Array<D, C>>,
    pub intent: Rc<Intent<D, C>>,
    pub rows: Rc<Rows<D, C>>,
    pub copies: Rc<Copies<D, C>>,
    pub traffic: Rc<Traffic<D, C>>,
}

impl<D: Device, C: Clock> Upkeep<D, C> {
    /// Nothing runs yet.
    pub(crate) fn new(parts: UpkeepParts<D, C>) -> Self {
        Self {
            base: parts.base,
            array: parts.array,
            intent: parts.intent,
            rows: parts.rows,
            copies: parts.copies,
            traffic: parts.traffic,
            book: Rc::default(),
        }
    }

    /// What it is at.
    pub(crate) fn book(&self) -> &Rc<Book> {
        &self.book
    }

    /// A long piece of work begins.
    fn begin_job(&self, kind: JobKind, total_bytes: u64) {
        let now = self.base.clock().now();
        self.book.begin_job(kind, total_bytes, now);
    }

    fn end_job(&self) {
        let ended = self.book.end_job();
        if ended.is_some_and(|job| job.is_uneven()) {
            self.array.for_each_drive(Drive::forget_latencies);
        }
    }

    /// Runs the background work until `stop`. Give it one task of its own; without it nothing is cleaned or rebuilt.
    pub(crate) async fn run(&self) {
        let has_ended = Cell::new(false);
        let work = async {
            if self.base.is_read_only() {
                self.book.begin();
                Box::pin(self.run_scrubs()).await; // they compare, and mend nothing
                self.book.end();
            } else {
                self.work().await;
            }
            has_ended.set(true);
            self.base.changed().notify();
        };
        // After a freeze and when nothing may be written members can still be read, and hang.
        join(
            work,
            self.watch_members(|| has_ended.get() && self.base.is_stopping()),
        )
        .await;
    }

    async fn work(&self) {
        self.book.begin();
        let _ = self.array.commit_all().await;
        // In boxes: together they take hundreds of kilobytes, which nobody should have to hold on a stack.
        let bookkeeping = join(
            Box::pin(self.housekeeping()),
            Box::pin(self.intent.run_tail()),
        );
        let healing = async {
            let may_begin = || !self.base.holds_jobs() || self.array.is_ended();
            self.base.changed().until(may_begin).await;
            join(Box::pin(self.keep_redundant()), Box::pin(self.run_scrubs())).await
        };
        join(bookkeeping, healing).await;
        self.book.end();
        self.base.changed().notify();
    }

    /// Bytes of each member that scrub, resync and rebuild look at together, at most.
    fn piece_bytes(&self) -> u64 {
        let piece_bytes = self.base.thresholds().piece_bytes;
        if self.array.is_in_memory() {
            piece_bytes.min(MEMORY_PIECE_BYTES)
        } else {
            piece_bytes
        }
    }

    async fn housekeeping(&self) {
        let begun = self.base.clock().now();
        let mut bitmap_due = Moment(self.base.clock().now().0 + nanos(BITMAP_PERIOD));
        let mut check_due = next_of(self.base.clock().now(), MEMBER_CHECK_PERIOD);
        // When a tick last saw a write that the one before had not seen: writes themselves have no time to read the
        // clock.
        let (mut last_write, mut write_count) = (Moment::default(), 0);
        while !self.array.is_ended() {
            let has_bits = self.base.has_redundancy() && self.intent.regions().has_marks();
            let due = if has_bits {
                check_due.min(bitmap_due)
            } else {
                check_due
            };
            self.rest_until(due, begun).await;
            if self.array.is_ended() {
                break;
            }
            let now = self.base.clock().now();
            if has_bits && now >= bitmap_due {
                let _ = self.intent.clear_idle_bits(false).await;
                let _ = self.array.settle().await;
                bitmap_due = Moment(self.base.clock().now().0 + nanos(BITMAP_PERIOD));
            }
            if now >= check_due {
                self.check_members().await;
                check_due = next_of(self.base.clock().now(), MEMBER_CHECK_PERIOD);
            }
            if write_count != self.traffic.write_count() {
                (last_write, write_count) = (now, self.traffic.write_count());
            }
            let is_quiet =
                self.traffic.writes_under_way() == 0 && now.since(last_write) >= CLEAN_AFTER;
            if self.base.has_redundancy() && is_quiet && self.is_clean_due(false) {
                let _ = self.mark_clean().await;
            }
            if self.is_log_sure_late() {
                // A flush failed when the last doubt ended, or an older one was still under way.
                self.intent.settle_log_doubt().await;
            }
            // Changes nobody waits for (checkpoints, bad blocks taken off) become durable here.
            let _ = self.array.commit_all().await;
        }
    }

    /// Until the next tick while something waits for one; otherwise until `due`, so that a volume at rest does nothing.
    ///
    /// Ticks are counted from `begun`.
    async fn rest_until(&self, due: Moment, begun: Moment) {
        while !self.array.is_ended() {
            let now = self.base.clock().now();
            if self.has_chores() {
                let since_tick = nanos(now.since(begun)) % nanos(TICK);
                let rest = nanos(TICK) - since_tick;
                self.base.clock().sleep(Duration::from_nanos(rest)).await;
                return;
            }
            if now >= due {
                return;
            }
            first(
                self.base.clock().sleep(due.since(now)),
                self.base.changed().changed(),
            )
            .await;
        }
    }

    /// Whether a tick would find something to do, now or when the volume has been quiet for long enough.
    fn has_chores(&self) -> bool {
        !self.array.is_committed()
            || self.base.has_redundancy() && self.is_clean_due(false)
            || self.is_log_sure_late()
    }

    fn is_log_sure_late(&self) -> bool {
        let is_right = self.intent.regions().doubtful_count() == 0;
        is_right
            && self
                .intent
                .stripe_log()
                .is_some_and(|log| log.is_sure_late())
    }

    async fn check_members(&self) {
        let drives = self.array.live_drives();
        let results = join_all(drives.iter().map(|drive| drive.check())).await;
        for (drive, result) in drives.iter().zip(results) {
            if result.is_err() {
                self.array.fail_member(drive.id, FailCause::Gone);
            }
        }
        let _ = self.array.settle().await;
    }

    /// Whether the superblocks could say more than they do: that nothing is being written, that the resync has ended,
    /// and when stopping how far it got.
    fn is_clean_due(&self, is_stopping: bool) -> bool {
        if self.base.holds_jobs() && self.intent.regions().doubtful_count() > 0 {
            return false; // what is in doubt is so in two geometries: one number would not tell it
        }
        let state = self.array.state();
        let reached = self.intent.regions().consistent_below_bytes();
        let is_news = state.consistent_below_bytes != reached;
        state.is_dirty || is_news && (is_stopping || reached.is_none())
    }

    /// W2: flush, then "clean", when no write came in between.
    pub(crate) async fn mark_clean(&self) -> Result<(), plexum_block::device::IoError> {
        let writes_before = self.traffic.write_count();
        // What a resync makes right while the flush runs is not covered by it: the superblocks say so at the next one.
        let reached_before = self.intent.regions().consistent_below_bytes();
        self.intent.destage().await?;
        if !self.base.has(crate::mutant::Mutant::CleanWithoutFlush) {
            self.intent.flush_members().await?;
        }
        if self.traffic.writes_under_way() > 0 || self.traffic.write_count() != writes_before {
            return Ok(());
        }
        debug_assert_eq!(
            self.traffic.writes_under_way(),
            0,
            "clean means that nothing is under way"
        );
        if let Some(log) = self.intent.stripe_log() {
            log.note_clean();
        }
        let reached_now = self.intent.regions().consistent_below_bytes();
        let consistent_below_bytes = match (reached_before, reached_now) {
            (Some(before), Some(now)) => Some(before.min(now)),
            (before, now) => before.or(now),
        };
        self.array.apply(&Event::Quiet {
            consistent_below_bytes,
        });
        self.array.commit_all().await
    }

    /// Holds back so that `bytes` of work, begun at `since`, keep to the pace.
    pub(crate) async fn throttle(&self, bytes: u64, since: Moment) {
        loop {
            let pace = self.base.options().pace;
            if !pace.is_paused || self.array.is_ended() || self.is_scrub_to_stop() {
                break;
            }
            self.base.changed().changed().await;
        }
        let pace = self.base.options().pace;
        let now = self.base.clock().now();
        let limit = match (self.is_in_foreground(), pace.ceiling_bytes_per_s) {
            (true, 0) => pace.floor_bytes_per_s.max(1),
            (true, ceiling) => pace.floor_bytes_per_s.clamp(1, ceiling),
            (false, 0) => return,
            (false, ceiling) => ceiling,
        };
        let due_ns = u128::from(bytes) * 1_000_000_000 / u128::from(limit);
        let due = Duration::from_nanos(u64::try_from(due_ns).unwrap_or(u64::MAX));
        let spent = now.since(since);
        if due > spent {
            self.base.clock().sleep(due - spent).await;
        }
    }

    /// Ends the volume cleanly: no new background step, writes drained, everything flushed, bits cleared, marked clean.
    ///
    /// # Errors
    /// `Failed` when the array is frozen: the members are left as they are, an ordinary dirty start follows.
    pub(crate) async fn stop(&self) -> Result<(), plexum_block::device::IoError> {
        self.base.stop();
        let has_ended = Cell::new(false);
        let end = async {
            let result = self.end().await;
            has_ended.set(true);
            self.base.changed().notify();
            result
        };
        join(end, self.watch_members(|| has_ended.get())).await.0
    }

    async fn end(&self) -> Result<(), plexum_block::device::IoError> {
        self.base.all_back().await;
        self.traffic.no_writes().await;
        self.base.changed().until(|| !self.book.is_running()).await;
        if self.base.is_read_only() {
            return Ok(());
        }
        if !self.base.has_redundancy() {
            self.array.commit_all().await?; // what has just become so says it
            return self.intent.flush_members().await;
        }
        self.save_cursors().await?;
        if self.is_clean_due(true) {
            self.mark_clean().await?;
        }
        self.intent.clear_idle_bits(true).await?;
        self.array.commit_all().await?;
        self.intent.flush_members().await
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_that_rest_are_looked_at_at_the_same_moments() {
        let period = Duration::from_secs(2);
        let next = |ns: u64| next_of(Moment(ns), period).0;
        assert_eq!(
            (next(0), next(1), next(1_999_999_999)),
            (2_000_000_000, 2_000_000_000, 2_000_000_000)
        );
        assert_eq!(
            next(2_000_000_000),
            4_000_000_000,
            "never the same moment again"
        );
        assert!(next(u64::MAX) > u64::MAX - 2_000_000_000);
    }
}
