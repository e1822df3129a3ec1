//! The one error of this crate: what was wrong, in which structure, where, found and expected.
//!
//! Invariants:
//! - every refusal names structure, byte offset and field, so that one printed line is enough to find it with a hex
//!   dump;
//! - text that came from disk is escaped before it gets in here.

use std::fmt;

/// What kind of problem a [`FormatError`] reports; what a caller can act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Problem {
    /// The structure's magic number is not there: most likely this is not that structure at all.
    NoMagic,
    /// Fewer bytes than the structure needs.
    TooShort,
    /// The checksum does not cover what was read: damaged or torn.
    Checksum,
    /// Valid, but a feature or version that this program must not touch.
    Unsupported,
    /// A field has a value that the format forbids.
    Invalid,
    /// The structure does not belong to the one it should (another array, another place).
    Foreign,
    /// What was asked for at creation does not fit the format or the device.
    Request,
}

/// A refusal to take bytes for metadata (or to make metadata), with everything a user needs to find the place.
///
/// The member's own name is added by the caller, which knows it: `sdb: {error}`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormatError {
    /// What kind of problem.
    pub problem: Problem,
    /// The structure, such as `md superblock 1.2`.
    pub structure: &'static str,
    /// Where the field (or, for a checksum, the structure) begins, in bytes from the start of the member or, for
    /// structures that are parsed without knowing their place, from the start of the structure.
    pub offset_bytes: u64,
    /// The field, by the name that the format's description uses.
    pub field: &'static str,
    /// What was found there.
    pub found: String,
    /// What would have been right.
    pub expected: String,
}

impl FormatError {
    /// An error from its parts. `found` and `expected` are made printable by the caller.
    pub(crate) fn new(
        problem: Problem,
        structure: &'static str,
        offset_bytes: u64,
        field: &'static str,
        found: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        Self {
            problem,
            structure,
            offset_bytes,
            field,
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            structure,
            offset_bytes,
            field,
            found,
            expected,
            ..
        } = self;
        match self.problem {
            Problem::Request => write!(f, "{structure}: {field} is {found}, must be {expected}"),
            Problem::Unsupported => write!(
                f,
                "{structure} at byte {offset_bytes}: {field} is {found}, which is not supported (expected {expected})"
            ),
            _ => write!(
                f,
                "{structure} at byte {offset_bytes}: {field} is {found}, expected {expected}"
            ),
        }
    }
}

impl std::error::Error for FormatError {}

/// Builds errors of one structure at one place, so that checks stay one line each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StructurePlace {
    /// The structure's name.
    pub structure: &'static str,
    /// Byte offset of the structure's first byte.
    pub base_bytes: u64,
}

impl StructurePlace {
    /// An error about the field at `field_offset` bytes into the structure.
    pub(crate) fn error(
        self,
        problem: Problem,
        field_offset: u64,
        field: &'static str,
        found: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> FormatError {
        let offset_bytes = self.base_bytes.saturating_add(field_offset);
        FormatError::new(
            problem,
            self.structure,
            offset_bytes,
            field,
            found,
            expected,
        )
    }

    /// [`Problem::Invalid`] unless `is_right`.
    pub(crate) fn check(
        self,
        is_right: bool,
        field_offset: u64,
        field: &'static str,
        found: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Result<(), FormatError> {
        if is_right {
            return Ok(());
        }
        Err(self.error(Problem::Invalid, field_offset, field, found, expected))
    }
}

/// Text from disk made printable: control characters and bytes that are not UTF-8 become `\xNN`.
pub(crate) fn escape_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for piece in bytes.utf8_chunks() {
        for letter in piece.valid().chars() {
            if letter.is_control() {
                let mut buffer = [0; 4];
                let code = letter.encode_utf8(&mut buffer);
                code.bytes().for_each(|byte| push_escaped(&mut text, byte));
            } else {
                text.push(letter);
            }
        }
        piece
            .invalid()
            .iter()
            .for_each(|byte| push_escaped(&mut text, *byte));
    }
    text
}

fn push_escaped(text: &mut String, byte: u8) {
    use fmt::Write as _;
    write!(text, "\\x{byte:02x}").expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_with_structure_offset_field_found_and_expected() {
        let place = StructurePlace {
            structure: "md superblock 1.2",
            base_bytes: 4096,
        };
        let error = place.error(Problem::Checksum, 216, "sb_csum", "0x9f3a", "0x11c0");
        assert_eq!(
            error.to_string(),
            "md superblock 1.2 at byte 4312: sb_csum is 0x9f3a, expected 0x11c0"
        );
    }

    #[test]
    fn text_from_disk_cannot_smuggle_control_characters() {
        assert_eq!(
            escape_text(b"a\x1b[2Jb\xff\xc3\xa4"),
            "a\\x1b[2Jb\\xff\u{e4}"
        );
    }
}
