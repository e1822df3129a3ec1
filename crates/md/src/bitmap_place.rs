//! Where a bitmap goes on members that were made without one. Pure.
//!
//! Invariants:
//! - it takes only space between the superblock and what comes next, so it never meets data, bad-block log or stripe
//!   log;
//! - its offset from the superblock is the same on every member;
//! - a region size that nobody asked for grows until the bitmap fits; one that was asked for is kept or refused.
//!
//! Source: linux-md.md sections 1 and 2 (layout of a member), 3 (bitmap).

use plexum_format::md::ppl::{MAX_MEMBERS, RING_SECTORS};
use plexum_format::md::{Bitmap, MdVersion, NewBitmap, PplArea, Superblock, bitmap};
use plexum_format::{EventCount, SECTOR_BYTES};

use plexum_engine::metadata::BitmapPlan;

/// Largest region: md keeps the size in 32 bits.
const REGION_BYTES_MAX: u64 = 1 << 31;
/// Sectors of a partial parity log, as mdadm makes it.
const PPL_SECTORS_MAX: u64 = 2048;
/// Sectors from a superblock to the first thing behind it.
const PAGE_SECTORS: u64 = 8;
/// Room between a 0.90 superblock and the end of its 64 KiB, in sectors.
const V090_ROOM_SECTORS: u64 = 120;

/// Plans a bitmap for the array of these members. `ring_sectors`: where each one's stripe log begins (L1).
pub(super) fn plan_bitmap(
    members: &[Option<&Superblock>],
    ring_sectors: &[Option<u64>],
    sync_bytes: u64,
    region_bytes: Option<u64>,
    event_count: u64,
) -> Result<BitmapPlan, String> {
    let first = members
        .iter()
        .flatten()
        .next()
        .ok_or("no member is there")?;
    if members.iter().flatten().any(|member| member.ppl.is_some()) {
        return Err("the array has a partial parity log, which excludes a bitmap".to_owned());
    }
    if members.iter().flatten().any(|member| member.has_journal) {
        return Err("the array has a journal, which excludes a bitmap".to_owned());
    }
    let region = region_that_fits(members, ring_sectors, sync_bytes, region_bytes)?;
    let area_sectors = area_sectors(sync_bytes, region);
    let offset_sectors = offset_sectors(first, area_sectors);
    let new = NewBitmap {
        uuid: first.bitmap_uuid(),
        events: EventCount(event_count),
        sync_size_sectors: sync_bytes / SECTOR_BYTES,
        region_bytes: u32::try_from(region).map_err(|_| "a region is at most 2 GiB".to_owned())?,
        reserved_sectors: u32::try_from(area_sectors).unwrap_or(0),
        is_all_set: false,
    };
    let map = Bitmap::create(&new).map_err(|error| error.to_string())?;
    let start = |member: &Superblock| {
        let sector = member
            .super_offset_sectors
            .checked_add_signed(i64::from(offset_sectors));
        sector.map(|sector| sector * SECTOR_BYTES)
    };
    Ok(BitmapPlan {
        region_bytes: region,
        header: map.header.encode().to_vec(),
        starts_bytes: members
            .iter()
            .map(|member| member.and_then(start))
            .collect(),
        offset_sectors,
    })
}

/// Sectors of a bitmap with regions of this size.
fn area_sectors(sync_bytes: u64, region_bytes: u64) -> u64 {
    bitmap::area_bytes(sync_bytes.div_ceil(region_bytes))
        .div_ceil(SECTOR_BYTES)
        .next_multiple_of(PAGE_SECTORS)
}

/// The region size that was asked for, or the first that fits the room on every member.
fn region_that_fits(
    members: &[Option<&Superblock>],
    ring_sectors: &[Option<u64>],
    sync_bytes: u64,
    region_bytes: Option<u64>,
) -> Result<u64, String> {
    let rings = ring_sectors.iter().copied().chain(std::iter::repeat(None));
    let room_sectors = members.iter().zip(rings).filter_map(|(member, ring)| {
        let member = (*member)?;
        Some(room_sectors(member, ring))
    });
    let room_sectors = room_sectors.min().unwrap_or(0) / PAGE_SECTORS * PAGE_SECTORS;
    let sync_sectors = sync_bytes / SECTOR_BYTES;
    let mut region =
        region_bytes.unwrap_or_else(|| u64::from(bitmap::default_region_bytes(sync_sectors)));
    let area_sectors = |region: u64| area_sectors(sync_bytes, region);
    while area_sectors(region) > room_sectors && region < REGION_BYTES_MAX {
        region *= 2;
    }
    let place = if ring_sectors.iter().any(Option::is_some) {
        "before the stripe log"
    } else {
        "beside the superblocks"
    };
    if area_sectors(region) > room_sectors {
        return Err(format!(
            "there is no room for a bitmap: {room_sectors} sectors are free {place}"
        ));
    }
    if let Some(asked) = region_bytes.filter(|asked| *asked != region) {
        return Err(format!(
            "a bitmap with regions of {asked} bytes does not fit the {room_sectors} sectors {place}; {region} bytes would"
        ));
    }
    Ok(region)
}

/// Where a partial parity log goes on a member that was made without one, as if it had neither bitmap nor stripe log.
pub(super) fn plan_ppl(member: &Superblock) -> Result<PplArea, String> {
    if member.level != 5 {
        return Err("a partial parity log is for RAID-5".to_owned());
    }
    if member.member_count > MAX_MEMBERS {
        return Err(format!(
            "a partial parity log is for at most {MAX_MEMBERS} members"
        ));
    }
    if !matches!(member.version, MdVersion::V11 | MdVersion::V12) {
        return Err(format!(
            "md {} leaves no room for a partial parity log; md 1.2 and 1.1 do",
            member.version
        ));
    }
    if member.has_journal || member.reshape.is_some() {
        return Err("a journal or a reshape excludes a partial parity log".to_owned());
    }
    // In front of the bad-block log or behind it.
    let first = member.super_offset_sectors + PAGE_SECTORS;
    let log = member.bad_block_log_sector().unwrap_or(first);
    let length = member.bad_block_log.map_or(0, |area| area.size_sectors);
    let behind = (log + u64::from(length)).next_multiple_of(PAGE_SECTORS);
    let gap = |from: u64, to: u64| (to.saturating_sub(from) / PAGE_SECTORS * PAGE_SECTORS, from);
    let gaps = [gap(first, log), gap(behind, member.data_offset_sectors)];
    let (room, start) = gaps.into_iter().max().expect("there are two");
    let sectors = room.min(PPL_SECTORS_MAX);
    if sectors < u64::from(RING_SECTORS) {
        return Err(format!(
            "{} KiB are free before the data, a partial parity log needs {} KiB",
            room / 2,
            RING_SECTORS / 2
        ));
    }
    let offset = i16::try_from(start - member.super_offset_sectors);
    Ok(PplArea {
        offset_sectors: offset.map_err(|_| "the gap is too far from the superblock".to_owned())?,
        size_sectors: sectors as u16, // at most 2048
        is_multiple: true,
    })
}

/// Sectors that are free for a bitmap on this member.
fn room_sectors(member: &Superblock, ring_sector: Option<u64>) -> u64 {
    let log = member.bad_block_log_sector();
    let data = member.data_offset_sectors..member.data_offset_sectors + member.data_size_sectors;
    match member.version {
        MdVersion::V11 | MdVersion::V12 => {
            let start = member.super_offset_sectors + PAGE_SECTORS;
            let end = log.map_or(data.start, |log| log.min(data.start));
            let end = ring_sector.map_or(end, |ring| ring.min(end));
            end.saturating_sub(start)
        }
        MdVersion::V10 => end_of_room(member).saturating_sub(data.end),
        MdVersion::V090 => V090_ROOM_SECTORS,
    }
}

/// 1.0: a bitmap ends where the bad-block log (or the superblock) begins.
fn end_of_room(member: &Superblock) -> u64 {
    let log = member.bad_block_log_sector();
    log.map_or(member.super_offset_sectors, |log| {
        log.min(member.super_offset_sectors)
    })
}

fn offset_sectors(member: &Superblock, area_sectors: u64) -> i32 {
    let page = i32::try_from(PAGE_SECTORS).expect("a page is small");
    match member.version {
        MdVersion::V10 => {
            let behind = member.super_offset_sectors - end_of_room(member);
            i32::try_from(behind + area_sectors).map_or(i32::MIN, |distance| -distance)
        }
        _ => page,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_format::Slot;
    use plexum_format::md::{MdTime, NewMember, PlacementRequest, Role, place_member};

    fn member(version: MdVersion, device_sectors: u64) -> Superblock {
        let placement = place_member(&PlacementRequest {
            version,
            device_sectors,
            smallest_device_sectors: device_sectors,
            strip_sectors: 128,
            bitmap_bytes: None,
        })
        .unwrap();
        Superblock::create(&NewMember {
            version,
            array_uuid: [7; 16],
            name: "a",
            ctime: MdTime {
                seconds: 1,
                microseconds: 0,
            },
            level: 1,
            layout: 0,
            component_sectors: placement.data_size_sectors / 8 * 8,
            strip_sectors: 0,
            member_count: 1,
            data_offset_sectors: placement.data_offset_sectors,
            data_size_sectors: placement.data_size_sectors,
            device_sectors,
            dev_number: 0,
            device_uuid: [1; 16],
            roles: &[Role::Active(Slot(0))],
            events: EventCount(3),
            resync_offset_sectors: None,
            bitmap_offset_sectors: None,
            bad_block_log: placement.bad_block_log,
            is_write_mostly: false,
        })
        .unwrap()
    }

    #[test]
    fn a_bitmap_fits_between_the_structures_of_every_version() {
        for version in [
            MdVersion::V12,
            MdVersion::V11,
            MdVersion::V10,
            MdVersion::V090,
        ] {
            for device_mib in [6u64, 64, 8192, 300 << 10] {
                let device_sectors = device_mib << 11;
                let mut superblock = member(version, device_sectors);
                let sync_bytes = superblock.component_sectors * SECTOR_BYTES;
                let plan =
                    plan_bitmap(&[None, Some(&superblock)], &[], sync_bytes, None, 9).unwrap();
                superblock.bitmap_offset_sectors = Some(plan.offset_sectors);
                // The parser is the judge: it refuses what overlaps data or superblock.
                let bytes = superblock.encode();
                let place = superblock.super_offset_sectors;
                let back = Superblock::parse(&bytes, place, device_sectors, version).unwrap();
                let room = back.bitmap_room_sectors(device_sectors).unwrap();
                let start = plan.starts_bytes[1].unwrap();
                assert_eq!(back.bitmap_sector().unwrap() * SECTOR_BYTES, start);
                bitmap::BitmapHeader::parse(&plan.header, start, room).unwrap();
                assert_eq!(plan.starts_bytes[0], None);
            }
        }
    }

    #[test]
    fn regions_that_were_asked_for_are_kept_or_refused() {
        let superblock = member(MdVersion::V12, 1 << 16);
        let sync_bytes = superblock.component_sectors * SECTOR_BYTES;
        let plan = |region| plan_bitmap(&[Some(&superblock)], &[], sync_bytes, Some(region), 9);
        assert_eq!(plan(65_536).unwrap().region_bytes, 65_536);
        assert!(
            plan(512).unwrap_err().contains("would"),
            "64 Ki bits do not fit 4 KiB"
        );
    }

    /// A ring where the bad-block log would end the room: regions grow until the bitmap ends before it (L1).
    #[test]
    fn regions_grow_until_the_bitmap_ends_before_the_stripe_log() {
        let mut superblock = member(MdVersion::V12, 8 << 21);
        superblock.bad_block_log = None;
        let sync_bytes = superblock.component_sectors * SECTOR_BYTES;
        let plan = |ring, region| plan_bitmap(&[Some(&superblock)], &[ring], sync_bytes, region, 9);
        let free = plan(None, None).unwrap();
        let first = superblock.super_offset_sectors + PAGE_SECTORS;
        for room_sectors in [8, 16, 24, 64] {
            let ring = first + room_sectors;
            let bitmap = plan(Some(ring), None).unwrap();
            assert!(bitmap.region_bytes >= free.region_bytes);
            let bits = bitmap::area_bytes(sync_bytes.div_ceil(bitmap.region_bytes));
            let start = bitmap.starts_bytes[0].unwrap();
            assert!(
                start + bits <= ring * SECTOR_BYTES,
                "room of {room_sectors}"
            );
        }
        assert!(
            plan(Some(first + 8), Some(4096))
                .unwrap_err()
                .contains("would")
        );
        assert!(plan(Some(first), None).unwrap_err().contains("no room"));
    }

    /// Nobody asked for a size, and there is room: it is the usual one of an array this large.
    #[test]
    fn regions_that_nobody_asked_for_have_the_usual_size() {
        for device_sectors in [1 << 16, (8 << 21) + 8192, 300 << 21] {
            let mut superblock = member(MdVersion::V12, device_sectors);
            superblock.bad_block_log = None;
            let sync_bytes = superblock.component_sectors * SECTOR_BYTES;
            let usual = bitmap::default_region_bytes(superblock.component_sectors);
            let plan = plan_bitmap(&[Some(&superblock)], &[], sync_bytes, None, 9).unwrap();
            assert_eq!(plan.region_bytes, u64::from(usual), "{device_sectors}");
        }
    }

    /// md keeps the size in 32 bits: an array that would need larger regions has no bitmap.
    #[test]
    fn regions_never_grow_beyond_what_md_can_say() {
        let superblock = member(MdVersion::V12, 8 << 21);
        let ring = Some(superblock.super_offset_sectors + 2 * PAGE_SECTORS);
        let bits = (4096 - bitmap::area_bytes(0)) * 8;
        let plan = |bytes| plan_bitmap(&[Some(&superblock)], &[ring], bytes, None, 9);
        let most = plan(bits * REGION_BYTES_MAX).unwrap();
        assert_eq!(most.region_bytes, REGION_BYTES_MAX);
        let refusal = plan(bits * REGION_BYTES_MAX + 1).unwrap_err();
        assert!(refusal.contains("no room"), "{refusal}");
    }

    /// Behind the superblock lies the end of the device: what does not fit in front of it does not fit.
    #[test]
    fn a_bitmap_of_version_1_0_lies_between_the_data_and_the_superblock() {
        let mut superblock = member(MdVersion::V10, 1 << 16);
        superblock.bad_block_log = None;
        let plan = |member: &Superblock| {
            let sync_bytes = member.component_sectors * SECTOR_BYTES;
            plan_bitmap(&[Some(member)], &[], sync_bytes, None, 9)
        };
        let at = superblock.super_offset_sectors;
        superblock.data_size_sectors = at - 8;
        assert_eq!(plan(&superblock).unwrap().offset_sectors, -8);
        superblock.data_size_sectors = at - 7;
        let refusal = plan(&superblock).unwrap_err();
        assert!(refusal.contains("no room"), "{refusal}");
    }

    /// A member of a RAID-5 whose gap between the superblock and the data has this many sectors.
    fn with_gap(sectors: u64) -> Superblock {
        let mut superblock = member(MdVersion::V12, 1 << 16);
        superblock.level = 5;
        superblock.bad_block_log = None;
        superblock.data_offset_sectors = superblock.super_offset_sectors + PAGE_SECTORS + sectors;
        superblock
    }

    #[test]
    fn a_partial_parity_log_takes_whole_pages_of_the_gap_and_no_less_than_a_ring() {
        let least = u64::from(RING_SECTORS);
        let refusal = plan_ppl(&with_gap(least - 1)).unwrap_err();
        assert!(refusal.contains("KiB are free"), "{refusal}");
        for (gap, sectors) in [
            (least, least),
            (least + 7, least),
            (least + 8, least + 8),
            (9000, PPL_SECTORS_MAX),
        ] {
            let area = plan_ppl(&with_gap(gap)).unwrap();
            assert_eq!(u64::from(area.size_sectors), sectors, "{gap}");
            assert_eq!(area.offset_sectors, 8, "right behind the superblock");
        }
    }

    #[test]
    fn a_partial_parity_log_lies_in_front_of_the_bad_blocks_or_behind_them() {
        let mut superblock = with_gap(2000);
        let mut plan = |log_at: i16| {
            superblock.bad_block_log = Some(plexum_format::md::BadBlockArea {
                offset_sectors: log_at.into(),
                size_sectors: 8,
                shift: 0,
            });
            let area = plan_ppl(&superblock).unwrap();
            (area.offset_sectors, area.size_sectors)
        };
        assert_eq!(plan(1008), (8, 1000), "in front: as much as there is");
        assert_eq!(plan(992), (1000, 1008), "behind");
    }

    #[test]
    fn what_excludes_a_partial_parity_log_is_said() {
        assert!(plan_ppl(&with_gap(2000)).is_ok());
        let refusal = |change: &dyn Fn(&mut Superblock)| {
            let mut superblock = with_gap(2000);
            change(&mut superblock);
            plan_ppl(&superblock).err().unwrap_or_default()
        };
        let journal = refusal(&|member| member.has_journal = true);
        assert!(journal.contains("journal"), "{journal}");
        let most = refusal(&|member| member.member_count = MAX_MEMBERS);
        assert_eq!(most, "");
        for count in [MAX_MEMBERS + 1, MAX_MEMBERS + 2] {
            let text = refusal(&|member| member.member_count = count);
            assert!(text.contains("at most 64"), "{text}");
        }
    }
}
