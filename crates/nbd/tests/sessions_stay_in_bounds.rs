//! What a session promises whatever happens around it: one answer for each request, bounded memory, batches,
//! requests that end before their session does, time limits, exports that come and go.
#![allow(clippy::unwrap_used)]

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use common::{FRAMINGS, World, filled, head, memory, pattern, raw};
use plexum_block::device::{Fua, IoError};
use plexum_front::client::Leave;
use plexum_front::exports::OpenError;
use plexum_nbd::client::{Client, ClientError, ConnectOptions, connect};
use plexum_nbd::error::NbdError;
use plexum_nbd::session::Ended;
use plexum_nbd::testing::{MemoryExport, Operation, PipeEnd, pipe};
use plexum_nbd::transport::Transport;
use plexum_nbd::wire::option::{InfoRequest, code, encode_option};
use plexum_nbd::wire::request::{Request, command};
use plexum_nbd::wire::{Errno, Framing};
use proptest::prelude::*;

type Reads = Rc<RefCell<Vec<(u64, Result<Vec<u8>, ClientError>)>>>;

/// Starts a read of 512 bytes; its result is appended to `done`.
fn read_sector(world: &mut World, client: &Client<PipeEnd>, sector: u64, done: &Reads) {
    let (client, buf, done) = (client.clone(), world.pool.take(512), Rc::clone(done));
    world.exec.spawn(async move {
        let result = client.read(sector * 512, buf).await;
        let result = result.map(|buf| buf.to_vec());
        done.borrow_mut().push((sector, result));
    });
}

#[test]
fn answers_come_in_any_order_and_are_never_mixed() {
    for framing in FRAMINGS {
        let export = filled(16);
        let mut world = World::new(vec![export.clone()]);
        let (client, _) = world.client_of("vol0", framing);
        export.hold(true);
        let done = Reads::default();
        for sector in 0..16 {
            read_sector(&mut world, &client, sector, &done);
        }
        world.settle();
        assert_eq!(export.held().len(), 16, "all run at the same time");
        let mut expected = Vec::new();
        let mut left: Vec<u64> = (0..16).collect();
        let mut pick = 5;
        while !left.is_empty() {
            pick = (pick * 7 + 3) % left.len();
            export.release(pick);
            expected.push(left.remove(pick));
            world.settle();
        }
        let done = done.borrow();
        let order: Vec<u64> = done.iter().map(|(sector, _)| *sector).collect();
        assert_eq!(order, expected);
        for (sector, data) in &*done {
            assert_eq!(data.as_ref().unwrap(), &pattern(*sector, 512));
        }
    }
}

#[test]
fn polls_without_a_reason_change_nothing() {
    for framing in FRAMINGS {
        let export = filled(16);
        let mut world = World::new(vec![export.clone()]);
        world.room_bytes = 700;
        let (ours, theirs) = pipe(world.room_bytes);
        ours.pester(500);
        theirs.pester(500);
        export.pester(500);
        export.hold(true);
        let server = Rc::clone(&world.server);
        let end = world.start(async move { server.serve(theirs).await });
        let options = ConnectOptions {
            framing_max: framing,
            ..ConnectOptions::new("vol0")
        };
        let pool = world.pool.clone();
        let connected = world.run(async move { connect(ours, pool, &options).await });
        let (client, driver) = connected.unwrap();
        world.start(driver.run());
        let done = Reads::default();
        for sector in 0..16 {
            read_sector(&mut world, &client, sector, &done);
        }
        world.settle();
        export.take_log();
        for left in (0..16).rev() {
            export.release(left / 2);
            world.settle();
        }
        assert_eq!(done.borrow().len(), 16);
        for (sector, data) in &*done.borrow() {
            assert_eq!(data.as_ref().unwrap(), &pattern(*sector, 512));
        }
        assert_eq!(export.take_log(), [], "nothing was asked twice");
        client.disconnect();
        world.settle();
        let (how, counts) = end.borrow_mut().take().unwrap();
        assert_eq!((how, counts.requests), (Ok(Ended::Disconnected), 16));
    }
}

#[test]
fn what_one_receive_brought_is_started_together_and_answered_in_one_send() {
    let export = filled(64);
    let mut world = World::new(vec![export.clone()]);
    let (stream, end) = raw(&mut world);
    let bytes: Vec<u8> = (0..64)
        .flat_map(|sector| head(command::READ, sector, sector * 512, 512))
        .collect();
    world.send(&stream, &bytes);
    let answers = world.receive(&stream);
    assert_eq!(answers.len(), 64 * 528);
    world.send(&stream, &head(command::DISC, 0, 0, 0));
    let (how, counts) = end.borrow_mut().take().unwrap();
    assert_eq!(how, Ok(Ended::Disconnected));
    assert_eq!((counts.requests, counts.sends), (64, 1));
    assert_eq!(counts.read_bytes, 64 * 512);
}

#[test]
fn the_next_request_is_expected_soon_only_when_the_only_one_was_answered() {
    let export = filled(4);
    let mut world = World::new(vec![export.clone()]);
    let (stream, _end) = raw(&mut world);
    let read = |sector: u64| head(command::READ, sector, sector * 512, 512);
    world.send(&stream, &read(0));
    assert_eq!(world.receive(&stream).len(), 528);
    assert_eq!(stream.expectations(), 1);
    let both = [read(1), read(2)].concat();
    world.send(&stream, &both);
    assert_eq!(world.receive(&stream).len(), 2 * 528);
    assert_eq!(stream.expectations(), 1, "two came together");
    export.hold(true);
    world.send(&stream, &both);
    export.release(0);
    world.settle();
    assert_eq!(world.receive(&stream).len(), 528);
    assert_eq!(stream.expectations(), 1, "another one is under way");
}

#[test]
fn a_disconnect_waits_for_what_is_in_flight_and_its_answers() {
    let export = filled(4);
    let mut world = World::new(vec![export.clone()]);
    let (stream, end) = raw(&mut world);
    export.hold(true);
    let mut bytes = head(command::READ, 1, 0, 512);
    bytes.extend(head(command::WRITE, 2, 512, 512));
    bytes.extend(pattern(9, 512));
    bytes.extend(head(command::DISC, 0, 0, 0));
    world.send(&stream, &bytes);
    assert!(end.borrow().is_none());
    export.release(1);
    world.settle();
    assert!(end.borrow().is_none());
    export.release(0);
    world.settle();
    assert_eq!(end.borrow_mut().take().unwrap().0, Ok(Ended::Disconnected));
    assert_eq!(world.receive(&stream).len(), 16 + 528);
    assert_eq!(export.bytes(512, 512), pattern(9, 512));
}

#[test]
fn a_dead_connection_ends_only_when_its_requests_have_ended() {
    let export = filled(4);
    let mut world = World::new(vec![export.clone()]);
    let (stream, end) = raw(&mut world);
    export.hold(true);
    let mut bytes = head(command::WRITE, 2, 512, 512);
    bytes.extend(pattern(9, 512));
    world.send(&stream, &bytes);
    stream.close();
    drop(stream);
    world.settle();
    world.advance(Duration::from_secs(3600));
    assert!(end.borrow().is_none(), "the write is still running");
    export.release(0);
    world.settle();
    assert!(end.borrow().is_some());
    assert_eq!(export.bytes(512, 512), pattern(9, 512));
    assert_eq!(world.server.used_bytes(), 0);
    assert_eq!(world.server.session_count(), 0);
}

#[test]
fn flush_makes_durable_what_was_answered_on_any_connection() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    let (first, _) = world.client_of("vol0", Framing::Extended);
    let (second, _) = world.client_of("vol0", Framing::Simple);
    let (a, b) = (world.buf(&pattern(1, 512)), world.buf(&pattern(2, 512)));
    world
        .run(async move { first.write(0, a, Fua::No).await })
        .unwrap();
    assert_eq!(export.durable_bytes(0, 512), [0; 512]);
    let flusher = second.clone();
    world.run(async move { flusher.flush().await }).unwrap();
    assert_eq!(export.durable_bytes(0, 512), pattern(1, 512));
    world
        .run(async move { second.write(512, b, Fua::Yes).await })
        .unwrap();
    assert_eq!(export.durable_bytes(512, 512), pattern(2, 512));
}

#[test]
fn a_flush_is_not_answered_before_the_export_has_flushed_and_its_error_is_told() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    let (client, _) = world.client_of("vol0", Framing::Structured);
    export.hold(true);
    let c = client.clone();
    let flushed = world.start(async move { c.flush().await });
    world.settle();
    assert_eq!(export.held(), [Operation::Flush]);
    assert!(flushed.borrow().is_none());
    export.fail_with(Some(IoError::Medium));
    export.release(0);
    world.settle();
    assert_eq!(
        flushed.borrow_mut().take(),
        Some(Err(ClientError::Remote(Errno::Eio)))
    );
}

#[test]
fn a_read_that_an_export_cuts_short_is_an_error_and_no_short_answer() {
    for framing in FRAMINGS {
        let export = filled(4);
        export.read_short(true);
        let mut world = World::new(vec![export]);
        let (client, _) = world.client_of("vol0", framing);
        let done = Reads::default();
        read_sector(&mut world, &client, 1, &done);
        world.settle();
        let expected = (1, Err(ClientError::Remote(Errno::Eio)));
        assert_eq!(done.borrow_mut().pop(), Some(expected));
    }
}

#[test]
fn a_long_trim_ends_early_when_nobody_waits_for_it() {
    let export = memory("vol0", 1 << 40);
    let mut world = World::new(vec![export.clone()]);
    world.room_bytes = 10;
    let (stream, end) = raw(&mut world);
    export.hold(true);
    world.send(&stream, &head(99, 1, 0, 0));
    world.send(&stream, &head(command::TRIM, 2, 0, 0xffff_fe00));
    stream.close();
    world.settle();
    assert!(end.borrow().is_none(), "a slice is running");
    export.release(0);
    world.settle();
    assert!(end.borrow().is_some());
    assert_eq!(export.take_log().len(), 1);
}

#[test]
fn an_unfinished_payload_is_never_written() {
    for (length, missing) in [
        (512, 1),
        (512, 511),
        (512, 512),
        (1 << 20, 1),
        (1 << 20, 200_000),
    ] {
        let export = memory("vol0", 1 << 20);
        let mut world = World::new(vec![export.clone()]);
        let (stream, end) = raw(&mut world);
        let mut bytes = head(command::WRITE, 2, 0, length);
        bytes.extend(&pattern(9, length as usize)[missing..]);
        world.send(&stream, &bytes);
        assert_eq!(export.expected(), [(0, length)]);
        stream.close();
        world.settle();
        let how = end.borrow_mut().take().unwrap().0;
        assert!(matches!(how, Err(NbdError::Transport(_))), "{how:?}");
        assert_eq!(export.take_log(), []);
        assert_eq!(export.expected(), [], "it was called off");
        assert_eq!(world.server.used_bytes(), 0);
    }
}

#[test]
fn an_export_knows_of_a_payload_that_comes_in_parts_and_of_no_other() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    let (stream, _end) = raw(&mut world);
    let whole = [head(command::WRITE, 1, 0, 512), pattern(1, 512)].concat();
    world.send(&stream, &whole);
    assert_eq!((export.take_log().len(), export.expected().len()), (1, 0));
    let mut begin = head(command::WRITE, 2, 4096, 65_536);
    let payload = pattern(2, 65_536);
    begin.extend(&payload[..1000]);
    world.send(&stream, &begin);
    assert_eq!(export.expected(), [(4096, 65_536)]);
    world.send(&stream, &payload[1000..]);
    world.settle();
    assert_eq!((export.take_log().len(), export.expected().len()), (1, 0));
}

#[test]
fn a_client_that_refuses_its_answers_is_served_no_further() {
    let export = filled(4);
    let mut world = World::new(vec![export.clone()]);
    let (stream, end) = raw(&mut world);
    stream.refuse();
    world.send(&stream, &head(command::READ, 1, 0, 512));
    assert!(
        end.borrow().is_some(),
        "the session ends with its first answer"
    );
    assert_eq!(export.take_log().len(), 1);
    assert_eq!(world.server.used_bytes(), 0);
}

/// A whole session of a client as bytes: handshake, writes, reads, flush, goodbye.
fn script(framing: Framing) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    encode_option(&mut bytes, code::LIST, &[]);
    if framing == Framing::Extended {
        encode_option(&mut bytes, code::EXTENDED_HEADERS, &[]);
    }
    encode_option(&mut bytes, code::GO, &InfoRequest::encode("vol0", &[3]));
    let mut ask = |command, offset_bytes, length_bytes, payload: &[u8]| {
        let request = Request {
            flags: 0,
            command,
            cookie: 7,
            offset_bytes,
            length_bytes,
        };
        let (head, length) = request.encode(framing);
        bytes.extend_from_slice(&head[..length]);
        bytes.extend_from_slice(payload);
    };
    ask(command::WRITE, 0, 512, &pattern(1, 512));
    ask(command::READ, 0, 1024, &[]);
    ask(command::WRITE, 1 << 40, 512, &pattern(2, 512));
    ask(command::WRITE_ZEROES, 512, 512, &[]);
    ask(command::FLUSH, 0, 0, &[]);
    ask(command::DISC, 0, 0, &[]);
    bytes
}

#[test]
fn a_client_that_vanishes_at_any_byte_leaves_nothing_behind() {
    for framing in [Framing::Simple, Framing::Extended] {
        let script = script(framing);
        for cut in 0..=script.len() {
            let export = memory("vol0", 1 << 20);
            let mut world = World::new(vec![export.clone()]);
            let (stream, end) = world.dial();
            let stream = Rc::new(stream);
            stream.cut_after(cut as u64);
            world.send(&stream, &script);
            world.settle();
            assert!(end.borrow().is_some(), "{framing:?} cut at {cut}");
            assert_eq!(world.server.used_bytes(), 0);
            assert_eq!(world.server.session_count(), 0);
            assert_eq!(world.clock.sleepers(), 0);
            for operation in export.take_log() {
                assert!(!matches!(operation, Operation::Write(_, length, _) if length != 512));
            }
        }
    }
}

#[test]
fn a_client_that_stops_reading_at_any_byte_leaves_nothing_behind() {
    let script = script(Framing::Simple);
    for taken in 0..1400 {
        let mut world = World::new(vec![memory("vol0", 1 << 20)]);
        world.room_bytes = taken + 1;
        let (stream, end) = world.dial();
        let stream = Rc::new(stream);
        world.send(&stream, &script);
        stream.close();
        world.settle();
        assert!(end.borrow().is_some(), "{taken}");
        assert_eq!(world.server.used_bytes(), 0);
        assert_eq!(world.clock.sleepers(), 0);
    }
}

#[test]
fn bytes_that_come_one_by_one_are_understood() {
    for framing in FRAMINGS {
        let export = memory("vol0", 1 << 20);
        let mut world = World::new(vec![export]);
        world.room_bytes = 3;
        let (client, end) = world.client_of("vol0", framing);
        let data = pattern(3, 4096);
        let (piece, buf) = (world.buf(&data), world.pool.take(4096));
        let c = client.clone();
        let read = world.run(async move {
            c.write(512, piece, Fua::No).await.unwrap();
            c.read(512, buf).await.unwrap()
        });
        assert_eq!(read[..], data);
        client.disconnect();
        world.settle();
        assert_eq!(end.borrow_mut().take().unwrap().0, Ok(Ended::Disconnected));
    }
}

#[test]
fn a_removed_export_ends_its_sessions_and_only_those() {
    let (gone, stays) = (memory("vol0", 1 << 20), memory("vol1", 1 << 20));
    let mut world = World::new(vec![gone.clone(), stays]);
    let (idle, idle_end) = world.client_of("vol0", Framing::Extended);
    let (busy, busy_end) = world.client_of("vol0", Framing::Structured);
    let (other, other_end) = world.client_of("vol1", Framing::Simple);
    gone.hold(true);
    let piece = world.buf(&pattern(1, 512));
    let c = busy.clone();
    let written = world.start(async move { c.write(0, piece, Fua::No).await });
    world.settle();
    let server = Rc::clone(&world.server);
    let removed = world.start(async move { server.exports().close("vol0", Leave::Drain).await });
    world.settle();
    assert!(removed.borrow().is_none(), "a request is running");
    assert_eq!(idle_end.borrow_mut().take().unwrap().0, Ok(Ended::Stopped));
    assert!(idle.is_gone());
    // What is asked now is refused; what runs is finished.
    let c = busy.clone();
    let late = world.run(async move { c.flush().await });
    assert_eq!(late, Err(ClientError::Remote(Errno::Eshutdown)));
    gone.release(0);
    world.settle();
    assert_eq!(written.borrow_mut().take(), Some(Ok(())));
    assert_eq!(busy_end.borrow_mut().take().unwrap().0, Ok(Ended::Stopped));
    assert_eq!(removed.borrow_mut().take(), Some(true));
    assert!(world.client(ConnectOptions::new("vol0")).is_err());
    world.run(async move { other.flush().await }).unwrap();
    assert!(other_end.borrow().is_none());
    let server = Rc::clone(&world.server);
    assert!(!world.run(async move { server.exports().close("vol0", Leave::Drain).await }));
    // The name is free again.
    world.server.exports().open(memory("vol0", 512)).unwrap();
    assert!(world.client(ConnectOptions::new("vol0")).is_ok());
}

#[test]
fn a_session_that_is_dropped_gives_everything_back() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    export.hold(true);
    let (client, _) = world.client_of("vol0", Framing::Simple);
    world.start(async move { client.flush().await });
    world.settle();
    assert!(world.server.used_bytes() > 0);
    let server = Rc::clone(&world.server);
    // All tasks are dropped, as in a simulated crash.
    drop(world);
    assert_eq!(server.used_bytes(), 0);
    assert_eq!(server.session_count(), 0);
    assert_eq!(server.exports().status()[0].sessions, 0);
}

#[test]
fn a_stopping_server_ends_every_session_when_it_is_idle() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    let (busy, busy_end) = world.client_of("vol0", Framing::Simple);
    let (_idle, idle_end) = world.client_of("vol0", Framing::Simple);
    export.hold(true);
    let c = busy.clone();
    let flushed = world.start(async move { c.flush().await });
    world.settle();
    world.server.stop(Leave::Drain);
    world.settle();
    assert_eq!(idle_end.borrow_mut().take().unwrap().0, Ok(Ended::Stopped));
    assert!(busy_end.borrow().is_none());
    export.release(0);
    world.settle();
    assert_eq!(flushed.borrow_mut().take(), Some(Ok(())));
    assert_eq!(busy_end.borrow_mut().take().unwrap().0, Ok(Ended::Stopped));
    assert_eq!(world.server.session_count(), 0);
}

#[test]
fn unusable_exports_are_refused_by_name() {
    let world = World::new(vec![memory("vol0", 512)]);
    let add = |name: &str, change: fn(&mut plexum_front::export::ExportInfo)| {
        world
            .server
            .exports()
            .open(Rc::new(MemoryExport::new(name, 512, change)))
    };
    assert_eq!(
        add("vol0", |_| {}),
        Err(OpenError::NameTaken("vol0".into()))
    );
    assert!(matches!(add("", |_| {}), Err(OpenError::BadName(_))));
    assert!(matches!(add("a\0", |_| {}), Err(OpenError::BadName(_))));
    assert!(matches!(
        add(&"x".repeat(4097), |_| {}),
        Err(OpenError::BadName(_))
    ));
    assert_eq!(add(&"x".repeat(4096), |_| {}), Ok(()));
    for change in [
        (|info| info.block_bytes_min = 0) as fn(&mut plexum_front::export::ExportInfo),
        |info| info.block_bytes_min = 513,
        |info| info.block_bytes_min = 8192,
        |info| info.block_bytes_preferred = 5000,
        |info| info.block_bytes_preferred = 256,
        |info| info.block_bytes_preferred = 1 << 26,
    ] {
        assert!(matches!(
            add("a", change),
            Err(OpenError::BadBlockSize { .. })
        ));
    }
    assert!(matches!(
        add("a", |info| info.size_bytes = 1 << 63),
        Err(OpenError::TooLarge { .. })
    ));
    assert_eq!(add("a", |info| info.size_bytes = (1 << 63) - 512), Ok(()));
}

/// Some bytes that look like a session, with damage.
fn sessions() -> impl Strategy<Value = (Vec<u8>, usize, usize)> {
    let option = (
        prop_oneof![0_u32..14, any::<u32>()],
        prop::collection::vec(any::<u8>(), 0..60),
    );
    let options = prop::collection::vec(option, 0..6);
    let command = (
        0_u16..10,
        0_u16..64,
        prop_oneof![0_u64..4096, any::<u64>()],
        prop_oneof![0_u64..9000, any::<u64>()],
    );
    let commands = prop::collection::vec(command, 0..12);
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (
        any::<bool>(),
        options,
        commands,
        damage,
        1_usize..3000,
        1_usize..3000,
    )
        .prop_map(|(is_extended, options, commands, damage, room, fragment)| {
            let mut bytes = vec![0, 0, 0, 3];
            for (option, data) in options {
                encode_option(&mut bytes, option, &data);
            }
            if is_extended {
                encode_option(&mut bytes, code::EXTENDED_HEADERS, &[]);
            }
            encode_option(&mut bytes, code::GO, &InfoRequest::encode("vol0", &[3]));
            let framing = if is_extended {
                Framing::Extended
            } else {
                Framing::Simple
            };
            for (command, flags, offset_bytes, length_bytes) in commands {
                let length_bytes = if is_extended {
                    length_bytes
                } else {
                    length_bytes & 0xffff_ffff
                };
                let request = Request {
                    flags,
                    command,
                    cookie: 1,
                    offset_bytes,
                    length_bytes,
                };
                let (head, length) = request.encode(framing);
                bytes.extend_from_slice(&head[..length]);
                if command == command::WRITE && length_bytes < 9000 {
                    bytes.extend(std::iter::repeat_n(0x5a, length_bytes as usize));
                }
            }
            for (index, byte) in damage {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            (bytes, room, fragment)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_client_sends_ends_its_session_only((bytes, room, fragment) in sessions(), holds: bool) {
        let export = memory("vol0", 1 << 20);
        let mut world = World::new(vec![export.clone()]);
        world.room_bytes = room;
        let (stream, end) = world.dial();
        stream.fragment(fragment);
        let stream = Rc::new(stream);
        export.hold(holds);
        world.send(&stream, &bytes);
        let answers = world.receive(&stream);
        prop_assert!(answers.len() <= 40 << 20);
        prop_assert!(world.server.used_bytes() <= 64 << 20);
        while !export.held().is_empty() {
            export.release(export.held().len() / 2);
            world.settle();
        }
        stream.close();
        world.settle();
        world.advance(Duration::from_secs(60));
        while !export.held().is_empty() {
            export.release(0);
            world.settle();
        }
        prop_assert!(end.borrow().is_some(), "the session has ended");
        prop_assert_eq!(world.server.used_bytes(), 0);
        prop_assert_eq!(world.clock.sleepers(), 0);
        prop_assert_eq!(world.server.session_count(), 0);
    }

    #[test]
    fn any_interleaving_gives_every_request_its_own_answer(
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..40), framing in 0_usize..3, room in 1_usize..5000,
    ) {
        let export = filled(16);
        let mut world = World::new(vec![export.clone()]);
        world.room_bytes = room;
        let (client, end) = world.client_of("vol0", FRAMINGS[framing]);
        export.hold(true);
        let done = Reads::default();
        let mut asked = 0;
        for step in &order {
            let held = export.held().len();
            let choice = step.index(held + 3);
            if choice < held {
                export.release(choice);
            } else {
                read_sector(&mut world, &client, step.index(16) as u64, &done);
                asked += 1;
            }
            world.settle();
        }
        while !export.held().is_empty() {
            export.release(export.held().len() - 1);
            world.settle();
        }
        prop_assert_eq!(done.borrow().len(), asked);
        for (sector, data) in &*done.borrow() {
            prop_assert_eq!(data.as_ref().unwrap(), &pattern(*sector, 512));
        }
        client.disconnect();
        world.settle();
        let counts = end.borrow_mut().take().unwrap().1;
        prop_assert_eq!(counts.requests, asked as u64);
    }
}
