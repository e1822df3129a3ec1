//! The ways in to the daemon: its control socket, and the page where it is configured.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

use crate::config::PageConfig;
use crate::control::Post;
use crate::control::events::EventHub;
use crate::control::server::ControlServer;
use crate::control::tls::TlsFiles;
use crate::host::{Host, NvmeListen, Refusal};
use crate::problem::{Code, Problem};
use crate::runtime_dir::RuntimeDir;

/// Mode of the runtime folder where others than the daemon's user come to its socket: they reach a file whose name they
/// know, and see none. Every other socket in it is the own user's alone.
const PASSABLE_MODE: u32 = 0o711;

/// The way in that each daemon has: its control socket.
///
/// # Errors
/// As `ControlServer::start`.
pub(super) fn start(
    folder: &RuntimeDir,
    config: &PageConfig,
    post: Post,
    events: EventHub,
) -> Result<Rc<ControlServer>, Problem> {
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
    Ok(Rc::new(control))
}

/// Where the page is, as an address and for a browser. What keeps it from being anywhere keeps nobody from the other
/// ways: it is among what is wrong with the configuration.
pub(super) fn listen_page(
    control: &ControlServer,
    config: &PageConfig,
    wrong: &mut Vec<String>,
) -> (Option<SocketAddr>, Option<String>) {
    let Some(address) = config.listen else {
        return (None, None);
    };
    let tls = config.tls.as_ref().map(TlsFiles::load).transpose();
    let scheme = config.tls.as_ref().map_or("http", |_| "https");
    let tls = tls.map_err(|error| Problem::new(Code::IoError, error.to_string()));
    match tls.and_then(|tls| control.listen_page(address, tls)) {
        Ok(bound) => (Some(bound), Some(format!("{scheme}://{bound}/"))),
        Err(problem) => {
            wrong.push(until_again("the page is not served", &problem));
            (None, None)
        }
    }
}

fn until_again(what: &str, problem: &Problem) -> String {
    format!("{what} until the daemon is started again: {problem}")
}

/// Where volumes are found over NVMe/TCP; what keeps them from it. A network that is not up yet keeps nobody from the
/// other ways.
pub(super) fn listen_nvme(host: &Host, listen: Option<&NvmeListen>) -> Option<String> {
    let problem = host.listen_nvme(listen?).err().map(Refusal::problem)?;
    Some(until_again("volumes are not found over NVMe/TCP", &problem))
}
