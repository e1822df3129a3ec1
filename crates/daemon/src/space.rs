//! Whether there is space for what sparse members have not written yet.
//!
//! Invariants: called where a file system that hangs holds up nobody but who asked.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use crate::volume::status::Verdict;
use crate::volume::status::{Finding, MemberState, VolumeStatus};

/// Bytes of one of the units that `st_blocks` counts.
const BLOCK_BYTES: u64 = 512;

/// A refused write makes a volume full for so long, whatever the file system says of its space: quotas, limits.
const FULL_FOR_S: u64 = 60;

/// What members on one file system want of it.
struct Demand {
    unwritten_bytes: u64,
    free_bytes: u64,
    has_refused: bool,
    path: String,
}

/// Adds to a status what the file systems under its members say.
pub fn look(status: &mut VolumeStatus) {
    let mut demands: BTreeMap<u64, Demand> = BTreeMap::new();
    let mut is_full = false;
    for member in &mut status.members {
        let is_there = !matches!(member.state, MemberState::Missing | MemberState::Faulty);
        is_full |= is_there && member.refused_ago_s.is_some_and(|ago| ago < FULL_FOR_S);
        let Some(path) = member.path.as_ref().filter(|_| is_there) else {
            continue;
        };
        let (Ok(meta), Ok(space)) = (std::fs::metadata(path), rustix::fs::statvfs(path.as_str()))
        else {
            continue;
        };
        if !meta.is_file() {
            continue;
        }
        let written = meta.blocks().saturating_mul(BLOCK_BYTES);
        let unwritten_bytes = meta.len().saturating_sub(written);
        let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        member.unwritten_bytes = Some(unwritten_bytes);
        member.free_bytes = Some(free_bytes);
        let demand = demands.entry(meta.dev()).or_insert_with(|| Demand {
            unwritten_bytes: 0,
            free_bytes,
            has_refused: false,
            path: path.clone(),
        });
        demand.unwritten_bytes = demand.unwritten_bytes.saturating_add(unwritten_bytes);
        demand.has_refused |= member.refused_writes > 0;
    }
    for demand in demands.values() {
        let is_short = demand.unwritten_bytes > demand.free_bytes;
        is_full |= is_short && demand.has_refused;
        if is_short {
            status.findings.push(Finding {
                code: "space_short".into(),
                message: format!(
                    "{} bytes of its files have no space yet, and {} bytes are free where {} is: writes may be refused",
                    demand.unwritten_bytes, demand.free_bytes, demand.path
                ),
                commands: vec![format!("df {}", crate::volume::advice::shell_word(&demand.path))],
            });
        }
    }
    tell_refusals(status);
    if is_full && matches!(status.verdict, Verdict::Ok | Verdict::Damaged) {
        status.verdict = Verdict::Full;
    }
}

fn tell_refusals(status: &mut VolumeStatus) {
    for member in &status.members {
        let Some(ago_s) = member.refused_ago_s else {
            continue;
        };
        let path = member.path.clone().unwrap_or_default();
        status.findings.push(Finding {
            code: "space_refused".into(),
            message: format!(
                "{path} had no space for {} writes, the last one {ago_s} s ago: they were answered with an error, or are in \
                 its list of bad blocks where it was being filled",
                member.refused_writes
            ),
            commands: vec![format!("df {}", crate::volume::advice::shell_word(&path))],
        });
    }
}
