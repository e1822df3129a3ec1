//! A status never says more than was seen: scrubs that did not get through, servers that were killed, failed volumes.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::common::served::{Server, done, mirror, status, wait_until};
use super::common::{Place, Run};

/// Exit code of `status` for a volume that has failed.
const FAILED: i32 = 8;

/// The command behind the words that introduce it, as a reader would copy it, without `plexum`.
fn advised(text: &str, words: &str) -> String {
    let lines = text.lines().map(str::trim_start);
    let found = lines.filter_map(|line| line.strip_prefix(words)).next();
    let command = found.unwrap_or_else(|| panic!("no line begins with {words:?}:\n{text}"));
    let command = command.trim().strip_prefix("plexum ").unwrap();
    command.to_owned()
}

/// Changes a byte of the last part of a member's data behind everybody's back.
fn spoil(place: &Place, member: &str) {
    let path = place.file(member);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() - (1 << 20);
    bytes[at] ^= 0xff;
    std::fs::write(&path, bytes).unwrap();
}

fn events(place: &Place) -> Vec<Value> {
    place.plexum("events --json").objects()
}

#[test]
fn a_scrub_that_was_stopped_says_how_far_it_came_and_is_no_result() {
    let (place, server) = mirror("status-stopped");
    assert!(
        done(&place, "scrub nas --stop")
            .out
            .contains("no scrub of nas runs")
    );
    done(&place, "set nas rebuild=pause");
    done(&place, "scrub nas");
    let running = place.plexum("status nas").out;
    assert!(!running.contains("Last scrub"), "{running}");
    let stopped = done(&place, "scrub nas --stop");
    assert!(
        stopped.out.contains("the scrub is stopped at "),
        "{}",
        stopped.out
    );
    let shown = place.plexum("status nas").out;
    let line = shown
        .lines()
        .find(|line| line.contains("Last scrub"))
        .unwrap();
    assert!(
        line.contains("stopped at ") && line.contains("0 differ up to there"),
        "{line}"
    );
    let scrub = &status(&place)["last_scrub"];
    assert_eq!(scrub["is_complete"], false);
    assert!(
        scrub["done_bytes"].as_u64() < scrub["total_bytes"].as_u64(),
        "{scrub}"
    );
    let told = events(&place);
    assert!(
        told.iter().any(|event| event["name"] == "scrub_stopped"),
        "{told:?}"
    );
    assert!(
        told.iter().all(|event| event["name"] != "scrub_finished"),
        "{told:?}"
    );
    done(&place, "set nas rebuild=resume");
    assert!(
        done(&place, "scrub nas --wait")
            .out
            .contains("nas: no differences")
    );
    assert_eq!(status(&place)["last_scrub"]["is_complete"], true);
    server.stop(&place);
}

#[test]
fn a_read_only_volume_is_scrubbed_and_what_it_finds_is_in_the_verdict() {
    let (place, server) = mirror("status-read-only");
    server.stop(&place);
    spoil(&place, "b");
    let before = place.snapshot();
    let server = Server::start(&place, "a b --read-only");
    let found = place.plexum("scrub nas --wait");
    assert_eq!(found.exit, 1, "{}{}", found.out, found.err);
    assert!(found.out.contains("4K differ"), "{}", found.out);
    assert!(
        !found.out.contains("--repair"),
        "it would be refused: {}",
        found.out
    );
    let shown = place.plexum("status");
    assert_eq!(shown.exit, 1, "{}", shown.out);
    assert!(shown.out.starts_with("nas      DAMAGED"), "{}", shown.out);
    assert!(!shown.out.contains("Next:"), "{}", shown.out);
    assert_eq!(place.plexum("scrub nas --repair").exit, 3);
    server.stop(&place);
    assert_eq!(
        place.snapshot(),
        before,
        "a read-only scrub changes nothing"
    );
}

#[test]
fn damage_that_a_scrub_found_is_told_until_it_is_mended() {
    let (place, server) = mirror("status-damage");
    server.stop(&place);
    spoil(&place, "a");
    let server = Server::start(&place, "a b");
    let found = place.plexum("scrub nas --wait");
    assert_eq!(found.exit, 1);
    let command = advised(&found.out, "to mend them:");
    assert_eq!(status(&place)["verdict"], "damaged");
    // A scrub that does not get there takes nothing back.
    done(&place, "set nas rebuild=pause");
    done(&place, "scrub nas");
    done(&place, "scrub nas --stop");
    done(&place, "set nas rebuild=resume");
    let shown = place.plexum("status nas");
    assert_eq!(shown.exit, 1, "{}", shown.out);
    assert!(
        shown.out.contains("DAMAGED") && shown.out.contains("stopped at"),
        "{}",
        shown.out
    );
    assert_eq!(advised(&shown.out, "Next:"), command);
    assert_eq!(
        place.plexum(&command).exit,
        1,
        "there was something to mend"
    );
    let shown = place.plexum("status nas");
    assert_eq!(shown.exit, 0, "{}", shown.out);
    assert!(shown.out.contains("4K mended"), "{}", shown.out);
    server.stop(&place);
}

#[test]
fn a_server_that_was_killed_is_missed_and_comes_back_by_the_command_that_is_told() {
    let (place, server) = mirror("status-killed");
    server.kill();
    for words in ["status", "status nas", "stop nas", "scrub"] {
        let run = place.plexum(words);
        let text = format!("{}{}", run.out, run.err);
        assert_eq!(run.exit, 7, "{words}: {text}");
        assert!(text.contains("ended without a stop"), "{words}: {text}");
    }
    let shown = place.plexum("status").out;
    let json = place.plexum("status --json").objects().remove(0);
    let again = advised(&shown, "to serve it again:");
    assert_eq!(json["dead"][0]["command"], format!("plexum {again}"));
    assert_eq!(json["dead"][0]["volume"], "nas");
    done(&place, &format!("{again} --background"));
    assert_eq!(place.plexum("status").exit, 0);
    done(&place, "stop nas");
    let shown = place.plexum("status");
    assert!(!shown.out.contains("ended without a stop"), "{}", shown.out);
    let folder = place.file("plexum");
    assert!(
        shown
            .out
            .contains(&format!("looked in {}", folder.display())),
        "{}",
        shown.out
    );
}

#[test]
fn a_server_that_was_started_with_another_runtime_folder_is_told_by_status() {
    let (place, server) = mirror("status-elsewhere");
    std::fs::create_dir(place.file("other")).unwrap();
    let other = [("XDG_RUNTIME_DIR", place.file("other"))];
    let shown = place.plexum_with("status", &other);
    assert_eq!(shown.exit, 7, "{}", shown.out);
    let folder = place.file("plexum").display().to_string();
    assert!(
        shown.out.contains(&format!("in {folder}: nas served")),
        "{}",
        shown.out
    );
    let parent = place.file("plexum").parent().unwrap().display().to_string();
    let command = format!("to see it:   env XDG_RUNTIME_DIR={parent} plexum status");
    assert!(shown.out.contains(&command), "{}", shown.out);
    server.stop(&place);
}

#[test]
fn events_tell_their_time_to_the_second() {
    let (place, server) = mirror("status-events");
    let told = place.plexum("events nas");
    let line = told.out.lines().next().unwrap();
    let time = line.split_whitespace().nth(1).unwrap();
    let parts: Vec<usize> = time.split(':').map(|part| part.parse().unwrap()).collect();
    assert!(parts.len() == 3 && parts[2] < 61, "{line}");
    server.stop(&place);
}

#[test]
fn a_failed_volume_counts_every_loss_and_has_an_exit_code_of_its_own() {
    let place = Place::in_memory("status-failed");
    done(&place, "create nas --level 0 --member-size 24M a b");
    let server = Server::start(&place, "a b");
    std::fs::remove_file(place.file("a")).unwrap();
    wait_until(&place, "the loss is noticed", || {
        status(&place)["verdict"] == "failed"
    });
    let shown = place.plexum("status");
    assert_eq!(shown.exit, FAILED, "{}", shown.out);
    assert!(shown.out.contains("1 of 2 members lost"), "{}", shown.out);
    assert!(
        shown.out.contains("/a has failed: the device is gone"),
        "{}",
        shown.out
    );
    assert!(!shown.out.contains("plexum remove"), "{}", shown.out);
    let member = &status(&place)["members"][0];
    assert_eq!(
        (&member["slot"], &member["state"]),
        (&0.into(), &"faulty".into())
    );
    drop(server);
}

#[test]
fn a_member_that_was_failed_on_request_is_taken_back_by_the_next_step() {
    let (place, server) = mirror("status-next");
    done(&place, "fail nas b");
    let shown = place.plexum("status nas");
    assert_eq!(shown.exit, 1);
    assert!(
        shown.out.contains("/b has failed: as asked"),
        "{}",
        shown.out
    );
    let next = advised(&shown.out, "Next:");
    assert!(next.starts_with("re-add nas "), "{next}");
    done(&place, &format!("{next} --wait"));
    assert_eq!(place.plexum("status nas").exit, 0);
    server.stop(&place);
}

/// Commands that print, with what is served as `nas`.
const PRINTING: &[&str] = &[
    "--help",
    "--version",
    "create --help",
    "create new --level 1 --member-size 24M x y -n",
    "examine a b",
    "scan .",
    "explain",
    "explain usage",
    "explain nas --if 0",
    "status",
    "status --watch",
    "status nas --json",
    "stats nas",
    "stats nas --interval 1",
    "events nas",
    "debug requests nas",
    "scrub nas --wait",
    "set nas balance=load",
    "fail nas b",
    "remove nas b",
    "add nas b",
    "re-add nas b",
    "replace nas a z -n",
    "completions bash",
    "man",
    "gmirror help",
    "gvinum help",
    "gmirror list --in .",
    "config a",
    "convert a b --to md-1.0 -n",
    "pool list a",
    "sim --seeds 1 --minutes 1",
    "serve a b -n",
    "serve c d",
    "detach nas",
    "lab --help",
    "bench --help",
    "demo --level 0",
    "frobnicate",
    "stop nas -n",
];

fn ended(mut command: Command, words: &str) -> Run {
    let output = command.output().unwrap();
    let run = Run {
        exit: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(
        (0..=8).contains(&run.exit),
        "{words}: {}: {}",
        run.exit,
        run.err
    );
    assert!(!run.err.contains("panicked"), "{words}: {}", run.err);
    run
}

/// `plexum WORDS` in the place; what else is set is up to the caller.
fn plexum(place: &Place, words: &str) -> Command {
    let mut command = place.command(env!("CARGO_BIN_EXE_plexum"));
    command.args(words.split_whitespace());
    command
}

#[test]
fn no_command_panics_when_its_output_is_full_or_nobody_reads_it() {
    let (place, server) = mirror("status-output");
    done(&place, "create two --level 1 --member-size 24M c d");
    let full = || {
        std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    for words in PRINTING {
        let mut command = plexum(&place, words);
        command.stdout(full()).stderr(Stdio::piped());
        let run = ended(command, words);
        if run.exit == 5 {
            let line = "writing to standard output: no space left on device";
            assert!(run.err.contains(line), "{words}: {}", run.err);
        }
        let mut command = plexum(&place, words);
        command.stdout(full()).stderr(full());
        ended(command, words);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = plexum(&place, words);
        command.stdout(writer).stderr(Stdio::piped());
        ended(command, words);
    }
    for words in ["status", "man", "--help", "explain"] {
        let mut command = plexum(&place, words);
        command.stdout(full());
        assert_eq!(ended(command, words).exit, 5, "{words}");
    }
    assert_eq!(status(&place)["kind"], "volume", "the server goes on");
    drop(server);
}
