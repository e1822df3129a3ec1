//! What to do with a command of an I/O queue: a pure decision about every possible one.
//!
//! Invariants: a command that may run lies inside of the namespace, and its data are as long as they have to be; no
//! arithmetic overflows.
//!
//! Source: NVM Command Set, "Read", "Write", "Flush", "Write Zeroes", "Dataset Management".

use plexum_block::device::Fua;
use plexum_front::export::{ExportInfo, ZeroRequest};
use plexum_front::perform;

use crate::controller::block_bytes;
use crate::wire::command::{BlockRange, Command, RANGE_BYTES, RANGES_MAX, Sgl, io};
use crate::wire::identify::{ALL_NAMESPACES, DATA_BYTES_MAX, NAMESPACE};
use crate::wire::status::Status;

/// A range of the export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is; 0 of a flush.
    pub length_bytes: u64,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It needs no data of the host.
    Run(perform::Command, Span),
    /// It needs data of the host, which are in the capsule or to be asked for.
    Receive {
        /// What they are for.
        purpose: Purpose,
        /// How long they are; at most `DATA_BYTES_MAX`.
        data_bytes: u32,
        /// Whether they are in the capsule.
        is_in_capsule: bool,
    },
    /// It is answered with this.
    Refuse(Status),
}

/// What a host's data are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// They are written.
    Write(Fua, Span),
    /// They begin with so many ranges, whose space is given back.
    Deallocate(usize),
    /// They are ranges with hints that nobody takes here.
    Hint,
}

/// Judges a command that came with `capsule_bytes` of data.
#[must_use]
pub fn judge(command: &Command, capsule_bytes: usize, info: &ExportInfo) -> Verdict {
    match decide(command, capsule_bytes, info) {
        Ok(verdict) => verdict,
        Err(status) => Verdict::Refuse(status),
    }
}

fn decide(command: &Command, capsule_bytes: usize, info: &ExportInfo) -> Result<Verdict, Status> {
    if command.is_fused() {
        return Err(Status::INVALID_FIELD);
    }
    let is_known = matches!(
        command.opcode,
        io::FLUSH | io::READ | io::WRITE | io::WRITE_ZEROES | io::DATASET_MANAGEMENT
    );
    if !is_known {
        return Err(Status::INVALID_OPCODE);
    }
    let is_for_all = command.opcode == io::FLUSH && command.namespace == ALL_NAMESPACES;
    if command.namespace != NAMESPACE && !is_for_all {
        return Err(Status::INVALID_NAMESPACE);
    }
    if info.is_read_only && !matches!(command.opcode, io::FLUSH | io::READ) {
        return Err(Status::WRITE_PROTECTED);
    }
    let fua = match command.is_fua() {
        true => Fua::Yes,
        false => Fua::No,
    };
    match command.opcode {
        io::FLUSH => Ok(Verdict::Run(perform::Command::Flush, Span::default())),
        io::READ => {
            let span = span_of(command, info)?;
            let data_bytes = data_bytes(&span)?;
            match placed(command, capsule_bytes, data_bytes)? {
                // FUA of a read asks for what is durable: what is read is what a flush would make so.
                false => Ok(Verdict::Run(perform::Command::Read, span)),
                true => Err(Status::SGL_TYPE), // no answer has data in its capsule
            }
        }
        io::WRITE => {
            let span = span_of(command, info)?;
            let data_bytes = data_bytes(&span)?;
            Ok(Verdict::Receive {
                purpose: Purpose::Write(fua, span),
                data_bytes,
                is_in_capsule: placed(command, capsule_bytes, data_bytes)?,
            })
        }
        io::WRITE_ZEROES => {
            let how = ZeroRequest {
                fua,
                may_unmap: command.may_deallocate(),
                only_if_fast: false,
            };
            let span = span_of(command, info)?;
            Ok(Verdict::Run(perform::Command::Zero(how), span))
        }
        _ => {
            // Linux always sends room for all ranges that there can be.
            let data_bytes = command.sgl.length_bytes;
            let least = command.range_count() * RANGE_BYTES;
            if (data_bytes as usize) < least || data_bytes as usize > RANGES_MAX * RANGE_BYTES {
                return Err(Status::DATA_LENGTH);
            }
            Ok(Verdict::Receive {
                purpose: match command.deallocates() {
                    true => Purpose::Deallocate(command.range_count()),
                    false => Purpose::Hint,
                },
                data_bytes,
                is_in_capsule: placed(command, capsule_bytes, data_bytes)?,
            })
        }
    }
}

/// The range of a command, inside of the namespace.
fn span_of(command: &Command, info: &ExportInfo) -> Result<Span, Status> {
    let blocks = Blocks {
        first: command.first_block(),
        count: command.block_count(),
    };
    blocks.span(info)
}

/// A range as hosts count it.
#[derive(Clone, Copy)]
struct Blocks {
    first: u64,
    count: u64,
}

impl Blocks {
    fn span(self, info: &ExportInfo) -> Result<Span, Status> {
        let block_bytes = u64::from(block_bytes(info));
        let end = self.first.checked_add(self.count);
        let is_inside = end.is_some_and(|end| end <= info.size_bytes / block_bytes);
        match is_inside {
            // No product is larger than the size.
            true => Ok(Span {
                offset_bytes: self.first * block_bytes,
                length_bytes: self.count * block_bytes,
            }),
            false => Err(Status::LBA_RANGE),
        }
    }
}

/// Length of the data of a range.
fn data_bytes(span: &Span) -> Result<u32, Status> {
    let length = u32::try_from(span.length_bytes).map_err(|_| Status::INVALID_FIELD)?;
    match length <= DATA_BYTES_MAX {
        true => Ok(length),
        false => Err(Status::INVALID_FIELD),
    }
}

/// Whether a command's data are in its capsule, and not to be moved by the transport.
fn placed(command: &Command, capsule_bytes: usize, data_bytes: u32) -> Result<bool, Status> {
    let Sgl {
        address,
        length_bytes,
        identifier,
    } = command.sgl;
    let is_in_capsule = match identifier {
        Sgl::IN_CAPSULE if address == 0 => true,
        Sgl::TRANSPORT => false,
        _ => return Err(Status::SGL_TYPE),
    };
    let expected = if is_in_capsule {
        data_bytes as usize
    } else {
        0
    };
    match length_bytes == data_bytes && capsule_bytes == expected {
        true => Ok(is_in_capsule),
        false => Err(Status::DATA_LENGTH),
    }
}

/// The first `count` ranges of Dataset Management, without empty ones.
///
/// # Errors
/// One is not inside of the namespace; nothing is to be done then.
pub fn spans_of(data: &[u8], count: usize, info: &ExportInfo) -> Result<Vec<Span>, Status> {
    let (ranges, _) = data.as_chunks::<RANGE_BYTES>();
    let mut spans = Vec::with_capacity(count);
    for range in ranges.iter().take(count) {
        let range = BlockRange::decode(range);
        let blocks = Blocks {
            first: range.first_block,
            count: range.block_count.into(),
        };
        if blocks.count > 0 {
            spans.push(blocks.span(info)?);
        }
    }
    Ok(spans)
}
