//! In the steady state no request allocates: what it needs lies in its own future, or comes from a pool.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // tests

mod common;

use common::small_array::three_members;
use common::{Memory, Still, named, run};
use plexum_block::buf::BufPool;
use plexum_block::device::Fua;
use plexum_engine::volume::Volume;
use plexum_layout::{Organisation, Raid0Layout, Raid5Layout, Raid6Layout, Raid10Layout};
use plexum_md::create::{NewArray, plan, write_new};
use plexum_md::open::{OpenRequest, open_volume};

const DEVICE_BYTES: u64 = 6 << 20;
const REQUEST_BYTES: usize = 4096;

fn volume(organisation: Organisation, member_count: u8) -> Volume<Memory, Still> {
    let has_redundancy = !matches!(organisation, Organisation::Raid0(_));
    let new = NewArray {
        members: vec![Some(DEVICE_BYTES); usize::from(member_count)],
        identities: (1..=member_count).map(|number| [number; 16]).collect(),
        has_bitmap: has_redundancy,
        ..three_members(organisation, DEVICE_BYTES)
    };
    let plan = plan(&new).unwrap();
    let memory = || Some(Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()]));
    let devices: Vec<Option<Memory>> = (0..member_count).map(|_| memory()).collect();
    let pool = BufPool::new(64 << 20); // so large that the thread has buffers at hand
    run(write_new(&plan, &devices, &pool)).unwrap();
    let named = named(devices.into_iter().flatten());
    let request = OpenRequest::default();
    run(open_volume(named, Still::default(), pool, request))
        .unwrap()
        .0
}

/// Allocations of so many requests, which go over the volume in strides that meet every strip and member.
fn allocations(volume: &Volume<Memory, Still>, count: u64, is_write: bool) -> u64 {
    let data = BufPool::new(0).copy_of(&[5; REQUEST_BYTES]).freeze();
    let places = volume.size_bytes() / REQUEST_BYTES as u64;
    let requests = async {
        for number in 0..count {
            let at = number * 17 % places * REQUEST_BYTES as u64;
            if is_write {
                volume.write(at, data.clone(), Fua::No).await.unwrap();
            } else {
                volume.read(at, REQUEST_BYTES).await.unwrap();
            }
        }
    };
    let counted = allocation_counter::measure(|| run(requests));
    counted.count_total
}

#[test]
fn twice_as_many_requests_allocate_no_more_than_half_of_them() {
    let organisations = [
        ("RAID-0", Organisation::Raid0(Raid0Layout::Original), 4),
        ("RAID-1", Organisation::Raid1, 2),
        ("RAID-10", Organisation::Raid10(Raid10Layout::near(2)), 4),
        ("RAID-5", Organisation::Raid5(Raid5Layout::LeftSymmetric), 4),
        (
            "RAID-5, read-modify-write",
            Organisation::Raid5(Raid5Layout::LeftSymmetric),
            6,
        ),
        ("RAID-6", Organisation::Raid6(Raid6Layout::LeftSymmetric), 6),
    ];
    for (name, organisation, member_count) in organisations {
        let volume = volume(organisation, member_count);
        for is_write in [true, false] {
            allocations(&volume, 500, is_write); // from here on pools and lists have their size
            let some = allocations(&volume, 100, is_write);
            let twice = allocations(&volume, 200, is_write);
            assert!(
                some > 0,
                "the waker of each run is counted, so counting works"
            );
            let per_request = (twice - some) as f64 / 100.0;
            assert_eq!(some, twice, "{name}, write {is_write}: {per_request} each");
        }
    }
}
