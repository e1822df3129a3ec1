//! The body of `plexum daemon`: a host that owns volumes for as long as it runs, and knows at each start which there
//! should be.
//!
//! Invariants:
//! - what was answered to whoever adds, stops or forgets a volume is durable, or the answer says that it is not;
//! - a volume that cannot be served keeps no other one from it: it waits, with the reason, and is tried again;
//! - nothing is forced at a start that somebody has forced once; a member that is missing is waited for before the
//!   volume starts without it, and only as far as the policy allows.

mod alarms;
mod faces;
mod find;
mod judge;
mod look;
mod names;
mod notify;
mod pool_volumes;
mod pools;
mod returns;
mod same_bay;
mod scrubs;
mod tell;
mod tick;
mod waiting;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::select;
use plexum_block::clock::{Clock, Moment};
use plexum_block::wait::Mutex;
use plexum_runtime::Runtime;
use plexum_runtime::mailbox::{Mailbox, mailbox};
use plexum_runtime::process::let_go_of_code;
use plexum_runtime::signals::StopSignals;
use plexum_schedule::ScrubConfig;
use serde_json::{Value, json};

use crate::assembly::AssembleRequest;
use crate::claims::unclaim_for_now;
use crate::config::{Config, ConfigProblem, ReplaceConfig};
use crate::control::answers;
use crate::control::events::EventHub;
use crate::control::metrics::check_address;
use crate::control::open_request::OpenRequest;
use crate::control::request::{Action, Answer, Ask, Request};
use crate::expected::{Expected, Wanted};
use crate::host::{Host, HostSettings, Hosted, Refusal};
use crate::memory::{Keeper, Kept, Key, StateDir};
use crate::problem::{Code, Problem};
use crate::runtime_dir::{Surroundings, check_socket_path, free_socket_path};
use crate::serve::{ASKS_MAX, Message, post};
use crate::volume::status::JSON_VERSION;

use alarms::Alarms;
use find::Sight;
use look::{Looker, Reach};
use names::{Meant, judged_as};
use pools::Pools;
use scrubs::Scrubs;
use tell::ready;
use tick::Tick;
use waiting::Entry;
pub use waiting::Waiting;

/// How often it is looked who waits and who has returned.
const LOOK_EVERY_S: u64 = 2;

/// Seconds after which a start is over, with what it leaves to be done.
const REST_AFTER_S: u64 = 2;

/// How often it is looked whether a member answers that somebody wants to be served: a disk may be asleep.
const LOOKS_MAX: usize = 10;

/// Whether a volume starts without a member that was there at the last stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DegradedStart {
    /// Never by itself.
    Never,
    /// When the wait is over, where nothing can be wrong with the data: it was stopped cleanly, or a log or copies have
    /// what was being written.
    #[default]
    IfSafe,
    /// When the wait is over, whatever may be wrong: with members that missed writes, and rows in doubt answer errors.
    Always,
}

/// How volumes start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartPolicy {
    /// How long a member is waited for, counted from when the last one of the volume arrived.
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
    /// How volumes are scrubbed by themselves; none: only when somebody asks for it.
    pub scrub: Option<ScrubConfig>,
    /// The loopback address at which metrics are served; none: on the control sockets alone.
    pub metrics_listen: Option<SocketAddr>,
    /// What is configured.
    pub config: Config,
    /// What is wrong with the configuration: that does not count.
    pub config_problems: Vec<ConfigProblem>,
}

/// The daemon. Belongs to one thread.
struct Service {
    host: Rc<Host>,
    pools: Pools,
    keeper: Option<Keeper>,
    start: StartPolicy,
    replace: ReplaceConfig,
    entries: RefCell<BTreeMap<Key, Entry>>,
    alarms: Rc<Alarms>,
    tick: Tick,
    started: Moment,
    /// One volume at a time gets or loses its place.
    turn: Mutex,
    is_ending: Cell<bool>,
    looker: Looker,
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
    let runtime = Runtime::new(request.settings.io);
    let mut runtime = runtime.map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    handle.set_spin(request.settings.spin);
    let (sender, inbox) = mailbox(ASKS_MAX);
    let events = EventHub::default();
    let state_dir = request.settings.state_dir.clone();
    let mut misconfigured = lines_of(&request.config_problems);
    let lacking = request.config.lacking_programs();
    let (page, nvme) = (request.config.page.clone(), request.config.nvme.listen());
    let host = Host::new(&handle, request.settings, events.clone())?;
    let control = faces::start(&folder, &page, post(&sender), events)?;
    host.set_control(Rc::clone(&control));
    let (page, page_url) = faces::listen_page(&control, &page, &mut misconfigured);
    misconfigured.extend(faces::listen_nvme(&host, nvme.as_ref()));
    let configured = (request.config.alarm, misconfigured.first().cloned());
    let listen = request.metrics_listen;
    let metrics = listen.map_or(Ok(None), |at| control.listen_metrics(at).map(Some))?;
    let signals = StopSignals::new(&handle)
        .map_err(|error| Problem::from_io(&error, "catching", "signals"))?;
    let _watcher = handle.spawn(async move {
        signals.next().await;
        let _ = sender.send(Message::StopAll);
    });
    let dir = state_dir.as_ref();
    let (known, mut problems) = dir.map_or_else(Default::default, StateDir::expected);
    let keys = known.iter().map(|expected| judged_as(expected).to_string());
    let (alarms, unread) = Alarms::new(&handle, configured, host.keeper(), dir, keys);
    problems.extend(unread);
    let policies = (request.start, request.config.replace);
    let service = Service::new(&host, policies, known, alarms);
    let (tell, devices) = mailbox(1);
    service.looker.listen(tell.clone());
    let (result, notifier) = {
        let mut judging = pin!(Rc::clone(&service).keep_judging());
        // A member that hangs keeps nobody from being told.
        let trying = pin!(Rc::clone(&service).try_all());
        runtime.block_on(select(trying, judging.as_mut()));
        let told = ready(&json!({
            "version": JSON_VERSION, "kind": "daemon", "socket": socket, "problems": problems, "metrics": metrics, "page": page, "page_url": page_url,
            "configuration": misconfigured, "not_kept": service.alarms.not_kept(), "channels": lacking,
            "volumes": service.served_count(), "waiting": service.waiting(),
        }));
        let notifier = notify::Notifier::start(&handle, &service);
        if told.is_ok() {
            let hearing = pin!(Rc::clone(&service).hear(inbox));
            let looking = pin!(Rc::clone(&service).look_again(devices));
            let scrubbing = pin!(Scrubs::run(&service, request.scrub));
            let resting = pin!(Rc::clone(&service).come_to_rest());
            let working = pin!(select(looking, select(scrubbing, resting)));
            runtime.block_on(select(hearing, select(working, judging)));
        }
        (told, notifier)
    };
    notifier.stopping();
    let closed = runtime.block_on(Rc::clone(&service).stop_all());
    runtime.block_on(Rc::clone(&service.alarms).end());
    host.end();
    let result = result.and(host.failure().map_or(closed, Err));
    drop((service, host, handle, runtime, control, tell));
    result
}

/// Whether a daemon could be started; changes nothing.
///
/// # Errors
/// As `run`.
pub fn rehearse(request: &ServiceRequest) -> Result<(), Problem> {
    let folder = &request.settings.runtime_dir;
    folder.check(&Surroundings::of_this_process())?;
    request.metrics_listen.map_or(Ok(()), check_address)?;
    check_socket_path(&folder.daemon_socket()).map(drop)
}

impl Service {
    fn new(
        host: &Rc<Host>,
        (start, replace): (StartPolicy, ReplaceConfig),
        known: Vec<Expected>,
        alarms: Rc<Alarms>,
    ) -> Rc<Self> {
        let entries = known.into_iter().map(|expected| {
            let entry = Entry::new(expected);
            (entry.expected.key(), entry)
        });
        Rc::new(Self {
            host: Rc::clone(host),
            pools: Pools::default(),
            keeper: host.keeper(),
            start,
            replace,
            entries: RefCell::new(entries.collect()),
            alarms,
            tick: Tick::default(),
            started: host.handle().clock().now(),
            turn: Mutex::new(),
            is_ending: Cell::new(false),
            looker: Looker::default(),
        })
    }

    /// Lets go of what was needed for the start.
    async fn come_to_rest(self: Rc<Self>) {
        self.tick.after(REST_AFTER_S).await;
        let_go_of_code();
        std::future::pending().await
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
            Request::Show { volume }
                if self.host.get(volume).is_none() && self.pools.named(volume).is_none() =>
            {
                match self.show_waiting(volume) {
                    Some(answer) => ask.answer(answer),
                    None => answers::answer(&self.host, ask),
                }
            }
            Request::ShowPool { pool }
            | Request::RehearsePool { pool, .. }
            | Request::ChangePool { pool, .. } => match self.pools.meant(pool) {
                Ok(pool) => self.answer_of_open_pool(&pool, ask),
                Err(problem) => ask.answer(Err(problem)),
            },
            Request::Open { .. } | Request::Start { .. } | Request::Forget { .. } => {
                let _task = self.host.handle().spawn(Rc::clone(self).change(ask));
            }
            Request::Act {
                action: Action::Stop,
                ..
            } => {
                let _task = self.host.handle().spawn(Rc::clone(self).stop(ask));
            }
            request => {
                let one = pool_volumes::named_in(request).and_then(|name| self.pools.named(name));
                match one {
                    Some(one) => self.answer_of_pool(one, ask),
                    None => answers::answer(&self.host, ask),
                }
            }
        }
    }

    /// Changes which volumes there are.
    async fn change(self: Rc<Self>, ask: Ask) {
        let answer = match ask.request.clone() {
            Request::Open { open } => self.open(*open).await,
            Request::Start { volume } => self.start_again(&volume).await,
            Request::Forget { volume } => self.forget(&volume).await,
            _ => return answers::answer(&self.host, ask),
        };
        ask.answer(answer);
    }

    /// Stops a volume; it stays stopped over starts, which is durable before it is stopped.
    async fn stop(self: Rc<Self>, mut ask: Ask) {
        let Request::Act { volume, .. } = &ask.request else {
            return answers::answer(&self.host, ask);
        };
        let volume = volume.clone();
        let key = match self.key_of(&volume, Meant::Served) {
            Ok(Some(key)) => key,
            Ok(None) => return answers::answer(&self.host, ask),
            Err(problem) => return ask.answer(Err(problem)),
        };
        if let Err(problem) = self.want(&key, Wanted::Stopped).await {
            return ask.answer(Err(problem));
        }
        if let Some(one) = self.of_pool(&key) {
            let answer = self.stop_of_pool(one).await;
            return ask.answer(answer);
        }
        let Some(hosted) = self.hosted(&key) else {
            let message = format!("{volume} is not waited for any more");
            return ask.answer(Ok(json!({"message": message})));
        };
        if let Request::Act { volume, .. } = &mut ask.request {
            *volume = hosted.name().to_owned(); // it may have been named by its UUID
        }
        answers::answer(&self.host, ask);
    }

    /// Serves what is asked for, and expects it from now on.
    async fn open(&self, open: OpenRequest) -> Answer {
        if let Some(name) = &open.name {
            crate::create::check_name(name)?;
        }
        if !open.datasets.is_empty() {
            return self.open_pool_volumes(open).await;
        }
        let request = open.assemble()?;
        self.check_answering(&open.members).await?;
        let _turn = self.turn.lock().await;
        let opened = self.open_now(&request).await?;
        let mut told = Vec::new();
        for hosted in &opened {
            let Some(status) = hosted.status() else {
                continue;
            };
            let expected = Expected::of(&status, &open.for_later());
            let notes = self.expect_with(expected, hosted.notes()).await;
            told.push(ready(hosted, &notes));
        }
        Ok(json!({"version": JSON_VERSION, "kind": "opened", "volumes": told}))
    }

    /// As `open`, of volumes of a pool. Each is expected by itself.
    async fn open_pool_volumes(&self, open: OpenRequest) -> Answer {
        self.check_answering(&open.members).await?;
        let _turn = self.turn.lock().await;
        let opened = self.open_datasets(&open).await?;
        let mut told = Vec::new();
        for (one, dataset) in opened.iter().zip(&open.datasets) {
            let later = OpenRequest {
                datasets: vec![dataset.clone()],
                ..open.for_later()
            };
            let expected = Expected::of(&one.status(), &later);
            let notes = self.expect_with(expected, &one.pool.notes).await;
            told.push(one.ready(&notes));
        }
        Ok(json!({"version": JSON_VERSION, "kind": "opened", "volumes": told}))
    }

    /// Whether members answer: one that hangs would keep the engine's thread when it is opened.
    async fn check_answering(&self, members: &[String]) -> Result<(), Problem> {
        let (handle, mut silent) = (self.host.handle(), None);
        for _ in 0..LOOKS_MAX {
            let words = self.looker.look(handle, members, Reach::Paths).await.words;
            let hangs = |(_, sight): &(String, Sight)| *sight == Sight::Silent;
            silent = words.into_iter().find(hangs);
            if silent.is_none() {
                return Ok(());
            }
            self.tick.after(LOOK_EVERY_S).await;
        }
        let word = silent.map_or_else(String::new, |(word, _)| word);
        let text = format!("{word} does not answer");
        Err(Problem::new(Code::DeviceGone, text).member(word))
    }

    /// Serves a volume again that is known.
    async fn start_again(&self, volume: &str) -> Answer {
        let Some(key) = self.key_of(volume, Meant::Waiting)? else {
            return Err(self.unknown(volume));
        };
        self.want(&key, Wanted::Served).await?;
        if !self.is_served(&key) {
            let view = self.look_for(std::slice::from_ref(&key)).await;
            self.try_one(&key, Insist::Now, &view).await?;
        }
        let told = match self.of_pool(&key) {
            Some(one) => one.ready(&one.pool.notes),
            None => {
                let hosted = self.hosted(&key).ok_or_else(|| self.unknown(volume))?;
                ready(&hosted, hosted.notes())
            }
        };
        Ok(json!({"version": JSON_VERSION, "kind": "opened", "volumes": [told]}))
    }

    /// Expects a volume no more.
    async fn forget(&self, volume: &str) -> Answer {
        let _turn = self.turn.lock().await;
        let key = self.key_of(volume, Meant::Waiting)?;
        let is_served = match &key {
            Some(key) => self.is_served(key),
            None => self.host.get(volume).is_some(),
        };
        if is_served {
            let problem = Problem::new(Code::WrongState, format!("{volume} is served"));
            return Err(problem.hint(format!("to stop it first:   plexum stop {volume}")));
        }
        let Some(key) = key else {
            return Err(self.unknown(volume));
        };
        self.keep(Kept::Forgotten(key.clone()))
            .await
            .map_err(not_kept)?;
        let entry = self.entries.borrow_mut().remove(&key);
        if let Some(entry) = entry {
            let runtime = &self.host.settings().runtime_dir;
            // At worst it stays Plexum's until the machine is started again.
            let _ = unclaim_for_now(runtime, &entry.expected.uuid);
        }
        Ok(json!({"message": format!("{volume} is expected no more")}))
    }

    /// Notes whether a volume is to be served at the next start; one that is not known stays unknown.
    async fn want(&self, key: &Key, wanted: Wanted) -> Result<(), Problem> {
        let known = self
            .entries
            .borrow()
            .get(key)
            .map(|entry| entry.expected.clone());
        let Some(expected) = known.filter(|expected| expected.wanted != wanted) else {
            return Ok(());
        };
        let kept = Kept::Expected(key.clone(), Expected { wanted, ..expected });
        self.keep(kept).await.map_err(not_kept)?;
        // What counts is what is kept: a refusal changes nothing.
        if let Some(entry) = self.entries.borrow_mut().get_mut(key) {
            entry.expected.wanted = wanted;
            entry.problem = None;
            entry.waits_since = None;
        }
        Ok(())
    }

    /// Expects a volume from now on. Gives the notes of its start, and why it is not served at the next one.
    async fn expect_with(&self, expected: Expected, notes: &[String]) -> Vec<String> {
        let name = expected.volume.clone();
        let kept = self.expect(expected).await;
        let unkept = kept
            .err()
            .map(|reason| format!("{name} is not served at the next start: {reason}"));
        notes.iter().cloned().chain(unkept).collect()
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
        self.host.give_devices_or_tell(&admitted).await;
        Ok(admitted)
    }

    /// Closes all volumes, each as far as it goes; they are served again at the next start.
    ///
    /// # Errors
    /// A pool that could not be closed cleanly; what went wrong with others is the host's.
    async fn stop_all(self: Rc<Self>) -> Result<(), Problem> {
        self.is_ending.set(true);
        let _turn = self.turn.lock().await;
        for status in self.host.list().iter().filter_map(|hosted| hosted.status()) {
            self.learn(&status);
        }
        let closing = self.host.close_all();
        let pools = self.close_pools().await;
        for closing in closing {
            let _ = closing.await; // a task that was aborted has let go
        }
        pools
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

fn lines_of(problems: &[ConfigProblem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn not_kept(reason: String) -> Problem {
    Problem::new(Code::IoError, format!("that cannot be kept: {reason}"))
        .why("at the next start it would be as before; nothing was changed")
}
