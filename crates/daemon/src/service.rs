//! The body of `plexum daemon`: a host that owns volumes for as long as it runs, and knows at each start which there
//! should be.
//!
//! Invariants:
//! - what was answered to whoever adds, stops or forgets a volume is durable, or the answer says that it is not;
//! - a volume that cannot be served keeps no other one from it: it waits, with the reason, and is tried again;
//! - nothing is forced at a start that somebody has forced once; a member that is missing is waited for before the
//!   volume starts without it, and only as far as the policy allows.

mod alarms;
mod judge;
mod returns;
mod tell;
mod tick;
mod waiting;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::select;
use plexum_block::clock::{Clock, Moment};
use plexum_block::wait::Mutex;
use plexum_runtime::Runtime;
use plexum_runtime::mailbox::{Mailbox, mailbox};
use plexum_runtime::signals::StopSignals;
use serde_json::{Value, json};

use crate::assembly::AssembleRequest;
use crate::config::{Config, ConfigProblem};
use crate::control::answers;
use crate::control::event::cause_words;
use crate::control::events::EventHub;
use crate::control::open_request::OpenRequest;
use crate::control::request::{Action, Answer, Ask, Request};
use crate::control::server::ControlServer;
use crate::expected::{Expected, Wanted};
use crate::host::{Host, HostSettings, Hosted, Refusal};
use crate::memory::{Keeper, Kept, Key, StateDir};
use crate::problem::{Code, Problem};
use crate::runtime_dir::{Surroundings, check_socket_path, free_socket_path};
use crate::serve::{ASKS_MAX, Message, post};
use crate::volume::ops::act;
use crate::volume::status::{JSON_VERSION, MemberState, VolumeStatus};
use plexum_engine::state::FailCause;

use alarms::Alarms;
use tell::ready;
use tick::Tick;
pub use waiting::Waiting;
use waiting::{Entry, is_there};

/// How often it is looked who waits and who has returned.
const LOOK_EVERY_S: u64 = 2;

/// Whether a volume starts without a member that was there at the last stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DegradedStart {
    /// Never by itself.
    Never,
    /// When the wait is over, where nothing can be wrong with the data: it was stopped cleanly, or a log or copies have
    /// what was being written.
    #[default]
    IfSafe,
}

/// How volumes start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartPolicy {
    /// How long a member is waited for, counted from when somebody of the volume was seen first.
    pub wait: Duration,
    /// What comes then.
    pub degraded: DegradedStart,
}

impl Default for StartPolicy {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(30),
            degraded: DegradedStart::IfSafe,
        }
    }
}

/// What the daemon is started with.
#[derive(Clone, Debug)]
pub struct ServiceRequest {
    /// What holds for all volumes.
    pub settings: HostSettings,
    /// How volumes start.
    pub start: StartPolicy,
    /// What is configured.
    pub config: Config,
    /// What is wrong with the configuration: that does not count.
    pub config_problems: Vec<ConfigProblem>,
}

/// The daemon. Belongs to one thread.
struct Service {
    host: Rc<Host>,
    keeper: Option<Keeper>,
    start: StartPolicy,
    entries: RefCell<BTreeMap<Key, Entry>>,
    alarms: Rc<Alarms>,
    tick: Tick,
    started: Moment,
    /// One volume at a time gets or loses its place.
    turn: Mutex,
    is_ending: Cell<bool>,
}

/// Serves until told to end. `ready` is called once, when every volume was tried that should be there; it hears why
/// something that is kept could not be read.
///
/// # Errors
/// `SocketInUse` when another daemon runs; what keeps any daemon from running; after the start, what went wrong with
/// stopping.
pub fn run(
    request: ServiceRequest,
    ready: &mut dyn FnMut(&Value) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let folder = request.settings.runtime_dir.clone();
    folder.ensure(&Surroundings::of_this_process())?;
    let socket = folder.daemon_socket();
    free_socket_path(&socket)?;
    let io = request.settings.io;
    let mut runtime =
        Runtime::new(io).map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    handle.set_spin(request.settings.spin);
    let (sender, inbox) = mailbox(ASKS_MAX);
    let events = EventHub::default();
    let state_dir = request.settings.state_dir.clone();
    let misconfigured = lines_of(&request.config_problems);
    let lacking = request.config.lacking_programs();
    let configured = (request.config.alarm, misconfigured.first().cloned());
    let host = Host::new(&handle, request.settings, events.clone())?;
    let control = Rc::new(ControlServer::start(
        vec![socket.clone()],
        post(&sender),
        events,
    )?);
    host.set_control(Rc::clone(&control));
    let signals = StopSignals::new(&handle)
        .map_err(|error| Problem::from_io(&error, "catching", "signals"))?;
    let _watcher = handle.spawn(async move {
        signals.next().await;
        let _ = sender.send(Message::StopAll);
    });
    let dir = state_dir.as_ref();
    let (known, mut problems) = dir.map_or_else(Default::default, StateDir::expected);
    let keys = known.iter().map(|expected| expected.key().to_string());
    let (alarms, unread) = Alarms::new(&handle, configured, host.keeper(), dir, keys);
    problems.extend(unread);
    let service = Service::new(&host, request.start, known, alarms);
    let result = {
        let mut judging = pin!(Rc::clone(&service).keep_judging());
        // A member that hangs keeps nobody from being told.
        let trying = pin!(Rc::clone(&service).try_all());
        runtime.block_on(select(trying, judging.as_mut()));
        let told = ready(&json!({
            "version": JSON_VERSION, "kind": "daemon", "socket": socket, "problems": problems,
            "configuration": misconfigured, "not_kept": service.alarms.not_kept(), "channels": lacking,
            "volumes": host.list().len(), "waiting": service.waiting(),
        }));
        if told.is_ok() {
            let hearing = pin!(Rc::clone(&service).hear(inbox));
            let looking = pin!(Rc::clone(&service).look_again());
            runtime.block_on(select(hearing, select(looking, judging)));
        }
        told
    };
    runtime.block_on(Rc::clone(&service).stop_all());
    runtime.block_on(Rc::clone(&service.alarms).end());
    host.end();
    let result = result.and(host.failure().map_or(Ok(()), Err));
    drop((service, host, handle, runtime, control));
    result
}

/// Whether a daemon could be started; changes nothing.
///
/// # Errors
/// As `run`.
pub fn rehearse(request: &ServiceRequest) -> Result<(), Problem> {
    let folder = &request.settings.runtime_dir;
    folder.check(&Surroundings::of_this_process())?;
    check_socket_path(&folder.daemon_socket()).map(drop)
}

impl Service {
    fn new(
        host: &Rc<Host>,
        start: StartPolicy,
        known: Vec<Expected>,
        alarms: Rc<Alarms>,
    ) -> Rc<Self> {
        let entries = known.into_iter().map(|expected| {
            let entry = Entry::new(expected);
            (entry.expected.key(), entry)
        });
        Rc::new(Self {
            host: Rc::clone(host),
            keeper: host.keeper(),
            start,
            entries: RefCell::new(entries.collect()),
            alarms,
            tick: Tick::default(),
            started: host.handle().clock().now(),
            turn: Mutex::new(),
            is_ending: Cell::new(false),
        })
    }

    /// Answers what comes, until the end.
    async fn hear(self: Rc<Self>, mut inbox: Mailbox<Message>) {
        while let Some(message) = inbox.receive().await {
            match message {
                Message::StopAll => return,
                Message::Ask(ask) => self.answer(ask),
            }
        }
    }

    fn answer(self: &Rc<Self>, ask: Ask) {
        match &ask.request {
            Request::List => ask.answer(self.list()),
            Request::Alarm(request) => {
                let request = request.clone();
                self.alarms.answer(ask, request);
            }
            Request::Show { volume } if self.host.get(volume).is_none() => {
                match self.show_waiting(volume) {
                    Some(answer) => ask.answer(answer),
                    None => answers::answer(&self.host, ask),
                }
            }
            Request::Open { .. } | Request::Start { .. } | Request::Forget { .. } => {
                let _task = self.host.handle().spawn(Rc::clone(self).change(ask));
            }
            Request::Act {
                action: Action::Stop,
                ..
            } => {
                let _task = self.host.handle().spawn(Rc::clone(self).stop(ask));
            }
            _ => answers::answer(&self.host, ask),
        }
    }

    /// Changes which volumes there are.
    async fn change(self: Rc<Self>, ask: Ask) {
        let answer = match ask.request.clone() {
            Request::Open { open } => self.open(open).await,
            Request::Start { volume } => self.start_again(&volume).await,
            Request::Forget { volume } => self.forget(&volume).await,
            _ => return answers::answer(&self.host, ask),
        };
        ask.answer(answer);
    }

    /// Stops a volume; it stays stopped over starts, which is durable before it is stopped.
    async fn stop(self: Rc<Self>, ask: Ask) {
        let Request::Act { volume, .. } = &ask.request else {
            return answers::answer(&self.host, ask);
        };
        let volume = volume.clone();
        if let Err(problem) = self.want(&volume, Wanted::Stopped).await {
            return ask.answer(Err(problem));
        }
        match self.host.get(&volume).is_none() && self.key_of(&volume).is_some() {
            true => ask.answer(Ok(
                json!({"message": format!("{volume} is not waited for any more")}),
            )),
            false => answers::answer(&self.host, ask),
        }
    }

    /// Serves what is asked for, and expects it from now on.
    async fn open(&self, open: OpenRequest) -> Answer {
        if let Some(name) = &open.name {
            crate::create::check_name(name)?;
        }
        let request = open.assemble()?;
        let _turn = self.turn.lock().await;
        let opened = self.open_now(&request).await?;
        let mut told = Vec::new();
        for hosted in &opened {
            let Some(status) = hosted.status() else {
                continue;
            };
            let expected = Expected::of(&status, &open.for_later());
            let kept = self.expect(expected).await;
            let mut notes = hosted.notes().to_vec();
            notes.extend(kept.err().map(|reason| {
                format!(
                    "{} is not served at the next start: {reason}",
                    hosted.name()
                )
            }));
            told.push(ready(hosted, &notes));
        }
        Ok(json!({"version": JSON_VERSION, "kind": "opened", "volumes": told}))
    }

    /// Serves a volume again that is known.
    async fn start_again(self: &Rc<Self>, volume: &str) -> Answer {
        self.want(volume, Wanted::Served).await?;
        let Some(key) = self.key_of(volume) else {
            return Err(self.unknown(volume));
        };
        if self.host.get(volume).is_none() {
            self.try_one(&key, Insist::Now).await?;
        }
        let hosted = self.host.find(volume)?;
        let told = ready(&hosted, hosted.notes());
        Ok(json!({"version": JSON_VERSION, "kind": "opened", "volumes": [told]}))
    }

    /// Expects a volume no more.
    async fn forget(&self, volume: &str) -> Answer {
        let _turn = self.turn.lock().await;
        if self.host.get(volume).is_some() {
            let problem = Problem::new(Code::WrongState, format!("{volume} is served"));
            return Err(problem.hint(format!("to stop it first:   plexum stop {volume}")));
        }
        let Some(key) = self.key_of(volume) else {
            return Err(self.unknown(volume));
        };
        self.keep(Kept::Forgotten(key.clone()))
            .await
            .map_err(not_kept)?;
        self.entries.borrow_mut().remove(&key);
        Ok(json!({"message": format!("{volume} is expected no more")}))
    }

    fn unknown(&self, volume: &str) -> Problem {
        let entries = self.entries.borrow();
        let names: Vec<&str> = entries
            .values()
            .map(|entry| entry.expected.volume.as_str())
            .collect();
        let problem = Problem::new(
            Code::NoSuchVolume,
            format!("the daemon knows no volume {volume}"),
        );
        match names.is_empty() {
            true => problem.hint("to serve one:   plexum serve MEMBER..."),
            false => problem.hint(format!("these it knows:   {}", names.join(" "))),
        }
    }

    fn key_of(&self, volume: &str) -> Option<Key> {
        let entries = self.entries.borrow();
        let mut found = entries
            .iter()
            .filter(|(_, entry)| entry.expected.volume == volume);
        found.next().map(|(key, _)| key.clone())
    }

    /// Notes whether a volume is to be served at the next start; one that is not known stays unknown.
    async fn want(&self, volume: &str, wanted: Wanted) -> Result<(), Problem> {
        let Some(key) = self.key_of(volume) else {
            return Ok(());
        };
        let known = self
            .entries
            .borrow()
            .get(&key)
            .map(|entry| entry.expected.clone());
        let Some(expected) = known.filter(|expected| expected.wanted != wanted) else {
            return Ok(());
        };
        let kept = Kept::Expected(key.clone(), Expected { wanted, ..expected });
        self.keep(kept).await.map_err(not_kept)?;
        // What counts is what is kept: a refusal changes nothing.
        if let Some(entry) = self.entries.borrow_mut().get_mut(&key) {
            entry.expected.wanted = wanted;
            entry.problem = None;
            entry.seen = None;
        }
        Ok(())
    }

    async fn expect(&self, expected: Expected) -> Result<(), String> {
        let key = expected.key();
        let entry = Entry::new(expected.clone());
        self.entries.borrow_mut().insert(key.clone(), entry);
        self.keep(Kept::Expected(key, expected)).await
    }

    async fn keep(&self, what: Kept) -> Result<(), String> {
        match &self.keeper {
            Some(keeper) => keeper.keep_durably(what).await,
            None => Err("nothing can be kept here".to_owned()),
        }
    }

    /// Opens members and lets clients in.
    async fn open_now(&self, request: &AssembleRequest) -> Result<Vec<Rc<Hosted>>, Problem> {
        let mut admitted: Vec<Rc<Hosted>> = Vec::new();
        let result = async {
            for prepared in self.host.prepare(request).await? {
                admitted.push(self.host.admit(prepared, None)?);
            }
            self.host.open(&admitted)
        };
        let result: Result<(), Refusal> = result.await;
        if let Err(refusal) = result {
            for hosted in &admitted {
                self.host.dismiss(hosted);
            }
            return Err(refusal.problem());
        }
        Ok(admitted)
    }

    /// Tries every volume that should be served and is not.
    async fn try_all(self: Rc<Self>) {
        let known: Vec<Key> = self.entries.borrow().keys().cloned().collect();
        for key in known.into_iter().filter(|key| self.is_awaited(key)) {
            if self.is_ending.get() {
                return;
            }
            // Why not is in the entry.
            let _ = self.try_one(&key, Insist::WhenItHasWaited).await;
        }
    }

    /// Whether a volume should be served and is not.
    fn is_awaited(&self, key: &Key) -> bool {
        let entries = self.entries.borrow();
        entries.get(key).is_some_and(|entry| {
            entry.expected.wanted == Wanted::Served
                && self.host.get(&entry.expected.volume).is_none()
        })
    }

    /// Looks again and again at what waits, who has returned, and who is in the slots.
    async fn look_again(self: Rc<Self>) {
        loop {
            self.tick.after(LOOK_EVERY_S).await;
            Rc::clone(&self).try_all().await;
            for hosted in self.host.list() {
                let Some(status) = hosted.status() else {
                    continue; // it is being closed
                };
                self.learn(&status);
                for member in self.returned(&status) {
                    take_back(&self.host, &hosted, member).await;
                }
            }
        }
    }

    /// Members of a volume that were not there, or were lost with their device, and can be taken back now. Each counts
    /// as a return, and one that returns too often is left alone until somebody asks for it. A member that failed in
    /// another way does not come back by itself.
    fn returned(&self, status: &VolumeStatus) -> Vec<String> {
        let now = self.host.handle().clock().now();
        let mut entries = self.entries.borrow_mut();
        let entry = entries
            .values_mut()
            .find(|entry| entry.expected.volume == status.volume);
        let Some(entry) = entry.filter(|_| !status.is_read_only) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for slot in &status.members {
            let is_lost = matches!(slot.state, MemberState::Missing | MemberState::Faulty);
            let (Some(number), true) = (slot.slot, is_lost) else {
                continue;
            };
            let Some(expected) = entry.expected.slots.get(&number) else {
                continue;
            };
            let why = slot.failed_because.as_deref();
            let may_return = why.is_none_or(|why| why == cause_words(FailCause::Gone));
            if may_return && is_there(&expected.member) && entry.returns.may(number, now) {
                found.push(expected.member.clone());
            }
        }
        found
    }

    /// Takes over who is in the slots of a volume that is served.
    fn learn(&self, status: &VolumeStatus) {
        let mut entries = self.entries.borrow_mut();
        let known = entries
            .iter_mut()
            .find(|(_, entry)| entry.expected.volume == status.volume);
        if let Some((key, entry)) = known
            && entry.expected.learn(status)
            && let Some(keeper) = &self.keeper
        {
            keeper.keep(Kept::Expected(key.clone(), entry.expected.clone()));
        }
    }

    /// Tries to serve one volume.
    ///
    /// # Errors
    /// Why not, which is in its entry as well.
    async fn try_one(&self, key: &Key, insist: Insist) -> Result<(), Problem> {
        let _turn = self.turn.lock().await;
        if !self.is_awaited(key) {
            return Ok(()); // it was stopped, forgotten or served meanwhile
        }
        let Some(request) = self.request_of(key, insist) else {
            return Ok(());
        };
        let result = match request {
            Ok(request) => self.open_now(&request).await.map(drop),
            Err(problem) => Err(problem),
        };
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.get_mut(key) {
            entry.problem = result.as_ref().err().cloned();
            if result.is_ok() {
                entry.seen = None;
            }
        }
        result
    }

    /// What is asked of a volume now: with the members that are there, and without those that are not when they have
    /// been waited for. None when it is not known.
    fn request_of(&self, key: &Key, insist: Insist) -> Option<Result<AssembleRequest, Problem>> {
        let now = self.host.handle().clock().now();
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(key)?;
        let members = entry.expected.members();
        let there: Vec<String> = members
            .into_iter()
            .filter(|member| is_there(member))
            .collect();
        if there.is_empty() {
            let problem = Problem::new(Code::TooFewMembers, "none of its members is there");
            return Some(Err(problem));
        }
        let seen = *entry.seen.get_or_insert(now);
        let waited = Duration::from_nanos(now.ns_since(seen));
        let may_lack = insist == Insist::WhenItHasWaited
            && self.start.degraded == DegradedStart::IfSafe
            && waited >= self.start.wait;
        let open = OpenRequest {
            members: there,
            run_degraded: may_lack,
            ..entry.expected.open.clone()
        };
        Some(open.assemble())
    }

    /// Closes all volumes, each as far as it goes; they are served again at the next start.
    async fn stop_all(self: Rc<Self>) {
        self.is_ending.set(true);
        let _turn = self.turn.lock().await;
        for status in self.host.list().iter().filter_map(|hosted| hosted.status()) {
            self.learn(&status);
        }
        for closing in self.host.close_all() {
            let _ = closing.await; // a task that was aborted has let go
        }
    }
}

/// Whether a start may do without members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Insist {
    /// Only when they have been waited for.
    WhenItHasWaited,
    /// Somebody has asked: it starts at once with all its members, or says why not.
    Now,
}

/// Takes a member back that is there again.
async fn take_back(host: &Host, hosted: &Hosted, member: String) {
    let Ok((served, under_way)) = hosted.for_change() else {
        return; // it is being closed
    };
    // Why not is told by the volume's status: the member is still missing there.
    let _ = act(&served, host.handle(), Action::ReAdd { member }).await;
    drop((served, under_way));
}

fn lines_of(problems: &[ConfigProblem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn not_kept(reason: String) -> Problem {
    Problem::new(Code::IoError, format!("that cannot be kept: {reason}"))
        .why("at the next start it would be as before; nothing was changed")
}
