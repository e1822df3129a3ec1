//! Twelve experiments on a disk, predicted on its simulated twin and then run for real.
//!
//! Invariants:
//! - prediction and run have the same requests, from the same generator and seed;
//! - the run only reads; what is predicted is known before it begins.

use std::time::Duration;

use serde_json::json;

use crate::error::LabError;
use crate::real::RealDisk;
use crate::report::table::Table;
use crate::reproduce::Band;
use crate::setup::Setup;
use crate::work::{Work, measure};
use crate::workload::mixed::{self, Shape};
use crate::workload::{IoRequest, Operation};

/// Workload, length of a request in bytes, processes.
pub const EXPERIMENTS: [(&str, u64, usize); 12] = [
    ("random-read", 4 << 10, 1),
    ("random-read", 4 << 10, 4),
    ("random-read", 4 << 10, 16),
    ("random-read", 64 << 10, 1),
    ("random-read", 64 << 10, 4),
    ("random-read", 1 << 20, 1),
    ("random-read", 1 << 20, 4),
    ("sequential-read", 4 << 10, 1),
    ("sequential-read", 64 << 10, 1),
    ("sequential-read", 1 << 20, 1),
    ("sequential-read", 64 << 10, 4),
    ("sequential-read", 1 << 20, 4),
];

/// Experiments that are to be within [`ERROR_MAX`].
const WITHIN_MIN: usize = 9;
/// Largest error of a prediction that counts as right, as a share of what was measured.
pub const ERROR_MAX: f64 = 0.3;

/// Requests of a process in the prediction; a steady state is reached long before.
const PREDICTED_REQUESTS: u64 = 400;
/// Requests of a process in a real run, which ends earlier by its time.
const REAL_REQUESTS: u64 = 40_000;
/// Time of one real run.
const REAL_TIME: Duration = Duration::from_millis(700);

/// One experiment with its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Workload.
    pub kind: &'static str,
    /// Length of a request.
    pub block_bytes: u64,
    /// Processes.
    pub processes: usize,
    /// Predicted rate, in bytes a second.
    pub predicted_bytes_per_s: f64,
    /// Median of the measured rates.
    pub real_bytes_per_s: f64,
    /// Least and most that was measured.
    pub real_range: (f64, f64),
}

impl Prediction {
    /// Error of the prediction, as a share of what was measured.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.predicted_bytes_per_s / self.real_bytes_per_s.max(1.0) - 1.0
    }

    /// Whether it counts as right.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.error().abs() <= ERROR_MAX
    }
}

/// Predicts all experiments with the preset, then runs each `rounds` times, the rounds interleaved. `tell` gets how
/// many runs are done of how many.
///
/// # Errors
/// `Usage` for a preset that does not exist or a device too small; a read that failed.
pub fn predict(
    preset: &str,
    disk: &RealDisk,
    seed: u64,
    rounds: usize,
    tell: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Prediction>, LabError> {
    let mut predictions = Vec::new();
    let mut runs = Vec::new();
    for (kind, block_bytes, processes) in EXPERIMENTS {
        predictions.push(Prediction {
            kind,
            block_bytes,
            processes,
            predicted_bytes_per_s: rate_of_twin(preset, kind, block_bytes, processes, seed)?,
            real_bytes_per_s: 0.0,
            real_range: (0.0, 0.0),
        });
        runs.push((
            requests(kind, block_bytes, processes, disk, seed)?,
            Vec::new(),
        ));
    }
    let all = rounds * runs.len();
    for round in 0..rounds {
        for index in 0..runs.len() {
            tell(round * runs.len() + index, all);
            let (requests, rates) = &mut runs[index];
            rates.push(disk.run(requests, Some(REAL_TIME))?.bytes_per_s());
        }
    }
    tell(all, all);
    for (prediction, (_, mut rates)) in predictions.iter_mut().zip(runs) {
        rates.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (rates.first(), rates.last()) else {
            return Err(LabError::Usage("at least one round is needed".to_owned()));
        };
        prediction.real_bytes_per_s = rates[rates.len() / 2];
        prediction.real_range = (*least, *most);
    }
    Ok(predictions)
}

fn rate_of_twin(
    preset: &str,
    kind: &str,
    block_bytes: u64,
    processes: usize,
    seed: u64,
) -> Result<f64, LabError> {
    let setup = Setup {
        disks: vec![preset.to_owned()],
        members: 1,
        level: "single".to_owned(),
        ..Setup::default()
    };
    let work = Work {
        kind: kind.to_owned(),
        block_bytes,
        processes,
        requests: PREDICTED_REQUESTS,
        ..Work::default()
    };
    let seen = measure(&setup, &work, seed)?;
    let rate = seen.figures.iter().find(|figure| figure.name == "rate");
    let rate = rate.ok_or_else(|| LabError::Bug(format!("{kind} gives no rate")))?;
    Ok(rate.value * 1024.0)
}

fn requests(
    kind: &str,
    block_bytes: u64,
    processes: usize,
    disk: &RealDisk,
    seed: u64,
) -> Result<Vec<Vec<IoRequest>>, LabError> {
    let shape = Shape {
        operation: Operation::Read,
        read_percent: None,
        is_random: kind == "random-read",
        block_bytes,
        process_count: processes,
        depth: 1,
        request_count: REAL_REQUESTS,
    };
    let processes = mixed::processes(&shape, disk.size_bytes(), seed)?;
    Ok(processes
        .into_iter()
        .map(|process| process.requests.collect())
        .collect())
}

/// How many of them are right, and how many are asked for.
#[must_use]
pub fn band(predictions: &[Prediction]) -> Band {
    Band {
        name: "predictions within 30 %".to_owned(),
        cells: predictions.len(),
        within: predictions.iter().filter(|one| one.is_within()).count(),
        wanted: WITHIN_MIN,
    }
}

/// All of them, right and wrong.
#[must_use]
pub fn table(predictions: &[Prediction]) -> Table {
    let mut table = Table::new(
        "predicted, then run",
        &[
            "workload",
            "block_kib",
            "processes",
            "predicted_mb_per_s",
            "real_mb_per_s",
            "least",
            "most",
            "error_percent",
            "within_30_percent",
        ],
    );
    let tenth = |value: f64| json!((value * 10.0).round() / 10.0);
    let rate = |value: f64| tenth(value / 1e6);
    for one in predictions {
        table.push(vec![
            json!(one.kind),
            json!(one.block_bytes >> 10),
            json!(one.processes),
            rate(one.predicted_bytes_per_s),
            rate(one.real_bytes_per_s),
            rate(one.real_range.0),
            rate(one.real_range.1),
            tenth(one.error() * 100.0),
            json!(if one.is_within() { "yes" } else { "no" }),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_predicted_and_run_and_the_file_is_not_changed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(96 << 20).unwrap();
        let disk = RealDisk::open(file.path()).unwrap();
        let mut told = Vec::new();
        let seen = predict("ssd-sata", &disk, 1, 1, &mut |done, all| {
            told.push((done, all))
        });
        let seen = seen.unwrap();
        assert_eq!(seen.len(), EXPERIMENTS.len());
        for one in &seen {
            assert!(
                one.predicted_bytes_per_s > 0.0 && one.real_bytes_per_s > 0.0,
                "{one:?}"
            );
            assert!(one.real_range.0 <= one.real_bytes_per_s, "{one:?}");
        }
        assert_eq!(told.last(), Some(&(12, 12)));
        assert_eq!(table(&seen).rows.len(), 12);
        use std::os::unix::fs::MetadataExt;
        assert_eq!(
            file.as_file().metadata().unwrap().blocks(),
            0,
            "still a hole"
        );
        assert!(predict("no-such-disk", &disk, 1, 1, &mut |_, _| ()).is_err());
    }

    #[test]
    fn an_error_is_a_share_of_what_was_measured() {
        let one = |predicted: f64, real: f64| Prediction {
            kind: "random-read",
            block_bytes: 4096,
            processes: 1,
            predicted_bytes_per_s: predicted,
            real_bytes_per_s: real,
            real_range: (real, real),
        };
        assert!((one(130e6, 100e6).error() - 0.3).abs() < 1e-9);
        assert!(one(71e6, 100e6).is_within() && !one(69e6, 100e6).is_within());
        assert!(!one(131e6, 100e6).is_within());
    }
}
