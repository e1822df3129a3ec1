//! Threads of people whom nobody told. The numbers are those of a list of public reports, kept outside of here; each
//! test says the behaviour that was missing there.

use plexum_incidents::config::AlarmConfig;
use plexum_incidents::facts::{
    AbsentVolume, DaemonFacts, DiskFacts, Facts, Health, RedundancyKind, ScrubFacts, VolumeFacts,
};
use plexum_incidents::finding::{Code, Object, Severity};
use plexum_incidents::incident::NoticeKind;
use plexum_incidents::judge::judge;

use crate::common::{House, START, facts, found, gone, home, only, whole, without};

#[test]
fn thread_01_a_lost_half_of_a_mirror_is_told_when_it_goes_and_not_when_it_returns_alone() {
    let mirror = |left| VolumeFacts {
        kind: RedundancyKind::Copies,
        losses_left: left,
        losses_designed: 1,
        missing: if left == 0 { vec![gone(1)] } else { vec![] },
        ..whole()
    };
    let mut house = House::new();
    house.seconds(5, &facts(vec![mirror(1)]));
    house.seconds(20, &facts(vec![mirror(0)]));
    assert_eq!(house.kinds(), [NoticeKind::Opened]);
    house.seconds(120, &facts(vec![mirror(1)]));
    assert_eq!(house.kinds(), [NoticeKind::Opened, NoticeKind::Closed]);
}

#[test]
fn thread_02_a_disk_pulled_before_the_start_is_told_as_one_that_is_pulled_later() {
    let pulled = facts(vec![without(&[3])]);
    let mut running = House::new();
    running.seconds(60, &facts(vec![whole()]));
    running.seconds(20, &pulled);
    let mut started = House::new();
    started.seconds(20, &pulled);
    let lines = |house: &House| -> Vec<String> {
        let arrived = house.arrived.iter();
        arrived.map(|(_, message)| message.first_line()).collect()
    };
    assert_eq!(lines(&running), lines(&started));
    assert_eq!(running.arrived.len(), 1);
}

#[test]
fn thread_03_the_worst_state_is_told_whatever_else_is_said() {
    let suspended = VolumeFacts {
        is_lost: true,
        is_first_sync: true,
        expected_missing: 5,
        ..whole()
    };
    assert_eq!(found(suspended), [(Code::Redundancy, Severity::Emergency)]);
}

#[test]
fn thread_04_a_start_without_a_member_opens_an_incident() {
    let mut house = House::new();
    house.seconds(10, &facts(vec![without(&[2])]));
    assert_eq!(house.open(), []);
    house.second(&facts(vec![without(&[2])]));
    assert_eq!(house.open(), [(Code::Redundancy, Severity::Warning)]);
    assert_eq!(house.kinds(), [NoticeKind::Opened]);
}

#[test]
fn thread_05_a_check_that_finds_nothing_is_silent_and_degraded_without_a_rebuild_is_not() {
    let checked = VolumeFacts {
        scrub: ScrubFacts {
            last_success: Some(START),
            oldest_checked: Some(START),
            due_after_s: Some(30 * 86_400),
            ..ScrubFacts::default()
        },
        ..whole()
    };
    assert_eq!(found(checked), []);
    assert_eq!(
        found(without(&[0])),
        [(Code::Redundancy, Severity::Warning)]
    );
}

#[test]
fn thread_06_a_slot_that_is_neither_failed_nor_filled_is_counted() {
    let nobody = VolumeFacts {
        missing: vec![gone(4)],
        ..whole() // the number alone does not show it
    };
    assert_eq!(found(nobody), [(Code::Redundancy, Severity::Warning)]);
}

#[test]
fn thread_08_no_text_decides_anything() {
    let mut told = without(&[1]);
    told.before = vec!["clean, degraded".into()];
    told.missing[0].reason = Some("active".into());
    told.missing[0].member = Some("all is well".into());
    told.name = "OK".into();
    assert_eq!(found(told), found(without(&[1])));
    let mut fine = whole();
    fine.before = vec!["FAULTED, SUSPENDED, degraded".into()];
    assert_eq!(found(fine), []);
}

#[test]
fn thread_09_the_worst_incident_is_the_first_one() {
    let mut worst = without(&[0, 1]);
    worst.uuid = "another".into();
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[2])]));
    house.seconds(15, &facts(vec![without(&[2]), worst]));
    let severities: Vec<Severity> = house.open().iter().map(|open| open.1).collect();
    assert_eq!(severities, [Severity::Critical, Severity::Warning]);
}

#[test]
fn thread_10_a_volume_that_should_be_there_and_is_not_is_told_with_its_members() {
    let absent = AbsentVolume {
        name: "home".into(),
        uuid: "5a1b".into(),
        reason: "3 of 5 members found, 4 are needed".into(),
        members: vec!["disk in bay 4 (WD40EFRX, serial WCC4E17)".into()],
    };
    let facts = Facts {
        daemon: DaemonFacts {
            absent: vec![absent],
            ..DaemonFacts::default()
        },
        ..facts(vec![])
    };
    let mut house = House::new();
    house.seconds(15, &facts);
    assert_eq!(house.open(), [(Code::NotJudged, Severity::Critical)]);
    let text = house.arrived[0].1.text();
    assert!(text.contains("3 of 5 members found"), "{text}");
    assert!(text.contains("bay 4 (WD40EFRX, serial WCC4E17)"), "{text}");
}

#[test]
fn thread_10_a_volume_that_is_gone_does_not_close_what_was_wrong_with_it() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[2])]));
    let mut absent = facts(vec![]);
    absent.daemon.absent = vec![AbsentVolume {
        uuid: "5a1b".into(),
        ..AbsentVolume::default()
    }];
    house.seconds(300, &absent);
    assert_eq!(
        house.open(),
        [
            (Code::NotJudged, Severity::Critical),
            (Code::Redundancy, Severity::Warning)
        ]
    );
}

#[test]
fn thread_11_damage_that_a_check_has_mended_is_told() {
    let mended = VolumeFacts {
        scrub: ScrubFacts {
            mended_bytes: 4096,
            ..ScrubFacts::default()
        },
        ..whole()
    };
    assert_eq!(found(mended), [(Code::Mended, Severity::Warning)]);
}

#[test]
fn thread_12_without_a_configuration_the_journal_is_told() {
    let config = AlarmConfig::parse("").unwrap();
    let mut house = House::new();
    house.channels = config.subscriptions();
    house.alarm = plexum_incidents::Alarm::new(house.channels.clone(), 1);
    house.seconds(15, &facts(vec![without(&[0])]));
    assert_eq!(house.arrived.len(), 1);
    assert_eq!(house.arrived[0].0, "journal");
}

#[test]
fn thread_13_what_cannot_be_seen_is_critical() {
    let blind = VolumeFacts {
        cannot_judge: Some("its thread does not answer".into()),
        ..whole()
    };
    assert_eq!(found(blind), [(Code::NotJudged, Severity::Critical)]);
    let crashed = DiskFacts {
        identity: "WCC4E17".into(),
        health: Health::CannotJudge {
            reason: "smartctl ended with signal 11".into(),
        },
        ..DiskFacts::default()
    };
    let facts = Facts {
        disks: vec![crashed],
        ..facts(vec![whole()])
    };
    assert_eq!(only(&facts).severity, Severity::Critical);
}

#[test]
fn thread_13_nothing_is_believed_of_what_cannot_be_judged() {
    let blind = VolumeFacts {
        cannot_judge: Some("no answer".into()),
        ..without(&[0, 1, 2])
    };
    assert_eq!(found(blind), [(Code::NotJudged, Severity::Critical)]);
}

#[test]
fn thread_14_each_volume_is_judged_for_itself_and_silence_of_the_judge_ends_the_heartbeat() {
    let mut other = without(&[0]);
    other.uuid = "other".into();
    let told = judge(&facts(vec![whole(), other]), START);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].object, Object::Volume("other".into()));
    let mut house = House::new();
    assert!(
        !house.alarm.is_heartbeat_due(60, house.now),
        "nothing was judged"
    );
    house.second(&facts(vec![whole()]));
    assert!(house.alarm.is_heartbeat_due(60, house.now));
    assert!(
        !house.alarm.is_heartbeat_due(60, house.now.plus_s(31)),
        "judged too long ago"
    );
}

#[test]
fn thread_15_a_test_message_goes_the_whole_way() {
    let mut house = House::with(&["mail", "phone"]);
    house.second(&facts(vec![whole()]));
    let id = house.alarm.test("phone", house.now).unwrap();
    house.second(&facts(vec![whole()]));
    assert_eq!(house.arrived.len(), 1);
    let (channel, message) = &house.arrived[0];
    assert_eq!((channel.as_str(), &message.id), ("phone", &id));
    assert_eq!(message.kind, NoticeKind::Test);
    assert!(house.alarm.open().is_empty(), "nothing is wrong");
}

#[test]
fn thread_16_a_mail_that_does_not_arrive_is_told_by_the_other_channel() {
    let mut house = House::with(&["mail", "phone"]);
    house.channels[1].least = Severity::Emergency;
    house.alarm = plexum_incidents::Alarm::new(house.channels.clone(), 1);
    house.broken = vec!["mail".into()];
    house.seconds(120, &facts(vec![without(&[1])]));
    let by_phone: Vec<Code> = house
        .arrived
        .iter()
        .map(|(_, message)| message.code)
        .collect();
    assert_eq!(
        by_phone,
        [Code::DeliveryFails],
        "not the warning, which it does not want"
    );
    let text = house.arrived[0].1.text();
    assert!(text.contains("connection refused"), "{text}");
    house.broken.clear();
    house.seconds(300, &facts(vec![without(&[1])]));
    let by_mail = house
        .arrived
        .iter()
        .filter(|(channel, _)| channel == "mail");
    assert_eq!(by_mail.count(), 1, "what waited has arrived");
    assert!(house.alarm.open_of(Code::Redundancy, &home()).is_some());
    assert_eq!(house.open().len(), 1, "the channel works again");
}

#[test]
fn thread_16_what_cannot_be_kept_is_told_and_ends_the_heartbeat() {
    let mut full = facts(vec![whole()]);
    full.daemon.journal_not_writable = Some("/var/lib/plexum: no space left".into());
    let mut house = House::new();
    house.seconds(15, &full);
    assert_eq!(
        house.open(),
        [(Code::JournalNotWritable, Severity::Critical)]
    );
    assert!(!house.alarm.is_heartbeat_due(60, house.now));
}
