//! What a disk with a sense of time has done, and where its time went. Times in virtual nanoseconds.
//!
//! Source: lab.md section 6.

use serde::Serialize;

/// Counters of one disk since the beginning or the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DiskFigures {
    /// Reads answered.
    pub reads: u64,
    /// Writes answered.
    pub writes: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Issue to completion of reads, queueing included, summed.
    pub read_wait_ns: u64,
    /// The same of writes.
    pub write_wait_ns: u64,
    /// The same of flushes.
    pub flush_wait_ns: u64,
    /// Time with at least one request outstanding.
    pub busy_ns: u64,
    /// Requests outstanding, integrated over time.
    pub queue_integral_ns: u64,
    /// Reads answered from the buffer.
    pub hits: u64,
    /// Reads answered because the head came by while it read ahead.
    pub rides: u64,
    /// Reads that needed positioning.
    pub misses: u64,
    /// Times the arm moved.
    pub seeks: u64,
    /// Cylinders it moved over.
    pub seek_cylinders: u64,
    /// Time in command overhead.
    pub overhead_ns: u64,
    /// Time the arm moved or settled.
    pub seek_ns: u64,
    /// Time the head waited for the platter.
    pub rotation_ns: u64,
    /// Time of transfers from and to the medium.
    pub transfer_ns: u64,
    /// Time of transfers over interface and bus, waiting for the bus included.
    pub interface_ns: u64,
    /// Time requests waited for the disk.
    pub queue_ns: u64,
    /// Ranges written out by the write cache.
    pub destaged_ranges: u64,
    /// Bytes written out by the write cache.
    pub destaged_bytes: u64,
}

impl DiskFigures {
    /// What happened since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &DiskFigures) -> DiskFigures {
        DiskFigures {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            flushes: self.flushes - earlier.flushes,
            read_bytes: self.read_bytes - earlier.read_bytes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            read_wait_ns: self.read_wait_ns - earlier.read_wait_ns,
            write_wait_ns: self.write_wait_ns - earlier.write_wait_ns,
            flush_wait_ns: self.flush_wait_ns - earlier.flush_wait_ns,
            busy_ns: self.busy_ns - earlier.busy_ns,
            queue_integral_ns: self.queue_integral_ns - earlier.queue_integral_ns,
            hits: self.hits - earlier.hits,
            rides: self.rides - earlier.rides,
            misses: self.misses - earlier.misses,
            seeks: self.seeks - earlier.seeks,
            seek_cylinders: self.seek_cylinders - earlier.seek_cylinders,
            overhead_ns: self.overhead_ns - earlier.overhead_ns,
            seek_ns: self.seek_ns - earlier.seek_ns,
            rotation_ns: self.rotation_ns - earlier.rotation_ns,
            transfer_ns: self.transfer_ns - earlier.transfer_ns,
            interface_ns: self.interface_ns - earlier.interface_ns,
            queue_ns: self.queue_ns - earlier.queue_ns,
            destaged_ranges: self.destaged_ranges - earlier.destaged_ranges,
            destaged_bytes: self.destaged_bytes - earlier.destaged_bytes,
        }
    }
}
