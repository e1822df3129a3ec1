//! `plexum lab`: experiments in virtual time, published tables, balance policies, reports.

mod real;
mod report;
mod work;

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::runtime_dir::Surroundings;
use plexum_lab::balance as policies;
use plexum_lab::build::Workshop;
use plexum_lab::error::LabError;
use plexum_lab::experiment::{Experiment, read_results};
use plexum_lab::iostat;
use plexum_lab::preset::presets;
use plexum_lab::report::table::Table;
use plexum_lab::reproduce::{self, Band, Reproduction, cells_table, effects_table};
use plexum_lab::sensitivity;
use serde_json::json;

use crate::args::Common;
use crate::args::lab::{Balance, Lab, LabCommand, Reproduce, RunFile};
use crate::control::runtime_dir;
use crate::errors::Outcome;
use crate::output::{Color, Screen, object};
use crate::units::show_seconds;

pub(crate) fn problem(error: &LabError) -> Problem {
    match error {
        LabError::Usage(text) | LabError::Skipped(text) => Problem::new(Code::Usage, text.clone()),
        LabError::Io(text) | LabError::MemberLost(text) => Problem::new(Code::IoError, text.clone()),
        LabError::WouldDestroy(text) => Problem::new(Code::WouldDestroy, text.clone())
            .hint("when it may be lost, name it a second time: --destroy, and the same words as after --on"),
        LabError::Interrupted => Problem::new(Code::IoError, "interrupted; what was made for the workload is removed"),
        other => Problem::new(Code::Bug, other.to_string()),
    }
}

/// Runs the command.
///
/// # Errors
/// `Usage` for an arrangement that cannot be.
pub fn run(args: &Lab, common: &Common, screen: &Screen) -> Outcome {
    match &args.command {
        LabCommand::Work(args) => work::run(args, common, screen),
        LabCommand::Reproduce(args) => reproduce(args, common, screen),
        LabCommand::Balance(args) => balance(args, screen),
        LabCommand::Run(args) => run_file(args, common, screen),
        LabCommand::Report(args) => report::run(args, common, screen),
        LabCommand::Calibrate(args) => real::calibrate(args, common, screen),
        LabCommand::Predict(args) => real::predict(args, screen),
        LabCommand::Presets => list_presets(screen),
    }
}

/// How far a measurement is, in steps, and how long the others will take; a bar on a terminal.
struct Steps {
    bar: Option<ProgressBar>,
    /// Steps that were done before this start.
    before: u64,
    started: Instant,
}

impl Steps {
    fn new(word: &str, screen: &Screen) -> Self {
        let shows = !screen.is_quiet && !screen.is_json && std::io::stderr().is_terminal();
        let bar = shows.then(|| {
            let style = ProgressStyle::with_template("{msg}[{bar:30}] {prefix}")
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("#>-");
            let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
            bar.with_style(style).with_message(word.to_owned())
        });
        Self {
            bar,
            before: 0,
            started: Instant::now(),
        }
    }

    /// The same with steps that an earlier start has done: they say nothing about how long the others take.
    fn after(self, before: u64) -> Self {
        Self { before, ..self }
    }

    fn tell(&self, done: u64, all: u64) {
        let Some(bar) = &self.bar else {
            return;
        };
        let left = seconds_left(
            self.started.elapsed(),
            done.saturating_sub(self.before),
            all - done.min(all),
        );
        bar.set_length(all);
        bar.set_position(done);
        bar.set_prefix(format!("{done} of {all}{left}"));
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How long `left` steps will take when `done` have taken so long; nothing before the first one.
fn seconds_left(spent: Duration, done: u64, left: u64) -> String {
    if done == 0 {
        return String::new();
    }
    let seconds = spent.as_secs_f64() / done as f64 * left as f64;
    format!(", {} left", show_seconds(seconds.ceil() as u64))
}

/// Prints a table in the look that was asked for; JSON lines with `--json`.
fn print(table: &Table, kind: &str, format: &str, screen: &Screen) -> Result<(), Problem> {
    if screen.is_json {
        for fields in table.objects() {
            screen.object(&object(kind, None, fields));
        }
        return Ok(());
    }
    let text = match format {
        "text" => table.text(),
        "csv" => table.csv(),
        "json" => table.json_lines(),
        "markdown" => table.markdown(),
        other => {
            return Err(Problem::new(
                Code::Usage,
                format!("\"{other}\" is no format: text, csv, json or markdown"),
            ));
        }
    };
    screen.line(text.trim_end());
    Ok(())
}

fn list_presets(screen: &Screen) -> Outcome {
    let mut table = Table::new("", &["preset", "stands for", "chosen to fit"]);
    for preset in presets() {
        table.push(vec![
            json!(preset.name),
            json!(preset.about),
            json!(preset.fitted),
        ]);
    }
    print(&table, "lab_preset", "text", screen)?;
    Ok(0)
}

fn reproduce(args: &Reproduce, common: &Common, screen: &Screen) -> Outcome {
    let seeds = args.seeds.unwrap_or(if args.check { 5 } else { 1 });
    let shows = !screen.is_quiet && !screen.is_json && std::io::stderr().is_terminal();
    let mut all = Reproduction::default();
    for seed in args.seed..args.seed.saturating_add(seeds.clamp(1, 100)) {
        if shows {
            crate::output::tell_part!("\rseed {seed}\x1b[K");
        }
        let one = reproduce::run_all(&args.tables, seed).map_err(|error| problem(&error))?;
        all.cells.extend(one.cells);
        all.effects.extend(one.effects);
        if seed == args.seed {
            all.notes = one.notes;
        }
    }
    if shows {
        crate::output::tell_part!("\r\x1b[K");
    }
    show_reproduction(&all, args, screen)?;
    if let Some(file) = args.out.as_ref().filter(|_| common.dry_run) {
        screen.line(format!("would write {}", file.display()));
    } else if let Some(file) = &args.out {
        write_file(file, reproduce::html(&all, args.seed).as_bytes())?;
        screen.note(format!("report: {}", file.display()));
    }
    if !args.check {
        return Ok(0);
    }
    let bands = reproduce::check(&all.cells, &all.effects);
    let mut missed = 0;
    for band in &bands {
        show_band(band, screen);
        missed += usize::from(!band.is_reached());
    }
    screen.line(format!(
        "{} of {} bands reached over {seeds} seeds (the worst seed counts)",
        bands.len() - missed,
        bands.len()
    ));
    Ok(u8::from(missed > 0))
}

fn show_band(band: &Band, screen: &Screen) {
    let is_reached = band.is_reached();
    screen.object(&object(
        "lab_band",
        None,
        json!({"name": band.name, "cells": band.cells, "within": band.within,
            "wanted": band.wanted, "is_reached": is_reached}),
    ));
    let word = if is_reached {
        screen.paint(Color::Green, "reached")
    } else {
        screen.paint(Color::Red, "MISSED ")
    };
    screen.line(format!(
        "{word}  {}: {} of {}, wanted {}",
        band.name, band.within, band.cells, band.wanted
    ));
}

fn show_reproduction(all: &Reproduction, args: &Reproduce, screen: &Screen) -> Result<(), Problem> {
    if screen.is_json {
        for cell in &all.cells {
            let mut fields = serde_json::to_value(cell).unwrap_or_default();
            fields["error_percent"] = json!(cell.error_percent());
            screen.object(&object("lab_cell", None, fields));
        }
        for effect in &all.effects {
            let fields = serde_json::to_value(effect).unwrap_or_default();
            screen.object(&object("lab_effect", None, fields));
        }
        return Ok(());
    }
    let of_seed: Vec<_> = all
        .cells
        .iter()
        .filter(|cell| cell.seed == args.seed)
        .cloned()
        .collect();
    print(&cells_table(&of_seed), "lab_cell", &args.format, screen)?;
    let effects: Vec<_> = all
        .effects
        .iter()
        .filter(|effect| effect.seed == args.seed)
        .cloned()
        .collect();
    screen.line("");
    print(&effects_table(&effects), "lab_effect", &args.format, screen)?;
    if args.format == "text" && screen.verbosity > 0 {
        for note in &all.notes {
            screen.line(format!("\n{}", note.trim_end()));
        }
    }
    screen.line("");
    Ok(())
}

fn balance(args: &Balance, screen: &Screen) -> Outcome {
    let shows = !screen.is_quiet && !screen.is_json && std::io::stderr().is_terminal();
    let cells = policies::run_matrix(
        &args.disks,
        &args.load,
        args.seed..args.seed.saturating_add(args.seeds),
        |done| {
            if shows {
                crate::output::tell_part!("\rcell {done} of at most 136\x1b[K");
            }
        },
    )
    .map_err(|error| problem(&error))?;
    if shows {
        crate::output::tell_part!("\r\x1b[K");
    }
    print(
        &policies::cells_table(&cells),
        "lab_balance_cell",
        &args.format,
        screen,
    )?;
    screen.line("");
    print(
        &policies::summary(&cells),
        "lab_balance",
        &args.format,
        screen,
    )?;
    if screen.verbosity > 0 && !screen.is_json {
        for cell in &cells {
            for ((name, _), score) in policies::policies().iter().zip(&cell.scores) {
                screen.line(format!(
                    "\n{}, {}, {name}: speed-up {:.2}, fairness {:.2}\n{}{}",
                    cell.set,
                    cell.load,
                    score.speedup,
                    score.fairness,
                    iostat::freebsd(&score.members),
                    iostat::reasons(&score.members).trim_end()
                ));
            }
        }
    }
    let mut missed = 0;
    for (sentence, is_reached) in policies::adaptive_bands(&cells) {
        missed += usize::from(!is_reached);
        screen.object(&object(
            "lab_band",
            None,
            json!({"name": sentence, "is_reached": is_reached}),
        ));
        let word = if is_reached { "reached" } else { "MISSED" };
        screen.line(format!("{sentence}: {word}"));
    }
    let near = policies::near_by_seed(&cells);
    screen.object(&object(
        "lab_seeds",
        None,
        json!({"first": args.seed, "cells": cells.len(), "near": near}),
    ));
    if near.len() > 1 {
        let counts: Vec<String> = near.iter().map(ToString::to_string).collect();
        screen.line(format!(
            "with each seed alone within 2 %: {}",
            counts.join(", ")
        ));
    }
    Ok(u8::from(args.check && missed > 0))
}

fn read_text(path: &Path) -> Result<String, Problem> {
    std::fs::read_to_string(path)
        .map_err(|error| Problem::new(Code::Usage, format!("{}: {error}", path.display())))
}

fn run_file(args: &RunFile, common: &Common, screen: &Screen) -> Outcome {
    let told = |error: LabError| problem(&error);
    let mut experiment = Experiment::parse(&read_text(&args.file)?).map_err(told)?;
    let is_built = experiment
        .runs
        .iter()
        .any(|run| !run.setup.system.is_empty());
    if is_built && !common.dry_run {
        experiment.workshop = Some(workshop()?);
    }
    let folder = args
        .out
        .clone()
        .unwrap_or_else(|| args.file.with_extension(""));
    if folder == args.file {
        return Err(Problem::new(
            Code::Usage,
            "a file without an ending needs --out DIR for its results",
        ));
    }
    if common.dry_run {
        return plan_runs(&experiment, &folder, is_built, screen);
    }
    let began = Instant::now();
    let now_s = || began.elapsed().as_secs_f64();
    for line in experiment.clear_leftovers().map_err(told)? {
        screen.note(line);
    }
    let pending = experiment.pending(&folder).map_err(told)?;
    let estimate = experiment.estimate_s(&pending, &now_s).map_err(told)?;
    let before = experiment.runs.len() - pending.len();
    let done = match before {
        0 => String::new(),
        before => format!(", {before} of them done before"),
    };
    screen.note(format!(
        "{}: {} runs{done}, about {}",
        experiment.name,
        experiment.runs.len(),
        show_seconds(estimate.ceil() as u64)
    ));
    let steps = Steps::new("", screen).after(before as u64);
    steps.tell(before as u64, experiment.runs.len() as u64);
    experiment
        .run_in(&folder, &now_s, |done, all| {
            steps.tell(done as u64, all as u64);
            true
        })
        .map_err(told)?;
    steps.end();
    if experiment.has_sensitivity {
        run_changed(&folder, screen)?;
    }
    report::show(&folder, screen)
}

/// What `lab run` would do.
fn plan_runs(experiment: &Experiment, folder: &Path, is_built: bool, screen: &Screen) -> Outcome {
    let told = |error: LabError| problem(&error);
    if is_built {
        runtime_dir().check(&Surroundings::of_this_process())?;
    }
    let pending = experiment.pending(folder).map_err(told)?.len();
    experiment.check_folder(folder).map_err(told)?;
    screen.line(format!(
        "would do {pending} of {} runs of {}; results to {}",
        experiment.runs.len(),
        experiment.name,
        folder.display()
    ));
    let fields = json!({"command": "lab run", "runs": experiment.runs.len(), "pending": pending, "folder": folder});
    screen.object(&object("plan", None, fields));
    Ok(0)
}

/// Compares the best arrangements once more with changed disks.
fn run_changed(folder: &Path, screen: &Screen) -> Result<(), Problem> {
    let told = |error: LabError| problem(&error);
    let results = read_results(folder).map_err(told)?;
    let pending = sensitivity::pending(folder, &results).map_err(told)?;
    if pending.is_empty() {
        return Ok(());
    }
    screen.note(format!(
        "the best arrangements once more, with changed disks: {} runs (sensitivity = false leaves them out)",
        pending.len()
    ));
    let steps = Steps::new("", screen);
    let tell = |done, all| steps.tell(done as u64, all as u64);
    sensitivity::run_in(folder, &pending, tell).map_err(told)?;
    steps.end();
    Ok(())
}

/// Where volumes are built: by this program, with its journals in a folder that is the user's alone.
fn workshop() -> Result<Workshop, Problem> {
    let runtime = runtime_dir();
    runtime.ensure(&Surroundings::of_this_process())?;
    let program = std::env::current_exe()
        .map_err(|error| Problem::from_io(&error, "looking for", "this program"))?;
    let home = std::path::absolute(runtime.path().join("lab"))
        .map_err(|error| Problem::from_io(&error, "looking at", "the runtime folder"))?;
    Ok(Workshop { program, home })
}

fn write_file(path: &Path, content: &[u8]) -> Result<(), Problem> {
    std::fs::write(path, content)
        .map_err(|error| Problem::new(Code::IoError, format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_comes_from_the_steps_of_this_start() {
        let minute = Duration::from_secs(60);
        assert_eq!(seconds_left(minute, 0, 20), "");
        assert_eq!(
            seconds_left(minute, 3, 6),
            format!(", {} left", show_seconds(120))
        );
        assert_eq!(
            seconds_left(minute, 9, 0),
            format!(", {} left", show_seconds(0))
        );
    }
}
