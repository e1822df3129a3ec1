//! What a drive says of its time: busy, how long its requests took, how many of them went on where the last one ended.

use std::time::Duration;

use crate::common::vinum::pool;
use crate::common::{Memory, Still, run};
use plexum_block::buf::{Buf, BufMut};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::ranges::RangeSet;
use plexum_block::wait::{join, join_all};
use plexum_engine::drive::Drive;
use plexum_engine::state::MemberId;

const MS: u64 = 1_000_000;

/// Takes ten milliseconds over each request, and any number of them at once.
struct Slow {
    memory: Memory,
    clock: Still,
}

impl Device for Slow {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.clock.sleep(Duration::from_millis(10)).await;
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.clock.sleep(Duration::from_millis(10)).await;
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.memory.flush().await
    }
}

fn slow(clock: &Still) -> Drive<Slow> {
    let memory = Memory::new(vec![0; 1 << 20]);
    let device = Slow {
        memory,
        clock: clock.clone(),
    };
    // The data area does not begin where the device does.
    let (id, data) = (MemberId(0), 64 << 10..1 << 20);
    Drive::new(id, "slow".to_owned(), device, data, RangeSet::default())
}

#[test]
fn two_requests_at_once_are_busy_time_once_and_each_ones_own_time() {
    let (clock, pool) = (Still::default(), pool());
    let drive = slow(&clock);
    run(async {
        let second = async {
            clock.sleep(Duration::from_millis(4)).await;
            drive.read(&pool, &clock, 65536, 4096).await
        };
        let look = async {
            clock.sleep(Duration::from_millis(7)).await;
            let seen = drive.counters(clock.now());
            assert_eq!((seen.outstanding, seen.busy_ns, seen.reads), (2, 7 * MS, 0));
        };
        let first = drive.read(&pool, &clock, 0, 4096);
        let ((first, second), ()) = join(join(first, second), look).await;
        first.unwrap();
        second.unwrap();
    });
    clock.0.set(clock.0.get() + 100 * MS);
    let seen = drive.counters(clock.now());
    assert_eq!((seen.reads, seen.outstanding), (2, 0));
    assert_eq!((seen.read_ns, seen.busy_ns), (20 * MS, 14 * MS));
}

#[test]
fn a_request_is_sequential_when_it_goes_on_where_the_one_before_it_ended() {
    let (clock, pool) = (Still::default(), pool());
    let drive = slow(&clock);
    let read = |at| drive.read(&pool, &clock, at, 4096);
    run(async {
        for at in [0, 4096, 8192, 65536, 4096] {
            read(at).await.unwrap();
        }
        let data = pool.take_zeroed(4096).freeze();
        for at in [8192, 12288, 0] {
            drive.write(&clock, at, &data, Fua::No).await.unwrap();
        }
        // Asked for at once, in order.
        for result in join_all([4096, 8192].map(read)).await {
            result.unwrap();
        }
    });
    let seen = drive.counters(clock.now());
    assert_eq!((seen.reads, seen.sequential_reads), (7, 4));
    assert_eq!((seen.writes, seen.sequential_writes), (3, 2));
    assert_eq!(seen.busy_ns, 90 * MS, "the last two took as long as one");
}

#[test]
fn a_read_that_nobody_waits_for_any_more_is_not_outstanding_for_ever() {
    let (clock, pool) = (Still::default(), pool());
    let drive = slow(&clock);
    run(async {
        let mut read = Box::pin(drive.read(&pool, &clock, 0, 4096));
        std::future::poll_fn(|cx| {
            assert!(read.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        clock.0.set(3 * MS);
    });
    let seen = drive.counters(clock.now());
    assert_eq!((seen.outstanding, seen.busy_ns, seen.reads), (0, 3 * MS, 0));
}
