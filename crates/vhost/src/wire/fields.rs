//! The fields of messages: what each payload is made of.

use super::{REGIONS_MAX, WireError};

/// A region of a machine's memory, in a file that comes with the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Address by which descriptors name it.
    pub guest_address: u64,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Address by which messages name it: the front end's own.
    pub user_address: u64,
    /// Where it begins in its file, in bytes.
    pub file_offset_bytes: u64,
}

/// A number for a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingValue {
    /// Which ring.
    pub ring: u32,
    /// What it is given.
    pub value: u32,
}

/// Where a ring lies, in addresses of the front end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingPlace {
    /// Which ring.
    pub ring: u32,
    /// Bit 0: changes of the used ring are to be logged.
    pub flags: u32,
    /// The table of descriptors.
    pub descriptors: u64,
    /// The ring of what was done.
    pub used: u64,
    /// The ring of what is to be done.
    pub available: u64,
    /// Where changes of the used ring are logged.
    pub log: u64,
}

/// An event file for a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFile {
    /// Which ring: 0 to 255.
    pub ring: u8,
    /// A file comes with the message.
    pub has_file: bool,
}

/// A part of the description of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigPart {
    /// Where it begins.
    pub offset_bytes: u32,
    /// Who writes: 0 a driver, 1 a migration.
    pub flags: u32,
    /// The bytes; of a question their number counts.
    pub bytes: Vec<u8>,
}

/// The file in which requests under way are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightArea {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Where it begins in its file, in bytes.
    pub file_offset_bytes: u64,
    /// Queues in it.
    pub queues: u16,
    /// Descriptors of each queue.
    pub descriptors: u16,
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

impl Region {
    pub(super) const BYTES: usize = 32;

    pub(super) fn decode(bytes: &[u8]) -> Self {
        Self {
            guest_address: u64_at(bytes, 0),
            size_bytes: u64_at(bytes, 8),
            user_address: u64_at(bytes, 16),
            file_offset_bytes: u64_at(bytes, 24),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for word in [
            self.guest_address,
            self.size_bytes,
            self.user_address,
            self.file_offset_bytes,
        ] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
    }
}

impl RingFile {
    /// The low byte is the ring; bit 8: there is no file.
    const NO_FILE: u64 = 1 << 8;

    pub(super) fn decode(request: u32, word: u64) -> Result<Self, WireError> {
        let what = "bits beside the ring and its file are set";
        if word & !(0xff | Self::NO_FILE) != 0 {
            return Err(WireError::Field { request, what });
        }
        Ok(Self {
            ring: (word & 0xff) as u8,
            has_file: word & Self::NO_FILE == 0,
        })
    }

    pub(super) fn encode(self) -> u64 {
        u64::from(self.ring) | if self.has_file { 0 } else { Self::NO_FILE }
    }
}

impl ConfigPart {
    const HEAD_BYTES: usize = 12;

    pub(super) fn decode(request: u32, payload: &[u8]) -> Result<Self, WireError> {
        let (Some(head), Some(bytes)) = (
            payload.get(..Self::HEAD_BYTES),
            payload.get(Self::HEAD_BYTES..),
        ) else {
            return Err(wrong_length(request, payload));
        };
        if u32_at(head, 4) as usize != bytes.len() {
            let what = "the size of the part is not that of the payload";
            return Err(WireError::Field { request, what });
        }
        Ok(Self {
            offset_bytes: u32_at(head, 0),
            flags: u32_at(head, 8),
            bytes: bytes.to_vec(),
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::HEAD_BYTES + self.bytes.len());
        for word in [self.offset_bytes, self.bytes.len() as u32, self.flags] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
        out.extend_from_slice(&self.bytes);
        out
    }
}

impl InflightArea {
    const BYTES: usize = 20;
    /// The same with the padding that a C compiler adds: QEMU sends it, and takes no other answer.
    const PADDED_BYTES: usize = 24;

    pub(super) fn decode(request: u32, payload: &[u8]) -> Result<Self, WireError> {
        if ![Self::BYTES, Self::PADDED_BYTES].contains(&payload.len()) {
            return Err(wrong_length(request, payload));
        }
        Ok(Self {
            size_bytes: u64_at(payload, 0),
            file_offset_bytes: u64_at(payload, 8),
            queues: u16_at(payload, 16),
            descriptors: u16_at(payload, 18),
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::PADDED_BYTES);
        out.extend_from_slice(&self.size_bytes.to_ne_bytes());
        out.extend_from_slice(&self.file_offset_bytes.to_ne_bytes());
        out.extend_from_slice(&self.queues.to_ne_bytes());
        out.extend_from_slice(&self.descriptors.to_ne_bytes());
        out.resize(Self::PADDED_BYTES, 0);
        out
    }
}

pub(super) fn wrong_length(request: u32, payload: &[u8]) -> WireError {
    WireError::Length {
        request,
        found_bytes: payload.len(),
    }
}

/// A payload of exactly `count` bytes.
pub(super) fn exactly(request: u32, payload: &[u8], count: usize) -> Result<&[u8], WireError> {
    match payload.len() == count {
        true => Ok(payload),
        false => Err(wrong_length(request, payload)),
    }
}

pub(super) fn table(request: u32, payload: &[u8]) -> Result<Vec<Region>, WireError> {
    let head = payload.get(..8).ok_or(wrong_length(request, payload))?;
    let count = u32_at(head, 0) as usize;
    if count > REGIONS_MAX {
        let what = "more regions than there may be";
        return Err(WireError::Field { request, what });
    }
    // User-mode Linux sends room for two regions with one.
    let regions = payload[8..].chunks_exact(Region::BYTES);
    match regions.remainder().is_empty() && regions.len() >= count {
        true => Ok(regions.take(count).map(Region::decode).collect()),
        false => Err(wrong_length(request, payload)),
    }
}

pub(super) fn ring_value(value: RingValue) -> Vec<u8> {
    let mut out = value.ring.to_ne_bytes().to_vec();
    out.extend_from_slice(&value.value.to_ne_bytes());
    out
}
