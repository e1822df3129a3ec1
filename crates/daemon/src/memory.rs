//! What outlives a server: events, the last scrub, why members failed, their disks, settings. One folder for all
//! volumes of a user.
//!
//! Invariants:
//! - nothing that a volume needs to be served is here: a folder that cannot be read or written costs the memory alone,
//!   and is told;
//! - the server never waits for this folder, which may lie on a volume that it serves: a thread of its own writes;
//! - a file is replaced as a whole or appended to a line at a time; half a line at the end of a history is passed over.

mod disks;
mod goal;
mod volume;
mod writer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::control::event::Event;
use crate::problem::words_of;
use crate::runtime_dir::mistrust;
use crate::volume::status::{JSON_VERSION, ScrubStatus};

pub use disks::{Former, KnownDisk};
pub use goal::KeptGoal;
pub use volume::{Memory, VolumeMemory};
pub(crate) use writer::replace;
pub use writer::{Keeper, Kept};

/// What is read of a history at a start, from its end.
const HISTORY_READ_BYTES: u64 = 2 << 20;
/// A history that has grown longer than this is cut to what is read.
const HISTORY_BYTES_MAX: u64 = 8 << 20;

/// Settings that a volume's metadata do not record, by the words of `plexum set`.
pub const REMEMBERED_SETTINGS: [&str; 4] = ["balance", "rebuild-min", "rebuild-max", "rebuild"];

/// What decides where the folder is; read from the process in one place so that the choice can be tested.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `$XDG_STATE_HOME`, when set and not empty.
    pub xdg_state_home: Option<OsString>,
    /// `$HOME`, when set and not empty.
    pub home: Option<OsString>,
    /// Effective user number.
    pub user_id: u32,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            xdg_state_home: set("XDG_STATE_HOME"),
            home: set("HOME"),
            user_id: crate::runtime_dir::Surroundings::of_this_process().user_id,
        }
    }
}

/// The folder that outlives servers. Made on first use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
}

/// What is remembered of one volume beside its history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// `JSON_VERSION`.
    pub version: u32,
    /// `memory`.
    pub kind: String,
    /// The name that the volume was served by last.
    pub volume: String,
    /// The last scrub, also one that did not get to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scrub: Option<ScrubStatus>,
    /// Why members failed, in words, by the members' names.
    #[serde(default)]
    pub causes: BTreeMap<String, String>,
    /// Who had each slot last: a slot whose member is gone is still known by it.
    #[serde(default)]
    pub slots: BTreeMap<u32, String>,
    /// The disk of each slot, or the one that it had last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<u32, KnownDisk>,
    /// Disks that had a slot before the one that has it now, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_disks: Vec<Former>,
    /// What was set and no metadata record: of `REMEMBERED_SETTINGS`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Where a change leads that is under way, where the members have no room to say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<KeptGoal>,
}

impl Remembered {
    /// Nothing yet, of a volume of this name.
    #[must_use]
    pub fn nothing(volume: &str) -> Self {
        Self {
            version: JSON_VERSION,
            kind: "memory".into(),
            volume: volume.to_owned(),
            ..Self::default()
        }
    }
}

/// What a start finds.
#[derive(Debug)]
pub struct Found {
    /// What is remembered; nothing where nothing was kept, or it cannot be read.
    pub remembered: Remembered,
    /// What happened in earlier lives, oldest first.
    pub events: Vec<Event>,
    /// Why something that is there could not be read, in one sentence.
    pub problem: Option<String>,
}

impl StateDir {
    /// Where the folder is: `$XDG_STATE_HOME/plexum`, for root `/var/lib/plexum`, else `~/.local/state/plexum`. None
    /// for a user without a home.
    #[must_use]
    pub fn locate(from: &Surroundings) -> Option<Self> {
        let path = match (&from.xdg_state_home, from.user_id, &from.home) {
            (Some(folder), _, _) => Path::new(folder).join("plexum"),
            (None, 0, _) => PathBuf::from("/var/lib/plexum"),
            (None, _, Some(home)) => Path::new(home).join(".local/state/plexum"),
            (None, _, None) => return None,
        };
        Some(Self { path })
    }

    /// A folder at `path`; for tests.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder (0700), or checks that the one there is this user's and nobody else can write to it.
    ///
    /// # Errors
    /// One sentence that says why nothing can be kept there.
    pub fn ensure(&self, user_id: u32) -> Result<(), String> {
        let shown = self.path.display();
        let told = |error| format!("{shown}: {}", words_of(&error));
        for folder in ["sets", "history", "volumes", "scrubs", "changes"] {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700);
            builder.create(self.path.join(folder)).map_err(told)?;
        }
        let meta = fs::symlink_metadata(&self.path).map_err(told)?;
        match mistrust(&meta, user_id) {
            Some(what) => Err(format!("{shown} {what}")),
            None => Ok(()),
        }
    }

    /// What earlier servers kept of a volume. Cuts a history that has grown too long.
    #[must_use]
    pub fn find(&self, key: &Key, volume: &str) -> Found {
        let (remembered, first) = self.remembered(key, volume);
        let (events, second) = self.history(key, volume);
        Found {
            remembered,
            events,
            problem: first.or(second),
        }
    }

    fn remembered(&self, key: &Key, volume: &str) -> (Remembered, Option<String>) {
        let path = self.set_path(key);
        let nothing = Remembered::nothing(volume);
        let shown = path.display();
        match fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice::<Remembered>(&bytes) {
                Ok(found) => (
                    Remembered {
                        volume: volume.to_owned(),
                        ..found
                    },
                    None,
                ),
                Err(error) => (
                    nothing,
                    Some(format!("{shown} makes no sense, line {}", error.line())),
                ),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => (nothing, None),
            Err(error) => (nothing, Some(format!("{shown}: {}", words_of(&error)))),
        }
    }

    fn history(&self, key: &Key, volume: &str) -> (Vec<Event>, Option<String>) {
        let path = self.history_path(key);
        match read_end(&path) {
            Ok(text) => {
                let events = text.lines().filter_map(|line| {
                    let event: Event = serde_json::from_str(line).ok()?;
                    Some(Event {
                        volume: volume.to_owned(),
                        ..event
                    })
                });
                (events.collect(), None)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (Vec::new(), None),
            Err(error) => (Vec::new(), Some(format!("{}: {error}", path.display()))),
        }
    }

    fn set_path(&self, key: &Key) -> PathBuf {
        self.path.join("sets").join(format!("{}.json", key.0))
    }

    fn volume_path(&self, key: &Key) -> PathBuf {
        self.path.join("volumes").join(format!("{}.json", key.0))
    }

    /// The file of a volume's map of age.
    pub(crate) fn scrubs_path(&self, key: &Key) -> PathBuf {
        self.path.join("scrubs").join(format!("{}.json", key.0))
    }

    /// Where incidents are kept, for all volumes together.
    #[must_use]
    pub fn incidents_path(&self) -> PathBuf {
        self.path.join("incidents.json")
    }

    fn history_path(&self, key: &Key) -> PathBuf {
        self.path.join("history").join(format!("{}.jsonl", key.0))
    }
}

/// The last lines of a history. One that is too long is cut to them.
fn read_end(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(HISTORY_READ_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(HISTORY_READ_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let text = match from {
        0 => text.into_owned(),
        // The first of them is half a line.
        _ => text
            .split_once('\n')
            .map_or("", |(_, rest)| rest)
            .to_owned(),
    };
    if length > HISTORY_BYTES_MAX {
        replace(path, text.as_bytes())?;
    }
    Ok(text)
}

/// By what a volume is known from one start to the next; part of the names of files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(String);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Key {
    /// Of a volume's format, identity and name as its metadata have them. An md array is known by its identity alone,
    /// whatever it is called; those of other formats may share one with others.
    #[must_use]
    pub fn of(format: &str, uuid: &str, name: &str) -> Self {
        let is_md = format.starts_with("md-") && !uuid.is_empty();
        let whole = match is_md {
            true => uuid.to_owned(),
            false => format!("{format}_{name}_{uuid}"),
        };
        // Names come from disks that anybody may have written.
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':');
        let cut: String = whole
            .chars()
            .map(|c| if safe(c) { c } else { '_' })
            .take(64)
            .collect();
        match cut == whole {
            true => Self(whole),
            false => Self(format!("{cut}_{:016x}", crate::runtime_dir::fnv64(&whole))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn event(sequence: u64, message: &str) -> Event {
        Event {
            version: JSON_VERSION,
            kind: "event".into(),
            sequence,
            time_s: 7,
            volume: "old name".into(),
            name: "started".into(),
            message: message.into(),
            member: None,
        }
    }

    fn folder() -> (tempfile::TempDir, StateDir) {
        let home = tempfile::tempdir().unwrap();
        let dir = StateDir::at(home.path().join("state"));
        let user = fs::metadata(home.path()).unwrap().uid();
        dir.ensure(user).unwrap();
        (home, dir)
    }

    #[test]
    fn the_folder_follows_the_environment_then_root_then_the_home() {
        let at = |xdg: Option<&str>, user_id, home: Option<&str>| {
            let found = StateDir::locate(&Surroundings {
                xdg_state_home: xdg.map(OsString::from),
                home: home.map(OsString::from),
                user_id,
            });
            found.map(|dir| dir.path)
        };
        assert_eq!(at(Some("/x"), 0, None), Some("/x/plexum".into()));
        assert_eq!(at(None, 0, Some("/root")), Some("/var/lib/plexum".into()));
        let home = at(None, 1000, Some("/u"));
        assert_eq!(home, Some("/u/.local/state/plexum".into()));
        assert_eq!(at(None, 1000, None), None);
    }

    #[test]
    fn a_folder_of_somebody_else_or_open_to_others_is_not_used() {
        let (_home, dir) = folder();
        let user = fs::metadata(dir.path()).unwrap().uid();
        assert!(dir.ensure(user + 1).unwrap_err().contains("belongs to"));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let open = dir.ensure(user).unwrap_err();
        assert!(open.contains("others may write to it"), "{open}");
    }

    #[test]
    fn what_was_kept_is_found_by_the_next_start_under_any_name() {
        let (_home, dir) = folder();
        let key = Key::of("md-1.2", "0a:0b", "nas");
        let keeper = Keeper::start(&dir);
        let mut remembered = Remembered::nothing("nas");
        remembered
            .causes
            .insert("a".into(), "a write failed".into());
        keeper.keep(Kept::Event(key.clone(), event(1, "one")));
        keeper.keep(Kept::Set(key.clone(), remembered.clone()));
        keeper.keep(Kept::Event(key.clone(), event(2, "two")));
        keeper.end();
        assert_eq!(keeper.failure(), None);
        let key = Key::of("md-1.2", "0a:0b", "another name");
        let found = dir.find(&key, "other");
        assert_eq!(found.problem, None);
        assert_eq!(found.remembered.causes, remembered.causes);
        let messages: Vec<&str> = found.events.iter().map(|e| e.message.as_str()).collect();
        assert_eq!(messages, ["one", "two"]);
        assert!(found.events.iter().all(|event| event.volume == "other"));
    }

    #[test]
    fn half_a_line_at_the_end_of_a_history_costs_that_line_alone() {
        let (_home, dir) = folder();
        let key = Key::of("md-1.2", "u", "v");
        let whole = serde_json::to_string(&event(1, "whole")).unwrap();
        fs::write(
            dir.history_path(&key),
            format!("{whole}\n{{\"version\":1,\"ki"),
        )
        .unwrap();
        let keeper = Keeper::start(&dir);
        keeper.keep(Kept::Event(key.clone(), event(2, "after")));
        keeper.end();
        let found = dir.find(&key, "v");
        let messages: Vec<&str> = found.events.iter().map(|e| e.message.as_str()).collect();
        assert_eq!(messages, ["whole", "after"]);
    }

    #[test]
    fn a_long_history_is_cut_to_its_newest_lines() {
        let (_home, dir) = folder();
        let key = Key::of("md-1.2", "u", "v");
        let line = serde_json::to_string(&event(1, &"x".repeat(1000))).unwrap();
        let lines = HISTORY_BYTES_MAX as usize / line.len() + 2;
        let mut text = format!("{line}\n").repeat(lines);
        text += &serde_json::to_string(&event(9, "newest")).unwrap();
        text.push('\n');
        fs::write(dir.history_path(&key), &text).unwrap();
        let found = dir.find(&key, "v");
        assert_eq!(found.events.last().unwrap().message, "newest");
        let left = fs::metadata(dir.history_path(&key)).unwrap().len();
        assert!(left <= HISTORY_READ_BYTES, "{left}");
        assert_eq!(dir.find(&key, "v").events.len(), found.events.len());
    }

    #[test]
    fn damage_and_folders_in_the_way_cost_the_memory_alone_and_are_told() {
        let (_home, dir) = folder();
        let key = Key::of("md-1.2", "u", "v");
        fs::write(dir.set_path(&key), "{ no").unwrap();
        fs::write(dir.history_path(&key), b"\xff\xfe\n").unwrap();
        let found = dir.find(&key, "v");
        assert_eq!(found.remembered, Remembered::nothing("v"));
        assert!(found.problem.unwrap().contains("makes no sense"));
        assert!(found.events.is_empty());
        fs::remove_file(dir.history_path(&key)).unwrap();
        fs::create_dir(dir.history_path(&key)).unwrap();
        let keeper = Keeper::start(&dir);
        keeper.keep(Kept::Event(key.clone(), event(1, "lost")));
        keeper.end();
        assert!(keeper.failure().unwrap().contains("history"));
    }

    #[test]
    fn a_name_on_a_disk_never_leads_out_of_the_folder() {
        for name in ["../../etc/x", "/etc/x", ".", "a\nb", &"x".repeat(300)] {
            let Key(text) = Key::of("gmirror", "", name);
            assert!(!text.contains('/') && !text.starts_with('.'), "{text}");
            assert!(text.len() < 100, "{text}");
        }
        assert_ne!(Key::of("gmirror", "", "a/b"), Key::of("gmirror", "", "a.b"));
        assert_ne!(Key::of("gmirror", "1", "a"), Key::of("gmirror", "1", "b"));
    }
}
