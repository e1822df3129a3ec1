//! Arrays of Linux md use more of their members, or less: data stay, what is new is made to agree, and no write is the
//! wrong one to be the last before a crash.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Memory, Still, named, run};
use crate::reshapes::{
    Case, Cut, DEVICE_BYTES, LEFT_SYMMETRIC, MEMBER_BYTES, STRIP_BYTES, copies, examined, filled,
    grown, images, pattern, plain, pool, read_all, request, stopped,
};
use plexum_block::device::Fua;
use plexum_block::wait::join;
use plexum_engine::volume::{BitmapWish, Volume};
use plexum_layout::{Organisation, Raid6Layout, Raid10Layout};
use plexum_md::open::{OpenError, open_volume};
use plexum_md::reshape::{
    Alteration, Capacity, LogNow, Resize, SizeWish, data_room_sectors, plan_size, situation,
};

fn cases() -> Vec<Case> {
    let of = |organisation, members, has_bitmap| grown(organisation, members, 0, has_bitmap);
    vec![
        of(Organisation::Raid1, 2, true),
        of(Organisation::Raid4, 3, false),
        of(LEFT_SYMMETRIC, 4, true),
        of(Organisation::Raid6(Raid6Layout::LeftSymmetric), 5, true),
        of(Organisation::Raid10(Raid10Layout::near(2)), 4, true),
        of(Organisation::Raid10(Raid10Layout::near(2)), 3, false),
        of(Organisation::Raid10(Raid10Layout::offset(2)), 4, false),
    ]
}

fn resized(devices: &[Memory], wish: SizeWish) -> Resize {
    let found = examined(devices);
    let superblocks: Vec<_> = found.iter().map(|member| &member.superblock).collect();
    let room = |member: &&plexum_format::md::Superblock| Capacity {
        name: String::new(),
        data_sectors: data_room_sectors(member, DEVICE_BYTES / 512),
    };
    let members: Vec<Capacity> = superblocks.iter().map(room).collect();
    plan_size(
        &situation(&superblocks, 0, LogNow::Off).unwrap(),
        &members,
        wish,
    )
    .unwrap()
}

fn altered(devices: &[Cut], alteration: &Alteration) -> Result<Volume<Cut, Still>, OpenError> {
    let mut asked = request(false);
    asked.alteration = Some(alteration.clone());
    let opened = open_volume(named(devices.to_vec()), Still::default(), pool(), asked);
    run(opened).map(|(volume, _)| volume)
}

/// Both steps, and a bitmap again where there was one; until the power fails. Whether all was done.
fn run_until(devices: &[Memory], case: &Case, change: &Resize, sectors: usize) -> bool {
    let left = Rc::new(Cell::new(sectors));
    let cut = |memory: &Memory| Cut {
        memory: memory.clone(),
        left: Rc::clone(&left),
        goes_at: 0,
    };
    let cut: Vec<Cut> = devices.iter().map(cut).collect();
    for alteration in [Alteration::Room, Alteration::Resize(change.clone())] {
        let is_last = alteration != Alteration::Room;
        let volume = match altered(&cut, &alteration) {
            Ok(volume) => volume,
            Err(OpenError::Io { .. }) => return false,
            Err(error) => panic!("{error}"),
        };
        let has_ended = run(join(
            Box::pin(volume.run_background()),
            Box::pin(async {
                if is_last && case.has_bitmap {
                    let wish = BitmapWish::Internal { region_bytes: None };
                    let _ = volume.set_bitmap(wish).await;
                }
                if is_last {
                    volume.resynced().await;
                }
                volume.stop().await.is_ok()
            }),
        ));
        if !has_ended.1 || left.get() == 0 {
            return false;
        }
    }
    true
}

/// Everything that was there is there, whoever is missing; and copies or parity of what is new agree.
fn check(devices: &[Memory], content: &[u8], sizes: &[u64], place: &str) {
    let whole = plain(devices, true).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(
        sizes.contains(&whole.size_bytes()),
        "{place}: {}",
        whole.size_bytes()
    );
    run(join(whole.run_background(), async {
        whole.resynced().await;
        whole.stop().await.unwrap();
    }));
    drop(whole);
    let whole = plain(devices, true).unwrap();
    assert_eq!(whole.status().doubtful_regions.0, 0, "{place}");
    let all = read_all(&whole);
    let kept = content.len().min(all.len());
    assert!(all[..kept] == content[..kept], "{place}");
    drop(whole);
    for missing in 0..devices.len() {
        let mut fewer = devices.to_vec();
        fewer.remove(missing);
        let degraded = plain(&fewer, true).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(read_all(&degraded) == all, "{place}, without {missing}");
    }
}

#[test]
fn what_is_new_of_the_members_is_used_and_made_to_agree_after_a_crash_at_any_write() {
    for case in cases() {
        let (devices, content) = filled(&case);
        // What lies behind the data was never anybody's: it does not agree.
        let data = examined(&devices)[0].superblock.data_offset_sectors * 512;
        for (index, device) in devices.iter().enumerate() {
            let end = (data + MEMBER_BYTES) as usize;
            device.bytes.borrow_mut()[end..].fill(index as u8 + 1);
        }
        let change = resized(&devices, SizeWish::Max);
        assert!(change.after_bytes > change.before_bytes * 2, "{case:?}");
        let first = images(&devices);
        let mut sectors = 1;
        loop {
            let devices = copies(&first);
            let place = format!("{case:?}, cut after {sectors} sectors");
            let has_ended = run_until(&devices, &case, &change, sectors);
            let sizes = [change.before_bytes, change.after_bytes];
            check(&devices, &content, &sizes[usize::from(has_ended)..], &place);
            if has_ended {
                break;
            }
            sectors += 1 + sectors / 6;
        }
    }
}

#[test]
fn what_was_written_before_is_not_made_to_agree_once_more() {
    for case in cases() {
        let (devices, _) = filled(&case);
        let change = resized(&devices, SizeWish::Max);
        let left = Rc::new(Cell::new(usize::MAX));
        let slow = |memory: &Memory| Cut {
            memory: memory.clone(),
            left: Rc::clone(&left),
            goes_at: 0,
        };
        let slow: Vec<Cut> = devices.iter().map(slow).collect();
        stopped(&altered(&slow, &Alteration::Room).unwrap());
        let volume = altered(&slow, &Alteration::Resize(change.clone())).unwrap();
        let old = change.resync_from_sectors.unwrap() * 512;
        assert!(!volume.is_in_doubt(&(0..old / 2)), "{case:?}");
        assert!(volume.is_in_doubt(&(old..old + STRIP_BYTES)), "{case:?}");
    }
}

#[test]
fn a_bitmap_covers_what_is_new_and_says_what_was_written_there() {
    let case = grown(LEFT_SYMMETRIC, 4, 0, true);
    let (devices, _) = filled(&case);
    let change = resized(&devices, SizeWish::Max);
    assert!(run_until(&devices, &case, &change, usize::MAX / 2));
    let volume = plain(&devices, false).unwrap();
    assert!(volume.status().bitmap_region_bytes.is_some());
    let at = change.after_bytes - 4096;
    let data = pool().copy_of(&pattern(at, 9)).freeze();
    run(volume.write(at, data, Fua::Yes)).unwrap();
    drop(volume); // it crashes
    let volume = plain(&devices, false).unwrap();
    assert_eq!(
        volume.status().doubtful_regions.0,
        1,
        "the last region alone"
    );
}

#[test]
fn less_of_the_members_is_used_at_once_after_a_crash_at_any_write() {
    for case in cases() {
        let (devices, content) = filled(&case);
        let change = resized(&devices, SizeWish::Bytes(MEMBER_BYTES / 2 + 100));
        assert_eq!(change.after_sectors, MEMBER_BYTES / 2 / 512, "{case:?}");
        let first = images(&devices);
        let mut sectors = 1;
        loop {
            let devices = copies(&first);
            let place = format!("{case:?}, cut after {sectors} sectors");
            let has_ended = run_until(&devices, &case, &change, sectors);
            let sizes = [change.before_bytes, change.after_bytes];
            check(&devices, &content, &sizes[usize::from(has_ended)..], &place);
            if has_ended {
                break;
            }
            sectors += 1 + sectors / 6;
        }
    }
}
