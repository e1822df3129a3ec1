//! Tables made by hand, each as its standard says.

use super::*;

const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 64 * MIB;

fn look(disk: &[u8]) -> Vec<(String, Range<u64>)> {
    let mut reader = |offset: u64, buffer: &mut [u8]| -> Result<(), ()> {
        let start = offset as usize;
        buffer.copy_from_slice(&disk[start..start + buffer.len()]);
        Ok(())
    };
    let found = look_at(disk.len() as u64, &mut reader);
    found.into_iter().map(|one| (one.name, one.place)).collect()
}

fn put(disk: &mut [u8], at: usize, bytes: &[u8]) {
    disk[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A table of GPT with its entries: two partitions, of the third and of the fifth MiB.
fn write_gpt(disk: &mut [u8], header_at: usize, entries_at: usize) {
    for (number, first) in [(0, 2 * MIB / 512), (2, 4 * MIB / 512)] {
        let entry = entries_at + 128 * number;
        put(disk, entry, &[7; 16]);
        put(disk, entry + 32, &first.to_le_bytes());
        put(disk, entry + 40, &(first + MIB / 512 - 1).to_le_bytes());
    }
    put(disk, header_at, b"EFI PART");
    put(disk, header_at + 12, &92_u32.to_le_bytes());
    put(
        disk,
        header_at + 72,
        &(entries_at as u64 / 512).to_le_bytes(),
    );
    put(disk, header_at + 80, &128_u32.to_le_bytes());
    put(disk, header_at + 84, &128_u32.to_le_bytes());
    let sum = gpt::crc32(&disk[entries_at..entries_at + 128 * 128]);
    put(disk, header_at + 88, &sum.to_le_bytes());
    let sum = gpt::crc32(&disk[header_at..header_at + 92]);
    put(disk, header_at + 16, &sum.to_le_bytes());
}

fn gpt_disk() -> Vec<u8> {
    let mut disk = vec![0; DISK_BYTES as usize];
    let end = disk.len();
    write_gpt(&mut disk, 512, 1024);
    write_gpt(&mut disk, end - 512, end - 33 * 512);
    disk
}

fn write_mbr(disk: &mut [u8], at: usize, entries: &[(u8, u32, u32)]) {
    for (number, (kind, start, sectors)) in entries.iter().enumerate() {
        let entry = at + 446 + 16 * number;
        disk[entry + 4] = *kind;
        put(disk, entry + 8, &start.to_le_bytes());
        put(disk, entry + 12, &sectors.to_le_bytes());
    }
    put(disk, at + 510, &[0x55, 0xaa]);
}

/// A label of FreeBSD in the slice at `slice`: `a` and `h`, and `c` for all of it.
fn write_bsd(disk: &mut [u8], slice: usize, raw: (u32, u32), a: (u32, u32)) {
    let label = slice + 512;
    for at in [0, 132] {
        put(disk, label + at, &0x8256_4557_u32.to_le_bytes());
    }
    put(disk, label + 40, &512_u32.to_le_bytes());
    put(disk, label + 138, &8_u16.to_le_bytes());
    for (number, (start, sectors)) in [(0, a), (2, raw)] {
        let entry = label + 148 + 16 * number;
        put(disk, entry, &sectors.to_le_bytes());
        put(disk, entry + 4, &start.to_le_bytes());
    }
    put(disk, label + 136, &[0, 0]);
    let covered = disk[label..label + 148 + 16 * 8].chunks_exact(2);
    let sum = covered.fold(0, |sum, pair| sum ^ u16::from_le_bytes([pair[0], pair[1]]));
    put(disk, label + 136, &sum.to_le_bytes());
}

#[test]
fn partitions_of_a_gpt_keep_the_numbers_of_their_entries() {
    let expected = vec![
        ("p1".to_owned(), 2 * MIB..3 * MIB),
        ("p3".to_owned(), 4 * MIB..5 * MIB),
    ];
    assert_eq!(look(&gpt_disk()), expected);
}

#[test]
fn the_backup_at_the_end_counts_where_the_start_is_gone_or_damaged() {
    let expected = look(&gpt_disk());
    let mut gone = gpt_disk();
    gone[..34 * 512].fill(0);
    assert_eq!(look(&gone), expected);
    let mut damaged = gpt_disk();
    damaged[1024 + 32] ^= 0x40; // where the first partition begins
    assert_eq!(look(&damaged), expected);
}

#[test]
fn a_table_whose_sums_are_wrong_counts_only_where_there_is_no_better_one() {
    let mut disk = gpt_disk();
    let end = disk.len();
    disk[512 + 16] ^= 1;
    disk[end - 512..].fill(0);
    assert_eq!(look(&disk).len(), 2);
}

#[test]
fn an_old_backup_does_not_count_beside_a_table_of_another_kind() {
    let mut disk = gpt_disk();
    disk[..34 * 512].fill(0);
    write_mbr(&mut disk, 0, &[(0x83, 2048, 2048)]);
    assert_eq!(look(&disk), [("p1".to_owned(), MIB..2 * MIB)]);
}

#[test]
fn impossible_partitions_are_left_out() {
    let mut disk = vec![0; MIB as usize];
    write_gpt(&mut disk, 512, 1024); // on a disk that is too small for them
    assert_eq!(look(&disk), []);
    disk[512 + 84] = 0;
    assert_eq!(look(&disk), []);
}

#[test]
fn logical_partitions_count_from_five_and_a_chain_in_a_circle_ends() {
    let mut disk = vec![0; DISK_BYTES as usize];
    write_mbr(&mut disk, 0, &[(0x83, 2048, 2048), (0x0f, 8192, 32768)]);
    write_mbr(
        &mut disk,
        8192 * 512,
        &[(0x83, 63, 4000), (0x05, 8192, 8192)],
    );
    write_mbr(&mut disk, 16384 * 512, &[(0x83, 63, 5000), (0x05, 0, 8192)]);
    let expected = [
        ("p1".to_owned(), MIB..2 * MIB),
        ("p5".to_owned(), 8255 * 512..12255 * 512),
        ("p6".to_owned(), 16447 * 512..21447 * 512),
    ];
    assert_eq!(look(&disk), expected);
}

#[test]
fn the_first_sector_of_a_file_system_is_no_table() {
    let mut disk = vec![0; DISK_BYTES as usize];
    write_mbr(&mut disk, 0, &[(0x83, 2048, 2048)]);
    disk[446] = 0x33; // boot code
    assert_eq!(look(&disk), []);
}

#[test]
fn a_label_of_bsd_is_found_in_a_slice_and_on_a_disk_relative_and_absolute() {
    let mut disk = vec![0; DISK_BYTES as usize];
    write_mbr(&mut disk, 0, &[(0xa5, 2048, 16384)]);
    write_bsd(&mut disk, MIB as usize, (0, 16384), (4096, 8192));
    let expected = [
        ("p1".to_owned(), MIB..9 * MIB),
        ("p1a".to_owned(), 3 * MIB..7 * MIB),
    ];
    assert_eq!(look(&disk), expected);
    write_bsd(&mut disk, MIB as usize, (0, 131_072), (6144, 8192));
    assert_eq!(look(&disk), expected);
    let mut whole = vec![0; DISK_BYTES as usize];
    write_bsd(&mut whole, 0, (0, 131_072), (2048, 2048));
    assert_eq!(look(&whole), [("pa".to_owned(), MIB..2 * MIB)]);
    whole[512 + 136] ^= 1;
    assert_eq!(look(&whole), []);
}

#[test]
fn slices_of_solaris_are_found_in_a_partition() {
    let mut disk = vec![0; DISK_BYTES as usize];
    write_mbr(&mut disk, 0, &[(0xbf, 2048, 16384)]);
    let label = MIB as usize + 512;
    put(&mut disk, label + 12, &0x600d_deee_u32.to_le_bytes());
    put(&mut disk, label + 16, &1_u32.to_le_bytes());
    put(&mut disk, label + 30, &16_u16.to_le_bytes());
    for (number, start, sectors) in [(0, 2048_u32, 4096_u32), (2, 0, 16384)] {
        put(
            &mut disk,
            label + 72 + 12 * number + 4,
            &start.to_le_bytes(),
        );
        put(
            &mut disk,
            label + 72 + 12 * number + 8,
            &sectors.to_le_bytes(),
        );
    }
    let expected = [
        ("p1".to_owned(), MIB..9 * MIB),
        ("p1s0".to_owned(), 2 * MIB..4 * MIB),
    ];
    assert_eq!(look(&disk), expected);
}

#[test]
fn the_owner_of_a_place_is_the_innermost_partition_that_covers_it() {
    let mut disk = vec![0; DISK_BYTES as usize];
    write_mbr(&mut disk, 0, &[(0xa5, 2048, 16384)]);
    write_bsd(&mut disk, MIB as usize, (0, 16384), (4096, 8192));
    let mut reader = |offset: u64, buffer: &mut [u8]| -> Result<(), ()> {
        let start = offset as usize;
        buffer.copy_from_slice(&disk[start..start + buffer.len()]);
        Ok(())
    };
    let all = look_at(DISK_BYTES, &mut reader);
    let owner = |start: u64| owner_of(&all, &(start..start + 512)).map(|one| one.name.as_str());
    assert_eq!(owner(4 * MIB), Some("p1a"));
    assert_eq!(owner(8 * MIB), Some("p1"));
    assert_eq!(owner(20 * MIB), None);
    let inner = within(&all, &(MIB..9 * MIB));
    assert_eq!((inner.len(), &inner[0].place), (1, &(2 * MIB..6 * MIB)));
}
