//! The beginning of a life: an array is made or put together, or refused, and what the refusal means.

use std::cell::RefCell;
use std::rc::Rc;

use super::{CrashDue, Stop, World};
use crate::checker;
use crate::finding::Finding;
use crate::oracle::Oracle;
use crate::scenario::Promise;
use crate::subject::{Force, Refusal, Subject};
use plexum_disks::disk::SimDisk;
use plexum_disks::trace::{Actor, Verb};

impl<S: Subject> World<S> {
    /// Creates or assembles; true when the volume runs.
    pub(super) fn start(&mut self, is_created: bool, crash: Option<CrashDue>) -> bool {
        let mut force = Force::No;
        let mut leaves_out_the_stale = false;
        if is_created && self.is_left_to_the_stale() {
            self.is_over = true;
            return false;
        }
        loop {
            let attempt = self.attempt(is_created, crash, force, leaves_out_the_stale);
            let Some(outcome) = attempt else {
                return false;
            };
            let code = u64::from(outcome.is_err());
            self.shared.trace.note(
                Actor::World,
                Verb::Assemble,
                [u64::from(force == Force::Yes), 0, code],
            );
            match outcome {
                Ok(subject) => {
                    self.adopt(subject);
                    return true;
                }
                Err(Refusal::DirtyDegraded(_)) if force == Force::No && self.may_be_refused() => {
                    force = Force::Yes;
                    self.shared.are_errors_allowed.set(true);
                    self.shared.counts.borrow_mut().forced += 1;
                }
                Err(_) if self.shared.make_space() => {}
                Err(_) if self.shared.scenario.promise == Promise::Beyond => {
                    self.is_over = true;
                    self.read_with_stale();
                    return false;
                }
                Err(Refusal::Other(reason))
                    if !leaves_out_the_stale && self.looks_split(&reason) =>
                {
                    leaves_out_the_stale = true;
                }
                Err(Refusal::DirtyDegraded(reason) | Refusal::Other(reason)) => {
                    self.shared.find(Finding::NotStarted(reason));
                    return false;
                }
            }
        }
    }

    /// One attempt; `None` when it crashed on the way, or never answered, which was found.
    fn attempt(
        &mut self,
        is_created: bool,
        crash: Option<CrashDue>,
        force: Force,
        leaves_out_the_stale: bool,
    ) -> Option<Result<S, Refusal>> {
        let result: Rc<RefCell<Option<Result<S, Refusal>>>> = Rc::default();
        let (cell, context, shared) = (
            Rc::clone(&result),
            self.context.clone(),
            Rc::clone(&self.shared),
        );
        self.executor.spawn(async move {
            let spec = &shared.scenario.spec;
            let disks: Vec<SimDisk> = shared.disks.iter().map(SimDisk::reopen).collect();
            let outcome = if is_created {
                let mut present: Vec<SimDisk> =
                    disks.into_iter().filter(SimDisk::is_present).collect();
                if leaves_out_the_stale {
                    present = fresh(present);
                }
                S::assemble(&context, spec, &present, force).await
            } else {
                S::create(&context, spec, &disks)
                    .await
                    .map_err(Refusal::Other)
            };
            *cell.borrow_mut() = Some(outcome);
        });
        let waiting = Rc::clone(&result);
        match self.drive(crash, || waiting.borrow().is_some()) {
            Stop::Done => {}
            Stop::Crashed => return None,
            Stop::Stalled => {
                self.shared
                    .find(Finding::NotStarted("it never answered".to_owned()));
                return None;
            }
        }
        result.take()
    }

    /// Beyond the promise, everybody who knows of the last commit may be away: whoever is started without them cannot
    /// know that he is stale, and gives old data.
    fn is_left_to_the_stale(&self) -> bool {
        let disks = &self.shared.disks;
        let present: Vec<SimDisk> = disks.iter().filter(|d| d.is_present()).cloned().collect();
        S::HAS_METADATA
            && self.shared.scenario.promise == Promise::Beyond
            && checker::highest_count(&present) < checker::highest_count(disks)
    }

    fn adopt(&mut self, subject: S) {
        let shared = &self.shared;
        if !self.size_known {
            *shared.oracle.borrow_mut() =
                Oracle::new(shared.scenario.seed, subject.size_bytes() / 512);
            self.size_known = true;
        }
        let now = subject.status().event_count;
        let before = shared.event_count.replace(now);
        // A member that is not there may have been the only one with the last, unfinished commit.
        if now < before && shared.disks.iter().all(SimDisk::is_present) {
            shared.find(Finding::EventCountBack { before, now });
        }
        let is_whole = subject.status().slots.iter().all(Option::is_some);
        if S::HAS_METADATA && shared.was_whole.replace(false) && !is_whole {
            let left_out = "a member was left out, and nothing had happened to it";
            shared.find(Finding::NotStarted(left_out.to_owned()));
        }
        *shared.subject.borrow_mut() = Some(Rc::new(subject));
    }

    /// Whether this is a refusal that the user answers by naming the members of his array alone: nobody can tell a
    /// member that was lost from one that went on without the others when none of those is there with which it was last
    /// together.
    ///
    /// A table of 0.90 does not tell a spare that is being filled from nobody: there the same is true when all others
    /// who were there at that time have been filled anew since.
    fn looks_split(&self, reason: &str) -> bool {
        reason.contains("split brain")
            && (self.shared.scenario.metadata == 90 || self.is_company_of_the_named_away(reason))
    }

    /// Whether a stale member that the refusal names counts a number as active that nobody has who is there: he is
    /// away, or was added anew under another number.
    fn is_company_of_the_named_away(&self, reason: &str) -> bool {
        let disks = self.shared.disks.iter().filter(|disk| disk.is_present());
        let there: Vec<checker::Inspected> = disks.filter_map(checker::inspect).collect();
        let with_slot = |m: &&checker::Inspected| m.superblock.role().slot().is_some();
        let counts = there.iter().filter(with_slot);
        let highest = counts.map(|member| member.superblock.events.0).max();
        let is_meant = |member: &&checker::Inspected| {
            Some(member.superblock.events.0 + 1) < highest
                && reason.contains(&format!("disk {} (", member.disk))
        };
        let is_there = |number: u32| there.iter().any(|m| m.superblock.dev_number == number);
        there.iter().filter(is_meant).any(|member| {
            let roles = (0u32..).zip(&member.superblock.roles);
            let mut active = roles.filter(|(_, role)| role.slot().is_some());
            active.any(|(number, _)| !is_there(number))
        })
    }
}

/// Those that are as fresh as the freshest one with a slot, and spares.
fn fresh(present: Vec<SimDisk>) -> Vec<SimDisk> {
    let highest = checker::highest_count(&present);
    let is_fresh = |disk: &SimDisk| {
        checker::inspect(disk).is_some_and(|member| member.superblock.events.0 + 1 >= highest)
    };
    present.into_iter().filter(is_fresh).collect()
}
