//! `plexum serve --dataset`: volumes of a ZFS pool, or snapshots of them, read-only; with `--write` volumes that are
//! written. Those of one pool share it.
//!
//! Invariants: nobody is let in before everything is open; whoever has asked for the end is answered.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plexum_runtime::file::Access;
use plexum_runtime::mailbox::{Mailbox, SendError, mailbox};
use plexum_runtime::signals::StopSignals;
use plexum_runtime::{IoChoice, Runtime};

use crate::assembly::DeviceWish;
use crate::control::events::EventHub;
use crate::control::request::{Action, Ask, Request};
use crate::control::server::ControlServer;
use crate::dataset::PoolServed;
use crate::host::listen::bind_tcp;
use crate::host::{NvmeListen, Refusal};
use crate::pool_write::Trust;
use crate::problem::{Code, Problem};
use crate::runtime_dir::{RuntimeDir, Surroundings};
use crate::serve::{Ready, Tell};

/// Requests of the control socket that may wait.
const ASKS_MAX: usize = 64;

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
    /// Where to listen for NVMe/TCP as well.
    pub nvme: Option<NvmeListen>,
    /// Where one virtual machine finds the only volume as its disk.
    pub vhost_user: Option<PathBuf>,
    /// Whether block devices are made.
    pub device: DeviceWish,
    /// How member I/O is done.
    pub io: IoChoice,
    /// How long a thread looks for a client's next request before it sleeps; zero: not at all.
    pub spin: Duration,
    /// Memory for requests.
    pub memory_bytes: u64,
    /// Where sockets go.
    pub runtime_dir: RuntimeDir,
}

/// The pool of a data set.
#[must_use]
pub fn pool_of(dataset: &str) -> &str {
    dataset.split(['/', '@']).next().unwrap_or_default()
}

impl DatasetRequest {
    /// The pool that all data sets are in.
    #[must_use]
    pub fn pool_name(&self) -> &str {
        self.datasets.first().map_or("", |first| pool_of(first))
    }

    /// The name that a data set is served by.
    #[must_use]
    pub fn name_of(&self, dataset: &str) -> String {
        let last = || dataset.rsplit('/').next().unwrap_or(dataset).to_owned();
        self.name.clone().unwrap_or_else(last)
    }

    /// The names that the data sets are served by.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.datasets.iter().map(|dataset| self.name_of(dataset))
    }

    /// Looks at the names before anything is opened.
    ///
    /// # Errors
    /// `DuplicateMember`: two of them are the same.
    pub(crate) fn check_names(&self) -> Result<(), Problem> {
        let mut known = BTreeSet::new();
        match self.names().find(|name| !known.insert(name.clone())) {
            None => Ok(()),
            Some(name) => Err(Refusal::NameTaken { name }.problem()),
        }
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
    let served = runtime.block_on(PoolServed::open(&handle, request, EventHub::default()))?;
    served.check_places()?;
    if request.vhost_user.is_some() {
        served.only("--vhost-user")?;
    }
    if let Some(nvme) = &request.nvme {
        bind_tcp(&handle, nvme.address)?;
    }
    Ok(())
}

/// Serves until told to stop. `ready` is called once for each volume.
///
/// # Errors
/// Of opening the pool and the volumes; of binding sockets.
pub fn serve_dataset(request: &DatasetRequest, ready: Tell) -> Result<(), Problem> {
    request
        .runtime_dir
        .ensure(&Surroundings::of_this_process())?;
    let mut runtime =
        Runtime::new(request.io).map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    handle.set_spin(request.spin);
    let (sender, mut inbox) = mailbox(ASKS_MAX);
    let events = EventHub::default();
    let served = runtime.block_on(PoolServed::open(&handle, request, events.clone()))?;
    let served = Rc::new(served);
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
    let controls = served
        .volumes()
        .iter()
        .map(|one| one.control.clone())
        .collect();
    let control = ControlServer::start(controls, post, events)?;
    let signals = StopSignals::new(&handle)
        .map_err(|error| Problem::from_io(&error, "catching", "signals"))?;
    let _watcher = handle.spawn(async move {
        signals.next().await;
        let _ = sender.send(Message::Stop);
    });
    let result = runtime.block_on(async {
        let opened = let_in(&served, request).await;
        let told = opened.and_then(|()| tell(&served, ready));
        if told.is_ok() {
            served.start_upkeep();
            hear(&served, &mut inbox).await;
        }
        let closed = served.close().await;
        told.and(closed)
    });
    // Whoever waits for the end looks at the control sockets: the members are free before these are gone.
    drop(served);
    drop(handle);
    drop(runtime);
    drop(control);
    result
}

/// Lets clients in by all ways that were asked for.
async fn let_in(served: &PoolServed, request: &DatasetRequest) -> Result<(), Problem> {
    let (fronts, volumes) = (&served.fronts, served.volumes());
    for volume in &volumes {
        fronts.listen_nbd(volume)?;
    }
    if let Some(nvme) = &request.nvme {
        fronts.listen_nvme(&volumes, nvme)?;
    }
    if let Some(path) = &request.vhost_user {
        fronts.listen_machine(&*served.only("--vhost-user")?, path)?;
    }
    for volume in &volumes {
        fronts.give_device(volume, request.device).await?;
    }
    Ok(())
}

/// Answers what comes until somebody asks for the end.
async fn hear(served: &Rc<PoolServed>, inbox: &mut Mailbox<Message>) {
    while let Some(message) = inbox.receive().await {
        let Message::Ask(ask) = message else {
            // The process ends: perhaps to be started again.
            served.leave_devices_to_successor();
            return;
        };
        let is_stop = matches!(
            &ask.request,
            Request::Act {
                action: Action::Stop,
                ..
            }
        );
        match &ask.request {
            Request::ShowPool { pool }
            | Request::RehearsePool { pool, .. }
            | Request::ChangePool { pool, .. }
                if served.is_called(pool) =>
            {
                served.answer_of_pool(ask, || ());
            }
            request => {
                let answer = served.answer(request);
                ask.answer(answer);
            }
        }
        if is_stop {
            return;
        }
    }
}

/// Says of each volume that clients may come.
fn tell(served: &PoolServed, ready: Tell) -> Result<(), Problem> {
    let volumes = served.volumes();
    for (n, volume) in volumes.iter().enumerate() {
        let is_last = n + 1 == volumes.len();
        ready(&Ready {
            left_out: is_last.then(Vec::new),
            status: served.status(volume),
            control: volume.control.clone(),
            notes: match n {
                0 => served.notes.clone(),
                _ => Vec::new(),
            },
        })?;
    }
    Ok(())
}
