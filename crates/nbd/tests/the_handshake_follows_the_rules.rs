//! The server's handshake over raw bytes: every option, every refusal, every limit.
#![allow(clippy::unwrap_used)]

mod common;

use std::rc::Rc;
use std::time::Duration;

use common::{End, World, memory};
use plexum_front::client::Leave;
use plexum_nbd::error::NbdError;
use plexum_nbd::server::ServerLimits;
use plexum_nbd::session::Ended;
use plexum_nbd::testing::{MemoryExport, PipeEnd};
use plexum_nbd::wire::option::{
    ContextRequest, GREETING_BYTES, InfoFact, InfoRequest, OptionReplyHead, REPLY_HEAD_BYTES, code,
    decode_context, decode_server, encode_option, info, reply, tflag,
};

/// A raw connection behind the greeting.
struct Raw {
    world: World,
    stream: Rc<PipeEnd>,
    end: End,
}

type Reply = (u32, Vec<u8>);

impl Raw {
    fn new(exports: Vec<Rc<MemoryExport>>, flags: u32) -> Self {
        let mut world = World::new(exports);
        let (stream, end) = world.dial();
        let stream = Rc::new(stream);
        assert_eq!(world.receive(&stream).len(), GREETING_BYTES);
        world.send(&stream, &flags.to_be_bytes());
        Self { world, stream, end }
    }

    fn one(flags: u32) -> Self {
        Self::new(vec![memory("vol0", 1 << 20)], flags)
    }

    fn raw(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.world.send(&self.stream, bytes);
        self.world.receive(&self.stream)
    }

    fn ask(&mut self, option: u32, data: &[u8]) -> Vec<Reply> {
        let mut bytes = Vec::new();
        encode_option(&mut bytes, option, data);
        replies(option, &self.raw(&bytes))
    }

    fn kinds(&mut self, option: u32, data: &[u8]) -> Vec<u32> {
        self.ask(option, data)
            .iter()
            .map(|(kind, _)| *kind)
            .collect()
    }

    fn how(&self) -> Option<Result<Ended, NbdError>> {
        self.end.borrow().as_ref().map(|(how, _)| how.clone())
    }
}

fn replies(option: u32, mut bytes: &[u8]) -> Vec<Reply> {
    let mut replies = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<REPLY_HEAD_BYTES>() {
        let head = OptionReplyHead::decode(head).unwrap();
        assert_eq!(head.option, option);
        let (data, rest) = rest.split_at(head.length_bytes as usize);
        replies.push((head.kind, data.to_vec()));
        bytes = rest;
    }
    assert_eq!(bytes, [], "replies are whole");
    replies
}

fn go(name: &str) -> Vec<u8> {
    InfoRequest::encode(name, &[info::NAME, info::BLOCK_SIZE, info::DESCRIPTION, 99])
}

fn facts(replies: &[Reply]) -> Vec<InfoFact<'_>> {
    replies
        .iter()
        .filter(|(kind, _)| *kind == reply::INFO)
        .map(|(_, data)| InfoFact::decode(data).unwrap())
        .collect()
}

#[test]
fn export_name_gets_size_flags_and_124_zeroes_unless_the_client_waives_them() {
    for (flags, zeroes) in [(0, 124), (1, 124), (2, 0), (3, 0)] {
        let mut raw = Raw::one(flags);
        let mut bytes = Vec::new();
        encode_option(&mut bytes, code::EXPORT_NAME, b"vol0");
        let answer = raw.raw(&bytes);
        assert_eq!(answer.len(), 10 + zeroes);
        assert_eq!(answer[..8], (1_u64 << 20).to_be_bytes());
        assert!(answer[10..].iter().all(|byte| *byte == 0));
        assert_eq!(raw.how(), None, "the session runs");
    }
}

#[test]
fn export_name_of_an_unknown_export_or_after_extended_headers_closes() {
    let mut raw = Raw::one(3);
    let mut bytes = Vec::new();
    encode_option(&mut bytes, code::EXPORT_NAME, b"nothing");
    assert_eq!(raw.raw(&bytes), []);
    assert!(matches!(raw.how(), Some(Err(NbdError::Wire(_)))));

    let mut raw = Raw::one(3);
    assert_eq!(raw.kinds(code::EXTENDED_HEADERS, &[]), [reply::ACK]);
    let mut bytes = Vec::new();
    encode_option(&mut bytes, code::EXPORT_NAME, b"vol0");
    assert_eq!(raw.raw(&bytes), []);
    assert!(matches!(raw.how(), Some(Err(NbdError::Wire(_)))));
}

#[test]
fn unknown_client_flags_close_and_options_need_fixed_newstyle() {
    for flags in [4, 0x8000_0003, 0xffff_ffff] {
        assert!(matches!(
            Raw::one(flags).how(),
            Some(Err(NbdError::Wire(_)))
        ));
    }
    let mut raw = Raw::one(2);
    assert_eq!(raw.kinds(code::LIST, &[]), []);
    assert!(matches!(raw.how(), Some(Err(NbdError::Wire(_)))));
}

#[test]
fn info_and_go_tell_the_same_facts_and_only_those_asked_for() {
    let mut raw = Raw::one(3);
    let info = raw.ask(code::INFO, &go("vol0"));
    let start = raw.ask(code::GO, &go("vol0"));
    assert_eq!(info, start);
    let told = facts(&start);
    assert_eq!(told.len(), 4, "the unknown fact is ignored");
    assert!(told.contains(&InfoFact::Name("vol0")));
    assert!(told.contains(&InfoFact::BlockSize {
        minimum: 512,
        preferred: 4096,
        payload_max: 1 << 25,
    }));
    let mut raw = Raw::one(3);
    let few = raw.ask(code::GO, &InfoRequest::encode("vol0", &[]));
    assert_eq!(few.len(), 2, "the export and the ACK");
    assert_eq!(few[1], (reply::ACK, vec![]));
}

#[test]
fn transmission_flags_say_what_was_agreed_and_what_the_export_is() {
    let flags_of = |options: &[u32], export: Rc<MemoryExport>| {
        let mut raw = Raw::new(vec![export], 3);
        for option in options {
            let data = match *option {
                code::SET_META_CONTEXT => ContextRequest::encode("", &["base:allocation"]),
                _ => vec![],
            };
            raw.ask(*option, &data);
        }
        let told = raw.ask(code::GO, &InfoRequest::encode("", &[]));
        match facts(&told)[0] {
            InfoFact::Export { tflags, .. } => tflags,
            _ => panic!("the export comes first"),
        }
    };
    let plain = flags_of(&[], memory("a", 512));
    assert_eq!(plain, 0x0ded & !tflag::SEND_DF);
    assert_eq!(
        flags_of(&[code::STRUCTURED_REPLY], memory("a", 512)),
        0x0ded
    );
    assert_eq!(
        flags_of(&[code::EXTENDED_HEADERS], memory("a", 512)),
        0x0ded
    );
    let all = [code::EXTENDED_HEADERS, code::SET_META_CONTEXT];
    assert_eq!(
        flags_of(&all, memory("a", 512)),
        0x0ded | tflag::BLOCK_STATUS_PAYLOAD
    );
    let odd = MemoryExport::new("a", 512, |info| {
        info.is_read_only = true;
        info.is_rotational = true;
    });
    let odd = flags_of(&[], Rc::new(odd));
    assert_eq!(odd & tflag::READ_ONLY, tflag::READ_ONLY);
    assert_eq!(odd & tflag::ROTATIONAL, tflag::ROTATIONAL);
    assert_eq!(
        odd & (tflag::SEND_TRIM | tflag::SEND_WRITE_ZEROES | tflag::SEND_FAST_ZERO),
        0
    );
    assert_eq!(
        odd & (tflag::SEND_FLUSH | tflag::SEND_FUA),
        tflag::SEND_FLUSH | tflag::SEND_FUA
    );
}

#[test]
fn the_default_export_is_the_only_one_or_the_chosen_one() {
    let name_of = |raw: &mut Raw| {
        let told = raw.ask(code::INFO, &go(""));
        facts(&told).iter().find_map(|fact| match fact {
            InfoFact::Name(name) => Some((*name).to_owned()),
            _ => None,
        })
    };
    let mut raw = Raw::one(3);
    assert_eq!(name_of(&mut raw).as_deref(), Some("vol0"));
    raw.world
        .server
        .exports()
        .open(memory("vol1", 512))
        .unwrap();
    assert_eq!(
        name_of(&mut raw),
        None,
        "two exports, and no default was chosen"
    );
    assert_eq!(raw.kinds(code::INFO, &go("")), [reply::ERR_UNKNOWN]);
    raw.world.server.exports().set_default(Some("vol1"));
    assert_eq!(name_of(&mut raw).as_deref(), Some("vol1"));
}

#[test]
fn list_names_all_exports_with_their_descriptions() {
    let described = MemoryExport::new("b", 512, |info| info.description = "words".into());
    let mut raw = Raw::new(vec![memory("a", 512), Rc::new(described)], 3);
    let listed = raw.ask(code::LIST, &[]);
    assert_eq!(listed.len(), 3);
    assert_eq!(decode_server(&listed[0].1), Some(("a", "")));
    assert_eq!(decode_server(&listed[1].1), Some(("b", "words")));
    assert_eq!(listed[2].0, reply::ACK);
}

#[test]
fn malformed_and_misplaced_options_are_refused_and_the_handshake_goes_on() {
    let mut raw = Raw::one(3);
    let cut_name = [&9_u32.to_be_bytes()[..], b"vol0", &[0, 0]].concat();
    let long_count = [&4_u32.to_be_bytes()[..], b"vol0", &[0, 9]].concat();
    let nul = [&2_u32.to_be_bytes()[..], b"a\0", &[0, 0]].concat();
    let no_text = [&2_u32.to_be_bytes()[..], &[0xff, 0xfe], &[0, 0]].concat();
    let spare = [&go("vol0")[..], &[0]].concat();
    for data in [
        &[][..],
        &[0; 5],
        &cut_name,
        &long_count,
        &nul,
        &no_text,
        &spare,
    ] {
        assert_eq!(raw.kinds(code::GO, data), [reply::ERR_INVALID], "{data:?}");
    }
    for option in [
        code::LIST,
        code::STARTTLS,
        code::STRUCTURED_REPLY,
        code::EXTENDED_HEADERS,
    ] {
        assert_eq!(raw.kinds(option, &[1]), [reply::ERR_INVALID]);
    }
    assert_eq!(raw.kinds(code::GO, &go("nothing")), [reply::ERR_UNKNOWN]);
    assert_eq!(raw.kinds(code::STARTTLS, &[]), [reply::ERR_POLICY]);
    for option in [0, 4, 12, 77, u32::MAX] {
        assert_eq!(raw.kinds(option, b"anything"), [reply::ERR_UNSUP]);
    }
    let contexts = ContextRequest::encode("vol0", &[]);
    for option in [code::LIST_META_CONTEXT, code::SET_META_CONTEXT] {
        assert_eq!(
            raw.kinds(option, &contexts),
            [reply::ERR_INVALID],
            "before option 8 or 11"
        );
    }
    assert_eq!(raw.kinds(code::STRUCTURED_REPLY, &[]), [reply::ACK]);
    let many = [
        &4_u32.to_be_bytes()[..],
        b"vol0",
        &u32::MAX.to_be_bytes(),
        &[0; 8],
    ]
    .concat();
    for data in [
        &[][..],
        &many,
        &contexts[..7],
        &[&contexts[..], &[0]].concat(),
    ] {
        assert_eq!(
            raw.kinds(code::SET_META_CONTEXT, data),
            [reply::ERR_INVALID]
        );
    }
    assert_eq!(raw.kinds(code::GO, &go("vol0")).last(), Some(&reply::ACK));
}

#[test]
fn framings_are_agreed_in_their_order() {
    let mut raw = Raw::one(3);
    assert_eq!(raw.kinds(code::STRUCTURED_REPLY, &[]), [reply::ACK]);
    assert_eq!(raw.kinds(code::STRUCTURED_REPLY, &[]), [reply::ACK]);
    assert_eq!(raw.kinds(code::EXTENDED_HEADERS, &[]), [reply::ACK]);
    assert_eq!(raw.kinds(code::EXTENDED_HEADERS, &[]), [reply::ERR_INVALID]);
    assert_eq!(
        raw.kinds(code::STRUCTURED_REPLY, &[]),
        [reply::ERR_EXT_HEADER_REQD]
    );
}

#[test]
fn metadata_contexts_are_listed_and_chosen_by_their_names() {
    let mut raw = Raw::one(3);
    raw.ask(code::STRUCTURED_REPLY, &[]);
    let mut found = |option, queries: &[&str]| {
        let told = raw.ask(option, &ContextRequest::encode("vol0", queries));
        assert_eq!(told.last().unwrap().0, reply::ACK);
        let contexts = &told[..told.len() - 1];
        let pairs = contexts.iter().map(|(kind, data)| {
            assert_eq!(*kind, reply::META_CONTEXT);
            let (id, name) = decode_context(data).unwrap();
            (id, name.to_owned())
        });
        pairs.collect::<Vec<_>>()
    };
    let listed = vec![(0, "base:allocation".to_owned())];
    let chosen = vec![(1, "base:allocation".to_owned())];
    assert_eq!(found(code::LIST_META_CONTEXT, &[]), listed);
    assert_eq!(found(code::LIST_META_CONTEXT, &["base:"]), listed);
    assert_eq!(
        found(
            code::LIST_META_CONTEXT,
            &["x:y", "base:allocation", "base:"]
        ),
        listed
    );
    assert_eq!(
        found(code::LIST_META_CONTEXT, &["qemu:", "base:other", "base"]),
        []
    );
    assert_eq!(
        found(code::SET_META_CONTEXT, &["qemu:dirty", "base:allocation"]),
        chosen
    );
    assert_eq!(found(code::SET_META_CONTEXT, &["base:"]), []);
    assert_eq!(found(code::SET_META_CONTEXT, &[]), []);
    let unknown = ContextRequest::encode("nothing", &["base:allocation"]);
    assert_eq!(
        raw.kinds(code::SET_META_CONTEXT, &unknown),
        [reply::ERR_UNKNOWN]
    );
}

#[test]
fn an_option_that_is_too_long_is_skipped_and_a_monster_closes() {
    let mut raw = Raw::one(3);
    assert_eq!(raw.kinds(77, &vec![0; 8192]), [reply::ERR_UNSUP]);
    assert_eq!(raw.kinds(77, &vec![0; 8193]), [reply::ERR_TOO_BIG]);
    assert_eq!(raw.kinds(code::GO, &vec![0; 300_000]), [reply::ERR_TOO_BIG]);
    assert_eq!(raw.kinds(code::INFO, &go("vol0")).last(), Some(&reply::ACK));
    let monster = [
        &0x4948_4156_454f_5054_u64.to_be_bytes()[..],
        &[0, 0, 0, 7],
        &[0xff; 4],
    ]
    .concat();
    assert_eq!(raw.raw(&monster), []);
    assert!(matches!(raw.how(), Some(Err(NbdError::Wire(_)))));
}

#[test]
fn a_wrong_magic_and_too_many_options_close() {
    let mut raw = Raw::one(3);
    raw.raw(&[7; 16]);
    assert!(matches!(raw.how(), Some(Err(NbdError::Wire(_)))));
    let mut raw = Raw::one(3);
    for _ in 0..64 {
        assert_eq!(raw.kinds(77, &[]), [reply::ERR_UNSUP]);
    }
    assert_eq!(raw.kinds(77, &[]), []);
    assert!(matches!(raw.how(), Some(Err(NbdError::Wire(_)))));
}

#[test]
fn abort_is_acknowledged_whatever_it_carries() {
    for data in [&[][..], b"goodbye"] {
        let mut raw = Raw::one(3);
        assert_eq!(raw.kinds(code::ABORT, data), [reply::ACK]);
        assert_eq!(raw.how(), Some(Ok(Ended::Aborted)));
    }
}

#[test]
fn a_handshake_that_takes_too_long_is_ended_and_a_finished_one_is_not() {
    let mut raw = Raw::one(3);
    raw.world.advance(Duration::from_secs(9));
    assert_eq!(raw.kinds(77, &[]), [reply::ERR_UNSUP]);
    assert_eq!(raw.how(), None);
    raw.world.advance(Duration::from_secs(1));
    assert_eq!(raw.how(), Some(Err(NbdError::HandshakeTimedOut)));
    assert_eq!(raw.world.clock.sleepers(), 0);

    let mut raw = Raw::one(3);
    raw.ask(code::GO, &go("vol0"));
    raw.world.advance(Duration::from_secs(1000));
    assert_eq!(raw.how(), None);
    assert_eq!(
        raw.world.clock.sleepers(),
        0,
        "an idle session needs no timer"
    );
}

#[test]
fn a_handshake_whose_client_reads_nothing_is_ended_too() {
    let mut world = World::new(vec![memory("vol0", 512)]);
    world.room_bytes = 7;
    let (_stream, end) = world.dial();
    world.settle();
    assert!(end.borrow().is_none());
    world.advance(Duration::from_secs(10));
    let how = end.borrow_mut().take().unwrap().0;
    assert_eq!(how, Err(NbdError::HandshakeTimedOut));
}

#[test]
fn connections_above_the_limit_are_refused_and_leave_room_when_they_end() {
    let limits = ServerLimits {
        sessions_max: 2,
        ..ServerLimits::default()
    };
    let mut world = World::with_limits(vec![memory("vol0", 512)], limits);
    let (_first, _) = world.dial();
    let (second, _) = world.dial();
    let (_third, end) = world.dial();
    world.settle();
    assert_eq!(world.server.session_count(), 2);
    let how = end.borrow_mut().take().unwrap().0;
    assert_eq!(how, Err(NbdError::TooManySessions(2)));
    drop(second);
    world.settle();
    assert_eq!(world.server.session_count(), 1);
    let (_fourth, end) = world.dial();
    world.settle();
    assert!(end.borrow().is_none());
}

#[test]
fn a_stopping_server_ends_handshakes() {
    let mut raw = Raw::one(3);
    raw.world.server.stop(Leave::Drain);
    raw.world.settle();
    assert_eq!(raw.how(), Some(Ok(Ended::Aborted)));
    let (_late, end) = raw.world.dial();
    raw.world.settle();
    assert_eq!(end.borrow_mut().take().unwrap().0, Ok(Ended::Stopped));
}
