//! STARTTLS in the handshake: what is refused before it, and what is forgotten by it. Without any TLS session.
#![allow(clippy::unwrap_used)]

use plexum_front::export::ExportInfo;
use plexum_nbd::negotiate::{ExportList, Handshake, Outcome};
use plexum_nbd::tls::TlsMode;
use plexum_nbd::wire::Framing;
use plexum_nbd::wire::option::{
    InfoRequest, OptionReplyHead, REPLY_HEAD_BYTES, code, encode_option, reply,
};

struct One;

impl ExportList for One {
    fn resolve(&self, _name: &str) -> Option<ExportInfo> {
        Some(ExportInfo {
            name: "vol".to_owned(),
            description: String::new(),
            size_bytes: 1 << 20,
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            is_read_only: false,
            is_rotational: false,
        })
    }
    fn list(&self) -> Vec<(String, String)> {
        vec![("vol".to_owned(), String::new())]
    }
}

fn begun(mode: TlsMode) -> Handshake {
    let mut handshake = Handshake::with_tls(mode);
    let step = handshake.step(&One, &3_u32.to_be_bytes(), &mut Vec::new());
    assert_eq!(step.unwrap(), (4, Outcome::Went));
    handshake
}

/// Sends one option; the outcome and the kind of the last reply.
fn ask(handshake: &mut Handshake, option: u32, data: &[u8]) -> (Outcome, Option<u32>) {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    encode_option(&mut input, option, data);
    let mut used = 0;
    loop {
        let (more, outcome) = handshake.step(&One, &input[used..], &mut out).unwrap();
        used += more;
        if outcome == Outcome::Went && out.is_empty() {
            continue;
        }
        let mut kind = None;
        let mut rest = out.as_slice();
        while let Some((head, after)) = rest.split_first_chunk::<REPLY_HEAD_BYTES>() {
            let head = OptionReplyHead::decode(head).unwrap();
            kind = Some(head.kind);
            rest = &after[head.length_bytes as usize..];
        }
        return (outcome, kind);
    }
}

fn go() -> Vec<u8> {
    InfoRequest::encode("vol", &[])
}

#[test]
fn forced_tls_answers_nothing_else_before_it() {
    let mut handshake = begun(TlsMode::Forced);
    for option in [
        code::LIST,
        code::STRUCTURED_REPLY,
        code::EXTENDED_HEADERS,
        4711,
    ] {
        let refused = (Outcome::Went, Some(reply::ERR_TLS_REQD));
        assert_eq!(ask(&mut handshake, option, &[]), refused, "{option}");
    }
    for option in [code::GO, code::INFO] {
        let refused = (Outcome::Went, Some(reply::ERR_TLS_REQD));
        assert_eq!(ask(&mut handshake, option, &go()), refused, "{option}");
    }
    let mut input = Vec::new();
    encode_option(&mut input, code::EXPORT_NAME, b"vol");
    let mut old = begun(TlsMode::Forced);
    let (used, _) = old.step(&One, &input, &mut Vec::new()).unwrap();
    let end = old.step(&One, &input[used..], &mut Vec::new());
    assert!(end.is_err(), "EXPORT_NAME has no other answer");
    let begins = (Outcome::StartTls, Some(reply::ACK));
    assert_eq!(ask(&mut handshake, code::STARTTLS, &[]), begins);
    handshake.tls_started();
    assert!(matches!(
        ask(&mut handshake, code::GO, &go()).0,
        Outcome::Agreed(_)
    ));
}

#[test]
fn what_was_agreed_in_the_clear_is_forgotten() {
    let mut handshake = begun(TlsMode::Selective);
    let agreed = (Outcome::Went, Some(reply::ACK));
    assert_eq!(ask(&mut handshake, code::STRUCTURED_REPLY, &[]), agreed);
    assert_eq!(
        ask(&mut handshake, code::STARTTLS, &[]).0,
        Outcome::StartTls
    );
    handshake.tls_started();
    let twice = (Outcome::Went, Some(reply::ERR_INVALID));
    assert_eq!(ask(&mut handshake, code::STARTTLS, &[]), twice);
    let (Outcome::Agreed(agreed), _) = ask(&mut handshake, code::GO, &go()) else {
        panic!("the export is there")
    };
    assert_eq!(agreed.framing, Framing::Simple);
}

#[test]
fn selective_tls_serves_in_the_clear_and_none_refuses_it() {
    let mut handshake = begun(TlsMode::Selective);
    assert!(matches!(
        ask(&mut handshake, code::GO, &go()).0,
        Outcome::Agreed(_)
    ));
    let refused = (Outcome::Went, Some(reply::ERR_POLICY));
    assert_eq!(ask(&mut begun(TlsMode::Off), code::STARTTLS, &[]), refused);
}
