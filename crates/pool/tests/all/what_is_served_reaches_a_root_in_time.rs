//! A pool that is served is committed by itself: what was written reaches a root within the limit, in virtual time.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::memory::{MemoryDisk, Power};

use crate::common::world::{VOLUME_BYTES, open, world};
use plexum_disks::clock::SimClock;
use plexum_disks::rng::Rng;
use plexum_pool::{GroupKind, LivePool, LiveVolume, NewVolume, PoolError};
use plexum_testkit::block_on;

const LIMIT: Duration = Duration::from_secs(5);
const SECOND_NS: u64 = 1_000_000_000;

type Live = LivePool<MemoryDisk, SimClock>;

/// Lets everything go on that can without time.
fn settle(timer: &mut Pin<&mut impl Future<Output = Result<(), PoolError>>>) -> Poll<()> {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10_000 {
        if let Poll::Ready(result) = timer.as_mut().poll(&mut context) {
            result.unwrap();
            return Poll::Ready(());
        }
    }
    Poll::Pending
}

/// The first byte of the volume after a crash now.
fn after_a_crash(disks: &[MemoryDisk]) -> u8 {
    let power = crate::common::memory::Power::on();
    let disks: Vec<MemoryDisk> = disks.iter().map(|disk| disk.copy(&power)).collect();
    let mut rng = Rng::new(1);
    disks.iter().for_each(|disk| disk.toss(&mut rng));
    block_on(async {
        let (pool, volume) = open(&disks).await;
        pool.read(&volume, 0, VOLUME_BYTES).await.unwrap()[0]
    })
}

struct Ground {
    disks: Vec<MemoryDisk>,
    clock: SimClock,
    live: Rc<Live>,
    volume: LiveVolume<MemoryDisk, SimClock>,
}

fn ground() -> Ground {
    block_on(async {
        let (disks, _) = world(&[(GroupKind::Mirror, 2)], 4096, &mut Rng::new(1)).await;
        let (mut pool, _) = open(&disks).await;
        pool.begin(4).await.unwrap();
        let clock = SimClock::new();
        let live = Rc::new(LivePool::new(pool, clock.clone(), 64 << 20));
        let volume = LiveVolume::open(&live, "tank/vol").await.unwrap();
        Ground {
            disks,
            clock,
            live,
            volume,
        }
    })
}

impl Ground {
    fn write(&self, value: u8) {
        block_on(self.volume.write(0, &[value; 4096])).unwrap();
    }

    /// Lets so much time pass; whatever is due in between happens.
    fn pass(&self, ns: u64) {
        let end = self.clock.now_ns() + ns;
        let has_come = Rc::new(Cell::new(false));
        let come = Rc::clone(&has_come);
        self.clock.call_after(ns, move || come.set(true));
        while !has_come.get() && self.clock.advance() {}
        assert_eq!(self.clock.now_ns(), end);
    }
}

#[test]
fn what_nobody_flushes_is_in_a_root_within_the_limit_and_not_long_before() {
    let ground = ground();
    let before = after_a_crash(&ground.disks);
    let mut timer = pin!(ground.live.commit_in_time(LIMIT));
    assert!(settle(&mut timer).is_pending());
    ground.write(before.wrapping_add(1));
    assert!(settle(&mut timer).is_pending());
    ground.pass(4 * SECOND_NS);
    ground.write(before.wrapping_add(2));
    assert!(settle(&mut timer).is_pending());
    assert_eq!(after_a_crash(&ground.disks), before, "one commit has both");
    ground.pass(SECOND_NS);
    assert!(settle(&mut timer).is_pending());
    assert_eq!(after_a_crash(&ground.disks), before.wrapping_add(2));
    // Once more, and then for nothing.
    ground.write(before.wrapping_add(3));
    assert!(settle(&mut timer).is_pending());
    ground.pass(5 * SECOND_NS);
    assert!(settle(&mut timer).is_pending());
    assert_eq!(after_a_crash(&ground.disks), before.wrapping_add(3));
    assert!(!ground.clock.advance(), "no timer runs while nothing waits");
}

#[test]
fn what_was_flushed_into_a_log_is_in_a_root_within_the_limit_too() {
    let ground = ground();
    let mut timer = pin!(ground.live.commit_in_time(LIMIT));
    let newest = |disks: &[MemoryDisk]| block_on(async { open(disks).await.0.txg() });
    // The first flush is a commit, which begins the log.
    ground.write(76);
    block_on(ground.volume.flush()).unwrap();
    let begun_txg = newest(&ground.disks);
    ground.write(77);
    block_on(ground.volume.flush()).unwrap();
    assert!(settle(&mut timer).is_pending());
    assert_eq!(newest(&ground.disks), begun_txg, "it is in the log");
    let txg = newest(&ground.disks);
    ground.pass(5 * SECOND_NS);
    assert!(settle(&mut timer).is_pending());
    assert_eq!(newest(&ground.disks), txg + 1);
}

#[test]
fn it_ends_with_the_export_without_another_commit() {
    let ground = ground();
    let mut timer = pin!(ground.live.commit_in_time(LIMIT));
    ground.write(9);
    assert!(settle(&mut timer).is_pending());
    block_on(ground.live.export()).unwrap();
    assert!(settle(&mut timer).is_ready());
    assert_eq!(after_a_crash(&ground.disks), 9);
}

/// Longer than what a commit holds in memory before it writes.
const LONG_BYTES: usize = 10 << 20;

/// All members are gone after so many operations of a commit: whether it failed. What is read then is what was written
/// last, or an error.
fn read_without_members(disks: &[MemoryDisk], operations: u64) -> bool {
    let power = Power::on();
    let disks: Vec<MemoryDisk> = disks.iter().map(|disk| disk.copy(&power)).collect();
    block_on(async {
        let (mut pool, _) = open(&disks).await;
        // What is nowhere on the members would be read without them.
        let new = NewVolume {
            name: "tank/new".into(),
            size_bytes: LONG_BYTES as u64,
            block_bytes: 128 << 10,
            wall_s: 4,
            seed: 5,
        };
        pool.create_volume(&new).await.unwrap();
        let live = Rc::new(LivePool::new(pool, SimClock::new(), 64 << 20));
        let volume = LiveVolume::open(&live, "tank/new").await.unwrap();
        volume.write(0, &vec![1; LONG_BYTES]).await.unwrap();
        volume.trim(0..128 << 10).await.unwrap();
        power.cut_after(Some(operations));
        let committed = live.change(async |pool| pool.commit(6).await).await;
        for (at, value) in [(0, 0), (128 << 10, 1), (LONG_BYTES as u64 - 4096, 1)] {
            if let Ok(read) = volume.read(at, 4096).await {
                assert!(
                    read == [value; 4096],
                    "{operations} operations: at byte {at} it is {}",
                    read[0]
                );
            }
        }
        committed.is_err()
    })
}

#[test]
fn what_was_answered_is_never_read_as_it_was_before_when_no_root_can_be_written() {
    let (disks, _) = block_on(world(&[(GroupKind::Mirror, 2)], 4096, &mut Rng::new(1)));
    let mut operations = 0;
    while read_without_members(&disks, operations) {
        operations += 1;
    }
    assert!(operations > 10, "the commit has {operations} operations");
}
