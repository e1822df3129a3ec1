//! `plexum completions`: completions for a shell, on standard output.

use crate::args::{Cli, Completions};
use crate::errors::Outcome;

/// Runs the command.
///
/// # Errors
/// None.
pub fn run(args: &Completions) -> Outcome {
    let mut command = <Cli as clap::CommandFactory>::command();
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "plexum", &mut text);
    let _ = std::io::Write::write_all(&mut std::io::stdout(), &text);
    Ok(0)
}
