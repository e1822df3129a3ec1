//! Handshake: greeting, option requests and option replies.
//!
//! Invariants: the inner lengths of an option must fit its outer length exactly; counts are never allocated from.
//! Source: nbd.md sections 2, 3 and 7.

use super::{
    Fields, MAGIC_GREETING, MAGIC_OLDSTYLE, MAGIC_OPTION, MAGIC_OPTION_REPLY, WireError,
    length_u32, text,
};

/// Handshake flag, both directions: fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// Handshake flag, both directions: no 124 zero bytes after EXPORT_NAME.
pub const FLAG_NO_ZEROES: u16 = 2;
/// Length of the greeting in bytes.
pub const GREETING_BYTES: usize = 18;
/// Length of the head of an option request in bytes.
pub const OPTION_HEAD_BYTES: usize = 16;
/// Length of the head of an option reply in bytes.
pub const REPLY_HEAD_BYTES: usize = 20;

/// Option numbers.
pub mod code {
    /// Choose an export and start, without a way to report errors.
    pub const EXPORT_NAME: u32 = 1;
    /// End the handshake.
    pub const ABORT: u32 = 2;
    /// List exports.
    pub const LIST: u32 = 3;
    /// Start TLS.
    pub const STARTTLS: u32 = 5;
    /// Ask about an export.
    pub const INFO: u32 = 6;
    /// Choose an export and start.
    pub const GO: u32 = 7;
    /// Agree on structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Agree on extended headers.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Reply types of the handshake.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One fact about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Unknown option.
    pub const ERR_UNSUP: u32 = 0x8000_0001;
    /// Forbidden by the server.
    pub const ERR_POLICY: u32 = 0x8000_0002;
    /// Malformed, or at the wrong moment.
    pub const ERR_INVALID: u32 = 0x8000_0003;
    /// Not built in.
    pub const ERR_PLATFORM: u32 = 0x8000_0004;
    /// TLS is needed first.
    pub const ERR_TLS_REQD: u32 = 0x8000_0005;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = 0x8000_0006;
    /// The server is stopping.
    pub const ERR_SHUTDOWN: u32 = 0x8000_0007;
    /// The client must ask for the block size first.
    pub const ERR_BLOCK_SIZE_REQD: u32 = 0x8000_0008;
    /// The option is too large.
    pub const ERR_TOO_BIG: u32 = 0x8000_0009;
    /// Extended headers are needed (or were agreed already).
    pub const ERR_EXT_HEADER_REQD: u32 = 0x8000_000a;
    /// Set in every error.
    pub const ERROR_BIT: u32 = 0x8000_0000;
}

/// Information types of INFO and GO.
pub mod info {
    /// Size and transmission flags; always sent.
    pub const EXPORT: u16 = 0;
    /// Canonical name.
    pub const NAME: u16 = 1;
    /// Description.
    pub const DESCRIPTION: u16 = 2;
    /// Block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export. Source: nbd.md section 3.
pub mod tflag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH works.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA flag works.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Seeks cost time.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM works.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES works.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The DF flag works.
    pub const SEND_DF: u16 = 1 << 7;
    /// FLUSH and FUA hold over all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE works.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// FAST_ZERO works.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
    /// BLOCK_STATUS with a payload works.
    pub const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// The server's greeting.
#[must_use]
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[0..8].copy_from_slice(&MAGIC_GREETING.to_be_bytes());
    bytes[8..16].copy_from_slice(&MAGIC_OPTION.to_be_bytes());
    bytes[16..18].copy_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

/// Checks a server's greeting and gives its handshake flags.
///
/// # Errors
/// Wrong magic, an oldstyle server, or a server that is not fixed newstyle.
pub fn decode_greeting(bytes: &[u8; GREETING_BYTES]) -> Result<u16, WireError> {
    const SHORT: WireError = WireError::Broken("the greeting is too short");
    let mut fields = Fields(bytes);
    let first = fields.u64().ok_or(SHORT)?;
    if first != MAGIC_GREETING {
        return Err(WireError::Magic {
            place: "greeting",
            found: first,
        });
    }
    let second = fields.u64().ok_or(SHORT)?;
    if second == MAGIC_OLDSTYLE {
        return Err(WireError::Broken(
            "the server speaks the oldstyle handshake, which is not supported; use a server of 2011 or later",
        ));
    }
    if second != MAGIC_OPTION {
        return Err(WireError::Magic {
            place: "greeting",
            found: second,
        });
    }
    let flags = fields.u16().ok_or(SHORT)?;
    if flags & FLAG_FIXED_NEWSTYLE == 0 {
        return Err(WireError::Broken(
            "the server does not offer the fixed newstyle handshake",
        ));
    }
    Ok(flags)
}

/// Head of an option request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHead {
    /// Number of the option, known or not.
    pub option: u32,
    /// Length of its data in bytes, not checked yet.
    pub length_bytes: u32,
}

impl OptionHead {
    /// Reads a head.
    ///
    /// # Errors
    /// Wrong magic.
    pub fn decode(bytes: &[u8; OPTION_HEAD_BYTES]) -> Result<Self, WireError> {
        const SHORT: WireError = WireError::Broken("the option is too short");
        let mut fields = Fields(bytes);
        let magic = fields.u64().ok_or(SHORT)?;
        if magic != MAGIC_OPTION {
            return Err(WireError::Magic {
                place: "option",
                found: magic,
            });
        }
        Ok(Self {
            option: fields.u32().ok_or(SHORT)?,
            length_bytes: fields.u32().ok_or(SHORT)?,
        })
    }
}

/// Appends an option request with its data.
pub fn encode_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    out.extend_from_slice(&MAGIC_OPTION.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&length_u32(data.len()).to_be_bytes());
    out.extend_from_slice(data);
}

/// Appends an option reply with its data.
pub fn encode_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&MAGIC_OPTION_REPLY.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&length_u32(data.len()).to_be_bytes());
    out.extend_from_slice(data);
}

/// Head of an option reply, as a client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHead {
    /// The option that is answered.
    pub option: u32,
    /// Type of the reply, see `reply`.
    pub kind: u32,
    /// Length of its data in bytes, not checked yet.
    pub length_bytes: u32,
}

impl OptionReplyHead {
    /// Reads a head.
    ///
    /// # Errors
    /// Wrong magic.
    pub fn decode(bytes: &[u8; REPLY_HEAD_BYTES]) -> Result<Self, WireError> {
        const SHORT: WireError = WireError::Broken("the option reply is too short");
        let mut fields = Fields(bytes);
        let magic = fields.u64().ok_or(SHORT)?;
        if magic != MAGIC_OPTION_REPLY {
            return Err(WireError::Magic {
                place: "option reply",
                found: magic,
            });
        }
        Ok(Self {
            option: fields.u32().ok_or(SHORT)?,
            kind: fields.u32().ok_or(SHORT)?,
            length_bytes: fields.u32().ok_or(SHORT)?,
        })
    }
}

/// Data of INFO and GO: the export and what is asked about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// Name of the export, "" for the default one.
    pub name: &'a str,
    numbers: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    /// Reads the data of the option; `None` when the inner lengths do not fit or the name is no string.
    #[must_use]
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = usize::from(fields.u16()?);
        let numbers = fields.bytes(count * 2)?;
        fields.is_empty().then_some(Self { name, numbers })
    }

    /// Whether information `number` is asked for.
    #[must_use]
    pub fn asks(&self, number: u16) -> bool {
        self.numbers
            .chunks_exact(2)
            .any(|pair| pair == number.to_be_bytes())
    }

    /// Data of the option.
    #[must_use]
    pub fn encode(name: &str, numbers: &[u16]) -> Vec<u8> {
        let mut data = Vec::with_capacity(6 + name.len() + numbers.len() * 2);
        data.extend_from_slice(&length_u32(name.len()).to_be_bytes());
        data.extend_from_slice(name.as_bytes());
        let count = u16::try_from(numbers.len()).expect("a client asks for a handful of facts");
        data.extend_from_slice(&count.to_be_bytes());
        for number in numbers {
            data.extend_from_slice(&number.to_be_bytes());
        }
        data
    }
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, Copy)]
pub struct ContextRequest<'a> {
    /// Name of the export, "" for the default one.
    pub name: &'a str,
    queries: Fields<'a>,
}

impl<'a> ContextRequest<'a> {
    /// Reads the data of the option; `None` when the inner lengths do not fit or something is no string.
    #[must_use]
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = fields.u32()?;
        let queries = fields;
        // Each query takes 4 bytes at least, so the loop ends with the data whatever `count` says.
        for _ in 0..count {
            fields.string()?;
        }
        fields.is_empty().then_some(Self { name, queries })
    }

    /// The queries in order.
    pub fn queries(&self) -> impl Iterator<Item = &'a str> {
        let mut fields = self.queries;
        std::iter::from_fn(move || fields.string())
    }

    /// Data of the option.
    #[must_use]
    pub fn encode(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut data = Vec::new();
        data.extend_from_slice(&length_u32(name.len()).to_be_bytes());
        data.extend_from_slice(name.as_bytes());
        data.extend_from_slice(&length_u32(queries.len()).to_be_bytes());
        for query in queries {
            data.extend_from_slice(&length_u32(query.len()).to_be_bytes());
            data.extend_from_slice(query.as_bytes());
        }
        data
    }
}

/// One fact about an export, as INFO replies carry it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InfoFact<'a> {
    /// Size in bytes and transmission flags.
    Export {
        /// Size in bytes.
        size_bytes: u64,
        /// See `tflag`.
        tflags: u16,
    },
    /// Canonical name.
    Name(&'a str),
    /// Description for people.
    Description(&'a str),
    /// Block sizes in bytes.
    BlockSize {
        /// Unit of requests.
        minimum: u32,
        /// Best unit of requests.
        preferred: u32,
        /// Largest payload.
        payload_max: u32,
    },
    /// A fact that this version does not know; to be ignored.
    Unknown(u16),
}

impl<'a> InfoFact<'a> {
    /// Data of the INFO reply.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut data = Vec::new();
        let mut number = |number: u16| data.extend_from_slice(&number.to_be_bytes());
        match self {
            InfoFact::Export { size_bytes, tflags } => {
                number(info::EXPORT);
                data.extend_from_slice(&size_bytes.to_be_bytes());
                data.extend_from_slice(&tflags.to_be_bytes());
            }
            InfoFact::Name(name) => {
                number(info::NAME);
                data.extend_from_slice(name.as_bytes());
            }
            InfoFact::Description(words) => {
                number(info::DESCRIPTION);
                data.extend_from_slice(words.as_bytes());
            }
            InfoFact::BlockSize {
                minimum,
                preferred,
                payload_max,
            } => {
                number(info::BLOCK_SIZE);
                for value in [minimum, preferred, payload_max] {
                    data.extend_from_slice(&value.to_be_bytes());
                }
            }
            InfoFact::Unknown(unknown) => number(*unknown),
        }
        data
    }

    /// Reads the data of an INFO reply; `None` when it is malformed.
    #[must_use]
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let fact = match fields.u16()? {
            info::EXPORT => InfoFact::Export {
                size_bytes: fields.u64()?,
                tflags: fields.u16()?,
            },
            info::NAME => return text(fields.0).map(InfoFact::Name),
            info::DESCRIPTION => return text(fields.0).map(InfoFact::Description),
            info::BLOCK_SIZE => InfoFact::BlockSize {
                minimum: fields.u32()?,
                preferred: fields.u32()?,
                payload_max: fields.u32()?,
            },
            unknown => return Some(InfoFact::Unknown(unknown)),
        };
        fields.is_empty().then_some(fact)
    }
}

/// Data of a META_CONTEXT reply.
#[must_use]
pub fn encode_context(id: u32, name: &str) -> Vec<u8> {
    let mut data = id.to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data
}

/// Reads the data of a META_CONTEXT reply: id and name.
#[must_use]
pub fn decode_context(data: &[u8]) -> Option<(u32, &str)> {
    let mut fields = Fields(data);
    Some((fields.u32()?, text(fields.0)?))
}

/// Data of a SERVER reply.
#[must_use]
pub fn encode_server(name: &str, description: &str) -> Vec<u8> {
    let mut data = length_u32(name.len()).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(description.as_bytes());
    data
}

/// Reads the data of a SERVER reply: name and description.
#[must_use]
pub fn decode_server(data: &[u8]) -> Option<(&str, &str)> {
    let mut fields = Fields(data);
    Some((fields.string()?, text(fields.0)?))
}
