//! What is known of the machine: its memory, its queues, what was agreed on.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::config::{Cache, QUEUES_MAX, feature};
use crate::inflight::{Inflight, InflightError};
use crate::peer::{Call, Peer};
use crate::ring::{Ring, RingError, RingSetup};
use crate::table::Table;
use crate::wire::RingPlace;

/// One queue as messages have set it up.
pub(super) struct Queue<P: Peer> {
    pub(super) size: Option<u16>,
    pub(super) place: Option<RingPlace>,
    pub(super) base: u16,
    pub(super) kick: Option<Rc<P::Kick>>,
    pub(super) call: Option<P::Call>,
    pub(super) error: Option<P::Call>,
    /// As it was said; before that as the protocol has it.
    pub(super) is_enabled: Option<bool>,
    /// It is to be stopped: nothing more is taken.
    pub(super) is_stopping: bool,
    pub(super) is_broken: bool,
    /// There once it is worked on.
    pub(super) ring: Option<Ring>,
    /// What an earlier session has left.
    pub(super) left: VecDeque<u16>,
    pub(super) next_turn: u64,
    /// Rises with each message about it.
    pub(super) changes: u64,
}

impl<P: Peer> Queue<P> {
    fn new() -> Self {
        Self {
            size: None,
            place: None,
            base: 0,
            kick: None,
            call: None,
            error: None,
            is_enabled: None,
            is_stopping: false,
            is_broken: false,
            ring: None,
            left: VecDeque::new(),
            next_turn: 0,
            changes: 0,
        }
    }

    /// Whether requests are taken from it.
    pub(super) fn is_running(&self) -> bool {
        self.ring.is_some()
            && self.is_enabled != Some(false)
            && !self.is_stopping
            && !self.is_broken
    }

    /// It has broken the rules: it is told, and left alone.
    pub(super) fn break_off(&mut self) {
        self.is_broken = true;
        if let Some(error) = &self.error {
            error.signal();
        }
    }

    /// Nothing of it is under way any more; gives the next entry to be done. It has to be set up anew.
    pub(super) fn stop(&mut self) -> u16 {
        if let Some(ring) = self.ring.take() {
            self.base = ring.next_available();
        }
        self.kick = None;
        self.left.clear();
        self.is_stopping = false;
        self.is_broken = false;
        self.base
    }
}

/// Why a queue cannot be begun.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeginError {
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error(transparent)]
    Inflight(#[from] InflightError),
}

/// All of a machine.
pub(super) struct Machine<P: Peer> {
    /// Features that the driver has taken.
    pub(super) features: u64,
    /// Features of the protocol that the front end has taken.
    pub(super) protocol: u64,
    /// As the driver has chosen.
    pub(super) cache: Cache,
    pub(super) table: Table<P::Mapping>,
    pub(super) inflight: Option<Inflight<P::Mapping>>,
    pub(super) backend: Option<P::Backend>,
    pub(super) queues: Vec<Queue<P>>,
}

impl<P: Peer> Machine<P> {
    pub(super) fn new() -> Self {
        Self {
            features: 0,
            protocol: 0,
            cache: Cache::Back,
            table: Table::default(),
            inflight: None,
            backend: None,
            queues: Vec::new(),
        }
    }

    /// The queue of a number, which is made when it is new.
    pub(super) fn queue(&mut self, number: u32) -> Result<(usize, &mut Queue<P>), String> {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        if index >= usize::from(QUEUES_MAX) {
            return Err(format!(
                "there is no queue {number}: {QUEUES_MAX} are the most"
            ));
        }
        while self.queues.len() <= index {
            self.queues.push(Queue::new());
        }
        Ok((index, &mut self.queues[index]))
    }

    /// Whether answered writes have to be durable: the driver does not flush, or has chosen so.
    pub(super) fn writes_through(&self) -> bool {
        let has = |feature| self.features & feature != 0;
        !has(feature::FLUSH) || has(feature::CONFIG_WCE) && self.cache == Cache::Through
    }

    /// Begins to work on a queue when all is there that it needs.
    pub(super) fn begin(&mut self, index: usize) -> Result<(), BeginError> {
        // Without features of the protocol nobody says that a queue is to be worked on.
        let is_said = self.features & feature::PROTOCOL != 0 || self.protocol != 0;
        let queue = &mut self.queues[index];
        let is_enabled = queue.is_enabled.unwrap_or(!is_said);
        let (Some(size), Some(place), true) = (queue.size, queue.place, is_enabled) else {
            return Ok(());
        };
        if queue.ring.is_some() || queue.is_broken || queue.kick.is_none() {
            return Ok(());
        }
        let setup = RingSetup {
            descriptors: size,
            place,
            has_event_index: self.features & feature::EVENT_INDEX != 0,
        };
        let mut ring = Ring::begin(setup, queue.base, &self.table)?;
        if let Some(inflight) = &self.inflight
            && inflight.covers((index, usize::from(size)))
        {
            let left = inflight.take_over(index, (size, ring.next_used()))?;
            // Each entry that was taken is given back or under way.
            let next = ring.next_used().wrapping_add(left.heads.len() as u16);
            ring = Ring::begin(setup, next, &self.table)?;
            for head in &left.heads {
                ring.note_under_way(*head)?;
            }
            queue.next_turn = left.next_turn;
            queue.left = left.heads.into();
        }
        queue.ring = Some(ring);
        Ok(())
    }

    /// The record of a queue's requests under way, when it has one.
    pub(super) fn record(&self, index: usize) -> Option<&Inflight<P::Mapping>> {
        let size = self.queues[index].ring.as_ref()?.size();
        self.inflight
            .as_ref()
            .filter(|record| record.covers((index, size)))
    }
}
