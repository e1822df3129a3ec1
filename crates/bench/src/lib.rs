//! Speed of the engine by organisation: null, memory and file members, with and without NBD.
//!
//! Invariants:
//! - the measured engine is the one that serves: same volume, same formats, same runtime;
//! - CPU time per I/O is the headline (performance.md): it includes the load generator, and with NBD both ends;
//! - a figure is the median of the rounds, and rounds of all rows are interleaved.
#![forbid(unsafe_code)]

mod bare;
mod chart;
mod client;
mod compare;
mod cores;
mod detail;
mod device;
mod engine;
mod folder;
mod goals;
mod layers;
mod line;
mod load;
mod log;
mod machine;
mod made_pool;
mod owner;
mod parity;
mod pool;
mod process;
mod ratios;
mod row;
mod served;
mod setup;
mod start;
mod upkeep;
mod zfs;

pub use bare::serve as serve_bare;
pub use chart::chart;
pub use compare::{Skipped, Step};
pub use goals::{Better, Verdict};
pub use line::{Held, Line, PeerFigure, goals_markdown, goals_table, tally};
pub use load::Pattern;
pub use machine::Machine;
pub use row::{Row, table};
pub use setup::{BenchError, MemberKind, Path};

use compare::Samples;
use plexum_runtime::IoChoice;
use upkeep::Work;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Groups by name, of [`GROUPS`] or [`DETAILS`]; empty: all of [`GROUPS`] but `ratios`.
    pub groups: Vec<String>,
    /// Rounds of each line.
    pub rounds: usize,
    /// Milliseconds of one measurement.
    pub millis: u64,
    /// Reactor.
    pub io: IoChoice,
    /// Folder for members in files; none: memory as a file system, or the folder for temporary files.
    pub folder: Option<std::path::PathBuf>,
    /// Folder for members in files that are opened past the page cache; none: the one for temporary files that survive
    /// a restart.
    pub disk_folder: Option<std::path::PathBuf>,
    /// The `plexum` that is measured as a process of its own.
    pub program: std::path::PathBuf,
}

/// Hears what is measured next.
pub type Progress<'a> = dyn FnMut(&Step) + 'a;

/// Groups of the table of goals.
pub const GROUPS: &[&str] = &[
    "parity", "engine", "cores", "served", "scrub", "rebuild", "start", "daemon", "log", "zfs",
    "ratios",
];

/// Those of them that are measured only when they are asked for by name: they write gigabytes to a disk each round.
const HEAVY: &[&str] = &["ratios"];

/// Groups that show the parts by themselves, beside nobody.
pub const DETAILS: &[&str] = &["direct", "nbd", "consistency", "pool"];

/// What was measured.
#[derive(Debug)]
pub struct Report {
    /// On what.
    pub machine: Machine,
    /// The table of goals.
    pub lines: Vec<Line>,
    /// The details.
    pub rows: Vec<Row>,
    /// Who was not measured, and why.
    pub skipped: Vec<Skipped>,
}

/// Measures. `progress` hears of each measurement before it begins.
///
/// # Errors
/// `BenchError` when a group is unknown, the runtime cannot start or members cannot be made; a contestant that fails is
/// in [`Report::skipped`].
pub fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Report, BenchError> {
    let all = || GROUPS.iter().chain(DETAILS);
    if let Some(group) = options
        .groups
        .iter()
        .find(|group| !all().any(|known| known == group))
    {
        let known: Vec<&str> = all().copied().collect();
        return Err(BenchError(format!(
            "no group {group}: the groups are {}",
            known.join(", ")
        )));
    }
    let mut report = Report {
        machine: Machine::look(),
        lines: Vec::new(),
        rows: detail::rows(options, progress)?,
        skipped: Vec::new(),
    };
    for &group in GROUPS {
        let is_asked_for = options.groups.iter().any(|name| name == group);
        let is_usual = options.groups.is_empty() && !HEAVY.contains(&group);
        if !is_asked_for && !is_usual {
            continue;
        }
        let mut samples = Samples::default();
        let to = &mut samples;
        match group {
            "parity" => parity::measure(options, to, progress)?,
            "engine" => engine::measure(options, to, progress),
            "cores" => cores::measure(options, to, progress)?,
            "scrub" => upkeep::measure("scrub", Work::Scrub, options, to, progress)?,
            "rebuild" => upkeep::measure("rebuild", Work::Rebuild, options, to, progress)?,
            "start" => start::measure(options, to, progress)?,
            "daemon" => owner::measure(options, to, progress)?,
            "log" => log::measure(to, progress)?,
            "zfs" => zfs::measure(options, to, progress),
            "ratios" => ratios::measure(options, to, progress),
            _ => served::measure(options, to, progress)?,
        }
        report.lines.extend(line::lines(group, &samples));
        report.skipped.append(&mut samples.skipped);
    }
    Ok(report)
}
