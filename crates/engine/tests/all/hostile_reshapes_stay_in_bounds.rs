//! Superblocks of half-done reshapes with fields that nobody wrote: refused with nothing written, or carried out inside
//! of the members. Nothing panics and nothing goes on for ever, whatever stands there.

use crate::common::{Memory, Still, named, run};
use plexum_block::buf::BufPool;
use plexum_block::wait::join;
use plexum_format::md::{MdVersion, Reshape, Superblock};
use plexum_layout::{Level, Organisation, Raid5Layout};
use plexum_md::create::{NewArray, Start, plan as plan_new, write_new};
use plexum_md::open::{OpenRequest, examine, open_pieces, open_volume};
use plexum_md::reshape::{Beginning, LogNow, Wish, open_reshaping, plan, situation};

const DEVICE_BYTES: u64 = 3 << 20;
const MEMBERS: usize = 5;

/// Images that are tried.
const ROUNDS: u64 = 450;

fn pool() -> BufPool {
    BufPool::new(1 << 20)
}

fn request() -> OpenRequest {
    let mut request = OpenRequest::default();
    request.assemble.run_degraded = true;
    request.volume.thresholds.migration_step_bytes = 1;
    request
}

fn superblock(device: &Memory) -> Superblock {
    run(examine(device, &pool(), 0, "m")).unwrap().superblock
}

fn put(device: &Memory, own: &Superblock) {
    let bytes = own.encode();
    let at = (own.super_offset_sectors * 512) as usize;
    device.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
}

/// A RAID-5 whose superblocks say that a reshape has begun.
fn half_way(wish: &Wish) -> Vec<Memory> {
    let new = NewArray {
        version: MdVersion::V12,
        organisation: Organisation::Raid5(Raid5Layout::LeftSymmetric),
        strip_bytes: 4096,
        size_bytes: Some(64 << 10),
        members: vec![Some(DEVICE_BYTES); 4],
        spares: vec![DEVICE_BYTES; MEMBERS - 4],
        write_mostly: Vec::new(),
        stored_name: "test".to_owned(),
        uuid: [7; 16],
        identities: (1..=MEMBERS as u8).map(|number| [number; 16]).collect(),
        wall_seconds: 1,
        has_bitmap: true,
        region_bytes: Some(16_384),
        log_bytes_max: None,
        has_ppl: false,
        is_write_back: false,
        start: Start::Agreeing,
    };
    let devices: Vec<Memory> = (0..MEMBERS)
        .map(|_| Memory::new(vec![0; DEVICE_BYTES as usize]))
        .collect();
    let some: Vec<Option<Memory>> = devices.iter().cloned().map(Some).collect();
    run(write_new(&plan_new(&new).unwrap(), &some, &pool())).unwrap();
    let superblocks: Vec<Superblock> = devices.iter().map(superblock).collect();
    let superblocks: Vec<&Superblock> = superblocks.iter().collect();
    let plan = plan(&situation(&superblocks, 16, LogNow::Off).unwrap(), wish).unwrap();
    let beginning = Beginning::of(&plan).unwrap();
    let members = named(devices.clone());
    let opened = open_reshaping(
        members,
        Still::default(),
        pool(),
        request(),
        Some(&beginning),
    );
    let (moving, _) = run(opened).unwrap();
    let stopped = join(async { moving.stop().await.unwrap() }, moving.run());
    run(stopped);
    devices
}

/// Numbers that follow from a seed alone.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33 ^ self.0 << 20
    }

    /// Small, at a border, huge, or anything.
    fn sectors(&mut self, near: u64) -> u64 {
        match self.next() % 6 {
            0 => self.next() % 64,
            1 => near.wrapping_add(self.next() % 33).wrapping_sub(16),
            2 => u64::MAX - self.next() % 3,
            3 => 1 << (self.next() % 64),
            4 => self.next() % (DEVICE_BYTES / 512),
            _ => self.next(),
        }
    }
}

/// Changes one field.
fn spoil(own: &mut Superblock, numbers: &mut Numbers) {
    let field = numbers.next() % 14;
    let small = numbers.next() as u32 % 70;
    let Some(reshape) = &mut own.reshape else {
        return;
    };
    let Reshape {
        position_sectors, ..
    } = *reshape;
    match field {
        0 | 1 => reshape.position_sectors = numbers.sectors(position_sectors),
        2 => reshape.member_count_change = small as i32 - 35,
        3 => reshape.new_level = small as i32 - 10,
        4 => reshape.new_layout = small,
        5 => reshape.new_strip_sectors = numbers.sectors(8) as u32,
        6 | 7 => reshape.new_offset_sectors = Some(numbers.sectors(16) as i32),
        8 => reshape.is_marked_backwards = !reshape.is_marked_backwards,
        9 => own.member_count = small,
        10 => own.data_offset_sectors = numbers.sectors(own.data_offset_sectors),
        11 => own.data_size_sectors = numbers.sectors(own.data_size_sectors),
        12 => own.component_sectors = numbers.sectors(own.component_sectors),
        _ => own.rebuild_offset_sectors = Some(numbers.sectors(8)),
    }
}

/// Copies of the members with other superblocks: one of them, or all alike.
fn spoilt(devices: &[Memory], numbers: &mut Numbers) -> Vec<Memory> {
    let copies: Vec<Memory> = devices
        .iter()
        .map(|device| Memory::new(device.bytes.borrow().clone()))
        .collect();
    let is_all = !numbers.next().is_multiple_of(4);
    let only = numbers.next() as usize % MEMBERS;
    let count = 1 + numbers.next() % 3;
    let start = numbers.0;
    for (index, device) in copies.iter().enumerate() {
        if !is_all && index != only {
            continue;
        }
        numbers.0 = start;
        let mut own = superblock(device);
        (0..count).for_each(|_| spoil(&mut own, numbers));
        if own.check_encodable().is_ok() {
            put(device, &own);
        }
    }
    copies
}

#[test]
fn they_are_refused_with_nothing_written_or_carried_out() {
    let wishes = [
        Wish {
            member_count: Some(5),
            ..Wish::default()
        },
        Wish {
            level: Some(Level::Raid6),
            ..Wish::default()
        },
        Wish {
            layout: Some("right-asymmetric".to_owned()),
            ..Wish::default()
        },
    ];
    let (mut refused, mut ended) = (0, 0);
    for (number, wish) in wishes.iter().enumerate() {
        let devices = half_way(wish);
        for round in 0..ROUNDS / wishes.len() as u64 {
            let mut numbers = Numbers(round << 8 | number as u64);
            let members = spoilt(&devices, &mut numbers);
            let before: Vec<u64> = members.iter().map(|member| member.writes.get()).collect();
            let is_untouched = || {
                members
                    .iter()
                    .zip(&before)
                    .all(|(member, writes)| member.writes.get() == *writes)
            };
            let opened = open_volume(named(members.clone()), Still::default(), pool(), request());
            drop(run(opened)); // opening alone writes nothing
            let mut read_only = request();
            read_only.assemble.read_only = true;
            let pieces = open_pieces(
                named(members.clone()),
                Still::default(),
                pool(),
                read_only,
                None,
            );
            drop(run(pieces));
            let opened = open_reshaping(
                named(members.clone()),
                Still::default(),
                pool(),
                request(),
                None,
            );
            let opened = run(opened);
            assert!(
                is_untouched(),
                "wish {number}, round {round}: it was only opened"
            );
            let Ok((moving, _)) = opened else {
                refused += 1;
                continue;
            };
            let size_bytes = moving.size_bytes();
            run(join(moving.run(), async {
                for at in [0, size_bytes / 2, size_bytes.saturating_sub(512)] {
                    let _ = moving
                        .read(at / 512 * 512, 512.min(size_bytes) as usize)
                        .await;
                }
                moving.ended().await;
                let _ = moving.stop().await;
            }));
            ended += u64::from(moving.has_ended());
        }
    }
    assert!(refused > ROUNDS / 4, "{refused} refused");
    assert!(ended > ROUNDS / 10, "{ended} ended");
}
