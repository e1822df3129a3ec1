//! Where a volume is built: steps that are written down before they are taken, and undone in reverse order.
//!
//! Invariants:
//! - a step is in the journal before anything of it exists (a process: as soon as it has a number);
//! - each step of `undo` looks whether there is still something to undo, so that it can be repeated;
//! - an error ends `undo`: what lies below something that is still there is left alone, and the journal stays;
//! - the journal's lock is held as long as its maker lives: a journal without one is left over.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::Workshop;
use super::tool::{Heeds, Process, find, run, wait_until};
use crate::error::LabError;
use crate::place::interrupt;

/// Name of the journal in the folder of a site.
const JOURNAL: &str = "journal";
/// Name of the volume that is built.
pub(super) const NAME: &str = "lab";
/// How the folder of the members begins; a number follows.
pub const MEMBERS_PREFIX: &str = "plexum-lab-members-";
/// Name of the file whose lock says that the members are in use.
const LOCK: &str = "lock";
/// Time in which the kernel lets go of something.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(10);

/// Something that was made and has to be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// The folder of the members.
    Folder(PathBuf),
    /// A file of ours, with the loop devices on it.
    File(PathBuf),
    /// A device that may be destroyed: nothing that looks like a member stays on it.
    Device(PathBuf),
    /// The server.
    Server(Process),
    /// The volume as a block device.
    Attached,
    /// A mounted file system.
    Mounted(PathBuf),
    /// A device of the kernel's NBD client.
    Nbd(PathBuf),
    /// An array of the kernel's md.
    Md(PathBuf),
    /// A ZFS pool of this name.
    Pool(String),
}

/// A site. Dropping it undoes what is left.
pub(super) struct Site {
    /// Its folder: journal, sockets, what programs said.
    pub(super) home: PathBuf,
    /// The program that makes and serves volumes.
    program: PathBuf,
    journal: File,
    steps: Vec<Step>,
    /// Locks on folders of members.
    locks: Vec<File>,
    /// Whether what is left waits for the next start.
    is_given_up: bool,
}

fn told(path: &Path) -> impl Fn(std::io::Error) -> LabError {
    let shown = path.display().to_string();
    move |error| LabError::Io(format!("{shown}: {error}"))
}

fn gone_is_fine(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl Site {
    /// An empty site of this process.
    pub(super) fn begin(workshop: &Workshop) -> Result<Self, LabError> {
        let home = workshop.home.join(std::process::id().to_string());
        fs::create_dir_all(&home).map_err(told(&home))?;
        let path = home.join(JOURNAL);
        let journal = OpenOptions::new().create_new(true).append(true).open(&path);
        let journal = journal.map_err(told(&path))?;
        flock(&journal, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| told(&path)(error.into()))?;
        Ok(Self {
            home,
            program: workshop.program.clone(),
            journal,
            steps: Vec::new(),
            locks: Vec::new(),
            is_given_up: false,
        })
    }

    /// What was left in `home` by a process that has died; `None` when it lives or there is no journal.
    fn find(workshop: &Workshop, home: &Path) -> Option<Self> {
        let path = home.join(JOURNAL);
        let journal = OpenOptions::new().append(true).open(&path).ok()?;
        flock(&journal, FlockOperation::NonBlockingLockExclusive).ok()?;
        let text = fs::read_to_string(&path).ok()?;
        // Half a line at the end is a step that was not taken.
        let steps = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        Some(Self {
            home: home.to_owned(),
            program: workshop.program.clone(),
            journal,
            steps: steps.collect(),
            locks: Vec::new(),
            is_given_up: false,
        })
    }

    /// Notes a step that is about to be taken.
    ///
    /// # Errors
    /// `Interrupted`: then it is not to be taken; the journal cannot be written.
    pub(super) fn note(&mut self, step: Step) -> Result<(), LabError> {
        interrupt::check()?;
        self.note_taken(step)
    }

    /// Notes a step that was taken already.
    pub(super) fn note_taken(&mut self, step: Step) -> Result<(), LabError> {
        let line = serde_json::to_string(&step).unwrap_or_default();
        self.steps.push(step);
        let path = self.home.join(JOURNAL);
        writeln!(self.journal, "{line}").map_err(told(&path))
    }

    /// Runs a program of the system.
    pub(super) fn run(&self, command: &mut Command) -> Result<String, LabError> {
        run(command, &self.home, Heeds::Interrupts)
    }

    /// The program itself, with a runtime folder of its own.
    pub(super) fn plexum(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("XDG_RUNTIME_DIR", &self.home);
        command.env("XDG_STATE_HOME", &self.home);
        command
    }

    /// A folder for member files in `parent`.
    pub(super) fn members_folder(&mut self, parent: &Path) -> Result<PathBuf, LabError> {
        let parent = fs::canonicalize(parent).map_err(told(parent))?;
        let folder = parent.join(format!("{MEMBERS_PREFIX}{}", std::process::id()));
        self.note(Step::Folder(folder.clone()))?;
        fs::create_dir(&folder).map_err(told(&folder))?;
        let path = folder.join(LOCK);
        let lock = File::create_new(&path).map_err(told(&path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| told(&path)(error.into()))?;
        self.locks.push(lock);
        Ok(folder)
    }

    /// A folder to mount something at; `step` is what has to be undone once it is there.
    pub(super) fn mount_point(&mut self) -> Result<PathBuf, LabError> {
        let folder = self.home.join("mnt");
        self.note(Step::Mounted(folder.clone()))?;
        fs::create_dir(&folder).map_err(told(&folder))?;
        Ok(folder)
    }

    /// Undoes everything, the last step first. May be called again after an error.
    ///
    /// # Errors
    /// What could not be undone.
    pub(super) fn undo(&mut self) -> Result<(), LabError> {
        while let Some(step) = self.steps.last() {
            self.undo_step(step)
                .map_err(|error| LabError::Io(format!("not all was undone: {error}")))?;
            self.steps.pop();
        }
        gone_is_fine(fs::remove_dir_all(&self.home)).map_err(told(&self.home))
    }

    fn undo_step(&self, step: &Step) -> Result<(), LabError> {
        match step {
            Step::Folder(folder) => {
                let lock = folder.join(LOCK);
                gone_is_fine(fs::remove_file(&lock)).map_err(told(&lock))?;
                gone_is_fine(fs::remove_dir(folder)).map_err(told(folder))
            }
            Step::File(file) => {
                for device in loop_devices(file) {
                    self.release(&device, file)?;
                }
                gone_is_fine(fs::remove_file(file)).map_err(told(file))
            }
            Step::Device(device) => {
                let mut wipe = Command::new(find("wipefs")?);
                self.insist(wipe.args(["--all", "--quiet"]).arg(device), || false)
            }
            Step::Server(process) => process.end(),
            Step::Attached => {
                let note = self.home.join(format!("plexum/attach/{NAME}.json"));
                let mut detach = self.plexum();
                self.insist(detach.args(["detach", NAME]), || !note.exists())
            }
            Step::Mounted(folder) => {
                let mut unmount = Command::new(find("umount")?);
                self.insist(unmount.arg(folder), || !is_mount_point(folder))?;
                gone_is_fine(fs::remove_dir(folder)).map_err(told(folder))
            }
            Step::Nbd(device) => {
                let mut disconnect = Command::new(find("nbd-client")?);
                self.insist(disconnect.arg("-d").arg(device), || is_free_nbd(device))
            }
            Step::Md(device) => {
                let name = device.file_name().unwrap_or_default();
                let array = Path::new("/sys/block").join(name).join("md");
                let Ok(mdadm) = find("mdadm") else {
                    return Ok(());
                };
                let mut stop = Command::new(mdadm);
                self.insist(stop.args(["--quiet", "--stop"]).arg(device), || {
                    !array.exists()
                })
            }
            Step::Pool(name) => {
                let Ok(zpool) = find("zpool") else {
                    return Ok(());
                };
                let is_gone = || {
                    let mut list = Command::new(&zpool);
                    run(list.args(["list", name]), &self.home, Heeds::Nothing).is_err()
                };
                let mut destroy = Command::new(&zpool);
                self.insist(destroy.args(["destroy", "-f", name]), is_gone)
            }
        }
    }

    /// Runs a program that undoes something until it has succeeded or it `is_done`; for a while.
    fn insist(&self, command: &mut Command, is_done: impl Fn() -> bool) -> Result<(), LabError> {
        let mut last = Ok(());
        wait_until(RELEASE_TIME_MAX, || {
            if is_done() {
                last = Ok(());
                return true;
            }
            last = run(command, &self.home, Heeds::Nothing).map(drop);
            last.is_ok()
        });
        last
    }

    fn release(&self, device: &Path, file: &Path) -> Result<(), LabError> {
        let mut detach = Command::new(find("losetup")?);
        self.insist(detach.arg("--detach").arg(device), || false)?;
        // The kernel lets go when the last user has closed it, which may be a moment later.
        let is_free = || !loop_devices(file).contains(&device.to_owned());
        if wait_until(RELEASE_TIME_MAX, is_free) {
            return Ok(());
        }
        Err(LabError::Io(format!("{} is in use", device.display())))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Best effort after a panic: what cannot be undone stays in the journal for the next start.
        if !self.is_given_up {
            let _ = self.undo();
        }
    }
}

/// Undoes what processes that were killed have left. What was done, a line for each, and what could not be.
///
/// # Errors
/// The folder of the journals cannot be read.
pub(super) fn clear_leftovers(workshop: &Workshop) -> Result<Vec<String>, LabError> {
    let entries = match fs::read_dir(&workshop.home) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(told(&workshop.home))?,
    };
    let mut lines = Vec::new();
    for home in entries.flatten().map(|entry| entry.path()) {
        let Some(mut site) = Site::find(workshop, &home) else {
            continue;
        };
        let what: Vec<String> = site.steps.iter().rev().map(Step::shown).collect();
        let shown = what.join(", ");
        lines.push(match site.undo() {
            Ok(()) => format!("an experiment was killed; what it left is removed: {shown}"),
            Err(error) => format!("an experiment was killed and left {shown}; {error}"),
        });
        site.is_given_up = true; // another try now would give no better answer
    }
    Ok(lines)
}

/// Folders of members in `parent` whose maker has died, and which no journal knows any more.
pub(super) fn stray_members(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with(MEMBERS_PREFIX)
        })
        .map(|entry| entry.path())
        .filter(|folder| {
            let lock = File::open(folder.join(LOCK));
            lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
        })
        .collect();
    found.sort();
    found
}

impl Step {
    /// What it is, in a few words.
    fn shown(&self) -> String {
        match self {
            Step::Folder(path)
            | Step::File(path)
            | Step::Device(path)
            | Step::Nbd(path)
            | Step::Md(path) => path.display().to_string(),
            Step::Server(_) => "a server".to_owned(),
            Step::Attached => "an attached volume".to_owned(),
            Step::Mounted(path) => format!("a file system at {}", path.display()),
            Step::Pool(name) => format!("the pool {name}"),
        }
    }
}

/// The loop devices on a file.
fn loop_devices(file: &Path) -> Vec<PathBuf> {
    let holds = |name: &std::ffi::OsStr| {
        let path = Path::new("/sys/block").join(name).join("loop/backing_file");
        let backing = fs::read_to_string(path).unwrap_or_default();
        Path::new(backing.trim_end()) == file
    };
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    blocks
        .map(|entry| entry.file_name())
        .filter(|name| holds(name))
        .map(|name| Path::new("/dev").join(name))
        .collect()
}

/// Whether a device of the kernel's NBD client is connected to nothing.
pub(super) fn is_free_nbd(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    !Path::new("/sys/block").join(name).join("pid").exists()
}

/// Whether something is mounted there; a dead file system counts.
fn is_mount_point(folder: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev());
    match (device(folder), folder.parent().map(device)) {
        (Err(error), _) => error.kind() != ErrorKind::NotFound,
        (Ok(own), Some(Ok(above))) => own != above,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_maker_left_is_removed_and_a_living_one_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let workshop = Workshop {
            program: PathBuf::from("/nowhere"),
            home: place.path().join("lab"),
        };
        let parent = place.path().join("members");
        fs::create_dir(&parent).unwrap();
        assert!(
            clear_leftovers(&workshop).unwrap().is_empty(),
            "no folder yet"
        );

        let mut site = Site::begin(&workshop).unwrap();
        let folder = site.members_folder(&parent).unwrap();
        let file = folder.join("member0");
        site.note(Step::File(file.clone())).unwrap();
        fs::write(&file, "data").unwrap();
        site.note(Step::File(folder.join("never made"))).unwrap();
        site.mount_point().unwrap();
        assert!(
            Site::begin(&workshop).is_err(),
            "one at a time in a process"
        );
        assert!(clear_leftovers(&workshop).unwrap().is_empty());
        assert!(stray_members(&parent).is_empty());
        assert!(file.exists(), "the maker lives");

        // It dies while it writes a line.
        write!(site.journal, "{{\"fi").unwrap();
        site.is_given_up = true;
        drop(site);
        assert_eq!(stray_members(&parent), [folder.as_path()]);
        let lines = clear_leftovers(&workshop).unwrap();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("is removed"), "{lines:?}");
        assert!(lines[0].contains(&file.display().to_string()), "{lines:?}");
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&workshop.home).unwrap().count(), 0);
    }

    #[test]
    fn what_lies_below_something_that_cannot_be_undone_is_left_alone_and_tried_again() {
        let place = tempfile::tempdir().unwrap();
        let workshop = Workshop {
            program: PathBuf::from("/nowhere"),
            home: place.path().join("lab"),
        };
        let mut site = Site::begin(&workshop).unwrap();
        let file = place.path().join("member0");
        site.note(Step::File(file.clone())).unwrap();
        fs::write(&file, "data").unwrap();
        // A folder with something of somebody else in it cannot be removed.
        let folder = place.path().join("folder");
        site.note(Step::Folder(folder.clone())).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("theirs"), "").unwrap();
        let error = site.undo().unwrap_err().to_string();
        assert!(error.starts_with("not all was undone: "), "{error}");
        assert!(file.exists(), "the step before was undone");
        fs::remove_file(folder.join("theirs")).unwrap();
        site.undo().unwrap();
        assert!(!file.exists() && !folder.exists() && !site.home.exists());
    }
}
