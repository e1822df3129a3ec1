//! Damage: bits, numbers at their borders, pieces copied and moved, words of the format.

use std::ops::Range;

use crate::input::Input;

/// Numbers at which arithmetic goes wrong.
const BORDERS: [u64; 20] = [
    0,
    1,
    2,
    3,
    7,
    8,
    127,
    128,
    255,
    256,
    512,
    4096,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as u64,
    u64::MAX,
];

/// A small generator; the same seed gives the same damage.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// A generator.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Any number (splitmix64).
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.state;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// An index below `count`, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.number() % count as u64) as usize
    }
}

/// How a target's input may be damaged.
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    /// Places where most values are fine. Damage there gets further than to the first check.
    pub soft: &'static [Range<usize>],
    /// Whether the bytes are text: damage keeps to letters and digits then.
    pub is_text: bool,
    /// Pieces that the format knows, put in anywhere.
    pub words: &'static [&'static [u8]],
}

/// How an input is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// Once, in soft places only.
    Gentle,
    /// Anywhere, up to four times.
    Rough,
}

/// Damages `input`.
pub fn damage(input: &mut Input, hints: &Hints, dice: &mut Dice, hand: Hand) {
    let is_gentle = hand == Hand::Gentle;
    let rounds = if is_gentle { 1 } else { 1 + dice.below(4) };
    for _ in 0..rounds {
        let wants_soft = is_gentle || dice.below(3) > 0;
        match (wants_soft, hints.is_text) {
            (true, true) => soft_text(&mut input.bytes, dice),
            (true, false) if !hints.soft.is_empty() => {
                let place = hints.soft[dice.below(hints.soft.len())].clone();
                let end = place.end.min(input.bytes.len());
                if let Some(bytes) = input.bytes.get_mut(place.start..end) {
                    number(bytes, dice);
                }
            }
            _ => hard(input, hints, dice),
        }
    }
}

/// One digit becomes another, one letter another.
fn soft_text(bytes: &mut [u8], dice: &mut Dice) {
    if bytes.is_empty() {
        return;
    }
    // A few tries find a digit or letter in any text that has some.
    for _ in 0..64 {
        let at = dice.below(bytes.len());
        match &mut bytes[at] {
            byte @ b'0'..=b'9' => *byte = b'0' + dice.below(10) as u8,
            byte @ b'a'..=b'z' if dice.below(8) == 0 => *byte = b'a' + dice.below(26) as u8,
            _ => continue,
        }
        return;
    }
}

/// A field of 1 to 8 bytes gets a number at a border, near its own, or any; of either byte order.
fn number(bytes: &mut [u8], dice: &mut Dice) {
    let width = [1, 2, 4, 8][dice.below(4)].min(bytes.len());
    if width == 0 {
        return;
    }
    let fields = bytes.len() / width;
    let at = dice.below(fields) * width;
    let field = &mut bytes[at..at + width];
    let mut word = [0; 8];
    word[..width].copy_from_slice(field);
    let old = u64::from_le_bytes(word);
    let new = match dice.below(4) {
        0 => BORDERS[dice.below(BORDERS.len())],
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        _ => dice.number(),
    };
    let word = if dice.below(8) == 0 {
        let big = new.to_be_bytes();
        let mut word = [0; 8];
        word[..width].copy_from_slice(&big[8 - width..]);
        word
    } else {
        new.to_le_bytes()
    };
    field.copy_from_slice(&word[..width]);
}

/// Damage anywhere, of the length and of the caller's numbers too.
fn hard(input: &mut Input, hints: &Hints, dice: &mut Dice) {
    let length = input.bytes.len();
    if length == 0 {
        input.bytes.push(dice.number() as u8);
        return;
    }
    let at = dice.below(length);
    match dice.below(9) {
        0 | 1 => input.bytes[at] ^= 1 << dice.below(8),
        2 | 3 => number(&mut input.bytes, dice),
        4 => {
            let count = dice.below((length - at).min(64)) + 1;
            let to = dice.below(length - count + 1);
            input.bytes.copy_within(at..at + count, to);
        }
        5 => input.bytes.truncate(at),
        6 => {
            let count = dice.below((length - at).min(64)) + 1;
            let piece = input.bytes[at..at + count].to_vec();
            input.bytes.splice(at..at, piece);
        }
        7 if !hints.words.is_empty() => {
            let word = hints.words[dice.below(hints.words.len())];
            let end = at + dice.below((length - at).min(16) + 1);
            input.bytes.splice(at..end, word.iter().copied());
        }
        _ => {
            let index = dice.below(input.numbers.len());
            let number = &mut input.numbers[index];
            *number = match dice.below(3) {
                0 => BORDERS[dice.below(BORDERS.len())],
                1 => number.wrapping_add(1),
                _ => number.wrapping_sub(8),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HINTS: Hints = Hints {
        soft: &[4..6, 6..8],
        is_text: false,
        words: &[],
    };

    #[test]
    fn gentle_damage_stays_in_soft_places() {
        let whole = Input {
            numbers: [0; 4],
            bytes: vec![0x55; 16],
        };
        let mut dice = Dice::new(1);
        let mut changed = 0;
        for _ in 0..1000 {
            let mut input = whole.clone();
            damage(&mut input, &HINTS, &mut dice, Hand::Gentle);
            assert_eq!(input.bytes[..4], [0x55; 4]);
            assert_eq!(input.bytes[8..], [0x55; 8]);
            changed += usize::from(input != whole);
        }
        assert!(changed > 900, "{changed}");
    }

    #[test]
    fn no_input_is_too_short_to_be_damaged() {
        let mut dice = Dice::new(2);
        for length in 0..20 {
            for _ in 0..2000 {
                let mut input = Input {
                    numbers: [0; 4],
                    bytes: vec![b'1'; length],
                };
                damage(&mut input, &HINTS, &mut dice, Hand::Rough);
            }
        }
    }
}
