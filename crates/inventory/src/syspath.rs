//! Where a block device is in sysfs: its folder, and the names of what it hangs on.

use std::path::{Path, PathBuf};

use crate::error::InventoryError;
use crate::roots::{Roots, names_in, read_text};

/// The folder of a block device, links followed, with what is above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SysPath {
    /// The kernel's name, `sda` or `nvme0n1p2`.
    pub(crate) name: String,
    /// The device's own folder.
    pub(crate) folder: PathBuf,
    /// The root of sysfs, links followed.
    root: PathBuf,
    /// Names from below the root to the device itself.
    parts: Vec<String>,
}

impl SysPath {
    /// Finds the device `name`.
    ///
    /// # Errors
    /// `NotAName` for what can be no name, `NoSuchDevice` if it is not there or its link leads out of the root.
    pub(crate) fn find(roots: &Roots, name: &str) -> Result<SysPath, InventoryError> {
        if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
            return Err(InventoryError::NotAName { name: name.into() });
        }
        let missing = || InventoryError::NoSuchDevice {
            name: name.to_owned(),
            place: roots.sys().join("class/block").display().to_string(),
        };
        let root = std::fs::canonicalize(roots.sys()).map_err(|_| missing())?;
        let folder =
            std::fs::canonicalize(root.join("class/block").join(name)).map_err(|_| missing())?;
        let below = folder.strip_prefix(&root).map_err(|_| missing())?;
        let parts = below
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        Ok(SysPath {
            name: name.to_owned(),
            folder: folder.clone(),
            root,
            parts,
        })
    }

    /// The disk that a partition is part of, and the partition's number.
    pub(crate) fn disk_of_partition(&self, roots: &Roots) -> Option<(SysPath, u64)> {
        let number = read_text(&self.folder.join("partition"))?.parse().ok()?;
        let disk = self.parts.iter().rev().nth(1)?;
        let disk = SysPath::find(roots, disk).ok()?;
        self.folder
            .starts_with(&disk.folder)
            .then_some((disk, number))
    }

    /// An attribute, as clean text.
    pub(crate) fn text(&self, attribute: &str) -> Option<String> {
        read_text(&self.folder.join(attribute))
    }

    /// The folder of the device behind the block device (a SCSI device, an NVMe controller), if there is one.
    pub(crate) fn device(&self) -> Option<PathBuf> {
        std::fs::canonicalize(self.folder.join("device")).ok()
    }

    /// The controller of an NVMe disk. With native multipath the disk hangs on a subsystem, which links to its
    /// controllers.
    pub(crate) fn nvme_controller(&self) -> Option<PathBuf> {
        let device = self.device()?;
        if device.join("transport").is_file() {
            return Some(device);
        }
        let is_controller = |name: &String| {
            let number = name.strip_prefix("nvme");
            number.is_some_and(|digits| digits.parse::<u32>().is_ok())
        };
        let name = names_in(&device).into_iter().find(is_controller)?;
        std::fs::canonicalize(device.join(name)).ok()
    }

    /// The folder of the `index`th part.
    pub(crate) fn folder_of(&self, index: usize) -> PathBuf {
        let mut folder = self.root.clone();
        folder.extend(self.parts.iter().take(index + 1));
        folder
    }

    /// The innermost part that is `prefix` and then digits: its index and its number.
    pub(crate) fn numbered(&self, prefix: &str) -> Option<(usize, u64)> {
        let parts = self.parts.iter().enumerate().rev();
        parts
            .filter_map(|(index, part)| Some((index, part.strip_prefix(prefix)?.parse().ok()?)))
            .next()
    }

    /// The index of the innermost part that begins with `prefix`.
    pub(crate) fn beginning(&self, prefix: &str) -> Option<usize> {
        self.parts.iter().rposition(|part| part.starts_with(prefix))
    }

    /// The innermost PCI device above the block device: its index and its address, as in `0000:00:1f.2`.
    pub(crate) fn pci(&self) -> Option<(usize, &str)> {
        let index = self.parts.iter().rposition(|part| is_pci_address(part))?;
        Some((index, self.parts.get(index)?))
    }
}

/// The number of a device, as `stat` gives it for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// The driver's number.
    pub major: u32,
    /// The device's number at its driver.
    pub minor: u32,
}

/// The kernel's name of the block device with this number: whatever path led to its node.
#[must_use]
pub fn device_name(roots: &Roots, number: DeviceNumber) -> Option<String> {
    let link = roots
        .sys()
        .join(format!("dev/block/{}:{}", number.major, number.minor));
    let folder = follow(roots, &link)?;
    Some(folder.file_name()?.to_str()?.to_owned())
}

/// Whether a name is a PCI address: domain (4 digits, more behind VMD), bus, device, function.
pub(crate) fn is_pci_address(name: &str) -> bool {
    let hex = |text: &str, least: usize, most: usize| {
        (least..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut parts = name.split(':');
    let (Some(domain), Some(bus), Some(rest), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let Some((device, function)) = rest.split_once('.') else {
        return false;
    };
    hex(domain, 4, 8) && hex(bus, 2, 2) && hex(device, 2, 2) && hex(function, 1, 1)
}

/// What a link inside sysfs leads to, if it stays below the root.
pub(crate) fn follow(roots: &Roots, link: &Path) -> Option<PathBuf> {
    let root = std::fs::canonicalize(roots.sys()).ok()?;
    let target = std::fs::canonicalize(link).ok()?;
    target.starts_with(&root).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_are_addresses() {
        for good in ["0000:00:1f.2", "10000:01:00.0", "ffff:ff:1f.7"] {
            assert!(is_pci_address(good), "{good}");
        }
        for bad in [
            "pci0000:00",
            "0:0:0:0",
            "0000:00:1f",
            "0000:00:1f.10",
            "target0:0:0",
            "",
        ] {
            assert!(!is_pci_address(bad), "{bad}");
        }
    }
}
