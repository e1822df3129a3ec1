//! What is on a device, whatever its format: the places where metadata can be are read, `crates/format/` judges.

use plexum_format::{Detection, SECTOR_BYTES, detect, probe_places};

use plexum_block::buf::BufPool;
use plexum_block::device::{Device, IoError, read_range};
use plexum_block::wait::join_all;

/// Looks for metadata of any format on a device.
///
/// # Errors
/// The device's error when it cannot be read.
pub async fn detect_on<D: Device>(device: &D, pool: &BufPool) -> Result<Detection, IoError> {
    let sectors = device.info().size_bytes / SECTOR_BYTES;
    let read = probe_places(sectors).into_iter().map(async |place| {
        let start = place.start;
        match read_range(device, pool, place).await {
            Ok(bytes) => Ok((start, bytes)),
            Err(IoError::Medium) => Ok((start, Vec::new())), // unreadable: nothing is found there
            Err(error) => Err(error),
        }
    });
    let read = join_all(read).await.into_iter();
    let read = read.collect::<Result<Vec<(u64, Vec<u8>)>, IoError>>()?;
    let mut reader = |offset: u64, buffer: &mut [u8]| -> Result<(), IoError> {
        let known = read.iter().find(|(start, _)| *start == offset);
        let bytes = known.map(|(_, bytes)| bytes.as_slice()).unwrap_or_default();
        buffer.fill(0);
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(())
    };
    detect(sectors, &mut reader)
}
