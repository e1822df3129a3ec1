//! Calls of the kernel for files that have no safe form: locks of an open file description, advice for memory.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::mm::Advice;

use crate::options::Part;

/// For the large buffers of members' I/O ([`plexum_block::buf::BufPool::with_advice`]): asks for large pages, where the
/// kernel has such. A request of 1 MiB that goes past the page cache is then one piece of memory instead of 256, of
/// which some disks take no more than one request's at once.
pub fn large_pages(memory: &mut [u8]) {
    // SAFETY: the range is that of the slice; this advice changes neither contents nor access, only how large the pages
    // behind it are.
    let advised = unsafe {
        rustix::mm::madvise(
            memory.as_mut_ptr().cast(),
            memory.len(),
            Advice::LinuxHugepage,
        )
    };
    let _ = advised; // a kernel without large pages, or memory that is not a page's: it serves as well, only slower
}

/// A lock of the open file description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Exclusive,
    Shared,
    None,
}

/// Sets or ends the lock of the open file description on a part of the file or the whole of it, without waiting.
///
/// # Errors
/// `EAGAIN` or `EACCES` when somebody else has a lock that is in the way.
pub(crate) fn set_lock(fd: BorrowedFd<'_>, lock: Lock, part: Option<Part>) -> Result<(), Errno> {
    let kind = match lock {
        Lock::Exclusive => libc::F_WRLCK,
        Lock::Shared => libc::F_RDLCK,
        Lock::None => libc::F_UNLCK,
    };
    // A length of 0 reaches to the end, however long the file is.
    let (start, length) = part.map_or((0, 0), |part| (part.start_bytes, part.length_bytes));
    let offset = |bytes: u64| libc::off_t::try_from(bytes).map_err(|_| Errno::INVAL);
    let range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset(start)?,
        l_len: offset(length)?,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for the length of the call and `range` is the structure that
    // F_OFD_SETLK reads; the kernel keeps no pointer to it.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::fd::AsFd;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_kernel_is_asked_for_large_pages_and_the_memory_stays_as_it_is() {
        let mut memory = vec![0x5a_u8; 8 << 20];
        let skip = memory.as_ptr().align_offset(2 << 20);
        let slab = &mut memory[skip..skip + (2 << 20)];
        large_pages(slab);
        assert!(slab.iter().all(|byte| *byte == 0x5a));
        large_pages(&mut slab[3..5]); // begins inside of a page: refused, and nothing happens
        if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return; // this kernel has none
        }
        let address = slab.as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("what is mapped");
        let mut is_inside = false;
        for line in maps.lines() {
            let range = line.split_once('-').and_then(|(start, rest)| {
                let start = usize::from_str_radix(start, 16).ok()?;
                let end = usize::from_str_radix(rest.split(' ').next()?, 16).ok()?;
                Some(start..end)
            });
            is_inside = range.map_or(is_inside, |range| range.contains(&address));
            if is_inside && line.starts_with("VmFlags:") {
                assert!(line.contains(" hg"), "{line}");
                return;
            }
        }
        panic!("the slab is mapped");
    }

    /// Dirty and written-back-now pages of the first MiB, as `cachestat` (since 6.5) counts them.
    pub(crate) fn pages_in_danger(fd: impl AsFd) -> Option<u64> {
        const CACHESTAT: libc::c_long = 451;
        let range = [0_u64, 1 << 20];
        let mut counts = [0_u64; 5]; // cached, dirty, in write-back, evicted, recently evicted
        // SAFETY: the kernel reads two and writes five 64-bit numbers, which is what both arrays hold.
        let result = unsafe {
            libc::syscall(
                CACHESTAT,
                fd.as_fd().as_raw_fd(),
                range.as_ptr(),
                counts.as_mut_ptr(),
                0,
            )
        };
        (result == 0).then(|| counts[1] + counts[2])
    }
}
