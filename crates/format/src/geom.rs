//! What gmirror, gstripe and gconcat have in common: packed little-endian fields at the end of a provider.
//!
//! Invariants:
//! - a string is what stands before its NUL; what stands behind is kept when the text stays (the kernel leaves garbage there);
//! - fields are read and written by one list of names in order, so that the two cannot drift apart.
//!
//! Source: freebsd-geom.md sections 1.2 and 3.

use crate::error::escape_text;

/// Bytes of the sector in which the structures lie; larger sectors carry zeroes behind.
pub(crate) const LABEL_BYTES: usize = 512;
/// Bytes of a name with its NUL.
pub(crate) const NAME_BYTES: usize = 16;

/// Steps through packed fields: reads them, or overwrites them in place.
pub(crate) struct Packed<'a> {
    bytes: &'a mut [u8; LABEL_BYTES],
    at: usize,
    is_writing: bool,
}

macro_rules! number {
    ($name:ident, $type:ty) => {
        /// Reads the next field into `value`, or writes it from there.
        pub(crate) fn $name(&mut self, value: &mut $type) {
            const WIDTH: usize = size_of::<$type>();
            let field = &mut self.bytes[self.at..self.at + WIDTH];
            if self.is_writing {
                field.copy_from_slice(&value.to_le_bytes());
            } else {
                *value = <$type>::from_le_bytes(field.try_into().expect("a field of its width"));
            }
            self.at += WIDTH;
        }
    };
}

impl<'a> Packed<'a> {
    /// Starts behind the magic.
    pub(crate) fn reader(bytes: &'a mut [u8; LABEL_BYTES]) -> Self {
        Self {
            bytes,
            at: NAME_BYTES,
            is_writing: false,
        }
    }

    /// Starts behind the magic, which it writes.
    pub(crate) fn writer(bytes: &'a mut [u8; LABEL_BYTES], magic: &[u8]) -> Self {
        if !has_magic(bytes, magic) {
            bytes[..NAME_BYTES].fill(0);
            bytes[..magic.len()].copy_from_slice(magic);
        }
        Self {
            bytes,
            at: NAME_BYTES,
            is_writing: true,
        }
    }

    number!(u8, u8);
    number!(u16, u16);
    number!(u32, u32);
    number!(u64, u64);

    /// Reads the next name, or writes it unless it already stands there; at most 15 bytes are written.
    pub(crate) fn name(&mut self, value: &mut String) {
        let field = &mut self.bytes[self.at..self.at + NAME_BYTES];
        let text = shown_text(field);
        if !self.is_writing {
            *value = text;
        } else if text != *value {
            let mut length = value.len().min(NAME_BYTES - 1);
            while !value.is_char_boundary(length) {
                length -= 1;
            }
            field.fill(0);
            field[..length].copy_from_slice(&value.as_bytes()[..length]);
        }
        self.at += NAME_BYTES;
    }

    /// Bytes stepped over so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }
}

/// Whether the label starts with this magic and its NUL.
pub(crate) fn has_magic(bytes: &[u8], magic: &[u8]) -> bool {
    bytes.starts_with(magic) && bytes.get(magic.len()) == Some(&0)
}

/// A text up to its NUL, printable.
pub(crate) fn shown_text(field: &[u8]) -> String {
    let length = field
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(field.len());
    escape_text(&field[..length])
}

/// Whether a name fits a field: at most 15 bytes, printable, not empty.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() < NAME_BYTES
        && !name.contains(|c: char| c.is_control() || c == '/')
}
