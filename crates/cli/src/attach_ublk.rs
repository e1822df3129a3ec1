//! A served volume as a device that its own server serves to the kernel (ublk): asked for, and given back.
//!
//! Invariants:
//! - the server makes the device and removes it; without a server, what it has left is removed here;
//! - a device that is in use is never removed;
//! - a device that stood before stays when the attachment is undone.

use std::path::PathBuf;

use plexum_daemon::control::Action;
use plexum_daemon::host::{Users, link_of, named_device, remove_left};
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::status::ExportStatus;
use plexum_export::process;
use plexum_runtime::ublk::ControlDevice;
use serde::{Deserialize, Serialize};

use crate::attach_file::Ready;
use crate::client::Client;

/// Whose the device of an attachment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The attachment has had it made.
    Made,
    /// It stood already: `serve --ublk` has made it.
    Found,
}

/// Whether the kernel's ublk may be had here, else why not.
///
/// # Errors
/// In words for a note.
pub fn check() -> Result<(), String> {
    if !process::is_root() {
        return Err("ublk needs root".to_owned());
    }
    ControlDevice::open()
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Has the server make the device.
///
/// # Errors
/// Why it cannot, in words for a note.
pub fn make(client: &Client) -> Result<(Ready, Origin), String> {
    let action = Action::Device { remove: false };
    let answer = client.act(&action).map_err(|problem| problem.message)?;
    let link = PathBuf::from(answer["device"].as_str().unwrap_or_default());
    let device =
        std::fs::read_link(&link).map_err(|error| format!("{}: {error}", link.display()))?;
    let status = client.status().map_err(|problem| problem.message)?;
    let ready = Ready {
        size_bytes: status.size_bytes,
        block_bytes: u32::try_from(answer["block_bytes"].as_u64().unwrap_or(512)).unwrap_or(512),
        is_read_only: answer["is_read_only"].as_bool().unwrap_or(false),
        device: Some(device),
        connections: None,
    };
    let origin = match answer["is_new"].as_bool() {
        Some(false) => Origin::Found,
        _ => Origin::Made,
    };
    Ok((ready, origin))
}

/// The device of a volume, as long as it stands.
#[must_use]
pub fn find(volume: &str) -> Option<PathBuf> {
    let left = named_device(volume)?;
    left.path.exists().then_some(left.path)
}

/// Who uses the device that a volume is served by, in words: the name may lead to that of another array.
#[must_use]
pub fn user(volume: &str, exports: &[ExportStatus]) -> Option<String> {
    let link = link_of(volume).display().to_string();
    let is_served = exports.iter().any(|export| export.uri == link);
    named_device(volume).filter(|_| is_served)?.user()
}

/// Removes the device of a volume.
///
/// # Errors
/// `Busy` when somebody uses it.
pub fn remove(volume: &str) -> Result<(), Problem> {
    let asked = Client::find(Some(volume)).and_then(|client| {
        let action = Action::Device { remove: true };
        client.act(&action).map(drop)
    });
    match asked {
        // Its server is gone, or serves the volume and not the device.
        Err(problem) if matches!(problem.code, Code::NoServer | Code::NoSuchVolume) => {
            remove_left(volume, Users::Keep).map(drop)
        }
        other => other,
    }
}
