//! What an array of slots promises, asked by the world: how it begins, who is refused rightly, what an operator may do,
//! what its members say after every crash.

use std::rc::Rc;

use plexum_block::device::IoError;

use super::checker;
use super::drill::Drill;
use super::scenario::{Promise, Scenario};
use super::slots::{Setting, SlotArray};
use super::{compare, foreign, silent, stale};
use crate::course::{LifeEnd, OWN_FLUSH};
use crate::finding::Finding;
use crate::subject::{AfterRefusal, Attempt, Context, Ended, Offered, Purpose, Refusal};
use crate::world::{Rules, Scene, World};
use plexum_disks::disk::SimDisk;
use plexum_disks::fault::Fault;

impl<S: SlotArray> Rules for S {
    const LOST: &'static str = "lost-at-crash";

    fn prepare(scene: &Scene<S>) -> Result<Attempt, String> {
        let is_beyond = scene.plan.promise == Promise::Beyond;
        scene.are_errors_allowed.set(is_beyond);
        Ok(Attempt::Create)
    }

    async fn begin(
        context: &Context,
        scene: &Scene<S>,
        attempt: Attempt,
        disks: Vec<SimDisk>,
    ) -> Result<S, Refusal> {
        let plan = &scene.plan;
        let setting = Setting::of(context, plan);
        match attempt {
            Attempt::Create => {
                let made = S::create(&setting, &plan.spec, &disks).await;
                made.map_err(Refusal::Other)
            }
            Attempt::Open(force, Offered::All) => {
                S::assemble(&setting, &plan.spec, &disks, force).await
            }
            Attempt::Open(force, Offered::Fresh) => {
                S::assemble(&setting, &plan.spec, &fresh(disks), force).await
            }
        }
    }

    fn sizes_bytes(subject: &S, _plan: &Scenario) -> Vec<u64> {
        vec![subject.size_bytes()]
    }

    /// Beyond the promise, everybody who knows of the last commit may be away: whoever is started without them cannot
    /// know that he is stale, and gives old data.
    fn is_left_to_the_stale(scene: &Scene<S>) -> bool {
        let disks = &scene.disks;
        let present: Vec<SimDisk> = disks.iter().filter(|d| d.is_present()).cloned().collect();
        S::HAS_METADATA
            && scene.plan.promise == Promise::Beyond
            && checker::highest_count(&present) < checker::highest_count(disks)
    }

    fn welcome(scene: &Scene<S>, subject: &S) {
        let now = subject.status().event_count;
        let before = scene.memory.event_count.replace(now);
        // A member that is not there may have been the only one with the last, unfinished commit.
        if now < before && scene.disks.iter().all(SimDisk::is_present) {
            scene.find(Finding::EventCountBack { before, now });
        }
        let is_whole = subject.status().slots.iter().all(Option::is_some);
        if S::HAS_METADATA && scene.memory.was_whole.replace(false) && !is_whole {
            let left_out = "a member was left out, and nothing had happened to it";
            scene.find(Finding::NotStarted(left_out.to_owned()));
        }
    }

    fn may_be_refused(scene: &Scene<S>) -> bool {
        scene.plan.spec.level.has_parity() && scene.are_errors_allowed.get()
    }

    fn after_refusal(world: &mut World<S>, attempt: Attempt, refusal: &Refusal) -> AfterRefusal {
        if world.scene.plan.promise == Promise::Beyond {
            stale::read_with_stale(world);
            return AfterRefusal::Over;
        }
        match (attempt, refusal) {
            (Attempt::Open(force, Offered::All), Refusal::Other(reason))
                if looks_split(&world.scene, reason) =>
            {
                AfterRefusal::Again(Attempt::Open(force, Offered::Fresh))
            }
            _ => AfterRefusal::Wrong,
        }
    }

    fn may_answer(scene: &Scene<S>, error: IoError) -> bool {
        scene.may_answer(error)
    }

    fn review(scene: &Scene<S>) {
        scene.review_struck();
    }

    fn slots(scene: &Scene<S>) -> Vec<Option<u32>> {
        scene.subject().status().slots
    }

    fn placed(scene: &Scene<S>, disk: u32, fault: &Fault) -> Fault {
        let start = scene.subject().data_offset_bytes(disk);
        let moved = |range: &std::ops::Range<u64>| range.start + start..range.end + start;
        match fault {
            Fault::ReadError(range) => Fault::ReadError(moved(range)),
            Fault::WriteError(range) => Fault::WriteError(moved(range)),
            Fault::TornWrite(range) => Fault::TornWrite(moved(range)),
            Fault::NoSpace(range) => Fault::NoSpace(moved(range)),
            other => other.clone(),
        }
    }

    fn admits(scene: &Scene<S>, disk: u32, fault: &Fault) -> bool {
        scene.admits(disk, fault)
    }

    fn may_lose(scene: &Scene<S>, disk: u32) -> bool {
        scene.admits(disk, &Fault::Vanish)
    }

    fn spare_for(scene: &Scene<S>, purpose: Purpose) -> Option<u32> {
        let status = scene.subject().status();
        let is_lacking = status.slots.contains(&None);
        let is_wanted = match purpose {
            // One disk more than there are slots may stand by as a spare.
            Purpose::Add | Purpose::Give(_) => status.live.len() <= scene.plan.spec.member_count,
            Purpose::Replace => !is_lacking,
            Purpose::Mend => is_lacking && !status.is_syncing,
        };
        if !is_wanted {
            return None;
        }
        let is_free = |disk: &SimDisk| !status.live.contains(&disk.number());
        match purpose {
            Purpose::Give(wanted) => {
                scene.pick_idle(|disk| disk.number() == wanted && is_free(disk))
            }
            // One with bad blocks in the place of one without would be one loss more.
            Purpose::Replace => scene
                .pick_idle(is_free)
                .filter(|disk| !scene.disks[*disk as usize].has_write_errors()),
            Purpose::Add | Purpose::Mend => scene.pick_idle(is_free),
        }
    }

    fn is_open_to_wishes(scene: &Scene<S>) -> bool {
        !scene.memory.is_unplugged.get()
    }

    /// One disk more than the organisation tolerates, all at once, when everything was whole before.
    fn unplug(scene: &Scene<S>, slot: usize) -> bool {
        let status = scene.subject().status();
        let tolerates = scene.plan.spec.tolerates();
        let is_whole =
            scene.lost_slots() == 0 && !status.is_syncing && status.bad_ranges.is_empty();
        let is_busy = !scene.reserved.borrow().is_empty() || !scene.struck.borrow().is_empty();
        if tolerates == 0 || !is_whole || scene.has_read_errors() || is_busy {
            return false;
        }
        scene.memory.is_unplugged.set(true);
        scene.has_vanished.set(true);
        let members = scene.plan.spec.member_count;
        for step in 0..=tolerates {
            let disk = status.slots[(slot + step) % members].expect("every slot is held");
            scene.disks[disk as usize].put_fault(&Fault::Vanish);
        }
        true
    }

    fn may_crash(scene: &Scene<S>) -> bool {
        scene.may_crash()
    }

    fn may_stop(scene: &Scene<S>) -> bool {
        !scene.memory.is_unplugged.get()
    }

    fn before_off(world: &mut World<S>, number: usize, _ended: Ended) -> Option<u32> {
        let scene = Rc::clone(&world.scene);
        let is_untouched = scene.disks.iter().all(SimDisk::is_untouched);
        if let Some(subject) = scene.subject.borrow().as_ref() {
            let status = subject.status();
            let is_whole = status.slots.iter().all(Option::is_some) && !status.is_uncommitted;
            scene.memory.was_whole.set(is_whole && is_untouched);
        }
        scene.memory.committed.replace(committed_live(&scene));
        if scene.memory.is_unplugged.get() {
            // The cables are put back in before the machine starts again.
            let away = scene.disks.iter().filter(|disk| !disk.is_present());
            away.for_each(|disk| disk.put_fault(&Fault::Return));
        } else if scene.subject.borrow().is_some() && scene.has_hole() {
            scene.are_errors_allowed.set(true);
        }
        let lost = lost_with_the_crash(world, number);
        if lost.is_some() {
            scene.memory.was_whole.set(false);
        }
        lost
    }

    fn after_off(scene: &Scene<S>) {
        if matches!(scene.plan.drill, Some(Drill::Meet | Drill::Aim)) {
            scene.disks.iter().for_each(SimDisk::end_faults); // the next life is about another one
        }
    }

    fn between(scene: &Scene<S>, _number: usize) {
        scene.memory.is_unplugged.set(false);
        check_members(scene);
    }

    /// The kernel has the array.
    fn lend(scene: &Scene<S>, salt: u64) -> Option<&'static str> {
        let is_promised = scene.plan.promise == Promise::Within && !scene.are_errors_allowed.get();
        if !S::HAS_METADATA || !is_promised {
            return None;
        }
        scene.memory.was_whole.set(false);
        Some(foreign::visit(scene, salt))
    }

    fn has_finale(scene: &Scene<S>) -> bool {
        scene.plan.promise != Promise::Beyond
    }

    async fn try_last(scene: &Rc<Scene<S>>) {
        if scene.plan.promise == Promise::Silent {
            silent::experiment(scene).await;
        }
    }

    fn compare(scene: &Scene<S>) {
        if scene.plan.promise != Promise::Silent {
            compare::compare(scene);
        }
    }
}

/// The disks in use, when the last commit of that is durable. Nobody when nothing was committed or written in this
/// life: a clean array that was started without a member and only read has nothing to tell, and the member has missed
/// nothing.
fn committed_live<S: SlotArray>(scene: &Scene<S>) -> Option<Vec<u32>> {
    let subject = scene.subject.borrow();
    let status = subject.as_ref()?.status();
    let is_unplugged = scene.memory.is_unplugged.get();
    let is_settled = !status.is_uncommitted && !status.is_frozen && !is_unplugged;
    let has_told = status.event_count > scene.memory.event_count.get() || scene.has_written.get();
    (is_settled && has_told).then_some(status.live)
}

/// What the log is for, and copies: a member that does not survive the crash. Only where the promise covers it.
fn lost_with_the_crash<S: SlotArray>(world: &mut World<S>, number: usize) -> Option<u32> {
    let scene = Rc::clone(&world.scene);
    let plan = &scene.plan;
    let is_running = scene.subject.borrow().is_some() && !scene.memory.is_unplugged.get();
    if is_running && plan.drill == Some(Drill::OneByOne) {
        return next_to_the_lost(&scene.subject().status().slots);
    }
    let is_own_flush = matches!(
        plan.course.lives.get(number),
        Some(LifeEnd::Crash {
            stage: Some(OWN_FLUSH),
            ..
        })
    );
    let is_losing_copies = is_own_flush && plan.is_losing;
    let has_spare_member = plan.spec.log_bytes.is_some() || is_losing_copies;
    if !is_running || !has_spare_member {
        return None;
    }
    let members = plan.spec.member_count as u64;
    let of = if plan.is_losing { 1 } else { 3 };
    let slot = world.order.below(of * members) as usize;
    let slots = scene.subject().status().slots;
    let disk = slots.get(slot).copied().flatten()?;
    scene.review_struck();
    // The kernel refuses what is dirty and lacks a member: that drill would be over.
    let is_within =
        plan.drill != Some(Drill::Lent) && scene.admits(disk, &Fault::Vanish) && !scene.has_hole();
    is_within.then_some(disk)
}

/// The disk in the first slot that is held and follows one that is not.
fn next_to_the_lost(slots: &[Option<u32>]) -> Option<u32> {
    let follows = |slot: &usize| slots[(slot + slots.len() - 1) % slots.len()].is_none();
    (0..slots.len())
        .filter(follows)
        .find_map(|slot| slots[slot])
}

/// What the members say after a crash, whoever starts the array next.
fn check_members<S: SlotArray>(scene: &Scene<S>) {
    let spec = &scene.plan.spec;
    if !S::HAS_METADATA || spec.tolerates() == 0 || scene.has_findings() {
        return;
    }
    let now = checker::highest_count(&scene.disks);
    let before = scene.memory.highest_count.replace(now);
    if now < before {
        scene.find(Finding::EventCountBack { before, now });
    }
    if scene.are_errors_allowed.get() {
        return;
    }
    let committed = scene.memory.committed.take();
    let wrong_count = committed.and_then(|live| checker::check_counts(&scene.disks, &live));
    let wrong_bits = checker::check_bits(&scene.disks, spec);
    let all = wrong_count.into_iter().chain(wrong_bits);
    all.for_each(|finding| scene.find(finding));
}

/// Whether this is a refusal that the user answers by naming the members of his array alone: nobody can tell a member
/// that was lost from one that went on without the others when none of those is there with which it was last together.
///
/// A table of 0.90 does not tell a spare that is being filled from nobody: there the same is true when all others who
/// were there at that time have been filled anew since.
fn looks_split<S: SlotArray>(scene: &Scene<S>, reason: &str) -> bool {
    reason.contains("split brain")
        && (scene.plan.metadata == 90 || is_company_of_the_named_away(&scene.disks, reason))
}

/// Whether a stale member that the refusal names counts a number as active that nobody has who is there: he is away, or
/// was added anew under another number.
fn is_company_of_the_named_away(disks: &[SimDisk], reason: &str) -> bool {
    let disks = disks.iter().filter(|disk| disk.is_present());
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

/// Those that are as fresh as the freshest one with a slot, and spares.
fn fresh(present: Vec<SimDisk>) -> Vec<SimDisk> {
    let highest = checker::highest_count(&present);
    let is_fresh = |disk: &SimDisk| {
        checker::inspect(disk).is_some_and(|member| member.superblock.events.0 + 1 >= highest)
    };
    present.into_iter().filter(is_fresh).collect()
}
