//! Labels: four copies on each member of which pool it belongs to, and the ring of uberblocks.
//!
//! Source: zfs-raidz.md 2.1.

use super::checksum::verify_embedded;
use super::nvlist::NvList;
use super::tree::PlexConfig;
use super::uberblock::{SLOT_BYTES_MIN, Uberblock};
use super::{ASHIFT_MIN, unreadable_features};
use crate::describe::{Field, List, Value};
use crate::error::{FormatError, Problem, StructurePlace};

/// Bytes of a label.
pub const LABEL_BYTES: usize = 256 << 10;

const LIST_OFFSET: usize = 16 << 10;
const LIST_BYTES: usize = 112 << 10;
const RING_OFFSET: usize = 128 << 10;
const STRUCTURE: &str = "zfs label";
/// Newest legacy version, and the one of feature flags.
const LEGACY_VERSION_MAX: u64 = 28;
const FEATURES_VERSION: u64 = 5000;

/// Where a label has the bytes that [`may_be_label`] looks at, and how many.
pub const LABEL_HEAD_OFFSET_BYTES: u64 = LIST_OFFSET as u64;
/// See [`LABEL_HEAD_OFFSET_BYTES`].
pub const LABEL_HEAD_BYTES: usize = 16;

/// Whether these bytes can be the start of a label's list: XDR, either byte order of the host, two zeroes, and flags.
/// Where nothing was ever written they are not.
#[must_use]
pub fn may_be_label(head: &[u8]) -> bool {
    head.len() >= LABEL_HEAD_BYTES
        && head[0] <= 1
        && head[1] <= 1
        && head[2..4] == [0, 0]
        && head[8..12] != [0; 4]
}

/// Where the labels of a member of that size are, in bytes; none when it is too small.
#[must_use]
pub fn label_offsets(member_bytes: u64) -> Vec<u64> {
    let label = LABEL_BYTES as u64;
    let end = member_bytes / label * label;
    if end < 8 * label {
        return Vec::new();
    }
    vec![0, label, end - 2 * label, end - label]
}

/// What the pool was doing when the label was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// In use, or not stopped cleanly.
    Active,
    /// Exported.
    Exported,
    /// Destroyed.
    Destroyed,
    /// Not the pool's state: the member is a spare, of any pool.
    Spare,
    /// Not the pool's state: the member is a cache device, of any pool.
    Cache,
    /// Another number.
    Other(u64),
}

impl PoolState {
    fn of(number: u64) -> Self {
        match number {
            0 => Self::Active,
            1 => Self::Exported,
            2 => Self::Destroyed,
            3 => Self::Spare,
            4 => Self::Cache,
            other => Self::Other(other),
        }
    }
}

impl std::fmt::Display for PoolState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Active => f.write_str("active (or not exported)"),
            Self::Exported => f.write_str("exported"),
            Self::Destroyed => f.write_str("destroyed"),
            Self::Spare => f.write_str("spare"),
            Self::Cache => f.write_str("cache device"),
            Self::Other(number) => write!(f, "state {number}"),
        }
    }
}

/// The configuration in a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Version of the pool's format: 1 to 28, or 5000 for feature flags.
    pub version: u64,
    /// Name of the pool, printable.
    pub pool_name: String,
    /// Identity of the pool.
    pub pool_guid: u64,
    /// What the pool was doing.
    pub state: PoolState,
    /// Transaction group in which the label was written; 0 for a spare or a member that was just added.
    pub txg: u64,
    /// Identity of this member.
    pub guid: u64,
    /// Number of plexes of the pool, those that were removed included.
    pub plex_count: u64,
    /// Numbers of plexes that were removed and hold nothing, such as a log device's.
    pub holes: Vec<u64>,
    /// The plex that this member is in; `None` for spares and cache devices.
    pub plex: Option<PlexConfig>,
    /// Active features without which the pool cannot be read.
    pub features: Vec<String>,
    /// Host that used the pool last; empty: not recorded.
    pub host: String,
}

/// One label of a member: its configuration and the good uberblocks of its ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelArea {
    /// Byte offset on the member.
    pub offset_bytes: u64,
    /// The configuration, or why there is none.
    pub label: Result<Label, FormatError>,
    /// Uberblocks whose checksum is right, in the order of the ring.
    pub uberblocks: Vec<Uberblock>,
    /// Why an uberblock with the right magic was refused: the first refusal.
    pub damaged_uberblock: Option<FormatError>,
}

impl LabelArea {
    /// Reads a whole label that lies at `offset_bytes` of the member. Damage is part of the answer.
    #[must_use]
    pub fn parse(bytes: &[u8], offset_bytes: u64) -> Self {
        let label = Label::parse(bytes, offset_bytes);
        let ashift = match &label {
            Ok(Label {
                plex: Some(plex), ..
            }) => plex.ashift,
            _ => ASHIFT_MIN,
        };
        let mut area = Self {
            offset_bytes,
            label,
            uberblocks: Vec::new(),
            damaged_uberblock: None,
        };
        let slot_bytes = SLOT_BYTES_MIN.max(1 << ashift.min(13));
        let ring = bytes.get(RING_OFFSET..LABEL_BYTES).unwrap_or_default();
        for (n, slot) in ring.chunks_exact(slot_bytes).enumerate() {
            let at = offset_bytes + (RING_OFFSET + n * slot_bytes) as u64;
            match Uberblock::parse(slot, at) {
                Ok(uberblock) => area.uberblocks.push(uberblock),
                Err(error) if error.problem == Problem::NoMagic => {}
                Err(error) => area.damaged_uberblock = area.damaged_uberblock.or(Some(error)),
            }
        }
        area
    }
}

impl Label {
    /// Reads the configuration of the label at `offset_bytes` of the member.
    ///
    /// # Errors
    /// [`Problem::NoMagic`] when this is no label, [`Problem::Checksum`], [`Problem::Unsupported`] for unknown
    /// versions, [`Problem::Invalid`] for numbers that cannot be.
    pub fn parse(bytes: &[u8], offset_bytes: u64) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: STRUCTURE,
            base_bytes: offset_bytes,
        };
        let Some(area) = bytes.get(LIST_OFFSET..LIST_OFFSET + LIST_BYTES) else {
            let found = format!("{} bytes", bytes.len());
            return Err(place.error(Problem::TooShort, 0, "label", found, "256 KiB"));
        };
        let at = LIST_OFFSET as u64;
        if !may_be_label(area) {
            let found = format!("{:02x?}", &area[..4]);
            return Err(place.error(Problem::NoMagic, at, "list header", found, "01 01 00 00"));
        }
        if !verify_embedded(area, [offset_bytes + at, 0, 0, 0]) {
            let end = at + LIST_BYTES as u64 - 32;
            let expected = "the SHA-256 of the list at this place";
            return Err(place.error(Problem::Checksum, end, "checksum", "another", expected));
        }
        let list = NvList::parse(area).map_err(|mut error| {
            error.offset_bytes += offset_bytes + at;
            error
        })?;
        Self::from_list(&list, place)
    }

    fn from_list(list: &NvList, place: StructurePlace) -> Result<Self, FormatError> {
        let version = list.number("version").unwrap_or(0);
        let is_known = (1..=LEGACY_VERSION_MAX).contains(&version) || version == FEATURES_VERSION;
        if !is_known {
            let problem = Problem::Unsupported;
            let at = LIST_OFFSET as u64;
            return Err(place.error(problem, at, "version", version, "1 to 28, or 5000"));
        }
        let features = list.list("features_for_read");
        let features = features.map(|list| list.pairs.iter().map(|(name, _)| name.clone()));
        Ok(Self {
            version,
            pool_name: list.text("name").unwrap_or_default().to_owned(),
            pool_guid: list.number("pool_guid").unwrap_or(0),
            state: PoolState::of(list.number("state").unwrap_or(0)),
            txg: list.number("txg").unwrap_or(0),
            guid: list.number("guid").unwrap_or(0),
            plex_count: PlexConfig::count_of_pool(list).unwrap_or(1),
            holes: list.numbers("hole_array").to_vec(),
            plex: list.list("vdev_tree").map(PlexConfig::parse).transpose()?,
            features: features.map(Iterator::collect).unwrap_or_default(),
            host: list.text("hostname").unwrap_or_default().to_owned(),
        })
    }

    /// What the member is when it holds nothing of the pool. Such a label names no pool either.
    #[must_use]
    pub fn bystander(&self) -> Option<&'static str> {
        match self.state {
            PoolState::Spare => Some("spare"),
            PoolState::Cache => Some("cache device"),
            _ => None,
        }
    }

    /// Why the pool, or the plex of this member, cannot be read; empty when all can.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        let unknown = unreadable_features(&self.features);
        let mut refusals: Vec<String> = unknown
            .iter()
            .map(|name| format!("the pool uses the unknown feature {name}"))
            .collect();
        if let Some((plex, reason)) = self.plex.as_ref().and_then(|p| Some((p, p.refusal()?))) {
            refusals.push(format!("plex {} cannot be read: {reason}", plex.id));
        }
        refusals
    }

    /// Position of this member in its plex; `None` for spares and the like.
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        let slots = &self.plex.as_ref()?.slots;
        slots
            .iter()
            .position(|slot| slot.iter().any(|leaf| leaf.guid == self.guid))
    }
}

/// Everything that a member's labels say: the best label, and the newest uberblocks of all four.
#[must_use]
pub fn describe(areas: &[LabelArea], partition_offset_bytes: u64) -> Vec<Field> {
    let mut list = List::new(STRUCTURE);
    let good = areas.iter().filter(|area| area.label.is_ok()).count();
    list.add("good_labels", good as u64);
    let Some(label) = best_label(areas) else {
        return list.0;
    };
    list.add("pool", label.pool_name.as_str());
    list.add("pool_guid", label.pool_guid.to_string());
    list.add("version", label.version);
    list.add("state", label.state.to_string());
    list.add("label_txg", label.txg);
    list.add("member_guid", label.guid.to_string());
    list.add("partition_offset_bytes", partition_offset_bytes);
    list.add(
        "host",
        Some(label.host.as_str()).filter(|host| !host.is_empty()),
    );
    list.add("plex_count", label.plex_count);
    let holes = label.holes.iter().map(|id| Value::Number(*id));
    list.add("removed_plexes", Value::List(holes.collect()));
    if let Some(plex) = &label.plex {
        list.add("plex", plex.id);
        list.add("plex_kind", plex.kind.to_string());
        list.add("sector_bytes", 1_u64 << plex.ashift);
        list.add("plex_bytes", plex.size_bytes);
        list.add("is_log", plex.is_log);
        list.add("slot", label.slot().map(|slot| slot as u64));
        let leaves = plex.slots.iter().flatten();
        let paths = leaves.map(|leaf| Value::Text(format!("{}={}", leaf.guid, leaf.path)));
        list.add("members", Value::List(paths.collect()));
    }
    let text = |texts: &[String]| Value::List(texts.iter().cloned().map(Value::Text).collect());
    list.add("features_for_read", text(&label.features));
    list.add("refused_because", text(&label.refusals()));
    let roots = roots(areas);
    list.add("uberblock_count", roots.len() as u64);
    if let (Some(newest), Some(oldest)) = (roots.first(), roots.last()) {
        list.add("newest_txg", newest.txg);
        list.add("newest_written_s", newest.written_s);
        list.add("oldest_txg", oldest.txg);
        list.add("oldest_written_s", oldest.written_s);
        list.add(
            "checkpoint_txg",
            Some(newest.checkpoint_txg).filter(|txg| *txg != 0),
        );
    }
    list.0
}

/// The label that was written last.
#[must_use]
pub fn best_label(areas: &[LabelArea]) -> Option<&Label> {
    let good = areas.iter().filter_map(|area| area.label.as_ref().ok());
    // The first of several equal ones: `max_by_key` gives the last.
    good.rev().max_by_key(|label| label.txg)
}

/// All different roots in these labels, the newest first.
#[must_use]
pub fn roots(areas: &[LabelArea]) -> Vec<Uberblock> {
    let all = areas.iter().flat_map(|area| &area.uberblocks);
    let mut roots: Vec<Uberblock> = all.cloned().collect();
    roots.sort_by_key(|root| std::cmp::Reverse(root.rank()));
    roots.dedup();
    roots
}
