//! Makes and writes ZFS pools in the real on-disk format of OpenZFS: volumes, commits, and a checker of everything.
//!
//! It stands on the reader (`zfs`), which verifies every block. File systems are not written.
//!
//! Invariants:
//! - the members always hold a whole root: the last one that was committed, or the one before while the next is being
//!   written;
//! - nothing that one of the last roots reaches is overwritten;
//! - a pool is written only when all its active features are known, and its members are there or spared knowingly;
//! - no thread, no file, no clock.
//!
//! Source: zfs-write.md.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod branch;
mod chain;
mod check;
mod commit;
mod create;
mod deadlist;
mod dsl;
mod error;
mod ground;
mod groups;
mod live;
mod live_changes;
mod log;
mod member_maps;
mod members;
#[cfg(test)]
#[allow(dead_code)] // the tests of this program use a part of it
#[path = "../tests/all/common/memory.rs"]
mod memory;
mod missed;
pub mod mutant;
mod numbers;
mod open;
mod rename;
mod replace;
mod replay;
mod returns;
mod seed;
mod set;
mod sides;
mod snapshot;
mod space;
mod space_map;
mod spans;
mod state;
mod tree;
mod txgs;
mod upkeep;
mod volume;

pub use check::{CheckReport, Finding, FindingKind, check_pool};
pub use create::{
    GroupKind, MEMBER_BYTES_MIN, NewGroup, NewMember, NewPool, check_pool_name, group_bytes,
};
pub use error::PoolError;
pub use groups::Mixed;
pub use live::{LivePool, LiveVolume, Walking};
pub use log::Logged;
pub use members::MemberInfo;
pub use open::{Absent, FEATURES_WRITABLE, Foreign, WriteOptions};
pub use rename::Shrink;
pub use replace::Replacement;
pub use snapshot::{Now, SnapshotInfo};
pub use state::WritablePool;
pub use upkeep::{Task, UpkeepReport, Walk};
pub use volume::{NewVolume, OpenVolume};
