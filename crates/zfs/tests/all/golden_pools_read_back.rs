//! Every pool of the fixtures in every scenario: contents by their hashes, clean errors, never wrong data.

use crate::common::{TestPool, kinds, open, read_object};
use plexum_testkit::{unpack_zfs_case, zfs_cases};
use plexum_zfs::DatasetKind;
use serde_json::Value;

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Members that are there and not left out.
fn members<'a>(case: &'a Value, scenario: &Value) -> Vec<&'a str> {
    let without: Vec<&str> = scenario["without"]
        .as_array()
        .unwrap()
        .iter()
        .map(text)
        .collect();
    let members = case["members"].as_array().unwrap().iter();
    let present = members.filter(|member| member["present"] == true);
    present
        .map(|member| text(&member["file"]))
        .filter(|file| !without.contains(file))
        .collect()
}

/// Reads everything that the manifest lists: how many objects were right, and the errors of the others.
fn read_all(case: &Value, pool: &TestPool) -> (usize, Vec<String>) {
    let (mut right, mut errors) = (0, Vec::new());
    for (dataset, objects) in case["contents"].as_object().unwrap() {
        for (path, object) in objects.as_object().unwrap() {
            let expected = match text(&object["kind"]) {
                "link" => text(&object["target"]),
                _ => text(&object["sha256"]),
            };
            match read_object(pool, dataset, path) {
                Ok((found, length)) => {
                    assert_eq!(found, expected, "{dataset}:{path} is wrong");
                    assert!(
                        object["kind"] == "link" || object["size"] == length,
                        "{path}"
                    );
                    right += 1;
                }
                Err(error) => errors.push(format!("{dataset}:{path}: {error}")),
            }
        }
    }
    (right, errors)
}

fn check_case(id: &str) {
    let cases = zfs_cases();
    let case = cases.iter().find(|case| case["id"] == id).unwrap();
    let unpacked = unpack_zfs_case(id);
    for scenario in case["scenarios"].as_array().unwrap() {
        let shown = format!("{id} without {}", scenario["without"]);
        let pool = open(&unpacked, &members(case, scenario));
        let is_readable = scenario["expect"] == "readable";
        match pool {
            Ok(pool) => {
                let (right, errors) = read_all(case, &pool);
                assert_eq!(
                    errors.is_empty(),
                    is_readable,
                    "{shown}: {right} right, {errors:?}"
                );
            }
            Err(error) => {
                assert!(!is_readable, "{shown}: {error}");
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

macro_rules! cases {
    ($($name:ident: $id:literal),* $(,)?) => {
        $(#[test]
        fn $name() {
            check_case($id);
        })*

        #[test]
        fn no_case_of_the_manifest_is_left_out() {
            let known = [$($id),*];
            assert!(zfs_cases().iter().all(|case| known.contains(&text(&case["id"]))));
            assert_eq!(zfs_cases().len(), known.len());
        }
    };
}

cases! {
    a_single_member: "z01_single_a12",
    a_mirror_with_one_half_overwritten: "z02_mirror2_a9_lz4",
    raidz1_with_each_member_missing: "z03_raidz1_3_a12_gzip",
    raidz1_with_one_member_overwritten: "z04_raidz1_5_a9_zle",
    raidz2_with_one_member_missing: "z05_raidz2_5_a12_lz4",
    raidz3_with_two_members_overwritten: "z06_raidz3_6_a12_sha",
    two_mirrors_a_snapshot_and_a_clone: "z07_twomirrors_snap_zstd",
    a_pool_without_feature_flags: "z08_legacy28_raidz2_4",
}

#[test]
fn the_list_has_all_data_sets_and_what_they_are() {
    for case in zfs_cases() {
        let id = text(&case["id"]);
        let unpacked = unpack_zfs_case(id);
        let pool = open(
            &unpacked,
            &members(&case, &serde_json::json!({"without": []})),
        )
        .unwrap();
        let found = kinds(&pool);
        for (dataset, objects) in case["contents"].as_object().unwrap() {
            let expected = match objects.get("") {
                Some(_) => DatasetKind::Volume,
                None => DatasetKind::FileSystem,
            };
            assert_eq!(found.get(dataset), Some(&expected), "{id} {dataset}");
        }
        assert_eq!(pool.report.guid.to_string(), text(&case["pool_guid"]));
        assert_eq!(case["version"], pool.report.version);
    }
}
