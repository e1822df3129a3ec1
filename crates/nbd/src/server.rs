//! The server: its exports, its limits, and the way of one connection through them.
//!
//! Invariants:
//! - exports open and close while sessions run (`front`); the sessions of one that is closed end before `close`
//!   returns;
//! - before the handshake is over a connection costs less than 64 KiB, and it is over within its time limit;
//! - whatever a client does ends its own session only.
//!
//! A `Server` belongs to one thread, like the volumes it serves.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_front::budget::Budget;
use plexum_front::client::Leave;
use plexum_front::export::{Export, ExportInfo};
use plexum_front::exports::Exports;
use plexum_front::flag::Flag;

use crate::error::NbdError;
use crate::negotiate::{Agreed, ExportList, Handshake, OPTION_DATA_BYTES_MAX, Outcome};
use crate::session::{Ended, Session, SessionCounts, SessionLimits};
use crate::tls::{Stream, TlsMode, TlsServer, TlsStart};
use crate::transport::{StartTls, Transport, TransportError};
use crate::wire::option::{OPTION_HEAD_BYTES, greeting};

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

/// A server for exports of type `E`. Connections are handed to `serve`; who listens, and where, is not its business.
pub struct Server<E, C> {
    clock: C,
    pool: BufPool,
    limits: ServerLimits,
    budget: Budget,
    exports: Exports<E>,
    sessions: Cell<usize>,
    /// Addresses with sessions, and how many.
    addresses: RefCell<BTreeMap<IpAddr, usize>>,
    tls: RefCell<Option<(TlsServer, TlsMode)>>,
    stopped: Flag,
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

/// Counts a connection for as long as it lives.
struct Connected<'a>(&'a Cell<usize>);

impl<'a> Connected<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
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
            exports: Exports::default(),
            sessions: Cell::new(0),
            addresses: RefCell::default(),
            tls: RefCell::default(),
            stopped: Flag::default(),
        }
    }

    /// Offers TLS, or demands it, from the next connection on.
    pub fn set_tls(&self, tls: TlsServer, mode: TlsMode) {
        *self.tls.borrow_mut() = Some((tls, mode));
    }

    /// The exports, which may be opened and closed at any time, and their clients.
    pub fn exports(&self) -> &Exports<E> {
        &self.exports
    }

    /// Tells all sessions to end as `how` says, and refuses new ones. Returns at once; wait for the calls of `serve`.
    pub fn stop(&self, how: Leave) {
        self.stopped.set();
        self.exports.tell_all(how);
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
        self.serve_peer(transport, address.to_string()).await
    }

    /// Serves one connection until its end, and closes it. Returns only when no request of it is running any more.
    ///
    /// # Errors
    /// Why it ended before its time: for the log, nobody has to act.
    pub async fn serve<T: Transport>(
        &self,
        transport: T,
    ) -> (Result<Ended, NbdError>, SessionCounts) {
        self.serve_peer(transport, String::new()).await
    }

    async fn serve_peer<T: Transport>(
        &self,
        transport: T,
        peer: String,
    ) -> (Result<Ended, NbdError>, SessionCounts) {
        let transport = Stream::new(transport);
        let result = self.serve_counted(&transport, peer).await;
        transport.close();
        result.unwrap_or_else(|how| (how, SessionCounts::default()))
    }

    /// `Err` is the end of a session that never left the handshake.
    async fn serve_counted<T: StartTls>(
        &self,
        transport: &T,
        peer: String,
    ) -> Result<(Result<Ended, NbdError>, SessionCounts), Result<Ended, NbdError>> {
        if self.stopped.is_set() {
            return Err(Ok(Ended::Stopped));
        }
        if self.sessions.get() >= self.limits.sessions_max {
            return Err(Err(NbdError::TooManySessions(self.limits.sessions_max)));
        }
        let _connected = Connected::new(&self.sessions);
        let agreed = self.handshake_in_time(transport).await.map_err(Err)?;
        let Some((agreed, leftover)) = agreed else {
            return Err(Ok(Ended::Aborted));
        };
        // The export may have been closed, or the server stopped, while the last answer was sent.
        let opened = self.exports.find(&agreed.export.name);
        let opened = opened.filter(|opened| {
            let info = opened.export().info();
            info.is_same_export(&agreed.export) && !self.stopped.is_set()
        });
        let limits = self.limits.session.requests;
        let enter = |opened| self.exports.enter(&opened, peer, limits, &self.budget);
        let Some(visit) = opened.and_then(enter) else {
            return Err(Ok(Ended::Stopped));
        };
        let session = Session::new(
            transport,
            &visit,
            &self.clock,
            &agreed,
            self.limits.session,
            &self.pool,
        );
        Ok(session.run(&leftover).await)
    }

    /// The handshake, ended by closing the stream when it takes too long or the server stops: nothing is dropped
    /// while the transport works on it.
    async fn handshake_in_time<T: StartTls>(
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
    async fn handshake<T: StartTls>(
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
        let opened = self.exports.find(name)?;
        Some(opened.export().info())
    }

    fn list(&self) -> Vec<(String, String)> {
        let opened = self.exports.list();
        let infos = opened.iter().map(|opened| opened.export().info());
        infos.map(|info| (info.name, info.description)).collect()
    }

    fn is_stopping(&self) -> bool {
        self.stopped.is_set()
    }
}
