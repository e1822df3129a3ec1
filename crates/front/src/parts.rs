//! The parts of one client's session (receiving, sending, watching, workers) as futures that are polled only when
//! woken.
//!
//! A session is one task of whatever runtime there is; inside, each part has a waker of its own. This is what makes
//! many requests run at the same time without a spawned task, and without an allocation, for each of them.
//!
//! Invariants:
//! - a part is in the queue at most once, and is polled in the order in which parts were woken;
//! - no wake-up is lost: the session's own waker is armed under the same lock that finds the queue empty;
//! - one poll of the session polls a bounded number of parts, then lets other tasks run.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

/// Part polls in one poll of the session.
const POLLS_MAX: usize = 4096;

/// Which parts are to be polled.
pub struct Parts {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    woken: VecDeque<usize>,
    is_queued: Vec<bool>,
    session: Option<Waker>,
    is_armed: bool,
}

struct PartWaker {
    parts: Arc<Parts>,
    part: usize,
}

impl Wake for PartWaker {
    fn wake(self: Arc<Self>) {
        self.parts.wake(self.part);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.parts.wake(self.part);
    }
}

impl Parts {
    /// No part is woken yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for `part` to be polled.
    pub fn wake(&self, part: usize) {
        let mut queue = self.lock();
        if queue.is_queued.len() <= part {
            queue.is_queued.resize(part + 1, false);
        }
        if queue.is_queued[part] {
            return;
        }
        queue.is_queued[part] = true;
        queue.woken.push_back(part);
        if !std::mem::take(&mut queue.is_armed) {
            return; // the session is being polled, or was woken already
        }
        let session = queue.session.clone();
        drop(queue);
        if let Some(session) = session {
            session.wake();
        }
    }

    /// A waker for `part`; made once for each part.
    pub fn waker(self: &Arc<Self>, part: usize) -> Waker {
        Waker::from(Arc::new(PartWaker {
            parts: Arc::clone(self),
            part,
        }))
    }

    /// Polls every woken part until none is left; `poll_one` says whether to go on.
    pub fn poll(&self, cx: &Context<'_>, mut poll_one: impl FnMut(usize) -> bool) {
        for _ in 0..POLLS_MAX {
            let mut queue = self.lock();
            let Some(part) = queue.woken.pop_front() else {
                match &mut queue.session {
                    Some(session) => session.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                queue.is_armed = true;
                return;
            };
            queue.is_queued[part] = false;
            drop(queue);
            if !poll_one(part) {
                return;
            }
        }
        cx.waker().wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn polled(parts: &Parts, cx: &Context<'_>) -> Vec<usize> {
        let mut seen = Vec::new();
        parts.poll(cx, |part| {
            seen.push(part);
            true
        });
        seen
    }

    #[test]
    fn parts_are_polled_once_for_any_number_of_wakes_and_in_their_order() {
        let parts = Parts::new();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        for part in [3, 1, 3, 0, 1] {
            parts.waker(part).wake();
        }
        assert_eq!(polled(&parts, &cx), [3, 1, 0]);
        assert_eq!(polled(&parts, &cx), []);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_session_is_woken_once_by_many_parts_and_again_after_its_next_poll() {
        let parts = Parts::new();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        for round in 1..4 {
            assert_eq!(polled(&parts, &cx), []);
            parts.wake(5);
            parts.wake(6);
            assert_eq!(count.0.load(Ordering::Relaxed), round);
            assert_eq!(polled(&parts, &cx), [5, 6]);
        }
    }

    #[test]
    fn a_part_that_wakes_itself_for_ever_lets_other_tasks_run() {
        let parts = Parts::new();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        parts.wake(0);
        parts.poll(&cx, |part| {
            parts.wake(part);
            true
        });
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
