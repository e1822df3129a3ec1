//! btrfs over loop devices with a volume as one file in it, and qemu-nbd on top: RAID of the kernel that a user can
//! have without a block device of its own. Without checksums of data and past the page cache above it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{SPAN_BYTES, Server, peers};
use crate::BenchError;
use crate::process::{need_program, output};

/// Room that a member has: data of one copy, metadata and btrfs' own reserves.
const MEMBER_BYTES: u64 = SPAN_BYTES + (128 << 20);

/// A file system on loop devices, taken apart when dropped.
pub(crate) struct Mounted {
    /// Loop devices.
    pub devices: Vec<PathBuf>,
    /// Where it is mounted; nothing until it is.
    pub folder: Option<PathBuf>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Best effort: what is left over is visible in `losetup` and `mount`.
        if let Some(folder) = &self.folder {
            let _ = Command::new("umount").arg(folder).status();
        }
        for device in &self.devices {
            let _ = Command::new("losetup").arg("--detach").arg(device).status();
        }
    }
}

impl Mounted {
    /// Makes and mounts a file system of `profile`; `options` are mkfs' and mount's.
    pub fn make(
        folder: &Path,
        profile: &str,
        members: usize,
        member_bytes: u64,
        mount_options: &str,
    ) -> Result<Self, BenchError> {
        let (mkfs, losetup) = (need_program("mkfs.btrfs")?, need_program("losetup")?);
        let mut mounted = Mounted {
            devices: Vec::new(),
            folder: None,
        };
        for index in 0..members {
            let device = loop_device(&losetup, &folder.join(format!("m{index}")), member_bytes)?;
            mounted.devices.push(device);
        }
        let mut make = Command::new(mkfs);
        make.args([
            "--quiet",
            "--force",
            "--nodiscard",
            "--data",
            profile,
            "--metadata",
            profile,
        ]);
        output(make.args(&mounted.devices))?;
        let mount_point = folder.join("mount");
        std::fs::create_dir_all(&mount_point)
            .map_err(|error| BenchError(format!("{}: {error}", mount_point.display())))?;
        let mut mount = Command::new(need_program("mount")?);
        mount.args(["-t", "btrfs", "-o", mount_options]);
        output(mount.arg(&mounted.devices[0]).arg(&mount_point))?;
        mounted.folder = Some(mount_point);
        Ok(mounted)
    }
}

/// A loop device over a new sparse file.
pub(crate) fn loop_device(
    losetup: &Path,
    path: &Path,
    size_bytes: u64,
) -> Result<PathBuf, BenchError> {
    File::create(path)
        .and_then(|file| file.set_len(size_bytes))
        .map_err(|error| BenchError(format!("{}: {error}", path.display())))?;
    let mut attach = Command::new(losetup);
    let device = output(attach.args(["--find", "--show"]).arg(path))?;
    Ok(PathBuf::from(device.trim()))
}

/// A volume in a file system of `profile`, served by qemu-nbd past the page cache.
pub(super) fn serve(folder: &Path, profile: &str, members: usize) -> Result<Server, BenchError> {
    let options = "nodatasum,nodatacow,noatime";
    let mounted = Mounted::make(folder, profile, members, MEMBER_BYTES, options)?;
    let mount_point = mounted.folder.clone().unwrap_or_default();
    let volume = mount_point.join("volume");
    let mut allocate = Command::new(need_program("fallocate")?);
    output(
        allocate
            .arg("--length")
            .arg(SPAN_BYTES.to_string())
            .arg(&volume),
    )?;
    let mut server = peers::qemu_nbd(folder, &volume, &["--cache=none", "--aio=native"])?;
    server.uses_kernel = true;
    server.undo = Some(mounted);
    Ok(server)
}
