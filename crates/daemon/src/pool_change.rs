//! Changes of a pool, by the words of `plexum pool`: the same whether a server has the pool or nobody.
//!
//! Invariant: what is on a new member is not overwritten without the user's word.

use std::path::Path;

use plexum_pool::{
    GroupKind, Mixed, NewVolume, Now, PoolError, Shrink, Task, UpkeepReport, WritablePool,
};
use plexum_runtime::Handle;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::control::access::Role;
use crate::inspect::not_empty;
use crate::open::{AnyDevice, MemberWord, full_path};
use crate::pool_write::{
    PlannedMember, add_group, attach_member, of_pool, random_seed, replace_member, wall_seconds,
};
use crate::problem::{Code, Problem};

/// A pool that is written.
pub type Writable = WritablePool<AnyDevice>;

/// A member that comes to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coming {
    /// Path or URI.
    pub new: String,
    /// Make it as a sparse file of this size, when it does not exist.
    #[serde(default)]
    pub member_size_bytes: Option<u64>,
    /// Overwrite what was found on it.
    #[serde(default)]
    pub force: bool,
}

/// A change of a pool. The JSON body of the `POST` carries the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum PoolChange {
    /// A new volume.
    CreateVolume {
        /// `POOL/VOLUME`.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// Bytes of its blocks; none: what suits the pool.
        #[serde(default)]
        block_bytes: Option<u64>,
    },
    /// A snapshot of a volume.
    Snapshot {
        /// `POOL/VOLUME@SNAPSHOT`.
        name: String,
    },
    /// A snapshot less.
    DestroySnapshot {
        /// `POOL/VOLUME@SNAPSHOT`.
        name: String,
    },
    /// A volume less.
    DestroyVolume {
        /// `POOL/VOLUME`.
        name: String,
    },
    /// A volume is what its last snapshot is.
    Rollback {
        /// `POOL/VOLUME@SNAPSHOT`.
        name: String,
    },
    /// A volume is made of a snapshot.
    Clone {
        /// `POOL/VOLUME@SNAPSHOT`.
        old: String,
        /// `POOL/VOLUME`.
        new: String,
    },
    /// Another name.
    Rename {
        /// A volume or a snapshot.
        old: String,
        /// Its new name, the pool's included.
        new: String,
    },
    /// Another size.
    Resize {
        /// `POOL/VOLUME`.
        name: String,
        /// Its new size.
        size_bytes: u64,
        /// It may become smaller: what is behind its new end is lost.
        #[serde(default)]
        shrink: bool,
    },
    /// A member is not written from now on.
    Offline {
        /// As it was given, its path, or its identity.
        member: String,
    },
    /// A member is written again that was taken offline.
    Online {
        /// As it was given, its path, or its identity.
        member: String,
    },
    /// A new member takes the place of another.
    Replace {
        /// The one that goes: as it was given, its path, or its identity.
        old: String,
        /// The one that comes.
        #[serde(flatten)]
        coming: Coming,
    },
    /// A new member becomes a side of a mirror.
    Attach {
        /// The member beside it: as it was given, its path, or its identity.
        side: String,
        /// The one that comes.
        #[serde(flatten)]
        coming: Coming,
    },
    /// A side of a mirror is taken out.
    Detach {
        /// As it was given, its path, or its identity.
        member: String,
    },
    /// A group of members more.
    Add {
        /// What they hold together: `single`, `mirror`, `raidz1`, `raidz2` or `raidz3`.
        group: String,
        /// They: paths or URIs.
        members: Vec<String>,
        /// Make those that do not exist as sparse files of this size.
        #[serde(default)]
        member_size_bytes: Option<u64>,
        /// Although it is of another kind than the pool's groups.
        #[serde(default)]
        mixed: bool,
        /// Overwrite what was found on them.
        #[serde(default)]
        force: bool,
    },
    /// Everything is read, and what is wrong is written again.
    Scrub,
}

impl PoolChange {
    /// Last part of the route, as in `POST /v1/pools/NAME/destroy-snapshot`, and the word of the command.
    #[must_use]
    pub fn route(&self) -> &'static str {
        match self {
            Self::CreateVolume { .. } => "create-volume",
            Self::Snapshot { .. } => "snapshot",
            Self::DestroySnapshot { .. } => "destroy-snapshot",
            Self::DestroyVolume { .. } => "destroy-volume",
            Self::Rollback { .. } => "rollback",
            Self::Clone { .. } => "clone",
            Self::Rename { .. } => "rename",
            Self::Resize { .. } => "resize",
            Self::Offline { .. } => "offline",
            Self::Online { .. } => "online",
            Self::Replace { .. } => "replace",
            Self::Attach { .. } => "attach",
            Self::Detach { .. } => "detach",
            Self::Add { .. } => "add",
            Self::Scrub => "scrub",
        }
    }

    /// The role that it needs.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Self::Snapshot { .. } | Self::Online { .. } | Self::Scrub => Role::Operate,
            _ => Role::Administer,
        }
    }

    /// What it is about, as the command has it.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::CreateVolume { name, .. }
            | Self::Snapshot { name }
            | Self::DestroySnapshot { name }
            | Self::DestroyVolume { name }
            | Self::Rollback { name }
            | Self::Resize { name, .. } => name.clone(),
            Self::Clone { old, new } | Self::Rename { old, new } => format!("{old} {new}"),
            Self::Offline { member } | Self::Online { member } | Self::Detach { member } => {
                member.clone()
            }
            Self::Replace { old: one, coming } | Self::Attach { side: one, coming } => {
                format!("{one} {}", coming.new)
            }
            Self::Add { group, members, .. } => format!("{group} {}", members.join(" ")),
            Self::Scrub => String::new(),
        }
    }

    /// The member that it is about, when it is about one that the pool has.
    pub(crate) fn member_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Offline { member } | Self::Online { member } | Self::Detach { member } => {
                Some(member)
            }
            Self::Replace { old: one, .. } | Self::Attach { side: one, .. } => Some(one),
            _ => None,
        }
    }

    /// The same with paths from the root on: a server has no folder of its own that a path could be meant in.
    #[must_use]
    pub fn absolute(mut self) -> Self {
        if let Some(member) = self.member_mut()
            && (member.contains('/') || Path::new(member).exists())
        {
            *member = absolute(member);
        }
        match &mut self {
            Self::Replace { coming, .. } | Self::Attach { coming, .. } => {
                coming.new = absolute(&coming.new);
            }
            Self::Add { members, .. } => {
                members.iter_mut().for_each(|word| *word = absolute(word));
            }
            _ => {}
        }
        self
    }

    /// The volume whose contents, name or size it changes.
    #[must_use]
    pub fn changed_volume(&self) -> Option<&str> {
        match self {
            Self::DestroyVolume { name } | Self::Rollback { name } => Some(name),
            Self::Rename { old, .. } if !old.contains('@') => Some(old),
            _ => None,
        }
    }

    /// The walk over the blocks that comes behind it.
    pub(crate) fn walk(&self) -> Option<Task> {
        match self {
            Self::Online { .. } | Self::Attach { .. } => Some(Task::Rebuild),
            Self::Scrub => Some(Task::Scrub),
            _ => None,
        }
    }

    /// Opens the members that come with it and looks at them: before the pool has to wait for that.
    ///
    /// # Errors
    /// Of opening; `WouldDestroy` when something is on one and the user has not said that it is to be lost.
    pub(crate) async fn prepare(&self, handle: &Handle) -> Result<Vec<PlannedMember>, Problem> {
        match self {
            Self::Replace { coming, .. } | Self::Attach { coming, .. } => {
                let Coming {
                    new,
                    member_size_bytes,
                    force,
                } = coming;
                Ok(vec![
                    prepare(handle, new, *member_size_bytes, *force).await?,
                ])
            }
            Self::Add {
                members,
                member_size_bytes,
                force,
                ..
            } => {
                let mut planned = Vec::new();
                for word in members {
                    planned.push(prepare(handle, word, *member_size_bytes, *force).await?);
                }
                Ok(planned)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// What of new members keeps it from being made.
    fn check(&self, pool: &Writable, new: &[PlannedMember]) -> Result<(), Problem> {
        match (self, new) {
            (Self::Replace { old, coming }, [new]) => {
                pool.check_replace(old, &coming.new, new.size_bytes)?;
            }
            (Self::Attach { side, coming }, [new]) => {
                pool.check_attach(side, &coming.new, new.size_bytes)?;
            }
            (Self::Add { group, mixed, .. }, new) => {
                let sizes = new.iter().map(|one| (one.member.as_str(), one.size_bytes));
                let sizes: Vec<(&str, u64)> = sizes.collect();
                let checked = pool.check_add(kind_of(group)?, &sizes, mixed_of(*mixed));
                checked.map_err(|error| match mixed {
                    false => of_pool(&error).hint("another kind of group is added with:   --mixed"),
                    true => of_pool(&error),
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether it would be done, on a pool that was opened to rehearse it.
    ///
    /// # Errors
    /// Why not.
    pub async fn rehearse(&self, handle: &Handle, pool: &mut Writable) -> Result<Value, Problem> {
        let new = self.prepare(handle).await?;
        match self {
            Self::Replace { .. } | Self::Attach { .. } | Self::Add { .. } | Self::Scrub => {
                self.check(pool, &new)?;
                Ok(json!({}))
            }
            _ => self.commit(handle, pool, new).await,
        }
    }

    /// Makes the change, and what comes behind it, on a pool that nobody serves. `None`: nothing was walked over.
    ///
    /// # Errors
    /// Why not.
    pub async fn carry_out(
        &self,
        handle: &Handle,
        pool: &mut Writable,
    ) -> Result<(Value, Option<UpkeepReport>), Problem> {
        let mut new = self.prepare(handle).await?;
        if let Self::Replace { old, .. } = self {
            let new = new.pop().ok_or_else(unprepared)?;
            let report = replace_member(handle, pool, old, new, now()?).await?;
            return Ok((json!({}), Some(report)));
        }
        let made = match self {
            Self::Scrub => json!({}),
            _ => self.commit(handle, pool, new).await?,
        };
        let report = match self.walk() {
            None => None,
            Some(task) => Some(pool.walk_all(task, &mut |_| {}).await?),
        };
        Ok((made, report))
    }

    /// Makes the change, but for what takes a walk: committed when this returns. Gives what is to be told of it.
    /// `new`: its members that come, [prepared](Self::prepare).
    ///
    /// # Errors
    /// Why not.
    pub(crate) async fn commit(
        &self,
        handle: &Handle,
        pool: &mut Writable,
        mut new: Vec<PlannedMember>,
    ) -> Result<Value, Problem> {
        self.check(pool, &new)?;
        let now = now()?;
        let wall_s = now.wall_s;
        match self {
            Self::CreateVolume {
                name,
                size_bytes,
                block_bytes,
            } => {
                let new = NewVolume {
                    name: name.clone(),
                    size_bytes: *size_bytes,
                    block_bytes: block_bytes.unwrap_or_else(|| usual_block_bytes(pool)),
                    wall_s,
                    seed: now.seed,
                };
                pool.create_volume(&new).await?;
                pool.commit(wall_s).await?;
                return Ok(json!({"size_bytes": size_bytes, "block_bytes": new.block_bytes}));
            }
            Self::Snapshot { name } => pool.snapshot(name, now).await?,
            Self::DestroySnapshot { name } => pool.destroy_snapshot(name, wall_s).await?,
            Self::DestroyVolume { name } => pool.destroy_volume(name, wall_s).await?,
            Self::Rollback { name } => pool.rollback(name, wall_s).await?,
            Self::Clone { old, new } => pool.clone_snapshot(old, new, now).await?,
            Self::Rename { old, new } => pool.rename(old, new, wall_s).await?,
            Self::Resize {
                name,
                size_bytes,
                shrink,
            } => {
                let shrink = match shrink {
                    true => Shrink::Accepted,
                    false => Shrink::Refused,
                };
                pool.resize(name, *size_bytes, shrink, wall_s).await?;
            }
            Self::Offline { member } => pool.offline(member, wall_s).await?,
            Self::Online { member } => pool.online(member, wall_s).await?,
            Self::Attach { side, .. } => {
                let new = new.pop().ok_or_else(unprepared)?;
                attach_member(handle, pool, side, new, now).await?;
            }
            Self::Detach { member } => pool.detach(member, wall_s).await?,
            Self::Add { group, mixed, .. } => {
                let group = (kind_of(group)?, new);
                add_group(handle, pool, group, mixed_of(*mixed), now).await?;
            }
            Self::Replace { .. } | Self::Scrub => return Err(unprepared()),
        }
        Ok(json!({}))
    }
}

/// A change came on a way that is not its own.
fn unprepared() -> Problem {
    Problem::new(Code::Bug, "a change of a pool was not prepared for it")
}

/// A path from the root on; other words stay.
fn absolute(word: &str) -> String {
    match MemberWord::parse(word) {
        MemberWord::Path(path) => full_path(&path).display().to_string(),
        _ => word.to_owned(),
    }
}

/// Opens a member that comes, and looks at it.
///
/// # Errors
/// Of opening; `WouldDestroy` when something is on it and the user has not said that it is to be lost.
async fn prepare(
    handle: &Handle,
    word: &str,
    member_size_bytes: Option<u64>,
    is_forced: bool,
) -> Result<PlannedMember, Problem> {
    let planned = PlannedMember::prepare(handle, word, member_size_bytes).await?;
    match planned.found.first().filter(|_| !is_forced) {
        None => Ok(planned),
        Some(found) => Err(not_empty(word, found)),
    }
}

/// Kinds of groups, by their words.
const KINDS: [(&str, GroupKind); 6] = [
    ("single", GroupKind::Single),
    ("mirror", GroupKind::Mirror),
    ("raidz1", GroupKind::RaidZ(1)),
    ("raidz", GroupKind::RaidZ(1)),
    ("raidz2", GroupKind::RaidZ(2)),
    ("raidz3", GroupKind::RaidZ(3)),
];

/// The kind of a group, by its word.
///
/// # Errors
/// `Usage`: it is none.
pub fn kind_of(word: &str) -> Result<GroupKind, Problem> {
    let known = KINDS.iter().find(|(known, _)| *known == word);
    let known = known.map(|(_, kind)| *kind);
    known.ok_or_else(|| Problem::new(Code::Usage, format!("{word} is no kind of group")))
}

/// The word for a kind of group.
#[must_use]
pub fn word_of(kind: GroupKind) -> &'static str {
    let known = KINDS.iter().find(|(_, known)| *known == kind);
    known.map_or("single", |(word, _)| word)
}

fn mixed_of(is_accepted: bool) -> Mixed {
    match is_accepted {
        true => Mixed::Accepted,
        false => Mixed::Refused,
    }
}

/// Blocks of a volume where nothing else is said.
fn usual_block_bytes(pool: &Writable) -> u64 {
    let (kind, _, sector_bytes) = pool.first_group();
    let usual: u64 = match kind {
        GroupKind::RaidZ(_) => 16 << 10,
        _ => 4 << 10,
    };
    usual.max(sector_bytes)
}

/// What new things are made with.
pub(crate) fn now() -> Result<Now, Problem> {
    Ok(Now {
        wall_s: wall_seconds()?,
        seed: random_seed()?,
    })
}

impl From<PoolError> for Problem {
    fn from(error: PoolError) -> Self {
        of_pool(&error)
    }
}
