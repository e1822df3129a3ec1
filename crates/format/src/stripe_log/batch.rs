//! Batches: what one write to the ring of a member holds.

use std::mem::{offset_of, size_of};

use zerocopy::{FromBytes, IntoBytes};

use crate::error::{FormatError, Problem, StructurePlace};
use crate::md::ppl::crc32c;
use crate::units::SECTOR_BYTES;

use super::{
    BATCH, BATCH_MAGIC, BATCH_RECORDS_MAX, LogGeometry, LogHeader, PAGE_BYTES, RawBatch, RawRecord,
    Slots,
};

/// One write to a part of a row, as one of its members holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Order of the writes; never used twice in a life of the log.
    pub sequence: u64,
    /// The row.
    pub row: u64,
    /// First byte of the part within the strip.
    pub start_bytes: u32,
    /// Length of the part.
    pub length_bytes: u32,
    /// CRC-32C of this member's block.
    pub checksum: u32,
    /// This member's slot.
    pub slot: u16,
    /// All slots with a block of this write.
    pub touched: Slots,
}

impl Record {
    /// Whether `block` is what was logged.
    #[must_use]
    pub fn matches(&self, block: &[u8]) -> bool {
        block.len() as u64 == u64::from(self.length_bytes) && crc32c(block) == self.checksum
    }
}

/// Checksum of a block as records carry it.
#[must_use]
pub fn block_checksum(block: &[u8]) -> u32 {
    crc32c(block)
}

/// The first page of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Life of the log.
    pub log_id: u64,
    /// Number among the batches of its member.
    pub number: u64,
    /// Where it begins, in bytes since the ring began.
    pub position: u64,
    /// Its records, in ascending sequence.
    pub records: Vec<Record>,
}

impl Batch {
    /// Reads the page of batch `number` of the log `header`, expected at `position`.
    ///
    /// # Errors
    /// What does not fit: usually the chain simply ends here.
    pub fn parse(
        page: &[u8],
        header: &LogHeader,
        number: u64,
        position: u64,
    ) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: BATCH,
            base_bytes: header.area.offset_bytes(position),
        };
        let Ok((raw, _)) = RawBatch::ref_from_prefix(page) else {
            let (found, expected) = (page.len(), PAGE_BYTES);
            return Err(place.error(Problem::TooShort, 0, "area", found, expected));
        };
        if raw.magic != BATCH_MAGIC {
            return Err(place.error(Problem::NoMagic, 0, "magic", "another", "a batch's"));
        }
        if raw.checksum.get() != batch_checksum(raw) {
            let at = at!(RawBatch, checksum);
            return Err(place.error(Problem::Checksum, at, "checksum", "wrong", "the page's"));
        }
        let is_ours = raw.log_id.get() == header.log_id
            && raw.number.get() == number
            && raw.position.get() == position;
        if !is_ours {
            let found = format!("batch {} at {}", raw.number.get(), raw.position.get());
            let expected = format!("batch {number} at {position} of this log");
            let at = at!(RawBatch, log_id);
            return Err(place.error(Problem::Foreign, at, "log_id", found, expected));
        }
        let count = raw.record_count.get();
        let fits =
            usize::try_from(count).is_ok_and(|count| (1..=BATCH_RECORDS_MAX).contains(&count));
        let at = at!(RawBatch, record_count);
        place.check(fits, at, "record_count", count, "1 to 63")?;
        let raws = raw.records.iter().take(count as usize).enumerate();
        let records = raws.map(|(index, raw)| decode_record(raw, index, &header.geometry, place));
        let batch = Self {
            log_id: header.log_id,
            number,
            position,
            records: records.collect::<Result<_, _>>()?,
        };
        let end = header.area.within_ring(position) + batch.length_bytes();
        let expected = format!("at most {} bytes", header.area.ring_bytes);
        place.check(
            end <= header.area.ring_bytes,
            at,
            "record_count",
            end,
            expected,
        )?;
        Ok(batch)
    }

    /// The batch's first page, checksum computed.
    ///
    /// # Panics
    /// With no record or more than [`BATCH_RECORDS_MAX`].
    #[must_use]
    pub fn encode_page(&self) -> [u8; PAGE_BYTES] {
        assert!(
            (1..=BATCH_RECORDS_MAX).contains(&self.records.len()),
            "the records fit the page"
        );
        let mut page = [0; PAGE_BYTES];
        let (raw, _) = RawBatch::mut_from_prefix(&mut page).expect("a batch's page is a page");
        raw.magic = BATCH_MAGIC;
        raw.record_count.set(self.records.len() as u32);
        raw.log_id.set(self.log_id);
        raw.number.set(self.number);
        raw.position.set(self.position);
        for (raw, record) in raw.records.iter_mut().zip(&self.records) {
            raw.sequence.set(record.sequence);
            raw.row.set(record.row);
            raw.start_bytes.set(record.start_bytes);
            raw.length_bytes.set(record.length_bytes);
            raw.checksum.set(record.checksum);
            raw.slot.set(record.slot);
            raw.touched = record.touched.0;
        }
        let sum = batch_checksum(raw);
        raw.checksum.set(sum);
        page
    }

    /// Length of the whole batch, rounded up to pages.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        let lengths = self.records.iter().map(|record| record.length_bytes);
        batch_bytes(lengths.map(u64::from).sum()) // at most 63 x 4 GiB
    }

    /// Position of each record's block, in bytes since the ring began.
    pub fn block_positions(&self) -> impl Iterator<Item = u64> + '_ {
        let mut next = self.position + PAGE_BYTES as u64;
        self.records.iter().map(move |record| {
            let at = next;
            next += u64::from(record.length_bytes);
            at
        })
    }
}

/// Bytes that a batch takes in the ring, with blocks of `block_bytes` together.
#[must_use]
pub fn batch_bytes(block_bytes: u64) -> u64 {
    (PAGE_BYTES as u64 + block_bytes).next_multiple_of(PAGE_BYTES as u64)
}

fn decode_record(
    raw: &RawRecord,
    index: usize,
    geometry: &LogGeometry,
    place: StructurePlace,
) -> Result<Record, FormatError> {
    let base = (offset_of!(RawBatch, records) + index * size_of::<RawRecord>()) as u64;
    let (start, length) = (raw.start_bytes.get(), raw.length_bytes.get());
    let strip_bytes = u64::from(geometry.strip_sectors) * SECTOR_BYTES;
    let is_whole = |bytes: u32| u64::from(bytes).is_multiple_of(SECTOR_BYTES);
    let fits = length > 0
        && is_whole(start)
        && is_whole(length)
        && u64::from(start) + u64::from(length) <= strip_bytes;
    let at = base + at!(RawRecord, length_bytes);
    let expected = format!("whole sectors inside a strip of {strip_bytes} bytes");
    place.check(fits, at, "length_bytes", length, expected)?;
    let rows = geometry.component_sectors / u64::from(geometry.strip_sectors);
    let row = raw.row.get();
    let at = base + at!(RawRecord, row);
    place.check(row < rows, at, "row", row, format!("below {rows}"))?;
    let (slot, touched) = (raw.slot.get(), Slots(raw.touched));
    let count = geometry.member_count as usize; // at most SLOTS_MAX
    let fits = touched.contains(usize::from(slot)) && touched.iter().all(|slot| slot < count);
    let at = base + at!(RawRecord, touched);
    place.check(
        fits,
        at,
        "touched",
        slot,
        format!("slots below {count}, this one too"),
    )?;
    Ok(Record {
        sequence: raw.sequence.get(),
        row,
        start_bytes: start,
        length_bytes: length,
        checksum: raw.checksum.get(),
        slot,
        touched,
    })
}

fn batch_checksum(raw: &RawBatch) -> u32 {
    let mut raw = raw.clone();
    raw.checksum.set(0);
    crc32c(raw.as_bytes())
}
