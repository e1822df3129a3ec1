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
pub(super) struct State {
    pub(super) host: String,
    /// Now, in seconds since 1970.
    pub(super) now_s: u64,
    pub(super) volumes: Vec<VolumeStatus>,
    /// Volumes that are expected and not served.
    pub(super) waiting: Vec<Waiting>,
    /// Alarms; none of a server that has none.
    pub(super) alarms: Option<Alarms>,
    /// The newest first.
    pub(super) events: Vec<Event>,
}

/// What is told of alarms.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Alarms {
    pub(super) incidents: Vec<Incident>,
    #[serde(default)]
    pub(super) channels: Vec<Channel>,
    /// When everything was judged last.
    pub(super) judged_s: Option<u64>,
    /// Why incidents are not kept.
    pub(super) not_kept: Option<String>,
    /// What is wrong with the configuration.
    pub(super) configuration: Option<String>,
}

/// A channel by which alarms are told.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Channel {
    pub(super) name: String,
    pub(super) failing_since_s: Option<u64>,
    pub(super) arrived_s: Option<u64>,
    #[serde(default)]
    pub(super) answer: Option<Value>,
}

/// An incident.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Incident {
    pub(super) id: String,
    /// `open`, `acknowledged`, `ending` or `closed`.
    pub(super) state: String,
    pub(super) severity: String,
    /// What it is about.
    pub(super) name: String,
    pub(super) headline: Option<String>,
    pub(super) opened_s: u64,
    #[serde(default)]
    pub(super) closed_s: Option<u64>,
    #[serde(default)]
    pub(super) acknowledged: Option<Acknowledged>,
    #[serde(default)]
    pub(super) lines: Value,
}

/// Who knows of an incident.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Acknowledged {
    pub(super) who: String,
    pub(super) why: String,
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
            host: host_name(),
            now_s: seconds_since_1970(),
            volumes: parsed(told["volumes"].clone())?,
            waiting: match &told["waiting"] {
                Value::Null => Vec::new(),
                waiting => parsed(waiting.clone())?,
            },
            alarms,
            events: newest.map(|event| (**event).clone()).collect(),
        })
    }

    /// Volumes that should be served and are not.
    pub(super) fn missed(&self) -> impl Iterator<Item = &Waiting> {
        let waiting = self.waiting.iter();
        waiting.filter(|one| one.wanted == Wanted::Served)
    }

    /// Incidents that are not over.
    pub(super) fn open_incidents(&self) -> impl Iterator<Item = &Incident> {
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
