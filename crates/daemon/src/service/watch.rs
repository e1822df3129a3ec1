//! What the daemon does by itself: it looks who is there, starts what waits, and takes back who returns.
//!
//! Invariants:
//! - members are looked at on other threads (`look`), found by what is on them (`find`), and opened only when they have
//!   answered;
//! - a volume starts without members only as far as its policy says, and never with those alone that missed writes
//!   while the others of them are away, unless the policy is to start always.

use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::select;
use futures_util::stream::{self, StreamExt};
use plexum_block::clock::Clock;
use plexum_engine::state::FailCause;
use plexum_md::assemble::StaleUse;
use plexum_runtime::mailbox::Mailbox;

use super::find::{Present, View, find, find_returned, find_returned_of_pool};
use super::look::Reach;
use super::names::key_of_status;
use super::waiting::Entry;
use super::{DegradedStart, Insist, LOOK_EVERY_S, Service};
use crate::control::event::cause_words;
use crate::control::open_request::OpenRequest;
use crate::control::request::Action;
use crate::dataset::PoolServed;
use crate::expected::{Expected, Wanted};
use crate::host::{Host, Hosted};
use crate::memory::{Kept, Key};
use crate::problem::{Code, Problem};
use crate::volume::ops::act;
use crate::volume::status::{MemberState, VolumeStatus};

/// Volumes that are opened at once: each takes some buffers for each of its members.
const STARTS_MAX: usize = 16;

/// A volume that is to be tried, and how far it may go.
struct Trial {
    open: OpenRequest,
    /// Rows in doubt may answer errors.
    is_forced: bool,
}

impl Service {
    /// Tries every volume that should be served and is not.
    pub(super) async fn try_all(self: Rc<Self>) {
        let known: Vec<Key> = self.entries.borrow().keys().cloned().collect();
        let mut awaited = known;
        awaited.retain(|key| self.is_awaited(key));
        if awaited.is_empty() {
            return;
        }
        let view = self.look_for(&awaited).await;
        let (apart, others) = self.apart(awaited);
        let _turn = self.turn.lock().await;
        let attempt = async |key: Key| {
            if !self.is_ending.get() {
                // Why not is in the entry.
                let _ = self.try_in_turn(&key, Insist::WhenItHasWaited, &view).await;
            }
        };
        // At once: a volume whose disk is slow keeps no other one waiting.
        let tried = stream::iter(apart).for_each_concurrent(STARTS_MAX, attempt);
        tried.await;
        for key in others {
            attempt(key).await;
        }
    }

    /// Those that have no member with another one in common, and are not of pools; then the others: drives of Vinum are
    /// opened once for all that is on them, and so are pools.
    fn apart(&self, awaited: Vec<Key>) -> (Vec<Key>, Vec<Key>) {
        let entries = self.entries.borrow();
        let members = |key: &Key| {
            let entry = entries.get(key);
            entry.map_or_else(Vec::new, |entry| entry.expected.members())
        };
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        for member in awaited.iter().flat_map(members) {
            *uses.entry(member).or_default() += 1;
        }
        awaited.into_iter().partition(|key| {
            let entry = entries.get(key);
            let is_of_pool = entry.is_some_and(|entry| !entry.expected.open.datasets.is_empty());
            !is_of_pool && members(key).iter().all(|member| uses[member] == 1)
        })
    }

    /// Looks where members of these volumes are: at their paths, and elsewhere where one of them is not there.
    pub(super) async fn look_for(&self, keys: &[Key]) -> View {
        let expected: Vec<Expected> = {
            let entries = self.entries.borrow();
            let known = keys.iter().filter_map(|key| entries.get(key));
            known.map(|entry| entry.expected.clone()).collect()
        };
        let mut words: Vec<String> = expected.iter().flat_map(Expected::members).collect();
        words.sort();
        words.dedup();
        let handle = self.host.handle();
        let view = self.looker.look(handle, &words, Reach::Paths).await;
        let is_whole = |one: &Expected| find(one, &view).missing.is_empty();
        match expected.iter().all(is_whole) {
            true => view,
            false => self.looker.look(handle, &words, Reach::Everywhere).await,
        }
    }

    /// Whether a volume should be served and is not.
    pub(super) fn is_awaited(&self, key: &Key) -> bool {
        let is_wanted = {
            let entries = self.entries.borrow();
            let entry = entries.get(key);
            entry.is_some_and(|entry| entry.expected.wanted == Wanted::Served)
        };
        is_wanted && !self.is_served(key)
    }

    /// Looks again and again at what waits, who has returned, and who is in the slots: when a device comes or goes, and
    /// every few seconds, since nothing tells of files.
    pub(super) async fn look_again(self: Rc<Self>, mut told: Mailbox<()>) {
        loop {
            let passed = self.tick.after(LOOK_EVERY_S);
            select(pin!(told.receive()), pin!(passed)).await;
            Rc::clone(&self).try_all().await;
            for pool in self.pools.all() {
                self.look_after_pool(&pool).await;
            }
            for hosted in self.host.list() {
                let Some(status) = hosted.status() else {
                    continue; // it is being closed
                };
                self.learn(&status);
                let returned = self.returned(&status).await;
                if returned.is_empty() {
                    self.take_same_bay(&hosted, &status).await;
                }
                for member in returned {
                    take_back(&self.host, &hosted, member).await;
                }
            }
        }
    }

    /// Where members of a volume are that were not there, or were lost with their device, and can be taken back now.
    /// Each counts as a return, and one that returns too often is left alone until somebody asks for it. A member that
    /// failed in another way does not come back by itself.
    async fn returned(&self, status: &VolumeStatus) -> Vec<String> {
        let key = key_of_status(status);
        let Some(expected) = self.expected(&key).filter(|_| !status.is_read_only) else {
            return Vec::new();
        };
        let lost = lost_slots(status, &expected);
        if lost.is_empty() {
            return Vec::new();
        }
        let in_use: Vec<String> = status
            .members
            .iter()
            .filter(|one| is_in_use(one.state))
            .filter_map(|one| one.path.clone())
            .collect();
        let mut words = in_use.clone();
        words.extend(lost.iter().map(|slot| expected.slots[slot].member.clone()));
        let returned = |view: &View| -> Vec<(u32, String)> {
            match expected.format == "zfs" {
                true => {
                    let here = find_returned_of_pool(&expected, view, &in_use);
                    lost.iter().copied().zip(here).collect()
                }
                false => {
                    let member = |slot: &u32| find_returned(&expected, view, *slot, &in_use);
                    let here = lost.iter().map(|slot| Some((*slot, member(slot)?)));
                    here.flatten().collect()
                }
            }
        };
        let handle = self.host.handle();
        let mut here = returned(&self.looker.look(handle, &words, Reach::Paths).await);
        if here.len() < lost.len() {
            here = returned(&self.looker.look(handle, &words, Reach::Everywhere).await);
        }
        let now = handle.clock().now();
        let mut entries = self.entries.borrow_mut();
        let Some(entry) = entries.get_mut(&key) else {
            return Vec::new(); // it was forgotten meanwhile
        };
        here.retain(|(slot, _)| entry.returns.may(*slot, now));
        here.into_iter().map(|(_, member)| member).collect()
    }

    /// Takes over who is in the slots of a pool, and takes its members back that are there again.
    async fn look_after_pool(&self, pool: &PoolServed) {
        let volumes = pool.all();
        for status in &volumes {
            self.learn(status);
        }
        let Some(status) = volumes.first() else {
            return; // it is being closed
        };
        for member in self.returned(status).await {
            // Nobody closes the pool meanwhile.
            let _turn = self.turn.lock().await;
            if pool.volumes().is_empty() {
                return;
            }
            let taken_back = pool.take_back(&member).await;
            for status in &volumes {
                let (event, text) = match &taken_back {
                    Ok(()) => (
                        "re-added",
                        format!("{member} is back, and is given what it missed"),
                    ),
                    Err(problem) => (
                        "refused",
                        format!("{member} is not taken back: {}", problem.message),
                    ),
                };
                self.tell(&status.volume, event, text);
            }
        }
    }

    fn expected(&self, key: &Key) -> Option<Expected> {
        let entries = self.entries.borrow();
        entries.get(key).map(|entry| entry.expected.clone())
    }

    /// Takes over who is in the slots of a volume that is served.
    pub(super) fn learn(&self, status: &VolumeStatus) {
        let key = key_of_status(status);
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.get_mut(&key)
            && entry.expected.learn(status)
            && let Some(keeper) = &self.keeper
        {
            keeper.keep(Kept::Expected(key, entry.expected.clone()));
        }
    }

    /// Tries to serve one volume with those who were seen.
    ///
    /// # Errors
    /// Why not, which is in its entry as well.
    pub(super) async fn try_one(
        &self,
        key: &Key,
        insist: Insist,
        view: &View,
    ) -> Result<(), Problem> {
        let _turn = self.turn.lock().await;
        self.try_in_turn(key, insist, view).await
    }

    /// The same by whoever has the turn.
    async fn try_in_turn(&self, key: &Key, insist: Insist, view: &View) -> Result<(), Problem> {
        if !self.is_awaited(key) {
            return Ok(()); // it was stopped, forgotten or served meanwhile
        }
        let Some(trial) = self.trial_of(key, insist, view) else {
            return Ok(());
        };
        let result = match trial {
            Ok(trial) => self.open_trial(trial).await,
            Err(problem) => Err(problem),
        };
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.get_mut(key) {
            entry.problem = result.as_ref().err().cloned();
            if result.is_ok() {
                entry.waits_since = None;
            }
        }
        result
    }

    async fn open_trial(&self, trial: Trial) -> Result<(), Problem> {
        if !trial.open.datasets.is_empty() {
            return self.open_datasets(&trial.open).await.map(drop);
        }
        let mut request = trial.open.assemble()?;
        let result = self.open_now(&request).await.map(drop);
        match result {
            Err(problem) if trial.is_forced && problem.code == Code::DirtyDegraded => {
                request.options.force = true;
                request.options.stale = StaleUse::Never;
                self.open_now(&request).await.map(drop)
            }
            result => result,
        }
    }

    /// What is asked of a volume now: with the members that are there, and without those that are not when they have
    /// been waited for. None when it is not known.
    fn trial_of(&self, key: &Key, insist: Insist, view: &View) -> Option<Result<Trial, Problem>> {
        let now = self.host.handle().clock().now();
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(key)?;
        let present = find(&entry.expected, view);
        entry.missing = present.missing.clone();
        if present.members.is_empty() {
            return Some(Err(none_there(&present)));
        }
        let since = entry.note_arrivals(&present, now);
        let has_waited = insist == Insist::WhenItHasWaited
            && Duration::from_nanos(now.ns_since(since)) >= self.start.wait;
        let may_lack = has_waited && self.start.degraded != DegradedStart::Never;
        let is_forced = has_waited && self.start.degraded == DegradedStart::Always;
        if may_lack
            && !is_forced
            && let Some(problem) = newer_elsewhere(entry, &present)
        {
            return Some(Err(problem));
        }
        let open = OpenRequest {
            members: present.members,
            run_degraded: may_lack,
            ..entry.expected.open.clone()
        };
        Some(Ok(Trial { open, is_forced }))
    }
}

/// Nobody of a volume is there.
fn none_there(present: &Present) -> Problem {
    if let Some(copies) = present.copies.first() {
        let text = format!("{} say they are the same member", copies.join(" and "));
        return Problem::new(Code::DuplicateMember, text)
            .why("one of them is a copy of the other, and nothing tells which")
            .hint("take one of them away, or serve the volume by naming its members");
    }
    match present.silent.is_empty() {
        true => Problem::new(Code::TooFewMembers, "none of its members is there"),
        false => {
            let text = format!("{} does not answer", present.silent.join(" "));
            Problem::new(Code::DeviceGone, text)
        }
    }
}

/// Evidence of a split: those who are there missed writes, and one that has them is away.
fn newer_elsewhere(entry: &Entry, present: &Present) -> Option<Problem> {
    let slots = &entry.expected.slots;
    let is_here = |number: &u32| match present.slots.is_empty() {
        true => present.members.contains(&slots[number].member),
        false => present.slots.contains(number),
    };
    let here_and_behind = slots
        .iter()
        .any(|(number, slot)| slot.is_behind && is_here(number));
    let mut away = slots
        .iter()
        .filter(|(number, slot)| !slot.is_behind && !is_here(number));
    let (number, slot) = away.next().filter(|_| here_and_behind)?;
    let text = format!(
        "{} (slot {number}) has newer data, and is not there",
        slot.member
    );
    Some(
        Problem::new(Code::StaleMember, text)
            .why("those who are there missed writes: a start with them would serve old data")
            .hint("bring it back; or, if it is lost, serve what is left:   plexum serve MEMBER... --run-degraded"),
    )
}

fn is_in_use(state: MemberState) -> bool {
    matches!(
        state,
        MemberState::Active | MemberState::Rebuilding | MemberState::Spare
    )
}

/// Slots that are empty or whose member was lost with its device, and whose member is known.
fn lost_slots(status: &VolumeStatus, expected: &Expected) -> Vec<u32> {
    let lost = status.members.iter().filter(|slot| {
        let is_lost = matches!(slot.state, MemberState::Missing | MemberState::Faulty);
        let why = slot.failed_because.as_deref();
        is_lost && why.is_none_or(|why| why == cause_words(FailCause::Gone))
    });
    let numbers = lost.filter_map(|member| member.slot);
    numbers
        .filter(|slot| expected.slots.contains_key(slot))
        .collect()
}

/// Takes a member back that is there again.
async fn take_back(host: &Host, hosted: &Hosted, member: String) {
    let Ok((served, under_way)) = hosted.for_change().await else {
        return; // it is being closed
    };
    // Why not is told by the volume's status: the member is still missing there.
    let _ = act(&served, host.handle(), Action::ReAdd { member }).await;
    drop((served, under_way));
}
