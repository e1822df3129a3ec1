//! Block status: "zero" is said only of what reads as zeroes, and holes of members are found where the organisation
//! allows it.

use crate::common::small_array::three_members;
use crate::common::{Memory, Still, named, run};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Extent, Fua, IoError};
use plexum_engine::volume::Volume;
use plexum_layout::{Organisation, Raid0Layout, Raid5Layout, Raid10Layout};
use plexum_md::create::{NewArray, Start, plan, write_new};
use plexum_md::open::{OpenRequest, open_volume};

const DEVICE_BYTES: u64 = 6 << 20;
const BLOCK: usize = 4096;

/// A device whose holes are its blocks of zeroes.
#[derive(Clone)]
struct Holey(Memory);

impl Device for Holey {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.0.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.0.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.0.flush().await
    }
    async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        let start = usize::try_from(offset_bytes).unwrap();
        let end = start + usize::try_from(length_bytes).unwrap();
        let bytes = self.0.bytes.borrow();
        let mut extents: Vec<Extent> = Vec::new();
        for block in bytes[start..end].chunks(BLOCK) {
            let is_hole = block.iter().all(|byte| *byte == 0);
            let count = extents.len();
            match extents.last_mut() {
                Some(last) if last.is_hole == is_hole => last.length_bytes += block.len() as u64,
                _ if count == extents_max => break,
                _ => extents.push(Extent {
                    length_bytes: block.len() as u64,
                    is_hole,
                    is_zero: is_hole,
                }),
            }
        }
        Ok(extents)
    }
}

fn volume(organisation: Organisation, start: Start) -> Volume<Holey, Still> {
    let new = NewArray {
        start,
        ..three_members(organisation, DEVICE_BYTES)
    };
    let plan = plan(&new).unwrap();
    let blank = || {
        Some(Holey(Memory::new(vec![
            0;
            usize::try_from(DEVICE_BYTES)
                .unwrap()
        ])))
    };
    let devices: Vec<Option<Holey>> = (0..3).map(|_| blank()).collect();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    let named = named(devices.into_iter().flatten());
    let request = OpenRequest::default();
    let pool = BufPool::new(1 << 20);
    run(open_volume(named, Still::default(), pool, request))
        .unwrap()
        .0
}

async fn fill(volume: &Volume<Holey, Still>, start: u64, length: usize) {
    let data = BufPool::new(0).copy_of(&vec![9; length]).freeze();
    volume.write(start, data, Fua::No).await.unwrap();
}

/// All extents of the volume, asked for in calls of at most `extents_max`.
async fn all_extents(volume: &Volume<Holey, Still>, extents_max: usize) -> Vec<Extent> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < volume.size_bytes() {
        let rest = volume.size_bytes() - at;
        let some = volume.extents(at, rest, extents_max).await.unwrap();
        assert!(!some.is_empty() && some.len() <= extents_max);
        at += some.iter().map(|extent| extent.length_bytes).sum::<u64>();
        all.extend(some);
    }
    assert_eq!(at, volume.size_bytes(), "no more than was asked");
    all
}

#[test]
fn every_organisation_without_parity_tells_its_holes() {
    for organisation in [
        Organisation::Linear,
        Organisation::Raid0(Raid0Layout::Alternate),
        Organisation::Raid1,
        Organisation::Raid10(Raid10Layout::near(2)),
        Organisation::Raid10(Raid10Layout::far(2)),
        Organisation::Raid10(Raid10Layout::offset(2)),
    ] {
        let volume = volume(organisation, Start::Agreeing);
        run(async {
            fill(&volume, 8192, 4096).await;
            fill(&volume, 1 << 20, 300_000 / BLOCK * BLOCK).await;
            let last = volume.size_bytes() - 4096;
            fill(&volume, last, 4096).await;
            let length = usize::try_from(volume.size_bytes()).unwrap();
            let content = volume.read(0, length).await.unwrap().to_vec();
            for extents_max in [1, 2, 1000] {
                let mut at = 0;
                for extent in all_extents(&volume, extents_max).await {
                    let end = at + usize::try_from(extent.length_bytes).unwrap();
                    for block in content[at..end].chunks(BLOCK) {
                        let is_blank = block.iter().all(|byte| *byte == 0);
                        assert_eq!(extent.is_zero, is_blank, "{organisation} at {at}");
                    }
                    at = end;
                }
            }
        });
    }
}

#[test]
fn parity_tells_data_and_so_does_a_mirror_in_doubt() {
    for (organisation, start) in [
        (
            Organisation::Raid5(Raid5Layout::LeftSymmetric),
            Start::Agreeing,
        ),
        (Organisation::Raid1, Start::Resync),
    ] {
        let volume = volume(organisation, start);
        let extents = run(all_extents(&volume, 100));
        assert!(
            extents
                .iter()
                .all(|extent| !extent.is_zero && !extent.is_hole),
            "{organisation}: {extents:?}"
        );
    }
}
