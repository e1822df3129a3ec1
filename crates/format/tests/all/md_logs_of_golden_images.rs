//! Partial parity logs and journals that the kernel wrote.

use crate::common::{Image, for_each_image_of, image};
use plexum_format::md::journal::PayloadKind;
use plexum_format::md::ppl::{HEADER_BYTES, find_newest, signature};
use plexum_format::md::{JournalMeta, PplGeometry, PplHeader, Role};
use plexum_format::{Problem, SECTOR_BYTES, Slot};
use plexum_testkit::Case;
use proptest::prelude::*;

fn log_area(image: &Image) -> (u64, &[u8]) {
    let superblock = image.superblock();
    let start = superblock.ppl_sector().unwrap();
    let size = u64::from(superblock.ppl.unwrap().size_sectors);
    (start * SECTOR_BYTES, image.sectors(start, size))
}

fn newest(image: &Image) -> (u64, PplHeader) {
    let (offset, area) = log_area(image);
    find_newest(
        area,
        offset,
        signature(&image.superblock().array_uuid),
        true,
    )
    .unwrap()
}

#[test]
fn every_log_has_a_newest_header_that_is_written_back_byte_for_byte() {
    let mut count = 0;
    let has_log = |case: &Case| case.members.iter().any(|member| member.ppl.is_some());
    for_each_image_of(has_log, |image| {
        count += 1;
        let (offset, header) = newest(image);
        let (_, area) = log_area(image);
        let bytes = &area[offset as usize..offset as usize + HEADER_BYTES];
        assert!(header.encode() == bytes, "{}", image.name());
        // Made from its parts it is the same: nothing else is in a header.
        let made = PplHeader::new(header.signature, header.generation, header.entries.clone());
        assert!(made.encode() == bytes, "{}", image.name());
        for (entry, range) in header.entries.iter().zip(header.partial_parity_ranges()) {
            let from = (offset + range.start) as usize;
            assert!(entry.matches(&area[from..from + (range.end - range.start) as usize]));
        }
    });
    assert_eq!(count, 7);
}

#[test]
fn the_crashed_array_is_mended_by_its_log_and_nothing_else_changes() {
    let id = "s30_raid5_ppl_crash";
    let images: Vec<Image> = (0..4).map(|n| image(id, &format!("m{n}.img"))).collect();
    let superblock = images[0].superblock();
    let strip = u64::from(superblock.strip_sectors);
    let count = images.len() as u64;
    let geometry = PplGeometry {
        strip_sectors: superblock.strip_sectors,
        data_members: 3,
        array_sectors: superblock.component_sectors / strip * strip * 3,
    };
    let data_start = superblock.data_offset_sectors * SECTOR_BYTES;
    let size = (superblock.component_sectors * SECTOR_BYTES) as usize;
    let mut data: Vec<Vec<u8>> = images
        .iter()
        .map(|image| image.bytes[data_start as usize..data_start as usize + size].to_vec())
        .collect();
    // Left-symmetric: parity of row r on N-1-(r mod N), data member i on (parity + 1 + i) mod N.
    let place = |sector: u64| {
        let (row, index) = (sector / strip / 3, sector / strip % 3);
        let parity = count - 1 - row % count;
        let member = (parity + 1 + index) % count;
        (
            member as usize,
            (row * strip + sector % strip) * SECTOR_BYTES,
            parity as usize,
        )
    };
    let wrong_rows = |data: &[Vec<u8>]| -> Vec<usize> {
        let is_wrong = |at: usize| data.iter().fold(0, |sum, member| sum ^ member[at]) != 0;
        let strip_bytes = (strip * SECTOR_BYTES) as usize;
        (0..size / strip_bytes)
            .filter(|row| (row * strip_bytes..(row + 1) * strip_bytes).any(is_wrong))
            .collect()
    };
    let inconsistent = images[0].case.inconsistent.clone();
    let before: Vec<u64> = wrong_rows(&data)
        .into_iter()
        .map(|row| row as u64)
        .collect();
    assert_eq!(before, inconsistent);
    let mut pieces = 0;
    for (slot, image) in images.iter().enumerate() {
        let (offset, header) = newest(image);
        let (_, area) = log_area(image);
        for (entry, range) in header.entries.iter().zip(header.partial_parity_ranges()) {
            assert_eq!(entry.parity_slot, Slot(slot as u16));
            let logged = &area[(offset + range.start) as usize..];
            for row in entry.replay_rows(&geometry).unwrap() {
                let length = (row.length_sectors * SECTOR_BYTES) as usize;
                let mut parity = vec![0; length];
                if let Some(from) = row.partial_parity_offset_bytes {
                    parity.copy_from_slice(&logged[from as usize..from as usize + length]);
                }
                let (_, at, parity_member) = place(row.data_sectors[0]);
                assert_eq!(parity_member, slot);
                for sector in &row.data_sectors {
                    let (member, other_at, _) = place(*sector);
                    assert_eq!(other_at, at, "all pieces are at one place in their strips");
                    let block = &data[member][at as usize..at as usize + length];
                    parity
                        .iter_mut()
                        .zip(block)
                        .for_each(|(sum, byte)| *sum ^= byte);
                }
                pieces += 1;
                data[slot][at as usize..at as usize + length].copy_from_slice(&parity);
            }
        }
    }
    assert!(pieces > 0);
    assert_eq!(
        wrong_rows(&data),
        [] as [usize; 0],
        "the log had everything that was wrong"
    );
}

#[test]
fn the_journal_device_has_a_meta_block_where_the_superblock_says() {
    let image = image("s35_raid5_journal", "m3.img");
    let superblock = image.superblock();
    assert_eq!(superblock.role(), Role::Journal);
    let sector = superblock.data_offset_sectors + superblock.journal_tail_sectors.unwrap();
    let bytes = image.sectors(sector, 8);
    let meta = JournalMeta::parse(bytes, sector * SECTOR_BYTES, &superblock.array_uuid).unwrap();
    assert_eq!(Some(meta.position_sectors), superblock.journal_tail_sectors);
    // The block after it holds a stripe's data and parity: 24 payloads of 4 KiB, packed without gaps.
    let next = image.sectors(superblock.data_offset_sectors + 16, 8);
    let meta = JournalMeta::parse(next, 0, &superblock.array_uuid).unwrap();
    assert_eq!(meta.position_sectors, 16);
    assert_eq!(meta.payloads.len(), 24);
    let parities = meta
        .payloads
        .iter()
        .filter(|payload| payload.kind == PayloadKind::Parity);
    assert_eq!(
        parities.map(|p| p.location_sectors).collect::<Vec<_>>(),
        [0, 8, 16, 24, 32, 40, 48, 56]
    );
    assert!(
        meta.payloads
            .iter()
            .all(|payload| payload.size_sectors == 8)
    );
    let error = JournalMeta::parse(bytes, 0, &[0; 16]).unwrap_err();
    assert_eq!(error.problem, Problem::Checksum);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_header_is_refused_or_read_back(
        edits in prop::collection::vec((0_usize..900, any::<u8>()), 0..6),
        strip_sectors in any::<u32>(),
        data_members in 0_u32..64,
        array_sectors in any::<u64>(),
    ) {
        let entries = vec![plexum_format::md::PplEntry {
            data_sector: 128,
            partial_parity_bytes: 4096,
            data_bytes: 8192,
            parity_slot: Slot(2),
            checksum: 5,
        }];
        let mut area = PplHeader::new(7, 1, entries).encode();
        for (offset, byte) in edits {
            area[offset] = byte;
        }
        area[532..536].fill(0);
        let sum = plexum_format::md::ppl::crc32c(&area);
        area[532..536].copy_from_slice(&sum.to_le_bytes());
        if let Ok(header) = PplHeader::parse(&area, 0, 7) {
            prop_assert_eq!(header.encode(), area);
            prop_assert!(header.unit_bytes() >= 4096);
            let geometry = PplGeometry { strip_sectors: strip_sectors % 4096, data_members, array_sectors };
            for entry in &header.entries {
                if let Ok(rows) = entry.replay_rows(&geometry) {
                    prop_assert!(rows.len() <= 4096);
                }
            }
        }
        let found = find_newest(&area, 0, 7, true);
        prop_assert_eq!(found.is_some(), PplHeader::parse(&area, 0, 7).is_ok());
    }

    #[test]
    fn any_meta_block_is_refused_or_described(
        bytes in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 4096),
        size in 0_u32..5000,
    ) {
        let mut area: [u8; 4096] = bytes.try_into().unwrap();
        area[..4].copy_from_slice(&0x6433_c509_u32.to_le_bytes());
        area[8] = 1;
        area[12..16].copy_from_slice(&size.to_le_bytes());
        area[4..8].fill(0);
        let mut both = vec![9; 16];
        both.extend_from_slice(&area);
        area[4..8].copy_from_slice(&(!plexum_format::md::ppl::crc32c(&both)).to_le_bytes());
        match JournalMeta::parse(&area, 0, &[9; 16]) {
            Ok(meta) => prop_assert!(meta.payloads.len() <= 4096 / 16),
            Err(error) => prop_assert_eq!(error.problem, Problem::Invalid),
        }
    }
}
