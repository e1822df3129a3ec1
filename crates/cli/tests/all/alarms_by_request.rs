//! Messages that go to a service by HTTP; here to one on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use serde_json::Value;

use super::alarms::{AT_ONCE, configure, home};
use super::common::served::done;
use super::daemon::Daemon;

#[test]
fn a_request_is_made_by_curl_with_the_token_and_its_status_is_the_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let place = home("alarms-hook", "");
    std::fs::write(place.file("token"), "s3cret\n").unwrap();
    let token = place.file("token").display().to_string();
    let text = format!(
        "[[alarm.channel]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"http://{address}/\\\"plexum\"\n"
    );
    configure(
        &place,
        &format!("{AT_ONCE}{text}token-file = \"{token}\"\n"),
    );
    let server = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for status in ["200 OK", "403 Forbidden"] {
            let (stream, _) = listener.accept().unwrap();
            requests.push(answer(stream, status));
        }
        requests
    });
    let _daemon = Daemon::start(&place, "");
    assert_eq!(done(&place, "alert test hook").out, "hook: HTTP 200\n");
    let refused = place.plexum("alert test hook");
    assert_eq!(refused.exit, 5);
    assert!(refused.err.contains("403"), "{}", refused.err);
    for (head, body) in server.join().unwrap() {
        assert!(
            head.starts_with("POST /%22plexum HTTP/1.1") || head.starts_with("POST /\"plexum"),
            "{head}"
        );
        assert!(head.contains("Authorization: Bearer s3cret\r\n"), "{head}");
        assert!(
            head.contains("Content-Type: application/json\r\n"),
            "{head}"
        );
        let body: Value = serde_json::from_str(&body).unwrap();
        assert!(body["text"].as_str().unwrap().contains("\n\n"), "{body}");
    }
}

/// Reads a request and answers it: its head and its body.
fn answer(mut stream: std::net::TcpStream, status: &str) -> (String, String) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
    (head, String::from_utf8(body).unwrap())
}
