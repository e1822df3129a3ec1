//! TLS over any stream, on both sides of a connection.
//!
//! Invariants:
//! - nothing that was said before TLS counts afterwards, and bytes that came in the clear behind STARTTLS end the
//!   connection;
//! - records leave in the order in which they were made: one writer at a time;
//! - a client of `nbds://` speaks nothing in the clear after the handshake's first words, or fails: there is no way
//!   back;
//! - an end of the stream without TLS's goodbye is an error, not an end.
//!
//! Certificates are X.509 only; pre-shared keys are not offered. Source: nbd.md section 11, reliability.md section 4.

use std::cell::{OnceCell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::wait::Mutex;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore};
use rustls::{ServerConfig, ServerConnection};

use crate::transport::{StartTls, Transport, TransportError};

/// Bytes of records received at once: the largest record and a bit.
const INBOX_BYTES: usize = 20 << 10;

/// Plain bytes turned into records before they are sent.
const BATCH_BYTES: usize = 256 << 10;

/// Why a certificate, a key or a list of authorities cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct TlsFileError {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub reason: String,
}

fn bad(file: &Path, reason: impl std::fmt::Display) -> TlsFileError {
    TlsFileError {
        file: file.display().to_string(),
        reason: reason.to_string(),
    }
}

/// What a server shows, and whom it lets in.
#[derive(Clone)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

/// What a client shows, and whom it trusts.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl std::fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsClient({:?})", self.name) // no keys
    }
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

impl Eq for TlsClient {}

impl std::fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsServer") // no keys
    }
}

/// Whether clients have to use TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// There is none.
    #[default]
    Off,
    /// Clients may.
    Selective,
    /// Clients must.
    Forced,
}

/// Which side of TLS a stream takes.
#[derive(Clone)]
pub enum TlsStart {
    /// The side that shows a certificate.
    Server(TlsServer),
    /// The side that checks it.
    Client(TlsClient),
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| bad(file, error))?;
    let found: Result<Vec<_>, _> = read.collect();
    let found = found.map_err(|error| bad(file, error))?;
    if found.is_empty() {
        return Err(bad(file, "there is no certificate in it"));
    }
    Ok(found)
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| bad(file, error))
}

fn authorities(file: &Path) -> Result<Arc<RootCertStore>, TlsFileError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(file)? {
        store.add(certificate).map_err(|error| bad(file, error))?;
    }
    Ok(Arc::new(store))
}

impl TlsServer {
    /// A server with the certificate chain and key of these PEM files. With `clients` only clients are let in whose
    /// certificate was signed by one of the authorities in that file.
    ///
    /// # Errors
    /// A file that cannot be read or used.
    pub fn new(chain: &Path, own_key: &Path, clients: Option<&Path>) -> Result<Self, TlsFileError> {
        let versions = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(chain, error))?;
        let verified = match clients {
            None => versions.with_no_client_auth(),
            Some(file) => {
                let roots = authorities(file)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = verifier.build().map_err(|error| bad(file, error))?;
                versions.with_client_cert_verifier(verifier)
            }
        };
        let shown = certificates(chain)?;
        let certificate = shown[0].clone(); // there is one, or none of them was taken
        let config = verified
            .with_single_cert(shown, key(own_key)?)
            .map_err(|error| bad(chain, error))?;
        Ok(Self {
            config: Arc::new(config),
            certificate,
        })
    }

    /// The same for who carries streams of other protocols through TLS.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// The server's own certificate, without those that lead to an authority.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }
}

impl TlsClient {
    /// A client of the server called `name` that trusts the authorities in `folder/ca-cert.pem`, and shows
    /// `folder/client-cert.pem` with `folder/client-key.pem` when they are there.
    ///
    /// # Errors
    /// A file that cannot be read or used, or a name that no certificate can have.
    pub fn new(folder: &Path, name: &str) -> Result<Self, TlsFileError> {
        let trusted = folder.join("ca-cert.pem");
        let versions = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&trusted, error))?
            .with_root_certificates(authorities(&trusted)?);
        let (chain, own_key) = (
            folder.join("client-cert.pem"),
            folder.join("client-key.pem"),
        );
        let config = if chain.exists() {
            let shown = certificates(&chain)?;
            versions
                .with_client_auth_cert(shown, key(&own_key)?)
                .map_err(|error| bad(&chain, error))?
        } else {
            versions.with_no_client_auth()
        };
        let name = ServerName::try_from(name.to_owned()).map_err(|error| bad(folder, error))?;
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }
}

struct Tls {
    connection: RefCell<Connection>,
    inbox: RefCell<Inbox>,
    writer: Mutex,
    pool: BufPool,
}

/// A stream that can be turned into a TLS one once.
pub struct Stream<T> {
    transport: T,
    tls: OnceCell<Tls>,
}

impl<T: Transport> Stream<T> {
    /// A stream in the clear.
    pub fn new(transport: T) -> Self {
        Self {
            transport,
            tls: OnceCell::new(),
        }
    }

    /// Sends all records that are ready. One caller at a time, so that they keep their order.
    async fn flush(&self, tls: &Tls) -> Result<(), TransportError> {
        let _turn = tls.writer.lock().await;
        loop {
            let mut records = Vec::new();
            {
                let mut connection = tls.connection.borrow_mut();
                while connection.wants_write() && records.len() < BATCH_BYTES {
                    let written = connection.write_tls(&mut records);
                    written.map_err(|_| TransportError::Tls)?;
                }
            }
            if records.is_empty() {
                return Ok(());
            }
            let records = tls.pool.copy_of(&records).freeze();
            self.transport.write_all(&[records]).await?;
        }
    }

    /// Takes records that were received, or receives some; `false` at the end of the stream.
    async fn fill(&self, tls: &Tls) -> Result<bool, TransportError> {
        if tls.inbox.borrow().is_empty() {
            let mut inbox = tls.inbox.take();
            inbox.bytes.resize(INBOX_BYTES, 0);
            let got = self.transport.read(&mut inbox.bytes).await?;
            (inbox.start, inbox.end) = (0, got);
            *tls.inbox.borrow_mut() = inbox;
            if got == 0 {
                return Ok(false);
            }
        }
        if tls.digest().is_err() {
            let _ = self.flush(tls).await; // the alert says why
            return Err(TransportError::Tls);
        }
        if tls.connection.borrow().wants_write() && !tls.writer.is_locked() {
            self.flush(tls).await?; // whoever writes now would send it as well
        }
        Ok(true)
    }
}

impl Tls {
    /// Opens records until there is something to read: the connection holds little more than one opened record.
    fn digest(&self) -> Result<(), ()> {
        let (mut inbox, mut connection) = (self.inbox.borrow_mut(), self.connection.borrow_mut());
        while !inbox.is_empty() {
            let mut left = &inbox.bytes[inbox.start..inbox.end];
            let taken = connection.read_tls(&mut left).map_err(|_| ())?;
            if taken == 0 {
                return Err(());
            }
            inbox.start += taken;
            let state = connection.process_new_packets().map_err(|_| ())?;
            if state.plaintext_bytes_to_read() > 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Records that were received and not yet opened.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

fn connection(start: &TlsStart) -> Result<Connection, rustls::Error> {
    Ok(match start {
        TlsStart::Server(server) => ServerConnection::new(server.config())?.into(),
        TlsStart::Client(client) => {
            ClientConnection::new(Arc::clone(&client.config), client.name.clone())?.into()
        }
    })
}

impl<T: Transport> Transport for Stream<T> {
    async fn read(&self, buf: &mut [u8]) -> Result<usize, TransportError> {
        let Some(tls) = self.tls.get() else {
            return self.transport.read(buf).await;
        };
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            let read = tls.connection.borrow_mut().reader().read(buf);
            match read {
                Ok(count) => return Ok(count), // 0: the peer has said goodbye
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(TransportError::Closed),
            }
            if !self.fill(tls).await? {
                return Err(TransportError::Closed);
            }
        }
    }

    async fn write_all(&self, pieces: &[Buf]) -> Result<(), TransportError> {
        let Some(tls) = self.tls.get() else {
            return self.transport.write_all(pieces).await;
        };
        for piece in pieces {
            for part in piece.chunks(BATCH_BYTES) {
                let written = tls.connection.borrow_mut().writer().write_all(part);
                written.map_err(|_| TransportError::Tls)?;
                self.flush(tls).await?;
            }
        }
        Ok(())
    }

    fn expect_soon(&self) {
        self.transport.expect_soon();
    }

    fn close(&self) {
        self.transport.close();
    }
}

impl<T: Transport> StartTls for Stream<T> {
    async fn start_tls(&self, start: &TlsStart) -> Result<(), TransportError> {
        let mut connection = connection(start).map_err(|_| TransportError::Tls)?;
        connection.set_buffer_limit(None); // `write_all` never holds more than a batch
        let tls = Tls {
            connection: RefCell::new(connection),
            inbox: RefCell::default(),
            writer: Mutex::new(),
            pool: BufPool::new(0),
        };
        while tls.connection.borrow().is_handshaking() {
            self.flush(&tls).await?;
            if tls.connection.borrow().is_handshaking() && !self.fill(&tls).await? {
                return Err(TransportError::Closed);
            }
        }
        self.flush(&tls).await?;
        self.tls.set(tls).map_err(|_| TransportError::Tls)
    }
}
