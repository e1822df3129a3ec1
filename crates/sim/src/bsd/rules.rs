//! What sets of FreeBSD promise, asked by the world: how they are made and opened, what may be lost, what an operator
//! may type while they run and between lives.
//!
//! Invariant: nobody is started without a disk that knows of the last change: none of these formats could know.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::array::Array;
use super::plan::{Format, Pause, Plan};
use super::{compare, labels};
use crate::finding::Finding;
use crate::subject::{Attempt, Context, Ended, Force, Offered, Purpose, Refusal, Subject};
use crate::world::{Rules, Scene, World};
use plexum_block::clock::Clock;
use plexum_disks::disk::SimDisk;
use plexum_disks::fault::Fault;

impl Rules for Array {
    const LOST: &'static str = "hidden";

    fn prepare(scene: &Scene<Array>) -> Result<Attempt, String> {
        labels::make(&scene.plan, &scene.disks)?;
        Ok(Attempt::Open(Force::No, Offered::All))
    }

    async fn begin(
        context: &Context,
        scene: &Scene<Array>,
        attempt: Attempt,
        disks: Vec<SimDisk>,
    ) -> Result<Array, Refusal> {
        let force = match attempt {
            Attempt::Open(force, _) => force,
            Attempt::Create => Force::No,
        };
        Array::open(context, &scene.plan, &disks, force).await
    }

    fn sizes_bytes(_subject: &Array, plan: &Plan) -> Vec<u64> {
        vec![plan.volume_bytes; plan.volume_count()]
    }

    fn enter(scene: &Scene<Array>) {
        scene.struck.borrow_mut().clear();
    }

    fn welcome(scene: &Scene<Array>, subject: &Array) {
        if let (true, Some(disk)) = (scene.is_untouched.get(), subject.refused.first()) {
            let text = format!("disk {disk} is left out, and nothing had happened to it");
            scene.find(Finding::NotStarted(text));
        }
    }

    fn may_be_refused(scene: &Scene<Array>) -> bool {
        !scene.is_untouched.get()
    }

    /// Every disk is its own slot.
    fn slots(scene: &Scene<Array>) -> Vec<Option<u32>> {
        (0..scene.disks.len() as u32).map(Some).collect()
    }

    fn admits(scene: &Scene<Array>, disk: u32, fault: &Fault) -> bool {
        let handle = &scene.disks[disk as usize];
        if !handle.is_present() || handle.is_hung() || scene.reserved.borrow().contains(&disk) {
            return false;
        }
        match fault {
            Fault::Retryable { .. } => !handle.has_retryable(),
            Fault::Slow { .. } => true,
            // What is being filled is not read before it is complete: it would then be the only one perhaps.
            Fault::ReadError(_) if scene.subject().is_filled(disk) => false,
            _ => Self::may_lose(scene, disk),
        }
    }

    fn may_lose(scene: &Scene<Array>, disk: u32) -> bool {
        scene.subject().survives(&bad_with(scene, disk))
    }

    /// Of a mirror: systems of drives are changed between lives.
    fn spare_for(scene: &Scene<Array>, purpose: Purpose) -> Option<u32> {
        if scene.plan.format != Format::Gmirror {
            return None;
        }
        let array = scene.subject();
        let live = array.live();
        // One stands by at most; a mirror that was widened may lack more.
        let reserved = scene.reserved.borrow().len();
        let is_enough = live.len() + reserved > scene.plan.member_count();
        if is_enough && !(reserved == 0 && array.lacks_a_disk()) {
            return None;
        }
        let disk = scene.pick_idle(|disk| {
            !disk.is_hung() && !disk.has_write_errors() && !live.contains(&disk.number())
        })?;
        scene.reserved.borrow_mut().insert(disk);
        (purpose != Purpose::Replace || array.is_whole()).then_some(disk)
    }

    /// Parity without a log promises nothing when it is cut off degraded: most lives end in order then.
    fn stops_instead(world: &mut World<Array>) -> bool {
        let subject = world.scene.subject.borrow();
        let has_hole = subject.as_ref().is_some_and(|array| array.has_hole());
        has_hole && !world.order.chance(1, 6)
    }

    fn before_off(world: &mut World<Array>, number: usize, ended: Ended) -> Option<u32> {
        let scene = &world.scene;
        let lost = may_hide(scene, scene.plan.pause_behind(number), ended);
        let subject = scene.subject.borrow();
        if subject.as_ref().is_some_and(|array| array.has_hole()) {
            scene.is_untouched.set(false);
        }
        lost
    }

    fn after_off(scene: &Scene<Array>) {
        let there = scene.disks.iter().filter(|disk| disk.is_present());
        there.for_each(SimDisk::end_faults);
    }

    fn between(scene: &Scene<Array>, number: usize) {
        if !labels::is_newest_present(&scene.disks) {
            scene.disks.iter().for_each(SimDisk::end_faults);
        }
        check_age(scene);
        change(scene, scene.plan.pause_behind(number));
    }

    async fn try_last(scene: &Rc<Scene<Array>>) {
        if !scene.are_errors_allowed.get() && scene.subject().scrub().await > 0 {
            let text = "a scrub finds bytes that do not agree";
            scene.find(Finding::NotWhole(text.to_owned()));
        }
    }

    fn compare(scene: &Scene<Array>) {
        if let Some(finding) = compare::compare(scene) {
            scene.find(finding);
        }
    }
}

/// Disks whose data cannot be relied on, and this one.
fn bad_with(scene: &Scene<Array>, disk: u32) -> BTreeSet<u32> {
    let is_bad = |disk: &&SimDisk| {
        !disk.is_present() || disk.is_hung() || disk.has_read_errors(&(0..u64::MAX))
    };
    let mut bad = scene.struck.borrow().clone();
    bad.extend(scene.disks.iter().filter(is_bad).map(SimDisk::number));
    bad.insert(disk);
    bad
}

/// A disk that the next life does without. After a crash parity gives nothing back.
fn may_hide(scene: &Scene<Array>, pause: Pause, ended: Ended) -> Option<u32> {
    let array = scene.subject.borrow();
    let (disk, array) = (pause.hides?, array.as_ref()?);
    let bad = bad_with(scene, disk);
    let is_stopped = ended == Ended::Stopped;
    let is_within = array.survives(&bad) && (is_stopped || !array.needs_parity(&bad));
    (is_within && scene.disks[disk as usize].is_present()).then_some(disk)
}

/// What the newest disk says never gets older.
fn check_age(scene: &Scene<Array>) {
    let now = labels::newest(&scene.disks);
    let before = scene.memory.newest.replace(now);
    if now < before {
        let number = |age: Option<(u64, u64)>| age.map_or(0, |(high, low)| high << 32 | low);
        scene.find(Finding::EventCountBack {
            before: number(before),
            now: number(now),
        });
    }
}

/// What the operator does while nothing runs.
fn change(scene: &Scene<Array>, pause: Pause) {
    let disks = &scene.disks;
    let wall_seconds = scene.clock.wall_seconds();
    match scene.plan.format {
        Format::Gmirror if pause.activates => scene.count("activate", labels::activate(disks)),
        Format::Gmirror if pause.moves => {
            let count = labels::deactivate(disks);
            if count > 0 {
                scene.is_untouched.set(false);
            }
            scene.count("deactivate", count);
        }
        Format::Gvinum if pause.moves => {
            scene.count("move", labels::move_lost(disks, wall_seconds));
        }
        Format::Gvinum if pause.grows && disks.iter().all(SimDisk::is_present) => {
            let has_grown = labels::grow(disks, wall_seconds);
            scene.count("grow", u64::from(has_grown));
        }
        _ => {}
    }
}
