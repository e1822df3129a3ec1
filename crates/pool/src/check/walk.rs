//! Every pointer of an object set.

use plexum_block::device::Device;
use plexum_format::zfs::blockptr::POINTER_BYTES;
use plexum_format::zfs::dnode::DNODE_BYTES;
use plexum_format::zfs::{DnodeImage, PointerImage};

use super::{Check, FindingKind};
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

/// From which transaction group on blocks are counted as young.
pub(super) type Since = u64;

/// Where an object set has the dnodes of its users' space.
const SPECIAL_OFFSETS: [usize; 3] = [1024, 1536, 2048];
const LOG_POINTER_OFFSET: usize = DNODE_BYTES + 16;

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
        let meta = block.get(..DNODE_BYTES).and_then(DnodeImage::of);
        let Some(meta) = meta.filter(|meta| meta.kind() == KIND_DNODES) else {
            self.find(FindingKind::Pointer, name, "its object set is none");
            return walked;
        };
        let fill: u64 = (0..meta.pointer_count())
            .map(|n| meta.pointer(n).fill())
            .sum();
        let is_encrypted = root.word(6) >> 61 & 1 == 1;
        if !is_encrypted {
            self.expect(
                FindingKind::Pointer,
                name,
                "the number of objects in its pointer",
                root.fill(),
                fill,
            );
        }
        let mut blocks = Vec::new();
        self.tree(
            &format!("objects of {name}"),
            &meta,
            root.birth_txg(),
            since,
            &mut walked,
            Some(&mut blocks),
        )
        .await;
        for offset in SPECIAL_OFFSETS {
            let special = block
                .get(offset..offset + DNODE_BYTES)
                .and_then(DnodeImage::of);
            if let Some(dnode) = special.filter(|dnode| dnode.kind() != 0) {
                self.tree(
                    &format!("space of users of {name}"),
                    &dnode,
                    root.birth_txg(),
                    since,
                    &mut walked,
                    None,
                )
                .await;
            }
        }
        for (id, birth, dnodes) in blocks {
            let mut slot = 0;
            while let Some(dnode) = dnodes.get(slot * DNODE_BYTES..).and_then(DnodeImage::of) {
                let number = id * (dnodes.len() / DNODE_BYTES) as u64 + slot as u64;
                slot += if dnode.kind() == 0 { 1 } else { dnode.slots() };
                if dnode.kind() != 0 {
                    walked.objects.push(number);
                    self.tree(
                        &format!("object {number} of {name}"),
                        &dnode,
                        birth,
                        since,
                        &mut walked,
                        None,
                    )
                    .await;
                }
            }
        }
        self.log(name, &block);
        walked
    }

    /// The intent log: its first block belongs to a root that was committed; what follows may not.
    fn log(&mut self, name: &str, block: &[u8]) {
        let pointer = PointerImage::of(block.get(LOG_POINTER_OFFSET..).unwrap_or_default());
        if pointer.is_hole() {
            return;
        }
        self.report.notes.push(format!(
            "{name} has an intent log: space that nothing reaches may be its own"
        ));
        self.is_space_known = false;
        if pointer.birth_txg() <= self.report.txg {
            self.claim(name, &pointer);
        }
    }

    fn count(&self, pointer: &PointerImage, since: Since, walked: &mut Walked) {
        let sums = Sums::of(&self.shapes, pointer);
        walked.sums.add(sums);
        if pointer.birth_txg() > since {
            walked.young.add(sums);
        }
    }

    /// All blocks of an object. Blocks of dnodes go into `dnodes` with their number and birth.
    async fn tree(
        &mut self,
        place: &str,
        dnode: &DnodeImage,
        birth_max: u64,
        since: Since,
        walked: &mut Walked,
        mut dnodes: Option<&mut Vec<(u64, u64, std::rc::Rc<Vec<u8>>)>>,
    ) {
        let before = walked.sums.used;
        let (shift, top) = (dnode.fanout_shift(), dnode.levels().saturating_sub(1));
        let mut work: Vec<(PointerImage, u8, u64, u64)> = Vec::new();
        for n in (0..dnode.pointer_count()).rev() {
            work.push((dnode.pointer(n), top, n as u64, birth_max));
        }
        if let Some(spill) = dnode.spill() {
            work.push((spill, 0, u64::MAX, birth_max));
        }
        while let Some((pointer, level, id, birth_max)) = work.pop() {
            if pointer.is_hole() {
                continue;
            }
            self.report.blocks += 1;
            self.count(&pointer, since, walked);
            let birth = pointer.birth_txg();
            if birth > birth_max || birth == 0 {
                self.find(
                    FindingKind::Pointer,
                    place,
                    format!("block {id} of level {level} was born in transaction group {birth}, after {birth_max}, that of what points to it"),
                );
            }
            if pointer.is_embedded() {
                continue;
            }
            self.claim(place, &pointer);
            if pointer.level() != level {
                let found = pointer.level();
                self.find(
                    FindingKind::Pointer,
                    place,
                    format!("block {id} has level {found}, not {level}"),
                );
                continue;
            }
            if level == 0 && dnode.kind() != KIND_DNODES {
                // A spill block counts nothing.
                if id != u64::MAX && pointer.word(6) >> 61 & 1 == 0 {
                    self.expect(
                        FindingKind::Pointer,
                        place,
                        &format!("the fill of block {id}"),
                        pointer.fill(),
                        1,
                    );
                }
                continue;
            }
            let what = format!("block {id} of level {level}");
            let block = self
                .source
                .read(&pointer, &format!("{place}, {what}"))
                .await;
            let Some(block) = self.read(place, block) else {
                continue;
            };
            let fill = if level == 0 {
                if let Some(found) = dnodes.as_deref_mut() {
                    found.push((id, birth, std::rc::Rc::clone(&block)));
                }
                dnodes_in(&block)
            } else {
                let below: Vec<PointerImage> = block
                    .chunks_exact(POINTER_BYTES)
                    .map(PointerImage::of)
                    .collect();
                for (n, child) in below.iter().enumerate().rev() {
                    let id = (id << shift) + n as u64;
                    work.push((*child, level - 1, id, birth));
                }
                below.iter().map(PointerImage::fill).sum()
            };
            self.expect(
                FindingKind::Pointer,
                place,
                &format!("the fill of {what}"),
                pointer.fill() & fill_mask(&pointer),
                fill,
            );
        }
        let used = (walked.sums.used - before).cast_unsigned();
        self.expect(
            FindingKind::ObjectUsed,
            place,
            "the space that it takes",
            dnode.used_bytes(),
            used,
        );
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
            let range = copy.offset_bytes..copy.offset_bytes + copy.allocated_bytes;
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

/// Of encrypted blocks the upper half of the word is something else.
fn fill_mask(pointer: &PointerImage) -> u64 {
    match pointer.word(6) >> 61 & 1 {
        0 => u64::MAX,
        _ => u64::from(u32::MAX),
    }
}
