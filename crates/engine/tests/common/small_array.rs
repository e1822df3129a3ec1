//! A small RAID-5 in memory, opened, written, dropped like a crash, and changed behind its back.

use super::{Memory, Still, named, run};
use plexum_block::buf::BufPool;
use plexum_block::device::Fua;
use plexum_engine::volume::{FormerMember, NewMember, Volume};
use plexum_format::md::MdVersion;
use plexum_layout::{Organisation, Raid5Layout};
use plexum_md::assemble::{Assembly, Options};
use plexum_md::create::{NewArray, Plan, Start, plan, write_new};
use plexum_md::open::{OpenError, OpenRequest, examine, open_volume};

/// Size of a member.
pub const DEVICE_BYTES: u64 = 6 << 20;
/// Size of a strip.
pub const STRIP_BYTES: u64 = 65_536;
/// What a test reads and writes at once.
pub const BLOCK: usize = 4096;

/// What closes the write hole.
#[derive(Clone, Copy, PartialEq)]
pub enum Keeps {
    Log,
    WriteBackLog,
    Ppl,
}

/// An array of three members of this size with a bitmap, and strips where the organisation has them; members agree.
pub fn three_members(organisation: Organisation, device_bytes: u64) -> NewArray {
    let has_strips = !matches!(organisation, Organisation::Raid1 | Organisation::Linear);
    NewArray {
        version: MdVersion::V12,
        organisation,
        strip_bytes: if has_strips { STRIP_BYTES } else { 0 },
        size_bytes: None,
        members: vec![Some(device_bytes); 3],
        spares: Vec::new(),
        write_mostly: Vec::new(),
        stored_name: "test".to_owned(),
        uuid: [7; 16],
        identities: vec![[1; 16], [2; 16], [3; 16]],
        wall_seconds: 1,
        has_bitmap: true,
        region_bytes: None,
        log_bytes_max: None,
        has_ppl: false,
        is_write_back: false,
        start: Start::Agreeing,
    }
}

/// A RAID-5 of three members, all zero.
pub fn new_array(version: MdVersion, keeps: Keeps) -> (Plan, Vec<(String, Memory)>) {
    let raid5 = Organisation::Raid5(Raid5Layout::LeftSymmetric);
    let new = NewArray {
        version,
        has_bitmap: keeps != Keeps::Ppl,
        region_bytes: (keeps != Keeps::Ppl).then_some(65_536),
        log_bytes_max: (keeps != Keeps::Ppl).then_some(1 << 20),
        has_ppl: keeps == Keeps::Ppl,
        is_write_back: keeps == Keeps::WriteBackLog,
        ..three_members(raid5, DEVICE_BYTES)
    };
    let plan = plan(&new).unwrap();
    let memory = || Some(Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()]));
    let devices: Vec<Option<Memory>> = (0..3).map(|_| memory()).collect();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    (plan, named(devices.into_iter().flatten()))
}

/// Opens it, degraded if it must be.
pub fn open(devices: &[(String, Memory)]) -> Result<(Volume<Memory, Still>, Assembly), OpenError> {
    open_as(
        devices,
        Options {
            run_degraded: true,
            ..Options::default()
        },
    )
}

/// Opens it with these options.
pub fn open_as(
    devices: &[(String, Memory)],
    assemble: Options,
) -> Result<(Volume<Memory, Still>, Assembly), OpenError> {
    let request = OpenRequest {
        assemble,
        ..OpenRequest::default()
    };
    let pool = BufPool::new(1 << 20);
    run(open_volume(
        devices.to_vec(),
        Still::default(),
        pool,
        request,
    ))
}

/// Writes one block of a byte.
pub fn write(volume: &Volume<Memory, Still>, at: u64, byte: u8) {
    let data = BufPool::new(0).copy_of(&[byte; BLOCK]).freeze();
    run(volume.write(at, data, Fua::No)).unwrap();
}

/// Reads one block.
pub fn read(volume: &Volume<Memory, Still>, at: u64) -> Vec<u8> {
    run(volume.read(at, BLOCK)).unwrap().to_vec()
}

/// The data of the first row's first block on its members: slot 0 holds data 0, slot 1 data 1, slot 2 parity.
pub fn place(devices: &[(String, Memory)], slot: usize) -> usize {
    let (name, device) = &devices[slot];
    let examined = run(examine(device, &BufPool::new(0), 0, name)).unwrap();
    usize::try_from(examined.superblock.data_offset_sectors * 512).unwrap()
}

/// Changes that block behind the volume's back.
pub fn poke(devices: &[(String, Memory)], slot: usize, byte: u8) {
    let at = place(devices, slot);
    devices[slot].1.bytes.borrow_mut()[at..at + BLOCK].fill(byte);
}

/// A device that is to join; `former`: what it was here before.
pub fn new_member<D: Clone>(name: &str, device: &D, former: Option<FormerMember>) -> NewMember<D> {
    NewMember {
        name: name.to_owned(),
        device: device.clone(),
        identity: [9; 16],
        is_write_mostly: false,
        former,
    }
}
