//! Speed of the engine by organisation: null, memory and file members, with and without NBD.
//!
//! Invariants:
//! - the measured engine is the one that serves: same volume, same formats, same runtime;
//! - CPU time per I/O is the headline (performance.md): it includes the load generator, and with NBD both ends;
//! - a figure is the median of the rounds, and rounds of all rows are interleaved.
#![forbid(unsafe_code)]

mod device;
mod load;
mod parity;
mod pool;
mod row;
mod setup;

pub use load::Pattern;
pub use row::{Row, table};
pub use setup::{BenchError, MemberKind, Path};

use plexum_runtime::{IoChoice, Runtime};
use setup::Case;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Groups by name: `engine`, `nbd`, `consistency`, `parity`, `pool`; empty: all.
    pub groups: Vec<String>,
    /// Rounds of each row.
    pub rounds: usize,
    /// Milliseconds of one measurement.
    pub millis: u64,
    /// Reactor.
    pub io: IoChoice,
    /// Folder for file members.
    pub folder: std::path::PathBuf,
}

/// The groups that can be asked for.
pub const GROUPS: &[&str] = &["engine", "nbd", "consistency", "parity", "pool"];

/// Measures and returns the rows. `progress` hears (done, all) after each measurement.
///
/// # Errors
/// `BenchError` when a group is unknown, the runtime cannot start or a volume cannot be made.
pub fn run(
    options: &BenchOptions,
    mut progress: impl FnMut(usize, usize),
) -> Result<Vec<Row>, BenchError> {
    for group in &options.groups {
        if !GROUPS.contains(&group.as_str()) {
            return Err(BenchError(format!(
                "no group {group}: the groups are {}",
                GROUPS.join(", ")
            )));
        }
    }
    let wants =
        |group: &str| options.groups.is_empty() || options.groups.iter().any(|name| name == group);
    let mut rows = Vec::new();
    if wants("parity") {
        rows.extend(parity::measure(options.rounds, options.millis));
    }
    if wants("pool") {
        rows.extend(pool::measure(options)?);
    }
    let mut cases: Vec<Case> = Vec::new();
    for path in [Path::Direct, Path::Nbd] {
        if wants(if path == Path::Direct {
            "engine"
        } else {
            "nbd"
        }) {
            cases.extend(setup::cases(path));
        }
    }
    let others = cases.len();
    if wants("consistency") {
        cases.extend(setup::consistency_cases());
    }
    let mut measured: Vec<Vec<row::Figures>> = cases.iter().map(|_| Vec::new()).collect();
    let total = cases.len() * options.rounds;
    for round in 0..options.rounds {
        for (index, case) in cases.iter().enumerate() {
            let mut runtime =
                Runtime::new(options.io).map_err(|error| BenchError(error.to_string()))?;
            let handle = runtime.handle();
            measured[index].push(runtime.block_on(setup::measure(handle, case, options))?);
            progress(round * cases.len() + index + 1, total);
        }
    }
    setup::remove_files(options);
    rows.extend(
        cases
            .iter()
            .zip(measured)
            .enumerate()
            .map(|(index, (case, figures))| {
                let group = (index >= others).then_some("consistency");
                Row::of(case, group, figures)
            }),
    );
    Ok(rows)
}
