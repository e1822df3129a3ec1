//! `plexum serve` as a process of its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use plexum_daemon::status::VolumeStatus;

use super::Server;
use crate::process::output;
use crate::{BenchError, BenchOptions};

/// A volume to be made and served by the program itself.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub level: &'static str,
    pub members: usize,
    pub member_bytes: u64,
    pub options: &'static [&'static str],
}

/// Name of the volume, which becomes the export's.
pub(crate) const NAME: &str = "bench";

impl Volume {
    /// Where the members of the volume of this name lie.
    pub fn paths(&self, folder: &Path, name: &str) -> Vec<PathBuf> {
        (0..self.members)
            .map(|index| folder.join(format!("{name}-{index}.img")))
            .collect()
    }

    /// Writes the members of a new volume of this name into `folder`.
    pub fn create(
        &self,
        options: &BenchOptions,
        folder: &Path,
        name: &str,
    ) -> Result<Vec<PathBuf>, BenchError> {
        let members = self.paths(folder, name);
        let mut create = command(options, folder);
        create.args(["create", name, "--level", self.level, "--quiet"]);
        create.arg(format!("--member-size={}", self.member_bytes));
        if !matches!(self.level, "1" | "linear") {
            create.args(["--strip", "64K"]);
        }
        output(create.args(self.options).args(&members))?;
        Ok(members)
    }

    /// Makes the volume and serves it.
    pub fn serve(&self, options: &BenchOptions, folder: &Path) -> Result<Server, BenchError> {
        let members = self.create(options, folder, NAME)?;
        serve(options, folder, &members)
    }
}

/// Serves the volume on these members.
pub(crate) fn serve(
    options: &BenchOptions,
    folder: &Path,
    members: &[PathBuf],
) -> Result<Server, BenchError> {
    let mut serve = command(options, folder);
    serve.arg("serve").args(members);
    Server::start("plexum serve", &mut serve, socket(folder, NAME), NAME)
}

/// Tells a running server something about its volume.
pub(super) fn tell(
    options: &BenchOptions,
    server: &Server,
    words: &[&str],
    rest: &[&str],
) -> Result<String, BenchError> {
    let folder = server.socket.parent().and_then(Path::parent);
    let mut tell = command(options, folder.unwrap_or(Path::new("/")));
    output(tell.args(words).arg(NAME).args(rest))
}

/// Where the volume of this name is served from a runtime folder in `folder`.
pub(crate) fn socket(folder: &Path, name: &str) -> PathBuf {
    folder.join("plexum").join(format!("{name}.nbd"))
}

/// The program with a runtime folder of its own.
pub(crate) fn command(options: &BenchOptions, folder: &Path) -> Command {
    let mut command = Command::new(&options.program);
    command.env("XDG_RUNTIME_DIR", folder);
    command.env("XDG_STATE_HOME", folder);
    command
}

/// What the server of `volume` below `folder` says of it.
pub(crate) fn ask_status(folder: &Path, volume: &str) -> Result<VolumeStatus, BenchError> {
    let path = folder.join("plexum").join(format!("{volume}.control"));
    let ask = || {
        let mut socket = UnixStream::connect(&path)?;
        write!(
            socket,
            "GET /v1/volumes/{volume} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok::<String, std::io::Error>(answer)
    };
    let told = |what: String| BenchError(format!("{}: {what}", path.display()));
    let answer = ask().map_err(|error| told(error.to_string()))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(|error| told(format!("no status: {error}")))
}
