//! What an administrator does with a pool while nobody uses it: snapshots, volumes made of them, ways back, members
//! that are taken out, come back and are replaced, scrubs.
//!
//! Invariant: only what must succeed is tried, so that every refusal is a finding.

use plexum_pool::{Now, PoolError, Task, WritablePool};

use super::deed::Deed;
use super::memory::{Begun, Frozen};
use super::plan::Plan;
use super::served::{Served, disk_of, new_member};
use crate::course::LifeEnd;
use crate::world::Scene;
use plexum_block::clock::Clock;
use plexum_disks::disk::SimDisk;

/// What is done at the beginning of this life.
pub(super) fn deeds_of(scene: &Scene<Served>) -> Vec<Deed> {
    let life = scene.memory.lives.get().saturating_sub(1);
    if scene.course().lives.get(life) == Some(&LifeEnd::Mend) {
        return vec![Deed::Online, Deed::Scrub];
    }
    match life {
        0 => Vec::new(),
        life => scene.plan.pause_behind(life - 1).deeds,
    }
}

type Pool = WritablePool<SimDisk>;

/// Does it, if it can be done now.
///
/// # Errors
/// It should have been done, and was not.
pub(super) async fn carry_out(
    scene: &Scene<Served>,
    pool: &mut Pool,
    deed: &Deed,
) -> Result<(), PoolError> {
    let done = match deed {
        Deed::Snapshot(volume) => snapshot(scene, pool, *volume).await?,
        Deed::DestroySnapshot(number) => destroy_snapshot(scene, pool, *number).await?,
        Deed::Rollback(volume) => rollback(scene, pool, *volume).await?,
        Deed::Clone(number) => clone(scene, pool, *number).await?,
        Deed::DestroyClone(number) => destroy_clone(scene, pool, *number).await?,
        Deed::Offline(slot) => offline(scene, pool, *slot).await?,
        Deed::Online => online(scene, pool).await?,
        Deed::Replace(slot) => replace(scene, pool, *slot).await?,
        Deed::Scrub => scrub(scene, pool).await?,
    };
    scene.count(done.unwrap_or("nothing to do"), 1);
    Ok(())
}

/// What it is called when it was done; nothing: there was no reason to.
type Done = Result<Option<&'static str>, PoolError>;

fn now(scene: &Scene<Served>) -> Now {
    Now {
        wall_s: scene.clock.wall_seconds(),
        seed: scene.course().seed ^ scene.clock.now_ns(),
    }
}

/// A name that was never used.
fn new_name(scene: &Scene<Served>) -> u64 {
    let number = scene.memory.names.get();
    scene.memory.names.set(number + 1);
    number
}

async fn snapshot(scene: &Scene<Served>, pool: &mut Pool, volume: usize) -> Done {
    let of = Plan::volume_name(volume);
    let frozen = Frozen {
        name: format!("{of}@s{}", new_name(scene)),
        of,
        oracle: scene.oracles.borrow()[volume].clone(),
    };
    let name = frozen.name.clone();
    *scene.memory.begun.borrow_mut() = Some(Begun::Making(frozen));
    pool.snapshot(&name, now(scene)).await?;
    keep(scene);
    Ok(Some("snapshot"))
}

/// What was begun to be made is there.
fn keep(scene: &Scene<Served>) {
    if let Some(Begun::Making(frozen)) = scene.memory.begun.take() {
        scene.memory.frozen.borrow_mut().push(frozen);
    }
}

/// What was begun to be removed is gone.
fn forget(scene: &Scene<Served>) {
    if let Some(Begun::Removing(name)) = scene.memory.begun.take() {
        scene
            .memory
            .frozen
            .borrow_mut()
            .retain(|one| one.name != name);
    }
}

/// One of those that are `fit`.
fn pick(scene: &Scene<Served>, number: u64, fit: impl Fn(&Frozen) -> bool) -> Option<String> {
    let frozen = scene.memory.frozen.borrow();
    let fit: Vec<&Frozen> = frozen.iter().filter(|one| fit(one)).collect();
    let at = number.checked_rem(fit.len() as u64)?;
    Some(fit[at as usize].name.clone())
}

async fn destroy_snapshot(scene: &Scene<Served>, pool: &mut Pool, number: u64) -> Done {
    let origins: Vec<String> = {
        let frozen = scene.memory.frozen.borrow();
        let clones = frozen.iter().filter(|one| !one.is_snapshot());
        clones.map(|one| one.of.clone()).collect()
    };
    let fit = |one: &Frozen| one.is_snapshot() && !origins.contains(&one.name);
    let Some(name) = pick(scene, number, fit) else {
        return Ok(None);
    };
    *scene.memory.begun.borrow_mut() = Some(Begun::Removing(name.clone()));
    let wall_s = scene.clock.wall_seconds();
    pool.destroy_snapshot(&name, wall_s).await?;
    forget(scene);
    Ok(Some("destroy snapshot"))
}

async fn rollback(scene: &Scene<Served>, pool: &mut Pool, volume: usize) -> Done {
    let of = Plan::volume_name(volume);
    let name = {
        let frozen = scene.memory.frozen.borrow();
        let last = frozen.iter().rfind(|one| one.of == of);
        let Some(last) = last else {
            return Ok(None);
        };
        // From now on it may be either.
        scene.oracles.borrow_mut()[volume].may_go_back(&last.oracle);
        last.name.clone()
    };
    let wall_s = scene.clock.wall_seconds();
    pool.rollback(&name, wall_s).await?;
    let frozen = scene.memory.frozen.borrow();
    if let Some(last) = frozen.iter().find(|one| one.name == name) {
        scene.oracles.borrow_mut()[volume].go_back(&last.oracle);
    }
    Ok(Some("rollback"))
}

async fn clone(scene: &Scene<Served>, pool: &mut Pool, number: u64) -> Done {
    let Some(of) = pick(scene, number, Frozen::is_snapshot) else {
        return Ok(None);
    };
    let oracle = {
        let frozen = scene.memory.frozen.borrow();
        let origin = frozen.iter().find(|one| one.name == of);
        origin.expect("it was just picked").oracle.clone()
    };
    let name = format!("tank/c{}", new_name(scene));
    let frozen = Frozen {
        name: name.clone(),
        of: of.clone(),
        oracle,
    };
    *scene.memory.begun.borrow_mut() = Some(Begun::Making(frozen));
    pool.clone_snapshot(&of, &name, now(scene)).await?;
    keep(scene);
    Ok(Some("clone"))
}

async fn destroy_clone(scene: &Scene<Served>, pool: &mut Pool, number: u64) -> Done {
    let Some(name) = pick(scene, number, |one| !one.is_snapshot()) else {
        return Ok(None);
    };
    *scene.memory.begun.borrow_mut() = Some(Begun::Removing(name.clone()));
    let wall_s = scene.clock.wall_seconds();
    pool.destroy_volume(&name, wall_s).await?;
    forget(scene);
    Ok(Some("destroy clone"))
}

/// Slots of members that do not have everything.
fn lost_slots(scene: &Scene<Served>, pool: &Pool) -> Vec<usize> {
    let silent = scene.memory.silent.borrow();
    let members = pool.members().into_iter().enumerate();
    let is_lost = |one: &plexum_pool::MemberInfo| {
        let disk = disk_of(&one.name);
        one.out.is_some()
            || one.missed_groups > 0
            || disk.is_some_and(|disk| silent.contains(&disk))
    };
    members
        .filter(|(_, one)| is_lost(one))
        .map(|(slot, _)| slot)
        .collect()
}

async fn offline(scene: &Scene<Served>, pool: &mut Pool, slot: usize) -> Done {
    let mut lost = lost_slots(scene, pool);
    if lost.contains(&slot) || !pool.members_behind().is_empty() {
        return Ok(None);
    }
    lost.push(slot);
    if !scene.plan.is_enough(&lost) {
        return Ok(None);
    }
    let name = pool.members()[slot].name.clone();
    let wall_s = scene.clock.wall_seconds();
    scene.is_untouched.set(false);
    pool.offline(&name, wall_s).await?;
    Ok(Some("offline"))
}

async fn online(scene: &Scene<Served>, pool: &mut Pool) -> Done {
    let mut done = None;
    for member in pool.members() {
        let is_there = crate::members::disk_named(&member.name).is_some();
        if member.out.is_some() && is_there {
            let wall_s = scene.clock.wall_seconds();
            pool.online(&member.name, wall_s).await?;
            done = Some("online");
        }
    }
    Ok(done)
}

async fn replace(scene: &Scene<Served>, pool: &mut Pool, slot: usize) -> Done {
    let members = pool.members();
    let used: Vec<u32> = members
        .iter()
        .filter_map(|one| disk_of(&one.name))
        .collect();
    let is_idle = |disk: &&SimDisk| disk.is_present() && !used.contains(&disk.number());
    let Some(disk) = scene.disks.iter().find(is_idle) else {
        return Ok(None);
    };
    let mut lost = lost_slots(scene, pool);
    lost.retain(|lost| *lost != slot);
    // What is missing besides must not be needed while it is filled.
    if !scene.plan.is_enough(&lost) {
        return Ok(None);
    }
    scene.memory.roles.borrow_mut()[slot] = Some(disk.number());
    scene.is_untouched.set(false);
    let new = new_member(&disk.reopen());
    let name = members[slot].guid.to_string();
    pool.replace(&name, new, now(scene), &mut |_| {}).await?;
    Ok(Some("replace"))
}

async fn scrub(scene: &Scene<Served>, pool: &mut Pool) -> Done {
    let report = pool.walk_all(Task::Scrub, &mut |_| {}).await?;
    if let Some(first) = report.lost.first() {
        return Err(PoolError::Refused(format!("a scrub lost data: {first}")));
    }
    scene.memory.silent.borrow_mut().clear();
    Ok(Some("scrub"))
}
