//! Which format is on this member?
//!
//! Invariants:
//! - only the places of [`probe_places`] are read, and nothing is taken for a format on its magic number alone;
//! - of several valid superblocks the one with the newest creation time wins: the older ones are leftovers;
//! - a damaged superblock is reported as such only where no valid one was found;
//! - what lies in a partition is the partition's, not the disk's, once the partitions are known (W15).

use std::ops::Range;

use crate::container::Container;
use crate::error::{FormatError, Problem};
use crate::gconcat::ConcatLabel;
use crate::gmirror::MirrorLabel;
use crate::gstripe::StripeLabel;
use crate::md::superblock::SUPERBLOCK_BYTES;
use crate::md::{MdVersion, Superblock, super_offset_sectors};
use crate::partition::{Partition, owner_of};
use crate::units::SECTOR_BYTES;
use crate::vinum::{DriveHeader, HEADER_OFFSET_BYTES};

const LAST_PAGE_BYTES: usize = 4096;

/// A member's bytes for the prober. Implemented by files, by buffers that were read before, by tests.
pub trait ReadAt {
    /// Why a read failed.
    type Error;

    /// Fills `buffer` from `offset_bytes`. Only ranges from [`probe_places`] are asked for.
    ///
    /// # Errors
    /// Whatever keeps the bytes from being read; it ends the detection.
    fn read_at(&mut self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), Self::Error>;
}

impl<F, E> ReadAt for F
where
    F: FnMut(u64, &mut [u8]) -> Result<(), E>,
{
    type Error = E;

    fn read_at(&mut self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), E> {
        self(offset_bytes, buffer)
    }
}

/// What a place on a member was found to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// A valid Linux md superblock.
    Md(Box<Superblock>),
    /// A component of a FreeBSD gmirror.
    Gmirror(Box<MirrorLabel>),
    /// A member of a FreeBSD gstripe.
    Gstripe(Box<StripeLabel>),
    /// A member of a FreeBSD gconcat.
    Gconcat(Box<ConcatLabel>),
    /// A drive of FreeBSD's Vinum; what is on it says the configuration behind the header.
    Vinum(Box<DriveHeader>),
    /// A member of a container that other programs read.
    Container(Container),
    /// Something that begins like an md superblock, but must not be used.
    Damaged {
        /// The version whose place it is at.
        version: MdVersion,
        /// What is wrong with it.
        error: FormatError,
    },
    /// Something that begins like a label of FreeBSD, but must not be used; the error's `structure` says which.
    DamagedLabel {
        /// What is wrong with it.
        error: FormatError,
    },
}

/// Something found on a disk that lies in one of its partitions: it is the partition's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Covered {
    /// What it looks like for who takes the disk for the member.
    pub found: Found,
    /// The partition that covers it.
    pub partition: Partition,
}

/// Everything that was found on a member, best first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Detection {
    /// Valid metadata, the newest first, then damaged ones in the order of the probes.
    pub found: Vec<Found>,
    /// What belongs to partitions.
    pub covered: Vec<Covered>,
}

impl Detection {
    /// What the member is to be used as; `None` when nothing was found.
    #[must_use]
    pub fn best(&self) -> Option<&Found> {
        self.found.first()
    }

    /// The md superblock to use.
    ///
    /// # Errors
    /// The refusal when there are only damaged ones; `None` when there is nothing, or another format.
    pub fn md(&self) -> Option<Result<&Superblock, &FormatError>> {
        match self.best()? {
            Found::Md(superblock) => Some(Ok(superblock.as_ref())),
            Found::Damaged { error, .. } => Some(Err(error)),
            _ => None,
        }
    }

    /// The valid superblock of this version, also where a partition covers it: for who was told to believe that one.
    #[must_use]
    pub fn md_of(&self, version: MdVersion) -> Option<&Superblock> {
        let covered = self.covered.iter().map(|covered| &covered.found);
        self.found
            .iter()
            .chain(covered)
            .find_map(|found| match found {
                Found::Md(superblock) if superblock.version == version => Some(superblock.as_ref()),
                _ => None,
            })
    }

    /// Whether there is nothing at all, not even something that belongs to a partition.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.found.is_empty() && self.covered.is_empty()
    }

    /// Gives up what lies in one of the partitions of the same disk, which is `device_sectors` long.
    pub fn leave_to(&mut self, partitions: &[Partition], device_sectors: u64) {
        let mut kept = Vec::new();
        for found in std::mem::take(&mut self.found) {
            let owner = found
                .place(device_sectors)
                .and_then(|place| owner_of(partitions, &place));
            match owner {
                Some(partition) => self.covered.push(Covered {
                    found,
                    partition: partition.clone(),
                }),
                None => kept.push(found),
            }
        }
        self.found = kept;
    }
}

impl Found {
    /// The bytes on a device of that size by which it was found; `None` where that is not known.
    #[must_use]
    pub fn place(&self, device_sectors: u64) -> Option<Range<u64>> {
        let sector = |start: u64| start..start + SECTOR_BYTES;
        let last = || {
            device_sectors
                .checked_mul(SECTOR_BYTES)?
                .checked_sub(SECTOR_BYTES)
        };
        match self {
            Found::Md(superblock) => Some(sector(superblock.super_offset_sectors * SECTOR_BYTES)),
            Found::Damaged { version, .. } => Some(sector(
                super_offset_sectors(*version, device_sectors)? * SECTOR_BYTES,
            )),
            Found::Vinum(_) => Some(sector(HEADER_OFFSET_BYTES)),
            Found::DamagedLabel { error } if error.structure.starts_with("vinum") => {
                Some(sector(HEADER_OFFSET_BYTES))
            }
            // Of a label the last byte tells: its sector may be longer, but it ends with the device.
            _ => last().map(sector),
        }
    }
}

/// The byte ranges that [`detect`] reads from a device of that size, for those who read ahead (and asynchronously).
#[must_use]
pub fn probe_places(device_sectors: u64) -> Vec<Range<u64>> {
    let md = md_places(device_sectors).map(|(_, sector)| {
        let start = sector * SECTOR_BYTES;
        start..start + SUPERBLOCK_BYTES as u64
    });
    md.chain(last_page(device_sectors)).collect()
}

/// The last 4 KiB: the last sector of 512 or of 4096 bytes begins in it.
fn last_page(device_sectors: u64) -> Option<Range<u64>> {
    let end = device_sectors.checked_mul(SECTOR_BYTES)?;
    Some(end.checked_sub(LAST_PAGE_BYTES as u64)?..end)
}

fn md_places(device_sectors: u64) -> impl Iterator<Item = (MdVersion, u64)> {
    // Beyond this a byte offset would not fit 64 bits: no such device, no place.
    let is_possible = device_sectors <= u64::MAX / SECTOR_BYTES;
    MdVersion::ALL
        .into_iter()
        .filter(move |_| is_possible)
        .filter_map(move |version| Some((version, super_offset_sectors(version, device_sectors)?)))
}

/// Looks for every known format on a device of `device_sectors` (of 512 bytes).
///
/// # Errors
/// The first read error. Reading is the only thing that can fail: what is damaged is part of the answer.
///
/// Source: linux-md.md section 1 (probing order, newest ctime).
pub fn detect<R: ReadAt>(device_sectors: u64, reader: &mut R) -> Result<Detection, R::Error> {
    let mut valid = Vec::new();
    let (mut labels, mut damaged) = (Vec::new(), Vec::new());
    for (version, sector) in md_places(device_sectors) {
        let mut area = [0; SUPERBLOCK_BYTES];
        reader.read_at(sector * SECTOR_BYTES, &mut area)?;
        match Superblock::parse(&area, sector, device_sectors, version) {
            Ok(superblock) => valid.push(superblock),
            Err(error) if error.problem == Problem::NoMagic => {}
            Err(error) => damaged.push(Found::Damaged { version, error }),
        }
        if sector * SECTOR_BYTES == HEADER_OFFSET_BYTES {
            match DriveHeader::parse(&area, HEADER_OFFSET_BYTES) {
                Ok(header) => labels.push(Found::Vinum(Box::new(header))),
                Err(error) if error.problem == Problem::NoMagic => {}
                Err(error) => damaged.push(Found::DamagedLabel { error }),
            }
        }
    }
    // Stable: of equally old ones the first probed stays first.
    valid.sort_by_key(|superblock| std::cmp::Reverse(superblock.ctime));
    let mut found: Vec<Found> = valid
        .into_iter()
        .map(|superblock| Found::Md(Box::new(superblock)))
        .collect();
    found.append(&mut labels);
    let mut container = None;
    if let Some(place) = last_page(device_sectors) {
        let mut page = [0; LAST_PAGE_BYTES];
        reader.read_at(place.start, &mut page)?;
        container = Container::find(&page);
        for result in geom_labels(&page, &place) {
            match result {
                Ok(label) => found.push(label),
                Err(error) if error.problem == Problem::NoMagic => {}
                Err(error) => damaged.push(Found::DamagedLabel { error }),
            }
        }
    }
    found.append(&mut damaged);
    found.extend(container.map(Found::Container));
    Ok(Detection {
        found,
        covered: Vec::new(),
    })
}

/// What the last sector says, if that is 512 bytes long, and if it is 4096.
///
/// Source: freebsd-geom.md section 1.2: an image file has no sector size of its own, so both are looked at.
fn geom_labels(
    page: &[u8; LAST_PAGE_BYTES],
    place: &Range<u64>,
) -> impl Iterator<Item = Result<Found, FormatError>> {
    let size = place.end;
    [LAST_PAGE_BYTES - SECTOR_BYTES as usize, 0]
        .into_iter()
        .flat_map(move |from| {
            let offset = place.start + from as u64;
            let sector = &page[from..];
            [
                MirrorLabel::parse(sector, offset, size)
                    .map(|label| Found::Gmirror(Box::new(label))),
                StripeLabel::parse(sector, offset, size)
                    .map(|label| Found::Gstripe(Box::new(label))),
                ConcatLabel::parse(sector, offset, size)
                    .map(|label| Found::Gconcat(Box::new(label))),
            ]
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::md::{MdTime, NewMember, Role};
    use crate::{EventCount, Slot};

    const DEVICE_SECTORS: u64 = 8192;

    fn superblock(version: MdVersion, seconds: u64) -> Superblock {
        let data_offset_sectors = if matches!(version, MdVersion::V11 | MdVersion::V12) {
            2048
        } else {
            0
        };
        Superblock::create(&NewMember {
            version,
            array_uuid: [9; 16],
            name: "host:a",
            ctime: MdTime {
                seconds,
                microseconds: 5,
            },
            level: 1,
            layout: 0,
            component_sectors: 4096,
            strip_sectors: 0,
            member_count: 2,
            data_offset_sectors,
            data_size_sectors: 4096,
            device_sectors: DEVICE_SECTORS,
            dev_number: 1,
            device_uuid: [8; 16],
            roles: &[Role::Active(Slot(0)), Role::Active(Slot(1))],
            events: EventCount(3),
            resync_offset_sectors: None,
            bitmap_offset_sectors: None,
            bad_block_log: None,
            is_write_mostly: false,
        })
        .unwrap()
    }

    fn write(device: &mut [u8], superblock: &Superblock) {
        let start = (superblock.super_offset_sectors * SECTOR_BYTES) as usize;
        device[start..start + SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
    }

    fn detect_on(device: &[u8]) -> Detection {
        let mut reader = |offset: u64, buffer: &mut [u8]| -> Result<(), ()> {
            let start = offset as usize;
            assert!(
                probe_places(DEVICE_SECTORS)
                    .iter()
                    .any(|place| place.start == offset)
            );
            buffer.copy_from_slice(&device[start..start + buffer.len()]);
            Ok(())
        };
        detect(DEVICE_SECTORS, &mut reader).unwrap()
    }

    #[test]
    fn every_version_is_found_at_its_place() {
        for version in MdVersion::ALL {
            let mut device = vec![0; (DEVICE_SECTORS * SECTOR_BYTES) as usize];
            let made = superblock(version, 1000);
            write(&mut device, &made);
            let detection = detect_on(&device);
            assert_eq!(detection.md(), Some(Ok(&made)), "{version}");
            assert_eq!(detection.found.len(), 1);
        }
    }

    #[test]
    fn the_newest_creation_time_wins_and_damage_comes_last() {
        let mut device = vec![0; (DEVICE_SECTORS * SECTOR_BYTES) as usize];
        write(&mut device, &superblock(MdVersion::V12, 1000));
        write(&mut device, &superblock(MdVersion::V10, 2000));
        write(&mut device, &superblock(MdVersion::V11, 3000));
        device[16] ^= 1; // the UUID of the 1.1 superblock
        let detection = detect_on(&device);
        assert_eq!(detection.found.len(), 3);
        assert_eq!(detection.md().unwrap().unwrap().version, MdVersion::V10);
        let Some(Found::Damaged { version, error }) = detection.found.last() else {
            panic!("the damaged one comes last");
        };
        assert_eq!(
            (*version, error.problem),
            (MdVersion::V11, Problem::Checksum)
        );
    }

    #[test]
    fn a_device_too_small_for_anything_holds_nothing() {
        assert_eq!(probe_places(7), []);
        assert_eq!(probe_places(u64::MAX), []);
        let detection = detect(7, &mut |_, _: &mut [u8]| -> Result<(), ()> { Err(()) });
        assert_eq!(detection, Ok(Detection::default()));
    }

    #[test]
    fn a_read_error_is_passed_on() {
        assert_eq!(
            detect(8192, &mut |_, _: &mut [u8]| Err("gone")),
            Err("gone")
        );
    }
}
