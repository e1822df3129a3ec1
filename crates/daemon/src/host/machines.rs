//! Sockets by which virtual machines have volumes as their disks (vhost-user-blk).

use std::path::Path;
use std::rc::Rc;

use plexum_front::budget::Budget;
use plexum_runtime::socket::Socket;
use plexum_vhost::config::Shape;

use super::hosted::{Front, Hosted, Way};
use super::listen::{accept, bind_unix};
use super::machine::{Ground, MachineServer};
use super::registry::Host;
use crate::problem::{Code, Problem};
use crate::volume::served::Served;

impl Host {
    /// Lets a machine in, when the volume is to be the disk of one.
    ///
    /// # Errors
    /// `SocketInUse`, and as the system says.
    pub(super) fn listen_machines(&self, hosted: &Rc<Hosted>) -> Result<(), Problem> {
        let Some(path) = hosted.machine_socket() else {
            return Ok(());
        };
        let path = std::path::absolute(&path).unwrap_or(path);
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        let listener = bind_unix(&self.handle, &path)?;
        let server = self.machine_server(&served, &path);
        let opened = server.exports.open(Rc::clone(&served.export));
        opened.map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
        hosted.ways.borrow_mut().push(Way {
            uri: format!("vhost-user:{}", path.display()),
            server: Front::Machine(Rc::clone(&server)),
        });
        let spawner = self.handle.clone();
        let take = move |socket: Socket| {
            let _session = spawner.spawn(Rc::clone(&server).receive(socket));
        };
        let shut = Rc::clone(&hosted.shut.borrow());
        let acceptor = accept(&self.handle, listener, shut, take);
        hosted.tasks.borrow_mut().push(acceptor);
        Ok(())
    }

    fn machine_server(&self, served: &Served, path: &Path) -> Rc<MachineServer> {
        let geometry = served.volume.geometry();
        let strip_bytes = geometry.strip_bytes();
        Rc::new(MachineServer::new(Ground {
            name: served.name().to_owned(),
            socket: path.to_owned(),
            budget: Budget::new(self.settings.memory_bytes),
            pool: self.pool.clone(),
            clock: self.handle.clock(),
            events: self.events.clone(),
            shape: Shape {
                io_min_bytes: strip_bytes,
                io_opt_bytes: strip_bytes * geometry.data_count() as u64,
            },
        }))
    }
}
