//! Space maps against the space of all blocks.

use std::collections::BTreeMap;

use plexum_block::device::Device;
use plexum_format::zfs::NvList;
use plexum_format::zfs::spacemap::{Change, decode};

use super::{Check, FindingKind};
use crate::error::PoolError;
use crate::space::Metaslab;
use crate::space_map::load_map;

/// Bytes of the head of a space map with a histogram; its counts begin at this word.
const LONG_HEAD_BYTES: usize = 320;
const HISTOGRAM_WORD: usize = 8;
const HISTOGRAM_WORDS: usize = 32;
/// Sector of the logs of space maps.
const LOG_SECTOR_SHIFT: u32 = 9;
const METASLABS_MAX: u64 = 1 << 17;

impl<D: Device> Check<D> {
    /// All space maps, with their logs applied, say what the walk has found.
    pub(super) async fn space_maps(&mut self) -> Result<(), PoolError> {
        let config = self.config().await?;
        let plexes: Vec<NvList> = config
            .list("vdev_tree")
            .map(|tree| tree.lists("children").to_vec())
            .unwrap_or_default();
        let mut maps = BTreeMap::new();
        for plex in &plexes {
            self.load_plex(plex, &mut maps).await?;
        }
        self.apply_logs(&plexes, &mut maps).await?;
        for one in maps.values() {
            self.compare_map(one);
        }
        Ok(())
    }

    pub(super) async fn config(&self) -> Result<NvList, PoolError> {
        let number = self.entry("config").await?.unwrap_or(0);
        let length = self
            .meta
            .dnode(&self.source, number)
            .await?
            .bonus_word(0)
            .min(16 << 20);
        let bytes = self.meta.bytes(number, &self.source, length).await?;
        Ok(NvList::parse(&bytes)?)
    }

    async fn load_plex(
        &mut self,
        plex: &NvList,
        maps: &mut BTreeMap<(u32, u64), Metaslab>,
    ) -> Result<(), PoolError> {
        let id = plex
            .number("id")
            .and_then(|id| u32::try_from(id).ok())
            .unwrap_or(u32::MAX);
        let number = |name: &str| plex.number(name).unwrap_or(0);
        let (array, shift, size, ashift) = (
            number("metaslab_array"),
            number("metaslab_shift"),
            number("asize"),
            number("ashift"),
        );
        if array == 0 || !(16..=60).contains(&shift) || !(9..=16).contains(&ashift) {
            return Ok(());
        }
        let count = (size >> shift).min(METASLABS_MAX);
        self.owned.insert(array);
        let numbers = self.meta.bytes(array, &self.source, 8 * count).await?;
        let (numbers, _) = numbers.as_chunks::<8>();
        for (n, object) in numbers.iter().enumerate() {
            let n = n as u64;
            let mut one = Metaslab::new(id, n, n << shift..(n + 1) << shift, ashift as u32);
            one.map_object = u64::from_le_bytes(*object);
            if one.map_object != 0 {
                self.owned.insert(one.map_object);
                if let Err(error) = load_map(&self.meta, &self.source, &mut one).await {
                    self.find(
                        FindingKind::SpaceMap,
                        format!("metaslab {n} of plex {id}"),
                        error.to_string(),
                    );
                }
                self.compare_histogram(&one).await?;
            }
            maps.insert((id, n), one);
        }
        Ok(())
    }

    /// The histogram counts runs of free sectors by their length. Runs that touch may be counted apart, so only the sum
    /// of their lengths can be compared, within what the steps leave open.
    async fn compare_histogram(&mut self, one: &Metaslab) -> Result<(), PoolError> {
        let dnode = self.meta.dnode(&self.source, one.map_object).await?;
        if dnode.bonus().len() < LONG_HEAD_BYTES {
            return Ok(());
        }
        self.histograms += 1;
        let free = one.free.total_bytes() >> one.sector_shift;
        let (mut least, mut most) = (0_u64, 0_u64);
        for n in 0..HISTOGRAM_WORDS {
            let count = dnode.bonus_word(HISTOGRAM_WORD + n);
            least = least.saturating_add(count.saturating_mul(1 << n));
            most = most.saturating_add(count.saturating_mul((2 << n) - 1));
            if n + 1 == HISTOGRAM_WORDS && count > 0 {
                most = u64::MAX;
            }
        }
        if !(least..=most).contains(&free) {
            let (number, plex) = (one.number, one.plex_id);
            let place = format!("metaslab {number} of plex {plex}");
            self.find(
                FindingKind::SpaceMap,
                place,
                format!("its histogram tells of {least} to {most} free sectors, its map of {free}"),
            );
        }
        Ok(())
    }

    /// Logs of several metaslabs together, which are newer than their own maps.
    async fn apply_logs(
        &mut self,
        plexes: &[NvList],
        maps: &mut BTreeMap<(u32, u64), Metaslab>,
    ) -> Result<(), PoolError> {
        let Some(logs) = self.entry("com.delphix:log_spacemap_zap").await? else {
            return Ok(());
        };
        let mut since: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for plex in plexes {
            let id = plex
                .number("id")
                .and_then(|id| u32::try_from(id).ok())
                .unwrap_or(u32::MAX);
            let Some(top) = plex.number("com.delphix:vdev_zap_top") else {
                continue;
            };
            let unflushed = self
                .meta
                .zap_number(&self.source, top, "com.delphix:ms_unflushed_phys_txgs")
                .await?;
            let Some(unflushed) = unflushed else {
                continue;
            };
            self.owned.insert(unflushed);
            let count = maps.range((id, 0)..=(id, u64::MAX)).count() as u64;
            let txgs = self.meta.bytes(unflushed, &self.source, 8 * count).await?;
            let (txgs, _) = txgs.as_chunks::<8>();
            since.extend(
                txgs.iter()
                    .enumerate()
                    .map(|(n, txg)| ((id, n as u64), u64::from_le_bytes(*txg))),
            );
        }
        let mut order: Vec<(u64, u64)> = Vec::new();
        for entry in self.meta.zap(&self.source, logs).await? {
            // The name is the transaction group as eight bytes in this pool's order, or in hexadecimal.
            let txg = u64::from_str_radix(&entry.text(), 16).ok();
            if let (Some(txg), Some(object)) = (txg, entry.number()) {
                order.push((txg, object));
            }
        }
        order.sort_unstable();
        for (txg, object) in order {
            self.owned.insert(object);
            self.apply_log((txg, object), &since, maps).await?;
        }
        Ok(())
    }

    async fn apply_log(
        &mut self,
        (txg, object): (u64, u64),
        since: &BTreeMap<(u32, u64), u64>,
        maps: &mut BTreeMap<(u32, u64), Metaslab>,
    ) -> Result<(), PoolError> {
        let place = format!("log of space maps of transaction group {txg}");
        let dnode = self.meta.dnode(&self.source, object).await?;
        self.histograms += u64::from(dnode.bonus().len() >= LONG_HEAD_BYTES);
        let length = dnode.bonus_word(1).min(1 << 30);
        let bytes = self.meta.bytes(object, &self.source, length).await?;
        let entries = decode(&bytes).unwrap_or_default();
        for entry in entries {
            let id = entry.plex_id.unwrap_or(u32::MAX);
            let range =
                entry.start << LOG_SECTOR_SHIFT..(entry.start + entry.count) << LOG_SECTOR_SHIFT;
            let found = maps.range_mut((id, 0)..=(id, u64::MAX));
            let mut found = found.filter(|(_, one)| {
                (one.start_bytes..one.start_bytes + one.size_bytes).contains(&range.start)
            });
            let Some((key, one)) = found.next() else {
                self.find(
                    FindingKind::SpaceMap,
                    &place,
                    format!(
                        "it tells of byte {} of plex {id}, where nothing is",
                        range.start
                    ),
                );
                continue;
            };
            if since
                .get(key)
                .is_none_or(|first| *first == 0 || txg < *first)
            {
                continue;
            }
            let is_right = match entry.change {
                Change::Allocated => one.free.take(range.clone()),
                Change::Freed => one.free.add(range.clone()),
            };
            if !is_right {
                self.find(
                    FindingKind::SpaceMap,
                    &place,
                    format!("it takes or frees byte {} of plex {id} twice", range.start),
                );
            }
        }
        Ok(())
    }

    /// What a map has in use is what was found there.
    fn compare_map(&mut self, one: &Metaslab) {
        let whole = one.start_bytes..one.start_bytes + one.size_bytes;
        let mut leaked = crate::spans::Spans::of(whole.clone());
        for range in one.free.iter() {
            let _ = leaked.take(range);
        }
        let claimed = self.claimed.get(&one.plex_id).cloned().unwrap_or_default();
        let place = format!("metaslab {} of plex {}", one.number, one.plex_id);
        for range in claimed.within(&whole) {
            if !leaked.take(range.clone()) {
                let length = range.end - range.start;
                self.find(
                    FindingKind::UsedButFree,
                    &place,
                    format!(
                        "of {length} bytes in use from byte {} on, some are free in its map",
                        range.start
                    ),
                );
            }
        }
        if !self.is_space_known {
            return;
        }
        for range in leaked.iter() {
            let length = range.end - range.start;
            self.find(
                FindingKind::Leaked,
                &place,
                format!(
                    "{length} bytes at byte {} are in use in its map, and nothing reaches them",
                    range.start
                ),
            );
        }
    }
}
