//! The blocks at the head of cylinder groups: where a file system of the time puts superblocks and maps.
//!
//! newfs made cylinders of 2 MiB and 16 of them a group: with strips of 4 MiB on four disks every group then begins on
//! the same disk; with 17 cylinders they go round (lab.md 5; Vinum's rows of 4 MiB stripes).

use plexum_disks::rng::Rng;

use super::{IoRequest, Operation, Process};
use crate::error::LabError;

/// Superblock copy and map of a group, read and written together.
pub const HEAD_BYTES: u64 = 8 << 10;
/// 16 cylinders of 2 MiB.
pub const GROUP_BYTES: u64 = 32 << 20;

/// What each process does.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// From one head to the next.
    pub group_bytes: u64,
    /// What a request does that is no read.
    pub update: Operation,
    /// Reads in a hundred requests.
    pub read_percent: u64,
    /// Processes.
    pub process_count: usize,
    /// Requests under way of each.
    pub depth: usize,
    /// Requests of each.
    pub request_count: u64,
}

/// The processes on a range of `size_bytes`: heads of random groups.
///
/// # Errors
/// `Usage` when the groups are no whole sectors, shorter than a head, or do not fit into the range.
pub fn processes(shape: &Shape, size_bytes: u64, seed: u64) -> Result<Vec<Process>, LabError> {
    let shape = *shape;
    let group_bytes = shape.group_bytes;
    if group_bytes < HEAD_BYTES || !group_bytes.is_multiple_of(512) {
        return Err(LabError::Usage(format!(
            "groups of {group_bytes} bytes are no whole sectors of 512, or shorter than their head of {HEAD_BYTES}"
        )));
    }
    let groups = size_bytes / group_bytes;
    if groups < 2 {
        return Err(LabError::Usage(format!(
            "two groups of {group_bytes} bytes do not fit into {size_bytes}"
        )));
    }
    let base = Rng::new(seed);
    let process = |number| {
        let mut rng = base.fork(number);
        let requests = (0..shape.request_count).map(move |_| {
            let read = IoRequest::read(rng.below(groups) * group_bytes, HEAD_BYTES);
            if rng.chance(shape.read_percent, 100) {
                return read;
            }
            IoRequest {
                operation: shape.update,
                ..read
            }
        });
        Process {
            depth: shape.depth,
            requests: Box::new(requests),
        }
    };
    Ok((0..shape.process_count as u64).map(process).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SHAPE: Shape = Shape {
        group_bytes: GROUP_BYTES,
        update: Operation::WriteThrough,
        read_percent: 60,
        process_count: 3,
        depth: 2,
        request_count: 1000,
    };

    fn requests(shape: &Shape, size_bytes: u64) -> Vec<IoRequest> {
        let processes = processes(shape, size_bytes, 5).unwrap();
        assert!(processes.iter().all(|process| process.depth == shape.depth));
        processes
            .into_iter()
            .flat_map(|process| process.requests)
            .collect()
    }

    #[test]
    fn every_request_is_the_head_of_a_whole_group_and_all_groups_are_met() {
        // Ten groups, and not quite one more.
        let all = requests(&SHAPE, 11 * GROUP_BYTES - 1);
        assert_eq!(all.len(), 3000);
        assert!(all.iter().all(|one| one.length_bytes == HEAD_BYTES));
        let met: BTreeSet<u64> = all.iter().map(|one| one.offset_bytes).collect();
        let heads: BTreeSet<u64> = (0..10).map(|group| group * GROUP_BYTES).collect();
        assert_eq!(met, heads);
    }

    #[test]
    fn the_share_of_updates_is_kept() {
        let count = |read_percent| {
            let shape = Shape {
                read_percent,
                ..SHAPE
            };
            let all = requests(&shape, 1 << 30);
            let is_update = |one: &&IoRequest| one.operation == Operation::WriteThrough;
            let updates = all.iter().filter(is_update).count();
            let reads = all.iter().filter(|one| one.operation == Operation::Read);
            assert_eq!(reads.count() + updates, all.len());
            updates
        };
        assert!((1100..1300).contains(&count(60)), "{}", count(60));
        assert_eq!((count(100), count(0)), (0, 3000));
    }

    #[test]
    fn groups_that_cannot_be_are_refused() {
        for (group_bytes, size_bytes) in [
            (0, 1 << 30),
            (4096, 1 << 30),
            (GROUP_BYTES + 100, 1 << 30),
            (GROUP_BYTES, 2 * GROUP_BYTES - 512),
        ] {
            let shape = Shape {
                group_bytes,
                ..SHAPE
            };
            assert!(
                processes(&shape, size_bytes, 1).is_err(),
                "{group_bytes} {size_bytes}"
            );
        }
    }
}
