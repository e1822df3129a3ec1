//! What a member carries: superblock, bitmap, bad blocks and log header, read and checked. Nothing is written.

use std::ops::Range;

use plexum_format::md::{BadBlocks, Bitmap, BitmapHeader, MdVersion, Superblock};
use plexum_format::stripe_log::area::header_offset_bytes;
use plexum_format::stripe_log::{LogGeometry, LogHeader, NoLog, PAGE_BYTES, check_area};
use plexum_format::{FormatError, Found, SECTOR_BYTES};

use crate::adapter::bitmap_sectors;
use crate::assemble::{Examined, Refused};
use plexum_block::buf::BufPool;
use plexum_block::device::{Device, IoError, read_range};
use plexum_block::ranges::RangeSet;
use plexum_engine::detect::detect_on;
use plexum_engine::volume::FormerMember;
use plexum_layout::{Geometry, GeometrySpec, Organisation};

use super::OpenError;

/// Examines one device: superblock and bitmap header.
///
/// # Errors
/// `OpenError` with `index` when there is nothing, or nothing usable.
pub async fn examine<D: Device>(
    device: &D,
    pool: &BufPool,
    index: usize,
    name: &str,
) -> Result<Examined, OpenError> {
    examine_as(device, pool, index, name, None).await
}

/// The same. `version`: the superblock to believe, whatever else is there.
///
/// # Errors
/// As `examine`.
pub async fn examine_as<D: Device>(
    device: &D,
    pool: &BufPool,
    index: usize,
    name: &str,
    version: Option<MdVersion>,
) -> Result<Examined, OpenError> {
    let detection = detect_on(device, pool)
        .await
        .map_err(|error| OpenError::Io { index, error })?;
    let told = version.map(|version| detection.md_of(version));
    let superblock = match detection.best() {
        _ if told.is_some() => match told.flatten() {
            Some(superblock) => superblock.clone(),
            None => return Err(OpenError::NothingFound { index }),
        },
        None => return Err(OpenError::NothingFound { index }),
        Some(Found::Md(superblock)) => (**superblock).clone(),
        Some(Found::Damaged { error, .. }) => {
            return Err(OpenError::Format {
                index,
                error: Box::new(error.clone()),
            });
        }
        Some(_) => {
            return Err(OpenError::NotSupported(
                "this format cannot be served yet".to_owned(),
            ));
        }
    };
    let (bitmap, refused_bitmap) = match read_bitmap_header(device, pool, &superblock).await {
        Ok(header) => (header, None),
        Err(error) => (None, Some(error)),
    };
    let bad_blocks = match read_bad(device, pool, &superblock).await {
        Ok(_) => None,
        Err(OpenError::Format { error, .. }) => Some(error.to_string()),
        Err(OpenError::Io {
            error: IoError::Medium | IoError::OutOfRange,
            ..
        }) => Some("its bad block log cannot be read".to_owned()),
        Err(error) => return Err(error.of_member(index)),
    };
    let log = read_log_header(device, pool, &superblock, bitmap.as_ref()).await;
    Ok(Examined {
        index,
        name: name.to_owned(),
        device_bytes: device.info().size_bytes,
        superblock,
        bitmap,
        refused: Refused {
            bitmap: refused_bitmap,
            bad_blocks,
        },
        log,
    })
}

/// A device with a superblock that nobody has written: it has nothing beside it.
pub(super) fn as_planned<D: Device>(
    device: &D,
    index: usize,
    name: &str,
    planned: &Superblock,
) -> Examined {
    Examined {
        index,
        name: name.to_owned(),
        device_bytes: device.info().size_bytes,
        superblock: planned.clone(),
        bitmap: None,
        refused: Refused::default(),
        log: None,
    }
}

async fn read_log_header<D: Device>(
    device: &D,
    pool: &BufPool,
    superblock: &Superblock,
    bitmap: Option<&BitmapHeader>,
) -> Option<(LogHeader, Option<NoLog>)> {
    let place = log_header_place(superblock)?;
    let page = read_range(device, pool, place).await.ok()?;
    judge_log_page(&page, superblock, bitmap)
}

/// Bytes of a member where the header of its ring has to lie when it has one.
#[must_use]
pub fn log_header_place(superblock: &Superblock) -> Option<Range<u64>> {
    let at = header_offset_bytes(superblock).filter(|_| matches!(superblock.level, 4..=6))?;
    Some(at..at + PAGE_BYTES as u64)
}

/// The header of the member's ring in what was read at `log_header_place`, and what speaks against its place (L1).
#[must_use]
pub fn judge_log_page(
    page: &[u8],
    superblock: &Superblock,
    bitmap: Option<&BitmapHeader>,
) -> Option<(LogHeader, Option<NoLog>)> {
    let at = log_header_place(superblock)?.start;
    let header = LogHeader::parse(page, at).ok()?;
    let is_ours = header.array_uuid == superblock.array_uuid
        && header.device_uuid == superblock.device_uuid
        && header.geometry == LogGeometry::of(superblock)
        && header.area.header_offset_bytes() == at;
    if !is_ours {
        return None; // of an array that was here before, or of this one before it changed its shape
    }
    let bitmap = bitmap.map_or(0, bitmap_sectors);
    let reason = check_area(&header.area, superblock, bitmap).err();
    Some((header, reason))
}

async fn read_bitmap_header<D: Device>(
    device: &D,
    pool: &BufPool,
    superblock: &Superblock,
) -> Result<Option<BitmapHeader>, FormatError> {
    let room = superblock.bitmap_room_sectors(device.info().size_bytes / SECTOR_BYTES);
    let (Some(sector), Some(room)) = (superblock.bitmap_sector(), room) else {
        return Ok(None);
    };
    let start = sector * SECTOR_BYTES;
    let Ok(bytes) = read_range(device, pool, start..start + 512).await else {
        return Ok(None);
    };
    BitmapHeader::parse(&bytes, start, room).map(Some)
}

pub(super) async fn read_bitmap<D: Device>(
    device: &D,
    pool: &BufPool,
    superblock: &Superblock,
) -> Option<Bitmap> {
    let header = read_bitmap_header(device, pool, superblock).await.ok()??;
    let start = superblock.bitmap_sector()? * SECTOR_BYTES;
    let room = superblock.bitmap_room_sectors(device.info().size_bytes / SECTOR_BYTES)?;
    let bytes = read_range(
        device,
        pool,
        start..start + header.area_sectors() * SECTOR_BYTES,
    )
    .await
    .ok()?;
    Bitmap::parse(&bytes, start, room).ok()
}

/// Bad ranges of a member, in bytes of its data area. A list that is damaged or cannot be read says that nothing of the
/// member can be trusted: assembly leaves it out.
pub(crate) async fn read_bad<D: Device>(
    device: &D,
    pool: &BufPool,
    superblock: &Superblock,
) -> Result<RangeSet, OpenError> {
    let mut bad = RangeSet::new();
    let (true, Some(area), Some(sector)) = (
        superblock.has_bad_blocks,
        superblock.bad_block_log,
        superblock.bad_block_log_sector(),
    ) else {
        return Ok(bad);
    };
    let start = sector * SECTOR_BYTES;
    let bytes = read_range(
        device,
        pool,
        start..start + u64::from(area.size_sectors) * SECTOR_BYTES,
    )
    .await
    .map_err(|error| OpenError::Io { index: 0, error })?;
    let log = BadBlocks::parse(&bytes, area.shift, start).map_err(|error| OpenError::Format {
        index: 0,
        error: Box::new(error),
    })?;
    for range in log.ranges() {
        let from = range.start.max(superblock.data_offset_sectors) - superblock.data_offset_sectors;
        let to = range.end.saturating_sub(superblock.data_offset_sectors);
        if from < to {
            bad.insert(from * SECTOR_BYTES..to * SECTOR_BYTES);
        }
    }
    Ok(bad)
}

/// What a device that was a member says of itself, for a re-add. `None`: it had no slot, or its bad-block list cannot
/// be read, so that nobody knows what of it may be trusted and it has to be copied whole.
pub async fn former_member<D: Device>(
    device: &D,
    pool: &BufPool,
    superblock: &Superblock,
) -> Option<FormerMember> {
    Some(FormerMember {
        slot: superblock.role().slot()?.0,
        event_count: superblock.events.0,
        was_active: superblock.rebuild_offset_sectors.is_none(),
        bad_ranges: read_bad(device, pool, superblock).await.ok()?,
        data_start_bytes: superblock.data_offset_sectors * SECTOR_BYTES,
        geometry: whole_geometry(superblock),
    })
}

/// The one geometry that a superblock tells of; `None`: there are two, or none that is known.
fn whole_geometry(superblock: &Superblock) -> Option<Geometry> {
    if superblock.reshape.is_some() {
        return None;
    }
    let spec = GeometrySpec {
        organisation: Organisation::from_md(superblock.level, superblock.layout).ok()?,
        member_count: u16::try_from(superblock.member_count).ok()?,
        strip_bytes: u64::from(superblock.strip_sectors) * SECTOR_BYTES,
        component_bytes: superblock.component_sectors.checked_mul(SECTOR_BYTES)?,
        member_sizes_bytes: Vec::new(),
    };
    Geometry::new(&spec).ok()
}
