//! How commands talk to the daemon of this user.
//!
//! Invariant: a command works the same with and without a daemon, but for who serves: what the daemon is asked to serve
//! is served at each of its starts, until it is stopped.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use plexum_daemon::control::OpenRequest;
use plexum_daemon::expected::Wanted;
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::runtime_dir::{RuntimeDir, Surroundings};
use plexum_daemon::serve::Ready;
use plexum_daemon::service::Waiting;
use plexum_daemon::status::VolumeStatus;
use serde_json::{Value, json};

use crate::control::{call, encode, garbled, runtime_dir};

/// The runtime folder of the machine's daemon, for an ordinary user: one whose own folder is where systemd makes it, or
/// where it is without one. Whoever has named another folder means that alone.
fn machines_folder(from: &Surroundings) -> Option<RuntimeDir> {
    let own = from.xdg_runtime_dir.as_deref().map(Path::new);
    let is_usual = own.is_none_or(|own| own.starts_with("/run/user"));
    let root = Surroundings {
        xdg_runtime_dir: None,
        user_id: 0,
    };
    (is_usual && from.user_id != 0).then(|| RuntimeDir::locate(&root))
}

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
        Self::at(socket)
    }

    /// It, or for an ordinary user who has none that of the machine, where he has a role.
    #[must_use]
    pub fn find_or_machines() -> Option<Self> {
        Self::find().or_else(|| {
            let machines = machines_folder(&Surroundings::of_this_process())?;
            Self::at(machines.daemon_socket())
        })
    }

    fn at(socket: PathBuf) -> Option<Self> {
        UnixStream::connect(&socket).ok().map(|_| Self { socket })
    }

    /// Its socket, on which all routes of its volumes are as well.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.socket.clone()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_user_may_look_at_the_machines_daemon_and_a_named_folder_is_meant_alone() {
        let of = |xdg: Option<&str>, user_id| {
            machines_folder(&Surroundings {
                xdg_runtime_dir: xdg.map(Into::into),
                user_id,
            })
        };
        let machines = Some(RuntimeDir::at("/run/plexum".into()));
        assert_eq!(of(None, 1000), machines);
        assert_eq!(of(Some("/run/user/1000"), 1000), machines);
        assert_eq!(of(Some("/tmp/x"), 1000), None);
        assert_eq!(of(None, 0), None, "root's own is that of the machine");
    }
}
