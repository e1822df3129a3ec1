//! What the daemon tells monitoring, and what it compares by itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::common::Place;
use super::common::served::{done, status, wait_until};

/// A daemon in the foreground, killed at the end.
struct Daemon {
    child: Child,
    said: Vec<String>,
}

impl Daemon {
    /// Starts one that says `lines` lines when it is ready.
    fn start(place: &Place, words: &str, lines: usize) -> Self {
        let mut child = place
            .command(env!("CARGO_BIN_EXE_plexum"))
            .arg("daemon")
            .args(words.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let said = said.take(lines).map(Result::unwrap).collect();
        Self { child, said }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mirror(name: &str) -> Place {
    let place = Place::in_memory(name);
    done(
        &place,
        "create nas --level 1 --member-size 16M a b --assume-clean -y",
    );
    place
}

/// Has promtool look at a page.
fn check_metrics(place: &Place, page: &str) {
    let mut tool = place
        .command("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool can be started");
    tool.stdin
        .take()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    let told = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success() && said.is_empty(), "{said}\n{page}");
}

/// One request over TCP, and everything that comes.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_told_on_loopback_and_by_a_command_as_prometheus_wants_them() {
    let place = mirror("metrics");
    let daemon = Daemon::start(&place, "--metrics-listen 127.0.0.1:0", 2);
    done(&place, "serve a b");
    done(&place, "fail nas b");
    let page = done(&place, "metrics").out;
    check_metrics(&place, &page);
    for line in [
        r#"plexum_volume_served{volume="nas"} 1"#,
        r#"plexum_volume_spare_failures{volume="nas"} 0"#,
        r#"plexum_volume_designed_spare_failures{volume="nas"} 1"#,
        r#"plexum_volume_state{volume="nas",state="degraded"} 1"#,
        r#"plexum_requests_total{volume="nas",request="read"} 0"#,
    ] {
        assert!(page.lines().any(|known| known == line), "{line}\n{page}");
    }
    let address = daemon.said[1].strip_prefix("metrics: http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    let answer = get(address, "/metrics");
    assert!(answer.contains("text/plain; version=0.0.4"), "{answer}");
    assert!(
        answer.contains(r#"plexum_volume_served{volume="nas"} 1"#),
        "{answer}"
    );
    // Nothing else is there, and nothing that changes anything.
    assert!(get(address, "/v1/volumes").starts_with("HTTP/1.1 404"));
    let json: Value = place.plexum("metrics --json").objects().remove(0);
    assert_eq!(json["kind"], "metrics");
}

#[test]
fn metrics_are_told_to_nobody_beyond_this_machine() {
    let place = mirror("metrics-refused");
    let refused = place.plexum("daemon --metrics-listen 0.0.0.0:0");
    assert_eq!(refused.exit, 2, "{}", refused.err);
    assert!(
        refused.err.contains("no loopback address"),
        "{}",
        refused.err
    );
    let nobody = place.plexum("metrics");
    assert_eq!(
        (nobody.exit, nobody.out.as_str()),
        (7, ""),
        "{}",
        nobody.err
    );
}

#[test]
fn the_metrics_of_servers_beside_the_daemon_are_on_the_same_page() {
    let place = mirror("metrics-both");
    done(
        &place,
        "create alone --level 1 --member-size 16M c d --assume-clean -y",
    );
    done(&place, "serve c d --background");
    let _daemon = Daemon::start(&place, "", 1);
    done(&place, "serve a b");
    let page = done(&place, "metrics").out;
    check_metrics(&place, &page);
    for volume in ["nas", "alone"] {
        let line = format!("plexum_volume_served{{volume=\"{volume}\"}} 1");
        assert_eq!(page.matches(&line).count(), 1, "{page}");
    }
    done(&place, "stop alone");
}

#[test]
fn a_volume_is_scrubbed_by_itself_and_a_new_daemon_knows_that_it_was() {
    let place = mirror("scrubbed");
    let daemon = Daemon::start(&place, "--scrub-every 30d", 1);
    done(&place, "serve a b");
    wait_until(&place, "a round is through", || {
        status(&place)["scrub_plan"]["last_success_s"].is_u64()
    });
    let plan = status(&place)["scrub_plan"].clone();
    let success = plan["last_success_s"].as_u64().unwrap();
    assert_eq!(plan["oldest_byte_s"], success);
    let next = plan["next_s"].as_u64();
    assert!(
        next.is_none_or(|next| next >= success + 30 * 86_400),
        "{plan}"
    );
    let events = place.plexum("events nas --json").objects();
    assert_eq!(
        events
            .iter()
            .filter(|event| event["name"] == "scrub_finished")
            .count(),
        1
    );
    let page = done(&place, "metrics").out;
    let line = format!("plexum_scrub_last_success_timestamp_seconds{{volume=\"nas\"}} {success}");
    assert!(page.lines().any(|known| known == line), "{page}");
    drop(daemon); // killed
    let _daemon = Daemon::start(&place, "--scrub-every 30d", 1);
    wait_until(&place, "it has been looked after", || {
        status(&place)["scrub_plan"].is_object()
    });
    let again = status(&place)["scrub_plan"].clone();
    assert_eq!(again["last_success_s"], success, "{again}");
    assert!(
        again["waits_because"]
            .as_str()
            .unwrap()
            .contains("compared lately"),
        "{again}"
    );
    let shown = done(&place, "status nas").out;
    assert!(
        shown.contains("Scrub every 30d00h: all is compared within"),
        "{shown}"
    );
}

#[test]
fn what_a_scrub_by_itself_finds_is_told_and_a_scrub_by_hand_counts_as_well() {
    let place = mirror("scrub-finds");
    let image = place.file("b");
    let mut bytes = std::fs::read(&image).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&image, bytes).unwrap();
    let _daemon = Daemon::start(&place, "--scrub-every 30d", 1);
    done(&place, "serve a b");
    wait_until(&place, "the difference is found", || {
        status(&place)["verdict"] == "damaged"
    });
    let found = status(&place);
    assert_eq!(found["last_scrub"]["mismatch_bytes"], 4096, "{found}");
    let repaired = place.plexum("scrub nas --repair --wait");
    assert_eq!(repaired.exit, 1, "it found something: {}", repaired.err);
    wait_until(&place, "the repair counts as a round", || {
        let now = status(&place);
        now["verdict"] == "ok" && now["scrub_plan"]["last_success_s"].is_u64()
    });
}

/// A daemon that scrubs `nas` by schedule, so slowly that it would take a minute.
fn slowly_scrubbed(name: &str) -> (Place, Daemon) {
    let place = mirror(name);
    let daemon = Daemon::start(&place, "--scrub-every 30d --scrub-rate 256K", 1);
    done(&place, "serve a b");
    wait_until(&place, "it is scrubbed by schedule", || {
        status(&place)["jobs"][0]["kind"] == "scrub"
    });
    (place, daemon)
}

#[test]
fn who_stops_a_scrub_by_schedule_has_a_day_without_one_and_the_round_goes_on_after_a_kill() {
    let (place, daemon) = slowly_scrubbed("scrub-stopped");
    done(&place, "scrub nas --stop");
    wait_until(&place, "it says when it goes on", || {
        let plan = status(&place)["scrub_plan"].clone();
        plan["waits_because"] == "somebody has stopped it" && plan["next_s"].is_u64()
    });
    let plan = status(&place)["scrub_plan"].clone();
    assert!(plan["last_success_s"].is_null(), "{plan}");
    // What it had done until then is known to the next daemon.
    let done_bytes = plan["round_done_bytes"].as_u64().unwrap();
    assert!(done_bytes > 0, "{plan}");
    drop(daemon); // killed
    let _daemon = Daemon::start(&place, "--scrub-every 30d --scrub-rate 256K", 1);
    wait_until(&place, "the round goes on", || {
        status(&place)["scrub_plan"]["round_done_bytes"].as_u64() >= Some(done_bytes)
    });
}

#[test]
fn a_scrub_by_hand_comes_before_one_by_schedule_and_counts_in_its_place() {
    let (place, _daemon) = slowly_scrubbed("scrub-by-hand");
    done(&place, "scrub nas --wait");
    wait_until(&place, "it counts", || {
        status(&place)["scrub_plan"]["last_success_s"].is_u64()
    });
    assert_eq!(status(&place)["last_scrub"]["is_complete"], true);
}
