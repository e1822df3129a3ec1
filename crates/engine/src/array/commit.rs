//! Superblock commits: the staged state becomes durable on all live members, then it is the working one.
//!
//! Invariants:
//! - one commit at a time; whoever needs a newer version commits again, all who wait for it share that commit;
//! - the bitmap's superblock is written before the members' (linux-md.md 3, rule 4);
//! - a member that has become complete says so itself before the others do;
//! - a member that cannot be written is one more failure, and the commit starts again without it (W3);
//! - a frozen array commits nothing (W4).

use std::rc::Rc;

use super::Array;
use super::state::{ArrayState, FailCause};
use crate::drive::Drive;
use crate::metadata::{CommitView, MetadataWrite};
use crate::mutant::Mutant;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::join_all;

/// Most attempts of one commit: each failed one has lost a member, so there cannot be more.
const ATTEMPTS_MAX: usize = 2048;

impl<D: Device, C: Clock> Array<D, C> {
    /// Returns when `version` of the state is durable on all live members.
    ///
    /// # Errors
    /// `Failed` when the array is frozen or freezes meanwhile, `ReadOnly` when nothing may be written.
    pub(crate) async fn commit_until(&self, version: u64) -> Result<(), IoError> {
        if self.committed.get() >= version || self.is_silent() {
            return Ok(());
        }
        // Boxed: what is seldom needed does not make every request larger.
        Box::pin(self.try_to_commit(version)).await
    }

    /// Whether every failure known now is durable on the survivors.
    pub(crate) fn is_settled(&self) -> bool {
        self.base.has(Mutant::AnswerBeforeFailureCommit)
            || self.committed.get() >= self.state.borrow().urgent_version
    }

    /// W3: waits until every failure known now is durable on the survivors.
    pub(crate) async fn settle(&self) -> Result<(), IoError> {
        if self.base.has(Mutant::AnswerBeforeFailureCommit) {
            return Ok(());
        }
        let urgent = self.state.borrow().urgent_version;
        self.commit_until(urgent).await
    }

    async fn try_to_commit(&self, version: u64) -> Result<(), IoError> {
        for _ in 0..ATTEMPTS_MAX {
            if self.committed.get() >= version {
                return Ok(());
            }
            if self.is_frozen() {
                return Err(IoError::Failed);
            }
            let _turn = self.commit_lock.lock().await;
            if self.committed.get() < version && !self.is_frozen() {
                self.commit_once().await?;
            }
        }
        unreachable!("every attempt that did not succeed has lost a member")
    }

    /// Commits whatever is not durable yet.
    pub(crate) async fn commit_all(&self) -> Result<(), IoError> {
        let version = self.state.borrow().version;
        self.commit_until(version).await
    }

    async fn commit_once(&self) -> Result<(), IoError> {
        assert!(!self.is_silent(), "others make durable what it learns");
        debug_assert!(self.commit_lock.is_locked(), "one commit at a time");
        self.base.check_writable()?;
        if !self.metadata.borrow().has_commits() {
            self.committed.set(self.state.borrow().version);
            return Ok(());
        }
        let uneven = self.uneven.take();
        if let Some(assembled) = uneven.filter(|_| !self.base.has(Mutant::CountsNotLevelled)) {
            self.level_counts(&assembled).await?;
        }
        let drives = self.live_drives();
        self.check_drives(&drives).await;
        // Only what was known when everybody was asked: a member that is lost from here on is the next attempt's, which
        // asks again and finds out whether it was one cable too many (W4).
        let state = self.state.borrow().clone();
        let version = state.version;
        let staged =
            self.event_count.get() + u64::from(!self.base.has(Mutant::EventCountNotRaised));
        let drives = self.live_drives();
        if self.is_frozen() {
            return Err(IoError::Failed);
        }
        assert!(staged >= self.event_count.get(), "event counts never fall");
        // From here on nobody may fall back to the old count: some member may carry the new one already.
        self.event_count.set(staged);
        self.before_superblocks(staged).await?;
        let plans: Vec<Vec<MetadataWrite>> = self.stage(&state, &drives, staged);
        if !self.bind(&state, &drives).await {
            return Ok(()); // a member was lost on the way: the next attempt goes without it
        }
        let is_complete = self.write_superblocks(&state, &drives, plans).await?;
        if self.is_frozen() {
            return Err(IoError::Failed);
        }
        if is_complete {
            assert!(
                version <= self.state.borrow().version,
                "nothing is durable that was not known"
            );
            *self.durably_active.borrow_mut() = state.all_active().collect();
            self.committed.set(self.committed.get().max(version));
            self.base.changed().notify();
        }
        Ok(())
    }

    /// Writes the staged superblocks, of members that have just become complete before all others: until its own says
    /// so, a member is a spare, or filled in part, to whoever assembles the array, whatever the others say of it. A
    /// crash in between would leave its slot empty, and the member it replaces is out already. `false`: some could not
    /// be written and was failed. An error: one that is needed could not be written.
    async fn write_superblocks(
        &self,
        state: &ArrayState,
        drives: &[Rc<Drive<D>>],
        plans: Vec<Vec<MetadataWrite>>,
    ) -> Result<bool, IoError> {
        let is_new = |drive: &Drive<D>| {
            let was_active = self.is_durably_active(drive.id);
            !was_active && state.all_active().any(|id| id == drive.id)
        };
        let (first, then): (Vec<_>, Vec<_>) = drives
            .iter()
            .zip(plans)
            .partition(|(drive, _)| is_new(drive));
        for members in [first, then] {
            let writes = members
                .into_iter()
                .map(async |(drive, writes)| (drive, self.write_metadata(drive, writes).await));
            let (mut is_complete, mut refused) = (true, None);
            for (drive, result) in join_all(writes).await {
                match result {
                    Ok(()) => self.note_superblock(drive),
                    // The last copy stays, and is read: what has to be durable first is refused until its superblock
                    // can be written.
                    Err(error) if error != IoError::Gone && self.is_needed(drive.id) => {
                        refused = Some(IoError::Medium);
                    }
                    Err(error) => {
                        is_complete = false;
                        self.fail_member(drive.id, cause_of(error));
                    }
                }
            }
            if let Some(error) = refused {
                return Err(error);
            }
            if !is_complete {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Brings members that an interrupted commit left one event behind to the newest count, before any gets a higher
    /// one: two interrupted commits in a row would otherwise leave a member two behind, which is stale (linux-md.md 9).
    async fn level_counts(&self, assembled: &ArrayState) -> Result<(), IoError> {
        let mut drives = self.live_drives();
        drives.retain(|drive| usize::from(drive.id.0) < assembled.members.len());
        let event_count = self.event_count.get();
        self.before_superblocks(event_count).await?;
        let plans = self.stage(assembled, &drives, event_count);
        self.bind(assembled, &drives).await;
        assert_eq!(plans.len(), drives.len(), "a superblock for each");
        let writes = drives.iter().zip(plans);
        let results = join_all(writes.map(|(drive, plan)| self.write_metadata(drive, plan))).await;
        for (drive, result) in drives.iter().zip(results) {
            match result {
                Ok(()) => self.note_superblock(drive),
                Err(error) => self.fail_member(drive.id, cause_of(error)),
            }
        }
        Ok(())
    }

    async fn before_superblocks(&self, event_count: u64) -> Result<(), IoError> {
        match self.companion() {
            Some(companion) => companion.before_superblocks(event_count).await,
            None => Ok(()),
        }
    }

    async fn bind(&self, state: &ArrayState, drives: &[Rc<Drive<D>>]) -> bool {
        match self.companion() {
            Some(companion) => companion.bind(state, drives).await,
            None => true,
        }
    }

    fn note_superblock(&self, drive: &Drive<D>) {
        if let Some(companion) = self.companion() {
            companion.superblock_written(drive.id);
        }
    }

    async fn check_drives(&self, drives: &[Rc<Drive<D>>]) {
        let results = join_all(drives.iter().map(|drive| drive.check())).await;
        for (drive, result) in drives.iter().zip(results) {
            if result.is_err() {
                self.fail_member(drive.id, FailCause::Gone);
            }
        }
    }

    fn stage(
        &self,
        state: &ArrayState,
        drives: &[Rc<Drive<D>>],
        event_count: u64,
    ) -> Vec<Vec<MetadataWrite>> {
        let companion = self.companion();
        let companion = companion.as_ref();
        let answers_from_log = companion.is_some_and(|companion| companion.answers_from_log());
        let view = CommitView {
            state,
            event_count,
            wall_seconds: self.base.clock().wall_seconds(),
            is_doubtful: companion.is_some_and(|companion| companion.is_doubtful()),
            answers_from_log: answers_from_log && !self.base.has(Mutant::AnswersNotAnnounced),
        };
        let mut metadata = self.metadata.borrow_mut();
        drives
            .iter()
            .map(|drive| {
                metadata.superblock(
                    drive.id,
                    &view,
                    &drive.bad_ranges_to_record(),
                    &drive.info(),
                )
            })
            .collect()
    }

    async fn write_metadata(
        &self,
        drive: &Drive<D>,
        writes: Vec<MetadataWrite>,
    ) -> Result<(), IoError> {
        for write in writes {
            drive
                .write_device(
                    write.at_bytes,
                    self.base.pool().copy_of(&write.bytes).freeze(),
                    Fua::Yes,
                )
                .await?;
        }
        Ok(())
    }
}

fn cause_of(error: IoError) -> FailCause {
    if error == IoError::Gone {
        FailCause::Gone
    } else {
        FailCause::SuperblockError
    }
}
