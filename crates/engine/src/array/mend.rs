//! A member could not read what the others still hold: it is written back, read again, and recorded where that does not
//! help.

use std::ops::Range;
use std::rc::Rc;

use super::Array;
use super::state::FailCause;
use crate::drive::Drive;
use crate::news::Announcement;
use plexum_block::buf::{Buf, BufMut};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};

/// Unit in which unreadable places are looked for and mended, in bytes.
pub(crate) const MEND_BYTES: u64 = 4096;

impl<D: Device, C: Clock> Array<D, C> {
    /// Writes what was recovered back to the member that could not read it, and reads it again; only where it still
    /// cannot be read. What cannot be mended goes on the bad-block list, or the member is failed (linux-md.md 13), but
    /// not for want of space.
    pub(crate) async fn mend(
        &self,
        drive: &Rc<Drive<D>>,
        member: Range<u64>,
        data: &Buf,
    ) -> Result<(), IoError> {
        if self.base.is_read_only() {
            return Ok(());
        }
        debug_assert_eq!(
            member.end - member.start,
            data.len() as u64,
            "what is mended is known as a whole"
        );
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
        let read = |length| drive.read(self.base.pool(), self.base.clock(), member.start, length);
        match read(data.len()).await {
            Ok(_) => return Ok(()),
            Err(IoError::Gone) => {
                self.fail_member(drive.id, FailCause::Gone);
                return self.settle().await;
            }
            Err(_) => {}
        }
        let written = drive
            .write(self.base.clock(), member.start, data, Fua::No)
            .await;
        let read_back: Result<BufMut, IoError> = match written {
            Ok(()) => read(data.len()).await,
            Err(error) => Err(error),
        };
        match read_back {
            Ok(again) if *again == **data => {
                drive.count_corrected();
                let (offset_bytes, length_bytes) = (member.start, member.end - member.start);
                let member = drive.name.clone();
                self.base.announce(Announcement::ReadCorrected {
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
