//! What is known of each incident for whoever asks: its messages and what became of them, also for a day after its end.
//!
//! They are kept with the incidents themselves, in one file: `incidents.json` of the state folder.
//!
//! Invariant: nothing here decides anything. Without it the same is told.

use std::collections::BTreeSet;

use plexum_incidents::finding::{Code, Object, Severity};
use plexum_incidents::incident::{Acknowledgement, IncidentId, Notice, NoticeKind};
use plexum_incidents::message::Message;
use plexum_incidents::time::{DAY_S, UnixTime};
use serde::{Deserialize, Serialize};

/// How long an incident that is over is known.
const CLOSED_KNOWN_S: u64 = DAY_S;
/// Incidents that are known at most; of those that are over the oldest are forgotten first.
const RECORDS_MAX: usize = 512;
/// Messages that are known of an incident; the first one and the newest.
const MESSAGES_MAX: usize = 16;

/// Everything that is known beside the incidents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Records {
    records: Vec<Record>,
    /// Volumes that have had all their redundancy once: from then on a resync is no creation.
    whole: BTreeSet<String>,
}

/// One incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Its number.
    pub(super) id: IncidentId,
    /// What is wrong.
    pub(super) code: Code,
    /// With what.
    pub(super) object: Object,
    /// What that is called.
    pub(super) name: String,
    /// How bad it was last.
    pub(super) severity: Severity,
    /// How bad it was at its worst.
    pub(super) worst: Severity,
    /// When it was opened.
    pub(super) opened: UnixTime,
    /// When its end was told.
    pub(super) closed: Option<UnixTime>,
    /// Who knew of it.
    pub(super) acknowledged: Option<Acknowledgement>,
    /// Its messages, oldest first.
    pub(super) messages: Vec<Told>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    /// Its number.
    pub(super) id: String,
    /// What it is about.
    pub(super) kind: NoticeKind,
    /// When it was decided.
    pub(super) decided: UnixTime,
    /// Its first line.
    pub(super) first_line: String,
    /// The others.
    pub(super) body: String,
    /// What became of it, by channel.
    pub(super) deliveries: Vec<Delivered>,
}

/// What became of a message at one channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Delivered {
    /// Name of the channel.
    pub(super) channel: String,
    /// When it was tried last.
    pub(super) at: UnixTime,
    /// It is there.
    pub(super) has_arrived: bool,
    /// How often it was tried.
    pub(super) attempts: u32,
    /// What the transport answered last.
    pub(super) answer: String,
}

impl Records {
    /// Whether the volume has had all its redundancy once.
    pub(super) fn was_whole(&self, volume: &str) -> bool {
        self.whole.contains(volume)
    }

    /// The volume has all its redundancy. Says whether that is news.
    pub(super) fn note_whole(&mut self, volume: &str) -> bool {
        self.whole.insert(volume.to_owned())
    }

    /// All incidents that are known, the newest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().rev()
    }

    /// The incident of this number.
    pub(super) fn get(&self, id: IncidentId) -> Option<&Record> {
        self.records.iter().find(|record| record.id == id)
    }

    /// Something is told.
    pub(super) fn note(&mut self, notice: &Notice, message: &Message, now: UnixTime) {
        let life = &notice.life;
        let at = self.records.iter().position(|record| record.id == life.id);
        let at = at.unwrap_or_else(|| {
            self.records.push(Record {
                id: life.id,
                code: notice.finding.code,
                object: notice.finding.object.clone(),
                name: message.name.clone(),
                severity: message.severity,
                worst: message.worst,
                opened: life.opened,
                closed: None,
                acknowledged: None,
                messages: Vec::new(),
            });
            self.records.len() - 1
        });
        let record = &mut self.records[at];
        record.name = message.name.clone();
        record.severity = message.severity;
        record.worst = life.worst;
        record.acknowledged = life.acknowledged.clone();
        if notice.kind == NoticeKind::Closed {
            record.closed = Some(life.closed.unwrap_or(now));
        }
        if record.messages.len() >= MESSAGES_MAX {
            record.messages.remove(1);
        }
        record.messages.push(Told {
            id: message.id.clone(),
            kind: message.kind,
            decided: message.decided,
            first_line: message.first_line(),
            body: message.body(),
            deliveries: Vec::new(),
        });
        self.forget(now);
    }

    /// Somebody knows of it.
    pub(super) fn note_acknowledged(&mut self, id: IncidentId, known: Acknowledgement) {
        let record = self.records.iter_mut().find(|record| record.id == id);
        if let Some(record) = record {
            record.acknowledged = Some(known);
        }
    }

    /// A message was tried at a channel.
    pub(super) fn note_delivery(
        &mut self,
        message: &str,
        channel: &str,
        result: &Result<String, String>,
        now: UnixTime,
    ) {
        let mut messages = self.records.iter_mut().flat_map(|one| &mut one.messages);
        let Some(told) = messages.find(|told| told.id == message) else {
            return; // a test, or a message of an incident that is long over
        };
        let before = told
            .deliveries
            .iter()
            .position(|one| one.channel == channel);
        let attempts = before.map_or(0, |at| told.deliveries.remove(at).attempts);
        let (Ok(answer) | Err(answer)) = result;
        told.deliveries.push(Delivered {
            channel: channel.to_owned(),
            at: now,
            has_arrived: result.is_ok(),
            attempts: attempts.saturating_add(1),
            answer: answer.chars().take(400).collect(),
        });
    }

    /// Forgets what is over for long.
    fn forget(&mut self, now: UnixTime) {
        self.records.retain(|record| {
            let closed = record.closed;
            closed.is_none_or(|closed| now.since_s(closed) < CLOSED_KNOWN_S)
        });
        while self.records.len() > RECORDS_MAX {
            let oldest = self.records.iter().position(|one| one.closed.is_some());
            self.records.remove(oldest.unwrap_or(0));
        }
    }
}
