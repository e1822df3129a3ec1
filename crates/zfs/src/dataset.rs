//! Data sets by name: file systems, volumes and their snapshots.
//!
//! Invariants:
//! - the tree is walked with a work list, every directory once, at most [`DATASETS_MAX`] of them;
//! - a data set that cannot be read or is refused is in the list with the reason; the walk goes on.

use std::collections::BTreeSet;

use plexum_block::device::Device;
use plexum_format::zfs::dnode::object_type;
use plexum_format::zfs::dsl::{DslDataset, DslDir};
use plexum_format::zfs::{ObjectSetKind, zap::ZapEntry};

use crate::error::ZfsError;
use crate::object::{Object, ObjectSet, invalid};
use crate::pool::Pool;

/// Most data sets and snapshots of a pool that are listed.
const DATASETS_MAX: usize = 100_000;

/// `POOL/PATH` or `POOL/PATH@SNAPSHOT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatasetName {
    /// Pool and path.
    pub path: String,
    /// Snapshot.
    pub snapshot: Option<String>,
}

impl DatasetName {
    /// Understands a name.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.split_once('@') {
            Some((path, snapshot)) => Self {
                path: path.to_owned(),
                snapshot: Some(snapshot.to_owned()),
            },
            None => Self {
                path: text.to_owned(),
                snapshot: None,
            },
        }
    }
}

impl std::fmt::Display for DatasetName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.snapshot {
            Some(snapshot) => write!(f, "{}@{snapshot}", self.path),
            None => f.write_str(&self.path),
        }
    }
}

/// What a data set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetKind {
    /// A file system.
    FileSystem,
    /// A volume.
    Volume,
    /// Not known, because it could not be read; or something else.
    Unknown,
}

impl DatasetKind {
    /// The word in tables and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::FileSystem => "filesystem",
            Self::Volume => "volume",
            Self::Unknown => "unknown",
        }
    }
}

/// A data set or a snapshot, as the list has it.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Its name.
    pub name: DatasetName,
    /// What it is.
    pub kind: DatasetKind,
    /// Space that it can reach.
    pub referenced_bytes: u64,
    /// Space that it and everything below it take; snapshots: 0, it is not recorded.
    pub used_bytes: u64,
    /// Size of a volume.
    pub volume_bytes: Option<u64>,
    /// When it was made, seconds since 1970.
    pub created_s: u64,
    /// Transaction group in which it was made.
    pub created_txg: u64,
    /// Its identity.
    pub guid: u64,
    /// It is a clone: number of the snapshot that it comes from.
    pub origin_object: Option<u64>,
    /// Number of its object in the pool's own set.
    pub object: u64,
    /// Records of its intent log that are not in it yet.
    pub pending_records: u64,
    /// Why it cannot be read.
    pub problem: Option<ZfsError>,
}

impl<D: Device + 'static> Pool<D> {
    /// All data sets, volumes and snapshots, sorted by name.
    ///
    /// # Errors
    /// Why not even the root of the tree can be read. Everything below is part of the list.
    pub async fn datasets(&self) -> Result<Vec<Dataset>, ZfsError> {
        let root = self.root_directory().await?;
        let mut found = Vec::new();
        let mut visited = BTreeSet::new();
        let mut work = vec![(self.report.name.clone(), root)];
        while let Some((path, directory)) = work.pop() {
            if found.len() >= DATASETS_MAX || !visited.insert(directory) {
                continue;
            }
            match self.list_directory(&path, directory, &mut found).await {
                Ok(children) => work.extend(children),
                Err(error) => found.push(unreadable(DatasetName::parse(&path), error)),
            }
        }
        found.sort_by(|a: &Dataset, b| a.name.cmp(&b.name));
        Ok(found)
    }

    async fn root_directory(&self) -> Result<u64, ZfsError> {
        let number = self
            .blocks
            .zap_number(&self.directory, "root_dataset")
            .await?;
        number.ok_or_else(|| ZfsError::Invalid {
            what: self.report.name.clone(),
            problem: "the pool has no root data set".into(),
        })
    }

    async fn directory(&self, number: u64) -> Result<DslDir, ZfsError> {
        let object = self.blocks.object(&self.meta, number).await?;
        expect_bonus(&object, object_type::DSL_DIR)?;
        DslDir::parse(&object.dnode.bonus).map_err(|error| invalid(&object.name, error))
    }

    async fn dataset_of(&self, number: u64) -> Result<DslDataset, ZfsError> {
        let object = self.blocks.object(&self.meta, number).await?;
        expect_bonus(&object, object_type::DSL_DATASET)?;
        DslDataset::parse(&object.dnode.bonus).map_err(|error| invalid(&object.name, error))
    }

    async fn entries_of(&self, number: u64) -> Result<Vec<ZapEntry>, ZfsError> {
        if number == 0 {
            return Ok(Vec::new());
        }
        let object = self.blocks.object(&self.meta, number).await?;
        self.blocks.zap(&object).await
    }

    /// Adds the data set of a directory and its snapshots; gives the directories below.
    async fn list_directory(
        &self,
        path: &str,
        number: u64,
        found: &mut Vec<Dataset>,
    ) -> Result<Vec<(String, u64)>, ZfsError> {
        let directory = self.directory(number).await?;
        if directory.head_object != 0 {
            let name = DatasetName::parse(path);
            let mut head = self.describe(name, directory.head_object).await;
            head.used_bytes = directory.used_bytes;
            head.origin_object = Some(directory.origin_object).filter(|origin| *origin != 0);
            found.push(head);
            self.list_snapshots(path, directory.head_object, found)
                .await;
        }
        let children = self.entries_of(directory.children_object).await?;
        let visible = children
            .iter()
            .filter(|child| !child.name.starts_with(b"$"));
        Ok(visible
            .filter_map(|child| Some((format!("{path}/{}", child.text()), child.number()?)))
            .collect())
    }

    async fn list_snapshots(&self, path: &str, head: u64, found: &mut Vec<Dataset>) {
        let names = match self.dataset_of(head).await {
            Ok(dataset) => self.entries_of(dataset.snapshot_names_object).await,
            Err(_) => return, // its own entry in the list says so
        };
        let whole = |snapshot: String| DatasetName {
            path: path.to_owned(),
            snapshot: Some(snapshot),
        };
        match names {
            Ok(names) => {
                for entry in names.iter().take(DATASETS_MAX) {
                    if let Some(object) = entry.number() {
                        found.push(self.describe(whole(entry.text()), object).await);
                    }
                }
            }
            Err(error) => found.push(unreadable(whole("?".into()), error)),
        }
    }

    async fn describe(&self, name: DatasetName, number: u64) -> Dataset {
        let dataset = match self.dataset_of(number).await {
            Ok(dataset) => dataset,
            Err(error) => return unreadable(name, error),
        };
        let mut described = Dataset {
            kind: DatasetKind::Unknown,
            referenced_bytes: dataset.referenced_bytes,
            used_bytes: 0,
            volume_bytes: None,
            created_s: dataset.created_s,
            created_txg: dataset.created_txg,
            guid: dataset.guid,
            origin_object: None,
            object: number,
            pending_records: 0,
            problem: None,
            name,
        };
        if let Err(error) = self.describe_set(&mut described, &dataset).await {
            described.problem = Some(error);
        }
        described
    }

    async fn describe_set(
        &self,
        described: &mut Dataset,
        dataset: &DslDataset,
    ) -> Result<(), ZfsError> {
        let name = described.name.to_string();
        let set = self.blocks.object_set(&dataset.root, &name).await?;
        if described.name.snapshot.is_none() {
            described.pending_records = self
                .blocks
                .pending_records(&set, self.report.root.txg)
                .await;
        }
        match set.header.kind {
            ObjectSetKind::FileSystem => described.kind = DatasetKind::FileSystem,
            ObjectSetKind::Volume => {
                described.kind = DatasetKind::Volume;
                let volume = crate::Volume::open(self.blocks.clone(), &set).await?;
                described.volume_bytes = Some(volume.size_bytes());
            }
            ObjectSetKind::Meta | ObjectSetKind::Other(_) => {}
        }
        Ok(())
    }

    /// The object set of a data set or snapshot.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for encrypted ones; why it cannot be read.
    pub async fn object_set(&self, name: &DatasetName) -> Result<ObjectSet, ZfsError> {
        let head = self
            .find(name)
            .await
            .map_err(|error| error.inside(&name.to_string()))?;
        let dataset = self.dataset_of(head).await?;
        let shown = name.to_string();
        if dataset.root.is_hole() {
            let what = shown;
            return Err(ZfsError::Invalid {
                what,
                problem: "it is empty".into(),
            });
        }
        self.blocks.object_set(&dataset.root, &shown).await
    }

    /// Number of the data set of that name.
    async fn find(&self, name: &DatasetName) -> Result<u64, ZfsError> {
        let missing = |what: &str| {
            let pool = &self.report.name;
            ZfsError::NotFound(format!("{name} does not exist: no {what} in pool {pool}"))
        };
        let mut parts = name.path.split('/');
        if parts.next() != Some(self.report.name.as_str()) {
            return Err(missing("data set of that name"));
        }
        let mut directory = self.directory(self.root_directory().await?).await?;
        for part in parts {
            let children = self.entries_of(directory.children_object).await?;
            let child = children.iter().find(|child| child.text() == part);
            let number = child.and_then(ZapEntry::number);
            let number = number.ok_or_else(|| missing(&format!("data set {part:?}")))?;
            directory = self.directory(number).await?;
        }
        let Some(snapshot) = &name.snapshot else {
            return Ok(directory.head_object);
        };
        let head = self.dataset_of(directory.head_object).await?;
        let snapshots = self.entries_of(head.snapshot_names_object).await?;
        let found = snapshots.iter().find(|entry| entry.text() == *snapshot);
        let number = found.and_then(ZapEntry::number);
        number.ok_or_else(|| missing(&format!("snapshot {snapshot:?}")))
    }

    /// The file system of that name.
    ///
    /// # Errors
    /// As [`object_set`](Pool::object_set); `Invalid` when it is a volume.
    pub async fn file_system(&self, name: &DatasetName) -> Result<crate::FileSystem<D>, ZfsError> {
        let set = self.object_set(name).await?;
        if set.header.kind != ObjectSetKind::FileSystem {
            return Err(wrong_kind(name, "a file system"));
        }
        let opened = crate::FileSystem::open(self.blocks.clone(), set).await;
        opened.map_err(|error| error.inside(&name.to_string()))
    }

    /// The volume of that name.
    ///
    /// # Errors
    /// As [`object_set`](Pool::object_set); `Invalid` when it is a file system.
    pub async fn volume(&self, name: &DatasetName) -> Result<crate::Volume<D>, ZfsError> {
        let set = self.object_set(name).await?;
        if set.header.kind != ObjectSetKind::Volume {
            return Err(wrong_kind(name, "a volume"));
        }
        let opened = crate::Volume::open(self.blocks.clone(), &set).await;
        opened.map_err(|error| error.inside(&name.to_string()))
    }
}

fn wrong_kind(name: &DatasetName, expected: &str) -> ZfsError {
    ZfsError::Invalid {
        what: name.to_string(),
        problem: format!("it is not {expected}"),
    }
}

fn unreadable(name: DatasetName, error: ZfsError) -> Dataset {
    Dataset {
        name,
        kind: DatasetKind::Unknown,
        referenced_bytes: 0,
        used_bytes: 0,
        volume_bytes: None,
        created_s: 0,
        created_txg: 0,
        guid: 0,
        origin_object: None,
        object: 0,
        pending_records: 0,
        problem: Some(error),
    }
}

fn expect_bonus(object: &Object, kind: u8) -> Result<(), ZfsError> {
    // Newer pools keep these objects as ZAPs, whose bonus area still has the type.
    if object.dnode.bonus_kind == kind {
        return Ok(());
    }
    Err(ZfsError::Invalid {
        what: object.name.clone(),
        problem: format!(
            "its bonus area has type {}, not {kind}",
            object.dnode.bonus_kind
        ),
    })
}
