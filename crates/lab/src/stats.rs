//! Latencies in classes, and small statistics over repetitions.
//!
//! Invariant: a percentile is exact to one part in 32 (five bits of each latency are kept).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// Bits of a latency that are kept below its highest one.
const KEPT_BITS: u32 = 5;
/// Bits of a latency that a chart shows below its highest one.
const SHOWN_BITS: u32 = 2;

/// A distribution of latencies with the bytes that moved.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    classes: BTreeMap<u64, u64>,
    count: u64,
    bytes: u64,
    sum_ns: u64,
    max_ns: u64,
}

/// What a table shows of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Requests.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// Ninety of a hundred are not slower.
    pub p90_us: f64,
    /// Ninety-nine of a hundred.
    pub p99_us: f64,
    /// 999 of a thousand.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
}

fn class_of(value: u64) -> u64 {
    let bits = 64 - value.leading_zeros();
    let dropped = bits.saturating_sub(KEPT_BITS + 1);
    value >> dropped << dropped
}

impl Latencies {
    /// Adds one request.
    pub fn add(&mut self, took: Duration, length_bytes: u64) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        *self.classes.entry(class_of(ns)).or_default() += 1;
        self.count += 1;
        self.bytes += length_bytes;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds another distribution.
    pub fn merge(&mut self, other: &Latencies) {
        for (class, count) in &other.classes {
            *self.classes.entry(*class).or_default() += count;
        }
        self.count += other.count;
        self.bytes += other.bytes;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The latency that `share` (0 to 1) of the requests did not exceed.
    #[must_use]
    pub fn percentile_us(&self, share: f64) -> f64 {
        let wanted = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (class, count) in &self.classes {
            seen += count;
            if seen >= wanted {
                return *class as f64 / 1e3;
            }
        }
        self.max_ns as f64 / 1e3
    }

    /// Sum of all latencies.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The distribution for a chart: (microseconds, percent that took at most so long), four points for each doubling.
    #[must_use]
    pub fn shares(&self) -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut seen = 0;
        for (class, count) in &self.classes {
            seen += count;
            let bits = 64 - class.leading_zeros();
            let dropped = bits.saturating_sub(SHOWN_BITS + 1);
            let end_us = (((class >> dropped) + 1) << dropped) as f64 / 1e3;
            let share = seen as f64 / self.count as f64 * 100.0;
            match points.last_mut() {
                Some(last) if last.0 == end_us => last.1 = share,
                _ => points.push((end_us, share)),
            }
        }
        points
    }

    /// Lower bounds of the classes with their counts, ascending.
    pub fn classes(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.classes
            .iter()
            .map(|(class, count)| (Duration::from_nanos(*class), *count))
    }

    /// For tables.
    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        if self.count == 0 {
            return LatencySummary::default();
        }
        LatencySummary {
            count: self.count,
            bytes: self.bytes,
            mean_us: self.sum_ns as f64 / self.count as f64 / 1e3,
            p50_us: self.percentile_us(0.5),
            p90_us: self.percentile_us(0.9),
            p99_us: self.percentile_us(0.99),
            p999_us: self.percentile_us(0.999),
            max_us: self.max_ns as f64 / 1e3,
        }
    }
}

/// Mean and spread of repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Number of repetitions.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Half of the 95 % confidence interval of the mean (Student); 0 with a single repetition.
    pub margin: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
}

impl Spread {
    /// Whether it may be as good as `best`: their margins touch.
    #[must_use]
    pub fn is_near(&self, best: &Spread) -> bool {
        self.mean + self.margin >= best.mean - best.margin
    }
}

/// Two-sided 95 % quantiles of Student's t for 1 to 10 degrees of freedom (any table of statistics).
const STUDENT: [f64; 10] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
];

/// Mean and spread of `values`; nothing of nothing.
#[must_use]
pub fn spread(values: &[f64]) -> Spread {
    if values.is_empty() {
        return Spread::default();
    }
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count as f64;
    let margin = if count < 2 {
        0.0
    } else {
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (count - 1) as f64).sqrt();
        STUDENT.get(count - 2).copied().unwrap_or(1.96) * deviation / (count as f64).sqrt()
    };
    Spread {
        count,
        mean,
        margin,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_one_part_in_32() {
        let mut latencies = Latencies::default();
        for us in 1..=1000 {
            latencies.add(Duration::from_micros(us), 512);
        }
        for (share, exact) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0)] {
            let seen = latencies.percentile_us(share);
            assert!(
                (seen - exact).abs() / exact < 1.0 / 32.0 + 0.002,
                "{share}: {seen}"
            );
        }
        assert_eq!(latencies.summary().bytes, 512_000);
    }

    #[test]
    fn the_margin_covers_the_spread_and_one_value_has_none() {
        assert_eq!(spread(&[7.0]).margin, 0.0);
        let seen = spread(&[10.0, 12.0, 11.0, 13.0, 9.0]);
        assert!((seen.mean - 11.0).abs() < 1e-9 && (seen.margin - 1.963).abs() < 0.01);
    }
}
