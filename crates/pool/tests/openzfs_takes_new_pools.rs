//! Pools that are made here, before the judge: zdb finds nothing, OpenZFS imports, writes and scrubs them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Folder, Shadow, assert_sound, engine, open};

#[test]
fn a_new_pool_is_sound_and_openzfs_goes_on_with_it() {
    for layout in [vec!["single"], vec!["mirror:2"], vec!["raidz1:3"]] {
        let folder = Folder::new(&layout);
        folder.create(96 << 20, 12).unwrap();
        assert_sound(&folder, "21");
        engine(&folder, "21", &["commit", "scrub"]);
        assert_sound(&folder, "21");
    }
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
        assert_sound(&folder, "21");
    }
    shadow.assert_same(&mut pool);
    shadow.assert_dumped(&folder, "21");
}
