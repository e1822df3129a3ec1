//! Volumes: made, found, read and written. What is written is in memory until the next commit.
//!
//! Invariants:
//! - a read gives what was written last, committed or not;
//! - a write is taken only when there is room for it and for the pointers above it, so that the commit that follows
//!   succeeds.
//!
//! Source: zfs-write.md 1.4 and 1.11.

use std::ops::Range;
use std::rc::Rc;

use plexum_block::device::Device;
use plexum_block::wait::join_all;
use plexum_format::zfs::NewObject;
use plexum_format::zfs::zap_write::MicroHead;

use crate::create::GroupKind;
use crate::dsl::{self, kind, object};
use crate::error::PoolError;
use crate::numbers::{DATA_OBJECT, Identities, PROPERTIES_OBJECT, SET_VOLUME, TYPE_OFFSET};
use crate::seed::Seed;
use crate::set::SetState;
use crate::space::Purpose;
use crate::state::{ConfigState, WritablePool};
use crate::tree::{Grown, pointer_to};

/// Blocks of volumes: powers of two in these borders.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 512..=128 << 10;
/// Blocks of one request that are read side by side.
const BLOCKS_AT_ONCE: u64 = 64;
/// Longest name of a data set.
const NAME_BYTES_MAX: usize = 255;

/// What a new volume shall be.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its name, the pool's included.
    pub name: String,
    /// Its size in bytes, a multiple of the block.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Seconds since 1970.
    pub wall_s: u64,
    /// Where its identity comes from.
    pub seed: u64,
}

/// A volume that is open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenVolume {
    /// Its name, the pool's included.
    pub name: String,
    /// Number of its data set.
    pub dataset: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

impl<D: Device> WritablePool<D> {
    /// Adds a volume; the next commit makes it durable.
    ///
    /// # Errors
    /// `Refused` for names that cannot be or are taken, and sizes that cannot be.
    pub async fn create_volume(&mut self, new: &NewVolume) -> Result<(), PoolError> {
        self.check_frozen()?;
        let (parent, name) = self.new_place(&new.name).await?;
        let block = new.block_bytes;
        if !block.is_power_of_two() || !BLOCK_BYTES.contains(&block) {
            return Err(PoolError::Refused(format!(
                "a volume has blocks of 512 bytes to 128 KiB, a power of two; not {block}"
            )));
        }
        if new.size_bytes == 0 || !new.size_bytes.is_multiple_of(block) || new.size_bytes > 1 << 62
        {
            return Err(PoolError::Refused(format!(
                "the size of a volume is a multiple of its block ({block} bytes), above 0"
            )));
        }
        let children = self.word(parent, dsl::dir::CHILDREN).await?;
        let mut identities = Identities(new.seed ^ self.guid);
        let mut seed = Seed {
            meta: &mut self.meta,
            source: &self.source,
            wall_s: new.wall_s,
        };
        let directory = seed.directory(parent, &[]).await?;
        let guids = [identities.next(), identities.next()];
        let dataset = seed
            .head(directory, &self.landmarks, self.txg + 1, guids)
            .await?;
        self.meta
            .zap_put(&self.source, children, &name, directory)
            .await?;
        let mut set = SetState::new(&new.name, SET_VOLUME);
        let data = NewObject {
            block_bytes: block,
            ..object(kind::VOLUME, block, 0, 0)
        };
        let number = set.add(&self.source, &data).await?;
        let properties = object(kind::VOLUME_PROPERTIES, 512, 0, 0);
        let salt = identities.next();
        let size = set
            .add_zap(
                &self.source,
                &properties,
                MicroHead {
                    salt,
                    norm_flags: 0,
                },
                &[("size", new.size_bytes)],
            )
            .await?;
        assert_eq!(
            (number, size),
            (DATA_OBJECT, PROPERTIES_OBJECT),
            "a new set gives numbers from 1 on"
        );
        self.sets.insert(dataset, set);
        Ok(())
    }

    /// The directory that a new data set comes into, and its name there, which is free.
    pub(crate) async fn new_place(&self, name: &str) -> Result<(u64, String), PoolError> {
        let (parent, last) = self.place_of(name).await?;
        let children = self.word(parent, dsl::dir::CHILDREN).await?;
        let taken = self.meta.zap_number(&self.source, children, &last).await?;
        if taken.is_some() {
            return Err(PoolError::Refused(format!("{name} is there already")));
        }
        Ok((parent, last))
    }

    /// The directory that a name is in, and its last part.
    pub(crate) async fn place_of(&self, name: &str) -> Result<(u64, String), PoolError> {
        let refuse = |reason: &str| {
            PoolError::Refused(format!("{name:?} cannot be the name of a volume: {reason}"))
        };
        if name.len() > NAME_BYTES_MAX {
            return Err(refuse("it is too long"));
        }
        let (above, last) = name
            .rsplit_once('/')
            .ok_or_else(|| refuse("it begins with the pool's name and a slash"))?;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.: ".contains(letter);
        if last.is_empty()
            || !last.chars().all(is_plain)
            || !last.starts_with(|first: char| first.is_ascii_alphanumeric())
        {
            return Err(refuse("only letters, digits and - _ . : are allowed"));
        }
        let parent = self.directory_of(above).await?;
        Ok((parent, last.to_owned()))
    }

    /// The directory of a data set.
    pub(crate) async fn directory_of(&self, name: &str) -> Result<u64, PoolError> {
        let mut parts = name.split('/');
        if parts.next() != Some(self.name.as_str()) {
            return Err(PoolError::Refused(format!(
                "{name} is not in pool {}",
                self.name
            )));
        }
        let mut directory = self.landmarks.root_dir;
        for part in parts {
            let children = self
                .meta
                .dnode(&self.source, directory)
                .await?
                .bonus_word(dsl::dir::CHILDREN);
            let number = self.meta.zap_number(&self.source, children, part).await?;
            directory = number
                .ok_or_else(|| PoolError::Refused(format!("there is no {name} in the pool")))?;
        }
        Ok(directory)
    }

    /// Names of all data sets that are no snapshots.
    ///
    /// # Errors
    /// What of the pool cannot be read.
    pub async fn dataset_names(&self) -> Result<Vec<String>, PoolError> {
        let mut names: Vec<String> = self
            .heads()
            .await?
            .into_iter()
            .map(|one| one.name)
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Kind, number of members, and sector in bytes of the first group: for what blocks of a volume cost.
    #[must_use]
    pub fn first_group(&self) -> (GroupKind, usize, u64) {
        let first = self.ground.plexes.values().next();
        first.map_or((GroupKind::Single, 1, 4096), |plex| {
            (plex.kind(), plex.leaves.len(), 1 << plex.ashift)
        })
    }

    /// Finds a volume, to read and write it.
    ///
    /// # Errors
    /// `Refused` when there is none of that name, or one that is not written: with reservations.
    pub async fn open_volume(&mut self, name: &str) -> Result<OpenVolume, PoolError> {
        let refuse =
            |reason: String| PoolError::Refused(format!("{name} is not written: {reason}"));
        let directory = self.directory_of(name).await?;
        let dnode = self.meta.dnode(&self.source, directory).await?;
        self.check_reservations(name, directory).await?;
        let dataset = dnode.bonus_word(dsl::dir::HEAD);
        if !self.sets.contains_key(&dataset) {
            let head = self.meta.dnode(&self.source, dataset).await?;
            let root = dsl::root_of(&head);
            if root.is_hole() {
                return Err(refuse("it holds nothing yet".into()));
            }
            let set = SetState::open(&self.source, &root, name).await?;
            self.sets.insert(dataset, set);
        }
        let set = &self.sets[&dataset];
        let set_kind = set.block.get(TYPE_OFFSET).copied().unwrap_or(0);
        if u64::from(set_kind) != SET_VOLUME {
            return Err(refuse("it is no volume".into()));
        }
        let size = set
            .zap_number(&self.source, PROPERTIES_OBJECT, "size")
            .await?;
        let size_bytes = size.filter(|size| *size <= i64::MAX as u64);
        let size_bytes =
            size_bytes.ok_or_else(|| PoolError::invalid(name, "the volume has no size"))?;
        let block_bytes = set.dnode(&self.source, DATA_OBJECT).await?.block_bytes();
        if block_bytes == 0 {
            return Err(PoolError::invalid(name, "its blocks have no size"));
        }
        Ok(OpenVolume {
            name: name.to_owned(),
            dataset,
            size_bytes,
            block_bytes,
        })
    }

    /// Reservations and quotas change the sums in ways that are not written here.
    async fn check_reservations(&self, name: &str, directory: u64) -> Result<(), PoolError> {
        let mut number = directory;
        for _ in 0..64 {
            let dnode = self.meta.dnode(&self.source, number).await?;
            let words = [
                dsl::dir::QUOTA,
                dsl::dir::RESERVED,
                dsl::dir::BY_OWN_RESERVATION,
            ];
            if words.iter().any(|word| dnode.bonus_word(*word) != 0) {
                return Err(PoolError::Refused(format!(
                    "{name} is not written: it, or what it is in, has a quota or a reservation"
                )));
            }
            number = dnode.bonus_word(dsl::dir::PARENT);
            if number == 0 {
                break;
            }
        }
        Ok(())
    }

    /// The bytes of a range; what was damaged is mended.
    ///
    /// # Errors
    /// Why a block cannot be read; `Invalid` for a range outside; `Frozen` when a commit failed: what was written last
    /// is lost then, and what was there before is not to be taken for it.
    pub async fn read(
        &self,
        volume: &OpenVolume,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<Vec<u8>, PoolError> {
        let bytes = self
            .read_unmended(volume, offset_bytes, length_bytes)
            .await?;
        if self.has_damage() {
            let end = offset_bytes.saturating_add(length_bytes as u64);
            self.mend(volume, offset_bytes..end).await?;
        }
        Ok(bytes)
    }

    /// The bytes of a range. Nothing is written: what was damaged is mended by [`mend`](Self::mend), when
    /// [`has_damage`](Self::has_damage).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_unmended(
        &self,
        volume: &OpenVolume,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<Vec<u8>, PoolError> {
        // What the commit that failed had in memory is neither here nor there.
        self.check_frozen()?;
        let end_bytes = offset_bytes.saturating_add(length_bytes as u64);
        check_inside(volume, offset_bytes..end_bytes)?;
        let set = self.set_of(volume)?;
        let mut out = Vec::with_capacity(length_bytes);
        let block_bytes = volume.block_bytes;
        let (mut next, end) = (offset_bytes / block_bytes, end_bytes.div_ceil(block_bytes));
        // One block alone has nobody beside it.
        let fanout = if end - next > 1 {
            let dnode = set.dnode(&self.source, DATA_OBJECT).await?;
            1_u64.checked_shl(dnode.fanout_shift()).unwrap_or(u64::MAX)
        } else {
            1
        };
        let mut at_once = 1;
        while out.len() < length_bytes {
            // The first one below a block of pointers brings those, and the others find them.
            let border = (next / fanout + 1) * fanout;
            let ids = next..end.min(border).min(next + at_once);
            next = ids.end;
            at_once = if next == border { 1 } else { BLOCKS_AT_ONCE };
            let of_id = |id| set.block(DATA_OBJECT, &self.source, id);
            let blocks = join_all(ids.clone().map(of_id)).await;
            for (id, block) in ids.zip(blocks) {
                let start = offset_bytes.saturating_sub(id * block_bytes);
                let stop = (end_bytes - id * block_bytes).min(block_bytes);
                let block = block?;
                let part = block.get(start as usize..stop as usize);
                let short =
                    || PoolError::invalid(&volume.name, format!("its block {id} is too short"));
                out.extend_from_slice(part.ok_or_else(short)?);
            }
        }
        Ok(out)
    }

    /// Whether something was read that was damaged and has not been mended.
    #[must_use]
    pub fn has_damage(&self) -> bool {
        let pool = self.source.pool.as_ref();
        pool.is_some_and(|pool| pool.has_damage())
    }

    /// Mends what was found damaged when a range was read. A pool that is frozen stays as it is.
    ///
    /// # Errors
    /// Why a block cannot be read; `Invalid` for a range outside.
    pub async fn mend(&self, volume: &OpenVolume, range: Range<u64>) -> Result<(), PoolError> {
        check_inside(volume, range.clone())?;
        if range.is_empty() || self.check_frozen().is_err() {
            return Ok(());
        }
        let blocks = range.start / volume.block_bytes..range.end.div_ceil(volume.block_bytes);
        self.heal_blocks(self.set_of(volume)?, blocks).await
    }

    /// Mends blocks of a volume, and the blocks of pointers above them.
    async fn heal_blocks(&self, set: &SetState, blocks: Range<u64>) -> Result<(), PoolError> {
        let Some(stored) = set.stored_dnode(&self.source, DATA_OBJECT).await? else {
            return Ok(());
        };
        let shift = stored.fanout_shift();
        for level in 0..stored.levels() {
            let down = |id: u64| id.checked_shr(shift * u32::from(level)).unwrap_or(0);
            let mut pointers = Vec::new();
            for id in down(blocks.start)..=down(blocks.end - 1) {
                let key = (level, id);
                pointers.push(pointer_to(&self.source, &stored, &Grown::default(), key).await?);
            }
            self.heal(&pointers).await?;
        }
        Ok(())
    }

    fn set_of(&self, volume: &OpenVolume) -> Result<&SetState, PoolError> {
        let set = self.sets.get(&volume.dataset);
        set.ok_or_else(|| PoolError::Refused(format!("{} is not open", volume.name)))
    }

    /// Takes a write; the next commit makes it durable.
    ///
    /// # Errors
    /// `NoSpace`, and nothing is changed; why a block that is written in part cannot be read; `Invalid` for a range
    /// outside.
    pub async fn write(
        &mut self,
        volume: &OpenVolume,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), PoolError> {
        self.check_frozen()?;
        check_inside(
            volume,
            offset_bytes..offset_bytes.saturating_add(bytes.len() as u64),
        )?;
        if bytes.is_empty() {
            return Ok(());
        }
        let set = self.sets.get_mut(&volume.dataset);
        let set = set.ok_or_else(|| PoolError::Refused(format!("{} is not open", volume.name)))?;
        set.change(&self.source, DATA_OBJECT).await?;
        let last = (offset_bytes + bytes.len() as u64 - 1) / volume.block_bytes;
        self.take_room(
            volume,
            offset_bytes / volume.block_bytes..last + 1,
            Purpose::Data,
        )?;
        let set = self
            .sets
            .get_mut(&volume.dataset)
            .expect("it was found above");
        let mut done = 0;
        while done < bytes.len() {
            let at = offset_bytes + done as u64;
            let (id, inside) = (at / volume.block_bytes, (at % volume.block_bytes) as usize);
            let step = (volume.block_bytes as usize - inside).min(bytes.len() - done);
            let part = &bytes[done..done + step];
            let block = if part.len() as u64 == volume.block_bytes {
                part.to_vec()
            } else {
                let mut block = set.block(DATA_OBJECT, &self.source, id).await?.to_vec();
                block[inside..inside + step].copy_from_slice(part);
                block
            };
            let changed = set.change(&self.source, DATA_OBJECT).await?;
            changed.blocks.insert(id, Some(Rc::new(block)));
            done += step;
        }
        let range = offset_bytes..offset_bytes + bytes.len() as u64;
        self.unplace(volume.dataset, offset_bytes / volume.block_bytes..last + 1)?;
        if let Some(log) = self.logs.get_mut(&volume.dataset) {
            log.write(range);
        }
        Ok(())
    }

    /// Makes a range read as zeroes, and gives back the space of whole blocks.
    ///
    /// # Errors
    /// As [`write`](Self::write), for the blocks at the ends of the range.
    pub async fn trim(&mut self, volume: &OpenVolume, range: Range<u64>) -> Result<(), PoolError> {
        self.check_frozen()?;
        let (offset_bytes, length_bytes) = (range.start, range.end.saturating_sub(range.start));
        check_inside(volume, range)?;
        let (block, end) = (volume.block_bytes, offset_bytes + length_bytes);
        let (first, last) = (offset_bytes.div_ceil(block), end / block);
        if first > last {
            return self
                .write(volume, offset_bytes, &vec![0; length_bytes as usize])
                .await;
        }
        self.write(
            volume,
            offset_bytes,
            &vec![0; (first * block - offset_bytes) as usize],
        )
        .await?;
        self.write(
            volume,
            last * block,
            &vec![0; (end - last * block) as usize],
        )
        .await?;
        let set = self.sets.get_mut(&volume.dataset);
        let set = set.ok_or_else(|| PoolError::Refused(format!("{} is not open", volume.name)))?;
        let id_max = set.dnode(&self.source, DATA_OBJECT).await?.block_id_max();
        self.unplace(volume.dataset, first..last)?;
        let set = self.sets.get_mut(&volume.dataset);
        let set = set.expect("it was found above");
        let changed = set.change(&self.source, DATA_OBJECT).await?;
        changed.blocks.retain(|id, _| !(first..last).contains(id));
        // Beyond the highest block nothing was ever written.
        let holes = first..last.min(id_max.saturating_add(1)).max(first);
        self.take_room(volume, holes.clone(), Purpose::Upkeep)?;
        let set = self
            .sets
            .get_mut(&volume.dataset)
            .expect("it was found above");
        let changed = set.change(&self.source, DATA_OBJECT).await?;
        changed.blocks.extend(holes.map(|id| (id, None)));
        if let Some(log) = self.logs.get_mut(&volume.dataset).filter(|_| first < last) {
            log.trim(first * block..last * block);
        }
        Ok(())
    }

    /// Bytes that the next commit will take at most, parity and pointers included.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.pending.wanted_bytes
    }

    /// Whether the blocks that wait, those of a write, and all pointers above them, still fit; they are counted.
    fn take_room(
        &mut self,
        volume: &OpenVolume,
        blocks: Range<u64>,
        purpose: Purpose,
    ) -> Result<(), PoolError> {
        let worst = |length: u64| {
            self.ground
                .plexes
                .values()
                .map(|plex| plex.shape.allocated_bytes(length))
                .max()
                .unwrap_or(0)
        };
        let changed = self
            .sets
            .get(&volume.dataset)
            .and_then(|set| set.changed.get(&DATA_OBJECT));
        let Some(changed) = changed else {
            return Err(PoolError::invalid(&volume.name, "it is not being changed"));
        };
        let shift = changed.dnode.fanout_shift();
        // A hole only needs what is above it.
        let (mut wanted, mut parents) = (0, Vec::new());
        for id in blocks.filter(|id| !changed.blocks.contains_key(id)) {
            wanted += if purpose == Purpose::Data {
                worst(volume.block_bytes)
            } else {
                0
            };
            let parent = (volume.dataset, id >> shift);
            if parents.last() != Some(&parent) && !self.pending.parents.contains(&parent) {
                parents.push(parent);
            }
        }
        wanted += 2 * parents.len() as u64 * worst(changed.dnode.indirect_bytes());
        let free_bytes = self.space.usable_bytes();
        let all = self.pending.wanted_bytes + wanted;
        if purpose == Purpose::Data && wanted > 0 && all > free_bytes {
            return Err(PoolError::NoSpace {
                pool: self.name.clone(),
                wanted_bytes: all,
                free_bytes,
            });
        }
        self.pending.wanted_bytes = all;
        self.pending.parents.extend(parents);
        Ok(())
    }

    /// Commits until space that was given back can be used again.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub async fn settle(&mut self, wall_s: u64) -> Result<(), PoolError> {
        for _ in 0..3 {
            if self.space.waiting_bytes() == 0 && !self.has_changes() {
                break;
            }
            self.config_state = ConfigState::Changed;
            self.commit(wall_s).await?;
        }
        Ok(())
    }
}

/// Whether a range lies in the volume.
fn check_inside(volume: &OpenVolume, range: Range<u64>) -> Result<(), PoolError> {
    if range.end > volume.size_bytes || range.start > range.end {
        let at = range.start;
        let problem = format!("byte {at} is outside of the volume");
        return Err(PoolError::invalid(&volume.name, problem));
    }
    Ok(())
}
