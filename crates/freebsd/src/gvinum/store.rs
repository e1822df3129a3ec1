//! The configuration of a running system: states change, and every save carries the whole of it to a volume's drives.
//!
//! Invariants:
//! - a save has a later time than every one before, and the same on all drives that it reaches;
//! - the header goes last: a drive that shows a time has the text of that time;
//! - of the two copies on a drive, the first save begins with the one that does not count (a save that was cut short
//!   has left one of them torn): at every instant one of them makes sense and is as new as what was read;
//! - what may be unequal is marked, until a flush has followed the last write and the resync has ended.
//!
//! Source: freebsd-geom.md sections 2.4 and 2.10.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use plexum_format::vinum::{
    CONFIG_OFFSETS_BYTES, Config, DriveHeader, Growth, HEADER_OFFSET_BYTES, Mark, PlexState,
    SubdiskState,
};

use plexum_engine::metadata::MetadataWrite;

use super::tally::Tallies;
use super::{System, places_of, plexes_of, settle};

/// Shared by all volumes of a system.
pub type SharedStore = Rc<RefCell<Store>>;

/// What is true now, and will be on the drives with the next save.
#[derive(Debug)]
pub struct Store {
    /// The configuration.
    pub config: Config,
    /// What its objects have done.
    pub tallies: Tallies,
    /// By drive: its header, and the copy of the configuration that is written first.
    headers: BTreeMap<String, (DriveHeader, usize)>,
    updated: (u64, u64),
    /// The drives differed when the system was assembled: every volume has to make its own say the same.
    pub is_uneven: bool,
    /// Volumes whose copies or parity may differ.
    unsettled: BTreeSet<String>,
    /// Subdisks that their own plex does without, or is filling: that the plex as a whole is complete says nothing of
    /// them.
    behind: BTreeSet<String>,
}

impl Store {
    /// The store of a system as it was assembled.
    #[must_use]
    pub fn new(system: &System) -> Self {
        let headers = system.drives.iter().filter_map(|drive| {
            let header = drive.header.clone()?;
            Some((drive.name.clone(), (header, drive.first_copy)))
        });
        // Nobody else would ever settle one that has nothing which could differ.
        let has_redundancy = |name: &str| {
            let plexes = plexes_of(&system.config, name);
            plexes.len() > 1 || plexes.iter().any(|plex| plex.organisation.has_parity())
        };
        let volumes = system.config.volumes.iter();
        let volumes = volumes
            .map(|volume| volume.name.clone())
            .filter(|name| has_redundancy(name));
        Self {
            config: system.config.clone(),
            tallies: Tallies::default(),
            headers: headers.collect(),
            updated: system.updated,
            is_uneven: system.is_uneven,
            unsettled: if system.mark == Mark::Settled {
                BTreeSet::new()
            } else {
                volumes.collect()
            },
            behind: BTreeSet::new(),
        }
    }

    /// Whether the plex of a subdisk does without it now, or is filling it. Said by the plex, before its next save.
    pub fn mark_behind(&mut self, subdisk: &str) {
        self.behind.insert(subdisk.to_owned());
    }

    /// It is as good as the others again.
    pub fn clear_behind(&mut self, subdisk: &str) {
        self.behind.remove(subdisk);
    }

    /// What `mark_behind` and `clear_behind` said last.
    #[must_use]
    pub fn is_behind(&self, subdisk: &str) -> bool {
        self.behind.contains(subdisk)
    }

    /// Sets the state of subdisks; plexes and volumes follow.
    pub fn set_states(&mut self, states: &[(String, SubdiskState)]) {
        for (name, state) in states {
            let found = self
                .config
                .subdisks
                .iter_mut()
                .find(|subdisk| subdisk.name == *name);
            if let Some(subdisk) = found {
                subdisk.state = *state;
            }
        }
        settle(&mut self.config, |_| false);
    }

    /// How far the growth of a plex is; `None`: it has ended.
    pub fn set_growth(&mut self, plex: &str, growth: Option<Growth>) {
        for other in self
            .config
            .plexes
            .iter_mut()
            .filter(|other| other.name == plex)
        {
            other.growth = growth;
            other.state = PlexState::Up; // what it is now follows from its subdisks
        }
        settle(&mut self.config, |_| false);
    }

    /// Puts a subdisk on another drive.
    pub fn place(&mut self, subdisk: &str, drive: &str, drive_offset_bytes: u64) {
        self.tallies.place(subdisk, drive);
        let is_listed = self
            .config
            .subdisks
            .iter()
            .any(|other| other.name == subdisk);
        if !is_listed {
            // It takes a place that no subdisk is listed for.
            let plexes = self.config.plexes.iter();
            let mut places =
                plexes.flat_map(|plex| places_of(&self.config, &plex.name).unwrap_or_default());
            let place = places.find(|place| place.name == subdisk);
            self.config.subdisks.extend(place);
        }
        for other in self
            .config
            .subdisks
            .iter_mut()
            .filter(|other| other.name == subdisk)
        {
            drive.clone_into(&mut other.drive);
            other.drive_offset_bytes = drive_offset_bytes;
        }
    }

    /// Whether copies or parity of a volume may differ.
    pub fn mark_settled(&mut self, volume: &str) {
        self.unsettled.remove(volume);
    }

    /// They may differ.
    pub fn clear_settled(&mut self, volume: &str) {
        self.unsettled.insert(volume.to_owned());
    }

    /// A save begins: it gets a time of its own.
    pub fn next_save(&mut self, wall_seconds: u64) {
        let (seconds, micros) = self.updated;
        self.updated = if wall_seconds > seconds {
            (wall_seconds, 0)
        } else if micros < 999_999 {
            (seconds, micros + 1)
        } else {
            (seconds.saturating_add(1), 0)
        };
    }

    /// What this save writes to a drive, in order. Nothing for a drive that is not there, or when the text has outgrown
    /// its place (no more can be added then; what is there stays).
    #[must_use]
    pub fn writes(&self, drive: &str) -> Vec<MetadataWrite> {
        let (Some((header, first_copy)), Ok(text)) =
            (self.headers.get(drive), self.config.encode_sealed())
        else {
            return Vec::new();
        };
        let mut header = header.clone();
        header.updated = self.updated;
        header.mark = if self.unsettled.is_empty() {
            Mark::Settled
        } else {
            Mark::Writing
        };
        let copies = CONFIG_OFFSETS_BYTES.iter().cycle().skip(*first_copy);
        let mut writes: Vec<MetadataWrite> = copies
            .take(CONFIG_OFFSETS_BYTES.len())
            .map(|at| MetadataWrite {
                at_bytes: *at,
                bytes: text.clone(),
            })
            .collect();
        writes.push(MetadataWrite {
            at_bytes: HEADER_OFFSET_BYTES,
            bytes: header.encode().to_vec(),
        });
        writes
    }
}
