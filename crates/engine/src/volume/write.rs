//! Writes, zeroes, trims, flushes: the array is marked dirty (W1), regions are marked (W1), pieces go to their rows or
//! copies, failures become durable (W3), then comes the answer.

use std::ops::Range;

use crate::mutant::Mutant;
use crate::stage::{RequestKind, Stage, Tag};
use crate::state::FailCause;
use crate::threshold::Threshold;
use crate::volume::Volume;
use plexum_block::buf::Buf;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError, ZeroMode};
use plexum_block::wait::{Few, join_all};
use plexum_layout::Organisation;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Writes `data` at `offset_bytes`; both multiples of `sector_bytes`. With `Fua::Yes` it is durable when answered.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NoSpace`, `Medium` when a part has no member to hold it, `Failed` when the volume is
    /// frozen. After an error each sector of the range holds its old or its new content.
    pub async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let length_bytes = data.len() as u64;
        self.check_request(offset_bytes, length_bytes)?;
        if data.is_empty() {
            return self.base.check_writable();
        }
        let now = self.base.clock().recent();
        let tag = self
            .traffic
            .begin(RequestKind::Write, offset_bytes, length_bytes, now);
        let expected = self.rows.expected();
        expected.arrived(&(offset_bytes..offset_bytes + length_bytes));
        tag.enter(Stage::DirtyMark);
        let _in_flight = self.traffic.enter_write(tag.started()).await?;
        tag.enter(Stage::BitMark);
        let _mark = match self.sync_range(offset_bytes, length_bytes) {
            Some(sync) => Some(self.intent.mark(sync).await?),
            None => None,
        };
        let result = if length_bytes <= self.room(offset_bytes) {
            self.write_piece(offset_bytes, data, fua, &tag).await
        } else {
            Box::pin(self.write_pieces(offset_bytes, data, fua, &tag)).await
        };
        self.finish_write(result, &tag).await
    }

    async fn write_pieces(
        &self,
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        let pieces = self.cut(offset_bytes, data.len() as u64);
        let parts = pieces.into_iter().map(|(at, length)| {
            let start = usize::try_from(at - offset_bytes).expect("part of a request");
            let length = usize::try_from(length).expect("part of a request");
            self.write_piece(at, data.slice(start..start + length), fua, tag)
        });
        join_all(parts).await.into_iter().collect()
    }

    /// Writes whole rows of parity that nobody reads before somebody else has made durable that they are in use
    /// (`migrate`): neither a dirty mark nor bits announce them. A member that misses some is failed, durably.
    ///
    /// # Errors
    /// As `write`.
    pub(crate) async fn write_moved(&self, offset_bytes: u64, data: Buf) -> Result<(), IoError> {
        let length_bytes = data.len() as u64;
        self.check_request(offset_bytes, length_bytes)?;
        self.base.check_writable()?;
        let now = self.base.clock().recent();
        let tag = self
            .traffic
            .begin(RequestKind::Write, offset_bytes, length_bytes, now);
        let row_bytes = self.base.geometry().row_data_bytes();
        assert!(
            offset_bytes.is_multiple_of(row_bytes),
            "rows are moved as a whole"
        );
        self.write_pieces(offset_bytes, data, Fua::No, &tag).await?;
        self.array.settle().await
    }

    async fn finish_write(
        &self,
        result: Result<(), IoError>,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        self.traffic.count_write();
        result?;
        tag.enter(Stage::Settle);
        if self.array.is_settled() {
            return Ok(());
        }
        Box::pin(self.array.settle()).await
    }

    /// Range of the sync space that a write touches; `None` where nothing is kept in agreement.
    pub(crate) fn sync_range(&self, offset_bytes: u64, length_bytes: u64) -> Option<Range<u64>> {
        let end = offset_bytes + length_bytes;
        match self.base.geometry().organisation() {
            Organisation::Linear | Organisation::Raid0(_) => None,
            Organisation::Raid1 | Organisation::Raid10(_) => Some(offset_bytes..end),
            _ => {
                let strip = self.base.geometry().strip_bytes();
                let (first_row, first) = self.base.geometry().row_of(offset_bytes);
                let (last_row, last) = self.base.geometry().row_of(end - 1);
                if first_row == last_row && first / strip == last / strip {
                    let start = first_row * strip;
                    return Some(start + first % strip..start + last % strip + 1);
                }
                Some(first_row * strip..(last_row + 1) * strip)
            }
        }
    }

    /// Bytes from `at` on that one piece of a write may cover.
    fn room(&self, at: u64) -> u64 {
        if self.base.geometry().parity_count() > 0 {
            let (_, in_row) = self.base.geometry().row_of(at);
            self.base.geometry().row_data_bytes() - in_row
        } else {
            self.base.contiguous_bytes(at)
        }
    }

    /// Pieces: one a row for parity, one a strip elsewhere.
    fn cut(&self, offset_bytes: u64, length_bytes: u64) -> Few<(u64, u64)> {
        let end = offset_bytes + length_bytes;
        let mut pieces = Few::new();
        let mut at = offset_bytes;
        while at < end {
            let length = self.room(at).min(end - at);
            assert!(length > 0, "a piece has a byte at least");
            pieces.push((at, length));
            at += length;
        }
        pieces
    }

    async fn write_piece(
        &self,
        at: u64,
        data: Buf,
        fua: Fua,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        match self.base.geometry().organisation() {
            Organisation::Linear | Organisation::Raid0(_) => {
                tag.enter(Stage::Write);
                self.write_flat(at, data, fua).await
            }
            Organisation::Raid1 | Organisation::Raid10(_) => {
                self.copies.write_copies(at, data, fua, tag).await
            }
            _ => {
                let (row, in_row) = self.base.geometry().row_of(at);
                self.rows.write_row(row, in_row, data, fua, tag).await
            }
        }
    }

    /// Linear and RAID-0: one place, no redundancy, nothing recorded. A lost member fails the volume.
    async fn write_flat(&self, at: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let place = self.base.geometry().locate(at);
        let set = self.array.members();
        let drive = set.slots[place.slot]
            .active
            .as_ref()
            .ok_or(IoError::Failed)?;
        let fua = if self.base.has(Mutant::IgnoreFua) {
            Fua::No
        } else {
            fua
        };
        match drive
            .write(self.base.clock(), place.member_offset_bytes, &data, fua)
            .await
        {
            Err(IoError::Gone) => {
                self.array.fail_member(drive.id, FailCause::Gone);
                Err(IoError::Failed)
            }
            other => other,
        }
    }

    /// Makes a range read as zeroes. Space may be given back with `ZeroMode::Unmap` where members guarantee zeroes
    /// (W11); parity organisations write zeroes.
    ///
    /// # Errors
    /// As `write`.
    pub async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
        fua: Fua,
    ) -> Result<(), IoError> {
        self.check_request(offset_bytes, length_bytes)?;
        self.base.check_writable()?;
        let now = self.base.clock().recent();
        let tag = self
            .traffic
            .begin(RequestKind::Zero, offset_bytes, length_bytes, now);
        let end = offset_bytes + length_bytes;
        let mut at = offset_bytes;
        let slice = self.base.thresholds().zero_slice_bytes;
        while at < end {
            let length = (end - at).min(slice - at % slice);
            if length < end - at {
                self.base.cross(Threshold::ZeroSlices);
            }
            self.zero_slice(at, length, mode, fua, &tag).await?;
            at += length;
        }
        Ok(())
    }

    async fn zero_slice(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
        fua: Fua,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        tag.enter(Stage::DirtyMark);
        let _in_flight = self.traffic.enter_write(tag.started()).await?;
        tag.enter(Stage::BitMark);
        let _mark = match self.sync_range(offset_bytes, length_bytes) {
            Some(sync) => Some(self.intent.mark(sync).await?),
            None => None,
        };
        if self.base.geometry().parity_count() > 0 {
            let length = usize::try_from(length_bytes).expect("a slice fits memory");
            let zeroes = self.base.pool().take_zeroed(length).freeze();
            let result = Box::pin(self.write_pieces(offset_bytes, zeroes, fua, tag)).await;
            return self.finish_write(result, tag).await;
        }
        let parts = self
            .cut(offset_bytes, length_bytes)
            .into_iter()
            .map(|(at, length)| self.zero_piece(at, length, mode, fua, tag));
        let result: Result<(), IoError> = join_all(parts).await.into_iter().collect();
        self.finish_write(result, tag).await?;
        if fua == Fua::Yes {
            self.flush_tagged(tag).await
        } else {
            Ok(())
        }
    }

    async fn zero_piece(
        &self,
        at: u64,
        length_bytes: u64,
        mode: ZeroMode,
        fua: Fua,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        if self.base.has_copies() {
            return self
                .copies
                .zero_copies(at, length_bytes, mode, fua, tag)
                .await;
        }
        tag.enter(Stage::Write);
        let place = self.base.geometry().locate(at);
        let set = self.array.members();
        let drive = set.slots[place.slot]
            .active
            .clone()
            .ok_or(IoError::Failed)?;
        match drive
            .zero(place.member_offset_bytes, length_bytes, mode)
            .await
        {
            Ok(()) => Ok(()),
            Err(IoError::Gone) => {
                self.array.fail_member(drive.id, FailCause::Gone);
                Err(IoError::Failed)
            }
            Err(_) => {
                let length = usize::try_from(length_bytes).expect("a slice fits memory");
                self.write_flat(at, self.base.pool().take_zeroed(length).freeze(), fua)
                    .await
            }
        }
    }

    /// Makes everything answered so far durable on all members (reliability.md 1.1).
    ///
    /// # Errors
    /// `Failed` when the volume is frozen; a member whose flush fails is failed (W13), which is no error for the client
    /// as long as the others hold everything.
    pub async fn flush(&self) -> Result<(), IoError> {
        let tag = self
            .traffic
            .begin(RequestKind::Flush, 0, 0, self.base.clock().recent());
        self.flush_tagged(&tag).await
    }

    async fn flush_tagged(&self, tag: &Tag<'_>) -> Result<(), IoError> {
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        if self.base.is_read_only() || self.base.has(Mutant::SkipFlush) {
            return Ok(());
        }
        tag.enter(Stage::Flush);
        if self.intent.answers_from_log() {
            return self.array.settle().await; // L5: what was answered is durable in the log
        }
        if self.base.has(Mutant::FlushJoinsRunning) {
            return self.join_running_flush().await;
        }
        let begun = self.intent.flush_live_members().await?;
        tag.enter(Stage::Settle);
        self.intent.settle_flush(begun).await
    }

    /// `FlushJoinsRunning`: waits for the flush that is under way instead of beginning one.
    async fn join_running_flush(&self) -> Result<(), IoError> {
        if self.running_flush.is_locked() {
            let _its_end = self.running_flush.lock().await;
            return self.array.settle().await;
        }
        let _running = self.running_flush.lock().await;
        self.intent.flush_members().await?;
        self.array.settle().await
    }
}
