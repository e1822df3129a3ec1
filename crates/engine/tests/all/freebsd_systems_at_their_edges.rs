//! What FreeBSD left, taken as it is: damaged or absent, marked or not, with parts that are known to be behind.

use crate::common::vinum::{drives, only, open, pool, save, serve, system};
use crate::common::{Memory, run};
use plexum_block::device::{Fua, IoError};
use plexum_engine::volume::VolumeOptions;
use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};
use plexum_format::vinum::{
    DATA_OFFSET_BYTES, DriveHeader, HEADER_OFFSET_BYTES, Mark, SubdiskState,
};
use plexum_freebsd::gvinum::{SystemRequest, read_drive};
use plexum_freebsd::labels::{ForeignError, last_sector};

const SIZE: usize = 1 << 20;
const NAMED: &str =
    "drive a device /dev/a\ndrive b device /dev/b\ndrive c device /dev/c\nvolume v\n";
const RAID5: &str =
    "plex org raid5 4k\nsd length 256k drive a\nsd length 256k drive b\nsd length 256k drive c\n";
const STRIPED: &str =
    "plex org striped 4k\nsd length 256k drive a\nsd length 256k drive b\nsd length 256k drive c\n";

fn made(plex: &str) -> Vec<Memory> {
    drives(&format!("{NAMED}{plex}"), SIZE)
}

/// The same drives with another mark in their headers.
fn marked(drives: Vec<Memory>, mark: Mark) -> Vec<Memory> {
    let at = usize::try_from(HEADER_OFFSET_BYTES).unwrap();
    for drive in &drives {
        let mut bytes = drive.bytes.borrow_mut();
        let mut header = DriveHeader::parse(&bytes[at..at + 512], HEADER_OFFSET_BYTES).unwrap();
        header.mark = mark;
        bytes[at..at + 512].copy_from_slice(&header.encode());
    }
    drives
}

fn request(run_degraded: bool, force: bool, is_read_only: bool) -> SystemRequest {
    SystemRequest {
        run_degraded,
        force,
        volume: VolumeOptions {
            is_read_only,
            ..VolumeOptions::default()
        },
        ..SystemRequest::default()
    }
}

/// Why the volumes that are not served are not.
fn refusals(drives: Vec<Memory>, request: SystemRequest) -> Vec<String> {
    let opened = open(drives, request).unwrap_or_else(|error| panic!("{error}"));
    let refused = opened.refused.iter();
    refused.map(|(_, error)| error.to_string()).collect()
}

#[test]
fn no_metadata_and_damaged_ones_are_told_apart() {
    let label = MirrorLabel::create(&NewMirrorLabel {
        name: "g",
        mirror_id: 5,
        component_id: 1,
        component_count: 2,
        priority: 0,
        slice_bytes: 4096,
        balance: Balance::Load,
        volume_bytes: 4096,
        sector_bytes: 512,
        provider_bytes: SIZE as u64,
    });
    let component = Memory::new(vec![0; SIZE]);
    let look = || run(last_sector(&component, &pool(), 3, MirrorLabel::parse));
    assert!(matches!(look(), Err(ForeignError::NothingFound(3))));
    let bytes = label.unwrap().encode();
    component.bytes.borrow_mut()[SIZE - 512..].copy_from_slice(&bytes);
    assert!(look().is_ok());
    component.bytes.borrow_mut()[SIZE - 512 + 20] ^= 1;
    assert!(matches!(look(), Err(ForeignError::Format(3, _))));

    let drive = made(RAID5).remove(0);
    let look = || run(read_drive(&drive, &pool(), 3, "da3"));
    assert!(look().is_ok());
    let at = usize::try_from(HEADER_OFFSET_BYTES).unwrap();
    drive.bytes.borrow_mut()[at + 8..at + 512].fill(0xff);
    assert!(matches!(look(), Err(ForeignError::Format(3, _))));
    drive.bytes.borrow_mut()[at..at + 512].fill(0);
    assert!(matches!(look(), Err(ForeignError::NothingFound(3))));
}

#[test]
fn what_is_missing_is_named() {
    let drives = made(RAID5);
    let text = refusals(vec![drives[2].clone()], request(true, false, false));
    assert!(text[0].ends_with("v.p0.s0 v.p0.s1"), "{text:?}");
    let empty = format!("{NAMED}{RAID5}volume w\n");
    let text = refusals(
        crate::common::vinum::drives(&empty, SIZE),
        request(false, false, false),
    );
    assert_eq!(text.len(), 1);
    assert!(text[0].contains("w has no plex"), "{text:?}");
}

#[test]
fn a_volume_without_redundancy_leaves_its_configuration_alone() {
    for mark in [Mark::Settled, Mark::Unknown, Mark::Writing] {
        let drives = marked(made(STRIPED), mark);
        let end = usize::try_from(DATA_OFFSET_BYTES).unwrap();
        let saved = || -> Vec<Vec<u8>> {
            let bytes = drives
                .iter()
                .map(|drive| drive.bytes.borrow()[..end].to_vec());
            bytes.collect()
        };
        let before = saved();
        let opened = only(open(drives.clone(), SystemRequest::default()));
        let status = opened.volume.status();
        assert!(!status.is_dirty && status.job.is_none(), "{mark:?}");
        run(serve(&opened, async {
            let data = pool().copy_of(&[1; 8192]).freeze();
            opened.volume.write(0, data, Fua::No).await.unwrap();
        }));
        assert!(saved() == before, "{mark:?}");
    }
}

#[test]
fn writes_that_were_under_way_without_a_drive_need_force() {
    let mut drives = marked(made(RAID5), Mark::Writing);
    drives.remove(1);
    let text = refusals(drives.clone(), request(true, false, false));
    assert!(text[0].contains("writes were under way"), "{text:?}");
    assert!(refusals(drives.clone(), request(true, true, false)).is_empty());
    assert!(
        refusals(drives, request(true, false, true)).is_empty(),
        "nothing is built upon it"
    );
}

/// gvinum never made the parity of a new plex.
#[test]
fn parity_that_nobody_vouches_for_is_made_when_it_can_be() {
    let doubtful = |mut drives: Vec<Memory>, missing: Option<usize>, request: SystemRequest| {
        if let Some(missing) = missing {
            drives.remove(missing);
        }
        let opened = only(open(drives, request));
        opened.volume.status().doubtful_regions.0 > 0
    };
    let unknown = || marked(made(RAID5), Mark::Unknown);
    assert!(doubtful(unknown(), None, request(false, false, false)));
    assert!(
        !doubtful(unknown(), None, request(false, false, true)),
        "read only"
    );
    assert!(
        !doubtful(unknown(), Some(1), request(true, false, false)),
        "of what, without a drive"
    );
    let settled = marked(made(RAID5), Mark::Settled);
    assert!(!doubtful(settled, None, request(false, false, false)));
}

/// What may come back newer than what is served has to be asked for; what was behind already has not.
#[test]
fn a_drive_that_was_known_to_be_behind_is_not_waited_for() {
    let drives = made(RAID5);
    let without = || vec![drives[0].clone(), drives[2].clone()];
    assert_eq!(refusals(without(), request(false, false, false)).len(), 1);
    let mut system = system(&drives);
    let lost = system
        .config
        .subdisks
        .iter_mut()
        .find(|one| one.drive == "b");
    lost.unwrap().state = SubdiskState::Stale;
    save(&system, &drives);
    assert_eq!(refusals(without(), request(false, false, false)), [""; 0]);
}

/// Whoever stops before the resync has ended must not be taken at his word by the next start.
#[test]
fn a_stop_before_parity_is_right_does_not_say_that_it_is() {
    let drives = marked(made(RAID5), Mark::Writing);
    let opened = only(open(drives.clone(), SystemRequest::default()));
    assert!(opened.volume.status().doubtful_regions.0 > 0);
    let data = pool().copy_of(&[1; 512]).freeze();
    run(opened.volume.write(0, data, Fua::No)).unwrap();
    run(opened.volume.stop()).unwrap();
    drop(opened);
    assert_ne!(system(&drives).mark, Mark::Settled);
    let opened = only(open(drives, SystemRequest::default()));
    assert!(opened.volume.status().doubtful_regions.0 > 0);
}

#[test]
fn what_was_asked_for_to_be_read_only_takes_no_writes() {
    let mirror = "plex org concat\nsd length 256k drive a\nplex org concat\nsd length 256k drive b\n\
        plex org concat\nsd length 256k drive c\n";
    for plex in [RAID5, STRIPED, mirror] {
        let opened = only(open(made(plex), request(false, false, true)));
        let data = pool().copy_of(&[1; 512]).freeze();
        let written = run(opened.volume.write(0, data, Fua::No));
        assert_eq!(written, Err(IoError::ReadOnly), "{plex}");
    }
}
