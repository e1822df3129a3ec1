//! What is on its way arrives: at least once, in order, under one number; and what fails is told elsewhere.

use plexum_incidents::alarm::Alarm;
use plexum_incidents::finding::{Code, Severity};
use plexum_incidents::incident::NoticeKind;
use plexum_incidents::outbox::{ATTEMPTS_MAX, RETRY_S_MAX, WAITING_MAX};
use plexum_incidents::time::{HOUR_S, UnixTime};

use crate::common::{House, START, facts, whole, without};

#[test]
fn retries_become_rarer_and_end() {
    let degraded = facts(vec![without(&[0])]);
    let mut house = House::new();
    house.seconds(10, &degraded);
    let mut attempts = Vec::new();
    for _ in 0..4 * 24 * HOUR_S {
        house.alarm.run(&degraded, house.now);
        let (revision, _) = house.alarm.unsaved().unwrap_or_default();
        house.alarm.saved(revision);
        for delivery in house.alarm.due(house.now) {
            if delivery.message.kind == NoticeKind::Opened {
                attempts.push(house.now);
            }
            house
                .alarm
                .failed("mail", &delivery.message.id, "down", house.now);
        }
        house.now = house.now.plus_s(1);
    }
    let gaps: Vec<u64> = attempts
        .windows(2)
        .map(|pair| pair[1].since_s(pair[0]))
        .collect();
    assert_eq!(gaps[..4], [10, 20, 40, 80]);
    assert!(gaps.iter().all(|gap| *gap <= RETRY_S_MAX));
    assert_eq!(attempts.len(), ATTEMPTS_MAX as usize);
    assert!(house.alarm.channels()[0].given_up >= 1);
    assert!(
        house
            .open()
            .iter()
            .any(|open| open.0 == Code::DeliveryFails)
    );
}

#[test]
fn what_arrived_just_before_a_crash_is_sent_again_under_the_same_number() {
    let degraded = facts(vec![without(&[0])]);
    let mut house = House::new();
    house.seconds(10, &degraded);
    house.alarm.run(&degraded, house.now);
    let (revision, kept) = house.alarm.unsaved().unwrap();
    house.alarm.saved(revision);
    house.kept = kept;
    let first = house.alarm.due(house.now);
    house.restart(30);
    house.second(&degraded);
    assert_eq!(house.arrived.len(), 1);
    assert_eq!(house.arrived[0].1, first[0].message);
}

#[test]
fn all_that_is_known_can_be_kept_again_when_nothing_has_changed_since() {
    let degraded = facts(vec![without(&[0])]);
    let mut house = House::new();
    house.seconds(10, &degraded);
    house.restart(30);
    assert_eq!(house.alarm.unsaved(), None);
    let (_, whole) = house.alarm.whole();
    let restored = Alarm::restore(&whole, Vec::new()).unwrap();
    assert_eq!(restored.open().len(), house.alarm.open().len());
}

#[test]
fn nothing_is_sent_before_it_is_kept_unless_nothing_can_be() {
    let mut degraded = facts(vec![without(&[0])]);
    let mut house = House::new();
    house.seconds(10, &degraded);
    house.alarm.run(&degraded, house.now);
    assert_eq!(house.alarm.due(house.now), []);
    degraded.daemon.journal_not_writable = Some("read-only file system".into());
    house.alarm.run(&degraded, house.now);
    assert_eq!(house.alarm.due(house.now).len(), 1);
}

#[test]
fn a_message_under_way_is_not_handed_out_again_until_it_has_taken_too_long() {
    let degraded = facts(vec![without(&[0])]);
    let mut house = House::new();
    house.seconds(10, &degraded);
    house.alarm.run(&degraded, house.now);
    let (revision, _) = house.alarm.unsaved().unwrap();
    house.alarm.saved(revision);
    assert_eq!(house.alarm.due(house.now).len(), 1);
    for _ in 0..119 {
        house.now = house.now.plus_s(1);
        house.alarm.run(&degraded, house.now);
        assert_eq!(house.alarm.due(house.now), []);
    }
    house.now = house.now.plus_s(1);
    house.alarm.run(&degraded, house.now);
    assert_eq!(house.alarm.channels()[0].answer, "no answer");
    house.now = house.now.plus_s(10);
    assert_eq!(house.alarm.due(house.now).len(), 1);
}

#[test]
fn the_end_of_an_incident_does_not_overtake_its_beginning() {
    let mut house = House::new();
    house.broken = vec!["mail".into()];
    house.seconds(15, &facts(vec![without(&[0])]));
    house.seconds(80, &facts(vec![whole()]));
    house.broken.clear();
    house.hours(1, &facts(vec![whole()]));
    assert_eq!(house.kinds(), [NoticeKind::Opened, NoticeKind::Closed]);
}

#[test]
fn a_message_that_is_refused_does_not_hold_up_another_incident() {
    let mut other = without(&[0, 1]);
    other.uuid = "other".into();
    let mut house = House::new();
    house.broken = vec!["mail".into()];
    house.seconds(1000, &facts(vec![without(&[0])]));
    house.broken.clear();
    house.seconds(15, &facts(vec![without(&[0]), other]));
    let names: Vec<Code> = house
        .arrived
        .iter()
        .map(|(_, message)| message.code)
        .collect();
    assert_eq!(
        names,
        [Code::Redundancy],
        "the new one is there before the retry of the old one"
    );
}

#[test]
fn a_channel_that_is_down_for_days_keeps_one_repetition_and_a_bounded_number_of_messages() {
    let mut house = House::new();
    house.broken = vec!["mail".into()];
    house.hours(24 * 5, &facts(vec![without(&[0])]));
    assert_eq!(house.alarm.waiting_count(), 1, "the newest repetition");
    for _ in 0..2 * WAITING_MAX {
        house.alarm.test("mail", house.now).unwrap();
    }
    assert_eq!(house.alarm.waiting_count(), WAITING_MAX);
}

#[test]
fn a_channel_that_nobody_configures_any_more_is_forgotten() {
    let mut house = House::with(&["mail", "phone"]);
    house.broken = vec!["mail".into()];
    house.seconds(60, &facts(vec![without(&[0])]));
    house.channels.remove(0);
    house.restart(1);
    house.second(&facts(vec![without(&[0])]));
    assert_eq!(house.alarm.channels().len(), 1);
    assert_eq!(house.alarm.waiting_count(), 0);
    assert_eq!(house.open().len(), 1, "and is no finding");
}

#[test]
fn answers_of_unknown_messages_and_channels_do_no_harm() {
    let mut house = House::new();
    house.alarm.arrived("nobody", "1", "ok", house.now);
    house.alarm.failed("nobody", "1", "no", house.now);
    house.alarm.arrived("mail", "1", "ok", house.now);
    house.alarm.failed("mail", "1", "no", house.now);
    assert_eq!(house.alarm.waiting_count(), 0);
}

#[test]
fn a_heartbeat_that_does_not_arrive_is_tried_after_its_time_and_not_sooner() {
    let mut house = House::new();
    house.second(&facts(vec![whole()]));
    house.alarm.heartbeat_tried(house.now);
    assert!(!house.alarm.is_heartbeat_due(20, house.now.plus_s(19)));
    assert!(house.alarm.is_heartbeat_due(20, house.now.plus_s(20)));
    assert_eq!(house.alarm.heartbeat_last(), None);
    house.alarm.heartbeat_arrived(house.now);
    assert_eq!(house.alarm.heartbeat_last(), Some(house.now));
}

#[test]
fn a_clock_that_is_set_back_holds_up_no_message() {
    let degraded = facts(vec![without(&[0])]);
    let mut house = House::new();
    house.broken = vec!["mail".into()];
    house.hours(3, &degraded);
    house.broken.clear();
    house.now = UnixTime(1000);
    house.second(&degraded);
    assert_eq!(
        house.kinds(),
        [NoticeKind::Opened],
        "its next attempt was hours away"
    );

    let mut house = House::new();
    house.seconds(10, &degraded);
    house.alarm.run(&degraded, house.now);
    let (revision, _) = house.alarm.unsaved().unwrap();
    house.alarm.saved(revision);
    assert_eq!(house.alarm.due(house.now).len(), 1);
    house.now = UnixTime(1000);
    house.seconds(140, &degraded);
    assert_eq!(
        house.kinds(),
        [NoticeKind::Opened],
        "nobody answered for two minutes"
    );

    house.alarm.heartbeat_tried(START);
    assert!(house.alarm.is_heartbeat_due(60, house.now));
}

#[test]
fn one_attempt_that_fails_after_others_arrived_is_no_finding() {
    let mut house = House::new();
    for _ in 0..4 {
        house.alarm.test("mail", house.now).unwrap();
        house.broken = vec!["mail".into()];
        house.second(&facts(vec![whole()]));
        house.broken.clear();
        house.seconds(15, &facts(vec![whole()]));
    }
    assert_eq!(house.arrived.len(), 4);
    house.alarm.test("mail", house.now).unwrap();
    house.broken = vec!["mail".into()];
    house.seconds(18, &facts(vec![whole()]));
    assert_eq!(house.open(), []);
    house.seconds(60, &facts(vec![whole()]));
    assert_eq!(
        house.open(),
        [(Code::DeliveryFails, Severity::Warning)],
        "three are one"
    );
}

#[test]
fn a_test_that_was_withdrawn_is_not_tried_again_and_its_failure_counts() {
    let mut house = House::new();
    let id = house.alarm.test("mail", house.now).unwrap();
    house.broken.push("mail".to_owned());
    house.second(&facts(vec![whole()]));
    house.alarm.withdraw("mail", &id);
    house.broken.clear();
    house.seconds(60, &facts(vec![whole()]));
    assert_eq!(house.arrived, []);
    assert_eq!(house.alarm.channels()[0].failed_attempts, 1);
}
