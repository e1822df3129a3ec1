//! What is asked of the daemon's alarms, and the routes for it.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::request::Request;
use super::server::{Reach, ask, refuse};
use crate::problem::{Code, Problem};

/// What is asked of the daemon's alarms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlarmRequest {
    /// All incidents that are open, or were not long ago, and how it goes with each channel.
    List,
    /// One incident, with its messages and what became of them.
    Show {
        /// Its number, as it is written.
        id: String,
    },
    /// Somebody knows of an incident; answered when that is durable.
    Acknowledge {
        /// Its number, as it is written.
        id: String,
        /// Who, and why that is enough.
        by: Acknowledge,
    },
    /// Send a message to a channel, to try it; answered when the transport has answered.
    Test {
        /// Its name.
        channel: String,
    },
}

/// Who knows of an incident, and why that is enough: the body of the request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acknowledge {
    /// Who.
    pub who: String,
    /// Why.
    pub why: String,
}

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
