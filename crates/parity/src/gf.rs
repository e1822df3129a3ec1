//! The field GF(2^8) of RAID-6: polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), generator 2.
//!
//! - Addition is XOR; the generator's order is 255, so an exponent is 0 ..= 254.
//! - All tables are computed by the compiler from the polynomial, none is typed in.
//!
//! Source: linux-md.md 8, zfs-raidz.md 1.2 (both use the same field).

/// Low byte of the field's polynomial 0x11d: what a doubling adds when the top bit falls out.
pub const POLYNOMIAL: u8 = 0x1d;

/// What a product by 4 adds for the two bits that fall out, 00, 01, 10, 11: four bytes, lowest first.
#[allow(dead_code)] // vector kernels only
pub(crate) const REDUCTIONS_OF_4: i32 = i32::from_le_bytes([
    0,
    POLYNOMIAL,
    POLYNOMIAL << 1,
    POLYNOMIAL ^ (POLYNOMIAL << 1),
]);

/// The solution of `BIAS` + 2 `BIAS` = [`POLYNOMIAL`]. Let sums carry it and a doubling may add the polynomial to the
/// bytes whose top bit is clear instead of those where it is set, which one shuffle can do: 2 (x + BIAS) + POLYNOMIAL =
/// 2 x + BIAS.
#[cfg(any(test, target_arch = "x86_64"))] // the kernels with byte shuffles there; NEON shifts
pub(crate) const BIAS: u8 = {
    let mut bias = 0;
    while bias ^ double(bias) != POLYNOMIAL {
        bias += 1;
    }
    bias
};

/// Exponents of the generator run from 0 to one less than this: the generator's order.
pub const ORDER: usize = 255;

/// `EXP[e]` = 2^e for e in 0 ..= 509, so that two logarithms can be added without a remainder.
pub(crate) static EXP: [u8; 2 * ORDER] = exp_table();

/// `LOG[x]` = e with 2^e = x, for x in 1 ..= 255; `LOG[0]` means nothing.
pub(crate) static LOG: [u8; 256] = log_table();

/// For each coefficient: its products with 0 ..= 15, then with 0x00, 0x10 ..= 0xf0 (two 16-byte shuffle tables).
pub(crate) static NIBBLES: NibbleTables = NibbleTables(nibble_tables());

/// For each coefficient: the 8x8 bit matrix of the multiplication, as `gf2p8affineqb` takes it.
#[allow(dead_code)] // only x86-64 has the instruction
pub(crate) static MATRICES: [u64; 256] = matrices();

/// The shuffle tables, aligned so that a 32-byte entry never straddles two cache lines.
#[repr(align(32))]
pub(crate) struct NibbleTables([[u8; 32]; 256]);

impl NibbleTables {
    /// The two tables of one coefficient: products with low nibbles, then with high nibbles.
    #[inline(always)]
    pub(crate) fn of(&self, coefficient: u8) -> &[u8; 32] {
        &self.0[coefficient as usize]
    }
}

/// 2 times `x`.
pub const fn double(x: u8) -> u8 {
    (x << 1) ^ if x & 0x80 != 0 { POLYNOMIAL } else { 0 }
}

/// The product of `a` and `b`.
pub fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])]
}

/// The inverse of `x`; `None` for 0.
pub fn inverse(x: u8) -> Option<u8> {
    (x != 0).then(|| EXP[ORDER - usize::from(LOG[usize::from(x)])])
}

/// 2^`exponent`, for any exponent (they repeat after 255).
pub fn power(exponent: usize) -> u8 {
    EXP[exponent % ORDER]
}

/// The exponent `e` in 0 ..= 254 with 2^e = `x`; `None` for 0.
pub fn logarithm(x: u8) -> Option<u8> {
    (x != 0).then(|| LOG[usize::from(x)])
}

const fn exp_table() -> [u8; 2 * ORDER] {
    let mut table = [0; 2 * ORDER];
    let mut value = 1;
    let mut e = 0;
    while e < 2 * ORDER {
        table[e] = value;
        value = double(value);
        e += 1;
    }
    table
}

const fn log_table() -> [u8; 256] {
    let mut table = [0; 256];
    let mut value = 1;
    let mut e = 0;
    while e < ORDER {
        table[value as usize] = e as u8;
        value = double(value);
        e += 1;
    }
    table
}

/// Products by bits, for the tables that the compiler computes.
const fn mul_slow(mut a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 8 {
        if b >> bit & 1 != 0 {
            product ^= a;
        }
        a = double(a);
        bit += 1;
    }
    product
}

const fn nibble_tables() -> [[u8; 32]; 256] {
    let mut tables = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut n = 0;
        while n < 16 {
            tables[c][n] = mul_slow(c as u8, n as u8);
            tables[c][16 + n] = mul_slow(c as u8, (n as u8) << 4);
            n += 1;
        }
        c += 1;
    }
    tables
}

/// Byte 7 - i of a matrix is the row of output bit i; its bit j says whether input bit j is part of the sum.
const fn matrices() -> [u64; 256] {
    let mut tables = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut j = 0;
        while j < 8 {
            let column = mul_slow(c as u8, 1 << j);
            let mut i = 0;
            while i < 8 {
                if column >> i & 1 != 0 {
                    tables[c] |= 1 << (8 * (7 - i) + j);
                }
                i += 1;
            }
            j += 1;
        }
        c += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    #[test]
    fn a_doubling_with_the_polynomial_added_keeps_the_bias() {
        for x in 0..=255 {
            assert_eq!(double(x ^ BIAS) ^ POLYNOMIAL, double(x) ^ BIAS);
        }
    }

    #[test]
    fn all_products_equal_those_of_the_bit_loop() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), reference::mul(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn the_bits_that_fall_out_of_a_product_by_4_are_reduced() {
        for (top, reduction) in (0..4).zip(REDUCTIONS_OF_4.to_le_bytes()) {
            assert_eq!(reduction, reference::mul(4, top << 6));
        }
    }

    #[test]
    fn inverses_and_logarithms_undo_products_and_powers() {
        assert_eq!((inverse(0), logarithm(0)), (None, None));
        for x in 1..=255 {
            assert_eq!(mul(x, inverse(x).unwrap()), 1);
            assert_eq!(power(usize::from(logarithm(x).unwrap())), x);
        }
        assert_eq!(power(255), 1);
        assert_eq!(power(8), POLYNOMIAL);
    }

    #[test]
    fn nibble_tables_and_bit_matrices_multiply() {
        for c in 0..=255u8 {
            let table = NIBBLES.of(c);
            for x in 0..=255u8 {
                let product = reference::mul(c, x);
                assert_eq!(
                    table[usize::from(x & 15)] ^ table[usize::from(16 + (x >> 4))],
                    product
                );
                let rows = MATRICES[usize::from(c)].to_be_bytes();
                let affine = (0..8).fold(0, |sum, i| {
                    sum | ((rows[i] & x).count_ones() as u8 & 1) << i
                });
                assert_eq!(affine, product);
            }
        }
    }
}
