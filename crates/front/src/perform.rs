//! Carrying requests out: each worker takes a job, calls the export and hands over the answer.
//!
//! Workers live as long as the session; one takes one job after the other. The server polls each only when it was
//! woken (`parts.rs`): many requests run at the same time without a spawned task, and without an allocation, for each.
//!
//! Invariants:
//! - each job is answered once;
//! - nothing of a client that is fenced reaches the export: it is looked at before each call, and between the slices
//!   of a long range;
//! - what reaches the export is counted here, once, where the export has counters; each slice counts by itself;
//! - a read gives exactly what was asked for, or an error; extents are fit for any protocol.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::task::Poll;

use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError};
use plexum_block::wait::yield_once;

use crate::client::Client;
use crate::counted::Asked;
use crate::export::{Export, Extent, ZeroRequest};
use crate::requests::Tag;

/// Ranges longer than this are trimmed, zeroed and cached in several calls.
const SLICE_BYTES: u64 = 64 << 20;

/// What an export can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read,
    /// Write.
    Write(Fua),
    /// Make answered writes durable.
    Flush,
    /// Give space back.
    Trim(Fua),
    /// Write zeroes.
    Zero(ZeroRequest),
    /// Read ahead.
    Cache,
    /// Allocation status.
    Status {
        /// Most extents of the answer; at least one.
        extents_max: usize,
    },
}

/// One request that may run.
pub struct Job<K> {
    /// What the server needs to answer it.
    pub key: K,
    /// What is wanted.
    pub command: Command,
    /// Where.
    pub offset_bytes: u64,
    /// How long; 0 of a flush.
    pub length_bytes: u64,
    /// Of writes.
    pub data: Option<Buf>,
    /// Its place among the requests under way.
    pub tag: Tag,
}

impl<K> Job<K> {
    fn performed(self, result: Result<Outcome, IoError>) -> Performed<K> {
        Performed {
            key: self.key,
            command: self.command,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            result,
            tag: self.tag,
        }
    }
}

/// What a request came to.
#[derive(Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// What was read.
    Data(Rope),
    /// Allocation status.
    Extents(Vec<Extent>),
}

/// A request that was carried out, or not. The tag is to be dropped when the answer was sent.
pub struct Performed<K> {
    /// As in the job.
    pub key: K,
    /// As in the job.
    pub command: Command,
    /// As in the job.
    pub offset_bytes: u64,
    /// As in the job.
    pub length_bytes: u64,
    /// What it came to.
    pub result: Result<Outcome, IoError>,
    /// As in the job.
    pub tag: Tag,
}

struct Desks<K> {
    /// A job for each worker, taken by it when it is polled.
    jobs: Vec<Option<Job<K>>>,
    idle: Vec<usize>,
}

/// The workers of one client's session.
pub struct Performer<'a, E, K> {
    export: &'a E,
    client: &'a Client,
    desks: RefCell<Desks<K>>,
    is_unwanted: Cell<bool>,
}

impl<'a, E: Export, K> Performer<'a, E, K> {
    /// Nobody works yet.
    #[must_use]
    pub fn new(export: &'a E, client: &'a Client) -> Self {
        Self {
            export,
            client,
            desks: RefCell::new(Desks {
                jobs: Vec::new(),
                idle: Vec::new(),
            }),
            is_unwanted: Cell::new(false),
        }
    }

    /// Lays a job on the desk of a worker that is idle, and says which one is to be polled. Numbers of workers rise by
    /// one from 0.
    #[must_use]
    pub fn start(&self, job: Job<K>) -> usize {
        let mut desks = self.desks.borrow_mut();
        let worker = desks.idle.pop().unwrap_or_else(|| {
            desks.jobs.push(None);
            desks.jobs.len() - 1
        });
        assert!(desks.jobs[worker].is_none(), "an idle worker has no job");
        desks.jobs[worker] = Some(job);
        worker
    }

    /// Whether every worker is idle.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let desks = self.desks.borrow();
        desks.idle.len() == desks.jobs.len()
    }

    /// Nobody waits for answers any more: long work ends early.
    pub fn give_up(&self) {
        self.is_unwanted.set(true);
    }

    /// The life of `worker`. Polled when it was given a job or its export has news; other polls change nothing.
    pub async fn work(&self, worker: usize, answer: impl Fn(Performed<K>)) -> Infallible {
        loop {
            let mut job = poll_fn(|_| match self.desks.borrow_mut().jobs[worker].take() {
                Some(job) => Poll::Ready(job),
                None => Poll::Pending,
            })
            .await;
            let with_export = self.client.requests().enter_export();
            let result = self.execute(&mut job).await;
            drop(with_export);
            self.desks.borrow_mut().idle.push(worker);
            answer(job.performed(result));
        }
    }

    /// Carries out a job of a server whose requests have parts of their own, such as the tags of a queue.
    pub async fn carry_out(&self, mut job: Job<K>) -> Performed<K> {
        let with_export = self.client.requests().enter_export();
        let result = self.execute(&mut job).await;
        drop(with_export);
        job.performed(result)
    }

    /// Carries one job out.
    async fn execute(&self, job: &mut Job<K>) -> Result<Outcome, IoError> {
        let (offset_bytes, length_bytes) = (job.offset_bytes, job.length_bytes);
        let range = (offset_bytes, length_bytes);
        self.check_wanted()?;
        match job.command {
            Command::Flush => {
                let flushed = self.export.flush().await;
                if let Some(counting) = self.export.counting() {
                    counting.flushed(&flushed);
                }
                flushed?;
            }
            // Nothing to do, and nothing an export has to be ready for.
            _ if length_bytes == 0 => {}
            Command::Read => return self.read(range).await,
            Command::Write(fua) => {
                let data = job.data.take();
                let data = data.expect("a write was admitted with its payload");
                let asked = self.begin(range);
                let written = self.export.write(offset_bytes, data, fua).await;
                if let Some(asked) = asked {
                    asked.written(&written);
                }
                written?;
            }
            Command::Trim(fua) => self.trim(range, fua).await?,
            Command::Zero(how) => self.zero(range, how).await?,
            Command::Cache => {
                for (offset, length) in Slices::of(range) {
                    match self.export.cache(offset, length).await {
                        Ok(()) => {}
                        Err(IoError::Unsupported) => break, // a hint
                        Err(error) => return Err(error),
                    }
                    self.breathe().await?;
                }
            }
            Command::Status { extents_max } => {
                let export = self.export;
                let found = export.status(offset_bytes, length_bytes, extents_max);
                let extents = fit_extents(found.await?, length_bytes, extents_max);
                return Ok(Outcome::Extents(extents));
            }
        }
        Ok(Outcome::Done)
    }

    /// A read or write reaches the export; it is counted where somebody counts.
    fn begin(&self, range: (u64, u64)) -> Option<Asked<'_, impl Clock>> {
        self.export.counting().map(|counting| counting.begin(range))
    }

    async fn read(&self, range: (u64, u64)) -> Result<Outcome, IoError> {
        let (offset_bytes, length_bytes) = range;
        let length = u32::try_from(length_bytes).map_err(|_| IoError::OutOfRange)?;
        let asked = self.begin(range);
        let read = self.export.read(offset_bytes, length).await;
        if let Some(asked) = asked {
            asked.read(&read);
        }
        let rope = read?;
        if rope.length_bytes() as u64 != length_bytes {
            return Err(IoError::Failed); // an error is an answer, a short read would be none
        }
        Ok(Outcome::Data(rope))
    }

    async fn trim(&self, range: (u64, u64), fua: Fua) -> Result<(), IoError> {
        for slice in Slices::of(range) {
            let asked = self.begin(slice);
            let trimmed = self.export.trim(slice.0, slice.1, fua).await;
            if let Some(asked) = asked {
                asked.written(&trimmed);
            }
            match trimmed {
                Ok(()) | Err(IoError::Unsupported) => {} // a hint
                Err(error) => return Err(error),
            }
            self.breathe().await?;
        }
        Ok(())
    }

    async fn zero(&self, range: (u64, u64), mut how: ZeroRequest) -> Result<(), IoError> {
        for slice in Slices::of(range) {
            let asked = self.begin(slice);
            let zeroed = self.export.zero(slice.0, slice.1, how).await;
            match asked {
                Some(asked) if how.only_if_fast && zeroed == Err(IoError::Unsupported) => {
                    asked.refused();
                }
                Some(asked) => asked.written(&zeroed),
                None => {}
            }
            zeroed?;
            // "Not fast" may only be said while nothing has changed.
            how.only_if_fast = false;
            self.breathe().await?;
        }
        Ok(())
    }

    /// Lets the other parts run between two slices; an error when nothing more may be done, or nobody waits for it.
    async fn breathe(&self) -> Result<(), IoError> {
        if self.is_unwanted.get() {
            return Err(IoError::Failed);
        }
        yield_once().await;
        self.check_wanted()
    }

    fn check_wanted(&self) -> Result<(), IoError> {
        match self.client.is_fenced() {
            true => Err(IoError::Gone),
            false => Ok(()),
        }
    }
}

/// A range cut into slices.
struct Slices {
    offset_bytes: u64,
    left_bytes: u64,
}

impl Slices {
    fn of((offset_bytes, length_bytes): (u64, u64)) -> Self {
        Self {
            offset_bytes,
            left_bytes: length_bytes,
        }
    }
}

impl Iterator for Slices {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        if self.left_bytes == 0 {
            return None;
        }
        // Slices end at multiples of their size, so that every one but the first and last is aligned to any row.
        let to_border = SLICE_BYTES - self.offset_bytes % SLICE_BYTES;
        let slice = (self.offset_bytes, self.left_bytes.min(to_border));
        self.offset_bytes += slice.1; // stays inside the export, whose size is 64 bits
        self.left_bytes -= slice.1;
        Some(slice)
    }
}

/// Makes an export's extents fit for an answer: none empty, none behind the range, at least one, neighbours merged.
fn fit_extents(found: Vec<Extent>, length_bytes: u64, extents_max: usize) -> Vec<Extent> {
    let mut fitted: Vec<Extent> = Vec::with_capacity(found.len().min(extents_max));
    let mut left_bytes = length_bytes;
    for mut extent in found {
        extent.length_bytes = extent.length_bytes.min(left_bytes);
        if extent.length_bytes == 0 {
            continue;
        }
        left_bytes -= extent.length_bytes;
        let is_full = fitted.len() == extents_max;
        match fitted.last_mut() {
            Some(last) if (last.is_hole, last.is_zero) == (extent.is_hole, extent.is_zero) => {
                last.length_bytes += extent.length_bytes; // the sum is at most the range
            }
            _ if is_full => break,
            _ => fitted.push(extent),
        }
    }
    if fitted.is_empty() {
        fitted.push(Extent {
            length_bytes,
            is_hole: false,
            is_zero: false,
        });
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(length_bytes: u64, is_zero: bool) -> Extent {
        Extent {
            length_bytes,
            is_hole: is_zero,
            is_zero,
        }
    }

    #[test]
    fn slices_cover_a_range_once_and_end_at_their_borders() {
        for (offset, length) in [
            (0, 1),
            (5, u64::from(u32::MAX)),
            (SLICE_BYTES - 1, 2),
            (u64::MAX - 5, 5),
            (7, 0),
        ] {
            let mut at = offset;
            for (start, slice_bytes) in Slices::of((offset, length)) {
                assert_eq!(start, at);
                assert!(slice_bytes > 0 && slice_bytes <= SLICE_BYTES);
                at += slice_bytes;
                assert!(at == offset + length || at.is_multiple_of(SLICE_BYTES));
            }
            assert_eq!(at, offset + length);
        }
    }

    #[test]
    fn extents_of_a_careless_export_still_make_a_legal_answer() {
        assert_eq!(fit_extents(vec![], 9, 4), [extent(9, false)]);
        assert_eq!(fit_extents(vec![extent(0, true)], 9, 4), [extent(9, false)]);
        assert_eq!(
            fit_extents(vec![extent(u64::MAX, true)], 9, 1),
            [extent(9, true)]
        );
        let mixed = vec![
            extent(2, true),
            extent(3, true),
            extent(1, false),
            extent(8, true),
        ];
        assert_eq!(
            fit_extents(mixed.clone(), 9, 9),
            [extent(5, true), extent(1, false), extent(3, true)]
        );
        assert_eq!(fit_extents(mixed, 9, 1), [extent(5, true)]);
    }
}
