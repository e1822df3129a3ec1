//! One hot path again and again, for profilers: nothing but the engine, and members that cost nothing or a copy.
//!
//! `hot ORGANISATION MEMBERS CONSISTENCY read|write REQUEST_BYTES DEPTH random|seq COUNT`, for example
//! `hot raid5 null bitmap write 4096 32 random 300000`. Members: `null`, `memory` (they answer at once), `later` (in
//! memory, but every answer comes one turn later: requests meet, as on real devices).
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a tool for developers

#[path = "../tests/common/mod.rs"]
mod common;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use common::yield_once;
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_engine::volume::Volume;
use plexum_format::md::MdVersion;
use plexum_layout::{Organisation, Raid0Layout, Raid5Layout, Raid6Layout, Raid10Layout};
use plexum_md::create::{NewArray, Start, plan, write_new};
use plexum_md::open::{OpenRequest, open_volume};

const DEVICE_BYTES: u64 = 72 << 20;
/// Metadata and logs lie in front of the data: kept also by members that keep nothing else.
const HEAD_BYTES: usize = 4 << 20;

struct Member {
    /// Page-aligned: a copy whose target lies 16 bytes behind its source, modulo a page, takes four times as long.
    bytes: RefCell<BufMut>,
    length_bytes: usize,
    is_late: bool,
}

impl Member {
    fn fill(&self, offset_bytes: u64, buf: &mut [u8]) {
        let start = usize::try_from(offset_bytes).unwrap();
        let end = start + buf.len();
        if end <= self.length_bytes {
            buf.copy_from_slice(&self.bytes.borrow()[start..end]);
        }
    }
    fn keep(&self, offset_bytes: u64, data: &[u8]) {
        let start = usize::try_from(offset_bytes).unwrap();
        let end = start + data.len();
        if end <= self.length_bytes {
            self.bytes.borrow_mut()[start..end].copy_from_slice(data);
        }
    }
}

impl Device for Member {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::plain(DEVICE_BYTES)
    }
    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        if self.is_late {
            yield_once().await;
        }
        self.fill(offset_bytes, &mut buf);
        Ok(buf)
    }
    async fn write(&self, offset_bytes: u64, data: Buf, _fua: Fua) -> Result<(), IoError> {
        if self.is_late {
            yield_once().await;
        }
        self.keep(offset_bytes, &data);
        Ok(())
    }
    async fn flush(&self) -> Result<(), IoError> {
        if self.is_late {
            yield_once().await;
        }
        Ok(())
    }
}

/// As the runtime's: a reading is recent in the poll that took it and in the next one.
struct RealClock {
    start: Instant,
    polls: Cell<u64>,
    last: Cell<(u64, Moment)>,
}

impl RealClock {
    fn new() -> Rc<Self> {
        Rc::new(Self {
            start: Instant::now(),
            polls: Cell::new(2),
            last: Cell::default(),
        })
    }
    fn begin_poll(&self) {
        self.polls.set(self.polls.get() + 1);
    }
}

impl Clock for RealClock {
    fn now(&self) -> Moment {
        let now = Moment(u64::try_from(self.start.elapsed().as_nanos()).unwrap());
        self.last.set((self.polls.get(), now));
        now
    }
    fn recent(&self) -> Moment {
        let (taken, moment) = self.last.get();
        if self.polls.get() - taken <= 1 {
            moment
        } else {
            self.now()
        }
    }
    fn wall_seconds(&self) -> u64 {
        1
    }
    async fn sleep(&self, _duration: Duration) {
        std::future::pending().await
    }
}

/// Polls all in turn until all have ended.
fn run_all(clock: &RealClock, mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    let mut context = Context::from_waker(Waker::noop());
    while !tasks.is_empty() {
        tasks.retain_mut(|task| {
            clock.begin_poll();
            task.as_mut().poll(&mut context).is_pending()
        });
    }
}

fn volume(
    organisation: &str,
    members: &str,
    consistency: &str,
    clock: Rc<RealClock>,
) -> Volume<Member, Rc<RealClock>> {
    let (organisation, count) = match organisation {
        "raid0" => (Organisation::Raid0(Raid0Layout::Original), 4),
        "raid1" => (Organisation::Raid1, 2),
        "raid10" => (Organisation::Raid10(Raid10Layout::near(2)), 4),
        "raid5" => (Organisation::Raid5(Raid5Layout::LeftSymmetric), 4),
        "raid6" => (Organisation::Raid6(Raid6Layout::LeftSymmetric), 6),
        other => panic!("no organisation {other}"),
    };
    let new = NewArray {
        version: MdVersion::V12,
        organisation,
        strip_bytes: if organisation == Organisation::Raid1 {
            0
        } else {
            65_536
        },
        size_bytes: None,
        members: vec![Some(DEVICE_BYTES); count],
        spares: Vec::new(),
        write_mostly: Vec::new(),
        stored_name: "hot".to_owned(),
        uuid: [7; 16],
        identities: (1..=count)
            .map(|n| [u8::try_from(n).unwrap(); 16])
            .collect(),
        wall_seconds: 1,
        has_bitmap: !matches!(consistency, "none" | "resync"),
        region_bytes: None,
        log_bytes_max: matches!(consistency, "log" | "write-back").then_some(u64::MAX),
        has_ppl: false,
        is_write_back: consistency == "write-back",
        start: Start::Agreeing,
    };
    let plan = plan(&new).unwrap();
    let length = match members {
        "null" => HEAD_BYTES,
        _ => usize::try_from(DEVICE_BYTES).unwrap(),
    };
    // A new buffer was zeroed: memory that was never touched would be measured as page faults.
    let member = || Member {
        bytes: RefCell::new(BufPool::new(0).take(length)),
        length_bytes: length,
        is_late: members == "later",
    };
    let devices: Vec<Option<Member>> = (0..count).map(|_| Some(member())).collect();
    let pool = BufPool::new(64 << 20);
    common::run(write_new(&plan, &devices, &pool)).unwrap();
    let named = devices.into_iter().flatten().enumerate();
    let named = named.map(|(index, device)| (format!("m{index}"), device));
    let request = OpenRequest::default();
    common::run(open_volume(named.collect(), clock, pool, request))
        .unwrap()
        .0
}

/// CPU time of this thread so far, in nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [
        organisation,
        members,
        consistency,
        direction,
        bytes,
        depth,
        order,
        count,
    ] = &words[..]
    else {
        panic!("hot ORGANISATION MEMBERS CONSISTENCY read|write BYTES DEPTH random|seq COUNT");
    };
    let (bytes, depth): (usize, u64) = (bytes.parse().unwrap(), depth.parse().unwrap());
    let count: u64 = count.parse().unwrap();
    let clock = RealClock::new();
    let volume = volume(organisation, members, consistency, Rc::clone(&clock));
    let places = volume.size_bytes() / bytes as u64;
    let pool = BufPool::new(0);
    let data = pool.copy_of(&vec![5; bytes]).freeze();
    let next = Cell::new(0u64);
    let rounds = |count: u64| {
        let last = next.get() + count;
        let worker = |worker: u64| {
            let (volume, data, next) = (&volume, data.clone(), &next);
            Box::pin(async move {
                let mut random = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(worker + next.get() + 1);
                while next.get() < last {
                    let number = next.replace(next.get() + 1);
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let place = if order == "seq" { number } else { random >> 20 };
                    let at = place % places * bytes as u64;
                    if direction == "write" {
                        volume.write(at, data.clone(), Fua::No).await.unwrap();
                    } else {
                        volume.read(at, bytes).await.unwrap();
                    }
                    yield_once().await;
                }
            }) as Pin<Box<dyn Future<Output = ()>>>
        };
        run_all(&clock, (0..depth).map(worker).collect());
    };
    rounds(count / 10 + depth);
    let (started, before) = (Instant::now(), cpu_ns());
    rounds(count);
    let cpu_us = (cpu_ns() - before) as f64 / 1e3 / count as f64;
    let rate = count as f64 * bytes as f64 / started.elapsed().as_secs_f64() / 1e9;
    println!(
        "{} : {cpu_us:.3} us CPU each, {rate:.2} GB/s",
        words.join(" ")
    );
}
