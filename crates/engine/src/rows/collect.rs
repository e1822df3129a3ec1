//! Rows being collected: partial writes that meet at a row are carried out together, so that parity is read and
//! computed once for all of them, and small sequential writes become full rows.
//!
//! The first write of a row leads: it waits for the row's lock, and every write of that row that comes meanwhile joins
//! it. What is collected is bounded in age by that wait, in bytes by the row (writes that overlap never join), and in
//! number. For writes that are being received it waits a little before (`expect.rs`).
//!
//! Invariants:
//! - a write is answered with the outcome of its own bytes, when they are on the members: nothing is answered early;
//! - each write keeps its own mark in the bitmap and its place among the writes in flight until then (W1);
//! - who joined always gets an outcome, even when the leader is dropped.

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::mutant::Mutant;
use crate::row::Row;
use crate::rows::Rows;
use crate::stage::{Stage, Tag};
use plexum_block::buf::{Buf, BufPool};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::{Few, yield_once};

/// Most writes that are carried out together.
const PIECES_MAX: usize = 128;

/// Rows for which the first write gives the others a turn after writes have met.
const PATIENCE: u8 = 16;

/// Of so many rows one is waited for in any case.
const ASK_EVERY: u8 = 8;

/// A part of a row and its new content.
#[derive(Clone)]
pub(crate) struct Run {
    /// First byte within the row's data.
    pub at_bytes: u64,
    /// The content.
    pub data: Buf,
}

impl Run {
    /// One past the last byte within the row's data.
    pub fn end_bytes(&self) -> u64 {
        self.at_bytes + self.data.len() as u64
    }
}

/// A write among those that were collected.
struct Piece {
    run: Run,
    /// Where its outcome is waited for; `None`: the leader's own.
    place: Option<usize>,
}

/// A row whose leader waits for the lock.
struct Open {
    row: u64,
    leader: u64,
    fua: Fua,
    pieces: Vec<Piece>,
}

/// Where a write that joined waits for its outcome.
#[derive(Default)]
struct Place {
    outcome: Option<Result<(), IoError>>,
    waker: Option<Waker>,
    /// Nobody waits any more.
    is_left: bool,
}

#[derive(Default)]
struct Inner {
    /// In order of arrival; of a row, only the last one is joined.
    open: Vec<Open>,
    next_leader: u64,
    places: Vec<Place>,
    free_places: Vec<usize>,
    /// Lists that were used up, kept for their memory.
    lists: Vec<Vec<Piece>>,
    /// How many rows may still be waited for in vain before it is believed that writes no longer meet.
    patience: u8,
    /// Rows since the last one that was waited for without such a belief.
    unasked: u8,
}

impl Inner {
    fn settle(&mut self, place: usize, outcome: Result<(), IoError>) -> Option<Waker> {
        if self.places[place].is_left {
            self.places[place] = Place::default();
            self.free_places.push(place);
            return None;
        }
        self.places[place].outcome = Some(outcome);
        self.places[place].waker.take()
    }

    fn recycle(&mut self, mut pieces: Vec<Piece>) {
        pieces.clear();
        self.lists.push(pieces);
    }
}

/// All rows of a volume that are being collected.
#[derive(Default)]
pub(crate) struct Collector {
    inner: RefCell<Inner>,
}

enum Part<'a> {
    Leads(Lead<'a>),
    Follows(Follower<'a>),
}

impl Collector {
    /// Joins the write that leads this row, or leads it.
    fn join(&self, row: u64, run: Run, fua: Fua) -> Part<'_> {
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        let last = inner.open.iter_mut().rev().find(|open| open.row == row);
        let fits = |open: &&mut Open| {
            let is_apart = |piece: &Piece| {
                piece.run.end_bytes() <= run.at_bytes || run.end_bytes() <= piece.run.at_bytes
            };
            open.pieces.len() < PIECES_MAX && open.pieces.iter().all(is_apart)
        };
        if let Some(open) = last.filter(fits) {
            let place = inner.free_places.pop().unwrap_or_else(|| {
                inner.places.push(Place::default());
                inner.places.len() - 1
            });
            let place_of = Some(place);
            open.pieces.push(Piece {
                run,
                place: place_of,
            });
            if fua == Fua::Yes {
                open.fua = Fua::Yes;
            }
            return Part::Follows(Follower {
                collector: self,
                place: place_of,
            });
        }
        debug_assert!(!run.data.is_empty(), "empty writes are answered before");
        let leader = inner.next_leader;
        inner.next_leader += 1;
        let mut pieces = inner.lists.pop().unwrap_or_default();
        pieces.push(Piece { run, place: None });
        inner.open.push(Open {
            row,
            leader,
            fua,
            pieces,
        });
        Part::Leads(Lead {
            collector: self,
            leader: Some(leader),
        })
    }

    /// Whether those that come with a write are worth a turn of waiting: when writes have met lately, and now and then
    /// to find out. With members that answer at once, nothing but such a turn lets writes meet.
    fn is_worth_a_turn(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        inner.unasked = (inner.unasked + 1) % ASK_EVERY;
        inner.patience > 0 || inner.unasked == 0
    }

    fn take(&self, leader: u64) -> Batch<'_> {
        let mut inner = self.inner.borrow_mut();
        let place = inner.open.iter().position(|open| open.leader == leader);
        let open = inner
            .open
            .remove(place.expect("a row is open until its leader takes it"));
        inner.patience = match open.pieces.len() {
            1 => inner.patience.saturating_sub(1),
            _ => PATIENCE,
        };
        Batch {
            collector: self,
            pieces: open.pieces,
            fua: open.fua,
            settled: 0,
        }
    }
}

/// The right and the duty to carry out what was collected.
pub(crate) struct Lead<'a> {
    collector: &'a Collector,
    leader: Option<u64>,
}

impl<'a> Lead<'a> {
    /// Whether this byte of the row's data is among what was collected so far.
    pub(crate) fn has(&self, at_bytes: u64) -> bool {
        let inner = self.collector.inner.borrow();
        let mut open = inner.open.iter();
        let own = open.find(|open| Some(open.leader) == self.leader);
        own.is_some_and(|open| is_among(open.pieces.iter().map(|piece| &piece.run), at_bytes))
    }

    /// Ends the collecting: later writes of the row are the next leader's.
    fn close(mut self) -> Batch<'a> {
        let leader = self.leader.take().expect("a row is closed once");
        self.collector.take(leader)
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if let Some(leader) = self.leader.take() {
            drop(self.collector.take(leader));
        }
    }
}

/// Writes that are carried out together. Dropped before all were settled, the others fail.
struct Batch<'a> {
    collector: &'a Collector,
    pieces: Vec<Piece>,
    fua: Fua,
    settled: usize,
}

impl Batch<'_> {
    /// The writes in ascending order, those that touch each other as one: but where they do so at the border of a
    /// strip, to which they are cut anyway, and joining would only copy them. Without `strip_bytes` there too.
    fn runs(&self, pool: &BufPool, strip_bytes: Option<u64>) -> Few<Run> {
        let mut order: Few<usize> = (0..self.pieces.len()).collect();
        order.sort_unstable_by_key(|index| self.pieces[*index].run.at_bytes);
        let mut runs = Few::new();
        let mut rest = &order[..];
        while let [first, ..] = rest {
            let first_byte = self.pieces[*first].run.at_bytes;
            let mut end = first_byte;
            let touches = |index: &&usize| {
                let run = &self.pieces[**index].run;
                let is_cut = |strip: u64| end > first_byte && end.is_multiple_of(strip);
                let is_next = run.at_bytes == end && !strip_bytes.is_some_and(is_cut);
                end = run.end_bytes();
                is_next
            };
            let count = rest.iter().take_while(touches).count();
            assert!(count > 0, "a run begins with a write");
            let (now, later) = rest.split_at(count);
            runs.push(self.joined(now, pool));
            rest = later;
        }
        runs
    }

    /// Neighbours as one run.
    fn joined(&self, neighbours: &[usize], pool: &BufPool) -> Run {
        let first = &self.pieces[neighbours[0]].run;
        if neighbours.len() == 1 {
            return first.clone();
        }
        let of = |index: &usize| &self.pieces[*index].run.data;
        let mut data = pool.take(neighbours.iter().map(|index| of(index).len()).sum());
        let mut rest = &mut data[..];
        for index in neighbours {
            let (head, tail) = rest.split_at_mut(of(index).len());
            head.copy_from_slice(of(index));
            rest = tail;
        }
        Run {
            at_bytes: first.at_bytes,
            data: data.freeze(),
        }
    }

    /// Gives the next write its outcome; the leader's own is returned.
    fn settle(&mut self, outcome: Result<(), IoError>) -> Option<Result<(), IoError>> {
        assert!(
            self.settled < self.pieces.len(),
            "each write is settled once"
        );
        let place = self.pieces[self.settled].place;
        self.settled += 1;
        let Some(place) = place else {
            return Some(outcome);
        };
        let waker = self.collector.inner.borrow_mut().settle(place, outcome);
        if let Some(waker) = waker {
            waker.wake();
        }
        None
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        while self.settled < self.pieces.len() {
            self.settle(Err(IoError::Failed));
        }
        let pieces = mem::take(&mut self.pieces);
        self.collector.inner.borrow_mut().recycle(pieces);
    }
}

/// A write that joined: ends with its outcome.
struct Follower<'a> {
    collector: &'a Collector,
    place: Option<usize>,
}

impl Future for Follower<'_> {
    type Output = Result<(), IoError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut inner = self.collector.inner.borrow_mut();
        let number = self.place.expect("polled until it was ready, once");
        let place = &mut inner.places[number];
        let Some(outcome) = place.outcome.take() else {
            place.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        *place = Place::default();
        inner.free_places.push(number);
        drop(inner);
        self.place = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        let Some(number) = self.place else { return };
        let mut inner = self.collector.inner.borrow_mut();
        let place = &mut inner.places[number];
        if place.outcome.is_some() {
            *place = Place::default();
            inner.free_places.push(number);
        } else {
            place.is_left = true;
            place.waker = None;
        }
    }
}

/// Whether one of `runs` has this byte of the row's data: as a write joins with all of its part of a row, its first
/// byte stands for it.
fn is_among<'a>(mut runs: impl Iterator<Item = &'a Run>, at_bytes: u64) -> bool {
    runs.any(|run| (run.at_bytes..run.end_bytes()).contains(&at_bytes))
}

impl<D: Device, C: Clock> Rows<D, C> {
    /// Writes `data` at `at_bytes` of the row's data (0 to data strips x strip size), together with what meets it
    /// there.
    pub(crate) async fn write_row(
        &self,
        row_number: u64,
        at_bytes: u64,
        data: Buf,
        fua: Fua,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        tag.enter(Stage::Lock);
        let row = self.base.row(row_number);
        let is_whole = data.len() as u64 == self.base.geometry().row_data_bytes();
        let run = Run { at_bytes, data };
        if is_whole || self.base.has(Mutant::NoRowLock) {
            let _lock = match self.base.has(Mutant::NoRowLock) {
                true => None,
                false => Some(self.base.locks().row(row_number).await),
            };
            return self.write_runs(&row, &[run], fua, tag).await;
        }
        let part = self.collector.join(row_number, run, fua);
        self.expected.look_again();
        match part {
            Part::Follows(outcome) => outcome.await,
            Part::Leads(lead) => {
                if self.collector.is_worth_a_turn() {
                    yield_once().await; // those that came with it join it
                }
                self.wait_for_expected(row_number, &lead).await;
                let _lock = self.base.locks().row(row_number).await;
                self.write_collected(&row, lead.close(), tag).await
            }
        }
    }

    /// Carries out what was collected; returns the outcome of the leader's own write. The row's lock is held.
    async fn write_collected(
        &self,
        row: &Row,
        mut batch: Batch<'_>,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        let fua = batch.fua;
        // With a partial parity log runs are written one after the other: as few as can be.
        let strip_bytes = (!self.intent.has_ppl()).then_some(row.strip_bytes);
        let runs = batch.runs(self.base.pool(), strip_bytes);
        let together = self.write_runs(row, &runs, fua, tag).await;
        let mut own = together;
        let goes_alone = together.is_err() && batch.pieces.len() > 1 && !self.array.is_frozen();
        for index in 0..batch.pieces.len() {
            let mut outcome = together;
            if goes_alone {
                // Only what cannot be written is refused, not what met it by chance.
                let run = batch.pieces[index].run.clone();
                outcome = self.write_runs(row, &[run], fua, tag).await;
            }
            if let Some(outcome) = batch.settle(outcome) {
                own = outcome;
            }
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_block::wait::poll_once;
    use std::pin::pin;

    fn run(pool: &BufPool, at_bytes: u64, bytes: &[u8]) -> Run {
        let data = pool.copy_of(bytes).freeze();
        Run { at_bytes, data }
    }

    fn lead<'a>(part: Part<'a>) -> Lead<'a> {
        match part {
            Part::Leads(lead) => lead,
            Part::Follows(_) => panic!("it joined"),
        }
    }

    fn follower<'a>(part: Part<'a>) -> Follower<'a> {
        match part {
            Part::Follows(follower) => follower,
            Part::Leads(_) => panic!("it leads"),
        }
    }

    #[test]
    fn writes_that_touch_become_one_run_and_others_stay_apart() {
        let (pool, collector) = (BufPool::new(1 << 20), Collector::default());
        let first = lead(collector.join(7, run(&pool, 4, b"efgh"), Fua::No));
        let joined = [
            run(&pool, 0, b"abcd"),
            run(&pool, 20, b"xy"),
            run(&pool, 8, b"ij"),
        ];
        let followers = joined.map(|run| follower(collector.join(7, run, Fua::No)));
        let batch = first.close();
        let places = |strip_bytes| {
            let runs = batch.runs(&pool, strip_bytes);
            let place = |run: &Run| (run.at_bytes, run.end_bytes());
            runs.iter().map(place).collect::<Vec<_>>()
        };
        assert_eq!(places(Some(8)), [(0, 8), (8, 10), (20, 22)]);
        assert_eq!(places(Some(4)), [(0, 4), (4, 8), (8, 10), (20, 22)]);
        assert_eq!(places(Some(64)), [(0, 10), (20, 22)]);
        let runs = batch.runs(&pool, None);
        assert_eq!(runs.len(), 2);
        assert_eq!(
            (runs[0].at_bytes, &runs[0].data[..]),
            (0, &b"abcdefghij"[..])
        );
        assert_eq!((runs[1].at_bytes, &runs[1].data[..]), (20, &b"xy"[..]));
        drop((batch, followers));
    }

    #[test]
    fn a_write_that_overlaps_one_of_the_collected_leads_the_next_batch() {
        let (pool, collector) = (BufPool::new(1 << 20), Collector::default());
        let first = lead(collector.join(7, run(&pool, 0, b"abcd"), Fua::No));
        let second = lead(collector.join(7, run(&pool, 3, b"new"), Fua::No));
        let third = follower(collector.join(7, run(&pool, 0, b"abc"), Fua::Yes));
        assert_eq!(
            first.close().pieces.len(),
            1,
            "later ones join the later batch"
        );
        let batch = second.close();
        assert_eq!(batch.pieces.len(), 2);
        assert_eq!(
            batch.fua,
            Fua::Yes,
            "one that must be durable makes all durable"
        );
        drop((batch, third));
    }

    #[test]
    fn other_rows_and_rows_that_are_closed_are_not_joined() {
        let (pool, collector) = (BufPool::new(1 << 20), Collector::default());
        let first = lead(collector.join(7, run(&pool, 0, b"abcd"), Fua::No));
        let other = lead(collector.join(8, run(&pool, 4, b"abcd"), Fua::No));
        let batch = first.close();
        let next = lead(collector.join(7, run(&pool, 8, b"abcd"), Fua::No));
        drop((batch, other, next));
    }

    #[test]
    fn a_turn_is_given_while_writes_meet_and_a_few_rows_longer() {
        let (pool, collector) = (BufPool::new(1 << 20), Collector::default());
        let alone = || {
            let only = lead(collector.join(7, run(&pool, 0, b"ab"), Fua::No));
            drop(only.close());
            collector.is_worth_a_turn()
        };
        assert_eq!((0..80).filter(|_| alone()).count(), 10, "now and then");
        let first = lead(collector.join(7, run(&pool, 0, b"ab"), Fua::No));
        let joined = follower(collector.join(7, run(&pool, 2, b"cd"), Fua::No));
        drop((first.close(), joined));
        let turns = (0..PATIENCE).filter(|_| {
            let is_worth_it = collector.is_worth_a_turn();
            alone();
            is_worth_it
        });
        assert_eq!(turns.count(), usize::from(PATIENCE));
        assert_eq!((0..80).filter(|_| alone()).count(), 10, "now and then");
    }

    #[test]
    fn everybody_gets_the_outcome_of_his_own_write_and_places_are_used_again() {
        let (pool, collector) = (BufPool::new(1 << 20), Collector::default());
        for _ in 0..3 {
            let first = lead(collector.join(7, run(&pool, 0, b"ab"), Fua::No));
            let mut good = pin!(follower(collector.join(7, run(&pool, 2, b"cd"), Fua::No)));
            let mut bad = pin!(follower(collector.join(7, run(&pool, 4, b"ef"), Fua::No)));
            assert!(poll_once(good.as_mut()).is_pending());
            let mut batch = first.close();
            assert!(poll_once(bad.as_mut()).is_pending());
            assert_eq!(batch.settle(Ok(())), Some(Ok(())), "the leader's own");
            assert_eq!(batch.settle(Ok(())), None);
            assert_eq!(batch.settle(Err(IoError::Medium)), None);
            assert_eq!(poll_once(good.as_mut()), Poll::Ready(Ok(())));
            assert_eq!(poll_once(bad.as_mut()), Poll::Ready(Err(IoError::Medium)));
        }
        assert_eq!(collector.inner.borrow().places.len(), 2);
        assert_eq!(collector.inner.borrow().lists.len(), 1);
    }

    #[test]
    fn whoever_joined_fails_when_the_leader_is_dropped() {
        let (pool, collector) = (BufPool::new(1 << 20), Collector::default());
        for is_closed in [false, true] {
            let first = lead(collector.join(7, run(&pool, 0, b"ab"), Fua::No));
            let mut waits = pin!(follower(collector.join(7, run(&pool, 2, b"cd"), Fua::No)));
            assert!(poll_once(waits.as_mut()).is_pending());
            match is_closed {
                true => drop(first.close()),
                false => drop(first),
            }
            assert_eq!(poll_once(waits.as_mut()), Poll::Ready(Err(IoError::Failed)));
            assert!(collector.inner.borrow().open.is_empty());
        }
    }

    #[test]
    fn one_that_no_longer_waits_leaves_no_place_behind() {
        let (pool, collector) = (BufPool::new(1 << 20), Collector::default());
        let first = lead(collector.join(7, run(&pool, 0, b"ab"), Fua::No));
        drop(follower(collector.join(7, run(&pool, 2, b"cd"), Fua::No)));
        drop(first.close());
        let inner = collector.inner.borrow();
        assert_eq!(inner.free_places.len(), inner.places.len());
    }
}
