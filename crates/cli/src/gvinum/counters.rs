//! `gvinum list -s` and `resetstats`: counters of volumes that are served.
//!
//! Source: freebsd-geom.md sections 2.14 and 2.15.

use plexum_daemon::problem::{Code, Problem};

use super::old::volume_of;
use super::systems;
use crate::client::{Client, running_volumes};
use crate::errors::Outcome;
use crate::output::Screen;
use crate::stats::vinum_lines;
use crate::words::Words;

/// Volumes that are named, by themselves or by an object of theirs; otherwise those of the systems in the places;
/// otherwise all gvinum volumes that are served.
fn clients(words: &Words) -> Result<Vec<Client>, Problem> {
    let mut names: Vec<String> = Vec::new();
    for object in &words.rest {
        let name = volume_of(object).to_owned();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if !names.is_empty() {
        return names.iter().map(|name| Client::find(Some(name))).collect();
    }
    if !words.places.is_empty() {
        let found = systems(&words.places)?;
        let volumes = found.iter().flat_map(|(system, _)| &system.config.volumes);
        names.extend(volumes.map(|volume| volume.name.clone()));
    }
    let running = running_volumes().into_iter();
    let is_asked = |name: &str| words.places.is_empty() || names.iter().any(|one| one == name);
    let running =
        running.filter(|(_, status)| status.format == "gvinum" && is_asked(&status.volume));
    let running: Vec<Client> = running.map(|(client, _)| client).collect();
    if running.is_empty() {
        let text = "counters are kept while a volume is served, and none is";
        return Err(Problem::new(Code::NoSuchVolume, text)
            .hint("to serve them:   plexum serve --write DRIVE..."));
    }
    Ok(running)
}

/// Shows counters.
///
/// # Errors
/// `NoSuchVolume` when what is named is not served.
pub fn list(words: &Words, screen: &Screen) -> Outcome {
    for client in clients(words)? {
        let stats = client.stats()?;
        screen.object(&stats);
        for line in vinum_lines(&stats["vinum"]) {
            screen.line(line.replacen("V volume", &format!("V {}", client.volume), 1));
        }
    }
    Ok(0)
}

/// Starts counting anew.
///
/// # Errors
/// As `list`.
pub fn reset(words: &Words, screen: &Screen) -> Outcome {
    for client in clients(words)? {
        client.take_stats()?;
        screen.done(format!("{} counts anew", client.volume));
    }
    Ok(0)
}
