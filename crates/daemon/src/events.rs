//! What happened, for whoever asks later or listens now: a bounded history and any number of listeners.
//!
//! Invariants:
//! - sequence numbers rise by one from 1; a listener sees every event once and in order, or learns that it missed some;
//! - a slow listener never holds up the engine: it reads from the history, which forgets the oldest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::status::JSON_VERSION;

/// Events kept in memory.
const HISTORY_MAX: usize = 4096;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// `JSON_VERSION`.
    pub version: u32,
    /// `event`.
    pub kind: String,
    /// Number of the event in this server's life, from 1.
    pub sequence: u64,
    /// Seconds since 1970.
    pub time_s: u64,
    /// Volume concerned.
    pub volume: String,
    /// Name, a slug in the past tense: `member_failed`, `rebuild_done`.
    pub name: String,
    /// One sentence.
    pub message: String,
    /// Member concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

struct Inner {
    history: Mutex<VecDeque<Arc<Event>>>,
    newest: watch::Sender<u64>,
}

/// History and listeners. Clones share both.
#[derive(Clone)]
pub struct EventHub {
    inner: Arc<Inner>,
}

impl Default for EventHub {
    fn default() -> Self {
        Self {
            inner: Arc::new(Inner {
                history: Mutex::default(),
                newest: watch::Sender::new(0),
            }),
        }
    }
}

impl EventHub {
    /// Records an event and wakes the listeners. Any thread may call it; it never blocks for a listener.
    pub fn publish(
        &self,
        time_s: u64,
        volume: &str,
        name: &str,
        message: impl Into<String>,
        member: Option<String>,
    ) {
        let mut history = self.history();
        let sequence = history.back().map_or(0, |event| event.sequence) + 1;
        if history.len() == HISTORY_MAX {
            history.pop_front();
        }
        history.push_back(Arc::new(Event {
            version: JSON_VERSION,
            kind: "event".into(),
            sequence,
            time_s,
            volume: volume.into(),
            name: name.into(),
            message: message.into(),
            member,
        }));
        drop(history);
        self.inner.newest.send_replace(sequence);
    }

    /// All events kept with a number above `after`, oldest first.
    #[must_use]
    pub fn since(&self, after: u64) -> Vec<Arc<Event>> {
        self.history()
            .iter()
            .filter(|event| event.sequence > after)
            .cloned()
            .collect()
    }

    /// A listener that starts after event number `after`.
    #[must_use]
    pub fn listen(&self, after: u64) -> Listener {
        Listener {
            hub: self.clone(),
            after,
            newest: self.inner.newest.subscribe(),
        }
    }

    fn history(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Event>>> {
        self.inner
            .history
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for events; one for each client that follows.
pub struct Listener {
    hub: EventHub,
    after: u64,
    newest: watch::Receiver<u64>,
}

impl Listener {
    /// The next event after the last one given. A gap in the numbers says that the history forgot some.
    /// `None` when the hub is gone.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            self.newest.borrow_and_update();
            let next = self
                .hub
                .history()
                .iter()
                .find(|event| event.sequence > self.after)
                .cloned();
            if let Some(event) = next {
                self.after = event.sequence;
                return Some(event);
            }
            self.newest.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn a_listener_gets_history_first_and_then_what_comes() {
        let hub = EventHub::default();
        hub.publish(1, "v", "started", "one", None);
        let mut listener = hub.listen(0);
        block_on(async {
            assert_eq!(listener.next().await.unwrap().message, "one");
            hub.publish(2, "v", "member_failed", "two", Some("a.img".into()));
            let event = listener.next().await.unwrap();
            assert_eq!((event.sequence, event.message.as_str()), (2, "two"));
        });
        assert_eq!(hub.since(1).len(), 1);
    }

    #[test]
    fn the_history_is_bounded_and_a_slow_listener_sees_the_gap() {
        let hub = EventHub::default();
        let mut listener = hub.listen(0);
        for n in 0..HISTORY_MAX as u64 + 10 {
            hub.publish(n, "v", "tick", "t", None);
        }
        assert_eq!(hub.since(0).len(), HISTORY_MAX);
        assert_eq!(block_on(listener.next()).unwrap().sequence, 11);
    }
}
