//! Servers in the foreground for the stories, and a client of theirs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use super::common::Place;

/// `plexum serve` in the foreground, killed at the end when it still runs.
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts `plexum serve WORDS` and waits until it is ready.
    pub fn start(place: &Place, words: &str) -> Self {
        let mut child = place
            .command(env!("CARGO_BIN_EXE_plexum"))
            .arg("serve")
            .args(words.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(!line.is_empty(), "plexum serve {words} did not get ready");
        Self { child }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, as a crash of the program.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; the exit code.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
