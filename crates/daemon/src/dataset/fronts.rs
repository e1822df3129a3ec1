//! The ways in to the volumes of a pool: the servers that other volumes have too.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_block::wait::{first, join_all};
use plexum_front::budget::Budget;
use plexum_front::client::Leave;
use plexum_front::flag::Flag;
use plexum_nbd::server::Server;
use plexum_nvme::identity::Identity;
use plexum_runtime::Handle;
use plexum_runtime::clock::RealClock;
use plexum_ublk::identity::server_word;

use super::export::DatasetExport;
use super::volume::PoolVolume;
use crate::assembly::DeviceWish;
use crate::control::events::EventHub;
use crate::host::NvmeListen;
use crate::host::devices::remove_device;
use crate::host::listen::{accept, bind_tcp, bind_unix, serve_each, unix_uri};
use crate::host::machine::Ground;
use crate::host::making::{Making, tell_no_device};
use crate::host::nvme;
use crate::host::ways::{Front, Room, listen_machine};
use crate::problem::{Code, Problem};

type NbdServer = Server<DatasetExport, RealClock>;
type NvmeServer = plexum_nvme::server::Server<DatasetExport, RealClock>;

/// How long whoever works for a pool that has stopped is waited for: a device of the kernel must not keep the process.
const END_WAIT: Duration = Duration::from_secs(2);

/// What lets clients in to the volumes of a pool.
pub(crate) struct Fronts {
    handle: Handle,
    room: Room,
    events: EventHub,
    /// By their sockets.
    nbd: RefCell<BTreeMap<PathBuf, Rc<NbdServer>>>,
    nvme: RefCell<Option<Rc<NvmeServer>>>,
    /// No NVMe/TCP host is accepted any more.
    shut: Rc<Flag>,
}

impl Fronts {
    /// Nobody is let in yet.
    pub(super) fn new(handle: &Handle, room: Room, events: EventHub) -> Self {
        Self {
            handle: handle.clone(),
            room,
            events,
            nbd: RefCell::default(),
            nvme: RefCell::default(),
            shut: Rc::default(),
        }
    }

    /// From now on nobody is accepted at an address of several volumes.
    pub(super) fn shut(&self) {
        self.shut.set();
    }

    /// Buffers and memory of requests.
    pub(super) fn room(&self) -> &Room {
        &self.room
    }

    /// The clients of a volume leave, and what serves it ends.
    pub(super) async fn close(&self, volume: &PoolVolume) {
        volume.shut.set();
        volume.ways.close(volume.name(), Leave::Drain).await;
        for way in volume.ways.take() {
            way.server.unbind();
            // A target for NVMe/TCP is that of the other volumes as well.
            if !matches!(way.server, Front::Nvme(_)) {
                way.server.stop(Leave::Drain);
            }
        }
        if self.nbd.borrow_mut().remove(&volume.socket).is_some() {
            let _ = std::fs::remove_file(&volume.socket);
        }
        let tasks = volume.tasks.take();
        let ended = async {
            join_all(tasks).await;
        };
        first(ended, self.handle.clock().sleep(END_WAIT)).await;
    }

    /// Ends the target for NVMe/TCP; the volumes were closed.
    pub(super) fn end(&self) {
        if let Some(server) = self.nvme.take() {
            server.stop(Leave::Drain);
        }
    }

    /// Lets NBD clients in at a volume's socket.
    ///
    /// # Errors
    /// `SocketInUse`, and as the system says.
    pub(crate) fn listen_nbd(&self, volume: &PoolVolume) -> Result<(), Problem> {
        let server = self.nbd_of(volume)?;
        let opened = server.exports().open(Rc::clone(&volume.export));
        opened.map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
        let uri = unix_uri(volume.name(), &volume.socket);
        volume.ways.add(uri, Front::Nbd(server));
        Ok(())
    }

    /// The server at a volume's socket, which is bound when it is not yet: several volumes may have one.
    fn nbd_of(&self, volume: &PoolVolume) -> Result<Rc<NbdServer>, Problem> {
        let path = &volume.socket;
        if let Some(server) = self.nbd.borrow().get(path) {
            return Ok(Rc::clone(server));
        }
        let listener = bind_unix(&self.handle, path)?;
        let server = self.room.nbd_server(self.handle.clock());
        let take = serve_each(&self.handle, &server);
        let acceptor = accept(&self.handle, listener, Rc::clone(&volume.shut), take);
        volume.tasks.borrow_mut().push(acceptor);
        let mut known = self.nbd.borrow_mut();
        known.insert(path.clone(), Rc::clone(&server));
        Ok(server)
    }

    /// Lets NVMe/TCP hosts in to all volumes at an address.
    ///
    /// # Errors
    /// `SocketInUse`, and as the system says.
    pub(crate) fn listen_nvme(
        &self,
        volumes: &[Rc<PoolVolume>],
        listen: &NvmeListen,
    ) -> Result<SocketAddr, Problem> {
        let listener = bind_tcp(&self.handle, listen.address)?;
        let address = listener.local_address().unwrap_or(listen.address);
        let bytes = self.room.memory_bytes;
        let server = nvme::new_server(&self.handle, &self.room.pool, bytes, &listen.allowed);
        for volume in volumes {
            let shape = plexum_nvme::Shape {
                identity: Identity::of_key(&volume.key.to_string()),
                io_min_bytes: volume.block_bytes,
                io_opt_bytes: volume.block_bytes,
            };
            nvme::add_to((address, &server), &volume.export, shape, &volume.ways)?;
        }
        let take = nvme::serve_each(&self.handle, &server);
        let _acceptor = accept(&self.handle, listener, Rc::clone(&self.shut), take);
        *self.nvme.borrow_mut() = Some(server);
        Ok(address)
    }

    /// Lets one virtual machine have a volume as its disk.
    ///
    /// # Errors
    /// `SocketInUse`, and as the system says.
    pub(crate) fn listen_machine(&self, volume: &PoolVolume, path: &Path) -> Result<(), Problem> {
        let ground = Ground {
            name: volume.name().to_owned(),
            socket: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            budget: Budget::new(self.room.memory_bytes),
            pool: self.room.pool.clone(),
            clock: self.handle.clock(),
            events: self.events.clone(),
            shape: plexum_vhost::config::Shape {
                io_min_bytes: volume.block_bytes,
                io_opt_bytes: volume.block_bytes,
            },
        };
        let shut = Rc::clone(&volume.shut);
        let (export, ways) = (&volume.export, &volume.ways);
        let acceptor = listen_machine(&self.handle, ground, export, ways, shut)?;
        volume.tasks.borrow_mut().push(acceptor);
        Ok(())
    }

    /// Gives a volume its block device: the one that its last server has left, or a new one when that is wished. Gives
    /// its name, where it has one.
    ///
    /// # Errors
    /// A device that is wished for cannot be. One that could only be taken over is an event.
    pub(crate) async fn give_device(
        &self,
        volume: &PoolVolume,
        wish: DeviceWish,
    ) -> Result<Option<PathBuf>, Problem> {
        if let Some(device) = volume.device() {
            return Ok(Some(device.link()));
        }
        match (self.making(volume).give(wish, &volume.tasks).await, wish) {
            (Ok(link), _) => Ok(link),
            (Err(problem), DeviceWish::Make) => Err(problem),
            (Err(problem), DeviceWish::TakeOver) => {
                tell_no_device(&self.handle, &self.events, volume.name(), &problem);
                Ok(None)
            }
        }
    }

    /// Removes the block device of a volume.
    ///
    /// # Errors
    /// `Busy` when somebody uses it; there is none.
    pub(crate) async fn take_device(&self, volume: &PoolVolume) -> Result<(), Problem> {
        remove_device(&self.handle, volume.name(), volume.device()).await
    }

    fn making(&self, volume: &PoolVolume) -> Making<DatasetExport> {
        let (shut, name) = (Rc::clone(&volume.shut), volume.name().to_owned());
        Making {
            handle: self.handle.clone(),
            name: volume.name().to_owned(),
            export: Rc::clone(&volume.export),
            shape: plexum_ublk::params::Shape {
                io_min_bytes: volume.block_bytes,
                io_opt_bytes: volume.block_bytes,
            },
            word: server_word(&volume.key.to_string()),
            room: self.room.clone(),
            events: self.events.clone(),
            ways: Rc::clone(&volume.ways),
            check_open: Box::new(move || match shut.is_set() {
                true => Err(Problem::new(Code::Busy, format!("{name} is stopping"))),
                false => Ok(()),
            }),
        }
    }
}
