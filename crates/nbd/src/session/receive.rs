//! Receiving: bytes of the stream become jobs; payloads go straight into buffers that were accounted for.

use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::clock::Clock;
use plexum_front::export::Export;
use plexum_front::perform::{Command, Job};

use super::judge::{STATUS_BYTES, Verdict, judge, judge_status};
use super::{Answer, Asked, Ended, Session};
use crate::error::NbdError;
use crate::negotiate::CONTEXT_ALLOCATION_ID;
use crate::transport::{Transport, TransportError};
use crate::wire::Errno;
use crate::wire::request::{Request, command, decode_status_payload, header_bytes};

/// Receive buffer in bytes: a batch of requests, or of small writes, in one receive. Larger payloads bypass it.
const INBOX_BYTES: usize = 128 << 10;
/// A rest of a payload that is shorter goes through the receive buffer, so that the requests behind it come with the
/// same receive.
const REST_BYTES: usize = 32 << 10;

/// Bytes received and not yet used.
struct Inbox {
    buf: BufMut,
    start: usize,
    end: usize,
}

impl Inbox {
    fn new(pool: &BufPool, leftover: &[u8]) -> Self {
        let mut buf = pool.take(INBOX_BYTES.max(leftover.len()));
        buf[..leftover.len()].copy_from_slice(leftover);
        Self {
            buf,
            start: 0,
            end: leftover.len(),
        }
    }

    fn held(&self) -> usize {
        self.end - self.start
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

/// A write whose payload is being received, as its export knows it. Dropped before it was fulfilled, the export hears
/// that too.
struct Expecting<'a, E: Export> {
    export: &'a E,
    /// Offset and length in bytes.
    range: (u64, u64),
    is_fulfilled: bool,
}

impl<'a, E: Export> Expecting<'a, E> {
    fn begin(export: &'a E, range: (u64, u64)) -> Self {
        export.expect_write(range.0, range.1);
        Self {
            export,
            range,
            is_fulfilled: false,
        }
    }

    /// All of it is there: `Export::write` is next to hear of it.
    fn fulfil(mut self) {
        self.is_fulfilled = true;
    }
}

impl<E: Export> Drop for Expecting<'_, E> {
    fn drop(&mut self) {
        if !self.is_fulfilled {
            self.export.expect_no_write(self.range.0, self.range.1);
        }
    }
}

impl<T: Transport, E: Export, C: Clock> Session<'_, T, E, C> {
    /// Takes requests until the client, the stream or a broken rule ends it.
    pub(super) async fn receive(&self, leftover: &[u8]) -> Result<Ended, NbdError> {
        let mut inbox = Inbox::new(self.pool, leftover);
        let length = header_bytes(self.agreed.framing);
        loop {
            if !self.fill(&mut inbox, length).await? {
                return Ok(Ended::HungUp);
            }
            let request = Request::decode(self.agreed.framing, inbox.use_up(length))?;
            match judge(&request, self.agreed) {
                Verdict::Disconnect => return Ok(Ended::Disconnected),
                Verdict::Close(error) => return Err(error.into()),
                Verdict::Refuse {
                    error,
                    words,
                    drain_bytes,
                } => {
                    self.refuse(&request, error, words, drain_bytes, &mut inbox)
                        .await?
                }
                Verdict::Run { payload_bytes, .. } if self.client.is_leaving() => {
                    let words = "the server is stopping";
                    let drain_bytes = u64::from(payload_bytes);
                    self.refuse(&request, Errno::Eshutdown, words, drain_bytes, &mut inbox)
                        .await?;
                }
                Verdict::Run {
                    command,
                    payload_bytes,
                } => {
                    self.admit_job(&request, command, payload_bytes, &mut inbox)
                        .await?
                }
                Verdict::StatusPayload {
                    wants_one,
                    payload_bytes,
                } => {
                    self.admit_status(&request, wants_one, payload_bytes, &mut inbox)
                        .await?;
                }
            }
        }
    }

    /// Receives until `length` bytes are held; `false` when the stream ended before the first of them.
    async fn fill(&self, inbox: &mut Inbox, length: usize) -> Result<bool, NbdError> {
        while inbox.held() < length {
            let got = self.transport.read(inbox.room()).await?;
            self.moves.set(self.moves.get() + 1);
            if got == 0 {
                if inbox.held() == 0 {
                    return Ok(false);
                }
                return Err(TransportError::Closed.into());
            }
            inbox.end += got;
        }
        Ok(true)
    }

    /// Receives a payload: first what is held, then straight from the stream.
    async fn payload(&self, length: usize, inbox: &mut Inbox) -> Result<BufMut, NbdError> {
        let mut payload = self.pool.take(length);
        let held = inbox.held().min(length);
        payload[..held].copy_from_slice(inbox.use_up(held));
        let mut filled = held;
        while filled < length {
            if length - filled < REST_BYTES {
                let got = self.with_peer(self.transport.read(inbox.room())).await?;
                if got == 0 {
                    return Err(TransportError::Closed.into());
                }
                inbox.end += got;
                let part = inbox.held().min(length - filled);
                payload[filled..filled + part].copy_from_slice(inbox.use_up(part));
                filled += part;
                continue;
            }
            let got = self
                .with_peer(self.transport.read(&mut payload[filled..]))
                .await?;
            if got == 0 {
                return Err(TransportError::Closed.into());
            }
            filled += got;
        }
        Ok(payload)
    }

    /// Receives and drops a payload; takes no memory for it.
    async fn drain(&self, mut left_bytes: u64, inbox: &mut Inbox) -> Result<(), NbdError> {
        loop {
            let part =
                usize::try_from(left_bytes).map_or(inbox.held(), |left| left.min(inbox.held()));
            inbox.use_up(part);
            left_bytes -= part as u64;
            if left_bytes == 0 {
                return Ok(());
            }
            if !self.fill(inbox, 1).await? {
                return Err(TransportError::Closed.into());
            }
        }
    }

    async fn refuse(
        &self,
        request: &Request,
        error: Errno,
        words: &'static str,
        drain_bytes: u64,
        inbox: &mut Inbox,
    ) -> Result<(), NbdError> {
        self.drain(drain_bytes, inbox).await?;
        let tag = self.client.requests().admit(0).await;
        self.answer(Answer {
            asked: asked(request),
            offset_bytes: request.offset_bytes,
            body: Err((error, words)),
            tag,
        });
        Ok(())
    }

    async fn admit_job(
        &self,
        request: &Request,
        command: Command,
        payload_bytes: u32,
        inbox: &mut Inbox,
    ) -> Result<(), NbdError> {
        let data_bytes = match command {
            Command::Read => request.length_bytes,
            Command::Status { extents_max } if extents_max > 1 => STATUS_BYTES,
            _ => u64::from(payload_bytes),
        };
        let tag = self.client.requests().admit(data_bytes).await;
        let data = match command {
            Command::Write(_) => Some(self.write_payload(request, payload_bytes, inbox).await?),
            _ => None,
        };
        self.start(Job {
            key: asked(request),
            command,
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes,
            data,
            tag,
        });
        Ok(())
    }

    /// The payload of a write, of which the export hears when it has to be waited for.
    async fn write_payload(
        &self,
        request: &Request,
        payload_bytes: u32,
        inbox: &mut Inbox,
    ) -> Result<Buf, NbdError> {
        let range = (request.offset_bytes, u64::from(payload_bytes));
        let is_whole = payload_bytes as usize <= inbox.held();
        let expecting = (!is_whole).then(|| Expecting::begin(self.export, range));
        let payload = self.payload(payload_bytes as usize, inbox).await?;
        if let Some(expecting) = expecting {
            expecting.fulfil();
        }
        Ok(payload.freeze())
    }

    /// BLOCK_STATUS with its range's length in a payload.
    async fn admit_status(
        &self,
        request: &Request,
        wants_one: bool,
        payload_bytes: u32,
        inbox: &mut Inbox,
    ) -> Result<(), NbdError> {
        let length = payload_bytes as usize;
        if length > 0 && !self.fill(inbox, length).await? {
            return Err(TransportError::Closed.into());
        }
        let decoded = decode_status_payload(inbox.use_up(length), &[CONTEXT_ALLOCATION_ID]);
        let Some((length_bytes, _)) = decoded.filter(|(_, ids)| !ids.is_empty()) else {
            let words = "the payload names no context, or one that was not chosen";
            return self.refuse(request, Errno::Einval, words, 0, inbox).await;
        };
        match judge_status(request, length_bytes, wants_one, self.agreed) {
            Err((error, words)) => self.refuse(request, error, words, 0, inbox).await,
            Ok(_) if self.client.is_leaving() => {
                let words = "the server is stopping";
                self.refuse(request, Errno::Eshutdown, words, 0, inbox)
                    .await
            }
            Ok(command) => {
                let request = Request {
                    length_bytes,
                    ..*request
                };
                self.admit_job(&request, command, 0, inbox).await
            }
        }
    }
}

fn asked(request: &Request) -> Asked {
    Asked {
        cookie: request.cookie,
        is_read: request.command == command::READ,
        is_status: request.command == command::BLOCK_STATUS,
    }
}
