//! A queue of a device: commands go into the ring of the thread that serves, data are copied by it.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use plexum_block::buf::BufMut;
use plexum_ublk::queue::QueueEnd;
use plexum_ublk::wire::{
    Descriptor, DeviceInfo, Io, IoArgument, RequestId, data_at, descriptors_at,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::control::UblkError;
use crate::lock::OpenFile;
use crate::op::{Kind, Op};
use crate::{Core, Handle, IoKind};

/// The only queue of a device.
pub struct DeviceQueue {
    core: Rc<Core>,
    file: Arc<OpenFile>,
    descriptors: Descriptors,
    device: u32,
    depth: u16,
}

const QUEUE: u16 = 0;

fn id_of(tag: u16) -> RequestId {
    RequestId { queue: QUEUE, tag }
}

impl DeviceQueue {
    /// Opens the device's file for this process, which is then its server.
    ///
    /// # Errors
    /// `BUSY` as long as another server has it open; `NoRing` when the thread has no ring.
    pub fn open(handle: &Handle, info: &DeviceInfo) -> Result<Self, UblkError> {
        if handle.status().kind != IoKind::Uring {
            let reason = handle.status().fallback_reason.clone();
            let reason = reason.unwrap_or_else(|| "--io=threads was asked for".to_owned());
            return Err(UblkError::NoRing(std::io::Error::other(reason)));
        }
        let path = format!("/dev/ublkc{}", info.device);
        let failed = |errno| UblkError::Device {
            path: path.clone(),
            errno,
        };
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::empty()).map_err(failed)?;
        let descriptors = Descriptors::map(&file, info.depth).map_err(failed)?;
        handle.core.has_devices.set(true);
        Ok(Self {
            core: Rc::clone(&handle.core),
            file: Arc::new(file.into()),
            descriptors,
            device: info.device,
            depth: info.depth,
        })
    }

    /// Number of the device.
    #[must_use]
    pub fn device(&self) -> u32 {
        self.device
    }

    /// As `Queue::depth`.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// As `Queue::fetch`.
    ///
    /// # Errors
    /// As there.
    pub async fn fetch(&self, tag: u16) -> Result<(), QueueEnd> {
        self.command(Io::Fetch, tag, 0).await
    }

    /// As `Queue::commit_and_fetch`.
    ///
    /// # Errors
    /// As there.
    pub async fn commit_and_fetch(&self, tag: u16, result: i32) -> Result<(), QueueEnd> {
        self.command(Io::CommitAndFetch, tag, result).await
    }

    async fn command(&self, command: Io, tag: u16, result: i32) -> Result<(), QueueEnd> {
        let argument = IoArgument {
            id: id_of(tag),
            result,
        };
        let op = Op {
            fd: Arc::clone(&self.file),
            kind: Kind::Command {
                code: command.code(),
                argument: argument.encode(),
            },
        };
        match self.core.start(op).await.1 {
            Ok(_) => Ok(()),
            Err(Errno::NODEV) => Err(QueueEnd::Gone),
            Err(errno) => Err(QueueEnd::Refused(errno.raw_os_error())),
        }
    }

    /// As `Queue::descriptor`.
    #[must_use]
    pub fn descriptor(&self, tag: u16) -> Descriptor {
        self.descriptors.get(tag)
    }

    /// As `Queue::take_data`.
    ///
    /// # Errors
    /// As there.
    pub async fn take_data(&self, tag: u16, target: &mut BufMut) -> Result<(), i32> {
        self.core.charge(target.len()).await;
        let mut at = 0;
        while at < target.len() {
            let from = data_at(id_of(tag), at as u32); // a request has at most 2^25 bytes
            match rustix::io::pread(&self.file, &mut target[at..], from) {
                Ok(0) => return Err(Errno::IO.raw_os_error()),
                Ok(count) => at += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.raw_os_error()),
            }
        }
        Ok(())
    }

    /// As `Queue::give_data`.
    ///
    /// # Errors
    /// As there.
    pub async fn give_data(&self, tag: u16, start: u32, data: &[u8]) -> Result<(), i32> {
        self.core.charge(data.len()).await;
        let mut at = 0;
        while at < data.len() {
            let to = data_at(id_of(tag), start + at as u32); // as above
            match rustix::io::pwrite(&self.file, &data[at..], to) {
                Ok(0) => return Err(Errno::IO.raw_os_error()),
                Ok(count) => at += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.raw_os_error()),
            }
        }
        Ok(())
    }
}

/// The descriptors of a queue, in memory that the driver writes.
struct Descriptors {
    memory: *const u8,
    length_bytes: usize,
    depth: u16,
}

impl Descriptors {
    fn map(file: &impl AsFd, depth: u16) -> Result<Self, Errno> {
        let page_bytes = rustix::param::page_size();
        let length_bytes = (usize::from(depth) * Descriptor::BYTES).next_multiple_of(page_bytes);
        // SAFETY: the kernel chooses the address, so nothing of this process is replaced.
        let memory = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length_bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                descriptors_at(QUEUE, page_bytes as u64),
            )
        }?;
        Ok(Self {
            memory: memory.cast_const().cast(),
            length_bytes,
            depth,
        })
    }

    /// The descriptor of `tag`, which the driver has written before it completed the command of that tag.
    fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "tags are below the depth");
        let mut bytes = [0; Descriptor::BYTES];
        let words = self.memory.cast::<u64>();
        for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
            let at = usize::from(tag) * (Descriptor::BYTES / 8) + index;
            // SAFETY: the word lies in the mapping, which begins at a page and lives as long as `self`. The driver
            // writes a descriptor only while its tag is with it; a volatile read is sound even if it did not keep to
            // that.
            let value = unsafe { words.add(at).read_volatile() };
            word.copy_from_slice(&value.to_ne_bytes());
        }
        Descriptor::decode(&bytes)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping made in `map`, and nobody refers to it any more.
        let unmapped =
            unsafe { rustix::mm::munmap(self.memory.cast_mut().cast(), self.length_bytes) };
        let _ = unmapped; // it cannot fail for a whole mapping; if it did, the memory would stay
    }
}
