//! The routes of the daemon's alarms.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::response::Response;
use axum::routing::{get, post};

use super::alarm_request::AlarmRequest;
use super::reach::{Reach, ask, refuse};
use super::request::Request;
use crate::problem::{Code, Problem};

/// The routes.
pub(super) fn routes() -> Router<Reach> {
    Router::new()
        .route("/v1/incidents", get(list))
        .route("/v1/incidents/{id}", get(show))
        .route("/v1/incidents/{id}/acknowledge", post(acknowledge))
        .route("/v1/channels/{name}/test", post(test))
}

async fn list(State(reach): State<Reach>) -> Response {
    ask(&reach, Request::Alarm(AlarmRequest::List)).await
}

async fn show(State(reach): State<Reach>, UrlPath(id): UrlPath<String>) -> Response {
    ask(&reach, Request::Alarm(AlarmRequest::Show { id })).await
}

async fn acknowledge(
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

async fn test(State(reach): State<Reach>, UrlPath(channel): UrlPath<String>) -> Response {
    ask(&reach, Request::Alarm(AlarmRequest::Test { channel })).await
}
