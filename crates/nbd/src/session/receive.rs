//! Receiving: bytes of the stream become jobs; payloads go straight into buffers that were accounted for.

use plexum_block::buf::Buf;
use plexum_block::clock::Clock;
use plexum_front::expecting::Expecting;
use plexum_front::export::Export;
use plexum_front::perform::{Command, Job};
use plexum_front::receive::Receiver;

use super::judge::{STATUS_BYTES, Verdict, judge, judge_status};
use super::{Answer, Asked, Ended, Session};
use crate::error::NbdError;
use crate::negotiate::CONTEXT_ALLOCATION_ID;
use crate::transport::{Transport, TransportError};
use crate::wire::Errno;
use crate::wire::request::{Request, command, decode_status_payload, header_bytes};

/// Receive buffer in bytes: a batch of requests, or of small writes, in one receive. Larger payloads bypass it.
const INBOX_BYTES: usize = 128 << 10;
impl<T: Transport, E: Export, C: Clock> Session<'_, T, E, C> {
    /// Takes requests until the client, the stream or a broken rule ends it.
    pub(super) async fn receive(&self, leftover: &[u8]) -> Result<Ended, NbdError> {
        let mut inbox = Receiver::new(self.transport, &self.peer, self.pool, INBOX_BYTES, leftover);
        let length = header_bytes(self.agreed.framing);
        loop {
            if !inbox.fill(length).await? {
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

    async fn refuse(
        &self,
        request: &Request,
        error: Errno,
        words: &'static str,
        drain_bytes: u64,
        inbox: &mut Receiver<'_, T>,
    ) -> Result<(), NbdError> {
        inbox.drain(drain_bytes).await?;
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
        inbox: &mut Receiver<'_, T>,
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
        inbox: &mut Receiver<'_, T>,
    ) -> Result<Buf, NbdError> {
        let range = (request.offset_bytes, u64::from(payload_bytes));
        let is_whole = payload_bytes as usize <= inbox.held();
        let expecting = (!is_whole).then(|| Expecting::begin(self.export, range));
        let mut payload = self.pool.take(payload_bytes as usize);
        inbox.payload(&mut payload).await?;
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
        inbox: &mut Receiver<'_, T>,
    ) -> Result<(), NbdError> {
        let length = payload_bytes as usize;
        if length > 0 && !inbox.fill(length).await? {
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
