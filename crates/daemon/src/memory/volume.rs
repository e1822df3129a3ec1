//! What one volume remembers, as long as it is served.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::disks::InUse;
use super::{Found, Keeper, Kept, KeptGoal, Key, REMEMBERED_SETTINGS, Remembered, StateDir};
use crate::volume::status::ScrubStatus;
use plexum_md::reshape::Goal;

/// The memory of a server: where it is, and who writes it.
pub struct Memory {
    dir: StateDir,
    keeper: Keeper,
}

impl Memory {
    /// Takes a folder into use, and makes it where it is not there.
    ///
    /// # Errors
    /// One sentence that says why nothing can be kept there.
    pub fn open(dir: &StateDir) -> Result<Self, String> {
        dir.ensure(crate::runtime_dir::Surroundings::of_this_process().user_id)?;
        Ok(Self {
            dir: dir.clone(),
            keeper: Keeper::start(dir),
        })
    }

    /// What earlier servers kept of a volume.
    #[must_use]
    pub fn find(&self, key: &Key, volume: &str) -> Found {
        self.dir.find(key, volume)
    }

    /// Who writes what is to be kept.
    #[must_use]
    pub fn keeper(&self) -> Keeper {
        self.keeper.clone()
    }

    /// Waits until everything is written, a few seconds at most.
    pub fn end(&self) {
        self.keeper.end();
    }
}

/// What a volume remembers. Each change is kept at once, where there is somebody who keeps it.
pub struct VolumeMemory {
    pub(super) now: RefCell<Remembered>,
    pub(super) in_use: RefCell<InUse>,
    keeper: Option<(Keeper, Key)>,
}

impl VolumeMemory {
    /// Of a volume that nobody keeps anything of: it remembers until it is stopped.
    #[must_use]
    pub fn unkept(volume: &str) -> Self {
        Self {
            now: RefCell::new(Remembered::nothing(volume)),
            in_use: RefCell::default(),
            keeper: None,
        }
    }

    /// What was found at the start, and who keeps what comes.
    #[must_use]
    pub fn kept(found: Remembered, keeper: Keeper, key: Key) -> Self {
        Self {
            now: RefCell::new(found),
            in_use: RefCell::default(),
            keeper: Some((keeper, key)),
        }
    }

    /// The same, for the volume opened again: it forgets nothing.
    #[must_use]
    pub fn carried(&self) -> Self {
        Self {
            now: self.now.clone(),
            in_use: RefCell::default(),
            keeper: self.keeper.clone(),
        }
    }

    /// Why a member failed, where that is known, in words.
    #[must_use]
    pub fn cause(&self, member: &str) -> Option<String> {
        self.now.borrow().causes.get(member).cloned()
    }

    /// The member that a slot had last.
    #[must_use]
    pub fn last_in(&self, slot: u32) -> Option<String> {
        self.now.borrow().slots.get(&slot).cloned()
    }

    /// The last scrub.
    #[must_use]
    pub fn last_scrub(&self) -> Option<ScrubStatus> {
        self.now.borrow().last_scrub.clone()
    }

    /// What was set, by the words of `plexum set`.
    #[must_use]
    pub fn settings(&self) -> BTreeMap<String, String> {
        self.now.borrow().settings.clone()
    }

    /// Where a change leads that is under way.
    #[must_use]
    pub fn goal(&self) -> Option<Goal> {
        self.now.borrow().goal.as_ref()?.goal()
    }

    /// Notes where a change leads, or that there is nothing left to do.
    pub fn note_goal(&self, goal: Option<&Goal>) {
        let goal = goal.map(KeptGoal::of);
        self.change(|now| {
            let is_new = now.goal != goal;
            now.goal = goal;
            is_new
        });
    }

    /// Notes why a member failed.
    pub fn note_cause(&self, member: &str, words: &str) {
        self.change(|now| {
            now.causes
                .insert(member.to_owned(), words.to_owned())
                .as_deref()
                != Some(words)
        });
    }

    /// Notes the members that have a slot now. What an empty slot had stays known.
    pub fn note_slots(&self, members: impl Iterator<Item = (u32, String)>) {
        self.change(|now| {
            let mut is_new = false;
            for (slot, member) in members {
                // Whoever is in a slot has not failed, or has come back.
                is_new |= now.causes.remove(&member).is_some();
                is_new |= now.slots.insert(slot, member.clone()) != Some(member);
            }
            is_new
        });
    }

    /// Notes the end of a scrub.
    pub fn note_scrub(&self, scrub: ScrubStatus) {
        self.change(|now| {
            let is_new = now.last_scrub.as_ref() != Some(&scrub);
            now.last_scrub = Some(scrub);
            is_new
        });
    }

    /// Notes what was set: of it, what no metadata record.
    pub fn note_settings(&self, settings: &BTreeMap<String, String>) {
        self.change(|now| {
            let mut is_new = false;
            for (name, value) in settings {
                if REMEMBERED_SETTINGS.contains(&name.as_str()) {
                    is_new |=
                        now.settings.insert(name.clone(), value.clone()).as_ref() != Some(value);
                }
            }
            is_new
        });
    }

    /// Why not everything is kept, in one sentence.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.keeper
            .as_ref()
            .and_then(|(keeper, _)| keeper.failure())
    }

    pub(super) fn change(&self, apply: impl FnOnce(&mut Remembered) -> bool) {
        let mut now = self.now.borrow_mut();
        if apply(&mut now)
            && let Some((keeper, key)) = &self.keeper
        {
            keeper.keep(Kept::Set(key.clone(), now.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_empty_keeps_its_last_member_and_why_it_failed() {
        let memory = VolumeMemory::unkept("v");
        let both = [(0, "a".to_owned()), (1, "b".to_owned())];
        memory.note_slots(both.clone().into_iter());
        memory.note_cause("b", "a write failed");
        memory.note_slots(both[..1].iter().cloned());
        assert_eq!(memory.last_in(1).as_deref(), Some("b"));
        assert_eq!(memory.cause("b").as_deref(), Some("a write failed"));
        memory.note_slots(both.into_iter());
        assert_eq!(memory.cause("b"), None, "it has come back");
    }

    #[test]
    fn only_settings_that_no_metadata_record_are_remembered() {
        let memory = VolumeMemory::unkept("v");
        let set = |words: &[(&str, &str)]| {
            let words = words
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            memory.note_settings(&words.collect());
        };
        set(&[
            ("balance", "load"),
            ("bitmap", "none"),
            ("rebuild-max", "5"),
        ]);
        set(&[("rebuild-max", "7")]);
        let now: Vec<(String, String)> = memory.settings().into_iter().collect();
        let now: Vec<(&str, &str)> = now.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(now, [("balance", "load"), ("rebuild-max", "7")]);
    }
}
