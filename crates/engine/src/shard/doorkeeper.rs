//! Who shuts the door of a shared volume when things are not ordinary any more (W12).

use std::rc::{Rc, Weak};

use super::home::Sharing;
use crate::array::Array;
use crate::base::{Base, Guard};
use crate::intent::Intent;
use crate::mutant::Mutant;
use crate::traffic::Traffic;
use crate::upkeep::Book;
use crate::volume::Volume;
use plexum_block::clock::Clock;
use plexum_block::device::Device;

/// Looks at the rooms of the home, and shuts the door when something is not ordinary. It keeps none of them alive.
pub(super) struct Doorkeeper<D: Device, C: Clock> {
    sharing: Rc<Sharing>,
    base: Weak<Base<C>>,
    array: Weak<Array<D, C>>,
    intent: Weak<Intent<D, C>>,
    traffic: Weak<Traffic<D, C>>,
    book: Weak<Book>,
}

impl<D: Device, C: Clock> Doorkeeper<D, C> {
    /// Of this home.
    pub(super) fn new(home: &Volume<D, C>, sharing: &Rc<Sharing>) -> Self {
        Self {
            sharing: Rc::clone(sharing),
            base: Rc::downgrade(home.base()),
            array: Rc::downgrade(home.array()),
            intent: Rc::downgrade(home.intent()),
            traffic: Rc::downgrade(home.traffic()),
            book: Rc::downgrade(home.upkeep().book()),
        }
    }

    /// Whether satellites may serve now: everything is ordinary.
    pub(super) fn may_share(&self) -> bool {
        let (Some(base), Some(array), Some(intent), Some(traffic), Some(book)) = (
            self.base.upgrade(),
            self.array.upgrade(),
            self.intent.upgrade(),
            self.traffic.upgrade(),
            self.book.upgrade(),
        ) else {
            return false;
        };
        let is_whole = !array.state().is_degraded()
            && !array.is_frozen()
            && array.fillings().is_empty()
            && array.is_settled()
            && array.is_even();
        let is_at_rest = book.job().is_none()
            && !book.is_scrubbing()
            && !base.is_stopping()
            && !traffic.is_switching()
            && !traffic.reads_wait();
        let has_bad = array.drives().iter().flatten().any(|drive| drive.has_bad());
        is_whole
            && is_at_rest
            && !has_bad
            && !base.is_read_only()
            && !intent.answers_from_log()
            && intent.regions().doubtful_count() == 0
    }
}

impl<D: Device, C: Clock> Guard for Doorkeeper<D, C> {
    fn look(&self) {
        let is_bug = |base: Rc<Base<C>>| base.has(Mutant::DoorStaysOpen) && !base.is_stopping();
        if self.sharing.is_open() && !self.may_share() && !self.base.upgrade().is_some_and(is_bug) {
            self.sharing.shut();
        }
    }

    fn is_shared_now(&self) -> bool {
        !self.sharing.is_everybody_home()
    }

    fn is_all_back(&self) -> bool {
        self.sharing.is_nobody_out()
    }
}
