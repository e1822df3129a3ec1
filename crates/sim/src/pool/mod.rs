//! ZFS pools as a subject: the writer of pools as the daemon serves it, in the same world as arrays.
//!
//! Everything that is asked of a pool stands on its members: after every end of a life their images are opened, checked
//! and read behind the pool's back (`judge`), with all of them and without those that it can spare.

mod admin;
mod deed;
mod image;
mod judge;
mod memory;
mod plan;
mod rules;
mod served;

pub use plan::{Layout, Plan};
pub use served::Served;
