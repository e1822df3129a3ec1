//! The bitmap is turned on and off under a served volume: what a start after a crash at any write believes is never too
//! little.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::small_array::{new_member, three_members};
use crate::common::{Memory, Still, named, run, yield_once};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::ranges::RangeSet;
use plexum_block::wait::join;
use plexum_engine::volume::Volume;
use plexum_engine::volume::{BitmapWish, ControlError, FormerMember};
use plexum_format::md::MdVersion;
use plexum_layout::{Organisation, Raid5Layout};
use plexum_md::assemble::Options;
use plexum_md::create::{NewArray, plan, write_new};
use plexum_md::open::{OpenRequest, examine, open_volume};

const DEVICE_BYTES: u64 = 6 << 20;
const ON: BitmapWish = BitmapWish::Internal { region_bytes: None };

/// A device whose power goes with the last allowed write of all of them.
#[derive(Clone)]
struct Fused {
    memory: Memory,
    writes_left: Rc<Cell<u64>>,
    turns: usize,
}

impl Device for Fused {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let left = self.writes_left.get();
        self.writes_left.set(left.saturating_sub(1));
        if left == 0 {
            return Err(IoError::Gone);
        }
        // Others get their turns meanwhile, members of different names a different number of them.
        for _ in 0..self.turns {
            yield_once().await;
        }
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.memory.flush().await
    }
}

type Devices = Vec<(String, Fused)>;

fn new_array(version: MdVersion, organisation: Organisation, has_bitmap: bool) -> Devices {
    let count = if organisation == Organisation::Raid1 {
        2
    } else {
        3
    };
    let new = NewArray {
        version,
        members: vec![Some(DEVICE_BYTES); count],
        has_bitmap,
        ..three_members(organisation, DEVICE_BYTES)
    };
    let plan = plan(&new).unwrap();
    let writes_left = Rc::new(Cell::new(u64::MAX));
    let blank = |slot: usize| Fused {
        turns: 1 + 5 * slot,
        memory: Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()]),
        writes_left: Rc::clone(&writes_left),
    };
    let devices: Vec<Option<Fused>> = (0..count).map(|slot| Some(blank(slot))).collect();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    named(devices.into_iter().flatten())
}

fn open(devices: &[(String, Fused)]) -> Volume<Fused, Still> {
    let request = OpenRequest {
        assemble: Options {
            run_degraded: true,
            ..Options::default()
        },
        ..OpenRequest::default()
    };
    let pool = BufPool::new(1 << 20);
    run(open_volume(
        devices.to_vec(),
        Still::default(),
        pool,
        request,
    ))
    .unwrap()
    .0
}

async fn write(volume: &Volume<Fused, Still>, at: u64, value: u8) -> Result<(), IoError> {
    let data = BufPool::new(0).copy_of(&[value; 4096]).freeze();
    volume.write(at, data, Fua::No).await
}

fn has_bitmap(devices: &[(String, Fused)]) -> Vec<bool> {
    let look = |(name, device): &(String, Fused)| {
        let examined = run(examine(device, &BufPool::new(0), 0, name)).unwrap();
        let names_it = examined.superblock.bitmap_offset_sectors.is_some();
        assert_eq!(
            names_it,
            examined.bitmap.is_some(),
            "{name}: named and there"
        );
        names_it
    };
    devices.iter().map(look).collect()
}

#[test]
fn it_is_on_all_members_or_on_none_in_every_version() {
    for version in [
        MdVersion::V12,
        MdVersion::V11,
        MdVersion::V10,
        MdVersion::V090,
    ] {
        let devices = new_array(version, Organisation::Raid1, false);
        let volume = open(&devices);
        run(async {
            write(&volume, 0, 1).await.unwrap();
            assert!(volume.set_bitmap(ON).await.unwrap());
            assert_eq!(has_bitmap(&devices), [true, true], "{version:?}");
            assert!(!volume.set_bitmap(ON).await.unwrap(), "nothing to do");
            write(&volume, 0, 2).await.unwrap();
            assert!(volume.set_bitmap(BitmapWish::None).await.unwrap());
            assert_eq!(has_bitmap(&devices), [false, false], "{version:?}");
            write(&volume, 0, 3).await.unwrap();
            volume.stop().await.unwrap();
        });
        let again = open(&devices);
        assert_eq!(run(again.read(0, 4096)).unwrap().to_vec(), [3; 4096]);
    }
}

#[test]
fn after_a_crash_only_the_marked_regions_are_in_doubt_with_it_and_all_without() {
    let devices = new_array(MdVersion::V12, Organisation::Raid1, false);
    let volume = open(&devices);
    let wish = BitmapWish::Internal {
        region_bytes: Some(131_072),
    };
    run(async {
        volume.set_bitmap(wish).await.unwrap();
        write(&volume, 1 << 20, 5).await.unwrap();
    });
    drop(volume); // no stop: a crash
    let volume = open(&devices);
    let status = volume.status();
    assert_eq!(status.bitmap_region_bytes, Some(131_072));
    assert_eq!(status.doubtful_regions.0, 1);
    run(volume.set_bitmap(BitmapWish::None)).unwrap();
    drop(volume);
    let (doubtful, all) = open(&devices).status().doubtful_regions;
    assert_eq!(doubtful, all);
}

#[test]
fn doubt_of_a_resync_that_runs_becomes_bits() {
    let devices = new_array(MdVersion::V12, Organisation::Raid1, false);
    let volume = open(&devices);
    run(write(&volume, 0, 1)).unwrap();
    drop(volume);
    let volume = open(&devices); // everything is in doubt
    run(volume.set_bitmap(ON)).unwrap();
    drop(volume);
    let (doubtful, all) = open(&devices).status().doubtful_regions;
    assert_eq!(doubtful, all);
}

/// Regions of the member data in which the members differ, of two members' bytes.
fn differing(devices: &[(String, Fused)], region_bytes: usize) -> Vec<usize> {
    let start = |device: &Fused| {
        let examined = run(examine(device, &BufPool::new(0), 0, "")).unwrap();
        usize::try_from(examined.superblock.data_offset_sectors * 512).unwrap()
    };
    let from = start(&devices[0].1);
    let (a, b) = (
        devices[0].1.memory.bytes.borrow(),
        devices[1].1.memory.bytes.borrow(),
    );
    let (a, b) = (
        a[from..].chunks(region_bytes),
        b[from..].chunks(region_bytes),
    );
    let pairs = a.zip(b).enumerate();
    pairs
        .filter(|(_, (a, b))| a != b)
        .map(|(index, _)| index)
        .collect()
}

#[test]
fn a_crash_at_any_write_leaves_no_difference_without_doubt() {
    for (was_on, wish) in [(false, ON), (true, BitmapWish::None)] {
        let mut differences = 0;
        for writes in 0.. {
            let devices = new_array(MdVersion::V12, Organisation::Raid1, was_on);
            let volume = open(&devices);
            let fuse = Rc::clone(&devices[0].1.writes_left);
            fuse.set(writes);
            let result = run(async {
                write(&volume, 0, 1).await?;
                let switch = async { volume.set_bitmap(wish).await.map_err(|_| IoError::Failed) };
                let writes = async {
                    for at in 1..12 {
                        write(&volume, at << 17, 2).await?;
                    }
                    Ok(())
                };
                let (switched, written) = join(switch, writes).await;
                switched.and(written)
            });
            drop(volume);
            fuse.set(u64::MAX);
            let volume = open(&devices);
            for region in differing(&devices, 65_536) {
                differences += 1;
                let range = region as u64 * 65_536..(region as u64 + 1) * 65_536;
                assert!(
                    volume.is_in_doubt(&range),
                    "{wish:?}, {writes} writes: {range:?} differs and nobody knows"
                );
            }
            if result.is_ok() {
                break;
            }
        }
        assert!(differences > 0, "{wish:?}: some crash tore a write");
    }
}

#[test]
fn off_is_refused_while_a_member_is_away_and_on_brings_nobody_back_by_half() {
    let devices = new_array(
        MdVersion::V12,
        Organisation::Raid5(Raid5Layout::LeftSymmetric),
        true,
    );
    let volume = open(&devices);
    run(async {
        let member = volume.status().members[2].id;
        volume.fail(member).await.unwrap();
        let off = volume.set_bitmap(BitmapWish::None).await;
        assert_eq!(off, Err(ControlError::NotRedundant));
    });
    let devices = new_array(
        MdVersion::V12,
        Organisation::Raid5(Raid5Layout::LeftSymmetric),
        false,
    );
    let volume = open(&devices);
    run(async {
        let member = volume.status().members[2].id;
        volume.fail(member).await.unwrap();
        write(&volume, 0, 7).await.unwrap(); // the bitmap that comes later does not know of this
        let gone = run(examine(&devices[2].1, &BufPool::new(0), 2, "m2")).unwrap();
        volume.remove(member).await.unwrap();
        volume.set_bitmap(ON).await.unwrap();
        let former = FormerMember {
            slot: 2,
            event_count: gone.superblock.events.0,
            was_active: true,
            bad_ranges: RangeSet::new(),
            data_start_bytes: gone.superblock.data_offset_sectors * 512,
            geometry: Some(volume.geometry().clone()),
        };
        let back = new_member("m2", &devices[2].1, Some(former));
        let refused = volume.add(back, true).await;
        assert_eq!(refused.map(|_| ()), Err(ControlError::WrongState));
    });
}

#[test]
fn writes_that_come_meanwhile_wait_and_are_marked() {
    let devices = new_array(MdVersion::V12, Organisation::Raid1, false);
    let volume = open(&devices);
    run(join(
        async { assert!(volume.set_bitmap(ON).await.unwrap()) },
        async { write(&volume, 3 << 20, 4).await.unwrap() },
    ));
    drop(volume);
    assert_eq!(open(&devices).status().doubtful_regions.0, 1);
}

#[test]
fn a_bitmap_that_would_reach_into_the_stripe_log_is_refused() {
    let device_bytes = 512 << 20; // zeroes that nobody touches take no memory
    let new = NewArray {
        has_bitmap: false,
        ..three_members(
            Organisation::Raid5(Raid5Layout::LeftSymmetric),
            device_bytes,
        )
    };
    let plan = plan(&new).unwrap();
    let memory = || Memory::new(vec![0; usize::try_from(device_bytes).unwrap()]);
    let devices: Vec<Option<Memory>> = (0..3).map(|_| Some(memory())).collect();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    for device in devices.iter().flatten() {
        // As mdadm makes members without a bad-block log: nothing but the ring ends the room of a bitmap.
        let mut superblock = run(examine(device, &BufPool::new(0), 0, "m"))
            .unwrap()
            .superblock;
        superblock.bad_block_log = None;
        let bytes = superblock.encode();
        let at = usize::try_from(superblock.super_offset_sectors * 512).unwrap();
        device.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    let named = named(devices.into_iter().flatten());
    let request = OpenRequest::default();
    let pool = BufPool::new(1 << 20);
    let opened = open_volume(named, Still::default(), pool, request);
    let volume = run(opened).unwrap().0;
    run(async {
        let fine = BitmapWish::Internal {
            region_bytes: Some(512),
        };
        assert!(volume.set_log(true).await.unwrap());
        let refused = volume.set_bitmap(fine).await.unwrap_err();
        assert!(refused.to_string().contains("stripe log"), "{refused}");
        assert!(volume.set_bitmap(ON).await.unwrap(), "larger regions fit");
    });
}
