//! Sums of 32-bit words to the fourth order (Fletcher), as ZFS takes them of blocks.
//!
//! `a` is the sum of the words, `b` that of all `a`, `c` that of all `b`, `d` that of all `c`, each modulo 2^64. A
//! machine sums several interleaved streams at once; the streams are then put together: a word that stands at place k
//! of N has weight 1 in `a`, N-k in `b`, the triangular number of N-k in `c` and the tetrahedral one in `d`.
//!
//! Source of the definition: zfs-raidz.md 2.3; the weights follow from it.

/// Streams that are summed side by side.
const LANES: usize = 8;
/// Bytes that one round takes.
const ROUND_BYTES: usize = 4 * LANES;

/// The four sums, in their order.
pub type Sums = [u64; 4];

/// Sums of what comes in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fletcher4 {
    sums: Sums,
}

impl Fletcher4 {
    /// Adds little-endian words. Bytes after the last whole word do not count, so only the last piece may have any.
    pub fn add(&mut self, bytes: &[u8]) {
        let whole = bytes.len() / ROUND_BYTES * ROUND_BYTES;
        let (rounds, rest) = bytes.split_at(whole);
        self.append(join(&lanes_of(rounds)), whole as u64 / 4);
        for word in rest.as_chunks::<4>().0 {
            let [a, b, c, d] = &mut self.sums;
            *a = a.wrapping_add(u64::from(u32::from_le_bytes(*word)));
            *b = b.wrapping_add(*a);
            *c = c.wrapping_add(*b);
            *d = d.wrapping_add(*c);
        }
    }

    /// The sums of all that was added.
    #[must_use]
    pub fn sums(&self) -> Sums {
        self.sums
    }

    /// Adds `count` words that have these sums by themselves.
    fn append(&mut self, [a, b, c, d]: Sums, count: u64) {
        let [a0, b0, c0, d0] = self.sums;
        let n = u128::from(count);
        // Far below the limit of the wide type: a piece has less than 2^40 words. Only the low half counts.
        let (triangle, tetrahedron) = (n * (n + 1) / 2, n * (n + 1) * (n + 2) / 6);
        let times = |factor: u128, sum: u64| (factor as u64).wrapping_mul(sum);
        let all = |terms: &[u64]| {
            terms
                .iter()
                .fold(0_u64, |sum, term| sum.wrapping_add(*term))
        };
        self.sums = [
            all(&[a0, a]),
            all(&[b0, times(n, a0), b]),
            all(&[c0, times(n, b0), times(triangle, a0), c]),
            all(&[
                d0,
                times(n, c0),
                times(triangle, b0),
                times(tetrahedron, a0),
                d,
            ]),
        ];
    }
}

type Lanes = [[u64; LANES]; 4];

/// Sums of each stream by itself: stream i has the words i, i + 8, ... `bytes` are whole rounds.
fn lanes_of(bytes: &[u8]) -> Lanes {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the machine has the instructions; the function has no other condition.
        return unsafe { lanes_avx2(bytes) };
    }
    lanes(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn lanes_avx2(bytes: &[u8]) -> Lanes {
    lanes(bytes)
}

/// Plain arithmetic that the compiler turns into that of whichever vectors the caller is built for.
#[inline(always)]
fn lanes(bytes: &[u8]) -> Lanes {
    let [mut a, mut b, mut c, mut d] = [[0_u64; LANES]; 4];
    for round in bytes.as_chunks::<ROUND_BYTES>().0 {
        let (words, _) = round.as_chunks::<4>();
        for lane in 0..LANES {
            a[lane] = a[lane].wrapping_add(u64::from(u32::from_le_bytes(words[lane])));
        }
        for lane in 0..LANES {
            b[lane] = b[lane].wrapping_add(a[lane]);
        }
        for lane in 0..LANES {
            c[lane] = c[lane].wrapping_add(b[lane]);
        }
        for lane in 0..LANES {
            d[lane] = d[lane].wrapping_add(c[lane]);
        }
    }
    [a, b, c, d]
}

/// What a stream's own sums count in the sums of all: a in b, a and b in c, a, b and c in d.
///
/// A word of stream i that is the m-th from the end of its stream is the (8m - i)-th from the end of all. Its weight
/// there is a polynomial in m, and so a sum of the weights that it has in its own stream: 1, m, the m-th triangular and
/// the m-th tetrahedral number. The last three are 0, 0 and 0 at m = 0, and -1, 0 and 0 at m = -1: that gives the
/// factors.
const FACTORS: [[u64; 6]; LANES] = {
    let mut factors = [[0; 6]; LANES];
    let mut lane = 0;
    while lane < LANES {
        let (l, i) = (LANES as i64, lane as i64);
        let (c_of_a, d_of_a) = (triangle(-i), tetrahedron(-i));
        let (c_of_b, d_of_b) = (c_of_a - triangle(-l - i), d_of_a - tetrahedron(-l - i));
        let d_of_c = tetrahedron(l - i) - l * l * l - d_of_b - d_of_a;
        // Negative ones as the same number modulo 2^64.
        factors[lane] = [
            -i as u64,
            c_of_a as u64,
            c_of_b as u64,
            d_of_a as u64,
            d_of_b as u64,
            d_of_c as u64,
        ];
        lane += 1;
    }
    factors
};

const fn triangle(n: i64) -> i64 {
    n * (n + 1) / 2
}

const fn tetrahedron(n: i64) -> i64 {
    n * (n + 1) * (n + 2) / 6
}

/// The sums of all streams together.
fn join(lanes: &Lanes) -> Sums {
    const L: u64 = LANES as u64;
    let mut sums = [0_u64; 4];
    for (lane, factors) in FACTORS.iter().enumerate() {
        let [a, b, c, d] = [0, 1, 2, 3].map(|order| lanes[order][lane]);
        let [b_of_a, c_of_a, c_of_b, d_of_a, d_of_b, d_of_c] = *factors;
        let terms: [&[(u64, u64)]; 4] = [
            &[(1, a)],
            &[(L, b), (b_of_a, a)],
            &[(L * L, c), (c_of_b, b), (c_of_a, a)],
            &[(L * L * L, d), (d_of_c, c), (d_of_b, b), (d_of_a, a)],
        ];
        for (sum, terms) in sums.iter_mut().zip(terms) {
            for (factor, term) in terms {
                *sum = sum.wrapping_add(factor.wrapping_mul(*term));
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_definition(bytes: &[u8]) -> Sums {
        let [mut a, mut b, mut c, mut d] = [0_u64; 4];
        for word in bytes.as_chunks::<4>().0 {
            a = a.wrapping_add(u64::from(u32::from_le_bytes(*word)));
            b = b.wrapping_add(a);
            c = c.wrapping_add(b);
            d = d.wrapping_add(c);
        }
        [a, b, c, d]
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn streams_side_by_side_make_the_sums_of_the_definition() {
        for length in (0..200).chain([512, 4096, 131_072]) {
            for bytes in [noise(length), vec![0xff; length]] {
                let mut sum = Fletcher4::default();
                sum.add(&bytes);
                assert_eq!(sum.sums(), by_definition(&bytes), "{length} bytes");
                assert_eq!(
                    join(&lanes(&bytes)),
                    by_definition(&bytes[..length / 32 * 32])
                );
            }
        }
    }

    #[test]
    fn pieces_make_the_sums_of_the_whole() {
        let bytes = noise(16 << 10);
        for at in [0, 4, 32, 36, 512, 5000, 16 << 10] {
            let mut sum = Fletcher4::default();
            sum.add(&bytes[..at]);
            sum.add(&bytes[at..]);
            assert_eq!(sum.sums(), by_definition(&bytes), "cut at {at}");
        }
    }
}
