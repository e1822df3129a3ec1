//! A Linux array becomes a volume of gvinum: its members become drives with one subdisk each, where the data are.
//!
//! The header and the configuration take bytes 4096 to 135680 of a member: its superblock has to be elsewhere (md-1.1
//! in front, md-1.0 behind), and its data must not begin before.

use plexum_format::SECTOR_BYTES;
use plexum_format::md::{MdVersion, Superblock};
use plexum_format::vinum::{
    CONFIG_OFFSETS_BYTES, Config, DATA_OFFSET_BYTES, DriveHeader, HEADER_OFFSET_BYTES, Mark,
    Organisation as VinumOrganisation, Plex, PlexState, Subdisk, SubdiskState, Volume, VolumeState,
};

use crate::gvinum::{plex_map, settle, volume_bytes};
use plexum_engine::metadata::MetadataWrite;
use plexum_layout::{Geometry, GeometrySpec, Organisation, Raid5Layout};

use super::{InPlace, Seen, md_erasure, md_name};

/// Host name in the headers: the same in every try.
const HOST: &str = "plexum";

/// Plans to make a volume of gvinum of the members of a Linux array.
///
/// # Errors
/// A sentence: why it cannot stay in place.
pub fn to_system(seen: &[Seen]) -> Result<InPlace, String> {
    if let Some(rest) = unfinished(seen) {
        return Ok(rest);
    }
    let members: Option<Vec<&Superblock>> = seen.iter().map(|seen| seen.md.as_ref()).collect();
    let members = members.filter(|members| !members.is_empty());
    let members = members.ok_or("a member carries no md superblock")?;
    let first = members[0];
    if members.len() != first.member_count as usize {
        let due = first.member_count;
        return Err(format!("{} of {due} members are here", members.len()));
    }
    let mut slots = vec![None; members.len()];
    for (index, (member, md)) in seen.iter().zip(&members).enumerate() {
        check(member, md, first)?;
        let slot = md.role().slot().map(|slot| usize::from(slot.0));
        match slot.and_then(|slot| slots.get_mut(slot)) {
            Some(place @ None) => *place = Some(index),
            Some(Some(_)) => return Err(format!("{} is a copy of another member", member.name)),
            None => return Err(format!("{} is a spare or failed", member.name)),
        }
    }
    let slots: Vec<usize> = slots.into_iter().flatten().collect();
    let by_slot: Vec<&Superblock> = slots.iter().map(|index| members[*index]).collect();
    let config = config_of(&by_slot)?;
    let size_bytes = volume_bytes(&config, &config.volumes[0].name);
    let mut make = Vec::new();
    for (slot, index) in slots.iter().enumerate() {
        make.extend(writes(&seen[*index], *index, slot, first, &config)?);
    }
    Ok(InPlace {
        name: md_name(first).to_owned(),
        from: format!("{}, md-{}", organisation(first)?.level(), first.version),
        to: "gvinum".into(),
        volume_bytes: size_bytes,
        make,
        erase: seen.iter().enumerate().filter_map(md_erasure).collect(),
    })
}

/// The rest of a conversion that was cut after the first superblock was erased.
fn unfinished(seen: &[Seen]) -> Option<InPlace> {
    let drives: Option<Vec<_>> = seen.iter().map(|seen| seen.drive.as_ref()).collect();
    let drives = drives.filter(|drives| !drives.is_empty())?;
    let config = Config::parse(&drives[0].copies[0], CONFIG_OFFSETS_BYTES[0]).ok()?;
    let [volume] = config.volumes.as_slice() else {
        return None;
    };
    let md = seen.iter().find_map(|seen| seen.md.as_ref());
    let is_own = md.is_none_or(|md| {
        let header = &drives[0].header;
        header.host == HOST && header.created.0 == md.ctime.seconds && volume.name == md_name(md)
    });
    let some_erased = seen.iter().any(|seen| seen.md.is_none());
    if !is_own || !some_erased || config.subdisks.len() != seen.len() {
        return None;
    }
    Some(InPlace {
        name: volume.name.clone(),
        from: "what is left of it".into(),
        to: "gvinum".into(),
        volume_bytes: 0,
        make: Vec::new(),
        erase: seen.iter().enumerate().filter_map(md_erasure).collect(),
    })
}

fn organisation(md: &Superblock) -> Result<Organisation, String> {
    Organisation::from_md(md.level, md.layout).map_err(|error| error.to_string())
}

/// Whether a member can be a drive as it is.
fn check(member: &Seen, md: &Superblock, first: &Superblock) -> Result<(), String> {
    let name = &member.name;
    let at = md.data_offset_sectors * SECTOR_BYTES;
    let reason = if md.array_uuid != first.array_uuid {
        "it belongs to another array".to_owned()
    } else if md.version == MdVersion::V12 {
        "a superblock of md-1.2 stands where the header of a Vinum drive goes".to_owned()
    } else if at < DATA_OFFSET_BYTES {
        format!(
            "its data begin at byte {at}; those of a Vinum drive begin at byte {DATA_OFFSET_BYTES} or later"
        )
    } else if md.events != first.events || md.rebuild_offset_sectors.is_some() {
        "it is not in sync".to_owned()
    } else if !md.is_clean() || md.has_answers_in_log {
        "it was not stopped cleanly, or its resync has not ended".to_owned()
    } else if md.reshape.is_some() || md.is_replacement || md.has_bad_blocks {
        "it is being reshaped or replaced, or has bad blocks".to_owned()
    } else if md.bitmap_sector().is_some() {
        "its bitmap stands where the configuration goes; turn it off first: plexum set VOLUME bitmap=none".to_owned()
    } else if md.ppl.is_some() {
        "it has a partial parity log, and gvinum has none".to_owned()
    } else {
        return Ok(());
    };
    Err(format!("{name}: {reason}"))
}

/// The configuration: one volume, one subdisk on each member.
fn config_of(members: &[&Superblock]) -> Result<Config, String> {
    let first = members[0];
    let (name, md) = (md_name(first), organisation(first)?);
    let strip_bytes = u64::from(first.strip_sectors) * SECTOR_BYTES;
    let plex_organisation = match md {
        Organisation::Linear | Organisation::Raid1 => VinumOrganisation::Concat,
        Organisation::Raid0(_) => VinumOrganisation::Striped { strip_bytes },
        Organisation::Raid5(Raid5Layout::LeftAsymmetric) => {
            VinumOrganisation::Raid5 { strip_bytes }
        }
        Organisation::Raid5(layout) => {
            return Err(format!(
                "its layout is {}; gvinum knows left-asymmetric only",
                Organisation::Raid5(layout)
                    .layout_name()
                    .unwrap_or_default()
            ));
        }
        other => return Err(format!("gvinum has no {}", other.level())),
    };
    let lengths: Vec<u64> = members.iter().map(|member| length_of(member, md)).collect();
    if matches!(md, Organisation::Raid0(_)) && lengths.iter().any(|length| *length != lengths[0]) {
        return Err(
            "its members have different sizes: gvinum uses as much of each as the smallest has"
                .into(),
        );
    }
    let mut config = Config {
        volumes: vec![Volume {
            name: name.to_owned(),
            state: VolumeState::Up,
        }],
        ..Config::default()
    };
    let plex_count = if md == Organisation::Raid1 {
        members.len()
    } else {
        1
    };
    for number in 0..plex_count {
        config.plexes.push(Plex {
            name: format!("{name}.p{number}"),
            organisation: plex_organisation,
            volume: Some(name.to_owned()),
            state: PlexState::Up,
            growth: None,
            end_bytes: None,
        });
    }
    let mut end = 0;
    for (slot, member) in members.iter().enumerate() {
        let (plex, number, at) = match md {
            Organisation::Raid1 => (slot, 0, 0),
            Organisation::Linear => (0, slot, end),
            _ => (0, slot, slot as u64 * strip_bytes),
        };
        end += lengths[slot];
        config.subdisks.push(Subdisk {
            name: format!("{name}.p{plex}.s{number}"),
            drive: drive_name(slot),
            length_bytes: lengths[slot],
            drive_offset_bytes: member.data_offset_sectors * SECTOR_BYTES,
            plex: Some((format!("{name}.p{plex}"), at)),
            state: SubdiskState::Up,
        });
    }
    settle(&mut config, |_| false);
    check_size(&config, members, md)?;
    Ok(config)
}

/// Bytes of a member that hold data.
fn length_of(member: &Superblock, md: Organisation) -> u64 {
    let strip = u64::from(member.strip_sectors).max(1);
    let sectors = if md.level().has_redundancy() {
        member.component_sectors
    } else {
        member.data_size_sectors / strip * strip
    };
    sectors * SECTOR_BYTES
}

/// Both must give the same volume.
fn check_size(config: &Config, members: &[&Superblock], md: Organisation) -> Result<(), String> {
    let first = members[0];
    let lengths = members.iter().map(|member| length_of(member, md)).collect();
    let geometry = Geometry::new(&GeometrySpec {
        organisation: md,
        member_count: u16::try_from(members.len()).map_err(|_| "too many members")?,
        strip_bytes: u64::from(first.strip_sectors) * SECTOR_BYTES,
        component_bytes: first.component_sectors * SECTOR_BYTES,
        member_sizes_bytes: if md.level().has_redundancy() {
            Vec::new()
        } else {
            lengths
        },
    });
    let (has, name) = (
        geometry.map_err(|error| error.to_string())?.volume_bytes(),
        &config.volumes[0].name,
    );
    for plex in &config.plexes {
        plex_map(config, &plex.name).map_err(|error| error.to_string())?;
    }
    let gives = volume_bytes(config, name);
    if gives != has {
        return Err(format!(
            "gvinum would make {gives} bytes of it, the volume has {has}"
        ));
    }
    Ok(())
}

fn drive_name(slot: usize) -> String {
    format!("gvinumdrive{slot}")
}

/// What goes to a member: both copies of the configuration, then the header.
fn writes(
    member: &Seen,
    index: usize,
    slot: usize,
    first: &Superblock,
    config: &Config,
) -> Result<Vec<(usize, MetadataWrite)>, String> {
    let tell = |error: plexum_format::FormatError| format!("{}: {error}", member.name);
    let created = (first.ctime.seconds, 0);
    let header = DriveHeader::create(HOST, &drive_name(slot), created);
    let mut header = header.map_err(tell)?;
    header.mark = Mark::Settled;
    if let Some(drive) = &member.drive
        && drive.header.encode() != header.encode()
    {
        return Err(format!(
            "{} carries the header of another Vinum drive, or one that was used since",
            member.name
        ));
    }
    let text = config.encode_sealed().map_err(tell)?;
    config
        .check_drive(&drive_name(slot), member.size_bytes)
        .map_err(tell)?;
    let mut writes: Vec<(usize, MetadataWrite)> = CONFIG_OFFSETS_BYTES
        .iter()
        .map(|at| MetadataWrite {
            at_bytes: *at,
            bytes: text.clone(),
        })
        .map(|write| (index, write))
        .collect();
    let header = MetadataWrite {
        at_bytes: HEADER_OFFSET_BYTES,
        bytes: header.encode().to_vec(),
    };
    writes.push((index, header));
    Ok(writes)
}
