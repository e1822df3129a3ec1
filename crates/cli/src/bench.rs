//! `plexum bench`: own speed as a table and as JSON.

use plexum_bench::{BenchOptions, run as measure, table};
use plexum_daemon::problem::{Code, Problem};

use crate::args::Bench;
use crate::errors::Outcome;
use crate::output::{Screen, object};
use crate::serve::io_choice;

/// Runs the command.
///
/// # Errors
/// `Usage` for an unknown group, `IoError` when a volume cannot be made.
pub fn run(args: &Bench, screen: &Screen) -> Outcome {
    let options = BenchOptions {
        groups: args.groups.clone(),
        rounds: usize::try_from(args.rounds).unwrap_or(1),
        millis: args.millis,
        io: io_choice(&args.io)?,
        folder: args.folder.clone().unwrap_or_else(std::env::temp_dir),
    };
    if let Some(group) = args
        .groups
        .iter()
        .find(|group| !plexum_bench::GROUPS.contains(&group.as_str()))
    {
        return Err(Problem::new(Code::Usage, format!("{group} is no group"))
            .hint(format!("groups are:   {}", plexum_bench::GROUPS.join(" "))));
    }
    let shows = !screen.is_quiet && !screen.is_json;
    let rows = measure(&options, |done, all| {
        if shows && std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            eprint!("\r{done} of {all}\x1b[K");
        }
    })
    .map_err(|error| Problem::new(Code::IoError, error.0))?;
    if shows && std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        eprint!("\r\x1b[K");
    }
    for row in &rows {
        let fields = serde_json::to_value(row).unwrap_or_default();
        screen.object(&object("bench", None, fields));
    }
    screen.line(table(&rows).trim_end());
    Ok(0)
}
