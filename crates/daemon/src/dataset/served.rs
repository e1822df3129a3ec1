//! A pool that is served: its volumes, who asks about them, and the end.

use std::rc::Rc;
use std::time::Duration;

use plexum_front::client::Leave;
use plexum_pool::LivePool;
use plexum_runtime::Handle;
use plexum_runtime::clock::RealClock;
use plexum_runtime::process::join_write_out_path;
use plexum_zfs::MemberReport;
use serde_json::json;

use super::fronts::Fronts;
use super::opened::Opened;
use super::status::{live_state, verdict};
use super::volume::{PoolVolume, volume_of};
use crate::buffers::request_pool;
use crate::control::answers::not_the_daemon;
use crate::control::events::EventHub;
use crate::control::request::{Action, Answer, Request};
use crate::host::ways::Room;
use crate::open::AnyDevice;
use crate::pool_write::of_pool;
use crate::problem::{Code, Problem};
use crate::runtime_dir::check_socket_path;
use crate::serve_dataset::DatasetRequest;
use crate::volume::status::{JSON_VERSION, VolumeStatus};

/// What was written reaches a root within this time, as with OpenZFS (`zfs_txg_timeout`).
const COMMIT_LIMIT: Duration = Duration::from_secs(5);

/// A pool that is served.
pub(crate) struct PoolServed {
    handle: Handle,
    pub(crate) volumes: Vec<PoolVolume>,
    /// Things worth knowing about its start.
    pub(crate) notes: Vec<String>,
    /// The members in the order of the status.
    members: Vec<MemberReport>,
    /// The pool, when it is written.
    live: Option<Rc<LivePool<AnyDevice, RealClock>>>,
    /// How clients come to them.
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
        let opened = Opened::of(handle, request).await?;
        let room = Room {
            pool: request_pool(request.memory_bytes),
            memory_bytes: request.memory_bytes,
        };
        let mut volumes: Vec<PoolVolume> = Vec::new();
        for volume in opened.volumes {
            let volume = volume_of(handle, request, (&opened.report, volume), &room);
            if volumes.iter().any(|other| other.name() == volume.name()) {
                let text = format!("two of the volumes are called {}", volume.name());
                return Err(Problem::new(Code::Usage, text)
                    .hint("serve one of them by itself with --name NAME"));
            }
            volumes.push(volume);
        }
        Ok(Self {
            handle: handle.clone(),
            volumes,
            notes: opened.report.notes,
            members: opened.report.members,
            live: opened.live,
            fronts: Fronts::new(handle, room, events),
        })
    }

    /// Looks at the places of the sockets.
    ///
    /// # Errors
    /// One that cannot be.
    pub(crate) fn check_places(&self) -> Result<(), Problem> {
        for volume in &self.volumes {
            check_socket_path(&volume.control)?;
            check_socket_path(&volume.socket)?;
        }
        Ok(())
    }

    /// Gives members that are there what they missed, while clients come and go, and commits in time what they write.
    pub(crate) fn start_upkeep(&self) {
        let Some(live) = self.live.clone() else {
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

    /// The status of a volume.
    pub(crate) fn status(&self, volume: &PoolVolume) -> VolumeStatus {
        let mut status = volume.status.clone();
        status.exports = volume.ways.status(volume.name());
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
        status.verdict = verdict(&status.members);
        status
    }

    /// The status of each volume.
    pub(crate) fn all(&self) -> Vec<VolumeStatus> {
        let volumes = self.volumes.iter();
        volumes.map(|volume| self.status(volume)).collect()
    }

    /// The volume of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&PoolVolume> {
        self.volumes.iter().find(|volume| volume.name() == name)
    }

    /// What is answered to a request. Whoever stops one volume stops the pool: that is the caller's.
    pub(crate) fn answer(&self, request: &Request) -> Answer {
        let unknown =
            |name: &str| Problem::new(Code::NoSuchVolume, format!("{name} is not served here"));
        match request {
            Request::List => {
                Ok(json!({"version": JSON_VERSION, "kind": "volumes", "volumes": self.all()}))
            }
            Request::Show { volume } => match self.named(volume) {
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
        }
    }

    /// The only volume.
    ///
    /// # Errors
    /// `Usage`: there are several, and this option is for one.
    pub(crate) fn only(&self, option: &str) -> Result<&PoolVolume, Problem> {
        match self.volumes.as_slice() {
            [volume] => Ok(volume),
            several => Err(Problem::new(
                Code::Usage,
                format!("{option} is for one volume, {} were named", several.len()),
            )),
        }
    }

    /// Devices that are in use stay when their sessions end: the next server goes on with them.
    pub(crate) fn leave_devices_to_successor(&self) {
        for volume in &self.volumes {
            if let Some(device) = volume.ways.device() {
                device.leave_to_successor();
            }
        }
    }

    /// Clients leave, what was written is committed, and the labels say that the pool may be taken elsewhere.
    ///
    /// # Errors
    /// Of the last commit. The clients have left all the same.
    pub(crate) async fn close(&self) -> Result<(), Problem> {
        self.fronts.shut();
        for volume in &self.volumes {
            volume.ways.close(volume.name(), Leave::Drain).await;
        }
        for volume in &self.volumes {
            for way in volume.ways.take() {
                way.server.stop(Leave::Drain);
                way.server.unbind();
            }
        }
        self.fronts.end().await;
        match &self.live {
            Some(live) => live.export().await.map_err(|error| of_pool(&error)),
            None => Ok(()),
        }
    }
}
