//! Watching: when a session is to be cut.

use plexum_block::clock::Clock;
use plexum_front::export::Export;
use plexum_front::peer::{Cut, Watch};

use super::{Ended, Session};
use crate::error::NbdError;
use crate::transport::Transport;

impl<T: Transport, E: Export, C: Clock> Session<'_, T, E, C> {
    pub(super) async fn watch(&self) {
        let watch = Watch {
            client: self.client,
            clock: self.clock,
            peer: &self.peer,
            has_received: &self.has_received,
            patience: self.limits.patience,
        };
        match watch.until_cut().await {
            Cut::Lingered => {}
            Cut::Stopped => self.verdict.set(Some(Ok(Ended::Stopped))),
            Cut::Stalled => self.verdict.set(Some(Err(NbdError::Stalled))),
        }
        self.cut();
    }
}
