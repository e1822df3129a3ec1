//! How long a member takes to answer: histograms of the last minutes, and whether it is slow compared with its peers.
//! Pure.
//!
//! Invariants:
//! - a percentile is the upper end of its bucket, at most a quarter above the true value;
//! - old answers are forgotten: only the present period and the one before it count;
//! - a member is slow only beside peers that are not, never by a limit of its own (fail-slow, reliability.md row 14).

use std::cell::Cell;

/// Buckets: four for each power of two, from 256 ns to about nine minutes.
const BUCKETS: usize = 128;
/// Everything below 2^8 ns is in the first bucket.
const FIRST_BIT: u32 = 8;
/// Answers that a member and its peers need before they are compared.
const SAMPLES_MIN: u64 = 100;
/// So many times as slow as its peers is slow, in percent.
const SLOW_PERCENT: u64 = 400;
/// Differences below this are noise, in nanoseconds.
const NOISE_NS: u64 = 2_000_000;

/// Counts of answers by the time they took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u32; BUCKETS],
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            total: 0,
        }
    }
}

#[inline]
fn bucket_of(took_ns: u64) -> usize {
    let value = took_ns.max(1 << FIRST_BIT);
    let bit = value.ilog2();
    let quarter = (value >> (bit - 2)) & 3;
    let index = (bit - FIRST_BIT) as usize * 4 + quarter as usize;
    index.min(BUCKETS - 1)
}

/// Upper end of a bucket in nanoseconds.
fn end_ns(bucket: usize) -> u64 {
    let bit = FIRST_BIT + (bucket / 4) as u32; // at most 39
    (bucket as u64 % 4 + 5) << (bit - 2)
}

impl Histogram {
    /// Counts one answer.
    #[inline]
    pub fn add(&mut self, took_ns: u64) {
        let count = &mut self.counts[bucket_of(took_ns)];
        *count = count.saturating_add(1);
        self.total += 1;
    }

    /// Buckets that are not empty: the upper end in nanoseconds, and how many answers.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let counts = self.counts.iter().copied().enumerate();
        counts
            .filter(|(_, count)| *count > 0)
            .map(|(bucket, count)| (end_ns(bucket), count))
    }
}

/// What a member's answers of the last minutes say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Answers counted.
    pub samples: u64,
    /// Half of them took at most this long, in nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 took at most this long, in nanoseconds.
    pub p99_ns: u64,
}

/// The histograms of the present period and of the one before.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    now: Histogram,
    before: Histogram,
    /// The 99th percentile, reckoned anew when so many samples are there: every read asks for it.
    p99_ns: Cell<u64>,
    p99_again_at: Cell<u64>,
}

/// So many more samples, as a part of those there are, may move the 99th percentile by less than it is worth.
const P99_GROWTH_PART: u64 = 64;

impl Recent {
    /// Counts one answer.
    #[inline]
    pub fn add(&mut self, took_ns: u64) {
        self.now.add(took_ns);
    }

    /// A period has ended.
    pub fn rotate(&mut self) {
        self.before = std::mem::take(&mut self.now);
        self.p99_again_at.set(0);
    }

    /// Answers counted in both periods.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.now.total + self.before.total
    }

    /// 99 of 100 took at most this long, in nanoseconds; reckoned when the number of answers has grown by a 64th.
    #[must_use]
    pub fn p99_ns(&self) -> u64 {
        let samples = self.samples();
        if samples >= self.p99_again_at.get() {
            self.p99_ns.set(self.percentile_ns(99));
            self.p99_again_at
                .set(samples + samples / P99_GROWTH_PART + 1);
        }
        self.p99_ns.get()
    }

    /// Both periods together.
    #[must_use]
    pub fn whole(&self) -> Histogram {
        let mut whole = self.now.clone();
        for (count, more) in whole.counts.iter_mut().zip(self.before.counts) {
            *count = count.saturating_add(more);
        }
        whole.total += self.before.total;
        whole
    }

    /// The percentiles.
    #[must_use]
    pub fn latency(&self) -> Latency {
        Latency {
            samples: self.samples(),
            p50_ns: self.percentile_ns(50),
            p99_ns: self.percentile_ns(99),
        }
    }

    fn percentile_ns(&self, percent: u64) -> u64 {
        let wanted = (self.samples() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let both = self.now.counts.iter().zip(&self.before.counts);
        for (bucket, (now, before)) in both.enumerate() {
            seen += u64::from(*now) + u64::from(*before);
            if seen >= wanted {
                return end_ns(bucket);
            }
        }
        0
    }
}

/// A member beside its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// How long it takes, in percent of what its peers take in the middle.
    pub percent: u64,
    /// Whether that is slow.
    pub is_slow: bool,
}

/// Compares a member with its peers; `None` while too little is known of it or of them.
#[must_use]
pub fn compare(own: Latency, peers: &[Latency]) -> Option<Comparison> {
    let known = peers.iter().filter(|peer| peer.samples >= SAMPLES_MIN);
    let known: Vec<&Latency> = known.collect();
    if own.samples < SAMPLES_MIN || known.is_empty() {
        return None;
    }
    let middle = |of: fn(&Latency) -> u64| {
        let mut values: Vec<u64> = known.iter().map(|peer| of(peer)).collect();
        values.sort_unstable();
        values[values.len() / 2].max(1)
    };
    let one = |own_ns: u64, peers_ns: u64| Comparison {
        percent: own_ns.saturating_mul(100) / peers_ns,
        is_slow: own_ns.saturating_mul(100) / peers_ns >= SLOW_PERCENT
            && own_ns.saturating_sub(peers_ns) >= NOISE_NS,
    };
    let halves = one(own.p50_ns, middle(|peer| peer.p50_ns));
    let tails = one(own.p99_ns, middle(|peer| peer.p99_ns));
    Some(Comparison {
        percent: halves.percent.max(tails.percent),
        is_slow: halves.is_slow || tails.is_slow,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_that_ends_at_most_a_quarter_above_it() {
        for bit in FIRST_BIT..39 {
            for part in 0..64u64 {
                let value = (1 << bit) + part * (1 << (bit - 6));
                let end = end_ns(bucket_of(value));
                assert!(end > value && end <= value + value / 4, "{value} in {end}");
            }
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    fn latency(of: &[(u64, u64)]) -> Latency {
        let mut recent = Recent::default();
        for (took_ns, count) in of {
            for _ in 0..*count {
                recent.add(*took_ns);
            }
        }
        recent.latency()
    }

    #[test]
    fn percentiles_come_from_two_periods_and_older_answers_are_forgotten() {
        let mut recent = Recent::default();
        assert_eq!(recent.latency(), Latency::default());
        (0..98).for_each(|_| recent.add(1000));
        recent.rotate();
        (0..2).for_each(|_| recent.add(1_000_000));
        let found = recent.latency();
        assert_eq!(found.samples, 100);
        assert!((1000..1251).contains(&found.p50_ns), "{found:?}");
        assert!((1_000_000..1_250_001).contains(&found.p99_ns), "{found:?}");
        recent.rotate();
        assert_eq!(recent.latency().samples, 2);
        recent.rotate();
        assert_eq!(recent.latency().samples, 0);
    }

    #[test]
    fn a_member_is_slow_only_beside_faster_peers() {
        let (fast, slow) = (latency(&[(100_000, 200)]), latency(&[(30_000_000, 200)]));
        assert!(compare(slow, &[fast, fast]).unwrap().is_slow);
        assert!(!compare(slow, &[slow, slow]).unwrap().is_slow);
        assert!(!compare(fast, &[slow, fast]).unwrap().is_slow);
        // Only its slowest answers are slow: the tail tells.
        let tail = latency(&[(100_000, 190), (30_000_000, 10)]);
        assert!(compare(tail, &[fast, fast, fast]).unwrap().is_slow);
        // Many times as slow as nothing is noise.
        let noise = latency(&[(5_000, 200)]);
        assert!(
            !compare(latency(&[(50_000, 200)]), &[noise])
                .unwrap()
                .is_slow
        );
        assert_eq!(compare(latency(&[(1000, 99)]), &[fast]), None);
        assert_eq!(compare(fast, &[latency(&[(1000, 99)])]), None);
        assert_eq!(compare(fast, &[]), None);
    }
}
