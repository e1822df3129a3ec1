//! The commands of the README's tour do what it says.

use std::path::Path;

use crate::common::tour::{blocks, run};

#[test]
fn the_tour_of_the_readme_works() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(&readme).unwrap();
    let section = readme
        .split("\n## ")
        .find(|section| section.starts_with("Tour\n"))
        .unwrap();
    let tour = blocks(section, "sh");
    for word in [
        "create", "serve", "attach", "fail", "replace", "grow", "scrub", "stop",
    ] {
        assert!(
            tour.contains(&format!("plexum {word}")),
            "the tour shows {word}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let clean_up = "plexum detach pool1; plexum stop";
    let (text, _) = run(folder.path(), &tour, clean_up, 300);
    assert!(text.contains("no differences"), "{text}");
    assert!(text.contains("Raid Level : raid6"), "{text}");
    assert!(text.contains("Raid Devices : 6"), "{text}");
}
