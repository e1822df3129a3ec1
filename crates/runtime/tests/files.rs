//! File members on both reactors.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

mod common;

use common::{disk_folder, memory_folder, on_both, pattern, pool, sparse};
use plexum_engine::device::{Device, Fua, IoError, ZeroMode};
use plexum_runtime::file::{DirectIo, FileDevice, OpenOptions, Route};

const MIB: usize = 1 << 20;

fn buffered() -> OpenOptions {
    OpenOptions {
        direct_io: DirectIo::Off,
        ..OpenOptions::read_write()
    }
}

#[test]
fn what_was_written_is_read_back_buffered_direct_and_in_memory() {
    on_both(async |handle| {
        let (disk, memory) = (disk_folder(), memory_folder());
        for (folder, options) in [
            (&disk, OpenOptions::read_write()),
            (&disk, buffered()),
            (&memory, OpenOptions::read_write()),
        ] {
            let path = folder.path().join("member");
            std::fs::write(&path, vec![7; 4 * MIB]).unwrap();
            let device = FileDevice::open(&handle, &path, &options).unwrap();
            assert_eq!(device.info().size_bytes, 4 * MIB as u64);
            let pool = pool();
            for (seed, (offset, length)) in [(0, 512), (512, 4096), (8192, MIB), (3 * MIB, MIB)]
                .into_iter()
                .enumerate()
            {
                let bytes = pattern(seed as u64, length);
                let data = pool.copy_of(&bytes).freeze();
                let fua = if seed % 2 == 0 { Fua::Yes } else { Fua::No };
                device.write(offset as u64, data, fua).await.unwrap();
                let back = device.read(offset as u64, pool.take(length)).await.unwrap();
                assert!(*back == *bytes, "at {offset} of {options:?}");
            }
            device.flush().await.unwrap();
            let last = device.read(2 * MIB as u64, pool.take(512)).await.unwrap();
            assert!(last.iter().all(|byte| *byte == 7));
            drop(device);
            let bytes = std::fs::read(&path).unwrap();
            assert!(bytes[8192..8192 + MIB] == *pattern(2, MIB));
            std::fs::remove_file(&path).unwrap();
        }
    });
}

#[test]
fn ranges_outside_or_not_aligned_are_refused_and_change_nothing() {
    on_both(async |handle| {
        let folder = disk_folder();
        let path = sparse(&folder, "member", MIB as u64);
        let device = FileDevice::open(&handle, &path, &buffered()).unwrap();
        let pool = pool();
        for (offset, length) in [
            (MIB as u64, 512),
            (MIB as u64 - 512, 1024),
            (1, 512),
            (0, 513),
            (u64::MAX - 511, 512),
        ] {
            let refused = Err(IoError::OutOfRange);
            let data = pool.take_zeroed(length).freeze();
            assert_eq!(device.write(offset, data, Fua::No).await, refused);
            assert!(device.read(offset, pool.take(length)).await.is_err());
            let zeroed = device.zero(offset, length as u64, ZeroMode::Unmap).await;
            assert_eq!(zeroed, refused);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB as u64);
    });
}

#[test]
fn unaligned_memory_reaches_a_direct_file_as_it_is() {
    on_both(async |handle| {
        let folder = disk_folder();
        let path = sparse(&folder, "member", MIB as u64);
        let device = FileDevice::open(&handle, &path, &OpenOptions::read_write()).unwrap();
        let sector = device.info().sector_bytes as usize;
        let pool = pool();
        let bytes = pattern(1, sector + 3);
        let odd = pool.copy_of(&bytes).freeze().slice(3..3 + sector);
        device.write(0, odd, Fua::No).await.unwrap();
        let back = device.read(0, pool.take(sector)).await.unwrap();
        assert!(*back == bytes[3..]);
    });
}

#[test]
fn a_file_in_memory_is_used_inline_and_one_on_disk_is_queued() {
    on_both(async |handle| {
        let (disk, memory) = (disk_folder(), memory_folder());
        for (folder, route) in [(&disk, Route::Queued), (&memory, Route::Inline)] {
            let path = sparse(folder, "member", MIB as u64);
            let device = FileDevice::open(&handle, &path, &OpenOptions::read_write()).unwrap();
            assert_eq!(device.route(), route);
        }
    });
}
