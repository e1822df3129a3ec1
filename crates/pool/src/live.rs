//! A pool that is served: requests of clients, and commits that several of them share.
//!
//! Invariants:
//! - a flush is answered after a commit, or what the intent logs need instead of one, that began when everything
//!   answered before it was in memory;
//! - what waits for a commit never takes more memory than the limit: a write that would exceed it commits first;
//! - while [`LivePool::commit_in_time`] runs, nothing waits for a root for longer than its limit, in an intent log or
//!   not: so an importer has little to replay, and who never flushes loses little;
//! - requests have the pool one after another.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};
use plexum_block::wait::{Mutex, Signal, first, yield_once};

use crate::error::PoolError;
use crate::log::Logged;
use crate::members::MemberInfo;
use crate::state::WritablePool;
use crate::upkeep::{Task, UpkeepReport};
use crate::volume::OpenVolume;

/// Blocks that are made good while clients wait.
const BLOCKS_AT_ONCE: usize = 16;

/// A pool that is served.
pub struct LivePool<D, C> {
    pool: RefCell<Option<WritablePool<D>>>,
    turn: Mutex,
    clock: C,
    pending_bytes_max: u64,
    /// Changes that were taken, and those of them that are durable.
    taken: Cell<u64>,
    durable: Cell<u64>,
    /// Those of them that a root reaches.
    rooted: Cell<u64>,
    /// Nothing is to be written any more.
    is_ended: Cell<bool>,
    /// A change was taken, or it has ended.
    changed: Signal,
    /// The members as they were at the last commit.
    members: RefCell<Vec<MemberInfo>>,
}

/// The pool while a request has it; it goes back whatever happens to the request.
struct Borrowed<'a, D> {
    pool: Option<WritablePool<D>>,
    home: &'a RefCell<Option<WritablePool<D>>>,
}

impl<D> Drop for Borrowed<'_, D> {
    fn drop(&mut self) {
        *self.home.borrow_mut() = self.pool.take();
    }
}

impl<D: Device, C: Clock> LivePool<D, C> {
    /// A pool whose commits are due when `pending_bytes_max` wait.
    pub fn new(pool: WritablePool<D>, clock: C, pending_bytes_max: u64) -> Self {
        Self {
            members: RefCell::new(pool.members()),
            pool: RefCell::new(Some(pool)),
            turn: Mutex::default(),
            clock,
            pending_bytes_max,
            taken: Cell::new(0),
            durable: Cell::new(0),
            rooted: Cell::new(0),
            is_ended: Cell::new(false),
            changed: Signal::new(),
        }
    }

    /// Runs `work` with the pool, which nobody else has meanwhile.
    async fn with<T>(
        &self,
        work: impl AsyncFnOnce(&mut WritablePool<D>) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        let _turn = self.turn.lock().await;
        let pool = self.pool.borrow_mut().take();
        let mut borrowed = Borrowed {
            pool,
            home: &self.pool,
        };
        let pool = borrowed
            .pool
            .as_mut()
            .expect("who has the turn finds the pool at home");
        work(pool).await
    }

    async fn commit(&self, pool: &mut WritablePool<D>) -> Result<(), PoolError> {
        let taken = self.taken.get();
        pool.commit(self.clock.wall_seconds()).await?;
        self.durable.set(taken);
        self.rooted.set(taken);
        *self.members.borrow_mut() = pool.members();
        Ok(())
    }

    /// Commits what was taken, `limit` after the first of it came, again and again until [`export`](Self::export).
    ///
    /// # Errors
    /// Those of [`WritablePool::commit`]; the pool is frozen then.
    pub async fn commit_in_time(&self, limit: Duration) -> Result<(), PoolError> {
        let has_ended = || self.is_ended.get();
        let is_waiting = || self.taken.get() != self.rooted.get();
        loop {
            self.changed.until(|| has_ended() || is_waiting()).await;
            first(self.clock.sleep(limit), self.changed.until(has_ended)).await;
            if has_ended() {
                return Ok(());
            }
            let commit = async |pool: &mut WritablePool<D>| match is_waiting() {
                true => self.commit(pool).await,
                false => Ok(()),
            };
            self.with(commit).await?;
        }
    }

    /// The members as they were at the last commit.
    #[must_use]
    pub fn members(&self) -> Vec<MemberInfo> {
        self.members.borrow().clone()
    }

    /// Gives members that are there what they missed, while clients are served. `None`: none missed anything.
    ///
    /// # Errors
    /// Those of [`WritablePool::walk`] and of the commit that says that they have all.
    pub async fn make_good(&self) -> Result<Option<UpkeepReport>, PoolError> {
        loop {
            let begin = async |pool: &mut WritablePool<D>| {
                let is_whole = pool.members_behind().is_empty();
                Ok((!is_whole).then(|| pool.begin_walk(Task::Rebuild)))
            };
            let Some(mut walk) = self.with(begin).await? else {
                return Ok(None);
            };
            let mut is_held = true;
            while is_held && !walk.is_done() {
                is_held = self
                    .with(async |pool| pool.walk(&mut walk, BLOCKS_AT_ONCE).await)
                    .await?;
                yield_once().await;
            }
            if !is_held {
                continue;
            }
            let end = async |pool: &mut WritablePool<D>| {
                let report = pool.end_walk(walk).await?;
                self.commit(pool).await?;
                Ok(Some(report))
            };
            return self.with(end).await;
        }
    }

    /// Makes everything that was answered before durable. Calls that wait share one commit.
    ///
    /// # Errors
    /// Those of [`WritablePool::commit`].
    pub async fn flush(&self) -> Result<(), PoolError> {
        let wanted = self.taken.get();
        self.with(async |pool| {
            if self.durable.get() >= wanted {
                return pool.check_frozen();
            }
            self.make_durable(pool).await
        })
        .await
    }

    /// A flush goes into the intent logs when that is possible, else it is a commit.
    async fn make_durable(&self, pool: &mut WritablePool<D>) -> Result<(), PoolError> {
        let taken = self.taken.get();
        // A log that cannot be written is no reason to fail: a commit does without it.
        if pool.log().await == Ok(Logged::Durable) {
            self.durable.set(taken);
            return Ok(());
        }
        self.commit(pool).await
    }

    /// Commits, and says in the labels that the pool may be taken elsewhere. Nothing is to be written afterwards.
    ///
    /// # Errors
    /// Those of [`WritablePool::commit`].
    pub async fn export(&self) -> Result<(), PoolError> {
        self.is_ended.set(true);
        self.changed.notify();
        self.with(async |pool| pool.export(self.clock.wall_seconds()).await)
            .await
    }
}

/// A volume of a pool that is served. All volumes of a pool share it.
pub struct LiveVolume<D, C> {
    pool: Rc<LivePool<D, C>>,
    volume: OpenVolume,
}

impl<D: Device, C: Clock> LiveVolume<D, C> {
    /// Opens a volume of the pool.
    ///
    /// # Errors
    /// Those of [`WritablePool::open_volume`].
    pub async fn open(pool: &Rc<LivePool<D, C>>, name: &str) -> Result<Self, PoolError> {
        let open = async |pool: &mut WritablePool<D>| {
            let volume = pool.open_volume(name).await?;
            pool.use_log(&volume);
            Ok(volume)
        };
        let volume = pool.with(open).await?;
        Ok(Self {
            pool: Rc::clone(pool),
            volume,
        })
    }

    /// What it is.
    #[must_use]
    pub fn volume(&self) -> &OpenVolume {
        &self.volume
    }

    /// The bytes of a range, as they were written last.
    ///
    /// # Errors
    /// Those of [`WritablePool::read`].
    pub async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<Vec<u8>, PoolError> {
        self.pool
            .with(async |pool| pool.read(&self.volume, offset_bytes, length_bytes).await)
            .await
    }

    /// Takes a write.
    ///
    /// # Errors
    /// Those of [`WritablePool::write`] and of the commit that it may need.
    pub async fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), PoolError> {
        self.change(async |pool| pool.write(&self.volume, offset_bytes, bytes).await)
            .await
    }

    /// Makes a range read as zeroes, and gives its space back.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn trim(&self, range: Range<u64>) -> Result<(), PoolError> {
        self.change(async |pool| pool.trim(&self.volume, range.clone()).await)
            .await
    }

    async fn change(
        &self,
        work: impl AsyncFn(&mut WritablePool<D>) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let live = &self.pool;
        live.with(async |pool| {
            if pool.pending_bytes() > live.pending_bytes_max {
                live.commit(pool).await?;
            }
            let mut result = work(pool).await;
            if matches!(result, Err(PoolError::NoSpace { .. })) {
                // What was overwritten since is free after two more commits, also when a walk waits for it.
                pool.end_hold();
                pool.settle(live.clock.wall_seconds()).await?;
                result = work(pool).await;
            }
            live.taken.set(live.taken.get() + 1);
            live.changed.notify();
            result
        })
        .await
    }

    /// Makes everything that was answered before durable, of all volumes of the pool.
    ///
    /// # Errors
    /// Those of [`LivePool::flush`].
    pub async fn flush(&self) -> Result<(), PoolError> {
        self.pool.flush().await
    }
}

impl PoolError {
    /// What a client is told.
    #[must_use]
    pub fn io_error(&self) -> IoError {
        match self {
            Self::Io { error, .. } => *error,
            Self::NoSpace { .. } => IoError::NoSpace,
            Self::Frozen { .. } => IoError::Failed,
            _ => IoError::Medium,
        }
    }
}
