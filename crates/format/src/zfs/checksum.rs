//! The checksums of blocks and of self-checking areas.
//!
//! Invariants: all results are four 64-bit words, as they stand in a block pointer; only little-endian data is summed.
//! Source: zfs-raidz.md 2.1 and 2.3.

use sha2::{Digest as _, Sha256, Sha512_256};

use super::bytes::le64;

/// A checksum as it stands in a block pointer.
pub type Digest = [u64; 4];

/// Last bytes of a self-checking area: magic and four words.
pub const TRAILER_BYTES: usize = 40;
/// Begins the trailer of a self-checking area.
const TRAILER_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// How a block is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    /// Not at all.
    Off,
    /// The block checks itself (labels, gang headers).
    Embedded,
    /// The first chain of intent log blocks.
    IntentLog,
    /// The second.
    IntentLog2,
    /// Two interleaved sums of 64-bit words.
    Fletcher2,
    /// Sums of 32-bit words to the fourth order.
    Fletcher4,
    /// SHA-256.
    Sha256,
    /// SHA-512/256.
    Sha512,
    /// One that this program does not compute; its number.
    Unsupported(u8),
}

impl ChecksumKind {
    /// The kind of this number in a block pointer.
    #[must_use]
    pub fn of(number: u8) -> Self {
        match number {
            2 => Self::Off,
            3 | 4 => Self::Embedded,
            5 => Self::IntentLog,
            6 => Self::Fletcher2,
            7 => Self::Fletcher4,
            8 => Self::Sha256,
            9 => Self::IntentLog2,
            11 => Self::Sha512,
            other => Self::Unsupported(other),
        }
    }

    /// Name for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Embedded => "embedded",
            Self::IntentLog => "zilog",
            Self::IntentLog2 => "zilog2",
            Self::Fletcher2 => "fletcher2",
            Self::Fletcher4 => "fletcher4",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
            Self::Unsupported(12) => "skein",
            Self::Unsupported(13) => "edonr",
            Self::Unsupported(14) => "blake3",
            Self::Unsupported(_) => "unknown",
        }
    }

    /// The checksum of `bytes`; `None` for those that are not computed over a block alone.
    #[must_use]
    pub fn compute(self, bytes: &[u8]) -> Option<Digest> {
        match self {
            Self::Fletcher2 | Self::IntentLog => Some(fletcher2(bytes)),
            Self::Fletcher4 | Self::IntentLog2 => Some(fletcher4(bytes)),
            Self::Sha256 => Some(sha256(bytes)),
            Self::Sha512 => Some(sha512_256(bytes)),
            Self::Off | Self::Embedded | Self::Unsupported(_) => None,
        }
    }
}

impl ChecksumKind {
    /// As [`compute`](Self::compute), of a block that lies in several pieces. All pieces but the last are multiples of
    /// 16 bytes long; others are put together first.
    #[must_use]
    pub fn compute_parts(self, parts: &[&[u8]]) -> Option<Digest> {
        let before_last = &parts[..parts.len().saturating_sub(1)];
        if before_last.iter().any(|part| part.len() % 16 != 0) {
            return self.compute(&parts.concat());
        }
        if let [whole] = parts {
            return self.compute(whole);
        }
        match self {
            Self::Sha256 => {
                let mut hash = Sha256::new();
                parts.iter().for_each(|part| hash.update(part));
                Some(words(&hash.finalize(), u64::from_be_bytes))
            }
            Self::Sha512 => {
                let mut hash = Sha512_256::new();
                parts.iter().for_each(|part| hash.update(part));
                Some(words(&hash.finalize(), u64::from_le_bytes))
            }
            Self::Fletcher2 | Self::IntentLog => {
                let mut sums = [0; 4];
                parts.iter().for_each(|part| add_fletcher2(&mut sums, part));
                Some(sums)
            }
            other => other.compute(&parts.concat()),
        }
    }
}

/// Sums of 32-bit words to the fourth order. Bytes after the last whole word do not count.
#[must_use]
pub fn fletcher4(bytes: &[u8]) -> Digest {
    let (words, _) = bytes.as_chunks::<4>();
    let [mut a, mut b, mut c, mut d] = [0_u64; 4];
    for word in words {
        a = a.wrapping_add(u64::from(u32::from_le_bytes(*word)));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    [a, b, c, d]
}

/// Two interleaved pairs of sums of 64-bit words. Bytes after the last whole pair do not count.
#[must_use]
pub fn fletcher2(bytes: &[u8]) -> Digest {
    let mut sums = [0; 4];
    add_fletcher2(&mut sums, bytes);
    sums
}

fn add_fletcher2(sums: &mut Digest, bytes: &[u8]) {
    let (pairs, _) = bytes.as_chunks::<16>();
    let [mut a0, mut a1, mut b0, mut b1] = *sums;
    for pair in pairs {
        let word = |half: usize| le64(pair, half * 8).expect("a pair has two words");
        a0 = a0.wrapping_add(word(0));
        a1 = a1.wrapping_add(word(1));
        b0 = b0.wrapping_add(a0);
        b1 = b1.wrapping_add(a1);
    }
    *sums = [a0, a1, b0, b1];
}

/// SHA-256 as four big-endian words.
#[must_use]
pub fn sha256(bytes: &[u8]) -> Digest {
    words(&Sha256::digest(bytes), u64::from_be_bytes)
}

/// SHA-512/256 as four little-endian words.
#[must_use]
pub fn sha512_256(bytes: &[u8]) -> Digest {
    words(&Sha512_256::digest(bytes), u64::from_le_bytes)
}

fn words(digest: &[u8], of: fn([u8; 8]) -> u64) -> Digest {
    let mut result = [0; 4];
    let (parts, _) = digest.as_chunks::<8>();
    for (word, part) in result.iter_mut().zip(parts) {
        *word = of(*part);
    }
    result
}

/// Whether a self-checking area is whole: the SHA-256 of the area, in which `verifier` stands for the stored words.
///
/// The verifier of labels and uberblocks is their byte offset on the member and three zeroes, that of a gang header is
/// its address.
#[must_use]
pub fn verify_embedded(area: &[u8], verifier: Digest) -> bool {
    let Some(body_bytes) = area.len().checked_sub(TRAILER_BYTES) else {
        return false;
    };
    if le64(area, body_bytes) != Some(TRAILER_MAGIC) {
        return false;
    }
    let stored = [0, 1, 2, 3].map(|n| le64(area, body_bytes + 8 + 8 * n));
    let mut hash = Sha256::new();
    hash.update(&area[..body_bytes + 8]);
    for word in verifier {
        hash.update(word.to_le_bytes());
    }
    stored == words(&hash.finalize(), u64::from_be_bytes).map(Some)
}

/// Writes the trailer of a self-checking area.
///
/// # Panics
/// When the area is shorter than its trailer.
pub fn seal_embedded(area: &mut [u8], verifier: Digest) {
    let body_bytes = area.len() - TRAILER_BYTES;
    area[body_bytes..body_bytes + 8].copy_from_slice(&TRAILER_MAGIC.to_le_bytes());
    let mut hash = Sha256::new();
    hash.update(&area[..body_bytes + 8]);
    for word in verifier {
        hash.update(word.to_le_bytes());
    }
    let digest = words(&hash.finalize(), u64::from_be_bytes);
    for (n, word) in digest.iter().enumerate() {
        let at = body_bytes + 8 + 8 * n;
        area[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fletcher_sums_follow_their_definition() {
        let bytes: Vec<u8> = (0..64).collect();
        let mut expected = [0_u64; 4];
        for n in 0..16_usize {
            let word = u64::from(u32::from_le_bytes(
                bytes[4 * n..4 * n + 4].try_into().unwrap(),
            ));
            expected[0] = expected[0].wrapping_add(word);
            expected[1] = expected[1].wrapping_add(expected[0]);
            expected[2] = expected[2].wrapping_add(expected[1]);
            expected[3] = expected[3].wrapping_add(expected[2]);
        }
        assert_eq!(fletcher4(&bytes), expected);
        assert_eq!(
            fletcher2(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0].repeat(2)),
            [2, 4, 3, 6]
        );
    }

    #[test]
    fn a_block_in_pieces_has_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..2048_u32).map(|n| (n * 7 / 8) as u8).collect();
        for number in 0..20 {
            let kind = ChecksumKind::of(number);
            for pieces in [
                vec![2048],
                vec![512, 1536],
                vec![16, 32, 2000],
                vec![5, 2043],
            ] {
                let mut rest = bytes.as_slice();
                let parts: Vec<&[u8]> = pieces
                    .iter()
                    .map(|length| rest.split_off(..*length).unwrap())
                    .collect();
                assert_eq!(kind.compute_parts(&parts), kind.compute(&bytes), "{kind:?}");
            }
        }
        assert_eq!(ChecksumKind::Fletcher4.compute_parts(&[]), Some([0; 4]));
    }

    #[test]
    fn the_hashes_are_the_published_ones() {
        assert_eq!(sha256(b"abc")[0], 0xba78_16bf_8f01_cfea);
        assert_eq!(sha512_256(b"abc")[0], 0x53048e2681941ef9_u64.swap_bytes());
    }

    #[test]
    fn a_sealed_area_is_whole_only_at_its_own_place() {
        let mut area = vec![7; 1024];
        seal_embedded(&mut area, [4096, 0, 0, 0]);
        assert!(verify_embedded(&area, [4096, 0, 0, 0]));
        assert!(!verify_embedded(&area, [8192, 0, 0, 0]));
        area[3] ^= 1;
        assert!(!verify_embedded(&area, [4096, 0, 0, 0]));
        assert!(!verify_embedded(&area[..39], [0; 4]));
    }
}
