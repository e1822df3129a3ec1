//! The server: its exports, its limits, and the way of one connection through them.
//!
//! Invariants:
//! - exports open and close while sessions run (`front`); the sessions of one that is closed end before `close`
//!   returns;
//! - before the handshake is over a connection costs less than 64 KiB, and it is over within its time limit;
//! - whatever a client does ends its own session only.
//!
//! A `Server` belongs to one thread, like the volumes it serves.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_front::budget::Budget;
use plexum_front::client::Leave;
use plexum_front::connections::{ConnectionLimits, Connections, InTime, in_time};
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
    connections: Connections,
    tls: RefCell<Option<(TlsServer, TlsMode)>>,
    stopped: Flag,
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
            connections: Connections::new(ConnectionLimits {
                all_max: limits.sessions_max,
                per_address_max: limits.sessions_per_address_max,
            }),
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
        self.connections.count()
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
        self.serve_peer(transport, Some(address)).await
    }

    /// Serves one connection until its end, and closes it. Returns only when no request of it is running any more.
    ///
    /// # Errors
    /// Why it ended before its time: for the log, nobody has to act.
    pub async fn serve<T: Transport>(
        &self,
        transport: T,
    ) -> (Result<Ended, NbdError>, SessionCounts) {
        self.serve_peer(transport, None).await
    }

    async fn serve_peer<T: Transport>(
        &self,
        transport: T,
        address: Option<IpAddr>,
    ) -> (Result<Ended, NbdError>, SessionCounts) {
        let transport = Stream::new(transport);
        let result = self.serve_counted(&transport, address).await;
        transport.close();
        result.unwrap_or_else(|how| (how, SessionCounts::default()))
    }

    /// `Err` is the end of a session that never left the handshake.
    async fn serve_counted<T: StartTls>(
        &self,
        transport: &T,
        address: Option<IpAddr>,
    ) -> Result<(Result<Ended, NbdError>, SessionCounts), Result<Ended, NbdError>> {
        if self.stopped.is_set() {
            return Err(Ok(Ended::Stopped));
        }
        let entered = self.connections.enter(address);
        let _connected = entered.map_err(|limit| Err(NbdError::TooManySessions(limit)))?;
        let (clock, limit) = (&self.clock, self.limits.handshake);
        let handshake = self.handshake(transport);
        let agreed = match in_time(transport, clock, limit, &self.stopped, handshake).await {
            InTime::Done(agreed) => agreed.map_err(Err)?,
            InTime::Late => return Err(Err(NbdError::HandshakeTimedOut)),
            InTime::Stopped => None,
        };
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
        let peer = address.map(|address| address.to_string());
        let peer = peer.unwrap_or_default();
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
