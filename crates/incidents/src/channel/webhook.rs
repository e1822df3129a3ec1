//! Requests of services that take messages by HTTP.
//!
//! Texts go into bodies alone, which are JSON: nothing that a disk calls itself can become a header.

use serde_json::json;

use crate::finding::Severity;
use crate::incident::NoticeKind;
use crate::message::Message;

/// Who takes the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// ntfy: the address ends with the topic.
    Ntfy,
    /// Gotify: the address of the server.
    Gotify,
    /// Slack's incoming webhooks, and what understands the same: the whole address.
    Slack,
    /// Matrix: the address of the home server.
    Matrix {
        /// The room, by its number (`!...`).
        room: String,
    },
    /// Anything else: the whole message as JSON.
    Plain,
}

/// A request to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `POST` or `PUT`.
    pub method: &'static str,
    /// Where to.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(&'static str, String)>,
    /// What is sent.
    pub body: String,
}

/// The request that tells `message` to `service` at `url`.
#[must_use]
pub fn request(message: &Message, service: &Service, url: &str, token: Option<&str>) -> Request {
    let address = url.trim_end_matches('/');
    let title = message.first_line();
    let (method, url, body) = match service {
        Service::Ntfy => {
            let (server, topic) = address.rsplit_once('/').unwrap_or((address, ""));
            let body = json!({"topic": topic, "title": title, "message": message.body(),
                "priority": ntfy_priority(message), "tags": [tag(message)]});
            ("POST", server.to_owned(), body)
        }
        Service::Gotify => {
            let body = json!({"title": title, "message": message.body(),
                "priority": gotify_priority(message)});
            ("POST", format!("{address}/message"), body)
        }
        Service::Slack => {
            let text = format!(
                "*{}*\n```{}```",
                slack_text(&title),
                slack_text(&message.body())
            );
            ("POST", address.to_owned(), json!({"text": text}))
        }
        Service::Matrix { room } => {
            // The number of the message makes a second delivery the same event.
            let url = format!(
                "{address}/_matrix/client/v3/rooms/{}/send/m.room.message/{}",
                percent(room),
                percent(&message.id)
            );
            (
                "PUT",
                url,
                json!({"msgtype": "m.text", "body": message.text()}),
            )
        }
        Service::Plain => {
            let body = serde_json::from_str(&message.json()).unwrap_or_default();
            ("POST", address.to_owned(), body)
        }
    };
    let mut headers = vec![("Content-Type", "application/json".to_owned())];
    headers.extend(token.map(|token| authorisation(service, token)));
    Request {
        method,
        url,
        headers,
        body: body.to_string(),
    }
}

fn authorisation(service: &Service, token: &str) -> (&'static str, String) {
    // A line feed at the end of a file is nobody's token.
    let token: String = token.chars().filter(|c| c.is_ascii_graphic()).collect();
    match service {
        Service::Gotify => ("X-Gotify-Key", token),
        _ => ("Authorization", format!("Bearer {token}")),
    }
}

fn tag(message: &Message) -> &'static str {
    match (message.kind, message.severity) {
        (NoticeKind::Closed, _) => "white_check_mark",
        (NoticeKind::Test, _) => "wrench",
        (_, Severity::Warning) => "warning",
        (_, Severity::Critical | Severity::Emergency) => "rotating_light",
    }
}

/// 1 to 5; 5 rings until somebody looks.
fn ntfy_priority(message: &Message) -> u8 {
    match (message.kind, message.severity) {
        (NoticeKind::Closed | NoticeKind::Test, _) => 3,
        (_, Severity::Warning) => 4,
        (_, Severity::Critical | Severity::Emergency) => 5,
    }
}

/// 0 to 10; from 8 on it makes a sound and stays.
fn gotify_priority(message: &Message) -> u8 {
    match (message.kind, message.severity) {
        (NoticeKind::Closed | NoticeKind::Test, _) => 4,
        (_, Severity::Warning) => 6,
        (_, Severity::Critical) => 8,
        (_, Severity::Emergency) => 10,
    }
}

/// Three characters have a meaning there, and three backquotes would end the block.
fn slack_text(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('`', "'")
}

/// Source: RFC 3986, section 2.3: these characters need no escape.
fn percent(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(byte.into());
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}
