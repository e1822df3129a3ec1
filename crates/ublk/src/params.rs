//! Sizes and abilities of a device: `struct ublk_params`.
//!
//! Source: `linux/ublk_cmd.h`. Of its parts, "basic" and "discard" are set here; a device that somebody else has made
//! may have more, which are passed over.

use plexum_front::export::ExportInfo;

use crate::wire::{SECTOR_BYTES, get, put};

/// Kinds of parameters that are there.
const TYPE_BASIC: u32 = 1 << 0;
const TYPE_DISCARD: u32 = 1 << 1;

/// Attributes of a device.
const READ_ONLY: u32 = 1 << 0;
const ROTATIONAL: u32 = 1 << 1;
const VOLATILE_CACHE: u32 = 1 << 2;
const FUA: u32 = 1 << 3;

/// Longest range of one discard, and of one request for zeroes, in bytes: what a row's worth of work of any volume
/// takes little time for, so that others are served meanwhile.
const DISCARD_BYTES_MAX: u64 = 256 << 20;
/// Largest shift of a block size: a page.
const BLOCK_SHIFT_MAX: u32 = 12;

/// How a volume likes its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Smallest request that costs no more than it must, in bytes: a strip; 0 when there is none.
    pub io_min_bytes: u64,
    /// Best size of a request, in bytes: a whole row; 0 when there is none.
    pub io_opt_bytes: u64,
}

/// Sizes and abilities of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    attributes: u32,
    logical_shift: u8,
    physical_shift: u8,
    io_opt_shift: u8,
    io_min_shift: u8,
    /// Longest request in sectors.
    sectors_max: u32,
    /// Size of the device in sectors.
    sectors: u64,
    /// Discards and zeroes: granularity in bytes, longest in sectors.
    discard_granularity_bytes: u32,
    discard_sectors_max: u32,
}

/// Why an export cannot be a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamsError {
    /// The kernel's blocks are 512 to 4096 bytes.
    #[error(
        "{name} has blocks of {block_bytes} bytes, and a block device of the kernel has 512 to 4096"
    )]
    BlockSize {
        /// Name of the volume.
        name: String,
        /// Its smallest block.
        block_bytes: u32,
    },
}

impl Params {
    /// Size in bytes of what is set.
    pub const BYTES: usize = 60;
    /// Room for what any kernel tells.
    pub const ANSWER_BYTES: usize = 512;

    /// The device that `info` becomes, whose requests have at most `io_bytes_max` bytes.
    ///
    /// # Errors
    /// Its blocks are none that the kernel takes.
    pub fn of(info: &ExportInfo, shape: Shape, io_bytes_max: u32) -> Result<Self, ParamsError> {
        let block_bytes = info.block_bytes_min.max(SECTOR_BYTES as u32);
        let logical = block_bytes.trailing_zeros();
        if !block_bytes.is_power_of_two() || logical > BLOCK_SHIFT_MAX {
            return Err(ParamsError::BlockSize {
                name: info.name.clone(),
                block_bytes: info.block_bytes_min,
            });
        }
        let physical =
            logical.max(shift_of(u64::from(info.block_bytes_preferred)).min(BLOCK_SHIFT_MAX));
        let io_min = shift_of(shape.io_min_bytes).max(physical);
        // A row that is no power of two is told by the largest one that divides it: whoever aligns to that aligns to
        // strips at least.
        let io_opt = match shape.io_opt_bytes {
            0 => 0,
            bytes => shift_of(bytes).max(io_min),
        };
        let mut attributes = VOLATILE_CACHE | FUA;
        if info.is_read_only {
            attributes |= READ_ONLY;
        }
        if info.is_rotational {
            attributes |= ROTATIONAL;
        }
        let narrow = |shift: u32| shift as u8; // below 64
        Ok(Self {
            attributes,
            logical_shift: narrow(logical),
            physical_shift: narrow(physical),
            io_opt_shift: narrow(io_opt),
            io_min_shift: narrow(io_min),
            sectors_max: io_bytes_max / SECTOR_BYTES as u32,
            sectors: info.size_bytes / u64::from(block_bytes) * u64::from(block_bytes)
                / SECTOR_BYTES,
            discard_granularity_bytes: 1 << physical,
            discard_sectors_max: match info.is_read_only {
                true => 0,
                false => (DISCARD_BYTES_MAX / SECTOR_BYTES) as u32,
            },
        })
    }

    /// Size of the device in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.sectors.saturating_mul(SECTOR_BYTES)
    }

    /// Whether it can only be read.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.attributes & READ_ONLY != 0
    }

    /// As the kernel takes them.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &(Self::BYTES as u32).to_ne_bytes());
        put(&mut bytes, 4, &(TYPE_BASIC | TYPE_DISCARD).to_ne_bytes());
        put(&mut bytes, 8, &self.attributes.to_ne_bytes());
        let shifts = [
            self.logical_shift,
            self.physical_shift,
            self.io_opt_shift,
            self.io_min_shift,
        ];
        put(&mut bytes, 12, &shifts);
        put(&mut bytes, 16, &self.sectors_max.to_ne_bytes());
        // 20: at which borders the kernel would cut requests: nowhere, the engine does that better
        put(&mut bytes, 24, &self.sectors.to_ne_bytes());
        // 32: a boundary of memory, 40: alignment of discards; there are none
        put(
            &mut bytes,
            44,
            &self.discard_granularity_bytes.to_ne_bytes(),
        );
        put(&mut bytes, 48, &self.discard_sectors_max.to_ne_bytes());
        put(&mut bytes, 52, &self.discard_sectors_max.to_ne_bytes());
        let segments = u16::from(self.discard_sectors_max > 0);
        put(&mut bytes, 56, &segments.to_ne_bytes());
        bytes
    }

    /// What to send to learn the parameters of a device.
    #[must_use]
    pub fn question() -> [u8; Self::ANSWER_BYTES] {
        let mut bytes = [0; Self::ANSWER_BYTES];
        put(&mut bytes, 0, &(Self::ANSWER_BYTES as u32).to_ne_bytes());
        bytes
    }

    /// What the kernel has answered; `None` when it has no basic parameters.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::ANSWER_BYTES]) -> Option<Self> {
        let types = u32::from_ne_bytes(get(bytes, 4));
        let [logical_shift, physical_shift, io_opt_shift, io_min_shift] = get(bytes, 12);
        (types & TYPE_BASIC != 0).then(|| Self {
            attributes: u32::from_ne_bytes(get(bytes, 8)),
            logical_shift,
            physical_shift,
            io_opt_shift,
            io_min_shift,
            sectors_max: u32::from_ne_bytes(get(bytes, 16)),
            sectors: u64::from_ne_bytes(get(bytes, 24)),
            discard_granularity_bytes: u32::from_ne_bytes(get(bytes, 44)),
            discard_sectors_max: u32::from_ne_bytes(get(bytes, 48)),
        })
    }
}

/// Shift of the largest power of two that divides `bytes`; 0 for 0.
fn shift_of(bytes: u64) -> u32 {
    match bytes {
        0 => 0,
        bytes => bytes.trailing_zeros(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(block_bytes: u32) -> ExportInfo {
        ExportInfo {
            name: "nas".to_owned(),
            description: String::new(),
            size_bytes: 64 << 20,
            block_bytes_min: block_bytes,
            block_bytes_preferred: 4096,
            is_read_only: false,
            is_rotational: false,
        }
    }

    const RAID5: Shape = Shape {
        io_min_bytes: 64 << 10,
        io_opt_bytes: 192 << 10,
    };

    #[test]
    fn parameters_are_laid_out_as_the_kernels_header_says() {
        let params = Params::of(&info(512), RAID5, 1 << 20).expect("usable");
        let mut expected = Vec::new();
        for number in [60u32, 3, VOLATILE_CACHE | FUA] {
            expected.extend_from_slice(&number.to_ne_bytes());
        }
        expected.extend_from_slice(&[9, 12, 16, 16]); // logical, physical, best (64 KiB divide the row), least
        expected.extend_from_slice(&2048u32.to_ne_bytes());
        expected.extend_from_slice(&0u32.to_ne_bytes());
        expected.extend_from_slice(&131_072u64.to_ne_bytes());
        expected.extend_from_slice(&0u64.to_ne_bytes());
        for number in [0u32, 4096, 524_288, 524_288] {
            expected.extend_from_slice(&number.to_ne_bytes());
        }
        expected.extend_from_slice(&1u16.to_ne_bytes());
        expected.extend_from_slice(&0u16.to_ne_bytes());
        assert_eq!(params.encode().as_slice(), expected);
        let mut answer = Params::question();
        answer[..Params::BYTES].copy_from_slice(&params.encode());
        assert_eq!(Params::decode(&answer), Some(params));
        assert_eq!(params.size_bytes(), 64 << 20);
    }

    #[test]
    fn a_volume_that_is_read_only_takes_no_discards_and_says_so() {
        let info = ExportInfo {
            is_read_only: true,
            ..info(4096)
        };
        let shape = Shape {
            io_min_bytes: 0,
            io_opt_bytes: 0,
        };
        let bytes = Params::of(&info, shape, 1 << 20).expect("usable").encode();
        assert_eq!(u32::from_ne_bytes(get(&bytes, 8)) & READ_ONLY, READ_ONLY);
        assert_eq!(bytes[12..16], [12, 12, 0, 12]);
        assert_eq!(bytes[48..58], [0; 10]);
    }

    #[test]
    fn blocks_that_the_kernel_does_not_take_are_refused_with_their_size() {
        let error = Params::of(&info(8192), RAID5, 1 << 20).expect_err("too large");
        assert!(error.to_string().contains("8192 bytes"));
    }

    #[test]
    fn the_end_of_a_device_is_the_end_of_its_last_whole_block() {
        let info = ExportInfo {
            size_bytes: (1 << 20) + 512,
            ..info(4096)
        };
        let params = Params::of(&info, RAID5, 1 << 20).expect("usable");
        assert_eq!(params.size_bytes(), 1 << 20);
    }
}
