//! Sending: everything that is ready goes out in one batch; heads share one buffer, data are not copied.

use std::future::poll_fn;
use std::task::Poll;

use plexum_block::clock::Clock;
use plexum_front::export::Export;
use plexum_front::gather::Gather;
use plexum_front::perform::Outcome;
use plexum_front::requests::Tag;

use super::{Answer, Session};
use crate::negotiate::CONTEXT_ALLOCATION_ID;
use crate::transport::Transport;
use crate::wire::reply::{ChunkHead, chunk, encode_error, encode_extents, encode_simple};
use crate::wire::{Errno, Framing};

/// Answers being put together; kept from batch to batch for its memory.
#[derive(Default)]
struct Batch {
    gather: Gather,
    tags: Vec<Tag>,
}

impl Batch {
    fn chunk(&mut self, framing: Framing, answer: &Answer, kind: u16, length_bytes: u64) {
        let head = ChunkHead {
            is_done: true,
            kind,
            cookie: answer.asked.cookie,
            offset_bytes: answer.offset_bytes,
            length_bytes,
        };
        let (bytes, length) = head.encode(framing);
        self.gather
            .head(|heads| heads.extend_from_slice(&bytes[..length]));
    }

    /// The head of a chunk of data.
    fn data_chunk(&mut self, framing: Framing, answer: &Answer, data_bytes: usize) {
        let length_bytes = 8 + data_bytes as u64;
        self.chunk(framing, answer, chunk::OFFSET_DATA, length_bytes);
        self.gather
            .head(|heads| heads.extend_from_slice(&answer.offset_bytes.to_be_bytes()));
    }

    fn add(&mut self, framing: Framing, mut answer: Answer) {
        let body = std::mem::replace(&mut answer.body, Ok(Outcome::Done));
        let is_simple = match framing {
            Framing::Simple => true,
            // Reads and status are chunks always; anything else that succeeded is cheapest as a simple reply.
            Framing::Structured => !answer.asked.is_read && !answer.asked.is_status && body.is_ok(),
            Framing::Extended => false,
        };
        if is_simple {
            self.add_simple(&answer, body);
        } else {
            self.add_chunk(framing, &answer, body);
        }
        self.tags.push(answer.tag);
    }

    fn add_simple(&mut self, answer: &Answer, body: Result<Outcome, (Errno, &'static str)>) {
        let error = body.as_ref().err().map(|(error, _)| *error);
        let head = encode_simple(error, answer.asked.cookie);
        self.gather.head(|heads| heads.extend_from_slice(&head));
        if let Ok(Outcome::Data(rope)) = body {
            self.gather.data(rope);
        }
    }

    fn add_chunk(
        &mut self,
        framing: Framing,
        answer: &Answer,
        body: Result<Outcome, (Errno, &'static str)>,
    ) {
        match body {
            Err((error, words)) => {
                let payload = encode_error(error, words);
                self.chunk(framing, answer, chunk::ERROR, payload.len() as u64);
                self.gather.head(|heads| heads.extend_from_slice(&payload));
            }
            Ok(Outcome::Done) => self.chunk(framing, answer, chunk::NONE, 0),
            Ok(Outcome::Data(rope)) => {
                self.data_chunk(framing, answer, rope.length_bytes());
                self.gather.data(rope);
            }
            Ok(Outcome::Extents(extents)) => {
                let mut payload = Vec::new();
                encode_extents(&mut payload, framing, CONTEXT_ALLOCATION_ID, &extents);
                let kind = if framing == Framing::Extended {
                    chunk::BLOCK_STATUS_EXT
                } else {
                    chunk::BLOCK_STATUS
                };
                self.chunk(framing, answer, kind, payload.len() as u64);
                self.gather.head(|heads| heads.extend_from_slice(&payload));
            }
        }
    }
}

impl<T: Transport, E: Export, C: Clock> Session<'_, T, E, C> {
    /// Sends until receiving has ended and every request was answered, or until the stream fails.
    pub(super) async fn send(&self) {
        let mut batch = Batch::default();
        let mut has_failed = false;
        while self.collect(&mut batch).await {
            if !has_failed {
                has_failed = !self.send_batch(&mut batch).await;
            }
            // Once the stream has failed, answers are dropped as they come: requests in flight still end.
            batch.gather.clear();
            let is_one = batch.tags.len() == 1;
            batch.tags.clear();
            if is_one && self.client.requests().under_way() == 0 {
                self.transport.expect_soon();
            }
        }
    }

    /// Sends a batch; `false` when the stream failed.
    async fn send_batch(&self, batch: &mut Batch) -> bool {
        let sent = batch.gather.send(self.transport, &self.peer, self.pool);
        let has_sent = sent.await.is_ok();
        if !has_sent {
            self.cut();
        }
        has_sent
    }

    /// Takes everything out of the outbox; `false` when nothing will come any more.
    async fn collect(&self, batch: &mut Batch) -> bool {
        poll_fn(|_| {
            let mut outbox = self.outbox.borrow_mut();
            if outbox.is_empty() {
                let is_last = self.has_received.get() && self.performer.is_idle();
                return if is_last {
                    Poll::Ready(false)
                } else {
                    Poll::Pending // `answer` and `end_receiving` wake this part
                };
            }
            self.count(|counts| counts.sends += 1);
            while let Some(answer) = outbox.pop_front() {
                batch.add(self.agreed.framing, answer);
            }
            Poll::Ready(true)
        })
        .await
    }
}
