//! Opening a member: which kind of file it is, exclusively, with or without the page cache.

use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plexum_block::buf::{ALIGNMENT_BYTES, BufPool};
use plexum_block::device::{DeviceInfo, FuaWay};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use crate::Handle;
use crate::blockdev;
use crate::file::FileDevice;
use crate::lock::{self, Identity, OpenFile, is_block_device};
use crate::options::{Access, DirectIo, OpenError, OpenOptions, Route};
use crate::users;

/// Sector size of files in bytes: the smallest that NBD and md know.
const FILE_SECTOR_BYTES: u32 = 512;

/// `f_type` of file systems that live in memory: tmpfs and ramfs.
const MEMORY_FILE_SYSTEMS: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// How long (one second) an opening waits for a holder that cannot be named, and so may be gone at any moment: the
/// kernel ends a killed process's transfers of a ring, and with them its locks, after the process itself.
const OPEN_RETRIES_MAX: u32 = 50;
const OPEN_RETRY: Duration = Duration::from_millis(20);

impl FileDevice {
    /// Opens and locks a member. Blocks for the time of a few system calls.
    ///
    /// # Errors
    /// See `OpenError`; nothing on the member was changed.
    pub fn open(handle: &Handle, path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        let opening = Opening { path, options };
        let found = opening.step("open it", rustix::fs::stat(path))?;
        opening.check_type(&found)?;
        let is_device = is_block_device(found.st_mode);
        let fd = opening.open_alone(is_device)?;
        Self::of(handle, &opening, fd)
    }

    /// Opens a member for reading without a lock, beside whoever holds it: to look at its metadata.
    ///
    /// # Errors
    /// See `OpenError`.
    pub fn look_at(handle: &Handle, path: &Path) -> Result<Self, OpenError> {
        let options = &OpenOptions::read_only();
        let opening = Opening { path, options };
        let found = opening.step("open it", rustix::fs::stat(path))?;
        opening.check_type(&found)?;
        let flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::RDONLY;
        let fd = opening.step("open it", rustix::fs::open(path, flags, Mode::empty()))?;
        Self::of(handle, &opening, OpenFile::from(fd))
    }

    /// Opens a member of this process once more, for the runtime of another thread: the very file that `number`
    /// (`Device::handle`) has open, whatever its path names by now. Without a lock of its own: whoever opened it first
    /// keeps it locked.
    ///
    /// # Errors
    /// See `OpenError`.
    pub fn open_again(
        handle: &Handle,
        number: u64,
        path: &Path,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let opening = Opening { path, options };
        let flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::RDWR;
        let own = format!("/proc/self/fd/{number}");
        let fd = opening.step("open it again", rustix::fs::open(own, flags, Mode::empty()))?;
        Self::of(handle, &opening, OpenFile::from(fd))
    }

    /// The device on an open file.
    fn of(handle: &Handle, opening: &Opening<'_>, fd: OpenFile) -> Result<Self, OpenError> {
        let (path, options) = (opening.path, opening.options);
        let stat = opening.step("look at it", rustix::fs::fstat(&fd))?;
        let is_device = is_block_device(stat.st_mode);
        let system = opening.step("look at its file system", rustix::fs::fstatfs(&fd))?;
        // A device node says where the node is, not where the data are.
        let is_in_memory = !is_device && MEMORY_FILE_SYSTEMS.contains(&(system.f_type as u32));
        let size_bytes = opening.step("find its size", rustix::fs::seek(&fd, SeekFrom::End(0)))?;
        let device = if is_device {
            blockdev::describe(&fd, &stat)
        } else {
            blockdev::Properties {
                sector_bytes: FILE_SECTOR_BYTES,
                physical_sector_bytes: FILE_SECTOR_BYTES,
                is_rotational: blockdev::is_rotational(stat.st_dev),
                has_zeroing_trim: !handle.core.is_rehearsal.get()
                    && can_punch_holes(&fd, size_bytes, options.access),
            }
        };
        let direct = match options.direct_io {
            DirectIo::Auto if !is_in_memory && size_bytes > 0 => {
                try_direct(&fd, device.sector_bytes)
            }
            _ => None,
        };
        let sector_bytes = direct.map_or(device.sector_bytes, |d| d.sector_bytes);
        let sector = u64::from(sector_bytes);
        Ok(Self {
            core: Rc::clone(&handle.core),
            fd: Arc::new(fd),
            path: std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            identity: Identity::of(&stat),
            info: DeviceInfo {
                size_bytes: size_bytes / sector * sector,
                sector_bytes,
                is_rotational: device.is_rotational,
                has_zeroing_trim: device.has_zeroing_trim,
            },
            is_read_only: options.access == Access::ReadOnly,
            memory_alignment_bytes: direct.map_or(1, |d| d.memory_alignment_bytes),
            physical_sector_bytes: device.physical_sector_bytes.max(sector_bytes),
            route: options.route.unwrap_or(if is_in_memory {
                Route::Inline
            } else {
                Route::Queued
            }),
            fua_way: if is_device {
                FuaWay::InWrite
            } else {
                crate::durable::way_on(system.f_type as u32)
            },
            bounce: BufPool::new(crate::file::BOUNCE_BYTES_MAX),
            is_lost: std::cell::Cell::new(false),
        })
    }
}

struct Opening<'a> {
    path: &'a Path,
    options: &'a OpenOptions,
}

impl Opening<'_> {
    fn step<T>(&self, action: &'static str, result: Result<T, Errno>) -> Result<T, OpenError> {
        result.map_err(|error| OpenError::System {
            path: self.path.to_owned(),
            action,
            source: error.into(),
        })
    }

    fn check_type(&self, stat: &Stat) -> Result<(), OpenError> {
        let found = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::BlockDevice => return Ok(()),
            FileType::Directory => "a directory",
            FileType::CharacterDevice => "a character device",
            FileType::Fifo => "a pipe",
            FileType::Socket => "a socket",
            _ => "something else",
        };
        Err(OpenError::NotAMember {
            path: self.path.to_owned(),
            found,
        })
    }

    /// Opens and locks the file. A refusal by nobody who can be named is tried again for a moment: a process that
    /// was killed can hold its files for some milliseconds after its end.
    fn open_alone(&self, is_device: bool) -> Result<OpenFile, OpenError> {
        let mut tries = 0;
        loop {
            let refusal = match self.try_open(is_device) {
                Err(refusal) if refusal.is_busy() => refusal,
                done => return done,
            };
            let is_named = match &refusal {
                OpenError::InUse { pid, .. } => pid.is_some(),
                OpenError::Busy { holders, .. } => !holders.is_empty(),
                _ => true,
            };
            if is_named || tries == OPEN_RETRIES_MAX {
                return Err(refusal);
            }
            tries += 1;
            std::thread::sleep(OPEN_RETRY);
        }
    }

    fn try_open(&self, is_device: bool) -> Result<OpenFile, OpenError> {
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        flags |= match self.options.access {
            Access::ReadOnly => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        let is_for_writing = self.options.access == Access::ReadWrite;
        if is_device && is_for_writing {
            flags |= OFlags::EXCL; // on a block device: nobody else has it exclusively, neither md nor a mount
        }
        let opened = rustix::fs::open(self.path, flags, Mode::empty());
        if let (true, Err(Errno::BUSY)) = (is_device, &opened) {
            return Err(OpenError::Busy {
                path: self.path.to_owned(),
                holders: blockdev::holders(self.path),
            });
        }
        match opened {
            Err(Errno::ROFS | Errno::PERM) if is_for_writing => {
                return Err(self.read_only("nothing can be written there"));
            }
            Err(Errno::ACCESS) if is_for_writing && self.can_be_read() => {
                return Err(self.read_only("this user may read it, but not write to it"));
            }
            _ => {}
        }
        let fd = self.step("open it", opened)?;
        // Only what was really opened counts: the path may name something else by now.
        let stat = self.step("look at it", rustix::fs::fstat(&fd))?;
        self.check_type(&stat)?;
        if is_for_writing {
            self.check_writable(&stat)?;
            let holders = users::holders(&stat);
            if !holders.is_empty() {
                return Err(OpenError::Busy {
                    path: self.path.to_owned(),
                    holders,
                });
            }
        }
        match OpenFile::locked(fd, self.options.access, self.options.part) {
            Ok(file) => Ok(file),
            Err(None) => Err(OpenError::InUse {
                path: self.path.to_owned(),
                pid: lock::holder(&stat),
            }),
            Err(Some(error)) => self.step("lock it", Err(error)),
        }
    }
}

impl Opening<'_> {
    fn read_only(&self, why: &'static str) -> OpenError {
        let path = self.path.to_owned();
        OpenError::ReadOnly { path, why }
    }

    fn can_be_read(&self) -> bool {
        let flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::RDONLY;
        rustix::fs::open(self.path, flags, Mode::empty()).is_ok()
    }

    /// The system lets root write to a file that nobody may write, and opens a write-blocked disk: the first write
    /// fails.
    fn check_writable(&self, stat: &Stat) -> Result<(), OpenError> {
        let is_device = is_block_device(stat.st_mode);
        if is_device && blockdev::is_read_only(stat.st_rdev) {
            return Err(self.read_only("the device is write-protected"));
        }
        if !is_device && stat.st_mode & 0o222 == 0 {
            return Err(self.read_only("nobody has the right to write to the file"));
        }
        Ok(())
    }
}

/// Whether holes can be made; asked beyond the end of the file, where it changes nothing.
fn can_punch_holes(fd: &OpenFile, size_bytes: u64, access: Access) -> bool {
    let page = ALIGNMENT_BYTES as u64;
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let beyond = size_bytes.checked_next_multiple_of(page);
    access == Access::ReadWrite
        && beyond.is_some_and(|beyond| rustix::fs::fallocate(fd, mode, beyond, page).is_ok())
}

/// What direct I/O needs on this file.
#[derive(Clone, Copy)]
struct Direct {
    sector_bytes: u32,
    memory_alignment_bytes: usize,
}

/// Switches `fd` to direct I/O if the file system takes it, tried with a real read; otherwise leaves it as it was.
fn try_direct(fd: &OpenFile, sector_bytes: u32) -> Option<Direct> {
    let flags = rustix::fs::fcntl_getfl(fd).ok()?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT).ok()?;
    let pool = BufPool::new(0);
    for offset_alignment_bytes in [512_u32, 4096] {
        if offset_alignment_bytes < sector_bytes {
            continue;
        }
        let length = offset_alignment_bytes as usize;
        let mut buf = pool.take(length);
        // At an odd multiple, so that a coarser need shows; past the end there is nothing to read, but no error.
        let offset = u64::from(offset_alignment_bytes);
        if rustix::io::pread(fd, &mut buf[..], offset).is_ok() {
            return Some(Direct {
                sector_bytes: offset_alignment_bytes,
                memory_alignment_bytes: memory_alignment_bytes(fd),
            });
        }
    }
    let _ = rustix::fs::fcntl_setfl(fd, flags);
    None
}

/// What statx says about memory for direct I/O (since 6.1), between 512 and a page.
fn memory_alignment_bytes(fd: impl AsFd) -> usize {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let answer = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let said = answer.map_or(0, |found| found.stx_dio_mem_align as usize);
    if said.is_power_of_two() {
        said.clamp(512, ALIGNMENT_BYTES)
    } else {
        512
    }
}
