//! What closes (or narrows) the write hole: regions with writes under way, and their bitmap on the members.

pub mod bitmap;
pub(crate) mod log;
pub(crate) mod ppl;
pub mod regions;
