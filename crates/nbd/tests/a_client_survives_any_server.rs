//! The client against servers that a test plays by hand: legal oddities are understood, everything else ends the
//! connection and every request with it.
#![allow(clippy::unwrap_used)]

mod common;

use common::played::{ALL, Played, SIZE, at, dial, export, handshake, hole, refusal};

use std::rc::Rc;

use common::{FRAMINGS, World, memory, pattern};
use plexum_block::device::Fua;
use plexum_front::export::{Extent, ZeroRequest};
use plexum_nbd::client::{ClientError, ConnectOptions, connect, list};
use plexum_nbd::error::NbdError;
use plexum_nbd::testing::{Operation, pipe};
use plexum_nbd::transport::Transport;
use plexum_nbd::wire::option::{
    InfoFact, code, encode_reply, encode_server, greeting, reply, tflag,
};
use plexum_nbd::wire::reply::{ChunkHead, chunk, encode_error, encode_extents, encode_simple};
use plexum_nbd::wire::request::command;
use plexum_nbd::wire::{Errno, Framing};
use proptest::prelude::*;

#[test]
fn chunks_in_any_order_with_holes_between_them_make_a_read() {
    for framing in [Framing::Structured, Framing::Extended] {
        let mut played = Played::new(framing);
        let (first, one) = played.read(512, 2048);
        let (second, two) = played.read(0, 512);
        assert_ne!(one.cookie, two.cookie);
        played.chunk(&one, false, chunk::OFFSET_DATA, &at(2048, &[3; 512]));
        played.chunk(&two, true, chunk::OFFSET_HOLE, &hole(0, 512));
        played.chunk(&one, false, chunk::OFFSET_DATA, &at(512, &[1; 512]));
        assert!(first.borrow().is_none());
        played.chunk(&one, false, chunk::OFFSET_HOLE, &hole(1024, 1024));
        played.chunk(&one, true, chunk::NONE, &[]);
        let expected = [[1; 512], [0; 512], [0; 512], [3; 512]].concat();
        assert_eq!(first.borrow_mut().take(), Some(Ok(expected)));
        assert_eq!(second.borrow_mut().take(), Some(Ok(vec![0; 512])));
    }
}

#[test]
fn errors_of_every_shape_fail_their_request_only() {
    for framing in [Framing::Structured, Framing::Extended] {
        let mut played = Played::new(framing);
        let eio = encode_error(Errno::Eio, "disk\x1b");
        let cases = [
            (chunk::ERROR, eio.clone(), Errno::Eio),
            (
                chunk::ERROR_OFFSET,
                [&eio[..], &[0; 8]].concat(),
                Errno::Eio,
            ),
            (0x8042, vec![1, 2, 3], Errno::Einval),
            (0x8042, vec![], Errno::Einval),
            (
                chunk::ERROR,
                encode_error(Errno::Eshutdown, ""),
                Errno::Eshutdown,
            ),
        ];
        for (kind, payload, expected) in cases {
            let (read, request) = played.read(0, 512);
            played.chunk(&request, false, chunk::OFFSET_DATA, &at(0, &[1; 512]));
            played.chunk(&request, false, kind, &payload);
            assert!(read.borrow().is_none());
            played.chunk(&request, true, chunk::NONE, &[]);
            assert_eq!(
                read.borrow_mut().take(),
                Some(Err(ClientError::Remote(expected)))
            );
        }
        let (flush, request) = played.flush();
        played.chunk(
            &request,
            true,
            chunk::ERROR,
            &encode_error(Errno::Enospc, ""),
        );
        assert_eq!(
            flush.borrow_mut().take(),
            Some(Err(ClientError::Remote(Errno::Enospc)))
        );
        let (flush, request) = played.flush();
        played.chunk(&request, true, chunk::NONE, &[]);
        assert_eq!(flush.borrow_mut().take(), Some(Ok(())));
    }
}

#[test]
fn simple_replies_are_taken_where_they_are_legal() {
    for framing in [Framing::Simple, Framing::Structured] {
        let mut played = Played::new(framing);
        let (flush, request) = played.flush();
        let bytes = encode_simple(Some(Errno::Eio), request.cookie);
        played.world.send(&played.server, &bytes);
        assert_eq!(
            flush.borrow_mut().take(),
            Some(Err(ClientError::Remote(Errno::Eio)))
        );
        let (read, request) = played.read(0, 512);
        let bytes = [&encode_simple(None, request.cookie)[..], &pattern(1, 512)].concat();
        played.world.send(&played.server, &bytes);
        let expected = if framing == Framing::Simple {
            Ok(pattern(1, 512))
        } else {
            Err(ClientError::Gone)
        };
        assert_eq!(read.borrow_mut().take(), Some(expected));
        assert_eq!(played.is_broken(), framing == Framing::Structured);
    }
}

/// A chunk: whether it is the last one, its type, its payload.
type Chunk = (bool, u16, Vec<u8>);

/// What a server may do wrong in answer to a read of 1024 bytes at 512: chunks with their DONE flag.
fn wrong_reads() -> Vec<(&'static str, Vec<Chunk>)> {
    let data = |offset, length| (false, chunk::OFFSET_DATA, at(offset, &vec![1; length]));
    let end = || (true, chunk::NONE, vec![]);
    vec![
        ("bytes missing", vec![data(512, 512), end()]),
        ("nothing at all", vec![end()]),
        ("an overlap", vec![data(512, 1024), data(1024, 512)]),
        ("an overlap by one", vec![data(512, 512), data(1023, 100)]),
        (
            "an overlap with a hole",
            vec![data(1024, 512), (false, chunk::OFFSET_HOLE, hole(512, 513))],
        ),
        ("before the range", vec![data(511, 1)]),
        ("behind the range", vec![data(1024, 513)]),
        ("far behind", vec![data(u64::MAX, 2)]),
        ("an empty chunk", vec![data(512, 0)]),
        (
            "an empty hole",
            vec![(false, chunk::OFFSET_HOLE, hole(512, 0))],
        ),
        (
            "a long hole",
            vec![(false, chunk::OFFSET_HOLE, [hole(512, 1), vec![0]].concat())],
        ),
        (
            "NONE that is not the end",
            vec![(false, chunk::NONE, vec![])],
        ),
        ("NONE with something", vec![(true, chunk::NONE, vec![1])]),
        ("status", vec![(true, chunk::BLOCK_STATUS, vec![0; 12])]),
        ("an unknown type", vec![(true, 77, vec![])]),
        (
            "no error in an error",
            vec![(true, chunk::ERROR, vec![0; 6])],
        ),
        (
            "half an error",
            vec![(true, chunk::ERROR, vec![0, 0, 0, 5])],
        ),
        (
            "a text longer than its chunk",
            vec![(true, chunk::ERROR, vec![0, 0, 0, 5, 0, 9])],
        ),
    ]
}

#[test]
fn a_read_that_does_not_add_up_ends_the_connection() {
    for framing in [Framing::Structured, Framing::Extended] {
        for (what, chunks) in wrong_reads() {
            let mut played = Played::new(framing);
            let (read, request) = played.read(512, 1024);
            let (flush, _) = played.flush();
            for (is_done, kind, payload) in chunks {
                played.chunk(&request, is_done, kind, &payload);
            }
            assert!(played.is_broken(), "{framing:?}: {what}");
            assert_eq!(
                read.borrow_mut().take(),
                Some(Err(ClientError::Gone)),
                "{what}"
            );
            assert_eq!(
                flush.borrow_mut().take(),
                Some(Err(ClientError::Gone)),
                "{what}"
            );
        }
    }
}

#[test]
fn answers_to_nobody_end_the_connection() {
    for framing in [Framing::Structured, Framing::Extended] {
        for wrong in [1, 1 << 32, u64::MAX] {
            let mut played = Played::new(framing);
            let (_read, mut request) = played.read(512, 512);
            request.cookie ^= wrong;
            played.chunk(&request, true, chunk::NONE, &[]);
            assert!(played.is_broken(), "{wrong:#x}");
        }
        let mut played = Played::new(framing);
        let (flush, request) = played.flush();
        played.chunk(&request, true, chunk::NONE, &[]);
        assert!(flush.borrow().is_some());
        played.chunk(&request, true, chunk::NONE, &[]);
        assert!(played.is_broken(), "a second answer");
    }
    let mut played = Played::new(Framing::Extended);
    let (_read, mut request) = played.read(512, 512);
    request.offset_bytes = 0;
    played.chunk(&request, true, chunk::OFFSET_HOLE, &hole(512, 512));
    assert!(played.is_broken(), "the offset of another request");
}

#[test]
fn a_chunk_that_claims_to_be_huge_is_refused_before_memory_is_taken() {
    for kind in [chunk::ERROR, chunk::BLOCK_STATUS_EXT] {
        let mut played = Played::new(Framing::Extended);
        let (_status, request) = played.status();
        let head = ChunkHead {
            is_done: true,
            kind,
            cookie: request.cookie,
            offset_bytes: 0,
            length_bytes: u64::MAX,
        };
        let (bytes, _) = head.encode(Framing::Extended);
        played.world.send(&played.server, &bytes);
        assert!(played.is_broken());
    }
}

#[test]
fn status_comes_once_in_the_right_form_for_the_context_chosen() {
    for framing in [Framing::Structured, Framing::Extended] {
        let (kind, other) = if framing == Framing::Extended {
            (chunk::BLOCK_STATUS_EXT, chunk::BLOCK_STATUS)
        } else {
            (chunk::BLOCK_STATUS, chunk::BLOCK_STATUS_EXT)
        };
        let extents = vec![Extent {
            length_bytes: SIZE,
            is_hole: true,
            is_zero: true,
        }];
        let payload = |id| {
            let mut payload = Vec::new();
            encode_extents(&mut payload, framing, id, &extents);
            payload
        };
        let mut played = Played::new(framing);
        let (status, request) = played.status();
        played.chunk(&request, true, kind, &payload(9));
        assert_eq!(status.borrow_mut().take(), Some(Ok(extents.clone())));
        let wrong = [
            vec![(kind, payload(8))],
            vec![(kind, payload(9)), (kind, payload(9))],
            vec![(other, payload(9))],
            vec![(kind, payload(9)[..5].to_vec())],
            vec![],
        ];
        for chunks in wrong {
            let mut played = Played::new(framing);
            let (_status, request) = played.status();
            for (kind, payload) in chunks {
                played.chunk(&request, false, kind, &payload);
            }
            played.chunk(&request, true, chunk::NONE, &[]);
            assert!(played.is_broken());
        }
    }
}

#[test]
fn a_dropped_request_gets_its_answer_and_nobody_else_does() {
    let mut played = Played::new(Framing::Structured);
    let (client, buf) = (played.client.clone(), played.world.pool.take(512));
    let (stop, stopped) = (
        Rc::new(std::cell::Cell::new(false)),
        Rc::new(std::cell::Cell::new(false)),
    );
    {
        // A read that is dropped after its first poll.
        let (stop, stopped) = (Rc::clone(&stop), Rc::clone(&stopped));
        played.world.exec.spawn(async move {
            let mut read = Box::pin(client.read(0, buf));
            std::future::poll_fn(|cx| {
                let poll = read.as_mut().poll(cx);
                assert!(poll.is_pending());
                if stop.get() {
                    std::task::Poll::Ready(())
                } else {
                    stop.set(true);
                    cx.waker().wake_by_ref();
                    std::task::Poll::Pending
                }
            })
            .await;
            drop(read);
            stopped.set(true);
        });
    }
    let dropped = played.request();
    assert!(stopped.get());
    assert_eq!(played.client.in_flight(), 1);
    let (read, request) = played.read(512, 512);
    assert_ne!(
        dropped.cookie & 0xffff_ffff,
        request.cookie & 0xffff_ffff,
        "its place is taken"
    );
    played.chunk(&dropped, true, chunk::OFFSET_DATA, &at(0, &[7; 512]));
    assert!(read.borrow().is_none());
    played.chunk(&request, true, chunk::OFFSET_DATA, &at(512, &[8; 512]));
    assert_eq!(read.borrow_mut().take(), Some(Ok(vec![8; 512])));
    assert_eq!(played.client.in_flight(), 0);
}

#[test]
fn the_end_of_the_stream_ends_every_request_and_later_ones_at_once() {
    let mut played = Played::new(Framing::Structured);
    let (read, _) = played.read(0, 512);
    played.server.close();
    played.world.settle();
    assert_eq!(read.borrow_mut().take(), Some(Err(ClientError::Gone)));
    let client = played.client.clone();
    assert_eq!(
        played.world.run(async move { client.flush().await }),
        Err(ClientError::Gone)
    );
    assert!(matches!(
        &*played.driven.borrow(),
        Some(Err(NbdError::Transport(_)))
    ));
}

#[test]
fn a_driver_that_is_dropped_ends_every_request() {
    let (mut world, server, connected) = dial(&handshake(Framing::Simple, &[export(SIZE, ALL)]));
    let (client, driver) = connected.borrow_mut().take().unwrap().unwrap();
    let c = client.clone();
    let flush = world.start(async move { c.flush().await });
    world.settle();
    drop(driver);
    world.settle();
    assert_eq!(flush.borrow_mut().take(), Some(Err(ClientError::Gone)));
    assert!(client.is_gone());
    world.receive(&server);
    let end = world.run(async move { server.read(&mut [0; 9]).await });
    assert_eq!(end, Ok(0), "the server sees the end of the stream");
}

#[test]
fn a_goodbye_waits_for_the_requests_in_flight() {
    let mut played = Played::new(Framing::Structured);
    let (flush, request) = played.flush();
    played.client.disconnect();
    assert_eq!(played.world.receive(&played.server), []);
    let client = played.client.clone();
    assert_eq!(
        played.world.run(async move { client.flush().await }),
        Err(ClientError::Gone),
        "too late"
    );
    played.chunk(&request, true, chunk::NONE, &[]);
    assert_eq!(flush.borrow_mut().take(), Some(Ok(())));
    assert_eq!(played.request().command, command::DISC);
    assert_eq!(played.driven.borrow_mut().take(), Some(Ok(())));
}

#[test]
fn servers_without_go_are_entered_by_export_name() {
    for (flags, zeroes) in [(3_u16, 0), (1, 124)] {
        let mut script = greeting().to_vec();
        script[16..18].copy_from_slice(&flags.to_be_bytes());
        for option in [code::EXTENDED_HEADERS, code::STRUCTURED_REPLY, code::GO] {
            encode_reply(&mut script, option, reply::ERR_UNSUP, b"no such option");
        }
        script.extend(SIZE.to_be_bytes());
        script.extend(5_u16.to_be_bytes());
        script.extend(vec![0; zeroes]);
        let (_world, _server, connected) = dial(&script);
        let (client, _driver) = connected.borrow_mut().take().unwrap().unwrap();
        assert_eq!(client.remote().size_bytes, SIZE);
        assert_eq!(client.remote().tflags, 5);
        assert_eq!(client.remote().block_bytes_min, 1);
    }
}

#[test]
fn refusals_are_told_in_words_and_escaped() {
    let start = |kind, words: &[u8]| {
        let mut script = handshake(Framing::Simple, &[]);
        script.truncate(script.len() - 20);
        encode_reply(&mut script, code::GO, kind, words);
        refusal(&script)
    };
    let unknown = start(reply::ERR_UNKNOWN, b"we have\x1b[2J none");
    assert!(
        unknown.contains("no such export") && unknown.contains("\\u{1b}"),
        "{unknown}"
    );
    assert!(start(reply::ERR_SHUTDOWN, b"").contains("stopping"));
    assert!(start(0x8000_1234, &[0xff]).contains("unknown error"));
    let mut tls = greeting().to_vec();
    encode_reply(&mut tls, code::EXTENDED_HEADERS, reply::ERR_TLS_REQD, &[]);
    assert!(refusal(&tls).contains("requires TLS"));
}

#[test]
fn handshakes_that_make_no_sense_are_refused() {
    let sizes = |minimum, preferred, payload_max| {
        let sizes = InfoFact::BlockSize {
            minimum,
            preferred,
            payload_max,
        };
        refusal(&handshake(Framing::Simple, &[export(SIZE, ALL), sizes]))
    };
    assert!(sizes(0, 512, 1 << 20).contains("not allowed"));
    assert!(sizes(513, 4096, 1 << 20).contains("not allowed"));
    assert!(sizes(1 << 17, 1 << 17, 1 << 20).contains("not allowed"));
    assert!(sizes(4096, 512, 1 << 20).contains("not allowed"));
    assert!(sizes(4096, 4096, 0).contains("not allowed"));
    let refused = |facts: &[InfoFact<'_>]| refusal(&handshake(Framing::Simple, facts));
    assert!(refused(&[]).contains("size"));
    assert!(refused(&[export(u64::MAX, ALL)]).contains("not allowed"));
    assert!(refused(&[export(SIZE, 0)]).contains("not allowed"));
    let mut other = greeting().to_vec();
    encode_reply(&mut other, code::GO, reply::ACK, &[]);
    assert!(refusal(&other).contains("another option"));
    let mut long = greeting().to_vec();
    encode_reply(&mut long, code::EXTENDED_HEADERS, reply::ACK, &[]);
    let at = long.len() - 4;
    long[at..].copy_from_slice(&[0xff; 4]);
    assert!(refusal(&long).contains("too long"));
    assert!(refusal(b"").contains("closed"));
    assert!(refusal(&[0; 18]).contains("magic"));
}

#[test]
fn requests_that_do_not_fit_are_not_sent() {
    let sizes = InfoFact::BlockSize {
        minimum: 4096,
        preferred: 4096,
        payload_max: 1 << 20,
    };
    let flags = tflag::HAS_FLAGS | tflag::READ_ONLY;
    let mut played = Played::with(Framing::Simple, &[export(1 << 40, flags), sizes]);
    let (client, pool) = (played.client.clone(), played.world.pool.clone());
    let results = played.world.run(async move {
        let how = ZeroRequest {
            fua: Fua::No,
            may_unmap: true,
            only_if_fast: false,
        };
        [
            client.read(512, pool.take(4096)).await.map(|_| ()),
            client.read(0, pool.take(512)).await.map(|_| ()),
            client.read(1 << 40, pool.take(4096)).await.map(|_| ()),
            client
                .read(u64::MAX - 4095, pool.take(4096))
                .await
                .map(|_| ()),
            client
                .read(0, pool.take((1 << 20) + 4096))
                .await
                .map(|_| ()),
            client.read_whole(0, pool.take(4096)).await.map(|_| ()),
            client.write(0, pool.take(4096).freeze(), Fua::Yes).await,
            client.flush().await,
            client.trim(0, 4096, Fua::No).await,
            client.zero(0, 4096, how).await,
            client.cache(0, 4096).await,
            client.status(0, 4096, true).await.map(|_| ()),
        ]
    });
    assert!(
        results
            .iter()
            .all(|result| *result == Err(ClientError::Unfit)),
        "{results:?}"
    );
    assert_eq!(played.world.receive(&played.server), []);
}

#[test]
fn every_command_reaches_our_server_with_its_flags() {
    for framing in FRAMINGS {
        let export = memory("vol0", SIZE);
        let mut world = World::new(vec![export.clone()]);
        let (client, _) = world.client_of("vol0", framing);
        let how = ZeroRequest {
            fua: Fua::Yes,
            may_unmap: false,
            only_if_fast: true,
        };
        let (piece, buf) = (world.buf(&pattern(1, 512)), world.pool.take(512));
        let c = client.clone();
        world.run(async move {
            c.write(0, piece, Fua::Yes).await.unwrap();
            c.zero(512, 512, how).await.unwrap();
            c.trim(1024, 512, Fua::Yes).await.unwrap();
            c.cache(0, 512).await.unwrap();
            c.flush().await.unwrap();
            let whole = c.read_whole(0, buf).await;
            assert_eq!(whole.is_ok(), c.remote().framing != Framing::Simple);
            let status = c.status(0, SIZE, true).await;
            assert_eq!(status.is_ok(), c.remote().framing != Framing::Simple);
        });
        let mut expected = vec![
            Operation::Write(0, 512, Fua::Yes),
            Operation::Zero(512, 512, how),
            Operation::Trim(1024, 512, Fua::Yes),
            Operation::Cache(0, 512),
            Operation::Flush,
        ];
        if framing != Framing::Simple {
            expected.push(Operation::Read(0, 512));
            expected.push(Operation::Status(0, SIZE, 1));
        }
        assert_eq!(export.take_log(), expected);
    }
}

#[test]
fn exports_are_listed_and_the_connection_ends() {
    let mut world = World::new(vec![memory("a", 512), memory("b", 512)]);
    let (ours, end) = world.dial();
    let pool = world.pool.clone();
    let exports = world.run(async move { list(&ours, &pool).await }).unwrap();
    assert_eq!(
        exports,
        [
            ("a".to_owned(), String::new()),
            ("b".to_owned(), String::new())
        ]
    );
    world.settle();
    assert!(end.borrow().is_some());
    let mut script = greeting().to_vec();
    encode_reply(
        &mut script,
        code::LIST,
        reply::SERVER,
        &encode_server("a", "")[..4],
    );
    encode_reply(&mut script, code::LIST, reply::ACK, &[]);
    let (ours, theirs) = pipe(1 << 20);
    let pool = world.pool.clone();
    let listed = world.start(async move { list(&ours, &pool).await });
    world.send(&Rc::new(theirs), &script);
    assert!(matches!(
        listed.borrow_mut().take(),
        Some(Err(NbdError::Wire(_)))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_server_sends_every_request_ends(
        framing in 0_usize..3, noise in prop::collection::vec(any::<u8>(), 0..300),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        chunks in prop::collection::vec((0_u64..3, any::<bool>(), prop_oneof![0_u16..8, 0x8000_u16..0x8004], 0_u64..2000, 0_usize..40), 0..6),
    ) {
        let framing = FRAMINGS[framing];
        let mut script = handshake(framing, &[export(SIZE, ALL)]);
        for (slot, is_done, kind, offset, length) in chunks {
            let cookie = 1 << 32 | slot;
            let payload = at(offset, &vec![0; length]);
            if framing == Framing::Simple {
                script.extend(encode_simple(None, cookie));
                continue;
            }
            let head = ChunkHead { is_done, kind, cookie, offset_bytes: 0, length_bytes: payload.len() as u64 };
            let (bytes, length) = head.encode(framing);
            script.extend(&bytes[..length]);
            script.extend(payload);
        }
        script.extend(noise);
        for (index, byte) in damage {
            let at = index.index(script.len());
            script[at] = byte;
        }
        let mut world = World::new(vec![]);
        let (ours, theirs) = pipe(64);
        let theirs = Rc::new(theirs);
        let pool = world.pool.clone();
        let spawner = world.exec.spawner();
        let ended = world.start(async move {
            let Ok((client, driver)) = connect(ours, pool.clone(), &ConnectOptions::new("")).await else {
                return;
            };
            let driven = spawner.spawn(driver.run());
            let read = {
                let (client, pool) = (client.clone(), pool.clone());
                spawner.spawn(async move { client.read(0, pool.take(512)).await.map(|_| ()) })
            };
            let status = {
                let client = client.clone();
                spawner.spawn(async move { client.status(0, 512, true).await.map(|_| ()) })
            };
            let _ = client.flush().await;
            let _ = read.await;
            let _ = status.await;
            let _ = driven.await;
            assert!(client.is_gone());
            assert_eq!(client.in_flight(), 0);
        });
        world.send(&theirs, &script);
        world.receive(&theirs);
        theirs.close();
        world.settle();
        prop_assert!(ended.borrow().is_some());
    }
}
