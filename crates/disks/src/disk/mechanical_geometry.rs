//! Where bytes lie on a rotating disk, and how long the arm and the platter take. Pure.
//!
//! Invariants:
//! - every zone starts on a whole track: the boundary used for angles is the one used for transfer times;
//! - `advance` is the inverse of `transfer_ns`, to a sector;
//! - track skew equals the switch time, so a sequential transfer never loses a turn.
//!
//! Source: lab.md section 2, points 1 to 4. Nanoseconds and turns are floats, always computed in the same order.

use super::mechanical_spec::MechanicalSpec;

/// Unit of addresses, in bytes.
const SECTOR_BYTES: u64 = 512;

/// A wait longer than a turn less this is a rounding error: the sector is under the head now.
const ROUNDING_NS: f64 = 25_000.0;

struct Zone {
    start_bytes: u64,
    end_bytes: u64,
    start_track: u64,
    track_bytes: u64,
}

/// Where a byte lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    zone: usize,
    /// Number of the track, counted from the outermost.
    pub track: u64,
    /// Byte inside the track.
    pub in_track_bytes: u64,
    /// Number of the cylinder.
    pub cylinder: u64,
}

/// The mechanics of one disk.
pub struct DiskGeometry {
    turn_ns: f64,
    switch_ns: f64,
    phase_turns: f64,
    tracks_per_cylinder: u64,
    cylinder_count: u64,
    zones: Vec<Zone>,
    /// `seek(d) = a + b * sqrt(d) + c * d`, in nanoseconds.
    seek: [f64; 3],
}

impl DiskGeometry {
    /// Lays a disk out. The spec has passed its check.
    #[must_use]
    pub fn new(spec: &MechanicalSpec) -> Self {
        let turn_ns = 60e9 / spec.rpm;
        let switch_ns = spec.switch_ms * 1e6;
        let zone_count = u64::from(spec.zone_count.max(1));
        let heads = u64::from(spec.tracks_per_cylinder.max(1));
        let track_bytes: Vec<u64> = (0..zone_count)
            .map(|zone| {
                let along = if zone_count == 1 {
                    0.0
                } else {
                    zone as f64 / (zone_count - 1) as f64
                };
                let rate = spec.outer_bytes_per_s
                    + (spec.inner_bytes_per_s - spec.outer_bytes_per_s) * along;
                let bytes = rate * (turn_ns + switch_ns) / 1e9;
                ((bytes / SECTOR_BYTES as f64) as u64).max(1) * SECTOR_BYTES
            })
            .collect();
        // Zones have the same number of cylinders; the last one takes what rounding leaves over.
        let per_cylinder_round: u64 = track_bytes.iter().map(|bytes| bytes * heads).sum();
        let cylinders_a_zone = (spec.capacity_bytes / per_cylinder_round).max(1);
        let mut zones = Vec::new();
        let (mut start, mut track) = (0u64, 0u64);
        for (index, bytes) in track_bytes.iter().enumerate() {
            let left = spec.capacity_bytes.saturating_sub(start);
            let whole = cylinders_a_zone * heads;
            let tracks = if index + 1 == track_bytes.len() {
                left.div_ceil(*bytes).div_ceil(heads).max(1) * heads
            } else {
                whole
            };
            zones.push(Zone {
                start_bytes: start,
                end_bytes: start + tracks * bytes,
                start_track: track,
                track_bytes: *bytes,
            });
            start += tracks * bytes;
            track += tracks;
        }
        let cylinder_count = track.div_ceil(heads).max(2);
        Self {
            turn_ns,
            switch_ns,
            phase_turns: spec.phase_turns,
            tracks_per_cylinder: heads,
            cylinder_count,
            zones,
            seek: seek_curve(spec, cylinder_count),
        }
    }

    /// Time of one revolution.
    #[must_use]
    pub fn turn_ns(&self) -> f64 {
        self.turn_ns
    }

    /// Number of cylinders.
    #[must_use]
    pub fn cylinder_count(&self) -> u64 {
        self.cylinder_count
    }

    fn zone_of(&self, at_bytes: u64) -> usize {
        let after = self
            .zones
            .partition_point(|zone| zone.start_bytes <= at_bytes);
        after.saturating_sub(1)
    }

    /// Where the byte lies.
    #[must_use]
    pub fn spot(&self, at_bytes: u64) -> Spot {
        let zone = self.zone_of(at_bytes);
        let inside = at_bytes - self.zones[zone].start_bytes;
        let track = self.zones[zone].start_track + inside / self.zones[zone].track_bytes;
        Spot {
            zone,
            track,
            in_track_bytes: inside % self.zones[zone].track_bytes,
            cylinder: track / self.tracks_per_cylinder,
        }
    }

    /// First byte after the track that holds `at_bytes`.
    #[must_use]
    pub fn track_end_bytes(&self, at_bytes: u64) -> u64 {
        let spot = self.spot(at_bytes);
        at_bytes - spot.in_track_bytes + self.zones[spot.zone].track_bytes
    }

    /// Seek over so many cylinders; zero for zero.
    #[must_use]
    pub fn seek_ns(&self, from_cylinder: u64, to_cylinder: u64) -> f64 {
        let distance = from_cylinder.abs_diff(to_cylinder) as f64;
        if distance == 0.0 {
            return 0.0;
        }
        let [a, b, c] = self.seek;
        (a + b * distance.sqrt() + c * distance).max(0.0)
    }

    /// How long the platter takes, from `now_ns`, to bring the byte under the head.
    #[must_use]
    pub fn rotation_ns(&self, at_bytes: u64, now_ns: f64) -> f64 {
        let spot = self.spot(at_bytes);
        let along = spot.in_track_bytes as f64 / self.zones[spot.zone].track_bytes as f64;
        let target = (along + spot.track as f64 * (self.switch_ns / self.turn_ns)).fract();
        let head = (now_ns / self.turn_ns + self.phase_turns).fract();
        let mut wait = target - head;
        if wait < 0.0 {
            wait += 1.0;
        }
        let wait_ns = wait * self.turn_ns;
        if wait_ns > self.turn_ns - ROUNDING_NS {
            0.0
        } else {
            wait_ns
        }
    }

    /// Media time of `length_bytes` from `at_bytes`, the head being there: turns, and a switch for each border crossed.
    #[must_use]
    pub fn transfer_ns(&self, at_bytes: u64, length_bytes: u64) -> f64 {
        let (mut at, mut left, mut sum) = (at_bytes, length_bytes, 0.0);
        while left > 0 {
            let index = self.zone_of(at);
            let zone = &self.zones[index];
            let is_last = index + 1 == self.zones.len();
            let room = if is_last { left } else { zone.end_bytes - at };
            let count = left.min(room.max(1));
            let in_track = (at - zone.start_bytes) % zone.track_bytes;
            let mut borders = (in_track + count - 1) / zone.track_bytes;
            if count < left {
                borders += 1; // on to the next zone
            }
            sum += count as f64 / zone.track_bytes as f64 * self.turn_ns
                + borders as f64 * self.switch_ns;
            at += count;
            left -= count;
        }
        sum
    }

    /// How far the head has come after `time_ns` of reading on from `at_bytes`: a multiple of a sector.
    #[must_use]
    pub fn advance(&self, at_bytes: u64, time_ns: f64) -> u64 {
        let (mut at, mut left_ns) = (at_bytes, time_ns.max(0.0));
        loop {
            let index = self.zone_of(at);
            let zone = &self.zones[index];
            let in_track = (at - zone.start_bytes) % zone.track_bytes;
            let to_end = zone.track_bytes - in_track;
            let to_end_ns = to_end as f64 / zone.track_bytes as f64 * self.turn_ns;
            if left_ns < to_end_ns {
                let bytes = (left_ns / self.turn_ns * zone.track_bytes as f64) as u64;
                return at + bytes / SECTOR_BYTES * SECTOR_BYTES;
            }
            at += to_end;
            left_ns -= to_end_ns;
            if left_ns < self.switch_ns || at >= self.capacity_bytes() {
                return at;
            }
            left_ns -= self.switch_ns;
            // Whole tracks at once, inside the zone.
            let index = self.zone_of(at);
            let zone = &self.zones[index];
            let tracks = (left_ns / (self.turn_ns + self.switch_ns)) as u64;
            let room = (zone.end_bytes - at.min(zone.end_bytes)) / zone.track_bytes;
            let skipped = tracks.min(room.saturating_sub(1));
            at += skipped * zone.track_bytes;
            left_ns -= skipped as f64 * (self.turn_ns + self.switch_ns);
        }
    }

    fn capacity_bytes(&self) -> u64 {
        self.zones.last().map_or(0, |zone| zone.end_bytes)
    }
}

/// Solves a, b, c from the seeks over 1, a third of and all cylinders.
fn seek_curve(spec: &MechanicalSpec, cylinder_count: u64) -> [f64; 3] {
    let full = (cylinder_count - 1).max(2) as f64;
    let third = (full / 3.0).max(1.5);
    let (near, middle, far) = (
        spec.seek_track_ms * 1e6,
        spec.seek_average_ms * 1e6,
        spec.seek_full_ms * 1e6,
    );
    let (p, q) = (third.sqrt() - 1.0, third - 1.0);
    let (r, s) = (full.sqrt() - 1.0, full - 1.0);
    let determinant = p * s - q * r;
    if determinant.abs() < 1e-9 {
        return [near, 0.0, 0.0];
    }
    let b = ((middle - near) * s - q * (far - near)) / determinant;
    let c = (p * (far - near) - r * (middle - near)) / determinant;
    [near - b - c, b, c]
}
