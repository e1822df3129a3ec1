//! Every pointer of an object set.

use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::blockptr::POINTER_BYTES;
use plexum_format::zfs::dnode::DNODE_BYTES;
use plexum_format::zfs::{DnodeImage, PointerImage};

use super::{Check, FindingKind};
use crate::error::PoolError;
use crate::replay::find_log;
use crate::tree::{KIND_DNODES, Sums, dnodes_in};

/// What a walk over an object set found.
#[derive(Default)]
pub(super) struct Walked {
    /// Sums over all its blocks.
    pub sums: Sums,
    /// Sums over those that were born after a given transaction group.
    pub young: Sums,
    /// Its objects.
    pub objects: Vec<u64>,
}

/// An object that is walked.
struct Tree<'a> {
    place: &'a str,
    dnode: &'a DnodeImage,
    /// Nothing in it can be younger.
    birth: u64,
    since: Since,
}

/// A block of dnodes.
struct DnodeBlock {
    id: u64,
    birth: u64,
    block: Rc<Vec<u8>>,
}

/// A pointer on the way.
struct Step {
    pointer: PointerImage,
    level: u8,
    id: u64,
    birth_max: u64,
}

/// Number of a spill block, which has none.
const SPILL_ID: u64 = u64::MAX;

/// From which transaction group on blocks are counted as young.
pub(super) type Since = u64;

/// Where an object set has the dnodes of its users' space.
const SPECIAL_OFFSETS: [usize; 3] = [1024, 1536, 2048];

impl<D: Device> Check<D> {
    /// Walks the object set of a pointer.
    pub(super) async fn set(&mut self, name: &str, root: &PointerImage) -> Walked {
        self.set_since(name, root, u64::MAX).await
    }

    /// As [`set`](Self::set), and sums of what was born after a transaction group.
    pub(super) async fn set_since(
        &mut self,
        name: &str,
        root: &PointerImage,
        since: Since,
    ) -> Walked {
        let mut walked = Walked::default();
        self.in_set.clear();
        if root.is_hole() {
            return walked;
        }
        self.claim(name, root);
        self.count(root, since, &mut walked);
        let block = self
            .source
            .read(root, &format!("object set of {name}"))
            .await;
        let Some(block) = self.read(name, block) else {
            return walked;
        };
        let meta = block.get(..DNODE_BYTES).and_then(checked);
        let Some(meta) = meta.filter(|meta| meta.kind() == KIND_DNODES) else {
            self.find(FindingKind::Pointer, name, "its object set is none");
            return walked;
        };
        let fill: u64 = (0..meta.pointer_count())
            .map(|n| meta.pointer(n).fill())
            .fold(0, u64::wrapping_add);
        if root.word(6) >> 61 & 1 == 0 {
            let what = "the number of objects in its pointer";
            self.expect(root.fill(), FindingKind::Pointer, name, what, fill);
        }
        let birth = root.birth_txg();
        let mut blocks = Vec::new();
        let what = format!("objects of {name}");
        let tree = Tree {
            place: &what,
            dnode: &meta,
            birth,
            since,
        };
        self.tree(&tree, &mut walked, Some(&mut blocks)).await;
        for offset in SPECIAL_OFFSETS {
            let special = block.get(offset..offset + DNODE_BYTES);
            let special = special.and_then(checked);
            if let Some(dnode) = special.filter(|dnode| dnode.kind() != 0) {
                let what = format!("space of users of {name}");
                let tree = Tree {
                    place: &what,
                    dnode: &dnode,
                    birth,
                    since,
                };
                self.tree(&tree, &mut walked, None).await;
            }
        }
        for found in &blocks {
            self.objects_in(name, found, since, &mut walked).await;
        }
        walked
    }

    /// All objects in a block of dnodes.
    async fn objects_in(
        &mut self,
        name: &str,
        found: &DnodeBlock,
        since: Since,
        walked: &mut Walked,
    ) {
        let dnodes = &found.block;
        let mut slot = 0;
        while let Some(bytes) = dnodes
            .get(slot * DNODE_BYTES..)
            .filter(|bytes| !bytes.is_empty())
        {
            let number = found.id.wrapping_mul((dnodes.len() / DNODE_BYTES) as u64);
            let number = number.wrapping_add(slot as u64);
            let what = format!("object {number} of {name}");
            let dnode = DnodeImage::checked(bytes).map_err(PoolError::from);
            slot += 1;
            let Some(Some(dnode)) = self.read(&what, dnode) else {
                continue;
            };
            slot += dnode.slots() - 1;
            walked.objects.push(number);
            let tree = Tree {
                place: &what,
                dnode: &dnode,
                birth: found.birth,
                since,
            };
            self.tree(&tree, walked, None).await;
        }
    }

    /// The intent log: of one that was taken over all blocks are in the space maps, else those that a root had.
    pub(super) async fn log(&mut self, name: &str, root: &PointerImage) {
        let txg = self.report.txg;
        // What cannot be read was found by the walk.
        let Ok(block) = self.source.read(root, name).await else {
            return;
        };
        let log = find_log(&self.source, &block, txg).await;
        let Some(head) = log.head else {
            return;
        };
        for pointer in log.reached() {
            if head.claim_txg != 0 || pointer.birth_txg() <= txg {
                self.claim(name, pointer);
            }
        }
    }

    fn count(&self, pointer: &PointerImage, since: Since, walked: &mut Walked) {
        let sums = Sums::of(&self.shapes, pointer);
        walked.sums.add(sums);
        if pointer.birth_txg() > since {
            walked.young.add(sums);
        }
    }

    /// All blocks of an object. Blocks of dnodes go into `dnodes`.
    async fn tree(
        &mut self,
        tree: &Tree<'_>,
        walked: &mut Walked,
        mut dnodes: Option<&mut Vec<DnodeBlock>>,
    ) {
        let (place, dnode) = (tree.place, tree.dnode);
        let before = walked.sums.used;
        let mut work = first_steps(tree);
        while let Some(step) = work.pop() {
            if step.pointer.is_hole() {
                continue;
            }
            self.report.blocks += 1;
            self.count(&step.pointer, tree.since, walked);
            if !self.judge(place, &step) {
                continue;
            }
            let is_data = step.level == 0 && dnode.kind() != KIND_DNODES;
            if is_data {
                // A spill block counts nothing.
                if step.id != SPILL_ID && step.pointer.word(6) >> 61 & 1 == 0 {
                    let what = format!("the fill of block {}", step.id);
                    self.expect(step.pointer.fill(), FindingKind::Pointer, place, &what, 1);
                }
                continue;
            }
            let what = format!("block {} of level {}", step.id, step.level);
            let block = self
                .source
                .read(&step.pointer, &format!("{place}, {what}"))
                .await;
            let Some(block) = self.read(place, block) else {
                continue;
            };
            let fill = if step.level == 0 {
                let fill = dnodes_in(&block);
                if let Some(found) = dnodes.as_deref_mut() {
                    found.push(DnodeBlock {
                        id: step.id,
                        birth: step.pointer.birth_txg(),
                        block,
                    });
                }
                fill
            } else {
                below(&step, &block, dnode.fanout_shift(), &mut work)
            };
            let found = step.pointer.fill() & fill_mask(&step.pointer);
            self.expect(
                found,
                FindingKind::Pointer,
                place,
                &format!("the fill of {what}"),
                fill,
            );
        }
        let used = walked.sums.used.wrapping_sub(before).cast_unsigned();
        self.expect(
            dnode.used_bytes(),
            FindingKind::ObjectUsed,
            place,
            "the space that it takes",
            used,
        );
    }

    /// Looks at a pointer itself; whether what it leads to is stored and can be followed.
    fn judge(&mut self, place: &str, step: &Step) -> bool {
        let Step {
            pointer,
            level,
            id,
            birth_max,
        } = step;
        let birth = pointer.birth_txg();
        if birth > *birth_max || birth == 0 {
            let problem = format!(
                "block {id} of level {level} was born in transaction group {birth}, what points to it in {birth_max}"
            );
            self.find(FindingKind::Pointer, place, problem);
        }
        if pointer.is_embedded() {
            return false;
        }
        self.claim(place, pointer);
        if pointer.level() != *level {
            let found = pointer.level();
            let problem = format!("block {id} has level {found}, not {level}");
            self.find(FindingKind::Pointer, place, problem);
            return false;
        }
        true
    }

    /// Notes the space of a block, once.
    pub(super) fn claim(&mut self, place: &str, pointer: &PointerImage) {
        let copies = pointer.copies();
        let Some(first) = copies.first() else {
            return;
        };
        let birth = match pointer.word(9) {
            0 => pointer.birth_txg(),
            physical => physical,
        };
        // Data sets share blocks with their snapshots; one set has each of them once.
        let key = (first.plex_id, first.offset_bytes, birth);
        if !self.in_set.insert(key) {
            let (plex, at) = (first.plex_id, first.offset_bytes);
            self.find(
                FindingKind::UsedTwice,
                place,
                format!("the block at byte {at} of plex {plex} is in the set twice"),
            );
        }
        if !self.seen.insert(key) {
            return;
        }
        for copy in copies {
            if copy.is_gang {
                self.is_space_known = false;
                self.report.notes.push(format!(
                    "{place}: the parts of a gang block are not followed"
                ));
            }
            let range = copy.offset_bytes..copy.offset_bytes.saturating_add(copy.allocated_bytes);
            let shown = format!(
                "{} bytes at byte {} of plex {}",
                copy.allocated_bytes, range.start, copy.plex_id
            );
            if !self.claimed.entry(copy.plex_id).or_default().add(range) {
                self.find(
                    FindingKind::UsedTwice,
                    place,
                    format!("another block has a part of {shown}"),
                );
            }
        }
    }
}

/// The dnode in these bytes, when it is one.
fn checked(bytes: &[u8]) -> Option<DnodeImage> {
    DnodeImage::checked(bytes).ok().flatten()
}

/// The pointers of an object's dnode, the first one last.
fn first_steps(tree: &Tree<'_>) -> Vec<Step> {
    let Tree {
        dnode,
        birth: birth_max,
        ..
    } = *tree;
    let level = dnode.levels().saturating_sub(1);
    let step = |n: usize| Step {
        pointer: dnode.pointer(n),
        level,
        id: n as u64,
        birth_max,
    };
    let mut steps: Vec<Step> = (0..dnode.pointer_count()).rev().map(step).collect();
    steps.extend(dnode.spill().map(|pointer| Step {
        pointer,
        level: 0,
        id: SPILL_ID,
        birth_max,
    }));
    steps
}

/// Adds what an indirect block points to; gives the sum of its fills.
fn below(step: &Step, block: &[u8], shift: u32, work: &mut Vec<Step>) -> u64 {
    let pointers = block.chunks_exact(POINTER_BYTES).map(PointerImage::of);
    let pointers: Vec<PointerImage> = pointers.collect();
    for (n, pointer) in pointers.iter().enumerate().rev() {
        work.push(Step {
            pointer: *pointer,
            level: step.level - 1,
            id: (step.id << shift) + n as u64,
            birth_max: step.pointer.birth_txg(),
        });
    }
    let fills = pointers.iter().map(PointerImage::fill);
    fills.fold(0, u64::wrapping_add)
}

/// Of encrypted blocks the upper half of the word is something else.
fn fill_mask(pointer: &PointerImage) -> u64 {
    match pointer.word(6) >> 61 & 1 {
        0 => u64::MAX,
        _ => u64::from(u32::MAX),
    }
}
