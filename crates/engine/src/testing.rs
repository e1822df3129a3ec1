//! Made-up members for tests of one room: in memory, with a clock that stands still. Nothing here ever waits.
#![allow(clippy::unwrap_used)] // tests

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::array::{Array, ArrayParts, Companion, Follower, MemberSet};
use crate::base::Base;
use crate::drive::Drive;
use crate::intent::Intent;
use crate::intent::regions::Regions;
use crate::metadata::{CommitView, Metadata, MetadataWrite, NewMemberPlace};
use crate::options::VolumeOptions;
use crate::state::{MemberId, MemberRecord, Standing};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::ranges::RangeSet;
use plexum_layout::{Geometry, GeometrySpec, Organisation};

/// Bytes of a member that hold data; a sector for its superblock is behind them.
pub(crate) const DATA_BYTES: u64 = 64 << 10;

/// Bytes of a strip.
pub(crate) const STRIP_BYTES: u64 = 4096;

/// A member in memory; clones share it.
#[derive(Clone)]
pub(crate) struct Memory {
    pub bytes: Rc<RefCell<Vec<u8>>>,
    /// What every I/O of one kind answers with, while it is set.
    pub read_error: Rc<Cell<Option<IoError>>>,
    pub write_error: Rc<Cell<Option<IoError>>>,
    pub flush_error: Rc<Cell<Option<IoError>>>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Rc::new(RefCell::new(vec![0; DATA_BYTES as usize + 512])),
            read_error: Rc::default(),
            write_error: Rc::default(),
            flush_error: Rc::default(),
        }
    }
}

impl Device for Memory {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::plain(DATA_BYTES + 512)
    }

    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        self.read_error.get().map_or(Ok(()), Err)?;
        let start = offset_bytes as usize;
        let length = buf.len();
        buf.copy_from_slice(&self.bytes.borrow()[start..start + length]);
        Ok(buf)
    }

    async fn write(&self, offset_bytes: u64, data: Buf, _fua: Fua) -> Result<(), IoError> {
        self.write_error.get().map_or(Ok(()), Err)?;
        let start = offset_bytes as usize;
        self.bytes.borrow_mut()[start..start + data.len()].copy_from_slice(&data);
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.flush_error.get().map_or(Ok(()), Err)
    }
}

/// A clock that stands still.
pub(crate) struct Still;

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment(0)
    }
    fn wall_seconds(&self) -> u64 {
        0
    }
    async fn sleep(&self, _duration: Duration) {
        std::future::pending().await
    }
}

/// Superblocks of one sector: event count, then the standing of every member.
#[derive(Default)]
pub(crate) struct Superblocks;

impl Metadata for Superblocks {
    fn format_name(&self) -> String {
        "made up".to_owned()
    }

    fn superblock(
        &mut self,
        _member: MemberId,
        view: &CommitView<'_>,
        _bad: &RangeSet,
        _info: &DeviceInfo,
    ) -> Vec<MetadataWrite> {
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(&view.event_count.to_le_bytes());
        for (index, record) in view.state.members.iter().enumerate() {
            bytes[8 + index] = u8::from(record.standing == Standing::Active);
        }
        bytes[100] = u8::from(view.state.is_dirty);
        vec![MetadataWrite {
            at_bytes: DATA_BYTES,
            bytes,
        }]
    }

    fn has_commits(&self) -> bool {
        true
    }

    fn add_member(
        &mut self,
        _member: MemberId,
        _identity: [u8; 16],
        _info: &DeviceInfo,
    ) -> Result<NewMemberPlace, String> {
        Ok(NewMemberPlace {
            data: 0..DATA_BYTES,
        })
    }
}

/// What a superblock on a member says.
pub(crate) struct Superblock {
    pub event_count: u64,
    pub is_dirty: bool,
    active: Vec<u8>,
}

impl Superblock {
    pub(crate) fn on(member: &Memory) -> Self {
        let bytes = member.bytes.borrow();
        let own = &bytes[DATA_BYTES as usize..];
        Self {
            event_count: u64::from_le_bytes(own[..8].try_into().unwrap()),
            is_dirty: own[100] == 1,
            active: own[8..16].to_vec(),
        }
    }

    /// Whether it calls a member active.
    pub(crate) fn has_active(&self, member: usize) -> bool {
        self.active[member] == 1
    }
}

/// Members, and the lowest two rooms over them.
pub(crate) struct Ground {
    pub members: Vec<Memory>,
    pub base: Rc<Base<Still>>,
    pub array: Rc<Array<Memory, Still>>,
}

impl Ground {
    /// Clean and complete.
    pub(crate) fn new(organisation: Organisation, count: u16) -> Self {
        let strip_bytes = match organisation {
            Organisation::Raid1 => 0,
            _ => STRIP_BYTES,
        };
        let geometry = Geometry::new(&GeometrySpec {
            organisation,
            member_count: count,
            strip_bytes,
            component_bytes: DATA_BYTES,
            member_sizes_bytes: Vec::new(),
        });
        let options = VolumeOptions::default();
        let thresholds = options.thresholds;
        let base = Rc::new(Base::new(
            "v".to_owned(),
            geometry.unwrap(),
            Still,
            BufPool::new(0),
            options,
        ));
        let members: Vec<Memory> = (0..count).map(|_| Memory::new()).collect();
        let drive = |(id, member): (u16, &Memory)| {
            let name = format!("disk{id}");
            let data = 0..DATA_BYTES;
            let (id, bad) = (MemberId(id), RangeSet::new());
            let drive = Drive::with_thresholds(id, name, member.clone(), data, bad, &thresholds);
            Some(Rc::new(drive))
        };
        let record = |slot| MemberRecord {
            slot: Some(slot),
            standing: Standing::Active,
            is_replacement: false,
            is_write_mostly: false,
        };
        let parts = ArrayParts {
            records: (0..count).map(record).collect(),
            drives: (0..).zip(&members).map(drive).collect(),
            metadata: Box::new(Superblocks),
            event_count: 7,
            is_uneven: false,
            resync_start_bytes: None,
        };
        Self {
            array: Rc::new(Array::new(Rc::clone(&base), parts)),
            members,
            base,
        }
    }
}

impl Ground {
    /// What is known of their agreement, in doubt from this byte of the sync space on.
    pub(crate) fn intent(&self, doubt_from: Option<u64>) -> Rc<Intent<Memory, Still>> {
        let regions = Regions::without_bitmap(self.base.geometry(), 512, doubt_from);
        let (base, array) = (Rc::clone(&self.base), Rc::clone(&self.array));
        Rc::new(Intent::new(base, array, regions))
    }

    /// The array begins, with nobody who follows it but `follower`.
    pub(crate) fn begin(
        &self,
        intent: &Rc<Intent<Memory, Still>>,
        follower: Weak<dyn Follower<Memory>>,
    ) {
        let companion: Weak<dyn Companion<Memory>> = Rc::<Intent<Memory, Still>>::downgrade(intent);
        self.array.begin(companion, follower);
    }
}

/// Nobody follows.
struct Nobody;

impl Follower<Memory> for Nobody {
    fn members_change(&self, _: &MemberSet<Memory>, _: &MemberSet<Memory>) {}
}

/// A follower that is not there.
pub(crate) fn nobody() -> Weak<dyn Follower<Memory>> {
    Weak::<Nobody>::new()
}

/// The output of a future that never waits.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
    panic!("nothing here waits");
}
