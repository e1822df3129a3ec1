//! TLS for the page: certificate and key, the names for which the certificate is, and connections that come through it.
//!
//! Invariants:
//! - a new certificate counts for all connections made after it was put in place; while it cannot be used, the old one
//!   counts;
//! - who says nothing costs a place among `CONNECTIONS_MAX`, for `HANDSHAKE_LIMIT` at most before TLS stands: volumes
//!   have their descriptors whoever comes;
//! - what is wrong with a client is nobody else's business: its connection ends, the others go on.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::uri::Authority;
use plexum_nbd::tls::{TlsFileError, TlsServer};
use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::ParsedCertificate;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Connections at once, those whose handshake is under way among them.
const CONNECTIONS_MAX: usize = 256;
/// How long a handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Where certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file of the certificate, and of those that lead to an authority.
    pub chain: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
}

/// What the page shows to whoever connects. Clones are the same.
#[derive(Clone, Debug)]
pub struct PageTls {
    files: TlsFiles,
    held: Arc<Mutex<Held>>,
}

/// What was read last, and of which files.
#[derive(Debug)]
struct Held {
    server: TlsServer,
    stamps: [Option<Stamp>; 2],
}

/// What tells a file from the one that was there before: its number, its size, and when it was changed, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    number: u64,
    size_bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Path) -> Option<Self> {
        let meta = std::fs::metadata(file).ok()?;
        Some(Self {
            number: meta.ino(),
            size_bytes: meta.len(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

impl TlsFiles {
    /// Reads them.
    ///
    /// # Errors
    /// Which file cannot be used, and why; a key that everybody may read is none.
    pub fn load(&self) -> Result<PageTls, TlsFileError> {
        // Looked at first: what is changed while it is read is read again.
        let stamps = self.stamps();
        let server = self.read()?;
        Ok(PageTls {
            files: self.clone(),
            held: Arc::new(Mutex::new(Held { server, stamps })),
        })
    }

    fn stamps(&self) -> [Option<Stamp>; 2] {
        [&self.chain, &self.key].map(|file| Stamp::of(file))
    }

    fn read(&self) -> Result<TlsServer, TlsFileError> {
        let bad = |reason: String| TlsFileError {
            file: self.key.display().to_string(),
            reason,
        };
        let meta =
            std::fs::metadata(&self.key).map_err(|error| bad(crate::problem::words_of(&error)))?;
        if meta.mode() & 0o007 != 0 {
            let shown = self.key.display();
            return Err(bad(format!("everybody may read it: chmod 600 {shown}")));
        }
        TlsServer::new(&self.chain, &self.key, None)
    }
}

impl PageTls {
    /// What is shown now: the files, where they have changed and can be used.
    fn now(&self) -> TlsServer {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = self.files.stamps();
        if stamps != held.stamps {
            held.stamps = stamps;
            match self.files.read() {
                Ok(server) => held.server = server,
                // The certificate is there and its key comes in a moment, or somebody has to look.
                Err(error) => eprintln!("note: the page keeps its old certificate: {error}"),
            }
        }
        held.server.clone()
    }

    /// Whether the certificate is for this host. One that it is not for is somebody else's name for this machine.
    pub(super) fn is_for(&self, host: &Authority) -> bool {
        let server = self.now();
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        let (Ok(certificate), Ok(name)) = (
            ParsedCertificate::try_from(server.certificate()),
            ServerName::try_from(name),
        ) else {
            return false;
        };
        verify_server_name(&certificate, &name).is_ok()
    }

    /// Connections of a listener, from now on. Ends with the runtime.
    pub(super) fn accept_from(&self, listener: TcpListener) -> Secured {
        // One that waits is ready: nobody else's handshake waits for it to be taken.
        let (sender, ready) = mpsc::channel(CONNECTIONS_MAX);
        let _task = tokio::spawn(take_all(listener, self.clone(), sender));
        Secured { ready }
    }
}

async fn take_all(
    listener: TcpListener,
    tls: PageTls,
    sender: mpsc::Sender<(Connection, SocketAddr)>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return; // nobody closes it
        };
        let Ok((stream, from)) = listener.accept().await else {
            tokio::task::yield_now().await; // out of descriptors: let other tasks close some first
            continue;
        };
        let (acceptor, sender) = (TlsAcceptor::from(tls.now().config()), sender.clone());
        let _task = tokio::spawn(async move {
            let shaken = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await;
            if let Ok(Ok(stream)) = shaken {
                let connection = Connection {
                    stream,
                    _place: place,
                };
                let _ = sender.send((connection, from)).await; // or the server has ended
            }
        });
    }
}

/// Connections whose handshake is done.
pub(super) struct Secured {
    ready: mpsc::Receiver<(Connection, SocketAddr)>,
}

impl axum::serve::Listener for Secured {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await, // the runtime ends
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Err(std::io::ErrorKind::Unsupported.into()) // who has bound it knows
    }
}

/// A connection that holds its place.
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
