//! A volume of several plexes: each is a volume of its own, and a member of the one that copies over them.

use std::rc::Rc;

use plexum_format::vinum::{Config, Subdisk, SubdiskState};

use crate::labels::ForeignError;
use crate::stacked::{PlexMember, Stackable};
use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_block::ranges::RangeSet;
use plexum_engine::balance::Policy;
use plexum_engine::intent::regions::Regions;
use plexum_engine::metadata::Metadata;
use plexum_engine::metadata::PlainMetadata;
use plexum_engine::state::Standing;
use plexum_engine::volume::VolumeOptions;
use plexum_engine::volume::{DrivePart, Volume, VolumeParts};
use plexum_layout::{Geometry, GeometrySpec, Organisation};

use crate::gvinum::adapter::{GvinumMetadata, Held};
use crate::gvinum::tally::VolumeTally;
use crate::gvinum::{PlexMap, plex_map, plexes_of, subdisks_of, volume_bytes};

use super::{Builder, OpenedVolume, part};

/// A plex has so many times as long to answer as a drive.
const PLEX_PATIENCE: u32 = 4;

impl<D: Stackable, C: Clock + Clone> Builder<'_, D, C> {
    /// Several plexes: copies over them, with the engine's own code.
    pub(super) fn several(
        &self,
        name: &str,
        plexes: &[String],
    ) -> Result<OpenedVolume<D, C>, ForeignError> {
        self.check_absent(name)?;
        let sources = self.sources(plexes)?;
        let is_whole = |source: &Source<D, C>| {
            source.standing == Standing::Active && source.missing.is_empty()
        };
        let has_whole = sources.iter().flatten().any(is_whole);
        let readable = sources.iter().flatten();
        let bytes = volume_bytes(self.config(), name);
        if !has_whole && !covers(readable.map(|source| &source.missing), bytes) {
            let text = format!("{name}: no plex is whole, and together they lack a part");
            return Err(ForeignError::Missing(text));
        }
        let geometry = Geometry::new(&GeometrySpec {
            organisation: Organisation::Raid1,
            member_count: u16::try_from(plexes.len()).unwrap_or(u16::MAX),
            strip_bytes: 0,
            component_bytes: bytes,
            member_sizes_bytes: Vec::new(),
        })
        .map_err(|error| ForeignError::Unfit(None, format!("{name}: {error}")))?;
        let slots = plexes.iter().filter_map(|plex| self.only_subdisk(plex));
        let slots: Vec<String> = slots.collect();
        let (mut members, mut held, mut stacked) = stack(sources, has_whole, bytes);
        if has_whole && slots.len() == plexes.len() {
            self.add_spare_plexes(name, plexes, bytes, &mut members, &mut held, &mut stacked);
        }
        let mut options = self.request.volume.clone();
        options.balance = self.request.balance.unwrap_or(Policy::RoundRobin);
        options.member_timeout *= PLEX_PATIENCE; // a plex looks after its drives, and has an answer without one
        let read_only_reason = (!has_whole).then(|| {
            format!(
                "{name}: no plex is whole; what one lacks is read from another, nothing is written"
            )
        });
        options.is_read_only |= !has_whole;
        let doubt = self.doubt(false, false).then_some(0);
        let metadata = GvinumMetadata::new(Rc::clone(&self.store), name, held);
        let metadata = metadata.with_slots(slots).with_bug(self.request.volume.bug);
        let volume = Volume::new(VolumeParts {
            name: name.to_owned(),
            regions: Regions::without_bitmap(&geometry, 512, doubt),
            geometry,
            clock: self.clock.clone(),
            pool: self.pool.clone(),
            members,
            metadata: Box::new(metadata),
            event_count: 0,
            is_uneven: false,
            log: None,
            resync_start_bytes: doubt,
            options,
        });
        let tally = VolumeTally {
            plexes: stacked.iter().map(|plex| Rc::clone(&plex.tally)).collect(),
            counts_itself: true,
        };
        Ok(OpenedVolume {
            volume,
            plexes: stacked,
            growing: None,
            tally,
            read_only_reason,
        })
    }

    /// The plexes that can be used at all, in order.
    fn sources(&self, plexes: &[String]) -> Result<Vec<Option<Source<D, C>>>, ForeignError> {
        plexes.iter().map(|plex| self.source(plex)).collect()
    }

    fn source(&self, plex: &str) -> Result<Option<Source<D, C>>, ForeignError> {
        if self.check_growth(plex).is_err() || self.growth_of(plex).is_some() {
            return Ok(None);
        }
        // One without subdisks has nothing to read; another one does.
        let Ok(map) = self.map(plex) else {
            return Ok(None);
        };
        let is_up = |subdisk: &Subdisk| subdisk.state == SubdiskState::Up;
        let lost: Vec<bool> = map.subdisks.iter().map(|subdisk| !is_up(subdisk)).collect();
        let all_here = map
            .subdisks
            .iter()
            .all(|subdisk| self.device(subdisk).is_some());
        // Parity that is not proven gives nothing back: another plex does.
        let is_doubtful =
            lost.contains(&true) && self.doubt(true, true) && self.has_whole_beside(plex);
        let is_whole = map.geometry.tolerates(&lost) && !(is_doubtful && all_here);
        let has_none = lost.iter().all(|lost| *lost);
        let (standing, missing) = if is_whole {
            (Standing::Active, RangeSet::new())
        } else if all_here {
            // Everything is there, some of it stale: the plex is filled from another one.
            let standing = Standing::Rebuilding {
                valid_below_bytes: 0,
                by_bitmap: false,
            };
            (standing, RangeSet::new())
        } else if has_none {
            return Ok(None);
        } else {
            (Standing::Active, missing_ranges(&map.geometry, &lost))
        };
        let is_filled = matches!(standing, Standing::Rebuilding { .. });
        let mut options = self.request.volume.clone();
        options.is_read_only |= !is_whole && !all_here;
        let filled = is_filled.then(|| self.all_up(plex));
        let volume = match &filled {
            None => self.inner(plex, &map, options),
            Some(config) => {
                let map = plex_map(config, plex)
                    .map_err(|error| ForeignError::Unfit(None, error.to_string()))?;
                self.filled(plex, &map, options)
            }
        };
        let (drives, names) = self.drives_of(&map);
        let store = Rc::clone(&self.store);
        let labels = move || {
            let store = store.borrow();
            let each = names.iter().map(|(key, drive)| (*key, store.writes(drive)));
            each.collect()
        };
        Ok(Some(Source {
            subdisks: map
                .subdisks
                .iter()
                .map(|subdisk| subdisk.name.clone())
                .collect(),
            standing,
            missing,
            plex: Rc::new(PlexMember {
                name: plex.to_owned(),
                tally: self.tally(plex, &map),
                volume,
                drives,
                labels: Box::new(labels),
            }),
        }))
    }

    /// Whether another plex of the same volume lacks nothing.
    fn has_whole_beside(&self, plex: &str) -> bool {
        let config = self.config();
        let found = config.plexes.iter().find(|other| other.name == plex);
        let volume = found.and_then(|plex| plex.volume.as_deref());
        let plexes = plexes_of(config, volume.unwrap_or_default());
        plexes.iter().any(|other| {
            let subdisks = subdisks_of(config, &other.name);
            let is_up = |subdisk: &&Subdisk| subdisk.state == SubdiskState::Up;
            other.name != plex && !subdisks.is_empty() && subdisks.iter().all(is_up)
        })
    }

    /// A plex that is filled as a whole takes every subdisk as good: it is read only where it was filled.
    fn all_up(&self, plex: &str) -> Config {
        let mut config = self.config().clone();
        for subdisk in &mut config.subdisks {
            let on = subdisk.plex.as_ref().map(|(name, _)| name.as_str());
            if on == Some(plex) {
                subdisk.state = SubdiskState::Up;
            }
        }
        config
    }

    /// Each drive under a plex once, and its name.
    #[allow(clippy::type_complexity)] // two lists of one walk
    pub(in crate::gvinum) fn drives_of(
        &self,
        map: &PlexMap,
    ) -> (Vec<(usize, D)>, Vec<(usize, String)>) {
        let mut drives: Vec<(usize, D)> = Vec::new();
        let mut names: Vec<(usize, String)> = Vec::new();
        for subdisk in &map.subdisks {
            if let Some((key, _, device)) = self.device(subdisk)
                && !drives.iter().any(|(known, _)| *known == key)
            {
                drives.push((key, device));
                names.push((key, subdisk.drive.clone()));
            }
        }
        (drives, names)
    }

    /// A plex under a volume of several. With parity it keeps its own redundancy and records it under its own name.
    pub(in crate::gvinum) fn inner(
        &self,
        plex: &str,
        map: &PlexMap,
        options: VolumeOptions,
    ) -> Volume<D, C> {
        self.under(plex, map, options, |metadata| metadata)
    }

    /// The same of one that is filled from another plex: only that knows when something in it is up.
    fn filled(&self, plex: &str, map: &PlexMap, options: VolumeOptions) -> Volume<D, C> {
        self.under(plex, map, options, GvinumMetadata::only_lowering)
    }

    fn under(
        &self,
        plex: &str,
        map: &PlexMap,
        options: VolumeOptions,
        limit: fn(GvinumMetadata) -> GvinumMetadata,
    ) -> Volume<D, C> {
        let has_parity = map.geometry.parity_count() > 0;
        let metadata: Box<dyn Metadata> = match has_parity {
            true => Box::new(limit(self.metadata(plex, map, &[]))),
            false => Box::new(PlainMetadata::new("gvinum")),
        };
        let is_degraded = map
            .subdisks
            .iter()
            .any(|subdisk| subdisk.state != SubdiskState::Up);
        let resync = (has_parity && self.doubt(true, is_degraded)).then_some(0);
        self.plex_volume(plex, map, metadata, resync, options, Vec::new())
    }
}

/// A plex that can be used for copies.
struct Source<D: Device, C: Clock> {
    plex: Rc<PlexMember<D, C>>,
    subdisks: Vec<String>,
    standing: Standing,
    /// Plex addresses that it lacks.
    missing: RangeSet,
}

/// Plexes as members, with what each stands for. A plex that lacks a part is used only where no whole one is.
#[allow(clippy::type_complexity)] // three lists of one walk
fn stack<D: Stackable, C: Clock>(
    sources: Vec<Option<Source<D, C>>>,
    has_whole: bool,
    bytes: u64,
) -> (Vec<DrivePart<D>>, Vec<Held>, Vec<Rc<PlexMember<D, C>>>) {
    let (mut members, mut held, mut stacked) = (Vec::new(), Vec::new(), Vec::new());
    for (slot, source) in (0_u16..).zip(sources) {
        let Some(source) = source.filter(|source| !has_whole || source.missing.is_empty()) else {
            continue;
        };
        let label_at = PlexMember::<D, C>::label_at_bytes(
            source.plex.volume.size_bytes(),
            source.plex.volume.sector_bytes(),
        );
        held.push(Held {
            subdisks: source.subdisks,
            drives: Vec::new(),
            label_at_bytes: Some(label_at),
            is_filled: matches!(source.standing, Standing::Rebuilding { .. }),
            spare: None,
        });
        let device = D::stacked(&source.plex);
        let plex_name = source.plex.name.clone();
        let (standing, bad) = (source.standing, source.missing);
        members.push(part(plex_name, device, slot, standing, 0..bytes, bad));
        stacked.push(source.plex);
    }
    (members, held, stacked)
}

/// Addresses of a plex whose only place is on a lost slot.
fn missing_ranges(geometry: &Geometry, lost: &[bool]) -> RangeSet {
    let mut missing = RangeSet::new();
    if geometry.parity_count() > 0 {
        missing.insert(0..geometry.volume_bytes()); // more is lost than parity gives back
        return missing;
    }
    let mut at = 0;
    while at < geometry.volume_bytes() {
        let place = geometry.locate(at);
        let end = (at + place.length_bytes).min(geometry.volume_bytes());
        if lost[place.slot] {
            missing.insert(at..end);
        }
        at = end;
    }
    missing
}

/// Whether every byte is missing from at most all but one of the plexes.
fn covers<'a>(missing: impl Iterator<Item = &'a RangeSet>, bytes: u64) -> bool {
    let mut uncovered: Option<RangeSet> = None;
    for set in missing {
        let next = match uncovered {
            None => set.clone(),
            Some(known) => {
                let mut both = RangeSet::new();
                for one in known.iter() {
                    for other in set.iter() {
                        let (start, end) = (one.start.max(other.start), one.end.min(other.end));
                        if start < end {
                            both.insert(start..end);
                        }
                    }
                }
                both
            }
        };
        uncovered = Some(next);
    }
    uncovered.is_some_and(|set| !set.iter().any(|range| range.start < bytes))
}
