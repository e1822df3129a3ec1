//! The address map of a plex, in the engine's own geometries.
//!
//! Source: freebsd-geom.md sections 2.7 and 2.8.

use plexum_format::vinum::{Config, Organisation as VinumOrganisation, Subdisk};

use crate::plex::layout::{Geometry, GeometrySpec, Organisation, Raid0Layout, Raid5Layout};

use super::{SystemError, plexes_of, subdisks_of};

/// A plex with its subdisks by slot.
#[derive(Clone, Debug)]
pub struct PlexMap<'a> {
    /// Its address map.
    pub geometry: Geometry,
    /// Its subdisks, by slot.
    pub subdisks: Vec<&'a Subdisk>,
}

/// The map of a plex; of one that grows the map that it had.
///
/// # Errors
/// [`SystemError::Unusable`] for a plex with a hole, without subdisks or with sizes that cannot be.
pub fn plex_map<'a>(config: &'a Config, plex: &str) -> Result<PlexMap<'a>, SystemError> {
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
pub fn grown_map<'a>(config: &'a Config, plex: &str) -> Result<PlexMap<'a>, SystemError> {
    map_of(config, plex, None)
}

/// The map over the first `count` subdisks.
fn map_of<'a>(
    config: &'a Config,
    plex: &str,
    count: Option<usize>,
) -> Result<PlexMap<'a>, SystemError> {
    let unusable = |reason: String| SystemError::Unusable {
        object: plex.to_owned(),
        reason,
    };
    let found = config.plexes.iter().find(|other| other.name == plex);
    let organisation = found
        .ok_or_else(|| unusable("no such plex".into()))?
        .organisation;
    let mut subdisks = subdisks_of(config, plex);
    subdisks.truncate(count.unwrap_or(usize::MAX));
    let count =
        u16::try_from(subdisks.len()).map_err(|_| unusable("it has too many subdisks".into()))?;
    if count == 0 {
        return Err(unusable("it has no subdisk".into()));
    }
    let sizes: Vec<u64> = subdisks
        .iter()
        .map(|subdisk| subdisk.length_bytes)
        .collect();
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    let strip_bytes = organisation.strip_bytes().unwrap_or(0);
    let (organisation, member_sizes_bytes) = match organisation {
        VinumOrganisation::Concat => {
            let mut end = 0_u64;
            for subdisk in &subdisks {
                let at = subdisk.plex.as_ref().map_or(0, |(_, offset)| *offset);
                if at != end {
                    return Err(unusable(format!(
                        "{} begins at byte {at} of it, where {end} is due",
                        subdisk.name
                    )));
                }
                end = end.saturating_add(subdisk.length_bytes);
            }
            (Organisation::Linear, sizes)
        }
        VinumOrganisation::Striped { .. } => {
            (Organisation::Raid0(Raid0Layout::Original), Vec::new())
        }
        VinumOrganisation::Raid5 { .. } => {
            (Organisation::Raid5(Raid5Layout::LeftAsymmetric), Vec::new())
        }
        VinumOrganisation::Raid4 { .. } => (Organisation::Raid4, Vec::new()),
    };
    let geometry = Geometry::with_any_strip(&GeometrySpec {
        organisation,
        member_count: count,
        strip_bytes,
        component_bytes: smallest,
        member_sizes_bytes,
    });
    let geometry = geometry.map_err(|error| unusable(error.to_string()))?;
    Ok(PlexMap { geometry, subdisks })
}

/// Size of a volume: its smallest plex, those that are down included, as gvinum has it. 0 without a usable plex.
#[must_use]
pub fn volume_bytes(config: &Config, volume: &str) -> u64 {
    let plexes = plexes_of(config, volume);
    let sizes = plexes.iter().map(|plex| {
        let map = plex_map(config, &plex.name);
        map.map_or(0, |map| map.geometry.volume_bytes())
    });
    sizes.min().unwrap_or(0)
}
