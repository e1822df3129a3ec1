//! Blocks of a row from the other blocks. The caller holds the row's lock.

use std::ops::Range;

use plexum_parity::{Block, RecoverPlan};

use crate::array::MemberSet;
use crate::mutant::Mutant;
use crate::row::{PerBlock, Row};
use crate::rows::Rows;
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};
use plexum_block::wait::join_few;

impl<D: Device, C: Clock> Rows<D, C> {
    /// Reads several blocks at once; those that fail are added to `excluded`.
    pub(crate) async fn read_blocks(
        &self,
        set: &MemberSet<D>,
        row: &Row,
        blocks: &[Block],
        part: &Range<u64>,
        excluded: &mut Vec<Block>,
    ) -> Option<PerBlock<BufMut>> {
        let read = |index: usize| self.intent.read_block(set, row, blocks[index], part);
        let results = join_few(blocks.len(), read).await;
        let mut read = PerBlock::new();
        for (block, result) in blocks.iter().zip(results) {
            match result {
                Ok(buf) => read.push(buf),
                Err(_) => excluded.push(*block),
            }
        }
        (read.len() == blocks.len()).then_some(read)
    }

    /// Recovers `wanted` blocks of `part` without reading them or anything in `excluded`.
    ///
    /// # Errors
    /// `Medium` when too much is lost or the row is in doubt, `Failed` when the array is frozen.
    pub(crate) async fn recover_blocks(
        &self,
        row: &Row,
        wanted: &[Block],
        part: &Range<u64>,
        mut excluded: Vec<Block>,
    ) -> Result<Vec<Buf>, IoError> {
        loop {
            let set = self.array.members();
            let plan = self.recover_plan(&set, row, wanted, part, &excluded)?;
            let Some(sources) = self
                .read_blocks(&set, row, plan.sources(), part, &mut excluded)
                .await
            else {
                continue; // `excluded` grew: bounded by the number of blocks
            };
            return Ok(recover(self.base.pool(), &plan, &sources, wanted.len()));
        }
    }

    /// How `wanted` blocks of `part` are had without reading them or anything in `excluded`; they come first of all it
    /// restores.
    ///
    /// # Errors
    /// As `recover_blocks`.
    pub(crate) fn recover_plan(
        &self,
        set: &MemberSet<D>,
        row: &Row,
        wanted: &[Block],
        part: &Range<u64>,
        excluded: &[Block],
    ) -> Result<RecoverPlan, IoError> {
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        let usable = |block: Block| {
            !excluded.contains(&block)
                && !wanted.contains(&block)
                && self.array.is_block_readable(set, row, block, part)
        };
        let (mut missing, mut available) = (wanted.to_vec(), Vec::new());
        for block in row.blocks().filter(|block| !wanted.contains(block)) {
            match (usable(block), block) {
                (false, Block::Data(_)) => missing.push(block),
                (true, Block::P | Block::Q) => available.push(block),
                _ => {}
            }
        }
        let uses_parity = missing.iter().any(|block| matches!(block, Block::Data(_)));
        if uses_parity && !self.is_trusted(&row.member_range(part)) {
            return Err(IoError::Medium); // parity that may be wrong gives wrong data: say no (W8)
        }
        RecoverPlan::new(&row.exponents(), &missing, &available).map_err(|_| IoError::Medium)
    }

    /// Recovers one block. Where the row as a whole cannot be read, every sector is tried by itself: different members
    /// may have lost different sectors.
    ///
    /// # Errors
    /// `Medium` when some sector is lost, `Failed` when the array is frozen.
    pub(crate) async fn recover_block(
        &self,
        row: &Row,
        block: Block,
        part: &Range<u64>,
    ) -> Result<Buf, IoError> {
        let whole = self.recover_blocks(row, &[block], part, vec![block]).await;
        let sector = u64::from(self.array.sector_bytes());
        let error = match whole {
            Ok(recovered) => return Ok(first(recovered)),
            Err(error) => error,
        };
        if error != IoError::Medium || part.end - part.start <= sector {
            return Err(error);
        }
        let length = usize::try_from(part.end - part.start).expect("a strip fits memory");
        debug_assert_eq!(length as u64, part.end - part.start);
        let mut data = self.base.pool().take(length);
        let mut at = part.start;
        while at < part.end {
            let unit = at..at + sector;
            let place = usize::try_from(at - part.start).expect("inside the part");
            let target = &mut data[place..place + self.array.sector_bytes() as usize];
            // The block's own sector may be readable: only one of the part need not be.
            match self
                .intent
                .read_block(&self.array.members(), row, block, &unit)
                .await
            {
                Ok(own) => target.copy_from_slice(&own),
                Err(_) => {
                    let recovered = self
                        .recover_blocks(row, &[block], &unit, vec![block])
                        .await?;
                    target.copy_from_slice(&first(recovered));
                }
            }
            at += sector;
        }
        Ok(data.freeze())
    }

    /// Whether redundancy of this sync range may be used to answer.
    pub(crate) fn is_trusted(&self, sync: &Range<u64>) -> bool {
        self.base.options().trust_unproven
            || self.base.has(Mutant::TrustDoubtfulParity)
            || self.intent.is_proven(sync)
    }
}

/// Runs a plan over read sources, of one length; returns the first `wanted` of its missing blocks.
fn recover(pool: &BufPool, plan: &RecoverPlan, sources: &[BufMut], wanted: usize) -> Vec<Buf> {
    let length = sources.first().map_or(0, BufMut::len);
    let mut made: Vec<BufMut> = (0..wanted).map(|_| pool.take(length)).collect();
    let sources: PerBlock<&[u8]> = sources.iter().map(|source| &**source).collect();
    let targets = made.iter_mut().map(|target| &mut **target).collect();
    recover_into(pool, plan, &sources, targets);
    made.into_iter().map(BufMut::freeze).collect()
}

/// Runs a plan over sources of one length, and puts the first of its missing blocks into `targets`, as many as these
/// are.
pub(crate) fn recover_into(
    pool: &BufPool,
    plan: &RecoverPlan,
    sources: &[&[u8]],
    targets: Vec<&mut [u8]>,
) {
    let length = sources.first().map_or(0, |source| source.len());
    // What else is missing is restored too, and not asked for.
    let further = plan.missing().len() - targets.len();
    let mut further: PerBlock<BufMut> = (0..further).map(|_| pool.take(length)).collect();
    let mut targets: Vec<&mut [u8]> = targets; // which need not live as long as it did
    targets.extend(further.iter_mut().map(|target| &mut **target));
    plan.recover(sources, &mut targets);
}

fn first(recovered: Vec<Buf>) -> Buf {
    let block = recovered.into_iter().next();
    block.expect("one block was asked for")
}
