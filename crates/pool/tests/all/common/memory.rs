//! Disks in memory that lose what was not flushed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufMut};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError, check_range};
use plexum_block::wait::yield_once;
use plexum_disks::rng::Rng;
use plexum_zfs::NamedDevice;

const SECTOR_BYTES: u64 = 512;

/// How many more operations all disks of a world carry out before its power is cut.
#[derive(Clone)]
pub struct Power(Rc<RefCell<Option<u64>>>);

impl Power {
    /// For as long as it takes.
    pub fn on() -> Self {
        Self(Rc::new(RefCell::new(None)))
    }

    /// The power is cut after so many operations.
    pub fn cut_after(&self, operations: Option<u64>) {
        *self.0.borrow_mut() = operations;
    }

    fn spend(&self) -> Result<(), IoError> {
        let mut left = self.0.borrow_mut();
        match left.as_mut() {
            None => Ok(()),
            Some(0) => Err(IoError::Gone),
            Some(count) => {
                *count -= 1;
                Ok(())
            }
        }
    }
}

type Sectors = BTreeMap<u64, Vec<u8>>;

#[derive(Clone, Default)]
struct State {
    stable: Sectors,
    /// Sectors that were written and not flushed.
    volatile: Sectors,
}

/// Reads that take a turn.
#[derive(Default)]
struct Reads {
    are_slow: Cell<bool>,
    count: Cell<usize>,
    under_way: Cell<usize>,
    most: Cell<usize>,
}

/// A disk; clones are the same disk.
#[derive(Clone)]
pub struct MemoryDisk {
    size_bytes: u64,
    state: Rc<RefCell<State>>,
    reads: Rc<Reads>,
    power: Power,
}

impl MemoryDisk {
    pub fn new(size_bytes: u64, power: &Power) -> Self {
        Self {
            size_bytes,
            state: Rc::default(),
            reads: Rc::default(),
            power: power.clone(),
        }
    }

    /// From now on reads take a turn, and are counted.
    pub fn slow_reads(&self) {
        self.reads.are_slow.set(true);
    }

    /// How many slow reads there were.
    pub fn slow_reads_count(&self) -> usize {
        self.reads.count.get()
    }

    /// How many slow reads were under way at a time, at most.
    pub fn reads_at_once(&self) -> usize {
        self.reads.most.get()
    }

    /// Another disk that holds the same.
    pub fn copy(&self, power: &Power) -> Self {
        let state = self.state.borrow().clone();
        Self {
            size_bytes: self.size_bytes,
            state: Rc::new(RefCell::new(state)),
            reads: Rc::default(),
            power: power.clone(),
        }
    }

    /// The power was cut: each sector that was not flushed is there or not.
    pub fn toss(&self, rng: &mut Rng) {
        let mut state = self.state.borrow_mut();
        let volatile = std::mem::take(&mut state.volatile);
        for (sector, bytes) in volatile {
            if rng.chance(1, 2) {
                state.stable.insert(sector, bytes);
            }
        }
    }
}

/// Disks with the names that members are told by.
pub fn named(disks: &[MemoryDisk]) -> Vec<NamedDevice<MemoryDisk>> {
    let named = disks.iter().enumerate();
    named
        .map(|(n, disk)| NamedDevice {
            name: format!("disk {n}"),
            device: disk.clone(),
        })
        .collect()
}

impl Device for MemoryDisk {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::plain(self.size_bytes)
    }
    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        check_range(&self.info(), offset_bytes, buf.len() as u64)?;
        if self.reads.are_slow.get() {
            self.reads.count.set(self.reads.count.get() + 1);
            let count = self.reads.under_way.get() + 1;
            self.reads.under_way.set(count);
            self.reads.most.set(self.reads.most.get().max(count));
            yield_once().await;
            self.reads.under_way.set(self.reads.under_way.get() - 1);
        }
        let state = self.state.borrow();
        for (n, part) in buf.chunks_exact_mut(SECTOR_BYTES as usize).enumerate() {
            let sector = offset_bytes / SECTOR_BYTES + n as u64;
            match state
                .volatile
                .get(&sector)
                .or_else(|| state.stable.get(&sector))
            {
                Some(bytes) => part.copy_from_slice(bytes),
                None => part.fill(0),
            }
        }
        Ok(buf)
    }
    async fn write(&self, offset_bytes: u64, data: Buf, _: Fua) -> Result<(), IoError> {
        check_range(&self.info(), offset_bytes, data.len() as u64)?;
        self.power.spend()?;
        let mut state = self.state.borrow_mut();
        for (n, part) in data.chunks_exact(SECTOR_BYTES as usize).enumerate() {
            state
                .volatile
                .insert(offset_bytes / SECTOR_BYTES + n as u64, part.to_vec());
        }
        Ok(())
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.power.spend()?;
        let mut state = self.state.borrow_mut();
        let volatile = std::mem::take(&mut state.volatile);
        state.stable.extend(volatile);
        Ok(())
    }
}
