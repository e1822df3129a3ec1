//! A volume as the disk of a virtual machine (vhost-user-blk): its socket, and the one machine that has it.
//!
//! Invariants:
//! - one machine has the disk at a time: a second one is sent away, since two that do not know of each other would
//!   destroy what is on it;
//! - a machine that comes back, because it or its connection had died, waits until what it had under way has ended.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::wait::Mutex;
use plexum_front::budget::Budget;
use plexum_front::client::Leave;
use plexum_front::exports::Exports;
use plexum_front::requests::RequestLimits;
use plexum_runtime::clock::RealClock;
use plexum_runtime::socket::Socket;
use plexum_runtime::vhost::FrontEnd;
use plexum_vhost::config::Shape;
use plexum_vhost::session::Session;

use super::hosted::{Front, Hosted, Way};
use super::listen::{accept, bind_unix};
use super::registry::Host;
use crate::control::events::EventHub;
use crate::problem::{Code, Problem};
use crate::volume::served::{RealExport, Served};

/// Machines that may wait for one that is going.
const WAITING_MAX: usize = 8;

/// The server of one volume's machine.
pub(crate) struct MachineServer {
    name: String,
    socket: PathBuf,
    pub(super) exports: Exports<RealExport>,
    budget: Budget,
    pool: BufPool,
    clock: RealClock,
    events: EventHub,
    shape: Shape,
    /// Held by the session that there is.
    seat: Mutex,
    seated: RefCell<Option<Rc<FrontEnd>>>,
    waiting: Cell<usize>,
}

impl MachineServer {
    /// Takes the socket away.
    pub(super) fn unbind(&self) {
        let _ = std::fs::remove_file(&self.socket);
    }

    /// Ends who has it.
    pub(super) fn stop(&self, how: Leave) {
        self.exports.tell_all(how);
    }

    /// Whether a machine has the disk whose connection stands.
    fn is_taken(&self) -> bool {
        let seated = self.seated.borrow();
        seated.as_ref().is_some_and(|peer| !peer.has_hung_up())
    }

    fn tell(&self, text: String) {
        let time_s = self.clock.wall_seconds();
        self.events
            .publish(time_s, &self.name, "machine", text, None);
    }

    /// Serves a connection, or sends it away.
    async fn receive(self: Rc<Self>, socket: Socket) {
        let peer = socket.peer().map(|peer| format!("process {}", peer.pid));
        let peer = peer.unwrap_or_default();
        if self.is_taken() || self.waiting.get() >= WAITING_MAX {
            self.tell(format!(
                "{peer} wanted {} as the disk of a machine, and another machine has it: it was sent away",
                self.name
            ));
            return;
        }
        self.waiting.set(self.waiting.get() + 1);
        let turn = self.seat.lock().await;
        self.waiting.set(self.waiting.get() - 1);
        self.serve(socket, peer).await;
        drop(turn);
    }

    async fn serve(&self, socket: Socket, peer: String) {
        let front_end = Rc::new(FrontEnd::new(socket));
        let limits = RequestLimits::default();
        let opened = self.exports.find("");
        let enter = |opened| {
            self.exports
                .enter(&opened, peer.clone(), limits, &self.budget)
        };
        let Some(visit) = opened.and_then(enter) else {
            return; // it is being closed
        };
        *self.seated.borrow_mut() = Some(Rc::clone(&front_end));
        let tell = |text: String| self.tell(format!("{peer}: {text}"));
        let shape = self.shape;
        let session = Session::new(&*front_end, &visit, &self.clock, &self.pool, shape, &tell);
        if let Err(error) = session.run().await {
            tell(error.to_string());
        }
        self.seated.take();
    }
}

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
        Rc::new(MachineServer {
            name: served.name().to_owned(),
            socket: path.to_owned(),
            exports: Exports::default(),
            budget: Budget::new(self.settings.memory_bytes),
            pool: self.pool.clone(),
            clock: self.handle.clock(),
            events: self.events.clone(),
            shape: Shape {
                io_min_bytes: strip_bytes,
                io_opt_bytes: strip_bytes * geometry.data_count() as u64,
            },
            seat: Mutex::new(),
            seated: RefCell::default(),
            waiting: Cell::new(0),
        })
    }
}
