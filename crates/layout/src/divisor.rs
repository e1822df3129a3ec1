//! Division by a number that stays the same: a shift where it is a power of two, as nearly all strips are, else a
//! product.

/// A number above 0 to divide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    value: u64,
    /// For powers of two.
    shift: Option<u32>,
    /// 2^64 divided by `value`, rounded down (of no use for 1).
    inverse: u64,
}

impl Divisor {
    /// Divides by `value`, which is not 0.
    pub fn new(value: u64) -> Self {
        assert!(value > 0, "nothing is divided by 0");
        let shift = value.is_power_of_two().then(|| value.trailing_zeros());
        let inverse = (1u128 << 64) / u128::from(value);
        Self {
            value,
            shift,
            inverse: u64::try_from(inverse).unwrap_or(u64::MAX),
        }
    }

    /// Quotient and remainder.
    ///
    /// The product of a number below 2^64 with the inverse lacks less than 1, so that the quotient is right or one too
    /// small.
    #[inline]
    pub fn split(self, number: u64) -> (u64, u64) {
        if let Some(shift) = self.shift {
            return (number >> shift, number & (self.value - 1));
        }
        let product = u128::from(number) * u128::from(self.inverse);
        let quotient = (product >> 64) as u64; // the upper half of a product of two
        let remainder = number - quotient * self.value;
        if remainder >= self.value {
            return (quotient + 1, remainder - self.value);
        }
        (quotient, remainder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_gives_quotient_and_remainder_whatever_the_divisor() {
        for divisor in [
            1,
            2,
            3,
            4,
            5,
            7,
            4096,
            7680,
            65_536,
            (1 << 32) + 1,
            1 << 40,
            3 << 61,
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
        ] {
            for number in [
                0,
                1,
                2,
                divisor - 1,
                divisor,
                divisor.saturating_mul(3),
                divisor.saturating_mul(3) - 1,
                12_345_678_901,
                u64::MAX - 1,
                u64::MAX,
            ] {
                let expected = (number / divisor, number % divisor);
                assert_eq!(Divisor::new(divisor).split(number), expected);
            }
        }
    }
}
