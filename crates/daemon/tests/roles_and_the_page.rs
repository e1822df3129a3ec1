//! Roles over the network, against a made-up engine: each route of the document is asked for by everybody.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};

use plexum_daemon::control::access::{Access, Role, Token};
use plexum_daemon::control::{Ask, ControlServer};
use plexum_daemon::events::EventHub;
use plexum_daemon::problem::{Code, Problem};
use serde_json::{Value, json};

const TOKENS: [(&str, Role); 3] = [
    ("view-0123456789abcdef", Role::View),
    ("operate-0123456789abcdef", Role::Operate),
    ("administer-0123456789abcdef", Role::Administer),
];

/// A server at a free port, and a thread that answers every request by telling what it saw.
fn start(without_token: Option<Role>) -> (ControlServer, SocketAddr) {
    let (sender, receiver) = mpsc::channel::<Ask>();
    std::thread::spawn(move || {
        for ask in receiver {
            let saw = format!("{:?}", ask.request);
            ask.answer(Ok(json!({"message": saw, "volumes": []})));
        }
    });
    let post = Arc::new(move |ask| {
        let _ = sender.send(ask);
    });
    let tokens = TOKENS.map(|(secret, role)| Token::new(role.word(), role, secret).unwrap());
    let access = Access {
        without_token,
        tokens: tokens.to_vec(),
        ..Access::default()
    };
    let server = ControlServer::start_with(access, post, EventHub::default()).unwrap();
    let address = server
        .listen_page("127.0.0.1:0".parse().unwrap(), None)
        .unwrap();
    (server, address)
}

/// Status code, head and beginning of the body of one request; a stream is left after its first piece.
fn send(at: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).unwrap();
        text.extend_from_slice(&piece[..count]);
        let seen = String::from_utf8_lossy(&text);
        if count == 0 || seen.contains("content-type: text/event-stream") {
            let code = seen.split(' ').nth(1).unwrap().parse().unwrap();
            return (code, seen.into_owned());
        }
    }
}

fn headers(at: SocketAddr, token: Option<&str>) -> String {
    let token = token.map_or(String::new(), |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    format!("Host: {at}\r\nContent-Type: application/json\r\n{token}")
}

fn document(at: SocketAddr) -> Value {
    let (code, text) = send(
        at,
        "GET",
        "/v1/openapi.json",
        &headers(at, Some(TOKENS[0].0)),
        "",
    );
    assert_eq!(code, 200, "{text}");
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn each_route_of_the_document_is_open_to_its_role_and_to_no_lesser_one() {
    let (_server, at) = start(None);
    let document = document(at);
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let needed = operation["x-role"].as_str().and_then(Role::of_word);
            let path = path.replace("{name}", "v").replace("{id}", "7f");
            let tokens = TOKENS.map(|(secret, role)| (Some(secret), Some(role)));
            for (token, role) in [(None, None)].into_iter().chain(tokens) {
                let sent = headers(at, token);
                let (code, text) = send(at, &method.to_uppercase(), &path, &sent, "");
                let is_refused = code == 403 && text.contains("role_missing");
                assert_eq!(
                    is_refused,
                    role < needed,
                    "{method} {path} {token:?}: {text}"
                );
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn a_plan_and_its_carrying_out_need_the_role_of_what_is_wished() {
    let (_server, at) = start(None);
    let wish = r#"{"action":"start","volume":"v"}"#;
    for path in ["/page/plan", "/page/do"] {
        let (code, text) = send(at, "POST", path, &headers(at, Some(TOKENS[0].0)), wish);
        assert_eq!(code, 403, "{text}");
        let (code, text) = send(at, "POST", path, &headers(at, Some(TOKENS[1].0)), wish);
        assert_eq!(code, 200, "{text}");
    }
    let wish = r#"{"action":"stop","volume":"v"}"#;
    let (code, text) = send(
        at,
        "POST",
        "/page/do",
        &headers(at, Some(TOKENS[1].0)),
        wish,
    );
    assert_eq!(code, 403, "{text}");
}

#[test]
fn counting_anew_is_no_looking() {
    let (_server, at) = start(Some(Role::View));
    let path = "/v1/volumes/v/stats?reset=true";
    let (code, _) = send(at, "GET", path, &headers(at, None), "");
    assert_eq!(code, 403);
    let (code, _) = send(at, "GET", path, &headers(at, Some(TOKENS[1].0)), "");
    assert_eq!(code, 200);
}

#[test]
fn a_request_for_another_host_or_from_another_page_reaches_nothing() {
    let (_server, at) = start(Some(Role::View));
    let port = at.port();
    for host in [format!("example.com:{port}"), "example.com".to_owned()] {
        let (code, text) = send(at, "GET", "/", &format!("Host: {host}\r\n"), "");
        assert_eq!(code, 403, "{text}");
        assert!(!text.contains("<html"), "{text}");
    }
    let administer = headers(at, Some(TOKENS[2].0));
    let from = format!("{administer}Origin: http://example.com\r\n");
    let (code, text) = send(at, "POST", "/v1/volumes/v/stop", &from, "");
    assert_eq!((code, text.contains("Stop")), (403, false), "{text}");
    let form = administer.replace("application/json", "text/plain");
    let (code, text) = send(at, "POST", "/v1/volumes/v/stop", &form, "");
    assert_eq!((code, text.contains("Stop")), (400, false), "{text}");
    let (code, _) = send(at, "POST", "/v1/volumes/v/stop", &administer, "");
    assert_eq!(code, 200);
}

#[test]
fn a_token_that_nobody_knows_is_told_and_not_taken_for_none() {
    let (_server, at) = start(Some(Role::View));
    let wrong = headers(at, Some("0123456789abcdef"));
    let (code, text) = send(at, "GET", "/v1/volumes", &wrong, "");
    assert_eq!(code, 401, "{text}");
    assert!(text.contains("www-authenticate: Bearer"), "{text}");
    assert!(text.contains("nobody knows this token"), "{text}");
    // In the clear a browser keeps none: what it says it keeps counts for nothing.
    let kept: String = TOKENS[2]
        .0
        .bytes()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let kept = format!("{}Cookie: __Host-plexum={kept}\r\n", headers(at, None));
    let (code, _) = send(at, "POST", "/v1/volumes/v/stop", &kept, "");
    assert_eq!(code, 403);
    let (_, text) = send(at, "POST", "/page/token", &headers(at, None), "token=x");
    assert!(
        text.contains("no such route"),
        "no form takes a token in the clear: {text}"
    );
}

#[test]
fn every_answer_forbids_to_load_from_elsewhere_and_to_keep_it() {
    let (_server, at) = start(Some(Role::View));
    for path in ["/", "/page.css", "/page.js", "/v1/volumes", "/nothing"] {
        let (_, text) = send(at, "GET", path, &headers(at, None), "");
        for wanted in [
            "content-security-policy: default-src 'none';",
            "frame-ancestors 'none'",
            "cache-control: no-store",
            "x-content-type-options: nosniff",
        ] {
            assert!(text.contains(wanted), "{path}: {wanted}: {text}");
        }
        assert!(!text.contains("access-control-allow"), "{path}: {text}");
    }
}

#[test]
fn an_address_that_others_reach_is_refused_in_one_line() {
    let (server, _) = start(None);
    let problem: Problem = server
        .listen_page("0.0.0.0:0".parse().unwrap(), None)
        .unwrap_err();
    assert_eq!(problem.code, Code::InsecureListen);
    let text = "the page is not served at 0.0.0.0:0, which others than this machine reach, \
                without tls-cert and tls-key";
    assert_eq!(problem.message, text);
}
