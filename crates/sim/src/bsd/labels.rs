//! What stands on the disks, behind the engine's back: made as `create` makes it, looked at after crashes, changed
//! between lives as the offline commands change it.

use plexum_format::gmirror::{MirrorLabel, NewMirrorLabel};
use plexum_format::vinum::{
    CONFIG_BYTES, CONFIG_OFFSETS_BYTES, Config, DATA_OFFSET_BYTES, DriveHeader,
    HEADER_OFFSET_BYTES, Mark, Script, SubdiskState,
};
use plexum_freebsd::gmirror::{
    Command, Effect, Event, Key, Mirror, Provider, assemble as assemble_mirror,
};
use plexum_freebsd::gvinum::{
    Drive, FoundDrive, Room, Store, System, assemble, build, edit, plexes_of, subdisks_of,
};

use super::plan::{Order, Plan, Shape};
use crate::members::device_name;
use plexum_disks::disk::SimDisk;

/// Name of the mirror.
const MIRROR: &str = "sim";
/// Reads above this are split.
const SLICE_BYTES: u32 = 8192;
/// When everything was made: the wall clock at the start of the world.
const MADE_SECONDS: u64 = 1_600_000_000;

/// The label of a component.
pub(super) fn mirror_label(disk: &SimDisk) -> Option<MirrorLabel> {
    let size = disk.size_bytes();
    let mut bytes = [0; 512];
    disk.peek(size - 512, &mut bytes);
    MirrorLabel::parse(&bytes, size - 512, size).ok()
}

/// The header of a drive.
pub(super) fn drive_header(disk: &SimDisk) -> Option<DriveHeader> {
    let mut bytes = [0; 512];
    disk.peek(HEADER_OFFSET_BYTES, &mut bytes);
    let header = DriveHeader::parse(&bytes, HEADER_OFFSET_BYTES).ok()?;
    (!header.is_removed).then_some(header)
}

/// A copy of the configuration on a drive.
fn config_text(disk: &SimDisk, copy: usize) -> Vec<u8> {
    let mut bytes = vec![0; CONFIG_BYTES as usize];
    disk.peek(CONFIG_OFFSETS_BYTES[copy], &mut bytes);
    bytes
}

/// The first copy of the configuration on a drive.
pub(super) fn drive_config(disk: &SimDisk) -> Option<Config> {
    Config::parse(&config_text(disk, 0), CONFIG_OFFSETS_BYTES[0]).ok()
}

fn drive_name(disk: u32) -> String {
    format!("d{disk}")
}

/// Number of the disk that a drive is.
pub(super) fn drive_number(name: &str) -> Option<u32> {
    name.strip_prefix('d')?.parse().ok()
}

/// Makes the array.
pub(super) fn make(plan: &Plan, disks: &[SimDisk]) -> Result<(), String> {
    match &plan.shape {
        Shape::Mirror {
            components,
            balance,
        } => {
            for (number, disk) in (0_u8..).zip(disks.iter().take(*components)) {
                let label = MirrorLabel::create(&NewMirrorLabel {
                    name: MIRROR,
                    mirror_id: 5,
                    component_id: u32::from(number) + 1,
                    component_count: *components as u8,
                    priority: number,
                    slice_bytes: SLICE_BYTES,
                    balance: *balance,
                    volume_bytes: plan.volume_bytes,
                    sector_bytes: 512,
                    provider_bytes: disk.size_bytes(),
                });
                let label = label.map_err(|error| error.to_string())?;
                disk.poke(disk.size_bytes() - 512, &label.encode());
            }
            Ok(())
        }
        Shape::System { drives, .. } => make_system(plan, &disks[..*drives]),
    }
}

fn make_system(plan: &Plan, disks: &[SimDisk]) -> Result<(), String> {
    let text = script_text(plan);
    let script = Script::parse(text.as_bytes()).map_err(|errors| format!("{errors:?}"))?;
    let rooms: Vec<Room> = disks
        .iter()
        .map(|disk| Room {
            name: drive_name(disk.number()),
            size_bytes: disk.size_bytes(),
        })
        .collect();
    let config = build(&script, &rooms, &Config::default()).map_err(|error| error.to_string())?;
    for disk in disks {
        put_drive(disk, &config)?;
    }
    Ok(())
}

/// What a user would write for `create -f`.
fn script_text(plan: &Plan) -> String {
    let Shape::System { volumes, drives } = &plan.shape else {
        return String::new();
    };
    let mut text = String::new();
    for disk in 0..*drives as u32 {
        let name = drive_name(disk);
        text += &format!("drive {name} device /dev/{name}\n");
    }
    for (number, plexes) in volumes.iter().enumerate() {
        text += &format!("volume v{number} setupstate\n");
        for plex in plexes {
            let strip = plex.strip_bytes / 512;
            text += &match plex.order {
                Order::Concat => "plex org concat\n".to_owned(),
                Order::Striped => format!("plex org striped {strip}s\n"),
                Order::Raid5 => format!("plex org raid5 {strip}s\n"),
            };
            let length = plan.volume_bytes / plex.data_count() / 512;
            for disk in &plex.drives {
                text += &format!("sd length {length}s drive {}\n", drive_name(*disk));
            }
        }
    }
    text
}

fn put_drive(disk: &SimDisk, config: &Config) -> Result<(), String> {
    let name = drive_name(disk.number());
    let header = DriveHeader::create("sim", &name, (MADE_SECONDS, 0));
    let mut header = header.map_err(|error| error.to_string())?;
    header.mark = Mark::Settled; // holes everywhere: copies and parity agree
    let text = config.encode_sealed().map_err(|error| error.to_string())?;
    for at in CONFIG_OFFSETS_BYTES {
        disk.poke(at, &text);
    }
    disk.poke(HEADER_OFFSET_BYTES, &header.encode());
    Ok(())
}

/// How new what a disk says is: of a mirror's component that is complete, genid and syncid; of a drive its last update.
fn age(disk: &SimDisk) -> Option<(u64, u64)> {
    if let Some(label) = mirror_label(disk) {
        let is_complete = !label.is_rebuilding && !label.is_inactive;
        let age = (u64::from(label.generation_id), u64::from(label.sync_id));
        return is_complete.then_some(age);
    }
    drive_header(disk).map(|header| header.updated)
}

/// How new the newest of all disks is. It never goes back.
pub(super) fn newest(disks: &[SimDisk]) -> Option<(u64, u64)> {
    disks.iter().filter_map(age).max()
}

/// Whether somebody who knows of the last change is there.
pub(super) fn is_newest_present(disks: &[SimDisk]) -> bool {
    let present = disks.iter().filter(|disk| disk.is_present());
    present.filter_map(age).max() == newest(disks)
}

/// Takes a component out of a mirror that is complete and was stopped. How many.
pub(super) fn deactivate(disks: &[SimDisk]) -> u64 {
    let present = disks.iter().filter(|disk| disk.is_present());
    let providers = present.filter_map(|disk| {
        Some(Provider {
            key: Key(disk.number() as usize),
            name: device_name(disk),
            size_bytes: disk.size_bytes(),
            sector_bytes: 512,
            label: mirror_label(disk)?,
        })
    });
    let Some(mut mirror) = assemble_mirror(providers.collect()).mirror else {
        return 0;
    };
    let is_complete = mirror.active_count() == usize::from(mirror.component_count);
    let Some(first) = mirror.components.first().map(|component| component.key) else {
        return 0;
    };
    if !is_complete || mirror.has_unequal {
        return 0;
    }
    let command = Event::Command(Command::Deactivate(first));
    let effects = mirror.apply(command).unwrap_or_default();
    put_labels(&effects, disks)
}

/// Writes the labels among `effects`. How many.
fn put_labels(effects: &[Effect], disks: &[SimDisk]) -> u64 {
    let mut count = 0;
    for effect in effects {
        if let Effect::WriteLabel { key, label } = effect
            && let Some(disk) = disks.get(key.0)
        {
            disk.poke(disk.size_bytes() - 512, &label.encode());
            count += 1;
        }
    }
    count
}

/// Components that were deactivated are activated again: the next start tastes them.
pub(super) fn activate(disks: &[SimDisk]) -> u64 {
    let mut count = 0;
    for disk in disks.iter().filter(|disk| disk.is_present()) {
        let Some(label) = mirror_label(disk).filter(|label| label.is_inactive) else {
            continue;
        };
        let provider = Provider {
            key: Key(disk.number() as usize),
            name: device_name(disk),
            size_bytes: disk.size_bytes(),
            sector_bytes: 512,
            label,
        };
        let mut active = provider.clone();
        active.label.is_inactive = false;
        let Ok((mut mirror, _)) = Mirror::start(active) else {
            continue;
        };
        let command = Command::Activate(Box::new(provider));
        let effects = mirror.apply(Event::Command(command)).unwrap_or_default();
        count += put_labels(&effects, disks);
    }
    count
}

/// The system as the drives that are there tell it.
fn system(disks: &[SimDisk]) -> Option<System> {
    let mut found = Vec::new();
    for disk in disks.iter().filter(|disk| disk.is_present()) {
        let Some(header) = drive_header(disk) else {
            continue;
        };
        found.push(FoundDrive {
            key: disk.number() as usize,
            device: device_name(disk),
            size_bytes: disk.size_bytes(),
            header,
            copies: [config_text(disk, 0), config_text(disk, 1)],
        });
    }
    assemble(&found).ok()
}

/// Writes a changed configuration to all drives that are there, as the offline commands do.
fn save(system: &System, disks: &[SimDisk], wall_seconds: u64) {
    let mut store = Store::new(system);
    store.next_save(wall_seconds);
    for drive in &system.drives {
        let disk = drive.key.and_then(|key| disks.get(key));
        for write in store.writes(&drive.name) {
            if let Some(disk) = disk {
                disk.poke(write.at_bytes, &write.bytes);
            }
        }
    }
}

/// Subdisks on drives that are away are moved to others, where that costs no data. How many.
pub(super) fn move_lost(disks: &[SimDisk], wall_seconds: u64) -> u64 {
    let Some(mut system) = system(disks) else {
        return 0;
    };
    let lost: Vec<(String, String)> = system
        .config
        .subdisks
        .iter()
        .filter(|subdisk| subdisk.state == SubdiskState::Down)
        .filter_map(|subdisk| Some((subdisk.name.clone(), subdisk.plex.clone()?.0)))
        .collect();
    let mut count = 0;
    for (subdisk, plex) in lost {
        let used: Vec<String> = volume_drives(&system.config, &plex);
        let free = system
            .drives
            .iter()
            .find(|drive| drive.is_up() && !used.contains(&drive.name));
        let Some((name, size)) = free.map(|drive| (drive.name.clone(), drive.size_bytes)) else {
            continue;
        };
        let force = edit::Force::No;
        let moved = edit::move_subdisk(&mut system.config, &subdisk, &name, size, force);
        count += u64::from(moved.is_ok());
    }
    if count > 0 {
        save(&system, disks, wall_seconds);
    }
    count
}

/// Names of the drives under the volume of a plex.
fn volume_drives(config: &Config, plex: &str) -> Vec<String> {
    let found = config.plexes.iter().find(|other| other.name == plex);
    let volume = found.and_then(|plex| plex.volume.clone());
    let plexes = volume.map(|volume| plexes_of(config, &volume));
    let plexes = plexes.unwrap_or_default();
    let subdisks = plexes
        .iter()
        .flat_map(|plex| subdisks_of(config, &plex.name));
    subdisks.map(|subdisk| subdisk.drive.clone()).collect()
}

/// Gives the plex of volume `v0` a subdisk more on `disk`, which becomes a drive if it is none. Whether it could.
pub(super) fn grow(disks: &[SimDisk], wall_seconds: u64) -> bool {
    let Some(mut system) = system(disks) else {
        return false;
    };
    let all_up = |config: &Config| {
        let mut subdisks = config.subdisks.iter();
        subdisks.all(|subdisk| subdisk.state == SubdiskState::Up)
    };
    let plexes = plexes_of(&system.config, "v0");
    let [plex] = plexes.as_slice() else {
        return false;
    };
    let plex = plex.name.clone();
    let is_there = |disk: &&SimDisk| disk.is_present();
    let Some(disk) = disks.last().filter(is_there) else {
        return false;
    };
    if !all_up(&system.config) || system.mark != Mark::Settled {
        return false;
    }
    let name = drive_name(disk.number());
    if system.drive(&name).is_none() {
        let Ok(header) = DriveHeader::create("sim", &name, (MADE_SECONDS, 0)) else {
            return false;
        };
        system.drives.push(Drive {
            name: name.clone(),
            key: Some(disk.number() as usize),
            device: device_name(disk),
            size_bytes: disk.size_bytes(),
            header: Some(header),
            first_copy: 0,
        });
    }
    let length = subdisks_of(&system.config, &plex)[0].length_bytes;
    let size = disk.size_bytes();
    let grown = edit::grow(&mut system.config, &plex, &name, size, Some(length));
    if grown.is_ok() {
        save(&system, disks, wall_seconds);
    }
    grown.is_ok()
}

/// Bytes of a disk from `offset_bytes` on.
pub(super) fn bytes(disk: &SimDisk, offset_bytes: u64, length_bytes: u64) -> Vec<u8> {
    let mut bytes = vec![0; length_bytes as usize];
    disk.peek(offset_bytes, &mut bytes);
    bytes
}

/// Whether the places of subdisks make sense at all: none before the first byte for data, none over another one.
pub(super) fn overlap(config: &Config) -> Option<String> {
    for (index, one) in config.subdisks.iter().enumerate() {
        if one.drive_offset_bytes < DATA_OFFSET_BYTES {
            return Some(format!("{} lies over the configuration", one.name));
        }
        let meets = |other: &&plexum_format::vinum::Subdisk| {
            other.drive == one.drive
                && other.drive_offset_bytes < one.drive_end_bytes()
                && one.drive_offset_bytes < other.drive_end_bytes()
        };
        if let Some(other) = config.subdisks[index + 1..].iter().find(meets) {
            return Some(format!("{} lies over {}", one.name, other.name));
        }
    }
    None
}
