//! `plexum gvinum`: FreeBSD's words for systems of Vinum drives, and their output.
//!
//! Invariants:
//! - a change is decided on all drives of the system, and saved on all of them with one time;
//! - drives in use by a server are refused by their locks;
//! - as the originals, commands that went well say nothing; with `-v` what there is now.
//!
//! Source: freebsd-geom.md sections 2.12 and 2.13.

mod counters;
mod extend;
mod list;
mod old;

use std::path::Path;

use plexum_daemon::changes::Reverse;
use plexum_daemon::create::this_host;
use plexum_daemon::examine::examine_path;
use plexum_daemon::foreign::create::{Edit, carry_out};
use plexum_daemon::foreign::offline::{Found, system_of};
use plexum_daemon::problem::{Code, Problem};
use plexum_format::vinum::{Config, DriveHeader, SubdiskState};
use plexum_freebsd::gvinum::edit::{self, Depth, Force};
use plexum_freebsd::gvinum::{Drive, Store, System, subdisks_of};
use serde_json::json;

use crate::args::Common;
use crate::config::text_of;
use crate::errors::Outcome;
use crate::foreign::{NewMember, check_owners};
use crate::history::{noted, tell};
use crate::offline::runtime;
use crate::output::{Screen, object};
use crate::sets::find_sets;
use crate::units::parse_bytes;
use crate::words::{self, Vocabulary, Words};

/// What gvinum understands, and a few words more. Source: freebsd-geom.md section 2.12.
const VOCABULARY: Vocabulary = Vocabulary {
    program: "plexum gvinum",
    commands: &[
        word(&["attach"], "[-v] object to [offset] [rename]"),
        word(&["checkparity"], "[-fv] plex ..."),
        word(&["clear"], "device ..."),
        word(&["concat"], "[-fv] [-n name] device ..."),
        word(&["create"], "[-fv] file"),
        word(&["detach"], "[-fv] object"),
        word(&["dump", "dumpconfig"], "[device ...]"),
        word(&["grow"], "[-fv] plex device"),
        word(&["help"], ""),
        word(&["hotspare"], "[-fv] drive ..."),
        word(&["list", "l"], "[-rsvV] [object ...]"),
        word(&["ld"], "[-rsvV] [drive ...]"),
        word(&["lp"], "[-rsvV] [plex ...]"),
        word(&["ls"], "[-rsvV] [subdisk ...]"),
        word(&["lv"], "[-rsvV] [volume ...]"),
        word(&["mirror"], "[-fsv] [-n name] device ..."),
        word(&["move", "mv"], "[-fv] drive subdisk ..."),
        word(&["printconfig"], ""),
        word(&["quit", "exit"], ""),
        word(&["raid5"], "[-fv] [-n name] [-s stripesize] device ..."),
        word(&["rebuildparity"], "[-fv] plex ..."),
        word(&["rename"], "[-rv] object name"),
        word(&["resetconfig"], "[-f]"),
        word(&["resetstats"], "[-r] [object ...]"),
        word(&["rm"], "[-frv] object ..."),
        word(&["saveconfig"], "[-v]"),
        word(&["setstate"], "[-fv] state object ..."),
        word(&["start"], "[-vw] [-S size] [-i interval] object ..."),
        word(&["stop"], "[-fv] object ..."),
        word(&["stripe"], "[-fv] [-n name] [-s stripesize] device ..."),
    ],
};

const fn word(names: &'static [&'static str], usage: &'static str) -> words::Command {
    words::Command { names, usage }
}

fn refused(text: String) -> Problem {
    Problem::new(Code::WrongState, text)
}

/// Runs the command.
///
/// # Errors
/// `Usage`; what a change is refused for; of reading and writing.
pub fn run(words: &[String], common: &Common, screen: &Screen) -> Outcome {
    let (command, words) = VOCABULARY.parse(words)?;
    match command {
        "help" => VOCABULARY.help(screen),
        "quit" => Ok(0),
        "concat" | "stripe" | "raid5" | "mirror" | "create" => {
            extend::make(command, &words, common, screen)
        }
        "list" | "ld" | "lv" | "lp" | "ls" if words.has('s') => counters::list(&words, screen),
        "resetstats" => counters::reset(&words, screen),
        "list" | "ld" | "lv" | "lp" | "ls" => list::run(command, &words, screen),
        "printconfig" => {
            for (system, _) in systems(&words.places)? {
                let text = text_of(&system);
                text.lines().for_each(|line| screen.line(line));
                screen.object(&object("configuration", None, json!({"text": text})));
            }
            Ok(0)
        }
        "start" | "stop" | "checkparity" | "rebuildparity" => {
            old::on_served(command, &words, common, screen)
        }
        "dump" => old::dump(&words, screen),
        "resetconfig" => old::reset(&words, common, screen),
        "clear" => old::clear(&words, common, screen),
        _ => change(command, &words, common, screen),
    }
}

/// Systems in the places, with the paths of their drives by number.
fn systems(places: &[String]) -> Result<Vec<(System, Vec<String>)>, Problem> {
    let mut systems = Vec::new();
    for set in find_sets(places)? {
        let found = set.foreign();
        if matches!(found.first(), Some(Found::Drive(_))) {
            let system = system_of(&found)
                .map_err(|error| Problem::new(Code::DamagedMetadata, error.to_string()))?;
            systems.push((system, set.members));
        }
    }
    Ok(systems)
}

/// The one system in the places.
fn only_system(words: &Words) -> Result<(System, Vec<String>), Problem> {
    let mut systems = systems(&words.places)?;
    if systems.len() == 1 {
        return Ok(systems.remove(0));
    }
    let text = match systems.len() {
        0 => "no Vinum drives were found".to_owned(),
        count => format!("{count} systems of Vinum drives were found, and one is changed"),
    };
    Err(Problem::new(Code::NoMetadata, text).hint("say where the drives of one are:   --in DIR"))
}

fn change(command: &'static str, words: &Words, common: &Common, screen: &Screen) -> Outcome {
    let (mut system, mut paths) = only_system(words)?;
    let force = if words.has('f') {
        Force::Yes
    } else {
        Force::No
    };
    let depth = match words.has('r') {
        true => Depth::All,
        false => Depth::One,
    };
    let asked = NewMember::of(words, common, screen);
    let before = system.config.clone();
    let rest: Vec<&str> = words.rest.iter().map(String::as_str).collect();
    let is_drive = |word: &&str| system.drive(word).is_some();
    let names_a_drive = rest.first().is_some_and(is_drive);
    let config = &mut system.config;
    match (command, rest.as_slice()) {
        ("saveconfig", _) => {}
        ("rename", [object, new]) if names_a_drive => {
            old::rename_drive(&mut system, object, new)?;
        }
        ("rename", [object, new]) => edit::rename(config, object, new, depth).map_err(refused)?,
        ("rm", objects) => remove(&mut system, objects, depth)?,
        ("hotspare", drives) => {
            for drive in drives {
                let (name, _) = known_or_new(&mut system, &mut paths, drive, &asked)?;
                if !system.config.spares.contains(&name) {
                    system.config.spares.push(name);
                }
            }
        }
        ("detach", [object]) => edit::detach(config, object, force).map_err(refused)?,
        ("attach", [object, to, more @ ..]) => attach(config, object, to, more)?,
        ("setstate", [state, objects @ ..]) => set_states(config, state, objects, force)?,
        ("move", [drive, subdisks @ ..]) => {
            let (drive, size) = known_or_new(&mut system, &mut paths, drive, &asked)?;
            for subdisk in subdisks {
                edit::move_subdisk(&mut system.config, subdisk, &drive, size, force)
                    .map_err(refused)?;
            }
        }
        ("grow", [plex, device]) => {
            let (drive, size) = known_or_new(&mut system, &mut paths, device, &asked)?;
            edit::grow(&mut system.config, plex, &drive, size, None).map_err(refused)?;
        }
        _ => return Err(VOCABULARY.wrong(command, "not understood")),
    }
    if force == Force::No && matches!(command, "rm" | "detach" | "move") {
        edit::check_copies(&before, &system.config).map_err(refused)?;
    }
    save(&system, &paths, common, screen)?;
    finish(&system, words, common, screen)
}

/// What there is now, when that is asked for.
fn finish(system: &System, words: &Words, common: &Common, screen: &Screen) -> Outcome {
    if (words.has('v') || screen.verbosity > 0) && !common.dry_run {
        list::all(system).iter().for_each(|line| screen.line(line));
    }
    Ok(0)
}

/// `attach OBJECT TO [OFFSET] [rename]`; renamed, an object is called after its new place: the next number there.
fn attach(config: &mut Config, object: &str, to: &str, more: &[&str]) -> Result<(), Problem> {
    let (offset, is_renamed) = match more {
        [] => (None, false),
        ["rename"] => (None, true),
        [offset] => (Some(*offset), false),
        [offset, "rename"] => (Some(*offset), true),
        _ => return Err(VOCABULARY.wrong("attach", "behind an offset there is only: rename")),
    };
    let bad = |text| VOCABULARY.wrong("attach", text);
    let offset = offset.map(parse_bytes).transpose().map_err(bad)?;
    edit::attach(config, object, to, offset).map_err(refused)?;
    if !is_renamed {
        return Ok(());
    }
    let is_plex = config.plexes.iter().any(|plex| plex.name == object);
    let letter = if is_plex { 'p' } else { 's' };
    let is_taken = |name: &String| {
        config.plexes.iter().any(|one| one.name == *name)
            || config.subdisks.iter().any(|one| one.name == *name)
    };
    let mut names = (0..).map(|number| format!("{to}.{letter}{number}"));
    match names.find(|name| name == object || !is_taken(name)) {
        Some(name) if name != object => {
            edit::rename(config, object, &name, Depth::All).map_err(refused)
        }
        _ => Ok(()),
    }
}

/// States of subdisks; those of a plex or a volume are set by its subdisks.
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
        _ => return Err(VOCABULARY.wrong("setstate", format!("{state}: it is up, down or stale"))),
    };
    for object in objects {
        let plexes = config
            .plexes
            .iter()
            .filter(|plex| plex.name == *object || plex.volume.as_deref() == Some(object));
        let plexes: Vec<&str> = plexes.map(|plex| plex.name.as_str()).collect();
        let below = plexes.iter().flat_map(|plex| subdisks_of(config, plex));
        let mut names: Vec<String> = below.map(|subdisk| subdisk.name.clone()).collect();
        if names.is_empty() {
            names.push((*object).to_owned());
        }
        for name in names {
            edit::set_state(config, &name, state, force).map_err(refused)?;
        }
    }
    Ok(())
}

/// Removes objects and drives.
fn remove(system: &mut System, objects: &[&str], depth: Depth) -> Result<(), Problem> {
    for object in objects {
        if system.drive(object).is_some() {
            old::remove_drive(system, object, depth)?;
        } else {
            edit::remove(&mut system.config, object, depth).map_err(refused)?;
        }
    }
    Ok(())
}

/// A drive of the system, or a blank member that becomes one: its name and size.
fn known_or_new(
    system: &mut System,
    paths: &mut Vec<String>,
    word: &str,
    asked: &NewMember<'_>,
) -> Result<(String, u64), Problem> {
    match system.drive(word) {
        Some(known) => Ok((known.name.clone(), known.size_bytes)),
        None => new_drive(system, paths, word, None, asked),
    }
}

/// A blank member becomes a drive of the system, called `gvinumdriveN` without a name of its own: its name and size.
fn new_drive(
    system: &mut System,
    paths: &mut Vec<String>,
    device: &str,
    name: Option<&str>,
    asked: &NewMember<'_>,
) -> Result<(String, u64), Problem> {
    let examined = examine_path(Path::new(device), device).map_err(|mut problem| {
        problem.hints.retain(|hint| !hint.contains("`missing`"));
        problem.hint("drives of the system are:   plexum gvinum ld")
    })?;
    if paths.iter().any(|path| path == device) {
        let text = format!("{device} is given twice");
        return Err(Problem::new(Code::DuplicateMember, text).member(device));
    }
    if !examined.detection.is_blank() {
        let text = format!("{device} is a member of something already");
        return Err(Problem::new(Code::WouldDestroy, text).member(device));
    }
    asked.check("gvinum", device)?;
    let free = || {
        let mut names = (0..).map(|number| format!("gvinumdrive{number}"));
        names.find(|name| system.drive(name).is_none())
    };
    let name = name.map(str::to_owned).or_else(free).unwrap_or_default();
    let header = DriveHeader::create(&this_host(), &name, system.updated)
        .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    let size_bytes = examined.size_bytes / 512 * 512;
    system.drives.push(Drive {
        name: name.clone(),
        key: Some(paths.len()),
        device: device.to_owned(),
        size_bytes,
        header: Some(header),
        first_copy: 0,
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
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    if common.dry_run {
        handle.rehearse();
    }
    let members: Vec<String> = edits.iter().map(|edit| edit.member.clone()).collect();
    check_owners(&members, common)?;
    let noted = noted(common, Reverse::Refused);
    let written = runtime.block_on(carry_out(&handle, edits, noted.as_ref()))?;
    tell(&written, screen);
    if common.dry_run {
        for member in members {
            screen.line(format!("would save the configuration on {member}"));
        }
        for line in text_of(system).lines() {
            screen.line(line);
        }
    }
    Ok(0)
}

fn check_text(config: &Config) -> Result<(), Problem> {
    config
        .encode()
        .map(drop)
        .map_err(|error| refused(error.to_string()))
}
