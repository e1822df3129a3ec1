//! `plexum completions`: completions for a shell, on standard output.

use crate::args::Completions;
use crate::errors::Outcome;
use crate::help;

/// Runs the command.
///
/// # Errors
/// None.
pub fn run(args: &Completions) -> Outcome {
    let mut command = help::visible();
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "plexum", &mut text);
    crate::output::write_raw(&text);
    Ok(0)
}
