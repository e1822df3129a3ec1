//! A scrub reads every copy and every column: P, Q and R on the members are what our kernels make of the data.

use std::collections::BTreeSet;

use crate::common::{block_on, device, open, open_with};
use plexum_testkit::unpack_zfs_case;
use plexum_zfs::{DamageKind, OpenOptions, ScrubReport};

fn scrub(id: &str, files: &[&str]) -> ScrubReport {
    let unpacked = unpack_zfs_case(id);
    let pool = open(&unpacked, files).unwrap();
    block_on(pool.scrub(&mut |_| {})).unwrap()
}

fn members(report: &ScrubReport) -> BTreeSet<&str> {
    report
        .damage
        .iter()
        .map(|damage| damage.member.as_str())
        .collect()
}

#[test]
fn parity_on_the_members_is_what_the_map_and_the_kernels_make_of_the_data() {
    for (id, files) in [
        ("z03_raidz1_3_a12_gzip", ["d0", "d1", "d2"].as_slice()),
        ("z05_raidz2_5_a12_lz4", &["d0", "d1", "d2", "d4"]),
        ("z08_legacy28_raidz2_4", &["d0", "d1", "d2", "d3"]),
    ] {
        let report = scrub(id, files);
        assert!(
            report.is_clean(),
            "{id}: {:?} {:?}",
            report.damage,
            report.spoilt
        );
        assert!(report.progress.blocks > 100, "{id}");
    }
}

#[test]
fn only_the_overwritten_members_are_named_and_no_data_is_lost() {
    for (id, files, wrong) in [
        (
            "z02_mirror2_a9_lz4",
            ["d0", "d1"].as_slice(),
            ["d0"].as_slice(),
        ),
        (
            "z04_raidz1_5_a9_zle",
            &["d0", "d1", "d2", "d3", "d4"],
            &["d2"],
        ),
        (
            "z06_raidz3_6_a12_sha",
            &["d0", "d1", "d2", "d3", "d4", "d5"],
            &["d1", "d4"],
        ),
    ] {
        let report = scrub(id, files);
        assert_eq!(members(&report), wrong.iter().copied().collect(), "{id}");
        assert!(report.spoilt.is_empty(), "{id}: {:?}", report.spoilt);
        assert!(!report.mended.is_empty(), "{id}");
        assert!(
            report.damage.iter().all(|one| one.offset_bytes >= 4 << 20),
            "{id}"
        );
    }
}

#[test]
fn one_loss_too_many_names_the_files_that_are_gone() {
    let unpacked = unpack_zfs_case("z07_twomirrors_snap_zstd");
    // d3 is missing, and now a stretch of d2's data cannot be read either.
    let mut devices: Vec<_> = ["d0", "d1", "d2"]
        .iter()
        .map(|file| device(&unpacked, file))
        .collect();
    devices[2]
        .device
        .bad
        .push((4 << 20) + (256 << 10)..60 << 20);
    let Ok(pool) = open_with(devices, &OpenOptions::default()) else {
        panic!("the pool's own structures have copies on the other mirror");
    };
    let report = block_on(pool.scrub(&mut |_| {})).unwrap();
    assert!(
        report.spoilt.iter().any(|one| one.path.is_some()),
        "{:?}",
        report.spoilt
    );
    assert!(
        report
            .damage
            .iter()
            .any(|one| matches!(one.kind, DamageKind::Io(_)) && one.member == "d2")
    );
}

#[test]
fn a_flipped_parity_byte_is_found_at_its_place() {
    use std::os::unix::fs::FileExt;
    let unpacked = unpack_zfs_case("z03_raidz1_3_a12_gzip");
    let files = ["d0", "d1", "d2"];
    // Flips the first byte of sectors until one was in use.
    let mut places = BTreeSet::new();
    for sector in 0..64 {
        let offset = (4 << 20) + sector * 4096;
        let path = unpacked.path("d1");
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
        places.insert(offset);
    }
    let pool = open(&unpacked, &files).unwrap();
    let report = block_on(pool.scrub(&mut |_| {})).unwrap();
    assert!(!report.damage.is_empty() && report.spoilt.is_empty());
    for damage in &report.damage {
        assert_eq!(
            (damage.member.as_str(), damage.kind),
            ("d1", DamageKind::Checksum)
        );
        let range = damage.offset_bytes..damage.offset_bytes + damage.length_bytes;
        assert!(places.range(range).next().is_some(), "{damage:?}");
    }
}

#[test]
fn every_root_that_is_left_opens_or_says_why_not() {
    let unpacked = unpack_zfs_case("z05_raidz2_5_a12_lz4");
    let files = ["d0", "d1", "d2", "d4"];
    let newest = open(&unpacked, &files).unwrap().report;
    let mut opened = 0;
    for (txg, _) in &newest.roots {
        let devices = files.iter().map(|file| device(&unpacked, file)).collect();
        match open_with(devices, &OpenOptions { txg: Some(*txg) }) {
            Ok(pool) => {
                assert_eq!(pool.report.root.txg, *txg);
                let _listed = block_on(pool.datasets());
                opened += 1;
            }
            Err(error) => assert!(
                error
                    .to_string()
                    .contains(&format!("transaction group {txg}")),
                "{error}"
            ),
        }
    }
    assert!(opened > 1, "{} roots", newest.roots.len());
    let devices = files.iter().map(|file| device(&unpacked, file)).collect();
    assert!(open_with(devices, &OpenOptions { txg: Some(0) }).is_err());
}
