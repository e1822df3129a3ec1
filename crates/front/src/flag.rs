//! A flag that is set once and wakes everybody who waits for it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Set once, never cleared.
#[derive(Default)]
pub struct Flag {
    is_set: Cell<bool>,
    tickets: Cell<u64>,
    waiting: RefCell<Vec<(u64, Waker)>>,
}

impl Flag {
    /// Sets it, and wakes all who wait.
    pub fn set(&self) {
        self.is_set.set(true);
        for (_, waker) in self.waiting.take() {
            waker.wake();
        }
    }

    /// Whether it is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.is_set.get()
    }

    /// Returns when the flag is set. May be polled again after that.
    pub fn wait(&self) -> Wait<'_> {
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        Wait { flag: self, ticket }
    }
}

/// Future of [`Flag::wait`].
pub struct Wait<'a> {
    flag: &'a Flag,
    ticket: u64,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.flag.is_set() {
            return Poll::Ready(());
        }
        let mut waiting = self.flag.waiting.borrow_mut();
        match waiting
            .iter_mut()
            .find(|(ticket, _)| *ticket == self.ticket)
        {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => waiting.push((self.ticket, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut waiting = self.flag.waiting.borrow_mut();
        waiting.retain(|(ticket, _)| *ticket != self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[test]
    fn waits_end_with_the_flag_and_leave_nothing_behind() {
        let flag = Flag::default();
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = pin!(flag.wait());
        {
            let mut second = pin!(flag.wait());
            for _ in 0..3 {
                assert!(first.as_mut().poll(&mut cx).is_pending());
                assert!(second.as_mut().poll(&mut cx).is_pending());
            }
            assert_eq!(flag.waiting.borrow().len(), 2);
        }
        assert_eq!(flag.waiting.borrow().len(), 1);
        flag.set();
        assert!(first.as_mut().poll(&mut cx).is_ready());
        assert!(first.as_mut().poll(&mut cx).is_ready());
    }
}
