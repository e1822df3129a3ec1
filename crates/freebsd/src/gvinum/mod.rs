//! Vinum and gvinum: drives, subdisks, plexes and volumes of a whole system, as its drives tell them.
//!
//! Invariants:
//! - nothing is decided before all drives are known: the newest configuration that makes sense counts, whatever the
//!   order;
//! - states follow from subdisks to plexes to volumes, never the other way;
//! - a subdisk that missed writes is stale until it was filled; no order of discovery and no restart makes it up.
//!
//! Source: freebsd-geom.md sections 2.1, 2.7 to 2.10; the defects of 2.16 are not copied.

mod adapter;
mod build;
pub mod counters;
mod discover;
mod drive;
pub mod edit;
mod geometry;
mod growing;
mod open;
mod spares;
mod states;
mod store;
pub mod tally;
#[cfg(test)]
mod tests;

use std::fmt;

use plexum_format::vinum::{Config, DATA_OFFSET_BYTES, DriveHeader, Mark, Plex, Subdisk};

pub use adapter::{GvinumMetadata, Held};
pub use build::{BuildError, Room, SHORTCUT_STRIP_BYTES, Shortcut, build, print_config};
pub use discover::{FoundDrive, assemble, said_by};
pub use drive::{UNREADABLE_COPY, read_drive};
use geometry::keeping_places;
pub use geometry::{PlexMap, free_place, grown_map, is_free, places_of, plex_map, volume_bytes};
pub use growing::Growing;
pub use open::{OpenedSystem, OpenedVolume, SystemRequest, open_system};
pub use states::{Beside, derive_plex, derive_volume, settle};
pub use store::{SharedStore, Store};

/// A drive that the system knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Its name, by which subdisks know it.
    pub name: String,
    /// The caller's number of the device; `None` for one that is referred to and not there.
    pub key: Option<usize>,
    /// The device's name for people; empty when it is not there.
    pub device: String,
    /// Its size, 0 when it is not there.
    pub size_bytes: u64,
    /// Its header; `None` when it is not there.
    pub header: Option<DriveHeader>,
    /// The copy of its configuration, 0 or 1, that a save writes first: the other one counts until that is written.
    pub first_copy: usize,
}

impl Drive {
    /// Whether it is there.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.key.is_some()
    }

    /// Space for subdisks.
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(DATA_OFFSET_BYTES)
    }
}

/// A system of drives with its configuration; the states in it are those that follow now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// Drives: those that are there in the order given, then the others by name.
    pub drives: Vec<Drive>,
    /// The configuration with derived states.
    pub config: Config,
    /// The configuration as the newest drive recorded it that can be read.
    pub recorded: Config,
    /// What the newest drives say about the last writes.
    pub mark: Mark,
    /// Last update of the newest drive: seconds and microseconds.
    pub updated: (u64, u64),
    /// Some copy on the newest drives says something else: a save was interrupted.
    pub is_uneven: bool,
    /// A drive that was written later than `recorded`, and of whose configuration no copy makes sense: what it said is
    /// lost, and what is `recorded` may be out of date.
    pub unreadable_newer: Option<String>,
    /// What people should know: drives that are older, copies that were not used.
    pub notes: Vec<String>,
}

impl System {
    /// A drive by its name.
    #[must_use]
    pub fn drive(&self, name: &str) -> Option<&Drive> {
        self.drives.iter().find(|drive| drive.name == name)
    }

    /// Plexes of a volume, in the order of their names.
    #[must_use]
    pub fn plexes_of(&self, volume: &str) -> Vec<&Plex> {
        plexes_of(&self.config, volume)
    }

    /// Free areas of a drive, in order: byte offset and length.
    #[must_use]
    pub fn free_areas(&self, drive: &str) -> Vec<(u64, u64)> {
        let end = self.drive(drive).map_or(0, |drive| drive.size_bytes);
        free_areas(&self.config, drive, end)
    }
}

/// Plexes of a volume, in the order of their names.
#[must_use]
pub fn plexes_of<'a>(config: &'a Config, volume: &str) -> Vec<&'a Plex> {
    let of = |plex: &&Plex| plex.volume.as_deref() == Some(volume);
    let mut plexes: Vec<&Plex> = config.plexes.iter().filter(of).collect();
    plexes.sort_by(|a, b| a.name.cmp(&b.name));
    plexes
}

/// Subdisks of a plex, in the order in which it uses them.
#[must_use]
pub fn subdisks_of<'a>(config: &'a Config, plex: &str) -> Vec<&'a Subdisk> {
    let place = |subdisk: &Subdisk| match &subdisk.plex {
        Some((name, offset)) if name == plex => Some(*offset),
        _ => None,
    };
    let mut subdisks: Vec<&Subdisk> = config
        .subdisks
        .iter()
        .filter(|subdisk| place(subdisk).is_some())
        .collect();
    subdisks.sort_by_key(|subdisk| place(subdisk));
    subdisks
}

/// Free areas of a drive of `drive_bytes`, in order: byte offset and length. Detached subdisks keep their space (defect
/// 7).
#[must_use]
pub fn free_areas(config: &Config, drive: &str, drive_bytes: u64) -> Vec<(u64, u64)> {
    let on_drive = |subdisk: &&Subdisk| subdisk.drive == drive;
    let mut used: Vec<&Subdisk> = config.subdisks.iter().filter(on_drive).collect();
    used.sort_by_key(|subdisk| subdisk.drive_offset_bytes);
    let end = drive_bytes / 512 * 512;
    let mut areas = Vec::new();
    let mut at = DATA_OFFSET_BYTES;
    for subdisk in used {
        if subdisk.drive_offset_bytes > at {
            areas.push((at, subdisk.drive_offset_bytes.min(end).saturating_sub(at)));
        }
        at = at.max(subdisk.drive_end_bytes());
    }
    if end > at {
        areas.push((at, end - at));
    }
    areas.retain(|(_, length)| *length > 0);
    areas
}

/// Why drives make no system, or a plex cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemError {
    /// No drive was found.
    NoDrive,
    /// No drive has a configuration that makes sense; the reason of the newest.
    NoConfiguration {
        /// The drive.
        device: String,
        /// What is wrong with its first copy.
        reason: String,
    },
    /// The object cannot be used.
    Unusable {
        /// Its name.
        object: String,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDrive => f.write_str("no Vinum drive was found"),
            Self::NoConfiguration { device, reason } => {
                write!(
                    f,
                    "no copy of the configuration makes sense; {device}: {reason}"
                )
            }
            Self::Unusable { object, reason } => write!(f, "{object}: {reason}"),
        }
    }
}

impl std::error::Error for SystemError {}
