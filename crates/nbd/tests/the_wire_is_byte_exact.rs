//! The codec: golden bytes of the protocol reference, round trips, and decoders that survive anything.
#![allow(clippy::unwrap_used)]

mod common;

use common::hex;
use plexum_front::export::Extent;
use plexum_nbd::wire::option::{
    ContextRequest, InfoFact, InfoRequest, OptionHead, OptionReplyHead, code, decode_context,
    decode_greeting, decode_server, encode_context, encode_option, encode_reply, encode_server,
    greeting, info, reply,
};
use plexum_nbd::wire::reply::{
    ChunkHead, ReplyHead, chunk, decode_error, decode_extents, encode_error, encode_extents,
    encode_simple,
};
use plexum_nbd::wire::request::{
    Request, command, decode_status_payload, encode_status_payload, flag, header_bytes,
};
use plexum_nbd::wire::{Errno, Framing, escaped};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn extent(length_bytes: u64, is_hole: bool, is_zero: bool) -> Extent {
    Extent {
        length_bytes,
        is_hole,
        is_zero,
    }
}

fn encoded(head: &ChunkHead, framing: Framing, payload: &[u8]) -> Vec<u8> {
    let (bytes, length) = head.encode(framing);
    [&bytes[..length], payload].concat()
}

#[test]
fn options_are_the_golden_bytes() {
    let mut go = Vec::new();
    encode_option(
        &mut go,
        code::GO,
        &InfoRequest::encode("vol0", &[info::BLOCK_SIZE]),
    );
    assert_eq!(
        go,
        hex("49484156454f5054 00000007 0000000c 00000004 766f6c30 0001 0003")
    );
    let mut set = Vec::new();
    let data = ContextRequest::encode("vol0", &["base:allocation"]);
    encode_option(&mut set, code::SET_META_CONTEXT, &data);
    assert_eq!(
        set,
        hex(
            "49484156454f5054 0000000a 0000001f 00000004 766f6c30 00000001 0000000f
             626173653a616c6c6f636174696f6e"
        )
    );
}

#[test]
fn option_replies_are_the_golden_bytes() {
    let mut out = Vec::new();
    let export = InfoFact::Export {
        size_bytes: 1 << 30,
        tflags: 0x0ded,
    };
    encode_reply(&mut out, code::GO, reply::INFO, &export.encode());
    assert_eq!(
        out,
        hex("0003e889045565a9 00000007 00000003 0000000c 0000 0000000040000000 0ded")
    );
    out.clear();
    let sizes = InfoFact::BlockSize {
        minimum: 512,
        preferred: 65536,
        payload_max: 1 << 25,
    };
    encode_reply(&mut out, code::GO, reply::INFO, &sizes.encode());
    assert_eq!(
        out,
        hex("0003e889045565a9 00000007 00000003 0000000e 0003 00000200 00010000 02000000")
    );
}

#[test]
fn requests_are_the_golden_bytes() {
    let read = Request {
        flags: 0,
        command: command::READ,
        cookie: 1,
        offset_bytes: 4096,
        length_bytes: 8,
    };
    let (bytes, length) = read.encode(Framing::Structured);
    let golden = hex("25609513 0000 0000 0000000000000001 0000000000001000 00000008");
    assert_eq!(bytes[..length], golden);
    let write = Request {
        flags: flag::FUA | flag::PAYLOAD_LEN,
        command: command::WRITE,
        cookie: 2,
        offset_bytes: 4096,
        length_bytes: 4,
    };
    let (bytes, length) = write.encode(Framing::Extended);
    let golden =
        hex("21e41c71 0021 0001 0000000000000002 0000000000001000 0000000000000004 61626364");
    assert_eq!([&bytes[..length], b"abcd"].concat(), golden);
}

#[test]
fn chunks_are_the_golden_bytes() {
    let head = |kind, cookie, length_bytes| ChunkHead {
        is_done: true,
        kind,
        cookie,
        offset_bytes: 0,
        length_bytes,
    };
    let data = [&4096_u64.to_be_bytes()[..], b"ABCDEFGH"].concat();
    assert_eq!(
        encoded(&head(chunk::OFFSET_DATA, 1, 16), Framing::Structured, &data),
        hex("668e33ef 0001 0001 0000000000000001 00000010 0000000000001000 4142434445464748")
    );
    let mut extents = Vec::new();
    let two = [extent(MIB, false, false), extent(MIB, true, true)];
    encode_extents(&mut extents, Framing::Structured, 7, &two);
    assert_eq!(
        encoded(
            &head(chunk::BLOCK_STATUS, 3, 20),
            Framing::Structured,
            &extents
        ),
        hex("668e33ef 0001 0005 0000000000000003 00000014 00000007
             00100000 00000000 00100000 00000003")
    );
    let error = encode_error(Errno::Eio, "disk");
    assert_eq!(
        encoded(&head(chunk::ERROR, 4, 10), Framing::Structured, &error),
        hex("668e33ef 0001 8001 0000000000000004 0000000a 00000005 0004 6469736b")
    );
    extents.clear();
    encode_extents(
        &mut extents,
        Framing::Extended,
        7,
        &[extent(5 << 30, true, true)],
    );
    assert_eq!(
        encoded(
            &head(chunk::BLOCK_STATUS_EXT, 5, 24),
            Framing::Extended,
            &extents
        ),
        hex(
            "6e8a278c 0001 0006 0000000000000005 0000000000000000 0000000000000018
             00000007 00000001 0000000140000000 0000000000000003"
        )
    );
}

#[test]
fn a_greeting_is_taken_and_an_oldstyle_one_is_refused_with_a_reason() {
    assert_eq!(
        greeting().to_vec(),
        hex("4e42444d41474943 49484156454f5054 0003")
    );
    assert_eq!(decode_greeting(&greeting()), Ok(3));
    let oldstyle = hex("4e42444d41474943 0000420281861253 0003");
    let error = decode_greeting(oldstyle[..].try_into().unwrap()).unwrap_err();
    assert!(error.to_string().contains("oldstyle"), "{error}");
    let other = hex("4e42444d41474944 49484156454f5054 0003");
    assert!(decode_greeting(other[..].try_into().unwrap()).is_err());
    let not_fixed = hex("4e42444d41474943 49484156454f5054 0002");
    assert!(decode_greeting(not_fixed[..].try_into().unwrap()).is_err());
}

fn framings() -> impl Strategy<Value = Framing> {
    prop_oneof![
        Just(Framing::Simple),
        Just(Framing::Structured),
        Just(Framing::Extended)
    ]
}

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let one = (1_u64..1 << 32, any::<bool>(), any::<bool>());
    prop::collection::vec(
        one.prop_map(|(length, hole, zero)| extent(length, hole, zero)),
        1..9,
    )
}

proptest! {
    #[test]
    fn requests_come_back(framing in framings(), flags: u16, command: u16, cookie: u64,
                          offset_bytes: u64, length_bytes: u64) {
        let length_bytes = match framing {
            Framing::Extended => length_bytes,
            _ => length_bytes >> 32,
        };
        let request = Request { flags, command, cookie, offset_bytes, length_bytes };
        let (bytes, length) = request.encode(framing);
        prop_assert_eq!(length, header_bytes(framing));
        prop_assert_eq!(Request::decode(framing, &bytes[..length]), Ok(request));
        prop_assert!(Request::decode(framing, &bytes[..length - 1]).is_err());
    }

    #[test]
    fn chunk_heads_come_back(is_extended: bool, is_done: bool, kind: u16, cookie: u64,
                             offset_bytes: u64, length_bytes: u64) {
        let framing = if is_extended { Framing::Extended } else { Framing::Structured };
        let head = ChunkHead {
            is_done, kind, cookie,
            offset_bytes: if is_extended { offset_bytes } else { 0 },
            length_bytes: if is_extended { length_bytes } else { length_bytes >> 32 },
        };
        let (bytes, length) = head.encode(framing);
        let magic = *bytes.first_chunk::<4>().unwrap();
        prop_assert_eq!(ReplyHead::bytes_of(framing, magic), Ok(length));
        prop_assert_eq!(ReplyHead::decode(framing, &bytes[..length]), Ok(ReplyHead::Chunk(head)));
    }

    #[test]
    fn simple_replies_come_back(cookie: u64, number in 0_u32..200) {
        let error = Errno::from_number(number);
        let expected = error.map_or(0, Errno::number);
        let bytes = encode_simple(error, cookie);
        for framing in [Framing::Simple, Framing::Structured] {
            let head = ReplyHead::Simple { error: expected, cookie };
            prop_assert_eq!(ReplyHead::decode(framing, &bytes), Ok(head));
        }
        prop_assert!(ReplyHead::decode(Framing::Extended, &bytes).is_err());
    }

    #[test]
    fn names_queries_facts_and_texts_come_back(
        name in "[^\0]{0,40}", queries in prop::collection::vec("[^\0]{0,20}", 0..5),
        numbers in prop::collection::vec(any::<u16>(), 0..5), id: u32, size_bytes: u64, tflags: u16,
    ) {
        let data = InfoRequest::encode(&name, &numbers);
        let asked = InfoRequest::decode(&data).unwrap();
        prop_assert_eq!(asked.name, &name);
        for number in 0..10 {
            prop_assert_eq!(asked.asks(number), numbers.contains(&number));
        }
        let words: Vec<&str> = queries.iter().map(String::as_str).collect();
        let data = ContextRequest::encode(&name, &words);
        let asked = ContextRequest::decode(&data).unwrap();
        prop_assert_eq!(asked.name, &name);
        prop_assert_eq!(asked.queries().collect::<Vec<_>>(), words);
        let context = encode_context(id, &name);
        prop_assert_eq!(decode_context(&context), Some((id, name.as_str())));
        let server = encode_server(&name, "words");
        prop_assert_eq!(decode_server(&server), Some((name.as_str(), "words")));
        for fact in [
            InfoFact::Export { size_bytes, tflags },
            InfoFact::Name(&name),
            InfoFact::Description(&name),
            InfoFact::BlockSize { minimum: id, preferred: 1, payload_max: 2 },
            InfoFact::Unknown(77),
        ] {
            let data = fact.encode();
            prop_assert_eq!(InfoFact::decode(&data), Some(fact.clone()));
        }
        prop_assert!(escaped(&name).chars().all(|c| !c.is_control()));
    }

    #[test]
    fn extents_and_errors_come_back(is_extended: bool, id: u32, extents in extents(), number in 1_u32..200) {
        let (framing, kind) = if is_extended {
            (Framing::Extended, chunk::BLOCK_STATUS_EXT)
        } else {
            (Framing::Structured, chunk::BLOCK_STATUS)
        };
        let mut payload = Vec::new();
        encode_extents(&mut payload, framing, id, &extents);
        prop_assert_eq!(decode_extents(kind, &payload), Ok((id, extents)));
        prop_assert!(decode_extents(kind, &payload[..payload.len() - 1]).is_err());
        let error = Errno::from_number(number).unwrap();
        let payload = encode_error(error, "words");
        prop_assert_eq!(decode_error(chunk::ERROR, &payload), Ok((error, "words")));
        let at = [&payload[..], &[0; 8]].concat();
        prop_assert_eq!(decode_error(chunk::ERROR_OFFSET, &at), Ok((error, "words")));
        prop_assert!(decode_error(chunk::ERROR, &at).is_err());
    }

    #[test]
    fn a_status_payload_takes_known_ids_once(length_bytes: u64, ids in prop::collection::vec(0_u32..4, 0..4)) {
        let payload = encode_status_payload(length_bytes, &ids);
        let is_repeated = (1..ids.len()).any(|at| ids[..at].contains(&ids[at]));
        let is_legal = !is_repeated && !ids.contains(&3);
        let expected = is_legal.then_some((length_bytes, ids));
        prop_assert_eq!(decode_status_payload(&payload, &[0, 1, 2]), expected);
    }

    #[test]
    fn decoders_survive_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), framing in framings(), kind: u16) {
        let _ = Request::decode(framing, &bytes);
        let _ = ReplyHead::decode(framing, &bytes);
        let _ = InfoRequest::decode(&bytes);
        let _ = InfoFact::decode(&bytes);
        if let Some(request) = ContextRequest::decode(&bytes) {
            prop_assert!(request.queries().count() <= bytes.len() / 4);
        }
        let _ = decode_context(&bytes);
        let _ = decode_server(&bytes);
        let _ = decode_extents(kind, &bytes);
        let _ = decode_error(kind, &bytes);
        let _ = decode_status_payload(&bytes, &[1]);
        if let Some(head) = bytes.first_chunk() {
            let _ = OptionHead::decode(head);
        }
        if let Some(head) = bytes.first_chunk() {
            let _ = OptionReplyHead::decode(head);
        }
    }
}
