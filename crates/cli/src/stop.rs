//! `plexum stop`: a clean stop, waited for.

use std::time::Duration;

use plexum_daemon::control::Action;
use plexum_daemon::host::{Users, remove_left};
use plexum_daemon::problem::{Code, Problem};
use serde_json::json;

use crate::args::{Common, Stop};
use crate::attach_ublk;
use crate::attachment::on_volume;
use crate::client::Client;
use crate::daemon_client::Daemon;
use crate::errors::Outcome;
use crate::output::{Screen, object};

/// Looks at the server this often, at most `LOOKS_MAX` times, before it is said that it hangs.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 3000;
/// Looks at clients before they count.
const CLIENT_LOOKS_MAX: u32 = 50;

/// Runs the command: returns when the server has let go of the members.
///
/// # Errors
/// `NoSuchVolume`, or `Busy` when somebody uses the volume or the server does not end.
pub fn run(args: &Stop, common: &Common, screen: &Screen) -> Outcome {
    if let Some(name) = &args.volume
        && let Some(daemon) = Daemon::find()
        && daemon.waits(name)?
    {
        return not_waited_for(&daemon, name, common, screen);
    }
    let client = match Client::find(args.volume.as_deref()) {
        Ok(client) => client,
        // Its server is gone, and its block device waits for another one.
        Err(problem) => match args
            .volume
            .as_deref()
            .filter(|name| attach_ublk::find(name).is_some())
        {
            Some(name) => return stop_left(name, args, common, screen),
            None => return Err(problem),
        },
    };
    if !args.force {
        check_unused(&client)?;
    }
    if common.dry_run {
        screen.line(format!("would stop {}", client.volume));
        screen.object(&object(
            "plan",
            Some(&client.volume),
            json!({"command": "stop"}),
        ));
        return Ok(0);
    }
    match client.act_because(&Action::Stop, common.why.as_deref()) {
        // The server may end before its answer is read.
        Err(problem) if problem.code != Code::NoServer => return Err(problem),
        _ => {}
    }
    for _ in 0..LOOKS_MAX {
        if client.is_gone() {
            screen.done(format!("{} is stopped", client.volume));
            screen.object(&object("stopped", Some(&client.volume), json!({})));
            return Ok(0);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err(Problem::new(
        Code::Busy,
        format!("{} does not stop: a member does not answer", client.volume),
    )
    .hint(format!(
        "to see why:   plexum debug requests {}",
        client.volume
    )))
}

/// The block device of a volume whose server has died.
fn stop_left(name: &str, args: &Stop, common: &Common, screen: &Screen) -> Outcome {
    let users = match args.force {
        true => Users::CutOff,
        false => Users::Keep,
    };
    if !common.dry_run {
        let removed = remove_left(name, users);
        removed.map_err(|problem| {
            problem.hint(format!("to cut it off:   plexum stop --force {name}"))
        })?;
    }
    let would = if common.dry_run { "would be" } else { "is" };
    screen.done(format!(
        "{name} has no server; its block device {would} removed"
    ));
    let kind = if common.dry_run { "plan" } else { "stopped" };
    screen.object(&object(kind, Some(name), json!({"command": "stop"})));
    Ok(0)
}

/// A volume that the daemon would serve as soon as it can, and does not yet.
fn not_waited_for(daemon: &Daemon, name: &str, common: &Common, screen: &Screen) -> Outcome {
    if !common.dry_run {
        daemon.stop(name)?;
    }
    let would = if common.dry_run { "would be" } else { "is" };
    screen.done(format!("{name} {would} waited for no more"));
    let kind = if common.dry_run { "plan" } else { "stopped" };
    screen.object(&object(kind, Some(name), json!({"command": "stop"})));
    Ok(0)
}

/// Whether nobody would lose the volume under way: no attachment, no client.
fn check_unused(client: &Client) -> Result<(), Problem> {
    let name = &client.volume;
    let attachments = on_volume(name);
    let working = attachments.iter().filter(|one| one.is_working());
    let attached: Vec<String> = working
        .map(crate::attachment::Attachment::status)
        .map(|one| match (&one.device, &one.mountpoint) {
            (Some(device), Some(folder)) => format!("{device}, mounted at {folder}"),
            (Some(device), None) => device.clone(),
            _ => one.file.clone(),
        })
        .collect();
    let lose = |problem: Problem| {
        problem.why("who uses it would get errors").hint(format!(
            "to stop it all the same:   plexum stop --force {name}"
        ))
    };
    if !attached.is_empty() {
        let text = format!("{name} is attached: {}", attached.join("; "));
        return Err(lose(
            Problem::new(Code::Busy, text)
                .hint(format!("to undo that first:   plexum detach {name}")),
        ));
    }
    let (mut used, mut device_user) = (Vec::new(), None);
    // One that has just ended its session is seen for a moment longer.
    for _ in 0..CLIENT_LOOKS_MAX {
        let status = client.status()?;
        used = status.exports;
        device_user = attach_ublk::user(name, &used);
        used.retain(|export| export.clients > 0);
        if used.is_empty() && device_user.is_none() {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let used: Vec<String> = used
        .iter()
        .map(|export| format!("{} on {}", export.clients, export.uri))
        .collect();
    if let Some(user) = device_user {
        let text = format!("the block device of {name} is in use: {user}");
        return Err(lose(Problem::new(Code::Busy, text)));
    }
    let text = format!("{name} has clients: {}", used.join(", "));
    Err(lose(Problem::new(Code::Busy, text)))
}
