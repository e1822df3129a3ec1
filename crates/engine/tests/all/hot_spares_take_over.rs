//! A hot spare takes the place of a drive that was lost: while the volume is served, and at the next start.

use crate::common::vinum::{drives, only, open, pool, serve, subdisk, system};
use crate::common::{Memory, run};
use plexum_block::buf::Buf;
use plexum_block::device::Fua;
use plexum_format::vinum::SubdiskState;
use plexum_freebsd::gvinum::SystemRequest;

const SIZE: usize = 1 << 20;

fn data(byte: u8, length: usize) -> Buf {
    pool().copy_of(&vec![byte; length]).freeze()
}

fn degraded() -> SystemRequest {
    SystemRequest {
        run_degraded: true,
        ..SystemRequest::default()
    }
}

fn without(drives: &[Memory], missing: usize) -> Vec<Memory> {
    let mut left = drives.to_vec();
    left.remove(missing);
    left
}

const RAID5: &str = "drive a device /dev/a\ndrive b device /dev/b\ndrive c device /dev/c\n\
    drive h device /dev/h hotspare\nvolume v\nplex org raid5 4k\nsd length 256k drive a\n\
    sd length 256k drive b\nsd length 256k drive c\n";
const MIRROR: &str = "drive a device /dev/a\ndrive b device /dev/b\ndrive h device /dev/h hotspare\n\
    volume v\nplex org concat\nsd length 256k drive a\nplex org concat\nsd length 256k drive b\n";

/// Loses drive `b` while it is served: the last drive takes its place, and then any other may go, too.
fn lose_while_served(text: &str, lost: &str) {
    let drives = drives(text, SIZE);
    let spare = drives.len() - 1;
    let opened = only(open(drives.clone(), SystemRequest::default()));
    assert_eq!(opened.volume.status().format, "gvinum");
    run(serve(&opened, async {
        opened
            .volume
            .write(0, data(1, 65_536), Fua::No)
            .await
            .unwrap();
        drives[1].is_gone.set(true);
        opened
            .volume
            .write(8192, data(2, 8192), Fua::No)
            .await
            .unwrap();
        while opened.volume.lost_slots().contains(&true) {
            crate::common::yield_once().await;
        }
        opened
            .volume
            .write(65_536, data(3, 4096), Fua::No)
            .await
            .unwrap();
    }));
    // What is done on the subdisk from now on is done on its new drive.
    let subdisks = opened.tally.plexes.iter().flat_map(|plex| &plex.subdisks);
    let moved: Vec<_> = subdisks.filter(|one| one.name == lost).collect();
    assert!(!moved.is_empty());
    assert!(moved.iter().all(|one| one.drive().name == "h"));
    drop(opened);
    for index in (0..drives.len()).filter(|index| *index != 1) {
        let saved = subdisk(&drives[index], lost);
        assert_eq!(
            (saved.drive.as_str(), saved.state),
            ("h", SubdiskState::Up),
            "drive {index}"
        );
    }
    let left = without(&drives, 1);
    for missing in 0..left.len() {
        let opened = only(open(without(&left, missing), degraded()));
        let content = run(opened.volume.read(0, 69_632)).unwrap().to_vec();
        let expected = [&[1; 8192][..], &[2; 8192], &[1; 49_152], &[3; 4096]].concat();
        assert!(content == expected, "without drive {missing}");
    }
    assert!(left[spare - 1].writes.get() > 0);
    // The lost one comes back: nothing of the volume is on it any more.
    drives[1].is_gone.set(false);
    let opened = only(open(drives.clone(), SystemRequest::default()));
    assert_eq!(
        run(opened.volume.read(8192, 512)).unwrap().to_vec(),
        [2; 512]
    );
}

#[test]
fn a_hot_spare_takes_the_place_of_a_lost_drive_of_raid5() {
    lose_while_served(RAID5, "v.p0.s1");
}

#[test]
fn a_hot_spare_takes_the_place_of_a_lost_plex_of_one_drive() {
    lose_while_served(MIRROR, "v.p1.s0");
}

#[test]
fn at_the_start_a_hot_spare_takes_over_what_is_known_to_be_lost() {
    let striped = "drive a device /dev/a\ndrive b device /dev/b\ndrive c device /dev/c\ndrive d device /dev/d\n\
        drive h device /dev/h hotspare\nvolume v\nplex org striped 4k\nsd length 128k drive a\n\
        sd length 128k drive b\nplex org striped 4k\nsd length 128k drive c\nsd length 128k drive d\n";
    for text in [RAID5, MIRROR, striped] {
        let drives = drives(text, SIZE);
        let opened = only(open(drives.clone(), SystemRequest::default()));
        run(serve(&opened, async {
            opened
                .volume
                .write(0, data(7, 131_072), Fua::No)
                .await
                .unwrap();
        }));
        drop(opened);
        let left = without(&drives, 1);
        // Not asked for: the drive may come back newer.
        assert!(
            open(left.clone(), SystemRequest::default())
                .unwrap()
                .volumes
                .is_empty()
        );
        let read_only = SystemRequest {
            volume: plexum_engine::volume::VolumeOptions {
                is_read_only: true,
                ..Default::default()
            },
            ..degraded()
        };
        let looked = open(left.clone(), read_only).unwrap();
        assert!(
            looked
                .system
                .config
                .subdisks
                .iter()
                .all(|one| one.drive != "h")
        );
        drop(looked);
        let opened = open(left.clone(), degraded());
        let notes = opened.as_ref().unwrap().system.notes.join("\n");
        assert!(notes.contains("hot spare h takes over from b"), "{notes}");
        let opened = only(opened);
        run(serve(&opened, async { opened.volume.rebuilt().await }));
        drop(opened);
        let after = system(&left);
        assert!(after.config.subdisks.iter().any(|one| one.drive == "h"));
        assert!(
            after
                .config
                .subdisks
                .iter()
                .all(|one| one.state == SubdiskState::Up)
        );
        for missing in 0..left.len() {
            let opened = only(open(without(&left, missing), degraded()));
            assert_eq!(
                run(opened.volume.read(0, 131_072)).unwrap().to_vec(),
                vec![7; 131_072]
            );
        }
    }
}

#[test]
fn a_hot_spare_has_room_for_all_of_the_subdisk_or_is_left_alone() {
    // 891.5 KiB of room on the spare, of which another volume has some: 256 KiB are needed.
    for (other, is_enough) in [("635k", true), ("636k", false)] {
        let text = format!("{RAID5}volume w\nplex org concat\nsd length {other} drive h\n");
        let drives = drives(&text, SIZE);
        let left = without(&drives, 1);
        let opened = open(left.clone(), degraded()).unwrap();
        let notes = opened.system.notes.join("\n");
        assert_eq!(notes.contains("takes over"), is_enough, "{other}: {notes}");
    }
}

#[test]
fn what_nobody_can_make_again_is_not_taken_over() {
    let drives_of = |text: &str| drives(text, SIZE);
    let takes_over = |text: &str, missing: &[usize]| {
        let mut left = drives_of(text);
        for index in missing.iter().rev() {
            left.remove(*index);
        }
        let opened = open(left, degraded()).unwrap();
        opened.system.notes.join("\n").contains("takes over")
    };
    let named = "drive a device /dev/a\ndrive b device /dev/b\ndrive c device /dev/c\n\
        drive h device /dev/h hotspare\ndrive i device /dev/i hotspare\nvolume v\n";
    let raid5 = "plex org raid5 4k\nsd length 256k drive a\nsd length 256k drive b\nsd length 256k drive c\n";
    let concat = "plex org concat\nsd length 256k drive a\nsd length 256k drive b\n";
    let striped = "plex org striped 4k\nsd length 256k drive a\nsd length 256k drive b\n";
    assert!(takes_over(&format!("{named}{raid5}"), &[1]));
    assert!(
        !takes_over(&format!("{named}{raid5}"), &[0, 1]),
        "two of them"
    );
    for plex in [concat, striped] {
        assert!(!takes_over(&format!("{named}{plex}"), &[1]), "{plex}");
        // With a whole copy elsewhere it can be.
        let copied = format!("{named}{plex}plex org concat\nsd length 512k drive c\n");
        assert!(takes_over(&copied, &[1]), "{plex}");
        assert!(
            !takes_over(&copied, &[1, 2]),
            "{plex}: the copy is away, too"
        );
    }
}
