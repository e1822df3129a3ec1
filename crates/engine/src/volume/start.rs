//! What whoever opens a volume says of its logs, before anything else is asked of it. What a log is worth is known by
//! its format; what follows from that is done here.
//!
//! Invariant: nothing is written before it is sure that the log counts (L6).

use plexum_format::stripe_log::LogHeader;

pub use crate::intent::log::ReplayError;
pub use crate::intent::ppl::PplError;

use crate::volume::Volume;
use plexum_block::clock::Clock;
use plexum_block::device::Device;

impl<D: Device, C: Clock> Volume<D, C> {
    /// What the stripe log's rings hold does not count: its life begins anew. Nothing without a log.
    pub fn begin_log_anew(&self) {
        if let Some(log) = self.intent.stripe_log() {
            log.new_life();
        }
    }

    /// Replays what the rings of the stripe log hold (L7), then begins a new life of it. Nothing without a log.
    /// `headers` by `MemberId`: all of them are bound to their members' superblocks (L6).
    ///
    /// # Errors
    /// `Damaged` when the rings contradict themselves: nothing was written; `doubt_log` or a refusal follows. `Io` when
    /// the members could not be written.
    pub async fn replay_log(&self, headers: &[Option<LogHeader>]) -> Result<(), ReplayError> {
        let Some(log) = self.intent.stripe_log() else {
            return Ok(());
        };
        assert!(
            !self.base.is_read_only(),
            "a volume that is only read has no log"
        );
        self.intent.replay_log(&log, headers).await?;
        let finished = self.intent.finish_replay(&log).await;
        finished.map_err(ReplayError::Io)
    }

    /// The stripe log is damaged and not replayed: as without one, what the bitmap marks is in doubt, or everything.
    pub fn doubt_log(&self) {
        assert!(
            self.intent.stripe_log().is_some(),
            "whoever doubts a log has one"
        );
        self.intent.doubt_all_marked();
        self.begin_log_anew();
    }

    /// Takes over the partial parity log that the members' metadata name, and replays it when the array is `dirty`.
    /// Without `force` a member that is missing beside rows that may be wrong is an error.
    ///
    /// # Errors
    /// `Doubt` for those rows; nothing was written then. `Io` when the members could not be written.
    pub async fn start_ppl(&self, dirty: Dirty, force: Force) -> Result<(), PplError> {
        self.intent.adopt_ppl();
        let (is_dirty, is_forced) = (dirty == Dirty::Yes, force == Force::Yes);
        self.intent.start_ppl(is_dirty, is_forced).await
    }
}

/// Whether writes were under way when the array was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirty {
    /// They were, or may have been.
    Yes,
    /// None was.
    No,
}

/// Whether the user insists on a start that may give wrong data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// He does.
    Yes,
    /// A refusal it is.
    No,
}
