//! What a seed of FreeBSD's formats does: the array, its clients, what strikes it and how each life ends.
//!
//! Invariant: everything follows from the seed and the format; seeds of md arrays draw from other streams.

use std::fmt;

use plexum_format::gmirror::Balance;
use plexum_format::vinum::DATA_OFFSET_BYTES;

use crate::scenario::RESTS_NS;
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

/// What is to happen when a request begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A disk goes wrong.
    Fault {
        /// Number of the disk.
        disk: u32,
        /// What happens.
        fault: Fault,
    },
    /// The operator takes a member out.
    Fail {
        /// Number of the disk.
        disk: u32,
    },
    /// A disk that stands by is given to the array.
    Add,
    /// A disk that stands by takes over from a member.
    Replace {
        /// Number of the disk.
        disk: u32,
    },
    /// Copies or parity are compared.
    Scrub,
    /// Everybody rests.
    Rest {
        /// How long, in nanoseconds.
        length_ns: u64,
    },
}

/// How a life ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// After so many requests and then so many polls.
    Crash {
        /// Requests.
        requests: u64,
        /// Polls after them; without requests those of the start count as well.
        polls: u64,
        /// How long everything has rested after them; 0: it need not.
        rest_ns: u64,
        /// What of the disks survives.
        kind: CrashKind,
    },
    /// In order, after so many requests.
    Stop {
        /// Requests.
        requests: u64,
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

/// The whole plan of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The format.
    pub format: Format,
    /// What is built.
    pub shape: Shape,
    /// Bytes of each volume at the start.
    pub volume_bytes: u64,
    /// Bytes of each disk.
    pub disk_bytes: u64,
    /// How many disks there are, those that stand by included.
    pub disk_count: usize,
    /// Unit of atomicity of the disks.
    pub atom_bytes: u32,
    /// Usual time of an I/O.
    pub latency_ns: u64,
    /// Whether the thresholds of the volumes are so small that they are crossed.
    pub has_small_thresholds: bool,
    /// Clients.
    pub clients: usize,
    /// Requests of all clients in all lives.
    pub requests: u64,
    /// Longest pause of a client before a request.
    pub think_ns_max: u64,
    /// Of 100 requests that many are flushes.
    pub flushes_of_100: u64,
    /// Speed of background work under load.
    pub pace_bytes_per_s: u64,
    /// What is to happen, by request.
    pub wishes: Vec<(u64, Wish)>,
    /// Lives, with the pause behind each; the last one goes on to the end.
    pub lives: Vec<(End, Pause)>,
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
            seed,
            format,
            shape,
            volume_bytes,
            disk_bytes,
            disk_count,
            atom_bytes: *rng.pick(&[512, 512, 4096]),
            latency_ns: *rng.pick(&[5_000, 50_000, 50_000, 500_000]),
            has_small_thresholds: Rng::new(seed).fork(43).below(256) < 240,
            clients: rng.between(1, 6) as usize,
            requests: rng.between(60, 240),
            think_ns_max: *rng.pick(&[0, 0, 0, 2_000_000, 200_000_000]),
            flushes_of_100: *rng.pick(&[7, 7, 1, 0]),
            pace_bytes_per_s: *rng.pick(&[32 << 20, 4 << 20, 512 << 10, 64 << 10]),
            wishes: Vec::new(),
            lives: Vec::new(),
        };
        plan.draw_wishes(&mut rng);
        plan.draw_lives(&mut rng);
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

    fn draw_wishes(&mut self, rng: &mut Rng) {
        let members = self.member_count() as u64;
        for _ in 0..rng.between(0, 6) {
            let disk = rng.below(members + 1) as u32;
            let fault = self.draw_fault(rng);
            let at = rng.below(self.requests);
            self.wishes.push((at, Wish::Fault { disk, fault }));
        }
        for _ in 0..rng.between(0, 4) {
            let disk = rng.below(members) as u32;
            let wish = match rng.below(8) {
                0..=1 => Wish::Fail { disk },
                2..=4 => Wish::Add,
                5 => Wish::Replace { disk },
                _ => Wish::Scrub,
            };
            self.wishes.push((rng.below(self.requests), wish));
        }
        for _ in 0..rng.below(3) {
            let length_ns = *rng.pick(&RESTS_NS);
            let at = rng.below(self.requests);
            self.wishes.push((at, Wish::Rest { length_ns }));
        }
        self.wishes.sort_by_key(|(request, _)| *request);
    }

    fn draw_fault(&self, rng: &mut Rng) -> Fault {
        let sectors = self.disk_bytes / 512;
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
        let mut left = self.requests;
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
                End::Stop { requests }
            } else {
                let most = *rng.pick(&[60, 400, 3000]);
                let rest_ns = if rng.chance(1, 4) {
                    *rng.pick(&RESTS_NS) + rng.below(200_000_000)
                } else {
                    0
                };
                End::Crash {
                    requests,
                    polls: rng.below(most),
                    rest_ns,
                    kind,
                }
            };
            let pause = self.draw_pause(rng);
            self.lives.push((end, pause));
            if rng.chance(1, 4) {
                // Crashes while the last one is being got over, up to three deep.
                for _ in 0..rng.between(1, 3) {
                    let most = *rng.pick(&[40, 400]);
                    let polls = rng.below(most);
                    let end = End::Crash {
                        requests: 0,
                        polls,
                        rest_ns: 0,
                        kind,
                    };
                    self.lives.push((end, Pause::default()));
                }
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
        write!(f, "seed {} of {}: ", self.seed, self.format.name())?;
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
            self.volume_bytes, self.clients, self.requests
        )?;
        for (request, wish) in &self.wishes {
            match wish {
                Wish::Fault { disk, fault } => {
                    writeln!(f, "request {request:>6}  disk {disk:>2}  {fault}")?
                }
                other => writeln!(f, "request {request:>6}  {other:?}")?,
            }
        }
        for (number, (end, pause)) in self.lives.iter().enumerate() {
            writeln!(f, "life {number}: {end:?}, {pause:?}")?;
        }
        Ok(())
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
