//! Futures of tests whose devices never wait.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Polls a future until it is done. For devices that answer at once: nobody wakes it up, it is asked again and again.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}
