//! The server: its exports, its limits, and the way of one connection through them.
//!
//! Invariants:
//! - exports come and go while sessions run; a removed export's sessions end before `remove` returns;
//! - before the handshake is over a connection costs less than 64 KiB, and it is over within its time limit;
//! - whatever a client does ends its own session only.
//!
//! A `Server` belongs to one thread, like the volumes it serves.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;

use crate::budget::Budget;
use crate::error::NbdError;
use crate::export::{Export, ExportInfo};
use crate::negotiate::{Agreed, ExportList, Handshake, OPTION_DATA_BYTES_MAX, Outcome};
use crate::session::{Ended, Session, SessionCounts, SessionLimits};
use crate::signal::Signal;
use crate::tls::{Stream, TlsMode, TlsServer, TlsStart};
use crate::transport::{Transport, TransportError};
use crate::wire::option::{OPTION_HEAD_BYTES, greeting};
use crate::wire::{NAME_BYTES_MAX, escaped};

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Sessions at the same time, waiting ones included.
    pub sessions_max: usize,
    /// Of these, sessions of one address.
    pub sessions_per_address_max: usize,
    /// Time for the whole handshake.
    pub handshake: Duration,
    /// Memory in bytes for the requests in flight of all sessions.
    pub bytes_max: u64,
    /// Limits of each session.
    pub session: SessionLimits,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            sessions_max: 128,
            sessions_per_address_max: 64,
            handshake: Duration::from_secs(10),
            bytes_max: 256 << 20,
            session: SessionLimits::default(),
        }
    }
}

/// Why an export cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The name is taken.
    #[error("an export called {0} is there already; choose another name")]
    NameTaken(String),
    /// The name cannot go over the wire.
    #[error(
        "the export name {0} is empty, longer than 4096 bytes or has a NUL; choose another name"
    )]
    BadName(String),
    /// Block size not a power of two from 1 to 65536, or the preferred one smaller than it or no power of two.
    #[error("export {name}: block sizes {minimum} and {preferred} are not what clients can use")]
    BadBlockSize {
        /// Name of the export.
        name: String,
        /// Its smallest block in bytes.
        minimum: u32,
        /// Its preferred block in bytes.
        preferred: u32,
    },
    /// Larger than clients can address.
    #[error("export {name}: {size_bytes} bytes are more than 2^63 - 1")]
    TooLarge {
        /// Name of the export.
        name: String,
        /// Its size.
        size_bytes: u64,
    },
}

struct Entry<E> {
    info: ExportInfo,
    export: Rc<E>,
    removed: Signal,
    /// Sessions in their transmission phase; set when the last one is gone after a removal.
    sessions: Cell<usize>,
    vacated: Signal,
}

/// One served export, for status displays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportStatus {
    /// Name, size and abilities.
    pub info: ExportInfo,
    /// Connected clients.
    pub sessions: usize,
}

/// A server for exports of type `E`. Connections are handed to `serve`; who listens, and where, is not its business.
pub struct Server<E, C> {
    clock: C,
    pool: BufPool,
    limits: ServerLimits,
    budget: Budget,
    exports: RefCell<Vec<Rc<Entry<E>>>>,
    default_name: RefCell<Option<String>>,
    sessions: Cell<usize>,
    /// Addresses with sessions, and how many.
    addresses: RefCell<BTreeMap<IpAddr, usize>>,
    tls: RefCell<Option<(TlsServer, TlsMode)>>,
    stopped: Signal,
}

/// Counts the sessions of an address.
struct FromAddress<'a>(&'a RefCell<BTreeMap<IpAddr, usize>>, IpAddr);

impl<'a> FromAddress<'a> {
    fn new(addresses: &'a RefCell<BTreeMap<IpAddr, usize>>, address: IpAddr) -> Self {
        *addresses.borrow_mut().entry(address).or_default() += 1;
        Self(addresses, address)
    }
}

impl Drop for FromAddress<'_> {
    fn drop(&mut self) {
        let mut addresses = self.0.borrow_mut();
        if let Some(count) = addresses.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.1);
            }
        }
    }
}

/// Counts a session for as long as it lives.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A session of an export; the last one to leave a removed export tells `remove`, even when it is dropped.
struct Attending<'a, E>(&'a Entry<E>);

impl<'a, E> Attending<'a, E> {
    fn new(entry: &'a Entry<E>) -> Self {
        entry.sessions.set(entry.sessions.get() + 1);
        Self(entry)
    }
}

impl<E> Drop for Attending<'_, E> {
    fn drop(&mut self) {
        let left = self.0.sessions.get() - 1;
        self.0.sessions.set(left);
        if left == 0 && self.0.removed.is_set() {
            self.0.vacated.set();
        }
    }
}

impl<E: Export, C: Clock> Server<E, C> {
    /// A server without exports. `pool` gives the buffers of payloads and answers.
    #[must_use]
    pub fn new(clock: C, pool: BufPool, limits: ServerLimits) -> Self {
        Self {
            clock,
            pool,
            limits,
            budget: Budget::new(limits.bytes_max),
            exports: RefCell::default(),
            default_name: RefCell::default(),
            sessions: Cell::new(0),
            addresses: RefCell::default(),
            tls: RefCell::default(),
            stopped: Signal::default(),
        }
    }

    /// Offers TLS, or demands it, from the next connection on.
    pub fn set_tls(&self, tls: TlsServer, mode: TlsMode) {
        *self.tls.borrow_mut() = Some((tls, mode));
    }

    /// Offers an export under the name in its `info`, from now on. Block sizes are powers of two, the preferred one
    /// at least 512 bytes and at most 32 MiB (a row that is no power of two is announced as the next smaller one).
    ///
    /// # Errors
    /// The name is taken or unusable, or the sizes are.
    pub fn add(&self, export: Rc<E>) -> Result<(), ExportError> {
        let info = export.info();
        let name = || escaped(&info.name);
        if info.name.is_empty() || info.name.len() > NAME_BYTES_MAX || info.name.contains('\0') {
            return Err(ExportError::BadName(name()));
        }
        if self.find(&info.name).is_some() {
            return Err(ExportError::NameTaken(name()));
        }
        let (minimum, preferred) = (info.block_bytes_min, info.block_bytes_preferred);
        let is_usable = minimum.is_power_of_two()
            && minimum <= 1 << 16
            && preferred.is_power_of_two()
            && preferred >= minimum.max(512)
            && preferred <= crate::wire::PAYLOAD_BYTES_MAX;
        if !is_usable {
            return Err(ExportError::BadBlockSize {
                name: name(),
                minimum,
                preferred,
            });
        }
        if i64::try_from(info.size_bytes).is_err() {
            return Err(ExportError::TooLarge {
                name: name(),
                size_bytes: info.size_bytes,
            });
        }
        self.exports.borrow_mut().push(Rc::new(Entry {
            info,
            export,
            removed: Signal::default(),
            sessions: Cell::new(0),
            vacated: Signal::default(),
        }));
        Ok(())
    }

    /// Takes an export away: new clients do not find it, requests are answered with ESHUTDOWN, sessions end when
    /// nothing of them is in flight. Returns when the last one has ended; `false` when there is no such export.
    pub async fn remove(&self, name: &str) -> bool {
        let Some(entry) = self.find(name) else {
            return false;
        };
        let is_other = |other: &Rc<Entry<E>>| !Rc::ptr_eq(other, &entry);
        self.exports.borrow_mut().retain(is_other);
        entry.removed.set();
        if entry.sessions.get() > 0 {
            entry.vacated.wait().await;
        }
        true
    }

    /// Names the export that clients get who ask for "". Without this call it is the only export, if there is one.
    pub fn set_default(&self, name: Option<&str>) {
        *self.default_name.borrow_mut() = name.map(str::to_owned);
    }

    /// Ends all sessions as `remove` does, and refuses new ones. Returns at once; wait for the calls of `serve`.
    pub fn stop(&self) {
        self.stopped.set();
    }

    /// What is being served.
    #[must_use]
    pub fn status(&self) -> Vec<ExportStatus> {
        let exports = self.exports.borrow();
        let status = exports.iter().map(|entry| ExportStatus {
            info: entry.info.clone(),
            sessions: entry.sessions.get(),
        });
        status.collect()
    }

    /// Connections, those in their handshake included.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.get()
    }

    /// Memory of all requests in flight, in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.budget.used_bytes()
    }

    fn find(&self, name: &str) -> Option<Rc<Entry<E>>> {
        let exports = self.exports.borrow();
        if !name.is_empty() {
            return exports
                .iter()
                .find(|entry| entry.info.name == name)
                .cloned();
        }
        match &*self.default_name.borrow() {
            Some(default) => exports
                .iter()
                .find(|entry| entry.info.name == *default)
                .cloned(),
            None if exports.len() == 1 => exports.first().cloned(),
            None => None,
        }
    }

    /// As `serve`, for a connection from an address: too many of one address are refused.
    ///
    /// # Errors
    /// As `serve`.
    pub async fn serve_from<T: Transport>(
        &self,
        transport: T,
        address: IpAddr,
    ) -> (Result<Ended, NbdError>, SessionCounts) {
        let count = self.addresses.borrow().get(&address).copied().unwrap_or(0);
        let limit = self.limits.sessions_per_address_max;
        if count >= limit {
            transport.close();
            return (
                Err(NbdError::TooManySessions(limit)),
                SessionCounts::default(),
            );
        }
        let _from = FromAddress::new(&self.addresses, address);
        self.serve(transport).await
    }

    /// Serves one connection until its end, and closes it. Returns only when no request of it is running any more.
    ///
    /// # Errors
    /// Why it ended before its time: for the log, nobody has to act.
    pub async fn serve<T: Transport>(
        &self,
        transport: T,
    ) -> (Result<Ended, NbdError>, SessionCounts) {
        let transport = Stream::new(transport);
        let result = self.serve_counted(&transport).await;
        transport.close();
        result.unwrap_or_else(|how| (how, SessionCounts::default()))
    }

    /// `Err` is the end of a session that never left the handshake.
    async fn serve_counted<T: Transport>(
        &self,
        transport: &T,
    ) -> Result<(Result<Ended, NbdError>, SessionCounts), Result<Ended, NbdError>> {
        if self.stopped.is_set() {
            return Err(Ok(Ended::Stopped));
        }
        if self.sessions.get() >= self.limits.sessions_max {
            return Err(Err(NbdError::TooManySessions(self.limits.sessions_max)));
        }
        let _counted = Counted::new(&self.sessions);
        let agreed = self.handshake_in_time(transport).await.map_err(Err)?;
        let Some((agreed, leftover)) = agreed else {
            return Err(Ok(Ended::Aborted));
        };
        // The export may have been removed while the last answer was sent.
        let entry = self.find(&agreed.export.name);
        let Some(entry) = entry.filter(|entry| entry.info == agreed.export) else {
            return Err(Ok(Ended::Stopped));
        };
        let _attending = Attending::new(&entry);
        let session = Session::new(
            transport,
            &*entry.export,
            &self.clock,
            &agreed,
            self.limits.session,
            &self.pool,
            &self.budget,
            [&self.stopped, &entry.removed],
        );
        Ok(session.run(&leftover).await)
    }

    /// The handshake, ended by closing the stream when it takes too long or the server stops: nothing is dropped
    /// while the transport works on it.
    async fn handshake_in_time<T: Transport>(
        &self,
        transport: &T,
    ) -> Result<Option<(Agreed, Vec<u8>)>, NbdError> {
        let mut limit = pin!(self.clock.sleep(self.limits.handshake));
        let mut stopped = pin!(self.stopped.wait());
        let mut handshake = pin!(self.handshake(transport));
        let mut is_late = false;
        let mut is_closed = false;
        poll_fn(|cx| {
            if !is_closed {
                is_late = limit.as_mut().poll(cx).is_ready();
                is_closed = is_late || stopped.as_mut().poll(cx).is_ready();
                if is_closed {
                    transport.close();
                }
            }
            match handshake.as_mut().poll(cx) {
                Poll::Ready(_) if is_late => Poll::Ready(Err(NbdError::HandshakeTimedOut)),
                Poll::Ready(_) if is_closed => Poll::Ready(Ok(None)),
                other => other,
            }
        })
        .await
    }

    /// `None` when the client ended it. The bytes are those that came behind it.
    async fn handshake<T: Transport>(
        &self,
        transport: &T,
    ) -> Result<Option<(Agreed, Vec<u8>)>, NbdError> {
        let mut out = greeting().to_vec();
        let tls = self.tls.borrow().clone();
        let mode = tls.as_ref().map_or(TlsMode::Off, |(_, mode)| *mode);
        let mut handshake = Handshake::with_tls(mode);
        let mut inbox = vec![0; OPTION_HEAD_BYTES + OPTION_DATA_BYTES_MAX as usize];
        let (mut start, mut end) = (0, 0);
        loop {
            if !out.is_empty() {
                let answer = self.pool.copy_of(&out).freeze();
                transport.write_all(&[answer]).await?;
                out.clear();
            }
            let (used, outcome) = handshake.step(self, &inbox[start..end], &mut out)?;
            start += used;
            match outcome {
                Outcome::Went => {}
                Outcome::Agreed(agreed) => {
                    let answer = self.pool.copy_of(&out).freeze();
                    transport.write_all(&[answer]).await?;
                    return Ok(Some((*agreed, inbox[start..end].to_vec())));
                }
                Outcome::StartTls => {
                    let answer = self.pool.copy_of(&out).freeze();
                    out.clear();
                    let tls = tls.as_ref().map(|(tls, _)| TlsStart::Server(tls.clone()));
                    let (Some(tls), true) = (tls, start == end) else {
                        // What came in the clear would count as said by TLS.
                        return Err(TransportError::Tls.into());
                    };
                    transport.write_all(&[answer]).await?;
                    transport.start_tls(&tls).await?;
                    handshake.tls_started();
                }
                Outcome::Ended => {
                    let answer = self.pool.copy_of(&out).freeze();
                    // Clients close without reading this; that is their way of ending.
                    let _ = transport.write_all(&[answer]).await;
                    return Ok(None);
                }
                Outcome::Needs => {
                    inbox.copy_within(start..end, 0);
                    end -= start;
                    start = 0;
                    let got = transport.read(&mut inbox[end..]).await?;
                    if got == 0 {
                        return Err(TransportError::Closed.into());
                    }
                    end += got;
                }
            }
        }
    }
}

impl<E: Export, C: Clock> ExportList for Server<E, C> {
    fn resolve(&self, name: &str) -> Option<ExportInfo> {
        self.find(name).map(|entry| entry.info.clone())
    }

    fn list(&self) -> Vec<(String, String)> {
        let exports = self.exports.borrow();
        let names = exports
            .iter()
            .map(|entry| (entry.info.name.clone(), entry.info.description.clone()));
        names.collect()
    }

    fn is_stopping(&self) -> bool {
        self.stopped.is_set()
    }
}
