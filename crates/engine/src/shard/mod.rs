//! One volume on several cores (W12). The *home* is the volume as it always was: it owns superblocks, bitmap, bad
//! blocks, cursors and all that is seldom. Each further shard is a *satellite* on a thread of its own, which serves
//! what is ordinary: reads, and writes to those slabs of the volume that are its own.
//!
//! A satellite may do only what the home has lent it, and decides nothing:
//! - the *door*: while it is open every slot has an active member and nothing is in doubt, so that whatever is read
//!   then holds all that was answered before. The home shuts it before it answers anything that a member has missed;
//! - a *slab*: the lock of its rows or of its range at the home is held for the satellite, which locks inside of it for
//!   itself. Whoever wants that lock (rebuild, scrub, a request of the home) gets the slab called back first;
//! - a *mark*: the array is dirty and a region's bit is durable (W1) until the satellite gives the mark back.
//!
//! Whatever does not go smoothly ends at the home. A satellite whose member fails lets the requests under way end as
//! any volume does, on the survivors, but answers none of them: it gives everything back, says what it has learned, and
//! asks the home to do them once more, which makes the failure durable before it answers (W3, W4).
//!
//! Invariants:
//! - a new set of members is used only when every satellite has given back what it had under the one before (W12);
//! - a member comes back only when no I/O of any satellite is under way on it (W9);
//! - messages of one side arrive in the order they were sent; what is given back arrives before the request that
//!   failed.

mod doorkeeper;
mod home;
mod loans;
mod satellite;
mod session;
mod slabs;

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plexum_exec::mailbox::{Mailbox, Reply, Sender};

use crate::balance::Policy;
use crate::drive::DriveCounters;
use crate::mutant::DeliberateBug;
use crate::state::{FailCause, MemberId};
use plexum_block::buf::{Buf, Rope};
use plexum_block::device::{Fua, IoError, ZeroMode};
use plexum_layout::Geometry;

pub(crate) use home::Sharing;
pub use home::Spawn;
pub use satellite::{Opener, Satellite, ShardCounters};
pub(crate) use slabs::Slabs;

/// Most shards of a volume, the home counted.
pub const SHARDS_MAX: usize = 64;

/// Whether satellites may serve, seen by all threads. 0: it is shut; otherwise the number of this opening.
#[derive(Default)]
pub(crate) struct Door {
    epoch: AtomicU64,
}

impl Door {
    /// Number of the present opening, if it is open.
    pub(crate) fn epoch(&self) -> Option<u64> {
        let epoch = self.epoch.load(Ordering::SeqCst);
        (epoch > 0).then_some(epoch)
    }

    fn set(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::SeqCst);
    }
}

/// A request that is carried out by another shard than the one that received it.
pub(crate) struct Errand {
    request: Request,
    reply: Reply<Result<Rope, IoError>>,
}

/// What a volume is when other cores serve it too; nothing, otherwise.
#[derive(Default)]
pub(crate) struct Division {
    /// It is the home: what it shares with satellites.
    pub(crate) sharing: OnceCell<Rc<Sharing>>,
}

/// What is asked; offsets and lengths in bytes of the volume.
#[derive(Clone)]
pub(crate) enum Request {
    Read {
        offset_bytes: u64,
        length_bytes: usize,
    },
    Write {
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
    },
    Zero {
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
        fua: Fua,
    },
    Flush,
}

/// What satellites tell the home. Each comes with the number of the satellite.
pub(crate) enum ToHome {
    /// May I write in this slab?
    Lend { slab: u32, epoch: u64 },
    /// Nothing of mine is under way in it.
    SlabBack { slab: u32 },
    /// May I write in this region?
    Mark { region: usize, epoch: u64 },
    /// Nothing of mine is under way in them.
    MarksBack { regions: Vec<usize> },
    /// I cannot serve at this opening.
    Decline { epoch: u64 },
    /// All is given back, and this is what I have learned.
    AllBack { epoch: u64, learned: Learned },
    /// No I/O of mine is under way on any member.
    Drained { epoch: u64 },
    /// Please do this.
    Serve(Errand),
}

/// What a satellite has learned of the members, by their numbers at the home.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    /// Members that failed.
    failures: Vec<(MemberId, FailCause)>,
    /// Ranges of their data that do not hold what they should.
    bad: Vec<(MemberId, Range<u64>)>,
    /// Ranges of the sync space in which they may differ.
    doubt: Vec<Range<u64>>,
}

/// What the home tells a satellite.
pub(crate) enum ToShard {
    /// The door is open.
    Open(Opening),
    /// It is shut: give everything back.
    Shut,
    /// A slab is lent, or not.
    Lent {
        slab: u32,
        epoch: u64,
        is_lent: bool,
    },
    /// A region is marked, or not.
    Marked {
        region: usize,
        epoch: u64,
        is_marked: bool,
    },
    /// Somebody wants this slab: give it back.
    Recall { slab: u32 },
    /// Please do this.
    Serve(Errand),
}

/// What a satellite has to know of one opening.
#[derive(Clone)]
pub(crate) struct Opening {
    epoch: u64,
    members: Vec<Lent>,
    sync_bytes: u64,
    region_bytes: u64,
    /// Whether writes may be served too.
    takes_writes: bool,
    /// Whether bad blocks can be recorded.
    has_bad_lists: bool,
    /// A deliberate bug.
    bug: DeliberateBug,
    balance: Policy,
    member_timeout: Duration,
}

/// A member that satellites may use.
#[derive(Clone)]
pub(crate) struct Lent {
    id: MemberId,
    slot: u16,
    is_write_mostly: bool,
    name: String,
    /// By which a satellite opens it for itself (`Device::handle`).
    handle: u64,
    data: Range<u64>,
}

/// What members have done for one satellite, as it last said.
#[derive(Clone, Default)]
pub(crate) struct MemberTally(Arc<Mutex<Vec<(MemberId, DriveCounters)>>>);

impl MemberTally {
    fn lock(&self) -> MutexGuard<'_, Vec<(MemberId, DriveCounters)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What one member has done.
    fn of(&self, member: MemberId) -> DriveCounters {
        let all = self.lock();
        let own = all.iter().find(|(known, _)| *known == member);
        own.map_or_else(DriveCounters::default, |(_, counters)| *counters)
    }

    /// From now on these have done so much.
    fn set(&self, members: impl Iterator<Item = (MemberId, DriveCounters)>) {
        let mut all = self.lock();
        for (member, counters) in members {
            match all.iter_mut().find(|(known, _)| *known == member) {
                Some((_, own)) => *own = counters,
                None => all.push((member, counters)),
            }
        }
    }
}

/// What a satellite is made of; goes to its thread.
pub struct ShardSeed {
    number: usize,
    name: String,
    geometry: Geometry,
    slabs: Slabs,
    tally: MemberTally,
    door: Arc<Door>,
    home: Sender<(usize, ToHome)>,
    /// By number; the home has none.
    peers: Vec<Option<Sender<ToShard>>>,
    inbox: Mailbox<ToShard>,
}

impl ShardSeed {
    /// Its number, from 1.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }
}
