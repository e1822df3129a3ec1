//! Scrubs by themselves: what `plexum_schedule` decides of each volume is carried out, and what comes of it is kept.
//!
//! Invariants:
//! - decisions are pure functions elsewhere; here the facts are put together, and parts are started and stopped;
//! - what a part has compared is noted when it has ended, also when it was stopped in between;
//! - the volume never waits for what is kept: a thread reads it, another one writes it;
//! - whoever scrubs by hand comes first.

mod kept;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use jiff::tz::TimeZone;
use plexum_block::clock::Clock;
use plexum_engine::volume::Announcement;
use plexum_schedule::decide::part_bytes;
use plexum_schedule::{Decision, Looked, RoundEnd, ScrubConfig, State, VolumeFacts, Why, decide};

use super::Service;
use crate::control::event::words_of;
use crate::date::local_zone;
use crate::host::{Host, Hosted};
use crate::memory::{Kept, Key};
use crate::volume::ops::check_scrub;
use crate::volume::served::Served;
use crate::volume::status::{Mismatch, ScrubPlanStatus, ScrubStatus};

/// How often it is looked what is to be done, in seconds.
const LOOK_EVERY_S: u64 = 1;
/// Places of mismatches that are kept of one round.
const RANGES_MAX: usize = 1000;

/// A volume that is scrubbed by itself.
struct Watched {
    state: State,
    /// The part that runs.
    running: Option<Range<u64>>,
    /// Places that differ, of the round that has begun.
    ranges: Vec<Mismatch>,
    /// End of the last scrub by hand that was taken into account.
    by_hand_s: u64,
}

/// The schedule of all volumes of the daemon. Belongs to its thread.
pub(super) struct Scrubs {
    host: Rc<Host>,
    config: ScrubConfig,
    zone: TimeZone,
    watched: RefCell<BTreeMap<Key, Watched>>,
}

impl Scrubs {
    /// The schedule for the volumes of `host`, in the time zone of this machine.
    pub(super) fn new(host: &Rc<Host>, config: ScrubConfig) -> Self {
        Self {
            host: Rc::clone(host),
            config,
            zone: local_zone(),
            watched: RefCell::default(),
        }
    }

    /// Looks after all volumes, until it is dropped. Without a schedule it does nothing.
    pub(super) async fn run(service: &Service, config: Option<ScrubConfig>) {
        let Some(config) = config else {
            return std::future::pending().await;
        };
        let scrubs = Self::new(&service.host, config);
        loop {
            service.tick.after(LOOK_EVERY_S).await;
            let mut known = Vec::new();
            for hosted in service.host.list() {
                known.extend(scrubs.look(&hosted).await);
            }
            // One that is served again is read back: somebody else may have scrubbed it.
            scrubs
                .watched
                .borrow_mut()
                .retain(|key, _| known.contains(key));
        }
    }

    /// Looks after one volume; says by what it is known.
    async fn look(&self, hosted: &Hosted) -> Option<Key> {
        let served = hosted.served().ok()?;
        let facts = &served.facts;
        let key = Key::of(&facts.format.to_string(), &facts.uuid, served.name());
        let now = self.host.handle().clock().wall_seconds();
        if !self.watched.borrow().contains_key(&key) {
            let found = match self.host.state_dir() {
                Some(dir) => kept::read(dir.scrubs_path(&key)).await,
                None => None,
            };
            let watched = Watched {
                state: found.unwrap_or_else(|| State::new(0, now)),
                running: None,
                ranges: Vec::new(),
                by_hand_s: 0,
            };
            self.watched.borrow_mut().insert(key.clone(), watched);
        }
        let mut all = self.watched.borrow_mut();
        let watched = all.get_mut(&key)?;
        let before = watched.state.clone();
        let one = One {
            scrubs: self,
            served: &served,
            now,
        };
        one.look(watched);
        if watched.state != before
            && let Some(keeper) = self.host.keeper()
        {
            keeper.keep(Kept::Scrubs(key.clone(), watched.state.clone()));
        }
        Some(key)
    }
}

/// One volume at one moment.
struct One<'a> {
    scrubs: &'a Scrubs,
    served: &'a Served,
    now: u64,
}

impl One<'_> {
    fn look(&self, watched: &mut Watched) {
        let config = &self.scrubs.config;
        let total_bytes = self.total_bytes();
        watched.state.fit(total_bytes, self.now);
        self.note_by_hand(watched);
        let has_part = self.served.volume.is_scrubbing() && self.served.has_scrub_part.get();
        if !has_part && let Some(part) = watched.running.take() {
            self.end_part(watched, &part);
        }
        let facts = self.facts(watched, total_bytes);
        let decision = decide(config, &watched.state, self.now, &self.scrubs.zone, &facts);
        match &decision {
            Decision::Start(part) => self.start(watched, part),
            Decision::GoOn => self.pace(),
            // What it has done until then is noted when it has ended.
            Decision::Pause(_) => self.served.volume.stop_scrub(),
            Decision::Wait { .. } => {}
        }
        let plan = plan(config, watched, &decision, self.now);
        *self.served.scrub_plan.borrow_mut() = (total_bytes > 0).then_some(plan);
    }

    /// What there is to compare; 0 for a volume of which nothing can be compared at all.
    fn total_bytes(&self) -> u64 {
        match self.served.can_be_scrubbed() {
            true => self.served.volume.scrub_bytes(),
            false => 0,
        }
    }

    fn facts(&self, watched: &Watched, total_bytes: u64) -> VolumeFacts {
        let status = self.served.volume.status();
        VolumeFacts {
            total_bytes,
            is_whole: status.lost_slots.is_empty() && !status.is_frozen,
            has_other_job: self.served.has_other_job(),
            held_until_s: self.served.held_until_s.get(),
            running: watched.running.clone(),
            part_bytes: part_bytes(total_bytes),
        }
    }

    fn start(&self, watched: &mut Watched, part: &Range<u64>) {
        self.pace();
        let may_begin = check_scrub(self.served, false).is_ok();
        if may_begin && self.served.volume.start_scrub_part(part.clone()) {
            watched.state.begin(self.now);
            watched.running = Some(part.clone());
            self.served.has_scrub_part.set(true);
        }
    }

    /// A scrub by schedule reads no faster than its rate; nor than what is set for all that runs in the background.
    fn pace(&self) {
        let mut pace = self.served.pace.get();
        let Some(rate) = self.scrubs.config.rate else {
            return;
        };
        let rate = rate.bytes_per_s();
        pace.ceiling_bytes_per_s = match pace.ceiling_bytes_per_s {
            0 => rate,
            ceiling => ceiling.min(rate),
        };
        pace.floor_bytes_per_s = pace.floor_bytes_per_s.min(pace.ceiling_bytes_per_s);
        self.served.volume.set_pace(pace);
    }

    fn end_part(&self, watched: &mut Watched, part: &Range<u64>) {
        self.served.has_scrub_part.set(false);
        self.served.volume.set_pace(self.served.pace.get());
        let Some(found) = self.served.part_report() else {
            return;
        };
        let done = part.start..found.done_bytes.min(part.end);
        if done.is_empty() {
            return;
        }
        let looked = Looked {
            mismatch_bytes: found.mismatch_bytes,
            skipped_bytes: found.skipped_bytes,
        };
        watched.ranges.extend(found.ranges);
        watched.ranges.truncate(RANGES_MAX);
        let end = watched.state.note(&done, looked, self.now);
        if end.is_some() || looked.mismatch_bytes > 0 {
            self.tell(watched, end.as_ref());
        }
    }

    /// Has the result known: what differs as soon as it was found, and the end of a round.
    fn tell(&self, watched: &mut Watched, end: Option<&RoundEnd>) {
        let total_bytes = watched.state.ages.total_bytes();
        let round = watched.state.round.as_ref();
        let open = round.map(|round| (round.mismatch_bytes, round.skipped_bytes));
        let closed = end.map(|end| (end.mismatch_bytes, end.skipped_bytes));
        let (mismatch_bytes, skipped_bytes) = closed.or(open).unwrap_or_default();
        let before = self.served.last_scrub();
        let before = before.map_or(0, |before| before.unmended_bytes());
        self.served.memory.note_scrub(ScrubStatus {
            is_complete: end.is_some(),
            is_repair: false,
            mismatch_bytes,
            repaired_bytes: 0,
            skipped_bytes,
            ranges: watched.ranges.clone(),
            finished_s: Some(self.now),
            done_bytes: watched.state.round_done_bytes().unwrap_or(total_bytes),
            total_bytes,
            mismatch_bytes_before: if end.is_some() { 0 } else { before },
        });
        if end.is_some() {
            watched.ranges.clear();
        }
        let (name, message, member) = match end {
            Some(_) => words_of(&Announcement::ScrubFinished {
                mismatch_bytes,
                skipped_bytes,
            }),
            None => {
                let message = format!("the scrub has found {mismatch_bytes} bytes that differ");
                ("scrub_found", message, None)
            }
        };
        let events = self.scrubs.host.events();
        events.publish(self.now, self.served.name(), name, message, member);
    }

    /// Takes over what somebody has scrubbed by hand, now or before this daemon began.
    fn note_by_hand(&self, watched: &mut Watched) {
        let Some(scrub) = self.served.last_scrub_by_hand() else {
            return;
        };
        let ended_s = scrub.finished_s.unwrap_or(0).min(self.now);
        let is_news = ended_s > watched.by_hand_s && Some(ended_s) > watched.state.last_success_s;
        if !scrub.is_complete || !is_news || watched.running.is_some() {
            return;
        }
        watched.by_hand_s = ended_s;
        let looked = Looked {
            mismatch_bytes: scrub.mismatch_bytes.saturating_sub(scrub.repaired_bytes),
            skipped_bytes: scrub.skipped_bytes,
        };
        watched.state.note_all(looked, ended_s);
        watched.ranges.clear();
    }
}

/// What status tells.
fn plan(config: &ScrubConfig, watched: &Watched, decision: &Decision, now: u64) -> ScrubPlanStatus {
    let state = &watched.state;
    let (why, next_s): (Option<Why>, _) = match decision {
        Decision::Start(_) if watched.running.is_none() => (None, Some(now)),
        Decision::Start(_) | Decision::GoOn => (None, None),
        Decision::Pause(why) => (Some(*why), None),
        Decision::Wait { why, next_s } => (Some(*why), *next_s),
    };
    ScrubPlanStatus {
        every_s: config.every.seconds(),
        last_success_s: state.last_success_s,
        oldest_byte_s: state.oldest_byte_s(),
        is_partly_unknown: state.is_partly_unknown(),
        next_s,
        waits_because: why.map(|why| why.to_string()),
        round_done_bytes: state.round_done_bytes(),
        total_bytes: state.ages.total_bytes(),
    }
}
