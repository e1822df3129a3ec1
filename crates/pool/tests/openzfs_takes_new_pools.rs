//! Pools that are made here, before the judge: zdb finds nothing, OpenZFS imports, writes and scrubs them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Folder, assert_sound, engine};

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
