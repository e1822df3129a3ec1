//! The header of a bitmap.

use std::mem::offset_of;

use zerocopy::FromBytes;

use crate::error::{FormatError, Problem, StructurePlace};
use crate::kept::Kept;
use crate::units::{EventCount, SECTOR_BYTES};

use super::{
    BitmapKind, HEADER_BYTES, LOCKLESS_STATES_AT, MAGIC, MAX_REGIONS, MAX_WRITE_BEHIND, RawHeader,
    STATE_FIRST_USE, STATE_STALE, STATE_WRITE_ERROR, STATES_LOCKLESS, VERSION, VERSION_LOCKLESS,
    area_bytes,
};

/// The checked header of a bitmap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitmapHeader {
    /// How the regions are told.
    pub kind: BitmapKind,
    /// Array UUID, raw bytes: compare with [`crate::md::Superblock::bitmap_uuid`].
    pub uuid: [u8; 16],
    /// Events of the superblock that was written after it.
    pub events: EventCount,
    /// Events when the array was last whole: a member that has at least these can be brought up to date by the bitmap.
    pub events_cleared: EventCount,
    /// What the regions cover together.
    pub sync_size_sectors: u64,
    /// Bytes of a region (md: chunksize), a power of two of at least 512.
    pub region_bytes: u32,
    /// Seconds between two runs of the one who clears bits.
    pub daemon_sleep_seconds: u32,
    /// Most writes that may be behind on a write-mostly member; 0: none.
    pub write_behind: u32,
    /// Sectors reserved for header and bits; 0 when not recorded.
    pub reserved_sectors: u32,
    /// The bitmap missed changes: every region may differ.
    pub is_stale: bool,
    /// Writing the bitmap failed once.
    pub has_write_error: bool,
    pub(super) raw: Kept<HEADER_BYTES>,
}

impl BitmapHeader {
    /// Checks the first 256 bytes of a bitmap that lies at `offset_bytes` of its member and has `room_sectors` to
    /// itself (see [`crate::md::Superblock::bitmap_room_sectors`]).
    ///
    /// # Errors
    /// [`FormatError`] naming the field; clustered and host-endian bitmaps are refused by name, unknown versions and
    /// flags by number ([`Problem::Unsupported`]: whoever reads it must not write the array).
    pub fn parse(bytes: &[u8], offset_bytes: u64, room_sectors: u64) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: "md bitmap",
            base_bytes: offset_bytes,
        };
        let Some(raw_bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            let found = format!("{} bytes", bytes.len());
            return Err(place.error(Problem::TooShort, 0, "header", found, "256 bytes"));
        };
        let (raw, _) = RawHeader::ref_from_prefix(raw_bytes).expect("256 bytes are a header");
        let kind = check_kind(raw, place)?;
        let region = region_bytes(raw, kind, place)?;
        let sleep = raw.daemon_sleep.get();
        place.check(
            sleep >= 1,
            at!(daemon_sleep),
            "daemon_sleep",
            sleep,
            "at least 1 second",
        )?;
        let behind = raw.write_behind.get();
        let expected = format!("at most {MAX_WRITE_BEHIND}");
        let fits = behind <= MAX_WRITE_BEHIND;
        place.check(fits, at!(write_behind), "write_behind", behind, expected)?;
        let state = raw.state.get();
        let header = Self {
            kind,
            uuid: raw.uuid,
            events: EventCount(raw.events.get()),
            events_cleared: EventCount(raw.events_cleared.get()),
            sync_size_sectors: raw.sync_size.get(),
            region_bytes: region,
            daemon_sleep_seconds: sleep,
            write_behind: behind,
            reserved_sectors: raw.sectors_reserved.get(),
            // Lockless, first use: the kernel is about to make the states.
            is_stale: state & STATE_STALE != 0
                || kind == BitmapKind::Lockless && state & STATE_FIRST_USE != 0,
            has_write_error: state & STATE_WRITE_ERROR != 0,
            raw: Kept::new(*raw_bytes),
        };
        header.check_room(room_sectors, place)?;
        Ok(header)
    }

    pub(super) fn check_room(
        &self,
        room_sectors: u64,
        place: StructurePlace,
    ) -> Result<(), FormatError> {
        let sync_size = self.sync_size_sectors;
        let regions = self.region_count();
        let regions_max = match self.kind {
            BitmapKind::Bits => MAX_REGIONS,
            BitmapKind::Lockless => MAX_REGIONS / 8, // a byte each
        };
        if regions > regions_max {
            let found = format!("{regions} regions");
            let expected = format!("at most {regions_max}");
            return Err(place.error(
                Problem::Unsupported,
                at!(sync_size),
                "sync_size",
                found,
                expected,
            ));
        }
        let needed = self.area_sectors();
        let found = format!("{sync_size} sectors, whose bits take {needed} sectors");
        let expected = format!("bits that fit the {room_sectors} sectors of room");
        place.check(
            needed <= room_sectors,
            at!(sync_size),
            "sync_size",
            found,
            expected,
        )?;
        let reserved = u64::from(self.reserved_sectors);
        let fits = reserved == 0 || reserved >= needed;
        let expected = format!("0 or at least {needed}");
        place.check(
            fits,
            at!(sectors_reserved),
            "sectors_reserved",
            reserved,
            expected,
        )
    }

    /// Number of regions, so of bits.
    #[must_use]
    pub fn region_count(&self) -> u64 {
        self.sync_size_sectors.div_ceil(self.region_sectors())
    }

    /// Sectors of a region; the last one may be cut.
    #[must_use]
    pub fn region_sectors(&self) -> u64 {
        (u64::from(self.region_bytes) / SECTOR_BYTES).max(1)
    }

    /// Sectors that header and bits take.
    #[must_use]
    pub fn area_sectors(&self) -> u64 {
        let bytes = match self.kind {
            BitmapKind::Bits => area_bytes(self.region_count()),
            BitmapKind::Lockless => LOCKLESS_STATES_AT as u64 + self.region_count(),
        };
        bytes.div_ceil(SECTOR_BYTES)
    }

    /// Offset from the start of the area of the byte that holds the region's bit or state.
    pub(super) fn byte_of(&self, region: u64) -> usize {
        match self.kind {
            BitmapKind::Bits => HEADER_BYTES + (region / 8) as usize,
            BitmapKind::Lockless => LOCKLESS_STATES_AT + region as usize,
        }
    }

    /// The 256 bytes with the present values.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = *self.raw;
        let (raw, _) = RawHeader::mut_from_prefix(&mut bytes).expect("256 bytes are a header");
        raw.magic.set(MAGIC);
        raw.version.set(match self.kind {
            BitmapKind::Bits => VERSION,
            BitmapKind::Lockless => VERSION_LOCKLESS,
        });
        raw.uuid = self.uuid;
        raw.events.set(self.events.0);
        raw.events_cleared.set(self.events_cleared.0);
        raw.sync_size.set(self.sync_size_sectors);
        let old_state = raw.state.get();
        let mut state = old_state & !(STATE_STALE | STATE_WRITE_ERROR);
        let is_first_use = self.kind == BitmapKind::Lockless && old_state & STATE_FIRST_USE != 0;
        state |= if self.is_stale && !is_first_use {
            STATE_STALE
        } else {
            old_state & STATE_STALE
        };
        if !self.is_stale {
            state &= !(STATE_STALE | STATE_FIRST_USE);
        }
        state |= if self.has_write_error {
            STATE_WRITE_ERROR
        } else {
            0
        };
        raw.state.set(state);
        raw.chunksize.set(match self.kind {
            BitmapKind::Bits => self.region_bytes,
            BitmapKind::Lockless => self.region_bytes / SECTOR_BYTES as u32,
        });
        raw.daemon_sleep.set(self.daemon_sleep_seconds);
        raw.write_behind.set(self.write_behind);
        raw.sectors_reserved.set(self.reserved_sectors);
        bytes
    }
}

/// Bytes of a region: md counts them in bytes, in a lockless bitmap in sectors.
fn region_bytes(
    raw: &RawHeader,
    kind: BitmapKind,
    place: StructurePlace,
) -> Result<u32, FormatError> {
    let recorded = raw.chunksize.get();
    let (region, expected) = match kind {
        BitmapKind::Bits => (
            Some(recorded).filter(|bytes| u64::from(*bytes) >= SECTOR_BYTES),
            "a power of two of at least 512 bytes",
        ),
        BitmapKind::Lockless => (
            recorded.checked_mul(SECTOR_BYTES as u32),
            "a power of two of at most 4194304 sectors",
        ),
    };
    let region = region.filter(|region| region.is_power_of_two());
    place.check(
        region.is_some(),
        at!(chunksize),
        "chunksize",
        recorded,
        expected,
    )?;
    Ok(region.unwrap_or(recorded))
}

fn check_kind(raw: &RawHeader, place: StructurePlace) -> Result<BitmapKind, FormatError> {
    if raw.magic.get() != MAGIC {
        let found = format!("{:#010x}", raw.magic.get());
        let expected = format!("{MAGIC:#010x}");
        return Err(place.error(Problem::NoMagic, at!(magic), "magic", found, expected));
    }
    let found = match raw.version.get() {
        VERSION | VERSION_LOCKLESS => None,
        3 => Some("3 (bits in the order of the machine that made it)".to_owned()),
        5 => Some("5 (clustered)".to_owned()),
        other => Some(other.to_string()),
    };
    if let Some(found) = found {
        let problem = Problem::Unsupported;
        return Err(place.error(problem, at!(version), "version", found, VERSION));
    }
    let nodes = raw.nodes.get();
    if nodes != 0 {
        let problem = Problem::Unsupported;
        return Err(place.error(problem, at!(nodes), "nodes", nodes, "0 (not clustered)"));
    }
    let (kind, known) = match raw.version.get() {
        VERSION_LOCKLESS => (BitmapKind::Lockless, STATES_LOCKLESS),
        _ => (BitmapKind::Bits, 0),
    };
    let known = known | STATE_STALE | STATE_WRITE_ERROR;
    let state = raw.state.get();
    if state & !known != 0 {
        let found = format!("{state:#x} (unknown {:#x})", state & !known);
        let expected = format!("bits of {known:#x}");
        return Err(place.error(Problem::Unsupported, at!(state), "state", found, expected));
    }
    Ok(kind)
}
