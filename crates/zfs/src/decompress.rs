//! Decompression of blocks, each with the framing that ZFS gives it.
//!
//! Invariants: the output has exactly the logical length, which the caller has checked; nothing else is allocated from
//! what a block says.
//! Source: zfs-raidz.md 2.3.

use plexum_block::buf::BufPool;
use plexum_format::zfs::blockptr::Compression;
use plexum_format::zfs::{lzjb, zle};

use crate::parts::Parts;

/// First bytes of a Zstandard frame, which ZFS leaves out.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The `logical_bytes` that `stored` stands for; `None` when it is not what such a block may be.
pub(crate) fn decompress(
    compression: Compression,
    mut stored: Parts,
    logical_bytes: usize,
    buffers: &BufPool,
) -> Option<Parts> {
    if compression == Compression::Off {
        stored.truncate(logical_bytes);
        return (stored.length_bytes() == logical_bytes).then_some(stored);
    }
    let mut out = buffers.take(logical_bytes);
    decompress_into(compression, &stored.whole(), &mut out).then(|| Parts::pooled(out))
}

/// Fills `out` with what `stored` stands for; `false` when it is not what such a block may be, and then `out` may hold
/// anything. Blocks that are not compressed are not for this function.
#[must_use]
pub fn decompress_into(compression: Compression, stored: &[u8], out: &mut [u8]) -> bool {
    match compression {
        Compression::Off | Compression::Unsupported(_) => false,
        Compression::Empty => {
            out.fill(0);
            true
        }
        Compression::Lzjb => lzjb::decompress(stored, out),
        Compression::Zle => zle::decompress(stored, out),
        Compression::Gzip => gzip(stored, out),
        Compression::Lz4 => lz4(stored, out),
        Compression::Zstd => zstd(stored, out),
    }
}

/// The payload behind a big-endian length.
fn framed(stored: &[u8], header_bytes: usize) -> Option<&[u8]> {
    let length: [u8; 4] = stored.get(..4)?.try_into().ok()?;
    let length = u32::from_be_bytes(length);
    let end = header_bytes.checked_add(usize::try_from(length).ok()?)?;
    stored.get(header_bytes..end)
}

fn lz4(stored: &[u8], out: &mut [u8]) -> bool {
    let length = out.len();
    framed(stored, 4).is_some_and(|data| {
        lz4_flex::block::decompress_into(data, out).is_ok_and(|written| written == length)
    })
}

/// The header holds the length, then level and version.
fn zstd(stored: &[u8], out: &mut [u8]) -> bool {
    let Some(data) = framed(stored, 8) else {
        return false;
    };
    let frame = [&ZSTD_MAGIC, data].concat();
    let length = out.len();
    zstd::bulk::decompress_to_buffer(&frame, out).is_ok_and(|written| written == length)
}

fn gzip(stored: &[u8], out: &mut [u8]) -> bool {
    use miniz_oxide::inflate::TINFLStatus;
    use miniz_oxide::inflate::core::inflate_flags::{
        TINFL_FLAG_PARSE_ZLIB_HEADER, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
    };
    use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
    let flags = TINFL_FLAG_PARSE_ZLIB_HEADER | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let mut state = DecompressorOxide::new();
    let (status, _, written) = decompress(&mut state, stored, out, 0, flags);
    status == TINFLStatus::Done && written == out.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 7] = [
        Compression::Lzjb,
        Compression::Zle,
        Compression::Gzip,
        Compression::Lz4,
        Compression::Zstd,
        Compression::Off,
        Compression::Empty,
    ];

    fn decompressed(compression: Compression, stored: Vec<u8>, length: usize) -> Option<Parts> {
        decompress(compression, Parts::own(stored), length, &BufPool::new(0))
    }

    #[test]
    fn no_bytes_make_a_decompressor_panic_or_give_another_length() {
        let mut seed = 7_u64;
        for round in 0..4_000_usize {
            let mut stored = vec![0; round % 600];
            for byte in &mut stored {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (seed >> 56) as u8;
            }
            if round % 2 == 0 && stored.len() > 10 {
                let length = stored.len() as u32 - 8;
                stored[..4].copy_from_slice(&length.to_be_bytes());
                stored[8..10].copy_from_slice(&[0x78, 0x9c]);
            }
            for compression in ALL {
                if let Some(out) = decompressed(compression, stored.clone(), 4096) {
                    assert_eq!(out.length_bytes(), 4096);
                }
            }
        }
    }

    #[test]
    fn framing_that_says_more_than_there_is_is_refused() {
        for compression in [Compression::Lz4, Compression::Zstd] {
            assert!(decompressed(compression, vec![0xff; 512], 512).is_none());
            assert!(decompressed(compression, vec![0; 3], 512).is_none());
        }
        assert!(decompressed(Compression::Unsupported(99), vec![0; 512], 512).is_none());
    }
}
