//! What is durable in the log and not yet in place: blocks by slot and member range (L5). Pure.
//!
//! Invariants:
//! - pieces of a slot never overlap: newer ones cut older ones;
//! - a piece leaves only when it, or something newer, is in place.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::buf::Buf;

/// One block, or what newer ones have left of it.
#[derive(Clone)]
struct Piece {
    data: Buf,
    /// Counts the blocks that came in.
    age: u64,
}

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

/// All that the log holds and the rows do not.
#[derive(Default)]
pub(super) struct Overlay {
    pieces: BTreeMap<(usize, u64), Piece>,
    rows: BTreeMap<u64, Pending>,
    age: u64,
    bytes: u64,
}

impl Overlay {
    /// Whether every record is in place.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of all blocks.
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
        self.pieces.insert((slot, start), Piece { data, age });
    }

    fn cut(&mut self, slot: usize, range: Range<u64>) {
        for (start, data) in self.covering(slot, &range) {
            let piece = self.pieces.remove(&(slot, start)).expect("it was found");
            let end = start + data.len() as u64;
            self.bytes -= data.len() as u64;
            let place = |at: u64| usize::try_from(at - start).expect("inside the block");
            let mut keep = |part: Range<u64>| {
                if part.start < part.end {
                    let data = piece.data.slice(place(part.start)..place(part.end));
                    self.bytes += data.len() as u64;
                    let age = piece.age;
                    self.pieces.insert((slot, part.start), Piece { data, age });
                }
            };
            keep(start..range.start.min(end));
            keep(range.end.max(start)..end);
        }
    }

    /// Blocks of a slot that meet a member range, ascending: first byte and content, not cut.
    pub fn covering(&self, slot: usize, range: &Range<u64>) -> Vec<(u64, Buf)> {
        let before = self
            .pieces
            .range((slot, 0)..(slot, range.start))
            .next_back();
        let inside = self.pieces.range((slot, range.start)..(slot, range.end));
        let meets =
            |(key, piece): &(&(usize, u64), &Piece)| key.1 + piece.data.len() as u64 > range.start;
        let all = before.into_iter().filter(meets).chain(inside);
        all.map(|(key, piece)| (key.1, piece.data.clone()))
            .collect()
    }

    /// Takes what is pending of a row; the blocks stay until `forget`.
    pub fn take(&mut self, row: u64, slots: usize, range: &Range<u64>) -> Option<Taken> {
        let pending = self.rows.remove(&row)?;
        let mut blocks = Vec::new();
        for slot in 0..slots {
            let pieces = self.covering(slot, range).into_iter();
            blocks.extend(pieces.map(|(start, data)| (slot, start, data)));
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

    /// They are in place: only what came in since stays.
    pub fn forget(&mut self, taken: &Taken) {
        for (slot, start, data) in &taken.blocks {
            let range = *start..*start + data.len() as u64;
            for (start, data) in self.covering(*slot, &range) {
                let key = (*slot, start);
                if self
                    .pieces
                    .get(&key)
                    .is_some_and(|piece| piece.age <= taken.age)
                {
                    self.pieces.remove(&key);
                    self.bytes -= data.len() as u64;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::BufPool;

    const SIZE: usize = 24;

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
        overlay.forget(&taken);
        assert_eq!(
            content(&overlay)[..12],
            [0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2]
        );
        assert_eq!((overlay.rows(), overlay.bytes()), (vec![0], 8));
        let again = overlay.take(0, 1, &(0..SIZE as u64)).unwrap();
        overlay.put_back(0, again);
        assert_eq!(
            overlay.rows(),
            [0],
            "what could not be put in place is tried again"
        );
    }
}
