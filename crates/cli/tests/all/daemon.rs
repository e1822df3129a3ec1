//! The daemon owns volumes: they come and go at run time, and are there again after its end, however it came.

use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Stdio};

use serde_json::Value;

use super::common::Place;
use super::common::served::{done, wait_until};

/// A daemon in the foreground, killed at the end when it still runs.
pub(super) struct Daemon {
    child: Child,
    /// What it said before it was ready.
    pub(super) said: String,
}

impl Daemon {
    pub(super) fn start(place: &Place, words: &str) -> Self {
        Self::start_by(place, "env", words)
    }

    /// The same by another program, which becomes the daemon: it gives it surroundings of its own.
    pub(super) fn start_by(place: &Place, program: &str, words: &str) -> Self {
        let mut program = program.split_whitespace();
        let mut child = place
            .command(program.next().unwrap())
            .args(program)
            .args([env!("CARGO_BIN_EXE_plexum"), "daemon"])
            .args(words.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(
            line.contains("daemon.socket"),
            "it did not get ready: {line}"
        );
        Self { child, said: line }
    }

    /// SIGKILL, as a crash of the program.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What it says on standard error, from now on.
    pub(super) fn notes(&mut self) -> impl BufRead + use<> {
        BufReader::new(self.child.stderr.take().unwrap())
    }

    /// A clean end.
    pub(super) fn end(mut self, place: &Place) {
        let pid = self.child.id();
        assert_eq!(place.tool("kill", &format!("-TERM {pid}")).exit, 0);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with the members of a mirror `nas` and of a RAID-5 `vault`; nothing is served.
pub(super) fn two_sets(name: &str) -> Place {
    let place = Place::in_memory(name);
    done(
        &place,
        "create nas --level 1 --member-size 16M a b --assume-clean -y",
    );
    done(&place, "create vault --level 5 --member-size 16M c d e -y");
    place
}

/// Names of the volumes that are served, and of those that are not, each with why not.
pub(super) fn names(place: &Place) -> (Vec<String>, Vec<(String, String)>) {
    let told = place.plexum("status --json").objects();
    let name = |one: &Value| one["volume"].as_str().unwrap().to_owned();
    let served = told.iter().filter(|one| one["kind"] == "volume").map(name);
    let waiting = told.iter().filter(|one| one["kind"] == "waiting");
    let waiting = waiting.map(|one| (name(one), one["wanted"].as_str().unwrap().to_owned()));
    (served.collect(), waiting.collect())
}

pub(super) fn served(place: &Place) -> Vec<String> {
    names(place).0
}

#[test]
fn volumes_that_the_daemon_was_given_are_there_after_its_end_and_after_a_kill() {
    let place = two_sets("daemon-again");
    let daemon = Daemon::start(&place, "");
    assert_eq!(served(&place), [""; 0]);
    let ready = done(&place, "serve a b");
    assert!(ready.out.contains("nas.nbd"), "{}", ready.out);
    done(&place, "serve --scan .");
    assert_eq!(served(&place), ["nas", "vault"]);
    let uri = format!(
        "nbd+unix:///nas?socket={}",
        place.file("plexum/nas.nbd").display()
    );
    let write = place
        .command("qemu-io")
        .args(["-f", "raw", "-c", "write -P 7 0 64k", &uri])
        .output()
        .unwrap();
    assert!(write.status.success());
    daemon.end(&place);
    let daemon = Daemon::start(&place, "");
    assert_eq!(served(&place), ["nas", "vault"]);
    assert!(daemon.said.contains("2 volumes served"), "{}", daemon.said);
    daemon.kill();
    let _daemon = Daemon::start(&place, "");
    assert_eq!(served(&place), ["nas", "vault"]);
    let read = place
        .command("qemu-io")
        .args(["-r", "-f", "raw", "-c", "read -P 7 0 64k", &uri])
        .output()
        .unwrap();
    assert!(
        read.status.success(),
        "{}",
        String::from_utf8_lossy(&read.stdout)
    );
}

#[test]
fn a_volume_that_was_stopped_stays_so_until_it_is_asked_for_and_can_be_forgotten() {
    let place = two_sets("daemon-stopped");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    let early = place.plexum("forget nas");
    assert!(early.err.contains("plexum stop nas"), "{}", early.err);
    done(&place, "stop nas");
    let stopped = vec![("nas".to_owned(), "stopped".to_owned())];
    assert_eq!(names(&place), (vec![], stopped.clone()));
    daemon.kill();
    let daemon = Daemon::start(&place, "");
    assert_eq!(names(&place), (vec![], stopped));
    let told = place.plexum("status");
    assert!(told.out.contains("plexum serve nas"), "{}", told.out);
    done(&place, "serve nas");
    assert_eq!(served(&place), ["nas"]);
    done(&place, "stop nas");
    done(&place, "forget nas -n");
    assert_eq!(names(&place).1.len(), 1, "a dry run forgets nothing");
    done(&place, "forget nas");
    assert_eq!(names(&place), (vec![], vec![]));
    daemon.kill();
    let _daemon = Daemon::start(&place, "");
    assert_eq!(names(&place), (vec![], vec![]));
    let unknown = place.plexum("forget nas");
    assert_eq!(unknown.exit, 7, "{}", unknown.err);
    done(&place, "serve a b");
}

#[test]
fn what_was_answered_is_kept_whenever_the_daemon_is_killed() {
    let place = two_sets("daemon-killed");
    let mut daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    for round in 0..6 {
        let is_served = round % 2 == 1;
        done(&place, if is_served { "serve nas" } else { "stop nas" });
        daemon.kill();
        daemon = Daemon::start(&place, "");
        let expected: &[&str] = if is_served { &["nas"] } else { &[] };
        assert_eq!(served(&place), expected, "round {round}");
    }
}

#[test]
fn a_volume_that_lacks_a_member_waits_and_keeps_no_other_from_being_served() {
    let place = two_sets("daemon-waits");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "serve c d e");
    daemon.end(&place);
    std::fs::rename(place.file("d"), place.away("elsewhere")).unwrap();
    let daemon = Daemon::start(&place, "--degraded never");
    let waits = vec![("vault".to_owned(), "served".to_owned())];
    assert_eq!(names(&place), (vec!["nas".to_owned()], waits));
    let told = place.plexum("status");
    assert_eq!(told.exit, 7, "{}", told.out);
    let line = told
        .out
        .lines()
        .find(|line| line.starts_with("vault"))
        .unwrap();
    let gone = place.file("d").display().to_string();
    assert!(
        line.contains("NOT SERVED") && line.ends_with(&gone),
        "{line}"
    );
    // It comes late.
    std::fs::rename(place.away("elsewhere"), place.file("d")).unwrap();
    wait_for(&place, "the late member completes the volume", |place| {
        served(place) == ["nas", "vault"]
    });
    done(&place, "status");
    daemon.end(&place);
    // Nobody else asks for it: a volume that waits can be stopped.
    std::fs::rename(place.file("d"), place.away("elsewhere")).unwrap();
    let _daemon = Daemon::start(&place, "--degraded never");
    done(&place, "stop vault");
    let stopped = vec![("vault".to_owned(), "stopped".to_owned())];
    assert_eq!(names(&place), (vec!["nas".to_owned()], stopped));
}

#[test]
fn a_member_that_lets_a_start_wait_keeps_no_other_volume_waiting() {
    let place = two_sets("daemon-at-once");
    done(&place, "create far --level 1 --member-size 16M f g -y");
    let daemon = Daemon::start(&place, "");
    for members in ["a b", "c d e", "f g"] {
        done(&place, &format!("serve {members}"));
    }
    daemon.end(&place);
    // One member of `far` is at a server now that takes connections and says nothing.
    let mute = UnixListener::bind(place.file("mute")).unwrap();
    let uri = format!(
        "nbd+unix:///g?socket={}",
        place.file("mute").to_str().unwrap()
    );
    for kept in std::fs::read_dir(place.file("state/plexum/volumes")).unwrap() {
        let path = kept.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let here = format!("\"{}\"", place.file("g").to_str().unwrap());
        std::fs::write(&path, text.replace(&here, &format!("\"{uri}\""))).unwrap();
    }
    std::thread::scope(|scope| {
        let start = scope.spawn(|| Daemon::start(&place, ""));
        let asked = mute.accept().unwrap();
        for volume in ["nas", "vault"] {
            let socket = place.file(&format!("plexum/{volume}.nbd"));
            wait_until(&place, "the others are served", || {
                place.tool("true", ""); // it takes its time
                UnixStream::connect(&socket).is_ok()
            });
        }
        assert!(!start.is_finished(), "`far` is still being tried");
        drop((asked, mute));
        let _daemon = start.join().unwrap();
        assert_eq!(served(&place), ["nas", "vault"]);
    });
}

#[test]
fn a_volume_starts_without_a_member_when_it_was_waited_for_and_takes_it_back_when_it_returns() {
    let place = two_sets("daemon-returns");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    daemon.end(&place);
    std::fs::rename(place.file("b"), place.away("elsewhere")).unwrap();
    let _daemon = Daemon::start(&place, "--wait 0");
    wait_for(&place, "it starts without its member", |place| {
        served(place) == ["nas"]
    });
    let status = place.plexum("status nas --json").objects().remove(0);
    assert_eq!(status["verdict"], "degraded");
    let uri = format!(
        "nbd+unix:///nas?socket={}",
        place.file("plexum/nas.nbd").display()
    );
    let write = place
        .command("qemu-io")
        .args(["-f", "raw", "-c", "write -P 9 0 64k", &uri])
        .output()
        .unwrap();
    assert!(write.status.success());
    std::fs::rename(place.away("elsewhere"), place.file("b")).unwrap();
    wait_until(&place, "the member is back and complete", || {
        let status = place.plexum("status nas --json").objects().remove(0);
        status["verdict"] == "ok" && status["jobs"].as_array().unwrap().is_empty()
    });
    // Who failed because somebody said so does not come back by itself.
    done(&place, "fail nas b");
    done(&place, "set nas balance=load"); // something that the daemon does meanwhile
    let before = place.plexum("events nas --json").objects().len();
    wait_for(&place, "the daemon has looked twice", |place| {
        place.plexum("events nas --json").objects().len() == before && daemon_has_looked(place)
    });
    let status = place.plexum("status nas --json").objects().remove(0);
    assert_eq!(status["verdict"], "degraded");
}

/// Whether a volume that was made to wait after this question has been tried: then every other one was looked at.
fn daemon_has_looked(place: &Place) -> bool {
    if names(place).1.is_empty() && served(place) == ["nas"] {
        done(place, "serve c d e");
        done(place, "stop vault");
        std::fs::rename(place.file("c"), place.away("c")).unwrap();
        std::fs::rename(place.file("d"), place.away("d")).unwrap();
        assert_ne!(place.plexum("serve vault").exit, 0);
        std::fs::rename(place.away("c"), place.file("c")).unwrap();
        std::fs::rename(place.away("d"), place.file("d")).unwrap();
    }
    served(place) == ["nas", "vault"]
}

#[test]
fn what_holds_for_a_whole_server_is_refused_while_a_daemon_runs_and_there_is_one_daemon() {
    let place = two_sets("daemon-alone");
    let _daemon = Daemon::start(&place, "");
    let second = place.plexum("daemon");
    assert_eq!(second.exit, 6, "{}", second.err);
    let refused = place.plexum("serve a b --cores 2");
    assert_eq!(refused.exit, 2);
    assert!(refused.err.contains("--alone"), "{}", refused.err);
    done(&place, "serve a b --background --alone");
    assert_eq!(names(&place).0, ["nas"], "it is told beside the daemon's");
    assert!(
        place.plexum("serve a b").err.contains("in use"),
        "its members are not free"
    );
    done(&place, "stop nas");
    let wrong = place.plexum("daemon --degraded sometimes");
    assert_eq!(
        (wrong.exit, wrong.err.lines().count()),
        (2, 1),
        "{}",
        wrong.err
    );
}

#[test]
fn what_is_kept_and_makes_no_sense_is_told_and_the_other_volumes_are_served() {
    let place = two_sets("daemon-damaged");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "serve c d e");
    daemon.end(&place);
    let folder = place.file("state/plexum/volumes");
    let nas = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| std::fs::read_to_string(path).unwrap().contains("\"nas\""))
        .unwrap();
    let text = std::fs::read_to_string(&nas).unwrap();
    std::fs::write(&nas, &text[..text.len() / 2]).unwrap();
    let _daemon = Daemon::start(&place, "");
    assert_eq!(served(&place), ["vault"]);
    assert_eq!(
        std::fs::read_to_string(&nas).unwrap().len(),
        text.len() / 2,
        "it is left as it is"
    );
    done(&place, "serve a b");
    assert_eq!(served(&place), ["nas", "vault"]);
}

/// Polls until it is so.
fn wait_for(place: &Place, what: &str, mut look: impl FnMut(&Place) -> bool) {
    for _ in 0..2000 {
        if look(place) {
            return;
        }
    }
    panic!("waited in vain until {what}: {:?}", names(place));
}

#[test]
fn who_has_changed_a_served_volume_and_why_is_in_its_events_also_after_a_restart() {
    let place = two_sets("daemon-asked");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "set nas balance=load");
    let b = place.file("b").display().to_string();
    let run = place
        .command(env!("CARGO_BIN_EXE_plexum"))
        .args(["fail", "nas", &b, "--why", "it is slow & old"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    assert_ne!(
        place.plexum("fail nas a --why none").exit,
        0,
        "the last one"
    );
    done(&place, "remove nas 1 --dry-run");
    done(&place, "stop nas --why winter");
    daemon.kill();
    let _daemon = Daemon::start(&place, "");
    done(&place, "serve nas --run-degraded");
    let told = done(&place, "events nas --json").objects();
    let asked = told.iter().filter(|event| event["name"] == "asked");
    let asked: Vec<&str> = asked
        .map(|event| event["message"].as_str().unwrap())
        .collect();
    let who = format!("user {}", rustix::process::geteuid().as_raw());
    let expected = [
        format!("{who} asked: set balance=load"),
        format!("{who} asked: fail {b} (why: it is slow & old)"),
        format!("{who} asked: stop (why: winter)"),
    ];
    assert_eq!(asked, expected);
}
