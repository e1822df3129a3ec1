//! Reads ZFS pools: members are joined, every block is verified and, where columns are wrong or missing, reconstructed;
//! data sets, files and volumes come out. Nothing is ever written here; `ground.rs` is what a writer stands on.
//!
//! Words: ZFS's top-level device is a plex here, a leaf a member; see the glossary.
//!
//! Invariants:
//! - no byte reaches a caller that does not have the checksum in the pointer above it (data written with checksums
//!   switched off apart);
//! - what cannot be read is an error that names the object and the block; everything else stays readable;
//! - no call writes to a member;
//! - chains and trees on the disk are walked with limits, never by recursion.
//!
//! Source: zfs-raidz.md sections 1 and 2.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod ahead;
mod block;
mod cache;
mod damage;
mod dataset;
mod decompress;
mod error;
mod file;
mod ground;
mod intent;
mod member;
mod object;
mod partitions;
mod parts;
mod plex;
mod pool;
mod raidz;
mod scrub;
mod volume;
mod walk;
mod zap;

pub use ahead::{Piece, ReadAhead};
pub use damage::{Damage, DamageKind, IoKind};
pub use dataset::{Dataset, DatasetKind, DatasetName};
pub use decompress::decompress_into;
pub use error::ZfsError;
pub use file::{DirectoryEntry, FileSystem, Node};
pub use ground::{StoredExtent, Successor, fletcher4_of, stripe_columns};
pub use member::{MemberState, Missed, NamedDevice, find_members};
pub use object::{Object, ObjectSet};
pub use parts::Parts;
pub use pool::{MemberReport, OpenOptions, Pool, PoolReport};
pub use scrub::{ScrubProgress, ScrubReport, SpoiltObject};
pub use volume::Volume;
pub use walk::{DEPTH_MAX, Step, TreePlace, TreeWalk};
