//! Changes of a system that nobody serves: rename, remove, attach, detach, move, set a state, grow a plex.
//!
//! Invariants:
//! - a change is whole or refused; names stay unique and what is referred to stays there;
//! - what could lose data needs to be forced.
//!
//! Source: freebsd-geom.md sections 2.9 (setstate) and 2.12.

use plexum_format::vinum::{
    Config, Growth, Organisation, Plex, PlexState, Subdisk, SubdiskState, VolumeState,
};

use super::geometry::{end_of_plex, keeping_places};
use super::{free_areas, free_place, grown_map, plexes_of, settle, subdisks_of, volume_bytes};

/// Whether the user insists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Yes.
    Yes,
    /// No.
    No,
}

/// Whether what is below an object is changed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The object alone.
    One,
    /// What is below it, too: `-r`.
    All,
}

/// Gives an object another name. `Depth::All` also renames what is below, by its place: `NEW.p0`, `NEW.p0.s1`.
///
/// # Errors
/// A sentence: no such object, a name that is taken or does not fit.
pub fn rename(config: &mut Config, object: &str, new: &str, depth: Depth) -> Result<(), String> {
    keeping_places(config, |config| call(config, object, new, depth))
}

fn call(config: &mut Config, object: &str, new: &str, depth: Depth) -> Result<(), String> {
    let is_letter = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'\\');
    let is_comment = new.starts_with('#');
    let fits = !new.is_empty() && new.len() < 64 && new.bytes().all(is_letter) && !is_comment;
    if !fits {
        return Err(format!(
            "{new:?} is no name: at most 63 letters without blanks and slashes, no # first"
        ));
    }
    let taken = config.volumes.iter().any(|volume| volume.name == new)
        || config.plexes.iter().any(|plex| plex.name == new)
        || config.subdisks.iter().any(|subdisk| subdisk.name == new);
    if taken {
        return Err(format!("{new} exists"));
    }
    if let Some(volume) = config
        .volumes
        .iter_mut()
        .find(|volume| volume.name == object)
    {
        volume.name = new.to_owned();
        let mut below = Vec::new();
        for plex in &mut config.plexes {
            if plex.volume.as_deref() == Some(object) {
                plex.volume = Some(new.to_owned());
                below.push(plex.name.clone());
            }
        }
        if depth == Depth::All {
            below.sort();
            for (number, plex) in below.iter().enumerate() {
                call(config, plex, &format!("{new}.p{number}"), Depth::All)?;
            }
        }
        return Ok(());
    }
    let dots = new.matches('.').count();
    if let Some(plex) = config.plexes.iter_mut().find(|plex| plex.name == object) {
        if dots < 1 {
            return Err("the name of a plex has a dot: VOLUME.pN".to_owned());
        }
        plex.name = new.to_owned();
        let mut below: Vec<(u64, String)> = Vec::new();
        for subdisk in &mut config.subdisks {
            if let Some((plex, offset)) = &mut subdisk.plex
                && plex == object
            {
                new.clone_into(plex);
                below.push((*offset, subdisk.name.clone()));
            }
        }
        if depth == Depth::All {
            below.sort();
            for (number, (_, subdisk)) in below.iter().enumerate() {
                call(config, subdisk, &format!("{new}.s{number}"), Depth::All)?;
            }
        }
        return Ok(());
    }
    let found = config
        .subdisks
        .iter_mut()
        .find(|subdisk| subdisk.name == object);
    let subdisk = found.ok_or_else(|| format!("there is no {object}"))?;
    if dots < 2 {
        return Err("the name of a subdisk has two dots: VOLUME.pN.sM".to_owned());
    }
    new.clone_into(&mut subdisk.name);
    Ok(())
}

/// Removes an object, with what is below or only when that is nothing.
///
/// # Errors
/// A sentence: something is below, or it is the only plex of a volume, or a subdisk of a plex.
pub fn remove(config: &mut Config, object: &str, depth: Depth) -> Result<(), String> {
    if config.volumes.iter().any(|volume| volume.name == object) {
        let plexes: Vec<String> = plexes_of(config, object)
            .iter()
            .map(|plex| plex.name.clone())
            .collect();
        if !plexes.is_empty() && depth == Depth::One {
            return Err(format!("{object} has plexes; -r removes them, too"));
        }
        for plex in &plexes {
            drop_plex(config, plex);
        }
        config.volumes.retain(|volume| volume.name != object);
        return Ok(());
    }
    if let Some(plex) = config.plexes.iter().find(|plex| plex.name == object) {
        let volume = plex.volume.clone();
        let is_only = volume.is_some_and(|volume| plexes_of(config, &volume).len() == 1);
        if is_only {
            return Err(format!("{object} is the only plex of its volume"));
        }
        if !subdisks_of(config, object).is_empty() && depth == Depth::One {
            return Err(format!("{object} has subdisks; -r removes them, too"));
        }
        drop_plex(config, object);
        settle(config, |_| false);
        return Ok(());
    }
    let found = config
        .subdisks
        .iter()
        .find(|subdisk| subdisk.name == object);
    let subdisk = found.ok_or_else(|| format!("there is no {object}"))?;
    if let Some((plex, _)) = &subdisk.plex {
        return Err(format!("{object} is part of {plex}; detach it first"));
    }
    keeping_places(config, |config| {
        config.subdisks.retain(|subdisk| subdisk.name != object);
        Ok(())
    })
}

/// Removes what is on a drive; the places of its subdisks stay free.
///
/// # Errors
/// A sentence: a plex is growing.
pub fn remove_on_drive(config: &mut Config, drive: &str) -> Result<(), String> {
    let on_drive = config.subdisks.iter().filter(|one| one.drive == drive);
    for subdisk in on_drive {
        check_not_growing(config, &subdisk.name)?;
    }
    keeping_places(config, |config| {
        config.subdisks.retain(|one| one.drive != drive);
        config.spares.retain(|spare| spare != drive);
        settle(config, |_| false);
        Ok(())
    })
}

/// Refuses a change after which nothing holds what a volume held, where something that was good was taken from it. A
/// volume that was removed by its name is not asked about.
///
/// # Errors
/// A sentence that names a subdisk.
pub fn check_copies(before: &Config, after: &Config) -> Result<(), String> {
    let volume_of = |config: &Config, subdisk: &Subdisk| {
        let plex = subdisk.plex.as_ref().map(|(plex, _)| plex);
        let mut plexes = config.plexes.iter();
        plexes
            .find(|other| Some(&other.name) == plex)
            .and_then(|plex| plex.volume.clone())
    };
    let is_good = |subdisk: &&Subdisk| subdisk.state == SubdiskState::Up;
    for subdisk in before.subdisks.iter().filter(is_good) {
        let Some(volume) = volume_of(before, subdisk) else {
            continue;
        };
        let mut left = after.subdisks.iter().filter(is_good);
        let stays = left.any(|one| {
            (&one.drive, one.drive_offset_bytes) == (&subdisk.drive, subdisk.drive_offset_bytes)
                && volume_of(after, one).as_ref() == Some(&volume)
        });
        let mut volumes = after.volumes.iter();
        let is_down = volumes.any(|one| one.name == volume && one.state != VolumeState::Up);
        if !stays && is_down {
            let name = &subdisk.name;
            return Err(format!(
                "no other copy holds what is on {name}; -f takes it all the same"
            ));
        }
    }
    Ok(())
}

/// Refuses what would change the subdisks of a plex whose data are moving. `object`: the plex or one of its subdisks.
fn check_not_growing(config: &Config, object: &str) -> Result<(), String> {
    let found = config
        .subdisks
        .iter()
        .find(|subdisk| subdisk.name == object);
    let plex = found.and_then(|subdisk| subdisk.plex.as_ref());
    let plex = plex.map_or(object, |(plex, _)| plex.as_str());
    let mut growing = config.plexes.iter().filter(|other| other.growth.is_some());
    match growing.find(|other| other.name == plex) {
        None => Ok(()),
        Some(_) => Err(format!(
            "{plex} is growing: serve it with --write until that has ended"
        )),
    }
}

fn drop_plex(config: &mut Config, plex: &str) {
    config.subdisks.retain(|subdisk| {
        let on = subdisk.plex.as_ref().map(|(name, _)| name.as_str());
        on != Some(plex)
    });
    config.plexes.retain(|other| other.name != plex);
}

/// Sets the state of a subdisk; those of plexes and volumes follow.
///
/// # Errors
/// A sentence: no such subdisk, or a state that takes more than a word (unless forced).
pub fn set_state(
    config: &mut Config,
    object: &str,
    state: SubdiskState,
    force: Force,
) -> Result<(), String> {
    use SubdiskState::{Down, Stale, Up};
    if !matches!(state, Down | Stale | Up) {
        return Err(format!("{} is set by the system only", state.name()));
    }
    let found = config
        .subdisks
        .iter()
        .find(|subdisk| subdisk.name == object);
    let subdisk = found.ok_or_else(|| format!("there is no subdisk {object}"))?;
    check_not_growing(config, object)?;
    if force == Force::No && subdisk.state != state {
        let plex = subdisk.plex.as_ref().map(|(plex, _)| plex.clone());
        let plex = plex.and_then(|plex| config.plexes.iter().find(|other| other.name == plex));
        if let Some(plex) = plex {
            let only = plex
                .volume
                .as_deref()
                .is_none_or(|volume| plexes_of(config, volume).len() == 1);
            let has_parity = matches!(plex.organisation, Organisation::Raid5 { .. });
            let is_fine = state == Up && only && !has_parity;
            if !is_fine {
                return Err(format!(
                    "{object} is part of {}: what it holds would not be right; -f sets it all the same",
                    plex.name
                ));
            }
        }
    }
    if let Some(subdisk) = config
        .subdisks
        .iter_mut()
        .find(|subdisk| subdisk.name == object)
    {
        subdisk.state = state;
    }
    settle(config, |_| false);
    Ok(())
}

/// Takes a plex from its volume, or a subdisk from its plex.
///
/// # Errors
/// A sentence: it is in use and that was not forced.
pub fn detach(config: &mut Config, object: &str, force: Force) -> Result<(), String> {
    check_not_growing(config, object)?;
    if let Some(plex) = config.plexes.iter_mut().find(|plex| plex.name == object) {
        if plex.volume.is_none() {
            return Err(format!("{object} is detached already"));
        }
        if plex.state == PlexState::Up && force == Force::No {
            return Err(format!("{object} is up; -f detaches it all the same"));
        }
        plex.volume = None;
        settle(config, |_| false);
        return Ok(());
    }
    let mut subdisks = config.subdisks.iter();
    let at = subdisks.position(|subdisk| subdisk.name == object);
    let at = at.ok_or_else(|| format!("there is no {object}"))?;
    if config.subdisks[at].plex.is_none() {
        return Err(format!("{object} is detached already"));
    }
    if config.subdisks[at].state == SubdiskState::Up && force == Force::No {
        return Err(format!("{object} is up; -f detaches it all the same"));
    }
    keeping_places(config, |config| {
        config.subdisks[at].plex = None;
        settle(config, |_| false);
        Ok(())
    })
}

/// Gives a plex to a volume, or a subdisk to a plex: what is on them is stale until it was filled.
///
/// # Errors
/// A sentence: no such object, attached already, an offset that is taken or no multiple of the stripe.
pub fn attach(
    config: &mut Config,
    object: &str,
    to: &str,
    offset_bytes: Option<u64>,
) -> Result<(), String> {
    check_not_growing(config, to)?;
    if let Some(at) = config.plexes.iter().position(|plex| plex.name == object) {
        return attach_plex(config, at, to);
    }
    let at = config
        .subdisks
        .iter()
        .position(|subdisk| subdisk.name == object);
    let at = at.ok_or_else(|| format!("there is no {object}"))?;
    if config.subdisks[at].plex.is_some() {
        return Err(format!("{object} is attached already"));
    }
    plex_named(config, to)?;
    keeping_places(config, |config| {
        let offset = free_place(config, to, config.subdisks[at].length_bytes, offset_bytes)?;
        config.subdisks[at].plex = Some((to.to_owned(), offset));
        config.subdisks[at].state = SubdiskState::Stale;
        settle(config, |_| false);
        Ok(())
    })
}

/// Gives the plex at `at` of the list to a volume.
fn attach_plex(config: &mut Config, at: usize, to: &str) -> Result<(), String> {
    let object = config.plexes[at].name.clone();
    if config.plexes[at].volume.is_some() {
        return Err(format!("{object} is attached already"));
    }
    if !config.volumes.iter().any(|volume| volume.name == to) {
        return Err(format!("there is no volume {to}"));
    }
    let others = plexes_of(config, to);
    for other in &others {
        check_not_growing(config, &other.name)?;
    }
    let is_first = others.is_empty();
    let volume = config.volumes.iter().find(|volume| volume.name == to);
    let is_down = volume.is_some_and(|volume| volume.state != VolumeState::Up);
    if !is_first && is_down && config.plexes[at].state == PlexState::Up {
        return Err(format!(
            "no other plex of {to} is up: what {object} holds would not count any more; detach the others first"
        ));
    }
    let size = |config: &Config, plex: &str| {
        let map = super::plex_map(config, plex);
        map.map_or(0, |map| map.geometry.volume_bytes())
    };
    let (own, all) = (size(config, &object), volume_bytes(config, to));
    if !is_first && 0 < own && own < all {
        return Err(format!(
            "{object} has {own} bytes: {to} would shrink from {all}"
        ));
    }
    config.plexes[at].volume = Some(to.to_owned());
    for subdisk in &mut config.subdisks {
        let is_on = subdisk
            .plex
            .as_ref()
            .is_some_and(|(plex, _)| *plex == object);
        if is_on && !is_first {
            subdisk.state = SubdiskState::Stale;
        }
    }
    settle(config, |_| false);
    Ok(())
}

fn plex_named<'a>(config: &'a Config, name: &str) -> Result<&'a Plex, String> {
    let found = config.plexes.iter().find(|plex| plex.name == name);
    found.ok_or_else(|| format!("there is no plex {name}"))
}

/// Puts a subdisk on another drive of `drive_bytes`, under its name. Its data are not copied: it is stale.
///
/// # Errors
/// A sentence: no space, or data would be lost and that was not forced.
pub fn move_subdisk(
    config: &mut Config,
    subdisk: &str,
    drive: &str,
    drive_bytes: u64,
    force: Force,
) -> Result<(), String> {
    let at = config
        .subdisks
        .iter()
        .position(|other| other.name == subdisk);
    let at = at.ok_or_else(|| format!("there is no subdisk {subdisk}"))?;
    check_not_growing(config, subdisk)?;
    let length = config.subdisks[at].length_bytes;
    let areas = free_areas(config, drive, drive_bytes);
    let area = areas.iter().find(|(_, free)| *free >= length);
    let (offset, _) = area.ok_or_else(|| format!("not enough space on {drive} for {subdisk}"))?;
    let mut moved = config.clone();
    moved.subdisks[at].drive = drive.to_owned();
    moved.subdisks[at].drive_offset_bytes = *offset;
    moved.subdisks[at].state = SubdiskState::Stale;
    settle(&mut moved, |_| false);
    let went_down = config
        .volumes
        .iter()
        .zip(&moved.volumes)
        .any(|(before, after)| before.state != after.state);
    if went_down && force == Force::No {
        return Err(format!(
            "no other copy holds what is on {subdisk}; -f moves it without its data"
        ));
    }
    *config = moved;
    Ok(())
}

/// Adds a subdisk to a plex. A concat plex takes `length_bytes` (`None`: the largest free area) at its end, to be used
/// at once. A striped or RAID-5 plex takes as much as each of its subdisks has; its data move while it is served.
///
/// # Errors
/// A sentence: no space, or a plex that cannot grow as it is.
pub fn grow(
    config: &mut Config,
    plex: &str,
    drive: &str,
    drive_bytes: u64,
    length_bytes: Option<u64>,
) -> Result<(), String> {
    let found = plex_named(config, plex)?.clone();
    let Some(strip) = found.organisation.strip_bytes() else {
        return grow_concat(config, plex, drive, drive_bytes, length_bytes);
    };
    if found.state != PlexState::Up {
        return Err(format!("{plex} is {}: it must be up", found.state.name()));
    }
    let volume = found.volume.as_deref().unwrap_or_default();
    if plexes_of(config, volume).len() > 1 {
        return Err(format!(
            "{volume} has other plexes, which would be smaller: detach them first"
        ));
    }
    let others = subdisks_of(config, plex);
    let count = others.len() as u64;
    let length = others
        .iter()
        .map(|other| other.length_bytes)
        .min()
        .unwrap_or(0);
    let is_on = others.iter().any(|other| other.drive == drive);
    let has_parity = !matches!(found.organisation, Organisation::Striped { .. });
    if is_on && has_parity {
        return Err(format!("{drive} holds a subdisk of {plex} already"));
    }
    let data_count = count - u64::from(has_parity);
    let rows = length / strip;
    let backup_rows = data_count * (data_count + 1);
    if rows < data_count + backup_rows {
        return Err(format!(
            "{plex} is too small to be grown: {rows} rows, {} are needed",
            data_count + backup_rows
        ));
    }
    let mut grown = config.clone();
    add_subdisk(
        &mut grown,
        plex,
        drive,
        drive_bytes,
        Some(length),
        count * strip,
    )?;
    let subdisk_count = u16::try_from(count).map_err(|_| "too many subdisks")?;
    for other in grown.plexes.iter_mut().filter(|other| other.name == plex) {
        other.growth = Some(Growth {
            subdisk_count,
            moved_bytes: 0,
            backup_bytes: 0,
        });
    }
    grown_map(&grown, plex).map_err(|error| error.to_string())?;
    settle(&mut grown, |_| false);
    *config = grown;
    Ok(())
}

/// Adds a subdisk of `length_bytes` (`None`: the largest free area) at the end of a concat plex: its space can be used
/// at once.
///
/// # Errors
/// A sentence: another organisation, or no space.
pub fn grow_concat(
    config: &mut Config,
    plex: &str,
    drive: &str,
    drive_bytes: u64,
    length_bytes: Option<u64>,
) -> Result<(), String> {
    let found = plex_named(config, plex)?;
    let (organisation, end) = (found.organisation, end_of_plex(config, found));
    if organisation != Organisation::Concat {
        return Err(format!("{plex} is {}, not concat", organisation.name()));
    }
    add_subdisk(config, plex, drive, drive_bytes, length_bytes, end)?;
    for other in config.plexes.iter_mut().filter(|other| other.name == plex) {
        other.end_bytes = None; // the new one is behind every place
    }
    settle(config, |_| false);
    Ok(())
}

/// A new subdisk of a plex, up.
fn add_subdisk(
    config: &mut Config,
    plex: &str,
    drive: &str,
    drive_bytes: u64,
    length_bytes: Option<u64>,
    plex_offset_bytes: u64,
) -> Result<(), String> {
    let others = subdisks_of(config, plex);
    let name = (others.len()..).map(|number| format!("{plex}.s{number}"));
    let taken: Vec<&String> = config
        .subdisks
        .iter()
        .map(|subdisk| &subdisk.name)
        .collect();
    let name = name
        .into_iter()
        .find(|name| !taken.contains(&name))
        .unwrap_or_default();
    let areas = free_areas(config, drive, drive_bytes);
    let area = match length_bytes {
        Some(length) => areas
            .iter()
            .find(|(_, free)| *free >= length)
            .map(|(at, _)| (*at, length)),
        None => areas.iter().copied().max_by_key(|(at, free)| (*free, *at)),
    };
    let (offset, length) = area.ok_or_else(|| format!("not enough space on {drive}"))?;
    config.subdisks.insert(
        0,
        Subdisk {
            name,
            drive: drive.to_owned(),
            length_bytes: length,
            drive_offset_bytes: offset,
            plex: Some((plex.to_owned(), plex_offset_bytes)),
            state: SubdiskState::Up,
        },
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use plexum_format::vinum::VolumeState;

    use super::*;

    const TEXT: &str = "volume v state up\n\
        plex name v.p0 org concat vol v state up\n\
        plex name v.p1 org striped 8s vol v state up\n\
        sd name v.p0.s0 drive a len 160s driveoffset 265s plex v.p0 plexoffset 0s state up\n\
        sd name v.p1.s0 drive b len 80s driveoffset 265s plex v.p1 plexoffset 0s state up\n\
        sd name v.p1.s1 drive c len 80s driveoffset 265s plex v.p1 plexoffset 8s state up\n";
    const DRIVE_BYTES: u64 = 400_000 / 512 * 512;

    fn config() -> Config {
        Config::parse(TEXT.as_bytes(), 0).unwrap()
    }

    /// Every change leaves a configuration that reads back as it is.
    fn reads_back(config: &Config) {
        let mut read = Config::parse(config.to_string().as_bytes(), 0).unwrap();
        settle(&mut read, |_| false);
        assert_eq!(read, *config);
    }

    #[test]
    fn renaming_goes_down_when_asked() {
        let mut shallow = config();
        rename(&mut shallow, "v", "w", Depth::One).unwrap();
        reads_back(&shallow);
        assert_eq!(plexes_of(&shallow, "w").len(), 2);
        assert_eq!(shallow.plexes[0].name, "v.p0");
        let mut deep = config();
        rename(&mut deep, "v", "w", Depth::All).unwrap();
        reads_back(&deep);
        assert_eq!(subdisks_of(&deep, "w.p1")[1].name, "w.p1.s1");
        for (object, new, expected) in [
            ("v", "v.p0", "exists"),
            ("v", "a b", "no name"),
            ("x", "y.p0.s0", "no x"),
            ("v.p0", "plain", "a dot"),
            ("v.p0.s0", "v.p9", "two dots"),
        ] {
            let error = rename(&mut config(), object, new, Depth::One).unwrap_err();
            assert!(error.contains(expected), "{object}: {error}");
        }
    }

    #[test]
    fn removing_keeps_what_is_needed() {
        for (object, expected) in [
            ("v", "has plexes"),
            ("v.p0", "has subdisks"),
            ("v.p0.s0", "detach it first"),
            ("x", "no x"),
        ] {
            let error = remove(&mut config(), object, Depth::One).unwrap_err();
            assert!(error.contains(expected), "{object}: {error}");
        }
        let mut changed = config();
        remove(&mut changed, "v.p1", Depth::All).unwrap();
        reads_back(&changed);
        assert!(
            remove(&mut changed, "v.p0", Depth::All)
                .unwrap_err()
                .contains("only plex")
        );
        remove(&mut changed, "v", Depth::All).unwrap();
        assert_eq!(changed, Config::default());
    }

    #[test]
    fn what_comes_back_to_a_volume_is_stale() {
        let mut changed = config();
        assert!(detach(&mut changed, "v.p1", Force::No).is_err());
        detach(&mut changed, "v.p1", Force::Yes).unwrap();
        assert_eq!(changed.volumes[0].state, VolumeState::Up);
        reads_back(&changed);
        attach(&mut changed, "v.p1", "v", None).unwrap();
        let states: Vec<SubdiskState> = subdisks_of(&changed, "v.p1")
            .iter()
            .map(|subdisk| subdisk.state)
            .collect();
        assert_eq!(states, [SubdiskState::Stale; 2]);
        reads_back(&changed);
        let error = attach(&mut changed, "v.p1", "v", None).unwrap_err();
        assert!(error.contains("attached already"), "{error}");
    }

    /// Defect 10: `attach SUBDISK PLEX OFFSET` on a concat plex divided by a stripe of 0.
    #[test]
    fn a_subdisk_is_attached_at_an_offset_of_a_concat_plex() {
        let mut changed = config();
        detach(&mut changed, "v.p0.s0", Force::Yes).unwrap();
        assert_eq!(changed.plexes[0].state, PlexState::Down);
        attach(&mut changed, "v.p0.s0", "v.p0", Some(4096)).unwrap();
        assert_eq!(changed.subdisks[0].plex, Some(("v.p0".into(), 4096)));
        detach(&mut changed, "v.p1.s1", Force::Yes).unwrap();
        let taken = attach(&mut changed, "v.p1.s1", "v.p1", Some(0)).unwrap_err();
        assert!(taken.contains("taken"), "{taken}");
        let odd = attach(&mut changed, "v.p1.s1", "v.p1", Some(512)).unwrap_err();
        assert!(odd.contains("no multiple"), "{odd}");
        attach(&mut changed, "v.p1.s1", "v.p1", None).unwrap();
        reads_back(&changed);
    }

    #[test]
    fn moving_keeps_the_volume_or_needs_force() {
        let mut changed = config();
        move_subdisk(&mut changed, "v.p1.s1", "d", DRIVE_BYTES, Force::No).unwrap();
        let moved = changed
            .subdisks
            .iter()
            .find(|subdisk| subdisk.name == "v.p1.s1")
            .unwrap();
        assert_eq!(
            (moved.drive.as_str(), moved.state),
            ("d", SubdiskState::Stale)
        );
        reads_back(&changed);
        let error = move_subdisk(&mut changed, "v.p0.s0", "d", DRIVE_BYTES, Force::No).unwrap_err();
        assert!(error.contains("without its data"), "{error}");
        move_subdisk(&mut changed, "v.p0.s0", "d", DRIVE_BYTES, Force::Yes).unwrap();
        assert_eq!(changed.volumes[0].state, VolumeState::Down);
        let full = move_subdisk(&mut config(), "v.p0.s0", "d", 300 * 512, Force::Yes).unwrap_err();
        assert!(full.contains("not enough space"), "{full}");
    }

    #[test]
    fn states_are_set_where_they_are_true_or_by_force() {
        let up = SubdiskState::Up;
        let mut changed = config();
        set_state(&mut changed, "v.p1.s0", SubdiskState::Stale, Force::Yes).unwrap();
        assert_eq!(changed.plexes[1].state, PlexState::Down);
        assert!(set_state(&mut changed, "v.p1.s0", up, Force::No).is_err());
        set_state(&mut changed, "v.p1.s0", up, Force::Yes).unwrap();
        assert_eq!(changed, config());
        assert!(set_state(&mut changed, "v.p0.s0", SubdiskState::Reviving, Force::Yes).is_err());
    }

    #[test]
    fn a_concat_plex_grows_at_its_end() {
        let mut changed = config();
        grow_concat(&mut changed, "v.p0", "d", DRIVE_BYTES, Some(40 * 512)).unwrap();
        let last = *subdisks_of(&changed, "v.p0").last().unwrap();
        assert_eq!(
            (last.name.as_str(), last.plex.as_ref().unwrap().1),
            ("v.p0.s1", 160 * 512)
        );
        reads_back(&changed);
        assert!(grow_concat(&mut changed, "v.p1", "d", DRIVE_BYTES, None).is_err());
    }

    #[test]
    fn a_striped_plex_grows_by_a_subdisk_and_is_left_alone_meanwhile() {
        let script = "drive a device /dev/a\ndrive b device /dev/b\ndrive d device /dev/d\nvolume v\nplex org striped 1k\n\
                      sd length 64k drive a\nsd length 64k drive b\n";
        let script = plexum_format::vinum::Script::parse(script.as_bytes()).unwrap();
        let room = |name: &str| crate::gvinum::Room {
            name: name.to_owned(),
            size_bytes: DRIVE_BYTES,
        };
        let rooms = [room("a"), room("b"), room("d")];
        let mut config = crate::gvinum::build(&script, &rooms, &Config::default()).unwrap();
        let full = grow(&mut config, "v.p0", "d", 135_680 + 1024, None).unwrap_err();
        assert!(full.contains("not enough space"), "{full}");
        assert_eq!(config.plexes[0].growth, None, "nothing is half done");
        grow(&mut config, "v.p0", "d", DRIVE_BYTES, None).unwrap();
        let last = *subdisks_of(&config, "v.p0").last().unwrap();
        assert_eq!(
            (last.length_bytes, last.plex.as_ref().unwrap().1),
            (65_536, 2048)
        );
        assert_eq!(config.plexes[0].state, PlexState::Growable);
        reads_back(&config);
        let before = config.clone();
        for refused in [
            detach(&mut config, "v.p0", Force::Yes),
            detach(&mut config, "v.p0.s0", Force::Yes),
            move_subdisk(&mut config, "v.p0.s0", "d", DRIVE_BYTES, Force::Yes),
            set_state(&mut config, "v.p0.s1", SubdiskState::Stale, Force::Yes),
            grow(&mut config, "v.p0", "d", DRIVE_BYTES, None),
        ] {
            let error = refused.unwrap_err();
            assert!(
                error.contains("growing") || error.contains("growable"),
                "{error}"
            );
        }
        assert_eq!(config, before);
    }
}
