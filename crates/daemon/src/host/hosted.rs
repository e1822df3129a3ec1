//! One volume in the registry: its stage, where clients come in, who works on it.
//!
//! Invariants:
//! - the volume is there until it was let go of; whoever keeps a `Hosted` for longer keeps no member open;
//! - a stage is only left forwards: admitted, open, closing, and then it is gone.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use plexum_block::wait::{Gauge, GaugeGuard, Mutex};
use plexum_engine::state::Standing;
use plexum_front::client::Leave;
use plexum_front::flag::Flag;
use plexum_nbd::server::Server;
use plexum_runtime::JoinHandle;
use plexum_runtime::clock::RealClock;

use super::device::Device;
use super::refusal::{Hold, Refusal};
use super::ways::Ways;
use crate::assembly::{AssembleRequest, DeviceWish};
use crate::volume::export::VolumeExport;
use crate::volume::served::Served;
use crate::volume::status::{ExportStatus, VolumeStatus};

/// The NBD server of this process.
pub(crate) type RealServer = Server<VolumeExport, RealClock>;

/// The NVMe/TCP target of this process.
pub(crate) type NvmeServer = plexum_nvme::server::Server<VolumeExport, RealClock>;

/// Where a volume stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its members are open and locked, and its name is its own; nobody can connect.
    Admitted,
    /// Clients come and go.
    Open,
    /// It is being closed.
    Closing,
}

/// Socket files of one volume.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// Where clients connect.
    pub(crate) nbd: PathBuf,
    /// Where commands connect.
    pub(crate) control: PathBuf,
    /// Whether the client socket was made by this process, and so is its to remove.
    pub(crate) is_bound: Cell<bool>,
}

impl Sockets {
    /// Paths that are not bound yet.
    pub(crate) fn new(nbd: PathBuf, control: PathBuf) -> Self {
        Self {
            nbd,
            control,
            is_bound: Cell::new(false),
        }
    }

    /// Removes the client socket if it is ours.
    pub(crate) fn remove_nbd(&self) {
        if self.is_bound.replace(false) {
            let _ = std::fs::remove_file(&self.nbd);
        }
    }
}

/// A volume in the registry.
pub struct Hosted {
    name: String,
    notes: Vec<String>,
    pub(super) sockets: Sockets,
    pub(super) stage: Cell<Stage>,
    pub(super) served: RefCell<Option<Rc<Served>>>,
    pub(super) ways: Rc<Ways>,
    /// A block device of the kernel was made of it, by one of its clients.
    is_attached: Cell<bool>,
    /// Changes under way.
    work: Rc<Gauge>,
    /// What runs for it until it is closed.
    pub(super) tasks: RefCell<Vec<JoinHandle<()>>>,
    /// What runs for it until it is closed, or opened again.
    pub(super) duties: RefCell<Vec<JoinHandle<()>>>,
    /// How it is opened again.
    pub(super) request: RefCell<AssembleRequest>,
    /// One at a time plans and begins another shape of it.
    pub(super) growing: Mutex,
    /// One at a time opens it again.
    pub(super) reopening: Mutex,
    /// What is told of it while it is opened again.
    last_status: RefCell<Option<VolumeStatus>>,
    /// Nobody is accepted any more.
    pub(super) shut: RefCell<Rc<Flag>>,
    /// Its members are free.
    pub(super) gone: Flag,
}

impl Hosted {
    pub(super) fn new(
        served: Served,
        request: AssembleRequest,
        notes: Vec<String>,
        sockets: Sockets,
    ) -> Self {
        Self {
            name: served.name().to_owned(),
            notes,
            sockets,
            stage: Cell::new(Stage::Admitted),
            served: RefCell::new(Some(Rc::new(served))),
            ways: Rc::default(),
            is_attached: Cell::new(false),
            work: Rc::default(),
            tasks: RefCell::default(),
            duties: RefCell::default(),
            request: RefCell::new(request),
            growing: Mutex::new(),
            reopening: Mutex::new(),
            last_status: RefCell::default(),
            shut: RefCell::default(),
            gone: Flag::default(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it stands.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Things worth knowing about its start.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The file of its control socket.
    #[must_use]
    pub fn control_socket(&self) -> &std::path::Path {
        &self.sockets.control
    }

    /// The file of its client socket.
    #[must_use]
    pub fn client_socket(&self) -> &std::path::Path {
        &self.sockets.nbd
    }

    /// The volume.
    ///
    /// # Errors
    /// `IsClosing` when it was let go of.
    pub fn served(&self) -> Result<Rc<Served>, Refusal> {
        let served = self.served.borrow();
        served.clone().ok_or_else(|| self.is_closing())
    }

    /// Whether it is being opened again now: there is no volume until it is.
    #[must_use]
    pub(crate) fn is_between(&self) -> bool {
        self.stage() == Stage::Open && self.served.borrow().is_none()
    }

    /// Waits until nobody opens it again.
    pub(crate) async fn settled(&self) {
        drop(self.reopening.lock().await);
    }

    /// The volume, for a change, once nobody opens it again; the second is dropped when the change has ended.
    ///
    /// # Errors
    /// `IsClosing` from the moment on at which it is to be closed.
    pub(crate) async fn for_change(&self) -> Result<(Rc<Served>, GaugeGuard), Refusal> {
        let _turn = self.reopening.lock().await;
        match self.stage.get() {
            Stage::Closing => Err(self.is_closing()),
            Stage::Admitted | Stage::Open => Ok((self.served()?, self.work.enter())),
        }
    }

    /// Status for the control socket; none when it was let go of.
    #[must_use]
    pub fn status(&self) -> Option<VolumeStatus> {
        match self.served() {
            Ok(served) => Some(self.status_of(&served)),
            Err(_) => self.last_status.borrow().clone(),
        }
    }

    /// It is opened again: that is told of it until then.
    pub(super) fn keep_status(&self, served: &Served) {
        *self.last_status.borrow_mut() = Some(self.status_of(served));
    }

    /// It is open again, or gone.
    pub(super) fn forget_status(&self) {
        self.last_status.take();
    }

    /// One more member, by the word for it: whoever opens it again has it.
    pub(crate) fn note_member(&self, word: &str) {
        let members = &mut self.request.borrow_mut().members;
        if !members.iter().any(|known| known == word) {
            members.push(word.to_owned());
        }
    }

    /// Who is in now: members were exchanged since it was opened, and it is opened again with those that it has.
    pub(super) fn note_members_of(&self, served: &Served) {
        let status = served.volume.status();
        let here = status.members.into_iter();
        let here = here.filter(|member| member.standing != Standing::Faulty);
        let names: Vec<String> = here.filter_map(|member| member.name).collect();
        if !names.is_empty() {
            self.request.borrow_mut().members = names;
        }
    }

    /// Status of the volume that is here.
    pub(crate) fn status_of(&self, served: &Served) -> VolumeStatus {
        served.status(self.exports(served))
    }

    /// Whether it is to have a block device.
    pub(super) fn device_wish(&self) -> DeviceWish {
        self.request.borrow().device
    }

    /// Where a virtual machine is to find it, if one is.
    pub(super) fn machine_socket(&self) -> Option<PathBuf> {
        self.request.borrow().vhost_user.clone()
    }

    /// Its block device, when it has one that is served here.
    pub(crate) fn device(&self) -> Option<Rc<Device<VolumeExport>>> {
        self.ways.device()
    }

    /// Notes that one of its clients has made a block device of it.
    pub(crate) fn note_attached(&self) {
        self.is_attached.set(true);
    }

    /// Who holds it.
    #[must_use]
    pub fn holds(&self) -> Vec<Hold> {
        let mut holds = Vec::new();
        let Ok(served) = self.served() else {
            return holds;
        };
        let count = self.clients_here() + served.export.clients().sessions_elsewhere();
        if count > 0 {
            holds.push(Hold::Clients { count });
        }
        // Whoever has made the device is a client as long as it stands.
        self.is_attached.set(self.is_attached.get() && count > 0);
        if self.is_attached.get() {
            holds.push(Hold::Attachment);
        }
        let jobs = served.jobs_now();
        holds.extend(jobs.iter().map(|job| Hold::Job(job.kind)));
        holds
    }

    /// Waits until no change is under way.
    pub(super) async fn idle(&self) {
        self.work.empty().await;
    }

    /// Tells all clients at this thread to leave, and returns at once.
    pub(super) fn tell_all(&self, how: Leave) {
        for way in self.ways.look().iter() {
            let exports = way.server.exports();
            for status in exports.clients(&self.name) {
                if let Some(client) = exports.client(&self.name, status.id) {
                    client.tell(how);
                }
            }
        }
    }

    pub(crate) fn is_closing(&self) -> Refusal {
        Refusal::IsClosing {
            name: self.name.clone(),
        }
    }

    fn clients_here(&self) -> u64 {
        self.ways.clients(&self.name)
    }

    fn exports(&self, served: &Served) -> Vec<ExportStatus> {
        // Only the first way hands connections to other threads.
        let mut each = self.ways.status(&self.name);
        if let Some(first) = each.first_mut() {
            first.clients += served.export.clients().sessions_elsewhere();
        }
        each
    }
}
