//! A pool and volumes of it, opened to be served.
//!
//! Invariants: members are opened read-only unless the volumes are written; labels say that the pool is in use before
//! anybody is let in.

use std::rc::Rc;

use plexum_pool::{Foreign, LivePool, LiveVolume};
use plexum_runtime::Handle;
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::Access;
use plexum_zfs::{DatasetName, OpenOptions, PoolReport};

use super::export::Content;
use crate::open::AnyDevice;
use crate::pool_write::{of_pool, open_writable, wall_seconds};
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

/// What was opened, and what is known of the pool.
pub(super) struct Opened {
    pub(super) volumes: Vec<OpenedVolume>,
    pub(super) report: PoolReport,
    pub(super) live: Option<Rc<LivePool<AnyDevice, RealClock>>>,
}

impl Opened {
    /// Opens what is asked for.
    ///
    /// # Errors
    /// Of opening the pool and the volumes.
    pub(super) async fn of(handle: &Handle, request: &DatasetRequest) -> Result<Self, Problem> {
        if request.access == Access::ReadWrite {
            return Self::writable(handle, request).await;
        }
        let pool = open_pool(handle, &request.members, &OpenOptions { txg: request.txg }).await?;
        let mut volumes = Vec::new();
        for name in &request.datasets {
            let dataset = DatasetName::parse(name);
            let volume = pool.volume(&dataset).await.map_err(|error| {
                of_zfs(&error).hint(format!(
                    "a file system is shown by:   plexum attach --dataset {dataset} FOLDER MEMBER..."
                ))
            })?;
            volumes.push(OpenedVolume {
                dataset: name.clone(),
                size_bytes: volume.size_bytes(),
                block_bytes: volume.block_bytes(),
                content: Content::Read(volume),
            });
        }
        Ok(Self {
            volumes,
            report: pool.report.clone(),
            live: None,
        })
    }

    async fn writable(handle: &Handle, request: &DatasetRequest) -> Result<Self, Problem> {
        let mut pool =
            open_writable(handle, &request.members, Foreign::Refused, request.trust).await?;
        let report = pool.report().cloned();
        let report = report
            .ok_or_else(|| Problem::new(Code::Bug, "a pool that was opened has no report"))?;
        for name in &request.datasets {
            let opened = pool.open_volume(name).await;
            opened.map_err(|error| of_pool(&error))?;
        }
        if !handle.is_rehearsal() {
            let begun = pool.begin(wall_seconds()?).await;
            begun.map_err(|error| of_pool(&error))?;
        }
        let live = Rc::new(LivePool::new(pool, handle.clock(), PENDING_BYTES_MAX));
        let mut volumes = Vec::new();
        for name in &request.datasets {
            let volume = LiveVolume::open(&live, name).await;
            let volume = volume.map_err(|error| of_pool(&error))?;
            volumes.push(OpenedVolume {
                dataset: name.clone(),
                size_bytes: volume.volume().size_bytes,
                block_bytes: volume.volume().block_bytes,
                content: Content::Write(Box::new(volume)),
            });
        }
        Ok(Self {
            volumes,
            report,
            live: Some(live),
        })
    }
}
