//! `gvinum list`: its sections and lines, and with -v and -V a paragraph for each object.
//!
//! Source: freebsd-geom.md section 2.13.

use plexum_daemon::problem::{Code, Problem};
use plexum_format::vinum::{Config, Organisation, Plex, Subdisk};
use plexum_freebsd::gvinum::{
    Drive, System, grown_map, is_free, places_of, plex_map, subdisks_of, volume_bytes,
};
use serde_json::{Value, json};

use super::systems;
use crate::errors::Outcome;
use crate::output::{Screen, object};
use crate::words::Words;

/// Lists what was asked for.
///
/// # Errors
/// Of looking for drives; an option that is not known.
pub fn run(command: &str, words: &Words, screen: &Screen) -> Outcome {
    let is_asked = |kind: &str| command == "list" || command.ends_with(kind);
    let is_below = |name: &str, top: &str| {
        let rest = name.strip_prefix(top);
        words.has('r') && rest.is_some_and(|rest| rest.starts_with('.'))
    };
    let is_named = |name: &str| {
        let mut asked = words.rest.iter();
        words.rest.is_empty() || asked.any(|word| word == name || is_below(name, word))
    };
    let systems = systems(&words.places)?;
    for word in &words.rest {
        if !systems.iter().any(|(system, _)| knows(system, word)) {
            return Err(
                Problem::new(Code::NoMetadata, format!("there is no {word}"))
                    .hint("say where its drives are:   --in DIR"),
            );
        }
    }
    if words.has('v') || words.has('V') {
        return verbose(&systems, is_asked, is_named, words, screen);
    }
    let is_whole = words.rest.is_empty();
    for (system, _) in &systems {
        for line in short(system, is_whole, &is_asked, &is_named) {
            screen.line(line);
        }
        screen.object(&as_object(system));
    }
    if systems.is_empty() && is_whole {
        let kinds = [
            ("d", "drive"),
            ("v", "volume"),
            ("p", "plex"),
            ("s", "subdisk"),
        ];
        for (_, kind) in kinds.iter().filter(|(letter, _)| is_asked(letter)) {
            screen.line(section(0, kind));
        }
    }
    Ok(0)
}

/// Everything of a system, as `list` shows it.
pub fn all(system: &System) -> Vec<String> {
    short(system, true, &|_| true, &|_| true)
}

fn knows(system: &System, name: &str) -> bool {
    let config = &system.config;
    system.drive(name).is_some()
        || config.volumes.iter().any(|one| one.name == name)
        || config.plexes.iter().any(|one| one.name == name)
        || config.subdisks.iter().any(|one| one.name == name)
}

/// One line an object, by kind; `is_whole`: with how many there are.
fn short(
    system: &System,
    is_whole: bool,
    is_asked: &dyn Fn(&str) -> bool,
    is_named: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let config = &system.config;
    let mut lines = Vec::new();
    let head = |lines: &mut Vec<String>, count, kind| {
        if is_whole {
            lines.push(section(count, kind));
        }
    };
    if is_asked("d") {
        head(&mut lines, system.drives.len(), "drive");
        let named = system.drives.iter().filter(|drive| is_named(&drive.name));
        lines.extend(named.map(|drive| drive_line(system, drive)));
    }
    if is_asked("v") {
        head(&mut lines, config.volumes.len(), "volume");
        let named = config
            .volumes
            .iter()
            .filter(|volume| is_named(&volume.name));
        lines.extend(named.map(|volume| {
            let size = rough_size(volume_bytes(config, &volume.name));
            let plexes = system.plexes_of(&volume.name).len();
            let (name, state) = (&volume.name, volume.state.name());
            format!("V {name:<21} State: {state}\tPlexes: {plexes:7}\tSize: {size}")
        }));
    }
    if is_asked("p") {
        head(&mut lines, config.plexes.len(), "plex");
        let named = config.plexes.iter().filter(|plex| is_named(&plex.name));
        lines.extend(named.map(|plex| plex_line(config, plex)));
    }
    if is_asked("s") {
        head(&mut lines, config.subdisks.len(), "subdisk");
        let named = config.subdisks.iter().filter(|one| is_named(&one.name));
        lines.extend(named.map(subdisk_line));
    }
    lines
}

fn as_object(system: &System) -> Value {
    let config = &system.config;
    let drives = system.drives.iter().map(|drive| {
        let free: u64 = system
            .free_areas(&drive.name)
            .iter()
            .map(|area| area.1)
            .sum();
        json!({
            "name": drive.name, "device": drive.device, "is_up": drive.is_up(),
            "size_bytes": drive.usable_bytes(), "free_bytes": free,
            "is_spare": config.spares.contains(&drive.name),
        })
    });
    let volumes = config.volumes.iter().map(|volume| {
        json!({
            "name": volume.name, "state": volume.state.name(),
            "size_bytes": volume_bytes(config, &volume.name),
        })
    });
    let plexes = config.plexes.iter().map(|plex| {
        let size = plex_map(config, &plex.name).map_or(0, |map| map.geometry.volume_bytes());
        json!({
            "name": plex.name, "organisation": plex.organisation.name(),
            "strip_bytes": plex.organisation.strip_bytes(), "volume": plex.volume,
            "state": plex.state.name(), "size_bytes": size,
        })
    });
    let subdisks = config.subdisks.iter().map(|one| {
        json!({
            "name": one.name, "state": one.state.name(), "drive": one.drive,
            "drive_offset_bytes": one.drive_offset_bytes, "size_bytes": one.length_bytes,
            "plex": one.plex.as_ref().map(|(plex, _)| plex),
            "plex_offset_bytes": one.plex.as_ref().map(|(_, offset)| offset),
        })
    });
    let fields = json!({
        "drives": drives.collect::<Vec<_>>(), "volumes": volumes.collect::<Vec<_>>(),
        "plexes": plexes.collect::<Vec<_>>(), "subdisks": subdisks.collect::<Vec<_>>(),
    });
    object("system", None, fields)
}

fn plex_line(config: &Config, plex: &Plex) -> String {
    let organisation = match plex.organisation {
        Organisation::Concat => "C",
        Organisation::Striped { .. } => "S",
        Organisation::Raid5 { .. } => "R5",
        Organisation::Raid4 { .. } => "R4",
    };
    let map = plex_map(config, &plex.name).ok();
    let size = rough_size(map.map_or(0, |map| map.geometry.volume_bytes()));
    let count = places(config, plex).len();
    let name = &plex.name;
    let state = match (plex.growth, grown_map(config, name)) {
        (Some(growth), Ok(map)) => {
            let all = map.geometry.volume_bytes().max(1);
            format!("S {}%", growth.moved_bytes * 100 / all)
        }
        _ => plex.state.name().to_owned(),
    };
    format!("P {name:<18} {organisation:>2} State: {state}\tSubdisks: {count:5}\tSize: {size}")
}

/// What is in the places of a plex; where they cannot be told apart, its subdisks.
fn places(config: &Config, plex: &Plex) -> Vec<Subdisk> {
    let listed = |_| {
        subdisks_of(config, &plex.name)
            .into_iter()
            .cloned()
            .collect()
    };
    places_of(config, &plex.name).unwrap_or_else(listed)
}

fn section(count: usize, kind: &str) -> String {
    let plural = match kind {
        "plex" => "plexes".to_owned(),
        kind => format!("{kind}s"),
    };
    let word = if count == 1 { kind } else { &plural };
    format!("{count} {word}:")
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

/// A paragraph for each object; with `-V` also what it consists of.
fn verbose(
    systems: &[(System, Vec<String>)],
    is_asked: impl Fn(&str) -> bool,
    is_named: impl Fn(&str) -> bool,
    words: &Words,
    screen: &Screen,
) -> Outcome {
    let has_members = words.has('V');
    for (system, _) in systems {
        let config = &system.config;
        let mut lines = Vec::new();
        for drive in system.drives.iter().filter(|_| is_asked("d")) {
            if is_named(&drive.name) {
                lines.extend(drive_text(system, drive, has_members));
            }
        }
        for volume in config.volumes.iter().filter(|_| is_asked("v")) {
            if is_named(&volume.name) {
                let size = volume_bytes(config, &volume.name);
                lines.push(format!(
                    "Volume {}:\tSize: {size} bytes ({} MB)",
                    volume.name,
                    size >> 20
                ));
                lines.push(format!("\t\tState: {}", volume.state.name()));
                for plex in system
                    .plexes_of(&volume.name)
                    .iter()
                    .filter(|_| has_members)
                {
                    lines.push(format!("\t\tPlex: {}", plex.name));
                }
            }
        }
        for plex in config.plexes.iter().filter(|_| is_asked("p")) {
            if is_named(&plex.name) {
                lines.extend(plex_text(system, plex, has_members));
            }
        }
        for subdisk in config.subdisks.iter().filter(|_| is_asked("s")) {
            if is_named(&subdisk.name) {
                lines.extend(subdisk_text(subdisk));
            }
        }
        for line in lines {
            screen.line(line);
        }
    }
    Ok(0)
}

fn drive_text(system: &System, drive: &Drive, has_members: bool) -> Vec<String> {
    let areas = system.free_areas(&drive.name);
    let free: u64 = areas.iter().map(|(_, length)| length).sum();
    let total = drive.usable_bytes();
    let device = match drive.device.as_str() {
        "" => "/dev/???",
        device => device,
    };
    let state = if drive.is_up() { "up" } else { "down" };
    let mut lines = vec![
        format!("Drive {}:\tDevice {device}", drive.name),
        format!("\t\tSize: {total} bytes ({} MB)", total >> 20),
        format!(
            "\t\tUsed: {} bytes ({} MB)",
            total - free.min(total),
            (total - free.min(total)) >> 20
        ),
        format!("\t\tAvailable: {free} bytes ({} MB)", free >> 20),
        format!("\t\tState: {state}"),
    ];
    if system.config.spares.contains(&drive.name) {
        lines.push("\t\tFlags: hotspare".to_owned());
    }
    if has_members {
        lines.push(format!("\t\tFree list contains {} entries:", areas.len()));
        lines.push("\t\t   Offset\t     Size".to_owned());
        let areas = areas.iter();
        lines.extend(areas.map(|(at, length)| format!("\t\t{at:9}\t{length:9}")));
    }
    lines
}

fn plex_text(system: &System, plex: &Plex, has_members: bool) -> Vec<String> {
    let config = &system.config;
    let size = plex_map(config, &plex.name).map_or(0, |map| map.geometry.volume_bytes());
    let subdisks = places(config, plex);
    let mut lines = vec![
        format!(
            "Plex {}:\tSize: {size} bytes ({} MB)",
            plex.name,
            size >> 20
        ),
        format!("\t\tSubdisks: {:8}", subdisks.len()),
        format!("\t\tState: {}", plex.state.name()),
    ];
    let organisation = plex.organisation.name();
    lines.push(match plex.organisation.strip_bytes() {
        Some(strip) => format!(
            "\t\tOrganization: {organisation}\tStripe size: {} kB",
            strip >> 10
        ),
        None => format!("\t\tOrganization: {organisation}"),
    });
    if let Some(volume) = &plex.volume {
        lines.push(format!("\t\tPart of volume {volume}"));
    }
    for (number, subdisk) in subdisks.iter().enumerate().filter(|_| has_members) {
        let state = subdisk.state.name();
        let name = if is_free(subdisk) {
            "(absent)"
        } else {
            &subdisk.name
        };
        lines.push(format!(
            "\t\tSubdisk {number}:\t{name}\tstate: {state}\tsize {}",
            subdisk.length_bytes
        ));
    }
    lines
}

fn subdisk_text(subdisk: &Subdisk) -> Vec<String> {
    let length = subdisk.length_bytes;
    let mut lines = vec![
        format!("Subdisk {}:", subdisk.name),
        format!("\t\tSize: {length} bytes ({} MB)", length >> 20),
        format!("\t\tState: {}", subdisk.state.name()),
    ];
    if let Some((plex, offset)) = &subdisk.plex {
        lines.push(format!(
            "\t\tPlex {plex} at offset {offset} ({} kB)",
            offset >> 10
        ));
    }
    let (drive, offset) = (&subdisk.drive, subdisk.drive_offset_bytes);
    lines.push(format!(
        "\t\tDrive {drive} ({drive}) at offset {offset} ({} kB)",
        offset >> 10
    ));
    lines
}
