//! What streams will ask for is read with what they ask for, and never kept over a write.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::common::small_array::three_members;
use crate::common::{Memory, Still, named, run};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_engine::balance::Policy;
use plexum_engine::volume::Volume;
use plexum_layout::Organisation;
use plexum_md::create::{plan, write_new};
use plexum_md::open::{OpenRequest, open_volume};

const DEVICE_BYTES: u64 = 24 << 20;
const STEP: usize = 64 << 10;

/// A disk: going elsewhere costs 8 ms, a MiB 10 ms.
#[derive(Clone)]
struct Turning {
    memory: Memory,
    clock: Still,
    head: Rc<Cell<u64>>,
    reads: Rc<Cell<u64>>,
}

impl Turning {
    async fn turn(&self, offset_bytes: u64, length_bytes: usize) {
        let is_jump = self.head.replace(offset_bytes + length_bytes as u64) != offset_bytes;
        let jump_ns = u64::from(is_jump) * 8_000_000;
        let cost = Duration::from_nanos(jump_ns + length_bytes as u64 * 10);
        self.clock.sleep(cost).await;
    }
}

impl Device for Turning {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.turn(offset_bytes, buf.len()).await;
        self.reads.set(self.reads.get() + 1);
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.turn(offset_bytes, data.len()).await;
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.memory.flush().await
    }
}

/// A mirror of three whose content is its offset, in steps of 64 KiB.
fn mirror() -> (Volume<Turning, Still>, Vec<Turning>) {
    let clock = Still::default();
    let disk = || Turning {
        memory: Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()]),
        clock: clock.clone(),
        head: Rc::default(),
        reads: Rc::default(),
    };
    let disks: Vec<Turning> = (0..3).map(|_| disk()).collect();
    let plan = plan(&three_members(Organisation::Raid1, DEVICE_BYTES)).unwrap();
    let devices: Vec<Option<Turning>> = disks.iter().cloned().map(Some).collect();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    let named = named(disks.iter().cloned());
    let opened = run(open_volume(
        named,
        clock.clone(),
        BufPool::new(1 << 20),
        OpenRequest::default(),
    ));
    let (volume, _) = opened.unwrap();
    for at in 0..volume.size_bytes() / STEP as u64 {
        write(&volume, at * STEP as u64, byte_at(at));
    }
    volume.set_balance(Policy::Adaptive { reads_ahead: true });
    (volume, disks)
}

fn byte_at(step: u64) -> u8 {
    u8::try_from(step % 251).unwrap()
}

fn write(volume: &Volume<Turning, Still>, at: u64, byte: u8) {
    let data = BufPool::new(0).copy_of(&[byte; STEP]).freeze();
    run(volume.write(at, data, Fua::No)).unwrap();
}

fn read(volume: &Volume<Turning, Still>, at: u64) -> Vec<u8> {
    run(volume.read(at, STEP)).unwrap().to_vec()
}

/// Six streams over three disks take turns, so that each step would be a jump.
fn streams(volume: &Volume<Turning, Still>, steps: u64, mut each: impl FnMut(u64, u64)) {
    let part = volume.size_bytes() / STEP as u64 / 6;
    for step in 0..steps.min(part) {
        for stream in 0..6 {
            each(stream, (stream * part + step) * STEP as u64);
        }
    }
}

#[test]
fn streams_that_share_disks_ask_the_disks_less_often_and_get_the_same() {
    let (volume, disks) = mirror();
    let asked = |disks: &[Turning]| disks.iter().map(|disk| disk.reads.get()).sum::<u64>();
    let before = asked(&disks);
    let mut steps = 0;
    streams(&volume, 48, |_, at| {
        steps += 1;
        assert_eq!(read(&volume, at)[0], byte_at(at / STEP as u64), "at {at}");
    });
    let reads = asked(&disks) - before;
    assert!(reads < steps / 2, "{reads} reads for {steps} steps");
}

#[test]
fn what_is_written_where_was_read_ahead_is_what_the_stream_reads() {
    let (volume, _) = mirror();
    let mut written = BTreeSet::new();
    streams(&volume, 48, |_, at| {
        let byte = match written.contains(&at) {
            true => 255,
            false => byte_at(at / STEP as u64),
        };
        let found = read(&volume, at);
        let wrong = found.iter().filter(|found| **found != byte).count();
        assert_eq!(wrong, 0, "bytes that are not {byte} at {at}: {}", found[0]);
        // The step after the next: read ahead already, if anything is.
        let ahead = at + 2 * STEP as u64;
        if ahead < volume.size_bytes() {
            write(&volume, ahead, 255);
            written.insert(ahead);
        }
    });
    assert!(written.len() > 200);
}
