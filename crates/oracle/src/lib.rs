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
//!
//! ```no_run
//! use plexum_oracle::{Batch, Create, Expected, Job, Judge};
//!
//! # let (theirs, ours) = (["a", "b", "c"], ["d", "e", "f", "g"]);
//! let mut batch = Batch::new();
//! // The kernel makes an array and fills it with the pattern of seed 1.
//! batch.add(Job::create("theirs", &theirs, &Create::new("5", &["--chunk=16"], 1)));
//! // The kernel reads what was written by others: whole, and with members 0 and 2 missing; then its `check`.
//! let mut judge = Judge::new(Expected::Seed(2));
//! judge.without = vec![vec![], vec![0, 2]];
//! batch.add(Job::judge("ours", &ours, &judge));
//! // Anything else is a script.
//! batch.add(Job::script("fails", &["h"], "start --readonly $DEVS && put_sys state array_state; stop"));
//! let reports = batch.run_faultless();
//! assert_eq!(reports[2].value("state"), "readonly");
//! ```
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
pub use job::{Create, Ending, Expected, Job, Judge, survivable_losses};
pub use pattern::{pattern_bytes, pattern_sha256, sha256};
pub use report::Report;
