//! A writer of tiny pools of ZFS, for what the recorded ones have not: gangs, loops, refusals, damage below good
//! checksums.
//!
//! It writes what zfs-raidz.md section 1 says, with the simplest structure of each kind: object sets of one block of
//! dnodes, small ZAPs, old znodes. Nothing but tests uses it.

use plexum_format::zfs::checksum::{fletcher4, seal_embedded};

/// Bytes of the one member.
pub const SIZE_BYTES: usize = 8 << 20;
/// Where on the member the plex begins; the labels are before it.
pub const DATA: usize = 4 << 20;
/// The transaction group of everything.
pub const TXG: u64 = 10;
/// Mode of a folder.
pub const DIRECTORY: u64 = 0o040_755;
/// Mode of a file.
pub const FILE: u64 = 0o100_644;
/// What a directory says of a folder, to be joined with its object number.
pub const DIRECTORY_ENTRY: u64 = 4 << 60;
/// What a directory says of a file, to be joined with its object number.
pub const FILE_ENTRY: u64 = 8 << 60;

/// Dnodes in a block of an object set.
const DNODES_PER_BLOCK: usize = 32;
/// A block of pointers: the dnodes below say 2 to the power 17.
const INDIRECT_BYTES: usize = 1 << 17;

/// A block pointer as it is stored.
pub type Pointer = [u8; 128];

/// The pool being written: one member.
pub struct Tiny {
    /// All its bytes.
    pub member: Vec<u8>,
    /// Plex bytes in use.
    pub used: usize,
    /// Number of the checksum in pointers. 7: Fletcher sums, 2: none, so that damage gets through.
    pub checksum: u64,
    /// Kind of the plex, as the label has it; `raidz` and `mirror` get members in the label.
    pub plex_kind: &'static str,
    /// Members in the label.
    pub width: usize,
    /// Parities of `raidz`. More than 0 and less than the members make blocks take room for them.
    pub parities: usize,
    /// Where all blocks are: plex offset and bytes.
    pub blocks: Vec<(usize, usize)>,
    /// Number of the member whose label is written; 0 is the one that is kept.
    pub slot: u64,
    /// Features without which the pool cannot be read, as the label has them.
    pub features: Vec<&'static str>,
    /// Sectors have two to this power bytes.
    pub ashift: u32,
    /// 0: in use, 1: exported.
    pub state: u64,
    /// How many plexes the label says that there are.
    pub plex_count: u64,
    /// Whether the root says that RAID-Z is being expanded.
    pub is_expanding: bool,
    /// Whether the label says that RAID-Z was expanded.
    pub is_expanded: bool,
}

impl Tiny {
    /// An empty pool with that checksum.
    #[must_use]
    pub fn new(checksum: u64) -> Self {
        Self {
            member: vec![0; SIZE_BYTES],
            used: 0,
            checksum,
            plex_kind: "file",
            width: 3,
            parities: 1,
            blocks: Vec::new(),
            slot: 0,
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
        self.blocks.push((at, bytes.len()));
        let mut sectors = bytes.len().div_ceil(1 << self.ashift);
        if self.plex_kind == "raidz" {
            let rows = sectors.div_ceil(self.width - self.parities);
            sectors = (sectors + rows * self.parities).next_multiple_of(self.parities + 1);
        }
        self.used += sectors << self.ashift;
        at
    }

    /// A block and the pointer to it.
    pub fn block(&mut self, bytes: &[u8], level: u64) -> Pointer {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        let at = self.put(&bytes);
        self.pointer(at, &bytes, level)
    }

    /// The pointer to a gang block, whose header lies at that plex offset.
    #[must_use]
    pub fn gang_pointer(&self, at: usize, bytes: &[u8], level: u64) -> Pointer {
        let mut pointer = self.pointer(at, bytes, level);
        pointer[15] |= 1 << 7; // the highest bit of the second word
        pointer
    }

    /// The pointer to bytes that lie at that plex offset.
    #[must_use]
    pub fn pointer(&self, at: usize, bytes: &[u8], level: u64) -> Pointer {
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
        words[1] = at as u64 / 512;
        words[6] = prop;
        words[10] = TXG;
        words[12..].copy_from_slice(&fletcher4(bytes));
        pointer_of(&words)
    }

    /// An object set with these dnodes from number 0 on.
    pub fn set(&mut self, kind: u64, dnodes: &[Vec<u8>]) -> Pointer {
        let mut pointers = Vec::new();
        for dnodes in dnodes.chunks(DNODES_PER_BLOCK) {
            let mut block = dnodes.concat();
            block.resize(512 * DNODES_PER_BLOCK, 0);
            pointers.push(self.block(&block, 0));
        }
        let (levels, last_block) = (if pointers.len() > 1 { 2 } else { 1 }, pointers.len() - 1);
        if levels == 2 {
            let mut indirect = pointers.concat();
            indirect.resize(INDIRECT_BYTES, 0);
            pointers = vec![self.block(&indirect, 1)];
        }
        let mut head = dnode(10, 512 * DNODES_PER_BLOCK, &pointers, 0, &[]);
        head[2] = levels;
        head[16] = last_block as u8;
        head.resize(1024, 0);
        head[704..712].copy_from_slice(&kind.to_le_bytes());
        self.block(&head, 0)
    }

    /// A file system with these objects from number 2 on; the root directory is number 3.
    pub fn file_system(&mut self, objects: &[Vec<u8>]) -> Pointer {
        let master = self.block(&zap(&[("ROOT", 3), ("VERSION", 4)]), 0);
        let mut dnodes = vec![vec![0; 512], dnode(21, 512, &[master], 0, &[])];
        dnodes.extend_from_slice(objects);
        self.set(2, &dnodes)
    }

    /// A file system with `/a` (the given block), `/self` (the root directory again) and `/sub` with `b` (the file
    /// again) and `up` (the root directory once more).
    pub fn looped_system(&mut self, file: Pointer, file_bytes: u64) -> Pointer {
        let root = zap(&[
            ("a", FILE_ENTRY | 4),
            ("self", DIRECTORY_ENTRY | 3),
            ("sub", DIRECTORY_ENTRY | 5),
        ]);
        let root = self.block(&root, 0);
        let sub = zap(&[("up", DIRECTORY_ENTRY | 3), ("b", FILE_ENTRY | 4)]);
        let sub = self.block(&sub, 0);
        self.file_system(&[
            vec![0; 512],
            dnode(20, 512, &[root], 17, &znode(DIRECTORY, 3)),
            dnode(19, 512, &[file], 17, &znode(FILE, file_bytes)),
            dnode(20, 512, &[sub], 17, &znode(DIRECTORY, 2)),
        ])
    }

    /// The pool's own set and the labels: the data set `tiny`, and `tiny/loop`, whose directory is the root's again.
    /// `other` adds a data set `tiny/other`. Gives the pointer to the pool's own set.
    pub fn finish_with(&mut self, system: Pointer, other: Option<Pointer>) -> Pointer {
        let directory = self.block(&zap(&[("root_dataset", 2)]), 0);
        let mut children = vec![("loop", 2)];
        if other.is_some() {
            children.push(("other", 5));
        }
        let children = self.block(&zap(&children), 0);
        let empty = self.block(&zap(&[]), 0);
        let mut dnodes = vec![
            vec![0; 512],
            dnode(1, 512, &[directory], 0, &[]),
            dnode(12, 512, &[empty], 12, &dir_bonus(3, 4)),
            dnode(16, 512, &[empty], 16, &dataset_bonus(&system)),
            dnode(15, 512, &[children], 0, &[]),
        ];
        // The bonus of a data set needs a dnode with one pointer: 512 - 64 - 128 = 320.
        if let Some(other) = other {
            dnodes.push(dnode(12, 512, &[empty], 12, &dir_bonus(6, 0)));
            dnodes.push(dnode(16, 512, &[empty], 16, &dataset_bonus(&other)));
        }
        let root = self.set(1, &dnodes);
        self.finish(root);
        root
    }

    /// Labels, and the root in them: the pool's own object set.
    pub fn finish(&mut self, root: Pointer) {
        let mut list = Xdr::default();
        list.number("version", 5000);
        list.text("name", "tiny");
        list.number("state", self.state);
        list.number("txg", TXG);
        list.number("pool_guid", 77);
        list.number("top_guid", 78);
        list.number("guid", 78 + self.slot);
        list.number("vdev_children", self.plex_count);
        let mut tree = Xdr::default();
        tree.text("type", self.plex_kind);
        tree.number("id", 0);
        tree.number("guid", 78);
        tree.number("ashift", u64::from(self.ashift));
        if self.plex_kind == "raidz" {
            tree.number("nparity", self.parities as u64);
        }
        if matches!(self.plex_kind, "raidz" | "mirror") {
            tree.lists("children", self.width as u64);
        }
        if self.is_expanded {
            tree.numbers("raidz_expand_txgs", &[5]);
        }
        let members = if self.plex_kind == "raidz" {
            self.width
        } else {
            1
        };
        tree.number(
            "asize",
            ((SIZE_BYTES - DATA - (512 << 10)) * members) as u64,
        );
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
}

/// A pointer of its sixteen words.
#[must_use]
pub fn pointer_of(words: &[u64; 16]) -> Pointer {
    let mut bytes = [0; 128];
    for (n, word) in words.iter().enumerate() {
        bytes[8 * n..8 * n + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// A dnode of one slot with these pointers (its fan-out is 128) and this bonus.
#[must_use]
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

/// A small ZAP.
#[must_use]
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

/// An old znode: of a file with that mode and size in bytes, or of a folder with that many names.
#[must_use]
pub fn znode(mode: u64, size_bytes: u64) -> Vec<u8> {
    let mut bytes = vec![0; 264];
    bytes[72..80].copy_from_slice(&mode.to_le_bytes());
    bytes[80..88].copy_from_slice(&size_bytes.to_le_bytes());
    bytes[96] = 1;
    bytes
}

/// Bonus of a node in the tree of data sets: object of its data set, object of its children's names.
#[must_use]
pub fn dir_bonus(head: u64, children: u64) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    bytes[8..16].copy_from_slice(&head.to_le_bytes());
    bytes[32..40].copy_from_slice(&children.to_le_bytes());
    bytes
}

/// Bonus of a data set whose object set is there.
#[must_use]
pub fn dataset_bonus(root: &Pointer) -> Vec<u8> {
    let mut bytes = vec![0; 320];
    bytes[128..256].copy_from_slice(root);
    bytes
}

/// A list of names and values.
#[derive(Default, Clone)]
struct Xdr {
    bytes: Vec<u8>,
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
        self.bytes.extend((values.len() as u32).to_be_bytes());
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
