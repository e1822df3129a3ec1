//! Threads of people who were told too often, or wrongly. The numbers are those of a list of public reports, kept
//! outside of here; each test says the behaviour that was missing there.

use plexum_incidents::channel::journal;
use plexum_incidents::facts::{
    DiskFacts, Facts, Health, MissingSlot, RedundancyKind, ScrubFacts, VolumeFacts,
};
use plexum_incidents::finding::{Code, Severity};
use plexum_incidents::incident::NoticeKind;
use plexum_incidents::judge::judge;

use crate::common::{House, START, facts, found, gone, whole, without};

#[test]
fn thread_17_one_dying_disk_is_one_message_in_a_night() {
    let mut house = House::new();
    for minute in 0..8 * 60 {
        let mut dying = without(&[2]);
        dying.missing[0].reason = Some(format!("{} errors", minute * 7));
        house.seconds(5, &facts(vec![dying.clone()]));
        house.now = house.now.plus_s(55);
    }
    assert_eq!(house.kinds(), [NoticeKind::Opened]);
}

#[test]
fn thread_17_a_member_that_comes_and_goes_all_night_does_not_fill_the_mailbox() {
    let mut house = House::new();
    for _ in 0..8 * 60 {
        house.seconds(30, &facts(vec![without(&[2])]));
        house.seconds(30, &facts(vec![whole()]));
    }
    assert_eq!(house.kinds(), [NoticeKind::Opened]);
    house.hours(5, &facts(vec![whole()]));
    assert_eq!(house.kinds(), [NoticeKind::Opened, NoticeKind::Closed]);
    let text = house.arrived[1].1.text();
    assert!(text.contains("it came back 479 times"), "{text}");
}

#[test]
fn thread_18_creation_sends_nothing() {
    let filling = MissingSlot {
        valid_bytes: Some(0),
        ..gone(4)
    };
    let created = VolumeFacts {
        is_first_sync: true,
        losses_left: 0,
        doubtful_regions: 40,
        missing: vec![filling],
        ..whole()
    };
    let mut house = House::new();
    house.hours(30, &facts(vec![created]));
    house.hours(1, &facts(vec![whole()]));
    assert_eq!(house.kinds(), []);
}

#[test]
fn thread_18_a_loss_during_creation_is_told() {
    let lost = VolumeFacts {
        is_first_sync: true,
        losses_left: 1,
        missing: vec![gone(0)],
        ..whole()
    };
    assert_eq!(found(lost), [(Code::Redundancy, Severity::Warning)]);
}

#[test]
fn thread_19_differing_copies_are_noise_and_differing_parity_is_not() {
    let differing = |kind| VolumeFacts {
        kind,
        scrub: ScrubFacts {
            mismatch_bytes: 128 << 10,
            ..ScrubFacts::default()
        },
        ..whole()
    };
    assert_eq!(found(differing(RedundancyKind::Copies)), []);
    assert_eq!(
        found(differing(RedundancyKind::Parity)),
        [(Code::ParityMismatch, Severity::Warning)]
    );
}

#[test]
fn thread_20_a_repaired_volume_clears() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[2])]));
    house.second(&facts(vec![whole()]));
    assert_eq!(house.open(), [], "at once");
    house.seconds(70, &facts(vec![whole()]));
    assert_eq!(house.kinds(), [NoticeKind::Opened, NoticeKind::Closed]);
    let line = house.arrived[1].1.first_line();
    assert_eq!(line, "[nas] home: OVER - redundancy is as designed again");
    house.hours(48, &facts(vec![whole()]));
    assert_eq!(house.arrived.len(), 2);
}

#[test]
fn thread_21_members_that_are_expected_to_be_missing_are_no_alarm_and_one_more_is() {
    let system = |missing: std::ops::Range<u16>| VolumeFacts {
        kind: RedundancyKind::Copies,
        losses_designed: 23,
        losses_left: 23 - missing.len(),
        missing: missing.map(gone).collect(),
        expected_missing: 20,
        ..whole()
    };
    assert_eq!(found(system(4..24)), []);
    assert_eq!(
        found(system(3..24)),
        [(Code::Redundancy, Severity::Warning)]
    );
    assert_eq!(
        found(system(1..24)),
        [(Code::Redundancy, Severity::Critical)]
    );
}

#[test]
fn thread_21_of_pairs_the_second_missing_half_is_told_though_the_number_is_the_same() {
    let pairs = |missing: &[u16]| VolumeFacts {
        kind: RedundancyKind::Copies,
        losses_designed: 1,
        losses_left: 0,
        missing: missing.iter().map(|slot| gone(*slot)).collect(),
        expected_missing: 1,
        ..whole()
    };
    assert_eq!(found(pairs(&[0])), []);
    assert_eq!(
        found(pairs(&[0, 2])),
        [(Code::Redundancy, Severity::Critical)]
    );
}

#[test]
fn thread_22_who_knows_is_not_told_again_until_it_ends_and_then_it_is_armed() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[2])]));
    let id = house.alarm.open()[0].life.id;
    house
        .alarm
        .acknowledge(id, "ute", "disk is ordered", house.now)
        .unwrap();
    house.hours(24 * 14, &facts(vec![without(&[2])]));
    assert_eq!(house.kinds(), [NoticeKind::Opened]);
    house.hours(30, &facts(vec![whole()]));
    house.seconds(15, &facts(vec![without(&[2])]));
    let expected = [NoticeKind::Opened, NoticeKind::Closed, NoticeKind::Opened];
    assert_eq!(house.kinds(), expected);
    house.hours(25, &facts(vec![without(&[2])]));
    assert_eq!(
        house.kinds().last(),
        Some(&NoticeKind::Repeated),
        "armed again"
    );
}

#[test]
fn thread_23_severity_is_what_is_left() {
    let mirror = |copies: usize, gone_copies: u16| VolumeFacts {
        kind: RedundancyKind::Copies,
        losses_designed: copies - 1,
        losses_left: copies - 1 - usize::from(gone_copies),
        missing: (0..gone_copies).map(gone).collect(),
        ..whole()
    };
    assert_eq!(found(mirror(3, 1)), [(Code::Redundancy, Severity::Warning)]);
    assert_eq!(
        found(mirror(3, 2)),
        [(Code::Redundancy, Severity::Critical)]
    );
    assert_eq!(
        found(mirror(2, 1)),
        [(Code::Redundancy, Severity::Critical)]
    );
    assert_eq!(
        found(without(&[0, 1, 2])),
        [(Code::Redundancy, Severity::Emergency)]
    );
    let striped = VolumeFacts {
        kind: RedundancyKind::Plain,
        losses_left: 0,
        losses_designed: 0,
        ..whole()
    };
    assert_eq!(found(striped), [], "it never had any");
}

fn with_disk(volume: VolumeFacts, health: Health) -> Facts {
    let disk = DiskFacts {
        identity: "WCC4E17".into(),
        member: "disk in bay 4 (WD40EFRX, serial WCC4E17)".into(),
        used_by: Some((volume.uuid.clone(), 2)),
        health,
    };
    Facts {
        disks: vec![disk],
        ..facts(vec![volume])
    }
}

#[test]
fn thread_24_what_grows_is_told_by_what_the_volume_would_lose_and_what_is_old_is_not() {
    let growing = Health::Growing {
        what: "pending sectors 0 -> 8 -> 24 since Nov 12".into(),
    };
    let severities = |volume: VolumeFacts, health: &Health| -> Vec<Severity> {
        let found = judge(&with_disk(volume, health.clone()), START);
        let of_disk = found.iter().filter(|found| found.code == Code::DiskHealth);
        of_disk.map(|found| found.severity).collect()
    };
    assert_eq!(severities(whole(), &Health::Fine), []);
    assert_eq!(severities(whole(), &growing), [Severity::Warning]);
    let last = VolumeFacts {
        losses_left: 0,
        losses_designed: 0,
        kind: RedundancyKind::Plain,
        ..whole()
    };
    assert_eq!(severities(last.clone(), &growing), [Severity::Critical]);
    let cable = Health::Connection {
        what: "12 CRC errors since Tue".into(),
    };
    assert_eq!(
        severities(last, &cable),
        [Severity::Warning],
        "not the disk"
    );
}

#[test]
fn thread_24_a_disk_that_sleeps_is_as_it_was() {
    let growing = Health::Growing {
        what: "24 pending sectors".into(),
    };
    let mut house = House::new();
    house.seconds(15, &with_disk(whole(), growing));
    house.seconds(300, &with_disk(whole(), Health::Asleep));
    assert_eq!(house.open(), [(Code::DiskHealth, Severity::Warning)]);
    house.seconds(1, &with_disk(whole(), Health::Fine));
    assert_eq!(house.open(), []);
}

#[test]
fn thread_25_the_same_bad_sector_is_told_once_to_who_knows() {
    let bad = VolumeFacts {
        kind: RedundancyKind::Plain,
        losses_left: 0,
        losses_designed: 0,
        bad_bytes: 512,
        ..whole()
    };
    let mut house = House::new();
    house.seconds(15, &facts(vec![bad.clone()]));
    assert_eq!(house.open(), [(Code::BadBlocks, Severity::Warning)]);
    let id = house.alarm.open()[0].life.id;
    house
        .alarm
        .acknowledge(id, "ute", "watched", house.now)
        .unwrap();
    house.hours(24 * 10, &facts(vec![bad]));
    assert_eq!(house.kinds(), [NoticeKind::Opened]);
}

#[test]
fn thread_26_nothing_is_sent_while_nothing_is_wrong_but_a_sign_of_life() {
    let mut house = House::new();
    let mut beats = 0;
    for _ in 0..24 * 60 {
        house.second(&facts(vec![whole()]));
        if house.alarm.is_heartbeat_due(300, house.now) {
            house.alarm.heartbeat_tried(house.now);
            house.alarm.heartbeat_arrived(house.now);
            beats += 1;
        }
        house.now = house.now.plus_s(59);
    }
    assert_eq!(house.kinds(), []);
    assert_eq!(beats, 24 * 12);
}

#[test]
fn thread_27_text_priority_and_severity_have_one_source() {
    for (missing, priority, word) in [
        (&[0][..], 4, "survives 1 loss more"),
        (&[0, 1], 2, "ONE MORE FAILURE LOSES IT"),
        (&[0, 1, 2], 0, "DATA LOST"),
    ] {
        let mut house = House::new();
        house.seconds(15, &facts(vec![without(missing)]));
        let message = &house.arrived[0].1;
        assert_eq!(journal::priority(message), priority);
        assert!(
            message.first_line().contains(word),
            "{}",
            message.first_line()
        );
    }
}

#[test]
fn thread_28_a_test_reports_what_the_transport_answered() {
    let mut house = House::with(&["mail"]);
    house.second(&facts(vec![whole()]));
    house.alarm.test("mail", house.now).unwrap();
    house.broken = vec!["mail".into()];
    house.second(&facts(vec![whole()]));
    assert_eq!(house.alarm.channels()[0].answer, "connection refused");
    house.broken.clear();
    house.seconds(15, &facts(vec![whole()]));
    assert_eq!(house.alarm.channels()[0].answer, "250 queued");
    let error = house.alarm.test("post", house.now).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no channel \"post\": configured are mail"
    );
}
