//! The end of a life: the subject is stopped in order or not at all, the machine goes off and comes on again.

use std::cell::Cell;
use std::rc::Rc;

use plexum_block::device::IoError;
use plexum_exec::{Executor, Seeded};

use super::rules::Rules;
use super::scene::World;
use crate::finding::Finding;
use crate::oracle::Oracle;
use crate::subject::Ended;
use plexum_disks::disk::{CrashKind, SimDisk};
use plexum_disks::fault::Fault;
use plexum_disks::trace::{Actor, Verb};

impl<S: Rules> World<S> {
    /// The machine is off, and comes on again with other disks perhaps.
    pub(super) fn switch_off(&mut self, number: usize, kind: CrashKind, ended: Ended) {
        let scene = Rc::clone(&self.scene);
        scene.note_crash_coverage(kind, ended);
        scene.note_thresholds();
        let lost = S::before_off(self, number, ended);
        self.executor = Executor::new(Seeded::new(self.order.next_u64()));
        *scene.spawner.borrow_mut() = None;
        *scene.subject.borrow_mut() = None;
        scene.clock.clear();
        if scene.disks.iter().any(SimDisk::has_dropped) {
            scene.has_vanished.set(true);
        }
        for disk in &scene.disks {
            disk.crash(kind);
            if !disk.is_present() && self.order.chance(1, 2) {
                disk.put_fault(&Fault::Return); // found again by the restart, with old contents
            }
        }
        S::after_off(&scene);
        if let Some(disk) = lost {
            scene.disks[disk as usize].put_fault(&Fault::Vanish);
            scene.is_untouched.set(false);
            scene.count(S::LOST, 1);
        }
        S::between(&scene, number);
        let seen_kind = if S::WAITS_IN_MEMORY || scene.has_vanished.get() {
            CrashKind::PowerCut
        } else {
            kind
        };
        let mut oracles = scene.oracles.borrow_mut();
        oracles
            .iter_mut()
            .for_each(|oracle| oracle.crash(seen_kind));
        let numbers = [number as u64, u64::from(kind == CrashKind::Kill), 0];
        scene.trace.note(Actor::World, Verb::Crash, numbers);
        scene.counts.borrow_mut().crashes += u64::from(ended == Ended::Cut);
    }

    /// An orderly stop: afterwards everything answered is durable. A log that holds what the members have no space for
    /// says so; then space is made, and the next try has to end it.
    pub(super) fn stop(&mut self) {
        let scene = Rc::clone(&self.scene);
        let begun = |oracle: &mut Oracle| oracle.begin_flush();
        let flushes: Vec<_> = scene.oracles.borrow_mut().iter_mut().map(begun).collect();
        let Some(mut result) = self.try_stop() else {
            return;
        };
        if matches!(result, Err(IoError::NoSpace)) && scene.make_space() {
            let Some(second) = self.try_stop() else {
                return;
            };
            result = second;
        }
        match result {
            Ok(()) => {
                let mut oracles = scene.oracles.borrow_mut();
                for (oracle, flush) in oracles.iter_mut().zip(&flushes) {
                    oracle.end_flush(flush);
                }
            }
            Err(error) if !scene.are_errors_allowed.get() => {
                let request = "stop".to_owned();
                scene.find(Finding::ErrorWithinPromise { request, error });
            }
            Err(_) => {}
        }
        scene.note_thresholds();
        scene.counts.borrow_mut().stops += 1;
    }

    /// Stops once. `None`: it never answered, which was found.
    fn try_stop(&mut self) -> Option<Result<(), IoError>> {
        let subject = self.scene.subject();
        let result = Rc::new(Cell::new(None));
        let cell = Rc::clone(&result);
        self.executor
            .spawn(async move { cell.set(Some(subject.stop().await)) });
        if !self.drive_until(|| result.get().is_some()) {
            self.scene.find(Finding::NoAnswer { requests: 1 });
            return None;
        }
        result.get()
    }
}
