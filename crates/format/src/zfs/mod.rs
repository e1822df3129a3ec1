//! ZFS: the structures of a pool, from bytes and to bytes.
//!
//! Everything here takes bytes and gives checked values. Reading blocks, verifying them against the checksum in their
//! pointer and following pointers is the business of the crate `zfs`.
//!
//! Words: a top-level vdev is a plex, a leaf vdev a member; see the glossary.
//!
//! Invariants:
//! - nothing recurses on what a disk holds; depths, counts and sizes have limits with names;
//! - nothing is allocated from a count that was not checked against the bytes that are there;
//! - only little-endian pools are taken; others are refused by name.
//!
//! Source: zfs-raidz.md section 2, whose facts were confirmed on pools that OpenZFS 2.1 wrote.

pub mod blockptr;
mod bytes;
pub mod checksum;
pub mod dnode;
pub mod dnode_image;
pub mod dsl;
pub mod intent;
pub mod label;
pub mod label_write;
pub mod lzjb;
pub mod nvlist;
mod nvlist_write;
pub mod pointer_image;
pub mod sa;
pub mod spacemap;
pub mod tree;
pub mod uberblock;
pub mod zap;
pub mod zap_write;
pub mod zle;
pub mod znode;

pub use blockptr::{BlockPointer, Dva, Payload};
pub use checksum::{ChecksumKind, Digest};
pub use dnode::{Dnode, ObjectSetHeader, ObjectSetKind};
pub use dnode_image::{DnodeImage, NewObject};
pub use label::{LABEL_BYTES, Label, LabelArea, PoolState, label_offsets};
pub use nvlist::{NvList, NvValue};
pub use pointer_image::{NewPointer, PointerImage};
pub use tree::{Leaf, PlexConfig, PlexKind};
pub use uberblock::Uberblock;

/// Where allocatable space begins on a member, in bytes: two labels and the boot area.
pub const DATA_OFFSET_BYTES: u64 = 4 << 20;
/// Where the partition of a whole-disk member usually begins, in bytes: for disks whose tables are lost.
pub const USUAL_STARTS_BYTES: [u64; 5] = [2048 * 512, 40 * 512, 256 * 512, 34 * 512, 63 * 512];
/// Largest block, logical or physical, in bytes.
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Smallest and largest sector of a plex, as powers of two in bytes.
pub const ASHIFT_MIN: u32 = 9;
/// See [`ASHIFT_MIN`].
pub const ASHIFT_MAX: u32 = 16;

/// Features that this program can read pools with; any other in the label makes the pool unreadable.
///
/// All of them change nothing that a reader of the structures here would trip over, or are handled. `encryption` is
/// fine for the pool: each encrypted data set is refused by itself.
pub const FEATURES_READABLE: [&str; 28] = [
    "com.delphix:embedded_data",
    "com.delphix:empty_bpobj",
    "com.delphix:enabled_txg",
    "com.delphix:extensible_dataset",
    "com.delphix:hole_birth",
    "com.delphix:livelist",
    "com.delphix:log_spacemap",
    "com.delphix:obsolete_counts",
    "com.delphix:device_removal",
    "com.delphix:redacted_datasets",
    "com.delphix:redaction_bookmarks",
    "com.datto:bookmark_v2",
    "com.datto:encryption",
    "com.delphix:bookmark_written",
    "com.delphix:head_errlog",
    "org.illumos:lz4_compress",
    "org.illumos:sha512",
    "org.illumos:skein",
    "org.illumos:edonr",
    "org.freebsd:zstd_compress",
    "org.open-zfs:large_blocks",
    "org.openzfs:blake3",
    "org.openzfs:draid",
    "org.openzfs:raidz_expansion",
    "org.zfsonlinux:large_dnode",
    "com.delphix:spacemap_v2",
    "com.joyent:multi_vdev_crash_dump",
    "com.klarasystems:vdev_zaps_v2",
];

/// The active features of a label that this program cannot read.
#[must_use]
pub fn unreadable_features(features: &[String]) -> Vec<String> {
    let is_unknown = |name: &&String| !FEATURES_READABLE.contains(&name.as_str());
    features.iter().filter(is_unknown).cloned().collect()
}
