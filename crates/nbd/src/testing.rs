//! A stream made of memory, for tests of this crate and of others, beside the export and the clock of `front`.
//!
//! Nothing here waits for real time or touches the operating system; every future wakes exactly by what tests do.

pub use plexum_front::testing::{MemoryExport, Operation, PipeEnd, TestClock, pipe};

impl crate::transport::StartTls for PipeEnd {}
