//! Pools that OpenZFS made, without features, are written here, and OpenZFS takes them back.

use crate::common::{Folder, Shadow, VOLUME, assert_checked, assert_sound, engine, open, oracle};

fn made_by(version: &str, layout: &str, features: &str) -> (Folder, Shadow) {
    let folder = Folder::new(&[layout]);
    let path = folder.path().display().to_string();
    let dump = folder.path().join("dump");
    let dump_word = dump.display().to_string();
    let words = [
        "make",
        &path,
        "tank",
        layout,
        "--features",
        features,
        "--version",
        version,
        "--vol",
        "8M",
        "--block",
        "4096",
        "--snap",
        "--dump",
        &dump_word,
    ];
    let (is_good, text) = oracle(&words);
    assert!(is_good, "{text}");
    let mut shadow = Shadow::new(7);
    shadow.bytes = std::fs::read(&dump).unwrap();
    std::fs::remove_file(dump).unwrap();
    (folder, shadow)
}

#[test]
fn a_pool_of_openzfs_is_written_and_given_back() {
    for (version, layout) in [("21", "raidz1:3"), ("23", "mirror:2")] {
        let (folder, mut shadow) = made_by(version, layout, "none");
        assert_checked(&folder);
        let mut pool = open(&folder).unwrap();
        shadow.assert_same(&mut pool);
        shadow.write(&mut pool, 60);
        shadow.write(&mut pool, 60);
        shadow.assert_same(&mut pool);
        drop(pool);
        assert_checked(&folder);
        assert_sound(&folder, "21");
        shadow.assert_dumped(&folder, version);
        let (snapshot, volume) = (format!("destroy={VOLUME}@a"), format!("destroy={VOLUME}"));
        engine(&folder, version, &[&snapshot, &volume, "scrub"]);
        assert_sound(&folder, "21");
    }
}

#[test]
fn a_pool_with_features_that_a_writer_does_not_know_is_refused_by_their_names() {
    let (folder, _) = made_by("21", "mirror:2", "all");
    let error = open(&folder).err().unwrap().to_string();
    assert!(error.contains("com.delphix:log_spacemap"), "{error}");
    let (folder, _) = made_by("21", "mirror:2", "28");
    let error = open(&folder).err().unwrap().to_string();
    assert!(error.contains("old version 28"), "{error}");
}

#[test]
fn the_checker_is_content_with_every_feature_in_use() {
    for (version, layout, features) in [
        ("21", "raidz1:3", "all"),
        ("23", "mirror:2", "all"),
        ("21", "single", "28"),
    ] {
        let (folder, _) = made_by(version, layout, features);
        assert_checked(&folder);
    }
}
