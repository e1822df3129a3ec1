//! The partitions of a device, and which of them owns what was found on it.

use plexum_format::partition::{Partition, Seen, partitions};

use plexum_block::buf::BufPool;
use plexum_block::device::Device;
use plexum_block::device::read_range;

/// The partitions on a device. What cannot be read counts as zeroes: then there are none.
pub async fn partitions_on<D: Device>(device: &D, pool: &BufPool) -> Vec<Partition> {
    let size_bytes = device.info().size_bytes;
    let mut seen = Seen::default();
    loop {
        match partitions(size_bytes, &seen) {
            Ok(found) => return found,
            Err(wanted) => {
                let bytes = read_range(device, pool, wanted.0.clone()).await;
                seen.add(wanted, bytes.unwrap_or_default());
            }
        }
    }
}
