//! What was read ahead of the streams: kept until they ask for it, or until somebody writes there.
//!
//! Invariants:
//! - what is kept is what the copies hold: a write takes away all that it meets when it begins and again before it is
//!   answered, also what is still being read then;
//! - bounded: `STRETCHES_MAX` stretches, `bytes_max` bytes with those that are being read;
//! - a stretch that is being read goes away with its reader; whoever waits for it reads himself then.
//!
//! Source of the method: lab.md section 10, rule 7.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use plexum_block::buf::Buf;
use plexum_block::wait::Signal;

/// Most stretches: one for each stream, and more streams than this are as good as none.
const STRETCHES_MAX: usize = 32;

/// A stretch of the volume that was read ahead.
struct Stretch {
    number: u64,
    range: Range<u64>,
    /// `None` while it is being read.
    data: Option<Buf>,
}

impl Stretch {
    fn holds(&self, range: &Range<u64>) -> bool {
        self.range.start <= range.start && range.end <= self.range.end
    }
}

/// What was read ahead in one volume. Ranges are volume bytes.
pub(crate) struct ReadAhead {
    /// Most bytes of all stretches together.
    bytes_max: u64,
    was_full: Cell<bool>,
    /// The oldest first.
    stretches: RefCell<Vec<Stretch>>,
    next_number: Cell<u64>,
    changed: Signal,
}

/// What is known of a range.
pub(crate) enum Kept {
    /// Its content.
    Data(Buf),
    /// The stretch of this number, which holds it, is being read.
    UnderWay(u64),
    /// It has to be read.
    Nothing,
}

/// A stretch that is being read.
pub(crate) struct Begun<'a> {
    ahead: &'a ReadAhead,
    number: u64,
}

impl ReadAhead {
    /// Nothing is kept, and never more than so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            was_full: Cell::default(),
            stretches: RefCell::default(),
            next_number: Cell::default(),
            changed: Signal::default(),
        }
    }

    /// Whether there was no room for something.
    pub(crate) fn was_full(&self) -> bool {
        self.was_full.get()
    }

    /// What is kept of `range`. The end of a stretch takes it away: streams go forward.
    pub(crate) fn look(&self, range: &Range<u64>) -> Kept {
        let mut stretches = self.stretches.borrow_mut();
        let Some(index) = stretches.iter().position(|stretch| stretch.holds(range)) else {
            return Kept::Nothing;
        };
        let stretch = &stretches[index];
        let Some(data) = &stretch.data else {
            return Kept::UnderWay(stretch.number);
        };
        let place = |at: u64| usize::try_from(at - stretch.range.start).expect("a stretch");
        let found = data.slice(place(range.start)..place(range.end));
        if range.end == stretch.range.end {
            stretches.remove(index);
        }
        Kept::Data(found)
    }

    /// Waits until a stretch is read, or taken away.
    pub(crate) async fn ended(&self, number: u64) {
        let is_under_way = || {
            let stretches = self.stretches.borrow();
            let found = stretches.iter().find(|stretch| stretch.number == number);
            found.is_some_and(|stretch| stretch.data.is_none())
        };
        self.changed.until(|| !is_under_way()).await;
    }

    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.stretches.borrow().is_empty()
    }

    /// Somebody begins to read `range` ahead; `None` when there is no room for it, or somebody has it already.
    pub(crate) fn begin(&self, range: Range<u64>) -> Option<Begun<'_>> {
        let mut stretches = self.stretches.borrow_mut();
        let meets =
            |stretch: &Stretch| stretch.range.start < range.end && range.start < stretch.range.end;
        if stretches.iter().any(meets) {
            return None;
        }
        let length = |range: &Range<u64>| range.end - range.start;
        let under_way = stretches.iter().filter(|stretch| stretch.data.is_none());
        let reading: u64 = under_way.map(|stretch| length(&stretch.range)).sum();
        if reading + length(&range) > self.bytes_max {
            self.was_full.set(true);
            return None;
        }
        let mut bytes: u64 = stretches.iter().map(|stretch| length(&stretch.range)).sum();
        while stretches.len() == STRETCHES_MAX || bytes + length(&range) > self.bytes_max {
            self.was_full.set(true);
            let oldest = stretches
                .iter()
                .position(|stretch| stretch.data.is_some())?;
            bytes -= length(&stretches.remove(oldest).range);
        }
        assert!(
            stretches.len() < STRETCHES_MAX,
            "there is room for one more"
        );
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        stretches.push(Stretch {
            number,
            range,
            data: None,
        });
        Some(Begun {
            ahead: self,
            number,
        })
    }

    /// Takes away all that `range` meets.
    fn forget(&self, range: &Range<u64>) {
        if self.is_empty() {
            return;
        }
        let is_apart = |stretch: &Stretch| {
            stretch.range.end <= range.start || range.end <= stretch.range.start
        };
        self.stretches.borrow_mut().retain(is_apart);
        self.changed.notify();
    }

    /// Takes everything away.
    pub(crate) fn clear(&self) {
        self.forget(&(0..u64::MAX));
    }
}

/// Forgets a range when it is made and when it is dropped.
pub(crate) struct Unread<'a> {
    ahead: &'a ReadAhead,
    range: Range<u64>,
}

impl<'a> Unread<'a> {
    /// Somebody is about to write `range`.
    pub(crate) fn new(ahead: &'a ReadAhead, range: Range<u64>) -> Self {
        ahead.forget(&range);
        Self { ahead, range }
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        self.ahead.forget(&self.range);
    }
}

impl Begun<'_> {
    /// The stretch was read. Kept unless somebody wrote there meanwhile.
    pub(crate) fn end(self, data: Buf) {
        let mut stretches = self.ahead.stretches.borrow_mut();
        if let Some(stretch) = stretches
            .iter_mut()
            .find(|stretch| stretch.number == self.number)
        {
            stretch.data = Some(data);
        }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let is_kept = |stretch: &Stretch| stretch.number != self.number || stretch.data.is_some();
        self.ahead.stretches.borrow_mut().retain(is_kept);
        self.ahead.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use plexum_block::buf::BufPool;

    fn data(length: usize, byte: u8) -> Buf {
        BufPool::new(0).copy_of(&vec![byte; length]).freeze()
    }

    fn found(ahead: &ReadAhead, range: Range<u64>) -> Option<usize> {
        match ahead.look(&range) {
            Kept::Data(found) => Some(found.len()),
            Kept::UnderWay(_) => panic!("{range:?} is being read"),
            Kept::Nothing => None,
        }
    }

    fn under_way(ahead: &ReadAhead, range: Range<u64>) -> u64 {
        match ahead.look(&range) {
            Kept::UnderWay(number) => number,
            _ => panic!("{range:?} is not being read"),
        }
    }

    const BYTES_MAX: u64 = 32 << 20;

    #[test]
    fn what_was_read_ahead_is_given_in_steps_and_goes_with_the_last() {
        let ahead = ReadAhead::new(BYTES_MAX);
        ahead.begin(4096..12_288).unwrap().end(data(8192, 1));
        assert_eq!(found(&ahead, 0..4096), None);
        assert_eq!(found(&ahead, 4096..8192), Some(4096));
        assert_eq!(
            found(&ahead, 8192..16_384),
            None,
            "half of it is not enough"
        );
        assert_eq!(found(&ahead, 8192..12_288), Some(4096));
        assert!(ahead.is_empty());
    }

    #[test]
    fn a_write_takes_away_what_it_meets_also_while_that_is_read() {
        let ahead = ReadAhead::new(BYTES_MAX);
        ahead.begin(0..4096).unwrap().end(data(4096, 1));
        let reading = ahead.begin(8192..16_384).unwrap();
        ahead.forget(&(4096..8192));
        assert_eq!(found(&ahead, 0..512), Some(512));
        ahead.forget(&(12_288..12_800));
        reading.end(data(8192, 2));
        assert_eq!(
            found(&ahead, 8192..8704),
            None,
            "its first half is good, but who knows"
        );
        ahead.forget(&(511..512));
        assert_eq!(found(&ahead, 0..512), None);
    }

    #[test]
    fn who_waits_for_a_stretch_goes_on_when_it_is_read_or_taken_away() {
        let ahead = ReadAhead::new(BYTES_MAX);
        let mut context = Context::from_waker(Waker::noop());
        let reading = ahead.begin(0..4096).unwrap();
        {
            let mut waiter = pin!(ahead.ended(under_way(&ahead, 0..512)));
            assert!(waiter.as_mut().poll(&mut context).is_pending());
            drop(reading); // its reader was lost
            assert_eq!(waiter.as_mut().poll(&mut context), Poll::Ready(()));
            assert_eq!(found(&ahead, 0..512), None);
        }
        let reading = ahead.begin(0..4096).unwrap();
        {
            let mut waiter = pin!(ahead.ended(under_way(&ahead, 0..512)));
            ahead.forget(&(0..1));
            assert_eq!(waiter.as_mut().poll(&mut context), Poll::Ready(()));
            reading.end(data(4096, 7));
            assert_eq!(found(&ahead, 0..512), None, "it was written over");
        }
        let reading = ahead.begin(0..4096).unwrap();
        let mut waiter = pin!(ahead.ended(under_way(&ahead, 0..512)));
        assert!(waiter.as_mut().poll(&mut context).is_pending());
        reading.end(data(4096, 7));
        assert_eq!(waiter.as_mut().poll(&mut context), Poll::Ready(()));
        assert_eq!(found(&ahead, 0..512), Some(512));
    }

    #[test]
    fn the_oldest_stretches_make_room_and_those_being_read_do_not() {
        let ahead = ReadAhead::new(BYTES_MAX);
        let piece = BYTES_MAX / 4;
        let reading = ahead.begin(0..piece).unwrap();
        for number in 1..=4 {
            let start = number * piece;
            ahead.begin(start..start + piece).unwrap().end(data(512, 1));
        }
        assert_eq!(found(&ahead, piece..piece + 512), None, "the oldest");
        assert!(found(&ahead, 2 * piece..2 * piece + 512).is_some());
        assert!(
            ahead.begin(9 * piece..14 * piece).is_none(),
            "too much at all"
        );
        drop(reading);
        assert!(
            ahead.begin(3 * piece..3 * piece + 1).is_none(),
            "it is there"
        );
        assert!(ahead.begin(0..STRETCHES_MAX as u64).is_some());
    }
}
