//! What happened, for whoever asks later or listens now: a bounded history and any number of listeners.
//!
//! Invariants:
//! - sequence numbers rise by one from 1; a listener sees every event once and in order, or learns that it missed some;
//! - a slow listener never holds up the engine: it reads from the history, which forgets the oldest;
//! - what happened in earlier lives of a volume is given to whoever asks for all, and to no listener.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

pub use super::event::Event;
use crate::memory::{Keeper, Kept, Key};
use crate::volume::status::JSON_VERSION;

/// Events kept in memory.
const HISTORY_MAX: usize = 4096;

/// What all clones share.
struct Chronicle {
    history: Mutex<VecDeque<Arc<Event>>>,
    newest: watch::Sender<u64>,
    /// By volume: what happened before this server began, and who keeps what comes.
    kept: Mutex<BTreeMap<String, KeptVolume>>,
}

/// What is kept of a volume.
struct KeptVolume {
    past: Vec<Arc<Event>>,
    keeper: Keeper,
    key: Key,
}

/// History and listeners. Clones share both.
#[derive(Clone)]
pub struct EventHub {
    chronicle: Arc<Chronicle>,
}

impl Default for EventHub {
    fn default() -> Self {
        Self {
            chronicle: Arc::new(Chronicle {
                history: Mutex::default(),
                newest: watch::Sender::new(0),
                kept: Mutex::default(),
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
        let event = Event {
            version: JSON_VERSION,
            kind: "event".into(),
            sequence,
            time_s,
            volume: volume.into(),
            name: name.into(),
            message: message.into(),
            member,
        };
        if let Some(kept) = self.kept().get(volume) {
            let what = Kept::Event(kept.key.clone(), event.clone());
            kept.keeper.keep(what);
        }
        history.push_back(Arc::new(event));
        drop(history);
        self.chronicle.newest.send_replace(sequence);
    }

    /// Takes over what happened in earlier lives of a volume, oldest first, and keeps what comes. A volume that this
    /// server has served before is known already: its history has those events too.
    pub fn remember(&self, volume: &str, events: Vec<Event>, keeper: Keeper, key: Key) {
        if let Some(known) = self.kept().get_mut(volume)
            && known.key == key
        {
            known.keeper = keeper;
            return;
        }
        let first = events.len().saturating_sub(HISTORY_MAX);
        let past = events.into_iter().skip(first).map(|event| {
            Arc::new(Event {
                sequence: 0,
                ..event
            })
        });
        let kept = KeptVolume {
            past: past.collect(),
            keeper,
            key,
        };
        self.kept().insert(volume.to_owned(), kept);
    }

    /// All events with a number above `after`, oldest first; after 0 also those of earlier lives, by their time.
    #[must_use]
    pub fn since(&self, after: u64) -> Vec<Arc<Event>> {
        let history = self.history();
        let now = history.iter().filter(|event| event.sequence > after);
        let mut events: Vec<Arc<Event>> = Vec::new();
        if after == 0 {
            events.extend(
                self.kept()
                    .values()
                    .flat_map(|kept| kept.past.iter().cloned()),
            );
            events.sort_by_key(|event| event.time_s);
        }
        events.extend(now.cloned());
        events
    }

    /// A listener that starts after event number `after`.
    #[must_use]
    pub fn listen(&self, after: u64) -> Listener {
        Listener {
            hub: self.clone(),
            after,
            newest: self.chronicle.newest.subscribe(),
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, KeptVolume>> {
        self.chronicle
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn history(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Event>>> {
        self.chronicle
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
    fn what_happened_in_earlier_lives_is_told_to_whoever_asks_for_all_and_to_no_listener() {
        let home = tempfile::tempdir().unwrap();
        let dir = crate::memory::StateDir::at(home.path().to_owned());
        let keeper = Keeper::start(&dir);
        let (first, second) = (EventHub::default(), EventHub::default());
        first.publish(1, "v", "started", "earlier", None);
        let past = first
            .since(0)
            .iter()
            .map(|event| (**event).clone())
            .collect();
        second.publish(5, "w", "started", "another volume", None);
        second.remember("v", past, keeper, Key::of("md-1.2", "u", "v"));
        second.publish(6, "v", "started", "now", None);
        let told = |after: u64| -> Vec<(u64, String)> {
            let events = second.since(after);
            events
                .iter()
                .map(|event| (event.sequence, event.message.clone()))
                .collect()
        };
        let all = [(0, "earlier"), (1, "another volume"), (2, "now")];
        assert_eq!(told(0), all.map(|(number, text)| (number, text.to_owned())));
        assert_eq!(told(1), [(2, "now".to_owned())]);
        let mut listener = second.listen(0);
        assert_eq!(block_on(listener.next()).unwrap().message, "another volume");
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
