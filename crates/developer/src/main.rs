//! The program `plexum-developer`: all of `plexum`, and `sim` and `bench` as well. `plexum` hands these two over to it.
#![forbid(unsafe_code)]
// They panic when nothing can be written: `plexum_cli` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod sim;

use plexum_cli::Command;

fn main() -> std::process::ExitCode {
    plexum_cli::run(|command, common, screen| match command {
        Command::Sim(args) => Some(sim::run(args, screen)),
        Command::Bench(args) => Some(bench::run(args, common, screen)),
        _ => None,
    })
}
