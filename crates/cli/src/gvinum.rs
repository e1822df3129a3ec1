//! `plexum gvinum`: FreeBSD's words for systems of Vinum drives that nobody serves, and their output.
//!
//! Invariants:
//! - a change is decided on all drives of the system, and saved on all of them with one time;
//! - drives in use by a server are refused by their locks.
//!
//! Source: freebsd-geom.md sections 2.12 and 2.13.

use std::path::Path;

use plexum_daemon::create::this_host;
use plexum_daemon::examine::examine_path;
use plexum_daemon::foreign::create::{Edit, carry_out};
use plexum_daemon::foreign::offline::{Found, system_of};
use plexum_daemon::problem::{Code, Problem};
use plexum_engine::meta::gvinum::edit::{self, Force};
use plexum_engine::meta::gvinum::{Drive, Store, System, plex_map, subdisks_of, volume_bytes};
use plexum_format::vinum::{Config, DriveHeader, Organisation, Subdisk, SubdiskState};

use crate::args::Common;
use crate::config::text_of;
use crate::create::runtime;
use crate::errors::Outcome;
use crate::gmirror::Words;
use crate::output::Screen;
use crate::scan::find_sets;
use crate::units::parse_bytes;

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text).hint("plexum gvinum list|printconfig|create|concat|stripe|raid5|mirror|rename|rm|attach|detach|move|setstate|grow|saveconfig")
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
    let words = Words::parse(rest, &["-n", "-s"])?;
    match command.as_str() {
        "list" | "l" | "ld" | "lv" | "lp" | "ls" => list(command, &words, screen),
        "printconfig" => {
            for (system, _) in systems(&words.places)? {
                for line in text_of(&system).lines() {
                    screen.line(line);
                }
            }
            Ok(0)
        }
        "start" => Err(usage(
            "what is stale is filled when the volume is served:   plexum serve --write DRIVE...",
        )),
        "stop" => Err(usage("a volume is stopped with:   plexum stop VOLUME")),
        "checkparity" => Err(usage(
            "parity of a served volume is checked with:   plexum scrub VOLUME --wait",
        )),
        "rebuildparity" => Err(usage(
            "parity of a served volume is mended with:   plexum scrub VOLUME --repair --wait",
        )),
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

fn list(command: &str, words: &Words, screen: &Screen) -> Outcome {
    words.only(&["-v", "-V", "-r", "-s"])?;
    let is_asked = |kind: &str| matches!(command, "list" | "l") || command.ends_with(kind);
    let is_named = |name: &str| words.rest.is_empty() || words.rest.iter().any(|word| word == name);
    for (system, _) in systems(&words.places)? {
        let config = &system.config;
        if is_asked("d") {
            section(screen, words, system.drives.len(), "drive");
            for drive in system.drives.iter().filter(|drive| is_named(&drive.name)) {
                screen.line(drive_line(&system, drive));
            }
        }
        if is_asked("v") {
            section(screen, words, config.volumes.len(), "volume");
            for volume in config
                .volumes
                .iter()
                .filter(|volume| is_named(&volume.name))
            {
                let size = rough_size(volume_bytes(config, &volume.name));
                let plexes = system.plexes_of(&volume.name).len();
                let (name, state) = (&volume.name, volume.state.name());
                screen.line(format!(
                    "V {name:<21} State: {state}\tPlexes: {plexes:7}\tSize: {size}"
                ));
            }
        }
        if is_asked("p") {
            section(screen, words, config.plexes.len(), "plex");
            for plex in config.plexes.iter().filter(|plex| is_named(&plex.name)) {
                let organisation = match plex.organisation {
                    Organisation::Concat => "C",
                    Organisation::Striped { .. } => "S",
                    Organisation::Raid5 { .. } => "R5",
                    Organisation::Raid4 { .. } => "R4",
                };
                let map = plex_map(config, &plex.name).ok();
                let size = rough_size(map.map_or(0, |map| map.geometry.volume_bytes()));
                let count = subdisks_of(config, &plex.name).len();
                let (name, state) = (&plex.name, plex.state.name());
                screen.line(format!(
                    "P {name:<18} {organisation:>2} State: {state}\tSubdisks: {count:5}\tSize: {size}"
                ));
            }
        }
        if is_asked("s") {
            section(screen, words, config.subdisks.len(), "subdisk");
            for subdisk in config
                .subdisks
                .iter()
                .filter(|subdisk| is_named(&subdisk.name))
            {
                screen.line(subdisk_line(subdisk));
            }
        }
    }
    Ok(0)
}

fn section(screen: &Screen, words: &Words, count: usize, kind: &str) {
    if words.rest.is_empty() {
        let plural = match kind {
            "plex" => "plexes".to_owned(),
            kind => format!("{kind}s"),
        };
        let word = if count == 1 { kind.to_owned() } else { plural };
        screen.line(format!("{count} {word}:"));
    }
}

fn drive_line(system: &System, drive: &Drive) -> String {
    let free: u64 = system
        .free_areas(&drive.name)
        .iter()
        .map(|(_, length)| length)
        .sum();
    let total = drive.usable_bytes();
    let percent = free * 100 / total.max(1);
    let state = if drive.is_up() { "up" } else { "down" };
    let device = match drive.device.as_str() {
        "" => "/dev/???",
        device => device,
    };
    let name = &drive.name;
    let (free, total) = (free >> 20, total >> 20);
    format!("D {name:<21} State: {state}\t{device}\tA: {free}/{total} MB ({percent}%)")
}

fn subdisk_line(subdisk: &Subdisk) -> String {
    let (name, drive, state) = (&subdisk.name, &subdisk.drive, subdisk.state.name());
    let size = rough_size(subdisk.length_bytes);
    format!("S {name:<21} State: {state}\tD: {drive:<12} Size: {size}")
}

/// Size as gvinum shows it: the next smaller unit begins above 10000 of a unit.
fn rough_size(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    if bytes > 10_000 * KIB * KIB {
        format!("{:10} GB", bytes / (KIB * KIB * KIB))
    } else if bytes > 10_000 * KIB {
        format!("{:10} MB", bytes / (KIB * KIB))
    } else if bytes > 10_000 {
        format!("{:10} kB", bytes / KIB)
    } else {
        format!("{bytes:10}  B")
    }
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
    let mut added = None;
    match (command, rest.as_slice()) {
        ("saveconfig", []) => {}
        ("rename", [object, new]) => edit::rename(config, object, new, is_deep).map_err(refused)?,
        ("rm", objects) if !objects.is_empty() => {
            for object in objects {
                edit::remove(config, object, is_deep).map_err(refused)?;
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
            let size = match system.drives.iter().find(|known| known.name == *drive) {
                Some(known) => known.size_bytes,
                None => {
                    let (known, size) = new_drive(&mut system, &mut paths, drive)?;
                    added = Some(known);
                    size
                }
            };
            let drive = added.as_deref().unwrap_or(drive);
            for subdisk in subdisks {
                edit::move_subdisk(&mut system.config, subdisk, drive, size, force)
                    .map_err(refused)?;
            }
        }
        ("grow", [plex, device]) => {
            let (drive, size) = match system.drives.iter().find(|known| known.name == *device) {
                Some(known) => (known.name.clone(), known.size_bytes),
                None => new_drive(&mut system, &mut paths, device)?,
            };
            edit::grow_concat(&mut system.config, plex, &drive, size, None).map_err(refused)?;
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

/// Writes the configuration to all drives that are there, with one time.
fn save(system: &System, paths: &[String], common: &Common, screen: &Screen) -> Outcome {
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
