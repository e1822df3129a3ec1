//! Volumes of a ZFS pool, and snapshots of them, as they are served: one pool is opened once for all of its volumes.
//!
//! Invariants:
//! - labels say that the pool is in use before anybody is let in, and that it may be taken elsewhere after the last
//!   commit;
//! - a block that cannot be read is an I/O error to the client, never wrong data;
//! - clients come in by the same servers as to other volumes (`host`).

mod changes;
mod export;
mod fronts;
mod opened;
mod redundancy;
mod served;
mod status;
mod volume;

pub(crate) use opened::open_live;
pub(crate) use served::{PoolServed, not_served, only_shown};
pub(crate) use volume::PoolVolume;
