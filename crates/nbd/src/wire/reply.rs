//! Replies of the transmission phase: simple ones, structured chunks, extended chunks.
//!
//! Source: nbd.md section 5.

use plexum_front::export::Extent;

use super::{
    Errno, Fields, Framing, MAGIC_CHUNK, MAGIC_CHUNK_EXTENDED, MAGIC_SIMPLE_REPLY, WireError,
    length_u32, text,
};

/// Length of a simple reply without data, in bytes.
pub const SIMPLE_BYTES: usize = 16;
/// Length of the head of a structured chunk, in bytes.
pub const STRUCTURED_BYTES: usize = 20;
/// Length of the head of an extended chunk, in bytes.
pub const EXTENDED_BYTES: usize = 32;
/// Most extents of one status chunk.
pub const EXTENTS_MAX: usize = 1 << 20;
/// Reply flag: the last chunk of a request.
pub const FLAG_DONE: u16 = 1;

/// Chunk types.
pub mod chunk {
    /// Nothing; the end.
    pub const NONE: u16 = 0;
    /// Data of a read.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeroes of a read.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents with 32-bit lengths.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents with 64-bit lengths.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// The request failed.
    pub const ERROR: u16 = 0x8001;
    /// The request failed at an offset.
    pub const ERROR_OFFSET: u16 = 0x8002;
    /// Set in every error type.
    pub const ERROR_BIT: u16 = 0x8000;
}

/// Extent flag of `base:allocation`: not allocated.
pub const STATE_HOLE: u32 = 1;
/// Extent flag of `base:allocation`: reads as zeroes.
pub const STATE_ZERO: u32 = 2;

/// A simple reply; data of a successful read follow.
#[must_use]
pub fn encode_simple(error: Option<Errno>, cookie: u64) -> [u8; SIMPLE_BYTES] {
    let mut bytes = [0; SIMPLE_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC_SIMPLE_REPLY.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, Errno::number).to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// Head of a reply or of one chunk of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHead {
    /// A simple reply; data follow if it answers a read without error.
    Simple {
        /// Error number, 0 for success.
        error: u32,
        /// Cookie of the request.
        cookie: u64,
    },
    /// A structured or extended chunk; `length_bytes` of payload follow.
    Chunk(ChunkHead),
}

/// Head of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// The last chunk of its request.
    pub is_done: bool,
    /// See `chunk`.
    pub kind: u16,
    /// Cookie of the request.
    pub cookie: u64,
    /// Offset of the request in bytes (extended chunks; 0 in structured ones).
    pub offset_bytes: u64,
    /// Length of the payload in bytes.
    pub length_bytes: u64,
}

impl ChunkHead {
    /// The head as it goes over the wire, and its length. `framing` is `Structured` or `Extended`.
    ///
    /// # Panics
    /// When the payload of a structured chunk exceeds 32 bits: payloads that we send are far smaller.
    #[must_use]
    pub fn encode(&self, framing: Framing) -> ([u8; EXTENDED_BYTES], usize) {
        let mut bytes = [0; EXTENDED_BYTES];
        let flags = if self.is_done { FLAG_DONE } else { 0 };
        bytes[4..6].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        if framing == Framing::Extended {
            bytes[0..4].copy_from_slice(&MAGIC_CHUNK_EXTENDED.to_be_bytes());
            bytes[16..24].copy_from_slice(&self.offset_bytes.to_be_bytes());
            bytes[24..32].copy_from_slice(&self.length_bytes.to_be_bytes());
            (bytes, EXTENDED_BYTES)
        } else {
            let length = u32::try_from(self.length_bytes).expect("structured lengths are 32 bits");
            bytes[0..4].copy_from_slice(&MAGIC_CHUNK.to_be_bytes());
            bytes[16..20].copy_from_slice(&length.to_be_bytes());
            (bytes, STRUCTURED_BYTES)
        }
    }
}

impl ReplyHead {
    /// Length in bytes of the head that starts with `magic` (its first 4 bytes).
    ///
    /// # Errors
    /// A magic that does not belong to `framing`.
    pub fn bytes_of(framing: Framing, magic: [u8; 4]) -> Result<usize, WireError> {
        match (framing, u32::from_be_bytes(magic)) {
            (Framing::Simple | Framing::Structured, MAGIC_SIMPLE_REPLY) => Ok(SIMPLE_BYTES),
            (Framing::Structured, MAGIC_CHUNK) => Ok(STRUCTURED_BYTES),
            (Framing::Extended, MAGIC_CHUNK_EXTENDED) => Ok(EXTENDED_BYTES),
            (_, found) => Err(WireError::Magic {
                place: "reply",
                found: u64::from(found),
            }),
        }
    }

    /// Reads a head of `bytes_of` bytes.
    ///
    /// # Errors
    /// Wrong magic, unknown reply flags, or too few bytes.
    pub fn decode(framing: Framing, bytes: &[u8]) -> Result<Self, WireError> {
        const SHORT: WireError = WireError::Broken("the reply is too short");
        let mut fields = Fields(bytes);
        let magic = fields.u32().ok_or(SHORT)?;
        Self::bytes_of(framing, magic.to_be_bytes())?;
        Self::fields(magic, fields).ok_or(SHORT)?
    }

    fn fields(magic: u32, mut fields: Fields<'_>) -> Option<Result<Self, WireError>> {
        if magic == MAGIC_SIMPLE_REPLY {
            return Some(Ok(ReplyHead::Simple {
                error: fields.u32()?,
                cookie: fields.u64()?,
            }));
        }
        let flags = fields.u16()?;
        if flags & !FLAG_DONE != 0 {
            return Some(Err(WireError::Broken("a reply has unknown flags")));
        }
        let (kind, cookie) = (fields.u16()?, fields.u64()?);
        let (offset_bytes, length_bytes) = if magic == MAGIC_CHUNK_EXTENDED {
            (fields.u64()?, fields.u64()?)
        } else {
            (0, u64::from(fields.u32()?))
        };
        Some(Ok(ReplyHead::Chunk(ChunkHead {
            is_done: flags & FLAG_DONE != 0,
            kind,
            cookie,
            offset_bytes,
            length_bytes,
        })))
    }
}

/// Payload of an ERROR chunk.
#[must_use]
pub fn encode_error(error: Errno, message: &str) -> Vec<u8> {
    let mut payload = error.number().to_be_bytes().to_vec();
    let length = u16::try_from(message.len()).expect("our messages are a line long");
    payload.extend_from_slice(&length.to_be_bytes());
    payload.extend_from_slice(message.as_bytes());
    payload
}

/// Reads the payload of an ERROR or ERROR_OFFSET chunk (`kind`): the error and its text.
/// Error chunks of an unknown type need not have this shape: they count as EINVAL without text.
///
/// # Errors
/// A malformed payload of a known type, or an error number of 0.
pub fn decode_error(kind: u16, payload: &[u8]) -> Result<(Errno, &str), WireError> {
    const BROKEN: WireError = WireError::Broken("an error chunk is malformed");
    if kind != chunk::ERROR && kind != chunk::ERROR_OFFSET {
        return Ok((Errno::Einval, ""));
    }
    let mut fields = Fields(payload);
    let number = fields.u32().ok_or(BROKEN)?;
    let length = fields.u16().ok_or(BROKEN)?;
    let message = fields.bytes(usize::from(length)).ok_or(BROKEN)?;
    if kind == chunk::ERROR_OFFSET {
        fields.u64().ok_or(BROKEN)?;
    }
    if !fields.is_empty() {
        return Err(BROKEN);
    }
    let error = Errno::from_number(number).ok_or(BROKEN)?;
    Ok((error, text(message).unwrap_or("")))
}

/// Flags of an extent in `base:allocation`.
#[must_use]
pub fn allocation_state(extent: &Extent) -> u32 {
    let hole = if extent.is_hole { STATE_HOLE } else { 0 };
    hole | if extent.is_zero { STATE_ZERO } else { 0 }
}

/// Appends the payload of a status chunk of context `id`: 64-bit lengths and a count for `Extended`, else 32-bit ones.
///
/// # Panics
/// When an extent exceeds 32 bits without extended headers: the session cuts extents to the request's range.
pub fn encode_extents(out: &mut Vec<u8>, framing: Framing, id: u32, extents: &[Extent]) {
    out.extend_from_slice(&id.to_be_bytes());
    let is_extended = framing == Framing::Extended;
    if is_extended {
        out.extend_from_slice(&length_u32(extents.len()).to_be_bytes());
    }
    for extent in extents {
        let state = allocation_state(extent);
        if is_extended {
            out.extend_from_slice(&extent.length_bytes.to_be_bytes());
            out.extend_from_slice(&u64::from(state).to_be_bytes());
        } else {
            let length = u32::try_from(extent.length_bytes).expect("compact extents are 32 bits");
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&state.to_be_bytes());
        }
    }
}

/// Reads the payload of a status chunk: context id and extents of `base:allocation`.
///
/// # Errors
/// A malformed payload, no extents, or an extent of length 0.
pub fn decode_extents(kind: u16, payload: &[u8]) -> Result<(u32, Vec<Extent>), WireError> {
    const BROKEN: WireError = WireError::Broken("a block status chunk is malformed");
    let mut fields = Fields(payload);
    let id = fields.u32().ok_or(BROKEN)?;
    let is_extended = kind == chunk::BLOCK_STATUS_EXT;
    let unit = if is_extended { 16 } else { 8 };
    let count = if is_extended {
        usize::try_from(fields.u32().ok_or(BROKEN)?).map_err(|_| BROKEN)?
    } else {
        fields.0.len() / unit
    };
    if count == 0 || count.checked_mul(unit) != Some(fields.0.len()) {
        return Err(BROKEN);
    }
    // The count was compared with the bytes at hand, so this allocates no more than the payload did.
    let mut extents = Vec::with_capacity(count);
    while !fields.is_empty() {
        let (length_bytes, state) = if is_extended {
            (fields.u64().ok_or(BROKEN)?, fields.u64().ok_or(BROKEN)?)
        } else {
            let length = fields.u32().ok_or(BROKEN)?;
            (u64::from(length), u64::from(fields.u32().ok_or(BROKEN)?))
        };
        if length_bytes == 0 {
            return Err(BROKEN);
        }
        extents.push(Extent {
            length_bytes,
            is_hole: state & u64::from(STATE_HOLE) != 0,
            is_zero: state & u64::from(STATE_ZERO) != 0,
        });
    }
    Ok((id, extents))
}
