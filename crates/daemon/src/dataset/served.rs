//! A pool that is served: its volumes, who asks about them, and the end.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_block::wait::join_all;
use plexum_engine::volume::Redundancy;
use plexum_pool::{LivePool, MemberInfo};
use plexum_runtime::Handle;
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::Access;
use plexum_runtime::process::join_write_out_path;
use plexum_zfs::PoolReport;
use serde_json::json;

use super::fronts::Fronts;
use super::opened::{Opened, Source};
use super::redundancy::redundancy;
use super::status::{job, show_live, verdict};
use super::volume::{PoolVolume, volume_of};
use crate::buffers::request_pool;
use crate::control::answers::not_the_daemon;
use crate::control::events::EventHub;
use crate::control::request::{Action, Answer, Request};
use crate::host::Refusal;
use crate::host::ways::Room;
use crate::open::{AnyDevice, full_path};
use crate::pool_write::{of_pool, open_returned};
use crate::problem::{Code, Problem};
use crate::runtime_dir::check_socket_path;
use crate::serve_dataset::DatasetRequest;
use crate::volume::status::{Finding, JSON_VERSION, Verdict, VolumeStatus};

/// What was written reaches a root within this time, as with OpenZFS (`zfs_txg_timeout`).
const COMMIT_LIMIT: Duration = Duration::from_secs(5);

/// A pool of this machine that is written.
pub(super) type Live = LivePool<AnyDevice, RealClock>;

/// A pool that is served.
pub(crate) struct PoolServed {
    pub(super) handle: Handle,
    pub(super) events: EventHub,
    volumes: RefCell<Vec<Rc<PoolVolume>>>,
    /// Things worth knowing about its start.
    pub(crate) notes: Vec<String>,
    /// As it was opened.
    pub(crate) report: PoolReport,
    source: Source,
    /// How clients come to its volumes.
    pub(crate) fronts: Fronts,
}

impl PoolServed {
    /// Opens the pool and the volumes; nobody is let in yet.
    ///
    /// # Errors
    /// Of opening the pool and the volumes; two volumes of one name.
    pub(crate) async fn open(
        handle: &Handle,
        request: &DatasetRequest,
        events: EventHub,
    ) -> Result<Self, Problem> {
        request.check_names()?;
        let opened = Opened::of(handle, request).await?;
        let room = Room {
            pool: request_pool(request.memory_bytes),
            memory_bytes: request.memory_bytes,
        };
        let served = Self {
            handle: handle.clone(),
            events: events.clone(),
            volumes: RefCell::default(),
            notes: opened.report.notes.clone(),
            report: opened.report,
            source: opened.source,
            fronts: Fronts::new(handle, room, events),
        };
        for volume in opened.volumes {
            served.take_in(volume_of(
                handle,
                request,
                (&served.report, volume),
                served.fronts.room(),
            ))?;
        }
        Ok(served)
    }

    /// One more volume of the open pool; nobody is let in yet.
    ///
    /// # Errors
    /// There is none of this name, or it is served; the pool is only read, and it is to be written.
    pub(crate) async fn add(
        &self,
        request: &DatasetRequest,
        dataset: &str,
    ) -> Result<Rc<PoolVolume>, Problem> {
        if request.access == Access::ReadWrite && self.source.live().is_none() {
            let name = &self.report.name;
            let text = format!("pool {name} is open for reading only");
            return Err(Problem::new(Code::Busy, text)
                .hint("stop its volumes first, then serve all of them with --write"));
        }
        let opened = self.source.volume(dataset).await?;
        let volume = volume_of(
            &self.handle,
            request,
            (&self.report, opened),
            self.fronts.room(),
        );
        self.take_in(volume)
    }

    fn take_in(&self, volume: PoolVolume) -> Result<Rc<PoolVolume>, Problem> {
        let mut volumes = self.volumes.borrow_mut();
        if volumes.iter().any(|other| other.name() == volume.name()) {
            let name = volume.name().to_owned();
            return Err(Refusal::NameTaken { name }.problem());
        }
        let volume = Rc::new(volume);
        volumes.push(Rc::clone(&volume));
        Ok(volume)
    }

    /// Its volumes, in the order in which they were opened.
    pub(crate) fn volumes(&self) -> Vec<Rc<PoolVolume>> {
        self.volumes.borrow().clone()
    }

    /// Looks at the places of the sockets.
    ///
    /// # Errors
    /// One that cannot be.
    pub(crate) fn check_places(&self) -> Result<(), Problem> {
        for volume in self.volumes() {
            check_socket_path(&volume.control)?;
            check_socket_path(&volume.socket)?;
        }
        Ok(())
    }

    /// Gives members that are there what they missed, while clients come and go, and commits in time what they write.
    pub(crate) fn start_upkeep(&self) {
        let Some(live) = self.source.live().cloned() else {
            return;
        };
        let committed = Rc::clone(&live);
        // What stands in the way of both is in the status, and in what clients are answered.
        let upkeep = async move {
            let _ = live.make_good().await;
        };
        let commits = async move {
            let _ = committed.commit_in_time(COMMIT_LIMIT).await;
        };
        let (_made_good, _committed) = (self.handle.spawn(upkeep), self.handle.spawn(commits));
    }

    /// Takes a member back that is there again, and gives it what it missed while clients come and go.
    ///
    /// # Errors
    /// Of opening it; it is none of the pool's, is there already, or was written elsewhere since.
    pub(crate) async fn take_back(&self, word: &str) -> Result<(), Problem> {
        let Some(live) = self.source.live().cloned() else {
            return Ok(()); // who is only read is opened again by whoever wants more of it
        };
        let member = open_returned(&self.handle, word).await?;
        let path = full_path(Path::new(word));
        let taken_back = live.take_back(&member, path.to_str()).await;
        taken_back.map_err(|error| of_pool(&error))?;
        let upkeep = async move {
            let _ = live.make_good().await; // what stands in the way is in the status
        };
        let _made_good = self.handle.spawn(upkeep);
        Ok(())
    }

    /// The pool, when it is written.
    pub(super) fn live(&self) -> Option<&Rc<Live>> {
        self.source.live()
    }

    /// How it is put together now.
    fn report_now(&self) -> Rc<PoolReport> {
        let live = self.live().and_then(|live| live.report());
        live.unwrap_or_else(|| Rc::new(self.report.clone()))
    }

    /// The members that are there, as they were given.
    pub(crate) fn member_words(&self) -> Vec<String> {
        match self.members() {
            Some(members) => {
                let there = members.into_iter().filter(|member| member.is_there);
                there.map(|member| member.name).collect()
            }
            None => {
                let members = self.report.members.iter();
                members.filter_map(|member| member.name.clone()).collect()
            }
        }
    }

    /// The members as they are now; `None` for a pool that is only read.
    fn members(&self) -> Option<Vec<MemberInfo>> {
        self.source.live().map(|live| live.members())
    }

    /// Why nothing is written any more.
    fn why_frozen(&self) -> Option<String> {
        self.source.live()?.why_frozen()
    }

    /// The status of a volume.
    pub(crate) fn status(&self, volume: &PoolVolume) -> VolumeStatus {
        let mut status = volume.status.clone();
        status.size_bytes = volume.export.size_bytes();
        status.exports = volume.ways.status(volume.name());
        if let Some(members) = self.members() {
            show_live(&mut status, &self.report_now(), &members);
            if let Some(walking) = self.live().and_then(|live| live.walking()) {
                let age_ns = self.handle.clock().now().ns_since(walking.began);
                status
                    .jobs
                    .push(job(&walking, Duration::from_nanos(age_ns)));
            }
        }
        status.verdict = verdict(&status.members);
        let redundancy = self.redundancy();
        status.spare_failures = redundancy.losses_left as u32; // at most the number of members
        status.designed_spare_failures = u32::try_from(redundancy.losses_designed).ok();
        if let Some(reason) = self.why_frozen() {
            let name = volume.name();
            status.verdict = Verdict::Failed;
            status.findings.push(Finding {
                code: Code::IoError.slug().to_owned(),
                message: format!("nothing is written any more: {reason}"),
                commands: vec![format!("plexum stop {name}")],
            });
        }
        status
    }

    /// How safe its data are.
    pub(crate) fn redundancy(&self) -> Redundancy {
        redundancy(
            &self.report_now(),
            self.members().as_deref(),
            self.why_frozen().as_deref(),
        )
    }

    /// The status of each volume.
    pub(crate) fn all(&self) -> Vec<VolumeStatus> {
        let volumes = self.volumes();
        volumes.iter().map(|volume| self.status(volume)).collect()
    }

    /// The volume of this name.
    pub(crate) fn named(&self, name: &str) -> Option<Rc<PoolVolume>> {
        let volumes = self.volumes.borrow();
        volumes.iter().find(|volume| volume.name() == name).cloned()
    }

    /// What is answered to a request. Whoever stops one volume of a server that is alone stops the pool: that is the
    /// caller's.
    pub(crate) fn answer(&self, request: &Request) -> Answer {
        let unknown =
            |name: &str| Problem::new(Code::NoSuchVolume, format!("{name} is not served here"));
        match request {
            Request::List => {
                Ok(json!({"version": JSON_VERSION, "kind": "volumes", "volumes": self.all()}))
            }
            Request::Show { volume } => match self.named(volume) {
                Some(volume) => Ok(serde_json::to_value(self.status(&volume)).unwrap_or_default()),
                None => Err(unknown(volume)),
            },
            Request::Act {
                action: Action::Stop,
                volume: name,
            } => Ok(json!({"message": format!("{name} is stopped")})),
            Request::Attached { .. } => Ok(json!({"is_fit": join_write_out_path()})),
            Request::ShowPool { pool }
            | Request::RehearsePool { pool, .. }
            | Request::ChangePool { pool, .. } => Err(not_served(pool)),
            Request::Open { .. }
            | Request::Start { .. }
            | Request::Forget { .. }
            | Request::Alarm(_) => Err(not_the_daemon()),
            Request::Stats { volume: name, .. }
            | Request::Requests { volume: name }
            | Request::Rehearse { volume: name, .. }
            | Request::Act { volume: name, .. } => Err(only_shown(name)),
        }
    }

    /// The only volume.
    ///
    /// # Errors
    /// `Usage`: there are several, and this option is for one.
    pub(crate) fn only(&self, option: &str) -> Result<Rc<PoolVolume>, Problem> {
        match self.volumes().as_slice() {
            [volume] => Ok(Rc::clone(volume)),
            several => Err(Problem::new(
                Code::Usage,
                format!("{option} is for one volume, {} were named", several.len()),
            )),
        }
    }

    /// Devices that are in use stay when their sessions end: the next server goes on with them.
    pub(crate) fn leave_devices_to_successor(&self) {
        for volume in self.volumes() {
            if let Some(device) = volume.ways.device() {
                device.leave_to_successor();
            }
        }
    }

    /// The clients of a volume leave, and it is served no more; the pool stays open.
    ///
    /// # Errors
    /// What they wrote cannot be made durable. They have left all the same.
    pub(crate) async fn close_volume(&self, volume: &Rc<PoolVolume>) -> Result<(), Problem> {
        self.fronts.close(volume).await;
        let is_other = |other: &Rc<PoolVolume>| !Rc::ptr_eq(other, volume);
        self.volumes.borrow_mut().retain(is_other);
        match self.source.live() {
            Some(live) => live.flush().await.map_err(|error| of_pool(&error)),
            None => Ok(()),
        }
    }

    /// Clients leave, what was written is committed, and the labels say that the pool may be taken elsewhere.
    ///
    /// # Errors
    /// Of the last commit. The clients have left all the same.
    pub(crate) async fn close(&self) -> Result<(), Problem> {
        self.fronts.shut();
        let volumes = self.volumes();
        join_all(volumes.iter().map(|volume| self.fronts.close(volume))).await;
        self.fronts.end();
        match self.source.live() {
            Some(live) => live.export().await.map_err(|error| of_pool(&error)),
            None => Ok(()),
        }
    }
}

/// The refusal of what is not done with volumes of pools.
pub(crate) fn only_shown(name: &str) -> Problem {
    Problem::new(
        Code::ReadOnly,
        format!("{name} is a volume of a ZFS pool: it can be shown and stopped"),
    )
}

/// The refusal of a pool that nobody serves.
pub(crate) fn not_served(word: &str) -> Problem {
    Problem::new(
        Code::NoSuchVolume,
        format!("no volume of a pool {word} is served"),
    )
    .hint("without a server its members are named")
}
