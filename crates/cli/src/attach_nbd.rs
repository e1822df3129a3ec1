//! A served volume as a device of the kernel's own NBD client, and the process that gives it new connections.
//!
//! The kernel talks with the server itself, over connections that were made here: shaken hands over, then handed over.
//! When one has ended, the kernel tells everybody who listens; the process looks for the server and hands over another.
//! Meanwhile the kernel keeps requests waiting, or sends them over the connections that are left.
//!
//! Invariants:
//! - a connection is handed over only to the very array that was attached: what is served under the name by then may be
//!   something else;
//! - the news of a dead connection may get lost: copies of all connections are looked at as well;
//! - the device works without the process; it only gets no new connections then.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::wait::{Signal, first};
use plexum_daemon::problem::{Code, Problem};
use plexum_export::kernel_nbd::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Family, Kernel, Settings, dead_links, has_ended,
};
use plexum_export::netlink::NetlinkError;
use plexum_export::process;
use plexum_nbd::client::{ConnectOptions, Remote, shake_hands};
use plexum_nbd::transport::Transport;
use plexum_nbd::uri::{Address, NbdUri};
use plexum_nbd::wire::Framing;
use plexum_nbd::wire::option::tflag;
use plexum_runtime::Handle;
use plexum_runtime::socket::{Socket, connect_unix};

use crate::args::AttachNbdProcess;
use crate::attach_file::{Answer, Ready, say, stay, uri_of};
use crate::bridge::identity;
use crate::client::Client;
use crate::errors::Outcome;
use crate::nbd_device;
use crate::system::Process;

/// Connections of a device unless another number is asked for.
pub const CONNECTIONS: u16 = 4;
/// A member that hangs is failed after 30 s, so that the server answers within a little more: a request that has no
/// answer by now will get none on that connection. A shorter time could send a write again that is still being done.
pub const TIMEOUT_S: u64 = 60;

/// Time between two looks when nothing was heard.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time between two tries to reach a server that is away.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// Bytes of unused buffers that a handshake keeps.
const POOL_KEEP_BYTES: usize = 64 << 10;
/// Largest news taken from the kernel at once, in bytes.
const NEWS_BYTES_MAX: usize = 8 << 10;

/// Errno that says: there is no such family.
const ENOENT: i32 = 2;

/// Whether the kernel's nbd may be had here, else why not.
///
/// # Errors
/// In words for a note: rights, or no nbd in the kernel.
pub fn check() -> Result<(), String> {
    if !process::is_root() {
        return Err("the kernel's nbd needs root".to_owned());
    }
    Kernel::open()
        .map(drop)
        .map_err(|error| unfit_words(&error))
}

fn unfit_words(error: &NetlinkError) -> String {
    match error {
        NetlinkError::Refused(ENOENT) => {
            "the kernel has no nbd here (to load it, as root: modprobe nbd)".to_owned()
        }
        error => format!("the kernel's nbd cannot be used here: {error}"),
    }
}

/// A new identifier for a device: nobody else has used it since the system's start.
#[must_use]
pub fn new_identifier(volume: &str) -> String {
    let own = Process::find(std::process::id());
    let start = own.map_or(0, |own| own.start_ticks);
    format!("plexum {volume} {}.{start}", std::process::id())
}

/// The process itself: makes the device, and stays until it is disconnected.
///
/// # Errors
/// The server does not answer. That the kernel's nbd cannot be used is an answer, not an error.
pub fn serve_device(args: &AttachNbdProcess) -> Outcome {
    stay(async |handle| serve(handle, args).await)
}

async fn serve(handle: &Handle, args: &AttachNbdProcess) -> Outcome {
    let uri = uri_of(&args.uri)?;
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(error) => return unfit(unfit_words(&error)),
    };
    // Before there is a device, so that no news of it is missed.
    let news = kernel.listen().ok().flatten();
    let (mut links, remote) = dial_all(handle, &uri, args.connections).await?;
    let block_bytes = remote.block_bytes_min.max(BLOCK_BYTES_MIN);
    if block_bytes > BLOCK_BYTES_MAX {
        return unfit(format!(
            "its blocks of {block_bytes} bytes are too large for the kernel's nbd"
        ));
    }
    let settings = Settings {
        size_bytes: remote.size_bytes,
        block_bytes,
        server_flags: remote.tflags,
        timeout_s: args.timeout_s,
        dead_connection_timeout_s: match &args.identity {
            Some(_) => args.reconnect,
            None => 0, // nobody could say whether it is the same array
        },
        identifier: &args.identifier,
    };
    let index = match kernel.connect(&settings, &links) {
        Ok(index) => index,
        Err(error) => return unfit(unfit_words(&error)),
    };
    let device = nbd_device::path(index);
    if !nbd_device::has_file(&device) {
        let _ = kernel.disconnect(index); // there is nobody to tell
        return unfit(format!(
            "there is no {} here, as in some containers",
            device.display()
        ));
    }
    say(&Answer::Ready(Ready {
        size_bytes: remote.size_bytes,
        block_bytes,
        is_read_only: remote.has(tflag::READ_ONLY),
        device: Some(device),
        connections: Some(links.len()),
    }))?;
    let keeper = Keeper {
        handle: handle.clone(),
        kernel,
        index,
        uri,
        identity: args.identity.clone(),
        identifier: args.identifier.clone(),
        limit_s: settings.dead_connection_timeout_s,
        remote,
        own: Process::find(std::process::id()),
    };
    let heard = listen(handle, news, keeper.kernel.family(), index);
    keeper.run(&mut links, &heard).await;
    Ok(0)
}

/// Answers that the kernel's nbd is not for this volume or this system: FUSE may be.
fn unfit(words: String) -> Outcome {
    say(&Answer::Unfit(words))?;
    Ok(0)
}

/// What was heard from the kernel.
#[derive(Default)]
struct Heard {
    is_dead: Cell<bool>,
    signal: Signal,
}

/// Listens to the kernel for as long as that works; whoever waits looks by himself as well.
fn listen(handle: &Handle, news: Option<OwnedFd>, family: Family, index: u32) -> Rc<Heard> {
    let heard = Rc::new(Heard::default());
    let socket = news.and_then(|news| Socket::from_fd(handle, news).ok());
    if let Some(socket) = socket {
        let heard = Rc::clone(&heard);
        let _listener = handle.spawn(async move {
            let mut buf = vec![0; NEWS_BYTES_MAX];
            while let Ok(length) = socket.read(&mut buf).await {
                if dead_links(&buf[..length], family).contains(&index) {
                    heard.is_dead.set(true);
                    heard.signal.notify();
                }
            }
        });
    }
    heard
}

/// Keeps a device in connections.
struct Keeper {
    handle: Handle,
    kernel: Kernel,
    index: u32,
    uri: NbdUri,
    /// Which array it is, as its server told; `None`: nothing is handed over any more.
    identity: Option<String>,
    identifier: String,
    limit_s: u64,
    /// As the server told when the device was made.
    remote: Remote,
    own: Option<Process>,
}

impl Keeper {
    /// Until the device has been disconnected.
    async fn run(&self, links: &mut [OwnedFd], heard: &Heard) {
        let clock = self.handle.clock();
        let mut is_away = false;
        while self.is_there() {
            let dead: Vec<usize> = (0..links.len())
                .filter(|at| has_ended(links[*at].as_fd()))
                .collect();
            if dead.is_empty() || self.identity.is_none() {
                heard.is_dead.set(false);
                let news = heard.signal.until(|| heard.is_dead.get());
                first(news, clock.sleep(LOOK_EVERY)).await;
                continue;
            }
            if !is_away {
                let (lost, limit_s) = (dead.len(), self.limit_s);
                crate::output::tell_line!(
                    "{lost} of {} connections have ended; without any, requests wait at most {limit_s} s",
                    links.len()
                );
                is_away = true;
            }
            if self.renew(links, &dead).await {
                crate::output::tell_line!("the server is back");
                is_away = false;
            } else {
                clock.sleep(TRY_EVERY).await;
            }
        }
    }

    fn is_there(&self) -> bool {
        let device = nbd_device::path(self.index);
        nbd_device::is_ours(&device, &self.identifier, self.own.as_ref())
    }

    /// One try to replace the connections `dead`; whether all were.
    async fn renew(&self, links: &mut [OwnedFd], dead: &[usize]) -> bool {
        let Ok(client) = Client::find(Some(&self.uri.export)) else {
            return false;
        };
        if identity(&client) != self.identity {
            return false;
        }
        for at in dead {
            let Ok((link, remote)) = dial(&self.handle, &self.uri).await else {
                return false;
            };
            if !self.is_same(&remote) {
                return false;
            }
            // The kernel may not have noticed yet that the old one is dead: then it takes none.
            let taken = self
                .kernel
                .reconnect(self.index, &self.identifier, link.as_fd());
            if !matches!(taken, Ok(true)) {
                return false;
            }
            links[*at] = link;
        }
        let _ = client.tell_attached(); // an older server knows nothing of it
        true
    }

    fn is_same(&self, remote: &Remote) -> bool {
        let old = &self.remote;
        remote.size_bytes == old.size_bytes
            && remote.block_bytes_min <= old.block_bytes_min.max(BLOCK_BYTES_MIN)
            && remote.has(old.tflags & !tflag::ROTATIONAL & !tflag::READ_ONLY)
            && (old.has(tflag::READ_ONLY) || !remote.has(tflag::READ_ONLY))
    }
}

/// All connections of a device: as many as are wanted, or one to a server that promises nothing about several.
async fn dial_all(
    handle: &Handle,
    uri: &NbdUri,
    wanted: u16,
) -> Result<(Vec<OwnedFd>, Remote), Problem> {
    let (link, remote) = dial(handle, uri).await?;
    let mut links = vec![link];
    while remote.has(tflag::CAN_MULTI_CONN) && links.len() < usize::from(wanted) {
        links.push(dial(handle, uri).await?.0);
    }
    Ok((links, remote))
}

/// A connection that is ready to be handed over. The kernel knows simple replies alone.
async fn dial(handle: &Handle, uri: &NbdUri) -> Result<(OwnedFd, Remote), Problem> {
    let no_server = |text: String| Problem::new(Code::NoServer, text);
    let Address::Unix(path) = &uri.address else {
        return Err(Problem::new(
            Code::Usage,
            "the URI of a Unix socket is expected",
        ));
    };
    let socket = connect_unix(handle, Path::new(path))
        .await
        .map_err(|error| no_server(format!("no server answers on {path}: {error}")))?;
    let options = ConnectOptions {
        framing_max: Framing::Simple,
        wants_allocation: false,
        ..ConnectOptions::new(&uri.export)
    };
    let remote = shake_hands(&socket, &BufPool::new(POOL_KEEP_BYTES), &options)
        .await
        .map_err(|error| no_server(format!("the server on {path} refuses: {error}")))?;
    let link = socket
        .duplicate()
        .map_err(|error| Problem::new(Code::IoError, format!("{path}: {error}")))?;
    Ok((link, remote))
}
