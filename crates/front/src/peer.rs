//! How a session's peer moves: whether it takes its answers and sends what it has announced; and when a session that
//! it holds up ends.
//!
//! Invariants:
//! - who stands in nobody's way may take all the time it wants: there is no timer while nobody waits for memory;
//! - a client is cut off when for the whole stall limit others waited for memory, and it held some, and the session
//!   waited for it, and it moved nothing.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use plexum_block::clock::Clock;

use crate::client::Client;

/// Shorter limits would turn waiting for memory into busy waiting.
const STALL_MIN: Duration = Duration::from_secs(1);

/// How often the peer took or gave something, and how many parts of the session wait for it right now.
#[derive(Default)]
pub struct Peer {
    moves: Cell<u64>,
    waits: Cell<usize>,
}

/// A part of the session that waits for the peer, until this is dropped: then the peer has moved.
pub struct Waiting<'a>(&'a Peer);

impl Peer {
    /// It took or gave something.
    pub fn moved(&self) {
        self.moves.set(self.moves.get() + 1);
    }

    /// The session begins to wait for it.
    pub fn wait(&self) -> Waiting<'_> {
        self.waits.set(self.waits.get() + 1);
        Waiting(self)
    }

    /// Marks what happens inside as waiting for the peer, and its end as a move of the peer.
    pub async fn waited_for<R>(&self, wait: impl Future<Output = R>) -> R {
        let _waiting = self.wait();
        wait.await
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waits.set(self.0.waits.get() - 1);
        self.0.moved();
    }
}

/// Limits of a session's patience.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long a client may neither send nor read while others wait for the memory it holds; at least a second.
    pub stall: Duration,
    /// How long answers are still sent after the client has ended the session.
    pub linger: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            stall: Duration::from_secs(30),
            linger: Duration::from_secs(10),
        }
    }
}

/// Why a session is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It has received all, and answers were sent for as long as they may be.
    Lingered,
    /// The client drains and nothing of it is under way any more, or it is fenced.
    Stopped,
    /// It neither took its answers nor sent its data, while others waited for the memory it held.
    Stalled,
}

/// Whoever watches a session.
pub struct Watch<'a, C> {
    /// Whose session it is.
    pub client: &'a Client,
    /// What time it is.
    pub clock: &'a C,
    /// How the peer moves.
    pub peer: &'a Peer,
    /// Receiving has ended. Whoever sets it wakes the part that watches.
    pub has_received: &'a Cell<bool>,
    /// The limits.
    pub patience: Patience,
}

enum Alarm {
    /// Receiving has ended: answers may be sent for a while yet.
    Ending,
    /// The client drains and nothing is in flight any more, or it is fenced.
    Stopped,
    /// Somebody waits for memory.
    Pressure,
}

impl<C: Clock> Watch<'_, C> {
    /// Returns when the session is to be cut.
    pub async fn until_cut(&self) -> Cut {
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
                Some(Alarm::Ending) => self.clock.sleep(self.patience.linger).await,
                Some(Alarm::Stopped) => return Cut::Stopped,
                Some(Alarm::Pressure) => return Cut::Stalled,
            }
            return Cut::Lingered;
        }
    }

    /// Waits for the stall limit; `Pressure` when the client stood in the way of others for all of it.
    async fn watch_under_pressure(&self) -> Option<Alarm> {
        let moves = self.peer.moves.get();
        let mut limit = pin!(self.clock.sleep(self.patience.stall.max(STALL_MIN)));
        match self.alarm(|cx| limit.as_mut().poll(cx)).await {
            Alarm::Pressure => {
                let is_stuck = self.peer.moves.get() == moves && self.peer.waits.get() > 0;
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
                return Poll::Ready(Alarm::Ending);
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
