//! Where clients come in: sockets, and who accepts on them.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use plexum_block::clock::Clock;
use plexum_front::export::Export;
use plexum_front::flag::Flag;
use plexum_nbd::server::Server;
use plexum_runtime::clock::RealClock;
use plexum_runtime::socket::{Listener, Socket};
use plexum_runtime::{Handle, JoinHandle};

use crate::problem::{Code, Problem};
use crate::runtime_dir::free_socket_path;

/// Rest after the system could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds a TCP address.
///
/// # Errors
/// `SocketInUse`, and as the system says.
pub(crate) fn bind_tcp(handle: &Handle, address: SocketAddr) -> Result<Listener, Problem> {
    Listener::bind_tcp(handle, address).map_err(|error| {
        let mut problem = Problem::from_io(&error, "listening on", &address.to_string());
        if error.kind() == std::io::ErrorKind::AddrInUse {
            problem.code = Code::SocketInUse;
        }
        problem.member = None;
        problem
    })
}

/// Binds a Unix socket that only this user can open.
///
/// # Errors
/// `SocketInUse` when a live server has it, and as the system says.
pub(crate) fn bind_unix(handle: &Handle, path: &Path) -> Result<Listener, Problem> {
    free_socket_path(path)?;
    let shown = path.display().to_string();
    let tell = |error: std::io::Error| {
        let problem = Problem::from_io(&error, "binding socket", &shown);
        match problem.code {
            Code::NoSuchFile => {
                problem.hint("its folder does not exist: choose one with --socket PATH")
            }
            _ => problem,
        }
    };
    let listener = Listener::bind_unix(handle, path).map_err(tell)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(tell)?;
    Ok(listener)
}

/// Set when nobody is accepted any more.
pub(crate) type Closed = Rc<Flag>;

/// Gives each connection to `take` until `closed` is set; a task of its own.
pub(crate) fn accept(
    handle: &Handle,
    listener: Listener,
    closed: Closed,
    take: impl Fn(Socket) + 'static,
) -> JoinHandle<()> {
    let clock = handle.clock();
    handle.spawn(async move {
        while !closed.is_set() {
            let next = pin!(listener.accept());
            match select(next, pin!(closed.wait())).await {
                Either::Left((Ok(socket), _)) => take(socket),
                Either::Left((Err(_), _)) => clock.sleep(ACCEPT_PAUSE).await,
                Either::Right(_) => {}
            }
        }
    })
}

/// Serves each connection in a task of its own.
pub(crate) fn serve_each<E: Export + 'static>(
    handle: &Handle,
    server: &Rc<Server<E, RealClock>>,
) -> impl Fn(Socket) + 'static {
    let (spawner, server) = (handle.clone(), Rc::clone(server));
    move |socket| {
        let server = Rc::clone(&server);
        let address = socket.remote_address();
        let _session = spawner.spawn(async move {
            match address {
                Some(address) => server.serve_from(socket, address.ip()).await,
                None => server.serve(socket).await,
            }
        });
    }
}

/// The URI of an export at a Unix socket.
pub(crate) fn unix_uri(name: &str, socket: &Path) -> String {
    let socket = encode_keeping(&socket.display().to_string(), b"-._~/");
    format!("nbd+unix:///{}?socket={socket}", encode(name))
}

/// Percent-encodes a name for a URI.
pub(crate) fn encode(name: &str) -> String {
    encode_keeping(name, b"-._~")
}

fn encode_keeping(text: &str, kept: &[u8]) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            encoded.push(byte as char);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
