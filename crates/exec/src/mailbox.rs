//! Messages from other threads into a runtime's thread, and one answer back for each.
//!
//! Works with any executor on either side: the control server's threads send and wait in their own way.
//!
//! Invariants:
//! - a mailbox holds at most its capacity; a sender is told at once, it never blocks;
//! - messages of one sender arrive in the order they were sent;
//! - a request whose answer will never come says so: nobody waits for ever.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing below panics between two changes, so a poisoned state is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Letters<T> {
    messages: VecDeque<T>,
    capacity: usize,
    sender_count: usize,
    is_closed: bool,
    waker: Option<Waker>,
}

/// Why a message was not taken; gives it back.
#[derive(Debug, PartialEq, Eq)]
pub enum SendError<T> {
    /// The mailbox is full: try again later, or answer "busy".
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

/// A new mailbox for at most `capacity` messages (at least 1).
#[must_use]
pub fn mailbox<T>(capacity: usize) -> (Sender<T>, Mailbox<T>) {
    let shared = Arc::new(Mutex::new(Letters {
        messages: VecDeque::new(),
        capacity: capacity.max(1),
        sender_count: 1,
        is_closed: false,
        waker: None,
    }));
    let sender = Sender {
        shared: Arc::clone(&shared),
    };
    (sender, Mailbox { shared })
}

/// Puts messages into a mailbox; from any thread.
pub struct Sender<T> {
    shared: Arc<Mutex<Letters<T>>>,
}

impl<T> Sender<T> {
    /// Puts `message` into the mailbox.
    ///
    /// # Errors
    /// `Full` or `Closed`, with the message.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut shared = lock(&self.shared);
        if shared.is_closed {
            return Err(SendError::Closed(message));
        }
        if shared.messages.len() >= shared.capacity {
            return Err(SendError::Full(message));
        }
        shared.messages.push_back(message);
        let waker = shared.waker.take();
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        lock(&self.shared).sender_count += 1;
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.sender_count -= 1;
        let waker = if shared.sender_count == 0 {
            shared.waker.take()
        } else {
            None
        };
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The receiving end of a mailbox.
pub struct Mailbox<T> {
    shared: Arc<Mutex<Letters<T>>>,
}

impl<T> Mailbox<T> {
    /// The next message; `None` when it is empty and all senders are gone. May be dropped and called again.
    pub async fn receive(&mut self) -> Option<T> {
        std::future::poll_fn(|context| {
            let mut shared = lock(&self.shared);
            if let Some(message) = shared.messages.pop_front() {
                return Poll::Ready(Some(message));
            }
            if shared.sender_count == 0 {
                return Poll::Ready(None);
            }
            shared.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.is_closed = true;
        let left = std::mem::take(&mut shared.messages);
        drop(shared);
        drop(left); // their answers are told that nobody will give them
    }
}

/// The question was dropped without an answer: whoever had it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the request was dropped without an answer")
    }
}

impl std::error::Error for NoAnswer {}

enum Line<T> {
    Open(Option<Waker>),
    Answered(T),
    /// Taken, or never to come.
    Over,
}

struct SharedLine<T> {
    line: Mutex<Line<T>>,
    has_changed: Condvar,
}

impl<T> SharedLine<T> {
    fn settle(&self, end: Line<T>) {
        let old = std::mem::replace(&mut *lock(&self.line), end);
        self.has_changed.notify_all();
        if let Line::Open(Some(waker)) = old {
            waker.wake();
        }
    }
}

/// A pair for one answer: `Reply` travels with the request, `Answer` stays with who asks.
#[must_use]
pub fn reply<T>() -> (Reply<T>, Answer<T>) {
    let shared = Arc::new(SharedLine {
        line: Mutex::new(Line::Open(None)),
        has_changed: Condvar::new(),
    });
    let reply = Reply {
        shared: Arc::clone(&shared),
        is_sent: false,
    };
    (reply, Answer { shared })
}

/// Gives the answer, from any thread. Dropped unused, it tells the asker that there will be none.
pub struct Reply<T> {
    shared: Arc<SharedLine<T>>,
    is_sent: bool,
}

impl<T> Reply<T> {
    /// Answers. When nobody waits any more the answer is dropped.
    pub fn send(mut self, answer: T) {
        self.is_sent = true;
        self.shared.settle(Line::Answered(answer));
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if !self.is_sent {
            self.shared.settle(Line::Over);
        }
    }
}

/// Waits for the answer: as a future, or with `wait` on a thread that may block.
pub struct Answer<T> {
    shared: Arc<SharedLine<T>>,
}

impl<T> Answer<T> {
    /// Blocks the calling thread until the answer is there. Not on a runtime's own thread.
    ///
    /// # Errors
    /// `NoAnswer` when there will be none.
    pub fn wait(self) -> Result<T, NoAnswer> {
        let mut line = lock(&self.shared.line);
        loop {
            match std::mem::replace(&mut *line, Line::Over) {
                Line::Answered(answer) => return Ok(answer),
                Line::Over => return Err(NoAnswer),
                open @ Line::Open(_) => *line = open,
            }
            line = self
                .shared
                .has_changed
                .wait(line)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, NoAnswer>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut line = lock(&self.shared.line);
        match std::mem::replace(&mut *line, Line::Over) {
            Line::Answered(answer) => Poll::Ready(Ok(answer)),
            Line::Over => Poll::Ready(Err(NoAnswer)),
            Line::Open(_) => {
                *line = Line::Open(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}
