//! A walk through a file system, which ends whatever is on the disk.
//!
//! Invariants:
//! - a folder is entered once, however often it is linked, and never below [`DEPTH_MAX`] others;
//! - what is held is the names of the folders on the way, not those of the whole tree.

use std::collections::BTreeSet;
use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::znode::FileKind;

use crate::error::ZfsError;
use crate::file::{DirectoryEntry, FileSystem, Node};

/// Folders above the deepest one that is entered.
pub const DEPTH_MAX: usize = 1024;

/// Where in a tree the walk is: a name, and the folder that has it.
#[derive(Debug, PartialEq, Eq)]
pub struct TreePlace {
    parent: Option<Rc<TreePlace>>,
    name: Vec<u8>,
    number: u64,
    depth: usize,
}

impl TreePlace {
    /// The names from the start of the walk to here; none for the start itself. No name has a `/` or is `..`.
    #[must_use]
    pub fn names(&self) -> Vec<&[u8]> {
        let mut names = Vec::with_capacity(self.depth);
        let mut place = self;
        while let Some(parent) = &place.parent {
            names.push(place.name.as_slice());
            place = parent;
        }
        names.reverse();
        names
    }

    /// The path for messages: `/` and the names, from the start of the walk.
    #[must_use]
    pub fn shown(&self) -> String {
        let names = self.names();
        let names = names.iter().map(|name| String::from_utf8_lossy(name));
        format!("/{}", names.collect::<Vec<_>>().join("/"))
    }

    /// Number of the object that the name stands for.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// A step of the walk: where it is, and what is there or why that cannot be read.
pub type Step = (Rc<TreePlace>, Result<Node, ZfsError>);

/// A walk; see [`FileSystem::walk`].
pub struct TreeWalk<'a, D> {
    system: &'a FileSystem<D>,
    start: Option<Rc<TreePlace>>,
    /// The folder given last: its names come next.
    entered: Option<(Rc<TreePlace>, Node)>,
    /// Folders on the way with the names that are left.
    open: Vec<(Rc<TreePlace>, std::vec::IntoIter<DirectoryEntry>)>,
    visited: BTreeSet<u64>,
}

impl<D: Device + 'static> FileSystem<D> {
    /// A walk from an object, which is its first step, through everything below: each folder before what is in it,
    /// names in their order. Links are not followed. A folder that was entered already, or lies too deep, is an error
    /// at its place.
    #[must_use]
    pub fn walk(&self, start: u64) -> TreeWalk<'_, D> {
        TreeWalk {
            system: self,
            start: Some(Rc::new(TreePlace {
                parent: None,
                name: Vec::new(),
                number: start,
                depth: 0,
            })),
            entered: None,
            open: Vec::new(),
            visited: BTreeSet::new(),
        }
    }
}

impl<D: Device + 'static> TreeWalk<'_, D> {
    /// The next step; `None` at the end. A folder whose names cannot be read comes a second time, with the error.
    pub async fn next(&mut self) -> Option<Step> {
        if let Some((place, node)) = self.entered.take() {
            match self.system.entries(&node).await {
                Ok(entries) => self.open.push((place, entries.into_iter())),
                Err(error) => return Some((place, Err(error))),
            }
        }
        let place = self.place()?;
        let node = self.system.node(place.number).await;
        let node = node.and_then(|node| self.judge(&place, node));
        Some((place, node))
    }

    /// Does not enter the folder that [`Self::next`] gave last.
    pub fn pass_over(&mut self) {
        self.entered = None;
    }

    fn place(&mut self) -> Option<Rc<TreePlace>> {
        if let Some(start) = self.start.take() {
            return Some(start);
        }
        while let Some((folder, names)) = self.open.last_mut() {
            if let Some(entry) = names.next() {
                return Some(Rc::new(TreePlace {
                    parent: Some(Rc::clone(folder)),
                    depth: folder.depth + 1,
                    name: entry.name,
                    number: entry.object,
                }));
            }
            self.open.pop();
        }
        None
    }

    /// Remembers a folder, or says why it is not entered.
    fn judge(&mut self, place: &Rc<TreePlace>, node: Node) -> Result<Node, ZfsError> {
        if node.znode.kind() != FileKind::Directory {
            return Ok(node);
        }
        let wrong = |problem: String| ZfsError::Invalid {
            what: format!("{}:{}", self.system.name(), place.shown()),
            problem,
        };
        if place.depth > DEPTH_MAX {
            return Err(wrong(format!("it is below {DEPTH_MAX} other folders")));
        }
        if !self.visited.insert(place.number) {
            return Err(wrong("it is linked into the tree twice".into()));
        }
        self.entered = Some((Rc::clone(place), node.clone()));
        Ok(node)
    }
}
