//! Signals, in helper processes: a signal belongs to a whole process.

use std::os::unix::process::ExitStatusExt;

use crate::common::{child, child_argument, choice_of, is_child, wait_for_line};
use plexum_runtime::Runtime;
use plexum_runtime::signals::{StopSignal, StopSignals};
use rustix::process::{Pid, Signal, kill_process};

fn send(child: &std::process::Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Helper: waits for a signal, says which, then hangs until the second one.
#[test]
fn helper_that_stops_slowly() {
    if !is_child() {
        return;
    }
    let mut runtime = Runtime::new(choice_of(&child_argument())).unwrap();
    let handle = runtime.handle();
    runtime.block_on(async move {
        let signals = StopSignals::new(&handle).unwrap();
        println!("\nready");
        match signals.next().await {
            StopSignal::Interrupt => println!("\ninterrupt"),
            StopSignal::Terminate => println!("\nterminate"),
        }
        std::future::pending::<()>().await;
    });
}

#[test]
fn the_first_signal_asks_and_the_second_one_ends_the_process() {
    for reactor in ["uring", "threads"] {
        for (signal, word, code) in [
            (Signal::TERM, "terminate", 143),
            (Signal::INT, "interrupt", 130),
        ] {
            let mut child = child("signals::helper_that_stops_slowly", reactor);
            wait_for_line(&mut child, "ready");
            send(&child, signal);
            wait_for_line(&mut child, word);
            send(&child, signal);
            let status = child.wait().unwrap();
            assert_eq!((status.code(), status.signal()), (Some(code), None));
        }
    }
}
