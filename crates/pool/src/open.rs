//! Opening a pool for writing: everything that could make a write wrong is a refusal, by name, before anything is
//! written.
//!
//! Source: zfs-write.md 1.2, 1.5, 1.10.

use std::collections::BTreeMap;
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_block::device::Device;
use plexum_format::zfs::label_write::NewUberblock;
use plexum_format::zfs::{NvList, PoolState};
use plexum_zfs::{MemberState, OpenOptions, Pool};

use crate::check::{CheckReport, check_shared};
use crate::create::tree_guids;
use crate::dsl;
use crate::error::PoolError;
use crate::ground::{Ground, Leaf, PlexGround};
use crate::missed::{Behind, members_behind_in_roots};
use crate::mutant::DeliberateBug;
use crate::set::SetState;
use crate::space::{Metaslab, Space};
use crate::space_map::load_map;
use crate::state::{ConfigState, Landmarks, Unsettled, WritablePool};
use crate::tree::Source;

const FEATURES_VERSION: u64 = 5000;
const OBJECT_DIRECTORY: u64 = 1;
/// Most metaslabs of a plex that are read.
const METASLABS_MAX: u64 = 1 << 17;
/// Most roots that a member may have which no other one has: one commit is cut off at a time, and it writes one more
/// for each member that is lost meanwhile.
pub(crate) const ROOTS_OF_ABSENT_MAX: u64 = 64;

/// Features that may be active in a pool that is written: none of them changes what a writer of volumes has to do.
pub const FEATURES_WRITABLE: [&str; 14] = [
    "com.delphix:async_destroy",
    "com.delphix:embedded_data",
    "com.delphix:enabled_txg",
    "com.delphix:extensible_dataset",
    "com.delphix:spacemap_v2",
    "com.joyent:filesystem_limits",
    "org.freebsd:zstd_compress",
    "org.illumos:lz4_compress",
    "org.illumos:sha512",
    "org.open-zfs:large_blocks",
    "org.zfsonlinux:large_dnode",
    "org.zfsonlinux:project_quota",
    "org.zfsonlinux:userobj_accounting",
    "com.datto:resilver_defer",
];

/// Which hosts' pools may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Foreign {
    /// One that another host has in use, as its labels say, is refused.
    #[default]
    Refused,
    /// The user said that no other host has it in use any more.
    Taken,
}

/// Whether a pool is written without members that it can do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absent {
    /// Not: the members that were given should be all.
    #[default]
    Refused,
    /// The user said that some are missing.
    Accepted,
}

/// How a pool is opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Which hosts' pools may be written.
    pub foreign: Foreign,
    /// Whether members may be missing.
    pub absent: Absent,
    /// A deliberate bug: none, but in the hunt for them.
    pub bug: DeliberateBug,
}

impl From<Foreign> for WriteOptions {
    fn from(foreign: Foreign) -> Self {
        Self {
            foreign,
            ..Self::default()
        }
    }
}

impl<D: Device> WritablePool<D> {
    /// Opens a pool for writing. Intent logs that were left are replayed in memory, and a part of the next commit.
    /// Nothing is written here.
    ///
    /// # Errors
    /// `Refused` for members that are missing or old, pools in use elsewhere, features that are not known to a writer,
    /// and plexes that are not written; what of it cannot be read.
    pub async fn open(
        members: Vec<MemberState<D>>,
        options: impl Into<WriteOptions>,
        buffers: &BufPool,
    ) -> Result<Self, PoolError> {
        let options: WriteOptions = options.into();
        let behind = members_behind_in_roots(&members);
        let pool = Pool::open(members.clone(), &OpenOptions::default()).await?;
        check_report(&pool, options.absent)?;
        let mut plexes = BTreeMap::new();
        for (config, slots) in pool.plexes() {
            let plex = writable_plex(config, slots)?;
            plexes.insert(plex.id, plex);
        }
        let ground = Ground::new(plexes, buffers);
        let (name, guid) = (pool.report.name.clone(), pool.report.guid);
        let (version, txg, guid_sum) = (
            pool.report.version,
            pool.report.root.txg,
            pool.report.root.guid_sum,
        );
        let label_state = u64::from(pool.report.state == PoolState::Exported);
        let root = pool.report.root.root_image;
        let source = Source {
            pool: Some(Rc::new(pool)),
        };
        let meta = SetState::open(&source, &root, "the pool").await?;
        let mut writable = Self {
            name,
            guid,
            version,
            config: NvList::default(),
            config_state: ConfigState::Written,
            label_state,
            guid_sum,
            source,
            ground,
            space: Space::default(),
            meta,
            sets: BTreeMap::new(),
            arrays: BTreeMap::new(),
            landmarks: Landmarks::default(),
            txg,
            frozen: None,
            skipped_txgs: 0,
            bug: options.bug,
            unsettled: None,
            recorded_losses: 0,
            is_rehearsal: false,
            pending: crate::state::Pending::default(),
            logs: BTreeMap::new(),
            missed: BTreeMap::new(),
        };
        writable.find_landmarks().await?;
        writable.unsettled = writable.unsettled_root(&members, &behind);
        writable.check_features().await?;
        writable.check_config(options.foreign)?;
        writable.check_members()?;
        writable.load_missed(&behind).await?;
        writable.load_space().await?;
        writable.space.bug = options.bug;
        writable.ground.bug = options.bug;
        writable.replay_logs().await?;
        writable.leave_room_for_absent();
        Ok(writable)
    }

    /// A member that is not there may have a root that nobody else has: a crash cut off the commit. What is committed
    /// without it gets a number that is later than that root's, so that the two are never taken for one another when it
    /// is back.
    fn leave_room_for_absent(&mut self) {
        let is_whole = self.ground.leaves().all(Leaf::is_in);
        if !is_whole {
            self.skipped_txgs = ROOTS_OF_ABSENT_MAX;
            self.txg += ROOTS_OF_ABSENT_MAX;
        }
    }

    /// What was found when it was opened; `None` while it is made.
    #[must_use]
    pub fn report(&self) -> Option<&plexum_zfs::PoolReport> {
        self.source.pool.as_ref().map(|pool| &pool.report)
    }

    /// Checks everything that the pool says about itself, as it is on the members since it was opened: before anything
    /// is written.
    ///
    /// # Errors
    /// Those of [`check_pool`](crate::check_pool).
    pub async fn check(&self) -> Result<CheckReport, PoolError> {
        match &self.source.pool {
            Some(pool) => check_shared(Rc::clone(pool)).await,
            None => Err(PoolError::invalid(
                &self.name,
                "nothing is on the members yet",
            )),
        }
    }

    async fn entry(&self, name: &str) -> Result<u64, PoolError> {
        let number = self
            .meta
            .zap_number(&self.source, OBJECT_DIRECTORY, name)
            .await?;
        number.ok_or_else(|| {
            PoolError::invalid(&self.name, format!("its directory has no entry {name:?}"))
        })
    }

    async fn find_landmarks(&mut self) -> Result<(), PoolError> {
        let config = self.entry("config").await?;
        let length = self.meta.dnode(&self.source, config).await?.bonus_word(0);
        if length > 16 << 20 {
            return Err(PoolError::invalid("configuration", "it is too long"));
        }
        let bytes = self.meta.bytes(config, &self.source, length).await?;
        self.config = NvList::parse(&bytes)?;
        if self.entry("deflate").await? != 1 {
            return Err(PoolError::Refused(format!(
                "pool {} accounts its space in an old way",
                self.name
            )));
        }
        let root_dir = self.entry("root_dataset").await?;
        let children = self
            .meta
            .dnode(&self.source, root_dir)
            .await?
            .bonus_word(dsl::dir::CHILDREN);
        let child = async |name: &str| -> Result<u64, PoolError> {
            let number = self.meta.zap_number(&self.source, children, name).await?;
            number.ok_or_else(|| PoolError::invalid(&self.name, format!("it has no {name}")))
        };
        let (own_dir, origin_dir) = (child("$MOS").await?, child("$ORIGIN").await?);
        let origin_head = self
            .meta
            .dnode(&self.source, origin_dir)
            .await?
            .bonus_word(dsl::dir::HEAD);
        let origin_snapshot = self
            .meta
            .dnode(&self.source, origin_head)
            .await?
            .bonus_word(dsl::set::PREVIOUS);
        self.landmarks = Landmarks {
            config,
            root_dir,
            own_dir,
            origin_snapshot,
            origin_dir,
        };
        Ok(())
    }

    /// Features with a count above zero are in use.
    async fn check_features(&self) -> Result<(), PoolError> {
        let mut unknown = Vec::new();
        for map in ["features_for_read", "features_for_write"] {
            let map = self.entry(map).await?;
            for entry in self.meta.zap(&self.source, map).await? {
                let (name, count) = (entry.text(), entry.number().unwrap_or(1));
                if count > 0 && !FEATURES_WRITABLE.contains(&name.as_str()) {
                    unknown.push(name);
                }
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        Err(PoolError::Refused(format!(
            "pool {} can be read, but is not written: it uses {}",
            self.name,
            unknown.join(", ")
        )))
    }

    fn check_config(&self, foreign: Foreign) -> Result<(), PoolError> {
        let tree = self.config.list("vdev_tree");
        let tree =
            tree.ok_or_else(|| PoolError::invalid("configuration", "it has no vdev tree"))?;
        if tree_guids(tree) != self.guid_sum {
            return Err(PoolError::invalid(
                "configuration",
                "its identities are not those of the root",
            ));
        }
        let host = self.config.number("hostid").unwrap_or(0);
        if host != 0 && self.label_state == 0 && foreign == Foreign::Refused {
            let name = self.config.text("hostname").unwrap_or("?");
            return Err(PoolError::Refused(format!(
                "pool {} is in use by host {name} ({host:x}), or was not exported there; export it there, or say that it is not",
                self.name
            )));
        }
        Ok(())
    }

    /// Members that somebody took offline are not written; others that are not to be used refuse the pool.
    fn check_members(&self) -> Result<(), PoolError> {
        let mut work: Vec<&NvList> = self.config.list("vdev_tree").into_iter().collect();
        while let Some(list) = work.pop() {
            work.extend(list.lists("children"));
            let path = list.text("path").unwrap_or("a plex");
            let is_set = |word: &str| list.number(word).is_some_and(|value| value != 0);
            let words = ["faulted", "degraded", "removed", "unspare"];
            if let Some(word) = words.into_iter().find(|word| is_set(word)) {
                return Err(PoolError::Refused(format!(
                    "pool {} is not written: {path} is {word}",
                    self.name
                )));
            }
            if is_set("offline") {
                let leaf = self
                    .ground
                    .leaves()
                    .find(|leaf| Some(leaf.guid) == list.number("guid"));
                if let Some(leaf) = leaf {
                    *leaf.out.borrow_mut() = Some("it is offline".into());
                }
            }
        }
        for plex in self.ground.plexes.values() {
            if plex.out_count() > plex.spare_count() {
                return Err(PoolError::Refused(format!(
                    "pool {} is not written: of plex {} {} members are out",
                    self.name,
                    plex.id,
                    plex.out_count()
                )));
            }
        }
        Ok(())
    }

    /// Writes labels and a root to all members: from here on they say that the pool is in use. To be called before
    /// anything is served, since a crash may have left the newest root on some members alone.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub async fn begin(&mut self, wall_s: u64) -> Result<(), PoolError> {
        self.label_state = 0;
        self.config_state = ConfigState::Changed;
        self.commit(wall_s).await
    }

    /// Commits what was changed, and says in the labels that the pool may be taken elsewhere.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub async fn export(&mut self, wall_s: u64) -> Result<(), PoolError> {
        self.end_logs(|_| true)?;
        self.label_state = 1;
        self.config_state = ConfigState::Changed;
        self.commit(wall_s).await
    }

    /// All space maps.
    async fn load_space(&mut self) -> Result<(), PoolError> {
        let tree = self.config.list("vdev_tree").cloned().unwrap_or_default();
        let mut metaslabs = BTreeMap::new();
        for (id, plex) in &self.ground.plexes {
            let what = || format!("plex {id}");
            let config = tree
                .lists("children")
                .iter()
                .find(|one| one.number("id") == Some(u64::from(*id)));
            let config = config
                .ok_or_else(|| PoolError::invalid(what(), "the configuration does not have it"))?;
            let (array, shift) = (
                config.number("metaslab_array"),
                config.number("metaslab_shift"),
            );
            let (Some(array), Some(shift @ 16..=60)) = (array, shift) else {
                return Err(PoolError::invalid(what(), "it has no metaslabs"));
            };
            let count = plex.size_bytes >> shift;
            if count > METASLABS_MAX {
                return Err(PoolError::invalid(
                    what(),
                    format!("it has {count} metaslabs"),
                ));
            }
            self.arrays.insert(*id, array);
            let numbers = self.meta.bytes(array, &self.source, 8 * count).await?;
            let (numbers, _) = numbers.as_chunks::<8>();
            for (number, object) in numbers.iter().enumerate() {
                let number = number as u64;
                let range = number << shift..(number + 1) << shift;
                let mut one = Metaslab::new(*id, number, range, plex.ashift);
                one.map_object = u64::from_le_bytes(*object);
                if one.map_object != 0 {
                    load_map(&self.meta, &self.source, &mut one).await?;
                }
                metaslabs.insert((*id, number), one);
            }
        }
        self.space = Space::of(metaslabs);
        Ok(())
    }
}

impl<D: Device> WritablePool<D> {
    /// The root that the pool was just opened with, and what members lack of it and its labels.
    fn unsettled_root(&self, members: &[MemberState<D>], behind: &Behind) -> Option<Unsettled> {
        let root = &self.report()?.root;
        let lacks = |member: &&MemberState<D>| {
            let is_whole = !behind.contains_key(&member.label.guid);
            is_whole && !member.roots.iter().any(|own| own.txg == root.txg)
        };
        let is_unlabelled = |member: &&MemberState<D>| !member.has_label_behind(root.txg);
        let guid = |member: &MemberState<D>| member.label.guid;
        Some(Unsettled {
            root: NewUberblock {
                version: root.version,
                txg: root.txg,
                guid_sum: root.guid_sum,
                written_s: root.written_s,
                root: root.root_image,
            },
            lacking: members.iter().filter(lacks).map(guid).collect(),
            unlabelled: members.iter().filter(is_unlabelled).map(guid).collect(),
            config: self.config.clone(),
            label_state: self.label_state,
        })
    }
}

fn check_report<D: Device>(pool: &Pool<D>, absent: Absent) -> Result<(), PoolError> {
    let report = &pool.report;
    let refuse = |reason: String| {
        Err(PoolError::Refused(format!(
            "pool {} is not written: {reason}",
            report.name
        )))
    };
    if let Some(member) = report.missing().first()
        && absent == Absent::Refused
    {
        return refuse(format!(
            "its member {} is missing; to write without it, give the word `missing` as a member",
            member.path
        ));
    }
    if let Some((txg, reason)) = report.skipped_roots.first() {
        return refuse(format!(
            "its newest root, of transaction group {txg}, cannot be read: {reason}"
        ));
    }
    if report.version != FEATURES_VERSION {
        return refuse(format!("it is of the old version {}", report.version));
    }
    if !matches!(report.state, PoolState::Active | PoolState::Exported) {
        return refuse(format!("its state is: {}", report.state));
    }
    if report.root.checkpoint_txg != 0 {
        return refuse("it has a checkpoint".into());
    }
    if !report.holes.is_empty() {
        return refuse("a plex was removed from it".into());
    }
    Ok(())
}

fn writable_plex<D: Device>(
    config: &plexum_format::zfs::PlexConfig,
    slots: &[Vec<Rc<MemberState<D>>>],
) -> Result<PlexGround<D>, PoolError> {
    let id = config.id;
    let refuse = |reason: &str| PoolError::Refused(format!("plex {id} is not written: {reason}"));
    if let Some(reason) = config.refusal() {
        return Err(refuse(&reason));
    }
    if config.is_log {
        return Err(refuse("it is a log device"));
    }
    if config.slots.iter().any(|slot| slot.len() != 1) {
        return Err(refuse("a member of it is being replaced"));
    }
    let mut leaves = Vec::new();
    for (slot, found) in config.slots.iter().zip(slots) {
        let Some(leaf) = slot.first() else {
            return Err(refuse("a slot has no member"));
        };
        let Some(member) = found.first() else {
            leaves.push(Leaf::missing(leaf.path.clone(), leaf.guid));
            continue;
        };
        let sector = member.device().info().sector_bytes;
        if u64::from(sector) > 1 << config.ashift {
            return Err(refuse("a member has larger sectors than the pool"));
        }
        leaves.push(Leaf {
            missed: member.missed().clone(),
            ..Leaf::new(
                member.name.clone(),
                leaf.guid,
                Rc::clone(member.device()),
                member.place(),
            )
        });
    }
    let id = u32::try_from(id).map_err(|_| refuse("its number is too large"))?;
    PlexGround::new(id, &config.kind, config.ashift, config.size_bytes, leaves)
}
