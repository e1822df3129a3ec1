//! What is on a drive: its header and the copies of its configuration.

use plexum_format::vinum::{CONFIG_BYTES, CONFIG_OFFSETS_BYTES, DriveHeader, HEADER_OFFSET_BYTES};

use crate::labels::ForeignError;
use plexum_block::buf::BufPool;
use plexum_block::device::read_range;
use plexum_block::device::{Device, IoError};

use super::FoundDrive;

/// What stands for a copy of the configuration that cannot be read. It is no text: words that nobody knows would be
/// passed over, and leave a system without objects.
pub const UNREADABLE_COPY: &[u8] = &[0xff];

/// Reads header and configuration of a drive.
///
/// # Errors
/// `ForeignError` with `index`.
pub async fn read_drive<D: Device>(
    device: &D,
    pool: &BufPool,
    index: usize,
    name: &str,
) -> Result<FoundDrive, ForeignError> {
    let read = |at: u64, length: u64| read_range(device, pool, at..at + length);
    let io = |error| match error {
        IoError::OutOfRange => ForeignError::NothingFound(index),
        error => ForeignError::Io(index, error),
    };
    let header = read(HEADER_OFFSET_BYTES, 512).await.map_err(io)?;
    let header = DriveHeader::parse(&header, HEADER_OFFSET_BYTES);
    let header = header.map_err(|error| match error.problem {
        plexum_format::Problem::NoMagic => ForeignError::NothingFound(index),
        _ => ForeignError::Format(index, Box::new(error)),
    })?;
    let mut copies = [Vec::new(), Vec::new()];
    for (copy, at) in copies.iter_mut().zip(CONFIG_OFFSETS_BYTES) {
        // A copy that cannot be read is one that makes no sense: the other one counts.
        *copy = read(at, CONFIG_BYTES)
            .await
            .unwrap_or_else(|_| UNREADABLE_COPY.to_vec());
    }
    Ok(FoundDrive {
        key: index,
        device: name.to_owned(),
        size_bytes: device.info().size_bytes,
        header,
        copies,
    })
}
