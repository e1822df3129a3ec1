//! A client connected to a server that the test plays by hand.

use std::cell::RefCell;
use std::rc::Rc;

use plexum_front::export::Extent;
use plexum_nbd::client::{Client, ClientError, ConnectOptions, Driver, connect};
use plexum_nbd::error::NbdError;
use plexum_nbd::testing::{PipeEnd, pipe};
use plexum_nbd::transport::Transport;
use plexum_nbd::wire::Framing;
use plexum_nbd::wire::option::{InfoFact, code, encode_context, encode_reply, greeting, reply};
use plexum_nbd::wire::reply::ChunkHead;
use plexum_nbd::wire::request::{Request, header_bytes};

use super::World;

pub const ALL: u16 = 0x0ded;
pub const SIZE: u64 = 1 << 20;

/// What the handshake of a played server says.
pub fn handshake(framing: Framing, facts: &[InfoFact<'_>]) -> Vec<u8> {
    let mut bytes = greeting().to_vec();
    if framing == Framing::Extended {
        encode_reply(&mut bytes, code::EXTENDED_HEADERS, reply::ACK, &[]);
    } else {
        encode_reply(&mut bytes, code::EXTENDED_HEADERS, reply::ERR_UNSUP, &[]);
        let kind = if framing == Framing::Structured {
            reply::ACK
        } else {
            reply::ERR_UNSUP
        };
        encode_reply(&mut bytes, code::STRUCTURED_REPLY, kind, &[]);
    }
    if framing != Framing::Simple {
        let context = encode_context(9, "base:allocation");
        encode_reply(
            &mut bytes,
            code::SET_META_CONTEXT,
            reply::META_CONTEXT,
            &context,
        );
        encode_reply(&mut bytes, code::SET_META_CONTEXT, reply::ACK, &[]);
    }
    for fact in facts {
        encode_reply(&mut bytes, code::GO, reply::INFO, &fact.encode());
    }
    encode_reply(&mut bytes, code::GO, reply::ACK, &[]);
    bytes
}

pub fn export(size_bytes: u64, tflags: u16) -> InfoFact<'static> {
    InfoFact::Export { size_bytes, tflags }
}

/// What `connect` gives.
pub type Connected = Result<(Client<PipeEnd>, Driver<PipeEnd>), NbdError>;
pub type Outcome<R> = Rc<RefCell<Option<R>>>;

/// A client connected to a server that the test plays.
pub struct Played {
    pub world: World,
    pub server: Rc<PipeEnd>,
    pub client: Client<PipeEnd>,
    pub driven: Outcome<Result<(), NbdError>>,
    pub framing: Framing,
}

pub fn dial(script: &[u8]) -> (World, Rc<PipeEnd>, Outcome<Connected>) {
    let mut world = World::new(vec![]);
    let (ours, theirs) = pipe(1 << 20);
    let theirs = Rc::new(theirs);
    let pool = world.pool.clone();
    let connected =
        world.start(async move { connect(ours, pool, &ConnectOptions::new("vol0")).await });
    world.send(&theirs, script);
    (world, theirs, connected)
}

pub fn refusal(script: &[u8]) -> String {
    let (mut world, theirs, connected) = dial(script);
    theirs.close();
    world.settle();
    let error = connected
        .borrow_mut()
        .take()
        .unwrap()
        .err()
        .expect("it is refused");
    error.to_string()
}

impl Played {
    pub fn new(framing: Framing) -> Self {
        Self::with(framing, &[export(SIZE, ALL)])
    }

    pub fn with(framing: Framing, facts: &[InfoFact<'_>]) -> Self {
        let (mut world, server, connected) = dial(&handshake(framing, facts));
        let (client, driver) = connected.borrow_mut().take().unwrap().unwrap();
        assert_eq!(client.remote().framing, framing);
        let driven = world.start(driver.run());
        world.receive(&server);
        Self {
            world,
            server,
            client,
            driven,
            framing,
        }
    }

    pub fn read(
        &mut self,
        offset: u64,
        length: usize,
    ) -> (Outcome<Result<Vec<u8>, ClientError>>, Request) {
        let (client, buf) = (self.client.clone(), self.world.pool.take(length));
        let done = self
            .world
            .start(async move { client.read(offset, buf).await.map(|buf| buf.to_vec()) });
        (done, self.request())
    }

    pub fn flush(&mut self) -> (Outcome<Result<(), ClientError>>, Request) {
        let client = self.client.clone();
        let done = self.world.start(async move { client.flush().await });
        (done, self.request())
    }

    pub fn status(&mut self) -> (Outcome<Result<Vec<Extent>, ClientError>>, Request) {
        let client = self.client.clone();
        let done = self
            .world
            .start(async move { client.status(0, SIZE, false).await });
        (done, self.request())
    }

    /// The one request that the client has sent.
    pub fn request(&mut self) -> Request {
        let bytes = self.world.receive(&self.server);
        assert_eq!(bytes.len(), header_bytes(self.framing));
        Request::decode(self.framing, &bytes).unwrap()
    }

    pub fn chunk(&mut self, request: &Request, is_done: bool, kind: u16, payload: &[u8]) {
        let head = ChunkHead {
            is_done,
            kind,
            cookie: request.cookie,
            offset_bytes: request.offset_bytes,
            length_bytes: payload.len() as u64,
        };
        let (bytes, length) = head.encode(self.framing);
        let bytes = [&bytes[..length], payload].concat();
        self.world.send(&self.server, &bytes);
    }

    pub fn is_broken(&self) -> bool {
        matches!(&*self.driven.borrow(), Some(Err(NbdError::Wire(_)))) && self.client.is_gone()
    }
}

pub fn at(offset: u64, data: &[u8]) -> Vec<u8> {
    [&offset.to_be_bytes()[..], data].concat()
}

pub fn hole(offset: u64, size: u32) -> Vec<u8> {
    [&offset.to_be_bytes()[..], &size.to_be_bytes()].concat()
}
