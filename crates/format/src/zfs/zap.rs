//! ZAPs: maps from names to integers, in one small block or in a hash table of leaves.
//!
//! The hash is not used: all entries are enumerated, and their number must be the one in the header.
//!
//! Invariants: a value is never longer than the leaf it is in; chains are followed no further than the leaf has parts.
//! Source: zfs-raidz.md 2.5.

use std::collections::BTreeSet;

use super::bytes::{le16, le32, le64, nowhere, require};
use crate::error::{FormatError, Problem, escape_text};

const MICRO_TYPE: u64 = (1 << 63) + 3;
const FAT_TYPE: u64 = (1 << 63) + 1;
const LEAF_TYPE: u64 = 1 << 63;
const FAT_MAGIC: u64 = 0x2_f52a_b2ab;
const LEAF_MAGIC: u32 = 0x02ab_1eaf;
/// Bytes of an entry of a micro ZAP, and where its name begins.
const MICRO_ENTRY_BYTES: usize = 64;
const MICRO_NAME_OFFSET: usize = 14;
/// Bytes of a part of a leaf, and of the data in one.
const CHUNK_BYTES: usize = 24;
const CHUNK_DATA_BYTES: usize = 21;
const CHUNK_ENTRY: u8 = 252;
const CHUNK_ARRAY: u8 = 251;
const LEAF_HEADER_BYTES: usize = 48;
/// Smallest and largest block of a fat ZAP, in bytes.
const FAT_BLOCK_BYTES_MIN: usize = 512;

/// A name and its integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZapEntry {
    /// The name, without the zero at its end.
    pub name: Vec<u8>,
    /// Bytes of each integer: 1, 2, 4 or 8.
    pub integer_bytes: u8,
    /// The integers, big-endian, one after another.
    pub value: Vec<u8>,
}

impl ZapEntry {
    /// The first integer, when it has 64 bits.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        let bytes = self
            .value
            .first_chunk::<8>()
            .filter(|_| self.integer_bytes == 8)?;
        Some(u64::from_be_bytes(*bytes))
    }

    /// The integers, when they have 16 bits.
    #[must_use]
    pub fn shorts(&self) -> Option<Vec<u16>> {
        let (parts, rest) = self.value.as_chunks::<2>();
        (self.integer_bytes == 2 && rest.is_empty())
            .then(|| parts.iter().map(|part| u16::from_be_bytes(*part)).collect())
    }

    /// The name, made printable.
    #[must_use]
    pub fn text(&self) -> String {
        escape_text(&self.name)
    }
}

/// The first block of a ZAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZapHead {
    /// All there is.
    Micro(Vec<ZapEntry>),
    /// A hash table.
    Fat(FatHead),
}

/// The head of a hash table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FatHead {
    /// Number of entries in all leaves.
    pub entry_count: u64,
    /// Where the numbers of the leaves are.
    pub table: Table,
}

/// Where the numbers of the leaves are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Table {
    /// In the first block: the numbers, each once, ascending.
    Inside(Vec<u64>),
    /// In blocks of the object; see [`leaf_ids`].
    Blocks {
        /// The first block.
        first: u64,
        /// How many.
        count: u64,
    },
}

/// Reads the first block of a ZAP.
///
/// # Errors
/// [`Problem::NoMagic`] when it is none, [`Problem::TooShort`], [`Problem::Invalid`].
pub fn parse_head(block: &[u8]) -> Result<ZapHead, FormatError> {
    let place = nowhere("zap");
    require(place, block, 128, "block")?;
    let word = |n: usize| le64(block, 8 * n).expect("the length was checked");
    match word(0) {
        MICRO_TYPE => return Ok(ZapHead::Micro(micro_entries(block))),
        FAT_TYPE if word(1) == FAT_MAGIC => {}
        other => {
            let (found, expected) = (format!("{other:#x}"), "that of a zap");
            return Err(place.error(Problem::NoMagic, 0, "block type", found, expected));
        }
    }
    let is_right = block.len() >= FAT_BLOCK_BYTES_MIN && block.len().is_power_of_two();
    place.check(
        is_right,
        0,
        "block size",
        block.len(),
        "a power of two from 512",
    )?;
    let table = match (word(2), word(3)) {
        (_, 0) => Table::Inside(leaf_ids(&block[block.len() / 2..])),
        (first, count) => Table::Blocks { first, count },
    };
    Ok(ZapHead::Fat(FatHead {
        entry_count: word(9),
        table,
    }))
}

/// The numbers of leaves in (a block of) a table: each once, ascending, without zeroes.
#[must_use]
pub fn leaf_ids(table: &[u8]) -> Vec<u64> {
    let (words, _) = table.as_chunks::<8>();
    let ids = words.iter().map(|word| u64::from_le_bytes(*word));
    let ids: BTreeSet<u64> = ids.filter(|id| *id != 0).collect();
    ids.into_iter().collect()
}

fn micro_entries(block: &[u8]) -> Vec<ZapEntry> {
    let entries = block[MICRO_ENTRY_BYTES..].chunks_exact(MICRO_ENTRY_BYTES);
    let used = entries.filter(|entry| entry[MICRO_NAME_OFFSET] != 0);
    used.map(|entry| ZapEntry {
        name: until_zero(&entry[MICRO_NAME_OFFSET..]).to_vec(),
        integer_bytes: 8,
        value: le64(entry, 0)
            .expect("an entry has 64 bytes")
            .to_be_bytes()
            .to_vec(),
    })
    .collect()
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

/// All entries of a leaf.
///
/// # Errors
/// [`Problem::NoMagic`] when it is none, [`Problem::Invalid`] for a chain that leads nowhere.
pub fn parse_leaf(block: &[u8]) -> Result<Vec<ZapEntry>, FormatError> {
    let place = nowhere("zap leaf");
    require(place, block, FAT_BLOCK_BYTES_MIN, "block")?;
    place.check(
        block.len().is_power_of_two(),
        0,
        "block size",
        block.len(),
        "a power of two",
    )?;
    if le64(block, 0) != Some(LEAF_TYPE) || le32(block, 24) != Some(LEAF_MAGIC) {
        let expected = "that of a leaf";
        return Err(place.error(Problem::NoMagic, 0, "block type", "another", expected));
    }
    let slots = block.len() / 32;
    let chunk_count = (block.len() - 2 * slots) / CHUNK_BYTES - 2;
    let start = LEAF_HEADER_BYTES + 2 * slots;
    let leaf = Leaf {
        chunks: &block[start..start + chunk_count * CHUNK_BYTES],
    };
    let chunks = leaf.chunks.chunks_exact(CHUNK_BYTES);
    chunks
        .filter(|chunk| chunk[0] == CHUNK_ENTRY)
        .map(|chunk| leaf.entry(chunk))
        .collect()
}

/// The parts of a leaf.
struct Leaf<'a> {
    chunks: &'a [u8],
}

impl Leaf<'_> {
    fn entry(&self, chunk: &[u8]) -> Result<ZapEntry, FormatError> {
        let short = |at| usize::from(le16(chunk, at).expect("a part has 24 bytes"));
        let integer_bytes = chunk[1];
        let is_right = matches!(integer_bytes, 1 | 2 | 4 | 8);
        nowhere("zap leaf").check(is_right, 1, "integer size", integer_bytes, "1, 2, 4 or 8")?;
        let name = self.array(short(4), short(6))?;
        Ok(ZapEntry {
            name: name.strip_suffix(&[0]).unwrap_or(&name).to_vec(),
            integer_bytes,
            value: self.array(short(8), short(10) * usize::from(integer_bytes))?,
        })
    }

    /// Follows a chain of parts until it has given `length` bytes.
    fn array(&self, mut chunk: usize, length: usize) -> Result<Vec<u8>, FormatError> {
        let place = nowhere("zap leaf");
        let room = self.chunks.len();
        place.check(
            length <= room,
            6,
            "length",
            length,
            format!("at most {room}"),
        )?;
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let part = self.chunks.chunks_exact(CHUNK_BYTES).nth(chunk);
            let part = part.filter(|part| part[0] == CHUNK_ARRAY);
            let wrong = || place.error(Problem::Invalid, 4, "chunk", chunk, "one of an array");
            let part = part.ok_or_else(wrong)?;
            let wanted = CHUNK_DATA_BYTES.min(length - bytes.len());
            bytes.extend_from_slice(&part[1..=wanted]);
            chunk = usize::from(le16(part, 22).expect("a part has 24 bytes"));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_micro_zap_come_back() {
        let mut block = vec![0; 512];
        block[..8].copy_from_slice(&MICRO_TYPE.to_le_bytes());
        block[128] = 42;
        block[128 + 14..128 + 17].copy_from_slice(b"abc");
        let ZapHead::Micro(entries) = parse_head(&block).unwrap() else {
            panic!("micro")
        };
        assert_eq!(entries.len(), 1);
        assert_eq!(
            (entries[0].text().as_str(), entries[0].number()),
            ("abc", Some(42))
        );
    }

    /// A leaf of 512 bytes: 16 slots, 18 parts; one entry with a name over two parts.
    fn leaf() -> Vec<u8> {
        let mut block = vec![0; 512];
        block[..8].copy_from_slice(&LEAF_TYPE.to_le_bytes());
        block[24..28].copy_from_slice(&LEAF_MAGIC.to_le_bytes());
        let parts = &mut block[80..];
        parts[..12].copy_from_slice(&[252, 8, 0xff, 0xff, 1, 0, 31, 0, 3, 0, 1, 0]);
        parts[24] = 251;
        parts[25..46].fill(b'a');
        parts[46] = 2;
        parts[48] = 251;
        parts[49..58].fill(b'b');
        parts[72] = 251;
        parts[80] = 7;
        block
    }

    #[test]
    fn an_entry_of_a_leaf_is_gathered_from_its_parts() {
        let entries = parse_leaf(&leaf()).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].text(), "a".repeat(21) + &"b".repeat(9));
        assert_eq!(entries[0].number(), Some(7));
    }

    #[test]
    fn chains_that_lead_nowhere_or_in_circles_end() {
        let mut bad = leaf();
        bad[80 + 4] = 200;
        assert_eq!(parse_leaf(&bad).unwrap_err().field, "chunk");
        let mut circle = leaf();
        circle[80 + 46] = 1;
        assert!(parse_leaf(&circle).is_ok(), "the length ends it");
        let mut long = leaf();
        long[80 + 11] = 0xff;
        assert_eq!(parse_leaf(&long).unwrap_err().field, "length");
    }

    #[test]
    fn leaf_numbers_are_given_once() {
        let table: Vec<u8> = [3_u64, 3, 0, 1]
            .iter()
            .flat_map(|id| id.to_le_bytes())
            .collect();
        assert_eq!(leaf_ids(&table), [1, 3]);
    }
}
