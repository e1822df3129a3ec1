//! `plexum stop`: a clean stop, waited for.

use std::time::Duration;

use plexum_daemon::control::Action;
use plexum_daemon::problem::{Code, Problem};
use serde_json::json;

use crate::args::{Common, OneVolume};
use crate::client::Client;
use crate::errors::Outcome;
use crate::output::{Screen, object};

/// Looks at the server this often, at most `LOOKS_MAX` times, before it is said that it hangs.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 3000;

/// Runs the command: returns when the server has let go of the members.
///
/// # Errors
/// `NoSuchVolume`, or `Busy` when the server does not end.
pub fn run(args: &OneVolume, common: &Common, screen: &Screen) -> Outcome {
    let client = Client::find(args.volume.as_deref())?;
    if common.dry_run {
        screen.line(format!("would stop {}", client.volume));
        screen.object(&object(
            "plan",
            Some(&client.volume),
            json!({"command": "stop"}),
        ));
        return Ok(0);
    }
    match client.act(&Action::Stop) {
        // The server may end before its answer is read.
        Err(problem) if problem.code != Code::NoServer => return Err(problem),
        _ => {}
    }
    for _ in 0..LOOKS_MAX {
        if client.is_gone() {
            screen.done(format!("{} is stopped", client.volume));
            screen.object(&object("stopped", Some(&client.volume), json!({})));
            return Ok(0);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err(Problem::new(
        Code::Busy,
        format!("{} does not stop: a member does not answer", client.volume),
    )
    .hint(format!(
        "to see why:   plexum debug requests {}",
        client.volume
    )))
}
