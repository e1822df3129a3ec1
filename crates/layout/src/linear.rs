//! Linear: the members one after another.

use super::{GeometryError, Place, round_down};

/// Ends of the members in the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LinearMap {
    /// For each slot the volume offset behind its last byte.
    end_bytes: Vec<u64>,
}

impl LinearMap {
    /// Each member counts its size rounded down to strips (when there is a strip size).
    pub(super) fn new(sizes_bytes: &[u64], strip_bytes: u64) -> Result<LinearMap, GeometryError> {
        let mut end_bytes = Vec::with_capacity(sizes_bytes.len());
        let mut end = 0u64;
        for &size in sizes_bytes {
            let used = round_down(size, strip_bytes);
            end = end.checked_add(used).ok_or(GeometryError::TooLarge)?;
            end_bytes.push(end);
        }
        Ok(LinearMap { end_bytes })
    }

    pub(super) fn volume_bytes(&self) -> u64 {
        self.end_bytes.last().copied().unwrap_or(0)
    }

    fn start_bytes(&self, slot: usize) -> u64 {
        if slot == 0 {
            0
        } else {
            self.end_bytes[slot - 1]
        }
    }

    pub(super) fn used_bytes(&self, slot: usize) -> u64 {
        self.end_bytes[slot] - self.start_bytes(slot)
    }

    pub(super) fn locate(&self, volume_offset_bytes: u64) -> Place {
        let slot = self
            .end_bytes
            .partition_point(|&end| end <= volume_offset_bytes);
        Place {
            slot,
            member_offset_bytes: volume_offset_bytes - self.start_bytes(slot),
            length_bytes: self.end_bytes[slot] - volume_offset_bytes,
        }
    }

    pub(super) fn volume_offset_of(
        &self,
        slot: usize,
        member_offset_bytes: u64,
    ) -> Option<(u64, u64)> {
        let used = self.used_bytes(slot);
        (member_offset_bytes < used).then(|| {
            (
                self.start_bytes(slot) + member_offset_bytes,
                used - member_offset_bytes,
            )
        })
    }
}
