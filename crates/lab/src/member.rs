//! What a simulated volume is made of: timed disks, other volumes, parts of either.
//!
//! Invariant: nothing here takes time of its own.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufMut};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError, check_range};
use plexum_disks::clock::SimClock;
use plexum_disks::disk::timed::TimedDisk;
use plexum_engine::volume::Volume;

/// The real engine over simulated members.
pub type SimVolume = Volume<Member, SimClock>;

/// One member.
#[derive(Clone)]
pub enum Member {
    /// A disk.
    Disk(TimedDisk),
    /// A volume as a member of another one.
    Volume(Rc<SimVolume>),
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, IoError>> + 'a>>;

fn read_volume(volume: &SimVolume, offset_bytes: u64, mut buf: BufMut) -> Boxed<'_, BufMut> {
    Box::pin(async move {
        let rope = volume.read(offset_bytes, buf.len()).await?;
        let mut at = 0;
        for piece in rope.pieces {
            buf[at..at + piece.len()].copy_from_slice(&piece);
            at += piece.len();
        }
        Ok(buf)
    })
}

fn write_volume(volume: &SimVolume, offset_bytes: u64, data: Buf, fua: Fua) -> Boxed<'_, ()> {
    Box::pin(volume.write(offset_bytes, data, fua))
}

fn flush_volume(volume: &SimVolume) -> Boxed<'_, ()> {
    Box::pin(volume.flush())
}

impl Device for Member {
    fn info(&self) -> DeviceInfo {
        match self {
            Member::Disk(disk) => disk.info(),
            Member::Volume(volume) => DeviceInfo {
                size_bytes: volume.size_bytes(),
                sector_bytes: volume.sector_bytes(),
                is_rotational: true,
                has_zeroing_trim: false,
            },
        }
    }

    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        check_range(&self.info(), offset_bytes, buf.len() as u64)?;
        match self {
            Member::Disk(disk) => disk.read(offset_bytes, buf).await,
            Member::Volume(volume) => read_volume(volume, offset_bytes, buf).await,
        }
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        match self {
            Member::Disk(disk) => disk.write(offset_bytes, data, fua).await,
            Member::Volume(volume) => write_volume(volume, offset_bytes, data, fua).await,
        }
    }

    async fn flush(&self) -> Result<(), IoError> {
        match self {
            Member::Disk(disk) => disk.flush().await,
            Member::Volume(volume) => flush_volume(volume).await,
        }
    }
}
