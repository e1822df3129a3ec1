//! The control socket: HTTP/1 and JSON on a Unix socket, on a thread of its own.
//!
//! Invariants:
//! - the engine's thread never waits for a client: a request reaches it through `Ask` and is answered when it likes;
//! - only this user and root are served; the socket has mode 0600;
//! - every answer is one JSON object; a refusal is `{"error":{...}}` with the slug and the exit code of the command.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path as UrlPath, Query, State};
use axum::response::sse::{Event as SseEvent, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::alarm_routes;
use super::events::EventHub;
use super::metrics;
use super::reach::{Post, Reach, answer_of, ask, refuse, respond};
use super::request::{Action, Answer, Request};
use crate::problem::{Code, Problem};
use crate::runtime_dir;
use crate::space;
use crate::volume::status::{JSON_VERSION, VolumeStatus};

/// Largest request body, in bytes: actions are a few words.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// What the thread is told.
enum Order {
    /// One more socket.
    Listen(PathBuf, StdUnixListener),
    /// Nobody is accepted at this one any more.
    Forget(PathBuf),
    /// Metrics alone, on the network of this machine.
    Metrics(std::net::TcpListener),
}

/// A running control server. Dropping it stops the thread and removes the sockets.
pub struct ControlServer {
    thread: Option<JoinHandle<()>>,
    stop: watch::Sender<bool>,
    orders: mpsc::UnboundedSender<Order>,
    paths: Mutex<Vec<PathBuf>>,
}

impl ControlServer {
    /// Binds every path of `paths` (mode 0600) and serves on a new thread until dropped.
    ///
    /// # Errors
    /// `SocketInUse` when a live server has one of the paths; system errors of binding or of starting the thread.
    pub fn start(paths: Vec<PathBuf>, post: Post, events: EventHub) -> Result<Self, Problem> {
        let (stop, stopped) = watch::channel(false);
        let (orders, inbox) = mpsc::unbounded_channel();
        let reach = Reach {
            post,
            events,
            stop: stopped,
        };
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || run(inbox, reach))
            .map_err(|error| Problem::from_io(&error, "starting", "the control thread"))?;
        let server = Self {
            thread: Some(thread),
            stop,
            orders,
            paths: Mutex::default(),
        };
        paths.iter().try_for_each(|path| server.add(path))?;
        Ok(server)
    }

    /// Binds one more path (mode 0600): whoever connects from now on is answered.
    ///
    /// # Errors
    /// `SocketInUse` when a live server has it; system errors of binding.
    pub fn add(&self, path: &Path) -> Result<(), Problem> {
        let listener = bind(path)?;
        self.paths().push(path.to_owned());
        // A thread that has ended answers nobody, and its socket goes with the server.
        let _ = self.orders.send(Order::Listen(path.to_owned(), listener));
        Ok(())
    }

    /// Serves metrics, and nothing else, at a loopback address; says at which, where the port was 0.
    ///
    /// # Errors
    /// `Usage` for another address; system errors of binding.
    pub fn listen_metrics(&self, address: SocketAddr) -> Result<SocketAddr, Problem> {
        let (bound, listener) = metrics::bind(address)?;
        let _ = self.orders.send(Order::Metrics(listener));
        Ok(bound)
    }

    /// Removes a socket that was bound here. Whoever is connected by it is still answered.
    pub fn remove(&self, path: &Path) {
        let mut paths = self.paths();
        if let Some(place) = paths.iter().position(|known| known == path) {
            paths.remove(place);
            let _ = self.orders.send(Order::Forget(path.to_owned()));
            let _ = std::fs::remove_file(path);
        }
    }

    fn paths(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        for path in self.paths().iter() {
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

fn run(mut orders: mpsc::UnboundedReceiver<Order>, reach: Reach) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
    else {
        return;
    };
    runtime.block_on(async move {
        let mut stop = reach.stop.clone();
        let listening = async {
            let mut acceptors: BTreeMap<PathBuf, AbortHandle> = BTreeMap::new();
            while let Some(order) = orders.recv().await {
                let (path, listener) = match order {
                    Order::Listen(path, listener) => (path, UnixListener::from_std(listener).ok()),
                    Order::Forget(path) => (path, None),
                    Order::Metrics(listener) => {
                        metrics::serve(listener, reach.clone());
                        continue;
                    }
                };
                let before = match listener {
                    Some(listener) => {
                        let app = router(reach.clone());
                        let accepting = tokio::spawn(async move {
                            let _ = axum::serve(OwnUserOnly { listener }, app).await;
                        });
                        acceptors.insert(path, accepting.abort_handle())
                    }
                    None => acceptors.remove(&path),
                };
                // Connections are tasks of their own, and go on.
                if let Some(before) = before {
                    before.abort();
                }
            }
        };
        // Ends with the server; tasks of open connections are dropped with the runtime.
        let stopped = stop.wait_for(|stopped| *stopped);
        let _ = futures_util::future::select(pin!(listening), pin!(stopped)).await;
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

fn router(reach: Reach) -> Router {
    Router::new()
        .route("/v1/volumes", get(list).post(open))
        .route("/v1/volumes/{name}", get(show))
        .route("/v1/volumes/{name}/stats", get(stats))
        .route("/v1/volumes/{name}/requests", get(requests))
        .route("/v1/volumes/{name}/attached", post(attached))
        .route("/v1/volumes/{name}/start", post(start))
        .route("/v1/volumes/{name}/forget", post(forget))
        .route("/v1/volumes/{name}/{action}", post(act))
        // A route of its own: a server that knows no dry run must not take it for the change itself.
        .route("/v1/volumes/{name}/{action}/dry-run", post(rehearse))
        .route("/v1/events", get(events))
        .route("/metrics", get(metrics::show))
        .merge(alarm_routes::routes())
        .fallback(|| async {
            refuse(
                &Problem::new(Code::Usage, "no such route").hint("routes begin with /v1/volumes"),
            )
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(reach)
}

async fn list(State(reach): State<Reach>) -> Response {
    let answer = answer_of(&reach, Request::List).await;
    respond(with_space(answer).await)
}

async fn open(State(reach): State<Reach>, body: Bytes) -> Response {
    match serde_json::from_slice(&body) {
        Ok(open) => ask(&reach, Request::Open { open }).await,
        Err(error) => refuse(&Problem::new(
            Code::Usage,
            format!("request to serve: {error}"),
        )),
    }
}

async fn start(State(reach): State<Reach>, UrlPath(volume): UrlPath<String>) -> Response {
    ask(&reach, Request::Start { volume }).await
}

async fn forget(State(reach): State<Reach>, UrlPath(volume): UrlPath<String>) -> Response {
    ask(&reach, Request::Forget { volume }).await
}

async fn show(State(reach): State<Reach>, UrlPath(volume): UrlPath<String>) -> Response {
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

async fn stats(
    State(reach): State<Reach>,
    UrlPath(volume): UrlPath<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let reset = query.get("reset").is_some_and(|value| value == "true");
    ask(&reach, Request::Stats { volume, reset }).await
}

async fn requests(State(reach): State<Reach>, UrlPath(volume): UrlPath<String>) -> Response {
    ask(&reach, Request::Requests { volume }).await
}

async fn act(
    State(reach): State<Reach>,
    UrlPath((volume, action)): UrlPath<(String, String)>,
    body: Bytes,
) -> Response {
    match parse_action(&action, &body) {
        Ok(action) => ask(&reach, Request::Act { volume, action }).await,
        Err(problem) => refuse(&problem),
    }
}

async fn attached(State(reach): State<Reach>, UrlPath(volume): UrlPath<String>) -> Response {
    ask(&reach, Request::Attached { volume }).await
}

async fn rehearse(
    State(reach): State<Reach>,
    UrlPath((volume, action)): UrlPath<(String, String)>,
    body: Bytes,
) -> Response {
    match parse_action(&action, &body) {
        Ok(action) => ask(&reach, Request::Rehearse { volume, action }).await,
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
