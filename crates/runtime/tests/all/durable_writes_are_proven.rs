//! The list of file systems that are believed when a write asks to be durable (W14): each entry flushes its disk before
//! it answers, by every way that is used here. Needs root, and the file systems' own tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{disk_folder, on_both, pattern, pool, sparse};
use plexum_block::device::{Device, Fua, FuaWay};
use plexum_runtime::durable::PROVEN;
use plexum_runtime::file::{DirectIo, FileDevice, OpenOptions};
use tempfile::TempDir;

/// Enough for the least xfs.
const DISK_BYTES: u64 = 320 << 20;
const MEMBER_BYTES: usize = 8 << 20;
const BLOCK_BYTES: u64 = 4096;
const WRITES: u64 = 20;

/// A file system on a loop device, mounted as long as it lives.
struct Mounted {
    device: PathBuf,
    folder: PathBuf,
    _home: TempDir,
}

impl Mounted {
    fn new(make: &[&str]) -> Self {
        let home = disk_folder();
        let image = sparse(&home, "image", DISK_BYTES);
        let device = run("losetup", &["--find", "--show", text(&image)]);
        let device = PathBuf::from(device.trim());
        run(make[0], &[&make[1..], &[text(&device)]].concat());
        let folder = home.path().join("mounted");
        std::fs::create_dir(&folder).unwrap();
        run("mount", &[text(&device), text(&folder)]);
        Self {
            device,
            folder,
            _home: home,
        }
    }

    /// Flushes that the disk has done: the 16th number of its statistics (Documentation/admin-guide/iostats.rst).
    fn flushes(&self) -> u64 {
        let name = self.device.file_name().unwrap().to_str().unwrap();
        let stat = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        stat.split_whitespace().nth(15).unwrap().parse().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The kernel lets go of a ring's files a moment after its process has: until then the file system is in use.
        run("umount", &["--lazy", text(&self.folder)]);
        run("losetup", &["--detach", text(&self.device)]);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// How a file system with a disk is made.
fn tool(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "ext4" => Some(&["mkfs.ext4", "-q"]),
        "xfs" => Some(&["mkfs.xfs", "-q"]),
        "btrfs" => Some(&["mkfs.btrfs", "-q"]),
        "tmpfs" | "ramfs" => None, // there is no disk
        other => panic!("{other} is on the list without a proof"),
    }
}

#[test]
fn every_file_system_on_the_list_flushes_its_disk_for_each_durable_write() {
    for (f_type, name) in PROVEN {
        let Some(make) = tool(name) else { continue };
        let disk = Mounted::new(make);
        let found = rustix::fs::statfs(&disk.folder).unwrap();
        assert_eq!(found.f_type as u32, f_type, "{name}");
        let path = disk.folder.join("member");
        std::fs::write(&path, pattern(1, MEMBER_BYTES)).unwrap();
        run("sync", &["-f", text(&path)]);
        let disk = &disk;
        let path = &path;
        on_both(|handle| async move {
            for direct_io in [DirectIo::Auto, DirectIo::Off] {
                let options = OpenOptions {
                    direct_io,
                    ..OpenOptions::read_write()
                };
                let device = FileDevice::open(&handle, path, &options).unwrap();
                assert_eq!(device.is_direct(), direct_io == DirectIo::Auto, "{name}");
                assert_eq!(device.fua_way(), FuaWay::InWrite, "{name}");
                for at in 0..WRITES {
                    let before = disk.flushes();
                    let data = pool().copy_of(&pattern(at, BLOCK_BYTES as usize)).freeze();
                    device
                        .write(at * BLOCK_BYTES, data, Fua::Yes)
                        .await
                        .unwrap();
                    assert!(disk.flushes() > before, "{name} {direct_io:?}, write {at}");
                }
            }
        });
    }
}
