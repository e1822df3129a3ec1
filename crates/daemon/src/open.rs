//! From the words of a command line to devices: files, block devices, `missing`, remote exports, other volumes.
//!
//! Invariants:
//! - a member is opened once and locked as long as it is open;
//! - whatever cannot be opened becomes one problem that names the member as the user wrote it.

use std::path::{Path, PathBuf};

use plexum_engine::buf::{Buf, BufMut};
use plexum_engine::device::{Device, DeviceInfo, Fua, IoError, ZeroMode};
use plexum_runtime::Handle;
use plexum_runtime::file::{FileDevice, OpenError, OpenOptions};

use crate::problem::{Code, Problem};

/// What a user wrote in the place of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberWord {
    /// An empty slot.
    Missing,
    /// A file or a block device.
    Path(PathBuf),
    /// An export of an NBD server: `nbd://`, `nbds://`, `nbd+unix://`.
    Nbd(String),
    /// Another volume that is served.
    Volume(String),
}

impl MemberWord {
    /// Understands a word. `missing` is the empty slot; a file of that name is written `./missing`.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        if word == "missing" {
            MemberWord::Missing
        } else if let Some(name) = word.strip_prefix("volume:") {
            MemberWord::Volume(name.to_owned())
        } else if ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"]
            .iter()
            .any(|scheme| word.starts_with(scheme))
        {
            MemberWord::Nbd(word.to_owned())
        } else {
            MemberWord::Path(PathBuf::from(word))
        }
    }
}

impl std::fmt::Display for MemberWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MemberWord::Missing => f.write_str("missing"),
            MemberWord::Path(path) => write!(f, "{}", path.display()),
            MemberWord::Nbd(uri) => f.write_str(uri),
            MemberWord::Volume(name) => write!(f, "volume:{name}"),
        }
    }
}

/// Any kind of member that can be opened.
pub enum AnyDevice {
    /// A file or a block device.
    File(FileDevice),
}

impl AnyDevice {
    /// Opens the member that `word` names.
    ///
    /// # Errors
    /// `NotYet` for kinds that this version cannot open; `Usage` for an empty slot; what `problem_of` makes of the rest.
    pub async fn open(
        handle: &Handle,
        word: &MemberWord,
        options: &OpenOptions,
    ) -> Result<Self, Problem> {
        match word {
            MemberWord::Path(path) => FileDevice::open(handle, path, options)
                .map(AnyDevice::File)
                .map_err(|error| problem_of(error, &word.to_string())),
            MemberWord::Missing => Err(Problem::new(
                Code::Usage,
                "missing stands for an empty slot and cannot be opened",
            )),
            MemberWord::Nbd(_) | MemberWord::Volume(_) => Err(Problem::new(
                Code::NotYet,
                format!("{word}: remote members come with a later version"),
            )
            .member(word.to_string())),
        }
    }

    /// The file below, when it is one.
    #[must_use]
    pub fn as_file(&self) -> Option<&FileDevice> {
        match self {
            AnyDevice::File(file) => Some(file),
        }
    }
}

impl Device for AnyDevice {
    fn info(&self) -> DeviceInfo {
        match self {
            AnyDevice::File(file) => file.info(),
        }
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        match self {
            AnyDevice::File(file) => file.read(offset_bytes, buf).await,
        }
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        match self {
            AnyDevice::File(file) => file.write(offset_bytes, data, fua).await,
        }
    }
    async fn flush(&self) -> Result<(), IoError> {
        match self {
            AnyDevice::File(file) => file.flush().await,
        }
    }
    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
    ) -> Result<(), IoError> {
        match self {
            AnyDevice::File(file) => file.zero(offset_bytes, length_bytes, mode).await,
        }
    }
    async fn check(&self) -> Result<(), IoError> {
        match self {
            AnyDevice::File(file) => file.check().await,
        }
    }
}

/// The problem that an error of opening means.
#[must_use]
pub fn problem_of(error: OpenError, word: &str) -> Problem {
    match error {
        OpenError::System {
            action, ref source, ..
        } => {
            let mut problem = Problem::from_io(source, &format!("cannot {action}:"), word);
            problem.message = format!("{word}: cannot {action}: {}", reason(source));
            problem
        }
        OpenError::NotAMember { found, .. } => Problem::new(
            Code::Usage,
            format!("{word} is {found}; a member is a file or a block device"),
        )
        .member(word),
        OpenError::InUse { pid, .. } if pid == Some(std::process::id()) => Problem::new(
            Code::DuplicateMember,
            format!("{word} is given twice, perhaps by two paths"),
        )
        .member(word)
        .hint("give each member once"),
        OpenError::InUse { pid, .. } => {
            let who = pid.map_or(String::new(), |pid| format!(" (process {pid})"));
            Problem::new(
                Code::Busy,
                format!("{word} is in use by another process{who}"),
            )
            .member(word)
            .hint("to see what is served:   plexum status")
        }
        OpenError::Busy { holders, .. } => Problem::new(
            Code::Busy,
            format!("{word} is in use by {}", holders.join(", ")),
        )
        .member(word),
        other => Problem::new(Code::IoError, other.to_string()).member(word),
    }
}

fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or(&text)
        .to_lowercase()
}

/// The problem that a failed transfer on a member means; `doing` is `reading the superblock`, ...
#[must_use]
pub fn problem_of_io(error: IoError, doing: &str, word: &str) -> Problem {
    let code = match error {
        IoError::NoSpace => Code::NoSpace,
        IoError::Gone => Code::DeviceGone,
        IoError::ReadOnly => Code::NotPermitted,
        _ => Code::IoError,
    };
    Problem::new(code, format!("{word}: {doing}: {error}")).member(word)
}

/// A path as it is compared and shown in status: absolute, links resolved where that is possible.
#[must_use]
pub fn full_path(path: &Path) -> PathBuf {
    std::fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_paths_unless_they_say_otherwise() {
        for (word, expected) in [
            ("missing", MemberWord::Missing),
            ("./missing", MemberWord::Path("./missing".into())),
            ("a.img", MemberWord::Path("a.img".into())),
            ("volume:inner", MemberWord::Volume("inner".into())),
            (
                "nbd+unix:///x?socket=/s",
                MemberWord::Nbd("nbd+unix:///x?socket=/s".into()),
            ),
        ] {
            assert_eq!(MemberWord::parse(word), expected);
            assert_eq!(MemberWord::parse(word).to_string(), word);
        }
    }
}
