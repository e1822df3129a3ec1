//! What is found beside redundancy: checks, slow members, room.

use plexum_incidents::facts::{ScrubFacts, SlowMember, SpaceFacts, VolumeFacts};
use plexum_incidents::finding::{Code, Object, Severity};
use plexum_incidents::time::{DAY_S, UnixTime};

use crate::common::{House, START, facts, found, only, whole, without};

#[test]
fn a_check_is_overdue_by_its_oldest_byte_and_only_where_checks_are_asked_for() {
    let checked = |age_s: Option<u64>, due_after_s| VolumeFacts {
        scrub: ScrubFacts {
            oldest_checked: age_s.map(|age_s| UnixTime(START.0 - age_s)),
            due_after_s,
            ..ScrubFacts::default()
        },
        ..whole()
    };
    let due = Some(30 * DAY_S);
    assert_eq!(found(checked(Some(30 * DAY_S), due)), []);
    let overdue = [(Code::ScrubOverdue, Severity::Warning)];
    assert_eq!(found(checked(Some(30 * DAY_S + 1), due)), overdue);
    assert_eq!(
        found(checked(None, due)),
        overdue,
        "never, as far as we can say"
    );
    assert_eq!(found(checked(None, None)), []);
    let told = only(&facts(vec![checked(Some(34 * DAY_S), due)]));
    let line = "parts of it were last checked 34 d ago, 30 d are allowed";
    assert_eq!(told.lines.headline, line);
}

#[test]
fn room_is_told_before_it_is_gone_and_worse_when_writes_are_refused() {
    let used = |used_bytes, is_full| VolumeFacts {
        space: Some(SpaceFacts {
            used_bytes,
            size_bytes: 1000,
        }),
        is_full,
        ..whole()
    };
    assert_eq!(found(used(899, false)), []);
    assert_eq!(found(used(900, false)), [(Code::Space, Severity::Warning)]);
    assert_eq!(found(used(0, true)), [(Code::Space, Severity::Critical)]);
    let nothing = VolumeFacts {
        space: Some(SpaceFacts::default()),
        ..whole()
    };
    assert_eq!(found(nothing), []);
}

#[test]
fn each_slow_member_is_an_incident_of_its_own_that_names_it() {
    let slow = |slots: &[u16]| {
        let slow = slots.iter().map(|slot| SlowMember {
            slot: *slot,
            member: Some("disk in bay 3 (serial ZDH9433)".into()),
            peer_ratio_percent: 460,
        });
        facts(vec![VolumeFacts {
            slow: slow.collect(),
            ..whole()
        }])
    };
    let told = only(&slow(&[1]));
    assert_eq!(told.object, Object::Member("5a1b".into(), 1));
    let line =
        "a member takes 4.6 times as long as its peers - slot 1: disk in bay 3 (serial ZDH9433)";
    assert_eq!(told.lines.headline, line);
    let mut house = House::new();
    house.seconds(15, &slow(&[1, 3]));
    assert_eq!(house.open().len(), 2);
    house.seconds(1, &slow(&[3]));
    assert_eq!(house.open(), [(Code::SlowMember, Severity::Warning)]);
    let silent = VolumeFacts {
        cannot_judge: Some("no answer".into()),
        ..whole()
    };
    house.seconds(5, &facts(vec![silent]));
    assert_eq!(
        house.open().len(),
        1,
        "a member of what cannot be judged is as it was"
    );
}

#[test]
fn many_missing_slots_are_counted_and_not_all_named() {
    let mut empty = without(&[0, 1]);
    empty.missing = (0..21).map(crate::common::gone).collect();
    empty.spares = 1;
    let told = only(&facts(vec![empty]));
    let line = "ONE MORE FAILURE LOSES IT - slot 0 is missing, slot 1 is missing, slot 2 is missing and 18 more";
    assert_eq!(told.lines.headline, line);
    assert_eq!(told.lines.advice.len(), 3);
    assert!(
        told.lines
            .data
            .contains(&"1 spare is ready to take a slot".to_owned())
    );
}

#[test]
fn a_configuration_that_cannot_be_read_is_a_finding_and_no_word_on_the_data() {
    let mut facts = facts(vec![whole()]);
    facts.daemon.configuration = Some("plexum.toml: line 2: waits: unknown field".to_owned());
    let found = only(&facts);
    assert_eq!(
        (found.code, found.severity),
        (Code::Configuration, Severity::Warning)
    );
    assert!(
        found.lines.headline.contains("line 2: waits"),
        "{}",
        found.lines.headline
    );
}
