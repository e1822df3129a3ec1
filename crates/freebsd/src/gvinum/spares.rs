//! Hot spares: drives that take over the subdisks of a drive that was lost, at once or at the next start.
//!
//! Invariants:
//! - no two volumes are promised the same place on a spare;
//! - what was taken over is stale until it was filled, and recorded on the new drive before it is relied on;
//! - a drive that may come back newer is not replaced: whoever starts without it says so first.
//!
//! Source: freebsd-geom.md section 2.14 (never finished there).

use std::rc::Rc;

use plexum_format::vinum::{Config, Organisation, Plex, PlexState, Subdisk, SubdiskState};

use crate::stacked::{PlexMember, Stackable};
use plexum_block::clock::Clock;
use plexum_block::ranges::RangeSet;
use plexum_engine::state::{MemberRecord, Standing};
use plexum_engine::volume::DrivePart;

use super::adapter::Held;
use super::open::{Builder, SystemRequest, absent, part};
use super::{System, free_areas, is_free, places_of, plex_map, plexes_of, settle, subdisks_of};

/// A place on a hot spare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpareArea {
    /// The drive.
    pub(super) drive: String,
    /// Its device's number.
    key: usize,
    /// Where it begins.
    pub(super) at_bytes: u64,
    /// Its length.
    length_bytes: u64,
}

/// Finds room for a subdisk on a hot spare that is here and, when it can be, on none of the `avoided` drives.
fn find(system: &System, taken: &Config, length_bytes: u64, avoided: &[&str]) -> Vec<SpareArea> {
    let mut areas = Vec::new();
    for name in system
        .config
        .spares
        .iter()
        .filter(|name| !avoided.contains(&name.as_str()))
    {
        let drive = system.drive(name);
        let Some((drive, key)) = drive.and_then(|drive| Some((drive, drive.key?))) else {
            continue;
        };
        let free = free_areas(taken, name, drive.size_bytes);
        if let Some((at_bytes, _)) = free.into_iter().find(|(_, free)| *free >= length_bytes) {
            areas.push(SpareArea {
                drive: name.clone(),
                key,
                at_bytes,
                length_bytes,
            });
        }
    }
    areas
}

/// Puts what is on absent drives on hot spares, in every volume that can be filled and may start without them.
pub(super) fn take_over(system: &mut System, request: &SystemRequest) {
    let volumes = system.config.volumes.iter();
    let volumes: Vec<String> = volumes.map(|volume| volume.name.clone()).collect();
    for volume in volumes {
        if !request.run_degraded && absent(system, &volume).is_some() {
            continue;
        }
        for subdisk in replaceable(system, &volume) {
            let plex = subdisk.plex.as_ref().map(|(plex, _)| plex.clone());
            let others = subdisks_of(&system.config, plex.as_deref().unwrap_or_default());
            let used: Vec<&str> = others.iter().map(|other| other.drive.as_str()).collect();
            let areas = find(system, &system.config, subdisk.length_bytes, &used);
            let Some(area) = areas.into_iter().next() else {
                continue;
            };
            let from = if is_free(&subdisk) {
                "one that was taken away"
            } else {
                &subdisk.drive
            };
            let (name, drive) = (subdisk.name.clone(), &area.drive);
            let note = format!("{name}: hot spare {drive} takes over from {from}");
            system.notes.push(note);
            let listed = system
                .config
                .subdisks
                .iter()
                .position(|one| one.name == name);
            let placed = Subdisk {
                drive: area.drive,
                drive_offset_bytes: area.at_bytes,
                state: SubdiskState::Stale,
                ..subdisk
            };
            match listed {
                Some(at) => system.config.subdisks[at] = placed,
                None => system.config.subdisks.insert(0, placed),
            }
            settle(&mut system.config, |_| false);
        }
    }
}

/// Subdisks of a volume whose drive is away and whose data can be made again.
fn replaceable(system: &System, volume: &str) -> Vec<Subdisk> {
    let config = &system.config;
    let plexes = plexes_of(config, volume);
    let is_up = |plex: &&&Plex| plex.state == PlexState::Up;
    let has_whole = plexes.iter().filter(is_up).count() > 0;
    let mut found = Vec::new();
    for plex in plexes.iter().filter(|plex| plex.growth.is_none()) {
        let Ok(map) = plex_map(config, &plex.name) else {
            continue;
        };
        let lost: Vec<bool> = map
            .subdisks
            .iter()
            .map(|subdisk| subdisk.state != SubdiskState::Up)
            .collect();
        if !(has_whole || map.geometry.tolerates(&lost)) {
            continue;
        }
        let away = map.subdisks.iter().filter(|subdisk| {
            let drive = system.drive(&subdisk.drive);
            drive.is_none_or(|drive| !drive.is_up())
        });
        found.extend(away.cloned());
    }
    found
}

impl<D: Stackable, C: Clock + Clone> Builder<'_, D, C> {
    /// A place of its own on each hot spare, for a plex whose subdisks have `length_bytes`.
    pub(super) fn spare_areas(&self, length_bytes: u64) -> Vec<SpareArea> {
        if self.request.volume.is_read_only {
            return Vec::new();
        }
        let mut reserved = self.reserved.borrow_mut();
        let areas = find(self.system, &reserved, length_bytes, &[]);
        for area in &areas {
            reserved.subdisks.push(Subdisk {
                name: String::new(),
                drive: area.drive.clone(),
                length_bytes,
                drive_offset_bytes: area.at_bytes,
                plex: None,
                state: SubdiskState::Down,
            });
        }
        areas
    }

    /// A spare as a member that waits for a slot.
    pub(super) fn spare_part(&self, area: SpareArea) -> Option<DrivePart<D>> {
        let (name, device) = self.drive_at(area.key)?;
        Some(DrivePart {
            name,
            device: Some(device),
            record: waiting(),
            data: area.at_bytes..area.at_bytes + area.length_bytes,
            bad: RangeSet::new(),
        })
    }

    /// The subdisk of a plex that has one.
    pub(super) fn only_subdisk(&self, plex: &str) -> Option<String> {
        match places_of(self.config(), plex).as_deref() {
            Ok([subdisk]) => Some(subdisk.name.clone()),
            _ => None,
        }
    }

    /// Plexes of one subdisk on hot spares, which wait to take the place of one that was lost.
    pub(super) fn add_spare_plexes(
        &self,
        volume: &str,
        plexes: &[String],
        bytes: u64,
        members: &mut Vec<DrivePart<D>>,
        held: &mut Vec<Held>,
        stacked: &mut Vec<Rc<PlexMember<D, C>>>,
    ) {
        let lengths = plexes
            .iter()
            .flat_map(|plex| subdisks_of(self.config(), plex))
            .map(|subdisk| subdisk.length_bytes);
        for area in self.spare_areas(lengths.max().unwrap_or(0)) {
            let name = format!("{volume} on {}", area.drive);
            let config = Config {
                plexes: vec![Plex {
                    name: name.clone(),
                    organisation: Organisation::Concat,
                    volume: None,
                    state: PlexState::Up,
                    growth: None,
                    end_bytes: None,
                }],
                subdisks: vec![Subdisk {
                    name: name.clone(),
                    drive: area.drive.clone(),
                    length_bytes: area.length_bytes,
                    drive_offset_bytes: area.at_bytes,
                    plex: Some((name.clone(), 0)),
                    state: SubdiskState::Up,
                }],
                ..Config::default()
            };
            let Ok(map) = plex_map(&config, &name) else {
                continue;
            };
            let options = self.request.volume.clone();
            let (drives, names) = self.drives_of(&map);
            let store = Rc::clone(&self.store);
            let labels = move || {
                let store = store.borrow();
                let of = |(key, drive): &(usize, String)| (*key, store.writes(drive));
                names.iter().map(of).collect()
            };
            let plex = Rc::new(PlexMember {
                name: name.clone(),
                tally: self.tally(&name, &map),
                volume: self.inner(&name, &map, options),
                drives,
                labels: Box::new(labels),
            });
            held.push(Held {
                subdisks: Vec::new(),
                drives: Vec::new(),
                label_at_bytes: Some(PlexMember::<D, C>::label_at_bytes(
                    plex.volume.size_bytes(),
                    plex.volume.sector_bytes(),
                )),
                is_filled: false,
                spare: Some((area.drive.clone(), area.at_bytes)),
            });
            let device = D::stacked(&plex);
            let mut member = part(name, device, 0, Standing::Spare, 0..bytes, RangeSet::new());
            member.record = waiting();
            members.push(member);
            stacked.push(plex);
        }
    }
}

/// The record of a member that waits for a slot.
fn waiting() -> MemberRecord {
    MemberRecord {
        slot: None,
        standing: Standing::Spare,
        is_replacement: false,
        is_write_mostly: false,
    }
}
