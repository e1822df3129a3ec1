//! gvinum's metadata of one served volume, or of one plex of it: standings of members become states of subdisks.
//!
//! Invariants:
//! - a subdisk is recorded up only while its member is active;
//! - a plex that was failed has no subdisk that is up: nothing on it gets writes any more.

use plexum_format::vinum::SubdiskState;

use crate::device::DeviceInfo;
use crate::meta::adapter::{CommitView, Metadata, MetadataWrite, NewMemberPlace};
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
}

/// Metadata of a volume or plex of a gvinum system.
pub struct GvinumMetadata {
    store: SharedStore,
    volume: String,
    /// By `MemberId`.
    members: Vec<Held>,
    /// Parity or copies are known to agree when the engine says so; not where an unknown one could not be checked.
    may_settle: bool,
    saved: Option<u64>,
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
            saved: None,
        }
    }

    /// Takes the engine's state over, once a commit.
    fn follow(&mut self, view: &CommitView<'_>) {
        if self.saved == Some(view.event_count) {
            return;
        }
        self.saved = Some(view.event_count);
        let mut store = self.store.borrow_mut();
        let mut states = Vec::new();
        for (held, record) in self.members.iter().zip(&view.state.members) {
            for name in &held.subdisks {
                let known = store
                    .config
                    .subdisks
                    .iter()
                    .find(|subdisk| subdisk.name == *name);
                let now = known.map_or(SubdiskState::Down, |subdisk| subdisk.state);
                let is_one = held.subdisks.len() == 1;
                let state = match record.standing {
                    Standing::Active => SubdiskState::Up,
                    Standing::Rebuilding { .. } => SubdiskState::Stale,
                    Standing::Spare => continue,
                    Standing::Faulty | Standing::Removed if is_one => SubdiskState::Down,
                    Standing::Faulty | Standing::Removed if now == SubdiskState::Up => {
                        SubdiskState::Stale
                    }
                    Standing::Faulty | Standing::Removed => now,
                };
                states.push((name.clone(), state));
            }
        }
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
