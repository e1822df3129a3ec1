//! Blocks with guards, reproducible bytes and the reference's answers, for the tests of the kernels.
#![allow(dead_code)]

use plexum_parity::reference;

/// What the bytes around a block hold, before and after.
const GUARD: u8 = 0xa5;
const GUARD_BYTES: usize = 128;

/// A block of any length at any alignment with guard bytes on both sides.
#[derive(Clone)]
pub struct Guarded {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Guarded {
    /// `length` bytes of junk, at an address that leaves `alignment` when divided by 64.
    pub fn new(length: usize, alignment: usize) -> Self {
        let bytes = vec![GUARD; length + 2 * GUARD_BYTES + 64];
        let start =
            GUARD_BYTES + (alignment.wrapping_sub(bytes.as_ptr() as usize + GUARD_BYTES)) % 64;
        let mut guarded = Guarded {
            bytes,
            start,
            length,
        };
        guarded.get_mut().fill(0x3c);
        guarded
    }

    /// The block.
    pub fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    /// The block, to be written.
    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }

    /// Stops if a byte beside the block was written.
    pub fn check_guards(&self) {
        let (before, rest) = self.bytes.split_at(self.start);
        let after = &rest[self.length..];
        assert!(
            before.iter().chain(after).all(|&byte| byte == GUARD),
            "a byte outside the block was written"
        );
    }
}

/// Reproducible bytes (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }

    pub fn fill(&mut self, block: &mut [u8]) {
        block.fill_with(|| (self.next() >> 56) as u8);
    }

    /// `count` blocks of `length` bytes, each at an alignment of its own.
    pub fn blocks(&mut self, count: usize, length: usize) -> Vec<Guarded> {
        let mut block = || {
            let mut block = Guarded::new(length, self.below(64));
            self.fill(block.get_mut());
            block
        };
        (0..count).map(|_| block()).collect()
    }

    /// `count` different exponents in any order.
    pub fn exponents(&mut self, count: usize) -> Vec<u8> {
        let mut all: Vec<u8> = (0..255).collect();
        for i in 0..count {
            let other = i + self.below(255 - i);
            all.swap(i, other);
        }
        all.truncate(count);
        all
    }
}

/// The blocks' bytes.
pub fn slices(blocks: &[Guarded]) -> Vec<&[u8]> {
    blocks.iter().map(Guarded::get).collect()
}

/// P, Q and R by the reference.
pub fn parities(sources: &[&[u8]], exponents: &[u8], length: usize) -> [Vec<u8>; 3] {
    [1, 2, 4].map(|base| {
        let mut target = vec![0; length];
        reference::generate(base, sources, exponents, &mut target);
        target
    })
}

/// Exponent lists of all the kinds that formats use, for `count` blocks.
pub fn exponent_lists(count: usize, random: &mut Random) -> Vec<Vec<u8>> {
    let ascending: Vec<u8> = (0..count as u8).collect();
    let mut rotated = ascending.clone();
    rotated.rotate_left(random.below(count.max(1)).min(count));
    let raidz = ascending.iter().rev().copied().collect();
    let mut lists = vec![ascending, rotated, raidz, random.exponents(count)];
    if count <= 252 {
        // DDF: the members' own numbers, where those of P and Q are skipped.
        let hole = random.below(count + 1) as u8;
        lists.push(
            (0..=count as u8 + 1)
                .filter(|&e| e != hole && e != hole + 1)
                .collect(),
        );
    }
    lists
}
