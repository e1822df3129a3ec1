//! A file system of a pool: directories, files and links.
//!
//! Invariants: a path is followed part by part, links are not followed; a directory is as long as its ZAP.

use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::dnode::object_type;
use plexum_format::zfs::sa::{Attribute, Attributes};
use plexum_format::zfs::znode::{FileKind, Znode, directory_entry, xattrs};

use crate::ahead::ReadAhead;
use crate::block::Blocks;
use crate::error::ZfsError;
use crate::object::{Object, ObjectSet, invalid};
use crate::plex::Extent;

/// Newest version of file systems that is known.
const VERSION_MAX: u64 = 5;
/// Object with the entry points of a file system.
const MASTER_OBJECT: u64 = 1;
/// Longest target of a symbolic link.
const LINK_BYTES_MAX: u64 = 64 << 10;

/// Most extended attributes of a file, and the longest value.
const XATTRS_MAX: usize = 1024;
const XATTR_BYTES_MAX: u64 = 64 << 10;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name: any bytes but `/` and zero.
    pub name: Vec<u8>,
    /// The object that it names.
    pub object: u64,
    /// What the directory says it is.
    pub kind: FileKind,
}

/// A file, directory or link.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its attributes.
    pub znode: Znode,
    object: Rc<Object>,
}

impl Node {
    /// Number of its object: equal for all names of one file.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.object.number
    }

    /// Bytes of its blocks.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.object.block_bytes()
    }

    /// Space that it takes, in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.object.dnode.used_bytes
    }
}

/// A file system.
pub struct FileSystem<D> {
    blocks: Rc<Blocks<D>>,
    set: ObjectSet,
    attributes: Attributes,
    root_object: u64,
}

impl<D: Device + 'static> FileSystem<D> {
    pub(crate) async fn open(blocks: Rc<Blocks<D>>, set: ObjectSet) -> Result<Self, ZfsError> {
        let master = blocks.object(&set, MASTER_OBJECT).await?;
        let entries = blocks.zap(&master).await?;
        let number = |name: &str| {
            let entry = entries.iter().find(|entry| entry.name == name.as_bytes());
            entry.and_then(plexum_format::zfs::zap::ZapEntry::number)
        };
        let version = number("VERSION").unwrap_or(0);
        if version > VERSION_MAX {
            return Err(ZfsError::Unsupported {
                what: set.name.clone(),
                reason: format!("version {version} of file systems is not known"),
            });
        }
        let root_object = number("ROOT").ok_or_else(|| ZfsError::Invalid {
            what: set.name.clone(),
            problem: "the file system has no root directory".into(),
        })?;
        let attributes = match number("SA_ATTRS").filter(|object| *object != 0) {
            Some(object) => read_attributes(&blocks, &set, object).await?,
            None => Attributes::default(),
        };
        Ok(Self {
            blocks,
            set,
            attributes,
            root_object,
        })
    }

    /// Name of the data set.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.set.name
    }

    /// Number of the root directory.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root_object
    }

    /// The file, directory or link of that object number.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub async fn node(&self, number: u64) -> Result<Node, ZfsError> {
        let object = self.blocks.object(&self.set, number).await?;
        let name = &object.name;
        let mut znode = Znode::default();
        match object.dnode.bonus_kind {
            object_type::ZNODE => {
                znode =
                    Znode::parse_old(&object.dnode.bonus).map_err(|error| invalid(name, error))?;
            }
            object_type::SA => {
                znode
                    .take_attributes(&self.attributes, &object.dnode.bonus)
                    .map_err(|error| invalid(name, error))?;
                if let Some(pointer) = object.dnode.spill.as_ref().filter(|spill| !spill.is_hole())
                {
                    let what = format!("attributes of {name}");
                    let area = self.blocks.read(pointer, &what, Extent::Needed).await?;
                    znode
                        .take_attributes(&self.attributes, &area.whole())
                        .map_err(|error| invalid(name, error))?;
                }
            }
            other => {
                return Err(ZfsError::Invalid {
                    what: name.clone(),
                    problem: format!("it has no attributes (bonus type {other})"),
                });
            }
        }
        Ok(Node {
            znode,
            object: Rc::new(object),
        })
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// `Invalid` when it is none; why it cannot be read.
    pub async fn entries(&self, directory: &Node) -> Result<Vec<DirectoryEntry>, ZfsError> {
        if directory.znode.kind() != FileKind::Directory {
            return Err(ZfsError::Invalid {
                what: directory.object.name.clone(),
                problem: "it is no directory".into(),
            });
        }
        let entries = self.blocks.zap(&directory.object).await?;
        let mut entries: Vec<DirectoryEntry> = entries
            .into_iter()
            .filter_map(|entry| {
                let (object, kind) = directory_entry(entry.number()?);
                let is_name = !entry.name.is_empty()
                    && !entry.name.contains(&b'/')
                    && !entry.name.contains(&0)
                    && entry.name != b"."
                    && entry.name != b"..";
                is_name.then_some(DirectoryEntry {
                    name: entry.name,
                    object,
                    kind,
                })
            })
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// What a path leads to, from the root directory; empty parts and `.` are passed over.
    ///
    /// # Errors
    /// `NotFound`; why a directory on the way cannot be read.
    pub async fn lookup(&self, path: &[u8]) -> Result<Node, ZfsError> {
        let mut node = self.node(self.root_object).await?;
        let parts = path.split(|byte| *byte == b'/');
        for part in parts.filter(|part| !part.is_empty() && *part != b".") {
            let shown = String::from_utf8_lossy(path);
            let missing =
                || ZfsError::NotFound(format!("{}:{shown} does not exist", self.set.name));
            if node.znode.kind() != FileKind::Directory {
                return Err(missing());
            }
            let entries = self.entries(&node).await?;
            let entry = entries
                .iter()
                .find(|entry| entry.name == part)
                .ok_or_else(missing)?;
            node = self.node(entry.object).await?;
        }
        Ok(node)
    }

    /// A reader of a file from front to back. `shown` is what messages call the file.
    #[must_use]
    pub fn reader(&self, node: &Node, shown: &str) -> ReadAhead<D> {
        let mut object = (*node.object).clone();
        object.name = shown.to_owned();
        ReadAhead::new(
            Rc::clone(&self.blocks),
            Rc::new(object),
            node.znode.size_bytes,
        )
    }

    /// The bytes of a range; fewer at the end of the file.
    ///
    /// # Errors
    /// Why a block cannot be read.
    pub async fn read(
        &self,
        node: &Node,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<Vec<u8>, ZfsError> {
        let left = node.znode.size_bytes.saturating_sub(offset_bytes);
        let length = usize::try_from(left).map_or(length_bytes, |left| left.min(length_bytes));
        self.blocks
            .read_range(&node.object, offset_bytes, length)
            .await
    }

    /// The extended attributes of a file or directory, wherever they are stored: names and values.
    ///
    /// # Errors
    /// `Invalid` for more or longer ones than there may be; why one cannot be read.
    pub async fn xattrs(&self, node: &Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>, ZfsError> {
        let wrong = |problem: String| ZfsError::Invalid {
            what: format!("extended attributes of {}", node.object.name),
            problem,
        };
        let inside = node.znode.xattr_list.as_deref().map(xattrs).transpose();
        let inside = inside.map_err(|error| invalid(&node.object.name, error))?;
        let inside = inside.unwrap_or_default().into_iter();
        let mut found: Vec<_> = inside
            .map(|(name, value)| (name.into_bytes(), value))
            .collect();
        if node.znode.xattr_object != 0 {
            let folder = self.node(node.znode.xattr_object).await?;
            let entries = self.entries(&folder).await?;
            if entries.len() > XATTRS_MAX {
                return Err(wrong(format!("there are {}", entries.len())));
            }
            for entry in entries {
                let file = self.node(entry.object).await?;
                let length = file.znode.size_bytes;
                if length > XATTR_BYTES_MAX {
                    return Err(wrong(format!("one has {length} bytes")));
                }
                found.push((entry.name, self.read(&file, 0, length as usize).await?));
            }
        }
        Ok(found)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` when it is none or too long; why it cannot be read.
    pub async fn link_target(&self, node: &Node) -> Result<Vec<u8>, ZfsError> {
        let length = node.znode.size_bytes;
        if node.znode.kind() != FileKind::Link || length > LINK_BYTES_MAX {
            return Err(ZfsError::Invalid {
                what: node.object.name.clone(),
                problem: "it is no symbolic link".into(),
            });
        }
        if let Some(target) = &node.znode.link_target {
            return Ok(target[..target.len().min(length as usize)].to_vec());
        }
        self.read(node, 0, length as usize).await
    }
}

async fn read_attributes<D: Device>(
    blocks: &Blocks<D>,
    set: &ObjectSet,
    object: u64,
) -> Result<Attributes, ZfsError> {
    let master = blocks.object(set, object).await?;
    let mut known = Attributes::default();
    let registry = blocks.zap_number(&master, "REGISTRY").await?;
    let layouts = blocks.zap_number(&master, "LAYOUTS").await?;
    if let Some(registry) = registry {
        let registry = blocks.object(set, registry).await?;
        for entry in blocks.zap(&registry).await? {
            if let Some(value) = entry.number() {
                known.registry.push(Attribute::of(entry.text(), value));
            }
        }
        known.registry.sort_by_key(|attribute| attribute.id);
    }
    if let Some(layouts) = layouts {
        let layouts = blocks.object(set, layouts).await?;
        for entry in blocks.zap(&layouts).await? {
            if let (Ok(number), Some(ids)) = (entry.text().parse(), entry.shorts()) {
                known.layouts.push((number, ids));
            }
        }
    }
    Ok(known)
}
