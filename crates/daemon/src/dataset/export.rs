//! A volume of a pool, or a snapshot of one, as the clients of any server see it.
//!
//! Invariant: a block that cannot be read is an I/O error to the client, never wrong data.

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::device::{Fua, IoError};
use plexum_front::export::{Export, ExportInfo, Extent, ZeroRequest};
use plexum_pool::LiveVolume;
use plexum_runtime::clock::RealClock;
use plexum_zfs::Volume;

use crate::open::AnyDevice;

/// What is served.
pub(crate) enum Content {
    Read(Volume<AnyDevice>),
    Write(Box<LiveVolume<AnyDevice, RealClock>>),
}

/// A volume of a pool as the clients of any server see it.
pub(crate) struct DatasetExport {
    pub(super) content: Content,
    pub(super) info: ExportInfo,
    pub(super) buffers: BufPool,
}

impl DatasetExport {
    fn writable(&self) -> Result<&LiveVolume<AnyDevice, RealClock>, IoError> {
        match &self.content {
            Content::Write(volume) if !self.info.is_read_only => Ok(volume),
            Content::Read(_) | Content::Write(_) => Err(IoError::ReadOnly),
        }
    }

    /// Its size now: one that is written may become larger.
    pub(super) fn size_bytes(&self) -> u64 {
        match &self.content {
            Content::Read(volume) => volume.size_bytes(),
            Content::Write(volume) => volume.volume().size_bytes,
        }
    }

    async fn finish(&self, fua: Fua) -> Result<(), IoError> {
        match fua {
            Fua::Yes => self.flush().await,
            Fua::No => Ok(()),
        }
    }
}

impl Export for DatasetExport {
    fn info(&self) -> ExportInfo {
        ExportInfo {
            size_bytes: self.size_bytes(),
            ..self.info.clone()
        }
    }
    async fn resized(&self, known_bytes: u64) -> u64 {
        match &self.content {
            Content::Read(_) => std::future::pending().await,
            Content::Write(volume) => volume.resized(known_bytes).await,
        }
    }
    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        let length = length_bytes as usize;
        let bytes = match &self.content {
            Content::Read(volume) => volume
                .read(offset_bytes, length)
                .await
                .map_err(|_| IoError::Medium)?,
            Content::Write(volume) => volume
                .read(offset_bytes, length)
                .await
                .map_err(|error| error.io_error())?,
        };
        Ok(self.buffers.copy_of(&bytes).freeze().into())
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let written = self.writable()?.write(offset_bytes, &data).await;
        written.map_err(|error| error.io_error())?;
        self.finish(fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        match &self.content {
            Content::Read(_) => Ok(()),
            Content::Write(volume) => volume.flush().await.map_err(|error| error.io_error()),
        }
    }
    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        let trimmed = self
            .writable()?
            .trim(offset_bytes..offset_bytes.saturating_add(length_bytes))
            .await;
        trimmed.map_err(|error| error.io_error())?;
        self.finish(fua).await
    }
    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        how: ZeroRequest,
    ) -> Result<(), IoError> {
        self.trim(offset_bytes, length_bytes, how.fua).await
    }
    async fn cache(&self, _: u64, _: u64) -> Result<(), IoError> {
        Ok(())
    }
    async fn status(&self, _: u64, length_bytes: u64, _: usize) -> Result<Vec<Extent>, IoError> {
        Ok(vec![Extent {
            length_bytes,
            is_hole: false,
            is_zero: false,
        }])
    }
}
