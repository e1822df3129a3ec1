//! `plexum pool`: a ZFS pool is listed, shown, copied out and checked; made, with volumes in it (`make.rs`), and
//! changed, by the command or by the server that has it (`change.rs`).

pub mod args;
mod change;
mod check;
mod copied;
mod copy;
mod list;
pub mod make;
pub mod scan;
mod scrub;
mod show;
mod sides;
mod status;
mod whose;

use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::zfs::{RealPool, of_zfs, open_pool};
use plexum_runtime::{IoChoice, Runtime};
use plexum_zfs::{DatasetName, OpenOptions, ZfsError};

use crate::args::Common;
use crate::errors::Outcome;
use crate::output::Screen;
use args::{PoolArgs, PoolCommand, Source};
use change::{Destruction, MemberWord, Naming};

/// Runs the command.
///
/// # Errors
/// Of opening the pool; what cannot be read.
pub fn run(args: &PoolArgs, common: &Common, screen: &Screen) -> Outcome {
    if args.scan.is_empty() {
        scan::check_members(&args.command)?;
        return carry_out(&args.command, common, screen);
    }
    let command = scan::with_members(&args.command, &args.scan)?;
    carry_out(&command, common, screen)
}

fn carry_out(command: &PoolCommand, common: &Common, screen: &Screen) -> Outcome {
    match command {
        PoolCommand::List(list) => with_pool(&list.source, screen, async |pool| {
            list::run(&pool, screen).await
        }),
        PoolCommand::Ls(ls) => with_pool(&ls.source, screen, async |pool| {
            show::ls(&pool, ls, screen).await
        }),
        PoolCommand::Cat(cat) => with_pool(&cat.source, screen, async |pool| {
            show::cat(&pool, cat).await
        }),
        PoolCommand::Cp(cp) => with_pool(&cp.source, screen, async |pool| {
            copy::run(&pool, cp, common, screen).await
        }),
        PoolCommand::Check(args) => check::run(args, screen),
        PoolCommand::Create(args) => make::create(args, common, screen),
        PoolCommand::CreateVolume(args) => make::create_volume(args, common, screen),
        PoolCommand::Scrub(scrub) if scrub.repair => change::scrub(scrub, common, screen),
        PoolCommand::Scrub(scrub) => with_pool(&scrub.source, screen, async |pool| {
            scrub::run(&pool, screen).await
        }),
        PoolCommand::Status(args) => status::run(args, screen),
        PoolCommand::Snapshot(args) => change::snapshot(args, common, screen),
        PoolCommand::DestroySnapshot(args) => {
            change::destroy(Destruction::Snapshot, args, common, screen)
        }
        PoolCommand::DestroyVolume(args) => {
            change::destroy(Destruction::Volume, args, common, screen)
        }
        PoolCommand::Rollback(args) => change::destroy(Destruction::Rollback, args, common, screen),
        PoolCommand::Clone(args) => change::name(Naming::Clone, args, common, screen),
        PoolCommand::Rename(args) => change::name(Naming::Rename, args, common, screen),
        PoolCommand::Resize(args) => change::resize(args, common, screen),
        PoolCommand::Offline(args) => change::member(MemberWord::Offline, args, common, screen),
        PoolCommand::Online(args) => change::member(MemberWord::Online, args, common, screen),
        PoolCommand::Replace(args) => change::replace(args, common, screen),
        PoolCommand::Attach(args) => sides::attach(args, common, screen),
        PoolCommand::Detach(args) => sides::detach(args, common, screen),
        PoolCommand::Add(args) => sides::add(args, common, screen),
    }
}

/// Opens the pool, tells what is worth knowing about it on standard error, and runs `work`.
fn with_pool(
    source: &Source,
    screen: &Screen,
    work: impl AsyncFnOnce(RealPool) -> Outcome,
) -> Outcome {
    let mut runtime = Runtime::new(IoChoice::Auto)
        .map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    runtime.block_on(async {
        let options = OpenOptions { txg: source.txg };
        let pool = open_pool(&handle, &source.members, &options).await?;
        for note in &pool.report.notes {
            screen.note(note);
        }
        work(pool).await
    })
}

/// `DATASET[@SNAP][:/PATH]` taken apart.
pub(crate) struct PoolPath {
    pub(crate) dataset: DatasetName,
    pub(crate) path: Option<String>,
}

impl PoolPath {
    pub(crate) fn parse(text: &str) -> Self {
        // Names of data sets may hold colons, but no slash follows one: that would end the name.
        let (dataset, path) = match text.split_once(":/") {
            Some((dataset, path)) => (dataset, Some(format!("/{path}"))),
            None => (text, None),
        };
        Self {
            dataset: DatasetName::parse(dataset),
            path,
        }
    }
}

/// A problem with what was being read.
pub(crate) fn problem(error: ZfsError, what: &str) -> Problem {
    // Errors about blocks say an object's number; people want the path.
    match error {
        ZfsError::NotFound(_) | ZfsError::Members(_) => of_zfs(&error),
        error => {
            let mut problem = of_zfs(&error);
            if !problem.message.starts_with(what) {
                problem.message = format!("{what}: {}", problem.message);
            }
            problem
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_data_set_snapshot_and_path() {
        let place = PoolPath::parse("tank/a@monday:/b:c/d");
        assert_eq!(place.dataset.to_string(), "tank/a@monday");
        assert_eq!(place.dataset.snapshot.as_deref(), Some("monday"));
        assert_eq!(place.path.as_deref(), Some("/b:c/d"));
        let place = PoolPath::parse("tank/vol");
        assert_eq!(
            (place.dataset.path.as_str(), place.path),
            ("tank/vol", None)
        );
    }
}
