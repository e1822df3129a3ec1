//! What the page shows, as the daemon tells it: the same documents that `status --json` and `incident --json` print.

use serde::Deserialize;
use serde_json::Value;

use crate::control::alarm_request::AlarmRequest;
use crate::control::events::Event;
use crate::control::reach::{Reach, answer_of};
use crate::control::request::Request;
use crate::expected::Wanted;
use crate::problem::{Code, Problem};
use crate::service::Waiting;
use crate::volume::status::VolumeStatus;

/// Events that are shown.
const EVENTS_MAX: usize = 30;

/// Everything that the page shows.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Name of the machine.
    pub host: String,
    /// Now, in seconds since 1970.
    pub now_s: u64,
    /// Volumes that are served.
    pub volumes: Vec<VolumeStatus>,
    /// Volumes that are expected and not served.
    pub waiting: Vec<Waiting>,
    /// Alarms; none of a server that has none.
    pub alarms: Option<Alarms>,
    /// The newest first.
    pub events: Vec<Event>,
}

/// What is told of alarms.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Alarms {
    /// Those that are open, and those that were not long ago.
    pub incidents: Vec<Incident>,
    /// The ways by which they are told.
    #[serde(default)]
    pub channels: Vec<Channel>,
    /// When everything was judged last.
    pub judged_s: Option<u64>,
    /// Why incidents are not kept.
    pub not_kept: Option<String>,
    /// What is wrong with the configuration.
    pub configuration: Option<String>,
}

/// A channel by which alarms are told.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Channel {
    /// Its name.
    pub name: String,
    /// Since when nothing arrives.
    pub failing_since_s: Option<u64>,
    /// When something arrived last.
    pub arrived_s: Option<u64>,
    /// What its transport answered last.
    #[serde(default)]
    pub answer: Option<Value>,
}

/// An incident.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Incident {
    /// Its number.
    pub id: String,
    /// `open`, `acknowledged`, `ending` or `closed`.
    pub state: String,
    /// How bad it is, in a word.
    pub severity: String,
    /// What it is about.
    pub name: String,
    /// What is wrong, in a line.
    pub headline: Option<String>,
    /// Since when, in seconds since 1970.
    pub opened_s: u64,
    /// When it was over.
    #[serde(default)]
    pub closed_s: Option<u64>,
    /// Who knows of it.
    #[serde(default)]
    pub acknowledged: Option<Acknowledged>,
    /// What is said of it, by heading.
    #[serde(default)]
    pub lines: Value,
}

/// Who knows of an incident.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Acknowledged {
    /// Who.
    pub who: String,
    /// Why that is enough.
    pub why: String,
}

impl State {
    /// Asks the engine's thread.
    ///
    /// # Errors
    /// `NoServer` while it ends.
    pub(super) async fn of(reach: &Reach) -> Result<Self, Problem> {
        let told = answer_of(reach, Request::List).await?;
        // A server of named volumes has none, and says so.
        let alarms = answer_of(reach, Request::Alarm(AlarmRequest::List)).await;
        let alarms = alarms.ok().map(parsed).transpose()?;
        let events = reach.events.since(0);
        let newest = events.iter().rev().take(EVENTS_MAX);
        Ok(Self {
            volumes: parsed(told["volumes"].clone())?,
            waiting: match &told["waiting"] {
                Value::Null => Vec::new(),
                waiting => parsed(waiting.clone())?,
            },
            alarms,
            events: newest.map(|event| (**event).clone()).collect(),
            ..Self::now()
        })
    }

    /// This machine now, without anything that it serves.
    #[must_use]
    pub fn now() -> Self {
        Self {
            host: host_name(),
            now_s: seconds_since_1970(),
            ..Self::default()
        }
    }

    /// Volumes that should be served and are not.
    pub fn missed(&self) -> impl Iterator<Item = &Waiting> {
        let waiting = self.waiting.iter();
        waiting.filter(|one| one.wanted == Wanted::Served)
    }

    /// What a daemon's list of incidents says; none when it is not understood.
    #[must_use]
    pub fn alarms_of(told: Value) -> Option<Alarms> {
        parsed(told).ok()
    }

    /// Incidents that are not over.
    pub fn open_incidents(&self) -> impl Iterator<Item = &Incident> {
        let alarms = self.alarms.iter();
        let all = alarms.flat_map(|alarms| &alarms.incidents);
        all.filter(|one| one.closed_s.is_none())
    }
}

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, Problem> {
    serde_json::from_value(value)
        .map_err(|error| Problem::new(Code::Bug, format!("own status: {error}")))
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn seconds_since_1970() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
