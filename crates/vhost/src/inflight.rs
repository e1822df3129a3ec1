//! Requests under way, in memory that a front end keeps when this process dies: who comes next goes on from there.
//!
//! Source: QEMU's `docs/interop/vhost-user.rst`, "Inflight I/O tracking", split rings. Each queue has a region, which
//! begins at a multiple of 64 bytes; numbers are in the byte order of the machine:
//!
//! | byte | bytes | content |
//! |---|---|---|
//! | 0 | 8 | features, unused |
//! | 8 | 2 | version: 1, and 0 where nothing was written yet |
//! | 10 | 2 | descriptors |
//! | 12 | 2 | head of the last request that was given back |
//! | 14 | 2 | the used index, when that was complete |
//! | 16 | 16 each | of a head: 1 byte under way or not, 5 unused, 2 the head given back before it, 8 its turn |
//!
//! Invariants: a head is marked before its request is begun; it is told as the last one before the used index moves,
//! and its mark goes after that. So whenever this process dies, a head is marked, or was given back.

use plexum_front::memory::MemoryError;

use crate::config::{QUEUE_SIZE_MAX, QUEUES_MAX};
use crate::peer::Mapping;
use crate::wire::InflightArea;

const ALIGN_BYTES: usize = 64;
const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const VERSION: u16 = 1;

const VERSION_AT: usize = 8;
const SIZE_AT: usize = 10;
const LAST_AT: usize = 12;
const USED_AT: usize = 14;
const NEXT_AT: usize = 6;
const TURN_AT: usize = 8;

/// Why a record is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InflightError {
    /// More queues or descriptors than there can be, or none.
    #[error("a record of {queues} queues of {descriptors} descriptors is none")]
    BadShape {
        /// Queues.
        queues: u16,
        /// Descriptors of each.
        descriptors: u16,
    },
    /// It has less memory than its queues need.
    #[error("the record of requests under way has {found_bytes} bytes and needs {needed_bytes}")]
    TooShort {
        /// What there is.
        found_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },
    /// Another program has written it in another way.
    #[error(
        "the record of requests under way is of version {version}, for {descriptors} descriptors"
    )]
    Foreign {
        /// Its version.
        version: u16,
        /// Its descriptors.
        descriptors: u16,
    },
    /// It is gone, or shorter than it said.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// The size in bytes of a record.
///
/// # Errors
/// `BadShape`.
pub fn record_bytes(area: &InflightArea) -> Result<u64, InflightError> {
    let InflightArea {
        queues,
        descriptors,
        ..
    } = *area;
    let is_fine = (1..=QUEUES_MAX).contains(&queues) && (1..=QUEUE_SIZE_MAX).contains(&descriptors);
    match is_fine {
        true => Ok((region_bytes(descriptors) * usize::from(queues)) as u64),
        false => Err(InflightError::BadShape {
            queues,
            descriptors,
        }),
    }
}

fn region_bytes(descriptors: u16) -> usize {
    (HEAD_BYTES + ENTRY_BYTES * usize::from(descriptors)).next_multiple_of(ALIGN_BYTES)
}

/// The record of all queues.
pub struct Inflight<M> {
    memory: M,
    area: InflightArea,
}

/// What a record says of a queue when it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Heads that were under way, in the order in which they were begun.
    pub heads: Vec<u16>,
    /// The next turn.
    pub next_turn: u64,
}

impl<M: Mapping> Inflight<M> {
    /// The record in `memory`.
    ///
    /// # Errors
    /// `BadShape`, `TooShort`.
    pub fn new(memory: M, area: InflightArea) -> Result<Self, InflightError> {
        let needed_bytes = record_bytes(&area)?;
        let found_bytes = memory.length_bytes() as u64;
        match found_bytes >= needed_bytes {
            true => Ok(Self { memory, area }),
            false => Err(InflightError::TooShort {
                found_bytes,
                needed_bytes,
            }),
        }
    }

    /// Whether it has a place for a queue of `size` descriptors.
    #[must_use]
    pub fn covers(&self, (queue, size): (usize, usize)) -> bool {
        queue < usize::from(self.area.queues) && size <= usize::from(self.area.descriptors)
    }

    fn region(&self, queue: usize) -> usize {
        assert!(queue < usize::from(self.area.queues), "it was asked first");
        queue * region_bytes(self.area.descriptors)
    }

    fn entry(&self, queue: usize, head: u16) -> usize {
        assert!(head < self.area.descriptors, "it was asked first");
        self.region(queue) + HEAD_BYTES + ENTRY_BYTES * usize::from(head)
    }

    /// Takes over what an earlier session has left of a queue of `size` descriptors, whose used index is `used`.
    ///
    /// # Errors
    /// `Foreign`, `Memory`.
    pub fn take_over(&self, queue: usize, (size, used): (u16, u16)) -> Result<Left, InflightError> {
        let region = self.region(queue);
        let version = self.memory.load_u16(region + VERSION_AT)?;
        let known = self.memory.load_u16(region + SIZE_AT)?;
        match (version, known) {
            (0, _) => {
                self.memory
                    .store_u16(region + SIZE_AT, self.area.descriptors)?;
                self.memory.store_u16(region + USED_AT, used)?;
                self.memory.store_u16(region + VERSION_AT, VERSION)?;
            }
            // Who keeps fewer descriptors than the record has room for may say either.
            (VERSION, known) if known == self.area.descriptors || known == size => {}
            (version, descriptors) => {
                return Err(InflightError::Foreign {
                    version,
                    descriptors,
                });
            }
        }
        self.end_last_batch(queue, (size, used))?;
        let mut turns = Vec::new();
        for head in 0..size {
            let entry = self.entry(queue, head);
            if self.memory.load_u16(entry)?.to_ne_bytes()[0] == 0 {
                continue;
            }
            let mut turn = [0; 8];
            self.memory.load(entry + TURN_AT, &mut turn)?;
            turns.push((u64::from_ne_bytes(turn), head));
        }
        turns.sort_unstable();
        Ok(Left {
            next_turn: turns.last().map_or(0, |(turn, _)| turn.wrapping_add(1)),
            heads: turns.into_iter().map(|(_, head)| head).collect(),
        })
    }

    /// The used index has moved, and its heads have kept their marks: they were given back.
    fn end_last_batch(&self, queue: usize, (size, used): (u16, u16)) -> Result<(), InflightError> {
        let region = self.region(queue);
        let behind = used.wrapping_sub(self.memory.load_u16(region + USED_AT)?);
        let mut head = self.memory.load_u16(region + LAST_AT)?;
        for _ in 0..behind.min(size) {
            if head >= size {
                break;
            }
            let entry = self.entry(queue, head);
            self.memory.store_u16(entry, 0)?;
            head = self.memory.load_u16(entry + NEXT_AT)?;
        }
        Ok(self.memory.store_u16(region + USED_AT, used)?)
    }

    /// A request is about to begin.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn mark(&self, queue: usize, head: u16, turn: u64) -> Result<(), InflightError> {
        let entry = self.entry(queue, head);
        self.memory.store(entry + TURN_AT, &turn.to_ne_bytes())?;
        Ok(self.memory.store_u16(entry, u16::from_ne_bytes([1, 0]))?)
    }

    /// A request is about to be given back.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn announce(&self, queue: usize, head: u16) -> Result<(), InflightError> {
        let region = self.region(queue);
        let before = self.memory.load_u16(region + LAST_AT)?;
        let entry = self.entry(queue, head);
        self.memory.store_u16(entry + NEXT_AT, before)?;
        Ok(self.memory.store_u16(region + LAST_AT, head)?)
    }

    /// It was given back; the used index is `used` now.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn unmark(&self, queue: usize, (head, used): (u16, u16)) -> Result<(), InflightError> {
        let region = self.region(queue);
        self.memory.store_u16(self.entry(queue, head), 0)?;
        Ok(self.memory.store_u16(region + USED_AT, used)?)
    }
}
