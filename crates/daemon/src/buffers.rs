//! Buffers of requests.

use plexum_block::buf::BufPool;
use plexum_runtime::file::large_pages;

/// The buffers of all requests of a thread that serves: unused ones keep at most a quarter of the memory that was
/// given.
pub(crate) fn request_pool(memory_bytes: u64) -> BufPool {
    let keep_bytes_max = usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX);
    BufPool::with_advice(keep_bytes_max, large_pages)
}
