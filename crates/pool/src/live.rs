//! A pool that is served: requests of clients, and commits that several of them share.
//!
//! Invariants:
//! - a flush is answered after a commit, or what the intent logs need instead of one, that began when everything
//!   answered before it was in memory;
//! - what waits for a commit never takes more memory than the limit: a write that would exceed it commits first;
//! - while [`LivePool::commit_in_time`] runs, nothing waits for a root for longer than its limit, in an intent log or
//!   not: so an importer has little to replay, and who never flushes loses little;
//! - a request that changes something has the pool alone; those that read have it together;
//! - a volume that is open stays what it is: it is not destroyed, rolled back, renamed or made smaller. It may become
//!   larger; a request knows one size from its beginning to its end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::time::Duration;

use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, IoError};
use plexum_block::shared::SharedLock;
use plexum_block::wait::{Mutex, Signal, first, yield_once};
use plexum_zfs::{MemberState, PoolReport};

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
    turn: SharedLock,
    /// Who walks over the blocks: one at a time.
    pub(crate) upkeep_turn: Mutex,
    pub(crate) clock: C,
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
    /// How it is put together.
    report: RefCell<Option<Rc<PoolReport>>>,
    /// Why nothing is written any more.
    frozen: RefCell<Option<String>>,
    /// Volumes that are open, by the number of their data set.
    open: RefCell<BTreeMap<u64, Weak<Opened>>>,
    /// The walk over the blocks that is on its way.
    walking: RefCell<Option<Walking>>,
}

/// A walk over the blocks that is on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walking {
    /// What it does.
    pub task: Task,
    /// What it has done.
    pub report: UpkeepReport,
    /// Bytes of all blocks, about, as stored in one copy. Members that missed something need not all of them.
    pub total_bytes: u64,
    /// When it began.
    pub began: Moment,
}

/// A volume that is open, for all who have opened it.
struct Opened {
    volume: RefCell<Rc<OpenVolume>>,
    /// It has another size.
    resized: Signal,
}

/// The pool while a request has it; it goes back whatever happens to the request.
struct Borrowed<'a, D> {
    pool: Option<WritablePool<D>>,
    home: &'a RefCell<Option<WritablePool<D>>>,
    frozen: &'a RefCell<Option<String>>,
}

impl<D> Drop for Borrowed<'_, D> {
    fn drop(&mut self) {
        let pool = self.pool.take();
        if let Some(reason) = pool.as_ref().and_then(|pool| pool.frozen.as_ref()) {
            self.frozen
                .borrow_mut()
                .get_or_insert_with(|| reason.clone());
        }
        *self.home.borrow_mut() = pool;
    }
}

impl<D: Device, C: Clock> LivePool<D, C> {
    /// A pool whose commits are due when `pending_bytes_max` wait.
    pub fn new(pool: WritablePool<D>, clock: C, pending_bytes_max: u64) -> Self {
        Self {
            members: RefCell::new(pool.members()),
            report: RefCell::new(pool.report().cloned().map(Rc::new)),
            pool: RefCell::new(Some(pool)),
            turn: SharedLock::new(),
            upkeep_turn: Mutex::default(),
            clock,
            pending_bytes_max,
            taken: Cell::new(0),
            durable: Cell::new(0),
            rooted: Cell::new(0),
            is_ended: Cell::new(false),
            changed: Signal::new(),
            frozen: RefCell::default(),
            open: RefCell::default(),
            walking: RefCell::default(),
        }
    }

    /// Why nothing is written any more: a commit failed, and the last root is what the members hold. `None`: it goes
    /// on.
    #[must_use]
    pub fn why_frozen(&self) -> Option<String> {
        self.frozen.borrow().clone()
    }

    /// Runs `work` with the pool, which nobody else has meanwhile.
    pub(crate) async fn with<R>(&self, work: impl AsyncFnOnce(&mut WritablePool<D>) -> R) -> R {
        let _turn = self.turn.alone().await;
        let pool = self.pool.borrow_mut().take();
        let mut borrowed = Borrowed {
            pool,
            home: &self.pool,
            frozen: &self.frozen,
        };
        let pool = borrowed
            .pool
            .as_mut()
            .expect("who has the turn finds the pool at home");
        work(pool).await
    }

    /// Runs `work` with the pool, which others look at as well, and nobody changes meanwhile.
    // Who has the turn alone is the only one that takes the pool away, and waits for all who look.
    #[allow(clippy::await_holding_refcell_ref)]
    async fn look<R>(&self, work: impl AsyncFnOnce(&WritablePool<D>) -> R) -> R {
        let _turn = self.turn.shared().await;
        let pool = self.pool.borrow();
        let pool = pool
            .as_ref()
            .expect("who has the turn finds the pool at home");
        work(pool).await
    }

    /// Runs `work`, which changes the pool and commits that, with the pool, which nobody else has meanwhile.
    pub(crate) async fn with_change<R>(
        &self,
        work: impl AsyncFnOnce(&mut WritablePool<D>) -> R,
    ) -> R {
        let change = async |pool: &mut WritablePool<D>| {
            let result = work(pool).await;
            // Some changes end logs; volumes that are open go on having one.
            for (dataset, opened) in self.open.borrow().iter() {
                if opened.strong_count() > 0 {
                    pool.use_log_of(*dataset);
                }
            }
            *self.report.borrow_mut() = pool.report().cloned().map(Rc::new);
            match pool.has_changes() {
                true => *self.members.borrow_mut() = pool.members(),
                false => self.committed(pool, self.taken.get()),
            }
            result
        };
        self.with(change).await
    }

    /// Refuses when nothing is to be written any more.
    pub(crate) fn check_ended(&self, pool: &WritablePool<D>) -> Result<(), PoolError> {
        match self.is_ended.get() {
            false => Ok(()),
            true => Err(PoolError::Refused(format!(
                "pool {} was closed",
                pool.name()
            ))),
        }
    }

    /// Whether a volume of this number is open.
    pub(crate) fn is_open(&self, dataset: u64) -> bool {
        self.opened(dataset).is_some()
    }

    /// A volume that was opened; the same for all who open it.
    fn open_once(&self, volume: OpenVolume) -> Rc<Opened> {
        let dataset = volume.dataset;
        if let Some(opened) = self.opened(dataset) {
            return opened;
        }
        let opened = Rc::new(Opened {
            volume: RefCell::new(Rc::new(volume)),
            resized: Signal::new(),
        });
        let mut open = self.open.borrow_mut();
        open.retain(|_, opened| opened.strong_count() > 0);
        open.insert(dataset, Rc::downgrade(&opened));
        opened
    }

    fn opened(&self, dataset: u64) -> Option<Rc<Opened>> {
        self.open.borrow().get(&dataset)?.upgrade()
    }

    /// Who has a volume open knows from now on that it is this one.
    pub(crate) fn show_size(&self, volume: OpenVolume) {
        if let Some(opened) = self.opened(volume.dataset) {
            *opened.volume.borrow_mut() = Rc::new(volume);
            opened.resized.notify();
        }
    }

    async fn commit(&self, pool: &mut WritablePool<D>) -> Result<(), PoolError> {
        let taken = self.taken.get();
        pool.commit(self.clock.wall_seconds()).await?;
        self.committed(pool, taken);
        Ok(())
    }

    /// So many changes are in a root.
    fn committed(&self, pool: &WritablePool<D>, taken: u64) {
        self.durable.set(taken);
        self.rooted.set(taken);
        *self.members.borrow_mut() = pool.members();
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

    /// How it is put together, as of the last change.
    #[must_use]
    pub fn report(&self) -> Option<Rc<PoolReport>> {
        self.report.borrow().clone()
    }

    /// Takes a member back that is there again; what it missed it is given by [`make_good`](Self::make_good).
    ///
    /// # Errors
    /// Those of [`WritablePool::take_back`].
    pub async fn take_back(
        &self,
        member: &MemberState<D>,
        path: Option<&str>,
    ) -> Result<(), PoolError> {
        let wall_s = self.clock.wall_seconds();
        self.with_change(async |pool| pool.take_back(member, path, wall_s).await)
            .await
    }

    /// Gives members that are there what they missed, while clients are served. `None`: none missed anything. Calls
    /// wait for one another.
    ///
    /// # Errors
    /// Those of [`WritablePool::walk`] and of the commit that says that they have all.
    pub async fn make_good(&self) -> Result<Option<UpkeepReport>, PoolError> {
        let _turn = self.upkeep_turn.lock().await;
        loop {
            let is_whole = async |pool: &mut WritablePool<D>| pool.members_behind().is_empty();
            if self.with(is_whole).await {
                return Ok(None);
            }
            if let Some(report) = self.walk(Task::Rebuild).await? {
                return Ok(Some(report));
            }
        }
    }

    /// A walk, in steps between which clients are served, and the commit behind it. Whoever calls has the turn of
    /// upkeep. `None`: it has to begin again. Its space was needed, or a member has returned that it gave nothing.
    ///
    /// # Errors
    /// As [`make_good`](Self::make_good).
    pub(crate) async fn walk(&self, task: Task) -> Result<Option<UpkeepReport>, PoolError> {
        let begin = async |pool: &mut WritablePool<D>| {
            self.check_ended(pool)?;
            let total_bytes = pool.stored_bytes().await?;
            Ok::<_, PoolError>((pool.begin_walk(task), total_bytes))
        };
        let (mut walk, total_bytes) = self.with(begin).await?;
        let began = self.clock.now();
        let _shown = Shown(&self.walking);
        let mut is_held = true;
        while is_held && !walk.is_done() {
            let step =
                async |pool: &mut WritablePool<D>| pool.walk(&mut walk, BLOCKS_AT_ONCE).await;
            is_held = self.with(step).await?;
            *self.walking.borrow_mut() = Some(Walking {
                task,
                report: walk.report.clone(),
                total_bytes,
                began,
            });
            yield_once().await;
        }
        let end = async |pool: &mut WritablePool<D>| {
            self.check_ended(pool)?;
            if !pool.space.is_held() {
                return Ok(None);
            }
            let report = pool.end_walk(walk).await?;
            self.commit(pool).await?;
            Ok(Some(report))
        };
        self.with(end).await
    }

    /// The walk over the blocks that is on its way, and how far it is.
    #[must_use]
    pub fn walking(&self) -> Option<Walking> {
        self.walking.borrow().clone()
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
    opened: Rc<Opened>,
}

impl<D: Device, C: Clock> LiveVolume<D, C> {
    /// Opens a volume of the pool.
    ///
    /// # Errors
    /// Those of [`WritablePool::open_volume`].
    pub async fn open(pool: &Rc<LivePool<D, C>>, name: &str) -> Result<Self, PoolError> {
        let open = async |live: &mut WritablePool<D>| {
            let volume = live.open_volume(name).await?;
            live.use_log(&volume);
            Ok::<_, PoolError>(pool.open_once(volume))
        };
        let opened = pool.with(open).await?;
        Ok(Self {
            pool: Rc::clone(pool),
            opened,
        })
    }

    /// What it is now.
    #[must_use]
    pub fn volume(&self) -> Rc<OpenVolume> {
        Rc::clone(&self.opened.volume.borrow())
    }

    /// Returns the size when it is no longer `known_bytes`.
    pub async fn resized(&self, known_bytes: u64) -> u64 {
        let size_bytes = || self.opened.volume.borrow().size_bytes;
        self.opened
            .resized
            .until(|| size_bytes() != known_bytes)
            .await;
        size_bytes()
    }

    /// The bytes of a range, as they were written last.
    ///
    /// # Errors
    /// Those of [`WritablePool::read`].
    pub async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<Vec<u8>, PoolError> {
        let volume = &self.volume();
        let read = async |pool: &WritablePool<D>| {
            let bytes = pool.read_unmended(volume, offset_bytes, length_bytes);
            Ok::<_, PoolError>((bytes.await?, pool.has_damage()))
        };
        let (bytes, has_damage) = self.pool.look(read).await?;
        if has_damage {
            let range = offset_bytes..offset_bytes + length_bytes as u64;
            let mend = async |pool: &mut WritablePool<D>| pool.mend(volume, range).await;
            self.pool.with(mend).await?;
        }
        Ok(bytes)
    }

    /// Takes a write.
    ///
    /// # Errors
    /// Those of [`WritablePool::write`] and of the commit that it may need.
    pub async fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), PoolError> {
        let volume = &self.volume();
        self.change(async |pool| pool.write(volume, offset_bytes, bytes).await)
            .await
    }

    /// Makes a range read as zeroes, and gives its space back.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn trim(&self, range: Range<u64>) -> Result<(), PoolError> {
        let volume = &self.volume();
        self.change(async |pool| pool.trim(volume, range.clone()).await)
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

/// A walk that is shown until it has ended.
struct Shown<'a>(&'a RefCell<Option<Walking>>);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        *self.0.borrow_mut() = None;
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
