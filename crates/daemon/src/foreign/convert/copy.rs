//! A volume is copied onto other members, and compared.
//!
//! Invariants:
//! - the journal says durably how far the copy is before anything relies on it, so that a copy that was killed goes on;
//!   what was copied is flushed before the journal says so;
//! - the old members are only read; the end is a comparison of both volumes, read from their members.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures_util::future::{Either, select};
use plexum_block::buf::BufPool;
use plexum_block::wait::{join, join_all};
use plexum_runtime::Handle;
use serde::{Deserialize, Serialize};

use super::end::{End, VolumeOnMembers};
use crate::problem::{Code, Problem};

/// Bytes that one transfer copies or compares.
const PIECE_BYTES: u64 = 1 << 20;
/// Transfers under way at once.
const PIECES: u64 = 4;
/// Buffers that are kept.
pub(super) const KEEP_BYTES: usize = 16 << 20;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Bytes are copied.
    Copying,
    /// Both volumes are compared.
    Comparing,
}

impl Phase {
    /// The word that people see.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Copying => "copy",
            Self::Comparing => "compare",
        }
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub phase: Phase,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Hears of every step; `false` gives up at once, as a kill would.
pub type Listener<'a> = &'a mut dyn FnMut(Step) -> bool;

fn given_up() -> Problem {
    Problem::new(Code::NotConfirmed, "the conversion was given up")
}

/// What a copy has to remember, in a file of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Version of this file.
    pub version: u32,
    /// Members of the old volume, as written.
    pub source: Vec<String>,
    /// Which volume of theirs.
    pub volume: Option<String>,
    /// Members of the new one, as written.
    pub target: Vec<String>,
    /// Which volume of theirs, when they are members of a pool.
    #[serde(default)]
    pub target_volume: Option<String>,
    /// Size of the old volume.
    pub size_bytes: u64,
    /// What is being done.
    pub phase: Phase,
    /// Bytes that are durable on the new members.
    pub copied_bytes: u64,
}

impl Journal {
    /// Reads a journal; `None` when there is none.
    ///
    /// # Errors
    /// `IoError`; `DamagedMetadata` for a file that is none.
    pub fn load(path: &Path) -> Result<Option<Self>, Problem> {
        let shown = path.display().to_string();
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Problem::from_io(&error, "reading", &shown)),
        };
        let journal: Self = serde_json::from_slice(&text).map_err(|error| {
            let text = format!("{shown} is no journal of a conversion: {error}");
            Problem::new(Code::DamagedMetadata, text).hint("give another name:   --journal FILE")
        })?;
        if journal.version != 1 || journal.copied_bytes > journal.size_bytes {
            let text = format!("{shown} says what this version does not understand");
            return Err(Problem::new(Code::DamagedMetadata, text));
        }
        Ok(Some(journal))
    }

    /// The old volume.
    #[must_use]
    pub fn from(&self) -> VolumeOnMembers {
        VolumeOnMembers {
            members: self.source.clone(),
            volume: self.volume.clone(),
        }
    }

    /// The new one.
    #[must_use]
    pub fn to(&self) -> VolumeOnMembers {
        VolumeOnMembers {
            members: self.target.clone(),
            volume: self.target_volume.clone(),
        }
    }

    /// Makes it durable: a new file takes the place of the old one.
    ///
    /// # Errors
    /// `IoError`, `NoSpace`.
    pub fn save(&self, path: &Path) -> Result<(), Problem> {
        let shown = path.display().to_string();
        let tell = |error: std::io::Error| Problem::from_io(&error, "writing", &shown);
        let draft = PathBuf::from(format!("{shown}.new"));
        let text =
            serde_json::to_vec(self).map_err(|error| Problem::new(Code::Bug, error.to_string()))?;
        let mut file = std::fs::File::create(&draft).map_err(tell)?;
        file.write_all(&text).map_err(tell)?;
        file.sync_all().map_err(tell)?;
        std::fs::rename(&draft, path).map_err(tell)?;
        let folder = path.parent().filter(|path| !path.as_os_str().is_empty());
        if let Ok(folder) = std::fs::File::open(folder.unwrap_or(Path::new("."))) {
            let _ = folder.sync_all(); // not every file system can
        }
        Ok(())
    }
}

/// Copies what the journal says and compares; the journal is removed at the end. `save_bytes`: how much is copied
/// between two notes in the journal.
///
/// # Errors
/// Of opening, reading and writing; `MemberTooSmall` when the new volume is smaller; `IoError` at the first difference.
pub async fn copy(
    handle: &Handle,
    journal: &mut Journal,
    path: &Path,
    save_bytes: u64,
    listener: Listener<'_>,
) -> Result<(), Problem> {
    let pool = BufPool::new(KEEP_BYTES);
    let (from, to) = (journal.from(), journal.to());
    let source = End::to_read(handle, &pool, &from).await?;
    if source.size_bytes() != journal.size_bytes {
        let text = format!(
            "the old volume has {} bytes, and had {} when the conversion began",
            source.size_bytes(),
            journal.size_bytes
        );
        return Err(Problem::new(Code::WrongState, text));
    }
    if journal.phase != Phase::Comparing {
        let target = End::to_write(handle, &pool, &to).await?;
        if target.size_bytes() < source.size_bytes() {
            let (new, old) = (target.size_bytes(), source.size_bytes());
            let text = format!("the new volume has {new} bytes, the old one {old}");
            return Err(Problem::new(Code::MemberTooSmall, text));
        }
        let copying = async {
            copy_all(&source, &target, journal, path, save_bytes, listener).await?;
            target.stop().await
        };
        match select(pin!(copying), pin!(target.run_background())).await {
            Either::Left((result, _)) => result?,
            Either::Right(((), copying)) => copying.await?,
        }
        journal.phase = Phase::Comparing;
        journal.save(path)?;
    }
    let target = End::to_read(handle, &pool, &to).await?;
    compare(&source, &target, source.name(), listener).await?;
    std::fs::remove_file(path)
        .map_err(|error| Problem::from_io(&error, "removing", &path.display().to_string()))
}

async fn copy_all(
    source: &End,
    target: &End,
    journal: &mut Journal,
    path: &Path,
    save_bytes: u64,
    listener: Listener<'_>,
) -> Result<(), Problem> {
    let total_bytes = journal.size_bytes;
    let mut at = journal.copied_bytes;
    while at < total_bytes {
        let batch = (PIECE_BYTES * PIECES).min(save_bytes.max(1));
        let end = (at + batch).min(total_bytes);
        let pieces = (at..end).step_by(PIECE_BYTES as usize).map(|from| {
            let length = PIECE_BYTES.min(end - from);
            copy_piece(source, target, from, length)
        });
        for result in join_all(pieces).await {
            result?;
        }
        at = end;
        if at - journal.copied_bytes >= save_bytes || at == total_bytes {
            target.flush().await?;
            journal.copied_bytes = at;
            journal.save(path)?;
        }
        let step = Step {
            phase: Phase::Copying,
            done_bytes: at,
            total_bytes,
        };
        if !listener(step) {
            return Err(given_up());
        }
    }
    Ok(())
}

async fn copy_piece(source: &End, target: &End, at: u64, length: u64) -> Result<(), Problem> {
    let rope = source.read(at, length as usize).await?; // at most PIECE_BYTES
    let mut to = at;
    for piece in rope.pieces {
        let length = piece.len() as u64;
        target.write(to, piece).await?;
        to += length;
    }
    Ok(())
}

/// Compares as much as the old volume has.
pub(super) async fn compare(
    old: &End,
    new: &End,
    name: &str,
    listener: Listener<'_>,
) -> Result<(), Problem> {
    let total_bytes = old.size_bytes();
    let mut at = 0;
    while at < total_bytes {
        let length = PIECE_BYTES.min(total_bytes - at) as usize;
        let (was, is) = join(old.read(at, length), new.read(at, length)).await;
        let (was, is) = (was?.to_vec(), is?.to_vec());
        if was != is {
            let same = was.iter().zip(&is).take_while(|(was, is)| was == is);
            let place = at + same.count() as u64;
            let text = format!("{name}: byte {place} reads otherwise from the new members");
            return Err(Problem::new(Code::IoError, text).why("the old volume is as it was"));
        }
        at += length as u64;
        let step = Step {
            phase: Phase::Comparing,
            done_bytes: at,
            total_bytes,
        };
        if !listener(step) {
            return Err(given_up());
        }
    }
    Ok(())
}
