//! A served volume, seen through an NBD client.

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::device::{Fua, IoError};
use plexum_front::export::{Export, ExportInfo, Extent, ZeroRequest};
use plexum_nbd::client::Client;
use plexum_nbd::transport::Transport;
use plexum_nbd::wire::option::tflag;

/// Longest range of one zero or trim request: fits the 32 bits of simple requests, and a multiple of every block.
const RANGE_BYTES_MAX: u64 = 1 << 30;

/// An export of a server. Long requests are cut to what the server takes; the parts of one request go one by one.
pub struct Remote<T> {
    client: Client<T>,
    pool: BufPool,
    info: ExportInfo,
    payload_bytes_max: u64,
}

impl<T: Transport> Remote<T> {
    /// The export that `client` is connected to; buffers come from `pool`.
    #[must_use]
    pub fn new(client: Client<T>, pool: BufPool) -> Self {
        let remote = client.remote();
        let unit = remote.block_bytes_min.max(1);
        let info = ExportInfo {
            name: remote.name.clone(),
            description: remote.description.clone(),
            size_bytes: remote.size_bytes,
            block_bytes_min: unit,
            block_bytes_preferred: remote.block_bytes_preferred,
            is_read_only: remote.has(tflag::READ_ONLY),
            is_rotational: remote.has(tflag::ROTATIONAL),
        };
        let payload_bytes_max = u64::from((remote.payload_bytes_max / unit * unit).max(unit));
        Self {
            client,
            pool,
            info,
            payload_bytes_max,
        }
    }
}

/// Parts of at most `step` bytes of a range: offset in the range and length, in bytes.
fn parts(length_bytes: u64, step: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..length_bytes.div_ceil(step)).map(move |index| {
        let start = index * step;
        (start, step.min(length_bytes - start))
    })
}

/// A length that was cut to a payload fits into memory.
fn in_memory(length_bytes: u64) -> usize {
    usize::try_from(length_bytes).expect("a payload has less than 4 GiB")
}

impl<T: Transport> Export for Remote<T> {
    fn info(&self) -> ExportInfo {
        self.info.clone()
    }

    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        let mut rope = Rope::default();
        for (start, length) in parts(u64::from(length_bytes), self.payload_bytes_max) {
            let buf = self.pool.take(in_memory(length));
            let buf = self.client.read(offset_bytes + start, buf).await?;
            rope.pieces.push(buf.freeze());
        }
        Ok(rope)
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        for (start, length) in parts(data.len() as u64, self.payload_bytes_max) {
            let part = data.slice(in_memory(start)..in_memory(start + length));
            self.client.write(offset_bytes + start, part, fua).await?;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        Ok(self.client.flush().await?)
    }

    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        for (start, length) in parts(length_bytes, RANGE_BYTES_MAX) {
            self.client.trim(offset_bytes + start, length, fua).await?;
        }
        Ok(())
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mut how: ZeroRequest,
    ) -> Result<(), IoError> {
        for (start, length) in parts(length_bytes, RANGE_BYTES_MAX) {
            self.client.zero(offset_bytes + start, length, how).await?;
            how.only_if_fast = false; // "not fast" may only be said while nothing has changed
        }
        Ok(())
    }

    async fn cache(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), IoError> {
        for (start, length) in parts(length_bytes, RANGE_BYTES_MAX) {
            self.client.cache(offset_bytes + start, length).await?;
        }
        Ok(())
    }

    async fn status(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        let length_bytes = length_bytes.min(RANGE_BYTES_MAX);
        let is_one = extents_max == 1;
        let mut extents = self
            .client
            .status(offset_bytes, length_bytes, is_one)
            .await?;
        extents.truncate(extents_max);
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_range_once_and_none_is_too_long() {
        for length in 0..40 {
            for step in 1..12 {
                let mut next = 0;
                for (start, part) in parts(length, step) {
                    assert!(start == next && (1..=step).contains(&part));
                    next += part;
                }
                assert_eq!(next, length);
            }
        }
    }
}
