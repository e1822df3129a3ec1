//! A host between program and volume: clusters, read-ahead, delayed writes, CPU time. One file, laid out contiguously.
//!
//! Invariants:
//! - a sequential read is served from clusters that were read ahead; a random one reads single blocks;
//! - delayed writes are bounded: the writer waits when too much is outstanding;
//! - CPU time is spent by the program, while the volume works on.
//!
//! Source: lab.md section 3.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_block::device::Fua;
use plexum_block::wait::Signal;
use plexum_exec::Spawner;

use crate::error::LabError;
use crate::target::Target;

/// The constants of a system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostSpec {
    /// Size of a sequential read as the volume sees it.
    pub read_cluster_bytes: u64,
    /// Clusters that are read ahead of the one being used.
    pub ahead_clusters: u64,
    /// Size of a delayed write as the volume sees it.
    pub write_cluster_bytes: u64,
    /// Delayed writes under way at most.
    pub write_outstanding_bytes: u64,
    /// Block of the file system: unit of random reads.
    pub block_bytes: u64,
    /// CPU time of the reader for each KiB ...
    pub read_us_per_kib: f64,
    /// ... and each block.
    pub read_us_per_block: f64,
    /// The same of the writer.
    pub write_us_per_kib: f64,
    /// And each block.
    pub write_us_per_block: f64,
    /// Share of random reads that memory answers.
    pub cached_share: f64,
}

impl HostSpec {
    /// FreeBSD's UFS of 1999: 64 KiB clusters, one being read plus one ahead; writes of 16 KiB, 2 MiB outstanding.
    #[must_use]
    pub fn ufs_1999() -> Self {
        Self {
            read_cluster_bytes: 64 << 10,
            ahead_clusters: 1,
            write_cluster_bytes: 16 << 10,
            write_outstanding_bytes: 2 << 20,
            block_bytes: 8 << 10,
            read_us_per_kib: 0.0,
            read_us_per_block: 0.0,
            write_us_per_kib: 0.0,
            write_us_per_block: 0.0,
            cached_share: 0.1,
        }
    }

    /// Linux 2.2 with ext2: CPU time in the program, 64 KiB merged, 192 KiB ahead.
    #[must_use]
    pub fn ext2_1999(block_bytes: u64) -> Self {
        Self {
            read_cluster_bytes: 64 << 10,
            ahead_clusters: 3,
            write_cluster_bytes: 64 << 10,
            write_outstanding_bytes: 4 << 20,
            block_bytes,
            read_us_per_kib: 21.9,
            read_us_per_block: 29.9,
            write_us_per_kib: 30.8,
            write_us_per_block: 24.5,
            cached_share: 0.0,
        }
    }

    /// No host at all: each call is one request.
    #[must_use]
    pub fn raw(block_bytes: u64) -> Self {
        Self {
            read_cluster_bytes: block_bytes,
            ahead_clusters: 0,
            write_cluster_bytes: block_bytes,
            write_outstanding_bytes: 0,
            block_bytes,
            read_us_per_kib: 0.0,
            read_us_per_block: 0.0,
            write_us_per_kib: 0.0,
            write_us_per_block: 0.0,
            cached_share: 0.0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cluster {
    Coming,
    There,
}

struct CachedFile {
    spec: HostSpec,
    target: Target,
    spawner: Spawner,
    size_bytes: u64,
    /// Clusters in memory or on their way.
    clusters: RefCell<BTreeMap<u64, Cluster>>,
    next_read_bytes: Cell<u64>,
    /// Range that was written and not sent yet.
    pending: Cell<Option<(u64, u64)>>,
    outstanding_bytes: Cell<u64>,
    changed: Signal,
    failed: RefCell<Option<LabError>>,
}

/// A file on a simulated volume as a program sees it. Clones are the same file.
#[derive(Clone)]
pub struct HostFile {
    inner: Rc<CachedFile>,
}

impl HostFile {
    /// A file that takes the whole target.
    #[must_use]
    pub fn new(spec: HostSpec, target: Target, spawner: Spawner) -> Self {
        let size_bytes = target.size_bytes();
        Self {
            inner: Rc::new(CachedFile {
                spec,
                target,
                spawner,
                size_bytes,
                clusters: RefCell::default(),
                next_read_bytes: Cell::new(u64::MAX),
                pending: Cell::new(None),
                outstanding_bytes: Cell::new(0),
                changed: Signal::new(),
                failed: RefCell::default(),
            }),
        }
    }

    /// Its size.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.inner.size_bytes
    }

    /// Virtual now, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.inner.target.now_ns()
    }

    /// Spends CPU time.
    pub async fn compute(&self, microseconds: f64) {
        if microseconds > 0.0 {
            let time = Duration::from_nanos((microseconds * 1e3) as u64);
            self.inner.target.clock().sleep(time).await;
        }
    }

    fn take_failure(&self) -> Result<(), LabError> {
        match self.inner.failed.borrow_mut().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Forgets what memory holds: the file was closed and another one used since.
    pub fn drop_cache(&self) {
        self.inner.clusters.borrow_mut().clear();
        self.inner.next_read_bytes.set(u64::MAX);
    }

    /// Reads in the order of the file.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn read(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), LabError> {
        let spec = &self.inner.spec;
        let size = spec.read_cluster_bytes;
        let end = offset_bytes + length_bytes;
        let (first, last) = (offset_bytes / size, (end - 1) / size);
        for cluster in first..=last {
            for wanted in cluster..=cluster + spec.ahead_clusters {
                self.fetch(wanted);
            }
            self.inner
                .changed
                .until(|| {
                    self.inner.failed.borrow().is_some()
                        || self.inner.clusters.borrow().get(&cluster) == Some(&Cluster::There)
                })
                .await;
            self.take_failure()?;
        }
        // What lies behind is not needed again before the next pass.
        self.inner
            .clusters
            .borrow_mut()
            .retain(|cluster, state| *cluster >= last || *state == Cluster::Coming);
        self.inner.next_read_bytes.set(end);
        let kib = length_bytes as f64 / 1024.0;
        let blocks = (length_bytes as f64 / spec.block_bytes as f64).max(0.0);
        self.compute(kib * spec.read_us_per_kib + blocks * spec.read_us_per_block)
            .await;
        Ok(())
    }

    fn fetch(&self, cluster: u64) {
        let inner = &self.inner;
        let start = cluster * inner.spec.read_cluster_bytes;
        if start >= inner.size_bytes || inner.clusters.borrow().contains_key(&cluster) {
            return;
        }
        let length = inner.spec.read_cluster_bytes.min(inner.size_bytes - start);
        inner.clusters.borrow_mut().insert(cluster, Cluster::Coming);
        let shared = Rc::clone(inner);
        drop(inner.spawner.spawn(async move {
            if let Err(error) = shared.target.read(start, length).await {
                *shared.failed.borrow_mut() = Some(error.into());
            }
            if let Some(state) = shared.clusters.borrow_mut().get_mut(&cluster) {
                *state = Cluster::There;
            }
            shared.changed.notify();
        }));
    }

    /// Reads a block somewhere, past clusters and read-ahead.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn read_random(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), LabError> {
        let inner = &self.inner;
        let is_cached =
            (offset_bytes as f64) >= inner.size_bytes as f64 * (1.0 - inner.spec.cached_share);
        if !is_cached {
            inner.target.read(offset_bytes, length_bytes).await?;
        }
        let kib = length_bytes as f64 / 1024.0;
        let blocks = length_bytes as f64 / inner.spec.block_bytes as f64;
        self.compute(kib * inner.spec.read_us_per_kib + blocks * inner.spec.read_us_per_block)
            .await;
        Ok(())
    }

    /// Writes; returns when memory has it.
    ///
    /// # Errors
    /// A request that failed, this one or an earlier one.
    pub async fn write(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), LabError> {
        let inner = &self.inner;
        let spec = &inner.spec;
        let kib = length_bytes as f64 / 1024.0;
        let blocks = length_bytes as f64 / spec.block_bytes as f64;
        self.compute(kib * spec.write_us_per_kib + blocks * spec.write_us_per_block)
            .await;
        if spec.write_outstanding_bytes == 0 {
            inner
                .target
                .write(offset_bytes, length_bytes, Fua::No)
                .await?;
            return Ok(());
        }
        let end = offset_bytes + length_bytes;
        let (start, until) = match inner.pending.get() {
            Some((start, until)) if until == offset_bytes => (start, end),
            Some(other) => {
                self.send(other).await?;
                (offset_bytes, end)
            }
            None => (offset_bytes, end),
        };
        let mut from = start;
        // Clusters are aligned.
        let size = spec.write_cluster_bytes;
        while until / size > from / size {
            let border = (from / size + 1) * size;
            self.send((from, border)).await?;
            from = border;
        }
        inner.pending.set((from < until).then_some((from, until)));
        self.take_failure()
    }

    /// Sends a range on its way; waits while too much is.
    async fn send(&self, (start, end): (u64, u64)) -> Result<(), LabError> {
        let inner = &self.inner;
        let limit = inner.spec.write_outstanding_bytes;
        inner
            .changed
            .until(|| inner.outstanding_bytes.get() < limit)
            .await;
        inner
            .outstanding_bytes
            .set(inner.outstanding_bytes.get() + end - start);
        let shared = Rc::clone(inner);
        drop(inner.spawner.spawn(async move {
            if let Err(error) = shared.target.write(start, end - start, Fua::No).await {
                *shared.failed.borrow_mut() = Some(error.into());
            }
            let left = shared.outstanding_bytes.get() - (end - start);
            shared.outstanding_bytes.set(left);
            shared.changed.notify();
        }));
        self.take_failure()
    }

    /// Ends writing: the rest is sent, nothing is waited for.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn close(&self) -> Result<(), LabError> {
        if let Some(range) = self.inner.pending.take() {
            self.send(range).await?;
        }
        self.take_failure()
    }

    /// Waits until everything sent has been written, and flushes.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn sync(&self) -> Result<(), LabError> {
        self.close().await?;
        let inner = &self.inner;
        inner
            .changed
            .until(|| inner.outstanding_bytes.get() == 0)
            .await;
        self.take_failure()?;
        inner.target.flush().await?;
        Ok(())
    }

    /// Waits until everything sent has been written.
    pub async fn drain(&self) {
        let inner = &self.inner;
        inner
            .changed
            .until(|| inner.outstanding_bytes.get() == 0)
            .await;
    }
}
