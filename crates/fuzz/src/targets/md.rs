//! What Linux md keeps on members.

use plexum_format::md::ppl::crc32c;
use plexum_format::md::superblock::MdVersion;
use plexum_format::md::{
    BadBlocks, Bitmap, JournalMeta, PplHeader, Superblock, describe_bad_blocks, describe_bitmap,
    describe_journal, describe_ppl, describe_superblock,
};

use super::{Target, agree, as_it_is};
use crate::input::Input;
use crate::mutate::Hints;

/// Versions by number.
pub const VERSIONS: [MdVersion; 4] = [
    MdVersion::V090,
    MdVersion::V10,
    MdVersion::V11,
    MdVersion::V12,
];

/// Numbers: sector where it was found, sectors of the device, version.
pub const SUPERBLOCK: Target = Target {
    name: "md-superblock",
    check: |input| {
        let Some(first) = superblock(input, &input.bytes) else {
            return Ok(false);
        };
        let _ = (first.role(), first.features(), first.raid0_layout());
        let _ = first.bitmap_room_sectors(input.numbers[1]);
        let again = superblock(input, &first.encode()).ok_or("what was written is refused")?;
        let show = |s: &Superblock| format!("{:?}", describe_superblock(s));
        agree(&first, &again, |s| s.encode().to_vec(), show)
    },
    write_back: |input| superblock(input, &input.bytes).map(|s| s.encode().to_vec()),
    repair: repair_superblock,
    hints: Hints {
        soft: &[16..72, 80..88, 164..184, 192..216, 256..272],
        is_text: false,
        words: &[],
    },
    length_max_bytes: 8192,
};

fn superblock(input: &Input, bytes: &[u8]) -> Option<Superblock> {
    let [found_at_sector, device_sectors, version, _] = input.numbers;
    let version = VERSIONS[(version % 4) as usize];
    Superblock::parse(bytes, found_at_sector, device_sectors, version).ok()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let field = bytes
        .get(at..at + 4)
        .and_then(|field| field.try_into().ok());
    field.map_or(0, u32::from_le_bytes)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// Both kinds: low and high half of the sum of words, the sum itself taken as 0.
fn repair_superblock(input: &mut Input) {
    let is_old = input.numbers[2].is_multiple_of(4);
    let bytes = &mut input.bytes;
    let (at, length) = if is_old {
        (152, 4096)
    } else {
        (216, 256 + 2 * word(bytes, 220) as usize)
    };
    if bytes.len() < length {
        return;
    }
    let is_big = is_old && bytes[..4] == 0xa92b_4efc_u32.to_be_bytes();
    put(bytes, at, 0);
    let sum: u64 = bytes[..length]
        .chunks(4)
        .map(|piece| {
            let mut field = [0; 4];
            field[..piece.len()].copy_from_slice(piece);
            let value = if is_big {
                u32::from_be_bytes(field)
            } else {
                u32::from_le_bytes(field)
            };
            u64::from(value)
        })
        .sum();
    let sum = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    put(bytes, at, if is_big { sum.swap_bytes() } else { sum });
}

/// Numbers: offset in the member, sectors of room.
pub const BITMAP: Target = Target {
    name: "md-bitmap",
    check: |input| {
        let Some(first) = bitmap(input, &input.bytes) else {
            return Ok(false);
        };
        if first.set_regions().count() as u64 != first.count_set() {
            return Err("regions are counted otherwise than listed".to_owned());
        }
        let again = bitmap(input, &first.encode()).ok_or("what was written is refused")?;
        let show = |b: &Bitmap| format!("{:?}", describe_bitmap(b));
        agree(&first, &again, |b| b.encode(), show)
    },
    write_back: |input| {
        let bitmap = bitmap(input, &input.bytes)?;
        let mut bytes = bitmap.encode();
        bytes.extend_from_slice(input.bytes.get(bytes.len()..)?);
        Some(bytes)
    },
    repair: as_it_is,
    hints: Hints {
        soft: &[8..40, 56..60, 256..1024],
        is_text: false,
        words: &[],
    },
    length_max_bytes: 8192,
};

fn bitmap(input: &Input, bytes: &[u8]) -> Option<Bitmap> {
    Bitmap::parse(bytes, input.numbers[0], input.numbers[1]).ok()
}

/// Numbers: shift, offset in the member.
pub const BAD_BLOCKS: Target = Target {
    name: "md-bad-blocks",
    check: |input| {
        let Some(first) = bad_blocks(input, &input.bytes) else {
            return Ok(false);
        };
        let again = bad_blocks(input, &first.encode()).ok_or("what was written is refused")?;
        if first.ranges().len() > input.bytes.len() / 8 {
            return Err("more ranges than entries".to_owned());
        }
        let show = |b: &BadBlocks| format!("{:?}", describe_bad_blocks(b));
        agree(&first, &again, BadBlocks::encode, show)
    },
    write_back: |input| bad_blocks(input, &input.bytes).map(|b| b.encode()),
    repair: as_it_is,
    hints: Hints {
        soft: &[2..8, 10..16, 18..24],
        is_text: false,
        words: &[&[0xff; 8], &[1, 0, 0, 0, 0, 0, 0, 0]],
    },
    length_max_bytes: 4096,
};

fn bad_blocks(input: &Input, bytes: &[u8]) -> Option<BadBlocks> {
    let shift = u8::try_from(input.numbers[0]).ok()?;
    BadBlocks::parse(bytes, shift, input.numbers[1]).ok()
}

/// Numbers: offset in the member, signature.
pub const PPL: Target = Target {
    name: "md-ppl",
    check: |input| {
        let Some(first) = ppl(input, &input.bytes) else {
            return Ok(false);
        };
        let _ = (first.unit_bytes(), first.partial_parity_ranges());
        let again = ppl(input, &first.encode()).ok_or("what was written is refused")?;
        let show = |p: &PplHeader| format!("{:?}", describe_ppl(p));
        agree(&first, &again, |p| p.encode().to_vec(), show)
    },
    write_back: |input| ppl(input, &input.bytes).map(|p| p.encode().to_vec()),
    repair: |input| {
        if let Some(area) = input.bytes.first_chunk_mut::<4096>() {
            put(area, 532, 0);
            let sum = crc32c(area);
            put(area, 532, sum);
        }
    },
    hints: Hints {
        soft: &[0..512, 520..528, 536..548, 560..584],
        is_text: false,
        words: &[],
    },
    length_max_bytes: 8192,
};

fn ppl(input: &Input, bytes: &[u8]) -> Option<PplHeader> {
    PplHeader::parse(bytes, input.numbers[0], input.numbers[1] as u32).ok()
}

/// Numbers: offset in the journal, the array's UUID. Journals are only read.
pub const JOURNAL: Target = Target {
    name: "md-journal",
    check: |input| {
        let meta = JournalMeta::parse(&input.bytes, input.numbers[0], &uuid(input));
        let _ = meta.as_ref().map(describe_journal);
        Ok(meta.is_ok())
    },
    write_back: |_| None,
    repair: |input| {
        let uuid = uuid(input);
        if let Some(area) = input.bytes.first_chunk_mut::<4096>() {
            put(area, 4, 0);
            let sum = !crc32c(&[&uuid[..], &area[..]].concat());
            put(area, 4, sum);
        }
    },
    hints: Hints {
        soft: &[16..32, 40..48, 72..80, 512..4096],
        is_text: false,
        words: &[],
    },
    length_max_bytes: 8192,
};

/// The UUID in two numbers.
fn uuid(input: &Input) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&input.numbers[1].to_le_bytes());
    uuid[8..].copy_from_slice(&input.numbers[2].to_le_bytes());
    uuid
}
