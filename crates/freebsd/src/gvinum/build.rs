//! From what people ask for to objects on drives: space is found, sizes are trimmed, nothing is half made.
//!
//! Invariants:
//! - all or nothing: an error leaves no object behind;
//! - what exists keeps its place.
//!
//! Source: freebsd-geom.md sections 2.5, 2.6 and 2.12 (shortcuts).

use std::fmt;
use std::fmt::Write as _;

use plexum_format::vinum::script::{Script, ScriptPlex, ScriptSubdisk};
use plexum_format::vinum::{
    Config, Organisation, Plex, PlexState, Subdisk, SubdiskState, Volume, VolumeState,
};

use super::{
    free_areas, free_place, is_free, keeping_places, plex_map, plexes_of, settle, subdisks_of,
    volume_bytes,
};

/// Strip size of the shortcuts.
pub const SHORTCUT_STRIP_BYTES: u64 = 256 << 10;

/// Why a script cannot be carried out; nothing was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    /// Line of the script, from 1.
    pub line: usize,
    /// The sentence.
    pub message: String,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for BuildError {}

/// A drive that subdisks can be put on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
}

/// The configuration with everything that the script asks for besides what `existing` has. `rooms`: all drives, those
/// of the script included. Within volumes, plexes and subdisks the newest comes first, as gvinum writes it.
///
/// # Errors
/// [`BuildError`] with the line.
pub fn build(script: &Script, rooms: &[Room], existing: &Config) -> Result<Config, BuildError> {
    let mut config = existing.clone();
    let fail = |line: usize, message: String| Err(BuildError { line, message });
    for volume in &script.volumes {
        if config.volumes.iter().any(|other| other.name == volume.name) {
            return fail(volume.line, format!("a volume {} exists", volume.name));
        }
        config.volumes.insert(
            0,
            Volume {
                name: volume.name.clone(),
                state: VolumeState::Up,
            },
        );
    }
    for plex in &script.plexes {
        if config.plexes.iter().any(|other| other.name == plex.name) {
            return fail(plex.line, format!("a plex {} exists", plex.name));
        }
        if !config
            .volumes
            .iter()
            .any(|volume| volume.name == plex.volume)
        {
            return fail(plex.line, format!("there is no volume {}", plex.volume));
        }
        config.plexes.insert(
            0,
            Plex {
                name: plex.name.clone(),
                organisation: plex.organisation,
                volume: Some(plex.volume.clone()),
                state: PlexState::Up,
                growth: None,
                end_bytes: None,
            },
        );
    }
    let spares = script.drives.iter().filter(|drive| drive.is_hot_spare);
    config.spares.extend(spares.map(|drive| drive.name.clone()));
    for subdisk in &script.subdisks {
        let added = keeping_places(&mut config, |config| {
            add_subdisk(config, script, rooms, subdisk).map_err(|error| error.message)
        });
        added.map_err(|message| BuildError {
            line: subdisk.line,
            message,
        })?;
    }
    for plex in &script.plexes {
        finish_plex(&mut config, plex)?;
        // What a volume holds already is not on a plex that joins it.
        if !plexes_of(existing, &plex.volume).is_empty() {
            leave_stale(&mut config, plex);
        }
    }
    check_sizes(script, existing, &config)?;
    settle(&mut config, |_| false);
    if let Err(error) = config.encode() {
        return fail(
            1,
            format!("the configuration does not fit the drives: {error}"),
        );
    }
    Ok(config)
}

/// A volume that is there never gets smaller by a plex that joins it.
fn check_sizes(script: &Script, existing: &Config, config: &Config) -> Result<(), BuildError> {
    for plex in &script.plexes {
        let bytes_in = |config| volume_bytes(config, &plex.volume);
        let (before, now) = (bytes_in(existing), bytes_in(config));
        if now < before {
            let (name, volume) = (&plex.name, &plex.volume);
            return Err(BuildError {
                line: plex.line,
                message: format!("{name} has {now} bytes: {volume} would shrink from {before}"),
            });
        }
    }
    Ok(())
}

/// A plex of a volume that was there holds nothing yet.
fn leave_stale(config: &mut Config, plex: &ScriptPlex) {
    let on = |one: &&mut Subdisk| {
        let of = one.plex.as_ref();
        of.is_some_and(|(name, _)| *name == plex.name)
    };
    for subdisk in config.subdisks.iter_mut().filter(on) {
        subdisk.state = SubdiskState::Stale;
    }
}

fn add_subdisk(
    config: &mut Config,
    script: &Script,
    rooms: &[Room],
    asked: &ScriptSubdisk,
) -> Result<(), BuildError> {
    let fail = |message: String| BuildError {
        line: asked.line,
        message,
    };
    let name = &asked.name;
    if config.subdisks.iter().any(|other| other.name == *name) {
        return Err(fail(format!("a subdisk {name} exists")));
    }
    let room = rooms.iter().find(|room| room.name == asked.drive);
    let room = room.ok_or_else(|| fail(format!("there is no drive {}", asked.drive)))?;
    let plex = config.plexes.iter().find(|plex| plex.name == asked.plex);
    let organisation = plex
        .ok_or_else(|| fail(format!("there is no plex {}", asked.plex)))?
        .organisation;
    let is_new = script.plexes.iter().any(|plex| plex.name == asked.plex);
    let (offset, mut length) = place(config, room, asked).map_err(&fail)?;
    let others = subdisks_of(config, &asked.plex);
    let count = others.len() as u64;
    let is_there = !is_new && !others.is_empty();
    let end = others
        .iter()
        .map(|other| end_in_plex(other))
        .max()
        .unwrap_or(0);
    if let Some(strip) = organisation.strip_bytes() {
        length = trim(config, asked, strip, length, is_new).map_err(&fail)?;
    }
    let plex_offset = match is_there {
        true => {
            Some(free_place(config, &asked.plex, length, asked.plex_offset_bytes).map_err(&fail)?)
        }
        false => asked.plex_offset_bytes,
    };
    let follows = match organisation.strip_bytes() {
        None => end,
        Some(strip) => count.saturating_mul(strip) / 512 * 512,
    };
    let subdisk = Subdisk {
        name: name.clone(),
        drive: asked.drive.clone(),
        length_bytes: length,
        drive_offset_bytes: offset,
        plex: Some((asked.plex.clone(), plex_offset.unwrap_or(follows))),
        state: if is_new {
            SubdiskState::Up
        } else {
            SubdiskState::Stale
        },
    };
    config.subdisks.insert(0, subdisk);
    Ok(())
}

/// Whole stripes, and as much as every other subdisk of the plex has; those of a new plex are cut to a smaller one.
fn trim(
    config: &mut Config,
    asked: &ScriptSubdisk,
    strip_bytes: u64,
    length_bytes: u64,
    is_new: bool,
) -> Result<u64, String> {
    let name = &asked.name;
    let length = length_bytes - length_bytes % strip_bytes;
    if length == 0 {
        return Err(format!(
            "{name} is smaller than a stripe of {strip_bytes} bytes"
        ));
    }
    let others = subdisks_of(config, &asked.plex);
    let smallest = others.iter().map(|other| other.length_bytes).min();
    let smallest = smallest.unwrap_or(length);
    if length < smallest && !is_new {
        return Err(format!("{name} has {length} bytes, {smallest} are needed"));
    }
    for other in &mut config.subdisks {
        let is_on = other
            .plex
            .as_ref()
            .is_some_and(|(plex, _)| *plex == asked.plex);
        if is_on {
            other.length_bytes = other.length_bytes.min(length);
        }
    }
    Ok(length.min(smallest))
}

fn end_in_plex(subdisk: &Subdisk) -> u64 {
    let offset = subdisk.plex.as_ref().map_or(0, |(_, offset)| *offset);
    offset.saturating_add(subdisk.length_bytes)
}

/// Where a subdisk goes on its drive: offset and length.
fn place(config: &Config, room: &Room, asked: &ScriptSubdisk) -> Result<(u64, u64), String> {
    let areas = free_areas(config, &room.name, room.size_bytes);
    let no_space = || format!("not enough space on {} for {}", room.name, asked.name);
    match (asked.drive_offset_bytes, asked.length_bytes) {
        (Some(offset), length) => {
            let inside = areas.iter().find(|(start, free)| {
                *start <= offset && offset.saturating_add(length.unwrap_or(512)) <= start + free
            });
            let (start, free) = inside.ok_or_else(no_space)?;
            Ok((offset, length.unwrap_or(start + free - offset)))
        }
        (None, Some(length)) => {
            let first = areas.iter().find(|(_, free)| *free >= length);
            first
                .map(|(start, _)| (*start, length))
                .ok_or_else(no_space)
        }
        // The largest area, the later one of equals.
        (None, None) => areas
            .iter()
            .copied()
            .max_by_key(|(start, free)| (*free, *start))
            .ok_or_else(no_space),
    }
}

fn finish_plex(config: &mut Config, asked: &ScriptPlex) -> Result<(), BuildError> {
    let count = subdisks_of(config, &asked.name).len();
    if count == 0 {
        return Ok(()); // a plex without subdisks is down
    }
    let fail = |message: String| BuildError {
        line: asked.line,
        message,
    };
    let map = plex_map(config, &asked.name).map_err(|error| fail(error.to_string()))?;
    let mut places = map.subdisks.iter().skip_while(|place| !is_free(place));
    if let Some(hole) = places.next() {
        let start = |place: &Subdisk| place.plex.as_ref().map_or(0, |(_, offset)| *offset);
        let (due, next) = (start(hole), places.find(|place| !is_free(place)));
        let (name, at) = next.map_or((&asked.name, 0), |next| (&next.name, start(next)));
        let plex = &asked.name;
        return Err(fail(format!(
            "{plex}: {name} begins at byte {at} of it, where {due} is due"
        )));
    }
    Ok(())
}

/// What a shortcut makes of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortcut {
    /// One concat plex.
    Concat,
    /// One striped plex.
    Stripe {
        /// Strip size.
        strip_bytes: u64,
    },
    /// One RAID-5 plex.
    Raid5 {
        /// Strip size.
        strip_bytes: u64,
    },
    /// Two concat plexes: even devices are one, odd ones the other.
    Mirror,
    /// Two striped plexes.
    StripedMirror {
        /// Strip size.
        strip_bytes: u64,
    },
}

impl Shortcut {
    /// The script for `devices`; drives are called `gvinumdriveN`, counting from `first_drive`.
    ///
    /// # Errors
    /// A sentence when there are too few devices, or an odd number for a mirror.
    pub fn script(
        self,
        volume: &str,
        devices: &[String],
        first_drive: usize,
    ) -> Result<String, String> {
        let (least, plexes) = match self {
            Self::Concat => (1, 1),
            Self::Stripe { .. } => (2, 1),
            Self::Raid5 { .. } => (3, 1),
            Self::Mirror => (2, 2),
            Self::StripedMirror { .. } => (4, 2),
        };
        if devices.len() < least || !devices.len().is_multiple_of(plexes) {
            let even = if plexes == 2 { ", an even number" } else { "" };
            return Err(format!(
                "at least {least} members are needed{even}; {} are given",
                devices.len()
            ));
        }
        let mut text = String::new();
        for (index, device) in devices.iter().enumerate() {
            let number = first_drive + index;
            let _ = writeln!(text, "drive gvinumdrive{number} device {device}");
        }
        let _ = writeln!(text, "volume {volume}");
        let organisation = match self {
            Self::Concat | Self::Mirror => Organisation::Concat,
            Self::Stripe { strip_bytes } | Self::StripedMirror { strip_bytes } => {
                Organisation::Striped { strip_bytes }
            }
            Self::Raid5 { strip_bytes } => Organisation::Raid5 { strip_bytes },
        };
        for plex in 0..plexes {
            let strip = organisation
                .strip_bytes()
                .map_or(String::new(), |strip| format!(" {}s", strip / 512));
            let _ = writeln!(text, "  plex org {}{strip}", organisation.name());
            for index in (plex..devices.len()).step_by(plexes) {
                let number = first_drive + index;
                let _ = writeln!(text, "    sd length 0 drive gvinumdrive{number}");
            }
        }
        Ok(text)
    }
}

/// The configuration as gvinum's `printconfig` shows it; `drives` are names with devices, the newest first.
#[must_use]
pub fn print_config(config: &Config, drives: &[(String, String)]) -> String {
    let mut text = String::new();
    for (name, device) in drives {
        let hot = if config.spares.contains(name) {
            " hotspare"
        } else {
            ""
        };
        let _ = writeln!(text, "drive {name} device {device}{hot}");
    }
    let objects = Config {
        spares: Vec::new(), // told with the drives
        ..config.clone()
    };
    for line in objects.to_string().lines() {
        let line = line.split_once(" state ").map_or(line, |(line, _)| line);
        let _ = writeln!(text, "{line}");
    }
    text
}
