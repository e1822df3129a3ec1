//! Verified reads of RAID-Z blocks: data columns first, then parity, then every set of columns that may be lying.
//!
//! Invariants:
//! - at most as many columns are taken for lost as there are good parities;
//! - a set of suspects counts only when the block's checksum then matches, so wrong data is never given;
//! - at most [`ATTEMPTS_MAX`] sets are tried for a block.
//!
//! Source: zfs-raidz.md 1.3 and 1.4.

use plexum_block::device::{Device, IoError};
use plexum_layout::{RaidzColumn, RaidzGeometry, RaidzMap, RaidzPart};
use plexum_parity::{Block, RecoverPlan, gen_p, gen_pq, gen_pqr};

use crate::damage::{Damage, DamageKind};
use crate::member::read_all;
use crate::parts::{Bytes, Parts, first_of};
use crate::plex::{Extent, Plex, Wanted};

/// Most reconstructions of one block: all sets for three parities and 39 members.
const ATTEMPTS_MAX: usize = 10_000;

const PARITIES: [Block; 3] = [Block::P, Block::Q, Block::R];

/// A block that is being read.
struct Stripe<'a, D> {
    plex: &'a Plex<D>,
    map: RaidzMap,
    columns: Vec<RaidzColumn>,
    parity_count: usize,
    birth_txg: u64,
    /// What was read of each column; `None`: not yet, or not there.
    read: Vec<Option<Bytes>>,
    errors: Vec<(usize, IoError)>,
}

/// Reads one block; see [`Plex::read`].
pub(crate) async fn read<D: Device>(
    plex: &Plex<D>,
    geometry: &RaidzGeometry,
    wanted: &Wanted<'_>,
    damage: &mut Vec<Damage>,
) -> Result<Parts, String> {
    let map = geometry
        .map(wanted.offset_bytes, wanted.length_bytes as u64)
        .map_err(|error| error.to_string())?;
    let mut stripe = Stripe {
        plex,
        map,
        columns: map.columns().collect(),
        parity_count: geometry.parity_count(),
        birth_txg: wanted.birth_txg,
        read: (0..map.column_count()).map(|_| None).collect(),
        errors: Vec::new(),
    };
    let result = stripe.read_block(wanted).await;
    for (column, error) in &stripe.errors {
        let kind = DamageKind::io(*error);
        damage.extend(stripe.damage(*column, kind));
    }
    let found = result?;
    if wanted.extent == Extent::All || stripe.has_parity() {
        let wrong = match &found {
            Found::AsRead => stripe.wrong_columns(&stripe.assemble(&[])),
            Found::Made(block) => stripe.wrong_columns(block),
        };
        damage.extend(
            wrong
                .iter()
                .filter_map(|column| stripe.damage(*column, DamageKind::Checksum)),
        );
        if !wrong.is_empty() {
            *plex.culprits.borrow_mut() = wrong.iter().map(|n| stripe.columns[*n].slot).collect();
        }
    }
    let mut block = match found {
        Found::AsRead => Parts::of(stripe.read.drain(stripe.parity_count..).flatten().collect()),
        Found::Made(block) => Parts::own(block),
    };
    block.truncate(wanted.length_bytes);
    Ok(block)
}

/// Where a verified block is.
enum Found {
    /// In the data columns, as they were read.
    AsRead,
    /// Computed with the help of parity.
    Made(Vec<u8>),
}

impl<D: Device> Stripe<'_, D> {
    /// The whole block (rounded up to sectors), verified.
    async fn read_block(&mut self, wanted: &Wanted<'_>) -> Result<Found, String> {
        let all = 0..self.columns.len();
        let data = self.parity_count..self.columns.len();
        let first = if wanted.extent == Extent::All {
            all
        } else {
            data
        };
        self.fetch(first).await;
        let length = wanted.length_bytes;
        let lost = self.lost_data();
        if lost.is_empty() {
            let columns = self.read[self.parity_count..].iter().flatten();
            if (wanted.verify)(&first_of(columns.map(|column| &**column), length)) {
                return Ok(Found::AsRead);
            }
        }
        self.fetch(0..self.parity_count).await;
        let verify = |block: &[u8]| (wanted.verify)(&[&block[..length.min(block.len())]]);
        let made = self.reconstruct(&lost, &verify).map(Found::Made);
        if made.is_ok() || !self.fetch_late().await {
            return made;
        }
        let lost = self.lost_data();
        if lost.is_empty() && verify(&self.assemble(&[])) {
            return Ok(Found::AsRead);
        }
        self.reconstruct(&lost, &verify).map(Found::Made).or(made)
    }

    /// Reads the columns of members that have missed the block, when nothing else gives it; whether there are any.
    async fn fetch_late(&mut self) -> bool {
        let none = (0..self.columns.len()).filter(|n| self.read[*n].is_none());
        let late = none.filter_map(|n| {
            let slot = self.columns[n].slot;
            Some((n, self.plex.late_member(slot, self.birth_txg)?.clone()))
        });
        let late: Vec<_> = late.collect();
        let asked = late.iter().map(|(n, member)| {
            let column = &self.columns[*n];
            let length = column.length_bytes as usize;
            (Some(member.clone()), column.member_offset_bytes, length)
        });
        let results = read_all(asked).await;
        let mut has_any = false;
        for ((n, _), result) in late.iter().zip(results) {
            if let Some(Ok(bytes)) = result {
                self.read[*n] = Some(bytes);
                has_any = true;
            }
        }
        has_any
    }

    /// Reads those of the columns that are not there yet.
    async fn fetch(&mut self, range: std::ops::Range<usize>) {
        let wanted: Vec<usize> = range.filter(|n| self.read[*n].is_none()).collect();
        let asked = wanted.iter().map(|n| {
            let column = &self.columns[*n];
            let member = self.plex.member(column.slot, self.birth_txg).cloned();
            (
                member,
                column.member_offset_bytes,
                column.length_bytes as usize,
            )
        });
        let results = read_all(asked).await;
        for (n, result) in wanted.into_iter().zip(results) {
            match result {
                Some(Ok(bytes)) => self.read[n] = Some(bytes),
                Some(Err(error)) => self.errors.push((n, error)),
                None => {}
            }
        }
    }

    /// Columns with data that could not be read.
    fn lost_data(&self) -> Vec<usize> {
        (self.parity_count..self.columns.len())
            .filter(|n| self.read[*n].is_none())
            .collect()
    }

    fn has_parity(&self) -> bool {
        self.read[..self.parity_count].iter().any(Option::is_some)
    }

    /// The block from what was read, with `repaired` columns (number, bytes) in place of others.
    fn assemble(&self, repaired: &[(usize, Vec<u8>)]) -> Vec<u8> {
        let data = &self.columns[self.parity_count..];
        let length: u64 = data.iter().map(|column| column.length_bytes).sum();
        let mut block = Vec::with_capacity(length as usize);
        for (n, column) in self.columns.iter().enumerate().skip(self.parity_count) {
            let length = column.length_bytes as usize;
            let new = repaired.iter().find(|(number, _)| *number == n);
            let bytes = match (new, &self.read[n]) {
                (Some((_, bytes)), _) => &bytes[..length],
                (None, Some(bytes)) => &bytes[..length],
                (None, None) => unreachable!("what is neither read nor repaired is in `lost`"),
            };
            block.extend_from_slice(bytes);
        }
        block
    }

    /// Tries the sets of columns that may be lying, beside those that are known to be lost.
    fn reconstruct(
        &self,
        lost: &[usize],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, String> {
        let parities = self.read[..self.parity_count].iter().flatten().count();
        if lost.len() > parities {
            let (slots, id) = (lost.len(), self.plex.config.id);
            return Err(format!(
                "plex {id}: {slots} data columns are missing, {parities} parities are there"
            ));
        }
        let padded = self.padded();
        let present: Vec<usize> = (0..self.columns.len())
            .filter(|n| self.read[*n].is_some())
            .collect();
        let mut attempts = 0;
        let mut attempt = |suspects: &[usize]| -> Option<Vec<u8>> {
            attempts += 1;
            let block = self.attempt(&padded, lost, suspects)?;
            verify(&block).then_some(block)
        };
        if !lost.is_empty()
            && let Some(block) = attempt(&[])
        {
            return Ok(block);
        }
        let known: Vec<usize> = {
            let culprits = self.plex.culprits.borrow();
            let is_known = |n: &&usize| culprits.contains(&self.columns[**n].slot);
            present.iter().filter(is_known).copied().collect()
        };
        if !known.is_empty()
            && let Some(block) = attempt(&known)
        {
            return Ok(block);
        }
        for count in 1..=parities - lost.len() {
            let mut suspects = Combinations::new(present.len(), count);
            while let Some(places) = suspects.next() {
                let set: Vec<usize> = places.iter().map(|place| present[*place]).collect();
                if let Some(block) = attempt(&set) {
                    return Ok(block);
                }
                if suspects.given > ATTEMPTS_MAX {
                    return Err(format!(
                        "more than {ATTEMPTS_MAX} sets of columns may be wrong"
                    ));
                }
            }
        }
        let id = self.plex.config.id;
        Err(format!(
            "plex {id}: no set of columns gives the block ({attempts} were tried)"
        ))
    }

    /// Every column that was read, with zeroes up to the length of parity.
    fn padded(&self) -> Vec<Option<Vec<u8>>> {
        let length = self.map.parity_bytes() as usize;
        let pad = |bytes: &Bytes| {
            let mut padded = bytes.to_vec();
            padded.resize(length, 0);
            padded
        };
        self.read
            .iter()
            .map(|bytes| bytes.as_ref().map(pad))
            .collect()
    }

    /// The block if `lost` and `suspects` are computed from the other columns; `None` when they are too many, or when
    /// nothing but parity is suspected.
    fn attempt(
        &self,
        padded: &[Option<Vec<u8>>],
        lost: &[usize],
        suspects: &[usize],
    ) -> Option<Vec<u8>> {
        let mut gone: Vec<usize> = lost.to_vec();
        gone.extend(suspects.iter().filter(|n| **n >= self.parity_count));
        if gone.is_empty() {
            return None;
        }
        let missing: Vec<Block> = gone
            .iter()
            .map(|n| Block::Data(n - self.parity_count))
            .collect();
        let available: Vec<Block> = (0..self.parity_count)
            .filter(|n| padded[*n].is_some() && !suspects.contains(n))
            .map(|n| PARITIES[n])
            .collect();
        let plan = RecoverPlan::new(&self.exponents(), &missing, &available).ok()?;
        let sources: Option<Vec<&[u8]>> = plan
            .sources()
            .iter()
            .map(|block| padded[self.number(*block)].as_deref())
            .collect();
        let length = self.map.parity_bytes() as usize;
        let mut targets = vec![vec![0; length]; gone.len()];
        let mut borrowed: Vec<&mut [u8]> = targets.iter_mut().map(Vec::as_mut_slice).collect();
        plan.recover(&sources?, &mut borrowed);
        let repaired: Vec<(usize, Vec<u8>)> = gone.into_iter().zip(targets).collect();
        // What a short column would have behind its end is zero; anything else proves a wrong set.
        let is_possible = repaired.iter().all(|(n, bytes)| {
            let length = self.columns[*n].length_bytes as usize;
            bytes[length..].iter().all(|byte| *byte == 0)
        });
        is_possible.then(|| self.assemble(&repaired))
    }

    fn exponents(&self) -> Vec<u8> {
        (0..self.map.data_count())
            .map(|data| self.map.exponent(data))
            .collect()
    }

    fn number(&self, block: Block) -> usize {
        match block {
            Block::Data(data) => self.parity_count + data,
            Block::P => 0,
            Block::Q => 1,
            Block::R => 2,
        }
    }

    /// Columns that were read and are not what the verified `block` makes them.
    fn wrong_columns(&self, block: &[u8]) -> Vec<usize> {
        let expected = columns_of(&self.map, block);
        let is_wrong = |n: &usize| {
            let read = self.read[*n].as_ref();
            read.is_some_and(|bytes| **bytes != expected[*n][..bytes.len()])
        };
        (0..self.columns.len()).filter(is_wrong).collect()
    }

    fn damage(&self, column: usize, kind: DamageKind) -> Option<Damage> {
        let RaidzColumn {
            slot,
            member_offset_bytes,
            length_bytes,
            ..
        } = self.columns[column];
        let member = self.plex.member(slot, self.birth_txg)?;
        Some(Damage::new(member, member_offset_bytes, length_bytes, kind))
    }
}

/// All columns of a block, parity first, each as long as parity: what the members hold, with zeroes behind short ones.
///
/// # Panics
/// When the block is longer than its map.
pub(crate) fn columns_of(map: &RaidzMap, block: &[u8]) -> Vec<Vec<u8>> {
    let length = map.parity_bytes() as usize;
    let mut columns: Vec<Vec<u8>> = map
        .columns()
        .map(|column| {
            let mut bytes = vec![0; length];
            if let RaidzPart::Data(_) = column.part {
                let start = (column.block_offset_bytes as usize).min(block.len());
                let end = (start + column.length_bytes as usize).min(block.len());
                bytes[..end - start].copy_from_slice(&block[start..end]);
            }
            bytes
        })
        .collect();
    let (parity, data) = columns.split_at_mut(map.column_count() - map.data_count());
    let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let exponents: Vec<u8> = (0..map.data_count()).map(|n| map.exponent(n)).collect();
    match parity {
        [p] => gen_p(&sources, p),
        [p, q] => gen_pq(&sources, &exponents, p, q),
        [p, q, r] => gen_pqr(&sources, &exponents, p, q, r),
        _ => unreachable!("a geometry has one to three parities"),
    }
    columns
}

/// The sets of `size` of `total` numbers in lexical order.
struct Combinations {
    total: usize,
    places: Vec<usize>,
    given: usize,
}

impl Combinations {
    fn new(total: usize, size: usize) -> Self {
        Self {
            total,
            places: (0..size).collect(),
            given: 0,
        }
    }

    fn next(&mut self) -> Option<&[usize]> {
        let size = self.places.len();
        if size > self.total {
            return None;
        }
        if self.given > 0 {
            let can_move = |n: &usize| self.places[*n] < self.total - size + n;
            let last = (0..size).rev().find(can_move)?;
            self.places[last] += 1;
            for n in last + 1..size {
                self.places[n] = self.places[n - 1] + 1;
            }
        }
        self.given += 1;
        Some(&self.places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sets_come_once_and_in_order() {
        let mut sets = Combinations::new(4, 2);
        let mut found = Vec::new();
        while let Some(set) = sets.next() {
            found.push(set.to_vec());
        }
        assert_eq!(found, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!(Combinations::new(2, 3).next(), None);
    }
}
