//! What a driver is told of the disk: features, and the description that it reads (`struct virtio_blk_config`).
//!
//! Source: the virtio specification 1.2, sections 5.2.3 to 5.2.5 and 6; for the bit of vhost-user and the features of
//! its protocol, QEMU's `docs/interop/vhost-user.rst`. The description is little-endian.

use plexum_front::export::{ExportInfo, REQUEST_BYTES_MAX};

use crate::wire::CONFIG_BYTES_MAX;

/// Sectors of virtio are 512 bytes, whatever the blocks of a disk are.
pub const SECTOR_BYTES: u64 = 512;
/// Most queues of a device.
pub const QUEUES_MAX: u16 = 256;
/// Most descriptors of a queue.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// Pieces of the data of one request; with header and status they fill a queue of 128 descriptors.
pub const SEGMENTS_MAX: u32 = 126;
/// Longest piece in bytes: what all pieces together carry is one of the largest requests.
const SEGMENT_BYTES_MAX: u32 = 256 << 10;
/// Ranges of one request for discards or zeroes.
pub const RANGES_MAX: u32 = 32;
/// Longest range in sectors: 256 MiB, as of a block device of the kernel.
const RANGE_SECTORS_MAX: u32 = (256 << 20) / SECTOR_BYTES as u32;

const _: () = assert!(SEGMENTS_MAX * SEGMENT_BYTES_MAX <= REQUEST_BYTES_MAX);

/// Features of the device, by their bits.
pub mod feature {
    /// `size_max` of the description counts.
    pub const SIZE_MAX: u64 = 1 << 1;
    /// `seg_max` of the description counts.
    pub const SEG_MAX: u64 = 1 << 2;
    /// The disk can only be read.
    pub const READ_ONLY: u64 = 1 << 5;
    /// `blk_size` of the description counts.
    pub const BLOCK_SIZE: u64 = 1 << 6;
    /// Flushes are understood. A driver that does not take it believes that what is answered is durable.
    pub const FLUSH: u64 = 1 << 9;
    /// Physical blocks and best sizes of the description count.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// The driver may choose whether what is answered is durable.
    pub const CONFIG_WCE: u64 = 1 << 11;
    /// `num_queues` of the description counts.
    pub const SEVERAL_QUEUES: u64 = 1 << 12;
    /// Discards are understood.
    pub const DISCARD: u64 = 1 << 13;
    /// Requests for zeroes are understood.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// Tables of descriptors outside of the ring.
    pub const INDIRECT: u64 = 1 << 28;
    /// Each side says from which entry on it wants to be told.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// vhost-user: there are features of the protocol.
    pub const PROTOCOL: u64 = 1 << 30;
    /// virtio 1.0 or later.
    pub const VERSION_1: u64 = 1 << 32;
}

/// Features of the protocol, by their bits.
pub mod protocol {
    /// Several queues.
    pub const SEVERAL_QUEUES: u64 = 1 << 0;
    /// Any message may ask for an acknowledgement.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// Requests the other way.
    pub const BACKEND_REQUESTS: u64 = 1 << 5;
    /// The description is asked for by messages.
    pub const CONFIG: u64 = 1 << 9;
    /// Requests under way are recorded in shared memory.
    pub const INFLIGHT: u64 = 1 << 12;
    /// The device can be reset.
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// Memory comes and goes region by region.
    pub const MEMORY_SLOTS: u64 = 1 << 15;
    /// All that are offered.
    pub const ALL: u64 = SEVERAL_QUEUES
        | REPLY_ACK
        | BACKEND_REQUESTS
        | CONFIG
        | INFLIGHT
        | RESET_DEVICE
        | MEMORY_SLOTS;
}

/// Where in the description the driver says whether what is answered is only cached.
pub const WRITEBACK_AT: u32 = 32;

/// What an answered write is until the next flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// It may be lost.
    #[default]
    Back,
    /// It is durable.
    Through,
}

/// How a volume likes its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Smallest request that costs no more than it must, in bytes: a strip; 0 when there is none.
    pub io_min_bytes: u64,
    /// Best size of a request, in bytes: a whole row; 0 when there is none.
    pub io_opt_bytes: u64,
}

/// The features that are offered for an export.
#[must_use]
pub fn features(info: &ExportInfo) -> u64 {
    use feature::*;
    let common = SIZE_MAX
        | SEG_MAX
        | BLOCK_SIZE
        | FLUSH
        | TOPOLOGY
        | CONFIG_WCE
        | SEVERAL_QUEUES
        | INDIRECT
        | EVENT_INDEX
        | PROTOCOL
        | VERSION_1;
    match info.is_read_only {
        true => common | READ_ONLY,
        false => common | DISCARD | WRITE_ZEROES,
    }
}

/// The description of the disk. Bytes behind it are 0.
#[must_use]
pub fn describe(info: &ExportInfo, shape: Shape, cache: Cache) -> [u8; CONFIG_BYTES_MAX] {
    let mut bytes = [0; CONFIG_BYTES_MAX];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    let block_bytes = block_bytes(info);
    let physical = info.block_bytes_preferred.max(block_bytes) / block_bytes;
    let in_blocks = |size: u64| size / u64::from(block_bytes);
    let io_min = u16::try_from(in_blocks(shape.io_min_bytes)).unwrap_or(0); // 0: nothing is said
    let io_opt = u32::try_from(in_blocks(shape.io_opt_bytes)).unwrap_or(0);
    put(0, &(info.size_bytes / SECTOR_BYTES).to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    // 16: cylinders, heads and sectors, which nobody asks for.
    put(20, &block_bytes.to_le_bytes());
    put(24, &[physical.ilog2() as u8, 0]);
    put(26, &io_min.to_le_bytes());
    put(28, &io_opt.to_le_bytes());
    put(WRITEBACK_AT as usize, &[u8::from(cache == Cache::Back)]);
    put(34, &QUEUES_MAX.to_le_bytes());
    if !info.is_read_only {
        let aligned = (u64::from(info.block_bytes_preferred) / SECTOR_BYTES).max(1) as u32;
        put(36, &RANGE_SECTORS_MAX.to_le_bytes());
        put(40, &RANGES_MAX.to_le_bytes());
        put(44, &aligned.to_le_bytes());
        put(48, &RANGE_SECTORS_MAX.to_le_bytes());
        put(52, &RANGES_MAX.to_le_bytes());
        put(56, &[1]); // zeroes may give space back
    }
    bytes
}

/// The blocks of the disk as a guest sees them: never less than a sector.
#[must_use]
pub fn block_bytes(info: &ExportInfo) -> u32 {
    info.block_bytes_min.max(SECTOR_BYTES as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> ExportInfo {
        ExportInfo {
            name: "nas".to_owned(),
            description: String::new(),
            size_bytes: 8 << 20,
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            is_read_only: false,
            is_rotational: false,
        }
    }

    #[test]
    fn a_disk_is_described_with_its_size_blocks_and_rows() {
        let shape = Shape {
            io_min_bytes: 64 << 10,
            io_opt_bytes: 128 << 10,
        };
        let bytes = describe(&info(), shape, Cache::Back);
        assert_eq!(bytes[..8], 16384_u64.to_le_bytes());
        assert_eq!(bytes[20..24], 512_u32.to_le_bytes());
        assert_eq!(bytes[24..32], [3, 0, 128, 0, 0, 1, 0, 0]);
        assert_eq!(bytes[32], 1);
        assert_eq!(bytes[36..40], 524_288_u32.to_le_bytes());
        assert!(bytes[60..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_disk_that_can_only_be_read_offers_no_changes() {
        let info = ExportInfo {
            is_read_only: true,
            block_bytes_min: 4096,
            ..info()
        };
        let offered = features(&info);
        assert_eq!(offered & (feature::DISCARD | feature::WRITE_ZEROES), 0);
        assert_ne!(offered & feature::READ_ONLY, 0);
        let bytes = describe(&info, Shape::default(), Cache::Back);
        assert_eq!(bytes[20..24], 4096_u32.to_le_bytes());
        assert_eq!(bytes[24], 0);
        assert_eq!(bytes[36..60], [0; 24]);
    }
}
