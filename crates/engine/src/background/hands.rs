//! Other threads that do the plain part of a job's step: they read members in memory, compare what has to agree and compute what
//! is lost, while this thread does the next step itself.
//!
//! A scrub or a rebuild of members in memory is copying and arithmetic and nothing else, so one core bounds it. What a hand does
//! is what the step would do in the ordinary case; whatever is not ordinary (an error, a difference, content that is elsewhere) it
//! gives back, and the step does all of it by itself.
//!
//! Invariants:
//! - a hand only reads: what it has made is written by the volume's own thread, so nothing of it can come late (W9);
//! - the step holds its lock until the hand has answered: what the hand reads does not change meanwhile;
//! - a hand's open file counts as an I/O under way on its member (`Device::busy`) until the hand has let go of it (W9).

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plexum_exec::mailbox::reply;
use plexum_parity::Block;

use crate::buf::{BufMut, BufPool};
use crate::clock::Clock;
use crate::device::{Device, IoError, Reader};
use crate::drive::{Drive, ReadElsewhere};
use crate::stripe::{PerBlock, Row};
use crate::volume::Volume;

/// Steps that may be at each hand: while it does one, the next one waits for it.
const STEPS_EACH: usize = 2;

/// Something to do on another thread.
pub type Work = Box<dyn FnOnce() + Send>;

/// Threads beside the volume's own. Whoever drops work instead of doing it is understood: the step does it by itself.
pub trait Hands {
    /// How many there are.
    fn count(&self) -> usize;

    /// Has `work` done by the next one that is free. Called by the volume's thread; returns at once.
    fn give(&self, work: Work);
}

/// The hands of one volume, and what is at them.
#[derive(Default)]
pub(crate) struct Helpers {
    hands: Option<Rc<dyn Hands>>,
    steps: Arc<AtomicUsize>,
}

/// A step that is at a hand; given back when it is done, or dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Helpers {
    /// Steps that may be at hands at once.
    pub(crate) fn steps_max(&self) -> usize {
        let count = self.hands.as_ref().map_or(0, |hands| hands.count());
        count * STEPS_EACH
    }

    /// Whether a hand is free now. Only this thread takes places: one that is free stays free.
    fn is_free(&self) -> bool {
        self.steps.load(Ordering::Relaxed) < self.steps_max()
    }

    /// A place at a hand, if one is free now.
    fn place(&self) -> Option<(Rc<dyn Hands>, Place)> {
        let hands = self.hands.clone().filter(|_| self.is_free())?;
        self.steps.fetch_add(1, Ordering::Relaxed);
        Some((hands, Place(Arc::clone(&self.steps))))
    }
}

/// Members' ranges that a hand is to read: who and from which byte of the data area.
pub(super) type Sources<D> = PerBlock<(Rc<Drive<D>>, u64)>;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Gives the volume other threads that help with scrub and rebuild of members in memory.
    pub fn set_hands(&self, hands: Rc<dyn Hands>) {
        self.division.helpers.borrow_mut().hands = Some(hands);
    }

    /// Whether `by_hand` could be asked now: otherwise nothing need be made ready for it.
    pub(super) fn has_free_hand(&self) -> bool {
        self.division.helpers.borrow().is_free()
    }

    /// Has `length_bytes` of each source read on a hand, and `make` what it makes of them there. `None`: no hand is free, or it
    /// was not as simple as that; then nothing has happened. The caller holds the lock of what is read until it has done with what
    /// was made of it.
    pub(super) async fn by_hand<T: Send + 'static>(
        &self,
        sources: &Sources<D>,
        length_bytes: usize,
        make: impl FnOnce(&BufPool, PerBlock<BufMut>) -> T + Send + 'static,
    ) -> Option<T> {
        let (hands, place) = self.division.helpers.borrow().place()?;
        let started = self.clock.now();
        let mut readers: PerBlock<(Arc<dyn Reader>, u64)> = PerBlock::new();
        let mut counted: PerBlock<ReadElsewhere<'_, C>> = PerBlock::new();
        for (drive, at_bytes) in sources {
            readers.push(drive.reader(*at_bytes, length_bytes)?);
        }
        for (drive, at_bytes) in sources {
            counted.push(drive.begin_elsewhere(&self.clock, started, *at_bytes, length_bytes));
        }
        let (answer, answered) = reply();
        let pool = self.pool.clone();
        hands.give(Box::new(move || {
            let read = read_all(&readers, &pool, length_bytes);
            drop(readers); // before the answer: the files are not busy any more
            let made = read.ok().map(|read| make(&pool, read));
            drop(place);
            answer.send(made);
        }));
        let made = answered.await.ok()??;
        let ended = self.clock.now();
        counted.into_iter().for_each(|read| read.note(ended));
        Some(made)
    }

    /// The plain content of blocks of a row, where each is on its member and nowhere else.
    pub(super) fn row_sources(
        &self,
        row: &Row,
        blocks: &[Block],
        part: &Range<u64>,
    ) -> Option<Sources<D>> {
        let set = self.members();
        let member = row.member_range(part);
        let source = |block: &Block| {
            let slot = row.slot(*block);
            let drive = self.readable_drive(&set, slot, &member, &member)?;
            let is_plain = self.logged_blocks(slot, &member).is_empty();
            is_plain.then(|| (Rc::clone(drive), member.start))
        };
        blocks.iter().map(source).collect()
    }
}

fn read_all(
    readers: &[(Arc<dyn Reader>, u64)],
    pool: &BufPool,
    length_bytes: usize,
) -> Result<PerBlock<BufMut>, IoError> {
    let read = |(reader, at_bytes): &(Arc<dyn Reader>, u64)| {
        let mut buf = pool.take(length_bytes);
        reader.read(*at_bytes, &mut buf)?;
        Ok(buf)
    };
    readers.iter().map(read).collect()
}
