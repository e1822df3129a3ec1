//! The address map of a plex, in the engine's own geometries.
//!
//! Invariants:
//! - a place that no subdisk is listed for stays a place: what the others hold stays where it is, and the size is the
//!   same.
//!
//! Source: freebsd-geom.md sections 2.7, 2.8 and 2.12 (detach).

use plexum_format::vinum::{
    Config, Organisation as VinumOrganisation, Plex, Subdisk, SubdiskState,
};

use plexum_layout::{Geometry, GeometrySpec, MEMBERS_MAX, Organisation, Raid0Layout, Raid5Layout};

use super::{SystemError, plexes_of, subdisks_of};

/// Fewest subdisks with which parity makes sense.
const PARITY_SUBDISKS_MIN: usize = 2;

/// A plex with its subdisks by slot.
#[derive(Clone, Debug)]
pub struct PlexMap {
    /// Its address map.
    pub geometry: Geometry,
    /// Its subdisks, by slot: in a place that none is listed for one that is down, on a drive without a name.
    pub subdisks: Vec<Subdisk>,
}

/// The map of a plex; of one that grows the map that it had.
///
/// # Errors
/// [`SystemError::Unusable`] for a plex without subdisks, with places that contradict each other or with sizes that
/// cannot be.
pub fn plex_map(config: &Config, plex: &str) -> Result<PlexMap, SystemError> {
    let growing = config.plexes.iter().find(|other| other.name == plex);
    let growth = growing.and_then(|plex| plex.growth);
    map_of(
        config,
        plex,
        growth.map(|growth| usize::from(growth.subdisk_count)),
    )
}

/// The map that a plex has when it has grown.
///
/// # Errors
/// As [`plex_map`].
pub fn grown_map(config: &Config, plex: &str) -> Result<PlexMap, SystemError> {
    map_of(config, plex, None)
}

/// The places of a plex by slot: each with its subdisk, or with one that is down and on no drive.
///
/// # Errors
/// [`SystemError::Unusable`] when it has none, or when two subdisks claim the same place.
pub fn places_of(config: &Config, plex: &str) -> Result<Vec<Subdisk>, SystemError> {
    let unusable = |reason: String| SystemError::Unusable {
        object: plex.to_owned(),
        reason,
    };
    let found = config.plexes.iter().find(|other| other.name == plex);
    let found = found.ok_or_else(|| unusable("no such plex".into()))?;
    let places = match found.organisation.strip_bytes() {
        None => extents(config, found),
        Some(strip_bytes) => strips(config, found, strip_bytes),
    };
    places.map_err(unusable)
}

/// The places of a plex that joins extents.
fn extents(config: &Config, plex: &Plex) -> Result<Vec<Subdisk>, String> {
    let mut places = Vec::new();
    let mut end = 0_u64;
    for subdisk in subdisks_of(config, &plex.name) {
        let at = start_of(subdisk);
        if at < end {
            let name = &subdisk.name;
            return Err(format!(
                "{name} begins at byte {at} of it, where {end} is due"
            ));
        }
        if at > end {
            places.push(absent(config, plex, places.len(), end, at - end));
        }
        places.push(subdisk.clone());
        end = at.saturating_add(subdisk.length_bytes);
    }
    if let Some(whole) = plex.end_bytes.filter(|whole| *whole > end) {
        places.push(absent(config, plex, places.len(), end, whole - end));
    }
    match places.len() {
        0 => Err("it has no subdisk".to_owned()),
        count if count > usize::from(MEMBERS_MAX) => {
            Err(format!("at most {MEMBERS_MAX} members, not {count}"))
        }
        _ => Ok(places),
    }
}

/// The places of a plex that takes strips in turn: a `plexoffset` says which one a subdisk has.
fn strips(config: &Config, plex: &Plex, strip_bytes: u64) -> Result<Vec<Subdisk>, String> {
    let subdisks = subdisks_of(config, &plex.name);
    let lengths = subdisks.iter().map(|subdisk| subdisk.length_bytes);
    let smallest = lengths.min().ok_or("it has no subdisk")?;
    let slots = slots(&subdisks, strip_bytes)?;
    let listed = slots.last().map_or(0, |last| last + 1);
    let noted = plex.end_bytes.map_or(0, |end| end / strip_bytes);
    let mut count = listed.max(noted);
    // What FreeBSD has detached is called after the plex still, and nothing else says that it had a place.
    let was_next = |count: u64| {
        let name = format!("{}.s{count}", plex.name);
        let mut detached = config.subdisks.iter().filter(|one| one.plex.is_none());
        detached.any(|one| one.name == name && one.length_bytes >= smallest)
    };
    while plex.growth.is_none() && count <= u64::from(MEMBERS_MAX) && was_next(count) {
        count += 1;
    }
    if count > u64::from(MEMBERS_MAX) {
        return Err(format!(
            "it has a place {count}, at most {MEMBERS_MAX} can be"
        ));
    }
    let mut listed = slots.into_iter().zip(subdisks).peekable();
    let place = |slot: u64| match listed.next_if(|(at, _)| *at == slot) {
        Some((_, subdisk)) => subdisk.clone(),
        None => absent(config, plex, slot as usize, slot * strip_bytes, smallest), // below MEMBERS_MAX
    };
    Ok((0..count).map(place).collect())
}

/// Which place each subdisk has; they are in order.
fn slots(subdisks: &[&Subdisk], strip_bytes: u64) -> Result<Vec<u64>, String> {
    // Offsets that only join the lengths say nothing but the order.
    let mut end = 0_u64;
    let joins = subdisks.iter().all(|subdisk| {
        let is_next = start_of(subdisk) == end;
        end = end.saturating_add(subdisk.length_bytes);
        is_next
    });
    if joins {
        return Ok((0..subdisks.len() as u64).collect());
    }
    let mut slots: Vec<u64> = Vec::new();
    for subdisk in subdisks {
        let (at, name) = (start_of(subdisk), &subdisk.name);
        if !at.is_multiple_of(strip_bytes) {
            return Err(format!(
                "{name} begins at byte {at} of it, which is no multiple of the stripe of {strip_bytes} bytes"
            ));
        }
        if slots.last() == Some(&(at / strip_bytes)) {
            return Err(format!(
                "{name} begins at byte {at} of it, as another one does"
            ));
        }
        slots.push(at / strip_bytes);
    }
    Ok(slots)
}

/// What stands in a place that no subdisk is listed for. Its name is one that no subdisk has, and follows from its
/// slot.
fn absent(config: &Config, plex: &Plex, slot: usize, at_bytes: u64, length_bytes: u64) -> Subdisk {
    let names = (slot..).step_by(usize::from(MEMBERS_MAX));
    let mut names = names.map(|number| format!("{}.s{number}", plex.name));
    let is_free = |name: &String| config.subdisks.iter().all(|one| one.name != *name);
    Subdisk {
        name: names.find(is_free).unwrap_or_default(),
        drive: String::new(),
        length_bytes,
        drive_offset_bytes: 0,
        plex: Some((plex.name.clone(), at_bytes)),
        state: SubdiskState::Down,
    }
}

/// Whether a place has no subdisk.
#[must_use]
pub fn is_free(place: &Subdisk) -> bool {
    place.drive.is_empty()
}

/// Where a subdisk begins in its plex.
pub(super) fn start_of(subdisk: &Subdisk) -> u64 {
    subdisk.plex.as_ref().map_or(0, |(_, offset)| *offset)
}

/// Where the places of a plex end, as `plexoffset` counts.
pub(super) fn end_of_plex(config: &Config, plex: &Plex) -> u64 {
    let places = places_of(config, &plex.name).unwrap_or_default();
    let end = match plex.organisation.strip_bytes() {
        Some(strip_bytes) => places.len() as u64 * strip_bytes,
        None => listed_end(places.iter(), None),
    };
    end.max(plex.end_bytes.unwrap_or(0))
}

/// Where the last one of some subdisks ends, as `plexoffset` counts.
fn listed_end<'a>(subdisks: impl Iterator<Item = &'a Subdisk>, strip_bytes: Option<u64>) -> u64 {
    let end = |one: &Subdisk| start_of(one).saturating_add(strip_bytes.unwrap_or(one.length_bytes));
    subdisks.map(end).max().unwrap_or(0)
}

/// Carries out a change that takes no place from a plex: where no subdisk is listed any more, a note says that there
/// was one. An error changes nothing.
pub(super) fn keeping_places(
    config: &mut Config,
    change: impl FnOnce(&mut Config) -> Result<(), String>,
) -> Result<(), String> {
    let mut changed = config.clone();
    for plex in changed
        .plexes
        .iter_mut()
        .filter(|plex| plex.growth.is_none())
    {
        plex.end_bytes = Some(end_of_plex(config, plex));
        let places = places_of(config, &plex.name).unwrap_or_default();
        let strip_bytes = plex.organisation.strip_bytes();
        for (at, place) in (0_u64..).zip(places).filter(|_| strip_bytes.is_some()) {
            let mut listed = changed.subdisks.iter_mut();
            let on = listed
                .find(|one| one.name == place.name)
                .and_then(|one| one.plex.as_mut());
            if let Some((_, offset)) = on {
                *offset = at * strip_bytes.unwrap_or(0);
            }
        }
    }
    change(&mut changed)?;
    for at in 0..changed.plexes.len() {
        let plex = &changed.plexes[at];
        let listed = subdisks_of(&changed, &plex.name);
        let listed = listed_end(listed.into_iter(), plex.organisation.strip_bytes());
        let plex = &mut changed.plexes[at];
        plex.end_bytes = plex.end_bytes.filter(|end| *end > listed);
    }
    *config = changed;
    Ok(())
}

/// Where a subdisk of `length_bytes` goes in a plex that is there: at `offset_bytes`, or into the first place that is
/// free.
///
/// # Errors
/// A sentence: no place is free, or not this one.
pub fn free_place(
    config: &Config,
    plex: &str,
    length_bytes: u64,
    offset_bytes: Option<u64>,
) -> Result<u64, String> {
    let found = config.plexes.iter().find(|other| other.name == plex);
    let found = found.ok_or_else(|| format!("there is no plex {plex}"))?;
    let listed = subdisks_of(config, plex);
    let places = places_of(config, plex).unwrap_or_default();
    let end = end_of_plex(config, found);
    let strip_bytes = found.organisation.strip_bytes();
    let fits = |place: &&Subdisk| {
        is_free(place) && (strip_bytes.is_some() || place.length_bytes >= length_bytes)
    };
    let first = places.iter().find(fits).map(start_of);
    let Some(strip_bytes) = strip_bytes else {
        let at = offset_bytes.or(first).unwrap_or(end);
        let is_taken = |one: &&Subdisk| {
            start_of(one) < at.saturating_add(length_bytes)
                && at < start_of(one).saturating_add(one.length_bytes)
        };
        return match listed.iter().any(is_taken) {
            true => Err(format!("the place at byte {at} of {plex} is taken")),
            false => Ok(at),
        };
    };
    let needed = listed.iter().map(|one| one.length_bytes).min().unwrap_or(0);
    if length_bytes < needed {
        return Err(format!(
            "it has {length_bytes} bytes, {needed} are needed in {plex}"
        ));
    }
    if let Some(at) = offset_bytes.filter(|at| !at.is_multiple_of(strip_bytes)) {
        return Err(format!(
            "{at} is no multiple of the stripe of {strip_bytes} bytes"
        ));
    }
    // With one subdisk more the others would hold other addresses: only where nothing counts yet it is taken for a new
    // one.
    let holds_data = listed.iter().any(|one| one.state == SubdiskState::Up);
    match offset_bytes.or(first) {
        Some(at) if listed.iter().any(|one| start_of(one) == at) => {
            Err(format!("the place at byte {at} of {plex} is taken"))
        }
        Some(at) if at < end || !holds_data => Ok(at),
        None if !holds_data => Ok(end),
        _ => Err(format!(
            "{plex} has its subdisks; it gets one more by:   plexum gvinum grow {plex} DEVICE"
        )),
    }
}

/// The map over the first `count` subdisks.
fn map_of(config: &Config, plex: &str, count: Option<usize>) -> Result<PlexMap, SystemError> {
    let unusable = |reason: String| SystemError::Unusable {
        object: plex.to_owned(),
        reason,
    };
    let mut subdisks = places_of(config, plex)?;
    subdisks.truncate(count.unwrap_or(usize::MAX));
    let found = config.plexes.iter().find(|other| other.name == plex);
    let organisation = found.map_or(VinumOrganisation::Concat, |plex| plex.organisation);
    if organisation.has_parity() && subdisks.len() < PARITY_SUBDISKS_MIN {
        let count = subdisks.len();
        return Err(unusable(format!(
            "it has {count} subdisks, with parity at least {PARITY_SUBDISKS_MIN} are needed"
        )));
    }
    let sizes: Vec<u64> = subdisks
        .iter()
        .map(|subdisk| subdisk.length_bytes)
        .collect();
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    let (organisation, member_sizes_bytes) = match organisation {
        VinumOrganisation::Concat => (Organisation::Linear, sizes),
        VinumOrganisation::Striped { .. } => {
            (Organisation::Raid0(Raid0Layout::Original), Vec::new())
        }
        VinumOrganisation::Raid5 { .. } => {
            (Organisation::Raid5(Raid5Layout::LeftAsymmetric), Vec::new())
        }
        VinumOrganisation::Raid4 { .. } => (Organisation::Raid4, Vec::new()),
    };
    let strip_bytes = found.and_then(|plex| plex.organisation.strip_bytes());
    let geometry = Geometry::with_any_strip(&GeometrySpec {
        organisation,
        member_count: subdisks.len() as u16, // at most MEMBERS_MAX
        strip_bytes: strip_bytes.unwrap_or(0),
        component_bytes: smallest,
        member_sizes_bytes,
    });
    let geometry = geometry.map_err(|error| unusable(error.to_string()))?;
    Ok(PlexMap { geometry, subdisks })
}

/// Size of a volume: its smallest plex, those that are down included, as gvinum has it. A plex without subdisks has no
/// size.
#[must_use]
pub fn volume_bytes(config: &Config, volume: &str) -> u64 {
    let plexes = plexes_of(config, volume);
    let maps = plexes.iter().map(|plex| plex_map(config, &plex.name));
    let sizes = maps.filter_map(|map| Some(map.ok()?.geometry.volume_bytes()));
    sizes.min().unwrap_or(0)
}
