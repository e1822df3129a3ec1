//! Where copies or parity may differ, and what makes that known after a crash: regions with writes under way, their
//! bitmap on the members, the stripe log, md's partial parity log. Others say what they are about to do.
//!
//! Invariants:
//! - nothing is written that could make members differ before the regions say so durably (W1, `mark`);
//! - the regions, and the logs' headers, say less only after a flush that covers what they leave out (W2,
//!   `flush_members`);
//! - what may differ is proven again by whoever wrote all of it under its lock, or by a resync, and by nothing else
//!   (W5, W6).

pub mod bitmap;
pub(crate) mod log;
pub(crate) mod ppl;
pub mod regions;
#[cfg(test)]
mod tests;

use std::cell::{Ref, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::array::state::{ArrayState, MemberId};
use crate::array::{Array, Companion, Later, Stale};
use crate::base::Base;
use crate::drive::Drive;
use log::{FlushBegun, StripeLog};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};
use plexum_block::wait::{Mutex, MutexGuard};
use ppl::Ppl;
use regions::Regions;

/// What is known of the agreement of the members of one volume. One thread owns it.
pub(crate) struct Intent<D: Device, C: Clock> {
    base: Rc<Base<C>>,
    array: Rc<Array<D, C>>,
    regions: RefCell<Regions>,
    /// The stripe log, when the volume has one.
    log: RefCell<Option<Rc<StripeLog<D>>>>,
    /// md's partial parity log, when the volume has one.
    ppl: RefCell<Option<Rc<Ppl>>>,
    /// One writer of bitmap blocks at a time.
    bitmap_writer: Mutex,
}

impl<D: Device, C: Clock> Intent<D, C> {
    pub(crate) fn new(base: Rc<Base<C>>, array: Rc<Array<D, C>>, regions: Regions) -> Self {
        let mut regions = regions;
        regions.remember_at_most(base.thresholds().proven_ranges_max);
        Self {
            base,
            array,
            regions: RefCell::new(regions),
            log: RefCell::default(),
            ppl: RefCell::default(),
            bitmap_writer: Mutex::new(),
        }
    }

    /// The regions, to be looked at. Not to be held over an await.
    #[inline]
    pub(crate) fn regions(&self) -> Ref<'_, Regions> {
        self.regions.borrow()
    }

    /// Whether copies or parity of the whole range are known to agree (W5, W6).
    #[inline]
    pub(crate) fn is_proven(&self, sync: &Range<u64>) -> bool {
        self.regions.borrow().is_proven(sync)
    }

    /// Whoever wrote all of the range, under its lock: its copies or its parity agree.
    #[inline]
    pub(crate) fn prove(&self, sync: &Range<u64>) {
        debug_assert!(sync.start < sync.end, "something was written");
        self.regions.borrow_mut().prove(sync);
    }

    /// Copies or parity of a range may not agree from now on.
    pub(crate) fn unprove(&self, sync: &Range<u64>) {
        debug_assert!(sync.start < sync.end, "something may differ");
        self.regions.borrow_mut().unprove(sync);
        self.base.tell_guard();
        if let Some(log) = self.stripe_log() {
            log.lower_doubt(sync.start);
        }
        self.base.changed().notify();
    }

    /// As `unprove`, of what somebody else has learned: the caller tells of it when all of that is known here.
    pub(crate) fn learn_doubt(&self, sync: &Range<u64>) {
        self.regions.borrow_mut().unprove(sync);
    }

    /// Somebody begins to make a region agree as a whole, and ends with `settle_unspoilt`.
    pub(crate) fn begin_settling(&self, region: usize) {
        self.regions.borrow_mut().begin_settling(region);
    }

    /// A region was made to agree as a whole: settled, unless something of it has come into doubt since
    /// `begin_settling`.
    pub(crate) fn settle_unspoilt(&self, region: usize) {
        self.regions.borrow_mut().settle_unspoilt(region);
    }

    /// As `Regions::settle_all_unspoilt`.
    pub(crate) fn settle_all_unspoilt(&self, spoilt_count: u64) -> bool {
        self.regions.borrow_mut().settle_all_unspoilt(spoilt_count)
    }

    /// A bitmap begins: its regions are the ones from now on. No write is under way.
    pub(crate) fn put_regions(&self, regions: Regions) {
        assert!(
            regions.sync_bytes() == self.regions.borrow().sync_bytes(),
            "other regions of the same space"
        );
        assert!(
            regions.generation() > self.regions.borrow().generation(),
            "whoever knows a number of the old ones sees that it means nothing"
        );
        *self.regions.borrow_mut() = regions;
    }

    /// Ends the bitmap on the members; what is in doubt stays so.
    pub(crate) fn forget_bitmap(&self) {
        self.regions.borrow_mut().forget_bitmap();
    }

    /// Nobody writes blocks of the bitmap while the guard lives.
    pub(crate) async fn hold_bitmap(&self) -> MutexGuard<'_> {
        self.bitmap_writer.lock().await
    }

    /// md's partial parity log, when the volume has one.
    pub(crate) fn ppl(&self) -> Option<Rc<Ppl>> {
        self.ppl.borrow().clone()
    }

    /// Whether the volume has it.
    #[inline]
    pub(crate) fn has_ppl(&self) -> bool {
        self.ppl.borrow().is_some()
    }

    /// The volume has md's partial parity log no more.
    pub(crate) fn end_ppl(&self) {
        *self.ppl.borrow_mut() = None;
    }

    /// The volume has no stripe log from now on; gives the one that it had.
    pub(crate) fn take_log(&self) -> Option<Rc<StripeLog<D>>> {
        self.log.borrow_mut().take()
    }

    /// Flushes every live member; a failed flush fails the member (W13), durably before it returns (W3).
    ///
    /// # Errors
    /// `Failed` when the volume is frozen, or freezes over it.
    pub(crate) async fn flush_members(&self) -> Result<(), IoError> {
        let begun = self.flush_live_members().await?;
        self.settle_flush(begun).await
    }

    /// The first half of `flush_members`: whoever could not be flushed is failed, not durably yet.
    pub(crate) async fn flush_live_members(&self) -> Result<Option<FlushBegun<D>>, IoError> {
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        let begun = self.before_flush();
        self.array.flush_drives().await?;
        Ok(begun)
    }

    /// The second half: what was flushed counts.
    pub(crate) async fn settle_flush(&self, begun: Option<FlushBegun<D>>) -> Result<(), IoError> {
        if !self.array.is_settled() && !self.base.is_read_only() {
            // W3: what is covered but for a lost member is covered when its loss is durable. Until then a crash brings
            // it back.
            self.array.settle().await?;
        }
        if self.array.is_settled() {
            self.after_flush(begun);
        }
        Ok(())
    }
}

impl<D: Device, C: Clock> Companion<D> for Intent<D, C> {
    fn marked(&self) -> Stale {
        let regions = self.regions.borrow();
        Stale::new(regions.wanted().clone(), regions.region_bytes())
    }

    fn is_doubtful(&self) -> bool {
        self.regions.borrow().doubtful_count() > 0
    }

    fn answers_from_log(&self) -> bool {
        Intent::answers_from_log(self)
    }

    fn before_superblocks(&self, event_count: u64) -> Later<'_, Result<(), IoError>> {
        Box::pin(self.write_bitmap_header(event_count))
    }

    fn bind<'a>(&'a self, state: &'a ArrayState, drives: &'a [Rc<Drive<D>>]) -> Later<'a, bool> {
        Box::pin(self.bind_log(state, drives))
    }

    fn superblock_written(&self, member: MemberId) {
        if let Some(log) = self.stripe_log() {
            log.bind(member, self.array.metadata().superblock_hash(member));
        }
    }
}
