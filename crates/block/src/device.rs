//! What the engine stands on: the `Device` trait (a member's storage) and the errors it can act on.
//!
//! Invariants every implementation keeps:
//! - offsets and lengths are multiples of `DeviceInfo::sector_bytes`, inside `size_bytes`; anything else is
//!   `OutOfRange`;
//! - a write is volatile until a later `flush` answered `Ok`, or until it answered when it was issued with `Fua::Yes`;
//! - a sector is written whole or not at all; several sectors of one write may survive a crash in any combination
//!   (W10);
//! - buffers in flight belong to the device's I/O slot: a dropped future neither cancels the I/O nor frees its buffer
//!   (W9).

use std::fmt;
use std::ops::Range;

use crate::buf::{Buf, BufMut, BufPool};

/// Whether a write has to be durable when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fua {
    /// Answer when the data are on stable storage.
    Yes,
    /// Answer as soon as the device has taken the data.
    No,
}

/// How a device makes a write with `Fua::Yes` durable (W14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuaWay {
    /// The write asks for it, in a way that is proven for what is below.
    InWrite,
    /// The write, then an fsync.
    ByFsync,
    /// The write, then a flush: a remote export that offers no FUA.
    ByFlush,
}

impl FuaWay {
    /// The way of several devices that are written as one: the first that is no matter of the write alone.
    pub fn of_all<'a, D: Device + 'a>(devices: impl IntoIterator<Item = &'a D>) -> Self {
        let ways = devices.into_iter().map(Device::fua_way);
        ways.max_by_key(|way| *way != FuaWay::InWrite)
            .unwrap_or(FuaWay::InWrite)
    }

    /// The word of status.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            FuaWay::InWrite => "write",
            FuaWay::ByFsync => "fsync",
            FuaWay::ByFlush => "flush",
        }
    }
}

/// What the engine can do about a failed member I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
// As wide as what stands in its place when all went well. Of a byte, the compiler moves the `Result` in parts that
// overlap: the processor cannot hand those on from its store queue, and waits each time.
#[repr(u64)]
pub enum IoError {
    /// May succeed when tried again at once (interrupted, short transfer). Devices retry by themselves a bounded number
    /// of times.
    Retryable,
    /// This range cannot be read or written; the rest of the member may be fine.
    Medium,
    /// The member is gone for good: every later I/O would fail too.
    Gone,
    /// No space under a sparse member; nothing else is wrong with it.
    NoSpace,
    /// Offset or length outside of the device, or not aligned to its sectors.
    OutOfRange,
    /// The device or volume may not be written to.
    ReadOnly,
    /// The request cannot be done this way (trim or fast zero where the device has none); nothing was changed.
    Unsupported,
    /// The volume is frozen or failed: more members are lost than the organisation survives (W4).
    Failed,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoError::Retryable => "the transfer was interrupted",
            IoError::Medium => "the medium cannot read or write this range",
            IoError::Gone => "the device is gone",
            IoError::NoSpace => "no space is left under the device",
            IoError::OutOfRange => {
                "the range is outside of the device or not aligned to its sectors"
            }
            IoError::ReadOnly => "the device is read-only",
            IoError::Unsupported => "the device cannot do this",
            IoError::Failed => "more members are lost than the volume survives",
        })
    }
}

impl std::error::Error for IoError {}

/// What a device is; constant while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Usable size in bytes, a multiple of `sector_bytes`.
    pub size_bytes: u64,
    /// Unit of addressing and of atomicity in bytes: 512 or 4096.
    pub sector_bytes: u32,
    /// Whether seeks cost time.
    pub is_rotational: bool,
    /// Whether `zero` leaves holes (or trims) that are guaranteed to read as zeroes (W11).
    pub has_zeroing_trim: bool,
}

impl DeviceInfo {
    /// A device of `size_bytes` in sectors of 512 bytes that has nothing else to tell, as devices of tests and benches
    /// have not.
    #[must_use]
    pub const fn plain(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            sector_bytes: 512,
            is_rotational: false,
            has_zeroing_trim: false,
        }
    }
}

/// How a range shall become zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroMode {
    /// Space may be given back (a hole).
    Unmap,
    /// Space must stay allocated.
    Allocate,
}

/// A stretch with one status. Extents of an answer follow one another without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, above 0.
    pub length_bytes: u64,
    /// Nothing is allocated here.
    pub is_hole: bool,
    /// Reads as zeroes.
    pub is_zero: bool,
}

/// A member's storage: a file, a block device, a remote export, a simulated disk, or another volume.
///
/// All calls may run at the same time. Overlapping calls in flight have no order; the engine locks where it matters.
/// Futures are polled on one thread only and need not be `Send`.
#[allow(async_fn_in_trait)] // one thread owns a shard; its futures are never sent
pub trait Device: 'static {
    /// Size and properties.
    fn info(&self) -> DeviceInfo;

    /// Reads `buf.len()` bytes at `offset_bytes` and gives the filled buffer back.
    ///
    /// # Errors
    /// Any `IoError` but `NoSpace`; the buffer is lost (it returns to its pool).
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError>;

    /// Writes `data` at `offset_bytes`.
    ///
    /// # Errors
    /// Any `IoError`. After an error each sector of the range holds its old or its new content.
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError>;

    /// Makes every write that was answered before this call durable.
    ///
    /// # Errors
    /// Any error means that the state of all writes since the last good flush is unknown (W13).
    async fn flush(&self) -> Result<(), IoError>;

    /// Makes the range read as zeroes, without a payload.
    ///
    /// # Errors
    /// `Unsupported` when the device cannot do it faster than writing zeroes: the caller then writes them.
    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
    ) -> Result<(), IoError> {
        let _ = (offset_bytes, length_bytes, mode);
        Err(IoError::Unsupported)
    }

    /// What is known of a range without reading it: at least one extent, at most `extents_max`; may cover less than
    /// asked.
    ///
    /// # Errors
    /// `Unsupported` when nothing is known: it has to be taken for data.
    async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        let _ = (offset_bytes, length_bytes, extents_max);
        Err(IoError::Unsupported)
    }

    /// How a write with `Fua::Yes` becomes durable; constant while the device is open.
    fn fua_way(&self) -> FuaWay {
        FuaWay::InWrite
    }

    /// Whether its bytes are copied from memory (a file in tmpfs), so that short pieces, which stay in the processor's
    /// cache, are read faster than long ones.
    fn is_in_memory(&self) -> bool {
        false
    }

    /// A number by which another thread of this process can open the same storage once more, for itself, as long as
    /// this one is open. `None`: it cannot be.
    fn handle(&self) -> Option<u64> {
        None
    }

    /// I/Os in its slots, those included that nobody waits for any more. A member comes back only when there are none
    /// (W9).
    fn busy(&self) -> usize {
        0
    }

    /// Asks whether the device is still what was opened (a file that was not unlinked, truncated or replaced).
    /// Called before a superblock commit and on a timer.
    ///
    /// # Errors
    /// `Gone` when it is not; a write would then land where nobody finds it again.
    async fn check(&self) -> Result<(), IoError> {
        Ok(())
    }
}

/// Checks that `length_bytes` at `offset_bytes` is aligned and inside of the device.
///
/// # Errors
/// `OutOfRange` otherwise.
pub fn check_range(info: &DeviceInfo, offset_bytes: u64, length_bytes: u64) -> Result<(), IoError> {
    let sector = u64::from(info.sector_bytes);
    let end = offset_bytes
        .checked_add(length_bytes)
        .ok_or(IoError::OutOfRange)?;
    if end > info.size_bytes
        || !offset_bytes.is_multiple_of(sector)
        || !length_bytes.is_multiple_of(sector)
    {
        return Err(IoError::OutOfRange);
    }
    Ok(())
}

/// Reads `range` of a device, aligned outwards to its sectors as far as it reaches.
///
/// # Errors
/// Any `IoError` of the device; `OutOfRange` when the range does not lie on it.
pub async fn read_range<D: Device>(
    device: &D,
    pool: &BufPool,
    range: Range<u64>,
) -> Result<Vec<u8>, IoError> {
    let info = device.info();
    let sector = u64::from(info.sector_bytes);
    let start = range.start / sector * sector;
    let end = range.end.div_ceil(sector) * sector;
    if end > info.size_bytes {
        return Err(IoError::OutOfRange);
    }
    let length = usize::try_from(end - start).map_err(|_| IoError::OutOfRange)?;
    let mut result = device.read(start, pool.take(length)).await;
    for _ in 0..3 {
        if result.is_err() {
            result = device.read(start, pool.take(length)).await;
        }
    }
    let buf = result?;
    let from = usize::try_from(range.start - start).expect("inside the buffer");
    let to = usize::try_from(range.end - start).expect("inside the buffer");
    Ok(buf[from..to].to_vec())
}

impl<T: Device + ?Sized> Device for std::rc::Rc<T> {
    fn info(&self) -> DeviceInfo {
        (**self).info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        (**self).read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        (**self).write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        (**self).flush().await
    }
    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
    ) -> Result<(), IoError> {
        (**self).zero(offset_bytes, length_bytes, mode).await
    }
    async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        (**self)
            .extents(offset_bytes, length_bytes, extents_max)
            .await
    }
    fn fua_way(&self) -> FuaWay {
        (**self).fua_way()
    }
    fn is_in_memory(&self) -> bool {
        (**self).is_in_memory()
    }

    fn handle(&self) -> Option<u64> {
        (**self).handle()
    }
    fn busy(&self) -> usize {
        (**self).busy()
    }
    async fn check(&self) -> Result<(), IoError> {
        (**self).check().await
    }
}
