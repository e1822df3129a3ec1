//! Calls of the kernel that have no safe form: locks of an open file description, advice for memory, the groups of who
//! is at the other end of a socket.

use std::ops::Range;
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

/// Takes pages of code out of this process; each is found again in its file when it is run.
///
/// # Errors
/// What the kernel answers: before Linux 5.18 memory that is locked stays.
pub(crate) fn drop_code(code: &Range<usize>) -> Result<(), Errno> {
    let start = std::ptr::without_provenance_mut(code.start);
    // SAFETY: `process::code_of` gives ranges of executable mappings of files that are not writable and in which no
    // page was ever changed for this process alone. The kernel makes each of their pages anew from the file, with the
    // same bytes.
    unsafe { rustix::mm::madvise(start, code.len(), Advice::LinuxDontneedLocked) }
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

/// Most groups of a process that are looked at: the kernel allows 65536.
const GROUPS_MAX: usize = 65_536;

/// The further groups of whoever is at the other end of a Unix socket, as they were when it connected. The kernel tells
/// them: what /proc says of a process number may be of another process by now.
///
/// # Errors
/// What the kernel answers; for a socket that is no Unix socket, too.
pub(crate) fn peer_groups(socket: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let room_bytes = size_of_val(groups.as_slice());
        let mut length = libc::socklen_t::try_from(room_bytes).map_err(|_| Errno::INVAL)?;
        // SAFETY: the descriptor is open for the length of the call; `groups` has room for `length` bytes, which is
        // all that the kernel writes, and it keeps no pointer to either.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            groups.truncate(length as usize / size_of::<libc::gid_t>());
            return Ok(groups);
        }
        let error = std::io::Error::last_os_error();
        let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        if error != Errno::RANGE || groups.len() >= GROUPS_MAX {
            return Err(error);
        }
        groups.resize(groups.len() * 4, 0);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::fd::AsFd;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_groups_at_the_other_end_of_a_socket_are_those_of_that_process() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("two ends");
        let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        let groups = line.expect("a line").split_whitespace();
        let mut own: Vec<u32> = groups.map(|word| word.parse().expect("a number")).collect();
        let mut found = peer_groups(one.as_fd()).expect("a Unix socket");
        own.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, own);
        let network = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        assert!(peer_groups(network.as_fd()).is_err());
    }

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
