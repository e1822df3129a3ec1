//! What is on its way: each message to each channel until it has arrived or is given up.
//!
//! Invariants:
//! - a message is handed out again until somebody says that it has arrived, also by the next process: at least once,
//!   under the same number;
//! - messages of one incident arrive in their order;
//! - a channel that fails is a finding of its own, which the other channels tell.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::facts::DeliveryFailure;
use crate::finding::{Code, Object, Severity};
use crate::incident::NoticeKind;
use crate::message::{Message, plain};
use crate::time::{HOUR_S, UnixTime};

/// Time until the first retry; twice as long after each.
pub const RETRY_S: u64 = 10;
/// The longest time between two attempts.
pub const RETRY_S_MAX: u64 = HOUR_S;
/// Attempts until a message is given up: nearly two days. What is still wrong then is told by a repetition.
pub const ATTEMPTS_MAX: u32 = 48;
/// Attempts in a row after which a channel counts as failing.
pub const FAILING_ATTEMPTS: u32 = 3;
/// A message that was handed out and of which nobody has said anything for as long counts as failed.
pub const ANSWER_S_MAX: u64 = 120;
/// Messages that wait for one channel; the oldest is given up for the next.
pub const WAITING_MAX: usize = 256;

/// What is on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outbox {
    channels: Vec<ChannelState>,
}

/// Which messages a channel gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Name of the channel.
    pub channel: String,
    /// Incidents that were never as bad are not sent.
    pub least: Severity,
}

/// How it goes with one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelState {
    /// Its name in the configuration.
    pub name: String,
    /// Since when it fails.
    pub failing_since: Option<UnixTime>,
    /// Attempts in a row that failed.
    pub failed_attempts: u32,
    /// Messages that were given up since one arrived.
    pub given_up: u64,
    /// When a message arrived last.
    pub arrived: Option<UnixTime>,
    /// What the transport answered last, good or bad.
    pub answer: String,
    waiting: VecDeque<Waiting>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Waiting {
    message: Message,
    /// In which revision of the state it was decided.
    revision: u64,
    attempts: u32,
    next: UnixTime,
    /// When it was handed out, in this process.
    #[serde(skip)]
    handed: Option<UnixTime>,
}

/// A message for a channel, to be sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Name of the channel.
    pub channel: String,
    /// What to send.
    pub message: Message,
}

impl Outbox {
    /// Only these channels are there from now on. What waits for others is dropped: nobody asks for it any more.
    pub fn keep(&mut self, channels: &[Subscription]) {
        let known = |name: &str| channels.iter().any(|channel| channel.channel == name);
        self.channels.retain(|state| known(&state.name));
        for channel in channels {
            if self.state(&channel.channel).is_none() {
                self.channels.push(ChannelState {
                    name: channel.channel.clone(),
                    ..ChannelState::default()
                });
            }
        }
    }

    /// How it goes with each channel.
    #[must_use]
    pub fn channels(&self) -> &[ChannelState] {
        &self.channels
    }

    /// Messages that have not arrived.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.channels.iter().map(|state| state.waiting.len()).sum()
    }

    /// Puts `message` on its way to all of `channels` that are to have it.
    pub(crate) fn push(&mut self, message: &Message, channels: &[Subscription], revision: u64) {
        let wanted = channels.iter().filter(|channel| {
            // That a channel fails cannot be told by it.
            let is_about_it = message.object == Object::Channel(channel.channel.clone());
            // Who hears of the worst alone has to know that the others hear nothing.
            let is_wanted = message.worst >= channel.least || message.code == Code::DeliveryFails;
            is_wanted && !is_about_it
        });
        for channel in wanted {
            self.push_to(&channel.channel, message, revision);
        }
    }

    /// Puts `message` on its way to `channel`; false when there is no such channel.
    pub(crate) fn push_to(&mut self, channel: &str, message: &Message, revision: u64) -> bool {
        let Some(state) = self.state_mut(channel) else {
            return false;
        };
        let is_older = |waiting: &Waiting| {
            waiting.message.kind == NoticeKind::Repeated
                && message.kind == NoticeKind::Repeated
                && waiting.message.incident == message.incident
                && waiting.handed.is_none()
        };
        state.waiting.retain(|waiting| !is_older(waiting));
        if state.waiting.len() >= WAITING_MAX {
            state.waiting.pop_front();
            state.given_up = state.given_up.saturating_add(1);
        }
        state.waiting.push_back(Waiting {
            message: message.clone(),
            revision,
            attempts: 0,
            next: message.decided,
            handed: None,
        });
        true
    }

    /// What is to be sent now, decided in a revision up to `revision`. Each has to be answered by `arrived` or
    /// `failed`.
    pub(crate) fn due(&mut self, revision: u64, now: UnixTime) -> Vec<Delivery> {
        let mut due = Vec::new();
        for state in &mut self.channels {
            let mut earlier: Vec<String> = Vec::new();
            for waiting in &mut state.waiting {
                let incident = &waiting.message.incident;
                let is_first = !earlier.contains(incident);
                if is_first {
                    earlier.push(incident.clone());
                }
                if !is_first || waiting.revision > revision || !waiting.is_due(now) {
                    continue;
                }
                waiting.handed = Some(now);
                due.push(Delivery {
                    channel: state.name.clone(),
                    message: waiting.message.clone(),
                });
            }
        }
        due
    }

    /// Nobody has said anything of what was handed out: that is a failure too, or the channel were silent for ever.
    /// Whether there was anything like that.
    pub(crate) fn time_out(&mut self, now: UnixTime) -> bool {
        let mut silent = Vec::new();
        for state in &mut self.channels {
            for waiting in &mut state.waiting {
                let Some(handed) = &mut waiting.handed else {
                    continue;
                };
                *handed = (*handed).min(now);
                if now.since_s(*handed) >= ANSWER_S_MAX {
                    silent.push((state.name.clone(), waiting.message.id.clone()));
                }
            }
        }
        for (channel, id) in &silent {
            self.failed(channel, id, "no answer", now);
        }
        !silent.is_empty()
    }

    /// `channel` has the message.
    pub(crate) fn arrived(&mut self, channel: &str, id: &str, answer: &str, now: UnixTime) {
        let Some(state) = self.state_mut(channel) else {
            return;
        };
        state.waiting.retain(|waiting| waiting.message.id != id);
        state.works(answer, now);
    }

    /// `channel` could not take the message.
    pub(crate) fn failed(&mut self, channel: &str, id: &str, error: &str, now: UnixTime) {
        let Some(state) = self.state_mut(channel) else {
            return;
        };
        state.fails(error, now);
        let known = state
            .waiting
            .iter()
            .position(|waiting| waiting.message.id == id);
        let Some(index) = known else {
            return;
        };
        let waiting = &mut state.waiting[index];
        waiting.handed = None;
        waiting.attempts = waiting.attempts.saturating_add(1);
        waiting.next = now.plus_s(retry_s(waiting.attempts));
        if waiting.attempts >= ATTEMPTS_MAX {
            state.waiting.remove(index);
            state.given_up = state.given_up.saturating_add(1);
        }
    }

    /// `channel` is not to have the message any more.
    pub(crate) fn withdraw(&mut self, channel: &str, id: &str) {
        if let Some(state) = self.state_mut(channel) {
            state.waiting.retain(|waiting| waiting.message.id != id);
        }
    }

    /// Channels that do not deliver, as facts.
    #[must_use]
    pub fn failures(&self) -> Vec<DeliveryFailure> {
        let failing = self.channels.iter().filter_map(|state| {
            let since = state.failing_since?;
            (state.failed_attempts >= FAILING_ATTEMPTS || state.given_up > 0).then(|| {
                DeliveryFailure {
                    channel: state.name.clone(),
                    since,
                    attempts: state.failed_attempts,
                    given_up: state.given_up,
                    error: state.answer.clone(),
                }
            })
        });
        failing.collect()
    }

    /// Forgets what waits: a deliberate bug.
    pub(crate) fn forget_waiting(&mut self) {
        for state in &mut self.channels {
            state.waiting.clear();
        }
    }

    fn state(&self, name: &str) -> Option<&ChannelState> {
        self.channels.iter().find(|state| state.name == name)
    }

    fn state_mut(&mut self, name: &str) -> Option<&mut ChannelState> {
        self.channels.iter_mut().find(|state| state.name == name)
    }
}

impl ChannelState {
    fn works(&mut self, answer: &str, now: UnixTime) {
        self.failing_since = None;
        self.failed_attempts = 0;
        self.given_up = 0;
        self.arrived = Some(now);
        self.answer = plain(answer);
    }

    fn fails(&mut self, error: &str, now: UnixTime) {
        self.failing_since.get_or_insert(now);
        self.failed_attempts = self.failed_attempts.saturating_add(1);
        self.answer = plain(error);
    }
}

impl Waiting {
    fn is_due(&self, now: UnixTime) -> bool {
        // Further away than it was ever set: the clock was set back.
        let is_beyond = self.next.since_s(now) > retry_s(self.attempts);
        self.handed.is_none() && (self.next <= now || is_beyond)
    }
}

/// Time until the attempt after `attempts` that failed.
fn retry_s(attempts: u32) -> u64 {
    let doubled = 1_u64.checked_shl(attempts.saturating_sub(1).min(32));
    RETRY_S
        .saturating_mul(doubled.unwrap_or(u64::MAX))
        .min(RETRY_S_MAX)
}
