//! A satellite: a shard of a volume on a thread of its own (W12). It serves with a volume of its own over the same
//! members, which has no metadata and stops at the first failure, and only what the home has lent it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use plexum_exec::mailbox::{Mailbox, Sender, reply};

use super::session::{Missing, Session, Teller, Using};
use super::{Errand, MemberTally, Opening, Request, ShardSeed, Slabs, Spawn, ToHome, ToShard};
use crate::mutant::Mutant;
use crate::shard::Door;
use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Extent, Fua, IoError, ZeroMode};
use plexum_block::wait::{Few, Signal, first, join, join_all};
use plexum_layout::Geometry;

/// Marks that were not used for so long are given back.
const MARKS_REST: Duration = Duration::from_secs(1);

/// How often it is looked whether abandoned I/Os have ended.
const DRAIN_PERIOD: Duration = Duration::from_millis(10);

/// What a satellite has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounters {
    /// Reads, and parts of writes inside a slab, that it served by itself.
    pub served: u64,
    /// Requests that it gave to the home.
    pub sent_home: u64,
}

/// Opens a member for a satellite's thread.
#[allow(async_fn_in_trait)] // one thread owns a shard; its futures are never sent
pub trait Opener<D> {
    /// Opens the storage that the home knows by `handle` (`Device::handle`) once more; `name` is for messages. `None`:
    /// it cannot be, and the satellite serves nothing.
    async fn open(&self, name: &str, handle: u64) -> Option<D>;
}

/// A shard of a volume on a thread of its own. Share it by `Rc`; give `run` a task.
pub struct Satellite<D: Device, C: Clock, O> {
    number: usize,
    name: String,
    geometry: Geometry,
    slabs: Slabs,
    tally: MemberTally,
    door: std::sync::Arc<Door>,
    home: Sender<(usize, ToHome)>,
    peers: Vec<Option<Sender<ToShard>>>,
    inbox: RefCell<Option<Mailbox<ToShard>>>,
    clock: C,
    pool: BufPool,
    opener: O,
    session: RefCell<Option<Rc<Session<D, C>>>>,
    counters: Cell<ShardCounters>,
    changed: Signal,
    is_ended: Cell<bool>,
}

impl<D: Device + 'static, C: Clock + Clone + 'static, O: Opener<D> + 'static> Satellite<D, C, O> {
    /// The satellite of `seed`, on the thread that calls.
    pub fn new(seed: ShardSeed, clock: C, pool: BufPool, opener: O) -> Self {
        Self {
            number: seed.number,
            name: seed.name,
            geometry: seed.geometry,
            slabs: seed.slabs,
            tally: seed.tally,
            door: seed.door,
            home: seed.home,
            peers: seed.peers,
            inbox: RefCell::new(Some(seed.inbox)),
            clock,
            pool,
            opener,
            session: RefCell::default(),
            counters: Cell::default(),
            changed: Signal::new(),
            is_ended: Cell::new(false),
        }
    }

    /// Does the satellite's part until the home is gone or `end`: give it one task. `spawn` starts tasks on this
    /// thread.
    pub async fn run(self: Rc<Self>, spawn: Spawn) {
        let Some(inbox) = self.inbox.take() else {
            return;
        };
        join(self.listen(inbox, &spawn), join(self.close(), self.tidy())).await;
    }

    /// Ends `run`. What is under way is not waited for: stop the volume first.
    pub fn end(&self) {
        self.is_ended.set(true);
        self.changed.notify();
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.geometry.volume_bytes()
    }

    /// What it has done.
    pub fn counters(&self) -> ShardCounters {
        self.counters.get()
    }

    fn count(&self, change: impl FnOnce(&mut ShardCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Whether the door is open and this satellite serves.
    pub fn is_serving(&self) -> bool {
        self.admit().is_some()
    }

    /// Where writes are this satellite's own: bytes of the volume, ascending.
    pub fn own_ranges(&self) -> Vec<Range<u64>> {
        self.slabs.ranges_of(self.number)
    }

    async fn listen(self: &Rc<Self>, mut inbox: Mailbox<ToShard>, spawn: &Spawn) {
        loop {
            let ended = || self.is_ended.get();
            let message = super::home::next_message(&mut inbox, self.changed.until(ended)).await;
            match message {
                None => break,
                Some(ToShard::Open(opening)) => self.open(opening, spawn).await,
                Some(ToShard::Serve(errand)) => {
                    let satellite = Rc::clone(self);
                    spawn(Box::pin(async move { satellite.do_errand(errand).await }));
                }
                Some(other) => {
                    if let Some(session) = self.session.borrow().as_ref() {
                        session.hear(other);
                    }
                }
            }
            self.changed.notify();
        }
        self.is_ended.set(true);
        self.changed.notify();
    }

    /// The door is open: members are opened, and a volume is made of them.
    async fn open(self: &Rc<Self>, opening: Opening, spawn: &Spawn) {
        let epoch = opening.epoch;
        let mut devices = Vec::new();
        for member in &opening.members {
            match self.opener.open(&member.name, member.handle).await {
                Some(device) => devices.push(device),
                None => return self.tell(ToHome::Decline { epoch }),
            }
        }
        let teller = Teller {
            number: self.number,
            home: self.home.clone(),
            tally: self.tally.clone(),
        };
        let parts = (self.name.clone(), self.geometry.clone());
        let session = Session::new(opening, devices, parts, &self.clock, &self.pool, teller);
        let session = Rc::new(session);
        *self.session.borrow_mut() = Some(Rc::clone(&session));
        spawn(Box::pin(async move { session.watch().await }));
    }

    /// Gives back what the home wants back, when nothing is under way any more.
    async fn close(&self) {
        loop {
            let is_due = || {
                let session = self.session.borrow();
                let is_shutting = session
                    .as_ref()
                    .is_some_and(|session| session.is_shutting());
                is_shutting || self.is_ended.get()
            };
            self.changed.until(is_due).await;
            if self.is_ended.get() {
                return;
            }
            let session = self.session.borrow().clone().expect("one that shuts");
            session.give_all_back().await;
            while !session.is_drained() {
                self.clock.sleep(DRAIN_PERIOD).await;
            }
            self.session.borrow_mut().take();
            self.tell(ToHome::Drained {
                epoch: session.epoch(),
            });
        }
    }

    /// Gives marks back that are not used any more, so that bits can be cleared and the array be marked clean.
    async fn tidy(&self) {
        while !self.is_ended.get() {
            let has_marks = || {
                let session = self.session.borrow();
                session.as_ref().is_some_and(|session| session.has_marks())
            };
            self.changed
                .until(|| has_marks() || self.is_ended.get())
                .await;
            let ended = self.changed.until(|| self.is_ended.get());
            first(self.clock.sleep(MARKS_REST), ended).await;
            if let Some(session) = self.session.borrow().as_ref() {
                session.give_idle_marks_back();
            }
        }
    }

    fn tell(&self, message: ToHome) {
        let _ = self.home.send((self.number, message)); // a home that is gone wants to hear nothing
    }

    /// The session, as long as the door is open for it.
    fn admit(&self) -> Option<Rc<Session<D, C>>> {
        let session = self.session.borrow();
        let session = session.as_ref()?;
        self.is_open_for(session).then(|| Rc::clone(session))
    }

    fn is_open_for(&self, session: &Session<D, C>) -> bool {
        !session.is_shutting() && self.door.epoch() == Some(session.epoch())
    }

    fn takes_writes(&self) -> bool {
        let session = self.session.borrow();
        let session = session.as_ref();
        session.is_some_and(|session| self.is_open_for(session) && session.takes_writes())
    }

    /// Reads as `Volume::read` does.
    ///
    /// # Errors
    /// As there; `Failed` when the home is gone.
    pub async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<Rope, IoError> {
        if let Some(session) = self.admit() {
            let result = session.read(offset_bytes, length_bytes).await;
            self.look_after(&session);
            session.note_done();
            match result {
                Err(IoError::OutOfRange) => return Err(IoError::OutOfRange),
                Ok(rope) => {
                    self.count(|counters| counters.served += 1);
                    return Ok(rope);
                }
                _ => {} // the home can do more
            }
        }
        let request = Request::Read {
            offset_bytes,
            length_bytes,
        };
        self.ask_home(request).await
    }

    /// Writes as `Volume::write` does.
    ///
    /// # Errors
    /// As there; `Failed` when the home is gone.
    pub async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let end = offset_bytes.saturating_add(data.len() as u64);
        if !self.takes_writes() || data.is_empty() || end > self.size_bytes() {
            return self.write_at_home(offset_bytes, data, fua).await;
        }
        if self.slabs.of(offset_bytes) == self.slabs.of(end - 1) {
            return self.write_part(offset_bytes, data, fua).await;
        }
        let parts: Few<(u64, u64)> = self.slabs.cut(offset_bytes..end).collect();
        let parts = parts.into_iter().map(|(at, length)| {
            let start = usize::try_from(at - offset_bytes).expect("part of a request");
            let length = usize::try_from(length).expect("part of a request");
            self.write_part(at, data.slice(start..start + length), fua)
        });
        join_all(parts).await.into_iter().collect()
    }

    /// A part inside one slab: here, or by the shard that owns it.
    async fn write_part(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let slab = self.slabs.of(offset_bytes);
        let owner = self.slabs.owner(slab);
        if owner == self.number {
            return self.write_own(slab, offset_bytes, data, fua).await;
        }
        if let Some(Some(peer)) = self.peers.get(owner) {
            let (reply, answer) = reply();
            let request = Request::Write {
                offset_bytes,
                data: data.clone(),
                fua,
            };
            if peer.send(ToShard::Serve(Errand { request, reply })).is_ok()
                && let Ok(result) = answer.await
            {
                return result.map(|_| ());
            }
        }
        self.write_at_home(offset_bytes, data, fua).await
    }

    /// After something was learned of the members nothing more is taken on.
    fn look_after(&self, session: &Session<D, C>) {
        if session.has_learned() {
            session.shut();
            self.changed.notify();
        }
    }

    /// A part inside a slab of this satellite: under what the home has lent, or at home.
    async fn write_own(
        &self,
        slab: u32,
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
    ) -> Result<(), IoError> {
        if let Some(session) = self.admit()
            && let Some(sync) = session.sync_range(offset_bytes, data.len() as u64)
            && let Some(using) = self.borrow(&session, slab, sync.clone()).await
        {
            let result = session.write(offset_bytes, data.clone(), fua).await;
            self.look_after(&session);
            let is_settled = !session.has_learned() || session.has(Mutant::ShardAnswersUnsettled);
            drop(using);
            session.note_done();
            if is_settled
                && matches!(
                    result,
                    Ok(()) | Err(IoError::OutOfRange | IoError::ReadOnly)
                )
            {
                self.count(|counters| counters.served += 1);
                return result;
            }
            // The home hears what was learned before it gets the request (W3).
            if session.is_shutting() {
                session.all_is_back().await;
            }
        }
        self.write_at_home(offset_bytes, data, fua).await
    }

    /// Takes the slab and the marks that a write needs, from the home when they are not here. `None`: it lends nothing
    /// now.
    async fn borrow(
        &self,
        session: &Rc<Session<D, C>>,
        slab: u32,
        sync: Range<u64>,
    ) -> Option<Using<D, C>> {
        let mut asked: Vec<Missing> = Vec::new();
        loop {
            if !self.is_open_for(session) {
                return None;
            }
            let Some(missing) = session.missing(slab, &sync) else {
                return Some(Session::begin(session, slab, &sync));
            };
            if session.ask(missing) {
                if asked.contains(&missing) {
                    session.unask(missing);
                    return None; // refused, or called back before it could be used
                }
                asked.push(missing);
                let epoch = session.epoch();
                self.tell(match missing {
                    Missing::Slab(slab) => ToHome::Lend { slab, epoch },
                    Missing::Mark(region) => ToHome::Mark { region, epoch },
                });
            }
            session.changed().await;
        }
    }

    async fn write_at_home(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let request = Request::Write {
            offset_bytes,
            data,
            fua,
        };
        self.ask_home(request).await.map(|_| ())
    }

    /// As `Volume::zero`, always at home.
    ///
    /// # Errors
    /// As there; `Failed` when the home is gone.
    pub async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
        fua: Fua,
    ) -> Result<(), IoError> {
        let request = Request::Zero {
            offset_bytes,
            length_bytes,
            mode,
            fua,
        };
        self.ask_home(request).await.map(|_| ())
    }

    /// As `Volume::flush`, always at home: members are flushed once for all shards.
    ///
    /// # Errors
    /// As there; `Failed` when the home is gone.
    pub async fn flush(&self) -> Result<(), IoError> {
        self.ask_home(Request::Flush).await.map(|_| ())
    }

    /// As `Volume::extents`, of what is open here; elsewhere everything counts as data.
    ///
    /// # Errors
    /// `OutOfRange`.
    pub async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        if let Some(session) = self.admit() {
            return session
                .extents(offset_bytes, length_bytes, extents_max)
                .await;
        }
        let end = offset_bytes.checked_add(length_bytes);
        if end.is_none_or(|end| end > self.size_bytes()) {
            return Err(IoError::OutOfRange);
        }
        let (is_hole, is_zero) = (false, false);
        Ok(vec![Extent {
            length_bytes,
            is_hole,
            is_zero,
        }])
    }

    async fn ask_home(&self, request: Request) -> Result<Rope, IoError> {
        self.count(|counters| counters.sent_home += 1);
        let (reply, answer) = reply();
        self.tell(ToHome::Serve(Errand { request, reply }));
        answer.await.unwrap_or(Err(IoError::Failed))
    }

    async fn do_errand(&self, errand: Errand) {
        let result = match errand.request {
            Request::Write {
                offset_bytes,
                data,
                fua,
            } => self
                .write_own(self.slabs.of(offset_bytes), offset_bytes, data, fua)
                .await
                .map(|()| Rope::default()),
            other => self.ask_home(other).await,
        };
        errand.reply.send(result);
    }
}
