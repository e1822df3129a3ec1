//! Digests of headers and data: CRC-32C, each with its own initial value, sent in little endian.
//!
//! Source: "NVMe/TCP Transport Binding", PDU header digest and data digest: the polynomial, initial value and final
//! inversion are those of iSCSI (RFC 3720, 12.1).

use crc_fast::{CrcAlgorithm, Digest};

/// Size of a digest.
pub const DIGEST_BYTES: usize = 4;

/// The digest of pieces that are sent one behind the other.
#[must_use]
pub fn digest_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> [u8; DIGEST_BYTES] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for piece in pieces {
        digest.update(piece);
    }
    // The algorithm has 32 bits.
    (digest.finalize() as u32).to_le_bytes()
}

/// Which digests a connection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Behind each header.
    pub header: bool,
    /// Behind data.
    pub data: bool,
}

impl Digests {
    const HEADER: u8 = 1 << 0;
    const DATA: u8 = 1 << 1;

    /// From the field DGST; bits that mean nothing yet are not looked at.
    #[must_use]
    pub fn decode(bits: u8) -> Self {
        Self {
            header: bits & Self::HEADER != 0,
            data: bits & Self::DATA != 0,
        }
    }

    /// As the field DGST.
    #[must_use]
    pub fn encode(self) -> u8 {
        let header = if self.header { Self::HEADER } else { 0 };
        let data = if self.data { Self::DATA } else { 0 };
        header | data
    }

    /// Bytes behind a header.
    #[must_use]
    pub fn header_bytes(self) -> usize {
        if self.header { DIGEST_BYTES } else { 0 }
    }

    /// Bytes behind data, when there are data.
    #[must_use]
    pub fn data_bytes(self) -> usize {
        if self.data { DIGEST_BYTES } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_that_iscsi_publishes() {
        // RFC 3720, B.4: the examples of CRC-32C, as bytes in the order in which they are sent.
        assert_eq!(digest_of([&[0_u8; 32][..]]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(digest_of([&[0xff_u8; 32][..]]), [0x43, 0xab, 0xa8, 0x62]);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(digest_of([&rising[..]]), [0x4e, 0x79, 0xdd, 0x46]);
        let (one, other) = rising.split_at(7);
        assert_eq!(digest_of([one, other]), [0x4e, 0x79, 0xdd, 0x46]);
    }
}
