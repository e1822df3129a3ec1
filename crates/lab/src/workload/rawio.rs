//! rawio: so many processes on a raw device; random read, sequential read, random write, sequential write.
//!
//! Its source could not be found. What is known: eight processes, four tests, results in K/s and transfers/s, lengths
//! of 1 to 120 sectors with a mean of about 8 kB in its author's measurements (lab.md 5).
//!
//! Invariants:
//! - in the sequential tests each process stays in its own N-th of the device;
//! - no request leaves the device.

use plexum_disks::rng::Rng;

use super::{IoRequest, Operation, Process};
use crate::error::LabError;

/// Unit of lengths and offsets.
const SECTOR_BYTES: u64 = 512;
/// Longest request of the default mix, in sectors: 1 to 31, mean 16 (8 kB).
const UNIFORM_SECTORS: u64 = 31;
/// Longest request of the mix of the Vinum measurements, in sectors.
const VINUM_SECTORS: u64 = 120;

/// Lengths of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// 1 to 31 sectors, all alike.
    Uniform,
    /// 1 to 120 sectors, geometric, mean 16.
    Vinum,
    /// Always the same.
    Fixed {
        /// Length in sectors.
        length_sectors: u64,
    },
}

/// The four tests, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Anywhere.
    RandomRead,
    /// Each process forward in its own part.
    SequentialRead,
    /// Anywhere.
    RandomWrite,
    /// Each process forward in its own part.
    SequentialWrite,
}

impl Test {
    /// All, in the order of the program.
    pub const ALL: [Test; 4] = [
        Test::RandomRead,
        Test::SequentialRead,
        Test::RandomWrite,
        Test::SequentialWrite,
    ];

    /// As the head of its column.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Test::RandomRead => "Random read",
            Test::SequentialRead => "Sequential read",
            Test::RandomWrite => "Random write",
            Test::SequentialWrite => "Sequential write",
        }
    }

    fn operation(self) -> Operation {
        match self {
            Test::RandomRead | Test::SequentialRead => Operation::Read,
            Test::RandomWrite | Test::SequentialWrite => Operation::Write,
        }
    }

    fn is_random(self) -> bool {
        matches!(self, Test::RandomRead | Test::RandomWrite)
    }
}

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Rawio {
    /// Processes.
    pub process_count: usize,
    /// Requests of each process in each test.
    pub request_count: u64,
    /// Lengths.
    pub mix: Mix,
    /// Seed of offsets and lengths.
    pub seed: u64,
}

impl Default for Rawio {
    fn default() -> Self {
        Self {
            process_count: 8,
            request_count: 500,
            mix: Mix::Uniform,
            seed: 1,
        }
    }
}

/// The ratio of the geometric distribution, truncated at 120, whose mean is 16: solved once by bisection.
fn vinum_ratio() -> f64 {
    let mean = |ratio: f64| {
        let (mut weight, mut sum, mut weights) = (1.0, 0.0, 0.0);
        for length in 1..=VINUM_SECTORS {
            sum += weight * length as f64;
            weights += weight;
            weight *= ratio;
        }
        sum / weights
    };
    let (mut low, mut high) = (0.5, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if mean(middle) < 16.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// Draws lengths.
struct Lengths {
    mix: Mix,
    /// Cumulative weights, scaled to 2^32, of the geometric mix.
    steps: Vec<u64>,
}

impl Lengths {
    fn new(mix: Mix) -> Self {
        let mut steps = Vec::new();
        if mix == Mix::Vinum {
            let ratio = vinum_ratio();
            let (mut weight, mut sum) = (1.0, 0.0);
            let mut sums = Vec::new();
            for _ in 0..VINUM_SECTORS {
                sum += weight;
                sums.push(sum);
                weight *= ratio;
            }
            steps = sums
                .iter()
                .map(|part| (part / sum * f64::from(u32::MAX)) as u64)
                .collect();
        }
        Self { mix, steps }
    }

    fn draw_sectors(&self, rng: &mut Rng) -> u64 {
        match self.mix {
            Mix::Uniform => rng.between(1, UNIFORM_SECTORS),
            Mix::Fixed { length_sectors } => length_sectors.max(1),
            Mix::Vinum => {
                let draw = rng.below(u64::from(u32::MAX));
                let below = self.steps.partition_point(|step| *step <= draw) as u64;
                (below + 1).min(VINUM_SECTORS)
            }
        }
    }

    fn max_sectors(&self) -> u64 {
        match self.mix {
            Mix::Uniform => UNIFORM_SECTORS,
            Mix::Vinum => VINUM_SECTORS,
            Mix::Fixed { length_sectors } => length_sectors.max(1),
        }
    }
}

impl Rawio {
    /// The processes of one test on a device of `size_bytes`.
    ///
    /// # Errors
    /// `Usage` when the device is too small for so many processes.
    pub fn processes(&self, test: Test, size_bytes: u64) -> Result<Vec<Process>, LabError> {
        let sectors = size_bytes / SECTOR_BYTES;
        let longest = Lengths::new(self.mix).max_sectors();
        let share = sectors / self.process_count.max(1) as u64;
        if self.process_count == 0 || share < longest {
            return Err(LabError::Usage(format!(
                "rawio: {} processes need {} bytes each, the device has {size_bytes}",
                self.process_count,
                longest * SECTOR_BYTES
            )));
        }
        let base = Rng::new(self.seed).fork(test as u64);
        Ok((0..self.process_count as u64)
            .map(|process| {
                let rng = base.fork(process);
                Process::single(self.stream(test, sectors, share * process, share, rng))
            })
            .collect())
    }

    fn stream(
        &self,
        test: Test,
        sectors: u64,
        begin: u64,
        share: u64,
        mut rng: Rng,
    ) -> impl Iterator<Item = IoRequest> + use<> {
        let lengths = Lengths::new(self.mix);
        let mut next = begin;
        (0..self.request_count).map(move |_| {
            let length = lengths.draw_sectors(&mut rng);
            let at = if test.is_random() {
                rng.below(sectors - length + 1)
            } else {
                if next + length > begin + share {
                    next = begin;
                }
                next += length;
                next - length
            };
            IoRequest {
                operation: test.operation(),
                offset_bytes: at * SECTOR_BYTES,
                length_bytes: length * SECTOR_BYTES,
                think_ns: 0,
            }
        })
    }
}

/// The classic look: one line for each volume, K/s and transfers/s for each test.
#[must_use]
pub fn classic(rows: &[(String, [(f64, f64); 4])]) -> String {
    let mut text = String::from(
        "           Random read  Sequential read    Random write Sequential write\n\
         ID          K/sec  /sec    K/sec  /sec     K/sec  /sec     K/sec  /sec\n\n",
    );
    for (name, figures) in rows {
        let mut line = format!("{name:<10}");
        for (index, (kib_per_s, per_s)) in figures.iter().enumerate() {
            let width = if index == 0 { 7 } else { 10 };
            line += &format!("{kib_per_s:width$.1} {per_s:5.0}");
        }
        text += &line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(rawio: &Rawio, test: Test, size_bytes: u64) -> Vec<Vec<IoRequest>> {
        let processes = rawio.processes(test, size_bytes).unwrap();
        processes
            .into_iter()
            .map(|process| process.requests.collect())
            .collect()
    }

    #[test]
    fn the_mixes_have_a_mean_of_eight_kilobytes_within_their_bounds() {
        for (mix, longest) in [(Mix::Uniform, 31), (Mix::Vinum, 120)] {
            let rawio = Rawio {
                request_count: 20_000,
                process_count: 1,
                mix,
                seed: 3,
            };
            let requests = &all(&rawio, Test::RandomRead, 1 << 30)[0];
            let sectors: Vec<u64> = requests.iter().map(|r| r.length_bytes / 512).collect();
            let mean = sectors.iter().sum::<u64>() as f64 / sectors.len() as f64;
            assert!((mean - 16.0).abs() < 0.4, "{mix:?}: {mean}");
            let max = *sectors.iter().max().unwrap();
            assert!(max <= longest && max > longest * 4 / 5, "{mix:?}: {max}");
            assert_eq!(*sectors.iter().min().unwrap(), 1);
        }
    }

    #[test]
    fn each_process_goes_forward_in_its_own_part() {
        let rawio = Rawio::default();
        let size = 64 << 20;
        for (number, requests) in all(&rawio, Test::SequentialWrite, size).iter().enumerate() {
            let part = size / 8;
            let (low, high) = (number as u64 * part, (number as u64 + 1) * part);
            assert_eq!(requests.len(), 500);
            for pair in requests.windows(2) {
                let end = pair[0].offset_bytes + pair[0].length_bytes;
                assert!(pair[1].offset_bytes == end || pair[1].offset_bytes == low);
            }
            assert!(requests.iter().all(|r| r.offset_bytes >= low
                && r.offset_bytes + r.length_bytes <= high
                && r.operation == Operation::Write));
        }
    }

    #[test]
    fn random_requests_stay_on_the_device_and_the_seed_decides() {
        let rawio = Rawio::default();
        let size = 10 << 20;
        let once = all(&rawio, Test::RandomRead, size);
        assert!(
            once.iter()
                .flatten()
                .all(|r| r.offset_bytes + r.length_bytes <= size)
        );
        assert_eq!(once, all(&rawio, Test::RandomRead, size));
        let other = Rawio { seed: 2, ..rawio };
        assert_ne!(once, all(&other, Test::RandomRead, size));
    }

    #[test]
    fn a_device_too_small_is_refused() {
        assert!(
            Rawio::default()
                .processes(Test::RandomRead, 8 * 512)
                .is_err()
        );
    }
}
