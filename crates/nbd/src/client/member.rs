//! An NBD export as a member device of the engine.

use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{
    Device, DeviceInfo, Extent, Fua, FuaWay, IoError, ZeroMode, check_range,
};
use plexum_front::export::ZeroRequest;

use super::{Client, ClientError};
use crate::transport::Transport;
use crate::wire::option::tflag;

/// Longest range of one WRITE_ZEROES in bytes: fits 32 bits and any block size.
const ZERO_BYTES_MAX: u64 = 1 << 30;
/// Longest range of one BLOCK_STATUS in bytes.
const STATUS_BYTES_MAX: u64 = 1 << 30;

/// A remote export, used as a member. The client's driver must be running.
///
/// Never asks again on another connection: when this one ends the member is `Gone`, and what it has missed is a
/// matter of the array's state.
pub struct ClientDevice<T> {
    client: Client<T>,
    pool: BufPool,
    info: DeviceInfo,
}

impl<T: Transport + 'static> ClientDevice<T> {
    /// A device over `client`.
    ///
    /// # Errors
    /// `Unsupported` when the server's smallest block is larger than a sector of 4096 bytes.
    pub fn new(client: Client<T>, pool: BufPool) -> Result<Self, IoError> {
        let remote = client.remote();
        let sector_bytes = match remote.block_bytes_min {
            0..=512 => 512,
            513..=4096 => 4096,
            _ => return Err(IoError::Unsupported),
        };
        let info = DeviceInfo {
            size_bytes: remote.size_bytes / u64::from(sector_bytes) * u64::from(sector_bytes),
            sector_bytes,
            is_rotational: remote.has(tflag::ROTATIONAL),
            has_zeroing_trim: remote.has(tflag::SEND_WRITE_ZEROES),
        };
        Ok(Self { client, pool, info })
    }

    /// The client behind it.
    #[must_use]
    pub fn client(&self) -> &Client<T> {
        &self.client
    }

    /// Whether the server takes no writes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.client.remote().has(tflag::READ_ONLY)
    }

    fn payload_bytes_max(&self) -> usize {
        let sector_bytes = self.info.sector_bytes;
        let announced = self.client.remote().payload_bytes_max;
        (announced / sector_bytes * sector_bytes).max(sector_bytes) as usize
    }

    /// Where the server has no FUA, a flush does it.
    fn sends_fua(&self, fua: Fua) -> Fua {
        if self.client.remote().has(tflag::SEND_FUA) {
            fua
        } else {
            Fua::No
        }
    }

    async fn flush_instead_of_fua(&self, fua: Fua) -> Result<(), IoError> {
        if fua == Fua::Yes && self.sends_fua(fua) == Fua::No {
            self.flush().await?;
        }
        Ok(())
    }
}

impl<T: Transport + 'static> Device for ClientDevice<T> {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn fua_way(&self) -> FuaWay {
        match self.sends_fua(Fua::Yes) {
            Fua::Yes => FuaWay::InWrite,
            Fua::No => FuaWay::ByFlush,
        }
    }

    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        check_range(&self.info, offset_bytes, buf.len() as u64)?;
        let part_bytes = self.payload_bytes_max();
        if buf.len() <= part_bytes {
            return Ok(self.client.read(offset_bytes, buf).await?);
        }
        let mut at = offset_bytes;
        for part in buf.chunks_mut(part_bytes) {
            let received = self.client.read(at, self.pool.take(part.len())).await?;
            part.copy_from_slice(&received);
            at += part.len() as u64; // inside of the device
        }
        Ok(buf)
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        check_range(&self.info, offset_bytes, data.len() as u64)?;
        if self.client.remote().has(tflag::READ_ONLY) {
            return Err(IoError::ReadOnly);
        }
        let mut done = 0;
        while done < data.len() {
            let end = data.len().min(done + self.payload_bytes_max());
            let at = offset_bytes + done as u64; // inside of the device
            let part = data.slice(done..end);
            self.client.write(at, part, self.sends_fua(fua)).await?;
            done = end;
        }
        self.flush_instead_of_fua(fua).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        if !self.client.remote().has(tflag::SEND_FLUSH) {
            return self.check().await; // a server without it promises no more than what it answered
        }
        Ok(self.client.flush().await?)
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
    ) -> Result<(), IoError> {
        check_range(&self.info, offset_bytes, length_bytes)?;
        let remote = self.client.remote();
        if !remote.has(tflag::SEND_WRITE_ZEROES) {
            return Err(IoError::Unsupported);
        }
        let mut how = ZeroRequest {
            fua: Fua::No,
            may_unmap: mode == ZeroMode::Unmap,
            only_if_fast: remote.has(tflag::SEND_FAST_ZERO),
        };
        let mut done = 0;
        while done < length_bytes {
            let part = (length_bytes - done).min(ZERO_BYTES_MAX);
            self.client.zero(offset_bytes + done, part, how).await?;
            how.only_if_fast = false; // "not fast" may only be said while nothing has changed
            done += part;
        }
        Ok(())
    }

    async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        check_range(&self.info, offset_bytes, length_bytes)?;
        let length = length_bytes.min(STATUS_BYTES_MAX);
        let wants_one = extents_max == 1;
        let mut extents = self.client.status(offset_bytes, length, wants_one).await?;
        extents.truncate(extents_max);
        Ok(extents)
    }

    fn busy(&self) -> usize {
        self.client.in_flight()
    }

    async fn check(&self) -> Result<(), IoError> {
        if self.client.is_gone() {
            return Err(ClientError::Gone.into());
        }
        Ok(())
    }
}
