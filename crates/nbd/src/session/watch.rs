//! Watching: time limits of a session, without a timer while nothing is wrong.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use plexum_block::clock::Clock;

use super::{Ended, Session};
use crate::error::NbdError;
use crate::export::Export;
use crate::transport::Transport;

/// Shorter limits would turn waiting for memory into busy waiting.
const STALL_MIN: Duration = Duration::from_secs(1);

enum Alarm {
    /// Receiving has ended: answers may be sent for a while yet.
    Ending,
    /// The server stops, and nothing is in flight any more.
    Stopped,
    /// Somebody waits for memory.
    Pressure,
}

impl<T: Transport, E: Export, C: Clock> Session<'_, T, E, C> {
    pub(super) async fn watch(&self) {
        loop {
            let alarm = {
                let mut pressure = pin!(self.budget.pressure());
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
                let others_wait = self.budget.waiters() > usize::from(self.waits_for_memory.get());
                let is_in_the_way = self.shared.borrow().tags > 0 && others_wait;
                (is_stuck && is_in_the_way).then_some(Alarm::Pressure)
            }
            alarm => Some(alarm),
        }
    }

    /// Waits for the end of receiving, for a stop, or until `pressure` is ready.
    async fn alarm(&self, mut pressure: impl FnMut(&mut Context<'_>) -> Poll<()>) -> Alarm {
        let [server, export] = self.stop;
        let mut server = pin!(server.wait());
        let mut export = pin!(export.wait());
        poll_fn(|cx| {
            if self.has_received.get() {
                return Poll::Ready(Alarm::Ending); // `end_receiving` wakes this part
            }
            let is_ready = |wait: Pin<&mut crate::signal::Wait<'_>>, cx: &mut Context<'_>| {
                wait.poll(cx).is_ready()
            };
            let is_stopping = is_ready(server.as_mut(), cx) | is_ready(export.as_mut(), cx);
            if is_stopping && self.shared.borrow().tags == 0 {
                return Poll::Ready(Alarm::Stopped); // else `release` wakes this part
            }
            pressure(cx).map(|()| Alarm::Pressure)
        })
        .await
    }
}
