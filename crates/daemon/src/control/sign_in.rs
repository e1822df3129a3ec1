//! The one form of the page: a browser shows a token and keeps it, or lets go of it. Only where there is TLS.

use std::net::SocketAddr;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION, SET_COOKIE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::cookie;
use super::door::Door;
use super::reach::refuse;
use crate::web;

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Takes the form.
pub(super) async fn take(
    State(door): State<Door>,
    ConnectInfo(remote): ConnectInfo<SocketAddr>,
    body: Bytes,
) -> Response {
    let Some(token) = field(&body) else {
        return back(None);
    };
    match door.who(&token, remote) {
        Ok(_) => back(Some(&token)),
        Err(problem) => {
            // Status and headers are those of every refusal; what is shown is for people.
            let (mut head, _) = refuse(&problem).into_parts();
            head.headers.remove(CONTENT_LENGTH);
            head.headers.insert(CONTENT_TYPE, HTML);
            Response::from_parts(head, web::not_known(&problem).into())
        }
    }
}

/// Back to the page; the browser keeps this token from now on.
fn back(token: Option<&str>) -> Response {
    let headers: [(HeaderName, String); 2] = [
        (LOCATION, "/".to_owned()),
        (SET_COOKIE, cookie::keeping(token)),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// The token of the form; none when it was sent to let go of the one that is kept.
fn field(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let value = text.split('&').find_map(|pair| pair.strip_prefix("token="));
    value.map(decoded)
}

/// Source: URL Standard, application/x-www-form-urlencoded parsing.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                let digits = String::from_utf8(digits).unwrap_or_default();
                u8::from_str_radix(&digits, 16).unwrap_or(b'%')
            }
            byte => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_survives_the_form_and_nothing_that_is_none_panics() {
        let token: String = (b'!'..=b'~').map(char::from).collect();
        let sent: String = token.bytes().map(|byte| format!("%{byte:02X}")).collect();
        assert_eq!(
            field(format!("other=1&token={sent}").as_bytes()).unwrap(),
            token
        );
        for body in ["token=%", "token=%4", "token=%zz", "token=", "token=%ff"] {
            assert!(field(body.as_bytes()).is_some(), "{body}");
        }
        assert_eq!(field(b"leave="), None);
        assert_eq!(field(b"\xff\xfe"), None);
    }
}
