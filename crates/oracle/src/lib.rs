//! The real Linux md driver as a judge, for tests: `oracle/md-oracle` runs it in User Mode Linux on member files.
//!
//! A boot costs 3 to 5 s and a guest takes 16 members, so the work of many arrays is collected in a [`Batch`], which
//! packs it into few guests and runs two of them side by side. Each [`Job`] is one array's share: its member files and
//! what to do with them; each gives one [`Report`].
//!
//! Invariants:
//! - a job sees its own members only, as `$D0 $D1 ...`, and its own array device `$MD`;
//! - a job that judges works on copies: the files of the caller stay as they are;
//! - a guest that dies or runs out of time gives reports that say so; nothing is skipped.
#![forbid(unsafe_code)]

mod batch;
mod examine;
mod folder;
mod guest;
mod job;
mod pattern;
mod report;

pub use batch::Batch;
pub use examine::MemberState;
pub use folder::Folder;
pub use job::{Create, Ending, Expected, Job, Judge};
pub use pattern::{pattern_bytes, pattern_sha256, sha256};
pub use report::Report;
