//! What the daemon tells of its volumes: those that are served, and those that are not.

use serde_json::{Value, json};

use super::Service;
use super::waiting::{Entry, Waiting};
use crate::control::request::Answer;
use crate::expected::Wanted;
use crate::host::Hosted;
use crate::problem::{Code, Problem};
use crate::volume::status::JSON_VERSION;

impl Service {
    /// All volumes: those that are served, and those that should be.
    pub(super) fn list(&self) -> Answer {
        let volumes = self.host.list();
        let served = volumes.iter().filter_map(|hosted| hosted.status());
        let of_pools = self.pools.volumes().into_iter();
        let served: Vec<_> = served.chain(of_pools.map(|one| one.status())).collect();
        Ok(
            json!({"version": JSON_VERSION, "kind": "volumes", "volumes": served,
            "waiting": self.waiting()}),
        )
    }

    pub(super) fn waiting(&self) -> Vec<Waiting> {
        let entries = self.entries.borrow();
        let absent = entries.iter().filter(|(key, _)| !self.is_served(key));
        absent.map(|(_, entry)| entry.waiting()).collect()
    }

    /// Why a volume that is expected is not served.
    pub(super) fn show_waiting(&self, volume: &str) -> Option<Answer> {
        let entries = self.entries.borrow();
        let is_it = |entry: &&Entry| {
            [&entry.expected.volume, &entry.expected.uuid].contains(&&volume.to_owned())
        };
        let entry = entries.values().find(is_it)?;
        let problem = Problem::new(Code::NoSuchVolume, entry.why_not_served());
        Some(Err(problem.hint(match entry.expected.wanted {
            Wanted::Stopped => format!("to serve it again:   plexum serve {volume}"),
            Wanted::Served => format!("to see what is missing:   plexum status {volume}"),
        })))
    }
}

/// A volume that clients can come to now, as the command tells it.
pub(super) fn ready(hosted: &Hosted, notes: &[String]) -> Value {
    json!({"status": hosted.status(), "control": hosted.control_socket(), "notes": notes})
}
