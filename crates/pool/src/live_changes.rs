//! Changes of a pool that is served: of its volumes, its snapshots and its members, while clients go on.
//!
//! Invariants:
//! - a change has the pool for itself, but for a walk over the blocks, which clients are served beside;
//! - what is done to a volume's contents or name is refused while it is open, and it is made no smaller;
//! - a change that was answered is in a root.

use plexum_block::clock::Clock;
use plexum_block::device::Device;

use crate::create::NewMember;
use crate::error::PoolError;
use crate::live::LivePool;
use crate::replace::Replacement;
use crate::snapshot::Now;
use crate::state::WritablePool;
use crate::upkeep::{Task, UpkeepReport};
use crate::volume::OpenVolume;

/// A scrub that had to begin again so often is not tried any more: the space that it keeps is needed.
const SCRUBS_MAX: usize = 5;

impl<D: Device, C: Clock> LivePool<D, C> {
    /// Runs `work`, one of the changes of [`WritablePool`] that commit before they return, while clients wait. It must
    /// not change what an open volume is: see [`change_volume`](Self::change_volume) and
    /// [`change_size`](Self::change_size).
    ///
    /// # Errors
    /// Those of the work.
    pub async fn change<T, E: From<PoolError>>(
        &self,
        work: impl AsyncFnOnce(&mut WritablePool<D>) -> Result<T, E>,
    ) -> Result<T, E> {
        let unless_ended = async |pool: &mut WritablePool<D>| {
            self.check_ended(pool)?;
            work(pool).await
        };
        self.with_change(unless_ended).await
    }

    /// The same of what changes a volume's contents or its name. `name` is the volume's, or that of one of its
    /// snapshots.
    ///
    /// # Errors
    /// `Refused` while it is open, or when there is no such volume; those of the work.
    pub async fn change_volume<T, E: From<PoolError>>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(&mut WritablePool<D>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.change_unless_open(name, |_| false, work).await
    }

    /// The same of what gives a volume another size. Who has it open sees the new one when it is in a root.
    ///
    /// # Errors
    /// As [`change_volume`](Self::change_volume), but for one that is open and becomes larger.
    pub async fn change_size<T, E: From<PoolError>>(
        &self,
        name: &str,
        size_bytes: u64,
        work: impl AsyncFnOnce(&mut WritablePool<D>) -> Result<T, E>,
    ) -> Result<T, E> {
        let is_larger = |volume: &OpenVolume| size_bytes >= volume.size_bytes;
        self.change_unless_open(name, is_larger, work).await
    }

    async fn change_unless_open<T, E: From<PoolError>>(
        &self,
        name: &str,
        may_be_open: impl Fn(&OpenVolume) -> bool,
        work: impl AsyncFnOnce(&mut WritablePool<D>) -> Result<T, E>,
    ) -> Result<T, E> {
        let name = name.split('@').next().unwrap_or(name);
        let unless_open = async |pool: &mut WritablePool<D>| {
            self.check_ended(pool)?;
            let volume = pool.open_volume(name).await?;
            let is_open = self.is_open(volume.dataset);
            if is_open && !may_be_open(&volume) {
                let text = format!("{name} is served: it stays what it is meanwhile");
                return Err(PoolError::Refused(text).into());
            }
            let done = work(pool).await?;
            if is_open {
                self.show_size(pool.open_volume(name).await?);
            }
            Ok(done)
        };
        self.with_change(unless_open).await
    }

    /// Reads everything and repairs what is wrong, while clients are served. Members that missed something are given
    /// that first. Calls wait for one another.
    ///
    /// # Errors
    /// As [`make_good`](Self::make_good); `Refused` when the pool is too full for it.
    pub async fn scrub(&self) -> Result<UpkeepReport, PoolError> {
        for _ in 0..SCRUBS_MAX {
            self.make_good().await?;
            let _turn = self.upkeep_turn.lock().await;
            if let Some(report) = self.walk(Task::Scrub).await? {
                return Ok(report);
            }
        }
        Err(PoolError::Refused(format!(
            "a scrub began {SCRUBS_MAX} times and had to give its space back each time: the pool is too full to be \
             scrubbed while it is written"
        )))
    }

    /// Begins to put a new member in the place of another, while clients are served.
    ///
    /// # Errors
    /// Those of [`WritablePool::begin_replace`].
    pub async fn begin_replace(
        &self,
        member: &str,
        new: NewMember<D>,
        now: Now,
    ) -> Result<Replacement, PoolError> {
        self.change(async |pool| pool.begin_replace(member, new, now).await)
            .await
    }

    /// Gives a new member everything while clients are served, and makes it a member then. Calls wait for one another.
    ///
    /// # Errors
    /// Those of [`WritablePool::end_replace`].
    pub async fn end_replace(&self, replacement: &Replacement) -> Result<UpkeepReport, PoolError> {
        let _turn = self.upkeep_turn.lock().await;
        let filled = loop {
            match self.walk(replacement.task()).await {
                Ok(None) => {}
                Ok(Some(report)) => break Ok(report),
                Err(error) => break Err(error),
            }
        };
        let wall_s = self.clock.wall_seconds();
        self.change(async |pool| pool.end_replace(replacement, filled, wall_s).await)
            .await
    }
}
