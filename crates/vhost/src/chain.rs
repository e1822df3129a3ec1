//! The chain of descriptors of one request: copied once, checked, and then never looked at again in the guest's memory.
//!
//! Source: the virtio specification 1.2, sections 2.7.5 and 2.7.5.3. A descriptor, little-endian:
//!
//! | byte | bytes | content |
//! |---|---|---|
//! | 0 | 8 | address of the guest |
//! | 8 | 4 | length in bytes |
//! | 12 | 2 | flags: 1 another one follows, 2 the device writes, 4 it is a table of descriptors |
//! | 14 | 2 | which one follows |
//!
//! Invariants: a chain has at most `DESCRIPTORS_MAX` descriptors, whatever the guest makes of it; what the device reads
//! comes before what it writes.

use plexum_front::memory::{Memory, MemoryError, Part, check_inside};

use crate::config::QUEUE_SIZE_MAX;
use crate::peer::Mapping;
use crate::ring::{DESCRIPTOR_BYTES, Ring, RingError};
use crate::table::Table;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// Most descriptors of a chain, those of a table included.
pub const DESCRIPTORS_MAX: usize = QUEUE_SIZE_MAX as usize;

/// A piece of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its address.
    pub address: u64,
    /// Its length in bytes.
    pub count: u32,
}

/// What the device reads, and what it writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// What it reads, in order.
    pub readable: Vec<Segment>,
    /// What it writes, in order.
    pub writable: Vec<Segment>,
}

struct Descriptor {
    segment: Segment,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn decode(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let mut address = [0; 8];
        address.copy_from_slice(&bytes[..8]);
        Self {
            segment: Segment {
                address: u64::from_le_bytes(address),
                count: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            },
            flags: u16::from_le_bytes([bytes[12], bytes[13]]),
            next: u16::from_le_bytes([bytes[14], bytes[15]]),
        }
    }
}

impl Chain {
    /// Follows the descriptors from `head` on.
    ///
    /// # Errors
    /// They do not make a chain, or do not lie in the machine's memory.
    pub fn collect<M: Mapping>(
        ring: &Ring,
        table: &Table<M>,
        head: u16,
    ) -> Result<Self, RingError> {
        let bad = |what| RingError::BadChain { head, what };
        let (mut chain, mut index) = (Self::default(), head);
        // A chain that is longer than the ring goes round.
        for _ in 0..ring.size() {
            let descriptor = Descriptor::decode(&ring.descriptor(table, index)?);
            if descriptor.flags & INDIRECT != 0 {
                if descriptor.flags & NEXT != 0 {
                    return Err(bad("a descriptor follows one that is a table"));
                }
                chain.collect_table(table, &descriptor.segment, &bad)?;
                return Ok(chain);
            }
            chain.add(&descriptor, &bad)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(chain);
            }
            index = descriptor.next;
        }
        Err(bad("it goes round"))
    }

    fn collect_table<M: Mapping>(
        &mut self,
        table: &Table<M>,
        place: &Segment,
        bad: &impl Fn(&'static str) -> RingError,
    ) -> Result<(), RingError> {
        let count = place.count as usize / DESCRIPTOR_BYTES;
        if count == 0 || !(place.count as usize).is_multiple_of(DESCRIPTOR_BYTES) {
            return Err(bad("a table is not whole descriptors"));
        }
        if count > DESCRIPTORS_MAX {
            return Err(bad("a table is longer than a ring can be"));
        }
        // Copied whole: its entries are looked at once.
        let mut bytes = vec![0; place.count as usize];
        table.load(place.address, &mut bytes)?;
        let mut index = 0;
        for _ in 0..count {
            let at = index * DESCRIPTOR_BYTES;
            let Some(entry) = bytes.get(at..at + DESCRIPTOR_BYTES) else {
                return Err(bad("a descriptor is behind the end of its table"));
            };
            let mut one = [0; DESCRIPTOR_BYTES];
            one.copy_from_slice(entry);
            let descriptor = Descriptor::decode(&one);
            if descriptor.flags & INDIRECT != 0 {
                return Err(bad("a table lies in a table"));
            }
            self.add(&descriptor, bad)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            index = usize::from(descriptor.next);
        }
        Err(bad("it goes round"))
    }

    fn add(
        &mut self,
        descriptor: &Descriptor,
        bad: &impl Fn(&'static str) -> RingError,
    ) -> Result<(), RingError> {
        let is_written = descriptor.flags & WRITE != 0;
        if !is_written && !self.writable.is_empty() {
            return Err(bad("what is read comes behind what is written"));
        }
        match is_written {
            true => self.writable.push(descriptor.segment),
            false => self.readable.push(descriptor.segment),
        }
        match self.readable.len() + self.writable.len() > DESCRIPTORS_MAX {
            true => Err(bad("it is longer than a ring can be")),
            false => Ok(()),
        }
    }
}

/// How many bytes some segments have.
#[must_use]
pub fn length_of(segments: &[Segment]) -> u64 {
    // At most 2^10 numbers below 2^32.
    segments
        .iter()
        .map(|segment| u64::from(segment.count))
        .sum()
}

/// A part of the memory that segments name, as one.
pub struct Scattered<'a, M> {
    table: &'a Table<M>,
    segments: &'a [Segment],
    from_bytes: usize,
    length_bytes: usize,
}

impl<'a, M: Mapping> Scattered<'a, M> {
    /// The bytes of `part`; `None` when the segments have fewer.
    #[must_use]
    pub fn new(table: &'a Table<M>, segments: &'a [Segment], part: Part) -> Option<Self> {
        let all = usize::try_from(length_of(segments)).ok()?;
        check_inside(all, part).ok()?;
        Some(Self {
            table,
            segments,
            from_bytes: part.offset_bytes,
            length_bytes: part.count,
        })
    }

    /// Calls `with` for each piece of a part: its address, and which bytes of the part it has.
    fn each(
        &self,
        part: Part,
        mut with: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        check_inside(self.length_bytes, part)?;
        let mut skip = self.from_bytes + part.offset_bytes;
        let mut done = 0;
        for segment in self.segments {
            let count = segment.count as usize;
            if skip >= count {
                skip -= count;
                continue;
            }
            if done == part.count {
                break;
            }
            let now = (count - skip).min(part.count - done);
            // An address that wraps lies in no region.
            let address = segment.address.checked_add(skip as u64);
            with(address.ok_or(MemoryError::Gone)?, done..done + now)?;
            done += now;
            skip = 0;
        }
        Ok(())
    }
}

impl<M: Mapping> Memory for Scattered<'_, M> {
    fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    fn load(&self, offset_bytes: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        let count = into.len();
        self.each(
            Part {
                offset_bytes,
                count,
            },
            |address, range| {
                let loaded = self.table.load(address, &mut into[range]);
                loaded.map_err(|_| MemoryError::Gone)
            },
        )
    }

    fn store(&self, offset_bytes: usize, from: &[u8]) -> Result<(), MemoryError> {
        let count = from.len();
        self.each(
            Part {
                offset_bytes,
                count,
            },
            |address, range| {
                let stored = self.table.store(address, &from[range]);
                stored.map_err(|_| MemoryError::Gone)
            },
        )
    }
}
