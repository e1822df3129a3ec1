//! The control socket: HTTP/1 and JSON on a Unix socket, on a thread of its own.
//!
//! Invariants:
//! - the engine's thread never waits for a client: a request reaches it through `Ask` and is answered when it likes;
//! - only this user and root are served; the socket has mode 0600;
//! - every answer is one JSON object; a refusal is `{"error":{...}}` with the slug and the exit code of the command.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path as UrlPath, Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event as SseEvent, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};

use crate::events::EventHub;
use crate::problem::{Code, Problem};
use crate::runtime_dir;
use crate::space;
use crate::status::{JSON_VERSION, VolumeStatus};

/// Largest request body, in bytes: actions are a few words.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// A change that a user asks for. The JSON body of the `POST` carries the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// Treat the member as failed.
    Fail {
        /// Path, slot number or serial.
        member: String,
    },
    /// Add a new member: a spare, or the filling of an empty slot.
    Add {
        /// Path or URI.
        member: String,
        /// Overwrite what was found on it.
        #[serde(default)]
        force: bool,
    },
    /// Let go of a failed member or a spare.
    Remove {
        /// Path, slot number or serial.
        member: String,
    },
    /// Take a member back; only what it missed is copied where the bitmap says so.
    ReAdd {
        /// Path or URI.
        member: String,
    },
    /// Copy a member to a new one while it still serves.
    Replace {
        /// Path, slot number or serial of the old one.
        old: String,
        /// Path or URI of the new one.
        new: String,
        /// Overwrite what was found on the new one.
        #[serde(default)]
        force: bool,
    },
    /// Compare all copies or parity.
    Scrub {
        /// Mend what differs.
        #[serde(default)]
        repair: bool,
        /// Stop the scrub that runs.
        #[serde(default)]
        stop: bool,
    },
    /// Stop cleanly.
    Stop,
    /// Change settings while running.
    Set {
        /// Name and value as typed.
        settings: BTreeMap<String, String>,
    },
}

impl Action {
    /// Last part of the route, as in `POST /v1/volumes/NAME/re-add`.
    #[must_use]
    pub fn route(&self) -> &'static str {
        match self {
            Action::Fail { .. } => "fail",
            Action::Add { .. } => "add",
            Action::Remove { .. } => "remove",
            Action::ReAdd { .. } => "re-add",
            Action::Replace { .. } => "replace",
            Action::Scrub { .. } => "scrub",
            Action::Stop => "stop",
            Action::Set { .. } => "set",
        }
    }
}

/// What a client wants to know or to have done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Status of all volumes of this server.
    List,
    /// Status of one.
    Show {
        /// Name.
        volume: String,
    },
    /// Counters and latency of one.
    Stats {
        /// Name.
        volume: String,
        /// Start counting anew afterwards.
        reset: bool,
    },
    /// Requests in flight of one, with their stage.
    Requests {
        /// Name.
        volume: String,
    },
    /// A block device of the kernel stands on the volume from now on: the server is in the way of its write-out.
    Attached {
        /// Name.
        volume: String,
    },
    /// A dry run of a change.
    Rehearse {
        /// Name.
        volume: String,
        /// What would be changed.
        action: Action,
    },
    /// A change.
    Act {
        /// Name.
        volume: String,
        /// What to change.
        action: Action,
    },
}

/// Answer of the engine's side: an object, or why not.
pub type Answer = Result<Value, Problem>;

/// A request on its way to the engine's thread.
pub struct Ask {
    /// What is wanted.
    pub request: Request,
    reply: oneshot::Sender<Answer>,
}

impl Ask {
    /// Answers. The client may be gone; that is no error.
    pub fn answer(self, answer: Answer) {
        let _ = self.reply.send(answer);
    }
}

/// How requests reach the engine's thread. Called on the control thread; must not block.
pub type Post = Arc<dyn Fn(Ask) + Send + Sync>;

/// A running control server. Dropping it stops the thread and removes the sockets.
pub struct ControlServer {
    thread: Option<JoinHandle<()>>,
    stop: watch::Sender<bool>,
    paths: Vec<PathBuf>,
}

#[derive(Clone)]
struct Shared {
    post: Post,
    events: EventHub,
    stop: watch::Receiver<bool>,
}

impl ControlServer {
    /// Binds every path of `paths` (mode 0600) and serves on a new thread until dropped.
    ///
    /// # Errors
    /// `SocketInUse` when a live server has one of the paths; system errors of binding or of starting the thread.
    pub fn start(paths: Vec<PathBuf>, post: Post, events: EventHub) -> Result<Self, Problem> {
        let mut listeners = Vec::new();
        for path in &paths {
            listeners.push(bind(path)?);
        }
        let (stop, stopped) = watch::channel(false);
        let shared = Shared {
            post,
            events,
            stop: stopped,
        };
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || run(listeners, shared))
            .map_err(|error| Problem::from_io(&error, "starting", "the control thread"))?;
        Ok(Self {
            thread: Some(thread),
            stop,
            paths,
        })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        for path in &self.paths {
            let _ = std::fs::remove_file(path);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Binds a listening socket that only this user can open.
///
/// The mode is set right after binding; before that the runtime folder (0700) keeps others out.
fn bind(path: &Path) -> Result<StdUnixListener, Problem> {
    let shown = path.display().to_string();
    let tell = |error: std::io::Error| Problem::from_io(&error, "binding control socket", &shown);
    runtime_dir::free_socket_path(path)?;
    let listener = StdUnixListener::bind(path).map_err(tell)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(tell)?;
    listener.set_nonblocking(true).map_err(tell)?;
    Ok(listener)
}

fn run(listeners: Vec<StdUnixListener>, shared: Shared) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
    else {
        return;
    };
    runtime.block_on(async move {
        let mut stop = shared.stop.clone();
        for listener in listeners {
            let Ok(listener) = UnixListener::from_std(listener) else {
                continue;
            };
            let app = router(shared.clone());
            tokio::spawn(async move {
                let _ = axum::serve(OwnUserOnly { listener }, app).await;
            });
        }
        // Ends with the server; tasks of open connections are dropped with the runtime.
        let _ = stop.wait_for(|stopped| *stopped).await;
        // One more turn lets answers that were already given reach their sockets.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
    });
}

/// Accepts connections of this user and of root only.
struct OwnUserOnly {
    listener: UnixListener,
}

impl axum::serve::Listener for OwnUserOnly {
    type Io = UnixStream;
    type Addr = ();

    async fn accept(&mut self) -> (UnixStream, ()) {
        let own = runtime_dir::Surroundings::of_this_process().user_id;
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let user = stream.peer_cred().map(|peer| peer.uid());
                    if matches!(user, Ok(user) if user == own || user == 0) {
                        return (stream, ());
                    }
                }
                // Out of descriptors: let other tasks close some first.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/v1/volumes", get(list))
        .route("/v1/volumes/{name}", get(show))
        .route("/v1/volumes/{name}/stats", get(stats))
        .route("/v1/volumes/{name}/requests", get(requests))
        .route("/v1/volumes/{name}/attached", post(attached))
        .route("/v1/volumes/{name}/{action}", post(act))
        // A route of its own: a server that knows no dry run must not take it for the change itself.
        .route("/v1/volumes/{name}/{action}/dry-run", post(rehearse))
        .route("/v1/events", get(events))
        .fallback(|| async {
            refuse(
                &Problem::new(Code::Usage, "no such route").hint("routes begin with /v1/volumes"),
            )
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

async fn list(State(shared): State<Shared>) -> Response {
    let answer = answer_of(&shared, Request::List).await;
    respond(with_space(answer).await)
}

async fn show(State(shared): State<Shared>, UrlPath(volume): UrlPath<String>) -> Response {
    let answer = answer_of(&shared, Request::Show { volume }).await;
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

async fn stats(
    State(shared): State<Shared>,
    UrlPath(volume): UrlPath<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let reset = query.get("reset").is_some_and(|value| value == "true");
    ask(&shared, Request::Stats { volume, reset }).await
}

async fn requests(State(shared): State<Shared>, UrlPath(volume): UrlPath<String>) -> Response {
    ask(&shared, Request::Requests { volume }).await
}

async fn act(
    State(shared): State<Shared>,
    UrlPath((volume, action)): UrlPath<(String, String)>,
    body: Bytes,
) -> Response {
    match parse_action(&action, &body) {
        Ok(action) => ask(&shared, Request::Act { volume, action }).await,
        Err(problem) => refuse(&problem),
    }
}

async fn attached(State(shared): State<Shared>, UrlPath(volume): UrlPath<String>) -> Response {
    ask(&shared, Request::Attached { volume }).await
}

async fn rehearse(
    State(shared): State<Shared>,
    UrlPath((volume, action)): UrlPath<(String, String)>,
    body: Bytes,
) -> Response {
    match parse_action(&action, &body) {
        Ok(action) => ask(&shared, Request::Rehearse { volume, action }).await,
        Err(problem) => refuse(&problem),
    }
}

/// Joins the route's word and the body's fields to an action.
fn parse_action(route: &str, body: &[u8]) -> Result<Action, Problem> {
    let bad = |detail: String| Problem::new(Code::Usage, format!("request {route}: {detail}"));
    let mut fields: Value = if body.is_empty() {
        json!({})
    } else {
        serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?
    };
    let Some(object) = fields.as_object_mut() else {
        return Err(bad("the body is not a JSON object".into()));
    };
    object.insert("action".into(), Value::from(route));
    serde_json::from_value(fields).map_err(|error| bad(error.to_string()))
}

async fn events(
    State(shared): State<Shared>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let after = query
        .get("after")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    if query.get("follow").is_some_and(|value| value == "false") {
        let events = shared.events.since(after);
        let events: Vec<_> = events.iter().map(|event| event.as_ref()).collect();
        return Json(json!({"version": JSON_VERSION, "kind": "events", "events": events}))
            .into_response();
    }
    let listener = shared.events.listen(after);
    let stream = futures_util::stream::unfold(
        (listener, shared.stop.clone()),
        |(mut listener, mut stop)| async move {
            let event = {
                let next = std::pin::pin!(listener.next());
                let stopped = std::pin::pin!(stop.wait_for(|stopped| *stopped));
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

async fn ask(shared: &Shared, request: Request) -> Response {
    respond(answer_of(shared, request).await)
}

async fn answer_of(shared: &Shared, request: Request) -> Answer {
    let (reply, answer) = oneshot::channel();
    (shared.post)(Ask { request, reply });
    answer
        .await
        .unwrap_or_else(|_| Err(Problem::new(Code::NoServer, "the server is stopping")))
}

fn respond(answer: Answer) -> Response {
    match answer {
        Ok(value) => Json(value).into_response(),
        Err(problem) => refuse(&problem),
    }
}

fn refuse(problem: &Problem) -> Response {
    let status = match problem.code.exit() {
        2 => StatusCode::BAD_REQUEST,
        3 | 6 => StatusCode::CONFLICT,
        4 => StatusCode::UNPROCESSABLE_ENTITY,
        7 => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, Json(problem.to_json())).into_response()
}
