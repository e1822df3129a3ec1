//! Regions of an array whose members hold no bitmap: how large they are.

use super::Regions;
use plexum_layout::Geometry;

/// Regions of an array without a bitmap: about this many, so that memory stays small and doubt is still narrow.
const PLAIN_REGIONS: u64 = 16_384;

/// Smallest region of an array without a bitmap, in bytes.
const PLAIN_REGION_BYTES_MIN: u64 = 64 << 10;

impl Regions {
    /// Regions of a volume whose members hold no bitmap: they only say where a resync has to go. From
    /// `doubt_from_bytes` of the sync space on, copies or parity may differ; `None`: they agree. `block_bytes` as in
    /// `new`.
    #[must_use]
    pub fn without_bitmap(
        geometry: &Geometry,
        block_bytes: u32,
        doubt_from_bytes: Option<u64>,
    ) -> Self {
        let sync_bytes = geometry.sync_bytes();
        let region_bytes = (sync_bytes / PLAIN_REGIONS)
            .next_power_of_two()
            .max(PLAIN_REGION_BYTES_MIN);
        let mut regions = Self::new(sync_bytes, region_bytes, block_bytes, false);
        if let Some(start) = doubt_from_bytes.filter(|_| sync_bytes > 0) {
            regions.doubt_from(start);
        }
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_layout::{GeometrySpec, Organisation};

    /// So that memory stays small and doubt is still narrow.
    #[test]
    fn an_array_without_a_bitmap_has_about_sixteen_thousand_regions() {
        for (bytes, regions) in [(1 << 20, 16), (64 << 30, 16_384), (3 << 40, 12_288)] {
            let geometry = Geometry::new(&GeometrySpec {
                organisation: Organisation::Raid1,
                member_count: 2,
                strip_bytes: 0,
                component_bytes: bytes,
                member_sizes_bytes: Vec::new(),
            });
            let without_bitmap = Regions::without_bitmap(&geometry.unwrap(), 512, Some(0));
            assert_eq!(without_bitmap.count(), regions, "{bytes} bytes");
        }
    }
}
