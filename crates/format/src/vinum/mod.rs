//! FreeBSD Vinum and gvinum: a header that names the drive, and the configuration of the whole system as text, twice.
//!
//! Source: freebsd-geom.md sections 2.2 to 2.4.

pub mod config;
mod growth;
pub mod header;
pub mod script;

pub use config::{
    Config, Organisation, Plex, PlexState, Subdisk, SubdiskState, Volume, VolumeState,
};
pub use growth::Growth;
pub use header::{DriveHeader, HeaderFormat, Mark};
pub use script::{Script, ScriptError};

/// Byte offset of the header on a drive.
pub const HEADER_OFFSET_BYTES: u64 = 4096;
/// Bytes of each copy of the configuration.
pub const CONFIG_BYTES: u64 = 65_536;
/// Byte offsets of the two copies.
pub const CONFIG_OFFSETS_BYTES: [u64; 2] = [4608, 70_144];
/// Where the space for subdisks begins, in bytes.
pub const DATA_OFFSET_BYTES: u64 = 135_680;
