//! What an administrator does with a pool while nobody uses it: snapshots, volumes made of them, ways back, members
//! that are taken out, come back and are replaced, sides and groups that come, sides that go, scrubs.
//!
//! Invariant: only what must succeed is tried, so that every refusal is a finding.

use plexum_pool::{GroupKind, Mixed, NewGroup, Now, PoolError, Task, WritablePool};

use super::deed::Deed;
use super::memory::{Begun, Frozen};
use super::plan::Plan;
use super::served::{Served, disk_of, new_member, slots_of};
use crate::course::LifeEnd;
use crate::world::Scene;
use plexum_block::clock::Clock;
use plexum_disks::disk::SimDisk;

/// Most sides of a mirror, and most groups: disks that nobody has are few.
const SIDES_MAX: usize = 4;
const GROUPS_MAX: usize = 4;

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
        Deed::Attach(slot) => attach(scene, pool, *slot).await?,
        Deed::Detach(slot) => detach(scene, pool, *slot).await?,
        Deed::AddGroup(kind) => add_group(scene, pool, *kind).await?,
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
    let is_there = slot < pool.members().len();
    if !is_there || lost.contains(&slot) || !pool.members_behind().is_empty() {
        return Ok(None);
    }
    lost.push(slot);
    if !scene.memory.is_enough(&lost) {
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

/// Disks that are no members and are there.
fn idle_disks(scene: &Scene<Served>, pool: &Pool) -> Vec<SimDisk> {
    let members = pool.members();
    let used = members.iter().filter_map(|one| disk_of(&one.name));
    let used: Vec<u32> = used.collect();
    let is_idle = |disk: &&SimDisk| disk.is_present() && !used.contains(&disk.number());
    scene.disks.iter().filter(is_idle).cloned().collect()
}

async fn attach(scene: &Scene<Served>, pool: &mut Pool, slot: usize) -> Done {
    let idle = idle_disks(scene, pool);
    let group = scene.memory.group_of(slot);
    let is_fit = group.is_some_and(|(kind, slots)| {
        !matches!(kind, GroupKind::RaidZ(_)) && slots.len() < SIDES_MAX
    });
    // What is missing besides must not be needed while it is filled.
    let lost = lost_slots(scene, pool);
    let (Some(disk), true) = (idle.first(), is_fit && scene.memory.is_enough(&lost)) else {
        return Ok(None);
    };
    scene.is_untouched.set(false);
    let beside = pool.members()[slot].guid.to_string();
    let new = new_member(&disk.reopen());
    pool.attach(&beside, new, now(scene)).await?;
    scene.memory.note_slots(&slots_of(&pool.members()));
    Ok(Some("attach"))
}

async fn detach(scene: &Scene<Served>, pool: &mut Pool, slot: usize) -> Done {
    let Some((GroupKind::Mirror, slots)) = scene.memory.group_of(slot) else {
        return Ok(None);
    };
    let lost = lost_slots(scene, pool);
    let mut others = slots.filter(|other| *other != slot);
    if !others.any(|other| !lost.contains(&other)) {
        return Ok(None);
    }
    scene.is_untouched.set(false);
    let name = pool.members()[slot].guid.to_string();
    pool.detach(&name, scene.clock.wall_seconds()).await?;
    scene.memory.note_slots(&slots_of(&pool.members()));
    Ok(Some("detach"))
}

async fn add_group(scene: &Scene<Served>, pool: &mut Pool, kind: GroupKind) -> Done {
    let count = match kind {
        GroupKind::Mirror => 2,
        GroupKind::Single | GroupKind::RaidZ(_) => 1,
    };
    let mut members = idle_disks(scene, pool);
    members.truncate(count);
    if members.len() < count || scene.memory.groups.borrow().len() >= GROUPS_MAX {
        return Ok(None);
    }
    scene.is_untouched.set(false);
    let members = members.iter().map(|disk| new_member(&disk.reopen()));
    let group = NewGroup {
        kind,
        members: members.collect(),
    };
    pool.add_group(group, Mixed::Accepted, now(scene)).await?;
    scene.memory.note_slots(&slots_of(&pool.members()));
    Ok(Some("add"))
}

async fn replace(scene: &Scene<Served>, pool: &mut Pool, slot: usize) -> Done {
    let members = pool.members();
    let idle = idle_disks(scene, pool);
    let (Some(disk), true) = (idle.first(), slot < members.len()) else {
        return Ok(None);
    };
    let mut lost = lost_slots(scene, pool);
    lost.retain(|lost| *lost != slot);
    // What is missing besides must not be needed while it is filled.
    if !scene.memory.is_enough(&lost) {
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
