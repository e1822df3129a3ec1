//! Everything together: facts in; messages, a state to keep, and a sign of life out.
//!
//! Whoever owns it does this once a second:
//!
//! 1. [`Alarm::run`] with the facts of now;
//! 2. when [`Alarm::unsaved`] gives a text, makes it durable and calls [`Alarm::saved`]; when that fails, says so in
//!    the facts of the next round;
//! 3. sends what [`Alarm::due`] gives, each in a thread or task of its own, and says what became of it by
//!    [`Alarm::arrived`] or [`Alarm::failed`];
//! 4. when [`Alarm::is_heartbeat_due`], gives the sign of life.
//!
//! A crash between any two of these loses nothing: what was not saved was not sent and is decided again, what was
//! saved and has not arrived is sent again under the same number.

use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::finding::{Code, Object};
use crate::heartbeat::{Heartbeat, Pulse};
use crate::incident::{Delays, IncidentId, Notice};
use crate::incidents::{AcknowledgeError, Incidents, Open};
use crate::judge::{is_looked_at, judge_with, unjudged};
use crate::message::{Message, Sender};
use crate::mutant::{DeliberateBug, Mutant};
use crate::outbox::{ChannelState, Delivery, Outbox, Subscription};
use crate::time::UnixTime;

/// Version of the text that is kept.
const STATE_VERSION: u32 = 1;

/// What is kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    version: u32,
    /// Rises with each change.
    revision: u64,
    incidents: Incidents,
    outbox: Outbox,
    heartbeat: Heartbeat,
}

/// Incidents, their messages and their delivery.
#[derive(Clone, Debug)]
pub struct Alarm {
    state: State,
    /// The revision that is durable.
    saved_revision: u64,
    channels: Vec<Subscription>,
    sender: Sender,
    /// When everything was judged last, by this process.
    judged_at: Option<UnixTime>,
    is_journal_writable: bool,
    bug: DeliberateBug,
}

/// Why what was kept cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// It is not what was written.
    #[error(
        "kept incidents: {reason}; start without them: what is wrong now is found again, acknowledgements are lost"
    )]
    Damaged {
        /// What is wrong with it.
        reason: String,
    },
    /// A newer Plexum wrote it.
    #[error(
        "kept incidents: version {found}, this Plexum knows {STATE_VERSION}; start the newer one, or without them"
    )]
    Version {
        /// Which version it is.
        found: u64,
    },
}

/// Why there is no test message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no channel \"{channel}\": configured are {known}")]
pub struct NoSuchChannel {
    /// What was asked for.
    pub channel: String,
    /// Those that there are.
    pub known: String,
}

impl Alarm {
    /// Without a memory. `first` is the number of the first incident; see [`Incidents::new`].
    #[must_use]
    pub fn new(channels: Vec<Subscription>, first: u64) -> Self {
        let state = State {
            version: STATE_VERSION,
            revision: 1,
            incidents: Incidents::new(first),
            outbox: Outbox::default(),
            heartbeat: Heartbeat::default(),
        };
        Self::of(state, channels, 0)
    }

    /// With what was kept by `unsaved`.
    ///
    /// # Errors
    /// When `kept` is damaged, or of a newer version. Begin with `new` then: nothing that is wrong now is lost.
    pub fn restore(kept: &str, channels: Vec<Subscription>) -> Result<Self, StateError> {
        let damaged = |error: serde_json::Error| StateError::Damaged {
            reason: error.to_string(),
        };
        let value: serde_json::Value = serde_json::from_str(kept).map_err(damaged)?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(found) if found > u64::from(STATE_VERSION) => {
                return Err(StateError::Version { found });
            }
            _ => {}
        }
        let state: State = serde_json::from_value(value).map_err(damaged)?;
        let revision = state.revision;
        Ok(Self::of(state, channels, revision))
    }

    fn of(mut state: State, channels: Vec<Subscription>, saved_revision: u64) -> Self {
        state.outbox.keep(&channels);
        Self {
            state,
            saved_revision,
            channels,
            sender: Sender::default(),
            judged_at: None,
            is_journal_writable: true,
            bug: DeliberateBug::NONE,
        }
    }

    /// The same, where something has to hold for as long before it is told.
    #[must_use]
    pub fn with_delays(mut self, delays: Delays) -> Self {
        self.state.incidents.set_delays(delays);
        self
    }

    /// The same with a deliberate bug.
    #[must_use]
    pub fn with_bug(mut self, bug: DeliberateBug) -> Self {
        if bug.is(Mutant::UndeliveredForgotten) {
            self.state.outbox.forget_waiting();
        }
        self.bug = bug;
        self
    }

    /// Judges everything at `now`, and decides what is to be told. What changed is given for the history.
    pub fn run(&mut self, facts: &Facts, now: UnixTime) -> Vec<Notice> {
        let before = self.state.incidents.essence();
        let is_timed_out = self.state.outbox.time_out(now);
        let mut facts = facts.clone();
        facts
            .daemon
            .delivery_failures
            .extend(self.state.outbox.failures());
        self.sender = Sender {
            host: facts.host.clone(),
            utc_offset_s: facts.utc_offset_s,
        };
        self.is_journal_writable = facts.daemon.journal_not_writable.is_none();
        let findings = judge_with(&facts, now, self.bug);
        let incidents = &mut self.state.incidents;
        let mut notices = incidents.step_with(&findings, &unjudged(&facts), now, self.bug);
        for notice in &mut notices {
            notice.is_looked_at = is_looked_at(&facts, &notice.finding.object);
        }
        let revision = self.state.revision + 1;
        for notice in &notices {
            let message = Message::of(notice, &self.sender, now);
            self.state.outbox.push(&message, &self.channels, revision);
        }
        self.judged_at = Some(now);
        let is_told = !notices.is_empty() || is_timed_out;
        if is_told || before != self.state.incidents.essence() {
            self.state.revision = revision;
        }
        notices
    }

    /// What has to be made durable, and its revision; none when that is done.
    #[must_use]
    pub fn unsaved(&self) -> Option<(u64, String)> {
        let is_saved = self.saved_revision == self.state.revision;
        (!is_saved).then(|| self.whole())
    }

    /// All that it knows, and its revision, whether that is durable or not: for who keeps it beside something else.
    #[must_use]
    pub fn whole(&self) -> (u64, String) {
        let text = serde_json::to_string(&self.state);
        (
            self.state.revision,
            text.expect("plain data with text keys"),
        )
    }

    /// `revision` is durable.
    pub fn saved(&mut self, revision: u64) {
        self.saved_revision = self.saved_revision.max(revision.min(self.state.revision));
    }

    /// What is to be sent now. Nothing that a crash could make unknown again, unless nothing can be kept at all: a
    /// message that comes twice is better than none.
    pub fn due(&mut self, now: UnixTime) -> Vec<Delivery> {
        let waits = self.is_journal_writable && !self.bug.is(Mutant::SentBeforeSaved);
        let revision = if waits { self.saved_revision } else { u64::MAX };
        self.state.outbox.due(revision, now)
    }

    /// The message `id` has arrived at `channel`, which said `answer`.
    pub fn arrived(&mut self, channel: &str, id: &str, answer: &str, now: UnixTime) {
        self.state.outbox.arrived(channel, id, answer, now);
        self.state.revision += 1;
    }

    /// The message `id` could not be delivered to `channel`: it is tried again later.
    pub fn failed(&mut self, channel: &str, id: &str, error: &str, now: UnixTime) {
        self.state.outbox.failed(channel, id, error, now);
        self.state.revision += 1;
    }

    /// Puts a message on its way to `channel`, to try it, and gives its number. What the transport answers is in
    /// [`Alarm::channels`].
    ///
    /// # Errors
    /// When there is no such channel.
    pub fn test(&mut self, channel: &str, now: UnixTime) -> Result<String, NoSuchChannel> {
        let number = format!("test{}", self.state.incidents.take_number());
        let message = Message::test(&number, channel, &self.sender, now);
        let revision = self.state.revision + 1;
        if !self.state.outbox.push_to(channel, &message, revision) {
            let known = self.channels.iter().map(|known| known.channel.as_str());
            let known: Vec<&str> = known.collect();
            return Err(NoSuchChannel {
                channel: channel.to_owned(),
                known: match known.is_empty() {
                    true => "none".to_owned(),
                    false => known.join(", "),
                },
            });
        }
        self.state.revision = revision;
        Ok(message.id)
    }

    /// Sends the message `id` to `channel` no more: a test that has failed is not tried for days.
    pub fn withdraw(&mut self, channel: &str, id: &str) {
        self.state.outbox.withdraw(channel, id);
        self.state.revision += 1;
    }

    /// `who` knows of incident `id`.
    ///
    /// # Errors
    /// When it is not open, or nobody says why.
    pub fn acknowledge(
        &mut self,
        id: IncidentId,
        who: &str,
        why: &str,
        now: UnixTime,
    ) -> Result<(), AcknowledgeError> {
        self.state.incidents.acknowledge(id, who, why, now)?;
        self.state.revision += 1;
        Ok(())
    }

    /// All incidents that are open, the worst first.
    #[must_use]
    pub fn open(&self) -> Vec<Open<'_>> {
        self.state.incidents.open()
    }

    /// The incident of `code` at `object`, when it is open.
    #[must_use]
    pub fn open_of(&self, code: Code, object: &Object) -> Option<Open<'_>> {
        self.state.incidents.open_of(code, object)
    }

    /// How it goes with each channel.
    #[must_use]
    pub fn channels(&self) -> &[ChannelState] {
        self.state.outbox.channels()
    }

    /// Messages that have not arrived.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.state.outbox.waiting_count()
    }

    /// When everything was judged last, by this process.
    #[must_use]
    pub fn judged_at(&self) -> Option<UnixTime> {
        self.judged_at
    }

    /// Whether a sign of life is due, one every `every_s`.
    #[must_use]
    pub fn is_heartbeat_due(&self, every_s: u64, now: UnixTime) -> bool {
        let pulse = Pulse {
            judged_at: self.judged_at,
            is_journal_writable: self.is_journal_writable,
        };
        self.state.heartbeat.is_due(every_s, pulse, now)
    }

    /// A sign of life is under way: the next one is due after its time, whatever becomes of this one.
    pub fn heartbeat_tried(&mut self, now: UnixTime) {
        self.state.heartbeat.tried(now);
        self.state.revision += 1;
    }

    /// The sign of life has arrived.
    pub fn heartbeat_arrived(&mut self, now: UnixTime) {
        self.state.heartbeat.arrived(now);
        self.state.revision += 1;
    }

    /// When a sign of life arrived last.
    #[must_use]
    pub fn heartbeat_last(&self) -> Option<UnixTime> {
        self.state.heartbeat.last
    }
}
