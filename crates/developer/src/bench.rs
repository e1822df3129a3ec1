//! `plexum bench`: own speed beside the peers that are installed, as a table, as JSON and as a chart.

use std::io::{IsTerminal, stderr};

use plexum_bench::{
    BenchOptions, Report, Step, goals_markdown, goals_table, run as measure, table, tally,
};
use plexum_daemon::problem::{Code, Problem};

use plexum_cli::{Bench, Common, Outcome, Screen, io_choice, object, tell};

/// Runs the command.
///
/// # Errors
/// `Usage` for an unknown group, `IoError` when members or the chart cannot be made.
pub fn run(args: &Bench, common: &Common, screen: &Screen) -> Outcome {
    let told = |error: std::io::Error| Problem::new(Code::IoError, error.to_string());
    if let [socket, file] = args.bare_server.as_slice() {
        plexum_bench::serve_bare(socket, file).map_err(told)?;
        return Ok(0);
    }
    let groups = || plexum_bench::GROUPS.iter().chain(plexum_bench::DETAILS);
    if let Some(group) = args
        .groups
        .iter()
        .find(|group| !groups().any(|known| known == group))
    {
        let known: Vec<&str> = groups().copied().collect();
        return Err(Problem::new(Code::Usage, format!("{group} is no group"))
            .hint(format!("groups are:   {}", known.join(" "))));
    }
    let options = BenchOptions {
        groups: args.groups.clone(),
        rounds: usize::try_from(args.rounds).unwrap_or(1),
        millis: args.millis,
        io: io_choice(&args.io)?,
        folder: args.folder.clone(),
        disk_folder: args.disk_folder.clone(),
        program: std::env::current_exe().map_err(told)?,
    };
    if common.dry_run {
        let groups = match args.groups.as_slice() {
            [] => "all groups of goals".to_owned(),
            groups => groups.join(" "),
        };
        screen.line(format!("would measure {groups}, {} rounds", args.rounds));
        if let Some(path) = &args.chart {
            screen.line(format!("would write {}", path.display()));
        }
        return Ok(0);
    }
    let shows = !screen.is_quiet && !screen.is_json && stderr().is_terminal();
    let report = measure(&options, &mut |step| {
        if shows {
            tell(&format!("\r{}\x1b[K", progress(step)));
        }
    })
    .map_err(|error| Problem::new(Code::IoError, error.0))?;
    if shows {
        tell("\r\x1b[K");
    }
    show(&report, args.markdown, screen);
    if let Some(path) = &args.chart {
        let svg = plexum_bench::chart(&report.lines, &report.machine);
        std::fs::write(path, svg)
            .map_err(|error| Problem::new(Code::IoError, format!("{}: {error}", path.display())))?;
    }
    Ok(0)
}

/// One line that says how far it is, and how long it still takes.
fn progress(step: &Step) -> String {
    let left = step.left.map_or_else(String::new, |left| {
        let seconds = left.as_secs();
        format!(", {}:{:02} left", seconds / 60, seconds % 60)
    });
    format!(
        "{}: {} of {}{left}  {}",
        step.group, step.done, step.total, step.what
    )
}

fn show(report: &Report, is_markdown: bool, screen: &Screen) {
    let fields = |value: serde_json::Result<serde_json::Value>| value.unwrap_or_default();
    for row in &report.rows {
        screen.object(&object("bench", None, fields(serde_json::to_value(row))));
    }
    if !report.rows.is_empty() {
        screen.line(table(&report.rows).trim_end());
    }
    if report.lines.is_empty() {
        return;
    }
    let machine = fields(serde_json::to_value(&report.machine));
    screen.object(&object("bench-machine", None, machine));
    for line in &report.lines {
        screen.object(&object(
            "bench-goal",
            None,
            fields(serde_json::to_value(line)),
        ));
    }
    for skipped in &report.skipped {
        let skipped = fields(serde_json::to_value(skipped));
        screen.object(&object("bench-skipped", None, skipped));
    }
    screen.line(report.machine.words());
    screen.line("");
    let table = if is_markdown {
        goals_markdown(&report.lines)
    } else {
        goals_table(&report.lines)
    };
    screen.line(table.trim_end());
    screen.line("");
    screen.line(tally(&report.lines));
    for skipped in &report.skipped {
        screen.line(format!(
            "skipped: {} at {}: {}",
            skipped.name, skipped.task, skipped.reason
        ));
    }
}
