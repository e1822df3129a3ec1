//! Unix and TCP sockets as NBD transports.
//!
//! Invariants:
//! - every descriptor is non-blocking: a call either moves bytes or waits in the reactor for readiness;
//! - one task may read while another writes, both by `&self`;
//! - what a peer keeps busy is charged to the turn's budget, so that it cannot keep the thread.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plexum_block::buf::Buf;
use plexum_nbd::transport::{StartTls, Transport, TransportError};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, ipproto, sockopt,
};

use crate::lock::OpenFile;
use crate::{Core, Handle};

/// Pieces sent in one call; the kernel takes 1024.
const SLICES_MAX: usize = 64;

/// Bytes received in one call, so that one peer's flood does not use up the turn.
const RECEIVE_BYTES_MAX: usize = 1 << 20;

/// What the kernel holds for a Unix peer that has not read it yet; it reckons twice as much with its own bookkeeping.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// How often accepting is tried again at once after a connection that had already ended.
const ACCEPT_RETRIES_MAX: u32 = 16;

/// Connections that wait to be accepted.
const LISTEN_QUEUE: i32 = 128;

/// A TCP peer that is silent for so long is asked whether it still lives, and given up after some answers missing:
/// a machine that lost its power would hold its session for ever.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_STEP: Duration = Duration::from_secs(10);
const KEEP_ALIVE_COUNT: u32 = 6;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Who is at the other end of a Unix socket, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process when it connected.
    pub pid: u32,
    /// Its user when it connected.
    pub uid: u32,
    /// Its group when it connected.
    pub gid: u32,
}

impl Peer {
    /// Who is at the other end of a Unix socket of any kind; of a connection to a listener: who listens.
    ///
    /// # Errors
    /// What the kernel answers; an error for TCP.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let found = sockopt::socket_peercred(socket)?;
        Ok(Self {
            pid: found.pid.as_raw_nonzero().get().cast_unsigned(),
            uid: found.uid.as_raw(),
            gid: found.gid.as_raw(),
        })
    }

    /// All groups of who is at the other end of a Unix socket, as they were when it connected.
    ///
    /// # Errors
    /// As `of`.
    pub fn groups_of(socket: &impl AsFd) -> io::Result<Vec<u32>> {
        let mut groups = crate::kernel::peer_groups(socket.as_fd())?;
        groups.push(Self::of(socket)?.gid);
        Ok(groups)
    }
}

/// A connected stream socket. Dropping it ends the connection.
pub struct Socket {
    core: Rc<Core>,
    fd: Arc<OpenFile>,
    /// The last receive took all that was there: the next one waits first instead of asking in vain.
    is_drained: Cell<bool>,
}

impl Socket {
    fn new(core: Rc<Core>, fd: OwnedFd) -> Self {
        Self {
            core,
            fd: Arc::new(fd.into()),
            is_drained: Cell::new(true),
        }
    }

    /// Takes over a connected stream socket of the standard library or of another process.
    ///
    /// # Errors
    /// When it cannot be made non-blocking.
    pub fn from_fd(handle: &Handle, fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self::new(Rc::clone(&handle.core), fd))
    }

    /// The same connection once more, for another thread; this one is to be dropped. It ends when both are.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?)
    }

    /// What it is made of, for another way of speaking.
    pub(crate) fn into_parts(self) -> (Rc<Core>, Arc<OpenFile>) {
        (self.core, self.fd)
    }

    /// Two sockets that are connected to each other; for tests.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn pair(handle: &Handle) -> io::Result<(Self, Self)> {
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        let new = |fd| Self::new(Rc::clone(&handle.core), fd);
        Ok((new(a), new(b)))
    }

    /// Who is at the other end of a Unix socket; an error for TCP.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn peer(&self) -> io::Result<Peer> {
        Peer::of(&self.fd)
    }

    /// The address at the other end of a TCP connection; `None` for Unix.
    #[must_use]
    pub fn remote_address(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(rustix::net::getpeername(&self.fd).ok()??).ok()
    }

    /// The address at this end of a TCP connection; `None` for Unix.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(rustix::net::getsockname(&self.fd).ok()?).ok()
    }

    /// Sends all `pieces`.
    async fn send_all(&self, pieces: &[Buf]) -> Result<(), TransportError> {
        let (mut first, mut skip) = (0, 0);
        loop {
            while first < pieces.len() && skip == pieces[first].len() {
                (first, skip) = (first + 1, 0);
            }
            if first == pieces.len() {
                return Ok(());
            }
            let window = &pieces[first..pieces.len().min(first + SLICES_MAX)];
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            for (slice, piece) in slices.iter_mut().zip(window) {
                *slice = IoSlice::new(piece);
            }
            slices[0] = IoSlice::new(&window[0][skip..]);
            let mut sent = self.send(&slices[..window.len()]).await?;
            while sent > 0 {
                let step = sent.min(pieces[first].len() - skip);
                (sent, skip) = (sent - step, skip + step);
                if skip == pieces[first].len() {
                    (first, skip) = (first + 1, 0);
                }
            }
        }
    }

    /// Sends a part of `slices`; the number of bytes taken.
    async fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, TransportError> {
        let length_bytes = slices.iter().map(|slice| slice.len()).sum();
        self.core.charge(length_bytes).await;
        loop {
            let mut no_control = SendAncillaryBuffer::default();
            let flags = SendFlags::NOSIGNAL;
            let sent = rustix::net::sendmsg(&self.fd, slices, &mut no_control, flags);
            match sent {
                Ok(count) => return Ok(count),
                Err(error) => self.wait_to_send(error).await?,
            }
        }
    }

    /// After a send that failed: waits where that helps.
    async fn wait_to_send(&self, error: Errno) -> Result<(), TransportError> {
        match error {
            Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => {
                self.core.ready(&self.fd, PollFlags::OUT).await;
                Ok(())
            }
            Errno::INTR => Ok(()),
            Errno::TIMEDOUT => Err(TransportError::TimedOut),
            _ => Err(TransportError::Closed),
        }
    }
}

impl Transport for Socket {
    async fn read(&self, buf: &mut [u8]) -> Result<usize, TransportError> {
        if buf.is_empty() {
            return Ok(0);
        }
        let limit = buf.len().min(RECEIVE_BYTES_MAX);
        let buf = &mut buf[..limit];
        self.core.charge(0).await;
        loop {
            if self.is_drained.get() {
                self.core.ready(&self.fd, PollFlags::IN).await;
            }
            match rustix::net::recv(&self.fd, &mut *buf, RecvFlags::empty()) {
                Ok((count, _)) => {
                    self.is_drained.set(count < limit);
                    return Ok(count);
                }
                Err(Errno::AGAIN | Errno::NOMEM) => self.is_drained.set(true),
                Err(Errno::INTR) => {}
                Err(Errno::TIMEDOUT) => return Err(TransportError::TimedOut),
                Err(_) => return Err(TransportError::Closed),
            }
        }
    }

    async fn write_all(&self, pieces: &[Buf]) -> Result<(), TransportError> {
        self.send_all(pieces).await
    }

    fn expect_soon(&self) {
        self.core.waiting.expect_soon();
    }

    fn close(&self) {
        // What was sent stays on its way; waiting readers see the end. Fails only when the peer has ended it.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }
}

impl StartTls for Socket {}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Socket")
    }
}

/// Accepts connections on a Unix or TCP address.
pub struct Listener {
    core: Rc<Core>,
    fd: Arc<OpenFile>,
    is_tcp: bool,
}

impl Listener {
    /// Listens on the Unix socket `path`, which must not exist, for the same user only (mode 0600).
    ///
    /// # Errors
    /// As the system says: `AddrInUse` when the path exists.
    pub fn bind_unix(handle: &Handle, path: &Path) -> io::Result<Self> {
        Self::bind_unix_with_mode(handle, path, 0o600)
    }

    /// As `bind_unix`, with permissions for others. They hold before the first connection can come.
    ///
    /// # Errors
    /// As `bind_unix`.
    pub fn bind_unix_with_mode(handle: &Handle, path: &Path, mode: u32) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let kind = SocketType::STREAM;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, FLAGS, None)?;
        rustix::net::bind(&fd, &address)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        rustix::net::listen(&fd, LISTEN_QUEUE)?;
        Self::from_std(handle, fd, false)
    }

    /// Listens on a TCP address; port 0 takes a free one, which `local_address` tells.
    ///
    /// # Errors
    /// As the system says.
    pub fn bind_tcp(handle: &Handle, address: SocketAddr) -> io::Result<Self> {
        Self::from_std(handle, std::net::TcpListener::bind(address)?.into(), true)
    }

    fn from_std(handle: &Handle, fd: OwnedFd, is_tcp: bool) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self {
            core: Rc::clone(&handle.core),
            fd: Arc::new(fd.into()),
            is_tcp,
        })
    }

    /// The address of a TCP listener; `None` for Unix.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(rustix::net::getsockname(&self.fd).ok()?).ok()
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// Out of descriptors or memory; the listener stays usable, so the caller waits a little and tries again.
    pub async fn accept(&self) -> io::Result<Socket> {
        let mut tries = 0;
        loop {
            match rustix::net::accept_with(&self.fd, FLAGS) {
                Ok(fd) => {
                    if self.is_tcp {
                        prepare_tcp(&fd)?;
                    } else {
                        prepare_unix(&fd);
                    }
                    return Ok(Socket::new(Rc::clone(&self.core), fd));
                }
                Err(Errno::AGAIN) => self.core.ready(&self.fd, PollFlags::IN).await,
                // The peer has given up already, or its network failed: the next one may be fine.
                Err(_) if tries < ACCEPT_RETRIES_MAX && self.is_tcp => tries += 1,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Connects to a Unix socket.
///
/// # Errors
/// As the system says: nobody listens, no such path, its queue is full.
pub async fn connect_unix(handle: &Handle, path: &Path) -> io::Result<Socket> {
    let address = SocketAddrUnix::new(path)?;
    let kind = SocketType::STREAM;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, FLAGS, None)?;
    rustix::net::connect(&fd, &address)?;
    prepare_unix(&fd);
    Ok(Socket::new(Rc::clone(&handle.core), fd))
}

/// Connects to a TCP address; the caller sets a time limit around it.
///
/// # Errors
/// As the system says.
pub async fn connect_tcp(handle: &Handle, address: SocketAddr) -> io::Result<Socket> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let protocol = Some(ipproto::TCP);
    let fd = rustix::net::socket_with(family, SocketType::STREAM, FLAGS, protocol)?;
    let socket = Socket::new(Rc::clone(&handle.core), fd);
    match rustix::net::connect(&socket.fd, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            socket.core.ready(&socket.fd, PollFlags::OUT).await;
            sockopt::socket_error(&socket.fd)??;
        }
        Err(error) => return Err(error.into()),
    }
    prepare_tcp(&socket.fd)?;
    Ok(socket)
}

/// A large answer leaves in one go, while the peer still reads the one before: with the usual 208 KiB both wait for
/// each other many times in each MiB. TCP finds its size by itself.
fn prepare_unix(fd: impl AsFd) {
    // More than the system's limit wants privileges; without them the limit is taken, which is never less than the
    // usual.
    if sockopt::set_socket_send_buffer_size_force(&fd, SEND_BUFFER_BYTES).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(&fd, SEND_BUFFER_BYTES);
    }
}

/// Small answers leave at once, and a dead peer is noticed.
fn prepare_tcp(fd: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&fd, true)?;
    sockopt::set_tcp_keepidle(&fd, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&fd, KEEP_ALIVE_STEP)?;
    sockopt::set_tcp_keepcnt(&fd, KEEP_ALIVE_COUNT)?;
    Ok(sockopt::set_socket_keepalive(&fd, true)?)
}
