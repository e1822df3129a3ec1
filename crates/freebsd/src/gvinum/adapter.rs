//! gvinum's metadata of one served volume, or of one plex of it: standings of members become states of subdisks.
//!
//! Invariants:
//! - a subdisk is recorded up only while its member is active, and becomes up only when that was filled: whoever is
//!   above may have failed the whole plex, which goes on by itself;
//! - a plex that was failed has no subdisk that is up: nothing on it gets writes any more;
//! - a plex that is filled or complete says nothing about what is lost or filled inside of it: that is for its own
//!   metadata.

use plexum_format::vinum::SubdiskState;

use plexum_block::device::DeviceInfo;
use plexum_block::ranges::RangeSet;
use plexum_engine::metadata::{CommitView, Metadata, MetadataWrite, NewMemberPlace};
use plexum_engine::mutant::{DeliberateBug, Mutant};
use plexum_engine::state::{MemberId, Standing};

use super::store::SharedStore;

/// What one member of the array stands for.
#[derive(Clone, Debug)]
pub struct Held {
    /// Subdisks that get its state.
    pub subdisks: Vec<String>,
    /// Drives that get a save through it.
    pub drives: Vec<String>,
    /// Where a save is written through the member: behind a plex. `None`: to the drive's own places.
    pub label_at_bytes: Option<u64>,
    /// It is being filled: when it is complete, what was stale is up.
    pub is_filled: bool,
    /// A hot spare: the drive and the place on it that a subdisk gets when the member takes its slot.
    pub spare: Option<(String, u64)>,
}

/// Metadata of a volume or plex of a gvinum system.
pub struct GvinumMetadata {
    store: SharedStore,
    volume: String,
    /// By `MemberId`.
    members: Vec<Held>,
    /// Parity or copies are known to agree when the engine says so; not where an unknown one could not be checked.
    may_settle: bool,
    /// Subdisks by slot, for the spares.
    slots: Vec<String>,
    /// A subdisk that is not up stays so: another volume over the same subdisks knows more.
    only_lowers: bool,
    /// Saves once what the start has decided, and changes nothing.
    only_evens: bool,
    saved: Option<u64>,
    bug: DeliberateBug,
}

impl GvinumMetadata {
    /// The metadata of the volume (or of its only plex) called `volume`.
    #[must_use]
    pub fn new(store: SharedStore, volume: &str, members: Vec<Held>) -> Self {
        Self {
            store,
            volume: volume.to_owned(),
            members,
            may_settle: true,
            slots: Vec::new(),
            only_lowers: false,
            only_evens: false,
            saved: None,
            bug: DeliberateBug::NONE,
        }
    }

    /// It never says that parity or copies agree.
    #[must_use]
    pub fn never_settling(mut self) -> Self {
        self.may_settle = false;
        self
    }

    /// With a deliberate bug.
    #[must_use]
    pub fn with_bug(mut self, bug: DeliberateBug) -> Self {
        self.bug = bug;
        self
    }

    /// Subdisks by slot: hot spares among the members take them over.
    #[must_use]
    pub fn with_slots(mut self, slots: Vec<String>) -> Self {
        self.slots = slots;
        self
    }

    /// States of subdisks only become worse: half of a plex that grows does not know what the other half has seen.
    #[must_use]
    pub fn only_lowering(mut self) -> Self {
        self.only_lowers = true;
        self
    }

    /// One save at the start, and nothing more: for a plex without redundancy on drives that differ. Nobody would ever
    /// make these say the same, and the next start could believe another one.
    #[must_use]
    pub fn only_evening(mut self) -> Self {
        self.only_evens = true;
        self
    }

    /// Spares that took a slot: its subdisk is where they are from now on. Gives these subdisks with their states.
    fn taken(&self, view: &CommitView<'_>) -> Vec<(String, SubdiskState)> {
        let mut store = self.store.borrow_mut();
        let mut taken = Vec::new();
        for (held, record) in self.members.iter().zip(&view.state.members) {
            let state = match record.standing {
                Standing::Active => SubdiskState::Up,
                Standing::Rebuilding { .. } => SubdiskState::Stale,
                _ => continue,
            };
            let slot = record
                .slot
                .and_then(|slot| self.slots.get(usize::from(slot)));
            if let (Some((drive, at_bytes)), Some(subdisk)) = (&held.spare, slot) {
                store.place(subdisk, drive, *at_bytes);
                taken.push((subdisk.clone(), state));
            }
        }
        taken
    }

    /// Takes the engine's state over, once a commit.
    fn follow(&mut self, view: &CommitView<'_>) {
        if self.saved == Some(view.event_count) {
            return;
        }
        self.saved = Some(view.event_count);
        if self.only_evens {
            self.store.borrow_mut().next_save(view.wall_seconds);
            return;
        }
        let taken = self.taken(view);
        let is_early = self.bug.is(Mutant::SubdiskUpBeforeRevived);
        let mut store = self.store.borrow_mut();
        let mut states = Vec::new();
        for (held, record) in self.members.iter_mut().zip(&view.state.members) {
            held.is_filled |= matches!(record.standing, Standing::Rebuilding { .. });
            let is_plex = held.label_at_bytes.is_some();
            let keeps = !held.is_filled;
            for name in &held.subdisks {
                let known = store
                    .config
                    .subdisks
                    .iter()
                    .find(|subdisk| subdisk.name == *name);
                let now = known.map_or(SubdiskState::Down, |subdisk| subdisk.state);
                let is_one = held.subdisks.len() == 1;
                if !is_plex {
                    match record.standing {
                        Standing::Active => store.clear_behind(name),
                        _ => store.mark_behind(name),
                    }
                }
                let is_for_plex = is_plex && (store.is_behind(name) || now == SubdiskState::Down);
                let state = match record.standing {
                    Standing::Active if keeps || is_for_plex => now,
                    Standing::Active => SubdiskState::Up,
                    Standing::Rebuilding { .. } if is_early => SubdiskState::Up,
                    Standing::Rebuilding { .. } if is_for_plex && !is_one => now,
                    Standing::Rebuilding { .. } => SubdiskState::Stale,
                    Standing::Spare => continue,
                    Standing::Faulty | Standing::Removed if is_one => SubdiskState::Down,
                    Standing::Faulty | Standing::Removed if now == SubdiskState::Up => {
                        SubdiskState::Stale
                    }
                    Standing::Faulty | Standing::Removed => now,
                };
                let is_raised = state == SubdiskState::Up && now != SubdiskState::Up;
                let is_elsewhere = taken.iter().any(|(taken, _)| taken == name);
                if !(is_elsewhere || self.only_lowers && is_raised) {
                    states.push((name.clone(), state));
                }
            }
            held.is_filled &= record.standing != Standing::Active;
        }
        for (name, state) in &taken {
            match state {
                SubdiskState::Up => store.clear_behind(name),
                _ => store.mark_behind(name),
            }
        }
        states.extend(taken);
        store.set_states(&states);
        if view.state.is_dirty || view.is_doubtful || !self.may_settle {
            store.clear_settled(&self.volume);
        } else {
            store.mark_settled(&self.volume);
        }
        store.next_save(view.wall_seconds);
    }
}

impl Metadata for GvinumMetadata {
    fn format_name(&self) -> String {
        "gvinum".to_owned()
    }

    fn superblock(
        &mut self,
        member: MemberId,
        view: &CommitView<'_>,
        _bad: &RangeSet,
        _info: &DeviceInfo,
    ) -> Vec<MetadataWrite> {
        self.follow(view);
        let Some(held) = self.members.get(usize::from(member.0)) else {
            return Vec::new();
        };
        match held.label_at_bytes {
            // What the plex writes to its drives it asks the store for; this only says when.
            Some(at_bytes) => vec![MetadataWrite {
                at_bytes,
                bytes: vec![0; 512],
            }],
            None => {
                let store = self.store.borrow();
                held.drives
                    .iter()
                    .flat_map(|drive| store.writes(drive))
                    .collect()
            }
        }
    }

    fn is_commit_due(&self) -> bool {
        self.store.borrow().is_uneven
    }

    fn has_commits(&self) -> bool {
        !self.only_evens || self.saved.is_none()
    }

    fn add_member(
        &mut self,
        _member: MemberId,
        _identity: [u8; 16],
        _info: &DeviceInfo,
    ) -> Result<NewMemberPlace, String> {
        Err("a subdisk of gvinum is moved to another drive with: plexum gvinum move".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use plexum_format::vinum::{Config, Mark, SubdiskState};

    use super::{GvinumMetadata, Held};
    use crate::gvinum::System;
    use crate::gvinum::store::{SharedStore, Store};
    use crate::testing::{state_of, view_of};
    use plexum_block::device::DeviceInfo;
    use plexum_block::ranges::RangeSet;
    use plexum_engine::metadata::Metadata;
    use plexum_engine::state::{MemberId, Standing};

    const FILLING: Standing = Standing::Rebuilding {
        valid_below_bytes: 0,
        by_bitmap: false,
    };

    /// A mirror of a plex of one subdisk and one with parity of three, all of the latter stale.
    fn store() -> SharedStore {
        let mut text = "volume m state up\nplex name m.p0 org concat vol m state up\n\
            plex name m.p1 org raid5 8s vol m state down\n\
            sd name m.p0.s0 drive d3 len 64s driveoffset 265s plex m.p0 plexoffset 0s state up\n"
            .to_owned();
        for n in 0..3 {
            text += &format!(
                "sd name m.p1.s{n} drive d{n} len 32s driveoffset 265s plex m.p1 plexoffset {}s state stale\n",
                8 * n
            );
        }
        let config = Config::parse(text.as_bytes(), 0).unwrap();
        Rc::new(RefCell::new(Store::new(&System {
            recorded: config.clone(),
            config,
            drives: Vec::new(),
            updated: (1, 0),
            mark: Mark::Settled,
            is_uneven: false,
            unreadable_newer: None,
            notes: Vec::new(),
        })))
    }

    fn held(subdisks: &[&str], label_at_bytes: Option<u64>, is_filled: bool) -> Held {
        Held {
            subdisks: subdisks.iter().map(|name| (*name).to_owned()).collect(),
            drives: Vec::new(),
            label_at_bytes,
            is_filled,
            spare: None,
        }
    }

    fn save(metadata: &mut GvinumMetadata, event_count: u64, standings: &[Standing]) {
        let info = DeviceInfo::plain(1 << 20);
        let state = state_of(standings);
        let view = view_of(&state, event_count);
        metadata.superblock(MemberId(0), &view, &RangeSet::new(), &info);
    }

    fn seen(store: &SharedStore) -> Vec<SubdiskState> {
        let store = store.borrow();
        let subdisks = store.config.subdisks.iter();
        let inside = subdisks.filter(|subdisk| subdisk.name.starts_with("m.p1"));
        inside.map(|subdisk| subdisk.state).collect()
    }

    #[test]
    fn a_plex_that_was_filled_without_one_of_its_subdisks_does_not_say_that_this_is_up() {
        use SubdiskState::{Down, Stale, Up};
        let store = store();
        let names = ["m.p1.s0", "m.p1.s1", "m.p1.s2"];
        let outside = vec![
            held(&["m.p0.s0"], Some(0), false),
            held(&names, Some(0), true),
        ];
        let mut volume = GvinumMetadata::new(Rc::clone(&store), "m", outside);
        let inside = names.iter().map(|name| held(&[name], None, false));
        let inside = inside.collect();
        let mut plex = GvinumMetadata::new(Rc::clone(&store), "m.p1", inside).only_lowering();

        save(&mut volume, 1, &[Standing::Active, FILLING]);
        assert_eq!(seen(&store), [Stale; 3]);
        save(
            &mut plex,
            1,
            &[Standing::Faulty, Standing::Active, Standing::Active],
        );
        assert_eq!(seen(&store), [Down, Stale, Stale]);
        save(&mut volume, 2, &[Standing::Active, FILLING]);
        assert_eq!(seen(&store), [Down, Stale, Stale]);
        // It comes back, and is not filled yet when the plex is.
        save(&mut plex, 2, &[FILLING, Standing::Active, Standing::Active]);
        save(&mut volume, 3, &[Standing::Active, FILLING]);
        assert_eq!(seen(&store), [Stale; 3]);
        save(&mut volume, 4, &[Standing::Active, Standing::Active]);
        assert_eq!(seen(&store), [Stale, Up, Up]);
    }
    #[test]
    fn drives_under_a_plex_without_redundancy_are_made_even_by_one_save_that_changes_no_state() {
        let store = store();
        let members = vec![held(&["m.p0.s0"], None, false)];
        let mut metadata = GvinumMetadata::new(Rc::clone(&store), "m", members).only_evening();
        let before = store.borrow().config.clone();
        assert!(metadata.has_commits());
        save(&mut metadata, 1, &[Standing::Faulty]);
        assert!(!metadata.has_commits());
        assert_eq!(store.borrow().config, before);
    }
}
