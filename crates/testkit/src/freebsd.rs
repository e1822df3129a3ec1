//! The golden images of FreeBSD's GEOM classes; `fixtures/freebsd/README.md` says how they were made.

use serde_json::Value;

use crate::unpack::{Unpacked, fixtures, unpack};

/// A JSON file of `fixtures/freebsd`, such as `manifest.json` or `transitions.json`.
///
/// # Panics
/// When it is missing or no JSON: the test that asked fails.
#[must_use]
pub fn freebsd_json(file: &str) -> Value {
    let path = fixtures().join("freebsd").join(file);
    let shown = path.display();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{shown}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{shown}: {error}"))
}

/// The manifest's cases of one kind: `gmirror`, `gvinum`, `gstripe` or `gconcat`, as JSON with the manifest's own
/// names.
///
/// # Panics
/// As [`freebsd_json`].
#[must_use]
pub fn freebsd_cases(kind: &str) -> Vec<Value> {
    let manifest = freebsd_json("manifest.json");
    let cases = manifest["cases"].as_array().cloned().unwrap_or_default();
    cases
        .into_iter()
        .filter(|case| case["kind"] == kind)
        .collect()
}

/// Unpacks the images of a case by its id, such as `gm01_load_2way`.
///
/// # Panics
/// When there is no such archive or it cannot be unpacked: the test that asked fails.
#[must_use]
pub fn unpack_freebsd_case(id: &str) -> Unpacked {
    unpack(
        &fixtures()
            .join("freebsd/images")
            .join(format!("{id}.tar.zst")),
    )
}
