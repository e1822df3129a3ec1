//! Executing: each worker takes a job, calls the export and leaves the answer in the outbox.

use std::convert::Infallible;
use std::future::poll_fn;
use std::task::Poll;

use plexum_block::buf::Rope;
use plexum_block::clock::Clock;
use plexum_block::device::IoError;
use plexum_block::wait::yield_once;

use super::judge::Command;
use super::{Answer, Body, Job, Session, Tag};
use crate::export::{Export, Extent, ZeroRequest};
use crate::transport::Transport;
use crate::wire::Errno;

/// Ranges longer than this are trimmed, zeroed and cached in several calls.
const SLICE_BYTES: u64 = 64 << 20;
/// Most extents of one answer: 32 KiB of an ordinary answer, 64 KiB of an extended one.
const EXTENTS_MAX: usize = 4096;
/// Memory in bytes that a status request is reckoned with.
pub(super) const STATUS_BYTES: u64 = (EXTENTS_MAX * size_of::<Extent>()) as u64;

impl<T: Transport, E: Export, C: Clock> Session<'_, T, E, C> {
    /// The life of worker `desk`. Polled when it was given a job or its export has news; other polls change nothing.
    pub(super) async fn work(&self, desk: usize) -> Infallible {
        loop {
            let job = poll_fn(|_| match self.shared.borrow_mut().desks[desk].take() {
                Some(job) => Poll::Ready(job),
                None => Poll::Pending,
            })
            .await;
            self.serve_one(job).await;
            let mut shared = self.shared.borrow_mut();
            shared.running -= 1;
            shared.idle.push(desk);
        }
    }

    async fn serve_one(&self, mut job: Job) {
        let done = self.execute(&mut job).await;
        self.answer_executed(job.cookie, job.offset_bytes, job.command, done, job.tag);
    }

    /// Leaves the answer to an executed request in the outbox.
    fn answer_executed(
        &self,
        cookie: u64,
        offset_bytes: u64,
        command: Command,
        done: Result<Body, IoError>,
        tag: Tag,
    ) {
        let answers_fast_zero = matches!(
            command,
            Command::Zero(ZeroRequest {
                only_if_fast: true,
                ..
            })
        );
        let body = done.map_err(|error| {
            let errno = Errno::from_io(error, answers_fast_zero);
            (errno, words(error))
        });
        self.answer(Answer {
            cookie,
            offset_bytes,
            is_read: command == Command::Read,
            is_status: matches!(command, Command::Status { .. }),
            body,
            tag,
        });
    }

    /// What a read of `length_bytes` is answered with, and counts.
    fn read_body(&self, rope: Rope, length_bytes: u64) -> Result<Body, IoError> {
        if rope.length_bytes() as u64 != length_bytes {
            return Err(IoError::Failed); // an error is an answer, a short read would be none
        }
        self.shared.borrow_mut().counts.read_bytes += length_bytes;
        Ok(Body::Data(rope))
    }

    /// What a write of `length_bytes` that succeeded is answered with, and counts.
    fn write_body(&self, length_bytes: u64) -> Body {
        self.shared.borrow_mut().counts.written_bytes += length_bytes;
        Body::Nothing
    }

    async fn execute(&self, job: &mut Job) -> Result<Body, IoError> {
        let (offset_bytes, length_bytes) = (job.offset_bytes, job.length_bytes);
        match job.command {
            Command::Flush => self.export.flush().await?,
            // Nothing to do, and nothing an export has to be ready for.
            _ if length_bytes == 0 => {}
            Command::Read => return self.read(offset_bytes, length_bytes).await,
            Command::Write(fua) => {
                let data = job
                    .data
                    .take()
                    .expect("a write was admitted with its payload");
                let written_bytes = data.len() as u64;
                self.export.write(offset_bytes, data, fua).await?;
                return Ok(self.write_body(written_bytes));
            }
            Command::Trim(fua) => {
                for (offset, length) in Slices::new(offset_bytes, length_bytes) {
                    match self.export.trim(offset, length, fua).await {
                        Ok(()) | Err(IoError::Unsupported) => {} // a hint
                        Err(error) => return Err(error),
                    }
                    self.breathe().await?;
                }
            }
            Command::Zero(how) => self.zero(offset_bytes, length_bytes, how).await?,
            Command::Cache => {
                for (offset, length) in Slices::new(offset_bytes, length_bytes) {
                    match self.export.cache(offset, length).await {
                        Ok(()) => {}
                        Err(IoError::Unsupported) => break, // a hint
                        Err(error) => return Err(error),
                    }
                    self.breathe().await?;
                }
            }
            Command::Status { wants_one } => {
                let extents_max = if wants_one { 1 } else { EXTENTS_MAX };
                let found = self
                    .export
                    .status(offset_bytes, length_bytes, extents_max)
                    .await?;
                return Ok(Body::Extents(fit_extents(found, length_bytes, extents_max)));
            }
        }
        Ok(Body::Nothing)
    }

    async fn read(&self, offset_bytes: u64, length_bytes: u64) -> Result<Body, IoError> {
        let length = u32::try_from(length_bytes).map_err(|_| IoError::OutOfRange)?;
        let rope = self.export.read(offset_bytes, length).await?;
        self.read_body(rope, length_bytes)
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mut how: ZeroRequest,
    ) -> Result<(), IoError> {
        for (offset, length) in Slices::new(offset_bytes, length_bytes) {
            self.export.zero(offset, length, how).await?;
            // "Not fast" may only be said while nothing has changed.
            how.only_if_fast = false;
            self.breathe().await?;
        }
        Ok(())
    }

    /// Lets the other parts run between two slices; an error when nobody waits for the answer any more.
    async fn breathe(&self) -> Result<(), IoError> {
        if self.is_cut.get() {
            return Err(IoError::Failed);
        }
        yield_once().await;
        Ok(())
    }
}

/// Words for people about an error of the engine; what exactly failed stays in the server's log.
fn words(error: IoError) -> &'static str {
    match error {
        IoError::NoSpace => "no space is left under the volume",
        IoError::ReadOnly => "the volume is read-only",
        IoError::Unsupported => "not faster than writing zeroes",
        IoError::OutOfRange => "the range is outside of the volume",
        IoError::Failed => "more members are lost than the volume survives",
        _ => "the volume cannot read or write this range",
    }
}

/// A range cut into slices.
struct Slices {
    offset_bytes: u64,
    left_bytes: u64,
}

impl Slices {
    fn new(offset_bytes: u64, length_bytes: u64) -> Self {
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
            for (start, slice_bytes) in Slices::new(offset, length) {
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
