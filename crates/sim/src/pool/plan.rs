//! What a seed of a pool does: its groups, its volumes, what an administrator does between lives, and what happens
//! meanwhile.
//!
//! Invariant: everything follows from the seed; seeds of other subjects draw from other streams.

use std::fmt;

use plexum_pool::GroupKind;
use plexum_pool::mutant::Mutant;

use super::deed::{Deed, draw_change, draw_deed};
use crate::course::{Course, LifeEnd, Load, RESTS_NS, Shortage, Wish, draw_nested};
use plexum_disks::disk::CrashKind;
use plexum_disks::fault::Fault;
use plexum_disks::rng::Rng;

/// Stream of the plans, apart from those of other subjects.
const STREAM: u64 = 0x706f_6f6c;

/// Stream of what changes how a pool is put together.
const CHANGES_STREAM: u64 = 0x6368_616e;

/// Stream of the members that are taken back while the pool is served.
const RETURNS_STREAM: u64 = 0x6261_636b;

/// Stream of what is changed while the pool is served.
const SERVED_STREAM: u64 = 0x7365_7276;

/// Stream of the members that are taken offline while the pool is served, and come online there.
const OFFLINE_STREAM: u64 = 0x6f66_666c;

/// Bytes of every disk: the least that a member may have.
const DISK_BYTES: u64 = plexum_pool::MEMBER_BYTES_MIN;

/// Where data begin on a member, and how much of it is used at all, as far as faults fall.
const DATA_BYTES: std::ops::Range<u64> = 4 << 20..24 << 20;

/// Disks that nobody has, for who is replaced, and for what the pool gets besides.
const IDLE_DISKS: usize = 2;

/// How members are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// One member, with all data once.
    Single,
    /// Two sides.
    Mirror2,
    /// Three sides.
    Mirror3,
    /// One parity.
    RaidZ1,
    /// Two parities.
    RaidZ2,
    /// Three parities.
    RaidZ3,
    /// Two mirrors.
    TwoMirrors,
    /// A mirror and a RAID-Z group with one parity.
    Mixed,
}

impl Layout {
    /// All of them.
    pub const ALL: [Layout; 8] = [
        Layout::Single,
        Layout::Mirror2,
        Layout::Mirror3,
        Layout::RaidZ1,
        Layout::RaidZ2,
        Layout::RaidZ3,
        Layout::TwoMirrors,
        Layout::Mixed,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layout::Single => "pool single",
            Layout::Mirror2 => "pool mirror 2",
            Layout::Mirror3 => "pool mirror 3",
            Layout::RaidZ1 => "pool raidz1",
            Layout::RaidZ2 => "pool raidz2",
            Layout::RaidZ3 => "pool raidz3",
            Layout::TwoMirrors => "pool 2 mirrors",
            Layout::Mixed => "pool mirror raidz1",
        }
    }

    fn groups(self, rng: &mut Rng) -> Vec<(GroupKind, usize)> {
        let mut raidz = |parities: u8| {
            let most = u64::from(parities) + 3;
            let count = rng.between(u64::from(parities) + 1, most);
            (GroupKind::RaidZ(parities), (count as usize).max(3))
        };
        let mirror = (GroupKind::Mirror, 2);
        match self {
            Layout::Single => vec![(GroupKind::Single, 1)],
            Layout::Mirror2 => vec![mirror],
            Layout::Mirror3 => vec![(GroupKind::Mirror, 3)],
            Layout::RaidZ1 => vec![raidz(1)],
            Layout::RaidZ2 => vec![raidz(2)],
            Layout::RaidZ3 => vec![raidz(3)],
            Layout::TwoMirrors => vec![mirror, mirror],
            Layout::Mixed => vec![mirror, raidz(1)],
        }
    }
}

/// A volume that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Its size.
    pub size_bytes: u64,
}

/// What happens between two lives, besides disks that come back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// The member of this slot is not there in the next life.
    pub hides: Option<usize>,
    /// What the administrator does before the next life serves.
    pub deeds: Vec<Deed>,
}

/// The whole plan of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the world goes by.
    pub course: Course,
    /// How members are put together.
    pub layout: Layout,
    /// Kind and number of members of each group.
    pub groups: Vec<(GroupKind, usize)>,
    /// Sectors of the pool, as a power of two.
    pub ashift: u32,
    /// The volumes that clients use.
    pub volumes: Vec<VolumePlan>,
    /// A commit is due when so much waits.
    pub pending_bytes_max: u64,
    /// The pauses behind the first lives.
    pub pauses: Vec<Pause>,
    /// A deliberate bug, in the hunt for them.
    pub bug: Option<Mutant>,
}

impl Plan {
    /// The plan of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed).fork(STREAM);
        let layout = *rng.pick(&Layout::ALL);
        let groups = layout.groups(&mut rng);
        let members: usize = groups.iter().map(|(_, count)| count).sum();
        let volumes = (0..rng.between(1, 3)).map(|_| draw_volume(&mut rng));
        let volumes = volumes.collect();
        let mut plan = Self {
            layout,
            groups,
            ashift: *rng.pick(&[9, 12, 12]),
            volumes,
            pending_bytes_max: *rng.pick(&[64 << 10, 512 << 10, 2 << 20, 128 << 20]),
            pauses: Vec::new(),
            bug: None,
            course: Course {
                seed,
                disk_bytes: DISK_BYTES,
                disk_count: members + IDLE_DISKS,
                atom_bytes: *rng.pick(&[512, 512, 4096]),
                latency_ns: *rng.pick(&[5_000, 50_000, 500_000]),
                flush_times: *rng.pick(&[1, 1, 8]),
                has_zeroing_trim: false,
                has_small_thresholds: false,
                clients: rng.between(1, 4) as usize,
                requests: rng.between(30, 120),
                think_ns_max: *rng.pick(&[0, 0, 2_000_000]),
                flushes_of_100: *rng.pick(&[7, 7, 20, 1]),
                pace_bytes_per_s: 32 << 20,
                load: Load {
                    reads_of_93: *rng.pick(&[40, 20]),
                    long_of_128: 2,
                    is_narrow: rng.chance(1, 4),
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
        // What is left of the requests, then everything that is broken is mended, and everything compared.
        let rest = LifeEnd::Stop { requests: u64::MAX };
        plan.course
            .lives
            .extend([rest, LifeEnd::Mend, LifeEnd::Finale]);
        plan
    }

    /// Number of members.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.groups.iter().map(|(_, count)| count).sum()
    }

    /// Name of a volume.
    #[must_use]
    pub fn volume_name(volume: usize) -> String {
        format!("tank/v{volume}")
    }

    /// What happens behind a life.
    #[must_use]
    pub fn pause_behind(&self, life: usize) -> Pause {
        self.pauses.get(life).cloned().unwrap_or_default()
    }

    fn draw_wishes(&mut self, rng: &mut Rng) {
        let members = self.member_count() as u64;
        let requests = self.course.requests;
        let mut wishes = Vec::new();
        for _ in 0..rng.between(0, 4) {
            let slot = rng.below(members) as usize;
            let fault = draw_fault(rng);
            wishes.push((rng.below(requests), Wish::Fault { slot, fault }));
        }
        for _ in 0..rng.below(2) {
            wishes.push((rng.below(requests), Wish::Return));
        }
        if rng.chance(1, 4) {
            let length_ns = *rng.pick(&RESTS_NS);
            wishes.push((rng.below(requests), Wish::Rest { length_ns }));
        }
        // From a stream of its own, so that everything else of a seed stays as it was.
        let mut returns = Rng::new(self.course.seed).fork(RETURNS_STREAM);
        for _ in 0..returns.below(4) {
            let at = returns.below(requests);
            wishes.extend(returns.chance(1, 2).then_some((at, Wish::Return)));
            wishes.push((at + returns.below(8), Wish::Add));
        }
        let mut changes = Rng::new(self.course.seed).fork(SERVED_STREAM);
        for _ in 0..changes.below(3) {
            let at = changes.below(requests);
            let slot = changes.below(members) as usize;
            let wish = match changes.chance(2, 3) {
                true => Wish::Replace { slot },
                false => Wish::Scrub,
            };
            wishes.push((at, wish));
        }
        let mut offline = Rng::new(self.course.seed).fork(OFFLINE_STREAM);
        if offline.chance(1, 2) {
            // Two of them, as near to one another as two commands.
            let (gone, back) = (offline.below(requests), offline.between(1, 40));
            for _ in 0..offline.between(1, 3) {
                let slot = offline.below(members) as usize;
                wishes.push((gone + offline.below(3), Wish::Fail { slot }));
                wishes.push((gone + back + offline.below(4), Wish::Add));
            }
        }
        wishes.sort_by_key(|(request, _)| *request);
        self.course.wishes = wishes;
    }

    fn draw_lives(&mut self, rng: &mut Rng) {
        let mut changes = Rng::new(self.course.seed).fork(CHANGES_STREAM);
        let mut left = self.course.requests;
        for _ in 0..rng.between(1, 4) {
            let requests = match rng.below(4) {
                0 => rng.below(4),
                _ => rng.below(left / 2 + 1),
            };
            let requests = requests.min(left);
            left -= requests;
            let cut = CrashKind::PowerCut;
            let kind = *rng.pick(&[cut, cut, cut, CrashKind::Kill]);
            let end = match rng.chance(1, 5) {
                true => LifeEnd::Stop { requests },
                false => LifeEnd::Crash {
                    requests,
                    stage: None,
                    polls: {
                        let most = *rng.pick(&[20, 100, 400, 2000]);
                        rng.below(most)
                    },
                    rest_ns: 0,
                    kind,
                },
            };
            self.course.lives.push(end);
            let hides = rng.chance(1, 4);
            let hides = hides.then(|| rng.below(self.member_count() as u64) as usize);
            let deeds = match rng.chance(1, 3) {
                true => (0..rng.between(1, 3))
                    .flat_map(|_| {
                        let members = self.member_count();
                        let deed = draw_deed(rng, (self.volumes.len(), members));
                        [Some(deed), draw_change(&mut changes, members)]
                    })
                    .flatten()
                    .collect(),
                false => Vec::new(),
            };
            self.pauses.push(Pause { hides, deeds });
            if rng.chance(1, 3) {
                self.course.lives.extend(draw_nested(rng, kind));
            }
            self.pauses
                .resize(self.course.lives.len(), Pause::default());
        }
    }
}

fn draw_volume(rng: &mut Rng) -> VolumePlan {
    let block_bytes = *rng.pick(&[4096, 4096, 8192, 16 << 10, 64 << 10, 128 << 10, 512]);
    let size_bytes = match block_bytes {
        512 => 256 << 10,
        _ => *rng.pick(&[512 << 10, 1 << 20]),
    };
    VolumePlan {
        block_bytes,
        size_bytes,
    }
}

fn draw_fault(rng: &mut Rng) -> Fault {
    let start = rng.between(DATA_BYTES.start / 512, DATA_BYTES.end / 512);
    // A few places are met more often than all others: the beginnings of metaslabs and labels.
    let start = match rng.below(4) {
        0 => DATA_BYTES.start / 512 + rng.below(4096),
        1 => rng.below(1024),
        _ => start,
    };
    let length = *rng.pick(&[1, 8, 64, 2048]);
    let range = start * 512..(start + length) * 512;
    match rng.below(20) {
        0..=2 => Fault::ReadError(range),
        3..=4 => Fault::WriteError(range),
        5..=6 => Fault::TornWrite(range),
        7 => Fault::FlushError { count: 1 },
        8..=11 => Fault::Vanish,
        12..=14 => Fault::BitFlip {
            offset_bytes: range.start + rng.below(512),
            mask: 1 << rng.below(8),
        },
        15..=16 => Fault::LostWrite(range),
        17..=18 => Fault::MisdirectedWrite {
            range,
            shift_bytes: (rng.below(1 << 22) as i64 - (1 << 21)) / 512 * 512,
        },
        _ => Fault::Slow {
            factor: rng.between(2, 200) as u32,
        },
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, groups) = (self.course.seed, &self.groups);
        writeln!(f, "seed {seed} of pool: {groups:?}, ashift {}", self.ashift)?;
        writeln!(f, "volumes {:?}", self.volumes)?;
        writeln!(
            f,
            "{} clients, {} requests, a commit at {} bytes",
            self.course.clients, self.course.requests, self.pending_bytes_max
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
        self.layout.name().to_owned()
    }

    fn rng(&self) -> Rng {
        Rng::new(self.course.seed).fork(STREAM)
    }

    fn draw_volume(&self, rng: &mut Rng) -> usize {
        rng.below(self.volumes.len() as u64) as usize
    }
}
