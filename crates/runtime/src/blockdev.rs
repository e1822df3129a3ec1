//! What is special about block devices: their properties, and who in the kernel holds them.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

/// What the kernel says about a device.
pub(crate) struct Properties {
    pub(crate) sector_bytes: u32,
    pub(crate) physical_sector_bytes: u32,
    pub(crate) is_rotational: bool,
    pub(crate) has_zeroing_trim: bool,
}

/// Properties of the block device `fd`; unknown ones get the cautious value.
pub(crate) fn describe(fd: impl AsFd, stat: &Stat) -> Properties {
    let sector_bytes = rustix::fs::ioctl_blksszget(&fd).unwrap_or(4096);
    let folder = folder_of(stat.st_rdev);
    Properties {
        // Sizes above 4096 bytes exist only on kernels that take 4096 as well by their page cache.
        sector_bytes: if sector_bytes == 512 { 512 } else { 4096 },
        physical_sector_bytes: rustix::fs::ioctl_blkpbszget(&fd).unwrap_or(4096),
        is_rotational: is_rotational(stat.st_rdev),
        // Punching a hole into a device asks for zeroes that may unmap, and never falls back to writing them.
        has_zeroing_trim: queue_value(&folder, "write_zeroes_max_bytes") > 0,
    }
}

/// Whether the disk below the device number (a disk, partition or file system) rotates; `false` when unknown.
pub(crate) fn is_rotational(number: u64) -> bool {
    queue_value(&folder_of(number), "rotational") == 1
}

/// Whether the kernel takes no writes for the device, or for the disk that it is a part of.
pub(crate) fn is_read_only(number: u64) -> bool {
    let folder = folder_of(number);
    let says = |path: PathBuf| fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    let is_part = folder.join("partition").exists();
    says(folder.join("ro")) || is_part && says(folder.join("../ro"))
}

/// The device's folder in sysfs.
fn folder_of(number: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// A number from `queue/`, which partitions share with their disk (the folder above); 0 when there is none.
fn queue_value(folder: &Path, name: &str) -> u64 {
    let read = |path: PathBuf| fs::read_to_string(path).ok();
    read(folder.join("queue").join(name))
        .or_else(|| read(folder.join("../queue").join(name)))
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// Who holds a busy device as far as the kernel tells, each with what ends it.
pub(crate) fn holders(path: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    if let Ok(stat) = rustix::fs::stat(path) {
        let (sys, number) = (Path::new("/sys/dev/block"), stat.st_rdev);
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        lines = kernel_holders(&sys.join(format!("{major}:{minor}")));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        lines.extend(mount_holder(&mounts, &format!("{major}:{minor}")));
    }
    lines
}

/// Holders of the device with this sysfs folder, and of its partitions.
fn kernel_holders(folder: &Path) -> Vec<String> {
    let mut names = list(&folder.join("holders"));
    for part in list(folder) {
        if folder.join(&part).join("partition").exists() {
            names.extend(list(&folder.join(part).join("holders")));
        }
    }
    names.sort();
    names.dedup();
    names.iter().map(|name| describe_holder(name)).collect()
}

fn list(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn describe_holder(name: &str) -> String {
    if name.starts_with("md") {
        format!("the kernel's md array /dev/{name} (stop it with: mdadm --stop /dev/{name})")
    } else if name.starts_with("dm-") {
        format!("the device mapper's /dev/{name} (see: dmsetup info /dev/{name})")
    } else {
        format!("/dev/{name}")
    }
}

/// Where the disk of this name in `/sys/block` is mounted.
pub(crate) fn mount_of(name: &str) -> Option<String> {
    let number = fs::read_to_string(format!("/sys/block/{name}/dev")).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mount_point(&mounts, number.trim()).map(str::to_owned)
}

fn mount_holder(mountinfo: &str, number: &str) -> Option<String> {
    let place = mount_point(mountinfo, number)?;
    Some(format!("the mount {place} (end it with: umount {place})"))
}

/// The line of `mountinfo` for a device number: its fifth field is the mount point.
fn mount_point<'a>(mountinfo: &'a str, number: &str) -> Option<&'a str> {
    let line = mountinfo
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(number))?;
    line.split(' ').nth(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_of_a_disk_and_of_its_partitions_are_named_with_a_way_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = |path: &str| fs::create_dir_all(folder.path().join(path)).expect("a folder");
        make("holders/md127");
        make("sda1/holders/dm-0");
        make("sda2/holders/md127");
        make("queue/holders/not-a-partition");
        for part in ["sda1", "sda2"] {
            fs::write(folder.path().join(part).join("partition"), "1").expect("a file");
        }
        let lines = kernel_holders(folder.path());
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("dmsetup info /dev/dm-0"));
        assert!(lines[1].contains("mdadm --stop /dev/md127"));
    }

    #[test]
    fn a_mount_is_found_by_its_device_number_only() {
        let table = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n\
                     37 35 8:1 / /data rw - xfs /dev/sda1 rw\n";
        let found = mount_holder(table, "8:1").expect("it is mounted");
        assert!(found.contains("umount /data"));
        assert_eq!(mount_holder(table, "8:10"), None);
        assert_eq!(mount_holder("8:1", "8:1"), None);
        assert_eq!(mount_holder("", "8:1"), None);
    }

    #[test]
    fn queue_values_come_from_the_disk_for_its_partitions_too() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("sda/queue")).expect("a folder");
        fs::create_dir_all(folder.path().join("sda/sda1")).expect("a folder");
        fs::write(folder.path().join("sda/queue/rotational"), "1\n").expect("a file");
        assert_eq!(queue_value(&folder.path().join("sda"), "rotational"), 1);
        assert_eq!(
            queue_value(&folder.path().join("sda/sda1"), "rotational"),
            1
        );
        assert_eq!(queue_value(folder.path(), "rotational"), 0);
    }
}
