//! Who answers what comes over the control socket: the registry, or the volume that is named.

use std::path::PathBuf;
use std::rc::Rc;

use plexum_front::export::{Export, ExportInfo};
use plexum_runtime::process::join_write_out_path;
use serde_json::{Value, json};

use super::request::{Action, Ask, Request};
use crate::assembly::DeviceWish;
use crate::dataset::not_served;
use crate::host::device::Device;
use crate::host::{Close, Doing, GrowWish, Host, Hosted, Refusal};
use crate::problem::{Code, Problem};
use crate::volume::ops::act;
use crate::volume::rehearse::rehearse;
use crate::volume::status::{JSON_VERSION, VolumeStatus};

/// Answers a request, now or in a task of its own.
pub(crate) fn answer(host: &Rc<Host>, ask: Ask) {
    match ask.request.clone() {
        Request::Act {
            volume,
            action: Action::Stop,
        } => stop(host, volume, ask),
        Request::Act {
            volume,
            action: Action::Grow { wish },
        } => grow(host, &volume, wish, Doing::Now, ask),
        Request::Rehearse {
            volume,
            action: Action::Grow { wish },
        } => grow(host, &volume, wish, Doing::Rehearsal, ask),
        Request::Act {
            volume,
            action: Action::Device { remove },
        } => device(host, volume, remove, ask),
        Request::Act { volume, action } => change(host, &volume, action, Doing::Now, ask),
        Request::Rehearse { volume, action } => {
            change(host, &volume, action, Doing::Rehearsal, ask);
        }
        simple => match between(host, &simple) {
            None => ask.answer(look(host, &simple).map_err(Problem::from)),
            Some(hosted) => {
                let looking = Rc::clone(host);
                let _task = host.handle().spawn(async move {
                    hosted.settled().await;
                    ask.answer(look(&looking, &simple).map_err(Problem::from));
                });
            }
        },
    }
}

/// Only the daemon has volumes that come and go.
pub(crate) fn not_the_daemon() -> Problem {
    Problem::new(Code::NotYet, "this server serves what it was started with")
        .hint("to have volumes come and go at run time:   plexum daemon")
}

/// The volume whose counters are asked for, when it is being opened again: then whoever asks waits until it is.
fn between(host: &Rc<Host>, request: &Request) -> Option<Rc<Hosted>> {
    let (Request::Stats { volume, .. } | Request::Requests { volume }) = request else {
        return None;
    };
    let hosted = host.find(volume).ok()?;
    hosted.is_between().then_some(hosted)
}

/// What changes nothing.
fn look(host: &Rc<Host>, request: &Request) -> Result<serde_json::Value, Refusal> {
    Ok(match request {
        Request::List => {
            let volumes = host.list();
            let all: Vec<VolumeStatus> = volumes
                .iter()
                .filter_map(|hosted| hosted.status())
                .collect();
            json!({"version": JSON_VERSION, "kind": "volumes", "volumes": all})
        }
        Request::Show { volume } => {
            let hosted = host.find(volume)?;
            let status = hosted.status(); // while it is opened again, the last one
            let status = status.ok_or_else(|| hosted.is_closing())?;
            serde_json::to_value(status).unwrap_or_default()
        }
        Request::Stats { volume, reset } => host.find(volume)?.served()?.stats(*reset),
        Request::Requests { volume } => host.find(volume)?.served()?.requests(),
        Request::Attached { volume } => {
            host.find(volume)?.note_attached();
            json!({"is_fit": join_write_out_path()})
        }
        Request::Open { .. }
        | Request::Start { .. }
        | Request::Forget { .. }
        | Request::Alarm(_) => {
            return Err(not_the_daemon().into());
        }
        Request::ShowPool { pool }
        | Request::RehearsePool { pool, .. }
        | Request::ChangePool { pool, .. } => {
            return Err(not_served(pool).into());
        }
        Request::Act { .. } | Request::Rehearse { .. } => serde_json::Value::Null,
    })
}

/// Changes wait for members, and for a volume that is being opened again: so each is a task of its own.
fn change(host: &Rc<Host>, volume: &str, action: Action, doing: Doing, ask: Ask) {
    let hosted = match host.find(volume) {
        Ok(hosted) => hosted,
        Err(refusal) => return ask.answer(Err(refusal.problem())),
    };
    let handle = host.handle().clone();
    let _task = host.handle().spawn(async move {
        let answer = match hosted.for_change().await {
            Ok((served, _under_way)) => match doing {
                Doing::Now => act(&served, &handle, action).await,
                Doing::Rehearsal => rehearse(&served, &handle, action).await,
            },
            Err(refusal) => Err(refusal.problem()),
        };
        ask.answer(answer);
    });
}

/// A volume that gets another shape is opened again: nobody holds it meanwhile.
fn grow(host: &Rc<Host>, volume: &str, wish: GrowWish, doing: Doing, ask: Ask) {
    let hosted = match host.find(volume) {
        Ok(hosted) => hosted,
        Err(refusal) => return ask.answer(Err(refusal.problem())),
    };
    let growing = Rc::clone(host);
    let _task = host.handle().spawn(async move {
        let answer = growing.grow(&hosted, &wish, doing).await;
        ask.answer(answer);
    });
}

/// A volume has a block device: what is told of it. `before`: the one that it had already.
pub(crate) fn device_given<E>(
    before: Option<Rc<Device<E>>>,
    link: Option<PathBuf>,
    info: &ExportInfo,
) -> Value {
    json!({"device": link, "is_new": before.is_none(),
        "block_bytes": info.block_bytes_min, "is_read_only": info.is_read_only})
}

/// A volume has no block device any more.
pub(crate) fn device_removed(volume: &str) -> Value {
    json!({"message": format!("the block device of {volume} is removed")})
}

/// Makes or removes the block device of a volume, which waits for the kernel.
fn device(host: &Rc<Host>, volume: String, remove: bool, ask: Ask) {
    let hosted = match host.find(&volume) {
        Ok(hosted) => hosted,
        Err(refusal) => return ask.answer(Err(refusal.problem())),
    };
    let changing = Rc::clone(host);
    let _task = host.handle().spawn(async move {
        let answer = match remove {
            true => {
                let taken = changing.take_device(&hosted).await;
                taken.map(|()| device_removed(&volume))
            }
            false => {
                let before = hosted.device();
                let given = changing.give_device(&hosted, DeviceWish::Make).await;
                let info = hosted.served().map(|served| served.export.info());
                given.and_then(|link| {
                    let info = info.map_err(Refusal::problem)?;
                    Ok(device_given(before, link, &info))
                })
            }
        };
        ask.answer(answer);
    });
}

/// Stops a volume; whoever has asked hears of it before its members are let go of.
fn stop(host: &Rc<Host>, volume: String, ask: Ask) {
    let stopping = Rc::clone(host);
    let ask = Rc::new(std::cell::Cell::new(Some(ask)));
    let _task = host.handle().spawn(async move {
        let (waiting, name) = (Rc::clone(&ask), volume.clone());
        let tell = move |result: Result<(), Problem>| {
            if let Some(ask) = waiting.take() {
                ask.answer(result.map(|()| json!({"message": format!("{name} is stopped")})));
            }
        };
        let result = stopping.close_telling(&volume, Close::Drain, tell).await;
        let Some(ask) = ask.take() else {
            return; // it was told
        };
        ask.answer(match result {
            Err(Refusal::IsClosing { name }) => {
                Ok(json!({"message": format!("{name} is stopping")}))
            }
            Err(refusal) => Err(refusal.problem()),
            Ok(()) => Ok(json!({"message": format!("{volume} is stopped")})),
        });
    });
}
