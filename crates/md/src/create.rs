//! A new md array: sizes, places, superblocks, bitmap. A pure plan; `write_new` carries it out.
//!
//! Invariants:
//! - what superblocks point to is written and flushed before any superblock is;
//! - without redundancy there is no bitmap and no resync;
//! - nothing here looks at what is on the devices: the caller has, and has asked.

use plexum_format::md::{
    BadBlocks, Bitmap, MdTime, MdVersion, NewBitmap, NewMember, Placement, PlacementRequest,
    PplArea, PplHeader, Role, Superblock, bitmap, component_sectors, place_member, ppl,
};
use plexum_format::stripe_log::{LogArea, LogHeader, NoLog, plan_area};
use plexum_format::{EventCount, FormatError, SECTOR_BYTES, Slot};

use plexum_block::buf::BufPool;
use plexum_block::device::{Device, Fua, IoError};
use plexum_engine::metadata::MetadataWrite;
use plexum_layout::{Geometry, GeometryError, GeometrySpec, Level, Organisation};

/// Sectors of a superblock, and of a bad-block log.
const PAGE_SECTORS: u64 = 8;

/// Largest region that is tried when the bitmap does not fit, in bytes.
const REGION_BYTES_MAX: u64 = 1 << 31;

/// Whether the members of a new array agree already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Copies or parity are known to agree (all zero, or the user says so).
    Agreeing,
    /// They may differ: the first resync makes them agree.
    Resync,
}

/// What a new array shall be.
#[derive(Clone, Debug)]
pub struct NewArray {
    /// Version of the superblocks.
    pub version: MdVersion,
    /// Organisation with layout.
    pub organisation: Organisation,
    /// Strip size in bytes, 0 where there are none.
    pub strip_bytes: u64,
    /// Most bytes to use of each member; `None`: what fits on the smallest.
    pub size_bytes: Option<u64>,
    /// Size of each member's device in bytes by slot; `None` for a slot that stays empty.
    pub members: Vec<Option<u64>>,
    /// Sizes of spares.
    pub spares: Vec<u64>,
    /// Members (by slot) to read only when nobody else can answer.
    pub write_mostly: Vec<u16>,
    /// Name as stored: `host:name`.
    pub stored_name: String,
    /// Identity of the array.
    pub uuid: [u8; 16],
    /// Identities of members, then spares; as many as both lists are long.
    pub identities: Vec<[u8; 16]>,
    /// Creation time in seconds since 1970.
    pub wall_seconds: u64,
    /// Whether redundant organisations get a bitmap.
    pub has_bitmap: bool,
    /// Region size in bytes; `None`: chosen.
    pub region_bytes: Option<u64>,
    /// Largest ring of the stripe log in bytes; `None`: no log. Without room for one (L1) the plan has none and says
    /// why.
    pub log_bytes_max: Option<u64>,
    /// Whether writes are answered when they are durable in the stripe log (L5).
    pub is_write_back: bool,
    /// Whether a RAID-5 gets md's partial parity log, which excludes bitmap and stripe log. Parity has to agree then,
    /// or to be made by a rebuild: an array with this log is never resynced.
    pub has_ppl: bool,
    /// Whether the members agree.
    pub start: Start,
}

/// Sectors of a partial parity log, as mdadm makes it.
const PPL_SECTORS: u16 = 2048;

/// Why there is no plan.
#[derive(Debug)]
#[non_exhaustive]
pub enum CreateError {
    /// Level, layout, strip or number of members do not fit.
    Geometry(GeometryError),
    /// A member (index into members, then spares) is too small, or a value has no place in this version.
    Format {
        /// Index of the member.
        index: usize,
        /// What does not fit.
        error: Box<FormatError>,
    },
    /// The data of this member cannot begin where they were said to.
    DataOffset {
        /// Index of the member.
        index: usize,
        /// Where they can begin at the earliest.
        least_bytes: u64,
    },
    /// Every slot is empty.
    NoMembers,
    /// `size_bytes` is more than this member has room for.
    SizeTooLarge {
        /// Index of the member.
        index: usize,
        /// Its room in bytes.
        room_bytes: u64,
    },
}

impl std::fmt::Display for CreateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CreateError::Geometry(error) => write!(f, "{error}"),
            CreateError::Format { error, .. } => write!(f, "{error}"),
            CreateError::DataOffset { least_bytes: 0, .. } => {
                f.write_str("this format has its data at the start of each member, nowhere else")
            }
            CreateError::DataOffset { least_bytes, .. } => write!(
                f,
                "the data begin at a multiple of 4096 on the member, not before byte {least_bytes}"
            ),
            CreateError::NoMembers => f.write_str("every member is missing"),
            CreateError::SizeTooLarge { room_bytes, .. } => {
                write!(
                    f,
                    "the member has room for {room_bytes} bytes of data, less than the size asked for"
                )
            }
        }
    }
}

impl std::error::Error for CreateError {}

/// A plan: what will be on each member.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address map.
    pub geometry: Geometry,
    /// By member, then spare; `None` for empty slots.
    pub superblocks: Vec<Option<Superblock>>,
    /// Region size in bytes where there is a bitmap.
    pub region_bytes: Option<u64>,
    /// Why there is no stripe log although one was asked for (L1).
    pub no_log: Option<NoLog>,
    start: Start,
    reserved_sectors: Vec<u32>,
    /// By member, then spare.
    log_areas: Vec<Option<LogArea>>,
    is_write_back: bool,
}

/// Plans a new array.
///
/// # Errors
/// `CreateError`; nothing is half planned.
pub fn plan(new: &NewArray) -> Result<Plan, CreateError> {
    plan_at(new, None)
}

/// Plans an array whose data begin at a byte of each member that the caller knows: they are there already.
///
/// # Errors
/// As `plan`; `DataOffset` when there is no room for metadata before them.
pub fn plan_at(new: &NewArray, data_offset_bytes: Option<u64>) -> Result<Plan, CreateError> {
    let sizes: Vec<Option<u64>> = new
        .members
        .iter()
        .copied()
        .chain(new.spares.iter().map(|size| Some(*size)))
        .collect();
    let level = new.organisation.level();
    let wants_bitmap = new.has_bitmap && level.has_redundancy() && !new.has_ppl;
    let cover = cover_bytes(new, level)?;
    let mut region_bytes = new
        .region_bytes
        .unwrap_or_else(|| u64::from(bitmap::default_region_bytes(cover / SECTOR_BYTES)));
    let placements = loop {
        let ppl_bytes = new.has_ppl.then_some(u64::from(PPL_SECTORS) * SECTOR_BYTES);
        let bitmap_bytes = wants_bitmap.then(|| bitmap::area_bytes(cover.div_ceil(region_bytes)));
        let bitmap_bytes = bitmap_bytes.or(ppl_bytes); // it lies where a bitmap would
        match place_all(new, &sizes, bitmap_bytes, data_offset_bytes) {
            // Regions that nobody asked for grow until the bitmap fits the version.
            Err(_)
                if wants_bitmap
                    && new.region_bytes.is_none()
                    && region_bytes < REGION_BYTES_MAX =>
            {
                region_bytes *= 2
            }
            other => break other?,
        }
    };
    let geometry = geometry_of(new, level, &placements)?;
    let roles = roles_of(new, sizes.len());
    let mut superblocks = Vec::new();
    for (index, placement) in placements.iter().enumerate() {
        let superblock = placement
            .as_ref()
            .map(|placement| superblock_of(new, &geometry, &roles, index, placement, wants_bitmap));
        superblocks.push(
            superblock
                .transpose()
                .map_err(|error| CreateError::Format {
                    index,
                    error: Box::new(error),
                })?,
        );
    }
    let reserved_sectors: Vec<u32> = placements
        .iter()
        .map(|placement| placement.map_or(0, |p| p.bitmap_reserved_sectors))
        .collect();
    let (log_areas, no_log) = plan_log(new, &superblocks, &reserved_sectors);
    Ok(Plan {
        geometry,
        superblocks,
        no_log,
        log_areas,
        is_write_back: new.is_write_back,
        region_bytes: wants_bitmap.then_some(region_bytes),
        start: if level.has_redundancy() {
            new.start
        } else {
            Start::Agreeing
        },
        reserved_sectors,
    })
}

/// Roles by member, then spare.
fn roles_of(new: &NewArray, count: usize) -> Vec<Role> {
    let role = |index: usize| match new.members.get(index) {
        Some(Some(_)) => Role::Active(Slot(u16::try_from(index).expect("bounded by the geometry"))),
        _ => Role::Spare,
    };
    (0..count).map(role).collect()
}

/// Rings for all members in slots, or for none (L1).
fn plan_log(
    new: &NewArray,
    superblocks: &[Option<Superblock>],
    reserved_sectors: &[u32],
) -> (Vec<Option<LogArea>>, Option<NoLog>) {
    let mut areas = vec![None; superblocks.len()];
    let Some(bytes_max) = new.log_bytes_max.filter(|_| !new.has_ppl) else {
        return (areas, None);
    };
    for (index, superblock) in superblocks[..new.members.len()].iter().enumerate() {
        let Some(superblock) = superblock else {
            continue;
        };
        match plan_area(superblock, u64::from(reserved_sectors[index])) {
            Ok(area) => areas[index] = Some(area.shrunk(bytes_max)),
            Err(reason) => return (vec![None; superblocks.len()], Some(reason)),
        }
    }
    (areas, None)
}

/// Upper bound of what the bitmap covers; what it really covers is known only after the placement.
fn cover_bytes(new: &NewArray, level: Level) -> Result<u64, CreateError> {
    let smallest = new
        .members
        .iter()
        .flatten()
        .min()
        .copied()
        .ok_or(CreateError::NoMembers)?;
    let component = new.size_bytes.map_or(smallest, |size| size.min(smallest));
    Ok(if level == Level::Raid10 {
        component.saturating_mul(new.members.len() as u64)
    } else {
        component
    }
    .max(1))
}

fn place_all(
    new: &NewArray,
    sizes: &[Option<u64>],
    bitmap_bytes: Option<u64>,
    data_offset_bytes: Option<u64>,
) -> Result<Vec<Option<Placement>>, CreateError> {
    let smallest = sizes
        .iter()
        .flatten()
        .min()
        .copied()
        .ok_or(CreateError::NoMembers)?;
    let mut placements = Vec::new();
    for (index, size) in sizes.iter().enumerate() {
        let Some(size) = size else {
            placements.push(None);
            continue;
        };
        let request = PlacementRequest {
            version: new.version,
            device_sectors: size / SECTOR_BYTES,
            smallest_device_sectors: smallest / SECTOR_BYTES,
            strip_sectors: strip_sectors(new),
            bitmap_bytes,
        };
        let mut placement = place_member(&request).map_err(|error| CreateError::Format {
            index,
            error: Box::new(error),
        })?;
        if let Some(bytes) = data_offset_bytes {
            move_data(&mut placement, bytes, size / SECTOR_BYTES, new.version)
                .map_err(|least_bytes| CreateError::DataOffset { index, least_bytes })?;
        }
        let room_bytes = placement.data_size_sectors * SECTOR_BYTES;
        if new
            .size_bytes
            .is_some_and(|wanted| wanted == 0 || wanted > room_bytes)
        {
            return Err(CreateError::SizeTooLarge { index, room_bytes });
        }
        placements.push(Some(placement));
    }
    Ok(placements)
}

/// Lets the data begin elsewhere, with everything else where it is. The error is the least byte where they can begin.
fn move_data(
    placement: &mut Placement,
    data_offset_bytes: u64,
    device_sectors: u64,
    version: MdVersion,
) -> Result<(), u64> {
    let start = data_offset_bytes / SECTOR_BYTES;
    if !matches!(version, MdVersion::V11 | MdVersion::V12) {
        return if start == placement.data_offset_sectors {
            Ok(())
        } else {
            Err(0)
        };
    }
    // The superblock, what is kept for the bitmap, and the bad-block log.
    let page = PAGE_SECTORS;
    let least =
        placement.super_offset_sectors + 2 * page + u64::from(placement.bitmap_reserved_sectors);
    if start < least
        || !data_offset_bytes.is_multiple_of(page * SECTOR_BYTES)
        || start >= device_sectors
    {
        return Err(least * SECTOR_BYTES);
    }
    placement.data_offset_sectors = start;
    placement.data_size_sectors = device_sectors - start;
    Ok(())
}

fn strip_sectors(new: &NewArray) -> u32 {
    u32::try_from(new.strip_bytes / SECTOR_BYTES).unwrap_or(u32::MAX)
}

fn geometry_of(
    new: &NewArray,
    level: Level,
    placements: &[Option<Placement>],
) -> Result<Geometry, CreateError> {
    let data_bytes = |placement: &Option<Placement>| {
        let room = placement.map_or(0, |placement| placement.data_size_sectors * SECTOR_BYTES);
        new.size_bytes.map_or(room, |size| size.min(room))
    };
    let slots = &placements[..new.members.len()];
    let data: Vec<u64> = slots
        .iter()
        .filter(|placement| placement.is_some())
        .map(|p| data_bytes(p) / SECTOR_BYTES)
        .collect();
    let component = component_sectors(level.md_number(), strip_sectors(new), &data) * SECTOR_BYTES;
    let spec = GeometrySpec {
        organisation: new.organisation,
        member_count: u16::try_from(new.members.len()).unwrap_or(u16::MAX),
        strip_bytes: new.strip_bytes,
        component_bytes: component,
        member_sizes_bytes: if level.has_redundancy() {
            Vec::new()
        } else {
            slots.iter().map(data_bytes).collect()
        },
    };
    Geometry::new(&spec).map_err(CreateError::Geometry)
}

fn superblock_of(
    new: &NewArray,
    geometry: &Geometry,
    roles: &[Role],
    index: usize,
    placement: &Placement,
    wants_bitmap: bool,
) -> Result<Superblock, FormatError> {
    let has_redundancy = new.organisation.level().has_redundancy();
    let slot = u16::try_from(index).unwrap_or(u16::MAX);
    let size_sectors = new
        .members
        .iter()
        .copied()
        .chain(new.spares.iter().map(|size| Some(*size)))
        .nth(index);
    let data_size = new
        .size_bytes
        .filter(|_| !has_redundancy)
        .map_or(placement.data_size_sectors, |size| size / SECTOR_BYTES);
    let mut superblock = Superblock::create(&NewMember {
        version: new.version,
        array_uuid: new.uuid,
        name: &new.stored_name,
        ctime: MdTime {
            seconds: new.wall_seconds,
            microseconds: 0,
        },
        level: new.organisation.md_level(),
        layout: new.organisation.md_layout(),
        component_sectors: if has_redundancy {
            geometry.component_bytes() / SECTOR_BYTES
        } else {
            0
        },
        strip_sectors: strip_sectors(new),
        member_count: u32::try_from(new.members.len()).unwrap_or(u32::MAX),
        data_offset_sectors: placement.data_offset_sectors,
        data_size_sectors: data_size,
        device_sectors: size_sectors.flatten().unwrap_or(0) / SECTOR_BYTES,
        dev_number: u32::try_from(index).unwrap_or(u32::MAX),
        device_uuid: new.identities.get(index).copied().unwrap_or_default(),
        roles,
        events: EventCount(0),
        resync_offset_sectors: (has_redundancy && new.start == Start::Resync).then_some(0),
        bitmap_offset_sectors: placement.bitmap_offset_sectors.filter(|_| wants_bitmap),
        bad_block_log: placement.bad_block_log,
        is_write_mostly: new.write_mostly.contains(&slot),
    })?;
    if new.has_ppl {
        let offset = placement.bitmap_offset_sectors.unwrap_or(0);
        superblock.ppl = Some(PplArea {
            offset_sectors: i16::try_from(offset).unwrap_or(i16::MAX),
            size_sectors: PPL_SECTORS,
            is_multiple: true,
        });
        superblock.check_encodable()?;
    }
    Ok(superblock)
}

impl Plan {
    /// The member of `slot` shall be filled from the others after the start. Where some but not all redundancy is
    /// missing and parity is not known, that makes it right (mdadm does the same with RAID-6).
    ///
    /// # Panics
    /// When the slot has no member.
    pub fn fill_slot(&mut self, slot: u16) {
        let index = usize::from(slot);
        let filled = self.superblocks[index]
            .as_mut()
            .expect("a slot that is filled has a member");
        if filled.version.has_rebuild_offset() {
            filled.rebuild_offset_sectors = Some(0);
            return;
        }
        // 0.90 cannot say how far a member is filled: there it begins as a spare, which takes the slot.
        let number = filled.dev_number;
        for superblock in self.superblocks.iter_mut().flatten() {
            superblock
                .set_role(number, Role::Spare)
                .expect("the member has a place in the table");
        }
    }

    /// Whether the first resync has to make the members agree.
    #[must_use]
    pub fn needs_resync(&self) -> bool {
        self.start == Start::Resync
    }

    /// Bitmap and bad-block list of a member; written and flushed before any superblock.
    ///
    /// # Errors
    /// `FormatError` when region size and room do not fit, before anything is written.
    pub fn surroundings(&self, index: usize) -> Result<Vec<MetadataWrite>, FormatError> {
        let mut writes = Vec::new();
        let Some(superblock) = &self.superblocks[index] else {
            return Ok(writes);
        };
        if let (Some(area), Some(sector)) =
            (superblock.bad_block_log, superblock.bad_block_log_sector())
        {
            let log = BadBlocks::new(area.size_sectors, area.shift)?;
            writes.push(MetadataWrite {
                at_bytes: sector * SECTOR_BYTES,
                bytes: log.encode(),
            });
        }
        if let Some(area) = self.log_areas[index] {
            let header = LogHeader {
                is_write_back: self.is_write_back,
                ..LogHeader::blank(superblock, area)
            };
            writes.push(MetadataWrite {
                at_bytes: area.header_offset_bytes(),
                bytes: header.encode().to_vec(),
            });
        }
        if let Some(sector) = superblock.ppl_sector() {
            let signature = ppl::signature(&superblock.array_uuid);
            writes.push(MetadataWrite {
                at_bytes: sector * SECTOR_BYTES,
                bytes: PplHeader::new(signature, 0, Vec::new()).encode().to_vec(),
            });
        }
        if let (Some(sector), Some(region_bytes)) = (superblock.bitmap_sector(), self.region_bytes)
        {
            let map = Bitmap::create(&NewBitmap {
                uuid: superblock.bitmap_uuid(),
                events: superblock.events,
                sync_size_sectors: self.geometry.sync_bytes() / SECTOR_BYTES,
                region_bytes: u32::try_from(region_bytes).unwrap_or(u32::MAX),
                reserved_sectors: self.reserved_sectors[index],
                is_all_set: self.start == Start::Resync,
            })?;
            let mut bytes = map.encode();
            bytes.resize(bytes.len().next_multiple_of(4096), 0); // the reserve is whole pages
            writes.push(MetadataWrite {
                at_bytes: sector * SECTOR_BYTES,
                bytes,
            });
        }
        Ok(writes)
    }

    /// The superblock of a member.
    #[must_use]
    pub fn superblock(&self, index: usize) -> Option<MetadataWrite> {
        let superblock = self.superblocks[index].as_ref()?;
        let at_bytes = superblock.super_offset_sectors * SECTOR_BYTES;
        Some(MetadataWrite {
            at_bytes,
            bytes: superblock.encode().to_vec(),
        })
    }
}

/// Carries a plan out on devices (members, then spares; `None` for empty slots).
///
/// # Errors
/// The index of the device that failed and why; what was written before stays.
pub async fn write_new<D: Device>(
    plan: &Plan,
    devices: &[Option<D>],
    pool: &BufPool,
) -> Result<(), (usize, IoError)> {
    for (index, device) in devices.iter().enumerate() {
        let Some(device) = device else { continue };
        let writes = plan
            .surroundings(index)
            .map_err(|_| (index, IoError::OutOfRange))?;
        for write in writes {
            write_to(device, pool, write)
                .await
                .map_err(|error| (index, error))?;
        }
        device.flush().await.map_err(|error| (index, error))?;
    }
    for (index, device) in devices.iter().enumerate() {
        let (Some(device), Some(write)) = (device, plan.superblock(index)) else {
            continue;
        };
        write_to(device, pool, write)
            .await
            .map_err(|error| (index, error))?;
        device.flush().await.map_err(|error| (index, error))?;
    }
    Ok(())
}

async fn write_to<D: Device>(
    device: &D,
    pool: &BufPool,
    write: MetadataWrite,
) -> Result<(), IoError> {
    device
        .write(write.at_bytes, pool.copy_of(&write.bytes).freeze(), Fua::No)
        .await
}
