//! A new pool: which members, how large, and what is in it at the beginning.
//!
//! Source: zfs-write.md 1.1 and 1.2.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_block::device::Device;
use plexum_format::zfs::zap_write::MicroHead;
use plexum_format::zfs::{NvList, NvValue, PlexKind};

use crate::dsl::{self, kind, object};
use crate::error::PoolError;
use crate::ground::{Ground, Leaf, PlexGround};
use crate::mutant::DeliberateBug;
use crate::numbers::{CONFIG_BLOCK_BYTES, FIRST_TXG, Identities};
use crate::seed::Seed;
use crate::set::SetState;
use crate::space::{Metaslab, Space, metaslab_shift};
use crate::state::{ConfigState, Landmarks, WritablePool};
use crate::tree::Source;

/// Version of the format: what a pool can do is said by features, of which a new one has none.
const FEATURES_VERSION: u64 = 5000;
/// Type of the object set of a file system, and of the pool's own.
const SET_META: u64 = 1;
const SET_FILES: u64 = 2;
/// Labels and boot area of a member together.
const OVERHEAD_BYTES: u64 = (4 << 20) + (512 << 10);
/// Members are used in units of this.
const MEMBER_UNIT_BYTES: u64 = 256 << 10;
/// The smallest member that OpenZFS takes.
pub const MEMBER_BYTES_MIN: u64 = 64 << 20;
/// Longest name of a pool.
const NAME_BYTES_MAX: usize = 200;

/// What the members of a group hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// One member.
    Single,
    /// The same on every member.
    Mirror,
    /// RAID-Z with so many parities: 1 to 3.
    RaidZ(u8),
}

impl GroupKind {
    /// The kind of a plex.
    #[must_use]
    pub fn plex_kind(self) -> PlexKind {
        match self {
            Self::Single => PlexKind::Single,
            Self::Mirror => PlexKind::Mirror,
            Self::RaidZ(parity_count) => PlexKind::RaidZ { parity_count },
        }
    }

    /// Fewest members.
    #[must_use]
    pub fn members_min(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Mirror => 2,
            Self::RaidZ(parity_count) => usize::from(parity_count) + 1,
        }
    }
}

/// A member of a new pool.
pub struct NewMember<D> {
    /// What messages call it.
    pub name: String,
    /// What is recorded as its place.
    pub path: String,
    /// Whether that is a block device.
    pub is_disk: bool,
    /// The device.
    pub device: Rc<D>,
}

/// A group of a new pool, which becomes a plex.
pub struct NewGroup<D> {
    /// What its members hold together.
    pub kind: GroupKind,
    /// They.
    pub members: Vec<NewMember<D>>,
}

/// What a new pool shall be.
#[derive(Clone, Debug)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Its sector as a power of two in bytes.
    pub ashift: u32,
    /// Seconds since 1970.
    pub wall_s: u64,
    /// Where identities come from: any number that no other pool was made with.
    pub seed: u64,
    /// Name of this machine, for the labels.
    pub host: String,
}

/// Whether OpenZFS takes this as the name of a pool, and why not.
///
/// # Errors
/// The reason.
pub fn check_pool_name(name: &str) -> Result<(), PoolError> {
    let refuse = |reason: &str| {
        Err(PoolError::Refused(format!(
            "{name:?} cannot be the name of a pool: {reason}"
        )))
    };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.: ".contains(letter);
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return refuse("it has to have 1 to 200 letters");
    }
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return refuse("it has to begin with a letter");
    }
    if !name.chars().all(is_plain) || name.ends_with(' ') {
        return refuse("only letters, digits and - _ . : are allowed");
    }
    let reserved = ["mirror", "raidz", "draid", "spare", "log"];
    if reserved.iter().any(|word| name.starts_with(word))
        || name.len() > 1 && name.starts_with('c') && name.as_bytes()[1].is_ascii_digit()
    {
        return refuse("zpool keeps such names for itself");
    }
    Ok(())
}

/// Bytes of the address space of a group of members of these sizes.
#[must_use]
pub fn group_bytes(kind: GroupKind, member_bytes: &[u64]) -> u64 {
    let smallest = member_bytes.iter().copied().min().unwrap_or(0);
    let data = (smallest / MEMBER_UNIT_BYTES * MEMBER_UNIT_BYTES).saturating_sub(OVERHEAD_BYTES);
    match kind {
        GroupKind::RaidZ(_) => data * member_bytes.len() as u64,
        _ => data,
    }
}

impl<D: Device> WritablePool<D> {
    /// Makes a pool on members, whatever is on them now, and commits it; it can be opened then. It has an empty root
    /// data set that is not mounted, and no features.
    ///
    /// # Errors
    /// `Refused` for names, sectors and members that cannot be; why it cannot be written.
    pub async fn create(
        groups: Vec<NewGroup<D>>,
        new: &NewPool,
        buffers: &BufPool,
    ) -> Result<(), PoolError> {
        check_pool_name(&new.name)?;
        let mut identities = Identities(new.seed);
        let guid = identities.next();
        let mut plexes = BTreeMap::new();
        let mut trees = Vec::new();
        for (id, group) in groups.into_iter().enumerate() {
            let (plex, tree) = new_plex(id as u32, group, new.ashift, &mut identities)?;
            plexes.insert(plex.id, plex);
            trees.push(tree);
        }
        if plexes.is_empty() {
            return Err(PoolError::Refused("a pool needs members".into()));
        }
        let ground = Ground::new(plexes, buffers);
        let guid_sum = trees.iter().map(tree_guids).fold(guid, u64::wrapping_add);
        let mut pool = Self {
            name: new.name.clone(),
            guid,
            version: FEATURES_VERSION,
            config: NvList::default(),
            config_state: ConfigState::Changed,
            // Nobody uses it yet.
            label_state: 1,
            guid_sum,
            source: Source { pool: None },
            space: Space::of(metaslabs(&ground)),
            ground,
            meta: SetState::new("the pool", SET_META),
            sets: BTreeMap::new(),
            arrays: BTreeMap::new(),
            landmarks: Landmarks::default(),
            txg: FIRST_TXG - 1,
            frozen: None,
            skipped_txgs: 0,
            bug: DeliberateBug::NONE,
            unsettled: None,
            recorded_losses: 0,
            is_rehearsal: false,
            pending: crate::state::Pending::default(),
            logs: BTreeMap::new(),
            missed: BTreeMap::new(),
        };
        pool.plant(new, &mut identities).await?;
        for (id, tree) in trees.iter_mut().enumerate() {
            tree.put_number("metaslab_array", pool.arrays[&(id as u32)]);
        }
        pool.config = config(new, guid, trees);
        pool.ground.clear_rings().await?;
        pool.commit(new.wall_s).await?;
        // A new pool begins with all its members.
        match pool.members_out().into_iter().next() {
            None => Ok(()),
            Some((member, reason)) => Err(PoolError::invalid(member, reason)),
        }
    }

    /// The objects that every pool has.
    async fn plant(&mut self, new: &NewPool, identities: &mut Identities) -> Result<(), PoolError> {
        let mut seed = Seed {
            meta: &mut self.meta,
            source: &self.source,
            wall_s: new.wall_s,
        };
        let salt = identities.next();
        let directory = object(kind::OBJECT_DIRECTORY, 512, 0, 0);
        let number = seed
            .meta
            .add_zap(
                seed.source,
                &directory,
                MicroHead {
                    salt,
                    norm_flags: 0,
                },
                &[],
            )
            .await?;
        assert_eq!(number, 1, "the directory is the first object of a new set");
        let list = object(
            kind::PACKED_LIST,
            CONFIG_BLOCK_BYTES,
            kind::PACKED_LIST_BYTES,
            8,
        );
        self.landmarks.config = seed.meta.add(seed.source, &list).await?;
        // The root of the tree is an empty file system, which this program cannot fill: it must not be mounted.
        let root = seed.directory(0, &[("canmount", 0)]).await?;
        let own = seed.directory(root, &[]).await?;
        let free = seed.directory(root, &[]).await?;
        let origin = seed.directory(root, &[]).await?;
        (
            self.landmarks.root_dir,
            self.landmarks.own_dir,
            self.landmarks.origin_dir,
        ) = (root, own, origin);
        let children = seed
            .meta
            .dnode(seed.source, root)
            .await?
            .bonus_word(dsl::dir::CHILDREN);
        for (name, number) in [("$MOS", own), ("$FREE", free), ("$ORIGIN", origin)] {
            seed.meta
                .zap_put(seed.source, children, name, number)
                .await?;
        }
        self.landmarks.origin_snapshot = plant_origin(&mut seed, origin, identities).await?;
        let head = seed
            .head(
                root,
                &self.landmarks,
                FIRST_TXG,
                [identities.next(), identities.next()],
            )
            .await?;
        let mut files = SetState::new(&new.name, SET_FILES);
        files.touch();
        self.sets.insert(head, files);
        self.plant_lists(new.wall_s).await
    }

    /// Lists of features, of dead blocks and of space maps, and the directory that names them.
    async fn plant_lists(&mut self, wall_s: u64) -> Result<(), PoolError> {
        let mut seed = Seed {
            meta: &mut self.meta,
            source: &self.source,
            wall_s,
        };
        let (readable, writable) = (seed.features().await?, seed.features().await?);
        let described = seed.features().await?;
        let (free_list, sync_list) = (seed.list().await?, seed.list().await?);
        let entries = [
            ("config", self.landmarks.config),
            ("root_dataset", self.landmarks.root_dir),
            ("free_bpobj", free_list),
            ("sync_bplist", sync_list),
            ("features_for_read", readable),
            ("features_for_write", writable),
            ("feature_descriptions", described),
            ("deflate", 1),
            ("creation_version", FEATURES_VERSION),
        ];
        seed.object_directory(&entries).await?;
        let plexes = self.ground.plexes.values();
        let sizes: Vec<_> = plexes.map(|plex| (plex.id, plex.size_bytes)).collect();
        for (id, size_bytes) in sizes {
            self.plant_array(id, size_bytes).await?;
        }
        Ok(())
    }

    /// The array of the metaslabs' maps of a plex of this size: its number.
    pub(crate) async fn plant_array(&mut self, id: u32, size_bytes: u64) -> Result<u64, PoolError> {
        let count = size_bytes >> metaslab_shift(size_bytes);
        let block_bytes = (8 * count).next_multiple_of(512).clamp(512, 16 << 10);
        let new = object(kind::OBJECT_ARRAY, block_bytes, 0, 0);
        let array = self.meta.add(&self.source, &new).await?;
        // Written even when no metaslab has a map yet.
        self.meta.write(array, &self.source, 0, &[0; 8]).await?;
        self.arrays.insert(id, array);
        Ok(array)
    }
}

/// `$ORIGIN`: what all plain data sets descend from.
async fn plant_origin<D: Device>(
    seed: &mut Seed<'_, D>,
    directory: u64,
    identities: &mut Identities,
) -> Result<u64, PoolError> {
    let snapshot_deadlist = seed.deadlist(None).await?;
    let next_clones = seed.clones(kind::NEXT_CLONES).await?;
    let words = [
        (dsl::set::DIR, directory),
        (dsl::set::CHILD_COUNT, 1),
        (dsl::set::CREATED_TXG, 1),
        (dsl::set::DEADLIST, snapshot_deadlist),
        (dsl::set::FSID, identities.next() >> 8),
        (dsl::set::GUID, identities.next()),
        (dsl::set::NEXT_CLONES, next_clones),
    ];
    let snapshot = seed.dataset(&words).await?;
    let names = seed.map(kind::SNAPSHOT_NAMES, &[]).await?;
    seed.meta
        .zap_put(seed.source, names, "$ORIGIN", snapshot)
        .await?;
    let deadlist = seed.deadlist(Some("0")).await?;
    let words = [
        (dsl::set::DIR, directory),
        (dsl::set::PREVIOUS, snapshot),
        (dsl::set::PREVIOUS_TXG, 1),
        (dsl::set::SNAPSHOT_NAMES, names),
        (dsl::set::CREATED_TXG, 1),
        (dsl::set::DEADLIST, deadlist),
        (dsl::set::FSID, identities.next() >> 8),
        (dsl::set::GUID, identities.next()),
    ];
    let head = seed.dataset(&words).await?;
    seed.set_words(snapshot, &[(dsl::set::NEXT, head)]).await?;
    let clones = seed.clones(kind::CLONES).await?;
    seed.set_words(
        directory,
        &[(dsl::dir::HEAD, head), (dsl::dir::CLONES, clones)],
    )
    .await?;
    Ok(snapshot)
}

impl<D: Device> PlexGround<D> {
    /// The kind of group that it is.
    pub(crate) fn kind(&self) -> GroupKind {
        let parities = u8::try_from(self.shape.parity_count());
        match (parities.unwrap_or(u8::MAX), self.leaves.len()) {
            (0, 1) => GroupKind::Single,
            (0, _) => GroupKind::Mirror,
            (parities, _) => GroupKind::RaidZ(parities),
        }
    }
}

/// All metaslabs of all plexes, empty.
fn metaslabs<D: Device>(ground: &Ground<D>) -> BTreeMap<(u32, u64), Metaslab> {
    ground.plexes.values().flat_map(metaslabs_of).collect()
}

/// The metaslabs of a plex, empty.
pub(crate) fn metaslabs_of<D: Device>(plex: &PlexGround<D>) -> Vec<((u32, u64), Metaslab)> {
    let shift = metaslab_shift(plex.size_bytes);
    let one = |number: u64| {
        let range: Range<u64> = number << shift..(number + 1) << shift;
        let empty = Metaslab::new(plex.id, number, range, plex.ashift);
        ((plex.id, number), empty)
    };
    (0..plex.size_bytes >> shift).map(one).collect()
}

/// Whether a group can have so many members.
pub(crate) fn check_count(kind: GroupKind, count: usize) -> Result<(), PoolError> {
    let (fewest, is_single) = (kind.members_min(), kind == GroupKind::Single);
    if count < fewest || is_single && count != 1 || count > 255 {
        return Err(PoolError::Refused(format!(
            "it has {count} members; it needs at least {fewest}"
        )));
    }
    Ok(())
}

/// Whether OpenZFS takes a member of this size.
pub(crate) fn check_member_size(name: &str, size_bytes: u64) -> Result<(), PoolError> {
    if size_bytes < MEMBER_BYTES_MIN {
        return Err(PoolError::Refused(format!(
            "{name} has {size_bytes} bytes: a member of a pool has at least 64 MiB"
        )));
    }
    Ok(())
}

/// Whether the members of a group can be ones of a pool with such sectors.
pub(crate) fn check_group<D: Device>(
    id: u32,
    group: &NewGroup<D>,
    ashift: u32,
) -> Result<(), PoolError> {
    check_count(group.kind, group.members.len())
        .map_err(|error| PoolError::Refused(format!("group {id}: {error}")))?;
    for member in &group.members {
        let (name, info) = (&member.name, member.device.info());
        check_member_size(name, info.size_bytes)?;
        let sector = info.sector_bytes;
        if !(9..=13).contains(&ashift) || 1_u64 << ashift < u64::from(sector) {
            return Err(PoolError::Refused(format!(
                "{name} has sectors of {sector} bytes: those of the pool (2^{ashift}) have to be as large, at most 8 KiB"
            )));
        }
    }
    Ok(())
}

pub(crate) fn new_plex<D: Device>(
    id: u32,
    group: NewGroup<D>,
    ashift: u32,
    identities: &mut Identities,
) -> Result<(PlexGround<D>, NvList), PoolError> {
    check_group(id, &group, ashift)?;
    let members = group.members.iter();
    let sizes: Vec<u64> = members
        .map(|member| member.device.info().size_bytes)
        .collect();
    let size_bytes = group_bytes(group.kind, &sizes);
    let top_guid = identities.next();
    let is_single = group.kind == GroupKind::Single;
    let (mut leaves, mut children) = (Vec::new(), Vec::new());
    for (slot, member) in group.members.into_iter().enumerate() {
        let (number, guid) = match group.kind {
            GroupKind::Single => (u64::from(id), top_guid),
            _ => (slot as u64, identities.next()),
        };
        children.push(leaf_list(&member, number, &Guid(guid)));
        let place = 0..member.device.info().size_bytes;
        let (name, device) = (member.name, member.device);
        leaves.push(Leaf::new(name, guid, device, place));
    }
    let kind = group.kind.plex_kind();
    let plex = PlexGround::new(id, &kind, ashift, size_bytes, leaves)?;
    let mut tree = match (group.kind, children.first()) {
        (GroupKind::Single, Some(only)) => only.clone(),
        (GroupKind::RaidZ(parity_count), _) => {
            let mut tree = top_list("raidz", id, &Guid(top_guid));
            tree.put_number("nparity", u64::from(parity_count));
            tree
        }
        _ => top_list("mirror", id, &Guid(top_guid)),
    };
    tree.put_number("metaslab_array", 0);
    tree.put_number("metaslab_shift", u64::from(metaslab_shift(size_bytes)));
    tree.put_number("ashift", u64::from(ashift));
    tree.put_number("asize", size_bytes);
    tree.put_number("is_log", 0);
    tree.put_number("create_txg", FIRST_TXG);
    if !is_single {
        let children = children.into_iter().map(|mut child| {
            child.put_number("create_txg", FIRST_TXG);
            child
        });
        tree.put("children", NvValue::Lists(children.collect()));
    }
    Ok((plex, tree))
}

/// An identity.
pub(crate) struct Guid(pub u64);

/// A member in the configuration.
pub(crate) fn leaf_list<D>(member: &NewMember<D>, number: u64, guid: &Guid) -> NvList {
    let mut list = NvList::default();
    list.put_text("type", if member.is_disk { "disk" } else { "file" });
    list.put_number("id", number);
    list.put_number("guid", guid.0);
    list.put_text("path", &member.path);
    if member.is_disk {
        list.put_number("whole_disk", 0);
    }
    list
}

fn top_list(word: &str, id: u32, guid: &Guid) -> NvList {
    let mut list = NvList::default();
    list.put_text("type", word);
    list.put_number("id", u64::from(id));
    list.put_number("guid", guid.0);
    list
}

/// The sum of the identities of a plex and its members.
pub(crate) fn tree_guids(tree: &NvList) -> u64 {
    let mut sum = 0_u64;
    let mut work = vec![tree];
    while let Some(list) = work.pop() {
        sum = sum.wrapping_add(list.number("guid").unwrap_or(0));
        work.extend(list.lists("children"));
    }
    sum
}

/// The configuration that a pool keeps of itself.
fn config(new: &NewPool, guid: u64, trees: Vec<NvList>) -> NvList {
    let mut list = NvList::default();
    list.put_number("version", FEATURES_VERSION);
    list.put_text("name", &new.name);
    list.put_number("state", 0);
    list.put_number("txg", FIRST_TXG);
    list.put_number("pool_guid", guid);
    list.put_number("errata", 0);
    list.put_text("hostname", &new.host);
    list.put_number("vdev_children", trees.len() as u64);
    let mut root = top_list("root", 0, &Guid(guid));
    root.put_number("create_txg", FIRST_TXG);
    root.put("children", NvValue::Lists(trees));
    list.put("vdev_tree", NvValue::List(root));
    list.put("features_for_read", NvValue::List(NvList::default()));
    list
}
