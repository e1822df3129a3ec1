//! Rows of members on disk that are short are rebuilt, resynced and scrubbed several at a time, each member asked for
//! one long piece; what is wrong in one of them is found as if it were by itself.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::common::small_array::{STRIP_BYTES, three_members};
use crate::common::{Memory, Still, named, run, yield_once};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::join;
use plexum_engine::state::MemberId;
use plexum_engine::upkeep::scrub::{ScrubMode, ScrubReport};
use plexum_engine::volume::Volume;
use plexum_layout::{Organisation, Raid5Layout, Raid6Layout};
use plexum_md::create::{NewArray, Start, plan, write_new};
use plexum_md::open::{OpenRequest, open_volume};

const DEVICE_BYTES: u64 = 17 << 20;
/// Bytes of each member in a step: eight rows.
const STEP_BYTES: usize = 512 << 10;
const MEMBERS: usize = 5;
const RAID5: Organisation = Organisation::Raid5(Raid5Layout::LeftSymmetric);
const RAID6: Organisation = Organisation::Raid6(Raid6Layout::LeftSymmetric);

/// A disk that notes the lengths of what is asked of it and cannot read some bytes.
#[derive(Clone)]
struct Disk {
    memory: Memory,
    reads: Rc<RefCell<Vec<usize>>>,
    writes: Rc<RefCell<Vec<usize>>>,
    unreadable: Rc<Cell<(u64, u64)>>,
}

impl Device for Disk {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        yield_once().await;
        self.reads.borrow_mut().push(buf.len());
        let (start, end) = self.unreadable.get();
        if offset_bytes < end && start < offset_bytes + buf.len() as u64 {
            return Err(IoError::Medium);
        }
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.writes.borrow_mut().push(data.len());
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.memory.flush().await
    }
}

/// A volume full of noise, its disks with a spare behind them, and where their data begin.
struct Array {
    volume: Volume<Disk, Still>,
    clock: Still,
    disks: Vec<Disk>,
    start: usize,
}

fn array(organisation: Organisation, begin: Start) -> Array {
    let new = NewArray {
        members: vec![Some(DEVICE_BYTES); MEMBERS],
        spares: vec![DEVICE_BYTES],
        identities: (1..=6).map(|number| [number; 16]).collect(),
        region_bytes: Some(4 << 20),
        start: begin,
        ..three_members(organisation, DEVICE_BYTES)
    };
    let plan = plan(&new).unwrap();
    let disk = |_| Disk {
        memory: Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()]),
        reads: Rc::default(),
        writes: Rc::default(),
        unreadable: Rc::default(),
    };
    let disks: Vec<Disk> = (0..=MEMBERS).map(disk).collect();
    let present: Vec<Option<Disk>> = disks.iter().cloned().map(Some).collect();
    run(write_new(&plan, &present, &BufPool::new(0))).unwrap();
    let start = plan.superblocks[0].as_ref().unwrap().data_offset_sectors * 512;
    let clock = Still::default();
    let named = named(disks.iter().cloned());
    let (pool, request) = (BufPool::new(1 << 20), OpenRequest::default());
    let (volume, _) = run(open_volume(named, clock.clone(), pool, request)).unwrap();
    Array {
        volume,
        clock,
        disks,
        start: usize::try_from(start).unwrap(),
    }
}

/// Bytes that look like nothing.
struct Noise(u32);

impl Noise {
    fn fill(&mut self, data: &mut [u8]) {
        for byte in data {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (self.0 >> 24) as u8;
        }
    }
}

impl Array {
    /// Fills the volume; afterwards its clients have been quiet for a second.
    async fn fill(&self) {
        let mut noise = Noise(1);
        let mut at = 0;
        while at < self.volume.size_bytes() {
            let length = (self.volume.size_bytes() - at).min(1 << 20);
            let mut data = vec![0; usize::try_from(length).unwrap()];
            noise.fill(&mut data);
            let data = BufPool::new(0).copy_of(&data).freeze();
            self.volume.write(at, data, Fua::No).await.unwrap();
            at += length;
        }
        self.clock.0.set(self.clock.0.get() + 1_000_000_000);
        for disk in &self.disks {
            disk.reads.borrow_mut().clear();
            disk.writes.borrow_mut().clear();
        }
    }

    /// Where the row of this number lies on a member's disk.
    fn row(&self, number: usize) -> usize {
        self.start + number * usize::try_from(STRIP_BYTES).unwrap()
    }

    /// Has the spare filled in place of member 1; where it differs from that one, from its first to its last byte, in
    /// bytes of the data.
    fn rebuild(&self, unreadable: Range<usize>) -> Option<Range<usize>> {
        run(join(self.volume.run_background(), async {
            self.fill().await;
            let unreadable = (unreadable.start as u64, unreadable.end as u64);
            self.disks[2].unreadable.set(unreadable);
            self.volume.fail(MemberId(1)).await.unwrap();
            while self.volume.lost_slots().contains(&true) {
                yield_once().await;
            }
            self.volume.stop().await.unwrap();
        }));
        let (lost, filled) = (
            &self.disks[1].memory.bytes,
            &self.disks[MEMBERS].memory.bytes,
        );
        let (lost, filled) = (lost.borrow(), filled.borrow());
        let length = usize::try_from(self.volume.size_bytes()).unwrap() / (MEMBERS - 1);
        let differs = |at: &usize| lost[at + self.start] != filled[at + self.start];
        let first = (0..length).find(differs)?;
        Some(first..(0..length).rfind(differs)? + 1)
    }

    /// Has everything made consistent; what the members' data were before and are afterwards.
    fn resync(&self) -> [Vec<Vec<u8>>; 2] {
        let bytes = || -> Vec<Vec<u8>> {
            let data = |disk: &Disk| disk.memory.bytes.borrow()[self.start..self.end()].to_vec();
            self.disks[..MEMBERS].iter().map(data).collect()
        };
        let before = bytes();
        run(join(self.volume.run_background(), async {
            self.volume.resynced().await;
            self.volume.stop().await.unwrap();
        }));
        [before, bytes()]
    }

    /// Where the last row ends on a member's disk.
    fn end(&self) -> usize {
        self.start + usize::try_from(self.volume.size_bytes()).unwrap() / (MEMBERS - 1)
    }

    fn longest(of: &RefCell<Vec<usize>>) -> usize {
        of.borrow().iter().copied().max().unwrap_or(0)
    }

    /// What a scrub finds where a byte of member 1 is wrong, in the row of this number.
    fn scrub(&self, row: usize) -> ScrubReport {
        run(join(self.volume.run_background(), async {
            self.fill().await;
            self.disks[1].memory.bytes.borrow_mut()[self.row(row) + 5000] ^= 1;
            assert!(self.volume.start_scrub(ScrubMode::Check));
            self.volume.scrub_ended().await;
            self.volume.stop().await.unwrap();
        }));
        self.volume.scrub_report().unwrap()
    }
}

#[test]
fn a_spare_is_filled_in_long_pieces_with_what_the_lost_member_held() {
    for organisation in [RAID5, RAID6] {
        let array = array(organisation, Start::Agreeing);
        assert_eq!(array.rebuild(0..0), None, "{organisation:?}");
        let longest = Array::longest(&array.disks[MEMBERS].writes);
        assert_eq!(longest, STEP_BYTES, "{organisation:?}");
        // Of RAID-6 one parity of a row is not needed, two rows in five from this member: there its piece ends.
        let strip = usize::try_from(STRIP_BYTES).unwrap();
        let piece = if organisation == RAID5 {
            STEP_BYTES
        } else {
            3 * strip
        };
        assert_eq!(
            Array::longest(&array.disks[0].reads),
            piece,
            "{organisation:?}"
        );
    }
}

#[test]
fn a_sector_that_cannot_be_read_costs_no_other_one_of_its_step() {
    let array_5 = array(RAID5, Start::Agreeing);
    let at = array_5.row(11) + 8192;
    let lost = array_5.rebuild(at..at + 512).unwrap();
    let at = at - array_5.start;
    assert!(lost.start >= at && lost.end <= at + 512, "{lost:?}");
    let array_6 = array(RAID6, Start::Agreeing);
    let at = array_6.row(11) + 8192;
    assert_eq!(array_6.rebuild(at..at + 512), None, "Q makes up for it");
}

#[test]
fn a_scrub_in_long_pieces_names_the_row_that_is_wrong() {
    for organisation in [RAID5, RAID6] {
        let array = array(organisation, Start::Agreeing);
        let report = array.scrub(13);
        assert!(report.is_complete && report.skipped_bytes == 0);
        let found = &report.mismatches[0];
        let start = 13 * STRIP_BYTES + 4096;
        assert_eq!(found.member_range, start..start + 4096, "{organisation:?}");
        assert_eq!(report.mismatches.len(), 1);
        let slot = (organisation == RAID6).then_some(1);
        assert_eq!(found.slot, slot, "two parities name the member");
        assert_eq!(Array::longest(&array.disks[0].reads), STEP_BYTES);
    }
}

#[test]
fn a_scrub_of_a_part_compares_that_part_alone_and_is_no_result_for_the_whole() {
    let array = array(RAID5, Start::Agreeing);
    let parts =
        [0..12, 12..16, 16..1_000_000].map(|rows| rows.start * STRIP_BYTES..rows.end * STRIP_BYTES);
    let reports = run(join(array.volume.run_background(), async {
        array.fill().await;
        array.disks[1].memory.bytes.borrow_mut()[array.row(13) + 5000] ^= 1;
        let mut reports = Vec::new();
        for part in &parts {
            assert!(array.volume.start_scrub_part(part.clone()));
            array.volume.scrub_ended().await;
            reports.push(array.volume.scrub_part_report().unwrap());
        }
        array.volume.stop().await.unwrap();
        reports
    }))
    .1;
    let found: Vec<u64> = reports.iter().map(|report| report.mismatch_bytes).collect();
    assert_eq!(found, [0, 4096, 0]);
    for (report, part) in reports.iter().zip(&parts) {
        let end = part.end.min(array.volume.scrub_bytes());
        assert_eq!((report.from_bytes, report.done_bytes), (part.start, end));
        assert!(!report.is_complete && report.skipped_bytes == 0);
    }
    assert_eq!(array.volume.scrub_report(), None);
}

#[test]
fn a_resync_in_long_pieces_makes_every_row_right_and_leaves_all_data() {
    let strip = usize::try_from(STRIP_BYTES).unwrap();
    let array = array(RAID5, Start::Resync);
    for (disk, seed) in array.disks.iter().zip(1..=MEMBERS) {
        let range = array.start..array.end();
        let mut noise = Noise(u32::try_from(seed).unwrap());
        noise.fill(&mut disk.memory.bytes.borrow_mut()[range]);
    }
    let [before, after] = array.resync();
    for at in (0..before[0].len()).step_by(strip) {
        let parity = MEMBERS - 1 - at / strip % MEMBERS; // left-symmetric
        for member in (0..MEMBERS).filter(|member| *member != parity) {
            let here = at..at + strip;
            assert!(after[member][here.clone()] == before[member][here], "data");
        }
        let sum = |byte: usize| after.iter().fold(0, |sum, member| sum ^ member[byte]);
        assert!((at..at + strip).all(|byte| sum(byte) == 0), "row {at}");
    }
    assert_eq!(Array::longest(&array.disks[0].reads), STEP_BYTES);
}

#[test]
fn a_resync_writes_the_parity_that_is_wrong_and_nothing_else() {
    for organisation in [RAID5, RAID6] {
        let array = array(organisation, Start::Resync);
        for disk in &array.disks {
            disk.writes.borrow_mut().clear();
        }
        // Data of row 14 that its parity, all zero, knows nothing of.
        array.disks[2].memory.bytes.borrow_mut()[array.row(14) + 5000] = 1;
        array.resync();
        let strip = usize::try_from(STRIP_BYTES).unwrap();
        let strips = |disk: &Disk| {
            disk.writes
                .borrow()
                .iter()
                .filter(|len| **len == strip)
                .count()
        };
        let count: usize = array.disks.iter().map(strips).sum();
        let parities = if organisation == RAID5 { 1 } else { 2 };
        assert_eq!(count, parities, "{organisation:?}");
        let row = array.row(14)..array.row(15);
        let changed = |disk: &&Disk| disk.memory.bytes.borrow()[row.clone()][5000] != 0;
        let changed = array.disks[..MEMBERS].iter().filter(changed).count();
        assert_eq!(changed, 1 + parities, "{organisation:?}");
    }
}
