//! What people read, and what each kind of channel makes of it.

use plexum_incidents::channel::mail::{Addresses, mail};
use plexum_incidents::channel::webhook::{Request, Service, request};
use plexum_incidents::channel::{journal, program};
use plexum_incidents::facts::{MissingSlot, SafeAgain, VolumeFacts};
use plexum_incidents::message::Message;

use crate::common::{House, START, facts, whole, without};

/// The night of the 26th, in bay 4.
fn night() -> Message {
    let mut volume = without(&[2, 3]);
    volume.missing[0] = MissingSlot {
        member: Some("disk in bay 4 (WD40EFRX, serial WCC4E17)".into()),
        reason: Some("the device is gone (3 write errors before)".into()),
        since: Some(START),
        ..volume.missing[0].clone()
    };
    volume.missing[1].valid_bytes = Some(1 << 40);
    volume.before = vec!["writes slowed at 02:40 (peer ratio 4.6x)".into()];
    volume.safe_again = Some(SafeAgain {
        likely: START.plus_s(27_000),
        earliest: START.plus_s(24_000),
        latest: START.plus_s(33_000),
    });
    told(volume)
}

fn told(volume: VolumeFacts) -> Message {
    let mut facts = facts(vec![volume]);
    facts.utc_offset_s = 3600;
    let mut house = House::new();
    house.seconds(15, &facts);
    house.arrived.remove(0).1
}

const FIRST: &str = "[nas] home: ONE MORE FAILURE LOSES IT - slot 2 is missing: disk in bay 4 (WD40EFRX, serial WCC4E17), slot 3 is being filled";

#[test]
fn the_message_says_what_it_means_what_to_do_and_which_disk() {
    let expected = format!(
        "{FIRST}

2026-11-26 03:02 +01:00 slot 2: the device is gone (3 write errors before)
slot 3: 1 TiB of it are valid again
Data   all readable; survives no further loss, by design 2
       redundancy is back at about 10:32 (09:42 to 12:12)
You    put a disk into slot 2:   plexum add home /dev/DISK
Before writes slowed at 02:40 (peer ratio 4.6x)
This   is incident 7f3 (critical), open since 2026-11-26 03:02 +01:00, message 1
       the next one only if it gets worse, ends, or lasts another day
       details:   plexum incident 7f3
       not again until it gets worse or ends:   plexum ack 7f3 --why \"disk is ordered\"
"
    );
    assert_eq!(night().text(), expected);
}

#[test]
fn the_first_line_is_the_same_everywhere() {
    let message = night();
    let addresses = Addresses {
        to: "root".into(),
        from: None,
    };
    assert!(mail(&message, &addresses).contains(&format!("\nSubject: {FIRST}\n\n{FIRST}\n")));
    assert_eq!(
        journal::line(&message),
        format!("<2>{FIRST} (incident 7f3, opened)")
    );
    let start = program::start(&message, &["/bin/true".to_owned()]);
    assert!(
        start
            .environment
            .contains(&("PLEXUM_SUBJECT", FIRST.to_owned()))
    );
    let value: serde_json::Value = serde_json::from_str(&start.input).unwrap();
    assert_eq!(value["first_line"], FIRST);
    assert_eq!(value["severity"], "critical");
    assert_eq!(value["text"], message.text());
    for service in [Service::Ntfy, Service::Gotify] {
        assert_eq!(
            body(&request(&message, &service, "https://example.com/x", None))["title"],
            FIRST
        );
    }
}

fn body(request: &Request) -> serde_json::Value {
    serde_json::from_str(&request.body).unwrap()
}

#[test]
fn one_that_returned_is_taken_back_and_one_that_is_filled_needs_nothing() {
    let mut returned = without(&[1]);
    returned.missing[0].returned = Some("/dev/sdd".into());
    assert!(
        told(returned)
            .text()
            .contains("plexum re-add home /dev/sdd")
    );
    let mut filled = without(&[1]);
    filled.missing[0].valid_bytes = Some(0);
    assert!(
        told(filled)
            .text()
            .contains("You    nothing now, it is being filled")
    );
}

#[test]
fn what_is_worst_in_some_places_says_what_is_true_elsewhere() {
    let bad = VolumeFacts {
        losses_left: 1,
        bad_bytes: 8192,
        ..whole()
    };
    let text = told(bad).text();
    assert!(
        text.contains("survives 1 loss more, not 2 - 8 KiB are bad on other members"),
        "{text}"
    );
    assert!(text.contains("elsewhere it survives 2 losses"), "{text}");
}

#[test]
fn lost_data_come_with_the_advice_to_touch_nothing() {
    let text = told(without(&[0, 1, 2])).text();
    assert!(text.contains("DATA LOST - slot 0 is missing"), "{text}");
    assert!(
        text.contains("write nothing to the members, and pull none"),
        "{text}"
    );
}

#[test]
fn names_from_disks_and_users_cannot_leave_their_line() {
    let mut hostile = without(&[1]);
    hostile.name = "home\r\nBcc: all@example.com\u{202e}".into();
    hostile.missing[0].member = Some("x\0\u{1b}[2J\n".repeat(1000));
    let message = told(hostile);
    assert_eq!(message.first_line().lines().count(), 1);
    assert!(message.first_line().chars().count() <= 410);
    assert!(!message.text().contains(['\r', '\0', '\u{1b}', '\u{202e}']));
    let addresses = Addresses {
        to: "root\nBcc: all@example.com".into(),
        from: Some("nas".into()),
    };
    let mail = mail(&message, &addresses);
    let (headers, _) = mail.split_once("\n\n").unwrap();
    assert!(!headers.contains("\nBcc"), "{headers}");
}

#[test]
fn all_mails_of_an_incident_are_one_thread() {
    let addresses = Addresses {
        to: "root".into(),
        from: Some("nas <nas@example.com>".into()),
    };
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0])]));
    house.seconds(80, &facts(vec![whole()]));
    let mails: Vec<String> = house
        .arrived
        .iter()
        .map(|(_, message)| mail(message, &addresses))
        .collect();
    let header = |mail: &str, name: &str| -> String {
        let mut lines = mail.lines().take_while(|line| !line.is_empty());
        lines
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        header(&mails[0], "In-Reply-To"),
        header(&mails[1], "In-Reply-To")
    );
    assert_ne!(
        header(&mails[0], "Message-ID"),
        header(&mails[1], "Message-ID")
    );
    assert_eq!(header(&mails[0], "From"), "From: nas <nas@example.com>");
    assert_eq!(
        header(&mails[0], "Date"),
        "Date: Thu, 26 Nov 2026 02:02:10 +0000"
    );
    assert!(header(&mails[0], "Message-ID").ends_with("@nas.plexum>"));
}

#[test]
fn each_service_gets_the_request_that_it_understands() {
    let message = night();
    let ntfy = request(
        &message,
        &Service::Ntfy,
        "https://example.com/nas",
        Some("tk_1\n"),
    );
    assert_eq!(
        (ntfy.method, ntfy.url.as_str()),
        ("POST", "https://example.com")
    );
    assert_eq!(body(&ntfy)["topic"], "nas");
    assert_eq!(body(&ntfy)["priority"], 5);
    assert!(
        ntfy.headers
            .contains(&("Authorization", "Bearer tk_1".to_owned()))
    );

    let gotify = request(
        &message,
        &Service::Gotify,
        "https://example.com/",
        Some("k"),
    );
    assert_eq!(gotify.url, "https://example.com/message");
    assert_eq!(body(&gotify)["priority"], 8);
    assert!(gotify.headers.contains(&("X-Gotify-Key", "k".to_owned())));

    let slack = request(&message, &Service::Slack, "https://example.com/s/1", None);
    assert!(
        body(&slack)["text"]
            .as_str()
            .unwrap()
            .starts_with(&format!("*{FIRST}*"))
    );

    let room = Service::Matrix {
        room: "!a:example.com".into(),
    };
    let matrix = request(&message, &room, "https://example.com", Some("m"));
    assert_eq!(matrix.method, "PUT");
    let path =
        "https://example.com/_matrix/client/v3/rooms/%21a%3Aexample.com/send/m.room.message/";
    assert_eq!(matrix.url, format!("{path}{}", message.id));
    assert_eq!(body(&matrix)["body"], message.text());

    let plain = request(&message, &Service::Plain, "https://example.com/hook", None);
    assert_eq!(body(&plain)["id"], message.id);
    assert_eq!(plain.headers.len(), 1);
}

#[test]
fn in_slack_nothing_that_a_disk_calls_itself_is_a_command() {
    let mut hostile = without(&[1]);
    hostile.missing[0].member = Some("<!channel> & ```".into());
    let slack = request(
        &told(hostile),
        &Service::Slack,
        "https://example.com/s",
        None,
    );
    let text = body(&slack)["text"].as_str().unwrap().to_owned();
    assert!(text.contains("&lt;!channel&gt; &amp; '''"), "{text}");
    assert_eq!(text.matches("```").count(), 2);
}

#[test]
fn an_end_and_a_test_do_not_ring() {
    let mut house = House::new();
    house.seconds(15, &facts(vec![without(&[0, 1])]));
    house.seconds(80, &facts(vec![whole()]));
    house.alarm.test("mail", house.now).unwrap();
    house.second(&facts(vec![whole()]));
    let priorities: Vec<u8> = house
        .arrived
        .iter()
        .map(|(_, message)| journal::priority(message))
        .collect();
    assert_eq!(priorities, [2, 5, 5]);
    for (_, message) in &house.arrived[1..] {
        let ntfy = request(message, &Service::Ntfy, "https://example.com/n", None);
        assert_eq!(body(&ntfy)["priority"], 3);
    }
}
