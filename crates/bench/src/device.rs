//! Members that cost nothing, or only a copy.

use std::cell::RefCell;

use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError, ZeroMode, check_range};
use plexum_runtime::file::FileDevice;

/// A member of a bench volume.
pub(crate) enum BenchDevice {
    /// Keeps its first bytes (metadata); data go nowhere and read as whatever the buffer holds.
    Null {
        head: RefCell<Vec<u8>>,
        size_bytes: u64,
    },
    /// Keeps everything in memory, page-aligned: a copy whose target lies 16 bytes behind its source, modulo a page, as
    /// it would in a `Vec`, takes four times as long.
    Memory(RefCell<BufMut>),
    /// A sparse file.
    File(FileDevice),
}

/// Marks the handle of a member that is nothing: with its size, as no file has such a number.
const NULL_HANDLE: u64 = 1 << 63;

impl BenchDevice {
    /// Size of the member that is nothing whose handle this is.
    pub fn null_size_bytes(handle: u64) -> Option<u64> {
        (handle & NULL_HANDLE > 0).then_some(handle & !NULL_HANDLE)
    }

    pub fn null(head_bytes: usize, size_bytes: u64) -> Self {
        BenchDevice::Null {
            head: RefCell::new(vec![0; head_bytes]),
            size_bytes,
        }
    }

    pub fn memory(size_bytes: usize) -> Self {
        let mut memory = BufPool::new(0).take(size_bytes);
        memory.fill(1); // memory that was never touched would be measured as page faults
        memory.fill(0);
        BenchDevice::Memory(RefCell::new(memory))
    }

    /// Reads of what is no file.
    fn fill(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), IoError> {
        let range = place(offset_bytes)..place(offset_bytes) + buf.len();
        match self {
            BenchDevice::File(_) => return Err(IoError::Unsupported),
            BenchDevice::Null { head, .. } => {
                if let Some(bytes) = head.borrow().get(range) {
                    buf.copy_from_slice(bytes);
                }
            }
            BenchDevice::Memory(bytes) => {
                check_range(&self.info(), offset_bytes, buf.len() as u64)?;
                buf.copy_from_slice(&bytes.borrow()[range]);
            }
        }
        Ok(())
    }

    /// Writes to what is no file.
    fn keep(&self, offset_bytes: u64, data: &[u8]) -> Result<(), IoError> {
        let range = place(offset_bytes)..place(offset_bytes) + data.len();
        match self {
            BenchDevice::File(_) => return Err(IoError::Unsupported),
            BenchDevice::Null { head, .. } => {
                if let Some(bytes) = head.borrow_mut().get_mut(range) {
                    bytes.copy_from_slice(data);
                }
            }
            BenchDevice::Memory(bytes) => {
                check_range(&self.info(), offset_bytes, data.len() as u64)?;
                bytes.borrow_mut()[range].copy_from_slice(data);
            }
        }
        Ok(())
    }
}

fn place(offset_bytes: u64) -> usize {
    usize::try_from(offset_bytes).expect("bench members fit memory")
}

impl Device for BenchDevice {
    fn info(&self) -> DeviceInfo {
        let size_bytes = match self {
            BenchDevice::Null { size_bytes, .. } => *size_bytes,
            BenchDevice::Memory(bytes) => bytes.borrow().len() as u64,
            BenchDevice::File(file) => return file.info(),
        };
        DeviceInfo::plain(size_bytes)
    }

    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        if let BenchDevice::File(file) = self {
            return file.read(offset_bytes, buf).await;
        }
        self.fill(offset_bytes, &mut buf)?;
        Ok(buf)
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        match self {
            BenchDevice::File(file) => file.write(offset_bytes, data, fua).await,
            BenchDevice::Null { .. } | BenchDevice::Memory(_) => self.keep(offset_bytes, &data),
        }
    }

    fn handle(&self) -> Option<u64> {
        match self {
            BenchDevice::File(file) => file.handle(),
            BenchDevice::Null { size_bytes, .. } => Some(NULL_HANDLE | *size_bytes),
            BenchDevice::Memory(_) => None,
        }
    }

    async fn flush(&self) -> Result<(), IoError> {
        match self {
            BenchDevice::File(file) => file.flush().await,
            _ => Ok(()),
        }
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
    ) -> Result<(), IoError> {
        match self {
            BenchDevice::File(file) => file.zero(offset_bytes, length_bytes, mode).await,
            _ => Err(IoError::Unsupported),
        }
    }
}
