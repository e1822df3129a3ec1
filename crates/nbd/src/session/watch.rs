//! Watching: time limits of a session, without a timer while nothing is wrong.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_front::export::Export;

use super::{Ended, Session};
use crate::error::NbdError;
use crate::transport::Transport;

/// Shorter limits would turn waiting for memory into busy waiting.
const STALL_MIN: Duration = Duration::from_secs(1);

enum Alarm {
    /// Receiving has ended: answers may be sent for a while yet.
    Ending,
    /// The client drains and nothing is in flight any more, or it is fenced.
    Stopped,
    /// Somebody waits for memory.
    Pressure,
}

impl<T: Transport, E: Export, C: Clock> Session<'_, T, E, C> {
    pub(super) async fn watch(&self) {
        loop {
            let alarm = {
                let mut pressure = pin!(self.client.requests().budget().pressure());
                self.alarm(|cx| pressure.as_mut().poll(cx)).await
            };
            let alarm = match alarm {
                Alarm::Pressure => self.watch_under_pressure().await,
                alarm => Some(alarm),
            };
            match alarm {
                None => continue,
                Some(Alarm::Ending) => self.clock.sleep(self.limits.linger).await,
                Some(Alarm::Stopped) => self.verdict.set(Some(Ok(Ended::Stopped))),
                Some(Alarm::Pressure) => self.verdict.set(Some(Err(NbdError::Stalled))),
            }
            self.cut();
            return;
        }
    }

    /// Waits for the stall limit; `Pressure` when the client stood in the way of others for all of it.
    async fn watch_under_pressure(&self) -> Option<Alarm> {
        let moves = self.moves.get();
        let mut limit = pin!(self.clock.sleep(self.limits.stall.max(STALL_MIN)));
        match self.alarm(|cx| limit.as_mut().poll(cx)).await {
            Alarm::Pressure => {
                let is_stuck = self.moves.get() == moves && self.waits_for_peer.get() > 0;
                let requests = self.client.requests();
                let itself = usize::from(requests.waits_for_memory());
                let others_wait = requests.budget().waiters() > itself;
                let is_in_the_way = requests.under_way() > 0 && others_wait;
                (is_stuck && is_in_the_way).then_some(Alarm::Pressure)
            }
            alarm => Some(alarm),
        }
    }

    /// Waits for the end of receiving, for a client that is to leave, or until `pressure` is ready.
    async fn alarm(&self, mut pressure: impl FnMut(&mut Context<'_>) -> Poll<()>) -> Alarm {
        let mut leaving = pin!(self.client.leaving());
        let mut fenced = pin!(self.client.fenced());
        poll_fn(|cx| {
            if self.has_received.get() {
                return Poll::Ready(Alarm::Ending); // `end_receiving` wakes this part
            }
            let is_fenced = fenced.as_mut().poll(cx).is_ready();
            let is_leaving = leaving.as_mut().poll(cx).is_ready();
            let is_drained = is_leaving && self.client.requests().poll_empty(cx).is_ready();
            if is_fenced || is_drained {
                return Poll::Ready(Alarm::Stopped);
            }
            pressure(cx).map(|()| Alarm::Pressure)
        })
        .await
    }
}
