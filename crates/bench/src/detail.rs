//! The parts by themselves, beside nobody: organisations over members of all kinds, with and without NBD,
//! consistencies, pools.

use plexum_runtime::Runtime;

use crate::compare::Step;
use crate::load::Figures;
use crate::row::Row;
use crate::setup::{self, BenchError, Case, Path};
use crate::{BenchOptions, Progress, pool};

/// Measures the groups that are asked for by name.
pub(crate) fn rows(
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, BenchError> {
    let wants = |group: &str| options.groups.iter().any(|name| name == group);
    let mut rows = Vec::new();
    if wants("pool") {
        rows.extend(pool::measure(options)?);
    }
    let mut cases: Vec<(&'static str, Case)> = Vec::new();
    for (group, of_group) in [
        ("direct", setup::cases(Path::Direct)),
        ("nbd", setup::cases(Path::Nbd)),
        ("consistency", setup::consistency_cases()),
    ] {
        if wants(group) {
            cases.extend(of_group.into_iter().map(|case| (group, case)));
        }
    }
    let mut measured: Vec<Vec<Figures>> = cases.iter().map(|_| Vec::new()).collect();
    let total = cases.len() * options.rounds;
    for round in 0..options.rounds {
        for (index, (group, case)) in cases.iter().enumerate() {
            progress(&Step {
                group,
                what: case.label.to_owned(),
                done: round * cases.len() + index,
                total,
                left: None,
            });
            measured[index].push(once(options, case)?);
        }
    }
    setup::remove_files(options);
    let rows_of_cases = cases.iter().zip(measured);
    rows.extend(rows_of_cases.map(|((group, case), figures)| Row::of(case, group, figures)));
    Ok(rows)
}

/// One case, measured once.
pub(crate) fn once(options: &BenchOptions, case: &Case) -> Result<Figures, BenchError> {
    let mut runtime = Runtime::new(options.io).map_err(|error| BenchError(error.to_string()))?;
    let handle = runtime.handle();
    runtime.block_on(setup::measure(handle, case, options))
}
