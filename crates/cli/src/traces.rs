//! Traces of servers that no volume tells of: those that ended without a stop, and those in another runtime folder.
//!
//! Invariants:
//! - a socket is taken for a trace only when nobody answers on it; it is left where it is;
//! - folders of other users, and environments of their processes, are not looked into.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use plexum_daemon::advice::shell_word;
use plexum_daemon::problem::Problem;
use plexum_daemon::runtime_dir::{Kind, RuntimeDir, Surroundings};
use serde_json::{Value, json};

/// How a server was started is recorded beside its control socket, so that `status` can say how to start it again.
pub mod record {
    use super::*;

    /// Set for a server that `--background` has started.
    pub const BACKGROUND: &str = "PLEXUM_IN_BACKGROUND";

    /// Records the command line of this process for the volume whose control socket is `control`. A server without it
    /// works as well, so nothing is said when it cannot be written.
    pub fn write(control: &Path, volume: &str) {
        let mut words: Vec<String> = std::env::args().skip(1).map(|word| full(&word)).collect();
        words.retain(|word| word != "--json");
        if std::env::var_os(BACKGROUND).is_some() {
            words.push("--background".into());
        }
        let text = json!({"volume": volume, "pid": std::process::id(), "words": words});
        let _ = std::fs::write(path(control), text.to_string());
    }

    /// Takes it away: the volume was stopped.
    pub fn remove(control: &Path) {
        let _ = std::fs::remove_file(path(control));
    }

    /// What was recorded.
    pub fn read(control: &Path) -> Value {
        let text = std::fs::read_to_string(path(control)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn path(control: &Path) -> PathBuf {
        control.with_extension(Kind::Command.extension())
    }

    /// A path as it can be typed anywhere; other words stay.
    fn full(word: &str) -> String {
        let path = Path::new(word);
        if word.starts_with('-') || !path.exists() {
            return word.to_owned();
        }
        std::path::absolute(path)
            .map_or_else(|_| word.to_owned(), |full| full.display().to_string())
    }
}

/// A server that ended without a stop.
#[derive(Clone, Debug)]
pub struct Dead {
    /// Its volume.
    pub volume: String,
    /// The control socket that it left behind.
    pub control: PathBuf,
    /// Its process, where it is recorded.
    pub pid: Option<u64>,
    /// The command that serves the volume again.
    pub again: String,
}

impl Dead {
    fn of(control: PathBuf) -> Self {
        let record = record::read(&control);
        let stem = control.file_stem().map(|stem| stem.to_string_lossy());
        let stem = stem.unwrap_or_default().into_owned();
        let words = record["words"].as_array().map(|words| {
            let words = words.iter().filter_map(Value::as_str).map(shell_word);
            words.collect::<Vec<String>>().join(" ")
        });
        Self {
            volume: record["volume"].as_str().map_or(stem, str::to_owned),
            pid: record["pid"].as_u64(),
            again: format!("plexum {}", words.as_deref().unwrap_or("serve MEMBER...")),
            control,
        }
    }

    /// What happened, in a sentence.
    pub fn sentence(&self) -> String {
        let who = self
            .pid
            .map_or(String::new(), |pid| format!(" (process {pid})"));
        format!("the server of {}{who} ended without a stop", self.volume)
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({"volume": self.volume, "control": self.control, "pid": self.pid, "command": self.again})
    }
}

/// Another runtime folder in which something is served, or was.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// The folder.
    pub folder: PathBuf,
    /// Volumes whose servers answer.
    pub served: Vec<String>,
    /// Servers that ended without a stop.
    pub dead: Vec<Dead>,
}

impl Elsewhere {
    /// The command that shows what is in the folder, where the environment can name it.
    pub fn command(&self) -> Option<String> {
        let from = Surroundings::of_this_process();
        let unset = Surroundings {
            xdg_runtime_dir: None,
            ..from
        };
        if RuntimeDir::locate(&unset).path() == self.folder {
            return Some("env -u XDG_RUNTIME_DIR plexum status".into());
        }
        let is_named = self.folder.file_name().is_some_and(|name| name == "plexum");
        let parent = self.folder.parent().filter(|_| is_named)?;
        let parent = shell_word(&parent.display().to_string());
        Some(format!("env XDG_RUNTIME_DIR={parent} plexum status"))
    }

    /// What is there, in a sentence.
    pub fn sentence(&self) -> String {
        let folder = self.folder.display();
        let mut parts = Vec::new();
        if !self.served.is_empty() {
            parts.push(format!("{} served", self.served.join(" ")));
        }
        parts.extend(self.dead.iter().map(Dead::sentence));
        format!("in {folder}: {}", parts.join(", "))
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let dead: Vec<Value> = self.dead.iter().map(Dead::to_json).collect();
        json!({"folder": self.folder, "served": self.served, "dead": dead, "command": self.command()})
    }
}

/// All traces.
#[derive(Clone, Debug)]
pub struct Traces {
    /// The folder that commands look into.
    pub folder: PathBuf,
    /// Servers of it that ended without a stop.
    pub dead: Vec<Dead>,
    /// What other folders have.
    pub elsewhere: Vec<Elsewhere>,
}

impl Traces {
    /// Looks for them.
    pub fn look() -> Self {
        let from = Surroundings::of_this_process();
        let own = RuntimeDir::locate(&from);
        let usual = usual_folders(from.user_id);
        let others = usual.into_iter().filter(|folder| folder != own.path());
        Self {
            dead: sockets_of(&own).1,
            elsewhere: others
                .filter_map(|folder| look_into(folder, from.user_id))
                .collect(),
            folder: own.path().to_owned(),
        }
    }

    /// Looks as well where servers of this user that run now were told to.
    #[must_use]
    pub fn with_processes(mut self) -> Self {
        let user_id = Surroundings::of_this_process().user_id;
        let mut folders = folders_of_processes(Path::new("/proc"), user_id);
        folders.sort();
        folders.dedup();
        folders.retain(|folder| {
            let known = self.elsewhere.iter().map(|other| &other.folder);
            *folder != self.folder && known.clone().all(|known| known != folder)
        });
        let new = folders.into_iter();
        self.elsewhere
            .extend(new.filter_map(|folder| look_into(folder, user_id)));
        self
    }

    /// Adds to a refusal what is known of the volume `name`, or of all.
    pub fn explain(&self, mut problem: Problem, name: Option<&str>) -> Problem {
        let is_meant = |volume: &str| name.is_none_or(|name| name == volume);
        let elsewhere = self.elsewhere.iter();
        let all = self
            .dead
            .iter()
            .chain(elsewhere.clone().flat_map(|other| &other.dead));
        for dead in all.filter(|dead| is_meant(&dead.volume)) {
            problem = problem
                .why(dead.sentence())
                .hint(format!("to serve it again:   {}", dead.again));
        }
        for other in elsewhere.filter(|other| other.served.iter().any(|volume| is_meant(volume))) {
            problem = problem.why(other.sentence());
            if let Some(command) = other.command() {
                problem = problem.hint(format!("to see it:   {command}"));
            }
        }
        problem
    }
}

/// Runtime folders that other environments of the same user lead to.
fn usual_folders(user_id: u32) -> Vec<PathBuf> {
    [
        "/run/plexum".to_owned(),
        format!("/run/user/{user_id}/plexum"),
        format!("/tmp/plexum-{user_id}"),
    ]
    .map(PathBuf::from)
    .to_vec()
}

/// Runtime folders of the servers of `user_id` that run now, by the environment that each was started with.
fn folders_of_processes(proc: &Path, user_id: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let folders = entries.filter_map(|entry| {
        let process = entry.path();
        let command = std::fs::read(process.join("cmdline")).ok()?;
        let mut words = command.split(|&byte| byte == 0);
        let program = Path::new(OsStr::from_bytes(words.next()?)).file_name()?;
        let serves = words.any(|word| word == b"serve" || word == b"daemon");
        let is_own = entry.metadata().is_ok_and(|meta| meta.uid() == user_id);
        if !is_own || !serves || program != "plexum" {
            return None;
        }
        let environment = std::fs::read(process.join("environ")).ok()?;
        let mut values = environment.split(|&byte| byte == 0);
        let value = values.find_map(|value| value.strip_prefix(b"XDG_RUNTIME_DIR="));
        let value = value.filter(|value| !value.is_empty());
        let started = Surroundings {
            xdg_runtime_dir: value.map(|value| OsStr::from_bytes(value).to_owned()),
            user_id,
        };
        Some(RuntimeDir::locate(&started).path().to_owned())
    });
    folders.collect()
}

fn look_into(folder: PathBuf, user_id: u32) -> Option<Elsewhere> {
    let meta = std::fs::symlink_metadata(&folder).ok()?;
    if !meta.is_dir() || meta.uid() != user_id {
        return None;
    }
    let (served, dead) = sockets_of(&RuntimeDir::at(folder.clone()));
    let has_any = !served.is_empty() || !dead.is_empty();
    has_any.then_some(Elsewhere {
        folder,
        served,
        dead,
    })
}

/// Volumes whose servers answer in a folder, and servers that have ended.
fn sockets_of(dir: &RuntimeDir) -> (Vec<String>, Vec<Dead>) {
    let (mut served, mut dead) = (Vec::new(), Vec::new());
    for control in dir.control_sockets() {
        match UnixStream::connect(&control) {
            Ok(stream) if !plexum_daemon::runtime_dir::has_ended(&stream) => {
                served.push(Dead::of(control).volume);
            }
            Ok(_) => dead.push(Dead::of(control)),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                dead.push(Dead::of(control));
            }
            Err(_) => {} // gone meanwhile, or not ours to ask
        }
    }
    (served, dead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_nobody_listens_on_is_a_trace_and_names_the_command_that_was_recorded() {
        let folder = std::env::temp_dir().join(format!("plexum-traces-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let control = folder.join("nas.control");
        drop(std::os::unix::net::UnixListener::bind(&control).unwrap());
        let dir = RuntimeDir::at(folder.clone());
        assert_eq!(sockets_of(&dir).1[0].again, "plexum serve MEMBER...");
        let record = json!({"volume": "nas", "pid": 7, "words": ["serve", "/x/my disk"]});
        std::fs::write(folder.join("nas.command"), record.to_string()).unwrap();
        let (served, dead) = sockets_of(&dir);
        assert!(served.is_empty());
        assert_eq!(dead[0].again, "plexum serve '/x/my disk'");
        assert_eq!(
            dead[0].sentence(),
            "the server of nas (process 7) ended without a stop"
        );
        let listener = std::os::unix::net::UnixListener::bind(folder.join("two.control")).unwrap();
        assert_eq!(sockets_of(&dir).0, ["two"]);
        drop(listener);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
