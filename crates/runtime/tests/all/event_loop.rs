//! The event loop itself, on both reactors.

use std::cell::{Cell, RefCell};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::{choices, on_both};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua};
use plexum_nbd::transport::Transport;
use plexum_runtime::file::{FileDevice, OpenOptions, Route};
use plexum_runtime::socket::Socket;
use plexum_runtime::{IoChoice, IoKind, JoinHandle, Runtime, yield_now};
use rustix::process::{Resource, Rlimit, setrlimit};

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

#[test]
fn a_task_that_never_waits_for_its_member_lets_timers_and_sockets_live() {
    on_both(async |handle| {
        let folder = crate::common::memory_folder();
        let path = crate::common::sparse(&folder, "member", 1 << 20);
        let options = OpenOptions::read_write();
        let device = FileDevice::open(&handle, &path, &options).unwrap();
        assert_eq!(device.route(), Route::Inline);
        let is_over = Rc::new(Cell::new(false));
        let greedy = handle.spawn({
            let is_over = Rc::clone(&is_over);
            async move {
                let pool = crate::common::pool();
                while !is_over.get() {
                    device.read(0, pool.take(4096)).await.unwrap();
                }
            }
        });
        handle.clock().sleep(Duration::from_millis(2)).await;
        let (a, b) = Socket::pair(&handle).unwrap();
        let echo = handle.spawn(async move {
            let mut byte = [0];
            for _ in 0..10 {
                b.read(&mut byte).await.unwrap();
                let data = crate::common::pool().copy_of(&byte).freeze();
                b.write_all(&[data]).await.unwrap();
            }
        });
        let ping = crate::common::pool().copy_of(&[1]).freeze();
        for _ in 0..10 {
            a.write_all(std::slice::from_ref(&ping)).await.unwrap();
            assert_eq!(a.read(&mut [0]).await, Ok(1));
        }
        echo.await.unwrap();
        is_over.set(true);
        greedy.await.unwrap();
    });
}

#[test]
fn a_flooding_peer_does_not_keep_the_thread() {
    on_both(async |handle| {
        let (a, b) = Socket::pair(&handle).unwrap();
        let is_over = Rc::new(Cell::new(false));
        let flood = {
            let is_over = Rc::clone(&is_over);
            handle.spawn(async move {
                let data = crate::common::pool().take_zeroed(64 << 10).freeze();
                while !is_over.get() {
                    a.write_all(std::slice::from_ref(&data)).await.unwrap();
                }
            })
        };
        let drain = handle.spawn(async move {
            let mut buf = vec![0; 64 << 10];
            while b.read(&mut buf).await.unwrap() > 0 {}
        });
        handle.clock().sleep(Duration::from_millis(2)).await;
        is_over.set(true);
        flood.await.unwrap();
        drain.await.unwrap();
    });
}

#[test]
fn a_dropped_timer_never_wakes_and_a_dropped_wait_for_a_socket_neither() {
    on_both(async |handle| {
        let (a, b) = Socket::pair(&handle).unwrap();
        let clock = handle.clock();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..1000 {
            let mut buf = [0];
            let mut read = pin!(a.read(&mut buf));
            assert!(read.as_mut().poll(&mut context).is_pending());
            let mut sleep = pin!(clock.sleep(Duration::from_secs(3600)));
            assert!(sleep.as_mut().poll(&mut context).is_pending());
        }
        let data = crate::common::pool().copy_of(&[9]).freeze();
        b.write_all(&[data]).await.unwrap();
        let mut buf = [0];
        assert_eq!(a.read(&mut buf).await, Ok(1));
        assert_eq!(buf, [9]);
    });
}

#[test]
fn a_runtime_with_transfers_in_flight_ends_cleanly() {
    for choice in choices() {
        let folder = crate::common::disk_folder();
        let path = crate::common::sparse(&folder, "member", 16 << 20);
        let mut runtime = Runtime::new(choice).unwrap();
        let handle = runtime.handle();
        let device = FileDevice::open(&handle, &path, &OpenOptions::read_write()).unwrap();
        let device = Rc::new(device);
        for number in 0..100 {
            let device = Rc::clone(&device);
            let _detached = handle.spawn(async move {
                let data = crate::common::pool().copy_of(&vec![5; 64 << 10]).freeze();
                device.write(number * (64 << 10), data, Fua::Yes).await
            });
        }
        runtime.block_on(yield_now());
        drop((handle, device, runtime));
        // Every write that reached the device was finished, none was torn.
        let bytes = std::fs::read(&path).unwrap();
        for part in bytes.chunks(64 << 10) {
            assert!(part.iter().all(|byte| *byte == part[0]));
        }
        FileDevice::open(
            &Runtime::new(choice).unwrap().handle(),
            &path,
            &OpenOptions::read_write(),
        )
        .expect("the lock has ended with the runtime");
    }
}

/// Helper: has one descriptor left, so that the ring cannot be made.
#[test]
fn helper_without_descriptors() {
    if !crate::common::is_child() {
        return;
    }
    let free = std::fs::File::open("/dev/null").unwrap();
    let next = u64::from(free.as_raw_fd().cast_unsigned());
    drop(free);
    let limit = Rlimit {
        current: Some(next + 1),
        maximum: Some(next + 1),
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let asked = Runtime::new(IoChoice::Uring).map(|_| ());
    println!("\nasked: {}", asked.unwrap_err());
    let mut runtime = Runtime::new(IoChoice::Auto).unwrap();
    let handle = runtime.handle();
    let status = handle.status();
    println!(
        "\n{}: {}",
        status.kind,
        status.fallback_reason.as_ref().unwrap()
    );
    runtime.block_on(async move { handle.clock().sleep(Duration::from_millis(1)).await });
}

#[test]
fn without_a_ring_auto_takes_threads_and_says_why_but_uring_fails() {
    let output = crate::common::child("event_loop::helper_without_descriptors", "")
        .wait_with_output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("asked: io_uring cannot be used here"),
        "{text}"
    );
    assert!(
        text.contains("threads: io_uring cannot be used here: "),
        "{text}"
    );
}

#[test]
fn a_main_future_that_lets_others_run_is_never_left_asleep() {
    for choice in choices() {
        let mut runtime = Runtime::new(choice).unwrap();
        // Of two tasks that wake themselves, with any share of the polls of a turn.
        for others in 0..3 {
            let tasks: Vec<_> = (0..others)
                .map(|_| {
                    runtime.handle().spawn(async {
                        for _ in 0..50 {
                            yield_now().await;
                        }
                    })
                })
                .collect();
            runtime.block_on(async {
                for _ in 0..1000 {
                    yield_now().await; // it would sleep for ever: nothing else happens here
                }
            });
            drop(tasks);
        }
    }
}
