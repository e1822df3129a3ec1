//! Whatever sysfs, udev or a bridge shows: something may stay unknown, and nothing else happens.

use std::fs;
use std::path::{Path, PathBuf};

use plexum_inventory::{Identity, Inventory, Light, Lit, below, read_light, set_light};

use crate::common::{TREES, Unpacked, unpack};

/// What the daemon asks of a tree.
fn ask(tree: &Unpacked) -> Inventory {
    let Ok(inventory) = Inventory::read(&tree.roots) else {
        return Inventory::default();
    };
    let _ = inventory.duplicates();
    if let Some(bay) = inventory.bays.first() {
        let _ = read_light(&tree.roots, &bay.address, Light::Fault);
    }
    inventory
}

/// Everything that can be asked of a tree.
fn ask_everything(tree: &Unpacked) {
    let inventory = ask(tree);
    let names = fs::read_dir(tree.sys("class/block")).into_iter().flatten();
    for name in names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        let _ = below(&tree.roots, &name);
        if let Ok(identity) = Identity::read(&tree.roots, &name) {
            let _ = inventory.find(&identity);
            let text = serde_json::to_string(&identity).unwrap();
            assert!(
                !text.contains("\\u001b"),
                "no escape sequence gets through: {text}"
            );
        }
    }
    for bay in &inventory.bays {
        let _ = read_light(&tree.roots, &bay.address, Light::Fault);
        let _ = set_light(&tree.roots, &bay.address, Light::Locate, Lit::On);
    }
}

fn files_in(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files_in(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
}

#[test]
fn a_hostile_tree_shows_no_disk_that_is_none() {
    let tree = unpack("hostile");
    ask_everything(&tree);
    let inventory = Inventory::read(&tree.roots).unwrap();
    let names: Vec<&str> = inventory
        .disks
        .iter()
        .map(|disk| disk.name.as_str())
        .collect();
    assert_eq!(names, ["sda"]);
    let disk = &inventory.disks[0];
    assert_eq!((disk.size_bytes, disk.medium), (0, None));
    assert_eq!(
        (disk.wwn.as_deref(), disk.serial.as_deref()),
        (None, Some("??[2JAB"))
    );
}

#[test]
fn each_file_may_be_missing_empty_garbled_or_endless() {
    for name in TREES {
        let mut files = Vec::new();
        let tree = unpack(name);
        files_in(tree.folder.path(), &mut files);
        for file in files {
            let target = fs::read_link(&file).ok();
            let kept = target.is_none().then(|| fs::read(&file).unwrap());
            fs::remove_file(&file).unwrap();
            ask(&tree);
            fs::write(&file, [0xff; 64]).unwrap();
            ask(&tree);
            match target {
                // A link to itself cannot be followed.
                Some(_) => {
                    fs::remove_file(&file).unwrap();
                    std::os::unix::fs::symlink(&file, &file).unwrap();
                }
                None => fs::write(&file, [b'9'; 70_000]).unwrap(),
            }
            ask(&tree);
            fs::remove_file(&file).unwrap();
            match target {
                Some(target) => std::os::unix::fs::symlink(target, &file).unwrap(),
                None => fs::write(&file, kept.unwrap()).unwrap(),
            }
        }
    }
}

#[test]
fn a_link_out_of_the_tree_is_not_followed() {
    let tree = unpack("virtio");
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("device")).unwrap();
    std::os::unix::fs::symlink(outside.path(), tree.sys("class/block/sdx")).unwrap();
    assert!(Identity::read(&tree.roots, "sdx").is_err());
}

#[test]
fn without_sysfs_the_folder_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let roots = plexum_inventory::Roots::new(empty.path().join("sys"), empty.path().join("udev"));
    let refused = Inventory::read(&roots).unwrap_err().to_string();
    assert!(
        refused.contains("sys/class/block") && refused.contains("is sysfs mounted"),
        "{refused}"
    );
}
