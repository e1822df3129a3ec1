//! The demo's server: a `plexum serve` of its own in the demo's folder, and its control socket.
//!
//! Invariants: the process never outlives the demo, however that ends.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::runtime_dir::{Kind, RuntimeDir};

use crate::client::Client;

/// Name of the demo's volume.
pub const NAME: &str = "demo";

/// A running server.
pub struct Server {
    child: Child,
    /// Its control socket.
    pub client: Client,
    /// Its NBD socket.
    pub socket: PathBuf,
}

impl Server {
    /// Serves `members`, with the runtime folder below `runtime`. Returns when clients may connect.
    ///
    /// # Errors
    /// The server's own refusal.
    pub fn start(runtime: &Path, members: &[PathBuf]) -> Result<Self, Problem> {
        let tell =
            |error: std::io::Error| Problem::from_io(&error, "starting", "the demo's server");
        let program = std::env::current_exe().map_err(tell)?;
        let mut child = Command::new(program)
            .args(["serve", "--json"])
            .args(members)
            .env("XDG_RUNTIME_DIR", runtime)
            .env("XDG_STATE_HOME", runtime)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0) // Ctrl-C is for the demo, which ends its server itself
            .spawn()
            .map_err(tell)?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(tell)?;
        }
        if line.is_empty() {
            let mut text = String::new();
            if let Some(mut errors) = child.stderr.take() {
                let _ = errors.read_to_string(&mut text);
            }
            let _ = child.wait();
            let value = serde_json::from_str(text.lines().last().unwrap_or("")).unwrap_or_default();
            return Err(Problem::from_json(&value).unwrap_or_else(|| {
                Problem::new(
                    Code::NoServer,
                    format!("the demo's server did not start: {text}"),
                )
            }));
        }
        let folder = RuntimeDir::at(runtime.join("plexum"));
        Ok(Self {
            child,
            client: Client::at(folder.file(NAME, Kind::Control), NAME),
            socket: folder.file(NAME, Kind::Nbd),
        })
    }

    /// SIGKILL: no clean stop.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end of the process after a stop was asked for; its exit code.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().ok()?.code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
