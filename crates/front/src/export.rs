//! What a server serves: the `Export` trait, and nothing of the engine behind it.
//!
//! Invariants:
//! - all but the size is constant while an export is open; a size that changes is told by `resized`, and a request that
//!   was checked against an older one is answered `OutOfRange` by the export, never wrapped or cut.

use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError, ZeroMode};

use crate::counted::{Counting, NoClock};

pub use plexum_block::device::Extent;

/// Data bytes of the largest request that any server takes.
pub const REQUEST_BYTES_MAX: u32 = 1 << 25;

/// Size and abilities of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Name in the handshake; the volume's name.
    pub name: String,
    /// Human-readable description, may be empty.
    pub description: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Smallest unit of requests, in bytes (512 or 4096).
    pub block_bytes_min: u32,
    /// Preferred unit of requests, in bytes.
    pub block_bytes_preferred: u32,
    /// Whether writes are refused.
    pub is_read_only: bool,
    /// Whether seeks cost time.
    pub is_rotational: bool,
}

/// How zeroes are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroRequest {
    /// Durable when answered.
    pub fua: Fua,
    /// Space may be given back (the client did not say NO_HOLE).
    pub may_unmap: bool,
    /// Answer `Unsupported` at once, with nothing changed, when it would not be faster than writing (FAST_ZERO).
    pub only_if_fast: bool,
}

impl ExportInfo {
    /// Whether both are of one export: only its size may have changed.
    #[must_use]
    pub fn is_same_export(&self, other: &Self) -> bool {
        let size_bytes = self.size_bytes;
        *self
            == Self {
                size_bytes,
                ..other.clone()
            }
    }
}

impl ZeroRequest {
    /// How members are asked for it.
    #[must_use]
    pub fn mode(&self) -> ZeroMode {
        if self.may_unmap {
            ZeroMode::Unmap
        } else {
            ZeroMode::Allocate
        }
    }
}

/// A volume as a server sees it. Offsets and lengths were checked by the server against `info`.
#[allow(async_fn_in_trait)] // servers live on one thread
pub trait Export {
    /// Size and abilities, as they are now.
    fn info(&self) -> ExportInfo;
    /// Returns the size when it is no longer `known_bytes`. Most exports never change it.
    async fn resized(&self, known_bytes: u64) -> u64 {
        let _ = known_bytes;
        std::future::pending().await
    }
    /// What counts the requests of its clients, where somebody wants to know. Sessions tell it (`perform.rs`), never
    /// the export itself.
    fn counting(&self) -> Option<&Counting<impl Clock>> {
        None::<&Counting<NoClock>>
    }
    /// Reads; the rope has exactly `length_bytes`.
    /// # Errors
    /// Any `IoError`; each server has words of its own for it.
    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError>;
    /// Hint: the data of a write of this range are being received. `write` follows, or `expect_no_write` when they do
    /// not come.
    fn expect_write(&self, offset_bytes: u64, length_bytes: u64) {
        let _ = (offset_bytes, length_bytes);
    }
    /// What was expected will not come.
    fn expect_no_write(&self, offset_bytes: u64, length_bytes: u64) {
        let _ = (offset_bytes, length_bytes);
    }
    /// Writes `data`.
    /// # Errors
    /// As `read`, and `NoSpace`, `ReadOnly`.
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError>;
    /// Makes everything answered so far, on any connection, durable.
    /// # Errors
    /// Any error: nothing is known to be durable.
    async fn flush(&self) -> Result<(), IoError>;
    /// Hint that the range is unused; contents afterwards are the old ones or zeroes (W11).
    /// # Errors
    /// As `write`.
    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError>;
    /// Makes the range read as zeroes.
    /// # Errors
    /// As `write`; `Unsupported` only for `only_if_fast`.
    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        how: ZeroRequest,
    ) -> Result<(), IoError>;
    /// Hint that the range will be read soon.
    /// # Errors
    /// As `read`.
    async fn cache(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), IoError>;
    /// Allocation status from `offset_bytes` on; at least one extent, at most `extents_max`; may cover less than asked.
    /// # Errors
    /// As `read`.
    async fn status(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError>;
}
