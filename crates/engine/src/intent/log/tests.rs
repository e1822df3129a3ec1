//! The log's book and its pieces, without a volume.

use std::convert::Infallible;

use plexum_format::stripe_log::{LogArea, next_log_id};

use super::back::hold_all;
use super::*;
use plexum_block::buf::{BufMut, BufPool};
use plexum_block::device::DeviceInfo;

/// A device that nobody can have: these tests read and write nothing.
#[derive(Clone)]
struct Nothing(Infallible);

impl Device for Nothing {
    fn info(&self) -> DeviceInfo {
        match self.0 {}
    }
    async fn read(&self, _: u64, _: BufMut) -> Result<BufMut, IoError> {
        match self.0 {}
    }
    async fn write(&self, _: u64, _: Buf, _: Fua) -> Result<(), IoError> {
        match self.0 {}
    }
    async fn flush(&self) -> Result<(), IoError> {
        match self.0 {}
    }
}

fn ring(written: u64) -> Ring {
    let area = LogArea {
        ring_sector: 64,
        ring_bytes: 65_536,
    };
    let start = ChainStart {
        position: 0,
        number: 0,
    };
    let mut ring = Ring::new(area, 0, start);
    ring.written = written;
    ring
}

/// A log of members that have written up to these moments; `None` has no ring.
fn log(written: &[Option<u64>]) -> StripeLog<Nothing> {
    let log = StripeLog::new(&[], false);
    log.book.borrow_mut().rings = written.iter().map(|written| written.map(ring)).collect();
    log
}

/// A part of row 3 whose bytes count up.
fn part(range: Range<u64>) -> LogPart {
    let bytes: Vec<u8> = range.clone().map(|at| (at % 251) as u8).collect();
    LogPart {
        row: 3,
        part: range,
        blocks: vec![(2, BufPool::new(0).copy_of(&bytes).freeze())],
    }
}

#[test]
fn a_flush_covers_what_a_member_had_written_when_it_began_and_no_other_member() {
    let log = log(&[Some(3), None, Some(5)]);
    let mut book = log.book.borrow_mut();
    let covers = book.written();
    assert_eq!(covers, [3, 0, 5]);
    book.ring_mut(MemberId(2)).expect("it has one").written = 9; // after the flush began
    book.note_flushed(MemberId(2), &covers);
    let flushed =
        |book: &Book| [0, 2].map(|id| book.ring(MemberId(id)).expect("it has one").flushed);
    assert_eq!(flushed(&book), [0, 5]);
    book.note_flushed(MemberId(2), &[0, 0, 4]); // one that began earlier ends later
    book.note_flushed(MemberId(1), &covers);
    book.note_flushed(MemberId(7), &covers);
    assert_eq!(flushed(&book), [0, 5]);
}

#[test]
fn everything_below_the_oldest_record_under_way_is_in_place() {
    let log = log(&[]);
    let mut book = log.book.borrow_mut();
    book.next_sequence = 9;
    assert_eq!(book.floor(), 9);
    book.outstanding.extend([4, 7]);
    assert_eq!(book.floor(), 4);
}

#[test]
fn doubt_only_grows_until_it_is_flushed_away() {
    let log = log(&[]);
    log.book.borrow_mut().flushed_doubt = u64::MAX;
    log.lower_doubt(4096);
    log.lower_doubt(8192);
    assert_eq!(log.book.borrow().flushed_doubt, 4096);
}

#[test]
fn of_flushes_that_overlap_an_older_one_takes_nothing_back() {
    let log = log(&[]);
    let mut book = log.book.borrow_mut();
    book.lower_doubt(0);
    let doubts = book.doubts;
    book.raise_doubt(doubts, u64::MAX, u64::MAX); // began when the resync had ended
    book.raise_doubt(doubts, 4096, u64::MAX); // began while it was under way
    assert_eq!(book.flushed_doubt, u64::MAX);
}

#[test]
fn a_flush_says_nothing_of_doubt_that_has_grown_since_it_began() {
    let log = log(&[]);
    let mut book = log.book.borrow_mut();
    book.flushed_doubt = u64::MAX;
    let before = book.doubts;
    book.lower_doubt(8192);
    book.raise_doubt(before, u64::MAX, u64::MAX); // made right meanwhile, but not flushed
    assert_eq!(book.flushed_doubt, 8192);
    let after = book.doubts;
    book.raise_doubt(after, u64::MAX, 12_288); // and in doubt again elsewhere
    assert_eq!(book.flushed_doubt, 12_288);
}

#[test]
fn a_submission_fits_half_of_the_smallest_ring_with_its_page() {
    let log = log(&[Some(0), None]);
    assert_eq!(log.submission_bytes_max(), 32_768 - 4096);
    assert_eq!(log.area(MemberId(0)), Some(ring(0).area));
    assert_eq!(log.area(MemberId(1)), None);
    assert!(!log.book.borrow().must_reset);
    log.refuse_to_follow();
    assert!(log.book.borrow().must_reset);
}

#[test]
fn a_part_is_cut_into_pieces_that_hold_the_same_bytes() {
    let whole = part(1024..11_264);
    assert_eq!(split(whole.clone(), 10_240).len(), 1, "it fits");
    let pieces = split(whole.clone(), 4096);
    let ranges: Vec<Range<u64>> = pieces.iter().map(|piece| piece.part.clone()).collect();
    assert_eq!(ranges, [1024..5120, 5120..9216, 9216..11_264]);
    for piece in pieces {
        let same = part(piece.part.clone());
        assert_eq!((piece.row, piece.blocks[0].0), (3, 2));
        assert_eq!(piece.blocks[0].1[..], same.blocks[0].1[..]);
    }
}

#[test]
fn whoever_waits_for_the_log_gets_the_error_that_ends_it() {
    let log = log(&[]);
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            Rc::new(Submission {
                parts: vec![part(0..512)],
                outcome: RefCell::default(),
                waker: RefCell::default(),
            })
        })
        .collect();
    log.queue.borrow_mut().extend(waiting.iter().cloned());
    answer_all(&log, IoError::Failed);
    assert!(log.queue.borrow().is_empty());
    for submission in waiting {
        let outcome = submission.outcome.take().map(|outcome| outcome.err());
        assert_eq!(outcome, Some(Some(IoError::Failed)));
    }
}

#[test]
fn a_read_is_answered_by_the_log_alone_only_when_it_holds_every_byte() {
    let block = |start: u64, length: u64| (start, part(0..length).blocks[0].1.clone());
    let range = 1024..3072;
    for (blocks, is_whole) in [
        (vec![], false),
        (vec![block(1024, 2048)], true),
        (vec![block(0, 4096)], true),
        (vec![block(1024, 1024), block(2048, 1024)], true),
        (vec![block(512, 1024), block(1536, 4096)], true),
        (vec![block(1024, 512), block(2048, 1024)], false),
        (vec![block(1536, 2048)], false),
        (vec![block(1024, 1024)], false),
    ] {
        let starts: Vec<u64> = blocks.iter().map(|(start, _)| *start).collect();
        assert_eq!(hold_all(&range, &blocks), is_whole, "{starts:?}");
    }
}

#[test]
fn a_log_presses_when_more_than_a_quarter_of_a_ring_may_still_be_needed() {
    let log = log(&[Some(0), Some(0)]);
    let take = |bytes: u64| {
        let mut book = log.book.borrow_mut();
        book.ring_mut(MemberId(1))
            .expect("it has one")
            .take(bytes, 1);
    };
    take(16_384);
    assert!(!log.is_pressed());
    take(4096);
    assert!(log.is_pressed());
    assert!(log.calls_for_tail());
    log.is_tail_moving.set(true);
    assert!(!log.calls_for_tail(), "somebody is at it");
}

#[test]
fn the_tail_can_follow_what_is_in_place_and_not_yet_behind_it() {
    let log = log(&[Some(0)]);
    assert!(!log.can_follow());
    log.book.borrow_mut().next_sequence = 3;
    log.book.borrow_mut().outstanding.insert(1);
    assert!(!log.can_follow(), "the oldest record is under way");
    log.book.borrow_mut().outstanding.clear();
    assert!(log.can_follow(), "after a flush");
    let mut book = log.book.borrow_mut();
    book.ring_mut(MemberId(0))
        .expect("it has one")
        .take(4096, 2);
    book.covered = 3;
    drop(book);
    assert!(log.can_follow(), "with a header");
}

#[test]
fn a_new_life_of_the_log_has_a_number_and_a_name_of_its_own_and_empty_rings() {
    let log = log(&[Some(3), None]);
    log.bind(MemberId(1), [7; 16]);
    {
        let mut book = log.book.borrow_mut();
        (book.epoch, book.next_sequence, book.covered) = (4, 9, 8);
        book.is_ready = true;
        book.ring_mut(MemberId(0))
            .expect("it has one")
            .take(4096, 8);
    }
    log.new_life();
    let book = log.book.borrow();
    assert_eq!((book.epoch, book.next_sequence, book.covered), (5, 1, 1));
    assert!(!book.is_ready, "headers of this life are not durable yet");
    assert_eq!(
        book.log_id,
        next_log_id(0, 5, &[7; 16]),
        "named after a superblock"
    );
    let ring = book.ring(MemberId(0)).expect("it has one");
    assert_eq!((ring.written, ring.start_for(0).position), (0, 0));
    assert!(ring.has_room(65_536));
}

#[test]
fn a_superblock_on_its_way_is_named_beside_the_one_that_is_there() {
    let log = log(&[]);
    log.announce_superblock(MemberId(2), [5; 16]);
    log.bind(MemberId(1), [7; 16]);
    log.announce_superblock(MemberId(1), [8; 16]);
    let bindings = log.book.borrow().bindings.clone();
    assert_eq!(
        bindings,
        [([0; 16], [0; 16]), ([7; 16], [8; 16]), ([0; 16], [5; 16])]
    );
    log.bind(MemberId(1), [8; 16]);
    assert_eq!(log.book.borrow().bindings[1], ([8; 16], [0; 16]));
}

#[test]
fn after_a_clean_stop_nothing_went_on_without_the_log() {
    let log: StripeLog<Nothing> = StripeLog::new(&[], true);
    assert!(log.has_unlogged.get());
    log.note_clean();
    assert!(!log.has_unlogged.get());
}
