//! Files in memory whose pages go to a socket without being copied, on both reactors.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use common::{disk_folder, memory_folder, on_both, pattern, pool};
use plexum_engine::device::{Device, IoError, ZeroMode};
use plexum_engine::parked::Parked;
use plexum_nbd::transport::{Transport, TransportError};
use plexum_runtime::file::{DirectIo, FileDevice, OpenOptions};
use plexum_runtime::socket::{Listener, Socket, connect_tcp};
use plexum_runtime::{Handle, yield_now};

const MIB: usize = 1 << 20;
/// A request's worth of bytes that is in no test's data.
const HEAD: [u8; 16] = [0xee; 16];

fn member(handle: &Handle, path: &Path, bytes: &[u8]) -> FileDevice {
    std::fs::write(path, bytes).unwrap();
    FileDevice::open(handle, path, &OpenOptions::read_write()).unwrap()
}

async fn receive(socket: &Socket, length: usize, at_once: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        let end = length.min(done + at_once);
        let count = socket.read(&mut bytes[done..end]).await.unwrap();
        assert!(count > 0, "the stream ended after {done} of {length} bytes");
        done += count;
    }
    bytes
}

async fn send(socket: &Socket, parked: &mut dyn Parked) -> Result<(), TransportError> {
    let head = pool().copy_of(&HEAD).freeze();
    socket.send_parked(&[head], parked).await
}

/// Parks the ranges of the devices, sends them, and reads them in steps at the other end.
async fn passed(
    handle: &Handle,
    ends: (&Rc<Socket>, &Rc<Socket>),
    ranges: &[(&FileDevice, u64, usize)],
    at_once: usize,
) -> Vec<u8> {
    let length = ranges.iter().map(|(_, _, length)| length).sum();
    let mut parked = ends.0.parking(length).unwrap();
    for (device, offset, length) in ranges {
        assert!(device.park(*offset, *length, &mut *parked));
    }
    assert_eq!(parked.length_bytes(), length);
    let from = Rc::clone(ends.0);
    let sending = handle.spawn(async move { send(&from, &mut *parked).await });
    let mut got = receive(ends.1, HEAD.len() + length, at_once).await;
    sending.await.unwrap().unwrap();
    assert_eq!(got[..HEAD.len()], HEAD);
    got.split_off(HEAD.len())
}

#[test]
fn ranges_of_several_files_arrive_as_they_are_aligned_or_not() {
    on_both(async |handle| {
        let folder = memory_folder();
        let bytes = [pattern(1, 3 * MIB), pattern(2, 3 * MIB)];
        let [a, b] = [("a", &bytes[0]), ("b", &bytes[1])]
            .map(|(name, bytes)| member(&handle, &folder.path().join(name), bytes));
        let (near, far) = Socket::pair(&handle).unwrap();
        let (near, far) = (Rc::new(near), Rc::new(far));
        let listener = Listener::bind_tcp(&handle, "127.0.0.1:0".parse().unwrap()).unwrap();
        let tcp = connect_tcp(&handle, listener.local_address().unwrap());
        let (tcp, accepted) = (tcp.await.unwrap(), listener.accept().await.unwrap());
        let (tcp, accepted) = (Rc::new(tcp), Rc::new(accepted));
        let plans: [&[(usize, u64, usize)]; 6] = [
            &[(0, 0, MIB)],
            &[(0, 512, MIB)],
            &[(0, 0, 3 * MIB)],
            &[(1, 3 * MIB as u64 - 512, 512), (0, 1536, 2 * MIB + 512)],
            &[(0, 0, 65_536), (1, 0, 65_536), (0, 65_536, 65_536)],
            &[(1, 512, 65_536); 16],
        ];
        for plan in plans {
            let ranges: Vec<_> = (plan.iter())
                .map(|(of, at, length)| ([&a, &b][*of], *at, *length))
                .collect();
            let expected: Vec<u8> = (plan.iter())
                .flat_map(|(of, at, length)| &bytes[*of][*at as usize..][..*length])
                .copied()
                .collect();
            for ends in [(&near, &far), (&accepted, &tcp)] {
                for at_once in [MIB, 10_007] {
                    assert!(passed(&handle, ends, &ranges, at_once).await == expected);
                }
            }
        }
    });
}

#[test]
fn a_client_that_hangs_up_in_the_middle_leaves_nothing_for_the_next_one() {
    on_both(async |handle| {
        let folder = memory_folder();
        let bytes = pattern(3, 2 * MIB);
        let device = member(&handle, &folder.path().join("a"), &bytes);
        for _ in 0..20 {
            let (near, far) = Socket::pair(&handle).unwrap();
            let near = Rc::new(near);
            let mut parked = near.parking(2 * MIB).unwrap();
            assert!(device.park(0, 2 * MIB, &mut *parked));
            let from = Rc::clone(&near);
            let sending = handle.spawn(async move { send(&from, &mut *parked).await });
            receive(&far, 100_000, 4096).await;
            drop(far);
            assert_eq!(sending.await.unwrap(), Err(TransportError::Closed));
        }
        let (near, far) = Socket::pair(&handle).unwrap();
        let (near, far) = (Rc::new(near), Rc::new(far));
        let got = passed(&handle, (&near, &far), &[(&device, 4096, MIB)], MIB).await;
        assert!(got == bytes[4096..4096 + MIB]);
    });
}

#[test]
fn a_file_that_was_cut_off_is_left_to_the_ordinary_read() {
    on_both(async |handle| {
        let folder = memory_folder();
        let path = folder.path().join("a");
        let device = member(&handle, &path, &pattern(4, 2 * MIB));
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(MIB as u64 + 4096)
            .unwrap();
        let (near, far) = Socket::pair(&handle).unwrap();
        let (near, far) = (Rc::new(near), Rc::new(far));
        let mut parked = near.parking(MIB).unwrap();
        assert!(!device.park(MIB as u64, MIB, &mut *parked));
        drop(parked);
        let read = device.read(MIB as u64, pool().take(MIB)).await;
        assert_eq!(read.map(|_| ()), Err(IoError::Gone));
        let mut parked = near.parking(MIB).unwrap();
        let is_parked = device.park(0, MIB, &mut *parked);
        assert!(!is_parked, "what is lost stays lost");
        drop(parked);
        // What the first try had parked is in nobody's way.
        let bytes = pattern(5, MIB);
        let other = member(&handle, &folder.path().join("b"), &bytes);
        assert!(passed(&handle, (&near, &far), &[(&other, 0, MIB)], MIB).await == bytes);
    });
}

#[test]
fn what_was_read_stays_though_the_file_gets_a_hole_or_is_cut_off() {
    on_both(async |handle| {
        let folder = memory_folder();
        let path = folder.path().join("a");
        let bytes = pattern(6, 2 * MIB);
        let device = member(&handle, &path, &bytes);
        let (near, far) = Socket::pair(&handle).unwrap();
        let mut parked = near.parking(2 * MIB).unwrap();
        assert!(device.park(0, 2 * MIB, &mut *parked));
        device.zero(0, MIB as u64, ZeroMode::Unmap).await.unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&pattern(7, MIB), 0).unwrap(); // into new pages
        file.set_len(MIB as u64).unwrap();
        let sending = handle.spawn(async move { send(&near, &mut *parked).await });
        let got = receive(&far, HEAD.len() + 2 * MIB, MIB).await;
        sending.await.unwrap().unwrap();
        assert!(got[HEAD.len()..] == bytes);
    });
}

#[test]
fn places_are_few_and_come_back_and_a_slow_client_takes_none_from_the_other_requests() {
    on_both(async |handle| {
        let folder = memory_folder();
        let bytes = pattern(8, 2 * MIB);
        let device = Rc::new(member(&handle, &folder.path().join("a"), &bytes));
        let (near, far) = Socket::pair(&handle).unwrap();
        let (near, far) = (Rc::new(near), Rc::new(far));
        let mut places = Vec::new();
        while let Some(place) = near.parking(MIB) {
            places.push(place);
            assert!(places.len() < 100, "they are bounded");
        }
        assert!(places.len() > 1);
        assert!(near.parking(1).is_none());
        // The first one's client is slow; the ordinary read goes on.
        let mut slow = places.swap_remove(0);
        assert!(device.park(0, MIB, &mut *slow));
        let from = Rc::clone(&near);
        let sending = handle.spawn(async move { send(&from, &mut *slow).await });
        for _ in 0..10 {
            yield_now().await;
        }
        let read = device.read(MIB as u64, pool().take(MIB)).await.unwrap();
        assert!(read[..] == bytes[MIB..]);
        assert!(receive(&far, HEAD.len() + MIB, 50_000).await[HEAD.len()..] == bytes[..MIB]);
        sending.await.unwrap().unwrap();
        drop(places);
        for _ in 0..3 {
            let got = passed(&handle, (&near, &far), &[(&device, 0, MIB)], MIB).await;
            assert!(got == bytes[..MIB]);
        }
        assert!(near.parking(1 << 30).is_none(), "more than all pipes hold");
    });
}

#[test]
fn members_on_disk_and_reads_out_of_range_are_not_parked() {
    on_both(async |handle| {
        let folder = disk_folder();
        let options = OpenOptions {
            direct_io: DirectIo::Off,
            ..OpenOptions::read_write()
        };
        let path = folder.path().join("a");
        std::fs::write(&path, pattern(9, MIB)).unwrap();
        let disk = FileDevice::open(&handle, &path, &options).unwrap();
        let (near, _far) = Socket::pair(&handle).unwrap();
        let mut parked = near.parking(MIB).unwrap();
        assert!(disk.parks() == disk.is_in_memory());
        assert!(disk.park(0, MIB, &mut *parked) == disk.parks());
        let folder = memory_folder();
        let memory = member(&handle, &folder.path().join("a"), &pattern(9, MIB));
        assert!(memory.parks());
        for (at, length) in [(MIB as u64, 512), (512, MIB), (1, 512), (u64::MAX - 1, 512)] {
            let mut parked = near.parking(MIB).unwrap();
            assert!(!memory.park(at, length, &mut *parked));
            assert_eq!(parked.length_bytes(), 0);
        }
    });
}
