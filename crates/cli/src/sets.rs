//! Sets of members that belong together: found in folders, files and devices.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use plexum_daemon::examine::{Examination, examine_each};
use plexum_daemon::foreign::offline::Found;
use plexum_daemon::owners::Format;
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::zfs::{PoolView, ZfsMember};

use crate::examine_zfs;

/// Deepest folder below a given one that is looked into.
const DEPTH_MAX: usize = 3;
/// Most files looked at.
const FILES_MAX: usize = 10_000;

/// Members of one array.
pub struct FoundSet {
    /// Their paths, sorted.
    pub members: Vec<String>,
    /// What is on them, in the same order.
    pub examined: Vec<Examination>,
}

impl FoundSet {
    /// Its format.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        let first = &self.examined[0];
        let md = || Some(Format::Md(first.superblock.as_ref()?.version));
        let foreign = first.foreign.as_ref();
        foreign.map_or_else(md, |found| Some(Format::Foreign(found.kind())))
    }

    /// What its members carry of FreeBSD's formats.
    #[must_use]
    pub fn foreign(&self) -> Vec<&Found> {
        let examined = self.examined.iter();
        examined.filter_map(|one| one.foreign.as_ref()).collect()
    }

    /// Whether it is one of FreeBSD's.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.examined[0].foreign.is_some()
    }
}

/// All sets in folders, files and devices; with no places on all disks and partitions. Sorted by the first member's
/// path.
///
/// # Errors
/// `NoSuchFile` for a place that does not exist.
pub fn find_sets(places: &[String]) -> Result<Vec<FoundSet>, Problem> {
    Ok(find_all(places)?.sets)
}

/// The mirrors of several names that some members make; empty when they make one set, or something else.
#[must_use]
pub fn mirrors_among(members: &[String]) -> Vec<Vec<String>> {
    let is_file = |member: &String| {
        Path::new(member)
            .metadata()
            .is_ok_and(|meta| !meta.is_dir())
    };
    if !members.iter().all(is_file) {
        return Vec::new();
    }
    let Ok(sets) = find_sets(members) else {
        return Vec::new();
    };
    let name_of = |set: &FoundSet| match &set.examined[0].foreign {
        Some(Found::Mirror(provider)) => Some(provider.label.name.clone()),
        _ => None,
    };
    let names: Vec<Option<String>> = sets.iter().map(name_of).collect();
    let is_apart = |at: usize| names[at].is_some() && !names[..at].contains(&names[at]);
    let count: usize = sets.iter().map(|set| set.members.len()).sum();
    if sets.len() < 2 || count != members.len() || !(0..names.len()).all(is_apart) {
        return Vec::new();
    }
    sets.into_iter().map(|set| set.members).collect()
}

/// Everything on the members of some places.
pub struct AllFound {
    /// The sets, sorted by the first member's path.
    pub sets: Vec<FoundSet>,
    /// ZFS pools.
    pub pools: Vec<PoolView>,
    /// Spares and cache devices of pools: a line and an object each.
    pub bystanders: Vec<(String, serde_json::Value)>,
    /// Members whose metadata is damaged, so that nobody knows to whom they belong, and what is wrong with each.
    pub damaged: Vec<(String, Vec<String>)>,
    /// Lines about members of containers, which other programs read.
    pub containers: Vec<String>,
    /// Lines about members whose bytes several sets claim.
    pub disputes: Vec<String>,
}

/// The files to look at.
fn files_of(places: &[String]) -> Result<Vec<PathBuf>, Problem> {
    let mut paths = Vec::new();
    if places.is_empty() {
        paths = all_devices();
    }
    for place in places {
        let path = Path::new(place);
        let meta = std::fs::metadata(path).map_err(|error| {
            let mut problem = Problem::from_io(&error, "looking at", place);
            problem.hints.clear(); // they are about members
            problem.hint("folders, files and devices are looked at:   plexum scan DIR")
        })?;
        if meta.is_dir() {
            collect(path, 0, &mut paths);
        } else {
            paths.push(path.to_owned());
        }
    }
    if paths.len() > FILES_MAX {
        return Err(Problem::new(
            Code::Usage,
            format!(
                "{} files are too many to look at, at most {FILES_MAX}",
                paths.len()
            ),
        )
        .hint("name a folder that holds members only"));
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Everything in folders, files and devices; with no places on all disks and partitions.
///
/// # Errors
/// `NoSuchFile` for a place that does not exist.
pub fn find_all(places: &[String]) -> Result<AllFound, Problem> {
    let paths = files_of(places)?;
    let mut zfs = Vec::new();
    let mut damaged = Vec::new();
    let mut containers = Vec::new();
    let mut members = Vec::new();
    for path in paths {
        let word = path.display().to_string();
        // What cannot be read is nobody's member here; `examine` says why.
        let Ok(mut each) = examine_each(&path, &word) else {
            continue;
        };
        if has_partition_devices(&path) {
            each.retain(|one| one.member == word); // those devices are looked at themselves
        }
        let first = &mut each[0];
        let is_of_zfs = !first.zfs.is_empty();
        zfs.extend(std::mem::take(&mut first.zfs));
        let texts = first.damaged();
        let is_member = first.foreign.is_some() || first.superblock.is_some();
        if let Some(container) = first.survey.container.filter(|_| !is_member) {
            let name = container.word();
            containers.push(format!(
                "  {word}: {container}; mdadm reads such ({name}), plexum does not"
            ));
        } else if !is_member && !is_of_zfs && !texts.is_empty() {
            damaged.push((word, texts));
        }
        members.extend(each);
    }
    let disputes = disputes(&members);
    let mut sets = into_sets(members);
    sets.sort_by(|a, b| a.members.cmp(&b.members));
    let zfs: Vec<&ZfsMember> = zfs.iter().collect();
    Ok(AllFound {
        sets,
        pools: plexum_daemon::zfs::pools(&zfs),
        bystanders: examine_zfs::tell_bystanders(&zfs),
        damaged,
        containers,
        disputes,
    })
}

/// Members by the set that they belong to; those of none are left out.
pub fn into_sets(members: Vec<Examination>) -> Vec<FoundSet> {
    let mut sets: BTreeMap<[u8; 16], FoundSet> = BTreeMap::new();
    let mut foreign: Vec<FoundSet> = Vec::new();
    for examined in members {
        let word = examined.member.clone();
        if examined.foreign.is_some() {
            add_foreign(&mut foreign, word, examined);
        } else if let Some(superblock) = &examined.superblock {
            let set = sets
                .entry(superblock.array_uuid)
                .or_insert_with(|| FoundSet {
                    members: Vec::new(),
                    examined: Vec::new(),
                });
            set.members.push(word);
            set.examined.push(examined);
        }
    }
    sets.into_values().chain(foreign).collect()
}

/// What is to be said of members whose bytes several sets claim: once for those that the same sets claim.
fn disputes(members: &[Examination]) -> Vec<String> {
    let mut told: Vec<(Vec<String>, Vec<&str>)> = Vec::new();
    for one in members {
        let rivals = one.rivals();
        if rivals.is_empty() {
            continue;
        }
        match told.iter_mut().find(|(lines, _)| *lines == rivals) {
            Some((_, words)) => words.push(&one.member),
            None => told.push((rivals, vec![&one.member])),
        }
    }
    let lines = told.into_iter().flat_map(|(lines, mut words)| {
        words.dedup();
        let words = words.join(" ");
        let head = format!(
            "  {words}: several sets claim the same bytes; say with --format which one to serve"
        );
        let lines = lines.into_iter().map(|line| format!("    {line}"));
        std::iter::once(head).chain(lines)
    });
    lines.collect()
}

/// Whether the kernel shows the partitions of this disk as devices of their own.
fn has_partition_devices(path: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(path) else {
        return false;
    };
    if !meta.file_type().is_block_device() {
        return false;
    }
    let (major, minor) = (
        rustix::fs::major(meta.rdev()),
        rustix::fs::minor(meta.rdev()),
    );
    has_partition_folders(Path::new(&format!("/sys/dev/block/{major}:{minor}")))
}

/// The same by the disk's folder in sysfs.
fn has_partition_folders(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .into_iter()
        .any(|entry| entry.path().join("partition").exists())
}

/// Puts a member of FreeBSD's formats to those it fits.
fn add_foreign(sets: &mut Vec<FoundSet>, word: String, examined: Examination) {
    let fits = |set: &&mut FoundSet| {
        let others = set.foreign();
        examined
            .foreign
            .as_ref()
            .is_some_and(|found| found.fits(&others))
    };
    match sets.iter_mut().find(fits) {
        Some(set) => {
            set.members.push(word);
            set.examined.push(examined);
        }
        None => sets.push(FoundSet {
            members: vec![word],
            examined: vec![examined],
        }),
    }
}

/// Plain files and block devices of a folder and a few below it. Links are not followed: each file counts once.
fn collect(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && depth < DEPTH_MAX && paths.len() <= FILES_MAX {
            collect(&entry.path(), depth + 1, paths);
        } else if kind.is_file() || kind.is_block_device() {
            paths.push(entry.path());
        }
    }
}

/// Disks and partitions that the kernel knows.
fn all_devices() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/sys/class/block")
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| Path::new("/dev").join(name.replace('!', "/")))
        .filter(|path| path.exists())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_whose_partitions_are_devices_is_not_looked_into_itself() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| std::fs::create_dir_all(folder.path().join(name)).unwrap();
        make("queue");
        assert!(!has_partition_folders(folder.path()));
        make("sda1");
        std::fs::write(folder.path().join("sda1/partition"), "1").unwrap();
        assert!(has_partition_folders(folder.path()));
    }
}
