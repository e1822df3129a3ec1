//! The end of a run: all faults over, the subject made whole again, then everything is compared.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;

use super::rules::Rules;
use super::scene::{Scene, World};
use super::{client, operator};
use crate::finding::Finding;
use crate::subject::{Operation, Purpose};
use plexum_disks::disk::SimDisk;

/// Between two looks at a subject that is becoming whole.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// So long after a member has been pulled and plugged in again somebody has noticed, without any I/O to it.
const NOTICED_AFTER: Duration = Duration::from_secs(3);

impl<S: Rules> World<S> {
    pub(super) fn finale(&mut self) {
        let scene = Rc::clone(&self.scene);
        if scene.subject.borrow().is_none() || !S::has_finale(&scene) || !self.mend() {
            return;
        }
        self.stop();
        if let Some(what) = scene.subject().leaks() {
            scene.find(Finding::Leak(what));
        }
        if !scene.has_findings() && !scene.are_errors_allowed.get() {
            S::compare(&scene);
        }
    }

    /// Ends all faults, makes everything whole, reads it. Whether that came to an end.
    pub(super) fn mend(&mut self) -> bool {
        let scene = Rc::clone(&self.scene);
        let is_one_away = scene.disks.iter().any(|disk| !disk.is_present());
        scene.disks.iter().for_each(SimDisk::end_faults);
        let is_done = Rc::new(Cell::new(false));
        let (done, inside) = (Rc::clone(&is_done), Rc::clone(&scene));
        self.executor.spawn(async move {
            if is_one_away {
                inside.clock.sleep(NOTICED_AFTER).await;
            }
            // Beyond the promise rows may stay in doubt until they are written whole: it need not become whole.
            if !inside.are_errors_allowed.get() {
                make_whole(&inside).await;
            }
            client::read_all(&inside).await;
            if !inside.has_findings() {
                S::try_last(&inside).await;
            }
            done.set(true);
        });
        let has_ended = self.drive_until(|| is_done.get());
        if !has_ended && !scene.has_findings() {
            let text = scene.subject().describe();
            scene.find(Finding::NotWhole(text));
        }
        has_ended
    }
}

/// Gives the subject disks until it lacks none, and waits until nothing is left to do.
async fn make_whole<S: Rules>(scene: &Rc<Scene<S>>) {
    scene.subject().settled().await;
    while !scene.subject().is_whole() {
        if let Some(disk) = S::spare_for(scene, Purpose::Mend) {
            operator::operate(scene, "add", Operation::Add { disk }).await;
        }
        scene.clock.sleep(LOOK_AGAIN).await;
    }
}
