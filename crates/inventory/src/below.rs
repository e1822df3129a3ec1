//! What a block device stands on: itself, a disk's partition, other devices, a file, or nothing that has a sticker.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What joins the devices below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stack {
    /// The kernel's device mapper: logical volumes, encryption.
    DeviceMapper,
    /// The device mapper, as several paths to one disk.
    Multipath,
    /// The kernel's own RAID driver.
    Md,
    /// Something else with devices below.
    Other,
}

/// What a block device stands on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Below {
    /// It is a disk itself.
    Itself,
    /// Part of a disk.
    Partition {
        /// The disk's name.
        disk: String,
        /// The number in the disk's partition table.
        number: u64,
    },
    /// Made of other devices.
    Devices {
        /// By what.
        stack: Stack,
        /// The disks at the bottom, sorted, each once.
        disks: Vec<String>,
    },
    /// A loop device.
    File {
        /// The file behind it, if the kernel says.
        file: Option<String>,
    },
    /// Memory, a network, a test device: nothing that could be pulled from a bay.
    Nothing,
}

impl fmt::Display for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Below::Itself => write!(f, "a disk"),
            Below::Partition { disk, number } => write!(f, "partition {number} of {disk}"),
            Below::Devices { stack, disks } => {
                let what = match stack {
                    Stack::DeviceMapper => "a mapped device",
                    Stack::Multipath => "several paths to a disk",
                    Stack::Md => "an array of the kernel",
                    Stack::Other => "made",
                };
                match disks.is_empty() {
                    true => write!(f, "{what} of nothing that is a disk"),
                    false => write!(f, "{what} of {}; ask for these", disks.join(", ")),
                }
            }
            Below::File { file: Some(file) } => write!(f, "a loop device on {file}"),
            Below::File { file: None } => write!(f, "a loop device"),
            Below::Nothing => write!(f, "no disk is below it"),
        }
    }
}
