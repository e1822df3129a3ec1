//! Volumes from creation to stop, through the program, with real NBD clients.

use std::io::{BufRead, BufReader};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};

use crate::common::served::uri;
use crate::common::{Place, Run};
use rustix::fs::inotify;

/// A server in the foreground, killed at the end when it still runs.
pub struct Server {
    child: Child,
    pub line: String,
}

impl Server {
    /// Starts `plexum serve WORDS` and waits for its line.
    pub fn start(place: &Place, words: &str) -> Self {
        let mut child = place
            .command(env!("CARGO_BIN_EXE_plexum"))
            .arg("serve")
            .args(words.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(!line.is_empty(), "plexum serve {words} did not get ready");
        Self { child, line }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = std::process::Command::new("kill")
            .args([name, &pid])
            .status();
        assert!(done.unwrap().success());
    }

    pub fn wait(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn create(place: &Place, words: &str) {
    let run = place.plexum(&format!("create nas --member-size 24M --strip 64K {words}"));
    assert_eq!(run.exit, 0, "{}", run.err);
}

pub fn qemu_io(place: &Place, commands: &[&str]) -> Run {
    let mut words = format!("-f raw {}", uri(place));
    for command in commands {
        words = format!("-c {} {words}", command.replace(' ', "\u{1}"));
    }
    let words: Vec<String> = words
        .split(' ')
        .map(|word| word.replace('\u{1}', " "))
        .collect();
    let mut command = place.command("qemu-io");
    let output = command
        .args(words)
        .output()
        .expect("qemu-io must be installed");
    Run {
        exit: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn a_volume_keeps_its_content_over_loss_rebuild_stop_and_start() {
    let place = Place::new("serve-life");
    create(&place, "--level 6 a b c d --spare e");
    let server = Server::start(&place, "a b c d e");
    assert_eq!(server.line, format!("nas raid6 44M: {}\n", uri(&place)));
    let content: Vec<u8> = (0..44_u32 << 18).flat_map(|n| n.to_le_bytes()).collect();
    std::fs::write(place.file("content"), &content).unwrap();
    let copied = place.tool("nbdcopy", &format!("content {}", uri(&place)));
    assert_eq!(copied.exit, 0, "{}", copied.err);

    let failed = place.plexum("fail nas b");
    assert_eq!(failed.exit, 0, "{}", failed.err);
    let waited = place.plexum("re-add nas a --wait");
    assert_eq!(
        waited.exit, 4,
        "a member in use cannot come back: {}",
        waited.err
    );
    let removed = place.plexum("remove nas b");
    assert_eq!(removed.exit, 0, "{}", removed.err);
    let added = place.plexum("add nas b --wait --json");
    assert!(matches!(added.exit, 0 | 1), "{}", added.err);
    let status = place.plexum("status nas --json").objects().remove(0);
    assert_eq!(status["kind"], "volume");
    assert_eq!(status["verdict"], "ok", "{status}");
    let read = place.tool("nbdcopy", &format!("{} back", uri(&place)));
    assert_eq!(read.exit, 0, "{}", read.err);
    assert!(
        std::fs::read(place.file("back")).unwrap() == content,
        "content differs"
    );

    let stopped = place.plexum("stop");
    assert_eq!(
        (stopped.exit, stopped.out.as_str()),
        (0, "nas is stopped\n"),
        "{}",
        stopped.err
    );
    assert!(!place.file("plexum/nas.nbd").exists() && !place.file("plexum/nas.control").exists());
    assert_eq!(server.wait(), 0);
    for file in ["a", "c", "d", "e"] {
        let text = place.tool("mdadm", &format!("-E {file}")).out;
        assert!(
            text.contains("State : clean") && text.contains("Array State : AAAA"),
            "{text}"
        );
    }

    let server = Server::start(&place, "e d c b a --read-only");
    let read = place.tool("nbdcopy", &format!("{} again", uri(&place)));
    assert_eq!(read.exit, 0, "{}", read.err);
    assert!(std::fs::read(place.file("again")).unwrap() == content);
    let write = qemu_io(&place, &["write 0 4k"]);
    assert_ne!(write.exit, 0, "{}", write.out);
    server.signal("-TERM");
    assert_eq!(server.wait(), 0);
}

#[test]
fn a_killed_server_leaves_members_that_start_again_and_a_socket_that_is_replaced() {
    let place = Place::new("serve-kill");
    create(&place, "--level 5 --consistency bitmap a b c");
    let mut server = Server::start(&place, "a b c");
    let written = qemu_io(&place, &["write -P 0x5a 1M 3M"]);
    assert_eq!(written.exit, 0, "{}{}", written.out, written.err);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert!(
        place.file("plexum/nas.nbd").exists(),
        "the stale socket is there"
    );
    let none = place.plexum("status nas");
    assert_eq!(none.exit, 7, "{}", none.err);
    let degraded = place.plexum("serve a b");
    assert_eq!(
        degraded.exit, 3,
        "dirty and degraded is refused: {}{}",
        degraded.out, degraded.err
    );
    assert!(degraded.err.contains("--force"), "{}", degraded.err);
    let server = Server::start(&place, "a b c");
    let read = qemu_io(&place, &["read -P 0x5a 1M 3M"]);
    assert!(
        read.exit == 0 && !read.out.contains("failed"),
        "{}{}",
        read.out,
        read.err
    );
    assert_eq!(place.plexum("stop nas").exit, 0);
    assert_eq!(server.wait(), 0);
}

#[test]
fn what_does_not_make_a_volume_is_refused_with_its_exit_code() {
    let place = Place::new("serve-refused");
    create(&place, "--level 5 a b c");
    let other = place.plexum("create other --level 1 --member-size 24M x y");
    assert_eq!(other.exit, 0, "{}", other.err);
    place.sparse("blank", 24 << 20);
    std::fs::copy(place.file("a"), place.file("copy")).unwrap();
    std::fs::copy(place.file("c"), place.file("short")).unwrap();
    let short = std::fs::File::options()
        .write(true)
        .open(place.file("short"));
    short.unwrap().set_len(16 << 20).unwrap();
    for (words, exit, message) in [
        ("a b c x", 4, "array"),
        ("a b c blank", 4, "blank: nothing was found"),
        ("a b c copy", 4, "copy"),
        ("a b c a", 4, "given twice"),
        ("a", 4, "a"),
        ("a b", 3, "--run-degraded"),
        ("a b short", 3, "short: md superblock 1.2 at byte"),
        ("a b c nowhere", 4, "nowhere"),
        ("a b c --socket plexum", 2, "not a socket"),
        ("a b c --listen 0.0.0.0:0", 3, "--insecure-listen"),
        ("a b c --listen nonsense", 2, "127.0.0.1:10809"),
        ("a b c --balance fastest", 2, "no balance policy"),
        ("a b c --io magic", 2, "--io magic"),
        ("a b c --memory 1M", 2, "--memory"),
        ("--scan plexum", 4, "no sets"),
    ] {
        let before = (
            std::fs::read(place.file("a")).unwrap(),
            std::fs::read(place.file("b")).unwrap(),
        );
        let run = place.plexum(&format!("serve {words}"));
        assert_eq!(run.exit, exit, "{words}: {}{}", run.out, run.err);
        assert!(
            run.err.starts_with("error: ") && run.err.contains(message),
            "{words}: {}",
            run.err
        );
        assert_eq!(run.out, "", "{words}");
        let after = (
            std::fs::read(place.file("a")).unwrap(),
            std::fs::read(place.file("b")).unwrap(),
        );
        assert!(before == after, "{words} changed a member");
    }
    let server = Server::start(&place, "a b c");
    let second = place.plexum("serve a b c");
    assert_eq!(second.exit, 6, "{}", second.err);
    assert!(second.err.contains("in use"), "{}", second.err);
    assert_eq!(
        place.plexum("create new --level 1 --force --yes a b").exit,
        6
    );
    server.signal("-INT");
    assert_eq!(server.wait(), 0);
}

#[test]
fn a_damaged_member_is_left_out_and_named() {
    let place = Place::new("serve-damaged");
    create(&place, "--level 6 a b c d");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(place.file("d"))
        .unwrap();
    file.write_all_at(&[1], 4096 + 80).unwrap();
    let run = place.plexum("serve a b c d");
    assert_eq!(run.exit, 3, "{}", run.err);
    assert!(run.err.contains("d: md superblock 1.2 at"), "{}", run.err);
    let found = place.plexum("scan .");
    assert_eq!(found.exit, 1, "{}", found.out);
    assert!(found.out.contains("damaged: ./d: md"), "{}", found.out);
    let server = Server::start(&place, "a b c d --run-degraded --json");
    let ready: serde_json::Value = serde_json::from_str(&server.line).unwrap();
    assert!(
        ready["notes"][0].as_str().unwrap().contains("sb_csum"),
        "{ready}"
    );
    drop(server);
    let alone = place.plexum("serve d");
    assert_eq!(alone.exit, 4);
    assert!(
        alone.err.contains("d: md superblock 1.2 at byte"),
        "{}",
        alone.err
    );
}

#[test]
fn several_volumes_share_a_tcp_address_and_a_background_server_returns_when_ready() {
    let place = Place::new("serve-many");
    std::fs::create_dir(place.file("disks")).unwrap();
    for name in ["one", "two"] {
        let run = place.plexum(&format!(
            "create {name} --level 1 --member-size 16M disks/{name}-a disks/{name}-b"
        ));
        assert_eq!(run.exit, 0, "{}", run.err);
    }
    let scanned = place.plexum("scan disks --json");
    assert_eq!(
        (scanned.exit, scanned.objects().len()),
        (0, 2),
        "{}",
        scanned.err
    );
    let run = place.plexum("serve --scan disks --listen 127.0.0.1:0 --background --json");
    assert_eq!(run.exit, 0, "{}{}", run.out, run.err);
    let ready = run.objects().remove(0);
    let tcp = ready["uris"][1].as_str().unwrap().to_owned();
    assert!(tcp.starts_with("nbd://127.0.0.1:"), "{ready}");
    let listed = place.tool(
        "nbdinfo",
        &format!("--list {}", &tcp[..tcp.rfind('/').unwrap()]),
    );
    assert!(
        listed.out.contains("one") && listed.out.contains("two"),
        "{}{}",
        listed.out,
        listed.err
    );
    let ambiguous = place.plexum("stop");
    assert_eq!(ambiguous.exit, 2, "{}", ambiguous.err);
    assert!(ambiguous.err.contains("one two"), "{}", ambiguous.err);
    assert_eq!(place.plexum("status").out.matches(" OK ").count(), 2);
    assert_eq!(place.plexum("stop one").exit, 0);
    assert_eq!(place.plexum("status one").exit, 7);
    assert_eq!(place.plexum("stop two").exit, 0);
    assert_eq!(
        place.plexum("status").out.lines().next(),
        Some("no volume is served")
    );
    let failed = place.plexum("serve nowhere --background");
    assert_eq!(failed.exit, 4);
    assert!(failed.err.starts_with("error: nowhere"), "{}", failed.err);
}

/// Who waits for the socket of a volume and then names the volume to another command is not told that it is not served.
#[test]
fn a_volume_answers_about_itself_before_its_clients_are_let_in() {
    let place = Place::new("serve-order");
    std::fs::create_dir(place.file("disks")).unwrap();
    create(&place, "--level 1 disks/a disks/b");
    let run = place.plexum("create other --level 1 --member-size 16M disks/c disks/d");
    assert_eq!(run.exit, 0, "{}", run.err);
    let home = place.file("plexum");
    std::fs::create_dir(&home).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &home, inotify::WatchFlags::CREATE).unwrap();
    let server = Server::start(&place, "--scan disks");
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(&watch, &mut buffer);
    let mut bound = Vec::new();
    while let Ok(event) = reader.next() {
        let name = event.file_name().unwrap().to_str().unwrap();
        bound.extend(name.rsplit_once('.').map(|(_, kind)| kind.to_owned()));
    }
    bound.retain(|kind| kind != "command"); // a file, and no socket
    assert_eq!(bound, ["control", "control", "nbd", "nbd"]);
    server.signal("-TERM");
    assert_eq!(server.wait(), 0);

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let run = place.plexum(&format!("serve --scan disks --listen {address}"));
    assert_eq!(run.exit, 6, "{}", run.err);
    assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0, "{}", run.err);
}

#[test]
fn members_may_be_exports_of_other_servers_and_other_volumes() {
    let place = Place::new("serve-nested");
    for name in ["left", "right"] {
        let run = place.plexum(&format!(
            "create {name} --level 0 --strip 64K --member-size 16M {name}-a {name}-b"
        ));
        assert_eq!(run.exit, 0, "{}", run.err);
        let served = place.plexum(&format!("serve {name}-a {name}-b --background"));
        assert_eq!(served.exit, 0, "{}", served.err);
    }
    let right = format!(
        "nbd+unix:///right?socket={}/plexum/right.nbd",
        place.folder.display()
    );
    let run = place.plexum(&format!("create nas --level 1 volume:left {right}"));
    assert_eq!(run.exit, 0, "{}", run.err);
    let again = place.plexum(&format!("create nas --level 1 volume:left {right}"));
    assert_eq!(again.exit, 3, "{}", again.err);
    let server = Server::start(&place, &format!("volume:left {right}"));
    assert_eq!(qemu_io(&place, &["write -P 0x42 1M 4M"]).exit, 0);
    // One leg dies; the mirror goes on.
    let victim = place.plexum("status right --json").objects().remove(0);
    let pid = victim["server_pid"].as_u64().unwrap().to_string();
    assert_eq!(place.tool("kill", &format!("-KILL {pid}")).exit, 0);
    let read = qemu_io(&place, &["write -P 0x43 1M 1M", "read -P 0x42 2M 3M"]);
    assert!(
        read.exit == 0 && !read.out.contains("failed"),
        "{}{}",
        read.out,
        read.err
    );
    let status = place.plexum("status nas --json");
    assert_eq!(status.exit, 1, "{}", status.out);
    assert_eq!(place.plexum("stop nas").exit, 0);
    assert_eq!(server.wait(), 0);
    assert_eq!(place.plexum("stop left").exit, 0);
    let gone = place.plexum("serve volume:left");
    assert_eq!(gone.exit, 5, "{}", gone.err);
    assert!(gone.err.contains("plexum status left"), "{}", gone.err);
}

/// What `nbdinfo --map` says: offset, length and type of each extent.
fn map(place: &Place) -> Vec<(u64, u64, u64)> {
    let run = place.tool("nbdinfo", &format!("--map --json {}", uri(place)));
    assert_eq!(run.exit, 0, "{}", run.err);
    let extents: Vec<serde_json::Value> = serde_json::from_str(&run.out).unwrap();
    let number = |extent: &serde_json::Value, field: &str| extent[field].as_u64().unwrap();
    extents
        .iter()
        .map(|extent| {
            let field = |name| number(extent, name);
            (field("offset"), field("length"), field("type"))
        })
        .collect()
}

#[test]
fn holes_are_told_where_members_tell_them_and_parity_is_data() {
    for (level, data_start) in [("0", Some(4 << 20)), ("10", Some(4 << 20)), ("5", None)] {
        let place = Place::new(&format!("serve-holes-{level}"));
        create(&place, &format!("--level {level} a b c d"));
        let server = Server::start(&place, "a b c d");
        let written = qemu_io(&place, &["write -P 7 4M 1M"]);
        assert_eq!(written.exit, 0, "{}{}", written.out, written.err);
        let map = map(&place);
        match data_start {
            // 3 = hole and zero, 0 = data (NBD, base:allocation).
            Some(start) => {
                assert_eq!(map[0], (0, start, 3), "raid{level}: {map:?}");
                assert_eq!(map[1], (start, 1 << 20, 0), "raid{level}: {map:?}");
            }
            None => assert!(map.iter().all(|extent| extent.2 == 0), "{map:?}"),
        }
        assert_eq!(place.plexum("stop").exit, 0);
        assert_eq!(server.wait(), 0);
    }
}

#[test]
fn requests_in_flight_are_shown_with_their_stage() {
    let place = Place::new("serve-requests");
    let run = place.plexum("create inner --level linear --member-size 24M x");
    assert_eq!(run.exit, 0, "{}", run.err);
    let inner = Server::start(&place, "x");
    create(&place, "--level 1 a volume:inner --yes");
    let server = Server::start(&place, "a volume:inner");
    let listed = || {
        place
            .plexum("debug requests nas --json")
            .objects()
            .remove(0)
    };
    assert!(listed()["requests"].as_array().unwrap().is_empty());
    // One member stands still: what is written waits for it.
    inner.signal("-STOP");
    let mut writer = place.command("qemu-io");
    let mut writer = writer
        .args(["-f", "raw", "-c", "write -P 3 64k 4k", &uri(&place)])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let request = (0..2000).find_map(|_| listed()["requests"].get(0).cloned());
    inner.signal("-CONT");
    assert!(writer.wait().unwrap().success());
    let request = request.expect("the write was seen");
    assert_eq!(request["request"], "write", "{request}");
    assert_eq!(request["offset_bytes"], 65536, "{request}");
    let stage = request["stage"].as_str().unwrap();
    assert!(
        ["dirty-mark", "bit-mark", "write"].contains(&stage),
        "{request}"
    );
    assert_eq!(place.plexum("stop nas").exit, 0);
    assert_eq!((server.wait(), place.plexum("stop inner").exit), (0, 0));
    assert_eq!(inner.wait(), 0);
}
