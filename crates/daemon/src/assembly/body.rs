//! What is served, whatever it is made of: requests of clients, background work, the end.

use std::ops::{Deref, Range};
use std::rc::Rc;

use plexum_block::buf::Rope;
use plexum_block::device::{Extent, Fua, IoError, ZeroMode};
use plexum_block::wait::{join, join_all};
use plexum_engine::volume::{JobStatus, VolumeStatus};
use plexum_freebsd::gvinum::Growing;
use plexum_md::open::Pieces;
use plexum_md::reshape::Reshaping;
use plexum_runtime::clock::RealClock;

use super::{RealDevice, RealPlex, RealVolume};
use crate::open::AnyDevice;

/// What is served: a volume, or one that is read from pieces. Stands for its volume (of the halves of a reshape the one
/// in the old geometry).
pub enum Body {
    /// One geometry.
    Whole(Box<RealVolume>),
    /// Copies over several plexes, each with background work of its own.
    Plexes(Box<RealVolume>, Vec<Rc<RealPlex>>),
    /// One piece over a plex that gets more subdisks; the data move in the background.
    Growing(Box<RealVolume>, Rc<Growing<AnyDevice, RealClock>>),
    /// An array of md between two geometries; the data move in the background. Stands for the array as it will be.
    Reshaping(Box<Reshaping<RealDevice, RealClock>>),
    /// Both halves of an interrupted reshape, or what is in a write journal beside the members; read-only.
    Pieces(Box<Pieces<RealDevice, RealClock>>),
}

impl Body {
    /// Size as clients see it.
    #[must_use]
    pub fn volume_bytes(&self) -> u64 {
        match self {
            Body::Whole(volume) | Body::Plexes(volume, _) | Body::Growing(volume, _) => {
                volume.size_bytes()
            }
            Body::Reshaping(moving) => moving.size_bytes(),
            Body::Pieces(pieces) => pieces.volume_bytes,
        }
    }

    /// Status of the volume; of both halves of a reshape together.
    #[must_use]
    pub fn status(&self) -> VolumeStatus {
        match self {
            Body::Pieces(pieces) => pieces.status(),
            _ => self.deref().status(),
        }
    }

    /// Reads as a client does.
    ///
    /// # Errors
    /// As `Volume::read`.
    pub async fn read_bytes(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<Rope, IoError> {
        match self {
            Body::Whole(volume) | Body::Plexes(volume, _) | Body::Growing(volume, _) => {
                volume.read(offset_bytes, length_bytes).await
            }
            Body::Reshaping(moving) => moving.read(offset_bytes, length_bytes).await,
            Body::Pieces(pieces) => pieces.read(offset_bytes, length_bytes).await,
        }
    }

    /// Makes a range read as zeroes, as a client does it.
    ///
    /// # Errors
    /// As `Volume::zero`.
    pub async fn zero_bytes(
        &self,
        range: Range<u64>,
        mode: ZeroMode,
        fua: Fua,
    ) -> Result<(), IoError> {
        match self {
            Body::Reshaping(moving) => moving.zero(range, fua).await,
            _ => {
                let (volume, length_bytes) = (self.deref(), range.end - range.start);
                volume.zero(range.start, length_bytes, mode, fua).await
            }
        }
    }

    /// Says that a range is not used. Between two geometries it is left as it is.
    ///
    /// # Errors
    /// As `Volume::zero`.
    pub async fn trim_bytes(&self, range: Range<u64>, fua: Fua) -> Result<(), IoError> {
        match self {
            Body::Reshaping(_) => Ok(()),
            _ => self.zero_bytes(range, ZeroMode::Unmap, fua).await,
        }
    }

    /// Makes durable what was answered.
    ///
    /// # Errors
    /// As `Volume::flush`.
    pub async fn flush_all(&self) -> Result<(), IoError> {
        match self {
            Body::Reshaping(moving) => moving.flush().await,
            _ => self.deref().flush().await,
        }
    }

    /// Allocation status as a client is told it; of pieces everything is data.
    ///
    /// # Errors
    /// As `Volume::extents`.
    pub async fn extents_of(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        match self {
            Body::Whole(volume) | Body::Plexes(volume, _) | Body::Growing(volume, _) => {
                volume
                    .extents(offset_bytes, length_bytes, extents_max)
                    .await
            }
            Body::Reshaping(_) | Body::Pieces(_) => Ok(vec![Extent {
                length_bytes,
                is_hole: false,
                is_zero: false,
            }]),
        }
    }

    /// Plexes that are volumes themselves.
    #[must_use]
    pub fn plexes(&self) -> &[Rc<RealPlex>] {
        match self {
            Body::Plexes(_, plexes) => plexes,
            _ => &[],
        }
    }

    /// The long piece of work that runs, given the volume's own one.
    #[must_use]
    pub fn job_beside(&self, own: Option<JobStatus>) -> Option<JobStatus> {
        match self {
            Body::Growing(_, growing) => own.or_else(|| growing.job()),
            Body::Reshaping(moving) => own.or_else(|| moving.job()),
            _ => own,
        }
    }

    /// Runs the background work of the volume and of its plexes until `stop`.
    pub async fn run_background(&self) {
        if let Body::Reshaping(moving) = self {
            return moving.run().await;
        }
        let plexes = self
            .plexes()
            .iter()
            .map(|plex| plex.volume.run_background());
        let growing = async {
            if let Body::Growing(_, growing) = self {
                growing.run().await;
            }
        };
        let plexes = join(join_all(plexes), growing);
        join(self.deref().run_background(), plexes).await;
    }

    /// Ends the volume cleanly, then its plexes.
    ///
    /// # Errors
    /// As `Volume::stop`; the first one counts.
    pub async fn stop(&self) -> Result<(), IoError> {
        if let Body::Reshaping(moving) = self {
            return moving.stop().await;
        }
        let mut result = self.deref().stop().await;
        for plex in self.plexes() {
            let ended = plex.volume.stop().await;
            // A plex that has lost too much was failed as a member: the others hold everything.
            if !plex.volume.is_frozen() {
                result = result.and(ended);
            }
        }
        if let Body::Growing(_, growing) = self {
            result = result.and(growing.stop().await);
        }
        result
    }
}

impl Deref for Body {
    type Target = RealVolume;
    fn deref(&self) -> &RealVolume {
        match self {
            Body::Whole(volume) | Body::Plexes(volume, _) | Body::Growing(volume, _) => volume,
            Body::Reshaping(moving) => moving.after(),
            Body::Pieces(pieces) => pieces.before(),
        }
    }
}
