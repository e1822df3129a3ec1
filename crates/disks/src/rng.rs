//! The only source of chance in the simulated world: xoshiro256++ seeded through splitmix64.
//!
//! Invariants:
//! - the same seed gives the same sequence on every machine and in every build;
//! - `fork` gives independent streams, so that one more draw in one place does not move every later choice elsewhere.
//!
//! Source: the public-domain descriptions of splitmix64 and xoshiro256++ by Blackman and Vigna.

/// A seeded stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

/// Bijective, well mixing 64-bit function (splitmix64's output step). Not linear over XOR, unlike a CRC.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let a = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ (b >> 31)
}

/// The odd constant that splitmix64 steps by (2^64 divided by the golden ratio).
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// The stream that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut at = seed;
        let state = std::array::from_fn(|_| {
            at = at.wrapping_add(GOLDEN);
            mix(at)
        });
        Self { state }
    }

    /// A stream for `label`, independent of this one and of other labels; draws nothing from this one.
    #[must_use]
    pub fn fork(&self, label: u64) -> Self {
        Self::new(mix(self.state[0] ^ mix(label.wrapping_add(GOLDEN))))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `limit`; 0 when `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The bias of the multiply-shift reduction is below 2^-32 for the limits used here and harms no test.
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// A number from `low` up to and including `high`.
    ///
    /// # Panics
    /// When `low > high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "bounds of a random number are ordered");
        low + self.below((high - low).saturating_add(1))
    }

    /// True in `part` of `whole` draws.
    pub fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// One of `items`.
    ///
    /// # Panics
    /// When `items` is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        assert!(!items.is_empty(), "something to pick from");
        &items[self.below(items.len() as u64) as usize]
    }

    /// Puts `items` in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..8).map(|_| rng.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn numbers_stay_inside_their_bounds_and_reach_both() {
        let mut rng = Rng::new(1);
        let seen: Vec<u64> = (0..200).map(|_| rng.between(3, 6)).collect();
        assert!((3..=6).all(|value| seen.contains(&value)));
        assert!(seen.iter().all(|value| (3..=6).contains(value)));
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn a_fork_does_not_depend_on_other_forks() {
        let rng = Rng::new(5);
        let (mut one, mut other) = (rng.fork(1), rng.fork(2));
        assert_ne!(one.next_u64(), other.next_u64());
        assert_eq!(rng.fork(1).next_u64(), rng.fork(1).next_u64());
    }

    #[test]
    fn mixing_is_not_linear() {
        assert_ne!(mix(3) ^ mix(5) ^ mix(9), mix(3 ^ 5 ^ 9));
    }
}
