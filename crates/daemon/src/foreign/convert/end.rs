//! The two ends of a copy: volumes on members of their own, and volumes of ZFS pools.
//!
//! Invariants:
//! - what is copied is only read, and only when all of it is where it is read from: not in a log beside it;
//! - labels of a pool say that it is in use before it is written, and that it may be taken elsewhere at the end.

use std::rc::Rc;

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::device::{Fua, IoError};
use plexum_engine::volume::VolumeOptions;
use plexum_md::assemble::Options;
use plexum_pool::{LivePool, LiveVolume};
use plexum_runtime::Handle;
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::Access;
use plexum_zfs::{DatasetName, OpenOptions, Volume};

use super::super::Kind;
use super::super::open as open_kind;
use crate::assembly::{AssembleRequest, Assembled, Body, Change, DeviceWish, open};
use crate::dataset::open_live;
use crate::open::{AnyDevice, problem_of_io};
use crate::owners::Choice;
use crate::pool_write::{Trust, of_pool};
use crate::problem::{Code, Problem};
use crate::zfs::{of_zfs, open_pool};

/// Where a volume is: members as written, and which volume of theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeOnMembers {
    /// Members.
    pub members: Vec<String>,
    /// Its name; `None`: the only one. A name with a slash, `POOL/VOLUME[@SNAPSHOT]`, is that of a volume of a pool.
    pub volume: Option<String>,
}

impl VolumeOnMembers {
    /// The volume of a pool that it is.
    #[must_use]
    pub fn dataset(&self) -> Option<&str> {
        self.volume.as_deref().filter(|name| name.contains('/'))
    }
}

/// What a volume is that shall be copied.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name; of a volume of a pool its last part.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its level in a word that `create --level` takes; `None`: it is one of a pool.
    pub level: Option<String>,
    /// Its strip size, where it has one.
    pub strip_bytes: Option<u64>,
}

/// Looks at the volume to be copied.
///
/// # Errors
/// Of opening; `AmbiguousVolume`; `WrongState` for one of a pool that is not whole without its log.
pub async fn source_of(handle: &Handle, place: &VolumeOnMembers) -> Result<Source, Problem> {
    Ok(match End::to_read(handle, &BufPool::new(0), place).await? {
        End::Members(body) => {
            let geometry = body.geometry();
            let level = geometry.organisation().level().to_string();
            Source {
                name: body.name().to_owned(),
                size_bytes: body.volume_bytes(),
                level: Some(level.trim_start_matches("raid").to_owned()),
                strip_bytes: (geometry.strip_bytes() > 0).then(|| geometry.strip_bytes()),
            }
        }
        end => Source {
            name: last_part(end.name()).to_owned(),
            size_bytes: end.size_bytes(),
            level: None,
            strip_bytes: None,
        },
    })
}

/// A volume's own name in the one that its pool knows it by.
fn last_part(dataset: &str) -> &str {
    let path = dataset.split('@').next().unwrap_or(dataset);
    path.rsplit('/').next().unwrap_or(path)
}

/// A volume that is read or written.
pub(super) enum End {
    /// On members of its own.
    Members(Box<Body>),
    /// In a pool that is only read.
    Read {
        name: String,
        volume: Volume<AnyDevice>,
        buffers: BufPool,
    },
    /// In a pool that is written.
    Written {
        name: String,
        volume: Box<LiveVolume<AnyDevice, RealClock>>,
        pool: Rc<LivePool<AnyDevice, RealClock>>,
        buffers: BufPool,
    },
}

impl End {
    /// Opens what shall be read.
    ///
    /// # Errors
    /// Of opening; `AmbiguousVolume`; `WrongState` for a volume of a pool with records in its log.
    pub(super) async fn to_read(
        handle: &Handle,
        buffers: &BufPool,
        place: &VolumeOnMembers,
    ) -> Result<Self, Problem> {
        let Some(name) = place.dataset() else {
            return Self::members(handle, buffers, place, Access::ReadOnly).await;
        };
        let pool = open_pool(handle, &place.members, &OpenOptions::default()).await?;
        let dataset = DatasetName::parse(name);
        let volume = pool.volume(&dataset).await;
        let volume = volume.map_err(|error| of_zfs(&error))?;
        let listed = pool.datasets().await.map_err(|error| of_zfs(&error))?;
        let pending = listed.iter().find(|one| one.name == dataset);
        if let Some(count) = pending.map(|one| one.pending_records).filter(|n| *n > 0) {
            let text = format!("{count} records in the log of {name} are not in it yet");
            let way = format!(
                "plexum serve --write --dataset {name} {}, then plexum stop {}",
                place.members.join(" "),
                last_part(name)
            );
            return Err(Problem::new(Code::WrongState, text)
                .why("a pool that is only read is read without them")
                .hint(format!("to have them replayed:   {way}")));
        }
        Ok(Self::Read {
            name: name.to_owned(),
            volume,
            buffers: buffers.clone(),
        })
    }

    /// Opens what shall be written.
    ///
    /// # Errors
    /// Of opening; `AmbiguousVolume`.
    pub(super) async fn to_write(
        handle: &Handle,
        buffers: &BufPool,
        place: &VolumeOnMembers,
    ) -> Result<Self, Problem> {
        let Some(name) = place.dataset() else {
            return Self::members(handle, buffers, place, Access::ReadWrite).await;
        };
        let names = [name.to_owned()];
        let (_, pool) = open_live(handle, &place.members, &names, Trust::AfterCheck).await?;
        let volume = LiveVolume::open(&pool, name).await;
        Ok(Self::Written {
            name: name.to_owned(),
            volume: Box::new(volume.map_err(|error| of_pool(&error))?),
            pool,
            buffers: buffers.clone(),
        })
    }

    /// Opens a volume on members of its own.
    async fn members(
        handle: &Handle,
        buffers: &BufPool,
        place: &VolumeOnMembers,
        access: Access,
    ) -> Result<Self, Problem> {
        let request = request(&place.members, access == Access::ReadWrite);
        let assembled = open(handle, buffers, request).await?;
        Ok(Self::of(pick(assembled, place.volume.as_deref())?))
    }

    /// Opens members to be read: as what they are found to be, or as one of FreeBSD's formats although there is
    /// another.
    ///
    /// # Errors
    /// Of opening; `AmbiguousVolume`.
    pub(super) async fn in_place(
        handle: &Handle,
        buffers: &BufPool,
        members: &[String],
        kind: Option<Kind>,
    ) -> Result<Self, Problem> {
        let request = request(members, false);
        let assembled = match kind {
            Some(kind) => open_kind(handle, buffers, request, kind).await?,
            None => open(handle, buffers, request).await?,
        };
        Ok(Self::of(pick(assembled, None)?))
    }

    fn of(body: Body) -> Self {
        Self::Members(Box::new(body))
    }

    /// Its name; in a pool the whole one.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Members(body) => body.name(),
            Self::Read { name, .. } | Self::Written { name, .. } => name,
        }
    }

    /// Its size.
    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            Self::Members(body) => body.volume_bytes(),
            Self::Read { volume, .. } => volume.size_bytes(),
            Self::Written { volume, .. } => volume.volume().size_bytes,
        }
    }

    /// Reads a range.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) async fn read(&self, at: u64, length: usize) -> Result<Rope, Problem> {
        let (bytes, buffers) = match self {
            Self::Members(body) => {
                let read = body.read_bytes(at, length).await;
                return read.map_err(|error| self.problem_at(error, "reading", at));
            }
            Self::Read {
                volume, buffers, ..
            } => {
                let read = volume.read(at, length).await;
                (read.map_err(|error| of_zfs(&error))?, buffers)
            }
            Self::Written {
                volume, buffers, ..
            } => {
                let read = volume.read(at, length).await;
                (read.map_err(|error| of_pool(&error))?, buffers)
            }
        };
        Ok(buffers.copy_of(&bytes).freeze().into())
    }

    /// Writes a range. Zeroes take no space in a pool.
    ///
    /// # Errors
    /// Why it cannot be written; `IoError` for what was opened to be read.
    pub(super) async fn write(&self, at: u64, data: Buf) -> Result<(), Problem> {
        match self {
            Self::Members(body) => {
                let written = body.write(at, data, Fua::No).await;
                written.map_err(|error| self.problem_at(error, "writing", at))
            }
            Self::Read { .. } => Err(self.problem_at(IoError::ReadOnly, "writing", at)),
            Self::Written { volume, .. } => {
                let written = match data.iter().all(|byte| *byte == 0) {
                    true => volume.trim(at..at + data.len() as u64).await,
                    false => volume.write(at, &data).await,
                };
                written.map_err(|error| of_pool(&error))
            }
        }
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// Nothing is known to be durable.
    pub(super) async fn flush(&self) -> Result<(), Problem> {
        match self {
            Self::Members(body) => {
                let flushed = body.flush_all().await;
                flushed.map_err(|error| problem_of_io(error, "flushing", self.name()))
            }
            Self::Read { .. } => Ok(()),
            Self::Written { volume, .. } => volume.flush().await.map_err(|error| of_pool(&error)),
        }
    }

    /// Its own work while it is written.
    pub(super) async fn run_background(&self) {
        match self {
            Self::Members(body) => body.run_background().await,
            // Flushes come often enough, and each of so much is a commit.
            Self::Read { .. } | Self::Written { .. } => std::future::pending().await,
        }
    }

    /// Ends it cleanly; nothing is to be written afterwards.
    ///
    /// # Errors
    /// As `flush`.
    pub(super) async fn stop(&self) -> Result<(), Problem> {
        match self {
            Self::Members(body) => {
                let ended = body.stop().await;
                ended.map_err(|error| problem_of_io(error, "flushing", self.name()))
            }
            Self::Read { .. } => Ok(()),
            Self::Written { pool, .. } => pool.export().await.map_err(|error| of_pool(&error)),
        }
    }

    fn problem_at(&self, error: IoError, doing: &str, at: u64) -> Problem {
        problem_of_io(error, &format!("{doing} byte {at}"), self.name())
    }
}

fn request(members: &[String], may_write: bool) -> AssembleRequest {
    AssembleRequest {
        members: members.to_vec(),
        name: None,
        options: Options {
            read_only: !may_write,
            ..Options::default()
        },
        volume: VolumeOptions::default(),
        balance: None,
        may_write,
        backup_file: None,
        choice: Choice::Newest,
        planned: Vec::new(),
        change: Change::None,
        goal: None,
        device: DeviceWish::TakeOver,
        vhost_user: None,
    }
}

/// The volume of that name, or the only one.
fn pick(assembled: Vec<Assembled>, name: Option<&str>) -> Result<Body, Problem> {
    let names: Vec<String> = assembled
        .iter()
        .map(|one| one.body.name().to_owned())
        .collect();
    let mut bodies = assembled.into_iter().map(|one| one.body);
    let found = match name {
        Some(name) => bodies.find(|body| body.name() == name),
        None if names.len() == 1 => bodies.next(),
        None => {
            return Err(
                Problem::new(Code::AmbiguousVolume, "the members hold several volumes")
                    .hint(format!("name one of {}:   --volume NAME", names.join(" "))),
            );
        }
    };
    found.ok_or_else(|| {
        let name = name.unwrap_or_default();
        Problem::new(Code::NoSuchVolume, format!("the members hold no {name}"))
    })
}
