//! Volumes that are served, as commands reach them: each by its control socket.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use plexum_daemon::control::Action;
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::runtime_dir::Kind;
use plexum_daemon::status::VolumeStatus;
use serde_json::{Value, json};

use crate::control::{Body, LINE_BYTES_MAX, call, encode, garbled, open, read_head, runtime_dir};
use crate::daemon_client::Daemon;
use crate::traces::Traces;

/// A volume whose server answers.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    /// Name of the volume.
    pub volume: String,
}

/// Status of every volume that is served by this user, sorted by name. Sockets nobody answers on are passed over.
#[must_use]
pub fn running_volumes() -> Vec<(Client, VolumeStatus)> {
    let folder = runtime_dir();
    let socket_of = |status: &VolumeStatus| folder.file(&status.volume, Kind::Control);
    let mut found: Vec<(Client, VolumeStatus)> = Vec::new();
    // The daemon tells of all its volumes in one answer.
    if let Some(daemon) = Daemon::find_or_machines()
        && let Ok((volumes, _)) = daemon.volumes()
    {
        for status in volumes {
            let own = socket_of(&status);
            let client = match own.exists() {
                true => Client::at(own, &status.volume),
                false => Client::at(daemon.socket(), &status.volume),
            };
            found.push((client, status));
        }
    }
    for socket in folder.control_sockets() {
        if found.iter().any(|(client, _)| client.socket == socket) {
            continue;
        }
        let Ok(answer) = call(&socket, "GET", "/v1/volumes", None) else {
            continue;
        };
        let volumes = answer["volumes"].as_array().cloned().unwrap_or_default();
        for value in volumes {
            let Ok(status) = serde_json::from_value::<VolumeStatus>(value) else {
                continue;
            };
            // One server with several volumes answers on a socket for each.
            if found.iter().any(|(_, known)| known.volume == status.volume) {
                continue;
            }
            let own = socket_of(&status);
            let socket = if own.exists() { own } else { socket.clone() };
            found.push((Client::at(socket, &status.volume), status));
        }
    }
    found.sort_by(|a, b| a.1.volume.cmp(&b.1.volume));
    found
}

impl Client {
    /// The client of a volume whose control socket is known.
    #[must_use]
    pub fn at(socket: PathBuf, volume: &str) -> Self {
        Self {
            socket,
            volume: volume.to_owned(),
        }
    }

    /// The client of the volume `name`, or of the only one that runs.
    ///
    /// # Errors
    /// `NoSuchVolume` when none of that name runs, `AmbiguousVolume` when no name was given and several run.
    pub fn find(name: Option<&str>) -> Result<Self, Problem> {
        if let Some(name) = name {
            let socket = runtime_dir().file(name, Kind::Control);
            if UnixStream::connect(&socket).is_ok() {
                return Ok(Self {
                    socket,
                    volume: name.to_owned(),
                });
            }
        }
        let running = running_volumes();
        let names = || -> Vec<String> { running.iter().map(|(c, _)| c.volume.clone()).collect() };
        match name {
            Some(name) => running
                .iter()
                .find(|(client, _)| client.volume == name)
                .map(|(client, _)| client.clone())
                .ok_or_else(|| no_such_volume(name, &names())),
            None => match running.as_slice() {
                [(client, _)] => Ok(client.clone()),
                [] => {
                    let problem = Problem::new(Code::NoSuchVolume, "no volume is served");
                    Err(Traces::look()
                        .explain(problem, None)
                        .hint("to serve one:   plexum serve MEMBER...")
                        .hint("to find sets:   plexum scan DIR"))
                }
                _ => Err(Problem::new(
                    Code::AmbiguousVolume,
                    format!("{} volumes are served, name one of them", running.len()),
                )
                .hint(format!("they are:   {}", names().join(" ")))),
            },
        }
    }

    /// Whether nobody listens on the volume's control socket any more: its members are free.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        UnixStream::connect(&self.socket).is_err()
    }

    /// Status of the volume.
    ///
    /// # Errors
    /// Of the server, or `NoServer`.
    pub fn status(&self) -> Result<VolumeStatus, Problem> {
        let value = call(&self.socket, "GET", &self.route(""), None)?;
        serde_json::from_value(value).map_err(|error| garbled(&self.socket, &error.to_string()))
    }

    /// Counters of the volume as JSON.
    ///
    /// # Errors
    /// Of the server, or `NoServer`.
    pub fn stats(&self) -> Result<Value, Problem> {
        call(&self.socket, "GET", &self.route("/stats"), None)
    }

    /// Any route of the server, with what it takes.
    ///
    /// # Errors
    /// Of the server, or `NoServer`.
    pub fn post(&self, route: &str, body: &Value) -> Result<Value, Problem> {
        call(&self.socket, "POST", route, Some(body))
    }

    /// As `stats`; from then on they count anew.
    ///
    /// # Errors
    /// As `stats`.
    pub fn take_stats(&self) -> Result<Value, Problem> {
        call(&self.socket, "GET", &self.route("/stats?reset=true"), None)
    }

    /// Requests in flight as JSON.
    ///
    /// # Errors
    /// Of the server, or `NoServer`.
    pub fn requests(&self) -> Result<Value, Problem> {
        call(&self.socket, "GET", &self.route("/requests"), None)
    }

    /// Asks for a change.
    ///
    /// # Errors
    /// Of the server, or `NoServer`.
    pub fn act(&self, action: &Action) -> Result<Value, Problem> {
        self.act_because(action, None)
    }

    /// Asks for a change, and says why: that is kept with it.
    ///
    /// # Errors
    /// As `act`.
    pub fn act_because(&self, action: &Action, why: Option<&str>) -> Result<Value, Problem> {
        let why = why.map_or_else(String::new, |why| format!("?why={}", encode(why)));
        let route = self.route(&format!("/{}{why}", action.route()));
        let body = serde_json::to_value(action).unwrap_or_else(|_| json!({}));
        call(&self.socket, "POST", &route, Some(&body))
    }

    /// Tells the server that a block device of the kernel stands on the volume.
    ///
    /// # Errors
    /// Of a server that is older than this, or `NoServer`.
    pub fn tell_attached(&self) -> Result<(), Problem> {
        call(&self.socket, "POST", &self.route("/attached"), None).map(drop)
    }

    /// Asks what a change would be refused for; nothing is changed. The server knows more than the command: who is
    /// needed, what fits.
    ///
    /// # Errors
    /// Of the server, as of `act`, or `NoServer`; `NotYet` from a server that is older than this.
    pub fn rehearse(&self, action: &Action) -> Result<Value, Problem> {
        let route = self.route(&format!("/{}/dry-run", action.route()));
        let body = serde_json::to_value(action).unwrap_or_else(|_| json!({}));
        call(&self.socket, "POST", &route, Some(&body)).map_err(|problem| {
            if problem.message == "no such route" {
                let text = format!("the server of {} knows no dry run", self.volume);
                return Problem::new(Code::NotYet, text).why("it was started by an older plexum");
            }
            problem
        })
    }

    /// All events kept by the server.
    ///
    /// # Errors
    /// Of the server, or `NoServer`.
    pub fn events(&self) -> Result<Value, Problem> {
        call(&self.socket, "GET", "/v1/events?follow=false", None)
    }

    /// Calls `each` with every event after number `after`, until it says false or the server ends.
    ///
    /// # Errors
    /// `NoServer` when the connection cannot be made.
    pub fn follow(&self, after: u64, mut each: impl FnMut(Value) -> bool) -> Result<(), Problem> {
        let route = format!("/v1/events?after={after}");
        let mut reader = open(&self.socket, "GET", &route, None)?;
        let head = read_head(&mut reader, &self.socket)?;
        let mut body = Body::new(reader, &head);
        let mut line = String::new();
        let mut buffered = BufReader::new(&mut body);
        loop {
            line.clear();
            match (&mut buffered).take(LINE_BYTES_MAX).read_line(&mut line) {
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) => {}
            }
            if let Some(data) = line.strip_prefix("data:")
                && let Ok(event) = serde_json::from_str::<Value>(data.trim())
                && !each(event)
            {
                return Ok(());
            }
        }
    }

    fn route(&self, rest: &str) -> String {
        format!("/v1/volumes/{}{rest}", encode(&self.volume))
    }
}

/// The refusal for a name that is not served.
#[must_use]
pub fn no_such_volume(name: &str, running: &[String]) -> Problem {
    let problem = Problem::new(Code::NoSuchVolume, format!("no volume {name} is served"));
    let problem = Traces::look().explain(problem, Some(name));
    if running.is_empty() {
        problem.hint("to serve one:   plexum serve MEMBER...")
    } else {
        problem.hint(format!("these are:   {}", running.join(" ")))
    }
}
