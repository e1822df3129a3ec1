//! A fixed-size set of small integers, one bit each.

/// Bits 0 to `len - 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    len: usize,
    ones: usize,
}

impl Bits {
    /// `len` clear bits.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)],
            len,
            ones: 0,
        }
    }

    /// Number of bits, set or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bits at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bits are set.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ones
    }

    /// Whether bit `index` is set.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> bool {
        assert!(index < self.len, "bit index is inside the set");
        self.words[index / 64] >> (index % 64) & 1 == 1
    }

    /// Sets or clears a bit; says whether it changed.
    #[inline]
    pub fn set(&mut self, index: usize, value: bool) -> bool {
        if self.get(index) == value {
            return false;
        }
        self.words[index / 64] ^= 1 << (index % 64);
        if value {
            self.ones += 1;
        } else {
            self.ones -= 1;
        }
        true
    }

    /// Sets every bit.
    pub fn fill(&mut self) {
        for index in 0..self.len {
            self.set(index, true);
        }
    }

    /// First set bit at or after `from`.
    #[must_use]
    pub fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = *self.words.get(word)? & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            word += 1;
            bits = *self.words.get(word)?;
        }
    }

    /// 64 bits each, from the lowest bit on.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The bits that are set here and not in `other`, ascending.
    pub fn without(&self, other: &Bits) -> impl Iterator<Item = usize> {
        assert_eq!(self.len, other.len, "sets of the same size");
        let words = self.words.iter().zip(&other.words).enumerate();
        let left = words.map(|(index, (own, others))| (index, own & !others));
        left.filter(|(_, bits)| *bits != 0)
            .flat_map(|(index, bits)| {
                let rest = |bits: &u64| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
                let each = std::iter::successors(Some(bits), rest);
                each.map(move |bits| index * 64 + bits.trailing_zeros() as usize)
            })
    }

    /// The set bits, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.next(0), |last| self.next(last + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_bits_are_listed_in_order_and_counted() {
        let mut bits = Bits::new(200);
        for index in [0, 63, 64, 130, 199] {
            assert!(bits.set(index, true));
            assert!(!bits.set(index, true));
        }
        bits.set(64, false);
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 63, 130, 199]);
        assert_eq!(bits.count(), 4);
        assert_eq!(bits.next(131), Some(199));
        bits.set(199, false);
        assert_eq!(bits.next(131), None);
    }

    #[test]
    fn what_is_set_here_and_not_there_is_listed_in_order() {
        let (mut here, mut there) = (Bits::new(300), Bits::new(300));
        for index in [0, 5, 63, 64, 200, 299] {
            here.set(index, true);
        }
        for index in [1, 5, 64, 298] {
            there.set(index, true);
        }
        assert_eq!(here.without(&there).collect::<Vec<_>>(), [0, 63, 200, 299]);
        assert_eq!(here.without(&here).next(), None);
    }
}
