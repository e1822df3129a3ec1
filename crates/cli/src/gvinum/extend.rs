//! `gvinum create` and its shortcuts: a new system, or with `--in` more objects and drives of the one that is there.
//!
//! Invariants:
//! - all or nothing: what the text asks for is built whole before the first drive is written;
//! - what a volume holds already is never taken to be on a plex that joins it.

use plexum_daemon::foreign::create::parse;
use plexum_daemon::problem::{Code, Problem};
use plexum_format::vinum::{Mark, Script};
use plexum_freebsd::gvinum::{Room, System, build, is_free, places_of, plexes_of, subdisks_of};

use super::{VOCABULARY, finish, new_drive, only_system, save, systems};
use crate::args::{Cli, Command, Common, Create};
use crate::errors::Outcome;
use crate::foreign::{CreateRequest, NewMember, create_request};
use crate::output::Screen;
use crate::words::Words;

/// Commands that make something new.
///
/// # Errors
/// `Usage` with line, place and expectation; as `plexum create`.
pub fn make(command: &'static str, words: &Words, common: &Common, screen: &Screen) -> Outcome {
    let is_there = !words.places.is_empty() && !systems(&words.places)?.is_empty();
    let found = if is_there {
        Some(only_system(words)?)
    } else {
        None
    };
    let name = free_volume(found.as_ref().map(|(system, _)| system));
    let typed = typed(command, words, &name);
    let cli = <Cli as clap::Parser>::try_parse_from(typed)
        .map_err(|error| VOCABULARY.wrong(command, error.to_string()))?;
    let Command::Create(args) = &cli.command else {
        return Err(Problem::new(Code::Bug, "create is create"));
    };
    match found {
        None => {
            crate::create::run(args, common, screen)?;
            if words.has('v') && !common.dry_run {
                super::list::run("list", &Words::at(made_on(args)?), screen)?;
            }
            Ok(0)
        }
        Some((system, paths)) => extend(system, paths, args, words, (common, screen)),
    }
}

/// The drives of a system that was just made.
fn made_on(args: &Create) -> Result<Vec<String>, Problem> {
    match create_request(args)? {
        Some(CreateRequest::System(text, path)) => {
            let drives = parse(&text, &path)?.drives.into_iter();
            Ok(drives.map(|drive| drive.device).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// The first name that gvinum gives to volumes without one, and that no volume has.
fn free_volume(system: Option<&System>) -> String {
    let is_free = |name: &String| {
        system.is_none_or(|system| system.config.volumes.iter().all(|one| one.name != *name))
    };
    let mut names = (0..).map(|number| format!("gvinumvolume{number}"));
    names.find(is_free).unwrap_or_default()
}

/// The command as `plexum create` has it.
fn typed(command: &str, words: &Words, name: &str) -> Vec<String> {
    let mut typed = vec!["plexum".to_owned(), "create".to_owned()];
    let level = match command {
        "concat" => "linear",
        "stripe" => "0",
        "raid5" => "5",
        "mirror" if words.has('s') => "10",
        "mirror" => "1",
        _ => "",
    };
    if level.is_empty() {
        typed.extend(["-f".to_owned(), words.rest[0].clone()]);
    } else {
        typed.push(words.value('n').unwrap_or(name).to_owned());
        typed.extend(["--level", level, "--format", "gvinum"].map(str::to_owned));
        if let Some(strip) = words.value('s') {
            typed.extend(["--strip".to_owned(), strip.to_owned()]);
        }
        typed.extend(words.rest.iter().cloned());
    }
    if words.has('f') {
        typed.push("--force".to_owned());
    }
    typed
}

fn usage(path: &str, line: usize, text: &str) -> Problem {
    Problem::new(Code::Usage, format!("{path}: line {line}: {text}"))
}

/// More of the system that is there.
fn extend(
    mut system: System,
    mut paths: Vec<String>,
    args: &Create,
    words: &Words,
    (common, screen): (&Common, &Screen),
) -> Outcome {
    let Some(CreateRequest::System(text, path)) = create_request(args)? else {
        return Err(Problem::new(Code::Bug, "a text makes a system"));
    };
    let mut script = parse(&text, &path)?;
    if args.config.is_none() {
        name_drives(&mut script, &system);
    }
    if words.has('f') {
        check_drives(&script, &system, &paths, &path)?;
        pass_over(&mut script, &system);
    }
    let asked = NewMember::of(words, common, screen);
    for drive in &script.drives {
        if system.drive(&drive.name).is_some() {
            let text = format!("a drive {} exists; -f passes over what exists", drive.name);
            return Err(usage(&path, drive.line, &text));
        }
        let name = Some(drive.name.as_str());
        new_drive(&mut system, &mut paths, &drive.device, name, &asked)?;
    }
    for subdisk in &script.subdisks {
        let places = places_of(&system.config, &subdisk.plex).unwrap_or_default();
        let is_whole = !places.iter().any(is_free);
        if is_whole && !subdisks_of(&system.config, &subdisk.plex).is_empty() {
            let text = format!(
                "{} has its subdisks; it gets one more by:   plexum gvinum grow {} DEVICE",
                subdisk.plex, subdisk.plex
            );
            return Err(usage(&path, subdisk.line, &text));
        }
    }
    let there = system.drives.iter().filter(|drive| drive.is_up());
    let rooms = there.map(|drive| Room {
        name: drive.name.clone(),
        size_bytes: drive.size_bytes,
    });
    let rooms: Vec<Room> = rooms.collect();
    system.config = build(&script, &rooms, &system.config)
        .map_err(|error| usage(&path, error.line, &error.message))?;
    let is_redundant = |volume: &str| {
        let plexes = plexes_of(&system.config, volume);
        plexes.len() > 1 || plexes.iter().any(|plex| plex.organisation.has_parity())
    };
    // What was on the drives before is no copy and no parity of anything.
    if script
        .volumes
        .iter()
        .any(|volume| is_redundant(&volume.name))
    {
        system.mark = Mark::Writing;
    }
    save(&system, &paths, common, screen)?;
    finish(&system, words, common, screen)
}

/// Drives of a shortcut are called after those that are there.
fn name_drives(script: &mut Script, system: &System) {
    let mut names = (0..)
        .map(|number| format!("gvinumdrive{number}"))
        .filter(|name| system.drive(name).is_none());
    for at in 0..script.drives.len() {
        let new = names.next().unwrap_or_default();
        let old = std::mem::replace(&mut script.drives[at].name, new.clone());
        let subdisks = script.subdisks.iter_mut();
        // Marked so that a name that was given already is not taken for one that is to be replaced.
        subdisks
            .filter(|one| one.drive == old)
            .for_each(|one| one.drive = format!("\0{new}"));
    }
    for subdisk in &mut script.subdisks {
        subdisk.drive = subdisk.drive.trim_start_matches('\0').to_owned();
    }
}

/// With `-f` a drive that exists is passed over, when it is the same: another disk under its name is not.
fn check_drives(
    script: &Script,
    system: &System,
    paths: &[String],
    path: &str,
) -> Result<(), Problem> {
    for asked in &script.drives {
        let (name, device) = (&asked.name, &asked.device);
        let Some(known) = system.drive(name) else {
            continue;
        };
        let at = known.key.and_then(|key| paths.get(key));
        let place = |path: &str| std::fs::canonicalize(path).ok();
        let text = match at {
            None => format!(
                "the drive {name} is not here: {device} cannot take its name while subdisks are on it"
            ),
            Some(at) if place(device).is_some_and(|asked| Some(asked) != place(at)) => {
                format!("the drive {name} is {at}, not {device}")
            }
            Some(_) => continue,
        };
        let problem = usage(path, asked.line, &text);
        return Err(match at {
            Some(_) => problem.hint("give the new drive a name of its own"),
            None => problem
                .hint("give the new drive a name of its own, or take the old one out first; its places stay free:")
                .hint(format!("  plexum gvinum rm -r {name}")),
        });
    }
    Ok(())
}

/// With `-f` what exists is passed over.
fn pass_over(script: &mut Script, system: &System) {
    let config = &system.config;
    script
        .drives
        .retain(|one| system.drive(&one.name).is_none());
    let has_volume = |name: &str| config.volumes.iter().any(|other| other.name == name);
    let has_plex = |name: &str| config.plexes.iter().any(|other| other.name == name);
    let has_subdisk = |name: &str| config.subdisks.iter().any(|other| other.name == name);
    script.volumes.retain(|one| !has_volume(&one.name));
    script.plexes.retain(|one| !has_plex(&one.name));
    script.subdisks.retain(|one| !has_subdisk(&one.name));
}
