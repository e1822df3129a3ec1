//! The stripe log is turned on or off while the volume is served.
//!
//! Invariants:
//! - new writes wait while it happens, and those under way have ended and were flushed: a header never promises to make
//!   rows right that were written without the log;
//! - on: headers are durable on all members before the first write that uses the log; never over anything of md's (L1);
//! - off: no header is left on a live member before the first write that does not use it.

use std::rc::Rc;

use plexum_format::stripe_log::{LogHeader, PAGE_BYTES};

use crate::drive::Drive;
use crate::state::{Event, FailCause};
use crate::volume::{ControlError, Volume};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::join_all;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Turns the stripe log on or off. `Ok(false)`: it was like that already.
    ///
    /// # Errors
    /// `Busy` while a member is being filled, a scrub runs or another switch does; `Unfit` with the reason when there
    /// can be no log (L1); what member operations are refused for. Nothing was changed then.
    pub async fn set_log(&self, is_wanted: bool) -> Result<bool, ControlError> {
        self.check_switch()?;
        let _entry = self.array.entry_turn().await;
        if self.intent.stripe_log().is_some() == is_wanted {
            return Ok(false);
        }
        self.check_switch()?;
        let _gate = self.quiet().await?;
        if is_wanted {
            self.begin_log().await?;
        } else {
            self.end_log().await?;
        }
        Ok(true)
    }

    /// Whether `set_log` would be refused; changes nothing.
    ///
    /// # Errors
    /// As `set_log`.
    pub fn check_log(&self, is_wanted: bool) -> Result<(), ControlError> {
        self.check_switch()?;
        if !is_wanted || self.intent.stripe_log().is_some() {
            return Ok(());
        }
        for drive in self.array.slotted_drives() {
            let header = self.array.metadata().log_header(drive.id, None);
            header.map_err(|reason| ControlError::Unfit(reason.to_string()))?;
        }
        Ok(())
    }

    /// Has writes answered from the log, or only when they are in place. `Ok(false)`: it was like that already.
    ///
    /// # Errors
    /// `Unfit` without a stripe log; what `set_log` is refused for.
    pub async fn set_write_back(&self, is_wanted: bool) -> Result<bool, ControlError> {
        self.check_switch()?;
        let _entry = self.array.entry_turn().await;
        let Some(log) = self.intent.stripe_log() else {
            let reason = "only a volume with a stripe log can answer from it";
            return Err(ControlError::Unfit(reason.to_owned()));
        };
        if log.is_write_back() == is_wanted {
            return Ok(false);
        }
        self.check_switch()?;
        let _gate = self.quiet().await?;
        log.set_write_back(is_wanted);
        self.intent
            .write_log_headers(&log, &self.array.slotted_drives())
            .await?;
        self.array.apply(&Event::SettingsChanged);
        self.array.commit_all().await?;
        Ok(true)
    }

    async fn begin_log(&self) -> Result<(), ControlError> {
        let mut headers: Vec<Option<LogHeader>> = vec![None; self.array.state().members.len()];
        for drive in self.array.slotted_drives() {
            let header = self.array.metadata().log_header(drive.id, None);
            let header = header.map_err(|reason| ControlError::Unfit(reason.to_string()))?;
            headers[usize::from(drive.id.0)] = Some(header);
        }
        self.intent.adopt_log(&headers, false);
        let log = self.intent.stripe_log().expect("it was just adopted");
        log.new_life();
        self.intent
            .write_log_headers(&log, &self.array.slotted_drives())
            .await?;
        Ok(())
    }

    async fn end_log(&self) -> Result<(), ControlError> {
        // No commit may write another header behind our back.
        let turn = self.array.hold_commits().await;
        let log = self.intent.stripe_log();
        let headers = match &log {
            Some(log) => Some(log.hold_headers().await), // nor may the tail, which follows in the background
            None => None,
        };
        let drives = self.array.live_drives();
        let places: Vec<(Rc<Drive<D>>, u64)> = {
            let metadata = self.array.metadata();
            let log = self.intent.take_log();
            let area = |drive: &Rc<Drive<D>>| log.as_ref().and_then(|log| log.area(drive.id));
            let place = |drive: Rc<Drive<D>>| {
                let header = metadata.log_header(drive.id, area(&drive)).ok()?;
                Some((drive, header.area.header_offset_bytes()))
            };
            drives.into_iter().filter_map(place).collect()
        };
        let wipes = places.iter().map(|(drive, at)| {
            let page = self.base.pool().take_zeroed(PAGE_BYTES).freeze();
            drive.write_device(*at, page, Fua::Yes)
        });
        let results = join_all(wipes).await;
        for ((drive, _), result) in places.iter().zip(results) {
            match result {
                Ok(()) => {}
                Err(IoError::Gone) => self.array.fail_member(drive.id, FailCause::Gone),
                Err(_) => self.array.fail_member(drive.id, FailCause::WriteError),
            }
        }
        drop((headers, turn));
        self.array.settle().await?;
        Ok(())
    }
}
