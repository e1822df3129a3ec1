//! FreeBSD gmirror: the metadata in the last sector of each component.
//!
//! Invariants:
//! - nothing is taken without the right MD5; unknown versions and flags are refused;
//! - a label is written back in the layout of its version, and what was not changed is written as it was read;
//! - sizes and offsets are in bytes, as the format has them.
//!
//! Source: freebsd-geom.md sections 1.2, 1.3 and 1.4.

use crate::describe::Field;
use crate::error::{FormatError, Problem, StructurePlace};
use crate::geom::{LABEL_BYTES, Packed, check_name, label_in};
use crate::kept::Kept;
use crate::md5::md5;
use crate::units::SECTOR_BYTES;

const MAGIC: &str = "GEOM::MIRROR";
const STRUCTURE: &str = "gmirror metadata";
/// The newest version; older labels are rewritten as this one once they were attached.
pub const NEWEST_VERSION: u32 = 4;

const OFFSET_VERSION: u64 = 16;

const MIRROR_NO_AUTOSYNC: u64 = 1;
const MIRROR_NO_FAILSYNC: u64 = 2;

const COMPONENT_DIRTY: u64 = 0x1;
const COMPONENT_SYNCHRONIZING: u64 = 0x2;
const COMPONENT_FORCE_SYNC: u64 = 0x4;
const COMPONENT_INACTIVE: u64 = 0x8;
const COMPONENT_CAN_DELETE: u64 = 0x40;
/// How reads are spread over the components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Balance {
    /// Allowed in metadata, never served upstream: to be treated as round-robin.
    None,
    /// In turn.
    RoundRobin,
    /// The least loaded.
    Load,
    /// Large reads in pieces.
    Split,
    /// The one with the highest priority.
    Prefer,
}

impl Balance {
    const ALL: [Self; 5] = [
        Self::None,
        Self::RoundRobin,
        Self::Load,
        Self::Split,
        Self::Prefer,
    ];

    /// The word that FreeBSD uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::RoundRobin => "round-robin",
            Self::Load => "load",
            Self::Split => "split",
            Self::Prefer => "prefer",
        }
    }
}

/// A component's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorLabel {
    /// Version of the layout, 0 to 4.
    pub version: u32,
    /// Name of the mirror, at most 15 bytes.
    pub name: String,
    /// Identity of the mirror.
    pub mirror_id: u32,
    /// Identity of the component.
    pub component_id: u32,
    /// Number of components that the mirror should have.
    pub component_count: u8,
    /// Rises when a component was dropped for an error: an older one is broken. 0 before version 2.
    pub generation_id: u32,
    /// Rises when a component missed writes: an older one is stale.
    pub sync_id: u32,
    /// Order of the components, highest first.
    pub priority: u8,
    /// Reads above this are split.
    pub slice_bytes: u32,
    /// How reads are spread.
    pub balance: Balance,
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Sector of the volume.
    pub sector_bytes: u32,
    /// How far a rebuild of this component has got; meaningful with `is_rebuilding` only.
    pub sync_offset_bytes: u64,
    /// Stale components are not rebuilt by themselves.
    pub has_no_autosync: bool,
    /// Nothing is marked dirty and nothing rebuilt after a crash.
    pub has_no_failsync: bool,
    /// The component was being written to.
    pub is_dirty: bool,
    /// The component is incomplete (SYNCHRONIZING).
    pub is_rebuilding: bool,
    /// To be rebuilt although autosync is off.
    pub is_rebuild_forced: bool,
    /// Taken out by the operator.
    pub is_inactive: bool,
    /// The device supports TRIM; set by the kernel at attach.
    pub can_trim: bool,
    /// Provider that this label is bound to; empty: any.
    pub provider: String,
    /// Size of the provider; 0: not recorded (always before version 3).
    pub provider_bytes: u64,
    raw: Kept<LABEL_BYTES>,
}

impl MirrorLabel {
    /// Checks the last sector of a provider (its first 512 bytes), found at `offset_bytes` of `provider_bytes`.
    ///
    /// # Errors
    /// [`Problem::NoMagic`], [`Problem::Unsupported`] for newer versions and unknown flags, [`Problem::Checksum`],
    /// [`Problem::Foreign`] when the label belongs to a provider of another size, [`Problem::Invalid`] otherwise.
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
        Packed::reader(bytes).u32("version", &mut label.version);
        if label.version > NEWEST_VERSION {
            let (problem, found) = (Problem::Unsupported, label.version);
            return Err(place.error(problem, OFFSET_VERSION, "version", found, "at most 4"));
        }
        let mut fields = Packed::reader(bytes);
        label.walk(&mut fields);
        let covered = fields.position();
        let (found, computed) = (&bytes[covered..covered + 16], md5(&bytes[..covered]));
        if found != computed {
            let (found, computed) = (hex(found), hex(&computed));
            return Err(place.error(Problem::Checksum, covered as u64, "md5", found, computed));
        }
        fields.check(place)?;
        label.check(provider_bytes, offset_bytes, place)?;
        Ok(label)
    }

    fn empty(bytes: [u8; LABEL_BYTES]) -> Self {
        Self {
            version: NEWEST_VERSION,
            name: String::new(),
            mirror_id: 0,
            component_id: 0,
            component_count: 0,
            generation_id: 0,
            sync_id: 0,
            priority: 0,
            slice_bytes: 0,
            balance: Balance::None,
            volume_bytes: 0,
            sector_bytes: 0,
            sync_offset_bytes: 0,
            has_no_autosync: false,
            has_no_failsync: false,
            is_dirty: false,
            is_rebuilding: false,
            is_rebuild_forced: false,
            is_inactive: false,
            can_trim: false,
            provider: String::new(),
            provider_bytes: 0,
            raw: Kept::new(bytes),
        }
    }

    /// The fields of a version in order, with the names by which they are told. Source: freebsd-geom.md section 1.2.
    fn walk(&mut self, fields: &mut Packed<'_>) {
        fields.u32("version", &mut self.version);
        fields.name("name", &mut self.name);
        fields.u32("mirror_id", &mut self.mirror_id);
        fields.u32("component_id", &mut self.component_id);
        fields.u8("member_count", &mut self.component_count);
        if fields.has(self.version, 2..) {
            fields.u32("generation_id", &mut self.generation_id);
        }
        fields.u32("sync_id", &mut self.sync_id);
        fields.u8("priority", &mut self.priority);
        fields.u32("slice_bytes", &mut self.slice_bytes);
        fields.choice("balance", &mut self.balance, &Balance::ALL, Balance::name);
        fields.u64("volume_bytes", &mut self.volume_bytes);
        fields.u32("sector_bytes", &mut self.sector_bytes);
        fields.u64("rebuild_offset_bytes", &mut self.sync_offset_bytes);
        fields.flags(
            "mirror flags",
            &mut [
                (
                    "has_no_autosync",
                    MIRROR_NO_AUTOSYNC,
                    &mut self.has_no_autosync,
                ),
                (
                    "has_no_failsync",
                    MIRROR_NO_FAILSYNC,
                    &mut self.has_no_failsync,
                ),
            ],
        );
        fields.flags(
            "component flags",
            &mut [
                ("is_dirty", COMPONENT_DIRTY, &mut self.is_dirty),
                (
                    "is_rebuilding",
                    COMPONENT_SYNCHRONIZING,
                    &mut self.is_rebuilding,
                ),
                (
                    "is_rebuild_forced",
                    COMPONENT_FORCE_SYNC,
                    &mut self.is_rebuild_forced,
                ),
                ("is_inactive", COMPONENT_INACTIVE, &mut self.is_inactive),
                ("can_trim", COMPONENT_CAN_DELETE, &mut self.can_trim),
            ],
        );
        fields.name("provider", &mut self.provider);
        if fields.has(self.version, 3..) {
            fields.size("provider_bytes", &mut self.provider_bytes);
        }
    }

    /// What the fields say together. Offsets of errors are those of version 2 on; before it they are 4 bytes less.
    fn check(
        &self,
        provider_bytes: u64,
        offset_bytes: u64,
        place: StructurePlace,
    ) -> Result<(), FormatError> {
        let count = self.component_count;
        place.check(count >= 1, 44, "number of components", count, "at least 1")?;
        let sector = self.sector_bytes;
        let fits = sector.is_power_of_two() && u64::from(sector) >= SECTOR_BYTES;
        let expected = "a power of two of at least 512";
        place.check(fits, 67, "sector size", sector, expected)?;
        let media = self.volume_bytes;
        let fits = media > 0 && media.is_multiple_of(u64::from(sector));
        place.check(fits, 59, "media size", media, "whole sectors, not 0")?;
        let size = self.provider_bytes;
        if size != 0 && size != provider_bytes {
            let problem = Problem::Foreign;
            return Err(place.error(problem, 111, "provider size", size, provider_bytes));
        }
        if media > offset_bytes {
            let expected = format!("at most {offset_bytes}, where the metadata begin");
            return Err(place.error(Problem::Foreign, 59, "media size", media, expected));
        }
        let offset = self.sync_offset_bytes;
        let expected = format!("at most {media}");
        place.check(offset <= media, 71, "sync offset", offset, expected)
    }

    /// The 512 bytes for the last sector (zeroes follow on larger sectors), MD5 computed.
    ///
    /// # Panics
    /// When `version` was set above [`NEWEST_VERSION`].
    #[must_use]
    pub fn encode(&self) -> [u8; LABEL_BYTES] {
        assert!(self.version <= NEWEST_VERSION, "a version that exists");
        let mut bytes = *self.raw;
        if bytes[16..20] != self.version.to_le_bytes() {
            bytes.fill(0); // another layout: old bytes would land in other fields
        }
        let mut fields = Packed::writer(&mut bytes, MAGIC.as_bytes());
        self.clone().walk(&mut fields);
        let covered = fields.position();
        let digest = md5(&bytes[..covered]);
        bytes[covered..covered + 16].copy_from_slice(&digest);
        bytes
    }

    /// The label of a component of a new mirror, version 4, not marked dirty, in sync.
    ///
    /// # Errors
    /// [`FormatError`] of the first value that the format forbids.
    /// Source: freebsd-geom.md section 1.3.
    pub fn create(new: &NewMirrorLabel<'_>) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: STRUCTURE,
            base_bytes: 0,
        };
        check_name(new.name, place)?;
        let label = Self {
            name: new.name.to_owned(),
            mirror_id: new.mirror_id,
            component_id: new.component_id,
            component_count: new.component_count,
            sync_id: 1,
            priority: new.priority,
            slice_bytes: new.slice_bytes,
            balance: new.balance,
            volume_bytes: new.volume_bytes,
            sector_bytes: new.sector_bytes,
            provider_bytes: new.provider_bytes,
            ..Self::empty([0; LABEL_BYTES])
        };
        let sector = u64::from(new.sector_bytes).max(SECTOR_BYTES);
        let offset = new.provider_bytes.saturating_sub(sector);
        Self::parse(&label.encode(), offset, new.provider_bytes)
    }
}

/// What the label of a new component says; see [`MirrorLabel::create`].
#[derive(Debug, Clone, Copy)]
pub struct NewMirrorLabel<'a> {
    /// Name of the mirror.
    pub name: &'a str,
    /// Identity of the mirror, random.
    pub mirror_id: u32,
    /// Identity of the component, random.
    pub component_id: u32,
    /// Number of components.
    pub component_count: u8,
    /// Order of the components, highest first; `label` counts from 0 in the order of the command line.
    pub priority: u8,
    /// Reads above this are split; FreeBSD's default is 4096.
    pub slice_bytes: u32,
    /// How reads are spread; FreeBSD's default is load.
    pub balance: Balance,
    /// Size of the volume: the smallest component without its sector, whole volume sectors.
    pub volume_bytes: u64,
    /// Sector of the volume: the least common multiple of the components'.
    pub sector_bytes: u32,
    /// Size of this component's provider.
    pub provider_bytes: u64,
}

/// Everything a label says.
#[must_use]
pub fn describe(label: &MirrorLabel) -> Vec<Field> {
    let mut fields = Packed::teller(STRUCTURE);
    label.clone().walk(&mut fields);
    fields.told()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
