//! The FUSE file system: a folder with one file, the volume.
//!
//! Traps that the answers below avoid: ENOSYS to an fsync or a fallocate would make the kernel never ask again and
//! call it done; a cached page would be lost with this process; a truncation, as `cp` does it, must not change a
//! device's size.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenAccMode,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Session, SessionACL, TimeOrNow, WriteFlags,
};
use plexum_block::buf::BufPool;
use plexum_block::device::IoError;

use crate::request::{Answer, Operation, VolumeRequest};

/// The file; the folder is `INodeNo::ROOT`.
const FILE: INodeNo = INodeNo(2);

/// How long the kernel may believe names and attributes: they never change.
const VALID: Duration = Duration::from_secs(3600);

/// Threads that take requests from the kernel. They do no I/O, so few are enough.
const THREADS: usize = 2;

/// Largest data of one request. The kernel cuts longer ones; its own limit is 1 MiB on most systems.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Direct requests that the kernel has in flight at once; bounds the memory as well.
const IN_FLIGHT_MAX: u16 = 64;

/// Bytes of unused buffers that are kept.
const POOL_KEEP_BYTES: usize = 16 << 20;

/// Bits of a fallocate mode, of the system's ABI.
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// The file to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its name: without `/`, neither empty nor `.` nor `..`.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Unit of writes in bytes.
    pub block_bytes: u32,
    /// Whether it can be written to.
    pub is_read_only: bool,
}

/// A mounted file system. It ends when somebody unmounts it; dropping this unmounts it too.
pub struct Mounted {
    _session: BackgroundSession,
}

/// Mounts the file system on the empty folder `folder`. `send` is called on threads of the session with every request;
/// it must not wait. It is dropped when the file system is unmounted.
///
/// # Errors
/// No `/dev/fuse`, not allowed, or (for others than root) no `fusermount3`.
pub fn mount(
    folder: &Path,
    info: FileInfo,
    send: impl Fn(VolumeRequest) + Send + Sync + 'static,
) -> io::Result<Mounted> {
    let mut options = vec![
        MountOption::FSName("plexum".to_owned()),
        MountOption::Subtype("plexum".to_owned()),
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoExec,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    if info.is_read_only {
        options.push(MountOption::RO);
    }
    let mut config = Config::default();
    config.mount_options = options;
    config.acl = SessionACL::Owner;
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let file = OneFile {
        user_id: rustix::process::geteuid().as_raw(),
        group_id: rustix::process::getegid().as_raw(),
        info,
        pool: BufPool::new(POOL_KEEP_BYTES),
        send: Box::new(send),
    };
    let session = Session::new(file, folder, &config)?.spawn()?;
    Ok(Mounted { _session: session })
}

/// The file system.
struct OneFile {
    info: FileInfo,
    user_id: u32,
    group_id: u32,
    pool: BufPool,
    send: Box<dyn Fn(VolumeRequest) + Send + Sync>,
}

/// What a failed request tells the kernel. Never ENOSYS, see above.
fn errno(error: IoError) -> Errno {
    match error {
        IoError::NoSpace => Errno::ENOSPC,
        IoError::ReadOnly => Errno::EROFS,
        IoError::OutOfRange => Errno::EINVAL,
        IoError::Unsupported => Errno::EOPNOTSUPP,
        _ => Errno::EIO,
    }
}

fn finish(reply: ReplyEmpty, answer: Answer) {
    match answer {
        Ok(_) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

impl OneFile {
    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match (ino, self.info.is_read_only) {
            (INodeNo::ROOT, _) => (FileType::Directory, 0o500, 0),
            (FILE, false) => (FileType::RegularFile, 0o600, self.info.size_bytes),
            (FILE, true) => (FileType::RegularFile, 0o400, self.info.size_bytes),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: self.user_id,
            gid: self.group_id,
            rdev: 0,
            blksize: self.info.block_bytes.max(4096),
            flags: 0,
        })
    }

    fn give_attr(&self, ino: INodeNo, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&VALID, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// How many of `length_bytes` at `offset_bytes` lie inside the volume.
    fn inside(&self, offset_bytes: u64, length_bytes: u64) -> u64 {
        length_bytes.min(self.info.size_bytes.saturating_sub(offset_bytes))
    }

    fn send(&self, operation: Operation, reply: impl FnOnce(Answer) + Send + 'static) {
        (self.send)(VolumeRequest::new(operation, reply));
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // What a kernel does not offer makes it slower, not wrong.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(TRANSFER_BYTES_MAX);
        let _ = config.set_max_background(IN_FLIGHT_MAX);
        Ok(())
    }

    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(FILE) {
            Some(attr) if parent == INodeNo::ROOT && name == OsStr::new(&self.info.name) => {
                reply.entry(&VALID, &attr, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.give_attr(ino, reply);
    }

    fn setattr(
        &self,
        _: &fuser::Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        self.give_attr(ino, reply); // the size stays, as that of a block device
    }

    fn open(&self, _: &fuser::Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        if self.info.is_read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let how = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), how);
    }

    fn read(
        &self,
        _: &fuser::Request,
        _ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = self.inside(offset, u64::from(size));
        let length_bytes = u32::try_from(length).expect("not above a size of 32 bits");
        if length_bytes == 0 {
            return reply.data(&[]);
        }
        let operation = Operation::Read {
            offset_bytes: offset,
            length_bytes,
        };
        self.send(operation, move |answer| match answer {
            Ok(rope) => match rope.pieces.as_slice() {
                [piece] => reply.data(piece),
                _ => reply.data(&rope.to_vec()),
            },
            Err(error) => reply.error(errno(error)),
        });
    }

    fn write(
        &self,
        _: &fuser::Request,
        _ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.info.is_read_only {
            return reply.error(Errno::EROFS);
        }
        let length = self.inside(offset, data.len() as u64);
        let length = usize::try_from(length).expect("not above a length in memory");
        if length == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC); // as at the end of a block device
        }
        let written = u32::try_from(length).expect("the kernel's lengths have 32 bits");
        let operation = Operation::Write {
            offset_bytes: offset,
            data: self.pool.copy_of(&data[..length]).freeze(),
        };
        self.send(operation, move |answer| match answer {
            Ok(_) => reply.written(written),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn flush(
        &self,
        _: &fuser::Request,
        _ino: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok(); // a file is closed: nothing is cached, and durability was not asked for
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.send(Operation::Flush, move |answer| finish(reply, answer));
    }

    fn fallocate(
        &self,
        _: &fuser::Request,
        _ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if self.info.is_read_only {
            return reply.error(Errno::EROFS);
        }
        let is_zeroing = mode & !KEEP_SIZE == PUNCH_HOLE || mode & !KEEP_SIZE == ZERO_RANGE;
        if !is_zeroing {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let length_bytes = self.inside(offset, length);
        if length_bytes == 0 {
            return reply.ok();
        }
        let operation = Operation::Zero {
            offset_bytes: offset,
            length_bytes,
        };
        self.send(operation, move |answer| finish(reply, answer));
    }

    fn readdir(
        &self,
        _: &fuser::Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, self.info.name.as_str()),
        ];
        for ((ino, kind, name), next) in entries.into_iter().zip(1_u64..) {
            if next > offset && reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_makes_the_kernel_give_up_asking() {
        for error in [
            IoError::Retryable,
            IoError::Medium,
            IoError::Gone,
            IoError::NoSpace,
            IoError::OutOfRange,
            IoError::ReadOnly,
            IoError::Unsupported,
            IoError::Failed,
        ] {
            assert_ne!(errno(error).code(), Errno::ENOSYS.code());
        }
        assert_eq!(errno(IoError::Gone).code(), Errno::EIO.code());
    }
}
