//! The way from an attachment's file to the server, which may end and come back: requests wait for it, and go on.
//!
//! Invariants:
//! - a request is sent again only to a server of the very same array: what is served under the name by then may be
//!   something else;
//! - nothing waits longer than the limit that was given at `attach`; after it requests fail at once until the server is
//!   back;
//! - what was answered before the server ended is on the members, or in their caches, which the next flush covers.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::IoError;
use plexum_daemon::problem::{Code, Problem};
use plexum_export::remote::Remote;
use plexum_export::request::{VolumeRequest, perform};
use plexum_front::export::{Export, ExportInfo};
use plexum_nbd::client::{ConnectOptions, connect};
use plexum_nbd::uri::{Address, NbdUri};
use plexum_runtime::Handle;
use plexum_runtime::socket::{Socket, connect_unix};

use crate::client::Client;

/// Bytes of unused buffers that are kept for each connection.
const POOL_KEEP_BYTES: usize = 16 << 20;

/// Time between two tries to reach a server that is away, and between two looks of a request that waits.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// The server's volume: what it must still be when the server is back. `None`: its metadata name no array for certain.
#[must_use]
pub fn identity(client: &Client) -> Option<String> {
    let status = client.status().ok()?;
    let (format, size) = (&status.format, status.size_bytes);
    (!status.uuid.is_empty()).then(|| format!("{format} {} {size}", status.uuid))
}

/// Where the server is, and what is expected of it.
pub struct Goal {
    /// Unix socket and export.
    pub uri: NbdUri,
    /// As `identity` said when the volume was attached; `None`: nothing is sent to another server than the first.
    pub identity: Option<String>,
    /// Longest time that requests wait for the server.
    pub limit: Duration,
}

/// The connection of the moment.
pub struct Bridge {
    handle: Handle,
    goal: Goal,
    info: ExportInfo,
    remote: RefCell<Option<Rc<Remote<Socket>>>>,
    lost_at: Cell<Option<Moment>>,
}

impl Bridge {
    /// Connects for the first time.
    ///
    /// # Errors
    /// `NoServer`; `Usage` for anything but a Unix socket.
    pub async fn connect(handle: &Handle, mut goal: Goal) -> Result<Rc<Self>, Problem> {
        if goal.identity.is_none() {
            goal.limit = Duration::ZERO;
        }
        let remote = dial(handle, &goal.uri).await?;
        Ok(Rc::new(Self {
            handle: handle.clone(),
            info: remote.info(),
            goal,
            remote: RefCell::new(Some(Rc::new(remote))),
            lost_at: Cell::new(None),
        }))
    }

    /// What the server said about the volume.
    #[must_use]
    pub fn info(&self) -> &ExportInfo {
        &self.info
    }

    /// Carries a request out, on this connection or on the next one, and answers it.
    pub async fn run(self: Rc<Self>, request: VolumeRequest) {
        let mut deadline = None;
        loop {
            let remote = self.remote.borrow().clone();
            let answer = match &remote {
                Some(remote) => perform(&**remote, request.operation().clone()).await,
                None => Err(IoError::Gone),
            };
            if !matches!(answer, Err(IoError::Gone)) {
                return request.answer(answer);
            }
            if let Some(remote) = &remote {
                self.lose(remote);
            }
            let clock = self.handle.clock();
            // Each waits from the moment on at which the server was lost; one that a living server refuses, from now
            // on.
            let since = self.lost_at.get().unwrap_or_else(|| clock.now());
            let deadline = *deadline.get_or_insert(since);
            if clock.now().since(deadline) >= self.goal.limit {
                return request.answer(Err(IoError::Gone));
            }
            clock.sleep(TRY_EVERY).await;
        }
    }

    /// This connection has ended: another one is looked for, by one task for all requests.
    fn lose(self: &Rc<Self>, gone: &Rc<Remote<Socket>>) {
        let is_current = matches!(&*self.remote.borrow(), Some(remote) if Rc::ptr_eq(remote, gone));
        if !is_current {
            return; // somebody else has seen it
        }
        *self.remote.borrow_mut() = None;
        self.lost_at.set(Some(self.handle.clock().now()));
        let Some(identity) = self
            .goal
            .identity
            .clone()
            .filter(|_| !self.goal.limit.is_zero())
        else {
            crate::output::tell_line!("the connection to the server has ended");
            return;
        };
        let seconds = self.goal.limit.as_secs();
        crate::output::tell_line!("the server has gone; requests wait for it, at most {seconds} s");
        let bridge = Rc::downgrade(self);
        let handle = self.handle.clone();
        let _seeker = self.handle.spawn(async move {
            while let Some(bridge) = bridge.upgrade() {
                if bridge.find(&identity).await {
                    return;
                }
                drop(bridge);
                handle.clock().sleep(TRY_EVERY).await;
            }
        });
    }

    /// One try to reach the server again; whether it is there, and the same array.
    async fn find(&self, wanted: &str) -> bool {
        let Ok(client) = Client::find(Some(&self.goal.uri.export)) else {
            return false;
        };
        if identity(&client).as_deref() != Some(wanted) {
            return false;
        }
        let Ok(remote) = dial(&self.handle, &self.goal.uri).await else {
            return false;
        };
        let info = remote.info();
        let is_same = info.size_bytes == self.info.size_bytes
            && info.block_bytes_min <= self.info.block_bytes_min
            && (self.info.is_read_only || !info.is_read_only);
        if !is_same {
            return false;
        }
        let _ = client.tell_attached();
        *self.remote.borrow_mut() = Some(Rc::new(remote));
        self.lost_at.set(None);
        crate::output::tell_line!("the server is back");
        true
    }
}

async fn dial(handle: &Handle, uri: &NbdUri) -> Result<Remote<Socket>, Problem> {
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
    let pool = BufPool::new(POOL_KEEP_BYTES);
    let (client, driver) = connect(socket, pool.clone(), &ConnectOptions::new(&uri.export))
        .await
        .map_err(|error| no_server(format!("the server on {path} refuses: {error}")))?;
    let _driver = handle.spawn(driver.run());
    Ok(Remote::new(client, pool))
}
