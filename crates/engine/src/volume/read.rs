//! Reads: range check, cut at strip borders, one piece a strip, all pieces at once.

use crate::spot::Spot;
use crate::stage::{RequestKind, Stage, Tag};
use crate::state::FailCause;
use crate::volume::Volume;
use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};
use plexum_block::wait::{Few, join_all};
use plexum_layout::Place;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Reads `length_bytes` at `offset_bytes`, both multiples of `sector_bytes`.
    ///
    /// # Errors
    /// `OutOfRange`, `Medium` when this range is lost, `Failed` when the volume is frozen.
    pub async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<Rope, IoError> {
        self.check_request(offset_bytes, length_bytes as u64)?;
        if self.traffic.reads_wait() {
            // Boxed: what is seldom needed does not make every read larger.
            Box::pin(self.array.commit_all()).await?;
            self.traffic.let_read();
        }
        let now = self.base.clock().recent();
        self.traffic.note_request(now);
        let tag = &self
            .traffic
            .begin(RequestKind::Read, offset_bytes, length_bytes as u64, now);
        tag.enter(Stage::Read);
        if length_bytes == 0 {
            return Ok(Rope::default());
        }
        let spot = self.base.spot(offset_bytes);
        if length_bytes as u64 <= spot.length_bytes() {
            return self.read_spot(spot, offset_bytes, length_bytes, tag).await;
        }
        Box::pin(self.read_pieces(offset_bytes, length_bytes, tag)).await
    }

    /// As `read`, of several strips.
    async fn read_pieces(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
        tag: &Tag<'_>,
    ) -> Result<Rope, IoError> {
        let mut pieces: Few<(u64, usize)> = Few::new();
        let end = offset_bytes + length_bytes as u64;
        let mut at = offset_bytes;
        while at < end {
            let length = (end - at).min(self.base.contiguous_bytes(at));
            pieces.push((at, usize::try_from(length).expect("part of a request")));
            at += length;
        }
        let parts = join_all(
            pieces
                .into_iter()
                .map(|(at, length)| self.read_spot(self.base.spot(at), at, length, tag)),
        )
        .await;
        let mut rope = Rope::default();
        for part in parts {
            rope.pieces.extend(part?.pieces);
        }
        Ok(rope)
    }

    /// Refuses what is out of range, not aligned, or asked of a frozen volume.
    pub(crate) fn check_request(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), IoError> {
        let end = offset_bytes
            .checked_add(length_bytes)
            .ok_or(IoError::OutOfRange)?;
        let sector = u64::from(self.array.sector_bytes());
        if end > self.base.size_bytes()
            || !offset_bytes.is_multiple_of(sector)
            || !length_bytes.is_multiple_of(sector)
        {
            return Err(IoError::OutOfRange);
        }
        if self.array.is_frozen() {
            Err(IoError::Failed)
        } else {
            Ok(())
        }
    }

    async fn read_spot(
        &self,
        spot: Spot<'_>,
        at: u64,
        length_bytes: usize,
        tag: &Tag<'_>,
    ) -> Result<Rope, IoError> {
        match spot {
            Spot::Flat(place) => self
                .read_flat(place, length_bytes, tag)
                .await
                .map(Rope::from),
            Spot::Copies(map) => self.copies.read_copies(map, at, length_bytes, tag).await,
            Spot::Row {
                row, index, start, ..
            } => self
                .rows
                .read_strip(row, index, start..start + length_bytes as u64, tag)
                .await
                .map(Rope::from),
        }
    }

    /// Linear and RAID-0: one place, no redundancy.
    async fn read_flat(
        &self,
        place: Place,
        length_bytes: usize,
        tag: &Tag<'_>,
    ) -> Result<Buf, IoError> {
        let set = self.array.members();
        let drive = set.slots[place.slot]
            .active
            .as_ref()
            .ok_or(IoError::Failed)?;
        let read = drive.read_since(
            self.base.pool(),
            self.base.clock(),
            tag.started(),
            place.member_offset_bytes,
            length_bytes,
        );
        match read.await.0 {
            Ok(buf) => Ok(buf.freeze()),
            Err(IoError::Gone) => {
                self.array.fail_member(drive.id, FailCause::Gone);
                Err(IoError::Failed)
            }
            Err(error) => Err(error),
        }
    }
}
