//! Attributes of a file or directory, from system attributes or from the znode of older pools; directory entries.
//!
//! Source: zfs-raidz.md 2.7; the old form is the structure of pool versions before 24.

use super::bytes::{le64, nowhere, require};
use super::nvlist::{NvList, NvValue};
use super::sa::{Attributes, number};
use crate::error::FormatError;

/// Bytes of the old form; a short symbolic link follows.
const ZNODE_BYTES: usize = 264;

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after that, below 10^9.
    pub nanoseconds: u32,
}

impl FileTime {
    fn of(bytes: &[u8]) -> Self {
        let nanoseconds = le64(bytes, 8).unwrap_or(0);
        Self {
            seconds: number(bytes) as i64,
            nanoseconds: u32::try_from(nanoseconds).unwrap_or(0).min(999_999_999),
        }
    }
}

/// What a file system says about one of its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Znode {
    /// Type and permission bits, as in `stat`.
    pub mode: u32,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Owner.
    pub user_id: u32,
    /// Group.
    pub group_id: u32,
    /// Number of names.
    pub link_count: u64,
    /// Directory that it is in.
    pub parent_object: u64,
    /// Last access.
    pub accessed: FileTime,
    /// Last change of contents.
    pub modified: FileTime,
    /// Last change of attributes.
    pub changed: FileTime,
    /// When it was made.
    pub created: FileTime,
    /// Device number of a device.
    pub device: u64,
    /// Target of a symbolic link that is stored here.
    pub link_target: Option<Vec<u8>>,
    /// Directory of extended attributes; 0: none.
    pub xattr_object: u64,
    /// Extended attributes that are stored here, as a name-value list; see [`xattrs`].
    pub xattr_list: Option<Vec<u8>>,
}

impl Znode {
    /// Takes in an area of system attributes: the bonus area first, then the spill block.
    ///
    /// # Errors
    /// Those of [`Attributes::decode`].
    pub fn take_attributes(&mut self, known: &Attributes, area: &[u8]) -> Result<(), FormatError> {
        for (name, bytes) in known.decode(area)? {
            match name {
                "ZPL_MODE" => self.mode = number(bytes) as u32,
                "ZPL_SIZE" => self.size_bytes = number(bytes),
                "ZPL_UID" => self.user_id = number(bytes) as u32,
                "ZPL_GID" => self.group_id = number(bytes) as u32,
                "ZPL_LINKS" => self.link_count = number(bytes),
                "ZPL_PARENT" => self.parent_object = number(bytes),
                "ZPL_ATIME" => self.accessed = FileTime::of(bytes),
                "ZPL_MTIME" => self.modified = FileTime::of(bytes),
                "ZPL_CTIME" => self.changed = FileTime::of(bytes),
                "ZPL_CRTIME" => self.created = FileTime::of(bytes),
                "ZPL_RDEV" => self.device = number(bytes),
                "ZPL_XATTR" => self.xattr_object = number(bytes),
                "ZPL_DXATTR" => self.xattr_list = Some(bytes.to_vec()),
                "ZPL_SYMLINK" => self.link_target = Some(bytes.to_vec()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the old form.
    ///
    /// # Errors
    /// [`Problem::TooShort`](crate::Problem::TooShort).
    pub fn parse_old(bonus: &[u8]) -> Result<Self, FormatError> {
        require(nowhere("znode"), bonus, ZNODE_BYTES, "bonus")?;
        let word = |at: usize| le64(bonus, at).expect("the length was checked");
        let mut znode = Self {
            accessed: FileTime::of(&bonus[0..]),
            modified: FileTime::of(&bonus[16..]),
            changed: FileTime::of(&bonus[32..]),
            created: FileTime::of(&bonus[48..]),
            mode: word(72) as u32,
            size_bytes: word(80),
            parent_object: word(88),
            link_count: word(96),
            xattr_object: word(104),
            device: word(112),
            user_id: word(128) as u32,
            group_id: word(136) as u32,
            link_target: None,
            xattr_list: None,
        };
        let target = usize::try_from(znode.size_bytes).ok();
        let target = target.and_then(|length| bonus[ZNODE_BYTES..].get(..length));
        if znode.kind() == FileKind::Link {
            znode.link_target = target.map(<[u8]>::to_vec);
        }
        Ok(znode)
    }

    /// What the mode says it is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        FileKind::of((self.mode >> 12 & 0xf) as u8)
    }
}

/// The extended attributes of such a list: names and values. What is no value of bytes is left out.
///
/// # Errors
/// Those of [`NvList::parse`].
pub fn xattrs(list: &[u8]) -> Result<Vec<(String, Vec<u8>)>, FormatError> {
    let pairs = NvList::parse(list)?.pairs.into_iter();
    Ok(pairs
        .filter_map(|(name, value)| match value {
            NvValue::Bytes(bytes) => Some((name, bytes)),
            _ => None,
        })
        .collect())
}

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, socket or pipe; the type bits of its mode.
    Special(u8),
}

impl FileKind {
    /// The kind of these type bits: of a mode, or of a directory entry, where they are the same.
    #[must_use]
    pub fn of(bits: u8) -> Self {
        match bits {
            4 => Self::Directory,
            8 => Self::File,
            10 => Self::Link,
            other => Self::Special(other),
        }
    }
}

/// The object and the kind in a directory entry's integer.
#[must_use]
pub fn directory_entry(value: u64) -> (u64, FileKind) {
    (value & 0xffff_ffff_ffff, FileKind::of((value >> 60) as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_form_has_its_fields_at_their_places() {
        let mut bonus = vec![0; 320];
        bonus[16] = 5; // modified
        bonus[24] = 6;
        bonus[72..76].copy_from_slice(&0o120_777_u32.to_le_bytes());
        bonus[80] = 3;
        bonus[96] = 2;
        bonus[128] = 7;
        bonus[264..267].copy_from_slice(b"abc");
        let znode = Znode::parse_old(&bonus).unwrap();
        assert_eq!(
            znode.modified,
            FileTime {
                seconds: 5,
                nanoseconds: 6
            }
        );
        assert_eq!(
            (znode.kind(), znode.link_count, znode.user_id),
            (FileKind::Link, 2, 7)
        );
        assert_eq!(znode.link_target.as_deref(), Some(b"abc".as_slice()));
        assert!(Znode::parse_old(&bonus[..263]).is_err());
    }

    #[test]
    fn extended_attributes_are_names_and_bytes() {
        let mut list = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        for (name, value) in [(b"user.one", b"12345".as_slice()), (b"user.two", b"")] {
            list.extend([0, 0, 0, 40, 0, 0, 0, 40, 0, 0, 0, 8]);
            list.extend(name);
            list.extend([0, 0, 0, 10, 0, 0, 0, value.len() as u8]);
            list.extend(value);
            list.resize(list.len().next_multiple_of(4), 0);
        }
        list.extend([0; 8]);
        let expected = [
            ("user.one".to_owned(), b"12345".to_vec()),
            ("user.two".to_owned(), Vec::new()),
        ];
        assert_eq!(xattrs(&list).unwrap(), expected);
        assert!(xattrs(&list[..list.len() - 9]).is_err());
    }

    #[test]
    fn a_directory_entry_is_object_and_kind() {
        assert_eq!(directory_entry(4 << 60 | 77), (77, FileKind::Directory));
        assert_eq!(
            directory_entry(1 << 60 | 1 << 50),
            (0, FileKind::Special(1))
        );
    }
}
