//! Engines that prove the harness: a single disk that is trivially right, and RAID-1 and RAID-5 without locks, bitmap
//! or superblocks that are wrong in the classic ways. The oracle must pass the first and complain about the others.

use std::ops::Range;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::device::{Device, Fua, IoError, ZeroMode};
use plexum_block::wait::join_all;

use super::scenario::Scenario;
use super::slots::{Setting, SlotArray, SlotMemory, Status};
use super::spec::{Level, Spec};
use crate::subject::{Context, Force, Operation, Refusal, Subject};
use plexum_disks::disk::SimDisk;

/// One disk, passed through.
pub struct Single {
    disks: Vec<SimDisk>,
    pool: BufPool,
    size_bytes: u64,
}

/// Copies without locks.
pub struct ToyMirror {
    disks: Vec<SimDisk>,
    pool: BufPool,
    size_bytes: u64,
    next_copy: std::cell::Cell<usize>,
}

/// RAID-5 (parity on the last member) without locks.
pub struct ToyParity {
    disks: Vec<SimDisk>,
    pool: BufPool,
    strip_bytes: u64,
    size_bytes: u64,
}

fn healthy(disks: usize) -> Status {
    let slots = (0..disks as u32).map(Some).collect();
    Status {
        slots,
        live: (0..disks as u32).collect(),
        ..Status::default()
    }
}

fn first_error(results: Vec<Result<(), IoError>>) -> Result<(), IoError> {
    results.into_iter().collect()
}

async fn flush_all(disks: &[SimDisk]) -> Result<(), IoError> {
    first_error(join_all(disks.iter().map(|disk| disk.flush())).await)
}

fn handles(spec: &Spec, disks: &[SimDisk]) -> Vec<SimDisk> {
    disks
        .iter()
        .take(spec.member_count)
        .map(SimDisk::reopen)
        .collect()
}

/// What all toys have in common, beside how they open, read, write and flush.
macro_rules! toy {
    ($toy:ty) => {
        impl Subject for $toy {
            type Plan = Scenario;
            type Memory = SlotMemory;

            async fn read(&self, _volume: usize, bytes: Range<u64>) -> Result<Vec<u8>, IoError> {
                self.get(bytes).await
            }
            async fn write(
                &self,
                _volume: usize,
                offset_bytes: u64,
                data: Buf,
                fua: Fua,
            ) -> Result<(), IoError> {
                self.put(offset_bytes, data, fua).await
            }
            async fn flush(&self, _volume: usize) -> Result<(), IoError> {
                flush_all(&self.disks).await
            }
            async fn zero(
                &self,
                _volume: usize,
                bytes: Range<u64>,
                mode: ZeroMode,
                fua: Fua,
            ) -> Result<(), IoError> {
                if mode == ZeroMode::Unmap {
                    return Ok(());
                }
                let length = (bytes.end - bytes.start) as usize;
                let zeroes = self.pool.take_zeroed(length).freeze();
                self.put(bytes.start, zeroes, fua).await
            }
            async fn background(self: Rc<Self>, _spawner: plexum_exec::Spawner) {}
            async fn operate(&self, _what: Operation, _disks: &[SimDisk]) -> Result<(), String> {
                Err("a toy has no operations".to_owned())
            }
            async fn stop(&self) -> Result<(), IoError> {
                flush_all(&self.disks).await
            }
            fn is_whole(&self) -> bool {
                true
            }
            fn describe(&self) -> String {
                "a toy".to_owned()
            }
            fn condition(&self) -> Option<&'static str> {
                None
            }
        }

        impl SlotArray for $toy {
            fn fit(spec: &mut Spec) {
                Self::shape(spec);
            }
            async fn create(
                setting: &Setting,
                spec: &Spec,
                disks: &[SimDisk],
            ) -> Result<Self, String> {
                Ok(Self::open(&setting.context, spec, disks))
            }
            async fn assemble(
                setting: &Setting,
                spec: &Spec,
                disks: &[SimDisk],
                _force: Force,
            ) -> Result<Self, Refusal> {
                Ok(Self::open(&setting.context, spec, disks))
            }
            fn size_bytes(&self) -> u64 {
                self.size_bytes
            }
            fn status(&self) -> Status {
                healthy(self.disks.len())
            }
            fn data_offset_bytes(&self, _disk: u32) -> u64 {
                0
            }
        }
    };
}

toy!(Single);
toy!(ToyMirror);
toy!(ToyParity);

impl Single {
    fn open(context: &Context, spec: &Spec, disks: &[SimDisk]) -> Self {
        Self {
            disks: handles(spec, disks),
            pool: context.pool.clone(),
            size_bytes: spec.component_bytes,
        }
    }

    fn shape(spec: &mut Spec) {
        *spec = Spec {
            level: Level::Linear,
            layout: 0,
            member_count: 1,
            strip_bytes: 0,
            region_bytes: None,
            ..*spec
        };
    }

    async fn get(&self, bytes: Range<u64>) -> Result<Vec<u8>, IoError> {
        let buf = self.pool.take((bytes.end - bytes.start) as usize);
        Ok(self.disks[0].read(bytes.start, buf).await?.to_vec())
    }

    async fn put(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.disks[0].write(offset_bytes, data, fua).await
    }
}

impl ToyMirror {
    fn open(context: &Context, spec: &Spec, disks: &[SimDisk]) -> Self {
        Self {
            disks: handles(spec, disks),
            pool: context.pool.clone(),
            size_bytes: spec.component_bytes,
            next_copy: std::cell::Cell::new(0),
        }
    }

    fn shape(spec: &mut Spec) {
        *spec = Spec {
            level: Level::Raid1,
            layout: 0,
            member_count: 2,
            strip_bytes: 0,
            region_bytes: None,
            ..*spec
        };
    }

    async fn get(&self, bytes: Range<u64>) -> Result<Vec<u8>, IoError> {
        let copy = self.next_copy.get();
        self.next_copy.set((copy + 1) % self.disks.len());
        let buf = self.pool.take((bytes.end - bytes.start) as usize);
        Ok(self.disks[copy].read(bytes.start, buf).await?.to_vec())
    }

    async fn put(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let writes = self
            .disks
            .iter()
            .map(|disk| disk.write(offset_bytes, data.clone(), fua));
        first_error(join_all(writes).await)
    }
}

impl ToyParity {
    fn open(context: &Context, spec: &Spec, disks: &[SimDisk]) -> Self {
        assert!(
            spec.level == Level::Raid4,
            "the toy keeps its parity on the last member"
        );
        Self {
            disks: handles(spec, disks),
            pool: context.pool.clone(),
            strip_bytes: spec.strip_bytes,
            size_bytes: spec.component_bytes * (spec.member_count as u64 - 1),
        }
    }

    /// (member, member offset, length) of each piece, in order.
    fn pieces(&self, bytes: Range<u64>) -> Vec<(usize, u64, u64)> {
        let data_members = self.disks.len() as u64 - 1;
        let (mut at, end) = (bytes.start, bytes.end);
        let mut pieces = Vec::new();
        while at < end {
            let strip = at / self.strip_bytes;
            let length = (self.strip_bytes - at % self.strip_bytes).min(end - at);
            let member_offset = strip / data_members * self.strip_bytes + at % self.strip_bytes;
            pieces.push(((strip % data_members) as usize, member_offset, length));
            at += length;
        }
        pieces
    }

    fn shape(spec: &mut Spec) {
        *spec = Spec {
            level: Level::Raid4,
            layout: 0,
            strip_bytes: 16384,
            region_bytes: None,
            ..*spec
        };
        spec.member_count = spec.member_count.max(3);
    }

    async fn get(&self, bytes: Range<u64>) -> Result<Vec<u8>, IoError> {
        let mut all = Vec::new();
        for (member, at, length) in self.pieces(bytes) {
            let buf = self.pool.take(length as usize);
            all.extend_from_slice(&self.disks[member].read(at, buf).await?);
        }
        Ok(all)
    }

    async fn put(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let mut from = 0;
        for (member, at, length) in self.pieces(offset_bytes..offset_bytes + data.len() as u64) {
            let length = length as usize;
            let new = data.slice(from..from + length);
            from += length;
            let parity_disk = &self.disks[self.disks.len() - 1];
            let old = self.disks[member].read(at, self.pool.take(length)).await?;
            let mut parity = parity_disk.read(at, self.pool.take(length)).await?;
            for (index, byte) in parity.iter_mut().enumerate() {
                *byte ^= old[index] ^ new[index];
            }
            self.disks[member].write(at, new, fua).await?;
            parity_disk.write(at, parity.freeze(), fua).await?;
        }
        Ok(())
    }
}
