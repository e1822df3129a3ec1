//! Files that are written and read past the page cache.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use super::{NOISE, fill_with_noise};
use crate::BenchError;
use crate::folder::direct_flag;

/// Bytes of a request.
const REQUEST_BYTES: usize = 1 << 20;

/// What memory and offsets have to be multiples of, wherever direct I/O is possible.
const ALIGNMENT_BYTES: usize = 4096;

/// Calls `request` for every piece of a file, one after the other.
pub(super) fn each_request(
    length_bytes: u64,
    mut request: impl FnMut(u64, &mut [u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut memory = vec![7; REQUEST_BYTES + ALIGNMENT_BYTES];
    let start = memory.as_ptr().align_offset(ALIGNMENT_BYTES);
    for offset in (0..length_bytes).step_by(REQUEST_BYTES) {
        let left = usize::try_from(length_bytes - offset).unwrap_or(usize::MAX);
        request(offset, &mut memory[start..start + left.min(REQUEST_BYTES)])?;
    }
    Ok(())
}

/// A file whose blocks are all on the disk and written, so that nobody pays for their first use.
pub(super) fn fill(path: &Path, length_bytes: u64) -> Result<File, BenchError> {
    let told = |error: std::io::Error| BenchError(format!("{}: {error}", path.display()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(direct_flag())
        .open(path)
        .map_err(told)?;
    let _ = fallocate(&file, FallocateFlags::empty(), 0, length_bytes); // less scattered where the file system can
    let mut random = NOISE;
    each_request(length_bytes, |offset, piece| {
        fill_with_noise(piece, &mut random);
        file.write_all_at(piece, offset)
    })
    .and_then(|()| file.sync_data())
    .map_err(told)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_file_is_asked_for_once_and_from_aligned_memory() {
        let mut asked = Vec::new();
        let length = 2 * REQUEST_BYTES as u64 + 8192;
        each_request(length, |offset, piece| {
            assert_eq!(piece.as_ptr() as usize % ALIGNMENT_BYTES, 0);
            asked.push((offset, piece.len()));
            Ok(())
        })
        .unwrap();
        let step = REQUEST_BYTES as u64;
        let expected = [(0, REQUEST_BYTES), (step, REQUEST_BYTES), (2 * step, 8192)];
        assert_eq!(asked, expected);
    }
}
