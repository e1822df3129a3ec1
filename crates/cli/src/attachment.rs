//! What `attach` has set up, written down so that `detach` can undo it, also after a crash of any part.
//!
//! Invariants:
//! - `RUNTIME/attach/NAME.json` exists before the first step and until after the last undone one;
//! - each step of `undo` looks whether there is still something to undo, so that it can be repeated.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::runtime_dir::Surroundings;
use plexum_daemon::status::AttachmentStatus;
use plexum_export::process;
use serde::{Deserialize, Serialize};

use crate::attach_ublk::{self, Origin};
use crate::control::runtime_dir;
use crate::nbd_device;
use crate::system::{BUSY_LOOKS_MAX, Mount, Process, end, mounts, tool, wait_at_most, wait_until};

/// Longest name of a volume that makes a file name, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// What was set up for one volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attachment {
    /// Name of the volume.
    pub volume: String,
    /// The process that serves the FUSE file, or keeps the kernel's nbd in connections.
    pub process: Option<Process>,
    /// Where the FUSE file system is mounted.
    pub folder: PathBuf,
    /// The loop device, or that of the kernel's nbd.
    pub device: Option<PathBuf>,
    /// Where the device is mounted.
    pub mountpoint: Option<PathBuf>,
    /// Whether it can only be read.
    pub is_read_only: bool,
    /// A tree of files instead of a FUSE file: where it is mounted.
    #[serde(default)]
    pub tree: Option<PathBuf>,
    /// A device of the kernel's nbd instead of a FUSE file: what it is made with.
    #[serde(default)]
    pub nbd: Option<String>,
    /// A device that the volume's own server serves to the kernel.
    #[serde(default)]
    pub ublk: Option<Origin>,
}

/// `RUNTIME/attach`, made when it is missing.
///
/// # Errors
/// Of making it.
pub fn home() -> Result<PathBuf, Problem> {
    let runtime = runtime_dir();
    runtime.ensure(&Surroundings::of_this_process())?;
    let home = runtime.path().join("attach");
    let shown = home.display().to_string();
    match fs::create_dir(&home) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(Problem::from_io(&error, "making", &shown));
        }
        _ => {}
    }
    // The kernel tells paths without links; ours are compared with its own.
    fs::canonicalize(&home).map_err(|error| Problem::from_io(&error, "looking at", &shown))
}

/// All attachments of this user, sorted by name; nothing is made for that.
#[must_use]
pub fn all() -> Vec<Attachment> {
    let mut found: Vec<Attachment> = fs::read_dir(runtime_dir().path().join("attach"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
        .collect();
    found.sort_by(|a, b| a.volume.cmp(&b.volume));
    found
}

/// What stands on the served volume of this name: trees of pools have no server.
#[must_use]
pub fn on_volume(volume: &str) -> Vec<Attachment> {
    let mut all = all();
    all.retain(|one| one.volume == volume && one.tree.is_none());
    all
}

/// The process of an attachment, just started.
pub struct Started {
    child: Child,
    /// Its first line.
    pub line: String,
}

fn not_started(error: &std::io::Error) -> Problem {
    Problem::from_io(error, "starting", "the process of the attachment")
}

impl Attachment {
    /// Begins an attachment of `volume`: its file and its folder exist afterwards.
    ///
    /// # Errors
    /// `Busy` when there is one already.
    pub fn begin(volume: &str) -> Result<Self, Problem> {
        check_file_name(volume)?;
        let attachment = Self {
            volume: volume.to_owned(),
            process: None,
            folder: home()?.join(volume),
            device: None,
            mountpoint: None,
            is_read_only: false,
            tree: None,
            nbd: None,
            ublk: None,
        };
        // A link appears whole or not at all: a half-written file would be neither attached nor free.
        let (path, new) = (attachment.path(), attachment.draft());
        fs::write(&new, attachment.to_bytes()).map_err(|error| told(&error, "writing", &new))?;
        let linked = fs::hard_link(&new, &path);
        let _ = fs::remove_file(&new);
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(attached_already(volume));
            }
            Err(error) => return Err(told(&error, "making", &path)),
        }
        match fs::create_dir(&attachment.folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                Err(told(&error, "making", &attachment.folder))
            }
            _ => Ok(attachment),
        }
    }

    /// What `begin` would be refused for; nothing is made.
    ///
    /// # Errors
    /// As `begin`.
    pub fn check(volume: &str) -> Result<(), Problem> {
        check_file_name(volume)?;
        runtime_dir().check(&Surroundings::of_this_process())?;
        let path = runtime_dir()
            .path()
            .join("attach")
            .join(format!("{volume}.json"));
        if path.exists() {
            return Err(attached_already(volume));
        }
        Ok(())
    }

    /// What `undo` would be refused for at once; whether a program still stands in it shows only when it is tried.
    ///
    /// # Errors
    /// `Busy` when the device is mounted elsewhere.
    pub fn check_undo(&self) -> Result<(), Problem> {
        for device in self.devices() {
            for mount in self.mounts_of(&device) {
                self.check_mount(&device, &mount)?;
            }
        }
        Ok(())
    }

    /// What is mounted of the device; of one with partitions, of these as well.
    fn mounts_of(&self, device: &Path) -> Vec<Mount> {
        let mut mounts = mounts();
        mounts.retain(|mount| match (&self.nbd, self.ublk) {
            (None, None) => mount.source == device,
            // These have partitions.
            _ => nbd_device::holds(device, &mount.source),
        });
        mounts
    }

    fn check_mount(&self, device: &Path, mount: &Mount) -> Result<(), Problem> {
        if mount.source == device && Some(&mount.folder) == self.mountpoint.as_ref() {
            return Ok(());
        }
        let shown = mount.folder.display();
        let text = format!("{} is mounted at {shown}", mount.source.display());
        Err(Problem::new(Code::Busy, text).hint(format!("to unmount it first:   umount {shown}")))
    }

    fn path(&self) -> PathBuf {
        self.folder.with_file_name(format!("{}.json", self.volume))
    }

    /// A name beside it, of this process alone.
    fn draft(&self) -> PathBuf {
        self.path()
            .with_extension(format!("new-{}", std::process::id()))
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers become JSON")
    }

    /// Starts its process and reads the one line that this prints; what it says besides goes to the log.
    ///
    /// # Errors
    /// Of starting it.
    pub fn start(&mut self, command: std::io::Result<Command>) -> Result<Started, Problem> {
        let mut child = File::create(self.log())
            .and_then(|errors| {
                let mut command = command?;
                command.stdin(Stdio::null()).stdout(Stdio::piped());
                command.stderr(errors).spawn()
            })
            .map_err(|error| not_started(&error))?;
        self.process = Process::find(child.id());
        self.save()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            let read = BufReader::new(out).read_line(&mut line);
            read.map_err(|error| not_started(&error))?;
        }
        Ok(Started { child, line })
    }

    /// The process is not what was wanted, and ends: its exit code.
    ///
    /// # Errors
    /// Of waiting for it.
    pub fn wait(&mut self, mut started: Started) -> Result<u8, Problem> {
        let status = started.child.wait().map_err(|error| not_started(&error))?;
        self.process = None;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Ok(code.unwrap_or(Code::Bug.exit()))
    }

    /// Tells what the process has written to its log.
    pub fn tell_log(&self) {
        crate::output::tell_part!("{}", fs::read_to_string(self.log()).unwrap_or_default());
    }

    /// Where the process writes its errors.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.with_file_name(format!("{}.log", self.volume))
    }

    /// The FUSE file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.join(&self.volume)
    }

    /// Writes it down.
    ///
    /// # Errors
    /// Of writing.
    pub fn save(&self) -> Result<(), Problem> {
        let (path, new) = (self.path(), self.draft());
        fs::write(&new, self.to_bytes())
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|error| told(&error, "writing", &path))
    }

    /// The name that the device has as long as it is attached, whatever number it got: `RUNTIME/device/NAME`.
    fn device_link(&self) -> PathBuf {
        let runtime = self.folder.ancestors().nth(2).unwrap_or(Path::new("/"));
        runtime.join("device").join(&self.volume)
    }

    /// Makes the name of its device.
    ///
    /// # Errors
    /// Of making it.
    pub fn link(&self) -> Result<(), Problem> {
        let Some(device) = &self.device else {
            return Ok(());
        };
        let link = self.device_link();
        let folder = link.parent().unwrap_or(Path::new("/"));
        let _ = fs::remove_file(&link);
        fs::create_dir_all(folder)
            .and_then(|()| std::os::unix::fs::symlink(device, &link))
            .map_err(|error| told(&error, "making", &link))
    }

    /// By what the kernel reaches the volume.
    #[must_use]
    pub fn by(&self) -> &'static str {
        match (&self.nbd, self.ublk) {
            (_, Some(_)) => "ublk",
            (Some(_), None) => "nbd",
            (None, None) => "fuse",
        }
    }

    fn running(&self) -> Option<&Process> {
        self.process.as_ref().filter(|process| process.is_running())
    }

    /// Whether the volume can be reached through it. A device of the kernel's nbd works without its process.
    #[must_use]
    pub fn is_working(&self) -> bool {
        let is_of_kernel = self.nbd.is_some() || self.ublk.is_some();
        self.running().is_some() || is_of_kernel && !self.devices().is_empty()
    }

    /// As status tells it.
    #[must_use]
    pub fn status(&self) -> AttachmentStatus {
        let shown = |path: &PathBuf| path.display().to_string();
        let process = self.running();
        let is_of_kernel = self.nbd.is_some() || self.ublk.is_some();
        let file = match &self.device {
            Some(device) if is_of_kernel => shown(device),
            _ => shown(&self.file()),
        };
        AttachmentStatus {
            by: self.by().to_owned(),
            device: self.device.as_ref().map(shown),
            file,
            mountpoint: self.mountpoint.as_ref().map(shown),
            pid: process.map(|process| process.pid),
        }
    }

    /// Undoes everything, last step first. May be called again after an error.
    ///
    /// # Errors
    /// `Busy` when somebody uses a part of it.
    pub fn undo(mut self) -> Result<(), Problem> {
        for device in self.devices() {
            self.unmount_device(&device)?;
            self.release_device(&device)?;
            self.device = None;
            self.save()?;
        }
        if self.nbd.is_none() && self.ublk.is_none() {
            self.unmount_file()?;
        }
        if let Some(process) = &self.process {
            end(process);
        }
        let _ = fs::remove_file(self.device_link());
        let _ = fs::remove_dir(&self.folder);
        let _ = fs::remove_file(self.log());
        let path = self.path();
        fs::remove_file(&path).map_err(|error| told(&error, "removing", &path))
    }

    fn unmount_device(&mut self, device: &Path) -> Result<(), Problem> {
        for mount in self.mounts_of(device) {
            self.check_mount(device, &mount)?;
            let mut words = String::new();
            let is_done = wait_at_most(BUSY_LOOKS_MAX, || {
                let result = tool(Command::new("umount").arg(&mount.folder));
                result.map_err(|error| words = error).is_ok()
            });
            if !is_done {
                return Err(in_use(&mount.folder, &words));
            }
        }
        self.mountpoint = None;
        self.save()
    }

    /// All loop devices on our file, or devices of the kernel's nbd that are ours. What was written down is not asked:
    /// that device may be somebody else's by now, and one may have been made without being written down.
    fn devices(&self) -> Vec<PathBuf> {
        if let Some(identifier) = &self.nbd {
            return nbd_device::find(identifier, self.process.as_ref());
        }
        if self.ublk.is_some() {
            return attach_ublk::find(&self.volume).into_iter().collect();
        }
        fs::read_dir("/sys/block")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| Path::new("/dev").join(entry.file_name()))
            .filter(|device| self.holds(device))
            .collect()
    }

    /// Whether `device` still stands on our file.
    fn holds(&self, device: &Path) -> bool {
        backing_file(device).is_some_and(|file| file == self.file())
    }

    fn release_device(&self, device: &Path) -> Result<(), Problem> {
        match self.ublk {
            Some(Origin::Made) => return attach_ublk::remove(&self.volume),
            Some(Origin::Found) => return Ok(()),
            None => {}
        }
        if let Some(identifier) = &self.nbd {
            return nbd_device::release(device, identifier, self.process.as_ref())
                .map_err(|words| in_use(device, &words));
        }
        tool(Command::new("losetup").arg("-d").arg(device))
            .map_err(|words| in_use(device, &words))?;
        // The kernel lets go when the last user has closed it, which may be a moment later.
        if wait_until(|| !self.holds(device)) {
            return Ok(());
        }
        Err(in_use(device, "somebody has it open"))
    }

    fn unmount_file(&self) -> Result<(), Problem> {
        let folder = self.tree.as_ref().unwrap_or(&self.folder);
        let is_mounted = || mounts().iter().any(|mount| mount.folder == *folder);
        let mut words = String::new();
        let is_done = wait_until(|| {
            if !is_mounted() {
                return true;
            }
            let mut command = if process::is_root() {
                Command::new("umount")
            } else {
                let mut command = Command::new("fusermount3");
                command.arg("-u");
                command
            };
            match tool(command.arg(folder)) {
                Ok(_) => true,
                Err(error) => {
                    words = error;
                    false
                }
            }
        });
        if is_done {
            Ok(())
        } else {
            Err(in_use(self.tree.as_ref().unwrap_or(&self.file()), &words))
        }
    }
}

fn check_file_name(volume: &str) -> Result<(), Problem> {
    if volume.contains('/') || volume.starts_with('.') || volume.len() > NAME_BYTES_MAX {
        let text = format!("volume {volume} has a name that cannot be a file's name");
        return Err(Problem::new(Code::Usage, text)
            .hint("to serve it under another:   plexum serve --name NAME MEMBER..."));
    }
    Ok(())
}

fn attached_already(volume: &str) -> Problem {
    Problem::new(Code::Busy, format!("{volume} is attached already"))
        .hint(format!("to undo that:   plexum detach {volume}"))
}

fn told(error: &std::io::Error, doing: &str, path: &Path) -> Problem {
    Problem::from_io(error, doing, &path.display().to_string())
}

fn in_use(path: &Path, words: &str) -> Problem {
    let shown = path.display();
    Problem::new(Code::Busy, format!("{shown} cannot be released: {words}"))
        .why("a program still uses it, or stands in a folder on it")
        .hint(format!("to see which:   fuser -vm {shown}"))
        .hint("then:   plexum detach")
}

/// The file below a loop device; `None` when it has none.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?;
    let path = Path::new("/sys/block").join(name).join("loop/backing_file");
    Some(PathBuf::from(fs::read_to_string(path).ok()?.trim_end()))
}
