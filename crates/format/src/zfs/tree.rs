//! The tree of a pool: plexes (top-level vdevs) and the members in their slots.
//!
//! Below a plex the tree is flattened: a slot holds one member, or several while it is being replaced, each of which
//! may have the slot's blocks.
//!
//! Source: zfs-raidz.md 2.1.

use super::bytes::nowhere;
use super::nvlist::NvList;
use super::{ASHIFT_MAX, ASHIFT_MIN};
use crate::error::{FormatError, Problem};

/// Most slots of a plex: the width of RAID-Z is at most this.
pub const SLOTS_MAX: usize = 255;
/// Most members below one slot.
const SLOT_MEMBERS_MAX: usize = 64;

/// What a plex is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlexKind {
    /// One member.
    Single,
    /// The same blocks in every slot.
    Mirror,
    /// RAID-Z with this many parities (1 to 3).
    RaidZ {
        /// Number of parity columns.
        parity_count: u8,
    },
    /// dRAID: not readable.
    DRaid,
    /// A removed plex whose blocks went elsewhere: not readable.
    Removed,
    /// A number without a plex: nothing is there.
    Hole,
    /// Something else; its word.
    Other(String),
}

impl std::fmt::Display for PlexKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Single => f.write_str("single"),
            Self::Mirror => f.write_str("mirror"),
            Self::RaidZ { parity_count } => write!(f, "raidz{parity_count}"),
            Self::DRaid => f.write_str("draid"),
            Self::Removed => f.write_str("removed"),
            Self::Hole => f.write_str("hole"),
            Self::Other(word) => f.write_str(word),
        }
    }
}

/// A member as the configuration knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its identity.
    pub guid: u64,
    /// Where it was when the configuration was written; printable.
    pub path: String,
}

/// A plex as the configuration knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlexConfig {
    /// Its number in addresses.
    pub id: u64,
    /// Its identity.
    pub guid: u64,
    /// What it is.
    pub kind: PlexKind,
    /// Its sector, as a power of two in bytes.
    pub ashift: u32,
    /// Its size in bytes, parity included.
    pub size_bytes: u64,
    /// It holds the intent log only.
    pub is_log: bool,
    /// RAID-Z whose width was changed: blocks of different widths.
    pub is_expanded: bool,
    /// The members of each slot.
    pub slots: Vec<Vec<Leaf>>,
}

impl PlexConfig {
    /// Why its blocks cannot be read; `None` when they can.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        match &self.kind {
            PlexKind::DRaid => Some("it is dRAID".into()),
            PlexKind::Removed => Some("it was removed and its blocks moved elsewhere".into()),
            PlexKind::Hole => Some("it was removed".into()),
            PlexKind::Other(word) => Some(format!("it is of the unknown kind {word:?}")),
            PlexKind::RaidZ { .. } if self.is_expanded => {
                Some("it is RAID-Z that was expanded".into())
            }
            _ => None,
        }
    }

    /// How many of its slots may be lost without losing data.
    #[must_use]
    pub fn losses_max(&self) -> usize {
        match self.kind {
            PlexKind::Mirror => self.slots.len().saturating_sub(1),
            PlexKind::RaidZ { parity_count } => usize::from(parity_count),
            _ => 0,
        }
    }

    /// The plexes of the configuration that a pool keeps of itself; those that cannot be understood are left out.
    #[must_use]
    pub fn all_of_pool(config: &NvList) -> Vec<Self> {
        let tree = config.list("vdev_tree");
        let children = tree.map(|tree| tree.lists("children")).unwrap_or_default();
        children
            .iter()
            .filter_map(|child| Self::parse(child).ok())
            .collect()
    }

    /// How many plexes a configuration says that its pool has.
    #[must_use]
    pub fn count_of_pool(config: &NvList) -> Option<u64> {
        config.number("vdev_children")
    }

    /// Reads a plex from its list.
    ///
    /// # Errors
    /// [`Problem::Invalid`] for numbers that cannot be.
    pub fn parse(list: &NvList) -> Result<Self, FormatError> {
        let place = nowhere("zfs vdev tree");
        let word = list.text("type").unwrap_or_default();
        let parity = list.number("nparity").unwrap_or(1);
        let kind = match word {
            "disk" | "file" => PlexKind::Single,
            "mirror" | "replacing" | "spare" => PlexKind::Mirror,
            "raidz" => {
                let is_right = (1..=3).contains(&parity);
                place.check(is_right, 0, "nparity", parity, "1 to 3")?;
                PlexKind::RaidZ {
                    parity_count: parity as u8,
                }
            }
            "draid" => PlexKind::DRaid,
            "indirect" => PlexKind::Removed,
            "hole" | "missing" => PlexKind::Hole,
            other => PlexKind::Other(other.to_owned()),
        };
        let is_usable = matches!(
            kind,
            PlexKind::Single | PlexKind::Mirror | PlexKind::RaidZ { .. }
        );
        let ashift = list.number("ashift").unwrap_or(0);
        let range = u64::from(ASHIFT_MIN)..=u64::from(ASHIFT_MAX);
        if is_usable {
            place.check(range.contains(&ashift), 0, "ashift", ashift, "9 to 16")?;
        }
        let slots = slots(list, &kind)?;
        if let PlexKind::RaidZ { parity_count } = kind {
            let is_right = slots.len() > usize::from(parity_count);
            let expected = "more than parities";
            place.check(is_right, 0, "number of children", slots.len(), expected)?;
        }
        Ok(Self {
            id: list.number("id").unwrap_or(0),
            guid: list.number("guid").unwrap_or(0),
            ashift: if is_usable { ashift as u32 } else { ASHIFT_MIN },
            size_bytes: list.number("asize").unwrap_or(0),
            is_log: list.number("is_log") == Some(1),
            is_expanded: !list.numbers("raidz_expand_txgs").is_empty()
                || list.get("raidz_expanding").is_some(),
            kind,
            slots,
        })
    }
}

fn slots(list: &NvList, kind: &PlexKind) -> Result<Vec<Vec<Leaf>>, FormatError> {
    if *kind == PlexKind::Single {
        return Ok(vec![vec![leaf(list)]]);
    }
    let children = list.lists("children");
    let place = nowhere("zfs vdev tree");
    let is_right = children.len() <= SLOTS_MAX;
    place.check(
        is_right,
        0,
        "number of children",
        children.len(),
        "at most 255",
    )?;
    children.iter().map(leaves).collect()
}

/// All members below a slot; depth is bounded by that of the list, and the walk does not recurse.
fn leaves(slot: &NvList) -> Result<Vec<Leaf>, FormatError> {
    let mut found = Vec::new();
    let mut work = vec![slot];
    while let Some(list) = work.pop() {
        let children = list.lists("children");
        if children.is_empty() {
            found.push(leaf(list));
        }
        work.extend(children.iter().rev());
        if found.len() > SLOT_MEMBERS_MAX || work.len() > SLOT_MEMBERS_MAX {
            let place = nowhere("zfs vdev tree");
            let expected = "at most 64";
            return Err(place.error(
                Problem::Invalid,
                0,
                "members of a slot",
                found.len(),
                expected,
            ));
        }
    }
    Ok(found)
}

fn leaf(list: &NvList) -> Leaf {
    Leaf {
        guid: list.number("guid").unwrap_or(0),
        path: list.text("path").unwrap_or_default().to_owned(),
    }
}
