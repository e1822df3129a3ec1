//! Runs processes on a file: one thread for each request that may be under way.

use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::file::FilePlace;
use super::{Actor, Timed, interrupt};
use crate::error::LabError;
use crate::target::Traffic;
use crate::workload::{IoRequest, Operation, Outcome};

/// From the first start to the last end. Whoever waits for the threads may be scheduled long after they began, so that
/// it cannot tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    ends: Option<(Instant, Instant)>,
}

impl Span {
    /// Takes in one thread's time.
    pub(crate) fn add(&mut self, started: Instant, ended: Instant) {
        self.ends = Some(match self.ends {
            None => (started, ended),
            Some((first, last)) => (first.min(started), last.max(ended)),
        });
    }

    /// How long it is.
    pub(crate) fn length(&self) -> Duration {
        let length = self.ends.map(|(first, last)| last.duration_since(first));
        length.unwrap_or_default()
    }
}

/// What one lane did.
struct Done {
    traffic: Traffic,
    bytes: u64,
    started: Instant,
    ended: Instant,
}

type Shared = Mutex<Box<dyn Iterator<Item = Timed> + Send>>;

/// Runs them until their requests end, or none starts after `limit`.
pub(super) fn run(
    place: &FilePlace,
    actors: Vec<Actor>,
    limit: Option<Duration>,
) -> Result<Outcome, LabError> {
    let streams: Vec<(usize, Shared)> = actors
        .into_iter()
        .map(|actor| (actor.depth, Mutex::new(actor.requests)))
        .collect();
    let lanes: usize = streams.iter().map(|(depth, _)| depth).sum();
    let start = Barrier::new(lanes + 1);
    std::thread::scope(|scope| {
        let (mut threads, mut number) = (Vec::new(), 0);
        for (process, (depth, stream)) in streams.iter().enumerate() {
            for _ in 0..*depth {
                let start = &start;
                number += 1;
                let work = move || work(place, stream, limit, start, number);
                threads.push((process, scope.spawn(work)));
            }
        }
        start.wait();
        let mut span = Span::default();
        let mut outcome = Outcome {
            process_bytes: vec![0; streams.len()],
            ..Outcome::default()
        };
        let mut first_error = None;
        for (process, thread) in threads {
            let died = |_| LabError::Bug("a process of the workload died".to_owned());
            match thread.join().map_err(died).flatten() {
                Ok(done) => {
                    outcome.traffic.merge(&done.traffic);
                    outcome.process_bytes[process] += done.bytes;
                    span.add(done.started, done.ended);
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        outcome.elapsed_ns = u64::try_from(span.length().as_nanos()).unwrap_or(u64::MAX);
        first_error.map_or(Ok(outcome), Err)
    })
}

fn work(
    place: &FilePlace,
    stream: &Shared,
    limit: Option<Duration>,
    start: &Barrier,
    number: u64,
) -> Result<Done, LabError> {
    let mut lane = place.lane(number);
    start.wait();
    let started = Instant::now();
    let (mut traffic, mut bytes) = (Traffic::default(), 0);
    while limit.is_none_or(|limit| started.elapsed() < limit) {
        interrupt::check()?;
        let next = stream.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((at_ns, request)) = next else {
            break;
        };
        std::thread::sleep(pause(at_ns, &request, started.elapsed()));
        let began = Instant::now();
        lane.carry_out(&request)?;
        note(&mut traffic, &request, began.elapsed());
        bytes += request.length_bytes;
    }
    Ok(Done {
        traffic,
        bytes,
        started,
        ended: Instant::now(),
    })
}

/// How long a request waits before it goes out.
pub(super) fn pause(at_ns: Option<u64>, request: &IoRequest, now: Duration) -> Duration {
    let due = Duration::from_nanos(at_ns.unwrap_or(0)).saturating_sub(now);
    due + Duration::from_nanos(request.think_ns)
}

/// Counts a request that has ended.
pub(super) fn note(traffic: &mut Traffic, request: &IoRequest, took: Duration) {
    let latencies = match request.operation {
        Operation::Read => &mut traffic.reads,
        Operation::Write | Operation::WriteThrough => &mut traffic.writes,
        Operation::Flush => &mut traffic.flushes,
    };
    latencies.add(took, request.length_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_from_the_first_start_to_the_last_end() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let mut span = Span::default();
        assert_eq!(span.length(), Duration::ZERO);
        for (started, ended) in [(20, 50), (10, 30), (15, 70)] {
            span.add(at(started), at(ended));
        }
        assert_eq!(span.length(), Duration::from_millis(60));
    }
}
