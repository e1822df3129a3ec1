//! What a volume of Vinum stands on besides devices: a drive whose labels several volumes write, and a plex, which is a
//! volume itself. So volumes of several plexes need no code of their own: copies between plexes are copies between
//! members.
//!
//! Invariants:
//! - a plex is reached through a box, so that the type of a volume over plexes is finite;
//! - bytes behind the end of a plex are its label: what is written there is carried to every drive under it.

use std::cell::Cell;
use std::rc::Rc;

use crate::gvinum::counters::Direction;
use crate::gvinum::tally::PlexTally;
use plexum_block::boxed::BoxedDevice;
use plexum_block::buf::{Buf, BufMut};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, DeviceInfo, Extent, Fua, FuaWay, IoError, ZeroMode};
use plexum_block::wait::Mutex;
use plexum_engine::metadata::MetadataWrite;
use plexum_engine::volume::Volume;

/// Bytes behind a plex that stand for the labels of its drives.
pub const PLEX_LABEL_BYTES: u64 = 4096;

/// The members of a system of Vinum: whatever its drives are, it can also be a device behind a box, which is what this
/// format puts between a volume and its drives. Clones are the same device.
pub trait Stackable: Device + Clone + From<BoxedDevice> {
    /// This, as a member.
    #[must_use]
    fn stacked(device: &Rc<impl Device>) -> Self {
        BoxedDevice::new(Rc::clone(device)).into()
    }
}

impl<D: Device + Clone + From<BoxedDevice>> Stackable for D {}

/// The labels of a drive that several volumes write: whoever wants one written writes what is true at that moment, one
/// after the other. So no older label ever comes after a newer one.
pub struct Lane {
    /// One at a time.
    pub turn: Mutex,
    /// What is to be written now, in order.
    pub labels: Box<dyn Fn() -> Vec<MetadataWrite>>,
    /// A write to this address writes all of them.
    pub at_bytes: u64,
    /// Other writes below this address are parts of the same label: nothing is written for them.
    pub end_bytes: u64,
    /// For the copies that are written.
    pub pool: plexum_block::buf::BufPool,
    /// How often a flush of the drive has failed, whoever asked.
    pub failed_flushes: Cell<u64>,
}

impl Lane {
    async fn write(
        &self,
        device: &impl Device,
        offset_bytes: u64,
        fua: Fua,
    ) -> Result<(), IoError> {
        if offset_bytes != self.at_bytes {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        for write in (self.labels)() {
            let bytes = self.pool.copy_of(&write.bytes).freeze();
            device.write(write.at_bytes, bytes, fua).await?;
        }
        Ok(())
    }
}

/// A drive whose labels several volumes write, as one member uses it.
pub struct LabelledDrive<D> {
    device: D,
    lane: Rc<Lane>,
    /// Failed flushes that this member has heard of.
    heard: Cell<u64>,
}

impl<D: Device> LabelledDrive<D> {
    /// A member on `device`, whose labels go by `lane`.
    #[must_use]
    pub fn new(device: D, lane: &Rc<Lane>) -> Self {
        Self {
            device,
            lane: Rc::clone(lane),
            heard: Cell::new(lane.failed_flushes.get()),
        }
    }
}

impl<D: Device> Device for LabelledDrive<D> {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.device.read(offset_bytes, buf).await
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        match offset_bytes < self.lane.end_bytes {
            true => self.lane.write(&self.device, offset_bytes, fua).await,
            false => self.device.write(offset_bytes, data, fua).await,
        }
    }

    /// Flushes the drive. A flush that failed for another member has left what this one wrote in doubt as well, and the
    /// device tells it only once (W13).
    async fn flush(&self) -> Result<(), IoError> {
        let result = self.device.flush().await;
        let failed = &self.lane.failed_flushes;
        failed.set(failed.get() + u64::from(result.is_err()));
        if self.heard.replace(failed.get()) < failed.get() {
            return result.and(Err(IoError::Medium));
        }
        result
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
    ) -> Result<(), IoError> {
        self.device.zero(offset_bytes, length_bytes, mode).await
    }

    async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        self.device
            .extents(offset_bytes, length_bytes, extents_max)
            .await
    }

    fn fua_way(&self) -> FuaWay {
        self.device.fua_way()
    }

    fn is_in_memory(&self) -> bool {
        self.device.is_in_memory()
    }

    fn busy(&self) -> usize {
        self.device.busy()
    }

    async fn check(&self) -> Result<(), IoError> {
        self.device.check().await
    }
}

/// What has to be written to each drive under a plex when its label is written: the drive's number, and the writes.
pub type LabelWrites = Vec<(usize, Vec<MetadataWrite>)>;

/// A plex as a member of a volume.
pub struct PlexMember<D: Device, C: Clock> {
    /// Its name.
    pub name: String,
    /// The plex.
    pub volume: Volume<D, C>,
    /// The drives under it, with the caller's numbers.
    pub drives: Vec<(usize, D)>,
    /// What it has done.
    pub tally: Rc<PlexTally>,
    /// Says what their labels are now.
    pub labels: Box<dyn Fn() -> LabelWrites>,
}

impl<D: Device, C: Clock> PlexMember<D, C> {
    /// The address at which the label of a plex of `plex_bytes` stands.
    #[must_use]
    pub fn label_at_bytes(plex_bytes: u64, sector_bytes: u32) -> u64 {
        plex_bytes.next_multiple_of(u64::from(sector_bytes))
    }

    async fn write_labels(&self) -> Result<(), IoError> {
        for (number, writes) in (self.labels)() {
            let Some((_, device)) = self.drives.iter().find(|(known, _)| *known == number) else {
                continue;
            };
            for write in writes {
                let bytes = self.volume.pool().copy_of(&write.bytes).freeze();
                device.write(write.at_bytes, bytes, Fua::Yes).await?;
            }
        }
        Ok(())
    }

    /// A plex that has lost too much is gone as a member; a range that it cannot read may be had elsewhere.
    fn as_member<T>(&self, result: Result<T, IoError>) -> Result<T, IoError> {
        match result {
            Err(IoError::Failed) if self.volume.is_frozen() => Err(IoError::Gone),
            Err(IoError::Failed) => Err(IoError::Medium),
            other => other,
        }
    }
}

impl<D: Device, C: Clock> Device for PlexMember<D, C> {
    fn info(&self) -> DeviceInfo {
        let sector_bytes = self.volume.sector_bytes();
        let label = Self::label_at_bytes(self.volume.size_bytes(), sector_bytes);
        let mut infos = self.drives.iter().map(|(_, device)| device.info());
        DeviceInfo {
            size_bytes: label + PLEX_LABEL_BYTES,
            sector_bytes,
            is_rotational: infos.any(|info| info.is_rotational),
            has_zeroing_trim: false,
        }
    }

    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        let mut rope = self.as_member(self.volume.read(offset_bytes, buf.len()).await)?;
        let length = buf.len() as u64;
        self.tally
            .count_on(&self.volume, Direction::Read, offset_bytes, length);
        if rope.pieces.len() == 1
            && let Some(piece) = rope.pieces.pop()
        {
            // What one member of the plex has answered goes on as it is, without a copy.
            match piece.into_mut() {
                Ok(answer) => return Ok(answer),
                Err(piece) => rope.pieces.push(piece),
            }
        }
        let mut at = 0;
        for piece in &rope.pieces {
            buf[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Ok(buf)
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        if offset_bytes >= self.volume.size_bytes() {
            return self.write_labels().await;
        }
        let length = data.len() as u64;
        self.as_member(self.volume.write(offset_bytes, data, fua).await)?;
        self.tally
            .count_on(&self.volume, Direction::Write, offset_bytes, length);
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.as_member(self.volume.flush().await)
    }

    fn fua_way(&self) -> FuaWay {
        FuaWay::of_all(self.drives.iter().map(|(_, drive)| drive))
    }

    fn is_in_memory(&self) -> bool {
        self.drives.iter().all(|(_, device)| device.is_in_memory())
    }

    fn busy(&self) -> usize {
        self.drives.iter().map(|(_, device)| device.busy()).sum()
    }

    /// Its own background looks after its members.
    async fn check(&self) -> Result<(), IoError> {
        match self.volume.is_frozen() {
            true => Err(IoError::Gone),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::gvinum::tally::Tallies;
    use plexum_block::buf::BufPool;
    use plexum_block::clock::Moment;
    use plexum_block::ranges::RangeSet;
    use plexum_engine::intent::regions::Regions;
    use plexum_engine::metadata::PlainMetadata;
    use plexum_engine::state::{MemberRecord, Standing};
    use plexum_engine::volume::VolumeOptions;
    use plexum_engine::volume::{DrivePart, VolumeParts};
    use plexum_layout::{Geometry, GeometrySpec, Organisation, Raid0Layout};

    /// A device that says once that a flush has failed.
    struct Once(Cell<bool>);

    impl Device for Once {
        fn info(&self) -> DeviceInfo {
            DeviceInfo::plain(512)
        }
        async fn read(&self, _offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
            Ok(buf)
        }
        async fn write(&self, _offset_bytes: u64, _data: Buf, _fua: Fua) -> Result<(), IoError> {
            Ok(())
        }
        async fn flush(&self) -> Result<(), IoError> {
            if self.0.replace(false) {
                Err(IoError::Medium)
            } else {
                Ok(())
            }
        }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        match future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("nothing here waits"),
        }
    }

    /// Reads as the low byte of the strip's number, and notes where the answer lies.
    #[derive(Default)]
    struct Strips {
        answered: Cell<usize>,
    }

    impl Device for Strips {
        fn info(&self) -> DeviceInfo {
            DeviceInfo::plain(1 << 20)
        }
        async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
            buf.fill(u8::try_from(offset_bytes / STRIP_BYTES).unwrap());
            self.answered.set(buf.as_ptr() as usize);
            Ok(buf)
        }
        async fn write(&self, _offset_bytes: u64, _data: Buf, _fua: Fua) -> Result<(), IoError> {
            Ok(())
        }
        async fn flush(&self) -> Result<(), IoError> {
            Ok(())
        }
    }

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Moment {
            Moment(0)
        }
        fn wall_seconds(&self) -> u64 {
            0
        }
        async fn sleep(&self, _duration: std::time::Duration) {
            std::future::pending().await
        }
    }

    const STRIP_BYTES: u64 = 4096;

    /// A plex of two stripes of this drive.
    fn plex(drive: &Rc<Strips>) -> PlexMember<BoxedDevice, Still> {
        let geometry = Geometry::new(&GeometrySpec {
            organisation: Organisation::Raid0(Raid0Layout::Original),
            member_count: 2,
            strip_bytes: STRIP_BYTES,
            component_bytes: 64 << 10,
            member_sizes_bytes: Vec::new(),
        })
        .unwrap();
        let members = (0..2).map(|slot| DrivePart {
            name: format!("subdisk {slot}"),
            device: Some(BoxedDevice::stacked(drive)),
            record: MemberRecord {
                slot: Some(slot),
                standing: Standing::Active,
                is_replacement: false,
                is_write_mostly: false,
            },
            data: 0..64 << 10,
            bad: RangeSet::new(),
        });
        let volume = Volume::new(VolumeParts {
            name: "plex".to_owned(),
            regions: Regions::without_bitmap(&geometry, 512, None),
            geometry,
            clock: Still,
            pool: BufPool::new(1 << 20),
            members: members.collect(),
            metadata: Box::new(PlainMetadata::new("test")),
            event_count: 0,
            is_uneven: false,
            log: None,
            resync_start_bytes: None,
            options: VolumeOptions::default(),
        });
        PlexMember {
            name: "plex".to_owned(),
            volume,
            drives: Vec::new(),
            tally: Tallies::default().plex("plex", std::iter::empty()),
            labels: Box::new(Vec::new),
        }
    }

    #[test]
    fn what_one_drive_of_a_plex_answers_is_not_copied_and_what_several_answer_is_put_together() {
        let drive = Rc::new(Strips::default());
        let plex = plex(&drive);
        let pool = BufPool::new(1 << 20);
        let strip = usize::try_from(STRIP_BYTES).unwrap();
        let one = run(plex.read(2 * STRIP_BYTES, pool.take(strip))).unwrap();
        assert_eq!(one.as_ptr() as usize, drive.answered.get());
        assert_eq!((one.len(), one[0], one[strip - 1]), (strip, 1, 1));
        let several = run(plex.read(STRIP_BYTES, pool.take(3 * strip))).unwrap();
        let first_bytes: Vec<u8> = several.chunks(strip).map(|strip| strip[0]).collect();
        assert_eq!((several.len(), first_bytes), (3 * strip, vec![0, 1, 1]));
    }

    #[test]
    fn a_failed_flush_is_heard_by_every_member_on_the_drive_once() {
        let lane = Rc::new(Lane {
            turn: Mutex::new(),
            labels: Box::new(Vec::new),
            at_bytes: 0,
            end_bytes: 0,
            pool: BufPool::new(4096),
            failed_flushes: Cell::new(0),
        });
        let device = Rc::new(Once(Cell::new(true)));
        let user = || LabelledDrive::new(Rc::clone(&device), &lane);
        let (one, other) = (user(), user());
        assert!(run(one.flush()).is_err());
        assert_eq!(run(one.flush()), Ok(()));
        assert!(run(other.flush()).is_err(), "its writes are in doubt too");
        assert_eq!(run(other.flush()), Ok(()));
    }
}
