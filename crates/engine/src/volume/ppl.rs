//! md's partial parity log is turned on or off while the volume is served.
//!
//! Invariants:
//! - new writes wait while it happens, and those under way have ended and were flushed;
//! - on: parity is right everywhere, for after a replay nobody resyncs; every live member has a header before a
//!   superblock names the log;
//! - bitmap and stripe log are off before it is on (md's rule).

use crate::state::Event;
use crate::volume::{ControlError, Volume};
use plexum_block::clock::Clock;
use plexum_block::device::Device;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Whether the volume could have md's partial parity log, without bitmap and stripe log.
    ///
    /// # Errors
    /// `Unfit` with the reason, `Busy` while rows are in doubt.
    pub fn check_ppl(&self) -> Result<(), ControlError> {
        self.array
            .metadata()
            .check_ppl()
            .map_err(ControlError::Unfit)?;
        if self.intent.regions().doubtful_count() > 0 {
            let reason = "a resync has to end first";
            return Err(ControlError::Busy(reason.to_owned()));
        }
        Ok(())
    }

    /// Turns md's partial parity log on or off. `Ok(false)`: it was like that already.
    ///
    /// # Errors
    /// As `check_ppl`; `Unfit` while there is a bitmap or a stripe log; `Busy` while a member is being filled, a scrub
    /// runs or another switch does.
    pub async fn set_ppl(&self, is_wanted: bool) -> Result<bool, ControlError> {
        if self.intent.has_ppl() == is_wanted {
            return Ok(false);
        }
        self.check_switch()?;
        let _entry = self.array.entry_turn().await;
        self.check_switch()?;
        let _gate = self.quiet().await?;
        if is_wanted {
            self.check_ppl()?;
            if self.intent.regions().is_persistent || self.intent.stripe_log().is_some() {
                let reason = "bitmap and stripe log have to be off first";
                return Err(ControlError::Unfit(reason.to_owned()));
            }
            // The superblocks on the members name it only after the headers.
            self.array.metadata_mut().set_ppl(true);
            self.intent.adopt_ppl();
            self.intent.begin_ppl().await;
        } else {
            self.intent.end_ppl();
            self.array.metadata_mut().set_ppl(false);
        }
        self.array.apply(&Event::SettingsChanged);
        self.array.commit_all().await?;
        Ok(true)
    }
}
