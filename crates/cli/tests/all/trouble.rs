//! Members that vanish and file systems that fill up while clients are served.

use crate::common::served::{uri, wait_until};
use crate::common::{Place, Run};

fn qemu_io(place: &Place, command: &str) -> Run {
    let output = place
        .command("qemu-io")
        .args(["-f", "raw", "-c", command, &uri(place)])
        .output()
        .expect("qemu-io must be installed");
    Run {
        exit: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn verdict(place: &Place) -> String {
    let status = place.plexum("status nas --json").objects().remove(0);
    status["verdict"].as_str().unwrap().to_owned()
}

/// Writes until the volume's verdict is `wanted`: the writes are what finds a lost member, and give it time.
fn wait_for(place: &Place, wanted: &str) {
    for _ in 0..2000 {
        let _ = qemu_io(place, "write -P 1 0 64k");
        if verdict(place) == wanted {
            return;
        }
    }
    panic!("the volume is {}, not {wanted}", verdict(place));
}

#[test]
fn one_lost_file_degrades_and_two_freeze_without_touching_the_survivor() {
    let place = Place::new("trouble-lost");
    let run = place.plexum("create nas --level 5 --strip 64K --member-size 24M a b c");
    assert_eq!(run.exit, 0, "{}", run.err);
    let run = place.plexum("serve a b c --background");
    assert_eq!(run.exit, 0, "{}", run.err);
    std::fs::remove_file(place.file("a")).unwrap();
    wait_for(&place, "degraded");
    let read = qemu_io(&place, "read -P 1 0 64k");
    assert!(
        read.exit == 0 && !read.out.contains("failed"),
        "{}{}",
        read.out,
        read.err
    );
    std::fs::remove_file(place.file("b")).unwrap();
    wait_for(&place, "failed");
    let write = qemu_io(&place, "write -P 2 0 64k");
    assert!(
        write.exit != 0 || write.out.contains("failed"),
        "{}",
        write.out
    );
    let status = place.plexum("status");
    assert_eq!(status.exit, 8);
    assert!(status.out.contains("2 of 3 members lost"), "{}", status.out);
    assert!(
        status.out.contains("FAILED") && status.out.contains("nothing is written"),
        "{}",
        status.out
    );
    let events = place.plexum("events").out;
    assert!(
        events.contains("member_failed") && events.contains("frozen"),
        "{events}"
    );
    // The last superblock still counts b as a member: with it back, this is an ordinary dirty start (W4).
    let examined = place.plexum("examine c --json").objects().remove(0);
    let roles = examined["superblock"]["roles"].as_array().unwrap().clone();
    assert!(
        roles.contains(&"1".into()) && roles.contains(&"2".into()),
        "{roles:?}"
    );
    let stopped = place.plexum("stop nas");
    assert_eq!(stopped.exit, 5, "{}{}", stopped.out, stopped.err);
    assert!(
        stopped.err.contains("could not be stopped cleanly"),
        "{}",
        stopped.err
    );
}

#[test]
fn a_full_file_system_is_an_error_for_the_client_and_no_lost_member() {
    let place = Place::new("trouble-full");
    std::fs::create_dir(place.file("small")).unwrap();
    let mounted = place.tool("mount", "-t tmpfs -o size=8m none small");
    assert_eq!(
        mounted.exit, 0,
        "this test mounts a tmpfs, as root: {}",
        mounted.err
    );
    let run = place.plexum("create nas --level 1 --member-size 24M small/a small/b");
    assert_eq!(run.exit, 0, "{}", run.err);
    let run = place.plexum("serve small/a small/b --background");
    assert_eq!(run.exit, 0, "{}", run.err);
    let fits = qemu_io(&place, "write -P 1 0 1M");
    assert!(
        fits.exit == 0 && !fits.out.contains("failed"),
        "{}{}",
        fits.out,
        fits.err
    );
    let full = qemu_io(&place, "write -P 2 1M 16M");
    let text = format!("{}{}", full.out, full.err);
    let (before, states) = (verdict(&place), place.plexum("status").out);
    let events = place.plexum("events").out;
    let kept = qemu_io(&place, "read -P 1 0 1M");
    let stopped = place.plexum("stop nas");
    let unmounted = place.tool("umount", "small");
    assert!(text.contains("No space left"), "{text}");
    assert_eq!(before, "full", "{states}");
    assert!(
        states.contains("had no space for") && states.contains("have no space yet"),
        "{states}"
    );
    assert_eq!(events.matches("no_space").count(), 2, "{events}"); // once for each member
    assert!(
        kept.exit == 0 && !kept.out.contains("failed"),
        "{}{}",
        kept.out,
        kept.err
    );
    assert_eq!(stopped.exit, 0, "{}", stopped.err);
    assert_eq!(unmounted.exit, 0, "{}", unmounted.err);
}

#[test]
fn a_member_that_is_filled_where_no_space_is_left_is_told_as_full() {
    let place = Place::new("trouble-full-fill");
    std::fs::create_dir(place.file("small")).unwrap();
    let mounted = place.tool("mount", "-t tmpfs -o size=4m none small");
    assert_eq!(
        mounted.exit, 0,
        "this test mounts a tmpfs, as root: {}",
        mounted.err
    );
    for words in [
        "create nas --level 1 --member-size 24M a b",
        "serve a b --background",
        "fail nas b",
        "remove nas b",
    ] {
        let run = place.plexum(words);
        assert_eq!(run.exit, 0, "{words}: {}", run.err);
    }
    let written = qemu_io(&place, "write -P 3 0 16M");
    place.sparse("small/c", 24 << 20);
    let added = place.plexum("add nas small/c");
    // Whether the superblock itself still finds a page is a matter of who comes first.
    wait_until(&place, "the rebuild ended", || {
        let events = place.plexum("events").out;
        events.contains("rebuild_finished") || events.contains("superblock could not be written")
    });
    let (events, status) = (place.plexum("events").out, place.plexum("status nas"));
    let kept = qemu_io(&place, "read -P 3 0 16M");
    let stopped = place.plexum("stop nas");
    let unmounted = place.tool("umount", "small");
    assert!(!written.out.contains("failed"), "{}", written.out);
    assert_eq!(added.exit, 0, "{}", added.err);
    assert!(events.contains("no_space"), "{events}");
    assert!(status.out.contains("had no space for"), "{}", status.out);
    assert_ne!(status.exit, 0, "{}", status.out);
    assert!(
        kept.exit == 0 && !kept.out.contains("failed"),
        "{}",
        kept.out
    );
    assert_eq!(stopped.exit, 0, "{}", stopped.err);
    assert_eq!(unmounted.exit, 0, "{}", unmounted.err);
}

/// A server in the foreground, killed at the end when it still runs.
struct Server(std::process::Child);

impl Server {
    fn start(place: &Place, words: &str) -> Self {
        let mut child = place
            .command(env!("CARGO_BIN_EXE_plexum"))
            .arg("serve")
            .args(words.split_whitespace())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        assert!(!line.is_empty(), "plexum serve {words} did not get ready");
        Self(child)
    }

    fn signal(&self, place: &Place, name: &str) {
        let run = place.tool("kill", &format!("{name} {}", self.0.id()));
        assert_eq!(run.exit, 0, "{}", run.err);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_member_that_hangs_is_failed_and_comes_back_when_it_has_drained() {
    let place = Place::new("trouble-hang");
    let run = place.plexum("create inner --level linear --member-size 24M x");
    assert_eq!(run.exit, 0, "{}", run.err);
    let inner = Server::start(&place, "x");
    let run = place.plexum("create nas --level 1 --member-size 16M a volume:inner --yes");
    assert_eq!(run.exit, 0, "{}", run.err);
    let _server = Server::start(&place, "a volume:inner --member-timeout 5");
    let write = qemu_io(&place, "write -P 1 0 64k");
    assert!(
        write.exit == 0 && !write.out.contains("failed"),
        "{}",
        write.out
    );
    // Long enough that a busy machine is not taken for a hung member.
    assert_eq!(verdict(&place), "ok");
    let member = |status: &serde_json::Value| {
        let members = status["members"].as_array().unwrap();
        let found = members
            .iter()
            .find(|member| member["path"] == "volume:inner");
        found.expect("it is listed").clone()
    };
    // It stands still: its connection is there, but nothing is answered.
    inner.signal(&place, "-STOP");
    let write = qemu_io(&place, "write -P 2 0 64k");
    let status = place.plexum("status nas --json").objects().remove(0);
    let early = place.plexum("remove nas volume:inner");
    inner.signal(&place, "-CONT");
    assert!(
        write.exit == 0 && !write.out.contains("failed"),
        "{}",
        write.out
    );
    assert_eq!(status["verdict"], "degraded", "{status}");
    assert_eq!(member(&status)["state"], "faulty", "{status}");
    assert_eq!(member(&status)["is_draining"], true, "{status}");
    assert_eq!(early.exit, 6, "{}{}", early.out, early.err);
    assert!(early.err.contains("could still write"), "{}", early.err);
    for _ in 0..2000 {
        let status = place.plexum("status nas --json").objects().remove(0);
        if member(&status)["is_draining"] == false {
            break;
        }
    }
    let back = place.plexum("re-add nas volume:inner --wait");
    assert_eq!(back.exit, 0, "{}{}", back.out, back.err);
    assert_eq!(place.plexum("fail nas 0").exit, 0);
    let read = qemu_io(&place, "read -P 2 0 64k");
    assert!(
        read.exit == 0 && !read.out.contains("failed"),
        "{}",
        read.out
    );
    assert_eq!(place.plexum("stop nas").exit, 0);
    assert_eq!(place.plexum("stop inner").exit, 0);
}

#[test]
fn an_ordinary_user_needs_nobody_and_a_failed_member_keeps_its_number() {
    // A folder of its own outside of the build, which another user may not be able to reach.
    let folder = std::env::temp_dir().join(format!("plexum-ordinary-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_plexum"), folder.join("plexum")).unwrap();
    // As root (in CI) nobody does it; else whoever runs the tests is ordinary enough.
    let is_root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&folder).unwrap()) == 0;
    if is_root {
        std::os::unix::fs::chown(&folder, Some(65_534), Some(65_534)).unwrap();
    }
    let script = "set -eu; unset XDG_RUNTIME_DIR; p=./plexum
        $p create ordinary --level 5 --member-size 32M a b c
        $p serve a b c --background
        trap '$p stop ordinary' EXIT
        $p status ordinary
        $p fail ordinary 1
        $p remove ordinary 1
        $p add ordinary b --force --yes --wait
        $p scrub ordinary --wait
        $p set ordinary rebuild-max=100M
        $p events ordinary";
    let mut command = if is_root {
        let mut command = std::process::Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "sh",
        ]);
        command
    } else {
        std::process::Command::new("sh")
    };
    let output = command
        .args(["-c", script])
        .current_dir(&folder)
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let _ = std::fs::remove_dir_all(&folder);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("ordinary is stopped"), "{text}");
}
