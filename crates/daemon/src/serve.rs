//! The body of `plexum serve`: open, assemble, listen, answer, and stop cleanly.
//!
//! Invariants:
//! - nobody can connect before everything is open, locked and assembled;
//! - a clean stop refuses new requests, lets the running ones end, makes the members clean, then lets go of them; the
//!   volume's control socket disappears last, so whoever waits for that knows that the members are free;
//! - one volume's trouble never ends another volume of the same server.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_engine::balance::Policy;
use plexum_front::client::Leave;
use plexum_front::counted::Counted;
use plexum_front::export::{Export, ExportInfo};
use plexum_nbd::server::{Server, ServerLimits};
use plexum_nbd::tls::{TlsMode, TlsServer};
use plexum_runtime::clock::RealClock;
use plexum_runtime::mailbox::{Mailbox, SendError, Sender, mailbox};
use plexum_runtime::process::join_write_out_path;
use plexum_runtime::signals::StopSignals;
use plexum_runtime::socket::Listener;
use plexum_runtime::{Handle, IoChoice, IoKind, Runtime};
use serde_json::json;

use crate::assembly::{AssembleRequest, Assembled, Body, RealVolume, open};
use crate::buffers::request_pool;
use crate::control::{Action, Answer, Ask, ControlServer, Request};
use crate::events::EventHub;
use crate::export::VolumeExport;
use crate::memory::{Key, Memory, StateDir, VolumeMemory};
use crate::ops::{act, take_up_settings};
use crate::problem::{Code, Problem};
use crate::rehearse::rehearse;
use crate::runtime_dir::{Kind, RuntimeDir, Surroundings, check_socket_path, free_socket_path};
use crate::served::{Facts, RealExport, RealServer, Served, Sockets};
use crate::shards::{Shards, spawn_on};
use crate::status::{JSON_VERSION, VolumeStatus};

/// Memory for requests when nothing else is asked for, in bytes.
pub const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// Least memory that the largest request (32 MiB) can be served with.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Requests of the control socket that may wait.
const ASKS_MAX: usize = 256;
/// Preferred size of requests, in bytes.
const BLOCK_BYTES_PREFERRED: u32 = 4096;
/// Turns of the executor that the watchers of a stopped volume get to end.
const LET_GO_TURNS: usize = 100;
/// Rest after the system could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What to serve and where.
#[derive(Clone, Debug)]
pub struct ServeRequest {
    /// One for each volume.
    pub volumes: Vec<AssembleRequest>,
    /// Of them the first so many were named: one that cannot be served keeps the others from it. The others were found,
    /// and each is served or not.
    pub named: usize,
    /// Unix socket instead of `RUNTIME/NAME.nbd`; for one volume only.
    pub socket: Option<PathBuf>,
    /// TCP address to listen on as well.
    pub listen: Option<SocketAddr>,
    /// TLS: what is shown and who is let in, and whether TCP clients must use it (others may).
    pub tls: Option<(TlsServer, TlsMode)>,
    /// How member I/O is done.
    pub io: IoChoice,
    /// How long a thread looks for a client's next request before it sleeps; zero: not at all.
    pub spin: Duration,
    /// Memory for requests.
    pub memory_bytes: u64,
    /// Threads that serve each volume, the main one included.
    pub cores: usize,
    /// Where sockets go.
    pub runtime_dir: RuntimeDir,
    /// Where events, results and settings are kept for the next start; nowhere for a trial.
    pub state_dir: Option<StateDir>,
}

/// A volume that clients can connect to now.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Its status.
    pub status: VolumeStatus,
    /// Its control socket.
    pub control: PathBuf,
    /// Things worth knowing about the start.
    pub notes: Vec<String>,
    /// With the last one: what was found and cannot be served, and why.
    pub left_out: Option<Vec<(String, Problem)>>,
}

/// What reaches the main task.
enum Message {
    Ask(Ask),
    StopAll,
    Stopped(String, Option<Problem>),
}

/// Tells somebody that a volume is ready. When that cannot be told, the volumes are stopped again.
pub type Tell<'a> = &'a mut dyn FnMut(&Ready) -> Result<(), Problem>;

/// Serves until told to stop. `ready` is called once for each volume.
///
/// # Errors
/// Everything that keeps the volumes from being served; after the start, what went wrong while telling of it or
/// stopping.
pub fn serve(request: ServeRequest, ready: Tell) -> Result<(), Problem> {
    request
        .runtime_dir
        .ensure(&Surroundings::of_this_process())?;
    let mut runtime =
        Runtime::new(request.io).map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    handle.set_spin(request.spin);
    let (sender, mut inbox) = mailbox(ASKS_MAX);
    let events = EventHub::default();
    let opened = runtime.block_on(House::open(&handle, &request, &events, &sender));
    let (mut house, notes, left_out) = opened?;
    let mut left_out = Some(left_out);
    let count = notes.len();
    // Before clients are let in: who reaches a volume can ask about it at once.
    let control = ControlServer::start(house.control_sockets(), post(&sender), events.clone())?;
    house
        .listen(&request)
        .inspect_err(|_| house.remove_sockets())?;
    house.start_tasks();
    let signals = StopSignals::new(&handle)
        .map_err(|error| Problem::from_io(&error, "catching", "signals"))?;
    let stop_sender = sender.clone();
    let _watcher = handle.spawn(async move {
        signals.next().await;
        let _ = stop_sender.send(Message::StopAll);
    });
    for (number, (served, notes)) in (1..).zip(house.volumes.borrow().iter().zip(&notes)) {
        let text = format!("{} is served", served.name());
        events.publish(
            handle.clock().wall_seconds(),
            served.name(),
            "started",
            text,
            None,
        );
        let told = ready(&Ready {
            status: served.status(),
            control: request.runtime_dir.file(served.name(), Kind::Control),
            notes: notes.clone(),
            left_out: left_out.take_if(|_| number == count),
        });
        if let Err(problem) = told {
            *house.failure.borrow_mut() = Some(problem);
            let _ = sender.send(Message::StopAll);
            break;
        }
    }
    let result = runtime.block_on(house.run(&mut inbox));
    let memory = house.memory.take();
    drop(house);
    drop(handle);
    drop(runtime);
    drop(control);
    if let Some(memory) = memory {
        memory.end();
    }
    result
}

/// What would be served, and what not.
#[derive(Debug)]
pub struct Rehearsal {
    /// Status and notes of each volume.
    pub volumes: Vec<(VolumeStatus, Vec<String>)>,
    /// What was found and cannot be served, by its members, and why.
    pub left_out: Vec<(String, Problem)>,
}

/// A dry run: opens, locks and assembles as `serve`, and looks at the places of the sockets.
///
/// # Errors
/// Everything that keeps the volumes from being served.
pub fn rehearse_serve(request: &ServeRequest) -> Result<Rehearsal, Problem> {
    let from = Surroundings::of_this_process();
    request.runtime_dir.check(&from)?;
    let mut runtime =
        Runtime::new(request.io).map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    handle.rehearse();
    let (sender, _inbox) = mailbox(ASKS_MAX);
    let events = EventHub::default();
    let opened = runtime.block_on(House::open(&handle, request, &events, &sender));
    let (house, notes, left_out) = opened?;
    for served in house.volumes.borrow().iter() {
        check_socket_path(&served.sockets.nbd)?;
    }
    if let Some(address) = request.listen {
        bind_tcp(&handle, address)?;
    }
    let volumes = house.volumes.borrow();
    let statuses = volumes.iter().map(|served| served.status());
    Ok(Rehearsal {
        volumes: statuses.zip(notes).collect(),
        left_out,
    })
}

/// How the control thread reaches the main task.
fn post(sender: &Sender<Message>) -> crate::control::Post {
    let sender = sender.clone();
    Arc::new(move |ask| match sender.send(Message::Ask(ask)) {
        Ok(()) => {}
        Err(SendError::Full(Message::Ask(ask))) => ask.answer(Err(Problem::new(
            Code::Busy,
            "the server has too many requests waiting; try again",
        ))),
        // Dropping the ask tells the client that the server is stopping.
        Err(_) => {}
    })
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

/// A house, what is worth knowing about each start, and what was found and cannot be served.
type OpenedHouse = (House, Vec<Vec<String>>, Vec<(String, Problem)>);

/// All volumes of this process.
struct House {
    handle: Handle,
    /// Buffers of requests.
    pool: BufPool,
    /// Volumes that have not ended.
    volumes: RefCell<Vec<Rc<Served>>>,
    servers: Vec<Rc<RealServer>>,
    /// Threads beside this one.
    shards: Rc<Shards>,
    events: EventHub,
    sender: Sender<Message>,
    failure: RefCell<Option<Problem>>,
    /// What outlives this process; none where nothing can be kept, and in a dry run.
    memory: Option<Memory>,
    /// Why nothing can be kept, until that is told.
    unkept: Option<String>,
}

impl House {
    /// Opens all volumes; nobody is let in yet.
    async fn open(
        handle: &Handle,
        request: &ServeRequest,
        events: &EventHub,
        sender: &Sender<Message>,
    ) -> Result<OpenedHouse, Problem> {
        if request.socket.is_some() && request.volumes.len() > 1 {
            return Err(Problem::new(
                Code::Usage,
                format!(
                    "--socket is for one volume, {} were found",
                    request.volumes.len()
                ),
            )
            .hint("leave it out: each volume gets a socket of its own"));
        }
        let shards = Shards::start(
            request.cores,
            request.io,
            request.spin,
            request.memory_bytes,
        )?;
        let state_dir = request.state_dir.as_ref();
        let memory = state_dir
            .filter(|_| !handle.is_rehearsal())
            .map(Memory::open);
        let (memory, unkept) = match memory {
            None => (None, None),
            Some(Ok(memory)) => (Some(memory), None),
            Some(Err(reason)) => (None, Some(reason)),
        };
        let mut house = Self {
            handle: handle.clone(),
            pool: request_pool(request.memory_bytes),
            volumes: RefCell::default(),
            servers: Vec::new(),
            shards: Rc::new(shards),
            events: events.clone(),
            sender: sender.clone(),
            failure: RefCell::default(),
            memory,
            unkept,
        };
        let (mut notes, mut left_out) = (Vec::new(), Vec::new());
        for (at, volume) in request.volumes.iter().enumerate() {
            let known = notes.len();
            let opened = house.open_volumes(request, volume, &mut notes).await;
            match opened {
                Err(problem) if at >= request.named && problem.code != Code::Usage => {
                    house.volumes.borrow_mut().truncate(known);
                    notes.truncate(known);
                    left_out.push((volume.members.join(" "), problem));
                }
                opened => opened?,
            }
        }
        if notes.is_empty() && !left_out.is_empty() {
            let (_, first) = left_out.remove(0);
            let others = left_out.iter();
            return Err(others.fold(first, |first, (_, other)| first.why(&other.message)));
        }
        Ok((house, notes, left_out))
    }

    /// Opens the volumes that some members make.
    async fn open_volumes(
        &mut self,
        request: &ServeRequest,
        volume: &AssembleRequest,
        notes: &mut Vec<Vec<String>>,
    ) -> Result<(), Problem> {
        let path = request.socket.as_deref();
        for assembled in open(&self.handle, &self.pool, volume.clone()).await? {
            if path.is_some() && !self.volumes.borrow().is_empty() {
                return Err(Problem::new(
                    Code::Usage,
                    "--socket is for one volume, and these drives hold several",
                )
                .hint("leave it out: each volume gets a socket of its own"));
            }
            let balance = volume.balance;
            let added = self.add_volume(assembled, path, &request.runtime_dir, balance);
            notes.push(added?);
            if let Some(served) = self.volumes.borrow().last() {
                let control = &served.sockets.control;
                match self.handle.is_rehearsal() {
                    true => check_socket_path(control).map(drop)?,
                    false => free_socket_path(control)?,
                }
            }
        }
        Ok(())
    }

    fn control_sockets(&self) -> Vec<PathBuf> {
        let volumes = self.volumes.borrow();
        volumes
            .iter()
            .map(|served| served.sockets.control.clone())
            .collect()
    }

    /// Removes the client sockets that were bound here.
    fn remove_sockets(&self) {
        for served in self.volumes.borrow().iter() {
            served.sockets.remove_nbd();
        }
    }

    fn add_volume(
        &mut self,
        assembled: Assembled,
        socket: Option<&Path>,
        runtime_dir: &RuntimeDir,
        balance: Option<Policy>,
    ) -> Result<Vec<String>, Problem> {
        let volume = Rc::new(assembled.body);
        let name = volume.name().to_owned();
        let is_taken = self
            .volumes
            .borrow()
            .iter()
            .any(|other| other.name() == name);
        if is_taken {
            return Err(Problem::new(
                Code::DuplicateMember,
                format!("two of the volumes are called {name}"),
            )
            .hint("serve one of them by itself with --name NAME"));
        }
        let io = self.handle.status();
        let facts = Facts {
            io: io.kind.to_string(),
            ..assembled.facts
        };
        let sector_bytes = volume.sector_bytes();
        let mut notes = assembled.notes;
        // Clients refuse a size that is no multiple of the block size, and could not reach the rest.
        let rest_bytes = volume.volume_bytes() % u64::from(sector_bytes);
        if rest_bytes > 0 {
            notes.push(format!(
                "the last {rest_bytes} bytes of {name} cannot be reached: its members have blocks of {sector_bytes} bytes"
            ));
        }
        let info = ExportInfo {
            name: name.clone(),
            description: format!("{} {}", facts.level, facts.format),
            size_bytes: volume.volume_bytes() - rest_bytes,
            block_bytes_min: sector_bytes,
            block_bytes_preferred: sector_bytes.max(BLOCK_BYTES_PREFERRED),
            is_read_only: volume.status().is_read_only,
            is_rotational: false,
        };
        let clock = self.handle.clock();
        let export = VolumeExport::new(Rc::clone(&volume), info, assembled.tally);
        let export: RealExport = Counted::new(export, clock.clone(), Arc::default());
        let export = Rc::new(export);
        if let (IoKind::Threads, Some(reason)) = (io.kind, &io.fallback_reason) {
            notes.push(format!("threads do the I/O: {reason}"));
        }
        let nbd = match socket {
            Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            None => runtime_dir.file(&name, Kind::Nbd),
        };
        let sockets = Sockets::new(nbd, runtime_dir.file(&name, Kind::Control));
        let memory = self.recall(&facts, &name, &mut notes);
        let served = Served::new(volume, export, facts, clock, sockets, memory);
        notes.extend(take_up_settings(&served, balance).err());
        self.volumes.borrow_mut().push(Rc::new(served));
        Ok(notes)
    }

    /// What is remembered of a volume.
    fn recall(&mut self, facts: &Facts, name: &str, notes: &mut Vec<String>) -> VolumeMemory {
        if let Some(reason) = self.unkept.take() {
            notes.push(format!(
                "events and results are not kept for the next start: {reason}"
            ));
        }
        let Some(memory) = &self.memory else {
            return VolumeMemory::unkept(name);
        };
        let key = Key::of(&facts.format, &facts.uuid, name);
        let (found, keeper) = (memory.find(&key, name), memory.keeper());
        let problem = found.problem;
        notes.extend(problem.map(|problem| format!("what was kept before is not used: {problem}")));
        self.events
            .remember(name, found.events, keeper.clone(), key.clone());
        VolumeMemory::kept(found.remembered, keeper, key)
    }

    /// One Unix socket for each volume, and one TCP address for all of them.
    fn listen(&mut self, request: &ServeRequest) -> Result<(), Problem> {
        let limits = ServerLimits {
            bytes_max: request.memory_bytes,
            ..ServerLimits::default()
        };
        let new_server = || Rc::new(Server::new(self.handle.clock(), self.pool.clone(), limits));
        let mut servers = Vec::new();
        for served in self.volumes.borrow().iter() {
            let path = &served.sockets.nbd;
            let listener = bind_unix(&self.handle, path)?;
            served.sockets.is_bound.set(true);
            let server = new_server();
            if let Some((tls, _)) = &request.tls {
                // Only this user reaches the socket: TLS is offered, not demanded.
                server.set_tls(tls.clone(), TlsMode::Selective);
            }
            add_export(&server, served)?;
            let uri = format!(
                "nbd+unix:///{}?socket={}",
                encode(served.name()),
                encode_path(path)
            );
            served
                .addresses
                .borrow_mut()
                .push((uri, Rc::clone(&server)));
            match self.shared(served, request) {
                true => self.accept_dealing(listener, &server, served.name()),
                false => accept(&self.handle, listener, &server),
            }
            servers.push(server);
        }
        if let Some(address) = request.listen {
            let listener = bind_tcp(&self.handle, address)?;
            let address = listener.local_address().unwrap_or(address);
            let server = new_server();
            let mut scheme = "nbd";
            if let Some((tls, mode)) = &request.tls {
                server.set_tls(tls.clone(), *mode);
                if *mode == TlsMode::Forced {
                    scheme = "nbds";
                }
            }
            for served in self.volumes.borrow().iter() {
                add_export(&server, served)?;
                let uri = format!("{scheme}://{address}/{}", encode(served.name()));
                served
                    .addresses
                    .borrow_mut()
                    .push((uri, Rc::clone(&server)));
            }
            accept(&self.handle, listener, &server);
            servers.push(server);
        }
        self.servers = servers;
        Ok(())
    }

    /// Divides a volume among the threads, if it can be: one of md, in one piece, that may be written to.
    fn shared(&self, served: &Rc<Served>, request: &ServeRequest) -> bool {
        let is_divisible = matches!(*served.volume, Body::Whole(_))
            && served.facts.format.starts_with("md-")
            && !served.volume.status().is_read_only;
        if self.shards.cores() == 1 || !is_divisible {
            return false;
        }
        let seeds = served.volume.share(self.shards.cores());
        let tallies = self.shards.serve(seeds, &served.export.info());
        served.export.count_elsewhere(tallies);
        let home = Home(Rc::clone(&served.volume));
        let sharing = RealVolume::run_sharing(home, spawn_on(&self.handle));
        let _sharing = self.handle.spawn(sharing);
        request.tls.is_none() // TLS is spoken by the main thread alone
    }

    /// Accepts connections for ever and deals them out among the threads.
    fn accept_dealing(&self, listener: Listener, server: &Rc<RealServer>, name: &str) {
        let (spawner, server) = (self.handle.clone(), Rc::clone(server));
        let (shards, name) = (Rc::downgrade(&self.shards), name.to_owned());
        let clock = self.handle.clock();
        let _acceptor = self.handle.spawn(async move {
            loop {
                let socket = match listener.accept().await {
                    Ok(socket) => socket,
                    Err(_) => {
                        clock.sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                let Some(shards) = shards.upgrade() else {
                    return; // the server ends
                };
                if let Some(socket) = shards.deal(&name, socket) {
                    let server = Rc::clone(&server);
                    let _session = spawner.spawn(async move { server.serve(socket).await });
                }
            }
        });
    }

    fn start_tasks(&self) {
        for served in self.volumes.borrow().iter() {
            let volume = Rc::clone(&served.volume);
            let _background = self
                .handle
                .spawn(async move { volume.run_background().await });
            let _sampler = self.handle.spawn(Rc::clone(served).sample());
            let _teller = self
                .handle
                .spawn(Rc::clone(served).tell(self.events.clone()));
        }
    }

    /// Answers until the last volume has ended.
    async fn run(&self, inbox: &mut Mailbox<Message>) -> Result<(), Problem> {
        while !self.volumes.borrow().is_empty() {
            match inbox.receive().await {
                None => break, // cannot be: the house holds a sender
                Some(Message::Ask(ask)) => self.answer(ask),
                Some(Message::StopAll) => {
                    for served in self.volumes.borrow().iter() {
                        self.stop(served, None);
                    }
                }
                Some(Message::Stopped(name, problem)) => {
                    let text = match &problem {
                        None => format!("{name} is stopped"),
                        Some(problem) => problem.message.clone(),
                    };
                    let time_s = self.handle.clock().wall_seconds();
                    self.events.publish(time_s, &name, "stopped", text, None);
                    if problem.is_some() {
                        *self.failure.borrow_mut() = problem;
                    }
                    self.let_go(&name).await;
                }
            }
        }
        for server in &self.servers {
            server.stop(Leave::Drain);
        }
        match self.failure.take() {
            None => Ok(()),
            Some(problem) => Err(problem),
        }
    }

    /// Closes the members of a stopped volume, then removes its sockets.
    async fn let_go(&self, name: &str) {
        let at = self
            .volumes
            .borrow()
            .iter()
            .position(|served| served.name() == name);
        let Some(at) = at else {
            return;
        };
        let served = self.volumes.borrow_mut().remove(at);
        let control = served.sockets.control.clone();
        served.sockets.remove_nbd();
        served.end();
        // The tasks that watched it end in their next turn; then this is the last one who knows it.
        for _ in 0..LET_GO_TURNS {
            if Rc::strong_count(&served) == 1 {
                break;
            }
            plexum_runtime::yield_now().await;
        }
        drop(served);
        let _ = std::fs::remove_file(control);
    }

    fn find(&self, name: &str) -> Result<Rc<Served>, Problem> {
        let volumes = self.volumes.borrow();
        let found = volumes.iter().find(|served| served.name() == name);
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = volumes.iter().map(|served| served.name()).collect();
            Problem::new(Code::NoSuchVolume, format!("no volume {name} is served"))
                .hint(format!("these are:   {}", names.join(" ")))
        })
    }

    fn answer(&self, ask: Ask) {
        let simple: Answer = match &ask.request {
            Request::List => {
                let volumes = self.volumes.borrow();
                let all: Vec<VolumeStatus> = volumes.iter().map(|served| served.status()).collect();
                Ok(json!({"version": JSON_VERSION, "kind": "volumes", "volumes": all}))
            }
            Request::Show { volume } => self
                .find(volume)
                .map(|served| serde_json::to_value(served.status()).unwrap_or_default()),
            Request::Stats { volume, reset } => {
                self.find(volume).map(|served| served.stats(*reset))
            }
            Request::Requests { volume } => self.find(volume).map(|served| served.requests()),
            Request::Attached { volume } => self
                .find(volume)
                .map(|_| json!({"is_fit": join_write_out_path()})),
            Request::Act { volume, action } => match self.find(volume) {
                Ok(served) => {
                    let action = action.clone();
                    return self.change(&served, action, ask);
                }
                Err(problem) => Err(problem),
            },
            Request::Rehearse { volume, action } => match self.find(volume) {
                Ok(served) => {
                    let (action, handle) = (action.clone(), self.handle.clone());
                    let _task = self.handle.spawn(async move {
                        let answer = rehearse(&served, &handle, action).await;
                        ask.answer(answer);
                    });
                    return;
                }
                Err(problem) => Err(problem),
            },
        };
        ask.answer(simple);
    }

    /// Changes wait for members, so each is a task of its own.
    fn change(&self, served: &Rc<Served>, action: Action, ask: Ask) {
        if action == Action::Stop {
            return self.stop(served, Some(ask));
        }
        if served.is_stopping.get() {
            return ask.answer(Err(Problem::new(
                Code::Busy,
                format!("{} is stopping", served.name()),
            )));
        }
        let (served, handle) = (Rc::clone(served), self.handle.clone());
        let _task = self.handle.spawn(async move {
            let answer = act(&served, &handle, action).await;
            ask.answer(answer);
        });
    }

    fn stop(&self, served: &Rc<Served>, ask: Option<Ask>) {
        if served.is_stopping.replace(true) {
            if let Some(ask) = ask {
                ask.answer(Ok(
                    json!({"message": format!("{} is stopping", served.name())}),
                ));
            }
            return;
        }
        let (served, sender) = (Rc::clone(served), self.sender.clone());
        let shards = Rc::clone(&self.shards);
        let clock = self.handle.clock();
        let _task = self.handle.spawn(async move {
            let addresses: Vec<Rc<RealServer>> = {
                let addresses = served.addresses.borrow();
                addresses.iter().map(|(_, server)| Rc::clone(server)).collect()
            };
            for server in addresses {
                server.exports().close(served.name(), Leave::Drain).await;
            }
            shards.end_sessions(served.name()).await;
            let result = served.volume.stop().await;
            shards.forget(served.name());
            let problem = result.err().map(|error| {
                Problem::new(
                    Code::IoError,
                    format!("{} could not be stopped cleanly: {error}", served.name()),
                )
                .why("its members are as a power cut would have left them; the next start repairs that")
            });
            if let Some(ask) = ask {
                ask.answer(match &problem {
                    None => Ok(json!({"message": format!("{} is stopped", served.name())})),
                    Some(problem) => Err(problem.clone()),
                });
            }
            let mut message = Message::Stopped(served.name().to_owned(), problem);
            // The mailbox may be full of status requests for a moment.
            while let Err(SendError::Full(back)) = sender.send(message) {
                message = back;
                clock.sleep(Duration::from_millis(1)).await;
            }
        });
    }
}

fn add_export(server: &Rc<RealServer>, served: &Rc<Served>) -> Result<(), Problem> {
    server
        .exports()
        .open(Rc::clone(&served.export))
        .map_err(|error| {
            Problem::new(Code::Usage, error.to_string()).hint("choose another one with --name")
        })
}

fn bind_tcp(handle: &Handle, address: SocketAddr) -> Result<Listener, Problem> {
    Listener::bind_tcp(handle, address).map_err(|error| {
        let mut problem = Problem::from_io(&error, "listening on", &address.to_string());
        if error.kind() == std::io::ErrorKind::AddrInUse {
            problem.code = Code::SocketInUse;
        }
        problem.member = None;
        problem
    })
}

/// Binds a Unix socket that only this user can open.
pub(crate) fn bind_unix(handle: &Handle, path: &Path) -> Result<Listener, Problem> {
    free_socket_path(path)?;
    let shown = path.display().to_string();
    let tell = |error: std::io::Error| {
        let problem = Problem::from_io(&error, "binding socket", &shown);
        match problem.code {
            Code::NoSuchFile => {
                problem.hint("its folder does not exist: choose one with --socket PATH")
            }
            _ => problem,
        }
    };
    let listener = Listener::bind_unix(handle, path).map_err(tell)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(tell)?;
    Ok(listener)
}

/// Accepts connections for ever; each session is a task of its own.
pub(crate) fn accept<E: Export + 'static>(
    handle: &Handle,
    listener: Listener,
    server: &Rc<Server<E, RealClock>>,
) {
    let (spawner, server) = (handle.clone(), Rc::clone(server));
    let clock = handle.clock();
    let _acceptor = handle.spawn(async move {
        loop {
            match listener.accept().await {
                Ok(socket) => {
                    let server = Rc::clone(&server);
                    let address = socket.remote_address();
                    let _session = spawner.spawn(async move {
                        match address {
                            Some(address) => server.serve_from(socket, address.ip()).await,
                            None => server.serve(socket).await,
                        }
                    });
                }
                Err(_) => clock.sleep(ACCEPT_PAUSE).await,
            }
        }
    });
}

/// Percent-encodes a name for a URI.
pub(crate) fn encode(name: &str) -> String {
    encode_keeping(name, b"-._~")
}

pub(crate) fn encode_path(path: &Path) -> String {
    encode_keeping(&path.display().to_string(), b"-._~/")
}

fn encode_keeping(text: &str, kept: &[u8]) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            encoded.push(byte as char);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
