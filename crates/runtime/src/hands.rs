//! Threads that help a runtime's thread with work that is copying and arithmetic alone: the engine's `Hands`.
//!
//! Invariants:
//! - a thread is started when there is work and none waits for it, and all end with the last handle;
//! - work that no thread takes any more is dropped, which whoever gave it understands.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use plexum_engine::background::hands::{Hands, Work};

/// Threads at most: what a few of them copy keeps the memory busy.
const THREADS_MAX: usize = 4;

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    has_work: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing below panics between two changes, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread for each processor beside the caller's, a few at most. Dropping it ends them when they have done what they do.
pub struct HandThreads {
    shared: Arc<Shared>,
    count: usize,
}

impl HandThreads {
    /// For this machine; `None` where there is one processor only, so that others could not help.
    #[must_use]
    pub fn for_this_machine() -> Option<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        (processors > 1).then(|| Self::new((processors - 1).min(THREADS_MAX)))
    }

    /// At most `count` threads; none is started yet.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self {
            shared: Arc::default(),
            count,
        }
    }
}

impl Hands for HandThreads {
    fn count(&self) -> usize {
        self.count
    }

    fn give(&self, work: Work) {
        let mut state = self.shared.lock();
        state.queue.push_back(work);
        if state.queue.len() > state.idle && state.threads < self.count {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("plexum-hand".to_owned());
            match builder.spawn(move || serve(&shared)) {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads > 0 => {} // it waits for another one
                Err(_) => state.queue.clear(),
            }
        }
        drop(state);
        self.shared.has_work.notify_one();
    }
}

impl Drop for HandThreads {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        let left = std::mem::take(&mut state.queue);
        drop(state);
        drop(left);
        self.shared.has_work.notify_all();
    }
}

/// What a thread does until there is nobody any more to work for.
fn serve(shared: &Shared) {
    let mut state = shared.lock();
    loop {
        if let Some(work) = state.queue.pop_front() {
            drop(state);
            work();
            state = shared.lock();
        } else if state.is_over {
            return;
        } else {
            state.idle += 1;
            state = shared
                .has_work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn all_work_is_done_by_no_more_threads_than_allowed() {
        let hands = HandThreads::new(2);
        let (sender, done) = channel();
        for number in 0..100 {
            let sender = sender.clone();
            hands.give(Box::new(move || {
                let thread = std::thread::current();
                assert_eq!(thread.name(), Some("plexum-hand"));
                sender
                    .send((number, thread.id()))
                    .expect("somebody listens");
            }));
        }
        let all: Vec<_> = done.iter().take(100).collect();
        let mut numbers: Vec<i32> = all.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(0..100));
        let threads: std::collections::HashSet<_> = all.iter().map(|(_, id)| *id).collect();
        assert!((1..=2).contains(&threads.len()));
    }

    #[test]
    fn work_that_nobody_began_is_dropped_with_the_hands() {
        let hands = HandThreads::new(1);
        let (sender, begun) = channel();
        let (go, gate) = channel::<()>();
        hands.give(Box::new(move || {
            sender.send(()).expect("somebody listens");
            let _ = gate.recv();
        }));
        begun.recv().expect("the thread begins");
        let (kept, dropped) = channel::<()>();
        hands.give(Box::new(move || drop(kept)));
        drop(hands);
        assert!(
            dropped.recv().is_err(),
            "dropped, while the thread is still busy"
        );
        drop(go);
    }
}
