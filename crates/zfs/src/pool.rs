//! Joining members to a pool, and the choice of its root.
//!
//! Invariants:
//! - all members belong to one pool; of each plex the label that was written last counts;
//! - a root counts when the pool's own object set, its directory and its tree of data sets can be read from it; at most
//!   [`ROOTS_MAX`] are tried, the newest first, and no older one when members are missing that the newest needs;
//! - features that are not known refuse the pool by name before anything is read.

use std::collections::BTreeMap;
use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::{
    Label, NvList, PlexConfig, PlexKind, PoolState, Uberblock, unreadable_features,
};

use crate::block::Blocks;
use crate::damage::Damage;
use crate::error::ZfsError;
use crate::member::MemberState;
use crate::object::{Object, ObjectSet};
use crate::plex::Plex;

/// Most roots that are tried.
const ROOTS_MAX: usize = 12;
/// The object with the names of all others that matter.
const DIRECTORY_OBJECT: u64 = 1;
/// Longest configuration in the pool's own object set.
const CONFIG_BYTES_MAX: u64 = 16 << 20;
/// Most plexes of a pool that are looked at.
const PLEXES_MAX: u64 = 4096;

/// What the user wants of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// The newest root up to this transaction group instead of the newest of all.
    pub txg: Option<u64>,
}

/// A member in the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// Name of what was given; `None` when the member is missing.
    pub name: Option<String>,
    /// Where it was when the pool was used last.
    pub path: String,
    /// Its identity.
    pub guid: u64,
    /// Number of its plex.
    pub plex_id: u64,
    /// Its slot.
    pub slot: usize,
    /// Its newest root.
    pub newest_txg: u64,
    /// It missed the last changes: its label is older than others of its plex.
    pub is_stale: bool,
    /// How many of its four labels are good.
    pub good_labels: usize,
}

/// What is known about a pool.
#[derive(Clone, Debug)]
pub struct PoolReport {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub guid: u64,
    /// Version of its format.
    pub version: u64,
    /// What it was doing when it was written last.
    pub state: PoolState,
    /// Active features without which it cannot be read.
    pub features: Vec<String>,
    /// Numbers of plexes that were removed and hold nothing.
    pub holes: Vec<u64>,
    /// All plexes; `None`: not even its kind is known.
    pub plexes: Vec<(u64, Option<PlexConfig>)>,
    /// All members of all plexes.
    pub members: Vec<MemberReport>,
    /// The root that is used.
    pub root: Uberblock,
    /// Newer roots that could not be used, and why.
    pub skipped_roots: Vec<(u64, String)>,
    /// All roots found, the newest first: transaction group and time.
    pub roots: Vec<(u64, u64)>,
    /// Things worth knowing.
    pub notes: Vec<String>,
}

impl PoolReport {
    /// A plex, by its number, is this one now, and these are its members that are there.
    pub(crate) fn change_plex<D>(&mut self, config: &PlexConfig, members: &[Rc<MemberState<D>>]) {
        let changed = member_reports(std::slice::from_ref(config), members);
        self.members.retain(|one| one.plex_id != config.id);
        self.members.extend(changed);
        self.members.sort_by_key(|one| (one.plex_id, one.slot));
        self.plexes.retain(|(id, _)| *id != config.id);
        self.plexes.push((config.id, Some(config.clone())));
        self.plexes.sort_by_key(|(id, _)| *id);
    }

    /// Members that are not there.
    #[must_use]
    pub fn missing(&self) -> Vec<&MemberReport> {
        self.members
            .iter()
            .filter(|member| member.name.is_none())
            .collect()
    }
}

/// A pool that is open for reading.
pub struct Pool<D> {
    /// What is known about it.
    pub report: PoolReport,
    pub(crate) blocks: Rc<Blocks<D>>,
    pub(crate) meta: ObjectSet,
    pub(crate) directory: Object,
}

impl<D: Device + 'static> Pool<D> {
    /// Joins the members and chooses a root.
    ///
    /// # Errors
    /// `Members` when they are none; `OtherPool` when they are of several pools; `Unsupported` for features that are
    /// not known; `Roots` and why none can be used.
    pub async fn open(
        members: Vec<MemberState<D>>,
        options: &OpenOptions,
    ) -> Result<Self, ZfsError> {
        let (members, bystanders) = without_bystanders(members);
        let members = with_labels_of_the_root(members, options);
        let newest = newest_label(&members, &bystanders)?;
        let unknown = unreadable_features(&newest.features);
        if !unknown.is_empty() {
            return Err(ZfsError::Unsupported {
                what: format!("pool {}", newest.pool_name),
                reason: format!(
                    "it uses features that are not known: {}",
                    unknown.join(", ")
                ),
            });
        }
        let members: Vec<Rc<MemberState<D>>> = members.into_iter().map(Rc::new).collect();
        let configs = plex_configs(&members);
        let candidates = candidates(&members, options)?;
        let all_roots = all_roots(&members);
        let mut skipped_roots = Vec::new();
        for root in candidates.iter().take(ROOTS_MAX) {
            match Self::open_root(root, &configs, &members).await {
                Ok((blocks, meta, directory, ground)) => {
                    let PoolGround { plexes, plex_count } = ground;
                    let mut report = PoolReport {
                        name: newest.pool_name.clone(),
                        guid: newest.pool_guid,
                        version: newest.version,
                        state: newest.state,
                        features: newest.features.clone(),
                        holes: newest.holes.clone(),
                        members: member_reports(&plexes, &members),
                        plexes: numbered(plexes, plex_count.unwrap_or(newest.plex_count)),
                        root: root.clone(),
                        skipped_roots,
                        roots: all_roots,
                        notes: Vec::new(),
                    };
                    report.notes = notes(&report);
                    report.notes.extend(bystanders);
                    return Ok(Self {
                        report,
                        blocks,
                        meta,
                        directory,
                    });
                }
                Err(error) => {
                    // An older root would show an old state as if it were the last one.
                    let lost = lost_plexes(&configs, &members, &newest);
                    if !lost.is_empty() && options.txg.is_none() {
                        return Err(ZfsError::Roots(format!(
                            "pool {}: the root of transaction group {} cannot be read: {}: {error}",
                            newest.pool_name,
                            root.txg,
                            lost.join(", ")
                        )));
                    }
                    skipped_roots.push((root.txg, error.to_string()));
                }
            }
        }
        let (txg, reason) = skipped_roots.first().cloned().unwrap_or_default();
        let (pool, tried) = (&newest.pool_name, skipped_roots.len());
        Err(ZfsError::Roots(format!(
            "pool {pool}: none of {tried} roots can be read; the newest, of transaction group {txg}: {reason}"
        )))
    }

    /// The pool's own object set and directory by one root.
    async fn open_root(
        root: &Uberblock,
        configs: &BTreeMap<u64, PlexConfig>,
        members: &[Rc<MemberState<D>>],
    ) -> Result<(Rc<Blocks<D>>, ObjectSet, Object, PoolGround), ZfsError> {
        let mut configs: Vec<PlexConfig> = configs.values().cloned().collect();
        let mut blocks = Blocks::new(plexes(&configs, members));
        blocks.is_expanding = root.is_expanding;
        let meta = blocks.object_set(&root.root, "the pool").await?;
        let directory = blocks.object(&meta, DIRECTORY_OBJECT).await?;
        let config = read_config(&blocks, &meta, &directory).await?;
        // What the root itself says counts: labels may tell of a change that a crash kept from becoming true, also when
        // later roots have reached their number. It has plexes without any label, too.
        let listed = config.as_ref().map(PlexConfig::all_of_pool);
        let plex_count = config.as_ref().and_then(PlexConfig::count_of_pool);
        if let Some(listed) = listed.filter(|listed| !listed.is_empty()) {
            configs = listed;
        }
        configs.sort_by_key(|plex| plex.id);
        let is_expanding = blocks.is_expanding;
        let mut blocks = Blocks::new(plexes(&configs, members));
        blocks.is_expanding = is_expanding;
        let number = blocks.zap_number(&directory, "root_dataset").await?;
        blocks.object(&meta, number.unwrap_or(0)).await?;
        let ground = PoolGround {
            plexes: configs,
            plex_count,
        };
        Ok((Rc::new(blocks), meta, directory, ground))
    }

    /// Whether something was found wrong on members since [`take_damage`](Self::take_damage).
    #[must_use]
    pub fn has_damage(&self) -> bool {
        self.blocks.has_damage()
    }

    /// Everything that was found wrong on members since the last call. Blocks that could be mended are in it too.
    #[must_use]
    pub fn take_damage(&self) -> Vec<Damage> {
        self.blocks.take_damage()
    }
}

/// How a pool is put together, by one root.
struct PoolGround {
    plexes: Vec<PlexConfig>,
    /// How many there are, when the root says so.
    plex_count: Option<u64>,
}

/// The members that hold something of a pool, and a note on each other one. What is left in a spare's ring may be of
/// the pool it was in before.
fn without_bystanders<D>(members: Vec<MemberState<D>>) -> (Vec<MemberState<D>>, Vec<String>) {
    let mut notes = Vec::new();
    let mut kept = Vec::new();
    for member in members {
        match member.label.bystander() {
            Some(what) => {
                let name = &member.name;
                notes.push(format!("{name} is a {what}: it holds no data of the pool"));
            }
            None => kept.push(member),
        }
    }
    (kept, notes)
}

/// A change of the configuration writes two labels of each member, the root, then the other two. When it was cut off
/// before the root, those two say what never became true: of each member the last label counts that is not newer than
/// the newest root. A member that has newer ones alone was about to be added, when it has no root either. With roots it
/// was one before, and lost its other two labels to an earlier cut. Source: zfs-write.md 1.1.
fn with_labels_of_the_root<D>(
    members: Vec<MemberState<D>>,
    options: &OpenOptions,
) -> Vec<MemberState<D>> {
    let roots = members.iter().flat_map(|member| &member.roots);
    let newest_txg = roots.map(|root| root.txg).max().unwrap_or(0);
    let fit = |member: &MemberState<D>| {
        let labels = member.labels.iter().map(|(_, label)| label);
        let old = labels.filter(|label| label.txg <= newest_txg);
        old.max_by_key(|label| label.txg).cloned()
    };
    let believed: Vec<Label> = members.iter().filter_map(fit).collect();
    let newest = believed.iter().max_by_key(|label| label.txg);
    let (Some(newest), None) = (newest, options.txg) else {
        return members; // of an older root that was asked for the labels say nothing
    };
    let fitting = members.into_iter().filter_map(|mut member| {
        member.label = match fit(&member) {
            Some(label) => label,
            None if member.roots.is_empty() => return None,
            None => as_told_by_others(&member.label, newest, &believed),
        };
        Some(member)
    });
    fitting.collect()
}

/// The label of a member whose own ones are too new: the pool as the newest label that is believed has it, and its plex
/// as a believed label of that plex has it, where there is one.
fn as_told_by_others(own: &Label, newest: &Label, believed: &[Label]) -> Label {
    let mut plexes = believed.iter().filter_map(|label| label.plex.as_ref());
    let is_in = |plex: &&PlexConfig| {
        let mut leaves = plex.slots.iter().flatten();
        leaves.any(|leaf| leaf.guid == own.guid)
    };
    let told = plexes.rfind(is_in);
    Label {
        guid: own.guid,
        plex: told.or(own.plex.as_ref()).cloned(),
        ..newest.clone()
    }
}

/// The label that was written last of all; checks that there is one pool.
fn newest_label<D>(members: &[MemberState<D>], bystanders: &[String]) -> Result<Label, ZfsError> {
    // A label of transaction group 0 is that of a member that was just added.
    let newest = members
        .iter()
        .map(|member| &member.label)
        .max_by_key(|label| label.txg);
    let newest = newest.ok_or_else(|| match bystanders {
        [] => ZfsError::Members("no member of a pool was found".into()),
        found => ZfsError::Members(format!(
            "no member with data of a pool was found: {}",
            found.join(", ")
        )),
    })?;
    if let Some(other) = members
        .iter()
        .find(|member| member.label.pool_guid != newest.pool_guid)
    {
        return Err(ZfsError::OtherPool(format!(
            "{} belongs to pool {} (guid {}), the others to {} (guid {})",
            other.name,
            other.label.pool_name,
            other.label.pool_guid,
            newest.pool_name,
            newest.pool_guid
        )));
    }
    Ok(newest.clone())
}

/// The newest configuration of each plex that a label has.
fn plex_configs<D>(members: &[Rc<MemberState<D>>]) -> BTreeMap<u64, PlexConfig> {
    let mut found: BTreeMap<u64, (u64, PlexConfig)> = BTreeMap::new();
    for label in members.iter().map(|member| &member.label) {
        if let Some(plex) = label
            .plex
            .as_ref()
            .filter(|plex| plex.id <= u64::from(u32::MAX))
        {
            let is_newer = found.get(&plex.id).is_none_or(|(txg, _)| label.txg > *txg);
            if is_newer && label.txg != 0 {
                found.insert(plex.id, (label.txg, plex.clone()));
            }
        }
    }
    found
        .into_iter()
        .map(|(id, (_, plex))| (id, plex))
        .collect()
}

fn plexes<D: Device>(
    configs: &[PlexConfig],
    members: &[Rc<MemberState<D>>],
) -> BTreeMap<u32, Plex<D>> {
    configs
        .iter()
        .filter_map(|config| {
            let id = u32::try_from(config.id).ok()?;
            Some((id, Plex::new(config.clone(), members)))
        })
        .collect()
}

/// The roots to try, the newest first.
fn candidates<D>(
    members: &[Rc<MemberState<D>>],
    options: &OpenOptions,
) -> Result<Vec<Uberblock>, ZfsError> {
    let mut roots: Vec<Uberblock> = members
        .iter()
        .flat_map(|member| member.roots.clone())
        .collect();
    roots.sort_by_key(|root| std::cmp::Reverse(root.rank()));
    roots.dedup();
    if roots.is_empty() {
        return Err(ZfsError::Members("no member has a good uberblock".into()));
    }
    let Some(wanted) = options.txg else {
        return Ok(roots);
    };
    let oldest = roots.last().map_or(0, |root| root.txg);
    roots.retain(|root| root.txg <= wanted);
    // Only the one that was asked for: another would be a silent surprise.
    roots.truncate(1);
    if roots.is_empty() {
        return Err(ZfsError::NotFound(format!(
            "no root of transaction group {wanted} or before is left; the oldest is {oldest}"
        )));
    }
    Ok(roots)
}

/// What says that a plex lacks more members than it can spare: a few words for each such plex.
fn lost_plexes<D>(
    configs: &BTreeMap<u64, PlexConfig>,
    members: &[Rc<MemberState<D>>],
    newest: &Label,
) -> Vec<String> {
    let is_there = |guid: u64| members.iter().any(|member| member.label.guid == guid);
    let mut lost = Vec::new();
    for plex in configs.values() {
        let slots = plex.slots.iter();
        let missing: Vec<&str> = slots
            .filter(|slot| !slot.iter().any(|leaf| is_there(leaf.guid)))
            .filter_map(|slot| Some(slot.first()?.path.as_str()))
            .collect();
        if missing.len() > plex.losses_max() {
            let (id, missing) = (plex.id, missing.join(" and "));
            lost.push(format!(
                "of plex {id} too many members are missing ({missing})"
            ));
        }
    }
    let known = configs.len();
    let is_gap = |id: &u64| !configs.contains_key(id) && !newest.holes.contains(id);
    if (0..newest.plex_count.min(PLEXES_MAX)).any(|id| is_gap(&id)) {
        let all = newest.plex_count.saturating_sub(newest.holes.len() as u64);
        lost.push(format!("members of {known} of {all} plexes are there"));
    }
    lost
}

fn all_roots<D>(members: &[Rc<MemberState<D>>]) -> Vec<(u64, u64)> {
    let all = members.iter().flat_map(|member| &member.roots);
    let mut roots: Vec<(u64, u64)> = all.map(|root| (root.txg, root.written_s)).collect();
    roots.sort_unstable_by(|a, b| b.cmp(a));
    roots.dedup();
    roots
}

async fn read_config<D: Device>(
    blocks: &Blocks<D>,
    meta: &ObjectSet,
    directory: &Object,
) -> Result<Option<NvList>, ZfsError> {
    let Some(number) = blocks.zap_number(directory, "config").await? else {
        return Ok(None);
    };
    let object = blocks.object(meta, number).await?;
    let length = object
        .dnode
        .bonus
        .get(..8)
        .and_then(|bytes| bytes.try_into().ok());
    let length = length.map(u64::from_le_bytes);
    let length = length
        .filter(|length| *length <= CONFIG_BYTES_MAX)
        .unwrap_or(0);
    let bytes = blocks.read_range(&object, 0, length as usize).await?;
    // What it adds is names of plexes that are gone: worth no refusal of the whole pool.
    Ok(NvList::parse(&bytes).ok())
}

fn numbered(plexes: Vec<PlexConfig>, plex_count: u64) -> Vec<(u64, Option<PlexConfig>)> {
    let mut all: BTreeMap<u64, Option<PlexConfig>> = (0..plex_count.min(PLEXES_MAX))
        .map(|id| (id, None))
        .collect();
    all.extend(plexes.into_iter().map(|plex| (plex.id, Some(plex))));
    all.into_iter().collect()
}

fn member_reports<D>(plexes: &[PlexConfig], members: &[Rc<MemberState<D>>]) -> Vec<MemberReport> {
    let mut reports = Vec::new();
    for plex in plexes {
        let of_plex = |guid: u64| members.iter().find(|member| member.label.guid == guid);
        let leaves = plex.slots.iter().flatten();
        let newest = leaves
            .filter_map(|leaf| Some(of_plex(leaf.guid)?.label.txg))
            .max();
        for (slot, leaves) in plex.slots.iter().enumerate() {
            for leaf in leaves {
                let member = of_plex(leaf.guid);
                reports.push(MemberReport {
                    name: member.map(|member| member.name.clone()),
                    path: leaf.path.clone(),
                    guid: leaf.guid,
                    plex_id: plex.id,
                    slot,
                    newest_txg: member
                        .and_then(|member| Some(member.roots.first()?.txg))
                        .unwrap_or(0),
                    is_stale: member.is_some_and(|member| Some(member.label.txg) < newest),
                    good_labels: member.map_or(0, |member| member.good_labels),
                });
            }
        }
    }
    reports
}

fn notes(report: &PoolReport) -> Vec<String> {
    let mut notes = Vec::new();
    for (txg, reason) in &report.skipped_roots {
        notes.push(format!(
            "the root of transaction group {txg} is not used: {reason}"
        ));
    }
    for (id, plex) in &report.plexes {
        match plex.as_ref().map(PlexConfig::refusal) {
            // A number without a plex: nothing can be missing.
            Some(_)
                if plex
                    .as_ref()
                    .is_some_and(|plex| plex.kind == PlexKind::Hole) => {}
            None if report.holes.contains(id) => {}
            None => notes.push(format!(
                "no member of plex {id} is there: what is on it cannot be read"
            )),
            Some(Some(reason)) => notes.push(format!("plex {id} cannot be read: {reason}")),
            Some(None) => {}
        }
    }
    for member in &report.members {
        match &member.name {
            None => notes.push(format!(
                "plex {} slot {} is missing: {} (guid {})",
                member.plex_id, member.slot, member.path, member.guid
            )),
            Some(name) if member.is_stale => {
                notes.push(format!(
                    "{name} missed the last changes; what is old on it is found by checksums"
                ));
            }
            Some(name) if member.good_labels < 4 => {
                notes.push(format!(
                    "{name}: {} of 4 labels are good",
                    member.good_labels
                ));
            }
            Some(_) => {}
        }
    }
    if report.state == PoolState::Active {
        notes.push("the pool was not exported: the last committed root is read".into());
    }
    if report.state == PoolState::Destroyed {
        notes.push("the pool was destroyed: what was not overwritten since can be read".into());
    }
    notes
}
