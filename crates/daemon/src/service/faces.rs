//! The ways in to the daemon: its control socket, and the page where it is configured.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

use crate::config::PageConfig;
use crate::control::Post;
use crate::control::events::EventHub;
use crate::control::server::ControlServer;
use crate::host::{Host, NvmeListen, Refusal};
use crate::problem::Problem;
use crate::runtime_dir::RuntimeDir;

/// Mode of the runtime folder where others than the daemon's user come to its socket: they reach a file whose name they
/// know, and see none. Every other socket in it is the own user's alone.
const PASSABLE_MODE: u32 = 0o711;

/// Starts them; says at which address the page is.
///
/// # Errors
/// As `ControlServer::start` and `listen_page`.
pub(super) fn start(
    folder: &RuntimeDir,
    config: &PageConfig,
    post: Post,
    events: EventHub,
) -> Result<(Rc<ControlServer>, Option<SocketAddr>), Problem> {
    let control = ControlServer::start_with(config.access.clone(), post, events)?;
    let socket = folder.daemon_socket();
    match config.access.admits_others() {
        true => {
            let shown = folder.path().display().to_string();
            let mode = std::fs::Permissions::from_mode(PASSABLE_MODE);
            std::fs::set_permissions(folder.path(), mode).map_err(|error| {
                Problem::from_io(&error, "opening the runtime folder to others", &shown)
            })?;
            control.add_for_all(&socket)?;
        }
        false => control.add(&socket)?,
    }
    let page = config.listen.map(|address| control.listen_page(address));
    Ok((Rc::new(control), page.transpose()?))
}

/// Where volumes are found over NVMe/TCP; what keeps them from it. A network that is not up yet keeps nobody from the
/// other ways.
pub(super) fn listen_nvme(host: &Host, listen: Option<&NvmeListen>) -> Option<String> {
    let problem = host.listen_nvme(listen?).err().map(Refusal::problem)?;
    Some(format!(
        "volumes are not found over NVMe/TCP until the daemon is started again: {problem}"
    ))
}
