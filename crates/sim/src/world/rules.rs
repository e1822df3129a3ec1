//! What the world asks of the rules of a subject: how it is made and opened, what may be lost, what an operator may do,
//! what must stand on the disks.

use std::rc::Rc;

use plexum_block::device::IoError;

use super::scene::{Scene, World};
use crate::subject::{AfterRefusal, Attempt, Context, Ended, Purpose, Refusal, Subject};
use plexum_disks::disk::SimDisk;
use plexum_disks::fault::Fault;

/// What a subject promises, told to the world. What has a body need not be told.
#[allow(async_fn_in_trait)] // the world has one thread
pub trait Rules: Subject {
    /// How the lost disk of a crash is counted.
    const LOST: &'static str;

    /// Whether answered writes wait in the program's memory: a kill takes them then, as a power cut does.
    const WAITS_IN_MEMORY: bool = false;

    /// Before the first life. How that begins.
    ///
    /// # Errors
    /// Why nothing could be made.
    fn prepare(scene: &Scene<Self>) -> Result<Attempt, String> {
        let _ = scene;
        Ok(Attempt::Create)
    }

    /// Makes it, or starts it from what is on the disks that are present.
    ///
    /// # Errors
    /// Why it may not be started.
    async fn begin(
        context: &Context,
        scene: &Scene<Self>,
        attempt: Attempt,
        disks: Vec<SimDisk>,
    ) -> Result<Self, Refusal>;

    /// By volume: its size when it was made.
    fn sizes_bytes(subject: &Self, plan: &Self::Plan) -> Vec<u64>;

    /// A life begins.
    fn enter(scene: &Scene<Self>) {
        let _ = scene;
    }

    /// Whether nobody is there who could know that what he has is old: no start is tried any more.
    fn is_left_to_the_stale(scene: &Scene<Self>) -> bool {
        let _ = scene;
        false
    }

    /// Looks at what has started.
    fn welcome(scene: &Scene<Self>, subject: &Self);

    /// Whether it is right that a start is refused without force.
    fn may_be_refused(scene: &Scene<Self>) -> bool;

    /// A start was refused, and force is of no use.
    fn after_refusal(world: &mut World<Self>, attempt: Attempt, refusal: &Refusal) -> AfterRefusal {
        let _ = (world, attempt, refusal);
        AfterRefusal::Wrong
    }

    /// Whether an error answer is right now.
    fn may_answer(scene: &Scene<Self>, error: IoError) -> bool {
        let _ = error;
        scene.are_errors_allowed.get()
    }

    /// Forgets what is settled, before something is asked.
    fn review(scene: &Scene<Self>) {
        let _ = scene;
    }

    /// By slot: number of the disk that has it.
    fn slots(scene: &Scene<Self>) -> Vec<Option<u32>>;

    /// Where a fault of a plan falls on a disk.
    fn placed(scene: &Scene<Self>, disk: u32, fault: &Fault) -> Fault {
        let _ = (scene, disk);
        fault.clone()
    }

    /// Whether a fault may strike this disk now.
    fn admits(scene: &Scene<Self>, disk: u32, fault: &Fault) -> bool;

    /// Whether the member on this disk may be taken out now.
    fn may_lose(scene: &Scene<Self>, disk: u32) -> bool;

    /// A disk for this purpose, if it is wanted and there is one.
    fn spare_for(scene: &Scene<Self>, purpose: Purpose) -> Option<u32>;

    /// Whether the operator and the disks may do anything now.
    fn is_open_to_wishes(scene: &Scene<Self>) -> bool {
        let _ = scene;
        true
    }

    /// Pulls one cable too many out. Whether it did.
    fn unplug(scene: &Scene<Self>, slot: usize) -> bool {
        let _ = (scene, slot);
        false
    }

    /// Whether a crash stays within the promise now.
    fn may_crash(scene: &Scene<Self>) -> bool {
        let _ = scene;
        true
    }

    /// Whether an orderly stop can be asked for.
    fn may_stop(scene: &Scene<Self>) -> bool {
        let _ = scene;
        true
    }

    /// Whether a crash that is due gives way to a stop.
    fn stops_instead(world: &mut World<Self>) -> bool {
        let _ = world;
        false
    }

    /// The machine is about to go off at the end of life `number`. A disk that is not there when it comes on again.
    fn before_off(world: &mut World<Self>, number: usize, ended: Ended) -> Option<u32>;

    /// Disks are back as they come back by themselves; now whatever else ends with a life.
    fn after_off(scene: &Scene<Self>);

    /// What the disks say now, and what the operator does while nothing runs.
    fn between(scene: &Scene<Self>, number: usize);

    /// Somebody else has the array between two lives. What he did, for counting.
    fn lend(scene: &Scene<Self>, salt: u64) -> Option<&'static str> {
        let _ = (scene, salt);
        None
    }

    /// Whether everything must become whole at the end.
    fn has_finale(scene: &Scene<Self>) -> bool {
        let _ = scene;
        true
    }

    /// What is tried once everything is whole and was read.
    async fn try_last(scene: &Rc<Scene<Self>>) {
        let _ = scene;
    }

    /// Looks at the disks alone, after the last stop.
    fn compare(scene: &Scene<Self>);
}
