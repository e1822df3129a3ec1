//! What comes over the wire. Number: framing.

use plexum_front::export::ExportInfo;
use plexum_nbd::negotiate::{ExportList, Handshake, Outcome};
use plexum_nbd::wire::option::{ContextRequest, InfoRequest};
use plexum_nbd::wire::reply::{ReplyHead, decode_error, decode_extents};
use plexum_nbd::wire::request::{
    EXTENDED_BYTES, Request, decode_status_payload, encode_status_payload, header_bytes,
};
use plexum_nbd::wire::{Framing, reply};

use super::{Target, as_it_is};
use crate::input::Input;
use crate::mutate::Hints;

/// Bytes that a server answers at most to an input of this size: each option has one answer of a few hundred bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A server with one export.
struct One;

impl One {
    fn info() -> ExportInfo {
        ExportInfo {
            name: "nas".to_owned(),
            description: "one".to_owned(),
            size_bytes: 1 << 30,
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            is_read_only: false,
            is_rotational: false,
        }
    }
}

impl ExportList for One {
    fn resolve(&self, name: &str) -> Option<ExportInfo> {
        (name.is_empty() || name == "nas").then(One::info)
    }

    fn list(&self) -> Vec<(String, String)> {
        vec![("nas".to_owned(), "one".to_owned())]
    }
}

/// All that a client sends in a handshake.
pub const OPTIONS: Target = Target {
    name: "nbd-options",
    check: |input| {
        let (mut handshake, mut out) = (Handshake::new(), Vec::new());
        let (mut at, mut idle) = (0, 0);
        loop {
            let rest = &input.bytes[at..];
            requests_agree(rest.get(16..).unwrap_or_default())?;
            let Ok((used, outcome)) = handshake.step(&One, rest, &mut out) else {
                return Ok(false);
            };
            if used > rest.len() || out.len() > ANSWER_BYTES_MAX {
                return Err(format!(
                    "{used} of {} bytes, {} answered",
                    rest.len(),
                    out.len()
                ));
            }
            at += used;
            // An option without data is handled without a byte; nothing else is.
            idle = if used == 0 { idle + 1 } else { 0 };
            match outcome {
                Outcome::Went if idle > 1 => return Err("it goes on without a byte".to_owned()),
                Outcome::Went => {}
                Outcome::Needs => return Ok(at == input.bytes.len()),
                Outcome::Agreed(_) | Outcome::Ended | Outcome::StartTls => return Ok(true),
            }
        }
    },
    write_back: |_| None,
    repair: as_it_is,
    hints: Hints {
        soft: &[15..16, 24..28, 42..46],
        is_text: false,
        words: &[b"IHAVEOPT", b"nas", b"base:allocation", &[0, 0, 0, 7]],
    },
    length_max_bytes: 4096,
};

/// Whatever is understood as the data of an option is written in the same bytes.
fn requests_agree(data: &[u8]) -> Result<(), String> {
    if let Some(request) = ContextRequest::decode(data) {
        let queries: Vec<&str> = request.queries().collect();
        if ContextRequest::encode(request.name, &queries) != data {
            return Err("a request for contexts is written otherwise".to_owned());
        }
    }
    if let Some(request) = InfoRequest::decode(data) {
        let again = InfoRequest::encode(request.name, &[0, 1, 2, 3]);
        if InfoRequest::decode(&again).is_none_or(|again| again.name != request.name) {
            return Err("a request for information is written otherwise".to_owned());
        }
    }
    Ok(())
}

fn framing(input: &Input) -> Framing {
    [Framing::Simple, Framing::Structured, Framing::Extended][(input.numbers[0] % 3) as usize]
}

/// A request of the transmission phase.
pub const REQUEST: Target = Target {
    name: "nbd-request",
    check: |input| {
        let rest = input.bytes.get(EXTENDED_BYTES..).unwrap_or_default();
        if let Some((length, ids)) = decode_status_payload(rest, &[1, 2, 3])
            && encode_status_payload(length, &ids) != rest
        {
            return Err("a payload of block status is written otherwise".to_owned());
        }
        let framing = framing(input);
        let Ok(request) = Request::decode(framing, &input.bytes) else {
            return Ok(false);
        };
        let (bytes, length) = request.encode(framing);
        if bytes[..length] != input.bytes[..length] {
            return Err("a request is written otherwise".to_owned());
        }
        Ok(true)
    },
    write_back: |input| {
        let framing = framing(input);
        let request = Request::decode(framing, &input.bytes).ok()?;
        let (bytes, _) = request.encode(framing);
        let rest = input.bytes.get(header_bytes(framing)..)?;
        Some([&bytes[..header_bytes(framing)], rest].concat())
    },
    repair: as_it_is,
    hints: Hints {
        soft: &[4..28, 32..48],
        is_text: false,
        words: &[],
    },
    length_max_bytes: 128,
};

/// A reply, as the client of a remote member reads it.
pub const REPLY: Target = Target {
    name: "nbd-reply",
    check: |input| {
        let framing = framing(input);
        let rest = input.bytes.get(EXTENDED_BYTES..).unwrap_or_default();
        for kind in 0..8 {
            let _ = decode_error(kind | 1 << 15, rest);
            let _ = decode_extents(kind, rest).map(|(_, extents)| extents.len());
        }
        match ReplyHead::decode(framing, &input.bytes) {
            Err(_) => Ok(false),
            Ok(ReplyHead::Simple { .. }) => Ok(true),
            Ok(ReplyHead::Chunk(head)) => {
                let (bytes, length) = head.encode(framing);
                if ReplyHead::decode(framing, &bytes[..length]) != Ok(ReplyHead::Chunk(head)) {
                    return Err("the head of a reply is written otherwise".to_owned());
                }
                Ok(true)
            }
        }
    },
    write_back: |_| None,
    repair: as_it_is,
    hints: Hints {
        soft: &[6..32, 32..64],
        is_text: false,
        words: &[],
    },
    length_max_bytes: reply::EXTENDED_BYTES + 256,
};
