//! Where the position of a reshape is durable: in every member's superblock.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use plexum_format::SECTOR_BYTES;
use plexum_format::md::Superblock;

use plexum_block::buf::Buf;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};
use plexum_engine::migrate::{Ledger, Position};
use plexum_engine::state::MemberId;
use plexum_engine::volume::Volume;

/// What the next superblocks say of a reshape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It has come so far, in array sectors.
    At(u64),
    /// There is but the new geometry (R10).
    Ended,
}

/// A reshape as the metadata of the new volume have it.
pub(crate) struct Moving {
    pub(super) progress: Rc<Cell<Progress>>,
    /// Data members of the new geometry.
    pub(super) data_count: u64,
    /// Members that had nothing in the old geometry.
    pub(super) filled: Vec<MemberId>,
    /// Downwards nothing can be said of them (R12).
    pub(super) is_down: bool,
}

impl Moving {
    /// Whether the superblocks say from now on that it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.progress.get() == Progress::Ended
    }

    /// What a member's superblock says while it runs.
    pub(crate) fn put(&self, superblock: &mut Superblock, member: MemberId) {
        let Progress::At(sectors) = self.progress.get() else {
            return;
        };
        if let Some(reshape) = &mut superblock.reshape {
            reshape.position_sectors = sectors;
        }
        if self.filled.contains(&member) {
            let done = if self.is_down {
                0
            } else {
                sectors / self.data_count
            };
            superblock.rebuild_offset_sectors = Some(done);
        }
    }
}

/// The position in the superblocks, which the new volume commits.
pub struct Superblocks<D: Device, C: Clock> {
    pub(super) after: Rc<Volume<D, C>>,
    pub(super) progress: Rc<Cell<Progress>>,
}

impl<D: Device, C: Clock> Ledger for Superblocks<D, C> {
    async fn save(&self, position: Position) -> Result<(), IoError> {
        self.progress
            .set(Progress::At(position.border_bytes / SECTOR_BYTES));
        self.after.commit_metadata().await
    }

    async fn end(&self) -> Result<(), IoError> {
        self.progress.set(Progress::Ended);
        self.after.commit_last_geometry().await
    }

    async fn keep(&self, _at_bytes: u64, _data: Buf) -> Result<(), IoError> {
        Err(IoError::Unsupported) // no reshape begins here that needs it
    }

    async fn flush_kept(&self) -> Result<(), IoError> {
        Err(IoError::Unsupported)
    }

    async fn kept(&self, _range: Range<u64>) -> Result<Buf, IoError> {
        Err(IoError::Unsupported)
    }

    fn note_proven(&self) {}
}
