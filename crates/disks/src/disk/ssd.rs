//! A disk without moving parts: latency in so many channels at once, then a transfer that all share.
//!
//! Source: lab.md section 2, point 10.

use std::cell::RefCell;
use std::rc::Rc;

use super::mechanical_spec::SsdSpec;
use super::timed::{Command, Operation, TimedHardware};

struct State {
    /// When each channel is free.
    free_ns: Vec<u64>,
    /// When the shared path is free.
    path_ns: u64,
}

pub(super) struct Channels {
    spec: SsdSpec,
    state: RefCell<State>,
}

impl Channels {
    pub fn new(spec: SsdSpec) -> Self {
        let free_ns = vec![0; spec.channel_count as usize];
        Self {
            spec,
            state: RefCell::new(State {
                free_ns,
                path_ns: 0,
            }),
        }
    }

    pub fn submit(&self, inner: &Rc<TimedHardware>, command: Command) {
        let now = inner.clock.now_ns();
        let spec = &self.spec;
        let (latency_us, rate) = match command.operation {
            Operation::Read => (spec.read_us, spec.read_bytes_per_s),
            Operation::Write if command.is_fua => {
                (spec.write_us + spec.flush_us, spec.write_bytes_per_s)
            }
            Operation::Write => (spec.write_us, spec.write_bytes_per_s),
            Operation::Flush => (spec.flush_us, spec.write_bytes_per_s),
        };
        let latency_ns = (latency_us * 1e3 * spec.slow_factor) as u64;
        let transfer_ns = (command.length_bytes as f64 / rate * 1e9 * spec.slow_factor) as u64;
        let mut state = self.state.borrow_mut();
        let channel = (0..state.free_ns.len())
            .min_by_key(|index| state.free_ns[*index])
            .expect("there is a channel");
        let start = state.free_ns[channel].max(now);
        let moved = state.path_ns.max(start + latency_ns);
        let end = moved + transfer_ns;
        state.path_ns = end;
        state.free_ns[channel] = end;
        drop(state);
        {
            let mut figures = inner.figures.borrow_mut();
            figures.queue_ns += start - now;
            figures.overhead_ns += latency_ns;
            figures.interface_ns += end - start - latency_ns;
        }
        let answered = Rc::clone(inner);
        inner
            .clock
            .call_after(end - now, move || answered.finish(command));
    }
}
