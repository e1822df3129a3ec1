//! What a seed of FreeBSD's formats does: what is built, and what happens between lives.
//!
//! Invariant: everything follows from the seed and the format; seeds of md arrays draw from other streams.

use std::fmt;

use plexum_format::gmirror::Balance;
use plexum_format::vinum::DATA_OFFSET_BYTES;

use crate::course::{Course, LifeEnd, Load, RESTS_NS, Shortage, Wish, draw_nested};
use plexum_disks::disk::CrashKind;
use plexum_disks::fault::Fault;
use plexum_disks::rng::Rng;

/// Stream of the plans, apart from those of md arrays; the format's number is added.
const STREAM: u64 = 0x6273_6400;

/// Whose arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// FreeBSD's gmirror.
    Gmirror,
    /// FreeBSD's gvinum.
    Gvinum,
}

impl Format {
    /// Both.
    pub const ALL: [Format; 2] = [Format::Gmirror, Format::Gvinum];

    /// FreeBSD's name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Gmirror => "gmirror",
            Format::Gvinum => "gvinum",
        }
    }
}

/// How a plex lays out its addresses, in the words of the model (which has its own arithmetic).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Subdisks one after another.
    Concat,
    /// Strips in turn.
    Striped,
    /// Strips with rotating parity.
    Raid5,
}

/// A plex: one subdisk on each of these drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlexShape {
    /// How it lays out its addresses.
    pub order: Order,
    /// Bytes of a strip; unused by concat.
    pub strip_bytes: u64,
    /// Numbers of the disks.
    pub drives: Vec<u32>,
}

impl PlexShape {
    /// How many of its subdisks hold data.
    #[must_use]
    pub fn data_count(&self) -> u64 {
        self.drives.len() as u64 - u64::from(self.order == Order::Raid5)
    }
}

/// What is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A mirror over the first disks.
    Mirror {
        /// How many.
        components: usize,
        /// How reads are spread.
        balance: Balance,
    },
    /// Volumes over the same drives.
    System {
        /// By volume: its plexes.
        volumes: Vec<Vec<PlexShape>>,
        /// How many disks are drives of it from the start.
        drives: usize,
    },
}

/// What happens between two lives, besides disks that come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// A disk is not there in the next life.
    pub hides: Option<u32>,
    /// Components that were deactivated are activated.
    pub activates: bool,
    /// Subdisks of drives that are away are moved to others; a component is deactivated.
    pub moves: bool,
    /// A plex gets a subdisk more.
    pub grows: bool,
}

/// The whole plan of a seed. Its slots are the numbers of the disks.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the world goes by.
    pub course: Course,
    /// The format.
    pub format: Format,
    /// What is built.
    pub shape: Shape,
    /// Bytes of each volume at the start.
    pub volume_bytes: u64,
    /// The pauses behind the first lives.
    pub pauses: Vec<Pause>,
}

impl Plan {
    /// The plan of `seed`.
    #[must_use]
    pub fn new(seed: u64, format: Format) -> Self {
        let mut rng = Rng::new(seed).fork(STREAM + format as u64);
        let (shape, volume_bytes, disk_bytes, disk_count) = match format {
            Format::Gmirror => draw_mirror(&mut rng),
            Format::Gvinum => draw_system(&mut rng),
        };
        let mut plan = Self {
            format,
            shape,
            volume_bytes,
            pauses: Vec::new(),
            course: Course {
                seed,
                disk_bytes,
                disk_count,
                atom_bytes: *rng.pick(&[512, 512, 4096]),
                latency_ns: *rng.pick(&[5_000, 50_000, 50_000, 500_000]),
                flush_times: 1,
                has_zeroing_trim: seed.is_multiple_of(2),
                has_small_thresholds: Rng::new(seed).fork(43).below(256) < 240,
                clients: rng.between(1, 6) as usize,
                requests: rng.between(60, 240),
                think_ns_max: *rng.pick(&[0, 0, 0, 2_000_000, 200_000_000]),
                flushes_of_100: *rng.pick(&[7, 7, 1, 0]),
                pace_bytes_per_s: *rng.pick(&[32 << 20, 4 << 20, 512 << 10, 64 << 10]),
                load: Load {
                    reads_of_93: 40,
                    long_of_128: 2,
                    ..Load::default()
                },
                wishes: Vec::new(),
                lives: Vec::new(),
                shortage: Shortage::Last,
                aim: None,
            },
        };
        plan.draw_wishes(&mut rng);
        plan.draw_lives(&mut rng);
        // What is left of the requests, then everything that is broken is mended, twice, and everything compared.
        let rest = LifeEnd::Stop { requests: u64::MAX };
        let last = [rest, LifeEnd::Mend, LifeEnd::Finale];
        plan.course.lives.extend(last);
        plan
    }

    /// How many disks belong to the array from the start.
    #[must_use]
    pub fn member_count(&self) -> usize {
        match &self.shape {
            Shape::Mirror { components, .. } => *components,
            Shape::System { drives, .. } => *drives,
        }
    }

    /// How many volumes are served.
    #[must_use]
    pub fn volume_count(&self) -> usize {
        match &self.shape {
            Shape::Mirror { .. } => 1,
            Shape::System { volumes, .. } => volumes.len(),
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
        for _ in 0..rng.between(0, 6) {
            let slot = rng.below(members + 1) as usize;
            let fault = self.draw_fault(rng);
            wishes.push((rng.below(requests), Wish::Fault { slot, fault }));
        }
        for _ in 0..rng.between(0, 4) {
            let slot = rng.below(members) as usize;
            let wish = match rng.below(8) {
                0..=1 => Wish::Fail { slot },
                2..=4 => Wish::Add,
                5 => Wish::Replace { slot },
                _ => Wish::Scrub,
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

    fn draw_fault(&self, rng: &mut Rng) -> Fault {
        let sectors = self.course.disk_bytes / 512;
        let start = rng.below(sectors);
        let length = *rng.pick(&[1, 8, 64, 300]);
        let range = start * 512..(start + length).min(sectors) * 512;
        match rng.below(16) {
            0..=3 => Fault::ReadError(range),
            4 => Fault::Hang,
            5..=6 => Fault::WriteError(range),
            7 => Fault::TornWrite(range),
            8 => Fault::FlushError { count: 1 },
            9..=13 => Fault::Vanish,
            14 => Fault::Retryable { count: 1 },
            _ => Fault::Slow {
                factor: rng.between(2, 200) as u32,
            },
        }
    }

    fn draw_lives(&mut self, rng: &mut Rng) {
        let mut left = self.course.requests;
        for _ in 0..rng.between(1, 6) {
            let requests = if rng.chance(1, 4) {
                rng.below(4)
            } else {
                rng.below(left / 2 + 1)
            };
            let requests = requests.min(left);
            left -= requests;
            let kind = if rng.chance(1, 4) {
                CrashKind::Kill
            } else {
                CrashKind::PowerCut
            };
            let end = if rng.chance(1, 4) {
                LifeEnd::Stop { requests }
            } else {
                let most = *rng.pick(&[60, 400, 3000]);
                let rest_ns = if rng.chance(1, 4) {
                    *rng.pick(&RESTS_NS) + rng.below(200_000_000)
                } else {
                    0
                };
                LifeEnd::Crash {
                    requests,
                    stage: None,
                    polls: rng.below(most),
                    rest_ns,
                    kind,
                }
            };
            let pause = self.draw_pause(rng);
            self.course.lives.push(end);
            self.pauses.push(pause);
            if rng.chance(1, 4) {
                let nested = draw_nested(rng, kind);
                let pauses = self.pauses.len() + nested.len();
                self.pauses.resize(pauses, Pause::default());
                self.course.lives.extend(nested);
            }
        }
    }

    fn draw_pause(&self, rng: &mut Rng) -> Pause {
        let members = self.member_count() as u64;
        Pause {
            hides: rng.chance(1, 3).then(|| rng.below(members) as u32),
            activates: rng.chance(1, 2),
            moves: rng.chance(1, 3),
            grows: rng.chance(1, 4),
        }
    }
}

fn draw_mirror(rng: &mut Rng) -> (Shape, u64, u64, usize) {
    let components = rng.between(2, 4) as usize;
    let balances = [
        Balance::RoundRobin,
        Balance::Load,
        Balance::Split,
        Balance::Prefer,
    ];
    let balance = *rng.pick(&balances);
    let volume_bytes = 65_536 * rng.between(4, 12);
    let shape = Shape::Mirror {
        components,
        balance,
    };
    (shape, volume_bytes, volume_bytes + 512, components + 2)
}

/// Space for subdisks: two volumes, and one subdisk that was moved.
const ROOM_BYTES: u64 = 3 << 20;

fn draw_system(rng: &mut Rng) -> (Shape, u64, u64, usize) {
    let drives = rng.between(3, 5) as usize;
    let count = if rng.chance(1, 3) { 2 } else { 1 };
    let volumes = (0..count).map(|_| draw_volume(rng, drives)).collect();
    let shape = Shape::System { volumes, drives };
    // Whole strips of every size on one to four subdisks.
    let volume_bytes = 294_912 * rng.between(1, 2);
    (
        shape,
        volume_bytes,
        DATA_OFFSET_BYTES + ROOM_BYTES,
        drives + 1,
    )
}

fn draw_volume(rng: &mut Rng, drives: usize) -> Vec<PlexShape> {
    let mut all: Vec<u32> = (0..drives as u32).collect();
    rng.shuffle(&mut all);
    let strip_bytes = *rng.pick(&[4096, 4096, 8192, 12_288]);
    let plex = |rng: &mut Rng, drives: &[u32]| {
        let order = match drives.len() {
            1 => Order::Concat,
            2 => *rng.pick(&[Order::Concat, Order::Striped]),
            _ => *rng.pick(&[Order::Concat, Order::Striped, Order::Raid5]),
        };
        PlexShape {
            order,
            strip_bytes,
            drives: drives.to_vec(),
        }
    };
    match rng.below(8) {
        // Alone, with parity: three or four subdisks.
        0..=2 => {
            let count = rng.between(3, 4.min(drives as u64)) as usize;
            vec![PlexShape {
                order: Order::Raid5,
                strip_bytes,
                drives: all[..count].to_vec(),
            }]
        }
        // Alone, without redundancy.
        3 => {
            let count = rng.between(2, 3.min(drives as u64)) as usize;
            let alone = plex(rng, &all[..count]);
            vec![alone]
        }
        // Two plexes over disjoint drives, of whatever organisations.
        _ => {
            let most = (drives as u64 - 1).min(4);
            let first = rng.between(1, most) as usize;
            let second = rng.between(1, (drives - first).min(4) as u64) as usize;
            let one = plex(rng, &all[..first]);
            let other = plex(rng, &all[first..first + second]);
            vec![one, other]
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} of {}: ", self.course.seed, self.format.name())?;
        match &self.shape {
            Shape::Mirror {
                components,
                balance,
            } => writeln!(f, "{components} components, balance {}", balance.name())?,
            Shape::System { volumes, drives } => {
                writeln!(f, "{drives} drives")?;
                for (number, plexes) in volumes.iter().enumerate() {
                    for plex in plexes {
                        let PlexShape {
                            order,
                            strip_bytes,
                            drives,
                        } = plex;
                        writeln!(f, "volume {number}: {order:?} {strip_bytes} on {drives:?}")?;
                    }
                }
            }
        }
        writeln!(
            f,
            "{} bytes, {} clients, {} requests",
            self.volume_bytes, self.course.clients, self.course.requests
        )?;
        self.course.fmt(f)?;
        for (number, pause) in self.pauses.iter().enumerate() {
            writeln!(f, "behind life {number}: {pause:?}")?;
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
        self.format.name().to_owned()
    }

    fn rng(&self) -> Rng {
        Rng::new(self.course.seed).fork(self.format as u64)
    }

    fn draw_volume(&self, rng: &mut Rng) -> usize {
        rng.below(self.volume_count() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_plan_is_a_function_of_its_seed() {
        for seed in 0..100 {
            for format in Format::ALL {
                let one = Plan::new(seed, format).to_string();
                assert_eq!(one, Plan::new(seed, format).to_string());
            }
        }
    }

    #[test]
    fn every_pair_of_organisations_comes_up() {
        let mut seen = BTreeSet::new();
        for seed in 0..2000 {
            let Shape::System { volumes, .. } = Plan::new(seed, Format::Gvinum).shape else {
                panic!("a system of drives")
            };
            for plexes in volumes {
                let orders = plexes.iter().map(|plex| format!("{:?}", plex.order));
                seen.insert(orders.collect::<Vec<_>>());
            }
        }
        // All but two with parity, for which there are too few drives.
        assert_eq!(seen.len(), 3 + 8, "{seen:?}");
    }
}
