//! How an incident lives: it opens, gets worse, is told again, and ends; over restarts, and with a clock that jumps.

use plexum_incidents::Alarm;
use plexum_incidents::facts::VolumeFacts;
use plexum_incidents::finding::{Code, Severity};
use plexum_incidents::incident::{Delays, IncidentId, NoticeKind};
use plexum_incidents::incidents::AcknowledgeError;
use plexum_incidents::time::{HOUR_S, UnixTime};

use crate::common::{House, facts, home, whole, without};

#[test]
fn what_is_there_for_less_than_ten_seconds_is_no_incident() {
    let mut house = House::new();
    for _ in 0..20 {
        house.seconds(10, &facts(vec![without(&[0])]));
        house.second(&facts(vec![whole()]));
    }
    assert_eq!(house.kinds(), []);
    assert_eq!(house.open(), []);
}

#[test]
fn getting_worse_is_told_once_and_getting_better_is_not() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0])]));
    house.seconds(15, &facts(vec![without(&[0, 1])]));
    assert_eq!(house.kinds(), [NoticeKind::Opened, NoticeKind::Worse]);
    house.seconds(15, &facts(vec![without(&[0])]));
    house.seconds(15, &facts(vec![without(&[0, 1])]));
    assert_eq!(house.kinds().len(), 2, "it comes and goes");
    house.hours(1, &facts(vec![without(&[0])]));
    house.seconds(15, &facts(vec![without(&[0, 1])]));
    let worse = [NoticeKind::Opened, NoticeKind::Worse, NoticeKind::Worse];
    assert_eq!(
        house.kinds(),
        worse,
        "it was better for long enough to be news"
    );
}

#[test]
fn what_nobody_acknowledges_is_told_once_a_day() {
    let mut house = House::new();
    house.hours(24 * 3 + 1, &facts(vec![without(&[0])]));
    let mut expected = vec![NoticeKind::Opened];
    expected.extend([NoticeKind::Repeated; 3]);
    assert_eq!(house.kinds(), expected);
}

#[test]
fn who_acknowledged_a_warning_is_told_of_the_worse() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0])]));
    let id = house.alarm.open()[0].life.id;
    house
        .alarm
        .acknowledge(id, "ute", "ordered", house.now)
        .unwrap();
    house.hours(30, &facts(vec![without(&[0, 1])]));
    let expected = [NoticeKind::Opened, NoticeKind::Worse, NoticeKind::Repeated];
    assert_eq!(house.kinds(), expected);
}

#[test]
fn what_is_not_open_cannot_be_acknowledged_and_a_reason_is_needed() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0])]));
    let id = house.alarm.open()[0].life.id;
    let none = house.alarm.acknowledge(id, "ute", " ", house.now);
    assert_eq!(none, Err(AcknowledgeError::NoReason(id)));
    let other = IncidentId(0xabc);
    let unknown = house.alarm.acknowledge(other, "ute", "x", house.now);
    assert_eq!(unknown, Err(AcknowledgeError::NotOpen(other)));
    house.second(&facts(vec![whole()]));
    let over = house.alarm.acknowledge(id, "ute", "x", house.now);
    assert_eq!(over, Err(AcknowledgeError::NotOpen(id)));
}

#[test]
fn a_restart_tells_nothing_twice_and_forgets_nothing() {
    let degraded = facts(vec![without(&[0])]);
    let mut house = House::new();
    house.seconds(15, &degraded);
    let id = house.alarm.open()[0].life.id;
    house
        .alarm
        .acknowledge(id, "ute", "ordered", house.now)
        .unwrap();
    house.second(&degraded);
    house.restart(3 * HOUR_S);
    house.second(&degraded);
    let open = house.alarm.open_of(Code::Redundancy, &home()).unwrap();
    assert_eq!(open.life.id, id);
    assert_eq!(open.life.acknowledged.as_ref().unwrap().who, "ute");
    assert_eq!(house.kinds(), [NoticeKind::Opened]);
    house.restart(HOUR_S);
    house.seconds(70, &facts(vec![whole()]));
    assert_eq!(house.kinds(), [NoticeKind::Opened, NoticeKind::Closed]);
}

#[test]
fn a_process_that_dies_every_five_seconds_still_opens_an_incident() {
    let mut house = House::new();
    for _ in 0..4 {
        house.seconds(5, &facts(vec![without(&[0])]));
        house.restart(1);
    }
    assert_eq!(house.open(), [(Code::Redundancy, Severity::Warning)]);
}

#[test]
fn a_clock_that_is_set_back_silences_nothing() {
    let degraded = facts(vec![without(&[0])]);
    let mut house = House::new();
    house.seconds(5, &degraded);
    house.now = UnixTime(1000);
    house.seconds(11, &degraded);
    assert_eq!(house.kinds(), [NoticeKind::Opened]);
    house.hours(25, &degraded);
    house.now = UnixTime(1000);
    house.hours(25, &degraded);
    let expected = [
        NoticeKind::Opened,
        NoticeKind::Repeated,
        NoticeKind::Repeated,
    ];
    assert_eq!(house.kinds(), expected);
    house.now = UnixTime(1000);
    house.seconds(70, &facts(vec![whole()]));
    assert_eq!(house.kinds().last(), Some(&NoticeKind::Closed));
}

#[test]
fn while_nothing_can_be_judged_nothing_is_over_and_nothing_is_told_as_new() {
    let silent = VolumeFacts {
        cannot_judge: Some("no answer".into()),
        ..whole()
    };
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0])]));
    house.seconds(300, &facts(vec![silent]));
    let open = [
        (Code::NotJudged, Severity::Critical),
        (Code::Redundancy, Severity::Warning),
    ];
    assert_eq!(house.open(), open);
    assert_eq!(house.kinds(), [NoticeKind::Opened, NoticeKind::Opened]);
}

#[test]
fn a_volume_whose_members_are_waited_for_at_the_start_is_as_it_was() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0])]));
    house.restart(60);
    let mut starting = facts(vec![]);
    starting.daemon.starting = vec!["5a1b".into()];
    house.seconds(300, &starting);
    assert_eq!(house.open(), [(Code::Redundancy, Severity::Warning)]);
    assert_eq!(house.kinds(), [NoticeKind::Opened]);
    let mut fresh = House::new();
    fresh.seconds(300, &starting);
    assert_eq!(fresh.open(), []);
}

#[test]
fn of_two_volumes_with_one_number_the_worse_is_told() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0, 1]), without(&[0])]));
    assert_eq!(house.open(), [(Code::Redundancy, Severity::Critical)]);
}

#[test]
fn a_volume_under_another_name_is_the_same_incident() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0])]));
    let mut renamed = without(&[0]);
    renamed.name = "archive".into();
    house.seconds(15, &facts(vec![renamed]));
    assert_eq!(house.kinds(), [NoticeKind::Opened]);
    assert_eq!(house.alarm.open()[0].finding.name, "archive");
}

#[test]
fn a_text_that_changes_every_second_is_not_kept_every_second() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0])]));
    let kept = house.kept.clone();
    for bytes in 0..60 {
        let mut filling = without(&[0]);
        filling.missing[0].valid_bytes = Some(bytes << 20);
        house.second(&facts(vec![filling]));
    }
    assert_eq!(house.kept, kept);
}

#[test]
fn memory_that_is_damaged_or_newer_is_refused_in_one_line() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0])]));
    for kept in [
        "",
        "{}",
        "[1]",
        "{\"version\":1}",
        &house.kept[..house.kept.len() / 2],
    ] {
        let error = Alarm::restore(kept, Vec::new()).unwrap_err().to_string();
        assert!(
            error.starts_with("kept incidents: ") && !error.contains('\n'),
            "{error}"
        );
    }
    let newer = house.kept.replacen("\"version\":1", "\"version\":2", 1);
    let error = Alarm::restore(&newer, Vec::new()).unwrap_err().to_string();
    assert!(error.contains("version 2"), "{error}");
}

#[test]
fn what_comes_and_goes_slowly_all_night_is_told_less_and_less() {
    let mut house = House::new();
    for _ in 0..8 * 12 {
        house.seconds(120, &facts(vec![without(&[2])]));
        house.seconds(180, &facts(vec![whole()]));
    }
    let count = house.kinds().len();
    assert!(
        (3..=6).contains(&count),
        "{count} messages, quiet for 1, 2 and 4 minutes"
    );
}

#[test]
fn a_day_of_peace_makes_the_next_failure_as_new_as_the_first() {
    let mut house = House::new();
    for _ in 0..3 {
        house.seconds(15, &facts(vec![without(&[2])]));
        house.seconds(200, &facts(vec![whole()]));
    }
    house.hours(25, &facts(vec![whole()]));
    house.seconds(15, &facts(vec![without(&[2])]));
    house.seconds(61, &facts(vec![whole()]));
    let last = &house.arrived.last().unwrap().1;
    assert_eq!((last.kind, last.returns), (NoticeKind::Closed, 0));
}

#[test]
fn what_was_found_for_a_moment_when_nobody_could_look_any_more_becomes_an_incident() {
    let silent = VolumeFacts {
        cannot_judge: Some("no answer".into()),
        ..whole()
    };
    let mut house = House::new();
    house.seconds(5, &facts(vec![without(&[0])]));
    house.seconds(6, &facts(vec![silent]));
    assert_eq!(house.open(), [(Code::Redundancy, Severity::Warning)]);
}

#[test]
fn the_end_of_a_volume_that_somebody_closed_does_not_say_that_it_is_well() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0])]));
    house.seconds(80, &facts(vec![]));
    let line = house.arrived[1].1.first_line();
    assert_eq!(
        line,
        "[nas] home: OVER - it is not looked at any more; how it is nobody knows"
    );
}

#[test]
fn who_wants_to_hear_of_everything_at_once_does() {
    let delays = Delays {
        hold_s: 0,
        quiet_s: 0,
    };
    let mut house = House::new();
    house.alarm = house.alarm.with_delays(delays);
    house.second(&facts(vec![without(&[0])]));
    house.second(&facts(vec![without(&[0, 1])]));
    house.second(&facts(vec![whole()]));
    let kinds = [NoticeKind::Opened, NoticeKind::Worse, NoticeKind::Closed];
    assert_eq!(house.kinds(), kinds);
}
