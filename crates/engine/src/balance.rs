//! Read balancing: which copy answers a read. Pure functions of (policy state, member statistics, request).
//!
//! Invariants:
//! - only candidates are chosen; a write-mostly member only when there is no other candidate;
//! - nothing is random and no clock is read: the same calls give the same choices;
//! - `in_flight` of a member is the number of its I/Os that began and did not finish.
//!
//! Who calls what: for each read `pick`, which counts the read itself; for every other member I/O `started`; at the end
//! of every member I/O `finished`. "The list" is the members in list order: descending priority for gmirror,
//! ascending slots for md.
//!
//! Source: freebsd-geom.md 1.8 (round-robin, prefer, split, load, load-7), cli.md "Settled details" (nearest), lab.md
//! section 10 (adaptive); checked against the traces recorded from FreeBSD.

mod adaptive;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub(crate) use adaptive::AHEAD_BYTES_MAX;
use adaptive::Adaptive;
pub use adaptive::Learned;
use plexum_block::clock::Moment;
use plexum_layout::CopyPlace;

/// Reads of at most this many bytes are not split when no slice is given: gmirror's default.
pub const SLICE_BYTES_DEFAULT: u64 = 4096;
/// `load`: a head this near (bytes) counts as close.
const NEAR_BYTES: u64 = 1 << 20;
/// `load`: the weight of one request in flight.
const LOAD_SCALE: i64 = 256;
/// `load-7`: a member that got no read for this many whole seconds is tried.
const IDLE_PROBE_SECONDS: u64 = 2;
const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// How reads are spread over copies. Can be changed while the volume is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// In turn.
    RoundRobin,
    /// Always the first of the list.
    Prefer,
    /// Reads longer than the slice are cut in as many parts as there are copies; others in turn.
    Split {
        /// Longest read in bytes that stays whole.
        slice_bytes: u64,
    },
    /// FreeBSD 7: lowest latency of the last finished I/O, idle members after 2 s.
    Load7,
    /// FreeBSD 8: moving load with a bonus for the head position.
    Load,
    /// The kernel md way: sequential streams stay, then fewest pending (SSD) or nearest head (rotating).
    Nearest,
    /// Least expected completion time, learned.
    Adaptive {
        /// Whether what streams will ask for is read with what they ask for (`adaptive:ahead`).
        reads_ahead: bool,
    },
}

/// A word that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is no balance policy: round-robin, prefer, split, split:SIZE, load, load-7, nearest, adaptive or adaptive:ahead"
)]
pub struct UnknownPolicy(pub String);

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::RoundRobin => "round-robin",
            Policy::Prefer => "prefer",
            Policy::Split { slice_bytes } if slice_bytes.is_multiple_of(1024) => {
                return write!(f, "split:{}K", slice_bytes / 1024);
            }
            Policy::Split { slice_bytes } => return write!(f, "split:{slice_bytes}"),
            Policy::Load7 => "load-7",
            Policy::Load => "load",
            Policy::Nearest => "nearest",
            Policy::Adaptive { reads_ahead: false } => "adaptive",
            Policy::Adaptive { reads_ahead: true } => "adaptive:ahead",
        })
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    /// The names of cli.md; `split:SIZE` takes bytes or `K`, `M`, `s` (sectors of 512 bytes).
    fn from_str(word: &str) -> Result<Policy, UnknownPolicy> {
        Ok(match word {
            "round-robin" => Policy::RoundRobin,
            "prefer" => Policy::Prefer,
            "split" => Policy::Split {
                slice_bytes: SLICE_BYTES_DEFAULT,
            },
            "load-7" | "load7" => Policy::Load7,
            "load" => Policy::Load,
            "nearest" => Policy::Nearest,
            "adaptive" => Policy::Adaptive { reads_ahead: false },
            "adaptive:ahead" => Policy::Adaptive { reads_ahead: true },
            _ => {
                let size = word.strip_prefix("split:").and_then(parse_size_bytes);
                Policy::Split {
                    slice_bytes: size.ok_or_else(|| UnknownPolicy(word.to_owned()))?,
                }
            }
        })
    }
}

/// `4096`, `64K`, `1M`, `8s`; at least one sector.
fn parse_size_bytes(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match word[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "s" => 512,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        _ => return None,
    };
    digits
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)
        .filter(|bytes| *bytes >= 512)
}

/// What is constant about a member while it is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberTraits {
    /// Read only when nobody else can answer.
    pub is_write_mostly: bool,
    /// Whether seeks cost time.
    pub is_rotational: bool,
}

/// A read that some copies could answer.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Where it begins in the volume, in bytes.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u64,
    /// Which copies turn together: 0 for RAID-1, the slot of the first copy for RAID-10.
    pub group: usize,
    /// How many bytes behind it could be read with it, as far as the caller knows; asked where that is wanted. `None`:
    /// none.
    pub ahead_bytes_max: Option<&'a dyn Fn() -> u64>,
    /// Now.
    pub now: Moment,
}

/// The choice for one read: which member reads what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// One member reads everything.
    Whole(CopyPlace),
    /// One member reads everything, and these bytes behind it as well: what its stream will ask for.
    Ahead(CopyPlace, u64),
    /// The first candidates, as `pick` left them sorted, read this many bytes each, the last one the rest.
    Split {
        /// Bytes of each part but the last.
        piece_bytes: u64,
    },
}

/// A part of a read for one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The member's slot.
    pub slot: usize,
    /// Where to read on the member, in bytes.
    pub member_offset_bytes: u64,
    /// Where the part begins in the request, in bytes.
    pub request_offset_bytes: u64,
    /// Length in bytes, never 0.
    pub length_bytes: u64,
}

impl Pick {
    /// The parts in ascending order, with what is read ahead; `candidates` and `length_bytes` as they were after and in
    /// the call of `pick`.
    pub fn pieces<'a>(
        &self,
        candidates: &'a [CopyPlace],
        length_bytes: u64,
    ) -> impl Iterator<Item = Piece> + 'a {
        let (whole, piece_bytes, length_bytes) = match *self {
            Pick::Whole(candidate) => (Some(candidate), length_bytes, length_bytes),
            Pick::Ahead(candidate, ahead_bytes) => {
                let all_bytes = length_bytes + ahead_bytes;
                (Some(candidate), all_bytes, all_bytes)
            }
            Pick::Split { piece_bytes } => (None, piece_bytes, length_bytes),
        };
        let rest = if whole.is_some() { &[] } else { candidates };
        let starts = (0u64..).map(move |index| index * piece_bytes);
        whole
            .into_iter()
            .chain(rest.iter().copied())
            .zip(starts)
            .take_while(move |(_, start)| *start < length_bytes)
            .map(move |(candidate, start)| Piece {
                slot: candidate.slot,
                member_offset_bytes: candidate.member_offset_bytes + start,
                request_offset_bytes: start,
                length_bytes: piece_bytes.min(length_bytes - start),
            })
    }
}

/// What is remembered of one member.
#[derive(Clone, Copy, Debug, Default)]
struct MemberState {
    is_attached: bool,
    traits: MemberTraits,
    /// Position in the list.
    rank: usize,
    /// I/Os of any kind that have not finished.
    in_flight: u32,
    /// `load`: moving load.
    load: i64,
    /// End of the last read it was given.
    last_read_end_bytes: u64,
    /// End of the last I/O of any kind it was given.
    head_bytes: u64,
    /// `load-7`: latency of the last finished I/O.
    delay: Duration,
    /// `load-7`: when it last was given a read; first when it was attached.
    used: Moment,
}

/// Policy and statistics of one set of copies. One for each volume; slots number its members.
#[derive(Clone, Debug)]
pub struct Balancer {
    policy: Policy,
    /// Splits are multiples of this.
    sector_bytes: u64,
    /// Far layouts: the copy with the lowest offset lies on the fast outer tracks and gives strip-wise reading.
    prefers_low_offsets: bool,
    members: Vec<MemberState>,
    /// Round-robin: for each group the slot whose turn it is.
    cursors: Vec<Option<usize>>,
    adaptive: Adaptive,
}

impl Balancer {
    /// No member is attached yet; the list has ascending slots.
    #[must_use]
    pub fn new(policy: Policy, member_count: usize, sector_bytes: u32) -> Balancer {
        let member = |rank| MemberState {
            rank,
            ..MemberState::default()
        };
        Balancer {
            policy,
            sector_bytes: u64::from(sector_bytes.max(1)),
            prefers_low_offsets: false,
            members: (0..member_count).map(member).collect(),
            cursors: vec![None; member_count],
            adaptive: Adaptive::new(member_count),
        }
    }

    /// What `adaptive` has learned of a member; nothing under other policies.
    #[must_use]
    pub fn learned(&self, slot: usize) -> Option<Learned> {
        self.is_adaptive().then(|| self.adaptive.learned(slot))
    }

    fn is_adaptive(&self) -> bool {
        matches!(self.policy, Policy::Adaptive { .. })
    }

    /// Whether a read may be made longer: only then `Request::ahead_bytes_max` is looked at.
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        self.policy == Policy::Adaptive { reads_ahead: true }
    }

    /// A read at `offset_bytes` of the volume was served from what was read ahead of its stream, and asked no member.
    pub fn served_ahead(&mut self, offset_bytes: u64, now: Moment) {
        if self.is_adaptive() {
            self.adaptive.stepped(offset_bytes, now);
        }
    }

    /// The policy in use.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Changes the policy; statistics stay, turns start again.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.cursors.fill(None);
        // What is under way was chosen by another policy.
        self.adaptive = Adaptive::new(self.members.len());
    }

    /// `nearest` on far layouts: take the copy with the lowest offset instead of the nearest head.
    pub fn set_prefers_low_offsets(&mut self, prefers: bool) {
        self.prefers_low_offsets = prefers;
    }

    /// Sets the list order: `slots` names every slot once, first of the list first.
    pub fn set_order(&mut self, slots: &[usize]) {
        assert_eq!(slots.len(), self.members.len(), "every slot is named once");
        for (rank, slot) in slots.iter().enumerate() {
            self.members[*slot].rank = rank;
        }
        self.cursors.fill(None);
    }

    /// A member can be read from now on (it may also come back).
    pub fn attach(&mut self, slot: usize, traits: MemberTraits, now: Moment) {
        let rank = self.members[slot].rank;
        self.members[slot] = MemberState {
            is_attached: true,
            traits,
            rank,
            used: now,
            ..MemberState::default()
        };
        self.adaptive.forget(slot);
    }

    /// A member is gone: forgets everything about it. I/Os of it that finish later are not counted.
    pub fn detach(&mut self, slot: usize) {
        let rank = self.members[slot].rank;
        self.members[slot] = MemberState {
            rank,
            ..MemberState::default()
        };
        self.adaptive.forget(slot);
        for cursor in self
            .cursors
            .iter_mut()
            .filter(|cursor| **cursor == Some(slot))
        {
            *cursor = None;
        }
    }

    /// Begins a member I/O that did not come from `pick`: a write, a rebuild's I/O. A flush has length 0.
    pub fn started(&mut self, slot: usize, member_offset_bytes: u64, length_bytes: u64) {
        let member = &mut self.members[slot];
        member.in_flight += 1;
        if length_bytes > 0 {
            member.head_bytes = member_offset_bytes.saturating_add(length_bytes);
        }
    }

    /// Ends any member I/O, `latency` after it began.
    pub fn finished(&mut self, slot: usize, latency: Duration) {
        let member = &mut self.members[slot];
        if member.is_attached {
            // (an I/O of before a detach may end after the member came back)
            member.in_flight = member.in_flight.saturating_sub(1);
            member.delay = latency;
        }
    }

    /// A part of a read that `pick` chose is answered, well or not; `finished` is told as well.
    pub fn answered(&mut self, slot: usize, member_offset_bytes: u64, now: Moment) {
        if self.is_adaptive() {
            self.adaptive.answered(slot, member_offset_bytes, now);
        }
    }

    /// I/Os of the member that have not finished.
    #[must_use]
    pub fn in_flight(&self, slot: usize) -> u32 {
        self.members[slot].in_flight
    }

    /// Chooses who reads, and counts the read as begun. `candidates` are the readable copies, at least one; they are
    /// sorted here (into list order, write-mostly last): hand them on to `Pick::pieces` as they are then.
    pub fn pick(&mut self, request: &Request, candidates: &mut [CopyPlace]) -> Pick {
        assert!(!candidates.is_empty(), "there is a copy that may be read");
        let place_in_list = |c: &CopyPlace| {
            let member = &self.members[c.slot];
            (member.traits.is_write_mostly, member.rank)
        };
        if !candidates.is_sorted_by_key(place_in_list) {
            candidates.sort_unstable_by_key(place_in_list);
        }
        let is_eager = |c: &CopyPlace| !self.members[c.slot].traits.is_write_mostly;
        let eager = match candidates.last() {
            Some(last) if is_eager(last) => candidates.len(),
            _ => candidates.partition_point(is_eager),
        };
        let usable: &mut [CopyPlace] = if eager > 0 {
            &mut candidates[..eager]
        } else {
            &mut *candidates
        };
        let pick = match self.policy {
            Policy::Prefer => Pick::Whole(usable[0]),
            Policy::RoundRobin => Pick::Whole(self.pick_in_turn(request.group, usable)),
            Policy::Split { slice_bytes }
                if request.length_bytes <= slice_bytes || usable.len() == 1 =>
            {
                Pick::Whole(self.pick_in_turn(request.group, usable))
            }
            Policy::Split { .. } => {
                let share = request.length_bytes.div_ceil(usable.len() as u64);
                Pick::Split {
                    piece_bytes: share.next_multiple_of(self.sector_bytes),
                }
            }
            Policy::Load7 => Pick::Whole(self.pick_by_delay(request.now, usable)),
            Policy::Load => Pick::Whole(self.pick_by_load(usable)),
            Policy::Adaptive { .. } => self.adaptive.pick(request, usable, self.sector_bytes),
            Policy::Nearest => Pick::Whole(self.pick_nearest(usable)),
        };
        match pick {
            Pick::Whole(place) => {
                let end_bytes = place
                    .member_offset_bytes
                    .saturating_add(request.length_bytes);
                self.note_read(place.slot, end_bytes, request.now);
            }
            _ => {
                for piece in pick.pieces(usable, request.length_bytes) {
                    let end_bytes = piece.member_offset_bytes.saturating_add(piece.length_bytes);
                    self.note_read(piece.slot, end_bytes, request.now);
                }
            }
        }
        self.age_loads();
        pick
    }

    fn note_read(&mut self, slot: usize, end_bytes: u64, now: Moment) {
        let member = &mut self.members[slot];
        member.in_flight += 1;
        member.last_read_end_bytes = end_bytes;
        member.head_bytes = end_bytes;
        member.used = now;
    }

    /// After every read, for all members: the chosen one's increment is in already.
    fn age_loads(&mut self) {
        for member in &mut self.members {
            member.load = (i64::from(member.in_flight) * LOAD_SCALE + member.load * 7) / 8;
        }
    }

    fn pick_in_turn(&mut self, group: usize, usable: &[CopyPlace]) -> CopyPlace {
        let turn = self.cursors[group].map_or(0, |slot| self.members[slot].rank);
        let index = usable
            .iter()
            .position(|c| self.members[c.slot].rank >= turn)
            .unwrap_or(0);
        self.cursors[group] = Some(usable[(index + 1) % usable.len()].slot);
        usable[index]
    }

    fn pick_by_delay(&self, now: Moment, usable: &[CopyPlace]) -> CopyPlace {
        let seconds = |moment: Moment| moment.0 / NANOSECONDS_PER_SECOND;
        let is_idle = |c: &&CopyPlace| {
            seconds(now).saturating_sub(seconds(self.members[c.slot].used)) >= IDLE_PROBE_SECONDS
        };
        let fastest = || usable.iter().min_by_key(|c| self.members[c.slot].delay);
        *usable
            .iter()
            .find(is_idle)
            .or_else(fastest)
            .expect("there is a copy that may be read")
    }

    fn pick_by_load(&self, usable: &[CopyPlace]) -> CopyPlace {
        let cost = |c: &&CopyPlace| {
            let member = &self.members[c.slot];
            let distance = member.last_read_end_bytes.abs_diff(c.member_offset_bytes);
            let bonus = match distance {
                0 => 2 * LOAD_SCALE,
                near if near < NEAR_BYTES => LOAD_SCALE,
                _ => 0,
            };
            member.load - bonus
        };
        // On a tie the later one of the list: `min_by_key` keeps the first, so look from the end.
        *usable
            .iter()
            .rev()
            .min_by_key(cost)
            .expect("there is a copy that may be read")
    }

    fn pick_nearest(&self, usable: &[CopyPlace]) -> CopyPlace {
        let state = |c: &CopyPlace| &self.members[c.slot];
        if let Some(stays) = usable
            .iter()
            .find(|c| state(c).last_read_end_bytes == c.member_offset_bytes)
        {
            return *stays;
        }
        let fast = usable.iter().filter(|c| !state(c).traits.is_rotational);
        let distance = |c: &&CopyPlace| {
            let head_bytes = if self.prefers_low_offsets {
                0
            } else {
                state(c).head_bytes
            };
            head_bytes.abs_diff(c.member_offset_bytes)
        };
        let least_pending = fast.min_by_key(|c| state(c).in_flight);
        *least_pending
            .or_else(|| usable.iter().min_by_key(distance))
            .expect("there is a copy that may be read")
    }
}

#[cfg(test)]
mod tests;
