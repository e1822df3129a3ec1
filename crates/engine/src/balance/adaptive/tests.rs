//! Members that are formulas: what a seek and a byte cost.

use std::time::Duration;

use super::super::{Balancer, MemberTraits, Pick, Policy, Request};
use super::SPLIT_BYTES_MIN;
use plexum_block::clock::Moment;
use plexum_layout::CopyPlace;

const MS: u64 = 1_000_000;

/// A member's cost in nanoseconds: of a jump, of a turn (up to so much is waited after a jump), and of a MiB.
#[derive(Clone, Copy)]
struct Model {
    jump_ns: u64,
    turn_ns: u64,
    mib_ns: u64,
}

/// A mirror whose readers wait for each answer.
struct Mirror {
    balancer: Balancer,
    reads_ahead: bool,
    models: Vec<Model>,
    heads: Vec<u64>,
    now_ns: u64,
    random: u64,
}

impl Mirror {
    fn new(models: &[Model]) -> Self {
        let mut balancer =
            Balancer::new(Policy::Adaptive { reads_ahead: false }, models.len(), 512);
        for slot in 0..models.len() {
            balancer.attach(slot, MemberTraits::default(), Moment(0));
        }
        Self {
            balancer,
            reads_ahead: false,
            models: models.to_vec(),
            heads: vec![0; models.len()],
            now_ns: 1,
            random: 1,
        }
    }

    fn pick(&mut self, offset_bytes: u64, length_bytes: u64) -> (Pick, Vec<CopyPlace>) {
        let mut candidates: Vec<CopyPlace> = (0..self.models.len())
            .map(|slot| CopyPlace {
                slot,
                member_offset_bytes: offset_bytes,
            })
            .collect();
        let request = Request {
            offset_bytes,
            length_bytes,
            group: 0,
            ahead_bytes_max: self.reads_ahead.then_some(&|| u64::MAX >> 1),
            now: Moment(self.now_ns),
        };
        (self.balancer.pick(&request, &mut candidates), candidates)
    }

    /// One read from beginning to end; who took part.
    fn read(&mut self, offset_bytes: u64, length_bytes: u64) -> Vec<usize> {
        let (pick, candidates) = self.pick(offset_bytes, length_bytes);
        let mut ends = Vec::new();
        for piece in pick.pieces(&candidates, length_bytes) {
            let model = self.models[piece.slot];
            let is_jump = self.heads[piece.slot] != piece.member_offset_bytes;
            self.heads[piece.slot] = piece.member_offset_bytes + piece.length_bytes;
            let wait_ns = match model.turn_ns {
                0 => 0,
                turn_ns => self.draw() % turn_ns,
            };
            let took = u64::from(is_jump) * (model.jump_ns + wait_ns)
                + piece.length_bytes * model.mib_ns / (1 << 20)
                + 1000;
            ends.push((self.now_ns + took, piece));
        }
        ends.sort_by_key(|(end, _)| *end);
        for (end, piece) in &ends {
            let latency = Duration::from_nanos(end - self.now_ns);
            self.balancer.finished(piece.slot, latency);
            let at = piece.member_offset_bytes;
            self.balancer.answered(piece.slot, at, Moment(*end));
        }
        self.now_ns = ends.last().expect("somebody reads").0;
        ends.iter().map(|(_, piece)| piece.slot).collect()
    }

    /// Who gets a read that is not answered.
    fn choose(&mut self, offset_bytes: u64, length_bytes: u64) -> usize {
        let (pick, candidates) = self.pick(offset_bytes, length_bytes);
        let first = pick.pieces(&candidates, length_bytes).next();
        first.expect("a read has at least one part").slot
    }

    fn draw(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random >> 24
    }

    fn read_anywhere(&mut self, length_bytes: u64) -> Vec<usize> {
        let offset = self.draw() % (1 << 20) * (64 << 10);
        self.read(offset, length_bytes)
    }

    /// How many of so many random reads a member answers.
    fn share(&mut self, slot: usize, reads: usize) -> usize {
        let took_part = (0..reads).filter(|_| self.read_anywhere(4096).contains(&slot));
        // (the filter runs the reads)
        took_part.count()
    }
}

const DISK: Model = Model {
    jump_ns: 8 * MS,
    turn_ns: 0,
    mib_ns: 10 * MS,
};
const FLASH: Model = Model {
    jump_ns: MS / 10,
    turn_ns: 0,
    mib_ns: 2 * MS,
};

#[test]
fn a_slow_member_is_hardly_asked_and_found_out_when_it_gets_better() {
    let mut mirror = Mirror::new(&[DISK, FLASH]);
    let asked = mirror.share(0, 20_000);
    assert!((1..200).contains(&asked), "{asked} of 20000");
    let learned = mirror.balancer.learned(0).unwrap();
    assert!((7 * MS..9 * MS).contains(&learned.random_ns), "{learned:?}");
    mirror.models[0].jump_ns = MS / 100;
    mirror.share(0, 100_000);
    let asked = mirror.share(0, 1000);
    assert!(asked > 900, "{asked} of 1000");
}

#[test]
fn each_stream_has_a_member_of_its_own() {
    let mut mirror = Mirror::new(&[DISK, DISK]);
    let mut homes = Vec::new();
    for step in 0..200u64 {
        let first = mirror.read(step * (64 << 10), 64 << 10);
        let second = mirror.read((1 << 40) + step * (64 << 10), 64 << 10);
        homes.push((first[0], second[0]));
    }
    let settled = homes[199];
    assert_ne!(settled.0, settled.1);
    let strays = homes[20..].iter().filter(|home| **home != settled).count();
    assert!(strays <= 2, "{strays} steps elsewhere, {homes:?}");
}

#[test]
fn a_long_read_is_split_where_that_is_faster_and_only_there() {
    let parts = |models: &[Model], length_bytes: u64| {
        let mut mirror = Mirror::new(models);
        for _ in 0..200 {
            mirror.read_anywhere(length_bytes);
        }
        let split = (0..200).filter(|_| mirror.read_anywhere(length_bytes).len() > 1);
        split.count()
    };
    let two_disks = parts(&[DISK, DISK], 4 << 20);
    assert!(two_disks > 180, "{two_disks} of 200 in parts");
    let unlike = parts(&[FLASH, DISK], 4 << 20);
    assert!(unlike < 20, "{unlike} of 200 in parts");
    assert_eq!(parts(&[DISK, DISK], SPLIT_BYTES_MIN / 2), 0);
}

#[test]
fn the_turn_of_a_disk_does_not_end_what_was_learned_of_parts() {
    let turning = Model {
        jump_ns: 5 * MS,
        turn_ns: 8 * MS,
        mib_ns: 12 * MS,
    };
    for seed in 1..6 {
        let mut mirror = Mirror::new(&[turning; 2]);
        mirror.random = seed;
        let split = (0..4000).filter(|_| mirror.read_anywhere(1 << 20).len() > 1);
        let split = split.count();
        assert!(split > 3800, "{split} of 4000 in parts, seed {seed}");
    }
}

#[test]
fn a_stream_is_split_where_going_elsewhere_costs_nothing_and_only_there() {
    const LENGTH_BYTES: u64 = 256 << 10;
    let parts = |model: Model| {
        let mut mirror = Mirror::new(&[model; 2]);
        let step = |number: u64| mirror.read(number * LENGTH_BYTES, LENGTH_BYTES).len();
        let parts: Vec<usize> = (0..1200).map(step).collect();
        parts[1000..].iter().filter(|parts| **parts > 1).count()
    };
    let flash = Model {
        jump_ns: 1000,
        ..FLASH
    };
    let split = parts(flash);
    assert!(split > 180, "{split} of 200 in parts");
    assert_eq!(parts(DISK), 0);
}

#[test]
fn others_wait_for_each_other_rather_than_come_between_a_stream() {
    let mut mirror = Mirror::new(&[DISK, DISK]);
    let mut home = Vec::new();
    for step in 0..200u64 {
        home = mirror.read(step * (64 << 10), 64 << 10);
        mirror.read_anywhere(4096);
    }
    for number in 0..3 {
        let chosen = mirror.choose((1 << 41) + number * (1 << 30), 4096);
        assert_ne!(chosen, home[0], "read {number}");
    }
}

#[test]
fn one_slow_answer_at_the_beginning_leaves_no_member_unused() {
    let mut mirror = Mirror::new(&[DISK, DISK]);
    mirror.models[1].jump_ns = 14 * MS;
    let asked = (0..4).filter(|_| mirror.read_anywhere(4096).contains(&1));
    assert!((1..4).contains(&asked.count()));
    mirror.models[1].jump_ns = 4 * MS;
    let asked = mirror.share(1, 200);
    assert!(asked > 150, "{asked} of 200");
}

#[test]
fn what_a_detached_member_still_answers_is_not_learned() {
    let mut balancer = Balancer::new(Policy::Adaptive { reads_ahead: false }, 2, 512);
    balancer.attach(0, MemberTraits::default(), Moment(0));
    let mut candidates = [CopyPlace {
        slot: 0,
        member_offset_bytes: 0,
    }];
    let request = Request {
        offset_bytes: 0,
        length_bytes: 4096,
        group: 0,
        ahead_bytes_max: None,
        now: Moment(5),
    };
    balancer.pick(&request, &mut candidates);
    balancer.detach(0);
    balancer.attach(0, MemberTraits::default(), Moment(6));
    balancer.answered(0, 0, Moment(7_000_000));
    let learned = balancer.learned(0).unwrap();
    assert_eq!((learned.sequential_ns, learned.random_ns), (0, 0));
}

/// Two streams on one member take turns, with `loose` random reads after each turn; what was read ahead of the first
/// one.
fn read_ahead_of_streams(model: Model, loose: usize) -> Vec<u64> {
    const STEP_BYTES: u64 = 64 << 10;
    let mut mirror = Mirror::new(&[model]);
    mirror.reads_ahead = true;
    let mut next = [1 << 39, 1 << 40];
    let mut seen = Vec::new();
    for _ in 0..60 {
        for (number, next) in next.iter_mut().enumerate() {
            mirror.read(*next, STEP_BYTES);
            let length = mirror.heads[0] - *next;
            for step in 1..length / STEP_BYTES {
                mirror
                    .balancer
                    .served_ahead(*next + step * STEP_BYTES, Moment(mirror.now_ns));
            }
            *next += length;
            if number == 0 {
                seen.push(length - STEP_BYTES);
            }
        }
        for _ in 0..loose {
            mirror.read_anywhere(4096);
        }
    }
    seen
}

#[test]
fn streams_that_share_a_disk_are_read_ahead_up_to_what_a_seek_is_worth() {
    let seen = read_ahead_of_streams(DISK, 0);
    assert_eq!(seen[..2], [0, 0], "no stream yet");
    assert!(seen.contains(&(256 << 10)), "{seen:?}");
    // 1.5 times 8 ms at 10 ms a MiB are 1.2 MiB.
    let last = *seen.last().unwrap();
    assert!(((1 << 20)..=(5 << 18)).contains(&last), "{seen:?}");
    assert_eq!(last % (64 << 10), 0);
}

#[test]
fn who_reads_at_random_beside_streams_makes_them_read_less_ahead() {
    let alone = *read_ahead_of_streams(DISK, 0).last().unwrap();
    let beside = *read_ahead_of_streams(DISK, 8).last().unwrap();
    assert!(beside < alone * 3 / 4, "{beside} beside, {alone} alone");
}

#[test]
fn nothing_is_read_ahead_on_flash_nor_of_a_stream_that_is_alone() {
    let seen = read_ahead_of_streams(
        Model {
            jump_ns: 1000,
            ..FLASH
        },
        0,
    );
    assert!(seen[20..].iter().all(|bytes| *bytes == 0), "{seen:?}");
    let mut mirror = Mirror::new(&[DISK]);
    mirror.reads_ahead = true;
    for step in 0..100u64 {
        mirror.read(step * (64 << 10), 64 << 10);
        assert_eq!(mirror.heads[0], (step + 1) * (64 << 10), "step {step}");
    }
}

#[test]
fn a_stream_leaves_a_crowded_member_for_one_that_was_slow_once() {
    let mut mirror = Mirror::new(&[DISK, FLASH]);
    mirror.share(0, 300);
    // One step on the disk took as long as a jump.
    let disk = &mut mirror.balancer.adaptive.disks[0];
    disk.costs[0].time_ns.add(8e6);
    disk.costs[0].length_bytes.add(65_536.0);
    for number in 0..6 {
        mirror.choose((1 << 41) + number * (1 << 30), 1 << 20);
    }
    let homes: Vec<usize> = (0..40u64)
        .map(|step| mirror.read(step * (64 << 10), 64 << 10)[0])
        .collect();
    assert_eq!(homes[39], 0, "{homes:?}");
}
