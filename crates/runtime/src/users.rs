//! Who else uses a file: loop devices, swap, processes that have it open for writing, and for a loop device whoever has
//! locked the file behind it. A block device says so by itself (`O_EXCL`); a file does not.

use std::cell::LazyCell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Stat};

use crate::blockdev::mount_of;
use crate::lock;

/// A file of one file system, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileNumber {
    device: u64,
    inode: u64,
}

impl FileNumber {
    fn at(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
        })
    }
}

/// Who in the kernel uses what `stat` is about in a way that a write would spoil, each with what ends it.
#[must_use]
pub fn holders(stat: &Stat) -> Vec<String> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let file = FileNumber {
                device: stat.st_dev,
                inode: stat.st_ino,
            };
            let mut lines = loops_on(Path::new("/sys/block"), loops_in_use(), file);
            lines.extend(swap_on(file));
            lines
        }
        FileType::BlockDevice => locked_behind(stat).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The mounts that there are, to tell whether a path leads to a file without asking its file system: one that is
/// another process, or another machine, may not answer for ever.
struct Mounts(String);

impl Mounts {
    fn look() -> Self {
        Self(fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// Whether `path` may lead to `file`: not when it is known to lie on another file system that others serve.
    fn may_lead(&self, path: &Path, file: FileNumber) -> bool {
        let mut on = None;
        for line in self.0.lines() {
            let mut fields = line.split(' ');
            let (Some(number), Some(point)) = (fields.nth(2), fields.nth(1)) else {
                continue;
            };
            let depth = Path::new(&unescaped(point)).components().count();
            if !path.starts_with(unescaped(point)) || on.is_some_and(|(known, _, _)| known > depth)
            {
                continue;
            }
            let kind = fields.skip_while(|field| *field != "-").nth(1);
            on = Some((depth, number, kind.unwrap_or_default())); // a later mount lies over an earlier one
        }
        let Some((_, number, kind)) = on else {
            return true;
        };
        let served_by_others = ["fuse", "nfs", "cifs", "smb", "9p", "ceph"];
        let (major, minor) = (
            rustix::fs::major(file.device),
            rustix::fs::minor(file.device),
        );
        !served_by_others.iter().any(|one| kind.starts_with(one))
            || number == format!("{major}:{minor}")
    }
}

/// A path of mountinfo, where blanks and the like are written in octal.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => {
                path.push(char::from(code));
                path.push_str(&part[3..]);
            }
            None => {
                path.push('\\');
                path.push_str(part);
            }
        }
    }
    path
}

/// Those of the loop devices `names` that are on the file. The kernel tells a path, which may name another file by now
/// or none: that one is not meant.
fn loops_on(blocks: &Path, mut names: Vec<String>, file: FileNumber) -> Vec<String> {
    let mounts = LazyCell::new(Mounts::look); // most machines have no loop device in use
    names.retain(|name| {
        let behind = backing_file(&blocks.join(name));
        let behind = behind.filter(|behind| mounts.may_lead(behind, file));
        behind.and_then(|behind| FileNumber::at(&behind)) == Some(file)
    });
    names.sort();
    names.iter().map(|name| describe_loop(name)).collect()
}

/// Names of the loop devices that have a size. The kernel makes some that nobody uses yet, and each would be asked.
///
/// Source: proc(5), `/proc/partitions`: the fourth word of a line is a name; what has no size is not in it.
fn loops_in_use() -> Vec<String> {
    let Ok(text) = fs::read_to_string("/proc/partitions") else {
        return loops_in(Path::new("/sys/block"));
    };
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(3));
    names
        .filter(|name| is_loop(name))
        .map(str::to_owned)
        .collect()
}

fn loops_in(blocks: &Path) -> Vec<String> {
    let entries = fs::read_dir(blocks).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| is_loop(name)).collect()
}

/// Whether that is a loop device itself, no partition of one.
fn is_loop(name: &str) -> bool {
    let number = name.strip_prefix("loop").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
}

fn backing_file(folder: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(folder.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

fn describe_loop(name: &str) -> String {
    match mount_of(name) {
        Some(mounted) => format!(
            "the loop device /dev/{name}, mounted at {mounted} (end it with: umount {mounted} && losetup -d /dev/{name})"
        ),
        None => format!("the loop device /dev/{name} (end it with: losetup -d /dev/{name})"),
    }
}

/// The swap space that the file is. The first word of a line is its path, with `\040` for a blank.
fn swap_on(file: FileNumber) -> Option<String> {
    let text = fs::read_to_string("/proc/swaps").ok()?;
    let path = text.lines().skip(1).find_map(|line| {
        let path = line.split_whitespace().next()?.replace("\\040", " ");
        (FileNumber::at(Path::new(&path)) == Some(file)).then_some(path)
    })?;
    Some(format!("swap (end it with: swapoff {path})"))
}

/// The process that has locked the file behind a loop device: a server, whose member it is.
fn locked_behind(stat: &Stat) -> Option<String> {
    let (major, minor) = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition has its disk's folder above it.
    let file = backing_file(&folder).or_else(|| backing_file(&folder.join("..")))?;
    let behind = rustix::fs::stat(&file).ok()?;
    let place = lock::place_of(&behind);
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let is_lock = |line: &str| line.contains("OFDLCK") && line.contains(&place);
    if !locks.lines().any(is_lock) {
        return None;
    }
    let who = lock::holder(&behind).map_or(String::new(), |pid| format!(" ({pid})"));
    let shown = file.display();
    Some(format!(
        "another process{who} that has {shown}, the file behind it"
    ))
}

/// How long a child may take from its fork to its program. On a machine with much to do it waits for its turn.
const START: Duration = Duration::from_secs(1);

/// Another process that has the file open for writing, as far as this one may see. It takes some milliseconds: for
/// members that are about to be overwritten, not for each opening.
///
/// A child of this process has a copy of every open file until its own program runs. It would be taken for a user of a
/// file that this process has closed meanwhile, so its program is waited for, at most a second.
#[must_use]
pub fn writer(path: &Path) -> Option<u32> {
    let file = FileNumber::at(path).filter(|_| path.is_file())?;
    let own = std::process::id();
    let mounts = Mounts::look();
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let waits_until = Instant::now() + START;
    pids.filter(|pid| *pid != own).find(|pid| {
        while has_for_writing(*pid, file, &mounts) {
            if !is_starting(*pid) || Instant::now() >= waits_until {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    })
}

fn has_for_writing(pid: u32, file: FileNumber, mounts: &Mounts) -> bool {
    let fds = fs::read_dir(format!("/proc/{pid}/fd"));
    fds.into_iter().flatten().flatten().any(|fd| {
        let opened = fs::read_link(fd.path());
        if !opened.is_ok_and(|opened| mounts.may_lead(&opened, file)) {
            return false;
        }
        FileNumber::at(&fd.path()) == Some(file) && is_for_writing(pid, &fd.file_name())
    })
}

/// Whether a process is a child of this one that has this one's program, as it has between its fork and its exec. A
/// child that runs the same program for good looks the same.
fn is_starting(pid: u32) -> bool {
    let program = |of: &str| fs::read_link(format!("/proc/{of}/exe")).ok();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let parent = parent.and_then(|parent| parent.trim().parse().ok());
    parent == Some(std::process::id()) && program(&pid.to_string()) == program("self")
}

/// The line `flags:` of fdinfo is octal; its last two bits are the access mode, 0 for reading alone.
fn is_for_writing(pid: u32, fd: &std::ffi::OsStr) -> bool {
    let path = Path::new("/proc")
        .join(pid.to_string())
        .join("fdinfo")
        .join(fd);
    let text = fs::read_to_string(path).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u64::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 3 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_device_is_found_by_the_file_and_not_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a b.img");
        fs::write(&file, "x").expect("a file");
        let link = folder.path().join("link");
        fs::hard_link(&file, &link).expect("a link");
        let blocks = folder.path().join("block");
        for (name, path) in [("loop3", &file), ("loop4", &folder.path().join("gone"))] {
            let inside = blocks.join(name).join("loop");
            fs::create_dir_all(&inside).expect("a folder");
            fs::write(inside.join("backing_file"), format!("{}\n", path.display()))
                .expect("a file");
        }
        fs::create_dir_all(blocks.join("loop5")).expect("a folder");
        let number = FileNumber::at(&link).expect("a file");
        let lines = loops_on(&blocks, loops_in(&blocks), number);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("losetup -d /dev/loop3"), "{lines:?}");
        fs::remove_file(&file).expect("it is there");
        fs::write(&file, "y").expect("another file of that name");
        assert!(loops_on(&blocks, loops_in(&blocks), number).is_empty());
    }

    #[test]
    fn a_file_system_of_another_process_is_asked_for_its_own_files_alone() {
        let mounts = Mounts(
            "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
             40 22 0:52 / /run/my\\040disk rw,nosuid - fuse plexum rw\n\
             41 22 0:53 / /srv rw - nfs4 host:/srv rw\n\
             42 41 8:2 / /srv/local rw - ext4 /dev/sda2 rw\n"
                .to_owned(),
        );
        let on = |major, minor| FileNumber {
            device: rustix::fs::makedev(major, minor),
            inode: 7,
        };
        let may = |path: &str, file| mounts.may_lead(Path::new(path), file);
        assert!(!may("/run/my disk/nas", on(8, 1)));
        assert!(may("/run/my disk/nas", on(0, 52)), "it may be its own file");
        assert!(!may("/srv/a.img", on(8, 1)));
        assert!(
            may("/srv/local/a.img", on(8, 1)),
            "disks of this machine answer"
        );
        assert!(may("/data/a.img", on(8, 1)));
    }

    #[test]
    fn only_other_processes_that_can_write_count() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(writer(file.path()), None, "this process does not count");
        let start = |words: &str| {
            let mut child = std::process::Command::new("sh")
                .args(["-c", words, "sh"])
                .arg(file.path())
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("a shell");
            let mut line = String::new();
            let out = child.stdout.as_mut().expect("a pipe");
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)
                .expect("a line");
            child
        };
        for (words, is_found) in [
            ("exec 3<\"$1\"; echo x; read y", false),
            ("exec 3>>\"$1\"; echo x; read y", true),
        ] {
            let mut child = start(words);
            let expected = is_found.then(|| child.id());
            assert_eq!(writer(file.path()), expected, "{words}");
            drop(child.stdin.take());
            child.wait().expect("it ends");
        }
    }

    #[test]
    fn a_child_that_is_being_started_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("member");
        let done = std::sync::atomic::AtomicBool::new(false);
        // The kernel copies the words before it closes what the child is not to have.
        let words = vec!["x".repeat(100_000); 12];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let status = std::process::Command::new("true").args(&words).status();
                    assert!(status.expect("a program").success());
                }
            });
            let found = (0..300).find_map(|_| {
                fs::write(&file, "x").expect("a file");
                writer(&file)
            });
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(found, None, "nobody but this process wrote to it");
        });
    }
}
