//! The space map of a metaslab, read.

use plexum_block::device::Device;
use plexum_format::zfs::spacemap::{Change, decode};

use crate::error::PoolError;
use crate::set::SetState;
use crate::space::Metaslab;
use crate::tree::Source;

/// Largest space map that is read.
const SPACE_MAP_BYTES_MAX: u64 = 1 << 30;

/// Reads the space map of a metaslab.
pub(crate) async fn load_map<D: Device>(
    meta: &SetState,
    source: &Source<D>,
    one: &mut Metaslab,
) -> Result<(), PoolError> {
    let what = format!(
        "space map of metaslab {} of plex {}",
        one.number, one.plex_id
    );
    let dnode = meta.dnode(source, one.map_object).await?;
    one.map_bytes = dnode.bonus_word(1);
    one.allocated_bytes = dnode.bonus_word(2);
    if one.map_bytes > SPACE_MAP_BYTES_MAX {
        return Err(PoolError::invalid(what, "it is too long"));
    }
    let bytes = meta.bytes(one.map_object, source, one.map_bytes).await?;
    let entries = decode(&bytes)
        .map_err(|at| PoolError::invalid(&what, format!("the entry at byte {at} is cut off")))?;
    for entry in entries {
        let start = one
            .start_bytes
            .saturating_add(entry.start.saturating_mul(1 << one.sector_shift));
        let end = start.saturating_add(entry.count.saturating_mul(1 << one.sector_shift));
        let is_right = end <= one.start_bytes + one.size_bytes
            && match entry.change {
                Change::Allocated => one.free.take(start..end),
                Change::Freed => one.free.add(start..end),
            };
        if !is_right {
            return Err(PoolError::invalid(
                what,
                format!("it takes or frees bytes {start} to {end} twice"),
            ));
        }
    }
    if one.size_bytes - one.free.total_bytes() != one.allocated_bytes {
        return Err(PoolError::invalid(
            what,
            "the sum of its entries is not the one in its head",
        ));
    }
    Ok(())
}
