//! Striped and RAID-5 plexes get a subdisk more while they are served, whatever write is the last one before a crash.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::cell::Cell;
use std::rc::Rc;

use common::vinum::{drive, drives, only, open, pool, save, serve, system};
use common::{Memory, run};
use plexum_engine::buf::{Buf, BufMut};
use plexum_engine::device::{Device, DeviceInfo, Fua, IoError};
use plexum_engine::meta::gvinum::{Drive, SystemRequest, edit, volume_bytes};
use plexum_engine::volume::{JobKind, VolumeOptions};
use plexum_engine::wait::join;
use plexum_format::vinum::{Config, DATA_OFFSET_BYTES, DriveHeader, PlexState};

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
        common::yield_once().await;
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        common::yield_once().await;
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
    });
    edit::grow(&mut system.config, "v.p0", "new", SIZE as u64, None).unwrap();
    assert_eq!(system.config.plexes[0].state, PlexState::Growable);
    save(&system, &drives);
    (drives, content)
}

fn read_all<D: Device>(
    opened: &plexum_engine::meta::gvinum::OpenedVolume<D, common::Still>,
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

/// One growth until the power fails after so many sectors; what was answered is in `content`. Whether it came to its end.
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
        run(join(growing.run(), async {
            growing.ended().await;
            assert_eq!(growing.progress(), (total, total), "{organisation}");
            assert_eq!(growing.job(), None);
        }));
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
