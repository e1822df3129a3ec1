//! The transmission phase over raw bytes: every command, flag and error rule, in every framing.
#![allow(clippy::unwrap_used)]

mod common;

use std::rc::Rc;

use common::{End, FRAMINGS, World, hex, memory, pattern};
use plexum_block::device::{Fua, IoError};
use plexum_front::export::ZeroRequest;
use plexum_nbd::error::NbdError;
use plexum_nbd::session::Ended;
use plexum_nbd::testing::{MemoryExport, Operation, PipeEnd};
use plexum_nbd::wire::option::{ContextRequest, InfoRequest, code, encode_option};
use plexum_nbd::wire::reply::{ReplyHead, chunk, decode_error, decode_extents};
use plexum_nbd::wire::request::{Request, command, encode_status_payload, flag};
use plexum_nbd::wire::{Errno, Framing};

const SIZE: u64 = 1 << 20;

/// A raw connection in its transmission phase.
struct Raw {
    world: World,
    stream: Rc<PipeEnd>,
    end: End,
    framing: Framing,
    export: Rc<MemoryExport>,
    cookie: u64,
}

/// What came back for a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Data(Vec<u8>),
    Status(Vec<(u64, bool)>),
    Error(Errno),
}

impl Raw {
    fn new(framing: Framing, with_context: bool, export: MemoryExport) -> Self {
        let export = Rc::new(export);
        let mut world = World::new(vec![export.clone()]);
        let (stream, end) = world.dial();
        let stream = Rc::new(stream);
        let mut bytes = vec![0, 0, 0, 3];
        match framing {
            Framing::Simple => {}
            Framing::Structured => encode_option(&mut bytes, code::STRUCTURED_REPLY, &[]),
            Framing::Extended => encode_option(&mut bytes, code::EXTENDED_HEADERS, &[]),
        }
        if with_context {
            let data = ContextRequest::encode("", &["base:allocation"]);
            encode_option(&mut bytes, code::SET_META_CONTEXT, &data);
        }
        encode_option(&mut bytes, code::GO, &InfoRequest::encode("", &[]));
        world.send(&stream, &bytes);
        world.receive(&stream);
        assert!(end.borrow().is_none());
        Self {
            world,
            stream,
            end,
            framing,
            export,
            cookie: 0x1234_5678_9abc_def0,
        }
    }

    fn plain(framing: Framing) -> Self {
        Self::new(
            framing,
            framing != Framing::Simple,
            MemoryExport::new("vol0", SIZE, |_| {}),
        )
    }

    fn raw(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.world.send(&self.stream, bytes);
        self.world.receive(&self.stream)
    }

    fn request(
        &mut self,
        command: u16,
        flags: u16,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Vec<u8> {
        self.cookie = self.cookie.rotate_left(1);
        let request = Request {
            flags,
            command,
            cookie: self.cookie,
            offset_bytes,
            length_bytes,
        };
        let (bytes, length) = request.encode(self.framing);
        bytes[..length].to_vec()
    }

    fn ask(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u64,
        payload: &[u8],
    ) -> Answer {
        let mut bytes = self.request(command, flags, offset, length);
        bytes.extend_from_slice(payload);
        let reply = self.raw(&bytes);
        let answer = self.decode(command, offset, &reply);
        assert!(self.end.borrow().is_none(), "the session goes on");
        answer
    }

    /// Checks head and payload of the one reply to the last request.
    fn decode(&self, command: u16, offset: u64, reply: &[u8]) -> Answer {
        let magic = reply.first_chunk::<4>().expect("there is a reply");
        let head_bytes = ReplyHead::bytes_of(self.framing, *magic).unwrap();
        let payload = &reply[head_bytes..];
        let head = match ReplyHead::decode(self.framing, &reply[..head_bytes]).unwrap() {
            ReplyHead::Simple { error, cookie } => {
                assert_eq!(cookie, self.cookie);
                let needs_chunks = command == command::READ || command == command::BLOCK_STATUS;
                assert!(self.framing == Framing::Simple || !needs_chunks);
                return match Errno::from_number(error) {
                    Some(error) => {
                        assert_eq!(payload, []);
                        Answer::Error(error)
                    }
                    None if command == command::READ => Answer::Data(payload.to_vec()),
                    None => {
                        assert_eq!(payload, []);
                        Answer::Done
                    }
                };
            }
            ReplyHead::Chunk(head) => head,
        };
        assert_eq!(head.cookie, self.cookie);
        assert!(head.is_done, "we send one chunk");
        assert_eq!(head.length_bytes, payload.len() as u64);
        if self.framing == Framing::Extended {
            assert_eq!(head.offset_bytes, offset);
        }
        match head.kind {
            chunk::NONE => Answer::Done,
            chunk::OFFSET_DATA => {
                assert_eq!(payload[..8], offset.to_be_bytes());
                Answer::Data(payload[8..].to_vec())
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => {
                let is_extended = self.framing == Framing::Extended;
                assert_eq!(head.kind == chunk::BLOCK_STATUS_EXT, is_extended);
                let (id, extents) = decode_extents(head.kind, payload).unwrap();
                assert_eq!(id, 1);
                Answer::Status(
                    extents
                        .iter()
                        .map(|e| (e.length_bytes, e.is_zero))
                        .collect(),
                )
            }
            kind => Answer::Error(decode_error(kind, payload).unwrap().0),
        }
    }

    fn how(&self) -> Option<Result<Ended, NbdError>> {
        self.end.borrow().as_ref().map(|(how, _)| how.clone())
    }
}

fn write_flag(framing: Framing) -> u16 {
    if framing == Framing::Extended {
        flag::PAYLOAD_LEN
    } else {
        0
    }
}

#[test]
fn every_command_does_what_it_says_and_reaches_the_export_once() {
    for framing in FRAMINGS {
        let mut raw = Raw::plain(framing);
        let data = pattern(1, 1024);
        let plain = write_flag(framing);
        assert_eq!(
            raw.ask(command::WRITE, plain, 512, 1024, &data),
            Answer::Done
        );
        assert_eq!(
            raw.ask(command::WRITE, plain | flag::FUA, 8192, 1024, &data),
            Answer::Done
        );
        assert_eq!(
            raw.ask(command::READ, 0, 512, 1024, &[]),
            Answer::Data(data.clone())
        );
        assert_eq!(
            raw.ask(command::READ, flag::FUA, 8192, 1024, &[]),
            Answer::Data(data)
        );
        assert_eq!(raw.ask(command::FLUSH, flag::FUA, 0, 0, &[]), Answer::Done);
        assert_eq!(
            raw.ask(command::TRIM, flag::FUA, 512, 512, &[]),
            Answer::Done
        );
        assert_eq!(raw.ask(command::CACHE, 0, 0, SIZE, &[]), Answer::Done);
        let flags = flag::NO_HOLE | flag::FAST_ZERO | flag::FUA;
        assert_eq!(
            raw.ask(command::WRITE_ZEROES, flags, 1024, 512, &[]),
            Answer::Done
        );
        let how = ZeroRequest {
            fua: Fua::Yes,
            may_unmap: false,
            only_if_fast: true,
        };
        let expected = [
            Operation::Write(512, 1024, Fua::No),
            Operation::Write(8192, 1024, Fua::Yes),
            Operation::Read(512, 1024),
            Operation::Read(8192, 1024),
            Operation::Flush,
            Operation::Trim(512, 512, Fua::Yes),
            Operation::Cache(0, SIZE),
            Operation::Zero(1024, 512, how),
        ];
        assert_eq!(raw.export.take_log(), expected);
    }
}

#[test]
fn a_client_that_leaves_out_payload_len_is_understood() {
    let mut raw = Raw::plain(Framing::Extended);
    let data = pattern(2, 512);
    assert_eq!(raw.ask(command::WRITE, 0, 0, 512, &data), Answer::Done);
    assert_eq!(raw.ask(command::READ, 0, 0, 512, &[]), Answer::Data(data));
}

#[test]
fn flags_that_a_command_does_not_take_are_einval_with_the_payload_consumed() {
    for framing in FRAMINGS {
        let mut raw = Raw::plain(framing);
        let fua = flag::FUA;
        let df = if framing == Framing::Simple {
            0
        } else {
            flag::DF
        };
        let allowed = [
            (command::READ, fua | df),
            (command::WRITE, fua | write_flag(framing)),
            (command::FLUSH, fua),
            (command::TRIM, fua),
            (command::CACHE, fua),
            (command::WRITE_ZEROES, fua | flag::NO_HOLE | flag::FAST_ZERO),
        ];
        for (number, allowed) in allowed {
            let length = if number == command::FLUSH { 0 } else { 512 };
            for bit in 0..16 {
                let flags = 1 << bit;
                if framing == Framing::Extended
                    && flags == flag::PAYLOAD_LEN
                    && number != command::WRITE
                {
                    continue; // that one announces a payload: below
                }
                let payload = if number == command::WRITE {
                    &[7; 512][..]
                } else {
                    &[]
                };
                let answer = raw.ask(number, flags, 0, length, payload);
                let is_refused = answer == Answer::Error(Errno::Einval);
                assert_eq!(
                    is_refused,
                    flags & !allowed != 0,
                    "{framing:?} {number} {bit}"
                );
            }
        }
    }
}

#[test]
fn a_payload_where_none_belongs_is_dropped_and_too_large_a_one_closes() {
    let mut raw = Raw::plain(Framing::Extended);
    for number in [
        command::READ,
        command::DISC,
        command::FLUSH,
        command::TRIM,
        command::CACHE,
        command::WRITE_ZEROES,
        99,
    ] {
        let answer = raw.ask(number, flag::PAYLOAD_LEN, 0, 1000, &[9; 1000]);
        assert_eq!(answer, Answer::Error(Errno::Einval), "{number}");
    }
    assert_eq!(raw.export.take_log(), []);
    let bytes = raw.request(command::TRIM, flag::PAYLOAD_LEN, 0, (1 << 25) + 1);
    assert_eq!(raw.raw(&bytes), []);
    assert!(matches!(raw.how(), Some(Err(NbdError::Wire(_)))));
}

#[test]
fn unknown_commands_are_einval_and_the_session_goes_on() {
    for framing in FRAMINGS {
        let mut raw = Raw::plain(framing);
        for number in [8, 9, 255, u16::MAX] {
            assert_eq!(
                raw.ask(number, 0, 0, 512, &[]),
                Answer::Error(Errno::Einval)
            );
        }
        assert_eq!(
            raw.ask(command::READ, 0, 0, 512, &[]),
            Answer::Data(vec![0; 512])
        );
    }
}

#[test]
fn ranges_past_the_end_and_unaligned_ones_are_refused_before_the_export_sees_them() {
    for framing in FRAMINGS {
        let mut raw = Raw::plain(framing);
        let ranges = [
            (SIZE, 512),
            (SIZE - 512, 1024),
            (u64::MAX - 511, 512),
            (u64::MAX - 511, 1024),
        ];
        for (offset, length) in ranges {
            for (number, error) in [
                (command::READ, Errno::Einval),
                (command::TRIM, Errno::Einval),
                (command::CACHE, Errno::Einval),
                (command::WRITE_ZEROES, Errno::Enospc),
                (command::WRITE, Errno::Enospc),
            ] {
                let payload = if number == command::WRITE {
                    vec![1; length as usize]
                } else {
                    vec![]
                };
                let answer = raw.ask(number, 0, offset, length, &payload);
                assert_eq!(answer, Answer::Error(error), "{number} at {offset}");
            }
        }
        for (offset, length) in [(1, 512), (0, 511), (256, 256), (SIZE - 1, 1)] {
            for number in [
                command::READ,
                command::TRIM,
                command::CACHE,
                command::WRITE_ZEROES,
                command::WRITE,
            ] {
                let payload = if number == command::WRITE {
                    vec![1; length as usize]
                } else {
                    vec![]
                };
                let answer = raw.ask(number, 0, offset, length, &payload);
                assert_eq!(answer, Answer::Error(Errno::Einval), "{number} at {offset}");
            }
        }
        for (offset, length) in [(0, 512), (512, 0)] {
            assert_eq!(
                raw.ask(command::FLUSH, 0, offset, length, &[]),
                Answer::Error(Errno::Einval)
            );
        }
        assert_eq!(raw.export.take_log(), []);
    }
}

#[test]
fn the_last_block_can_be_read_and_written() {
    for framing in FRAMINGS {
        let mut raw = Raw::plain(framing);
        let data = pattern(3, 512);
        assert_eq!(
            raw.ask(command::WRITE, 0, SIZE - 512, 512, &data),
            Answer::Done
        );
        assert_eq!(
            raw.ask(command::READ, 0, SIZE - 512, 512, &[]),
            Answer::Data(data)
        );
    }
}

#[test]
fn empty_ranges_are_done_at_once() {
    for framing in FRAMINGS {
        let mut raw = Raw::plain(framing);
        for number in [
            command::WRITE,
            command::TRIM,
            command::CACHE,
            command::WRITE_ZEROES,
        ] {
            assert_eq!(raw.ask(number, 0, 512, 0, &[]), Answer::Done);
        }
        let read = raw.ask(command::READ, 0, 512, 0, &[]);
        assert!(
            read == Answer::Done || read == Answer::Data(vec![]),
            "{read:?}"
        );
        assert_eq!(raw.export.take_log(), []);
    }
}

#[test]
fn a_read_only_export_refuses_what_writes_and_serves_the_rest() {
    for framing in FRAMINGS {
        let export = MemoryExport::new("vol0", SIZE, |info| info.is_read_only = true);
        let mut raw = Raw::new(framing, false, export);
        for number in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            let payload = if number == command::WRITE {
                &[1; 512][..]
            } else {
                &[]
            };
            assert_eq!(
                raw.ask(number, 0, 0, 512, payload),
                Answer::Error(Errno::Eperm)
            );
        }
        assert_eq!(raw.export.take_log(), []);
        assert_eq!(
            raw.ask(command::READ, 0, 0, 512, &[]),
            Answer::Data(vec![0; 512])
        );
        assert_eq!(raw.ask(command::FLUSH, 0, 0, 0, &[]), Answer::Done);
        assert_eq!(raw.ask(command::CACHE, 0, 0, 512, &[]), Answer::Done);
    }
}

#[test]
fn thirty_two_mebibytes_go_through_and_more_is_drained_or_closes() {
    const MAX: u64 = 1 << 25;
    for framing in FRAMINGS {
        let export = MemoryExport::new("vol0", 4 * MAX, |_| {});
        let mut raw = Raw::new(framing, false, export);
        let data = pattern(4, MAX as usize);
        assert_eq!(raw.ask(command::WRITE, 0, 512, MAX, &data), Answer::Done);
        assert!(raw.ask(command::READ, 0, 512, MAX, &[]) == Answer::Data(data.clone()));
        assert_eq!(
            raw.ask(command::READ, 0, 0, MAX + 512, &[]),
            Answer::Error(Errno::Einval)
        );
        raw.export.take_log();
        let more = [&data[..], &[0; 512]].concat();
        assert_eq!(
            raw.ask(command::WRITE, 0, 0, MAX + 512, &more),
            Answer::Error(Errno::Einval)
        );
        assert_eq!(raw.export.take_log(), []);
        let bytes = raw.request(command::WRITE, 0, 0, 0xffff_fe00);
        assert_eq!(raw.raw(&bytes), []);
        assert!(matches!(raw.how(), Some(Err(NbdError::Wire(_)))));
    }
}

#[test]
fn ranges_up_to_the_largest_length_are_done_in_slices() {
    for framing in FRAMINGS {
        let export = MemoryExport::new("vol0", 1 << 40, |info| info.block_bytes_min = 1);
        let mut raw = Raw::new(framing, false, export);
        let data = pattern(5, 100);
        raw.ask(command::WRITE, 0, (1 << 31) + 7, 100, &data);
        raw.export.take_log();
        let length = u64::from(u32::MAX);
        for number in [command::TRIM, command::WRITE_ZEROES, command::CACHE] {
            assert_eq!(raw.ask(number, 0, 5, length, &[]), Answer::Done);
            let mut at = 5;
            for operation in raw.export.take_log() {
                let (offset, part) = match operation {
                    Operation::Trim(offset, part, _)
                    | Operation::Zero(offset, part, _)
                    | Operation::Cache(offset, part) => (offset, part),
                    other => panic!("{other:?}"),
                };
                assert_eq!(offset, at);
                assert!(part <= 64 << 20);
                at += part;
            }
            assert_eq!(at, 5 + length);
        }
        assert_eq!(raw.export.bytes((1 << 31) + 7, 100), [0; 100]);
    }
    let export = MemoryExport::new("vol0", 1 << 40, |_| {});
    let mut raw = Raw::new(Framing::Extended, true, export);
    assert_eq!(
        raw.ask(command::WRITE_ZEROES, 0, 0, 5 << 30, &[]),
        Answer::Done
    );
    assert_eq!(
        raw.ask(command::BLOCK_STATUS, 0, 0, 1 << 40, &[]),
        Answer::Status(vec![(1 << 40, true)])
    );
}

#[test]
fn fast_zero_is_refused_with_enotsup_and_other_zeroes_never_are() {
    for framing in FRAMINGS {
        let mut raw = Raw::plain(framing);
        raw.export.zero_fast(false);
        let answer = raw.ask(command::WRITE_ZEROES, flag::FAST_ZERO, 0, 512, &[]);
        assert_eq!(answer, Answer::Error(Errno::Enotsup));
        assert_eq!(raw.ask(command::WRITE_ZEROES, 0, 0, 512, &[]), Answer::Done);
        raw.export.fail_with(Some(IoError::Unsupported));
        let answer = raw.ask(command::WRITE_ZEROES, 0, 0, 512, &[]);
        assert_eq!(answer, Answer::Error(Errno::Einval));
        assert_eq!(
            raw.ask(command::TRIM, 0, 0, 512, &[]),
            Answer::Done,
            "a hint"
        );
        assert_eq!(
            raw.ask(command::CACHE, 0, 0, 512, &[]),
            Answer::Done,
            "a hint"
        );
    }
}

#[test]
fn a_fast_zero_that_began_is_carried_through() {
    let export = MemoryExport::new("vol0", 1 << 30, |_| {});
    let mut raw = Raw::new(Framing::Simple, false, export);
    assert_eq!(
        raw.ask(command::WRITE_ZEROES, flag::FAST_ZERO, 0, 1 << 30, &[]),
        Answer::Done
    );
    let fast = raw
        .export
        .take_log()
        .iter()
        .filter(|operation| {
            matches!(
                operation,
                Operation::Zero(
                    _,
                    _,
                    ZeroRequest {
                        only_if_fast: true,
                        ..
                    }
                )
            )
        })
        .count();
    assert_eq!(fast, 1, "only the first slice may say that it is not fast");
}

#[test]
fn errors_of_the_volume_become_the_numbers_of_the_wire() {
    for framing in FRAMINGS {
        let mut raw = Raw::plain(framing);
        for (error, expected) in [
            (IoError::Retryable, Errno::Eio),
            (IoError::Medium, Errno::Eio),
            (IoError::Gone, Errno::Eio),
            (IoError::Failed, Errno::Eio),
            (IoError::NoSpace, Errno::Enospc),
            (IoError::OutOfRange, Errno::Einval),
            (IoError::ReadOnly, Errno::Eperm),
        ] {
            raw.export.fail_with(Some(error));
            for number in [
                command::READ,
                command::WRITE,
                command::FLUSH,
                command::TRIM,
                command::CACHE,
                command::WRITE_ZEROES,
            ] {
                let length = if number == command::FLUSH { 0 } else { 512 };
                let payload = if number == command::WRITE {
                    &[1; 512][..]
                } else {
                    &[]
                };
                let answer = raw.ask(number, 0, 0, length, payload);
                assert_eq!(
                    answer,
                    Answer::Error(expected),
                    "{framing:?} {number} {error:?}"
                );
            }
        }
    }
}

#[test]
fn block_status_tells_holes_and_needs_a_context() {
    for framing in [Framing::Structured, Framing::Extended] {
        let mut raw = Raw::plain(framing);
        raw.ask(command::WRITE, 0, 8192, 4096, &pattern(6, 4096));
        let all = Answer::Status(vec![(8192, true), (4096, false), (SIZE - 12288, true)]);
        assert_eq!(raw.ask(command::BLOCK_STATUS, 0, 0, SIZE, &[]), all);
        let one = Answer::Status(vec![(4096, true)]);
        assert_eq!(
            raw.ask(command::BLOCK_STATUS, flag::REQ_ONE, 4096, 8192, &[]),
            one
        );
        let within = Answer::Status(vec![(512, true)]);
        assert_eq!(
            raw.ask(command::BLOCK_STATUS, flag::REQ_ONE, 0, 512, &[]),
            within
        );
        let einval = Answer::Error(Errno::Einval);
        assert_eq!(raw.ask(command::BLOCK_STATUS, 0, 0, 0, &[]), einval);
        assert_eq!(raw.ask(command::BLOCK_STATUS, 0, SIZE, 512, &[]), einval);
        assert_eq!(
            raw.ask(command::BLOCK_STATUS, flag::NO_HOLE, 0, 512, &[]),
            einval
        );
        raw.export.fail_with(Some(IoError::Medium));
        assert_eq!(
            raw.ask(command::BLOCK_STATUS, 0, 0, SIZE, &[]),
            Answer::Error(Errno::Eio)
        );
    }
    for framing in FRAMINGS {
        let export = MemoryExport::new("vol0", SIZE, |_| {});
        let mut raw = Raw::new(framing, false, export);
        let answer = raw.ask(command::BLOCK_STATUS, 0, 0, SIZE, &[]);
        assert_eq!(
            answer,
            Answer::Error(Errno::Einval),
            "no context was chosen"
        );
    }
}

#[test]
fn block_status_with_a_payload_takes_its_length_and_contexts_from_there() {
    let mut raw = Raw::plain(Framing::Extended);
    let mut ask = |length: u64, ids: &[u32], flags: u16, offset: u64| {
        let payload = encode_status_payload(length, ids);
        raw.ask(
            command::BLOCK_STATUS,
            flags | flag::PAYLOAD_LEN,
            offset,
            payload.len() as u64,
            &payload,
        )
    };
    assert_eq!(ask(SIZE, &[1], 0, 0), Answer::Status(vec![(SIZE, true)]));
    assert_eq!(
        ask(4096, &[1], flag::REQ_ONE, 512),
        Answer::Status(vec![(4096, true)])
    );
    let einval = Answer::Error(Errno::Einval);
    assert_eq!(ask(SIZE, &[2], 0, 0), einval, "an unknown context");
    assert_eq!(ask(SIZE, &[1, 1], 0, 0), einval, "a repeated one");
    assert_eq!(ask(SIZE, &[], 0, 0), einval, "none");
    assert_eq!(ask(SIZE, &[1; 1000], 0, 0), einval, "far too many");
    assert_eq!(ask(SIZE + 512, &[1], 0, 0), einval, "past the end");
    assert_eq!(ask(u64::MAX, &[1], 0, 512), einval, "an overflow");
    assert_eq!(ask(0, &[1], 0, 0), einval, "an empty range");
    assert_eq!(ask(SIZE, &[1], flag::DF, 0), einval, "a wrong flag");
    for cut in [0, 1, 7, 9, 11] {
        let payload = encode_status_payload(SIZE, &[1]);
        let answer = raw.ask(
            command::BLOCK_STATUS,
            flag::PAYLOAD_LEN,
            0,
            cut,
            &payload[..cut as usize],
        );
        assert_eq!(answer, Answer::Error(Errno::Einval));
    }
    let export = MemoryExport::new("vol0", SIZE, |_| {});
    let mut raw = Raw::new(Framing::Extended, false, export);
    let payload = encode_status_payload(SIZE, &[1]);
    let answer = raw.ask(command::BLOCK_STATUS, flag::PAYLOAD_LEN, 0, 12, &payload);
    assert_eq!(
        answer,
        Answer::Error(Errno::Einval),
        "no context was chosen"
    );
}

#[test]
fn a_wrong_magic_closes_at_once() {
    for framing in FRAMINGS {
        let mut raw = Raw::plain(framing);
        let other = if framing == Framing::Extended {
            "25609513"
        } else {
            "21e41c71"
        };
        let mut bytes = hex(other);
        bytes.extend([0; 60]);
        assert_eq!(raw.raw(&bytes), []);
        assert!(matches!(raw.how(), Some(Err(NbdError::Wire(_)))));
        assert_eq!(raw.export.take_log(), []);
    }
}

#[test]
fn cookies_may_repeat_and_every_request_has_its_answer() {
    let mut raw = Raw::plain(Framing::Simple);
    let one = Request {
        flags: 0,
        command: command::READ,
        cookie: 42,
        offset_bytes: 0,
        length_bytes: 512,
    };
    let (bytes, length) = one.encode(Framing::Simple);
    let answer = raw.raw(&bytes[..length].repeat(10));
    assert_eq!(answer.len(), 10 * (16 + 512));
    assert!(
        answer
            .chunks(528)
            .all(|reply| reply[8..16] == 42_u64.to_be_bytes())
    );
}

#[test]
fn bytes_behind_go_belong_to_the_transmission() {
    let export = memory("vol0", SIZE);
    let mut world = World::new(vec![export]);
    let (stream, _) = world.dial();
    let stream = Rc::new(stream);
    world.receive(&stream);
    let mut bytes = vec![0, 0, 0, 3];
    encode_option(&mut bytes, code::GO, &InfoRequest::encode("", &[]));
    let request = Request {
        flags: 0,
        command: command::READ,
        cookie: 1,
        offset_bytes: 0,
        length_bytes: 512,
    };
    let (head, length) = request.encode(Framing::Simple);
    bytes.extend_from_slice(&head[..length]);
    world.send(&stream, &bytes);
    let answer = world.receive(&stream);
    assert_eq!(answer.len(), 20 + 12 + 20 + 16 + 512);
}
