//! `plexum serve --dataset`: volumes of a ZFS pool, or snapshots of them, as read-only NBD exports; with `--write`
//! volumes that are written. Those of one pool share it.
//!
//! Invariants: members are opened read-only unless the volume is written; a block that cannot be read is an I/O error
//! to the client, never wrong data; labels say that the pool is in use before anybody is let in, and that it may be
//! taken elsewhere after the last commit.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::device::{Fua, IoError};
use plexum_front::client::Leave;
use plexum_front::export::{Export, ExportInfo, Extent, ZeroRequest};
use plexum_nbd::server::{Server, ServerLimits};
use plexum_pool::{Foreign, LivePool, LiveVolume, MemberInfo};
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::Access;
use plexum_runtime::mailbox::{SendError, mailbox};
use plexum_runtime::process::join_write_out_path;
use plexum_runtime::signals::StopSignals;
use plexum_runtime::{Handle, IoChoice, Runtime};
use plexum_zfs::{DatasetName, MemberReport, OpenOptions, PoolReport, Volume};
use serde_json::json;

use crate::buffers::request_pool;
use crate::control::answers::not_the_daemon;
use crate::control::events::EventHub;
use crate::control::request::{Action, Answer, Ask, Request};
use crate::control::server::ControlServer;
use crate::host::listen::{accept, bind_unix, serve_each, unix_uri};
use crate::open::AnyDevice;
use crate::pool_write::{Trust, of_pool, open_writable, wall_seconds};
use crate::problem::{Code, Problem};
use crate::runtime_dir::{Kind, RuntimeDir, Surroundings, check_socket_path};
use crate::serve::{Ready, Tell};
use crate::volume::empty_slot;
use crate::volume::status::{
    ExportStatus, JSON_VERSION, MemberState, MemberStatus, Verdict, VolumeStatus,
};
use crate::zfs::{of_zfs, open_pool};

/// Requests of the control socket that may wait.
const ASKS_MAX: usize = 64;
/// What may wait for a commit, parity and pointers included.
const PENDING_BYTES_MAX: u64 = 128 << 20;

/// What to serve and where.
#[derive(Clone, Debug)]
pub struct DatasetRequest {
    /// `POOL/VOLUME[@SNAPSHOT]`, at least one; all of one pool.
    pub datasets: Vec<String>,
    /// Members as the user wrote them.
    pub members: Vec<String>,
    /// An older root.
    pub txg: Option<u64>,
    /// Whether clients may write.
    pub access: Access,
    /// Whether the pool is checked before it is written.
    pub trust: Trust,
    /// Name of the export instead of the last part of the data set's; of the only one.
    pub name: Option<String>,
    /// Unix socket instead of `RUNTIME/NAME.nbd`.
    pub socket: Option<PathBuf>,
    /// How member I/O is done.
    pub io: IoChoice,
    /// How long a thread looks for a client's next request before it sleeps; zero: not at all.
    pub spin: Duration,
    /// Memory for requests.
    pub memory_bytes: u64,
    /// Where sockets go.
    pub runtime_dir: RuntimeDir,
}

/// What is served.
enum Content {
    Read(Volume<AnyDevice>),
    Write(Box<LiveVolume<AnyDevice, RealClock>>),
}

/// A volume of a pool as NBD clients see it.
struct DatasetExport {
    content: Content,
    info: ExportInfo,
    buffers: BufPool,
}

impl DatasetExport {
    fn writable(&self) -> Result<&LiveVolume<AnyDevice, RealClock>, IoError> {
        match &self.content {
            Content::Read(_) => Err(IoError::ReadOnly),
            Content::Write(volume) => Ok(volume),
        }
    }

    async fn finish(&self, fua: Fua) -> Result<(), IoError> {
        match fua {
            Fua::Yes => self.flush().await,
            Fua::No => Ok(()),
        }
    }
}

impl Export for DatasetExport {
    fn info(&self) -> ExportInfo {
        self.info.clone()
    }
    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        let length = length_bytes as usize;
        let bytes = match &self.content {
            Content::Read(volume) => volume
                .read(offset_bytes, length)
                .await
                .map_err(|_| IoError::Medium)?,
            Content::Write(volume) => volume
                .read(offset_bytes, length)
                .await
                .map_err(|error| error.io_error())?,
        };
        Ok(self.buffers.copy_of(&bytes).freeze().into())
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let written = self.writable()?.write(offset_bytes, &data).await;
        written.map_err(|error| error.io_error())?;
        self.finish(fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        match &self.content {
            Content::Read(_) => Ok(()),
            Content::Write(volume) => volume.flush().await.map_err(|error| error.io_error()),
        }
    }
    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        let trimmed = self
            .writable()?
            .trim(offset_bytes..offset_bytes.saturating_add(length_bytes))
            .await;
        trimmed.map_err(|error| error.io_error())?;
        self.finish(fua).await
    }
    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        how: ZeroRequest,
    ) -> Result<(), IoError> {
        self.trim(offset_bytes, length_bytes, how.fua).await
    }
    async fn cache(&self, _: u64, _: u64) -> Result<(), IoError> {
        Ok(())
    }
    async fn status(&self, _: u64, length_bytes: u64, _: usize) -> Result<Vec<Extent>, IoError> {
        Ok(vec![Extent {
            length_bytes,
            is_hole: false,
            is_zero: false,
        }])
    }
}

enum Message {
    Ask(Ask),
    Stop,
}

/// A dry run: opens the pool and the volume, and looks at the places of the sockets.
///
/// # Errors
/// As `serve_dataset`.
pub fn rehearse_dataset(request: &DatasetRequest) -> Result<(), Problem> {
    let from = Surroundings::of_this_process();
    request.runtime_dir.check(&from)?;
    let mut runtime =
        Runtime::new(request.io).map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    handle.rehearse();
    let served = runtime.block_on(Served::open(&handle, request))?;
    for volume in &served.volumes {
        check_socket_path(&volume.control)?;
        check_socket_path(&volume.socket)?;
    }
    Ok(())
}

/// Serves until told to stop. `ready` is called once.
///
/// # Errors
/// Of opening the pool and the volume; of binding sockets.
pub fn serve_dataset(request: &DatasetRequest, ready: Tell) -> Result<(), Problem> {
    request
        .runtime_dir
        .ensure(&Surroundings::of_this_process())?;
    let mut runtime =
        Runtime::new(request.io).map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    handle.set_spin(request.spin);
    let (sender, mut inbox) = mailbox(ASKS_MAX);
    let served = runtime.block_on(Served::open(&handle, request))?;
    let asks = sender.clone();
    let post = Arc::new(move |ask| {
        if let Err(SendError::Full(Message::Ask(ask))) = asks.send(Message::Ask(ask)) {
            ask.answer(Err(Problem::new(
                Code::Busy,
                "the server has too many requests waiting",
            )));
        }
    });
    // Before clients are let in: who reaches the volume can ask about it at once.
    let controls = served.volumes.iter().map(|volume| volume.control.clone());
    let control = ControlServer::start(controls.collect(), post, EventHub::default())?;
    let mut acceptors = Vec::new();
    for socket in served.sockets() {
        let listener = bind_unix(&handle, socket)?;
        let take = serve_each(&handle, &served.server);
        acceptors.push(accept(&handle, listener, Rc::default(), take));
    }
    let signals = StopSignals::new(&handle)
        .map_err(|error| Problem::from_io(&error, "catching", "signals"))?;
    let _watcher = handle.spawn(async move {
        signals.next().await;
        let _ = sender.send(Message::Stop);
    });
    let told = served.tell(ready);
    let _upkeep = served.live.clone().map(|live| {
        handle.spawn(async move {
            // What stands in the way is in the status; the volume is served all the same.
            let _ = live.make_good().await;
        })
    });
    runtime.block_on(async {
        while told.is_ok()
            && let Some(message) = inbox.receive().await
        {
            let Message::Ask(ask) = message else { break };
            if served.answer(ask) {
                break;
            }
        }
        let exports = served.server.exports();
        for volume in &served.volumes {
            exports.close(&volume.status.volume, Leave::Drain).await;
        }
        served.server.stop(Leave::Drain);
    });
    let exported = match &served.live {
        Some(live) => runtime
            .block_on(live.export())
            .map_err(|error| of_pool(&error)),
        None => Ok(()),
    };
    served.remove_sockets();
    drop(acceptors);
    drop(served);
    drop(handle);
    drop(runtime);
    drop(control);
    told.and(exported)
}

/// A volume that is served.
struct ServedVolume {
    status: VolumeStatus,
    socket: PathBuf,
    control: PathBuf,
}

struct Served {
    server: Rc<Server<DatasetExport, RealClock>>,
    volumes: Vec<ServedVolume>,
    notes: Vec<String>,
    /// The members in the order of the status.
    members: Vec<MemberReport>,
    /// The pool, when it is written.
    live: Option<Rc<LivePool<AnyDevice, RealClock>>>,
}

/// A volume that was opened.
struct OpenedVolume {
    dataset: String,
    content: Content,
    size_bytes: u64,
    block_bytes: u64,
}

/// What was opened, and what is known of the pool.
struct Opened {
    volumes: Vec<OpenedVolume>,
    report: PoolReport,
    live: Option<Rc<LivePool<AnyDevice, RealClock>>>,
}

impl Opened {
    async fn of(handle: &Handle, request: &DatasetRequest) -> Result<Self, Problem> {
        if request.access == Access::ReadWrite {
            return Self::writable(handle, request).await;
        }
        let pool = open_pool(handle, &request.members, &OpenOptions { txg: request.txg }).await?;
        let mut volumes = Vec::new();
        for name in &request.datasets {
            let dataset = DatasetName::parse(name);
            let volume = pool.volume(&dataset).await.map_err(|error| {
                of_zfs(&error).hint(format!(
                    "a file system is shown by:   plexum attach --dataset {dataset} FOLDER MEMBER..."
                ))
            })?;
            volumes.push(OpenedVolume {
                dataset: name.clone(),
                size_bytes: volume.size_bytes(),
                block_bytes: volume.block_bytes(),
                content: Content::Read(volume),
            });
        }
        Ok(Self {
            volumes,
            report: pool.report.clone(),
            live: None,
        })
    }

    async fn writable(handle: &Handle, request: &DatasetRequest) -> Result<Self, Problem> {
        let mut pool =
            open_writable(handle, &request.members, Foreign::Refused, request.trust).await?;
        let report = pool.report().cloned();
        let report = report
            .ok_or_else(|| Problem::new(Code::Bug, "a pool that was opened has no report"))?;
        for name in &request.datasets {
            let opened = pool.open_volume(name).await;
            opened.map_err(|error| of_pool(&error))?;
        }
        if !handle.is_rehearsal() {
            let begun = pool.begin(wall_seconds()?).await;
            begun.map_err(|error| of_pool(&error))?;
        }
        let live = Rc::new(LivePool::new(pool, handle.clock(), PENDING_BYTES_MAX));
        let mut volumes = Vec::new();
        for name in &request.datasets {
            let volume = LiveVolume::open(&live, name).await;
            let volume = volume.map_err(|error| of_pool(&error))?;
            volumes.push(OpenedVolume {
                dataset: name.clone(),
                size_bytes: volume.volume().size_bytes,
                block_bytes: volume.volume().block_bytes,
                content: Content::Write(Box::new(volume)),
            });
        }
        Ok(Self {
            volumes,
            report,
            live: Some(live),
        })
    }
}

impl Served {
    /// Opens the pool and the volumes; nobody is let in yet.
    async fn open(handle: &Handle, request: &DatasetRequest) -> Result<Self, Problem> {
        let opened = Opened::of(handle, request).await?;
        let buffers = request_pool(request.memory_bytes);
        let limits = ServerLimits {
            bytes_max: request.memory_bytes,
            ..ServerLimits::default()
        };
        let server = Rc::new(Server::new(handle.clock(), buffers.clone(), limits));
        let mut volumes = Vec::new();
        for volume in opened.volumes {
            let dataset = DatasetName::parse(&volume.dataset);
            let name = request.name.clone().unwrap_or_else(|| {
                let last = volume.dataset.rsplit('/').next();
                last.unwrap_or(&volume.dataset).to_owned()
            });
            let socket = match &request.socket {
                Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
                None => request.runtime_dir.file(&name, Kind::Nbd),
            };
            let info = ExportInfo {
                name: name.clone(),
                description: format!("ZFS volume {dataset}"),
                size_bytes: volume.size_bytes,
                block_bytes_min: 512,
                block_bytes_preferred: u32::try_from(volume.block_bytes).unwrap_or(4096).max(4096),
                is_read_only: request.access == Access::ReadOnly,
                is_rotational: false,
            };
            let mut status = status(&opened.report, &name, &socket, info.size_bytes, handle);
            status.is_read_only = info.is_read_only;
            let export = DatasetExport {
                content: volume.content,
                info,
                buffers: buffers.clone(),
            };
            server
                .exports()
                .open(Rc::new(export))
                .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
            volumes.push(ServedVolume {
                control: request.runtime_dir.file(&name, Kind::Control),
                socket,
                status,
            });
        }
        Ok(Self {
            server,
            volumes,
            members: opened.report.members,
            notes: opened.report.notes,
            live: opened.live,
        })
    }

    /// Says of each volume that clients may come.
    fn tell(&self, ready: Tell) -> Result<(), Problem> {
        for (n, volume) in self.volumes.iter().enumerate() {
            let is_last = n + 1 == self.volumes.len();
            ready(&Ready {
                left_out: is_last.then(Vec::new),
                status: self.status(volume),
                control: volume.control.clone(),
                notes: if n == 0 {
                    self.notes.clone()
                } else {
                    Vec::new()
                },
            })?;
        }
        Ok(())
    }

    /// The sockets for clients, each once.
    fn sockets(&self) -> BTreeSet<&PathBuf> {
        self.volumes.iter().map(|volume| &volume.socket).collect()
    }

    fn remove_sockets(&self) {
        for socket in self.sockets() {
            let _ = std::fs::remove_file(socket);
        }
    }

    fn status(&self, volume: &ServedVolume) -> VolumeStatus {
        let mut status = volume.status.clone();
        for export in &mut status.exports {
            export.clients = self.server.session_count() as u64;
        }
        let members = self.live.as_ref().map(|live| live.members());
        for member in members.iter().flatten() {
            let place = |one: &MemberReport| {
                one.guid == member.guid && u32::try_from(one.plex_id) == Ok(member.plex_id)
            };
            let shown = self.members.iter().position(place);
            let shown = shown.and_then(|at| status.members.get_mut(at));
            if let Some(shown) = shown {
                shown.state = live_state(member, shown.state);
            }
        }
        let is_whole = status
            .members
            .iter()
            .all(|member| member.state == MemberState::Active);
        status.verdict = if is_whole {
            Verdict::Ok
        } else {
            Verdict::Degraded
        };
        status
    }

    /// Answers; `true` ends the server.
    fn answer(&self, ask: Ask) -> bool {
        let is_stop = matches!(
            &ask.request,
            Request::Act {
                action: Action::Stop,
                ..
            }
        );
        let named = |name: &str| {
            let mut volumes = self.volumes.iter();
            volumes.find(|volume| volume.status.volume == name)
        };
        let all = self.volumes.iter().map(|volume| self.status(volume));
        let unknown =
            |name: &str| Problem::new(Code::NoSuchVolume, format!("{name} is not served here"));
        let answer: Answer = match &ask.request {
            Request::List => Ok(
                json!({"version": JSON_VERSION, "kind": "volumes", "volumes": all.collect::<Vec<_>>()}),
            ),
            Request::Show { volume } => match named(volume) {
                Some(volume) => Ok(serde_json::to_value(self.status(volume)).unwrap_or_default()),
                None => Err(unknown(volume)),
            },
            Request::Act {
                action: Action::Stop,
                volume: name,
            } => Ok(json!({"message": format!("{name} is stopped")})),
            Request::Attached { .. } => Ok(json!({"is_fit": join_write_out_path()})),
            Request::Open { .. }
            | Request::Start { .. }
            | Request::Forget { .. }
            | Request::Alarm(_) => Err(not_the_daemon()),
            Request::Stats { volume: name, .. }
            | Request::Requests { volume: name }
            | Request::Rehearse { volume: name, .. }
            | Request::Act { volume: name, .. } => Err(Problem::new(
                Code::ReadOnly,
                format!("{name} is a volume of a ZFS pool: it can be shown and stopped"),
            )),
        };
        ask.answer(answer);
        is_stop
    }
}

fn status(
    report: &PoolReport,
    name: &str,
    socket: &std::path::Path,
    size_bytes: u64,
    handle: &Handle,
) -> VolumeStatus {
    let members: Vec<MemberStatus> = report.members.iter().map(member_status).collect();
    let is_whole = members
        .iter()
        .all(|member| member.state == MemberState::Active);
    let mut kinds: Vec<String> = report
        .plexes
        .iter()
        .filter_map(|(_, plex)| Some(plex.as_ref()?.kind.to_string()))
        .collect();
    kinds.dedup();
    VolumeStatus {
        version: JSON_VERSION,
        kind: "volume".into(),
        volume: name.to_owned(),
        verdict: if is_whole {
            Verdict::Ok
        } else {
            Verdict::Degraded
        },
        level: kinds.join("+"),
        layout: None,
        strip_bytes: None,
        format: "zfs".into(),
        uuid: report.guid.to_string(),
        size_bytes,
        member_bytes: None,
        slots: u32::try_from(members.len()).unwrap_or(u32::MAX),
        spare_failures: 0,
        designed_spare_failures: None,
        event_count: report.root.txg,
        is_dirty: false,
        is_read_only: true,
        balance: "round-robin".into(),
        consistency: "checksums".into(),
        bitmap: None,
        log: None,
        io: handle.status().kind.to_string(),
        exports: vec![ExportStatus {
            uri: unix_uri(name, socket),
            clients: 0,
        }],
        members,
        former_disks: Vec::new(),
        attachments: Vec::new(),
        jobs: Vec::new(),
        last_scrub: None,
        scrub_plan: None,
        findings: Vec::new(),
        next: None,
        server_pid: std::process::id(),
        server_waits: handle.clock().waits().into(),
    }
}

/// The state of a member of a pool that is written; `before`: as it was opened.
fn live_state(member: &MemberInfo, before: MemberState) -> MemberState {
    match (&member.out, member.missed_groups) {
        (Some(_), _) if before == MemberState::Missing => MemberState::Missing,
        (Some(_), _) => MemberState::Faulty,
        (None, 0) => MemberState::Active,
        (None, _) => MemberState::Rebuilding,
    }
}

fn member_status(member: &MemberReport) -> MemberStatus {
    MemberStatus {
        slot: u32::try_from(member.slot).ok(),
        path: Some(member.name.clone().unwrap_or_else(|| member.path.clone())),
        serial: None,
        was: None,
        state: match (&member.name, member.is_stale) {
            (None, _) => MemberState::Missing,
            (Some(_), true) => MemberState::Stale,
            (Some(_), false) => MemberState::Active,
        },
        ..empty_slot(0)
    }
}
