//! How a disk is: what `smartctl -j -n standby -x` says, and a judge of what changed.
//!
//! Invariants:
//! - No command line leaves here without `-n standby`: asking must never wake a disk.
//! - A document that says nothing is never "fine": it is "cannot tell", with the reason.
//! - Counts that were there when a disk joined are its past. Growth alone is news.
//! - A disk that sleeps or is silent keeps the verdict of its last reading beside that.

mod ata;
mod baseline;
mod command;
mod counters;
mod document;
mod exit;
mod judge;
mod nvme;
mod scsi;
mod self_test;
mod value;
mod verdict;

pub use baseline::{Baseline, Course, QUIET_S};
pub use command::{BadDevice, DeviceType, command_line};
pub use counters::{Counter, Counters};
pub use document::{DOCUMENT_BYTES_MAX, Ended, Health, Protocol, Reading, Report, read};
pub use exit::ExitStatus;
pub use judge::{findings, judge};
pub use nvme::CriticalWarning;
pub use self_test::SelfTest;
pub use verdict::{Growth, Known, Reason, Silence, Verdict};
