//! The cells of the coverage matrix: which stages of requests, faults and crashes can meet on which organisation.
//!
//! Invariant: a cell is either expected to be met, or it is in the table of impossible ones with its reason, and then a
//! run that meets it all the same has found the table wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::spec::Level;

/// Stages of requests, as the engine names them, in the usual order; `idle` is when there is no request.
pub const STAGES: [&str; 9] = [
    "idle",
    "dirty-mark",
    "bit-mark",
    "lock",
    "read",
    "log",
    "write",
    "flush",
    "settle",
];

/// Faults that requests can meet.
///
/// Silent ones (`SILENT`) meet none: nobody notices when they strike. They are counted by what scrub and repair make of
/// them, one by one, on every level.
pub const FAULTS: [&str; 9] = [
    "read-error",
    "write-error",
    "torn-write",
    "flush-error",
    "no-space",
    "retryable",
    "slow",
    "hang",
    "vanish",
];

/// Faults that are judged by scrub and repair.
pub const SILENT: [&str; 3] = ["bit-flip", "lost-write", "misdirected-write"];

/// Kinds of crashes.
pub const CRASHES: [&str; 2] = ["kill", "power-cut"];

/// A stage that no request of a level is ever in, and why.
pub type Impossible = (&'static str, &'static str);

const NOWHERE: Impossible = (
    "received",
    "a request leaves it in the poll that it comes in, so nothing can happen there",
);
const NOT_WITHOUT_REDUNDANCY: &[Impossible] = &[
    (
        "dirty-mark",
        "nothing has to agree with anything, so nothing is marked as perhaps not agreeing",
    ),
    (
        "bit-mark",
        "a bitmap says where a resync has to go, and there is none",
    ),
    (
        "lock",
        "every byte has one place, and no request reads what another one computes with",
    ),
    ("log", "there is no parity that could be torn from its data"),
    (
        "settle",
        "a failed member ends the volume: there are no others that would have to know before an answer",
    ),
];
const NOT_ON_COPIES: &[Impossible] = &[(
    "log",
    "a stripe log belongs to parity; copies that differ are made equal when they are read (W6)",
)];

/// Stages that no request of this level is ever in.
#[must_use]
pub fn impossible(level: Level) -> &'static [Impossible] {
    match level {
        Level::Linear | Level::Raid0 => NOT_WITHOUT_REDUNDANCY,
        Level::Raid1 | Level::Raid10 => NOT_ON_COPIES,
        Level::Raid4 | Level::Raid5 | Level::Raid6 => &[],
    }
}

/// Stages that requests of this level can be in.
#[must_use]
pub fn stages(level: Level) -> Vec<&'static str> {
    let never = impossible(level);
    let is_possible = |stage: &&str| !never.iter().any(|(name, _)| name == stage);
    STAGES.into_iter().filter(is_possible).collect()
}

/// Whether a fault has struck when a request was in this stage, and in some life a crash has come in it after the
/// fault.
pub(crate) fn is_met(
    matrix: &BTreeMap<String, u64>,
    level: Level,
    stage: &str,
    fault: &str,
    crash: &str,
) -> bool {
    let has = |crash: &str| matrix.contains_key(&format!("{level} / {stage} / {fault} / {crash}"));
    has("none") && has(crash)
}

/// What a run has met although the table says that it cannot be: `level / stage: reason`, each once.
pub(crate) fn contradicted(matrix: &BTreeMap<String, u64>) -> Vec<String> {
    let mut met = BTreeSet::new();
    for level in Level::ALL {
        for (stage, reason) in impossible(level).iter().chain([&NOWHERE]) {
            let start = format!("{level} / {stage} / ");
            if matrix.keys().any(|cell| cell.starts_with(&start)) {
                met.insert(format!("{level} / {stage}: {reason}"));
            }
        }
    }
    met.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_of_the_engine_is_in_the_matrix_or_left_out_with_a_reason() {
        for stage in plexum_engine::stage::Stage::ALL {
            assert!(STAGES.contains(&stage.name()) || stage.name() == NOWHERE.0);
        }
        for level in Level::ALL {
            let never = impossible(level);
            assert_eq!(stages(level).len() + never.len(), STAGES.len());
            assert!(never.iter().all(|(_, reason)| reason.len() > 20));
        }
    }

    #[test]
    fn a_cell_of_the_table_that_is_met_contradicts_it() {
        let cell = |text: &str| BTreeMap::from([(text.to_owned(), 1)]);
        assert_eq!(contradicted(&cell("raid5 / log / hang / kill")).len(), 0);
        assert_eq!(contradicted(&cell("raid1 / log / hang / kill")).len(), 1);
        assert_eq!(contradicted(&cell("raid0 / lock / none / kill")).len(), 1);
        assert_eq!(
            contradicted(&cell("raid6 / received / slow / none")).len(),
            1
        );
    }

    #[test]
    fn a_cell_is_met_when_its_fault_struck_in_the_stage_and_its_crash_came_there() {
        let met = |crashes: &[&str]| {
            let cell = |crash: &&str| (format!("raid5 / log / hang / {crash}"), 1);
            let matrix = crashes.iter().map(cell).collect();
            is_met(&matrix, Level::Raid5, "log", "hang", "kill")
        };
        assert!(met(&["none", "kill"]));
        assert!(!met(&["none", "power-cut"]) && !met(&["kill"]) && !met(&[]));
    }
}
