//! Volumes by what people call them. Two that are expected may have one name: the disks of another machine were put in.

use std::rc::Rc;

use super::Service;
use super::pools::{OfPool, key_of_pool};
use crate::expected::Expected;
use crate::host::Hosted;
use crate::memory::Key;
use crate::problem::{Code, Problem};
use crate::volume::status::VolumeStatus;

/// Who is meant where two volumes have the name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Meant {
    /// The one that is served.
    Served,
    /// The one that is not.
    Waiting,
}

/// By what a volume that is served is known.
pub(super) fn key_of_status(status: &VolumeStatus) -> Key {
    Key::of(&status.format, &status.uuid, &status.volume)
}

/// By what alarms know an expected volume: the volumes of a pool are lost together, and are one thing for them.
pub(super) fn judged_as(expected: &Expected) -> Key {
    match expected.open.datasets.is_empty() {
        true => expected.key(),
        false => key_of_pool(&expected.uuid),
    }
}

impl Service {
    /// The volume that `word` names, by its name or its UUID; none when none is known.
    ///
    /// # Errors
    /// `AmbiguousVolume` where several have the name and it does not follow which is meant.
    pub(super) fn key_of(&self, word: &str, meant: Meant) -> Result<Option<Key>, Problem> {
        let entries = self.entries.borrow();
        let named = entries.iter().filter(|(_, entry)| {
            entry.expected.volume == word || entry.expected.uuid == word && !word.is_empty()
        });
        let mut keys: Vec<&Key> = named.map(|(key, _)| key).collect();
        if keys.len() > 1 {
            keys.retain(|key| self.is_served(key) == (meant == Meant::Served));
        }
        match keys[..] {
            [] => Ok(None),
            [key] => Ok(Some(key.clone())),
            _ => {
                let uuids = keys.iter().filter_map(|key| entries.get(key));
                let uuids: Vec<&str> = uuids.map(|entry| &*entry.expected.uuid).collect();
                let text = format!("{} volumes are called {word}", uuids.len());
                Err(Problem::new(Code::AmbiguousVolume, text)
                    .hint(format!("name one by its UUID:   {}", uuids.join(" "))))
            }
        }
    }

    /// An expected volume as it is served; none while it is not.
    pub(super) fn hosted(&self, key: &Key) -> Option<Rc<Hosted>> {
        let entries = self.entries.borrow();
        let hosted = self.host.get(&entries.get(key)?.expected.volume)?;
        // One that is being closed tells nothing, and has its name until it is gone.
        let is_other = hosted
            .status()
            .is_some_and(|status| key_of_status(&status) != *key);
        (!is_other).then_some(hosted)
    }

    /// An expected volume of a pool as it is served.
    pub(super) fn of_pool(&self, key: &Key) -> Option<OfPool> {
        let name = {
            let entries = self.entries.borrow();
            entries.get(key)?.expected.volume.clone()
        };
        let one = self.pools.named(&name)?;
        (one.key() == *key).then_some(one)
    }

    /// Whether an expected volume is served.
    pub(super) fn is_served(&self, key: &Key) -> bool {
        self.hosted(key).is_some() || self.of_pool(key).is_some()
    }

    /// How many volumes are served.
    pub(super) fn served_count(&self) -> usize {
        self.host.list().len() + self.pools.volumes().len()
    }

    pub(super) fn unknown(&self, volume: &str) -> Problem {
        let entries = self.entries.borrow();
        let names: Vec<&str> = entries
            .values()
            .map(|entry| entry.expected.volume.as_str())
            .collect();
        let problem = Problem::new(
            Code::NoSuchVolume,
            format!("the daemon knows no volume {volume}"),
        );
        match names.is_empty() {
            true => problem.hint("to serve one:   plexum serve MEMBER..."),
            false => problem.hint(format!("these it knows:   {}", names.join(" "))),
        }
    }
}
