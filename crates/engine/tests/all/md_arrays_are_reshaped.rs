//! Arrays of Linux md get other members, levels, layouts and strips while they are served, whatever write is the last
//! one before a crash, and whoever is lost on the way.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Memory, Still, named, run};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::join;
use plexum_engine::volume::{Volume, VolumeOptions};
use plexum_format::md::MdVersion;
use plexum_layout::{Level, Organisation, Raid5Layout, Raid6Layout};
use plexum_md::assemble::Options;
use plexum_md::create::{NewArray, Start, plan as plan_new, write_new};
use plexum_md::open::{OpenError, OpenRequest, examine, open_volume};
use plexum_md::reshape::{
    Beginning, LogNow, Plan, Reshaping, Wish, open_reshaping, plan, situation,
};

const DEVICE_BYTES: u64 = 3 << 20;
const STRIP_BYTES: u64 = 4096;
const MEMBER_BYTES: u64 = 24 * STRIP_BYTES;

thread_local! {
    /// Volume bytes that are moved before the position follows: a unit at a time, or all that there is room for (R3).
    static STEP_BYTES: Cell<u64> = const { Cell::new(1) };
}

/// A device whose sectors are written until the power fails; one of them may be gone before.
#[derive(Clone)]
struct Cut {
    memory: Memory,
    left: Rc<Cell<usize>>,
    /// Sectors that may be left when this one goes.
    goes_at: usize,
}

impl Device for Cut {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        crate::common::yield_once().await;
        if self.left.get() <= self.goes_at {
            return Err(IoError::Gone);
        }
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        crate::common::yield_once().await;
        if self.left.get() <= self.goes_at {
            return Err(IoError::Gone);
        }
        let sectors = data.len() / 512;
        let done = sectors.min(self.left.get());
        self.left.set(self.left.get() - done);
        self.memory
            .write(offset_bytes, data.slice(0..done * 512), fua)
            .await?;
        if done < sectors {
            return Err(IoError::Gone);
        }
        Ok(())
    }
    async fn check(&self) -> Result<(), IoError> {
        match self.left.get() <= self.goes_at {
            true => Err(IoError::Gone),
            false => Ok(()),
        }
    }
    async fn flush(&self) -> Result<(), IoError> {
        match self.left.get() <= self.goes_at {
            true => Err(IoError::Gone),
            false => self.memory.flush().await,
        }
    }
}

/// What an array is, and what it shall become.
#[derive(Clone, Copy, Debug)]
struct Case {
    organisation: Organisation,
    members: u16,
    added: u16,
    wish: (
        Option<u16>,
        Option<Level>,
        Option<&'static str>,
        Option<u64>,
    ),
    has_bitmap: bool,
}

const LEFT_SYMMETRIC: Organisation = Organisation::Raid5(Raid5Layout::LeftSymmetric);

const CASES: [Case; 10] = [
    grown(LEFT_SYMMETRIC, 4, 1, true),
    grown(LEFT_SYMMETRIC, 3, 2, false),
    grown(Organisation::Raid4, 3, 1, true),
    grown(Organisation::Raid6(Raid6Layout::LeftSymmetric), 5, 1, true),
    // Rows of the same length.
    Case {
        wish: (None, None, Some("right-asymmetric"), Some(8192)),
        ..grown(LEFT_SYMMETRIC, 4, 0, true)
    },
    // Fewer members: from the end.
    Case {
        wish: (Some(4), None, None, None),
        ..grown(LEFT_SYMMETRIC, 5, 0, true)
    },
    Case {
        wish: (Some(4), None, None, Some(8192)),
        ..grown(
            Organisation::Raid6(Raid6Layout::RightSymmetric),
            6,
            0,
            false,
        )
    },
    // Another level.
    Case {
        wish: (None, Some(Level::Raid6), None, None),
        ..grown(LEFT_SYMMETRIC, 3, 1, true)
    },
    Case {
        wish: (Some(6), Some(Level::Raid6), None, Some(8192)),
        ..grown(LEFT_SYMMETRIC, 4, 2, false)
    },
    Case {
        wish: (None, Some(Level::Raid5), None, None),
        ..grown(Organisation::Raid6(Raid6Layout::LeftSymmetric), 5, 0, true)
    },
];

const fn grown(organisation: Organisation, members: u16, added: u16, has_bitmap: bool) -> Case {
    Case {
        organisation,
        members,
        added,
        wish: (Some(members + added), None, None, None),
        has_bitmap,
    }
}

fn wish(case: &Case) -> Wish {
    let (member_count, level, layout, strip_bytes) = case.wish;
    Wish {
        member_count,
        level,
        layout: layout.map(str::to_owned),
        strip_bytes,
    }
}

fn new_array(case: &Case) -> Vec<Memory> {
    let count = usize::from(case.members + case.added);
    let new = NewArray {
        version: MdVersion::V12,
        organisation: case.organisation,
        strip_bytes: STRIP_BYTES,
        size_bytes: Some(MEMBER_BYTES),
        members: vec![Some(DEVICE_BYTES); usize::from(case.members)],
        spares: vec![DEVICE_BYTES; usize::from(case.added)],
        write_mostly: Vec::new(),
        stored_name: "test".to_owned(),
        uuid: [7; 16],
        identities: (0..count).map(|number| [number as u8 + 1; 16]).collect(),
        wall_seconds: 1,
        has_bitmap: case.has_bitmap,
        region_bytes: case.has_bitmap.then_some(16_384),
        log_bytes_max: None,
        has_ppl: false,
        is_write_back: false,
        start: Start::Agreeing,
    };
    let planned = plan_new(&new).unwrap();
    let devices: Vec<Memory> = (0..count)
        .map(|_| Memory::new(vec![0; DEVICE_BYTES as usize]))
        .collect();
    let some: Vec<Option<Memory>> = devices.iter().cloned().map(Some).collect();
    run(write_new(&planned, &some, &pool())).unwrap();
    devices
}

fn pool() -> BufPool {
    BufPool::new(1 << 20)
}

fn request(run_degraded: bool) -> OpenRequest {
    let mut volume = VolumeOptions::default();
    volume.thresholds.migration_step_bytes = STEP_BYTES.get();
    OpenRequest {
        assemble: Options {
            run_degraded,
            ..Options::default()
        },
        volume,
        ..OpenRequest::default()
    }
}

fn plain<D: Device + Clone>(
    devices: &[D],
    run_degraded: bool,
) -> Result<Volume<D, Still>, OpenError> {
    let opened = open_volume(
        named(devices.to_vec()),
        Still::default(),
        pool(),
        request(run_degraded),
    );
    run(opened).map(|(volume, _)| volume)
}

fn reshaping<D: Device + Clone>(
    devices: &[D],
    beginning: Option<&Beginning>,
) -> Result<Reshaping<D, Still>, OpenError> {
    let opened = open_reshaping(
        named(devices.to_vec()),
        Still::default(),
        pool(),
        request(true),
        beginning,
    );
    run(opened).map(|(reshaping, _)| reshaping)
}

fn planned<D: Device>(devices: &[D], case: &Case) -> Plan {
    let examined: Vec<_> = devices
        .iter()
        .enumerate()
        .map(|(index, device)| run(examine(device, &pool(), index, &format!("m{index}"))).unwrap())
        .collect();
    let superblocks: Vec<_> = examined.iter().map(|member| &member.superblock).collect();
    let bitmap = examined.iter().find_map(|member| member.bitmap.as_ref());
    let bitmap = bitmap.map_or(0, |header| {
        header
            .area_sectors()
            .max(u64::from(header.reserved_sectors))
    });
    plan(
        &situation(&superblocks, bitmap, LogNow::Off).unwrap(),
        &wish(case),
    )
    .unwrap()
}

fn pattern(at: u64, seed: u64) -> Vec<u8> {
    (0..512_u64)
        .map(|byte| (at / 512 * 31 + byte * 7 + seed * 101) as u8)
        .collect()
}

/// An array with content.
fn filled(case: &Case) -> (Vec<Memory>, Vec<u8>) {
    let devices = new_array(case);
    let volume = plain(&devices, false).unwrap();
    let content: Vec<u8> = (0..volume.size_bytes())
        .step_by(512)
        .flat_map(|at| pattern(at, 0))
        .collect();
    run(volume.write(0, pool().copy_of(&content).freeze(), Fua::No)).unwrap();
    stopped(&volume);
    (devices, content)
}

fn stopped<D: Device>(volume: &Volume<D, Still>) {
    run(join(volume.run_background(), async {
        volume.stop().await.unwrap()
    }));
}

fn read_all<D: Device>(volume: &Volume<D, Still>) -> Vec<u8> {
    run(volume.read(0, volume.size_bytes() as usize))
        .unwrap()
        .to_vec()
}

/// What is left of the way when all has moved.
fn relabelled(devices: &[Memory], plan: &Plan) {
    let Some(last) = &plan.last else { return };
    let mut asked = request(false);
    asked.relabel = Some(last.clone());
    let opened = run(open_volume(
        named(devices.to_vec()),
        Still::default(),
        pool(),
        asked,
    ));
    let (volume, _) = opened.unwrap();
    stopped(&volume);
}

/// The array is what was planned, with this content, whoever is missing.
fn check(devices: &[Memory], plan: &Plan, content: &[u8], place: &str) {
    let whole = plain(devices, true).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(whole.size_bytes(), plan.after_bytes, "{place}");
    assert_eq!(
        whole.geometry().organisation(),
        plan.after.organisation,
        "{place}"
    );
    assert_eq!(
        whole.geometry().member_count(),
        usize::from(plan.after.member_count),
        "{place}"
    );
    let all = read_all(&whole);
    let kept = content.len().min(all.len());
    let same = all.iter().zip(content).take_while(|(a, b)| a == b).count();
    assert_eq!(same, kept, "{place}: {} members", devices.len());
    assert!(
        all[kept..].iter().all(|byte| *byte == 0),
        "{place}: what is new reads as zeroes"
    );
    let lost = whole.status().lost_slots;
    assert!(lost.is_empty(), "{place}: all are complete, but {lost:?}");
    drop(whole);
    for missing in 0..devices.len() {
        let mut fewer = devices.to_vec();
        fewer.remove(missing);
        let degraded = plain(&fewer, true)
            .unwrap_or_else(|error| panic!("{place}, without {missing}: {error}"));
        assert!(read_all(&degraded) == all, "{place}, without {missing}");
    }
}

/// One request after the other, until the reshape has ended.
async fn work<D: Device + Clone>(
    moving: &Reshaping<D, Still>,
    content: &mut [u8],
    torn: &mut Vec<u64>,
    seed: u64,
) {
    let size = moving.size_bytes();
    let mut round = seed;
    while !moving.has_ended() && !moving.has_failed() && round < seed + 400 {
        round += 1;
        let at = round * 7919 % (size / 512 - 3) * 512;
        let data: Vec<u8> = (0..3)
            .flat_map(|part| pattern(at + part * 512, round))
            .collect();
        let buf = pool().copy_of(&data).freeze();
        let place = at as usize;
        if moving.write(at, buf, Fua::Yes).await.is_ok() {
            content[place..place + 1536].copy_from_slice(&data);
            torn.retain(|sector| !(at..at + 1536).contains(sector));
        } else {
            torn.extend((0..3).map(|part| at + part * 512));
        }
        let from = round * 104_729 % (size / 512 - 9) * 512;
        let is_torn = torn.iter().any(|at| (from..from + 4096).contains(at));
        if let (Ok(read), false) = (moving.read(from, 4096).await, is_torn) {
            let from = from as usize;
            assert!(
                read.to_vec() == content[from..from + 4096],
                "round {round}, byte {from}"
            );
        }
    }
}

#[test]
fn an_array_is_reshaped_while_clients_read_and_write() {
    for case in CASES {
        let (devices, mut content) = filled(&case);
        let plan = planned(&devices, &case);
        let beginning = Beginning::of(&plan);
        let left = Rc::new(Cell::new(usize::MAX));
        let slow = |memory: &Memory| Cut {
            memory: memory.clone(),
            left: Rc::clone(&left),
            goes_at: 0,
        };
        let slow: Vec<Cut> = devices.iter().map(slow).collect();
        let moving = reshaping(&slow, beginning.as_ref())
            .unwrap_or_else(|error| panic!("{case:?}: {error}"));
        assert_eq!(moving.size_bytes(), plan.before_bytes.min(plan.after_bytes));
        let kept = moving.size_bytes() as usize;
        run(join(moving.run(), async {
            work(&moving, &mut content[..kept], &mut Vec::new(), 0).await;
            moving.ended().await;
            assert!(moving.has_ended(), "{case:?}");
            moving.stop().await.unwrap();
        }));
        drop(moving);
        relabelled(&devices, &plan);
        let end = plain(&devices, false).unwrap_or_else(|error| panic!("{case:?}: {error}"));
        assert!(
            end.status().lost_slots.is_empty(),
            "{case:?}: all are complete"
        );
        drop(end);
        check(&devices, &plan, &content[..kept], &format!("{case:?}"));
    }
}

/// Whether the freshest superblock says that a reshape is under way.
fn is_half(devices: &[Memory]) -> bool {
    let examined = devices
        .iter()
        .enumerate()
        .map(|(index, device)| run(examine(device, &pool(), index, "m")).unwrap());
    let newest = examined
        .max_by_key(|member| member.superblock.events.0)
        .unwrap();
    newest.superblock.reshape.is_some()
}

/// What was answered, and sectors of which nobody knows which write is there.
struct Known {
    content: Vec<u8>,
    torn: Vec<u64>,
}

/// A reshape, begun or gone on with, until the power fails or it has ended. Says whether it came to its end. `lost`:
/// this member goes when so many sectors are left.
fn run_until(
    devices: &[Memory],
    beginning: Option<&Beginning>,
    known: &mut Known,
    sectors: usize,
    lost: Option<(usize, usize)>,
) -> bool {
    let left = Rc::new(Cell::new(sectors));
    let cut = |(index, memory): (usize, &Memory)| Cut {
        memory: memory.clone(),
        left: Rc::clone(&left),
        goes_at: lost
            .filter(|(member, _)| *member == index)
            .map_or(0, |(_, at)| at),
    };
    let cut: Vec<Cut> = devices.iter().enumerate().map(cut).collect();
    let moving = match reshaping(&cut, beginning) {
        Ok(moving) => moving,
        Err(OpenError::Io { .. }) => return false, // the power failed before
        Err(error) => panic!("{error}"),
    };
    run(async {
        let kept = moving.size_bytes() as usize;
        join(
            Box::pin(moving.run()),
            Box::pin(async {
                work(
                    &moving,
                    &mut known.content[..kept],
                    &mut known.torn,
                    sectors as u64 % 1000,
                )
                .await;
                moving.ended().await;
                let has_stopped = moving.stop().await.is_ok();
                has_stopped && moving.has_ended() && left.get() > 0
            }),
        )
        .await
        .1
    })
}

/// Before anything goes on, everything that was answered is there; what is torn is taken as it is.
fn look(devices: &[Memory], known: &mut Known, place: &str) {
    let read = match is_half(devices) {
        true => {
            let moving =
                reshaping(devices, None).unwrap_or_else(|error| panic!("{place}: {error}"));
            let kept = moving.size_bytes() as usize;
            let read = run(moving.read(0, kept)).unwrap_or_else(|error| panic!("{place}: {error}"));
            read.to_vec()
        }
        false => {
            let mut whole =
                read_all(&plain(devices, true).unwrap_or_else(|error| panic!("{place}: {error}")));
            whole.truncate(known.content.len());
            whole
        }
    };
    for at in &known.torn {
        let at = *at as usize;
        if at + 512 <= read.len() {
            known.content[at..at + 512].copy_from_slice(&read[at..at + 512]);
        }
    }
    known.torn.clear();
    let same = read
        .iter()
        .zip(&known.content)
        .take_while(|(a, b)| a == b)
        .count();
    assert_eq!(
        same,
        read.len().min(known.content.len()),
        "{place}: {}",
        is_half(devices)
    );
}

fn copies(images: &[Vec<u8>]) -> Vec<Memory> {
    images
        .iter()
        .map(|image| Memory::new(image.clone()))
        .collect()
}

fn images(devices: &[Memory]) -> Vec<Vec<u8>> {
    devices
        .iter()
        .map(|device| device.bytes.borrow().clone())
        .collect()
}

/// The rest of the way, without any mishap; a reshape that never began is begun.
fn carry_on(devices: &[Memory], plan: &Plan, known: &Known, place: &str) {
    let whole = plain(devices, true);
    let is_done = whole.is_ok_and(|whole| {
        whole.geometry().member_count() != usize::from(plan.before.member_count)
            || whole.geometry().organisation() != plan.before.organisation
    });
    if !is_done {
        let beginning = Beginning::of(plan).filter(|_| !is_half(devices));
        if beginning.is_some() {
            // It begins on what was stopped cleanly.
            stopped(&plain(devices, true).unwrap_or_else(|error| panic!("{place}: {error}")));
        }
        let moving = reshaping(devices, beginning.as_ref())
            .unwrap_or_else(|error| panic!("{place}: {error}"));
        run(join(moving.run(), async {
            moving.ended().await;
            assert!(moving.has_ended(), "{place}");
            moving.stop().await.unwrap();
        }));
    }
    let kept = (plan.before_bytes.min(plan.after_bytes) as usize).min(known.content.len());
    if !is_half(devices) {
        // Whatever was in doubt is made right before anybody is missing.
        let volume = plain(devices, true).unwrap();
        run(join(volume.run_background(), async {
            volume.resynced().await;
            volume.stop().await.unwrap();
        }));
    }
    relabelled(devices, plan);
    check(devices, plan, &known.content[..kept], place);
}

#[test]
fn a_reshape_goes_on_after_a_crash_at_any_write() {
    for case in CASES {
        STEP_BYTES.set(1);
        crash_at_any_write(&case);
    }
}

#[test]
fn a_reshape_that_takes_all_the_room_there_is_goes_on_after_a_crash_at_any_write() {
    for case in CASES {
        STEP_BYTES.set(1 << 40);
        crash_at_any_write(&case);
    }
}

fn crash_at_any_write(case: &Case) {
    let (devices, content) = filled(case);
    let plan = planned(&devices, case);
    let beginning = Beginning::of(&plan);
    let first = images(&devices);
    let mut sectors = 1;
    loop {
        let devices = copies(&first);
        let kept = plan.before_bytes.min(plan.after_bytes) as usize;
        let mut known = Known {
            content: content[..kept].to_vec(),
            torn: Vec::new(),
        };
        let place = format!("{case:?}, cut after {sectors} sectors");
        let has_ended = run_until(&devices, beginning.as_ref(), &mut known, sectors, None);
        look(&devices, &mut known, &place);
        carry_on(&devices, &plan, &known, &place);
        if has_ended {
            break;
        }
        sectors += 1 + sectors / 8;
    }
}

/// Sectors that one whole reshape writes.
fn sectors_of(case: &Case) -> usize {
    let (devices, content) = filled(case);
    let plan = planned(&devices, case);
    let kept = plan.before_bytes.min(plan.after_bytes) as usize;
    let mut known = Known {
        content: content[..kept].to_vec(),
        torn: Vec::new(),
    };
    let beginning = Beginning::of(&plan);
    let left = usize::MAX / 2;
    assert!(run_until(
        &devices,
        beginning.as_ref(),
        &mut known,
        left,
        None
    ));
    devices
        .iter()
        .map(|device| device.writes.get() as usize)
        .sum::<usize>()
        * 8
}

#[test]
fn a_reshape_goes_on_without_a_member_that_is_lost_on_the_way_and_after_a_crash_behind_that() {
    for case in CASES {
        let (devices, content) = filled(&case);
        let plan = planned(&devices, &case);
        let beginning = Beginning::of(&plan);
        let first = images(&devices);
        let all = sectors_of(&case);
        for (round, lost_after) in (1..all).step_by(all / 9).enumerate() {
            for crash_after in [None, Some(lost_after + 40), Some(lost_after + 700)] {
                let lost = round % devices.len();
                let devices = copies(&first);
                let kept = plan.before_bytes.min(plan.after_bytes) as usize;
                let mut known = Known {
                    content: content[..kept].to_vec(),
                    torn: Vec::new(),
                };
                let total = crash_after.unwrap_or(usize::MAX / 2);
                let place = format!(
                    "{case:?}, {lost} lost after {lost_after} sectors, crash after {crash_after:?}"
                );
                let goes_at = total - lost_after;
                run_until(
                    &devices,
                    beginning.as_ref(),
                    &mut known,
                    total,
                    Some((lost, goes_at)),
                );
                let mut rest = devices.clone();
                rest.remove(lost);
                // Dirty and degraded in a crash is what the user is asked about, as ever.
                let is_refused =
                    |error: &OpenError| error.to_string().contains("not stopped cleanly");
                let refused = match is_half(&rest) {
                    true => reshaping(&rest, None).err(),
                    false => plain(&rest, true).err(),
                };
                if let Some(error) = refused {
                    assert!(
                        is_refused(&error) && crash_after.is_some(),
                        "{place}: {error}"
                    );
                    continue;
                }
                look(&rest, &mut known, &place);
                if is_half(&rest) {
                    let moving = reshaping(&rest, None).unwrap();
                    run(join(moving.run(), async {
                        moving.ended().await;
                        assert!(moving.has_ended(), "{place}");
                        moving.stop().await.unwrap();
                    }));
                }
                let end = plain(&rest, true).unwrap_or_else(|error| panic!("{place}: {error}"));
                let read = read_all(&end);
                let same = read
                    .iter()
                    .zip(&known.content)
                    .take_while(|(a, b)| a == b)
                    .count();
                assert_eq!(same, kept.min(read.len()), "{place}");
            }
        }
    }
}

/// W4: what no geometry survives is written nowhere, and with everybody back it goes on.
#[test]
fn a_reshape_that_has_lost_too_many_stops_and_goes_on_when_they_are_back() {
    for case in CASES {
        let (devices, content) = filled(&case);
        let plan = planned(&devices, &case);
        let beginning = Beginning::of(&plan);
        let first = images(&devices);
        let all = sectors_of(&case);
        for lost_after in (100..all).step_by(all / 5) {
            let devices = copies(&first);
            let kept = plan.before_bytes.min(plan.after_bytes) as usize;
            let mut known = Known {
                content: content[..kept].to_vec(),
                torn: Vec::new(),
            };
            let place = format!("{case:?}, three lost after {lost_after} sectors");
            let left = Rc::new(Cell::new(usize::MAX / 2));
            let goes_at = usize::MAX / 2 - lost_after;
            let cut = |(index, memory): (usize, &Memory)| Cut {
                memory: memory.clone(),
                left: Rc::clone(&left),
                goes_at: if index < 3 { goes_at } else { 0 },
            };
            let cut: Vec<Cut> = devices.iter().enumerate().map(cut).collect();
            let moving = reshaping(&cut, beginning.as_ref()).unwrap();
            run(join(
                Box::pin(moving.run()),
                Box::pin(async {
                    work(&moving, &mut known.content[..kept], &mut known.torn, 0).await;
                    moving.ended().await;
                    let _ = moving.stop().await;
                }),
            ));
            if moving.has_ended() {
                continue;
            }
            assert!(moving.has_failed() && moving.after().is_frozen(), "{place}");
            drop(moving);
            look(&devices, &mut known, &place);
            carry_on(&devices, &plan, &known, &place);
        }
    }
}
