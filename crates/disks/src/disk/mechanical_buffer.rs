//! The buffer of a rotating disk: read segments with lazy read-ahead, and the ranges of the write cache. Pure state.
//!
//! Invariants:
//! - a read-ahead stream is a start, a moment and a limit; where it is now is computed when somebody looks;
//! - at most one stream lives, and it ends when the arm is used for anything else;
//! - dirty ranges do not overlap and do not touch.
//!
//! Source: lab.md section 2, points 5 to 7.

use std::collections::{BTreeMap, VecDeque};

use super::mechanical_geometry::DiskGeometry;
use super::mechanical_spec::MechanicalSpec;

/// A range of the disk whose bytes are in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub start_bytes: u64,
    pub end_bytes: u64,
}

/// The head reads on by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// The head was here ...
    pub from_bytes: u64,
    /// ... at this moment.
    pub from_ns: f64,
    /// It stops here.
    pub limit_bytes: u64,
    /// It has stopped, because the window is full.
    pub is_paused: bool,
}

/// What the buffer can do for a read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lookup {
    /// All of it is there.
    Hit,
    /// The head gets there by reading on, at this moment.
    Ride(f64),
    /// Neither.
    Miss,
}

/// Read segments, the last one used first, and the stream that fills the first of them.
#[derive(Default)]
pub(super) struct ReadBuffer {
    segments: VecDeque<Segment>,
    pub stream: Option<Stream>,
    last_end_bytes: u64,
}

impl ReadBuffer {
    /// Brings the stream up to date.
    fn update(&mut self, geometry: &DiskGeometry, spec: &MechanicalSpec, now_ns: f64) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        if !stream.is_paused {
            let reached = geometry.advance(
                stream.from_bytes,
                (now_ns - stream.from_ns) / spec.slow_factor,
            );
            stream.is_paused = reached >= stream.limit_bytes;
            let reached = reached.min(stream.limit_bytes);
            if let Some(segment) = self.segments.front_mut() {
                segment.end_bytes = segment.end_bytes.max(reached);
                let oldest = segment.end_bytes.saturating_sub(spec.segment_bytes);
                segment.start_bytes = segment.start_bytes.max(oldest);
            }
        }
    }

    /// The arm is needed elsewhere: the stream ends, what it has read stays. Returns where the head is.
    pub fn stop(
        &mut self,
        geometry: &DiskGeometry,
        spec: &MechanicalSpec,
        now_ns: f64,
    ) -> Option<u64> {
        self.update(geometry, spec, now_ns);
        self.stream.take()?;
        self.segments.front().map(|segment| segment.end_bytes)
    }

    fn is_sequential(&self, start_bytes: u64) -> bool {
        start_bytes == self.last_end_bytes
    }

    /// How far to read on after a request.
    fn limit(
        &self,
        geometry: &DiskGeometry,
        spec: &MechanicalSpec,
        start_bytes: u64,
        end_bytes: u64,
    ) -> u64 {
        let limit = if self.is_sequential(start_bytes) {
            end_bytes + spec.ahead_sequential_bytes
        } else {
            let window = end_bytes + spec.ahead_bytes;
            window.min(geometry.track_end_bytes(end_bytes - 1))
        };
        limit.min(spec.capacity_bytes)
    }

    /// Looks a read up; when it is a hit or a ride, the stream goes on accordingly.
    pub fn look_up(
        &mut self,
        geometry: &DiskGeometry,
        spec: &MechanicalSpec,
        start_bytes: u64,
        length_bytes: u64,
        now_ns: f64,
    ) -> Lookup {
        let end_bytes = start_bytes + length_bytes;
        self.update(geometry, spec, now_ns);
        let holds = |segment: &Segment| {
            segment.start_bytes <= start_bytes && end_bytes <= segment.end_bytes
        };
        if let Some(index) = self.segments.iter().position(holds) {
            if index == 0 && self.stream.is_some() {
                self.extend(geometry, spec, start_bytes, end_bytes, now_ns);
            } else if self.stream.is_none() {
                // (LRU: the one that is used comes first)
                if let Some(segment) = self.segments.remove(index) {
                    self.segments.push_front(segment);
                }
            }
            self.last_end_bytes = end_bytes;
            return Lookup::Hit;
        }
        let limit = self.limit(geometry, spec, start_bytes, end_bytes);
        let (Some(segment), Some(stream)) = (self.segments.front_mut(), &mut self.stream) else {
            return Lookup::Miss;
        };
        let is_near = if stream.is_paused {
            start_bytes <= segment.end_bytes
        } else {
            start_bytes <= stream.limit_bytes
        };
        if start_bytes < segment.start_bytes || !is_near {
            return Lookup::Miss;
        }
        if stream.is_paused {
            let wait = geometry.rotation_ns(segment.end_bytes, now_ns);
            *stream = Stream {
                from_bytes: segment.end_bytes,
                from_ns: now_ns + wait * spec.slow_factor,
                limit_bytes: limit,
                is_paused: false,
            };
        }
        stream.limit_bytes = stream.limit_bytes.max(limit).max(end_bytes);
        let left = geometry.transfer_ns(stream.from_bytes, end_bytes - stream.from_bytes);
        let done = stream.from_ns + left * spec.slow_factor;
        self.last_end_bytes = end_bytes;
        Lookup::Ride(done.max(now_ns))
    }

    /// After a hit in the stream's own segment: a running stream gets a farther limit, a paused one goes on when half
    /// of the window is used up, and then waits for the platter.
    fn extend(
        &mut self,
        geometry: &DiskGeometry,
        spec: &MechanicalSpec,
        start_bytes: u64,
        end_bytes: u64,
        now_ns: f64,
    ) {
        let is_sequential = self.is_sequential(start_bytes);
        let limit = self.limit(geometry, spec, start_bytes, end_bytes);
        let (Some(segment), Some(stream)) = (self.segments.front(), &mut self.stream) else {
            return;
        };
        if !stream.is_paused {
            stream.limit_bytes = stream.limit_bytes.max(limit);
            return;
        }
        let left = segment.end_bytes - end_bytes;
        if is_sequential && left <= spec.ahead_sequential_bytes / 2 && limit > segment.end_bytes {
            let wait = geometry.rotation_ns(segment.end_bytes, now_ns);
            *stream = Stream {
                from_bytes: segment.end_bytes,
                from_ns: now_ns + wait * spec.slow_factor,
                limit_bytes: limit,
                is_paused: false,
            };
        }
    }

    /// A read was done by the mechanism, its first byte under the head at `media_ns`: a new segment, and the head reads
    /// on.
    pub fn open(
        &mut self,
        geometry: &DiskGeometry,
        spec: &MechanicalSpec,
        start_bytes: u64,
        length_bytes: u64,
        media_ns: f64,
    ) {
        let end_bytes = start_bytes + length_bytes;
        let limit_bytes = self.limit(geometry, spec, start_bytes, end_bytes);
        self.last_end_bytes = end_bytes;
        if spec.segment_count == 0 {
            return;
        }
        self.segments.push_front(Segment {
            start_bytes: start_bytes.max(end_bytes.saturating_sub(spec.segment_bytes)),
            end_bytes,
        });
        self.segments.truncate(spec.segment_count as usize);
        self.stream = Some(Stream {
            from_bytes: start_bytes,
            from_ns: media_ns,
            limit_bytes: limit_bytes.max(end_bytes),
            is_paused: false,
        });
    }

    /// A write makes what was read of the range worthless.
    pub fn forget(&mut self, start_bytes: u64, end_bytes: u64) {
        let overlaps =
            |segment: &Segment| start_bytes < segment.end_bytes && segment.start_bytes < end_bytes;
        if self.stream.is_some() && self.segments.front().is_some_and(overlaps) {
            self.stream = None;
        }
        self.segments.retain(|segment| !overlaps(segment));
        if self.segments.is_empty() {
            self.stream = None;
        }
    }
}

/// Ranges that the host believes written and the platter does not have yet.
#[derive(Default)]
pub(super) struct DirtyRanges {
    ranges: BTreeMap<u64, u64>,
    total_bytes: u64,
}

impl DirtyRanges {
    /// Bytes in it.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Adds a range, joined with what it touches.
    pub fn insert(&mut self, start_bytes: u64, end_bytes: u64) {
        let (mut start, mut end) = (start_bytes, end_bytes);
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.ranges.remove(&from);
            self.total_bytes -= to - from;
            start = start.min(from);
            end = end.max(to);
        }
        self.ranges.insert(start, end);
        self.total_bytes += end - start;
    }

    /// Takes up to `length_bytes` from the beginning of the range that starts at `start_bytes`.
    pub fn take(&mut self, start_bytes: u64, length_bytes: u64) -> u64 {
        let Some(end) = self.ranges.remove(&start_bytes) else {
            return start_bytes;
        };
        let cut = end.min(start_bytes + length_bytes);
        self.total_bytes -= cut - start_bytes;
        if cut < end {
            self.ranges.insert(cut, end);
        }
        cut
    }

    /// Whether the whole range is in it.
    pub fn holds(&self, start_bytes: u64, end_bytes: u64) -> bool {
        self.ranges
            .range(..=start_bytes)
            .next_back()
            .is_some_and(|(_, end)| end_bytes <= *end)
    }

    /// The range that starts here.
    pub fn starting_at(&self, start_bytes: u64) -> Option<(u64, u64)> {
        self.ranges.get(&start_bytes).map(|end| (start_bytes, *end))
    }

    /// Up to `count` ranges on either side of a place.
    pub fn near(&self, at_bytes: u64, count: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let after = self.ranges.range(at_bytes..).take(count);
        let before = self.ranges.range(..at_bytes).rev().take(count);
        after.chain(before).map(|(start, end)| (*start, *end))
    }
}
