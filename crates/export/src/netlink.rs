//! Generic netlink, as far as a block device of the kernel needs it: requests out, answers in. Pure.
//!
//! Invariants:
//! - every length that was received is checked against the bytes that are there; nothing is allocated from one;
//! - what does not fit is an error that names it and its place; there is no panic on anything received;
//! - a loop over messages or attributes takes at least a header's bytes each time, so that it ends.
//!
//! Numbers are in the machine's own order. Source: netlink(7); the kernel's documentation of netlink, "Introduction to
//! Netlink" and "genetlink".

use std::io;

/// Bytes of a message's head.
const HEAD_BYTES: usize = 16;
/// Bytes of the second head, which generic netlink puts behind the first.
const GENERIC_HEAD_BYTES: usize = 4;
/// Bytes of an attribute's head.
const ATTRIBUTE_HEAD_BYTES: usize = 4;
/// Messages and attributes begin at multiples of this.
const ALIGN_BYTES: usize = 4;

/// The message is a request, and is to be acknowledged (NLM_F_REQUEST, NLM_F_ACK).
const FLAGS: u16 = 1 | 4;
/// An acknowledgement, or a refusal with its errno (NLMSG_ERROR).
const KIND_ERROR: u16 = 2;
/// The smallest kind that is a family's; those below are netlink's own (NLMSG_MIN_TYPE).
const KIND_FAMILY_MIN: u16 = 16;
/// Bits of an attribute's kind that are flags (nested, byte order).
const KIND_FLAGS: u16 = 0xc000;
/// An attribute that holds attributes (NLA_F_NESTED).
const NESTED: u16 = 0x8000;

/// Why a talk with the kernel came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// The kernel said no.
    #[error("the kernel refuses: {}", io::Error::from_raw_os_error(*.0))]
    Refused(i32),
    /// Fewer bytes than a length in front of them says.
    #[error("the kernel's answer ends within {what} at byte {at_bytes}")]
    Cut {
        /// What ends too early.
        what: &'static str,
        /// Where it begins, in bytes from the start of what was looked at.
        at_bytes: usize,
    },
    /// Something that must be in an answer is not, or has a wrong size.
    #[error("the kernel's answer has no usable {0}")]
    Missing(&'static str),
    /// The socket failed.
    #[error("the socket to the kernel: {0}")]
    Socket(#[from] io::Error),
}

/// What a request is addressed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Number of the family.
    pub family: u16,
    /// Which of its commands.
    pub command: u8,
    /// Version of the family's words.
    pub version: u8,
}

/// A request that is being put together.
#[derive(Clone, Debug)]
pub struct RequestDraft {
    bytes: Vec<u8>,
}

impl RequestDraft {
    /// A request without attributes.
    #[must_use]
    pub fn new(address: Address) -> Self {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[4..6].copy_from_slice(&address.family.to_ne_bytes());
        bytes[6..8].copy_from_slice(&FLAGS.to_ne_bytes());
        bytes.extend([address.command, address.version, 0, 0]);
        Self { bytes }
    }

    /// Adds an attribute.
    ///
    /// # Panics
    /// When `value` is longer than an attribute can be (65,531 bytes): callers bound what they send.
    #[must_use]
    pub fn put(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(ATTRIBUTE_HEAD_BYTES + value.len()).expect("a short attribute");
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(ALIGN_BYTES), 0);
        self
    }

    /// Adds a number of 32 bits.
    #[must_use]
    pub fn put_u32(self, kind: u16, value: u32) -> Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Adds a number of 64 bits.
    #[must_use]
    pub fn put_u64(self, kind: u16, value: u64) -> Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Adds text, which ends with a zero.
    #[must_use]
    pub fn put_text(self, kind: u16, value: &str) -> Self {
        self.put(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Adds an attribute that holds what `fill` adds.
    #[must_use]
    pub fn put_nested(self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let inside = fill(Self { bytes: Vec::new() });
        self.put(kind | NESTED, &inside.bytes)
    }

    /// The message, whose answers will carry `sequence`.
    #[must_use]
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("attributes are short and few");
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A request was carried out.
    Done,
    /// A request was refused, with this errno.
    Refused(i32),
    /// A message of a family.
    Family {
        /// Number of the family.
        family: u16,
        /// Which of its messages.
        command: u8,
        /// Its attributes, see [`attributes`].
        attributes: &'a [u8],
    },
    /// A message of netlink itself that says nothing here.
    Other,
}

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The request that it answers; 0 for what nobody asked for.
    pub sequence: u32,
    /// What it says.
    pub body: Body<'a>,
}

/// Cuts pieces with a length in front of them off a buffer.
struct Cutter<'a> {
    bytes: &'a [u8],
    at_bytes: usize,
}

impl<'a> Cutter<'a> {
    /// The next piece, head included: `head_bytes` long at least, and as long as `length_of` says. `None` at the end.
    fn next(
        &mut self,
        what: &'static str,
        head_bytes: usize,
        length_of: impl Fn(&[u8]) -> usize,
    ) -> Option<Result<&'a [u8], NetlinkError>> {
        if self.bytes.is_empty() {
            return None;
        }
        let at_bytes = self.at_bytes;
        let length = self.bytes.get(..head_bytes).map_or(0, length_of);
        let Some(piece) = self.bytes.get(..length).filter(|_| length >= head_bytes) else {
            self.bytes = &[]; // what comes behind cannot be found
            return Some(Err(NetlinkError::Cut { what, at_bytes }));
        };
        let step = length.next_multiple_of(ALIGN_BYTES).min(self.bytes.len());
        self.bytes = &self.bytes[step..];
        self.at_bytes += step;
        Some(Ok(piece))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.get(..2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.get(..4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// All messages of what was received at once.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<Message<'_>, NetlinkError>> {
    let mut cutter = Cutter {
        bytes: datagram,
        at_bytes: 0,
    };
    let length = |head: &[u8]| u32_at(head, 0).map_or(0, |length| length as usize);
    std::iter::from_fn(move || {
        let at_bytes = cutter.at_bytes;
        let piece = cutter.next("a message", HEAD_BYTES, length)?;
        Some(piece.and_then(|piece| message(piece, at_bytes)))
    })
}

fn message(piece: &[u8], at_bytes: usize) -> Result<Message<'_>, NetlinkError> {
    let cut = |what| NetlinkError::Cut { what, at_bytes };
    let kind = u16_at(piece, 4).ok_or_else(|| cut("a message's head"))?;
    let sequence = u32_at(piece, 8).ok_or_else(|| cut("a message's head"))?;
    let payload = &piece[HEAD_BYTES..]; // `Cutter` gives a whole head at least
    let body = match kind {
        KIND_ERROR => {
            let code = u32_at(payload, 0).ok_or_else(|| cut("an acknowledgement"))?;
            match code.cast_signed() {
                0 => Body::Done,
                // The kernel says -errno; whatever else it says is no success either.
                code => Body::Refused(code.checked_neg().unwrap_or(i32::MAX)),
            }
        }
        KIND_FAMILY_MIN.. => Body::Family {
            family: kind,
            command: *payload.first().ok_or_else(|| cut("a command"))?,
            attributes: payload
                .get(GENERIC_HEAD_BYTES..)
                .ok_or_else(|| cut("a command"))?,
        },
        _ => Body::Other,
    };
    Ok(Message { sequence, body })
}

/// An attribute: its kind without flags, and its value.
pub type Attribute<'a> = (u16, &'a [u8]);

/// All attributes of a message, or of an attribute that holds some.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<Attribute<'_>, NetlinkError>> {
    let mut cutter = Cutter { bytes, at_bytes: 0 };
    let length = |head: &[u8]| u16_at(head, 0).map_or(0, usize::from);
    std::iter::from_fn(move || {
        let piece = cutter.next("an attribute", ATTRIBUTE_HEAD_BYTES, length)?;
        Some(piece.map(|piece| {
            let kind = u16_at(piece, 2).unwrap_or_default() & !KIND_FLAGS;
            (kind, &piece[ATTRIBUTE_HEAD_BYTES..])
        }))
    })
}

/// The value of the first attribute of `kind`.
///
/// # Errors
/// `Cut` where the attributes are broken in front of it, `Missing` when there is none.
pub fn find<'a>(bytes: &'a [u8], kind: u16, name: &'static str) -> Result<&'a [u8], NetlinkError> {
    for attribute in attributes(bytes) {
        let (found, value) = attribute?;
        if found == kind {
            return Ok(value);
        }
    }
    Err(NetlinkError::Missing(name))
}

/// The number of 32 bits in the first attribute of `kind`.
///
/// # Errors
/// As `find`; `Missing` also for a value of another size.
pub fn find_u32(bytes: &[u8], kind: u16, name: &'static str) -> Result<u32, NetlinkError> {
    let value = find(bytes, kind, name)?;
    let value = value.try_into().map_err(|_| NetlinkError::Missing(name))?;
    Ok(u32::from_ne_bytes(value))
}

/// The number of 16 bits in the first attribute of `kind`.
///
/// # Errors
/// As `find_u32`.
pub fn find_u16(bytes: &[u8], kind: u16, name: &'static str) -> Result<u16, NetlinkError> {
    let value = find(bytes, kind, name)?;
    let value = value.try_into().map_err(|_| NetlinkError::Missing(name))?;
    Ok(u16::from_ne_bytes(value))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn to(family: u16, command: u8) -> Address {
        Address {
            family,
            command,
            version: 1,
        }
    }

    /// A message as the kernel sends it: the same form, with its number in the place of the sender's.
    pub(crate) fn from_kernel(request: RequestDraft, sequence: u32) -> Vec<u8> {
        request.finish(sequence)
    }

    /// An acknowledgement with `code`, 0 or -errno.
    pub(crate) fn acknowledgement(code: i32, sequence: u32) -> Vec<u8> {
        let mut bytes = 36_u32.to_ne_bytes().to_vec();
        bytes.extend(KIND_ERROR.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(code.to_ne_bytes());
        bytes.extend([0; 16]); // the head of the request
        bytes
    }

    #[test]
    fn what_was_put_into_a_message_is_found_in_it() {
        let bytes = RequestDraft::new(to(29, 3))
            .put_u32(1, 7)
            .put_text(10, "nas5")
            .put_nested(7, |inside| inside.put_u32(1, 5).put(2, &[9]))
            .finish(77);
        let all: Vec<_> = messages(&bytes).map(Result::unwrap).collect();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].sequence, 77);
        let Body::Family {
            family: 29,
            command: 3,
            attributes: bytes,
        } = all[0].body
        else {
            panic!("{all:?}")
        };
        assert_eq!(find_u32(bytes, 1, "index").unwrap(), 7);
        assert_eq!(find(bytes, 10, "name").unwrap(), b"nas5\0");
        let nested = find(bytes, 7, "list").unwrap();
        let nested: Vec<_> = attributes(nested).map(Result::unwrap).collect();
        assert_eq!(nested, [(1, &5_u32.to_ne_bytes()[..]), (2, &[9][..])]);
        assert!(matches!(
            find_u32(bytes, 10, "name"),
            Err(NetlinkError::Missing("name"))
        ));
        assert!(find_u16(bytes, 9, "nothing").is_err());
    }

    #[test]
    fn a_request_has_the_bytes_that_the_kernel_expects() {
        let bytes = RequestDraft::new(to(0x1d, 2))
            .put_u32(1, 0x0a0b_0c0d)
            .finish(9);
        if cfg!(target_endian = "little") {
            let expected = [
                28, 0, 0, 0, 0x1d, 0, 5, 0, 9, 0, 0, 0, 0, 0, 0, 0, // head
                2, 1, 0, 0, // command and version
                8, 0, 1, 0, 0x0d, 0x0c, 0x0b, 0x0a,
            ];
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn acknowledgements_and_refusals_are_told_apart() {
        let mut bytes = acknowledgement(0, 1);
        bytes.extend(acknowledgement(-16, 2));
        bytes.extend(acknowledgement(i32::MIN, 3));
        let bodies: Vec<_> = messages(&bytes)
            .map(|message| message.unwrap().body)
            .collect();
        assert_eq!(
            bodies,
            [Body::Done, Body::Refused(16), Body::Refused(i32::MAX)]
        );
        assert!(NetlinkError::Refused(16).to_string().contains("busy"));
    }

    #[test]
    fn what_is_cut_anywhere_is_an_error_and_never_a_panic() {
        let whole = RequestDraft::new(to(29, 5))
            .put_u32(1, 7)
            .put_nested(9, |inside| inside.put_u32(1, 2))
            .finish(1);
        for length in 1..whole.len() {
            let first = messages(&whole[..length]).next().unwrap();
            assert!(matches!(first, Err(NetlinkError::Cut { .. })), "{length}");
        }
        // Lengths that lie: shorter than a head, and as long as can be.
        for length in (0..16_u32).chain([u32::MAX, 1 << 31]) {
            let mut bytes = whole.clone();
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(messages(&bytes).count(), 1);
            assert!(messages(&bytes).next().unwrap().is_err(), "{length}");
        }
        for length in [0_u16, 1, 3, 17, u16::MAX] {
            let mut bytes = 1_u16.to_ne_bytes().repeat(8);
            bytes[..2].copy_from_slice(&length.to_ne_bytes());
            assert!(attributes(&bytes).next().unwrap().is_err(), "{length}");
            assert_eq!(attributes(&bytes).count(), 1);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_through_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for message in messages(&bytes).flatten() {
                if let Body::Family { attributes: bytes, .. } = message.body {
                    for (_, value) in attributes(bytes).flatten() {
                        let _ = attributes(value).count();
                    }
                }
            }
            prop_assert!(attributes(&bytes).count() <= bytes.len() / ATTRIBUTE_HEAD_BYTES + 1);
            let _ = find_u32(&bytes, 1, "x");
        }
    }
}
