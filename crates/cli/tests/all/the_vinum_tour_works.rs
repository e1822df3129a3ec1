//! The tour of docs/freebsd.md does what it says: a Vinum configuration of 1999, made, served, broken, mended, grown.

use std::path::Path;

use crate::common::tour::{blocks, run};

#[test]
fn the_vinum_tour_works() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/freebsd.md");
    let page = std::fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("vinum.conf"), blocks(&page, "text")).unwrap();
    let clean_up = "for v in src obj home log; do plexum stop $v; done";
    let (text, errors) = run(folder.path(), &blocks(&page, "sh"), clean_up, 200);
    let words = [
        "4 volumes:",
        "no differences",
        "5 drives:",
        "Mstripe",
        "S obj.p0.s4 ",
        "P src.p0              S State: S 0%\tSubdisks:     5",
        "P obj.p0             R5 State: S 0%\tSubdisks:     5",
        "P src.p0              S State: up\tSubdisks:     5",
        "P obj.p0             R5 State: up\tSubdisks:     5",
    ];
    for words in words {
        assert!(text.contains(words), "{words}: {text}\n{errors}");
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let grown = read("grown").len();
    assert!(
        grown > 4 * (7 << 20),
        "five subdisks of nearly 8 MiB: {grown}"
    );
    assert_eq!(
        read("copy").len(),
        4 << 20,
        "what is in the mirrored volume"
    );
}
