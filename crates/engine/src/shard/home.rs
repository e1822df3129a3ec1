//! The home of a volume on several cores: opens and shuts the door, lends slabs and marks, does what satellites hand
//! over (W12).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::ops::{Deref, Range};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use plexum_exec::mailbox::{Answer, Mailbox, Reply, Sender, mailbox, reply};

use super::doorkeeper::Doorkeeper;
use super::{
    Door, Errand, Learned, Lent, MemberTally, Opening, Request, SHARDS_MAX, ShardSeed, Slabs,
    ToHome, ToShard,
};
use crate::drive::DriveCounters;
use crate::mutant::Mutant;
use crate::state::{MemberId, Standing};
use crate::volume::Volume;
use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::lock::RangeGuard;
use plexum_block::ranges::RangeSet;
use plexum_block::wait::{Few, join_all};

/// Starts a task on the thread that calls it.
pub type Spawn = Rc<dyn Fn(Pin<Box<dyn Future<Output = ()>>>)>;

/// How far a satellite has given back what it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has nothing, and no I/O under way.
    Home,
    /// It serves.
    Out,
    /// It has nothing; I/Os that nobody waits for any more may still be under way.
    Back,
}

struct Link {
    sender: Sender<ToShard>,
    stage: Cell<Stage>,
}

/// What is lent to a satellite until it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Slab(u32),
    Mark(usize),
}

/// A volume's sharing, at the home.
pub(crate) struct Sharing {
    door: Arc<Door>,
    slabs: Slabs,
    /// Of shard 1 and on.
    links: Vec<Link>,
    /// What members have done for each.
    tallies: Vec<MemberTally>,
    last_epoch: Cell<u64>,
    /// Whether writes are lent at this opening.
    takes_writes: Cell<bool>,
    /// Dropping one ends the task that holds the lock or the mark.
    held: RefCell<BTreeMap<(usize, Thing), Reply<()>>>,
    inbox: RefCell<Option<Mailbox<(usize, ToHome)>>>,
    /// Keeps the inbox open when all satellites are gone.
    _home: Sender<(usize, ToHome)>,
}

impl Sharing {
    fn send(&self, shard: usize, message: ToShard) {
        // Its thread is gone only when the process ends.
        let _ = self.links[shard - 1].sender.send(message);
    }

    /// Notes what is lent; the answer comes when it is back.
    fn keep(&self, shard: usize, thing: Thing) -> Answer<()> {
        let (kept, back) = reply();
        self.held.borrow_mut().insert((shard, thing), kept);
        back
    }

    fn is_back(&self, shard: usize, thing: Thing) {
        self.held.borrow_mut().remove(&(shard, thing));
    }

    fn all_back(&self, shard: usize) {
        let mut held = self.held.borrow_mut();
        held.retain(|(holder, _), _| *holder != shard);
    }

    fn all_are(&self, is_it: impl Fn(Stage) -> bool) -> bool {
        self.links.iter().all(|link| is_it(link.stage.get()))
    }

    /// Whether satellites may serve.
    pub(super) fn is_open(&self) -> bool {
        self.door.epoch().is_some()
    }

    /// Whether nobody has anything that was lent, and nothing is under way.
    pub(super) fn is_everybody_home(&self) -> bool {
        self.all_are(|stage| stage == Stage::Home)
    }

    /// Whether nobody has anything that was lent.
    pub(super) fn is_nobody_out(&self) -> bool {
        self.all_are(|stage| stage != Stage::Out)
    }

    pub(super) fn shut(&self) {
        self.door.set(0);
        for link in &self.links {
            if link.stage.get() == Stage::Out {
                let _ = link.sender.send(ToShard::Shut);
            }
        }
    }
}

impl<D: Device, C: Clock> Volume<D, C> {
    /// Divides the volume among `shards` (2 to [`SHARDS_MAX`]); the seeds are those of all but the home, in order. Each
    /// goes to its thread and becomes a [`Satellite`](super::Satellite); the home runs `run_sharing`. Only once in the
    /// life of a volume.
    ///
    /// # Panics
    /// When it is shared already, or for another number of shards.
    pub fn share(&self, shards: usize) -> Vec<ShardSeed> {
        assert!((2..=SHARDS_MAX).contains(&shards), "a few shards");
        let door = Arc::new(Door::default());
        let slabs = Slabs::new(self.base().geometry(), shards);
        let (home, inbox) = mailbox(usize::MAX);
        let (senders, inboxes): (Vec<_>, Vec<_>) = (1..shards).map(|_| mailbox(usize::MAX)).unzip();
        let tallies: Vec<MemberTally> = (1..shards).map(|_| MemberTally::default()).collect();
        let seeds = inboxes.into_iter().enumerate().map(|(index, inbox)| {
            let peer = |(number, sender): (usize, &Sender<ToShard>)| {
                (number != index).then(|| sender.clone())
            };
            ShardSeed {
                number: index + 1,
                name: self.base().name().to_owned(),
                geometry: self.base().geometry().clone(),
                slabs: slabs.clone(),
                tally: tallies[index].clone(),
                door: Arc::clone(&door),
                home: home.clone(),
                peers: std::iter::once(None)
                    .chain(senders.iter().enumerate().map(peer))
                    .collect(),
                inbox,
            }
        });
        let seeds: Vec<ShardSeed> = seeds.collect();
        let links = senders.into_iter().map(|sender| Link {
            sender,
            stage: Cell::new(Stage::Home),
        });
        let sharing = Sharing {
            door,
            slabs,
            links: links.collect(),
            tallies,
            last_epoch: Cell::new(0),
            takes_writes: Cell::new(false),
            held: RefCell::default(),
            inbox: RefCell::new(Some(inbox)),
            _home: home.clone(),
        };
        let sharing = Rc::new(sharing);
        self.base()
            .set_guard(Box::new(Doorkeeper::new(self, &sharing)));
        let is_first = self.division().sharing.set(sharing).is_ok();
        assert!(is_first, "a volume is shared once");
        seeds
    }

    /// What a member has done for all satellites together.
    pub(crate) fn counters_of_shards(&self, member: MemberId) -> DriveCounters {
        let mut sum = DriveCounters::default();
        for tally in self
            .division()
            .sharing
            .get()
            .iter()
            .flat_map(|sharing| &sharing.tallies)
        {
            sum.add(&tally.of(member));
        }
        sum
    }

    /// Where writes are the home's own, however the volume is divided: bytes of the volume, ascending.
    pub fn own_ranges(&self) -> Vec<Range<u64>> {
        let all = 0..self.base().geometry().volume_bytes();
        let sharing = self.division().sharing.get();
        sharing.map_or_else(|| vec![all], |sharing| sharing.slabs.ranges_of(0))
    }

    /// Whether I/O of a satellite may be under way on members of an opening that has ended (W9).
    pub(crate) fn is_draining_shards(&self) -> bool {
        self.base().is_shared_now()
            && self
                .division()
                .sharing
                .get()
                .is_some_and(|sharing| !sharing.is_open())
    }

    /// Opens the door when everything is ordinary and at home.
    fn try_open(&self) {
        let Some(sharing) = self.division().sharing.get() else {
            return;
        };
        if sharing.is_open()
            || !sharing.is_everybody_home()
            || !Doorkeeper::new(self, sharing).may_share()
        {
            return;
        }
        let Some(members) = self.lent_members() else {
            return;
        };
        let epoch = sharing.last_epoch.get() + 1;
        sharing.last_epoch.set(epoch);
        let takes_writes = self.intent().stripe_log().is_none() && !self.intent().has_ppl();
        sharing.takes_writes.set(takes_writes);
        self.copies().forget_ahead();
        let options = self.base().options();
        let regions = self.intent().regions();
        let opening = Opening {
            epoch,
            members,
            sync_bytes: regions.sync_bytes(),
            region_bytes: regions.region_bytes(),
            takes_writes,
            has_bad_lists: self.has_bad_lists(),
            bug: options.bug,
            balance: options.balance,
            member_timeout: options.member_timeout,
        };
        for link in &sharing.links {
            link.stage.set(Stage::Out);
            let _ = link.sender.send(ToShard::Open(opening.clone()));
        }
        sharing.door.set(epoch);
    }

    /// Whether a bad block of any member could be recorded now.
    fn has_bad_lists(&self) -> bool {
        let mut one = RangeSet::new();
        one.insert(0..512);
        let metadata = self.array().metadata();
        let drives = self.array().drives();
        let mut all = drives.iter().flatten();
        all.all(|drive| metadata.has_room_for_bad(drive.id, &one))
    }

    /// Who serves the slots, for satellites; `None` when one of them cannot be opened a second time.
    fn lent_members(&self) -> Option<Vec<Lent>> {
        let state = self.array().state();
        let drives = self.array().drives();
        let mut members = Vec::new();
        for (record, drive) in state.members.iter().zip(drives.iter()) {
            let (Standing::Active, Some(slot), Some(drive)) = (record.standing, record.slot, drive)
            else {
                continue;
            };
            members.push(Lent {
                id: drive.id,
                slot,
                is_write_mostly: record.is_write_mostly,
                name: drive.name.clone(),
                handle: drive.device().handle()?,
                data: drive.data_range(),
            });
        }
        Some(members)
    }

    /// Does the home's part until `stop`: give it a task of its own. `home` is the volume; `spawn` starts tasks on this
    /// thread.
    pub async fn run_sharing<H>(home: H, spawn: Spawn)
    where
        H: Deref<Target = Self> + Clone + 'static,
        D: 'static,
        C: 'static,
    {
        let this: &Self = &home;
        let Some(sharing) = this.division().sharing.get().cloned() else {
            return;
        };
        let Some(mut inbox) = sharing.inbox.take() else {
            return;
        };
        let is_over = || this.base().is_stopping() && sharing.is_nobody_out();
        while !is_over() {
            this.base().tell_guard();
            this.try_open();
            let change = this.base().changed().changed();
            if let Some((shard, message)) = next_message(&mut inbox, change).await {
                Self::hear(&home, &sharing, shard, message, &spawn);
            }
        }
    }

    fn hear<H>(home: &H, sharing: &Rc<Sharing>, shard: usize, message: ToHome, spawn: &Spawn)
    where
        H: Deref<Target = Self> + Clone + 'static,
        D: 'static,
        C: 'static,
    {
        let volume = home.clone();
        let this: &Self = home;
        match message {
            ToHome::Lend { slab, epoch } => {
                let sharing = Rc::clone(sharing);
                spawn(Box::pin(async move {
                    volume.lend_slab(&sharing, shard, slab, epoch).await;
                }));
            }
            ToHome::Mark { region, epoch } => {
                let sharing = Rc::clone(sharing);
                spawn(Box::pin(async move {
                    volume.lend_mark(&sharing, shard, region, epoch).await;
                }));
            }
            ToHome::SlabBack { slab } => sharing.is_back(shard, Thing::Slab(slab)),
            ToHome::MarksBack { regions } => {
                for region in regions {
                    sharing.is_back(shard, Thing::Mark(region));
                }
            }
            ToHome::Decline { epoch } => {
                if epoch == sharing.last_epoch.get() {
                    sharing.links[shard - 1].stage.set(Stage::Home);
                    this.base().changed().notify();
                }
            }
            ToHome::AllBack { epoch, learned } => {
                if epoch == sharing.last_epoch.get() {
                    this.take_back(sharing, shard, learned);
                }
            }
            ToHome::Drained { epoch } => {
                if epoch == sharing.last_epoch.get() {
                    sharing.links[shard - 1].stage.set(Stage::Home);
                    this.base().changed().notify();
                }
            }
            ToHome::Serve(errand) => spawn(Box::pin(async move { volume.do_errand(errand).await })),
        }
    }

    /// A satellite has given everything back. What it has learned is known here before any lock of it is free again.
    fn take_back(&self, sharing: &Sharing, shard: usize, learned: Learned) {
        for range in &learned.doubt {
            self.intent().learn_doubt(range);
        }
        for (member, range) in learned.bad {
            if let Some(drive) = self.array().drive(member) {
                let _ = self.array().record_bad(&drive, range); // the request is done again here, and tells
            }
        }
        for (member, cause) in learned.failures {
            self.array().fail_member(member, cause);
        }
        if sharing.is_open() {
            sharing.shut(); // it met with something that is not ordinary; the others come home too
        }
        sharing.links[shard - 1].stage.set(Stage::Back);
        sharing.all_back(shard);
        self.base().changed().notify();
    }

    /// Lends a slab: its lock is held here until the satellite gives it back, and it is called back when somebody wants
    /// the lock.
    async fn lend_slab(&self, sharing: &Sharing, shard: usize, slab: u32, epoch: u64) {
        let range = sharing.slabs.lock_range(slab);
        let mut lock = self.base().locks().lock(range.clone()).await;
        let is_lent = sharing.door.epoch() == Some(epoch);
        if !is_lent {
            sharing.send(
                shard,
                ToShard::Lent {
                    slab,
                    epoch,
                    is_lent,
                },
            );
            return;
        }
        // Read ahead is what copies hold: nothing of this slab is known here any more.
        let _unread = self
            .base()
            .has_copies()
            .then(|| self.copies().unread(range));
        let mut back = pin!(sharing.keep(shard, Thing::Slab(slab)));
        if self.base().has(Mutant::SlabLentWithoutLock) {
            let far = u64::MAX - 1 - (shard as u64 * 4096 + u64::from(slab)); // nobody's
            lock = self.base().locks().lock(far..far + 1).await;
        }
        sharing.send(
            shard,
            ToShard::Lent {
                slab,
                epoch,
                is_lent,
            },
        );
        let mut is_called_back = false;
        poll_fn(|cx| {
            if back.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if !is_called_back && poll_wanted(&lock, cx) {
                is_called_back = true;
                sharing.send(shard, ToShard::Recall { slab });
            }
            Poll::Pending
        })
        .await;
    }

    /// Lends a mark: the array is dirty and the region's bit durable (W1) until it is given back.
    async fn lend_mark(&self, sharing: &Sharing, shard: usize, region: usize, epoch: u64) {
        let range = self.intent().regions().range(region);
        let told = |is_marked| {
            let message = ToShard::Marked {
                region,
                epoch,
                is_marked,
            };
            sharing.send(shard, message);
        };
        let Ok(_in_flight) = self.traffic().enter_write(self.base().clock().now()).await else {
            return told(false);
        };
        let Ok(mark) = self.intent().mark(range).await else {
            return told(false);
        };
        if sharing.door.epoch() != Some(epoch) {
            return told(false);
        }
        let _lent = mark.lend();
        let back = sharing.keep(shard, Thing::Mark(region));
        told(true);
        let _ = back.await; // dropped is back as well
    }

    async fn do_errand(&self, errand: Errand) {
        let result = match errand.request {
            Request::Read {
                offset_bytes,
                length_bytes,
            } => self.read(offset_bytes, length_bytes).await,
            Request::Write {
                offset_bytes,
                data,
                fua,
            } => self
                .write(offset_bytes, data, fua)
                .await
                .map(|()| Rope::default()),
            Request::Zero {
                offset_bytes,
                length_bytes,
                mode,
                fua,
            } => self
                .zero(offset_bytes, length_bytes, mode, fua)
                .await
                .map(|()| Rope::default()),
            Request::Flush => self.flush().await.map(|()| Rope::default()),
        };
        errand.reply.send(result);
    }

    /// The sharing, while satellites write.
    fn shares_writes(&self) -> Option<&Rc<Sharing>> {
        let sharing = self.division().sharing.get();
        sharing.filter(|sharing| sharing.is_open() && sharing.takes_writes.get())
    }

    /// Whether clients of the home ask for `write_shared` now.
    #[inline]
    pub fn lends_writes(&self) -> bool {
        self.shares_writes().is_some()
    }

    /// As `write`, for clients of the home while satellites write: what lies in a satellite's slab is sent there, so
    /// that the slab need not be called back.
    ///
    /// # Errors
    /// As `write`.
    pub async fn write_shared(
        &self,
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
    ) -> Result<(), IoError> {
        let end = offset_bytes.saturating_add(data.len() as u64);
        let is_for_all = !data.is_empty() && end <= self.base().size_bytes();
        let Some(sharing) = self.shares_writes().filter(|_| is_for_all) else {
            return self.write(offset_bytes, data, fua).await;
        };
        let parts: Few<(u64, u64)> = sharing.slabs.cut(offset_bytes..end).collect();
        let parts = parts.into_iter().map(|(at, length)| {
            let start = usize::try_from(at - offset_bytes).expect("part of a request");
            let length = usize::try_from(length).expect("part of a request");
            self.write_part(sharing, at, data.slice(start..start + length), fua)
        });
        join_all(parts).await.into_iter().collect()
    }

    /// A part inside one slab.
    async fn write_part(
        &self,
        sharing: &Sharing,
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
    ) -> Result<(), IoError> {
        let owner = sharing.slabs.owner(sharing.slabs.of(offset_bytes));
        if owner > 0 && sharing.links[owner - 1].stage.get() == Stage::Out {
            let (reply, answer) = reply();
            let request = Request::Write {
                offset_bytes,
                data: data.clone(),
                fua,
            };
            sharing.send(owner, ToShard::Serve(Errand { request, reply }));
            if let Ok(result) = answer.await {
                return result.map(|_| ());
            }
        }
        self.write(offset_bytes, data, fua).await
    }
}

/// Whether somebody waits for a lock that is held; the waker is kept for when somebody does.
fn poll_wanted(lock: &RangeGuard<'_>, cx: &std::task::Context<'_>) -> bool {
    lock.is_wanted(cx.waker())
}

/// The next message, or nothing when something else has changed.
pub(super) async fn next_message<T>(
    inbox: &mut Mailbox<T>,
    change: impl Future<Output = ()>,
) -> Option<T> {
    let mut change = pin!(change);
    let mut message = pin!(inbox.receive());
    poll_fn(|cx| {
        if let Poll::Ready(message) = message.as_mut().poll(cx) {
            return Poll::Ready(message);
        }
        change.as_mut().poll(cx).map(|()| None)
    })
    .await
}
