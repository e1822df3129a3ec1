//! Golden images for tests: the manifests as types, the archives unpacked; and a writer of pools that nobody recorded.
//!
//! Invariants:
//! - the images under `fixtures/` are never changed: a case is unpacked into a folder of its own, removed afterwards;
//! - a missing tool (`zstd`, `tar`) or image fails the test that asked; nothing is skipped in silence.
#![forbid(unsafe_code)]

mod freebsd;
mod md;
mod poll;
mod sysfs;
pub mod tiny_pool;
mod unpack;
mod zfs;

pub use freebsd::{freebsd_cases, freebsd_json, unpack_freebsd_case};
pub use md::{Case, ManifestBitmap, ManifestReshape, Member, OwnRole, md_cases, unpack_case};
pub use poll::block_on;
pub use sysfs::unpack_sysfs;
pub use unpack::{Unpacked, fixtures, unpack};
pub use zfs::{unpack_zfs_case, zfs_cases};
