//! Partitions of a disk or of an image: GPT (its backup too), MBR with logical ones, labels of BSD and of Solaris.
//!
//! One reader for all formats of sets. It reads nothing itself: it says what it wants to see next, so that devices,
//! files and bytes in memory are read in the same way, with [`look_at`] or a loop like it.
//!
//! Invariants:
//! - partitions outside of the disk are left out, and those as large as what they lie in; at most [`PARTITIONS_MAX`];
//! - a table is believed for what its checksums say, where it has such.
//!
//! Sources: UEFI specification, chapter 5 (GPT, MBR); FreeBSD's `sys/sys/disklabel.h`; Linux' `block/partitions/`.

mod disklabel;
mod gpt;
mod mbr;

use std::ops::Range;

use crate::detect::ReadAt;

/// Most partitions that are looked at.
pub const PARTITIONS_MAX: usize = 128;
/// Bytes from the start of a disk that are looked at first: the headers of both tables, for sectors of 512 and of 4096
/// bytes.
pub const TABLE_BYTES: u64 = 8 << 10;
/// Most pieces of a disk that are looked at: a chain of logical partitions, a label in each.
const PIECES_MAX: usize = 4 * PARTITIONS_MAX;
const SECTOR: usize = 512;

/// Which table a partition is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The GUID partition table at the start.
    Gpt,
    /// The same table's backup at the end: that at the start is damaged or gone.
    GptBackup,
    /// The table in the first sector, and what hangs on it.
    Mbr,
    /// A label of BSD, in a slice or on the disk.
    Bsd,
    /// A table of contents of Solaris.
    Solaris,
}

impl Table {
    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Table::Gpt => "GPT",
            Table::GptBackup => "GPT (the backup at the end)",
            Table::Mbr => "MBR",
            Table::Bsd => "BSD label",
            Table::Solaris => "Solaris label",
        }
    }
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// `p2`; `p1h` is partition `h` of the BSD label in slice 1, `p1s0` slice 0 of Solaris in it.
    pub name: String,
    /// Where it stands.
    pub table: Table,
    /// Its bytes on the disk.
    pub place: Range<u64>,
}

/// The bytes that the reader wants to see before it can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted(pub Range<u64>);

/// What was seen of a disk so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pieces: Vec<(Range<u64>, Vec<u8>)>,
}

impl Seen {
    /// Adds what was read there; nothing when it cannot be read, which then counts as zeroes.
    pub fn add(&mut self, wanted: Wanted, bytes: Vec<u8>) {
        self.pieces.push((wanted.0, bytes));
    }

    /// The bytes of that range; fewer when they could not be read.
    fn get(&self, range: Range<u64>) -> Result<&[u8], Wanted> {
        let inside = |(piece, _): &&(Range<u64>, Vec<u8>)| {
            piece.start <= range.start && range.end <= piece.end
        };
        match self.pieces.iter().find(inside) {
            Some((piece, bytes)) => {
                let from = (range.start - piece.start) as usize; // pieces are short
                let to = from + (range.end - range.start) as usize;
                Ok(bytes.get(from..to).unwrap_or_default())
            }
            None if self.pieces.len() >= PIECES_MAX => Ok(&[]),
            None => Err(Wanted(range)),
        }
    }

    /// The sector of 512 bytes at this address; zeroes behind the end and where it cannot be read.
    fn sector(&self, at: u64, disk_bytes: u64) -> Result<[u8; SECTOR], Wanted> {
        let mut sector = [0; SECTOR];
        if let Some(end) = at
            .checked_add(SECTOR as u64)
            .filter(|end| *end <= disk_bytes)
        {
            let bytes = self.get(at..end)?;
            sector[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(sector)
    }
}

/// The partitions of a disk of `disk_bytes`, in the order of the tables.
///
/// # Errors
/// What has to be seen first.
pub fn partitions(disk_bytes: u64, seen: &Seen) -> Result<Vec<Partition>, Wanted> {
    let head = seen.get(0..TABLE_BYTES.min(disk_bytes))?;
    let is_protected = mbr::is_protective(head);
    let primaries = mbr::primaries(head, disk_bytes);
    let mut found = if is_protected || primaries.is_empty() {
        gpt::partitions(disk_bytes, seen)?
    } else {
        // A table of GPT beside real ones of an MBR (a hybrid): GPT counts, as everywhere, but only the one at the
        // start.
        gpt::at_start(disk_bytes, seen)?
    };
    if found.is_empty() {
        found = mbr::partitions(primaries, disk_bytes, seen)?;
    }
    let whole = 0..disk_bytes;
    if found.is_empty() {
        return disklabel::labels_in("p", &whole, disk_bytes, seen);
    }
    let mut all = Vec::new();
    for slice in found {
        let inner = disklabel::labels_in(&slice.name, &slice.place, disk_bytes, seen)?;
        all.push(slice);
        all.extend(inner);
    }
    all.truncate(PARTITIONS_MAX);
    Ok(all)
}

/// The partitions of a disk, read with `reader`. What cannot be read counts as zeroes.
pub fn look_at<R: ReadAt>(disk_bytes: u64, reader: &mut R) -> Vec<Partition> {
    let mut seen = Seen::default();
    loop {
        match partitions(disk_bytes, &seen) {
            Ok(found) => return found,
            Err(wanted) => {
                let mut bytes = vec![0; (wanted.0.end - wanted.0.start) as usize];
                if reader.read_at(wanted.0.start, &mut bytes).is_err() {
                    bytes.clear();
                }
                seen.add(wanted, bytes);
            }
        }
    }
}

/// The innermost partition that covers all of `place`.
#[must_use]
pub fn owner_of<'a>(partitions: &'a [Partition], place: &Range<u64>) -> Option<&'a Partition> {
    let covers = |one: &&Partition| one.place.start <= place.start && place.end <= one.place.end;
    let covering = partitions.iter().filter(covers);
    covering.min_by_key(|one| one.place.end - one.place.start)
}

/// The partitions that lie in `place`, counted from its start: for whoever looks at that part alone.
#[must_use]
pub fn within(partitions: &[Partition], place: &Range<u64>) -> Vec<Partition> {
    let inner = partitions.iter().filter(|one| {
        one.place != *place && place.start <= one.place.start && one.place.end <= place.end
    });
    let moved = inner.map(|one| Partition {
        place: one.place.start - place.start..one.place.end - place.start,
        ..one.clone()
    });
    moved.collect()
}

/// Bytes of a range of sectors, when it lies on the disk, is not empty, and does not begin with the table itself.
fn place_of(start: u64, count: u64, sector_bytes: u64, disk_bytes: u64) -> Option<Range<u64>> {
    let from = start.checked_mul(sector_bytes)?;
    let to = start.checked_add(count)?.checked_mul(sector_bytes)?;
    (from < to && to <= disk_bytes && from <= disk_bytes).then_some(from..to)
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    let part = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(part.try_into().ok()?))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(part.try_into().ok()?))
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(part.try_into().ok()?))
}

#[cfg(test)]
mod tests;
