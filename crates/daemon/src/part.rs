//! A partition of a file or device as a member: the same bytes, counted from where it begins.
//!
//! Invariants: no transfer leaves the partition; only its own bytes are locked, so that the others can be members too.

use std::path::Path;

use plexum_block::buf::{Buf, BufMut};
use plexum_block::device::{
    Device, DeviceInfo, Extent, Fua, FuaWay, IoError, ZeroMode, check_range,
};
use plexum_runtime::Handle;
use plexum_runtime::file::{DirectIo, FileDevice, OpenError, OpenOptions, Part};

/// An open partition.
pub struct PartDevice {
    file: FileDevice,
    start_bytes: u64,
    info: DeviceInfo,
}

impl PartDevice {
    /// Opens and locks it.
    ///
    /// # Errors
    /// Of opening the file.
    pub fn open(
        handle: &Handle,
        path: &Path,
        part: Part,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let options = OpenOptions {
            part: Some(part),
            ..*options
        };
        let mut file = FileDevice::open(handle, path, &options)?;
        let fits = |file: &FileDevice| {
            part.start_bytes
                .is_multiple_of(u64::from(file.info().sector_bytes))
        };
        if !fits(&file) {
            // It begins inside of a block that the file system moves as a whole: the page cache takes it apart.
            drop(file);
            let options = OpenOptions {
                direct_io: DirectIo::Off,
                ..options
            };
            file = FileDevice::open(handle, path, &options)?;
        }
        let info = file.info();
        let end = info.size_bytes.saturating_sub(part.start_bytes);
        let length = part.length_bytes.min(end);
        Ok(Self {
            start_bytes: part.start_bytes,
            info: DeviceInfo {
                size_bytes: length - length % u64::from(info.sector_bytes),
                ..info
            },
            file,
        })
    }

    /// Where a range of the partition is in the file.
    fn at(&self, offset_bytes: u64, length_bytes: u64) -> Result<u64, IoError> {
        check_range(&self.info, offset_bytes, length_bytes)?;
        Ok(self.start_bytes + offset_bytes) // inside of the file, so it fits
    }
}

impl Device for PartDevice {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        let at = self.at(offset_bytes, buf.len() as u64)?;
        self.file.read(at, buf).await
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let at = self.at(offset_bytes, data.len() as u64)?;
        self.file.write(at, data, fua).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.file.flush().await
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
    ) -> Result<(), IoError> {
        let at = self.at(offset_bytes, length_bytes)?;
        self.file.zero(at, length_bytes, mode).await
    }

    async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        let at = self.at(offset_bytes, length_bytes)?;
        Device::extents(&self.file, at, length_bytes, extents_max).await
    }

    fn fua_way(&self) -> FuaWay {
        self.file.fua_way()
    }

    fn is_in_memory(&self) -> bool {
        self.file.is_in_memory()
    }

    fn busy(&self) -> usize {
        self.file.busy()
    }

    async fn check(&self) -> Result<(), IoError> {
        self.file.check().await
    }
}
