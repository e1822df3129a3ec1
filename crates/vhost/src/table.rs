//! A machine's memory: regions, and how an address leads into one.
//!
//! Invariants:
//! - regions neither wrap around the end of all addresses nor overlap, in either kind of address;
//! - an access that does not lie in regions, whole, is an error; one that lies in several that meet is one access.

use plexum_front::memory::MemoryError;

use crate::peer::Mapping;
use crate::wire::{Region, SLOTS_MAX};

/// Why a region is refused, or an address leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// It has no bytes, or its end is behind the last address.
    #[error("a region of {size_bytes} bytes at {address:#x} is none")]
    BadRegion {
        /// Where it begins.
        address: u64,
        /// Its size.
        size_bytes: u64,
    },
    /// Another region has some of its addresses.
    #[error("the region at {0:#x} overlaps another one")]
    Overlaps(u64),
    /// There are as many as there may be.
    #[error("more than {SLOTS_MAX} regions of memory")]
    TooMany,
    /// There is no such region.
    #[error("there is no region at {0:#x}")]
    NoRegion(u64),
    /// Some bytes of an access lie in no region.
    #[error("{length_bytes} bytes at {address:#x} are not in the machine's memory")]
    Outside {
        /// Where it begins.
        address: u64,
        /// How long it is.
        length_bytes: u64,
    },
    /// The memory cannot be used.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Which kind of address is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The guest's: of descriptors.
    Guest,
    /// The front end's: of messages.
    User,
}

/// All memory of a machine.
pub struct Table<M> {
    regions: Vec<(Region, M)>,
}

impl<M> Default for Table<M> {
    fn default() -> Self {
        Self {
            regions: Vec::new(),
        }
    }
}

fn end((begin, size_bytes): (u64, u64)) -> Option<u64> {
    begin.checked_add(size_bytes).filter(|_| size_bytes > 0)
}

fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    // Their ends do not wrap: that was looked at.
    one.0 < other.0 + other.1 && other.0 < one.0 + one.1
}

/// Whether a region may be: it has bytes, and does not wrap.
///
/// # Errors
/// `BadRegion`.
pub fn check_region(region: &Region) -> Result<(), TableError> {
    let size_bytes = region.size_bytes;
    for address in [
        region.guest_address,
        region.user_address,
        region.file_offset_bytes,
    ] {
        end((address, size_bytes)).ok_or(TableError::BadRegion {
            address,
            size_bytes,
        })?;
    }
    Ok(())
}

impl<M: Mapping> Table<M> {
    /// Adds a region, whose memory is as long as it says.
    ///
    /// # Errors
    /// `BadRegion`, `Overlaps`, `TooMany`.
    pub fn add(&mut self, region: Region, memory: M) -> Result<(), TableError> {
        check_region(&region)?;
        assert_eq!(
            memory.length_bytes() as u64,
            region.size_bytes,
            "a region is mapped whole"
        );
        let size = region.size_bytes;
        let meets = |(other, _): &&(Region, M)| {
            let there = other.size_bytes;
            overlap((region.guest_address, size), (other.guest_address, there))
                || overlap((region.user_address, size), (other.user_address, there))
        };
        if self.regions.iter().any(|other| meets(&other)) {
            return Err(TableError::Overlaps(region.guest_address));
        }
        if self.regions.len() >= SLOTS_MAX {
            return Err(TableError::TooMany);
        }
        self.regions.push((region, memory));
        Ok(())
    }

    /// Takes a region away. Where it lies in its file does not count.
    ///
    /// # Errors
    /// `NoRegion`.
    pub fn remove(&mut self, region: &Region) -> Result<(), TableError> {
        let is_it = |(other, _): &(Region, M)| {
            (other.guest_address, other.user_address, other.size_bytes)
                == (region.guest_address, region.user_address, region.size_bytes)
        };
        let found = self.regions.iter().position(is_it);
        let found = found.ok_or(TableError::NoRegion(region.guest_address))?;
        self.regions.remove(found);
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Copies what is at an address of the guest now.
    ///
    /// # Errors
    /// `Outside`, `Memory`.
    pub fn load(&self, address: u64, into: &mut [u8]) -> Result<(), TableError> {
        let mut done = 0;
        while done < into.len() {
            let (memory, offset, count) = self.step(address, (done, into.len()))?;
            memory.load(offset, &mut into[done..done + count])?;
            done += count;
        }
        Ok(())
    }

    /// Puts bytes at an address of the guest.
    ///
    /// # Errors
    /// `Outside`, `Memory`; some may have been put.
    pub fn store(&self, address: u64, from: &[u8]) -> Result<(), TableError> {
        let mut done = 0;
        while done < from.len() {
            let (memory, offset, count) = self.step(address, (done, from.len()))?;
            memory.store(offset, &from[done..done + count])?;
            done += count;
        }
        Ok(())
    }

    /// Where an access goes on of which some bytes are done, and how many bytes there are in one piece.
    fn step(
        &self,
        address: u64,
        (done, all): (usize, usize),
    ) -> Result<(&M, usize, usize), TableError> {
        let outside = TableError::Outside {
            address,
            length_bytes: all as u64,
        };
        let at = address.checked_add(done as u64).ok_or(outside)?;
        let (memory, offset, there) = self.find(Kind::Guest, at).ok_or(outside)?;
        Ok((memory, offset, there.min(all - done)))
    }

    /// The region of an address: its memory, where in it, and how many bytes it has from there on.
    fn find(&self, kind: Kind, address: u64) -> Option<(&M, usize, usize)> {
        self.regions.iter().find_map(|(region, memory)| {
            let begin = match kind {
                Kind::Guest => region.guest_address,
                Kind::User => region.user_address,
            };
            let offset = address.checked_sub(begin)?;
            let there = region
                .size_bytes
                .checked_sub(offset)
                .filter(|rest| *rest > 0)?;
            Some((
                memory,
                usize::try_from(offset).ok()?,
                usize::try_from(there).ok()?,
            ))
        })
    }

    /// The memory at an address of the front end, in one piece of some length.
    ///
    /// # Errors
    /// `Outside`.
    pub fn piece(
        &self,
        user_address: u64,
        length_bytes: usize,
    ) -> Result<Piece<'_, M>, TableError> {
        match self.find(Kind::User, user_address) {
            Some((memory, offset_bytes, there)) if there >= length_bytes => Ok(Piece {
                memory,
                offset_bytes,
            }),
            _ => Err(TableError::Outside {
                address: user_address,
                length_bytes: length_bytes as u64,
            }),
        }
    }
}

/// A piece of a machine's memory; offsets count from its beginning, and are below the length that was asked for.
pub struct Piece<'a, M> {
    memory: &'a M,
    offset_bytes: usize,
}

impl<M: Mapping> Piece<'_, M> {
    /// Copies what is there now.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn load(&self, offset_bytes: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.load(self.offset_bytes + offset_bytes, into)
    }

    /// Puts bytes there.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn store(&self, offset_bytes: usize, from: &[u8]) -> Result<(), MemoryError> {
        self.memory.store(self.offset_bytes + offset_bytes, from)
    }

    /// A little-endian number, as `Mapping::load_u16`.
    ///
    /// # Errors
    /// As there.
    pub fn load_u16(&self, offset_bytes: usize) -> Result<u16, MemoryError> {
        let value = self.memory.load_u16(self.offset_bytes + offset_bytes)?;
        Ok(u16::from_le(value))
    }

    /// Puts a little-endian number there, as `Mapping::store_u16`.
    ///
    /// # Errors
    /// As there.
    pub fn store_u16(&self, offset_bytes: usize, value: u16) -> Result<(), MemoryError> {
        self.memory
            .store_u16(self.offset_bytes + offset_bytes, value.to_le())
    }
}
