//! ZFS pools that are open, and their volumes by name.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use serde_json::{Value, json};

use crate::dataset::{PoolServed, PoolVolume, not_served};
use crate::memory::Key;
use crate::open::full_path;
use crate::problem::{Code, Problem};
use crate::serve_dataset::DatasetRequest;
use crate::volume::status::VolumeStatus;

/// A volume, and the pool that it is in.
#[derive(Clone)]
pub(super) struct OfPool {
    pub(super) pool: Rc<PoolServed>,
    pub(super) volume: Rc<PoolVolume>,
}

impl OfPool {
    /// By what it is known, as its status says it.
    pub(super) fn key(&self) -> Key {
        Key::of(
            "zfs",
            &self.pool.report.guid.to_string(),
            self.volume.name(),
        )
    }

    /// Its status.
    pub(super) fn status(&self) -> VolumeStatus {
        self.pool.status(&self.volume)
    }

    /// A volume that clients can come to now, as the command tells it.
    pub(super) fn ready(&self, notes: &[String]) -> Value {
        json!({"status": self.status(), "control": self.volume.control, "notes": notes})
    }
}

/// Pools that are open.
#[derive(Default)]
pub(super) struct Pools(RefCell<Vec<Rc<PoolServed>>>);

impl Pools {
    /// They, in the order in which they were opened.
    pub(super) fn all(&self) -> Vec<Rc<PoolServed>> {
        self.0.borrow().clone()
    }

    /// All volumes of all of them.
    pub(super) fn volumes(&self) -> Vec<OfPool> {
        let mut volumes = Vec::new();
        for pool in self.all() {
            volumes.extend(pool.volumes().into_iter().map(|volume| OfPool {
                pool: Rc::clone(&pool),
                volume,
            }));
        }
        volumes
    }

    /// The volume that is called `name`.
    pub(super) fn named(&self, name: &str) -> Option<OfPool> {
        let mut volumes = self.volumes().into_iter();
        volumes.find(|one| one.volume.name() == name)
    }

    /// The open pool that a word means: its name, or its identity where two have one name.
    ///
    /// # Errors
    /// `NoSuchVolume`: none; `Usage`: several.
    pub(super) fn meant(&self, word: &str) -> Result<Rc<PoolServed>, Problem> {
        let mut meant = self.all();
        meant.retain(|pool| pool.is_called(word));
        match meant.as_slice() {
            [pool] => Ok(Rc::clone(pool)),
            [] => Err(not_served(word)),
            _ => Err(
                Problem::new(Code::Usage, format!("several pools are called {word}"))
                    .hint("name one by its identity, which is in:   plexum status --json"),
            ),
        }
    }

    /// Whether a pool of this identity is open.
    pub(super) fn is_open(&self, guid: &str) -> bool {
        let pools = self.0.borrow();
        pools
            .iter()
            .any(|pool| pool.report.guid.to_string() == guid)
    }

    /// The open pool that is asked for: that of the name, when one of the members that were given is its own, or none
    /// was given.
    pub(super) fn find(&self, request: &DatasetRequest) -> Option<Rc<PoolServed>> {
        let path = |word: &str| full_path(Path::new(word));
        let given: Vec<_> = request.members.iter().map(|word| path(word)).collect();
        let is_asked_for = |pool: &&Rc<PoolServed>| {
            let own = pool.member_words();
            let mut own = own.iter().map(|word| path(word));
            pool.report.name == request.pool_name()
                && (given.is_empty() || own.any(|path| given.contains(&path)))
        };
        // An older root is another pool than the one that is served.
        let is_newest = request.txg.is_none();
        let pools = self.0.borrow();
        pools
            .iter()
            .find(is_asked_for)
            .filter(|_| is_newest)
            .cloned()
    }

    /// One more.
    pub(super) fn add(&self, pool: &Rc<PoolServed>) {
        self.0.borrow_mut().push(Rc::clone(pool));
    }

    /// All of them, which are open here no more.
    pub(super) fn take(&self) -> Vec<Rc<PoolServed>> {
        self.0.take()
    }

    /// This one is open here no more.
    pub(super) fn remove(&self, pool: &Rc<PoolServed>) {
        self.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, pool));
    }
}

/// By what a pool is known, whatever of it is served.
pub(super) fn key_of_pool(guid: &str) -> Key {
    Key::of("zfs", guid, "")
}
