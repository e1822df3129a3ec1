//! Copies that differ, or that cannot be read: any other is tried under the range's lock, and the rest made like it.
//!
//! Invariants:
//! - what a copy could not read is written there again from one that could, before it is answered;
//! - where copies may differ, a range is equal and flushed before it is proven (W6).

use std::ops::Range;
use std::rc::Rc;

use super::{Copies, member_range};
use crate::array::io::MemberWrite;
use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::stage::{Stage, Tag};
use crate::state::{FailCause, MemberId};
use plexum_block::buf::Buf;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::Few;

/// Members that could not read a range of their data area.
type Broken<D> = Vec<(Rc<Drive<D>>, Range<u64>)>;

/// What was read of whoever could read it.
struct CopyRead<D> {
    data: Buf,
    /// Who gave all of it; `None` when several did.
    source: Option<MemberId>,
    /// Who could not.
    broken: Broken<D>,
}

impl<D: Device, C: Clock> Copies<D, C> {
    /// Tries the copies one after the other under the range's lock; `failed` is mended with what another copy holds.
    pub(super) async fn read_any_copy(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
        failed: Option<(Rc<Drive<D>>, Range<u64>)>,
    ) -> Result<Buf, IoError> {
        let sync = Self::copies_sync(offset_bytes, length_bytes as u64);
        if self.array.is_lent() {
            return Err(IoError::Medium);
        }
        let _lock = self.base.locks().lock(sync.clone()).await;
        let read = self.read_some_copy(offset_bytes, length_bytes, &sync);
        let CopyRead {
            data, mut broken, ..
        } = read.await?;
        if let Some(failed) = failed
            && !broken.iter().any(|(drive, _)| drive.id == failed.0.id)
        {
            broken.push(failed);
        }
        for (drive, range) in broken {
            self.array.mend(&drive, range, &data).await?;
        }
        Ok(data)
    }

    /// As `first_readable`; where no copy can be read as a whole, every sector is tried by itself: different copies may
    /// have lost different sectors.
    async fn read_some_copy(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
        sync: &Range<u64>,
    ) -> Result<CopyRead<D>, IoError> {
        let sector = self.array.sector_bytes() as usize;
        match self.first_readable(offset_bytes, length_bytes, sync).await {
            Err(IoError::Medium) if length_bytes > sector => {}
            other => return other,
        }
        let mut data = self.base.pool().take(length_bytes);
        let mut all_broken: Broken<D> = Vec::new();
        for start in (0..length_bytes).step_by(sector) {
            let at = offset_bytes + start as u64;
            let piece = self
                .first_readable(at, sector, &(at..at + sector as u64))
                .await?;
            data[start..start + sector].copy_from_slice(&piece.data);
            for (drive, range) in piece.broken {
                let whole = range.start - start as u64;
                if !all_broken.iter().any(|(known, _)| known.id == drive.id) {
                    all_broken.push((drive, whole..whole + length_bytes as u64));
                }
            }
        }
        Ok(CopyRead {
            data: data.freeze(),
            source: None,
            broken: all_broken,
        })
    }

    /// The first copy in md's order that can be read, and those that could not. The caller holds the lock.
    async fn first_readable(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
        sync: &Range<u64>,
    ) -> Result<CopyRead<D>, IoError> {
        let mut broken = Vec::new();
        let set = self.array.members();
        for place in self.base.geometry().copies_of(offset_bytes).iter() {
            let range = member_range(&place, length_bytes);
            let Some(drive) = self
                .array
                .readable_drive(&set, place.slot, &range, sync)
                .cloned()
            else {
                continue;
            };
            match drive
                .read(
                    self.base.pool(),
                    self.base.clock(),
                    range.start,
                    length_bytes,
                )
                .await
            {
                Ok(buf) => {
                    return Ok(CopyRead {
                        data: buf.freeze(),
                        source: Some(drive.id),
                        broken,
                    });
                }
                Err(IoError::Gone) => self.array.fail_member(drive.id, FailCause::Gone),
                Err(_) => broken.push((drive, range)),
            }
        }
        Err(if self.array.is_frozen() {
            IoError::Failed
        } else {
            IoError::Medium
        })
    }

    /// W6: in a region that may differ, the range is made equal on all copies and flushed before it is answered.
    pub(super) async fn read_equalised(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
        tag: &Tag<'_>,
    ) -> Result<Buf, IoError> {
        if self.array.is_lent() {
            return Err(IoError::Medium);
        }
        tag.enter(Stage::Lock);
        let sync = Self::copies_sync(offset_bytes, length_bytes as u64);
        let _lock = self.base.locks().lock(sync.clone()).await;
        tag.enter(Stage::Read);
        let data = self.equalise(offset_bytes, length_bytes).await?;
        if !self.base.is_read_only() {
            tag.enter(Stage::Flush);
            if !self.base.has(Mutant::EqualWithoutFlush) {
                self.intent.flush_members().await?;
            }
            tag.enter(Stage::Settle);
            self.array.settle().await?;
            self.intent.prove(&sync);
        }
        Ok(data)
    }

    /// Makes all copies of a range inside one strip equal to a readable one. The caller holds the lock, and proves the
    /// range only after a flush: a read that came in between would otherwise answer what a crash and the loss of one
    /// copy could take back (W6).
    pub(crate) async fn equalise(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<Buf, IoError> {
        let sync = Self::copies_sync(offset_bytes, length_bytes as u64);
        let CopyRead {
            data,
            source,
            broken,
        } = self
            .read_some_copy(offset_bytes, length_bytes, &sync)
            .await?;
        if self.base.is_read_only() || self.intent.is_proven(&sync) && broken.is_empty() {
            return Ok(data);
        }
        let set = self.array.members();
        let mut writes: Few<MemberWrite<D>> = Few::new();
        for place in self.base.geometry().copies_of(offset_bytes).iter() {
            let range = member_range(&place, length_bytes);
            for drive in self.array.write_targets(&set, place.slot) {
                writes.push((Rc::clone(drive), range.clone(), data.clone()));
            }
        }
        // Equal to itself: the last copy is read where it does not take a write, too. Whoever was read may have failed
        // meanwhile, and the one that is left have other data.
        let is_source = |write: &MemberWrite<D>| Some(write.0.id) == source;
        if writes.len() == 1 && writes.iter().all(is_source) && broken.is_empty() {
            return Ok(data);
        }
        let outcome = self.array.write_members(writes, Fua::No).await;
        self.check_reached(&sync, outcome.reached, outcome.refusal())?;
        Ok(data)
    }
}
