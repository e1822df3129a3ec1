//! Reads of a served pool are under way together; who changes something has the pool alone.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::common::memory::MemoryDisk;
use crate::common::world::{VOLUME_BYTES, open, world};
use plexum_block::buf::BufPool;
use plexum_block::device::{Device, Fua};
use plexum_block::wait::join_all;
use plexum_disks::clock::SimClock;
use plexum_disks::rng::Rng;
use plexum_pool::{GroupKind, LivePool, LiveVolume};
use plexum_testkit::block_on;

const BLOCK: usize = 4096;

type Volume = LiveVolume<MemoryDisk, SimClock>;

/// Disks, what the volume on them holds, and the volume served.
fn served() -> (Vec<MemoryDisk>, Vec<u8>, Volume) {
    block_on(async {
        let kinds = [(GroupKind::RaidZ(1), 3)];
        let (disks, bytes) = world(&kinds, BLOCK as u64, &mut Rng::new(5)).await;
        let (mut pool, _) = open(&disks).await;
        pool.begin(4).await.unwrap();
        let live = Rc::new(LivePool::new(pool, SimClock::new(), 64 << 20));
        let volume = LiveVolume::open(&live, "tank/vol").await.unwrap();
        (disks, bytes, volume)
    })
}

/// Blocks that hold something, so that disks are asked for them.
fn filled(bytes: &[u8]) -> Vec<usize> {
    let blocks = bytes.chunks(BLOCK).enumerate();
    blocks
        .filter(|(_, block)| block.iter().all(|byte| *byte != 0))
        .map(|(n, _)| n * BLOCK)
        .collect()
}

#[test]
fn reads_of_different_blocks_are_on_the_disks_together() {
    let (disks, bytes, volume) = served();
    let places: Vec<usize> = filled(&bytes).into_iter().take(8).collect();
    assert_eq!(places.len(), 8);
    disks.iter().for_each(MemoryDisk::slow_reads);
    let reads = places.iter().map(|at| volume.read(*at as u64, BLOCK));
    let found = block_on(join_all(reads));
    for (at, found) in places.iter().zip(found) {
        assert!(found.unwrap() == bytes[*at..*at + BLOCK]);
    }
    let most: usize = disks.iter().map(MemoryDisk::reads_at_once).sum();
    assert!(most >= 8, "at most {most} reads were under way");
}

#[test]
fn blocks_of_one_read_are_on_the_disks_together_and_pointers_are_read_once() {
    let (disks, bytes, volume) = served();
    disks.iter().for_each(MemoryDisk::slow_reads);
    for (at, length) in [(0, VOLUME_BYTES), (512, 70_000), (4095, 2), (8192, 0)] {
        let found = block_on(volume.read(at as u64, length)).unwrap();
        assert!(found == bytes[at..at + length], "{length} bytes at {at}");
    }
    let most: usize = disks.iter().map(MemoryDisk::reads_at_once).sum();
    assert!(most >= 64, "at most {most} reads were under way");
    let all: usize = disks.iter().map(MemoryDisk::slow_reads_count).sum();
    // Each block has two columns; a few blocks of pointers and some of the second read are added to that.
    let wanted = filled(&bytes).len() * 2 + 2 * 70_000 / BLOCK + 64;
    assert!(all <= 2 * VOLUME_BYTES / BLOCK + wanted, "{all} reads");
}

#[test]
fn a_write_waits_for_the_reads_before_it_and_is_seen_by_those_behind_it() {
    let (disks, bytes, volume) = served();
    let at = filled(&bytes)[0];
    disks.iter().for_each(MemoryDisk::slow_reads);
    let mut context = Context::from_waker(Waker::noop());
    let mut before = pin!(volume.read(at as u64, BLOCK));
    assert!(before.as_mut().poll(&mut context).is_pending());
    let mut write = pin!(volume.write(at as u64, &[9; BLOCK]));
    assert!(write.as_mut().poll(&mut context).is_pending());
    let mut behind = pin!(volume.read(at as u64, BLOCK));
    assert!(behind.as_mut().poll(&mut context).is_pending());
    let old = loop {
        assert!(write.as_mut().poll(&mut context).is_pending());
        if let Poll::Ready(old) = before.as_mut().poll(&mut context) {
            break old.unwrap();
        }
    };
    assert!(old == bytes[at..at + BLOCK]);
    block_on(write).unwrap();
    assert!(block_on(behind).unwrap() == [9; BLOCK]);
}

/// How many sectors of a disk full of garbage are right again when everything was read.
fn mended(reads_at_once: usize) -> usize {
    const AREA_BYTES: usize = 32 << 20;
    let (disks, bytes, volume) = served();
    let area = || {
        let buf = BufPool::new(0).take(AREA_BYTES);
        block_on(disks[0].read(5 << 20, buf)).unwrap()
    };
    let before = area();
    let garbage = BufPool::new(0).copy_of(&vec![0xA5; AREA_BYTES]).freeze();
    block_on(disks[0].write(5 << 20, garbage, Fua::No)).unwrap();
    disks.iter().for_each(MemoryDisk::slow_reads);
    let places: Vec<usize> = (0..VOLUME_BYTES).step_by(BLOCK).collect();
    for places in places.chunks(reads_at_once) {
        let reads = places.iter().map(|at| volume.read(*at as u64, BLOCK));
        for (at, found) in places.iter().zip(block_on(join_all(reads))) {
            assert!(found.unwrap() == bytes[*at..*at + BLOCK]);
        }
    }
    let after = area();
    let sectors = before.chunks(512).zip(after.chunks(512));
    sectors.filter(|(before, after)| before == after).count()
}

#[test]
fn what_reads_find_damaged_is_mended_whether_they_come_together_or_not() {
    let one_by_one = mended(1);
    assert!(one_by_one > 50, "{one_by_one} sectors are mended");
    // Who finds that something is damaged looks at the parity of what it has read as well.
    let together = mended(64);
    assert!(together >= one_by_one, "{together} of {one_by_one}");
}
