//! What upstream's gmirror and gvinum do wrong besides what other tests show: docs/freebsd.md has the whole list.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::vinum::{drives, only, open, pool, save, serve, system};
use crate::common::{Memory, Still, run, yield_once};
use plexum_block::buf::{Buf, BufMut};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::join;
use plexum_engine::upkeep::scrub::ScrubMode;
use plexum_engine::volume::VolumeOptions;
use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};
use plexum_format::vinum::{HEADER_OFFSET_BYTES, Mark, Subdisk, SubdiskState, Volume, VolumeState};
use plexum_freebsd::gmirror::{MirrorRequest, open_mirror};
use plexum_freebsd::gvinum::{Store, SystemRequest};

const SIZE: usize = 1 << 20;

/// A component of mirror `g`.
fn component(number: u8, change: impl FnOnce(&mut MirrorLabel)) -> Memory {
    let label = MirrorLabel::create(&NewMirrorLabel {
        name: "g",
        mirror_id: 5,
        component_id: u32::from(number) + 1,
        component_count: 2,
        priority: number,
        slice_bytes: 4096,
        balance: Balance::RoundRobin,
        volume_bytes: SIZE as u64 - 512,
        sector_bytes: 512,
        provider_bytes: SIZE as u64,
    });
    let mut label = label.unwrap();
    change(&mut label);
    let mut bytes = vec![number; SIZE];
    bytes[SIZE - 512..].copy_from_slice(&label.encode());
    Memory::new(bytes)
}

fn request() -> MirrorRequest {
    MirrorRequest {
        run_degraded: true,
        ignores_names: false,
        volume: VolumeOptions::default(),
        balance: None,
        name: None,
    }
}

/// gmirror, defect 6: whoever came first was refused, and everybody waited for ever.
#[test]
fn a_refused_first_component_keeps_nobody_waiting() {
    let refused = component(0, |label| label.is_inactive = true);
    let devices = vec![
        ("da0".to_owned(), refused),
        ("da1".to_owned(), component(1, |_| {})),
    ];
    let opened = run(open_mirror(devices, Still::default(), pool(), request()));
    let (volume, assembled) = opened.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(assembled.refused.len(), 1);
    assert_eq!(run(volume.read(0, 512)).unwrap().to_vec(), [1; 512]);
}

/// A component on which a write to one place takes until it is let go.
struct Held {
    memory: Memory,
    held_at: u64,
    is_held: Rc<Cell<bool>>,
    seen: Rc<RefCell<Vec<u64>>>,
}

impl Device for Held {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        yield_once().await;
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        while offset_bytes == self.held_at && self.is_held.get() {
            yield_once().await;
        }
        self.seen.borrow_mut().push(offset_bytes);
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.memory.flush().await
    }
}

/// gmirror, defect 7: a write that waits for the rebuild, or the rebuild for it, held up all that came after it.
#[test]
fn a_delayed_write_during_a_rebuild_holds_up_nobody_elsewhere() {
    let is_held = Rc::new(Cell::new(true));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let held = |memory: Memory| Held {
        memory,
        held_at: 4096,
        is_held: Rc::clone(&is_held),
        seen: Rc::clone(&seen),
    };
    let devices = vec![
        (
            "da0".to_owned(),
            held(component(0, |label| label.sync_id = 0)),
        ),
        ("da1".to_owned(), held(component(1, |_| {}))),
    ];
    let opened = run(open_mirror(devices, Still::default(), pool(), request()));
    let (volume, assembled) = opened.unwrap_or_else(|error| panic!("{error}"));
    assert!(
        !assembled.effects.is_empty(),
        "the first one is to be filled"
    );
    run(join(volume.run_background(), async {
        let delayed = volume.write(4096, pool().copy_of(&[9; 512]).freeze(), Fua::No);
        join(delayed, async {
            for at in [512 << 10, 768 << 10] {
                assert_eq!(volume.read(at, 512).await.unwrap().to_vec(), [1; 512]);
                let data = pool().copy_of(&[8; 512]).freeze();
                volume.write(at, data, Fua::No).await.unwrap();
                assert_eq!(volume.read(at, 512).await.unwrap().to_vec(), [8; 512]);
            }
            assert!(!seen.borrow().contains(&4096), "it is still under way");
            is_held.set(false);
        })
        .await
        .0
        .unwrap();
        volume.rebuilt().await;
        volume.stop().await.unwrap();
    }));
}

fn raid5() -> Vec<Memory> {
    let text = "drive a device /dev/a\ndrive b device /dev/b\ndrive c device /dev/c\n\
        volume v\nplex org raid5 16k\nsd length 64k drive a\nsd length 64k drive b\nsd length 64k drive c\n";
    drives(text, 1 << 20)
}

/// gvinum, defect 4: after `rebuildparity` all I/O to the plex hung.
#[test]
fn a_plex_answers_after_its_parity_was_made_anew() {
    let drives = raid5();
    let opened = only(open(drives.clone(), SystemRequest::default()));
    run(serve(&opened, async {
        let volume = &opened.volume;
        volume
            .write(0, pool().copy_of(&[3; 4096]).freeze(), Fua::No)
            .await
            .unwrap();
        drives[2].bytes.borrow_mut()[135_680] ^= 1; // the parity of the first row
        assert!(volume.start_scrub(ScrubMode::Repair));
        volume.scrub_ended().await;
        assert!(volume.scrub_report().unwrap().mismatch_bytes > 0);
        let data = pool().copy_of(&[4; 4096]).freeze();
        volume.write(4096, data, Fua::No).await.unwrap();
        assert_eq!(volume.read(0, 4096).await.unwrap().to_vec(), [3; 4096]);
        assert!(volume.start_scrub(ScrubMode::Check));
        volume.scrub_ended().await;
        assert_eq!(volume.scrub_report().unwrap().mismatch_bytes, 0);
    }));
}

/// gvinum, defect 5: initialisation wrote 64 KiB behind the end of each subdisk.
#[test]
fn making_parity_writes_nothing_behind_the_subdisks() {
    let drives = raid5();
    let end = 135_680 + (64 << 10);
    for drive in &drives {
        let mut bytes = drive.bytes.borrow_mut();
        let at = usize::try_from(HEADER_OFFSET_BYTES).unwrap();
        let mut header =
            plexum_format::vinum::DriveHeader::parse(&bytes[at..at + 512], HEADER_OFFSET_BYTES)
                .unwrap();
        header.mark = Mark::Unknown; // as FreeBSD leaves it
        bytes[at..at + 512].copy_from_slice(&header.encode());
        bytes[135_680..end].fill(5);
        bytes[end..].fill(77);
    }
    let opened = only(open(drives.clone(), SystemRequest::default()));
    run(serve(&opened, opened.volume.resynced()));
    for (index, drive) in drives.iter().enumerate() {
        let bytes = drive.bytes.borrow();
        let is_whole = bytes[end..].iter().all(|byte| *byte == 77);
        assert!(is_whole, "behind the subdisk on drive {index}");
    }
    let row = |drive: usize| drives[drive].bytes.borrow()[135_680];
    assert_eq!(row(2), row(0) ^ row(1), "parity was made");
}

/// gvinum, defect 11: a text that outgrows its place was cut.
#[test]
fn a_configuration_that_outgrows_its_place_is_never_cut() {
    let drives = raid5();
    let mut system = system(&drives);
    let before: Vec<Vec<u8>> = drives
        .iter()
        .map(|drive| drive.bytes.borrow().clone())
        .collect();
    for number in 0..900 {
        system.config.volumes.push(Volume {
            name: format!("volume-{number}"),
            state: VolumeState::Down,
        });
        system.config.subdisks.push(Subdisk {
            name: format!("a-subdisk-with-a-long-name-{number}"),
            drive: "a".into(),
            length_bytes: 512,
            drive_offset_bytes: 262_144 + number * 512,
            plex: None,
            state: SubdiskState::Stale,
        });
    }
    assert!(system.config.encode().is_err(), "the command says so");
    assert!(Store::new(&system).writes("a").is_empty());
    save(&system, &drives);
    for (drive, before) in drives.iter().zip(&before) {
        assert!(*drive.bytes.borrow() == *before, "what is there stays");
    }
}
