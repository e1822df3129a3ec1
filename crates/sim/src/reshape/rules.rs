//! What an array promises while it gets another shape: what may be lost, what an operator may do, what its members must
//! hold after every crash.
//!
//! Invariants:
//! - what may be lost is what both geometries can do without;
//! - nobody is started without a disk that knows of the last commit: the others could not know that they are stale.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::array::{Array, make};
use super::plan::Plan;
use super::{compare, halves, kernel};
use crate::finding::Finding;
use crate::md::checker::{self, highest_count};
use crate::subject::{AfterRefusal, Attempt, Context, Ended, Force, Offered, Purpose, Refusal};
use crate::world::{Rules, Scene, World};
use plexum_disks::disk::SimDisk;
use plexum_disks::fault::Fault;

impl Rules for Array {
    const LOST: &'static str = "hidden";

    async fn begin(
        context: &Context,
        plan: &Plan,
        attempt: Attempt,
        disks: Vec<SimDisk>,
    ) -> Result<Array, Refusal> {
        match attempt {
            Attempt::Create => {
                make(context, plan, &disks).await.map_err(Refusal::Other)?;
                Array::open(context, plan, &disks, Force::No).await
            }
            Attempt::Open(force, Offered::All) => Array::open(context, plan, &disks, force).await,
            Attempt::Open(force, Offered::Fresh) => {
                Array::open(context, plan, &fresh(disks), force).await
            }
        }
    }

    /// Clients know the smaller size: what lies behind it comes with the last row, or goes with the first.
    fn sizes_bytes(_subject: &Array, plan: &Plan) -> Vec<u64> {
        vec![halves::common_bytes(plan)]
    }

    fn enter(scene: &Scene<Array>) {
        scene.struck.borrow_mut().clear();
        if !scene.are_errors_allowed.get()
            && let Some(finding) = halves::check(scene)
        {
            scene.find(finding);
        }
    }

    fn welcome(scene: &Scene<Array>, subject: &Array) {
        let least = halves::common_bytes(&scene.plan);
        if subject.size_bytes() < least {
            let text = format!("{} bytes instead of {least}", subject.size_bytes());
            scene.find(Finding::NotStarted(text));
        }
        scene.count("began to move", u64::from(subject.is_moving()));
        let lost = subject.volume().status().lost_slots;
        // Backwards nothing can be said of how far a new parity has come: it is made at the end.
        let is_new = |slot: &u16| usize::from(*slot) >= scene.plan.before.member_count;
        let is_excused = lost.iter().all(is_new);
        if scene.is_untouched.get() && !lost.is_empty() && !is_excused {
            let text = format!("slots {lost:?} are left out, and nothing had happened to them");
            scene.find(Finding::NotStarted(text));
        }
    }

    fn may_be_refused(scene: &Scene<Array>) -> bool {
        scene.are_errors_allowed.get()
    }

    fn after_refusal(
        world: &mut World<Array>,
        attempt: Attempt,
        refusal: &Refusal,
    ) -> AfterRefusal {
        let is_untouched = world.scene.is_untouched.get();
        match (attempt, refusal) {
            (Attempt::Open(force, Offered::All), Refusal::Other(reason))
                if !is_untouched && reason.contains("split brain") =>
            {
                AfterRefusal::Again(Attempt::Open(force, Offered::Fresh))
            }
            _ => AfterRefusal::Wrong,
        }
    }

    fn slots(scene: &Scene<Array>) -> Vec<Option<u32>> {
        scene.subject().slots()
    }

    fn placed(scene: &Scene<Array>, disk: u32, fault: &Fault) -> Fault {
        let start = halves::data_offset_bytes(&scene.disks[disk as usize]);
        let moved = |range: &std::ops::Range<u64>| range.start + start..range.end + start;
        match fault {
            Fault::ReadError(range) => Fault::ReadError(moved(range)),
            Fault::WriteError(range) => Fault::WriteError(moved(range)),
            other => other.clone(),
        }
    }

    fn admits(scene: &Scene<Array>, disk: u32, fault: &Fault) -> bool {
        let handle = &scene.disks[disk as usize];
        if !handle.is_present() || handle.is_hung() || scene.reserved.borrow().contains(&disk) {
            return false;
        }
        match fault {
            Fault::Retryable { .. } => !handle.has_retryable(),
            Fault::Slow { .. } => true,
            Fault::ReadError(_) if scene.subject().is_filled(disk) => false,
            _ => Self::may_lose(scene, disk),
        }
    }

    fn may_lose(scene: &Scene<Array>, disk: u32) -> bool {
        survives(scene, &bad_with(scene, disk))
    }

    fn spare_for(scene: &Scene<Array>, purpose: Purpose) -> Option<u32> {
        let array = scene.subject();
        let live = array.live();
        let reserved = scene.reserved.borrow().len();
        let is_wanted = match purpose {
            // One disk more than there are slots may stand by as a spare.
            Purpose::Add | Purpose::Give(_) => live.len() + reserved <= scene.plan.member_count(),
            Purpose::Replace => false,
            Purpose::Mend => reserved == 0 && array.lacks_a_disk(),
        };
        if !is_wanted {
            return None;
        }
        scene.pick_idle(|disk| {
            !disk.is_hung() && !disk.has_write_errors() && !live.contains(&disk.number())
        })
    }

    /// Parity without a log promises nothing when it is cut off degraded: most lives end in order then.
    fn stops_instead(world: &mut World<Array>) -> bool {
        has_hole(&world.scene) && !world.order.chance(1, 6) && world.quiesce()
    }

    fn before_off(world: &mut World<Array>, number: usize, ended: Ended) -> Option<u32> {
        let scene = &world.scene;
        if ended == Ended::Cut && has_hole(scene) {
            scene.are_errors_allowed.set(true);
        }
        may_hide(scene, number, ended)
    }

    fn after_off(scene: &Scene<Array>) {
        let there = scene.disks.iter().filter(|disk| disk.is_present());
        there.for_each(SimDisk::end_faults);
    }

    fn between(scene: &Scene<Array>, _number: usize) {
        let present: Vec<SimDisk> = there(&scene.disks);
        if highest_count(&present) < highest_count(&scene.disks) {
            scene.disks.iter().for_each(SimDisk::end_faults);
        }
        let now = highest_count(&scene.disks);
        let before = scene.memory.highest_count.replace(now);
        if now < before {
            scene.find(Finding::EventCountBack { before, now });
        }
    }

    fn lend(scene: &Scene<Array>, salt: u64) -> Option<&'static str> {
        if scene.are_errors_allowed.get() {
            return None;
        }
        let done = kernel::visit(scene, salt);
        let now = highest_count(&scene.disks);
        scene.memory.highest_count.set(now);
        Some(done)
    }

    async fn try_last(scene: &Rc<Scene<Array>>) {
        let array = scene.subject();
        if !scene.are_errors_allowed.get() && !array.is_moving() && array.scrub().await > 0 {
            let text = "a scrub finds bytes that do not agree";
            scene.find(Finding::NotWhole(text.to_owned()));
        }
    }

    fn compare(scene: &Scene<Array>) {
        match compare::compare(scene) {
            Ok(done) => scene.count(done, 1),
            Err(finding) => scene.find(finding),
        }
    }
}

fn there(disks: &[SimDisk]) -> Vec<SimDisk> {
    disks
        .iter()
        .filter(|disk| disk.is_present())
        .cloned()
        .collect()
}

/// Those that are as fresh as the freshest one with a slot, and spares.
fn fresh(present: Vec<SimDisk>) -> Vec<SimDisk> {
    let highest = highest_count(&present);
    let is_fresh = |disk: &SimDisk| {
        checker::inspect(disk).is_some_and(|member| member.superblock.events.0 + 1 >= highest)
    };
    present.into_iter().filter(is_fresh).collect()
}

/// Disks whose data cannot be relied on, and this one.
fn bad_with(scene: &Scene<Array>, disk: u32) -> BTreeSet<u32> {
    let mut bad = bad_now(scene);
    bad.insert(disk);
    bad
}

fn bad_now(scene: &Scene<Array>) -> BTreeSet<u32> {
    // A bad block that was written again is known as good when that is committed.
    let has_list =
        |disk: &SimDisk| checker::inspect(disk).is_some_and(|member| !member.bad.is_empty());
    let running = scene.subject.borrow();
    let listed = running.iter().flat_map(|array| array.with_bad_ranges());
    let is_bad = |disk: &&SimDisk| {
        !disk.is_present()
            || disk.is_hung()
            || disk.has_read_errors(&(0..u64::MAX))
            || has_list(disk)
    };
    let mut bad = scene.struck.borrow().clone();
    bad.extend(scene.disks.iter().filter(is_bad).map(SimDisk::number));
    bad.extend(listed);
    bad
}

/// Whether all data are there without the disks in `bad`, in both geometries. Parity that is not proven gives nothing
/// back.
fn survives(scene: &Scene<Array>, bad: &BTreeSet<u32>) -> bool {
    let (array, plan) = (scene.subject(), &scene.plan);
    let lost = array.lost_without(bad);
    // A parity more that is new holds nothing before the rows have moved, and is no loss.
    let of_old = lost
        .iter()
        .filter(|slot| **slot < plan.before.member_count)
        .count();
    let tolerated = match array.is_moving() {
        true => plan.tolerates_while_moving(),
        false => plan.tolerates(),
    };
    let is_within = of_old <= plan.before.tolerates() && lost.len() <= tolerated;
    is_within && (lost.is_empty() || !array.is_doubtful())
}

/// Whether some row lacks a block: a crash may take what its parity stood for.
fn has_hole(scene: &Scene<Array>) -> bool {
    let subject = scene.subject.borrow();
    let lost = subject
        .as_ref()
        .map(|array| array.lost_without(&bad_now(scene)));
    lost.is_some_and(|lost| !lost.is_empty())
}

/// A disk that the next life does without. After a crash parity gives nothing back.
fn may_hide(scene: &Scene<Array>, number: usize, ended: Ended) -> Option<u32> {
    let disk = scene.plan.pause_behind(number).hides?;
    let is_running = scene.subject.borrow().is_some();
    let is_within = is_running && ended == Ended::Stopped && Array::may_lose(scene, disk);
    (is_within && scene.disks[disk as usize].is_present()).then_some(disk)
}
