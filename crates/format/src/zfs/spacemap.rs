//! Space maps: what was allocated and freed, in order; the sum of all entries is what is in use.
//!
//! Invariants: an entry never crosses a block; decoding stops at the first entry that cannot be.
//! Source: zfs-write.md 1.5.

use std::ops::Range;

/// Bytes of an entry's word.
pub const WORD_BYTES: usize = 8;
/// Longest run of a one-word entry, and of one of two words.
const RUN_MAX: u64 = 1 << 15;
const LONG_RUN_MAX: u64 = 1 << 36;
/// Offsets below this fit one word.
const OFFSET_LIMIT: u64 = 1 << 47;
/// "No vdev": what the map of one metaslab has in entries of two words.
const NO_PLEX: u64 = (1 << 24) - 1;

/// Whether space was taken or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is in use from now on.
    Allocated,
    /// It is free from now on.
    Freed,
}

/// An entry, in sectors from where the map begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub change: Change,
    /// First sector.
    pub start: u64,
    /// Number of sectors.
    pub count: u64,
    /// The plex, where the entry says one: logs of several plexes do.
    pub plex_id: Option<u32>,
}

/// The entries in `bytes`, which are words from the start of the map; `Err` says at which byte something cannot be.
///
/// # Errors
/// The offset of an entry of two words whose second is not there.
pub fn decode(bytes: &[u8]) -> Result<Vec<Entry>, usize> {
    let (words, _) = bytes.as_chunks::<WORD_BYTES>();
    let mut entries = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at).map(|word| u64::from_le_bytes(*word)) {
        at += 1;
        match word >> 62 {
            // A note on when and in which pass it was written, or padding.
            2 => {}
            3 => {
                let second = words.get(at).map(|word| u64::from_le_bytes(*word));
                let second = second.ok_or((at - 1) * WORD_BYTES)?;
                at += 1;
                let plex = word & NO_PLEX;
                entries.push(Entry {
                    change: change(second >> 63),
                    start: second & (u64::MAX >> 1),
                    count: (word >> 24 & (LONG_RUN_MAX - 1)) + 1,
                    plex_id: (plex != NO_PLEX).then_some(plex as u32),
                });
            }
            _ => entries.push(Entry {
                change: change(word >> 15 & 1),
                start: word >> 16 & (OFFSET_LIMIT - 1),
                count: (word & (RUN_MAX - 1)) + 1,
                plex_id: None,
            }),
        }
    }
    Ok(entries)
}

fn change(bit: u64) -> Change {
    match bit {
        0 => Change::Allocated,
        _ => Change::Freed,
    }
}

/// Words that an entry of `count` sectors takes: long runs are cut.
#[must_use]
pub fn words_of(count: u64) -> u64 {
    count.div_ceil(RUN_MAX)
}

/// Adds the words of a run of sectors in a metaslab's own map. All entries are of one word, which every version of the
/// format knows; `false` when the offset does not fit one.
#[must_use]
pub fn encode(change: Change, run: Range<u64>, out: &mut Vec<u8>) -> bool {
    if run.end > OFFSET_LIMIT {
        return false;
    }
    let bit = match change {
        Change::Allocated => 0,
        Change::Freed => 1 << 15,
    };
    let (mut at, mut left) = (run.start, run.end.saturating_sub(run.start));
    while left > 0 {
        let count = left.min(RUN_MAX);
        out.extend((at << 16 | bit | (count - 1)).to_le_bytes());
        at += count;
        left -= count;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_back_in_order_and_long_ones_in_parts() {
        let mut bytes = Vec::new();
        assert!(encode(Change::Allocated, 5..6, &mut bytes));
        assert!(encode(Change::Freed, 100..103 + RUN_MAX, &mut bytes));
        assert_eq!(bytes.len() as u64 / 8, words_of(1) + words_of(RUN_MAX + 3));
        let entry = |change, start, count| Entry {
            change,
            start,
            count,
            plex_id: None,
        };
        let expected = [
            entry(Change::Allocated, 5, 1),
            entry(Change::Freed, 100, RUN_MAX),
            entry(Change::Freed, 100 + RUN_MAX, 3),
        ];
        assert_eq!(decode(&bytes).unwrap(), expected);
        assert!(!encode(
            Change::Freed,
            OFFSET_LIMIT..OFFSET_LIMIT + 1,
            &mut bytes
        ));
    }

    #[test]
    fn entries_of_two_words_and_notes_are_understood() {
        let words = [
            2_u64 << 62 | 77,
            3 << 62 | 9 << 24 | 4,
            1 << 63 | 1000,
            3 << 62 | NO_PLEX,
            8,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let entry = |change, start, count, plex_id| Entry {
            change,
            start,
            count,
            plex_id,
        };
        let expected = [
            entry(Change::Freed, 1000, 10, Some(4)),
            entry(Change::Allocated, 8, 1, None),
        ];
        assert_eq!(decode(&bytes).unwrap(), expected);
        assert_eq!(decode(&bytes[..16]), Err(8));
    }
}
