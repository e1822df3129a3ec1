//! The units that a connection is made of (PDUs): their heads, and what is allowed to come.
//!
//! Invariants:
//! - no length of a head is used before it was checked: headers have one length each, data at most what was announced;
//! - a head that breaks a rule ends the connection with a `Fault`, which says where.
//!
//! Source: "NVMe/TCP Transport Binding", "NVMe/TCP PDUs".

use super::digest::Digests;
use super::{put, u16_at, u32_at};

/// Size of the common head.
pub const HEAD_BYTES: usize = 8;
/// Size of ICReq and ICResp.
pub const IC_BYTES: usize = 128;
/// Size of the headers that carry data, of R2T, and of an answer's capsule.
pub const DATA_HEADER_BYTES: usize = 24;
/// Size of a command's capsule without its data.
pub const COMMAND_HEADER_BYTES: usize = 72;
/// Size of the header of a termination request; a part of what was wrong follows, at most `IC_BYTES`.
pub const TERM_HEADER_BYTES: usize = 24;

/// Data that a command's capsule may carry: small writes need no question.
pub const IN_CAPSULE_BYTES_MAX: u32 = 8192;
/// Data of one H2CData PDU (MAXH2CDATA): all of the largest command.
pub const HOST_DATA_BYTES_MAX: u32 = 4 << 20;

/// What a PDU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Initialize Connection Request.
    IcReq,
    /// Initialize Connection Response.
    IcResp,
    /// The host ends the connection, and says why.
    HostTerm,
    /// The controller ends the connection, and says why.
    ControllerTerm,
    /// A command, with or without data.
    Command,
    /// The answer to a command.
    Response,
    /// Data of a write that were asked for.
    HostData,
    /// Data of a read.
    ControllerData,
    /// Ready to Transfer: data of a write are asked for.
    ReadyToTransfer,
}

impl Kind {
    /// Its number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::IcReq => 0,
            Self::IcResp => 1,
            Self::HostTerm => 2,
            Self::ControllerTerm => 3,
            Self::Command => 4,
            Self::Response => 5,
            Self::HostData => 6,
            Self::ControllerData => 7,
            Self::ReadyToTransfer => 9,
        }
    }

    /// What a host may send, by its number.
    #[must_use]
    pub fn of_host(code: u8) -> Option<Self> {
        let all = [Self::IcReq, Self::HostTerm, Self::Command, Self::HostData];
        all.into_iter().find(|kind| kind.code() == code)
    }

    /// Length of its header with the common head, without a digest.
    #[must_use]
    pub fn header_bytes(self) -> usize {
        match self {
            Self::IcReq | Self::IcResp => IC_BYTES,
            Self::HostTerm | Self::ControllerTerm => TERM_HEADER_BYTES,
            Self::Command => COMMAND_HEADER_BYTES,
            Self::Response | Self::HostData | Self::ControllerData | Self::ReadyToTransfer => {
                DATA_HEADER_BYTES
            }
        }
    }

    fn data_bytes_max(self) -> u32 {
        match self {
            Self::HostTerm | Self::ControllerTerm => IC_BYTES as u32,
            Self::Command => IN_CAPSULE_BYTES_MAX,
            Self::HostData | Self::ControllerData => HOST_DATA_BYTES_MAX,
            Self::IcReq | Self::IcResp | Self::Response | Self::ReadyToTransfer => 0,
        }
    }

    /// Connections begin and end without digests.
    fn digests(self, agreed: Digests) -> Digests {
        match self {
            Self::IcReq | Self::IcResp | Self::HostTerm | Self::ControllerTerm => {
                Digests::default()
            }
            _ => agreed,
        }
    }
}

/// Bits of FLAGS.
pub mod flag {
    /// A digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// A digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// No more data of this command, or of this R2T, follow.
    pub const LAST: u8 = 1 << 2;
    /// The command is done, and no capsule says so.
    pub const SUCCESS: u8 = 1 << 3;
}

/// The common head of all PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// PDU-Type.
    pub code: u8,
    /// FLAGS.
    pub flags: u8,
    /// HLEN: length of the header, without a digest.
    pub header_bytes: u8,
    /// PDO: where data begin; 0 without data.
    pub data_offset_bytes: u8,
    /// PLEN: length of everything.
    pub total_bytes: u32,
}

/// What was wrong with a PDU: Fatal Error Status, and the byte of the header that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (byte {at} of a PDU's header)")]
pub struct Fault {
    /// FES.
    pub reason: Reason,
    /// FEI where the reason is about a field: its offset in the header.
    pub at: u32,
}

/// Fatal Error Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A field of a header has a value that it may not have.
    #[error("a field of a header has a value that it cannot have")]
    HeaderField,
    /// A PDU that may not come now.
    #[error("a PDU came that may not come now")]
    Sequence,
    /// The digest of a header is wrong.
    #[error("the digest of a header is wrong")]
    HeaderDigest,
    /// Data that nobody has asked for.
    #[error("data came that nobody has asked for")]
    DataRange,
    /// More than was announced.
    #[error("more came than was announced")]
    Limit,
    /// A parameter of the connection that is not known here.
    #[error("a parameter of the connection is not supported")]
    Parameter,
}

impl Reason {
    fn code(self) -> u16 {
        match self {
            Self::HeaderField => 1,
            Self::Sequence => 2,
            Self::HeaderDigest => 3,
            Self::DataRange => 4,
            Self::Limit => 5,
            Self::Parameter => 6,
        }
    }

    /// A fault of this kind at a byte of the header.
    #[must_use]
    pub fn at(self, at: u32) -> Fault {
        Fault { reason: self, at }
    }
}

/// What follows a head, as checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// Length of the header with the common head, without a digest.
    pub header_bytes: usize,
    /// Length of the digest behind it.
    pub header_digest_bytes: usize,
    /// Bytes that mean nothing between that and the data.
    pub pad_bytes: usize,
    /// Length of the data.
    pub data_bytes: usize,
    /// Length of the digest behind them.
    pub data_digest_bytes: usize,
}

impl Head {
    /// From its bytes.
    #[must_use]
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Self {
        Self {
            code: bytes[0],
            flags: bytes[1],
            header_bytes: bytes[2],
            data_offset_bytes: bytes[3],
            total_bytes: u32_at(bytes, 4),
        }
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.code;
        bytes[1] = self.flags;
        bytes[2] = self.header_bytes;
        bytes[3] = self.data_offset_bytes;
        put(&mut bytes, 4, &self.total_bytes.to_le_bytes());
        bytes
    }

    /// The head of a PDU; its data begin at a multiple of `alignment_bytes`, at most 128.
    #[must_use]
    pub fn of(
        kind: Kind,
        flags: u8,
        data_bytes: u32,
        agreed: Digests,
        alignment_bytes: u8,
    ) -> Self {
        let digests = kind.digests(agreed);
        let mut flags = flags;
        if digests.header {
            flags |= flag::HEADER_DIGEST;
        }
        let header_bytes = kind.header_bytes();
        let mut total_bytes = (header_bytes + digests.header_bytes()) as u32;
        let mut data_offset_bytes = 0;
        if data_bytes > 0 {
            total_bytes = total_bytes.next_multiple_of(u32::from(alignment_bytes.max(1)));
            data_offset_bytes = total_bytes as u8; // at most 128
            total_bytes += data_bytes + digests.data_bytes() as u32;
            if digests.data {
                flags |= flag::DATA_DIGEST;
            }
        }
        Self {
            code: kind.code(),
            flags,
            header_bytes: header_bytes as u8, // at most 128
            data_offset_bytes,
            total_bytes,
        }
    }

    /// Checks the head of a PDU that a host has sent, on a connection with these digests.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn check(&self, agreed: Digests) -> Result<Frame, Fault> {
        let kind = Kind::of_host(self.code).ok_or(Reason::HeaderField.at(0))?;
        let digests = kind.digests(agreed);
        let header_bytes = kind.header_bytes();
        if usize::from(self.header_bytes) != header_bytes {
            return Err(Reason::HeaderField.at(2));
        }
        if (self.flags & flag::HEADER_DIGEST != 0) != digests.header {
            return Err(Reason::HeaderField.at(1));
        }
        let mut frame = Frame {
            kind,
            header_bytes,
            header_digest_bytes: digests.header_bytes(),
            pad_bytes: 0,
            data_bytes: 0,
            data_digest_bytes: 0,
        };
        let begin = header_bytes + frame.header_digest_bytes;
        let total = usize::try_from(self.total_bytes).map_err(|_| Reason::Limit.at(4))?;
        if total == begin {
            return match kind {
                Kind::HostData => Err(Reason::HeaderField.at(4)), // its purpose is its data
                _ => Ok(frame),
            };
        }
        let offset = match (kind, self.data_offset_bytes) {
            (Kind::HostTerm, _) => header_bytes, // it has no field for that
            (_, offset) => usize::from(offset),
        };
        if offset < begin || !offset.is_multiple_of(4) {
            return Err(Reason::HeaderField.at(3));
        }
        if digests.data != (self.flags & flag::DATA_DIGEST != 0) {
            return Err(Reason::HeaderField.at(1));
        }
        frame.data_digest_bytes = digests.data_bytes();
        frame.pad_bytes = offset - begin;
        let rest = total.checked_sub(offset + frame.data_digest_bytes);
        frame.data_bytes = rest
            .filter(|rest| *rest > 0)
            .ok_or(Reason::HeaderField.at(4))?;
        if frame.data_bytes > kind.data_bytes_max() as usize {
            return Err(Reason::Limit.at(4));
        }
        Ok(frame)
    }
}

/// The version of the PDU format that is spoken: PFV 0.
const PDU_FORMAT: u16 = 0;

/// What a host wishes of a connection: ICReq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcRequest {
    /// Alignment that the host wants for data of reads, in bytes: 4 to 128.
    pub alignment_bytes: u8,
    /// Digests that it wants.
    pub digests: Digests,
    /// R2Ts of one command that may wait for their data at the same time; at least 1.
    pub transfers_max: u64,
}

impl IcRequest {
    /// From the whole PDU.
    ///
    /// # Errors
    /// A version or an alignment that is not known.
    pub fn decode(bytes: &[u8; IC_BYTES]) -> Result<Self, Fault> {
        if u16_at(bytes, 8) != PDU_FORMAT {
            return Err(Reason::Parameter.at(8));
        }
        if bytes[10] > 31 {
            return Err(Reason::HeaderField.at(10));
        }
        Ok(Self {
            alignment_bytes: (bytes[10] + 1) * 4, // HPDA counts words, from 0
            digests: Digests::decode(bytes[11]),
            transfers_max: u64::from(u32_at(bytes, 12)) + 1,
        })
    }

    /// The whole PDU, for hosts.
    #[must_use]
    pub fn encode(&self) -> [u8; IC_BYTES] {
        let mut bytes = [0; IC_BYTES];
        let head = Head::of(Kind::IcReq, 0, 0, Digests::default(), 4);
        put(&mut bytes, 0, &head.encode());
        put(&mut bytes, 8, &PDU_FORMAT.to_le_bytes());
        bytes[10] = self.alignment_bytes / 4 - 1;
        bytes[11] = self.digests.encode();
        let transfers = self.transfers_max.saturating_sub(1);
        let transfers = u32::try_from(transfers).unwrap_or(u32::MAX);
        put(&mut bytes, 12, &transfers.to_le_bytes());
        bytes
    }
}

/// What a connection has: ICResp.
#[must_use]
pub fn encode_ic_response(digests: Digests) -> [u8; IC_BYTES] {
    let mut bytes = [0; IC_BYTES];
    let head = Head::of(Kind::IcResp, 0, 0, Digests::default(), 4);
    put(&mut bytes, 0, &head.encode());
    put(&mut bytes, 8, &PDU_FORMAT.to_le_bytes());
    bytes[10] = 0; // CPDA: data of writes at multiples of 4 bytes
    bytes[11] = digests.encode();
    put(&mut bytes, 12, &HOST_DATA_BYTES_MAX.to_le_bytes());
    bytes
}

/// Which data of which command: the header of H2CData and C2HData, and what R2T asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// CCCID: the command.
    pub command: u16,
    /// TTAG: which R2T; means nothing for data of reads.
    pub tag: u16,
    /// Where the data begin in all data of the command.
    pub offset_bytes: u32,
    /// How many there are.
    pub count_bytes: u32,
}

impl Transfer {
    /// From a whole header.
    #[must_use]
    pub fn decode(header: &[u8; DATA_HEADER_BYTES]) -> Self {
        Self {
            command: u16_at(header, 8),
            tag: u16_at(header, 10),
            offset_bytes: u32_at(header, 12),
            count_bytes: u32_at(header, 16),
        }
    }

    /// As a whole header.
    #[must_use]
    pub fn encode(&self, head: &Head) -> [u8; DATA_HEADER_BYTES] {
        let mut bytes = [0; DATA_HEADER_BYTES];
        put(&mut bytes, 0, &head.encode());
        put(&mut bytes, 8, &self.command.to_le_bytes());
        put(&mut bytes, 10, &self.tag.to_le_bytes());
        put(&mut bytes, 12, &self.offset_bytes.to_le_bytes());
        put(&mut bytes, 16, &self.count_bytes.to_le_bytes());
        bytes
    }
}

/// The PDU that ends a connection: C2HTermReq, with the header that was wrong.
#[must_use]
pub fn encode_term(fault: Fault, header: &[u8]) -> Vec<u8> {
    let shown = &header[..header.len().min(IC_BYTES)];
    let mut bytes = vec![0; TERM_HEADER_BYTES];
    let mut head = Head::of(Kind::ControllerTerm, 0, 0, Digests::default(), 4);
    head.total_bytes += shown.len() as u32; // at most 128
    put(&mut bytes, 0, &head.encode());
    put(&mut bytes, 8, &fault.reason.code().to_le_bytes());
    put(&mut bytes, 10, &fault.at.to_le_bytes());
    bytes.extend_from_slice(shown);
    bytes
}
