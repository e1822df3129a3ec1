//! A clean stop leaves clean superblocks, whatever ran before: a first resync, writes, a resync that was stopped
//! half-way.

use crate::common::small_array::three_members;
use crate::common::{Memory, Still, named, run, yield_once};
use plexum_block::buf::BufPool;
use plexum_block::device::Fua;
use plexum_block::wait::join;
use plexum_engine::upkeep::Pace;
use plexum_engine::volume::Volume;
use plexum_layout::{Organisation, Raid5Layout};
use plexum_md::create::{NewArray, Start, plan, write_new};
use plexum_md::open::{OpenRequest, examine, open_volume};

const DEVICE_BYTES: u64 = 6 << 20;

fn new_array(organisation: Organisation, has_bitmap: bool) -> Vec<(String, Memory)> {
    let new = NewArray {
        has_bitmap,
        region_bytes: Some(65_536),
        start: Start::Resync,
        ..three_members(organisation, DEVICE_BYTES)
    };
    let plan = plan(&new).unwrap();
    let memory = |seed: u8| {
        Memory::new(
            (0..DEVICE_BYTES)
                .map(|at| (at as u8).wrapping_mul(seed))
                .collect(),
        )
    };
    let devices: Vec<Option<Memory>> = [3, 5, 7].map(|seed| Some(memory(seed))).into();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    named(devices.into_iter().flatten())
}

fn open(devices: &[(String, Memory)]) -> Volume<Memory, Still> {
    let request = OpenRequest::default();
    run(open_volume(
        devices.to_vec(),
        Still::default(),
        BufPool::new(1 << 20),
        request,
    ))
    .unwrap()
    .0
}

fn expect_clean(devices: &[(String, Memory)]) {
    for (name, device) in devices {
        let examined = run(examine(device, &BufPool::new(0), 0, name)).unwrap();
        assert_eq!(
            examined.superblock.resync_offset_sectors, None,
            "{name} is clean"
        );
    }
}

#[test]
fn after_a_first_resync_and_writes() {
    for organisation in [
        Organisation::Raid1,
        Organisation::Raid5(Raid5Layout::LeftSymmetric),
    ] {
        for has_bitmap in [false, true] {
            let devices = new_array(organisation, has_bitmap);
            let volume = open(&devices);
            let work = async {
                let data = BufPool::new(0).copy_of(&[9; 4096]).freeze();
                volume.write(8192, data, Fua::No).await.unwrap();
                volume.resynced().await;
                volume.stop().await.unwrap();
            };
            run(join(volume.run_background(), work));
            expect_clean(&devices);
            let again = open(&devices);
            assert_eq!(again.status().doubtful_regions.0, 0);
            assert_eq!(run(again.read(8192, 4096)).unwrap().to_vec(), [9; 4096]);
        }
    }
}

#[test]
fn after_a_resync_that_was_stopped_half_way_and_continued() {
    for has_bitmap in [false, true] {
        let devices = new_array(Organisation::Raid5(Raid5Layout::LeftSymmetric), has_bitmap);
        let volume = open(&devices);
        // Members in memory never wait: the ceiling makes the resync give others a turn.
        let slow = Pace {
            ceiling_bytes_per_s: 1 << 20,
            ..Pace::default()
        };
        volume.set_pace(slow);
        let stop_early = async {
            while volume.status().doubtful_regions.0 > 20 {
                yield_once().await;
            }
            volume.stop().await.unwrap();
        };
        run(join(volume.run_background(), stop_early));
        let half = run(examine(&devices[0].1, &BufPool::new(0), 0, "m0")).unwrap();
        assert!(
            half.superblock
                .resync_offset_sectors
                .is_some_and(|at| at > 0),
            "it says how far it got"
        );
        let volume = open(&devices);
        let left = volume.status().doubtful_regions.0;
        assert!(
            left > 0 && left <= 21,
            "it goes on where it stopped: {left}"
        );
        let finish = async {
            volume.resynced().await;
            volume.stop().await.unwrap();
        };
        run(join(volume.run_background(), finish));
        expect_clean(&devices);
    }
}
