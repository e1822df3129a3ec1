//! Requests of one length: random or forward, reads, writes or both.
//!
//! Invariant: forward, each process has its own part of the range and begins again at its end.

use plexum_disks::rng::Rng;

use super::{IoRequest, Operation, Process};
use crate::error::LabError;

/// What each process does.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// What a request does; when mixed, what one does that is no read.
    pub operation: Operation,
    /// Reads in a hundred requests, when mixed.
    pub read_percent: Option<u64>,
    /// Anywhere, or forward.
    pub is_random: bool,
    /// Length of a request.
    pub block_bytes: u64,
    /// Processes.
    pub process_count: usize,
    /// Requests under way of each.
    pub depth: usize,
    /// Requests of each.
    pub request_count: u64,
}

/// The processes on a range of `size_bytes`.
///
/// # Errors
/// `Usage` when the range is too small, or when nothing would be done.
pub fn processes(shape: &Shape, size_bytes: u64, seed: u64) -> Result<Vec<Process>, LabError> {
    let blocks = size_bytes.checked_div(shape.block_bytes).unwrap_or(0);
    let share = blocks / shape.process_count.max(1) as u64;
    if shape.process_count == 0 || shape.depth == 0 || share == 0 {
        return Err(LabError::Usage(format!(
            "{} processes with requests of {} bytes need more than {size_bytes} bytes",
            shape.process_count, shape.block_bytes
        )));
    }
    if !shape.block_bytes.is_multiple_of(512) {
        return Err(LabError::Usage(format!(
            "requests of {} bytes are not whole sectors of 512",
            shape.block_bytes
        )));
    }
    let base = Rng::new(seed);
    let shape = *shape;
    Ok((0..shape.process_count as u64)
        .map(|process| {
            let mut rng = base.fork(process);
            let requests = (0..shape.request_count).map(move |number| {
                let block = if shape.is_random {
                    rng.below(blocks)
                } else {
                    process * share + number % share
                };
                let operation = match shape.read_percent {
                    Some(percent) if rng.chance(percent, 100) => Operation::Read,
                    Some(_) => shape.operation,
                    None => shape.operation,
                };
                IoRequest {
                    operation,
                    offset_bytes: block * shape.block_bytes,
                    length_bytes: shape.block_bytes,
                    think_ns: 0,
                }
            });
            Process {
                depth: shape.depth,
                requests: Box::new(requests),
            }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        operation: Operation::Write,
        read_percent: None,
        is_random: false,
        block_bytes: 4096,
        process_count: 3,
        depth: 2,
        request_count: 100,
    };

    fn requests(shape: &Shape) -> Vec<Vec<IoRequest>> {
        let processes = processes(shape, 1 << 20, 7).unwrap();
        processes
            .into_iter()
            .map(|p| p.requests.collect())
            .collect()
    }

    #[test]
    fn forward_processes_stay_in_their_parts() {
        for (process, list) in requests(&SHAPE).iter().enumerate() {
            let first = process as u64 * (256 / 3) * 4096;
            assert_eq!(list[0], IoRequest::write(first, 4096));
            assert_eq!(list[1].offset_bytes, first + 4096);
            assert_eq!(list[85].offset_bytes, first, "it begins again");
        }
    }

    #[test]
    fn the_share_of_reads_is_kept_and_offsets_stay_inside() {
        let shape = Shape {
            read_percent: Some(70),
            is_random: true,
            request_count: 4000,
            ..SHAPE
        };
        let through = Shape {
            operation: Operation::WriteThrough,
            ..shape
        };
        let is_plain = |r: &IoRequest| r.operation == Operation::Write;
        assert!(!requests(&through).concat().iter().any(is_plain));
        let all = requests(&shape).concat();
        let reads = all
            .iter()
            .filter(|r| r.operation == Operation::Read)
            .count();
        let share = reads as f64 / all.len() as f64;
        assert!((share - 0.7).abs() < 0.02, "{share}");
        assert!(all.iter().all(|r| r.offset_bytes + 4096 <= 1 << 20));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let shape = Shape {
            process_count: 300,
            ..SHAPE
        };
        assert!(processes(&shape, 1 << 20, 1).is_err());
        let odd = Shape {
            block_bytes: 1000,
            ..SHAPE
        };
        assert!(processes(&odd, 1 << 20, 1).is_err());
    }
}
