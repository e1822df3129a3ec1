//! The messages of vhost-user as bytes: what the front end (QEMU, say) asks, and what is answered.
//!
//! Source of all numbers and fields: QEMU's `docs/interop/vhost-user.rst`. Numbers are in the byte order of the
//! machine.
//!
//! Invariants: a message is accepted only with the payload that it has (room for more regions may follow those of a
//! table); what is accepted and encoded again is the same message.

mod fields;

pub use fields::{ConfigPart, InflightArea, Region, RingFile, RingPlace, RingValue};
use fields::{exactly, ring_value, table, u32_at, u64_at};

/// Size in bytes of a header: three words of 32 bits, request, flags, size of the payload.
pub const HEADER_BYTES: usize = 12;
/// Longest payload in bytes that is taken: more than any message here has.
pub const PAYLOAD_BYTES_MAX: usize = 512;
/// Most regions of memory that a machine may have, and most files that come with one message.
pub const REGIONS_MAX: usize = 8;
/// Most regions that may be added one by one.
pub const SLOTS_MAX: usize = 32;
/// Size in bytes of the description of a device, at most.
pub const CONFIG_BYTES_MAX: usize = 256;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const IS_REPLY: u32 = 1 << 2;
const NEEDS_REPLY: u32 = 1 << 3;

/// Numbers of requests of a front end.
mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const RESET_DEVICE: u32 = 34;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
}

/// Number of the one request that goes the other way: the description of the device has changed.
const BACKEND_CONFIG_CHANGE: u32 = 2;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The two low bits of the flags are the version.
    #[error("message of version {0}, and 1 is the one there is")]
    Version(u32),
    /// Longer than any message is.
    #[error("a payload of {0} bytes, and no message has more than {PAYLOAD_BYTES_MAX}")]
    TooLong(u32),
    /// Of another length than this message has.
    #[error("request {request} with a payload of {found_bytes} bytes")]
    Length {
        /// Its number.
        request: u32,
        /// Its payload.
        found_bytes: usize,
    },
    /// A field says what it cannot.
    #[error("request {request}: {what}")]
    Field {
        /// Its number.
        request: u32,
        /// What is wrong.
        what: &'static str,
    },
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the request.
    pub request: u32,
    /// It is to be acknowledged, when that was agreed on.
    pub needs_reply: bool,
    /// It is an answer.
    pub is_reply: bool,
    /// Size of the payload in bytes.
    pub payload_bytes: usize,
}

impl Header {
    /// Decodes the head of a message.
    ///
    /// # Errors
    /// Another version, or a payload longer than any.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let (request, flags, size) = (u32_at(bytes, 0), u32_at(bytes, 4), u32_at(bytes, 8));
        if flags & VERSION_MASK != VERSION {
            return Err(WireError::Version(flags & VERSION_MASK));
        }
        let payload_bytes = usize::try_from(size).unwrap_or(usize::MAX);
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(WireError::TooLong(size));
        }
        Ok(Self {
            request,
            needs_reply: flags & NEEDS_REPLY != 0,
            is_reply: flags & IS_REPLY != 0,
            payload_bytes,
        })
    }

    /// Encodes it.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut flags = VERSION;
        if self.needs_reply {
            flags |= NEEDS_REPLY;
        }
        if self.is_reply {
            flags |= IS_REPLY;
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.request.to_ne_bytes());
        bytes[4..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..].copy_from_slice(&(self.payload_bytes as u32).to_ne_bytes());
        bytes
    }
}

/// What a front end asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Which features of the device there are.
    GetFeatures,
    /// Those that the driver takes.
    SetFeatures(u64),
    /// The beginning of a session.
    SetOwner,
    /// Its end; not used any more.
    ResetOwner,
    /// All of the machine's memory, a file for each region.
    SetMemoryTable(Vec<Region>),
    /// Descriptors of a ring.
    SetRingSize(RingValue),
    /// Where a ring lies.
    SetRingPlace(RingPlace),
    /// Which entry of a ring is the next to be done.
    SetRingBase(RingValue),
    /// Stops a ring, and asks which entry is the next to be done. The value means nothing.
    GetRingBase(RingValue),
    /// The event by which a ring tells of work.
    SetKick(RingFile),
    /// The event by which work that was done is told.
    SetCall(RingFile),
    /// The event by which a broken ring is told.
    SetError(RingFile),
    /// Which features of the protocol there are.
    GetProtocolFeatures,
    /// Those that the front end takes.
    SetProtocolFeatures(u64),
    /// How many queues there can be.
    GetQueueCount,
    /// 1: a ring is worked on; 0: it waits.
    SetRingEnabled(RingValue),
    /// A socket for requests the other way comes with it.
    SetBackendChannel,
    /// A part of the description of the device.
    GetConfig(ConfigPart),
    /// The driver changes a part of it.
    SetConfig(ConfigPart),
    /// A file to record requests under way.
    GetInflight(InflightArea),
    /// The one that an earlier session had.
    SetInflight(InflightArea),
    /// The device is to be as it was at first.
    ResetDevice,
    /// How many regions may be added.
    GetMemorySlots,
    /// One more region.
    AddRegion(Region),
    /// One less.
    RemoveRegion(Region),
    /// What is not known here.
    Other(u32),
}

impl Message {
    /// Decodes the payload that came behind `header`.
    ///
    /// # Errors
    /// It is none of this request; unknown requests are `Other`.
    pub fn decode(header: &Header, payload: &[u8]) -> Result<Self, WireError> {
        let request = header.request;
        let nothing = |message| exactly(request, payload, 0).map(|_| message);
        let word = || Ok(u64_at(exactly(request, payload, 8)?, 0));
        let value = || {
            let bytes = exactly(request, payload, 8)?;
            Ok(RingValue {
                ring: u32_at(bytes, 0),
                value: u32_at(bytes, 4),
            })
        };
        let file = || RingFile::decode(request, word()?);
        let region = || {
            let bytes = exactly(request, payload, 8 + Region::BYTES)?;
            Ok(Region::decode(&bytes[8..]))
        };
        match request {
            request::GET_FEATURES => nothing(Self::GetFeatures),
            request::SET_FEATURES => word().map(Self::SetFeatures),
            request::SET_OWNER => nothing(Self::SetOwner),
            request::RESET_OWNER => nothing(Self::ResetOwner),
            request::SET_MEM_TABLE => table(request, payload).map(Self::SetMemoryTable),
            request::SET_VRING_NUM => value().map(Self::SetRingSize),
            request::SET_VRING_ADDR => {
                let bytes = exactly(request, payload, 40)?;
                Ok(Self::SetRingPlace(RingPlace {
                    ring: u32_at(bytes, 0),
                    flags: u32_at(bytes, 4),
                    descriptors: u64_at(bytes, 8),
                    used: u64_at(bytes, 16),
                    available: u64_at(bytes, 24),
                    log: u64_at(bytes, 32),
                }))
            }
            request::SET_VRING_BASE => value().map(Self::SetRingBase),
            request::GET_VRING_BASE => value().map(Self::GetRingBase),
            request::SET_VRING_KICK => file().map(Self::SetKick),
            request::SET_VRING_CALL => file().map(Self::SetCall),
            request::SET_VRING_ERR => file().map(Self::SetError),
            request::GET_PROTOCOL_FEATURES => nothing(Self::GetProtocolFeatures),
            request::SET_PROTOCOL_FEATURES => word().map(Self::SetProtocolFeatures),
            request::GET_QUEUE_NUM => nothing(Self::GetQueueCount),
            request::SET_VRING_ENABLE => value().map(Self::SetRingEnabled),
            request::SET_BACKEND_REQ_FD => nothing(Self::SetBackendChannel),
            request::GET_CONFIG => ConfigPart::decode(request, payload).map(Self::GetConfig),
            request::SET_CONFIG => ConfigPart::decode(request, payload).map(Self::SetConfig),
            request::GET_INFLIGHT_FD => {
                InflightArea::decode(request, payload).map(Self::GetInflight)
            }
            request::SET_INFLIGHT_FD => {
                InflightArea::decode(request, payload).map(Self::SetInflight)
            }
            request::RESET_DEVICE => nothing(Self::ResetDevice),
            request::GET_MAX_MEM_SLOTS => nothing(Self::GetMemorySlots),
            request::ADD_MEM_REG => region().map(Self::AddRegion),
            request::REM_MEM_REG => region().map(Self::RemoveRegion),
            other => Ok(Self::Other(other)),
        }
    }

    /// The number of the request.
    #[must_use]
    pub fn request(&self) -> u32 {
        match self {
            Self::GetFeatures => request::GET_FEATURES,
            Self::SetFeatures(_) => request::SET_FEATURES,
            Self::SetOwner => request::SET_OWNER,
            Self::ResetOwner => request::RESET_OWNER,
            Self::SetMemoryTable(_) => request::SET_MEM_TABLE,
            Self::SetRingSize(_) => request::SET_VRING_NUM,
            Self::SetRingPlace(_) => request::SET_VRING_ADDR,
            Self::SetRingBase(_) => request::SET_VRING_BASE,
            Self::GetRingBase(_) => request::GET_VRING_BASE,
            Self::SetKick(_) => request::SET_VRING_KICK,
            Self::SetCall(_) => request::SET_VRING_CALL,
            Self::SetError(_) => request::SET_VRING_ERR,
            Self::GetProtocolFeatures => request::GET_PROTOCOL_FEATURES,
            Self::SetProtocolFeatures(_) => request::SET_PROTOCOL_FEATURES,
            Self::GetQueueCount => request::GET_QUEUE_NUM,
            Self::SetRingEnabled(_) => request::SET_VRING_ENABLE,
            Self::SetBackendChannel => request::SET_BACKEND_REQ_FD,
            Self::GetConfig(_) => request::GET_CONFIG,
            Self::SetConfig(_) => request::SET_CONFIG,
            Self::GetInflight(_) => request::GET_INFLIGHT_FD,
            Self::SetInflight(_) => request::SET_INFLIGHT_FD,
            Self::ResetDevice => request::RESET_DEVICE,
            Self::GetMemorySlots => request::GET_MAX_MEM_SLOTS,
            Self::AddRegion(_) => request::ADD_MEM_REG,
            Self::RemoveRegion(_) => request::REM_MEM_REG,
            Self::Other(request) => *request,
        }
    }

    /// Encodes the payload; nothing for `Other`. Front ends do this: here tests are one.
    #[must_use]
    pub fn encode_payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::SetFeatures(word) | Self::SetProtocolFeatures(word) => {
                out.extend_from_slice(&word.to_ne_bytes());
            }
            Self::SetMemoryTable(regions) => {
                out.extend_from_slice(&(regions.len() as u64).to_le_bytes());
                out[..4].copy_from_slice(&(regions.len() as u32).to_ne_bytes());
                out[4..8].fill(0);
                regions.iter().for_each(|region| region.encode(&mut out));
            }
            Self::SetRingSize(value)
            | Self::SetRingBase(value)
            | Self::GetRingBase(value)
            | Self::SetRingEnabled(value) => out = ring_value(*value),
            Self::SetRingPlace(place) => {
                out = ring_value(RingValue {
                    ring: place.ring,
                    value: place.flags,
                });
                for word in [place.descriptors, place.used, place.available, place.log] {
                    out.extend_from_slice(&word.to_ne_bytes());
                }
            }
            Self::SetKick(file) | Self::SetCall(file) | Self::SetError(file) => {
                out.extend_from_slice(&file.encode().to_ne_bytes());
            }
            Self::GetConfig(part) | Self::SetConfig(part) => out = part.encode(),
            Self::GetInflight(area) | Self::SetInflight(area) => out = area.encode(),
            Self::AddRegion(region) | Self::RemoveRegion(region) => {
                out.extend_from_slice(&[0; 8]);
                region.encode(&mut out);
            }
            _ => {}
        }
        out
    }

    /// Whether it has an answer of its own, beside an acknowledgement.
    #[must_use]
    pub fn has_answer(&self) -> bool {
        matches!(
            self,
            Self::GetFeatures
                | Self::GetRingBase(_)
                | Self::GetProtocolFeatures
                | Self::GetQueueCount
                | Self::GetConfig(_)
                | Self::GetInflight(_)
                | Self::GetMemorySlots
        )
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A number: features, a count, or 0 for "done" and anything else for "failed".
    Number(u64),
    /// Which entry of a ring is the next to be done.
    RingBase(RingValue),
    /// A part of the description; without bytes: there is no such part.
    Config(ConfigPart),
    /// The file to record requests under way comes with it.
    Inflight(InflightArea),
}

impl Reply {
    /// The whole answer to request `request`.
    #[must_use]
    pub fn encode(&self, request: u32) -> Vec<u8> {
        let payload = match self {
            Self::Number(word) => word.to_ne_bytes().to_vec(),
            Self::RingBase(value) => ring_value(*value),
            Self::Config(part) if part.bytes.is_empty() => Vec::new(),
            Self::Config(part) => part.encode(),
            Self::Inflight(area) => area.encode(),
        };
        let header = Header {
            request,
            needs_reply: false,
            is_reply: true,
            payload_bytes: payload.len(),
        };
        let mut out = header.encode().to_vec();
        out.extend_from_slice(&payload);
        out
    }
}

/// The message by which a front end is told that the description of the device has changed.
#[must_use]
pub fn config_change() -> [u8; HEADER_BYTES] {
    Header {
        request: BACKEND_CONFIG_CHANGE,
        needs_reply: false,
        is_reply: false,
        payload_bytes: 0,
    }
    .encode()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let value = RingValue { ring: 3, value: 7 };
        let file = RingFile {
            ring: 255,
            has_file: false,
        };
        let region = Region {
            guest_address: 1,
            size_bytes: 2,
            user_address: 3,
            file_offset_bytes: 4,
        };
        let part = ConfigPart {
            offset_bytes: 32,
            flags: 0,
            bytes: vec![1],
        };
        let area = InflightArea {
            size_bytes: 4096,
            file_offset_bytes: 0,
            queues: 2,
            descriptors: 128,
        };
        vec![
            Message::GetFeatures,
            Message::SetFeatures(1 << 40),
            Message::SetOwner,
            Message::ResetOwner,
            Message::SetMemoryTable(vec![region; 8]),
            Message::SetRingSize(value),
            Message::SetRingPlace(RingPlace {
                ring: 1,
                flags: 1,
                descriptors: 2,
                used: 3,
                available: 4,
                log: 5,
            }),
            Message::SetRingBase(value),
            Message::GetRingBase(value),
            Message::SetKick(file),
            Message::SetCall(file),
            Message::SetError(file),
            Message::GetProtocolFeatures,
            Message::SetProtocolFeatures(9),
            Message::GetQueueCount,
            Message::SetRingEnabled(value),
            Message::SetBackendChannel,
            Message::GetConfig(part.clone()),
            Message::SetConfig(part),
            Message::GetInflight(area),
            Message::SetInflight(area),
            Message::ResetDevice,
            Message::GetMemorySlots,
            Message::AddRegion(region),
            Message::RemoveRegion(region),
            Message::Other(6),
        ]
    }

    fn header_of(message: &Message, payload: &[u8]) -> Header {
        Header {
            request: message.request(),
            needs_reply: true,
            is_reply: false,
            payload_bytes: payload.len(),
        }
    }

    #[test]
    fn each_message_is_itself_again_after_its_way_through_bytes() {
        for message in all() {
            let payload = message.encode_payload();
            let header = header_of(&message, &payload);
            assert_eq!(Header::decode(&header.encode()), Ok(header));
            assert_eq!(Message::decode(&header, &payload), Ok(message));
        }
    }

    #[test]
    fn a_payload_that_is_too_short_or_too_long_by_a_byte_is_refused() {
        for message in all() {
            if matches!(message, Message::Other(_)) {
                continue;
            }
            let payload = message.encode_payload();
            let mut longer = payload.clone();
            longer.push(0);
            let header = header_of(&message, &payload);
            assert!(
                Message::decode(&header, &longer).is_err(),
                "{message:?} and a byte"
            );
            if let Some(shorter) = payload.len().checked_sub(1) {
                assert!(
                    Message::decode(&header, &payload[..shorter]).is_err(),
                    "{message:?} but for a byte"
                );
            }
        }
    }

    #[test]
    fn another_version_and_a_huge_payload_are_refused_by_the_header_alone() {
        let mut bytes = config_change();
        bytes[4] = 2;
        assert_eq!(Header::decode(&bytes), Err(WireError::Version(2)));
        let mut bytes = config_change();
        bytes[8..].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(Header::decode(&bytes), Err(WireError::TooLong(u32::MAX)));
    }

    #[test]
    fn bytes_are_those_that_front_ends_send() {
        // The beginning of a session, as QEMU 7.2 sends it: request 1, version 1, no payload.
        let header = Header::decode(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).expect("a header");
        assert_eq!(Message::decode(&header, &[]), Ok(Message::GetFeatures));
        assert_eq!(
            Reply::Number(0x1_4000_0000).encode(1),
            [
                1, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0x40, 1, 0, 0, 0
            ]
        );
    }
}
