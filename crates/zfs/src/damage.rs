//! What was found wrong on members.

use plexum_block::device::{Device, IoError};

use crate::member::MemberState;

/// What was wrong with a place on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamageKind {
    /// Other bytes than those that were written.
    Checksum,
    /// It could not be read.
    Io(#[doc = "What the device said."] IoKind),
}

/// A failed read, as a finding keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoKind {
    /// The medium could not read the range.
    Medium,
    /// The member is too short, or gone.
    Gone,
}

impl DamageKind {
    pub(crate) fn io(error: IoError) -> Self {
        match error {
            IoError::Gone | IoError::OutOfRange => Self::Io(IoKind::Gone),
            _ => Self::Io(IoKind::Medium),
        }
    }

    /// One word for tables and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::Io(IoKind::Medium) => "unreadable",
            Self::Io(IoKind::Gone) => "beyond its end",
        }
    }
}

/// A place on a member that was wrong although the block could be given, or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damage {
    /// Name of the member.
    pub member: String,
    /// Byte offset on its device.
    pub offset_bytes: u64,
    /// How long the place is.
    pub length_bytes: u64,
    /// What was wrong.
    pub kind: DamageKind,
}

impl Damage {
    pub(crate) fn new<D: Device>(
        member: &MemberState<D>,
        offset_bytes: u64,
        length_bytes: u64,
        kind: DamageKind,
    ) -> Self {
        Self {
            member: member.name.clone(),
            offset_bytes: member.device_offset_bytes(offset_bytes),
            length_bytes,
            kind,
        }
    }
}
