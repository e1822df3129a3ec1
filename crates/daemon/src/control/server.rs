//! The control socket: HTTP/1 and JSON on a Unix socket, on a thread of its own.
//!
//! Invariants:
//! - the engine's thread never waits for a client: a request reaches it through `Ask` and is answered when it likes;
//! - who asks is known before a route is entered, and each route has a role (`table.rs`); without configuration only
//!   this user and root have one, and sockets have mode 0600;
//! - every answer is one JSON object; a refusal is `{"error":{...}}` with the slug and the exit code of the command.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use axum::middleware::from_fn;
use plexum_runtime::socket::Peer;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::access::{Access, Caller, Way};
use super::events::EventHub;
use super::network::Encryption;
use super::reach::{Post, Reach};
use super::tls::PageTls;
use super::{connections, metrics, network, table};
use crate::problem::Problem;
use crate::runtime_dir;

/// What the thread is told.
enum Order {
    /// One more socket.
    Listen(PathBuf, StdUnixListener),
    /// Nobody is accepted at this one any more.
    Forget(PathBuf),
    /// Metrics alone, on the network of this machine.
    Metrics(std::net::TcpListener),
    /// Everything, the page among it, at an address; beyond this machine with TLS.
    Page(std::net::TcpListener, SocketAddr, Option<PageTls>),
}

/// A running control server. Dropping it stops the thread and removes the sockets.
pub struct ControlServer {
    thread: Option<JoinHandle<()>>,
    stop: watch::Sender<bool>,
    orders: mpsc::UnboundedSender<Order>,
    access: Arc<Access>,
    paths: Mutex<Vec<PathBuf>>,
}

impl ControlServer {
    /// Binds every path of `paths` (mode 0600) and serves on a new thread until dropped.
    ///
    /// # Errors
    /// `SocketInUse` when a live server has one of the paths; system errors of binding or of starting the thread.
    pub fn start(paths: Vec<PathBuf>, post: Post, events: EventHub) -> Result<Self, Problem> {
        let server = Self::start_with(Access::default(), post, events)?;
        paths.iter().try_for_each(|path| server.add(path))?;
        Ok(server)
    }

    /// The same without any path yet, with roles for others than this user and root.
    ///
    /// # Errors
    /// System errors of starting the thread.
    pub fn start_with(access: Access, post: Post, events: EventHub) -> Result<Self, Problem> {
        let (stop, stopped) = watch::channel(false);
        let (orders, inbox) = mpsc::unbounded_channel();
        let access = Arc::new(access);
        let reach = Reach {
            post,
            events,
            stop: stopped,
            access: Arc::clone(&access),
        };
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || run(inbox, reach))
            .map_err(|error| Problem::from_io(&error, "starting", "the control thread"))?;
        Ok(Self {
            thread: Some(thread),
            stop,
            orders,
            access,
            paths: Mutex::default(),
        })
    }

    /// Binds one more path (mode 0600): whoever connects from now on is answered.
    ///
    /// # Errors
    /// `SocketInUse` when a live server has it; system errors of binding.
    pub fn add(&self, path: &Path) -> Result<(), Problem> {
        self.add_for(path, OWN_USER_MODE)
    }

    /// The same for everybody who reaches the path: each is given the role that he has.
    ///
    /// # Errors
    /// As `add`.
    pub fn add_for_all(&self, path: &Path) -> Result<(), Problem> {
        self.add_for(path, ALL_USERS_MODE)
    }

    fn add_for(&self, path: &Path, mode: u32) -> Result<(), Problem> {
        let listener = bind(path, mode)?;
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

    /// Serves the page and everything else at an address, with TLS where there is one; says at which, where the port
    /// was 0.
    ///
    /// # Errors
    /// `InsecureListen` for one that others reach, without TLS or without a token; system errors of binding.
    pub fn listen_page(
        &self,
        address: SocketAddr,
        tls: Option<PageTls>,
    ) -> Result<SocketAddr, Problem> {
        let encryption = match tls {
            Some(_) => Encryption::Tls,
            None => Encryption::None,
        };
        let (bound, listener) = network::bind(address, encryption, &self.access)?;
        let _ = self.orders.send(Order::Page(listener, bound, tls));
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

/// Mode of a socket that only this user and root can open.
const OWN_USER_MODE: u32 = 0o600;
/// Mode of a socket that everybody can open who reaches it.
const ALL_USERS_MODE: u32 = 0o666;

/// Binds a listening socket.
///
/// The mode is set right after binding; before that the runtime folder (0700) keeps others out.
fn bind(path: &Path, mode: u32) -> Result<StdUnixListener, Problem> {
    let shown = path.display().to_string();
    let tell = |error: std::io::Error| Problem::from_io(&error, "binding control socket", &shown);
    runtime_dir::free_socket_path(path)?;
    let listener = StdUnixListener::bind(path).map_err(tell)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(tell)?;
    listener.set_nonblocking(true).map_err(tell)?;
    Ok(listener)
}

fn run(mut orders: mpsc::UnboundedReceiver<Order>, reach: Reach) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
    else {
        return;
    };
    runtime.block_on(async move {
        let mut stop = reach.stop.clone();
        let app = table::router(reach.clone()).layer(from_fn(network::by_socket));
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
                    Order::Page(listener, address, tls) => {
                        network::serve(listener, address, tls, reach.clone());
                        continue;
                    }
                };
                let before = match listener {
                    Some(listener) => {
                        let access = Arc::clone(&reach.access);
                        let accepting = connections::serve(Users { listener, access }, app.clone());
                        let accepting = tokio::spawn(accepting);
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

/// Accepts connections of users of this machine, each with the role that he has.
struct Users {
    listener: UnixListener,
    access: Arc<Access>,
}

impl axum::serve::Listener for Users {
    type Io = UnixStream;
    type Addr = Caller;

    async fn accept(&mut self) -> (UnixStream, Caller) {
        let own = runtime_dir::Surroundings::of_this_process().user_id;
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (Ok(peer), Ok(groups)) = (Peer::of(&stream), Peer::groups_of(&stream))
                    else {
                        continue; // nobody knows who that is
                    };
                    let caller = self.access.of_peer(&peer, &groups, own);
                    return (stream, caller);
                }
                // Out of descriptors: let other tasks close some first.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Caller> {
        Ok(Caller {
            who: "the daemon".to_owned(),
            role: None,
            way: Way::Socket,
        })
    }
}
