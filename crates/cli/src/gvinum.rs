//! `plexum gvinum`: FreeBSD's words for systems of Vinum drives that nobody serves, and their output.
//!
//! Invariants:
//! - a change is decided on all drives of the system, and saved on all of them with one time;
//! - drives in use by a server are refused by their locks.
//!
//! Source: freebsd-geom.md sections 2.12 and 2.13.

mod counters;
mod list;
mod old;

use std::path::Path;

use plexum_daemon::create::this_host;
use plexum_daemon::examine::examine_path;
use plexum_daemon::foreign::create::{Edit, carry_out};
use plexum_daemon::foreign::offline::{Found, system_of};
use plexum_daemon::problem::{Code, Problem};
use plexum_engine::meta::gvinum::edit::{self, Force};
use plexum_engine::meta::gvinum::{Drive, Store, System};
use plexum_format::vinum::{Config, DriveHeader, SubdiskState};

use crate::args::Common;
use crate::config::text_of;
use crate::create::runtime;
use crate::errors::Outcome;
use crate::gmirror::Words;
use crate::output::Screen;
use crate::scan::find_sets;
use crate::units::parse_bytes;

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text).hint("plexum gvinum list|resetstats|printconfig|dump|create|concat|stripe|raid5|mirror|start|stop|checkparity|rebuildparity|rename|rm|attach|detach|move|setstate|grow|hotspare|saveconfig|resetconfig|clear")
}

fn refused(text: String) -> Problem {
    Problem::new(Code::WrongState, text)
}

/// Runs the command.
///
/// # Errors
/// `Usage`; what a change is refused for; of reading and writing.
pub fn run(words: &[String], common: &Common, screen: &Screen) -> Outcome {
    let Some((command, rest)) = words.split_first() else {
        return Err(usage("a command is missing"));
    };
    if let Some(outcome) = made(command, rest, common, screen) {
        return outcome;
    }
    let words = match command.as_str() {
        "list" | "l" | "ld" | "lv" | "lp" | "ls" => Words::parse(rest, &[])?, // their -s has no value
        _ => Words::parse(rest, &["-n", "-s"])?,
    };
    match command.as_str() {
        "list" | "l" | "ld" | "lv" | "lp" | "ls" if words.has("-s") => {
            counters::list(&words, screen)
        }
        "resetstats" => counters::reset(&words, screen),
        "list" | "l" | "ld" | "lv" | "lp" | "ls" => list::run(command, &words, screen),
        "printconfig" => {
            for (system, _) in systems(&words.places)? {
                for line in text_of(&system).lines() {
                    screen.line(line);
                }
            }
            Ok(0)
        }
        "start" | "stop" | "checkparity" | "rebuildparity" => {
            old::on_served(command, &words, common, screen)
        }
        "dump" | "dumpconfig" => old::dump(&words, screen),
        "resetconfig" => old::reset(&words, common, screen),
        "clear" => old::clear(&words, common, screen),
        "quit" => Ok(0),
        _ => change(command, &words, common, screen),
    }
}

/// Commands that make something new: those of `plexum create`.
fn made(command: &str, rest: &[String], common: &Common, screen: &Screen) -> Option<Outcome> {
    let level = match command {
        "concat" => "linear",
        "stripe" => "0",
        "raid5" => "5",
        "mirror" => "1",
        "create" => "",
        _ => return None,
    };
    Some(make(level, rest, common, screen))
}

fn make(level: &str, rest: &[String], common: &Common, screen: &Screen) -> Outcome {
    // `mirror -s` takes no value, `raid5 -s SIZE` does.
    let with_value: &[&str] = if level == "1" { &["-n"] } else { &["-n", "-s"] };
    let words = Words::parse(rest, with_value)?;
    words.only(&["-n", "-s", "-f"])?;
    let mut typed = vec!["plexum".to_owned(), "create".to_owned()];
    if level.is_empty() {
        let [file] = words.rest.as_slice() else {
            return Err(usage("create FILE"));
        };
        typed.extend(["-f".to_owned(), file.clone()]);
    } else {
        typed.push(words.value("-n").unwrap_or("gvinumvolume0").to_owned());
        let level = if level == "1" && words.has("-s") {
            "10"
        } else {
            level
        };
        typed.extend(["--level", level, "--format", "gvinum"].map(str::to_owned));
        if let Some(strip) = words.value("-s") {
            typed.extend(["--strip".to_owned(), strip.to_owned()]);
        }
        typed.extend(words.rest.iter().cloned());
    }
    if words.has("-f") {
        typed.push("--force".to_owned());
    }
    let cli = <crate::args::Cli as clap::Parser>::try_parse_from(typed)
        .map_err(|error| usage(error.to_string()))?;
    match &cli.command {
        crate::args::Command::Create(args) => crate::create::run(args, common, screen),
        _ => Err(Problem::new(Code::Bug, "create is create")),
    }
}

/// Systems in the places, with the paths of their drives by number.
fn systems(places: &[String]) -> Result<Vec<(System, Vec<String>)>, Problem> {
    let mut systems = Vec::new();
    for set in find_sets(places)? {
        let found: Vec<&Found> = set
            .examined
            .iter()
            .filter_map(|one| one.foreign.as_ref())
            .collect();
        if matches!(found.first(), Some(Found::Drive(_))) {
            let system = system_of(&found)
                .map_err(|error| Problem::new(Code::DamagedMetadata, error.to_string()))?;
            systems.push((system, set.members));
        }
    }
    Ok(systems)
}

fn change(command: &str, words: &Words, common: &Common, screen: &Screen) -> Outcome {
    let mut systems = systems(&words.places)?;
    if systems.len() != 1 {
        let text = format!("{} systems of Vinum drives were found", systems.len());
        return Err(Problem::new(Code::NoMetadata, text)
            .hint("say where the drives of one are:   --in DIR"));
    }
    let (mut system, mut paths) = systems.remove(0);
    let force = if words.has("-f") {
        Force::Yes
    } else {
        Force::No
    };
    let is_deep = words.has("-r");
    let rest: Vec<&str> = words.rest.iter().map(String::as_str).collect();
    let config = &mut system.config;
    match (command, rest.as_slice()) {
        ("saveconfig", []) => {}
        ("rename", [object, new]) => edit::rename(config, object, new, is_deep).map_err(refused)?,
        ("rm", objects) if !objects.is_empty() => {
            remove(&mut system, objects, is_deep)?;
        }
        ("hotspare", drives) if !drives.is_empty() => {
            for drive in drives {
                let (name, _) = known_or_new(&mut system, &mut paths, drive)?;
                if !system.config.spares.contains(&name) {
                    system.config.spares.push(name);
                }
            }
        }
        ("detach", [object]) => edit::detach(config, object, force).map_err(refused)?,
        ("attach", [object, to]) => edit::attach(config, object, to, None).map_err(refused)?,
        ("attach", [object, to, offset]) => {
            let offset = parse_bytes(offset).map_err(usage)?;
            edit::attach(config, object, to, Some(offset)).map_err(refused)?;
        }
        ("setstate", [state, objects @ ..]) if !objects.is_empty() => {
            set_states(config, state, objects, force)?;
        }
        ("move", [drive, subdisks @ ..]) if !subdisks.is_empty() => {
            let (drive, size) = known_or_new(&mut system, &mut paths, drive)?;
            for subdisk in subdisks {
                edit::move_subdisk(&mut system.config, subdisk, &drive, size, force)
                    .map_err(refused)?;
            }
        }
        ("grow", [plex, device]) => {
            let (drive, size) = known_or_new(&mut system, &mut paths, device)?;
            edit::grow(&mut system.config, plex, &drive, size, None).map_err(refused)?;
        }
        _ => {
            return Err(usage(format!(
                "{command} {}: not understood",
                rest.join(" ")
            )));
        }
    }
    save(&system, &paths, common, screen)
}

fn set_states(
    config: &mut Config,
    state: &str,
    objects: &[&str],
    force: Force,
) -> Result<(), Problem> {
    let state = match state {
        "up" => SubdiskState::Up,
        "down" => SubdiskState::Down,
        "stale" => SubdiskState::Stale,
        _ => return Err(usage(format!("{state}: up, down or stale"))),
    };
    for object in objects {
        edit::set_state(config, object, state, force).map_err(refused)?;
    }
    Ok(())
}

/// Removes objects and drives.
fn remove(system: &mut System, objects: &[&str], is_deep: bool) -> Result<(), Problem> {
    for object in objects {
        if system.drive(object).is_some() {
            old::remove_drive(system, object, is_deep)?;
        } else {
            edit::remove(&mut system.config, object, is_deep).map_err(refused)?;
        }
    }
    Ok(())
}

/// A drive of the system, or a blank member that becomes one: its name and size.
fn known_or_new(
    system: &mut System,
    paths: &mut Vec<String>,
    word: &str,
) -> Result<(String, u64), Problem> {
    match system.drive(word) {
        Some(known) => Ok((known.name.clone(), known.size_bytes)),
        None => new_drive(system, paths, word),
    }
}

/// A blank member becomes a drive of the system, called `gvinumdriveN`: its name and size.
fn new_drive(
    system: &mut System,
    paths: &mut Vec<String>,
    device: &str,
) -> Result<(String, u64), Problem> {
    let examined = examine_path(Path::new(device), device)?;
    if examined.detection.best().is_some() {
        let text = format!("{device} is a member of something already");
        return Err(Problem::new(Code::WouldDestroy, text).member(device));
    }
    let name = (0..)
        .map(|number| format!("gvinumdrive{number}"))
        .find(|name| system.drive(name).is_none())
        .unwrap_or_default();
    let header = DriveHeader::create(&this_host(), &name, system.updated)
        .map_err(|error| usage(error.to_string()))?;
    let size_bytes = examined.size_bytes / 512 * 512;
    system.drives.push(Drive {
        name: name.clone(),
        key: Some(paths.len()),
        device: device.to_owned(),
        size_bytes,
        header: Some(header),
    });
    paths.push(device.to_owned());
    Ok((name, size_bytes))
}

/// Writes the configuration to all drives that are there, with one time, each behind a header of the current format.
///
/// # Errors
/// Of opening and writing; everything has its old bytes again then.
pub fn save(system: &System, paths: &[String], common: &Common, screen: &Screen) -> Outcome {
    let mut store = Store::new(system);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    store.next_save(now);
    check_text(&system.config)?;
    let mut edits = Vec::new();
    for drive in &system.drives {
        let Some(path) = drive.key.and_then(|key| paths.get(key)) else {
            continue;
        };
        let writes = store.writes(&drive.name).into_iter();
        edits.push(Edit {
            member: path.clone(),
            writes: writes.map(|write| (write.at_bytes, write.bytes)).collect(),
        });
    }
    if common.dry_run {
        for edit in &edits {
            screen.line(format!("would save the configuration on {}", edit.member));
        }
        for line in text_of(system).lines() {
            screen.line(line);
        }
        return Ok(0);
    }
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    runtime.block_on(carry_out(&handle, edits))?;
    Ok(0)
}

fn check_text(config: &Config) -> Result<(), Problem> {
    config
        .encode()
        .map(drop)
        .map_err(|error| refused(error.to_string()))
}
