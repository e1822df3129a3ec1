//! Silent faults: one flip, lost or misdirected write, then a scrub and a repair, held against what
//! `docs/guarantees.md` says that the organisation detects, locates and mends. No more is promised, and no less is
//! accepted.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use plexum_block::device::Fua;
use plexum_engine::upkeep::scrub::ScrubMode;

use super::reference::{Members, Reference};
use super::slots::{ScrubFound, SlotArray};
use super::spec::Level;
use crate::finding::Finding;
use crate::world::Scene;
use plexum_disks::fault::Fault;
use plexum_disks::rng::Rng;

/// Unit in which a scrub compares, in bytes.
const UNIT: u64 = 4096;

/// A unit of a member's data area.
type Place = (usize, u64);

/// One experiment on an array that is whole and quiet.
pub(super) async fn experiment<S: SlotArray>(scene: &Rc<Scene<S>>) {
    let mut trial = Trial::new(scene).await;
    if trial.has_failed() {
        return;
    }
    let name = trial.strike().await;
    let wrong = trial.wrong();
    let verdict = if wrong.is_empty() || trial.has_failed() {
        "harmless"
    } else {
        trial.judge(&wrong).await
    };
    let what = format!("silent / {name} / {verdict}");
    let mut counts = scene.counts.borrow_mut();
    *counts.coverage.entry(what).or_default() += 1;
}

struct Trial<'a, S: SlotArray> {
    scene: &'a Rc<Scene<S>>,
    rng: Rng,
    reference: Reference,
    /// What the volume should hold.
    content: Vec<u8>,
    /// By slot: disk and start of its data area.
    places: Vec<(u32, u64)>,
}

impl<'a, S: SlotArray> Trial<'a, S> {
    async fn new(scene: &'a Rc<Scene<S>>) -> Self {
        let subject = scene.subject();
        let slots = subject.status().slots;
        let places = slots
            .iter()
            .flatten()
            .map(|disk| (*disk, subject.data_offset_bytes(*disk)))
            .collect();
        let trial = Self {
            scene,
            rng: Rng::new(scene.plan.course.seed).fork(0x7369_6c65),
            reference: Reference::new(&scene.plan.spec).in_units_of(UNIT),
            content: Vec::new(),
            places,
        };
        let content = trial.read_all().await;
        Self { content, ..trial }
    }

    fn find(&self, what: String) {
        self.scene.find(Finding::Silent(what));
    }

    fn has_failed(&self) -> bool {
        self.scene.has_findings() || self.places.len() < self.scene.plan.spec.member_count
    }

    async fn read_all(&self) -> Vec<u8> {
        let subject = self.scene.subject();
        match subject.read(0, 0..self.reference.volume_bytes()).await {
            Ok(bytes) => bytes,
            Err(error) => {
                self.find(format!("the whole volume cannot be read: {error}"));
                Vec::new()
            }
        }
    }

    fn areas(&self) -> Members {
        let size = self.scene.plan.spec.component_bytes as usize;
        let area = |(disk, start): &(u32, u64)| {
            let mut bytes = vec![0; size];
            self.scene.disks[*disk as usize].peek(*start, &mut bytes);
            Some(bytes)
        };
        self.places.iter().map(area).collect()
    }

    /// What the members should hold; unused parts as they are.
    fn ideal(&self) -> Members {
        let mut members = self.areas();
        self.reference.encode_into(&self.content, &mut members);
        members
    }

    /// A place of the array that means something: of a data unit, or of its row's parity.
    fn pick_target(&mut self) -> (u64, Place) {
        let units = self.reference.units();
        let (at, _, places) = self.rng.pick(&units).clone();
        let (mut slot, offset) = *self.rng.pick(&places);
        if self.scene.plan.spec.level.has_parity() && self.rng.chance(1, 3) {
            let spec = &self.scene.plan.spec;
            let stripe = offset / spec.strip_bytes;
            let roles =
                super::stripes::stripe_roles(spec.level, spec.layout, spec.member_count, stripe);
            let parities: Vec<usize> = std::iter::once(roles.p).chain(roles.q).collect();
            slot = *self.rng.pick(&parities);
        }
        (at, (slot, offset))
    }

    async fn strike(&mut self) -> &'static str {
        let (at, (slot, offset)) = self.pick_target();
        let (disk, start) = self.places[slot];
        let disk = self.scene.disks[disk as usize].clone();
        let struck = start + offset..start + offset + 512;
        match self.scene.plan.round % 3 {
            0 => {
                disk.put_fault(&Fault::BitFlip {
                    offset_bytes: struck.start + self.rng.below(512),
                    mask: 1 << self.rng.below(8),
                });
                "bit-flip"
            }
            1 => {
                disk.put_fault(&Fault::LostWrite(struck));
                self.write(at).await;
                "lost-write"
            }
            _ => {
                let size = self.scene.plan.spec.component_bytes;
                let there = self.rng.below(size / UNIT - 1) * UNIT;
                disk.put_fault(&Fault::MisdirectedWrite {
                    range: struck,
                    shift_bytes: there as i64 - offset as i64,
                });
                self.write(at).await;
                "misdirected-write"
            }
        }
    }

    async fn write(&mut self, at: u64) {
        let mut data = self.scene.pool.take(512);
        for byte in data.iter_mut() {
            *byte = self.rng.next_u64() as u8;
        }
        self.content[at as usize..at as usize + 512].copy_from_slice(&data);
        let subject = self.scene.subject();
        let written = subject.write(0, at, data.freeze(), Fua::No).await;
        if let Err(error) = written.and(subject.flush(0).await) {
            self.find(format!("a write failed: {error}"));
        }
    }

    /// Units of members that do not hold what they should.
    fn wrong(&self) -> BTreeSet<Place> {
        let (is, should) = (self.areas(), self.ideal());
        different(&is, &should)
    }

    /// Wrong units that are compared with this one: of the same row, or copies of the same place.
    fn peers(&self, place: Place, wrong: &BTreeSet<Place>) -> usize {
        if self.scene.plan.spec.level.has_parity() {
            return wrong.iter().filter(|other| other.1 == place.1).count();
        }
        let Some((_, copies)) = self.unit_of(place) else {
            return 0;
        };
        copies
            .iter()
            .filter(|(slot, offset)| wrong.contains(&(*slot, offset / UNIT * UNIT)))
            .count()
    }

    /// Volume byte and places of the unit that a copy belongs to.
    fn unit_of(&self, place: Place) -> Option<(u64, Vec<Place>)> {
        let is_here = |places: &[Place]| {
            places
                .iter()
                .any(|(slot, offset)| *slot == place.0 && offset / UNIT * UNIT == place.1)
        };
        let units = self.reference.units();
        let found = units.into_iter().find(|(_, _, places)| is_here(places))?;
        Some((found.0, found.2))
    }

    /// Whether redundancy can say who is wrong: one block of a row with P and Q, one copy of three or more.
    fn is_locatable(&self, place: Place, wrong: &BTreeSet<Place>) -> bool {
        let copies = match self.scene.plan.spec.level {
            Level::Raid6 => return self.peers(place, wrong) == 1,
            Level::Raid4 | Level::Raid5 | Level::Linear | Level::Raid0 => return false,
            Level::Raid1 | Level::Raid10 => self.unit_of(place).map_or(0, |unit| unit.1.len()),
        };
        copies >= 3 && self.peers(place, wrong) * 2 < copies
    }

    async fn judge(&self, wrong: &BTreeSet<Place>) -> &'static str {
        let subject = self.scene.subject();
        let damaged = self.areas();
        let Some(found) = subject.scrub(ScrubMode::Check).await else {
            if self.scene.plan.spec.tolerates() > 0 {
                self.find("a scrub was refused".to_owned());
            }
            return "undetectable";
        };
        self.check_found(&found, wrong);
        if self.has_failed() {
            return "wrong";
        }
        if self.areas() != damaged {
            self.find("a check without repair changed a member".to_owned());
        }
        let all_locatable = wrong.iter().all(|place| self.is_locatable(*place, wrong));
        if subject.scrub(ScrubMode::Repair).await.is_none() {
            self.find("a repair was refused".to_owned());
            return "wrong";
        }
        self.check_repair(&damaged, all_locatable);
        match (self.has_failed(), all_locatable) {
            (true, _) => "wrong",
            (false, true) => "mended",
            (false, false) => "made-to-agree",
        }
    }

    fn check_found(&self, found: &ScrubFound, wrong: &BTreeSet<Place>) {
        if !found.is_complete {
            self.find("the scrub did not go to the end".to_owned());
        }
        for place in wrong {
            let hits = |at: &Range<u64>, start: u64| at.start < start + UNIT && start < at.end;
            let has_parity = self.scene.plan.spec.level.has_parity();
            let unit = self.unit_of(*place).map(|unit| unit.0);
            let mut named = found.places.iter().filter(|found| {
                if has_parity {
                    hits(&found.member, place.1)
                } else {
                    unit.is_some_and(|at| found.volume.iter().any(|range| hits(range, at)))
                }
            });
            let Some(first) = named.next() else {
                self.find(format!("not detected: slot {} byte {}", place.0, place.1));
                return;
            };
            let expected = self.is_locatable(*place, wrong);
            let is_named =
                first.slot == Some(place.0) || named.any(|one| one.slot == Some(place.0));
            if expected && !is_named {
                self.find(format!("not located: slot {} byte {}", place.0, place.1));
            }
            let may_name = matches!(self.scene.plan.spec.level, Level::Raid6)
                || self.unit_of(*place).is_some_and(|unit| unit.1.len() >= 3);
            if !may_name && first.slot.is_some() {
                self.find(format!("a member was blamed without evidence: {first:?}"));
            }
        }
    }

    fn check_repair(&self, damaged: &Members, all_locatable: bool) {
        let now = self.areas();
        if all_locatable {
            let left = different(&now, &self.ideal());
            if !left.is_empty() {
                self.find(format!("not mended: {left:?}"));
            }
            return;
        }
        if let Some(mismatch) = self.reference.mismatches(&now).first() {
            self.find(format!(
                "members still disagree after the repair: {mismatch:?}"
            ));
        }
        let spec = &self.scene.plan.spec;
        if matches!(spec.level, Level::Raid4 | Level::Raid5) {
            // Data are taken as right. Their blocks are compared, not what a read gave before: a hedged one asks
            // parity.
            if self.reference.content(&now) != self.reference.content(damaged) {
                self.find("the repair changed data although it cannot know better".to_owned());
            }
            return;
        }
        if !spec.level.has_parity() {
            self.check_copies(damaged, &now);
        }
    }

    /// A repair of copies invents nothing: every copy holds afterwards what some copy held before.
    fn check_copies(&self, damaged: &Members, now: &Members) {
        let part = |members: &Members, (slot, offset): Place, length: u64| {
            let area = members[slot].as_ref().expect("every slot is held");
            area[offset as usize..(offset + length) as usize].to_vec()
        };
        for (at, length, places) in self.reference.units() {
            let held: Vec<Vec<u8>> = places
                .iter()
                .map(|place| part(damaged, *place, length))
                .collect();
            if places
                .iter()
                .any(|place| !held.contains(&part(now, *place, length)))
            {
                self.find(format!("a repair invented the content of volume byte {at}"));
                return;
            }
        }
    }
}

fn different(is: &Members, should: &Members) -> BTreeSet<Place> {
    let mut places = BTreeSet::new();
    for (slot, (one, other)) in is.iter().zip(should).enumerate() {
        let (Some(one), Some(other)) = (one, other) else {
            continue;
        };
        let units = one
            .chunks(UNIT as usize)
            .zip(other.chunks(UNIT as usize))
            .enumerate();
        for (index, (one, other)) in units {
            if one != other {
                places.insert((slot, index as u64 * UNIT));
            }
        }
    }
    places
}
