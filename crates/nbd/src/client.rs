//! A client with many requests in flight over one connection.
//!
//! `connect` gives a `Client`, whose methods make requests, and a `Driver`, whose `run` moves the bytes: the caller
//! runs it beside the requests, as a task of its own.
//!
//! Invariants:
//! - every request ends: with its answer, or with `Gone` when the connection has ended;
//! - data are received straight into the buffer of their request; a dropped request leaves its buffer to the driver
//!   until the answer has passed;
//! - whatever a server sends that does not fit ends the connection; a read is never answered with bytes missing.
//!
//! How many requests are in flight is up to the caller (tags). Source: nbd.md sections 4, 5, 6 and 8.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Fua, IoError};
use plexum_front::export::{Extent, ZeroRequest};
use plexum_front::parts::Parts;

use crate::error::NbdError;
pub use crate::negotiate::client::{ConnectOptions, Remote, list};
use crate::transport::{StartTls, Transport};
use crate::wire::option::tflag;
use crate::wire::request::{Request, command, flag};
use crate::wire::{Errno, Framing};

mod drive;
mod member;

pub use drive::Driver;
pub use member::ClientDevice;

const PART_SEND: usize = 0;
const PART_RECEIVE: usize = 1;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server answered with an error.
    #[error("the server answered {0}")]
    Remote(Errno),
    /// The connection has ended; nothing is known about the request.
    #[error("the connection to the server has ended")]
    Gone,
    /// The request cannot be sent: too long, not aligned, past the end, or nothing the server offers.
    #[error("the request is not one that this server takes")]
    Unfit,
}

impl From<ClientError> for IoError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Remote(error) => error.to_io(),
            ClientError::Gone => IoError::Gone,
            ClientError::Unfit => IoError::OutOfRange,
        }
    }
}

/// What came back for a request.
enum Outcome {
    Done,
    Data(BufMut),
    Extents(Vec<Extent>),
}

/// A request in flight.
struct Slot {
    generation: u32,
    is_used: bool,
    /// Nobody waits for the answer any more.
    is_abandoned: bool,
    command: u16,
    offset_bytes: u64,
    length_bytes: u64,
    /// Of reads: the buffer, and the parts of it that were filled (start and end in bytes, sorted).
    buf: Option<BufMut>,
    filled: Vec<(u64, u64)>,
    extents: Option<Vec<Extent>>,
    error: Option<Errno>,
    done: Option<Result<Outcome, ClientError>>,
    waker: Option<Waker>,
}

/// A request on its way out.
struct Outgoing {
    request: Request,
    data: Option<Buf>,
}

#[derive(Default)]
struct Shared {
    slots: Vec<Slot>,
    free: Vec<usize>,
    outbox: VecDeque<Outgoing>,
    in_flight: usize,
    is_gone: bool,
    wants_end: bool,
    is_end_sent: bool,
}

struct Link<T> {
    transport: T,
    pool: BufPool,
    remote: Remote,
    parts: Arc<Parts>,
    shared: RefCell<Shared>,
}

/// Makes requests; clones share the connection.
pub struct Client<T> {
    link: Rc<Link<T>>,
}

impl<T> Clone for Client<T> {
    fn clone(&self) -> Self {
        Self {
            link: Rc::clone(&self.link),
        }
    }
}

/// Shakes hands over `transport`. Nothing moves until the driver runs.
///
/// # Errors
/// The stream ended, the server broke the protocol, or it refused.
pub async fn connect<T: StartTls>(
    transport: T,
    pool: BufPool,
    options: &ConnectOptions,
) -> Result<(Client<T>, Driver<T>), NbdError> {
    let remote = crate::negotiate::client::connect(&transport, &pool, options).await?;
    let link = Rc::new(Link {
        transport,
        pool,
        remote,
        parts: Parts::new(),
        shared: RefCell::default(),
    });
    let client = Client {
        link: Rc::clone(&link),
    };
    Ok((client, Driver::new(link)))
}

/// Shakes hands over `transport` and leaves the rest to somebody else: the stream is in the transmission phase
/// afterwards, and no byte of that was read. For the kernel's client, which takes a stream over.
///
/// # Errors
/// As `connect`.
pub async fn shake_hands<T: StartTls>(
    transport: &T,
    pool: &BufPool,
    options: &ConnectOptions,
) -> Result<Remote, NbdError> {
    crate::negotiate::client::connect(transport, pool, options).await
}

impl<T: Transport> Client<T> {
    /// What the server said about the export.
    #[must_use]
    pub fn remote(&self) -> &Remote {
        &self.link.remote
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.link.shared.borrow().is_gone
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.link.shared.borrow().in_flight
    }

    /// Fills `buf` from `offset_bytes` on. With `Framing::Structured` and above the server may answer in parts.
    ///
    /// # Errors
    /// See `ClientError`; the buffer is lost.
    pub async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, ClientError> {
        self.read_flags(offset_bytes, buf, 0).await
    }

    /// As `read`, in one part (DF).
    ///
    /// # Errors
    /// As `read`, and EOVERFLOW for more than the server sends at once.
    pub async fn read_whole(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, ClientError> {
        self.offers(tflag::SEND_DF)?;
        self.read_flags(offset_bytes, buf, flag::DF).await
    }

    async fn read_flags(
        &self,
        offset_bytes: u64,
        buf: BufMut,
        flags: u16,
    ) -> Result<BufMut, ClientError> {
        let length_bytes = buf.len() as u64;
        if length_bytes == 0 {
            return Ok(buf);
        }
        self.check_payload(length_bytes)?;
        let request = self.request(command::READ, flags, offset_bytes, length_bytes)?;
        match self.ask(request, None, Some(buf)).await? {
            Outcome::Data(buf) => Ok(buf),
            _ => Err(ClientError::Gone), // the driver gives reads their data
        }
    }

    /// Writes `data` at `offset_bytes`.
    ///
    /// # Errors
    /// See `ClientError`. After an error each sector of the range holds its old or its new content.
    pub async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), ClientError> {
        let length_bytes = data.len() as u64;
        if length_bytes == 0 {
            return Ok(());
        }
        self.check_payload(length_bytes)?;
        let payload = match self.link.remote.framing {
            Framing::Extended => flag::PAYLOAD_LEN,
            _ => 0,
        };
        let flags = payload | self.fua_flag(fua)?;
        let request = self.request(command::WRITE, flags, offset_bytes, length_bytes)?;
        self.ask(request, Some(data), None).await.map(|_| ())
    }

    /// Makes every write that was answered before this call durable.
    ///
    /// # Errors
    /// Any error: nothing is known to be durable.
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.offers(tflag::SEND_FLUSH)?;
        let request = self.request(command::FLUSH, 0, 0, 0)?;
        self.ask(request, None, None).await.map(|_| ())
    }

    /// Hint: the range is unused.
    ///
    /// # Errors
    /// See `ClientError`.
    pub async fn trim(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        fua: Fua,
    ) -> Result<(), ClientError> {
        self.offers(tflag::SEND_TRIM)?;
        let flags = self.fua_flag(fua)?;
        let request = self.request(command::TRIM, flags, offset_bytes, length_bytes)?;
        self.ask(request, None, None).await.map(|_| ())
    }

    /// Makes the range read as zeroes.
    ///
    /// # Errors
    /// See `ClientError`; ENOTSUP only for `only_if_fast`.
    pub async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        how: ZeroRequest,
    ) -> Result<(), ClientError> {
        self.offers(tflag::SEND_WRITE_ZEROES)?;
        let mut flags = self.fua_flag(how.fua)?;
        if !how.may_unmap {
            flags |= flag::NO_HOLE;
        }
        if how.only_if_fast {
            self.offers(tflag::SEND_FAST_ZERO)?;
            flags |= flag::FAST_ZERO;
        }
        let request = self.request(command::WRITE_ZEROES, flags, offset_bytes, length_bytes)?;
        self.ask(request, None, None).await.map(|_| ())
    }

    /// Hint: the range will be read soon.
    ///
    /// # Errors
    /// See `ClientError`.
    pub async fn cache(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ClientError> {
        self.offers(tflag::SEND_CACHE)?;
        let request = self.request(command::CACHE, 0, offset_bytes, length_bytes)?;
        self.ask(request, None, None).await.map(|_| ())
    }

    /// Allocation status from `offset_bytes` on; at least one extent, may cover less than asked.
    ///
    /// # Errors
    /// See `ClientError`; `Unfit` when the server does not offer it.
    pub async fn status(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        wants_one: bool,
    ) -> Result<Vec<Extent>, ClientError> {
        if self.link.remote.allocation_id.is_none() {
            return Err(ClientError::Unfit);
        }
        let flags = if wants_one { flag::REQ_ONE } else { 0 };
        let request = self.request(command::BLOCK_STATUS, flags, offset_bytes, length_bytes)?;
        match self.ask(request, None, None).await? {
            Outcome::Extents(extents) => Ok(extents),
            _ => Err(ClientError::Gone), // the driver gives status requests their extents
        }
    }

    /// Ends the connection once everything in flight is answered; `Driver::run` returns then.
    pub fn disconnect(&self) {
        self.link.shared.borrow_mut().wants_end = true;
        self.link.parts.wake(PART_SEND);
    }

    fn offers(&self, flags: u16) -> Result<(), ClientError> {
        if self.link.remote.has(flags) {
            Ok(())
        } else {
            Err(ClientError::Unfit)
        }
    }

    fn fua_flag(&self, fua: Fua) -> Result<u16, ClientError> {
        match fua {
            Fua::No => Ok(0),
            Fua::Yes => self.offers(tflag::SEND_FUA).map(|()| flag::FUA),
        }
    }

    fn check_payload(&self, length_bytes: u64) -> Result<(), ClientError> {
        if length_bytes > u64::from(self.link.remote.payload_bytes_max) {
            return Err(ClientError::Unfit);
        }
        Ok(())
    }

    fn request(
        &self,
        command: u16,
        flags: u16,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<Request, ClientError> {
        let remote = &self.link.remote;
        let unit = u64::from(remote.block_bytes_min);
        let is_inside = offset_bytes
            .checked_add(length_bytes)
            .is_some_and(|end| end <= remote.size_bytes);
        let is_aligned = offset_bytes.is_multiple_of(unit) && length_bytes.is_multiple_of(unit);
        let is_short = remote.framing == Framing::Extended || u32::try_from(length_bytes).is_ok();
        if !(is_inside && is_aligned && is_short) {
            return Err(ClientError::Unfit);
        }
        Ok(Request {
            flags,
            command,
            cookie: 0,
            offset_bytes,
            length_bytes,
        })
    }

    fn ask(&self, mut request: Request, data: Option<Buf>, buf: Option<BufMut>) -> Answer<'_, T> {
        let mut shared = self.link.shared.borrow_mut();
        if shared.is_gone || shared.wants_end {
            return Answer {
                link: &self.link,
                slot: None,
            };
        }
        let index = shared.free.pop().unwrap_or_else(|| {
            shared.slots.push(Slot::empty());
            shared.slots.len() - 1
        });
        let slot = &mut shared.slots[index];
        slot.begin(&request, buf);
        request.cookie = cookie(index, slot.generation);
        shared.in_flight += 1;
        shared.outbox.push_back(Outgoing { request, data });
        drop(shared);
        self.link.parts.wake(PART_SEND);
        Answer {
            link: &self.link,
            slot: Some(index),
        }
    }
}

/// Index and generation of a slot, so that a late or invented answer never meets the wrong request.
fn cookie(index: usize, generation: u32) -> u64 {
    (u64::from(generation) << 32) | index as u64 // fewer than 2^32 requests fit into memory
}

impl Slot {
    fn empty() -> Self {
        Self {
            generation: 0,
            is_used: false,
            is_abandoned: false,
            command: 0,
            offset_bytes: 0,
            length_bytes: 0,
            buf: None,
            filled: Vec::new(),
            extents: None,
            error: None,
            done: None,
            waker: None,
        }
    }

    fn begin(&mut self, request: &Request, buf: Option<BufMut>) {
        assert!(!self.is_used, "a free slot has no request");
        self.generation = self.generation.wrapping_add(1);
        self.is_used = true;
        self.is_abandoned = false;
        self.command = request.command;
        self.offset_bytes = request.offset_bytes;
        self.length_bytes = request.length_bytes;
        self.buf = buf;
        self.filled.clear();
        self.extents = None;
        self.error = None;
        self.done = None;
        self.waker = None;
    }
}

impl Shared {
    /// Ends a request: its waiter takes the outcome, or nobody does.
    fn finish(&mut self, index: usize, outcome: Result<Outcome, ClientError>) {
        let slot = &mut self.slots[index];
        assert!(slot.is_used && slot.done.is_none(), "a request ends once");
        self.in_flight -= 1;
        if slot.is_abandoned {
            slot.is_used = false;
            slot.buf = None;
            self.free.push(index);
            return;
        }
        slot.done = Some(outcome);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }

    fn give_up(&mut self) {
        self.is_gone = true;
        self.outbox.clear();
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.is_used && slot.done.is_none() {
                self.finish(index, Err(ClientError::Gone));
            }
        }
    }
}

/// Wait for the answer to a request.
struct Answer<'a, T> {
    link: &'a Link<T>,
    /// `None` when it was never sent, or has been taken.
    slot: Option<usize>,
}

impl<T> Future for Answer<'_, T> {
    type Output = Result<Outcome, ClientError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(index) = self.slot else {
            return Poll::Ready(Err(ClientError::Gone));
        };
        let mut shared = self.link.shared.borrow_mut();
        let slot = &mut shared.slots[index];
        let Some(outcome) = slot.done.take() else {
            slot.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        slot.is_used = false;
        shared.free.push(index);
        drop(shared);
        self.slot = None;
        Poll::Ready(outcome)
    }
}

impl<T> Drop for Answer<'_, T> {
    fn drop(&mut self) {
        let Some(index) = self.slot else {
            return;
        };
        let mut shared = self.link.shared.borrow_mut();
        let slot = &mut shared.slots[index];
        slot.waker = None;
        if slot.done.take().is_some() {
            slot.is_used = false;
            shared.free.push(index);
        } else {
            slot.is_abandoned = true;
        }
    }
}
