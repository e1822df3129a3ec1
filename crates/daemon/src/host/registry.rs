//! The registry itself: which volumes there are, letting clients in, and who they are.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::wait::{Mutex, Signal};
use plexum_front::client::{ClientId, ClientStatus, Leave};
use plexum_front::export::Export;
use plexum_front::flag::Flag;
use plexum_nbd::tls::TlsMode;
use plexum_runtime::Handle;
use plexum_runtime::socket::Socket;

use super::goal::goal_of;
use super::hosted::{Hosted, RealServer, Stage};
use super::listen::{accept, bind_tcp, bind_unix, encode, serve_each, unix_uri};
use super::nvme::{self, NvmeAddresses, NvmeListen};
use super::refusal::{Hold, Refusal};
use super::settings::HostSettings;
use super::shards::{Shards, spawn_on};
use super::ways::{Front, Room};
use crate::assembly::{Body, RealVolume};
use crate::buffers::request_pool;
use crate::control::events::EventHub;
use crate::control::server::ControlServer;
use crate::memory::{Keeper, Memory, StateDir};
use crate::problem::{Code, Problem};

/// A client of one volume, on any core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientKey {
    /// Core that serves it; 0 is the main thread.
    pub core: usize,
    /// Way that it came in by.
    pub way: usize,
    /// Which one of them.
    pub id: ClientId,
}

/// A TCP address on which all volumes are found.
struct TcpAddress {
    scheme: &'static str,
    address: SocketAddr,
    server: Rc<RealServer>,
}

/// All volumes of this process. Belongs to one thread.
pub struct Host {
    pub(super) handle: Handle,
    pub(super) settings: HostSettings,
    /// Buffers of requests.
    pub(super) pool: BufPool,
    pub(super) volumes: RefCell<Vec<Rc<Hosted>>>,
    /// Volumes come, go, or get to another stage.
    pub(super) changed: Signal,
    tcp: RefCell<Vec<TcpAddress>>,
    /// Addresses for NVMe/TCP.
    nvme: NvmeAddresses,
    /// Threads beside this one.
    pub(super) shards: Rc<Shards>,
    pub(super) events: EventHub,
    pub(super) control: RefCell<Option<Rc<ControlServer>>>,
    /// What outlives this process; none where nothing can be kept, and in a dry run.
    pub(super) memory: Option<Memory>,
    /// Why nothing can be kept, until that is told.
    pub(super) unkept: Cell<Option<String>>,
    /// The last volume that could not be closed cleanly.
    pub(super) failure: RefCell<Option<Problem>>,
    /// Held while a block device is made.
    pub(super) making_devices: Mutex,
    shut: Rc<Flag>,
}

/// A volume as its task for the shards holds it.
#[derive(Clone)]
struct Home(Rc<Body>);

impl Deref for Home {
    type Target = RealVolume;
    fn deref(&self) -> &RealVolume {
        &self.0
    }
}

impl Host {
    /// A host without volumes, on the thread of `handle`.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new(
        handle: &Handle,
        settings: HostSettings,
        events: EventHub,
    ) -> Result<Rc<Self>, Problem> {
        let shards = Shards::start(&settings)?;
        let kept = settings.state_dir.as_ref();
        let kept = kept.filter(|_| !handle.is_rehearsal()).map(Memory::open);
        let (memory, unkept) = match kept {
            None => (None, None),
            Some(Ok(memory)) => (Some(memory), None),
            Some(Err(reason)) => (None, Some(reason)),
        };
        Ok(Rc::new(Self {
            handle: handle.clone(),
            pool: request_pool(settings.memory_bytes),
            settings,
            volumes: RefCell::default(),
            changed: Signal::new(),
            tcp: RefCell::default(),
            nvme: NvmeAddresses::default(),
            shards: Rc::new(shards),
            events,
            control: RefCell::default(),
            memory,
            unkept: Cell::new(unkept),
            failure: RefCell::default(),
            making_devices: Mutex::new(),
            shut: Rc::default(),
        }))
    }

    /// From now on each volume that opens has a control socket at `control`.
    pub fn set_control(&self, control: Rc<ControlServer>) {
        *self.control.borrow_mut() = Some(control);
    }

    /// The thread that the volumes are served on.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Who writes what is to be kept; none where nothing can be.
    pub(crate) fn keeper(&self) -> Option<Keeper> {
        self.memory.as_ref().map(Memory::keeper)
    }

    /// Where it is kept what outlives this process; none where nothing can be kept.
    pub(crate) fn state_dir(&self) -> Option<&StateDir> {
        let dir = self.settings.state_dir.as_ref();
        dir.filter(|_| self.memory.is_some())
    }

    /// What happens to volumes is told there.
    pub(crate) fn events(&self) -> &EventHub {
        &self.events
    }

    /// What holds for all volumes.
    #[must_use]
    pub fn settings(&self) -> &HostSettings {
        &self.settings
    }

    /// The volume called `name`, at whatever stage.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Rc<Hosted>> {
        let volumes = self.volumes.borrow();
        volumes.iter().find(|hosted| hosted.name() == name).cloned()
    }

    /// The volume called `name`.
    ///
    /// # Errors
    /// `NoSuchVolume`, with the names that there are.
    pub fn find(&self, name: &str) -> Result<Rc<Hosted>, Refusal> {
        self.get(name).ok_or_else(|| {
            let volumes = self.volumes.borrow();
            Refusal::NoSuchVolume {
                name: name.to_owned(),
                served: volumes
                    .iter()
                    .map(|hosted| hosted.name().to_owned())
                    .collect(),
            }
        })
    }

    /// All volumes, in the order in which they were admitted.
    #[must_use]
    pub fn list(&self) -> Vec<Rc<Hosted>> {
        self.volumes.borrow().clone()
    }

    /// Who holds a volume.
    ///
    /// # Errors
    /// `NoSuchVolume`.
    pub fn holds(&self, name: &str) -> Result<Vec<Hold>, Refusal> {
        Ok(self.find(name)?.holds())
    }

    /// Returns when there is no volume any more.
    pub async fn empty(&self) {
        self.changed
            .until(|| self.volumes.borrow().is_empty())
            .await;
    }

    /// The last volume that could not be closed cleanly, and why.
    #[must_use]
    pub fn failure(&self) -> Option<Problem> {
        self.failure.borrow().clone()
    }

    /// Lets clients in to volumes that were admitted, or to none of them.
    ///
    /// # Errors
    /// `SocketInUse`, and as the system says; the volumes are still admitted then.
    pub fn open(self: &Rc<Self>, admitted: &[Rc<Hosted>]) -> Result<(), Refusal> {
        for hosted in admitted {
            assert_eq!(hosted.stage(), Stage::Admitted, "opened once");
        }
        // Before clients are let in: who reaches a volume can ask about it at once.
        let ready = self
            .add_control(admitted)
            .and_then(|()| admitted.iter().try_for_each(|hosted| self.listen(hosted)));
        if let Err(problem) = ready {
            for hosted in admitted {
                self.shut_ways(hosted);
            }
            return Err(problem.into());
        }
        for hosted in admitted {
            hosted.stage.set(Stage::Open);
            self.start_tasks(hosted)?;
            let time_s = self.handle.clock().wall_seconds();
            let text = format!("{} is served", hosted.name());
            self.events
                .publish(time_s, hosted.name(), "started", text, None);
        }
        self.changed.notify();
        Ok(())
    }

    /// Listens on a TCP address, where all volumes are found that are open or will be; gives the address, with the port
    /// that the system chose.
    ///
    /// # Errors
    /// `SocketInUse`, and as the system says.
    pub fn listen_tcp(&self, address: SocketAddr) -> Result<SocketAddr, Refusal> {
        let listener = bind_tcp(&self.handle, address)?;
        let address = listener.local_address().unwrap_or(address);
        let server = self.new_server();
        let mut scheme = "nbd";
        if let Some((tls, mode)) = &self.settings.tls {
            server.set_tls(tls.clone(), *mode);
            if *mode == TlsMode::Forced {
                scheme = "nbds";
            }
        }
        let tcp = TcpAddress {
            scheme,
            address,
            server: Rc::clone(&server),
        };
        for hosted in self.volumes.borrow().iter() {
            if hosted.stage() == Stage::Open {
                add_tcp(hosted, &tcp)?;
            }
        }
        self.tcp.borrow_mut().push(tcp);
        let take = serve_each(&self.handle, &server);
        let _acceptor = accept(&self.handle, listener, Rc::clone(&self.shut), take);
        Ok(address)
    }

    /// As `listen_tcp`, for NVMe/TCP.
    ///
    /// # Errors
    /// `SocketInUse`, and as the system says.
    pub fn listen_nvme(&self, listen: &NvmeListen) -> Result<SocketAddr, Refusal> {
        let listener = bind_tcp(&self.handle, listen.address)?;
        let address = listener.local_address().unwrap_or(listen.address);
        let memory_bytes = self.settings.memory_bytes;
        let server = nvme::new_server(&self.handle, &self.pool, memory_bytes, &listen.allowed);
        self.nvme.open(address, &server, &self.volumes.borrow())?;
        let take = nvme::serve_each(&self.handle, &server);
        let _acceptor = accept(&self.handle, listener, Rc::clone(&self.shut), take);
        Ok(address)
    }

    /// The clients of a volume, on all cores.
    ///
    /// # Errors
    /// `NoSuchVolume`.
    pub async fn clients(&self, name: &str) -> Result<Vec<(ClientKey, ClientStatus)>, Refusal> {
        let hosted = self.find(name)?;
        let mut clients = Vec::new();
        for (way, open) in hosted.ways.look().iter().enumerate() {
            for client in open.server.exports().clients(name) {
                let (core, id) = (0, client.id);
                clients.push((ClientKey { core, way, id }, client));
            }
        }
        for (core, client) in self.shards.clients(name).await {
            let (way, id) = (0, client.id);
            clients.push((ClientKey { core, way, id }, client));
        }
        Ok(clients)
    }

    /// Tells one client to leave, and returns when it has; its neighbours and the volume stay.
    ///
    /// # Errors
    /// `NoSuchVolume`, `NoSuchClient`.
    pub async fn end_client(
        &self,
        name: &str,
        client: ClientKey,
        how: Leave,
    ) -> Result<(), Refusal> {
        let hosted = self.find(name)?;
        let has_left = match client.core {
            0 => {
                let found = hosted.ways.look().get(client.way).and_then(|way| {
                    let exports = way.server.exports();
                    exports.client(name, client.id)
                });
                match found {
                    Some(client) => {
                        client.leave(how).await;
                        true
                    }
                    None => false,
                }
            }
            core => self.shards.end_client(core, name, client.id, how).await,
        };
        match has_left {
            true => Ok(()),
            false => Err(Refusal::NoSuchClient {
                name: name.to_owned(),
            }),
        }
    }

    /// Ends everything that is not a volume; the volumes must have been closed. What is kept for the next start is
    /// written when this returns.
    pub fn end(&self) {
        self.shut.set();
        for tcp in self.tcp.borrow_mut().drain(..) {
            tcp.server.stop(Leave::Drain);
        }
        self.nvme.end();
        if let Some(memory) = &self.memory {
            memory.end();
        }
    }

    fn new_server(&self) -> Rc<RealServer> {
        self.room().nbd_server(self.handle.clock())
    }

    /// Buffers and memory of the servers of a volume.
    pub(super) fn room(&self) -> Room {
        Room {
            pool: self.pool.clone(),
            memory_bytes: self.settings.memory_bytes,
        }
    }

    fn add_control(&self, admitted: &[Rc<Hosted>]) -> Result<(), Problem> {
        let mut paths = admitted.iter().map(|hosted| hosted.control_socket());
        paths.try_for_each(|path| self.add_control_at(path))
    }

    /// One more control socket, where there is a control server.
    ///
    /// # Errors
    /// `SocketInUse`, and as the system says.
    pub(crate) fn add_control_at(&self, path: &Path) -> Result<(), Problem> {
        let control = self.control.borrow();
        control.as_ref().map_or(Ok(()), |control| control.add(path))
    }

    /// A control socket is removed.
    pub(crate) fn remove_control_at(&self, path: &Path) {
        if let Some(control) = &*self.control.borrow() {
            control.remove(path);
        }
    }

    /// A Unix socket for the volume, and its name at each TCP address.
    fn listen(&self, hosted: &Rc<Hosted>) -> Result<(), Problem> {
        let path = &hosted.sockets.nbd;
        let listener = bind_unix(&self.handle, path)?;
        hosted.sockets.is_bound.set(true);
        let server = self.new_server();
        if let Some((tls, _)) = &self.settings.tls {
            // Only this user reaches the socket: TLS is offered, not demanded.
            server.set_tls(tls.clone(), TlsMode::Selective);
        }
        let uri = unix_uri(hosted.name(), path);
        add_way(hosted, uri, &server)?;
        for tcp in self.tcp.borrow().iter() {
            add_tcp(hosted, tcp)?;
        }
        self.nvme.add(hosted)?;
        let take = serve_each(&self.handle, &server);
        let (shards, name) = (Rc::clone(&self.shards), hosted.name().to_owned());
        // TLS is spoken by the main thread alone.
        let is_dealt = self.is_divisible(hosted) && self.settings.tls.is_none();
        let deal = move |socket: Socket| {
            let own = match is_dealt {
                true => shards.deal(&name, socket),
                false => Some(socket),
            };
            if let Some(socket) = own {
                take(socket);
            }
        };
        let acceptor = accept(
            &self.handle,
            listener,
            Rc::clone(&hosted.shut.borrow()),
            deal,
        );
        hosted.tasks.borrow_mut().push(acceptor);
        self.listen_machines(hosted)
    }

    /// Takes every way in to a volume away again; nobody was let in.
    fn shut_ways(&self, hosted: &Hosted) {
        hosted.shut.take().set();
        hosted.sockets.remove_nbd();
        for way in hosted.ways.take() {
            way.server.unbind();
            way.server.exports().withdraw(hosted.name());
        }
        self.remove_control_at(hosted.control_socket());
    }

    /// Whether a volume can be divided among the threads: one of md, in one piece, that may be written to.
    pub(super) fn is_divisible(&self, hosted: &Hosted) -> bool {
        let Ok(served) = hosted.served() else {
            return false;
        };
        self.shards.cores() > 1
            && matches!(*served.volume, Body::Whole(_))
            && served.facts.is_md()
            && !served.volume.status().is_read_only
    }

    fn start_tasks(self: &Rc<Self>, hosted: &Rc<Hosted>) -> Result<(), Refusal> {
        let served = hosted.served()?;
        if self.is_divisible(hosted) {
            let seeds = served.volume.share(self.shards.cores());
            let info = served.export.info();
            let elsewhere = self.shards.serve(seeds, &info);
            served.export.clients().count_elsewhere(elsewhere);
            let home = Home(Rc::clone(&served.volume));
            let sharing = RealVolume::run_sharing(home, spawn_on(&self.handle));
            hosted.tasks.borrow_mut().push(self.handle.spawn(sharing));
        }
        self.start_duties(hosted)?;
        // What an earlier server began may have all but ended.
        let is_left = goal_of(&served).is_some() && matches!(*served.volume, Body::Whole(_));
        if is_left || matches!(*served.volume, Body::Reshaping(_)) {
            self.follow_reshape(hosted, &served);
        }
        Ok(())
    }

    /// Whoever works for a volume as long as it is open in its present geometry.
    pub(super) fn start_duties(self: &Rc<Self>, hosted: &Rc<Hosted>) -> Result<(), Refusal> {
        let served = hosted.served()?;
        let mut duties = hosted.duties.borrow_mut();
        let volume = Rc::clone(&served.volume);
        let background = async move { volume.run_background().await };
        duties.push(self.handle.spawn(background));
        duties.push(self.handle.spawn(Rc::clone(&served).sample()));
        let knowing = Rc::clone(&served);
        let knowing = knowing.know_disks(self.settings.disks.clone(), self.events.clone());
        duties.push(self.handle.spawn(knowing));
        let telling = Rc::clone(&served).tell(self.events.clone());
        duties.push(self.handle.spawn(telling));
        Ok(())
    }
}

fn add_tcp(hosted: &Hosted, tcp: &TcpAddress) -> Result<(), Problem> {
    let TcpAddress {
        scheme, address, ..
    } = tcp;
    let uri = format!("{scheme}://{address}/{}", encode(hosted.name()));
    add_way(hosted, uri, &tcp.server)
}

fn add_way(hosted: &Hosted, uri: String, server: &Rc<RealServer>) -> Result<(), Problem> {
    let served = hosted.served().map_err(Refusal::problem)?;
    let opened = server.exports().open(Rc::clone(&served.export));
    opened.map_err(|error| {
        Problem::new(Code::Usage, error.to_string()).hint("choose another one with --name")
    })?;
    hosted.ways.add(uri, Front::Nbd(Rc::clone(server)));
    Ok(())
}
