//! Block devices, by loop devices; needs root and says so where it is not.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{disk_folder, on_both, pattern, pool, sparse};
use plexum_block::device::{Device, Fua, IoError, ZeroMode};
use plexum_runtime::file::{FileDevice, OpenError, OpenOptions};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A loop device over a sparse file, as long as it lives.
struct Loop {
    device: PathBuf,
    backing: PathBuf,
    _folder: TempDir,
}

impl Loop {
    fn new(size_bytes: u64, arguments: &[&str]) -> Self {
        let folder = disk_folder();
        let backing = sparse(&folder, "backing", size_bytes);
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .args(arguments)
            .arg(&backing)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let device = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        Self {
            device,
            backing,
            _folder: folder,
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", self.device.to_str().unwrap()]);
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not root: no loop device can be made here");
    }
    is_root
}

#[test]
fn a_block_device_has_its_size_and_sectors_and_keeps_what_is_written() {
    if !is_root() {
        return;
    }
    on_both(async |handle| {
        for sector in [512_u32, 4096] {
            let disk = Loop::new(4 * MIB, &["--sector-size", &sector.to_string()]);
            let options = OpenOptions::read_write();
            let device = FileDevice::open(&handle, &disk.device, &options).unwrap();
            assert_eq!(device.info().size_bytes, 4 * MIB);
            assert_eq!(device.info().sector_bytes, sector);
            assert!(device.physical_sector_bytes() >= sector);
            assert!(device.is_direct());
            let pool = pool();
            let length = sector as usize;
            let bytes = pattern(1, length);
            for offset in [0, 2 * MIB, 4 * MIB - u64::from(sector)] {
                let data = pool.copy_of(&bytes).freeze();
                device.write(offset, data, Fua::Yes).await.unwrap();
                let back = device.read(offset, pool.take(length)).await.unwrap();
                assert!(*back == *bytes);
            }
            if sector == 4096 {
                let half = device.read(512, pool.take(512)).await.map(|_| ());
                assert_eq!(half, Err(IoError::OutOfRange));
            }
            device.flush().await.unwrap();
            assert_eq!(device.check().await, Ok(()));
            assert!(
                !device.is_hole(MIB, MIB).unwrap(),
                "a device knows no holes"
            );
            let stored = std::fs::read(&disk.backing).unwrap();
            assert!(stored[..length] == *bytes);
        }
    });
}

#[test]
fn zeroing_a_block_device_gives_zeroes_and_gives_space_back_where_it_says_so() {
    if !is_root() {
        return;
    }
    on_both(async |handle| {
        let disk = Loop::new(4 * MIB, &[]);
        let options = OpenOptions::read_write();
        let device = FileDevice::open(&handle, &disk.device, &options).unwrap();
        let pool = pool();
        for mode in [ZeroMode::Unmap, ZeroMode::Allocate] {
            let data = pool.copy_of(&vec![7; 2 * MIB as usize]).freeze();
            device.write(0, data, Fua::No).await.unwrap();
            let result = device.zero(4096, MIB, mode).await;
            match mode {
                ZeroMode::Unmap => assert_eq!(result.is_ok(), device.info().has_zeroing_trim),
                ZeroMode::Allocate => assert_eq!(result, Ok(())),
            }
            let back = device.read(0, pool.take(2 * MIB as usize)).await.unwrap();
            for (offset, byte) in back.iter().enumerate() {
                let is_inside = (4096..4096 + MIB).contains(&(offset as u64));
                assert_eq!(*byte == 0, is_inside && result.is_ok(), "byte {offset}");
            }
        }
    });
}

#[test]
fn a_device_in_use_is_busy_and_the_message_says_by_whom() {
    if !is_root() {
        return;
    }
    on_both(async |handle| {
        let disk = Loop::new(16 * MIB, &[]);
        let options = OpenOptions::read_write();
        let name = disk.device.to_str().unwrap();
        let open = || FileDevice::open(&handle, &disk.device, &options);
        let first = open().unwrap();
        assert!(open().unwrap_err().is_busy());
        drop(first);
        run("mkfs.ext4", &["-q", "-F", name]);
        let place = disk_folder();
        run("mount", &[name, place.path().to_str().unwrap()]);
        let error = open().unwrap_err();
        run("umount", &[place.path().to_str().unwrap()]);
        assert!(error.is_busy());
        let OpenError::Busy { holders, .. } = &error else {
            panic!("{error}")
        };
        let mount = place.path().to_str().unwrap();
        assert!(holders.iter().any(|line| line.contains(mount)), "{error}");
        assert!(Path::new(name).exists());
        open().unwrap();
    });
}

#[test]
fn a_device_that_has_shrunk_is_gone() {
    if !is_root() {
        return;
    }
    on_both(async |handle| {
        let disk = Loop::new(4 * MIB, &[]);
        let options = OpenOptions::read_write();
        let device = FileDevice::open(&handle, &disk.device, &options).unwrap();
        let backing = std::fs::File::options().write(true).open(&disk.backing);
        backing.unwrap().set_len(2 * MIB).unwrap();
        run(
            "losetup",
            &["--set-capacity", disk.device.to_str().unwrap()],
        );
        assert_eq!(device.check().await, Err(IoError::Gone));
        let read = device.read(3 * MIB, pool().take(4096)).await.map(|_| ());
        assert_eq!(read, Err(IoError::Gone));
    });
}

#[test]
fn a_device_that_has_lost_its_length_is_gone_whatever_the_kernel_answers() {
    if !is_root() {
        return;
    }
    on_both(async |handle| {
        let disk = Loop::new(4 * MIB, &[]);
        let options = OpenOptions::read_write();
        let device = FileDevice::open(&handle, &disk.device, &options).unwrap();
        let pool = pool();
        // As the kernel does with a disk that is being pulled: no length first, no device later.
        let backing = std::fs::File::options().write(true).open(&disk.backing);
        backing.unwrap().set_len(0).unwrap();
        run(
            "losetup",
            &["--set-capacity", disk.device.to_str().unwrap()],
        );
        let data = pool.copy_of(&pattern(1, 4096)).freeze();
        let written = device.write(MIB, data, Fua::No).await;
        assert_eq!(written, Err(IoError::Gone));
        let read = device.read(0, pool.take(4096)).await.map(|_| ());
        assert_eq!(read, Err(IoError::Gone));
    });
}
