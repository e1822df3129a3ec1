//! What a seed of a reshape does: what the array is, what it shall become, and what happens meanwhile.
//!
//! Invariant: everything follows from the seed; seeds of other subjects draw from other streams.

use std::fmt;

use plexum_layout::Organisation;
use plexum_md::reshape::Wish as ReshapeWish;

use crate::course::{Course, LifeEnd, Load, RESTS_NS, Shortage, Wish, draw_nested};
use crate::md::{Level, Spec};
use plexum_disks::disk::CrashKind;
use plexum_disks::fault::Fault;
use plexum_disks::rng::Rng;

/// Stream of the plans, apart from those of other subjects.
const STREAM: u64 = 0x7265_7368;

/// Bytes of every disk: metadata, room for the shift, and the data.
const DISK_BYTES: u64 = 3 << 20;

/// Disks that nobody has, for who is lost.
const IDLE_DISKS: usize = 2;

/// What becomes of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transition {
    /// More members, perhaps with other strips.
    More,
    /// Fewer members.
    Fewer,
    /// Another strip or layout over the same members.
    Rearranged,
    /// A parity more.
    LevelUp,
    /// A parity less.
    LevelDown,
}

impl Transition {
    /// All of them.
    pub const ALL: [Transition; 5] = [
        Transition::More,
        Transition::Fewer,
        Transition::Rearranged,
        Transition::LevelUp,
        Transition::LevelDown,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Transition::More => "more members",
            Transition::Fewer => "fewer members",
            Transition::Rearranged => "rearranged",
            Transition::LevelUp => "level up",
            Transition::LevelDown => "level down",
        }
    }
}

/// What happens between two lives, besides disks that come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// A disk is not there in the next life.
    pub hides: Option<u32>,
}

/// The whole plan of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the world goes by.
    pub course: Course,
    /// Version of the metadata: 100, 110 or 120.
    pub metadata: u32,
    /// What the array is.
    pub before: Spec,
    /// What kind of change it is.
    pub transition: Transition,
    /// What it shall become.
    pub after: Spec,
    /// The pauses behind the first lives.
    pub pauses: Vec<Pause>,
}

impl Plan {
    /// The plan of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed).fork(STREAM);
        let transition = *rng.pick(&Transition::ALL);
        let before = draw_before(&mut rng, transition);
        let after = draw_after(&mut rng, transition, &before);
        let mut plan = Self {
            // With 1.0 the data begin where the device does: there is no room to move them upwards. Downwards nobody
            // can say how far a new parity has come: after a crash it counts as missing, and the start asks for force.
            metadata: match transition {
                Transition::More | Transition::LevelUp => *rng.pick(&[120, 110]),
                _ => *rng.pick(&[120, 120, 110, 100]),
            },
            transition,
            pauses: Vec::new(),
            course: Course {
                seed,
                disk_bytes: DISK_BYTES,
                disk_count: before.member_count.max(after.member_count) + IDLE_DISKS,
                atom_bytes: *rng.pick(&[512, 512, 4096]),
                latency_ns: *rng.pick(&[5_000, 50_000, 50_000, 500_000]),
                flush_times: 1,
                has_zeroing_trim: rng.chance(1, 2),
                has_small_thresholds: rng.chance(15, 16),
                clients: rng.between(1, 5) as usize,
                requests: rng.between(40, 160),
                think_ns_max: *rng.pick(&[0, 0, 2_000_000, 50_000_000]),
                flushes_of_100: *rng.pick(&[7, 7, 1, 0]),
                pace_bytes_per_s: *rng.pick(&[32 << 20, 4 << 20, 512 << 10, 128 << 10]),
                load: Load {
                    reads_of_93: 40,
                    long_of_128: 2,
                    ..Load::default()
                },
                wishes: Vec::new(),
                lives: Vec::new(),
                shortage: Shortage::Rest,
                aim: None,
            },
            before,
            after,
        };
        plan.draw_wishes(&mut rng);
        plan.draw_lives(&mut rng);
        // What is left of the requests, then everything that is broken is mended, twice, and everything compared.
        let rest = LifeEnd::Stop { requests: u64::MAX };
        let last = [rest, LifeEnd::Mend, LifeEnd::Finale];
        plan.course.lives.extend(last);
        plan
    }

    /// Disks that have a slot or stand by for one, from the start.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.before.member_count.max(self.after.member_count)
    }

    /// Members that may be lost of the new geometry: the last station of a parity less has both yet, and must do with
    /// one afterwards.
    #[must_use]
    pub fn tolerates(&self) -> usize {
        self.after.tolerates().min(self.before.tolerates())
    }

    /// The same while rows move: a parity more is there as far as they have.
    #[must_use]
    pub fn tolerates_while_moving(&self) -> usize {
        match self.transition {
            Transition::LevelUp => self.after.tolerates(),
            _ => self.tolerates(),
        }
    }

    /// What is asked for, whatever is there already.
    #[must_use]
    pub fn wish(&self) -> ReshapeWish {
        let organisation = Organisation::from_md(self.after.level.number(), self.after.layout);
        let organisation = organisation.expect("the plan's layouts are md's");
        ReshapeWish {
            member_count: Some(self.after.member_count as u16), // a handful
            level: Some(organisation.level()),
            layout: organisation.layout_name(),
            strip_bytes: Some(self.after.strip_bytes),
        }
    }

    /// What the operator does behind a life.
    #[must_use]
    pub fn pause_behind(&self, life: usize) -> Pause {
        self.pauses.get(life).copied().unwrap_or_default()
    }

    fn draw_wishes(&mut self, rng: &mut Rng) {
        let members = self.member_count() as u64;
        let requests = self.course.requests;
        let mut wishes = Vec::new();
        for _ in 0..rng.between(0, 4) {
            let slot = rng.below(members) as usize;
            let fault = draw_fault(rng, self.before.component_bytes);
            wishes.push((rng.below(requests), Wish::Fault { slot, fault }));
        }
        for _ in 0..rng.between(0, 3) {
            let slot = rng.below(members) as usize;
            let wish = match rng.below(4) {
                0 => Wish::Fail { slot },
                1..=2 => Wish::Add,
                _ => Wish::Return,
            };
            wishes.push((rng.below(requests), wish));
        }
        for _ in 0..rng.below(3) {
            let length_ns = *rng.pick(&RESTS_NS);
            wishes.push((rng.below(requests), Wish::Rest { length_ns }));
        }
        wishes.sort_by_key(|(request, _)| *request);
        self.course.wishes = wishes;
    }

    fn draw_lives(&mut self, rng: &mut Rng) {
        let mut left = self.course.requests;
        for _ in 0..rng.between(1, 6) {
            let requests = match rng.below(4) {
                0 => rng.below(4),
                _ => rng.below(left / 2 + 1),
            };
            let requests = requests.min(left);
            left -= requests;
            let kind = *rng.pick(&[
                CrashKind::PowerCut,
                CrashKind::PowerCut,
                CrashKind::PowerCut,
                CrashKind::Kill,
            ]);
            let end = match rng.chance(1, 4) {
                true => LifeEnd::Stop { requests },
                false => LifeEnd::Crash {
                    requests,
                    stage: None,
                    polls: {
                        let most = *rng.pick(&[60, 400, 3000, 20_000]);
                        rng.below(most)
                    },
                    rest_ns: match rng.chance(1, 6) {
                        true => *rng.pick(&RESTS_NS) + rng.below(200_000_000),
                        false => 0,
                    },
                    kind,
                },
            };
            let members = self.member_count() as u64;
            let hides = rng.chance(1, 4).then(|| rng.below(members) as u32);
            self.course.lives.push(end);
            self.pauses.push(Pause { hides });
            if rng.chance(1, 4) {
                self.course.lives.extend(draw_nested(rng, kind));
            }
            if rng.chance(1, 5) {
                let salt = rng.below(1 << 16);
                self.course.lives.push(LifeEnd::Foreign { salt });
            }
            self.pauses
                .resize(self.course.lives.len(), Pause::default());
        }
    }
}

fn draw_before(rng: &mut Rng, transition: Transition) -> Spec {
    let level = match transition {
        Transition::LevelUp => *rng.pick(&[Level::Raid5, Level::Raid5, Level::Raid4]),
        Transition::LevelDown => Level::Raid6,
        Transition::Rearranged => *rng.pick(&[Level::Raid5, Level::Raid6]),
        _ => *rng.pick(&[Level::Raid4, Level::Raid5, Level::Raid5, Level::Raid6]),
    };
    let parities = if level == Level::Raid6 { 2 } else { 1 };
    let least = match transition {
        Transition::Fewer => parities + 3,
        _ => parities + 2,
    };
    let layout = match level {
        Level::Raid5 => rng.below(4) as u32,
        Level::Raid6 => *rng.pick(&[0, 1, 2, 3]),
        _ => 0,
    };
    let has_bitmap = rng.chance(3, 4);
    Spec {
        level,
        layout,
        member_count: rng.between(least, least + 2) as usize,
        strip_bytes: *rng.pick(&[4096, 4096, 8192, 16_384]),
        component_bytes: 65_536 * rng.between(2, 6),
        region_bytes: has_bitmap.then(|| *rng.pick(&[16_384, 65_536])),
        log_bytes: None,
        is_write_back: false,
        has_ppl: false,
    }
}

/// What the array shall become. Sizes of members stay.
fn draw_after(rng: &mut Rng, transition: Transition, before: &Spec) -> Spec {
    let mut after = before.clone();
    let other_strip = |rng: &mut Rng| loop {
        let strip = *rng.pick(&[4096, 8192, 16_384]);
        if strip != before.strip_bytes {
            return strip;
        }
    };
    let mut has_other_strip = rng.chance(1, 4);
    match transition {
        Transition::More => after.member_count += rng.between(1, 2) as usize,
        Transition::Fewer => after.member_count -= 1,
        Transition::Rearranged => {
            if rng.chance(1, 2) {
                after.layout = (before.layout + 1 + rng.below(3) as u32) % 4;
            } else {
                has_other_strip = true;
            }
        }
        Transition::LevelUp => {
            after.level = Level::Raid6;
            after.member_count += rng.between(1, 2) as usize;
            after.layout = match before.level {
                Level::Raid4 => rng.below(4) as u32,
                _ => before.layout,
            };
        }
        Transition::LevelDown => {
            after.level = Level::Raid5;
            after.member_count -= 1;
        }
    }
    if has_other_strip {
        after.strip_bytes = other_strip(rng);
    }
    after
}

fn draw_fault(rng: &mut Rng, component_bytes: u64) -> Fault {
    let sectors = component_bytes / 512;
    let start = rng.below(sectors);
    let length = *rng.pick(&[1, 8, 64]);
    let range = start * 512..(start + length).min(sectors) * 512;
    match rng.below(16) {
        0..=4 => Fault::ReadError(range),
        5 => Fault::Hang,
        6 => Fault::WriteError(range),
        7 => Fault::FlushError { count: 1 },
        8..=12 => Fault::Vanish,
        13 => Fault::Retryable { count: 1 },
        _ => Fault::Slow {
            factor: rng.between(2, 200) as u32,
        },
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {} of reshape: {}, metadata {}",
            self.course.seed,
            self.transition.name(),
            self.metadata
        )?;
        writeln!(f, "from {}\nto   {}", self.before, self.after)?;
        writeln!(
            f,
            "{} clients, {} requests",
            self.course.clients, self.course.requests
        )?;
        self.course.fmt(f)?;
        for (number, pause) in self.pauses.iter().enumerate() {
            if *pause != Pause::default() {
                writeln!(f, "behind life {number}: {pause:?}")?;
            }
        }
        Ok(())
    }
}

impl crate::course::Plan for Plan {
    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }

    fn remove_life(&mut self, at: usize) {
        self.course.lives.remove(at);
        if at < self.pauses.len() {
            self.pauses.remove(at);
        }
    }

    fn kind(&self) -> String {
        self.transition.name().to_owned()
    }

    fn rng(&self) -> Rng {
        Rng::new(self.course.seed).fork(STREAM)
    }
}
