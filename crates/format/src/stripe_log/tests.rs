#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::md::{BadBlockArea, MdTime, MdVersion, NewMember, Placement, PlacementRequest, Role};
use crate::md::{PplArea, place_member};
use crate::units::{EventCount, Slot};

fn member(version: MdVersion, level: i32, placement: &Placement) -> Superblock {
    Superblock::create(&NewMember {
        version,
        array_uuid: [5; 16],
        name: "t",
        ctime: MdTime {
            seconds: 1,
            microseconds: 0,
        },
        level,
        layout: 2,
        component_sectors: 128 * 64,
        strip_sectors: 128,
        member_count: 4,
        data_offset_sectors: placement.data_offset_sectors,
        data_size_sectors: placement.data_size_sectors,
        device_sectors: 1 << 17,
        dev_number: 0,
        device_uuid: [6; 16],
        roles: &[0, 1, 2, 3].map(|slot| Role::Active(Slot(slot))),
        events: EventCount(9),
        resync_offset_sectors: None,
        bitmap_offset_sectors: placement.bitmap_offset_sectors,
        bad_block_log: placement.bad_block_log,
        is_write_mostly: false,
    })
    .unwrap()
}

fn usual(version: MdVersion, level: i32) -> Superblock {
    let placement = place_member(&PlacementRequest {
        version,
        device_sectors: 1 << 17,
        smallest_device_sectors: 1 << 17,
        strip_sectors: 128,
        bitmap_bytes: Some(4096),
    });
    member(version, level, &placement.unwrap())
}

fn header() -> LogHeader {
    let superblock = usual(MdVersion::V12, 5);
    let area = plan_area(&superblock, 8).unwrap();
    LogHeader {
        log_id: 77,
        epoch: 3,
        tail_sequence: 12,
        joined_sequence: 4,
        start_position: 8192,
        start_batch: 2,
        superblock: superblock_hash(&superblock),
        doubt_from_bytes: None,
        ..LogHeader::blank(&superblock, area)
    }
}

fn record(sequence: u64, length_bytes: u32) -> Record {
    let mut touched = Slots::default();
    touched.insert(1);
    touched.insert(3);
    Record {
        sequence,
        row: 63,
        start_bytes: 512,
        length_bytes,
        checksum: 0x1234,
        slot: 3,
        touched,
    }
}

fn batch(count: u64) -> Batch {
    Batch {
        log_id: 77,
        number: 2,
        position: 8192,
        records: (0..count).map(|n| record(20 + n, 512)).collect(),
    }
}

#[test]
fn headers_and_batches_come_back_as_they_were_written() {
    let header = header();
    let place = header.area.header_offset_bytes();
    assert_eq!(
        Some(place),
        area::header_offset_bytes(&usual(MdVersion::V12, 5))
    );
    assert_eq!(
        LogHeader::parse(&header.encode(), place),
        Ok(header.clone())
    );
    for count in [1, 2, 63] {
        let batch = batch(count);
        let page = batch.encode_page();
        assert_eq!(Batch::parse(&page, &header, 2, 8192), Ok(batch.clone()));
        assert_eq!(
            batch.length_bytes(),
            (4096 + 512 * count).next_multiple_of(4096)
        );
        let last = batch.block_positions().last().unwrap();
        assert_eq!(last, 8192 + 4096 + 512 * (count - 1));
    }
}

#[test]
fn all_of_a_header_lies_in_its_first_sector() {
    let page = header().encode();
    assert!(page[512..].iter().all(|byte| *byte == 0));
    let mut torn = page;
    torn[512..].fill(0xee);
    assert_eq!(LogHeader::parse(&torn, 0), LogHeader::parse(&page, 0));
}

#[test]
fn one_changed_bit_is_never_taken() {
    let header = header();
    let page = header.encode();
    for bit in 0..512 * 8 {
        let mut page = page;
        page[bit / 8] ^= 1 << (bit % 8);
        assert!(
            LogHeader::parse(&page, 0).is_err(),
            "bit {bit} of the header"
        );
    }
    let page = batch(3).encode_page();
    for bit in 0..PAGE_BYTES * 8 {
        let mut page = page;
        page[bit / 8] ^= 1 << (bit % 8);
        assert!(
            Batch::parse(&page, &header, 2, 8192).is_err(),
            "bit {bit} of the batch"
        );
    }
}

#[test]
fn a_batch_of_another_life_number_or_place_is_foreign() {
    let header = header();
    let page = batch(1).encode_page();
    for (log_id, number, position) in [(78, 2, 8192), (77, 3, 8192), (77, 2, 12288)] {
        let other = LogHeader {
            log_id,
            ..header.clone()
        };
        let error = Batch::parse(&page, &other, number, position).unwrap_err();
        assert_eq!(error.problem, Problem::Foreign);
    }
}

#[test]
fn records_outside_of_the_array_are_refused() {
    let header = header();
    let check = |change: fn(&mut Record), field: &str| {
        let mut batch = batch(2);
        change(&mut batch.records[1]);
        let error = Batch::parse(&batch.encode_page(), &header, 2, 8192).unwrap_err();
        assert_eq!(error.field, field);
    };
    check(|record| record.row = 64, "row");
    check(|record| record.length_bytes = 0, "length_bytes");
    check(|record| record.length_bytes = 100, "length_bytes");
    check(|record| record.start_bytes = 128 * 512, "length_bytes");
    check(
        |record| record.length_bytes = u32::MAX - 511,
        "length_bytes",
    );
    check(|record| record.slot = 2, "touched");
    check(|record| record.touched.insert(4), "touched");
}

#[test]
fn a_batch_never_runs_over_the_end_of_the_ring() {
    let header = header();
    let position = header.area.ring_bytes - 4096;
    let mut batch = batch(1);
    batch.position = position;
    let error = Batch::parse(&batch.encode_page(), &header, 2, position).unwrap_err();
    assert_eq!(error.field, "record_count");
}

#[test]
fn only_the_superblocks_named_bind_a_log() {
    let mut header = header();
    let superblock = usual(MdVersion::V12, 5);
    assert!(header.is_bound_to(&superblock_hash(&superblock)));
    let mut changed = superblock.clone();
    changed.utime.microseconds = 1;
    assert!(!header.is_bound_to(&superblock_hash(&changed)));
    header.next_superblock = superblock_hash(&changed);
    assert!(header.is_bound_to(&superblock_hash(&changed)));
    assert!(header.is_bound_to(&superblock_hash(&superblock)));
    assert!(!LogHeader::blank(&superblock, header.area).is_bound_to(&[0; 16]));
}

#[test]
fn a_ring_is_planned_clear_of_everything_or_refused_with_a_reason() {
    for version in [MdVersion::V11, MdVersion::V12] {
        let superblock = usual(version, 6);
        let area = plan_area(&superblock, 8).unwrap();
        assert!(area.ring_bytes >= 1 << 20, "{area:?}");
        assert_eq!(area.end_sector(), Some(superblock.data_offset_sectors));
    }
    for version in [MdVersion::V10, MdVersion::V090] {
        assert_eq!(
            plan_area(&usual(version, 5), 8),
            Err(NoLog::Version(version))
        );
    }
    let mut superblock = usual(MdVersion::V12, 5);
    superblock.ppl = Some(PplArea {
        offset_sectors: 8,
        size_sectors: 2048,
        is_multiple: true,
    });
    assert!(matches!(
        plan_area(&superblock, 0),
        Err(NoLog::Excluded { .. })
    ));
    superblock.ppl = None;
    superblock.level = 1;
    assert_eq!(plan_area(&superblock, 0), Err(NoLog::NoParity));
}

#[test]
fn a_gap_below_256_kib_has_no_log() {
    let mut superblock = usual(MdVersion::V12, 5);
    superblock.bad_block_log = None;
    superblock.bitmap_offset_sectors = None;
    for (data_sector, is_enough) in [(16 + 511, false), (16 + 512, true)] {
        superblock.data_offset_sectors = data_sector;
        assert_eq!(
            plan_area(&superblock, 0).is_ok(),
            is_enough,
            "{data_sector}"
        );
    }
}

#[test]
fn whatever_grows_into_a_ring_is_named() {
    let superblock = usual(MdVersion::V12, 5);
    let area = plan_area(&superblock, 8).unwrap();
    assert_eq!(check_area(&area, &superblock, 8), Ok(()));
    let overlap = |what| Err(NoLog::Overlap { what });
    let grown = area.ring_sector - 16 + 1;
    assert_eq!(check_area(&area, &superblock, grown), overlap("the bitmap"));
    let mut changed = superblock.clone();
    changed.bad_block_log = Some(BadBlockArea {
        offset_sectors: i32::try_from(area.ring_sector).unwrap(),
        size_sectors: 8,
        shift: 0,
    });
    assert_eq!(check_area(&area, &changed, 8), overlap("the bad block log"));
    let mut changed = superblock.clone();
    changed.data_offset_sectors -= 1;
    assert_eq!(check_area(&area, &changed, 8), overlap("the data"));
    let outside = LogArea {
        ring_sector: u64::MAX - 8,
        ..area
    };
    assert!(check_area(&outside, &superblock, 8).is_err());
}

/// Pages with the checksum made right, so that the checks behind it are reached.
fn sealed(mut page: [u8; PAGE_BYTES], at: usize, covered: usize) -> [u8; PAGE_BYTES] {
    page[at..at + 4].fill(0);
    let sum = crc32c(&page[..covered]);
    page[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    page
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_change_of_a_header_is_refused_or_read_back(
        edits in prop::collection::vec((16..200_usize, any::<u8>()), 0..8),
    ) {
        let mut page = header().encode();
        for (at, byte) in edits {
            page[at] = byte;
        }
        let page = sealed(page, 20, HEADER_BYTES);
        if let Ok(header) = LogHeader::parse(&page, 0) {
            prop_assert!(header.area.end_sector().is_some());
            prop_assert_eq!(LogHeader::parse(&header.encode(), 0), Ok(header));
        }
    }

    #[test]
    fn any_change_of_a_batch_is_refused_or_read_back(
        edits in prop::collection::vec((8..300_usize, any::<u8>()), 0..8),
    ) {
        let mut page = batch(3).encode_page();
        for (at, byte) in edits {
            page[at] = byte;
        }
        let page = sealed(page, 8, PAGE_BYTES);
        let header = header();
        if let Ok(batch) = Batch::parse(&page, &header, 2, 8192) {
            prop_assert!(batch.length_bytes() + 8192 <= header.area.ring_bytes);
            prop_assert_eq!(Batch::parse(&batch.encode_page(), &header, 2, 8192), Ok(batch));
        }
    }
}
