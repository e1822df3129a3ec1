//! FreeBSD's formats written to through the engine: what is durable when a write is answered, what a crash leaves, who
//! comes back and how.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Memory, Still, run};
use plexum_block::boxed::BoxedDevice;
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::{join, join_all};
use plexum_engine::upkeep::Pace;
use plexum_engine::volume::{ControlError, NewMember, Volume, VolumeOptions};
use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};
use plexum_format::vinum::{
    CONFIG_OFFSETS_BYTES, Config, DriveHeader, HEADER_OFFSET_BYTES, Mark, SubdiskState,
};
use plexum_freebsd::gmirror::{Assembled, MirrorRequest, open_mirror};
use plexum_freebsd::gvinum::{
    OpenedSystem, OpenedVolume, SystemRequest, assemble, open_system, read_drive,
};
use plexum_freebsd::labels::ForeignError;
use plexum_testkit::{freebsd_cases, unpack_freebsd_case};

const SIZE: usize = 1 << 20;

fn pool() -> BufPool {
    BufPool::new(1 << 22)
}

/// A device whose reads or writes can be made to fail.
#[derive(Clone)]
struct Flaky {
    memory: Memory,
    fails_reads: Rc<Cell<bool>>,
    fails_writes: Rc<Cell<bool>>,
}

impl Flaky {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            memory: Memory::new(bytes),
            fails_reads: Rc::default(),
            fails_writes: Rc::default(),
        }
    }
}

impl Device for Flaky {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        crate::common::yield_once().await; // so that several are under way
        if self.fails_reads.get() {
            return Err(IoError::Medium);
        }
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        if self.fails_writes.get() {
            return Err(IoError::Medium);
        }
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.memory.flush().await
    }
}

fn label_of(device: &Flaky) -> MirrorLabel {
    let bytes = device.memory.bytes.borrow();
    let size = bytes.len() as u64;
    MirrorLabel::parse(&bytes[bytes.len() - 512..], size - 512, size).unwrap()
}

fn mirror_devices(count: u8, balance: Balance) -> Vec<Flaky> {
    let device = |number: u8| {
        let label = MirrorLabel::create(&NewMirrorLabel {
            name: "g",
            mirror_id: 5,
            component_id: u32::from(number) + 1,
            component_count: count,
            priority: number,
            slice_bytes: 4096,
            balance,
            volume_bytes: SIZE as u64 - 512,
            sector_bytes: 512,
            provider_bytes: SIZE as u64,
        });
        let mut bytes = vec![7; SIZE];
        bytes[SIZE - 512..].copy_from_slice(&label.unwrap().encode());
        Flaky::new(bytes)
    };
    (0..count).map(device).collect()
}

fn open(
    devices: &[Flaky],
    run_degraded: bool,
) -> Result<(Volume<Flaky, Still>, Assembled), ForeignError> {
    let named = devices.iter().enumerate();
    let request = MirrorRequest {
        run_degraded,
        ignores_names: false,
        volume: VolumeOptions::default(),
        balance: None,
        name: None,
    };
    let devices = named
        .map(|(index, device)| (format!("da{index}"), device.clone()))
        .collect();
    run(open_mirror(devices, Still::default(), pool(), request))
}

fn data(byte: u8, length: usize) -> Buf {
    pool().copy_of(&vec![byte; length]).freeze()
}

/// Runs `work` beside the background, then stops the volume.
async fn serve<D: Device>(volume: &Volume<D, Still>, work: impl Future<Output = ()>) {
    join(volume.run_background(), async {
        work.await;
        volume.stop().await.unwrap();
    })
    .await;
}

#[test]
fn labels_follow_writes_losses_and_returns() {
    let devices = mirror_devices(3, Balance::RoundRobin);
    let (volume, _) = open(&devices, false).unwrap();
    run(serve(&volume, async {
        volume.write(0, data(1, 4096), Fua::No).await.unwrap();
        assert!(devices.iter().all(|device| label_of(device).is_dirty), "W1");
        devices[1].memory.is_gone.set(true);
        volume.write(8192, data(2, 4096), Fua::No).await.unwrap();
        // W3: whoever missed the write is behind before the write is answered.
        for number in [0, 2] {
            let label = label_of(&devices[number]);
            assert_eq!(
                (label.sync_id, label.generation_id, label.is_dirty),
                (2, 0, true)
            );
        }
        assert_eq!(label_of(&devices[1]).sync_id, 1);
    }));
    for number in [0, 2] {
        assert!(!label_of(&devices[number]).is_dirty, "a clean stop");
    }
    // It comes back by itself, and is filled: whoever else may be missing gets behind.
    devices[1].memory.is_gone.set(false);
    let (volume, _) = open(&devices, false).unwrap();
    run(serve(&volume, async { volume.rebuilt().await }));
    let first = devices[0].memory.bytes.borrow()[..SIZE - 512].to_vec();
    for device in &devices {
        let label = label_of(device);
        assert_eq!(
            (label.sync_id, label.is_rebuilding, label.is_dirty),
            (3, false, false)
        );
        assert_eq!(device.memory.bytes.borrow()[..SIZE - 512], first);
    }
    assert_eq!((first[0], first[8192]), (1, 2));
}

/// Defect 1 of gmirror: with several reads under way to a failing component, EIO although a good copy exists.
#[test]
fn no_read_fails_while_a_copy_can_be_read() {
    let devices = mirror_devices(2, Balance::RoundRobin);
    let (volume, _) = open(&devices, false).unwrap();
    run(serve(&volume, async {
        devices[1].fails_reads.set(true);
        devices[1].fails_writes.set(true); // so it cannot be mended either
        let reads = (0..8).map(|number| volume.read(number * 4096, 4096));
        for read in join_all(reads).await {
            assert_eq!(read.unwrap().to_vec(), [7; 4096]);
        }
        volume.write(0, data(3, 512), Fua::No).await.unwrap();
    }));
    // An I/O error makes a component broken for good: its generation is old.
    assert_eq!(label_of(&devices[0]).generation_id, 1);
    assert_eq!(label_of(&devices[1]).generation_id, 0);
    devices[1].fails_reads.set(false);
    devices[1].fails_writes.set(false);
    let refused = open(&devices, false).err();
    assert!(
        matches!(refused, Some(ForeignError::Degraded(_))),
        "it is never taken back"
    );
}

/// Defects 2 and 3: a degraded start is not silent, so two halves do not go apart unnoticed.
#[test]
fn a_mirror_starts_without_a_component_only_when_that_is_asked_for() {
    let devices = mirror_devices(2, Balance::Load);
    let refused = open(&devices[..1], false).err();
    let Some(ForeignError::Degraded(text)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(text, "g: 1 of 2 components are here");
    let (volume, _) = open(&devices[..1], true).unwrap();
    run(serve(&volume, async {
        volume.write(0, data(9, 512), Fua::No).await.unwrap();
    }));
    assert_eq!(label_of(&devices[0]).sync_id, 2, "the absent one is behind");
    let (volume, _) = open(&devices, false).unwrap();
    assert_eq!(run(volume.read(0, 512)).unwrap().to_vec(), [9; 512]);
}

#[test]
fn a_crash_leaves_components_dirty_and_the_first_of_the_list_fills_the_others() {
    let devices = mirror_devices(3, Balance::Load);
    let (volume, _) = open(&devices, false).unwrap();
    run(async { volume.write(0, data(1, 512), Fua::No).await.unwrap() });
    drop(volume);
    devices[2].memory.bytes.borrow_mut()[0] = 77; // the highest priority got something else before the power failed
    let (volume, assembled) = open(&devices, false).unwrap();
    assert_eq!(assembled.mirror.unwrap().active_count(), 1);
    assert_eq!(run(volume.read(0, 512)).unwrap().to_vec()[0], 77);
    run(serve(&volume, async { volume.rebuilt().await }));
    for device in &devices {
        assert_eq!(device.memory.bytes.borrow()[0], 77);
        assert!(!label_of(device).is_dirty);
    }
}

fn golden(id: &str) -> (Vec<(String, Rc<Memory>)>, u64) {
    let cases = freebsd_cases("gvinum");
    let case = cases.iter().find(|case| case["id"] == id).unwrap();
    let unpacked = unpack_freebsd_case(id);
    let drives = case["drives"].as_array().unwrap().iter().map(|drive| {
        let file = drive["file"].as_str().unwrap();
        (file.to_owned(), Rc::new(Memory::new(unpacked.read(file))))
    });
    let seeds = case["seeds"].as_object().unwrap();
    let seed = seeds.values().next().unwrap().as_str().unwrap();
    let seed = u64::from_str_radix(seed.trim_start_matches("0x"), 16).unwrap();
    (drives.collect(), seed)
}

fn open_drives(
    drives: &[(String, Rc<Memory>)],
    run_degraded: bool,
) -> Result<OpenedSystem<BoxedDevice, Still>, ForeignError> {
    let request = SystemRequest {
        run_degraded,
        ..SystemRequest::default()
    };
    let boxed =
        |(name, drive): &(String, Rc<Memory>)| (name.clone(), BoxedDevice::new(Rc::clone(drive)));
    run(open_system(
        drives.iter().map(boxed).collect(),
        Still::default(),
        pool(),
        request,
    ))
}

fn only(mut opened: OpenedSystem<BoxedDevice, Still>) -> OpenedVolume<BoxedDevice, Still> {
    assert_eq!(opened.volumes.len(), 1, "{:?}", opened.refused);
    opened.volumes.remove(0)
}

/// As `serve`, with the background of the plexes.
async fn serve_all(opened: &OpenedVolume<BoxedDevice, Still>, work: impl Future<Output = ()>) {
    let plexes = opened
        .plexes
        .iter()
        .map(|plex| plex.volume.run_background());
    join(join_all(plexes), async {
        serve(&opened.volume, work).await;
        for plex in &opened.plexes {
            let ended = plex.volume.stop().await;
            assert!(ended.is_ok() || plex.volume.is_frozen());
        }
    })
    .await;
}

fn header(drive: &Memory) -> DriveHeader {
    let bytes = drive.bytes.borrow();
    let at = usize::try_from(HEADER_OFFSET_BYTES).unwrap();
    DriveHeader::parse(&bytes[at..at + 512], HEADER_OFFSET_BYTES).unwrap()
}

fn config(drive: &Memory) -> Config {
    let bytes = drive.bytes.borrow();
    let copies = CONFIG_OFFSETS_BYTES.map(|at| {
        let at = usize::try_from(at).unwrap();
        Config::parse(&bytes[at..at + 65_536], at as u64).unwrap()
    });
    let [first, second] = copies;
    assert_eq!(first, second, "both copies are the same");
    first
}

fn state(config: &Config, name: &str) -> SubdiskState {
    config
        .subdisks
        .iter()
        .find(|subdisk| subdisk.name == name)
        .unwrap()
        .state
}

fn expect_seed(volume: &OpenedVolume<BoxedDevice, Still>, seed: u64, from: u64) {
    let volume = &volume.volume;
    let mut at = from;
    while at < volume.size_bytes() {
        let length = (volume.size_bytes() - at).min(65_536);
        let content = run(volume.read(at, usize::try_from(length).unwrap()))
            .unwrap()
            .to_vec();
        for (word, bytes) in (at..).step_by(8).zip(content.chunks_exact(8)) {
            assert_eq!(
                u64::from_le_bytes(bytes.try_into().unwrap()),
                word ^ seed,
                "byte {word}"
            );
        }
        at += length;
    }
}

/// Defect 3 of gvinum: a new RAID-5 plex was up without parity, so that every degraded read was wrong.
#[test]
fn parity_that_was_never_made_is_made_before_it_is_relied_on() {
    let (drives, seed) = golden("gv04_raid5_3");
    // Row 0 has its parity on the last subdisk, row 1 on the one before.
    drives[2].1.bytes.borrow_mut()[135_680..135_680 + 8192].fill(0xa5);
    drives[1].1.bytes.borrow_mut()[135_680 + 8192..135_680 + 16_384].fill(0x5a);
    let opened = only(open_drives(&drives, false).unwrap());
    run(serve_all(&opened, async { opened.volume.resynced().await }));
    for (_, drive) in &drives {
        assert_eq!(header(drive).mark, Mark::Settled);
    }
    drop(opened);
    for missing in 0..3 {
        let mut fewer = drives.clone();
        fewer.remove(missing);
        let opened = only(open_drives(&fewer, true).unwrap());
        expect_seed(&opened, seed, 0);
    }
}

#[test]
fn a_drive_that_was_lost_is_recorded_before_the_answer_and_revived_when_it_is_back() {
    let (drives, seed) = golden("gv04_raid5_3");
    let opened = only(open_drives(&drives, false).unwrap());
    run(serve_all(&opened, async {
        opened.volume.resynced().await;
        drives[1].1.is_gone.set(true);
        opened
            .volume
            .write(0, data(4, 8192), Fua::No)
            .await
            .unwrap();
        for number in [0, 2] {
            let saved = config(&drives[number].1);
            assert_eq!(state(&saved, "r5.p0.s1"), SubdiskState::Down, "W3");
            assert_eq!(header(&drives[number].1).mark, Mark::Writing);
        }
    }));
    drop(opened);
    assert!(header(&drives[0].1).updated > header(&drives[1].1).updated);
    drives[1].1.is_gone.set(false);
    // In both orders it is stale, and revived.
    let mut reversed = drives.clone();
    reversed.reverse();
    let found: Vec<_> = reversed
        .iter()
        .enumerate()
        .map(|(index, (name, drive))| run(read_drive(&**drive, &pool(), index, name)).unwrap())
        .collect();
    assert_eq!(
        state(&assemble(&found).unwrap().config, "r5.p0.s1"),
        SubdiskState::Stale
    );
    let opened = only(open_drives(&drives, false).unwrap());
    run(serve_all(&opened, async { opened.volume.rebuilt().await }));
    drop(opened);
    for (_, drive) in &drives {
        assert_eq!(state(&config(drive), "r5.p0.s1"), SubdiskState::Up);
    }
    for missing in 0..3 {
        let mut fewer = drives.clone();
        fewer.remove(missing);
        let opened = only(open_drives(&fewer, true).unwrap());
        assert_eq!(
            run(opened.volume.read(0, 8192)).unwrap().to_vec(),
            [4; 8192]
        );
        expect_seed(&opened, seed, 8192);
    }
}

/// Defects 1 and 9 of gvinum: a stale copy came up, and errors were neither retried nor recorded.
#[test]
fn a_plex_that_missed_writes_is_filled_and_never_read_before() {
    let (drives, seed) = golden("gv03_mirror");
    let opened = only(open_drives(&drives, false).unwrap());
    run(serve_all(&opened, async {
        drives[0].1.is_gone.set(true);
        opened
            .volume
            .write(0, data(6, 4096), Fua::No)
            .await
            .unwrap();
        let saved = config(&drives[1].1);
        assert_eq!(state(&saved, "mir.p0.s0"), SubdiskState::Down, "W3");
        assert_eq!(state(&saved, "mir.p1.s0"), SubdiskState::Up);
        for _ in 0..4 {
            let read = opened.volume.read(0, 4096).await.unwrap().to_vec();
            assert_eq!(read, [6; 4096]);
        }
    }));
    drop(opened);
    drives[0].1.is_gone.set(false);
    assert_ne!(
        drives[0].1.bytes.borrow()[135_680],
        6,
        "the first drive has missed it"
    );
    let opened = only(open_drives(&drives, false).unwrap());
    run(serve_all(&opened, async {
        let read = opened.volume.read(0, 4096).await.unwrap().to_vec();
        assert_eq!(read, [6; 4096]);
        opened.volume.rebuilt().await;
    }));
    drop(opened);
    for (_, drive) in &drives {
        assert_eq!(state(&config(drive), "mir.p0.s0"), SubdiskState::Up);
        assert_eq!(header(drive).mark, Mark::Settled);
    }
    for missing in [0, 1] {
        let mut fewer = drives.clone();
        fewer.remove(missing);
        let opened = only(open_drives(&fewer, true).unwrap());
        assert_eq!(
            run(opened.volume.read(0, 4096)).unwrap().to_vec(),
            [6; 4096]
        );
        expect_seed(&opened, seed, 4096);
    }
}

#[test]
fn after_a_crash_copies_are_made_equal_before_they_are_read() {
    let (drives, _) = golden("gv03_mirror");
    let opened = only(open_drives(&drives, false).unwrap());
    run(async {
        opened
            .volume
            .write(0, data(1, 4096), Fua::No)
            .await
            .unwrap()
    });
    drop(opened);
    assert_eq!(header(&drives[0].1).mark, Mark::Writing);
    drives[1].1.bytes.borrow_mut()[135_680..135_680 + 512].fill(99); // only one had got the last write
    let opened = only(open_drives(&drives, false).unwrap());
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(run(opened.volume.read(0, 512)).unwrap().to_vec());
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "W6");
    assert_eq!(
        drives[0].1.bytes.borrow()[135_680],
        drives[1].1.bytes.borrow()[135_680]
    );
}

/// Defect 6: a plex that was being grown was taken as grown.
#[test]
fn a_half_grown_plex_is_refused() {
    let (drives, _) = golden("gv02_striped");
    for (_, drive) in &drives {
        let text = config(drive)
            .to_string()
            .replace("vol str state up", "vol str state growable");
        for at in CONFIG_OFFSETS_BYTES {
            let at = usize::try_from(at).unwrap();
            let mut bytes = drive.bytes.borrow_mut();
            bytes[at..at + 65_536].fill(0);
            bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
    }
    let opened = open_drives(&drives, false).unwrap();
    assert!(opened.volumes.is_empty());
    assert!(opened.refused[0].1.to_string().contains("being grown"));
}

#[test]
fn a_drive_that_is_missing_is_missed_before_anything_is_written() {
    let (drives, _) = golden("gv03_mirror");
    let opened = open_drives(&drives[1..], false).unwrap();
    assert!(matches!(opened.refused[0].1, ForeignError::Degraded(_)));
    assert_eq!(open_drives(&drives[1..], true).unwrap().volumes.len(), 1);
}

/// A mirror with a component that failed, or was taken out, gets a new one: labels of all of them on the way.
#[test]
fn a_new_component_is_inserted_filled_and_told_of_on_every_label() {
    let devices = mirror_devices(2, Balance::RoundRobin);
    let (volume, _) = open(&devices, false).unwrap();
    assert_eq!(volume.status().format, "gmirror");
    let blank = |bytes: usize| Flaky::new(vec![0; bytes]);
    let add = |device: &Flaky| NewMember {
        name: "new".to_owned(),
        device: device.clone(),
        identity: [1; 16], // the number 0x01010101
        is_write_mostly: false,
        former: None,
    };
    let new = blank(SIZE);
    run(serve(&volume, async {
        volume.write(0, data(1, 65_536), Fua::No).await.unwrap();
        let members = volume.status().members;
        let member = members
            .iter()
            .find(|member| member.name.as_deref() == Some("da1"))
            .unwrap();
        volume.fail(member.id).await.unwrap();
        // Too small, and forgotten: the next one takes its number.
        for _ in 0..2 {
            let small = volume.add(add(&blank(SIZE / 2)), false).await;
            assert!(matches!(small, Err(ControlError::Unfit(_))), "{small:?}");
        }
        volume.add(add(&new), false).await.unwrap();
        while !volume.status().lost_slots.is_empty() {
            crate::common::yield_once().await;
        }
        volume.write(65_536, data(2, 4096), Fua::No).await.unwrap();
    }));
    let (first, label) = (label_of(&devices[0]), label_of(&new));
    assert_eq!(label.component_id, 0x0101_0101);
    assert_eq!((label.component_count, first.component_count), (2, 2));
    assert_eq!(
        (label.sync_id, label.generation_id),
        (first.sync_id, first.generation_id)
    );
    assert!(!label.is_rebuilding && !label.is_dirty && !first.is_dirty);
    let content = |device: &Flaky| device.memory.bytes.borrow()[..SIZE - 512].to_vec();
    assert!(content(&devices[0]) == content(&new));
    // Both are the mirror now; the one that was failed is not.
    let (volume, _) = open(&[devices[0].clone(), new.clone()], false).unwrap();
    assert!(volume.status().lost_slots.is_empty());
}

#[test]
fn how_far_a_component_is_filled_is_on_its_label() {
    let devices = mirror_devices(2, Balance::RoundRobin);
    let (volume, _) = open(&devices, false).unwrap();
    run(serve(&volume, async {
        volume.write(0, data(1, 4096), Fua::No).await.unwrap();
        devices[1].memory.is_gone.set(true);
        volume.write(8192, data(2, 4096), Fua::No).await.unwrap();
    }));
    devices[1].memory.is_gone.set(false);
    let (volume, _) = open(&devices, false).unwrap();
    volume.set_pace(Pace {
        ceiling_bytes_per_s: SIZE as u64 / 30,
        ..Pace::default()
    });
    let mut seen = Vec::new();
    run(serve(&volume, async {
        for _ in 0..600 {
            crate::common::yield_once().await;
            let label = label_of(&devices[1]);
            if label.is_rebuilding && seen.last() != Some(&label.sync_offset_bytes) {
                seen.push(label.sync_offset_bytes);
            }
        }
    }));
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(seen.iter().all(|at| *at < SIZE as u64), "{seen:?}");
}
