//! RAID-0: strips in turn, in zones where the members have different sizes.
//!
//! Zone 0 reaches to the smallest member on all of them, each next zone takes the larger ones up to the next size.
//! Source: linux-md.md section 7; checked against the golden images s02 and s03.

use super::divisor::Divisor;
use super::names::Raid0Layout;
use super::{GeometryError, Place, round_down};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Zone {
    /// Volume offset of the zone.
    start_bytes: u64,
    /// Volume offset behind the zone.
    end_bytes: u64,
    /// Member offset of the zone, the same on all of its members.
    member_start_bytes: u64,
    /// Its members in slot order.
    slots: Vec<u16>,
    /// How many they are.
    members: Divisor,
    /// Position of the member that has the zone's first strip.
    first: u64,
}

/// RAID-0 over members of any sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ZoneMap {
    strip_bytes: u64,
    strip: Divisor,
    zones: Vec<Zone>,
    /// Used bytes of each slot.
    used_bytes: Vec<u64>,
}

impl ZoneMap {
    pub(super) fn new(
        layout: Raid0Layout,
        sizes_bytes: &[u64],
        strip_bytes: u64,
    ) -> Result<ZoneMap, GeometryError> {
        let used_bytes: Vec<u64> = sizes_bytes
            .iter()
            .map(|size| round_down(*size, strip_bytes))
            .collect();
        let mut limits = used_bytes.clone();
        limits.sort_unstable();
        limits.dedup();
        let mut zones = Vec::new();
        let (mut start_bytes, mut member_start_bytes) = (0u64, 0u64);
        for limit in limits.into_iter().filter(|&limit| limit > 0) {
            let slots: Vec<u16> = (0..)
                .zip(&used_bytes)
                .filter(|(_, used)| **used >= limit)
                .map(|(slot, _)| slot)
                .collect();
            let bytes = (limit - member_start_bytes)
                .checked_mul(slots.len() as u64)
                .ok_or(GeometryError::TooLarge)?;
            let end_bytes = start_bytes
                .checked_add(bytes)
                .ok_or(GeometryError::TooLarge)?;
            let members = Divisor::new(slots.len() as u64);
            let first = match layout {
                Raid0Layout::Original => members.split(start_bytes / strip_bytes).1,
                Raid0Layout::Alternate => 0,
            };
            zones.push(Zone {
                start_bytes,
                end_bytes,
                member_start_bytes,
                slots,
                members,
                first,
            });
            (start_bytes, member_start_bytes) = (end_bytes, limit);
        }
        Ok(ZoneMap {
            strip_bytes,
            strip: Divisor::new(strip_bytes),
            zones,
            used_bytes,
        })
    }

    pub(super) fn volume_bytes(&self) -> u64 {
        self.zones.last().map_or(0, |zone| zone.end_bytes)
    }

    pub(super) fn used_bytes(&self, slot: usize) -> u64 {
        self.used_bytes[slot]
    }

    /// Whether the two layouts differ here: more than one zone, of which a later one has several members.
    pub(super) fn layout_matters(&self) -> bool {
        self.zones.iter().skip(1).any(|zone| zone.slots.len() > 1)
    }

    pub(super) fn locate(&self, volume_offset_bytes: u64) -> Place {
        let zone = match &self.zones[..] {
            [only] => only,
            zones => &zones[zones.partition_point(|zone| zone.end_bytes <= volume_offset_bytes)],
        };
        // Zones begin with a strip.
        let (relative, inside) = self.strip.split(volume_offset_bytes - zone.start_bytes);
        let (row, turn) = zone.members.split(relative);
        let mut position = zone.first as usize + turn as usize; // both below the number of members
        if position >= zone.slots.len() {
            position -= zone.slots.len();
        }
        Place {
            slot: usize::from(zone.slots[position]),
            member_offset_bytes: zone.member_start_bytes + row * self.strip_bytes + inside,
            length_bytes: self.strip_bytes - inside,
        }
    }

    pub(super) fn volume_offset_of(
        &self,
        slot: usize,
        member_offset_bytes: u64,
    ) -> Option<(u64, u64)> {
        if member_offset_bytes >= self.used_bytes[slot] {
            return None;
        }
        let index = self
            .zones
            .partition_point(|zone| zone.member_start_bytes <= member_offset_bytes)
            - 1;
        let zone = &self.zones[index];
        let position = zone.slots.iter().position(|&s| usize::from(s) == slot)? as u64;
        let members = zone.slots.len() as u64;
        let row = (member_offset_bytes - zone.member_start_bytes) / self.strip_bytes;
        let inside = member_offset_bytes % self.strip_bytes;
        // Each row's first strip is on position `first`; go round from there.
        let relative = row * members + (position + members - zone.first) % members;
        Some((
            zone.start_bytes + relative * self.strip_bytes + inside,
            self.strip_bytes - inside,
        ))
    }
}
