//! Who uses a device.
//!
//! The end of an opening may bring requests to the server: `holder` opens nothing and may be asked by the thread that
//! serves, `user` may not.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::block_device;
use crate::blockdev;

/// Who in the kernel stands on the device or one of its partitions, in words: a mount, swap, another device. Cheap.
#[must_use]
pub fn holder(device: u32) -> Option<String> {
    let path = block_device(device);
    if !path.exists() {
        return None;
    }
    let mut lines = blockdev::holders(&path);
    let shown = path.display().to_string();
    lines.extend(line_of("/proc/self/mounts", &shown).map(|line| {
        let place = line.split(' ').nth(1).unwrap_or_default();
        format!("the mount {place} (end it with: umount {place})")
    }));
    lines.extend(
        line_of("/proc/swaps", &shown).map(|_| format!("swap (end it with: swapoff {shown})")),
    );
    lines.into_iter().next()
}

/// The line of a table that begins with the device or one of its partitions.
fn line_of(table: &str, device: &str) -> Option<String> {
    let text = fs::read_to_string(table).ok()?;
    let line = text.lines().find(|line| is_of(line, device))?;
    Some(line.to_owned())
}

fn is_of(line: &str, device: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    let Some(rest) = word.strip_prefix(device) else {
        return false;
    };
    let part = rest.strip_prefix('p').unwrap_or(rest);
    rest.is_empty() || rest.starts_with('p') && part.parse::<u32>().is_ok()
}

/// A process that has the device open, as far as this one may see. It takes some milliseconds.
#[must_use]
pub fn opener(device: u32) -> Option<u32> {
    let wanted = fs::metadata(block_device(device)).ok()?.rdev();
    let own = std::process::id();
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own).find(|pid| {
        let fds = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"));
        fds.into_iter().flatten().flatten().any(|fd| {
            // Only what is called a device is looked at: another file system may not answer.
            let is_device = fs::read_link(fd.path()).is_ok_and(|path| path.starts_with("/dev"));
            is_device
                && fs::metadata(fd.path())
                    .is_ok_and(|meta| meta.file_type().is_block_device() && meta.rdev() == wanted)
        })
    })
}

/// Who uses the device in whatever way, in words. Not for the thread that serves it.
#[must_use]
pub fn user(device: u32) -> Option<String> {
    let seen = holder(device);
    let seen = seen.or_else(|| opener(device).map(|pid| format!("process {pid} has it open")));
    seen.or_else(|| {
        is_held(device).then(|| "it is mounted, or another device stands on it".to_owned())
    })
}

/// Whether something stands on the device that is not seen from here, as a mount of a container.
fn is_held(device: u32) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(block_device(device), flags, Mode::empty());
    matches!(opened, Err(Errno::BUSY))
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn a_device_and_its_partitions_are_told_from_its_neighbours() {
        for line in [
            "/dev/ublkb1 /mnt ext4 rw 0 0",
            "/dev/ublkb1p2\tpartition\t1\t0\t-2",
        ] {
            assert!(is_of(line, "/dev/ublkb1"), "{line}");
        }
        for line in [
            "/dev/ublkb10 /mnt",
            "/dev/ublkb1x /mnt",
            "/dev/ublkb1p /mnt",
            "tmpfs /tmp",
            "",
        ] {
            assert!(!is_of(line, "/dev/ublkb1"), "{line}");
        }
    }
}
