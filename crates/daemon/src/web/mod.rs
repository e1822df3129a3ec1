//! The page: what a browser shows of a server, and what somebody who may can do there.
//!
//! Invariants:
//! - without script the page is a document that says everything; with it the same parts are exchanged when they change,
//!   as they were written here: a browser never makes HTML of a name;
//! - a change shows its plan first, and is done only with what the plan asks for;
//! - nothing is loaded from elsewhere.

mod html;
mod plan;
pub mod state;
pub mod verdict;
mod view;
mod volume;
mod words;

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State as Have;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event as SseEvent, Sse};
use axum::response::{Html as HtmlAnswer, IntoResponse, Response};
use futures_util::future::{Either, select};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::control::access::{Caller, Role};
use crate::control::alarm_request::{Acknowledge, AlarmRequest};
use crate::control::asked::{Asked, change};
use crate::control::reach::{Reach, answer_of, refuse, respond};
use crate::control::request::{Action, Answer, Request};
use crate::date::local_zone;
use crate::disk::{DiskSettings, find_disks};
use crate::problem::{Code, Problem};
use crate::volume::status::VolumeStatus;
pub(crate) use plan::Wish;
use plan::{NewDisk, Plan};
use state::State;

/// How often it is looked whether the page has changed, while somebody has it open.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The page.
pub(crate) async fn show(
    Have(reach): Have<Reach>,
    Extension(caller): Extension<Caller>,
) -> Response {
    let zone = local_zone();
    if caller.role.is_none() {
        return HtmlAnswer(view::document(None, &caller, &zone)).into_response();
    }
    match State::of(&reach).await {
        Ok(state) => HtmlAnswer(view::document(Some(&state), &caller, &zone)).into_response(),
        Err(problem) => refuse(&problem),
    }
}

/// The page for whoever has shown a token that is not taken: why not, and the form again.
pub(crate) fn not_known(problem: &Problem) -> String {
    view::not_known(problem)
}

/// What it looks like.
pub(crate) async fn style() -> Response {
    (
        [(CONTENT_TYPE, "text/css; charset=utf-8")],
        include_str!("page.css"),
    )
        .into_response()
}

/// What keeps it live.
pub(crate) async fn script() -> Response {
    let kind = "text/javascript; charset=utf-8";
    ([(CONTENT_TYPE, kind)], include_str!("page.js")).into_response()
}

/// What a listener has been given.
struct Given {
    reach: Reach,
    caller: Caller,
    zone: TimeZone,
    parts: BTreeMap<&'static str, String>,
}

impl Given {
    /// The parts that have changed since they were given, when there are any.
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            // It ends with the server; whoever listens sees that the stream has ended.
            let state = State::of(&self.reach).await.ok()?;
            let mut changed = BTreeMap::new();
            for (name, made) in view::parts(&state, &self.zone) {
                if self.parts.get(name) != Some(&made) {
                    changed.insert(name, made.clone());
                    self.parts.insert(name, made);
                }
            }
            if changed.is_empty() {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            let title = view::title(&state, &self.zone);
            let role = self.caller.role.map(Role::word);
            let data =
                json!({"title": title, "who": self.caller.who, "role": role, "parts": changed});
            return Some(SseEvent::default().event("parts").data(data.to_string()));
        }
    }
}

/// The parts of the page, at once and then each time they change.
pub(crate) async fn live(
    Have(reach): Have<Reach>,
    Extension(caller): Extension<Caller>,
) -> Response {
    let stop = reach.stop.clone();
    let given = Given {
        reach,
        caller,
        zone: local_zone(),
        parts: BTreeMap::new(),
    };
    let stream = futures_util::stream::unfold((given, stop), |(mut given, mut stop)| async move {
        let is_first = given.parts.is_empty();
        let event = {
            let next = async {
                if !is_first {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                given.next().await
            };
            let stopped = pin!(stop.wait_for(|stopped| *stopped));
            match select(pin!(next), stopped).await {
                Either::Left((event, _)) => event?,
                Either::Right(_) => return None,
            }
        };
        Some((Ok::<_, std::convert::Infallible>(event), (given, stop)))
    });
    Sse::new(stream).into_response()
}

/// What a change would do.
pub(crate) async fn plan(
    Have(reach): Have<Reach>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Response {
    respond(
        plan_of(&reach, &caller, &body)
            .await
            .map(|(_, plan)| plan.to_json()),
    )
}

/// Does it, when what the plan asks for was typed.
pub(crate) async fn carry_out(
    Have(reach): Have<Reach>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Response {
    respond(carry_out_now(&reach, &caller, &body).await)
}

async fn carry_out_now(reach: &Reach, caller: &Caller, body: &[u8]) -> Answer {
    let (wish, plan) = plan_of(reach, caller, body).await?;
    plan.check(wish.typed.as_deref())?;
    let volume = wish.volume.clone();
    let request = match (wish.action.as_str(), wish.change()?) {
        (_, Some(action)) => {
            let why = wish.why.clone();
            let asked = Asked {
                volume,
                action,
                why,
            };
            let told = change(reach, caller, asked).await?;
            return Ok(json!({"message": message_in(&told)}));
        }
        ("start", None) => Request::Start { volume },
        _ => Request::Alarm(AlarmRequest::Acknowledge {
            id: wish.id.unwrap_or_default(),
            by: Acknowledge {
                who: caller.who.clone(),
                why: wish.why.unwrap_or_default(),
            },
        }),
    };
    let told = answer_of(reach, request).await?;
    Ok(json!({"message": message_in(&told)}))
}

/// What an answer says, for people.
fn message_in(told: &Value) -> &str {
    told["message"].as_str().unwrap_or("it is done")
}

/// What is wished, and its plan; whoever asks has the role that it needs.
async fn plan_of(reach: &Reach, caller: &Caller, body: &[u8]) -> Result<(Wish, Plan), Problem> {
    let wish: Wish = serde_json::from_slice(body)
        .map_err(|error| Problem::new(Code::Usage, format!("request for a plan: {error}")))?;
    let Some(action) = wish.change()? else {
        let (role, plan) = of_others(reach, &wish).await?;
        caller.check(role)?;
        return Ok((wish, plan));
    };
    caller.check(action.role())?;
    let volume = wish.volume.clone();
    let told = answer_of(reach, Request::Show { volume }).await?;
    let status: VolumeStatus = serde_json::from_value(told)
        .map_err(|error| Problem::new(Code::Bug, format!("own status: {error}")))?;
    let new = match &action {
        Action::Replace { new, .. } => Some(look_at(new.clone()).await?),
        _ => None,
    };
    let plan = plan::plan(&status, &action, new.as_ref())?;
    // What would be refused is refused before anything is typed for it.
    if action != Action::Stop {
        let volume = wish.volume.clone();
        answer_of(reach, Request::Rehearse { volume, action }).await?;
    }
    Ok((wish, plan))
}

/// What is no change of a volume that is served.
async fn of_others(reach: &Reach, wish: &Wish) -> Result<(Role, Plan), Problem> {
    match wish.action.as_str() {
        "start" => {
            let name = &wish.volume;
            let plan = Plan {
                title: format!("Serve {name} again"),
                lines: vec!["with all its members, or not at all".to_owned()],
                command: format!("plexum serve {}", crate::advice::shell_word(name)),
                confirm: None,
            };
            Ok((Role::Operate, plan))
        }
        "acknowledge" => {
            let id = wish.id.clone().unwrap_or_default();
            let told = answer_of(reach, Request::Alarm(AlarmRequest::Show { id })).await?;
            let word = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
            let plan = Plan {
                title: format!("Acknowledge incident {}", word("id")),
                lines: vec![
                    word("headline"),
                    "nothing is repeated until it gets worse or ends".to_owned(),
                ],
                command: format!("plexum ack {} --why WHY", word("id")),
                confirm: None,
            };
            Ok((Role::Operate, plan))
        }
        other => {
            let other: String = other.chars().take(40).collect();
            let text = format!("{other:?} is nothing that the page can do");
            Err(Problem::new(Code::Usage, text))
        }
    }
}

/// Which disk is at a path. Reads sysfs, which may take its time.
async fn look_at(path: String) -> Result<NewDisk, Problem> {
    let looked = tokio::task::spawn_blocking(move || {
        let roots = DiskSettings::of_this_process().roots;
        let found = find_disks(&roots, std::slice::from_ref(&path));
        let identity = found
            .into_iter()
            .next()
            .flatten()
            .map(|found| found.identity);
        let words = identity.as_ref().map(|one| {
            let disk = crate::disk::DiskStatus::of(one);
            format!(", {}, {}", disk.words(), words::bytes(one.size_bytes))
        });
        NewDisk {
            serial: identity.and_then(|one| one.serial),
            words: words.unwrap_or_default(),
            path,
        }
    });
    looked
        .await
        .map_err(|_| Problem::new(Code::NoServer, "the server is stopping"))
}

#[cfg(test)]
mod tests;
