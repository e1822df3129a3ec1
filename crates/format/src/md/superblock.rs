//! The md superblock independent of its version: what an engine works with.
//!
//! Invariants:
//! - a [`Superblock`] exists only after every load-time refusal of the format was checked, or was made by
//!   [`Superblock::create`];
//! - it keeps the 4096 bytes it was read from: what the model does not describe is written back unchanged;
//! - `encode(parse(x)) == x` for a superblock that the kernel wrote and nobody changed;
//! - the checksum is computed last, over what is really written.

mod first;

use crate::error::{FormatError, Problem};
use crate::kept::Kept;
use crate::units::{EventCount, SECTOR_BYTES, Slot};

use super::{superblock1, superblock90};

pub use first::NewMember;

/// Bytes of a superblock's area, in every version.
pub const SUPERBLOCK_BYTES: usize = 4096;

/// Most entries that the role table of a 1.x superblock can have in its 4 KiB.
pub const MAX_ROLES: usize = (SUPERBLOCK_BYTES - superblock1::HEAD_BYTES) / 2;

/// Bits of the feature map of a 1.x superblock. Source: linux-md.md section 1.
pub mod feature {
    /// An internal bitmap is present.
    pub const BITMAP: u32 = 0x1;
    /// The member is being rebuilt: only data below the rebuild offset are valid.
    pub const RECOVERY_OFFSET: u32 = 0x2;
    /// A reshape is under way.
    pub const RESHAPE: u32 = 0x4;
    /// The bad block list is not empty.
    pub const BAD_BLOCKS: u32 = 0x8;
    /// The member replaces the active one of the same role.
    pub const REPLACEMENT: u32 = 0x10;
    /// The reshape runs backwards although the number of members stays.
    pub const RESHAPE_BACKWARDS: u32 = 0x20;
    /// The reshape moves the data offset.
    pub const NEW_OFFSET: u32 = 0x40;
    /// The running rebuild is guided by the bitmap.
    pub const RECOVERY_BITMAP: u32 = 0x80;
    /// A cluster of machines shares the array: refused.
    pub const CLUSTERED: u32 = 0x100;
    /// A write journal belongs to the array.
    pub const JOURNAL: u32 = 0x200;
    /// A partial parity log with a single place.
    pub const PPL: u32 = 0x400;
    /// A partial parity log that is a ring.
    pub const MULTIPLE_PPLS: u32 = 0x800;
    /// The layout field of a RAID-0 is valid.
    pub const RAID0_LAYOUT: u32 = 0x1000;
    /// Plexum's own: the stripe log holds answered writes (write-order.md L5). No kernel knows it, so none starts the
    /// array.
    pub const PLEXUM_STRIPE_LOG: u32 = 0x8000_0000;
}

/// Version of the superblock, which is also its place on the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MdVersion {
    /// In the last 64 to 128 KiB; at most 27 members, no data offset, no bad block log.
    V090,
    /// 8 to 12 KiB before the end; data usually from sector 0.
    V10,
    /// In sector 0, data behind it.
    V11,
    /// In sector 8, data behind it: the default.
    V12,
}

impl MdVersion {
    /// All versions in the order in which a member is probed.
    pub const ALL: [Self; 4] = [Self::V12, Self::V11, Self::V10, Self::V090];

    /// The version as md writes it: `1.2`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V090 => "0.90",
            Self::V10 => "1.0",
            Self::V11 => "1.1",
            Self::V12 => "1.2",
        }
    }

    /// Whether a superblock can say how far a rebuild has got. Without (0.90) a member that is being rebuilt must be a
    /// [`Role::Spare`] in every member's table until it is complete, and a rebuild begins anew after a restart.
    #[must_use]
    pub fn has_rebuild_offset(self) -> bool {
        self != Self::V090
    }

    /// The structure's name in messages: `md superblock 1.2`.
    #[must_use]
    pub fn structure(self) -> &'static str {
        match self {
            Self::V090 => "md superblock 0.90",
            Self::V10 => "md superblock 1.0",
            Self::V11 => "md superblock 1.1",
            Self::V12 => "md superblock 1.2",
        }
    }
}

impl std::fmt::Display for MdVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Sector of the superblock on a device of `device_sectors`, or `None` when the device is too small to hold it.
///
/// Source: linux-md.md sections 1 and 2.
#[must_use]
pub fn super_offset_sectors(version: MdVersion, device_sectors: u64) -> Option<u64> {
    const AREA_SECTORS: u64 = SUPERBLOCK_BYTES as u64 / SECTOR_BYTES;
    let offset = match version {
        MdVersion::V090 => (device_sectors & !127).checked_sub(128)?,
        MdVersion::V10 => device_sectors.checked_sub(16)? & !7,
        MdVersion::V11 => 0,
        MdVersion::V12 => 8,
    };
    (offset + AREA_SECTORS <= device_sectors).then_some(offset)
}

/// Entry of the role table: what the member with that dev_number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Has this slot. Whether it is complete says its own superblock (rebuild offset).
    Active(Slot),
    /// A spare, or nobody: the table does not tell these apart.
    Spare,
    /// Failed.
    Faulty,
    /// Holds the write journal.
    Journal,
}

impl Role {
    /// The slot of an active member.
    #[must_use]
    pub fn slot(self) -> Option<Slot> {
        match self {
            Self::Active(slot) => Some(slot),
            Self::Spare | Self::Faulty | Self::Journal => None,
        }
    }
}

/// A point in time as the superblock keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MdTime {
    /// Seconds since 1970, UTC; 40 bits in 1.x, 32 in 0.90.
    pub seconds: u64,
    /// Microseconds; 24 bits in 1.x, absent in 0.90. The kernel writes 0 into update times.
    pub microseconds: u32,
}

/// Where a member's bad block log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BadBlockArea {
    /// Sectors from the superblock's first sector.
    pub offset_sectors: i32,
    /// Sectors reserved.
    pub size_sectors: u16,
    /// Entries count units of `512 << shift` bytes; 0 in practice.
    pub shift: u8,
}

/// Where a member's partial parity log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PplArea {
    /// Sectors from the superblock's first sector.
    pub offset_sectors: i16,
    /// Sectors reserved.
    pub size_sectors: u16,
    /// Whether the area is a ring of headers (feature 0x800) instead of a single one (0x400).
    pub is_multiple: bool,
}

/// Order of the members in the further zones of a RAID-0 with unequal members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Raid0Layout {
    /// Counted from the start of the array (kernels before 3.14; mdadm's default).
    Original,
    /// Counted from the start of the zone (kernels 3.14 to 5.3).
    Alternate,
}

/// A reshape that has not finished. While it runs the superblock's own geometry fields are the old ones, except
/// `member_count`, which is the new one already. Source: linux-md.md section 12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// Array sector up to which (forward) or from which (backward) the new geometry holds.
    pub position_sectors: u64,
    /// New minus old number of members.
    pub member_count_change: i32,
    /// New level.
    pub new_level: i32,
    /// New layout.
    pub new_layout: u32,
    /// New strip size.
    pub new_strip_sectors: u32,
    /// New data offset minus the present one, on this member; `None`: the data offset stays.
    pub new_offset_sectors: Option<i32>,
    /// The explicit mark of a backward reshape (feature 0x20).
    pub is_marked_backwards: bool,
}

impl Reshape {
    /// Whether the reshape runs from the end of the array to its start.
    #[must_use]
    pub fn is_backwards(&self) -> bool {
        self.member_count_change < 0 || (self.member_count_change == 0 && self.is_marked_backwards)
    }
}

/// A checked md superblock of any version. Sector counts are of 512 bytes.
///
/// Public fields may be changed freely between [`Superblock::parse`] and [`Superblock::encode`], except that `version`,
/// `super_offset_sectors` and `array_uuid` belong to the place and the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Version, hence place.
    pub version: MdVersion,
    /// The array's identity, so that [`crate::uuid::md_uuid_text`] shows it as md does (0.90: the four words, most
    /// significant byte first). For comparing with a bitmap see [`Superblock::bitmap_uuid`].
    pub array_uuid: [u8; 16],
    /// `host:name` or `name`, at most 32 bytes; bytes that are not printable UTF-8 are shown as `\xNN`. Empty in 0.90.
    pub name: String,
    /// Creation of the array.
    pub ctime: MdTime,
    /// Last superblock commit.
    pub utime: MdTime,
    /// -1 linear, 0, 1, 4, 5, 6 or 10.
    pub level: i32,
    /// md's layout number; its meaning depends on the level. For level 0 ask [`Superblock::raid0_layout`].
    pub layout: u32,
    /// Whether `layout` is valid for level 0 (feature 0x1000).
    pub has_raid0_layout: bool,
    /// Sectors used of each member; 0 for linear and RAID-0.
    pub component_sectors: u64,
    /// Strip size (md: chunksize); 0 where the level has none.
    pub strip_sectors: u32,
    /// Number of slots (md: raid_disks); during a reshape the new number.
    pub member_count: u32,
    /// First data sector of this member.
    pub data_offset_sectors: u64,
    /// Sectors available for data on this member.
    pub data_size_sectors: u64,
    /// The superblock has a larger `data_size_sectors`: the device was cut behind what the array uses.
    pub is_clipped: bool,
    /// Requests to the array are multiples of this (Linux 6.19 and later record it); 0: not recorded.
    pub logical_block_bytes: u32,
    /// Sector of this superblock.
    pub super_offset_sectors: u64,
    /// `Some`: the member is being rebuilt and only data sectors below this (counted from the data offset) are valid.
    /// May exceed the component: compare, do not index.
    pub rebuild_offset_sectors: Option<u64>,
    /// On a journal device: sector of the last known meta block.
    pub journal_tail_sectors: Option<u64>,
    /// Permanent index of this member in `roles`; not its slot.
    pub dev_number: u32,
    /// This member's identity; zero in 0.90, which has none.
    pub device_uuid: [u8; 16],
    /// Not read unless nothing else is left (RAID-1).
    pub is_write_mostly: bool,
    /// No retries on transport errors.
    pub is_failfast: bool,
    /// Event count.
    pub events: EventCount,
    /// `None`: clean. Else member or array sectors below it are known to agree.
    pub resync_offset_sectors: Option<u64>,
    /// What each dev_number is.
    pub roles: Vec<Role>,
    /// Sectors from the superblock to the internal bitmap; `None`: no bitmap.
    pub bitmap_offset_sectors: Option<i32>,
    /// Place of the bad block log; `None`: there is no room reserved.
    pub bad_block_log: Option<BadBlockArea>,
    /// Whether the bad block log is not empty and has to be read.
    pub has_bad_blocks: bool,
    /// Whether this member replaces the active one of the same slot.
    pub is_replacement: bool,
    /// Whether the rebuild of this member only covers what the bitmap says.
    pub is_bitmap_rebuild: bool,
    /// Place of the partial parity log.
    pub ppl: Option<PplArea>,
    /// Whether a write journal belongs to the array.
    pub has_journal: bool,
    /// Answered writes may be in Plexum's stripe log only: nobody else may start the array.
    pub has_answers_in_log: bool,
    /// An unfinished reshape.
    pub reshape: Option<Reshape>,
    /// Read errors of this member that were corrected.
    pub corrected_reads: u32,
    /// What was read, or what creation made; see the file's invariants.
    pub(super) raw: Kept<SUPERBLOCK_BYTES>,
    /// Byte order of a 0.90 superblock; 1.x is always little-endian.
    pub(super) is_big_endian: bool,
}

impl Superblock {
    /// Checks the 4096 bytes at `found_at_sector` of a device with `device_sectors` and decodes them.
    ///
    /// # Errors
    /// [`FormatError`] with the first field that the format forbids; [`Problem::NoMagic`] when this is no md superblock
    /// of that kind at all.
    ///
    /// Source: linux-md.md section 1 (load-time refusals) and section 2.
    pub fn parse(
        bytes: &[u8],
        found_at_sector: u64,
        device_sectors: u64,
        version: MdVersion,
    ) -> Result<Self, FormatError> {
        let Some(area) = bytes.first_chunk::<SUPERBLOCK_BYTES>() else {
            return Err(FormatError::new(
                Problem::TooShort,
                version.structure(),
                found_at_sector.saturating_mul(SECTOR_BYTES),
                "area",
                format_args!("{} bytes", bytes.len()),
                format_args!("{SUPERBLOCK_BYTES} bytes"),
            ));
        };
        match version {
            MdVersion::V090 => superblock90::parse(area, found_at_sector, device_sectors),
            MdVersion::V10 | MdVersion::V11 | MdVersion::V12 => {
                superblock1::parse(area, found_at_sector, device_sectors, version)
            }
        }
    }

    /// The 4096 bytes of the area with the present values, checksum computed.
    ///
    /// Write only the first [`Superblock::write_bytes`] of them: behind these a bitmap may lie (1.0, offset +2).
    ///
    /// # Panics
    /// When a caller broke the model: more than [`MAX_ROLES`] roles (27 in 0.90), or a value that this version has no
    /// place for (such as a strip of more than `u32::MAX` bytes in 0.90).
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        match self.version {
            MdVersion::V090 => superblock90::encode(self),
            MdVersion::V10 | MdVersion::V11 | MdVersion::V12 => superblock1::encode(self),
        }
    }

    /// How many bytes of [`Superblock::encode`] have to be written to a device with this logical block size (a power of
    /// two from 512 to 4096).
    ///
    /// Source: linux-md.md section 1: `256 + 2 * max_dev` rounded up to the logical block.
    #[must_use]
    pub fn write_bytes(&self, logical_block_bytes: usize) -> usize {
        let block = logical_block_bytes.clamp(SECTOR_BYTES as usize, SUPERBLOCK_BYTES);
        self.used_bytes().next_multiple_of(block)
    }

    /// Bytes that the checksum covers.
    pub(super) fn used_bytes(&self) -> usize {
        match self.version {
            MdVersion::V090 => SUPERBLOCK_BYTES,
            _ => superblock1::HEAD_BYTES + 2 * self.roles.len(),
        }
    }

    /// This member's own role as its own table says: a stale member still calls itself active.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role_of(self.dev_number)
    }

    /// Role of another member by its dev_number; beyond the table everybody is a spare.
    #[must_use]
    pub fn role_of(&self, dev_number: u32) -> Role {
        usize::try_from(dev_number)
            .ok()
            .and_then(|index| self.roles.get(index).copied())
            .unwrap_or(Role::Spare)
    }

    /// Device numbers whose entry in the role table has the disk error flag of a NAS vendor, ascending.
    pub fn flagged_dev_numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.roles.len())
            .filter(|number| {
                self.version != MdVersion::V090 && superblock1::has_error_flag(&self.raw, *number)
            })
            .filter_map(|number| u32::try_from(number).ok())
    }

    /// Gives `dev_number` this role, enlarging the table when needed.
    ///
    /// # Errors
    /// [`Problem::Request`] when the version's table cannot hold the entry.
    pub fn set_role(&mut self, dev_number: u32, role: Role) -> Result<(), FormatError> {
        let limit = self.max_roles();
        let index = usize::try_from(dev_number)
            .ok()
            .filter(|index| *index < limit)
            .ok_or_else(|| {
                FormatError::new(
                    Problem::Request,
                    self.version.structure(),
                    0,
                    "device number",
                    dev_number,
                    format_args!("below {limit}"),
                )
            })?;
        if index >= self.roles.len() {
            self.roles.resize(index + 1, Role::Spare);
        }
        self.roles[index] = role;
        Ok(())
    }

    /// Most entries that the role table of this version can have.
    #[must_use]
    pub fn max_roles(&self) -> usize {
        match self.version {
            MdVersion::V090 => superblock90::MAX_MEMBERS,
            _ => MAX_ROLES,
        }
    }

    /// The feature map that the present values amount to (0 in 0.90, which has none).
    #[must_use]
    pub fn features(&self) -> u32 {
        if self.version == MdVersion::V090 {
            return 0;
        }
        let bit = |is_set: bool, mask: u32| if is_set { mask } else { 0 };
        let mut map = bit(self.bitmap_offset_sectors.is_some(), feature::BITMAP)
            | bit(
                self.rebuild_offset_sectors.is_some(),
                feature::RECOVERY_OFFSET,
            )
            | bit(self.has_bad_blocks, feature::BAD_BLOCKS)
            | bit(self.is_replacement, feature::REPLACEMENT)
            | bit(self.is_bitmap_rebuild, feature::RECOVERY_BITMAP)
            | bit(self.has_journal, feature::JOURNAL)
            | bit(self.has_answers_in_log, feature::PLEXUM_STRIPE_LOG)
            | bit(self.has_raid0_layout, feature::RAID0_LAYOUT);
        if let Some(reshape) = &self.reshape {
            map |= feature::RESHAPE
                | bit(reshape.is_marked_backwards, feature::RESHAPE_BACKWARDS)
                | bit(reshape.new_offset_sectors.is_some(), feature::NEW_OFFSET);
        }
        if let Some(ppl) = &self.ppl {
            map |= if ppl.is_multiple {
                feature::MULTIPLE_PPLS
            } else {
                feature::PPL
            };
        }
        map
    }

    /// Order of the members in a RAID-0's further zones; `None` when the superblock does not say (then an array of
    /// several zones must not be started by guessing).
    #[must_use]
    pub fn raid0_layout(&self) -> Option<Raid0Layout> {
        match (self.level, self.has_raid0_layout, self.layout) {
            (0, true, 1) => Some(Raid0Layout::Original),
            (0, true, 2) => Some(Raid0Layout::Alternate),
            _ => None,
        }
    }

    /// Whether the array was stopped cleanly or has had no write since it was last idle.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.resync_offset_sectors.is_none()
    }

    /// The array UUID as the bitmap's header holds it (differs from `array_uuid` only in little-endian 0.90).
    #[must_use]
    pub fn bitmap_uuid(&self) -> [u8; 16] {
        if self.version != MdVersion::V090 || self.is_big_endian {
            return self.array_uuid;
        }
        let mut uuid = self.array_uuid;
        uuid.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        uuid
    }

    /// Whether the numbers of this 0.90 superblock are big-endian: the kernel of a little-endian machine refuses it.
    #[must_use]
    pub fn is_big_endian(&self) -> bool {
        self.is_big_endian
    }

    /// Sectors of this member, from the data offset, that hold data of the array.
    #[must_use]
    pub fn used_sectors(&self) -> u64 {
        if self.level > 0 {
            self.component_sectors
        } else {
            self.data_size_sectors
        }
    }

    /// First sector of the internal bitmap on the member.
    #[must_use]
    pub fn bitmap_sector(&self) -> Option<u64> {
        let offset = self.bitmap_offset_sectors?;
        self.super_offset_sectors
            .checked_add_signed(i64::from(offset))
    }

    /// First sector of the bad block log on the member.
    #[must_use]
    pub fn bad_block_log_sector(&self) -> Option<u64> {
        let offset = self.bad_block_log?.offset_sectors;
        self.super_offset_sectors
            .checked_add_signed(i64::from(offset))
    }

    /// First sector of the partial parity log on the member.
    #[must_use]
    pub fn ppl_sector(&self) -> Option<u64> {
        let offset = self.ppl?.offset_sectors;
        self.super_offset_sectors
            .checked_add_signed(i64::from(offset))
    }

    /// Sectors from the bitmap's start to whatever comes next (superblock, bad block log, data, end of the device):
    /// the bitmap must not be larger. `None`: no bitmap.
    #[must_use]
    pub fn bitmap_room_sectors(&self, device_sectors: u64) -> Option<u64> {
        let start = self.bitmap_sector()?;
        let mut limits = vec![device_sectors, self.super_offset_sectors];
        limits.extend(self.bad_block_log_sector());
        if self.used_sectors() > 0 {
            limits.push(self.data_offset_sectors);
        }
        let next = limits.into_iter().filter(|limit| *limit > start).min()?;
        Some(next - start)
    }
}

impl Superblock {
    /// Refuses values that this version has no place for, before [`Superblock::encode`] would panic on them.
    ///
    /// # Errors
    /// [`Problem::Request`] naming the field.
    pub fn check_encodable(&self) -> Result<(), FormatError> {
        match self.version {
            MdVersion::V090 => superblock90::check_encodable(self),
            _ => superblock1::check_encodable(self),
        }
    }
}
