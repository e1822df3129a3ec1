//! The body of `plexum serve`: a host with the volumes that were named or found, until the last one is stopped.
//!
//! Invariants:
//! - nobody can connect before everything is open, locked and assembled;
//! - the control thread ends last: whoever has asked for the end is answered.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use plexum_nbd::tls::{TlsMode, TlsServer};
use plexum_runtime::mailbox::{Mailbox, SendError, Sender, mailbox};
use plexum_runtime::signals::StopSignals;
use plexum_runtime::{IoChoice, Runtime};

use crate::assembly::AssembleRequest;
use crate::control::answers::answer;
use crate::control::events::EventHub;
use crate::control::request::Ask;
use crate::control::{ControlServer, Post};
use crate::disk::DiskSettings;
use crate::host::listen::bind_tcp;
use crate::host::{Host, HostSettings, Hosted, NvmeListen};
use crate::memory::StateDir;
use crate::problem::{Code, Problem};
use crate::runtime_dir::{RuntimeDir, Surroundings, check_socket_path};
use crate::volume::status::VolumeStatus;

/// Memory for requests when nothing else is asked for, in bytes.
pub const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// Least memory that the largest request (32 MiB) can be served with.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Requests of the control socket that may wait.
pub(crate) const ASKS_MAX: usize = 256;

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
    /// Where to listen for NVMe/TCP as well.
    pub nvme: Option<NvmeListen>,
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
pub(crate) enum Message {
    Ask(Ask),
    StopAll,
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
    let (sender, inbox) = mailbox(ASKS_MAX);
    let events = EventHub::default();
    let host = Host::new(&handle, settings(&request), events.clone())?;
    let (admitted, left_out) = runtime.block_on(admit_all(&host, &request))?;
    let control = Rc::new(ControlServer::start(Vec::new(), post(&sender), events)?);
    host.set_control(Rc::clone(&control));
    if let Some(address) = request.listen {
        host.listen_tcp(address)?;
    }
    if let Some(nvme) = &request.nvme {
        host.listen_nvme(nvme)?;
    }
    let signals = StopSignals::new(&handle)
        .map_err(|error| Problem::from_io(&error, "catching", "signals"))?;
    let stop_sender = sender.clone();
    let _watcher = handle.spawn(async move {
        signals.next().await;
        let _ = stop_sender.send(Message::StopAll);
    });
    host.open(&admitted)?;
    let given = runtime.block_on(host.give_devices(&admitted));
    let told = given.and_then(|()| tell_ready(&admitted, left_out, ready));
    if told.is_err() {
        let _ = sender.send(Message::StopAll);
    }
    drop(admitted);
    runtime.block_on(async {
        select(pin!(hear(&host, inbox)), pin!(host.empty())).await;
    });
    host.end();
    let result = told.and(host.failure().map_or(Ok(()), Err));
    drop(host);
    drop(handle);
    drop(runtime);
    drop(control);
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
    let host = Host::new(&handle, settings(request), EventHub::default())?;
    let (admitted, left_out) = runtime.block_on(admit_all(&host, request))?;
    for hosted in &admitted {
        check_socket_path(hosted.client_socket())?;
    }
    let nvme = request.nvme.as_ref().map(|nvme| nvme.address);
    for address in request.listen.into_iter().chain(nvme) {
        bind_tcp(&handle, address)?;
    }
    let told = admitted.iter().filter_map(|hosted| {
        let status = hosted.status()?;
        Some((status, hosted.notes().to_vec()))
    });
    Ok(Rehearsal {
        volumes: told.collect(),
        left_out,
    })
}

fn settings(request: &ServeRequest) -> HostSettings {
    HostSettings {
        io: request.io,
        spin: request.spin,
        memory_bytes: request.memory_bytes,
        cores: request.cores,
        tls: request.tls.clone(),
        runtime_dir: request.runtime_dir.clone(),
        state_dir: request.state_dir.clone(),
        disks: DiskSettings::of_this_process(),
    }
}

/// Volumes that were admitted, and what was found and cannot be served, by its members, and why.
type Admitted = (Vec<Rc<Hosted>>, Vec<(String, Problem)>);

/// Admits all volumes that were asked for; nobody is let in yet.
async fn admit_all(host: &Host, request: &ServeRequest) -> Result<Admitted, Problem> {
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
    let (mut admitted, mut left_out) = (Vec::new(), Vec::new());
    for (at, volume) in request.volumes.iter().enumerate() {
        let known = admitted.len();
        match admit(host, request, volume, &mut admitted).await {
            Err(problem) if at >= request.named && problem.code != Code::Usage => {
                for hosted in admitted.drain(known..) {
                    host.dismiss(&hosted);
                }
                left_out.push((volume.members.join(" "), problem));
            }
            other => other?,
        }
    }
    if admitted.is_empty() && !left_out.is_empty() {
        let (_, first) = left_out.remove(0);
        let others = left_out.iter();
        return Err(others.fold(first, |first, (_, other)| first.why(&other.message)));
    }
    Ok((admitted, left_out))
}

/// Admits the volumes that some members make.
async fn admit(
    host: &Host,
    request: &ServeRequest,
    volume: &AssembleRequest,
    admitted: &mut Vec<Rc<Hosted>>,
) -> Result<(), Problem> {
    for prepared in host.prepare(volume).await? {
        if request.socket.is_some() && !admitted.is_empty() {
            return Err(Problem::new(
                Code::Usage,
                "--socket is for one volume, and these drives hold several",
            )
            .hint("leave it out: each volume gets a socket of its own"));
        }
        admitted.push(host.admit(prepared, request.socket.as_deref())?);
    }
    Ok(())
}

/// Tells of each volume that clients can connect to; the last one says what was left out.
fn tell_ready(
    admitted: &[Rc<Hosted>],
    left_out: Vec<(String, Problem)>,
    ready: Tell,
) -> Result<(), Problem> {
    let mut left_out = Some(left_out);
    for (number, hosted) in (1..).zip(admitted) {
        let Some(status) = hosted.status() else {
            continue;
        };
        ready(&Ready {
            status,
            control: hosted.control_socket().to_owned(),
            notes: hosted.notes().to_vec(),
            left_out: left_out.take_if(|_| number == admitted.len()),
        })?;
    }
    Ok(())
}

/// Answers what comes, for as long as somebody can ask.
async fn hear(host: &Rc<Host>, mut inbox: Mailbox<Message>) {
    while let Some(message) = inbox.receive().await {
        match message {
            Message::Ask(ask) => answer(host, ask),
            Message::StopAll => drop(host.close_all()),
        }
    }
}

/// How the control thread reaches the main task.
pub(crate) fn post(sender: &Sender<Message>) -> Post {
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
