//! FreeBSD gmirror: the metadata in the last sector of each component.
//!
//! Invariants:
//! - nothing is taken without the right MD5; unknown versions and flags are refused;
//! - a label is written back in the layout of its version, and what was not changed is written as it was read;
//! - sizes and offsets are in bytes, as the format has them.
//!
//! Source: freebsd-geom.md sections 1.2, 1.3 and 1.4.

use crate::describe::{Field, List};
use crate::error::{FormatError, Place, Problem};
use crate::geom::{LABEL_BYTES, Packed, has_magic, is_name};
use crate::kept::Kept;
use crate::md5::md5;
use crate::units::SECTOR_BYTES;

const MAGIC: &[u8] = b"GEOM::MIRROR";
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
const KNOWN_COMPONENT_FLAGS: u64 = COMPONENT_DIRTY
    | COMPONENT_SYNCHRONIZING
    | COMPONENT_FORCE_SYNC
    | COMPONENT_INACTIVE
    | COMPONENT_CAN_DELETE;

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

/// Numbers as they stand in the sector.
#[derive(Default)]
struct Raw {
    name: String,
    mirror_id: u32,
    component_id: u32,
    component_count: u8,
    generation_id: u32,
    sync_id: u32,
    priority: u8,
    slice: u32,
    balance: u8,
    media_size: u64,
    sector_size: u32,
    sync_offset: u64,
    mirror_flags: u64,
    component_flags: u64,
    provider: String,
    provider_size: u64,
}

impl Raw {
    /// The fields of a version in order. Source: freebsd-geom.md section 1.2.
    fn walk(&mut self, version: &mut u32, fields: &mut Packed<'_>) {
        fields.u32(version);
        fields.name(&mut self.name);
        fields.u32(&mut self.mirror_id);
        fields.u32(&mut self.component_id);
        fields.u8(&mut self.component_count);
        if *version >= 2 {
            fields.u32(&mut self.generation_id);
        }
        fields.u32(&mut self.sync_id);
        fields.u8(&mut self.priority);
        fields.u32(&mut self.slice);
        fields.u8(&mut self.balance);
        fields.u64(&mut self.media_size);
        fields.u32(&mut self.sector_size);
        fields.u64(&mut self.sync_offset);
        fields.u64(&mut self.mirror_flags);
        fields.u64(&mut self.component_flags);
        fields.name(&mut self.provider);
        if *version >= 3 {
            fields.u64(&mut self.provider_size);
        }
    }
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
        let place = Place {
            structure: STRUCTURE,
            base_bytes: offset_bytes,
        };
        let Some(bytes) = sector.first_chunk::<LABEL_BYTES>() else {
            let found = format!("{} bytes", sector.len());
            return Err(place.error(Problem::TooShort, 0, "sector", found, "512 bytes"));
        };
        if !has_magic(bytes, MAGIC) {
            let found = crate::error::escape_text(&bytes[..12]);
            return Err(place.error(Problem::NoMagic, 0, "magic", found, "GEOM::MIRROR"));
        }
        let mut copy = *bytes;
        let mut version = 0;
        Packed::reader(&mut copy).u32(&mut version);
        if version > NEWEST_VERSION {
            let problem = Problem::Unsupported;
            return Err(place.error(problem, OFFSET_VERSION, "version", version, "at most 4"));
        }
        let mut raw = Raw::default();
        let mut fields = Packed::reader(&mut copy);
        raw.walk(&mut version, &mut fields);
        let covered = fields.position();
        let (found, computed) = (&bytes[covered..covered + 16], md5(&bytes[..covered]));
        if found != computed {
            let (found, computed) = (hex(found), hex(&computed));
            return Err(place.error(Problem::Checksum, covered as u64, "md5", found, computed));
        }
        let balance = check(&raw, version, provider_bytes, offset_bytes, place)?;
        Ok(Self::from_raw(raw, version, balance, bytes))
    }

    fn from_raw(raw: Raw, version: u32, balance: Balance, bytes: &[u8; LABEL_BYTES]) -> Self {
        let has = |flag: u64| raw.component_flags & flag != 0;
        Self {
            version,
            mirror_id: raw.mirror_id,
            component_id: raw.component_id,
            component_count: raw.component_count,
            generation_id: raw.generation_id,
            sync_id: raw.sync_id,
            priority: raw.priority,
            slice_bytes: raw.slice,
            balance,
            volume_bytes: raw.media_size,
            sector_bytes: raw.sector_size,
            sync_offset_bytes: raw.sync_offset,
            has_no_autosync: raw.mirror_flags & MIRROR_NO_AUTOSYNC != 0,
            has_no_failsync: raw.mirror_flags & MIRROR_NO_FAILSYNC != 0,
            is_dirty: has(COMPONENT_DIRTY),
            is_rebuilding: has(COMPONENT_SYNCHRONIZING),
            is_rebuild_forced: has(COMPONENT_FORCE_SYNC),
            is_inactive: has(COMPONENT_INACTIVE),
            can_trim: has(COMPONENT_CAN_DELETE),
            provider_bytes: raw.provider_size,
            name: raw.name,
            provider: raw.provider,
            raw: Kept::new(*bytes),
        }
    }

    /// The 512 bytes for the last sector (zeroes follow on larger sectors), MD5 computed.
    ///
    /// # Panics
    /// When `version` was set above [`NEWEST_VERSION`].
    #[must_use]
    pub fn encode(&self) -> [u8; LABEL_BYTES] {
        assert!(self.version <= NEWEST_VERSION, "a version that exists");
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let mut raw = Raw {
            name: self.name.clone(),
            mirror_id: self.mirror_id,
            component_id: self.component_id,
            component_count: self.component_count,
            generation_id: self.generation_id,
            sync_id: self.sync_id,
            priority: self.priority,
            slice: self.slice_bytes,
            balance: self.balance as u8, // the order of the enum is the format's
            media_size: self.volume_bytes,
            sector_size: self.sector_bytes,
            sync_offset: self.sync_offset_bytes,
            mirror_flags: flag(self.has_no_autosync, MIRROR_NO_AUTOSYNC)
                | flag(self.has_no_failsync, MIRROR_NO_FAILSYNC),
            component_flags: flag(self.is_dirty, COMPONENT_DIRTY)
                | flag(self.is_rebuilding, COMPONENT_SYNCHRONIZING)
                | flag(self.is_rebuild_forced, COMPONENT_FORCE_SYNC)
                | flag(self.is_inactive, COMPONENT_INACTIVE)
                | flag(self.can_trim, COMPONENT_CAN_DELETE),
            provider: self.provider.clone(),
            provider_size: self.provider_bytes,
        };
        let mut bytes = *self.raw;
        let mut version = self.version;
        if bytes[16..20] != version.to_le_bytes() {
            bytes.fill(0); // another layout: old bytes would land in other fields
        }
        let mut fields = Packed::writer(&mut bytes, MAGIC);
        raw.walk(&mut version, &mut fields);
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
        let place = Place {
            structure: STRUCTURE,
            base_bytes: 0,
        };
        if !is_name(new.name) {
            let found = format!("{:?}", new.name);
            let expected = "1 to 15 bytes, printable";
            return Err(place.error(Problem::Request, 20, "name", found, expected));
        }
        let label = Self {
            version: NEWEST_VERSION,
            name: new.name.to_owned(),
            mirror_id: new.mirror_id,
            component_id: new.component_id,
            component_count: new.component_count,
            generation_id: 0,
            sync_id: 1,
            priority: new.priority,
            slice_bytes: new.slice_bytes,
            balance: new.balance,
            volume_bytes: new.volume_bytes,
            sector_bytes: new.sector_bytes,
            sync_offset_bytes: 0,
            has_no_autosync: false,
            has_no_failsync: false,
            is_dirty: false,
            is_rebuilding: false,
            is_rebuild_forced: false,
            is_inactive: false,
            can_trim: false,
            provider: String::new(),
            provider_bytes: new.provider_bytes,
            raw: Kept::new([0; LABEL_BYTES]),
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
    let mut list = List::new(STRUCTURE);
    list.add("version", label.version);
    list.add("name", label.name.as_str());
    list.add("mirror_id", label.mirror_id);
    list.add("component_id", label.component_id);
    list.add("member_count", label.component_count);
    list.add("generation_id", label.generation_id);
    list.add("sync_id", label.sync_id);
    list.add("priority", label.priority);
    list.add("balance", label.balance.name());
    list.add("slice_bytes", label.slice_bytes);
    list.add("volume_bytes", label.volume_bytes);
    list.add("sector_bytes", label.sector_bytes);
    list.add("is_dirty", label.is_dirty);
    list.add("is_rebuilding", label.is_rebuilding);
    list.add("rebuild_offset_bytes", label.sync_offset_bytes);
    list.add("is_rebuild_forced", label.is_rebuild_forced);
    list.add("is_inactive", label.is_inactive);
    list.add("can_trim", label.can_trim);
    list.add("has_no_autosync", label.has_no_autosync);
    list.add("has_no_failsync", label.has_no_failsync);
    list.add(
        "provider",
        Some(label.provider.as_str()).filter(|name| !name.is_empty()),
    );
    list.add(
        "provider_bytes",
        Some(label.provider_bytes).filter(|size| *size != 0),
    );
    list.0
}

fn check(
    raw: &Raw,
    version: u32,
    provider_bytes: u64,
    offset_bytes: u64,
    place: Place,
) -> Result<Balance, FormatError> {
    // Offsets behind the generation shift by its 4 bytes; messages name the field, the offset is that of version 2 on.
    let unknown = raw.component_flags & !KNOWN_COMPONENT_FLAGS;
    if unknown != 0 {
        let found = format!("{:#x}", raw.component_flags);
        return Err(place.error(
            Problem::Unsupported,
            87,
            "component flags",
            found,
            "bits of 0x4f",
        ));
    }
    if raw.mirror_flags & !(MIRROR_NO_AUTOSYNC | MIRROR_NO_FAILSYNC) != 0 {
        let found = format!("{:#x}", raw.mirror_flags);
        return Err(place.error(
            Problem::Unsupported,
            79,
            "mirror flags",
            found,
            "bits of 0x3",
        ));
    }
    let balance = Balance::ALL.get(usize::from(raw.balance)).copied();
    let wrong = || place.error(Problem::Invalid, 58, "balance", raw.balance, "0 to 4");
    let balance = balance.ok_or_else(wrong)?;
    place.check(
        raw.component_count >= 1,
        44,
        "number of components",
        0,
        "at least 1",
    )?;
    let sector = raw.sector_size;
    let fits = sector.is_power_of_two() && u64::from(sector) >= SECTOR_BYTES;
    let expected = "a power of two of at least 512";
    place.check(fits, 67, "sector size", sector, expected)?;
    let media = raw.media_size;
    let fits = media > 0 && media.is_multiple_of(u64::from(sector));
    place.check(fits, 59, "media size", media, "whole sectors, not 0")?;
    if version >= 3 && raw.provider_size != 0 && raw.provider_size != provider_bytes {
        let found = raw.provider_size;
        let problem = Problem::Foreign;
        return Err(place.error(problem, 111, "provider size", found, provider_bytes));
    }
    if media > offset_bytes {
        let expected = format!("at most {offset_bytes}, where the metadata begin");
        return Err(place.error(Problem::Foreign, 59, "media size", media, expected));
    }
    let offset = raw.sync_offset;
    let expected = format!("at most {media}");
    place.check(offset <= media, 71, "sync offset", offset, expected)?;
    Ok(balance)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
