//! `adaptive`: the member with the least expected completion, learned while it serves.
//!
//! Expected is what is still to do there, plus what the read itself should take, plus what it takes away from a stream
//! that lives there. Nothing has to be said about the members: an SSD beside a disk, a sick member among good ones,
//! queues that reorder are all seen as costs.
//!
//! Invariants:
//! - a read is learned from once, when it is answered; what a detached member still answers is not learned;
//! - a member that was never read is assumed to cost nothing, so that it is tried;
//! - everything remembered is bounded: `STREAMS` streams, one entry for each read under way.
//!
//! Source of the method: lab.md section 10. Where this differs, because the matrix of `plexum lab balance` asked for it
//! (no constant was chosen for one cell):
//! - what is believed of a member moves slower: the choice between near distances drowns in the noise of rotation
//!   otherwise;
//! - a stream is disturbed by others only after a long wait, and not at all where a detour costs nothing (SSD): one
//!   request in between makes a seek of each of its steps. Where nothing is lost, a stream's reads may be split as
//!   well;
//! - a stream may move to a member that others use: they leave it then;
//! - whether a stream moves is decided with what is under way at both members, also from a member that has no place to
//!   lose (SSD), and few steps seen there are believed in part only;
//! - numbers of parts that look bad are tried less and less often, instead of one read in 24;
//! - what a byte costs is learned from lengths that differ, and believed slowly: one odd pair said that long reads are
//!   dear there, and nothing disproved it any more.
//!
//! Not seen: that two requests in a queue that reorders are served faster than one each by two disks, and that a slow
//! disk could take streams off a fast one that random readers need more.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use super::{Pick, Piece, Request};
use plexum_block::clock::Moment;
use plexum_layout::CopyPlace;

/// Kinds of requests whose costs are learned apart: see [`Disk::class_of`].
const CLASSES: usize = 26;
/// First of the classes by distance.
const FIRST_DISTANCE: usize = 2;
/// Distances below this power of two (bytes) are one class.
const DISTANCE_BITS_MIN: u32 = 12;
/// Requests at least this far apart (class) count for the cost of a random request.
const RANDOM_CLASS: usize = FIRST_DISTANCE + 10;

/// Least weight of a new sample in what is believed, and in what is watched for a change.
const WEIGHT: f64 = 0.01;
const WATCH_WEIGHT: f64 = 0.06;
/// What is watched differs by so much from what is believed: the member has changed, and learning begins anew.
const CHANGE: f64 = 1.5;
/// Samples that a changed member is taken to have.
const CHANGED_SAMPLES: u32 = 8;
/// Most samples that count when neighbouring classes are weighed.
const WEIGHED_SAMPLES_MAX: u32 = 200;
/// How far (classes) neighbours help each other: the variance of a bell curve.
const NEIGHBOURS: f64 = 2.0;
/// Requests of lengths that differ: weight of a new pair in the cost of a byte, and how many pairs it takes to believe
/// half of it. A pair counts when its length is this share off the mean: equal lengths say nothing.
const LENGTH_WEIGHT: f64 = 0.02;
const LENGTH_PAIRS_HALF: f64 = 8.0;
const LENGTH_SHARE: f64 = 0.125;

/// Streams that are remembered.
const STREAMS: usize = 128;
/// A read this near (bytes) to where a stream would go on belongs to it.
const STREAM_WINDOW_BYTES: u64 = 256 << 10;
/// A stream that was silent for so long has ended.
const STREAM_SILENCE: Duration = Duration::from_secs(1);
/// A stream that did so many steps, and one lately, is disturbed by others.
const SETTLED_STEPS: u64 = 2;
const DISTURBED_AGE: Duration = Duration::from_millis(100);
/// What disturbing a stream costs, in detours. Others wait long before they do: a member's time is best used by a
/// stream that goes on, and once one request has come between, each of its steps is a seek.
const DISTURBANCE: f64 = 100.0;
/// A random request must cost this many times one that goes on: else nothing is lost by coming between (SSD).
const DETOUR_RATIO: f64 = 2.0;
/// What a request costs each one that is under way there, in its own time: who waits asks for less meanwhile.
const CROWDING: f64 = 4.0;
/// After so many steps on one member a stream may move to one that is so much faster, or not known yet.
const MIGRATION_STEPS: u64 = 16;
const MIGRATION_GAIN: f64 = 0.9;

/// A stream of so many steps has so many bytes read ahead at first, then twice as many each time, at most so many.
const AHEAD_STEPS: u64 = 2;
const AHEAD_BYTES: u64 = 256 << 10;
pub(crate) const AHEAD_BYTES_MAX: u64 = 2 << 20;
/// What is read ahead takes at most so many times what a random request costs: whoever waits for the member waits.
const AHEAD_COST: f64 = 1.5;
/// Weight of a request in the share of those that belong to no stream.
const LOOSE_WEIGHT: f64 = 0.02;

/// Of a member with fewer samples only a share of the cost is believed.
const BELIEVED_SAMPLES: u32 = 4;
const UNSURE_BELIEF: f64 = 0.5;

/// An idle member is tried again after so many times the cost of doing so: 0.3 % of the time at most.
const PROBE_FACTOR: f64 = 300.0;

/// Shorter reads (bytes) are never split.
const SPLIT_BYTES_MIN: u64 = 16 << 10;
/// One read in so many tries another number of parts, whatever is believed of it: things change.
const TRIAL_PERIOD: u32 = 64;
/// A number of parts may be so much better than its mean, in means, divided by the root of its samples.
const ARM_HOPE: f64 = 0.5;
/// Members are seen at work so often before parts are tried: the first reads pay for what was before.
const SPLIT_SAMPLES_MIN: u32 = 8;
/// A member takes part in splits when it costs at most so many times the best one.
const SPLIT_COST_RATIO: f64 = 3.0;
/// Each number of parts is tried so often before any is believed.
const ARM_TRIES: u32 = 3;
/// Most parts of a read.
const PARTS_MAX: usize = 16;

/// What a class that is so many classes away counts for: asked for each class of each copy at every read.
static NEARNESS: LazyLock<[f64; CLASSES]> = LazyLock::new(|| {
    std::array::from_fn(|away| {
        let away = away as f64;
        (-away * away / (2.0 * NEIGHBOURS)).exp()
    })
});

/// A mean that soon stops to follow noise, and begins anew when its subject has changed.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    value: f64,
    watched: f64,
    samples: u32,
}

impl Average {
    fn add(&mut self, sample: f64) {
        let share = 1.0 / (f64::from(self.samples) + 1.0);
        self.value += share.max(WEIGHT) * (sample - self.value);
        self.watched += share.max(WATCH_WEIGHT) * (sample - self.watched);
        if self.watched > self.value * CHANGE || self.watched * CHANGE < self.value {
            self.value = self.watched;
            self.samples = self.samples.min(CHANGED_SAMPLES);
        }
        self.samples = self.samples.saturating_add(1);
    }

    fn known(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.value)
    }
}

/// What requests of one class cost on one member: time, and the length that it goes with.
#[derive(Clone, Copy, Debug, Default)]
struct ClassCost {
    time_ns: Average,
    length_bytes: Average,
}

/// A read under way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    offset_bytes: u64,
    length_bytes: u64,
    class: usize,
    expected_ns: f64,
    at: Moment,
    /// The whole request, where the number of its parts is being learned.
    trial: Option<u64>,
}

/// What is known of one member.
#[derive(Clone, Debug)]
struct Disk {
    costs: [ClassCost; CLASSES],
    /// Nanoseconds a byte: decayed sums of length deviations, and of length times time deviations, inside the classes.
    length_squares: f64,
    length_times: f64,
    length_pairs: u32,
    samples: u32,
    random_ns: Average,
    random_bytes: Average,
    position_bytes: Option<u64>,
    used: Moment,
    answered: Moment,
    sent: Vec<Sent>,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            costs: [ClassCost::default(); CLASSES],
            length_squares: 0.0,
            length_times: 0.0,
            length_pairs: 0,
            samples: 0,
            random_ns: Average::default(),
            random_bytes: Average::default(),
            position_bytes: None,
            used: Moment(0),
            answered: Moment(0),
            sent: Vec::new(),
        }
    }
}

impl Disk {
    /// 0: goes on exactly where the last request to this member ended. 1: the member of this stream, but something came
    /// between. From 2 on: by the power of two of the distance to the last request's end.
    fn class_of(&self, offset_bytes: u64, is_home: bool) -> usize {
        let distance = match self.position_bytes {
            Some(position) if position == offset_bytes => return 0,
            _ if is_home => return 1,
            Some(position) => position.abs_diff(offset_bytes),
            None => u64::MAX,
        };
        let bits = distance.ilog2().saturating_sub(DISTANCE_BITS_MIN);
        (FIRST_DISTANCE + bits as usize).min(CLASSES - 1)
    }

    /// Less is believed of few pairs: a member that bytes seem to cost nothing is tried with long reads.
    fn ns_per_byte(&self) -> f64 {
        let pairs = f64::from(self.length_pairs);
        self.seen_ns_per_byte() * pairs / (pairs + LENGTH_PAIRS_HALF)
    }

    /// As the pairs say it, however few.
    fn seen_ns_per_byte(&self) -> f64 {
        if self.length_squares <= 0.0 {
            return 0.0;
        }
        (self.length_times / self.length_squares).max(0.0)
    }

    /// Expected time of a request: by distance the mean of the classes around, else that of the nearest known one.
    fn expected_ns(&self, class: usize, length_bytes: u64) -> f64 {
        let byte_ns = self.ns_per_byte();
        let of = |cost: &ClassCost| {
            let longer = length_bytes as f64 - cost.length_bytes.value;
            cost.time_ns.value + longer * byte_ns
        };
        let known = |index: usize| {
            let cost = self.costs.get(index)?;
            (cost.time_ns.samples > 0).then(|| of(cost).max(0.0))
        };
        if class == 0 {
            // Going on is cheap as long as nobody knows better, or by a read or two: otherwise nobody would find out.
            let cheap_ns = length_bytes as f64 * byte_ns;
            let belief = self.belief_in_going_on();
            return known(0).map_or(cheap_ns, |ns| belief * ns + (1.0 - belief) * cheap_ns);
        }
        if class >= FIRST_DISTANCE {
            let nearness = &*NEARNESS;
            let (mut sum, mut weights) = (0.0, 0.0);
            let costs = self.costs.iter().enumerate().skip(FIRST_DISTANCE);
            for (index, cost) in costs.filter(|(_, cost)| cost.time_ns.samples > 0) {
                let weight = f64::from(cost.time_ns.samples.min(WEIGHED_SAMPLES_MAX))
                    * nearness[index.abs_diff(class)];
                sum += weight * of(cost);
                weights += weight;
            }
            if weights > f64::MIN_POSITIVE {
                return (sum / weights).max(0.0);
            }
        }
        let near = (0..CLASSES).find_map(|away| {
            let below = class.checked_sub(away).and_then(known);
            below.or_else(|| known(class + away))
        });
        near.unwrap_or(0.0)
    }

    fn is_known(&self) -> bool {
        self.samples > 0
    }

    /// Share of the learned cost that is believed: one slow answer at the beginning must not leave a member unused.
    fn belief(&self) -> f64 {
        if self.samples < BELIEVED_SAMPLES {
            UNSURE_BELIEF
        } else {
            1.0
        }
    }

    /// Time until what was sent is answered.
    fn backlog_ns(&self, now: Moment) -> f64 {
        let all: f64 = self.sent.iter().map(|sent| sent.expected_ns).sum();
        let Some(oldest) = self.sent.iter().min_by_key(|sent| sent.at) else {
            return 0.0;
        };
        let worked = now.since(oldest.at.max(self.answered));
        all - nanoseconds(worked).min(oldest.expected_ns)
    }

    /// Share of what was learned of reads that go on that is believed: one odd one would keep streams away, and nothing
    /// would disprove it.
    fn belief_in_going_on(&self) -> f64 {
        let samples = self.costs[0].time_ns.samples.min(BELIEVED_SAMPLES);
        f64::from(samples) / f64::from(BELIEVED_SAMPLES)
    }

    /// What a step of a stream that lives here costs in the long run, with what is under way; `None` while unknown.
    fn steady_ns(&self, length_bytes: u64) -> Option<f64> {
        let known = self.costs[0].time_ns.known();
        known.map(|_| self.expected_ns(0, length_bytes) * self.crowd())
    }

    /// How many times its own cost a request costs here with those that are under way.
    fn crowd(&self) -> f64 {
        1.0 + CROWDING * self.sent.len() as f64
    }

    fn random_ns(&self) -> f64 {
        self.random_ns
            .known()
            .unwrap_or_else(|| self.expected_ns(CLASSES - 1, 0))
    }

    /// What a request elsewhere costs more than one that goes on; 0 where that hardly matters.
    fn detour_ns(&self) -> f64 {
        let random_ns = self.random_ns();
        let going_on = &self.costs[0];
        let Some(known_ns) = going_on.time_ns.known() else {
            return random_ns;
        };
        let longer = self.random_bytes.value - going_on.length_bytes.value;
        let on_ns = self.belief_in_going_on() * (known_ns + longer * self.ns_per_byte()).max(0.0);
        if random_ns > DETOUR_RATIO * on_ns {
            random_ns - on_ns
        } else {
            0.0
        }
    }

    /// What of a detour is not the transfer of its bytes.
    fn seek_ns(&self) -> f64 {
        let transfer_ns = self.random_bytes.value * self.seen_ns_per_byte();
        self.detour_ns()
            .min((self.random_ns() - transfer_ns).max(0.0))
    }

    fn learn(&mut self, sent: &Sent, now: Moment) {
        let took_ns = nanoseconds(now.since(sent.at.max(self.answered)));
        self.answered = now;
        self.samples = self.samples.saturating_add(1);
        let length = sent.length_bytes as f64;
        let cost = &mut self.costs[sent.class];
        if cost.time_ns.samples > 0 {
            let (longer, slower) = (
                length - cost.length_bytes.value,
                took_ns - cost.time_ns.value,
            );
            if longer.abs() > LENGTH_SHARE * cost.length_bytes.value {
                self.length_squares += LENGTH_WEIGHT * (longer * longer - self.length_squares);
                self.length_times += LENGTH_WEIGHT * (longer * slower - self.length_times);
                self.length_pairs = self.length_pairs.saturating_add(1);
            }
        }
        cost.time_ns.add(took_ns);
        cost.length_bytes.add(length);
        if sent.class >= RANDOM_CLASS {
            self.random_ns.add(took_ns);
            self.random_bytes.add(length);
        }
    }
}

/// Somebody who reads forward.
#[derive(Clone, Copy, Debug)]
struct Stream {
    next_bytes: u64,
    last: Moment,
    home: usize,
    steps: u64,
    /// Steps since it came to its home.
    run: u64,
    /// Bytes that were read ahead of it last.
    ahead_bytes: u64,
}

/// How long a read of one length class took in so many parts.
#[derive(Clone, Debug, Default)]
struct Arms {
    latency_ns: [Average; PARTS_MAX],
    requests: u32,
}

impl Arms {
    /// Parts for the next read, 1 to `parts_max`.
    fn choose(&mut self, parts_max: usize) -> usize {
        self.requests = self.requests.wrapping_add(1);
        let arms = &self.latency_ns[..parts_max];
        let tries = |tries| arms.iter().position(|arm| arm.samples < tries);
        if let Some(untried) = (1..=ARM_TRIES).find_map(tries) {
            return untried + 1;
        }
        let hoped = |arm: &Average| arm.value * (1.0 - ARM_HOPE / f64::from(arm.samples).sqrt());
        let best = (0..parts_max)
            .min_by(|a, b| hoped(&arms[*a]).total_cmp(&hoped(&arms[*b])))
            .expect("a read has at least one part");
        if parts_max > 1 && self.requests.is_multiple_of(TRIAL_PERIOD) {
            let turn = (self.requests / TRIAL_PERIOD) as usize % (parts_max - 1);
            return (best + 1 + turn) % parts_max + 1;
        }
        best + 1
    }
}

/// A read whose number of parts is being learned.
#[derive(Clone, Copy, Debug)]
struct Trial {
    number: u64,
    length_class: u32,
    parts: usize,
    open: usize,
    at: Moment,
}

/// What was learned of one member, for people: how long reads take it that do not wait for others, in nanoseconds; 0
/// while unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// A read that goes on where the last one ended.
    pub sequential_ns: u64,
    /// A read anywhere.
    pub random_ns: u64,
    /// What a further MiB adds to either.
    pub mib_ns: u64,
}

/// The model of all members of a set.
#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    disks: Vec<Disk>,
    streams: Vec<Stream>,
    arms: BTreeMap<u32, Arms>,
    trials: Vec<Trial>,
    trial_count: u64,
    /// Share of the reads that belong to no stream.
    loose: f64,
}

impl Adaptive {
    pub(super) fn new(member_count: usize) -> Self {
        Self {
            disks: vec![Disk::default(); member_count],
            streams: Vec::new(),
            arms: BTreeMap::new(),
            trials: Vec::new(),
            trial_count: 0,
            loose: 0.0,
        }
    }

    /// Forgets everything about a member.
    pub(super) fn forget(&mut self, slot: usize) {
        self.disks[slot] = Disk::default();
        self.streams.retain(|stream| stream.home != slot);
    }

    pub(super) fn learned(&self, slot: usize) -> Learned {
        let disk = &self.disks[slot];
        let whole = |ns: f64| ns as u64; // never negative
        Learned {
            sequential_ns: whole(disk.costs[0].time_ns.value),
            random_ns: whole(disk.random_ns.value),
            mib_ns: whole(disk.ns_per_byte() * f64::from(1 << 20)),
        }
    }

    /// Chooses; `usable` is left with the cheapest first.
    pub(super) fn pick(
        &mut self,
        request: &Request,
        usable: &mut [CopyPlace],
        sector_bytes: u64,
    ) -> Pick {
        let now = request.now;
        self.streams
            .retain(|stream| now.since(stream.last) < STREAM_SILENCE);
        let stream = self.stream_of(request);
        let mut order: Vec<(CopyPlace, f64)> = usable
            .iter()
            .map(|candidate| (*candidate, self.cost_ns(candidate, request, stream)))
            .collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1)); // stable: the list decides a tie
        for (place, (candidate, _)) in usable.iter_mut().zip(&order) {
            *place = *candidate;
        }
        self.stay_at_home(usable, request, stream);
        self.probe(usable, request, stream);
        let parts = self.parts(&order, usable, request, stream);
        let pick = match parts {
            1 => match self.ahead_bytes(usable, request, stream) {
                0 => Pick::Whole(usable[0]),
                ahead_bytes => Pick::Ahead(usable[0], ahead_bytes),
            },
            parts => Pick::Split {
                piece_bytes: request
                    .length_bytes
                    .div_ceil(parts as u64)
                    .next_multiple_of(sector_bytes),
            },
        };
        self.send(&pick, usable, request, stream);
        pick
    }

    /// A read of `pick` has been answered, well or not.
    pub(super) fn answered(&mut self, slot: usize, member_offset_bytes: u64, now: Moment) {
        let disk = &mut self.disks[slot];
        let found = disk
            .sent
            .iter()
            .position(|sent| sent.offset_bytes == member_offset_bytes);
        let Some(index) = found else { return }; // of before a detach
        let sent = disk.sent.remove(index);
        disk.learn(&sent, now);
        let Some(number) = sent.trial else { return };
        let found = self.trials.iter().position(|trial| trial.number == number);
        let Some(index) = found else { return };
        self.trials[index].open -= 1;
        if self.trials[index].open == 0 {
            let trial = self.trials.swap_remove(index);
            let arms = self.arms.entry(trial.length_class).or_default();
            arms.latency_ns[trial.parts - 1].add(nanoseconds(now.since(trial.at)));
        }
    }

    /// The stream that this read goes on with: one that expects exactly this, else one near.
    fn stream_of(&self, request: &Request) -> Option<usize> {
        let away = |stream: &Stream| stream.next_bytes.abs_diff(request.offset_bytes);
        let nearest = (0..self.streams.len()).min_by_key(|index| away(&self.streams[*index]))?;
        (away(&self.streams[nearest]) <= STREAM_WINDOW_BYTES).then_some(nearest)
    }

    fn is_home(&self, stream: Option<usize>, slot: usize) -> bool {
        stream.is_some_and(|index| self.streams[index].home == slot)
    }

    fn service_ns(&self, candidate: &CopyPlace, request: &Request, stream: Option<usize>) -> f64 {
        let disk = &self.disks[candidate.slot];
        let is_home = self.is_home(stream, candidate.slot);
        let class = disk.class_of(candidate.member_offset_bytes, is_home);
        disk.expected_ns(class, request.length_bytes)
    }

    fn cost_ns(&self, candidate: &CopyPlace, request: &Request, stream: Option<usize>) -> f64 {
        let disk = &self.disks[candidate.slot];
        if !disk.is_known() {
            return disk.sent.len() as f64; // a few are sent to find out, not all
        }
        let disturbance = if self.has_stream(candidate.slot, request.now, stream) {
            DISTURBANCE * disk.detour_ns()
        } else {
            0.0
        };
        let service_ns = self.service_ns(candidate, request, stream);
        disk.backlog_ns(request.now) + disk.belief() * service_ns * disk.crowd() + disturbance
    }

    /// Whether a stream other than this one lives there.
    fn has_stream(&self, slot: usize, now: Moment, except: Option<usize>) -> bool {
        self.streams.iter().enumerate().any(|(index, other)| {
            Some(index) != except
                && other.home == slot
                && other.steps >= SETTLED_STEPS
                && now.since(other.last) < DISTURBED_AGE
        })
    }

    /// A long stream leaves its member only for one that is clearly faster, the seek spread over the run so far.
    fn stay_at_home(&self, usable: &mut [CopyPlace], request: &Request, stream: Option<usize>) {
        let Some(stream) = stream.map(|index| self.streams[index]) else {
            return;
        };
        let Some(at) = usable.iter().position(|c| c.slot == stream.home) else {
            return;
        };
        let home = &self.disks[stream.home];
        let goes_on = home.position_bytes == Some(usable[at].member_offset_bytes);
        if at == 0 {
            let has_no_place = home.detour_ns() <= 0.0; // SSD: nothing is lost by leaving in between
            if stream.run >= MIGRATION_STEPS && (goes_on || has_no_place) {
                self.migrate(usable, request, &stream);
            }
        } else if goes_on && home.sent.is_empty() && self.disks[usable[0].slot].is_known() {
            // Going on costs no seek; somebody else looks cheaper only by what was learned of other work.
            let best = self.service_ns(&usable[0], request, None);
            if home.expected_ns(0, request.length_bytes) <= best {
                usable[..=at].rotate_right(1);
            }
        }
    }

    fn migrate(&self, usable: &mut [CopyPlace], request: &Request, stream: &Stream) {
        let steady = |slot: usize| self.disks[slot].steady_ns(request.length_bytes);
        let Some(here) = steady(stream.home) else {
            return;
        };
        let faster = (1..usable.len()).find(|index| {
            let slot = usable[*index].slot;
            let disk = &self.disks[slot];
            if self.has_stream(slot, request.now, None) {
                return false;
            }
            // What is under way there is waited for once.
            let moving_ns = disk.random_ns() + disk.backlog_ns(request.now);
            let seek = moving_ns / stream.run as f64;
            match steady(slot) {
                Some(there) => there + seek < MIGRATION_GAIN * here,
                None => stream.run.is_multiple_of(MIGRATION_STEPS),
            }
        });
        if let Some(index) = faster {
            usable[..=index].rotate_right(1);
        }
    }

    /// An idle member that nobody asked for long gets one read: it may have become better.
    fn probe(&self, usable: &mut [CopyPlace], request: &Request, stream: Option<usize>) {
        let found = (1..usable.len()).find(|index| {
            let disk = &self.disks[usable[*index].slot];
            let cost_ns = self.service_ns(&usable[*index], request, stream);
            let unused_ns = nanoseconds(request.now.since(disk.used));
            disk.is_known() && disk.sent.is_empty() && unused_ns > PROBE_FACTOR * cost_ns
        });
        if let Some(index) = found {
            usable[..=index].rotate_right(1);
        }
    }

    /// A read may be cut: it is long enough, and no stream loses its place.
    fn is_divisible(&self, usable: &[CopyPlace], request: &Request, stream: Option<usize>) -> bool {
        let has_no_place = |place: &CopyPlace| self.disks[place.slot].detour_ns() <= 0.0;
        request.length_bytes >= SPLIT_BYTES_MIN
            && self.disks[usable[0].slot].samples >= SPLIT_SAMPLES_MIN
            && (stream.is_none() || usable.iter().all(has_no_place))
    }

    /// In how many parts a read is cut: learned, where nothing else is under way.
    fn parts(
        &mut self,
        order: &[(CopyPlace, f64)],
        usable: &[CopyPlace],
        request: &Request,
        stream: Option<usize>,
    ) -> usize {
        let is_quiet = |(candidate, _): &(CopyPlace, f64)| {
            let disk = &self.disks[candidate.slot];
            disk.sent.is_empty() && disk.is_known()
        };
        let is_cheapest = usable[0].slot == order[0].0.slot;
        if !is_cheapest
            || !order.iter().all(is_quiet)
            || !self.is_divisible(usable, request, stream)
        {
            return 1;
        }
        let limit = SPLIT_COST_RATIO * order[0].1;
        let near = order.iter().filter(|(_, cost)| *cost <= limit).count();
        let arms = self.arms.entry(request.length_bytes.ilog2()).or_default();
        arms.choose(near.clamp(1, PARTS_MAX))
    }

    /// How many bytes are read ahead of a stream with this request: as many as pay for the seek that its next steps
    /// would cost when others come between. None where that is less than two requests (SSD).
    fn ahead_bytes(
        &mut self,
        usable: &[CopyPlace],
        request: &Request,
        stream: Option<usize>,
    ) -> u64 {
        let is_loose = f64::from(u8::from(stream.is_none()));
        self.loose += LOOSE_WEIGHT * (is_loose - self.loose);
        let (Some(index), Some(ahead_bytes_max)) = (stream, request.ahead_bytes_max) else {
            return 0;
        };
        let place = &usable[0];
        let (disk, stream) = (&self.disks[place.slot], &mut self.streams[index]);
        let is_next = stream.next_bytes == request.offset_bytes;
        // Who goes on where the member is loses nothing by going on once more, nor who leaves a place that is still
        // his.
        let has_place = usable
            .iter()
            .filter(|place| [usable[0].slot, stream.home].contains(&place.slot))
            .any(|place| self.disks[place.slot].position_bytes == Some(place.member_offset_bytes));
        if stream.steps < AHEAD_STEPS || !is_next || has_place {
            return 0;
        }
        let bytes_max = ahead_bytes_max();
        if bytes_max == 0 {
            return 0;
        }
        let byte_ns = disk.seen_ns_per_byte();
        let worth = if byte_ns > 0.0 {
            AHEAD_COST * disk.seek_ns() / byte_ns * (1.0 - self.loose)
        } else {
            AHEAD_BYTES as f64 // until lengths have differed
        };
        let most = AHEAD_BYTES_MAX.min(worth as u64); // never negative
        if most < 2 * request.length_bytes {
            stream.ahead_bytes = 0;
            return 0;
        }
        let wanted = (2 * stream.ahead_bytes).clamp(AHEAD_BYTES, AHEAD_BYTES_MAX);
        stream.ahead_bytes = wanted.min(most);
        let all = stream.ahead_bytes.min(bytes_max);
        all / request.length_bytes * request.length_bytes
    }

    /// A step of a stream at `offset_bytes` was served from what was read ahead: the stream lives on.
    pub(super) fn stepped(&mut self, offset_bytes: u64, now: Moment) {
        self.loose -= LOOSE_WEIGHT * self.loose;
        let is_ahead = |stream: &&mut Stream| {
            let away = stream.next_bytes.checked_sub(offset_bytes);
            away.is_some_and(|away| away <= AHEAD_BYTES_MAX)
        };
        if let Some(stream) = self.streams.iter_mut().find(is_ahead) {
            stream.last = now;
            stream.steps += 1;
        }
    }

    /// Notes what is sent.
    fn send(
        &mut self,
        pick: &Pick,
        usable: &[CopyPlace],
        request: &Request,
        stream: Option<usize>,
    ) {
        let pieces: Vec<Piece> = pick.pieces(usable, request.length_bytes).collect();
        let is_alone = usable
            .iter()
            .all(|candidate| self.disks[candidate.slot].sent.is_empty());
        let trial = (is_alone && self.is_divisible(usable, request, stream))
            .then(|| self.begin_trial(pieces.len(), request));
        let home = pieces[0].slot;
        for piece in &pieces {
            let is_home = self.is_home(stream, piece.slot);
            let disk = &mut self.disks[piece.slot];
            let class = disk.class_of(piece.member_offset_bytes, is_home);
            disk.sent.push(Sent {
                offset_bytes: piece.member_offset_bytes,
                length_bytes: piece.length_bytes,
                class,
                expected_ns: disk.expected_ns(class, piece.length_bytes),
                at: request.now,
                trial,
            });
            disk.position_bytes = Some(piece.member_offset_bytes + piece.length_bytes);
            disk.used = request.now;
        }
        let sent_bytes = pieces.iter().map(|piece| piece.length_bytes).sum();
        self.step(stream, home, request, sent_bytes);
    }

    fn begin_trial(&mut self, parts: usize, request: &Request) -> u64 {
        self.trial_count += 1;
        self.trials.push(Trial {
            number: self.trial_count,
            length_class: request.length_bytes.ilog2(),
            parts,
            open: parts,
            at: request.now,
        });
        self.trial_count
    }

    fn step(&mut self, stream: Option<usize>, home: usize, request: &Request, sent_bytes: u64) {
        let next_bytes = request.offset_bytes + sent_bytes;
        if let Some(index) = stream {
            let stream = &mut self.streams[index];
            stream.next_bytes = next_bytes;
            stream.last = request.now;
            stream.steps += 1;
            stream.run = if stream.home == home {
                stream.run + 1
            } else {
                0
            };
            stream.home = home;
            return;
        }
        if self.streams.len() == STREAMS {
            let oldest = (0..STREAMS).min_by_key(|index| self.streams[*index].last);
            self.streams.swap_remove(oldest.expect("there are streams"));
        }
        self.streams.push(Stream {
            next_bytes,
            last: request.now,
            home,
            steps: 0,
            run: 0,
            ahead_bytes: 0,
        });
    }
}

fn nanoseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

#[cfg(test)]
mod tests;
