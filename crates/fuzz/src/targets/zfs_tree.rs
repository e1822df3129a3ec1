//! A whole pool in a few kilobytes, without checksums: what a damaged tree of data sets and folders does to whoever
//! walks through it.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError, check_range};
use plexum_format::zfs::znode::FileKind;
use plexum_testkit::block_on;
use plexum_testkit::tiny_pool::{
    DATA, DIRECTORY, DIRECTORY_ENTRY, Pointer, Tiny, dnode, zap, znode,
};
use plexum_zfs::{
    DEPTH_MAX, DatasetName, MemberState, NamedDevice, OpenOptions, Pool, find_members,
};

use super::{Target, as_it_is};
use crate::mutate::Hints;

/// Number of "no checksum" in block pointers.
const NO_CHECKSUM: u64 = 2;
/// Bytes of the block that begins the pool: its own object set. It is the first of the input.
const HEAD_BYTES: usize = 1024;
/// Longest input.
const LENGTH_MAX_BYTES: usize = 80 << 10;
/// More steps than any input of that length has: as many folders as names fit into it, each with all of them.
const STEPS_MAX: usize = 1 << 21;
/// Files that are read.
const FILES_READ: usize = 32;

/// The bytes of a plex, the first block being the pool's own object set: opened, scrubbed, and walked through.
pub const TREE: Target = Target {
    name: "zfs-tree",
    check: |input| {
        thread_local!(static SLOT: OnceCell<Slot> = const { OnceCell::new() });
        SLOT.with(|slot| slot.get_or_init(Slot::new).check(&input.bytes))
    },
    write_back: |_| None,
    repair: as_it_is,
    hints: Hints {
        // The directory and dnodes of the file system, which come first.
        soft: &[1536..2560, 3072..6144],
        is_text: false,
        words: &[
            &[3, 0, 0, 0, 0, 0, 0, 0x40],
            &[5, 0, 0, 0, 0, 0, 0, 0x40],
            &[4, 0, 0, 0, 0, 0, 0, 0x80],
        ],
    },
    length_max_bytes: LENGTH_MAX_BYTES,
};

/// A pool whose folders are linked into each other and into themselves, and one with folders in folders.
#[must_use]
pub fn corpus() -> [(&'static str, Vec<u8>); 2] {
    [("loops", loops()), ("nested", nested())]
}

fn loops() -> Vec<u8> {
    written(|tiny| {
        let file = tiny.block(&[7; 512], 0);
        tiny.looped_system(file, 300)
    })
}

fn nested() -> Vec<u8> {
    written(|tiny| {
        let mut objects = vec![vec![0; 512]];
        for number in 3..20 {
            let below = zap(&[("below", DIRECTORY_ENTRY | (number + 1))]);
            let below = tiny.block(&below, 0);
            objects.push(dnode(20, 512, &[below], 17, &znode(DIRECTORY, 1)));
        }
        let empty = tiny.block(&zap(&[]), 0);
        objects.push(dnode(20, 512, &[empty], 17, &znode(DIRECTORY, 0)));
        tiny.file_system(&objects)
    })
}

/// The plex of a pool with that file system, its own object set moved to the front.
fn written(system: impl FnOnce(&mut Tiny) -> Pointer) -> Vec<u8> {
    let mut tiny = Tiny::new(NO_CHECKSUM);
    tiny.put(&[0; HEAD_BYTES]);
    let system = system(&mut tiny);
    tiny.finish_with(system, None);
    let mut plex = tiny.member[DATA..DATA + tiny.used].to_vec();
    let head = plex.split_off(plex.len() - HEAD_BYTES);
    plex[..HEAD_BYTES].copy_from_slice(&head);
    plex
}

/// The member that gets each input in turn; its labels stay.
struct Slot {
    bytes: Rc<RefCell<Vec<u8>>>,
    member: MemberState<Memory>,
}

struct Memory(Rc<RefCell<Vec<u8>>>);

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

impl Slot {
    fn new() -> Self {
        let mut tiny = Tiny::new(NO_CHECKSUM);
        let root = tiny.block(&[0; HEAD_BYTES], 0);
        tiny.finish(root);
        let bytes = Rc::new(RefCell::new(tiny.member));
        let device = NamedDevice {
            name: "member".to_owned(),
            device: Memory(Rc::clone(&bytes)),
        };
        let buffers = BufPool::new(1 << 20);
        let (members, _) = block_on(find_members(vec![device], &buffers));
        let member = members.into_iter().next().expect("the labels are valid");
        Self { bytes, member }
    }

    fn check(&self, input: &[u8]) -> Result<bool, String> {
        let input = &input[..input.len().min(LENGTH_MAX_BYTES)];
        let mut bytes = self.bytes.borrow_mut();
        let plex = &mut bytes[DATA..DATA + LENGTH_MAX_BYTES];
        plex[..input.len()].copy_from_slice(input);
        plex[input.len()..].fill(0);
        drop(bytes);
        block_on(async {
            let member = self.member.clone();
            match Pool::open(vec![member], &OpenOptions::default()).await {
                Ok(pool) => read_all(&pool).await,
                Err(_) => Ok(false),
            }
        })
    }
}

/// Reads all that a pool has; accepted when its file system has more than an empty root.
async fn read_all(pool: &Pool<Memory>) -> Result<bool, String> {
    let _listed = pool.datasets().await;
    let _report = pool.scrub(&mut |_| {}).await;
    let Ok(system) = pool.file_system(&DatasetName::parse("tiny")).await else {
        return Ok(false);
    };
    let mut folders = BTreeSet::new();
    let mut walk = system.walk(system.root());
    let mut steps = 0;
    while let Some((place, node)) = walk.next().await {
        steps += 1;
        let names = place.names();
        if steps > STEPS_MAX || names.len() > DEPTH_MAX + 1 {
            return Err(format!("step {steps} is at depth {}", names.len()));
        }
        if names
            .iter()
            .any(|name| name.contains(&b'/') || *name == b"..")
        {
            return Err(format!("a name leads elsewhere: {}", place.shown()));
        }
        let Ok(node) = node else { continue };
        if node.znode.kind() == FileKind::Directory && !folders.insert(node.number()) {
            return Err(format!("{} was entered before", place.shown()));
        }
        if steps < FILES_READ {
            let _bytes = system.read(&node, 0, 4096).await;
            let _target = system.link_target(&node).await;
            let _xattrs = system.xattrs(&node).await;
        }
    }
    Ok(steps > 1)
}
