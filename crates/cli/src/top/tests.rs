use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::*;

fn member(slot: u32, path: &str, state: &str) -> Value {
    json!({"slot": slot, "path": path, "state": state, "read_errors": 2, "write_errors": 0, "corrected_errors": 1,
        "latency_vs_peers_percent": 460, "is_slow": slot == 1,
        "read_latency": {"samples": 9, "p50_us": 9800, "p99_us": 190_000}})
}

/// A RAID-6 that has lost two members, one of them without a trace but its serial, and fills a third.
fn home() -> Value {
    let gone = json!({"slot": 2, "path": null, "was": "/dev/sdc", "state": "missing", "read_errors": 0,
        "write_errors": 3, "corrected_errors": 0, "disk": {"is_gone": true, "serial": "WCC4E17", "size_bytes": 1,
        "bay": {"number": "4", "words": "bay 4", "address":
            {"kind": "enclosure", "enclosure": "0x5", "component": "Slot 04", "slot": 4}}}});
    json!({
        "version": 1, "kind": "volume", "volume": "home", "verdict": "degraded", "level": "raid6", "layout": null,
        "strip_bytes": 65536, "format": "md-1.2", "uuid": "u", "size_bytes": 1 << 30, "member_bytes": 1 << 28,
        "slots": 4, "spare_failures": 0, "designed_spare_failures": 2, "event_count": 1, "is_dirty": false,
        "is_read_only": false, "balance": "b", "consistency": "bitmap", "bitmap": null, "io": "threads",
        "exports": [], "members": [member(0, "/dev/sda", "active"), member(1, "/dev/sdb", "active"), gone,
            member(3, "/dev/sdd", "rebuilding")],
        "jobs": [{"kind": "rebuild", "done_bytes": 41, "total_bytes": 100, "rate_bytes_per_s": 148 << 20,
            "eta_s": null, "slots": [3]}], "findings": [], "next": null, "server_pid": 1,
    })
}

fn stats(moment_ns: u64, reads: u64) -> Value {
    let counters = |reads: u64| {
        json!({"reads": reads, "writes": 0, "read_bytes": reads * 4096, "written_bytes": 0,
        "read_ns": reads * 2_500_000, "write_ns": 0, "in_flight": 3, "outstanding": 3})
    };
    let mut member = counters(reads / 2);
    member["member"] = "/dev/sda".into();
    json!({"moment_ns": moment_ns, "counting_since_ns": 0, "total": counters(reads), "members": [member]})
}

fn seen(moment_ns: u64, reads: u64) -> Look {
    let mut state = State::now();
    state.host = "nas".to_owned();
    state.now_s = 1_000_000;
    let mut scratch = home();
    for (key, value) in [
        ("volume", json!("scratch")),
        ("verdict", json!("ok")),
        ("jobs", json!([])),
        ("designed_spare_failures", json!(0)),
    ] {
        scratch[key] = value;
    }
    state.volumes = serde_json::from_value(json!([home(), scratch])).unwrap();
    let incidents = json!({"judged_s": 999_999, "not_kept": null, "configuration": null, "incidents": [
        {"id": "7f3", "state": "open", "severity": "critical", "name": "home", "headline": "no redundancy left", "opened_s": 5},
        {"id": "7f1", "state": "acknowledged", "severity": "warning", "name": "bay 3", "headline": "slow", "opened_s": 5,
            "acknowledged": {"who": "ute", "why": "watch"}}]});
    state.alarms = State::alarms_of(incidents);
    Look {
        state,
        stats: [("home".to_owned(), stats(moment_ns, reads))].into(),
    }
}

fn model() -> Model {
    Model::of(
        &seen(3_000_000_000, 400),
        Some(&seen(1_000_000_000, 100)),
        0,
    )
}

fn text(model: &Model, question: Option<&Question>, size: (u16, u16)) -> String {
    frame_of(model, question, size).join("\n")
}

fn press(key: KeyCode, model: &Model, question: Option<&Question>) -> Command {
    command(KeyEvent::new(key, KeyModifiers::NONE), model, question)
}

#[test]
fn a_frame_says_the_worst_first_and_keeps_the_row_of_a_disk_that_is_gone() {
    let frame = text(&model(), None, (100, 24));
    let lines: Vec<&str> = frame.lines().collect();
    assert!(
        lines[0].contains("nas") && lines[0].contains("CRITICAL ONE MORE FAILURE LOSES home"),
        "{frame}"
    );
    assert!(lines[1].contains("2 open, judged 1s ago"), "{frame}");
    let line = |word: &str| {
        lines
            .iter()
            .find(|line| line.contains(word))
            .copied()
            .unwrap_or_default()
    };
    let volume = line(">home");
    for word in ["DEGRADED", "0 of 2", "150", "2.5", "rebuild 41 %"] {
        assert!(volume.contains(word), "{word}: {frame}");
    }
    let gone = line("WCC4E17");
    assert!(
        gone.contains("bay 4") && gone.contains("GONE") && gone.contains("0/3/0"),
        "{frame}"
    );
    assert!(line("/dev/sdb").contains("4.6x!"), "{frame}");
    assert!(
        line("/dev/sda").contains("75"),
        "half of the reads in a second: {frame}"
    );
    assert!(line("7f1").contains("(known to ute: watch)"), "{frame}");
    assert!(
        frame.contains("[########------------] rebuild 41 %  148M/s  its end is not known yet"),
        "{frame}"
    );
}

#[test]
fn what_was_not_seen_is_a_dash_and_rates_begin_anew_with_their_counters() {
    let frame = text(&model(), None, (100, 24));
    let scratch = frame.lines().find(|line| line.contains("scratch")).unwrap();
    assert!(scratch.contains("none"), "{frame}");
    assert!(
        !scratch.contains(" 0 "),
        "nothing is known of its rates: {frame}"
    );
    let later = Look {
        stats: [("home".to_owned(), {
            let mut stats = stats(6_000_000_000, 8);
            stats["counting_since_ns"] = 4_000_000_000_u64.into();
            stats
        })]
        .into(),
        ..seen(0, 0)
    };
    let anew = Model::of(&later, Some(&seen(3_000_000_000, 400)), 0);
    assert_eq!(anew.volumes[0].rates[0], "4");
}

#[test]
fn every_size_of_a_terminal_is_drawn() {
    for width in [1, 3, 20, 80, 300] {
        for height in [1, 2, 5, 24, 100] {
            let questions = [
                None,
                Some(Question::Help),
                Some(Question::Told(vec!["x".repeat(500)])),
            ];
            for question in questions {
                let lines = frame_of(&model(), question.as_ref(), (width, height));
                assert!(lines.len() <= usize::from(height));
            }
        }
    }
    let empty = Model::of(
        &Look {
            state: State::now(),
            ..Look::default()
        },
        None,
        7,
    );
    assert!(text(&empty, None, (80, 24)).contains("no volume is served"));
}

#[test]
fn keys_choose_a_volume_and_never_one_that_is_not_there() {
    let model = model();
    assert_eq!(press(KeyCode::Char('j'), &model, None), Command::Select(1));
    assert_eq!(press(KeyCode::Up, &model, None), Command::Select(0));
    let last = Model::of(&seen(1, 1), None, 99);
    assert_eq!((last.selected, last.volumes.len()), (1, 2));
    assert_eq!(press(KeyCode::Char('q'), &model, None), Command::Quit);
}

#[test]
fn an_action_shows_its_plan_and_does_nothing_before_it_is_agreed_to() {
    let model = model();
    let Command::Plan { volume, wish } = press(KeyCode::Char('s'), &model, None) else {
        panic!("a plan comes first");
    };
    assert_eq!((volume.as_str(), &wish["stop"]), ("home", &json!(false)));
    let plan = json!({"title": "Check", "lines": ["reads all"], "command": "plexum scrub home", "confirm": null});
    let question = Question::of_plan(&wish, &plan);
    let frame = text(&model, Some(&question), (80, 24));
    assert!(
        frame.contains("as a command: plexum scrub home") && frame.contains("[enter] do it"),
        "{frame}"
    );
    assert_eq!(
        press(KeyCode::Esc, &model, Some(&question)),
        Command::Show(None)
    );
    assert_eq!(
        press(KeyCode::Char('y'), &model, Some(&question)),
        Command::None
    );
    assert_eq!(
        press(KeyCode::Enter, &model, Some(&question)),
        Command::Do { wish }
    );
}

#[test]
fn a_key_pressed_right_after_escape_closes_the_window_and_does_nothing_else() {
    let model = model();
    let wish = r#"{"action": "scrub"}"#.into();
    let question = Question::Plan {
        wish,
        title: String::new(),
        lines: Vec::new(),
        field: None,
        what: None,
        typed: String::new(),
    };
    let key = KeyEvent::new(KeyCode::Enter, KeyModifiers::ALT);
    assert_eq!(
        command(key, &model, Some(&question)),
        Command::Show(None),
        "Escape and Enter come as one key"
    );
}

#[test]
fn an_acknowledgement_takes_a_reason_that_is_typed() {
    let model = model();
    let Command::Plan { wish, .. } = press(KeyCode::Char('a'), &model, None) else {
        panic!("a plan comes first");
    };
    assert_eq!(wish["id"], "7f3", "the first that nobody knows of");
    let plan =
        json!({"title": "Acknowledge", "lines": [], "command": "plexum ack", "confirm": null});
    let mut question = Question::of_plan(&wish, &plan);
    for key in [
        KeyCode::Char('o'),
        KeyCode::Char('q'),
        KeyCode::Backspace,
        KeyCode::Char('k'),
    ] {
        let Command::Show(Some(changed)) = press(key, &model, Some(&question)) else {
            panic!("it is typed");
        };
        question = changed;
    }
    let Command::Do { wish } = press(KeyCode::Enter, &model, Some(&question)) else {
        panic!("it is done");
    };
    assert_eq!(wish["why"], "ok");
}
