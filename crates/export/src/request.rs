//! One request of the kernel, from the FUSE thread that received it to the volume and back.

use plexum_block::buf::{Buf, Rope};
use plexum_block::device::{Fua, IoError};
use plexum_front::export::{Export, ZeroRequest};

/// What the kernel asks for. Ranges lie inside the volume; they need not be aligned to its blocks.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Read a range.
    Read {
        /// Where it begins.
        offset_bytes: u64,
        /// How long it is.
        length_bytes: u32,
    },
    /// Write data.
    Write {
        /// Where they go.
        offset_bytes: u64,
        /// The data.
        data: Buf,
    },
    /// Make everything that was answered durable.
    Flush,
    /// Make a range read as zeroes; its space may be given back.
    Zero {
        /// Where it begins.
        offset_bytes: u64,
        /// How long it is.
        length_bytes: u64,
    },
}

/// The end of a request: what was read (nothing for other operations), or why not.
pub type Answer = Result<Rope, IoError>;

/// An operation and the way its answer takes. Dropping it answers EIO.
pub struct VolumeRequest {
    operation: Operation,
    reply: Box<dyn FnOnce(Answer) + Send>,
}

impl VolumeRequest {
    /// A request whose answer goes to `reply`.
    pub fn new(operation: Operation, reply: impl FnOnce(Answer) + Send + 'static) -> Self {
        Self {
            operation,
            reply: Box::new(reply),
        }
    }

    /// What it asks for.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Answers it.
    pub fn answer(self, answer: Answer) {
        (self.reply)(answer);
    }

    /// Carries it out and answers it.
    pub async fn run(self, export: &impl Export) {
        let answer = perform(export, self.operation).await;
        (self.reply)(answer);
    }
}

/// Carries out one operation.
///
/// # Errors
/// Those of the export; `OutOfRange` for writes and zeroes that are not aligned to its blocks, as direct I/O on a
/// block device answers them.
pub async fn perform(export: &impl Export, operation: Operation) -> Answer {
    match operation {
        Operation::Read {
            offset_bytes,
            length_bytes,
        } => read(export, offset_bytes, length_bytes).await,
        Operation::Write { offset_bytes, data } => {
            check_aligned(export, offset_bytes, data.len() as u64)?;
            export.write(offset_bytes, data, Fua::No).await?;
            Ok(Rope::default())
        }
        Operation::Flush => {
            // A read-only volume has nothing to make durable, and its server may offer no flush.
            if !export.info().is_read_only {
                export.flush().await?;
            }
            Ok(Rope::default())
        }
        Operation::Zero {
            offset_bytes,
            length_bytes,
        } => {
            check_aligned(export, offset_bytes, length_bytes)?;
            let how = ZeroRequest {
                fua: Fua::No,
                may_unmap: true,
                only_if_fast: false,
            };
            export.zero(offset_bytes, length_bytes, how).await?;
            Ok(Rope::default())
        }
    }
}

fn check_aligned(
    export: &impl Export,
    offset_bytes: u64,
    length_bytes: u64,
) -> Result<(), IoError> {
    let unit = u64::from(export.info().block_bytes_min);
    if offset_bytes.is_multiple_of(unit) && length_bytes.is_multiple_of(unit) {
        Ok(())
    } else {
        Err(IoError::OutOfRange)
    }
}

/// Reads whole blocks and cuts off what was not asked for.
async fn read(export: &impl Export, offset_bytes: u64, length_bytes: u32) -> Answer {
    let unit = u64::from(export.info().block_bytes_min);
    let before = offset_bytes % unit;
    let end = offset_bytes
        .checked_add(u64::from(length_bytes))
        .and_then(|end| end.checked_next_multiple_of(unit))
        .ok_or(IoError::OutOfRange)?;
    let start = offset_bytes - before;
    let whole_bytes = u32::try_from(end - start).map_err(|_| IoError::OutOfRange)?;
    let rope = export.read(start, whole_bytes).await?;
    if whole_bytes == length_bytes {
        return Ok(rope);
    }
    let before = usize::try_from(before).map_err(|_| IoError::OutOfRange)?;
    let length = usize::try_from(length_bytes).map_err(|_| IoError::OutOfRange)?;
    Ok(cut(&rope, before, length))
}

/// The part of `rope` of `length` bytes that begins at byte `skip`.
fn cut(rope: &Rope, mut skip: usize, mut length: usize) -> Rope {
    let mut part = Rope::default();
    for piece in &rope.pieces {
        let from = skip.min(piece.len());
        let to = (from + length.min(piece.len())).min(piece.len());
        skip -= from;
        length -= to - from;
        if to > from {
            part.pieces.push(piece.slice(from..to));
        }
    }
    part
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use plexum_block::buf::BufPool;
    use plexum_exec::{Executor, Fifo};
    use plexum_front::testing::{self as seen, MemoryExport};
    use std::rc::Rc;
    use std::sync::{Arc, Mutex};

    /// Runs one operation to its end.
    fn run(export: &Rc<MemoryExport>, operation: Operation) -> Result<Vec<u8>, IoError> {
        let mut executor = Executor::new(Fifo);
        let result = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&result);
        let request = VolumeRequest::new(operation, move |answer| {
            *seen.lock().unwrap() = Some(answer.map(|rope| rope.to_vec()));
        });
        let export = Rc::clone(export);
        let _detached = executor.spawn(async move { request.run(&*export).await });
        while executor.poll_one() {}
        let answer = result.lock().unwrap().take();
        answer.expect("answered once")
    }

    fn write(offset_bytes: u64, bytes: &[u8]) -> Operation {
        let data = BufPool::new(0).copy_of(bytes).freeze();
        Operation::Write { offset_bytes, data }
    }

    #[test]
    fn every_range_inside_of_three_blocks_reads_what_was_written() {
        let export = Rc::new(MemoryExport::new("v", 8192, |_| {}));
        let content: Vec<u8> = (0..1536_u32).map(|n| (n % 251) as u8 + 1).collect();
        run(&export, write(512, &content)).unwrap();
        for start in (0..1536).step_by(37) {
            for length in (1..=1536 - start).step_by(41) {
                let read = Operation::Read {
                    offset_bytes: 512 + start as u64,
                    length_bytes: length as u32,
                };
                assert_eq!(run(&export, read).unwrap(), content[start..start + length]);
            }
        }
    }

    #[test]
    fn writes_and_zeroes_must_be_aligned() {
        let export = Rc::new(MemoryExport::new("v", 8192, |_| {}));
        let zero = |offset_bytes, length_bytes| Operation::Zero {
            offset_bytes,
            length_bytes,
        };
        for operation in [
            write(1, &[1; 512]),
            write(512, &[1; 100]),
            zero(7, 512),
            zero(0, 5),
        ] {
            assert_eq!(run(&export, operation), Err(IoError::OutOfRange));
        }
        assert!(export.take_log().is_empty());
    }

    #[test]
    fn a_hole_is_zeroes_and_never_a_mere_hint() {
        let export = Rc::new(MemoryExport::new("v", 8192, |_| {}));
        let operation = Operation::Zero {
            offset_bytes: 512,
            length_bytes: 1024,
        };
        run(&export, operation).unwrap();
        let how = ZeroRequest {
            fua: Fua::No,
            may_unmap: true,
            only_if_fast: false,
        };
        assert_eq!(export.take_log(), [seen::Operation::Zero(512, 1024, how)]);
    }

    #[test]
    fn a_flush_reaches_the_volume_unless_it_is_read_only() {
        let export = Rc::new(MemoryExport::new("v", 8192, |_| {}));
        run(&export, Operation::Flush).unwrap();
        assert_eq!(export.take_log(), [seen::Operation::Flush]);
        let export = Rc::new(MemoryExport::new("v", 8192, |info| {
            info.is_read_only = true
        }));
        run(&export, Operation::Flush).unwrap();
        assert!(export.take_log().is_empty());
    }
}
