//! A device or a file, opened for reading or, when its content may be lost, for both.
//!
//! Invariant: what is opened for writing is nobody else's: block devices exclusively, files with the lock that servers
//! take.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use plexum_block::buf::{BufMut, BufPool};
use rustix::fs::FlockOperation;
use rustix::io::{Errno, ReadWriteFlags};

use super::{Wish, check, failed};
use crate::error::LabError;
use crate::workload::{IoRequest, Operation};

/// Memory that the buffers of one lane may keep, in bytes.
const POOL_BYTES: usize = 4 << 20;

/// A device or file.
pub(super) struct FilePlace {
    file: File,
    pub(super) size_bytes: u64,
    pub(super) is_direct: bool,
}

/// Opens with what the file system allows: past the page cache or through it.
fn open_file(
    path: &Path,
    writes: bool,
    is_direct: bool,
    flags: i32,
) -> std::io::Result<(File, bool)> {
    let open = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).write(writes).custom_flags(flags);
        options.open(path)
    };
    if !is_direct {
        return Ok((open(flags)?, false));
    }
    match open(flags | libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((open(flags)?, false)),
        opened => Ok((opened?, true)),
    }
}

/// A file that others use is not said to be in use by the system: loop devices, swap, programs that write to it.
fn check_users(path: &Path) -> Result<(), LabError> {
    let stat = rustix::fs::stat(path)
        .map_err(|error| LabError::Usage(format!("{}: {error}", path.display())))?;
    let mut users = plexum_runtime::users::holders(&stat);
    let writer = plexum_runtime::users::writer(path);
    users.extend(writer.map(|pid| format!("process {pid}, which has it open for writing")));
    if users.is_empty() {
        return Ok(());
    }
    let (shown, users) = (path.display(), users.join(", "));
    Err(LabError::Usage(format!("{shown} is in use by {users}")))
}

impl FilePlace {
    pub(super) fn open(path: &Path, wish: &Wish<'_>) -> Result<Self, LabError> {
        let told = |error: std::io::Error| LabError::Usage(format!("{}: {error}", path.display()));
        let kind = std::fs::metadata(path).map_err(told)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(LabError::Usage(format!(
                "{} is neither a block device nor a file nor a folder",
                path.display()
            )));
        }
        let in_use = || {
            LabError::Usage(format!(
                "{} is in use: mounted, part of an array, or served",
                path.display()
            ))
        };
        let writes = wish.writes;
        if writes {
            check_users(path)?;
        }
        let is_exclusive = writes && kind.is_block_device();
        let flags = if is_exclusive { libc::O_EXCL } else { 0 };
        let (file, is_direct) = match open_file(path, writes, wish.is_direct, flags) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Err(in_use()),
            opened => opened.map_err(told)?,
        };
        if writes {
            match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::AGAIN | Errno::ACCESS) => return Err(in_use()),
                other => other.map_err(|error| told(error.into()))?,
            }
        }
        let size_bytes = (&file).seek(SeekFrom::End(0)).map_err(told)?;
        Ok(Self {
            file,
            size_bytes,
            is_direct,
        })
    }

    /// A new file; `size_bytes` is what the workload may use of it.
    pub(super) fn create(path: &Path, size_bytes: u64, wish: &Wish<'_>) -> Result<Self, LabError> {
        let told = |error: std::io::Error| LabError::Io(format!("{}: {error}", path.display()));
        drop(File::create_new(path).map_err(told)?);
        let (file, is_direct) = open_file(path, true, wish.is_direct, 0).map_err(told)?;
        Ok(Self {
            file,
            size_bytes,
            is_direct,
        })
    }

    /// Everything is on the medium, and memory forgets it where the system lets it.
    pub(super) fn forget(&self) -> Result<(), LabError> {
        let told = |error: std::io::Error| LabError::Io(format!("flush: {error}"));
        self.file.sync_all().map_err(told)?;
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
        Ok(())
    }

    /// What one lane needs to work with it.
    pub(super) fn lane(&self, number: u64) -> Lane<'_> {
        Lane {
            place: self,
            pool: BufPool::new(POOL_BYTES),
            payload: None,
            stamp: plexum_disks::rng::mix(number + 1),
        }
    }
}

/// One lane's buffers.
pub(super) struct Lane<'a> {
    place: &'a FilePlace,
    pool: BufPool,
    payload: Option<BufMut>,
    stamp: u64,
}

impl Lane<'_> {
    /// One request, waited for.
    pub(super) fn carry_out(&mut self, request: &IoRequest) -> Result<(), LabError> {
        let length = check(request, self.place.size_bytes)?;
        let done = match request.operation {
            Operation::Read => {
                let mut buf = self.pool.take(length);
                self.place
                    .file
                    .read_exact_at(&mut buf, request.offset_bytes)
            }
            Operation::Write => self.write(length, request.offset_bytes, false),
            Operation::WriteThrough => self.write(length, request.offset_bytes, true),
            Operation::Flush => self.place.file.sync_data(),
        };
        done.map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) if self.place.is_direct => failed(
                request,
                "the device does not take it; with direct I/O requests are whole blocks of the device",
            ),
            _ => failed(request, error),
        })
    }

    fn write(&mut self, length: usize, at_bytes: u64, is_durable: bool) -> std::io::Result<()> {
        self.fill(length);
        let Some(payload) = &self.payload else {
            return Ok(());
        };
        if !is_durable {
            return self.place.file.write_all_at(&payload[..length], at_bytes);
        }
        let mut done = 0;
        while done < length {
            let slice = [IoSlice::new(&payload[done..length])];
            let at = at_bytes + done as u64;
            done += rustix::io::pwritev2(&self.place.file, &slice, at, ReadWriteFlags::DSYNC)?;
        }
        Ok(())
    }

    /// Bytes that do not compress and are never the same twice.
    fn fill(&mut self, length: usize) {
        if self.payload.as_ref().is_none_or(|buf| buf.len() < length) {
            let mut buf = self.pool.take(length);
            let mut value = self.stamp;
            for chunk in buf.chunks_mut(8) {
                value = plexum_disks::rng::mix(value.wrapping_add(0x9e37_79b9_7f4a_7c15));
                chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
            }
            self.payload = Some(buf);
        }
        self.stamp = self.stamp.wrapping_add(1);
        if let Some(buf) = &mut self.payload {
            for block in buf[..length].chunks_mut(4096) {
                let stamped = block.len().min(8);
                block[..stamped].copy_from_slice(&self.stamp.to_le_bytes()[..stamped]);
            }
        }
    }
}
