//! A volume as the clients of any server see it.
//!
//! Invariants: nothing is decided here: every call is one call of the volume. Clients are counted by `Counted` around
//! it, the plexes of Vinum here.

use std::rc::Rc;

use plexum_block::buf::{Buf, Rope};
use plexum_block::device::{Fua, IoError, ZeroMode};
use plexum_freebsd::gvinum::counters::Direction;
use plexum_freebsd::gvinum::tally::VolumeTally;
use plexum_front::export::{Export, ExportInfo, Extent, ZeroRequest};

use crate::assembly::Body;

/// The export of one volume.
pub struct VolumeExport {
    volume: Rc<Body>,
    info: ExportInfo,
    /// Only systems of Vinum keep counters by object.
    tally: Option<VolumeTally>,
}

impl VolumeExport {
    /// The export of `volume`, which must not be dropped before its sessions have ended. `tally` is that of a volume of
    /// Vinum.
    pub fn new(volume: Rc<Body>, info: ExportInfo, tally: Option<VolumeTally>) -> Self {
        Self {
            volume,
            info,
            tally,
        }
    }

    /// What drives, subdisks and plexes have done, where it is a volume of Vinum.
    pub fn tally(&self) -> Option<&VolumeTally> {
        self.tally.as_ref()
    }

    /// A volume that is its only plex is counted here; other plexes count for themselves.
    fn count_plex(&self, direction: Direction, offset_bytes: u64, length_bytes: u64) {
        let tally = self.tally.as_ref().filter(|tally| !tally.counts_itself);
        if let Some(plex) = tally.and_then(|tally| tally.plexes.first()) {
            plex.count_on(&**self.volume, direction, offset_bytes, length_bytes);
        }
    }
}

impl Export for VolumeExport {
    fn info(&self) -> ExportInfo {
        self.info.clone()
    }

    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        let rope = self
            .volume
            .read_bytes(offset_bytes, length_bytes as usize)
            .await?;
        self.count_plex(Direction::Read, offset_bytes, u64::from(length_bytes));
        Ok(rope)
    }

    fn expect_write(&self, offset_bytes: u64, length_bytes: u64) {
        if let Body::Whole(volume) = &*self.volume {
            volume.expect_write(offset_bytes, length_bytes);
        }
    }

    fn expect_no_write(&self, offset_bytes: u64, length_bytes: u64) {
        if let Body::Whole(volume) = &*self.volume {
            volume.expect_no_write(offset_bytes, length_bytes);
        }
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let length_bytes = data.len() as u64;
        match self.volume.lends_writes() {
            true => self.volume.write_shared(offset_bytes, data, fua).await?,
            false => self.volume.write(offset_bytes, data, fua).await?,
        }
        self.count_plex(Direction::Write, offset_bytes, length_bytes);
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.volume.flush().await
    }

    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        let mode = ZeroMode::Unmap;
        self.volume
            .zero(offset_bytes, length_bytes, mode, fua)
            .await
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        how: ZeroRequest,
    ) -> Result<(), IoError> {
        // Parity always writes the zeroes, and what members do is not known to be fast.
        if how.only_if_fast {
            return Err(IoError::Unsupported);
        }
        let mode = how.mode();
        self.volume
            .zero(offset_bytes, length_bytes, mode, how.fua)
            .await?;
        if !how.may_unmap {
            self.count_plex(Direction::Write, offset_bytes, length_bytes);
        }
        Ok(())
    }

    async fn cache(&self, _offset_bytes: u64, _length_bytes: u64) -> Result<(), IoError> {
        Ok(()) // a hint; the volume keeps no read cache
    }

    async fn status(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        self.volume
            .extents_of(offset_bytes, length_bytes, extents_max)
            .await
    }
}
