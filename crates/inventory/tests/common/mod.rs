//! Trees of sysfs from one text file each; see `fixtures/inventory/README.md`.

use std::path::{Path, PathBuf};

use plexum_inventory::Roots;
use tempfile::TempDir;

/// All trees.
pub const TREES: [&str; 8] = [
    "equal-serials",
    "hostile",
    "nvme",
    "sata-ahci",
    "ses-shelf",
    "ses-without-driver",
    "usb-dock",
    "virtio",
];

/// An unpacked tree, gone when it is dropped.
pub struct Unpacked {
    pub folder: TempDir,
    pub roots: Roots,
}

impl Unpacked {
    /// A path below the root of sysfs.
    pub fn sys(&self, path: &str) -> PathBuf {
        self.roots.sys().join(path)
    }
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/inventory")
}

pub fn unpack(name: &str) -> Unpacked {
    let folder = tempfile::tempdir().unwrap();
    plexum_testkit::unpack_sysfs(name, folder.path());
    let roots = Roots::new(folder.path().join("sys"), folder.path().join("udev"));
    Unpacked { folder, roots }
}
