//! Lives, one after another: each begins with a start, serves clients, and ends as the plan says.

use std::rc::Rc;

use plexum_engine::mutant::Mutant;

use super::rules::Rules;
use super::scene::{Outcome, PATIENCE_NS, Tracing, World};
use super::{client, operator};
use crate::course::{LifeEnd, OWN_FLUSH, START_WRITES, Shortage};
use crate::finding::Finding;
use crate::subject::{Attempt, Ended, Force, Offered};
use plexum_disks::disk::{CrashKind, SimDisk};
use plexum_disks::trace::{Actor, Verb};

/// Time within which a resync comes to a flush, in a life that is to end there.
const FLUSH_PATIENCE_NS: u64 = 100_000_000;

/// Polls and events of a life after which it is taken as endless.
const STEPS_MAX: u64 = 40_000_000;

/// When a life is to crash.
#[derive(Clone, Copy)]
pub(super) struct CrashDue {
    /// Requests begun.
    requests: u64,
    /// How long everything has rested after them; 0: it need not.
    rest_ns: u64,
    /// Some request is in this stage; `START_WRITES`: the start has begun to write to members; `OWN_FLUSH`: the array
    /// flushes for itself.
    stage: Option<&'static str>,
    /// Polls after that.
    polls: u64,
}

/// What driving has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drive {
    /// What was waited for has come.
    Done,
    /// The crash is due, or something was found.
    Crashed,
    /// Nothing will ever happen again.
    Stalled,
}

/// Runs a plan, which need not be the one of its seed (a shrunk one).
#[must_use]
pub fn run_plan<S: Rules>(plan: &S::Plan, tracing: Tracing, mutant: Option<Mutant>) -> Outcome {
    let mut world = World::<S>::new(plan, tracing, mutant);
    let scene = Rc::clone(&world.scene);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
    if let Err(panic) = result {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        scene.find(Finding::Panic(
            text.unwrap_or_else(|| "no message".to_owned()),
        ));
        // After a panic nothing that belongs to the engine is trusted to drop cleanly.
        std::mem::forget(world);
    } else {
        world.end();
    }
    scene.outcome()
}

impl<S: Rules> World<S> {
    fn run(&mut self) {
        let scene = Rc::clone(&self.scene);
        match S::prepare(&scene) {
            Ok(opening) => self.opening = opening,
            Err(reason) => return scene.find(Finding::NotStarted(reason)),
        }
        for (number, end) in scene.course().lives.iter().enumerate() {
            self.spend(number, *end);
            let is_life = !matches!(end, LifeEnd::Foreign { .. });
            if scene.has_findings() || is_life && self.has_ended() {
                return;
            }
        }
    }

    /// One life with its end, and what follows on it until the next one.
    fn spend(&mut self, number: usize, end: LifeEnd) {
        let scene = Rc::clone(&self.scene);
        let begun = scene.counts.borrow().requests;
        let left = scene.course().requests.saturating_sub(begun);
        match end {
            LifeEnd::Crash {
                requests,
                rest_ns,
                stage,
                polls,
                kind,
            } => {
                let due = CrashDue {
                    requests,
                    rest_ns,
                    stage,
                    polls,
                };
                self.live_until(number, left, due, kind);
            }
            LifeEnd::Stop { requests } => {
                self.live(number, requests.min(left), None);
                if self.has_ended() {
                    return;
                }
                if S::may_stop(&scene) {
                    self.stop();
                }
                self.switch_off(number, CrashKind::PowerCut, Ended::Stopped);
            }
            LifeEnd::Foreign { salt } => self.lend(salt),
            LifeEnd::Mend => {
                scene.disks.iter().for_each(SimDisk::end_faults);
                self.live(number, left, None);
                if self.has_ended() || !self.mend() || scene.has_findings() {
                    return;
                }
                self.stop();
                self.switch_off(number, CrashKind::PowerCut, Ended::Stopped);
            }
            LifeEnd::Finale => {
                self.live(number, left, None);
                if !S::may_stop(&scene) && !scene.has_findings() {
                    self.switch_off(number, CrashKind::PowerCut, Ended::Cut);
                    self.live(number + 1, 0, None);
                }
                if !scene.has_findings() {
                    self.finale();
                }
            }
        }
    }

    /// One life up to its crash, or to the stop that its subject makes of that.
    fn live_until(&mut self, number: usize, left: u64, due: CrashDue, kind: CrashKind) {
        let scene = Rc::clone(&self.scene);
        let before = scene.counts.borrow().requests;
        let has_rest = due.rest_ns > 0;
        let quota = if has_rest {
            due.requests.min(left)
        } else {
            left
        };
        let survived = self.live(number, quota, Some(due));
        if self.has_ended() {
            return;
        }
        let ended = if S::stops_instead(self) {
            self.stop();
            Ended::Stopped
        } else {
            scene.counts.borrow_mut().nested_crashes += u64::from(self.was_short);
            self.was_short = !survived && scene.counts.borrow().requests == before;
            Ended::Cut
        };
        self.switch_off(number, kind, ended);
    }

    /// Whether no life can follow: it must at least exist. Creation under crashes is the create command's business.
    fn has_ended(&self) -> bool {
        self.scene.has_findings() || self.opening == Attempt::Create || self.is_over
    }

    /// Somebody else has the array between two lives.
    fn lend(&self, salt: u64) {
        if self.opening != Attempt::Create
            && let Some(done) = S::lend(&self.scene, salt)
        {
            let numbers = [done.len() as u64, salt, 9];
            self.scene.trace.note(Actor::World, Verb::Operate, numbers);
            self.scene.count(done, 1);
        }
    }

    /// One life up to its end. False when it crashed on the way (as it should, where `crash` says so).
    fn live(&mut self, number: usize, quota: u64, crash: Option<CrashDue>) -> bool {
        let scene = Rc::clone(&self.scene);
        scene.life_requests.set(0);
        scene.life_quota.set(quota);
        scene.busy.set(0);
        scene.outstanding.set(0);
        scene.has_vanished.set(false);
        let is_of_flush = crash.is_some_and(|due| due.stage == Some(OWN_FLUSH));
        scene.is_of_flush.set(is_of_flush);
        let resting_until_ns = is_of_flush.then(|| scene.clock.now_ns() + FLUSH_PATIENCE_NS);
        scene.rest_until_ns.set(resting_until_ns.unwrap_or(0));
        scene.was_full.set(false);
        scene.has_written.set(false);
        scene.hits_before.set(scene.hits());
        scene.reserved.borrow_mut().clear();
        *scene.spawner.borrow_mut() = Some(self.executor.spawner());
        S::enter(&scene);
        // It is created undisturbed; from then on any poll may be the last.
        let is_created = self.opening != Attempt::Create;
        let crash_while_starting = crash.filter(|due| {
            let is_of_start = matches!(due.stage, None | Some(START_WRITES));
            is_created && due.requests == 0 && due.rest_ns == 0 && is_of_start
        });
        scene.writes_before.set(scene.member_writes());
        if !self.start(crash_while_starting) {
            return false;
        }
        self.opening = Attempt::Open(Force::No, Offered::All);
        let subject = scene.subject();
        let spawner = self.executor.spawner();
        self.executor.spawn(subject.background(spawner));
        if is_created {
            self.spawn_busy(client::verify(Rc::clone(&scene), number as u64));
        }
        for client in 0..scene.course().clients as u32 {
            self.spawn_busy(client::work(Rc::clone(&scene), number as u64, client));
        }
        let has_rest = crash.is_some_and(|due| due.rest_ns > 0);
        match self.drive(crash, || scene.busy.get() == 0 && !has_rest) {
            Drive::Done => true,
            Drive::Crashed => false,
            // Everything was answered, and an engine without a clock of its own lets no time pass.
            Drive::Stalled if has_rest && scene.outstanding.get() == 0 => false,
            Drive::Stalled => {
                let requests = scene.outstanding.get();
                scene.find(Finding::NoAnswer { requests });
                false
            }
        }
    }

    fn spawn_busy(&self, task: impl Future<Output = ()> + 'static) {
        let scene = Rc::clone(&self.scene);
        scene.busy.set(scene.busy.get() + 1);
        self.executor.spawn(async move {
            task.await;
            scene.busy.set(scene.busy.get() - 1);
        });
    }

    /// Polls and lets time pass until `is_done`, a crash is due, or nothing will ever happen again.
    pub(super) fn drive(&mut self, crash: Option<CrashDue>, is_done: impl Fn() -> bool) -> Drive {
        let scene = Rc::clone(&self.scene);
        let deadline_ns = scene.clock.now_ns() + PATIENCE_NS;
        let mut polls_left: Option<u64> = None;
        let mut quiet_since_ns: Option<u64> = None;
        for _ in 0..STEPS_MAX {
            if is_done() {
                return Drive::Done;
            }
            if let Some(due) = crash
                && self.is_due(due, polls_left.is_some(), &mut quiet_since_ns)
                && S::may_crash(&scene)
            {
                if scene.is_of_flush.get() {
                    scene.rest_until_ns.set(0); // clients come in with it
                }
                let left = polls_left.get_or_insert(due.polls);
                if *left == 0 {
                    return Drive::Crashed;
                }
                *left -= 1;
            }
            if scene.has_findings() {
                return Drive::Crashed;
            }
            operator::strike_pending(&scene);
            if self.executor.poll_one() {
                scene.counts.borrow_mut().polls += 1;
            } else if !scene.clock.advance() || scene.clock.now_ns() > deadline_ns {
                // At rest hardly anything is polled: a crash that is due comes nevertheless.
                let is_at_rest = polls_left.is_some() && scene.busy.get() == 0;
                return if is_at_rest {
                    Drive::Crashed
                } else {
                    Drive::Stalled
                };
            }
        }
        Drive::Stalled
    }

    fn is_due(&self, due: CrashDue, has_begun: bool, quiet_since_ns: &mut Option<u64>) -> bool {
        let scene = &self.scene;
        let (begun, quota) = (scene.life_requests.get(), scene.life_quota.get());
        let awaited = match scene.course().shortage {
            Shortage::Rest => due.requests,
            Shortage::Last => due.requests.min(quota),
        };
        if due.rest_ns == 0 {
            return begun >= awaited && (has_begun || scene.is_at(due.stage) && scene.is_aim_hit());
        }
        if begun < quota || scene.busy.get() > 0 {
            return false;
        }
        let now = scene.clock.now_ns();
        now - *quiet_since_ns.get_or_insert(now) >= due.rest_ns
    }

    /// Lets clients and operations end what they have begun, and begin nothing more in this life. Whether they did.
    pub(crate) fn quiesce(&mut self) -> bool {
        let scene = Rc::clone(&self.scene);
        scene.life_quota.set(0);
        scene.rest_until_ns.set(0);
        self.drive_until(|| scene.busy.get() == 0)
    }

    /// Drives with no crash until `is_done`. Whether that came.
    pub(crate) fn drive_until(&mut self, is_done: impl Fn() -> bool) -> bool {
        self.drive(None, is_done) == Drive::Done
    }
}
