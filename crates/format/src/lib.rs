//! On-disk formats: bytes to checked metadata and back, no I/O.
//!
//! Everything here is a pure function: nothing panics on what a disk holds, nothing is allocated from an unchecked
//! count, and every refusal is a [`FormatError`] that names structure, byte offset, field, found and expected.
//!
//! The words of the foreign formats (chunk, recovery, raid disk) live here and nowhere else.
#![forbid(unsafe_code)]

pub mod container;
pub mod describe;
pub mod detect;
pub mod error;
pub mod gconcat;
mod geom;
pub mod gmirror;
pub mod gstripe;
mod kept;
pub mod md;
mod md5;
pub mod partition;
pub mod stripe_log;
pub mod units;
pub mod uuid;
pub mod vinum;
pub mod zfs;

pub use container::Container;
pub use detect::{Detection, Found, ReadAt, detect, probe_places};
pub use error::{FormatError, Problem};
pub use units::{EventCount, SECTOR_BYTES, Slot};
