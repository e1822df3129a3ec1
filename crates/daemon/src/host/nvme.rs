//! Volumes over NVMe/TCP: the addresses at which hosts find them, and what they are called there.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_front::client::Leave;
use plexum_front::export::Export;
use plexum_nvme::Shape;
use plexum_nvme::identity::Identity;
use plexum_nvme::server::{Allowed, Ends, Server, ServerLimits};
use plexum_runtime::Handle;
use plexum_runtime::clock::RealClock;
use plexum_runtime::socket::Socket;

use super::hosted::{Hosted, NvmeServer, Stage};
use super::refusal::Refusal;
use super::ways::{Front, Ways};
use crate::memory::Key;
use crate::problem::{Code, Problem};
use crate::volume::served::Served;

/// Where volumes are found over NVMe/TCP, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeListen {
    /// The address.
    pub address: SocketAddr,
    /// Hosts that may connect.
    pub allowed: Allowed,
}

/// An address that is listened on.
struct NvmeAddress {
    address: SocketAddr,
    server: Rc<NvmeServer>,
}

/// All addresses of a host.
#[derive(Default)]
pub(super) struct NvmeAddresses(RefCell<Vec<NvmeAddress>>);

impl NvmeAddresses {
    /// One more address; volumes that are open are found there.
    pub(super) fn open(
        &self,
        address: SocketAddr,
        server: &Rc<NvmeServer>,
        volumes: &[Rc<Hosted>],
    ) -> Result<(), Problem> {
        let server = Rc::clone(server);
        let nvme = NvmeAddress { address, server };
        let mut open = volumes.iter().filter(|one| one.stage() == Stage::Open);
        open.try_for_each(|hosted| add_nvme(hosted, &nvme))?;
        self.0.borrow_mut().push(nvme);
        Ok(())
    }

    /// A volume that opens is found at all of them.
    pub(super) fn add(&self, hosted: &Hosted) -> Result<(), Problem> {
        self.0
            .borrow()
            .iter()
            .try_for_each(|nvme| add_nvme(hosted, nvme))
    }

    /// Ends all of them; the volumes were closed.
    pub(super) fn end(&self) {
        for nvme in self.0.borrow_mut().drain(..) {
            nvme.server.stop(Leave::Drain);
        }
    }
}

/// A target for one address.
pub(crate) fn new_server<E: Export + 'static>(
    handle: &Handle,
    pool: &BufPool,
    memory_bytes: u64,
    by: &Allowed,
) -> Rc<Server<E, RealClock>> {
    let limits = ServerLimits {
        bytes_max: memory_bytes,
        ..ServerLimits::default()
    };
    Rc::new(Server::new(
        handle.clock(),
        pool.clone(),
        limits,
        by.clone(),
    ))
}

/// Serves each connection in a task of its own.
pub(crate) fn serve_each<E: Export + 'static>(
    handle: &Handle,
    server: &Rc<Server<E, RealClock>>,
) -> impl Fn(Socket) + 'static {
    let (spawner, server) = (handle.clone(), Rc::clone(server));
    move |socket| {
        let (Some(local), Some(remote)) = (socket.local_address(), socket.remote_address()) else {
            return; // it has ended already
        };
        let server = Rc::clone(&server);
        let _session = spawner.spawn(async move {
            let _ended = server.serve(socket, Ends { local, remote }).await;
        });
    }
}

fn add_nvme(hosted: &Hosted, nvme: &NvmeAddress) -> Result<(), Problem> {
    let served = hosted.served().map_err(Refusal::problem)?;
    let shape = shape_of(&served);
    let server = (nvme.address, &nvme.server);
    add_to(server, &served.export, shape, &hosted.ways)
}

/// Has an export found at an address, as a subsystem of its own.
///
/// # Errors
/// `Usage`: its name is taken there.
pub(crate) fn add_to<E: Export + 'static>(
    (address, server): (SocketAddr, &Rc<Server<E, RealClock>>),
    export: &Rc<E>,
    shape: Shape,
    ways: &Ways<E>,
) -> Result<(), Problem> {
    let opened = server.open(Rc::clone(export), shape);
    opened.map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    let name = shape.identity.subsystem();
    let uri = format!("nvme+tcp://{address}/{name}");
    ways.add(uri, Front::Nvme(Rc::clone(server)));
    Ok(())
}

/// What a volume is over NVMe.
fn shape_of(served: &Served) -> Shape {
    let geometry = served.volume.geometry();
    let strip_bytes = geometry.strip_bytes();
    Shape {
        identity: identity_of(served),
        io_min_bytes: strip_bytes,
        io_opt_bytes: strip_bytes * geometry.data_count() as u64,
    }
}

/// Its identity: an md array's UUID, and of others a number made of what they are known by.
fn identity_of(served: &Served) -> Identity {
    let facts = &served.facts;
    let own = uuid_of(&facts.uuid).filter(|uuid| facts.is_md() && *uuid != [0; 16]);
    own.map_or_else(
        || {
            let key = Key::of(&facts.format.to_string(), &facts.uuid, served.name());
            Identity::of_key(&key.to_string())
        },
        Identity::of_uuid,
    )
}

/// The bytes of a UUID as md shows it.
fn uuid_of(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uuid_of_an_array_is_that_of_its_namespace() {
        let uuid: [u8; 16] = std::array::from_fn(|at| 200 + at as u8);
        let text = plexum_format::uuid::md_uuid_text(&uuid);
        assert_eq!(uuid_of(&text), Some(uuid));
        for other in [
            "",
            "1234",
            "c8c9cacb:cccdcecf:d0d1d2d3:d4d5d6d",
            "geom name",
        ] {
            assert_eq!(uuid_of(other), None);
        }
    }
}
