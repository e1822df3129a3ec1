//! Parity by the definition, one bit at a time: slow, and the judge of every fast kernel.
//!
//! - Shares no code and no table with the rest of the crate: a mistake there cannot repeat itself here.
//! - Used by the tests, by [`self_test`](crate::self_test()) and by simulators that check a whole array.
//!
//! Source: linux-md.md 8, zfs-raidz.md 1.2.

/// The product of `a` and `b` in GF(2^8) with polynomial 0x11d: carry-less product of 15 bits, then division.
pub fn mul(a: u8, b: u8) -> u8 {
    let mut product = 0u16;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..15).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}

/// `base` multiplied by itself `exponent` times; 1 for exponent 0.
pub fn power(base: u8, exponent: u32) -> u8 {
    (0..exponent).fold(1, |product, _| mul(product, base))
}

/// The inverse of `x`, found by trying; `None` for 0.
pub fn inverse(x: u8) -> Option<u8> {
    (1..=255).find(|&y| mul(x, y) == 1)
}

/// One parity of whole blocks into `target`: `base` is 1 for P, 2 for Q, 4 for R.
///
/// Blocks shorter than the target count as continued by zeros; longer ones are cut.
///
/// # Panics
/// If `exponents` and `sources` differ in length.
pub fn generate(base: u8, sources: &[&[u8]], exponents: &[u8], target: &mut [u8]) {
    assert_eq!(
        sources.len(),
        exponents.len(),
        "one exponent for each source"
    );
    target.fill(0);
    for (source, &exponent) in sources.iter().zip(exponents) {
        let coefficient = power(base, u32::from(exponent));
        for (sum, &byte) in target.iter_mut().zip(*source) {
            *sum ^= mul(coefficient, byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_the_published_one() {
        // Worked by hand: x * x^7 = x^8 = x^4 + x^3 + x^2 + 1; 2 generates all 255 non-zero values.
        assert_eq!(mul(2, 0x80), 0x1d);
        assert_eq!(power(2, 255), 1);
        assert!((1..255).all(|e| power(2, e) != 1));
        assert_eq!(power(4, 3), power(2, 6));
        assert_eq!(inverse(0), None);
        assert_eq!(inverse(2), Some(0x8e));
    }

    #[test]
    fn products_commute_and_distribute() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul(b, a));
                assert_eq!(mul(a, b ^ 0x5a), mul(a, b) ^ mul(a, 0x5a));
            }
        }
    }

    #[test]
    fn a_short_block_counts_as_continued_by_zeros() {
        let mut target = [9; 3];
        generate(2, &[&[1, 1, 1], &[1]], &[0, 1], &mut target);
        assert_eq!(target, [3, 1, 1]);
    }
}
