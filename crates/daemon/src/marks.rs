//! What a file or a device carries, as far as it tells which set it is a member of: by this a member is known, whatever
//! the system calls its disk today.
//!
//! Invariants: nothing is written; what lies in a partition of a disk is the partition's mark, not the disk's.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use plexum_format::md::Role;
use plexum_format::partition::look_at;
use plexum_format::uuid::md_uuid_text;
use plexum_format::{Found, SECTOR_BYTES, detect};

use crate::expected::Expected;
use crate::zfs::{Search, ZfsMember, members_on};

/// The mark of one set on a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its format in a word, as `status` says it: `md-1.2`, `gmirror`.
    pub format: String,
    /// The identity of the set, as `status` says it.
    pub set: String,
    /// The identity of the member within its set.
    pub member: String,
    /// Its slot, where its own metadata say one.
    pub slot: Option<u32>,
    /// How new it is among marks of the same set: the larger, the newer.
    pub age: u64,
}

impl Mark {
    fn of_found(found: &Found) -> Option<Self> {
        match found {
            Found::Md(superblock) => Some(Self {
                format: format!("md-{}", superblock.version),
                set: md_uuid_text(&superblock.array_uuid),
                member: md_uuid_text(&superblock.device_uuid),
                slot: match superblock.role() {
                    Role::Active(slot) => Some(u32::from(slot.0)),
                    _ => None,
                },
                age: superblock.events.0,
            }),
            Found::Gmirror(label) => Some(Self {
                format: "gmirror".into(),
                set: format!("{:08x}", label.mirror_id),
                member: format!("{:08x}", label.component_id),
                slot: None,
                age: u64::from(label.generation_id),
            }),
            Found::Gstripe(label) => Some(Self {
                format: "gstripe".into(),
                set: format!("{:08x}", label.volume_id),
                member: label.slot.0.to_string(),
                slot: Some(u32::from(label.slot.0)),
                age: 0,
            }),
            Found::Gconcat(label) => Some(Self {
                format: "gconcat".into(),
                set: format!("{:08x}", label.volume_id),
                member: label.slot.0.to_string(),
                slot: Some(u32::from(label.slot.0)),
                age: 0,
            }),
            _ => None, // a drive of Vinum belongs to several volumes, which it knows by name
        }
    }

    fn of_pool(member: &ZfsMember) -> Option<Self> {
        let label = member.label()?;
        let roots = member.areas.iter().flat_map(|area| &area.uberblocks);
        Some(Self {
            format: "zfs".into(),
            set: label.pool_guid.to_string(),
            member: label.guid.to_string(),
            slot: None,
            age: roots.map(|root| root.txg).max().unwrap_or(0),
        })
    }

    /// Whether it is one of this volume.
    #[must_use]
    pub fn is_of(&self, expected: &Expected) -> bool {
        // A version of md's superblock says nothing of whose it is.
        let family = |format: &str| format.split('-').next().unwrap_or_default().to_owned();
        self.set == expected.uuid && family(&self.format) == family(&expected.format)
    }
}

/// Whether members of this volume are known by what is on them; those of others by their paths alone.
#[must_use]
pub fn are_members_marked(expected: &Expected) -> bool {
    let marked = ["gmirror", "gstripe", "gconcat", "zfs"];
    let is_marked = expected.format.starts_with("md-") || marked.contains(&&*expected.format);
    is_marked && !expected.uuid.is_empty()
}

/// All marks on one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The marks.
    pub marks: Vec<Mark>,
    /// There is something like a mark that must not be used.
    pub is_damaged: bool,
}

/// Reads the marks on a file or a device. May take as long as the device does.
///
/// # Errors
/// Of opening and of reading.
pub fn read_marks(path: &Path) -> io::Result<Marks> {
    let mut file = File::open(path)?;
    let size_bytes = file.seek(SeekFrom::End(0))?;
    let mut reader = |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
    let sectors = size_bytes / SECTOR_BYTES;
    let mut detection = detect(sectors, &mut reader)?;
    let partitions = look_at(size_bytes, &mut reader);
    detection.leave_to(&partitions, sectors);
    let pools = members_on(&mut reader, size_bytes, "", &partitions, Search::Tables);
    let is_damaged =
        |found: &Found| matches!(found, Found::Damaged { .. } | Found::DamagedLabel { .. });
    Ok(Marks {
        marks: {
            let found = detection.found.iter().filter_map(Mark::of_found);
            found
                .chain(pools.iter().filter_map(Mark::of_pool))
                .collect()
        },
        is_damaged: detection.found.iter().any(is_damaged),
    })
}
