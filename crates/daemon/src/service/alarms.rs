//! Alarms of the daemon: facts go in once a second, messages go out, what is decided is durable before it is told.
//!
//! Invariants:
//! - whatever becomes of the state folder, a mail program or a network, volumes are served: nothing here is waited for
//!   by them;
//! - what is to be told is told, also when it cannot be kept: a message that comes twice is better than none;
//! - an acknowledgement is answered when it is durable, or the answer says that it is not.

mod answers;
mod facts;
mod process;
mod records;
mod send;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::select;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use plexum_block::clock::Clock;
use plexum_block::wait::{Mutex, Signal};
use plexum_engine::volume::Redundancy;
use plexum_exec::mailbox::reply;
use plexum_incidents::Alarm;
use plexum_incidents::config::AlarmConfig;
use plexum_incidents::facts::{
    AbsentVolume, DaemonFacts, DiskFacts, Facts, RedundancyKind, VolumeFacts,
};
use plexum_incidents::message::{Message, Sender};
use plexum_incidents::outbox::Delivery;
use plexum_incidents::time::{MINUTE_S, UnixTime};
use plexum_runtime::Handle;
use serde_json::Value;

use super::pools::key_of_pool;
use crate::dataset::PoolServed;
use crate::date::local_zone;
use crate::disk::disk_facts;
use crate::host::Hosted;
use crate::memory::{Keeper, Kept, StateDir};
use crate::volume::status::{JSON_VERSION, VolumeStatus};
use facts::Known;
use records::Records;

/// Largest file of incidents that is read, in bytes: a hundred open ones are a tenth of it.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// What is not durable after so many seconds counts as not kept: the folder hangs.
const SAVE_S_MAX: u64 = 10;
/// Messages that are sent at once. Of a hundred that are due the others wait: each may be a program.
const SENDING_MAX: usize = 16;
/// How long messages under way, and the last save, are waited for at the end.
const END_WAIT: Duration = Duration::from_secs(5);

/// What the daemon knows beside its volumes.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    /// Volumes that should be there and are not.
    pub(super) absent: Vec<AbsentVolume>,
    /// Volumes, by what they are known by, whose members are waited for.
    pub(super) starting: Vec<String>,
}

/// All incidents, and the way of their messages. Belongs to the daemon's thread.
pub(super) struct Alarms {
    handle: Handle,
    config: AlarmConfig,
    /// What is wrong with the configuration, in a line.
    misconfigured: Option<String>,
    host: String,
    /// Whose clock the times of messages are by.
    zone: TimeZone,
    keeper: Option<Keeper>,
    alarm: RefCell<Alarm>,
    records: RefCell<Records>,
    /// What is known beside the incidents has changed since it was kept.
    has_news: Cell<bool>,
    /// One save at a time.
    saving: Mutex,
    saving_since: Cell<Option<UnixTime>>,
    /// Why what is decided cannot be kept.
    not_kept: RefCell<Option<String>>,
    /// Something was kept in this life: a sign of life before says what is not known.
    has_kept: Cell<bool>,
    /// Messages and signs of life under way.
    under_way: Cell<usize>,
    /// Messages that a thread is sending.
    sending: Cell<usize>,
    /// What became of the last sign of life.
    beat: RefCell<Option<Result<String, String>>>,
    /// Test messages under way, and what became of them.
    tests: RefCell<BTreeMap<String, Option<Result<String, String>>>>,
    /// Something under way has ended.
    ended: Signal,
}

impl Alarms {
    /// What was kept goes on; where it makes no sense, that is told and it begins anew. `configured` is what counts,
    /// and what is wrong with the rest; `known` are the volumes that the daemon has had before.
    pub(super) fn new(
        handle: &Handle,
        configured: (AlarmConfig, Option<String>),
        keeper: Option<Keeper>,
        dir: Option<&StateDir>,
        known: impl Iterator<Item = String>,
    ) -> (Rc<Self>, Option<String>) {
        let now = UnixTime(handle.clock().wall_seconds());
        let (config, misconfigured) = configured;
        let kept = match (dir, &keeper) {
            (Some(dir), Some(_)) => read(dir, &config),
            _ => Ok(None),
        };
        let (found, problem) = match kept {
            Ok(found) => (found, None),
            Err(problem) => (None, Some(problem)),
        };
        let (alarm, records) = found.unwrap_or_else(|| {
            let alarm = Alarm::new(config.subscriptions(), now.0 / MINUTE_S);
            let mut records = Records::default();
            // The daemon knows them, so nobody is making them now.
            for volume in known {
                records.note_whole(&volume);
            }
            (alarm, records)
        });
        let alarms = Rc::new(Self {
            handle: handle.clone(),
            alarm: RefCell::new(alarm.with_delays(config.delays)),
            records: RefCell::new(records),
            config,
            misconfigured,
            host: host_name(),
            zone: local_zone(),
            not_kept: RefCell::new(keeper.is_none().then(|| not_kept_at_all(dir))),
            keeper,
            has_news: Cell::new(true),
            saving: Mutex::new(),
            saving_since: Cell::default(),
            has_kept: Cell::default(),
            under_way: Cell::default(),
            sending: Cell::default(),
            beat: RefCell::default(),
            tests: RefCell::default(),
            ended: Signal::new(),
        });
        (alarms, problem)
    }

    /// Why what is decided cannot be kept, as far as that is known.
    pub(super) fn not_kept(&self) -> Option<String> {
        self.not_kept.borrow().clone()
    }

    /// Who sends messages now; the clock of this machine may have been put forward or back since the last one.
    fn sender(&self, now: UnixTime) -> Sender {
        let stamp = i64::try_from(now.0).ok().map(Timestamp::from_second);
        let offset = match stamp {
            Some(Ok(stamp)) => self.zone.to_offset(stamp).seconds(),
            _ => 0,
        };
        Sender {
            host: self.host.clone(),
            utc_offset_s: offset,
        }
    }

    fn now(&self) -> UnixTime {
        UnixTime(self.handle.clock().wall_seconds())
    }

    /// The facts of a volume that is served, and of its disks; none while it is being let go of.
    pub(super) fn volume(
        &self,
        identity: String,
        hosted: &Hosted,
    ) -> Option<(VolumeFacts, Vec<DiskFacts>)> {
        let served = hosted.served().ok()?;
        let status = hosted.status_of(&served);
        let kind = facts::kind_of(served.facts.level);
        Some(self.facts(identity, kind, &served.volume.redundancy(), &status))
    }

    /// The same of a pool, of which volumes are served: it is one thing that is lost or not. None while it is being
    /// closed.
    pub(super) fn pool(&self, pool: &PoolServed) -> Option<(VolumeFacts, Vec<DiskFacts>)> {
        let first = pool.volumes().into_iter().next()?;
        let status = VolumeStatus {
            volume: pool.report.name.clone(),
            ..pool.status(&first)
        };
        let identity = key_of_pool(&status.uuid).to_string();
        Some(self.facts(
            identity,
            facts::kind_of_pool(pool),
            &pool.redundancy(),
            &status,
        ))
    }

    fn facts(
        &self,
        identity: String,
        kind: RedundancyKind,
        redundancy: &Redundancy,
        status: &VolumeStatus,
    ) -> (VolumeFacts, Vec<DiskFacts>) {
        let mut records = self.records.borrow_mut();
        let is_whole =
            redundancy.missing.is_empty() && redundancy.losses_left == redundancy.losses_designed;
        if is_whole && records.note_whole(&identity) {
            self.has_news.set(true);
        }
        let known = Known {
            expected_missing: self
                .config
                .expected_missing_of(&status.volume, &status.uuid),
            is_new: !records.was_whole(&identity),
            kind,
            redundancy,
            status,
            identity,
        };
        let disks = disk_facts(status, &known.identity);
        (facts::of(&known, self.now()), disks)
    }

    /// Judges what is the case now, has it kept, and tells what is to be told. Once a second.
    pub(super) fn judge(
        self: &Rc<Self>,
        volumes: Vec<VolumeFacts>,
        disks: Vec<DiskFacts>,
        around: Surroundings,
    ) {
        let now = self.now();
        let saving_s = self
            .saving_since
            .get()
            .map_or(0, |since| now.since_s(since));
        if saving_s >= SAVE_S_MAX {
            let reason = "the folder of what is kept does not answer";
            *self.not_kept.borrow_mut() = Some(reason.to_owned());
        }
        let sender = self.sender(now);
        let facts = Facts {
            host: sender.host.clone(),
            utc_offset_s: sender.utc_offset_s,
            volumes,
            disks,
            daemon: DaemonFacts {
                journal_not_writable: self.not_kept.borrow().clone(),
                configuration: self.misconfigured.clone(),
                delivery_failures: Vec::new(), // the alarm knows them itself
                absent: around.absent,
                starting: around.starting,
            },
        };
        let notices = self.alarm.borrow_mut().run(&facts, now);
        for notice in &notices {
            let message = Message::of(notice, &sender, now);
            self.records.borrow_mut().note(notice, &message, now);
            self.has_news.set(true);
        }
        self.give_sign_of_life(now);
        self.go_on();
    }

    /// Saves what is not saved and sends what is due, beside everything else.
    fn go_on(self: &Rc<Self>) {
        if self.saving.is_locked() || !self.is_unsaved() {
            return self.send_due(); // what is tried again, and what waits for a folder that hangs
        }
        let alarms = Rc::clone(self);
        let _task = self.handle.spawn(async move {
            let _ = alarms.save().await; // why not is a fact of the next second
            alarms.send_due();
        });
    }

    fn is_unsaved(&self) -> bool {
        self.has_news.get() || self.alarm.borrow().unsaved().is_some()
    }

    /// Makes durable what is decided.
    ///
    /// # Errors
    /// Why it is not, in a sentence.
    async fn save(&self) -> Result<(), String> {
        let _turn = self.saving.lock().await;
        if !self.is_unsaved() {
            return Ok(()); // somebody else has saved it meanwhile
        }
        let Some(keeper) = &self.keeper else {
            return Err(self.not_kept.borrow().clone().unwrap_or_default());
        };
        let records = serde_json::to_string(&*self.records.borrow()).unwrap_or_default();
        let (revision, alarm) = self.alarm.borrow().whole();
        let text = format!(
            "{{\"version\":{JSON_VERSION},\"kind\":\"incidents\",\"alarm\":{alarm},\"records\":{records}}}\n"
        );
        self.has_news.set(false);
        self.saving_since.set(Some(self.now()));
        let kept = keeper.keep_durably(Kept::Incidents(text)).await;
        self.saving_since.set(None);
        self.has_news.set(self.has_news.get() || kept.is_err());
        if kept.is_ok() {
            self.alarm.borrow_mut().saved(revision);
        }
        self.has_kept.set(self.has_kept.get() || kept.is_ok());
        *self.not_kept.borrow_mut() = kept.as_ref().err().cloned();
        kept
    }

    /// Hands out what is to be sent now, each message to a thread of its own.
    fn send_due(self: &Rc<Self>) {
        let due = self.alarm.borrow_mut().due(self.now());
        for delivery in due {
            self.enter();
            let _task = self.handle.spawn(Rc::clone(self).deliver(delivery));
        }
    }

    async fn deliver(self: Rc<Self>, delivery: Delivery) {
        let Delivery { channel, message } = delivery;
        let id = message.id.clone();
        let configured = self.config.channels.iter().find(|one| one.name == channel);
        let result = match configured.map(|one| one.transport.clone()) {
            Some(transport) => {
                self.ended.until(|| self.sending.get() < SENDING_MAX).await;
                self.sending.set(self.sending.get() + 1);
                let result = in_a_thread(move || send::send(&transport, &message)).await;
                self.sending.set(self.sending.get() - 1);
                result
            }
            None => Err("it is not configured any more".to_owned()),
        };
        let now = self.now();
        let mut alarm = self.alarm.borrow_mut();
        match &result {
            Ok(answer) => alarm.arrived(&channel, &id, answer, now),
            Err(error) => alarm.failed(&channel, &id, error, now),
        }
        if let Some(test) = self.tests.borrow_mut().get_mut(&id) {
            alarm.withdraw(&channel, &id);
            *test = Some(result.clone());
        }
        drop(alarm);
        let mut records = self.records.borrow_mut();
        records.note_delivery(&id, &channel, &result, now);
        drop(records);
        self.has_news.set(true);
        self.leave();
        self.go_on();
    }

    fn give_sign_of_life(self: &Rc<Self>, now: UnixTime) {
        let Some(heartbeat) = self
            .config
            .heartbeat
            .as_ref()
            .filter(|_| self.has_kept.get())
        else {
            return;
        };
        if !self.alarm.borrow().is_heartbeat_due(heartbeat.every_s, now) {
            return;
        }
        self.alarm.borrow_mut().heartbeat_tried(now);
        self.enter();
        let (alarms, by) = (Rc::clone(self), heartbeat.by.clone());
        let _task = self.handle.spawn(async move {
            let result = in_a_thread(move || send::beat(&by)).await;
            if result.is_ok() {
                let now = alarms.now();
                alarms.alarm.borrow_mut().heartbeat_arrived(now);
            }
            *alarms.beat.borrow_mut() = Some(result);
            alarms.leave();
        });
    }

    fn enter(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    fn leave(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.ended.notify();
    }

    /// Waits a little for what is under way, and keeps what became of it: it would be sent again at the next start.
    pub(super) async fn end(self: Rc<Self>) {
        let closing = async {
            self.ended.until(|| self.under_way.get() == 0).await;
            let _ = self.save().await; // whoever reads it next is a later start, which sends again
        };
        let clock = self.handle.clock();
        let limit = clock.sleep(END_WAIT);
        select(pin!(closing), pin!(limit)).await;
    }
}

/// What a thread of its own comes to.
async fn in_a_thread(
    work: impl FnOnce() -> Result<String, String> + Send + 'static,
) -> Result<String, String> {
    let (told, answer) = reply();
    let thread = std::thread::Builder::new().name("alarm".into());
    thread
        .spawn(move || told.send(work()))
        .map_err(|error| format!("no thread to send it: {error}"))?;
    answer.await.unwrap_or_else(|gone| Err(gone.to_string()))
}

/// Name of this machine.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn not_kept_at_all(dir: Option<&StateDir>) -> String {
    let user = crate::runtime_dir::Surroundings::of_this_process().user_id;
    match dir.map(|dir| dir.ensure(user)) {
        None => "there is no folder for it, $HOME is not set".to_owned(),
        Some(Err(reason)) => reason,
        Some(Ok(())) => "its folder could not be used at the start".to_owned(),
    }
}

/// What was kept, if anything was.
///
/// # Errors
/// Why it makes no sense, in a line; it is moved out of the way.
fn read(dir: &StateDir, config: &AlarmConfig) -> Result<Option<(Alarm, Records)>, String> {
    let path = dir.incidents_path();
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| {
        let mut file = file.take(KEPT_BYTES_MAX);
        file.read_to_string(&mut text)
    });
    let result = match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => Err(crate::problem::words_of(&error)),
        Ok(_) => parse(&text, config),
    };
    result.map(Some).map_err(|reason| {
        let aside = path.with_extension("damaged");
        let moved = match std::fs::rename(&path, &aside) {
            Ok(()) => format!("it is {} now", aside.display()),
            Err(error) => format!("it stays there: {}", crate::problem::words_of(&error)),
        };
        format!("{}: {reason}; {moved}", path.display())
    })
}

fn parse(text: &str, config: &AlarmConfig) -> Result<(Alarm, Records), String> {
    let mut value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let alarm = value["alarm"].take().to_string();
    let alarm = Alarm::restore(&alarm, config.subscriptions());
    let alarm = alarm.map_err(|error| error.to_string())?;
    // They decide nothing: what is not understood of them is no reason to lose the incidents.
    let records = serde_json::from_value(value["records"].take()).unwrap_or_default();
    Ok((alarm, records))
}
