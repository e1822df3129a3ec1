//! Division by a number that stays the same: a shift where it is a power of two, as nearly all strips are.

/// A number above 0 to divide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Divisor {
    value: u64,
    /// For powers of two.
    shift: Option<u32>,
}

impl Divisor {
    pub(super) fn new(value: u64) -> Self {
        assert!(value > 0, "nothing is divided by 0");
        let shift = value.is_power_of_two().then(|| value.trailing_zeros());
        Self { value, shift }
    }

    /// Quotient and remainder.
    #[inline]
    pub(super) fn split(self, number: u64) -> (u64, u64) {
        match self.shift {
            Some(shift) => (number >> shift, number & (self.value - 1)),
            None => (number / self.value, number % self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_gives_quotient_and_remainder_whatever_the_divisor() {
        for divisor in [1, 2, 3, 4, 5, 4096, 7680, 65_536, 1 << 40, u64::MAX] {
            for number in [0, 1, 2, divisor - 1, divisor, 12_345_678_901, u64::MAX] {
                let expected = (number / divisor, number % divisor);
                assert_eq!(Divisor::new(divisor).split(number), expected);
            }
        }
    }
}
