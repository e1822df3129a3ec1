//! Memory that another process has as well.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};

use plexum_front::memory::{Memory, MemoryError, Part, check_inside};
use plexum_vhost::peer::{FilePart, Mapping, PeerError};
use rustix::fs::{FileType, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::guard::Guarded;

/// A part of a file, mapped for reading and writing. Others change it at any time: it is copied from and to, and no
/// reference into it is ever made.
pub struct SharedMemory {
    /// Where the part begins.
    begin: *mut u8,
    length_bytes: usize,
    /// Before the mapping: fields are dropped in their order.
    guarded: Guarded,
    /// All that is mapped.
    _mapped: Mapped,
}

/// A mapping, which begins and ends at pages of its file.
struct Mapped {
    begin: *mut std::ffi::c_void,
    length_bytes: usize,
}

fn failed(what: &str, error: impl std::fmt::Display) -> PeerError {
    PeerError::File(format!("{what}: {error}"))
}

impl SharedMemory {
    /// Maps a part of a file.
    ///
    /// # Errors
    /// It is no file of bytes, or shorter; there is no room.
    pub fn map(file: &OwnedFd, part: FilePart) -> Result<Self, PeerError> {
        let stat = rustix::fs::fstat(file).map_err(|errno| failed("looking at memory", errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(PeerError::File(
                "memory has to be a file of bytes".to_owned(),
            ));
        }
        let end = part.offset_bytes.checked_add(part.size_bytes);
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        if part.size_bytes == 0 || end.is_none_or(|end| end > size_bytes) {
            return Err(PeerError::File(format!(
                "{} bytes at {} are not in a file of {size_bytes} bytes",
                part.size_bytes, part.offset_bytes
            )));
        }
        // Huge pages are mapped whole: such a file says how large they are.
        let block_bytes = u64::try_from(stat.st_blksize).unwrap_or(0);
        let page_bytes = (rustix::param::page_size() as u64).max(block_bytes);
        let page_bytes = if page_bytes.is_power_of_two() {
            page_bytes
        } else {
            4096
        };
        let from = part.offset_bytes / page_bytes * page_bytes;
        let skip = part.offset_bytes - from;
        let all = (skip + part.size_bytes).checked_next_multiple_of(page_bytes);
        let fits = |bytes: u64| usize::try_from(bytes).ok();
        let (Some(length_bytes), Some(all_bytes), Some(skip)) =
            (fits(part.size_bytes), all.and_then(fits), fits(skip))
        else {
            return Err(PeerError::File(
                "the memory is larger than all there can be".to_owned(),
            ));
        };
        let mapped =
            Mapped::new(file, from, all_bytes).map_err(|errno| failed("mapping memory", errno))?;
        let begin = mapped.begin as usize;
        let guarded = Guarded::new(begin..begin + all_bytes);
        let guarded = guarded.map_err(|error| failed("mapping memory", error))?;
        Ok(Self {
            // SAFETY: `skip` is less than what was mapped.
            begin: unsafe { mapped.begin.cast::<u8>().add(skip) },
            length_bytes,
            guarded,
            _mapped: mapped,
        })
    }

    /// Memory of zeroes, and the file by which others map it.
    ///
    /// # Errors
    /// There is no room.
    pub fn share(size_bytes: u64) -> Result<(OwnedFd, Self), PeerError> {
        let make = || -> io::Result<OwnedFd> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("plexum-inflight", flags)?;
            rustix::fs::ftruncate(&file, size_bytes)?;
            let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
            rustix::fs::fcntl_add_seals(&file, seals)?;
            Ok(file)
        };
        let file = make().map_err(|error| failed("making shared memory", error))?;
        let part = FilePart {
            offset_bytes: 0,
            size_bytes,
        };
        let memory = Self::map(&file, part)?;
        Ok((file, memory))
    }

    /// The answer to an access that has just been made.
    fn answer<T>(&self, value: T) -> Result<T, MemoryError> {
        match self.guarded.is_torn() {
            true => Err(MemoryError::Gone),
            false => Ok(value),
        }
    }

    /// The number at an even place.
    fn number(&self, offset_bytes: usize) -> Result<&AtomicU16, MemoryError> {
        let part = Part {
            offset_bytes,
            count: 2,
        };
        check_inside(self.length_bytes, part)?;
        // SAFETY: it lies in the mapping: that was looked at.
        let at = unsafe { self.begin.add(offset_bytes) }.cast::<u16>();
        if !at.is_aligned() {
            return Err(MemoryError::Outside {
                range: (offset_bytes, offset_bytes + 2),
                length_bytes: self.length_bytes,
            });
        }
        // SAFETY: the place is aligned, and mapped as long as `self`; others change it by single stores of its size,
        // and a torn value would be one that a guest could have written as well.
        Ok(unsafe { AtomicU16::from_ptr(at) })
    }
}

impl Memory for SharedMemory {
    fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    fn load(&self, offset_bytes: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        let count = into.len();
        check_inside(
            self.length_bytes,
            Part {
                offset_bytes,
                count,
            },
        )?;
        // SAFETY: the range lies in the mapping; `into` is memory of this process alone, so they do not overlap. What
        // others write meanwhile is copied or not, byte by byte: no reference into the mapping exists.
        unsafe {
            std::ptr::copy_nonoverlapping(self.begin.add(offset_bytes), into.as_mut_ptr(), count)
        };
        self.answer(())
    }

    fn store(&self, offset_bytes: usize, from: &[u8]) -> Result<(), MemoryError> {
        let count = from.len();
        check_inside(
            self.length_bytes,
            Part {
                offset_bytes,
                count,
            },
        )?;
        // SAFETY: as in `load`, the other way round.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.begin.add(offset_bytes), count)
        };
        self.answer(())
    }
}

impl Mapping for SharedMemory {
    fn load_u16(&self, offset_bytes: usize) -> Result<u16, MemoryError> {
        let value = self.number(offset_bytes)?.load(Ordering::Acquire);
        self.answer(value)
    }

    fn store_u16(&self, offset_bytes: usize, value: u16) -> Result<(), MemoryError> {
        self.number(offset_bytes)?.store(value, Ordering::Release);
        self.answer(())
    }
}

impl Mapped {
    fn new(file: impl AsFd, offset_bytes: u64, length_bytes: usize) -> Result<Self, Errno> {
        // SAFETY: the kernel chooses the address, so nothing of this process is replaced.
        let begin = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                offset_bytes,
            )
        }?;
        Ok(Self {
            begin,
            length_bytes,
        })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping made in `new`, and nobody refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.begin, self.length_bytes) };
        let _ = unmapped; // it cannot fail for a whole mapping; if it did, the memory would stay
    }
}
