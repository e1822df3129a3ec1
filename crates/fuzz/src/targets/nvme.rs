//! What an NVMe/TCP host sends: one PDU, with its data. Number: digests.

use plexum_front::export::ExportInfo;
use plexum_nvme::judge::{Purpose, Span, Verdict, judge, spans_of};
use plexum_nvme::wire::command::{Command, FABRICS};
use plexum_nvme::wire::digest::Digests;
use plexum_nvme::wire::fabrics::{ConnectData, Fabrics, Registers};
use plexum_nvme::wire::identify::DATA_BYTES_MAX;
use plexum_nvme::wire::log::Asked;
use plexum_nvme::wire::pdu::{HEAD_BYTES, Head, IcRequest, Kind, Transfer};

use super::{Target, as_it_is};
use crate::input::Input;
use crate::mutate::Hints;

const SIZE_BYTES: u64 = (1 << 30) + 512;

fn info(number: u64) -> ExportInfo {
    ExportInfo {
        name: "nas".to_owned(),
        description: String::new(),
        size_bytes: SIZE_BYTES,
        block_bytes_min: if number & 4 == 0 { 512 } else { 4096 },
        block_bytes_preferred: 4096,
        is_read_only: number & 8 != 0,
        is_rotational: false,
    }
}

fn digests(input: &Input) -> Digests {
    Digests::decode(input.numbers[0] as u8 & 3)
}

/// A PDU as a target takes it.
pub const PDU: Target = Target {
    name: "nvme-pdu",
    check: |input| {
        let Some((head, _)) = input.bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(false);
        };
        let head = Head::decode(head);
        let Ok(frame) = head.check(digests(input)) else {
            return Ok(false);
        };
        let begin = frame.header_bytes + frame.header_digest_bytes + frame.pad_bytes;
        let end = begin + frame.data_bytes + frame.data_digest_bytes;
        if end != head.total_bytes as usize && frame.kind != Kind::HostTerm {
            return Err("a frame has another length than its head".to_owned());
        }
        let Some(header) = input.bytes.get(..frame.header_bytes) else {
            return Ok(false);
        };
        let data = input.bytes.get(begin..begin + frame.data_bytes);
        match frame.kind {
            Kind::IcReq => {
                let header = header.try_into().map_err(|_| "its length")?;
                if let Ok(request) = IcRequest::decode(header)
                    && IcRequest::decode(&request.encode()) != Ok(request)
                {
                    return Err("a connection's wish is written otherwise".to_owned());
                }
            }
            Kind::HostData => {
                let header = header.try_into().map_err(|_| "its length")?;
                let transfer = Transfer::decode(header);
                if Transfer::decode(&transfer.encode(&head)) != transfer {
                    return Err("a transfer is written otherwise".to_owned());
                }
            }
            Kind::Command => command_agrees(header, data, input.numbers[0])?,
            _ => {}
        }
        Ok(true)
    },
    write_back: |input| {
        let (head, rest) = input.bytes.split_first_chunk::<HEAD_BYTES>()?;
        let head = Head::decode(head);
        head.check(digests(input)).ok()?;
        Some([&head.encode()[..], rest].concat())
    },
    repair: as_it_is,
    hints: Hints {
        soft: &[8..24, 24..72, 72..1096],
        is_text: false,
        words: &[b"nqn.2014-08.org.nvmexpress:uuid:", &[0x5a], &[0x7f]],
    },
    length_max_bytes: 2048,
};

/// A command is written as it was read, and what it may do lies inside of the volume.
fn command_agrees(header: &[u8], data: Option<&[u8]>, number: u64) -> Result<(), String> {
    let bytes = header[HEAD_BYTES..].try_into().map_err(|_| "its length")?;
    let command = Command::decode(bytes);
    if Command::decode(&command.encode()) != command {
        return Err("a command is written otherwise".to_owned());
    }
    let fabrics = Fabrics::decode(bytes);
    if command.opcode == FABRICS && Fabrics::decode(&fabrics.encode(command.id)) != fabrics {
        return Err("a command of fabrics is written otherwise".to_owned());
    }
    let mut registers = Registers::default();
    registers.configure(command.dwords[2]);
    let asked = Asked::decode(&command.dwords);
    if Asked::decode(&asked.encode()) != asked {
        return Err("a wish for a log page is written otherwise".to_owned());
    }
    if let Some(Ok(data)) = data.map(TryInto::try_into)
        && let Ok(connect) = ConnectData::decode(data)
        && ConnectData::decode(&connect.encode()) != Ok(connect)
    {
        return Err("the data of Connect are written otherwise".to_owned());
    }
    let info = info(number);
    let mut spans = Vec::new();
    match judge(&command, data.map_or(0, <[u8]>::len), &info) {
        Verdict::Run(_, span) => spans.push(span),
        Verdict::Receive {
            purpose,
            data_bytes,
            is_in_capsule,
        } => {
            if data_bytes > DATA_BYTES_MAX || is_in_capsule && data.is_none() {
                return Err(format!("{data_bytes} bytes of data are taken"));
            }
            match (purpose, data) {
                (Purpose::Write(_, span), _) => spans.push(span),
                (Purpose::Deallocate(count), Some(data)) => {
                    spans.extend(spans_of(data, count, &info).unwrap_or_default());
                }
                _ => {}
            }
        }
        Verdict::Refuse(status) if status.is_success() => {
            return Err("a refusal is a success".to_owned());
        }
        Verdict::Refuse(_) => {}
    }
    let is_inside = |span: &Span| {
        let end = span.offset_bytes.checked_add(span.length_bytes);
        end.is_some_and(|end| end <= SIZE_BYTES)
    };
    match spans.iter().all(is_inside) {
        true => Ok(()),
        false => Err(format!("{spans:?} are not inside")),
    }
}
