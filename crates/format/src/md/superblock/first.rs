//! The first superblock of a new member.

use crate::error::{FormatError, Problem};
use crate::kept::Kept;
use crate::units::EventCount;

use super::super::{superblock1, superblock90};

use super::{
    BadBlockArea, MAX_ROLES, MdTime, MdVersion, Role, SUPERBLOCK_BYTES, Superblock,
    super_offset_sectors,
};

/// What the first superblock of a member of a new array says; see [`Superblock::create`].
#[derive(Debug, Clone)]
pub struct NewMember<'a> {
    /// Version, hence place.
    pub version: MdVersion,
    /// The array's identity, in display order.
    pub array_uuid: [u8; 16],
    /// `host:name`, at most 32 bytes; ignored by 0.90.
    pub name: &'a str,
    /// Creation time; also the first update time.
    pub ctime: MdTime,
    /// -1, 0, 1, 4, 5, 6 or 10.
    pub level: i32,
    /// md's layout number; for level 0: 1 original, 2 alternate.
    pub layout: u32,
    /// Sectors used of each member; 0 for linear and RAID-0.
    pub component_sectors: u64,
    /// Strip size; 0 where the level has none.
    pub strip_sectors: u32,
    /// Number of slots.
    pub member_count: u32,
    /// First data sector of this member.
    pub data_offset_sectors: u64,
    /// Sectors available for data on this member.
    pub data_size_sectors: u64,
    /// Size of the device, which places 1.0 and 0.90.
    pub device_sectors: u64,
    /// Index of this member in `roles`.
    pub dev_number: u32,
    /// This member's identity.
    pub device_uuid: [u8; 16],
    /// What each dev_number is; filled up with spares to md's usual 128 entries.
    pub roles: &'a [Role],
    /// Event count to begin with (mdadm: 0).
    pub events: EventCount,
    /// `None`: clean (members proven equal), else where the first resync begins.
    pub resync_offset_sectors: Option<u64>,
    /// Place of the bitmap.
    pub bitmap_offset_sectors: Option<i32>,
    /// Place of the bad block log.
    pub bad_block_log: Option<BadBlockArea>,
    /// Not read unless nothing else is left.
    pub is_write_mostly: bool,
}

impl Superblock {
    /// The superblock of a member of a new array. The result has passed the same checks as one read from disk.
    ///
    /// # Errors
    /// [`FormatError`] of the first value that the format forbids, with the offset where it would have stood.
    pub fn create(new: &NewMember<'_>) -> Result<Self, FormatError> {
        let is_v090 = new.version == MdVersion::V090;
        let (super_offset, roles) = check_new(new)?;
        let superblock = Self {
            version: new.version,
            array_uuid: new.array_uuid,
            name: if is_v090 {
                String::new()
            } else {
                new.name.to_owned()
            },
            ctime: new.ctime,
            utime: new.ctime,
            level: new.level,
            layout: new.layout,
            has_raid0_layout: !is_v090 && new.level == 0,
            component_sectors: new.component_sectors,
            strip_sectors: new.strip_sectors,
            member_count: new.member_count,
            data_offset_sectors: new.data_offset_sectors,
            data_size_sectors: new.data_size_sectors,
            is_clipped: false,
            logical_block_bytes: 0,
            super_offset_sectors: super_offset,
            rebuild_offset_sectors: None,
            journal_tail_sectors: None,
            dev_number: new.dev_number,
            device_uuid: new.device_uuid,
            is_write_mostly: new.is_write_mostly,
            is_failfast: false,
            events: new.events,
            resync_offset_sectors: new.resync_offset_sectors,
            roles,
            bitmap_offset_sectors: new.bitmap_offset_sectors,
            bad_block_log: new.bad_block_log,
            has_bad_blocks: false,
            is_replacement: false,
            is_bitmap_rebuild: false,
            ppl: None,
            has_journal: false,
            has_answers_in_log: false,
            reshape: None,
            corrected_reads: 0,
            raw: Kept::new([0; SUPERBLOCK_BYTES]),
            is_big_endian: false,
        };
        superblock.check_encodable()?;
        let made = Self::parse(
            &superblock.encode(),
            super_offset,
            new.device_sectors,
            new.version,
        )?;
        // A device that was cut is read; nothing is made for one.
        match made.is_clipped {
            false => Ok(made),
            true => Err(superblock1::clipped(&made, new.data_size_sectors)),
        }
    }
}

/// The superblock's sector and the whole role table of a new member, or why there are none.
fn check_new(new: &NewMember<'_>) -> Result<(u64, Vec<Role>), FormatError> {
    let refuse = |field, found: String, expected: String| {
        let structure = new.version.structure();
        let problem = Problem::Request;
        Err(FormatError::new(
            problem, structure, 0, field, found, expected,
        ))
    };
    let Some(super_offset) = super_offset_sectors(new.version, new.device_sectors) else {
        let found = format!("{} sectors", new.device_sectors);
        return refuse("device size", found, "enough for a superblock".into());
    };
    if new.name.len() > superblock1::NAME_BYTES || new.name.contains(char::is_control) {
        let limit = superblock1::NAME_BYTES;
        let expected = format!("at most {limit} bytes without control characters");
        return refuse("name", format!("{:?}", new.name), expected);
    }
    let (max_roles, usual) = match new.version {
        MdVersion::V090 => (superblock90::MAX_MEMBERS, superblock90::MAX_MEMBERS),
        _ => (MAX_ROLES, 128),
    };
    if new.roles.len() > max_roles {
        let expected = format!("at most {max_roles}");
        return refuse("number of members", new.roles.len().to_string(), expected);
    }
    let mut roles = new.roles.to_vec();
    roles.resize(roles.len().max(usual), Role::Spare);
    Ok((super_offset, roles))
}
