//! The tour of docs/freebsd.md does what it says: a Vinum configuration of 1999, made, served, broken, mended, grown.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use std::path::Path;

use common::tour::{blocks, run};

#[test]
fn the_vinum_tour_works() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/freebsd.md");
    let page = std::fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("vinum.conf"), blocks(&page, "text")).unwrap();
    let clean_up = "for v in src obj home log; do plexum stop $v; done";
    let (text, errors) = run(folder.path(), &blocks(&page, "sh"), clean_up, 200);
    for words in ["4 volumes:", "no differences", "5 drives:", " multistripe,"] {
        assert!(text.contains(words), "{words}: {text}\n{errors}");
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(
        read("copy").len(),
        4 << 20,
        "what is in the mirrored volume"
    );
}
