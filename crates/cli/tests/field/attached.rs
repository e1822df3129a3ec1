//! Attached volumes: who stops their server is told, requests wait for a server that comes back, and what the kernel's
//! write-out goes through is marked as such. Needs root, FUSE and loop devices.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use super::common::Place;
use super::common::served::done;
use super::durable::client::Client;
use super::serving::Server;

/// EIO of the system.
const EIO: i32 = 5;

/// `PF_MEMALLOC_NOIO` and `PF_LOCAL_THROTTLE` of the kernel: what PR_SET_IO_FLUSHER sets for a thread.
const IO_FLUSHER: u64 = 0x0008_0000 | 0x0010_0000;

struct Attached {
    place: Place,
    server: Option<Server>,
}

impl Attached {
    fn new(name: &str) -> Self {
        let place = Place::in_memory(name);
        done(&place, "create nas --level 1 --member-size 24M a b");
        let server = Some(Server::start(&place, "a b"));
        fs::create_dir(place.file("mnt")).unwrap();
        Self { place, server }
    }

    /// Attaches it; the FUSE file, opened.
    fn open(&self, words: &str) -> File {
        let run = done(&self.place, &format!("attach nas --by fuse --json {words}"));
        let attached = &run.objects()[0];
        let mut options = OpenOptions::new();
        let path = attached["file"].as_str().unwrap();
        options.read(true).write(true).open(path).unwrap()
    }

    fn restart(&mut self, words: &str) {
        self.server.take().unwrap().kill();
        self.server = Some(Server::start(&self.place, words));
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.place.plexum("detach nas");
    }
}

#[test]
fn stop_is_refused_while_a_volume_is_attached_or_has_clients_and_names_them() {
    let mut one = Attached::new("stop-attached");
    let place = &one.place;
    let device = done(place, "attach nas").out.trim().to_owned();
    assert_eq!(place.tool("mkfs.ext4", &format!("-q {device}")).exit, 0);
    done(place, "detach nas");
    let device = done(place, "attach nas mnt").out.trim().to_owned();
    let mounted = format!("{device}, mounted at {}", place.file("mnt").display());
    for words in ["stop nas", "stop", "stop nas --dry-run"] {
        let run = place.plexum(words);
        assert_eq!(run.exit, 6, "{words}: {}", run.err);
        for part in [
            mounted.as_str(),
            "plexum detach nas",
            "plexum stop --force nas",
        ] {
            assert!(run.err.contains(part), "{words}: {}", run.err);
        }
    }
    fs::write(place.file("mnt/file"), "goes on").unwrap();
    let shown = place.plexum("status nas").out;
    assert!(shown.contains(&format!("attached: {mounted}")), "{shown}");
    let status = &place.plexum("status nas --json").objects()[0];
    assert_eq!(status["attachments"][0]["device"], device, "{status}");
    assert!(status["attachments"][0]["pid"].is_u64(), "{status}");
    done(place, "detach nas");
    let socket = place.file("plexum/nas.nbd");
    let client = Client::open(&socket, "nas").unwrap();
    let run = place.plexum("stop nas");
    assert_eq!(run.exit, 6, "{}", run.err);
    assert!(run.err.contains("1 on nbd+unix:///nas"), "{}", run.err);
    done(place, "stop --force nas");
    assert_eq!(one.server.take().unwrap().wait(), Some(0));
    drop(client);
    // A service manager's SIGTERM is obeyed whoever is connected.
    let server = Server::start(place, "a b");
    let client = Client::open(&socket, "nas").unwrap();
    let pid = server.pid().to_string();
    assert_eq!(place.tool("kill", &format!("-TERM {pid}")).exit, 0);
    assert_eq!(server.wait(), Some(0));
    drop(client);
    one.server = Some(Server::start(place, "a b"));
    done(place, "stop nas");
}

/// Flags of all threads of a process: field 9 of `stat`, behind the name in parentheses.
fn flags(pid: u64) -> Vec<(String, u64)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let read = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("stat")).ok()?; // a thread may have ended meanwhile
        let (name, rest) = text.rsplit_once(") ").unwrap();
        let flags = rest.split(' ').nth(6).unwrap().parse().unwrap();
        Some((name.to_owned(), flags))
    };
    tasks.filter_map(read).collect()
}

/// Whether this process has CAP_SYS_RESOURCE, number 24.
fn may_change_resources() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    u64::from_str_radix(line.unwrap().trim(), 16).unwrap() >> 24 & 1 == 1
}

fn locked_kib(pid: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

#[test]
fn who_the_kernels_write_out_waits_for_never_waits_for_it_and_is_never_paged_out() {
    let one = Attached::new("write-out-path");
    let server = u64::from(one.server.as_ref().unwrap().pid());
    let is_marked = |(_, flags): &(String, u64)| flags & IO_FLUSHER == IO_FLUSHER;
    assert!(
        !flags(server).iter().any(is_marked),
        "without an attachment it is as others"
    );
    let file = one.open("");
    file.write_all_at(&[1; 4096], 0).unwrap();
    let status = &one.place.plexum("status nas --json").objects()[0];
    let bridge = status["attachments"][0]["pid"].as_u64().unwrap();
    // Where root may not say so (no CAP_SYS_RESOURCE, as in some containers) the device works without it.
    let is_allowed = may_change_resources();
    assert!(
        flags(bridge)
            .iter()
            .all(|thread| is_marked(thread) == is_allowed)
    );
    let main = flags(server)
        .into_iter()
        .find(|(name, _)| name.starts_with(&server.to_string()));
    assert_eq!(
        is_marked(&main.unwrap()),
        is_allowed,
        "the thread that does the I/O"
    );
    for pid in [bridge, server] {
        assert!(locked_kib(pid) > 0, "{pid}");
    }
}

#[test]
fn requests_wait_for_a_server_that_comes_back_and_go_on() {
    let mut one = Attached::new("reconnect");
    let file = one.open("--reconnect 600");
    file.write_all_at(&[3; 8192], 0).unwrap();
    for round in 1..4_u8 {
        one.server.take().unwrap().kill();
        let other = file.try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            other.write_all_at(&[round; 4096], 4096)?;
            other.sync_all()
        });
        one.server = Some(Server::start(&one.place, "a b"));
        writer.join().unwrap().unwrap();
        let mut bytes = [0; 8192];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..4096] == [3; 4096] && bytes[4096..] == [round; 4096]);
    }
    let log = fs::read_to_string(one.place.file("plexum/attach/nas.log")).unwrap();
    assert!(
        log.contains("at most 600 s") && log.contains("the server is back"),
        "{log}"
    );
}

#[test]
fn requests_that_wait_never_go_to_another_array_of_that_name() {
    let mut one = Attached::new("reconnect-other");
    done(&one.place, "create nas --level 1 --member-size 24M c d");
    let file = one.open("--reconnect 1");
    file.write_all_at(&[3; 4096], 0).unwrap();
    one.restart("c d");
    let code = |error: std::io::Error| error.raw_os_error();
    assert_eq!(
        file.write_all_at(&[4; 4096], 0).map_err(code),
        Err(Some(EIO))
    );
    let mut client = Client::open(&one.place.file("plexum/nas.nbd"), "nas").unwrap();
    let mut bytes = [9; 4096];
    client.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4096]);
    drop(client);
    one.restart("a b");
    // From now on it is there again: the first tries may come too early.
    while file.write_all_at(&[5; 4096], 0).is_err() {}
    drop(file);
}
