//! What lies on the disks of a pool, looked at behind its back: it opens, its checker is content, and what it holds is
//! what clients may read; without members that it can spare as well.

use std::collections::BTreeSet;

use plexum_pool::{MemberInfo, WritablePool, check_pool};
use plexum_zfs::{DatasetName, OpenOptions, Pool, find_members};

use super::image::{Image, at_once};
use super::memory::{Begun, Frozen};
use super::plan::Plan;
use super::served::{PASSING, Served, disk_of, slots_of, write_options};
use crate::finding::Finding;
use crate::oracle::{Oracle, Violation};
use crate::world::Scene;
use plexum_disks::disk::SimDisk;
use plexum_disks::rng::Rng;
use plexum_disks::sector::{self, SECTOR_BYTES, Seen, Value};

/// Most sets of missing members that are tried at once.
const SETS_MAX: usize = 2;

/// Findings of the checker that are told.
const TOLD_MAX: usize = 5;

/// What a pool is on these disks.
struct Looked {
    members: Vec<MemberInfo>,
    txg: u64,
    /// Names of everything that no client changes.
    frozen: BTreeSet<String>,
}

/// Looks at everything, after the end of a life. `None`: it is as it should be.
pub(super) fn judge(scene: &Scene<Served>) -> Option<Finding> {
    at_once(judge_all(scene)).err()
}

async fn judge_all(scene: &Scene<Served>) -> Result<(), Finding> {
    let there: Vec<&SimDisk> = scene
        .disks
        .iter()
        .filter(|disk| disk.is_present())
        .collect();
    let looked = look(scene, &there, &[]).await?;
    reconcile(scene, &looked.frozen)?;
    note_members(scene, &looked.members);
    check(scene, &there).await?;
    scene.count("images judged", 1);
    let mut rng = Rng::new(scene.course().seed).fork(0x6a75_0000 + scene.memory.lives.get() as u64);
    for _ in 0..SETS_MAX {
        let hidden = spared(scene, &mut rng);
        if hidden.is_empty() {
            break;
        }
        let roles = scene.memory.roles.borrow().clone();
        let hides = |disk: &SimDisk| {
            hidden
                .iter()
                .any(|slot| roles[*slot] == Some(disk.number()))
        };
        let left: Vec<&SimDisk> = there.iter().copied().filter(|disk| !hides(disk)).collect();
        look(scene, &left, &hidden).await?;
        scene.count("images judged without members", 1);
    }
    Ok(())
}

/// Some slots whose members the pool can do without, beside those that do not have everything. Who was lost and is
/// there again has everything that was answered, or the pool says that he has not.
fn spared(scene: &Scene<Served>, rng: &mut Rng) -> Vec<usize> {
    let roles = scene.memory.roles.borrow();
    let mut bad = scene.memory.behind.borrow().clone();
    bad.extend(scene.memory.silent.borrow().iter());
    let is_bad = |role: &Option<u32>| role.is_none_or(|disk| bad.contains(&disk));
    let slots = roles.iter().enumerate();
    let mut lost: Vec<usize> = slots
        .filter(|(_, role)| is_bad(role))
        .map(|(slot, _)| slot)
        .collect();
    let mut order: Vec<usize> = (0..roles.len())
        .filter(|slot| !lost.contains(slot))
        .collect();
    rng.shuffle(&mut order);
    let mut hidden = Vec::new();
    for slot in order {
        lost.push(slot);
        if scene.memory.is_enough(&lost) {
            hidden.push(slot);
        } else {
            lost.pop();
        }
    }
    hidden
}

/// Who has which slot, and who does not have everything.
fn note_members(scene: &Scene<Served>, members: &[MemberInfo]) {
    scene.memory.note_slots(&slots_of(members));
    let behind = members
        .iter()
        .filter(|one| one.out.is_some() || one.missed_groups > 0);
    *scene.memory.behind.borrow_mut() = behind.filter_map(|one| disk_of(&one.name)).collect();
}

/// What was begun by an administrator is done or not.
fn reconcile(scene: &Scene<Served>, found: &BTreeSet<String>) -> Result<(), Finding> {
    let memory = &scene.memory;
    match memory.begun.take() {
        Some(Begun::Making(new)) if found.contains(&new.name) => {
            memory.frozen.borrow_mut().push(new);
        }
        Some(Begun::Removing(name)) if !found.contains(&name) => {
            memory.frozen.borrow_mut().retain(|one| one.name != name);
        }
        _ => {}
    }
    let known: BTreeSet<String> = memory
        .frozen
        .borrow()
        .iter()
        .map(|one| one.name.clone())
        .collect();
    if known == *found {
        return Ok(());
    }
    let text = format!("snapshots and clones are {found:?} instead of {known:?}");
    Err(Finding::PoolCheck(text))
}

/// Opens the pool as a writer does, and reads its volumes. Nothing is changed.
async fn look(
    scene: &Scene<Served>,
    disks: &[&SimDisk],
    missing: &[usize],
) -> Result<Looked, Finding> {
    let without = |text: String| match missing {
        [] => Finding::NotStarted(text),
        missing => Finding::NotStarted(format!("without slots {missing:?}: {text}")),
    };
    let images = Image::of(disks.iter().copied());
    let (members, _) = find_members(images, &scene.pool).await;
    let opened = WritablePool::open(members, write_options(&scene.plan), &scene.pool).await;
    let mut pool = opened.map_err(|error| without(error.to_string()))?;
    let (txg, least) = (pool.txg(), scene.memory.committed_txg.get());
    if txg < least {
        return Err(without(format!(
            "root {txg}, and {least} was on all members"
        )));
    }
    for number in 0..scene.plan.volumes.len() {
        let name = Plan::volume_name(number);
        let volume = pool.open_volume(&name).await;
        let volume = volume.map_err(|error| without(error.to_string()))?;
        let bytes = pool.read(&volume, 0, volume.size_bytes as usize).await;
        let bytes = bytes.map_err(|error| without(error.to_string()))?;
        compare(&scene.oracles.borrow()[number], &bytes).map_err(|violation| {
            Finding::LostOnMembers {
                missing: missing.to_vec(),
                violation: Some(violation),
            }
        })?;
    }
    let frozen = names(&pool, scene.plan.volumes.len()).await;
    let frozen = frozen.map_err(|error| without(error.to_string()))?;
    Ok(Looked {
        members: pool.members(),
        txg,
        frozen,
    })
}

async fn names(
    pool: &WritablePool<Image>,
    volumes: usize,
) -> Result<BTreeSet<String>, plexum_pool::PoolError> {
    let served: Vec<String> = (0..volumes).map(Plan::volume_name).collect();
    let mut names = BTreeSet::new();
    for name in pool.dataset_names().await? {
        let snapshots = pool.snapshots(&name).await?;
        let snapshots = snapshots.iter().map(|one| format!("{name}@{}", one.name));
        names.extend(snapshots.filter(|name| !name.ends_with(PASSING)));
        if name.contains('/') && !served.contains(&name) {
            names.insert(name);
        }
    }
    Ok(names)
}

/// The checker of pools, and what no client changes.
async fn check(scene: &Scene<Served>, disks: &[&SimDisk]) -> Result<(), Finding> {
    let images = Image::of(disks.iter().copied());
    let (members, _) = find_members(images, &scene.pool).await;
    let opened = Pool::open(members.clone(), &OpenOptions::default()).await;
    let pool = opened.map_err(|error| Finding::NotStarted(error.to_string()))?;
    let all = scene.memory.frozen.take();
    let mut checked = Ok(());
    for frozen in &all {
        checked = check_frozen(&pool, frozen).await;
        if checked.is_err() {
            break;
        }
    }
    *scene.memory.frozen.borrow_mut() = all;
    checked?;
    let report = check_pool(pool).await;
    let report = report.map_err(|error| Finding::PoolCheck(error.to_string()))?;
    if report.is_clean() {
        return Ok(());
    }
    let told = report.findings.iter().take(TOLD_MAX);
    let told: Vec<String> = told.map(ToString::to_string).collect();
    let all = report.findings.len() as u64 + report.more;
    Err(Finding::PoolCheck(format!(
        "{all} findings: {}",
        told.join("; ")
    )))
}

async fn check_frozen(pool: &Pool<Image>, frozen: &Frozen) -> Result<(), Finding> {
    let name = &frozen.name;
    let wrong = |text: String| Finding::PoolCheck(format!("{name}: {text}"));
    let volume = pool.volume(&DatasetName::parse(name)).await;
    let volume = volume.map_err(|error| wrong(error.to_string()))?;
    let length = frozen.oracle.sector_count() as usize * SECTOR_BYTES;
    let bytes = volume.read(0, length).await;
    let bytes = bytes.map_err(|error| wrong(error.to_string()))?;
    compare(&frozen.oracle, &bytes).map_err(|violation| wrong(violation.to_string()))
}

/// Whether this is what may be read now.
fn compare(oracle: &Oracle, bytes: &[u8]) -> Result<(), Violation> {
    let mut first: Option<Violation> = None;
    for (at, bytes) in (0..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
        let seen = sector::look(bytes);
        let allowed = oracle.allowed(at);
        let is_allowed = match seen {
            Seen::Zero => allowed.contains(&Value::Zero),
            Seen::Valid { sequence, .. } => {
                oracle.may_ever_have_been(at, bytes) && allowed.contains(&Value::Written(sequence))
            }
            Seen::Garbage { .. } => false,
        };
        match &mut first {
            _ if is_allowed => {}
            Some(violation) => violation.more += 1,
            None => {
                first = Some(Violation {
                    sector: at,
                    seen,
                    allowed,
                    more: 0,
                });
            }
        }
    }
    first.map_or(Ok(()), Err)
}

impl Looked {
    /// Members that do not have everything.
    fn behind(&self) -> Vec<String> {
        let behind = self
            .members
            .iter()
            .filter(|one| one.out.is_some() || one.missed_groups > 0);
        behind.map(|one| one.name.clone()).collect()
    }
}

/// The end of a run: everything is as it should be, and every member has everything.
pub(super) fn compare_last(scene: &Scene<Served>) -> Option<Finding> {
    let there: Vec<&SimDisk> = scene.disks.iter().collect();
    let looked = match at_once(look(scene, &there, &[])) {
        Ok(looked) => looked,
        Err(finding) => return Some(finding),
    };
    let (behind, txg) = (looked.behind(), looked.txg);
    if !behind.is_empty() {
        return Some(Finding::NotWhole(format!(
            "{behind:?} lack something at root {txg}"
        )));
    }
    judge(scene)
}
