//! What is durable in the log and not yet in place: blocks by slot and member range (L5). Pure.
//!
//! Invariants:
//! - pieces of a slot never overlap: newer ones cut older ones;
//! - a piece is given up only when it, or something newer, is in place; small ones that are in place are kept for a
//!   while, as the old content that the next small write to their row needs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use plexum_block::buf::Buf;

/// One block, or what newer ones have left of it.
#[derive(Clone)]
struct Piece {
    data: Buf,
    /// Counts the blocks that came in.
    age: u64,
    is_in_place: bool,
}

/// Longest block that is kept: what is written in long blocks needs little old content.
const KEPT_BLOCK_BYTES_MAX: usize = 16 << 10;

/// Rows with records that are not in place.
#[derive(Clone, Default)]
pub(super) struct Pending {
    /// Records, as ranges of their numbers.
    pub sequences: Vec<Range<u64>>,
    /// Member ranges that count as being written.
    pub ranges: Vec<Range<u64>>,
}

/// Blocks to be put in place, and what they were taken from.
pub(super) struct Taken {
    pub pending: Pending,
    /// Slot, first member byte, content.
    pub blocks: Vec<(usize, u64, Buf)>,
    /// Of the youngest block among them.
    age: u64,
}

/// All that the log holds and the rows do not, and some of what they have had from it.
#[derive(Default)]
pub(super) struct Overlay {
    pieces: BTreeMap<(usize, u64), Piece>,
    rows: BTreeMap<u64, Pending>,
    age: u64,
    /// Of pieces that are not in place.
    bytes: u64,
    /// Pieces that are in place, oldest first: age, slot, first byte.
    kept: BTreeSet<(u64, usize, u64)>,
    kept_bytes: u64,
}

impl Overlay {
    /// Whether every record is in place.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of all blocks that are not in place.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Rows with something to put in place, ascending.
    pub fn rows(&self) -> Vec<u64> {
        self.rows.keys().copied().collect()
    }

    /// Notes records of a row; the blocks follow by `put`.
    pub fn note(&mut self, row: u64, sequences: Range<u64>, range: Range<u64>) {
        let pending = self.rows.entry(row).or_default();
        pending.sequences.push(sequences);
        pending.ranges.push(range);
    }

    /// A block that begins at `start` of its member.
    pub fn put(&mut self, slot: usize, start: u64, data: Buf) {
        let end = start + data.len() as u64;
        self.cut(slot, start..end);
        self.age += 1;
        self.bytes += data.len() as u64;
        let age = self.age;
        let piece = Piece {
            data,
            age,
            is_in_place: false,
        };
        self.pieces.insert((slot, start), piece);
    }

    fn cut(&mut self, slot: usize, range: Range<u64>) {
        for (start, data) in self.covering(slot, &range) {
            if self.drop_kept(slot, start) {
                continue;
            }
            let piece = self.pieces.remove(&(slot, start)).expect("it was found");
            let end = start + data.len() as u64;
            self.bytes -= data.len() as u64;
            let place = |at: u64| usize::try_from(at - start).expect("inside the block");
            let mut keep = |part: Range<u64>| {
                if part.start < part.end {
                    let data = piece.data.slice(place(part.start)..place(part.end));
                    self.bytes += data.len() as u64;
                    let piece = Piece {
                        data,
                        ..piece.clone()
                    };
                    self.pieces.insert((slot, part.start), piece);
                }
            };
            keep(start..range.start.min(end));
            keep(range.end.max(start)..end);
        }
    }

    /// Blocks of a slot that meet a member range, ascending: first byte and content, not cut.
    pub fn covering(&self, slot: usize, range: &Range<u64>) -> Vec<(u64, Buf)> {
        let all = self.meeting(slot, range);
        all.map(|(start, piece)| (start, piece.data.clone()))
            .collect()
    }

    fn meeting(&self, slot: usize, range: &Range<u64>) -> impl Iterator<Item = (u64, &Piece)> {
        let start = range.start;
        let before = self
            .pieces
            .range((slot, 0)..(slot, range.start))
            .next_back();
        let inside = self.pieces.range((slot, range.start)..(slot, range.end));
        let meets =
            move |(key, piece): &(&(usize, u64), &Piece)| key.1 + piece.data.len() as u64 > start;
        let all = before.into_iter().filter(meets).chain(inside);
        all.map(|(key, piece)| (key.1, piece))
    }

    /// Takes what is pending of a row; the blocks stay until `forget`.
    pub fn take(&mut self, row: u64, slots: usize, range: &Range<u64>) -> Option<Taken> {
        let pending = self.rows.remove(&row)?;
        let mut blocks = Vec::new();
        for slot in 0..slots {
            let pieces = self.meeting(slot, range);
            let new = pieces.filter(|(_, piece)| !piece.is_in_place);
            blocks.extend(new.map(|(start, piece)| (slot, start, piece.data.clone())));
        }
        let age = self.age;
        Some(Taken {
            pending,
            blocks,
            age,
        })
    }

    /// They could not be put in place.
    pub fn put_back(&mut self, row: u64, taken: Taken) {
        let pending = self.rows.entry(row).or_default();
        pending.sequences.extend(taken.pending.sequences);
        pending.ranges.extend(taken.pending.ranges);
    }

    /// They are in place: what came in since stays to be put there, small ones are kept, of all of them at most
    /// `kept_bytes_max`. Says whether one had to go for that.
    pub fn forget(&mut self, taken: &Taken, kept_bytes_max: u64) -> bool {
        for (slot, start, data) in &taken.blocks {
            let range = *start..*start + data.len() as u64;
            for (start, data) in self.covering(*slot, &range) {
                let key = (*slot, start);
                let piece = self.pieces.get_mut(&key).expect("it was found");
                if piece.is_in_place || piece.age > taken.age {
                    continue;
                }
                self.bytes -= data.len() as u64;
                if data.len() > KEPT_BLOCK_BYTES_MAX {
                    self.pieces.remove(&key);
                    continue;
                }
                piece.is_in_place = true;
                self.kept.insert((piece.age, *slot, start));
                self.kept_bytes += data.len() as u64;
            }
        }
        let is_too_much = self.kept_bytes > kept_bytes_max;
        while self.kept_bytes > kept_bytes_max {
            let (_, slot, start) = *self.kept.first().expect("bytes are of pieces");
            self.drop_kept(slot, start);
        }
        is_too_much
    }

    /// Gives up a piece that is in place; `false`: it is not.
    fn drop_kept(&mut self, slot: usize, start: u64) -> bool {
        let piece = self.pieces.get(&(slot, start));
        let Some(piece) = piece.filter(|piece| piece.is_in_place) else {
            return false;
        };
        self.kept_bytes -= piece.data.len() as u64;
        self.kept.remove(&(piece.age, slot, start));
        self.pieces.remove(&(slot, start));
        true
    }

    /// Somebody else is about to write this range of the members: what is kept of it counts no more.
    pub fn drop_kept_of(&mut self, slots: usize, range: &Range<u64>) {
        for slot in 0..slots {
            for (start, _) in self.covering(slot, range) {
                self.drop_kept(slot, start);
            }
        }
    }

    /// Nothing that is kept counts any more.
    pub fn drop_all_kept(&mut self) {
        for (_, slot, start) in std::mem::take(&mut self.kept) {
            self.pieces.remove(&(slot, start));
        }
        self.kept_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_block::buf::BufPool;

    const SIZE: usize = 24;
    const KEPT_BYTES_MAX: u64 = 1 << 20;

    fn buf(byte: u8, length: usize) -> Buf {
        BufPool::new(0).copy_of(&vec![byte; length]).freeze()
    }

    fn content(overlay: &Overlay) -> Vec<u8> {
        let mut found = vec![0; SIZE];
        for (start, data) in overlay.covering(0, &(0..SIZE as u64)) {
            let start = usize::try_from(start).unwrap();
            assert!(
                found[start..start + data.len()]
                    .iter()
                    .all(|byte| *byte == 0)
            );
            found[start..start + data.len()].copy_from_slice(&data);
        }
        found
    }

    /// Every pair and triple of blocks over a small member reads as if written one over the other.
    #[test]
    fn newer_blocks_lie_over_older_ones() {
        let ranges: Vec<Range<usize>> = (0..6)
            .flat_map(|start| (start + 1..=6).map(move |end| start * 4..end * 4))
            .collect();
        for one in &ranges {
            for two in &ranges {
                for three in &ranges {
                    let (mut overlay, mut plain) = (Overlay::default(), vec![0; SIZE]);
                    for (byte, range) in [(1, one), (2, two), (3, three)] {
                        overlay.put(0, range.start as u64, buf(byte, range.len()));
                        plain[range.clone()].fill(byte);
                    }
                    assert_eq!(content(&overlay), plain);
                    let held = plain.iter().filter(|byte| **byte > 0).count();
                    assert_eq!(overlay.bytes(), held as u64);
                }
            }
        }
    }

    #[test]
    fn what_comes_in_while_a_row_is_put_in_place_stays() {
        let mut overlay = Overlay::default();
        overlay.note(0, 1..2, 0..8);
        overlay.put(0, 0, buf(1, 8));
        let taken = overlay.take(0, 1, &(0..SIZE as u64)).unwrap();
        assert!(
            overlay.is_empty() && content(&overlay)[0] == 1,
            "it is still read"
        );
        overlay.note(0, 2..3, 4..12);
        overlay.put(0, 4, buf(2, 8));
        overlay.forget(&taken, KEPT_BYTES_MAX);
        let old_and_new = [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2];
        assert_eq!(
            content(&overlay)[..12],
            old_and_new,
            "what is in place is kept"
        );
        assert_eq!((overlay.rows(), overlay.bytes()), (vec![0], 8));
        let again = overlay.take(0, 1, &(0..SIZE as u64)).unwrap();
        let starts: Vec<u64> = again.blocks.iter().map(|(_, start, _)| *start).collect();
        assert_eq!(starts, [4], "what is in place is not written again");
        overlay.put_back(0, again);
        assert_eq!(
            overlay.rows(),
            [0],
            "what could not be put in place is tried again"
        );
    }

    /// An overlay with one block of each length in place, one behind the other.
    fn kept(lengths: &[usize]) -> Overlay {
        let mut overlay = Overlay::default();
        let mut at = 0;
        for length in lengths {
            overlay.note(0, 1..2, 0..1);
            overlay.put(0, at, buf(1, *length));
            let taken = overlay.take(0, 1, &(0..u64::MAX)).unwrap();
            overlay.forget(&taken, KEPT_BYTES_MAX);
            at += *length as u64;
        }
        overlay
    }

    fn held(overlay: &Overlay) -> Vec<u64> {
        let all = overlay.covering(0, &(0..u64::MAX)).into_iter();
        all.map(|(start, _)| start).collect()
    }

    #[test]
    fn small_blocks_are_kept_and_the_oldest_of_too_many_are_given_up() {
        let overlay = kept(&[8, KEPT_BLOCK_BYTES_MAX, KEPT_BLOCK_BYTES_MAX + 1]);
        assert_eq!((held(&overlay), overlay.bytes()), (vec![0, 8], 0));
        let count = KEPT_BYTES_MAX as usize / KEPT_BLOCK_BYTES_MAX;
        let overlay = kept(&vec![KEPT_BLOCK_BYTES_MAX; count + 2]);
        assert_eq!(held(&overlay).len(), count);
        assert_eq!(held(&overlay)[0], 2 * KEPT_BLOCK_BYTES_MAX as u64);
    }

    #[test]
    fn what_is_kept_goes_when_it_is_written_over_or_by_somebody_else() {
        let mut overlay = kept(&[8, 8, 8]);
        overlay.note(0, 2..3, 4..8);
        overlay.put(0, 4, buf(2, 4));
        assert_eq!(held(&overlay), [4, 8, 16], "all of a block or nothing");
        overlay.drop_kept_of(1, &(0..12));
        assert_eq!(held(&overlay), [4, 16], "what is not in place stays");
        overlay.drop_all_kept();
        assert_eq!(held(&overlay), [4]);
        assert_eq!((overlay.bytes(), overlay.kept_bytes), (4, 0));
        assert!(overlay.kept.is_empty());
    }
}
