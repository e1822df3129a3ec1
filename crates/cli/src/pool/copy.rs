//! `plexum pool cp`: files, folders and links out of a pool, with modes, owners, times, hard links and extended
//! attributes.
//!
//! Invariants:
//! - nothing that exists is overwritten, and no link at the destination is followed;
//! - a file appears under its name when all of it was read and verified; one that cannot be read is named, and the rest
//!   goes on;
//! - a folder is entered once, however the pool links it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use plexum_daemon::open::AnyDevice;
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::zfs::RealPool;
use plexum_format::zfs::znode::{FileKind, Znode};
use plexum_zfs::{FileSystem, Node, Piece};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, lsetxattr, utimensat};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::args::Cp;
use super::copied::Copied;
use super::{PoolPath, problem};
use crate::args::Common;
use crate::errors::Outcome;
use crate::output::{Screen, object};
use crate::units::show_bytes;

/// Most objects that are counted beforehand, for the time left.
const COUNTED_MAX: usize = 1_000_000;

/// Runs the command. Exit code 1 when something could not be copied.
///
/// # Errors
/// No such place; the destination cannot be used; a single file that cannot be read.
pub async fn run(pool: &RealPool, args: &Cp, common: &Common, screen: &Screen) -> Outcome {
    let place = PoolPath::parse(&args.place);
    let tell = |error| problem(error, &args.place);
    let Some(path) = &place.path else {
        return Err(
            Problem::new(Code::Usage, format!("{} has no path", args.place)).hint(format!(
                "everything in it:   plexum pool cp -r {}:/ DESTINATION MEMBER...",
                args.place
            )),
        );
    };
    let system = pool.file_system(&place.dataset).await.map_err(tell)?;
    let node = system.lookup(path.as_bytes()).await.map_err(tell)?;
    let is_folder = node.znode.kind() == FileKind::Directory;
    if is_folder && !args.recursive {
        return Err(
            Problem::new(Code::Usage, format!("{} is a folder", args.place))
                .hint("to copy it with everything below, add:   -r"),
        );
    }
    let name = path.rsplit('/').find(|part| !part.is_empty());
    let target = match name {
        Some(name) if args.destination.is_dir() => args.destination.join(name),
        _ => args.destination.clone(),
    };
    if common.dry_run {
        check_target(&node, &args.place, &target)?;
        screen.line(format!("would copy {} to {}", args.place, target.display()));
        return Ok(0);
    }
    let mut copy = Copy {
        system: &system,
        screen,
        dataset: place.dataset.to_string(),
        has_checksums: args.checksums,
        names: BTreeMap::new(),
        folders: Vec::new(),
        counts: Counts::default(),
        copied: Copied::new(screen),
    };
    if copy.copied.is_wanted() {
        copy.copied.total_bytes = size_of(&system, &node).await;
    }
    let path = format!("/{}", path.trim_matches('/'));
    if is_folder {
        copy.folder(&node, &path, &target).await?;
    } else {
        copy.entry(&node, &path, &target).await?;
    }
    copy.end().await
}

/// What the first step of a copy to `target` would be refused for.
fn check_target(node: &Node, shown: &str, target: &Path) -> Result<(), Problem> {
    let is_folder = node.znode.kind() == FileKind::Directory;
    match std::fs::symlink_metadata(target) {
        Ok(found) if is_folder && found.is_dir() => return Ok(()),
        Ok(_) => return Err(exists(target)),
        Err(_) => {}
    }
    if let FileKind::Special(_) = node.znode.kind() {
        return Err(special(shown));
    }
    let made = if is_folder {
        target.to_owned()
    } else {
        draft_of(target)
    };
    match made.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => std::fs::metadata(parent)
            .map(drop)
            .map_err(|error| told(&error, "making", &made)),
        _ => Ok(()),
    }
}

fn special(shown: &str) -> Problem {
    Problem::new(Code::NotYet, format!("{shown} is a device, socket or pipe"))
}

#[derive(Default)]
struct Counts {
    files: u64,
    folders: u64,
    links: u64,
    copied_bytes: u64,
    /// Extended attributes that the destination did not take.
    xattrs_lost: u64,
    failed: Vec<String>,
}

struct Copy<'a> {
    system: &'a FileSystem<AnyDevice>,
    screen: &'a Screen,
    dataset: String,
    has_checksums: bool,
    /// Where a file with several names was put first.
    names: BTreeMap<u64, PathBuf>,
    /// Folders whose attributes are set at the end, when nothing is made in them any more.
    folders: Vec<(PathBuf, Node)>,
    counts: Counts,
    copied: Copied,
}

/// Bytes of a file, or of all files below a folder; what cannot be read counts nothing.
async fn size_of(system: &FileSystem<AnyDevice>, node: &Node) -> u64 {
    let mut total: u64 = 0;
    let mut names = BTreeSet::new();
    let mut walk = system.walk(node.number());
    for _ in 0..COUNTED_MAX {
        let Some((place, node)) = walk.next().await else {
            break;
        };
        let node = node.ok().filter(|node| node.znode.kind() == FileKind::File);
        if let Some(node) = node.filter(|_| names.insert(place.number())) {
            total = total.saturating_add(node.znode.size_bytes);
        }
    }
    total
}

impl Copy<'_> {
    /// A folder with everything below.
    async fn folder(&mut self, node: &Node, path: &str, target: &Path) -> Result<(), Problem> {
        self.make_folder(node, target)?;
        let mut walk = self.system.walk(node.number());
        while let Some((place, node)) = walk.next().await {
            let names = place.names();
            let path = match names.is_empty() {
                true => path.to_owned(),
                false => format!("{}{}", path.trim_end_matches('/'), place.shown()),
            };
            let target = names.iter().fold(target.to_owned(), |path, name| {
                path.join(OsStr::from_bytes(name))
            });
            let result = match node {
                Err(error) => Err(error.to_string()),
                Ok(_) if names.is_empty() => Ok(()),
                Ok(node) if node.znode.kind() == FileKind::Directory => {
                    let made = self.make_folder(&node, &target);
                    if made.is_err() {
                        walk.pass_over();
                    }
                    made.map_err(|problem| problem.message)
                }
                Ok(node) => {
                    let copied = self.entry(&node, &path, &target).await;
                    copied.map_err(|problem| problem.message)
                }
            };
            if let Err(reason) = result {
                self.fail(&path, reason);
            }
        }
        Ok(())
    }

    /// Makes a folder, unless it is there.
    fn make_folder(&mut self, node: &Node, target: &Path) -> Result<(), Problem> {
        match std::fs::symlink_metadata(target) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(exists(target)),
            Err(_) => std::fs::DirBuilder::new()
                .mode(0o700)
                .create(target)
                .map_err(|error| told(&error, "making", target))?,
        }
        self.folders.push((target.to_owned(), node.clone()));
        self.counts.folders += 1;
        Ok(())
    }

    /// A file or link.
    async fn entry(&mut self, node: &Node, path: &str, target: &Path) -> Result<(), Problem> {
        if std::fs::symlink_metadata(target).is_ok() {
            return Err(exists(target));
        }
        if node.znode.link_count > 1
            && let Some(first) = self.names.get(&node.number())
        {
            std::fs::hard_link(first, target).map_err(|error| told(&error, "linking", target))?;
            self.counts.links += 1;
            return Ok(());
        }
        match node.znode.kind() {
            FileKind::File => self.file(node, path, target).await?,
            FileKind::Link => {
                let link = self.system.link_target(node).await;
                let link =
                    link.map_err(|error| problem(error, &format!("{}:{path}", self.dataset)))?;
                std::os::unix::fs::symlink(OsStr::from_bytes(&link), target)
                    .map_err(|error| told(&error, "making", target))?;
                self.counts.links += 1;
            }
            FileKind::Directory | FileKind::Special(_) => {
                return Err(special(&format!("{}:{path}", self.dataset)));
            }
        }
        set_attributes(target, &node.znode);
        self.set_xattrs(node, path, target).await;
        self.names.insert(node.number(), target.to_owned());
        Ok(())
    }

    async fn file(&mut self, node: &Node, path: &str, target: &Path) -> Result<(), Problem> {
        let draft = draft_of(target);
        let result = self.contents(node, path, &draft).await;
        let result = result.and_then(|hash| {
            std::fs::rename(&draft, target).map_err(|error| told(&error, "naming", target))?;
            Ok(hash)
        });
        match result {
            Ok(hash) => {
                self.counts.files += 1;
                self.copied.files += 1;
                if let Some(hash) = hash {
                    self.screen.line(format!("{hash}  {path}"));
                    self.screen.object(&object(
                        "copied",
                        None,
                        json!({"dataset": self.dataset, "path": path, "size_bytes": node.znode.size_bytes, "sha256": hash}),
                    ));
                }
                Ok(())
            }
            Err(problem) => {
                let _ = std::fs::remove_file(&draft);
                Err(problem)
            }
        }
    }

    /// Writes the contents to a new file; gives their hash when wanted.
    async fn contents(
        &mut self,
        node: &Node,
        path: &str,
        draft: &Path,
    ) -> Result<Option<String>, Problem> {
        let write = |error: std::io::Error| told(&error, "writing", draft);
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(draft)
            .map_err(|error| told(&error, "making", draft))?;
        let shown = format!("{}:{path}", self.dataset);
        let mut hash = self.has_checksums.then(Sha256::new);
        let mut reader = self.system.reader(node, &shown);
        let mut length = 0;
        while let Some(piece) = reader
            .next()
            .await
            .map_err(|error| problem(error, &shown))?
        {
            match &piece {
                Piece::Zeroes(count) => {
                    length += count;
                    self.copied.done_bytes = self.copied.done_bytes.saturating_add(*count);
                    out.seek(SeekFrom::Start(length)).map_err(write)?;
                    hash_zeroes(hash.as_mut(), *count);
                }
                Piece::Data(..) => {
                    for bytes in piece.slices() {
                        out.write_all(bytes).map_err(write)?;
                        length += bytes.len() as u64;
                        self.counts.copied_bytes += bytes.len() as u64;
                        self.copied.done_bytes += bytes.len() as u64;
                        if let Some(hash) = &mut hash {
                            hash.update(bytes);
                        }
                    }
                }
            }
            self.copied.tell();
        }
        out.set_len(length).map_err(write)?;
        Ok(hash.map(|hash| {
            hash.finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        }))
    }

    /// Extended attributes, as far as the destination takes them. A file is worth keeping without them.
    async fn set_xattrs(&mut self, node: &Node, path: &str, target: &Path) {
        match self.system.xattrs(node).await {
            Ok(xattrs) => {
                for (name, value) in xattrs {
                    let name = OsStr::from_bytes(&name);
                    let is_set = lsetxattr(target, name, &value, XattrFlags::empty()).is_ok();
                    self.counts.xattrs_lost += u64::from(!is_set);
                }
            }
            Err(error) => self.fail(path, format!("its extended attributes: {error}")),
        }
    }

    fn fail(&mut self, path: &str, reason: String) {
        let prefix = format!("{}:{path}", self.dataset);
        let text = if reason.starts_with(&prefix) {
            reason
        } else {
            format!("{prefix}: {reason}")
        };
        self.copied.end();
        crate::output::tell_line!("not copied: {text}");
        self.counts.failed.push(text);
    }

    /// Attributes of folders, innermost first, and the last words.
    async fn end(mut self) -> Outcome {
        for (folder, node) in std::mem::take(&mut self.folders).iter().rev() {
            self.set_xattrs(node, &folder.display().to_string(), folder)
                .await;
            set_attributes(folder, &node.znode);
        }
        self.copied.end();
        let Counts {
            files,
            folders,
            links,
            copied_bytes,
            xattrs_lost,
            failed,
        } = self.counts;
        self.screen.object(&object(
            "pool_copy",
            None,
            json!({"dataset": self.dataset, "files": files, "folders": folders, "links": links,
                "copied_bytes": copied_bytes, "xattrs_lost": xattrs_lost, "failed": failed}),
        ));
        if !self.has_checksums {
            self.screen.done(format!(
                "copied {files} files, {folders} folders, {links} links, {}",
                show_bytes(copied_bytes)
            ));
        }
        if xattrs_lost > 0 {
            self.screen.note(format!(
                "{xattrs_lost} extended attributes were not taken by the destination"
            ));
        }
        if !failed.is_empty() {
            self.screen
                .note(format!("{} could not be copied", failed.len()));
        }
        Ok(u8::from(!failed.is_empty()))
    }
}

fn hash_zeroes(hash: Option<&mut Sha256>, mut count: u64) {
    static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
    let Some(hash) = hash else { return };
    while count > 0 {
        let step = count.min(ZEROES.len() as u64);
        hash.update(&ZEROES[..step as usize]);
        count -= step;
    }
}

/// A name beside the target that nobody else uses.
fn draft_of(target: &Path) -> PathBuf {
    let number = std::process::id();
    target.with_file_name(format!(".plexum-{number}.part"))
}

/// Owner, mode and times. Only root may give files away; for others they stay the user's own.
fn set_attributes(target: &Path, znode: &Znode) {
    let _ = lchown(target, Some(znode.user_id), Some(znode.group_id));
    if znode.kind() != FileKind::Link {
        let _ =
            std::fs::set_permissions(target, std::fs::Permissions::from_mode(znode.mode & 0o7777));
    }
    let time = |time: plexum_format::zfs::znode::FileTime| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    };
    let times = Timestamps {
        last_access: time(znode.accessed),
        last_modification: time(znode.modified),
    };
    let _ = utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW);
}

fn exists(target: &Path) -> Problem {
    Problem::new(
        Code::WouldDestroy,
        format!("{} exists already", target.display()),
    )
    .hint("nothing is overwritten: give another destination, or move it away")
}

fn told(error: &std::io::Error, doing: &str, path: &Path) -> Problem {
    Problem::from_io(error, doing, &path.display().to_string())
}
