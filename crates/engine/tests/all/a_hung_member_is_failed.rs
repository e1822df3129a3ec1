//! W9 in virtual time: a member that does not answer is failed after its time-out, nobody else waits, nothing is
//! cancelled, and it comes back only when its slots have drained.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::common::small_array::three_members;
use crate::common::{Memory, Still, named, run, yield_once};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::join;
use plexum_engine::balance::Policy;
use plexum_engine::state::Standing;
use plexum_engine::volume::{ControlError, NewMember, Volume, VolumeOptions};
use plexum_layout::{Organisation, Raid0Layout, Raid5Layout};
use plexum_md::assemble::Options;
use plexum_md::create::{plan, write_new};
use plexum_md::open::{OpenRequest, examine, former_member, open_volume};

const DEVICE_BYTES: u64 = 6 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

type Late = Box<dyn FnOnce()>;

/// A device that stops to answer; what it was asked meanwhile happens when it is released.
#[derive(Clone)]
struct Hanging {
    memory: Memory,
    is_hung: Rc<Cell<bool>>,
    slots: Rc<RefCell<Vec<Late>>>,
}

impl Hanging {
    fn new() -> Self {
        Self {
            memory: Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()]),
            is_hung: Rc::default(),
            slots: Rc::default(),
        }
    }

    fn release(&self) {
        self.is_hung.set(false);
        for late in self.slots.take() {
            late();
        }
    }

    async fn pass(&self, late: impl FnOnce() + 'static) {
        if self.is_hung.get() {
            self.slots.borrow_mut().push(Box::new(late));
            std::future::pending::<()>().await;
        }
    }
}

impl Device for Hanging {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.pass(|| {}).await;
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let (memory, copy) = (self.memory.clone(), data.clone());
        let late = move || run(memory.write(offset_bytes, copy, Fua::No)).unwrap();
        self.pass(late).await;
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.pass(|| {}).await;
        self.memory.flush().await
    }
    fn busy(&self) -> usize {
        self.slots.borrow().len()
    }
}

struct Rig {
    devices: Vec<(String, Hanging)>,
    volume: Volume<Hanging, Still>,
    clock: Still,
}

fn rig(organisation: Organisation, read_only: bool) -> Rig {
    let plan = plan(&three_members(organisation, DEVICE_BYTES)).unwrap();
    let devices: Vec<Option<Hanging>> = (0..3).map(|_| Some(Hanging::new())).collect();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    let devices = named(devices.into_iter().flatten());
    let request = OpenRequest {
        assemble: Options {
            read_only,
            ..Options::default()
        },
        volume: VolumeOptions {
            balance: Policy::RoundRobin,
            member_timeout: TIMEOUT,
            ..VolumeOptions::default()
        },
        ..OpenRequest::default()
    };
    let clock = Still::default();
    let pool = BufPool::new(1 << 20);
    let opened = run(open_volume(devices.clone(), clock.clone(), pool, request)).unwrap();
    Rig {
        devices,
        volume: opened.0,
        clock,
    }
}

impl Rig {
    async fn write(&self, at: u64, value: u8) -> Result<(), IoError> {
        let data = BufPool::new(0).copy_of(&[value; 4096]).freeze();
        self.volume.write(at, data, Fua::No).await
    }

    /// Runs `work` beside the background, and stops the volume.
    fn run(&self, work: impl Future<Output = ()>) {
        let all = async {
            work.await;
            let _ = self.volume.stop().await;
        };
        run(join(self.volume.run_background(), all));
    }

    fn standing(&self, member: usize) -> Standing {
        self.volume.status().members[member].standing
    }
}

#[test]
fn a_write_waits_for_a_hung_member_no_longer_than_its_time_out() {
    for organisation in [
        Organisation::Raid1,
        Organisation::Raid5(Raid5Layout::LeftSymmetric),
    ] {
        let rig = rig(organisation, false);
        rig.run(async {
            rig.write(0, 1).await.unwrap();
            rig.devices[2].1.is_hung.set(true);
            let started = rig.clock.now();
            for row in 0..4 {
                rig.write(row * 131_072, 2).await.unwrap();
            }
            let waited = rig.clock.now().since(started);
            assert!(waited >= TIMEOUT, "{waited:?}");
            assert!(waited < TIMEOUT + TIMEOUT / 4, "only one waits: {waited:?}");
            assert_eq!(rig.standing(2), Standing::Faulty);
            // W3: the survivors say so before the write was answered.
            let examined = examine(&rig.devices[0].1, &BufPool::new(0), 0, "m0")
                .await
                .unwrap();
            let gone = examined.superblock.role_of(2).slot();
            assert_eq!(gone, None, "{organisation}");
            for row in 0..4 {
                let read = rig.volume.read(row * 131_072, 4096).await.unwrap();
                assert_eq!(read.to_vec(), [2; 4096], "{organisation}");
            }
        });
    }
}

#[test]
fn the_others_are_not_stalled_meanwhile() {
    let rig = rig(Organisation::Raid5(Raid5Layout::LeftSymmetric), false);
    rig.run(async {
        for strip in 0..6 {
            rig.write(strip * 65_536, 3).await.unwrap();
        }
        rig.devices[0].1.is_hung.set(true);
        let started = rig.clock.now();
        let is_done = Cell::new(false);
        let slow = async {
            // Left-symmetric on three members: the first strip is on member 0.
            assert_eq!(rig.volume.read(0, 4096).await.unwrap().to_vec(), [3; 4096]);
            assert!(is_done.get(), "the others were first");
        };
        let quick = async {
            yield_once().await;
            assert_eq!(
                rig.volume.read(65_536, 4096).await.unwrap().to_vec(),
                [3; 4096]
            );
            assert!(rig.clock.now().since(started) < TIMEOUT / 2);
            is_done.set(true);
        };
        join(slow, quick).await;
        assert_eq!(rig.standing(0), Standing::Faulty);
    });
}

#[test]
fn it_comes_back_only_when_its_slots_have_drained() {
    let rig = rig(Organisation::Raid1, false);
    let hung = rig.devices[2].1.clone();
    rig.run(async {
        rig.write(0, 1).await.unwrap();
        hung.is_hung.set(true);
        rig.write(0, 2).await.unwrap();
        let member = rig.volume.status().members[2].clone();
        assert!(member.is_draining);
        rig.write(0, 3).await.unwrap();
        let refused = rig.volume.remove(member.id).await;
        assert!(matches!(refused, Err(ControlError::Busy(_))), "{refused:?}");
        // The late write lands now, on a member that nobody reads.
        hung.release();
        rig.volume.remove(member.id).await.unwrap();
        let own = examine(&hung, &BufPool::new(0), 2, "m2")
            .await
            .unwrap()
            .superblock;
        let back = NewMember {
            name: "m2".to_owned(),
            device: hung.clone(),
            identity: [9; 16],
            is_write_mostly: false,
            former: former_member(&hung, &BufPool::new(0), &own).await,
        };
        rig.volume.add(back, true).await.unwrap();
        rig.volume.rebuilt().await;
        for _ in 0..6 {
            assert_eq!(rig.volume.read(0, 4096).await.unwrap().to_vec(), [3; 4096]);
        }
    });
}

#[test]
fn a_stop_does_not_hang_with_the_member() {
    let rig = rig(Organisation::Raid1, false);
    rig.run(async {
        rig.write(0, 1).await.unwrap();
        rig.devices[1].1.is_hung.set(true);
    });
    assert_eq!(rig.standing(1), Standing::Faulty);
    let pool = BufPool::new(0);
    let left = run(examine(&rig.devices[0].1, &pool, 0, "m0")).unwrap();
    assert!(left.superblock.is_clean());
}

#[test]
fn a_read_only_volume_reads_from_another_copy() {
    let rig = rig(Organisation::Raid1, true);
    rig.devices[0].1.is_hung.set(true);
    rig.run(async {
        for _ in 0..3 {
            assert_eq!(rig.volume.read(0, 4096).await.unwrap().to_vec(), [0; 4096]);
        }
    });
}

#[test]
fn without_redundancy_it_is_an_error_and_no_hang() {
    let rig = rig(Organisation::Raid0(Raid0Layout::Alternate), false);
    rig.devices[0].1.is_hung.set(true);
    rig.run(async {
        assert_eq!(
            rig.volume.read(0, 4096).await.map(|_| ()),
            Err(IoError::Failed)
        );
        assert!(rig.volume.is_frozen());
    });
}

#[test]
fn a_slow_read_is_answered_by_the_others_and_the_hung_one_is_still_failed() {
    for organisation in [
        Organisation::Raid1,
        Organisation::Raid5(Raid5Layout::LeftSymmetric),
    ] {
        let rig = rig(organisation, false);
        // Left-symmetric on three members: the second strip is on member 1.
        let at = 65_536;
        rig.run(async {
            rig.write(at, 5).await.unwrap();
            for _ in 0..400 {
                rig.volume.read(at, 4096).await.unwrap();
            }
            // Clean and quiet: from here on nothing but these reads asks the member.
            let is_busy = || rig.volume.status().is_dirty || rig.volume.status().marked_regions > 0;
            while is_busy() {
                yield_once().await;
            }
            rig.devices[1].1.is_hung.set(true);
            let started = rig.clock.now();
            for _ in 0..6 {
                assert_eq!(rig.volume.read(at, 4096).await.unwrap().to_vec(), [5; 4096]);
            }
            let waited = rig.clock.now().since(started);
            assert!(
                waited < TIMEOUT / 2,
                "nobody waited for the time-out: {waited:?}"
            );
            let hedged = |member: usize| rig.volume.status().members[member].counters.hedged_reads;
            assert_eq!((hedged(0), hedged(2)), (0, 0), "{organisation}");
            assert!(hedged(1) >= 2, "{organisation}: {}", hedged(1));
            // Nobody waits for it any more; it has hung all the same.
            while rig.standing(1) != Standing::Faulty {
                yield_once().await;
            }
            assert!(rig.clock.now().since(started) >= TIMEOUT);
        });
    }
}
