//! Logs at the start of a volume: our stripe log, and md's partial parity log.
//!
//! Invariant: nothing is written before it is sure that the log counts (L6).

use plexum_format::stripe_log::LogHeader;

use super::{OpenError, Side, used, volume_name};
use crate::intent::log::ReplayError;
use crate::intent::ppl::PplError;
use crate::meta::assemble::{AssembleError, Assembly, Examined, LogUse};
use crate::state::MemberRecord;
use crate::volume::Volume;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};

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
    is_forced: bool,
) -> Result<(), OpenError> {
    let Some(log) = volume.intent().stripe_log() else {
        return Ok(());
    };
    if !matches!(assembly.log, LogUse::Replay { .. }) {
        log.new_life();
        return Ok(());
    }
    let failed =
        |error: IoError| OpenError::Log(format!("the stripe log cannot be replayed: {error}"));
    match volume.intent().replay_log(&log, headers).await {
        Ok(()) => volume.intent().finish_replay(&log).await.map_err(failed),
        Err(ReplayError::Io(error)) => Err(failed(error)),
        Err(ReplayError::Damaged) if assembly.is_degraded && !is_forced => {
            let text = "a record in the middle of the stripe log is damaged, and a member is missing: rows that were \
                        being written may give wrong data; add the missing member, or --force";
            Err(OpenError::Log(text.to_owned()))
        }
        Err(ReplayError::Damaged) => {
            // As without a log: what the bitmap marks is in doubt.
            volume.intent().doubt_all_marked();
            log.new_life();
            Ok(())
        }
    }
}

/// Takes over md's partial parity log, and replays it after an unclean stop.
pub(super) async fn start_ppl<D: Device, C: Clock>(
    volume: &Volume<D, C>,
    assembly: &Assembly,
    is_forced: bool,
) -> Result<(), OpenError> {
    if !assembly.has_ppl {
        return Ok(());
    }
    volume.intent().adopt_ppl();
    let is_dirty = assembly.resync_start_bytes == Some(0);
    match volume.intent().start_ppl(is_dirty, is_forced).await {
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
