//! A writer of tiny pools, for what the recorded ones have not: gangs, loops, refusals, damage below good checksums.

use std::cell::RefCell;
use std::rc::Rc;

use plexum_engine::buf::{Buf, BufMut, BufPool};
use plexum_engine::device::{Device, DeviceInfo, Fua, IoError, check_range};
use plexum_format::zfs::checksum::{fletcher4, seal_embedded};
use plexum_zfs::{NamedDevice, OpenOptions, Pool, ZfsError, find_members};

use super::block_on;

pub const SIZE_BYTES: usize = 8 << 20;
const DATA: usize = 4 << 20;
pub const TXG: u64 = 10;

/// A member in memory.
#[derive(Clone)]
pub struct Memory(pub Rc<RefCell<Vec<u8>>>);

impl Device for Memory {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            size_bytes: self.0.borrow().len() as u64,
            sector_bytes: 512,
            is_rotational: false,
            has_zeroing_trim: false,
        }
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

pub type Pointer = [u8; 128];

/// The pool being written: one member, sectors of 512 bytes.
pub struct Tiny {
    pub member: Vec<u8>,
    /// Plex bytes in use.
    pub used: usize,
    /// 7: Fletcher sums, 2: none, so that damage gets through.
    pub checksum: u64,
    pub plex_kind: &'static str,
    pub features: Vec<&'static str>,
    pub ashift: u32,
    /// 0: in use, 1: exported.
    pub state: u64,
    pub plex_count: u64,
    pub is_expanding: bool,
    pub is_expanded: bool,
}

impl Tiny {
    pub fn new(checksum: u64) -> Self {
        Self {
            member: vec![0; SIZE_BYTES],
            used: 0,
            checksum,
            plex_kind: "file",
            features: Vec::new(),
            ashift: 9,
            state: 1,
            plex_count: 1,
            is_expanding: false,
            is_expanded: false,
        }
    }

    /// Writes bytes, gives their plex offset.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let at = self.used;
        self.member[DATA + at..DATA + at + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len().next_multiple_of(1 << self.ashift);
        at
    }

    /// A block and the pointer to it.
    pub fn block(&mut self, bytes: &[u8], level: u64) -> Pointer {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        let at = self.put(&bytes);
        self.pointer(at, &bytes, level, false)
    }

    pub fn pointer(&self, at: usize, bytes: &[u8], level: u64, is_gang: bool) -> Pointer {
        let sectors = bytes.len() as u64 / 512;
        let prop = (sectors - 1)
            | (sectors - 1) << 16
            | 2 << 32
            | self.checksum << 40
            | 19 << 48
            | level << 56
            | 1 << 63;
        let mut words = [0; 16];
        words[0] = sectors;
        words[1] = (at as u64 / 512) | (u64::from(is_gang) << 63);
        words[6] = prop;
        words[10] = TXG;
        words[12..].copy_from_slice(&fletcher4(bytes));
        pointer_of(&words)
    }

    /// An object set with these dnodes from number 0 on; at most 32.
    pub fn set(&mut self, kind: u64, dnodes: &[Vec<u8>]) -> Pointer {
        let mut block: Vec<u8> = dnodes.concat();
        block.resize(16384, 0);
        let objects = self.block(&block, 0);
        let mut head = dnode(10, 16384, &[objects], 0, &[]);
        head.resize(1024, 0);
        head[704..712].copy_from_slice(&kind.to_le_bytes());
        self.block(&head, 0)
    }

    /// Labels and the root.
    pub fn finish(&mut self, root: Pointer) {
        let mut list = Xdr::default();
        list.number("version", 5000);
        list.text("name", "tiny");
        list.number("state", self.state);
        list.number("txg", TXG);
        list.number("pool_guid", 77);
        list.number("top_guid", 78);
        list.number("guid", 78);
        list.number("vdev_children", self.plex_count);
        let mut tree = Xdr::default();
        tree.text("type", self.plex_kind);
        tree.number("id", 0);
        tree.number("guid", 78);
        tree.number("ashift", u64::from(self.ashift));
        if self.plex_kind == "raidz" {
            tree.number("nparity", 1);
            tree.lists("children", 3);
        }
        if self.is_expanded {
            tree.numbers("raidz_expand_txgs", &[5]);
        }
        tree.number("asize", (SIZE_BYTES - DATA - (512 << 10)) as u64);
        list.list("vdev_tree", &tree);
        let mut features = Xdr::default();
        self.features.iter().for_each(|name| features.present(name));
        list.list("features_for_read", &features);
        for offset in [
            0,
            256 << 10,
            SIZE_BYTES - (512 << 10),
            SIZE_BYTES - (256 << 10),
        ] {
            let area = &mut self.member[offset + (16 << 10)..offset + (128 << 10)];
            area.fill(0);
            let bytes = [
                vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                list.bytes.clone(),
                vec![0; 8],
            ]
            .concat();
            area[..bytes.len()].copy_from_slice(&bytes);
            seal_embedded(area, [(offset + (16 << 10)) as u64, 0, 0, 0]);
            let slot_bytes = 1 << self.ashift.max(10);
            let number = TXG as usize % ((128 << 10) / slot_bytes);
            let at = offset + (128 << 10) + slot_bytes * number;
            let slot = &mut self.member[at..at + slot_bytes];
            for (n, word) in [0x00ba_b10c, 5000, TXG, 155, 1_700_000_000]
                .iter()
                .enumerate()
            {
                slot[8 * n..8 * n + 8].copy_from_slice(&u64::to_le_bytes(*word));
            }
            slot[40..168].copy_from_slice(&root);
            slot[208] = u8::from(self.is_expanding);
            seal_embedded(slot, [at as u64, 0, 0, 0]);
        }
    }

    pub fn open(&self) -> Result<Pool<Memory>, ZfsError> {
        open(self.member.clone())
    }
}

pub fn open(member: Vec<u8>) -> Result<Pool<Memory>, ZfsError> {
    let buffers = BufPool::new(1 << 20);
    let device = Memory(Rc::new(RefCell::new(member)));
    block_on(async {
        let device = NamedDevice {
            name: "member".into(),
            device,
        };
        let (members, _) = find_members(vec![device], &buffers).await;
        Pool::open(members, &OpenOptions::default()).await
    })
}

pub fn pointer_of(words: &[u64; 16]) -> Pointer {
    let mut bytes = [0; 128];
    for (n, word) in words.iter().enumerate() {
        bytes[8 * n..8 * n + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

pub fn dnode(
    kind: u8,
    block_bytes: usize,
    pointers: &[Pointer],
    bonus_kind: u8,
    bonus: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[..8].copy_from_slice(&[kind, 17, 1, pointers.len() as u8, bonus_kind, 0, 0, 1]);
    bytes[8..10].copy_from_slice(&((block_bytes / 512) as u16).to_le_bytes());
    bytes[10..12].copy_from_slice(&(bonus.len() as u16).to_le_bytes());
    bytes[16] = pointers.len() as u8 - 1;
    for (n, pointer) in pointers.iter().enumerate() {
        bytes[64 + 128 * n..192 + 128 * n].copy_from_slice(pointer);
    }
    let at = 64 + 128 * pointers.len();
    bytes[at..at + bonus.len()].copy_from_slice(bonus);
    bytes
}

pub fn zap(entries: &[(&str, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 64 * entries.len().max(1)];
    bytes[..8].copy_from_slice(&((1_u64 << 63) + 3).to_le_bytes());
    for (n, (name, value)) in entries.iter().enumerate() {
        let entry = &mut bytes[64 * (n + 1)..];
        entry[..8].copy_from_slice(&value.to_le_bytes());
        entry[14..14 + name.len()].copy_from_slice(name.as_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// An old znode.
pub fn znode(mode: u64, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; 264];
    bytes[72..80].copy_from_slice(&mode.to_le_bytes());
    bytes[80..88].copy_from_slice(&size.to_le_bytes());
    bytes[96] = 1;
    bytes
}

pub fn dir_bonus(head: u64, children: u64) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    bytes[8..16].copy_from_slice(&head.to_le_bytes());
    bytes[32..40].copy_from_slice(&children.to_le_bytes());
    bytes
}

pub fn dataset_bonus(root: &Pointer) -> Vec<u8> {
    let mut bytes = vec![0; 320];
    bytes[128..256].copy_from_slice(root);
    bytes
}

#[derive(Default, Clone)]
pub struct Xdr {
    pub bytes: Vec<u8>,
}

impl Xdr {
    fn pair(&mut self, name: &str, kind: u32, count: u32) {
        self.bytes.extend([0, 0, 0, 64, 0, 0, 0, 64]);
        self.string(name);
        self.bytes.extend(kind.to_be_bytes());
        self.bytes.extend(count.to_be_bytes());
    }
    fn string(&mut self, text: &str) {
        self.bytes.extend((text.len() as u32).to_be_bytes());
        self.bytes.extend(text.bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
    fn number(&mut self, name: &str, value: u64) {
        self.pair(name, 8, 1);
        self.bytes.extend(value.to_be_bytes());
    }
    fn text(&mut self, name: &str, value: &str) {
        self.pair(name, 9, 1);
        self.string(value);
    }
    fn present(&mut self, name: &str) {
        self.pair(name, 1, 0);
    }
    fn numbers(&mut self, name: &str, values: &[u64]) {
        self.pair(name, 16, values.len() as u32);
        values
            .iter()
            .for_each(|value| self.bytes.extend(value.to_be_bytes()));
    }
    /// Members by their identities from 78 on.
    fn lists(&mut self, name: &str, count: u64) {
        self.pair(name, 20, count as u32);
        for n in 0..count {
            let mut child = Xdr::default();
            child.text("type", "file");
            child.number("guid", 78 + n);
            self.bytes.extend([0, 0, 0, 0, 0, 0, 0, 1]);
            self.bytes.extend(&child.bytes);
            self.bytes.extend([0; 8]);
        }
    }
    fn list(&mut self, name: &str, list: &Xdr) {
        self.pair(name, 19, 1);
        self.bytes.extend([0, 0, 0, 0, 0, 0, 0, 1]);
        self.bytes.extend(&list.bytes);
        self.bytes.extend([0; 8]);
    }
}
