//! A change is taken back: every byte that it wrote becomes what it was.
//!
//! Invariants:
//! - nothing is written unless every byte of the change, on every member, is as the change wrote it, or as it was
//!   before: an undo that was cut goes on, and what somebody has used since stays;
//! - newest first, phase by phase, each durable before the next.

use plexum_block::buf::BufPool;
use plexum_block::device::{Device, Fua};
use plexum_runtime::Handle;
use plexum_runtime::file::OpenOptions;

use super::store::{Bytes, Change, ChangeState, ChangedRange, Changes, Reverse};
use crate::inspect::read_unaligned;
use crate::open::{AnyDevice, MemberWord, check_writers, problem_of_io};
use crate::problem::{Code, Problem};

/// A change that was undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// What it was.
    pub change: Change,
    /// Its members.
    pub members: Vec<String>,
    /// Bytes that were put back; none when an earlier undo had come so far.
    pub written_bytes: u64,
    /// Why it is not kept that it was undone, in one sentence.
    pub problem: Option<String>,
}

/// Whether something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// As the change wrote it.
    Written,
    /// As it was before.
    Before,
}

/// Undoes a change. With a handle that rehearses nothing is written.
///
/// # Errors
/// `NoSuchFile` for a number that is not known; `WrongState` when it cannot be undone, with the place that says so;
/// `Busy` for a member in use; of reading and writing.
pub async fn undo(handle: &Handle, changes: &Changes, id: u64) -> Result<Undone, Problem> {
    let change = changes.find(id)?;
    check_state(&change)?;
    let bytes = changes.bytes_of(&change)?;
    let mut members: Vec<String> = Vec::new();
    for range in &change.ranges {
        if !members.contains(&range.member) {
            members.push(range.member.clone());
        }
    }
    let mut devices = Vec::new();
    for member in &members {
        let word = MemberWord::parse(member);
        devices.push(AnyDevice::open(handle, &word, &OpenOptions::read_write()).await?);
        check_writers(&word, member)?;
    }
    let device_of = |range: &ChangedRange| {
        let at = members.iter().position(|member| *member == range.member);
        &devices[at.unwrap_or_default()] // every member of a range is in the list
    };
    let pool = BufPool::new(0);
    let mut standing = Vec::new();
    // A later range may lie over an earlier one: what counts is what was written there last.
    for (at, range) in change.ranges.iter().enumerate() {
        let device = device_of(range);
        let read = read_unaligned(device, &pool, range.at_bytes, range.length_bytes).await;
        let now = read.map_err(|error| problem_of_io(error, "reading metadata", &range.member))?;
        let expected = overlaid(&change.ranges, &bytes, at);
        let before = &bytes[at].before;
        let mut each = now.iter().zip(expected.iter().zip(before));
        if !each.all(|(now, (written, before))| now == written || now == before) {
            return Err(changed_since(&change, range));
        }
        standing.push(match now == *before {
            true => Standing::Before,
            false => Standing::Written,
        });
    }
    let last_phase = change.ranges.iter().map(|range| range.phase).max();
    let mut written_bytes = 0;
    for phase in (0..=last_phase.unwrap_or_default()).rev() {
        for (at, range) in change.ranges.iter().enumerate().rev() {
            if range.phase != phase || standing[at] == Standing::Before {
                continue;
            }
            let data = pool.copy_of(&bytes[at].before).freeze();
            let written = device_of(range).write(range.at_bytes, data, Fua::No).await;
            written.map_err(|error| problem_of_io(error, "putting back", &range.member))?;
            written_bytes += range.length_bytes;
        }
        for (device, member) in devices.iter().zip(&members) {
            let flushed = device.flush().await;
            flushed.map_err(|error| problem_of_io(error, "putting back", member))?;
        }
    }
    let undone = Change {
        state: ChangeState::Undone,
        ..change
    };
    let problem = match handle.is_rehearsal() {
        true => None,
        false => changes.put(&undone).err(),
    };
    Ok(Undone {
        change: undone,
        members,
        written_bytes,
        problem,
    })
}

fn check_state(change: &Change) -> Result<(), Problem> {
    let id = change.id;
    let refuse = |why: &str| Problem::new(Code::WrongState, format!("change {id} {why}"));
    match (change.state, change.reverse) {
        (ChangeState::Undone, _) => Err(refuse("was undone already")),
        (ChangeState::Failed, _) => Err(refuse("failed, and was put back then")),
        (_, Reverse::Refused) => {
            let problem = refuse("cannot be undone");
            Err(problem
                .why("a member that the others went on without could be taken for fresh again")
                .hint(format!("it was:   {}", change.command)))
        }
        (ChangeState::Begun | ChangeState::Done, Reverse::Allowed) => Ok(()),
    }
}

fn changed_since(change: &Change, range: &ChangedRange) -> Problem {
    let (id, at) = (change.id, range.at_bytes);
    let problem = Problem::new(
        Code::WrongState,
        format!(
            "change {id} cannot be undone: {} has changed since",
            range.member
        ),
    );
    problem
        .member(&range.member)
        .why(format!(
            "what was written at byte {at} is something else now"
        ))
        .hint("nothing was written")
}

/// What range `at` looked like when the change had ended: later ranges of the same member may lie over it.
fn overlaid(ranges: &[ChangedRange], bytes: &[Bytes], at: usize) -> Vec<u8> {
    let own = &ranges[at];
    let mut expected = bytes[at].after.clone();
    for (later, Bytes { after, .. }) in ranges.iter().zip(bytes).skip(at + 1) {
        if later.member != own.member {
            continue;
        }
        let start = later.at_bytes.max(own.at_bytes);
        let end = (later.at_bytes.saturating_add(later.length_bytes))
            .min(own.at_bytes.saturating_add(own.length_bytes));
        if start < end {
            let (to, from) = (start - own.at_bytes, start - later.at_bytes);
            let (to, from) = (to as usize, from as usize); // both lie inside bytes in memory
            let length = (end - start) as usize;
            expected[to..to + length].copy_from_slice(&after[from..from + length]);
        }
    }
    expected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(member: &str, at_bytes: u64, length_bytes: u64) -> ChangedRange {
        ChangedRange {
            member: member.into(),
            at_bytes,
            length_bytes,
            phase: 0,
        }
    }

    #[test]
    fn what_was_written_last_at_a_place_is_what_is_expected_there() {
        let ranges = [range("a", 10, 4), range("b", 10, 4), range("a", 12, 4)];
        let bytes = [[1; 4], [2; 4], [3; 4]].map(|after| Bytes {
            before: vec![0; 4],
            after: after.to_vec(),
        });
        assert_eq!(overlaid(&ranges, &bytes, 0), [1, 1, 3, 3]);
        assert_eq!(overlaid(&ranges, &bytes, 1), [2; 4]);
        assert_eq!(overlaid(&ranges, &bytes, 2), [3; 4]);
    }
}
