//! What the routes of the daemon's alarms do.

use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::response::Response;

use super::alarm_request::AlarmRequest;
use super::reach::{Reach, ask, refuse};
use super::request::Request;
use crate::problem::{Code, Problem};

pub(super) async fn list(State(reach): State<Reach>) -> Response {
    ask(&reach, Request::Alarm(AlarmRequest::List)).await
}

pub(super) async fn show(State(reach): State<Reach>, UrlPath(id): UrlPath<String>) -> Response {
    ask(&reach, Request::Alarm(AlarmRequest::Show { id })).await
}

pub(super) async fn acknowledge(
    State(reach): State<Reach>,
    UrlPath(id): UrlPath<String>,
    body: Bytes,
) -> Response {
    match serde_json::from_slice(&body) {
        Ok(by) => {
            let request = AlarmRequest::Acknowledge { id, by };
            ask(&reach, Request::Alarm(request)).await
        }
        Err(error) => refuse(&Problem::new(
            Code::Usage,
            format!("request acknowledge: {error}"),
        )),
    }
}

pub(super) async fn test(
    State(reach): State<Reach>,
    UrlPath(channel): UrlPath<String>,
) -> Response {
    ask(&reach, Request::Alarm(AlarmRequest::Test { channel })).await
}
