//! `--parity`: which instructions compute parity, for whoever doubts one of them or compares them.

use plexum_daemon::problem::{Code, Problem};
use plexum_parity::{Kernel, set_kernel};

/// Makes the kernel of this name the one in use; `auto` leaves the choice as it is: the fastest that runs here.
///
/// # Errors
/// `Usage` for a name that no kernel has, and for one that this machine cannot run.
pub fn force(name: &str) -> Result<(), Problem> {
    if name == "auto" {
        return Ok(());
    }
    let refuse = |words: String| Problem::new(Code::Usage, words);
    let kernel = Kernel::from_name(name).ok_or_else(|| {
        let names = Kernel::ALL.map(Kernel::name).join(" ");
        refuse(format!("--parity {name}: it is auto or one of {names}"))
    })?;
    set_kernel(kernel).map_err(|error| refuse(format!("--parity: {error}")))
}
