//! What every seed decides beforehand, whatever is built of the disks: the disks, the clients, what happens at which
//! request, and how each life ends.
//!
//! Invariants:
//! - a plan is made before the run, is a pure function of its seed, and prints as text;
//! - it holds wishes: whether a fault may strike now is decided at its moment by the rules of the subject.

use std::fmt;
use std::time::Duration;

use plexum_disks::disk::{CrashKind, DiskShape};
use plexum_disks::fault::Fault;
use plexum_disks::rng::Rng;
use plexum_engine::threshold::Thresholds;

/// Rests after which the array is being marked clean, or bits are being cleared (after 0.2 and 5 to 10 seconds).
pub(crate) const RESTS_NS: [u64; 6] = [
    50_000_000,
    150_000_000,
    250_000_000,
    600_000_000,
    5_000_000_000,
    11_000_000_000,
];

/// The stage of a life that has not begun to serve, and writes: a replay, a commit.
pub(crate) const START_WRITES: &str = "start writes";

/// A resync flushes what it has made equal. Clients of such a life rest until then: each of their reads would flush as
/// well.
pub(crate) const OWN_FLUSH: &str = "own flush";

/// The whole plan of a seed: its course, and what is built.
pub trait Plan: Clone + fmt::Display + 'static {
    /// What the world goes by.
    fn course(&self) -> &Course;

    /// The same, to be made smaller.
    fn course_mut(&mut self) -> &mut Course;

    /// Takes a life out.
    fn remove_life(&mut self, at: usize) {
        self.course_mut().lives.remove(at);
    }

    /// What is built, as reports call it.
    fn kind(&self) -> String;

    /// What the world draws from.
    fn rng(&self) -> Rng {
        Rng::new(self.course().seed)
    }

    /// The volume that a request goes to.
    fn draw_volume(&self, _rng: &mut Rng) -> usize {
        0
    }
}

/// Something done at a certain request. Who is meant by a slot is said by the subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A fault of the disk in `slot`.
    Fault {
        /// Slot whose disk is struck.
        slot: usize,
        /// What happens; ranges count from the start of the data area.
        fault: Fault,
    },
    /// A vanished or hung disk comes back.
    Return,
    /// One cable too many falls out: more disks than the organisation tolerates vanish at once, until the next start.
    Cable {
        /// First slot; the following ones go too.
        slot: usize,
    },
    /// Declare the member of the slot failed.
    Fail {
        /// Slot.
        slot: usize,
    },
    /// Give the array a disk when it lacks one.
    Add,
    /// Replace the member of the slot.
    Replace {
        /// Slot.
        slot: usize,
    },
    /// Scrub.
    Scrub,
    /// All clients rest, so long that the array may go clean and clear bits.
    Rest {
        /// How long, in nanoseconds.
        length_ns: u64,
    },
    /// Give the array this disk, when it is not part of it.
    Give {
        /// Number of the disk.
        disk: u32,
    },
    /// A fault that waits until some request is in a stage, and strikes there.
    At {
        /// Name of the stage.
        stage: &'static str,
        /// Slot whose disk is struck, or the next one where that may be.
        slot: usize,
        /// What happens; ranges count from the start of the data area.
        fault: Fault,
    },
}

/// How a life of the volume ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeEnd {
    /// It crashes: once this many requests have begun in this life, the clients have rested, and then this many polls
    /// were made.
    Crash {
        /// Requests begun in this life.
        requests: u64,
        /// How long the clients rest before it, in nanoseconds; 0: they do not.
        rest_ns: u64,
        /// It waits until some request is in the stage of this name, if any ever is.
        stage: Option<&'static str>,
        /// Polls after that.
        polls: u64,
        /// What happens to the disks.
        kind: CrashKind,
    },
    /// It is stopped in order after this many requests of this life.
    Stop {
        /// Requests begun in this life.
        requests: u64,
    },
    /// No life of its own: somebody else has the array in between.
    Foreign {
        /// Decides what it does.
        salt: u64,
    },
    /// All faults end before it. It becomes whole, is read and stopped in order.
    Mend,
    /// It goes on to the end of the run.
    Finale,
}

/// What becomes of a crash that waits for more requests than are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// It waits until everything was answered.
    Rest,
    /// It comes with the last request.
    Last,
}

/// Crashes while the last one is being got over, up to three deep.
pub(crate) fn draw_nested(rng: &mut Rng, kind: CrashKind) -> Vec<LifeEnd> {
    let count = rng.between(1, 3);
    let crash = |_| {
        let most = *rng.pick(&[40, 400]);
        LifeEnd::Crash {
            requests: 0,
            rest_ns: 0,
            stage: None,
            polls: rng.below(most),
            kind,
        }
    };
    (0..count).map(crash).collect()
}

/// What clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Reads among 93 requests that are no flushes.
    pub reads_of_93: u64,
    /// Most sectors of a long request, in units of 128.
    pub long_of_128: u64,
    /// Only a few sectors at a time, at any sector, in few places: requests meet inside of blocks of 4 KiB.
    pub is_narrow: bool,
    /// With `is_narrow`: nearly all in one place, the others seldom.
    pub is_skewed: bool,
    /// Clients read forward, and writes fall close before them.
    pub has_streams: bool,
    /// Every write of data is durable when it is answered.
    pub is_durable: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            reads_of_93: 44,
            long_of_128: 4,
            is_narrow: false,
            is_skewed: false,
            has_streams: false,
            is_durable: false,
        }
    }
}

/// What the world goes by.
#[derive(Clone, Debug)]
pub struct Course {
    /// The seed.
    pub seed: u64,
    /// Size of every disk in bytes.
    pub disk_bytes: u64,
    /// Number of disks, unused ones included.
    pub disk_count: usize,
    /// Usual latency of a disk.
    pub latency_ns: u64,
    /// A flush takes so many times as long as another I/O: what happens while one is under way is met where it takes
    /// long.
    pub flush_times: u64,
    /// Whether trims of the disks give zeroes.
    pub has_zeroing_trim: bool,
    /// Unit of atomicity of the disks in bytes.
    pub atom_bytes: u32,
    /// Whether the thresholds of the volume are crossed in a world of 1 MiB that lasts milliseconds.
    pub has_small_thresholds: bool,
    /// Speed of background work while clients are at work, in bytes a second.
    pub pace_bytes_per_s: u64,
    /// Most time a client thinks between two requests, in nanoseconds.
    pub think_ns_max: u64,
    /// Flushes among 100 requests.
    pub flushes_of_100: u64,
    /// Clients at work at the same time.
    pub clients: usize,
    /// Requests of the whole run.
    pub requests: u64,
    /// What clients ask for.
    pub load: Load,
    /// Wishes by request, ascending.
    pub wishes: Vec<(u64, Wish)>,
    /// Lives, one after another; the last one is the finale.
    pub lives: Vec<LifeEnd>,
    /// What becomes of a crash that waits for more requests than are left.
    pub shortage: Shortage,
    /// Kind of the fault that must have struck in a life before it crashes.
    pub aim: Option<&'static str>,
}

impl Course {
    /// What all disks are like.
    pub(crate) fn disk_shape(&self) -> DiskShape {
        DiskShape {
            size_bytes: self.disk_bytes,
            sector_bytes: 512,
            atom_bytes: self.atom_bytes,
            has_zeroing_trim: self.has_zeroing_trim,
            latency_ns: self.latency_ns,
            flush_times: self.flush_times,
        }
    }

    /// Where the volume does something else.
    pub(crate) fn thresholds(&self) -> Thresholds {
        if !self.has_small_thresholds {
            return Thresholds::default();
        }
        // With less than a stretch nothing is kept: then it is the want of room that is met.
        let ahead_bytes_max = *Rng::new(self.seed)
            .fork(44)
            .pick(&[300_000, 300_000, 100_000]);
        Thresholds {
            piece_bytes: 16_384,
            checkpoint_bytes_min: 4096,
            checkpoint_period_min: Duration::from_micros(20),
            hedge_samples_min: 8,
            hedge_delay_min: Duration::from_micros(20),
            rotational_hedge_delay_min: Duration::from_micros(20),
            proven_ranges_max: 4,
            write_failures_max: 3,
            log_copied_bytes_max: 16_384,
            log_kept_bytes_max: 65_536,
            ahead_bytes_max,
            drive_slots_max: 3,
            migration_step_bytes: 16_384,
            zero_slice_bytes: 8192,
        }
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (request, wish) in &self.wishes {
            match wish {
                Wish::Fault { slot, fault } => {
                    writeln!(f, "request {request:>6}  slot {slot:>2}  {fault}")?
                }
                other => writeln!(f, "request {request:>6}  {other:?}")?,
            }
        }
        for (number, life) in self.lives.iter().enumerate() {
            writeln!(f, "life {number}: {life:?}")?;
        }
        Ok(())
    }
}
