//! A member that fails in one place alone: what is written meanwhile, in which order, and what is said of it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::common::small_array::{
    BLOCK, DEVICE_BYTES, Keeps, STRIP_BYTES, new_array, three_members,
};
use crate::common::{Memory, Still, named, run, yield_once};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::join;
use plexum_engine::state::{FailCause, MemberId};
use plexum_engine::volume::{Announcement, NewMember, Volume};
use plexum_format::md::{BadBlocks, MdVersion, PplHeader, Superblock, ppl};
use plexum_format::stripe_log::LogHeader;
use plexum_layout::Organisation;
use plexum_md::assemble::Options;
use plexum_md::create::{NewArray, Start, plan, write_new};
use plexum_md::open::{OpenRequest, examine, log_header_place, open_volume};

/// A write of a member: its number, where, and how it ended.
type Event = (usize, Range<u64>, Result<(), IoError>);
type Refusal = Option<(Range<u64>, IoError)>;

/// A device that refuses reads or writes of some bytes and notes its writes, with those of the others.
#[derive(Clone)]
struct Picky {
    memory: Memory,
    number: usize,
    writes: Rc<RefCell<Refusal>>,
    reads: Rc<RefCell<Refusal>>,
    /// Reads take so many turns.
    turns: Rc<Cell<u32>>,
    events: Rc<RefCell<Vec<Event>>>,
}

fn judge(refusal: &RefCell<Refusal>, range: &Range<u64>) -> Result<(), IoError> {
    match &*refusal.borrow() {
        Some((bad, error)) if bad.start < range.end && range.start < bad.end => Err(*error),
        _ => Ok(()),
    }
}

impl Device for Picky {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        judge(
            &self.reads,
            &(offset_bytes..offset_bytes + buf.len() as u64),
        )?;
        for _ in 0..self.turns.get() {
            yield_once().await;
        }
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let range = offset_bytes..offset_bytes + data.len() as u64;
        let result = judge(&self.writes, &range);
        let event = (self.number, range, result);
        self.events.borrow_mut().push(event);
        result?;
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.memory.flush().await
    }
}

type Members = Vec<(String, Picky)>;

fn picky(devices: Vec<(String, Memory)>) -> Members {
    let events = Rc::<RefCell<Vec<Event>>>::default();
    let each = devices.into_iter().enumerate();
    each.map(|(number, (name, memory))| {
        let device = Picky {
            memory,
            number,
            writes: Rc::default(),
            reads: Rc::default(),
            turns: Rc::default(),
            events: Rc::clone(&events),
        };
        (name, device)
    })
    .collect()
}

fn array(keeps: Keeps) -> Members {
    picky(new_array(MdVersion::V12, keeps).1)
}

fn open(devices: &[(String, Picky)]) -> Volume<Picky, Still> {
    let request = OpenRequest {
        assemble: Options {
            run_degraded: true,
            ..Options::default()
        },
        ..OpenRequest::default()
    };
    let pool = BufPool::new(1 << 20);
    let opened = open_volume(devices.to_vec(), Still::default(), pool, request);
    run(opened).unwrap_or_else(|error| panic!("{error}")).0
}

fn write(volume: &Volume<Picky, Still>, at: u64, length: u64, byte: u8) -> Result<(), IoError> {
    let data = vec![byte; usize::try_from(length).unwrap()];
    run(volume.write(at, BufPool::new(0).copy_of(&data).freeze(), Fua::No))
}

fn read(volume: &Volume<Picky, Still>, at: u64) -> Vec<u8> {
    run(volume.read(at, BLOCK)).unwrap().to_vec()
}

fn superblock(device: &Picky) -> Superblock {
    run(examine(&device.memory, &BufPool::new(0), 0, "m"))
        .unwrap()
        .superblock
}

fn super_range(device: &Picky) -> Range<u64> {
    let at = superblock(device).super_offset_sectors * 512;
    at..at + 4096
}

fn ppl_range(device: &Picky) -> Range<u64> {
    let superblock = superblock(device);
    let at = superblock.ppl_sector().unwrap() * 512;
    at..at + u64::from(superblock.ppl.unwrap().size_sectors) * 512
}

/// The header of a ring, and its ring.
fn log_ranges(device: &Picky) -> (Range<u64>, Range<u64>) {
    let header = log_header(device);
    let place = log_header_place(&superblock(device)).unwrap();
    let start = header.area.ring_sector * 512;
    (place, start..start + header.area.ring_bytes)
}

fn log_header(device: &Picky) -> LogHeader {
    let place = log_header_place(&superblock(device)).unwrap();
    let at = usize::try_from(place.start).unwrap();
    LogHeader::parse(&device.memory.bytes.borrow()[at..at + 4096], place.start).unwrap()
}

/// The bytes of a member's data, those from `at` on.
fn data_range(device: &Picky, at: u64) -> Range<u64> {
    let start = superblock(device).data_offset_sectors * 512;
    start + at..device.info().size_bytes
}

fn bytes(device: &Picky, at: u64) -> u8 {
    let at = usize::try_from(data_range(device, at).start).unwrap();
    device.memory.bytes.borrow()[at]
}

fn poke(device: &Picky, at: u64, length: u64, byte: u8) {
    let at = usize::try_from(data_range(device, at).start).unwrap();
    let length = usize::try_from(length).unwrap();
    device.memory.bytes.borrow_mut()[at..at + length].fill(byte);
}

/// The header of the partial parity log.
fn unit(device: &Picky) -> Option<PplHeader> {
    let at = usize::try_from(ppl_range(device).start).unwrap();
    let signature = ppl::signature(&superblock(device).array_uuid);
    PplHeader::parse(&device.memory.bytes.borrow()[at..at + 4096], 0, signature).ok()
}

fn refuse_writes(device: &Picky, range: Range<u64>, error: IoError) {
    *device.writes.borrow_mut() = Some((range, error));
}

/// Why the member `m1` was failed by the write, which is answered all the same.
fn cause_of(devices: &[(String, Picky)], volume: &Volume<Picky, Still>, at: u64) -> FailCause {
    write(volume, at, BLOCK as u64, 0x11).unwrap();
    let told = run(volume.next_announcement());
    let Announcement::MemberFailed { member, cause } = told else {
        panic!("{told:?}");
    };
    assert_eq!(member, "m1");
    assert!(volume.status().lost_slots == [1] && read(volume, at) == [0x11; BLOCK]);
    *devices[1].1.writes.borrow_mut() = None;
    cause
}

/// Parity of the second row is on slot 1.
const SECOND_ROW: u64 = 2 * STRIP_BYTES;

#[test]
fn a_member_that_fails_in_its_metadata_is_out_and_the_cause_is_told() {
    let causes = [(IoError::Gone, None), (IoError::Medium, Some(()))];
    for (error, is_medium) in causes {
        let expected = |other: FailCause| is_medium.map_or(FailCause::Gone, |()| other);
        let devices = array(Keeps::Ppl);
        let volume = open(&devices);
        refuse_writes(&devices[1].1, ppl_range(&devices[1].1), error);
        let cause = cause_of(&devices, &volume, SECOND_ROW);
        assert_eq!(cause, expected(FailCause::WriteError), "partial parity");

        for keeps in [Keeps::Ppl, Keeps::Log] {
            let devices = array(keeps);
            let volume = open(&devices);
            refuse_writes(&devices[1].1, super_range(&devices[1].1), error);
            let cause = cause_of(&devices, &volume, 0);
            assert_eq!(cause, expected(FailCause::SuperblockError), "superblock");
        }

        let devices = array(Keeps::Log);
        let volume = open(&devices);
        write(&volume, 0, BLOCK as u64, 1).unwrap();
        let (header, ring) = log_ranges(&devices[1].1);
        refuse_writes(&devices[1].1, ring, error);
        let cause = cause_of(&devices, &volume, STRIP_BYTES);
        assert_eq!(cause, expected(FailCause::WriteError), "record");

        let devices = array(Keeps::Log);
        let volume = open(&devices);
        refuse_writes(&devices[1].1, header, error);
        let cause = cause_of(&devices, &volume, 0);
        assert_eq!(cause, expected(FailCause::SuperblockError), "header");
    }
}

/// The first write in place on another member that comes after `since`, and whether a superblock of that one came
/// before it.
fn is_committed_before_data(devices: &[(String, Picky)], since: usize) -> bool {
    let events = devices[0].1.events.borrow();
    let (data, superblock) = (data_range(&devices[0].1, 0), super_range(&devices[0].1));
    let of_first = events[since..].iter().filter(|(number, ..)| *number == 0);
    for (_, range, _) in of_first {
        if range.start == superblock.start {
            return true;
        }
        if data.contains(&range.start) {
            return false;
        }
    }
    panic!("nothing was written in place");
}

/// W3, L2: after a crash in between nobody could tell the record from one that had not begun.
#[test]
fn who_lacks_a_record_is_durably_out_before_anything_changes_in_place() {
    for error in [IoError::Gone, IoError::Medium] {
        let devices = array(Keeps::Log);
        let volume = open(&devices);
        write(&volume, 0, BLOCK as u64, 1).unwrap();
        let (_, ring) = log_ranges(&devices[1].1);
        refuse_writes(&devices[1].1, ring, error);
        let before = devices[0].1.events.borrow().len();
        write(&volume, 0, 2 * STRIP_BYTES, 2).unwrap();
        let events = devices[0].1.events.borrow().clone();
        let refused = events[before..]
            .iter()
            .position(|(number, _, result)| *number == 1 && result.is_err());
        assert!(is_committed_before_data(
            &devices,
            before + refused.unwrap()
        ));
    }
}

/// W3: a member that came back after a crash in the replay would be believed.
#[test]
fn who_is_missing_is_durably_out_before_the_log_is_replayed() {
    let devices = array(Keeps::WriteBackLog);
    let volume = open(&devices);
    write(&volume, 0, BLOCK as u64, 0x11).unwrap();
    drop(volume);
    let before = devices[0].1.events.borrow().len();
    let left = [devices[0].clone(), devices[2].clone()];
    let volume = open(&left);
    assert_eq!(read(&volume, 0), [0x11; BLOCK]);
    assert!(is_committed_before_data(&left, before));
}

/// What a member had no part in it cannot lack.
#[test]
fn the_ring_of_a_member_that_joins_says_from_when_on_it_has_everything() {
    let devices = array(Keeps::Log);
    let volume = open(&devices);
    for block in 0..4 {
        write(&volume, block * STRIP_BYTES, BLOCK as u64, 1).unwrap();
    }
    let member = volume.status().members[1].id;
    run(volume.fail(member)).unwrap();
    run(volume.remove(member)).unwrap();
    let blank = Memory::new(vec![0; devices[1].1.memory.bytes.borrow().len()]);
    let new = Picky {
        memory: blank,
        ..devices[1].1.clone()
    };
    let joins = NewMember {
        name: "new".to_owned(),
        device: new.clone(),
        identity: [9; 16],
        is_write_mostly: false,
        former: None,
    };
    run(join(volume.run_background(), async {
        assert!(volume.add(joins, false).await.is_ok());
        while volume.lost_slots().contains(&true) {
            yield_once().await;
        }
        volume.stop().await.unwrap();
    }));
    assert!(log_header(&new).joined_sequence >= 4);
    assert_eq!(
        log_header(&devices[0].1).joined_sequence,
        0,
        "from the start"
    );
}

#[test]
fn each_unit_of_the_partial_parity_log_has_a_generation_of_its_own() {
    let devices = array(Keeps::Ppl);
    let generation = || unit(&devices[2].1).unwrap().generation;
    let mut last = generation();
    for _ in 0..2 {
        let volume = open(&devices);
        for byte in 1..4 {
            write(&volume, 0, BLOCK as u64, byte).unwrap();
            assert!(generation() > last, "{} after {last}", generation());
            last = generation();
        }
    }
}

/// As long as the partial parity is not whole nothing has begun in place.
#[test]
fn a_torn_unit_changes_nothing() {
    let devices = array(Keeps::Ppl);
    let volume = open(&devices);
    write(&volume, STRIP_BYTES, BLOCK as u64, 0x22).unwrap();
    write(&volume, 0, BLOCK as u64, 0x11).unwrap();
    drop(volume);
    // The crash came in the unit.
    poke(&devices[0].1, 0, BLOCK as u64, 0);
    poke(&devices[2].1, 0, BLOCK as u64, 0x22);
    let at = usize::try_from(ppl_range(&devices[2].1).start).unwrap() + 4096;
    devices[2].1.memory.bytes.borrow_mut()[at] ^= 0xff;
    let volume = open(&devices);
    assert_eq!(bytes(&devices[2].1, 0), 0x22);
    assert_eq!(
        (read(&volume, 0)[0], read(&volume, STRIP_BYTES)[0]),
        (0, 0x22)
    );
}

/// A unit speaks of the parity of the member it lies on, and of nothing else.
#[test]
fn a_unit_on_another_member_is_not_believed() {
    let devices = array(Keeps::Ppl);
    let volume = open(&devices);
    write(&volume, STRIP_BYTES, BLOCK as u64, 0x22).unwrap();
    write(&volume, 0, BLOCK as u64, 0x11).unwrap();
    drop(volume);
    let (from, to) = (
        ppl_range(&devices[2].1).start,
        ppl_range(&devices[1].1).start,
    );
    let (from, to) = (usize::try_from(from).unwrap(), usize::try_from(to).unwrap());
    let copied = devices[2].1.memory.bytes.borrow()[from..from + 8192].to_vec();
    devices[1].1.memory.bytes.borrow_mut()[to..to + 8192].copy_from_slice(&copied);
    let volume = open(&devices);
    assert_eq!(
        (read(&volume, 0)[0], read(&volume, STRIP_BYTES)[0]),
        (0x11, 0x22)
    );
}

/// Rows written whole, with the crash: the first one's parity is on slot 2, the second one's on slot 1.
fn crashed_in_two_rows() -> Members {
    let devices = array(Keeps::Ppl);
    let volume = open(&devices);
    for row in 0..2 {
        write(
            &volume,
            row * 2 * STRIP_BYTES,
            2 * STRIP_BYTES,
            0x50 + row as u8,
        )
        .unwrap();
    }
    drop(volume);
    poke(&devices[2].1, 0, STRIP_BYTES, 0x77);
    poke(&devices[1].1, STRIP_BYTES, STRIP_BYTES, 0x77);
    devices
}

#[test]
fn rows_that_were_written_whole_are_right_after_a_crash_when_all_is_there() {
    let devices = crashed_in_two_rows();
    let volume = open(&devices);
    assert_eq!(volume.status().doubtful_regions.0, 0);
    for page in (0..STRIP_BYTES).step_by(BLOCK) {
        assert_eq!(bytes(&devices[2].1, page), 0, "0x50 ^ 0x50");
        assert_eq!(bytes(&devices[1].1, STRIP_BYTES + page), 0);
    }
}

/// A strip turns out to be unreadable when its row is replayed: nobody knows its parity. All of it stays named.
#[test]
fn rows_with_a_strip_that_cannot_be_read_stay_in_doubt_as_a_whole() {
    let devices = crashed_in_two_rows();
    *devices[0].1.reads.borrow_mut() = Some((data_range(&devices[0].1, 0), IoError::Medium));
    let volume = open(&devices);
    assert!(volume.status().doubtful_regions.0 > 0);
    for slot in [2, 1] {
        let entries = unit(&devices[slot].1).unwrap().entries;
        assert_eq!(entries.len(), 1, "slot {slot}");
        assert_eq!(
            u64::from(entries[0].data_bytes),
            2 * STRIP_BYTES,
            "slot {slot}"
        );
    }
}

/// A write of one strip whose neighbour cannot be read is no hole: the neighbour is what it was.
#[test]
fn a_strip_that_was_written_alone_leaves_no_doubt() {
    let devices = array(Keeps::Ppl);
    let volume = open(&devices);
    write(&volume, 0, BLOCK as u64, 0x11).unwrap();
    drop(volume);
    *devices[0].1.reads.borrow_mut() = Some((data_range(&devices[0].1, 0), IoError::Medium));
    let volume = open(&devices);
    assert_eq!(volume.status().doubtful_regions.0, 0);
}

#[test]
fn a_header_that_is_missing_after_a_clean_stop_is_there_again() {
    let devices = array(Keeps::Ppl);
    let at = usize::try_from(ppl_range(&devices[1].1).start).unwrap();
    devices[1].1.memory.bytes.borrow_mut()[at + 600] ^= 1;
    assert_eq!(unit(&devices[1].1), None);
    let volume = open(&devices);
    assert!(unit(&devices[1].1).is_some());
    drop(volume);
    assert_eq!(open(&devices).status().doubtful_regions.0, 0);
}

/// md keeps how far the first resync came: with a header on every member the rest of it would be forgotten.
#[test]
fn what_a_resync_has_not_reached_is_in_doubt_after_a_crash_too() {
    let devices = array(Keeps::Ppl);
    for (_, device) in &devices {
        let mut superblock = superblock(device);
        superblock.resync_offset_sectors = Some(1024);
        let at = usize::try_from(super_range(device).start).unwrap();
        device.memory.bytes.borrow_mut()[at..at + 4096].copy_from_slice(&superblock.encode());
    }
    let volume = open(&devices);
    assert!(volume.status().doubtful_regions.0 > 0);
    write(&volume, 0, BLOCK as u64, 0x11).unwrap();
    drop(volume);
    let volume = open(&devices);
    let (doubtful, all) = volume.status().doubtful_regions;
    assert!(doubtful > all / 2, "{doubtful} of {all}");
}

/// A unit names sixteen such rows. With one more no member has a header: all parity is in doubt after a crash.
#[test]
fn doubt_that_units_cannot_name_is_the_want_of_headers() {
    let devices = array(Keeps::Ppl);
    let volume = open(&devices);
    refuse_writes(
        &devices[0].1,
        data_range(&devices[0].1, 0),
        IoError::NoSpace,
    );
    for count in 1..=17 {
        // Rows with their parity on slot 2, and blocks in them that do not touch.
        let (row, block) = (count / 8 * 3, count % 8 * 2);
        let at = row * 2 * STRIP_BYTES + block * BLOCK as u64;
        let written = write(&volume, at, BLOCK as u64, 0x11);
        assert_eq!(written, Err(IoError::NoSpace));
        let headers = devices.iter().filter(|(_, device)| unit(device).is_some());
        assert_eq!(
            headers.count(),
            if count == 17 { 0 } else { 3 },
            "{count} rows"
        );
    }
}

/// The ranges of the bad-block list on a member, in sectors of its data.
fn bad_list(device: &Picky) -> Vec<(u64, u64)> {
    let superblock = superblock(device);
    let area = superblock.bad_block_log.unwrap();
    let start = superblock.bad_block_log_sector().unwrap() * 512;
    let (from, length) = (
        usize::try_from(start).unwrap(),
        usize::from(area.size_sectors) * 512,
    );
    let bytes = device.memory.bytes.borrow()[from..from + length].to_vec();
    let list = BadBlocks::parse(&bytes, area.shift, start).unwrap();
    let data = superblock.data_offset_sectors;
    let ranges = list.ranges().iter();
    ranges
        .map(|range| (range.start - data, range.end - data))
        .collect()
}

#[test]
fn the_list_of_bad_blocks_has_what_failed_and_nothing_when_it_was_written_again() {
    let devices = array(Keeps::Log);
    let volume = open(&devices);
    let (_, first) = &devices[0];
    let bad = data_range(first, 8192).start;
    refuse_writes(first, bad..bad + 4096, IoError::Medium);
    write(&volume, 8192, BLOCK as u64, 0x11).unwrap();
    assert_eq!(bad_list(first), [(16, 24)]);
    assert!(superblock(first).has_bad_blocks);
    *first.writes.borrow_mut() = None;
    write(&volume, 8192, BLOCK as u64, 0x22).unwrap();
    run(volume.flush()).unwrap();
    run(volume.stop()).unwrap();
    assert!(!superblock(first).has_bad_blocks);
    assert_eq!(bad_list(first), []);
}

/// The kernel writes its units one after the other; older kernels had one place for all.
#[test]
fn the_newest_unit_of_a_ring_counts_and_without_a_ring_the_first() {
    for is_ring in [true, false] {
        let devices = array(Keeps::Ppl);
        let volume = open(&devices);
        write(&volume, STRIP_BYTES, BLOCK as u64, 0x22).unwrap();
        write(&volume, 0, BLOCK as u64, 0x11).unwrap();
        drop(volume);
        let (_, third) = &devices[2];
        poke(third, 0, BLOCK as u64, 0x77);
        for (_, device) in &devices {
            let mut superblock = superblock(device);
            superblock.ppl.as_mut().unwrap().is_multiple = is_ring;
            let at = usize::try_from(super_range(device).start).unwrap();
            device.memory.bytes.borrow_mut()[at..at + 4096].copy_from_slice(&superblock.encode());
        }
        let newest = unit(third).unwrap();
        let signature = ppl::signature(&superblock(third).array_uuid);
        let nothing = PplHeader::new(signature, newest.generation, Vec::new());
        let next = PplHeader::new(signature, newest.generation + 1, newest.entries);
        let at = usize::try_from(ppl_range(third).start).unwrap();
        {
            let mut bytes = third.memory.bytes.borrow_mut();
            bytes.copy_within(at + 4096..at + 4096 + BLOCK, at + 8192);
            bytes[at..at + 4096].copy_from_slice(&nothing.encode());
            bytes[at + 4096..at + 8192].copy_from_slice(&next.encode());
        }
        drop(open(&devices));
        assert_eq!(
            bytes(third, 0),
            if is_ring { 0x33 } else { 0x77 },
            "{is_ring}"
        );
    }
}

/// The block does not count before it is written again: for want of space it goes on not counting, and that is all.
#[test]
fn a_full_member_loses_nothing_by_what_is_bad_on_it_already() {
    let devices = array(Keeps::Log);
    let volume = open(&devices);
    let (_, first) = &devices[0];
    let bad = data_range(first, 8192).start;
    write(&volume, 8192, 2 * BLOCK as u64, 0x11).unwrap();
    refuse_writes(first, bad..bad + 4096, IoError::Medium);
    write(&volume, 8192, BLOCK as u64, 0x22).unwrap();
    assert_eq!(bad_list(first), [(16, 24)]);

    refuse_writes(first, bad..bad + 8192, IoError::NoSpace);
    write(&volume, 8192, BLOCK as u64, 0x33).unwrap();
    assert_eq!(read(&volume, 8192), [0x33; BLOCK]);
    let written = write(&volume, 8192, 2 * BLOCK as u64, 0x44);
    assert_eq!(
        written,
        Err(IoError::NoSpace),
        "the second block is good, and too old now"
    );
    assert_eq!(read(&volume, 8192), [0x44; BLOCK]);
    assert_eq!(bad_list(first), [(16, 24)]);
}

/// A RAID-1 whose two copies differ in the first block: 1 and 2, until a resync.
fn unequal_copies() -> Members {
    let new = NewArray {
        members: vec![Some(DEVICE_BYTES); 2],
        identities: vec![[1; 16], [2; 16]],
        start: Start::Resync,
        ..three_members(Organisation::Raid1, DEVICE_BYTES)
    };
    let memory = || Some(Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()]));
    let devices = [memory(), memory()];
    run(write_new(&plan(&new).unwrap(), &devices, &BufPool::new(0))).unwrap();
    let devices = picky(named(devices.into_iter().flatten()));
    for (index, byte) in [(0, 1), (1, 2)] {
        let device = &devices[index].1;
        poke(device, 0, BLOCK as u64, byte);
    }
    devices
}

#[test]
fn what_a_member_gave_that_failed_while_it_was_read_is_on_the_one_that_is_left() {
    let devices = unequal_copies();
    let volume = open(&devices);
    devices[0].1.turns.set(3);
    let fail = async {
        yield_once().await;
        volume.fail(MemberId(0)).await.unwrap();
    };
    let (answer, ()) = run(join(volume.read(0, BLOCK), fail));
    let answer = answer.unwrap().to_vec();
    assert_eq!(answer[0], 1, "the copy that was being read");
    assert_eq!(read(&volume, 0)[0], 1, "the same again");
    assert_eq!(bytes(&devices[1].1, 0), 1, "after a crash, too");
}
