//! Where disks are looked for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plexum_inventory::Roots;

/// A folder with `sys` and `udev` that stands for this machine's own, for tests with built trees.
const ROOT_VARIABLE: &str = "PLEXUM_SYSFS_ROOT";

/// What holds for all disks of a process. Clones share what was told.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    /// sysfs, and udev's database.
    pub roots: Roots,
    /// Whether it was told that there is no smartctl.
    has_told: Arc<AtomicBool>,
}

impl DiskSettings {
    /// Those of this process: the machine's, unless the environment names a folder.
    #[must_use]
    pub fn of_this_process() -> Self {
        let named = std::env::var_os(ROOT_VARIABLE).filter(|value| !value.is_empty());
        Self::at(match named.as_deref().map(Path::new) {
            Some(folder) => Roots::new(folder.join("sys"), folder.join("udev")),
            None => Roots::of_this_machine(),
        })
    }

    /// Disks below these roots.
    #[must_use]
    pub fn at(roots: Roots) -> Self {
        Self {
            roots,
            has_told: Arc::default(),
        }
    }

    /// Whether it is to be told now that there is no smartctl: once.
    pub(crate) fn tells_no_smartctl(&self) -> bool {
        !self.has_told.swap(true, Ordering::Relaxed)
    }
}
