//! Rows of the parity organisations: what to read and write for a request, and doing it.
//!
//! Invariants:
//! - whoever writes to a row or makes its parity has its lock; members are looked at after that;
//! - parity that is not proven answers nothing and is not modified (W5): it is made of the whole row;
//! - a part whose parity could not be written is in doubt before anybody else has the row (W8).

pub(crate) mod collect;
pub(crate) mod expect;
pub mod plan;
mod read;
pub(crate) mod reconstruct;
#[cfg(test)]
mod tests;
mod write;

use std::rc::Rc;

use crate::array::Array;
use crate::base::Base;
use crate::intent::Intent;
use collect::Collector;
use expect::Expected;
use plexum_block::clock::Clock;
use plexum_block::device::Device;

/// Parity: one row after the other, over the members and what is known of their agreement. It knows nothing else.
pub(crate) struct Rows<D: Device, C: Clock> {
    base: Rc<Base<C>>,
    array: Rc<Array<D, C>>,
    intent: Rc<Intent<D, C>>,
    /// Partial writes that wait for their row.
    collector: Collector,
    expected: Expected,
}

impl<D: Device, C: Clock> Rows<D, C> {
    pub(crate) fn new(base: Rc<Base<C>>, array: Rc<Array<D, C>>, intent: Rc<Intent<D, C>>) -> Self {
        Self {
            base,
            array,
            intent,
            collector: Collector::default(),
            expected: Expected::default(),
        }
    }

    /// Writes that are about to come, as servers have told.
    pub(crate) fn expected(&self) -> &Expected {
        &self.expected
    }
}
