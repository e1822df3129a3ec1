//! A member on a regular file or a block device: the `Device` of the real world.
//!
//! Invariants:
//! - a transfer is complete or an error: short transfers are continued, nothing at all at the end means `Gone`;
//! - a file that was truncated or unlinked is not taken for whole again: it is looked at before every write, which
//!   could make it as long as it was, and after; and what was lost once stays `Gone`, for reads of the new hole would
//!   be zeroes;
//! - interrupted calls are repeated a bounded number of times; a failed flush is never repeated (W13);
//! - with direct I/O every address handed to the kernel is aligned: unaligned data are copied first.

use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{
    Device, DeviceInfo, Extent as MemberExtent, Fua, FuaWay, IoError, ZeroMode, check_range,
};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use crate::lock::{Identity, OpenFile};
use crate::op::{Kind, Op, Outcome};
use crate::{Core, Reactor};

pub use crate::kernel::large_pages;
pub use crate::options::{Access, DirectIo, OpenError, OpenOptions, Part, Route};

/// How often one call is repeated after `EINTR`, `EAGAIN` or `ENOMEM`.
const RETRIES_MAX: u32 = 8;

/// A write to memory that is so long is left to another thread, of the kernel or of ours, so that this one takes the
/// client's next request meanwhile. Measured: docs/notes/served.md.
const ASIDE_BYTES: usize = 256 << 10;
/// The same while this thread has no rest (`Core::is_restless`).
const ASIDE_RESTLESS_BYTES: usize = 64 << 10;

/// Memory kept for copies of unaligned data.
pub(crate) const BOUNCE_BYTES_MAX: usize = 4 << 20;

/// A part of a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it starts.
    pub offset_bytes: u64,
    /// How long it is, never 0.
    pub length_bytes: u64,
    /// Whether it is a hole: reads as zeroes. It may take space (allocated but never written).
    pub is_hole: bool,
}

/// An open file or block device, locked against other users until it is dropped.
pub struct FileDevice {
    pub(crate) core: Rc<Core>,
    pub(crate) fd: Arc<OpenFile>,
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) info: DeviceInfo,
    pub(crate) is_read_only: bool,
    /// Direct I/O: alignment of memory in bytes; 1 for buffered I/O.
    pub(crate) memory_alignment_bytes: usize,
    pub(crate) physical_sector_bytes: u32,
    pub(crate) route: Route,
    pub(crate) fua_way: FuaWay,
    pub(crate) bounce: BufPool,
    /// The file was found shorter than it was, or without a name.
    pub(crate) is_lost: Cell<bool>,
}

impl FileDevice {
    /// Which file or device this is, whatever its path: equal for the same one opened twice.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The path it was opened by, made absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether transfers bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.memory_alignment_bytes > 1
    }

    /// How operations reach the kernel.
    #[must_use]
    pub fn route(&self) -> Route {
        self.route
    }

    /// The unit that the medium writes at once, in bytes (at least `sector_bytes`).
    #[must_use]
    pub fn physical_sector_bytes(&self) -> u32 {
        self.physical_sector_bytes
    }

    /// Data and holes in `offset_bytes..offset_bytes + length_bytes`, in ascending order and without gaps.
    ///
    /// At most `count_max` extents, so the answer may end early; a device without holes is one extent of data.
    /// # Errors
    /// `OutOfRange`, `Gone` when the file was cut off, or what the file system answers.
    pub fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        count_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        check_range(&self.info, offset_bytes, length_bytes)?;
        let end = offset_bytes + length_bytes;
        let mut extents = Vec::new();
        let mut start = offset_bytes;
        while start < end && extents.len() < count_max {
            let data = self.seek(SeekFrom::Data(start))?.unwrap_or(end).min(end);
            let (stop, is_hole) = if data > start {
                (data, true)
            } else {
                let hole = self.seek(SeekFrom::Hole(start))?.unwrap_or(end);
                (hole.min(end).max(start + 1), false)
            };
            extents.push(Extent {
                offset_bytes: start,
                length_bytes: stop - start,
                is_hole,
            });
            start = stop;
        }
        self.check_whole()?; // behind the end of a file that was cut off everything looks like a hole
        Ok(extents)
    }

    /// Whether the whole range is a hole, and so reads as zeroes (W5's proof that a new file needs no resync).
    ///
    /// # Errors
    /// As `extents`.
    pub fn is_hole(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, IoError> {
        let extents = self.extents(offset_bytes, length_bytes, 1)?;
        Ok(extents
            .first()
            .is_none_or(|first| first.is_hole && first.length_bytes == length_bytes))
    }

    /// `None`: no such place up to the end of the file.
    fn seek(&self, place: SeekFrom) -> Result<Option<u64>, IoError> {
        match (self.identity, rustix::fs::seek(&self.fd, place)) {
            // A block device knows no holes, and its seek knows no such question.
            (Identity::Device { .. }, _) => Ok(match place {
                SeekFrom::Data(start) => Some(start),
                _ => None,
            }),
            (_, Ok(found)) => Ok(Some(found)),
            (_, Err(Errno::NXIO)) => Ok(None),
            (_, Err(error)) => Err(classify(error)),
        }
    }

    /// Whether the file still has its name and its length. One system call; a block device has neither to lose.
    ///
    /// A file cut off and made as long again between two looks, by somebody else or by a write to its very end, is not
    /// seen: nothing in the file tells.
    fn check_whole(&self) -> Result<(), IoError> {
        if self.is_lost.get() {
            return Err(IoError::Gone);
        }
        if matches!(self.identity, Identity::Device { .. }) {
            return Ok(());
        }
        let stat = rustix::fs::fstat(&self.fd).map_err(|_| IoError::Gone)?;
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        if stat.st_nlink == 0 || size_bytes < self.info.size_bytes {
            return Err(self.lost());
        }
        Ok(())
    }

    /// After a write that began with a look at the name: whether the file still has its length; what was written may be
    /// what made it longer. Where a file ends is asked at a third of what its state costs, after which the next write
    /// takes an exact time besides.
    fn check_after(&self) -> Result<(), IoError> {
        if self.is_lost.get() {
            return Err(IoError::Gone);
        }
        if matches!(self.identity, Identity::Device { .. }) {
            return Ok(());
        }
        self.check_length()
    }

    /// Whether the file or device still has its length.
    fn check_length(&self) -> Result<(), IoError> {
        match rustix::fs::seek(&self.fd, SeekFrom::End(0)) {
            Ok(end) if end >= self.info.size_bytes => Ok(()),
            Ok(_) => Err(self.lost()),
            Err(_) => Err(IoError::Gone),
        }
    }

    /// From now on the member is gone, whatever becomes of the file.
    fn lost(&self) -> IoError {
        self.is_lost.set(true);
        IoError::Gone
    }

    async fn run(&self, kind: Kind, length_bytes: usize) -> (Op, Outcome) {
        let mut op = Op {
            fd: Arc::clone(&self.fd),
            kind,
        };
        match self.route {
            Route::Queued => self.core.start(op).await,
            Route::Inline if matches!(op.kind, Kind::Write { is_aside: true, .. }) => {
                self.core.start(op).await
            }
            Route::Inline => {
                self.core.charge(length_bytes).await;
                self.core.note_copied(length_bytes);
                let outcome = op.perform();
                (op, outcome)
            }
        }
    }

    /// All that was written, to stable storage; never repeated (W13).
    async fn sync(&self) -> Result<(), IoError> {
        let is_whole = self.fua_way != FuaWay::InWrite;
        let (_, outcome) = self.run(Kind::Sync { is_whole }, 0).await;
        outcome.map(|_| ()).map_err(|error| self.classified(error))
    }

    /// Whether a write to memory of this length is left to another thread.
    fn is_for_others(&self, length_bytes: usize) -> bool {
        length_bytes >= ASIDE_BYTES
            || (length_bytes >= ASIDE_RESTLESS_BYTES && self.core.is_restless())
    }

    /// With threads below: what the page cache can give at once needs no other thread.
    fn read_cached(&self, offset_bytes: u64, buf: &mut BufMut) -> usize {
        let is_worth_it = self.route == Route::Queued
            && !self.is_direct()
            && matches!(self.core.reactor, Reactor::Threads(_));
        if !is_worth_it {
            return 0;
        }
        let mut slices = [std::io::IoSliceMut::new(buf)];
        rustix::io::preadv2(&self.fd, &mut slices, offset_bytes, ReadWriteFlags::NOWAIT)
            .unwrap_or(0)
    }

    /// Waits for the outcome of one call; `None` asks for a repetition.
    fn progress(&self, outcome: Outcome, tries: &mut u32) -> Result<Option<usize>, IoError> {
        match outcome {
            Ok(moved) => Ok(Some(moved as usize)),
            Err(Errno::INTR | Errno::AGAIN | Errno::NOMEM) if *tries < RETRIES_MAX => {
                *tries += 1;
                Ok(None)
            }
            Err(error) => Err(self.classified(error)),
        }
    }

    /// What the engine can do about an error of this file. Of a disk that is being pulled the kernel takes the length
    /// first; what is asked of it then fails as a bad sector does, or as a write beyond its end.
    fn classified(&self, error: Errno) -> IoError {
        let is_device = matches!(self.identity, Identity::Device { .. });
        match classify(error) {
            IoError::Medium | IoError::NoSpace if is_device && self.check_length().is_err() => {
                IoError::Gone
            }
            other => other,
        }
    }

    /// `data` itself, or a copy at an aligned address.
    fn aligned(&self, data: Buf) -> Buf {
        if (data.as_ptr() as usize).is_multiple_of(self.memory_alignment_bytes) {
            return data;
        }
        self.bounce.copy_of(&data).freeze()
    }

    fn is_sector_multiple(&self, length_bytes: usize) -> bool {
        length_bytes.is_multiple_of(self.info.sector_bytes as usize)
    }
}

impl Device for FileDevice {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        check_range(&self.info, offset_bytes, buf.len() as u64)?;
        if self.is_lost.get() {
            return Err(IoError::Gone);
        }
        let length = buf.len();
        let mut done = self.read_cached(offset_bytes, &mut buf);
        let mut tries = 0;
        while done < length {
            let kind = Kind::Read {
                offset_bytes: offset_bytes + done as u64,
                buf,
                start: done,
            };
            let (op, outcome) = self.run(kind, length - done).await;
            let Kind::Read { buf: back, .. } = op.kind else {
                unreachable!("an operation comes back as it went")
            };
            buf = back;
            match self.progress(outcome, &mut tries)? {
                // The file has become shorter than it was when it was opened.
                Some(0) => return Err(self.lost()),
                // So has this one, and in the middle of a sector; direct I/O could not go on from there.
                Some(moved) if self.is_direct() && !self.is_sector_multiple(moved) => {
                    return Err(self.lost());
                }
                Some(moved) => done += moved,
                None => {}
            }
        }
        Ok(buf)
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        if self.is_read_only {
            return Err(IoError::ReadOnly);
        }
        check_range(&self.info, offset_bytes, data.len() as u64)?;
        self.check_whole()?;
        if self.core.is_rehearsal.get() {
            return Ok(());
        }
        let data = self.aligned(data);
        let (mut done, mut tries) = (0, 0);
        while done < data.len() {
            let kind = Kind::Write {
                offset_bytes: offset_bytes + done as u64,
                data: data.slice(done..data.len()),
                is_durable: fua == Fua::Yes && self.fua_way == FuaWay::InWrite,
                is_aside: self.route == Route::Inline && self.is_for_others(data.len()),
            };
            let (_, outcome) = self.run(kind, data.len() - done).await;
            match self.progress(outcome, &mut tries)? {
                Some(0) => return Err(IoError::Medium), // no progress and no reason given
                Some(moved) if self.is_direct() && !self.is_sector_multiple(moved) => {
                    return Err(IoError::Medium);
                }
                Some(moved) => done += moved,
                None => {}
            }
        }
        if fua == Fua::Yes && self.fua_way != FuaWay::InWrite {
            self.sync().await?;
        }
        self.check_after()
    }

    async fn flush(&self) -> Result<(), IoError> {
        if self.is_read_only {
            return Ok(()); // nothing was written
        }
        self.sync().await?;
        self.check_whole()
    }

    fn fua_way(&self) -> FuaWay {
        self.fua_way
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
    ) -> Result<(), IoError> {
        if self.is_read_only {
            return Err(IoError::ReadOnly);
        }
        check_range(&self.info, offset_bytes, length_bytes)?;
        self.check_whole()?;
        if length_bytes == 0 || self.core.is_rehearsal.get() {
            return Ok(());
        }
        let mode = match mode {
            ZeroMode::Unmap if !self.info.has_zeroing_trim => return Err(IoError::Unsupported),
            ZeroMode::Unmap => FallocateFlags::PUNCH_HOLE,
            ZeroMode::Allocate => FallocateFlags::ZERO_RANGE,
        };
        let kind = || Kind::Allocate {
            mode: mode | FallocateFlags::KEEP_SIZE,
            offset_bytes,
            length_bytes,
        };
        let mut tries = 0;
        loop {
            let (_, outcome) = self.run(kind(), 0).await;
            if self.progress(outcome, &mut tries)?.is_some() {
                return Ok(());
            }
        }
    }

    async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<MemberExtent>, IoError> {
        let found = FileDevice::extents(self, offset_bytes, length_bytes, extents_max)?;
        let member_extent = |extent: Extent| MemberExtent {
            length_bytes: extent.length_bytes,
            is_hole: extent.is_hole,
            is_zero: extent.is_hole,
        };
        Ok(found.into_iter().map(member_extent).collect())
    }

    fn is_in_memory(&self) -> bool {
        self.route == Route::Inline
    }

    fn handle(&self) -> Option<u64> {
        let fd = std::os::fd::AsFd::as_fd(&*self.fd);
        let number = u64::try_from(fd.as_raw_fd()).ok();
        number.filter(|_| !self.is_read_only)
    }

    fn busy(&self) -> usize {
        Arc::strong_count(&self.fd) - 1 // every operation under way keeps the file open
    }

    async fn check(&self) -> Result<(), IoError> {
        self.check_whole()?;
        if matches!(self.identity, Identity::Device { .. }) {
            return self.check_length();
        }
        // A renamed file is still found by its new name at the next start; another file in its place hides it.
        match rustix::fs::stat(&self.path) {
            Ok(found) if Identity::of(&found) != self.identity => Err(IoError::Gone),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileDevice({})", self.path.display())
    }
}

/// What the engine can do about an error of the kernel.
///
/// Source: the block layer's table of status codes (`ENODATA`: medium error, `EREMOTEIO`: target error, `EILSEQ`:
/// protection error, `ENOLINK`: transport, `ETIMEDOUT`, `ETIME`: command time limits), and the manual pages of
/// pread, pwrite, fallocate and fdatasync.
pub(crate) fn classify(error: Errno) -> IoError {
    match error {
        Errno::INTR | Errno::AGAIN | Errno::NOMEM | Errno::BUSY => IoError::Retryable,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => IoError::NoSpace,
        Errno::NODEV | Errno::NXIO | Errno::STALE | Errno::NOLINK | Errno::BADF => IoError::Gone,
        Errno::SHUTDOWN | Errno::NOMEDIUM => IoError::Gone,
        Errno::ROFS | Errno::PERM | Errno::ACCESS => IoError::ReadOnly,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => IoError::Unsupported,
        // EIO, ENODATA, EREMOTEIO, EILSEQ, ETIMEDOUT, and whatever is not known: this range did not work.
        _ => IoError::Medium,
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use plexum_block::clock::Clock;

    use super::*;
    use crate::kernel::tests::pages_in_danger;
    use crate::{IoChoice, Runtime};

    #[test]
    fn errors_of_the_kernel_become_what_the_engine_can_act_on() {
        for (raw, expected) in [
            (libc::EINTR, IoError::Retryable),
            (libc::EAGAIN, IoError::Retryable),
            (libc::EIO, IoError::Medium),
            (libc::ENODATA, IoError::Medium),
            (libc::EREMOTEIO, IoError::Medium),
            (libc::EILSEQ, IoError::Medium),
            (libc::ETIMEDOUT, IoError::Medium),
            (libc::ENOSPC, IoError::NoSpace),
            (libc::EDQUOT, IoError::NoSpace),
            (libc::EFBIG, IoError::NoSpace),
            (libc::ENODEV, IoError::Gone),
            (libc::ENXIO, IoError::Gone),
            (libc::ENOLINK, IoError::Gone),
            (libc::ESTALE, IoError::Gone),
            (libc::EROFS, IoError::ReadOnly),
            (libc::EOPNOTSUPP, IoError::Unsupported),
        ] {
            let error = Errno::from_raw_os_error(raw);
            assert_eq!(classify(error), expected, "{error}");
        }
    }

    /// Whether this thread itself makes the copy of a write of `length_bytes`: it is over at the first look then.
    async fn is_copied_here(device: &FileDevice, length_bytes: usize) -> bool {
        let data = BufPool::new(0).take_zeroed(length_bytes).freeze();
        let mut write = std::pin::pin!(device.write(0, data, Fua::No));
        let first = std::future::poll_fn(|context| {
            std::task::Poll::Ready(write.as_mut().poll(context).is_ready())
        })
        .await;
        if !first {
            write.await.expect("a write");
        }
        first
    }

    /// Rests before a test gives up.
    const RESTS_MAX: usize = 1000;

    #[test]
    fn a_thread_that_has_copied_much_without_a_rest_leaves_large_copies_to_others() {
        for choice in [IoChoice::Auto, IoChoice::Threads] {
            let mut runtime = Runtime::new(choice).expect("a runtime");
            let handle = runtime.handle();
            runtime.block_on(async move {
                let file = tempfile::NamedTempFile::new().expect("a file");
                file.as_file().set_len(1 << 20).expect("its length");
                let options = OpenOptions {
                    direct_io: DirectIo::Off,
                    route: Some(Route::Inline),
                    ..OpenOptions::read_write()
                };
                let device = FileDevice::open(&handle, file.path(), &options).expect("a member");
                for _ in 0..crate::RESTLESS_BYTES / ASIDE_RESTLESS_BYTES {
                    assert!(is_copied_here(&device, ASIDE_RESTLESS_BYTES).await);
                }
                assert!(!is_copied_here(&device, ASIDE_RESTLESS_BYTES).await);
                assert!(is_copied_here(&device, ASIDE_RESTLESS_BYTES - 512).await);
                for _ in 0..RESTS_MAX {
                    let clock = handle.clock();
                    clock.sleep(std::time::Duration::from_millis(1)).await;
                    if !handle.core.is_restless() {
                        break; // not at once where the other tests leave this thread no processor for that long
                    }
                }
                let is_here = is_copied_here(&device, ASIDE_RESTLESS_BYTES).await;
                assert!(is_here, "{choice:?}: it has rested");
            });
        }
    }

    #[test]
    fn a_durable_write_leaves_no_dirty_page_and_a_flush_leaves_none_either() {
        for choice in [IoChoice::Auto, IoChoice::Threads] {
            let mut runtime = Runtime::new(choice).expect("a runtime");
            let handle = runtime.handle();
            runtime.block_on(async move {
                let folder = tempfile::tempdir_in(
                    std::env::current_exe()
                        .expect("a path")
                        .parent()
                        .expect("a folder"),
                )
                .expect("a folder");
                let path = folder.path().join("member");
                std::fs::write(&path, vec![1; 1 << 20]).expect("a file");
                let options = OpenOptions {
                    direct_io: DirectIo::Off,
                    ..OpenOptions::read_write()
                };
                let device = FileDevice::open(&handle, &path, &options).expect("a member");
                rustix::fs::fsync(&*device.fd).expect("a flush");
                let Some(0) = pages_in_danger(&*device.fd) else {
                    eprintln!("no cachestat, or a file system without a page cache");
                    return;
                };
                let data = BufPool::new(0).take_zeroed(8192).freeze();
                device
                    .write(4096, data.clone(), Fua::Yes)
                    .await
                    .expect("a write");
                assert_eq!(pages_in_danger(&*device.fd), Some(0));
                device.write(65536, data, Fua::No).await.expect("a write");
                device.flush().await.expect("a flush");
                assert_eq!(pages_in_danger(&*device.fd), Some(0));
            });
        }
    }
}
