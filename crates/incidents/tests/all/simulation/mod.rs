//! Random histories with restarts, crashes at every step of the owner, and channels that fail.
//!
//! The oracle keeps no incidents. It knows what was true when, what a process could have seen, and what arrived.

mod told;
mod truth;

use std::collections::{BTreeMap, BTreeSet};

use plexum_incidents::Alarm;
use plexum_incidents::facts::Facts;
use plexum_incidents::finding::{Code, Object, Severity};
use plexum_incidents::message::Message;
use plexum_incidents::mutant::{ALL, DeliberateBug, Mutant};
use plexum_incidents::outbox::Subscription;
use plexum_incidents::time::{DAY_S, HOUR_S, UnixTime};

use self::told::{in_order, said};
use self::truth::{Rng, Truth, Verdict};
use crate::common::START;

const HOLD_S: u64 = 10;
const SEEDS: u64 = 3_000;
/// In as many seeds each deliberate bug is found.
const HUNT_SEEDS: u64 = 300;
/// Messages about one volume in a night: more would be one for each time that it comes and goes.
const NIGHT_MESSAGES_MAX: usize = 30;

/// What a process has seen of one condition (redundancy, or being judged) and could have kept.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// When it was seen to be fine last.
    fine_at: Option<UnixTime>,
    /// It was fine when it was seen last.
    was_fine: Option<bool>,
}

/// One condition of one volume.
#[derive(Clone, Copy, Default)]
struct Watch {
    /// Since when it is bad without a break.
    bad_since: Option<UnixTime>,
    seen: Seen,
    kept: Seen,
    was_open: bool,
}

struct World {
    rng: Rng,
    bug: DeliberateBug,
    now: UnixTime,
    truths: Vec<Truth>,
    watches: BTreeMap<(usize, Code), Watch>,
    channels: Vec<Subscription>,
    is_broken: Vec<bool>,
    is_disk_full: bool,
    /// A save failed, and the facts say so.
    is_told_full: bool,
    alarm: Alarm,
    started: Option<UnixTime>,
    kept: String,
    /// What is under way, with the moment from which it is forgotten.
    received: BTreeMap<(usize, String), Message>,
    order: Vec<(usize, String)>,
    /// Incidents that are in something that was kept.
    durable: BTreeSet<(String, UnixTime)>,
    /// Incidents of which a message was sent although it could not be kept.
    unkept: BTreeSet<(String, UnixTime)>,
    incidents: u64,
}

/// Where the owner of the alarm is when the process dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Crash {
    Never,
    BeforeSave,
    BeforeSend,
    BeforeAnswer,
    AtTheEnd,
}

impl World {
    fn new(seed: u64, bug: DeliberateBug) -> Self {
        let mut rng = Rng(seed);
        let channels = vec![
            Subscription {
                channel: "mail".into(),
                least: Severity::Warning,
            },
            Subscription {
                channel: "phone".into(),
                least: Severity::Critical,
            },
        ];
        let count = 1 + rng.below(3);
        let truths: Vec<Truth> = (0..count).map(|_| Truth::new(&mut rng)).collect();
        let codes = [Code::Redundancy, Code::NotJudged];
        let keys = (0..truths.len()).flat_map(|number| codes.map(|code| (number, code)));
        let watches = keys.map(|key| (key, Watch::default())).collect();
        Self {
            rng,
            bug,
            now: START,
            truths,
            watches,
            alarm: Alarm::new(channels.clone(), 1).with_bug(bug),
            is_broken: vec![false; channels.len()],
            channels,
            is_disk_full: false,
            is_told_full: false,
            started: None,
            kept: String::new(),
            received: BTreeMap::new(),
            order: Vec::new(),
            durable: BTreeSet::new(),
            unkept: BTreeSet::new(),
            incidents: 0,
        }
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts {
            host: "nas".into(),
            ..Facts::default()
        };
        for (number, truth) in self.truths.iter().enumerate() {
            truth.tell(number, &mut facts);
        }
        if self.is_told_full {
            facts.daemon.journal_not_writable = Some("no room".into());
        }
        facts
    }

    /// Whether a condition is fine now; none when nobody can say.
    fn is_fine(&self, number: usize, code: Code) -> Option<bool> {
        let truth = &self.truths[number];
        match code {
            Code::Redundancy => match truth.verdict() {
                Verdict::Unknown => None,
                verdict => Some(verdict == Verdict::Fine),
            },
            _ if truth.is_absent => Some(false),
            _ if truth.is_starting => None,
            _ => Some(!truth.is_silent),
        }
    }

    /// The world goes on for `seconds`, whether anybody looks or not.
    fn pass(&mut self, seconds: u64) {
        self.now = self.now.plus_s(seconds);
        let keys: Vec<(usize, Code)> = self.watches.keys().copied().collect();
        for (number, code) in keys {
            let fine = self.is_fine(number, code);
            let watch = self.watches.get_mut(&(number, code)).unwrap();
            match fine {
                Some(true) | None => watch.bad_since = None,
                Some(false) => {
                    watch.bad_since.get_or_insert(self.now);
                }
            }
        }
    }

    /// One round of the owner, up to where it dies.
    fn round(&mut self, crash: Crash) -> Result<(), String> {
        self.alarm.run(&self.facts(), self.now);
        self.started.get_or_insert(self.now);
        self.look()?;
        if crash == Crash::BeforeSave {
            return Ok(());
        }
        // A slow disk: it takes more than a round.
        if !self.rng.one_in(20) {
            self.save();
        }
        if crash == Crash::BeforeSend {
            return Ok(());
        }
        for delivery in self.alarm.due(self.now) {
            self.deliver(&delivery.channel, delivery.message, crash)?;
        }
        if crash != Crash::BeforeAnswer {
            self.save();
        }
        Ok(())
    }

    fn save(&mut self) {
        let Some((revision, text)) = self.alarm.unsaved() else {
            self.keep_seen();
            return;
        };
        if self.is_disk_full {
            self.is_told_full = true;
            return;
        }
        self.is_told_full = false;
        self.kept = text;
        self.alarm.saved(revision);
        for open in self.alarm.open() {
            self.durable
                .insert((open.life.id.to_string(), open.life.opened));
        }
        self.keep_seen();
    }

    fn keep_seen(&mut self) {
        for watch in self.watches.values_mut() {
            watch.kept = watch.seen;
        }
    }

    fn deliver(&mut self, channel: &str, message: Message, crash: Crash) -> Result<(), String> {
        let number = self
            .channels
            .iter()
            .position(|known| known.channel == channel);
        let number = number.ok_or("a channel that nobody has")?;
        let id = message.id.clone();
        if self.is_broken[number] {
            // Now and then it does not even say that it failed.
            if !self.rng.one_in(8) && crash != Crash::BeforeAnswer {
                self.alarm.failed(channel, &id, "refused", self.now);
            }
            return Ok(());
        }
        if !self.kept.contains(&id) {
            if !self.is_told_full {
                return Err(format!("{id} was sent, and nothing kept knows of it"));
            }
            // After a crash it may be decided once more, and otherwise.
            let incident = (message.incident.clone(), message.opened);
            self.unkept.insert(incident);
        }
        let key = (number, id.clone());
        match self.received.get(&key) {
            Some(before) if said(before) != said(&message) => {
                return Err(format!("{id} is two messages"));
            }
            Some(_) => {}
            None => {
                self.order.push(key.clone());
                self.received.insert(key, message);
            }
        }
        if crash != Crash::BeforeAnswer {
            self.alarm.arrived(channel, &id, "ok", self.now);
        }
        Ok(())
    }

    /// The promise: open if and only if it was bad for ten seconds, as far as anybody could see.
    fn look(&mut self) -> Result<(), String> {
        let now = self.now;
        let keys: Vec<(usize, Code)> = self.watches.keys().copied().collect();
        for (number, code) in keys {
            let fine = self.is_fine(number, code);
            let open = self
                .alarm
                .open_of(code, &Object::Volume(number.to_string()));
            let severity = open.map(|open| open.finding.severity);
            let is_open = open.is_some();
            let verdict = self.truths[number].verdict();
            let watch = self.watches.get_mut(&(number, code)).unwrap();
            let say = |what: &str| Err(format!("volume {number}, {code:?}, {verdict:?}: {what}"));
            let is_old =
                |since: Option<UnixTime>| since.is_some_and(|since| now.since_s(since) >= HOLD_S);
            let was_seen_fine = watch
                .seen
                .fine_at
                .is_some_and(|at| now.since_s(at) < HOLD_S);
            match fine {
                Some(true) => {
                    watch.seen = Seen {
                        fine_at: Some(now),
                        was_fine: Some(true),
                    };
                    if is_open {
                        return say("it is fine, and an incident is open");
                    }
                }
                Some(false) => {
                    watch.seen.was_fine = Some(false);
                    if is_open && was_seen_fine {
                        return say("an incident was opened before its time");
                    }
                    if !is_open && is_old(watch.bad_since) && is_old(self.started) {
                        return say("nobody is told");
                    }
                    let is_right = code != Code::Redundancy
                        || severity.is_none_or(|severity| verdict == Verdict::Bad(severity));
                    if !is_right {
                        return Err(format!(
                            "volume {number}: {verdict:?}, told as {severity:?}"
                        ));
                    }
                }
                None if watch.was_open && !is_open => return say("closed, and nobody knows"),
                None if watch.seen.was_fine == Some(true) && is_open => {
                    return say("it was fine when it was seen last");
                }
                None => {}
            }
            watch.was_open = is_open;
        }
        Ok(())
    }

    /// The process dies, and another one begins.
    fn restart(&mut self, seconds: u64) {
        self.pass(seconds);
        self.started = None;
        self.is_told_full = false;
        let channels = self.channels.clone();
        self.alarm = match self.kept.is_empty() {
            true => Alarm::new(channels, 1),
            false => Alarm::restore(&self.kept, channels).unwrap(),
        }
        .with_bug(self.bug);
        for ((number, code), watch) in &mut self.watches {
            watch.seen = watch.kept;
            let object = Object::Volume(number.to_string());
            watch.was_open = self.alarm.open_of(*code, &object).is_some();
        }
    }

    fn live(&mut self) -> Result<(), String> {
        let restlessness = [3, 12, 40][self.rng.below(3) as usize];
        for _ in 0..200 {
            if self.rng.one_in(restlessness) {
                let number = self.rng.below(self.truths.len() as u64) as usize;
                self.truths[number].change(&mut self.rng);
            }
            if self.rng.one_in(30) {
                let number = self.rng.below(self.channels.len() as u64) as usize;
                self.is_broken[number] ^= true;
            }
            if self.rng.one_in(60) {
                self.is_disk_full ^= true;
            }
            // Now and then nothing changes for long.
            let seconds = match self.rng.below(60) {
                0 => 1 + self.rng.below(2 * HOUR_S),
                1 => DAY_S / 2,
                _ => 1,
            };
            self.pass(seconds);
            let crash = match self.rng.below(60) {
                0 => Crash::BeforeSave,
                1 => Crash::BeforeSend,
                2 => Crash::BeforeAnswer,
                3 => Crash::AtTheEnd,
                _ => Crash::Never,
            };
            self.round(crash)?;
            if crash != Crash::Never {
                let seconds = [1, 5, 30, 4000][self.rng.below(4) as usize];
                if self.rng.one_in(2) {
                    let number = self.rng.below(self.truths.len() as u64) as usize;
                    self.truths[number].change(&mut self.rng);
                }
                self.restart(seconds);
            } else if self.rng.one_in(50) {
                self.acknowledge();
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self) {
        let open = self.alarm.open().first().map(|open| open.life.id);
        if let Some(id) = open {
            self.alarm
                .acknowledge(id, "ute", "ordered", self.now)
                .unwrap();
        }
    }

    /// Everything is well again: what was open ends, and everything arrives.
    fn finale(&mut self) -> Result<(), String> {
        self.truths.iter_mut().for_each(Truth::mend);
        self.is_broken.fill(false);
        self.is_disk_full = false;
        for _ in 0..20 {
            self.pass(1);
            self.round(Crash::Never)?;
        }
        for _ in 0..100 {
            self.pass(300);
            self.round(Crash::Never)?;
        }
        if !self.alarm.open().is_empty() {
            return Err("everything is well, and an incident is open".into());
        }
        if self.alarm.waiting_count() > 0 {
            return Err("a message never arrived".into());
        }
        self.messages()
    }

    /// Each incident was told once when it began and once when it ended, in order, and nothing often.
    fn messages(&mut self) -> Result<(), String> {
        let mut told: BTreeMap<(usize, String, UnixTime), Vec<&Message>> = BTreeMap::new();
        for key in &self.order {
            let message = &self.received[key];
            let incident = (key.0, message.incident.clone(), message.opened);
            told.entry(incident).or_default().push(message);
        }
        for ((channel, incident, opened), messages) in &told {
            let key = (incident.clone(), *opened);
            if self.durable.contains(&key) && !self.unkept.contains(&key) {
                in_order(self.channels[*channel].least, messages)?;
            }
        }
        for (incident, opened) in &self.durable {
            let by_mail = told.get(&(0, incident.clone(), *opened));
            let by_phone = told.get(&(1, incident.clone(), *opened));
            if by_mail.or(by_phone).is_none() {
                return Err(format!("nobody was told of incident {incident}"));
            }
        }
        self.incidents = self.durable.len() as u64;
        self.nights()
    }

    fn nights(&self) -> Result<(), String> {
        for (number, _) in self.truths.iter().enumerate() {
            let object = Object::Volume(number.to_string());
            let mail = self
                .order
                .iter()
                .filter(|key| key.0 == 0)
                .map(|key| &self.received[key]);
            let mut times: Vec<UnixTime> = mail
                .filter(|message| message.object == object && message.code == Code::Redundancy)
                .map(|message| message.decided)
                .collect();
            times.sort_unstable();
            for (index, first) in times.iter().enumerate() {
                let night = times[index..]
                    .iter()
                    .take_while(|time| time.since_s(*first) < 8 * HOUR_S);
                let count = night.count();
                if count > NIGHT_MESSAGES_MAX {
                    return Err(format!("{count} messages in a night"));
                }
            }
        }
        Ok(())
    }
}

/// The history of `seed`; how many incidents there were, or what went wrong.
fn history(seed: u64, bug: DeliberateBug) -> Result<u64, String> {
    let mut world = World::new(seed, bug);
    world.live()?;
    world.finale()?;
    Ok(world.incidents)
}

#[test]
fn an_incident_is_open_if_and_only_if_redundancy_was_below_design_for_ten_seconds() {
    let mut incidents = 0;
    for seed in 0..SEEDS {
        match history(seed, DeliberateBug::NONE) {
            Ok(count) => incidents += count,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(
        incidents > 4 * SEEDS,
        "only {incidents} incidents: too quiet to prove anything"
    );
}

#[test]
fn each_deliberate_bug_is_found() {
    for mutant in ALL {
        let bug = DeliberateBug::new(Some(*mutant));
        let found = (0..HUNT_SEEDS).find_map(|seed| Some((seed, history(seed, bug).err()?)));
        let (seed, error) = found.unwrap_or_else(|| panic!("{mutant:?} is not found"));
        println!("{mutant:?}: seed {seed}: {error}");
    }
}

#[test]
fn the_bug_of_a_word_for_a_state_is_found_as_a_wrong_severity() {
    let bug = DeliberateBug::new(Some(Mutant::SeverityByWord));
    let error = (0..HUNT_SEEDS).find_map(|seed| history(seed, bug).err());
    assert!(error.unwrap().contains("told as"));
}
