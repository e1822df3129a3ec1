//! From drives to a system: whose configuration counts, and what the states are now.
//!
//! Source: freebsd-geom.md section 2.10, "required instead".

use plexum_format::FormatError;
use plexum_format::vinum::{Config, DriveHeader, Mark, PlexState, SubdiskState};

use super::{Drive, System, SystemError, plexes_of, settle};

/// A drive as it was read.
#[derive(Clone, Debug)]
pub struct FoundDrive {
    /// The caller's number of the device.
    pub key: usize,
    /// The device's name for people.
    pub device: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its header.
    pub header: DriveHeader,
    /// Both copies of the configuration; empty when they cannot be read.
    pub copies: [Vec<u8>; 2],
}

/// Puts the system together. All drives are known before anything is decided.
///
/// # Errors
/// [`SystemError::NoDrive`], [`SystemError::NoConfiguration`].
pub fn assemble(found: &[FoundDrive]) -> Result<System, SystemError> {
    let mut notes = Vec::new();
    let drives = present(found, &mut notes);
    if drives.is_empty() {
        return Err(SystemError::NoDrive);
    }
    let (newest, recorded) = choose(&drives, &mut notes)?;
    let updated = newest.header.updated;
    let latest = drives
        .iter()
        .filter(|drive| drive.header.updated >= updated);
    let is_uneven = latest.clone().any(|drive| says_else(drive, &recorded));
    // Whoever of the newest says that writes were under way is right.
    let mark = latest
        .map(|drive| drive.header.mark)
        .fold(newest.header.mark, |all, mark| match (all, mark) {
            (Mark::Writing, _) | (_, Mark::Writing) => Mark::Writing,
            (Mark::Unknown, _) | (_, Mark::Unknown) => Mark::Unknown,
            (Mark::Settled, Mark::Settled) => Mark::Settled,
        });
    for drive in &drives {
        if drive.header.updated < updated {
            notes.push(format!(
                "{} ({}) has an older configuration than {}",
                drive.device, drive.header.name, newest.device
            ));
        }
    }
    let newer = drives.iter().filter(|drive| drive.header.updated > updated);
    let newer = newer.max_by_key(|drive| drive.header.updated);
    let unreadable_newer = newer.map(|drive| drive.device.clone());
    let updated = newer.map_or(updated, |drive| drive.header.updated);
    let mut known: Vec<Drive> = drives
        .iter()
        .map(|drive| Drive {
            name: drive.header.name.clone(),
            key: Some(drive.key),
            device: drive.device.clone(),
            size_bytes: drive.size_bytes,
            header: Some(drive.header.clone()),
            first_copy: expendable_copy(drive, &drives),
        })
        .collect();
    let absent = absent(&recorded, &known);
    known.extend(absent);
    let mut config = recorded.clone();
    derive_subdisks(&mut config, &recorded, &known);
    settle(&mut config, |_| false);
    Ok(System {
        drives: known,
        config,
        recorded,
        mark,
        updated,
        is_uneven,
        unreadable_newer,
        notes,
    })
}

/// Drives that subdisks refer to and that are not here, by name.
fn absent(recorded: &Config, known: &[Drive]) -> Vec<Drive> {
    let mut names: Vec<&String> = recorded
        .subdisks
        .iter()
        .map(|subdisk| &subdisk.drive)
        .filter(|name| !known.iter().any(|drive| drive.name == **name))
        .collect();
    names.sort();
    names.dedup();
    let absent = names.into_iter().map(|name| Drive {
        name: name.clone(),
        key: None,
        device: String::new(),
        size_bytes: 0,
        header: None,
        first_copy: 0,
    });
    absent.collect()
}

/// The copy of a drive's configuration that a save may lose: not the one that counts, so that a save which is cut short
/// leaves one that makes sense, and is no older than what was read. The first one where both say the same.
fn expendable_copy(drive: &FoundDrive, drives: &[&FoundDrive]) -> usize {
    let Ok((counts, _)) = read_copies(drive, drives) else {
        return 0;
    };
    let says_it = |copy: &Vec<u8>| Config::parse(copy, 0).is_ok_and(|config| config == counts);
    match drive.copies.each_ref().map(says_it) {
        [true, false] => 1,
        _ => 0,
    }
}

/// Drives that count: not removed, and of two with one name the newer one.
fn present<'a>(found: &'a [FoundDrive], notes: &mut Vec<String>) -> Vec<&'a FoundDrive> {
    let mut drives: Vec<&FoundDrive> = Vec::new();
    for drive in found {
        if drive.header.is_removed {
            notes.push(format!("{} was removed from its system", drive.device));
            continue;
        }
        let same = |other: &&mut &FoundDrive| other.header.name == drive.header.name;
        match drives.iter_mut().find(same) {
            None => drives.push(drive),
            Some(other) => {
                let (kept, left) = if drive.header.updated > other.header.updated {
                    (drive, *other)
                } else {
                    (*other, drive)
                };
                let (name, left, device) = (&kept.header.name, &left.device, &kept.device);
                notes.push(format!(
                    "{left} is not used: {device} is called {name} too, one is a copy"
                ));
                *other = kept;
            }
        }
    }
    drives
}

/// The configuration that counts and the drive that has it.
fn choose<'a>(
    drives: &[&'a FoundDrive],
    notes: &mut Vec<String>,
) -> Result<(&'a FoundDrive, Config), SystemError> {
    let mut order: Vec<&FoundDrive> = drives.to_vec();
    order.sort_by_key(|drive| std::cmp::Reverse(drive.header.updated));
    let mut first_error: Option<SystemError> = None;
    let is_blank = |drive: &&&FoundDrive| drive.copies.iter().all(|copy| is_blank(copy));
    let all_blank = order.iter().filter(is_blank).count() == order.len();
    let mut at = 0;
    while at < order.len() {
        let updated = order[at].header.updated;
        let group: Vec<&FoundDrive> = order[at..]
            .iter()
            .copied()
            .take_while(|drive| drive.header.updated == updated)
            .collect();
        at += group.len();
        let mut readable: Vec<(&FoundDrive, Config)> = Vec::new();
        for drive in group {
            if !all_blank && is_blank(&&drive) {
                notes.push(format!(
                    "{}: both copies of the configuration are empty",
                    drive.device
                ));
                continue;
            }
            match read_copies(drive, drives) {
                Ok((config, copy)) => {
                    if let Some(note) = copy {
                        notes.push(note);
                    }
                    readable.push((drive, config));
                }
                Err(error) => {
                    notes.push(format!("{}: {error}", drive.device));
                    let reason = error.to_string();
                    let device = drive.device.clone();
                    first_error.get_or_insert(SystemError::NoConfiguration { device, reason });
                }
            }
        }
        if let Some(chosen) = most_cautious(readable, notes) {
            return Ok(chosen);
        }
    }
    Err(first_error.unwrap_or(SystemError::NoDrive))
}

/// The first copy that makes sense, with a note when something is wrong with the other. Where both do and differ, a
/// save was interrupted: the first may be torn, and half a text can make sense, so the one counts that another drive
/// has as well.
fn read_copies(
    drive: &FoundDrive,
    drives: &[&FoundDrive],
) -> Result<(Config, Option<String>), FormatError> {
    let read = |copy: usize| {
        let offset = plexum_format::vinum::CONFIG_OFFSETS_BYTES[copy];
        let config = Config::parse(&drive.copies[copy], offset)?;
        for other in drives {
            config.check_drive(&other.header.name, other.size_bytes)?;
        }
        Ok(config)
    };
    let (mut first, mut second) = (read(0), read(1));
    // Zeroes make sense as a text that says nothing; the other copy says something.
    match drive.copies.each_ref().map(|copy| is_blank(copy)) {
        [true, false] => first = second.clone(),
        [false, true] => second = first.clone(),
        _ => {}
    }
    let device = &drive.device;
    match (first, second) {
        (Ok(first), Ok(second)) if first == second => Ok((first, None)),
        (Ok(first), Ok(second)) => {
            let note = format!("{device}: the copies of the configuration differ");
            let is_second =
                match [&first, &second].map(|config| is_elsewhere(config, drive, drives)) {
                    [true, false] => false,
                    [false, true] => true,
                    // The one that has more in doubt is right about it.
                    _ => doubt(&second) > doubt(&first),
                };
            Ok((if is_second { second } else { first }, Some(note)))
        }
        (Ok(first), Err(error)) => Ok((
            first,
            Some(format!("{device}: the second copy is damaged: {error}")),
        )),
        (Err(error), Ok(second)) => Ok((
            second,
            Some(format!("{device}: the first copy is damaged: {error}")),
        )),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Whether nothing is written in the place of a copy.
fn is_blank(copy: &[u8]) -> bool {
    copy.iter().all(|byte| *byte == 0)
}

/// What a drive says of its system: its first copy that makes sense and is not empty.
#[must_use]
pub fn said_by(copies: &[Vec<u8>; 2]) -> Option<Config> {
    let written = copies.iter().filter(|copy| !is_blank(copy));
    written.clone().find_map(|copy| Config::parse(copy, 0).ok())
}

/// Whether another drive has a copy that says the same, one as new as `drive` at least: Plexum writes the time last, so
/// that drives of one age have not heard of an interrupted save, while gvinum writes it first.
fn is_elsewhere(config: &Config, drive: &FoundDrive, drives: &[&FoundDrive]) -> bool {
    let is_as_new = |other: &&&FoundDrive| {
        other.key != drive.key && other.header.updated >= drive.header.updated
    };
    let others = drives.iter().filter(is_as_new);
    others.flat_map(|other| &other.copies).any(|copy| {
        let other = Config::parse(copy, 0);
        other.is_ok_and(|other| same_objects(config, &other))
    })
}

/// How many subdisks are not up.
fn doubt(config: &Config) -> usize {
    let subdisks = config.subdisks.iter();
    subdisks
        .filter(|subdisk| subdisk.state != SubdiskState::Up)
        .count()
}

/// Drives of one age say the same unless a save was interrupted; then the one with more in doubt counts.
fn most_cautious<'a>(
    readable: Vec<(&'a FoundDrive, Config)>,
    notes: &mut Vec<String>,
) -> Option<(&'a FoundDrive, Config)> {
    let mut chosen: Option<(&FoundDrive, Config)> = None;
    for (drive, config) in readable {
        match &chosen {
            None => chosen = Some((drive, config)),
            Some((known, best)) if !same_objects(best, &config) => {
                notes.push(format!(
                    "{} and {} are equally old and differ",
                    known.device, drive.device
                ));
                if doubt(&config) > doubt(best) {
                    chosen = Some((drive, config));
                }
            }
            Some(_) => {}
        }
    }
    chosen
}

/// Whether a copy on this drive says something else.
fn says_else(drive: &FoundDrive, recorded: &Config) -> bool {
    let says_it = |copy: &Vec<u8>| {
        let config = Config::parse(copy, 0);
        config.is_ok_and(|config| same_objects(&config, recorded))
    };
    !drive.copies.iter().all(says_it)
}

/// Whether two configurations say the same, in whatever order.
fn same_objects(one: &Config, other: &Config) -> bool {
    let sorted = |config: &Config| {
        let text = config.to_string();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    one == other || sorted(one) == sorted(other)
}

/// What subdisks are now: absent drives take theirs down, those that missed writes are stale.
fn derive_subdisks(config: &mut Config, recorded: &Config, drives: &[Drive]) {
    for subdisk in &mut config.subdisks {
        let is_there = drives
            .iter()
            .any(|drive| drive.name == subdisk.drive && drive.is_up());
        subdisk.state = match subdisk.state {
            _ if !is_there => SubdiskState::Down,
            SubdiskState::Up => SubdiskState::Up,
            _ => SubdiskState::Stale,
        };
    }
    // A plex that was down got no writes while another one served: nothing on it is current, whatever its subdisks say.
    for volume in &recorded.volumes {
        let plexes = plexes_of(recorded, &volume.name);
        let is_usable = |state: PlexState| matches!(state, PlexState::Up | PlexState::Degraded);
        if !plexes.iter().any(|plex| is_usable(plex.state)) {
            continue;
        }
        for plex in plexes.iter().filter(|plex| plex.state == PlexState::Down) {
            for subdisk in &mut config.subdisks {
                let is_on = subdisk
                    .plex
                    .as_ref()
                    .is_some_and(|(name, _)| *name == plex.name);
                if is_on && subdisk.state == SubdiskState::Up {
                    subdisk.state = SubdiskState::Stale;
                }
            }
        }
    }
}
