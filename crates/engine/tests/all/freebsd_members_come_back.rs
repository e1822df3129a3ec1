//! FreeBSD's formats with members that were lost, given up, replaced or filled: whoever missed writes never passes for
//! somebody who did not. Each test is a bug that the simulator has found.

use crate::common::vinum::{drives, only, open, pool, serve, system};
use crate::common::{Memory, Still, run};
use plexum_block::buf::Buf;
use plexum_block::device::{Device, Fua};
use plexum_block::wait::join;
use plexum_engine::state::Standing;
use plexum_engine::volume::{NewMember, Volume, VolumeOptions};
use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};
use plexum_format::vinum::{Mark, SubdiskState};
use plexum_freebsd::gmirror::{MirrorRequest, open_mirror};
use plexum_freebsd::gvinum::SystemRequest;

const SIZE: usize = 1 << 18;
const DRIVE: usize = 135_680 + 256 * 1024;

fn data(byte: u8) -> Buf {
    pool().copy_of(&[byte; 512]).freeze()
}

fn components(count: u8) -> Vec<Memory> {
    let component = |number: u8| {
        let label = MirrorLabel::create(&NewMirrorLabel {
            name: "g",
            mirror_id: 5,
            component_id: u32::from(number) + 1,
            component_count: count,
            priority: number,
            slice_bytes: 4096,
            balance: Balance::RoundRobin,
            volume_bytes: SIZE as u64 - 512,
            sector_bytes: 512,
            provider_bytes: SIZE as u64,
        });
        let mut bytes = vec![0; SIZE];
        bytes[SIZE - 512..].copy_from_slice(&label.unwrap().encode());
        Memory::new(bytes)
    };
    (0..count).map(component).collect()
}

fn mirror(devices: &[&Memory]) -> Volume<Memory, Still> {
    let devices = devices.iter().enumerate();
    let devices = devices.map(|(index, device)| (format!("da{index}"), (*device).clone()));
    let request = MirrorRequest {
        run_degraded: true,
        ignores_names: false,
        volume: VolumeOptions::default(),
        balance: None,
        name: None,
    };
    let opened = open_mirror(devices.collect(), Still::default(), pool(), request);
    run(opened).unwrap().0
}

fn label(device: &Memory) -> MirrorLabel {
    let bytes = device.bytes.borrow();
    MirrorLabel::parse(&bytes[SIZE - 512..], SIZE as u64 - 512, SIZE as u64).unwrap()
}

fn age(device: &Memory) -> (u32, u32) {
    let label = label(device);
    (label.generation_id, label.sync_id)
}

/// Runs `work` beside the background, then stops the volume.
async fn while_served<D: Device>(volume: &Volume<D, Still>, work: impl Future<Output = ()>) {
    join(volume.run_background(), async {
        work.await;
        volume.stop().await.unwrap();
    })
    .await;
}

fn fresh(device: &Memory) -> NewMember<Memory> {
    NewMember {
        name: "new".into(),
        device: device.clone(),
        identity: [77; 16],
        is_write_mostly: false,
        former: None,
    }
}

/// Waits until the spare has taken its slot and is filled.
async fn filled(volume: &Volume<Memory, Still>) {
    let is_waiting = || {
        let members = volume.status().members;
        members
            .iter()
            .any(|member| member.standing == Standing::Spare)
    };
    while is_waiting() {
        crate::common::yield_once().await;
    }
    volume.rebuilt().await;
}

async fn lose(volume: &Volume<Memory, Still>, device: &Memory) {
    device.is_gone.set(true);
    volume.write(0, data(1), Fua::No).await.unwrap();
    device.is_gone.set(false);
}

#[test]
fn whoever_is_missing_stays_behind_a_former_component_that_took_its_place() {
    let (devices, new) = (components(2), Memory::new(vec![0; SIZE]));
    let volume = mirror(&[&devices[0], &devices[1]]);
    run(while_served(&volume, async {
        lose(&volume, &devices[0]).await;
        volume.add(fresh(&new), false).await.unwrap();
        filled(&volume).await;
    }));
    // As many components as there should be, and one of them is not.
    let volume = mirror(&[&devices[0], &new]);
    run(while_served(&volume, async {
        volume.rebuilt().await;
        volume.write(0, data(9), Fua::No).await.unwrap();
    }));
    assert!(age(&devices[1]) < age(&new), "it missed a write");
    let volume = mirror(&[&devices[0], &devices[1], &new]);
    for _ in 0..3 {
        assert_eq!(run(volume.read(0, 512)).unwrap().to_vec(), [9; 512]);
    }
}

#[test]
fn a_component_that_was_replaced_is_behind() {
    let (devices, new) = (components(2), Memory::new(vec![0; SIZE]));
    let volume = mirror(&[&devices[0], &devices[1]]);
    let status = volume.status();
    let of_first = |member: &&plexum_engine::volume::MemberStatus| {
        member.name.as_deref() == Some("da0") && member.standing == Standing::Active
    };
    let old = status.members.iter().find(of_first).unwrap().id;
    run(while_served(&volume, async {
        volume.replace_with(old, fresh(&new)).await.unwrap();
        volume.rebuilt().await;
    }));
    assert!(age(&devices[0]) < age(&new));
    assert_eq!(age(&devices[1]), age(&new));
    assert_eq!(label(&new).component_count, 2);
}

#[test]
fn whoever_else_is_missing_stays_expected_when_a_place_is_filled() {
    let (devices, new) = (components(4), Memory::new(vec![0; SIZE]));
    let volume = mirror(&devices.iter().collect::<Vec<_>>());
    run(while_served(&volume, async {
        lose(&volume, &devices[0]).await;
        lose(&volume, &devices[1]).await;
        volume.add(fresh(&new), false).await.unwrap();
        filled(&volume).await;
    }));
    for device in [&devices[2], &devices[3], &new] {
        assert_eq!(label(device).component_count, 4);
    }
}

#[test]
fn nothing_is_read_before_the_choice_after_a_crash_is_durable() {
    let devices = components(2);
    let volume = mirror(&[&devices[0], &devices[1]]);
    run(async { volume.write(0, data(1), Fua::No).await.unwrap() });
    drop(volume);
    devices[1].bytes.borrow_mut()[0] = 2; // they differ after the crash
    // Only the one with the lower priority is there: what it gives counts from now on.
    let volume = mirror(&[&devices[0]]);
    assert_eq!(run(volume.read(0, 512)).unwrap().to_vec()[0], 1);
    drop(volume);
    let volume = mirror(&[&devices[0], &devices[1]]);
    for _ in 0..3 {
        assert_eq!(run(volume.read(0, 512)).unwrap().to_vec()[0], 1);
    }
    assert!(age(&devices[1]) < age(&devices[0]));
}

/// A volume of a RAID-5 plex over a, b, c and a concat plex on d.
fn two_plexes() -> Vec<Memory> {
    let mut text = String::new();
    for name in ["a", "b", "c", "d"] {
        text += &format!("drive {name} device /dev/{name}\n");
    }
    text += "volume v setupstate\nplex org raid5 4k\n";
    for name in ["a", "b", "c"] {
        text += &format!("sd length 64k drive {name}\n");
    }
    text += "plex org concat\nsd length 128k drive d\n";
    drives(&text, DRIVE)
}

fn state(drives: &[Memory], subdisk: &str) -> SubdiskState {
    let recorded = system(drives).recorded.subdisks;
    let found = recorded.iter().find(|other| other.name == subdisk);
    found.unwrap().state
}

fn degraded() -> SystemRequest {
    SystemRequest {
        run_degraded: true,
        ..SystemRequest::default()
    }
}

#[test]
fn a_complete_plex_says_nothing_of_a_subdisk_that_is_lost_in_it() {
    let drives = two_plexes();
    let without_b = [drives[0].clone(), drives[2].clone(), drives[3].clone()];
    let opened = only(open(without_b.to_vec(), degraded()));
    run(serve(&opened, async {
        opened.volume.write(0, data(1), Fua::No).await.unwrap();
    }));
    assert_ne!(state(&without_b, "v.p0.s1"), SubdiskState::Up);
    let opened = only(open(drives.clone(), SystemRequest::default()));
    run(serve(&opened, async {
        opened.plexes[0].volume.rebuilt().await;
    }));
    assert_eq!(state(&drives, "v.p0.s1"), SubdiskState::Up);
}

#[test]
fn a_plex_with_parity_is_not_up_before_it_is_filled() {
    let drives = two_plexes();
    let only_d = [drives[3].clone()];
    let opened = only(open(only_d.to_vec(), degraded()));
    run(serve(&opened, async {
        opened.volume.write(0, data(1), Fua::No).await.unwrap();
    }));
    let opened = only(open(drives.clone(), SystemRequest::default()));
    run(async { opened.volume.write(4096, data(2), Fua::No).await.unwrap() });
    drop(opened); // cut off before anything was filled
    for subdisk in ["v.p0.s0", "v.p0.s1", "v.p0.s2"] {
        assert_ne!(state(&drives, subdisk), SubdiskState::Up, "{subdisk}");
    }
}

#[test]
fn parity_in_doubt_with_a_stale_subdisk_is_filled_from_another_plex() {
    let drives = two_plexes();
    let without_b = [drives[0].clone(), drives[2].clone(), drives[3].clone()];
    let opened = only(open(without_b.to_vec(), degraded()));
    run(async { opened.volume.write(0, data(1), Fua::No).await.unwrap() });
    drop(opened); // writes were under way, and nobody knows of b what it missed
    let opened = only(open(drives.clone(), SystemRequest::default()));
    let members = opened.volume.status().members;
    let standing = members[0].standing;
    assert!(
        matches!(standing, Standing::Rebuilding { .. }),
        "{standing:?}"
    );
    run(serve(&opened, async {
        opened.volume.rebuilt().await;
        opened.plexes[0].volume.resynced().await;
    }));
    for subdisk in ["v.p0.s0", "v.p0.s1", "v.p0.s2"] {
        assert_eq!(state(&drives, subdisk), SubdiskState::Up, "{subdisk}");
    }
}

#[test]
fn a_volume_with_nothing_to_differ_keeps_no_mark() {
    let text = "drive a device /dev/a\ndrive b device /dev/b\n\
        volume m setupstate\nplex org concat\nsd length 64k drive a\nplex org concat\nsd length 64k drive b\n\
        volume s\nplex org striped 4k\nsd length 64k drive a\nsd length 64k drive b\n";
    let drives = drives(text, DRIVE);
    let write = |at| {
        let opened = open(drives.clone(), SystemRequest::default()).unwrap();
        let mut volumes = opened.volumes.into_iter();
        let copies = volumes.find(|one| one.volume.name() == "m").unwrap();
        run(async { copies.volume.write(at, data(1), Fua::No).await.unwrap() });
        copies
    };
    drop(write(0)); // a crash
    let copies = write(4096);
    run(serve(&copies, async { copies.volume.resynced().await }));
    assert_eq!(system(&drives).mark, Mark::Settled);
}
