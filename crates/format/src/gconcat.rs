//! FreeBSD gconcat: the metadata in the last sector of each member. There is no checksum.
//!
//! Invariants:
//! - fields that an older version does not have read as "not recorded" whatever the bytes say;
//! - what was not changed is written as it was read.
//!
//! Source: freebsd-geom.md section 3.

use crate::describe::Field;
use crate::error::{FormatError, Problem, StructurePlace};
use crate::geom::{LABEL_BYTES, Packed, check_name, label_in};
use crate::kept::Kept;
use crate::units::Slot;

const MAGIC: &str = "GEOM::CONCAT";
const STRUCTURE: &str = "gconcat metadata";
/// The newest version.
pub const NEWEST_VERSION: u32 = 4;
/// Fewer members are no volume.
const MIN_MEMBERS: u16 = 1;

/// A member's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConcatLabel {
    /// Version of the layout, up to 4.
    pub version: u32,
    /// Name of the volume, at most 15 bytes.
    pub name: String,
    /// Identity of the volume.
    pub volume_id: u32,
    /// Position of the member.
    pub slot: Slot,
    /// Number of members; all must be there.
    pub member_count: u16,
    /// Provider that this label is bound to; empty: any.
    pub provider: String,
    /// Size of the provider; `None`: not recorded (before version 4).
    pub provider_bytes: Option<u64>,
    raw: Kept<LABEL_BYTES>,
}

impl ConcatLabel {
    /// Checks the last sector of a provider (its first 512 bytes), found at `offset_bytes` of `provider_bytes`.
    ///
    /// # Errors
    /// [`Problem::NoMagic`], [`Problem::Unsupported`] for newer versions, [`Problem::Foreign`] when the label belongs
    /// to a provider of another size, [`Problem::Invalid`] otherwise.
    pub fn parse(
        sector: &[u8],
        offset_bytes: u64,
        provider_bytes: u64,
    ) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: STRUCTURE,
            base_bytes: offset_bytes,
        };
        let bytes = label_in(sector, MAGIC, place)?;
        let mut label = Self::empty(*bytes);
        label.walk(&mut Packed::reader(bytes));
        if label.version > NEWEST_VERSION {
            let found = label.version;
            return Err(place.error(Problem::Unsupported, 16, "version", found, "at most 4"));
        }
        label.check(provider_bytes, place)?;
        Ok(label)
    }

    fn empty(bytes: [u8; LABEL_BYTES]) -> Self {
        Self {
            version: NEWEST_VERSION,
            name: String::new(),
            volume_id: 0,
            slot: Slot(0),
            member_count: 0,
            provider: String::new(),
            provider_bytes: None,
            raw: Kept::new(bytes),
        }
    }

    /// The fields in order, with the names by which they are told.
    fn walk(&mut self, fields: &mut Packed<'_>) {
        fields.u32("version", &mut self.version);
        fields.name("name", &mut self.name);
        fields.u32("volume_id", &mut self.volume_id);
        fields.u16("slot", &mut self.slot.0);
        fields.u16("member_count", &mut self.member_count);
        if fields.has(self.version, 3..) {
            fields.name("provider", &mut self.provider);
        }
        if fields.has(self.version, 4..) {
            fields.recorded("provider_bytes", &mut self.provider_bytes);
        }
    }

    fn check(&self, provider_bytes: u64, place: StructurePlace) -> Result<(), FormatError> {
        let count = self.member_count;
        place.check(
            count >= MIN_MEMBERS,
            42,
            "number of members",
            count,
            "at least 1",
        )?;
        let expected = format!("below {count}");
        place.check(
            self.slot.0 < count,
            40,
            "member number",
            self.slot,
            expected,
        )?;
        match self.provider_bytes {
            Some(size) if size != provider_bytes => {
                Err(place.error(Problem::Foreign, 60, "provider size", size, provider_bytes))
            }
            _ => Ok(()),
        }
    }

    /// The 512 bytes for the last sector; zeroes follow on larger sectors.
    #[must_use]
    pub fn encode(&self) -> [u8; LABEL_BYTES] {
        let mut bytes = *self.raw;
        self.clone()
            .walk(&mut Packed::writer(&mut bytes, MAGIC.as_bytes()));
        bytes
    }

    /// The label of a member of a new volume, newest version, bound to the provider's size.
    ///
    /// # Errors
    /// [`FormatError`] of the first value that the format forbids.
    pub fn create(
        name: &str,
        volume_id: u32,
        (slot, member_count): (Slot, u16),
        provider_bytes: u64,
    ) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: STRUCTURE,
            base_bytes: 0,
        };
        check_name(name, place)?;
        let label = Self {
            name: name.to_owned(),
            volume_id,
            slot,
            member_count,
            provider_bytes: Some(provider_bytes),
            ..Self::empty([0; LABEL_BYTES])
        };
        Self::parse(&label.encode(), 0, provider_bytes)
    }
}

/// Everything a label says.
#[must_use]
pub fn describe(label: &ConcatLabel) -> Vec<Field> {
    let mut fields = Packed::teller(STRUCTURE);
    label.clone().walk(&mut fields);
    fields.told()
}
