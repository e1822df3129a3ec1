//! How commands talk to the daemon of this user.
//!
//! Invariant: a command works the same with and without a daemon, but for who serves: what the daemon is asked to serve
//! is served at each of its starts, until it is stopped.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use plexum_daemon::control::OpenRequest;
use plexum_daemon::expected::Wanted;
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::serve::Ready;
use plexum_daemon::service::Waiting;
use plexum_daemon::status::VolumeStatus;
use serde_json::{Value, json};

use crate::control::{call, encode, garbled, runtime_dir};

/// The daemon of this user.
#[derive(Clone, Debug)]
pub struct Daemon {
    socket: PathBuf,
}

impl Daemon {
    /// It, when it runs.
    #[must_use]
    pub fn find() -> Option<Self> {
        let socket = runtime_dir().daemon_socket();
        UnixStream::connect(&socket).ok().map(|_| Self { socket })
    }

    /// The volumes that it serves, and those that it should serve or did.
    ///
    /// # Errors
    /// `NoServer`.
    pub fn volumes(&self) -> Result<(Vec<VolumeStatus>, Vec<Waiting>), Problem> {
        let told = call(&self.socket, "GET", "/v1/volumes", None)?;
        let volumes = told["volumes"].as_array().into_iter().flatten();
        let volumes = volumes.filter_map(|value| serde_json::from_value(value.clone()).ok());
        Ok((volumes.collect(), waiting_in(&told)))
    }

    /// Has it serve what is asked for, now and at its next starts.
    ///
    /// # Errors
    /// Everything that keeps it from being served.
    pub fn open(&self, open: &OpenRequest) -> Result<Vec<Ready>, Problem> {
        let body = serde_json::to_value(open.absolute()).unwrap_or_default();
        let told = call(&self.socket, "POST", "/v1/volumes", Some(&body))?;
        self.ready(&told)
    }

    /// Has it serve a volume again that it knows.
    ///
    /// # Errors
    /// As `open`; `NoSuchVolume`.
    pub fn start(&self, volume: &str) -> Result<Vec<Ready>, Problem> {
        let told = self.change(volume, "start")?;
        self.ready(&told)
    }

    /// Has it serve a volume no more, also not at its next starts.
    ///
    /// # Errors
    /// `NoServer`, `NoSuchVolume`; `IoError` when that cannot be kept.
    pub fn stop(&self, volume: &str) -> Result<(), Problem> {
        self.change(volume, "stop").map(drop)
    }

    /// Whether it knows a volume that it does not serve now.
    ///
    /// # Errors
    /// `NoServer`.
    pub fn waits(&self, volume: &str) -> Result<bool, Problem> {
        let (_, waiting) = self.volumes()?;
        Ok(waiting.iter().any(|one| is_called(one, volume)))
    }

    /// Whether a volume could be forgotten.
    ///
    /// # Errors
    /// As `forget`.
    pub fn check_forget(&self, volume: &str) -> Result<(), Problem> {
        let (served, waiting) = self.volumes()?;
        let is_waiting = waiting.iter().any(|one| is_called(one, volume));
        if !is_waiting && served.iter().any(|one| one.volume == volume) {
            let problem = Problem::new(Code::WrongState, format!("{volume} is served"));
            return Err(problem.hint(format!("to stop it first:   plexum stop {volume}")));
        }
        match is_waiting {
            true => Ok(()),
            false => {
                let text = format!("the daemon knows no volume {volume}");
                Err(Problem::new(Code::NoSuchVolume, text))
            }
        }
    }

    /// Has it expect a volume no more.
    ///
    /// # Errors
    /// `WrongState` while it is served; `NoSuchVolume`; `IoError` when that cannot be kept.
    pub fn forget(&self, volume: &str) -> Result<(), Problem> {
        self.change(volume, "forget").map(drop)
    }

    /// All incidents, and how it goes with each channel.
    ///
    /// # Errors
    /// `NoServer`.
    pub fn incidents(&self) -> Result<Value, Problem> {
        call(&self.socket, "GET", "/v1/incidents", None)
    }

    /// One incident, with its messages.
    ///
    /// # Errors
    /// `NoServer`, `NoSuchIncident`.
    pub fn incident(&self, id: &str) -> Result<Value, Problem> {
        let route = format!("/v1/incidents/{}", encode(id));
        call(&self.socket, "GET", &route, None)
    }

    /// `who` knows of an incident, which is durable when this returns.
    ///
    /// # Errors
    /// `NoServer`, `NoSuchIncident`; `IoError` when that cannot be kept.
    pub fn acknowledge(&self, id: &str, who: &str, why: &str) -> Result<Value, Problem> {
        let route = format!("/v1/incidents/{}/acknowledge", encode(id));
        let body = json!({"who": who, "why": why});
        call(&self.socket, "POST", &route, Some(&body))
    }

    /// Sends a message to a channel, to try it.
    ///
    /// # Errors
    /// `NoServer`; `Usage` when there is no such channel; `NotDelivered`.
    pub fn test_channel(&self, channel: &str) -> Result<Value, Problem> {
        let route = format!("/v1/channels/{}/test", encode(channel));
        call(&self.socket, "POST", &route, None)
    }

    fn change(&self, volume: &str, word: &str) -> Result<Value, Problem> {
        let route = format!("/v1/volumes/{}/{word}", encode(volume));
        call(&self.socket, "POST", &route, None)
    }

    fn ready(&self, told: &Value) -> Result<Vec<Ready>, Problem> {
        let volumes = told["volumes"].as_array().into_iter().flatten();
        let each = volumes.map(|volume| {
            let status = serde_json::from_value(volume["status"].clone())
                .map_err(|error| garbled(&self.socket, &error.to_string()))?;
            let control = PathBuf::from(volume["control"].as_str().unwrap_or_default());
            let notes = serde_json::from_value(volume["notes"].clone()).unwrap_or_default();
            Ok(Ready {
                status,
                control,
                notes,
                left_out: None,
            })
        });
        each.collect()
    }
}

/// Whether a word means this volume: its name, or its UUID where two have one name.
fn is_called(waiting: &Waiting, word: &str) -> bool {
    waiting.volume == word || waiting.uuid == word && !word.is_empty()
}

/// The volumes in an answer that are not served.
#[must_use]
pub fn waiting_in(told: &Value) -> Vec<Waiting> {
    let all = told["waiting"].as_array().into_iter().flatten();
    all.filter_map(|value| serde_json::from_value(value.clone()).ok())
        .collect()
}

/// One line on a volume that is expected and not served.
#[must_use]
pub fn line_of(waiting: &Waiting) -> String {
    let (name, level) = (&waiting.volume, &waiting.level);
    if waiting.wanted == Wanted::Stopped {
        return format!("{name} {level}: stopped; to serve it again:   plexum serve {name}");
    }
    let reason = waiting.problem.as_ref().and_then(Problem::from_json);
    let reason = reason.map_or_else(
        || "its members are waited for".to_owned(),
        |problem| problem.message,
    );
    match waiting.missing.is_empty() {
        true => format!("{name} {level}: NOT SERVED, {reason}"),
        false => format!(
            "{name} {level}: NOT SERVED, {reason}; not there: {}",
            match waiting.missing_disks.is_empty() {
                true => waiting.missing.join(" "),
                false => waiting.missing_disks.join(" "),
            }
        ),
    }
}
