//! What is wrong is told, once, to whoever is configured; whatever becomes of the daemon, its folders and its channels.
//!
//! Numbers in comments are those of the table of what people ask for, `docs/alarms.md`.

use std::io::{BufRead, Read};

use serde_json::Value;

use super::common::Place;
use super::common::served::{done, wait_until};
use super::daemon::Daemon;

/// Nothing has to hold, and what is over is told at once: tests wait for no time.
pub(super) const AT_ONCE: &str = "[alarm]\nhold = \"0s\"\nquiet = \"0s\"\n";

/// A message as the program of the channel `own` has got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) kind: String,
    pub(super) severity: String,
    pub(super) subject: String,
}

/// A folder with the members of a mirror `nas` and of a RAID-5 `vault`, and a channel that writes down what it gets.
pub(super) fn home(name: &str, more: &str) -> Place {
    let place = Place::in_memory(name);
    done(
        &place,
        "create nas --level 1 --member-size 16M a b --assume-clean -y",
    );
    done(&place, "create vault --level 5 --member-size 64M c d e -y");
    configure_own(&place, more);
    place
}

/// A channel `own` that writes down what it gets, and more of the configuration.
pub(super) fn configure_own(place: &Place, more: &str) {
    script(
        place,
        "own",
        "printf '%s|%s|%s\\n' \"$PLEXUM_KIND\" \"$PLEXUM_SEVERITY\" \"$PLEXUM_SUBJECT\" >> messages; echo taken",
    );
    let own = channel(place, "own");
    configure(place, &format!("{AT_ONCE}{own}{more}"));
}

/// A program in the folder, which works there.
pub(super) fn script(place: &Place, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = place.file(name);
    let folder = place.folder.display();
    std::fs::write(&path, format!("#!/bin/sh\ncd {folder}\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A channel that starts a program of the folder.
pub(super) fn channel(place: &Place, name: &str) -> String {
    let program = place.file(name).display().to_string();
    format!("[[alarm.channel]]\nname = \"{name}\"\nkind = \"program\"\ncommand = [\"{program}\"]\n")
}

pub(super) fn configure(place: &Place, text: &str) {
    let folder = place.file("config/plexum");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("plexum.toml"), text).unwrap();
}

/// What the channel `own` has got.
pub(super) fn messages(place: &Place) -> Vec<Told> {
    let text = std::fs::read_to_string(place.file("messages")).unwrap_or_default();
    let told = text.lines().map(|line| {
        let mut parts = line.splitn(3, '|').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Told {
            kind: next(),
            severity: next(),
            subject: next(),
        }
    });
    told.collect()
}

fn kinds(place: &Place) -> Vec<String> {
    messages(place).into_iter().map(|told| told.kind).collect()
}

/// Waits until the channel `own` has got so many messages.
pub(super) fn wait_for_messages(place: &Place, count: usize) -> Vec<Told> {
    wait_until(place, "the messages arrive", || {
        let _ = place.plexum("incident --json"); // something to do meanwhile
        messages(place).len() >= count
    });
    messages(place)
}

/// All incidents, as programs read them.
fn incidents(place: &Place) -> Vec<Value> {
    let told = done(place, "incident --json").objects();
    let incidents = told.into_iter().filter(|one| one["kind"] == "incident");
    incidents.collect()
}

/// Number and state of each incident of this code.
pub(super) fn of_code(place: &Place, code: &str) -> Vec<(String, String)> {
    let all = incidents(place);
    let wanted = all.iter().filter(|one| one["code"] == code);
    let word = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    wanted
        .map(|one| (word(one, "id"), word(one, "state")))
        .collect()
}

/// Waits until the volume has all it should have.
fn wait_for_whole(place: &Place, volume: &str) {
    wait_until(place, "the volume is whole", || {
        let status = place.plexum(&format!("status {volume} --json"));
        let status = status.objects().remove(0);
        status["verdict"] == "ok" && status["jobs"].as_array().is_some_and(Vec::is_empty)
    });
}

/// Of the first volume what the second one is told shows that everything was looked at.
fn everything_was_looked_at(place: &Place) {
    let before = messages(place).len();
    done(place, "fail nas b");
    let told = wait_for_messages(place, before + 1);
    let subject = &told[before].subject;
    assert!(subject.contains(" nas: ONE MORE FAILURE"), "{subject}");
}

// 1, 17, 20: openzfs/zfs#2808, openzfs/zfs#10123, netdata/netdata#12200.
#[test]
fn a_member_that_fails_is_one_message_with_slot_and_severity_and_its_repair_is_one() {
    let place = home("alarms-fails", "");
    let _daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "fail nas b");
    let told = wait_for_messages(&place, 1);
    let Told {
        kind,
        severity,
        subject,
    } = &told[0];
    assert_eq!((kind.as_str(), severity.as_str()), ("opened", "critical"));
    assert!(subject.contains("slot 1 is missing"), "{subject}");
    assert!(
        subject.ends_with(&place.file("b").display().to_string()),
        "{subject}"
    );
    let status = place.plexum("status");
    let lines: Vec<&str> = status
        .out
        .lines()
        .filter(|line| line.contains("incident"))
        .collect();
    assert_eq!(lines.len(), 1, "{}", status.out);
    assert!(lines[0].contains("ONE MORE FAILURE"), "{}", lines[0]);
    done(&place, "re-add nas b");
    let told = wait_for_messages(&place, 2);
    assert_eq!(told[1].kind, "closed");
    assert!(told[1].subject.contains("nas: OVER"), "{}", told[1].subject);
    let (id, state) = of_code(&place, "redundancy").remove(0);
    assert_eq!(state, "closed");
    wait_until(&place, "both messages are known to have arrived", || {
        let shown = done(&place, &format!("incident {id}")).out;
        shown.matches("own: arrived").count() == 2
    });
    assert!(!place.plexum("status").out.contains("incident"));
    done(&place, "alert test own");
    assert_eq!(kinds(&place), ["opened", "closed", "test"]);
}

// 2, 4, 23: openzfs/zfs#5986, NethServer/dev#7913, blind-oracle/zabbix-zfs#3.
#[test]
fn a_volume_that_starts_without_a_member_is_told_as_one_that_loses_it() {
    let place = home("alarms-start", "");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    daemon.end(&place);
    assert_eq!(messages(&place), []);
    std::fs::rename(place.file("b"), place.away("elsewhere")).unwrap();
    let _daemon = Daemon::start(&place, "--wait 0");
    let told = wait_for_messages(&place, 1);
    let told = told
        .iter()
        .find(|told| told.subject.contains("ONE MORE FAILURE"));
    let told = told
        .cloned()
        .unwrap_or_else(|| wait_for_messages(&place, 2).pop().unwrap());
    assert_eq!(told.severity, "critical");
    assert!(
        told.subject.contains("slot 1 is missing"),
        "{}",
        told.subject
    );
}

// 10: openmediavault/openmediavault#640.
#[test]
fn a_volume_that_is_not_there_is_told_with_its_name_and_why() {
    let place = home("alarms-absent", "[start]\nwait = \"0s\"\n");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    daemon.end(&place);
    for member in ["a", "b"] {
        std::fs::rename(place.file(member), place.away(member)).unwrap();
    }
    let daemon = Daemon::start(&place, "");
    let told = wait_for_messages(&place, 1);
    assert_eq!(told[0].severity, "critical");
    assert!(
        told[0].subject.contains("nas: IS NOT THERE"),
        "{}",
        told[0].subject
    );
    // What somebody has stopped is not missed.
    done(&place, "stop nas");
    assert_eq!(wait_for_messages(&place, 2)[1].kind, "closed");
    daemon.end(&place);
}

// 18: ccebelenski/anas#19.
#[test]
fn what_is_being_made_sends_nothing() {
    let place = home("alarms-made", "");
    for member in ["c", "d", "e"] {
        // What is not all zero has to be made to agree.
        std::fs::write(place.file(member), vec![7; 64 << 20]).unwrap();
    }
    done(&place, "create vault --level 5 c d e -y --force");
    let _daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "serve c d e");
    done(&place, "set vault rebuild-max=1M");
    let resyncs = || {
        let status = done(&place, "status vault --json").objects().remove(0);
        status["jobs"][0]["kind"] == "resync"
    };
    assert!(resyncs(), "it is being made");
    everything_was_looked_at(&place);
    assert!(resyncs(), "it is still being made");
    assert_eq!(messages(&place).len(), 1);
    // A loss while it is being made is one.
    done(&place, "fail vault e");
    let told = wait_for_messages(&place, 2);
    assert!(told[1].subject.contains(" vault: "), "{}", told[1].subject);
}

// 21: netdata/netdata#11180.
#[test]
fn a_volume_that_is_meant_to_lack_a_member_is_no_incident() {
    let place = home("alarms-lacks", "[volume.vault]\nexpect-missing = 1\n");
    let _daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "serve c d e");
    wait_for_whole(&place, "vault");
    done(&place, "fail vault e");
    everything_was_looked_at(&place);
    assert_eq!(messages(&place).len(), 1);
}

// 22: openstreetmap/operations#865.
#[test]
fn an_acknowledgement_holds_over_a_kill_until_the_incident_is_over_and_the_next_one_is_told() {
    let place = home("alarms-known", "");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "fail nas b");
    wait_for_messages(&place, 1);
    let (id, state) = of_code(&place, "redundancy").remove(0);
    assert_eq!(state, "open");
    let without = place.plexum(&format!("ack {id} --why "));
    assert_ne!(without.exit, 0, "a reason is needed");
    done(&place, &format!("ack {id} --why ordered -n"));
    assert_eq!(of_code(&place, "redundancy")[0].1, "open", "a dry run");
    done(&place, &format!("ack {id} --why ordered"));
    daemon.kill();
    let daemon = Daemon::start(&place, "--wait 0");
    let known = (id.clone(), "acknowledged".to_owned());
    assert_eq!(of_code(&place, "redundancy"), [known]);
    let shown = done(&place, &format!("incident {id}")).out;
    assert!(shown.contains("ordered"), "{shown}");
    wait_until(&place, "the volume is served", || {
        place.plexum("status nas").exit == 1
    });
    done(&place, "re-add nas b");
    let told = wait_for_messages(&place, 2);
    assert_eq!(told[1].kind, "closed");
    let over = place.plexum(&format!("ack {id} --why ordered"));
    assert_eq!(over.exit, 7, "{}", over.err);
    done(&place, "fail nas b");
    let told = wait_for_messages(&place, 3);
    assert_eq!(told[2].kind, "opened");
    assert_eq!(of_code(&place, "redundancy")[0].1, "open");
    daemon.end(&place);
}

#[test]
fn no_incident_and_no_acknowledgement_is_lost_whenever_the_daemon_is_killed() {
    let place = home("alarms-killed", "");
    let mut daemon = Daemon::start(&place, "--wait 0");
    done(&place, "serve a b");
    for looks in [0, 1, 12] {
        let before = messages(&place).len();
        daemon.kill();
        std::fs::rename(place.file("b"), place.away("elsewhere")).unwrap();
        daemon = Daemon::start(&place, "--wait 0");
        for _ in 0..looks {
            done(&place, "incident");
        }
        daemon.kill();
        daemon = Daemon::start(&place, "--wait 0");
        wait_until(&place, "it is told that a member is missing", || {
            let told = &messages(&place)[before..];
            of_code(&place, "redundancy")
                .iter()
                .any(|(_, state)| state == "open")
                && told
                    .iter()
                    .any(|told| told.subject.contains("slot 1 is missing"))
        });
        let (id, _) = of_code(&place, "redundancy").remove(0);
        done(&place, &format!("ack {id} --why ordered"));
        daemon.kill();
        daemon = Daemon::start(&place, "--wait 0");
        let known = (id, "acknowledged".to_owned());
        assert!(
            of_code(&place, "redundancy").contains(&known),
            "after {looks} looks"
        );
        std::fs::rename(place.away("elsewhere"), place.file("b")).unwrap();
        wait_until(&place, "its end is told", || {
            let states = of_code(&place, "redundancy");
            states.iter().all(|(_, state)| state == "closed")
                && kinds(&place)[before..].contains(&"closed".to_owned())
        });
    }
    daemon.end(&place);
}

// 12, 16: coreos/bugs#1548, rcourtman/Pulse#1506.
#[test]
fn a_channel_that_does_not_deliver_is_counted_and_told_by_the_others() {
    let place = home("alarms-broken", "");
    let broken = channel(&place, "nothere").replace("\"nothere\"", "\"broken\"");
    let text = format!("{AT_ONCE}{}{broken}", channel(&place, "own"));
    configure(&place, &text);
    let checked = place.plexum("config check");
    assert!(checked.out.contains("channel broken: "), "{}", checked.out);
    let mut daemon = Daemon::start(&place, "");
    let mut notes = daemon.notes();
    let mut said = String::new();
    notes.read_line(&mut said).unwrap();
    assert!(said.starts_with("note: channel broken: "), "{said}");
    done(&place, "serve a b");
    for _ in 0..3 {
        let failed = place.plexum("alert test broken");
        assert_eq!(failed.exit, 5, "{}", failed.err);
        let program = place.file("nothere").display().to_string();
        assert!(failed.err.contains(&program), "{}", failed.err);
        assert!(failed.err.contains("no such file"), "{}", failed.err);
    }
    let told = wait_for_messages(&place, 1);
    assert!(
        told[0].subject.contains("broken: MESSAGES DO NOT ARRIVE"),
        "{}",
        told[0].subject
    );
    let listed = done(&place, "incident").out;
    assert!(listed.contains("! channel broken fails"), "{listed}");
    assert!(listed.contains("3 attempts"), "{listed}");
    // It works now: that is over.
    script(&place, "nothere", "exit 0");
    done(&place, "alert test broken");
    assert_eq!(wait_for_messages(&place, 2)[1].kind, "closed");
}

// 15: radiorabe/rabe-zabbix#94.
#[test]
fn a_test_goes_the_whole_way_and_says_what_the_transport_answers() {
    let place = home("alarms-test", "");
    let nobody = place.plexum("alert test");
    assert_eq!(nobody.exit, 7, "{}", nobody.err);
    let mut daemon = Daemon::start(&place, "");
    let told = done(&place, "alert test own");
    assert_eq!(told.out, "own: taken\n");
    assert_eq!(kinds(&place), ["test"]);
    done(&place, "alert test own -n");
    assert_eq!(kinds(&place), ["test"], "a dry run sends nothing");
    let told = done(&place, "alert test --json").objects();
    let names: Vec<&str> = told
        .iter()
        .filter_map(|one| one["channel"].as_str())
        .collect();
    assert_eq!(names, ["journal", "own"]);
    let mut notes = daemon.notes();
    let mut line = String::new();
    notes.read_line(&mut line).unwrap();
    assert!(line.starts_with("<5>[") && line.contains("TEST"), "{line}");
    let unknown = place.plexum("alert test phone");
    assert_eq!(unknown.exit, 2);
    assert!(unknown.err.contains("journal, own"), "{}", unknown.err);
}

#[test]
fn a_wrong_configuration_is_one_line_and_an_incident_and_volumes_are_served_all_the_same() {
    let place = home("alarms-wrong", "");
    let text = format!(
        "{AT_ONCE}{}[start]\nwaits = \"5s\"\n",
        channel(&place, "own")
    );
    configure(&place, &text);
    let checked = place.plexum("config check");
    assert_eq!(checked.exit, 1);
    let file = place
        .file("config/plexum/plexum.toml")
        .display()
        .to_string();
    let line = format!("{file}: line 9: waits: unknown field `waits`");
    assert!(checked.out.starts_with(&line), "{}", checked.out);
    assert_eq!(checked.out.lines().count(), 1, "{}", checked.out);
    let mut daemon = Daemon::start(&place, "");
    let mut notes = daemon.notes();
    let mut said = String::new();
    notes.read_line(&mut said).unwrap();
    assert!(
        said.starts_with(&format!("note: not configured: {line}")),
        "{said}"
    );
    done(&place, "serve a b");
    let told = wait_for_messages(&place, 1);
    assert!(
        told[0].subject.contains("CONFIGURATION IS NOT READ"),
        "{}",
        told[0].subject
    );
    assert_eq!(told[0].severity, "warning");
    daemon.end(&place);
    configure(&place, &format!("{AT_ONCE}{}", channel(&place, "own")));
    let fine = done(&place, "config check").out;
    assert!(fine.contains("fine; messages go to journal, own"), "{fine}");
    let named = place.plexum("daemon --config nothere.toml -n");
    assert_eq!(
        named.exit, 0,
        "volumes are served without it: {}",
        named.err
    );
    let _daemon = Daemon::start(&place, "");
    assert_eq!(wait_for_messages(&place, 2)[1].kind, "closed");
}

#[test]
fn where_nothing_can_be_kept_volumes_are_served_and_what_is_wrong_is_told_all_the_same() {
    let beats = "printf x >> beats";
    let place = home("alarms-unkept", "");
    script(&place, "beat", beats);
    let program = place.file("beat").display().to_string();
    let heartbeat = format!("[alarm.heartbeat]\nevery = \"10s\"\ncommand = [\"{program}\"]\n");
    let text = format!("{AT_ONCE}{}{heartbeat}", channel(&place, "own"));
    configure(&place, &text);
    // Where the new file would be made there is a folder: not even root can write there.
    std::fs::create_dir_all(place.file("state/plexum/incidents.new")).unwrap();
    let tool = place.tool("chmod", "-R 0700 state");
    assert_eq!(tool.exit, 0, "{}", tool.err);
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    let told = wait_for_messages(&place, 1);
    assert!(
        told[0].subject.contains("INCIDENTS CANNOT BE KEPT"),
        "{}",
        told[0].subject
    );
    assert!(
        told[0].subject.contains("incidents.json"),
        "{}",
        told[0].subject
    );
    done(&place, "fail nas b");
    let told = wait_for_messages(&place, 2);
    assert!(
        told[1].subject.contains("slot 1 is missing"),
        "{}",
        told[1].subject
    );
    let (id, _) = of_code(&place, "redundancy").remove(0);
    let known = place.plexum(&format!("ack {id} --why ordered"));
    assert_eq!(known.exit, 5, "{}", known.err);
    assert!(known.err.contains("cannot be kept"), "{}", known.err);
    assert!(!place.file("beats").exists(), "somebody else is to notice");
    std::fs::remove_dir(place.file("state/plexum/incidents.new")).unwrap();
    wait_until(&place, "they are kept again", || {
        of_code(&place, "journal_not_writable")[0].1 == "closed"
    });
    wait_until(&place, "there is a sign of life", || {
        let _ = place.plexum("incident --json"); // something to do meanwhile
        place.file("beats").exists()
    });
    daemon.kill();
    let _daemon = Daemon::start(&place, "--wait 0");
    let state = (id, "acknowledged".to_owned());
    assert!(
        of_code(&place, "redundancy").contains(&state),
        "it was kept after all"
    );
}

#[test]
fn a_state_folder_that_is_none_keeps_no_volume_from_being_served() {
    let place = home("alarms-nofolder", "");
    std::fs::remove_dir_all(place.file("state")).unwrap(); // what create did is kept there
    std::fs::write(place.file("state"), "a file").unwrap();
    let mut daemon = Daemon::start(&place, "");
    let mut notes = daemon.notes();
    let said: Vec<String> = notes.by_ref().lines().take(2).map(Result::unwrap).collect();
    let is_told = |line: &String| line.starts_with("note: incidents are not kept");
    assert!(said.iter().any(is_told), "{said:?}");
    done(&place, "serve a b");
    let told = wait_for_messages(&place, 1);
    assert!(
        told[0].subject.contains("INCIDENTS CANNOT BE KEPT"),
        "{}",
        told[0].subject
    );
    done(&place, "fail nas b");
    assert!(
        wait_for_messages(&place, 2)[1]
            .subject
            .contains("slot 1 is missing")
    );
}

#[test]
fn kept_incidents_that_make_no_sense_are_told_put_aside_and_found_again() {
    let place = home("alarms-damaged", "");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "fail nas b");
    wait_for_messages(&place, 1);
    daemon.end(&place);
    let file = place.file("state/plexum/incidents.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() / 2]).unwrap();
    let mut daemon = Daemon::start(&place, "--wait 0");
    let mut notes = daemon.notes();
    let mut said = String::new();
    notes.read_line(&mut said).unwrap();
    assert!(
        said.contains("incidents.json") && said.contains("incidents.damaged"),
        "{said}"
    );
    let told = wait_for_messages(&place, 2);
    assert!(
        told[1..].iter().all(|told| told.kind == "opened"),
        "{told:?}"
    );
    let aside = std::fs::read_to_string(place.file("state/plexum/incidents.damaged"));
    assert_eq!(aside.unwrap().len(), text.len() / 2);
}
