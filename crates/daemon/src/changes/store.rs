//! Changes as they are kept: a document and the bytes of each, in the folder that outlives servers.
//!
//! Invariant: a document is there only when its bytes are.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::memory::{StateDir, Surroundings, replace};
use crate::problem::{Code, Problem};
use crate::volume::status::JSON_VERSION;

/// How hard bytes are compressed: most of them are zeroes.
const COMPRESSION_LEVEL: i32 = 3;

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeState {
    /// It was begun, and nobody has said that it ended.
    Begun,
    /// It is done.
    Done,
    /// It failed, and what was written was put back.
    Failed,
    /// It was undone.
    Undone,
}

/// Whether a change may be undone while its bytes are as it wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reverse {
    /// Yes: what it made is new, and used by nobody while it is unchanged.
    Allowed,
    /// No: members of a set that went on without one of them could be taken for fresh again (W7).
    Refused,
}

/// Bytes of a member that were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedRange {
    /// The member's full path, or its URI.
    pub member: String,
    /// Where, in bytes.
    pub at_bytes: u64,
    /// How long, in bytes.
    pub length_bytes: u64,
    /// Ranges of one phase are durable before the first of the next is written.
    pub phase: usize,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// `JSON_VERSION`.
    pub version: u32,
    /// `change`.
    pub kind: String,
    /// Its number, from 1.
    pub id: u64,
    /// When it began, in seconds since 1970.
    pub time_s: u64,
    /// Who typed it.
    pub user: String,
    /// The command as it was typed.
    pub command: String,
    /// Why, as whoever typed it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What became of it.
    pub state: ChangeState,
    /// Whether it may be undone.
    pub reverse: Reverse,
    /// What was written, in order.
    pub ranges: Vec<ChangedRange>,
}

/// What is noted of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeNote {
    /// The command as it was typed.
    pub command: String,
    /// Who typed it.
    pub user: String,
    /// Why.
    pub why: Option<String>,
    /// Whether it may be undone.
    pub reverse: Reverse,
}

/// What was in a range, and what was written there.
pub(super) struct Bytes {
    pub(super) before: Vec<u8>,
    pub(super) after: Vec<u8>,
}

/// The changes that were kept; belongs to whoever runs a command.
#[derive(Clone, Debug)]
pub struct Changes {
    folder: PathBuf,
    dir: StateDir,
}

/// Where a change is noted.
#[derive(Clone, Debug)]
pub struct Noted {
    /// All changes.
    pub changes: Changes,
    /// This one.
    pub note: ChangeNote,
}

/// How the writing went, apart from the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of the change, when it was kept.
    pub change: Option<u64>,
    /// Why it was not kept, in one sentence.
    pub problem: Option<String>,
}

impl Changes {
    /// Those in the folder that outlives servers.
    #[must_use]
    pub fn in_folder(dir: StateDir) -> Self {
        Self {
            folder: dir.path().join("changes"),
            dir,
        }
    }

    /// All that are known, oldest first. A file that makes no sense is passed over.
    ///
    /// # Errors
    /// Of reading the folder; none there is no error.
    pub fn list(&self) -> Result<Vec<Change>, Problem> {
        let shown = self.folder.display().to_string();
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Problem::from_io(&error, "reading", &shown)),
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let documents = paths.filter(|path| path.extension().is_some_and(|word| word == "json"));
        let read = documents.filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok());
        let mut changes: Vec<Change> = read.collect();
        changes.sort_by_key(|change| change.id);
        Ok(changes)
    }

    /// One of them.
    ///
    /// # Errors
    /// `NoSuchFile` when there is none of that number; of reading.
    pub fn find(&self, id: u64) -> Result<Change, Problem> {
        let found = self.list()?.into_iter().find(|change| change.id == id);
        found.ok_or_else(|| {
            let problem = Problem::new(Code::NoSuchFile, format!("there is no change {id}"));
            problem.hint("to see all of them:   plexum history")
        })
    }

    /// Keeps a change that begins, durably. `bytes`: of each range what was there, and what will be.
    pub(super) fn begin(
        &self,
        note: &ChangeNote,
        ranges: Vec<ChangedRange>,
        bytes: &[(&[u8], &[u8])],
    ) -> Result<Change, String> {
        let user_id = Surroundings::of_this_process().user_id;
        self.dir.ensure(user_id)?;
        let tell = |error: std::io::Error| format!("{}: {error}", self.folder.display());
        let known = self.list().map_err(|problem| problem.message)?;
        let id = known.last().map_or(1, |last| last.id + 1);
        let change = Change {
            version: JSON_VERSION,
            kind: "change".into(),
            id,
            time_s: crate::create::now_seconds().map_err(|problem| problem.message)?,
            user: note.user.clone(),
            command: note.command.clone(),
            why: note.why.clone(),
            state: ChangeState::Begun,
            reverse: note.reverse,
            ranges,
        };
        let mut all = Vec::new();
        for (before, after) in bytes {
            all.extend_from_slice(before);
            all.extend_from_slice(after);
        }
        let packed = zstd::encode_all(all.as_slice(), COMPRESSION_LEVEL).map_err(tell)?;
        replace(&self.bytes_path(id), &packed).map_err(tell)?;
        self.put(&change)?;
        Ok(change)
    }

    /// Keeps that a change was made, without what was written by it: it cannot be undone.
    ///
    /// # Errors
    /// Why it is not kept, in one sentence.
    pub fn keep(&self, note: &ChangeNote) -> Result<(), String> {
        let begun = self.begin(note, Vec::new(), &[])?;
        self.put(&Change {
            state: ChangeState::Done,
            ..begun
        })
    }

    /// Keeps what became of a change.
    pub(super) fn put(&self, change: &Change) -> Result<(), String> {
        let path = self.folder.join(format!("{:06}.json", change.id));
        let text = serde_json::to_vec(change).map_err(|error| error.to_string())?;
        replace(&path, &text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Of each range of a change what was there before, and what was written.
    pub(super) fn bytes_of(&self, change: &Change) -> Result<Vec<Bytes>, Problem> {
        let path = self.bytes_path(change.id);
        let shown = path.display().to_string();
        let tell = |error: std::io::Error| Problem::from_io(&error, "reading", &shown);
        let packed = fs::File::open(&path).map_err(tell)?;
        let lengths = change.ranges.iter().map(|range| range.length_bytes);
        let sum = lengths.fold(0_u64, u64::saturating_add).saturating_mul(2);
        let mut all = Vec::new();
        let unpacking = zstd::Decoder::new(packed).map_err(tell)?;
        // One byte more than there should be is enough to see that there are too many.
        let mut limited = unpacking.take(sum.saturating_add(1));
        limited.read_to_end(&mut all).map_err(tell)?;
        if all.len() as u64 != sum {
            let what = format!("{shown} has not the bytes of change {}", change.id);
            return Err(Problem::new(Code::DamagedMetadata, what));
        }
        let mut rest = all.as_slice();
        let mut cut = |length_bytes: u64| {
            let (piece, left) = rest.split_at(length_bytes as usize); // the sum is in memory
            rest = left;
            piece.to_vec()
        };
        let ranges = change.ranges.iter();
        Ok(ranges
            .map(|range| Bytes {
                before: cut(range.length_bytes),
                after: cut(range.length_bytes),
            })
            .collect())
    }

    fn bytes_path(&self, id: u64) -> PathBuf {
        self.folder.join(format!("{id:06}.bytes"))
    }
}
