//! The control socket against a made-up engine.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use plexum_daemon::control::{Action, Answer, Ask, ControlServer, Request};
use plexum_daemon::events::EventHub;
use plexum_daemon::problem::{Code, Problem};
use serde_json::{Value, json};

fn socket(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("plexum-ctl-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// A server whose requests are answered by `engine` on a thread of its own.
fn start(
    path: &Path,
    events: &EventHub,
    engine: impl Fn(Request) -> Answer + Send + 'static,
) -> ControlServer {
    let (sender, receiver) = mpsc::channel::<Ask>();
    std::thread::spawn(move || {
        for ask in receiver {
            let answer = engine(ask.request.clone());
            ask.answer(answer);
        }
    });
    let post = Arc::new(move |ask| {
        let _ = sender.send(ask);
    });
    ControlServer::start(vec![path.to_owned()], post, events.clone()).unwrap()
}

/// Status code and body of one request.
fn send(path: &Path, method: &str, route: &str, body: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(path).unwrap();
    write!(
        stream,
        "{method} {route} HTTP/1.1\r\nHost: plexum\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let code = text.split(' ').nth(1).unwrap().parse().unwrap();
    let body = text.split_once("\r\n\r\n").unwrap().1;
    (code, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[test]
fn every_route_reaches_the_engine_as_the_request_it_names() {
    let path = socket("routes");
    let server = start(&path, &EventHub::default(), |request| {
        Ok(json!({"saw": format!("{request:?}")}))
    });
    let act = |action| {
        format!(
            "{:?}",
            Request::Act {
                volume: "v".into(),
                action
            }
        )
    };
    let cases: Vec<(&str, &str, &str, String)> = vec![
        ("GET", "/v1/volumes", "", "List".into()),
        ("GET", "/v1/volumes/v", "", "Show { volume: \"v\" }".into()),
        (
            "GET",
            "/v1/volumes/v/stats?reset=true",
            "",
            "Stats { volume: \"v\", reset: true }".into(),
        ),
        (
            "POST",
            "/v1/volumes/v/fail",
            r#"{"member":"a"}"#,
            act(Action::Fail { member: "a".into() }),
        ),
        (
            "POST",
            "/v1/volumes/v/re-add",
            r#"{"member":"a"}"#,
            act(Action::ReAdd { member: "a".into() }),
        ),
        (
            "POST",
            "/v1/volumes/v/replace",
            r#"{"old":"a","new":"b"}"#,
            act(Action::Replace {
                old: "a".into(),
                new: "b".into(),
                force: false,
            }),
        ),
        (
            "POST",
            "/v1/volumes/v/scrub",
            "",
            act(Action::Scrub {
                repair: false,
                stop: false,
            }),
        ),
        ("POST", "/v1/volumes/v/stop", "{}", act(Action::Stop)),
    ];
    for (method, route, body, saw) in cases {
        let (code, answer) = send(&path, method, route, body);
        assert_eq!((code, answer["saw"].as_str()), (200, Some(saw.as_str())));
    }
    drop(server);
    assert!(!path.exists(), "the socket file is removed");
}

#[test]
fn a_refusal_arrives_with_its_slug_and_exit_code() {
    let path = socket("refusal");
    let _server = start(&path, &EventHub::default(), |_| {
        Err(Problem::new(Code::NoSuchVolume, "no volume nas").hint("to see all:   plexum status"))
    });
    let (code, answer) = send(&path, "GET", "/v1/volumes/nas", "");
    assert_eq!(code, 404);
    assert_eq!(answer["error"]["code"], "no_such_volume");
    assert_eq!(answer["error"]["exit"], 7);
    assert_eq!(answer["error"]["hint"], "to see all:   plexum status");
}

#[test]
fn nonsense_is_answered_without_asking_the_engine() {
    let path = socket("nonsense");
    let _server = start(&path, &EventHub::default(), |request| {
        panic!("the engine was asked {request:?}")
    });
    for (method, route, body) in [
        ("POST", "/v1/volumes/v/explode", "{}"),
        ("POST", "/v1/volumes/v/fail", "{}"),
        ("POST", "/v1/volumes/v/fail", "[1]"),
        ("POST", "/v1/volumes/v/fail", "{\"member\":"),
        ("GET", "/v2/nothing", ""),
    ] {
        let (code, answer) = send(&path, method, route, body);
        assert_eq!((code, &answer["error"]["code"]), (400, &json!("usage")));
    }
}

#[test]
fn the_socket_is_private_and_a_second_server_is_refused() {
    let path = socket("private");
    let server = start(&path, &EventHub::default(), |_| Ok(json!({})));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = ControlServer::start(vec![path.clone()], Arc::new(|_| {}), EventHub::default());
    assert_eq!(second.err().unwrap().code.exit(), 6);
    drop(server);
}

#[test]
fn events_come_as_a_list_or_as_a_stream_that_ends_with_the_server() {
    let path = socket("events");
    let events = EventHub::default();
    let server = start(&path, &events, |_| Ok(json!({})));
    events.publish(7, "v", "started", "v is served", None);
    let (_, list) = send(&path, "GET", "/v1/events?follow=false", "");
    assert_eq!(list["kind"], "events");
    assert_eq!(list["events"][0]["name"], "started");

    let mut stream = UnixStream::connect(&path).unwrap();
    write!(stream, "GET /v1/events HTTP/1.1\r\nHost: plexum\r\n\r\n").unwrap();
    let mut seen = String::new();
    let mut byte = [0];
    while !seen.contains("\"v is served\"") {
        stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0] as char);
    }
    events.publish(8, "v", "stopped", "v is stopped", None);
    while !seen.contains("\"v is stopped\"") {
        stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0] as char);
    }
    assert!(seen.contains("event: stopped"));
    drop(server);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
}
