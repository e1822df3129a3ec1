//! Workloads as request streams, and the loop that runs them.
//!
//! Invariants:
//! - a workload is a list of processes, each a stream of requests that depends on its options and seed only;
//! - a process has at most `depth` requests under way and starts the next one when one ends.

pub mod bonnie;
pub mod dd;
pub mod files;
pub mod fio;
pub mod iozone;
pub mod jobs;
pub mod mixed;
pub mod rawio;
pub mod superblocks;
pub mod trace;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_block::device::Fua;
use plexum_exec::Spawner;

use crate::error::LabError;
use crate::target::{Target, Traffic};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Writes, durable when answered.
    WriteThrough,
    /// Makes all earlier writes durable.
    Flush,
}

/// One request of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoRequest {
    /// What.
    pub operation: Operation,
    /// Where.
    pub offset_bytes: u64,
    /// How long.
    pub length_bytes: u64,
    /// Pause before it, in virtual time.
    pub think_ns: u64,
}

impl IoRequest {
    /// A read without a pause.
    #[must_use]
    pub fn read(offset_bytes: u64, length_bytes: u64) -> Self {
        Self {
            operation: Operation::Read,
            offset_bytes,
            length_bytes,
            think_ns: 0,
        }
    }

    /// A write without a pause.
    #[must_use]
    pub fn write(offset_bytes: u64, length_bytes: u64) -> Self {
        Self {
            operation: Operation::Write,
            ..Self::read(offset_bytes, length_bytes)
        }
    }
}

/// A stream of requests.
pub type Stream = Box<dyn Iterator<Item = IoRequest> + Send>;

/// One process of a workload.
pub struct Process {
    /// Requests under way at most.
    pub depth: usize,
    /// Its requests.
    pub requests: Stream,
}

impl Process {
    /// One request at a time.
    #[must_use]
    pub fn single(requests: impl Iterator<Item = IoRequest> + Send + 'static) -> Self {
        Self {
            depth: 1,
            requests: Box::new(requests),
        }
    }
}

/// What a run gave.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// From the first request's start to the last one's end.
    pub elapsed_ns: u64,
    /// Latencies.
    pub traffic: Traffic,
    /// Bytes of each process.
    pub process_bytes: Vec<u64>,
}

impl Outcome {
    /// Adds a phase that ran after this one.
    pub fn add(&mut self, later: &Outcome) {
        self.elapsed_ns += later.elapsed_ns;
        self.traffic.merge(&later.traffic);
        self.process_bytes.clone_from(&later.process_bytes);
    }

    /// Adds what ran at the same time.
    pub fn add_beside(&mut self, other: &Outcome) {
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.traffic.merge(&other.traffic);
        self.process_bytes.extend(&other.process_bytes);
    }

    /// Seconds it took.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.elapsed_ns as f64 / 1e9).max(1e-12)
    }

    /// Bytes a second, reads and writes together.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        (self.traffic.reads.bytes() + self.traffic.writes.bytes()) as f64 / self.seconds()
    }

    /// Reads and writes a second.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        (self.traffic.reads.count() + self.traffic.writes.count()) as f64 / self.seconds()
    }

    /// Jain's index over the processes: 1 = all got the same, 1/n = one got everything.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        let sum: f64 = self.process_bytes.iter().map(|bytes| *bytes as f64).sum();
        let squares: f64 = self
            .process_bytes
            .iter()
            .map(|bytes| (*bytes as f64).powi(2))
            .sum();
        if squares == 0.0 {
            return 1.0;
        }
        sum * sum / (self.process_bytes.len() as f64 * squares)
    }
}

/// One request on the target.
pub(crate) async fn carry_out(target: &Target, request: IoRequest) -> Result<(), LabError> {
    if request.think_ns > 0 {
        target
            .clock()
            .sleep(Duration::from_nanos(request.think_ns))
            .await;
    }
    let (at, length) = (request.offset_bytes, request.length_bytes);
    let result = match request.operation {
        Operation::Read => target.read(at, length).await,
        Operation::Write => target.write(at, length, Fua::No).await,
        Operation::WriteThrough => target.write(at, length, Fua::Yes).await,
        Operation::Flush => target.flush().await,
    };
    result.map_err(|error| {
        LabError::Io(format!(
            "{:?} of {length} bytes at byte {at}: {error}",
            request.operation
        ))
    })
}

/// Runs all processes until their streams end or, when `limit_ns` is given, no request starts after that time.
///
/// # Errors
/// The first request that failed.
pub async fn run_processes(
    spawner: &Spawner,
    target: &Target,
    processes: Vec<Process>,
    limit_ns: Option<u64>,
) -> Result<Outcome, LabError> {
    drop(target.take_traffic());
    let started = target.now_ns();
    let until = limit_ns.map(|limit| started.saturating_add(limit));
    let mut workers = Vec::new();
    let mut bytes = Vec::new();
    for process in processes {
        let stream = Rc::new(RefCell::new(process.requests));
        let moved = Rc::new(Cell::new(0u64));
        bytes.push(Rc::clone(&moved));
        for _ in 0..process.depth.max(1) {
            let (stream, target, moved) = (Rc::clone(&stream), target.clone(), Rc::clone(&moved));
            workers.push(spawner.spawn(async move {
                while until.is_none_or(|until| target.now_ns() < until) {
                    let Some(request) = stream.borrow_mut().next() else {
                        break;
                    };
                    carry_out(&target, request).await?;
                    moved.set(moved.get() + request.length_bytes);
                }
                Ok::<(), LabError>(())
            }));
        }
    }
    for worker in workers {
        worker
            .await
            .map_err(|_| LabError::Bug("a worker ended early".to_owned()))??;
    }
    Ok(Outcome {
        elapsed_ns: target.now_ns() - started,
        traffic: target.take_traffic(),
        process_bytes: bytes.iter().map(|bytes| bytes.get()).collect(),
    })
}

/// Runs several sets of processes at the same time, each on a target of its own, which counts for it.
///
/// # Errors
/// As `run_processes`.
pub async fn run_together(
    spawner: &Spawner,
    parts: Vec<(Target, Vec<Process>)>,
    limit_ns: Option<u64>,
) -> Result<Vec<Outcome>, LabError> {
    let mut running = Vec::new();
    for (target, processes) in parts {
        let inside = spawner.clone();
        let part = async move { run_processes(&inside, &target, processes, limit_ns).await };
        running.push(spawner.spawn(part));
    }
    let mut outcomes = Vec::new();
    for part in running {
        let ended = part.await;
        outcomes.push(ended.map_err(|_| LabError::Bug("a part ended early".to_owned()))??);
    }
    Ok(outcomes)
}
