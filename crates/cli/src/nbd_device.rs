//! A device of the kernel's nbd, as sysfs shows it: which one is ours, who uses it, and its end.
//!
//! Invariants:
//! - a device is ours by what it was made with, never by its number: that may be somebody else's by now;
//! - one that is in use is never disconnected: the kernel would do it under a mounted file system;
//! - the process that gives it new connections ends first, or it would connect again what is being disconnected.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use plexum_export::kernel_nbd::Kernel;
use plexum_export::process;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::system::{BUSY_LOOKS_MAX, Process, wait_at_most, wait_until};

const BLOCKS: &str = "/sys/block";

/// N of /dev/nbdN; `None` for any other device.
fn index_of(device: &Path) -> Option<u32> {
    device
        .file_name()?
        .to_str()?
        .strip_prefix("nbd")?
        .parse()
        .ok()
}

/// /dev/nbdN.
#[must_use]
pub fn path(index: u32) -> PathBuf {
    PathBuf::from(format!("/dev/nbd{index}"))
}

/// All devices that were made with `identifier`; of an older kernel, which keeps none (Linux 5.13 and before), those
/// that the process `maker` has made.
#[must_use]
pub fn find(identifier: &str, maker: Option<&Process>) -> Vec<PathBuf> {
    find_in(Path::new(BLOCKS), identifier, maker)
}

fn find_in(blocks: &Path, identifier: &str, maker: Option<&Process>) -> Vec<PathBuf> {
    let entries = fs::read_dir(blocks).into_iter().flatten().flatten();
    let names = entries.map(|entry| Path::new("/dev").join(entry.file_name()));
    let mut found: Vec<PathBuf> = names
        .filter(|device| index_of(device).is_some())
        .filter(|device| is_made_with(blocks, device, identifier, maker))
        .collect();
    found.sort();
    found
}

/// Whether `device` is still the one that was made with `identifier`.
#[must_use]
pub fn is_ours(device: &Path, identifier: &str, maker: Option<&Process>) -> bool {
    is_made_with(Path::new(BLOCKS), device, identifier, maker)
}

fn is_made_with(blocks: &Path, device: &Path, identifier: &str, maker: Option<&Process>) -> bool {
    let folder = blocks.join(device.file_name().unwrap_or_default());
    // Both files are there only while it is connected.
    let read = |name| fs::read_to_string(folder.join(name)).ok();
    match read("backend") {
        Some(text) => text.strip_suffix('\n').unwrap_or(&text) == identifier,
        None => {
            let pid = read("pid").and_then(|text| text.trim().parse::<u32>().ok());
            pid.is_some() && pid == maker.map(|maker| maker.pid)
        }
    }
}

/// Whether `source`, something mounted, is `device` or one of its partitions.
#[must_use]
pub fn holds(device: &Path, source: &Path) -> bool {
    let part = source
        .as_os_str()
        .to_str()
        .zip(device.as_os_str().to_str())
        .and_then(|(source, device)| source.strip_prefix(device)?.strip_prefix('p'));
    source == device || part.is_some_and(|part| part.parse::<u32>().is_ok())
}

/// Waits for the file of the device in /dev; whether it is there.
#[must_use]
pub fn has_file(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    let wanted = fs::read_to_string(Path::new(BLOCKS).join(name).join("dev")).unwrap_or_default();
    wait_at_most(BUSY_LOOKS_MAX, || {
        fs::metadata(device).is_ok_and(|meta| {
            let number = meta.rdev();
            let found = format!(
                "{}:{}",
                rustix::fs::major(number),
                rustix::fs::minor(number)
            );
            meta.file_type().is_block_device() && found == wanted.trim()
        })
    })
}

/// Disconnects the device, once nobody uses it, and waits until the kernel has let go of it.
///
/// # Errors
/// In words: who uses it, or what the kernel says.
pub fn release(device: &Path, identifier: &str, keeper: Option<&Process>) -> Result<(), String> {
    let index = index_of(device).ok_or("it is no device of the kernel's nbd")?;
    let mut words = String::new();
    let mut held = None;
    // A program that looks at every new device, as udev's does, is through with it after a moment.
    let is_free = wait_at_most(BUSY_LOOKS_MAX, || match hold(device, keeper) {
        Ok(fd) => {
            held = Some(fd);
            true
        }
        Err(error) => {
            words = error;
            false
        }
    });
    if !is_free {
        return Err(words);
    }
    if let Some(keeper) = keeper.filter(|keeper| keeper.is_running()) {
        process::kill(keeper.pid);
        wait_until(|| !keeper.is_running());
    }
    let kernel = Kernel::open().map_err(|error| error.to_string())?;
    kernel
        .disconnect(index)
        .map_err(|error| error.to_string())?;
    drop(held); // the kernel lets go when the last user has closed it
    let is_gone = wait_until(|| !is_ours(device, identifier, keeper));
    is_gone
        .then_some(())
        .ok_or_else(|| "somebody has it open".to_owned())
}

/// Opens the device so that nobody can mount it meanwhile; fails while anybody uses it.
fn hold(device: &Path, keeper: Option<&Process>) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(device, flags, Mode::empty()).map_err(|error| match error {
        Errno::BUSY => "it is mounted, or another device stands on it".to_owned(),
        error => error.to_string(),
    })?;
    match opener(device, keeper) {
        Some(pid) => Err(format!("process {pid} has it open")),
        None => Ok(fd),
    }
}

/// Another process that has the device open, as far as this one may see.
fn opener(device: &Path, keeper: Option<&Process>) -> Option<u32> {
    let wanted = fs::metadata(device).ok()?.rdev();
    let own = std::process::id();
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own && keeper.is_none_or(|keeper| keeper.pid != *pid))
        .find(|pid| {
            let fds = fs::read_dir(format!("/proc/{pid}/fd"));
            let mut fds = fds.into_iter().flatten().flatten();
            fds.any(|fd| {
                fs::metadata(fd.path())
                    .is_ok_and(|meta| meta.file_type().is_block_device() && meta.rdev() == wanted)
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_ours_by_what_it_was_made_with_and_not_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let blocks = folder.path();
        let own = Process::find(std::process::id()).unwrap();
        let make = |name: &str, files: &[(&str, &str)]| {
            fs::create_dir(blocks.join(name)).unwrap();
            for (file, text) in files {
                fs::write(blocks.join(name).join(file), text).unwrap();
            }
        };
        let pid = format!("{}\n", own.pid);
        make("nbd0", &[("backend", "plexum nas 1\n"), ("pid", "1\n")]);
        make("nbd1", &[("backend", "plexum nas 2\n"), ("pid", &pid)]);
        make("nbd2", &[]); // free
        make("nbd3", &[("pid", &pid)]); // an older kernel
        make("loop0", &[("backend", "plexum nas 1\n")]);
        let find = |identifier, maker| find_in(blocks, identifier, maker);
        assert_eq!(find("plexum nas 1", None), [path(0)]);
        assert_eq!(find("plexum nas 1", Some(&own)), [path(0), path(3)]);
        assert_eq!(find("plexum nas", None), Vec::<PathBuf>::new());
        assert_eq!(find("", None), Vec::<PathBuf>::new());
    }

    #[test]
    fn partitions_of_a_device_are_told_from_other_devices() {
        let holds = |source: &str| holds(&path(1), Path::new(source));
        assert!(holds("/dev/nbd1") && holds("/dev/nbd1p1") && holds("/dev/nbd1p15"));
        for other in [
            "/dev/nbd10",
            "/dev/nbd1p",
            "/dev/nbd10p1",
            "/dev/nbd",
            "tmpfs",
            "",
        ] {
            assert!(!holds(other), "{other}");
        }
    }
}
