//! btrfs over loop devices, with checksums, one file in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Array, DATA_BYTES, Keeper, Made, Work, timed, write_noise};
use crate::BenchError;
use crate::process::{need_program, output};
use crate::served::{Mounted, loop_device};

/// Room that a member has: data of one copy, metadata and btrfs' own reserves.
const MEMBER_BYTES: u64 = DATA_BYTES + (192 << 20);

struct Btrfs {
    mounted: Mounted,
    /// A device that is free to be filled.
    free: PathBuf,
    /// The one that is replaced next.
    next: PathBuf,
}

pub(super) fn make(folder: &Path, array: Array) -> Made {
    let profile = match array.level {
        "1" => "raid1",
        "5" => "raid5",
        _ => "raid6",
    };
    let members = array.data_members + array.parities;
    let mut mounted = Mounted::make(folder, profile, members, MEMBER_BYTES, "noatime")?;
    let free = loop_device(
        &need_program("losetup")?,
        &folder.join("free"),
        MEMBER_BYTES,
    )?;
    mounted.devices.push(free.clone());
    let next = mounted.devices[0].clone();
    let btrfs = Btrfs {
        mounted,
        free,
        next,
    };
    write_noise(&btrfs.folder()?.join("file"), DATA_BYTES)?;
    output(
        Command::new("sync")
            .arg("--file-system")
            .arg(btrfs.folder()?),
    )?;
    Ok(Box::new(btrfs))
}

impl Btrfs {
    fn folder(&self) -> Result<PathBuf, BenchError> {
        let folder = self.mounted.folder.clone();
        folder.ok_or_else(|| BenchError("btrfs is not mounted".to_owned()))
    }
}

impl Keeper for Btrfs {
    fn work(&mut self, work: Work) -> Result<Duration, BenchError> {
        let folder = self.folder()?;
        let mut command = Command::new(need_program("btrfs")?);
        match work {
            Work::Scrub => command.args(["scrub", "start", "-B"]).arg(folder),
            // -r: what was lost is computed and not read from the member that is still there.
            Work::Rebuild => command
                .args(["replace", "start", "-B", "-f", "-r"])
                .args([&self.next, &self.free])
                .arg(folder),
        };
        let time = timed(|| output(&mut command))?;
        if work == Work::Rebuild {
            std::mem::swap(&mut self.next, &mut self.free);
        }
        Ok(time)
    }
}
