//! Where clients come in to one volume, of whatever kind it is: the servers, and who is there.

use std::cell::{Ref, RefCell};
use std::path::Path;
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_block::wait::join_all;
use plexum_front::client::Leave;
use plexum_front::export::Export;
use plexum_front::exports::Exports;
use plexum_nbd::server::{Server, ServerLimits};
use plexum_runtime::clock::RealClock;
use plexum_runtime::socket::Socket;
use plexum_runtime::{Handle, JoinHandle};

use super::device::Device;
use super::listen::{Closed, accept, bind_unix};
use super::machine::{Ground, MachineServer};
use crate::problem::{Code, Problem};
use crate::volume::export::VolumeExport;
use crate::volume::status::ExportStatus;

/// What is behind a way in.
pub(crate) enum Front<E = VolumeExport> {
    /// A server for NBD.
    Nbd(Rc<Server<E, RealClock>>),
    /// A block device of the kernel.
    Device(Rc<Device<E>>),
    /// A target for NVMe/TCP.
    Nvme(Rc<plexum_nvme::server::Server<E, RealClock>>),
    /// A server for a virtual machine.
    Machine(Rc<MachineServer<E>>),
}

impl<E> Clone for Front<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Nbd(server) => Self::Nbd(Rc::clone(server)),
            Self::Device(device) => Self::Device(Rc::clone(device)),
            Self::Nvme(server) => Self::Nvme(Rc::clone(server)),
            Self::Machine(server) => Self::Machine(Rc::clone(server)),
        }
    }
}

impl<E: Export + 'static> Front<E> {
    /// What it serves, and to whom.
    pub(crate) fn exports(&self) -> &Exports<E> {
        match self {
            Self::Nbd(server) => server.exports(),
            Self::Device(device) => &device.exports,
            Self::Nvme(server) => server.exports(),
            Self::Machine(server) => &server.exports,
        }
    }

    /// Ends what is not yet a client.
    pub(crate) fn stop(&self, how: Leave) {
        match self {
            Self::Nbd(server) => server.stop(how),
            Self::Device(device) => device.exports.tell_all(how),
            Self::Nvme(server) => server.stop(how),
            Self::Machine(server) => server.stop(how),
        }
    }

    /// Takes away what it has made in the file system for itself.
    pub(crate) fn unbind(&self) {
        match self {
            Self::Nbd(_) | Self::Device(_) | Self::Nvme(_) => {}
            Self::Machine(server) => server.unbind(),
        }
    }

    /// How many use the volume `name` by it. A device is one client always; it counts when something stands on it.
    fn clients(&self, name: &str) -> u64 {
        match self {
            Self::Nbd(server) => server.exports().clients(name).len() as u64,
            Self::Device(device) => device.clients(),
            Self::Nvme(server) => server.exports().clients(name).len() as u64,
            Self::Machine(server) => server.exports.clients(name).len() as u64,
        }
    }
}

/// A way in for clients: its address, and the server behind it.
pub(crate) struct Way<E = VolumeExport> {
    pub(crate) uri: String,
    pub(crate) server: Front<E>,
}

/// All ways in to one volume, in the order in which they were opened.
pub(crate) struct Ways<E = VolumeExport>(RefCell<Vec<Way<E>>>);

impl<E> Default for Ways<E> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<E: Export + 'static> Ways<E> {
    /// One more.
    pub(crate) fn add(&self, uri: String, server: Front<E>) {
        self.0.borrow_mut().push(Way { uri, server });
    }

    /// They, for a look that does not wait.
    pub(crate) fn look(&self) -> Ref<'_, Vec<Way<E>>> {
        self.0.borrow()
    }

    /// The servers behind them.
    pub(crate) fn servers(&self) -> Vec<Front<E>> {
        let ways = self.0.borrow();
        ways.iter().map(|way| way.server.clone()).collect()
    }

    /// The clients of the volume `name` leave.
    pub(crate) async fn close(&self, name: &str, how: Leave) {
        let servers = self.servers();
        join_all(
            servers
                .iter()
                .map(|server| server.exports().close(name, how)),
        )
        .await;
    }

    /// Takes all of them: there is none any more.
    pub(crate) fn take(&self) -> Vec<Way<E>> {
        self.0.take()
    }

    /// The block device among them.
    pub(crate) fn device(&self) -> Option<Rc<Device<E>>> {
        let ways = self.0.borrow();
        ways.iter().find_map(|way| match &way.server {
            Front::Device(device) => Some(Rc::clone(device)),
            Front::Nbd(_) | Front::Nvme(_) | Front::Machine(_) => None,
        })
    }

    /// This block device stands no more.
    pub(crate) fn forget(&self, device: &Rc<Device<E>>) {
        let is_other = |way: &Way<E>| match &way.server {
            Front::Device(other) => !Rc::ptr_eq(other, device),
            Front::Nbd(_) | Front::Nvme(_) | Front::Machine(_) => true,
        };
        self.0.borrow_mut().retain(is_other);
    }

    /// Addresses and clients of the volume `name`, for its status.
    pub(crate) fn status(&self, name: &str) -> Vec<ExportStatus> {
        let ways = self.0.borrow();
        let each = ways.iter().map(|way| ExportStatus {
            uri: way.uri.clone(),
            clients: way.server.clients(name),
        });
        each.collect()
    }

    /// How many use the volume `name`.
    pub(crate) fn clients(&self, name: &str) -> u64 {
        let ways = self.0.borrow();
        ways.iter().map(|way| way.server.clients(name)).sum()
    }
}

/// Lets one virtual machine in at a socket, where it finds the export as its disk; the task accepts until `shut` is
/// set.
///
/// # Errors
/// `SocketInUse`, and as the system says.
pub(crate) fn listen_machine<E: Export + 'static>(
    handle: &Handle,
    ground: Ground,
    export: &Rc<E>,
    ways: &Ways<E>,
    shut: Closed,
) -> Result<JoinHandle<()>, Problem> {
    let path = ground.socket.clone();
    let listener = bind_unix(handle, &path)?;
    let server = Rc::new(MachineServer::new(ground));
    let opened = server.exports.open(Rc::clone(export));
    opened.map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    ways.add(machine_uri(&path), Front::Machine(Rc::clone(&server)));
    let spawner = handle.clone();
    let take = move |socket: Socket| {
        let _session = spawner.spawn(Rc::clone(&server).receive(socket));
    };
    Ok(accept(handle, listener, shut, take))
}

fn machine_uri(path: &Path) -> String {
    format!("vhost-user:{}", path.display())
}

/// Buffers and memory of the servers of a volume.
#[derive(Clone)]
pub(crate) struct Room {
    /// Where buffers of requests come from.
    pub(crate) pool: BufPool,
    /// Most that the requests of a server may hold.
    pub(crate) memory_bytes: u64,
}

impl Room {
    /// A server for NBD.
    pub(crate) fn nbd_server<E: Export>(&self, clock: RealClock) -> Rc<Server<E, RealClock>> {
        let limits = ServerLimits {
            bytes_max: self.memory_bytes,
            ..ServerLimits::default()
        };
        Rc::new(Server::new(clock, self.pool.clone(), limits))
    }
}
