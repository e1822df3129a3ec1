//! Where facts are read from, and how: in bounds, and never more trusting than needed.
//!
//! Invariants:
//! - A file that is longer than its bound counts as missing: an attribute of sysfs is at most a page.
//! - Only regular files are opened: a FIFO would wait for ever.
//! - Text comes out without control characters, so that a name cannot move the cursor of whoever prints it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// An attribute of sysfs is at most one page; with 64 KiB pages it is still short.
pub(crate) const ATTRIBUTE_BYTES_MAX: u64 = 4096;
/// A database entry of udev: some kilobytes; many links make it longer.
pub(crate) const DATABASE_BYTES_MAX: u64 = 64 * 1024;
/// Names and serials: 68 bytes in the longest standard, with room.
const TEXT_CHARS_MAX: usize = 256;
/// Entries of a folder that are looked at: a machine with more disks than this has another tool.
pub(crate) const ENTRIES_MAX: usize = 8192;

/// The folders that facts are read from: sysfs and udev's database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    sys: PathBuf,
    udev: PathBuf,
}

impl Roots {
    /// `/sys` and `/run/udev/data`.
    #[must_use]
    pub fn of_this_machine() -> Roots {
        Roots::new("/sys", "/run/udev/data")
    }

    /// Any two folders, such as a recorded tree. Either may be missing: what is in it is then unknown.
    #[must_use]
    pub fn new(sys: impl Into<PathBuf>, udev: impl Into<PathBuf>) -> Roots {
        Roots {
            sys: sys.into(),
            udev: udev.into(),
        }
    }

    /// The root of sysfs.
    #[must_use]
    pub fn sys(&self) -> &Path {
        &self.sys
    }

    /// The folder of udev's database.
    #[must_use]
    pub fn udev(&self) -> &Path {
        &self.udev
    }
}

/// A regular file's bytes, if it has at most `bytes_max`.
pub(crate) fn read_bytes(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= bytes_max).then_some(bytes)
}

/// An attribute as clean text; none if it is missing, too long or empty.
pub(crate) fn read_text(path: &Path) -> Option<String> {
    clean(&read_bytes(path, ATTRIBUTE_BYTES_MAX)?)
}

/// An attribute as a decimal number.
pub(crate) fn read_number(path: &Path) -> Option<u64> {
    read_text(path)?.parse().ok()
}

/// Text without what surrounds it and without control characters; what is no UTF-8 becomes `?`.
pub(crate) fn clean(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let kept: String = text
        .trim_matches(|c: char| c.is_whitespace() || c == '\0')
        .chars()
        .filter(|c| !c.is_control())
        .map(|c| {
            if c == char::REPLACEMENT_CHARACTER {
                '?'
            } else {
                c
            }
        })
        .take(TEXT_CHARS_MAX)
        .collect();
    let kept = kept.trim();
    (!kept.is_empty()).then(|| kept.to_owned())
}

/// Names in a folder, sorted; none for a folder that is missing. A name that is no UTF-8 is left out: nothing here has
/// one.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .take(ENTRIES_MAX)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// The last part of what a link leads to.
pub(crate) fn link_name(path: &Path) -> Option<String> {
    let target = std::fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cleaned_of_everything_that_is_no_name() {
        assert_eq!(clean(b"  WD-WCC4E17 \n").as_deref(), Some("WD-WCC4E17"));
        assert_eq!(clean(b"ab\x1b[31mc\0\0").as_deref(), Some("ab[31mc"));
        assert_eq!(clean(b"\xff\xfeA").as_deref(), Some("??A"));
        assert_eq!(clean(b" \0 \n"), None);
        assert_eq!(clean(&[b'x'; 9000]).map(|text| text.len()), Some(256));
    }

    #[test]
    fn a_file_over_its_bound_counts_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serial");
        std::fs::write(&path, vec![b'x'; 4096]).unwrap();
        assert!(read_text(&path).is_some());
        std::fs::write(&path, vec![b'x'; 4097]).unwrap();
        assert_eq!(read_text(&path), None);
        assert_eq!(read_text(folder.path()), None, "a folder is no file");
    }
}
