//! The unit of the service manager that the process of an attachment belongs to.
//!
//! A file system on a volume is unmounted late at shutdown. A login's session ends long before, and with a service ends
//! all that it has started: as a part of either the process would be gone while its device is still mounted.

use std::path::Path;
use std::process::Command;

use plexum_export::process;

use crate::system::tool;

/// The unit that attaches at boot: it is in the right place itself.
const OWN_UNIT: &str = "/plexum-attach@";

/// Where the unit of the process stands: it is ended after file systems are unmounted, and before the daemon.
const PROPERTIES: [&str; 6] = [
    "DefaultDependencies=no",
    "Conflicts=shutdown.target",
    "Before=shutdown.target",
    "Wants=local-fs-pre.target",
    "Before=local-fs-pre.target",
    "After=plexum.service",
];

/// This program, to be started as the process of an attachment: for root under systemd in a unit of its own.
///
/// # Errors
/// This program's own path is not to be had.
pub fn command(volume: &str) -> std::io::Result<Command> {
    let program = std::env::current_exe()?;
    if !needs_unit() {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("systemd-run");
    command.args(["--scope", "--quiet", "--collect"]);
    command.arg(format!("--description=plexum attach {volume}"));
    for property in PROPERTIES {
        command.args(["--property", property]);
    }
    command.arg("--").arg(program);
    Ok(command)
}

/// Whether there is a service manager that can be asked, and this is not the unit for it already.
fn needs_unit() -> bool {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    process::is_root()
        && Path::new("/run/systemd/system").is_dir()
        && !groups.contains(OWN_UNIT)
        && tool(Command::new("systemctl").args(["show", "--property=Version"])).is_ok()
}
