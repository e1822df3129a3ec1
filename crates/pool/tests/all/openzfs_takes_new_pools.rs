//! Pools that are made here, before the judge: zdb finds nothing, OpenZFS imports, writes and scrubs them.

use crate::common::{Folder, Shadow, assert_checked, assert_sound, engine, open};

/// Layouts, and the sector shift of each.
const LAYOUTS: [(&[&str], u32); 10] = [
    (&["single"], 12),
    (&["mirror:2"], 9),
    (&["mirror:3"], 12),
    (&["raidz1:3"], 12),
    (&["raidz1:4"], 9),
    (&["raidz2:5"], 12),
    (&["raidz2:8"], 10),
    (&["raidz3:7"], 13),
    (&["mirror:2", "mirror:2"], 12),
    (&["raidz1:3", "raidz1:3"], 12),
];

#[test]
fn a_new_pool_is_sound_and_openzfs_goes_on_with_it() {
    for (layout, ashift) in LAYOUTS {
        let folder = Folder::new(layout);
        folder.create(96 << 20, ashift).unwrap();
        assert_sound(&folder, "21");
        assert_checked(&folder);
        engine(&folder, "23", &["commit", "scrub"]);
        assert_checked(&folder);
    }
}

#[test]
fn a_member_that_is_damaged_or_missing_is_not_written_to() {
    let folder = Folder::new(&["mirror:2"]);
    folder.create(96 << 20, 12).unwrap();
    let members = folder.members();
    let away = folder.path().join("away");
    std::fs::rename(&members[1], &away).unwrap();
    std::fs::write(&members[1], vec![0; 64 << 20]).unwrap();
    let error = open(&folder).err().unwrap().to_string();
    assert!(error.contains("is missing"), "{error}");
    std::fs::rename(&away, &members[1]).unwrap();
    assert!(open(&folder).is_ok());
}

#[test]
fn what_is_written_is_read_by_openzfs_and_openzfs_goes_on() {
    let folder = Folder::new(&["raidz1:3"]);
    folder.create(96 << 20, 12).unwrap();
    let mut pool = open(&folder).unwrap();
    let mut shadow = Shadow::new(1);
    Shadow::add_volume(&mut pool, 4096);
    shadow.write(&mut pool, 200);
    drop(pool);
    assert_sound(&folder, "21");
    shadow.assert_dumped(&folder, "21");
    let mut pool = open(&folder).unwrap();
    shadow.assert_same(&mut pool);
    for _ in 0..5 {
        shadow.write(&mut pool, 50);
        assert_checked(&folder);
    }
    assert_sound(&folder, "21");
    shadow.assert_same(&mut pool);
    shadow.assert_dumped(&folder, "21");
}
