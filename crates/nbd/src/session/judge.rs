//! What to do with a request: a pure decision about every possible header.
//!
//! Invariants:
//! - whatever is refused, its payload is still read from the stream, so that the next header is found;
//! - a request that may run lies inside the export and is aligned; no arithmetic overflows.
//!
//! Source: nbd.md sections 4, 6 and 8; reliability.md section 1.1.

use plexum_block::device::Fua;
use plexum_front::export::{Extent, ZeroRequest};
use plexum_front::perform::Command;

use crate::negotiate::Agreed;
use crate::wire::option::tflag;
use crate::wire::request::{Request, command, flag};
use crate::wire::{Errno, Framing, PAYLOAD_BYTES_MAX, WireError};

/// Largest payload in bytes of a refused write that is read and dropped; above, the session ends.
pub const DRAIN_BYTES_MAX: u64 = 4 * PAYLOAD_BYTES_MAX as u64;
/// Largest payload of BLOCK_STATUS in bytes: a length and more ids than there are contexts.
const STATUS_PAYLOAD_BYTES_MAX: u64 = 8 + 4 * 16;

/// Most extents of one answer: 32 KiB of an ordinary answer, 64 KiB of an extended one.
const EXTENTS_MAX: usize = 4096;
/// Memory in bytes that a status request is reckoned with.
pub(super) const STATUS_BYTES: u64 = (EXTENTS_MAX * size_of::<Extent>()) as u64;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Read `payload_bytes`, then run it.
    Run {
        /// What to run.
        command: Command,
        /// Length of the payload in bytes (only writes have one).
        payload_bytes: u32,
    },
    /// Read the payload with the range's length first, then judge with `judge_status`.
    StatusPayload {
        /// One extent only.
        wants_one: bool,
        /// Length of the payload in bytes, at most 72.
        payload_bytes: u32,
    },
    /// Read and drop `drain_bytes`, then answer with an error.
    Refuse {
        /// The error.
        error: Errno,
        /// Words for people.
        words: &'static str,
        /// Length of the payload in bytes.
        drain_bytes: u64,
    },
    /// The client is done.
    Disconnect,
    /// Nothing sensible can follow: end the session.
    Close(WireError),
}

/// Judges a request of a session.
#[must_use]
pub fn judge(request: &Request, agreed: &Agreed) -> Verdict {
    let has_payload_flag =
        agreed.framing == Framing::Extended && request.flags & flag::PAYLOAD_LEN != 0;
    let is_write = request.command == command::WRITE;
    let payload_bytes = if is_write || has_payload_flag {
        request.length_bytes
    } else {
        0
    };
    let payload_bytes_max = if is_write {
        DRAIN_BYTES_MAX
    } else {
        u64::from(PAYLOAD_BYTES_MAX)
    };
    if payload_bytes > payload_bytes_max {
        return Verdict::Close(WireError::Broken(
            "the client announced a payload that is far too long",
        ));
    }
    let judged = match (request.command, has_payload_flag) {
        (command::DISC, false) => return Verdict::Disconnect,
        (command::BLOCK_STATUS, true) => return status_payload(request, agreed, payload_bytes),
        (command::WRITE, _) | (_, false) => judge_command(request, agreed),
        (_, true) => Err((Errno::Einval, "the command takes no payload")),
    };
    match judged {
        Ok(command) => Verdict::Run {
            command,
            payload_bytes: u32::try_from(payload_bytes).expect("payloads were compared with 2^25"),
        },
        Err((error, words)) => Verdict::Refuse {
            error,
            words,
            drain_bytes: payload_bytes,
        },
    }
}

fn judge_command(request: &Request, agreed: &Agreed) -> Result<Command, (Errno, &'static str)> {
    let flags = request.flags;
    let allowed = allowed_flags(request.command, agreed);
    let Some(allowed) = allowed else {
        return Err((Errno::Einval, "the command is not known"));
    };
    if flags & !allowed != 0 {
        return Err((Errno::Einval, "the command does not take these flags"));
    }
    let fua = if flags & flag::FUA != 0 {
        Fua::Yes
    } else {
        Fua::No
    };
    let judged = match request.command {
        command::READ => Command::Read,
        command::WRITE => Command::Write(fua),
        command::FLUSH => {
            if request.offset_bytes != 0 || request.length_bytes != 0 {
                return Err((Errno::Einval, "a flush has no range"));
            }
            return Ok(Command::Flush);
        }
        command::TRIM => Command::Trim(fua),
        command::CACHE => Command::Cache,
        command::WRITE_ZEROES => Command::Zero(ZeroRequest {
            fua,
            may_unmap: flags & flag::NO_HOLE == 0,
            only_if_fast: flags & flag::FAST_ZERO != 0,
        }),
        _ => {
            if !agreed.has_allocation {
                return Err((Errno::Einval, "no metadata context was chosen"));
            }
            status_command(flags & flag::REQ_ONE != 0)
        }
    };
    judge_range(judged, request.offset_bytes, request.length_bytes, agreed)?;
    Ok(judged)
}

/// Flags that a command may carry; `None` for unknown commands.
fn allowed_flags(number: u16, agreed: &Agreed) -> Option<u16> {
    let special = match number {
        command::READ if agreed.framing != Framing::Simple => flag::DF,
        command::WRITE if agreed.framing == Framing::Extended => flag::PAYLOAD_LEN,
        command::READ | command::WRITE | command::FLUSH | command::TRIM | command::CACHE => 0,
        command::WRITE_ZEROES => flag::NO_HOLE | flag::FAST_ZERO,
        command::BLOCK_STATUS => flag::REQ_ONE,
        _ => return None,
    };
    Some(special | flag::FUA)
}

fn judge_range(
    command: Command,
    offset_bytes: u64,
    length_bytes: u64,
    agreed: &Agreed,
) -> Result<(), (Errno, &'static str)> {
    let export = &agreed.export;
    let writes = matches!(
        command,
        Command::Write(_) | Command::Trim(_) | Command::Zero(_)
    );
    if writes && export.is_read_only {
        return Err((Errno::Eperm, "the export is read-only"));
    }
    let is_inside = offset_bytes
        .checked_add(length_bytes)
        .is_some_and(|end| end <= export.size_bytes);
    if !is_inside {
        let error = match command {
            Command::Write(_) | Command::Zero(_) => Errno::Enospc,
            _ => Errno::Einval,
        };
        return Err((error, "the range is past the end of the export"));
    }
    let unit = u64::from(export.block_bytes_min);
    if !offset_bytes.is_multiple_of(unit) || !length_bytes.is_multiple_of(unit) {
        return Err((Errno::Einval, "the range is not aligned to the block size"));
    }
    let has_data = matches!(command, Command::Read | Command::Write(_));
    if has_data && length_bytes > u64::from(PAYLOAD_BYTES_MAX) {
        return Err((Errno::Einval, "the request is larger than 32 MiB"));
    }
    if matches!(command, Command::Status { .. }) && length_bytes == 0 {
        return Err((Errno::Einval, "the range is empty"));
    }
    Ok(())
}

/// BLOCK_STATUS with a payload: the header's length is the payload's, the range's length is inside.
fn status_payload(request: &Request, agreed: &Agreed, payload_bytes: u64) -> Verdict {
    let refuse = |words| Verdict::Refuse {
        error: Errno::Einval,
        words,
        drain_bytes: payload_bytes,
    };
    if agreed.tflags() & tflag::BLOCK_STATUS_PAYLOAD == 0 {
        return refuse("no metadata context was chosen");
    }
    if request.flags & !(flag::FUA | flag::REQ_ONE | flag::PAYLOAD_LEN) != 0 {
        return refuse("the command does not take these flags");
    }
    if payload_bytes > STATUS_PAYLOAD_BYTES_MAX {
        return refuse("the payload names more contexts than there are");
    }
    Verdict::StatusPayload {
        wants_one: request.flags & flag::REQ_ONE != 0,
        payload_bytes: u32::try_from(payload_bytes).expect("at most 72"),
    }
}

/// Allocation status of a range: of all of it, or its first extent.
fn status_command(wants_one: bool) -> Command {
    let extents_max = if wants_one { 1 } else { EXTENTS_MAX };
    Command::Status { extents_max }
}

/// Second half of the judgement of BLOCK_STATUS with a payload, once the range's length is known.
///
/// # Errors
/// The error to answer, and words for people.
pub fn judge_status(
    request: &Request,
    length_bytes: u64,
    wants_one: bool,
    agreed: &Agreed,
) -> Result<Command, (Errno, &'static str)> {
    let command = status_command(wants_one);
    judge_range(command, request.offset_bytes, length_bytes, agreed)?;
    Ok(command)
}
