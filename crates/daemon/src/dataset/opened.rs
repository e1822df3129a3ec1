//! A pool that is opened to be served, and volumes of it, at its start and later.
//!
//! Invariants: members are opened read-only unless the pool is written; labels say that the pool is in use before
//! anybody is let in; all volumes of a pool are there before its labels are written.

use std::rc::Rc;

use plexum_pool::{Foreign, LivePool, LiveVolume};
use plexum_runtime::Handle;
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::Access;
use plexum_zfs::{DatasetName, OpenOptions, Pool, PoolReport};

use super::export::Content;
use crate::open::AnyDevice;
use crate::pool_write::{Trust, of_pool, open_writable, wall_seconds};
use crate::problem::{Code, Problem};
use crate::serve_dataset::DatasetRequest;
use crate::zfs::{of_zfs, open_pool};

/// What may wait for a commit, parity and pointers included.
const PENDING_BYTES_MAX: u64 = 128 << 20;

/// A volume that was opened.
pub(super) struct OpenedVolume {
    pub(super) dataset: String,
    pub(super) content: Content,
    pub(super) size_bytes: u64,
    pub(super) block_bytes: u64,
}

/// The pool itself.
pub(super) enum Source {
    /// As it was at one root.
    Read(Box<Pool<AnyDevice>>),
    /// It is written.
    Write(Rc<LivePool<AnyDevice, RealClock>>),
}

impl Source {
    /// The pool, when it is written.
    pub(super) fn live(&self) -> Option<&Rc<LivePool<AnyDevice, RealClock>>> {
        match self {
            Self::Read(_) => None,
            Self::Write(live) => Some(live),
        }
    }

    /// Opens a volume of it.
    ///
    /// # Errors
    /// There is none of this name; it cannot be read.
    pub(super) async fn volume(&self, name: &str) -> Result<OpenedVolume, Problem> {
        let dataset = name.to_owned();
        match self {
            Self::Read(pool) => {
                let name = DatasetName::parse(name);
                let volume = pool.volume(&name).await.map_err(|error| {
                    of_zfs(&error).hint(format!(
                        "a file system is shown by:   plexum attach --dataset {name} FOLDER MEMBER..."
                    ))
                })?;
                Ok(OpenedVolume {
                    dataset,
                    size_bytes: volume.size_bytes(),
                    block_bytes: volume.block_bytes(),
                    content: Content::Read(volume),
                })
            }
            Self::Write(live) => {
                let volume = LiveVolume::open(live, name).await;
                let volume = volume.map_err(|error| of_pool(&error))?;
                Ok(OpenedVolume {
                    dataset,
                    size_bytes: volume.volume().size_bytes,
                    block_bytes: volume.volume().block_bytes,
                    content: Content::Write(Box::new(volume)),
                })
            }
        }
    }
}

/// What was opened, and what is known of the pool.
pub(super) struct Opened {
    pub(super) volumes: Vec<OpenedVolume>,
    pub(super) report: PoolReport,
    pub(super) source: Source,
}

impl Opened {
    /// Opens what is asked for.
    ///
    /// # Errors
    /// Of opening the pool and the volumes.
    pub(super) async fn of(handle: &Handle, request: &DatasetRequest) -> Result<Self, Problem> {
        let (report, source) = match request.access {
            Access::ReadWrite => {
                let (members, datasets) = (&request.members, &request.datasets);
                let opened = open_live(handle, members, datasets, request.trust).await?;
                (opened.0, Source::Write(opened.1))
            }
            Access::ReadOnly => {
                let options = OpenOptions { txg: request.txg };
                let pool = open_pool(handle, &request.members, &options).await?;
                (pool.report.clone(), Source::Read(Box::new(pool)))
            }
        };
        let mut volumes = Vec::new();
        for name in &request.datasets {
            volumes.push(source.volume(name).await?);
        }
        Ok(Self {
            volumes,
            report,
            source,
        })
    }
}

/// Opens a pool to be written, in which these volumes are; its labels say that it is in use. A pool that is only
/// rehearsed is left as it is.
///
/// # Errors
/// Of opening the pool and the volumes.
pub(crate) async fn open_live(
    handle: &Handle,
    members: &[String],
    datasets: &[String],
    trust: Trust,
) -> Result<(PoolReport, Rc<LivePool<AnyDevice, RealClock>>), Problem> {
    let mut pool = open_writable(handle, members, Foreign::Refused, trust).await?;
    let report = pool.report().cloned();
    let report =
        report.ok_or_else(|| Problem::new(Code::Bug, "a pool that was opened has no report"))?;
    for name in datasets {
        let opened = pool.open_volume(name).await;
        opened.map_err(|error| of_pool(&error))?;
    }
    if !handle.is_rehearsal() {
        let begun = pool.begin(wall_seconds()?).await;
        begun.map_err(|error| of_pool(&error))?;
    }
    let live = LivePool::new(pool, handle.clock(), PENDING_BYTES_MAX);
    Ok((report, Rc::new(live)))
}
