//! The laboratory: the real engine over timed disks in virtual time, the workloads people measured RAID with, and
//! reports.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod array;
pub mod balance;
pub mod build;
pub mod calibrate;
mod change;
pub mod cow;
pub mod error;
pub mod experiment;
pub mod host;
pub mod inside;
pub mod iostat;
mod lines;
pub mod member;
pub mod place;
pub mod predict;
pub mod preset;
pub mod program;
pub mod real;
pub mod report;
pub mod reproduce;
pub mod sensitivity;
pub mod setup;
pub mod stats;
pub mod target;
pub mod work;
pub mod workload;
pub mod world;
pub mod worth;
