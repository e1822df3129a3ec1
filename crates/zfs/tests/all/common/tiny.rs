//! Tiny pools, opened from memory.

use std::cell::RefCell;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError, check_range};
use plexum_testkit::block_on;
use plexum_testkit::tiny_pool::{DATA, Pointer, SIZE_BYTES, Tiny};
use plexum_zfs::{NamedDevice, OpenOptions, Pool, ZfsError, find_members};

/// A member in memory.
#[derive(Clone)]
pub struct Memory(pub Rc<RefCell<Vec<u8>>>);

impl Device for Memory {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::plain(self.0.borrow().len() as u64)
    }
    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        check_range(&self.info(), offset_bytes, buf.len() as u64)?;
        let start = offset_bytes as usize;
        let length = buf.len();
        buf.copy_from_slice(&self.0.borrow()[start..start + length]);
        Ok(buf)
    }
    async fn write(&self, _: u64, _: Buf, _: Fua) -> Result<(), IoError> {
        panic!("a member of a pool was written to");
    }
    async fn flush(&self) -> Result<(), IoError> {
        panic!("a member of a pool was flushed");
    }
}

pub fn open(member: Vec<u8>) -> Result<Pool<Memory>, ZfsError> {
    open_all(vec![member])
}

pub fn open_all(members: Vec<Vec<u8>>) -> Result<Pool<Memory>, ZfsError> {
    open_with(members, &OpenOptions::default())
}

pub fn open_with(members: Vec<Vec<u8>>, options: &OpenOptions) -> Result<Pool<Memory>, ZfsError> {
    let buffers = BufPool::new(1 << 20);
    let devices = members
        .into_iter()
        .enumerate()
        .map(|(n, member)| NamedDevice {
            name: format!("member{n}"),
            device: Memory(Rc::new(RefCell::new(member))),
        });
    block_on(async {
        let (members, _) = find_members(devices.collect(), &buffers).await;
        Pool::open(members, options).await
    })
}

/// The members of a finished RAID-Z pool, column by column and byte by byte: zfs-raidz.md section 2, without the
/// engine's geometry and kernels.
pub fn spread(tiny: &mut Tiny, root: Pointer) -> Vec<Vec<u8>> {
    let (width, parities, sector) = (tiny.width, tiny.parities, 1 << tiny.ashift);
    let mut members: Vec<Vec<u8>> = (0..width)
        .map(|slot| {
            tiny.slot = slot as u64;
            tiny.finish(root);
            let mut member = tiny.member.clone();
            member[DATA..SIZE_BYTES - (512 << 10)].fill(0);
            member
        })
        .collect();
    for (at, length) in &tiny.blocks {
        let sectors = length.div_ceil(sector);
        let mut bytes = tiny.member[DATA + at..DATA + at + length].to_vec();
        bytes.resize(sectors * sector, 0);
        let data = width - parities;
        let (full, rest) = (sectors / data, sectors % data);
        let columns = if full == 0 { rest + parities } else { width };
        let rows = sectors.div_ceil(data);
        let mut contents = vec![vec![0; rows * sector]; parities];
        for column in 0..columns - parities {
            let length = (full + usize::from(column < rest)) * sector;
            let column: Vec<u8> = bytes.drain(..length).collect();
            for (power, parity) in contents[..parities].iter_mut().enumerate() {
                for (n, byte) in parity.iter_mut().enumerate() {
                    (0..power)
                        .for_each(|_| *byte = *byte << 1 ^ if *byte > 127 { 0x1d } else { 0 });
                    *byte ^= column.get(n).copied().unwrap_or(0);
                }
            }
            contents.push(column);
        }
        // With one parity, its place and that of the first data change from MiB to MiB.
        if parities == 1 && at & (1 << 20) != 0 {
            contents.swap(0, 1);
        }
        for (column, bytes) in contents.iter().enumerate() {
            for (row, bytes) in bytes.chunks(sector).enumerate() {
                let place = at / sector + row * width + column;
                let start = DATA + place / width * sector;
                members[place % width][start..start + sector].copy_from_slice(bytes);
            }
        }
    }
    members
}
