//! Back-pressure, memory limits and time limits: what a client that does not read or send can and cannot do.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{World, filled, head, memory, pattern, raw};
use plexum_front::requests::RequestLimits;
use plexum_nbd::error::NbdError;
use plexum_nbd::server::ServerLimits;
use plexum_nbd::session::{Ended, SessionLimits};
use plexum_nbd::wire::Framing;
use plexum_nbd::wire::request::command;

#[test]
fn a_client_that_reads_no_answers_is_read_no_further_and_stops_nobody_else() {
    let limits = ServerLimits {
        session: SessionLimits {
            requests: RequestLimits {
                requests_max: 8,
                ..RequestLimits::default()
            },
            ..SessionLimits::default()
        },
        ..ServerLimits::default()
    };
    let export = filled(64);
    let mut world = World::with_limits(vec![export.clone()], limits);
    world.room_bytes = 2000;
    let (stream, end) = raw(&mut world);
    let bytes: Vec<u8> = (0..1000)
        .flat_map(|at| head(command::READ, at, 0, 4096))
        .collect();
    world.send(&stream, &bytes);
    assert!(end.borrow().is_none());
    assert!(
        export.take_log().len() <= 16,
        "a bounded number of requests was started"
    );
    assert!(world.server.used_bytes() <= 8 * (4096 + 512));
    // Somebody else is served meanwhile.
    let (client, _) = world.client_of("vol0", Framing::Simple);
    let buf = world.pool.take(512);
    let read = world
        .run(async move { client.read(512, buf).await })
        .unwrap();
    assert_eq!(read[..], pattern(1, 512));
    // And the slow one gets every answer once it reads.
    let answers = world.receive(&stream);
    assert_eq!(answers.len(), 1000 * (16 + 4096));
    let cookies = answers
        .chunks(16 + 4096)
        .map(|reply| u64::from_be_bytes(reply[8..16].try_into().unwrap()));
    assert!(cookies.eq(0..1000));
}

#[test]
fn refused_requests_are_bounded_like_the_others() {
    let limits = ServerLimits {
        session: SessionLimits {
            requests: RequestLimits {
                requests_max: 8,
                ..RequestLimits::default()
            },
            ..SessionLimits::default()
        },
        ..ServerLimits::default()
    };
    let mut world = World::with_limits(vec![filled(1)], limits);
    world.room_bytes = 100;
    let (stream, end) = raw(&mut world);
    let bytes: Vec<u8> = (0..500).flat_map(|at| head(99, at, 0, 0)).collect();
    world.send(&stream, &bytes);
    assert!(end.borrow().is_none());
    assert!(world.server.used_bytes() <= 8 * 512);
    assert_eq!(world.receive(&stream).len(), 500 * 16);
}

#[test]
fn memory_of_all_sessions_stays_below_the_limit_and_large_requests_wait_their_turn() {
    let limits = ServerLimits {
        bytes_max: 64 << 20,
        ..ServerLimits::default()
    };
    let export = memory("vol0", 1 << 30);
    let mut world = World::with_limits(vec![export.clone()], limits);
    export.hold(true);
    let large = head(command::READ, 1, 0, 30 << 20);
    let streams: Vec<_> = (0..5)
        .map(|_| {
            let (stream, end) = raw(&mut world);
            world.send(&stream, &large);
            (stream, end)
        })
        .collect();
    assert_eq!(export.held().len(), 2, "two fit");
    assert!(world.server.used_bytes() <= 64 << 20);
    let (small, _) = raw(&mut world);
    world.send(&small, &head(command::READ, 1, 0, 512));
    assert_eq!(
        export.held().len(),
        3,
        "a small one of somebody who holds nothing goes ahead"
    );
    export.release(2);
    assert_eq!(world.receive(&small).len(), 528);
    for (at, (stream, _)) in streams.iter().enumerate() {
        assert_eq!(export.held().len(), 2.min(5 - at));
        export.release(0);
        assert_eq!(world.receive(stream).len(), 16 + (30 << 20));
        assert!(world.server.used_bytes() <= 64 << 20);
    }
}

#[test]
fn one_session_gets_a_part_of_the_memory_only() {
    let limits = ServerLimits {
        bytes_max: 1 << 30,
        ..ServerLimits::default()
    };
    let export = memory("vol0", 1 << 30);
    let mut world = World::with_limits(vec![export.clone()], limits);
    export.hold(true);
    let (stream, _) = raw(&mut world);
    world.send(&stream, &head(command::READ, 1, 0, 30 << 20).repeat(5));
    assert_eq!(export.held().len(), 2);
    export.release(1);
    assert_eq!(world.receive(&stream).len(), 16 + (30 << 20));
    assert_eq!(export.held().len(), 2, "the next one follows");
}

#[test]
fn the_memory_of_a_status_is_accounted_for() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    let (client, _) = world.client_of("vol0", Framing::Structured);
    export.hold(true);
    let status = world.start(async move { client.status(0, 1 << 20, false).await.map(|_| ()) });
    world.settle();
    assert!(world.server.used_bytes() > 4096 * 16);
    export.release(0);
    world.settle();
    assert_eq!(status.borrow_mut().take(), Some(Ok(())));
    assert_eq!(world.server.used_bytes(), 0);
}

#[test]
fn a_client_that_blocks_memory_others_wait_for_is_closed_after_a_while() {
    let limits = ServerLimits {
        bytes_max: 64 << 20,
        ..ServerLimits::default()
    };
    let export = memory("vol0", 1 << 30);
    let mut world = World::with_limits(vec![export], limits);
    // It asks for two large reads and takes nothing.
    let (lazy, lazy_end) = raw(&mut world);
    world.send(
        &lazy,
        &[
            head(command::READ, 1, 0, 30 << 20),
            head(command::READ, 2, 0, 30 << 20),
        ]
        .concat(),
    );
    world.advance(Duration::from_secs(3600));
    assert!(lazy_end.borrow().is_none(), "it is in nobody's way");
    let (other, other_end) = raw(&mut world);
    world.send(&other, &head(command::READ, 1, 0, 30 << 20));
    assert_eq!(other.waiting_bytes(), 0);
    world.advance(Duration::from_secs(29));
    assert!(lazy_end.borrow().is_none());
    world.advance(Duration::from_secs(1));
    assert_eq!(
        lazy_end.borrow_mut().take().unwrap().0,
        Err(NbdError::Stalled)
    );
    assert_eq!(world.receive(&other).len(), 16 + (30 << 20));
    world.advance(Duration::from_secs(60));
    assert!(other_end.borrow().is_none());
    assert_eq!(world.clock.sleepers(), 0);
}

#[test]
fn a_client_that_waits_for_a_slow_volume_is_not_to_blame() {
    let limits = ServerLimits {
        bytes_max: 64 << 20,
        ..ServerLimits::default()
    };
    let export = memory("vol0", 1 << 30);
    let mut world = World::with_limits(vec![export.clone()], limits);
    export.hold(true);
    let (patient, patient_end) = raw(&mut world);
    let large = head(command::READ, 1, 0, 30 << 20);
    world.send(&patient, &large.repeat(2));
    let (other, _) = raw(&mut world);
    world.send(&other, &large);
    for _ in 0..5 {
        world.advance(Duration::from_secs(31));
    }
    assert!(patient_end.borrow().is_none());
    export.release(0);
    export.release(0);
    assert_eq!(world.receive(&patient).len(), 2 * (16 + (30 << 20)));
}

#[test]
fn a_slow_client_that_moves_is_not_closed() {
    let limits = ServerLimits {
        bytes_max: 64 << 20,
        ..ServerLimits::default()
    };
    let mut world = World::with_limits(vec![memory("vol0", 1 << 30)], limits);
    let (slow, slow_end) = raw(&mut world);
    // Its payload comes in drops.
    world.send(&slow, &head(command::WRITE, 1, 0, 1 << 25));
    world.send(&slow, &[]);
    let (other, _) = raw(&mut world);
    world.send(
        &other,
        &[
            head(command::READ, 1, 0, 30 << 20),
            head(command::READ, 2, 0, 30 << 20),
        ]
        .concat(),
    );
    for _ in 0..20 {
        world.advance(Duration::from_secs(20));
        world.send(&slow, &[1; 1000]);
        assert!(slow_end.borrow().is_none());
    }
    world.advance(Duration::from_secs(31));
    world.advance(Duration::from_secs(31));
    let how = slow_end.borrow_mut().take().unwrap().0;
    // Whoever else waited (the reads of `other` fit one after the other) decides whether it was in the way.
    assert_eq!(how, Err(NbdError::Stalled));
}

#[test]
fn answers_linger_only_for_a_while_after_the_goodbye() {
    let export = filled(64);
    let mut world = World::new(vec![export]);
    world.room_bytes = 100;
    let (stream, end) = raw(&mut world);
    let mut bytes = head(command::READ, 1, 0, 4096);
    bytes.extend(head(command::DISC, 0, 0, 0));
    world.send(&stream, &bytes);
    world.advance(Duration::from_secs(9));
    assert!(end.borrow().is_none());
    world.advance(Duration::from_secs(1));
    assert_eq!(end.borrow_mut().take().unwrap().0, Ok(Ended::Disconnected));
    assert_eq!(world.server.used_bytes(), 0);
}
