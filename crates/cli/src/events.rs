//! `plexum events`: what happened, and what happens.

use serde_json::Value;

use crate::args::Events;
use crate::client::Client;
use crate::errors::Outcome;
use crate::output::{Screen, is_lost};
use crate::units::show_moment;

/// Runs the command; with `--follow` until the server ends.
///
/// # Errors
/// `NoSuchVolume`, `AmbiguousVolume`, `NoServer`.
pub fn run(args: &Events, screen: &Screen) -> Outcome {
    let client = Client::find(args.volume.as_deref())?;
    if args.follow {
        client.follow(0, |event| {
            show(&client, &event, screen);
            !is_lost()
        })?;
        return Ok(0);
    }
    let answer = client.events()?;
    for event in answer["events"].as_array().into_iter().flatten() {
        show(&client, event, screen);
    }
    Ok(0)
}

fn show(client: &Client, event: &Value, screen: &Screen) {
    if event["volume"].as_str() != Some(&client.volume) {
        return;
    }
    screen.object(event);
    screen.line(format!(
        "{}  {:<16} {}",
        show_moment(event["time_s"].as_u64().unwrap_or(0)),
        event["name"].as_str().unwrap_or("-"),
        event["message"].as_str().unwrap_or("")
    ));
}
