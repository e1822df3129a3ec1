//! What gmirror, gstripe and gconcat have in common: packed little-endian fields at the end of a provider.
//!
//! Invariants:
//! - a string is what stands before its NUL; what stands behind is kept when the text stays (the kernel leaves garbage
//!   there);
//! - fields are read, written and told by one list of names in order, so that the three cannot drift apart.
//!
//! Source: freebsd-geom.md sections 1.2 and 3.

use std::ops::RangeFrom;

use crate::describe::{Field, List};
use crate::error::{FormatError, Problem, StructurePlace, escape_text};

/// Bytes of the sector in which the structures lie; larger sectors carry zeroes behind.
pub(crate) const LABEL_BYTES: usize = 512;
/// Bytes of a name with its NUL.
pub(crate) const NAME_BYTES: usize = 16;

/// Steps through the fields of a label: reads them, overwrites them in place, or tells them.
pub(crate) struct Packed<'a> {
    way: Way<'a>,
    at: usize,
    /// The first value that the format does not have.
    odd: Option<Odd>,
}

enum Way<'a> {
    Read(&'a [u8; LABEL_BYTES]),
    Write(&'a mut [u8; LABEL_BYTES]),
    Tell(List),
}

struct Odd {
    problem: Problem,
    at: usize,
    what: &'static str,
    found: String,
    expected: String,
}

macro_rules! number {
    ($name:ident, $type:ty) => {
        /// The next field.
        pub(crate) fn $name(&mut self, name: &'static str, value: &mut $type) {
            match &mut self.way {
                Way::Read(bytes) => {
                    let field = &bytes[self.at..self.at + size_of::<$type>()];
                    *value =
                        <$type>::from_le_bytes(field.try_into().expect("a field of its width"));
                }
                Way::Write(bytes) => {
                    let field = &mut bytes[self.at..self.at + size_of::<$type>()];
                    field.copy_from_slice(&value.to_le_bytes());
                }
                Way::Tell(list) => list.add(name, *value),
            }
            self.at += size_of::<$type>();
        }
    };
}

impl<'a> Packed<'a> {
    /// Reads, behind the magic.
    pub(crate) fn reader(bytes: &'a [u8; LABEL_BYTES]) -> Self {
        Self::of(Way::Read(bytes))
    }

    /// Writes, behind the magic, which it writes too.
    pub(crate) fn writer(bytes: &'a mut [u8; LABEL_BYTES], magic: &[u8]) -> Self {
        if !has_magic(bytes, magic) {
            bytes[..NAME_BYTES].fill(0);
            bytes[..magic.len()].copy_from_slice(magic);
        }
        Self::of(Way::Write(bytes))
    }

    /// Tells.
    pub(crate) fn teller(structure: &'static str) -> Self {
        Self::of(Way::Tell(List::new(structure)))
    }

    fn of(way: Way<'a>) -> Self {
        Self {
            way,
            at: NAME_BYTES,
            odd: None,
        }
    }

    /// Whether fields that only some versions have are next. They are told always.
    pub(crate) fn has(&self, version: u32, since: RangeFrom<u32>) -> bool {
        since.contains(&version) || matches!(self.way, Way::Tell(_))
    }

    number!(u8, u8);
    number!(u16, u16);
    number!(u32, u32);
    number!(u64, u64);

    /// The next field, a size for which 0 says that it is not recorded.
    pub(crate) fn size(&mut self, name: &'static str, value: &mut u64) {
        match &mut self.way {
            Way::Tell(list) => list.add(name, Some(*value).filter(|size| *size != 0)),
            _ => self.u64(name, value),
        }
    }

    /// The next field, a size that is recorded wherever the version has it.
    pub(crate) fn recorded(&mut self, name: &'static str, value: &mut Option<u64>) {
        if let Way::Tell(list) = &mut self.way {
            return list.add(name, *value);
        }
        let mut size = value.unwrap_or(0);
        self.u64(name, &mut size);
        *value = Some(size);
    }

    /// The next field: a number that stands for one of `all` by its place there.
    pub(crate) fn choice<T: Copy + PartialEq>(
        &mut self,
        name: &'static str,
        value: &mut T,
        all: &[T],
        word: fn(T) -> &'static str,
    ) {
        if let Way::Tell(list) = &mut self.way {
            return list.add(name, word(*value));
        }
        let place = all.iter().position(|one| one == value);
        let mut number = u8::try_from(place.unwrap_or(0)).unwrap_or(0);
        let at = self.at;
        self.u8(name, &mut number);
        match all.get(usize::from(number)) {
            Some(known) => *value = *known,
            None => self.note(Odd {
                problem: Problem::Invalid,
                at,
                what: name,
                found: number.to_string(),
                expected: format!("0 to {}", all.len() - 1),
            }),
        }
    }

    /// The next field: facts by their bits.
    pub(crate) fn flags(
        &mut self,
        what: &'static str,
        facts: &mut [(&'static str, u64, &mut bool)],
    ) {
        if let Way::Tell(list) = &mut self.way {
            for (name, _, is_so) in facts {
                list.add(name, **is_so);
            }
            return;
        }
        let known = facts.iter().fold(0, |all, (_, bit, _)| all | bit);
        let set = facts.iter().filter(|(_, _, is_so)| **is_so);
        let mut bits = set.fold(0, |all, (_, bit, _)| all | bit);
        let at = self.at;
        self.u64(what, &mut bits);
        for (_, bit, is_so) in facts {
            **is_so = bits & *bit != 0;
        }
        if bits & !known != 0 {
            self.note(Odd {
                problem: Problem::Unsupported,
                at,
                what,
                found: format!("{bits:#x}"),
                expected: format!("bits of {known:#x}"),
            });
        }
    }

    fn note(&mut self, odd: Odd) {
        self.odd.get_or_insert(odd);
    }

    /// The next field, a name. It is written unless it already stands there; at most 15 bytes are.
    pub(crate) fn name(&mut self, name: &'static str, value: &mut String) {
        let range = self.at..self.at + NAME_BYTES;
        match &mut self.way {
            Way::Read(bytes) => *value = shown_text(&bytes[range]),
            Way::Write(bytes) => {
                let field = &mut bytes[range];
                if shown_text(field) != *value {
                    let mut length = value.len().min(NAME_BYTES - 1);
                    while !value.is_char_boundary(length) {
                        length -= 1;
                    }
                    field.fill(0);
                    field[..length].copy_from_slice(&value.as_bytes()[..length]);
                }
            }
            Way::Tell(list) => list.add(name, Some(value.as_str()).filter(|name| !name.is_empty())),
        }
        self.at += NAME_BYTES;
    }

    /// Bytes stepped over so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The first value that the format does not have, as an error.
    ///
    /// # Errors
    /// [`Problem::Unsupported`] or [`Problem::Invalid`] with the field.
    pub(crate) fn check(self, place: StructurePlace) -> Result<(), FormatError> {
        match self.odd {
            None => Ok(()),
            Some(odd) => Err(place.error(
                odd.problem,
                odd.at as u64,
                odd.what,
                odd.found,
                odd.expected,
            )),
        }
    }

    /// What was told.
    pub(crate) fn told(self) -> Vec<Field> {
        match self.way {
            Way::Tell(list) => list.0,
            _ => Vec::new(),
        }
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

/// The bytes of a label that starts with this magic, at the beginning of a sector.
pub(crate) fn label_in<'a>(
    sector: &'a [u8],
    magic: &'static str,
    place: StructurePlace,
) -> Result<&'a [u8; LABEL_BYTES], FormatError> {
    let Some(bytes) = sector.first_chunk::<LABEL_BYTES>() else {
        let found = format!("{} bytes", sector.len());
        return Err(place.error(Problem::TooShort, 0, "sector", found, "512 bytes"));
    };
    if !has_magic(bytes, magic.as_bytes()) {
        let found = escape_text(&bytes[..12]);
        return Err(place.error(Problem::NoMagic, 0, "magic", found, magic));
    }
    Ok(bytes)
}

/// Whether a name for a new label fits its field: at most 15 bytes, printable, not empty.
pub(crate) fn check_name(name: &str, place: StructurePlace) -> Result<(), FormatError> {
    let fits = !name.is_empty()
        && name.len() < NAME_BYTES
        && !name.contains(|c: char| c.is_control() || c == '/');
    if fits {
        return Ok(());
    }
    let (found, expected) = (format!("{name:?}"), "1 to 15 bytes, printable");
    Err(place.error(Problem::Request, 20, "name", found, expected))
}
