//! What is only in md's write journal: read beside the members, as a replay would put it in place.
//!
//! Invariants:
//! - a block counts only with right checksums, in unbroken sequence from the journal's tail;
//! - a row whose parity is in the journal may be half in place: it is read from the journal as a whole;
//! - a row without (write-back) is in place as it was before, and its parity with it.
//!
//! Source: linux-md.md section 6.

use std::collections::BTreeMap;
use std::ops::Range;

use plexum_format::SECTOR_BYTES;
use plexum_format::md::JournalMeta;
use plexum_format::md::journal::{META_BYTES, PayloadKind, block_checksum};

use crate::assemble::{AssembledStanding, Assembly, Examined};
use crate::error::OpenError;
use plexum_block::buf::BufPool;
use plexum_block::device::{Device, IoError, read_range};
use plexum_layout::{Geometry, RowRole};

/// Bytes of a block in the journal, and of what it replaces.
const BLOCK_BYTES: u64 = META_BYTES as u64;
const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;

/// Where a block is read from.
#[derive(Clone, Debug)]
pub(crate) enum Source<D> {
    /// From a device, at this byte.
    Device(D, u64),
    /// It was computed.
    Bytes(Vec<u8>),
}

impl<D: Device> Source<D> {
    /// Reads a range of the block.
    pub(crate) async fn read(&self, pool: &BufPool, range: Range<u64>) -> Result<Vec<u8>, IoError> {
        match self {
            Source::Device(device, at) => {
                read_range(device, pool, at + range.start..at + range.end).await
            }
            Source::Bytes(bytes) => {
                let range = range.start as usize..range.end as usize; // within a block
                bytes
                    .get(range)
                    .map(<[u8]>::to_vec)
                    .ok_or(IoError::OutOfRange)
            }
        }
    }
}

/// What is read from elsewhere than the members, by volume offset, and what cannot be known.
pub(crate) struct Replayed<D> {
    pub(crate) patches: BTreeMap<u64, Source<D>>,
    pub(crate) lost: Vec<Range<u64>>,
}

impl<D> Default for Replayed<D> {
    fn default() -> Self {
        Self {
            patches: BTreeMap::new(),
            lost: Vec::new(),
        }
    }
}

/// One row of 4 KiB blocks; numbers are bytes of the journal device.
#[derive(Default)]
struct Row {
    /// Data by volume offset that its parity covers.
    settled: BTreeMap<u64, u64>,
    /// P, when it is in the journal.
    parity: Option<u64>,
    /// Data by volume offset that no parity covers yet.
    pending: BTreeMap<u64, u64>,
}

/// Reads the journal of an array, when it has one and its device is among the members in use.
///
/// # Errors
/// `Io` of the journal's device; `Log` when it names what the array does not have.
pub(crate) async fn read_journal<D: Device + Clone>(
    devices: &[(String, D)],
    pool: &BufPool,
    examined: &[Examined],
    assembly: &Assembly,
) -> Result<Replayed<D>, OpenError> {
    let Some(journal) = journal_of(assembly) else {
        return Ok(Replayed::default());
    };
    let rows = rows_of(devices, pool, examined, assembly, journal).await?;
    let found = Found {
        devices,
        pool,
        assembly,
        journal: &devices[journal].1,
    };
    found.put_together(rows).await
}

/// Whether the journal holds anything that is not on the members for certain.
///
/// # Errors
/// As `read_journal`.
pub(crate) async fn is_in_journal<D: Device>(
    devices: &[(String, D)],
    pool: &BufPool,
    examined: &[Examined],
    assembly: &Assembly,
) -> Result<bool, OpenError> {
    let Some(journal) = journal_of(assembly) else {
        return Ok(false);
    };
    let rows = rows_of(devices, pool, examined, assembly, journal).await?;
    Ok(!rows.is_empty())
}

/// The caller's number of the journal.
fn journal_of(assembly: &Assembly) -> Option<usize> {
    let mut members = assembly.members.iter();
    let journal = members.find(|member| member.standing == AssembledStanding::Journal);
    journal.map(|journal| journal.index)
}

/// All rows that the journal has something of, by member offset.
async fn rows_of<D: Device>(
    devices: &[(String, D)],
    pool: &BufPool,
    examined: &[Examined],
    assembly: &Assembly,
    journal: usize,
) -> Result<BTreeMap<u64, Row>, OpenError> {
    let device = &devices[journal].1;
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    let superblock = &examined[journal].superblock;
    let Some(tail) = superblock.journal_tail_sectors else {
        return Ok(rows);
    };
    let ring = Ring {
        device,
        pool,
        start_sector: superblock.data_offset_sectors,
        sectors: superblock.data_size_sectors / BLOCK_SECTORS * BLOCK_SECTORS,
        array_uuid: &superblock.array_uuid,
    };
    let tell = |error| OpenError::Io {
        index: journal,
        error,
    };
    let mut position = tail;
    let mut sequence = None;
    let mut walked_sectors = 0;
    while walked_sectors < ring.sectors {
        let Some((meta, blocks)) = ring.entry(position, sequence).await.map_err(tell)? else {
            break;
        };
        sequence = Some(meta.sequence.wrapping_add(1));
        note(&meta, &blocks, &assembly.geometry, &mut rows).ok_or_else(|| {
            OpenError::Log(
                "its write journal names a block that the array does not have".to_owned(),
            )
        })?;
        let length = BLOCK_SECTORS * (1 + blocks.len() as u64);
        position = ring.after(position, length);
        walked_sectors += length;
    }
    Ok(rows)
}

/// The journal's ring.
struct Ring<'a, D> {
    device: &'a D,
    pool: &'a BufPool,
    start_sector: u64,
    sectors: u64,
    array_uuid: &'a [u8; 16],
}

impl<D: Device> Ring<'_, D> {
    fn after(&self, position: u64, sectors: u64) -> u64 {
        (position + sectors) % self.sectors.max(1)
    }

    fn byte(&self, position: u64) -> Option<u64> {
        let is_inside = position.checked_add(BLOCK_SECTORS)? <= self.sectors;
        let sector = self.start_sector.checked_add(position)?;
        is_inside
            .then(|| sector.checked_mul(SECTOR_BYTES))
            .flatten()
    }

    async fn block(&self, position: u64) -> Result<Option<(u64, Vec<u8>)>, IoError> {
        let Some(at) = self.byte(position) else {
            return Ok(None);
        };
        match read_range(self.device, self.pool, at..at + BLOCK_BYTES).await {
            Ok(bytes) => Ok(Some((at, bytes))),
            Err(IoError::OutOfRange) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The meta block at `position`, and where its payloads' blocks lie; `None` where the journal ends.
    async fn entry(
        &self,
        position: u64,
        sequence: Option<u64>,
    ) -> Result<Option<(JournalMeta, Vec<u64>)>, IoError> {
        let Some((at, bytes)) = self.block(position).await? else {
            return Ok(None);
        };
        let Ok(meta) = JournalMeta::parse(&bytes, at, self.array_uuid) else {
            return Ok(None);
        };
        let is_next = sequence.is_none_or(|sequence| sequence == meta.sequence);
        if meta.position_sectors != position || !is_next {
            return Ok(None);
        }
        let mut blocks = Vec::new();
        let mut next = self.after(position, BLOCK_SECTORS);
        for checksum in meta.payloads.iter().flat_map(|payload| &payload.checksums) {
            let Some((at, bytes)) = self.block(next).await? else {
                return Ok(None);
            };
            if block_checksum(&bytes, self.array_uuid) != *checksum {
                return Ok(None);
            }
            blocks.push(at);
            next = self.after(next, BLOCK_SECTORS);
        }
        Ok(Some((meta, blocks)))
    }
}

/// Puts the payloads of one meta block to their rows; `None` when the array has no such place.
fn note(
    meta: &JournalMeta,
    blocks: &[u64],
    geometry: &Geometry,
    rows: &mut BTreeMap<u64, Row>,
) -> Option<()> {
    let mut blocks = blocks.iter().copied();
    for payload in &meta.payloads {
        let location = payload.location_sectors.checked_mul(SECTOR_BYTES)?;
        match payload.kind {
            PayloadKind::Flush => {
                for stripe in &payload.stripes_sectors {
                    rows.remove(&stripe.checked_mul(SECTOR_BYTES)?);
                }
            }
            PayloadKind::Data => {
                for number in 0..payload.checksums.len() as u64 {
                    let at = location.checked_add(number * BLOCK_BYTES)?;
                    if at % BLOCK_BYTES != 0
                        || at.checked_add(BLOCK_BYTES)? > geometry.volume_bytes()
                    {
                        return None;
                    }
                    let row = rows
                        .entry(geometry.locate(at).member_offset_bytes)
                        .or_default();
                    row.pending.insert(at, blocks.next()?);
                }
            }
            PayloadKind::Parity => {
                if location % BLOCK_BYTES != 0 || location >= geometry.component_bytes() {
                    return None;
                }
                let row = rows.entry(location).or_default();
                // P comes first; Q is not needed to read what one lost member had.
                for number in 0..payload.checksums.len() {
                    let at = blocks.next()?;
                    if number == 0 {
                        row.parity = Some(at);
                    }
                }
                let pending = std::mem::take(&mut row.pending);
                row.settled.extend(pending);
            }
            _ => return None,
        }
    }
    Some(())
}

/// Everything that rows are put together from.
struct Found<'a, D> {
    devices: &'a [(String, D)],
    pool: &'a BufPool,
    assembly: &'a Assembly,
    journal: &'a D,
}

impl<D: Device + Clone> Found<'_, D> {
    async fn put_together(&self, rows: BTreeMap<u64, Row>) -> Result<Replayed<D>, OpenError> {
        let mut replayed = Replayed::default();
        for (member_offset, row) in &rows {
            if row.parity.is_some() {
                self.fill_in(*member_offset, row, &mut replayed).await?;
            }
            for (at, source) in row.settled.iter().chain(&row.pending) {
                let source = Source::Device(self.journal.clone(), *source);
                replayed.patches.insert(*at, source);
            }
        }
        Ok(replayed)
    }

    /// What a missing member had in a row that may be half in place.
    async fn fill_in(
        &self,
        member_offset: u64,
        row: &Row,
        replayed: &mut Replayed<D>,
    ) -> Result<(), OpenError> {
        let geometry = &self.assembly.geometry;
        let missing = self.assembly.missing();
        let strip = geometry.strip_bytes();
        let (number, inside) = (member_offset / strip, member_offset % strip);
        let map = geometry.row_map(number);
        let place = |data: usize| (number * map.data_count() as u64 + data as u64) * strip + inside;
        let data = 0..map.data_count();
        let unknown: Vec<usize> = data
            .clone()
            .filter(|data| {
                missing[map.data_slot(*data)] && !row.settled.contains_key(&place(*data))
            })
            .collect();
        let (&[wanted], Some(parity)) = (&unknown[..], row.parity) else {
            let ranges = unknown
                .iter()
                .map(|data| place(*data)..place(*data) + BLOCK_BYTES);
            replayed.lost.extend(ranges);
            return Ok(());
        };
        let mut sum = self.journal_block(parity).await?;
        for other in data.filter(|data| *data != wanted) {
            let block = match row.settled.get(&place(other)) {
                Some(at) => self.journal_block(*at).await?,
                None => {
                    self.member_block(map.data_slot(other), member_offset)
                        .await?
                }
            };
            sum.iter_mut()
                .zip(&block)
                .for_each(|(sum, byte)| *sum ^= byte);
        }
        debug_assert_eq!(map.role_of(map.data_slot(wanted)), RowRole::Data(wanted));
        replayed.patches.insert(place(wanted), Source::Bytes(sum));
        Ok(())
    }

    async fn journal_block(&self, at: u64) -> Result<Vec<u8>, OpenError> {
        let read = read_range(self.journal, self.pool, at..at + BLOCK_BYTES).await;
        read.map_err(|error| OpenError::Log(format!("reading its write journal: {error}")))
    }

    async fn member_block(&self, slot: usize, member_offset: u64) -> Result<Vec<u8>, OpenError> {
        let slot = u16::try_from(slot).unwrap_or(u16::MAX);
        let Some(member) = self.assembly.active(slot) else {
            return Err(OpenError::Log(
                "a row of its write journal lacks a member".to_owned(),
            ));
        };
        let at = member.data_offset_bytes + member_offset;
        let device = &self.devices[member.index].1;
        read_range(device, self.pool, at..at + BLOCK_BYTES)
            .await
            .map_err(|error| OpenError::Io {
                index: member.index,
                error,
            })
    }
}
