//! A connection that PDUs go over: what comes is checked before it is used, what goes out is put together in batches.
//!
//! Invariants:
//! - each answer goes out once, in the order in which answers were given; what is ready goes out in one send;
//! - a command counts against the queue's entries until its answer is about to be sent.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_front::gather::Gather;
use plexum_front::parts::Parts;
use plexum_front::peer::Peer;
use plexum_front::receive::Receiver;
use plexum_front::requests::Tag;
use plexum_front::transport::{Transport, TransportError};

use crate::error::NvmeError;
use crate::wire::command::Completion;
use crate::wire::digest::{DIGEST_BYTES, Digests, digest_of};
use crate::wire::pdu::{
    DATA_HEADER_BYTES, Fault, Frame, HEAD_BYTES, Head, IC_BYTES, Kind, Reason, TERM_HEADER_BYTES,
    Transfer, encode_term, flag,
};
use crate::wire::status::Status;

/// The part of a session that sends; the others have other numbers.
pub(crate) const PART_SEND: usize = 0;

/// What both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) digests: Digests,
    /// Data of reads begin at multiples of it.
    pub(crate) alignment_bytes: u8,
}

/// What a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFacts {
    /// Commands that may be under way.
    pub(crate) entries: u16,
    /// The host does not look at how far its queue was consumed.
    pub(crate) has_no_flow_control: bool,
}

/// A PDU without its data, which are still to be received.
pub(crate) struct Arrived {
    pub(crate) frame: Frame,
    header: [u8; IC_BYTES],
}

impl Arrived {
    /// The header, with the common head.
    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..self.frame.header_bytes]
    }

    /// A part of the header of a known length.
    pub(crate) fn part<const N: usize>(&self, at: usize) -> &[u8; N] {
        let part = &self.header()[at..at + N];
        part.try_into().expect("the slice has this length")
    }
}

/// Why there is no next PDU.
pub(crate) enum NoPdu {
    /// The stream has ended between two.
    End,
    /// The host has broken a rule, in this header.
    Fault(Fault, Vec<u8>),
    /// It has ended the connection.
    HostTerm(u16),
    Transport(TransportError),
}

impl From<TransportError> for NoPdu {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}

/// Whether data came as they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intact {
    Yes,
    No,
}

/// Receives the next PDU up to its data.
pub(crate) async fn next_pdu<T: Transport>(
    receiver: &mut Receiver<'_, T>,
    digests: Digests,
) -> Result<Arrived, NoPdu> {
    if !receiver.fill(HEAD_BYTES).await? {
        return Err(NoPdu::End);
    }
    let head: [u8; HEAD_BYTES] = receiver.bytes()[..HEAD_BYTES]
        .try_into()
        .expect("so many are held");
    let checked = Head::decode(&head).check(digests);
    let frame = checked.map_err(|fault| NoPdu::Fault(fault, head.to_vec()))?;
    let length = frame.header_bytes + frame.header_digest_bytes;
    receiver.fill(length).await?;
    let mut header = [0; IC_BYTES];
    let bytes = receiver.use_up(length);
    header[..frame.header_bytes].copy_from_slice(&bytes[..frame.header_bytes]);
    let digest = &bytes[frame.header_bytes..];
    if !digest.is_empty() && digest != digest_of([&bytes[..frame.header_bytes]]) {
        let header = header[..frame.header_bytes].to_vec();
        return Err(NoPdu::Fault(Reason::HeaderDigest.at(0), header));
    }
    receiver.drain(frame.pad_bytes as u64).await?;
    if frame.kind == Kind::HostTerm {
        return Err(NoPdu::HostTerm(u16::from_le_bytes([header[8], header[9]])));
    }
    Ok(Arrived { frame, header })
}

/// Receives the data of a PDU, which are as long as its frame says, and their digest.
pub(crate) async fn receive_data<T: Transport>(
    receiver: &mut Receiver<'_, T>,
    frame: &Frame,
    into: &mut [u8],
) -> Result<Intact, TransportError> {
    assert_eq!(into.len(), frame.data_bytes, "room for what was announced");
    receiver.payload(into).await?;
    if frame.data_digest_bytes == 0 {
        return Ok(Intact::Yes);
    }
    if !receiver.fill(DIGEST_BYTES).await? {
        return Err(TransportError::Closed);
    }
    match receiver.use_up(DIGEST_BYTES) == digest_of([&*into]) {
        true => Ok(Intact::Yes),
        false => Ok(Intact::No),
    }
}

/// The answer to a command.
pub(crate) struct Answer {
    pub(crate) id: u16,
    pub(crate) result: u64,
    pub(crate) status: Status,
    /// Of reads.
    pub(crate) data: Option<Rope>,
    /// Its place among the requests under way.
    pub(crate) tag: Option<Tag>,
}

impl Answer {
    /// An answer without data.
    pub(crate) fn plain(id: u16, status: Status) -> Self {
        Self {
            id,
            result: 0,
            status,
            data: None,
            tag: None,
        }
    }
}

/// What goes out.
pub(crate) enum Out {
    Answer(Answer),
    /// Data of a write are asked for.
    Ask(Transfer),
    /// The last words.
    Term(Fault, Vec<u8>),
}

/// The side of a queue that answers.
pub(crate) struct Link<'a, T> {
    pub(crate) transport: &'a T,
    pub(crate) peer: &'a Peer,
    pub(crate) pool: &'a BufPool,
    pub(crate) agreed: Agreed,
    pub(crate) queue: QueueFacts,
    pub(crate) parts: Arc<Parts>,
    /// What waits to be sent. Never borrowed across an await.
    outbox: RefCell<VecDeque<Out>>,
    is_sending: Cell<bool>,
    /// Commands that were received, and whose answers are not about to be sent.
    under_way: Cell<u16>,
    /// SQHD.
    head: Cell<u16>,
}

impl<'a, T: Transport> Link<'a, T> {
    pub(crate) fn new(
        transport: &'a T,
        peer: &'a Peer,
        pool: &'a BufPool,
        agreed: Agreed,
        queue: QueueFacts,
    ) -> Self {
        Self {
            transport,
            peer,
            pool,
            agreed,
            queue,
            parts: Parts::new(),
            outbox: RefCell::default(),
            is_sending: Cell::new(false),
            under_way: Cell::new(0),
            head: Cell::new(0),
        }
    }

    /// Counts a command that has come.
    ///
    /// # Errors
    /// The queue has no room for it.
    pub(crate) fn count_command(&self) -> Result<(), NvmeError> {
        if self.under_way.get() >= self.queue.entries {
            return Err(NvmeError::QueueOverrun(self.queue.entries));
        }
        self.under_way.set(self.under_way.get() + 1);
        Ok(())
    }

    /// Leaves something in the outbox.
    pub(crate) fn put(&self, out: Out) {
        let mut outbox = self.outbox.borrow_mut();
        outbox.push_back(out);
        if outbox.len() == 1 {
            self.parts.wake(PART_SEND); // which takes all that is there by then
        }
    }

    pub(crate) fn answer(&self, answer: Answer) {
        self.put(Out::Answer(answer));
    }

    /// Sends until `is_last` says, of an empty outbox, that nothing will come any more, or until the stream fails:
    /// `cut` is called then, and what comes is dropped. `sent` is called behind each send.
    pub(crate) async fn send(&self, is_last: impl Fn() -> bool, cut: impl Fn(), sent: impl Fn()) {
        let mut gather = Gather::default();
        let (mut tags, mut has_ended) = (Vec::new(), false);
        while self.has_more(&is_last).await {
            let has_termed = self.collect(&mut gather, &mut tags);
            if !has_ended {
                self.is_sending.set(true);
                let done = gather.send(self.transport, self.peer, self.pool).await;
                self.is_sending.set(false);
                has_ended = done.is_err() || has_termed;
                if has_ended {
                    cut();
                }
            }
            // Once the stream has ended, answers are dropped as they come: requests in flight still end.
            gather.clear();
            tags.clear();
            sent();
        }
    }

    async fn has_more(&self, is_last: &impl Fn() -> bool) -> bool {
        poll_fn(|_| match self.outbox.borrow().is_empty() {
            false => Poll::Ready(true),
            true if is_last() => Poll::Ready(false),
            true => Poll::Pending, // whoever puts something in wakes this part
        })
        .await
    }

    /// Puts together everything that is in the outbox; whether it ends the connection.
    fn collect(&self, gather: &mut Gather, tags: &mut Vec<Tag>) -> bool {
        let mut outbox = self.outbox.borrow_mut();
        while let Some(out) = outbox.pop_front() {
            match out {
                Out::Answer(answer) => tags.extend(self.add_answer(gather, answer)),
                Out::Ask(transfer) => {
                    let head = Head::of(Kind::ReadyToTransfer, 0, 0, self.agreed.digests, 4);
                    self.add_header(gather, &transfer.encode(&head));
                }
                Out::Term(fault, header) => {
                    let bytes = encode_term(fault, &header);
                    gather.head(|heads| heads.extend_from_slice(&bytes));
                    outbox.clear();
                    return true;
                }
            }
        }
        false
    }

    fn add_answer(&self, gather: &mut Gather, answer: Answer) -> Option<Tag> {
        let under_way = self.under_way.get().checked_sub(1);
        self.under_way
            .set(under_way.expect("only what has come is answered"));
        let queue_head = match self.queue.has_no_flow_control {
            true => u16::MAX,
            false => {
                self.head.set((self.head.get() + 1) % self.queue.entries);
                self.head.get()
            }
        };
        let completion = Completion {
            result: answer.result,
            queue_head,
            id: answer.id,
            status: answer.status,
        };
        let mut is_told = false;
        if let Some(rope) = answer.data.filter(|rope| rope.length_bytes() > 0) {
            // Without flow control a completion says nothing more than that the data are all there.
            is_told = self.queue.has_no_flow_control && answer.result == 0;
            self.add_data(gather, answer.id, rope, is_told);
        }
        if !is_told {
            self.add_completion(gather, &completion);
        }
        answer.tag
    }

    fn add_completion(&self, gather: &mut Gather, completion: &Completion) {
        let head = Head::of(Kind::Response, 0, 0, self.agreed.digests, 4);
        let mut header = [0; DATA_HEADER_BYTES];
        header[..HEAD_BYTES].copy_from_slice(&head.encode());
        header[HEAD_BYTES..].copy_from_slice(&completion.encode());
        self.add_header(gather, &header);
    }

    fn add_data(&self, gather: &mut Gather, id: u16, rope: Rope, is_told: bool) {
        let digests = self.agreed.digests;
        // No rope is longer than the largest request, 2^25.
        let count_bytes = rope.length_bytes() as u32;
        let flags = flag::LAST | if is_told { flag::SUCCESS } else { 0 };
        let alignment_bytes = self.agreed.alignment_bytes;
        let head = Head::of(
            Kind::ControllerData,
            flags,
            count_bytes,
            digests,
            alignment_bytes,
        );
        let transfer = Transfer {
            command: id,
            tag: 0,
            offset_bytes: 0,
            count_bytes,
        };
        self.add_header(gather, &transfer.encode(&head));
        let begin = DATA_HEADER_BYTES + digests.header_bytes();
        let pad_bytes = usize::from(head.data_offset_bytes) - begin;
        gather.head(|heads| heads.resize(heads.len() + pad_bytes, 0));
        let digest = digests
            .data
            .then(|| digest_of(rope.pieces.iter().map(|piece| &piece[..])));
        gather.data(rope);
        if let Some(digest) = digest {
            gather.head(|heads| heads.extend_from_slice(&digest));
        }
    }

    fn add_header(&self, gather: &mut Gather, header: &[u8]) {
        gather.head(|heads| heads.extend_from_slice(header));
        if self.agreed.digests.header {
            gather.head(|heads| heads.extend_from_slice(&digest_of([header])));
        }
    }

    /// Whether nothing waits to be sent.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.outbox.borrow().is_empty() && !self.is_sending.get()
    }
}

/// A completion in a capsule of its own, for a connection that is not a queue yet.
pub(crate) fn lone_completion(pool: &BufPool, digests: Digests, completion: &Completion) -> Buf {
    let head = Head::of(Kind::Response, 0, 0, digests, 4);
    let mut bytes = Vec::from(head.encode());
    bytes.extend_from_slice(&completion.encode());
    if digests.header {
        let digest = digest_of([&bytes[..]]);
        bytes.extend_from_slice(&digest);
    }
    pool.copy_of(&bytes).freeze()
}

const _: () = assert!(TERM_HEADER_BYTES <= IC_BYTES && HEAD_BYTES < TERM_HEADER_BYTES);
