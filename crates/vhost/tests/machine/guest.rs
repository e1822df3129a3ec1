//! A made-up machine: a front end and a driver, which also does what no driver does.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use plexum_front::memory::Memory;
use plexum_runtime::Handle;
use plexum_runtime::socket::Socket;
use plexum_runtime::vhost::{Doorbell, FrontEnd, SharedMemory, Signal};
use plexum_vhost::config::feature;
use plexum_vhost::peer::{Call, Kick, Mapping, Peer};
use plexum_vhost::wire::{
    HEADER_BYTES, Header, InflightArea, Message, Region, RingFile, RingPlace, RingValue,
};
use rustix::event::{EventfdFlags, eventfd};

/// Where the memory begins for the guest, and for the front end.
pub const GUEST: u64 = 0x10_0000;
pub const USER: u64 = 0x7f00_0000_0000;
/// Its size. Rings are in the first MiB.
pub const MEMORY_BYTES: u64 = 16 << 20;
/// Where data are.
pub const DATA: u64 = GUEST + (1 << 20);
/// What a driver takes.
pub const ORDINARY: u64 = feature::FLUSH
    | feature::DISCARD
    | feature::WRITE_ZEROES
    | feature::INDIRECT
    | feature::EVENT_INDEX
    | feature::PROTOCOL
    | feature::VERSION_1;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// A descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    pub address: u64,
    pub count: u32,
    pub flags: u16,
    pub next: u16,
}

impl Descriptor {
    /// One that the device reads.
    pub fn readable(address: u64, count: u32) -> Self {
        Self {
            address,
            count,
            flags: 0,
            next: 0,
        }
    }

    /// One that it writes.
    pub fn writable(address: u64, count: u32) -> Self {
        Self {
            flags: WRITE,
            ..Self::readable(address, count)
        }
    }

    fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.count.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }
}

/// One queue as its driver sees it.
pub struct Queue {
    number: usize,
    size: u16,
    kick: Signal,
    pub call: Doorbell,
    pub error: Doorbell,
    available: Cell<u16>,
    seen: Cell<u16>,
}

/// The machine.
pub struct Guest {
    pub socket: Rc<FrontEnd>,
    pub memory: Rc<SharedMemory>,
    pub file: OwnedFd,
    pub features: u64,
}

pub fn event() -> (OwnedFd, OwnedFd) {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let other = event.try_clone().unwrap();
    (event, other)
}

/// A socket for the server, and the front end's.
pub fn pair(handle: &Handle) -> (FrontEnd, FrontEnd) {
    let (one, other) = Socket::pair(handle).unwrap();
    (FrontEnd::new(one), FrontEnd::new(other))
}

impl Guest {
    /// A machine that has said nothing yet.
    pub fn new(socket: FrontEnd) -> Self {
        let (file, memory) = SharedMemory::share(MEMORY_BYTES).unwrap();
        Self {
            socket: Rc::new(socket),
            memory: Rc::new(memory),
            file,
            features: 0,
        }
    }

    /// Sends a message, with a file.
    pub async fn send(&self, message: &Message, file: Option<&OwnedFd>) {
        let payload = message.encode_payload();
        let header = Header {
            request: message.request(),
            needs_reply: false,
            is_reply: false,
            payload_bytes: payload.len(),
        };
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(&payload);
        let _ = self.socket.send(&bytes, file).await; // a server that has gone is seen by what it answers
    }

    /// The next answer, and its file; `None` when the connection has ended.
    pub async fn answer(&self) -> Option<(u32, Vec<u8>, Vec<OwnedFd>)> {
        let (mut head, mut files) = ([0; HEADER_BYTES], Vec::new());
        self.fill(&mut head, &mut files).await?;
        let header = Header::decode(&head).unwrap();
        assert!(header.is_reply || header.request == 2, "{header:?}");
        let mut payload = vec![0; header.payload_bytes];
        self.fill(&mut payload, &mut files).await?;
        Some((header.request, payload, files))
    }

    async fn fill(&self, buf: &mut [u8], files: &mut Vec<OwnedFd>) -> Option<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.socket.receive(&mut buf[done..], files).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => done += count,
            }
        }
        Some(())
    }

    /// Asks, and gives the payload of the answer.
    pub async fn ask(&self, message: &Message) -> Option<Vec<u8>> {
        self.send(message, None).await;
        Some(self.answer().await?.1)
    }

    pub async fn number(&self, message: &Message) -> u64 {
        let payload = self.ask(message).await.expect("an answer");
        u64::from_ne_bytes(payload.try_into().unwrap())
    }

    pub fn region() -> Region {
        Region {
            guest_address: GUEST,
            size_bytes: MEMORY_BYTES,
            user_address: USER,
            file_offset_bytes: 0,
        }
    }

    /// Everything up to the memory.
    pub async fn greet(&mut self, features: u64) {
        let offered = self.number(&Message::GetFeatures).await;
        assert_eq!(features & !offered, 0, "what is taken was offered");
        self.send(&Message::SetOwner, None).await;
        if features & feature::PROTOCOL != 0 {
            let offered = self.number(&Message::GetProtocolFeatures).await;
            self.send(&Message::SetProtocolFeatures(offered), None)
                .await;
        }
        self.send(&Message::SetFeatures(features), None).await;
        self.features = features;
        let table = Message::SetMemoryTable(vec![Self::region()]);
        self.send(&table, Some(&self.file)).await;
    }

    pub async fn keep_record(&self, queues: u16, descriptors: u16) -> (InflightArea, OwnedFd) {
        let asked = InflightArea {
            size_bytes: 0,
            file_offset_bytes: 0,
            queues,
            descriptors,
        };
        self.send(&Message::GetInflight(asked), None).await;
        let (_, payload, mut files) = self.answer().await.expect("an answer");
        let header = Header {
            request: 32,
            needs_reply: false,
            is_reply: false,
            payload_bytes: payload.len(),
        };
        let Ok(Message::SetInflight(area)) = Message::decode(&header, &payload) else {
            panic!("an area is answered")
        };
        (area, files.pop().expect("with its file"))
    }

    fn ring(queue: usize) -> u64 {
        queue as u64 * 0x10000
    }

    fn place(queue: usize) -> RingPlace {
        let at = USER + Self::ring(queue);
        RingPlace {
            ring: queue as u32,
            flags: 0,
            descriptors: at,
            used: at + 0xa000,
            available: at + 0x8000,
            log: 0,
        }
    }

    /// Sets a queue up, and has it worked on. Its next entry is `base`.
    pub async fn set_up(&self, queue: usize, size: u16, base: u16) -> Queue {
        let ring = queue as u32;
        let value = |value: u32| RingValue { ring, value };
        let file = RingFile {
            ring: queue as u8,
            has_file: true,
        };
        let ((kick, kicked), (call, called), (error, broken)) = (event(), event(), event());
        // QEMU says the first of these before it says what it takes.
        for (message, file) in [
            (Message::SetCall(file), Some(&called)),
            (Message::SetRingSize(value(u32::from(size))), None),
            (Message::SetRingBase(value(u32::from(base))), None),
            (Message::SetRingPlace(Self::place(queue)), None),
            (Message::SetError(file), Some(&broken)),
            (Message::SetKick(file), Some(&kicked)),
        ] {
            self.send(&message, file).await;
        }
        // Nothing is with the device when a queue is set up.
        let used = (Self::ring(queue) + 0xa002) as usize;
        self.memory.store_u16(used, base).unwrap();
        let available = (Self::ring(queue) + 0x8002) as usize;
        if self.memory.load_u16(available).unwrap() == 0 {
            self.memory.store_u16(available, base).unwrap(); // nor is anything offered yet
        }
        let wanted = available + 2 + 2 * usize::from(size);
        self.memory.store_u16(wanted, base).unwrap(); // and an event is wanted for the next one
        if self.features & feature::PROTOCOL != 0 {
            self.send(&Message::SetRingEnabled(value(1)), None).await;
        }
        Queue {
            number: queue,
            size,
            kick: self.socket.call(kick).unwrap(),
            call: self.socket.kick(call).unwrap(),
            error: self.socket.kick(error).unwrap(),
            available: Cell::new(self.memory.load_u16(available).unwrap()),
            seen: Cell::new(base),
        }
    }

    fn at(queue: &Queue, offset_bytes: u64) -> usize {
        (Self::ring(queue.number) + offset_bytes) as usize
    }

    /// Puts a descriptor into a ring.
    pub fn put(&self, queue: &Queue, index: u16, descriptor: &Descriptor) {
        let at = Self::at(queue, u64::from(index) * 16);
        self.memory.store(at, &descriptor.encode()).unwrap();
    }

    /// Puts a chain into the ring, from descriptor `head` on.
    pub fn chain(&self, queue: &Queue, head: u16, chain: &[Descriptor]) {
        for (index, descriptor) in (head..).zip(chain) {
            let is_last = usize::from(index - head) + 1 == chain.len();
            let linked = Descriptor {
                flags: descriptor.flags | if is_last { 0 } else { NEXT },
                next: index + 1,
                ..*descriptor
            };
            self.put(queue, index, &linked);
        }
    }

    /// Offers a head, and tells of it.
    pub fn offer(&self, queue: &Queue, head: u16) {
        let index = queue.available.get();
        let entry = 0x8000 + 4 + 2 * u64::from(index % queue.size);
        self.memory.store_u16(Self::at(queue, entry), head).unwrap();
        self.jump(queue, index.wrapping_add(1));
    }

    /// Says that entries up to `index` are offered.
    pub fn jump(&self, queue: &Queue, index: u16) {
        queue.available.set(index);
        self.memory
            .store_u16(Self::at(queue, 0x8002), index)
            .unwrap();
        queue.kick.signal();
    }

    /// How many were given back since the last look.
    pub fn given_back(&self, queue: &Queue) -> u16 {
        let used = self.memory.load_u16(Self::at(queue, 0xa002)).unwrap();
        used.wrapping_sub(queue.seen.get())
    }

    /// The next head that is given back, and how much was written.
    pub async fn finish(&self, queue: &Queue) -> (u16, u32) {
        while self.given_back(queue) == 0 {
            queue.call.wait().await.unwrap();
        }
        let seen = queue.seen.get();
        let mut entry = [0; 8];
        let at = 0xa000 + 4 + 8 * u64::from(seen % queue.size);
        self.memory.load(Self::at(queue, at), &mut entry).unwrap();
        queue.seen.set(seen.wrapping_add(1));
        // An event is wanted for the next one.
        let wanted = Self::at(queue, 0x8000 + 4 + 2 * u64::from(queue.size));
        self.memory.store_u16(wanted, seen.wrapping_add(1)).unwrap();
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        (number(&entry[..4]) as u16, number(&entry[4..]))
    }

    /// Puts bytes at an address of the guest.
    pub fn store(&self, address: u64, bytes: &[u8]) {
        self.memory
            .store((address - GUEST) as usize, bytes)
            .unwrap();
    }

    /// What is at an address of the guest.
    pub fn load(&self, address: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.memory
            .load((address - GUEST) as usize, &mut bytes)
            .unwrap();
        bytes
    }

    /// Puts the head of a request at the beginning of slot `slot` of the data.
    pub fn head(&self, slot: u64, kind: u32, sector: u64) -> u64 {
        let address = DATA + slot * 0x2_0000;
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[8..].copy_from_slice(&sector.to_le_bytes());
        self.store(address, &bytes);
        self.store(address + 0x1_f000, &[0xee]);
        address
    }

    /// The status that a request of a slot has got; 0xee: none.
    pub fn status(&self, slot: u64) -> u8 {
        self.load(DATA + slot * 0x2_0000 + 0x1_f000, 1)[0]
    }

    fn status_at(slot: u64) -> Descriptor {
        Descriptor::writable(DATA + slot * 0x2_0000 + 0x1_f000, 1)
    }

    /// Offers a request of a slot, whose head of the ring is four times as high.
    pub fn submit(&self, queue: &Queue, slot: u64, kind: u32, sector: u64, data: Descriptor) {
        let head = self.head(slot, kind, sector);
        let mut chain = vec![Descriptor::readable(head, 16), data, Self::status_at(slot)];
        chain.retain(|descriptor| descriptor.count > 0);
        self.chain(queue, slot as u16 * 4, &chain);
        self.offer(queue, slot as u16 * 4);
    }

    /// Writes: begins it.
    pub fn submit_write(&self, queue: &Queue, slot: u64, sector: u64, data: &[u8]) {
        let at = DATA + slot * 0x2_0000 + 0x1000;
        self.store(at, data);
        self.submit(
            queue,
            slot,
            1,
            sector,
            Descriptor::readable(at, data.len() as u32),
        );
    }

    /// Does a request without data.
    pub async fn simple(&self, queue: &Queue, kind: u32) -> u8 {
        self.submit(queue, 0, kind, 0, Descriptor::readable(DATA, 0));
        assert_eq!(self.finish(queue).await, (0, 1));
        self.status(0)
    }

    /// Writes.
    pub async fn write(&self, queue: &Queue, sector: u64, data: &[u8]) -> u8 {
        self.submit_write(queue, 0, sector, data);
        assert_eq!(self.finish(queue).await, (0, 1));
        self.status(0)
    }

    /// Reads; the bytes are there only when the status is 0.
    pub async fn read(&self, queue: &Queue, sector: u64, count: u32) -> (u8, Vec<u8>) {
        let at = DATA + 0x1000;
        self.submit(queue, 0, 0, sector, Descriptor::writable(at, count));
        let (head, written) = self.finish(queue).await;
        let status = self.status(0);
        let all = if status == 0 { count + 1 } else { 1 };
        assert_eq!((head, written), (0, all));
        (status, self.load(at, count as usize))
    }

    /// Stops a queue; its next entry.
    pub async fn stop(&self, queue: &Queue) -> Option<u32> {
        let value = RingValue {
            ring: queue.number as u32,
            value: 0,
        };
        let payload = self.ask(&Message::GetRingBase(value)).await?;
        Some(u32::from_ne_bytes(payload[4..8].try_into().unwrap()))
    }
}

/// Two ends of a socket.
pub fn sockets() -> (OwnedFd, OwnedFd) {
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    (one.into(), other.into())
}

/// What comes over a socket first.
pub async fn read_all(handle: &Handle, socket: OwnedFd) -> [u8; HEADER_BYTES] {
    let socket = FrontEnd::new(Socket::from_fd(handle, socket).unwrap());
    let mut bytes = [0; HEADER_BYTES];
    assert_eq!(
        socket.receive(&mut bytes, &mut Vec::new()).await,
        Ok(HEADER_BYTES)
    );
    bytes
}
