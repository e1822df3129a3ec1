//! Members that are formulas: what a seek and a byte cost.

use std::time::Duration;

use super::super::{Balancer, MemberTraits, Policy, Request};
use super::SPLIT_BYTES_MIN;
use crate::clock::Moment;
use crate::plex::layout::CopyPlace;

const MS: u64 = 1_000_000;

/// A member's cost in nanoseconds: of a jump, and of a MiB.
#[derive(Clone, Copy)]
struct Model {
    jump_ns: u64,
    mib_ns: u64,
}

/// A mirror whose readers wait for each answer.
struct Mirror {
    balancer: Balancer,
    models: Vec<Model>,
    heads: Vec<u64>,
    now_ns: u64,
    random: u64,
}

impl Mirror {
    fn new(models: &[Model]) -> Self {
        let mut balancer = Balancer::new(Policy::Adaptive, models.len(), 512);
        for slot in 0..models.len() {
            balancer.attach(slot, MemberTraits::default(), Moment(0));
        }
        Self {
            balancer,
            models: models.to_vec(),
            heads: vec![0; models.len()],
            now_ns: 1,
            random: 1,
        }
    }

    /// One read from beginning to end; who took part.
    fn read(&mut self, offset_bytes: u64, length_bytes: u64) -> Vec<usize> {
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
            now: Moment(self.now_ns),
        };
        let pick = self.balancer.pick(&request, &mut candidates);
        let mut ends = Vec::new();
        for piece in pick.pieces(&candidates, length_bytes) {
            let model = self.models[piece.slot];
            let is_jump = self.heads[piece.slot] != piece.member_offset_bytes;
            self.heads[piece.slot] = piece.member_offset_bytes + piece.length_bytes;
            let took = u64::from(is_jump) * model.jump_ns
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

    fn read_anywhere(&mut self, length_bytes: u64) -> Vec<usize> {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let offset = (self.random >> 24) % (1 << 20) * (64 << 10);
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
    mib_ns: 10 * MS,
};
const FLASH: Model = Model {
    jump_ns: MS / 10,
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
fn what_a_detached_member_still_answers_is_not_learned() {
    let mut balancer = Balancer::new(Policy::Adaptive, 2, 512);
    balancer.attach(0, MemberTraits::default(), Moment(0));
    let mut candidates = [CopyPlace {
        slot: 0,
        member_offset_bytes: 0,
    }];
    let request = Request {
        offset_bytes: 0,
        length_bytes: 4096,
        group: 0,
        now: Moment(5),
    };
    balancer.pick(&request, &mut candidates);
    balancer.detach(0);
    balancer.attach(0, MemberTraits::default(), Moment(6));
    balancer.answered(0, 0, Moment(7_000_000));
    let learned = balancer.learned(0).unwrap();
    assert_eq!((learned.sequential_ns, learned.random_ns), (0, 0));
}
