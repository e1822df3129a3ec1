//! The front of a volume in the loop: sessions and clients of the NBD crate over simulated streams, several
//! connections.
//!
//! Invariants:
//! - bytes arrive in order, later, and cut at seeded places;
//! - requests of one client of the world go over any connection, so a flush covers what others wrote, or is found out.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Extent, Fua, IoError, ZeroMode};
use plexum_block::wait::{Signal, join, join_all};
use plexum_engine::volume::Volume;
use plexum_front::export::{Export, ExportInfo, ZeroRequest};
use plexum_nbd::client::{Client, ConnectOptions, connect};
use plexum_nbd::server::{Server, ServerLimits};
use plexum_nbd::transport::{StartTls, Transport, TransportError};

use plexum_disks::clock::SimClock;
use plexum_disks::disk::SimDisk;
use plexum_disks::rng::Rng;

/// Longest time that a piece of a stream is under way, in nanoseconds.
const UNDER_WAY_NS_MAX: u64 = 40_000;

type SimVolume = Volume<SimDisk, SimClock>;

#[derive(Default)]
struct Queue {
    bytes: RefCell<VecDeque<u8>>,
    is_closed: Cell<bool>,
    changed: Signal,
}

/// One end of a simulated stream.
pub struct SimStream {
    clock: SimClock,
    rng: RefCell<Rng>,
    incoming: Rc<Queue>,
    outgoing: Rc<Queue>,
}

fn stream(clock: &SimClock, rng: &Rng) -> (SimStream, SimStream) {
    let (there, back): (Rc<Queue>, Rc<Queue>) = (Rc::default(), Rc::default());
    let end = |incoming: &Rc<Queue>, outgoing: &Rc<Queue>, label| SimStream {
        clock: clock.clone(),
        rng: RefCell::new(rng.fork(label)),
        incoming: Rc::clone(incoming),
        outgoing: Rc::clone(outgoing),
    };
    (end(&there, &back, 1), end(&back, &there, 2))
}

impl Transport for SimStream {
    async fn read(&self, buf: &mut [u8]) -> Result<usize, TransportError> {
        let queue = &self.incoming;
        let has_news = || !queue.bytes.borrow().is_empty() || queue.is_closed.get();
        queue.changed.until(has_news).await;
        let mut bytes = queue.bytes.borrow_mut();
        let most = bytes.len().min(buf.len());
        // Often all of it, sometimes a cut anywhere.
        let count = if most > 1 && self.rng.borrow_mut().chance(1, 4) {
            self.rng.borrow_mut().between(1, most as u64) as usize
        } else {
            most
        };
        for (target, byte) in buf.iter_mut().zip(bytes.drain(..count)) {
            *target = byte;
        }
        Ok(count)
    }

    async fn write_all(&self, pieces: &[Buf]) -> Result<(), TransportError> {
        let delay_ns = self.rng.borrow_mut().below(UNDER_WAY_NS_MAX);
        self.clock.sleep(Duration::from_nanos(delay_ns)).await;
        if self.outgoing.is_closed.get() {
            return Err(TransportError::Closed);
        }
        for piece in pieces {
            self.outgoing.bytes.borrow_mut().extend(piece.iter());
        }
        self.outgoing.changed.notify();
        Ok(())
    }

    fn close(&self) {
        for queue in [&self.incoming, &self.outgoing] {
            queue.is_closed.set(true);
            queue.changed.notify();
        }
    }
}

impl StartTls for SimStream {}

/// The volume as the sessions see it.
struct Exported {
    volume: Rc<SimVolume>,
}

impl Export for Exported {
    fn info(&self) -> ExportInfo {
        ExportInfo {
            name: "sim".to_owned(),
            description: String::new(),
            size_bytes: self.volume.size_bytes(),
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            is_read_only: false,
            is_rotational: false,
        }
    }

    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        self.volume.read(offset_bytes, length_bytes as usize).await
    }

    fn expect_write(&self, offset_bytes: u64, length_bytes: u64) {
        self.volume.expect_write(offset_bytes, length_bytes);
    }

    fn expect_no_write(&self, offset_bytes: u64, length_bytes: u64) {
        self.volume.expect_no_write(offset_bytes, length_bytes);
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.volume.write(offset_bytes, data, fua).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.volume.flush().await
    }

    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        self.volume
            .zero(offset_bytes, length_bytes, ZeroMode::Unmap, fua)
            .await
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        how: ZeroRequest,
    ) -> Result<(), IoError> {
        let mode = how.mode();
        self.volume
            .zero(offset_bytes, length_bytes, mode, how.fua)
            .await
    }

    async fn cache(&self, _offset_bytes: u64, _length_bytes: u64) -> Result<(), IoError> {
        Ok(())
    }

    async fn status(
        &self,
        _offset_bytes: u64,
        length_bytes: u64,
        _extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        Ok(vec![Extent {
            length_bytes,
            is_hole: false,
            is_zero: false,
        }])
    }
}

/// A server with one export and some clients connected to it.
pub struct Front {
    server: Server<Exported, SimClock>,
    clients: RefCell<Vec<Client<SimStream>>>,
    connections: usize,
    connected: Signal,
    next: Cell<usize>,
    clock: SimClock,
    pool: BufPool,
    rng: Rng,
}

impl Front {
    /// A front for `volume`, not yet running.
    #[must_use]
    pub fn new(
        volume: &Rc<SimVolume>,
        connections: usize,
        clock: &SimClock,
        pool: &BufPool,
        seed: u64,
    ) -> Self {
        let server = Server::new(clock.clone(), pool.clone(), ServerLimits::default());
        let export = Exported {
            volume: Rc::clone(volume),
        };
        server
            .exports()
            .open(Rc::new(export))
            .expect("the first export has a good name");
        Self {
            server,
            clients: RefCell::default(),
            connections,
            connected: Signal::new(),
            next: Cell::new(0),
            clock: clock.clone(),
            pool: pool.clone(),
            rng: Rng::new(seed).fork(0x6e62_6400 + clock.now_ns()),
        }
    }

    /// Runs the sessions and the clients until `stop`.
    pub async fn run(&self) {
        let lines = (0..self.connections as u64).map(|number| async move {
            let (near, far) = stream(&self.clock, &self.rng.fork(number));
            let _ended = join(self.server.serve(far), self.client(near)).await;
        });
        join_all(lines).await;
    }

    async fn client(&self, near: SimStream) {
        let options = ConnectOptions::new("sim");
        if let Ok((client, driver)) = connect(near, self.pool.clone(), &options).await {
            self.clients.borrow_mut().push(client);
            self.connected.notify();
            let _ = driver.run().await;
        }
    }

    /// Ends all connections; answers under way come first.
    pub fn stop(&self) {
        for client in self.clients.borrow().iter() {
            client.disconnect();
        }
    }

    /// The next connection in turn; waits until there is one.
    pub async fn client_in_turn(&self) -> Client<SimStream> {
        self.connected
            .until(|| !self.clients.borrow().is_empty())
            .await;
        let clients = self.clients.borrow();
        let number = self.next.get();
        self.next.set(number + 1);
        clients[number % clients.len()].clone()
    }

    /// Bytes that requests in flight hold.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.server.used_bytes()
    }
}
