//! Months of virtual time with windows, rebuilds, restarts, losses of the process and of members, and a slow model that
//! keeps the age of each block by itself, beside what the schedule decides.
#![allow(clippy::unwrap_used)]

use std::ops::Range;

use jiff::tz::TimeZone;
use plexum_schedule::{Decision, Looked, ScrubConfig, State, VolumeFacts, Why, decide};

const MINUTE: u64 = 60;
/// From one decision to the next.
const STEP: u64 = 5 * MINUTE;
const STEPS_PER_DAY: u64 = DAY / STEP;
const DAY: u64 = 86_400;
/// Blocks of the volume; a block is a byte.
const BLOCKS: u64 = 64;
/// 2026-03-01 00:00 UTC, four weeks before the clock goes ahead in Berlin.
const BEGIN: u64 = 1_772_323_200;
/// 2026-03-29 01:00 UTC and 2026-10-25 01:00 UTC.
const SUMMER: Range<u64> = 1_774_746_000..1_792_890_000;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Minutes of the day, the days of the week on which they begin (Monday is 0), and the words for both.
struct Window {
    words: &'static str,
    days: &'static [u64],
    minutes: Range<u64>,
}

const WINDOWS: [Window; 4] = [
    Window {
        words: "always",
        days: &[0, 1, 2, 3, 4, 5, 6],
        minutes: 0..1440,
    },
    Window {
        words: "01:00-06:00",
        days: &[0, 1, 2, 3, 4, 5, 6],
        minutes: 60..360,
    },
    Window {
        words: "Sat,Sun 02:30-03:00",
        days: &[5, 6],
        minutes: 150..180,
    },
    // Up to 02:00 of the next day.
    Window {
        words: "Fri-Sat 22:15-02:00",
        days: &[4, 5],
        minutes: 1335..1560,
    },
];

impl Window {
    /// Whether a clock in Berlin shows a time within, by arithmetic alone.
    fn has(&self, now: u64) -> bool {
        let local = now + 3_600 * (1 + u64::from(SUMMER.contains(&now)));
        let (day, minute) = (local / DAY, local % DAY / MINUTE);
        let begins = |day: u64| self.days.contains(&((day + 3) % 7)); // 1970-01-01 was a Thursday
        let is_today = begins(day) && self.minutes.contains(&minute);
        is_today || begins(day - 1) && self.minutes.contains(&(minute + 1440))
    }
}

/// What the model knows of a block.
#[derive(Clone, Copy, Default)]
struct Block {
    looked: Option<u64>,
    compared: Option<u64>,
}

struct History {
    random: Random,
    window: &'static Window,
    config: ScrubConfig,
    zone: TimeZone,
    now: u64,
    state: State,
    facts: VolumeFacts,
    /// How far the part has come that runs.
    at: u64,
    /// Bytes of it that could not be compared.
    skipped: u64,
    blocks: Vec<Block>,
    /// When the round of the model began.
    round: Option<u64>,
    successes: Vec<u64>,
    is_busy_until: u64,
    is_lost_until: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let window = &WINDOWS[usize::try_from(random.below(4)).unwrap()];
        let every = ["3d", "7d", "30d"][usize::try_from(random.below(3)).unwrap()];
        let config = ScrubConfig {
            every: every.parse().unwrap(),
            within: window.words.parse().unwrap(),
            rate: None,
        };
        let begin = BEGIN + random.below(280) * DAY;
        let mut history = Self {
            facts: VolumeFacts {
                total_bytes: BLOCKS,
                part_bytes: 1 + random.below(BLOCKS),
                ..VolumeFacts::default()
            },
            random,
            window,
            config,
            zone: TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap(),
            now: begin,
            state: State::new(BLOCKS, begin),
            at: 0,
            skipped: 0,
            blocks: vec![Block::default(); BLOCKS as usize],
            round: None,
            successes: Vec::new(),
            is_busy_until: 0,
            is_lost_until: 0,
        };
        history.have_a_past();
        history
    }

    /// Another program, or another version, has looked at pieces of it in some order.
    fn have_a_past(&mut self) {
        for age in (0..self.random.below(8)).rev() {
            let start = self.random.below(BLOCKS);
            let end = (start + 1 + self.random.below(20)).min(BLOCKS);
            let then = self.now - age * DAY;
            let _ = self.state.note(&(start..end), Looked::default(), then);
            for block in &mut self.blocks[start as usize..end as usize] {
                (block.looked, block.compared) = (Some(then), Some(then));
            }
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        self.happen();
        self.state.fit(BLOCKS, self.now);
        match decide(&self.config, &self.state, self.now, &self.zone, &self.facts) {
            Decision::Start(part) => self.start(part),
            Decision::GoOn => self.check_may_run(),
            Decision::Pause(why) => {
                self.check_hindered(why);
                self.end_part();
            }
            Decision::Wait { why, next_s } => self.check_waits(why, next_s),
        }
        if let Some(part) = self.facts.running.clone() {
            self.at = (self.at + self.random.below(8)).min(part.end);
            self.skipped += u64::from(self.random.one_in(80));
            if self.at == part.end {
                self.end_part();
            }
        }
        self.compare();
    }

    /// What the world does.
    fn happen(&mut self) {
        if self.random.one_in(1_000) {
            self.is_busy_until = self.now + self.random.below(900) * MINUTE;
        }
        if self.random.one_in(1_800) {
            self.is_lost_until = self.now + self.random.below(3_000) * MINUTE;
        }
        self.facts.has_other_job = self.now < self.is_busy_until;
        self.facts.is_whole = self.now >= self.is_lost_until;
        if self.random.one_in(300) {
            // The process is killed: what runs was for nothing, the rest is read back.
            self.facts.running = None;
            let kept = serde_json::to_string(&self.state).unwrap();
            self.state = serde_json::from_str(&kept).unwrap();
        }
    }

    fn start(&mut self, part: Range<u64>) {
        self.check_may_run();
        assert!(part.start < part.end && part.end <= BLOCKS);
        assert!(part.end - part.start <= self.facts.part_bytes);
        let every = self.config.every.seconds();
        let oldest = self.blocks.iter().map(|block| block.looked).min().unwrap();
        let is_due = oldest.is_none_or(|looked| looked + every <= self.now);
        assert!(self.round.is_some() || is_due, "nothing was due");
        let begun = *self.round.get_or_insert(self.now);
        let is_left = |block: &Block| block.looked.is_none_or(|looked| looked < begun);
        let of_part = &self.blocks[part.start as usize..part.end as usize];
        assert!(of_part.iter().all(is_left), "something is looked at twice");
        assert_eq!(of_part[0].looked, oldest, "the oldest comes first");
        self.state.begin(self.now);
        (self.at, self.skipped) = (part.start, 0);
        self.facts.running = Some(part);
    }

    fn end_part(&mut self) {
        let Some(part) = self.facts.running.take() else {
            return;
        };
        let done = part.start..self.at;
        if done.is_empty() {
            return;
        }
        let looked = Looked {
            mismatch_bytes: 0,
            skipped_bytes: self.skipped,
        };
        let end = self.state.note(&done, looked, self.now);
        for block in &mut self.blocks[done.start as usize..done.end as usize] {
            block.looked = Some(self.now);
            if self.skipped == 0 {
                block.compared = Some(self.now);
            }
        }
        let begun = self.round.unwrap();
        let is_since = |moment: Option<u64>| moment.is_some_and(|moment| moment >= begun);
        let is_over = self.blocks.iter().all(|block| is_since(block.looked));
        assert_eq!(end.is_some(), is_over);
        if let Some(end) = end {
            let is_success = self.blocks.iter().all(|block| is_since(block.compared));
            assert_eq!((end.begun_s, end.is_success), (begun, is_success));
            self.successes.extend(is_success.then_some(self.now));
            self.round = None;
        }
    }

    fn check_may_run(&self) {
        assert!(self.facts.is_whole && !self.facts.has_other_job);
        assert!(
            self.window.has(self.now),
            "{} at {}",
            self.window.words,
            self.now
        );
    }

    fn check_hindered(&self, why: Why) {
        let is_true = match why {
            Why::MemberMissing => !self.facts.is_whole,
            Why::OtherJob => self.facts.has_other_job,
            Why::OutsideWindow => !self.window.has(self.now),
            Why::NotDue | Why::Stopped | Why::NothingToCompare => false,
        };
        assert!(is_true, "{why:?}");
    }

    fn check_waits(&self, why: Why, next_s: Option<u64>) {
        if why != Why::NotDue {
            self.check_hindered(why);
        }
        let Some(next) = next_s else {
            assert!(matches!(why, Why::MemberMissing | Why::OtherJob));
            return;
        };
        assert!(
            next > self.now && self.window.has(next),
            "{why:?} until {next}"
        );
        // Checked minute by minute once a day: that there is no earlier one.
        if self.now % DAY < STEP {
            let oldest = self.blocks.iter().map(|block| block.looked).min().unwrap();
            let due = oldest.map_or(0, |looked| looked + self.config.every.seconds());
            let due = if self.round.is_some() { 0 } else { due };
            let from = (self.now + MINUTE).max(due);
            let first = (from.div_ceil(MINUTE)..).map(|minute| minute * MINUTE);
            let first = first
                .take(16 * 1440)
                .find(|moment| self.window.has(*moment));
            assert!(next <= first.unwrap() && next >= due);
        }
    }

    /// What status tells, beside the model.
    fn compare(&self) {
        let oldest = self
            .blocks
            .iter()
            .map(|block| block.compared)
            .min()
            .unwrap();
        assert_eq!(self.state.is_partly_unknown(), oldest.is_none());
        let known = oldest.unwrap_or(self.state.known_since_s);
        assert_eq!(self.state.oldest_byte_s(), known);
        assert_eq!(self.state.last_success_s, self.successes.last().copied());
        assert_eq!(
            self.state.round.as_ref().map(|round| round.begun_s),
            self.round
        );
    }
}

#[test]
fn any_history_keeps_the_promises_of_the_schedule() {
    let mut successes = 0;
    for seed in 1..=24 {
        let mut history = History::new(seed);
        for _ in 0..40 * STEPS_PER_DAY {
            history.step();
        }
        successes += history.successes.len();
    }
    assert!(successes > 60, "nearly nothing got to its end: {successes}");
}

#[test]
fn half_an_hour_a_week_is_enough_to_get_through_in_the_end() {
    let seed = (1..).find(|seed| History::new(*seed).window.words == "Sat,Sun 02:30-03:00");
    let mut history = History::new(seed.unwrap());
    history.config.every = "3d".parse().unwrap();
    for _ in 0..120 * STEPS_PER_DAY {
        history.step();
    }
    assert!(history.successes.len() >= 2, "{:?}", history.successes);
}
