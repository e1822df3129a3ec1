//! gvinum's metadata of one served volume, or of one plex of it: standings of members become states of subdisks.
//!
//! Invariants:
//! - a subdisk is recorded up only while its member is active, and becomes up only when that was filled: whoever is above
//!   may have failed the whole plex, which goes on by itself;
//! - a plex that was failed has no subdisk that is up: nothing on it gets writes any more;
//! - a plex that is complete says nothing about what is lost inside of it: that is for its own metadata.

use plexum_format::vinum::SubdiskState;

use crate::device::DeviceInfo;
use crate::meta::adapter::{CommitView, Metadata, MetadataWrite, NewMemberPlace};
use crate::mutant::Mutant;
use crate::ranges::RangeSet;
use crate::state::{MemberId, Standing};

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
    saved: Option<u64>,
    mutant: Option<Mutant>,
}

impl GvinumMetadata {
    /// The metadata of the volume (or of its only plex) called `volume`.
    #[must_use]
    pub fn new(store: SharedStore, volume: &str, members: Vec<Held>, may_settle: bool) -> Self {
        Self {
            store,
            volume: volume.to_owned(),
            members,
            may_settle,
            slots: Vec::new(),
            only_lowers: false,
            saved: None,
            mutant: None,
        }
    }

    /// With a deliberate bug.
    #[must_use]
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.mutant = mutant;
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
        let taken = self.taken(view);
        let is_early = self.mutant == Some(Mutant::SubdiskUpBeforeRevived);
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
                let state = match record.standing {
                    Standing::Active if keeps || is_plex && now == SubdiskState::Down => now,
                    Standing::Active => SubdiskState::Up,
                    Standing::Rebuilding { .. } if is_early => SubdiskState::Up,
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
        states.extend(taken);
        store.set_states(&states);
        let is_equal = !view.state.is_dirty && !view.is_doubtful && self.may_settle;
        store.set_settled(&self.volume, is_equal);
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
        true
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
