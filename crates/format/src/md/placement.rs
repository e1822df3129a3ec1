//! Where the structures and the data of a new member go.
//!
//! Invariants:
//! - nothing overlaps, everything lies on the device, data begin on a 4 KiB border;
//! - bitmap and bad block log have the same place, relative to the superblock, on every member;
//! - behind a 1.1 or 1.2 superblock at least 1 MiB stays free for a stripe log.
//!
//! Source: linux-md.md section 1 (layout of a member as mdadm makes it), cli.md (Defaults).

use crate::error::{FormatError, Problem, StructurePlace};
use crate::units::SECTOR_BYTES;

use super::superblock::{BadBlockArea, MdVersion, super_offset_sectors};

const MEBI_SECTORS: u64 = (1 << 20) / SECTOR_BYTES;
const GIBI_SECTORS: u64 = (1 << 30) / SECTOR_BYTES;
/// Sectors of a superblock and of a bad block log.
const PAGE_SECTORS: u64 = 8;
/// Room that is left for a stripe log at least.
const LOG_SECTORS: u64 = MEBI_SECTORS;
/// What mdadm leaves free on large devices, for reshapes.
const HEADROOM_SECTORS: u64 = 128 * MEBI_SECTORS;
/// Room between a 0.90 superblock and the end of its 64 KiB.
const V090_BITMAP_SECTORS: u64 = 120;
/// Least data that a member can have.
const MIN_DATA_SECTORS: u64 = 16;

/// What is known when a new member is laid out.
#[derive(Debug, Clone, Copy)]
pub struct PlacementRequest {
    /// Version of the superblock.
    pub version: MdVersion,
    /// Size of this member's device.
    pub device_sectors: u64,
    /// Size of the smallest member's device: decides what must be equal on all.
    pub smallest_device_sectors: u64,
    /// Strip size; 0 where the level has none.
    pub strip_sectors: u32,
    /// Bytes that header and bits of the bitmap may need at most ([`super::bitmap::area_bytes`]); `None`: no bitmap.
    pub bitmap_bytes: Option<u64>,
}

/// Where everything of a new member goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Sector of the superblock.
    pub super_offset_sectors: u64,
    /// First data sector.
    pub data_offset_sectors: u64,
    /// Sectors for data.
    pub data_size_sectors: u64,
    /// Sectors from the superblock to the bitmap, when one is wanted.
    pub bitmap_offset_sectors: Option<i32>,
    /// Sectors kept free for a bitmap, wanted or not.
    pub bitmap_reserved_sectors: u32,
    /// Place of the bad block log (not in 0.90).
    pub bad_block_log: Option<BadBlockArea>,
}

/// Lays out a member.
///
/// # Errors
/// [`Problem::Request`] when the device is too small for it, or the bitmap too large for the version.
pub fn place_member(request: &PlacementRequest) -> Result<Placement, FormatError> {
    let refuse = |field, found: String, expected: String| {
        let place = StructurePlace {
            structure: request.version.structure(),
            base_bytes: 0,
        };
        Err(place.error(Problem::Request, 0, field, found, expected))
    };
    let reserve = bitmap_reserve(request);
    let placement = super_offset_sectors(request.version, request.device_sectors)
        .and_then(|super_offset| arrange(request, super_offset, reserve));
    let Some(placement) = placement else {
        let needed = least_device_sectors(request, reserve);
        let found = format!(
            "{} bytes",
            request.device_sectors.saturating_mul(SECTOR_BYTES)
        );
        return refuse(
            "device size",
            found,
            format!("at least {} bytes", needed * SECTOR_BYTES),
        );
    };
    if request.version == MdVersion::V090 && reserve > V090_BITMAP_SECTORS {
        let found = format!("{} bytes", reserve * SECTOR_BYTES);
        return refuse(
            "bitmap size",
            found,
            "at most 60 KiB; choose larger regions".to_owned(),
        );
    }
    Ok(placement)
}

fn arrange(request: &PlacementRequest, super_offset: u64, reserve: u64) -> Option<Placement> {
    let has_bitmap = request.bitmap_bytes.is_some();
    // Reserves are at most the 32 MiB of MAX_REGIONS bits: they fit an i32.
    let reserve_offset = i32::try_from(reserve).ok()?;
    let log_at = |offset_sectors: i32| {
        Some(BadBlockArea {
            offset_sectors,
            size_sectors: PAGE_SECTORS as u16,
            shift: 0,
        })
    };
    let page = PAGE_SECTORS as i32;
    let (data_offset, data_end, bitmap_offset, bad_block_log) = match request.version {
        MdVersion::V11 | MdVersion::V12 => {
            let first_free = super_offset + 2 * PAGE_SECTORS + reserve;
            let headroom = headroom_sectors(request).max(LOG_SECTORS);
            // As mdadm counts it: 1.1 is treated as if its superblock were at sector 8 too.
            let data_offset = (24 + reserve + headroom).next_multiple_of(MEBI_SECTORS);
            assert!(
                first_free + LOG_SECTORS <= data_offset,
                "a stripe log fits before the data"
            );
            (
                data_offset,
                request.device_sectors,
                page,
                log_at(page + reserve_offset),
            )
        }
        MdVersion::V10 => {
            let end = super_offset.checked_sub(PAGE_SECTORS + reserve)?;
            (0, end, -(page + reserve_offset), log_at(-page))
        }
        MdVersion::V090 => (0, super_offset, page, None),
    };
    let data_size = data_end.checked_sub(data_offset)?;
    (data_size >= MIN_DATA_SECTORS.max(u64::from(request.strip_sectors))).then_some(Placement {
        super_offset_sectors: super_offset,
        data_offset_sectors: data_offset,
        data_size_sectors: data_size,
        bitmap_offset_sectors: has_bitmap.then_some(bitmap_offset),
        bitmap_reserved_sectors: reserve as u32, // fits i32, see above
        bad_block_log,
    })
}

/// Sectors kept for a bitmap: mdadm's by device size, or more when the wanted one needs more.
fn bitmap_reserve(request: &PlacementRequest) -> u64 {
    let usual = match request.smallest_device_sectors {
        0..=128 => 0,
        sectors if sectors <= 8 * GIBI_SECTORS => 8,
        sectors if sectors <= 200 * GIBI_SECTORS => 128,
        _ => 256,
    };
    let wanted = request.bitmap_bytes.unwrap_or(0).min(1 << 40);
    let wanted = wanted.div_ceil(SECTOR_BYTES).next_multiple_of(PAGE_SECTORS);
    if request.version == MdVersion::V090 {
        wanted
    } else {
        wanted.max(usual)
    }
}

/// Space that mdadm leaves for reshapes: 128 MiB, halved while above a thousandth of the device, at least two strips.
fn headroom_sectors(request: &PlacementRequest) -> u64 {
    let limit = request.smallest_device_sectors / 1024;
    let least = 2 * u64::from(request.strip_sectors);
    let mut headroom = HEADROOM_SECTORS;
    while headroom > limit && headroom / 2 >= least.max(1) {
        headroom /= 2;
    }
    headroom
}

/// Roughly the smallest device that would do, for the message.
fn least_device_sectors(request: &PlacementRequest, reserve: u64) -> u64 {
    let data = MIN_DATA_SECTORS.max(u64::from(request.strip_sectors));
    match request.version {
        MdVersion::V11 | MdVersion::V12 => {
            let strips = 2 * u64::from(request.strip_sectors);
            (24 + reserve + LOG_SECTORS.max(strips)).next_multiple_of(MEBI_SECTORS) + data
        }
        MdVersion::V10 => data + 32 + reserve,
        MdVersion::V090 => (data + 128).next_multiple_of(128) + 128,
    }
}

/// Sectors that each member of a new array uses, from the data sizes of all: the smallest, whole strips (without strips
/// whole 4 KiB). 0 for linear and RAID-0, where every member counts with all it has.
#[must_use]
pub fn component_sectors(level: i32, strip_sectors: u32, data_sizes_sectors: &[u64]) -> u64 {
    if level <= 0 {
        return 0;
    }
    let unit = if strip_sectors == 0 {
        8
    } else {
        u64::from(strip_sectors)
    };
    let smallest = data_sizes_sectors.iter().min().copied().unwrap_or(0);
    smallest / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: MdVersion, device_sectors: u64) -> PlacementRequest {
        PlacementRequest {
            version,
            device_sectors,
            smallest_device_sectors: device_sectors,
            strip_sectors: 1024,
            bitmap_bytes: Some(4096),
        }
    }

    #[test]
    fn data_begin_two_mebibytes_into_small_members_and_leave_room_for_a_log() {
        for version in [MdVersion::V11, MdVersion::V12] {
            let placement = place_member(&request(version, 64 * MEBI_SECTORS)).unwrap();
            assert_eq!(placement.data_offset_sectors, 2 * MEBI_SECTORS);
            assert_eq!(placement.data_size_sectors, 62 * MEBI_SECTORS);
            assert_eq!(placement.bitmap_offset_sectors, Some(8));
            assert_eq!(placement.bad_block_log.unwrap().offset_sectors, 16);
        }
    }

    #[test]
    fn large_members_get_the_headroom_that_mdadm_leaves() {
        let mut big = request(MdVersion::V12, 4 << 31); // 4 TiB
        let placement = place_member(&big).unwrap();
        assert_eq!(placement.data_offset_sectors, 129 * MEBI_SECTORS);
        assert_eq!(placement.bad_block_log.unwrap().offset_sectors, 8 + 256);
        big.device_sectors = 1 << 50; // the smallest member decides, not this one
        assert_eq!(
            place_member(&big).unwrap().data_offset_sectors,
            129 * MEBI_SECTORS
        );
    }

    #[test]
    fn nothing_overlaps_whatever_the_device_size() {
        let sizes = (0..400)
            .chain((1..200).map(|n| n * 977))
            .chain((20..50).map(|n| (1 << n) + 5));
        for device_sectors in sizes {
            for version in MdVersion::ALL {
                let Ok(placement) = place_member(&request(version, device_sectors)) else {
                    assert!(
                        device_sectors < 8 * MEBI_SECTORS,
                        "{version} {device_sectors}"
                    );
                    continue;
                };
                let from_super = |offset: i32| {
                    placement
                        .super_offset_sectors
                        .checked_add_signed(i64::from(offset))
                        .unwrap()
                };
                let mut areas = vec![
                    (placement.super_offset_sectors, 8),
                    (placement.data_offset_sectors, placement.data_size_sectors),
                    (
                        from_super(placement.bitmap_offset_sectors.unwrap()),
                        u64::from(placement.bitmap_reserved_sectors),
                    ),
                ];
                areas.extend(
                    placement
                        .bad_block_log
                        .map(|log| (from_super(log.offset_sectors), 8)),
                );
                areas.sort_unstable();
                assert!(
                    areas
                        .windows(2)
                        .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0),
                    "{areas:?}"
                );
                let last = areas.last().unwrap();
                assert!(
                    last.0 + last.1 <= device_sectors,
                    "{version} {device_sectors} {areas:?}"
                );
                assert_eq!(placement.data_offset_sectors % 8, 0);
            }
        }
    }

    #[test]
    fn a_refusal_names_a_size_that_works() {
        for version in MdVersion::ALL {
            for strip_sectors in [0, 8, 128, 1024, 65536] {
                let mut small = request(version, 100);
                small.strip_sectors = strip_sectors;
                if version == MdVersion::V10 && strip_sectors <= 8 {
                    continue; // 50 KiB are enough
                }
                let error = place_member(&small).unwrap_err();
                let bytes: u64 = error.expected.split(' ').nth(2).unwrap().parse().unwrap();
                small.device_sectors = bytes / SECTOR_BYTES;
                small.smallest_device_sectors = small.device_sectors;
                assert!(
                    place_member(&small).is_ok(),
                    "{version} {strip_sectors} {error}"
                );
            }
        }
    }

    #[test]
    fn components_are_whole_strips_of_the_smallest_member() {
        assert_eq!(component_sectors(5, 128, &[1000, 900, 1200]), 896);
        assert_eq!(component_sectors(1, 0, &[1001, 1003]), 1000);
        assert_eq!(component_sectors(0, 128, &[1000, 900]), 0);
    }

    #[test]
    fn a_bitmap_that_0_90_cannot_hold_is_refused() {
        let mut large = request(MdVersion::V090, 64 * MEBI_SECTORS);
        large.bitmap_bytes = Some(61 << 10);
        assert_eq!(place_member(&large).unwrap_err().field, "bitmap size");
        large.bitmap_bytes = Some(60 << 10);
        assert!(place_member(&large).is_ok());
    }
}
