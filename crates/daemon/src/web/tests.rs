use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::plan::{NewDisk, Plan, Wish, plan};
use super::state::{Alarms, State};
use super::verdict::{Badness, headline};
use super::view;
use crate::control::access::{Caller, Role, Way};
use crate::control::events::Event;
use crate::control::request::Action;
use crate::problem::Code;
use crate::volume::meaning::meaning;
use crate::volume::status::{MemberState, VolumeStatus};

const EVIL: &str = "<script>alert(1)</script>\" onload='x'";

fn member(slot: u32, path: &str, state: &str) -> Value {
    json!({"slot": slot, "path": path, "state": state, "read_errors": 0, "write_errors": 0, "corrected_errors": 0})
}

/// A RAID-6 volume of five members with this verdict, that survives so many more losses.
fn volume(name: &str, verdict: &str, left: u32) -> VolumeStatus {
    let members: Vec<Value> = (0..5)
        .map(|slot| member(slot, &format!("/dev/disk{slot}"), "active"))
        .collect();
    let status = json!({
        "version": 1, "kind": "volume", "volume": name, "verdict": verdict, "level": "raid6", "layout": null,
        "strip_bytes": 65536, "format": "md-1.2", "uuid": "u", "size_bytes": 1 << 30, "member_bytes": 1 << 28,
        "slots": 5, "spare_failures": left, "designed_spare_failures": 2, "event_count": 1, "is_dirty": false,
        "is_read_only": false, "balance": "b", "consistency": "bitmap", "bitmap": null, "io": "threads",
        "exports": [{"uri": "nbd://x", "clients": 2}], "members": members, "jobs": [], "findings": [], "next": null,
        "server_pid": 1,
    });
    serde_json::from_value(status).unwrap()
}

fn with_disk(mut status: VolumeStatus, slot: usize, disk: Value) -> VolumeStatus {
    status.members[slot].disk = Some(serde_json::from_value(disk).unwrap());
    status
}

fn state(volumes: Vec<VolumeStatus>) -> State {
    State {
        host: "nas".to_owned(),
        now_s: 1_000_000,
        volumes,
        alarms: Some(Alarms {
            judged_s: Some(1_000_000),
            ..Alarms::default()
        }),
        ..State::default()
    }
}

fn alarms(value: Value) -> Option<Alarms> {
    Some(serde_json::from_value(value).unwrap())
}

fn caller(role: Option<Role>) -> Caller {
    Caller {
        who: "whoever shows no token".to_owned(),
        role,
        way: Way::Network,
    }
}

fn page(state: &State) -> String {
    view::document(Some(state), &caller(Some(Role::View)), &TimeZone::UTC)
}

fn first_line(state: &State) -> (Badness, String) {
    let head = headline(state, &TimeZone::UTC);
    (head.badness, head.text)
}

#[test]
fn the_first_line_is_the_worst_that_is_the_case() {
    let well = || volume("a", "ok", 2);
    let cases = [
        (vec![], Badness::Well, "no volume is served"),
        (vec![well()], Badness::Well, "a is whole"),
        (
            vec![well(), well()],
            Badness::Well,
            "all 2 volumes are whole",
        ),
        (
            vec![well(), volume("b", "degraded", 1)],
            Badness::Warning,
            "b: 0 of 5 members not in sync; 1 more can fail without loss of data",
        ),
        (
            vec![volume("b", "degraded", 1), volume("c", "degraded", 0)],
            Badness::Critical,
            "ONE MORE FAILURE LOSES c",
        ),
        (
            vec![volume("c", "degraded", 0), volume("d", "failed", 0)],
            Badness::Emergency,
            "d HAS FAILED: nothing is written any more",
        ),
    ];
    for (volumes, badness, text) in cases {
        assert_eq!(first_line(&state(volumes)), (badness, text.to_owned()));
    }
}

#[test]
fn a_failed_volume_tells_how_many_members_are_away_and_never_that_none_is() {
    let failed = |away: usize| {
        let mut status = volume("d", "failed", 0);
        for member in status.members.iter_mut().take(away) {
            member.state = MemberState::Missing;
        }
        meaning(&status).unwrap()
    };
    assert_eq!(
        failed(3),
        "3 of 5 members lost, more than it survives: requests get errors, nothing is written"
    );
    assert_eq!(
        failed(0),
        "its members fail: requests get errors, nothing is written"
    );
}

#[test]
fn what_is_not_served_or_not_judged_is_never_well() {
    let mut missed = state(vec![volume("a", "ok", 2)]);
    let waiting = json!([{"volume": "b", "level": "raid1", "wanted": "served", "members": [], "missing": []},
        {"volume": "c", "level": "raid1", "wanted": "stopped", "members": [], "missing": []}]);
    missed.waiting = serde_json::from_value(waiting).unwrap();
    assert_eq!(
        first_line(&missed),
        (Badness::Critical, "b IS NOT SERVED".to_owned())
    );
    let mut stale = state(vec![volume("a", "ok", 2)]);
    stale.alarms.as_mut().unwrap().judged_s = Some(1_000_000 - 600);
    assert_eq!(
        first_line(&stale),
        (Badness::Critical, "NOT JUDGED FOR 10 min".to_owned())
    );
}

#[test]
fn an_open_incident_is_in_the_first_line_where_no_volume_is_worse() {
    let open = json!({"judged_s": 1_000_000, "not_kept": null, "configuration": null, "incidents": [
        {"id": "7f", "state": "open", "name": "disk X", "severity": "something new", "headline": "grows", "opened_s": 5,
            "lines": {"advice": ["do this"]}},
        {"id": "80", "state": "closed", "name": "a", "severity": "emergency", "headline": "was", "opened_s": 5,
            "closed_s": 6}]});
    let mut state = state(vec![volume("a", "ok", 2)]);
    state.alarms = alarms(open);
    assert_eq!(
        first_line(&state),
        (Badness::Critical, "disk X: grows".to_owned()),
        "a word that is not known is not harmless"
    );
    let page = page(&state);
    assert!(page.contains("Open incidents (1)") && page.contains("do this"));
    assert!(page.contains("1 more were closed in the last day"));
}

#[test]
fn a_name_is_never_an_element_wherever_it_stands() {
    let mut status = volume(EVIL, "degraded", 0);
    status.findings =
        serde_json::from_value(json!([{"code": EVIL, "message": EVIL, "commands": [EVIL]}]))
            .unwrap();
    status.next = Some(EVIL.to_owned());
    status.members[1].path = Some(EVIL.to_owned());
    status.members[2].failed_because = Some(EVIL.to_owned());
    status.exports[0].uri = EVIL.to_owned();
    let status = with_disk(
        status,
        0,
        json!({"model": EVIL, "serial": EVIL, "size_bytes": 1, "bay": {"number": EVIL, "words": EVIL,
            "address": {"kind": "path", "path": EVIL}}}),
    );
    let mut state = state(vec![status]);
    state.host = EVIL.to_owned();
    state.alarms = alarms(
        json!({"judged_s": 1_000_000, "not_kept": EVIL, "configuration": EVIL, "incidents": [
        {"id": EVIL, "state": "open", "name": EVIL, "severity": EVIL, "headline": EVIL, "opened_s": 5,
            "acknowledged": {"who": EVIL, "why": EVIL}, "lines": {"what": [EVIL], "advice": [EVIL]}}],
        "channels": [{"name": EVIL, "failing_since_s": 3, "arrived_s": null, "answer": EVIL}]}),
    );
    state.waiting = serde_json::from_value(
        json!([{"volume": EVIL, "level": EVIL, "wanted": "served", "members": [],
        "missing": [], "missing_disks": [EVIL], "problem": {"error": {"message": EVIL}}}]),
    )
    .unwrap();
    state.events = vec![Event {
        version: 1,
        kind: "event".into(),
        sequence: 1,
        time_s: 1,
        volume: EVIL.into(),
        name: EVIL.into(),
        message: EVIL.into(),
        member: None,
    }];
    let page = page(&state);
    assert_eq!(page.matches("<script").count(), 1, "the own one alone");
    assert!(page.matches("&lt;script&gt;").count() >= 20, "{page}");
    // Within an attribute no quotation mark ends it.
    assert!(!page.contains("' onload") && !page.contains("\" onload"));
}

#[test]
fn a_disk_that_is_gone_keeps_its_row_with_bay_and_serial() {
    let mut status = volume("home", "degraded", 1);
    status.members[2] = serde_json::from_value(
        json!({"slot": 2, "path": null, "was": "/dev/sdc", "state": "missing",
        "read_errors": 0, "write_errors": 0, "corrected_errors": 0}),
    )
    .unwrap();
    let gone = json!({"is_gone": true, "model": "WD40EFRX", "serial": "WCC4E17", "size_bytes": 1, "bay":
        {"number": "4", "words": "bay 4", "address": {"kind": "enclosure", "enclosure": "0x5", "component": "Slot 04", "slot": 4}}});
    let page = page(&state(vec![with_disk(status, 2, gone)]));
    let row = page
        .split("<tr")
        .find(|row| row.contains("WCC4E17"))
        .expect("its row");
    for word in [
        "bay 4",
        "WD40EFRX",
        "serial WCC4E17",
        "/dev/sdc, gone",
        "missing",
    ] {
        assert!(row.contains(word), "{word}: {row}");
    }
}

#[test]
fn a_job_tells_how_far_how_fast_and_when_by_the_clock() {
    let mut status = volume("home", "degraded", 0);
    status.jobs = serde_json::from_value(
        json!([{"kind": "rebuild", "done_bytes": 43, "total_bytes": 100,
        "rate_bytes_per_s": 148 << 20, "eta_s": 3600, "eta_range_s": [1800, 7200], "slots": [2]}]),
    )
    .unwrap();
    let page = page(&state(vec![status]));
    // 1,000,000 s after 1970 began it was 13:46.
    let said = "rebuild of slot 2: 43 %, 148M/s, ends about 14:46 (14:16 to 15:46)";
    assert!(page.contains(said), "{page}");
    assert!(page.contains("home is being filled, ends about 14:46"));
}

#[test]
fn whoever_has_no_role_sees_how_to_have_one_and_nothing_else() {
    let page = view::document(None, &caller(None), &TimeZone::UTC);
    assert!(
        page.contains("[[page.token]] role = &quot;view&quot;"),
        "{page}"
    );
    assert!(!page.contains("Volumes"));
}

fn planned(status: &VolumeStatus, wish: Value) -> Plan {
    let wish: Wish = serde_json::from_value(wish).unwrap();
    let action = wish.change().unwrap().expect("a change");
    let new = NewDisk {
        path: "/dev/sdx".to_owned(),
        serial: Some("NEW1".to_owned()),
        words: ", disk (serial NEW1), 4T".to_owned(),
    };
    plan(status, &action, Some(&new)).unwrap()
}

#[test]
fn where_data_or_redundancy_go_the_serial_is_to_be_typed() {
    let status = with_disk(
        volume("home", "ok", 2),
        1,
        json!({"serial": "WCC4E17", "size_bytes": 1}),
    );
    let fail = planned(&status, json!({"action": "fail", "member": "/dev/disk1"}));
    assert_eq!(fail.lines[1], "losses that home survives: 2 now, 1 then");
    assert_eq!(fail.command, "plexum fail home /dev/disk1");
    for wrong in [
        None,
        Some(""),
        Some("WCC4E18"),
        Some("wcc4e17"),
        Some("home"),
    ] {
        let problem = fail.check(wrong).unwrap_err();
        assert_eq!(problem.code, Code::NotConfirmed);
        assert!(!problem.message.contains("WCC4E17"), "{problem}");
    }
    assert!(fail.check(Some(" WCC4E17 ")).is_ok());
    let replace = planned(
        &status,
        json!({"action": "replace", "member": "/dev/disk1", "new": "/dev/sdx"}),
    );
    assert!(
        replace.check(Some("WCC4E17")).is_err(),
        "the new one is overwritten"
    );
    assert!(replace.check(Some("NEW1")).is_ok());
    let of_file = planned(&status, json!({"action": "fail", "member": "/dev/disk0"}));
    assert!(of_file.check(Some("disk0")).is_ok());
    for harmless in [
        json!({"action": "scrub"}),
        json!({"action": "scrub", "stop": true}),
        json!({"action": "stop"}),
        json!({"action": "re-add", "member": "/dev/disk0"}),
    ] {
        assert_eq!(
            planned(&status, harmless.clone()).confirm,
            None,
            "{harmless}"
        );
    }
}

#[test]
fn the_last_that_may_not_be_lost_is_said_to_be_so() {
    let status = volume("home", "degraded", 0);
    let fail = planned(&status, json!({"action": "fail", "member": "/dev/disk1"}));
    assert!(
        fail.lines
            .iter()
            .any(|line| line.contains("data would be gone"))
    );
}

#[test]
fn nothing_is_forced_from_the_page() {
    let wish = json!({"action": "replace", "member": "a", "new": "b", "force": true});
    assert!(serde_json::from_value::<Wish>(wish).is_err());
    let wish: Wish =
        serde_json::from_value(json!({"action": "replace", "member": "a", "new": "b"})).unwrap();
    let forced = matches!(wish.change(), Ok(Some(Action::Replace { force: true, .. })));
    assert!(!forced);
}
