//! Who has a pool: nobody, and its members are named, or a server.
//!
//! A word that is the only one in the place of members, has no slash and is no file is the name of a pool that is
//! served. `./tank` is always a file.

use std::path::{Path, PathBuf};

use plexum_daemon::pool_change::PoolChange;
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::serve_dataset::pool_of;
use serde_json::Value;

use crate::control::{call, encode, runtime_dir};
use crate::daemon_client::Daemon;

/// Who has it.
pub(super) enum Whose {
    /// Nobody: its members are these.
    Nobody(Vec<String>),
    /// A server.
    Server(Served),
}

/// A pool that a server has.
pub(super) struct Served {
    socket: PathBuf,
    /// Its name, or its identity.
    name: String,
    /// What the server tells of it.
    pub(super) told: Value,
}

impl Whose {
    /// Who has the pool of these members. `of`: a volume or snapshot of it that was named, for when no member is.
    ///
    /// # Errors
    /// `NoSuchVolume`: no member is named, and nobody serves it.
    pub(super) fn find(members: &[String], of: Option<&str>) -> Result<Self, Problem> {
        let pool = match (members, of) {
            ([], Some(of)) => pool_of(of),
            ([only], _) if is_name(only) => only,
            _ => return Ok(Self::Nobody(members.to_vec())),
        };
        Served::find(pool).map(Self::Server)
    }
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && !word.contains(['/', ':']) && !Path::new(word).exists()
}

impl Served {
    fn find(pool: &str) -> Result<Self, Problem> {
        let daemon = Daemon::find_or_machines().map(|daemon| daemon.socket());
        let sockets = daemon.into_iter().chain(runtime_dir().control_sockets());
        let route = format!("/v1/pools/{}", encode(pool));
        let mut refusal = None;
        for socket in sockets {
            match call(&socket, "GET", &route, None) {
                Ok(told) => {
                    return Ok(Self {
                        socket,
                        name: pool.to_owned(),
                        told,
                    });
                }
                Err(problem) if problem.code == Code::Usage => refusal = Some(problem),
                Err(_) => {} // it does not have it
            }
        }
        let unknown = || {
            let text = format!("no member is named, and no server has a pool {pool}");
            Problem::new(Code::NoSuchVolume, text)
                .hint(
                    "members are files, devices or URIs; a file without a slash that is not there is taken for a \
                     pool",
                )
                .hint("to have them found, name the places to look in:   --scan PLACE...")
        };
        Err(refusal.unwrap_or_else(unknown))
    }

    /// Its name, or its identity.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A volume of it that is served.
    pub(super) fn a_volume(&self) -> Option<&str> {
        self.told["volumes"][0]["volume"].as_str()
    }

    /// Has it changed.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn change(&self, change: &PoolChange, why: Option<&str>) -> Result<Value, Problem> {
        let why = why.map_or_else(String::new, |why| format!("?why={}", encode(why)));
        self.post(change, &why)
    }

    /// Asks whether it would be changed.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn rehearse(&self, change: &PoolChange) -> Result<Value, Problem> {
        self.post(change, "/dry-run")
    }

    fn post(&self, change: &PoolChange, behind: &str) -> Result<Value, Problem> {
        let route = format!(
            "/v1/pools/{}/{}{behind}",
            encode(&self.name),
            change.route()
        );
        let body = serde_json::to_value(change.clone().absolute()).unwrap_or_default();
        call(&self.socket, "POST", &route, Some(&body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_word_without_a_slash_that_is_no_file_is_a_pool() {
        assert!(is_name("tank"));
        for word in ["./tank", "/dev/sda", "nbd://host/x", "", "Cargo.toml"] {
            assert!(!is_name(word), "{word}");
        }
    }
}
