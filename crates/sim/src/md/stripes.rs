//! The independent model of parity stripes: who holds what in each layout, and GF(2^8) by shifting bits.

use super::spec::Level;

/// Product in GF(2^8) with polynomial x^8+x^4+x^3+x^2+1, bit by bit.
#[must_use]
pub fn gf_multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1d;
        }
        b >>= 1;
    }
    product
}

/// 2 to the `exponent` in GF(2^8).
#[must_use]
pub fn gf_power(exponent: u32) -> u8 {
    (0..exponent).fold(1, |power, _| gf_multiply(power, 2))
}

/// The number whose product with `a` is 1; found by trying all. 0 for 0.
#[must_use]
pub fn gf_inverse(a: u8) -> u8 {
    (1..=255).find(|b| gf_multiply(a, *b) == 1).unwrap_or(0)
}

/// All products with one factor.
pub(super) fn gf_table(factor: u8) -> [u8; 256] {
    std::array::from_fn(|byte| gf_multiply(factor, byte as u8))
}

/// Who holds what in one parity stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeRoles {
    /// Member of P.
    pub p: usize,
    /// Member of Q, RAID-6 only.
    pub q: Option<usize>,
    /// Members of the data strips, in the order of the volume.
    pub data: Vec<usize>,
    /// Exponent of each data strip in Q, in the same order.
    pub exponents: Vec<u32>,
}

/// Roles of stripe `stripe` of a parity array (reference section 7, tables "raid5" and "raid6").
///
/// # Panics
/// For a level without parity or an unknown layout.
#[must_use]
pub fn stripe_roles(level: Level, layout: u32, members: usize, stripe: u64) -> StripeRoles {
    let n = members;
    match level {
        Level::Raid4 => StripeRoles {
            p: n - 1,
            q: None,
            data: (0..n - 1).collect(),
            exponents: Vec::new(),
        },
        Level::Raid5 => raid5_roles(layout, n, stripe),
        Level::Raid6 => raid6_roles(layout, n, stripe),
        _ => panic!("{level} has no parity"),
    }
}

fn raid5_roles(layout: u32, n: usize, stripe: u64) -> StripeRoles {
    let r = (stripe % n as u64) as usize;
    let p = match layout {
        0 | 2 => n - 1 - r,
        1 | 3 => r,
        4 => 0,
        5 => n - 1,
        _ => panic!("raid5 has no layout {layout}"),
    };
    let data = (0..n - 1)
        .map(|i| match layout {
            0 | 1 => i + usize::from(i >= p),
            2 | 3 => (p + 1 + i) % n,
            4 => i + 1,
            _ => i,
        })
        .collect();
    StripeRoles {
        p,
        q: None,
        data,
        exponents: Vec::new(),
    }
}

fn raid6_roles(layout: u32, n: usize, stripe: u64) -> StripeRoles {
    let r = (stripe % n as u64) as usize;
    let t = (stripe % (n as u64 - 1)) as usize;
    let p = match layout {
        0 | 2 | 10 => n - 1 - r,
        1 | 3 | 8 => r,
        4 | 20 => 0,
        5 => n - 2,
        9 => n - 1 - ((stripe + 1) % n as u64) as usize,
        16 | 18 => n - 2 - t,
        17 | 19 => t,
        _ => panic!("raid6 has no layout {layout}"),
    };
    let q = match layout {
        4 => 1,
        5 | 16..=20 => n - 1,
        10 => (p + n - 1) % n,
        _ => (p + 1) % n,
    };
    let others: Vec<usize> = (0..n)
        .filter(|member| *member != p && *member != q)
        .collect();
    let data: Vec<usize> = (0..n - 2)
        .map(|i| match layout {
            0 | 1 | 8 | 9 => others[i],
            2 | 3 => (p + 2 + i) % n,
            4 => i + 2,
            5 => i,
            10 => (p + 1 + i) % n,
            16 | 17 => i + usize::from(i >= p),
            18 | 19 => (p + 1 + i) % (n - 1),
            _ => i + 1,
        })
        .collect();
    let exponents = data
        .iter()
        .map(|member| q_exponent(layout, n, p, q, *member))
        .collect();
    StripeRoles {
        p,
        q: Some(q),
        data,
        exponents,
    }
}

/// Exponent of `member` in Q (reference section 7, "Q order").
fn q_exponent(layout: u32, n: usize, p: usize, q: usize, member: usize) -> u32 {
    if matches!(layout, 8..=10) {
        return member as u32;
    }
    let walk = (1..=n)
        .map(|step| (q + step) % n)
        .filter(|at| *at != p && *at != q);
    walk.take_while(|at| *at != member).count() as u32
}
