//! The bitmap is turned on or off while the volume is served.
//!
//! Invariants:
//! - new writes wait while it happens, and those under way have ended and were flushed: what the members say is the
//!   whole truth at every instant, with the bitmap or without (W1, W2);
//! - on: the areas are durable on all live members before any superblock points to them;
//! - off: the bits are kept up to date until no live member's superblock points to them;
//! - a bitmap that begins covers nothing that a member missed earlier: its `events_cleared` is the present event count,
//!   so whoever is away is filled as a whole.

use std::rc::Rc;

use plexum_format::SECTOR_BYTES;

use crate::drive::Drive;
use crate::intent::regions::Regions;
use crate::metadata::BitmapPlan;
use crate::state::{Event, FailCause, MemberId};
use crate::volume::{ControlError, Volume};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::join_all;

/// What is wanted of the bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitmapWish {
    /// None.
    None,
    /// One on the members.
    Internal {
        /// Bytes of a region; `None`: chosen by the size.
        region_bytes: Option<u64>,
    },
}

/// Writes wait while it lives; they go on, however the switch ends.
pub(super) struct Gate<'a, D: Device, C: Clock>(&'a Volume<D, C>);

impl<D: Device, C: Clock> Drop for Gate<'_, D, C> {
    fn drop(&mut self) {
        self.0.traffic.end_switch();
        self.0.base.changed().notify();
    }
}

impl<D: Device, C: Clock> Volume<D, C> {
    /// Turns the bitmap on or off. `Ok(false)`: it was like that already.
    ///
    /// # Errors
    /// `Busy` while a member is being filled, a scrub runs or another switch does; `WrongState` for "off" while members
    /// are missing (the bits are what brings them back quickly) and for another region size than the present one;
    /// `Unfit` when there is no room; what `check_exchange` refuses. Nothing was changed then.
    pub async fn set_bitmap(&self, wish: BitmapWish) -> Result<bool, ControlError> {
        self.check_wish(wish)?;
        let _entry = self.array.entry_turn().await;
        if self.is_done(wish)? {
            return Ok(false);
        }
        self.check_wish(wish)?;
        let _gate = self.quiet().await?;
        match wish {
            BitmapWish::Internal { region_bytes } => self.begin_bitmap(region_bytes).await?,
            BitmapWish::None => {
                let _turn = self.intent.hold_bitmap().await;
                self.array.metadata_mut().set_bitmap(None);
                self.intent.forget_bitmap();
            }
        }
        self.array.apply(&Event::SettingsChanged);
        self.array.commit_all().await?;
        Ok(true)
    }

    /// Whether copies or parity of some part of a sync range (member bytes; volume bytes for mirrors) may differ.
    pub fn is_in_doubt(&self, sync: &std::ops::Range<u64>) -> bool {
        !self.intent.is_proven(sync)
    }

    /// Whether there is nothing to do.
    fn is_done(&self, wish: BitmapWish) -> Result<bool, ControlError> {
        let regions = self.intent.regions();
        match wish {
            BitmapWish::None => Ok(!regions.is_persistent),
            BitmapWish::Internal { .. } if !regions.is_persistent => Ok(false),
            BitmapWish::Internal { region_bytes } => {
                if region_bytes.is_none_or(|bytes| bytes == regions.region_bytes()) {
                    return Ok(true);
                }
                Err(ControlError::WrongState)
            }
        }
    }

    /// New writes wait until the gate is dropped; the others have ended, and all that was written is in place and
    /// durable.
    ///
    /// # Errors
    /// What `check_exchange` refuses by then.
    pub(super) async fn quiet(&self) -> Result<Gate<'_, D, C>, ControlError> {
        self.traffic.begin_switch();
        let gate = Gate(self);
        self.base.all_back().await;
        self.traffic.no_writes().await;
        self.intent.destage().await?;
        self.intent.flush_members().await?;
        self.check_exchange()?;
        Ok(gate)
    }

    /// Whether bitmap or log can be switched now.
    pub(super) fn check_switch(&self) -> Result<(), ControlError> {
        self.check_change()?;
        let busy = |what: &str| Err(ControlError::Busy(what.to_owned()));
        if self.traffic.is_switching() {
            return busy("bitmap or log are being changed");
        }
        if !self.array.fillings().is_empty() {
            return busy("a member is being filled");
        }
        if self.is_scrubbing() {
            return busy("a scrub runs"); // a repair holds a row while it waits to write
        }
        Ok(())
    }

    fn check_wish(&self, wish: BitmapWish) -> Result<(), ControlError> {
        self.check_switch()?;
        if wish == BitmapWish::None && self.array.state().is_degraded() && !self.is_done(wish)? {
            return Err(ControlError::NotRedundant);
        }
        Ok(())
    }

    /// Whether `set_bitmap` would be refused; changes nothing.
    ///
    /// # Errors
    /// As `set_bitmap`.
    pub fn check_bitmap(&self, wish: BitmapWish) -> Result<(), ControlError> {
        self.check_wish(wish)?;
        match wish {
            BitmapWish::Internal { region_bytes } if !self.is_done(wish)? => {
                let plan = self.plan_bitmap(region_bytes)?;
                let regions = self.intent.regions().regrained(plan.region_bytes);
                self.check_clear_of_log(&plan, regions.area_bytes())
            }
            _ => Ok(()),
        }
    }

    fn plan_bitmap(&self, region_bytes: Option<u64>) -> Result<BitmapPlan, ControlError> {
        let sync_bytes = self.intent.regions().sync_bytes();
        let event_count = self.array.event_count();
        let rings: Vec<_> = match self.intent.stripe_log() {
            Some(log) => {
                let members = self.array.state().members.len();
                let ids = (0..members).map(|index| u16::try_from(index).expect("members are few"));
                ids.map(|index| log.area(MemberId(index))).collect()
            }
            None => Vec::new(),
        };
        self.array
            .metadata()
            .plan_bitmap(&rings, sync_bytes, region_bytes, event_count)
            .map_err(ControlError::Unfit)
    }

    async fn begin_bitmap(&self, region_bytes: Option<u64>) -> Result<(), ControlError> {
        let plan = self.plan_bitmap(region_bytes)?;
        let _turn = self.intent.hold_bitmap().await;
        loop {
            let written = self.intent.regions().regrained(plan.region_bytes);
            self.check_clear_of_log(&plan, written.area_bytes())?;
            self.write_areas(&plan, &area_of(&written, &plan)).await?;
            // No await from here on. A resync has made doubt less meanwhile; should it have grown, the areas are
            // written again.
            let regions = self.intent.regions().regrained(plan.region_bytes);
            if regions.wanted().iter().all(|bit| written.is_wanted(bit)) {
                self.intent.put_regions(regions);
                self.array.metadata_mut().set_bitmap(Some(&plan));
                return Ok(());
            }
        }
    }

    /// L1: a bitmap never grows over a ring of the stripe log.
    fn check_clear_of_log(&self, plan: &BitmapPlan, area_bytes: u64) -> Result<(), ControlError> {
        let Some(log) = self.intent.stripe_log() else {
            return Ok(());
        };
        let is_over = |drive: &Rc<Drive<D>>| {
            let start = plan
                .starts_bytes
                .get(usize::from(drive.id.0))
                .copied()
                .flatten();
            let ring = log
                .area(drive.id)
                .map(|area| area.ring_sector * SECTOR_BYTES);
            matches!((start, ring), (Some(start), Some(ring)) if start + area_bytes > ring)
        };
        if self.array.live_drives().iter().any(is_over) {
            let reason = "the bitmap would lie over the stripe log; larger regions would fit";
            return Err(ControlError::Unfit(reason.to_owned()));
        }
        Ok(())
    }

    /// Writes the whole area to every live member, durably. A member that cannot take it is failed.
    async fn write_areas(&self, plan: &BitmapPlan, area: &[u8]) -> Result<(), ControlError> {
        let drives = self.array.live_drives();
        let writes = drives.iter().map(|drive| async {
            let start = plan.starts_bytes.get(usize::from(drive.id.0));
            let Some(start) = start.copied().flatten() else {
                return Ok(());
            };
            let data = self.base.pool().copy_of(area).freeze();
            drive.write_device(start, data, Fua::No).await?;
            drive.flush().await
        });
        let results = join_all(writes).await;
        for (drive, result) in drives.iter().zip(results) {
            match result {
                Ok(()) => {}
                Err(error @ IoError::NoSpace) => return Err(error.into()),
                Err(IoError::Gone) => self.array.fail_member(drive.id, FailCause::Gone),
                Err(_) => self.array.fail_member(drive.id, FailCause::WriteError),
            }
        }
        self.array.settle().await?;
        Ok(())
    }
}

/// The bytes of a whole bitmap area.
fn area_of(regions: &Regions, plan: &BitmapPlan) -> Vec<u8> {
    let mut area = Vec::new();
    for block in 0..regions.area_bytes() / regions.block_bytes() {
        area.extend(regions.encode_block(block));
    }
    area[..plan.header.len()].copy_from_slice(&plan.header);
    area
}
