//! Volumes of ZFS pools come and go: a pool is opened once for all volumes of it that are served, and closed with the
//! last one.
//!
//! Invariants:
//! - a volume that is told to be stopped is on the members: what its clients wrote is durable before that;
//! - a pool whose last volume has left says in its labels that it may be taken elsewhere.

use std::rc::Rc;

use plexum_block::clock::Clock;
use plexum_block::wait::join_all;
use plexum_front::export::Export;
use plexum_runtime::file::Access;
use plexum_runtime::process::join_write_out_path;
use serde_json::json;

use super::Service;
use super::pools::OfPool;
use crate::assembly::DeviceWish;
use crate::control::answers::{device_given, device_removed};
use crate::control::open_request::OpenRequest;
use crate::control::request::{Action, Answer, Ask, Request};
use crate::dataset::{PoolServed, PoolVolume, only_shown};
use crate::host::making::tell_no_device;
use crate::host::{HostSettings, Refusal};
use crate::problem::{Code, Problem};
use crate::serve_dataset::DatasetRequest;

impl Service {
    /// Serves volumes of a pool, all that are asked for or none. Whoever calls has the turn.
    ///
    /// # Errors
    /// `NameTaken`; of opening the pool and the volumes; of binding sockets.
    pub(super) async fn open_datasets(&self, open: &OpenRequest) -> Result<Vec<OfPool>, Problem> {
        let request = dataset_request(open, self.host.settings())?;
        for name in request.names() {
            if self.host.get(&name).is_some() || self.pools.named(&name).is_some() {
                return Err(Refusal::NameTaken { name }.problem());
            }
        }
        let known = self.pools.find(&request);
        if known.is_none() && request.members.is_empty() {
            let pool = request.pool_name();
            return Err(usage(format!(
                "no volume of pool {pool} is served: its members must be named"
            )));
        }
        let is_new = known.is_none();
        let pool = match known {
            Some(pool) => pool,
            None => {
                let (handle, events) = (self.host.handle(), self.host.events().clone());
                let pool = Rc::new(PoolServed::open(handle, &request, events).await?);
                self.pools.add(&pool);
                pool
            }
        };
        let mut volumes = Vec::new();
        let added = match is_new {
            true => {
                volumes = pool.volumes();
                Ok(())
            }
            false => add_all(&pool, &request, &mut volumes).await,
        };
        if let Err(problem) = added.and_then(|()| self.let_in(&pool, &volumes, &request)) {
            let _ = self.let_go(&pool, &volumes).await; // nobody has written to them
            return Err(problem);
        }
        if is_new {
            pool.start_upkeep();
        }
        let opened = volumes.into_iter().map(|volume| OfPool {
            pool: Rc::clone(&pool),
            volume,
        });
        let opened: Vec<OfPool> = opened.collect();
        for one in &opened {
            self.tell_started(one, request.device).await;
        }
        Ok(opened)
    }

    /// Lets clients in to volumes that were opened.
    fn let_in(
        &self,
        pool: &PoolServed,
        volumes: &[Rc<PoolVolume>],
        request: &DatasetRequest,
    ) -> Result<(), Problem> {
        for volume in volumes {
            // Before clients are let in: who reaches a volume can ask about it at once.
            self.host.add_control_at(&volume.control)?;
            pool.fronts.listen_nbd(volume)?;
            if let Some(path) = &request.vhost_user {
                pool.fronts.listen_machine(volume, path)?;
            }
        }
        Ok(())
    }

    async fn tell_started(&self, one: &OfPool, wish: DeviceWish) {
        let name = one.volume.name();
        self.host.remember_events(name, &one.key());
        // A volume whose device cannot be is served all the same.
        if let Err(problem) = one.pool.fronts.give_device(&one.volume, wish).await {
            tell_no_device(self.host.handle(), self.host.events(), name, &problem);
        }
        self.tell(name, "started", format!("{name} is served"));
    }

    pub(super) fn tell(&self, volume: &str, event: &str, text: String) {
        let time_s = self.host.handle().clock().wall_seconds();
        let events = self.host.events();
        events.publish(time_s, volume, event, text, None);
    }

    /// Volumes are served no more; their pool is closed with the last one.
    ///
    /// # Errors
    /// What keeps what was written from being durable; the clients have left all the same.
    async fn let_go(
        &self,
        pool: &Rc<PoolServed>,
        volumes: &[Rc<PoolVolume>],
    ) -> Result<(), Problem> {
        let mut result = Ok(());
        for volume in volumes {
            let closed = pool.close_volume(volume).await;
            self.host.remove_control_at(&volume.control);
            result = result.and(closed);
        }
        if pool.volumes().is_empty() {
            self.pools.remove(pool);
            result = result.and(pool.close().await);
        }
        result
    }

    /// Stops one volume.
    ///
    /// # Errors
    /// As `let_go`.
    pub(super) async fn stop_of_pool(self: Rc<Self>, one: OfPool) -> Answer {
        let _turn = self.turn.lock().await;
        let name = one.volume.name().to_owned();
        if self.pools.named(&name).is_none() {
            return Ok(json!({"message": format!("{name} is stopping")}));
        }
        self.learn(&one.status());
        let stopped = self.let_go(&one.pool, &[Rc::clone(&one.volume)]).await;
        let text = match &stopped {
            Ok(()) => format!("{name} is stopped"),
            Err(problem) => problem.message.clone(),
        };
        self.tell(&name, "stopped", text);
        stopped?;
        Ok(json!({"message": format!("{name} is stopped")}))
    }

    /// Closes all pools; they are served again at the next start.
    ///
    /// # Errors
    /// The first that could not be closed cleanly.
    pub(super) async fn close_pools(&self) -> Result<(), Problem> {
        let pools = self.pools.take();
        let closing = pools.iter().map(async |pool| {
            for volume in pool.volumes() {
                self.learn(&pool.status(&volume));
            }
            pool.leave_devices_to_successor(); // the process ends: perhaps to be started again
            pool.close().await
        });
        let closed = join_all(closing).await;
        closed.into_iter().collect()
    }

    /// Answers what is asked of a pool itself. Who its members are behind a change is known at the next start.
    pub(super) fn answer_of_open_pool(self: &Rc<Self>, pool: &Rc<PoolServed>, ask: Ask) {
        let (service, changed) = (Rc::clone(self), Rc::clone(pool));
        pool.answer_of_pool(ask, move || {
            for volume in changed.volumes() {
                service.learn(&changed.status(&volume));
            }
        });
    }

    /// Answers what is asked of a volume of a pool, now or in a task of its own.
    pub(super) fn answer_of_pool(self: &Rc<Self>, one: OfPool, ask: Ask) {
        match ask.request {
            Request::Act {
                action: Action::Device { remove },
                ..
            } => {
                let _task = self.host.handle().spawn(async move {
                    let answer = device(&one, remove).await;
                    ask.answer(answer);
                });
            }
            Request::Show { .. } => {
                let status = one.status();
                ask.answer(Ok(serde_json::to_value(status).unwrap_or_default()));
            }
            Request::Attached { .. } => {
                ask.answer(Ok(json!({"is_fit": join_write_out_path()})));
            }
            _ => ask.answer(Err(only_shown(one.volume.name()))),
        }
    }
}

/// Opens volumes of an open pool; those that could be are in `volumes`, also when one of them could not.
///
/// # Errors
/// As [`PoolServed::add`].
async fn add_all(
    pool: &PoolServed,
    request: &DatasetRequest,
    volumes: &mut Vec<Rc<PoolVolume>>,
) -> Result<(), Problem> {
    for dataset in &request.datasets {
        volumes.push(pool.add(request, dataset).await?);
    }
    Ok(())
}

/// The volume that a request names.
pub(super) fn named_in(request: &Request) -> Option<&str> {
    match request {
        Request::Show { volume }
        | Request::Stats { volume, .. }
        | Request::Requests { volume }
        | Request::Attached { volume }
        | Request::Act { volume, .. }
        | Request::Rehearse { volume, .. } => Some(volume),
        Request::List
        | Request::Open { .. }
        | Request::Start { .. }
        | Request::Forget { .. }
        | Request::ShowPool { .. }
        | Request::RehearsePool { .. }
        | Request::ChangePool { .. }
        | Request::Alarm(_) => None,
    }
}

/// Makes or removes the block device of a volume, which waits for the kernel.
async fn device(one: &OfPool, remove: bool) -> Answer {
    let (fronts, volume) = (&one.pool.fronts, &one.volume);
    let name = volume.name();
    if remove {
        fronts.take_device(volume).await?;
        return Ok(device_removed(name));
    }
    let before = volume.device();
    let link = fronts.give_device(volume, DeviceWish::Make).await?;
    Ok(device_given(before, link, &volume.export.info()))
}

/// What of a pool is to be served.
///
/// # Errors
/// `Usage`: a word that is not for volumes of pools, or volumes of several pools.
fn dataset_request(open: &OpenRequest, settings: &HostSettings) -> Result<DatasetRequest, Problem> {
    if open.name.is_some() && open.datasets.len() > 1 {
        return Err(usage("--name is for one volume: several have their own"));
    }
    if open.vhost_user.is_some() && open.datasets.len() > 1 {
        return Err(usage("--vhost-user is for one volume, several were named"));
    }
    if open.write && open.txg.is_some() {
        return Err(usage(
            "an older root is served read-only: --txg goes without --write",
        ));
    }
    let mut members = open.members.clone();
    if open.run_degraded && !members.is_empty() {
        members.push("missing".to_owned());
    }
    let request = DatasetRequest {
        datasets: open.datasets.clone(),
        members,
        txg: open.txg,
        access: match open.write {
            true => Access::ReadWrite,
            false => Access::ReadOnly,
        },
        trust: open.trust.into(),
        name: open.name.clone(),
        socket: None,
        nvme: None,
        vhost_user: open.vhost_user.clone(),
        device: open.device_wish(),
        io: settings.io,
        spin: settings.spin,
        memory_bytes: settings.memory_bytes,
        runtime_dir: settings.runtime_dir.clone(),
    };
    let pool = format!("{}/", request.pool_name());
    match open.datasets.iter().find(|name| !name.starts_with(&pool)) {
        None => Ok(request),
        Some(other) => Err(usage(format!(
            "{other} is no volume of pool {}: name it as POOL/VOLUME",
            request.pool_name()
        ))),
    }
}

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text)
}
