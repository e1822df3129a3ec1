//! What tests of reshapes are made of: an array of md with content, a power that fails, and a look at what is left.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Memory, Still, named, run};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::join;
use plexum_engine::volume::{Volume, VolumeOptions};
use plexum_format::md::MdVersion;
use plexum_layout::{Level, Organisation, Raid5Layout};
use plexum_md::assemble::{Examined, Options};
use plexum_md::create::{NewArray, Start, plan as plan_new, write_new};
use plexum_md::open::{OpenError, OpenRequest, examine, open_volume};
use plexum_md::reshape::{
    Alteration, Beginning, LogNow, Plan, Reshaping, Wish, open_reshaping, plan, situation,
};

pub(crate) const DEVICE_BYTES: u64 = 3 << 20;
pub(crate) const STRIP_BYTES: u64 = 4096;
pub(crate) const MEMBER_BYTES: u64 = 24 * STRIP_BYTES;

thread_local! {
    /// Volume bytes that are moved before the position follows: a unit at a time, or all that there is room for (R3).
    pub(crate) static STEP_BYTES: Cell<u64> = const { Cell::new(1) };
}

/// A device whose sectors are written until the power fails; one of them may be gone before.
#[derive(Clone)]
pub(crate) struct Cut {
    pub(crate) memory: Memory,
    pub(crate) left: Rc<Cell<usize>>,
    /// Sectors that may be left when this one goes.
    pub(crate) goes_at: usize,
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
pub(crate) struct Case {
    pub(crate) organisation: Organisation,
    pub(crate) members: u16,
    pub(crate) added: u16,
    pub(crate) wish: (
        Option<u16>,
        Option<Level>,
        Option<&'static str>,
        Option<u64>,
    ),
    pub(crate) has_bitmap: bool,
}

pub(crate) const LEFT_SYMMETRIC: Organisation = Organisation::Raid5(Raid5Layout::LeftSymmetric);

pub(crate) const fn grown(
    organisation: Organisation,
    members: u16,
    added: u16,
    has_bitmap: bool,
) -> Case {
    Case {
        organisation,
        members,
        added,
        wish: (Some(members + added), None, None, None),
        has_bitmap,
    }
}

pub(crate) fn wish(case: &Case) -> Wish {
    let (member_count, level, layout, strip_bytes) = case.wish;
    Wish {
        member_count,
        level,
        layout: layout.map(str::to_owned),
        strip_bytes,
    }
}

pub(crate) fn new_array(case: &Case) -> Vec<Memory> {
    let count = usize::from(case.members + case.added);
    let new = NewArray {
        version: MdVersion::V12,
        organisation: case.organisation,
        strip_bytes: match case.organisation {
            Organisation::Raid1 => 0,
            _ => STRIP_BYTES,
        },
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

pub(crate) fn pool() -> BufPool {
    BufPool::new(1 << 20)
}

pub(crate) fn request(run_degraded: bool) -> OpenRequest {
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

pub(crate) fn plain<D: Device + Clone>(
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

pub(crate) fn reshaping<D: Device + Clone>(
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

/// What is on the members.
pub(crate) fn examined<D: Device>(devices: &[D]) -> Vec<Examined> {
    let each = devices.iter().enumerate();
    let read =
        |(index, device)| run(examine(device, &pool(), index, &format!("m{index}"))).unwrap();
    each.map(read).collect()
}

pub(crate) fn planned<D: Device>(devices: &[D], case: &Case) -> Plan {
    let examined = examined(devices);
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

pub(crate) fn pattern(at: u64, seed: u64) -> Vec<u8> {
    (0..512_u64)
        .map(|byte| (at / 512 * 31 + byte * 7 + seed * 101) as u8)
        .collect()
}

/// An array with content.
pub(crate) fn filled(case: &Case) -> (Vec<Memory>, Vec<u8>) {
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

pub(crate) fn stopped<D: Device>(volume: &Volume<D, Still>) {
    run(join(volume.run_background(), async {
        volume.stop().await.unwrap()
    }));
}

pub(crate) fn read_all<D: Device>(volume: &Volume<D, Still>) -> Vec<u8> {
    run(volume.read(0, volume.size_bytes() as usize))
        .unwrap()
        .to_vec()
}

/// What is left of the way when all has moved.
pub(crate) fn relabelled(devices: &[Memory], plan: &Plan) {
    let Some(last) = &plan.last else { return };
    let mut asked = request(false);
    asked.alteration = Some(Alteration::Relabel(last.clone()));
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
pub(crate) fn check(devices: &[Memory], plan: &Plan, content: &[u8], place: &str) {
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
pub(crate) async fn work<D: Device + Clone>(
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

/// Whether the freshest superblock says that a reshape is under way.
pub(crate) fn is_half(devices: &[Memory]) -> bool {
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
pub(crate) struct Known {
    pub(crate) content: Vec<u8>,
    pub(crate) torn: Vec<u64>,
}

/// A reshape, begun or gone on with, until the power fails or it has ended. Says whether it came to its end. `lost`:
/// this member goes when so many sectors are left.
pub(crate) fn run_until(
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
pub(crate) fn look(devices: &[Memory], known: &mut Known, place: &str) {
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

pub(crate) fn copies(images: &[Vec<u8>]) -> Vec<Memory> {
    images
        .iter()
        .map(|image| Memory::new(image.clone()))
        .collect()
}

pub(crate) fn images(devices: &[Memory]) -> Vec<Vec<u8>> {
    devices
        .iter()
        .map(|device| device.bytes.borrow().clone())
        .collect()
}

/// Until all has moved, without any mishap.
pub(crate) fn to_its_end<D: Device + Clone>(moving: &Reshaping<D, Still>, place: &str) {
    run(join(moving.run(), async {
        moving.ended().await;
        assert!(moving.has_ended(), "{place}");
        moving.stop().await.unwrap();
    }));
}

/// The rest of the way, without any mishap; a reshape that never began is begun.
pub(crate) fn carry_on(devices: &[Memory], plan: &Plan, known: &Known, place: &str) {
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
        to_its_end(&moving, place);
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
