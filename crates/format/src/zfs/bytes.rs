//! Little and big-endian words out of byte slices, with the place in the error.

use crate::error::{FormatError, Problem, StructurePlace};

/// The word at `at`, little-endian; `None` past the end.
pub(super) fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(part.try_into().ok()?))
}

/// The half word at `at`, little-endian; `None` past the end.
pub(super) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(part.try_into().ok()?))
}

/// The 16 bits at `at`, little-endian; `None` past the end.
pub(super) fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    let part = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(part.try_into().ok()?))
}

/// Refuses fewer than `needed` bytes.
pub(super) fn require(
    place: StructurePlace,
    bytes: &[u8],
    needed: usize,
    what: &'static str,
) -> Result<(), FormatError> {
    if bytes.len() >= needed {
        return Ok(());
    }
    let found = format!("{} bytes", bytes.len());
    let expected = format!("at least {needed} bytes");
    Err(place.error(Problem::TooShort, 0, what, found, expected))
}

/// The place of a structure whose position on the member its parser does not know.
pub(super) fn nowhere(structure: &'static str) -> StructurePlace {
    StructurePlace {
        structure,
        base_bytes: 0,
    }
}
