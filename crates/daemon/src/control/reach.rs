//! What the routes of the control socket have at hand: the way to the engine's thread, and how an answer is told.

use std::sync::Arc;

use axum::Json;
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use super::access::Access;
use super::events::EventHub;
use super::request::{Answer, Ask, Request};
use crate::problem::{Code, Problem};

/// How requests reach the engine's thread. Called on the control thread; must not block.
pub type Post = Arc<dyn Fn(Ask) + Send + Sync>;

/// What the routes have at hand.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) post: Post,
    pub(crate) events: EventHub,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) access: Arc<Access>,
}

pub(crate) async fn ask(reach: &Reach, request: Request) -> Response {
    respond(answer_of(reach, request).await)
}

/// Asks the engine's thread.
pub(crate) async fn answer_of(reach: &Reach, request: Request) -> Answer {
    let (ask, answer) = Ask::new(request);
    (reach.post)(ask);
    answer
        .await
        .unwrap_or_else(|_| Err(Problem::new(Code::NoServer, "the server is stopping")))
}

pub(crate) fn respond(answer: Answer) -> Response {
    match answer {
        Ok(value) => Json(value).into_response(),
        Err(problem) => refuse(&problem),
    }
}

/// Tells why not.
pub(crate) fn refuse(problem: &Problem) -> Response {
    let by_exit = match problem.code.exit() {
        2 => StatusCode::BAD_REQUEST,
        3 | 6 => StatusCode::CONFLICT,
        4 => StatusCode::UNPROCESSABLE_ENTITY,
        7 => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let status = match problem.code {
        Code::RoleMissing => StatusCode::FORBIDDEN,
        Code::UnknownToken => StatusCode::UNAUTHORIZED,
        Code::TooManyGuesses => StatusCode::TOO_MANY_REQUESTS,
        _ => by_exit,
    };
    let mut response = (status, Json(problem.to_json())).into_response();
    if status == StatusCode::UNAUTHORIZED {
        // Source: RFC 9110, section 15.5.2: such an answer says how one makes oneself known.
        let how = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, how);
    }
    response
}
