//! ZFS pools that are made and written: members opened and looked at, pools opened for writing.
//!
//! Invariants: everything is checked before the first write; members stay open and locked until the end.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_block::device::Device;
use plexum_pool::{
    Absent, CheckReport, Foreign, GroupKind, MemberInfo, Mixed, NewGroup, NewMember, NewPool, Now,
    PoolError, UpkeepReport, WritablePool, WriteOptions, check_pool, check_pool_name, group_bytes,
};
use plexum_runtime::Handle;
use plexum_runtime::file::{Access, OpenOptions};
use plexum_zfs::{MemberState, NamedDevice, find_members};
use serde_json::{Value, json};

use crate::create::{check_folder, now_seconds, or_removed, random_uuid, this_host};
use crate::open::{AnyDevice, MemberWord, check_writers};
pub use crate::planned::PlannedMember;
use crate::problem::{Code, Problem};
use crate::zfs::{of_zfs, open_pool};

/// Unused buffers that a pool keeps, in bytes.
const KEEP_BYTES: usize = 64 << 20;

/// A pool to be made.
#[derive(Clone, Debug)]
pub struct PoolRequest {
    /// Its name.
    pub name: String,
    /// Its groups: what their members hold together, and they as written.
    pub groups: Vec<(GroupKind, Vec<String>)>,
    /// Make members that do not exist as files of this size.
    pub member_size_bytes: Option<u64>,
    /// Sector of the pool.
    pub sector_bytes: u64,
}

/// A group of the plan.
pub struct PlannedGroup {
    /// What its members hold together.
    pub kind: GroupKind,
    /// Its address space, parity included.
    pub size_bytes: u64,
    /// They.
    pub members: Vec<PlannedMember>,
}

/// A checked plan.
pub struct PoolCreation {
    /// Name of the pool.
    pub name: String,
    /// Sector as a power of two in bytes.
    pub ashift: u32,
    /// Groups.
    pub groups: Vec<PlannedGroup>,
}

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text)
}

impl PoolCreation {
    /// Plans a pool. Nothing is written.
    ///
    /// # Errors
    /// `Usage` for what the format cannot say; of opening.
    pub async fn prepare(
        handle: &Handle,
        request: &PoolRequest,
        access: Access,
    ) -> Result<Self, Problem> {
        check_pool_name(&request.name).map_err(|error| usage(error.to_string()))?;
        let sector = request.sector_bytes;
        if !sector.is_power_of_two() || !(512..=8192).contains(&sector) {
            return Err(usage(format!(
                "a sector of {sector} bytes: it is a power of two from 512 to 8K"
            )));
        }
        let mut groups = Vec::new();
        for (kind, words) in &request.groups {
            if words.len() < kind.members_min() {
                let (count, fewest) = (words.len(), kind.members_min());
                return Err(usage(format!(
                    "a group of {} needs at least {fewest} members, not {count}",
                    kind.plex_kind()
                )));
            }
            let mut members = Vec::new();
            for word in words {
                members.push(open_member(handle, word, request.member_size_bytes, access).await?);
            }
            let sizes: Vec<u64> = members.iter().map(|member| member.size_bytes).collect();
            for member in &members {
                if member.size_bytes < plexum_pool::MEMBER_BYTES_MIN {
                    let (word, size) = (&member.member, member.size_bytes);
                    return Err(usage(format!(
                        "{word} has {size} bytes: a member of a pool has at least 64 MiB"
                    )));
                }
                let own = member
                    .device
                    .as_ref()
                    .map_or(512, |device| device.info().sector_bytes);
                if u64::from(own) > sector {
                    let word = &member.member;
                    return Err(
                        usage(format!("{word} has sectors of {own} bytes")).hint(format!(
                            "the pool's are as large at least:   --sector {own}"
                        )),
                    );
                }
            }
            groups.push(PlannedGroup {
                kind: *kind,
                size_bytes: group_bytes(*kind, &sizes),
                members,
            });
        }
        let creation = Self {
            name: request.name.clone(),
            ashift: sector.trailing_zeros(),
            groups,
        };
        creation.check_doubles()?;
        Ok(creation)
    }

    /// All members.
    pub fn members(&self) -> impl Iterator<Item = &PlannedMember> {
        self.groups.iter().flat_map(|group| &group.members)
    }

    fn check_doubles(&self) -> Result<(), Problem> {
        let members: Vec<&PlannedMember> = self.members().collect();
        for (at, member) in members.iter().enumerate() {
            let same = |other: &&&PlannedMember| match (&member.device, &other.device) {
                (None, None) => {
                    std::path::absolute(&member.member).ok()
                        == std::path::absolute(&other.member).ok()
                }
                (Some(a), Some(b)) => match (a.as_file(), b.as_file()) {
                    (Some(a), Some(b)) => a.identity() == b.identity(),
                    _ => member.member == other.member,
                },
                _ => false,
            };
            if let Some(other) = members[..at].iter().find(same) {
                let text = format!(
                    "{} is given twice (also as {})",
                    member.member, other.member
                );
                return Err(Problem::new(Code::DuplicateMember, text).hint("give each member once"));
            }
        }
        Ok(())
    }

    /// Makes the pool. New files are removed again when that fails; what was on other members is then lost.
    ///
    /// # Errors
    /// `NoSpace`, `IoError`.
    pub async fn carry_out(self, handle: &Handle) -> Result<(), Problem> {
        or_removed(async |made| self.make(handle, made).await).await
    }

    async fn make(self, handle: &Handle, made: &mut Vec<PathBuf>) -> Result<(), Problem> {
        let mut groups = Vec::new();
        for group in self.groups {
            let mut members = Vec::new();
            for member in group.members {
                members.push(member.make(handle, made).await?);
            }
            groups.push(NewGroup {
                kind: group.kind,
                members,
            });
        }
        let new = NewPool {
            name: self.name,
            ashift: self.ashift,
            wall_s: now_seconds()?,
            seed: random_seed()?,
            host: this_host(),
        };
        let created = WritablePool::create(groups, &new, &BufPool::new(KEEP_BYTES)).await;
        created.map_err(|error| of_pool(&error))
    }
}

impl PlannedMember {
    /// Plans one member, to be given to a pool that is there. Nothing is written.
    ///
    /// # Errors
    /// Of opening.
    pub async fn prepare(
        handle: &Handle,
        word: &str,
        member_size_bytes: Option<u64>,
    ) -> Result<Self, Problem> {
        open_member(handle, word, member_size_bytes, Access::ReadWrite).await
    }

    /// The member for a pool. A file that is made for it is added to `made`.
    ///
    /// # Errors
    /// Of making and opening it.
    pub async fn make(
        self,
        handle: &Handle,
        made: &mut Vec<PathBuf>,
    ) -> Result<NewMember<AnyDevice>, Problem> {
        let device = self.open(handle, made).await?;
        let path =
            std::path::absolute(&self.member).unwrap_or_else(|_| PathBuf::from(&self.member));
        Ok(NewMember {
            is_disk: path.starts_with("/dev") && !path.is_file(),
            path: path.display().to_string(),
            name: self.member,
            device: Rc::new(device),
        })
    }
}

/// Gives a member of a pool its successor; a file that was made for it is removed again when that fails before a root
/// may name it.
///
/// # Errors
/// Of making the file; those of [`WritablePool::replace`].
pub async fn replace_member(
    handle: &Handle,
    pool: &mut WritablePool<AnyDevice>,
    old: &str,
    new: PlannedMember,
    now: Now,
) -> Result<UpkeepReport, Problem> {
    change(pool, async |pool, made| {
        let new = new.make(handle, made).await?;
        let replaced = pool.replace(old, new, now, &mut |_| {}).await;
        replaced.map_err(|error| of_pool(&error))
    })
    .await
}

/// Makes a member a side of a mirror; a file that was made for it is removed again when that fails before a root may
/// name it.
///
/// # Errors
/// Of making the file; those of [`WritablePool::attach`].
pub async fn attach_member(
    handle: &Handle,
    pool: &mut WritablePool<AnyDevice>,
    side: &str,
    new: PlannedMember,
    now: Now,
) -> Result<(), Problem> {
    change(pool, async |pool, made| {
        let new = new.make(handle, made).await?;
        let attached = pool.attach(side, new, now).await;
        attached.map_err(|error| of_pool(&error))
    })
    .await
}

/// Adds a group to a pool; files that were made for it are removed again when that fails before a root may name them.
///
/// # Errors
/// Of making the files; those of [`WritablePool::add_group`].
pub async fn add_group(
    handle: &Handle,
    pool: &mut WritablePool<AnyDevice>,
    (kind, members): (GroupKind, Vec<PlannedMember>),
    mixed: Mixed,
    now: Now,
) -> Result<(), Problem> {
    change(pool, async |pool, made| {
        let mut new = Vec::new();
        for member in members {
            new.push(member.make(handle, made).await?);
        }
        let group = NewGroup { kind, members: new };
        let added = pool.add_group(group, mixed, now).await;
        added.map_err(|error| of_pool(&error))
    })
    .await
}

/// Changes a pool; files that were made for that are removed again when it fails before a root may name them. Of a
/// commit that failed nobody knows how far it got.
async fn change<T>(
    pool: &mut WritablePool<AnyDevice>,
    work: impl AsyncFnOnce(&mut WritablePool<AnyDevice>, &mut Vec<PathBuf>) -> Result<T, Problem>,
) -> Result<T, Problem> {
    or_removed(async |made| {
        let result = work(pool, made).await;
        if pool.why_frozen().is_some() {
            made.clear();
        }
        result
    })
    .await
}

/// A number that no other pool was made with.
///
/// # Errors
/// When the system has no random source.
pub fn random_seed() -> Result<u64, Problem> {
    let [a, b, c, d, e, f, g, h, ..] = random_uuid()?;
    Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

async fn open_member(
    handle: &Handle,
    word: &str,
    member_size_bytes: Option<u64>,
    access: Access,
) -> Result<PlannedMember, Problem> {
    let parsed = MemberWord::parse(word);
    if parsed == MemberWord::Missing {
        return Err(usage(
            "a new pool has all its members: none can be `missing`",
        ));
    }
    if let MemberWord::Path(path) = &parsed
        && std::fs::symlink_metadata(path)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    {
        let Some(size_bytes) = member_size_bytes else {
            return Err(
                Problem::new(Code::NoSuchFile, format!("{word} does not exist"))
                    .member(word)
                    .hint("to make it as a sparse file:   --member-size 4G"),
            );
        };
        check_folder(Path::new(path), word)?;
        let size_bytes = size_bytes / 4096 * 4096;
        return Ok(PlannedMember::new_file(word, size_bytes));
    }
    let options = match access {
        Access::ReadOnly => OpenOptions::read_only(),
        Access::ReadWrite => OpenOptions::read_write(),
    };
    let device = AnyDevice::open(handle, &parsed, &options).await?;
    check_writers(&parsed, word)?;
    PlannedMember::there(word, device).await
}

/// Whether a pool is checked before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Everything that it says about itself is compared first.
    AfterCheck,
    /// The user said that this is not needed.
    Blind,
}

impl From<bool> for Trust {
    fn from(is_blind: bool) -> Self {
        match is_blind {
            true => Self::Blind,
            false => Self::AfterCheck,
        }
    }
}

/// Opens a pool for writing. Nothing is written yet.
///
/// # Errors
/// Of opening; what of the pool keeps it from being written.
pub async fn open_writable(
    handle: &Handle,
    words: &[String],
    foreign: Foreign,
    trust: Trust,
) -> Result<WritablePool<AnyDevice>, Problem> {
    let mut devices = Vec::new();
    let mut absent = Absent::Refused;
    for word in words {
        match MemberWord::parse(word) {
            MemberWord::Missing => absent = Absent::Accepted,
            _ => devices.push(writable_device(handle, word).await?),
        }
    }
    let buffers = BufPool::new(KEEP_BYTES);
    let (members, left_out) = find_members(devices, &buffers).await;
    if let Some(text) = left_out.first() {
        return Err(Problem::new(Code::NoMetadata, text.clone())
            .why("a pool that is written is given all its members, and nothing else"));
    }
    let options = WriteOptions {
        absent,
        ..foreign.into()
    };
    let opened = WritablePool::open(members, options, &buffers).await;
    let mut pool = opened.map_err(|error| of_pool(&error))?;
    if handle.is_rehearsal() {
        pool.rehearse();
    }
    if trust == Trust::AfterCheck {
        let report = pool.check().await.map_err(|error| of_pool(&error))?;
        if let Some(first) = report.findings.first() {
            let count = report.findings.len() as u64 + report.more;
            let text = format!("pool {} is not written: {first}", pool.name());
            return Err(Problem::new(Code::DamagedMetadata, text)
                .why(format!("{count} things are not as they should be"))
                .hint(format!(
                    "to see all of them:   plexum pool check {}",
                    words.join(" ")
                ))
                .hint("to write it all the same, add:   --trust"));
        }
    }
    Ok(pool)
}

/// Opens a member that is written.
async fn writable_device(handle: &Handle, word: &str) -> Result<NamedDevice<AnyDevice>, Problem> {
    let parsed = MemberWord::parse(word);
    let device = AnyDevice::open(handle, &parsed, &OpenOptions::read_write()).await?;
    check_writers(&parsed, word)?;
    Ok(NamedDevice {
        name: word.to_owned(),
        device,
    })
}

/// Opens a member of a pool that is served already, and reads what it says of itself.
///
/// # Errors
/// Of opening; `NoMetadata` when nothing of a pool is on it.
pub(crate) async fn open_returned(
    handle: &Handle,
    word: &str,
) -> Result<MemberState<AnyDevice>, Problem> {
    let device = writable_device(handle, word).await?;
    let (mut members, notes) = find_members(vec![device], &BufPool::new(KEEP_BYTES)).await;
    match members.is_empty() {
        false => Ok(members.remove(0)),
        true => Err(Problem::new(Code::NoMetadata, notes.join(", "))),
    }
}

/// Opens a pool that no server has, to look at it as a writer does. Nothing can be written to it.
///
/// # Errors
/// Of opening; what of the pool keeps it from being written.
pub async fn pool_status(
    handle: &Handle,
    words: &[String],
) -> Result<WritablePool<AnyDevice>, Problem> {
    let mut devices = Vec::new();
    for word in words {
        let parsed = MemberWord::parse(word);
        if parsed != MemberWord::Missing {
            devices.push(NamedDevice {
                name: word.clone(),
                device: AnyDevice::open(handle, &parsed, &OpenOptions::read_only()).await?,
            });
        }
    }
    rehearsing(devices).await
}

/// The pool of these members, to look at it and to rehearse changes: nothing can be written to it.
///
/// # Errors
/// What of the pool keeps it from being written.
pub(crate) async fn rehearsing(
    devices: Vec<NamedDevice<AnyDevice>>,
) -> Result<WritablePool<AnyDevice>, Problem> {
    let buffers = BufPool::new(KEEP_BYTES);
    let (members, _) = find_members(devices, &buffers).await;
    let options = WriteOptions {
        absent: Absent::Accepted,
        ..Foreign::Taken.into()
    };
    let opened = WritablePool::open(members, options, &buffers).await;
    let mut pool = opened.map_err(|error| of_pool(&error))?;
    pool.rehearse();
    Ok(pool)
}

/// What is told of a pool: its members, what they miss, its data sets.
///
/// # Errors
/// What of it cannot be read.
pub async fn pool_json(pool: &WritablePool<AnyDevice>) -> Result<Value, Problem> {
    let members = pool.members();
    let is_whole = |one: &MemberInfo| one.out.is_none() && one.missed_groups == 0;
    let shown = members.iter().map(|one| {
        json!({"group": one.plex_id, "slot": one.slot, "member": one.name, "guid": one.guid.to_string(),
            "out": one.out, "missed_groups": one.missed_groups, "successor": one.successor})
    });
    Ok(
        json!({"format": "zfs", "txg": pool.txg(), "usable_bytes": pool.usable_bytes(),
        "is_whole": members.iter().all(is_whole), "members": shown.collect::<Vec<_>>(),
        "datasets": pool.dataset_names().await?}),
    )
}

/// Checks everything that a pool says about itself. Nothing is written.
///
/// # Errors
/// Of opening; why not even the pool's own object set can be read.
pub async fn check(
    handle: &Handle,
    words: &[String],
    txg: Option<u64>,
) -> Result<(String, CheckReport), Problem> {
    let pool = open_pool(handle, words, &plexum_zfs::OpenOptions { txg }).await?;
    let name = pool.report.name.clone();
    let report = check_pool(pool).await.map_err(|error| of_pool(&error))?;
    Ok((name, report))
}

/// The problem that an error of a pool means.
#[must_use]
pub fn of_pool(error: &PoolError) -> Problem {
    let text = error.to_string();
    match error {
        PoolError::Zfs(error) => of_zfs(error),
        PoolError::Refused(_) => Problem::new(Code::UnsupportedFeature, text),
        PoolError::NoSpace { .. } => Problem::new(Code::NoSpace, text),
        PoolError::Format(_) | PoolError::Invalid { .. } => {
            Problem::new(Code::DamagedMetadata, text)
        }
        _ => Problem::new(Code::IoError, text),
    }
}

/// Seconds since 1970.
///
/// # Errors
/// When the clock says a time before 1970.
pub fn wall_seconds() -> Result<u64, Problem> {
    now_seconds()
}

#[cfg(test)]
mod tests;
