//! Block traces, replayed: each request starts at its time, whether or not the ones before have ended.
//!
//! Format: one request a line, `SECONDS R|W|F OFFSET LENGTH`, offset and length in bytes; `#` begins a comment.

use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_exec::Spawner;

use super::{IoRequest, Operation, Outcome, carry_out};
use crate::error::LabError;
use crate::target::Target;

/// Most requests of a trace.
const REQUESTS_MAX: usize = 10_000_000;

/// Reads a trace for a target of `size_bytes`: (start in nanoseconds, request), ascending.
///
/// # Errors
/// `Usage` with the line that does not fit.
pub fn parse(text: &str, size_bytes: u64) -> Result<Vec<(u64, IoRequest)>, LabError> {
    let mut all: Vec<(u64, IoRequest)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let told = |what: &str| LabError::Usage(format!("trace line {}: {what}", index + 1));
        let [seconds, operation, offset, length] = words[..] else {
            return Err(told("four words are wanted: SECONDS R|W|F OFFSET LENGTH"));
        };
        let seconds: f64 = seconds.parse().map_err(|_| told("the time is no number"))?;
        if !(0.0..1e9).contains(&seconds) {
            return Err(told("the time is not 0 to 10^9 seconds"));
        }
        let operation = match operation {
            "R" => Operation::Read,
            "W" => Operation::Write,
            "F" => Operation::Flush,
            _ => return Err(told("the operation is not R, W or F")),
        };
        let offset_bytes: u64 = offset
            .parse()
            .map_err(|_| told("the offset is no number"))?;
        let length_bytes: u64 = length
            .parse()
            .map_err(|_| told("the length is no number"))?;
        let end = offset_bytes.checked_add(length_bytes);
        if end.is_none_or(|end| end > size_bytes) {
            return Err(told("the request does not lie in the volume"));
        }
        if !offset_bytes.is_multiple_of(512) || !length_bytes.is_multiple_of(512) {
            return Err(told("offset and length are not whole sectors of 512 bytes"));
        }
        let at_ns = (seconds * 1e9) as u64;
        if all.last().is_some_and(|(before, _)| *before > at_ns) {
            return Err(told("it starts before the one above"));
        }
        if all.len() == REQUESTS_MAX {
            return Err(told("too many requests"));
        }
        all.push((
            at_ns,
            IoRequest {
                operation,
                offset_bytes,
                length_bytes,
                think_ns: 0,
            },
        ));
    }
    Ok(all)
}

/// Replays it.
///
/// # Errors
/// The first request that failed.
pub async fn replay(
    spawner: &Spawner,
    target: &Target,
    trace: Vec<(u64, IoRequest)>,
) -> Result<Outcome, LabError> {
    drop(target.take_traffic());
    let started = target.now_ns();
    let mut running = Vec::new();
    for (at_ns, request) in trace {
        let due = started + at_ns;
        let wait = due.saturating_sub(target.now_ns());
        if wait > 0 {
            target.clock().sleep(Duration::from_nanos(wait)).await;
        }
        let target = target.clone();
        running.push(spawner.spawn(async move { carry_out(&target, request).await }));
    }
    for handle in running {
        handle
            .await
            .map_err(|_| LabError::Bug("a request ended early".to_owned()))??;
    }
    Ok(Outcome {
        elapsed_ns: target.now_ns() - started,
        traffic: target.take_traffic(),
        process_bytes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_in_order_and_refused_by_line() {
        let trace = parse(
            "# head\n0 R 0 4096\n0.5 W 8192 512 # w\n0.5 F 0 0\n",
            1 << 20,
        )
        .unwrap();
        assert_eq!(trace[1], (500_000_000, IoRequest::write(8192, 512)));
        assert_eq!(trace.len(), 3);
        for bad in [
            "0 X 0 512",
            "0 R 0",
            "0 R 1048576 512",
            "0 R 3 512",
            "x R 0 512",
            "1 R 0 512\n0 R 0 512",
        ] {
            let error = parse(bad, 1 << 20).unwrap_err().to_string();
            assert!(error.starts_with("trace line"), "{bad}: {error}");
        }
    }
}
