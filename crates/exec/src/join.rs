//! Waiting for the result of a task.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The task was dropped before it had a result: its executor was dropped, or it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

impl std::fmt::Display for Aborted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the task was dropped before its end")
    }
}

impl std::error::Error for Aborted {}

enum State<T> {
    Running(Option<Waker>),
    Done(T),
    /// The result was taken.
    Taken,
    Aborted,
}

/// Gives the result of a task. Dropping it detaches the task, which goes on.
pub struct JoinHandle<T> {
    state: Rc<RefCell<State<T>>>,
}

impl<T> JoinHandle<T> {
    /// Whether the task has ended, in whatever way.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        !matches!(*self.state.borrow(), State::Running(_))
    }

    /// The result, when the task has ended normally and the result was not taken before.
    #[must_use]
    pub fn try_take(&self) -> Option<T> {
        let mut state = self.state.borrow_mut();
        if !matches!(*state, State::Done(_)) {
            return None;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(result) => Some(result),
            _ => None,
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Aborted>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.try_take() {
            return Poll::Ready(Ok(result));
        }
        match &mut *self.state.borrow_mut() {
            State::Running(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            State::Done(_) | State::Taken | State::Aborted => Poll::Ready(Err(Aborted)),
        }
    }
}

/// The task's side of a handle.
pub(crate) struct Outcome<T> {
    state: Rc<RefCell<State<T>>>,
}

impl<T> Outcome<T> {
    pub(crate) fn set(self, result: T) {
        self.settle(State::Done(result));
    }

    fn settle(&self, end: State<T>) {
        let old = std::mem::replace(&mut *self.state.borrow_mut(), end);
        if let State::Running(Some(waker)) = old {
            waker.wake();
        }
    }
}

impl<T> Drop for Outcome<T> {
    fn drop(&mut self) {
        if matches!(*self.state.borrow(), State::Running(_)) {
            self.settle(State::Aborted);
        }
    }
}

/// The two sides of one task's result.
pub(crate) fn pair<T>() -> (JoinHandle<T>, Outcome<T>) {
    let state = Rc::new(RefCell::new(State::Running(None)));
    let outcome = Outcome {
        state: Rc::clone(&state),
    };
    (JoinHandle { state }, outcome)
}
