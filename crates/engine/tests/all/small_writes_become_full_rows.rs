//! Small writes that meet at a row are carried out together: parity is computed once, and full rows need no reads.
//! Those that meet at the stripe log share its writes and flushes.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::rc::Rc;

use crate::common::small_array::{STRIP_BYTES, three_members};
use crate::common::{Memory, Still, named, run, yield_once};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::{join, join_all};
use plexum_engine::volume::Volume;
use plexum_layout::{Organisation, Raid5Layout, Raid6Layout};
use plexum_md::create::{NewArray, plan, write_new};
use plexum_md::open::{OpenRequest, open_volume};

const DEVICE_BYTES: u64 = 6 << 20;
const BLOCK_BYTES: u64 = 4096;

/// Answers one turn late, as devices do, or at once, as files in memory do; counts what is done.
#[derive(Clone)]
struct Late {
    memory: Memory,
    is_late: bool,
    /// Flushes, and writes that are durable when they are answered.
    durable_steps: Rc<Cell<u64>>,
    read_bytes: Rc<Cell<u64>>,
    written_bytes: Rc<Cell<u64>>,
}

impl Late {
    async fn answer_late(&self) {
        if self.is_late {
            yield_once().await;
        }
    }
}

impl Device for Late {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.answer_late().await;
        self.read_bytes
            .set(self.read_bytes.get() + buf.len() as u64);
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.answer_late().await;
        self.written_bytes
            .set(self.written_bytes.get() + data.len() as u64);
        if fua == Fua::Yes {
            self.durable_steps.set(self.durable_steps.get() + 1);
        }
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.answer_late().await;
        self.durable_steps.set(self.durable_steps.get() + 1);
        self.memory.flush().await
    }
}

/// A volume and its members, which share their counters.
struct Bench {
    volume: Volume<Late, Still>,
    member: Late,
    members: Vec<Late>,
    clock: Still,
    /// Bytes that were read until it was open.
    opened_bytes: u64,
    row_bytes: u64,
}

impl Bench {
    fn new(organisation: Organisation, member_count: u8) -> Self {
        Self::made(organisation, member_count, true, false)
    }

    fn made(organisation: Organisation, member_count: u8, is_late: bool, has_log: bool) -> Self {
        let new = NewArray {
            log_bytes_max: has_log.then_some(1 << 20),
            members: vec![Some(DEVICE_BYTES); usize::from(member_count)],
            identities: (1..=member_count).map(|number| [number; 16]).collect(),
            has_bitmap: false,
            ..three_members(organisation, DEVICE_BYTES)
        };
        let plan = plan(&new).unwrap();
        let late = Late {
            memory: Memory::new(Vec::new()),
            is_late,
            durable_steps: Rc::default(),
            read_bytes: Rc::default(),
            written_bytes: Rc::default(),
        };
        let bytes = usize::try_from(DEVICE_BYTES).unwrap();
        let members: Vec<Late> = (0..member_count)
            .map(|_| Late {
                memory: Memory::new(vec![0; bytes]),
                ..late.clone()
            })
            .collect();
        let devices: Vec<Option<Late>> = members.iter().cloned().map(Some).collect();
        let pool = BufPool::new(1 << 20);
        run(write_new(&plan, &devices, &pool)).unwrap();
        let named = named(members.iter().cloned());
        let clock = Still::default();
        let request = OpenRequest::default();
        let opened = open_volume(named, clock.clone(), pool, request);
        let parities = if matches!(organisation, Organisation::Raid6(_)) {
            2
        } else {
            1
        };
        let volume = run(opened).unwrap().0;
        Self {
            volume,
            clock,
            opened_bytes: late.read_bytes.get(),
            member: late,
            row_bytes: STRIP_BYTES * u64::from(member_count - parities),
            members,
        }
    }

    /// Bytes read and written on all members while these blocks are written at once, each with its own number.
    fn write_at_once(&self, blocks: impl Iterator<Item = u64>) -> (u64, u64) {
        let before = (
            self.member.read_bytes.get(),
            self.member.written_bytes.get(),
        );
        let writes = blocks.map(|block| {
            let data = BufPool::new(0).copy_of(&content(block)).freeze();
            self.volume.write(block * BLOCK_BYTES, data, Fua::No)
        });
        let results = run(join_all(writes));
        assert!(results.into_iter().all(|result| result.is_ok()));
        (
            self.member.read_bytes.get() - before.0,
            self.member.written_bytes.get() - before.1,
        )
    }

    fn check(&self, blocks: impl Iterator<Item = u64>) {
        for block in blocks {
            let read = run(self.volume.read(block * BLOCK_BYTES, 4096)).unwrap();
            assert_eq!(read.to_vec(), content(block), "block {block}");
        }
    }
}

fn content(block: u64) -> Vec<u8> {
    let mut bytes = vec![0x5a; 4096];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

fn parity_organisations() -> [(Organisation, u8); 2] {
    [
        (Organisation::Raid5(Raid5Layout::LeftSymmetric), 4),
        (Organisation::Raid6(Raid6Layout::LeftSymmetric), 6),
    ]
}

#[test]
fn a_row_of_small_writes_that_come_at_once_is_written_without_reads() {
    for (organisation, member_count) in parity_organisations() {
        let bench = Bench::new(organisation, member_count);
        let blocks = bench.row_bytes / BLOCK_BYTES;
        bench.write_at_once(0..blocks); // of the first row nobody knows that others will come
        let moved = bench.write_at_once(blocks..2 * blocks);
        let rows_bytes = bench.row_bytes / BLOCK_BYTES * BLOCK_BYTES;
        let strip_bytes =
            rows_bytes / u64::from(member_count - if member_count == 6 { 2 } else { 1 });
        assert_eq!(moved, (0, strip_bytes * u64::from(member_count)));
        bench.check(0..2 * blocks);
    }
}

#[test]
fn blocks_apart_in_one_row_are_written_together_and_parity_is_right() {
    for (organisation, member_count) in parity_organisations() {
        let bench = Bench::new(organisation, member_count);
        let blocks = bench.row_bytes / BLOCK_BYTES;
        let scattered: Vec<u64> = (0..4 * blocks).filter(|block| block % 3 != 1).collect();
        bench.write_at_once(0..4 * blocks);
        bench.write_at_once(scattered.iter().copied());
        bench.members[1].memory.is_gone.set(true);
        bench.check(0..4 * blocks);
    }
}

#[test]
fn writes_that_come_at_once_share_the_writes_and_flushes_of_the_log() {
    for (organisation, member_count) in parity_organisations() {
        for is_late in [false, true] {
            let bench = Bench::made(organisation, member_count, is_late, true);
            let blocks = bench.row_bytes / BLOCK_BYTES;
            bench.write_at_once(0..1);
            let before = bench.member.durable_steps.get();
            // Ten rows, one block of each: twenty or thirty records, which take two groups at most.
            bench.write_at_once((0..10).map(|row| row * blocks + row));
            let steps = bench.member.durable_steps.get() - before;
            let groups = steps.div_ceil(u64::from(member_count));
            assert!(
                (1..=2).contains(&groups),
                "{steps} durable steps, late: {is_late}"
            );
            bench.check((0..10).map(|row| row * blocks + row));
        }
    }
}

/// A row's data in two parts: bytes of each.
fn halves(bench: &Bench) -> (u64, u64) {
    let first = bench.row_bytes / 2 / BLOCK_BYTES * BLOCK_BYTES;
    (first, bench.row_bytes - first)
}

fn filled(length_bytes: u64, byte: u8) -> Buf {
    let length = usize::try_from(length_bytes).unwrap();
    BufPool::new(0).copy_of(&vec![byte; length]).freeze()
}

#[test]
fn a_row_waits_for_a_write_that_is_being_received_and_needs_no_reads_then() {
    for (organisation, member_count) in parity_organisations() {
        let bench = Bench::new(organisation, member_count);
        let (first, second) = halves(&bench);
        bench.volume.expect_write(first, second);
        let early = bench.volume.write(0, filled(first, 1), Fua::No);
        let late = async {
            yield_once().await;
            yield_once().await;
            bench.volume.write(first, filled(second, 2), Fua::No).await
        };
        let (early, late) = run(join(early, late));
        assert_eq!((early, late), (Ok(()), Ok(())));
        assert_eq!(bench.member.read_bytes.get(), bench.opened_bytes);
        assert_eq!(bench.clock.0.get(), 0, "nobody's time was over");
        let read = run(bench.volume.read(first - 512, 1024)).unwrap();
        assert_eq!(read.to_vec(), [[1; 512], [2; 512]].concat());
    }
}

#[test]
fn a_row_waits_for_what_does_not_come_no_longer_than_it_may_and_the_next_ones_not_at_all() {
    for (organisation, member_count) in parity_organisations() {
        let bench = Bench::new(organisation, member_count);
        let (first, second) = halves(&bench);
        bench.volume.expect_write(first, second);
        run(bench.volume.write(0, filled(first, 1), Fua::No)).unwrap();
        let waited_ns = bench.clock.0.get();
        assert_eq!(waited_ns, 2_000_000, "the longest time");
        run(bench.volume.write(0, filled(first, 2), Fua::No)).unwrap();
        assert_eq!(bench.clock.0.get(), waited_ns);
    }
}

#[test]
fn a_row_does_not_wait_for_what_was_called_off() {
    let (organisation, member_count) = parity_organisations()[0];
    let bench = Bench::new(organisation, member_count);
    let (first, second) = halves(&bench);
    bench.volume.expect_write(first, second);
    let write = bench.volume.write(0, filled(first, 1), Fua::No);
    let called_off = async {
        yield_once().await;
        yield_once().await;
        bench.volume.expect_no_write(first, second);
    };
    assert_eq!(run(join(write, called_off)).0, Ok(()));
    assert_eq!(bench.clock.0.get(), 0);
}
