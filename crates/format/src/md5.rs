//! MD5 of short inputs: the checksum of gmirror's metadata, never a protection against anybody.
//!
//! Source: RFC 1321.

/// Left rotations of the four rounds.
const ROTATIONS: [[u32; 4]; 4] = [
    [7, 12, 17, 22],
    [5, 9, 14, 20],
    [4, 11, 16, 23],
    [6, 10, 15, 21],
];
/// The state before the first block.
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Digest of `bytes`.
pub(crate) fn md5(bytes: &[u8]) -> [u8; 16] {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend_from_slice(&(8 * bytes.len() as u64).to_le_bytes());
    let state = padded.chunks_exact(64).fold(START, add_block);
    let mut digest = [0; 16];
    for (group, word) in digest.chunks_exact_mut(4).zip(state) {
        group.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

fn add_block(state: [u32; 4], block: &[u8]) -> [u32; 4] {
    let word = |index: usize| {
        let bytes = &block[4 * index..4 * index + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    };
    let [mut a, mut b, mut c, mut d] = state;
    for step in 0..64 {
        let (mix, index) = match step / 16 {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), 7 * step % 16),
        };
        // The published table: the integer part of 2^32 * |sin(step + 1)|.
        let constant = ((step as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32;
        let sum = a
            .wrapping_add(mix)
            .wrapping_add(constant)
            .wrapping_add(word(index));
        let rotation = ROTATIONS[step / 16][step % 4];
        (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(rotation)));
    }
    [
        state[0].wrapping_add(a),
        state[1].wrapping_add(b),
        state[2].wrapping_add(c),
        state[3].wrapping_add(d),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_examples_come_out() {
        let hex = |bytes: &[u8]| -> String {
            md5(bytes)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        };
        assert_eq!(hex(b""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex(b"message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
        assert_eq!(
            hex(
                b"12345678901234567890123456789012345678901234567890123456789012345678901234567890"
            ),
            "57edf4a22be3c955ac49da2e2107b67a"
        );
        // The length of a gmirror's covered bytes: the padding needs a block of its own.
        assert_eq!(hex(&[b'a'; 119]), "8a7bd0732ed6a28ce75f6dabc90e1613");
    }
}
