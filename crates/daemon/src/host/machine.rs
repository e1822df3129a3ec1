//! A volume as the disk of a virtual machine (vhost-user-blk): its server, and the one machine that has it.
//!
//! Invariants:
//! - one machine has the disk at a time: a second one is sent away, since two that do not know of each other would
//!   destroy what is on it;
//! - a machine that comes back, because it or its connection had died, waits until what it had under way has ended.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
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

use crate::control::events::EventHub;
use crate::volume::export::VolumeExport;

/// What a server of a machine is made of.
pub(super) struct Ground {
    /// Name of the volume.
    pub(super) name: String,
    /// Where the machine connects.
    pub(super) socket: PathBuf,
    /// Memory for its requests.
    pub(super) budget: Budget,
    pub(super) pool: BufPool,
    pub(super) clock: RealClock,
    pub(super) events: EventHub,
    /// How the volume likes its requests.
    pub(super) shape: Shape,
}

/// The server of one volume's machine.
pub(crate) struct MachineServer {
    ground: Ground,
    pub(super) exports: Exports<VolumeExport>,
    /// Held by the session that there is.
    seat: Mutex,
    seated: RefCell<Option<Rc<FrontEnd>>>,
    /// Somebody waits for it.
    is_awaited: Cell<bool>,
}

impl MachineServer {
    /// A server without an export.
    pub(super) fn new(ground: Ground) -> Self {
        Self {
            ground,
            exports: Exports::default(),
            seat: Mutex::new(),
            seated: RefCell::default(),
            is_awaited: Cell::new(false),
        }
    }

    /// Takes the socket away.
    pub(super) fn unbind(&self) {
        let _ = std::fs::remove_file(&self.ground.socket);
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
        let time_s = self.ground.clock.wall_seconds();
        self.ground
            .events
            .publish(time_s, &self.ground.name, "machine", text, None);
    }

    /// Serves a connection, or sends it away.
    pub(super) async fn receive(self: Rc<Self>, socket: Socket) {
        let peer = socket.peer().map(|peer| format!("process {}", peer.pid));
        let peer = peer.unwrap_or_default();
        if self.is_taken() || self.is_awaited.get() {
            self.tell(format!(
                "{peer} wanted {} as the disk of a machine, and another machine has it: it was sent away",
                self.ground.name
            ));
            return;
        }
        self.is_awaited.set(true);
        let turn = self.seat.lock().await;
        self.is_awaited.set(false);
        self.serve(socket, peer).await;
        drop(turn);
    }

    async fn serve(&self, socket: Socket, peer: String) {
        let front_end = Rc::new(FrontEnd::new(socket));
        let limits = RequestLimits::default();
        let opened = self.exports.find("");
        let enter = |opened| {
            self.exports
                .enter(&opened, peer.clone(), limits, &self.ground.budget)
        };
        let Some(visit) = opened.and_then(enter) else {
            return; // it is being closed
        };
        *self.seated.borrow_mut() = Some(Rc::clone(&front_end));
        let tell = |text: String| self.tell(format!("{peer}: {text}"));
        let shape = self.ground.shape;
        let session = Session::new(
            &*front_end,
            &visit,
            &self.ground.clock,
            &self.ground.pool,
            shape,
            &tell,
        );
        if let Err(error) = session.run().await {
            tell(error.to_string());
        }
        self.seated.take();
    }
}
