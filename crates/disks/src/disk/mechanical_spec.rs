//! What a simulated disk is made of: mechanics, electronics, buffer, queue. Numbers only; nothing happens here.
//!
//! Source: lab.md section 2.

use serde::{Deserialize, Serialize};

/// In which order requests leave the operating system's queue when the drive takes one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueOrder {
    /// First come, first served.
    Fifo,
    /// One-way elevator: ascending offsets, then from the lowest again.
    Elevator,
}

/// A rotating disk. All fields can be changed; `check` says what makes no sense.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MechanicalSpec {
    /// Capacity.
    pub capacity_bytes: u64,
    /// Revolutions a minute.
    pub rpm: f64,
    /// Tracks a cylinder (surfaces in use).
    pub tracks_per_cylinder: u32,
    /// Sustained rate of the outermost zone.
    pub outer_bytes_per_s: f64,
    /// Sustained rate of the innermost zone.
    pub inner_bytes_per_s: f64,
    /// Zones between them, rates linear.
    pub zone_count: u32,
    /// Time to switch to the next track; skew is laid out for it.
    pub switch_ms: f64,
    /// Seek to the next cylinder.
    pub seek_track_ms: f64,
    /// Published average seek: over a third of the cylinders.
    pub seek_average_ms: f64,
    /// Seek over all cylinders.
    pub seek_full_ms: f64,
    /// Extra settle before a write, when the arm moved.
    pub write_settle_ms: f64,
    /// Command overhead of a request that needs the mechanism.
    pub overhead_ms: f64,
    /// Command overhead of a request answered from the buffer.
    pub hit_ms: f64,
    /// Command overhead of a write taken by the write cache.
    pub write_ms: f64,
    /// Rate between buffer and host.
    pub interface_bytes_per_s: f64,
    /// Commands the drive holds at once; 1 = no tagged queueing.
    pub queue_depth: u32,
    /// Adjacent waiting requests are joined up to this size; 0 = never.
    pub merge_bytes_max: u64,
    /// Order of the operating system's queue in front of the drive.
    pub order: QueueOrder,
    /// Read segments of the buffer; 0 = reads are never buffered.
    pub segment_count: u32,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// Read-ahead after a request that did not continue the one before; ends with the track.
    pub ahead_bytes: u64,
    /// Read-ahead after strictly sequential requests.
    pub ahead_sequential_bytes: u64,
    /// Write cache; 0 = every write goes to the platter before it is answered.
    pub write_cache_bytes: u64,
    /// Media rate of writes as a share of that of reads.
    pub write_efficiency: f64,
    /// Fixed cost of each range the cache writes out. Results are very sensitive to it (lab.md 2.7).
    pub range_overhead_us: f64,
    /// Where the head stands at time zero, in turns.
    pub phase_turns: f64,
    /// Everything mechanical takes so many times longer: a sick disk.
    pub slow_factor: f64,
}

/// A disk without moving parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdSpec {
    /// Capacity.
    pub capacity_bytes: u64,
    /// Latency of a read, without its transfer.
    pub read_us: f64,
    /// Latency of a write, without its transfer.
    pub write_us: f64,
    /// Latency of a flush.
    pub flush_us: f64,
    /// Rate of reads, all channels together.
    pub read_bytes_per_s: f64,
    /// Rate of writes, all channels together.
    pub write_bytes_per_s: f64,
    /// Requests worked on at once.
    pub channel_count: u32,
    /// Everything takes so many times longer.
    pub slow_factor: f64,
}

/// Any simulated disk with a sense of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DiskSpec {
    /// Rotating.
    Mechanical(MechanicalSpec),
    /// Without moving parts.
    Ssd(SsdSpec),
}

impl DiskSpec {
    /// Capacity.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        match self {
            DiskSpec::Mechanical(spec) => spec.capacity_bytes,
            DiskSpec::Ssd(spec) => spec.capacity_bytes,
        }
    }

    /// Makes a sick disk of it: everything takes `factor` times longer.
    pub fn set_slow_factor(&mut self, factor: f64) {
        match self {
            DiskSpec::Mechanical(spec) => spec.slow_factor = factor,
            DiskSpec::Ssd(spec) => spec.slow_factor = factor,
        }
    }

    /// Checks that the numbers make a disk.
    ///
    /// # Errors
    /// The name of the field that makes no sense, with its bounds.
    pub fn check(&self) -> Result<(), String> {
        match self {
            DiskSpec::Mechanical(spec) => spec.check(),
            DiskSpec::Ssd(spec) => spec.check(),
        }
    }
}

fn within(name: &str, value: f64, low: f64, high: f64) -> Result<(), String> {
    if value.is_finite() && (low..=high).contains(&value) {
        return Ok(());
    }
    Err(format!("{name} is {value}; it must be {low} to {high}"))
}

impl MechanicalSpec {
    fn check(&self) -> Result<(), String> {
        within("capacity_bytes", self.capacity_bytes as f64, 1e6, 1e15)?;
        within("rpm", self.rpm, 100.0, 100_000.0)?;
        within(
            "tracks_per_cylinder",
            f64::from(self.tracks_per_cylinder),
            1.0,
            256.0,
        )?;
        within("inner_bytes_per_s", self.inner_bytes_per_s, 1e4, 1e11)?;
        within(
            "outer_bytes_per_s",
            self.outer_bytes_per_s,
            self.inner_bytes_per_s,
            1e11,
        )?;
        within("zone_count", f64::from(self.zone_count), 1.0, 1000.0)?;
        within("switch_ms", self.switch_ms, 0.0, 100.0)?;
        within("seek_track_ms", self.seek_track_ms, 0.0, 1000.0)?;
        within(
            "seek_average_ms",
            self.seek_average_ms,
            self.seek_track_ms,
            1000.0,
        )?;
        within(
            "seek_full_ms",
            self.seek_full_ms,
            self.seek_average_ms,
            5000.0,
        )?;
        for (name, value) in [
            ("write_settle_ms", self.write_settle_ms),
            ("overhead_ms", self.overhead_ms),
            ("hit_ms", self.hit_ms),
            ("write_ms", self.write_ms),
        ] {
            within(name, value, 0.0, 1000.0)?;
        }
        within(
            "interface_bytes_per_s",
            self.interface_bytes_per_s,
            1e4,
            1e12,
        )?;
        within("queue_depth", f64::from(self.queue_depth), 1.0, 1024.0)?;
        within("write_efficiency", self.write_efficiency, 0.01, 1.0)?;
        within("range_overhead_us", self.range_overhead_us, 0.0, 1e6)?;
        within("slow_factor", self.slow_factor, 0.001, 1e4)?;
        within("phase_turns", self.phase_turns, 0.0, 1.0)
    }
}

impl SsdSpec {
    fn check(&self) -> Result<(), String> {
        within("capacity_bytes", self.capacity_bytes as f64, 1e6, 1e15)?;
        within("read_us", self.read_us, 0.0, 1e6)?;
        within("write_us", self.write_us, 0.0, 1e6)?;
        within("flush_us", self.flush_us, 0.0, 1e7)?;
        within("read_bytes_per_s", self.read_bytes_per_s, 1e4, 1e12)?;
        within("write_bytes_per_s", self.write_bytes_per_s, 1e4, 1e12)?;
        within("channel_count", f64::from(self.channel_count), 1.0, 1024.0)?;
        within("slow_factor", self.slow_factor, 0.001, 1e4)
    }
}
