//! Runs the program in a folder of its own, without a terminal.
#![allow(dead_code)] // each test file uses a part

pub mod browser;
pub mod served;
pub mod tour;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How a run ended.
pub struct Run {
    /// Exit code.
    pub exit: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Run {
    /// All objects of standard output, one a line; each must have a version and a kind.
    pub fn objects(&self) -> Vec<serde_json::Value> {
        let parse = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(value["version"], 1, "{line}");
            assert!(value["kind"].is_string(), "{line}");
            value
        };
        self.out.lines().map(parse).collect()
    }
}

/// A folder for one test, removed at its end.
pub struct Place {
    /// The folder.
    pub folder: PathBuf,
    /// What its commands find in their environment beside what all find.
    pub environment: Vec<(&'static str, OsString)>,
}

impl Place {
    /// An empty folder named after the test.
    pub fn new(name: &str) -> Self {
        Self::within(Path::new(env!("CARGO_TARGET_TMPDIR")), name)
    }

    /// The same where flushes cost nothing, if the system has such a place.
    pub fn in_memory(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() {
            Self::within(memory, &format!("plexum-{name}"))
        } else {
            Self::new(name)
        }
    }

    fn within(parent: &Path, name: &str) -> Self {
        // Sockets lie in it, and the system takes paths of 107 bytes for them: the name is cut.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("{name:.20}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self {
            folder,
            environment: Vec::new(),
        }
    }

    /// A command in the folder, with its runtime folder inside.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.folder)
            .env("XDG_RUNTIME_DIR", &self.folder)
            .env("XDG_CONFIG_HOME", self.folder.join("config"))
            .env("XDG_STATE_HOME", self.folder.join("state"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs plexum with words separated by blanks.
    pub fn plexum(&self, words: &str) -> Run {
        let words: Vec<&str> = words.split_whitespace().collect();
        run(self.command(env!("CARGO_BIN_EXE_plexum")).args(words))
    }

    /// Runs it with further variables of the environment.
    pub fn plexum_with(&self, words: &str, variables: &[(&str, PathBuf)]) -> Run {
        let mut command = self.command(env!("CARGO_BIN_EXE_plexum"));
        command.args(words.split_whitespace());
        run(command.envs(variables.iter().map(|(name, value)| (name, value))))
    }

    /// Runs another program, which must be installed.
    pub fn tool(&self, program: &str, words: &str) -> Run {
        run(self.command(program).args(words.split_whitespace()))
    }

    /// A file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Where a member is put that is to be away: in a folder of its own, where nobody looks for it.
    pub fn away(&self, name: &str) -> PathBuf {
        let folder = self.file("away");
        std::fs::create_dir_all(&folder).unwrap();
        folder.join(name)
    }

    /// A sparse file.
    pub fn sparse(&self, name: &str, size_bytes: u64) -> PathBuf {
        let path = self.file(name);
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(size_bytes).unwrap();
        path
    }

    /// Contents of all plain files in the folder, sorted by name.
    pub fn snapshot(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files: Vec<_> = std::fs::read_dir(&self.folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
            .collect();
        files.sort();
        files
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs plexum, which must succeed; what it printed.
pub fn ok(place: &Place, words: &str) -> String {
    served::done(place, words).out
}

/// Where a volume is served for clients of NBD.
pub fn uri(place: &Place, volume: &str) -> String {
    let folder = place.folder.display();
    format!("nbd+unix:///{volume}?socket={folder}/plexum/{volume}.nbd")
}

fn run(command: &mut Command) -> Run {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{program} must be installed: {error}"));
    Run {
        exit: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
