//! What ZFS keeps on members. Nothing of it is ever written, so nothing is written back either.

use plexum_format::partition;
use plexum_format::zfs::blockptr::Compression;
use plexum_format::zfs::checksum::seal_embedded;
use plexum_format::zfs::intent::{self, LogChange, LogRecord};
use plexum_format::zfs::zap::{parse_head, parse_leaf};
use plexum_format::zfs::{BlockPointer, Dnode, LABEL_BYTES, LabelArea, NvList, Uberblock, label};
use plexum_zfs::decompress_into;

use super::{Target, as_it_is};
use crate::input::Input;
use crate::mutate::Hints;

/// Where the list is in a label, and how long.
const LIST_OFFSET: usize = 16 << 10;
const LIST_BYTES: usize = 112 << 10;
/// Most bytes that a block of the decompressors' targets has when it is decompressed.
const LOGICAL_BYTES_MAX: u64 = 64 << 10;

const NO_HINTS: Hints = Hints {
    soft: &[],
    is_text: false,
    words: &[],
};

const TEXT: Hints = Hints {
    is_text: true,
    words: &[
        b"children",
        b"\0\0\0\x14",
        b"\0\0\0\x13",
        b"\xff\xff\xff\xff",
    ],
    ..NO_HINTS
};

/// The configuration in a label; its checksum is made right. Number: offset of the label.
pub const LABEL: Target = Target {
    name: "zfs-label",
    check: |input| {
        let offset = input.numbers[0] >> 32 << 18;
        let mut bytes = vec![0; LABEL_BYTES];
        let length = input.bytes.len().min(LIST_BYTES - 40);
        bytes[LIST_OFFSET..LIST_OFFSET + length].copy_from_slice(&input.bytes[..length]);
        let list = &mut bytes[LIST_OFFSET..LIST_OFFSET + LIST_BYTES];
        seal_embedded(list, [offset + LIST_OFFSET as u64, 0, 0, 0]);
        let area = LabelArea::parse(&bytes, offset);
        let Ok(label) = &area.label else {
            return Ok(false);
        };
        let _ = (label.refusals(), label.slot());
        let _ = label::describe(&[area], 0);
        Ok(true)
    },
    write_back: |_| None,
    repair: as_it_is,
    hints: TEXT,
    length_max_bytes: 8192,
};

/// A name-value list by itself.
pub const LIST: Target = Target {
    name: "zfs-list",
    check: |input| Ok(NvList::parse(&input.bytes).is_ok()),
    write_back: |_| None,
    repair: as_it_is,
    hints: TEXT,
    length_max_bytes: 8192,
};

/// A slot of the ring. Number: its offset.
pub const UBERBLOCK: Target = Target {
    name: "zfs-uberblock",
    check: |input| {
        let parsed = Uberblock::parse(&input.bytes, input.numbers[0]);
        Ok(parsed.is_ok_and(|root| root.rank() >= (0, 0, 0)))
    },
    write_back: |_| None,
    repair: |input| {
        if input.bytes.len() >= 40 {
            seal_embedded(&mut input.bytes, [input.numbers[0], 0, 0, 0]);
        }
    },
    hints: Hints {
        soft: &[8..40, 40..46, 104..168, 168..216],
        ..NO_HINTS
    },
    length_max_bytes: 4096,
};

/// A block pointer.
pub const POINTER: Target = Target {
    name: "zfs-pointer",
    check: |input| {
        let Ok(pointer) = BlockPointer::parse(&input.bytes) else {
            return Ok(false);
        };
        if pointer.logical_bytes > plexum_format::zfs::BLOCK_BYTES_MAX {
            return Err(format!("{} logical bytes", pointer.logical_bytes));
        }
        Ok(true)
    },
    write_back: |_| None,
    repair: as_it_is,
    hints: Hints {
        soft: &[0..6, 8..14, 64..128],
        ..NO_HINTS
    },
    length_max_bytes: 256,
};

/// A dnode with its pointers.
pub const DNODE: Target = Target {
    name: "zfs-dnode",
    check: |input| {
        let Ok(dnode) = Dnode::parse(&input.bytes) else {
            return Ok(false);
        };
        if !dnode.is_free() {
            for block in [0, 1, 77, dnode.block_id_max, u64::MAX] {
                let _ = dnode.path(block);
            }
        }
        Ok(true)
    },
    write_back: |_| None,
    repair: as_it_is,
    hints: Hints {
        soft: &[4..5, 16..32, 64..70, 72..78, 192..512],
        ..NO_HINTS
    },
    length_max_bytes: 16 << 10,
};

/// A map from names to numbers: its first block, or a leaf when that is what it looks like.
pub const ZAP: Target = Target {
    name: "zfs-zap",
    check: |input| {
        if let Ok(entries) = parse_leaf(&input.bytes) {
            entries
                .iter()
                .for_each(|entry| drop((entry.number(), entry.shorts(), entry.text())));
            return Ok(true);
        }
        Ok(parse_head(&input.bytes).is_ok())
    },
    write_back: |_| None,
    repair: as_it_is,
    hints: Hints {
        soft: &[8..16, 64..128, 128..512],
        ..NO_HINTS
    },
    length_max_bytes: 16 << 10,
};

/// A block of an intent log. What is read of it is written, and read as the same.
pub const LOG: Target = Target {
    name: "zfs-log",
    check: |input| {
        let Some(block) = intent::parse(&input.bytes) else {
            return Ok(false);
        };
        // Records of file systems are not written, and an empty write would be one to a place of its own.
        let is_ours = |record: &LogRecord| match &record.change {
            LogChange::Other(_) => false,
            LogChange::Write { data, .. } => !data.is_empty(),
            _ => true,
        };
        if block.records.iter().all(is_ours) {
            let written = intent::encode(&block, [0; 4], 128 << 10);
            if written.is_some_and(|bytes| intent::parse(&bytes) != Some(block)) {
                return Err("it reads back as another".into());
            }
        }
        Ok(true)
    },
    write_back: |_| None,
    repair: as_it_is,
    hints: Hints {
        soft: &[0..136, 144..184, 376..4480],
        ..NO_HINTS
    },
    length_max_bytes: 16 << 10,
};

/// The tables at the start of a disk. Number: its size.
pub const PARTITIONS: Target = Target {
    name: "zfs-partitions",
    check: |input| {
        let bytes = &input.bytes;
        let mut reader = |offset: u64, buffer: &mut [u8]| -> Result<(), ()> {
            buffer.fill(0);
            let start = usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let length = buffer.len().min(bytes.len() - start);
            buffer[..length].copy_from_slice(&bytes[start..start + length]);
            Ok(())
        };
        let found = partition::look_at(input.numbers[0], &mut reader);
        if found
            .iter()
            .any(|part| part.place.start >= part.place.end || part.place.end > input.numbers[0])
        {
            return Err(format!("{found:?} on a disk of {}", input.numbers[0]));
        }
        Ok(!found.is_empty())
    },
    write_back: |_| None,
    repair: as_it_is,
    hints: Hints {
        soft: &[0..440, 528..584, 1040..1056, 1072..1152],
        ..NO_HINTS
    },
    length_max_bytes: 64 << 10,
};

/// The decompressors. Number: length of the block when it is decompressed.
pub const LZJB: Target = decompressor("zfs-lzjb", |input| decompress(Compression::Lzjb, input));
/// See [`LZJB`].
pub const ZLE: Target = decompressor("zfs-zle", |input| decompress(Compression::Zle, input));
/// See [`LZJB`].
pub const GZIP: Target = Target {
    repair: |input| repair_stored(&mut input.bytes),
    ..decompressor("zfs-gzip", |input| decompress(Compression::Gzip, input))
};
/// See [`LZJB`].
pub const LZ4: Target = decompressor("zfs-lz4", |input| decompress(Compression::Lz4, input));
/// See [`LZJB`].
pub const ZSTD: Target = decompressor("zfs-zstd", |input| decompress(Compression::Zstd, input));

const fn decompressor(name: &'static str, check: fn(&Input) -> Result<bool, String>) -> Target {
    Target {
        name,
        check,
        write_back: |_| None,
        repair: as_it_is,
        // The corpus has plain text from there on, which may be any other.
        hints: Hints {
            soft: &[16..80, 40..120],
            ..NO_HINTS
        },
        length_max_bytes: 16 << 10,
    }
}

/// A stream that is one stored block gets its right Adler sum: header of 2 and 5 bytes, the bytes, the sum.
fn repair_stored(bytes: &mut [u8]) {
    let Some((stream, sum)) = bytes.split_last_chunk_mut::<4>() else {
        return;
    };
    let Some(stored) = stream.get(7..).filter(|_| stream[2] == 1) else {
        return;
    };
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in stored {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    *sum = (b << 16 | a).to_be_bytes();
}

fn decompress(compression: Compression, input: &Input) -> Result<bool, String> {
    let length = input.numbers[0].min(LOGICAL_BYTES_MAX);
    let mut out = vec![0x5a; length as usize];
    Ok(decompress_into(compression, &input.bytes, &mut out))
}
