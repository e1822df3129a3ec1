//! Many files in a folder of ours: created, read and deleted as bonnie++ does it, each phase with its time.
//!
//! Invariants: one folder below ours, made anew for each order and removed with its last file; after an error or Ctrl-C
//! ours is removed whole.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plexum_disks::rng::Rng;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::interrupt;
use crate::error::LabError;
use crate::workload::files::{FilePhase, Order, PHASES, Spread, names, rearrange};

/// Inodes and bytes that stay free.
const SPARE_INODES: u64 = 64;
const SPARE_BYTES: u64 = 16 << 20;
/// What a small file takes at least.
const BLOCK_BYTES: u64 = 4096;

/// What files are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files {
    /// How many.
    pub(crate) count: u64,
    /// Bytes in each, at most.
    pub(crate) size_bytes: usize,
    /// Bytes in each, at least.
    pub(crate) size_bytes_min: usize,
    /// Folders that they are spread over, one after another; 0 and 1: all in one.
    pub(crate) folders: u64,
    /// Seed of names and orders.
    pub(crate) seed: u64,
}

/// What a phase took.
#[derive(Default)]
struct Timing {
    all: Duration,
    worst: Duration,
}

/// A folder full of files.
struct Filled {
    path: PathBuf,
    folder: OwnedFd,
    /// Folders in it that hold the files; empty: it holds them itself.
    inner: Vec<String>,
    names: Vec<String>,
}

fn failed(what: &str, name: &str, error: impl Into<std::io::Error>) -> LabError {
    LabError::Io(format!("{what} {name}: {}", error.into()))
}

/// Does `one` for each; says how long all and the worst took.
fn each<T>(
    all: impl Iterator<Item = T>,
    mut one: impl FnMut(T) -> Result<(), LabError>,
) -> Result<Timing, LabError> {
    let mut timing = Timing::default();
    let started = Instant::now();
    for item in all {
        interrupt::check()?;
        let began = Instant::now();
        one(item)?;
        timing.worst = timing.worst.max(began.elapsed());
    }
    timing.all = started.elapsed();
    Ok(timing)
}

/// What `call` took, whatever else it gives, is added.
fn timed<T>(all: &mut Duration, call: impl FnOnce() -> Result<T, LabError>) -> Result<T, LabError> {
    let started = Instant::now();
    let result = call();
    *all += started.elapsed();
    result
}

impl Files {
    /// Whether so many files have room where the folder is.
    ///
    /// # Errors
    /// `Usage` when they have not.
    pub(crate) fn check(&self, folder: &Path) -> Result<(), LabError> {
        let shown = folder.display();
        let space = rustix::fs::statvfs(folder).map_err(|error| {
            LabError::Usage(format!("{shown}: {}", std::io::Error::from(error)))
        })?;
        // Some file systems make inodes as they are wanted, and say that there are none.
        let inodes = self.count.saturating_add(self.folders + SPARE_INODES);
        let has_inodes = space.f_files == 0 || inodes <= space.f_favail;
        let size_bytes = match self.size_bytes {
            0 => 0,
            bytes => (bytes as u64).max(BLOCK_BYTES),
        };
        let wanted = self.count.saturating_mul(size_bytes);
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if has_inodes && wanted.saturating_add(SPARE_BYTES) <= free {
            return Ok(());
        }
        Err(LabError::Usage(format!(
            "{shown}: {} files of {} bytes are wanted, {free} bytes and {} inodes are free; --files takes fewer",
            self.count, self.size_bytes, space.f_favail
        )))
    }

    /// All six phases below `folder`.
    ///
    /// # Errors
    /// What the file system said; `Interrupted`.
    pub(crate) fn run(&self, folder: &Path) -> Result<Vec<FilePhase>, LabError> {
        let mut phases = Vec::new();
        let base = Rng::new(self.seed);
        for (label, order) in [(1, Order::Sequential), (2, Order::Random)] {
            let mut rng = base.fork(label);
            let (mut filled, create) = self.create(&folder.join("files"), order, &mut rng)?;
            rearrange(&mut filled.names, order, &mut rng);
            let stat = self.read_all(&filled, order)?;
            rearrange(&mut filled.names, order, &mut rng);
            let delete = filled.delete(order)?;
            for timing in [create, stat, delete] {
                phases.push(FilePhase {
                    name: PHASES[phases.len()],
                    files_per_s: self.count as f64 / timing.all.as_secs_f64().max(1e-9),
                    worst_us: timing.worst.as_secs_f64() * 1e6,
                });
            }
        }
        Ok(phases)
    }

    /// The names with their folders, and these.
    fn placed(&self, names: Vec<String>) -> (Vec<String>, Vec<String>) {
        if self.folders < 2 {
            return (names, Vec::new());
        }
        let spread = Spread {
            files: self.count,
            folders: self.folders,
        };
        let folder = |number: u64| format!("{number:05}");
        let inner = (0..self.folders).map(folder).collect();
        let placed = (0..)
            .zip(names)
            .map(|(at, name)| format!("{}/{name}", folder(spread.folder_of(at))));
        (placed.collect(), inner)
    }

    /// Creates them by number, with content where they have any, and waits until that is durable.
    fn create(
        &self,
        path: &Path,
        order: Order,
        rng: &mut Rng,
    ) -> Result<(Filled, Timing), LabError> {
        let shown = path.display().to_string();
        std::fs::create_dir(path).map_err(|error| failed("making", &shown, error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| failed("opening", &shown, error))?;
        let (names, inner) = self.placed(names(self.count, order, rng));
        let filled = Filled {
            path: path.to_owned(),
            folder,
            inner,
            names,
        };
        for name in &filled.inner {
            rustix::fs::mkdirat(&filled.folder, name.as_str(), Mode::RWXU)
                .map_err(|error| failed("making", name, error))?;
        }
        let content = vec![0; self.size_bytes];
        let room = self.size_bytes.saturating_sub(self.size_bytes_min) as u64;
        let mut sizes = rng.fork(3);
        let mut length = || self.size_bytes - sizes.below(room + 1) as usize;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut timing = each(filled.names.iter(), |name| {
            let mode = Mode::RUSR | Mode::WUSR;
            let file = rustix::fs::openat(&filled.folder, name.as_str(), flags, mode)
                .map_err(|error| failed("creating", name, error))?;
            let length = if room > 0 { length() } else { content.len() };
            if length == 0 {
                return Ok(());
            }
            std::io::Write::write_all(&mut std::fs::File::from(file), &content[..length])
                .map_err(|error| failed("writing", name, error))
        })?;
        timed(&mut timing.all, || filled.sync())?;
        Ok((filled, timing))
    }

    /// Looks at each, and reads it where it is not empty.
    fn read_all(&self, filled: &Filled, order: Order) -> Result<Timing, LabError> {
        let mut content = vec![0; self.size_bytes];
        filled.visit(order, |name| {
            let seen = rustix::fs::statat(&filled.folder, name, AtFlags::empty())
                .map_err(|error| failed("looking at", name, error))?;
            if seen.st_size == 0 {
                return Ok(());
            }
            let file = rustix::fs::openat(&filled.folder, name, OFlags::RDONLY, Mode::empty())
                .map_err(|error| failed("opening", name, error))?;
            let length = content
                .len()
                .min(usize::try_from(seen.st_size).unwrap_or(0));
            std::io::Read::read_exact(&mut std::fs::File::from(file), &mut content[..length])
                .map_err(|error| failed("reading", name, error))
        })
    }
}

impl Filled {
    /// Does `one` for each name: as the folder lists them, or as our list has them.
    fn visit(
        &self,
        order: Order,
        mut one: impl FnMut(&str) -> Result<(), LabError>,
    ) -> Result<Timing, LabError> {
        if order == Order::Random {
            return each(self.names.iter(), |name| one(name));
        }
        let shown = self.path.display().to_string();
        let started = Instant::now();
        let (mut count, mut timing) = (0, Timing::default());
        let whole = [String::new()];
        for inner in if self.inner.is_empty() {
            &whole[..]
        } else {
            &self.inner
        } {
            let listed = std::fs::read_dir(self.path.join(inner))
                .map_err(|error| failed("listing", &shown, error))?;
            let part = each(listed, |entry| {
                let entry = entry.map_err(|error| failed("listing", &shown, error))?;
                count += 1;
                let name = Path::new(inner).join(entry.file_name());
                one(&name.to_string_lossy())
            })?;
            timing.worst = timing.worst.max(part.worst);
        }
        timing.all = started.elapsed();
        if count != self.names.len() {
            return Err(LabError::Io(format!(
                "{shown} lists {count} files, {} were created",
                self.names.len()
            )));
        }
        Ok(timing)
    }

    /// Deletes all, and the folder, and waits until that is durable.
    fn delete(self, order: Order) -> Result<Timing, LabError> {
        let mut timing = self.visit(order, |name| {
            rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())
                .map_err(|error| failed("deleting", name, error))
        })?;
        timed(&mut timing.all, || {
            for inner in &self.inner {
                std::fs::remove_dir(self.path.join(inner))
                    .map_err(|error| failed("removing", inner, error))?;
            }
            std::fs::remove_dir(&self.path)
                .map_err(|error| failed("removing", &self.path.display().to_string(), error))?;
            self.sync()
        })?;
        Ok(timing)
    }

    /// Everything of this file system is durable.
    fn sync(&self) -> Result<(), LabError> {
        rustix::fs::syncfs(self.folder.as_fd())
            .map_err(|error| failed("syncing", &self.path.display().to_string(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_phases_create_read_and_delete_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for size_bytes in [0, 5000] {
            let files = Files {
                count: 200,
                size_bytes,
                size_bytes_min: 0,
                folders: 7,
                seed: 3,
            };
            files.check(folder.path()).unwrap();
            let phases = files.run(folder.path()).unwrap();
            let named: Vec<&str> = phases.iter().map(|phase| phase.name).collect();
            assert_eq!(named, PHASES);
            for phase in phases {
                assert!(phase.files_per_s > 0.0 && phase.worst_us > 0.0, "{phase:?}");
            }
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn files_are_of_all_sizes_between_two_and_in_so_many_folders() {
        let place = tempfile::tempdir().unwrap();
        let files = Files {
            count: 320,
            size_bytes: 1024,
            size_bytes_min: 16,
            folders: 16,
            seed: 3,
        };
        for order in [Order::Sequential, Order::Random] {
            let path = place.path().join("files");
            let (filled, _) = files.create(&path, order, &mut Rng::new(9)).unwrap();
            let mut sizes = Vec::new();
            let folders: Vec<_> = std::fs::read_dir(&path).unwrap().flatten().collect();
            assert_eq!(folders.len(), 16);
            for folder in folders {
                let listed = std::fs::read_dir(folder.path()).unwrap().flatten();
                let lengths: Vec<u64> = listed.map(|one| one.metadata().unwrap().len()).collect();
                assert_eq!(lengths.len(), 20);
                sizes.extend(lengths);
            }
            assert!(
                sizes.iter().all(|size| (16..=1024).contains(size)),
                "{sizes:?}"
            );
            assert!(sizes.iter().any(|size| *size < 300) && sizes.iter().any(|size| *size > 700));
            filled.delete(order).unwrap();
            assert!(!path.exists());
        }
    }

    #[test]
    fn every_folder_is_made_and_the_last_ones_stay_empty_where_files_are_fewer() {
        let place = tempfile::tempdir().unwrap();
        for (folders, filled_each) in [
            (3, &[4, 4, 2][..]),
            (7, &[2, 2, 2, 2, 2, 0, 0][..]),
            (11, &[1; 10][..]),
        ] {
            let files = Files {
                count: 10,
                size_bytes: 0,
                size_bytes_min: 0,
                folders,
                seed: 3,
            };
            let path = place.path().join("files");
            let (filled, _) = files
                .create(&path, Order::Sequential, &mut Rng::new(9))
                .unwrap();
            let mut seen = Vec::new();
            for folder in 0..folders {
                let listed = std::fs::read_dir(path.join(format!("{folder:05}"))).unwrap();
                seen.push(listed.count());
            }
            assert_eq!(seen[..filled_each.len()], *filled_each);
            assert_eq!(seen.iter().sum::<usize>(), 10);
            filled.delete(Order::Sequential).unwrap();
            assert!(!path.exists());
        }
    }

    #[test]
    fn files_that_have_no_room_are_refused_before_one_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files {
            count: u64::MAX >> 1,
            size_bytes: 1 << 20,
            size_bytes_min: 1 << 20,
            folders: 0,
            seed: 3,
        };
        let refused = files.check(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("--files takes fewer"), "{refused}");
    }

    #[test]
    fn both_orders_ask_for_every_file_once() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files {
            count: 300,
            size_bytes: 1,
            size_bytes_min: 1,
            folders: 0,
            seed: 3,
        };
        for order in [Order::Sequential, Order::Random] {
            let mut rng = Rng::new(9);
            let path = folder.path().join("files");
            let (filled, _) = files.create(&path, order, &mut rng).unwrap();
            let mut asked = Vec::new();
            let note = |name: &str| {
                asked.push(name.to_owned());
                Ok(())
            };
            filled.visit(order, note).unwrap();
            let mut sorted = asked.clone();
            sorted.sort();
            let mut created = filled.names.clone();
            created.sort();
            assert_eq!(sorted, created, "{order:?}");
            filled.delete(order).unwrap();
        }
    }
}
