//! The program `plexum`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    plexum_cli::run(plexum_cli::NOTHING_FURTHER)
}
