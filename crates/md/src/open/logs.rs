//! Logs at the start of a volume: our stripe log, and md's partial parity log.
//!
//! Invariant: nothing is written before it is sure that the log counts (L6).

use plexum_format::stripe_log::LogHeader;

use super::{OpenError, Side, used, volume_name};
use crate::assemble::{AssembleError, Assembly, Examined, LogUse};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};
use plexum_engine::state::MemberRecord;
use plexum_engine::volume::{Dirty, Force, PplError, ReplayError, Volume};

/// The rings' headers in the order of `MemberId`: of the members in use, as `build` numbers them.
pub(super) fn log_headers(
    examined: &[Examined],
    assembly: &Assembly,
) -> Option<Vec<Option<LogHeader>>> {
    let in_use = examined
        .iter()
        .filter_map(|member| Some((member, used(assembly, member.index, Side::Before)?.1)));
    // A spare has no part in the log: should it take a slot, it joins with an empty ring.
    let header = |(member, record): (&Examined, MemberRecord)| {
        let (header, _) = member.log.as_ref().filter(|_| record.slot.is_some())?;
        Some(header.clone())
    };
    assembly
        .log
        .is_usable()
        .then(|| in_use.map(header).collect())
}

/// Replays the log where it counts (L7), or begins a new life of it. The only thing that opening a volume writes.
pub(super) async fn start_log<D: Device, C: Clock>(
    volume: &Volume<D, C>,
    assembly: &Assembly,
    headers: &[Option<LogHeader>],
    force: Force,
) -> Result<(), OpenError> {
    if !matches!(assembly.log, LogUse::Replay { .. }) {
        volume.begin_log_anew();
        return Ok(());
    }
    let failed =
        |error: IoError| OpenError::Log(format!("the stripe log cannot be replayed: {error}"));
    match volume.replay_log(headers).await {
        Ok(()) => Ok(()),
        Err(ReplayError::Io(error)) => Err(failed(error)),
        Err(ReplayError::Damaged) if assembly.is_degraded && force == Force::No => {
            let text = "a record in the middle of the stripe log is damaged, and a member is missing: rows that were \
                        being written may give wrong data; add the missing member, or --force";
            Err(OpenError::Log(text.to_owned()))
        }
        Err(ReplayError::Damaged) => {
            volume.doubt_log();
            Ok(())
        }
    }
}

/// Takes over md's partial parity log, and replays it after an unclean stop.
pub(super) async fn start_ppl<D: Device, C: Clock>(
    volume: &Volume<D, C>,
    assembly: &Assembly,
    force: Force,
) -> Result<(), OpenError> {
    if !assembly.has_ppl {
        return Ok(());
    }
    let dirty = match assembly.resync_start_bytes {
        Some(0) => Dirty::Yes,
        _ => Dirty::No,
    };
    match volume.start_ppl(dirty, force).await {
        Ok(()) => Ok(()),
        Err(PplError::Doubt) => {
            let refusal = AssembleError::strip_lost(&volume_name(assembly));
            Err(OpenError::Assemble(Box::new(refusal)))
        }
        Err(PplError::Io(error)) => Err(OpenError::Log(format!(
            "the partial parity log cannot be replayed: {error}"
        ))),
    }
}
