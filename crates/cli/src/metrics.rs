//! `plexum metrics`: what Prometheus is to know of all volumes of this user, for node_exporter's textfile collector.

use std::path::Path;

use plexum_daemon::metrics::merged;
use plexum_daemon::problem::{Code, Problem};
use serde_json::json;

use crate::control::{call_text, runtime_dir};
use crate::errors::Outcome;
use crate::output::{Screen, object};

/// Prints the pages of all servers as one.
///
/// # Errors
/// `NoServer` when none answers: whoever keeps the last page sees that it gets no newer.
pub fn run(screen: &Screen) -> Outcome {
    let folder = runtime_dir();
    let page = |socket: &Path| call_text(socket, "/metrics").ok();
    let mut pages: Vec<String> = page(&folder.daemon_socket()).into_iter().collect();
    // The daemon has told of all its volumes; a server of several answers for all of them at each of its sockets.
    pages.extend(
        folder
            .control_sockets()
            .iter()
            .filter_map(|socket| page(socket)),
    );
    if pages.is_empty() {
        let problem = Problem::new(Code::NoServer, "no server runs, so there are no metrics");
        return Err(problem.hint("to see what is there:   plexum scan DIR"));
    }
    let text = merged(&pages);
    for line in text.lines() {
        screen.line(line);
    }
    screen.object(&object("metrics", None, json!({"text": text})));
    Ok(0)
}
