//! Pools that OpenZFS's kernel module and libzpool wrote are sound, as they say: the checker finds nothing in them.

use crate::common::check;
use plexum_testkit::{unpack_zfs_case, zfs_cases};

#[test]
fn pools_of_the_fixtures_are_clean() {
    for case in zfs_cases() {
        let id = case["id"].as_str().unwrap();
        let unpacked = unpack_zfs_case(id);
        let mut members: Vec<_> = std::fs::read_dir(unpacked.path("."))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        members.sort();
        let report = check(&members).unwrap();
        let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(report.is_clean(), "{id}: {findings:#?}");
        assert!(report.blocks > 100, "{id}");
    }
}
