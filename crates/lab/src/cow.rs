//! A copy-on-write pool of 2020 over simulated disks: a model of what reaches the disks, no engine.
//!
//! Invariants:
//! - what is written goes forward, whatever the file's order was: asynchronous writes are large sequential ones;
//! - records lie where their writing put them, so a file written in random order is read in random order;
//! - a record is read after the block of pointers above it, which is read once.
//!
//! Source: lab.md section 3. Stays until the project has a pool of its own.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use plexum_block::device::Fua;
use plexum_disks::rng::mix;
use plexum_exec::Spawner;

use crate::error::LabError;
use crate::target::Target;

/// Sector of the pool (ashift 12).
const SECTOR_BYTES: u64 = 4096;
/// Parity columns and data columns of the double-parity pool on eight disks.
const PARITY_COLUMNS: u64 = 2;
const DATA_COLUMNS: u64 = 6;
/// Block of pointers, and how many pointers it has.
const POINTERS_BYTES: u64 = 128 << 10;
const POINTERS: u64 = 1024;
/// Sequential writes of a transaction group: length, and how many are under way on each disk.
const STREAM_BYTES: u64 = 1 << 20;
const STREAM_DEPTH: usize = 2;
/// Overhead of a record in the intent log.
const LOG_HEAD_BYTES: u64 = 192;
/// Longer records are written in place at once and only named in the intent log.
const LOG_BYTES_MAX: u64 = 32 << 10;
/// Consecutive bytes on one mirror before the next one is used.
const MIRROR_TURN_BYTES: u64 = 512 << 10;

/// How the pool's disks are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All in one group with two parities.
    RaidZ2,
    /// Pairs.
    Mirrors,
}

struct PoolBody {
    shape: Shape,
    disks: Vec<Target>,
    spawner: Spawner,
    record_bytes: u64,
    /// What the file takes of each disk.
    region_bytes: u64,
    pointers: RefCell<BTreeSet<u64>>,
    outstanding: RefCell<Vec<u32>>,
    /// Where the next write goes on each disk, after the file.
    cursor: Cell<u64>,
    seed: u64,
}

/// The pool with one file. Clones are the same pool.
#[derive(Clone)]
pub struct CowPool {
    inner: Rc<PoolBody>,
}

/// A part of a block on one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Column {
    disk: usize,
    at_bytes: u64,
    length_bytes: u64,
}

impl Shape {
    /// Sectors that a block of `length_bytes` takes, parity or copies included.
    fn sectors(self, length_bytes: u64) -> u64 {
        let data = length_bytes.div_ceil(SECTOR_BYTES);
        match self {
            Shape::RaidZ2 => data + PARITY_COLUMNS * data.div_ceil(DATA_COLUMNS),
            Shape::Mirrors => data * 2,
        }
    }
}

impl CowPool {
    /// A pool whose file of `file_bytes` has records of `record_bytes`, written in random order before.
    #[must_use]
    pub fn new(
        shape: Shape,
        disks: Vec<Target>,
        spawner: Spawner,
        record_bytes: u64,
        file_bytes: u64,
        seed: u64,
    ) -> Self {
        let records = file_bytes / record_bytes;
        let sectors = records * shape.sectors(record_bytes);
        let region_bytes = sectors * SECTOR_BYTES / disks.len() as u64;
        Self {
            inner: Rc::new(PoolBody {
                shape,
                outstanding: RefCell::new(vec![0; disks.len()]),
                disks,
                spawner,
                record_bytes,
                region_bytes,
                pointers: RefCell::default(),
                cursor: Cell::new(region_bytes.next_multiple_of(STREAM_BYTES)),
                seed,
            }),
        }
    }

    /// Virtual now, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.inner.disks.first().map_or(0, Target::now_ns)
    }

    /// Columns of a block's data that lies at a place chosen by `key`.
    fn columns(&self, key: u64, length_bytes: u64) -> Vec<Column> {
        let inner = &self.inner;
        let draw = mix(key ^ mix(inner.seed));
        let at_bytes = draw % (inner.region_bytes / SECTOR_BYTES) * SECTOR_BYTES;
        let count = inner.disks.len() as u64;
        match inner.shape {
            Shape::RaidZ2 => {
                let sectors = length_bytes.div_ceil(SECTOR_BYTES);
                let first = (draw >> 40) % count;
                let used = sectors.min(DATA_COLUMNS);
                let share = |column: u64| sectors / used + u64::from(column < sectors % used);
                (0..used)
                    .map(|column| Column {
                        disk: ((first + PARITY_COLUMNS + column) % count) as usize,
                        at_bytes,
                        length_bytes: share(column) * SECTOR_BYTES,
                    })
                    .collect()
            }
            Shape::Mirrors => {
                let pair = ((draw >> 40) % (count / 2)) as usize * 2;
                let outstanding = inner.outstanding.borrow();
                let turn = usize::from((draw >> 33) & 1 == 1);
                let disk = match outstanding[pair].cmp(&outstanding[pair + 1]) {
                    std::cmp::Ordering::Less => pair,
                    std::cmp::Ordering::Greater => pair + 1,
                    std::cmp::Ordering::Equal => pair + turn,
                };
                vec![Column {
                    disk,
                    at_bytes,
                    length_bytes,
                }]
            }
        }
    }

    async fn read_block(&self, key: u64, length_bytes: u64) -> Result<(), LabError> {
        let mut parts = Vec::new();
        for column in self.columns(key, length_bytes) {
            let pool = self.clone();
            self.inner.outstanding.borrow_mut()[column.disk] += 1;
            parts.push(self.inner.spawner.spawn(async move {
                let disk = &pool.inner.disks[column.disk];
                let done = disk.read(column.at_bytes, column.length_bytes).await;
                pool.inner.outstanding.borrow_mut()[column.disk] -= 1;
                done
            }));
        }
        for part in parts {
            part.await.map_err(|_| ended())??;
        }
        Ok(())
    }

    /// Reads a record that is not in memory.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn read(&self, record: u64) -> Result<(), LabError> {
        let block = record / POINTERS;
        if self.inner.pointers.borrow_mut().insert(block) {
            self.read_block(mix(!block), POINTERS_BYTES).await?;
        }
        self.read_block(record, self.inner.record_bytes).await
    }

    /// Writes `length_bytes` at the cursor of each of these disks, in pieces, and moves the cursor.
    async fn forward(&self, disks: &[usize], length_bytes: u64) -> Result<(), LabError> {
        let start = self.inner.cursor.get();
        self.inner.cursor.set(start + length_bytes);
        let mut lanes = Vec::new();
        for disk in disks {
            let next = Rc::new(Cell::new(start));
            for _ in 0..STREAM_DEPTH {
                let (target, next) = (self.inner.disks[*disk].clone(), Rc::clone(&next));
                let end = start + length_bytes;
                lanes.push(self.inner.spawner.spawn(async move {
                    while next.get() < end {
                        let at = next.get();
                        let length = STREAM_BYTES.min(end - at);
                        next.set(at + length);
                        target.write(at, length, Fua::No).await?;
                    }
                    Ok::<(), LabError>(())
                }));
            }
        }
        for lane in lanes {
            lane.await.map_err(|_| ended())??;
        }
        Ok(())
    }

    async fn flush(&self, disks: &[usize]) -> Result<(), LabError> {
        let mut flushes = Vec::new();
        for disk in disks {
            let target = self.inner.disks[*disk].clone();
            flushes.push(
                self.inner
                    .spawner
                    .spawn(async move { target.flush().await }),
            );
        }
        for flush in flushes {
            flush.await.map_err(|_| ended())??;
        }
        Ok(())
    }

    fn all(&self) -> Vec<usize> {
        (0..self.inner.disks.len()).collect()
    }

    /// What so many records take of each disk, spread over all.
    fn share_bytes(&self, records: u64, record_bytes: u64) -> u64 {
        let sectors = records * self.inner.shape.sectors(record_bytes);
        sectors.div_ceil(self.inner.disks.len() as u64) * SECTOR_BYTES
    }

    /// Writes records without anybody waiting for one of them, and makes them durable.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn write(&self, records: u64) -> Result<(), LabError> {
        let share = self.share_bytes(records, self.inner.record_bytes);
        self.forward(&self.all(), share).await?;
        self.flush(&self.all()).await
    }

    /// Writes records that so many programs wait for at the same time.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn write_sync(&self, records: u64) -> Result<(), LabError> {
        let record = self.inner.record_bytes;
        let is_named_only = record > LOG_BYTES_MAX;
        let mut touched = BTreeSet::new();
        let log_bytes = if is_named_only {
            self.forward(&self.all(), self.share_bytes(records, record))
                .await?;
            touched.extend(self.all());
            records * LOG_HEAD_BYTES
        } else {
            records * (record + LOG_HEAD_BYTES)
        };
        let (disks, share) = self.log_place(log_bytes);
        self.forward(&disks, share).await?;
        touched.extend(disks);
        let touched: Vec<usize> = touched.into_iter().collect();
        self.flush(&touched).await
    }

    /// Disks that a block of the intent log lies on, and its length on each.
    fn log_place(&self, length_bytes: u64) -> (Vec<usize>, u64) {
        let length = length_bytes.next_multiple_of(SECTOR_BYTES);
        match self.inner.shape {
            Shape::RaidZ2 => {
                let columns = (length / SECTOR_BYTES).min(DATA_COLUMNS) + PARITY_COLUMNS;
                let share = (length / SECTOR_BYTES).div_ceil(DATA_COLUMNS) * SECTOR_BYTES;
                ((0..columns as usize).collect(), share)
            }
            Shape::Mirrors => {
                let pairs = self.inner.disks.len() as u64 / 2;
                let pair = (self.inner.cursor.get() / MIRROR_TURN_BYTES % pairs) as usize * 2;
                (vec![pair, pair + 1], length)
            }
        }
    }
}

fn ended() -> LabError {
    LabError::Bug("a request ended early".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_record_has_two_parities_of_its_own_and_a_large_one_shares_them() {
        assert_eq!(Shape::RaidZ2.sectors(4096), 3);
        assert_eq!(Shape::RaidZ2.sectors(1 << 20), 256 + 2 * 43);
        assert_eq!(Shape::Mirrors.sectors(4096), 2);
    }

    fn pool(shape: Shape, record_bytes: u64) -> (crate::world::World, CowPool) {
        use plexum_disks::disk::mechanical_spec::DiskSpec;
        let world = crate::world::World::new();
        let spec = DiskSpec::Mechanical(crate::preset::nas_12t());
        let disks = crate::array::DiskSet::of(&spec, 8);
        let disks = disks.make(&world, 1, crate::array::Mode::Timing).unwrap();
        let targets = disks
            .into_iter()
            .map(|disk| Target::device(&world, &crate::member::Member::Disk(disk)))
            .collect();
        let pool = CowPool::new(shape, targets, world.spawner(), record_bytes, 1 << 30, 1);
        (world, pool)
    }

    #[test]
    fn a_large_record_is_read_from_six_disks_and_a_mirrored_one_from_one() {
        let (_world, raidz) = pool(Shape::RaidZ2, 1 << 20);
        for record in 0..100 {
            let columns = raidz.columns(record, 1 << 20);
            let disks: BTreeSet<usize> = columns.iter().map(|column| column.disk).collect();
            assert_eq!(disks.len(), 6);
            let bytes: u64 = columns.iter().map(|column| column.length_bytes).sum();
            assert_eq!(bytes, 1 << 20);
        }
        assert_eq!(raidz.columns(7, 4096).len(), 1);
        let (_world, mirrors) = pool(Shape::Mirrors, 1 << 20);
        assert_eq!(mirrors.columns(7, 1 << 20).len(), 1);
    }

    #[test]
    fn pointers_are_read_once_and_what_is_written_goes_forward() {
        let (world, raidz) = pool(Shape::RaidZ2, 4096);
        let reader = raidz.clone();
        world
            .run(async move {
                reader.read(5).await.unwrap();
                reader.read(6).await.unwrap(); // below the same block of pointers
                reader.read(POINTERS).await.unwrap();
            })
            .unwrap();
        let count = |pool: &CowPool| {
            let all = pool.inner.disks.iter().map(Target::take_traffic);
            all.fold(crate::target::Traffic::default(), |mut sum, one| {
                sum.merge(&one);
                sum
            })
        };
        let reads = count(&raidz).reads;
        assert_eq!(
            reads.count(),
            3 + 2 * 6,
            "three records, two blocks of pointers"
        );
        let writer = raidz.clone();
        world
            .run(async move { writer.write(1024).await.unwrap() })
            .unwrap();
        let seen = count(&raidz);
        assert_eq!(
            seen.writes.bytes(),
            1024 * 3 * 4096,
            "a sector and two parities each"
        );
        assert_eq!(seen.flushes.count(), 8);
        let writer = raidz.clone();
        world
            .run(async move { writer.write_sync(8).await.unwrap() })
            .unwrap();
        let seen = count(&raidz);
        // Nine sectors of log in two rows on eight disks, no data yet.
        assert_eq!(seen.writes.bytes(), 8 * 2 * 4096);
        assert_eq!(seen.flushes.count(), 8);
    }
}
