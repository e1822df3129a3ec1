//! An export, a clock and a stream made of memory, for tests of this crate and of others.
//!
//! Nothing here waits for real time or touches the operating system; every future wakes exactly by what tests do.

mod clock;
mod export;
mod pipe;

pub use clock::TestClock;
pub use export::{MemoryExport, Operation};
pub use pipe::{PipeEnd, pipe};
