//! The NBD wire: pure functions between bytes and values; nothing here reads, writes or waits.
//!
//! Invariants:
//! - every number is big-endian; nothing is allocated from a length that was not checked;
//! - errno values exist only here (`Errno`); the engine's `IoError` becomes one by `Errno::from_io`;
//! - decoding never panics, whatever the bytes are.
//!
//! Source: nbd.md sections 1-6.

use plexum_block::device::IoError;

pub mod option;
pub mod reply;
pub mod request;

/// Opens the greeting.
pub const MAGIC_GREETING: u64 = 0x4e42_444d_4147_4943;
/// Ends the greeting of newstyle servers and starts every option request.
pub const MAGIC_OPTION: u64 = 0x4948_4156_454f_5054;
/// Starts every option reply.
pub const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Stands in place of `MAGIC_OPTION` in the greeting of oldstyle servers, which are refused.
pub const MAGIC_OLDSTYLE: u64 = 0x0000_4202_8186_1253;
/// Compact request.
pub const MAGIC_REQUEST: u32 = 0x2560_9513;
/// Extended request.
pub const MAGIC_REQUEST_EXTENDED: u32 = 0x21e4_1c71;
/// Simple reply.
pub const MAGIC_SIMPLE_REPLY: u32 = 0x6744_6698;
/// Structured reply chunk.
pub const MAGIC_CHUNK: u32 = 0x668e_33ef;
/// Extended reply chunk.
pub const MAGIC_CHUNK_EXTENDED: u32 = 0x6e8a_278c;

/// Longest name or other string on the wire, in bytes.
pub const NAME_BYTES_MAX: usize = 4096;
/// Largest payload of READ and WRITE, in bytes: what every client expects to work (nbd.md section 8).
pub const PAYLOAD_BYTES_MAX: u32 = 1 << 25;

/// How replies (and, for `Extended`, requests) are framed; agreed in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Framing {
    /// Compact requests, simple replies.
    #[default]
    Simple,
    /// Compact requests, structured replies for reads and status, simple ones elsewhere.
    Structured,
    /// Extended requests and replies.
    Extended,
}

/// The error numbers that may appear on the wire. Source: nbd.md section 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: the export is read-only.
    Eperm = 1,
    /// Input or output failed.
    Eio = 5,
    /// Out of memory.
    Enomem = 12,
    /// Invalid request.
    Einval = 22,
    /// No space, or a write past the end.
    Enospc = 28,
    /// The answer would be too large.
    Eoverflow = 75,
    /// Not supported: only as the answer to FAST_ZERO.
    Enotsup = 95,
    /// The server is stopping.
    Eshutdown = 108,
}

impl Errno {
    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The error behind a number of the wire; unknown numbers count as `Einval`. 0 is no error: `None`.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Errno> {
        Some(match number {
            0 => return None,
            1 => Errno::Eperm,
            5 => Errno::Eio,
            12 => Errno::Enomem,
            28 => Errno::Enospc,
            75 => Errno::Eoverflow,
            95 => Errno::Enotsup,
            108 => Errno::Eshutdown,
            _ => Errno::Einval,
        })
    }

    /// What a client is told about an error of the engine. `Unsupported` becomes `Enotsup` only where the caller
    /// says that it answers FAST_ZERO; anywhere else the wire does not allow it.
    #[must_use]
    pub fn from_io(error: IoError, answers_fast_zero: bool) -> Errno {
        match error {
            IoError::NoSpace => Errno::Enospc,
            IoError::OutOfRange => Errno::Einval,
            IoError::ReadOnly => Errno::Eperm,
            IoError::Unsupported if answers_fast_zero => Errno::Enotsup,
            IoError::Unsupported => Errno::Einval,
            // Also for errors that the engine may learn to tell in future: the data could not be had.
            _ => Errno::Eio,
        }
    }

    /// What a remote error means for an engine that uses the export as a member.
    #[must_use]
    pub fn to_io(self) -> IoError {
        match self {
            Errno::Eperm => IoError::ReadOnly,
            Errno::Eio => IoError::Medium,
            Errno::Enomem => IoError::Retryable,
            Errno::Einval | Errno::Eoverflow => IoError::OutOfRange,
            Errno::Enospc => IoError::NoSpace,
            Errno::Enotsup => IoError::Unsupported,
            Errno::Eshutdown => IoError::Gone,
        }
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Errno::Eperm => "EPERM",
            Errno::Eio => "EIO",
            Errno::Enomem => "ENOMEM",
            Errno::Einval => "EINVAL",
            Errno::Enospc => "ENOSPC",
            Errno::Eoverflow => "EOVERFLOW",
            Errno::Enotsup => "ENOTSUP",
            Errno::Eshutdown => "ESHUTDOWN",
        })
    }
}

/// A peer that does not speak the protocol. The session ends; nothing can be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A magic number is wrong.
    #[error("{place}: found magic {found:#x}; the peer does not speak this protocol")]
    Magic {
        /// What was expected there.
        place: &'static str,
        /// The number found.
        found: u64,
    },
    /// A rule of the protocol was broken; the text says which.
    #[error("{0}")]
    Broken(&'static str),
}

/// Reads big-endian fields from the front of a slice; `None` when it is too short.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string with its length in front, at most `NAME_BYTES_MAX` long.
    pub(crate) fn string(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.u32()?).ok()?;
        text(self.bytes(length)?)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A string of the wire: UTF-8, no NUL, not too long.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (bytes.len() <= NAME_BYTES_MAX && !text.contains('\0')).then_some(text)
}

/// Length as a field of 32 bits.
///
/// # Panics
/// When it does not fit: only lengths of our own making and checked ones come here.
pub(crate) fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("lengths that we send are far below 4 GiB")
}

/// A string from the wire for messages: escaped and shortened, so that a peer cannot write into terminals or logs.
#[must_use]
pub fn escaped(text: &str) -> String {
    const SHOWN_MAX: usize = 80;
    let mut shown: String = text
        .chars()
        .take(SHOWN_MAX)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_number_of_the_wire_comes_back_and_unknown_ones_are_einval() {
        for number in 0..200 {
            let error = Errno::from_number(number);
            let known = [1, 5, 12, 22, 28, 75, 95, 108].contains(&number);
            match error {
                None => assert_eq!(number, 0),
                Some(error) if known => assert_eq!(error.number(), number),
                Some(error) => assert_eq!(error, Errno::Einval),
            }
        }
    }

    #[test]
    fn enotsup_is_only_said_to_fast_zero() {
        assert_eq!(Errno::from_io(IoError::Unsupported, true), Errno::Enotsup);
        for error in [
            IoError::Retryable,
            IoError::Medium,
            IoError::Gone,
            IoError::NoSpace,
            IoError::OutOfRange,
            IoError::ReadOnly,
            IoError::Unsupported,
            IoError::Failed,
        ] {
            assert_ne!(Errno::from_io(error, false), Errno::Enotsup);
        }
        assert_eq!(Errno::from_io(IoError::Failed, false), Errno::Eio);
        assert_eq!(Errno::from_io(IoError::ReadOnly, false), Errno::Eperm);
        assert_eq!(Errno::from_io(IoError::NoSpace, true), Errno::Enospc);
    }

    #[test]
    fn names_of_the_wire_cannot_write_control_characters_into_a_message() {
        assert_eq!(escaped("a\x1b[2J\n\u{202e}b"), "a\\u{1b}[2J\\n\\u{202e}b");
        assert_eq!(escaped(&"x".repeat(81)), "x".repeat(80) + "...");
        assert_eq!(escaped(&"x".repeat(80)), "x".repeat(80));
    }
}
