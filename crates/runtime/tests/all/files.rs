//! File members on both reactors.

use std::os::unix::fs::MetadataExt;

use crate::common::{disk_folder, memory_folder, on_both, pattern, pool, sparse};
use plexum_block::device::{Device, Fua, IoError, ZeroMode};
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
fn a_long_write_to_memory_leaves_the_thread_free_and_a_short_one_is_done_at_once() {
    on_both(async |handle| {
        let memory = memory_folder();
        let path = sparse(&memory, "member", 4 * MIB as u64);
        let options = OpenOptions::read_write();
        let device = FileDevice::open(&handle, &path, &options).unwrap();
        assert_eq!(device.route(), Route::Inline);
        let bytes = pattern(3, MIB);
        let data = pool().copy_of(&bytes).freeze();
        let nobody = &mut std::task::Context::from_waker(std::task::Waker::noop());
        let mut short = std::pin::pin!(device.write(0, data.slice(0..4096), Fua::No));
        assert!(short.as_mut().poll(nobody).is_ready());
        let mut long = std::pin::pin!(device.write(MIB as u64, data.clone(), Fua::No));
        assert!(long.as_mut().poll(nobody).is_pending());
        long.await.unwrap();
        let back = device.read(MIB as u64, pool().take(MIB)).await.unwrap();
        assert!(*back == *bytes);
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

#[test]
fn unmap_leaves_a_hole_that_reads_as_zeroes_and_allocate_keeps_the_space() {
    on_both(async |handle| {
        let (disk, memory) = (disk_folder(), memory_folder());
        for folder in [&disk, &memory] {
            let path = folder.path().join("member");
            std::fs::write(&path, vec![7; MIB]).unwrap();
            let device = FileDevice::open(&handle, &path, &OpenOptions::read_write()).unwrap();
            let pool = pool();
            assert!(device.info().has_zeroing_trim);
            let (start, length) = (64 << 10, 128 << 10);
            device.zero(start, length, ZeroMode::Unmap).await.unwrap();
            assert!(device.is_hole(start, length).unwrap());
            assert!(!device.is_hole(start, length + 4096).unwrap());
            assert!(!device.is_hole(start - 4096, length).unwrap());
            // Not whole blocks of the file system: no hole, zeroes all the same.
            device.zero(512, 512, ZeroMode::Unmap).await.unwrap();
            let blocks = || std::fs::metadata(&path).unwrap().blocks();
            let before = blocks();
            let allocated = device.zero(512 << 10, 4096, ZeroMode::Allocate).await;
            let all = device.read(0, pool.take(MIB)).await.unwrap();
            let is_zero = |offset: usize| {
                let offset = offset as u64;
                (start..start + length).contains(&offset)
                    || (512..1024).contains(&offset)
                    || (allocated.is_ok() && (512 << 10..(512 << 10) + 4096).contains(&offset))
            };
            for (offset, byte) in all.iter().enumerate() {
                assert_eq!(*byte == 0, is_zero(offset), "byte {offset}");
            }
            assert!(allocated.is_ok() || allocated == Err(IoError::Unsupported));
            assert_eq!(blocks(), before, "the space stays");
            assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB as u64);
        }
    });
}

#[test]
fn extents_cover_the_range_without_gaps_and_tell_data_from_holes() {
    on_both(async |handle| {
        let folder = disk_folder();
        let path = sparse(&folder, "member", 4 * MIB as u64);
        let device = FileDevice::open(&handle, &path, &buffered()).unwrap();
        let data = pool().take_zeroed(MIB).freeze();
        device.write(MIB as u64, data, Fua::No).await.unwrap();
        let whole = device.extents(0, 4 * MIB as u64, 10).unwrap();
        let mut next = 0;
        for extent in &whole {
            assert_eq!(extent.offset_bytes, next);
            assert!(extent.length_bytes > 0);
            next += extent.length_bytes;
        }
        assert_eq!(next, 4 * MIB as u64);
        let holes: Vec<_> = whole.iter().map(|extent| extent.is_hole).collect();
        assert_eq!(holes, [true, false, true]);
        let part = device.extents(3 << 19, MIB as u64, 10).unwrap();
        assert_eq!(part.len(), 2);
        assert_eq!(device.extents(0, 4 * MIB as u64, 1).unwrap().len(), 1);
        assert_eq!(device.extents(0, 0, 1).unwrap(), []);
        assert!(device.is_hole(0, 0).unwrap());
        assert_eq!(
            device.extents(MIB as u64, 4 * MIB as u64, 10),
            Err(IoError::OutOfRange)
        );
    });
}

#[test]
fn thousands_of_transfers_at_once_all_arrive_where_they_belong() {
    on_both(async |handle| {
        let folder = disk_folder();
        let count = 5000_u64;
        let path = sparse(&folder, "member", count * 512);
        let device = FileDevice::open(&handle, &path, &buffered()).unwrap();
        let device = std::rc::Rc::new(device);
        for _ in 0..2 {
            let mut tasks = Vec::new();
            for number in 0..count {
                let device = std::rc::Rc::clone(&device);
                tasks.push(handle.spawn(async move {
                    let pool = pool();
                    let bytes = pattern(number, 512);
                    let data = pool.copy_of(&bytes).freeze();
                    device.write(number * 512, data, Fua::No).await.unwrap();
                    let back = device.read(number * 512, pool.take(512)).await.unwrap();
                    assert!(*back == *bytes, "sector {number}");
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        }
        device.flush().await.unwrap();
        let all = std::fs::read(&path).unwrap();
        for number in 0..count {
            let start = number as usize * 512;
            assert!(all[start..start + 512] == *pattern(number, 512));
        }
    });
}

#[test]
fn dropped_transfers_end_by_themselves_and_harm_no_later_buffer() {
    on_both(async |handle| {
        let folder = disk_folder();
        let path = folder.path().join("member");
        std::fs::write(&path, vec![0xee; MIB]).unwrap();
        let device = FileDevice::open(&handle, &path, &OpenOptions::read_write()).unwrap();
        let pool = pool();
        for round in 0..50_u64 {
            let mut reads: Vec<_> = (0..16)
                .map(|n| Box::pin(device.read(n * 4096, pool.take(4096))))
                .collect();
            let data = pool.copy_of(&[0xee; 4096]).freeze();
            let mut write = Box::pin(device.write(64 << 10, data, Fua::No));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            for read in &mut reads {
                let _ = read.as_mut().poll(&mut context);
            }
            let _ = write.as_mut().poll(&mut context);
            drop((reads, write));
            // If a buffer had gone back to the pool too early, these would be overwritten with 0xee.
            let mine: Vec<_> = (0..32)
                .map(|_| pool.copy_of(&[round as u8; 4096]))
                .collect();
            let back = device.read(MIB as u64 / 2, pool.take(4096)).await.unwrap();
            assert!(back.iter().all(|byte| *byte == 0xee));
            for buf in &mine {
                assert!(buf.iter().all(|byte| *byte == round as u8));
            }
        }
        device.flush().await.unwrap();
        assert!(std::fs::read(&path).unwrap() == vec![0xee; MIB]);
    });
}

#[test]
fn the_last_part_of_a_sector_is_not_used() {
    on_both(async |handle| {
        let folder = disk_folder();
        let path = sparse(&folder, "member", MIB as u64 + 513);
        let device = FileDevice::open(&handle, &path, &buffered()).unwrap();
        assert_eq!(device.info().size_bytes, MIB as u64 + 512);
    });
}

#[test]
fn a_file_cut_off_between_two_writes_is_lost_with_the_second_and_never_whole_again() {
    on_both(async |handle| {
        let folder = memory_folder();
        let data = pool().copy_of(&[9; 4096]).freeze();
        for offset_bytes in [8192, (1 << 20) - 4096] {
            let path = folder.path().join(format!("m{offset_bytes}"));
            std::fs::write(&path, pattern(3, 1 << 20)).unwrap();
            let device = FileDevice::open(&handle, &path, &OpenOptions::read_write()).unwrap();
            let write = async |at| device.write(at, data.clone(), Fua::No).await;
            write(0).await.unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(4096).unwrap();
            assert!(write(offset_bytes).await.is_err(), "{offset_bytes}");
            let length = std::fs::metadata(&path).unwrap().len();
            assert!(length < 1 << 20, "{offset_bytes}: {length}");
            assert!(device.read(0, pool().take(512)).await.is_err(), "lost");
            file.set_len(1 << 20).unwrap();
            assert!(write(0).await.is_err(), "and stays so");
        }
    });
}
