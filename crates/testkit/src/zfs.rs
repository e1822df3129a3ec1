//! The golden ZFS pools; `fixtures/zfs/README.md` says how they were made.

use serde_json::Value;

use crate::unpack::{Unpacked, fixtures, unpack};

/// The manifest's cases, as JSON with the manifest's own names.
///
/// # Panics
/// When the manifest is missing or no JSON: the test that asked fails.
#[must_use]
pub fn zfs_cases() -> Vec<Value> {
    let path = fixtures().join("zfs/manifest.json");
    let shown = path.display();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let manifest: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{shown}: {error}"));
    manifest["cases"].as_array().cloned().unwrap_or_default()
}

/// Unpacks the members of a case by its id, such as `z01_single_a12`.
///
/// # Panics
/// When there is no such archive or it cannot be unpacked: the test that asked fails.
#[must_use]
pub fn unpack_zfs_case(id: &str) -> Unpacked {
    unpack(&fixtures().join("zfs/pools").join(format!("{id}.tar.zst")))
}
