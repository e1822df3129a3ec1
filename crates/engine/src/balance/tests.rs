//! Tests of the policies that the recorded traces do not reach: names, write-mostly, groups, nearest, detaching.

use super::*;

fn balancer(policy: Policy, member_count: usize) -> Balancer {
    let mut balancer = Balancer::new(policy, member_count, 512);
    for slot in 0..member_count {
        balancer.attach(slot, MemberTraits::default(), Moment(0));
    }
    balancer
}

fn read(balancer: &mut Balancer, slots: &[usize], offset_bytes: u64, length_bytes: u64) -> usize {
    let mut candidates: Vec<CopyPlace> = slots
        .iter()
        .map(|&slot| CopyPlace {
            slot,
            member_offset_bytes: offset_bytes,
        })
        .collect();
    let group = slots.iter().copied().min().unwrap();
    match balancer.pick(
        &Request {
            offset_bytes,
            length_bytes,
            group,
            ahead_bytes_max: None,
            now: Moment(0),
        },
        &mut candidates,
    ) {
        Pick::Whole(candidate) | Pick::Ahead(candidate, _) => candidate.slot,
        Pick::Split { .. } => panic!("a short read is not split"),
    }
}

const EVERY: [Policy; 7] = [
    Policy::RoundRobin,
    Policy::Prefer,
    Policy::Split { slice_bytes: 65536 },
    Policy::Load7,
    Policy::Load,
    Policy::Nearest,
    Policy::Adaptive { reads_ahead: false },
];

#[test]
fn names_lead_back_to_their_policy() {
    for policy in EVERY
        .into_iter()
        .chain([Policy::Split { slice_bytes: 1536 }])
    {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert_eq!("split".parse(), Ok(Policy::Split { slice_bytes: 4096 }));
    assert_eq!(
        "split:64k".parse(),
        Ok(Policy::Split { slice_bytes: 65536 })
    );
    assert_eq!("split:8s".parse(), Ok(Policy::Split { slice_bytes: 4096 }));
    for word in [
        "",
        "split:",
        "split:0",
        "split:K",
        "split:1T",
        "split:-4",
        "split:99999999999999999999",
        "random",
        "splitä",
    ] {
        assert_eq!(word.parse::<Policy>(), Err(UnknownPolicy(word.to_owned())));
    }
}

#[test]
fn a_write_mostly_member_is_read_only_when_there_is_no_other() {
    for policy in EVERY {
        let mut b = balancer(policy, 3);
        b.attach(
            0,
            MemberTraits {
                is_write_mostly: true,
                is_rotational: false,
            },
            Moment(0),
        );
        for step in 0..50 {
            assert_ne!(
                read(&mut b, &[0, 1, 2], step * 7919 * 512, 4096),
                0,
                "{policy}"
            );
        }
        assert_eq!(read(&mut b, &[0], 0, 4096), 0, "{policy}");
        // A split leaves it out too.
        let mut all = [0, 1, 2].map(|slot| CopyPlace {
            slot,
            member_offset_bytes: 0,
        });
        let pick = b.pick(
            &Request {
                offset_bytes: 0,
                length_bytes: 1 << 20,
                group: 0,
                ahead_bytes_max: None,
                now: Moment(0),
            },
            &mut all,
        );
        if let Pick::Split { piece_bytes } = pick {
            assert_eq!(piece_bytes, 1 << 19);
        }
        assert!(
            pick.pieces(&all, 1 << 20).all(|piece| piece.slot != 0),
            "{policy}"
        );
    }
}

#[test]
fn every_choice_is_a_candidate_and_its_parts_cover_the_read() {
    for policy in EVERY {
        let mut b = balancer(policy, 4);
        for step in 1..2000u64 {
            let bits = step % 15 + 1;
            let mut candidates: Vec<CopyPlace> = (0..4)
                .filter(|slot| bits >> slot & 1 == 1)
                .map(|slot| CopyPlace {
                    slot,
                    member_offset_bytes: (step * 37 % 1000) * 512 + slot as u64 * 4096,
                })
                .collect();
            let before = candidates.clone();
            let length_bytes = (step % 300 + 1) * 512;
            let request = Request {
                offset_bytes: (step * 37 % 1000) * 512,
                length_bytes,
                group: 0,
                ahead_bytes_max: None,
                now: Moment(step * 100_000_000),
            };
            let pick = b.pick(&request, &mut candidates);
            let mut next = 0;
            for piece in pick.pieces(&candidates, length_bytes) {
                let own = before
                    .iter()
                    .find(|c| c.slot == piece.slot)
                    .expect("a candidate");
                assert_eq!(
                    (piece.request_offset_bytes, piece.member_offset_bytes),
                    (next, own.member_offset_bytes + next)
                );
                assert!(piece.length_bytes > 0 && piece.length_bytes % 512 == 0);
                next += piece.length_bytes;
                if step % 3 > 0 {
                    b.finished(piece.slot, Duration::from_micros(step % 17));
                }
            }
            assert_eq!(next, length_bytes, "{policy}");
        }
    }
}

#[test]
fn groups_of_copies_turn_independently() {
    let mut b = balancer(Policy::RoundRobin, 4);
    let mut seen = [0; 4];
    for _ in 0..6 {
        seen[read(&mut b, &[0, 1], 0, 4096)] += 1;
        seen[read(&mut b, &[2, 3], 0, 4096)] += 1;
    }
    assert_eq!(seen, [3, 3, 3, 3]);
}

#[test]
fn the_turn_skips_members_that_cannot_be_read_and_forgets_a_detached_one() {
    let mut b = balancer(Policy::RoundRobin, 3);
    assert_eq!(read(&mut b, &[0, 1, 2], 0, 512), 0);
    assert_eq!(read(&mut b, &[0, 2], 0, 512), 2);
    assert_eq!(read(&mut b, &[0, 1, 2], 0, 512), 0);
    b.detach(1); // whose turn it was
    assert_eq!(read(&mut b, &[0, 2], 0, 512), 0);
    assert_eq!(read(&mut b, &[0, 2], 0, 512), 2);
}

#[test]
fn prefer_follows_the_list_order() {
    let mut b = balancer(Policy::Prefer, 3);
    b.set_order(&[1, 2, 0]);
    assert_eq!(read(&mut b, &[0, 1, 2], 0, 512), 1);
    assert_eq!(read(&mut b, &[0, 2], 0, 512), 2);
}

#[test]
fn nearest_takes_the_least_pending_ssd_and_the_lowest_slot_on_a_tie() {
    let mut b = balancer(Policy::Nearest, 3);
    let far_apart = |n: u64| n * (100 << 20);
    assert_eq!(read(&mut b, &[0, 1, 2], far_apart(1), 4096), 0);
    assert_eq!(read(&mut b, &[0, 1, 2], far_apart(2), 4096), 1);
    assert_eq!(read(&mut b, &[0, 1, 2], far_apart(3), 4096), 2);
    b.finished(1, Duration::ZERO);
    assert_eq!(read(&mut b, &[0, 1, 2], far_apart(4), 4096), 1);
    assert_eq!(read(&mut b, &[0, 1, 2], far_apart(5), 4096), 0);
    // A write counts as pending too.
    b.finished(0, Duration::ZERO);
    b.started(0, 0, 4096);
    b.started(1, 0, 4096);
    assert_eq!(read(&mut b, &[0, 1, 2], far_apart(6), 4096), 2);
}

#[test]
fn nearest_keeps_a_sequential_stream_on_its_member() {
    for is_rotational in [false, true] {
        let mut b = balancer(Policy::Nearest, 2);
        for slot in 0..2 {
            b.attach(
                slot,
                MemberTraits {
                    is_write_mostly: false,
                    is_rotational,
                },
                Moment(0),
            );
        }
        read(&mut b, &[0, 1], 1 << 30, 4096);
        let stream = read(&mut b, &[0, 1], 5 << 30, 4096);
        for step in 1..20 {
            assert_eq!(read(&mut b, &[0, 1], (5 << 30) + step * 4096, 4096), stream);
        }
    }
}

#[test]
fn nearest_on_rotating_disks_takes_the_nearest_head_or_the_outer_tracks() {
    let mut b = balancer(Policy::Nearest, 2);
    for slot in 0..2 {
        b.attach(
            slot,
            MemberTraits {
                is_write_mostly: false,
                is_rotational: true,
            },
            Moment(0),
        );
    }
    b.started(1, 1 << 30, 4096); // a write moved this head
    assert_eq!(read(&mut b, &[0, 1], (1 << 30) + 65536, 4096), 1);
    assert_eq!(read(&mut b, &[0, 1], 65536, 4096), 0);
    b.set_prefers_low_offsets(true);
    let mut far = [
        CopyPlace {
            slot: 0,
            member_offset_bytes: 2 << 30,
        },
        CopyPlace {
            slot: 1,
            member_offset_bytes: 4096,
        },
    ];
    let pick = b.pick(
        &Request {
            offset_bytes: 0,
            length_bytes: 512,
            group: 0,
            ahead_bytes_max: None,
            now: Moment(0),
        },
        &mut far,
    );
    assert_eq!(
        pick,
        Pick::Whole(CopyPlace {
            slot: 1,
            member_offset_bytes: 4096
        })
    );
}

#[test]
fn a_detached_member_comes_back_without_its_past() {
    let mut b = balancer(Policy::Load, 2);
    for _ in 0..8 {
        read(&mut b, &[0], 0, 4096);
    }
    assert_eq!(b.in_flight(0), 8);
    b.detach(0);
    b.finished(0, Duration::ZERO);
    b.attach(0, MemberTraits::default(), Moment(0));
    assert_eq!(b.in_flight(0), 0);
    b.finished(0, Duration::ZERO); // of before: not counted below zero
    assert_eq!(b.in_flight(0), 0);
}
