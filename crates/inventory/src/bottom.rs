//! From a block device down to what it stands on.

use crate::below::{Below, Stack};
use crate::error::InventoryError;
use crate::roots::{Roots, names_in, read_text};
use crate::syspath::SysPath;

/// Devices upon devices: an encrypted volume on a logical volume on an array on partitions is 4.
const DEPTH_MAX: usize = 16;
/// Devices under one: far more than any array has members.
const DEVICES_MAX: usize = 1024;

/// What the block device `name` stands on.
///
/// # Errors
/// `NotAName`, `NoSuchDevice`.
pub fn below(roots: &Roots, name: &str) -> Result<Below, InventoryError> {
    Ok(below_of(roots, &SysPath::find(roots, name)?))
}

pub(crate) fn below_of(roots: &Roots, path: &SysPath) -> Below {
    if let Some((disk, number)) = path.disk_of_partition(roots) {
        return match below_of_whole(roots, &disk) {
            Below::Itself => Below::Partition {
                disk: disk.name,
                number,
            },
            other => other,
        };
    }
    below_of_whole(roots, path)
}

/// Of a device that is no partition.
fn below_of_whole(roots: &Roots, path: &SysPath) -> Below {
    let is_loop = path.folder.join("loop").is_dir() || path.numbered("loop").is_some();
    if is_loop {
        return Below::File {
            file: path.text("loop/backing_file"),
        };
    }
    let slaves = names_in(&path.folder.join("slaves"));
    let stack = if path.folder.join("md").is_dir() {
        Some(Stack::Md)
    } else if path.folder.join("dm").is_dir() {
        let uuid = path.text("dm/uuid");
        let is_multipath = uuid.is_some_and(|uuid| uuid.starts_with("mpath-"));
        Some(if is_multipath {
            Stack::Multipath
        } else {
            Stack::DeviceMapper
        })
    } else if slaves.is_empty() {
        None
    } else {
        Some(Stack::Other)
    };
    if let Some(stack) = stack {
        return Below::Devices {
            stack,
            disks: bottom(roots, slaves),
        };
    }
    // A disk has a device of its bus behind it; memory and networks have none.
    match is_disk_device(path) {
        true => Below::Itself,
        false => Below::Nothing,
    }
}

/// Whether a bus has this device, and as a disk: not a tape, not an optical drive.
fn is_disk_device(path: &SysPath) -> bool {
    let Some(device) = path.device() else {
        return false;
    };
    // Types of SCSI devices: 0 is a disk, 14 a simple disk (some bridges), 20 a zoned one. Others have no such file.
    match read_text(&device.join("type")).as_deref() {
        Some(kind) if path.numbered("host").is_some() => matches!(kind, "0" | "14" | "20"),
        _ => true,
    }
}

/// The disks at the bottom of `names`.
fn bottom(roots: &Roots, names: Vec<String>) -> Vec<String> {
    let mut todo: Vec<(String, usize)> = names.into_iter().map(|name| (name, 0)).collect();
    let mut disks = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    while let Some((name, depth)) = todo.pop() {
        if depth >= DEPTH_MAX || seen.len() >= DEVICES_MAX || seen.contains(&name) {
            continue;
        }
        seen.push(name.clone());
        let Ok(path) = SysPath::find(roots, &name) else {
            continue;
        };
        let path = path.disk_of_partition(roots).map_or(path, |(disk, _)| disk);
        let next = names_in(&path.folder.join("slaves"));
        if next.is_empty() && is_disk_device(&path) {
            disks.push(path.name);
        } else {
            todo.extend(next.into_iter().map(|name| (name, depth + 1)));
        }
    }
    disks.sort();
    disks.dedup();
    disks
}
