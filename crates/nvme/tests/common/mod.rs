//! A target over memory, and hosts that speak PDUs to it, on an executor whose idleness is seen.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_exec::{Executor, Fifo};
use plexum_front::testing::{MemoryExport, PipeEnd, TestClock, pipe};
use plexum_front::transport::Transport;
use plexum_nvme::Shape;
use plexum_nvme::error::{Ended, NvmeError};
use plexum_nvme::identity::Identity;
use plexum_nvme::server::{Allowed, Ends, Server, ServerLimits};
use plexum_nvme::wire::command::{Command, Completion, Sgl, admin, io};
use plexum_nvme::wire::digest::{Digests, digest_of};
use plexum_nvme::wire::fabrics::{ANY_CONTROLLER, Connect, ConnectData, Fabrics, property};
use plexum_nvme::wire::log::Asked;
use plexum_nvme::wire::pdu::{HEAD_BYTES, Head, IcRequest, Kind, Transfer, flag};
use plexum_nvme::wire::status::Status;

pub type End = Rc<RefCell<Option<Result<Ended, NvmeError>>>>;

/// A disk of `size_bytes` called `name`.
pub fn memory(name: &str, size_bytes: u64) -> Rc<MemoryExport> {
    Rc::new(MemoryExport::new(name, size_bytes, |_| {}))
}

/// The same bytes for the same seed.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let byte = |at: usize| {
        (seed
            .wrapping_mul(31)
            .wrapping_add(at as u64 * 7 + at as u64 / 256)) as u8
    };
    (0..length).map(byte).collect()
}

/// A volume of that name.
pub fn shape(name: &str) -> Shape {
    Shape {
        identity: Identity::of_key(name),
        io_min_bytes: 65536,
        io_opt_bytes: 196_608,
    }
}

/// A target, its clock, and the executor that everything runs on.
pub struct World {
    pub exec: Executor<Fifo>,
    pub clock: TestClock,
    pub pool: BufPool,
    pub server: Rc<Server<MemoryExport, TestClock>>,
    pub room_bytes: usize,
}

impl World {
    pub fn new(exports: &[&Rc<MemoryExport>]) -> Self {
        Self::with(exports, ServerLimits::default(), Allowed::All)
    }

    pub fn with(exports: &[&Rc<MemoryExport>], limits: ServerLimits, allowed: Allowed) -> Self {
        let clock = TestClock::new();
        let pool = BufPool::new(64 << 20);
        let server = Server::new(clock.clone(), pool.clone(), limits, allowed);
        for export in exports {
            let name = plexum_front::export::Export::info(&***export).name;
            server.open(Rc::clone(export), shape(&name)).unwrap();
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

    /// Runs `future` and gives what it returned; fails when it would wait for ever.
    pub fn run<R: 'static>(&mut self, future: impl Future<Output = R> + 'static) -> R {
        let done = self.start(future);
        self.settle();
        let result = done.borrow_mut().take();
        result.expect("the future ends without a further event")
    }

    /// A connection that the target serves.
    pub fn dial(&mut self) -> (Rc<PipeEnd>, End) {
        self.dial_from("192.0.2.7:1000")
    }

    pub fn dial_from(&mut self, remote: &str) -> (Rc<PipeEnd>, End) {
        let (ours, theirs) = pipe(self.room_bytes);
        let server = Rc::clone(&self.server);
        let ends = Ends {
            local: "192.0.2.1:4420".parse::<SocketAddr>().unwrap(),
            remote: remote.parse::<SocketAddr>().unwrap(),
        };
        let end = self.start(async move { server.serve(theirs, ends).await });
        (Rc::new(ours), end)
    }

    pub fn send(&mut self, end: &Rc<PipeEnd>, bytes: &[u8]) {
        let piece = self.pool.copy_of(bytes).freeze();
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

    /// An I/O queue of a new controller of `volume`, and the controller's admin queue.
    pub fn disk(&mut self, volume: &str) -> (Host, Host) {
        self.disk_with(volume, Digests::default())
    }

    pub fn disk_with(&mut self, volume: &str, digests: Digests) -> (Host, Host) {
        let mut admin = Host::connect(self, volume, digests, 0);
        let id = admin.controller.get();
        admin.enable(self);
        let io = Host::of_controller(self, volume, digests, 1, id);
        (io, admin)
    }
}

/// What comes from a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Done(Completion),
    Data {
        id: u16,
        data: Vec<u8>,
        is_done: bool,
    },
    Ask(Transfer),
    Term(u16, u32),
}

/// One queue, as a host has it.
pub struct Host {
    pub stream: Rc<PipeEnd>,
    pub end: End,
    pub digests: Digests,
    pub controller: Cell<u16>,
    pub next_id: Cell<u16>,
    pending: Vec<u8>,
}

pub fn connect_data(volume: &str, host: &str, controller: u16) -> ConnectData {
    ConnectData {
        host_id: [host.len() as u8; 16],
        controller,
        subsystem: match volume {
            "" => plexum_nvme::wire::fabrics::DISCOVERY_NAME.to_owned(),
            name => Identity::of_key(name).subsystem(),
        },
        host: host.to_owned(),
    }
}

pub fn connect_of(queue: u16) -> Connect {
    Connect {
        record_format: 0,
        queue,
        size_less_one: if queue == 0 { 31 } else { 127 },
        has_no_flow_control: false,
        keep_alive_ms: 0,
    }
}

/// A command's capsule with data.
pub fn capsule(command: &[u8; 64], data: &[u8], digests: Digests) -> Vec<u8> {
    let head = Head::of(Kind::Command, 0, data.len() as u32, digests, 4);
    let mut bytes = Vec::from(head.encode());
    bytes.extend_from_slice(command);
    if digests.header {
        let digest = digest_of([&bytes[..]]);
        bytes.extend_from_slice(&digest);
    }
    if !data.is_empty() {
        bytes.extend_from_slice(data);
        if digests.data {
            bytes.extend_from_slice(&digest_of([data]));
        }
    }
    bytes
}

/// Data that were asked for.
pub fn host_data(transfer: Transfer, data: &[u8], is_last: bool, digests: Digests) -> Vec<u8> {
    let flags = if is_last { flag::LAST } else { 0 };
    let head = Head::of(Kind::HostData, flags, data.len() as u32, digests, 4);
    let mut bytes = Vec::from(transfer.encode(&head));
    if digests.header {
        let digest = digest_of([&bytes[..]]);
        bytes.extend_from_slice(&digest);
    }
    bytes.extend_from_slice(data);
    if digests.data {
        bytes.extend_from_slice(&digest_of([data]));
    }
    bytes
}

pub fn ic_request(digests: Digests) -> [u8; 128] {
    let request = IcRequest {
        alignment_bytes: 4,
        digests,
        transfers_max: 1,
    };
    request.encode()
}

impl Host {
    /// A new controller's admin queue.
    pub fn connect(world: &mut World, volume: &str, digests: Digests, keep_alive_ms: u32) -> Self {
        let connect = Connect {
            keep_alive_ms,
            ..connect_of(0)
        };
        let data = connect_data(volume, "nqn.host", ANY_CONTROLLER);
        Self::open(world, digests, connect, &data).expect("it is let in")
    }

    pub fn of_controller(
        world: &mut World,
        volume: &str,
        digests: Digests,
        queue: u16,
        controller: u16,
    ) -> Self {
        let data = connect_data(volume, "nqn.host", controller);
        Self::open(world, digests, connect_of(queue), &data).expect("it is let in")
    }

    /// Makes a connection a queue, or says what Connect is answered with.
    pub fn open(
        world: &mut World,
        digests: Digests,
        connect: Connect,
        data: &ConnectData,
    ) -> Result<Self, Completion> {
        let (stream, end) = world.dial();
        world.send(&stream, &ic_request(digests));
        let response = world.receive(&stream);
        assert_eq!(response.len(), 128, "{end:?}");
        assert_eq!((response[0], response[11]), (1, digests.encode()));
        let mut host = Self {
            stream,
            end,
            digests,
            controller: Cell::new(0),
            next_id: Cell::new(100),
            pending: Vec::new(),
        };
        let command = Fabrics::Connect(connect).encode(7);
        let bytes = capsule(&command, &data.encode(), digests);
        let stream = Rc::clone(&host.stream);
        world.send(&stream, &bytes);
        match host.hear(world).as_slice() {
            [Heard::Done(done)] if done.status.is_success() => {
                host.controller.set(done.result as u16);
                Ok(host)
            }
            [Heard::Done(done)] => Err(*done),
            other => panic!("{other:?}, {:?}", host.end),
        }
    }

    pub fn send(&mut self, world: &mut World, bytes: &[u8]) {
        let stream = Rc::clone(&self.stream);
        world.send(&stream, bytes);
    }

    /// Everything that has come.
    pub fn hear(&mut self, world: &mut World) -> Vec<Heard> {
        let bytes = world.receive(&self.stream);
        self.pending.extend(bytes);
        let mut heard = Vec::new();
        while let Some((one, length)) = self.parse() {
            self.pending.drain(..length);
            heard.push(one);
        }
        heard
    }

    fn parse(&self) -> Option<(Heard, usize)> {
        let head = Head::decode(self.pending.get(..HEAD_BYTES)?.try_into().unwrap());
        let total = head.total_bytes as usize;
        let pdu = self.pending.get(..total)?;
        let header = &pdu[..usize::from(head.header_bytes)];
        if head.code != 3 && self.digests.header {
            assert_eq!(pdu[header.len()..][..4], digest_of([header]));
        }
        let transfer = || Transfer::decode(header.try_into().unwrap());
        let one = match head.code {
            3 => {
                let at = u32::from_le_bytes(header[10..14].try_into().unwrap());
                Heard::Term(u16::from_le_bytes([header[8], header[9]]), at)
            }
            5 => Heard::Done(Completion::decode(header[8..24].try_into().unwrap())),
            7 => {
                let begin = usize::from(head.data_offset_bytes);
                let end = begin + transfer().count_bytes as usize;
                let data = pdu[begin..end].to_vec();
                if self.digests.data {
                    assert_eq!(pdu[end..], digest_of([&data[..]]));
                }
                assert!(head.flags & flag::LAST != 0);
                Heard::Data {
                    id: transfer().command,
                    data,
                    is_done: head.flags & flag::SUCCESS != 0,
                }
            }
            9 => Heard::Ask(transfer()),
            other => panic!("a target sends no PDU of type {other}"),
        };
        Some((one, total))
    }

    /// The only completion that has come, with its data.
    pub fn done(&mut self, world: &mut World) -> (Completion, Vec<u8>) {
        match self.hear(world).as_slice() {
            [Heard::Done(done)] => (*done, Vec::new()),
            [Heard::Data { data, id, .. }, Heard::Done(done)] => {
                assert_eq!(*id, done.id);
                (*done, data.clone())
            }
            other => panic!("{other:?}, {:?}", self.end),
        }
    }

    pub fn id(&self) -> u16 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    /// Sends a command, and gives what it came to.
    pub fn ask(&mut self, world: &mut World, command: Command) -> (Completion, Vec<u8>) {
        self.tell(world, command, &[]);
        self.done(world)
    }

    pub fn tell(&mut self, world: &mut World, command: Command, data: &[u8]) {
        let bytes = capsule(&command.encode(), data, self.digests);
        self.send(world, &bytes);
    }

    pub fn fabrics(&mut self, world: &mut World, fabrics: Fabrics) -> Completion {
        let bytes = capsule(&fabrics.encode(self.id()), &[], self.digests);
        self.send(world, &bytes);
        self.done(world).0
    }

    pub fn enable(&mut self, world: &mut World) {
        let done = self.fabrics(
            world,
            Fabrics::Set {
                offset_bytes: property::CONFIGURATION,
                value: 0x0046_0001,
            },
        );
        assert!(done.status.is_success());
    }

    pub fn identify(
        &mut self,
        world: &mut World,
        what: u8,
        namespace: u32,
    ) -> (Completion, Vec<u8>) {
        let command = Command {
            namespace,
            sgl: Sgl::transport(4096),
            dwords: [what.into(), 0, 0, 0, 0, 0],
            ..command(admin::IDENTIFY, self.id())
        };
        self.ask(world, command)
    }

    pub fn log_page(&mut self, world: &mut World, asked: Asked) -> (Completion, Vec<u8>) {
        let command = Command {
            sgl: Sgl::transport(asked.count_bytes as u32),
            dwords: asked.encode(),
            ..command(admin::GET_LOG_PAGE, self.id())
        };
        self.ask(world, command)
    }

    pub fn write(&mut self, world: &mut World, block: u64, data: &[u8]) -> Completion {
        let command = write(self.id(), block, data.len(), Sgl::IN_CAPSULE);
        self.tell(world, command, data);
        self.done(world).0
    }

    /// A write whose data are asked for.
    pub fn write_long(&mut self, world: &mut World, block: u64, data: &[u8]) -> Completion {
        let command = write(self.id(), block, data.len(), Sgl::TRANSPORT);
        self.tell(world, command, &[]);
        let heard = self.hear(world);
        let [Heard::Ask(transfer)] = heard.as_slice() else {
            panic!("{heard:?}");
        };
        assert_eq!(transfer.command, command.id);
        assert_eq!(
            (transfer.offset_bytes, transfer.count_bytes as usize),
            (0, data.len())
        );
        let bytes = host_data(*transfer, data, true, self.digests);
        self.send(world, &bytes);
        self.done(world).0
    }

    pub fn read(&mut self, world: &mut World, block: u64, length: usize) -> Vec<u8> {
        let (done, data) = self.ask(world, read(self.id(), block, length));
        assert_eq!(done.status, Status::SUCCESS);
        data
    }

    pub fn flush(&mut self, world: &mut World) -> Completion {
        let command = command(io::FLUSH, self.id());
        self.ask(world, command).0
    }
}

/// A command on namespace 1 without data.
pub fn command(opcode: u8, id: u16) -> Command {
    Command {
        opcode,
        flags: 1 << 6,
        id,
        namespace: 1,
        sgl: Sgl::transport(0),
        dwords: [0; 6],
    }
}

/// A command on a range of blocks of 512 bytes.
pub fn ranged(opcode: u8, id: u16, block: u64, length: usize) -> Command {
    Command {
        dwords: [
            block as u32,
            (block >> 32) as u32,
            (length / 512 - 1) as u32,
            0,
            0,
            0,
        ],
        ..command(opcode, id)
    }
}

pub fn read(id: u16, block: u64, length: usize) -> Command {
    Command {
        sgl: Sgl::transport(length as u32),
        ..ranged(io::READ, id, block, length)
    }
}

pub fn write(id: u16, block: u64, length: usize, identifier: u8) -> Command {
    let sgl = Sgl {
        identifier,
        ..Sgl::transport(length as u32)
    };
    Command {
        sgl,
        ..ranged(io::WRITE, id, block, length)
    }
}
