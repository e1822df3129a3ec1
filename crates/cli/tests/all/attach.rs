//! File systems on attached volumes, through the program, the kernel's FUSE and its loop devices. Needs root.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::common::{Place, Run};

/// EIO of the system.
const EIO: i32 = 5;

/// A volume `nas` that is served, in a folder of its own with a folder `mnt`. At the end all is undone.
struct Served {
    server: Child,
    place: Place,
}

impl Served {
    /// Makes the volume with `create` and serves `members`.
    fn new(name: &str, create: &str, members: &str) -> Self {
        let place = Place::new(name);
        fs::create_dir(place.file("mnt")).unwrap();
        let words = format!("create nas --strip 64K {create} {members}");
        done(place.plexum(&words));
        let server = serve(&place, members);
        Self { server, place }
    }

    fn mnt(&self) -> PathBuf {
        self.place.file("mnt")
    }

    /// Attaches it, mounted or not; the device.
    fn attach(&self, mountpoint: &str) -> String {
        let words = format!("attach nas {mountpoint} --by fuse --reconnect 0");
        let run = done(self.place.plexum(&words));
        let device = run.out.trim().to_owned();
        assert!(device.starts_with("/dev/loop"), "{device}");
        device
    }

    /// Detaches it; nothing may be left.
    fn detach(&self) {
        done(self.place.plexum("detach nas"));
        self.assert_nothing_is_left();
    }

    fn assert_nothing_is_left(&self) {
        let here = self.place.folder.display().to_string();
        for (table, text) in [
            ("loop devices", done(self.place.tool("losetup", "-a")).out),
            (
                "mounts",
                fs::read_to_string("/proc/self/mountinfo").unwrap(),
            ),
        ] {
            assert!(!text.contains(&here), "{table} left:\n{text}");
        }
        let left: Vec<_> = fs::read_dir(self.place.file("plexum/attach"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert!(left.is_empty(), "left: {left:?}");
    }

    fn kill_server(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.place.plexum("detach");
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn serve(place: &Place, words: &str) -> Child {
    let mut child = place
        .command(env!("CARGO_BIN_EXE_plexum"))
        .arg("serve")
        .args(words.split_whitespace())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    assert!(line.starts_with("nas "), "plexum serve {words}: {line}");
    child
}

/// The run, which must have ended well.
fn done(run: Run) -> Run {
    assert_eq!(run.exit, 0, "{}{}", run.out, run.err);
    run
}

/// Fills `folder` with files of many sizes whose content follows from `seed`, and makes them durable.
fn fill(folder: &Path, seed: u64) {
    fs::create_dir(folder).unwrap();
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for index in 0..48 {
        let size = next() % [9, 5000, 70_000, 400_000][index % 4];
        let bytes: Vec<u8> = (0..size.div_ceil(8))
            .flat_map(|_| next().to_le_bytes())
            .collect();
        let mut file = fs::File::create(folder.join(format!("file-{index}"))).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
    }
}

/// A hash of every file below `folder`, by its path.
fn hashes(folder: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("lost+found") {
                found.extend(hashes(&path));
            }
            continue;
        }
        let mut hasher = DefaultHasher::new();
        fs::read(&path).unwrap().hash(&mut hasher);
        found.insert(path, hasher.finish());
    }
    found
}

/// Makes a file system, fills it, takes it off, checks it, mounts it again and compares.
fn file_system_lives(served: &Served, make: &str, check: &str) {
    let tool = |words: &str, device: &str| {
        let (program, rest) = words.split_once(' ').unwrap_or((words, ""));
        done(served.place.tool(program, &format!("{rest} {device}")));
    };
    let device = served.attach("");
    tool(make, &device);
    served.detach();
    served.attach("mnt");
    fill(&served.mnt().join("one"), 1);
    let before = hashes(&served.mnt());
    assert_eq!(before.len(), 48);
    served.detach();
    assert!(hashes(&served.mnt()).is_empty());
    let device = served.attach("");
    tool(check, &device);
    served.detach();
    served.attach("mnt");
    assert!(hashes(&served.mnt()) == before, "content differs");
    served.detach();
    done(served.place.plexum("scrub nas --wait"));
}

#[test]
fn ext4_keeps_its_files_while_a_member_is_replaced() {
    let served = Served::new("attach-ext4", "--level 6 --member-size 24M", "a b c d");
    served.place.sparse("e", 24 << 20);
    file_system_lives(&served, "mkfs.ext4 -q", "e2fsck -fn");
    served.attach("mnt");
    done(served.place.plexum("fail nas b"));
    let folder = served.mnt().join("two");
    let writer = std::thread::spawn(move || fill(&folder, 2));
    done(served.place.plexum("add nas e --wait"));
    writer.join().unwrap();
    let before = hashes(&served.mnt());
    assert_eq!(before.len(), 96);
    served.detach();
    let device = served.attach("");
    done(served.place.tool("e2fsck", &format!("-fn {device}")));
    served.detach();
    // What the spare holds is what is read once two others are gone.
    done(served.place.plexum("fail nas a"));
    done(served.place.plexum("fail nas c"));
    served.attach("mnt");
    assert!(hashes(&served.mnt()) == before, "content differs");
    served.detach();
}

#[test]
fn xfs_keeps_its_files() {
    let served = Served::new("attach-xfs", "--level 1 --member-size 320M", "a b");
    file_system_lives(&served, "mkfs.xfs -q", "xfs_repair -n");
}

#[test]
fn btrfs_keeps_its_files() {
    let served = Served::new("attach-btrfs", "--level 10 --member-size 320M", "a b c");
    file_system_lives(&served, "mkfs.btrfs -q", "btrfs check");
}

#[test]
fn a_killed_server_gives_errors_and_detach_still_works() {
    let mut served = Served::new("attach-kill", "--level 1 --member-size 24M", "a b");
    let device = served.attach("");
    done(served.place.tool("mkfs.ext4", &format!("-q {device}")));
    served.detach();
    let device = served.attach("mnt");
    fill(&served.mnt().join("one"), 1);
    let before = hashes(&served.mnt());
    served.kill_server();
    let write = || {
        let mut file = fs::File::create(served.mnt().join("late"))?;
        file.write_all(&[1; 100_000])?;
        file.sync_all()
    };
    assert!(write().is_err());
    let direct = format!("if={device} of=/dev/null iflag=direct count=1");
    let read = served.place.tool("dd", &direct);
    assert!(read.exit != 0 && read.err.contains("Input/output error"));
    served.detach();
    served.server = serve(&served.place, "a b");
    served.attach("mnt");
    let mut after = hashes(&served.mnt());
    after.remove(&served.mnt().join("late"));
    assert!(after == before, "what was durable is not there any more");
    served.detach();
}

#[test]
fn the_file_gives_eio_after_the_server_and_all_is_undone_after_the_process_was_killed() {
    let mut served = Served::new("attach-eio", "--level 1 --member-size 24M", "a b");
    let attached = done(served.place.plexum("attach --json --by fuse --reconnect 0"))
        .objects()
        .remove(0);
    assert_eq!(attached["kind"], "attached");
    let open = || {
        let mut options = fs::OpenOptions::new();
        let path = attached["file"].as_str().unwrap();
        options.read(true).write(true).open(path)
    };
    let file = open().unwrap();
    file.write_all_at(&[7; 4096], 4096).unwrap();
    file.sync_all().unwrap();
    let mut bytes = [0; 4098];
    file.read_exact_at(&mut bytes, 4095).unwrap();
    assert!(bytes[0] == 0 && bytes[1..4097] == [7; 4096] && bytes[4097] == 0);
    served.kill_server();
    let code = |error: std::io::Error| error.raw_os_error();
    assert_eq!(
        file.write_all_at(&[8; 512], 0).map_err(code),
        Err(Some(EIO))
    );
    assert_eq!(file.sync_all().map_err(code), Err(Some(EIO)));
    assert_eq!(
        file.read_exact_at(&mut bytes, 0).map_err(code),
        Err(Some(EIO))
    );
    drop(file);
    let pid = attached["pid"].to_string();
    done(served.place.tool("kill", &format!("-KILL {pid}")));
    served.detach();
}

#[test]
fn a_punched_hole_reads_as_zeroes() {
    let served = Served::new("attach-hole", "--level 5 --member-size 24M", "a b c");
    let device = served.attach("");
    let disk = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&device)
        .unwrap();
    disk.write_all_at(&[9; 1 << 20], 0).unwrap();
    disk.sync_all().unwrap();
    for words in [
        "blkdiscard -o 65536 -l 131072",
        "blkdiscard -z -o 524288 -l 4096",
    ] {
        let (program, rest) = words.split_once(' ').unwrap();
        done(served.place.tool(program, &format!("{rest} {device}")));
    }
    let mut bytes = vec![0; 1 << 20];
    disk.read_exact_at(&mut bytes, 0).unwrap();
    for (at, byte) in bytes.iter().enumerate() {
        let is_hole = (65536..65536 + 131_072).contains(&at) || (524_288..528_384).contains(&at);
        assert_eq!(*byte, if is_hole { 0 } else { 9 }, "at {at}");
    }
    drop(disk);
    served.detach();
}

#[test]
fn a_read_only_volume_becomes_a_read_only_device() {
    let mut served = Served::new("attach-ro", "--level 1 --member-size 24M", "a b");
    let device = served.attach("");
    done(served.place.tool("mkfs.ext4", &format!("-q {device}")));
    served.detach();
    done(served.place.plexum("stop nas"));
    served.server.wait().unwrap();
    served.server = serve(&served.place, "--read-only a b");
    let device = served.attach("mnt");
    let flag = done(served.place.tool("blockdev", &format!("--getro {device}")));
    assert_eq!(flag.out, "1\n");
    assert!(fs::write(served.mnt().join("x"), "x").is_err());
    served.detach();
}

#[test]
fn what_cannot_be_attached_leaves_nothing_behind() {
    let served = Served::new("attach-refuse", "--level 1 --member-size 24M", "a b");
    let place = &served.place;
    for (words, exit, part) in [
        ("attach other", 7, "no volume other"),
        ("attach nas nowhere", 4, "mkdir -p nowhere"),
        ("attach nas a", 2, "not a folder"),
        ("attach nas mnt", 5, "cannot be mounted"),
        ("detach", 7, "no volume is attached"),
        ("detach nas", 7, "no volume nas is attached"),
    ] {
        let run = place.plexum(words);
        assert_eq!(run.exit, exit, "{words}: {}", run.err);
        assert!(run.err.contains(part), "{words}: {}", run.err);
        let left: Vec<_> = fs::read_dir(place.file("plexum/attach"))
            .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
            .unwrap_or_default();
        assert!(left.is_empty(), "{words}: {left:?}");
    }
    done(place.plexum("attach nas --dry-run"));
    let device = served.attach("");
    let again = place.plexum("attach nas");
    assert_eq!(again.exit, 6, "{}", again.err);
    assert!(again.err.contains("plexum detach nas"), "{}", again.err);
    // A second loop device on the file, of which nothing was written down, goes as well.
    let file = place.file("plexum/attach/nas/nas").display().to_string();
    let second = done(place.tool("losetup", &format!("--find --show {file}")));
    assert_ne!(second.out.trim(), device);
    served.detach();
}

#[test]
fn an_attachment_in_use_is_busy_until_it_is_free() {
    let served = Served::new("attach-busy", "--level 1 --member-size 24M", "a b");
    let device = served.attach("");
    done(served.place.tool("mkfs.ext4", &format!("-q {device}")));
    let mnt = served.mnt();
    let words = format!("{device} {}", mnt.display());
    done(served.place.tool("mount", &words));
    let busy = served.place.plexum("detach nas");
    assert_eq!(busy.exit, 6, "{}", busy.err);
    assert!(busy.err.contains("umount "), "{}", busy.err);
    done(served.place.tool("umount", &mnt.display().to_string()));
    served.detach();
    served.attach("mnt");
    let held = fs::File::create(mnt.join("held")).unwrap();
    let busy = served.place.plexum("detach nas");
    assert_eq!(busy.exit, 6, "{}", busy.err);
    drop(held);
    fs::write(mnt.join("works"), "still").unwrap();
    served.detach();
}
