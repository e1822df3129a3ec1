//! What the array knows of one member.

/// Identity of a member while the array is open; stable, never used again for another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u16);

/// What a member may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Holds its slot's data completely.
    Active,
    /// Takes part in every write, is read only where it is valid already.
    Rebuilding {
        /// Member bytes (from the data offset) below this are valid, durably recorded.
        valid_below_bytes: u64,
        /// Only regions with a set bit have to be copied (re-add by bitmap).
        by_bitmap: bool,
    },
    /// Ready to take a slot.
    Spare,
    /// Failed, or replaced: neither read nor written, superblock left as it is.
    Faulty,
    /// Taken out; its record only keeps the numbering.
    Removed,
}

/// One member of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// The slot it has, also while rebuilding; `None` for spares and those that lost it.
    pub slot: Option<u16>,
    /// What it may be used for.
    pub standing: Standing,
    /// Whether it copies the member of the same slot that is still active (`replace`).
    pub is_replacement: bool,
    /// Whether it is read only when nobody else can answer.
    pub is_write_mostly: bool,
}

impl MemberRecord {
    /// Takes part in writes and superblock commits.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(
            self.standing,
            Standing::Active | Standing::Rebuilding { .. } | Standing::Spare
        )
    }

    /// Holds or is filled for a slot.
    #[must_use]
    pub fn is_slotted(&self) -> bool {
        matches!(
            self.standing,
            Standing::Active | Standing::Rebuilding { .. }
        )
    }
}
