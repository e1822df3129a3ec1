//! ZFS pools: what is on members, how they fit together, and a pool opened for reading.
//!
//! Invariants: members are opened read-only, and nothing is ever written to them.

use std::collections::BTreeMap;

use plexum_block::buf::BufPool;
use plexum_block::device::IoError;
use plexum_format::describe::Field;
use plexum_format::partition::Partition;
use plexum_format::zfs::label::{
    self, LABEL_HEAD_BYTES, LABEL_HEAD_OFFSET_BYTES, best_label, may_be_label, roots,
};
use plexum_format::zfs::{LABEL_BYTES, Label, LabelArea, USUAL_STARTS_BYTES, label_offsets};
use plexum_runtime::Handle;
use plexum_runtime::file::OpenOptions;
use plexum_zfs::{NamedDevice, Pool, ZfsError, find_members};

use crate::open::{AnyDevice, MemberWord};
use crate::problem::{Code, Problem};

/// Unused buffers that a pool keeps, in bytes.
const KEEP_BYTES: usize = 64 << 20;

/// A pool of this process.
pub type RealPool = Pool<AnyDevice>;

/// A member of a pool: a whole file or device, or a partition of it.
#[derive(Debug)]
pub struct ZfsMember {
    /// The member as the user wrote it; `disk:p1` in a partition, `disk+1048576` where no table says that there is one.
    pub name: String,
    /// Where the member begins.
    pub start_bytes: u64,
    /// Its labels.
    pub areas: Vec<LabelArea>,
}

impl ZfsMember {
    /// The best of its labels; `None` when all are damaged.
    #[must_use]
    pub fn label(&self) -> Option<&Label> {
        best_label(&self.areas)
    }

    /// Decoded fields.
    #[must_use]
    pub fn fields(&self) -> Vec<Field> {
        label::describe(&self.areas, self.start_bytes)
    }
}

/// Reads a range of a member whole.
type ReadAt<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> std::io::Result<()>;

/// Where members of pools are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// In the partitions, else on the whole.
    Tables,
    /// And, when nothing was found, where partitions usually begin: the table may be lost. Not where other sets are,
    /// whose data may begin there.
    UsualStarts,
}

/// The members of pools on a file or device of `size_bytes` with these partitions. What cannot be read is passed over.
#[must_use]
pub fn members_on(
    read: ReadAt<'_>,
    size_bytes: u64,
    word: &str,
    partitions: &[Partition],
    search: Search,
) -> Vec<ZfsMember> {
    let parts = partitions.iter();
    let parts = parts.map(|part| (format!("{word}:{}", part.name), part.place.clone()));
    let whole = vec![(word.to_owned(), 0..size_bytes)];
    let usual: Vec<_> = match search {
        Search::Tables => Vec::new(),
        Search::UsualStarts => USUAL_STARTS_BYTES
            .map(|start| (format!("{word}+{start}"), start..size_bytes))
            .to_vec(),
    };
    let mut found: Vec<ZfsMember> = Vec::new();
    for places in [parts.collect(), whole, usual] {
        for (name, place) in places {
            let length_bytes = place.end.saturating_sub(place.start);
            let Some(member) = member_at(&mut *read, place.start, length_bytes, name) else {
                continue;
            };
            // A slice and the partition of its BSD label may begin in the same place: the one with more good labels
            // counts.
            match found
                .iter_mut()
                .find(|other| other.start_bytes == place.start)
            {
                Some(other) if other.areas.len() < member.areas.len() => *other = member,
                Some(_) => {}
                None => found.push(member),
            }
        }
        if !found.is_empty() {
            break;
        }
    }
    found
}

/// The member in that part of a device; `None` when no label of it is good.
#[must_use]
pub fn member_at(
    read: ReadAt<'_>,
    start_bytes: u64,
    size_bytes: u64,
    name: String,
) -> Option<ZfsMember> {
    let mut areas = Vec::new();
    for offset in label_offsets(size_bytes) {
        // Most files are no members: a few bytes tell, and a whole label need not be read.
        let mut head = [0; LABEL_HEAD_BYTES];
        let at = start_bytes + offset;
        if read(at + LABEL_HEAD_OFFSET_BYTES, &mut head).is_err() || !may_be_label(&head) {
            continue;
        }
        let mut bytes = vec![0; LABEL_BYTES];
        if read(at, &mut bytes).is_ok() {
            areas.push(LabelArea::parse(&bytes, offset));
        }
    }
    let is_there = areas.iter().any(|area| area.label.is_ok());
    is_there.then_some(ZfsMember {
        name,
        start_bytes,
        areas,
    })
}

/// A place in a pool's tree.
#[derive(Debug)]
pub struct SlotView {
    /// Number of the plex.
    pub plex_id: u64,
    /// What the plex is.
    pub plex_kind: String,
    /// Slot.
    pub slot: usize,
    /// Identity of the member.
    pub guid: u64,
    /// What was given for it; `None`: missing.
    pub name: Option<String>,
    /// Where it was when the pool was used last.
    pub path: String,
    /// When its label was written.
    pub label_txg: u64,
    /// Its newest root.
    pub newest_txg: u64,
    /// It is older than others of its plex.
    pub is_stale: bool,
}

/// How members of one pool fit together, by their labels alone.
#[derive(Debug)]
pub struct PoolView {
    /// The newest label.
    pub label: Label,
    /// All places that the labels know.
    pub slots: Vec<SlotView>,
    /// Plexes of which no member was given.
    pub unknown_plexes: Vec<u64>,
    /// Why it, or a part of it, cannot be read.
    pub refusals: Vec<String>,
    /// Transaction groups and times of all roots, the newest first.
    pub roots: Vec<(u64, u64)>,
    /// Names of the members.
    pub members: Vec<String>,
}

/// The pools that these members belong to, by identity.
#[must_use]
pub fn pools(members: &[&ZfsMember]) -> Vec<PoolView> {
    let mut by_pool: BTreeMap<u64, Vec<&ZfsMember>> = BTreeMap::new();
    for member in members {
        if let Some(label) = member.label().filter(|label| label.bystander().is_none()) {
            by_pool.entry(label.pool_guid).or_default().push(member);
        }
    }
    by_pool
        .into_values()
        .filter_map(|members| view(&members))
        .collect()
}

/// Spares and cache devices among these members: name, and what it is. Their labels do not say of which pool.
#[must_use]
pub fn bystanders<'a>(members: &[&'a ZfsMember]) -> Vec<(&'a str, &'static str)> {
    let one = |member: &&'a ZfsMember| Some((member.name.as_str(), member.label()?.bystander()?));
    members.iter().filter_map(one).collect()
}

fn view(members: &[&ZfsMember]) -> Option<PoolView> {
    let labels: Vec<(&ZfsMember, &Label)> = members
        .iter()
        .filter_map(|member| Some((*member, member.label()?)))
        .collect();
    let newest = labels
        .iter()
        .map(|(_, label)| *label)
        .max_by_key(|label| label.txg)?;
    let mut plexes: BTreeMap<u64, &Label> = BTreeMap::new();
    for (_, label) in &labels {
        if let Some(plex) = &label.plex {
            let best = plexes.entry(plex.id).or_insert(label);
            if label.txg > best.txg {
                *best = label;
            }
        }
    }
    let mut slots = Vec::new();
    let mut refusals = newest.refusals();
    for (id, best) in &plexes {
        let Some(plex) = &best.plex else { continue };
        refusals.extend(best.refusals());
        for (slot, leaves) in plex.slots.iter().enumerate() {
            for leaf in leaves {
                let found = labels.iter().find(|(_, label)| label.guid == leaf.guid);
                slots.push(SlotView {
                    plex_id: *id,
                    plex_kind: plex.kind.to_string(),
                    slot,
                    guid: leaf.guid,
                    name: found.map(|(member, _)| member.name.clone()),
                    path: leaf.path.clone(),
                    label_txg: found.map_or(0, |(_, label)| label.txg),
                    newest_txg: found
                        .and_then(|(member, _)| Some(roots(&member.areas).first()?.txg))
                        .unwrap_or(0),
                    is_stale: found.is_some_and(|(_, label)| label.txg < best.txg),
                });
            }
        }
    }
    refusals.sort();
    refusals.dedup();
    let mut times: Vec<(u64, u64)> = members
        .iter()
        .flat_map(|member| roots(&member.areas))
        .map(|root| (root.txg, root.written_s))
        .collect();
    times.sort_unstable_by(|a, b| b.cmp(a));
    times.dedup();
    Some(PoolView {
        label: newest.clone(),
        slots,
        unknown_plexes: (0..newest.plex_count.min(4096))
            .filter(|id| !plexes.contains_key(id) && !newest.holes.contains(id))
            .collect(),
        refusals,
        roots: times,
        members: members.iter().map(|member| member.name.clone()).collect(),
    })
}

/// Opens the members and the pool. Members on which nothing was found are left out, with a note.
///
/// # Errors
/// Of opening; `NoMetadata` when no member has a label; what [`of_zfs`] makes of the rest.
pub async fn open_pool(
    handle: &Handle,
    words: &[String],
    options: &plexum_zfs::OpenOptions,
) -> Result<RealPool, Problem> {
    let mut devices = Vec::new();
    for word in words {
        let parsed = MemberWord::parse(word);
        if parsed == MemberWord::Missing {
            continue;
        }
        let device = AnyDevice::open(handle, &parsed, &OpenOptions::read_only()).await?;
        devices.push(NamedDevice {
            name: word.clone(),
            device,
        });
    }
    let buffers = BufPool::new(KEEP_BYTES);
    let (members, left_out) = find_members(devices, &buffers).await;
    if members.is_empty() {
        let text = left_out
            .first()
            .cloned()
            .unwrap_or_else(|| "no members were given".into());
        return Err(Problem::new(Code::NoMetadata, text)
            .why("neither in a partition, nor on the whole, nor where partitions usually begin")
            .hint("to see what is on a member:   plexum examine MEMBER"));
    }
    let mut pool = Pool::open(members, options)
        .await
        .map_err(|error| of_zfs(&error))?;
    pool.report.notes.extend(
        left_out
            .into_iter()
            .map(|text| format!("{text}; it is left out")),
    );
    Ok(pool)
}

/// The problem that something unreadable means.
#[must_use]
pub fn of_zfs(error: &ZfsError) -> Problem {
    let text = error.to_string();
    match error {
        ZfsError::Unsupported { .. } => Problem::new(Code::UnsupportedFeature, text),
        ZfsError::NotFound(_) => Problem::new(Code::NoSuchFile, text)
            .hint("to see what there is:   plexum pool list MEMBER..."),
        ZfsError::OtherPool(_) => Problem::new(Code::ForeignMember, text)
            .hint("to see what belongs together:   plexum scan MEMBER..."),
        ZfsError::Members(_) => Problem::new(Code::TooFewMembers, text)
            .hint("to see which members there are:   plexum examine MEMBER..."),
        ZfsError::Roots(_) => Problem::new(Code::TooFewMembers, text)
            .hint("to see which members there are:   plexum examine MEMBER...")
            .hint("to read an older root, without what was written since:   add --txg N"),
        ZfsError::Damaged { .. } => Problem::new(Code::IoError, text)
            .why("more members are missing or wrong than the pool can make up for")
            .hint("if there are further members, give them as well"),
        ZfsError::Io {
            error: IoError::Gone,
            ..
        } => Problem::new(Code::DeviceGone, text),
        ZfsError::Invalid { .. } | ZfsError::Format(_) => Problem::new(Code::DamagedMetadata, text),
        _ => Problem::new(Code::IoError, text),
    }
}
