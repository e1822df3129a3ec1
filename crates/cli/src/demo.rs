//! `plexum demo`: the tour. A volume on sparse files is served, loses members under load, is rebuilt, is damaged, found
//! out, repaired, killed, and comes back; every byte is checked by real NBD clients.
//!
//! Invariants:
//! - the exit code is 0 only when every check held;
//! - nothing outside of the demo's own folders is touched, and they are removed unless `--keep` asks otherwise.

mod damage;
mod load;
mod script;
mod server;
mod view;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use plexum_block::wait::first;
use plexum_daemon::problem::{Code, Problem};
use plexum_layout::{Level, Organisation};
use plexum_runtime::signals::StopSignals;
use serde_json::json;

use crate::args::{Common, Demo};
use crate::errors::Outcome;
use crate::offline::runtime;
use crate::output::Screen;
use crate::units::show_bytes;
use load::{Book, Dice};
use script::Script;
use view::{Check, View};

/// Size of each member: small enough that all ends within half a minute.
const MEMBER_BYTES: u64 = 32 << 20;
/// Runs the command.
///
/// # Errors
/// `Usage` for a level without redundancy; whatever keeps the demo from running at all. A check that fails is exit code
/// 1.
pub fn run(args: &Demo, common: &Common, screen: &Screen) -> Outcome {
    let begun = Instant::now();
    let organisation = organisation(args)?;
    let seed = args.seed.unwrap_or(1);
    let count = member_count(args, organisation.level())?;
    if common.dry_run {
        let size = show_bytes(MEMBER_BYTES);
        screen.line(format!(
            "would play the demo with {organisation} over {count} sparse files of {size} and two spares"
        ));
        return Ok(0);
    }
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    // Before the first folder is made: nothing is left whenever it is stopped.
    let signals =
        StopSignals::new(&handle).map_err(|error| Problem::from_io(&error, "catching", "signals"));
    let scratch = Scratch::new(args.keep.as_deref())?;
    let view = View::new(screen);
    let mut demo = Script {
        handle,
        view: &view,
        scratch: &scratch,
        organisation,
        seed,
        dice: Dice::new(seed, 0),
        is_sabotaged: args.sabotage,
        book: Rc::new(Book::new(seed, 0)),
        server: None,
        last: (Instant::now(), 0),
    };
    let count = member_count(args, organisation.level())?;
    let result = runtime.block_on(unless_stopped(signals, demo.play(count)));
    demo.server = None; // it never outlives the demo
    drop(demo);
    if let Err(problem) = &result {
        view.check(&Check {
            text: "the demo could go on",
            is_good: false,
            details: std::slice::from_ref(&problem.message),
        });
    }
    let failed = view.failed();
    let seconds = begun.elapsed().as_secs();
    view.finish(
        json!({"is_good": failed.is_empty(), "failed": failed, "seed": seed, "seconds": seconds}),
    );
    screen.line(match failed.len() {
        0 => format!("Every check held ({seconds} s, seed {seed})."),
        n => format!("{n} checks FAILED (seed {seed})."),
    });
    if let Some(folder) = &args.keep {
        screen.done(format!("the members are in {}", folder.display()));
    }
    Ok(u8::from(!failed.is_empty()))
}

/// Plays until the end or until somebody wants it to stop: then the server and the folders go as well.
async fn unless_stopped(
    signals: Result<StopSignals, Problem>,
    play: impl Future<Output = Result<(), Problem>>,
) -> Result<(), Problem> {
    let signals = signals?;
    let ended = RefCell::new(None);
    let play = async {
        let result = play.await;
        ended.replace(Some(result));
    };
    let stop = async {
        signals.next().await;
    };
    first(play, stop).await;
    let stopped = || {
        Problem::new(
            Code::NotConfirmed,
            "the demo was stopped; its server and its folders are gone",
        )
    };
    ended.take().unwrap_or_else(|| Err(stopped()))
}

fn organisation(args: &Demo) -> Result<Organisation, Problem> {
    let usage = |text: String| Problem::new(Code::Usage, text);
    let level: Level = args
        .level
        .parse()
        .map_err(|error| usage(format!("{error}")))?;
    if !level.has_redundancy() {
        return Err(usage(format!(
            "{level} has no redundancy: it does not survive the demo"
        ))
        .hint("choose one of:   --level 1, 4, 5, 6, 10"));
    }
    Organisation::from_words(level, None).map_err(|error| usage(error.to_string()))
}

fn member_count(args: &Demo, level: Level) -> Result<usize, Problem> {
    let (default, least) = match level {
        Level::Raid6 => (6, 4),
        Level::Raid1 => (2, 2),
        Level::Raid10 => (4, 4),
        _ => (4, 3),
    };
    let count = args.members.map_or(default, |count| count as usize);
    if !(least..=32).contains(&count) {
        return Err(Problem::new(
            Code::Usage,
            format!("--members {count}: {level} takes {least} to 32 here"),
        ));
    }
    Ok(count)
}

/// The demo's folders.
struct Scratch {
    members: PathBuf,
    runtime: PathBuf,
    keeps_members: bool,
}

impl Scratch {
    fn new(keep: Option<&Path>) -> Result<Self, Problem> {
        let base = std::env::temp_dir().join(format!("plexum-demo-{}", std::process::id()));
        let members = keep.map_or_else(|| base.join("disks"), Path::to_owned);
        for folder in [&base, &members] {
            std::fs::create_dir_all(folder).map_err(|error| {
                Problem::from_io(&error, "making", &folder.display().to_string())
            })?;
        }
        Ok(Self {
            members: std::path::absolute(&members).unwrap_or(members),
            runtime: base,
            keeps_members: keep.is_some(),
        })
    }

    fn disk(&self, number: usize) -> PathBuf {
        self.members.join(format!("disk{number}"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.runtime);
        if !self.keeps_members {
            let _ = std::fs::remove_dir_all(&self.members);
        }
    }
}
