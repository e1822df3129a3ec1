//! Who a file is, and that nobody else uses it: locks on the open file description (`F_OFD_SETLK`).
//!
//! The lock belongs to the open file, not to the process: a second opening of the same file is refused even inside
//! of one process, and the lock ends with the last descriptor, also after SIGKILL.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::kernel::{Lock, set_lock};
use crate::options::{Access, Part};

/// Which file or device something is, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A regular file: number of its file system's device and of its inode.
    File {
        /// Device number of the file system.
        device: u64,
        /// Inode number.
        inode: u64,
    },
    /// A block device, by its own number.
    Device {
        /// Device number, as the kernel packs it.
        number: u64,
    },
}

impl Identity {
    pub(crate) fn of(stat: &Stat) -> Self {
        if is_block_device(stat.st_mode) {
            Identity::Device {
                number: stat.st_rdev,
            }
        } else {
            Identity::File {
                device: stat.st_dev,
                inode: stat.st_ino,
            }
        }
    }
}

/// Whether `mode` (of a `stat`) is that of a block device.
pub(crate) fn is_block_device(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::BlockDevice
}

/// An open file or socket. A lock ends here, with the last operation that uses the file: the kernel itself may keep
/// a closed file (and its lock) for some more milliseconds after an operation of a ring.
#[derive(Debug)]
pub(crate) struct OpenFile {
    fd: OwnedFd,
    is_locked: bool,
}

impl OpenFile {
    /// Locks the file or a part of it: exclusively for writing, shared for reading. `Err(None)`: somebody else has it.
    pub(crate) fn locked(
        fd: OwnedFd,
        access: Access,
        part: Option<Part>,
    ) -> Result<Self, Option<Errno>> {
        let lock = match access {
            Access::ReadWrite => Lock::Exclusive,
            Access::ReadOnly => Lock::Shared,
        };
        match set_lock(fd.as_fd(), lock, part) {
            Ok(()) => Ok(Self {
                fd,
                is_locked: true,
            }),
            Err(Errno::AGAIN | Errno::ACCESS) => Err(None),
            Err(error) => Err(Some(error)),
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.is_locked {
            let _ = set_lock(self.fd.as_fd(), Lock::None, None); // closing ends it as well, only later
        }
    }
}

impl From<OwnedFd> for OpenFile {
    fn from(fd: OwnedFd) -> Self {
        Self {
            fd,
            is_locked: false,
        }
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How the kernel's lines of locks name a file.
pub(crate) fn place_of(stat: &Stat) -> String {
    // A line reads: lock: 1: OFDLCK ADVISORY WRITE -1 fe:00:1234 0 EOF (major and minor in hexadecimal).
    let (major, minor) = (
        rustix::fs::major(stat.st_dev),
        rustix::fs::minor(stat.st_dev),
    );
    format!(" {major:02x}:{minor:02x}:{} ", stat.st_ino)
}

/// The process that has a lock on the file, when the kernel lets us know (own processes, or all for root).
///
/// `F_OFD_GETLK` names no process for locks of this kind, so the lock lines of `/proc/PID/fdinfo` are searched for
/// the inode. Only called to explain a refusal.
pub(crate) fn holder(stat: &Stat) -> Option<u32> {
    let place = place_of(stat);
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(infos) = std::fs::read_dir(entry.path().join("fdinfo")) else {
            continue; // not ours, or gone
        };
        for info in infos.flatten() {
            let text = std::fs::read_to_string(info.path()).unwrap_or_default();
            let is_held = |line: &str| line.starts_with("lock:") && line.contains(&place);
            if text.lines().any(is_held) {
                return Some(pid);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_last_user_even_while_the_kernel_keeps_the_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || OwnedFd::from(std::fs::File::open(file.path()).expect("a file"));
        let fd = open();
        let kept = rustix::io::dup(&fd).expect("a second descriptor of the same open file");
        let first = OpenFile::locked(fd, Access::ReadOnly, None).expect("nobody else has it");
        drop(first);
        let writer = std::fs::File::options().write(true).open(file.path());
        let writer = OwnedFd::from(writer.expect("a file"));
        OpenFile::locked(writer, Access::ReadWrite, None).expect("the lock has ended");
        drop(kept);
    }

    #[test]
    fn two_parts_of_a_file_have_users_of_their_own_but_the_same_bytes_have_one() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let lock = |part| {
            let file = std::fs::File::options().write(true).open(file.path());
            let fd = OwnedFd::from(file.expect("a file"));
            OpenFile::locked(fd, Access::ReadWrite, part)
        };
        let part = |start_bytes| {
            Some(Part {
                start_bytes,
                length_bytes: 512,
            })
        };
        let first = lock(part(512)).expect("nobody else has it");
        let second = lock(part(1024)).expect("other bytes");
        assert!(lock(part(1000)).is_err() && lock(None).is_err());
        drop((first, second));
        let _whole = lock(None).expect("the locks have ended");
        assert!(lock(part(0)).is_err());
    }
}
