//! Sockets by which virtual machines have volumes as their disks (vhost-user-blk).

use std::path::PathBuf;
use std::rc::Rc;

use plexum_front::budget::Budget;
use plexum_vhost::config::Shape;

use super::hosted::Hosted;
use super::machine::Ground;
use super::registry::Host;
use super::ways::listen_machine;
use crate::problem::Problem;
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
        let ground = self.ground_of(&served, path);
        let shut = Rc::clone(&hosted.shut.borrow());
        let acceptor = listen_machine(&self.handle, ground, &served.export, &hosted.ways, shut)?;
        hosted.tasks.borrow_mut().push(acceptor);
        Ok(())
    }

    fn ground_of(&self, served: &Served, socket: PathBuf) -> Ground {
        let geometry = served.volume.geometry();
        let strip_bytes = geometry.strip_bytes();
        Ground {
            name: served.name().to_owned(),
            socket,
            budget: Budget::new(self.settings.memory_bytes),
            pool: self.pool.clone(),
            clock: self.handle.clock(),
            events: self.events.clone(),
            shape: Shape {
                io_min_bytes: strip_bytes,
                io_opt_bytes: strip_bytes * geometry.data_count() as u64,
            },
        }
    }
}
