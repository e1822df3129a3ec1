//! What a pool promises: what may be lost, what must stand on its members after every end of a life.
//!
//! Invariants:
//! - what may be lost at once is what each group can do without; who is behind, out, or holds damage that no scrub has
//!   mended counts as lost;
//! - a member that was replaced while clients went on is none any more when the pool says so, not before;
//! - a member that was lost is in the pool again after the next start, or when it was taken back.

use std::collections::BTreeSet;

use super::admin::{carry_out, deeds_of};
use super::judge;
use super::plan::Plan;
use super::served::{Served, make};
use crate::finding::Finding;
use crate::subject::{Attempt, Context, Ended, Purpose, Refusal};
use crate::world::{Rules, Scene, World};
use plexum_disks::disk::SimDisk;
use plexum_disks::fault::Fault;

impl Rules for Served {
    const LOST: &'static str = "hidden";

    const WAITS_IN_MEMORY: bool = true;

    async fn begin(
        context: &Context,
        scene: &Scene<Served>,
        attempt: Attempt,
        disks: Vec<SimDisk>,
    ) -> Result<Served, Refusal> {
        if attempt == Attempt::Create {
            let roles = (0..scene.plan.member_count() as u32).map(Some);
            *scene.memory.roles.borrow_mut() = roles.collect();
            *scene.memory.groups.borrow_mut() = scene.plan.groups.clone();
            let made = make(context, &scene.plan, &disks).await;
            made.map_err(|error| Refusal::Other(error.to_string()))?;
        }
        let begun = Served::begin(context, scene, &disks, async |pool| {
            for deed in deeds_of(scene) {
                carry_out(scene, pool, &deed).await?;
            }
            Ok(())
        })
        .await;
        begun.map_err(|error| Refusal::Other(error.to_string()))
    }

    fn sizes_bytes(subject: &Served, _plan: &Plan) -> Vec<u64> {
        subject.sizes_bytes()
    }

    fn enter(scene: &Scene<Served>) {
        let lives = scene.memory.lives.get();
        scene.memory.lives.set(lives + 1);
        if scene.volume_count() > 0
            && let Some(finding) = judge::judge(scene)
        {
            scene.find(finding);
        }
    }

    /// Who was lost is in the pool again, or known as out.
    fn welcome(scene: &Scene<Served>, subject: &Served) {
        scene.struck.borrow_mut().clear();
        let behind = subject
            .members()
            .into_iter()
            .filter(|(_, is_whole)| !is_whole);
        let behind: BTreeSet<u32> = behind.filter_map(|(disk, _)| disk).collect();
        if scene.is_untouched.get() && !behind.is_empty() {
            let text = format!("disks {behind:?} are behind, and nothing had happened to them");
            scene.find(Finding::NotStarted(text));
        }
        scene.count("members that were behind", behind.len() as u64);
    }

    fn may_be_refused(scene: &Scene<Served>) -> bool {
        scene.are_errors_allowed.get()
    }

    /// A member may be replaced at any time: who is in the pool, when it is open, it knows itself.
    fn slots(scene: &Scene<Served>) -> Vec<Option<u32>> {
        let subject = scene.subject.borrow();
        let members = subject.as_ref().map(|subject| subject.members());
        match members {
            Some(members) => members.into_iter().map(|(disk, _)| disk).collect(),
            None => scene.memory.roles.borrow().clone(),
        }
    }

    fn admits(scene: &Scene<Served>, disk: u32, fault: &Fault) -> bool {
        if !scene.disks[disk as usize].is_present() {
            return false;
        }
        let is_admitted = matches!(fault, Fault::Slow { .. }) || Self::may_lose(scene, disk);
        let is_silent = matches!(
            fault,
            Fault::BitFlip { .. } | Fault::LostWrite(_) | Fault::MisdirectedWrite { .. }
        );
        if is_admitted && is_silent {
            scene.memory.silent.borrow_mut().insert(disk);
        }
        is_admitted
    }

    fn may_lose(scene: &Scene<Served>, disk: u32) -> bool {
        survives(scene, disk)
    }

    /// A member that is out and there: it is taken back.
    fn spare_for(scene: &Scene<Served>, purpose: Purpose) -> Option<u32> {
        let out = scene.subject.borrow().as_ref()?.out();
        let is_out = |disk: &SimDisk| out.contains(&disk.number());
        match purpose {
            Purpose::Add => scene.pick_idle(is_out),
            Purpose::Replace => {
                let members = Self::slots(scene);
                scene.pick_idle(|disk| !members.contains(&Some(disk.number())))
            }
            Purpose::Give(_) | Purpose::Mend => None,
        }
    }

    fn before_off(world: &mut World<Served>, number: usize, _ended: Ended) -> Option<u32> {
        let scene = &world.scene;
        let slot = scene.plan.pause_behind(number).hides?;
        let disk = Self::slots(scene).get(slot).copied().flatten()?;
        let is_running = scene.subject.borrow().is_some();
        let is_there = scene.disks[disk as usize].is_present();
        (is_running && is_there && survives(scene, disk)).then_some(disk)
    }

    fn after_off(scene: &Scene<Served>) {
        let there = scene.disks.iter().filter(|disk| disk.is_present());
        there.for_each(SimDisk::end_faults);
    }

    fn between(_scene: &Scene<Served>, _number: usize) {}

    fn compare(scene: &Scene<Served>) {
        if let Some(finding) = judge::compare_last(scene) {
            scene.find(finding);
        }
    }
}

/// Whether everything is there without this disk and those that cannot be relied on now.
fn survives(scene: &Scene<Served>, disk: u32) -> bool {
    let subject = scene.subject.borrow();
    let Some(subject) = subject.as_ref() else {
        return false;
    };
    let mut bad = scene.struck.borrow().clone();
    bad.insert(disk);
    bad.extend(scene.memory.silent.borrow().iter());
    let is_bad = |disk: &&SimDisk| !disk.is_present() || disk.has_read_errors(&(0..u64::MAX));
    bad.extend(scene.disks.iter().filter(is_bad).map(SimDisk::number));
    let members = subject.members();
    let roles: Vec<Option<u32>> = members.iter().map(|(disk, _)| *disk).collect();
    let members = members.into_iter();
    bad.extend(
        members
            .filter(|(_, is_whole)| !is_whole)
            .filter_map(|(disk, _)| disk),
    );
    let slots = roles.iter().enumerate();
    let lost = slots.filter(|(_, role)| role.is_none_or(|disk| bad.contains(&disk)));
    let lost: Vec<usize> = lost.map(|(slot, _)| slot).collect();
    scene.memory.is_enough(&lost)
}
