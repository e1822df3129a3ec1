//! A volume that is served, filled with a pattern and read back; what the tests with the kernel's driver have in
//! common.

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Child, Stdio};

use plexum_oracle::pattern_bytes;
use serde_json::Value;

use super::{Place, Run};

/// What the random load writes; the pattern has no such sector.
const LOAD: u8 = 0xa5;

const SECTOR_BYTES: usize = 512;

/// Looks before a test gives up; each starts a program, so that they take minutes.
const POLLS_MAX: usize = 20_000;

/// A server in the foreground, killed at the end when it still runs.
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts `plexum serve WORDS --name nas` and waits until it is ready.
    pub fn start(place: &Place, words: &str) -> Self {
        let mut child = place
            .command(env!("CARGO_BIN_EXE_plexum"))
            .args(["serve", "--name", "nas"])
            .args(words.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let folder = place.folder.display();
        assert!(
            !line.is_empty(),
            "{folder}: plexum serve {words} did not get ready"
        );
        Self { child }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, as a crash of the program.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// `plexum stop`, and the end of the server.
    pub fn stop(mut self, place: &Place) {
        let stopped = place.plexum("stop nas");
        assert_eq!(stopped.exit, 0, "{}", stopped.err);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The socket of the volume `nas`.
pub fn uri(place: &Place) -> String {
    super::uri(place, "nas")
}

/// Runs plexum, which must succeed.
pub fn done(place: &Place, words: &str) -> Run {
    let run = place.plexum(words);
    let folder = place.folder.display();
    assert_eq!(
        run.exit, 0,
        "{folder}: plexum {words}: {}{}",
        run.out, run.err
    );
    run
}

/// Status of the served volume.
pub fn status(place: &Place) -> Value {
    first_object(place, "status nas --json")
}

/// Counters of the served volume.
pub fn stats(place: &Place) -> Value {
    first_object(place, "stats nas --json")
}

fn first_object(place: &Place, words: &str) -> Value {
    let run = place.plexum(words); // exit code 1 says that something is missing
    let first = run.objects().into_iter().next();
    first.unwrap_or_else(|| panic!("plexum {words}: {}", run.err))
}

/// Polls `look` until it says `true`.
pub fn wait_until(place: &Place, what: &str, mut look: impl FnMut() -> bool) {
    for _ in 0..POLLS_MAX {
        if look() {
            return;
        }
    }
    panic!(
        "{}: waited in vain until {what}; {}",
        place.folder.display(),
        status(place)
    );
}

/// Waits until nothing runs in the background and the metadata on the members say clean.
pub fn wait_until_clean(place: &Place) {
    wait_until(place, "the volume is clean and nothing runs", || {
        let status = status(place);
        status["jobs"].as_array().unwrap().is_empty()
            && status["is_dirty"] == false
            && status["bitmap"]["doubtful_regions"].as_u64().unwrap_or(0) == 0
    });
}

/// A mirror `nas` of two files `a` and `b` that is served in the foreground and at rest.
pub fn mirror(name: &str) -> (Place, Server) {
    let place = Place::in_memory(name);
    done(&place, "create nas --level 1 --member-size 24M a b");
    let server = Server::start(&place, "a b");
    wait_until_clean(&place);
    (place, server)
}

/// Size of the served volume.
pub fn size_bytes(place: &Place) -> u64 {
    status(place)["size_bytes"].as_u64().unwrap()
}

/// Random writes of one byte in the second quarter of the volume, and SIGKILL in the middle of them. The answer is
/// where.
pub fn kill_under_load(place: &Place, server: Server) -> Range<u64> {
    kill_under_load_of(place, server, "4k-64k")
}

/// The same with writes of these sizes.
pub fn kill_under_load_of(place: &Place, server: Server, sizes: &str) -> Range<u64> {
    let size = size_bytes(place);
    let area = size / 4 / 4096 * 4096..size / 2 / 4096 * 4096;
    let mut load = place
        .command("fio")
        .args(["--name=load", "--ioengine=nbd", "--rw=randwrite"])
        .args(["--iodepth=8", "--time_based"])
        .arg(format!("--bsrange={sizes}"))
        .arg("--runtime=600")
        .arg(format!("--buffer_pattern={LOAD:#x}"))
        .arg(format!("--offset={}", area.start))
        .arg(format!("--size={}", area.end - area.start))
        .arg(format!("--uri={}", uri(place)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("fio must be installed");
    wait_until(place, "the load has written something", || {
        stats(place)["total"]["writes"].as_u64().unwrap() > size / (256 << 10) + 50
    });
    server.kill();
    assert!(
        !load.wait().unwrap().success(),
        "the load outlived its server"
    );
    area
}

/// Each sector is of the pattern of `seed` or, in the area of the load, of the load.
pub fn check_sectors(place: &Place, found: &[u8], area: &Range<u64>, seed: u64) {
    for (number, sector) in found.chunks_exact(SECTOR_BYTES).enumerate() {
        let offset = (number * SECTOR_BYTES) as u64;
        let is_load = area.contains(&offset) && sector.iter().all(|&byte| byte == LOAD);
        assert!(
            is_load || sector == pattern_bytes(seed, offset, SECTOR_BYTES),
            "{}: sector at {offset} is neither old nor new",
            place.folder.display()
        );
    }
}

/// Fills the volume with the pattern of `seed`.
pub fn fill(place: &Place, seed: u64) {
    let size = usize::try_from(size_bytes(place)).unwrap();
    std::fs::write(place.file("content"), pattern_bytes(seed, 0, size)).unwrap();
    let run = place.tool("nbdcopy", &format!("--flush content {}", uri(place)));
    assert_eq!(run.exit, 0, "{}: {}", place.folder.display(), run.err);
}

/// Writes `length_bytes` of the pattern of `seed` from `offset_bytes` on, durably.
pub fn fill_part(place: &Place, seed: u64, offset_bytes: u64, length_bytes: usize) {
    let part = pattern_bytes(seed, offset_bytes, length_bytes);
    std::fs::write(place.file("part"), part).unwrap();
    let write = format!("write -s part {offset_bytes} {length_bytes}");
    let mut command = place.command("qemu-io");
    let output = command
        .args(["-f", "raw", "-c", &write, "-c", "flush", &uri(place)])
        .output()
        .expect("qemu-io must be installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !text.contains("failed"),
        "{text}"
    );
}

/// The content as a client reads it.
pub fn content(place: &Place) -> Vec<u8> {
    let run = place.tool("nbdcopy", &format!("{} back", uri(place)));
    assert_eq!(run.exit, 0, "{}: {}", place.folder.display(), run.err);
    std::fs::read(place.file("back")).unwrap()
}

/// A field of a member's metadata or bitmap (`part` is `superblock` or `bitmap`), `Null` where there is none.
pub fn examined(place: &Place, member: &str, part: &str, field: &str) -> Value {
    let run = place.plexum(&format!("examine {member} --json"));
    run.objects().remove(0)[part][field].clone()
}

/// Bytes in which two files of the same size differ, from `start_bytes` on.
pub fn differing_bytes(one: &[u8], other: &[u8], start_bytes: usize) -> usize {
    assert_eq!(one.len(), other.len());
    let pairs = one[start_bytes..].iter().zip(&other[start_bytes..]);
    pairs.filter(|(one, other)| one != other).count()
}
