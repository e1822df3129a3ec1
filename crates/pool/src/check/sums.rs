//! Data sets, deadlists and directories: their sums against what was found.

use std::collections::BTreeMap;

use plexum_block::device::Device;
use plexum_format::zfs::blockptr::POINTER_BYTES;
use plexum_format::zfs::{DnodeImage, PointerImage};

use super::{Check, FindingKind};
use crate::dsl::{dir, root_of, set};
use crate::error::PoolError;
use crate::tree::Sums;

/// Most directories, snapshots of one, and lists in a list.
const MANY_MAX: usize = 1 << 17;

/// A dead block, and the key of its list.
type Dead = (u64, PointerImage);

/// The data set after a snapshot, and the blocks that died between the two.
struct Later {
    number: u64,
    dead: Vec<Dead>,
}

/// What the blocks of a directory add up to.
#[derive(Default)]
struct Parts {
    head: Sums,
    snapshots: Sums,
}

fn word(sum: i64) -> u64 {
    sum.max(0).cast_unsigned()
}

impl<D: Device> Check<D> {
    /// The whole tree of data sets; `own` are the sums of the pool's own set.
    pub(super) async fn data_sets(&mut self, own: Sums) -> Result<(), PoolError> {
        let Some(root) = self.entry("root_dataset").await? else {
            self.find(FindingKind::Object, "the pool", "it has no root data set");
            return Ok(());
        };
        // Parents come before their children: read from the end, every child is known before its parent.
        let mut order: Vec<(u64, String, Vec<u64>)> = Vec::new();
        let mut work = vec![(root, String::from("the root directory"))];
        while let Some((number, name)) = work.pop() {
            if order.len() > MANY_MAX {
                break;
            }
            let dnode = self.meta.dnode(&self.source, number).await;
            let Some(dnode) = self.read(&name, dnode) else {
                continue;
            };
            let children = self
                .meta
                .zap(&self.source, dnode.bonus_word(dir::CHILDREN))
                .await;
            let children = self.read(&name, children).unwrap_or_default();
            let children: Vec<(u64, String)> = children
                .iter()
                .filter_map(|one| Some((one.number()?, one.text())))
                .collect();
            if number == root {
                for wanted in ["$MOS", "$FREE", "$ORIGIN"] {
                    if !children.iter().any(|(_, name)| name == wanted) {
                        self.find(
                            FindingKind::Object,
                            &name,
                            format!("it has no directory {wanted}"),
                        );
                    }
                }
            }
            order.push((
                number,
                name,
                children.iter().map(|(number, _)| *number).collect(),
            ));
            work.extend(children);
        }
        let freed = self.freed().await?;
        let mut used: BTreeMap<u64, (Sums, u64)> = BTreeMap::new();
        for (number, name, children) in order.into_iter().rev() {
            let parts = match name.as_str() {
                "$MOS" => Parts {
                    head: own,
                    ..Parts::default()
                },
                "$FREE" => Parts {
                    head: freed,
                    ..Parts::default()
                },
                _ => self.directory(number, &name).await,
            };
            let sums = self
                .compare_directory(number, &name, &parts, &children, &used)
                .await;
            let dnode = self.meta.dnode(&self.source, number).await?;
            used.insert(number, (sums, dnode.bonus_word(dir::RESERVED)));
        }
        Ok(())
    }

    /// Space that is given back, but not yet free: blocks in the lists for that.
    async fn freed(&mut self) -> Result<Sums, PoolError> {
        let mut sums = Sums::default();
        if let Some(list) = self.entry("free_bpobj").await? {
            for pointer in self.dead_blocks(list, "free_bpobj").await {
                sums.add(Sums::of(&self.shapes, &pointer));
                self.claim("free_bpobj", &pointer);
            }
        }
        // Blocks of the pool's own set that wait: they count nowhere.
        if let Some(list) = self.entry("sync_bplist").await? {
            for pointer in self.dead_blocks(list, "sync_bplist").await {
                self.claim("sync_bplist", &pointer);
            }
        }
        if self.entry("bptree_obj").await?.is_some() {
            self.report
                .notes
                .push("data sets that are being destroyed are not followed".into());
            self.is_space_known = false;
        }
        Ok(sums)
    }

    /// The head of a directory and its snapshots: from the head back, since what comes after a snapshot says what it
    /// has alone.
    async fn directory(&mut self, number: u64, name: &str) -> Parts {
        let mut parts = Parts::default();
        let dnode = self.meta.dnode(&self.source, number).await;
        let Some(directory) = self.read(name, dnode) else {
            return parts;
        };
        let origin = directory.bonus_word(dir::ORIGIN);
        let origin_txg = match self.meta.find(&self.source, origin).await {
            Ok(Some(origin)) => origin.bonus_word(set::CREATED_TXG),
            _ => 0,
        };
        let mut next: Option<Later> = None;
        let mut at = directory.bonus_word(dir::HEAD);
        for _ in 0..MANY_MAX {
            if at == 0 || next.is_some() && at == origin {
                break;
            }
            let what = match next {
                None => name.to_owned(),
                Some(_) => format!("snapshot {at} of {name}"),
            };
            let dnode = self.meta.dnode(&self.source, at).await;
            let Some(dataset) = self.read(&what, dnode) else {
                break;
            };
            let dead = self
                .data_set(&what, &dataset, origin_txg, next.as_ref(), &mut parts)
                .await;
            // Of a snapshot the header means nothing.
            if next.is_none() {
                self.log(&what, &root_of(&dataset)).await;
            }
            for (_, pointer) in &dead {
                if pointer.birth_txg() > origin_txg {
                    parts.snapshots.add(Sums::of(&self.shapes, pointer));
                }
            }
            next = Some(Later { number: at, dead });
            at = dataset.bonus_word(set::PREVIOUS);
        }
        parts
    }

    /// One data set or snapshot; gives the blocks of its deadlist.
    async fn data_set(
        &mut self,
        what: &str,
        dataset: &DnodeImage,
        origin_txg: u64,
        next: Option<&Later>,
        parts: &mut Parts,
    ) -> Vec<Dead> {
        let root = root_of(dataset);
        let previous_txg = dataset.bonus_word(set::PREVIOUS_TXG);
        let since = if next.is_none() {
            origin_txg
        } else {
            previous_txg
        };
        let walked = self.set_since(what, &root, since).await;
        let sums = [
            (
                set::REFERENCED,
                "the space that it references",
                walked.sums.used,
            ),
            (set::STORED, "its compressed size", walked.sums.stored),
            (set::PLAIN, "its uncompressed size", walked.sums.plain),
        ];
        for (field, name, sum) in sums {
            self.expect(
                dataset.bonus_word(field),
                FindingKind::Sum,
                what,
                name,
                word(sum),
            );
        }
        let dead = self.deadlist(what, dataset).await;
        let alone = match next {
            None => {
                parts.head = walked.young;
                let is_same = previous_txg == origin_txg;
                let young = match is_same {
                    true => walked.young,
                    false => self.young_since(&root, previous_txg, what).await,
                };
                word(young.used)
            }
            Some(later) => self.died_after(previous_txg, later),
        };
        if dataset.bonus_word(set::FLAGS) & 4 != 0 {
            let found = dataset.bonus_word(set::UNIQUE);
            self.expect(
                found,
                FindingKind::Sum,
                what,
                "the space that it has alone",
                alone,
            );
        }
        self.compare_clones(what, dataset, next.is_some()).await;
        if let Some(later) = next {
            let found = dataset.bonus_word(set::NEXT);
            self.expect(
                found,
                FindingKind::Count,
                what,
                "the number of the one after it",
                later.number,
            );
        }
        dead
    }

    /// Space of the blocks that died before the later data set and were born after a transaction group.
    fn died_after(&self, txg: u64, later: &Later) -> u64 {
        let young = later
            .dead
            .iter()
            .filter(|(_, pointer)| pointer.birth_txg() > txg);
        young
            .map(|(_, pointer)| word(Sums::of(&self.shapes, pointer).used))
            .sum()
    }

    /// Sums of the head's blocks that the last snapshot does not have: walked a second time, for another border;
    /// everything is in memory.
    async fn young_since(&mut self, root: &PointerImage, previous_txg: u64, name: &str) -> Sums {
        let findings = self.report.findings.len();
        let blocks = self.report.blocks;
        let notes = self.report.notes.len();
        let young = self.set_since(name, root, previous_txg).await.young;
        self.report.findings.truncate(findings);
        self.report.notes.truncate(notes);
        self.report.blocks = blocks;
        young
    }

    /// A snapshot has one more child than clones: the data set after it.
    async fn compare_clones(&mut self, what: &str, dataset: &DnodeImage, is_snapshot: bool) {
        let map = dataset.bonus_word(set::NEXT_CLONES);
        let clones = match map {
            0 => 0,
            map => {
                let clones = self.meta.zap(&self.source, map).await;
                self.read(what, clones)
                    .map_or(0, |clones| clones.len() as u64)
            }
        };
        let expected = clones + u64::from(is_snapshot);
        self.expect(
            dataset.bonus_word(set::CHILD_COUNT),
            FindingKind::Count,
            what,
            "the number of its children",
            expected,
        );
    }

    /// The blocks of a data set's deadlist, whose sums and borders are compared.
    async fn deadlist(&mut self, what: &str, dataset: &DnodeImage) -> Vec<Dead> {
        let number = dataset.bonus_word(set::DEADLIST);
        let place = format!("deadlist {number} of {what}");
        if number == 0 {
            return Vec::new();
        }
        let dnode = self.meta.dnode(&self.source, number).await;
        let lists = self.meta.zap(&self.source, number).await;
        let (Some(head), Some(lists)) = (self.read(&place, dnode), self.read(&place, lists)) else {
            return Vec::new();
        };
        let mut keys: Vec<(u64, u64)> = lists
            .iter()
            .filter_map(|entry| {
                Some((
                    u64::from_str_radix(&entry.text(), 16).ok()?,
                    entry.number()?,
                ))
            })
            .collect();
        keys.sort_unstable();
        self.owned.insert(number);
        let mut dead = Vec::new();
        let mut sums = Sums::default();
        for (n, (key, list)) in keys.iter().enumerate() {
            let end = keys.get(n + 1).map_or(u64::MAX, |(next, _)| *next);
            for pointer in self.dead_blocks(*list, &place).await {
                let birth = pointer.birth_txg();
                if birth <= *key || birth > end {
                    self.find(
                        FindingKind::Sum,
                        &place,
                        format!("a block that was born in {birth} is in the list of {key}"),
                    );
                }
                sums.add(Sums::of(&self.shapes, &pointer));
                dead.push((*key, pointer));
            }
        }
        for (n, (what, sum)) in [
            ("its space", sums.used),
            ("its compressed size", sums.stored),
            ("its uncompressed size", sums.plain),
        ]
        .iter()
        .enumerate()
        {
            self.expect(
                head.bonus_word(n),
                FindingKind::Sum,
                &place,
                what,
                word(*sum),
            );
        }
        dead
    }

    /// The blocks of a list and of all lists in it, whose sums are compared.
    async fn dead_blocks(&mut self, list: u64, place: &str) -> Vec<PointerImage> {
        let mut found = Vec::new();
        let mut work = vec![list];
        let mut lists = 0;
        let mut top: Option<(DnodeImage, String)> = None;
        while let Some(number) = work.pop() {
            lists += 1;
            if lists > MANY_MAX || !self.owned.insert(number) && lists > 1 {
                continue;
            }
            let place = format!("{place}, list {number}");
            let dnode = self.meta.dnode(&self.source, number).await;
            let Some(head) = self.read(&place, dnode) else {
                continue;
            };
            let count = head.bonus_word(0);
            let bytes = if count > 1 << 24 {
                Err(PoolError::invalid(&place, format!("it has {count} blocks")))
            } else {
                self.meta
                    .bytes(number, &self.source, count * POINTER_BYTES as u64)
                    .await
            };
            let bytes = self.read(&place, bytes).unwrap_or_default();
            found.extend(bytes.chunks_exact(POINTER_BYTES).map(PointerImage::of));
            let (below, below_count) = (head.bonus_word(4), head.bonus_word(5));
            if below != 0 {
                self.owned.insert(below);
                let numbers = self
                    .meta
                    .bytes(below, &self.source, 8 * below_count.min(1 << 17))
                    .await;
                let numbers = self.read(&place, numbers).unwrap_or_default();
                let (numbers, _) = numbers.as_chunks::<8>();
                work.extend(numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)));
            }
            if top.is_none() {
                top = Some((head, place));
            }
        }
        if let Some((head, place)) = top {
            let mut sums = Sums::default();
            found
                .iter()
                .for_each(|pointer| sums.add(Sums::of(&self.shapes, pointer)));
            self.expect(
                head.bonus_word(1),
                FindingKind::Sum,
                &place,
                "its space",
                word(sums.used),
            );
            self.expect(
                head.bonus_word(2),
                FindingKind::Sum,
                &place,
                "its compressed size",
                word(sums.stored),
            );
            self.expect(
                head.bonus_word(3),
                FindingKind::Sum,
                &place,
                "its uncompressed size",
                word(sums.plain),
            );
        }
        found
    }

    /// A directory's sums: its own blocks, and those of all below. Gives what it should have.
    async fn compare_directory(
        &mut self,
        number: u64,
        name: &str,
        parts: &Parts,
        children: &[u64],
        used: &BTreeMap<u64, (Sums, u64)>,
    ) -> Sums {
        let dnode = self.meta.dnode(&self.source, number).await;
        let place = format!("directory {name}");
        let Some(directory) = self.read(&place, dnode) else {
            return Sums::default();
        };
        let mut below = Sums::default();
        let mut reserved = 0;
        for (sums, reservation) in children.iter().filter_map(|child| used.get(child)) {
            below.add(*sums);
            let more: u64 = reservation.saturating_sub(word(sums.used));
            reserved = more.saturating_add(reserved);
        }
        let own_reservation = directory.bonus_word(dir::BY_OWN_RESERVATION);
        let mut all = parts.head;
        all.add(parts.snapshots);
        all.add(below);
        let reserved = reserved.saturating_add(own_reservation);
        all.used = all.used.wrapping_add(reserved.cast_signed());
        let sums = [
            (dir::USED, "the space in use", all.used),
            (dir::STORED, "its compressed size", all.stored),
            (dir::PLAIN, "its uncompressed size", all.plain),
            (dir::BY_HEAD, "the part of its data set", parts.head.used),
            (
                dir::BY_SNAPSHOTS,
                "the part of its snapshots",
                parts.snapshots.used,
            ),
            (dir::BY_CHILDREN, "the part of what is below", below.used),
        ];
        let has_parts = directory.bonus_word(dir::FLAGS) & 1 != 0;
        for (field, name, sum) in sums.into_iter().take(if has_parts { 6 } else { 3 }) {
            self.expect(
                directory.bonus_word(field),
                FindingKind::Sum,
                &place,
                name,
                word(sum),
            );
        }
        all
    }
}
