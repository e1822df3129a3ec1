//! dd: one request after another, forward; and random dd: one read at a time, each by a new process.
//!
//! Invariant: the next request starts when the one before has ended (after the pause of a new process for random dd).

use plexum_disks::rng::Rng;

use super::{IoRequest, Operation, Outcome};
use crate::error::LabError;

/// Time between two reads of random dd: the start of a process (lab.md 5).
const PROCESS_NS: u64 = 1_000_000;

/// The requests of `dd bs=BLOCK count=COUNT`, from the beginning.
///
/// # Errors
/// `Usage` when that is more than the target has.
pub fn sequential(
    operation: Operation,
    block_bytes: u64,
    count: u64,
    size_bytes: u64,
) -> Result<impl Iterator<Item = IoRequest>, LabError> {
    let end = block_bytes.checked_mul(count);
    if block_bytes == 0 || end.is_none_or(|end| end > size_bytes) {
        return Err(LabError::Usage(format!(
            "dd: {count} blocks of {block_bytes} bytes do not fit into {size_bytes} bytes"
        )));
    }
    Ok((0..count).map(move |block| IoRequest {
        operation,
        offset_bytes: block * block_bytes,
        length_bytes: block_bytes,
        think_ns: 0,
    }))
}

/// `count` reads of one block each at random block numbers below `range_bytes`, a new process for each.
///
/// # Errors
/// `Usage` when the range does not hold a block.
pub fn random(
    block_bytes: u64,
    count: u64,
    range_bytes: u64,
    seed: u64,
) -> Result<impl Iterator<Item = IoRequest>, LabError> {
    let blocks = range_bytes.checked_div(block_bytes).unwrap_or(0);
    if blocks == 0 {
        return Err(LabError::Usage(format!(
            "dd: {range_bytes} bytes hold no block of {block_bytes}"
        )));
    }
    let mut rng = Rng::new(seed);
    Ok((0..count).map(move |_| IoRequest {
        think_ns: PROCESS_NS,
        ..IoRequest::read(rng.below(blocks) * block_bytes, block_bytes)
    }))
}

/// The classic last lines of BSD's dd.
#[must_use]
pub fn classic(outcome: &Outcome) -> String {
    let count = outcome.traffic.reads.count() + outcome.traffic.writes.count();
    let bytes = outcome.traffic.reads.bytes() + outcome.traffic.writes.bytes();
    format!(
        "{count}+0 records in\n{count}+0 records out\n{bytes} bytes transferred in {:.6} secs ({:.0} bytes/sec)\n",
        outcome.seconds(),
        outcome.bytes_per_s()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dd_reads_every_block_once_and_in_order() {
        let requests: Vec<IoRequest> = sequential(Operation::Read, 16 << 10, 100, 16 << 20)
            .unwrap()
            .collect();
        assert_eq!(requests.len(), 100);
        for (number, request) in requests.iter().enumerate() {
            assert_eq!(*request, IoRequest::read(number as u64 * 16384, 16384));
        }
        assert!(sequential(Operation::Read, 16 << 10, 1025, 16 << 20).is_err());
    }

    #[test]
    fn random_dd_pauses_and_stays_in_its_range() {
        let requests: Vec<IoRequest> = random(16 << 10, 200, 1 << 20, 5).unwrap().collect();
        assert!(requests.iter().all(|r| r.think_ns == 1_000_000
            && r.length_bytes == 16384
            && r.offset_bytes % 16384 == 0
            && r.offset_bytes < 1 << 20));
        let distinct: std::collections::BTreeSet<u64> =
            requests.iter().map(|r| r.offset_bytes).collect();
        assert!(distinct.len() > 50);
        assert!(random(16 << 10, 1, 100, 5).is_err());
    }
}
