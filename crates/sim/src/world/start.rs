//! The beginning of a life: a subject is made or put together, or refused, and what the refusal means.

use std::cell::RefCell;
use std::rc::Rc;

use super::life::{CrashDue, Drive};
use super::rules::Rules;
use super::scene::World;
use crate::finding::Finding;
use crate::oracle::Oracle;
use crate::subject::{AfterRefusal, Attempt, Force, Refusal};
use plexum_disks::disk::SimDisk;
use plexum_disks::trace::{Actor, Verb};

impl<S: Rules> World<S> {
    /// Creates or assembles; true when it runs.
    pub(super) fn start(&mut self, crash: Option<CrashDue>) -> bool {
        let scene = Rc::clone(&self.scene);
        let mut attempt = self.opening;
        if attempt != Attempt::Create && S::is_left_to_the_stale(&scene) {
            self.is_over = true;
            return false;
        }
        loop {
            let Some(outcome) = self.attempt(attempt, crash) else {
                return false;
            };
            let is_forced = matches!(attempt, Attempt::Open(Force::Yes, _));
            let numbers = [u64::from(is_forced), 0, u64::from(outcome.is_err())];
            scene.trace.note(Actor::World, Verb::Assemble, numbers);
            let refusal = match outcome {
                Ok(subject) => {
                    self.adopt(subject);
                    return true;
                }
                Err(refusal) => refusal,
            };
            match (attempt, &refusal) {
                (Attempt::Open(Force::No, offered), Refusal::DirtyDegraded(_))
                    if S::may_be_refused(&scene) =>
                {
                    attempt = Attempt::Open(Force::Yes, offered);
                    scene.are_errors_allowed.set(true);
                    scene.counts.borrow_mut().forced += 1;
                    continue;
                }
                _ if scene.make_space() => continue,
                _ => {}
            }
            match S::after_refusal(self, attempt, &refusal) {
                AfterRefusal::Again(other) => attempt = other,
                AfterRefusal::Over => {
                    self.is_over = true;
                    return false;
                }
                AfterRefusal::Wrong => {
                    scene.find(Finding::NotStarted(refusal.to_string()));
                    return false;
                }
            }
        }
    }

    /// One attempt; `None` when it crashed on the way, or never answered, which was found.
    fn attempt(&mut self, attempt: Attempt, crash: Option<CrashDue>) -> Option<Result<S, Refusal>> {
        let result: Rc<RefCell<Option<Result<S, Refusal>>>> = Rc::default();
        let (cell, context) = (Rc::clone(&result), self.context.clone());
        let scene = Rc::clone(&self.scene);
        self.executor.spawn(async move {
            let mut disks: Vec<SimDisk> = scene.disks.iter().map(SimDisk::reopen).collect();
            if attempt != Attempt::Create {
                disks.retain(SimDisk::is_present);
            }
            let outcome = S::begin(&context, &scene, attempt, disks).await;
            *cell.borrow_mut() = Some(outcome);
        });
        let waiting = Rc::clone(&result);
        match self.drive(crash, || waiting.borrow().is_some()) {
            Drive::Done => {}
            Drive::Crashed => return None,
            Drive::Stalled => {
                let text = "it never answered".to_owned();
                self.scene.find(Finding::NotStarted(text));
                return None;
            }
        }
        result.take()
    }

    fn adopt(&mut self, subject: S) {
        let scene = &self.scene;
        let seed = scene.course().seed;
        if scene.volume_count() == 0 {
            let sizes = S::sizes_bytes(&subject, &scene.plan);
            *scene.oracles.borrow_mut() = (0_u64..)
                .zip(sizes)
                .map(|(volume, bytes)| Oracle::new(seed ^ volume << 56, bytes / 512))
                .collect();
        }
        S::welcome(scene, &subject);
        *scene.subject.borrow_mut() = Some(Rc::new(subject));
    }
}
