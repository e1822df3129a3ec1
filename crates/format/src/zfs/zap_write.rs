//! Small ZAPs as bytes: one block of names and numbers.
//!
//! Invariants: names have at most [`NAME_BYTES_MAX`] bytes; two names with the same hash have different numbers among
//! themselves, without which OpenZFS takes them for one.
//! Source: zfs-write.md 1.9.

const MICRO_TYPE: u64 = (1 << 63) + 3;
const ENTRY_BYTES: usize = 64;
/// Longest name in a small ZAP.
pub const NAME_BYTES_MAX: usize = 49;
/// Largest block of a small ZAP.
pub const MICRO_BYTES_MAX: usize = 128 << 10;
/// Flag of the maps of snapshot names: upper and lower case are told apart, but may be compared without.
pub const NORMALISED_UPPER: u64 = 2;
const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

/// The hash by which OpenZFS looks a name up: its upper 28 bits.
#[must_use]
pub fn hash(salt: u64, name: &[u8], norm_flags: u64) -> u64 {
    let mut crc = salt;
    for byte in name {
        let byte = if norm_flags & NORMALISED_UPPER != 0 {
            byte.to_ascii_uppercase()
        } else {
            *byte
        };
        let mut entry = (crc ^ u64::from(byte)) & 0xff;
        for _ in 0..8 {
            entry = entry >> 1 ^ if entry & 1 == 1 { POLYNOMIAL } else { 0 };
        }
        crc = crc >> 8 ^ entry;
    }
    crc & !(u64::MAX >> 28)
}

/// What the block of a small ZAP begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroHead {
    /// Where the hash begins; not zero.
    pub salt: u64,
    /// How names are made equal before they are compared.
    pub norm_flags: u64,
}

/// The block of these names and numbers; `None` when a name is too long or empty, or they are too many.
#[must_use]
pub fn encode_micro(entries: &[(Vec<u8>, u64)], head: MicroHead) -> Option<Vec<u8>> {
    let MicroHead { salt, norm_flags } = head;
    let length = (ENTRY_BYTES * (entries.len() + 1)).next_multiple_of(512);
    if length > MICRO_BYTES_MAX {
        return None;
    }
    let mut block = vec![0; length];
    block[..8].copy_from_slice(&MICRO_TYPE.to_le_bytes());
    block[8..16].copy_from_slice(&salt.to_le_bytes());
    block[16..24].copy_from_slice(&norm_flags.to_le_bytes());
    let mut hashes = Vec::with_capacity(entries.len());
    for (n, (name, number)) in entries.iter().enumerate() {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
            return None;
        }
        let hash = hash(salt, name, norm_flags);
        let same = hashes.iter().filter(|found| **found == hash).count() as u32;
        hashes.push(hash);
        let entry = &mut block[ENTRY_BYTES * (n + 1)..][..ENTRY_BYTES];
        entry[..8].copy_from_slice(&number.to_le_bytes());
        entry[8..12].copy_from_slice(&same.to_le_bytes());
        entry[14..14 + name.len()].copy_from_slice(name);
    }
    Some(block)
}

/// The head of a small ZAP that is there.
#[must_use]
pub fn micro_head(block: &[u8]) -> Option<MicroHead> {
    let word = |n: usize| Some(u64::from_le_bytes(*block.get(8 * n..)?.first_chunk()?));
    let (salt, norm_flags) = (word(1)?, word(2)?);
    (word(0)? == MICRO_TYPE).then_some(MicroHead { salt, norm_flags })
}

#[cfg(test)]
mod tests {
    use super::super::zap::{ZapHead, parse_head};
    use super::*;

    const HEAD: MicroHead = MicroHead {
        salt: 3,
        norm_flags: NORMALISED_UPPER,
    };

    #[test]
    fn a_small_zap_reads_back_and_what_does_not_fit_is_refused() {
        let entries = [(b"size".to_vec(), 7), (b"another".to_vec(), u64::MAX)];
        let block = encode_micro(&entries, HEAD).unwrap();
        assert_eq!((block.len(), micro_head(&block)), (512, Some(HEAD)));
        let Ok(ZapHead::Micro(read)) = parse_head(&block) else {
            panic!("a small one");
        };
        let read: Vec<_> = read
            .iter()
            .map(|entry| (entry.name.clone(), entry.number().unwrap()))
            .collect();
        assert_eq!(read, entries);
        assert_eq!(encode_micro(&[(vec![b'a'; 50], 1)], HEAD), None);
        assert_eq!(encode_micro(&vec![(b"a".to_vec(), 1); 2048], HEAD), None);
        let twins = encode_micro(&[(b"a".to_vec(), 1), (b"A".to_vec(), 2)], HEAD).unwrap();
        assert_eq!(twins[128 + 8], 1, "the second of the same hash");
    }
}
