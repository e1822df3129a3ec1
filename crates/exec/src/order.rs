//! In which order ready tasks are polled.

/// Chooses the next of the ready tasks.
pub trait Order {
    /// Index of the task to poll next, below `ready_len` (which is at least 1); 0 has been ready for longest.
    fn pick(&mut self, ready_len: usize) -> usize;
}

/// First ready, first polled: what the real runtime uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Order for Fifo {
    fn pick(&mut self, _ready_len: usize) -> usize {
        0
    }
}

/// A choice that depends on the seed and the number of earlier choices only: what the simulator uses.
///
/// The generator is `splitmix64` (Steele, Lea, Flood 2014): a counter and a mixing function.
#[derive(Clone, Debug)]
pub struct Seeded {
    counter: u64,
}

impl Seeded {
    /// The order that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { counter: seed }
    }

    fn next(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.counter;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Order for Seeded {
    fn pick(&mut self, ready_len: usize) -> usize {
        // The upper half of the product is below `ready_len`; its bias is below ready_len / 2^64.
        let product = u128::from(self.next()) * ready_len as u128;
        (product >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seeded_pick_is_in_range_and_reaches_every_index() {
        for ready_len in 1..20 {
            let mut order = Seeded::new(7);
            let mut has_seen = vec![false; ready_len];
            for _ in 0..1000 {
                has_seen[order.pick(ready_len)] = true;
            }
            assert!(has_seen.iter().all(|seen| *seen), "length {ready_len}");
        }
    }

    #[test]
    fn the_generator_gives_the_published_sequence_for_seed_zero() {
        let mut order = Seeded::new(0);
        assert_eq!(order.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(order.next(), 0x6e78_9e6a_a1b9_65f4);
    }
}
