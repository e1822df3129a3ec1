//! Member operations while the volume is served: fail, remove, add, re-add, replace; settings.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use crate::array::WriteMostly;
use crate::balance::Policy;
use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::news::Announcement;
use crate::state::{Event, FailCause, MemberId, Standing};
use crate::upkeep::Pace;
use crate::volume::Volume;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, DeviceInfo, IoError};
use plexum_block::ranges::RangeSet;
use plexum_layout::{Geometry, Organisation};

/// Why a member operation was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no such member.
    NoSuchMember,
    /// It would take away more than the organisation survives.
    NotRedundant,
    /// The member is in use: fail it first.
    InUse,
    /// The member is not in a state that allows this.
    WrongState,
    /// The new member cannot be used, with the reason.
    Unfit(String),
    /// The organisation has no redundancy, so members cannot be exchanged.
    NoRedundancy,
    /// The volume is read-only.
    ReadOnly,
    /// Something runs that has to end first, in words.
    Busy(String),
    /// I/O failed.
    Io(IoError),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::NoSuchMember => f.write_str("the volume has no such member"),
            ControlError::NotRedundant => {
                f.write_str("the volume would lose data without this member")
            }
            ControlError::InUse => f.write_str("the member is in use; fail it first"),
            ControlError::WrongState => {
                f.write_str("the member is not in a state that allows this")
            }
            ControlError::Unfit(reason) | ControlError::Busy(reason) => f.write_str(reason),
            ControlError::NoRedundancy => f.write_str("this organisation has no redundancy"),
            ControlError::ReadOnly => f.write_str("the volume is read-only"),
            ControlError::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ControlError {}

impl From<IoError> for ControlError {
    fn from(error: IoError) -> Self {
        ControlError::Io(error)
    }
}

/// A device that shall become a member.
pub struct NewMember<D> {
    /// Path or URI.
    pub name: String,
    /// Its storage, checked to be blank or to be meant (`--force`).
    pub device: D,
    /// A random identity for its superblock.
    pub identity: [u8; 16],
    /// Read only when nobody else can answer.
    pub is_write_mostly: bool,
    /// It was a member before: its dev number, slot and event count, for a re-add.
    pub former: Option<FormerMember>,
}

/// What a returning member says of itself; its format reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerMember {
    /// The slot it had.
    pub slot: u16,
    /// Its event count.
    pub event_count: u64,
    /// Whether it was complete when it left.
    pub was_active: bool,
    /// Its bad-block list, in bytes of its data area: a bitmap says nothing of what was never written there.
    pub bad_ranges: RangeSet,
    /// Where its data begin on the device, in bytes.
    pub data_start_bytes: u64,
    /// How the array lay over its members when it left; `None`: it was between two geometries.
    pub geometry: Option<Geometry>,
}

impl FormerMember {
    /// Whether what it holds lies where the array has it now: a bitmap counts what was written, not what has moved.
    fn lies_as(&self, geometry: &Geometry, data_start_bytes: Option<u64>) -> bool {
        let is_same_map = self.geometry.as_ref().is_some_and(|was| {
            let is_mirror = [was, geometry]
                .iter()
                .all(|one| one.organisation() == Organisation::Raid1);
            // A mirror's slots say nothing of places.
            was == geometry || is_mirror && was.component_bytes() == geometry.component_bytes()
        });
        is_same_map && data_start_bytes == Some(self.data_start_bytes)
    }
}

/// What became of an added member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddOutcome {
    /// A spare (which may take an empty slot at once).
    Spare(MemberId),
    /// Back in its slot; only regions that the bitmap names are copied.
    ReAdded(MemberId),
}

/// How often it is looked whether a member that is to leave is at rest.
const REST_PERIOD: Duration = Duration::from_millis(10);

impl<D: Device, C: Clock> Volume<D, C> {
    pub(crate) fn check_exchange(&self) -> Result<(), ControlError> {
        if self.base.is_read_only() {
            return Err(ControlError::ReadOnly);
        }
        if !self.base.has_redundancy() {
            return Err(ControlError::NoRedundancy);
        }
        if self.array.is_frozen() {
            Err(ControlError::Io(IoError::Failed))
        } else {
            Ok(())
        }
    }

    /// As `check_exchange`, and whether members can come, go and be exchanged now.
    pub(crate) fn check_change(&self) -> Result<(), ControlError> {
        self.check_exchange()?;
        match self.base.holds_jobs() {
            true => Err(ControlError::Busy("a reshape is under way".to_owned())),
            false => Ok(()),
        }
    }

    /// Fails a member because the operator says so.
    ///
    /// # Errors
    /// `NotRedundant` when the volume needs it.
    pub async fn fail(&self, member: MemberId) -> Result<(), ControlError> {
        self.check_fail(member)?;
        self.array.fail_member(member, FailCause::Asked);
        self.array.settle().await?;
        Ok(())
    }

    /// Whether `fail` would be refused; changes nothing.
    ///
    /// # Errors
    /// As `fail`.
    pub fn check_fail(&self, member: MemberId) -> Result<(), ControlError> {
        self.check_exchange()?;
        let record = self.record(member)?;
        if !record.is_live() {
            return Err(ControlError::WrongState);
        }
        if let (Standing::Active, Some(slot)) = (record.standing, record.slot) {
            let mut lost = self.array.state().lost_slots();
            lost[usize::from(slot)] = true;
            if !self.array.tolerates(&lost) {
                return Err(ControlError::NotRedundant);
            }
        }
        Ok(())
    }

    /// Takes a faulty member or a spare out of the array, when no request waits for an answer of it any more.
    ///
    /// # Errors
    /// `InUse` for a member that holds or is filled for a slot; `Busy` when a request on it does not end within the
    /// members' time-out, or nobody waits for it but it could still write (W9).
    pub async fn remove(&self, member: MemberId) -> Result<(), ControlError> {
        self.check_change()?;
        self.check_may_leave(member)?;
        self.until_at_rest(member).await?;
        self.check_remove(member)?;
        self.array.let_go(member);
        self.array.commit_all().await?;
        Ok(())
    }

    /// Whether `remove` would be refused, but for requests whose end it would wait for; changes nothing.
    ///
    /// # Errors
    /// As `remove`.
    pub fn check_remove(&self, member: MemberId) -> Result<(), ControlError> {
        self.check_change()?;
        self.check_may_leave(member)?;
        let is_draining = self
            .array
            .drive(member)
            .is_some_and(|drive| drive.is_draining());
        let is_draining = is_draining || self.is_draining_shards();
        if is_draining && !self.base.has(Mutant::ComesBackUndrained) {
            let reason = "a request on it has not ended: it could still write";
            return Err(ControlError::Busy(reason.to_owned())); // W9
        }
        Ok(())
    }

    fn check_may_leave(&self, member: MemberId) -> Result<(), ControlError> {
        match self.record(member)?.standing {
            Standing::Active | Standing::Rebuilding { .. } => Err(ControlError::InUse),
            Standing::Removed => Err(ControlError::NoSuchMember),
            Standing::Spare | Standing::Faulty => Ok(()),
        }
    }

    /// Waits until nobody waits for an I/O on a member that is to leave. A read that began when it had one slot, and is
    /// answered when it is filled for another one, would get another's data (W9).
    async fn until_at_rest(&self, member: MemberId) -> Result<(), ControlError> {
        let since = self.base.clock().now();
        let limit = self.base.options().member_timeout;
        while self
            .array
            .drive(member)
            .is_some_and(|drive| drive.in_flight() > 0)
        {
            if self.base.clock().now().since(since) > limit {
                let reason = "a request on it has not ended";
                return Err(ControlError::Busy(reason.to_owned()));
            }
            self.base.clock().sleep(REST_PERIOD).await;
        }
        Ok(())
    }

    fn record(&self, member: MemberId) -> Result<crate::state::MemberRecord, ControlError> {
        self.array
            .state()
            .members
            .get(usize::from(member.0))
            .cloned()
            .ok_or(ControlError::NoSuchMember)
    }

    /// Adds a member: back into its old slot by the bitmap where its history allows, else as a spare, which takes an
    /// empty slot by itself.
    ///
    /// # Errors
    /// `Unfit` when the device is too small; `WrongState` for a re-add that the bitmap cannot cover (`must_re_add`).
    pub async fn add(
        &self,
        new: NewMember<D>,
        must_re_add: bool,
    ) -> Result<AddOutcome, ControlError> {
        let slot = self.slot_for(&new, must_re_add)?;
        let former = new.former.as_ref().filter(|_| slot.is_some());
        let keeps = former.filter(|_| !self.base.has(Mutant::ReAddForgetsBadBlocks));
        let bad = keeps.map_or_else(RangeSet::new, |former| former.bad_ranges.clone());
        let member = self.place_member(new, bad).await?;
        if let Some(slot) = slot.filter(|slot| self.is_slot_empty(*slot)) {
            self.array.apply(&Event::RebuildStarted {
                member,
                slot,
                is_replacement: false,
                by_bitmap: true,
            });
            self.base.announce(Announcement::RebuildStarted {
                member: self.array.member_name(member),
                slot,
            });
            self.array.commit_all().await?;
            return Ok(AddOutcome::ReAdded(member));
        }
        self.array.commit_all().await?;
        Ok(AddOutcome::Spare(member))
    }

    /// The slot that a returning member gets back.
    fn slot_for(&self, new: &NewMember<D>, must_re_add: bool) -> Result<Option<u16>, ControlError> {
        self.check_change()?;
        let former = new.former.as_ref();
        let slot = former.and_then(|former| self.re_add_slot(former, &new.device.info()));
        if must_re_add && slot.is_none() {
            return Err(ControlError::WrongState);
        }
        Ok(slot)
    }

    /// Whether `add` would be refused; changes nothing.
    ///
    /// # Errors
    /// As `add`.
    pub async fn check_add(
        &self,
        new: &NewMember<D>,
        must_re_add: bool,
    ) -> Result<(), ControlError> {
        self.slot_for(new, must_re_add)?;
        let _turn = self.array.entry_turn().await; // numbers are given in order
        let (member, _) = self.reserve_place(new)?;
        self.array.metadata_mut().withdraw_member(member);
        Ok(())
    }

    /// Whether `replace_with` would be refused; changes nothing.
    ///
    /// # Errors
    /// As `replace_with`.
    pub async fn check_replace(
        &self,
        old: MemberId,
        new: &NewMember<D>,
    ) -> Result<(), ControlError> {
        self.check_change()?;
        let record = self.record(old)?;
        let slot = record.slot.filter(|_| record.standing == Standing::Active);
        if slot.is_some_and(|slot| self.array.state().rebuilding(slot).is_some()) {
            return Err(ControlError::WrongState);
        }
        self.check_add(new, false).await
    }

    /// Whether a device could become a member in a shape to come, in which there is redundancy; changes nothing.
    ///
    /// # Errors
    /// As `add`.
    pub async fn check_later_add(&self, new: &NewMember<D>) -> Result<(), ControlError> {
        if self.base.is_read_only() {
            return Err(ControlError::ReadOnly);
        }
        let _turn = self.array.entry_turn().await; // numbers are given in order
        let (member, _) = self.reserve_place(new)?;
        self.array.metadata_mut().withdraw_member(member);
        Ok(())
    }

    fn is_slot_empty(&self, slot: u16) -> bool {
        let state = self.array.state();
        slot < state.slot_count && state.active(slot).is_none() && state.rebuilding(slot).is_none()
    }

    /// The slot a returning member can have by the bitmap (linux-md.md 3, re-add; W7): nothing has moved since, or is
    /// moving.
    fn re_add_slot(&self, former: &FormerMember, info: &DeviceInfo) -> Option<u16> {
        let data_start_bytes = self.array.metadata().data_start_bytes(info);
        let has_history = self.intent.regions().is_persistent
            && former.was_active
            && (former.lies_as(self.base.geometry(), data_start_bytes)
                || self.base.has(Mutant::ReAddIgnoresShape))
            && !self.base.holds_jobs()
            && (former.event_count >= self.array.metadata().events_cleared()
                || self.base.has(Mutant::ReAddIgnoresHistory))
            && former.event_count <= self.array.event_count();
        (has_history && self.is_slot_empty(former.slot)).then_some(former.slot)
    }

    /// Makes the device a spare: metadata laid out, bitmap copied, record added. Not committed yet. `bad`: what is not
    /// to be read of it until it was written again.
    async fn place_member(
        &self,
        new: NewMember<D>,
        bad: RangeSet,
    ) -> Result<MemberId, ControlError> {
        let _turn = self.array.entry_turn().await;
        let (member, data) = self.reserve_place(&new)?;
        let limits = self.base.thresholds();
        let drive = Drive::with_thresholds(member, new.name, new.device, data, bad, &limits);
        let drive = Rc::new(drive);
        let prepared = match self.intent.clear_ppl(&drive).await {
            Ok(()) => self.intent.copy_bitmap_to(&drive).await, // what it logged as a former member counts no more
            Err(error) => Err(error),
        };
        if let Err(error) = prepared {
            self.array.metadata_mut().withdraw_member(member);
            return Err(error.into());
        }
        // From here to the push nothing awaits, so ids stay in order.
        let now = MemberId(
            u16::try_from(self.array.state().members.len())
                .map_err(|_| ControlError::WrongState)?,
        );
        if now != member || self.array.is_frozen() {
            // A frozen array takes nobody in: its state stays as it is.
            self.array.metadata_mut().withdraw_member(member);
            return Err(ControlError::WrongState);
        }
        self.array.take_in(
            drive,
            match new.is_write_mostly {
                true => WriteMostly::Yes,
                false => WriteMostly::No,
            },
        );
        Ok(member)
    }

    /// A number and a place for a new member, in the metadata in memory alone.
    fn reserve_place(
        &self,
        new: &NewMember<D>,
    ) -> Result<(MemberId, std::ops::Range<u64>), ControlError> {
        let info = new.device.info();
        if info.sector_bytes > self.array.sector_bytes() {
            return Err(ControlError::Unfit(format!(
                "{}: its sectors of {} bytes are larger than those of the volume",
                new.name, info.sector_bytes
            )));
        }
        let member = MemberId(
            u16::try_from(self.array.state().members.len())
                .map_err(|_| ControlError::WrongState)?,
        );
        let place = self
            .array
            .metadata_mut()
            .add_member(member, new.identity, &info)
            .map_err(ControlError::Unfit)?;
        let log = self.array.metadata().log_header(member, None);
        if let (true, Err(reason)) = (self.intent.stripe_log().is_some(), log) {
            self.array.metadata_mut().withdraw_member(member);
            return Err(ControlError::Unfit(format!("{}: {reason}", new.name)));
        }
        let needed = (0..self.base.geometry().member_count())
            .map(|slot| self.base.geometry().used_bytes(slot))
            .max()
            .unwrap_or(0);
        if place.data.end - place.data.start < needed {
            self.array.metadata_mut().withdraw_member(member);
            let has = place.data.end - place.data.start;
            return Err(ControlError::Unfit(format!(
                "{}: {has} bytes for data, {needed} are needed",
                new.name
            )));
        }
        Ok((member, place.data))
    }

    /// Begins to copy an active member to a spare; it goes on serving until the copy is complete.
    ///
    /// # Errors
    /// `WrongState` when `old` is not active or is being replaced already, or `spare` is not a spare.
    pub async fn replace(&self, old: MemberId, spare: MemberId) -> Result<(), ControlError> {
        self.check_change()?;
        let (old_record, spare_record) = (self.record(old)?, self.record(spare)?);
        let (Standing::Active, Some(slot), Standing::Spare) =
            (old_record.standing, old_record.slot, spare_record.standing)
        else {
            return Err(ControlError::WrongState);
        };
        if self.array.state().rebuilding(slot).is_some() {
            return Err(ControlError::WrongState);
        }
        self.array.apply(&Event::RebuildStarted {
            member: spare,
            slot,
            is_replacement: true,
            by_bitmap: false,
        });
        self.base.announce(Announcement::RebuildStarted {
            member: self.array.member_name(spare),
            slot,
        });
        self.array.commit_all().await?;
        Ok(())
    }

    /// Adds a device and begins to copy `old` to it, in one step so that nothing else takes the spare.
    ///
    /// # Errors
    /// As `add` and `replace`.
    pub async fn replace_with(
        &self,
        old: MemberId,
        new: NewMember<D>,
    ) -> Result<MemberId, ControlError> {
        self.check_change()?;
        let record = self.record(old)?;
        let Some(slot) = record.slot.filter(|_| record.standing == Standing::Active) else {
            // The old one is lost already: the new one simply takes an empty slot.
            return match self.add(new, false).await? {
                AddOutcome::Spare(member) | AddOutcome::ReAdded(member) => Ok(member),
            };
        };
        if self.array.state().rebuilding(slot).is_some() {
            return Err(ControlError::WrongState);
        }
        let member = self.place_member(new, RangeSet::new()).await?;
        if self.array.state().record(member).standing == Standing::Spare {
            self.replace(old, member).await?;
        }
        Ok(member)
    }

    /// Waits until no member is being filled and no slot waits for a spare that could be used.
    pub async fn rebuilt(&self) {
        self.base
            .changed()
            .until(|| self.array.fillings().is_empty() || self.array.is_frozen())
            .await;
    }

    /// Waits until nothing is in doubt any more.
    pub async fn resynced(&self) {
        self.base
            .changed()
            .until(|| self.intent.regions().doubtful_count() == 0 || self.array.is_frozen())
            .await;
    }

    /// Changes the balance policy.
    pub fn set_balance(&self, policy: Policy) {
        self.base.options_mut().balance = policy;
        self.copies.set_policy(policy);
    }

    /// Changes the limits of background work.
    pub fn set_pace(&self, pace: Pace) {
        self.base.options_mut().pace = pace;
        self.base.changed().notify();
    }
}
