//! What the tests share: facts to begin with, and an alarm whose owner does everything right.

use plexum_incidents::Alarm;
use plexum_incidents::facts::{Facts, MissingSlot, RedundancyKind, VolumeFacts};
use plexum_incidents::finding::{Code, Finding, Object, Severity};
use plexum_incidents::incident::{Notice, NoticeKind};
use plexum_incidents::judge::judge;
use plexum_incidents::message::Message;
use plexum_incidents::outbox::Subscription;
use plexum_incidents::time::UnixTime;

/// Some morning.
pub const START: UnixTime = UnixTime(1_795_658_520);

/// A RAID-6 of five that lacks nothing.
pub fn whole() -> VolumeFacts {
    VolumeFacts {
        name: "home".into(),
        uuid: "5a1b".into(),
        kind: RedundancyKind::Parity,
        losses_left: 2,
        losses_left_elsewhere: 2,
        losses_designed: 2,
        ..VolumeFacts::default()
    }
}

/// The same without members in `slots`.
pub fn without(slots: &[u16]) -> VolumeFacts {
    let left = 2_usize.saturating_sub(slots.len());
    VolumeFacts {
        losses_left: left,
        losses_left_elsewhere: left,
        is_lost: slots.len() > 2,
        missing: slots.iter().map(|slot| gone(*slot)).collect(),
        ..whole()
    }
}

pub fn gone(slot: u16) -> MissingSlot {
    MissingSlot {
        slot,
        ..MissingSlot::default()
    }
}

pub fn facts(volumes: Vec<VolumeFacts>) -> Facts {
    Facts {
        host: "nas".into(),
        volumes,
        ..Facts::default()
    }
}

pub fn home() -> Object {
    Object::Volume("5a1b".into())
}

/// What is found at once, as code and severity.
pub fn found(volume: VolumeFacts) -> Vec<(Code, Severity)> {
    let found = judge(&facts(vec![volume]), START);
    found
        .iter()
        .map(|found| (found.code, found.severity))
        .collect()
}

/// The only finding.
pub fn only(facts: &Facts) -> Finding {
    let mut found = judge(facts, START);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// An alarm, its clock, and everything that arrived.
pub struct House {
    pub alarm: Alarm,
    pub now: UnixTime,
    pub kept: String,
    pub channels: Vec<Subscription>,
    /// Channels that take nothing.
    pub broken: Vec<String>,
    pub arrived: Vec<(String, Message)>,
}

impl House {
    pub fn new() -> Self {
        Self::with(&["mail"])
    }

    pub fn with(names: &[&str]) -> Self {
        let channels: Vec<Subscription> = names
            .iter()
            .map(|name| Subscription {
                channel: (*name).to_owned(),
                least: Severity::Warning,
            })
            .collect();
        Self {
            alarm: Alarm::new(channels.clone(), 0x7f3),
            now: START,
            kept: String::new(),
            channels,
            broken: Vec::new(),
            arrived: Vec::new(),
        }
    }

    /// One second with these facts.
    pub fn second(&mut self, facts: &Facts) -> Vec<Notice> {
        let notices = self.alarm.run(facts, self.now);
        self.save();
        for delivery in self.alarm.due(self.now) {
            let (channel, id) = (delivery.channel, delivery.message.id.clone());
            if self.broken.contains(&channel) {
                self.alarm
                    .failed(&channel, &id, "connection refused", self.now);
                continue;
            }
            self.arrived.push((channel.clone(), delivery.message));
            self.alarm.arrived(&channel, &id, "250 queued", self.now);
        }
        self.save();
        self.now = self.now.plus_s(1);
        notices
    }

    fn save(&mut self) {
        if let Some((revision, text)) = self.alarm.unsaved() {
            self.kept = text;
            self.alarm.saved(revision);
        }
    }

    /// Some seconds with these facts.
    pub fn seconds(&mut self, count: u64, facts: &Facts) {
        for _ in 0..count {
            self.second(facts);
        }
    }

    /// A long time with these facts, looked at once a minute.
    pub fn hours(&mut self, count: u64, facts: &Facts) {
        for _ in 0..count * 60 {
            self.second(facts);
            self.now = self.now.plus_s(59);
        }
    }

    /// The process ends and another one begins `seconds` later.
    pub fn restart(&mut self, seconds: u64) {
        self.now = self.now.plus_s(seconds);
        self.alarm = Alarm::restore(&self.kept, self.channels.clone()).unwrap();
    }

    /// What arrived, in a word each.
    pub fn kinds(&self) -> Vec<NoticeKind> {
        self.arrived
            .iter()
            .map(|(_, message)| message.kind)
            .collect()
    }

    /// Severities of what is open.
    pub fn open(&self) -> Vec<(Code, Severity)> {
        let open = self.alarm.open();
        open.iter()
            .map(|open| (open.finding.code, open.finding.severity))
            .collect()
    }
}
