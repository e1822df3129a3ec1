#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Pending until `value` is set; hands its waker out.
#[derive(Clone, Default)]
struct Gate {
    is_open: Rc<Cell<bool>>,
    waker: Rc<RefCell<Option<Waker>>>,
    polls: Rc<Cell<u32>>,
}

impl Gate {
    async fn pass(&self) {
        std::future::poll_fn(|context| {
            self.polls.set(self.polls.get() + 1);
            *self.waker.borrow_mut() = Some(context.waker().clone());
            if self.is_open.get() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    fn waker(&self) -> Waker {
        self.waker.borrow().clone().expect("the gate was polled")
    }
}

#[test]
fn a_spurious_wake_polls_once_more_and_ends_nothing() {
    let mut executor = Executor::new(Fifo);
    let gate = Gate::default();
    let handle = executor.spawn({
        let gate = gate.clone();
        async move { gate.pass().await }
    });
    executor.run_until_stalled();
    for expected in 2..6 {
        gate.waker().wake();
        assert_eq!(executor.run_until_stalled(), 1);
        assert_eq!(gate.polls.get(), expected);
        assert!(!handle.is_finished());
    }
    gate.is_open.set(true);
    assert!(!executor.poll_one(), "without a wake nothing is polled");
    gate.waker().wake();
    executor.run_until_stalled();
    assert_eq!(handle.try_take(), Some(()));
}

#[test]
fn waking_a_queued_task_twice_queues_it_once() {
    let mut executor = Executor::new(Fifo);
    let gate = Gate::default();
    let task = gate.clone();
    let _handle = executor.spawn(async move { task.pass().await });
    executor.run_until_stalled();
    let waker = gate.waker();
    waker.wake_by_ref();
    waker.wake_by_ref();
    waker.wake();
    assert_eq!(executor.ready_count(), 1);
    assert_eq!(executor.run_until_stalled(), 1);
}

#[test]
fn a_wake_during_its_own_poll_queues_the_task_again() {
    let mut executor = Executor::new(Fifo);
    let handle = executor.spawn(async {
        for _ in 0..3 {
            yield_now().await;
        }
        9
    });
    assert_eq!(executor.run_until_stalled(), 4);
    assert_eq!(handle.try_take(), Some(9));
}

#[test]
fn waking_an_ended_task_does_nothing() {
    let mut executor = Executor::new(Fifo);
    let gate = Gate::default();
    gate.is_open.set(true);
    let task = gate.clone();
    let _ended = executor.spawn(async move { task.pass().await });
    assert_eq!(executor.run_until_stalled(), 1);
    gate.waker().wake();
    assert_eq!(executor.ready_count(), 0);
    drop(executor);
    gate.waker().wake();
}

#[test]
fn a_wake_of_an_ended_task_does_not_poll_the_next_task_in_its_slot() {
    let mut executor = Executor::new(Fifo);
    let _first = executor.spawn(std::future::poll_fn(|context| {
        context.waker().wake_by_ref(); // queued once more, then it ends
        Poll::Ready(())
    }));
    assert!(executor.poll_one());
    let gate = Gate::default();
    let task = gate.clone();
    let _second = executor.spawn(async move { task.pass().await });
    assert_eq!(executor.ready_count(), 2);
    assert_eq!(executor.run_until_stalled(), 1);
    assert_eq!(gate.polls.get(), 1);
}

#[test]
fn a_wake_from_another_thread_calls_the_notifier_of_a_waiting_executor_once() {
    let mut executor = Executor::new(Fifo);
    let calls = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = mpsc::channel();
    let counter = Arc::clone(&calls);
    executor.set_notifier(move || {
        counter.fetch_add(1, Ordering::SeqCst);
        sender.send(()).expect("the test waits");
    });
    let gates = [Gate::default(), Gate::default()];
    for gate in gates.clone() {
        let _detached = executor.spawn(async move { gate.pass().await });
    }
    assert!(!executor.begin_wait(), "two tasks are ready");
    executor.run_until_stalled();
    assert!(executor.begin_wait());
    let wakers = gates.clone().map(|gate| gate.waker());
    let thread = std::thread::spawn(move || wakers.into_iter().for_each(Waker::wake));
    receiver.recv().expect("the notifier was called");
    executor.end_wait();
    thread.join().unwrap();
    assert_eq!(executor.run_until_stalled(), 2);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    gates[0].waker().wake();
    assert_eq!(
        calls.load(Ordering::SeqCst),
        1,
        "nobody waits, nobody is called"
    );
}

#[test]
fn a_wake_of_the_own_thread_while_it_is_about_to_block_calls_the_notifier_too() {
    let mut executor = Executor::new(Fifo);
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    executor.set_notifier(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let gate = Gate::default();
    let task = gate.clone();
    let _detached = executor.spawn(async move { task.pass().await });
    executor.run_until_stalled();
    assert!(executor.begin_wait());
    gate.waker().wake();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    executor.end_wait();
    gate.waker().wake();
    assert_eq!(calls.load(Ordering::SeqCst), 1, "it is queued already");
    assert_eq!(
        (executor.ready_count(), executor.run_until_stalled()),
        (1, 1)
    );
}

#[test]
fn wakes_of_other_threads_line_up_behind_those_of_the_own() {
    let mut executor = Executor::new(Fifo);
    let polled = Rc::new(RefCell::new(Vec::new()));
    let gates = [Gate::default(), Gate::default(), Gate::default()];
    for (number, gate) in gates.clone().into_iter().enumerate() {
        let polled = Rc::clone(&polled);
        let _detached = executor.spawn(async move {
            gate.pass().await;
            polled.borrow_mut().push(number);
        });
    }
    executor.run_until_stalled();
    gates.iter().for_each(|gate| gate.is_open.set(true));
    gates[2].waker().wake();
    let waker = gates[0].waker();
    std::thread::spawn(move || waker.wake()).join().unwrap();
    gates[1].waker().wake();
    assert!(!executor.begin_wait(), "three tasks are ready");
    assert_eq!(executor.ready_count(), 3);
    executor.run_until_stalled();
    assert_eq!(*polled.borrow(), [2, 1, 0]);
}

#[test]
fn many_threads_waking_at_once_lose_no_wake() {
    let mut executor = Executor::new(Fifo);
    let (sender, receiver) = mpsc::channel();
    executor.set_notifier(move || {
        let _ = sender.send(());
    });
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let slot: Arc<std::sync::Mutex<Option<Waker>>> = Arc::default();
    let shared = Arc::clone(&slot);
    let handle = executor.spawn(std::future::poll_fn(move |context| {
        *shared.lock().unwrap() = Some(context.waker().clone());
        if seen.load(Ordering::SeqCst) == 4000 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }));
    executor.run_until_stalled();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (count, slot) = (Arc::clone(&count), Arc::clone(&slot));
            std::thread::spawn(move || {
                for _ in 0..1000 {
                    count.fetch_add(1, Ordering::SeqCst);
                    let waker = slot.lock().unwrap().clone();
                    waker.expect("the task was polled").wake();
                }
            })
        })
        .collect();
    while !handle.is_finished() {
        if executor.begin_wait() {
            receiver
                .recv()
                .expect("a wake that made the queue non-empty");
        }
        executor.end_wait();
        executor.run_until_stalled();
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// Ten tasks that yield a few times each; the sequence of their steps.
fn trace(order: impl Order) -> Vec<(u32, u32)> {
    let mut executor = Executor::new(order);
    let steps = Rc::new(RefCell::new(Vec::new()));
    for task in 0..10 {
        let steps = Rc::clone(&steps);
        let _detached = executor.spawn(async move {
            for step in 0..10 {
                steps.borrow_mut().push((task, step));
                yield_now().await;
            }
        });
    }
    executor.run_until_stalled();
    steps.take()
}

#[test]
fn the_same_seed_gives_the_same_order_and_another_seed_another() {
    assert_eq!(trace(Seeded::new(1)), trace(Seeded::new(1)));
    let distinct: std::collections::HashSet<_> = (0..50).map(|s| trace(Seeded::new(s))).collect();
    assert_eq!(distinct.len(), 50);
    let in_turn: Vec<_> = (0..10)
        .flat_map(|step| (0..10).map(move |t| (t, step)))
        .collect();
    assert_eq!(trace(Fifo), in_turn);
}

#[test]
fn tasks_spawn_tasks_and_wait_for_them() {
    let mut executor = Executor::new(Seeded::new(3));
    let spawner = executor.spawner();
    let handle = executor.spawn(async move {
        let children: Vec<_> = (0..100_u64)
            .map(|n| spawner.spawn(async move { n }))
            .collect();
        let mut sum = 0;
        for child in children {
            sum += child.await.expect("a child ends");
        }
        sum
    });
    executor.run_until_stalled();
    assert_eq!(handle.try_take(), Some(4950));
    assert_eq!(executor.task_count(), 0);
}

#[test]
fn slots_of_ended_tasks_are_used_again() {
    let mut executor = Executor::new(Fifo);
    for _ in 0..1000 {
        let _detached = executor.spawn(async {});
        executor.run_until_stalled();
    }
    assert_eq!(executor.inner.tasks.borrow().slots.len(), 1);
}

/// Counts drops, and spawns once more while being dropped.
struct DropProbe {
    drops: Rc<Cell<u32>>,
    spawner: Option<Spawner>,
}

impl Drop for DropProbe {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
        if let Some(spawner) = self.spawner.take() {
            let drops = Rc::clone(&self.drops);
            let probe = DropProbe {
                drops,
                spawner: None,
            };
            let late = spawner.spawn(async move { drop(probe) });
            assert!(late.is_finished() && late.try_take().is_none());
        }
    }
}

#[test]
fn dropping_the_executor_drops_every_future_between_any_two_polls() {
    for polls in 0..25 {
        let drops = Rc::new(Cell::new(0));
        let mut executor = Executor::new(Fifo);
        let handles: Vec<_> = (0..5)
            .map(|_| {
                let probe = DropProbe {
                    drops: Rc::clone(&drops),
                    spawner: Some(executor.spawner()),
                };
                executor.spawn(async move {
                    let _probe = probe;
                    loop {
                        yield_now().await;
                    }
                })
            })
            .collect();
        for _ in 0..polls {
            assert!(executor.poll_one());
        }
        drop(executor);
        assert_eq!(drops.get(), 10, "five tasks and what their drops spawned");
        assert!(handles.iter().all(JoinHandle::is_finished));
    }
}

#[test]
fn a_handle_of_a_dropped_task_says_so_and_a_task_may_wait_for_it() {
    let mut first = Executor::new(Fifo);
    let lost = first.spawn(std::future::pending::<u8>());
    let mut second = Executor::new(Fifo);
    let waiter = second.spawn(lost);
    second.run_until_stalled();
    first.run_until_stalled();
    drop(first);
    second.run_until_stalled();
    assert_eq!(waiter.try_take(), Some(Err(Aborted)));
}

#[test]
fn a_panic_ends_its_task_only() {
    let mut executor = Executor::new(Fifo);
    let bad: JoinHandle<()> = executor.spawn(async { std::panic::resume_unwind(Box::new("bad")) });
    let good = executor.spawn(async { 5 });
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| executor.poll_one()));
    assert!(caught.is_err());
    executor.run_until_stalled();
    assert!(bad.is_finished());
    assert_eq!(good.try_take(), Some(5));
    assert_eq!(executor.task_count(), 0);
}
