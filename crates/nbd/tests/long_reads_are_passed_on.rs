//! Long reads that go from the export to the stream without coming into memory: the client sees no difference.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::rc::Rc;

use common::{End, FRAMINGS, World, memory, pattern};
use plexum_engine::device::IoError;
use plexum_nbd::error::NbdError;
use plexum_nbd::session::Ended;
use plexum_nbd::testing::{MemoryExport, Operation, PipeEnd, pipe};
use plexum_nbd::transport::TransportError;
use plexum_nbd::wire::Framing;
use plexum_nbd::wire::option::{InfoRequest, code, encode_option};
use plexum_nbd::wire::request::{Request, command};

const SIZE: u64 = 4 << 20;
const LONG: u64 = 1 << 20;

/// A raw connection; the server's end of it has places for parked data or not.
struct Raw {
    world: World,
    stream: Rc<PipeEnd>,
    end: End,
    framing: Framing,
    export: Rc<MemoryExport>,
}

impl Raw {
    fn new(framing: Framing, is_parking: bool) -> Self {
        let export = memory("vol0", SIZE);
        export.park_reads(true);
        let mut world = World::new(vec![export.clone()]);
        let (ours, theirs) = pipe(64 << 10);
        if is_parking {
            theirs.offer_parking();
        }
        let server = Rc::clone(&world.server);
        let end = world.start(async move { server.serve(theirs).await });
        let stream = Rc::new(ours);
        let mut bytes = vec![0, 0, 0, 3];
        match framing {
            Framing::Simple => {}
            Framing::Structured => encode_option(&mut bytes, code::STRUCTURED_REPLY, &[]),
            Framing::Extended => encode_option(&mut bytes, code::EXTENDED_HEADERS, &[]),
        }
        encode_option(&mut bytes, code::GO, &InfoRequest::encode("", &[]));
        world.send(&stream, &bytes);
        world.receive(&stream);
        let mut raw = Self {
            world,
            stream,
            end,
            framing,
            export,
        };
        let payload = pattern(3, SIZE as usize);
        raw.ask(command::WRITE, &[(0, SIZE)], &payload);
        raw.export.take_log();
        raw
    }

    /// Sends all requests at once; everything that comes back.
    fn ask(&mut self, kind: u16, ranges: &[(u64, u64)], payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, (offset_bytes, length_bytes)) in ranges.iter().enumerate() {
            let request = Request {
                flags: 0,
                command: kind,
                cookie: 0x1111 * (number as u64 + 1),
                offset_bytes: *offset_bytes,
                length_bytes: *length_bytes,
            };
            let (head, length) = request.encode(self.framing);
            bytes.extend_from_slice(&head[..length]);
        }
        bytes.extend_from_slice(payload);
        self.world.send(&self.stream, &bytes);
        self.world.receive(&self.stream)
    }
}

#[test]
fn answers_are_the_same_to_the_byte_in_every_framing() {
    let ranges = [
        (0, LONG),
        (512, 4096),
        (LONG + 512, LONG - 512),
        (8192, 512),
        (0, SIZE),
        (SIZE - LONG, LONG),
        (SIZE - 512, 512),
    ];
    for framing in FRAMINGS {
        let (mut parked, mut copied) = (Raw::new(framing, true), Raw::new(framing, false));
        let replies = parked.ask(command::READ, &ranges, &[]);
        assert!(replies == copied.ask(command::READ, &ranges, &[]));
        let log = parked.export.take_log();
        let is_long = |(_, length): &&(u64, u64)| *length >= LONG / 2;
        for (offset, length) in ranges.iter().filter(is_long) {
            assert!(log.contains(&Operation::Park(*offset, *length)), "{log:?}");
            assert!(!log.contains(&Operation::Read(*offset, *length)));
        }
        assert!(log.contains(&Operation::Read(8192, 512)), "not worth it");
        let copies = copied.export.take_log();
        assert!(
            copies
                .iter()
                .all(|call| matches!(call, Operation::Read(..)))
        );
        assert!(parked.end.borrow().is_none() && copied.end.borrow().is_none());
    }
}

#[test]
fn an_export_that_cannot_park_now_is_read_and_its_errors_are_answers() {
    for framing in FRAMINGS {
        let (mut parked, mut copied) = (Raw::new(framing, true), Raw::new(framing, false));
        parked.export.park_reads(false);
        let replies = parked.ask(command::READ, &[(0, LONG)], &[]);
        assert!(replies == copied.ask(command::READ, &[(0, LONG)], &[]));
        for raw in [&mut parked, &mut copied] {
            raw.export.fail_with(Some(IoError::Medium));
        }
        let replies = parked.ask(command::READ, &[(0, LONG), (512, 512)], &[]);
        assert!(replies == copied.ask(command::READ, &[(0, LONG), (512, 512)], &[]));
        assert!(parked.end.borrow().is_none());
    }
}

#[test]
fn an_export_that_parks_less_than_was_asked_for_sends_nothing_of_it() {
    let mut raw = Raw::new(Framing::Simple, true);
    raw.export.read_short(true);
    let reply = raw.ask(command::READ, &[(0, LONG)], &[]);
    // The ordinary read is as careless: the answer is an error, and nothing else.
    assert_eq!(reply.len(), 16);
    assert_ne!(reply[4..8], [0; 4]);
    let log = raw.export.take_log();
    assert_eq!(log, [Operation::Park(0, LONG), Operation::Read(0, LONG)]);
}

#[test]
fn a_client_that_hangs_up_in_the_middle_ends_its_session_and_leaves_nothing_behind() {
    for framing in FRAMINGS {
        let mut raw = Raw::new(framing, true);
        let request = Request {
            flags: 0,
            command: command::READ,
            cookie: 7,
            offset_bytes: 0,
            length_bytes: LONG,
        };
        let (head, length) = request.encode(framing);
        let bytes = [&head[..length], &head[..length]].concat();
        raw.world.send(&raw.stream, &bytes);
        assert!(raw.stream.waiting_bytes() > 0, "the first part is here");
        raw.stream.refuse();
        raw.world.settle();
        let ended = raw.end.borrow_mut().take().expect("the session is over");
        let how = ended.0;
        assert!(
            matches!(
                how,
                Ok(Ended::HungUp) | Err(NbdError::Transport(TransportError::Closed))
            ),
            "{how:?}"
        );
        assert_eq!(raw.world.server.used_bytes(), 0);
    }
}
