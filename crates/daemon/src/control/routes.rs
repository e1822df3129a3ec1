//! What the routes of the control socket do, each in a function; which there are is in `table.rs`.

use std::collections::BTreeMap;
use std::pin::pin;

use axum::body::Bytes;
use axum::extract::{Path as UrlPath, Query, State};
use axum::response::sse::{Event as SseEvent, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::access::{Caller, Role};
use super::asked::{Asked, change, change_pool};
use super::reach::{Reach, answer_of, ask, refuse, respond};
use super::request::{Answer, Request};
use crate::problem::{Code, Problem};
use crate::space;
use crate::volume::status::{JSON_VERSION, VolumeStatus};

pub(super) async fn list(State(reach): State<Reach>) -> Response {
    let answer = answer_of(&reach, Request::List).await;
    respond(with_space(answer).await)
}

pub(super) async fn open(State(reach): State<Reach>, body: Bytes) -> Response {
    match serde_json::from_slice(&body) {
        Ok(open) => ask(&reach, Request::Open { open }).await,
        Err(error) => refuse(&Problem::new(
            Code::Usage,
            format!("request to serve: {error}"),
        )),
    }
}

pub(super) async fn start(
    State(reach): State<Reach>,
    UrlPath(volume): UrlPath<String>,
) -> Response {
    ask(&reach, Request::Start { volume }).await
}

pub(super) async fn forget(
    State(reach): State<Reach>,
    UrlPath(volume): UrlPath<String>,
) -> Response {
    ask(&reach, Request::Forget { volume }).await
}

pub(super) async fn show(State(reach): State<Reach>, UrlPath(volume): UrlPath<String>) -> Response {
    let answer = answer_of(&reach, Request::Show { volume }).await;
    respond(with_space(answer).await)
}

/// Adds to each status in an answer what the file systems under its members say; on another thread, because they may
/// hang.
async fn with_space(answer: Answer) -> Answer {
    let mut value = answer?;
    let looked = tokio::task::spawn_blocking(move || {
        match value["volumes"].as_array_mut() {
            Some(all) => all.iter_mut().for_each(add_space),
            None => add_space(&mut value),
        }
        value
    });
    looked
        .await
        .map_err(|_| Problem::new(Code::NoServer, "the server is stopping"))
}

fn add_space(status: &mut Value) {
    if let Ok(mut known) = serde_json::from_value::<VolumeStatus>(status.clone()) {
        space::look(&mut known);
        *status = serde_json::to_value(known).unwrap_or_default();
    }
}

pub(super) async fn stats(
    State(reach): State<Reach>,
    Extension(caller): Extension<Caller>,
    UrlPath(volume): UrlPath<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let reset = query.get("reset").is_some_and(|value| value == "true");
    // Who counts anew takes something from whoever else looks.
    if reset && let Err(problem) = caller.check(Role::Operate) {
        return refuse(&problem);
    }
    ask(&reach, Request::Stats { volume, reset }).await
}

pub(super) async fn requests(
    State(reach): State<Reach>,
    UrlPath(volume): UrlPath<String>,
) -> Response {
    ask(&reach, Request::Requests { volume }).await
}

/// What is to be changed, who asks for it, and what is behind the question mark.
type Asking = (
    UrlPath<String>,
    Extension<Caller>,
    Query<BTreeMap<String, String>>,
);

/// A change of a volume, by the word of its route.
pub(super) async fn act(reach: Reach, action: &'static str, from: Asking, body: Bytes) -> Response {
    let (UrlPath(volume), Extension(caller), Query(mut query)) = from;
    let answer = async {
        let asked = Asked {
            volume,
            action: parse_tagged("action", action, &body)?,
            why: query.remove("why"),
        };
        change(&reach, &caller, asked).await
    };
    respond(answer.await)
}

pub(super) async fn show_pool(
    State(reach): State<Reach>,
    UrlPath(pool): UrlPath<String>,
) -> Response {
    ask(&reach, Request::ShowPool { pool }).await
}

/// A change of a pool, by the word of its route.
pub(super) async fn change_of_pool(
    reach: Reach,
    word: &'static str,
    from: Asking,
    body: Bytes,
) -> Response {
    let (UrlPath(pool), Extension(caller), Query(query)) = from;
    let answer = async {
        let change = parse_tagged("change", word, &body)?;
        let why = query.get("why").map(String::as_str);
        change_pool(&reach, &caller, (pool, change), why).await
    };
    respond(answer.await)
}

/// The dry run of a change of a pool, by the word of its route.
pub(super) async fn rehearse_of_pool(
    reach: Reach,
    word: &'static str,
    pool: String,
    body: Bytes,
) -> Response {
    let answer = async {
        let change = parse_tagged("change", word, &body)?;
        answer_of(&reach, Request::RehearsePool { pool, change }).await
    };
    respond(answer.await)
}

pub(super) async fn attached(
    State(reach): State<Reach>,
    UrlPath(volume): UrlPath<String>,
) -> Response {
    ask(&reach, Request::Attached { volume }).await
}

/// The dry run of a change of a volume, by the word of its route.
pub(super) async fn rehearse(
    reach: Reach,
    action: &'static str,
    volume: String,
    body: Bytes,
) -> Response {
    let answer = async {
        let action = parse_tagged("action", action, &body)?;
        answer_of(&reach, Request::Rehearse { volume, action }).await
    };
    respond(answer.await)
}

/// Joins the route's word, which is the field `tag`, and the body's fields.
fn parse_tagged<T: DeserializeOwned>(tag: &str, route: &str, body: &[u8]) -> Result<T, Problem> {
    let bad = |detail: String| Problem::new(Code::Usage, format!("request {route}: {detail}"));
    let mut fields: Value = if body.is_empty() {
        json!({})
    } else {
        serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?
    };
    let Some(object) = fields.as_object_mut() else {
        return Err(bad("the body is not a JSON object".into()));
    };
    object.insert(tag.into(), Value::from(route));
    serde_json::from_value(fields).map_err(|error| bad(error.to_string()))
}

pub(super) async fn events(
    State(reach): State<Reach>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let after = query
        .get("after")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    if query.get("follow").is_some_and(|value| value == "false") {
        let events = reach.events.since(after);
        let events: Vec<_> = events.iter().map(|event| event.as_ref()).collect();
        return Json(json!({"version": JSON_VERSION, "kind": "events", "events": events}))
            .into_response();
    }
    let listener = reach.events.listen(after);
    let stream = futures_util::stream::unfold(
        (listener, reach.stop.clone()),
        |(mut listener, mut stop)| async move {
            let event = {
                let next = pin!(listener.next());
                let stopped = pin!(stop.wait_for(|stopped| *stopped));
                match futures_util::future::select(next, stopped).await {
                    futures_util::future::Either::Left((event, _)) => event?,
                    futures_util::future::Either::Right(_) => return None,
                }
            };
            let text = serde_json::to_string(event.as_ref()).ok()?;
            let sse = SseEvent::default()
                .id(event.sequence.to_string())
                .event(event.name.clone())
                .data(text);
            Some((Ok::<_, std::convert::Infallible>(sse), (listener, stop)))
        },
    );
    Sse::new(stream).into_response()
}
