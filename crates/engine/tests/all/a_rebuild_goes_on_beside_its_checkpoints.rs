//! A checkpoint of a rebuild flushes all members, which takes a disk a tenth of a second: the rebuild does not wait for
//! it, and the next one comes the later. What members were asked for a rebuild says nothing of them behind it.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::small_array::three_members;
use crate::common::{Memory, Still, named, run, yield_once};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::join;
use plexum_engine::state::MemberId;
use plexum_engine::volume::Volume;
use plexum_layout::{Organisation, Raid5Layout};
use plexum_md::create::{NewArray, plan, write_new};
use plexum_md::open::{OpenRequest, open_volume};

const DEVICE_BYTES: u64 = 97 << 20;
const STRIP_BYTES: u64 = 512 << 10;
/// Strips of a member, about.
const STRIPS: u64 = 190;
/// Strips of 512 KiB that are filled at once at most: 32 MiB of rows of four members.
const STEPS_AT_ONCE: u64 = 16;
/// Virtual time of a read.
const READ_NS: u64 = 30_000_000;
/// Turns of the others during a flush that lasts: time passes meanwhile, but no member's time-out.
const TURNS: u32 = 60;

/// A disk whose reads take time, and one of whose flushes lasts.
#[derive(Clone)]
struct Disk {
    memory: Memory,
    clock: Still,
    /// Strips written to any member.
    strips: Rc<Cell<u64>>,
    /// Once so many were written, the next flush lasts; and how many were written during it.
    flush: Rc<Cell<(u64, u64)>>,
    /// Flushes after that one, of any member, until nearly all is filled.
    later: Rc<Cell<u32>>,
}

impl Device for Disk {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        yield_once().await;
        self.clock.0.set(self.clock.0.get() + READ_NS);
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let is_strip = data.len() as u64 == STRIP_BYTES;
        self.strips.set(self.strips.get() + u64::from(is_strip));
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        let (from, during) = self.flush.get();
        let before = self.strips.get();
        if during > 0 && before < STRIPS - STEPS_AT_ONCE {
            self.later.set(self.later.get() + 1);
        }
        if before >= from {
            self.flush.set((u64::MAX, 0));
            for _ in 0..TURNS {
                yield_once().await;
            }
            self.flush.set((u64::MAX, self.strips.get() - before));
        }
        self.memory.flush().await
    }
}

fn array() -> (Volume<Disk, Still>, Vec<Disk>) {
    let organisation = Organisation::Raid5(Raid5Layout::LeftSymmetric);
    let new = NewArray {
        strip_bytes: STRIP_BYTES,
        spares: vec![DEVICE_BYTES],
        identities: (1..=4).map(|number| [number; 16]).collect(),
        ..three_members(organisation, DEVICE_BYTES)
    };
    let plan = plan(&new).unwrap();
    let (clock, strips) = (Still::default(), Rc::default());
    let (flush, later) = (Rc::default(), Rc::default());
    let disk = |_| Disk {
        memory: Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()]),
        clock: Still::clone(&clock),
        strips: Rc::clone(&strips),
        flush: Rc::clone(&flush),
        later: Rc::clone(&later),
    };
    let disks: Vec<Disk> = (0..4).map(disk).collect();
    flush.set((u64::MAX, 0));
    let present: Vec<Option<Disk>> = disks.iter().cloned().map(Some).collect();
    run(write_new(&plan, &present, &BufPool::new(0))).unwrap();
    let named = named(disks.iter().cloned());
    let pool = BufPool::new(1 << 20);
    let request = OpenRequest::default();
    let (volume, _) = run(open_volume(named, clock.clone(), pool, request)).unwrap();
    (volume, disks)
}

/// Fills the spare. The first flush from 16 MiB on, which is a checkpoint's, lasts: strips that are filled during it,
/// and flushes later.
fn rebuild() -> (u64, u32) {
    let (volume, disks) = array();
    run(join(volume.run_background(), async {
        disks[0].strips.set(0);
        disks[0].flush.set((32, 0));
        volume.fail(MemberId(1)).await.unwrap();
        while volume.lost_slots().contains(&true) {
            yield_once().await;
        }
        volume.stop().await.unwrap();
    }));
    let (_, during) = disks[0].flush.get();
    (during, disks[0].later.get())
}

#[test]
fn rows_are_begun_and_filled_while_a_checkpoint_is_made_durable() {
    let (written, _) = rebuild();
    assert!(
        written > STEPS_AT_ONCE,
        "{written}: no more than what was under way when it began"
    );
}

#[test]
fn the_next_checkpoint_comes_later_where_one_takes_long() {
    let (_, flushes) = rebuild();
    assert_eq!(flushes, 0, "another checkpoint soon after");
}

#[test]
fn nobody_is_called_slow_for_what_a_rebuild_asked_of_it() {
    let (volume, _) = array();
    let samples = || -> Vec<u64> {
        let members = volume.status().members;
        let latencies = members.iter().map(|member| member.latencies);
        latencies
            .flat_map(|(reads, writes)| [reads.samples, writes.samples])
            .collect()
    };
    run(join(volume.run_background(), async {
        volume.fail(MemberId(1)).await.unwrap();
        while volume.lost_slots().contains(&true) {
            yield_once().await;
            let during = volume.status();
            assert!(
                during
                    .members
                    .iter()
                    .all(|member| member.comparison.is_none())
            );
        }
        while volume.status().job.is_some() {
            yield_once().await;
        }
        assert!(samples().iter().all(|&count| count == 0), "{:?}", samples());
        volume.stop().await.unwrap();
    }));
}
