//! Reading strips: from the member, or from the rest of the row.

use std::ops::Range;
use std::rc::Rc;

use plexum_parity::Block;

use super::Row;
use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::stage::{Stage, Tag};
use crate::state::FailCause;
use crate::volume::{Announcement, Volume};
use plexum_block::buf::{Buf, BufMut};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};

/// Unit in which unreadable places are looked for and mended, in bytes.
pub(crate) const MEND_BYTES: u64 = 4096;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Reads a part of data strip `index` of a row.
    pub(crate) async fn read_strip(
        &self,
        row_number: u64,
        index: usize,
        part: Range<u64>,
        tag: &Tag<'_>,
    ) -> Result<Buf, IoError> {
        let row = self.row(row_number);
        let block = Block::Data(index);
        let set = self.members();
        let member = row.member_range(&part);
        let drive = self.readable_drive(&set, row.slot(block), &member, &member);
        if let Some(drive) = drive {
            let read = || async { Ok(self.read_block(&set, &row, block, &part).await?.freeze()) };
            let instead = || (!self.is_lent()).then(|| self.read_instead(&row, block, &part));
            match self.race(drive, tag.started(), read, instead).await {
                Ok(buf) => return Ok(buf),
                Err(_) if self.is_frozen() => return Err(IoError::Failed),
                Err(_) => {}
            }
        }
        if self.is_lent() {
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
        let _lock = self.locks.row(row.number).await;
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
        let _lock = if self.has(Mutant::NoRowLock) {
            None
        } else {
            Some(self.locks.row(row.number).await)
        };
        tag.enter(Stage::Read);
        let set = self.members();
        let member = row.member_range(part);
        let drive = self
            .readable_drive(&set, row.slot(block), &member, &member)
            .cloned();
        if drive.is_some() {
            // Somebody may have mended it while we waited for the lock.
            if let Ok(buf) = self.read_block(&set, row, block, part).await {
                return Ok(buf.freeze());
            }
        }
        let data = self.recover_block(row, block, part).await?;
        if let Some(drive) = drive {
            self.mend(&drive, member, &data).await?;
        }
        Ok(data)
    }

    /// Writes what was recovered back to the member that could not read it, and reads it again; only where it still cannot be
    /// read. What cannot be mended goes on the bad-block list, or the member is failed (linux-md.md 13), but not for want of space.
    pub(crate) async fn mend(
        &self,
        drive: &Rc<Drive<D>>,
        member: Range<u64>,
        data: &Buf,
    ) -> Result<(), IoError> {
        if self.options.borrow().is_read_only {
            return Ok(());
        }
        let mut at = member.start;
        while at < member.end {
            let end = (at / MEND_BYTES * MEND_BYTES + MEND_BYTES).min(member.end);
            let place = |at: u64| usize::try_from(at - member.start).expect("part of a request");
            self.mend_unit(drive, at..end, &data.slice(place(at)..place(end)))
                .await?;
            at = end;
        }
        Ok(())
    }

    async fn mend_unit(
        &self,
        drive: &Rc<Drive<D>>,
        member: Range<u64>,
        data: &Buf,
    ) -> Result<(), IoError> {
        let is_slotted = self.state.borrow().record(drive.id).is_slotted();
        if !is_slotted || self.is_frozen() || drive.is_bad(&member) {
            return Ok(());
        }
        let read = |length| drive.read(&self.pool, &self.clock, member.start, length);
        match read(data.len()).await {
            Ok(_) => return Ok(()),
            Err(IoError::Gone) => {
                self.fail_member(drive.id, FailCause::Gone);
                return self.settle().await;
            }
            Err(_) => {}
        }
        let written = drive.write(&self.clock, member.start, data, Fua::No).await;
        let read_back: Result<BufMut, IoError> = match written {
            Ok(()) => read(data.len()).await,
            Err(error) => Err(error),
        };
        match read_back {
            Ok(again) if *again == **data => {
                drive.count_corrected();
                let (offset_bytes, length_bytes) = (member.start, member.end - member.start);
                let member = drive.name.clone();
                self.announce(Announcement::ReadCorrected {
                    member,
                    offset_bytes,
                    length_bytes,
                });
                Ok(())
            }
            Err(IoError::Gone) => {
                self.fail_member(drive.id, FailCause::Gone);
                self.settle().await
            }
            // Nothing is wrong with the member, and the others have the data: a later read tries again.
            Err(IoError::NoSpace) => Ok(()),
            _ => {
                let _ = self.record_bad(drive, member); // where it stays, a later read tries again
                self.settle().await
            }
        }
    }
}
