//! The driver of a client: sends what is asked, receives what is answered, checks every chunk.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use plexum_block::buf::{Buf, BufMut};

use super::{Link, Outcome, PART_RECEIVE, PART_SEND};
use crate::client::ClientError;
use crate::error::NbdError;
use crate::transport::{Transport, TransportError};
use crate::wire::reply::{ChunkHead, EXTENTS_MAX, ReplyHead, chunk, decode_error, decode_extents};
use crate::wire::request::{Request, command};
use crate::wire::{Errno, Framing, WireError};

/// Receive buffer in bytes: heads and small answers of a batch.
const INBOX_BYTES: usize = 64 << 10;
/// Largest payload of an error chunk in bytes: number, text, offset, and room for what is to come.
const ERROR_BYTES_MAX: u64 = 128 << 10;

/// Moves the bytes of a `Client`.
pub struct Driver<T: Transport> {
    link: Rc<Link<T>>,
}

/// Bytes received and not yet used.
struct Inbox {
    buf: BufMut,
    start: usize,
    end: usize,
}

fn broken(words: &'static str) -> NbdError {
    WireError::Broken(words).into()
}

impl<T: Transport> Driver<T> {
    pub(super) fn new(link: Rc<Link<T>>) -> Self {
        Self { link }
    }

    /// Runs until `Client::disconnect` has been carried out or the connection ends. Afterwards all requests are `Gone`.
    ///
    /// # Errors
    /// Why the connection ended unasked.
    pub async fn run(self) -> Result<(), NbdError> {
        self.move_bytes().await // dropping `self` closes the stream and ends all requests
    }

    async fn move_bytes(&self) -> Result<(), NbdError> {
        let parts = &self.link.parts;
        let wakers = [parts.waker(PART_SEND), parts.waker(PART_RECEIVE)];
        let mut send = pin!(self.send());
        let mut receive = pin!(self.receive());
        parts.wake(PART_SEND);
        parts.wake(PART_RECEIVE);
        let mut is_sent = false;
        let mut result = None;
        poll_fn(|cx| {
            parts.poll(cx, |part| {
                let mut cx = Context::from_waker(&wakers[part]);
                if part == PART_SEND && !is_sent {
                    if let Poll::Ready(outcome) = send.as_mut().poll(&mut cx) {
                        is_sent = true;
                        // The receiver sees the end of the stream and ends.
                        self.link.transport.close();
                        result = outcome.err().map(Err);
                    }
                } else if part == PART_RECEIVE
                    && let Poll::Ready(outcome) = receive.as_mut().poll(&mut cx)
                {
                    result.get_or_insert(outcome);
                    return false;
                }
                result.is_none()
            });
            result.take().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Sends until the client has said goodbye.
    async fn send(&self) -> Result<(), NbdError> {
        let mut heads = Vec::new();
        let mut ranges = Vec::new();
        loop {
            let is_end = poll_fn(|_| self.collect(&mut heads, &mut ranges)).await;
            let block = self.link.pool.copy_of(&heads).freeze();
            let mut pieces: Vec<Buf> = Vec::with_capacity(ranges.len() * 2);
            let mut start = 0;
            for (end, data) in ranges.drain(..) {
                // Heads without data between them go as one piece.
                if let Some(data) = data {
                    pieces.extend([block.slice(start..end), data]);
                    start = end;
                }
            }
            if start < heads.len() {
                pieces.push(block.slice(start..heads.len()));
            }
            self.link.transport.write_all(&pieces).await?;
            heads.clear();
            if is_end {
                return Ok(());
            }
        }
    }

    /// Takes all requests; says whether the last one is the goodbye, which waits until nothing is in flight.
    fn collect(&self, heads: &mut Vec<u8>, ranges: &mut Vec<(usize, Option<Buf>)>) -> Poll<bool> {
        let framing = self.link.remote.framing;
        let mut shared = self.link.shared.borrow_mut();
        while let Some(outgoing) = shared.outbox.pop_front() {
            let (bytes, length) = outgoing.request.encode(framing);
            heads.extend_from_slice(&bytes[..length]);
            ranges.push((heads.len(), outgoing.data));
        }
        let says_goodbye = shared.wants_end && shared.in_flight == 0;
        if says_goodbye {
            shared.is_end_sent = true;
            let goodbye = Request {
                flags: 0,
                command: command::DISC,
                cookie: 0,
                offset_bytes: 0,
                length_bytes: 0,
            };
            let (bytes, length) = goodbye.encode(framing);
            heads.extend_from_slice(&bytes[..length]);
        }
        if heads.is_empty() {
            Poll::Pending // `ask`, `disconnect` and the end of the last request wake this part
        } else {
            Poll::Ready(says_goodbye)
        }
    }

    async fn receive(&self) -> Result<(), NbdError> {
        let framing = self.link.remote.framing;
        let mut inbox = Inbox {
            buf: self.link.pool.take(INBOX_BYTES),
            start: 0,
            end: 0,
        };
        loop {
            if !self.fill(&mut inbox, 4).await? {
                return if self.link.shared.borrow().is_end_sent {
                    Ok(())
                } else {
                    Err(TransportError::Closed.into())
                };
            }
            let magic = inbox
                .held()
                .first_chunk::<4>()
                .expect("four bytes are held");
            let length = ReplyHead::bytes_of(framing, *magic)?;
            self.fill_more(&mut inbox, length).await?;
            match ReplyHead::decode(framing, inbox.use_up(length))? {
                ReplyHead::Simple { error, cookie } => {
                    self.simple(error, cookie, &mut inbox).await?
                }
                ReplyHead::Chunk(head) => self.chunk(&head, &mut inbox).await?,
            }
            let is_idle = self.link.shared.borrow().in_flight == 0;
            if is_idle {
                self.link.parts.wake(PART_SEND); // a goodbye may wait for this
            }
        }
    }

    /// Receives until `length` bytes are held; `false` when the stream ended before the first of them.
    async fn fill(&self, inbox: &mut Inbox, length: usize) -> Result<bool, NbdError> {
        while inbox.held().len() < length {
            let got = self.link.transport.read(inbox.room()).await?;
            if got == 0 {
                if inbox.held().is_empty() {
                    return Ok(false);
                }
                return Err(TransportError::Closed.into());
            }
            inbox.end += got;
        }
        Ok(true)
    }

    async fn fill_more(&self, inbox: &mut Inbox, length: usize) -> Result<(), NbdError> {
        if self.fill(inbox, length).await? {
            Ok(())
        } else {
            Err(TransportError::Closed.into())
        }
    }

    /// Receives exactly `into`.
    async fn receive_into(&self, mut into: &mut [u8], inbox: &mut Inbox) -> Result<(), NbdError> {
        let held = inbox.held().len().min(into.len());
        into[..held].copy_from_slice(inbox.use_up(held));
        into = &mut into[held..];
        while !into.is_empty() {
            let got = self.link.transport.read(into).await?;
            if got == 0 {
                return Err(TransportError::Closed.into());
            }
            into = &mut into[got..];
        }
        Ok(())
    }

    fn find(&self, cookie: u64) -> Result<usize, NbdError> {
        let shared = self.link.shared.borrow();
        let index = usize::try_from(cookie & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        let generation = cookie >> 32;
        match shared.slots.get(index) {
            Some(slot)
                if slot.is_used
                    && slot.done.is_none()
                    && u64::from(slot.generation) == generation =>
            {
                Ok(index)
            }
            _ => Err(broken("the server answered a request that was not made")),
        }
    }

    async fn simple(&self, error: u32, cookie: u64, inbox: &mut Inbox) -> Result<(), NbdError> {
        let index = self.find(cookie)?;
        let number = self.link.shared.borrow().slots[index].command;
        let needs_chunks = matches!(number, command::READ | command::BLOCK_STATUS);
        if self.link.remote.framing != Framing::Simple && needs_chunks {
            return Err(broken(
                "the server answered with a simple reply where chunks are due",
            ));
        }
        if let Some(error) = Errno::from_number(error) {
            self.link.shared.borrow_mut().slots[index].error = Some(error);
        } else if number == command::READ {
            let (start, end) = {
                let slot = &self.link.shared.borrow().slots[index];
                (0, slot.length_bytes)
            };
            self.data(index, start, end, Some(inbox)).await?;
        }
        self.end(index)
    }

    async fn chunk(&self, head: &ChunkHead, inbox: &mut Inbox) -> Result<(), NbdError> {
        let index = self.find(head.cookie)?;
        let (number, offset_bytes) = {
            let slot = &self.link.shared.borrow().slots[index];
            (slot.command, slot.offset_bytes)
        };
        let is_extended = self.link.remote.framing == Framing::Extended;
        if is_extended && head.offset_bytes != offset_bytes {
            return Err(broken("a chunk carries the offset of another request"));
        }
        match head.kind {
            chunk::NONE if head.length_bytes == 0 && head.is_done => {}
            chunk::OFFSET_DATA if number == command::READ && head.length_bytes > 8 => {
                let at = self.offset_field(inbox).await?;
                self.data_chunk(index, at, head.length_bytes - 8, Some(inbox))
                    .await?;
            }
            chunk::OFFSET_HOLE if number == command::READ && head.length_bytes == 12 => {
                let at = self.offset_field(inbox).await?;
                self.fill_more(inbox, 4).await?;
                let size = inbox
                    .use_up(4)
                    .first_chunk::<4>()
                    .expect("four bytes are held");
                let size = u64::from(u32::from_be_bytes(*size));
                self.data_chunk(index, at, size, None).await?;
            }
            kind @ (chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT)
                if number == command::BLOCK_STATUS
                    && (kind == chunk::BLOCK_STATUS_EXT) == is_extended =>
            {
                self.extents(index, head, inbox).await?;
            }
            kind if kind & chunk::ERROR_BIT != 0 => self.error(index, head, inbox).await?,
            _ => {
                return Err(broken(
                    "the server sent a chunk that does not fit its request",
                ));
            }
        }
        if head.is_done {
            self.end(index)
        } else {
            Ok(())
        }
    }

    async fn offset_field(&self, inbox: &mut Inbox) -> Result<u64, NbdError> {
        self.fill_more(inbox, 8).await?;
        let bytes = inbox
            .use_up(8)
            .first_chunk::<8>()
            .expect("eight bytes are held");
        Ok(u64::from_be_bytes(*bytes))
    }

    /// A chunk of data at `at` of the export, or of zeroes when there is no `inbox` to take them from.
    async fn data_chunk(
        &self,
        index: usize,
        at: u64,
        length_bytes: u64,
        inbox: Option<&mut Inbox>,
    ) -> Result<(), NbdError> {
        let outside = || broken("a chunk lies outside of its request");
        let (start, end) = {
            let slot = &self.link.shared.borrow().slots[index];
            let start = at.checked_sub(slot.offset_bytes).ok_or_else(outside)?;
            let end = start.checked_add(length_bytes).ok_or_else(outside)?;
            if end > slot.length_bytes || length_bytes == 0 {
                return Err(outside());
            }
            (start, end)
        };
        self.data(index, start, end, inbox).await
    }

    /// Fills bytes `start..end` of the request's buffer.
    async fn data(
        &self,
        index: usize,
        start: u64,
        end: u64,
        inbox: Option<&mut Inbox>,
    ) -> Result<(), NbdError> {
        let mut buf = {
            let mut shared = self.link.shared.borrow_mut();
            let slot = &mut shared.slots[index];
            let place = slot.filled.partition_point(|(other, _)| *other < start);
            let overlaps_next = slot
                .filled
                .get(place)
                .is_some_and(|(other, _)| *other < end);
            let overlaps_last = place > 0 && slot.filled[place - 1].1 > start;
            if overlaps_next || overlaps_last {
                return Err(broken("two chunks of a read overlap"));
            }
            slot.filled.insert(place, (start, end));
            slot.buf
                .take()
                .expect("a read has its buffer until it ends")
        };
        let result = {
            let part = &mut buf[start as usize..end as usize]; // inside of the buffer: at most 2^25
            match inbox {
                Some(inbox) => self.receive_into(part, inbox).await,
                None => {
                    part.fill(0);
                    Ok(())
                }
            }
        };
        self.link.shared.borrow_mut().slots[index].buf = Some(buf);
        result
    }

    async fn payload(
        &self,
        head: &ChunkHead,
        limit: u64,
        inbox: &mut Inbox,
    ) -> Result<BufMut, NbdError> {
        if head.length_bytes > limit {
            return Err(broken("a chunk is too long"));
        }
        let mut payload = self.link.pool.take(head.length_bytes as usize);
        self.receive_into(&mut payload, inbox).await?;
        Ok(payload)
    }

    async fn extents(
        &self,
        index: usize,
        head: &ChunkHead,
        inbox: &mut Inbox,
    ) -> Result<(), NbdError> {
        let limit = 8 + 16 * EXTENTS_MAX as u64;
        let payload = self.payload(head, limit, inbox).await?;
        let (id, extents) = decode_extents(head.kind, &payload)?;
        let mut shared = self.link.shared.borrow_mut();
        let slot = &mut shared.slots[index];
        if Some(id) != self.link.remote.allocation_id || slot.extents.is_some() {
            return Err(broken("the server sent a status that was not asked for"));
        }
        slot.extents = Some(extents);
        Ok(())
    }

    async fn error(
        &self,
        index: usize,
        head: &ChunkHead,
        inbox: &mut Inbox,
    ) -> Result<(), NbdError> {
        let payload = self.payload(head, ERROR_BYTES_MAX, inbox).await?;
        let (error, _) = decode_error(head.kind, &payload)?;
        let mut shared = self.link.shared.borrow_mut();
        shared.slots[index].error.get_or_insert(error);
        Ok(())
    }

    /// The last chunk has come.
    fn end(&self, index: usize) -> Result<(), NbdError> {
        let mut shared = self.link.shared.borrow_mut();
        let slot = &mut shared.slots[index];
        let outcome = if let Some(error) = slot.error {
            Err(ClientError::Remote(error))
        } else {
            match slot.command {
                command::READ => {
                    let filled_bytes: u64 =
                        slot.filled.iter().map(|(start, end)| end - start).sum();
                    if filled_bytes != slot.length_bytes {
                        return Err(broken("the server left out bytes of a read"));
                    }
                    let buf = slot
                        .buf
                        .take()
                        .expect("a read has its buffer until it ends");
                    Ok(Outcome::Data(buf))
                }
                command::BLOCK_STATUS => {
                    let extents = slot.extents.take();
                    Ok(Outcome::Extents(
                        extents.ok_or_else(|| broken("the server sent no status"))?,
                    ))
                }
                _ => Ok(Outcome::Done),
            }
        };
        shared.finish(index, outcome);
        Ok(())
    }
}

impl Inbox {
    fn held(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Room behind the bytes held, which move to the front.
    fn room(&mut self) -> &mut [u8] {
        self.buf.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        &mut self.buf[self.end..]
    }

    fn use_up(&mut self, length: usize) -> &[u8] {
        let bytes = &self.buf[self.start..self.start + length];
        self.start += length;
        bytes
    }
}

/// Ends all requests when the driver ends, also when it is dropped before its end.
impl<T: Transport> Drop for Driver<T> {
    fn drop(&mut self) {
        self.link.transport.close();
        self.link.shared.borrow_mut().give_up();
    }
}
