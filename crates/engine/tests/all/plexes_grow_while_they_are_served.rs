//! Striped and RAID-5 plexes get a subdisk more while they are served, whatever write is the last one before a crash.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::vinum::{drive, drives, only, open, pool, save, serve, system};
use crate::common::{Memory, run};
use plexum_block::buf::{Buf, BufMut};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::join;
use plexum_engine::volume::{JobKind, VolumeOptions};
use plexum_format::vinum::{Config, DATA_OFFSET_BYTES, DriveHeader, Mark, PlexState};
use plexum_freebsd::gvinum::{Drive, SystemRequest, edit, volume_bytes};

const SIZE: usize = 135_680 + 64 * 1024;

/// A device whose sectors are written until the power fails.
struct Cut {
    memory: Memory,
    left: Rc<Cell<usize>>,
}

impl Device for Cut {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        crate::common::yield_once().await;
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        crate::common::yield_once().await;
        let sectors = data.len() / 512;
        let done = sectors.min(self.left.get());
        self.left.set(self.left.get() - done);
        let part = data.slice(0..done * 512);
        self.memory.write(offset_bytes, part, fua).await?;
        if done < sectors {
            return Err(IoError::Gone);
        }
        Ok(())
    }
    async fn flush(&self) -> Result<(), IoError> {
        match self.left.get() {
            0 => Err(IoError::Gone),
            _ => self.memory.flush().await,
        }
    }
}

fn text(organisation: &str, count: usize) -> String {
    let names = ["a", "b", "c", "d"];
    let mut text = String::new();
    for name in &names[..count] {
        text += &format!("drive {name} device /dev/{name}\n");
    }
    text += &format!("volume v\nplex org {organisation}\n");
    for name in &names[..count] {
        text += &format!("sd length 64k drive {name}\n");
    }
    text
}

fn strip_bytes(organisation: &str) -> usize {
    match organisation.ends_with("1536") {
        true => 1536,
        false => 1024,
    }
}

fn pattern(at: u64, seed: u64) -> Vec<u8> {
    (0..512_u64)
        .map(|byte| (at / 512 * 31 + byte * 7 + seed * 101) as u8)
        .collect()
}

fn expected(bytes: u64) -> Vec<u8> {
    (0..bytes)
        .step_by(512)
        .flat_map(|at| pattern(at, 0))
        .collect()
}

/// Drives with content whose plex is to grow onto the last of them.
fn growing(organisation: &str, count: usize) -> (Vec<Memory>, Vec<u8>) {
    let mut drives = drives(&text(organisation, count), SIZE);
    let opened = only(open(drives.clone(), SystemRequest::default()));
    let content = expected(opened.volume.size_bytes());
    run(serve(&opened, async {
        let data = pool().copy_of(&content).freeze();
        opened.volume.write(0, data, Fua::No).await.unwrap();
    }));
    drop(opened);
    let mut system = system(&drives);
    let header = DriveHeader::create("host", "new", (1000, 0)).unwrap();
    drives.push(drive("new", &Config::default(), SIZE));
    system.drives.push(Drive {
        name: "new".into(),
        key: Some(count),
        device: "new".into(),
        size_bytes: SIZE as u64,
        header: Some(header),
        first_copy: 0,
    });
    edit::grow(&mut system.config, "v.p0", "new", SIZE as u64, None).unwrap();
    assert_eq!(system.config.plexes[0].state, PlexState::Growable);
    save(&system, &drives);
    (drives, content)
}

fn read_all<D: Device>(
    opened: &plexum_freebsd::gvinum::OpenedVolume<D, crate::common::Still>,
) -> Vec<u8> {
    let length = usize::try_from(opened.volume.size_bytes()).unwrap();
    run(opened.volume.read(0, length)).unwrap().to_vec()
}

fn check_grown(drives: &[Memory], content: &[u8], has_parity: bool) {
    let state = system(drives);
    assert_eq!(state.config.plexes[0].growth, None);
    assert_eq!(state.config.plexes[0].state, PlexState::Up);
    let count = drives.len() as u64 - u64::from(has_parity);
    let each = state.config.subdisks[0].length_bytes;
    assert_eq!(volume_bytes(&state.config, "v"), count * each);
    let reading = || SystemRequest {
        run_degraded: true,
        ..SystemRequest::default()
    };
    let whole = read_all(&only(open(drives.to_vec(), reading())));
    assert!(whole[..content.len()] == *content, "the old content");
    for missing in 0..drives.len() {
        let mut fewer = drives.to_vec();
        fewer.remove(missing);
        if has_parity {
            let degraded = read_all(&only(open(fewer, reading())));
            assert!(degraded == whole, "without drive {missing}");
        }
    }
}

const PLEXES: [(&str, usize); 4] = [
    ("striped 1k", 2),
    ("striped 1536", 3),
    ("raid5 1k", 3),
    ("raid5 1536", 4),
];

#[test]
fn a_plex_grows_while_clients_read_and_write() {
    for (organisation, count) in PLEXES {
        let (drives, mut content) = growing(organisation, count);
        let slow = |memory: &Memory| Cut {
            memory: memory.clone(),
            left: Rc::new(Cell::new(usize::MAX)),
        };
        let opened = only(open(
            drives.iter().map(slow).collect(),
            SystemRequest::default(),
        ));
        assert_eq!(
            opened.volume.size_bytes(),
            content.len() as u64,
            "the old size"
        );
        let volume = &opened.volume;
        run(serve(&opened, async {
            for round in 0..200_u64 {
                let at = round * 7919 % (content.len() as u64 / 512 - 3) * 512;
                let data: Vec<u8> = (0..3)
                    .flat_map(|part| pattern(at + part * 512, round))
                    .collect();
                let place = usize::try_from(at).unwrap();
                content[place..place + 1536].copy_from_slice(&data);
                volume
                    .write(at, pool().copy_of(&data).freeze(), Fua::No)
                    .await
                    .unwrap();
                let from = round * 104_729 % (content.len() as u64 / 512 - 9) * 512;
                let read = volume.read(from, 4096).await;
                let place = format!("{organisation}, round {round}, byte {from}");
                let read = read.unwrap_or_else(|error| panic!("{place}: {error}"));
                let read = read.to_vec();
                let from = usize::try_from(from).unwrap();
                assert!(
                    read == content[from..from + 4096],
                    "{organisation}, round {round}"
                );
            }
            opened.growing.as_ref().unwrap().ended().await;
        }));
        drop(opened);
        check_grown(&drives, &content, organisation.contains("raid5"));
    }
}

/// One growth until the power fails after so many sectors; what was answered is in `content`. Whether it came to its
/// end.
fn grow_until(drives: &[Memory], content: &mut [u8], torn: &mut Vec<u64>, sectors: usize) -> bool {
    let left = Rc::new(Cell::new(sectors));
    let cut = |memory: &Memory| Cut {
        memory: memory.clone(),
        left: Rc::clone(&left),
    };
    let opened = only(open(
        drives.iter().map(cut).collect(),
        SystemRequest::default(),
    ));
    let growing = opened.growing.as_ref().unwrap();
    run(async {
        join(growing.run(), async {
            for round in 0..40_u64 {
                let at = (round * 7919 + sectors as u64) % (content.len() as u64 / 512) * 512;
                let data = pattern(at, round + sectors as u64);
                let place = usize::try_from(at).unwrap();
                let buf = pool().copy_of(&data).freeze();
                if opened.volume.write(at, buf, Fua::Yes).await.is_ok() {
                    content[place..place + 512].copy_from_slice(&data);
                } else {
                    torn.push(at);
                }
            }
        })
        .await;
        left.get() > 0 && opened.volume.stop().await.is_ok() && growing.stop().await.is_ok()
    })
}

#[test]
fn a_growth_goes_on_after_a_crash_at_any_write() {
    for (organisation, count) in PLEXES {
        let (first, first_content) = growing(organisation, count);
        let images: Vec<Vec<u8>> = first
            .iter()
            .map(|drive| drive.bytes.borrow().clone())
            .collect();
        let mut sectors = 1;
        loop {
            let drives: Vec<Memory> = images
                .iter()
                .map(|image| Memory::new(image.clone()))
                .collect();
            let mut content = first_content.clone();
            let mut torn = Vec::new();
            let has_ended = grow_until(&drives, &mut content, &mut torn, sectors);
            let place = format!("{organisation}, cut after {sectors} sectors");
            // Before it goes on, everything that was answered is there.
            let opened = only(open(drives.clone(), SystemRequest::default()));
            run(serve(&opened, async {
                let length = content.len();
                let read = opened.volume.read(0, length).await.unwrap().to_vec();
                for at in &torn {
                    let at = usize::try_from(*at).unwrap();
                    content[at..at + 512].copy_from_slice(&read[at..at + 512]);
                }
                let same = read
                    .iter()
                    .zip(&content)
                    .take_while(|(a, b)| a == b)
                    .count();
                assert_eq!(same, length, "{place}");
                if let Some(growing) = &opened.growing {
                    growing.ended().await;
                }
            }));
            drop(opened);
            check_grown(&drives, &content, organisation.contains("raid5"));
            if has_ended {
                break;
            }
            sectors += 1 + sectors / 8; // dense where the first rows are kept and put back
            if sectors % 3 == 0 {
                sectors += 131; // whole configurations lie between two steps
            }
        }
    }
}

#[test]
fn how_far_a_growth_is_can_be_asked_and_waited_for() {
    for (organisation, count) in PLEXES {
        let (drives, content) = growing(organisation, count);
        let left = Rc::new(Cell::new(usize::MAX));
        let slow = |memory: &Memory| Cut {
            memory: memory.clone(),
            left: Rc::clone(&left),
        };
        let opened = only(open(
            drives.iter().map(slow).collect(),
            SystemRequest::default(),
        ));
        let growing = opened.growing.as_ref().unwrap();
        let (done, total) = growing.progress();
        assert!(done == 0 && total > content.len() as u64, "{organisation}");
        let job = growing.job().unwrap();
        assert_eq!((job.kind, job.done_bytes), (JobKind::Reshape, 0));
        assert_eq!((job.total_bytes, job.worked_bytes), (total, 0));
        // Asked before it has begun.
        let waits = async {
            growing.ended().await;
            assert_eq!(growing.progress(), (total, total), "{organisation}");
            assert_eq!(growing.job(), None);
        };
        run(join(waits, growing.run()));
        run(opened.volume.stop()).unwrap();
        run(growing.stop()).unwrap();
    }
}

#[test]
fn a_growth_that_an_error_ends_is_waited_for_no_longer_and_is_no_job() {
    let (drives, _) = growing("striped 1k", 2);
    let left = Rc::new(Cell::new(2000));
    let cut = |memory: &Memory| Cut {
        memory: memory.clone(),
        left: Rc::clone(&left),
    };
    let opened = only(open(
        drives.iter().map(cut).collect(),
        SystemRequest::default(),
    ));
    let growing = opened.growing.as_ref().unwrap();
    run(join(growing.run(), growing.ended()));
    let (done, total) = growing.progress();
    assert!(done < total, "{done}");
    assert_eq!(growing.job(), None);
}

/// Drives whose growth was cut while its first rows are kept at the end of the new subdisk.
fn cut_in_the_first_step(organisation: &str, count: usize) -> Vec<Memory> {
    let (first, content) = growing(organisation, count);
    for sectors in (1..).step_by(7) {
        let drives: Vec<Memory> = first
            .iter()
            .map(|drive| Memory::new(drive.bytes.borrow().clone()))
            .collect();
        let has_ended = grow_until(&drives, &mut content.clone(), &mut Vec::new(), sectors);
        let growth = system(&drives).config.plexes[0].growth;
        if growth.is_some_and(|growth| growth.backup_bytes > 0) {
            return drives;
        }
        assert!(
            !has_ended,
            "{organisation}: it is never seen in its first step"
        );
    }
    unreachable!("there are enough numbers")
}

#[test]
fn what_was_cut_in_its_first_step_is_served_only_with_its_new_drive_and_to_be_written() {
    let refusal = |drives: Vec<Memory>, request: SystemRequest| {
        let opened = open(drives, request).unwrap_or_else(|error| panic!("{error}"));
        let refused = opened.refused.first().map(|(_, error)| error.to_string());
        refused.unwrap_or_default()
    };
    let reading = || SystemRequest {
        volume: VolumeOptions {
            is_read_only: true,
            ..VolumeOptions::default()
        },
        ..SystemRequest::default()
    };
    for (organisation, count) in [("striped 1k", 2), ("raid5 1k", 3)] {
        let drives = cut_in_the_first_step(organisation, count);
        let text = refusal(drives.clone(), reading());
        assert!(
            text.contains("cut in the first step"),
            "{organisation}: {text:?}"
        );
        let opened = only(open(drives, SystemRequest::default()));
        assert!(opened.growing.is_some());
    }
    // Before its first step it can be read, and there is nothing that could go on.
    let (drives, content) = growing("raid5 1k", 3);
    let opened = only(open(drives, reading()));
    assert!(opened.growing.is_none() && read_all(&opened) == content);
}

#[test]
fn a_growth_that_was_left_in_a_write_without_a_drive_needs_force() {
    let (drives, mut content) = growing("raid5 1k", 3);
    // Past its first step, with writes under way.
    grow_until(&drives, &mut content, &mut Vec::new(), 6000);
    assert!(
        system(&drives).config.plexes[0].growth.is_some(),
        "it was cut"
    );
    let fewer = || drives[1..].to_vec();
    let with = |force: bool, is_read_only: bool| SystemRequest {
        run_degraded: true,
        force,
        volume: VolumeOptions {
            is_read_only,
            ..VolumeOptions::default()
        },
        ..SystemRequest::default()
    };
    let is_served = |request: SystemRequest| {
        open(fewer(), request).is_ok_and(|opened| opened.volumes.len() == 1)
    };
    assert!(!is_served(with(false, false)), "parity may be wrong");
    assert!(is_served(with(true, false)), "the user insists");
    assert!(is_served(with(false, true)), "nothing is built upon it");
}

/// Changes every byte of the drives' data, one of each sector, that no read sees: parity, and what nobody uses.
fn spoil_what_nobody_reads(drives: &[Memory], content: &[u8]) -> usize {
    let reading = || SystemRequest {
        volume: VolumeOptions {
            is_read_only: true,
            ..VolumeOptions::default()
        },
        ..SystemRequest::default()
    };
    let start = usize::try_from(DATA_OFFSET_BYTES).unwrap();
    let mut spoilt = 0;
    for drive in drives {
        for at in (start..start + 64 * 1024).step_by(512) {
            let flip = || drive.bytes.borrow_mut()[at] ^= 0xff;
            flip();
            if read_all(&only(open(drives.to_vec(), reading()))) == content {
                spoilt += 1;
            } else {
                flip();
            }
        }
    }
    spoilt
}

/// Parity that a crash left wrong is made anew on both sides of the border before the border moves.
#[test]
fn parity_is_right_after_a_growth_that_was_left_in_a_write() {
    let (drives, mut content) = growing("raid5 1k", 3);
    let mut torn = Vec::new();
    grow_until(&drives, &mut content, &mut torn, 6000);
    let growth = system(&drives).config.plexes[0].growth.unwrap();
    assert!(
        growth.moved_bytes > 0 && growth.backup_bytes == 0,
        "{growth:?}"
    );
    let reading = SystemRequest {
        volume: VolumeOptions {
            is_read_only: true,
            ..VolumeOptions::default()
        },
        ..SystemRequest::default()
    };
    let content = read_all(&only(open(drives.clone(), reading)));
    assert!(
        spoil_what_nobody_reads(&drives, &content) > 64,
        "a third is parity"
    );
    let opened = only(open(drives.clone(), SystemRequest::default()));
    run(serve(&opened, async {
        opened.growing.as_ref().unwrap().ended().await;
    }));
    drop(opened);
    check_grown(&drives, &content, true);
}

fn copies(drives: &[Memory]) -> Vec<Memory> {
    let bytes = drives.iter().map(|drive| drive.bytes.borrow().clone());
    bytes.map(Memory::new).collect()
}

/// Copies of the drives after a growth until the power fails after so many sectors, with no client.
fn moved_until(drives: &[Memory], sectors: usize) -> Vec<Memory> {
    let drives = copies(drives);
    let left = Rc::new(Cell::new(sectors));
    let cut = |memory: &Memory| Cut {
        memory: memory.clone(),
        left: Rc::clone(&left),
    };
    let opened = only(open(
        drives.iter().map(cut).collect(),
        SystemRequest::default(),
    ));
    run(opened.growing.as_ref().unwrap().run());
    drop(opened);
    drives
}

/// The fewest sectors after which the drives are as wanted; from then on they stay so.
fn fewest(drives: &[Memory], is_wanted: impl Fn(&[Memory]) -> bool) -> usize {
    let (mut without, mut with) = (0, 1 << 20);
    while with - without > 1 {
        let middle = usize::midpoint(without, with);
        if is_wanted(&moved_until(drives, middle)) {
            with = middle;
        } else {
            without = middle;
        }
    }
    with
}

fn growth(drives: &[Memory]) -> Option<plexum_format::vinum::Growth> {
    system(drives).config.plexes[0].growth
}

/// Another version of the program may have to put them back.
#[test]
fn the_first_rows_are_kept_at_the_end_of_the_new_subdisk() {
    for (organisation, count) in PLEXES {
        let (drives, content) = growing(organisation, count);
        let is_kept = |drives: &[Memory]| {
            growth(drives).is_none_or(|one| one.backup_bytes > 0 || one.moved_bytes > 0)
        };
        let cut = moved_until(&drives, fewest(&drives, is_kept));
        let data = count - usize::from(organisation.contains("raid5"));
        let strip = strip_bytes(organisation);
        let kept = data * (data + 1) * strip;
        assert_eq!(
            growth(&cut).unwrap().backup_bytes,
            kept as u64,
            "{organisation}"
        );
        let config = system(&cut).config;
        let new = config
            .subdisks
            .iter()
            .find(|one| one.drive == "new")
            .unwrap();
        let end = usize::try_from(new.drive_end_bytes()).unwrap();
        let bytes = cut.last().unwrap().bytes.borrow();
        assert!(bytes[end - kept..end] == content[..kept], "{organisation}");
    }
}

/// The old place of the first rows is written over row by row: from then on only what is kept counts.
#[test]
fn the_first_rows_survive_a_crash_while_they_are_put_back() {
    for (organisation, count) in [PLEXES[0], PLEXES[2]] {
        let (drives, content) = growing(organisation, count);
        let has_moved = |drives: &[Memory]| growth(drives).is_none_or(|one| one.moved_bytes > 0);
        let moved = fewest(&drives, has_moved);
        let data = |drives: &[Memory]| -> Vec<Vec<u8>> {
            let start = usize::try_from(DATA_OFFSET_BYTES).unwrap();
            let bytes = drives
                .iter()
                .map(|drive| drive.bytes.borrow()[start..].to_vec());
            bytes.collect()
        };
        // In front of the save that says so lie both copies of the configuration and what is put back.
        let mut before = data(&moved_until(&drives, moved - 400));
        let mut changes = 0;
        for sectors in moved - 399..moved {
            let cut = moved_until(&drives, sectors);
            let now = data(&cut);
            if now == before {
                continue;
            }
            before = now;
            changes += 1;
            let opened = only(open(cut.clone(), SystemRequest::default()));
            run(serve(&opened, opened.growing.as_ref().unwrap().ended()));
            drop(opened);
            check_grown(&cut, &content, organisation.contains("raid5"));
        }
        assert!(
            changes > 6,
            "{organisation}: it was cut there {changes} times"
        );
    }
}

/// A growth that goes on and is stopped leaves nothing in doubt: any drive may be lost then.
#[test]
fn parity_is_right_on_both_sides_before_anybody_says_so() {
    let (first, mut content) = growing("raid5 1k", 3);
    // The first rows have moved, and clients were writing.
    let mut left = (2000..).step_by(100).map(|sectors| {
        let drives = copies(&first);
        grow_until(&drives, &mut content, &mut Vec::new(), sectors);
        drives
    });
    let is_early = |drives: &Vec<Memory>| growth(drives).is_some_and(|one| one.moved_bytes > 0);
    let drives = left.find(is_early).unwrap();
    let reading = || SystemRequest {
        run_degraded: true,
        volume: VolumeOptions {
            is_read_only: true,
            ..VolumeOptions::default()
        },
        ..SystemRequest::default()
    };
    let content = read_all(&only(open(drives.clone(), reading())));
    assert!(spoil_what_nobody_reads(&drives, &content) > 64);
    assert_eq!(system(&drives).mark, Mark::Writing);
    let slow = |memory: &Memory| Cut {
        memory: memory.clone(),
        left: Rc::new(Cell::new(usize::MAX)),
    };
    let opened = only(open(
        drives.iter().map(slow).collect(),
        SystemRequest::default(),
    ));
    let growing = opened.growing.as_ref().unwrap();
    let (border, _) = growing.progress();
    run(join(growing.run(), async {
        while growing.progress().0 == border {
            crate::common::yield_once().await;
        }
        opened.volume.stop().await.unwrap();
        growing.stop().await.unwrap();
    }));
    let settled = drives;
    assert_eq!(system(&settled).mark, Mark::Settled);
    let growth = growth(&settled).unwrap();
    assert!(growth.moved_bytes < content.len() as u64, "{growth:?}");
    for missing in 0..settled.len() - 1 {
        let mut fewer = settled.clone();
        fewer.remove(missing);
        let degraded = read_all(&only(open(fewer, reading())));
        assert!(degraded == content, "without drive {missing}");
    }
}

/// A device that takes no configuration any more, and counts flushes.
struct Deaf {
    memory: Memory,
    is_deaf: bool,
    flushes: Rc<Cell<u64>>,
}

impl Device for Deaf {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        crate::common::yield_once().await;
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        if self.is_deaf && offset_bytes < DATA_OFFSET_BYTES {
            return Err(IoError::Gone);
        }
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.flushes.set(self.flushes.get() + 1);
        self.memory.flush().await
    }
}

fn deaf(drives: &[Memory], count: usize) -> (Vec<Deaf>, Rc<Cell<u64>>) {
    let flushes = Rc::new(Cell::new(0));
    let each = drives.iter().enumerate().map(|(index, memory)| Deaf {
        memory: memory.clone(),
        is_deaf: index < count,
        flushes: Rc::clone(&flushes),
    });
    (each.collect(), flushes)
}

/// The border may be where only parity knows it from, and nowhere else.
#[test]
fn a_growth_stops_when_its_border_cannot_be_saved() {
    for (organisation, count, deaf_count, ends) in [
        ("striped 1k", 2, 0, true),
        ("striped 1k", 2, 1, false),
        ("raid5 1k", 3, 1, true),
        ("raid5 1k", 3, 2, false),
    ] {
        let (drives, content) = growing(organisation, count);
        let opened = only(open(deaf(&drives, deaf_count).0, SystemRequest::default()));
        let growing = opened.growing.as_ref().unwrap();
        run(growing.run());
        let (done, total) = growing.progress();
        assert_eq!(
            (done == total, done == 0),
            (ends, !ends),
            "{organisation}, {deaf_count} are deaf"
        );
        drop(opened);
        if organisation.contains("raid5") {
            continue; // whoever takes no configuration is lost
        }
        if !ends {
            let opened = only(open(drives.clone(), SystemRequest::default()));
            run(serve(&opened, opened.growing.as_ref().unwrap().ended()));
        }
        check_grown(&drives, &content, false);
    }
}

#[test]
fn a_flush_of_a_growing_plex_reaches_its_drives() {
    let (drives, _) = growing("striped 1k", 2);
    let (devices, flushes) = deaf(&drives, 0);
    let opened = only(open(devices, SystemRequest::default()));
    let data = pool().copy_of(&[1; 2048]).freeze();
    run(opened.volume.write(0, data, Fua::No)).unwrap();
    let before = flushes.get();
    run(opened.volume.flush()).unwrap();
    assert!(flushes.get() >= before + 2, "both drives that were written");
}

#[test]
fn requests_to_a_growing_plex_are_counted_with_their_bytes() {
    let (drives, _) = growing("striped 1k", 2);
    let opened = only(open(drives, SystemRequest::default()));
    run(opened.volume.read(4096, 1536)).unwrap();
    let data = pool().copy_of(&[1; 512]).freeze();
    run(opened.volume.write(8192, data, Fua::No)).unwrap();
    let done = opened.tally.done().transfers;
    assert_eq!((done.reads, done.read_bytes), (2, 1536));
    assert_eq!((done.writes, done.written_bytes), (1, 512));
}

/// Either half knows that too much is gone; the volume over both is told.
#[test]
fn a_growing_plex_that_lost_too_much_is_gone_to_its_volume() {
    let (drives, _) = growing("striped 1k", 2);
    let opened = only(open(drives.clone(), SystemRequest::default()));
    let background = opened.volume.run_background();
    run(join(background, async {
        assert!(!opened.volume.is_frozen());
        drives[0].is_gone.set(true);
        assert!(opened.volume.read(0, 512).await.is_err());
        while !opened.volume.is_frozen() {
            crate::common::yield_once().await;
        }
        let _ = opened.volume.stop().await; // it says that it is frozen
    }));
}

/// Why a growth is refused whose configuration was changed on the drives.
fn refusal_of(drives: &[Memory], change: impl FnOnce(&mut Config)) -> String {
    let drives = copies(drives);
    let mut system = system(&drives);
    change(&mut system.config);
    save(&system, &drives);
    let opened = open(drives, SystemRequest::default()).unwrap_or_else(|error| panic!("{error}"));
    let refused = opened.refused.first();
    refused.map_or_else(String::new, |(_, error)| error.to_string())
}

/// Drives are not to be trusted: what they say of a growth decides what is written where.
#[test]
fn a_position_that_no_growth_stops_at_is_refused() {
    for (organisation, count) in PLEXES {
        let (drives, content) = growing(organisation, count);
        let data = count as u64 - u64::from(organisation.contains("raid5"));
        let strip = strip_bytes(organisation) as u64;
        let (unit, first) = ((data + 1) * strip, data * (data + 1) * strip);
        let refusal = |moved_bytes: u64, backup_bytes: u64| {
            refusal_of(&drives, |config| {
                let growth = config.plexes[0].growth.as_mut().unwrap();
                (growth.moved_bytes, growth.backup_bytes) = (moved_bytes, backup_bytes);
            })
        };
        for (moved, backup) in [
            (512, 0),
            (first - unit, 0),
            (first + 512, 0),
            (1 << 59, 0),
            (0, 512),
            (0, first + unit),
            (0, 1 << 59),
            (first, first),
        ] {
            let expected = format!("byte {moved} with {backup} bytes kept");
            let text = refusal(moved, backup);
            assert!(text.contains(&expected), "{organisation}: {text:?}");
        }
        assert!(first + unit < content.len() as u64);
        for (moved, backup) in [(0, 0), (0, first), (first, 0), (first + unit, 0)] {
            assert_eq!(
                refusal(moved, backup),
                "",
                "{organisation}: {moved} {backup}"
            );
        }
    }
}

#[test]
fn a_new_subdisk_too_short_for_the_first_rows_or_for_what_there_is_is_refused() {
    let (drives, _) = growing("striped 1k", 2);
    let refusal = |old_bytes: u64, new_bytes: u64| {
        refusal_of(&drives, |config| {
            for subdisk in &mut config.subdisks {
                subdisk.length_bytes = match subdisk.drive.as_str() {
                    "new" => new_bytes,
                    _ => old_bytes,
                };
            }
        })
    };
    assert_eq!(refusal(10 << 10, 8 << 10), "");
    let text = refusal(10 << 10, 7 << 10);
    assert!(text.contains("v.p0.s2 has 7168 bytes, too few"), "{text:?}");
    let text = refusal(64 << 10, 32 << 10);
    assert!(
        text.contains("131072 bytes do not become 98304"),
        "{text:?}"
    );
}
