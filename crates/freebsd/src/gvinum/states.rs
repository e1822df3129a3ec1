//! How the states of plexes and volumes follow from those of subdisks.
//!
//! Source: freebsd-geom.md section 2.9.

use plexum_format::vinum::{Config, Organisation, PlexState, SubdiskState, VolumeState};

use super::{places_of, plexes_of};

/// Fewest subdisks with which an organisation can be used.
fn subdisks_min(organisation: Organisation) -> usize {
    match organisation {
        Organisation::Concat => 1,
        Organisation::Striped { .. } => 2,
        Organisation::Raid5 { .. } | Organisation::Raid4 { .. } => 3,
    }
}

/// What is known of a plex beside the states of its subdisks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    /// It was recorded growable, and does not say how far it is.
    pub was_growable: bool,
    /// A sync or rebuild runs on it.
    pub is_filling: bool,
}

/// State of a plex from its subdisks. One that was growable and does not say how far it is is down: its addresses are
/// half old, half new (defect 6).
#[must_use]
pub fn derive_plex(
    organisation: Organisation,
    subdisks: &[SubdiskState],
    beside: &Beside,
) -> PlexState {
    let Beside {
        was_growable,
        is_filling,
    } = *beside;
    use SubdiskState::{Down, Initializing, Reviving, Stale, Up};
    if subdisks.len() < subdisks_min(organisation) || was_growable {
        return PlexState::Down;
    }
    let has_parity = organisation.has_parity();
    let count = |wanted: &[SubdiskState]| {
        let matching = subdisks.iter().filter(|state| wanted.contains(state));
        matching.count()
    };
    if count(&[Up]) == subdisks.len() {
        PlexState::Up
    } else if count(&[Down, Stale]) > 0 {
        if has_parity && count(&[Down, Stale, Reviving]) == 1 && count(&[Initializing]) == 0 {
            PlexState::Degraded
        } else {
            PlexState::Down
        }
    } else if is_filling {
        PlexState::Degraded
    } else {
        PlexState::Down
    }
}

/// State of a volume from its plexes.
#[must_use]
pub fn derive_volume(plexes: &[(Organisation, PlexState)]) -> VolumeState {
    let is_usable = plexes.iter().any(|(organisation, state)| match state {
        PlexState::Up | PlexState::Growable => true,
        PlexState::Degraded => matches!(
            organisation,
            Organisation::Raid5 { .. } | Organisation::Raid4 { .. }
        ),
        PlexState::Down | PlexState::Initializing => false,
    });
    if is_usable {
        VolumeState::Up
    } else {
        VolumeState::Down
    }
}

/// Derives all states of plexes and volumes anew. `is_filling` says for a plex name whether a sync or rebuild runs on
/// it.
pub fn settle(config: &mut Config, is_filling: impl Fn(&str) -> bool) {
    let states: Vec<PlexState> = config
        .plexes
        .iter()
        .map(|plex| {
            // Without places, or with such that contradict each other, it is down.
            let subdisks = places_of(config, &plex.name).unwrap_or_default();
            let states: Vec<SubdiskState> = subdisks.iter().map(|subdisk| subdisk.state).collect();
            let was_growable = plex.state == PlexState::Growable && plex.growth.is_none();
            let beside = Beside {
                was_growable,
                is_filling: is_filling(&plex.name),
            };
            let state = derive_plex(plex.organisation, &states, &beside);
            match state {
                PlexState::Up | PlexState::Degraded if plex.growth.is_some() => PlexState::Growable,
                state => state,
            }
        })
        .collect();
    for (plex, state) in config.plexes.iter_mut().zip(states) {
        plex.state = state;
    }
    let states: Vec<VolumeState> = config
        .volumes
        .iter()
        .map(|volume| {
            let plexes = plexes_of(config, &volume.name);
            let states: Vec<(Organisation, PlexState)> = plexes
                .iter()
                .map(|plex| (plex.organisation, plex.state))
                .collect();
            derive_volume(&states)
        })
        .collect();
    for (volume, state) in config.volumes.iter_mut().zip(states) {
        volume.state = state;
    }
}
