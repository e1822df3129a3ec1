//! Who was away while an array got another shape, or only stood by, is never taken for one that has its rows.

use crate::common::{Memory, Still, run, yield_once};
use crate::reshapes::{self, LEFT_SYMMETRIC, grown, plain, pool, reshaping};
use plexum_block::device::Fua;
use plexum_block::wait::join;
use plexum_engine::volume::{AddOutcome, ControlError, FormerMember, NewMember, Volume};
use plexum_format::md::Superblock;
use plexum_md::open::{examine, former_member};
use plexum_md::reshape::{Beginning, LogNow, Wish, plan, situation};

/// A RAID-5 of three members with a bitmap, and spares.
fn new_array(spares: u16) -> Vec<Memory> {
    reshapes::new_array(&grown(LEFT_SYMMETRIC, 3, spares, true))
}

fn open(devices: &[Memory]) -> Volume<Memory, Still> {
    plain(devices, true).unwrap()
}

fn superblock(device: &Memory) -> Superblock {
    run(examine(device, &pool(), 0, "m")).unwrap().superblock
}

/// Gives the array one member more; `lost`: this member fails before it moves.
fn grow(devices: &[Memory], lost: Option<u16>) {
    let superblocks: Vec<Superblock> = devices.iter().map(superblock).collect();
    let superblocks: Vec<&Superblock> = superblocks.iter().collect();
    let wish = Wish {
        member_count: Some(4),
        ..Wish::default()
    };
    let plan = plan(&situation(&superblocks, 16, LogNow::Off).unwrap(), &wish).unwrap();
    let beginning = Beginning::of(&plan);
    let moving = reshaping(devices, beginning.as_ref()).unwrap();
    let fail_and_wait = async {
        if let Some(slot) = lost {
            let members = moving.after().status().members;
            let member = members.iter().find(|member| member.slot == Some(slot));
            moving.after().fail(member.unwrap().id).await.unwrap();
        }
        moving.ended().await;
        moving.stop().await.unwrap();
    };
    run(join(fail_and_wait, moving.run())); // it has gone before the first row moves
    assert!(moving.has_ended());
}

fn read(volume: &Volume<Memory, Still>) -> Vec<u8> {
    let length = volume.size_bytes() as usize;
    run(volume.read(0, length)).unwrap().to_vec()
}

fn fill(devices: &[Memory]) -> Vec<u8> {
    let volume = open(devices);
    let content: Vec<u8> = (0..volume.size_bytes())
        .map(|at| (at / 512 * 31 + at * 7) as u8)
        .collect();
    run(volume.write(0, pool().copy_of(&content).freeze(), Fua::No)).unwrap();
    run(join(volume.run_background(), async {
        volume.stop().await.unwrap()
    }));
    content
}

/// Lets what is missing be filled, then stops.
fn become_whole(volume: &Volume<Memory, Still>) {
    let is_whole = || {
        let status = volume.status();
        status.lost_slots.is_empty() && status.job.is_none()
    };
    run(join(volume.run_background(), async {
        while !is_whole() {
            yield_once().await;
        }
        volume.stop().await.unwrap();
    }));
}

#[test]
fn one_that_was_away_while_rows_moved_is_filled_as_a_whole() {
    let devices = new_array(1);
    let mut content = fill(&devices);
    grow(&devices, Some(1));
    let others: Vec<Memory> = [0, 2, 3].map(|index: usize| devices[index].clone()).into();
    let volume = open(&others);
    let former = run(former_member(
        &devices[1],
        &pool(),
        &superblock(&devices[1]),
    ));
    assert!(former.is_some(), "it says that it was a member");
    let new = |former| NewMember {
        name: "m1".to_owned(),
        device: devices[1].clone(),
        identity: [9; 16],
        is_write_mostly: false,
        former,
    };
    // What left in the middle has rows of both shapes.
    let half = FormerMember {
        geometry: None,
        ..former.clone().unwrap()
    };
    let here = FormerMember {
        geometry: Some(volume.geometry().clone()),
        data_start_bytes: half.data_start_bytes + 4096,
        ..half.clone()
    };
    for other in [half, here] {
        let refused = run(volume.check_add(&new(Some(other)), true));
        assert_eq!(refused, Err(ControlError::WrongState));
    }
    let refused = run(volume.check_add(&new(former.clone()), true));
    assert_eq!(
        refused,
        Err(ControlError::WrongState),
        "a bitmap tells of writes, not of rows"
    );
    let added = run(volume.add(new(former), false)).unwrap();
    assert!(matches!(added, AddOutcome::Spare(_)), "{added:?}");
    become_whole(&volume);
    content.resize(volume.size_bytes() as usize, 0);
    drop(volume);
    for missing in 0..4 {
        let mut fewer = devices.clone();
        fewer.remove(missing);
        assert!(read(&open(&fewer)) == content, "without {missing}");
    }
}

#[test]
fn one_that_only_stood_by_says_what_the_others_say() {
    let devices = new_array(2);
    fill(&devices);
    grow(&devices, Some(2)); // the second spare takes the slot when all has moved
    let volume = open(&devices);
    become_whole(&volume);
    let shape = |device: &Memory| {
        let own = superblock(device);
        (own.member_count, own.layout, own.strip_sectors, own.reshape)
    };
    let expected = shape(&devices[0]);
    assert_eq!(expected.0, 4);
    for (index, device) in devices.iter().enumerate().filter(|(index, _)| *index != 2) {
        assert_eq!(shape(device), expected, "member {index}");
    }
}

#[test]
fn a_member_that_tells_of_another_shape_is_left_out() {
    let devices = new_array(0);
    let content = fill(&devices);
    let mut other = superblock(&devices[1]);
    other.member_count = 4;
    other.events.0 -= 1; // of two histories the newer one counts
    let bytes = other.encode();
    let at = (other.super_offset_sectors * 512) as usize;
    devices[1].bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
    let volume = open(&[devices[1].clone(), devices[0].clone(), devices[2].clone()]);
    assert_eq!(volume.status().lost_slots, [1]);
    assert!(read(&volume) == content);
}
