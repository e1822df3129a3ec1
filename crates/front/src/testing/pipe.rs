//! Two ends of a stream with limited room, in memory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use plexum_block::buf::Buf;

use crate::transport::{Transport, TransportError};

/// One direction.
struct Half {
    bytes: VecDeque<u8>,
    room_bytes: usize,
    /// The sender has closed: what is in here can still be read.
    is_ended: bool,
    /// The receiver has closed: sending fails.
    is_refused: bool,
    passed_bytes: u64,
    expectations: u32,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Half {
    fn new(room_bytes: usize) -> Rc<RefCell<Half>> {
        Rc::new(RefCell::new(Half {
            bytes: VecDeque::new(),
            room_bytes,
            is_ended: false,
            is_refused: false,
            passed_bytes: 0,
            expectations: 0,
            reader: None,
            writer: None,
        }))
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()]
            .into_iter()
            .flatten()
        {
            waker.wake();
        }
    }
}

/// One end of a `pipe`.
pub struct PipeEnd {
    inbound: Rc<RefCell<Half>>,
    outbound: Rc<RefCell<Half>>,
    read_bytes_max: Cell<usize>,
    cut_after_bytes: Cell<Option<u64>>,
    idle_polls: Cell<u32>,
}

/// A stream in memory; each direction holds at most `room_bytes` that were sent and not read yet.
#[must_use]
pub fn pipe(room_bytes: usize) -> (PipeEnd, PipeEnd) {
    assert!(room_bytes > 0, "a pipe without room never moves a byte");
    let (left, right) = (Half::new(room_bytes), Half::new(room_bytes));
    let end = |inbound: &Rc<RefCell<Half>>, outbound: &Rc<RefCell<Half>>| PipeEnd {
        inbound: Rc::clone(inbound),
        outbound: Rc::clone(outbound),
        read_bytes_max: Cell::new(usize::MAX),
        cut_after_bytes: Cell::new(None),
        idle_polls: Cell::new(0),
    };
    (end(&left, &right), end(&right, &left))
}

impl PipeEnd {
    /// Lets each read return at most `bytes`, as a network may do.
    pub fn fragment(&self, bytes: usize) {
        assert!(bytes > 0, "0 bytes mean the end of the stream");
        self.read_bytes_max.set(bytes);
    }

    /// Breaks the stream in both directions once this end has sent `bytes`.
    pub fn cut_after(&self, bytes: u64) {
        self.cut_after_bytes.set(Some(bytes));
        if self.sent_bytes() >= bytes {
            self.cut();
        }
    }

    /// Wakes whoever waits at this end without a reason, `polls` times in all.
    pub fn pester(&self, polls: u32) {
        self.idle_polls.set(polls);
    }

    fn wait(&self, waker: &Waker) -> Waker {
        if let Some(left) = self.idle_polls.get().checked_sub(1) {
            self.idle_polls.set(left);
            waker.wake_by_ref();
        }
        waker.clone()
    }

    /// How often the other end was told that this one is about to speak.
    #[must_use]
    pub fn expectations(&self) -> u32 {
        self.inbound.borrow().expectations
    }

    /// Bytes that this end has sent so far.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.outbound.borrow().passed_bytes
    }

    /// Bytes sent by the other end and not read yet by this one.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.inbound.borrow().bytes.len()
    }

    /// Refuses what the other end sends from now on; this end can still send.
    pub fn refuse(&self) {
        let mut half = self.inbound.borrow_mut();
        half.is_refused = true;
        half.wake();
    }

    fn cut(&self) {
        for half in [&self.inbound, &self.outbound] {
            let mut half = half.borrow_mut();
            half.is_ended = true;
            half.is_refused = true;
            half.wake();
        }
    }

    fn send_some(&self, data: &[u8]) -> Result<usize, TransportError> {
        let mut half = self.outbound.borrow_mut();
        if half.is_refused || half.is_ended {
            return Err(TransportError::Closed);
        }
        let until_cut = self
            .cut_after_bytes
            .get()
            .map_or(u64::MAX, |cut| cut - half.passed_bytes);
        let room = half.room_bytes - half.bytes.len();
        let count = data
            .len()
            .min(room)
            .min(usize::try_from(until_cut).unwrap_or(usize::MAX));
        half.bytes.extend(&data[..count]);
        half.passed_bytes += count as u64;
        if count > 0 {
            half.wake();
        }
        drop(half);
        if count as u64 == until_cut {
            self.cut();
            return Err(TransportError::Closed);
        }
        Ok(count)
    }
}

impl Transport for PipeEnd {
    async fn read(&self, buf: &mut [u8]) -> Result<usize, TransportError> {
        poll_fn(|cx| {
            let mut half = self.inbound.borrow_mut();
            if buf.is_empty() {
                return Poll::Ready(Ok(0));
            }
            let count = buf
                .len()
                .min(self.read_bytes_max.get())
                .min(half.bytes.len());
            if count > 0 {
                for (to, from) in buf.iter_mut().zip(half.bytes.drain(..count)) {
                    *to = from;
                }
                half.wake();
                return Poll::Ready(Ok(count));
            }
            if half.is_ended || half.is_refused {
                return Poll::Ready(Ok(0));
            }
            half.reader = Some(self.wait(cx.waker()));
            Poll::Pending
        })
        .await
    }

    async fn write_all(&self, pieces: &[Buf]) -> Result<(), TransportError> {
        for piece in pieces {
            let mut sent = 0;
            while sent < piece.len() {
                sent += poll_fn(|cx| match self.send_some(&piece[sent..]) {
                    Ok(0) => {
                        self.outbound.borrow_mut().writer = Some(self.wait(cx.waker()));
                        Poll::Pending
                    }
                    result => Poll::Ready(result),
                })
                .await?;
            }
        }
        Ok(())
    }

    fn expect_soon(&self) {
        self.outbound.borrow_mut().expectations += 1;
    }

    fn close(&self) {
        let mut outbound = self.outbound.borrow_mut();
        outbound.is_ended = true;
        outbound.wake();
        drop(outbound);
        let mut inbound = self.inbound.borrow_mut();
        inbound.is_refused = true;
        inbound.wake();
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        self.close();
    }
}
