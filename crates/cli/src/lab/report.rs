//! `plexum lab report`: what results say, on the screen and as files.

use std::io::ErrorKind;
use std::path::Path;

use plexum_lab::error::LabError;
use plexum_lab::experiment::{RunResult, name_of, read_results};
use plexum_lab::program::fio_file;
use plexum_lab::report::page;
use plexum_lab::report::results as rows;
use plexum_lab::sensitivity;
use serde_json::json;

use super::{problem, read_text, write_file};
use crate::args::Common;
use crate::args::lab::Report;
use crate::errors::Outcome;
use crate::output::{Screen, object};

/// `plexum lab report`.
///
/// # Errors
/// `Usage` without an experiment or fio's figures; of reading and writing.
pub(super) fn run(args: &Report, common: &Common, screen: &Screen) -> Outcome {
    if common.dry_run && !args.no_files {
        screen.note(format!(
            "would write a report into {}",
            args.folder.display()
        ));
    }
    let text = match std::fs::read_to_string(args.folder.join("experiment.toml")) {
        // Figures of fio can stand alone.
        Err(error) if error.kind() == ErrorKind::NotFound && !args.fio.is_empty() => String::new(),
        _ => read_text(&args.folder.join("experiment.toml"))?,
    };
    let told = |error: LabError| problem(&error);
    let mut results = read_results(&args.folder).map_err(told)?;
    let own = results.len();
    for path in &args.fio {
        let result = fio_file::read(path, &results[..own]).map_err(told)?;
        results.push(result);
    }
    let wanted = match args.no_files || common.dry_run {
        true => Written::Nothing,
        false => Written::Files,
    };
    show_results(&args.folder, &text, &results, wanted, screen)
}

/// What a report leaves in its folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Nothing,
    Files,
}

/// The report of an experiment in its folder, and on the screen.
///
/// # Errors
/// Of reading and writing.
pub(super) fn show(folder: &Path, screen: &Screen) -> Outcome {
    let text = read_text(&folder.join("experiment.toml"))?;
    let results = read_results(folder).map_err(|error| problem(&error))?;
    show_results(folder, &text, &results, Written::Files, screen)
}

fn show_results(
    folder: &Path,
    text: &str,
    results: &[RunResult],
    wanted: Written,
    screen: &Screen,
) -> Outcome {
    let name = name_of(text).unwrap_or_else(|| folder.display().to_string());
    let changed = sensitivity::read(folder).map_err(|error| problem(&error))?;
    let report = page::Report::of(&name, text, results, changed);
    for comparison in report.comparisons() {
        screen.object(&object(
            "lab_answer",
            None,
            json!({"figure": comparison.title, "unit": comparison.unit, "answer": comparison.answer(),
                "rows": comparison.table().objects().collect::<Vec<_>>()}),
        ));
    }
    screen.line(report.text().trim_end());
    if wanted == Written::Nothing {
        return Ok(0);
    }
    let mut files = vec![
        ("report.html".to_owned(), report.html()),
        ("report.md".to_owned(), report.markdown()),
    ];
    files.extend(report.files());
    let rows = rows::table(results);
    files.push(("results.csv".to_owned(), rows.csv()));
    for (file, content) in files {
        write_file(&folder.join(file), content.as_bytes())?;
    }
    #[cfg(feature = "parquet")]
    {
        let content = plexum_lab::report::parquet::file(&rows, &rows::COLUMNS)
            .map_err(|error| problem(&error))?;
        write_file(&folder.join("results.parquet"), &content)?;
    }
    screen.note(format!("report: {}", folder.join("report.html").display()));
    Ok(0)
}
