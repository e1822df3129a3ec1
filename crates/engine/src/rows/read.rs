//! Reading strips: from the member, or from the rest of the row.

use std::ops::Range;

use plexum_parity::Block;

use crate::mutant::Mutant;
use crate::row::Row;
use crate::rows::Rows;
use crate::stage::{Stage, Tag};
use plexum_block::buf::Buf;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};

impl<D: Device, C: Clock> Rows<D, C> {
    /// Reads a part of data strip `index` of a row.
    pub(crate) async fn read_strip(
        &self,
        row_number: u64,
        index: usize,
        part: Range<u64>,
        tag: &Tag<'_>,
    ) -> Result<Buf, IoError> {
        let row = self.base.row(row_number);
        let block = Block::Data(index);
        debug_assert!(part.start < part.end && part.end <= row.strip_bytes);
        debug_assert!(index < row.map.data_count(), "a strip of data");
        let set = self.array.members();
        let member = row.member_range(&part);
        let drive = self
            .array
            .readable_drive(&set, row.slot(block), &member, &member);
        if let Some(drive) = drive {
            let read = || async {
                Ok(self
                    .intent
                    .read_block(&set, &row, block, &part)
                    .await?
                    .freeze())
            };
            let instead = || (!self.array.is_lent()).then(|| self.read_instead(&row, block, &part));
            match self.array.race(drive, tag.started(), read, instead).await {
                Ok(buf) => return Ok(buf),
                Err(_) if self.array.is_frozen() => return Err(IoError::Failed),
                Err(_) => {}
            }
        }
        if self.array.is_lent() {
            return Err(IoError::Medium);
        }
        self.read_around(&row, block, &part, tag).await
    }

    /// The block from the rest of its row, as it is read when its member takes too long (W9).
    async fn read_instead(
        &self,
        row: &Row,
        block: Block,
        part: &Range<u64>,
    ) -> Result<Buf, IoError> {
        let _lock = self.base.locks().row(row.number).await;
        let recovered = self
            .recover_blocks(row, &[block], part, vec![block])
            .await?;
        recovered.into_iter().next().ok_or(IoError::Medium)
    }

    /// The block cannot be read: recover it under the row's lock, and mend the member that could not read it.
    async fn read_around(
        &self,
        row: &Row,
        block: Block,
        part: &Range<u64>,
        tag: &Tag<'_>,
    ) -> Result<Buf, IoError> {
        tag.enter(Stage::Lock);
        let _lock = if self.base.has(Mutant::NoRowLock) {
            None
        } else {
            Some(self.base.locks().row(row.number).await)
        };
        tag.enter(Stage::Read);
        let set = self.array.members();
        let member = row.member_range(part);
        let drive = self
            .array
            .readable_drive(&set, row.slot(block), &member, &member)
            .cloned();
        if drive.is_some() {
            // Somebody may have mended it while we waited for the lock.
            if let Ok(buf) = self.intent.read_block(&set, row, block, part).await {
                return Ok(buf.freeze());
            }
        }
        let data = self.recover_block(row, block, part).await?;
        if let Some(drive) = drive {
            self.array.mend(&drive, member, &data).await?;
        }
        Ok(data)
    }
}
