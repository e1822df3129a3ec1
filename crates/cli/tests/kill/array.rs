//! One volume: its members as files or as volatile members, the processes that serve them, and its commands.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::common::Place;
use super::volatile::EXPORT;

/// Size of a member.
const MEMBER_BYTES: u64 = 4 << 20;

/// The same where rows move: there is room behind what is used.
const ROOMY_BYTES: u64 = 14 << 20;

/// The same of a pool: OpenZFS takes no smaller one.
const POOL_MEMBER_BYTES: u64 = 96 << 20;

/// Size of the volume of a pool.
const POOL_VOLUME: &str = "8M";

/// Polls before something that should come does not; each starts a program, so that they take minutes.
const POLLS_MAX: usize = 20_000;

/// An organisation under test.
#[derive(Clone, Copy, Debug)]
pub struct Organisation {
    /// Its name.
    pub name: &'static str,
    /// Words of `create`.
    words: &'static str,
    /// Members.
    pub members: usize,
    /// Members that may be lost.
    pub spare_failures: usize,
    /// Bytes that rewrite whole rows.
    pub whole_rows_bytes: usize,
    /// Of the members, those that are spares at first.
    pub spares: usize,
    /// The shapes that it gets, one after the other, again and again.
    pub changes: &'static [Change],
    /// Whose volume it is.
    pub kind: Kind,
}

/// What a volume is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An array of md: it is all that its members hold.
    Array,
    /// A ZFS pool.
    Pool,
}

/// Another shape of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Words for `plexum grow`.
    pub words: &'static str,
    /// A field of its status that says it is done.
    pub field: &'static str,
    /// What that says, as text.
    pub value: &'static str,
}

impl Organisation {
    /// Whether parity, not copies, makes it redundant.
    pub fn has_parity(&self) -> bool {
        self.whole_rows_bytes > 0
    }
}

/// What is tested.
pub const ORGANISATIONS: [Organisation; 4] = [
    Organisation {
        name: "raid1",
        words: "--level 1",
        members: 2,
        spare_failures: 1,
        whole_rows_bytes: 0,
        spares: 0,
        changes: &[],
        kind: Kind::Array,
    },
    Organisation {
        name: "raid10",
        words: "--level 10 --strip 16K",
        members: 4,
        spare_failures: 1,
        whole_rows_bytes: 0,
        spares: 0,
        changes: &[],
        kind: Kind::Array,
    },
    Organisation {
        name: "raid5",
        words: "--level 5 --strip 16K",
        members: 4,
        spare_failures: 1,
        whole_rows_bytes: 3 * (16 << 10) * 8,
        spares: 0,
        changes: &[],
        kind: Kind::Array,
    },
    Organisation {
        name: "raid6",
        words: "--level 6 --strip 16K",
        members: 5,
        spare_failures: 2,
        whole_rows_bytes: 3 * (16 << 10) * 8,
        spares: 0,
        changes: &[],
        kind: Kind::Array,
    },
];

const fn change(words: &'static str, field: &'static str, value: &'static str) -> Change {
    Change {
        words,
        field,
        value,
    }
}

const fn reshaped(
    name: &'static str,
    words: &'static str,
    (members, spares, spare_failures): (usize, usize, usize),
    changes: &'static [Change],
) -> Organisation {
    Organisation {
        name,
        words,
        members,
        spare_failures,
        whole_rows_bytes: 0,
        spares,
        changes,
        kind: Kind::Array,
    }
}

/// What is tested while its rows move.
pub const RESHAPED: [Organisation; 4] = [
    reshaped(
        "wider",
        "--level 5 --strip 16K --size 8M",
        (5, 1, 1),
        &[
            change("--members 5", "slots", "5"),
            change("--members 4 --force", "slots", "4"),
        ],
    ),
    reshaped(
        "level",
        "--level 5 --strip 16K --size 8M",
        (5, 1, 1),
        &[
            change("--level 6 --members 5", "level", "raid6"),
            change("--level 5 --members 4", "level", "raid5"),
        ],
    ),
    reshaped(
        "layout",
        "--level 5 --strip 16K --size 8M",
        (4, 0, 1),
        &[
            change("--layout right-asymmetric", "layout", "right-asymmetric"),
            change("--layout left-symmetric", "layout", "left-symmetric"),
        ],
    ),
    reshaped(
        "strip",
        "--level 6 --strip 16K --size 8M",
        (5, 0, 2),
        &[
            change("--strip 32K", "strip_bytes", "32768"),
            change("--strip 16K", "strip_bytes", "16384"),
        ],
    ),
];

const fn pool(
    name: &'static str,
    words: &'static str,
    members: usize,
    spare: usize,
) -> Organisation {
    Organisation {
        name,
        words,
        members,
        spare_failures: spare,
        whole_rows_bytes: 0,
        spares: 0,
        changes: &[],
        kind: Kind::Pool,
    }
}

/// Pools that are tested.
pub const POOLS: [Organisation; 3] = [
    pool("pool-mirror", "mirror", 2, 1),
    pool("pool-raidz1", "raidz1", 3, 1),
    pool("pool-raidz2", "raidz2", 5, 2),
];

/// A process that is killed when nobody wants it any more.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        // It may have ended by itself; it is gone either way.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A volume with its processes.
pub struct Array {
    /// Its folder.
    pub place: Place,
    /// What it is.
    pub organisation: Organisation,
    is_volatile: bool,
    /// Members that have a slot at the end; the others are spares.
    pub used: Vec<usize>,
    /// Whether volatile members lie about flushes.
    pub is_lying: bool,
    members: Option<Process>,
    server: Option<Process>,
}

impl Array {
    /// Creates a volume on fresh files. With `is_volatile` they are served by a process of their own.
    pub fn create(name: &str, organisation: Organisation, is_volatile: bool) -> Self {
        let array = Self {
            place: Place::in_memory(name),
            organisation,
            used: (0..organisation.members).collect(),
            is_volatile,
            is_lying: false,
            members: None,
            server: None,
        };
        let files: Vec<String> = (0..organisation.members).map(|n| format!("m{n}")).collect();
        let member_bytes = match (organisation.kind, organisation.changes) {
            (Kind::Pool, _) => POOL_MEMBER_BYTES,
            (Kind::Array, []) => MEMBER_BYTES,
            (Kind::Array, _) => ROOMY_BYTES,
        };
        for file in &files {
            array.place.sparse(file, member_bytes);
        }
        let first = files[..organisation.members - organisation.spares].join(" ");
        let how = organisation.words;
        let made = match organisation.kind {
            Kind::Array => vec![format!("create nas {how} {first}")],
            Kind::Pool => vec![
                format!("pool create tank {how} {first}"),
                format!("pool create-volume tank/nas {POOL_VOLUME} {first}"),
            ],
        };
        for words in made {
            let run = array.place.plexum(&words);
            assert_eq!(run.exit, 0, "{words}: {}", run.err);
        }
        array
    }

    /// What the command line calls a member.
    pub fn member(&self, number: usize) -> String {
        if self.is_volatile {
            let folder = self.place.folder.display();
            format!("nbd+unix:///{EXPORT}?socket={folder}/s{number}")
        } else {
            format!("m{number}")
        }
    }

    /// The socket for clients.
    pub fn socket(&self) -> PathBuf {
        self.place.file("plexum/nas.nbd")
    }

    /// Brings the power of volatile members back.
    pub fn power_on(&mut self, seed: u64) -> Result<(), String> {
        if !self.is_volatile {
            return Ok(());
        }
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = self.place.command(this);
        command
            .args(["volatile-member", &seed.to_string()])
            .arg(self.is_lying.to_string());
        for number in 0..self.organisation.members {
            let socket = format!("s{number}");
            // The last process could not remove its socket.
            let _ = std::fs::remove_file(self.place.file(&socket));
            command.args([socket, format!("m{number}")]);
        }
        let child = command.stdout(Stdio::piped()).spawn();
        let mut process = Process(child.map_err(|error| error.to_string())?);
        first_line(&mut process)?;
        self.members = Some(process);
        Ok(())
    }

    /// Cuts the power of all volatile members in one instant.
    pub fn cut_power(&mut self) {
        self.members = None;
    }

    /// SIGKILL to the server.
    pub fn kill_server(&mut self) {
        self.server = None;
    }

    /// Starts the server. The inner error is its slug when it refuses.
    pub fn serve(
        &mut self,
        without: &[usize],
        options: &str,
    ) -> Result<Result<(), String>, String> {
        let all = (0..self.organisation.members).filter(|number| !without.contains(number));
        let mut members: Vec<String> = all.map(|number| self.member(number)).collect();
        let mut command = self.place.command(env!("CARGO_BIN_EXE_plexum"));
        command.args(["serve", "--json"]);
        match self.organisation.kind {
            Kind::Array => command.args(["--name", "nas"]),
            Kind::Pool => {
                members.extend((!without.is_empty()).then(|| "missing".to_owned()));
                command.args(["--write", "--dataset", "tank/nas"])
            }
        };
        command
            .args(options.split_whitespace())
            .args(members)
            .stdout(Stdio::piped())
            .stderr(self.messages()?);
        let child = command.spawn().map_err(|error| error.to_string())?;
        let mut process = Process(child);
        let first = first_line(&mut process)?;
        let told = match serde_json::from_str::<Value>(&first) {
            Ok(told) => told,
            Err(_) => self.last_message(),
        };
        if told["kind"] == "ready" {
            self.server = Some(process);
            return Ok(Ok(()));
        }
        match told["error"]["code"].as_str() {
            Some(slug) => Ok(Err(slug.to_owned())),
            None => Err(format!("plexum serve said: {first}{told}")),
        }
    }

    /// Where what the server says goes: a pipe that nobody reads would stop it.
    fn messages(&self) -> Result<File, String> {
        let file = File::create(self.place.file("messages"));
        file.map_err(|error| error.to_string())
    }

    fn last_message(&self) -> Value {
        let text = std::fs::read_to_string(self.place.file("messages")).unwrap_or_default();
        let mut objects = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        objects.next_back().unwrap_or(Value::String(text))
    }

    /// A command that must succeed.
    pub fn done(&self, words: &str) -> Result<String, String> {
        let run = self.place.plexum(words);
        match run.exit {
            0 => Ok(run.out),
            exit => Err(format!(
                "plexum {words}: exit {exit}, {}{}",
                run.out, run.err
            )),
        }
    }

    /// Status of the volume; the exit code says no more than its verdict.
    pub fn status(&self) -> Result<Value, String> {
        let run = self.place.plexum("status nas --json");
        serde_json::from_str(&run.out).map_err(|error| format!("{}{}: {error}", run.out, run.err))
    }

    /// Waits until nothing runs in the background.
    pub fn settle(&self) -> Result<(), String> {
        self.wait_until("the end of jobs", is_idle)
    }

    /// Waits until the status says so.
    pub fn wait_until(&self, what: &str, says_so: impl Fn(&Value) -> bool) -> Result<(), String> {
        let mut status = Value::Null;
        for _ in 0..POLLS_MAX {
            status = self.status()?;
            if says_so(&status) {
                return Ok(());
            }
        }
        Err(format!("waited in vain for {what}: {status}"))
    }

    /// Copies and parity must agree everywhere.
    pub fn scrub(&self) -> Result<(), String> {
        let text = self.done("scrub nas --wait --json")?;
        let report: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let is_whole = report["is_complete"] == true
            && report["mismatch_bytes"] == 0
            && report["skipped_bytes"] == 0;
        is_whole.then_some(()).ok_or(format!("scrub: {text}"))
    }
}

/// Whether nothing runs in the background, by a status.
pub fn is_idle(status: &Value) -> bool {
    status["jobs"].as_array().is_some_and(Vec::is_empty)
}

fn first_line(process: &mut Process) -> Result<String, String> {
    let stdout = process.0.stdout.as_mut().expect("the output is a pipe");
    let mut line = String::new();
    match BufReader::new(stdout).read_line(&mut line) {
        Ok(_) => Ok(line),
        Err(error) => Err(error.to_string()),
    }
}
