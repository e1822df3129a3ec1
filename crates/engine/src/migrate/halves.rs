//! The two volumes of a migration, and who makes durable what they learn of their members.
//!
//! Invariants:
//! - of two volumes that have their members together one alone commits: the new one, which has all of them. What the
//!   old one learns is told there before anybody is answered who depends on it (W3);
//! - a write to the old one is announced by the new one: dirty mark and bits are durable before data (W1, R7);
//! - a loss that either geometry does not survive freezes both, and is written nowhere (W4, R8).
//!
//! Source: md-reshape.md section 8.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::news::Announcement;
use crate::state::{FailCause, MemberId};
use crate::volume::Volume;
use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};

/// Who makes durable what the volume in the old geometry learns of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bond {
    /// Each volume for itself.
    Apart,
    /// The new one does, which has all of them: by `MemberId` of the old one, who that is in the new one.
    Lent(Vec<MemberId>),
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// In the old geometry.
    Before,
    /// In the new one.
    After,
}

/// Both volumes. Of the old one nothing is kept when all has moved.
pub(super) struct Halves<D: Device, C: Clock> {
    before: RefCell<Option<Rc<Volume<D, C>>>>,
    after: Rc<Volume<D, C>>,
    bond: Bond,
    /// Version of the new one's state at the last look for losses.
    seen: Cell<u64>,
}

impl<D: Device, C: Clock> Halves<D, C> {
    /// Takes both. Bound together, the new one does no work of its own until `end`.
    pub(super) fn new(before: Volume<D, C>, after: Rc<Volume<D, C>>, bond: Bond) -> Self {
        if let Bond::Lent(who) = &bond {
            assert_eq!(
                who.len(),
                before.array().state().members.len(),
                "each member of the old volume is one of the new one"
            );
            before.array().fall_silent();
            after.array().stand_beside(before.array());
            after.base().hold_jobs();
        }
        Self {
            before: RefCell::new(Some(Rc::new(before))),
            after,
            bond,
            seen: Cell::new(u64::MAX),
        }
    }

    /// The new volume.
    pub(super) fn after(&self) -> &Rc<Volume<D, C>> {
        &self.after
    }

    /// The old volume, until all has moved.
    pub(super) fn before(&self) -> Option<Rc<Volume<D, C>>> {
        self.before.borrow().clone()
    }

    /// Whether both have their members together.
    pub(super) fn is_bound(&self) -> bool {
        self.bond != Bond::Apart
    }

    /// Whether too much was lost, for either geometry.
    pub(super) fn is_frozen(&self) -> bool {
        let before = self.before.borrow();
        before.as_ref().is_some_and(|before| before.is_frozen()) || self.after.is_frozen()
    }

    /// All has moved, durably: what was held back goes on, and of the old volume nothing is kept.
    pub(super) fn end(&self) {
        if self.is_bound() {
            self.before.take();
            self.after.array().stand_alone();
            self.after.base().let_jobs();
        }
    }

    fn volume(&self, side: Side) -> Rc<Volume<D, C>> {
        let before = self.before.borrow();
        match (side, &*before) {
            (Side::Before, Some(before)) => Rc::clone(before),
            (Side::Before, None) => unreachable!("nothing is ahead of the border any more"),
            (Side::After, _) => Rc::clone(&self.after),
        }
    }

    /// Reads a part that is on one side. With what has answered it.
    pub(super) async fn read(
        &self,
        side: Side,
        at_bytes: u64,
        length_bytes: usize,
    ) -> Result<(Rope, Rc<Volume<D, C>>), IoError> {
        let volume = self.volume(side);
        let rope = volume.read(at_bytes, length_bytes).await;
        self.share_losses();
        Ok((rope?, volume))
    }

    /// Writes a part that is on one side. Gives what has taken it.
    pub(super) async fn write(
        &self,
        side: Side,
        at_bytes: u64,
        data: Buf,
        fua: Fua,
    ) -> Result<Rc<Volume<D, C>>, IoError> {
        let volume = self.volume(side);
        if side == Side::Before && self.is_bound() {
            Box::pin(self.write_lent(&volume, at_bytes, data, fua)).await?;
        } else {
            let result = volume.write(at_bytes, data, fua).await;
            self.share_losses();
            result?;
        }
        Ok(volume)
    }

    /// A write to the old volume, under dirty mark and bits of the new one. Bits are of members, so both mean the same
    /// map (R7).
    async fn write_lent(
        &self,
        before: &Volume<D, C>,
        at_bytes: u64,
        data: Buf,
        fua: Fua,
    ) -> Result<(), IoError> {
        let (traffic, intent) = (self.after.traffic(), self.after.intent());
        debug_assert!(
            before.array().is_silent(),
            "the new volume commits for both"
        );
        before.check_request(at_bytes, data.len() as u64)?;
        if data.is_empty() {
            return self.after.base().check_writable();
        }
        let now = self.after.base().clock().recent();
        let _in_flight = traffic.enter_write(now).await?;
        let sync = before.sync_range(at_bytes, data.len() as u64);
        let _mark = match &sync {
            Some(sync) => Some(intent.mark(sync.clone()).await?),
            None => None,
        };
        let result = before.write(at_bytes, data, fua).await;
        self.share_losses();
        traffic.count_write();
        if let (Err(_), Some(sync)) = (result, &sync) {
            intent.unprove(sync); // whoever resyncs the new volume finds it by that
        }
        result?;
        self.after.array().settle().await
    }

    /// Puts rows where they will be. Nobody looks for them there before the border has passed, so neither bits nor a
    /// dirty mark say that they are being written.
    pub(super) async fn put(&self, at_bytes: u64, data: Buf) -> Result<(), IoError> {
        if !self.is_bound() {
            return self.after.write(at_bytes, data, Fua::No).await;
        }
        let result = self.after.write_moved(at_bytes, data).await;
        self.share_losses();
        result
    }

    /// Makes durable what was answered, or put.
    pub(super) async fn flush(&self) -> Result<(), IoError> {
        if !self.is_bound()
            && let Some(before) = self.before()
        {
            before.flush().await?;
        }
        let result = self.after.flush().await;
        self.share_losses();
        result
    }

    /// A member that one of two bound volumes has lost is lost to both. Asked for after each request: as long as the
    /// old one has no news, and the state of the new one is as it was, there is nothing to look at.
    fn share_losses(&self) {
        let Bond::Lent(who) = &self.bond else { return };
        let Some(before) = self.before() else { return };
        let version = self.after.array().state().version;
        if self.seen.replace(version) == version && !before.base().has_announcement() {
            return;
        }
        while let Some(news) = before.base().take_announcement() {
            match news {
                Announcement::MemberFailed { member, cause }
                | Announcement::Frozen { member, cause } => {
                    let is_it = |own: &u16| before.array().member_name(MemberId(*own)) == member;
                    let (_, other) = (0..)
                        .zip(who)
                        .find(|(own, _)| is_it(own))
                        .expect("who is lost was a member");
                    self.after.array().fail_member(*other, cause);
                }
                other => self.after.base().announce(other),
            }
        }
        for (own, other) in (0..).map(MemberId).zip(who) {
            let is_live = |volume: &Volume<D, C>, id| volume.array().state().record(id).is_live();
            if !is_live(&self.after, *other) && is_live(&before, own) {
                before.array().fail_member(own, FailCause::WriteError); // told by the new one, with its cause
                let _ = before.base().take_announcement();
            }
        }
    }

    /// The parts of a range, each with the side where it is; `low` is the one below the border.
    pub(super) fn cut(range: &Range<u64>, border: u64, low: Side) -> [(Side, Range<u64>); 2] {
        debug_assert!(range.start <= range.end, "a range");
        let border = border.clamp(range.start, range.end);
        let high = match low {
            Side::Before => Side::After,
            Side::After => Side::Before,
        };
        [(low, range.start..border), (high, border..range.end)]
    }
}
