//! Real volumes that an experiment builds, measures and takes apart again: Plexum's own, and those of its peers.
//!
//! Invariants:
//! - what can be known beforehand is checked before the first byte is written (`check`);
//! - devices are written to only when each is named in `destroy`; in a folder only one folder of ours is made;
//! - what was made is undone after success, failure and Ctrl-C, and after a death of the process by the next one.

mod plan;
mod site;
mod systems;
mod tool;

use std::path::{Path, PathBuf};

use plan::Plan;
pub use plan::SYSTEMS;
pub use site::MEMBERS_PREFIX;
use site::Site;

use crate::error::LabError;
use crate::place::{interrupt, look_at_device};
use crate::setup::Setup;
use crate::work::real::{On, Space, check_on, fill, measure_on};
use crate::work::{Measurement, Work};

/// Space that stays free in a folder of members.
const SPARE_BYTES: u64 = 16 << 20;

/// What building needs of its surroundings.
#[derive(Clone, Debug)]
pub struct Workshop {
    /// The program that makes, serves and attaches volumes.
    pub program: PathBuf,
    /// A folder of this user alone, for journals and sockets.
    pub home: PathBuf,
}

impl Workshop {
    /// Undoes what experiments that were killed have left; a line about each.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn clear_leftovers(&self) -> Result<Vec<String>, LabError> {
        site::clear_leftovers(self)
    }
}

impl Plan<'_> {
    /// The folder that members are made in; `None` when they are devices.
    fn folder(&self) -> Option<&Path> {
        match self.setup.members_on.as_slice() {
            [only] if Path::new(only).is_dir() => Some(Path::new(only)),
            _ => None,
        }
    }
}

fn refused(setup: &Setup, text: &str) -> LabError {
    LabError::Usage(format!("{}: {text}", setup.label()))
}

/// Checks an arrangement and its workload; nothing is touched.
///
/// # Errors
/// `Usage` for what cannot be built here or where the workload does not fit; `WouldDestroy` for a device that was not
/// named for it.
pub fn check(setup: &Setup, work: &Work) -> Result<(), LabError> {
    let mut plan = Plan::of(setup)?;
    let needs_root = plan.is_device() || plan.folder().is_none();
    if needs_root && !rustix::process::geteuid().is_root() {
        return Err(refused(setup, "loop devices, mounts and disks need root"));
    }
    match plan.folder() {
        Some(folder) => check_folder(setup, folder, plan.member_bytes)?,
        None => plan.member_bytes = check_devices(setup)?,
    }
    let space = match plan.is_mounted() {
        true => Space::Folder(plan.volume_bytes()),
        false => Space::Device(plan.volume_bytes()),
    };
    check_on(work, space).map_err(|error| match error {
        LabError::Usage(text) => refused(setup, &text),
        other => other,
    })
}

fn check_folder(setup: &Setup, folder: &Path, member_bytes: u64) -> Result<(), LabError> {
    let shown = folder.display();
    let space = rustix::fs::statvfs(folder)
        .map_err(|error| refused(setup, &format!("{shown}: {error}")))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let wanted = member_bytes.saturating_mul(setup.members as u64);
    if wanted.saturating_add(SPARE_BYTES) > free {
        return Err(refused(
            setup,
            &format!("{shown}: members of {wanted} bytes are wanted, {free} are free"),
        ));
    }
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)
        .map_err(|error| refused(setup, &format!("{shown}: {error}")))
}

/// The usable size of the smallest device.
fn check_devices(setup: &Setup) -> Result<u64, LabError> {
    let devices = setup.members_on.as_slice();
    if devices.len() < setup.members {
        let text = match devices {
            [] => "members_on is missing: a folder for files, or a list of devices".to_owned(),
            [one] => format!("members_on = \"{one}\" is no folder, and one device is too few"),
            _ => format!("{} devices are too few", devices.len()),
        };
        return Err(refused(setup, &text));
    }
    let mut size_min = u64::MAX;
    let mut seen = std::collections::BTreeSet::new();
    for device in &devices[..setup.members] {
        if !setup.destroy.contains(device) {
            return Err(LabError::WouldDestroy(format!(
                "what is on {device} would be lost: only with {device} in destroy"
            )));
        }
        let path = Path::new(device);
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if !seen.insert(real) {
            return Err(refused(setup, &format!("{device} is named twice")));
        }
        size_min = size_min.min(look_at_device(path)?);
    }
    match setup.member_bytes {
        0 => Ok(size_min),
        bytes if bytes <= size_min => Ok(bytes),
        bytes => Err(refused(
            setup,
            &format!("member_bytes is {bytes}, the smallest device has {size_min} bytes"),
        )),
    }
}

/// Lines about folders of members that nobody uses and no journal knows.
#[must_use]
pub fn strays(setup: &Setup) -> Vec<String> {
    let parents = setup.members_on.iter().map(Path::new);
    let strays = parents.flat_map(site::stray_members);
    strays
        .map(|folder| {
            let shown = folder.display();
            format!("{shown} is left over from an experiment before the last start of the system; remove it")
        })
        .collect()
}

/// Builds the arrangement, runs the workload on it, and takes it apart.
///
/// # Errors
/// `Skipped` for what cannot be built here, with the reason; everything of `measure_on`; what could not be undone.
pub fn measure(
    workshop: &Workshop,
    setup: &Setup,
    work: &Work,
    seed: u64,
) -> Result<Measurement, LabError> {
    interrupt::catch()?;
    let mut plan = Plan::of(setup)?;
    if plan.folder().is_none() {
        plan.member_bytes = check_devices(setup)?;
    }
    let mut site = Site::begin(workshop)?;
    let built = systems::build(&mut site, &plan).map_err(|error| match error {
        LabError::Io(text) | LabError::Usage(text) => {
            LabError::Skipped(format!("{}: cannot be built: {text}", setup.label()))
        }
        other => other,
    });
    let measured = built.and_then(|name| {
        let destroy = (!plan.is_mounted()).then_some(name.as_str());
        let name = name.as_str();
        let on = On { name, destroy };
        let filled = match destroy {
            Some(_) => fill(&on, work),
            None => Ok(()), // in a folder the file is filled
        };
        let measured = filled.and_then(|()| measure_on(&on, work, seed));
        measured.map_err(|error| match error {
            LabError::Usage(text) => LabError::Skipped(format!("{}: {text}", setup.label())),
            other => other,
        })
    });
    match (measured, site.undo()) {
        (measured, Ok(())) => measured,
        (Ok(_) | Err(LabError::Skipped(_)), Err(undone)) => Err(undone),
        (Err(error), Err(undone)) => Err(LabError::Io(format!("{error}; {undone}"))),
    }
}
