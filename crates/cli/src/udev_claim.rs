//! `plexum udev-claim`: udev's rule asks whose a disk is, while the machine starts and nobody serves anything yet.
//!
//! Invariants: it needs no daemon and waits for nobody; whatever goes wrong, it says nothing and ends with 0, so that a
//! disk goes its usual way.

use plexum_daemon::claims::{Blkid, claim_on, claims, udev_lines};
use plexum_daemon::memory::{StateDir, Surroundings};

use crate::args;
use crate::control::runtime_dir;
use crate::errors::Outcome;
use crate::output::Screen;

/// Runs the command.
///
/// # Errors
/// None.
pub fn run(args: &args::UdevClaim, screen: &Screen) -> Outcome {
    // udev gives the properties that it has found so far to a program that it imports from.
    let property = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let blkid = Blkid {
        kind: property("ID_FS_TYPE"),
        uuid: property("ID_FS_UUID"),
    };
    let state = StateDir::locate(&Surroundings::of_this_process());
    let claims = claims(state.as_ref(), &runtime_dir());
    if let Some(claim) = claim_on(&args.device, &blkid, &claims) {
        screen.part(udev_lines(&claim));
    }
    Ok(0)
}
