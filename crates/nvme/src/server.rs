//! The target: its subsystems, its controllers, its limits, and the way of one connection through them.
//!
//! Invariants:
//! - exports open and close while hosts come and go (`front`); the queues of one that is closed end before `close`
//!   returns;
//! - before a connection is a queue it costs less than 64 KiB, and it is one within its time limit;
//! - a host that connects again to a volume is let in when nothing of its ended controllers is under way there;
//! - data in capsules have memory of their own, at most half of what there is;
//! - whatever a host does ends its own controller only.
//!
//! A `Server` belongs to one thread, like the volumes it serves.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::wait::{Mutex, first};
use plexum_front::budget::{Budget, Holds, Permit};
use plexum_front::client::Leave;
use plexum_front::connections::{ConnectionLimits, Connections};
use plexum_front::export::{Export, REQUEST_BYTES_MAX};
use plexum_front::exports::{Exports, OpenError};
use plexum_front::flag::Flag;
use plexum_front::peer::{Patience, Peer};
use plexum_front::receive::Receiver;
use plexum_front::requests::RequestLimits;
use plexum_front::transport::Transport;

use crate::arrival::{Arrival, Refusal, Wish, wrong};
use crate::controller::{Controller, Owner, QUEUE_ENTRIES_MAX, Shape, Subsystem, Told};
use crate::error::{Ended, NvmeError};
use crate::link::{Link, QueueFacts};
use crate::session::admin::AdminQueue;
use crate::session::io::IoQueue;
use crate::wire::fabrics::{ANY_CONTROLLER, Connect, ConnectData, DISCOVERY_NAME, Parameter};
use crate::wire::pdu::IN_CAPSULE_BYTES_MAX;
use crate::wire::status::Status;

/// Receive buffer of a connection that is not a queue yet, and of an admin queue, in bytes.
const ADMIN_INBOX_BYTES: usize = 16 << 10;
/// Receive buffer of an I/O queue in bytes: a batch of commands, or of small writes, in one receive.
const IO_INBOX_BYTES: usize = 128 << 10;
/// The highest number of a controller; those above have meanings of their own.
const CONTROLLER_MAX: u16 = 0xffef;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Connections at the same time: each queue of each controller is one.
    pub connections: ConnectionLimits,
    /// Time for making a connection a queue.
    pub handshake: Duration,
    /// Memory in bytes for the requests in flight of all hosts.
    pub bytes_max: u64,
    /// What a controller may have in flight.
    pub requests: RequestLimits,
    /// How long hosts are waited for.
    pub patience: Patience,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: ConnectionLimits {
                all_max: 256,
                per_address_max: 128,
            },
            handshake: Duration::from_secs(10),
            bytes_max: 256 << 20,
            requests: RequestLimits {
                requests_max: 1024, // queues have limits of their own
                ..RequestLimits::default()
            },
            patience: Patience::default(),
        }
    }
}

/// Which hosts may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allowed {
    /// All that reach the server.
    #[default]
    All,
    /// Those with these names (NQN).
    Only(Vec<String>),
}

impl Allowed {
    fn has(&self, host: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| name == host),
        }
    }
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Where the host has found us: discovery tells it again.
    pub local: SocketAddr,
    /// Where the host is.
    pub remote: SocketAddr,
}

/// A controller that there is, or was until its last request has ended.
struct Known<E> {
    controller: Weak<Controller<E>>,
    id: u16,
    owner: Owner,
    gone: Rc<Flag>,
}

/// A server for exports of type `E`. Connections are handed to `serve`; who listens, and where, is not its business.
pub struct Server<E, C> {
    clock: C,
    pool: BufPool,
    limits: ServerLimits,
    allowed: Allowed,
    budget: Budget,
    exports: Exports<E>,
    /// What exports are besides; an export that was closed may still have an entry.
    shapes: RefCell<Vec<(String, Shape)>>,
    controllers: RefCell<Vec<Known<E>>>,
    next_id: Cell<u16>,
    connections: Connections,
    /// Memory that is kept for data in capsules, in bytes.
    capsule_bytes: Cell<u64>,
    stopped: Flag,
}

/// Memory for the data in a queue's capsules.
struct CapsuleMemory<'a> {
    sum: &'a Cell<u64>,
    bytes: u64,
    _permit: Permit,
}

impl Drop for CapsuleMemory<'_> {
    fn drop(&mut self) {
        self.sum.set(self.sum.get() - self.bytes);
    }
}

/// What a connection becomes.
enum Opening<E> {
    Admin(Rc<Controller<E>>),
    Io(Rc<Controller<E>>),
}

impl<E: Export, C: Clock> Server<E, C> {
    /// A server without exports. `pool` gives the buffers of data and answers.
    #[must_use]
    pub fn new(clock: C, pool: BufPool, limits: ServerLimits, allowed: Allowed) -> Self {
        Self {
            clock,
            pool,
            limits,
            allowed,
            budget: Budget::new(limits.bytes_max),
            exports: Exports::default(),
            shapes: RefCell::default(),
            controllers: RefCell::default(),
            next_id: Cell::new(1),
            connections: Connections::new(limits.connections),
            capsule_bytes: Cell::new(0),
            stopped: Flag::default(),
        }
    }

    /// The exports, to be closed at any time, and their clients: each controller is one.
    pub fn exports(&self) -> &Exports<E> {
        &self.exports
    }

    /// Opens an export as a subsystem with one namespace.
    ///
    /// # Errors
    /// The name is taken or unusable, or the sizes are.
    pub fn open(&self, export: Rc<E>, shape: Shape) -> Result<(), OpenError> {
        let name = export.info().name;
        self.exports.open(export)?;
        let mut shapes = self.shapes.borrow_mut();
        shapes.retain(|(other, _)| *other != name);
        shapes.push((name, shape));
        Ok(())
    }

    /// Tells all queues to end as `how` says, and refuses new ones. Returns at once; wait for the calls of `serve`.
    pub fn stop(&self, how: Leave) {
        self.stopped.set();
        self.exports.tell_all(how);
    }

    /// Connections, those that are no queue yet included.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.count()
    }

    /// Memory of all requests in flight and of data in capsules, in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.budget.used_bytes()
    }

    /// Serves one connection until its end, and closes it. Returns only when no request of it is running any more.
    ///
    /// # Errors
    /// Why it ended before its time: for the log, nobody has to act.
    pub async fn serve<T: Transport>(&self, transport: T, ends: Ends) -> Result<Ended, NvmeError> {
        let result = self.serve_counted(&transport, ends).await;
        transport.close();
        result
    }

    async fn serve_counted<T: Transport>(
        &self,
        transport: &T,
        ends: Ends,
    ) -> Result<Ended, NvmeError> {
        if self.stopped.is_set() {
            return Ok(Ended::Stopped);
        }
        let entered = self.connections.enter(Some(ends.remote.ip()));
        let _connected = entered.map_err(NvmeError::TooManyConnections)?;
        let peer = Peer::default();
        let mut receiver = Receiver::new(transport, &peer, &self.pool, ADMIN_INBOX_BYTES, &[]);
        let arrival = Arrival {
            transport,
            clock: &self.clock,
            pool: &self.pool,
            limit: self.limits.handshake,
            stopped: &self.stopped,
        };
        let wish = match arrival.wish(&mut receiver).await? {
            Some(Ok(wish)) => wish,
            Some(Err(ended)) => return Ok(ended),
            None => return Ok(Ended::Stopped),
        };
        if wish.connect.queue == 0 && !self.have_predecessors_gone(&wish.data).await {
            return arrival.refuse(&wish, Status::CONNECT_BUSY.into()).await;
        }
        match self.opening(&wish, ends) {
            Ok(Opening::Admin(controller)) => {
                if !arrival.welcome(&wish, controller.id).await? {
                    return Ok(Ended::Stopped);
                }
                let link = link(transport, &peer, &self.pool, &wish);
                let told = || self.told(ends);
                let (clock, patience) = (&self.clock, self.limits.patience);
                let stopped = &self.stopped;
                let queue = AdminQueue::new(link, &controller, clock, patience, stopped, &told);
                queue.run(&mut receiver).await
            }
            Ok(Opening::Io(controller)) => {
                let leftover = receiver.bytes().to_vec();
                drop(receiver);
                self.serve_io(&arrival, &peer, &wish, &controller, &leftover)
                    .await
            }
            Err(refusal) => arrival.refuse(&wish, refusal).await,
        }
    }

    async fn serve_io<T: Transport>(
        &self,
        arrival: &Arrival<'_, T, C>,
        peer: &Peer,
        wish: &Wish,
        controller: &Controller<E>,
        leftover: &[u8],
    ) -> Result<Ended, NvmeError> {
        let _number = match controller.take_number(wish.connect.queue) {
            Ok(number) => number,
            Err(status) => return arrival.refuse(wish, status.into()).await,
        };
        let Some(_memory) = self.capsule_memory(entries(&wish.connect)).await else {
            return arrival.refuse(wish, Status::CONNECT_BUSY.into()).await;
        };
        if !arrival.welcome(wish, controller.id).await? {
            return Ok(Ended::Stopped);
        }
        let subsystem = controller.subsystem.as_ref();
        let subsystem = subsystem.expect("discovery gives no number to an I/O queue");
        let transport = arrival.transport;
        let mut receiver = Receiver::new(transport, peer, &self.pool, IO_INBOX_BYTES, leftover);
        let link = link(transport, peer, &self.pool, wish);
        let (clock, patience) = (&self.clock, self.limits.patience);
        let queue = IoQueue::new(link, controller, subsystem, clock, patience);
        queue.run(&mut receiver).await
    }

    /// Judges what a connection is to be.
    fn opening(&self, wish: &Wish, ends: Ends) -> Result<Opening<E>, Refusal> {
        let (connect, data) = (&wish.connect, &wish.data);
        if connect.record_format != 0 {
            return Err(Status::CONNECT_FORMAT.into());
        }
        if !self.allowed.has(&data.host) {
            return Err(Status::CONNECT_HOST.into());
        }
        if connect.size_less_one == 0 || connect.size_less_one >= QUEUE_ENTRIES_MAX {
            return Err(wrong(Parameter::OfCommand(44)));
        }
        let owner = Owner {
            host: data.host.clone(),
            host_id: data.host_id,
            subsystem: data.subsystem.clone(),
        };
        if connect.queue == 0 {
            if data.controller != ANY_CONTROLLER {
                return Err(wrong(Parameter::OfData(16)));
            }
            return self.new_controller(connect, owner, ends);
        }
        let controllers = self.controllers.borrow();
        let known = controllers.iter().find(|known| known.id == data.controller);
        let known = known.ok_or(wrong(Parameter::OfData(16)))?;
        if known.owner != owner {
            return Err(wrong(Parameter::OfData(256)));
        }
        let controller = known.controller.upgrade();
        let controller = controller.ok_or(wrong(Parameter::OfData(16)))?;
        Ok(Opening::Io(controller))
    }

    fn new_controller(
        &self,
        connect: &Connect,
        owner: Owner,
        ends: Ends,
    ) -> Result<Opening<E>, Refusal> {
        let subsystem = match owner.subsystem.as_str() {
            DISCOVERY_NAME => None,
            name => Some(self.enter(name, &owner.host, ends)?),
        };
        self.forget_gone();
        let mut controllers = self.controllers.borrow_mut();
        let mut id = self.next_id.get();
        // There are fewer connections than numbers.
        while controllers.iter().any(|known| known.id == id) {
            id = following(id);
        }
        self.next_id.set(following(id));
        let controller = Controller::new(id, owner, subsystem, connect.keep_alive_ms);
        let controller = Rc::new(controller);
        controllers.push(Known {
            controller: Rc::downgrade(&controller),
            id,
            owner: controller.owner.clone(),
            gone: Rc::clone(&controller.gone),
        });
        Ok(Opening::Admin(controller))
    }

    /// A host comes to a subsystem.
    fn enter(&self, name: &str, host: &str, ends: Ends) -> Result<Subsystem<E>, Refusal> {
        let missing = Refusal {
            status: Status::CONNECT_NO_SUBSYSTEM,
            result: Parameter::OfData(256).encode(),
        };
        let shapes = self.shapes.borrow();
        let (export, shape) = shapes
            .iter()
            .find(|(_, shape)| shape.identity.subsystem() == name)
            .ok_or(missing)?;
        let opened = self.exports.find(export).ok_or(missing)?;
        let peer = format!("{} {}", ends.remote.ip(), host.escape_default());
        let entered = self
            .exports
            .enter(&opened, peer, self.limits.requests, &self.budget);
        Ok(Subsystem {
            visit: entered.ok_or(missing)?,
            shape: *shape,
            admission: Mutex::new(),
        })
    }

    /// Waits for controllers that this host had of the subsystem, and that have ended: what they have under way would
    /// otherwise be done after what the host does now. `false` when that takes too long.
    async fn have_predecessors_gone(&self, data: &ConnectData) -> bool {
        let ending: Vec<Rc<Flag>> = {
            let controllers = self.controllers.borrow();
            let ending = controllers.iter().filter(|known| {
                let owner = &known.owner;
                let is_of_host = owner.host_id == data.host_id && owner.subsystem == data.subsystem;
                let controller = known.controller.upgrade();
                is_of_host && controller.is_some_and(|controller| controller.ended.is_set())
            });
            ending.map(|known| Rc::clone(&known.gone)).collect()
        };
        let gone = async {
            for gone in &ending {
                gone.wait().await;
            }
        };
        let late = self.clock.sleep(self.limits.handshake);
        first(gone, first(late, self.stopped.wait())).await;
        ending.iter().all(|gone| gone.is_set())
    }

    fn forget_gone(&self) {
        let is_there = |known: &Known<E>| !known.gone.is_set();
        self.controllers.borrow_mut().retain(is_there);
    }

    /// Memory for the data in the capsules of a queue; `None` when there is none.
    async fn capsule_memory(&self, entries: u16) -> Option<CapsuleMemory<'_>> {
        let bytes = u64::from(entries) * u64::from(IN_CAPSULE_BYTES_MAX);
        let sum = self.capsule_bytes.get() + bytes;
        let bytes_max = self.limits.bytes_max.max(2 * u64::from(REQUEST_BYTES_MAX));
        if sum > bytes_max / 2 {
            return None;
        }
        self.capsule_bytes.set(sum);
        let mut permit = None;
        let acquired = async { permit = Some(self.budget.acquire(bytes, Holds::Nothing).await) };
        let late = self.clock.sleep(self.limits.handshake);
        first(acquired, first(late, self.stopped.wait())).await;
        match permit {
            Some(_permit) => Some(CapsuleMemory {
                sum: &self.capsule_bytes,
                bytes,
                _permit,
            }),
            None => {
                self.capsule_bytes.set(self.capsule_bytes.get() - bytes);
                None
            }
        }
    }

    fn told(&self, ends: Ends) -> Told {
        let open = self.exports.list();
        let names = open.iter().map(|opened| opened.export().info().name);
        let shapes = self.shapes.borrow();
        let subsystem = |name: String| {
            let found = shapes.iter().find(|(known, _)| *known == name);
            found.map(|(_, shape)| shape.identity.subsystem())
        };
        Told {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            subsystems: names.filter_map(subsystem).collect(),
            address: ends.local,
        }
    }
}

/// The number of a controller behind another one.
fn following(id: u16) -> u16 {
    match id {
        CONTROLLER_MAX => 1,
        id => id + 1,
    }
}

/// Commands of a queue that may be under way.
fn entries(connect: &Connect) -> u16 {
    connect.size_less_one + 1 // at most `QUEUE_ENTRIES_MAX`
}

fn link<'a, T: Transport>(
    transport: &'a T,
    peer: &'a Peer,
    pool: &'a BufPool,
    wish: &Wish,
) -> Link<'a, T> {
    let queue = QueueFacts {
        entries: entries(&wish.connect),
        has_no_flow_control: wish.connect.has_no_flow_control,
    };
    Link::new(transport, peer, pool, wish.agreed, queue)
}
