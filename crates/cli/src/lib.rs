//! The plexum command: one file per subcommand; this one reads the command line and ends with the exit code.
//!
//! Two programs are made of it. `plexum` has everything that whoever owns disks needs. `plexum-developer`
//! (`crates/developer`) has the simulator and the benchmark as well: they instantiate the engine again, and would be
//! two fifths of what people install.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]
// They panic when nothing can be written: `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(test)]
mod advised;
mod args;
mod attach;
mod attach_file;
mod attach_nbd;
mod attach_tree;
mod attach_ublk;
mod attach_unit;
mod attachment;
mod bridge;
mod client;
mod completions;
mod config;
mod control;
mod convert;
mod create;
mod daemon;
mod daemon_client;
mod demo;
mod detach;
mod developer;
mod disks;
mod disputed;
mod doctor;
mod errors;
mod events;
mod examine;
mod examine_zfs;
mod explain;
mod fields;
mod foreign;
mod gmirror;
mod grow;
mod gvinum;
mod habits;
mod help;
mod history;
mod incidents;
mod lab;
mod listen;
mod locate;
mod log;
mod man;
mod member_ops;
mod metrics;
mod nbd_device;
mod nested;
mod offline;
mod output;
mod parity;
mod plan;
mod pool;
mod progress;
mod scan;
mod scrub;
mod scrub_line;
mod serve;
mod set;
mod sets;
mod stats;
mod status;
mod stop;
mod system;
mod top;
mod traces;
mod trial;
mod udev_claim;
mod units;
mod verdict;
mod words;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;
use plexum_daemon::problem::{Code, Problem};

use crate::args::Cli;

pub use crate::args::{Bench, Command, Common, Sim};
pub use crate::errors::Outcome;
pub use crate::output::{Color, Screen, object, tell};
pub use crate::parity::force as force_parity;
pub use crate::serve::io_choice;

/// What a program does by itself of the commands that `plexum` leaves to another; `None`: the command is none of them.
pub type Further = fn(&Command, &Common, &Screen) -> Option<Outcome>;

/// What `plexum` has beside itself: nothing; `sim` and `bench` go to `plexum-developer`.
pub const NOTHING_FURTHER: Further = |_, _, _| None;

/// The whole program, from its arguments to its exit code. Called once, by `main`.
pub fn run(further: Further) -> ExitCode {
    let typed = called_as(std::env::args_os().collect());
    let words: Vec<String> = typed
        .iter()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mut options = words.iter().take_while(|word| *word != "--");
    let report = match options.any(|word| word == "--json") {
        true => errors::report_json,
        false => errors::report,
    };
    let result = std::panic::catch_unwind(|| parse_and_run(&words, &typed, further));
    let exit = match result {
        Ok(Ok(exit)) => match output::failure() {
            Some(problem) => report(&problem),
            None => exit,
        },
        Ok(Err(problem)) => report(&problem),
        Err(_) => report(
            &Problem::new(Code::Bug, "a bug in Plexum ended the command").hint(
                "please report it with the lines above, the command line and `plexum --version`",
            ),
        ),
    };
    ExitCode::from(exit)
}

/// Vocabularies of other programs, by whose names this one may be called.
const VOCABULARIES: [&str; 2] = ["gmirror", "gvinum"];

/// Called as `gmirror` or `gvinum`, that is the command. Long options of ours may stand anywhere behind it: its own
/// words have short ones only.
fn called_as(mut typed: Vec<OsString>) -> Vec<OsString> {
    let program = typed.first().map(Path::new).and_then(Path::file_name);
    let mut known = VOCABULARIES.into_iter();
    if let Some(command) = known.find(|known| program == Some(known.as_ref())) {
        typed.insert(1, command.into());
        if typed.len() == 3 && (typed[2] == "--help" || typed[2] == "-h") {
            typed[2] = "help".into();
        }
    }
    let mut words = typed.iter().skip(1).map(OsString::as_os_str);
    let first = words.position(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let Some(at) = first.map(|at| at + 1) else {
        return typed;
    };
    if !VOCABULARIES.iter().any(|known| typed[at] == *known) {
        return typed;
    }
    let is_ours = |word: &OsString| {
        let ours = [
            "--dry-run",
            "--yes",
            "--json",
            "--quiet",
            "--verbose",
            "--no-color",
        ];
        ours.iter().any(|known| word == known)
    };
    let rest = typed.split_off(at + 1);
    let end = rest
        .iter()
        .position(|word| word == "--")
        .unwrap_or(rest.len());
    let (ours, theirs): (Vec<_>, Vec<_>) = rest
        .into_iter()
        .enumerate()
        .partition(|(place, word)| *place < end && is_ours(word));
    for (_, word) in ours.into_iter().rev() {
        typed.insert(1, word);
    }
    typed.extend(theirs.into_iter().map(|(_, word)| word));
    typed
}

fn parse_and_run(words: &[String], typed: &[OsString], further: Further) -> Outcome {
    if let Some(problem) = habits::advise(words) {
        return Err(problem);
    }
    let parsed = help::command().try_get_matches_from(typed);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let screen = Screen::new(&cli.common);
    match further(&cli.command, &cli.common, &screen) {
        Some(outcome) => outcome,
        None => dispatch(&cli, &screen),
    }
}

/// Help and version go to standard output; everything else becomes a problem of ours.
fn usage(error: &clap::Error) -> Outcome {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            if let Err(error) = error.print().and_then(|()| std::io::stdout().flush()) {
                output::note_lost(&error);
            }
            Ok(0)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Problem::new(Code::Usage, "a command is missing").hint(error.render().to_string()))
        }
        _ => {
            let text = error.render().to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let mut problem = Problem::new(Code::Usage, lines.next().unwrap_or("wrong usage"));
            for line in lines {
                problem = problem.hint(line);
            }
            Err(problem)
        }
    }
}

fn dispatch(cli: &Cli, screen: &Screen) -> Outcome {
    let common = &cli.common;
    match &cli.command {
        Command::Demo(args) => demo::run(args, common, screen),
        Command::Create(args) => create::run(args, common, screen),
        Command::Scan(args) => scan::run(args, screen),
        Command::Serve(args) => serve::run(args, common, screen),
        Command::Examine(args) => examine::run(args, screen),
        Command::Sim(_) | Command::Bench(_) => developer::run(),
        Command::Lab(args) => lab::run(args, common, screen),
        Command::Explain(args) => explain::run(args, screen),
        Command::Status(args) => status::run(args, screen),
        Command::Daemon(args) => daemon::run(args, common, screen),
        Command::Forget(args) => daemon::forget(args, common, screen),
        Command::History(_) => history::history(screen),
        Command::Undo(args) => history::undo(args, common, screen),
        Command::Disks(args) => disks::run(args, screen),
        Command::Locate(args) => locate::run(args, common, screen),
        Command::Metrics(_) => metrics::run(screen),
        Command::Doctor(args) => doctor::run(args, screen),
        Command::UdevClaim(args) => udev_claim::run(args, screen),
        Command::Incident(args) => incidents::show(args, screen),
        Command::Ack(args) => incidents::acknowledge(args, common, screen),
        Command::Alert(args) => incidents::alert(args, common, screen),
        Command::Stop(args) => stop::run(args, common, screen),
        Command::Attach(args) => attach::run(args, common, screen),
        Command::Detach(args) => detach::run(args, common, screen),
        Command::AttachProcess(args) => attach_file::serve_file(args),
        Command::AttachNbdProcess(args) => attach_nbd::serve_device(args),
        Command::TreeProcess(args) => attach_tree::serve_tree(args),
        Command::Fail(args) => member_ops::fail(args, common, screen),
        Command::Add(args) => member_ops::add(args, common, screen),
        Command::Remove(args) => member_ops::remove(args, common, screen),
        Command::ReAdd(args) => member_ops::re_add(args, common, screen),
        Command::Replace(args) => member_ops::replace(args, common, screen),
        Command::Grow(args) => grow::run(args, common, screen),
        Command::Scrub(args) => scrub::run(args, common, screen),
        Command::Set(args) => set::run(args, common, screen),
        Command::Stats(args) => stats::run(args, common, screen),
        Command::Events(args) => events::run(args, screen),
        Command::Debug(args) => stats::debug(args, screen),
        Command::Completions(args) => completions::run(args),
        Command::VolumeNames => completions::volume_names(),
        Command::Man(args) => man::run(args, common, screen),
        Command::Config(args) => config::run(args, screen),
        Command::Convert(args) => convert::run(args, common, screen),
        Command::Gmirror(args) => gmirror::run(&args.words, common, screen),
        Command::Gvinum(args) => gvinum::run(&args.words, common, screen),
        Command::Top(args) => top::run(args, screen),
        Command::Pool(args) => pool::run(args, common, screen),
    }
}
