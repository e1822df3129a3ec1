//! The event loop itself, on both reactors.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use common::{choices, on_both};
use plexum_engine::clock::Clock;
use plexum_runtime::{IoChoice, IoKind, JoinHandle, Runtime};

#[test]
fn timers_fire_in_the_order_of_their_times_not_of_their_making() {
    on_both(async |handle| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = [3_u64, 1, 2, 0]
            .into_iter()
            .map(|millis| {
                let (clock, order) = (handle.clock(), Rc::clone(&order));
                handle.spawn(async move {
                    let before = clock.now();
                    clock.sleep(Duration::from_millis(millis)).await;
                    assert!(clock.now().since(before) >= Duration::from_millis(millis));
                    order.borrow_mut().push(millis);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.borrow(), [0, 1, 2, 3]);
    });
}

#[test]
fn the_kind_that_was_asked_for_runs() {
    for choice in choices() {
        let runtime = Runtime::new(choice).unwrap();
        let expected = match choice {
            IoChoice::Threads => IoKind::Threads,
            _ => IoKind::Uring,
        };
        assert_eq!(runtime.handle().status().kind, expected);
        assert_eq!(runtime.handle().status().fallback_reason, None);
    }
}

#[test]
fn a_panicking_task_ends_alone() {
    on_both(async |handle| {
        let bad: JoinHandle<()> = handle.spawn(async {
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(bad.await.is_err());
        assert_eq!(handle.spawn(async { 4 }).await, Ok(4));
    });
}

#[test]
fn tasks_go_on_in_the_next_block_on() {
    for choice in choices() {
        let mut runtime = Runtime::new(choice).unwrap();
        let handle = runtime.handle();
        let clock = handle.clock();
        let task = handle.spawn(async move { clock.sleep(Duration::from_millis(1)).await });
        runtime.block_on(async {});
        assert!(!task.is_finished());
        runtime.block_on(task).unwrap();
    }
}
