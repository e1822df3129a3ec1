//! A server over memory, raw connections and clients to it, on an executor whose idleness is seen.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part

pub mod played;

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::device::Fua;
use plexum_exec::{Executor, Fifo};
use plexum_nbd::client::{Client, ConnectOptions, connect};
use plexum_nbd::error::NbdError;
use plexum_nbd::server::{Server, ServerLimits};
use plexum_nbd::session::{Ended, SessionCounts};
use plexum_nbd::testing::{MemoryExport, PipeEnd, TestClock, pipe};
use plexum_nbd::transport::Transport;
use plexum_nbd::wire::Framing;
use plexum_nbd::wire::option::{InfoRequest, code, encode_option};
use plexum_nbd::wire::request::Request;

pub const FRAMINGS: [Framing; 3] = [Framing::Simple, Framing::Structured, Framing::Extended];

pub type End = Rc<RefCell<Option<(Result<Ended, NbdError>, SessionCounts)>>>;

/// A server, its clock, and the executor that everything runs on.
pub struct World {
    pub exec: Executor<Fifo>,
    pub clock: TestClock,
    pub pool: BufPool,
    pub server: Rc<Server<MemoryExport, TestClock>>,
    pub room_bytes: usize,
}

impl World {
    pub fn new(exports: Vec<Rc<MemoryExport>>) -> Self {
        Self::with_limits(exports, ServerLimits::default())
    }

    pub fn with_limits(exports: Vec<Rc<MemoryExport>>, limits: ServerLimits) -> Self {
        let clock = TestClock::new();
        let pool = BufPool::new(64 << 20);
        let server = Server::new(clock.clone(), pool.clone(), limits);
        for export in exports {
            server.exports().open(export).unwrap();
        }
        Self {
            exec: Executor::new(Fifo),
            clock,
            pool,
            server: Rc::new(server),
            room_bytes: 64 << 10,
        }
    }

    /// Runs until nothing can go on without time or a test's hand.
    pub fn settle(&mut self) {
        self.exec.run_until_stalled();
    }

    pub fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.settle();
    }

    /// Runs `future` and gives what it returned; fails when it would wait for ever.
    pub fn run<R: 'static>(&mut self, future: impl Future<Output = R> + 'static) -> R {
        let done = self.start(future);
        self.settle();
        let result = done.borrow_mut().take();
        result.expect("the future ends without a further event")
    }

    /// Starts `future`; its result appears in the cell.
    pub fn start<R: 'static>(
        &mut self,
        future: impl Future<Output = R> + 'static,
    ) -> Rc<RefCell<Option<R>>> {
        let done = Rc::new(RefCell::new(None));
        let cell = Rc::clone(&done);
        self.exec.spawn(async move {
            let result = future.await;
            *cell.borrow_mut() = Some(result);
        });
        done
    }

    /// A connection that the server serves; the cell gets the end of its session.
    pub fn dial(&mut self) -> (PipeEnd, End) {
        let (ours, theirs) = pipe(self.room_bytes);
        let server = Rc::clone(&self.server);
        let end = self.start(async move { server.serve(theirs).await });
        (ours, end)
    }

    /// A client with a running driver, and the ends of driver and session.
    #[allow(clippy::type_complexity)]
    pub fn client(
        &mut self,
        options: ConnectOptions,
    ) -> Result<
        (
            Client<PipeEnd>,
            Rc<RefCell<Option<Result<(), NbdError>>>>,
            End,
        ),
        NbdError,
    > {
        let (ours, end) = self.dial();
        let pool = self.pool.clone();
        let connected = self.run(async move { connect(ours, pool, &options).await });
        let (client, driver) = connected?;
        let driven = self.start(driver.run());
        Ok((client, driven, end))
    }

    pub fn client_of(&mut self, export: &str, framing: Framing) -> (Client<PipeEnd>, End) {
        let options = ConnectOptions {
            framing_max: framing,
            ..ConnectOptions::new(export)
        };
        let (client, _, end) = self.client(options).unwrap();
        assert_eq!(client.remote().framing, framing);
        (client, end)
    }

    pub fn buf(&self, bytes: &[u8]) -> Buf {
        self.pool.copy_of(bytes).freeze()
    }

    /// Sends raw bytes as a client.
    pub fn send(&mut self, end: &Rc<PipeEnd>, bytes: &[u8]) {
        let piece = self.buf(bytes);
        let end = Rc::clone(end);
        self.start(async move { end.write_all(&[piece]).await });
        self.settle();
    }

    /// Everything that can be received now.
    pub fn receive(&mut self, end: &Rc<PipeEnd>) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            self.settle();
            let waiting = end.waiting_bytes();
            if waiting == 0 {
                return all;
            }
            let end = Rc::clone(end);
            let part = self.run(async move {
                let mut part = vec![0; waiting];
                let got = end.read(&mut part).await.unwrap();
                part.truncate(got);
                part
            });
            all.extend(part);
        }
    }
}

pub fn memory(name: &str, size_bytes: u64) -> Rc<MemoryExport> {
    Rc::new(MemoryExport::new(name, size_bytes, |_| {}))
}

/// Bytes from hexadecimal digits; blanks are skipped.
pub fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| (byte as char).to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// `length` bytes that differ from place to place.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// An export of sectors that differ from one another.
pub fn filled(sectors: u64) -> Rc<MemoryExport> {
    let export = memory("vol0", sectors * 512);
    let mut world = World::new(vec![export.clone()]);
    let (client, _) = world.client_of("vol0", Framing::Simple);
    for sector in 0..sectors {
        let piece = world.buf(&pattern(sector, 512));
        let c = client.clone();
        world
            .run(async move { c.write(sector * 512, piece, Fua::No).await })
            .unwrap();
    }
    export.take_log();
    export
}

/// A raw connection in its transmission phase (compact requests, simple replies).
pub fn raw(world: &mut World) -> (Rc<PipeEnd>, End) {
    let (stream, end) = world.dial();
    let stream = Rc::new(stream);
    let mut bytes = vec![0, 0, 0, 3];
    encode_option(&mut bytes, code::GO, &InfoRequest::encode("vol0", &[]));
    world.send(&stream, &bytes);
    world.receive(&stream);
    (stream, end)
}

/// Head of a compact request.
pub fn head(command: u16, cookie: u64, offset_bytes: u64, length_bytes: u64) -> Vec<u8> {
    let request = Request {
        flags: 0,
        command,
        cookie,
        offset_bytes,
        length_bytes,
    };
    let (bytes, length) = request.encode(Framing::Simple);
    bytes[..length].to_vec()
}
