//! Other threads do steps of a scrub or a rebuild of members in memory: the same is found and filled as without them, whatever
//! goes wrong on their side, and nothing is answered early.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::small_array::three_members;
use common::{Still, named, run, yield_once};
use plexum_engine::background::hands::{Hands, Work};
use plexum_engine::background::scrub::{ScrubMode, ScrubReport};
use plexum_engine::buf::{Buf, BufMut, BufPool};
use plexum_engine::device::{Device, DeviceInfo, Fua, IoError, Reader};
use plexum_engine::meta::create::{NewArray, plan, write_new};
use plexum_engine::meta::open::{OpenRequest, open_volume};
use plexum_engine::plex::layout::{Organisation, Raid5Layout, Raid6Layout};
use plexum_engine::state::MemberId;
use plexum_engine::volume::Volume;
use plexum_engine::wait::{first, join};

const DEVICE_BYTES: u64 = 8 << 20;
const STEP_BYTES: usize = 128 << 10;

/// What a device holds, for all threads.
struct Store {
    bytes: Mutex<Vec<u8>>,
    /// Reads of hands.
    hand_reads: AtomicU64,
    /// Hands cannot read behind this byte.
    hands_end: AtomicU64,
}

impl Reader for Store {
    fn read(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), IoError> {
        let start = usize::try_from(offset_bytes).unwrap();
        let end = offset_bytes + buf.len() as u64;
        if end > self.hands_end.load(Ordering::Relaxed) {
            return Err(IoError::Medium);
        }
        self.hand_reads.fetch_add(1, Ordering::Relaxed);
        buf.copy_from_slice(&self.bytes.lock().unwrap()[start..start + buf.len()]);
        Ok(())
    }
}

/// A device in memory that hands can read; clones share it.
#[derive(Clone)]
struct Shared {
    store: Arc<Store>,
}

impl Shared {
    fn new(length: usize) -> Self {
        Self {
            store: Arc::new(Store {
                bytes: Mutex::new(vec![0; length]),
                hand_reads: AtomicU64::new(0),
                hands_end: AtomicU64::new(u64::MAX),
            }),
        }
    }

    fn hand_reads(&self) -> u64 {
        self.store.hand_reads.load(Ordering::Relaxed)
    }
}

impl Device for Shared {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            size_bytes: DEVICE_BYTES,
            sector_bytes: 512,
            is_rotational: false,
            has_zeroing_trim: false,
        }
    }
    fn is_in_memory(&self) -> bool {
        true
    }
    fn reader(&self) -> Option<Arc<dyn Reader>> {
        Some(Arc::clone(&self.store) as Arc<dyn Reader>)
    }
    fn busy(&self) -> usize {
        Arc::strong_count(&self.store) - 1
    }
    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        let start = usize::try_from(offset_bytes).unwrap();
        let length = buf.len();
        buf.copy_from_slice(&self.store.bytes.lock().unwrap()[start..start + length]);
        Ok(buf)
    }
    async fn write(&self, offset_bytes: u64, data: Buf, _fua: Fua) -> Result<(), IoError> {
        let start = usize::try_from(offset_bytes).unwrap();
        self.store.bytes.lock().unwrap()[start..start + data.len()].copy_from_slice(&data);
        Ok(())
    }
    async fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }
}

/// What the hands of a test do.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// There are none.
    None,
    /// One step of each turn of the others, the newest first.
    Slow,
    /// They drop all of it.
    Careless,
}

/// Hands on the same thread, which do what they have been given when `work` says so.
struct Given {
    kind: Kind,
    queue: RefCell<VecDeque<Work>>,
    most: Cell<usize>,
}

impl Hands for Given {
    fn count(&self) -> usize {
        2
    }
    fn give(&self, work: Work) {
        if self.kind == Kind::Slow {
            self.queue.borrow_mut().push_back(work);
            self.most
                .set(self.most.get().max(self.queue.borrow().len()));
        }
    }
}

impl Given {
    async fn work(&self) {
        loop {
            let next = self.queue.borrow_mut().pop_back();
            if let Some(work) = next {
                work();
            }
            yield_once().await;
        }
    }
}

struct Array {
    volume: Volume<Shared, Still>,
    hands: Rc<Given>,
    devices: Vec<Shared>,
    data_start: usize,
}

const ORGANISATIONS: [Organisation; 3] = [
    Organisation::Raid1,
    Organisation::Raid5(Raid5Layout::LeftSymmetric),
    Organisation::Raid6(Raid6Layout::LeftSymmetric),
];

/// An array full of data, of three members (four of RAID-6) and a spare.
fn array(organisation: Organisation, kind: Kind, prepare: impl FnOnce(&[Shared], usize)) -> Array {
    let members = match organisation {
        Organisation::Raid6(_) => 4,
        _ => 3,
    };
    let new = NewArray {
        strip_bytes: if organisation == Organisation::Raid1 {
            0
        } else {
            256 << 10
        },
        members: vec![Some(DEVICE_BYTES); members],
        spares: vec![DEVICE_BYTES],
        identities: (1..=5)
            .map(|number| [number; 16])
            .take(members + 1)
            .collect(),
        ..three_members(organisation, DEVICE_BYTES)
    };
    let plan = plan(&new).unwrap();
    let length = usize::try_from(DEVICE_BYTES).unwrap();
    let devices: Vec<Shared> = (0..=members).map(|_| Shared::new(length)).collect();
    let present: Vec<Option<Shared>> = devices.iter().cloned().map(Some).collect();
    run(write_new(&plan, &present, &BufPool::new(0))).unwrap();
    let start = plan.superblocks[1].as_ref().unwrap().data_offset_sectors * 512;
    let start = usize::try_from(start).unwrap();
    prepare(&devices, start);
    let named = named(devices.iter().cloned());
    let pool = BufPool::new(1 << 20);
    let request = OpenRequest::default();
    let (volume, _) = run(open_volume(named, Still::default(), pool, request)).unwrap();
    let hands = Rc::new(Given {
        kind,
        queue: RefCell::default(),
        most: Cell::new(0),
    });
    if kind != Kind::None {
        volume.set_hands(Rc::clone(&hands) as Rc<dyn Hands>);
    }
    Array {
        volume,
        hands,
        devices,
        data_start: start,
    }
}

impl Array {
    /// Does something while background and hands work.
    fn during<R>(&self, act: impl Future<Output = R>) -> R {
        run(async {
            let mut result = None;
            let acting = async {
                result = Some(act.await);
                self.volume.stop().await.unwrap();
            };
            first(
                both(self.volume.run_background(), acting),
                self.hands.work(),
            )
            .await;
            result.unwrap()
        })
    }

    fn scrub(&self, mode: ScrubMode) -> ScrubReport {
        self.during(async {
            assert!(self.volume.start_scrub(mode));
            self.volume.scrub_ended().await;
        });
        self.volume.scrub_report().unwrap()
    }

    fn hand_reads(&self) -> u64 {
        self.devices.iter().map(Shared::hand_reads).sum()
    }
}

async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    join(one, other).await;
}

fn put(device: &Shared, at: usize, byte: u8) {
    device.store.bytes.lock().unwrap()[at] = byte;
}

#[test]
fn a_scrub_with_hands_finds_what_one_without_them_finds() {
    for organisation in ORGANISATIONS {
        let wrong = |devices: &[Shared], start: usize| {
            for at in [5_000, 700_000, 700_512, 3_000_000] {
                put(&devices[1], start + at, 1);
            }
        };
        let alone = array(organisation, Kind::None, wrong).scrub(ScrubMode::Check);
        assert!(
            alone.is_complete && alone.mismatches.len() == 3,
            "{alone:?}"
        );
        let helped = array(organisation, Kind::Slow, wrong);
        assert_eq!(helped.scrub(ScrubMode::Check), alone);
        let steps = (DEVICE_BYTES - helped.data_start as u64) / STEP_BYTES as u64;
        let reads = helped.hand_reads() / helped.devices.len() as u64;
        assert!(reads * 8 >= steps, "{reads} of {steps} at the hands");
        assert_eq!(helped.hands.most.get(), 4, "two at each");
        let careless = array(organisation, Kind::Careless, wrong);
        assert_eq!(careless.scrub(ScrubMode::Check), alone);
        let broken = array(organisation, Kind::Slow, |devices, start| {
            wrong(devices, start);
            let half = start as u64 + 2_000_000;
            devices[2].store.hands_end.store(half, Ordering::Relaxed);
        });
        assert_eq!(broken.scrub(ScrubMode::Check), alone);
    }
}

#[test]
fn what_hands_have_read_counts_as_read() {
    for kind in [Kind::None, Kind::Slow] {
        let helped = array(ORGANISATIONS[1], kind, |_, _| {});
        let before = helped.volume.status();
        helped.scrub(ScrubMode::Check);
        let after = helped.volume.status();
        let bytes = |status: &plexum_engine::volume::VolumeStatus, member: usize| {
            status.members[member].counters.read_bytes
        };
        let data_bytes = helped.volume.size_bytes() / 2;
        for member in 0..3 {
            assert_eq!(bytes(&after, member) - bytes(&before, member), data_bytes);
        }
        assert_eq!(helped.hand_reads() > 0, kind == Kind::Slow);
    }
}

#[test]
fn a_rebuild_with_hands_fills_the_spare_with_what_was_lost() {
    for (organisation, kind) in [
        (ORGANISATIONS[1], Kind::Slow),
        (ORGANISATIONS[2], Kind::Slow),
        (ORGANISATIONS[1], Kind::Careless),
        (ORGANISATIONS[2], Kind::None),
    ] {
        let rebuilt = array(organisation, kind, |_, _| {});
        let volume = &rebuilt.volume;
        let pool = BufPool::new(1 << 20);
        let size = usize::try_from(volume.size_bytes()).unwrap();
        let content: Vec<u8> = (0..size).map(|at| (at / 512 * 7 + at) as u8).collect();
        rebuilt.during(async {
            let data = pool.copy_of(&content).freeze();
            volume.write(0, data, Fua::No).await.unwrap();
            volume.fail(MemberId(1)).await.unwrap();
            while volume.lost_slots().contains(&true) {
                yield_once().await;
            }
        });
        let of = |index: usize| {
            let device: &Shared = &rebuilt.devices[index];
            device.store.bytes.lock().unwrap()[rebuilt.data_start..].to_vec()
        };
        assert!(of(rebuilt.devices.len() - 1) == of(1), "{organisation:?}");
        assert_eq!(rebuilt.hand_reads() > 0, kind == Kind::Slow);
        let read = run(volume.read(0, size));
        assert!(read.is_err() || read.unwrap().to_vec() == content);
    }
}

#[test]
fn a_write_waits_for_the_hand_that_compares_its_row() {
    for organisation in ORGANISATIONS {
        let busy = array(organisation, Kind::Slow, |_, _| {});
        let (volume, hands) = (&busy.volume, &busy.hands);
        let pool = BufPool::new(1 << 20);
        let report = run(async {
            let mut background = pin!(volume.run_background());
            assert!(volume.start_scrub(ScrubMode::Check));
            let given = async {
                while hands.queue.borrow().is_empty() {
                    yield_once().await;
                }
            };
            first(background.as_mut(), given).await;
            // The first step is at a hand, which does nothing yet.
            let content = pool.copy_of(&[9; 4096]).freeze();
            let mut write = pin!(volume.write(0, content, Fua::No));
            let written = Cell::new(false);
            let turns = async {
                for _ in 0..100 {
                    yield_once().await;
                }
            };
            let writing = async {
                write.as_mut().await.unwrap();
                written.set(true);
            };
            let mut writing = pin!(writing);
            first(both(background.as_mut(), writing.as_mut()), turns).await;
            assert!(!written.get(), "written under the hand's eyes");
            let rest = async {
                writing.await;
                volume.scrub_ended().await;
                volume.stop().await.unwrap();
            };
            first(both(background, rest), hands.work()).await;
            volume.scrub_report().unwrap()
        });
        assert!(
            report.is_complete && report.mismatches.is_empty(),
            "{report:?}"
        );
    }
}
