//! A served volume that is scrubbed, or loses a member and fills another one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Array, Keeper, Made, Work, direct, write_noise};
use crate::client::fill;
use crate::process::output;
use crate::served::{NAME, Server, Volume, ask_status, command};
use crate::{BenchError, BenchOptions};

/// Requests of clients slow the work down for a while: it is measured when nobody has asked for longer than that.
const QUIET: Duration = Duration::from_millis(1500);

/// How often the volume is asked whether it is done: `--wait` asks too seldom for the small arrays of a bench.
const ASK_EVERY: Duration = Duration::from_millis(4);

/// Time after which work that was not seen to begin never will.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(5);

struct Served {
    options: BenchOptions,
    folder: PathBuf,
    member_bytes: u64,
    is_on_disk: bool,
    /// The member that is lost next, and how many were.
    lost: (PathBuf, u32),
    _server: Server,
}

pub(super) fn make(options: &BenchOptions, folder: &Path, array: Array) -> Made {
    let member_bytes = array.share_bytes() + (16 << 20);
    let volume = Volume {
        level: array.level,
        members: array.data_members + array.parities,
        member_bytes,
        // What lies on disk is written before, so that no block is used for the first time; then all of the volume is.
        options: if array.is_on_disk {
            &["--assume-clean", "--force", "--yes"]
        } else {
            &[]
        },
    };
    if array.is_on_disk {
        for path in volume.paths(folder, NAME) {
            direct::fill(&path, member_bytes)?;
        }
    }
    let server = volume.serve(options, folder)?;
    fill(&server.socket, &server.export, array.data_bytes)?;
    std::thread::sleep(QUIET);
    Ok(Box::new(Served {
        options: options.clone(),
        folder: folder.to_owned(),
        member_bytes,
        is_on_disk: array.is_on_disk,
        lost: (folder.join(format!("{NAME}-0.img")), 0),
        _server: server,
    }))
}

impl Served {
    fn tell(
        &self,
        words: &[&str],
        member: Option<&Path>,
        rest: &[&str],
    ) -> Result<String, BenchError> {
        let mut tell = command(&self.options, &self.folder);
        tell.args(words).arg(NAME).args(member).args(rest);
        output(&mut tell)
    }
}

impl Served {
    /// Asks for the work and waits for its end; the time of both.
    fn time(
        &self,
        words: &[&str],
        member: Option<&Path>,
        rest: &[&str],
    ) -> Result<Duration, BenchError> {
        let started = Instant::now();
        self.tell(words, member, rest)?;
        let mut has_begun = false;
        loop {
            let is_at_work = self.is_at_work()?;
            has_begun |= is_at_work;
            if has_begun && !is_at_work {
                return Ok(started.elapsed());
            }
            if !has_begun && started.elapsed() > BEGIN_TIME_MAX {
                return Err(BenchError(format!("{words:?} was not seen to begin")));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    fn is_at_work(&self) -> Result<bool, BenchError> {
        Ok(!ask_status(&self.folder, NAME)?.jobs.is_empty())
    }
}

impl Keeper for Served {
    fn work(&mut self, work: Work) -> Result<Duration, BenchError> {
        if work == Work::Scrub {
            return self.time(&["scrub"], None, &[]);
        }
        let (lost, count) = self.lost.clone();
        let new = self.folder.join(format!("new-{count}.img"));
        // Nobody pays for the first use of a block or a page: the devices that btrfs fills were filled before, too.
        if self.is_on_disk {
            direct::fill(&new, self.member_bytes)?;
        } else {
            write_noise(&new, self.member_bytes)?;
        }
        self.tell(&["fail"], Some(&lost), &["--yes"])?;
        self.tell(&["remove"], Some(&lost), &["--yes"])?;
        let rest = ["--force", "--yes"]; // it is full of noise
        let time = self.time(&["add"], Some(&new), &rest)?;
        let _ = std::fs::remove_file(&lost); // its memory is for the next one
        self.lost = (new, count + 1);
        Ok(time)
    }
}
