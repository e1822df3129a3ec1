//! From one format to another while the data stay where they are: gmirror and md RAID-1, volumes of gvinum and md, both
//! ways.
//!
//! Invariants:
//! - new metadata are durable on all members before the first old ones are erased: at any cut one of the two is whole;
//! - what is planned follows from what is on the members and nothing else, so that a conversion that was cut is planned
//!   anew and goes on; new metadata that somebody has used since are never written over;
//! - the size of the volume stays; where it cannot, the reason is told and nothing is written.
//!
//! Source: freebsd-geom.md sections 1.2, 1.4, 2.2 and 2.8; linux-md.md section 1 (places of superblocks).

mod to_mirror;
mod to_system;

use plexum_format::gmirror::MirrorLabel;
use plexum_format::md::{MdTime, MdVersion, NewMember, Role, Superblock, super_offset_sectors};
use plexum_format::vinum::{HEADER_OFFSET_BYTES, Mark, SubdiskState};
use plexum_format::{EventCount, Found, SECTOR_BYTES, Slot};

use crate::gmirror::{ComponentState, Key, Provider, assemble as join_mirror};
use crate::gvinum::{
    FoundDrive, System, assemble as join_system, is_free, plex_map, plexes_of, read_drive,
    volume_bytes,
};
use plexum_block::buf::BufPool;
use plexum_block::device::read_range;
use plexum_block::device::{Device, Fua, IoError};
use plexum_engine::detect::detect_on;
use plexum_engine::metadata::MetadataWrite;
use plexum_layout::{Geometry, GeometrySpec, Organisation};

use crate::labels::{ForeignError, last_sector};

pub use to_mirror::to_mirror;
pub use to_system::to_system;

/// Bytes that a superblock is written and erased with.
const PAGE_BYTES: usize = 4096;

/// What is on a member, each format for itself.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its name for people.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// A label of gmirror, with the sector it was found in.
    pub mirror: Option<(MirrorLabel, u32)>,
    /// The newest md superblock.
    pub md: Option<Superblock>,
    /// A header and configuration of Vinum.
    pub drive: Option<FoundDrive>,
    /// The first 4 KiB are zero.
    pub has_blank_start: bool,
}

/// Looks at a member. Damaged metadata are none: they are written anew or not used.
///
/// # Errors
/// `ForeignError::Io` with `index`.
pub async fn look<D: Device>(
    device: &D,
    pool: &BufPool,
    index: usize,
    name: &str,
) -> Result<Seen, ForeignError> {
    let io = |error| ForeignError::Io(index, error);
    let detection = detect_on(device, pool).await.map_err(io)?;
    let md = detection.found.iter().find_map(|found| match found {
        Found::Md(superblock) => Some((**superblock).clone()),
        _ => None,
    });
    let size_bytes = device.info().size_bytes;
    let start = read_range(device, pool, 0..size_bytes.min(PAGE_BYTES as u64));
    let start = start.await.map_err(io)?;
    Ok(Seen {
        name: name.to_owned(),
        size_bytes,
        mirror: last_sector(device, pool, index, MirrorLabel::parse)
            .await
            .ok(),
        md,
        drive: read_drive(device, pool, index, name).await.ok(),
        has_blank_start: start.iter().all(|byte| *byte == 0),
    })
}

/// What is to be done, by member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Name of the volume.
    pub name: String,
    /// What it was: `gmirror`.
    pub from: String,
    /// What it becomes: `raid1, md-1.0`.
    pub to: String,
    /// Its size, before and after; 0 when only old metadata are left to be erased.
    pub volume_bytes: u64,
    /// New metadata; empty when they are all there.
    pub make: Vec<(usize, MetadataWrite)>,
    /// Old metadata, zeroed.
    pub erase: Vec<(usize, MetadataWrite)>,
}

/// Writes of one half of a plan, each durable before the next.
///
/// # Errors
/// The member that failed.
pub async fn carry_out<D: Device>(
    writes: &[(usize, MetadataWrite)],
    devices: &[D],
    pool: &BufPool,
) -> Result<(), (usize, IoError)> {
    for (index, write) in writes {
        let device = devices.get(*index).ok_or((*index, IoError::Gone))?;
        let bytes = pool.copy_of(&write.bytes).freeze();
        let tell = |error| (*index, error);
        device
            .write(write.at_bytes, bytes, Fua::No)
            .await
            .map_err(tell)?;
        device.flush().await.map_err(tell)?;
    }
    Ok(())
}

/// Plans to make an md array of what the members are. `wall_seconds`: now.
///
/// # Errors
/// A sentence: why it cannot stay in place.
pub fn to_md(seen: &[Seen], version: MdVersion, wall_seconds: u64) -> Result<InPlace, String> {
    if seen.is_empty() {
        return Err("no member was given".into());
    }
    if let Some(rest) = unfinished_to_md(seen) {
        check_versions(seen, version)?;
        return Ok(rest);
    }
    if seen.iter().all(|seen| seen.mirror.is_some()) {
        return mirror_to_md(seen, version, wall_seconds);
    }
    if seen.iter().all(|seen| seen.drive.is_some()) {
        return system_to_md(seen, version, wall_seconds);
    }
    let other = seen
        .iter()
        .find(|seen| seen.mirror.is_none() && seen.drive.is_none());
    let name = other.map_or("a member", |seen| seen.name.as_str());
    Err(format!(
        "{name} carries neither gmirror nor Vinum as the others do"
    ))
}

/// The rest of a conversion that was cut after the first old metadata were erased: every member is of the new array.
/// Nothing is left to do where no old ones are.
fn unfinished_to_md(seen: &[Seen]) -> Option<InPlace> {
    let first = seen.first()?.md.as_ref()?;
    let all = seen.iter().all(|seen| {
        seen.md
            .as_ref()
            .is_some_and(|md| md.array_uuid == first.array_uuid)
    });
    let has_old = |seen: &Seen| seen.mirror.is_some() || seen.drive.is_some();
    let is_made_here = first.array_uuid.starts_with(UUID_START) || !seen.iter().any(has_old);
    let some_erased = seen.iter().any(|seen| !has_old(seen));
    if !all || !is_made_here || !some_erased || first.member_count as usize != seen.len() {
        return None;
    }
    Some(InPlace {
        name: first.name.clone(),
        from: "what is left of it".into(),
        to: format!("md-{}", first.version),
        volume_bytes: 0,
        make: Vec::new(),
        erase: seen.iter().enumerate().filter_map(erasure).collect(),
    })
}

/// What is md already, or half way to it, has to be of the version that was asked for: the data lie elsewhere in
/// another one.
fn check_versions(seen: &[Seen], version: MdVersion) -> Result<(), String> {
    let is_begun = seen.iter().any(|member| erasure((0, member)).is_some());
    for member in seen {
        match &member.md {
            Some(md) if md.version != version && is_begun => {
                return Err(begun_as(&member.name, md.version));
            }
            Some(md) if md.version != version => {
                return Err(format!(
                    "{} is md-{}, and from one version of md to another nothing is converted in place",
                    member.name, md.version
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn begun_as(name: &str, version: MdVersion) -> String {
    format!(
        "{name}: a conversion to md-{version} was begun, and has to be ended first: --to md-{version}"
    )
}

/// Zeroes over the label or header of a member.
fn erasure((index, seen): (usize, &Seen)) -> Option<(usize, MetadataWrite)> {
    let (at_bytes, length) = match (&seen.mirror, &seen.drive) {
        (Some((_, sector_bytes)), _) => {
            let sector = u64::from(*sector_bytes);
            (seen.size_bytes - sector, *sector_bytes as usize)
        }
        (None, Some(_)) => (HEADER_OFFSET_BYTES, 512),
        (None, None) => return None,
    };
    let bytes = vec![0; length];
    Some((index, MetadataWrite { at_bytes, bytes }))
}

fn mirror_to_md(seen: &[Seen], version: MdVersion, wall: u64) -> Result<InPlace, String> {
    if !matches!(version, MdVersion::V10 | MdVersion::V090) {
        return Err(format!(
            "md-{version} has its superblock at the start, where a gmirror has its data; md-1.0 and md-0.90 have it at the end"
        ));
    }
    let providers = seen.iter().enumerate().filter_map(|(index, seen)| {
        let (label, sector_bytes) = seen.mirror.clone()?;
        Some(Provider {
            key: Key(index),
            name: label.provider.clone(), // bound or not, it is here
            size_bytes: seen.size_bytes,
            sector_bytes,
            label,
        })
    });
    let assembled = join_mirror(providers.collect());
    if let Some((key, reason)) = assembled.refused.first() {
        return Err(format!("{}: {reason}", seen[key.0].name));
    }
    let mirror = assembled.mirror.ok_or("no complete component is here")?;
    let (count, due) = (mirror.components.len(), usize::from(mirror.component_count));
    if count != due {
        return Err(format!("{count} of {due} components are here"));
    }
    for component in &mirror.components {
        if component.state != ComponentState::Active || component.label.is_dirty {
            let name = &seen[component.key.0].name;
            return Err(format!(
                "{name} is not in sync: serve the mirror with --write until it is, and stop it"
            ));
        }
    }
    let ids = mirror.components.iter().map(|one| one.label.component_id);
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    let uuid = uuid_of(&(mirror.name.clone(), mirror.mirror_id, ids));
    let slots: Vec<usize> = mirror.components.iter().map(|one| one.key.0).collect();
    let array = NewPlace {
        name: &mirror.name,
        uuid,
        version,
        organisation: Organisation::Raid1,
        strip_bytes: 0,
        volume_bytes: mirror.volume_bytes,
        needs_resync: false,
        starts: vec![0; count],
        lengths: vec![mirror.volume_bytes; count],
    };
    array.plan(seen, &slots, "gmirror", wall)
}

fn system_to_md(seen: &[Seen], version: MdVersion, wall: u64) -> Result<InPlace, String> {
    if version != MdVersion::V11 {
        return Err(format!(
            "md-{version} has its superblock where a Vinum drive has its header or data; that of md-1.1 is in front of it"
        ));
    }
    let drives = seen.iter().enumerate().filter_map(|(index, seen)| {
        let drive = seen.drive.clone()?;
        Some(FoundDrive {
            key: index,
            ..drive
        })
    });
    let drives: Vec<FoundDrive> = drives.collect();
    let system = join_system(&drives).map_err(|error| error.to_string())?;
    if system.mark == Mark::Writing {
        return Err("it was not stopped cleanly: serve it with --write until it is in sync".into());
    }
    let [volume] = system.config.volumes.as_slice() else {
        let count = system.config.volumes.len();
        return Err(format!(
            "the drives hold {count} volumes: an md array is one"
        ));
    };
    let (organisation, strip_bytes, subdisks) = flat(&system, &volume.name)?;
    let mut array = NewPlace {
        name: &volume.name,
        uuid: [0; 16],
        version,
        organisation,
        strip_bytes,
        volume_bytes: volume_bytes(&system.config, &volume.name),
        // gvinum never made the parity of a new plex: nobody knows whether it is right.
        needs_resync: system.mark == Mark::Unknown && organisation.level().has_parity(),
        starts: Vec::new(),
        lengths: Vec::new(),
    };
    let slots = array.place(&system, &subdisks)?;
    if slots.len() != seen.len() {
        return Err("a drive holds no part of the volume".into());
    }
    if let Some(used) = seen
        .iter()
        .find(|seen| !seen.has_blank_start && seen.md.is_none())
    {
        let name = &used.name;
        return Err(format!(
            "the first 4 KiB of {name}, where the superblock would go, are not empty"
        ));
    }
    let created = system.drives.iter().filter_map(|drive| {
        let header = drive.header.as_ref()?;
        Some((drive.name.clone(), header.created))
    });
    let mut created: Vec<_> = created.collect();
    created.sort();
    array.uuid = uuid_of(&(volume.name.clone(), created));
    array.plan(seen, &slots, "gvinum", wall)
}

/// The organisation of a volume as one array, with its strip and the subdisks by slot.
fn flat(system: &System, volume: &str) -> Result<(Organisation, u64, Vec<String>), String> {
    let config = &system.config;
    let plexes = plexes_of(config, volume);
    let mut subdisks = Vec::new();
    if let [plex] = plexes.as_slice() {
        let map = plex_map(config, &plex.name).map_err(|error| error.to_string())?;
        let names = map.subdisks.iter().map(|subdisk| subdisk.name.clone());
        subdisks.extend(names);
        if map.subdisks.iter().any(is_free) {
            return Err(format!("{} lacks a subdisk", plex.name));
        }
        let (organisation, strip) = (map.geometry.organisation(), map.geometry.strip_bytes());
        return Ok((organisation, strip, subdisks));
    }
    for plex in plexes {
        let map = plex_map(config, &plex.name).map_err(|error| error.to_string())?;
        let [subdisk] = map.subdisks.as_slice() else {
            return Err(format!(
                "{} is a mirror of plexes with several subdisks: an md array of arrays",
                volume
            ));
        };
        subdisks.push(subdisk.name.clone());
    }
    Ok((Organisation::Raid1, 0, subdisks))
}

/// An md array over data that are in place already; by slot.
struct NewPlace<'a> {
    name: &'a str,
    uuid: [u8; 16],
    version: MdVersion,
    organisation: Organisation,
    strip_bytes: u64,
    volume_bytes: u64,
    needs_resync: bool,
    starts: Vec<u64>,
    lengths: Vec<u64>,
}

impl NewPlace<'_> {
    /// Where the subdisks are on their drives, one on each; gives the members by slot.
    fn place(&mut self, system: &System, subdisks: &[String]) -> Result<Vec<usize>, String> {
        let mut slots = Vec::new();
        for name in subdisks {
            let found = system.config.subdisks.iter().find(|one| one.name == *name);
            let subdisk = found.ok_or("a subdisk is not there")?;
            if subdisk.state != SubdiskState::Up {
                return Err(format!("{name} is {}", subdisk.state.name()));
            }
            let on_drive = system.config.subdisks.iter();
            if on_drive.filter(|one| one.drive == subdisk.drive).count() != 1 {
                let drive = &subdisk.drive;
                return Err(format!("drive {drive} holds more than one subdisk"));
            }
            let drive = system.drive(&subdisk.drive).and_then(|drive| drive.key);
            slots.push(drive.ok_or_else(|| format!("drive {} is not here", subdisk.drive))?);
            self.starts.push(subdisk.drive_offset_bytes);
            self.lengths.push(subdisk.length_bytes);
        }
        Ok(slots)
    }

    /// `slots`: the members by slot.
    fn plan(
        &self,
        seen: &[Seen],
        slots: &[usize],
        from: &str,
        wall: u64,
    ) -> Result<InPlace, String> {
        let component_bytes = self.component_bytes(slots.len())?;
        // A second try makes the same superblocks as the first.
        let known = slots.iter().find_map(|index| seen[*index].md.as_ref());
        let ctime = known.map_or(wall, |md| md.ctime.seconds);
        let mut make = Vec::new();
        for (slot, index) in (0_u16..).zip(slots) {
            let member = &seen[*index];
            let at_sectors = super_offset_sectors(self.version, member.size_bytes / SECTOR_BYTES);
            let at_bytes = at_sectors.unwrap_or(0) * SECTOR_BYTES;
            let end = self.starts[usize::from(slot)] + self.lengths[usize::from(slot)];
            let is_behind = !matches!(self.version, MdVersion::V11 | MdVersion::V12);
            if is_behind && end > at_bytes {
                return Err(format!(
                    "{}: the data end at byte {end}, and the superblock of md-{} begins at byte {at_bytes}: the volume would \
                     have to become {} bytes smaller",
                    member.name,
                    self.version,
                    end - at_bytes
                ));
            }
            let superblock = self.superblock(slot, slots.len(), member, component_bytes, ctime)?;
            let bytes = superblock.encode().to_vec();
            check_own(member, &superblock)?;
            make.push((*index, MetadataWrite { at_bytes, bytes }));
        }
        Ok(InPlace {
            name: self.name.to_owned(),
            from: from.to_owned(),
            to: format!("{}, md-{}", self.organisation.level(), self.version),
            volume_bytes: self.volume_bytes,
            make,
            erase: seen.iter().enumerate().filter_map(erasure).collect(),
        })
    }

    /// Bytes of each member, when md gives the same volume.
    fn component_bytes(&self, count: usize) -> Result<u64, String> {
        let has_redundancy = self.organisation.level().has_redundancy();
        let smallest = self.lengths.iter().copied().min().unwrap_or(0);
        let component_bytes = if self.organisation == Organisation::Raid1 {
            self.volume_bytes
        } else {
            smallest
        };
        let geometry = Geometry::new(&GeometrySpec {
            organisation: self.organisation,
            member_count: u16::try_from(count).map_err(|_| "too many members")?,
            strip_bytes: self.strip_bytes,
            component_bytes,
            member_sizes_bytes: if has_redundancy {
                Vec::new()
            } else {
                self.lengths.clone()
            },
        });
        let geometry = geometry.map_err(|error| format!("md cannot say this: {error}"))?;
        if geometry.volume_bytes() != self.volume_bytes {
            return Err(format!(
                "md would make {} bytes of it, the volume has {}",
                geometry.volume_bytes(),
                self.volume_bytes
            ));
        }
        Ok(if has_redundancy { component_bytes } else { 0 })
    }

    fn superblock(
        &self,
        slot: u16,
        count: usize,
        member: &Seen,
        component_bytes: u64,
        ctime: u64,
    ) -> Result<Superblock, String> {
        let count = u16::try_from(count).map_err(|_| "too many members")?;
        let roles: Vec<Role> = (0..count).map(|slot| Role::Active(Slot(slot))).collect();
        let index = usize::from(slot);
        let made = Superblock::create(&NewMember {
            version: self.version,
            array_uuid: self.uuid,
            name: self.name,
            ctime: MdTime {
                seconds: ctime,
                microseconds: 0,
            },
            level: self.organisation.md_level(),
            layout: self.organisation.md_layout(),
            component_sectors: component_bytes / SECTOR_BYTES,
            strip_sectors: u32::try_from(self.strip_bytes / SECTOR_BYTES).unwrap_or(u32::MAX),
            member_count: u32::from(count),
            data_offset_sectors: self.starts[index] / SECTOR_BYTES,
            data_size_sectors: self.lengths[index] / SECTOR_BYTES,
            device_sectors: member.size_bytes / SECTOR_BYTES,
            dev_number: u32::from(slot),
            device_uuid: uuid_of(&(self.uuid, slot)),
            roles: &roles,
            events: EventCount(0),
            resync_offset_sectors: self.needs_resync.then_some(0),
            bitmap_offset_sectors: None,
            bad_block_log: None,
            is_write_mostly: false,
        });
        made.map_err(|error| format!("{}: {error}", member.name))
    }
}

/// A superblock that is there already must be the very one: another array, or one that was used since, is not written
/// over.
fn check_own(member: &Seen, new: &Superblock) -> Result<(), String> {
    let name = &member.name;
    match &member.md {
        None => Ok(()),
        Some(md) if md.array_uuid != new.array_uuid => Err(format!(
            "{name} carries an md superblock of another array besides"
        )),
        Some(md) if md.version != new.version => Err(begun_as(name, md.version)),
        Some(md) if md.events != new.events || md.utime != new.utime || md.roles != new.roles => {
            Err(format!(
                "{name} was used as md since the conversion began: the old metadata are out of date"
            ))
        }
        Some(_) => Ok(()),
    }
}

/// Name of an array without the host that made it.
fn md_name(md: &Superblock) -> &str {
    let name = md.name.split_once(':');
    let name = name.map_or(md.name.as_str(), |(_, name)| name);
    if name.is_empty() { "md" } else { name }
}

fn md_erasure((index, seen): (usize, &Seen)) -> Option<(usize, MetadataWrite)> {
    let at_bytes = seen.md.as_ref()?.super_offset_sectors * SECTOR_BYTES;
    let bytes = vec![0; PAGE_BYTES];
    Some((index, MetadataWrite { at_bytes, bytes }))
}

/// How the UUID of an array begins that was made in place.
const UUID_START: &[u8] = b"plx";

/// A UUID that follows from what it is made of.
fn uuid_of(what: &impl std::fmt::Debug) -> [u8; 16] {
    let text = format!("{what:?}");
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&fnv(text.as_bytes(), 1).to_le_bytes());
    uuid[8..].copy_from_slice(&fnv(text.as_bytes(), 2).to_le_bytes());
    uuid[..UUID_START.len()].copy_from_slice(UUID_START);
    uuid
}

/// A number above 0 that follows from what it is made of.
fn short(what: &impl std::fmt::Debug) -> u32 {
    (fnv(format!("{what:?}").as_bytes(), 3) as u32).max(1) // the low half is as good as any
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8], seed: u8) -> u64 {
    let all = std::iter::once(&seed).chain(bytes);
    all.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
