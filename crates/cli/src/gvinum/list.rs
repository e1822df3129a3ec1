//! `gvinum list`: its sections and lines, and with -v and -V a paragraph for each object.
//!
//! Source: freebsd-geom.md section 2.13.

use plexum_daemon::problem::Problem;
use plexum_engine::meta::gvinum::{Drive, System, grown_map, plex_map, subdisks_of, volume_bytes};
use plexum_format::vinum::{Config, Organisation, Plex, Subdisk};

use super::systems;
use crate::errors::Outcome;
use crate::gmirror::Words;
use crate::output::Screen;

/// Lists what was asked for.
///
/// # Errors
/// Of looking for drives; an option that is not known.
pub fn run(command: &str, words: &Words, screen: &Screen) -> Outcome {
    words.only(&["-v", "-V", "-r"])?;
    let is_asked = |kind: &str| matches!(command, "list" | "l") || command.ends_with(kind);
    let is_below = |name: &str, top: &str| {
        let rest = name.strip_prefix(top);
        words.has("-r") && rest.is_some_and(|rest| rest.starts_with('.'))
    };
    let is_named = |name: &str| {
        let mut asked = words.rest.iter();
        words.rest.is_empty() || asked.any(|word| word == name || is_below(name, word))
    };
    if words.has("-v") || words.has("-V") {
        return verbose(is_asked, is_named, words, screen);
    }
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
                screen.line(plex_line(config, plex));
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

fn plex_line(config: &Config, plex: &Plex) -> String {
    let organisation = match plex.organisation {
        Organisation::Concat => "C",
        Organisation::Striped { .. } => "S",
        Organisation::Raid5 { .. } => "R5",
        Organisation::Raid4 { .. } => "R4",
    };
    let map = plex_map(config, &plex.name).ok();
    let size = rough_size(map.map_or(0, |map| map.geometry.volume_bytes()));
    let count = subdisks_of(config, &plex.name).len();
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

/// A paragraph for each object; with `-V` also what it consists of.
fn verbose(
    is_asked: impl Fn(&str) -> bool,
    is_named: impl Fn(&str) -> bool,
    words: &Words,
    screen: &Screen,
) -> Outcome {
    let has_members = words.has("-V");
    for (system, _) in systems(&words.places)? {
        let config = &system.config;
        let mut lines = Vec::new();
        for drive in system.drives.iter().filter(|_| is_asked("d")) {
            if is_named(&drive.name) {
                lines.extend(drive_text(&system, drive, has_members));
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
                lines.extend(plex_text(&system, plex, has_members));
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
    Ok::<u8, Problem>(0)
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
    let subdisks = subdisks_of(config, &plex.name);
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
        let (name, state) = (&subdisk.name, subdisk.state.name());
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
        "\t\tDrive {drive} at offset {offset} ({} kB)",
        offset >> 10
    ));
    lines
}
