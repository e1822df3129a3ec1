//! A disk in memory, and sessions for machines that come and go.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_front::budget::Budget;
use plexum_front::export::ExportInfo;
use plexum_front::exports::Exports;
use plexum_front::requests::RequestLimits;
use plexum_front::testing::{MemoryExport, TestClock};
use plexum_runtime::vhost::FrontEnd;
use plexum_runtime::{Handle, IoChoice, JoinHandle, Runtime};
use plexum_vhost::config::Shape;
use plexum_vhost::peer::Peer;
use plexum_vhost::session::{Ended, Session, SessionError};

use crate::guest::{Guest, pair};

/// Size of the disk.
pub const DISK_BYTES: u64 = 8 << 20;

/// What all sessions share.
pub struct Ground {
    pub handle: Handle,
    pub export: Rc<MemoryExport>,
    pub exports: Rc<Exports<MemoryExport>>,
    pub budget: Budget,
    pub clock: TestClock,
    pub pool: BufPool,
    /// What sessions have told.
    pub told: Rc<RefCell<Vec<String>>>,
}

pub type Served = JoinHandle<Result<Ended, SessionError>>;

/// Runs a test beside the sessions that it begins.
pub fn on_ground<F: Future<Output = ()>>(
    change: impl FnOnce(&mut ExportInfo),
    test: impl FnOnce(Ground) -> F,
) {
    let mut runtime = Runtime::new(IoChoice::Auto).unwrap();
    let export = Rc::new(MemoryExport::new(
        "a disk with a long name",
        DISK_BYTES,
        change,
    ));
    let exports = Rc::new(Exports::default());
    exports.open(Rc::clone(&export)).unwrap();
    let ground = Ground {
        handle: runtime.handle(),
        export,
        exports,
        budget: Budget::new(0),
        clock: TestClock::new(),
        pool: BufPool::new(1 << 20),
        told: Rc::default(),
    };
    runtime.block_on(test(ground));
}

impl Ground {
    /// A session for a machine, which has not said anything.
    pub fn connect(&self) -> (Guest, Served) {
        let (server, client) = pair(&self.handle);
        (Guest::new(client), self.serve(server))
    }

    /// A session over a connection.
    pub fn serve(&self, socket: FrontEnd) -> Served {
        let opened = self.exports.find("").unwrap();
        let limits = RequestLimits::default();
        let visit = self
            .exports
            .enter(&opened, String::new(), limits, &self.budget);
        let visit = visit.unwrap();
        let (clock, pool, told) = (self.clock.clone(), self.pool.clone(), Rc::clone(&self.told));
        self.handle.spawn(async move {
            let tell = |text: String| told.borrow_mut().push(text);
            let session = Session::new(&socket, &visit, &clock, &pool, Shape::default(), &tell);
            session.run().await
        })
    }

    /// Nothing is left of any client.
    pub fn assert_empty(&self) {
        assert_eq!(self.budget.used_bytes(), 0, "memory is given back");
        assert_eq!(self.exports.clients("a disk with a long name").len(), 0);
    }

    /// Lets everything go on that can: what was said before is heard before what is said here, and followed.
    pub async fn settle(&self) {
        let (one, other) = pair(&self.handle);
        for _ in 0..8 {
            one.send(&[1], None).await.unwrap();
            other.receive(&mut [0], &mut Vec::new()).await.unwrap();
            for _ in 0..50 {
                plexum_runtime::yield_now().await;
            }
        }
    }

    /// Waits until so many calls wait at the disk.
    pub async fn until_held(&self, count: usize) {
        while self.export.held().len() < count {
            plexum_runtime::yield_now().await;
        }
    }
}
