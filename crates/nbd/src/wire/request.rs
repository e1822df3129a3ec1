//! Requests of the transmission phase, compact and extended.
//!
//! Source: nbd.md section 4.

use super::{Fields, Framing, MAGIC_REQUEST, MAGIC_REQUEST_EXTENDED, WireError};

/// Length of a compact request in bytes.
pub const COMPACT_BYTES: usize = 28;
/// Length of an extended request in bytes.
pub const EXTENDED_BYTES: usize = 32;

/// Command numbers.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the payload follows the header.
    pub const WRITE: u16 = 1;
    /// End the session.
    pub const DISC: u16 = 2;
    /// Make answered writes durable.
    pub const FLUSH: u16 = 3;
    /// Hint: the range is unused.
    pub const TRIM: u16 = 4;
    /// Hint: the range will be read.
    pub const CACHE: u16 = 5;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Ask for metadata.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Command flags.
pub mod flag {
    /// Durable when answered.
    pub const FUA: u16 = 1;
    /// WRITE_ZEROES: keep the space allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// READ: one content chunk.
    pub const DF: u16 = 1 << 2;
    /// BLOCK_STATUS: one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES: fail at once if it is not fast.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// Extended requests: `length` bytes of payload follow.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Header of a request, not judged yet: any numbers are possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// See `flag`.
    pub flags: u16,
    /// See `command`.
    pub command: u16,
    /// Opaque number of the client, returned in every reply.
    pub cookie: u64,
    /// Offset in bytes.
    pub offset_bytes: u64,
    /// Length in bytes: of the range or, where one follows, of the payload.
    pub length_bytes: u64,
}

/// Length of a request header in bytes.
#[must_use]
pub fn header_bytes(framing: Framing) -> usize {
    match framing {
        Framing::Extended => EXTENDED_BYTES,
        Framing::Simple | Framing::Structured => COMPACT_BYTES,
    }
}

impl Request {
    /// The header as it goes over the wire, and its length.
    ///
    /// # Panics
    /// When a length above 32 bits meets a compact header: the client checks that before.
    #[must_use]
    pub fn encode(&self, framing: Framing) -> ([u8; EXTENDED_BYTES], usize) {
        let mut bytes = [0; EXTENDED_BYTES];
        let is_extended = framing == Framing::Extended;
        let magic = if is_extended {
            MAGIC_REQUEST_EXTENDED
        } else {
            MAGIC_REQUEST
        };
        bytes[0..4].copy_from_slice(&magic.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset_bytes.to_be_bytes());
        if is_extended {
            bytes[24..32].copy_from_slice(&self.length_bytes.to_be_bytes());
        } else {
            let length = u32::try_from(self.length_bytes).expect("compact lengths are 32 bits");
            bytes[24..28].copy_from_slice(&length.to_be_bytes());
        }
        (bytes, header_bytes(framing))
    }

    /// Reads a header of `header_bytes(framing)` bytes.
    ///
    /// # Errors
    /// Wrong magic or too few bytes. Everything else is judged later, because it can be answered.
    pub fn decode(framing: Framing, bytes: &[u8]) -> Result<Self, WireError> {
        Self::fields(framing, Fields(bytes))
            .unwrap_or(Err(WireError::Broken("the request is too short")))
    }

    fn fields(framing: Framing, mut fields: Fields<'_>) -> Option<Result<Self, WireError>> {
        let is_extended = framing == Framing::Extended;
        let magic = fields.u32()?;
        let expected = if is_extended {
            MAGIC_REQUEST_EXTENDED
        } else {
            MAGIC_REQUEST
        };
        if magic != expected {
            return Some(Err(WireError::Magic {
                place: "request",
                found: u64::from(magic),
            }));
        }
        Some(Ok(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset_bytes: fields.u64()?,
            length_bytes: if is_extended {
                fields.u64()?
            } else {
                u64::from(fields.u32()?)
            },
        }))
    }
}

/// Payload of BLOCK_STATUS with PAYLOAD_LEN: the range's length and the contexts asked for.
///
/// `None` when it is malformed, an id is not among `known`, or an id comes twice.
#[must_use]
pub fn decode_status_payload(payload: &[u8], known: &[u32]) -> Option<(u64, Vec<u32>)> {
    let mut fields = Fields(payload);
    let length_bytes = fields.u64()?;
    let mut ids = Vec::new();
    while !fields.is_empty() {
        let id = fields.u32()?;
        // Ids come at most once, so there are never more of them than `known` has.
        if !known.contains(&id) || ids.contains(&id) {
            return None;
        }
        ids.push(id);
    }
    Some((length_bytes, ids))
}

/// Payload of BLOCK_STATUS with PAYLOAD_LEN.
#[must_use]
pub fn encode_status_payload(length_bytes: u64, ids: &[u32]) -> Vec<u8> {
    let mut payload = length_bytes.to_be_bytes().to_vec();
    for id in ids {
        payload.extend_from_slice(&id.to_be_bytes());
    }
    payload
}
